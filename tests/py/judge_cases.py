# SPDX-License-Identifier: Apache-2.0
"""Operands for tests of the judge, drawn with Python's own generator (random.Random, whose
sequence is stable across versions) and computed with + - * / and math.sqrt alone, which IEEE fixes:
the same bits on every machine. A case is an operator with known S and N, an input profile
and something that a device may have done to the result."""

from __future__ import annotations

import math
import random

import oracle_rule
import torch

F64 = torch.float64
PROFILES = ("normal", "wide", "offset", "subnormal", "special", "large", "small", "cancel")
FAULTS = (
    "honest",
    "truth",
    "noise22",
    "noise18",
    "noise14",
    "noise10",
    "noise3",
    "bias",
    "bf16",
    "one",
    "tail",
    "nan",
    "inf",
    "swallow",
    "flush",
    "shift",
    "zero",
    "ulp",
    "jump",
)
N_REPLAYS = 8


def draw(rng: random.Random, n: int, profile: str) -> torch.Tensor:
    """n numbers that float32 holds."""
    values = []
    for i in range(n):
        x = (rng.random() + rng.random() + rng.random() - 1.5) * 2
        if profile == "wide":
            x *= 2.0 ** rng.randint(-30, 30)
        elif profile == "offset":
            x += 100
        elif profile == "subnormal":
            x = 0.0 if rng.random() < 0.1 else x * 2.0 ** rng.randint(-148, 0)
        elif profile == "special" and rng.random() < 0.03:
            x = rng.choice((math.inf, -math.inf, math.nan))
        elif profile == "large":
            x *= 2.0**120
        elif profile == "small":
            x *= 2.0**-20
        elif profile == "cancel" and i % 2:
            x = -values[-1] * (1 + 2.0**-16 * rng.random())
        values.append(x)
    return torch.tensor(values, dtype=F64).float()


def rows_sum(x: torch.Tensor) -> torch.Tensor:
    """One accumulator per row of 24, from the left, in x's own dtype."""
    x = x.view(-1, 24)
    total = x[:, 0].clone()
    for k in range(1, x.shape[1]):
        total = total + x[:, k]
    return total


def root(x: torch.Tensor) -> torch.Tensor:
    """As IEEE has it: torch.sqrt may hand over to a library that is off by an ulp. A float32 is
    the float64 root rounded: 53 bits are more than twice 24 and 2."""
    values = [math.sqrt(v) if v >= 0 else math.nan for v in x.double().tolist()]
    return torch.tensor(values, dtype=F64).to(x.dtype)


OPERATORS = {
    "square": (1, lambda x: x * x),
    "minus_one": (1, lambda x: (x + 1) * (x - 1)),
    "reciprocal": (1, lambda x: 1 / (x + 3)),
    "sum": (24, rows_sum),
    "copy": (1, lambda x: x.clone()),
    "twice": (1, lambda x: x + x),
    "relu": (1, lambda x: torch.where(x > 0, x, torch.zeros_like(x))),
    "root": (1, lambda x: root(x * x + 1) - 1),
}


def moved(rng: random.Random, x: torch.Tensor) -> torch.Tensor:
    signs = torch.tensor([rng.choice((-1.0, 1.0)) for _ in range(x.numel())], dtype=F64)
    y = (x.double() * (1 + 2.0**-20 * signs)).float()
    return torch.where(y.isfinite(), y, x)


def spoil(rng: random.Random, fault: str, R: torch.Tensor, Y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What the device gave, in its dtype, still as doubles."""
    n, y = R.numel(), Y.double()
    noise = torch.tensor([2 * rng.random() - 1 for _ in range(n)], dtype=F64)
    i = rng.randrange(n)
    if fault == "truth":
        return oracle_rule.round_to(R, dtype)
    if fault.startswith("noise"):
        return oracle_rule.round_to(R * (1 + 2.0 ** -int(fault[5:]) * noise), dtype)
    if fault == "bias":
        return oracle_rule.round_to(R * (1 + 40 * 2.0**-24), dtype)
    if fault == "bf16":
        y = oracle_rule.round_to(y, torch.bfloat16)
    d = oracle_rule.round_to(y, dtype)
    if fault == "flush":
        d = torch.where(d.abs() < 2.0 ** oracle_rule.FORMAT[dtype][1], torch.zeros_like(d), d)
    elif fault == "tail":
        d[-max(n // 10, 1) :] = 0
    elif fault == "shift":
        d = d.roll(1)
    elif fault == "one":
        d[i] = oracle_rule.round_to(d[i] * 1.5 + 1, dtype)
    elif fault == "ulp" and d[i].isfinite():
        d[i] = oracle_rule.round_to(d[i] + oracle_rule.ulp(d[i], dtype), dtype)
    elif fault == "nan":
        d[i] = math.nan
    elif fault == "inf":
        d[i] = math.inf
    elif fault == "swallow":
        d = torch.where(d.isfinite(), d, torch.zeros_like(d))
    elif fault == "zero":
        d[i] = 2.0**-40
    return d


def flushed(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 2.0**-126, torch.zeros_like(x), x)


def cases(seed: int, dtype: torch.dtype):
    """(label, operands) for every operator and profile, each with some of the faults."""
    for name, (fan_in, f) in OPERATORS.items():
        for profile in PROFILES:
            rng = random.Random(f"{seed} {name} {profile} {dtype}")
            n = rng.choice((3, 12, 40, 200, 513))
            x = oracle_rule.round_to(draw(rng, n * fan_in, profile).double(), dtype).float()
            R, Y = f(x.double()), f(x)
            steps = [moved(rng, x) for _ in range(N_REPLAYS)]
            replays = [(f(s.double()), f(s)) for s in steps]
            for fault in rng.sample(FAULTS, 7):
                if fault == "jump" and n > 3:  # a replay that gives what the device gave
                    r, y = replays[-1]
                    R2 = r.clone()
                    R2[2] = R[2] * 3
                    replays = [*replays[:-1], (R2, y)]
                device = spoil(rng, fault, R, Y, dtype)
                if fault == "jump" and n > 3:
                    device[2] = oracle_rule.round_to(R[2] * 3, dtype)
                yield (
                    f"{name} {profile} {fault} n={n}",
                    oracle_rule.Operands(
                        device.to(dtype), R, Y, replays, float(fan_in), name in ("copy", "relu"), flushed(f(flushed(x)))
                    ),
                )
