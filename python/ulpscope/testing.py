# SPDX-License-Identifier: Apache-2.0
"""Assertions for tests of kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .session.api import check_call
from .session.call_verdict import CallVerdict
from .session.explained import explain


def assert_accurate(
    fn: Callable[..., Any],
    reference: Callable[..., Any] | None,
    *args: Any,
    backward: bool = False,
    inputs: str = "given",
    repeat: int = 3,
    cause: bool | float = True,
    via: str = "",
    allow: str = "",
    **kwargs: Any,
) -> CallVerdict:
    """
    Raises AssertionError where `fn(*args, **kwargs)` is not as accurate as float32
    arithmetic allows, whatever its order: held to `reference`, which runs on the CPU in
    float64 (None: `fn` itself). `backward=True` includes the gradients of float inputs.

    `inputs="stress"` takes the arguments as an example of shapes and dtypes and goes
    through the values, sizes and memory layouts on which kernels break. `fn` runs `repeat`
    times: one that is wrong now and then fails as `intermittent`.

    `cause=False` leaves out the search for the cause of a failure, which runs in a process of
    its own; a number is the seconds that it may take (default 2).

    `via` names a compiler or a runtime that computes `fn`, "triton" Triton's interpreter, as for `check_call`.

    The message says the effective bits, the cause where it is known, and the worst
    elements. A call that cannot be judged fails as well, and so does one of which some outputs could
    not: `allow="unjudged:out[1]"` (`out[1],out[2]`; `"unjudged"`: any) accepts these, and a warning says
    which and why. Returns the verdict.
    """
    __tracebackhide__ = True
    check_allow(allow)
    how: dict[str, Any] = {"backward": backward, "inputs": inputs, "repeat": repeat, "cause": cause, "via": via}
    return passed(check_call(fn, args, kwargs, reference, **how), allow)


def check_allow(allow: str) -> None:
    """Raises ValueError where it is no form of --allow unjudged."""
    if allow and allow.partition(":")[0] != "unjudged":
        raise ValueError(f'allow={allow!r}: "unjudged", or "unjudged:out[1]" of outputs, is needed')


def passed(verdict: CallVerdict, allow: str = "") -> CallVerdict:
    """A verdict that passes; of any other the AssertionError that explains it."""
    __tracebackhide__ = True
    if verdict.verdict != "pass":
        raise AssertionError(explain(verdict))
    paths = allow.partition(":")[2]
    accepted = [path.strip() for path in paths.split(",")] if paths else verdict.not_judged
    left = [path for path in verdict.not_judged if not allow or path not in accepted]
    if left:
        raise AssertionError(f'{explain(verdict)}\nto accept that: allow="unjudged:{",".join(left)}"')
    if verdict.not_judged:
        warnings.warn(f"{verdict.sentence}", stacklevel=3)
    return verdict
