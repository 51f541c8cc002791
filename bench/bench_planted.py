# SPDX-License-Identifier: Apache-2.0
"""Every operator of torch's own test database, with its sample inputs: what the CPU gives is judged, and so is the
same with small mistakes planted: one element a quarter off, one share of 2^-6, an ulp up or to chance sides in a third
of 16-bit results (a share of 2^-12 to chance sides in float32), elements shifted by one, a row twice. Says which
operator lets one pass.

usage: bench_planted.py [--dtype D] [--form F] [--only NAME ...] [--minutes N]

--dtype    float32, bfloat16 or float16 (default: all three, one after the other)
--form     function: as torch's database calls it; overload: the ATen overload that torch takes apart (default: both)
--only     operators of the database
--minutes  stops after so many for each dtype and form (default 60; all of one take 1 to 10)

Random operators are held to their law, which small mistakes do not break; new memory promises nothing: neither counts.
Exit code 1 where a planted mistake passes or is unjudged.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import ulpscope

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BITS = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}
FEWEST = 64  # elements of a result of which a share can be told
SAMPLES = 2  # of each operator, the largest
REFUSED = (AssertionError, RuntimeError, TypeError, ValueError, NotImplementedError)
FREE = ("empty", "new_empty")  # give memory that nobody wrote


def planted(out: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """(mistake, the result with it)."""
    chance, wide = torch.Generator().manual_seed(9), out.double()
    at = torch.arange(out.numel()).view(out.shape) == out.numel() // 2
    yield "one element", torch.where(at, wide * 1.25 + (wide == 0), wide).to(out.dtype)
    if out.numel() < FEWEST:
        return
    yield "one share", (wide * (1 + 2.0**-6)).to(out.dtype)
    side = torch.where(torch.rand(out.shape, generator=chance) < 0.5, 1.0, -1.0)
    some = torch.rand(out.shape, generator=chance) < 0.3
    if BITS[out.dtype] > 11:
        yield "2^-12 to chance sides", (wide * (1 + side * 2.0**-12)).to(out.dtype)
    else:
        ulp = torch.ldexp(torch.ones_like(wide), torch.frexp(wide).exponent - BITS[out.dtype])
        yield "an ulp to chance sides", torch.where(some, wide + side * ulp, wide).to(out.dtype)
        yield "an ulp up", torch.where(some, wide + wide.sign() * ulp, wide).to(out.dtype)
    yield "shifted by one", out.flatten().roll(1).view(out.shape)
    if out.dim() > 1 and out.shape[0] > 2:
        yield "a row twice", torch.cat([out[:1], out[:1], out[2:]])


def overload_of(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """The overload that takes these arguments and that torch takes apart."""
    packet = getattr(torch.ops.aten, op.aten_name, None)
    for name in packet.overloads() if packet is not None else ():
        overload = getattr(packet, name)
        if overload.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            try:
                overload(*args, **kwargs)
            except REFUSED:
                continue
            return overload
    return None


@dataclass
class Asked:
    """A call and what it gave on the CPU."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: list[torch.Tensor]
    single: bool

    @property
    def at(self) -> int:
        """Which result is tampered with."""
        return next(i for i, t in enumerate(self.outs) if t.is_floating_point() and t.numel())

    def judged(self, value: torch.Tensor) -> Any:
        given = tuple(value if i == self.at else t for i, t in enumerate(self.outs))
        outputs = value if self.single else given
        return ulpscope.judge_call(self.function, self.args, self.kwargs, outputs, cause=False)


def calls_of(op: Any, dtype: torch.dtype, form: str) -> Iterator[Asked]:
    """Calls of an operator on its largest samples."""
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    random.Random(1).shuffle(samples)
    samples.sort(key=lambda s: -(s.input.numel() if isinstance(s.input, torch.Tensor) else 0))
    n = 0
    for sample in samples[: 3 * SAMPLES]:
        args = (sample.input, *sample.args)
        function = op.op if form == "function" else overload_of(op, args, sample.kwargs)
        if function is None or n == SAMPLES:
            continue
        try:
            out = function(*args, **sample.kwargs)
        except REFUSED:
            continue
        outs = [out] if isinstance(out, torch.Tensor) else list(out) if isinstance(out, (tuple, list)) else []
        dense = all(isinstance(t, torch.Tensor) and t.layout == torch.strided for t in outs)
        if outs and dense and any(t.is_floating_point() and t.numel() for t in outs):
            n += 1
            yield Asked(function, args, sample.kwargs, outs, isinstance(out, torch.Tensor))


def tamper(name: str, asked: Asked, counts: collections.Counter[str]) -> None:
    out = asked.outs[asked.at]
    own = asked.judged(out.clone())
    if "draw" in str(own):
        counts["random"] += 1
        return
    counts[f"the CPU's own: {own.verdict}"] += 1
    for what, value in planted(out):
        if torch.equal(value.nan_to_num(7), out.nan_to_num(7)):
            continue
        found = asked.judged(value)
        counts["planted"] += 1
        if found.verdict in ("pass", "unjudged"):
            counts["not caught"] += 1
            print(f"  {name}, {what}, of {out.numel()}: {found}", flush=True)


def count(dtype: torch.dtype, form: str, only: list[str], seconds: float) -> collections.Counter[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    counts: collections.Counter[str] = collections.Counter({"not caught": 0})
    end = time.monotonic() + seconds
    for op in op_db:
        if time.monotonic() > end:
            break
        if (only and op.name not in only) or dtype not in op.supported_dtypes("cpu") or op.name.startswith(FREE):
            continue
        try:
            calls = list(calls_of(op, dtype, form))
        except REFUSED:
            continue
        counts["operators"] += bool(calls)
        for asked in calls:
            tamper(op.name, asked, counts)
    return counts


def main(arguments: list[str]) -> int:
    p = argparse.ArgumentParser(prog="./run bench planted", description=__doc__.partition("\n\n")[0])
    p.add_argument("--dtype", choices=DTYPES, help="default: all three")
    p.add_argument("--form", choices=("function", "overload"), help="default: both")
    p.add_argument("--only", nargs="*", default=[], metavar="NAME", help="operators of torch's database")
    p.add_argument("--minutes", type=float, default=60, help="for each dtype and form (default 60)")
    o = p.parse_args(arguments)
    warnings.simplefilter("ignore")
    missed = 0
    for dtype in [o.dtype] if o.dtype else DTYPES:
        for form in [o.form] if o.form else ("function", "overload"):
            counts = count(DTYPES[dtype], form, o.only, 60 * o.minutes)
            missed += counts["not caught"]
            print(f"{dtype}, {form}: " + ", ".join(f"{k} {n}" for k, n in sorted(counts.items())), flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
