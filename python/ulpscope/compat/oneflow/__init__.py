# SPDX-License-Identifier: Apache-2.0
"""OneFlow's AutoTest by its own names, for any device: tests that are written for
`oneflow.test_utils.automated_test_util` run with

    from ulpscope.compat.oneflow import *

docs/how-to/migrate-autotest.md. Needs torch."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, Optional, Union, get_args, get_origin

import torch as _torch

from ...calls.older import NoneType, UnionType
from ...fuzzer.programs import SIDES, tensor
from ...fuzzer.programs import TORCH as torch
from ...fuzzer.steps import DEVICE
from ...fuzzer.two_sides import HOW, on_two_sides
from ...fuzzer.generators import NOTHING, Generator, OneOf, constant, dtypes, nothing, settled
from ...fuzzer.generators import generator as _generator
from . import unittest  # noqa: F401  # as oneflow.unittest
from .flow import flow

__all__ = [
    "autotest",
    "constant",
    "flow",
    "generator",
    "nothing",
    "oneof",
    "random",
    "random_bool",
    "random_device",
    "random_dtype",
    "random_or_nothing",
    "random_pytorch_dtype",
    "random_pytorch_tensor",
    "random_tensor",
    "torch",
]

SIDES.update(pytorch=False, oneflow=True)
pack = _generator
NAMED = {"bool": bool, "int": int, "float": float, "Optional[int]": Optional[int], "Optional[float]": Optional[float]}
UNIONS = (Union, UnionType)
GRAPH = "inductor"  # what stands for OneFlow's graphs
TYPES = {float: _torch.float32, int: _torch.int64, complex: _torch.complex64, bool: _torch.bool}


class generator(Generator):  # noqa: N801  # the name that tests use
    """What a generator of one's own is made of: `_calc_value()` draws it, `children` are drawn again with it."""

    def __init__(self, children: Iterable[Any] = ()) -> None:
        self.children = [pack(child) for child in children]

    def _calc_value(self) -> Any:
        raise NotImplementedError

    def draw(self, draws: Any) -> Any:
        return self._calc_value()

    def _to(self, annotation: Any) -> None:
        """The type that it is offered."""

    def to(self, kind: Any) -> Any:
        self._to(kind)
        for child in self.children:
            child.to(kind)
        return self


class random(generator):  # noqa: N801  # the name that tests use
    """A number of [low, high): whole unless `to(float)`, or bounds, say otherwise; `to(bool)` a coin. Of a type that is
    one of several, each is drawn; of a tuple, one number a place."""

    def __init__(self, low: Any = 1, high: Any = 6) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.kind: Any = None

    def to(self, kind: Any) -> Any:
        """The first type that is offered counts, if it is one of numbers."""
        kind = NAMED.get(kind, kind)
        self.kind = self.kind or (kind if numeric(kind) else None)
        return self

    def draw(self, draws: Any) -> Any:
        return self.of(self.kind, draws, settled(self.low), settled(self.high))

    def of(self, kind: Any, draws: Any, low: Any, high: Any) -> Any:
        """A value of a type."""
        if isinstance(kind, str):
            kind = NAMED[kind]
        if get_origin(kind) in UNIONS:
            kinds = [k for k in get_args(kind) if k is NoneType or numeric(k)]
            return self.of(kinds[draws.below(len(kinds))], draws, low, high)
        if get_origin(kind) is tuple:
            return tuple(self.of(k, draws, low, high) for k in get_args(kind))
        if kind is NoneType:
            return None
        if kind is bool:
            return draws.below(2) == 1
        if kind is complex:
            return complex(low + draws.uniform() * (high - low), low + draws.uniform() * (high - low))
        if kind is float or (kind is None and isinstance(low + high, float)):
            return low + draws.uniform() * (high - low)
        return int(low) + draws.below(max(1, int(high) - int(low)))


def numeric(kind: Any) -> bool:
    """Whether numbers of a type can be drawn."""
    if get_origin(kind) in UNIONS:
        return any(numeric(k) for k in get_args(kind))
    if get_origin(kind) is tuple:
        return Ellipsis not in get_args(kind) and all(numeric(k) for k in get_args(kind))
    return kind in (bool, int, float, complex)


def random_or_nothing(low: Any, high: Any) -> Any:
    """`random(low, high)` two times of three, else nothing."""
    return OneOf([random(low, high), NOTHING], [2, 1])


