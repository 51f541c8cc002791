# SPDX-License-Identifier: Apache-2.0
"""Assertions for tests of kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .session.api import CallVerdict, check_call
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
    elements. A call that cannot be judged fails as well; of one that passes with outputs that nobody
    could judge a warning says which and why. Returns the verdict.
    """
    __tracebackhide__ = True
    how = {"backward": backward, "inputs": inputs, "repeat": repeat, "cause": cause, "via": via}
    return passed(check_call(fn, args, kwargs, reference, **how))


def passed(verdict: CallVerdict) -> CallVerdict:
    """A verdict that passes; of any other the AssertionError that explains it."""
    __tracebackhide__ = True
    if verdict.verdict == "pass":
        if verdict.not_judged:
            warnings.warn(f"{verdict.sentence}", stacklevel=3)
        return verdict
    raise AssertionError(explain(verdict))
