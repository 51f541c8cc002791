# SPDX-License-Identifier: Apache-2.0
"""The judge's rule in plain float64, written from docs/reference/metrics.md, 2 alone: slow, sorted
quantiles, one tensor at a time. Tests hold the C judge against it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

F64 = torch.float64
FORMAT = {torch.float32: (24, -126), torch.bfloat16: (8, -126), torch.float16: (11, -14)}
UNIT, TINY = 2.0**-24, 2.0**-125
FINITE, POS, NEG, NAN = range(4)


@dataclass
class Operands:
    """One output: device, reference, yardstick, replays [(R^k, Y^k)]."""

    device: torch.Tensor
    reference: torch.Tensor
    yardstick: torch.Tensor
    replays: list
    fan_in: float = 1.0
    movement: bool = False
    flushed: torch.Tensor | None = None


@dataclass
class Finding:
    status: str
    bits: float
    n_mismatch: int
    max: float
    mid: float
    rel: float
    z: float
    n_nonfinite: int
    flushes: bool = False
    softened: bool = False  # reduced by the two mends, which spare few or tiny errors


def ulp(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    p, emin = FORMAT[dtype]
    _, e = torch.frexp(x)  # x = f 2^e with f in [1/2, 1)
    e = torch.where(x == 0, torch.full_like(e, emin), e - 1).clamp(min=emin)
    return torch.ldexp(torch.ones_like(x), e - p + 1)


def round_to(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Once, to nearest even; torch's own cast from float64 may round twice."""
    top = torch.finfo(dtype).max
    inside = torch.where(x.isfinite(), x, torch.zeros_like(x))
    step = ulp(inside, dtype)
    rounded = torch.round(inside / step) * step
    rounded = torch.where(rounded.abs() > top, torch.sign(rounded) * math.inf, rounded)
    return torch.where(x.isfinite(), rounded, x)


def kind(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.shape, dtype=torch.int8)
    out[x == math.inf], out[x == -math.inf], out[x.isnan()] = POS, NEG, NAN
    return out


