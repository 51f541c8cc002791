# SPDX-License-Identifier: Apache-2.0
"""Cases of the verdict's benchmark as calls that a trace can hold: what is a callable of several operators there is
registered as one. For `--import`."""

import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from ways import Asked

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.verdicts.case import Case
from bench.verdicts.op import Op
from bench.verdicts.ops import OPS
from bench.verdicts.profiles import PROFILES, Inputs

SPACE = "benched"
_library = torch.library.Library(SPACE, "DEF")


def kind_of(value):
    """A schema's type for an argument."""
    if isinstance(value, (tuple, list)):
        return kind_of(value[0]) + "[]" if value else "int[]"
    if value is None:
        return "Tensor?"
    kinds = {torch.Tensor: "Tensor", bool: "bool", int: "int", float: "float", str: "str", torch.dtype: "ScalarType"}
    return kinds[type(value)]


def define(op: Op) -> None:
    """Registers a callable of the benchmark. What differentiates inside is left to the dispatcher's own pieces."""
    args, kwargs = op.make(Inputs((op.profiles or sorted(PROFILES))[0], op.dtypes[0], 1))
    out = op.fn(*args, **kwargs)
    gives = f"({', '.join(['Tensor'] * len(out))})" if isinstance(out, (tuple, list)) else "Tensor"
    names = [f"a{i}" for i in range(len(args))] + list(kwargs)
    said = ", ".join(f"{kind_of(v)} {n}" for n, v in zip(names, (*args, *kwargs.values())))
    _library.define(f"{op.name}({said}) -> {gives}")
    n, more = len(args), list(kwargs)

    def run(*given):
        with torch.enable_grad():
            out = op.fn(*given[:n], **dict(zip(more, given[n:])))
        out = [t.detach() for t in (out if isinstance(out, (tuple, list)) else [out])]
        return tuple(out) if len(out) > 1 else out[0]

    _library.impl(op.name, run, "CompositeImplicitAutograd" if "backward" in op.name or "grad" in op.name else "CPU")


for _op in OPS.values():
    if not _op.mutates:
        define(_op)


# ---- calls ----


class Seen(TorchDispatchMode):
    """Notes operators and their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def call_of(case):
    """(operator, arguments, keywords) of a case: torch's own where it is one call that gives new tensors, else the
    one that is registered here."""
    if case.native is not None:
        seen = Seen()
        with seen:
            case.op.fn(*case.args, **case.kwargs)
        func, args, kwargs = seen.calls[0]
        schema = func._schema
        plain = not schema.is_mutable and not any(r.alias_info for r in schema.returns)
        if len(seen.calls) == 1 and plain and len(schema.returns) == len(case.native):
            return func.name(), args, kwargs
    return f"{SPACE}::{case.op.name}", (*case.args, *case.kwargs.values()), {}


def asked(name, profile, dtype, seed, right=None, wrong=None):
    """A case of the benchmark with so many of its right kernels and wrong ones (None: with all), drawn by its key; None
    of one that writes its arguments, or cannot be."""
    op = OPS[name]
    if op.mutates:
        return None
    with np.errstate(all="ignore"):
        try:
            case = Case(op, profile, dtype, seed)
            kernels = [(v.name, t) for v, t in case.correct()]
            faults = [(v.name, t) for v, t, dropped, _ in case.faults() if not dropped]
        except ValueError:  # a profile that the operator cannot have
            return None
    draw = random.Random(case.key)
    kept = _some(draw, kernels, right) + _some(draw, faults, wrong)
    if not kept:
        return None
    like = case.native or kernels[0][1]
    devices = {v: [torch.empty_like(n).copy_(t) for n, t in zip(like, ts)] for v, ts in kept}
    call, args, kwargs = call_of(case)
    return Asked(f"{name}, {profile}, {dtype}", call, args, [t.clone() for t in like], devices, kwargs)


def _some(draw, of, n):
    return of if n is None or n >= len(of) else draw.sample(of, n)
