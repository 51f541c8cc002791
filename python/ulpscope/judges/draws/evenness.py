# SPDX-License-Identifier: Apache-2.0
"""Whether numbers look like independent draws from [0, 1): the tests behind every verdict on
a random operator. Serves `operators`, whose laws turn draws of any kind into such numbers.

Written with torch in float64, not in C: it runs once per random call. Every test has its own
chance of a false alarm, about 1e-7; all of one call together stay near 1e-6
(docs/operators.md, "Random operators").
"""

import math

import torch

ENOUGH = 32  # elements: below it a law cannot be told from another
Z_ONE = 5.33  # 1e-7, two-sided
N_BLOCKS, Z_BLOCK = 32, 6.0  # 32 times 2e-9
N_BLOCKED = 1024  # elements from which blocks are looked at
Z_PAIR = 5.33
KOLMOGOROV = 2.9  # in 1/sqrt(n): 1e-7
CHANCE = 1e-7
FINE = 2.0**-20  # slack below which cells of equal probability can be cut
N_MOST = 2**22  # more elements than these tell nothing more: the first and last of them


def some(tensor):
    """A flat tensor's first and last elements where it is too long to look at all."""
    flat = tensor.reshape(-1)
    if flat.numel() <= N_MOST:
        return flat
    return torch.cat([flat[: N_MOST // 2], flat[-N_MOST // 2 :]])


def oddity(u, known, slack=0.0):
    """
    What is odd about `u` as independent even draws from [0, 1), a clause; "" for nothing.

    `known` marks the elements that count; `slack` is how far the law itself may be off
    because of rounding. Fewer than ENOUGH elements are never odd.
    """
    n = int(known.sum())
    if n < ENOUGH:
        return ""
    centred = torch.where(known, u - 0.5, torch.zeros_like(u))
    return (
        _moments(centred, n, slack)
        or _shape(u[known], n, slack)
        or (_cells(u[known], n) if slack < FINE else "")
        or _blocks(centred, known, slack)
        or _lags(centred, n)
    )


def _moments(centred, n, slack):
    mean = float(centred.sum()) / n
    z = math.copysign(max(abs(mean) - slack, 0.0), mean) * math.sqrt(12 * n)
    if abs(z) > Z_ONE:
        return f"too {'large' if z > 0 else 'small'} on average (z = {z:.1f})"
    spread = float(centred.square().sum()) / n - 1 / 12
    z = math.copysign(max(abs(spread) - slack, 0.0), spread) * math.sqrt(180 * n)
    if abs(z) > Z_ONE:
        return f"spread too {'wide' if z > 0 else 'narrow'} (z = {z:.1f})"
    return ""


def _shape(u, n, slack):
    """Kolmogorov's distance from the even distribution."""
    sorted_ = u.sort().values
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    gap = float(torch.maximum(steps[1:] - sorted_, sorted_ - steps[:-1]).max())
    if gap <= KOLMOGOROV / math.sqrt(n) + slack:
        return ""
    return f"distributed otherwise (Kolmogorov distance {gap:.3g} over {n:,} elements)"


def _cells(u, n):
    """Chi-square over cells of equal probability: a value that is missing."""
    count = min(64, n // 8)
    if count < 2:
        return ""
    seen = torch.bincount((u * count).long().clamp(0, count - 1), minlength=count).double()
    return unlikely(seen, torch.full((count,), n / count, dtype=torch.float64))


def unlikely(seen, expected):
    """Chi-square of counts against their expectations, a clause; "" for likely ones."""
    square = (seen - expected).square() / expected
    freedom = torch.tensor((len(seen) - 1) / 2, dtype=torch.float64)
    chance = float(torch.special.gammaincc(freedom, square.sum() / 2))
    if chance > CHANCE / 10:
        return ""
    i = int(square.argmax())
    return f"distributed otherwise (part {i} of {len(seen)}: {int(seen[i]):,} where {float(expected[i]):,.0f} are due)"


def runs_of(hit, p):
    """The run of hits, each of probability p, that is too long: a clause, "" for none."""
    n = hit.numel()
    if n == 0 or not 0 < p < 1:
        return ""
    edges = torch.cat([torch.tensor([True]), hit[1:] != hit[:-1]]).nonzero().flatten()
    sizes = torch.cat([edges, torch.tensor([n])]).diff()
    sizes = torch.where(hit[edges], sizes, torch.zeros_like(sizes))
    last, most = int(sizes[-1]), int(sizes.max())
    if last * math.log(p) < math.log(CHANCE):
        return f"the last {last:,} of them in a row"
    if most * math.log(p) + math.log(n) < math.log(CHANCE / 10):
        return f"{most:,} of them in a row from {int(edges[int(sizes.argmax())]):,} on"
    return ""


def _blocks(centred, known, slack):
    if centred.numel() < N_BLOCKED:
        return ""
    size = -(-centred.numel() // N_BLOCKS)
    for i, (part, live) in enumerate(zip(centred.split(size), known.split(size), strict=True)):
        n = int(live.sum())
        mean = float(part.sum()) / max(n, 1)
        z = max(abs(mean) - slack, 0.0) * math.sqrt(12 * n)
        if z > Z_BLOCK:
            return f"elements {i * size:,} to {i * size + part.numel() - 1:,} are off (z = {z:.1f})"
    return ""


def z_of(chance):
    """The two-sided bound of a normal deviate that is passed with this chance."""
    return -float(torch.special.ndtri(torch.tensor(chance / 2, dtype=torch.float64)))


def _lags(centred, n):
    """The largest autocorrelation over all lags up to half of the elements: a generator that
    repeats itself, rows that share their draws."""
    count = centred.numel()
    live = centred - (centred != 0) * (centred.sum() / n)
    size = 1 << (2 * count - 1).bit_length()
    power = torch.fft.rfft(live, size)
    products = torch.fft.irfft(power * power.conj(), size)[: count // 2 + 1]
    r = products[1:] / products[0]
    z = r.abs() * math.sqrt(n)
    worst = int(z.argmax()) if z.numel() else 0
    if z.numel() and float(z[worst]) > max(7.0, z_of(CHANCE / z.numel())):
        return f"depend on the element {worst + 1:,} places before (correlation {float(r[worst]):.2g})"
    return ""


def relation(first, second, known):
    """What relates two draws of one operator, a clause; "" where they are independent."""
    n = int(known.sum())
    if n < ENOUGH:
        return ""
    a, b = (torch.where(known, u - 0.5, torch.zeros_like(u)) for u in (first, second))
    z = 12 * float((a * b).sum()) / math.sqrt(n)
    return f"two calls give related numbers (z = {z:.1f})" if abs(z) > Z_PAIR else ""


def count_is_odd(k, n, p, chance=2 * CHANCE):
    """Whether k hits of n are too many or too few for the probability p: the exact binomial
    tail, so that rare events are judged as well."""
    if n == 0 or p <= 0 or p >= 1:
        return n > 0 and k != n * min(max(p, 0.0), 1.0)
    z = (k - n * p) / math.sqrt(n * p * (1 - p))
    if abs(z) < 4:
        return False
    if n * p * (1 - p) > 1e4:
        return abs(z) > z_of(chance)
    low, high = (k, min(n, k + 4096)) if k > n * p else (max(0, k - 4096), k)
    i = torch.arange(low, high + 1, dtype=torch.float64)
    logs = (
        math.lgamma(n + 1) - torch.lgamma(i + 1) - torch.lgamma(n - i + 1)
        + i * math.log(p) + (n - i) * math.log1p(-p)
    )  # fmt: skip
    return float(logs.exp().sum()) < chance / 2


def repeats(values, atom):
    """
    Which value of a continuous law comes too often, or fills the end: a clause, "" for none.

    `atom` is the largest probability that an honest generator gives to one value.
    """
    n = values.numel()
    if n < 2:
        return ""
    same = values == values[-1]
    run = n if bool(same.all()) else int(same.flip(0).to(torch.int8).argmin())
    free = 0 if float(values[-1]) == 0.0 else 1  # a zero at the end needs no partner
    if (run - free) * math.log(atom) < math.log(CHANCE):
        return f"the last {run:,} elements are {float(values[-1]):.6g}"
    sorted_ = values.sort().values
    edges = torch.cat([torch.tensor([0]), (sorted_[1:] != sorted_[:-1]).nonzero().flatten() + 1,
                       torch.tensor([n])])  # fmt: skip
    runs = edges.diff()
    most = int(runs.max())
    expected = n * atom
    if most > expected:
        log_chance = most * math.log(expected) - math.lgamma(most + 1) - expected - math.log(atom)
        if log_chance < math.log(CHANCE / 10):
            value = float(sorted_[edges[int(runs.argmax())]])
            return f"{value:.6g} comes {most:,} times among {n:,}"
    return ""
