# SPDX-License-Identifier: Apache-2.0
"""`--via executorch`: the exported program with ExecuTorch's portable kernels, or what its XNNPACK delegate takes of
it.

Needs of torch: an exported program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .runtime import Runtime, exported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


class ExecuTorch(Runtime):
    packages = {"executorch": "executorch"}
    options = {"xnnpack": "XNNPACK takes what it can, the portable kernels the rest"}

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        from executorch.exir import to_edge_transform_and_lower
        from executorch.runtime import Runtime as Engine

        partitioners = []
        if self.option == "xnnpack":
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

            partitioners.append(XnnpackPartitioner())
        program = to_edge_transform_and_lower(exported(graph, inputs), partitioner=partitioners).to_executorch()
        buffer = program.buffer  # which a program refers to without holding it
        method = Engine.get().load_program(buffer).load_method("forward")

        def run(*tensors, held=buffer):
            return [t.clone() for t in method.execute([t.detach().contiguous() for t in tensors])]

        return run
