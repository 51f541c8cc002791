# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: reductions, scans and softmaxes."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, but, halves, serial, wide

# ------------------------------------------------------------------ sums and moments

add(
    "sum_rows",
    A.sum.dim_IntList,
    lambda d: (d(12, 1500, dtype=bf), [1]),
    lambda x, _, total=halves, n=1500: total(x.float()[:, :n]),
    right={
        "halves": {},
        "one after another, in single": {"total": serial},
        "16 parts": {"total": lambda x: sum(x[:, i::16].sum(1) for i in range(16))},
    },
    wrong={
        "accumulated in bfloat16": {"total": lambda x: serial(x, bf)},
        "the last block of 128 is dropped": {"n": 1408},
        "hides: the last element is dropped": {"n": 1499},
        "hides: kept in bfloat16 after each block of 25": {"total": lambda x: serial(x.reshape(12, 60, 25).sum(2), bf)},
        "hides: one row is added twice over at its halo": lambda x, _: but(
            7, of=lambda v: v + x[7, 126:130].float().sum()
        )(lambda x, _: x.float().sum(1))(x, _),
    },
    dtype=bf,
)

add(
    "mean_columns",
    A.mean.dim,
    lambda d: (d(900, 12, dtype=hf, scale=60, shift=300), [0]),
    lambda x, _, by=900, most=math.inf, n=900: halves(x.float().T[:, :n]).clamp(max=most) / by,
    right={"halves": {}, "each divided first": lambda x, _: (x.float() / 900).sum(0)},
    wrong={
        "divided by the 12 columns": {"by": 12},
        "the sum saturates at half's greatest": {"most": 65504.0},
        "hides: divided by 896": {"by": 896},
        "hides: the last 4 rows are left out": {"n": 896},
        "accumulated in half": lambda x, _: serial(x.float().T / 900, hf),
    },
    dtype=hf,
)


def log_sum(x, most=None, n=None, start=0.0):
    m = x.max(-1, keepdim=True).values if most is None else most
    return torch.log(torch.exp(x - m)[:, :n].sum(-1) + start) + (m.squeeze(-1) if torch.is_tensor(m) else m)


def online_log_sum(x, step=64, rescale=True, last=None):
    m, s = torch.full((x.shape[0],), -math.inf), torch.zeros(x.shape[0])
    for k in range(0, last or x.shape[1], step):
        part = x[:, k : k + step]
        new = torch.maximum(m, part.max(1).values)
        s = s * (torch.exp(m - new) if rescale else 1) + torch.exp(part - new[:, None]).sum(1)
        m = new
    return m + torch.log(s)


add(
    "logsumexp",
    A.logsumexp.default,
    lambda d: (d(20, 520, scale=2, shift=95.0), [1]),
    lambda x, _, **k: online_log_sum(x, **k),
    right={"blocks of 64": {}, "two passes": lambda x, _: log_sum(x), "blocks of one": {"step": 1}},
    wrong={
        "no maximum is subtracted": lambda x, _: log_sum(x, 0.0),
        "what was summed is not rescaled": {"rescale": False},
        "the last block of 8 is dropped": {"last": 512},
        "hides: the sum begins at one": lambda x, _: log_sum(x, start=1.0),
        "hides: the last element is left out": lambda x, _: log_sum(x, n=519),
    },
)

add(
    "var",
    A.var.correction,
    lambda d: (d(16, 700, shift=40.0, scale=0.5), [1]),
    lambda x, _, by=699, n=700, one=False: (
        (x * x).mean(1) - x.mean(1) ** 2 if one else ((x[:, :n] - x[:, :n].mean(1, keepdim=True)) ** 2).sum(1) / by
    ),
    right={
        "two passes": {},
        "shifted by the first": lambda x, _: (((x - x[:, :1]) ** 2).sum(1) - (x - x[:, :1]).sum(1) ** 2 / 700) / 699,
    },
    wrong={
        "mean of squares less the square of the mean": {"one": True},
        "hides: divided by n": {"by": 700},
        "hides: the last 60 are left out": {"n": 640, "by": 639},
        "hides: divided by n - 2": {"by": 698},
    },
)

