# SPDX-License-Identifier: Apache-2.0
"""Callables followed by the gradients of their inputs, and by the gradients of those, so that a check judges
all. Needs torch's autograd. Serves `session.api`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from .callable import name_of
from .foreign import theirs
from .nested import mapped

FIRST = 1009  # of the cotangents of gradients


def differentiated(check: Any) -> Any:
    """A check of the gradients as well, with `check.twice` of theirs too. A module's parameters and buffers
    become arguments, so that the reference computes with them in its own precision; where the module is its
    own reference, gradients of its parameters are judged too."""
    module, twice = check.reference, check.twice
    if not isinstance(module, torch.nn.Module):
        fn, reference = with_gradients(check.fn, twice), with_gradients(module, twice)
        return replace(check, fn=fn, reference=reference, given=check)

    def stated(state: dict[str, torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(module, state, args, kwargs)

    stated.__name__ = name_of(module)
    own = {name for name, p in module.named_parameters() if p.requires_grad} if check.own else ()
    reference = with_gradients(stated, twice, own)
    fn = reference if check.own else with_gradients(check.fn, twice)
    return replace(check, fn=fn, reference=reference, state=(_detached(module),), given=check)


def _detached(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    pairs = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach() for name, tensor in pairs}


def with_gradients(fn: Callable[..., Any], twice: bool = False, own: Iterable[str] | None = None) -> Callable[..., Any]:
    """`fn` followed by the gradients of its float and complex inputs for one fixed cotangent; with `twice` by
    those of these gradients too, of the inputs and the cotangent. With `own` its first argument is a module's
    state, of which these names have gradients. What brings its own gradients stays as it is."""
    if getattr(fn, "differentiated", False):
        return fn

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves: list[torch.Tensor] = []

        def leaf(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
                leaves.append(value.detach().requires_grad_())
                return leaves[-1]
            return value

        state: tuple[()] | tuple[dict[str, Any]] = ()
        if own is not None:
            state, args = ({k: leaf(v) if k in own else v for k, v in args[0].items()},), args[1:]
        args, kwargs = mapped(args, leaf), mapped(kwargs, leaf)
        with torch.enable_grad():
            result = theirs(fn, *state, *args, **kwargs)
            outputs = [t for t in _with_grad(result)]
            if not outputs or not leaves:  # nothing hangs on an input
                return result, []
            cotangents = [cotangent(t).requires_grad_(twice) for t in outputs]
            gradients = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, create_graph=twice)
            gradients = [g for g in gradients if g is not None]
            if not twice:
                return result, gradients
            return result, gradients, _second(gradients, leaves + cotangents)

    run.__name__ = f"{name_of(fn)} with {'double ' if twice else ''}backward"
    return run


def _second(gradients: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of gradients. One that hangs on nothing, as of what is linear, has none; a cotangent
    of its own keeps what a mistake in the first one would hide."""
    first = [g for g in gradients if g.requires_grad]
    if not first:
        return []
    given = [cotangent(g, FIRST) for g in first]
    return [g for g in torch.autograd.grad(first, leaves, given, allow_unused=True) if g is not None]


def _with_grad(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result] if result.requires_grad else []
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [t for item in result for t in _with_grad(item)]
    return []


def cotangent(output: torch.Tensor, first: int = 0) -> torch.Tensor:
    """Values that every float dtype holds, the same for every run and device. `first`: where in them it begins."""
    mixed = torch.arange(first, first + output.numel()).mul_(40503).bitwise_right_shift_(5) % 64
    values = (2 * mixed - 63).double() / 32  # odd, so never 0; 6 significant bits
    if output.is_complex():
        values = torch.complex(values, -values / 2)
    return values.reshape(output.shape).to(output.device, output.dtype)
