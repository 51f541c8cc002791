# SPDX-License-Identifier: Apache-2.0
"""Inductor on the simulated device. Needs of torch Inductor's own C++ scheduling for the CPU and the classes that
it asks a device for: kernels are compiled as for the CPU, and the memory of their arguments is open while one runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from .calls.torch_private_inductor import (
    fake_convolutions_as_cpus,
    inductor_packages_for,
    inductor_parts,
    inductor_takes_for_cpu,
)
from .sim_memory import _Error
from .sim_packages import wrapper


class _Opening(ctypes.Structure):  # usc_sim_opening
    _fields_ = [("address", ctypes.c_void_p), ("access", ctypes.c_int)]


_lib: Any = None  # use() sets them
_sim: Any = None


def use(lib: ctypes.CDLL, sim: object) -> None:
    """The runtime, and the device's module."""
    global _lib, _sim
    _lib, _sim = lib, sim
    lib.usc_sim_open_all.argtypes = [ctypes.POINTER(_Opening), ctypes.c_size_t, ctypes.POINTER(_Error)]
    lib.usc_sim_close_all.argtypes = [ctypes.POINTER(_Opening), ctypes.c_size_t]
    lib.usc_sim_set_label.argtypes = [ctypes.c_char_p]
    fake_convolutions_as_cpus("sim")


def run(kernel: Callable[..., Any], name: str, written: str, *args: object) -> None:
    """Runs a compiled kernel behind what its stream has to run. ``written`` has a letter for each argument: ``w``
    for one that the kernel writes."""
    given = [(a, w == "w") for a, w in zip(args, written) if isinstance(a, torch.Tensor) and a.device.type == "sim"]
    if not given:
        kernel(*args)
        return
    _sim.current_stream(given[0][0].device).synchronize()
    wanted = (_Opening * len(given))(*(_Opening(a.untyped_storage().data_ptr(), w) for a, w in given))
    error = _Error()
    _lib.usc_sim_set_label(name.encode())
    try:
        if _lib.usc_sim_open_all(wanted, len(given), ctypes.byref(error)) != 0:
            raise RuntimeError(error.text.decode())
        try:
            kernel(*args)
        finally:
            _lib.usc_sim_close_all(wanted, len(given))
    finally:
        _lib.usc_sim_set_label(None)


def _wrapper(inductor: Any) -> type:
    """What writes the Python that calls the kernels."""

    class Calls(inductor.PythonWrapperCodegen):
        def write_header(self) -> None:
            super().write_header()
            self.header.writeline("from ulpscope.sim_inductor import run as _run_on_sim")

        def make_allocation(
            self, name: str, device: torch.device, *args: Any, **kwargs: Any
        ) -> str:  # where other devices have a guard around all
            line = super().make_allocation(name, device, *args, **kwargs)
            return str(line.replace(f"device='{device.type}'", f"device='{device}'"))

        def generate_kernel_call(
            self, kernel_name: str, call_args: Any, *, triton: bool = True, arg_types: Any = None, **_: Any
        ) -> None:
            if triton:
                raise NotImplementedError(f"sim: {kernel_name} is written in Triton; kernels here are C++")
            types = arg_types or ["void*"] * len(call_args)
            written = "".join("r" if str(t).startswith("const") else "w" for t in types)
            given = ", ".join([kernel_name, repr(kernel_name), repr(written), *map(str, call_args)])
            self.writeline(f"_run_on_sim({given})")

    class Subgraph(Calls, inductor.SubgraphPythonWrapperCodegen):
        pass

    class Wrapper(Calls, inductor.PythonWrapperCodegen):
        @staticmethod
        def create(
            is_subgraph: bool, subgraph_name: str, parent_wrapper: Any, partition_signatures: Any = None
        ) -> object:
            if is_subgraph:
                return Subgraph(subgraph_name, parent_wrapper, partition_signatures)
            return Wrapper()

    return Wrapper


def _overrides(inductor: Any) -> object:
    """The lines about the device that the generated Python has."""

    class Lines(inductor.DeviceOpOverrides):
        def import_get_raw_stream_as(self, name: str) -> str:
            return f"def {name}(device):\n    return torch.sim.current_stream(device).stream_id\n"

        def set_device(self, device_idx: int) -> str:
            return f"torch.sim.set_device({device_idx})"

        def synchronize(self) -> str:
            return "torch.sim.synchronize()"

        def device_guard(self, device_idx: int) -> str:
            return f"torch.sim.device({device_idx})"

        def current_stream(self) -> str:
            return "torch.sim.current_stream()"

        def cpp_kernel_type(self) -> str:
            return "void*"

    return Lines()


def _interface(inductor: Any) -> type:
    """The device as Dynamo asks for it."""

    class Interface(inductor.DeviceInterface):
        device = _sim.device
        Stream = _sim.Stream
        current_device = staticmethod(_sim.current_device)
        set_device = staticmethod(_sim.set_device)
        device_count = staticmethod(_sim.device_count)
        is_available = staticmethod(_sim.is_available)
        stream = staticmethod(_sim.stream)
        current_stream = staticmethod(_sim.current_stream)
        set_stream = staticmethod(_sim.set_stream)
        synchronize = staticmethod(_sim.synchronize)
        memory_allocated = staticmethod(_sim.memory_allocated)
        is_bf16_supported = staticmethod(_sim.is_bf16_supported)

        class Worker:
            current_device = staticmethod(_sim.current_device)
            set_device = staticmethod(_sim.set_device)
            get_device_properties = staticmethod(_sim.get_device_properties)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return int(_sim.current_stream(device_idx).stream_id)

        @staticmethod
        def get_compute_capability(device: object = None) -> str:
            return ""

        @classmethod
        def get_device_properties(cls, device: object = None) -> object:
            return _sim.get_device_properties(device)

        @staticmethod
        def is_triton_capable(device: object = None) -> bool:
            return False

        @staticmethod
        def maybe_exchange_device(device: int) -> int:
            before: int = _sim.current_device()
            if device >= 0:
                _sim.set_device(device)
            return before

        exchange_device = maybe_exchange_device

    return Interface


NAMES = ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen")


def part(name: str) -> object:
    """What torch asks the device's module for, once Inductor is to compile for it."""
    inductor = inductor_parts()
    if name == "Scheduling":
        inductor.register_device_op_overrides("sim", _overrides(inductor))
        inductor.register_interface_for_device("sim", _interface(inductor))
        inductor_takes_for_cpu("sim")
        inductor_packages_for("sim")
        return inductor.CppScheduling
    if name == "PythonWrapperCodegen":
        return _wrapper(inductor)
    return inductor.WrapperFxCodegen if name == "WrapperFxCodegen" else wrapper()
