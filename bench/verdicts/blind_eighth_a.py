# SPDX-License-Identifier: Apache-2.0
"""Set K, written from the list of weak classes alone, by a hand that had not read the rule: one unit of another
binade, steps behind sums, equal logits, ties of what is exact. blind_eighth_b and _c have the rest."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, family, hf, narrow
from .blind_seventh_a import right, wrong


def eighth(args):
    return family(args, sets="K")


def doubled(fn, kernel):
    right(fn, "in double precision", kernel, torch.float64)


def halved(x, dim=-1):
    """A sum by halves, as a tree of threads adds."""
    x = x.movedim(dim, -1)
    while x.shape[-1] > 1:
        odd = x[..., -1:] if x.shape[-1] % 2 else x[..., :0]
        x = torch.cat((x[..., 0 : x.shape[-1] // 2 * 2 : 2] + x[..., 1::2], odd), -1)
    return x[..., 0]


def serial(x, dim=-1):
    return x.movedim(dim, -1).cumsum(-1)[..., -1]


# ------------------------------------------------------------------ one unit of another binade


@eighth(lambda d: (d(90, 20, 20, dtype=bf, scale=1.39),))
def eighth_std(x):
    return x.std((1, 2))


def std_kernel(x, n=399, add=halved):
    h = x.flatten(1)
    h = h - add(h)[:, None] / h.shape[1]
    return (add(h * h) / n).sqrt()


doubled(eighth_std, std_kernel)
right(eighth_std, "added one after another", std_kernel, add=serial)
wrong(eighth_std, std_kernel, {"n for n - 1": {"n": 400}, "n - 2 for n - 1": {"n": 398}})


@eighth(lambda d: (d(200, 500, dtype=hf, shift=1.9),))
def eighth_mean_abs(x):
    return x.abs().mean(-1)


def mean_abs(x, n=500, end=500, add=halved):
    return add(x[:, :end].abs()) / n


doubled(eighth_mean_abs, mean_abs)
right(eighth_mean_abs, "added one after another", mean_abs, add=serial)
wrong(eighth_mean_abs, mean_abs, {"over n + 1": {"n": 501}, "the last one is missing": {"end": 499}})


@eighth(lambda d: (d(128, 300, dtype=bf, shift=0.5), 1 + 0.9 * d.rand(300).to(bf)))
def eighth_layer_norm_bf16(x, w):
    return F.layer_norm(x, (300,), w)


def norm_rows(x, w=1.0, n=None, eps=1e-5, add=halved, outside=False):
    h = x - add(x)[..., None] / x.shape[-1]
    v = (add(h * h) / (n or x.shape[-1]))[..., None]
    return h / (v.sqrt() + eps) * w if outside else h * (v + eps).rsqrt() * w


doubled(eighth_layer_norm_bf16, norm_rows)
right(eighth_layer_norm_bf16, "added one after another", norm_rows, add=serial)
wrong(eighth_layer_norm_bf16, norm_rows, {"n - 1 for n": {"n": 299}, "eps is 1e-3": {"eps": 1e-3}})


@eighth(lambda d: (d(60, 512, dtype=bf, shift=0.3),))
def eighth_cumsum(x):
    return x.cumsum(-1)


def cumsum_tiles(x, kind=None, tile=64):
    parts = x.view(60, -1, tile).cumsum(-1)
    before = torch.zeros(60, 1)
    out = []
    for k in range(parts.shape[1]):
        out.append(before.to(x.dtype) + parts[:, k])
        before = out[-1][:, -1:] if kind is None else narrow(out[-1][:, -1:], kind)
    return torch.cat(out, -1)


right(eighth_cumsum, "in tiles", cumsum_tiles)
wrong(eighth_cumsum, cumsum_tiles, {"what is carried between tiles is bf16": {"kind": bf}})


# ------------------------------------------------------------------ steps behind sums


@eighth(lambda d: (d(256, 60),))
def eighth_unit_trunc(x):
    return F.normalize(x, dim=-1).square().sum(-1).trunc()


def unit_trunc(x, add=halved, more=0.0, where=None):
    y = x / add(x * x).sqrt()[:, None]
    out = add(y * y).trunc()
    return out + more if where is None else torch.where(torch.arange(256) % where == 0, out * 0 + more, out)


right(eighth_unit_trunc, "by halves", unit_trunc)
right(eighth_unit_trunc, "one after another", unit_trunc, add=serial)
right(eighth_unit_trunc, "in double precision", unit_trunc, torch.float64)
wrong(
    eighth_unit_trunc,
    unit_trunc,
    {
        "one more everywhere": lambda x: unit_trunc(x) * 0 + 2,
        "minus one in each fourth": {"more": -1.0, "where": 4},
        "a half in each tenth": {"more": 0.5, "where": 10},
    },
)


@eighth(lambda d: (d(80, 40),))
def eighth_cdf_ceil(x):
    return (F.softmax(x, -1).cumsum(-1) * 10).ceil()


def cdf_ceil(x, more=0.0, first=False):
    p = F.softmax(x, -1)
    c = (p.flip(-1).cumsum(-1).flip(-1) if first else p.cumsum(-1)) * 10
    out = c.ceil()
    return torch.cat((out[:, :-1], out[:, -1:] * 0 + more), -1) if more else out


doubled(eighth_cdf_ceil, cdf_ceil)
right(
    eighth_cdf_ceil,
    "in tiles",
    lambda x: (
        torch.cat(
            (
                F.softmax(x, -1)[:, :20].cumsum(-1),
                F.softmax(x, -1)[:, :20].sum(-1, keepdim=True) + F.softmax(x, -1)[:, 20:].cumsum(-1),
            ),
            -1,
        )
        * 10
    ).ceil(),
)
wrong(
    eighth_cdf_ceil,
    cdf_ceil,
    {
        "the last is 9": {"more": 9.0},
        "the last is 12": {"more": 12.0},
        "the last is 10.5": {"more": 10.5},
    },
)


@eighth(lambda d: (d(300, 48),))
def eighth_order_sign(x):
    return (x.sum(-1) - x.flip(-1).cumsum(-1)[:, -1]).sign()


wrong(
    eighth_order_sign,
    eighth_order_sign,
    {
        "two everywhere": lambda x: x[:, 0] * 0 + 2,
        "a half everywhere": lambda x: x[:, 0] * 0 + 0.5,
        "minus three in each fifth": lambda x: torch.where(torch.arange(300) % 5 == 0, -3.0, eighth_order_sign(x)),
    },
)
right(eighth_order_sign, "by halves", lambda x: (halved(x) - serial(x)).sign())
right(eighth_order_sign, "no difference", lambda x: x[:, 0] * 0)


@eighth(lambda d: ((d(120, 30) * 4).round() / 4,))
def eighth_phase(x):
    return x.sum(-1).remainder(1.5)


wrong(
    eighth_phase,
    eighth_phase,
    {
        "by 1.25": lambda x: x.sum(-1).remainder(1.25),
        "the truncated one": lambda x: x.sum(-1).fmod(1.5),
        "the modulus itself for zero": lambda x: torch.where(eighth_phase(x) == 0, 1.5, eighth_phase(x)),
    },
)
right(eighth_phase, "by halves", lambda x: halved(x).remainder(1.5))


@eighth(lambda d: (d(64, 200), d(64, 200)))
def eighth_angle_bucket(a, b):
    return ((a * b).sum(-1) * 3.7).remainder(0.7)


wrong(
    eighth_angle_bucket,
    eighth_angle_bucket,
    {
        "by 0.7001": lambda a, b: ((a * b).sum(-1) * 3.7).remainder(0.7001),
        "by 0.35": lambda a, b: ((a * b).sum(-1) * 3.7).remainder(0.35),
        "minus the modulus": lambda a, b: eighth_angle_bucket(a, b) - 0.7,
    },
)
right(eighth_angle_bucket, "by halves", lambda a, b: (halved(a * b) * 3.7).remainder(0.7))
right(eighth_angle_bucket, "in double precision", eighth_angle_bucket, torch.float64)


# ------------------------------------------------------------------ equal logits


@eighth(lambda d: (torch.full((12, 64), 3e7), d.ints(64, 12)))
def eighth_smooth_loss(x, t):
    return F.cross_entropy(x, t, label_smoothing=0.1, reduction="none")


def smooth_loss(x, t, n=64, of=0.0):
    z = x - x.amax(-1, keepdim=True)
    lse = z.exp().sum(-1).log() + math.log(n / 64)
    return 0.9 * (lse - z.gather(1, t[:, None])[:, 0]) + 0.1 * (lse - z.mean(-1)) + of


doubled(eighth_smooth_loss, smooth_loss)
right(eighth_smooth_loss, "the maximum taken off", smooth_loss)
wrong(
    eighth_smooth_loss,
    smooth_loss,
    {
        "ln 63": {"n": 63},
        "one too large": {"of": 1.0},
        "zero": lambda x, t: x[:, 0] * 0,
        "forty": lambda x, t: x[:, 0] * 0 + 40,
    },
)


@eighth(lambda d: (torch.full((50, 96), -5e8),))
def eighth_equal_softmax(x):
    return F.softmax(x, -1)


wrong(
    eighth_equal_softmax,
    eighth_equal_softmax,
    {
        "one of 95": lambda x: x * 0 + 1 / 95,
        "all of one": lambda x: x * 0 + 1,
        "the first has all": lambda x: (torch.arange(96) == 0).float().expand(50, 96),
        "twice": lambda x: x * 0 + 2 / 96,
    },
)
right(eighth_equal_softmax, "as it is", lambda x: (x - x[:, :1]).exp() / 96)


@eighth(lambda d: (torch.full((40, 32), 1e7), d.ints(32, 40)))
def eighth_equal_loss_grad(x, t):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(x, t), x)[0]


def loss_grad(x, t, share=1 / 32, less=1.0, n=40):
    return (share - less * F.one_hot(t, 32)) / n


right(eighth_equal_loss_grad, "closed form", lambda x, t: loss_grad(x, t).float())
wrong(
    eighth_equal_loss_grad,
    lambda x, t, **k: loss_grad(x, t, **k).float(),
    {
        "nothing but the label": {"share": 0.0},
        "shares of 31": {"share": 1 / 31},
        "the label is not taken off": {"less": 0.0},
        "over 39 rows": {"n": 39},
    },
)


@eighth(lambda d: (torch.full((30, 128), 1e6), torch.full((30, 128), 1e6)))
def eighth_equal_kl(a, b):
    return F.kl_div(F.log_softmax(a, -1), F.log_softmax(b, -1), reduction="none", log_target=True).sum(-1)


right(eighth_equal_kl, "zero", lambda a, b: a[:, 0] * 0)
wrong(
    eighth_equal_kl,
    eighth_equal_kl,
    {
        "0.3": lambda a, b: a[:, 0] * 0 + 0.3,
        "ln 128": lambda a, b: a[:, 0] * 0 + 4.852,
        "a millionth in each third": lambda a, b: (torch.arange(30) % 3 == 0) * 1e-3,
    },
)


# ------------------------------------------------------------------ ties of what is exact


def stored(exact, way, store):
    """float64 numbers stored in 16 bits; ties go `way`, all else to the nearest."""
    y = exact.to(store)
    for by in (1, -1):
        other = (y.view(torch.int16) + by).view(store)
        tied = (other.double() - exact).abs() == (y.double() - exact).abs()
        better = {
            "away": other.double().abs() > y.double().abs(),
            "up": other.double() > y.double(),
            "zero": other.double().abs() < y.double().abs(),
        }.get(way)
        if way == "odd":
            better = (other.view(torch.int16) & 1) == 1
        y = torch.where(tied & better, other, y)
    return y


def tied(fn, store, ways):
    right(fn, "in double precision", fn, torch.float64, store)
    wrong(fn, fn, {f"ties {way}": tied_kernel(fn, way, store) for way in ways}, into="same")


def tied_kernel(fn, way, store):
    return lambda *a: stored(fn(*(x.double() if x.is_floating_point() else x for x in a)), way, store)


@eighth(lambda d: (d(40, 50, dtype=bf), d(40, 50, dtype=bf)))
def eighth_sub(a, b):
    return a - b


tied(eighth_sub, bf, ("up", "away"))


@eighth(lambda d: (d(60, 50, dtype=hf, scale=2e-5),))
def eighth_half_of_small(x):
    return x * 0.5


tied(eighth_half_of_small, hf, ("away", "odd"))


@eighth(lambda d: (d(40, 40, dtype=bf), d(40, 40, dtype=bf), d.rand(40, 40) > 0.5))
def eighth_butterfly(a, b, m):
    return torch.where(m, a + b, a - b)


tied(eighth_butterfly, bf, ("zero", "up"))


@eighth(lambda d: ((d(8, 3, 16, 16) * 64).round().to(bf),))
def eighth_pool(x):
    return F.avg_pool2d(x, 2)


tied(eighth_pool, bf, ("away",))


@eighth(lambda d: ((d(70, 40) * 64).round() / 64 + 16,))
def eighth_to_bf16(x):
    return x.to(bf)


right(eighth_to_bf16, "as it is", lambda x: x.to(bf), into="same")
wrong(
    eighth_to_bf16,
    eighth_to_bf16,
    {f"ties {w}": tied_kernel(lambda x: x, w, bf) for w in ("up", "odd")},
    into="same",
)
