# SPDX-License-Identifier: Apache-2.0
"""``torch.sim.amp``: what torch.cuda.amp has, for the simulated device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def amp_definitely_not_available() -> bool:
    return False


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast("sim", ...)``."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True):
        super().__init__("sim", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


if TYPE_CHECKING:
    from torch.amp import GradScaler as _Scaler
else:
    _Scaler = getattr(torch.amp, "GradScaler", object)  # older torch has CUDA's alone


class GradScaler(_Scaler):
    """``torch.amp.GradScaler("sim", ...)``."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        super().__init__("sim", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Callable[..., Any]:
    """Of an autograd function: runs as autocast has it, or with its floats cast and autocast off."""
    made: Callable[..., Any] = torch.amp.custom_fwd(fwd, device_type="sim", cast_inputs=cast_inputs)
    return made


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """Its backward, in the state of its forward."""
    made: Callable[..., Any] = functools.partial(torch.amp.custom_bwd, device_type="sim")(bwd)
    return made
