# SPDX-License-Identifier: Apache-2.0
"""`--via openvino`: the exported program, converted, on OpenVINO's CPU plugin with its own default precision (bfloat16
where the processor has it), in float32 or in bfloat16; or what OpenVINO's backend of torch.compile makes of the graph.

Needs of torch: bfloat16 as int16."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import torch

from ...calls.torch_private import lookup_backend
from .runtime import Runtime, exported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any


HINTS = {"": None, "f32": "f32", "bf16": "bf16"}


class OpenVino(Runtime):
    packages = {"openvino": "openvino"}
    options = {
        "f32": "INFERENCE_PRECISION_HINT is float32",
        "bf16": "the same, bfloat16",
        "torch": "its backend of torch.compile, which leaves to torch what it lacks",
    }
    taps = True

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        if self.option == "torch":
            return lookup_backend("openvino")(graph, list(inputs))
        import openvino

        program = exported(graph, inputs)
        with unreported():
            model = openvino.convert_model(program)
        given = dict(zip(program.graph_signature.user_inputs, range(len(inputs))))
        takes = [given[name] for i in model.inputs for name in i.names & given.keys()]  # an input of which but the
        # shape counts is none of the model's
        model.reshape({at: openvino.PartialShape(list(inputs[i].shape)) for at, i in enumerate(takes)})
        compiled = openvino.Core().compile_model(model, "CPU", self._settings())
        request = compiled.create_infer_request()

        def run(*tensors):
            request.infer([there(tensors[i]) for i in takes])
            return [back(request.get_output_tensor(i)) for i in range(len(compiled.outputs))]

        return run

    def _settings(self):
        hint = HINTS[self.option]
        return {"INFERENCE_NUM_THREADS": torch.get_num_threads()} | ({"INFERENCE_PRECISION_HINT": hint} if hint else {})

    def versions(self) -> dict[str, str]:
        import openvino

        core = openvino.Core()
        core.set_property("CPU", self._settings() if self.option != "torch" else {})
        kind = core.get_property("CPU", "INFERENCE_PRECISION_HINT").to_string()
        return super().versions() | {"openvino build": openvino.__version__, "openvino computes in": kind}


@contextlib.contextmanager
def unreported() -> Iterator[Any]:
    """Within, its converter sends no statistics of use to its maker, as on any machine of continuous integration."""
    before = os.environ.get("CI")
    os.environ["CI"] = "true"
    try:
        yield
    finally:
        os.environ.pop("CI") if before is None else os.environ.update(CI=before)


def there(tensor: torch.Tensor) -> Any:
    import openvino

    tensor = tensor.detach().contiguous()
    if tensor.dtype != torch.bfloat16:
        return openvino.Tensor(tensor.numpy())
    array = tensor.view(torch.int16).numpy()
    return openvino.Tensor(array, openvino.Shape(list(tensor.shape)), openvino.Type.bf16)


def back(tensor: torch.Tensor) -> torch.Tensor:
    import numpy
    import openvino

    array = numpy.array(tensor.data)
    if tensor.element_type != openvino.Type.bf16:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
