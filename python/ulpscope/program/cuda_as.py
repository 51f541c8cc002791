# SPDX-License-Identifier: Apache-2.0
"""`ulpscope run --cuda-as sim`: a script that asks for cuda gets another device and is not told. A thin
shim, in the main thread and the process at hand: what it answers stands in docs/how-to/port-cuda-code.md.

Needs of torch: a mode for functions, and the modules that scripts ask."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

NAMES = (
    "is_available is_initialized init device_count current_device set_device device get_device_name synchronize "
    "current_stream stream Stream Event manual_seed manual_seed_all initial_seed get_rng_state set_rng_state "
    "is_bf16_supported memory_stats memory_allocated max_memory_allocated memory_reserved reset_peak_memory_stats "
    "empty_cache"
).split()
IS_CUDA, DEVICE = torch.Tensor.is_cuda.__get__, torch.Tensor.device.__get__
CUDA = re.compile(r"cuda(:\d+)?")


def other(device: Any, name: str) -> Any:
    """The device that stands for one: cuda's by the other name, all else as it is."""
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device(name) if device.index is None else torch.device(name, device.index)
    if isinstance(device, str) and CUDA.fullmatch(device):
        return device.replace("cuda", name)
    return device


class CudaAs(TorchFunctionMode):
    """Devices go in by the other name and come out as cuda."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function == IS_CUDA:
            return DEVICE(args[0]).type == self.name
        if function == DEVICE:
            device = function(*args)
            return torch.device("cuda", device.index) if device.type == self.name else device
        if function is torch.Tensor.cuda:
            return self._cuda(*args, **kwargs)
        if function is torch.Tensor.to and len(args) > 1:
            args = (args[0], other(args[1], self.name), *args[2:])
        args = tuple(other(a, self.name) if isinstance(a, torch.device) else a for a in args)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": other(kwargs["device"], self.name)}
        return function(*args, **kwargs)

    def _cuda(
        self,
        tensor: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: Any = torch.preserve_format,
    ) -> torch.Tensor:
        if device is None or isinstance(device, int):
            device = torch.device(self.name) if device is None else torch.device(self.name, device)
        return tensor.to(other(device, self.name), non_blocking=non_blocking, memory_format=memory_format)


def first_is_device(function: Any, name: str, key: str) -> Any:
    """The function or method, with the device that it is given by place or by name under the other name."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(other(a, name) for a in args)
        if key in kwargs:
            kwargs[key] = other(kwargs[key], name)
        return function(*args, **kwargs)

    return call


def start(name: str) -> None:
    """From here on cuda is the device of that name. An error where there is none."""
    if name == "sim":
        importlib.import_module("ulpscope.sim")
    module = getattr(torch, name, None)
    if module is None:
        importlib.import_module(f"torch_{name}")
        module = getattr(torch, name)
    for word in NAMES:
        if hasattr(module, word):
            setattr(torch.cuda, word, getattr(module, word))
    torch.autocast.__init__ = first_is_device(torch.autocast.__init__, name, "device_type")
    torch.amp.GradScaler.__init__ = first_is_device(torch.amp.GradScaler.__init__, name, "device")
    torch.load = first_is_device(torch.load, name, "map_location")
    torch.set_default_device = first_is_device(torch.set_default_device, name, "device")
    CudaAs(name).__enter__()