add(
    "prod",
    A.prod.dim_int,
    lambda d: (1 + d(20, 90, scale=0.4), 1),
    right={"in double": wide(torch.prod), "serial": lambda x, _: torch.cumprod(x, 1)[:, -1]},
    wrong={
        "by logs, without a sign": lambda x, _: torch.exp(torch.log(x.abs()).sum(1)),
        "the last two are left out": lambda x, _: x[:, :88].prod(1),
        "hides: by logs": lambda x, _: torch.exp2(torch.log2(x.abs()).sum(1)) * torch.sign(x).prod(1),
    },
)

add(
    "norm_rows",
    A.linalg_vector_norm.default,
    lambda d: (d(24, 200) * 10.0 ** (torch.arange(24) * 3.0 - 36)[:, None], 2.0, [1]),
    right={
        "scaled by the greatest": lambda x, *_: (
            x.abs().amax(1) * torch.sqrt(((x / x.abs().amax(1, keepdim=True)) ** 2).sum(1))
        ),
        "in double": lambda x, *_: x.double().norm(dim=1).float(),
    },
    wrong={
        "not rooted": lambda x, *_: (x.double() ** 2).sum(1).float(),
        "the sum of magnitudes": lambda x, *_: x.abs().sum(1),
        "hides: an epsilon of 1e-12 is added within": lambda x, *_: ((x.double() ** 2).sum(1) + 1e-12).sqrt().float(),
        "hides: the last 8 are left out": lambda x, *_: x[:, :192].double().norm(dim=1).float(),
    },
)


def with_nan(x):
    x = x.clone()
    x[3, 7] = x[5, 250] = math.nan
    x[9] = -math.inf
    return x


add(
    "amax",
    A.amax.default,
    lambda d: (with_nan(d(20, 260, shift=-6.0)), [1]),
    right={
        "by sorting": lambda x, _: x.sort(1).values[:, -1],
        "by halves": lambda x, _: torch.maximum(x[:, :130], x[:, 130:]).max(1).values,
    },
    wrong={
        "nan is passed over": lambda x, _: torch.where(x.isnan(), -math.inf, x).amax(1),
        "begins at zero": lambda x, _: x.amax(1).clamp(min=0.0),
        "hides: begins at the least number, not at minus infinity": lambda x, _: torch.clamp(x, min=-3.4e38).amax(1),
        "hides: the last 4 are left out": lambda x, _: but(
            slice(12, 16), of=lambda y: x[12:16, :256].sort(1).values[:, -2]
        )(lambda x, _: x.amax(1))(x, _),
    },
)

add(
    "argmax",
    A.argmax.default,
    lambda d: (d.ints(90, 30, 100).float() - 44, 1),
    right={
        "first of the greatest": lambda x, _: (
            torch.where(x == x.amax(1, keepdim=True), torch.arange(100.0), 1e3).amin(1).long()
        )
    },
    wrong={
        "the last of the greatest": lambda x, _: 99 - torch.argmax(x.flip(1), 1),
        "of the magnitude": lambda x, _: torch.argmax(x.abs(), 1),
        "the index within a block of 32": lambda x, _: torch.argmax(x, 1) % 32,
        "hides: the last 4 columns are not looked at": lambda x, _: torch.argmax(x[:, :96], 1),
    },
)

# ------------------------------------------------------------------ scans


def blocks(x, step=64, carry=True, inner=None, kind=None, edge=0):
    out, c = [], torch.zeros(x.shape[0])
    for k in range(0, x.shape[1], step):
        y = torch.cumsum(x[:, k : k + step], 1)
        out.append(y + c[:, None])
        if carry:
            c = c + y[:, -1 - edge]
            c = narrow(c, kind) if kind else c
    return torch.cat(out, 1)


def hillis(x):
    k = 1
    while k < x.shape[1]:
        x = torch.cat([x[:, :k], x[:, k:] + x[:, :-k]], 1)
        k *= 2
    return x


