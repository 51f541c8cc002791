# SPDX-License-Identifier: Apache-2.0
"""`--via tvm`: the exported program through Relax, compiled by LLVM for this processor.

Needs of torch: DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .runtime import Runtime, exported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Tvm(Runtime):
    packages = {"tvm": "apache-tvm"}

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        import tvm
        from tvm import relax
        from tvm.relax.frontend.torch import from_exported_program

        module = from_exported_program(exported(graph, inputs), keep_params_as_input=False)
        machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

        def run(*tensors):
            results = machine["main"](*(tvm.runtime.from_dlpack(t.detach().contiguous()) for t in tensors))
            results = [results] if isinstance(results, tvm.runtime.Tensor) else results
            return [torch.from_dlpack(t).clone() for t in results]

        return run
