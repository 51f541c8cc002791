# SPDX-License-Identifier: Apache-2.0
"""Calls of which each element is computed by itself: no order of adding loses anything there, and what functions lose
is known. Serves `judges.answers`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from .. import _core
from .exact import never_rounds
from .indices import name_of_one
from .replay import Call, is_composite

if TYPE_CHECKING:
    from .callable import Composite

# An input is given exactly, however strongly a result reacts to it: all libraries compute these to some units in the
# last place, beside their zeros as well. (What is made of an exponential may have lost a product inside, x log2 e.)
FUNCTIONS = frozenset(
    {
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "cos",
        "exp2",
        "log",
        "log10",
        "log1p",
        "log2",
        "reciprocal",
        "rsqrt",
        "sin",
        "sqrt",
        "tan",
        "xlogy",
    }
)

ONE_ROUNDING = frozenset({"div", "mul", "square"})  # of one such operator an input's rounding is none of its matter

# Through these no rounding of an input or of a constant grows, so that elements have none in common.
STEADY = FUNCTIONS | {
    "abs",
    "add",
    "addcdiv",
    "addcmul",
    "celu",
    "deg2rad",
    "div",
    "elu",
    "erf",
    "hardsigmoid",
    "hardswish",
    "leaky_relu",
    "lerp",
    "mul",
    "neg",
    "rad2deg",
    "rsub",
    "selu",
    "square",
    "sub",
    "tanh",
}


@functools.cache
def _moves(name: str) -> bool:
    return never_rounds(f"aten::{name}")


def names_in(call: Composite, path: str) -> frozenset[str]:
    """Bare names of the operators in front of one output of a callable; none where nobody knows."""
    return call.made_by.get(path) or call.names


def _names_in(call: Call, path: str) -> set[str]:
    """Bare names of the operators in front of an output, in place or not; none where nobody knows."""
    if is_composite(call):
        names = names_in(call, path)
    else:
        known = call.schema is not None and call.op.startswith("aten::")
        names = frozenset({name_of_one(call)} if known else ())
    return {n.removesuffix("_") if not n.startswith("_") else n for n in names}


def alone(call: Call, path: str) -> int:
    """How far each element of an output is computed by itself: `usc_alone` in case.h."""
    names = _names_in(call, path)
    if not names:
        return 0
    if names <= ONE_ROUNDING and name_of_one(call):
        return _core.alone_sharp
    for known, level in ((FUNCTIONS, _core.alone_sharp), (STEADY, _core.alone_steady)):
        if all(n in known or _moves(n) for n in names):
            return level
    return 0
