# SPDX-License-Identifier: Apache-2.0
"""Public names of torch that came after 2.1, each by a name of ours: torch's own where it has it, else what an
older one has for it. A name without any such way says so when it is used."""

from __future__ import annotations

import sys
from typing import Any
from typing import TYPE_CHECKING

import torch

from .torch_private import private_backend

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["accelerator", "autocast_dtype", "device_module", "event", "is_autocast_on", "is_compiling", "real_dtype"]


def _asks_the_compiler() -> bool:
    """Whether torch.compile traces this code; what has not loaded the compiler is not traced."""
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and bool(getattr(dynamo, "is_compiling", bool)())


is_compiling = getattr(torch.compiler, "is_compiling", _asks_the_compiler)  # torch's own is known to its compiler


def device_module(device: str | torch.device) -> ModuleType:
    """`torch.cuda` and its like."""
    here = hasattr(torch, "get_device_module")
    found: ModuleType = torch.get_device_module(device) if here else getattr(torch, torch.device(device).type)
    return found


def accelerator() -> torch.device | None:
    """The device that this torch has beside the CPU, where it can be used; None where there is none."""
    if hasattr(torch, "accelerator"):
        return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    for name in (private_backend(), "cuda", "xpu", "mps"):
        ask = getattr(getattr(torch, name, None), "is_available", None)
        if ask is not None and ask():
            return torch.device(name)
    return None


def event(device: torch.device) -> Any:
    """An event of a device, which can be recorded and asked."""
    return torch.Event(device) if hasattr(torch, "Event") else device_module(device).Event()


def is_autocast_on(device: str) -> bool:
    """Whether operators of a type of device run under autocast in this thread."""
    if hasattr(torch, "get_autocast_dtype"):
        return bool(torch.is_autocast_enabled(device))
    ask = {"cpu": "is_autocast_cpu_enabled", "xpu": "is_autocast_xpu_enabled", "cuda": "is_autocast_enabled"}.get(
        device
    )
    return bool(ask and getattr(torch, ask, bool)())


def autocast_dtype(device: str) -> torch.dtype:
    """The dtype to which autocast takes a type of device."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device)
    return torch.get_autocast_cpu_dtype() if device == "cpu" else torch.get_autocast_gpu_dtype()


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of the parts of complex numbers; another dtype itself. `dtype.to_real()` of torch 2.1 gives a reference away,
    and after some thousand calls the process dies of a dtype that was freed."""
    return torch.view_as_real(torch.empty(0, dtype=dtype)).dtype if dtype.is_complex else dtype
