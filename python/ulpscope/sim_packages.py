# SPDX-License-Identifier: Apache-2.0
"""Packages of AOTInductor for the simulated device. Needs of torch Inductor's own C++ wrapper for the CPU: what it
writes gets the device's memory in place of the host's, has the memory of a kernel's arguments open while it runs, and
calls all other operators through torch's dispatcher. glue/sim/package_code.h is the C++ side of it."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import torch

from .calls.torch_private import all_operator_names
from .calls.torch_private_inductor import inductor_graph, inductor_parts
from .program import glue

_SHIMS = "torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h"
_RUNTIME = "torch/csrc/inductor/aoti_runtime/model_base.h"


def _headers() -> Path:
    return Path(torch.__file__).parent / "include"


@functools.cache
def _shims() -> str:
    """The operators that Inductor calls by C shims of a device, as the device has them: declared as the CPU's."""
    named = {}
    for full in all_operator_names():
        space, _, name = full.partition("::")
        if space == "aten":
            op, _, overload = name.partition(".")
            named[f"{op}_{overload}" if overload else op] = (full.partition(".")[0], overload)
    declared = re.findall(r"aoti_torch_cpu_(\w+)\(", (_headers() / _SHIMS).read_text("utf-8"))
    lines = []
    for shim in declared:
        known = named.get(re.sub(r"_v\d+$", "", shim))
        if known is not None:
            kind = f"usc_sim_package_shim<decltype(aoti_torch_cpu_{shim})>"
            lines.append(
                f'[[maybe_unused]] static constexpr {kind} aoti_torch_sim_{shim}{{"{known[0]}", "{known[1]}"}};'
            )
    return "\n".join(lines)


def _preamble() -> str:
    """What stands before the code that Inductor writes."""
    inputs = "".join("s" if _is_on_sim(value) else "h" for value in inductor_graph().graph_inputs.values())
    return "\n".join(
        [
            f'#define USC_SIM_PACKAGE_TORCH "{torch.__version__.partition("+")[0]}"',
            f'#define USC_SIM_PACKAGE_INPUTS "{inputs}"',
            (glue.PACKAGE / "glue" / "sim" / "package_code.h").read_text("utf-8").replace("#pragma once\n", ""),
            _shims(),
        ]
    )


def _is_on_sim(value: object) -> bool:
    device = value.get_device() if hasattr(value, "get_device") else None
    return device is not None and device.type == "sim"


def _refused() -> str:
    """Why no package is made of what Inductor compiles; "" where one is."""
    graph = inductor_graph()
    if not graph.aot_mode:
        return (
            "sim: Inductor's wrapper in C++ is there for packages of AOTInductor alone; leave "
            "torch._inductor.config.cpp_wrapper off"
        )
    if "aoti_torch_mps_malloc" not in (_headers() / _RUNTIME).read_text("utf-8") or _version() < (2, 13):
        return f"sim: packages of AOTInductor need torch 2.13 or newer, and this is {torch.__version__}"
    return ""


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _refuse_constants() -> None:
    """A package has its constants in one block of the device, by their numbers: others would shift these."""
    graph = inductor_graph()
    elsewhere = [name for name, value in graph.constants.items() if value.device.type != "sim"]
    if elsewhere or graph.folded_constants:
        names = ", ".join(elsewhere or graph.folded_constants)
        raise NotImplementedError(
            f"sim: a package has all its constants on the device, and {names} would not be there: move the whole "
            "model with .to('sim'), and leave torch._inductor.config.aot_inductor.use_runtime_constant_folding off"
        )


def wrapper() -> type:
    """What writes the C++ that calls the kernels."""
    inductor: Any = inductor_parts()

    class Wrapper(inductor.CppWrapperCpu):
        def __init__(self) -> None:
            why = _refused()
            if why:
                raise NotImplementedError(why)
            self.device = "sim"
            super().__init__()

        @staticmethod
        def create(
            is_subgraph: bool, subgraph_name: str, parent_wrapper: Any, partition_signatures: Any = None
        ) -> Wrapper:
            return Wrapper()

        @staticmethod
        def get_device_include_path_aot(device: str) -> str:
            return _preamble() if device == "sim" else inductor.CppWrapperCpu.get_device_include_path_aot(device)

        def write_header(self) -> None:
            self.add_device_include("sim")  # before any other
            super().write_header()

        def codegen_model_constructor(self) -> None:
            _refuse_constants()
            super().codegen_model_constructor()

        def codegen_device(self, device: torch.device) -> str:
            if device.type != "sim":
                return str(super().codegen_device(device))
            self.used_cached_devices.add("privateuse1")
            return f"cached_torch_device_type_privateuse1, {device.index or 0}"

        def _generate_kernel_call_helper(
            self, kernel_name: str, call_args: Any, *, triton: bool = True, arg_types: Any = None, **given: Any
        ) -> None:
            if triton:
                raise NotImplementedError(f"sim: {kernel_name} is written in Triton; kernels here are C++")
            opened = [
                f"{{{arg}.data_ptr(), {'false' if kind.startswith('const') else 'true'}}}"
                for arg, kind in zip(call_args, map(str, arg_types))
                if "*" in kind
            ]
            if opened:
                given_all = f"{len(opened)}> open_({kernel_name!r}, {{{', '.join(opened)}}});".replace("'", '"')
                self.writeline(f"{{ usc_sim_package_kernel<{given_all}")
            super()._generate_kernel_call_helper(kernel_name, call_args, triton=triton, arg_types=arg_types, **given)
            if opened:
                self.writeline("}")

    return Wrapper
