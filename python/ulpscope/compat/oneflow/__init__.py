# SPDX-License-Identifier: Apache-2.0
"""OneFlow's AutoTest by its own names, for any device: tests that are written for
`oneflow.test_utils.automated_test_util` run with

    from ulpscope.compat.oneflow import *

docs/migrate-autotest.md. Needs torch."""

import functools
import os

import torch as _torch

from ...session.programs import DEVICE, tensor
from ...session.programs import TORCH as torch
from ...session.two_sides import fuzz
from ...sources.generators import NOTHING, Generator, OneOf, constant, dtypes, nothing, settled

__all__ = ["autotest", "constant", "nothing", "oneof", "random", "random_bool", "random_device", "random_dtype",
           "random_or_nothing", "random_pytorch_dtype", "random_pytorch_tensor", "random_tensor",
           "torch"]  # fmt: skip

GRAPH = "inductor"  # what stands for OneFlow's graphs
TYPES = {float: _torch.float32, int: _torch.int64, complex: _torch.complex64, bool: _torch.bool}


class random(Generator):  # noqa: N801  # the name that tests use
    """A number of [low, high): whole unless `to(float)`, or bounds, say otherwise; `to(bool)` a coin."""

    def __init__(self, low=1, high=6):
        self.low, self.high, self.kind = low, high, None

    def to(self, kind):
        """The first type that is offered counts."""
        self.kind = self.kind or kind
        return self

    def draw(self, draws):
        low, high = settled(self.low), settled(self.high)
        if self.kind is bool:
            return draws.below(2) == 1
        if self.kind is float or (self.kind is None and isinstance(low + high, float)):
            return low + draws.uniform() * (high - low)
        return int(low) + draws.below(max(1, int(high) - int(low)))


def random_or_nothing(low, high):
    """`random(low, high)` two times of three, else nothing."""
    return OneOf([random(low, high), NOTHING], [2, 1])


def oneof(*choices, possibility=None):
    """One of them; of two, the first with that possibility."""
    return OneOf(choices, possibility and [possibility, 1 - possibility])


def random_bool():
    """True or False."""
    return random().to(bool)


def random_device():
    """The side that runs: the CPU, or the device that is tested."""
    return DEVICE


def random_dtype(names=("float",)):
    """A torch.dtype of groups of them."""
    known = {"signed": "int", "image": "unsigned", "arithmetic": "int", "bfloat16": "bfloat16"}
    return dtypes(*(known.get(name, name) for name in ([names] if isinstance(names, str) else names)))


random_pytorch_dtype = random_dtype


def random_tensor(ndim=None, dim0=1, dim1=None, dim2=None, dim3=None, dim4=None, low=None, high=None,
                  dtype=float, requires_grad=True, pin_memory=False):  # fmt: skip
    """A tensor of `ndim` axes (1 to 5), of 1 to 7 elements each but for the first, which is 1; its values are
    even in [low, high)."""
    ndim = settled(random(1, 6) if ndim is None else ndim)
    sizes = [settled(random(1, 8) if d is None else d.to(int) if isinstance(d, Generator) else d)
             for d in (dim0, dim1, dim2, dim3, dim4)[:ndim]]  # fmt: skip
    kind = TYPES.get(dtype, dtype)
    whole = kind in (_torch.int64, _torch.bool)
    low, high = (-10 if whole else -1) if low is None else low, (11 if whole else 1) if high is None else high
    return tensor(tuple(sizes), dtype=kind, low=low, high=high, layout=None, requires_grad=requires_grad)


def random_pytorch_tensor(ndim=None, dim0=1, dim1=None, dim2=None, dim3=None, dim4=None, low=0, high=1,
                          dtype=float, requires_grad=True):  # fmt: skip
    """As `random_tensor`, of [0, 1): what it was called at first."""
    return random_tensor(ndim, dim0, dim1, dim2, dim3, dim4, low, high, dtype, requires_grad)


def autotest(n=20, auto_backward=True, rtol=None, atol=None, check_graph=None, check_allclose=True, **others):
    """
    A test as `n` cases on the CPU and on the device that ULPSCOPE_DEVICE names (sim:0).

    Tolerances are taken and not used: the verdict has none. So is what later versions added. `check_graph`: the
    text is compiled too, by torch's inductor for the CPU; `check_allclose=False` only runs the test.
    """
    known = {"check_dtype", "check_grad_use_random_data", "include_complex"}
    if not others.keys() <= known:
        raise TypeError(f"autotest takes no {', '.join(sorted(others.keys() - known))}")
    device = os.environ.get("ULPSCOPE_DEVICE") or "sim:0"
    eager = {"n": n, "backward": bool(auto_backward), "judge": check_allclose}
    if not check_graph:
        return fuzz(devices=("cpu", device), **eager)

    def both(function):
        first, second = fuzz(function, devices=("cpu", device), **eager), fuzz(function, devices=("cpu",), via=GRAPH, **eager)

        @functools.wraps(function)
        def test(*args):
            first(*args)
            second(*args)

        return test

    return both
