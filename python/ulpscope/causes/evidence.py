# SPDX-License-Identifier: Apache-2.0
"""How well an emulation explains what a device gave for one output: what rounding allows each
element, what is off beyond it, and how much of that an emulation leaves. Neighbour:
`diagnose` (asks).
"""

import math

import torch

from ..executors.formats import FORMATS, OWN_FORMAT, to_dtype
from . import emulate, pattern

SAME_BITS = 0.99
SMALLER = 8.0
GLANCE = 128  # elements that tell an explanation from none
BITS = 32  # elements that rounding the truth does not give, and an emulation in float32 does
EXPLAINED = 0.97  # share of the elements that an emulation has to explain
ROUNDINGS = 8.0  # of float32's own loss, that a device which makes the same mistake may lose
MOST_LOOKED_AT = 1 << 17  # elements of one output that an emulation is held against
MOST_COMPARED = 1 << 13  # elements whose errors are correlated
CHANCE = 9.0  # bits of agreement that hundreds of candidates do not have by chance
FEW_CHANCE = 14.0  # the same where so few numbers are off that every candidate moves all of them
FEW = 8


class Evidence:
    """One output: what the device gave, the truth, and how well an emulation explains the
    difference. Looks at a sample where there are very many elements."""

    def __init__(self, device, truth, yardstick):
        self.dtype, self.shape = device.dtype, device.shape
        self.floats = device.is_floating_point()
        self.picked = _sample(device, truth)
        self.device = self._of(device)
        self.truth = self._of(truth)
        self.rounded = to_dtype(self.truth, self.dtype) if self.floats else self.truth
        self.low = self.floats and FORMATS[OWN_FORMAT.get(self.dtype, "float32")][0] < 24
        noise = (self._of(yardstick) - self.truth).abs()
        self.slack = self._slack(noise.where(noise.isfinite(), noise * 0))
        self.off = self._differs(self.device)
        self.any_off = bool(self.off.any())
        self._independent = None
        self.glance, self.n_far = self._few()
        self._seen = None

    def _few(self):
        """Positions of some elements that are far off, and how many these are; behind them, where
        they are no sample, some of all that are off."""
        error = (self.device - self.truth).abs()
        far = self.off & ~(error <= 4 * self.slack)
        off = self.off.nonzero().flatten()
        where = far.nonzero().flatten() if int(far.sum()) >= 8 else off
        if where.numel() > 2 * GLANCE:
            where, off = _sparse(where), off[:0]
        return torch.cat([where, _sparse(off)]), where.numel()

    def mixed(self):
        """Whether the errors look like noise: of both signs in most rows and most columns."""
        rows = self.shape[-1] if len(self.shape) > 1 and self.picked is None else 1
        sign = torch.sign((self.device - self.truth) * self.truth).where(self.off, 0 * self.truth)
        if not bool(sign.isfinite().all()) or int(self.off.sum()) < 64:
            return False
        sums = [(sign.reshape(-1, rows).sum(d).abs(), self.off.reshape(-1, rows).sum(d)) for d in (0, 1)]
        return all(float((s[n > 0] / n[n > 0]).median()) < 0.6 for s, n in sums if s.numel() > 1
                   and float(n.double().mean()) > 8)  # fmt: skip

    def one_sided(self):
        """Whether most errors make the results larger, or most make them smaller."""
        sign = torch.sign((self.device - self.truth) * self.truth)[self.off]
        return bool(sign.numel()) and abs(float(sign.nan_to_num().mean())) > 0.5

    def seen(self, tensor):
        """The elements that are looked at, flat, as doubles."""
        return self._of(tensor)

    def _of(self, tensor):
        flat = tensor.detach().reshape(-1)
        return (flat if self.picked is None else flat[self.picked]).double()

    def _slack(self, noise):
        """What honest float32 may do to each element."""
        if not self.floats:
            return noise * 0
        bits = FORMATS[self.dtype_name()][0] if self.dtype != torch.float64 else 53
        finite = self.truth[self.truth.isfinite()]
        typical = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        common = min(_quantile(noise, 0.5), typical * 2.0**-20) if noise.numel() else 0.0
        own = self.truth.abs().where(self.truth.isfinite(), noise * 0) * 2.0**-bits * 1.02
        return own + 6 * noise + 3 * common

    def dtype_name(self):
        return OWN_FORMAT.get(self.dtype, "float32")

    def _differs(self, own):
        """Elements where some result is not what rounding the truth gives."""
        if self.low or not self.floats:
            return ~pattern.same(own, self.rounded)
        near = (own - self.rounded).abs() <= self.slack
        return ~(near | pattern.same(own, self.rounded))

    def residual(self, emulated):
        """0 where the bits agree; else what is left of the error, as a share of it.
        Infinite for no explanation."""
        if emulated.shape != self.shape or not self.any_off:
            return float("inf")
        emulated = self._of(emulated)
        if not self._likely(emulated):
            return float("inf")
        own = to_dtype(emulated, self.dtype) if self.floats else emulated
        counts = self._counting(self._differs(own))
        device, truth, emulated, own = (
            x[counts] for x in (self.device, self.truth, emulated, own))  # fmt: skip
        equal = pattern.same(device, own)
        slack = self.slack[counts]
        if float(equal.double().mean()) >= SAME_BITS:
            return 0.0 if self._told(device, truth, slack) else float("inf")
        if not self.floats:
            return float("inf")
        ratio = self._left(device, truth, emulated, equal, slack)
        n = self.independent()
        return ratio if n >= 4 or ratio**n <= 2.0**-self._enough() else float("inf")

    def _told(self, device, truth, slack):
        """Whether equal bits can hardly be by chance: so far off are so many elements."""
        n = self.independent()
        if not self.floats:
            return True
        over = (device - truth).abs() / slack.clamp(min=1e-300)
        bits = torch.log2(over.nan_to_num(nan=2.0**24, posinf=2.0**24).clamp(1.0, 2.0**24))
        more = math.log2(max(int(self.off.sum()) // n, 1))  # many elements share an error
        return float(bits.sort(descending=True)[0][:n].sum()) + more >= self._enough()

    def _enough(self):
        return CHANCE if int(self.off.sum()) >= FEW else FEW_CHANCE

    def independent(self):
        """How many errors of their own there are: the elements that are off, or the slices
        where all elements of one are off by one factor."""
        if self._independent is None:
            self._independent = self._own_errors()
        return self._independent

    def _own_errors(self):
        count = max(int(self.off.sum()), 1)
        if self.picked is not None or not self.floats or not self.shape:
            return count
        live = self.device.isfinite() & self.truth.isfinite()
        zero = torch.zeros_like(self.truth)
        error = (self.device - self.truth).where(live, zero).reshape(self.shape)
        truth = self.truth.where(live, zero).reshape(self.shape)
        rank = error.dim()
        for axes in {tuple(range(rank))} | {(a,) for a in range(rank)} | {
                tuple(x for x in range(rank) if x != a) for a in range(rank) if rank > 1}:  # fmt: skip
            groups = error.numel() // max(int(torch.tensor([self.shape[a] for a in axes]).prod()), 1)
            if 2 * groups < count and _is_linear(error, truth, axes):
                count = 1 if groups == 1 else 2 * groups
        return count

    def _counting(self, moved):
        """Elements that an emulation is held against: those that are off and those that it
        moves, without what is hardly off beside mistakes that are far larger."""
        counts = self.off | moved
        error = (self.device - self.truth).abs()
        hardly = counts & ~moved & (error <= 4 * self.slack)
        strong = counts & ~hardly
        if int(strong.sum()) < max(8, int(hardly.sum()) // 3) or not bool(hardly.any()):
            return counts
        large = (error > 64 * self.slack.clamp(min=1e-300))[strong]
        return strong if float(large.double().mean()) > 0.5 else counts

    def _likely(self, emulated):
        """False where a look at a few of the elements that are off rules an emulation out."""
        if self._seen is None:
            device, truth = self.device[self.glance], self.truth[self.glance]
            error = (device - truth).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
            self._seen = device, torch.maximum(error / SMALLER, self.slack[self.glance])
        device, room = self._seen
        emulated = emulated[self.glance]
        own = to_dtype(emulated, self.dtype) if self.floats else emulated
        near = pattern.same(device, own)
        if self.floats:
            left = torch.minimum((device - emulated).abs(), (device - own).abs())
            near |= (left <= room) & (left < torch.inf)
        near = near.tolist()
        return any(4 * sum(some) > 3 * len(some) for some in (near[: self.n_far], near[self.n_far :]))

    def _left(self, device, truth, emulated, equal, slack):
        error, left = (device - truth).abs(), (device - emulated).abs()
        if self.low:
            left = (device - to_dtype(emulated, self.dtype)).abs()
        error = error.where(error.isfinite(), torch.full_like(error, torch.inf))
        left = left.where(~equal, left * 0).nan_to_num(nan=torch.inf, posinf=torch.inf)
        explained = equal | (left.isfinite() & (left <= torch.maximum(error / SMALLER, slack)))
        explained &= ~((emulated == 0) & (device.abs() > 4 * slack))  # small is not yet nothing
        if float(explained.double().mean()) < EXPLAINED:
            return float("inf")
        finite = error.isfinite() & left.isfinite()
        if not bool(finite.any()):
            return 1 / SMALLER
        ratio = _quantile(left[finite], 0.5) / max(_quantile(error[finite], 0.5), 1e-300)
        within = float((left <= 0.5 * slack).double().mean()) >= 0.9 and ratio <= 0.5
        return min(ratio, 1 / SMALLER) if within else ratio

    def reproduces(self, emulated, narrow=None):
        """Whether an emulation gives what the device gave, nearly everywhere and to within
        what rounding does: the bar for a name. `narrow` is the same in float32."""
        emulated = self._of(emulated)
        slack = self.slack
        if narrow is not None:
            slack = slack + (self._of(narrow) - emulated).abs().nan_to_num(0.0, 0.0, 0.0)
        own = to_dtype(emulated, self.dtype) if self.floats else emulated
        counts = self._counting(self._differs(own))
        left = (self.device - (own if self.low else emulated)).abs()
        near = (left <= ROUNDINGS * slack) | pattern.same(self.device, own)
        return float(near[counts].double().mean()) >= EXPLAINED

    def near(self, emulated):
        """Whether a look at a few elements leaves room for an emulation."""
        return emulated.shape == self.shape and self.any_off and self._likely(self._of(emulated))

    def same_bits(self, narrow):
        """Whether a run in float32 gives what the device gave bit by bit, also where the device is
        not far off: nobody else's rounding does that."""
        if narrow is None or narrow.shape != self.shape or not self.floats:
            return False
        own = to_dtype(self._of(narrow), self.dtype)
        told = ~pattern.same(self.device, self.rounded) | ~pattern.same(own, self.rounded)
        equal = pattern.same(self.device, own)[told]
        return equal.numel() >= BITS and float(equal.double().mean()) >= SAME_BITS

    def contradicts(self, emulated):
        """Whether an emulation spoils this output, which the device got right."""
        if emulated.shape != self.shape:
            return True
        emulated = self._of(emulated)
        off = (emulated - self.device).abs() > 8 * self.slack
        off &= ~pattern.same(emulated, self.device)
        return float(off.double().mean()) > 0.02

    def unmoved(self, emulated):
        """Whether an emulation leaves this output right."""
        if emulated.shape != self.shape:
            return False
        emulated = self._of(emulated)
        return not bool(self._differs(to_dtype(emulated, self.dtype) if self.floats else emulated).any())

    def correlation(self, emulated):
        """How much of the device's error an emulation's error follows, -1 to 1."""
        if emulated.shape != self.shape or not self.floats:
            return 0.0
        every = slice(None, None, -(-self.device.numel() // MOST_COMPARED) | 1)
        device, truth, emulated = self.device[every], self.truth[every], self._of(emulated)[every]
        a, b = device - truth, emulated - truth
        unit = truth.abs() + float(truth[truth.isfinite()].abs().median())
        a, b = a / unit, b / unit
        live = a.isfinite() & b.isfinite()
        a, b = a[live], b[live]
        if a.numel() < 64:
            return 0.0
        a = a.clamp(-4 * a.abs().mean(), 4 * a.abs().mean())
        b = b.clamp(-4 * b.abs().mean(), 4 * b.abs().mean())
        size = float(a.norm() * b.norm())
        if not size or not 0.2 < float(a.norm() / b.norm()) < 5:
            return 0.0
        return float(a @ b) / size

    def noise_name(self, device, adds, seen):
        """A clause where the error is noise of a format's size, and the result lies on that
        format's grid or an emulation with it (`seen`) goes the same way; else ""."""
        if not self.floats:
            return ""
        d, t = self.device, self.truth
        live = self.off & d.isfinite() & t.isfinite()
        error, size = (d - t)[live], t.abs()[live]
        if error.numel() < 32:
            return ""
        signs = float(torch.sign(error * t[live]).mean().abs())
        typical = float(t[t.isfinite()].square().mean().sqrt())
        share = (error / torch.maximum(size, size * 0 + typical / 4)).abs()
        middle, high = _quantile(share, 0.5), _quantile(share, 0.99)
        if signs > 0.5 or high > 40 * middle or not middle:
            return ""
        grid = emulate.significant_bits(device) if not self.low else 0
        for name, low, top in (("bfloat16", 2.0**-11, 2.0**-4), ("float16 or TF32", 2.0**-14, 2.0**-11)):
            if low <= middle < top:
                if 0 < grid <= 8 or name == "bfloat16":
                    name = "bfloat16" if not 8 < grid <= 11 else "float16"
                elif grid and grid <= 11:
                    name = "float16"
                held = adds and 0 < grid <= 11
                if not held and not any(n in name for n in seen):
                    return ""
                return (f"accumulated in {name} (low-precision accumulator)" if held
                        else f"intermediates rounded to {name}")  # fmt: skip
        return ""

    def of_size(self, emulated):
        """Whether the errors are of the size, element by element, that emulations give which
        differ in chance alone; and far larger than float32's own."""
        if any(t.shape != self.shape for t in emulated):
            return False
        noise = torch.stack([(self._of(t) - self.truth).nan_to_num(0.0, 0.0, 0.0) for t in emulated])
        size, error = noise.square().mean(0).sqrt(), (self.device - self.truth).abs()
        strong = error.isfinite() & (size > 4 * self.slack)
        if int(strong.sum()) < 8 or float(strong[self.off].double().mean()) < 0.5:
            return False
        within = (error <= 12 * size + self.slack)[strong | self.off]
        return float(within.double().mean()) >= 0.95 and float((error / size)[strong].median()) >= 0.15


def _sparse(where):
    """Every so many of the positions, at least GLANCE where there are as many."""
    return where[:: -(-where.numel() // GLANCE) | 1] if where.numel() > 2 * GLANCE else where


def _is_linear(error, truth, axes):
    """Whether within each slice the errors are a factor and an amount of the truth."""
    t, e = truth - truth.mean(axes, keepdim=True), error - error.mean(axes, keepdim=True)
    slope = (t * e).sum(axes, keepdim=True) / t.square().sum(axes, keepdim=True).clamp(min=1e-300)
    left = (e - slope * t).square()
    return float(left.median()) < 0.02 * float(error.square().median())


def _sample(device, truth):
    """Flat positions to look at, None for all: every so many elements, and those that
    differ most."""
    n = device.numel()
    if n <= MOST_LOOKED_AT:
        return None
    even = torch.arange(0, n, -(-2 * n // MOST_LOOKED_AT) | 1)
    error = (device.reshape(-1).double() - truth.reshape(-1).double()).abs()
    error = error.nan_to_num(nan=torch.inf, posinf=torch.inf)
    return torch.cat([even, error.topk(MOST_LOOKED_AT // 2)[1]]).unique()


def _quantile(x, q):
    k = max(1, min(x.numel(), int(q * x.numel() + 0.999999)))
    return float(x.reshape(-1).kthvalue(k)[0])