add(
    "cumsum",
    A.cumsum.default,
    lambda d: (d(10, 400, shift=0.3), 1),
    lambda x, _, **k: blocks(x, **k),
    right={"blocks of 64": {}, "doubling steps": lambda x, _: hillis(x)},
    wrong={
        "blocks do not carry": {"carry": False},
        "exclusive": lambda x, _: torch.cumsum(x, 1) - x,
        "hides: the carry is rounded to bfloat16": {"kind": bf},
        "hides: the carry lacks each block's last": {"edge": 1},
    },
)


def log_cum(x, chunk=None, start=None):
    out, m, s = [], torch.full((x.shape[0],), -math.inf), torch.zeros(x.shape[0])
    for i in range(x.shape[1]):
        if chunk and i % chunk == 0:
            s = torch.zeros_like(s)
        new = torch.maximum(m, x[:, i])
        s = s * torch.exp(m - new) + torch.exp(x[:, i] - new)
        m = new
        out.append(m + torch.log(s))
    return torch.stack(out, 1)


add(
    "logcumsumexp",
    A.logcumsumexp.default,
    lambda d: (d(12, 150, scale=30), 1),
    lambda x, _, **k: log_cum(x, **k),
    right={"running maximum": {}, "in double": wide(torch.logcumsumexp)},
    wrong={
        "the log of a running sum": lambda x, _: torch.log(torch.cumsum(torch.exp(x), 1)),
        "the sum begins anew at 64": {"chunk": 64},
        "hides: the row's maximum is subtracted": lambda x, _: (
            torch.log(torch.cumsum(torch.exp(x - x.amax(1, keepdim=True)), 1)) + x.amax(1, keepdim=True)
        ),
    },
)


def ema(x, a):
    h, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = a * h + (1 - a) * x[:, t]
        out.append(h)
    return torch.stack(out, 1)


def ema_kernel(x, a, start=0, kind=None, chunk=None, gain=None, late=0):
    h, out = x[:, 0] if start else torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        if chunk and t % chunk == 0:
            h = torch.zeros_like(h)
        h = h + (1 - a if gain is None else gain) * (x[:, max(t - late, 0)] - h)
        h = narrow(h, kind) if kind else h
        out.append(h)
    return torch.stack(out, 1)


add(
    "ema",
    ema,
    lambda d: (d(4, 60, 24), 0.8 + 0.19 * d.rand(24)),
    ema_kernel,
    right={"by the difference": {}, "in double": wide(ema)},
    wrong={
        "begins at the first value": {"start": 1},
        "the state is lost at each 32": {"chunk": 32},
        "the input is a step late": {"late": 1},
        "hides: the state is kept in half": {"kind": hf},
        "the gain is one": lambda x, a: ema(x / (1 - a), a),
    },
)


def segment_mean(x, at):
    total = torch.zeros(9, x.shape[1], dtype=x.dtype).index_add(0, at, x)
    count = torch.zeros(9, dtype=x.dtype).index_add(0, at, torch.ones(len(at), dtype=x.dtype))
    return total / count.clamp(min=1)[:, None]


def segments(x, at, fill=0.0, plus=0, skip=0, kind=None):
    rows = []
    for s in range(9):
        part = x[at == s]
        part = part[: len(part) - skip] if skip and len(part) > 16 else part
        total = serial(part.T, kind) if len(part) else torch.zeros(x.shape[1])
        rows.append(total / (len(part) + plus) if len(part) else torch.full((x.shape[1],), fill))
    return torch.stack(rows)


add(
    "segment_mean",
    segment_mean,
    lambda d: (d(130, 20, shift=1.0), d.ints(8, 130)),
    segments,
    right={"segment by segment": {}, "in double": lambda x, at: segment_mean(x.double(), at).float()},
    wrong={
        "an empty segment has nan": {"fill": math.nan},
        "hides: the count has one more": {"plus": 1},
        "hides: of long segments the last is dropped": {"skip": 1},
        "accumulated in bfloat16": {"kind": bf},
    },
)

