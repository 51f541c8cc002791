# SPDX-License-Identifier: Apache-2.0
"""Tests in plain torch text that run on two sides with the same draws:

    from ulpscope.fuzzing import fuzz, ints, nothing, tensor, torch

    @fuzz(n=20, devices=("cpu", "npu:0"))
    def test_matmul():
        k = ints(1, 65)
        return torch.matmul(tensor(ints(1, 33), k), tensor(k, ints(1, 33)))

`torch` is torch, whose functions take generators too. docs/how-to/test-a-kernel.md.
"""

from .fuzzer.programs import call, layer, tensor
from .fuzzer.programs import TORCH as torch
from .fuzzer.steps import DEVICE
from .fuzzer.two_sides import fuzz
from .fuzzer.generators import (
    Generator,
    bools,
    broadcasting,
    constant,
    contracting,
    dtypes,
    floats,
    generator,
    ints,
    nothing,
    oneof,
    pooling,
    random_or_nothing,
    shapes,
)

__all__ = [
    "DEVICE",
    "Generator",
    "bools",
    "broadcasting",
    "call",
    "constant",
    "contracting",
    "dtypes",
    "floats",
    "fuzz",
    "generator",
    "ints",
    "layer",
    "nothing",
    "oneof",
    "pooling",
    "random_or_nothing",
    "shapes",
    "tensor",
    "torch",
]
