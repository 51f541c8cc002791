# SPDX-License-Identifier: Apache-2.0
"""`--via iree`: the exported program through turbine's importer, compiled by IREE's llvm-cpu for this processor.

Needs of torch: an exported program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .runtime import Runtime, exported, from_numpy, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


class Iree(Runtime):
    packages = {
        "iree.compiler": "iree-base-compiler",
        "iree.runtime": "iree-base-runtime",
        "iree.turbine": "iree-turbine",
    }

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        import iree.compiler as compiler
        import iree.runtime as runtime
        from iree.turbine import aot

        text = aot.export(exported(graph, inputs)).mlir_module.get_asm()
        # A float64 stays one: by default it is made float32, and a float64 that is handed over is read as if it were.
        flags = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]
        binary = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=flags)
        context = runtime.SystemContext(config=runtime.Config("local-task"))
        context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, binary))
        function = context.modules.module["main"]

        def run(*tensors):
            results = function(*(to_numpy(t) for t in tensors))
            results = results if isinstance(results, (list, tuple)) else [results]
            return [from_numpy(t.to_host()) for t in results]

        return run