# ------------------------------------------------------------------ softmaxes


def soft(x, _=None, __=None, shift=True, n=None, eps=0.0, turn=1.0):
    f = x.float()
    f = f - f.amax(-1, keepdim=True) if shift else f
    e = torch.exp(f * turn)
    return e / (e[:, :n].sum(-1, keepdim=True) + eps)


def masked_rows(x):
    x = x.clone()
    x[:, 200:] = -math.inf
    x[5, :] = 11.0
    x[6] = 0.0
    return x


add(
    "softmax",
    A._softmax.default,
    lambda d: (masked_rows(d(16, 210, dtype=bf, scale=5, shift=95.0)), 1, False),
    soft,
    right={
        "two passes": {},
        "by the log of the sum": lambda x, *_: torch.exp(x.float() - torch.logsumexp(x.float(), 1)[:, None]),
    },
    wrong={
        "no maximum is subtracted": {"shift": False},
        "the last 8 unmasked are not summed": {"n": 192},
        "hides: base two, by a rounded logarithm of e": {"turn": 1.4453125 * math.log(2)},
        "hides: an epsilon of 0.01 under the line": {"eps": 0.01},
        "along the other dimension": lambda x, *_: torch.softmax(x.float(), 0).nan_to_num(0.0),
    },
    dtype=bf,
)


def softmax_back(g, y, _=None, __=None, dot=True, n=None, log=False):
    s = (g * y)[:, :n].sum(1, keepdim=True)
    return y * (g - s) if dot else y * g


add(
    "softmax_backward",
    A._softmax_backward_data.default,
    lambda d: (d(20, 120), torch.softmax(d(20, 120, scale=2), 1), 1, torch.float32),
    softmax_back,
    right={"as written": {}, "the product first": lambda g, y, *_: g * y - y * halves(g * y)[:, None]},
    wrong={
        "the sum is left out": {"dot": False},
        "hides: the sum lacks the last tile of 24": {"n": 96},
        "the sum of the gradient alone": lambda g, y, *_: y * (g - g.sum(1, keepdim=True)),
        "hides: the sum is rounded to bfloat16": lambda g, y, *_: y * (g - narrow((g * y).sum(1, keepdim=True))),
    },
)


def entropy(logits):
    p = torch.log_softmax(logits, -1)
    return -(p.exp() * p).sum(-1)


add(
    "entropy",
    entropy,
    lambda d: (d(20, 300, scale=2),),
    right={
        "log of the sum less the mean": lambda x: torch.logsumexp(x, 1) - (torch.softmax(x, 1) * x).sum(1),
        "in double": wide(entropy),
    },
    wrong={
        "in bits": lambda x: entropy(x) / math.log(2),
        "hides: 1e-4 within the log": lambda x: -(x.softmax(1) * torch.log(x.softmax(1) + 1e-4)).sum(1),
        "hides: the last 44 are left out": lambda x: entropy(x[:, :256]),
        "the sign is lost": lambda x: -entropy(x),
    },
)


def power_mean(x, p):
    return (x.clamp(min=1e-6) ** p).mean((-2, -1)) ** (1 / p)


add(
    "gem_pooling",
    power_mean,
    lambda d: (d(3, 10, 7, 9), 3.0),
    right={
        "by logs, in double": lambda x, p: torch.exp(
            torch.log((x.double().clamp(min=1e-6) ** p).mean((-2, -1))) / p
        ).float(),
        "cubes": lambda x, p: (x.clamp(min=1e-6) * x.clamp(min=1e-6) * x.clamp(min=1e-6)).mean((2, 3)).pow(1 / 3),
    },
    wrong={
        "negatives are made positive": lambda x, p: (x.abs() ** p).mean((-2, -1)) ** (1 / p),
        "not rooted": lambda x, p: (x.clamp(min=1e-6) ** p).mean((-2, -1)),
        "hides: the last column is left out": lambda x, p: power_mean(x[..., :8], p),
        "hides: by 64, not 63": lambda x, p: power_mean(x, p) * (63 / 64) ** (1 / p),
    },
)
