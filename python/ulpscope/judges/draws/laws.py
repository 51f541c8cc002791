# SPDX-License-Identifier: Apache-2.0
"""The laws of torch's random operators: what an output's draws are, as the part of [0, 1)
that belongs to each drawn value. Serves `operators`.

A value of a discrete law owns an interval as long as its probability; one of a continuous
law the interval that rounding to its dtype leaves open. Drawn honestly, a point taken at
chance from each element's interval is even on [0, 1), whatever the law.
"""

import math
from dataclasses import dataclass

import torch

DIGITS = {torch.float64: 24, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


@dataclass
class Draws:
    """The draws that one output shows. All tensors are flat, one entry per draw."""

    low: torch.Tensor  # float64: the interval of each draw
    high: torch.Tensor
    known: torch.Tensor  # bool: False where the output does not show the draw
    outside: str = ""  # what no honest draw can be, a clause
    slack: float = 0.0  # how far rounding may shift the law
    values: torch.Tensor | None = None  # of a continuous law, where no value comes often
    atom: float = 0.0
    hits: torch.Tensor | None = None  # bool: the known draws of one probability `chance`
    chance: float = 0.0
    odd: str = ""  # what no honest draws together can be, a clause
    cells: tuple | None = None  # how often each category came, and how often it is due


# ---- continuous ----------------------------------------------------------------------


def _spacing(values):
    """Distance to the next larger magnitude in the dtype of `values`."""
    if not values.dtype.is_floating_point:
        return torch.ones_like(values, dtype=torch.float64)
    info = torch.finfo(values.dtype)
    magnitude = values.double().abs().clamp(info.tiny, info.max)
    return torch.exp2(magnitude.log2().floor()) * info.eps


def _continuous(values, below, above, inside):
    """Draws of a law with the distribution function `below` and its complement `above`,
    both exact in their own tail; `above` is None for a law without tails."""
    half = _spacing(values) / 2
    wide = values.double()
    if values.dtype.is_floating_point:  # a tail may overflow where it reaches that far
        most = torch.finfo(values.dtype).max
        wide = wide.clamp(-most, most)
    low, high = below(wide - half), below(wide + half)
    digits = DIGITS.get(values.dtype, 8)
    n = max(values.numel(), 1)
    good = inside(wide)
    tail = torch.minimum(below(wide), above(wide)) < 1e-8 / n if above else ~good
    slack = float((high - low).mean()) + 2.0**-digits if n else 0.0
    atom = max(float((high - low).max()) if values.numel() else 0.0, 2.0**-digits)
    return Draws(low.clamp(0, 1), high.clamp(0, 1), torch.ones_like(good),
                 _outside(values, ~good) or _outside(values, tail), slack, wide, atom)  # fmt: skip


def _outside(values, bad):
    """A clause on the values that cannot be, "" for none."""
    count = int(bad.sum())
    if not count:
        return ""
    at = int(bad.nonzero()[0])
    more = f" and {count - 1:,} more" if count > 1 else ""
    return f"{float(values[at]):.6g} at element {at:,}{more}, which it never draws"


def _uniform(values, low, high, half_open):
    width = high - low
    if width == 0:
        return _constant(values, low)
    return _continuous(values, lambda v: ((v - low) / width).clamp(0, 1), None,
                       lambda v: (v >= low) & ((v < high) if half_open else (v <= high)))  # fmt: skip


def _constant(values, value):
    good = values.double() == torch.as_tensor(value, dtype=torch.float64).to(values.dtype).double()
    none = torch.zeros(values.numel(), dtype=torch.float64)
    return Draws(none, none + 1, torch.zeros_like(good), _outside(values, ~good))


def _normal(values, mean, std):
    scaled = lambda v: (v - mean) / std  # noqa: E731
    sure = torch.as_tensor(std, dtype=torch.float64).expand(values.shape) == 0
    if bool(sure.all()):
        return _constant(values, mean)
    ndtr = torch.special.ndtr
    out = _continuous(values, lambda v: ndtr(scaled(v)), lambda v: ndtr(-scaled(v)),
                      lambda v: ~v.isnan() | sure)  # fmt: skip
    out.known = ~sure
    if bool(sure.any()):
        out.low, out.high = (t.nan_to_num(0.5) for t in (out.low, out.high))
        out.values = None
    return out


def _exponential(values, rate):
    return _continuous(values, lambda v: -torch.expm1(-rate * v.clamp(min=0)),
                       lambda v: torch.exp(-rate * v.clamp(min=0)), lambda v: v >= 0)  # fmt: skip


def _cauchy(values, median, sigma):
    def below(v):
        t = (v - median) / sigma
        tail = torch.atan2(torch.ones_like(t), -t) / math.pi
        return torch.where(t < 0, tail, 0.5 + torch.atan(t) / math.pi)

    return _continuous(values, below, lambda v: below(2 * median - v), lambda v: ~v.isnan())


def _log_normal(values, mean, std):
    scaled = lambda v: (v.clamp(min=0).log() - mean) / std  # noqa: E731
    ndtr = torch.special.ndtr
    return _continuous(values, lambda v: ndtr(scaled(v)), lambda v: ndtr(-scaled(v)),
                       lambda v: v >= 0)  # fmt: skip


# ---- discrete ------------------------------------------------------------------------


def _discrete(values, upto, inside):
    """Draws of whole numbers; `upto(k)` is the chance of k or less."""
    wide = values.double()
    half = (_spacing(values) / 2).clamp(min=0.5)  # large counts round in low precision
    good = inside(wide) & (wide == wide.round())
    low, high = upto((wide - half - 0.5).round()), upto((wide + half - 0.5).round())
    return Draws(low.clamp(0, 1), high.clamp(0, 1), good, _outside(values, ~good))


def _integers(values, low, high):
    """Whole numbers from low to high - 1, each as likely."""
    wide = values.double()
    count = float(high - low)
    good = (wide >= low) & (wide < high) & (wide == wide.round())
    begin, end = ((wide - low) / count).clamp(0, 1), ((wide - low + 1) / count).clamp(0, 1)
    return Draws(begin, end, torch.ones_like(good), _outside(values, ~good),
                 float(_spacing(values).max()) / count if values.dtype.is_floating_point
                 and values.numel() else 0.0)  # fmt: skip


def bernoulli(values, p):
    """Draws of ones with probability `p`, a number or one per element."""
    p = torch.as_tensor(p, dtype=torch.float64).expand(values.shape)
    one = values != 0
    bad = ((values != 0) & (values != 1)) | (one & (p <= 0)) | (~one & (p >= 1))
    low = torch.where(one, 1 - p, torch.zeros_like(p))
    high = torch.where(one, torch.ones_like(p), 1 - p)
    live = (p > 0) & (p < 1)
    out = Draws(low, high, live, _outside(values, bad))
    if bool(live.any()) and float(p[live].min()) == float(p[live].max()):
        out.hits, out.chance = one[live], float(p[live][0])
    else:
        out.odd = _ignores_p(one[live], p[live])
    return out


def _ignores_p(one, p):
    """Ones that do not follow probabilities of their own, a clause: the score statistic of
    a slope that is not 1 between the two on the scale of log odds."""
    slope = torch.logit(p).clamp(-4, 4)
    variance = (slope.square() * p * (1 - p)).sum()
    if not float(variance) > 50:
        return ""
    z = float((slope * (one.double() - p)).sum() / variance.sqrt())
    return f"ones do not follow their probabilities (z = {z:.1f})" if abs(z) > 5.5 else ""


def _geometric(values, p):
    return _discrete(values, lambda k: -torch.expm1(k.clamp(min=0) * math.log1p(-p))
                     if p < 1 else (k >= 1).double(), lambda k: k >= 1)  # fmt: skip


def _poisson(values, rate):
    rate = rate.expand(values.shape)
    upto = lambda k: torch.where(k >= 0, torch.igammac(k.clamp(min=0) + 1, rate), 0.0)  # noqa: E731
    return _discrete(values, upto, lambda k: (k >= 0) & k.isfinite() & ((rate > 0) | (k == 0)))


# ---- by operator ---------------------------------------------------------------------


def _complex_part(arguments):
    """1/sqrt(2) where the draws are parts of complex numbers, of variance 1 together."""
    dtype, like = arguments.get("dtype"), arguments.get("self")
    kinds = [d for d in (dtype, getattr(like, "dtype", None)) if isinstance(d, torch.dtype)]
    return math.sqrt(0.5) if kinds and kinds[0].is_complex else 1.0


def _law_random(values, arguments):
    low, high = arguments.get("from") or 0, arguments.get("to")
    if high is None:
        dtype = values.dtype
        if dtype.is_floating_point:
            high = 2 ** {torch.float64: 53}.get(dtype, DIGITS[dtype]) + 1
        else:
            high = 2 if dtype == torch.bool else torch.iinfo(dtype).max + 1
        if dtype == torch.int64 or dtype == torch.float64:  # the last one is rarely drawn
            high = 2.0**63 if dtype == torch.int64 else high
    return _integers(values, low, high)


def _law_normal(values, arguments):
    mean, std = arguments.wide("mean", 0.0), arguments.wide("std", 1.0)
    return _normal(values, mean, std * _complex_part(arguments))


def _law_bernoulli(values, arguments):
    return bernoulli(values, arguments.wide("p" if "p" in arguments else "self"))


LAWS = {
    "rand": lambda v, a: _uniform(v, 0.0, 1.0, True),
    "uniform": lambda v, a: _uniform(v, a.get("from", 0.0), a.get("to", 1.0), False),
    "randn": lambda v, a: _normal(v, 0.0, _complex_part(a)),
    "normal": _law_normal,
    "randint": lambda v, a: _integers(v, a.wide("low", 0) or 0, a.wide("high")),
    "random": _law_random,
    "bernoulli": _law_bernoulli,
    "exponential": lambda v, a: _exponential(v, a.get("lambd", 1.0)),
    "cauchy": lambda v, a: _cauchy(v, a.get("median", 0.0), a.get("sigma", 1.0)),
    "log_normal": lambda v, a: _log_normal(v, a.get("mean", 1.0), a.get("std", 2.0)),
    "geometric": lambda v, a: _geometric(v, a.get("p")),
    "poisson": lambda v, a: _poisson(v, a.wide("self")),
}
ALIASES = {"rand_like": "rand", "randn_like": "randn", "randint_like": "randint",
           "normal_functional": "normal"}  # fmt: skip


def law_of(name):
    """The law of the operator of that bare name, None where it has none of these."""
    name = name.removesuffix("_")
    return LAWS.get(ALIASES.get(name, name))


# ---- permutations and samples --------------------------------------------------------


def permutation(values):
    """Draws of randperm: which places come where. Descents tell sorted runs."""
    n = values.numel()
    wide = values.double()
    good = torch.equal(wide.sort().values, torch.arange(n, dtype=torch.float64))
    low = wide / max(n, 1)
    out = Draws(low, low + 1 / max(n, 1), torch.ones(n, dtype=torch.bool),
                "" if good else f"no permutation of 0 to {n - 1:,}")  # fmt: skip
    falls = int((wide.diff() < 0).sum())
    if good and n >= 32 and abs(falls - (n - 1) / 2) > 5.33 * math.sqrt((n + 1) / 12):
        out.odd = f"{falls:,} of {n - 1:,} steps fall where half of them should"
    return out


MOST_SAMPLES = 64  # columns of a sample without replacement that are looked at


def multinomial(values, weights, replacement):
    """Draws of multinomial: never a category of weight zero, none twice without replacement,
    each by its share of what is left."""
    weights = weights.double().reshape(-1, weights.shape[-1])
    chosen = values.reshape(weights.shape[0], -1)
    if bool(((chosen < 0) | (chosen >= weights.shape[1])).any()):
        return _no_draws(chosen, "an index outside of the weights")
    if bool((weights.gather(1, chosen) <= 0).any()):
        return _no_draws(chosen, "a category of weight zero")
    if replacement:
        return _categories(weights, chosen)
    if chosen.shape[1] > 1 and bool((chosen.sort(1).values.diff(dim=1) == 0).any()):
        return _no_draws(chosen, "a category twice without replacement")
    left, columns = weights.clone(), []
    for j in range(min(chosen.shape[1], MOST_SAMPLES)):
        columns.append(_categories(left, chosen[:, j : j + 1]))
        left.scatter_(1, chosen[:, j : j + 1], 0.0)
    parts = {k: torch.stack([getattr(c, k) for c in columns], 1).reshape(-1)
             for k in ("low", "high", "known")}  # fmt: skip
    return Draws(**parts, cells=columns[0].cells)


def _categories(weights, chosen):
    """Draws with the likely categories first, so that a share that is off shows."""
    sorted_, order = weights.sort(dim=1, descending=True, stable=True)
    place = order.argsort(1).gather(1, chosen)
    ends = sorted_.cumsum(1)
    total = ends[:, -1:]
    high = ends.gather(1, place)
    low = high - weights.gather(1, chosen)
    live = (high - low < total).reshape(-1)
    return Draws((low / total).reshape(-1), (high / total).reshape(-1), live,
                 cells=_counts(weights / total, chosen))  # fmt: skip


def _counts(share, chosen):
    """How often categories came and are due; those that are due less than 8 times as one."""
    due = share.sum(0) * chosen.shape[1]
    came = torch.bincount(chosen.reshape(-1), minlength=len(due)).double()
    rare = due < 8
    if bool(rare.any()):
        due = torch.cat([due[~rare], due[rare].sum()[None]])
        came = torch.cat([came[~rare], came[rare].sum()[None]])
    return (came, due) if len(due) > 2 and float(due.min()) >= 8 else None


def _no_draws(chosen, why):
    none = torch.zeros(chosen.numel(), dtype=torch.float64)
    return Draws(none, none, torch.zeros(chosen.numel(), dtype=torch.bool), why)
