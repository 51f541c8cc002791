# SPDX-License-Identifier: Apache-2.0
"""Set Q: functions of single elements, lookups, scatters."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_twelfth_a import another, good, twelfth, wrong
from .blind_twelfth_b import by_powers, coarse

# ------------------------------------------------------------------ activations


@twelfth(lambda d: (d(256, 1024, scale=2),))
def twelfth_gelu(x):
    return F.gelu(x)


def gelu(x, erf=torch.erf, last=None):
    y = 0.5 * x * (1 + erf(x * 0.7071067811865476))
    return last(y) if last else y


def rows_behind(y):
    y = y.clone()
    y[64:128, 1020:] = y[65:129, 1020:].clone()
    return y


good(twelfth_gelu, gelu, by_erf={}, by_erfc=lambda x: 0.5 * x * torch.erfc(-x * 0.7071067811865476))
wrong(
    twelfth_gelu,
    gelu,
    {
        "the form of tanh": lambda x: F.gelu(x, approximate="tanh"),
        "the form of a sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
        "hides: four lanes of 64 rows are a row late": {"last": rows_behind},
        "negative values beyond -4 are cut to zero": lambda x: torch.where(x < -4, 0.0, gelu(x)),
        "through half precision": lambda x: narrow(gelu(x), hf),
    },
)


@twelfth(lambda d: (d(40, 512, dtype=bf, scale=2),))
def twelfth_swiglu(x):
    a, b = x.float().chunk(2, -1)
    return (F.silu(a) * b).to(bf)


def swiglu(x, swap=False, next_to=False, beta=1.0, early=False, act=torch.sigmoid):
    f = x.float()
    a, b = (f[..., ::2], f[..., 1::2]) if next_to else (f[..., :256], f[..., 256:])
    a, b = (b, a) if swap else (a, b)
    h = a * act(beta * a)
    return (narrow(h) if early else h) * b


good(twelfth_swiglu, swiglu, bf, by_sigmoid={}, by_exp={"act": lambda x: 1 / (1 + by_powers(-x))})
wrong(
    twelfth_swiglu,
    swiglu,
    {
        "gate and value are swapped": {"swap": True},
        "gate and value are neighbours": {"next_to": True},
        "the gate is a sigmoid of 1.702 x": {"beta": 1.702},
        "the gate lacks its product with x": lambda x: torch.sigmoid(x[..., :256].float()) * x[..., 256:].float(),
        "hides: the gate is rounded to bfloat16": {"early": True},
    },
    bf,
)


@twelfth(lambda d: (d(30, 128, dtype=bf, scale=5),))
def twelfth_clamped_swiglu(x):
    f = x.float()
    a, b = f[..., ::2].clamp(max=7.0), f[..., 1::2].clamp(-7.0, 7.0)
    return (a * torch.sigmoid(1.702 * a) * (b + 1)).to(bf)


def clamped_swiglu(x, one=1.0, most=7.0, both=False, value=True, beta=1.702):
    f = x.float()
    a, b = f[..., ::2], f[..., 1::2]
    a = a.clamp(-most if both else None, most)
    b = torch.minimum(torch.maximum(b, torch.tensor(-most)), torch.tensor(most)) if value else b
    g = a / (1 + torch.exp(-beta * a))
    return torch.addcmul(g * one, g, b)


good(twelfth_clamped_swiglu, clamped_swiglu, bf, multiply_and_add={})
wrong(
    twelfth_clamped_swiglu,
    clamped_swiglu,
    {
        "one is not added to the value": {"one": 0.0},
        "the limit is 6": {"most": 6.0},
        "the value is not clamped": {"value": False},
        "the gate is an ordinary sigmoid": {"beta": 1.0},
        # a at -7: -5e-5, at -10: -4e-7
        "hides: the gate is clamped below, too": {"both": True, "most": 7.0},
    },
    bf,
)


@twelfth(lambda d: (d(3000, scale=25),))
def twelfth_exp(x):
    return torch.exp(x)


good(twelfth_exp, by_powers, polynomial_of_degree_six={}, in_float64=lambda x: x.double().exp().float())
wrong(
    twelfth_exp,
    by_powers,
    {
        "a polynomial of degree three": coarse,
        "arguments beyond 60 are clamped": lambda x: by_powers(x.clamp(max=60)),
        "the power of two is rounded to half precision first": lambda x: torch.exp2(narrow(x * 1.4426950408889634, hf)),
        "base two for e": lambda x: torch.exp2(x),
    },
)


@twelfth(lambda d: (d(1000, scale=1e-3), d(1000, scale=1e-5)))
def twelfth_small_logs(x, y):
    return torch.log1p(x), torch.expm1(y)


def small_logs(x, y):
    u = 1 + x
    e = y + y * y * (0.5 + y * (1 / 6 + y / 24))
    return torch.where(u == 1, x, torch.log(u) * x / (u - 1)), e


good(twelfth_small_logs, small_logs, corrected={})
wrong(
    twelfth_small_logs,
    small_logs,
    {
        "the logarithm of one and x": lambda x, y: (torch.log(1 + x), torch.expm1(y)),
        "exp less one": lambda x, y: (torch.log1p(x), torch.exp(y) - 1),
        "the linear term alone": lambda x, y: (x, torch.expm1(y)),
    },
)


@twelfth(lambda d: (d.rand(500) * 50 + 1e-6,))
def twelfth_rsqrt(x):
    return torch.rsqrt(x)


def rsqrt(x, steps=3):
    y = (0x5F3759DF - (x.contiguous().view(torch.int32) >> 1)).view(torch.float32)
    for _ in range(steps):
        y = y + 0.5 * y * (1 - x * y * y)
    return y


good(twelfth_rsqrt, rsqrt, four_steps_of_newton={"steps": 4}, inverse_of_the_root=lambda x: 1 / x.sqrt())
wrong(
    twelfth_rsqrt,
    rsqrt,
    {
        "no step of Newton's": {"steps": 0},
        "two steps of Newton's": {"steps": 2},
        "the result is stored through bfloat16": lambda x: narrow(rsqrt(x)),
    },
)


@twelfth(lambda d: (d(400, scale=4), d(400, scale=4)))
def twelfth_remainder(x, y):
    return torch.remainder(x, y), torch.atan2(x, y), torch.floor(x / y)


def remainder(x, y, sign=True, quadrant=True, down=True, degrees=1.0):
    r = torch.fmod(x, y)
    r = torch.where((r != 0) & ((r < 0) != (y < 0)), r + y, r) if sign else r
    t = torch.atan(x / y)
    t = torch.where(y < 0, t + torch.copysign(torch.tensor(math.pi), x), t) if quadrant else t
    return r, t * degrees, torch.floor(x / y) if down else torch.trunc(x / y)


good(twelfth_remainder, remainder, by_fmod_and_atan={})
wrong(
    twelfth_remainder,
    remainder,
    {
        "the remainder has the sign of the dividend": {"sign": False},
        "the angle ignores the quadrant": {"quadrant": False},
        "the quotient is cut towards zero": {"down": False},
        "angles are in degrees": {"degrees": 180 / math.pi},
    },
)


def odd_numbers(d):
    x = d(60, dtype=hf, scale=3)
    x[::6], x[1::9], x[2::11] = math.nan, math.inf, -math.inf
    return (x, d(60, dtype=hf))


@twelfth(odd_numbers)
def twelfth_odd_numbers(x, y):
    return torch.maximum(x, y), torch.nan_to_num(x), x.clamp(-2, 2), F.relu(x)


def odd(x, y, most=torch.maximum, num=torch.nan_to_num, hold=lambda x: x.clamp(-2, 2), relu=F.relu):
    return most(x, y), num(x), hold(x), relu(x)


by_where = {
    "most": lambda x, y: torch.where(x.isnan() | (x > y), x, y),
    "num": lambda x: torch.where(x.isnan(), 0.0, x.float()).clamp(-65504, 65504).half(),
    "relu": lambda x: torch.where(x < 0, torch.zeros_like(x), x),
}
good(twelfth_odd_numbers, odd, by_where=by_where)
wrong(
    twelfth_odd_numbers,
    odd,
    {
        "the greater of a number and nan is the number": {"most": torch.fmax},
        "infinity becomes zero as nan does": {"num": lambda x: torch.where(x.isfinite(), x, torch.zeros_like(x))},
        "clamping nan gives the lower bound": {
            "hold": lambda x: torch.where(x.isnan(), -2.0, x.clamp(-2, 2).float()).half()
        },
        "relu of nan is zero": {"relu": lambda x: torch.where(x > 0, x, torch.zeros_like(x))},
    },
)


@twelfth(lambda d: (torch.round(d(300, scale=8)) / 2,))
def twelfth_round(x):
    return torch.round(x), torch.frac(x)


good(twelfth_round, lambda x: ((x + 12582912.0) - 12582912.0, x - x.trunc()), by_a_great_number={})
wrong(
    twelfth_round,
    None,
    {
        "halves go away from zero": lambda x: (torch.sign(x) * torch.floor(x.abs() + 0.5), x - x.trunc()),
        "halves go up": lambda x: (torch.floor(x + 0.5), x - x.trunc()),
        "the fraction of a negative number is positive": lambda x: (torch.round(x), x - x.floor()),
    },
)


@twelfth(lambda d: (d(50, 40, scale=15),))
def twelfth_softplus(x):
    return F.softplus(x, beta=2.0), F.mish(x), F.elu(x, alpha=0.5)


def softplus(x, beta=2.0, naive=False, alpha=0.5, mish=None, unit=True):
    s = torch.log(1 + torch.exp(beta * x)) if naive else torch.logaddexp(beta * x, torch.zeros_like(x))
    m = x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x)))
    e = torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0)))
    return s / beta if unit else s, mish(x) if mish else m, e


good(twelfth_softplus, softplus, by_logaddexp={})
wrong(
    twelfth_softplus,
    softplus,
    {
        "the logarithm overflows": {"naive": True},
        "not divided by beta": {"unit": False},
        "elu has alpha one": {"alpha": 1.0},
        "silu for mish": {"mish": F.silu},
    },
)

# ------------------------------------------------------------------ lookups


def tokens(d):
    i = d.ints(20, 70)
    i[::6] = 3
    return i, d(70, 16)


@twelfth(tokens)
def twelfth_embedding_backward(i, g):
    return torch.ops.aten.embedding_dense_backward(g, i, 20, 3, False)


def embedding_backward(i, g, pad=3, over=False, share=False, tail=70, kind=None):
    out = torch.zeros(20, 16)
    for t in range(tail):
        out[i[t]] = g[t] if over else out[i[t]] + g[t]
        out = narrow(out, kind) if kind else out
    out = out / torch.bincount(i, minlength=20).clamp(min=1)[:, None] if share else out
    if pad is not None:
        out[pad] = 0
    return out


good(
    twelfth_embedding_backward,
    embedding_backward,
    token_by_token={},
    by_one_hot=lambda i, g: (F.one_hot(i, 20).float() * (i != 3)[:, None]).T @ g,
)
wrong(
    twelfth_embedding_backward,
    embedding_backward,
    {
        "the padding row has a gradient": {"pad": None},
        "the row after the padding one is zeroed": {"pad": 4},
        "tokens seen twice are overwritten": {"over": True},
        "divided by how often a token is seen": {"share": True},
        "the last six tokens are left out": {"tail": 64},
        "sums are kept in bfloat16": {"kind": bf},
    },
)


@twelfth(lambda d: (d.ints(30, 25), d(30, 12, dtype=hf), torch.tensor([0, 4, 4, 15])))
def twelfth_bag(i, w, starts):
    return F.embedding_bag(i, w.float(), starts, mode="mean", padding_idx=2).to(hf)


def bag(i, w, starts, pad=2, total=False, late=0, last=25, most=False):
    ends, out = [*starts.tolist(), 25], torch.zeros(4, 12)
    for k in range(4):
        a, b = ends[k] + (late if k else 0), ends[k + 1] + (late if k < 3 else 0)
        rows = i[a : min(b, last)]
        rows = rows[rows != pad]
        if len(rows):
            f = w[rows].float()
            out[k] = f.amax(0) if most else f.sum(0) / (1 if total else len(rows))
    return out


good(twelfth_bag, bag, hf, bag_by_bag={})
wrong(
    twelfth_bag,
    bag,
    {
        "sums for means": {"total": True},
        "bags begin one late": {"late": 1},
        "the last index is left out": {"last": 24},
        "the greatest for the mean": {"most": True},
    },
    hf,
)


@twelfth(lambda d: (d(12, 9), d.ints(12, 40), d(40, 9)))
def twelfth_scatter_reduce(x, i, y):
    at = i[:, None].expand(-1, 9)
    return x.scatter_reduce(0, at, y, "amax", include_self=False), x.index_add(0, i, y, alpha=-0.5)


def scatter_reduce(x, i, y, own=False, alpha=-0.5, twice=None, absolute=False):
    top, total = x.clone(), x.clone()
    for r in range(12):
        part = y[i == r]
        if len(part):
            m = part.abs().amax(0) if absolute else part.amax(0)
            top[r] = torch.maximum(m, x[r]) if own else m
            total[r] = total[r] + alpha * part.sum(0) * (2 if r == twice else 1)
    return top, total


good(twelfth_scatter_reduce, scatter_reduce, row_by_row={})
wrong(
    twelfth_scatter_reduce,
    scatter_reduce,
    {
        "the row itself takes part in the maximum": {"own": True},
        "alpha is left out": {"alpha": 1.0},
        "one row is added to twice": {"twice": 5},
        "the greatest magnitude": {"absolute": True},
    },
)


@twelfth(lambda d: (d(9, 14, dtype=bf), d.ints(18, 5) - 9, d.ints(14, 9, 6)))
def twelfth_index(x, i, j):
    return x[i], x.gather(1, j), x.roll(3, 1)


def index(x, i, j, clamp=False, row=False, step=3):
    k = i.clamp(min=0) if clamp else i % 9
    flat = x.flatten()
    g = flat[(j * 14 + torch.arange(6)).clamp(max=125)] if row else flat[torch.arange(9)[:, None] * 14 + j]
    return x.index_select(0, k), g, torch.cat([x[:, -step:], x[:, :-step]], 1)


good(twelfth_index, index, flat_offsets={})
wrong(
    twelfth_index,
    index,
    {
        "negative indices are taken for zero": {"clamp": True},
        "the gather's index is taken for a row": {"row": True},
        "rolled by four": {"step": 4},
        "rolled the other way": {"step": 11},
        "the gather's last row is of a call before": lambda x, i, j: (
            x[i],
            torch.cat([x.gather(1, j)[:8], another(x)[8:, :6]]),
            x.roll(3, 1),
        ),
    },
)
