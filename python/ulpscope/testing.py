# SPDX-License-Identifier: Apache-2.0
"""Assertions for tests of kernels."""

from ._judge_api import check_call
from ._verdicts import FLAGGED

N_SHOWN = 5


def assert_accurate(fn, reference, *args, backward=False, **kwargs):
    """
    Raises AssertionError where `fn(*args, **kwargs)` is not as accurate as float32
    arithmetic allows, whatever its order: held to `reference`, which runs on the CPU in
    float64 (None: `fn` itself). `backward=True` includes the gradients of float inputs.

    The message says the effective bits, the cause where it is known, and the worst
    elements. A call that cannot be judged fails as well. Returns the verdict.
    """
    __tracebackhide__ = True
    verdict = check_call(fn, args, kwargs, reference, backward=backward)
    if verdict.verdict == "pass":
        return verdict
    raise AssertionError(explain(verdict))


def explain(verdict):
    """A verdict as the lines of an assertion."""
    lines = [f"{verdict.verdict}: {verdict.sentence}"]
    for output in verdict.outputs:
        if output.verdict not in FLAGGED:
            continue
        lines.append(
            f"  {output.path or 'call'}: {output.verdict}, {output.effective_bits:.1f} effective "
            f"bits (float32 gives {output.expected_bits:.1f}), "
            f"cause: {output.cause or 'unknown'}"
        )
        for index, device, correct in output.worst[:N_SHOWN]:
            lines.append(f"    at {list(index)}: {device!r}, correct {correct!r}")
    return "\n".join(lines)
