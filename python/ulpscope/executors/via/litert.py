# SPDX-License-Identifier: Apache-2.0
"""`--via litert`: the graph as litert-torch converts it, on LiteRT's interpreter with XNNPACK, or without it.

Needs of torch: nothing but tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .runtime import Runtime, exported, from_numpy, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LiteRt(Runtime):
    packages = {"ai_edge_litert": "ai-edge-litert", "litert_torch": "litert-torch"}
    options = {"plain": "without XNNPACK", "reference": "LiteRT's reference kernels"}

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        if any(t.dtype == torch.bfloat16 for t in inputs):
            raise NotImplementedError("litert-torch makes float32 of bfloat16")
        import litert_torch
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kinds = {
            "": OpResolverType.AUTO,
            "plain": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            "reference": OpResolverType.BUILTIN_REF,
        }
        model = litert_torch.convert(graph, tuple(inputs))
        interpreter = Interpreter(
            model_content=model.model_content(),
            experimental_op_resolver_type=kinds[self.option],
            num_threads=torch.get_num_threads(),
        )
        runner = interpreter.get_signature_runner()
        takes, gives = runner.get_input_details(), sorted(runner.get_output_details(), key=_number)
        kinds = {name: takes[name]["dtype"] for name in sorted(takes, key=_number)}
        (end,) = (n for n in exported(graph, inputs).graph.nodes if n.op == "output")
        dtypes = [n.meta["val"].dtype for n in end.args[0]]

        def run(*tensors):
            # The converter makes int32 of int64: indices keep their meaning, and so do results that are indices.
            results = runner(**{name: to_numpy(t).astype(kind) for (name, kind), t in zip(kinds.items(), tensors)})
            results = [from_numpy(results[name]) for name in gives]
            return [r.to(d) if d == torch.int64 else r for r, d in zip(results, dtypes)]

        return run


def _number(name):
    """The place that a name such as `args_10` or `output_2` tells."""
    return int(name.rpartition("_")[2])
