# SPDX-License-Identifier: Apache-2.0
"""Assertions for tests of kernels."""

from .calls.verdicts import FLAGGED
from .session.api import check_call

N_SHOWN = 5
N_CASES = 6


def assert_accurate(fn, reference, *args, backward=False, inputs="given", repeat=3, cause=True,
                    **kwargs):  # fmt: skip
    """
    Raises AssertionError where `fn(*args, **kwargs)` is not as accurate as float32
    arithmetic allows, whatever its order: held to `reference`, which runs on the CPU in
    float64 (None: `fn` itself). `backward=True` includes the gradients of float inputs.

    `inputs="stress"` takes the arguments as an example of shapes and dtypes and goes
    through the values, sizes and memory layouts on which kernels break. `fn` runs `repeat`
    times: one that is wrong now and then fails as `intermittent`.

    `cause=False` leaves out the search for the cause of a failure, which runs in a process of
    its own; a number is the seconds that it may take (default 2).

    The message says the effective bits, the cause where it is known, and the worst
    elements. A call that cannot be judged fails as well. Returns the verdict.
    """
    __tracebackhide__ = True
    return passed(check_call(fn, args, kwargs, reference, backward=backward, inputs=inputs,
                             repeat=repeat, cause=cause))  # fmt: skip


def passed(verdict):
    """A verdict that passes; of any other the AssertionError that explains it."""
    __tracebackhide__ = True
    if verdict.verdict == "pass":
        return verdict
    raise AssertionError(explain(verdict))


def explain(verdict):
    """A verdict as the lines of an assertion."""
    bad = [c for c in verdict.cases if not c.passed]
    if not bad:
        return "\n".join(_lines(verdict))
    judged = sum(c.verdict is not None for c in verdict.cases)
    lines = [f"{len(bad)} of {judged} stress cases fail"]
    for case in bad[:N_CASES]:
        lines.append(f'{case.name} (again: inputs="{case.inputs}")')
        lines += [f"  {line}" for line in _lines(case.verdict)]
    if len(bad) > N_CASES:
        lines.append("also " + ", ".join(c.name for c in bad[N_CASES:]))
    return "\n".join(lines)


def _lines(verdict):
    lines = [f"{verdict.verdict}: {verdict.sentence}"]
    for output in verdict.outputs:
        if output.verdict not in FLAGGED:
            continue
        lines.append(
            f"  {output.path or 'call'}: {output.verdict}, {output.effective_bits:.1f} effective "
            f"bits (float32 gives {output.expected_bits:.1f}), "
            f"cause: {output.cause.removeprefix('cause ')}"
        )
        for index, device, correct in output.worst[:N_SHOWN]:
            lines.append(f"    at {list(index)}: {device!r}, correct {correct!r}")
    return lines
