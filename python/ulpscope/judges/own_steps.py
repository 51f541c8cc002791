# SPDX-License-Identifier: Apache-2.0
"""Operators that torch takes apart itself before a device sees them: what float16 or bfloat16 lose
between these steps is torch's, not the device's. The device's own way through the steps is taken,
each step correctly rounded. Serves `readings`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ..calls.mode import Mode
from ..calls.older import zip_equal
from ..calls.nested import mapped, tensors_in
from ..calls.replay import BadCall, Call, is_write
from ..calls.call_results import outputs_of, plain
from ..calls.torch_private import DispatchKey, OpOverload, has_kernel, key_for_device
from ..executors.device import TorchDevice
from ..executors.precision import Widen


class Correct(Mode):
    """Gives every step's result as the correctly rounded one, moved by what float32 may lose
    where `seed` is not 0."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = torch.Generator().manual_seed(seed) if seed else None

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        returns = func._schema.returns
        is_view = any(r.alias_info and not r.alias_info.is_write for r in returns)
        if is_view:
            return func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise BadCall("a step draws random numbers")
        written = {a.name for a in func._schema.arguments if is_write(a)}
        given = [mapped(a, _on_host) for a in args], {k: mapped(v, _on_host) for k, v in kwargs.items()}
        out = func(*args, **kwargs)
        wide = _run(func, given, torch.float64)
        narrow = _run(func, given, torch.float32) if self.random else wide
        results = [list(tensors_in(r)) for r in (out, wide, narrow)]
        if written and not results[0]:
            raise BadCall("a step gives nothing but what it writes")
        for target, right, lost in zip_equal(*results):
            target.copy_(self._moved(right, lost) if right.is_floating_point() else right)
        return out

    def _moved(self, right: torch.Tensor, narrow: torch.Tensor) -> torch.Tensor:
        if self.random is None or not right.numel():
            return right
        loss = (narrow.double() - right).abs().nan_to_num(0, 0, 0)
        size = torch.maximum(loss, loss.square().mean().sqrt()) + 2.0**-24 * right.abs()
        moved = right + 2 * size * (2 * torch.rand(right.shape, generator=self.random) - 1)
        return torch.where(right.isfinite(), moved, right)


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def _run(func: Callable[..., Any], given: tuple[list[Any], dict[str, Any]], dtype: torch.dtype) -> Any:
    """The step on copies of its arguments, floats in a wider dtype: it may write them, whatever they hold."""

    def widened(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(dtype if value.is_floating_point() else value.dtype, copy=True)

    args, kwargs = ([mapped(a, widened) for a in given[0]], {k: mapped(v, widened) for k, v in given[1].items()})
    with Widen(dtype):
        return func(*args, **kwargs)


# ---- runs ------------------------------------------------------------------------------


def taken_apart_by_torch(call: Call, device: Any) -> bool:
    """Whether torch itself takes the operator apart on that device."""
    function, key = call.function, DispatchKey.CompositeImplicitAutograd
    if type(device) is not TorchDevice or not isinstance(function, OpOverload):
        return False
    if not function.has_kernel_for_dispatch_key(key):
        return False
    try:
        own = key_for_device(device.type)
        return not has_kernel(function.name(), own)
    except (AttributeError, RuntimeError):  # a torch that does not tell
        return False


def steps_of(call: Call, device: Any) -> Callable[[int], dict[str, torch.Tensor] | None]:
    """A function k -> (path -> what run k of the device's own steps gives, each correctly rounded; of run 0
    without noise), or None where torch does not take the call apart there."""
    return cache(lambda k: _run_in_steps(call, device, k) if taken_apart_by_torch(call, device) else None)


def steps_anywhere(call: Call) -> Callable[[int], dict[str, torch.Tensor] | None]:
    """The same where no device is known, of outputs that are given and of a pack: the steps that torch takes on the
    CPU. Those of an extension's operator are its own, and excuse nothing."""
    if getattr(call.function, "namespace", "aten") != "aten":
        return lambda k: None
    return steps_of(call, TorchDevice("cpu"))


def _run_in_steps(call: Call, device: Any, k: int) -> dict[str, torch.Tensor]:
    bound = device.bind(call)
    with Correct(k):
        result = device.compute(call, bound)
    return {p: plain(t).clone() for p, t in outputs_of(call, bound, result).items()}