def oneof(*choices: Any, possibility: Any = None) -> Any:
    """One of them; of two, the first with that possibility."""
    return OneOf(choices, possibility and [possibility, 1 - possibility])


def random_bool() -> Any:
    """True or False."""
    return random().to(bool)


def random_device() -> Any:
    """The side that runs: the CPU, or the device that is tested."""
    return DEVICE


def random_dtype(names: Iterable[str] = ("float",)) -> Any:
    """A torch.dtype of groups of them."""
    known = {"signed": "int", "image": "unsigned", "arithmetic": "int", "bfloat16": "bfloat16"}
    return dtypes(*(known.get(name, name) for name in ([names] if isinstance(names, str) else names)))


random_pytorch_dtype = random_dtype


def random_tensor(
    ndim: Any = None,
    dim0: Any = 1,
    dim1: Any = None,
    dim2: Any = None,
    dim3: Any = None,
    dim4: Any = None,
    low: Any = None,
    high: Any = None,
    dtype: Any = float,
    requires_grad: Any = True,
    pin_memory: Any = False,
) -> Any:
    """A tensor of `ndim` axes (1 to 5), of 1 to 7 elements each but for the first, which is 1; its values are
    even in [low, high)."""
    ndim = settled(random(1, 6) if ndim is None else ndim)
    sizes = [
        settled(random(1, 8) if d is None else d.to(int) if isinstance(d, Generator) else d)
        for d in (dim0, dim1, dim2, dim3, dim4)[:ndim]
    ]
    kind = TYPES.get(dtype, dtype)
    whole = kind in (_torch.int64, _torch.bool)
    low, high = (-10 if whole else -1) if low is None else low, (11 if whole else 1) if high is None else high
    return tensor(tuple(sizes), dtype=kind, low=low, high=high, layout=None, requires_grad=requires_grad)


def random_pytorch_tensor(
    ndim: Any = None,
    dim0: Any = 1,
    dim1: Any = None,
    dim2: Any = None,
    dim3: Any = None,
    dim4: Any = None,
    low: Any = 0,
    high: Any = 1,
    dtype: Any = float,
    requires_grad: Any = True,
) -> Any:
    """As `random_tensor`, of [0, 1): what it was called at first."""
    return random_tensor(ndim, dim0, dim1, dim2, dim3, dim4, low, high, dtype, requires_grad)


def autotest(
    n: int = 20,
    auto_backward: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    check_graph: Any = None,
    check_allclose: Any = True,
    *,
    case: Any = None,
    devices: Any = None,
    seed: int = 0,
    cause: bool = True,
    shrink: bool = True,
    **others: Any,
) -> Callable[..., Any]:
    """
    A test as `n` cases on the CPU and on the device that ULPSCOPE_DEVICE names (sim:0), or on `devices` behind "cpu":
    "npu:0", or "module:NAME" for another framework with torch's names.

    Tolerances are taken and not used: the verdict has none. So is what later versions added. `check_graph`: the
    text is compiled too, by torch's inductor for the CPU; `check_allclose=False` only runs the test. `case`, as a
    failure prints it, runs that one alone; `cause=False` and `shrink=False` leave the search for causes and for a
    smaller case out. With ONEFLOW_TEST_VERBOSE set each case is told: the program, or why it is refused.
    """
    known = {"check_dtype", "check_grad_use_random_data", "include_complex"}
    if not others.keys() <= known:
        raise TypeError(f"autotest takes no {', '.join(sorted(others.keys() - known))}")
    devices = devices or ("cpu", os.environ.get("ULPSCOPE_DEVICE") or "sim:0")
    how = HOW | {"backward": bool(auto_backward), "judge": check_allclose, "cause": cause}
    options: dict[str, Any] = {"by": ("autotest", "ulpscope.compat.oneflow")}
    options |= {} if auto_backward else {"auto_backward": False}
    rest: dict[str, Any] = {
        "n": n,
        "seed": seed,
        "case": case,
        "shrink": shrink,
        "verbose": "ONEFLOW_TEST_VERBOSE" in os.environ,
    }

    def deco(function: Callable[..., Any]) -> Callable[..., Any]:
        first = on_two_sides(function, devices, how, options, **rest)
        if not check_graph:
            return first
        second = on_two_sides(function, ("cpu",), how | {"via": GRAPH}, options | {"check_graph": True}, **rest)

        @functools.wraps(first)
        def test(*args: Any) -> None:
            first(*args)
            second(*args)

        return test

    return deco
