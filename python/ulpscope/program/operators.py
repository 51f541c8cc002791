# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.operator`: any Python callable becomes a call of a trace: the launch of a Triton
kernel, a function of an extension, whatever torch's dispatcher does not see. Needs nothing of
torch itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, overload

from ..calls import functions

F = TypeVar("F", bound="Callable[..., Any]")

modes: list[Any] = []  # the ApiModes of the captures that run


@overload
def operator(function: F, *, mutates: str | Iterable[str] = (), name: str | None = None) -> F: ...


@overload
def operator(
    function: None = None, *, mutates: str | Iterable[str] = (), name: str | None = None
) -> Callable[[F], F]: ...


def operator(
    function: Callable[..., Any] | None = None, *, mutates: str | Iterable[str] = (), name: str | None = None
) -> Any:
    """
    Makes the calls of a function those of an operator, in every capture:

        @ulpscope.operator(mutates=["out"])
        def rotate(x, out):
            rotate_kernel[grid](x, out, x.numel())

    `mutates` names the parameters that it writes; what else changed is found by its content.
    `name`: what it is called in traces; without it FILE.FUNCTION. A check finds it by that name
    where the file that defines it is imported, which a trace remembers. Raises ValueError where
    `mutates` names no parameter.
    """
    if function is None:
        return functools.partial(operator, mutates=mutates, name=name)
    places = _places(function, [mutates] if isinstance(mutates, str) else list(mutates))
    functions.registered[name or _name_of(function)] = function
    functions.written[function] = places

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not modes:
            return function(*args, **kwargs)
        seen = function if len(modes) == 1 else _below(tuple(modes[:-1]), function)
        return modes[-1].__torch_function__(seen, (), args, kwargs)

    return call


@functools.lru_cache(maxsize=256)
def _below(inner: tuple[Any, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as these modes see it, for one around them."""
    call: Any = function
    for mode in inner:
        call = functools.partial(_seen, mode, call)
        call.operator_of = function
    below: Callable[..., Any] = call
    return below


def _seen(mode: Any, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return mode.__torch_function__(call, (), args, kwargs)


def _name_of(function: Callable[..., Any]) -> str:
    where = Path(inspect.getfile(function)).stem
    return f"{where}.{function.__qualname__.replace('<locals>.', '')}"


def _places(function: Callable[..., Any], mutates: Iterable[str]) -> frozenset[str]:
    names = list(inspect.signature(function).parameters) if mutates else []
    missing = [n for n in mutates if n not in names]
    if missing:
        raise ValueError(f"mutates: {missing[0]} is no parameter of {function.__qualname__}")
    return frozenset(p for n in mutates for p in (f"args[{names.index(n)}]", f"kwargs.{n}"))
