# SPDX-License-Identifier: Apache-2.0
"""What a user's function returned in place of an operator, held to the operator's schema.

Needs of torch: an operator's schema, its meta kernel, and tensors' aliasing."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ..calls.callable import parameters
from ..calls.foreign import foreign, theirs
from ..calls.older import zip_equal
from ..calls.torch_private import OpOverload, is_alias_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Function:
    """Stands between the glue and the user's function; called with the operator's name and
    its arguments, gives back what the schema says."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.keywords = _keywords(fn)
        self.known: dict[Any, list[Any] | None] = {}  # what the meta kernel says, by signature

    def __call__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        op = _operator(name)
        given = theirs(self.fn, *args, **(self._without_out(op, kwargs) if kwargs else kwargs))
        arguments = _named(op, args, kwargs)
        written = [a for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        try:
            if written:
                return _write(op, arguments, [a.name for a in written], given)
            results = _counted(op, given, len(op._schema.returns))
            _hold(results, self._expected(op, args, kwargs))
        except ValueError as error:
            raise ValueError(f"substitute for {name}: the function {error}") from None
        results = [_own(r, arguments) for r in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _without_out(self, op: OpOverload, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keywords without out= where the function takes none: its results are copied there."""
        if self.keywords is None:
            return kwargs
        out = {a.name for a in op._schema.arguments if a.is_out}
        return {k: v for k, v in kwargs.items() if k not in out or k in self.keywords}

    def _expected(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """What the operator's meta kernel returns; None where it has none."""
        key = (op, _signature(args), _signature(kwargs))
        if key not in self.known:
            if len(self.known) > 1000:
                self.known.clear()
            self.known[key] = _by_meta(op, args, kwargs)
        return self.known[key]


def _keywords(fn: Callable[..., Any]) -> set[str] | None:
    """Names that a function takes by keyword; None: any, or nobody knows."""
    known = parameters(fn)
    if known is None or any(p.kind is p.VAR_KEYWORD for p in known):
        return None
    return {p.name for p in known if p.kind is not p.POSITIONAL_ONLY}


@functools.cache
def _operator(name: str) -> OpOverload:
    """The OpOverload of "ns::name.overload"."""
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), base), overload or "default")


def _named(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [a.name for a in op._schema.arguments if not a.kwarg_only]
    return dict(zip_equal(names, args)) | kwargs


def _signature(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(map(_signature, value))
    if isinstance(value, dict):
        return tuple((k, _signature(v)) for k, v in value.items())
    return repr(value)


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [_to_meta(v) for v in value]
    return torch.device("meta") if isinstance(value, torch.device) else value


def _by_meta(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    try:
        found = theirs(op, *map(_to_meta, args), **{k: _to_meta(v) for k, v in kwargs.items()})
    except Exception as problem:  # a kernel of the user's, or none: then nothing is known
        foreign(problem)
        return None
    found = found if isinstance(found, (tuple, list)) and len(op._schema.returns) != 1 else [found]
    return list(found)


def _counted(op: OpOverload, given: Any, n: int) -> list[Any]:
    """The function's results as a list of `n`."""
    several = isinstance(given, (tuple, list)) and n != 1
    results = list(given) if several else [] if given is None and n == 0 else [given]
    if len(results) != n:
        kinds = ", ".join(str(r.type) for r in op._schema.returns)
        raise ValueError(
            f"returned {len(results)} result{'s' * (len(results) != 1)}, the operator returns {n} ({kinds})"
        )
    for i, (result, said) in enumerate(zip(results, op._schema.returns)):
        if str(said.type) == "Tensor" and not isinstance(result, torch.Tensor):
            raise ValueError(f"returned {type(result).__name__} as result {i}, the operator returns a Tensor")
    return results


def _hold(results: list[Any], expected: list[Any] | None) -> None:
    """Raises ValueError where results are not what the meta kernel says."""
    for i, (got, said) in enumerate(zip(results, expected or [])):
        if not isinstance(got, torch.Tensor) or not isinstance(said, torch.Tensor):
            continue
        if got.shape != said.shape:
            raise ValueError(f"returned shape {list(got.shape)} as result {i}, the operator returns {list(said.shape)}")
        if got.dtype != said.dtype:
            raise ValueError(f"returned {_name(got)} as result {i}, the operator returns {_name(said)}")


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _own(result: Any, arguments: dict[str, Any]) -> Any:
    """A result that is an argument, or a view of one, as a tensor of its own: nothing told
    autograd that they share memory."""
    if not isinstance(result, torch.Tensor):
        return result
    shares = any(is_alias_of(result, a) for a in _tensors(arguments))
    return result.clone() if shares else result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _write(op: OpOverload, arguments: dict[str, Any], names: list[str], given: Any) -> Any:
    """Of an operator that writes arguments: copies results into them, in their order."""
    returns = op._schema.returns
    fresh = [r for r in returns if r.alias_info is None]
    results = [given] if len(names) == 1 and not fresh else list(given) if isinstance(given, (tuple, list)) else [given]
    if given is None or not results:
        results = [None] * len(names)
    if len(results) not in (len(names) + len(fresh), len(fresh)):
        raise ValueError(
            f"returned {len(results)} results, the operator writes {', '.join(names)}"
            + f" and returns {len(fresh)} more" * bool(fresh)
        )
    if len(results) != len(fresh) or not fresh:
        for name in names:
            _copy(name, arguments[name], results.pop(0))
    values = [
        arguments[names[min(i, len(names) - 1)]] if r.alias_info is not None else results.pop(0)
        for i, r in enumerate(returns)
    ]
    return values[0] if len(values) == 1 else tuple(values)


def _copy(name: str, into: Any, result: Any) -> None:
    if result is None or result is into:
        return
    if isinstance(into, (list, tuple)):
        if not isinstance(result, (list, tuple)) or len(result) != len(into):
            raise ValueError(f"did not return {len(into)} tensors for {name}")
        for one, other in zip_equal(into, result):
            _copy(name, one, other)
        return
    if not isinstance(result, torch.Tensor):
        raise ValueError(f"returned {type(result).__name__} for {name}, which is a Tensor")
    if result.shape != into.shape or result.dtype != into.dtype:
        raise ValueError(
            f"returned {_name(result)} {list(result.shape)} for {name}, which is {_name(into)} {list(into.shape)}"
        )
    into.copy_(result)
