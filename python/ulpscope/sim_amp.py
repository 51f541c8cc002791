# SPDX-License-Identifier: Apache-2.0
"""``torch.sim.amp``: what torch.cuda.amp has, for the simulated device."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def amp_definitely_not_available() -> bool:
    return False


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast("sim", ...)``."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True):
        super().__init__("sim", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(getattr(torch.amp, "GradScaler", object)):  # older torch has CUDA's alone
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


def custom_fwd(fwd: Callable | None = None, *, cast_inputs: torch.dtype | None = None) -> Callable:
    """Of an autograd function: runs as autocast has it, or with its floats cast and autocast off."""
    return torch.amp.custom_fwd(fwd, device_type="sim", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable) -> Callable:
    """Its backward, in the state of its forward."""
    return functools.partial(torch.amp.custom_bwd, device_type="sim")(bwd)