def distance(d: torch.Tensor, r: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """From r to the reals that round to d; d may be infinite."""
    p, emin = FORMAT[dtype]
    top = torch.finfo(dtype).max
    sign = torch.where(torch.signbit(d), -1.0, 1.0).to(F64)
    a, x = d.abs(), r * sign
    held = torch.where(a.isfinite(), a, torch.full_like(a, top))
    half = ulp(held, dtype) / 2
    power = torch.frexp(held)[0] == 0.5
    below = torch.where(power & (held > 2.0**emin), half / 2, half)
    e = torch.where(x > held, x - held - half, held - x - below).clamp(min=0)
    return torch.where(a.isinf(), (top + half - x).clamp(min=0), e)


def is_exact(o: Operands) -> bool:
    pairs = [(o.reference, o.yardstick.double())]
    pairs += [(r, y.double()) for r, y in o.replays]
    return all(bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in pairs)


def root_of(x: torch.Tensor) -> torch.Tensor:
    """As IEEE has it, which torch.sqrt does not promise."""
    roots = [math.sqrt(v) if v >= 0 else math.nan for v in x.reshape(-1).tolist()]
    return torch.tensor(roots, dtype=F64).view(x.shape)


def add_square(root: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    """The root of the sum of squares, as float32 holds 2^-16 of it; NaN for good where lost."""
    root, more = root * 2.0**-16, more * 2.0**-16
    total = root_of(root * root + more * more)
    held = total.clamp(max=torch.finfo(torch.float32).max).float().double() * 2.0**16
    return torch.where(total.isfinite(), held, torch.full_like(held, math.nan))


def scales(o: Operands, exact: bool) -> tuple:
    """S, N, max(|R|, S, N, tiny)"""
    R, K = o.reference, len(o.replays)
    S, N = torch.zeros_like(R), torch.zeros_like(R)
    for r, y in o.replays:
        S = add_square(S, (r - R) * 2.0**20)
        N = add_square(N, (y.double() - r) * 2.0**24)
    S, N = S / math.sqrt(K), N / math.sqrt(K)
    S[S.isnan()], N[N.isnan()] = 1e300, 0
    if exact:
        S, N = torch.zeros_like(S), torch.zeros_like(N)
    size = R.abs()
    return S, N, torch.stack([size, S, N, torch.full_like(S, TINY)]).amax(0)


def rank(x: torch.Tensor, share: float) -> float:
    if x.numel() == 0:
        return 0.0
    return float(x.sort()[0][max(math.ceil(share * x.numel()), 1) - 1])


def quarter(x: float) -> float:
    """The quarter of a binade below x."""
    if not x > 0:
        return 0.0
    power = 2.0 ** math.floor(math.log2(x))
    return power * (1 + math.floor(4 * (x / power - 1)) / 4)


class Case:
    """Scores and sets of one output, as section 2 names them."""

    def __init__(self, o: Operands, appeal: bool):
        self.o, self.dtype = o, o.device.dtype
        self.D, self.R, self.Y = o.device.double(), o.reference, o.yardstick.double()
        self.exact = is_exact(o) and (o.movement or not appeal)
        self.F = o.fan_in if appeal and not self.exact else 1.0
        self.S, self.N, self.scale = scales(o, self.exact)
        self.rounded = round_to(self.Y, self.dtype)
        kD, kR, kY = kind(self.D), kind(round_to(self.R, self.dtype)), kind(self.rounded)
        finite = self.R.isfinite()
        self.free = finite & (kD != FINITE) & (kD != kR) & (kD == kY)
        wrong_kind = (~finite & (kD != kR)) | (finite & (kD == NAN))
        self.bad = wrong_kind & (kD != kY) & ~self.free
        judged = finite & (kD != NAN) & ~self.free
        self.limit = judged & ((kD == FINITE) != (kR == FINITE))
        self.score = torch.zeros_like(self.R)
        take = judged & ~((kD != FINITE) & (kD == kY))
        e = distance(self.D[take], self.R[take], self.dtype)
        self.score[take] = e / (UNIT * self.scale[take])

        self.find_ill()

    def find_ill(self) -> None:
        """Of which elements fewer than 4 bits are right, or could be told."""
        size = self.R.abs()
        plain = (kind(self.D) == FINITE) & (kind(round_to(self.R, self.dtype)) == FINITE)
        live = size[self.R.isfinite() & (size != 0)]
        typical = quarter(rank(live, 0.5))
        for least in (0.0, typical):
            e = torch.where(plain, distance(self.D, self.R, self.dtype), torch.zeros_like(size))
            unit = torch.maximum(e, UNIT * self.scale)
            own = size.clamp(min=max(least, 32 * TINY))
            self.ill = plain & (e > 0) & (unit > own / 16)
            if int(self.ill.sum()) <= 0.01 * int(self.R.isfinite().sum()):
                break
        self.leave_ill(torch.zeros_like(self.ill))

    def leave_ill(self, forgiven: torch.Tensor) -> None:
        self.ill &= ~forgiven
        self.many_ill = int(self.ill.sum()) > 0.01 * int(self.R.isfinite().sum())

    def blind(self) -> bool:
        if self.free.any():
            return True
        return int(self.ill.sum()) > 0.5 * int(self.R.isfinite().sum())

    def has_telling_form(self) -> str:
        """Why the output cannot be honest although no error is too large; "" else."""
        size = self.R.abs()
        if self.dtype == torch.float16:
            shows = (size >= 2.0**-22) & (size < 0.9 * 2.0**-14)
            return "flushed" if shows.sum() >= 3 and (self.D[shows] == 0).all() else ""
        if self.dtype != torch.float32:
            return ""
        here = self.D.isfinite() & self.R.isfinite()
        short = [(v == round_to(v, torch.float32)) & is_short(v) for v in (self.D[here], self.R[here].float().double())]
        near = (self.D - self.R).abs()[here] <= 2.0**-11 * size[here]  # what cancels is short by itself
        return "short" if bool(short[0].all()) and bool((near & ~short[1]).any()) else ""


def is_short(x: torch.Tensor) -> torch.Tensor:
    """Whether 11 significand bits hold x."""
    f = torch.ldexp(torch.frexp(x)[0], torch.tensor(11))
    return f == f.trunc()


def limits(c: Case) -> tuple:
    """t_max, t_mid"""
    root, few = math.sqrt(c.F), c.F**0.6
    most = 16 if c.R.numel() < 8 else 128 + 3 * root
    return min(most, 24 * few, 1024), min(6 + root / 2, 6 * few, 512)


def excuse(c: Case, t_max: float) -> None:
    live = c.R[c.R.isfinite() & (c.R != 0)].abs()
    nothing = UNIT * t_max * 2.0**-26 * rank(live, 0.5)
    c.score[(c.R == 0) & (c.D.abs() <= nothing)] = 0
    here = (c.score > t_max) & c.D.isfinite() & c.Y.isfinite()
    near = distance(c.D[here], c.Y[here], c.dtype) <= 16 * UNIT * c.Y[here].abs()
    c.score[here] = torch.where(near, torch.zeros_like(c.Y[here]), c.score[here])
    c.score[c.D == c.rounded] = 0


def excuse_flushing(c: Case, t_max: float, fails: torch.Tensor) -> bool:
    least = UNIT * min(t_max, 16) * c.scale
    small = c.R.abs() < 2.0**-126
    ways = [(small & (c.D == 0), small & (c.D != 0) & (distance(0 * c.D, c.R, c.dtype) > least))]
    if c.o.flushed is not None:
        Y = c.o.flushed.double()
        both = Y.isfinite() & c.D.isfinite()
        shows = ~((Y - c.Y).abs() <= 16 * UNIT * c.scale)
        reach = UNIT * max(t_max, 16) * torch.maximum(Y.abs(), c.S)
        same = (kind(Y) != FINITE) & (kind(Y) == kind(c.D)) & (kind(Y) != kind(c.Y))
        near = shows & both
        near[both] &= distance(c.D[both], Y[both], c.dtype) <= reach[both]
        explained = torch.where(both, near, same)
        ways.append((explained, shows & ~explained))
    forgiven = torch.zeros_like(fails)
    for explained, kept in ways:
        n = int((explained & fails).sum())
        if n and n >= int((kept & ~fails).sum()):
            forgiven |= explained
    if not bool(forgiven.any()):
        return False
    c.score[forgiven] = 0
    c.bad &= ~forgiven
    c.limit &= ~forgiven
    c.leave_ill(forgiven)
    return True


def look(o: Operands) -> str | None:
    """pass, unjudged, or None: appeal"""
    c = Case(o, appeal=False)
    if c.bad.any() or c.free.any() or (c.score > (0 if c.exact else 16)).any():
        return None
    if c.many_ill:
        return None
    return "unjudged" if c.blind() else "pass"


def appeal(o: Operands) -> Finding:
    c = Case(o, appeal=True)
    t_max, t_mid = limits(c)
    if c.exact:
        t_max = t_mid = 0
    else:
        excuse(c, t_max)
    fails = (c.score > min(t_max, 16)) | c.bad
    lost = torch.zeros_like(fails)
    flushes = False
    if c.dtype == torch.float16:
        lost = fails & (c.D == 0) & (c.R != 0) & (c.R.abs() < 2.0**-14)
        flushes = bool(lost.any())
    elif fails.any():
        flushes = excuse_flushing(c, t_max, fails)
    found = conclude(c, t_max, t_mid, lost, flushes)
    if found.status == "pass" and c.many_ill:
        c.score[c.ill & (c.score <= t_max)] = 0
        found = conclude(c, t_max, t_mid, lost, flushes)
    return found


def conclude(c: Case, t_max: float, t_mid: float, lost: torch.Tensor, flushes: bool) -> Finding:
    hit = c.score > 0
    m, x = int(hit.sum()), c.score[hit]
    own = torch.maximum(torch.maximum(c.R.abs(), c.N), torch.tensor(TINY, dtype=F64))
    rel = rank((c.score * c.scale / own)[hit], 0.5)
    mid, worst = rank(x, 0.5), float(x.max()) if m else 0.0
    counted = hit & c.D.isfinite()
    signs = (torch.sign(c.D - c.R) * torch.sign(c.R))[counted]
    z = float(signs.sum()) / math.sqrt(max(signs.numel(), 1))
    nonfinite = c.bad | (c.limit & (c.score > t_max))
    bits = 24 - math.log2(max(1.0, rank(x, 0.99)))
    out = Finding("pass", bits, m, worst, mid, rel, z, int(nonfinite.sum()), flushes)
    root = math.sqrt(c.F)
    one_sided = abs(z) > max(6, math.sqrt(signs.numel()) / 2) and mid > 8 + 0.25 * root
    relative = m >= 8 and rel > 24 + 3 * root
    typical = m >= 8 and mid > t_mid
    typical |= m >= 8 and rank(x, 0.99) > min(16 + 1.5 * root, 10 * c.F**0.6, 512)
    if nonfinite.any():
        out.status = "nonfinite"
    elif worst <= t_max and (c.exact or not (one_sided or relative or typical)):
        form = c.has_telling_form() if worst > 16 and not c.exact else ""
        out.status = "reduced" if form else "unjudged" if c.blind() else "pass"
        if form == "flushed":
            out.bits, out.flushes = 11, True
    elif lost.any() and not (c.score > t_max)[~lost].any():
        out.status, out.bits = "reduced", 11
    else:
        if relative and worst <= t_max:
            out.bits = min(bits, 24 - math.log2(max(1.0, rel)))
        name(c, out, rel)
    return out


def name(c: Case, out: Finding, rel: float) -> None:
    inside = c.R.isfinite() & (kind(round_to(c.R, c.dtype)) == FINITE) & c.D.isfinite()
    r = c.R[inside]
    share = UNIT * c.scale[inside] * out.mid / ulp(r, c.dtype)
    expected = float(share.clamp(max=1).sum())
    noise = out.n_mismatch >= max(2, 0.1 * expected) and out.max <= 64 * max(out.mid, 1e-9)
    enough = min(out.bits, 24 - math.log2(max(1.0, rel))) >= 4.5
    off = (c.score > 0) & c.D.isfinite() & c.R.isfinite()
    larger = torch.maximum(c.D.abs(), c.R.abs())[off]
    tiny = bool(((c.D - c.R).abs()[off] <= ulp(larger, c.dtype)).all())
    tiny = tiny and not bool(((c.score > 0) & ~(c.D.isfinite() & c.R.isfinite())).any())
    out.softened = not (enough and noise) and (tiny or (enough and c.R.numel() < 16))
    out.status = "reduced" if (enough and noise) or out.softened else "wrong"
