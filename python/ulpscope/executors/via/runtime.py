# SPDX-License-Identifier: Apache-2.0
"""What a runtime behind `--via` is (docs/how-to/write-a-via.md): a class with `compile`. The tensors that go over to
one that takes arrays of numpy, and come back.

Needs of torch: torch.export, for those that take an exported program."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from . import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class Runtime:
    """A compiler or an inference engine. What it does not take it says with an exception of any kind, whose text is
    what users read; it writes none of the tensors that it is given."""

    packages: dict = {}  # module that it imports -> what pip installs for it
    options: dict = {}  # word behind the colon of its name -> what that stands for
    core = False  # whether it is given operators of ATen's core set; else as the model calls them
    taps = False  # whether it gives values in the middle as more results: --bisect then asks for all of them at once
    name = option = ""

    def offered(self, device: str) -> str:
        """Why it does not serve a device, a clause behind its name; "" where it does."""
        return "" if device == "cpu" else f"runs on the CPU: use --device cpu, not {device}"

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        """A function of tensors like `inputs` that gives a list: what the torch.fx graph gives. All inputs are used,
        all
        results computed, nothing is written."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """Of what computes, {name: text}: results of others are not mixed with its own."""
        return {package: version_of(module, package) for module, package in self.packages.items()}


def exported(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
    """The graph as torch.export gives it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(graph, tuple(inputs), strict=False)


def to_numpy(tensor: torch.Tensor) -> Any:
    """The numbers of a tensor; bfloat16 is ml_dtypes'."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def from_numpy(array: Any) -> torch.Tensor:
    """A tensor of its own with these numbers."""
    import numpy

    array = numpy.array(array, order="C")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
