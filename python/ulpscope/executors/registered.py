# SPDX-License-Identifier: Apache-2.0
"""References that a program registered for operators, before the built-in ones. Bound in
`ulpscope.reference`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..calls.functions import references as _registered
from . import formulas

F = TypeVar("F", bound="Callable[..., Any]")


def register(op: str) -> Callable[[F], F]:
    """Decorator: the function is the reference of `op` (`ns::name` for all its overloads,
    or `ns::name.overload`; FILE.FUNCTION of an `ulpscope.operator`). A later registration
    replaces an earlier one."""

    def bind(function: F) -> F:
        _registered[op.removesuffix(".default")] = function
        return function

    return bind


def registered(op: str) -> Callable[..., Any] | None:
    """What was registered for `ns::name.overload`, or None."""
    exact = op.removesuffix(".default")
    return _registered.get(exact) or _registered.get(exact.split(".")[0])


def find(op: str) -> Callable[..., Any] | None:
    """The reference of `ns::name.overload`: the registered one, else a built-in one as a
    function of (schema, args, kwargs), else None."""
    return registered(op) or formulas.find(op)
