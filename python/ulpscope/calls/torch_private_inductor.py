# SPDX-License-Identifier: Apache-2.0
"""What of Inductor, which compiles for the simulated device, has private names: torch_private.py's neighbour. Loads
nothing that torch does not load: Inductor is imported where it is asked for."""

from __future__ import annotations

import types
from typing import Any

import torch

__all__ = [
    "fake_convolutions_as_cpus",
    "inductor_graph",
    "inductor_packages_for",
    "inductor_parts",
    "inductor_takes_for_cpu",
]


def inductor_parts() -> types.SimpleNamespace:
    """The classes that Inductor makes a device's code with, and where a device brings its own."""
    from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
    from torch._inductor.codegen import common, cpp, wrapper

    try:
        from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen
    except ImportError:  # an older torch does not ask for it
        WrapperFxCodegen = None
    try:
        from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
    except ImportError:  # an older torch has another
        CppWrapperCpu = object
    return types.SimpleNamespace(
        DeviceInterface=DeviceInterface,
        register_interface_for_device=register_interface_for_device,
        DeviceOpOverrides=common.DeviceOpOverrides,
        register_device_op_overrides=common.register_device_op_overrides,
        CppScheduling=cpp.CppScheduling,
        PythonWrapperCodegen=wrapper.PythonWrapperCodegen,
        SubgraphPythonWrapperCodegen=wrapper.SubgraphPythonWrapperCodegen,
        WrapperFxCodegen=WrapperFxCodegen,
        CppWrapperCpu=CppWrapperCpu,
    )


def inductor_graph() -> Any:
    """The graph that Inductor is about to write code for."""
    from torch._inductor.virtualized import V

    return V.graph


def inductor_takes_for_cpu(device_type: str) -> None:
    """Has Inductor fuse loops and propagate dtypes for a device as for the CPU, whose C++ it compiles there: it asks
    for the device's name, and not for who makes its code."""
    from torch._inductor import config, lowering, scheduler, utils
    from torch._inductor.codegen import common
    from torch._inductor.virtualized import V

    node = scheduler.BaseSchedulerNode
    is_cpu: Any = getattr(node, "is_cpu", None)
    backend: Any = getattr(utils, "get_current_backend", None)

    def is_cpu_or_this(self: Any) -> bool:
        device = self.get_device()
        return bool(is_cpu(self)) or (device is not None and device.type == device_type)

    def backend_or_cpus(kind: str | None = None) -> str:
        kind = kind or V.graph.get_current_device_or_throw().type
        found: str = backend("cpu" if kind == device_type else kind)
        return found

    in_two_steps: Any = getattr(lowering, "use_two_step_variance", None)

    def in_two_steps_or_cpus(x: Any, *args: object, **kwargs: object) -> bool:
        if x.get_device().type != device_type:
            return bool(in_two_steps(x, *args, **kwargs))
        with config.patch(unroll_reductions_threshold=config.cpp.use_two_step_variance_threshold):
            return bool(in_two_steps(x, *args, **kwargs))

    if in_two_steps is not None and hasattr(config.cpp, "use_two_step_variance_threshold"):
        lowering.use_two_step_variance = in_two_steps_or_cpus
    if is_cpu is not None:  # an older torch does not ask
        node.is_cpu = is_cpu_or_this
    if backend is not None:
        for module in (utils, common):
            module.get_current_backend = backend_or_cpus


def fake_convolutions_as_cpus(device_type: str) -> None:
    """Has fake tensors of a device lay out what a convolution gives as the CPU does, whose kernels it runs: torch
    knows the layouts of its own devices, and takes any other's for rows in order."""
    from torch._subclasses.fake_impls import op_implementations_dict as known

    aten = torch.ops.aten
    theirs = known.get(aten.convolution.default)
    if theirs is None:  # an older torch has another place for it
        return

    def moved(mode: Any, value: object, device: object) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

    def as_cpus(mode: object, func: object, *args: object, **kwargs: object) -> object:
        first = args[0] if args else next(iter(kwargs.values()))
        device = getattr(first, "fake_device", None)
        if device is None or device.type != device_type:
            return theirs(mode, func, *args, **kwargs)
        words = {name: moved(mode, value, "cpu") for name, value in kwargs.items()}
        out = theirs(mode, func, *(moved(mode, value, "cpu") for value in args), **words)
        return tuple(moved(mode, one, device) for one in out) if isinstance(out, tuple) else moved(mode, out, device)

    for op in (aten.convolution.default, aten._convolution.default, aten.convolution_backward.default):
        if known.get(op) is theirs:
            known[op] = as_cpus


def inductor_packages_for(device_type: str) -> None:
    """Has AOTInductor parse its headers in each package for a device: those that it parses once are another's."""
    from torch._inductor import codecache, config

    compile_all = codecache.AotCodeCompiler.compile
    if not hasattr(config.aot_inductor, "precompile_headers"):  # an older torch parses them anyway
        return

    def compile_one(*args: object, device_type: str, **kwargs: object) -> object:
        its_own = device_type == its and {"aot_inductor.precompile_headers": False}
        with config.patch(its_own or {}):
            return compile_all(*args, device_type=device_type, **kwargs)

    its = device_type
    codecache.AotCodeCompiler.compile = staticmethod(compile_one)
