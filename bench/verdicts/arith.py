# SPDX-License-Identifier: Apache-2.0
"""The emulated machine: an algorithm written once over `V` values runs in float64 (truth),
in any honest float32 arithmetic, or in one that is too narrow somewhere.

A `V` holds doubles that its machine's format can represent; every operation is computed in
double and rounded once to that format (53 >= 2 * 24 + 2: the double rounding is harmless).
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from .rounding import FORMATS, flushed, rounded

NOISE = 1.4 * 2.0**-23  # of a 2-ulp function before its own rounding


@dataclass
class Arith:
    """How a kernel computes. Fields that are "" take the working format."""

    work: str = "f32"  # format of every intermediate
    order: str = "pairwise"  # of sums: pairwise seq reversed blocks32 blocks128 splitk
    fma: bool = False  # products of a dot product are not rounded
    noise: float = 0.0  # relative error of transcendental functions
    approx: float = 0.0  # relative error of every function of one argument
    ftz: bool = False  # subnormals are zero
    how: str = "nearest"  # rounding of every operation
    acc_how: str = "nearest"  # rounding inside sums
    load: str = ""  # inputs are rounded to this first
    load_how: str = "nearest"
    narrow: str = ""  # operands of products that are summed are rounded to this
    acc: str = ""  # sums are accumulated in this
    func: str = ""  # functions of one argument are computed in this
    online: bool = False  # softmax in blocks; variance by Welford
    onepass: bool = False  # variance as E[x^2] - E[x]^2 (in the working format)
    alt: bool = False  # another honest formula for the same
    exp2: bool = False  # exp(x) as 2^(x * log2 e)
    recip: bool = False  # a / b as a * (1 / b)
    bug: str = ""  # a wrong formula; the algorithm knows what it means
    seed: int = 0
    rng: np.random.Generator = field(default=None, repr=False)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed + 77)

    def __call__(self, x):
        """A constant or an array as a value of this machine."""
        return x if isinstance(x, V) else V(self, self.round(np.asarray(x, dtype=np.float64)))

    def like(self, v):
        """Numbers that are values of this machine already."""
        return V(self, v)

    def round(self, x, name="", how=""):
        x = rounded(x, name or self.work, how or self.how)
        return flushed(x) if self.ftz else x

    def input(self, t):
        """A tensor argument as the kernel sees it."""
        x = t.detach().double().numpy()
        if self.load:
            x = rounded(x, self.load, self.load_how)
        return V(self, flushed(x) if self.ftz else x)

    # ---- functions of one argument --------------------------------------------------

    def apply(self, f, x, exact=False, bounded=False):
        """f on doubles, with the errors of this machine. `exact` functions (sqrt, a division)
        carry no noise, and none errs where it has come to 1; bounded ones never pass it."""
        with np.errstate(all="ignore"):
            v = x.v if not self.func else rounded(x.v, self.func)
            y = f(v)
            level = self.approx or (0.0 if exact else self.noise)
            if level:
                off = y * (1 + level * self.rng.uniform(-1, 1, y.shape))
                limit = np.abs(np.abs(y) - 1) < (2.0**-32 if not self.approx else 0)
                y = np.where(limit, y, np.clip(off, -1, 1) if bounded else off)
        y = self.round(y)
        return V(self, rounded(y, self.func) if self.func else y)

    def exp(self, x):
        return self.apply(np.exp2, x * np.log2(np.e)) if self.exp2 else self.apply(np.exp, x)

    def expm1(self, x):
        return self.apply(np.expm1, x)

    def log(self, x):
        return self.apply(np.log, x)

    def log1p(self, x):
        return self.apply(np.log1p, x)

    def tanh(self, x):
        return self.apply(np.tanh, x, bounded=True)

    def sin(self, x):
        return self.apply(np.sin, x, bounded=True)

    def cos(self, x):
        return self.apply(np.cos, x, bounded=True)

    def erf(self, x):
        return self.special("erf", x, bounded=True)

    def special(self, name, x, bounded=False):
        """A function of torch by name, in float64."""
        f = getattr(torch.special, name, None) or getattr(torch, name)
        return self.apply(lambda v: f(torch.from_numpy(np.array(v))).numpy(), x, bounded=bounded)

    def sqrt(self, x):
        return self.apply(np.sqrt, x, exact=True)

    def rsqrt(self, x):
        return self.apply(lambda v: 1 / np.sqrt(v), x)

    def sigmoid(self, x):
        return 1 / (1 + self.exp(-x))

    def pow(self, x, p):
        return self.apply(lambda v: np.power(v, p), x)

    # ---- choice and movement: no rounding --------------------------------------------

    def where(self, mask, a, b):
        return V(self, np.where(mask, self(a).v, self(b).v))

    def maximum(self, a, b):
        return V(self, np.maximum(self(a).v, self(b).v))

    def minimum(self, a, b):
        return V(self, np.minimum(self(a).v, self(b).v))

    def clamp(self, x, low, high):
        return V(self, np.clip(x.v, low, high))

    def max(self, x, dim=-1):
        return V(self, x.v.max(axis=dim, keepdims=True))

    def cat(self, values, dim=-1):
        return V(self, np.concatenate([v.v for v in values], axis=dim))

    # ---- sums ------------------------------------------------------------------------

    def sum(self, x, dim=-1, keep=True):
        """Sum along one axis, a tuple of axes, or all (None)."""
        v = _last(x.v, dim)
        y = self.accumulate(v)
        if keep:
            axes = range(x.v.ndim) if dim is None else np.atleast_1d(dim)
            shape = list(x.v.shape)
            for a in axes:
                shape[a] = 1
            y = y.reshape(shape)
        return V(self, y)

    def mean(self, x, dim=-1, keep=True):
        axes = range(x.v.ndim) if dim is None else np.atleast_1d(dim)
        return self.sum(x, dim, keep) / float(np.prod([x.v.shape[a] for a in axes]))

    def accumulate(self, v):
        """Sums the last axis in the order and format of this machine."""
        n = v.shape[-1]
        if self.bug == "drop_last" and n > 1:
            v = v[..., :-1]
        if self.bug == "drop_part" and n >= 4:
            v = np.concatenate([v[..., : n // 4], v[..., n // 2 :]], axis=-1)
        if self.bug == "twice_last" and n > 1:
            v = np.concatenate([v, v[..., -1:]], axis=-1)
        if self.work == "f64":
            return v.sum(axis=-1)
        name = self.acc or self.work
        n = v.shape[-1]
        if n == 0:
            return np.zeros(v.shape[:-1])
        if self.order == "reversed":
            v = v[..., ::-1]
        if self.order == "pairwise" and not self.acc:
            return self._pairwise(v, name)
        parts = {"blocks32": -(-n // 32), "blocks128": -(-n // 128), "splitk": 4}
        k = min(n, parts.get(self.order, 1))
        if k <= 1:
            return self._chain(v, name)
        sums = np.stack([self._chain(p, name) for p in np.array_split(v, k, axis=-1)], axis=-1)
        return self._chain(sums, name)

    def _pairwise(self, v, name):
        while v.shape[-1] > 1:
            if v.shape[-1] % 2:
                v = np.concatenate([v, np.zeros((*v.shape[:-1], 1))], axis=-1)
            v = self.round(v[..., 0::2] + v[..., 1::2], name)
        return v[..., 0]

    def _chain(self, v, name):
        """One accumulator, first to last."""
        if name == "f32" and self.how == "nearest" and not self.ftz and not self.fma and (self.acc_how == "nearest"):
            with np.errstate(all="ignore"):
                return np.cumsum(v.astype(np.float32), axis=-1)[..., -1].astype(np.float64)
        v = np.ascontiguousarray(np.moveaxis(v, -1, 0))
        acc = self.round(v[0], name, self.acc_how)
        with np.errstate(all="ignore"):
            for term in v[1:]:
                acc = self.round(acc + term, name, self.acc_how)
        return acc

    def dot(self, a, b, dim=-1):
        """Sum of products along one axis after broadcasting."""
        return self.sum(self.products(a, b), dim, keep=False)

    def products(self, a, b):
        """Products that are to be summed: rounded unless the machine fuses."""
        x, y = a.v, b.v
        if self.narrow:
            x, y = (rounded(t, self.narrow, self.load_how) for t in (x, y))
        with np.errstate(all="ignore"):
            p = x * y
        return V(self, p if self.fma else self.round(p))

    def mm(self, a, b):
        """[..., m, k] @ [..., k, n]."""
        if self.work == "f64":
            return V(self, a.v @ b.v)
        return self.dotted(a[..., :, None, :], b.swap(-1, -2)[..., None, :, :])

    def dotted(self, a, b):
        return self.sum(self.products(a, b), -1, keep=False)

    def cumsum(self, x, dim=-1):
        v = np.moveaxis(x.v, dim, 0)
        out, acc = np.empty_like(v), np.zeros(v.shape[1:])
        with np.errstate(all="ignore"):
            for i, term in enumerate(v):
                acc = out[i] = self.round(acc + term, self.acc or self.work)
        return V(self, np.moveaxis(out, 0, dim))

    def prod(self, x, dim=-1):
        v = np.moveaxis(x.v, dim, 0)
        if self.order == "reversed":
            v = v[::-1]
        acc = v[0]
        with np.errstate(all="ignore"):
            for term in v[1:]:
                acc = self.round(acc * term, self.acc or self.work)
        return V(self, acc)

    # ---- what several kernels share ---------------------------------------------------

    def moments(self, x, dim=-1, correction=0):
        """Mean and variance, the way this machine does it."""
        n = float(np.prod([x.v.shape[d] for d in np.atleast_1d(dim)]))
        correction = 1 - correction if self.bug == "biased" else correction
        if self.online and np.ndim(dim) == 0:
            return self._welford(x, dim, n, correction)
        mean = self.sum(x, dim) / n
        if self.onepass or self.bug == "onepass":
            square = self.sum(x * x, dim) / n
            return mean, (square - mean * mean) * (n / (n - correction))
        d = x - mean
        return mean, self.sum(d * d, dim) / (n - correction)

    def _welford(self, x, dim, n, correction):
        v = np.moveaxis(x.v, dim, 0)
        mean, m2 = self(np.zeros(v.shape[1:])), self(np.zeros(v.shape[1:]))
        for i, term in enumerate(v):
            d = V(self, term) - mean
            mean = mean + d / float(i + 1)
            m2 = m2 + d * (V(self, term) - mean)
        wide = (V(self, np.expand_dims(t.v, dim)) for t in (mean, m2))
        mean, m2 = wide
        return mean, m2 / (n - correction)

    def softmax(self, x, dim=-1):
        if self.online and self.work != "f64":
            return self._online(x, dim)
        e = self.exp(x - self.max(x, dim))
        return e * (1 / self.sum(e, dim)) if self.alt else e / self.sum(e, dim)

    def _online(self, x, dim, block=32):
        """Running maximum and sum over blocks, as flash attention keeps them."""
        v = x.swap(dim, -1)
        top, total = V(self, np.full((*v.v.shape[:-1], 1), -np.inf)), self(0.0)
        for start in range(0, v.v.shape[-1], block):
            part = v[..., start : start + block]
            new = self.maximum(top, self.max(part))
            safe = self.where(np.isneginf(new.v), 0.0, new)
            total = total * self.exp(top - safe) + self.sum(self.exp(part - safe))
            top = new
        return (self.exp(v - top) / total).swap(dim, -1)


class V:
    """A value of a machine."""

    __slots__ = ("a", "v")
    __array_priority__ = 100

    def __init__(self, arith, v):
        self.a, self.v = arith, np.asarray(v, dtype=np.float64)

    def _op(self, other, f, swap=False):
        with np.errstate(all="ignore"):
            o = self.a(other).v
            y = f(o, self.v) if swap else f(self.v, o)
        return V(self.a, self.a.round(y))

    def __add__(self, o):
        return self._op(o, np.add)

    def __sub__(self, o):
        return self._op(o, np.subtract)

    def __mul__(self, o):
        return self._op(o, np.multiply)

    def __truediv__(self, o):
        if self.a.recip:
            return self * self.a(o)._op(1.0, np.divide, swap=True)
        return self._op(o, np.divide)

    def __rsub__(self, o):
        return self._op(o, np.subtract, swap=True)

    def __rtruediv__(self, o):
        return self._op(o, np.divide, swap=True)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return V(self.a, -self.v)

    def __abs__(self):
        return V(self.a, np.abs(self.v))

    def __getitem__(self, i):
        return V(self.a, self.v[i])

    def swap(self, i, j):
        return V(self.a, np.swapaxes(self.v, i, j))

    def reshape(self, *shape):
        return V(self.a, self.v.reshape(*shape))

    @property
    def shape(self):
        return self.v.shape


def _last(v, dim):
    """The summed axes as one last axis."""
    if dim is None:
        return v.reshape(-1)
    axes = tuple(int(a) % v.ndim for a in np.atleast_1d(dim))
    rest = [a for a in range(v.ndim) if a not in axes]
    v = np.transpose(v, rest + list(axes))
    return v.reshape(*v.shape[: len(rest)], -1)


__all__ = ["Arith", "FORMATS", "V"]
