# SPDX-License-Identifier: Apache-2.0
"""Set T, one class of its table (blind_fourteenth_classes): mistakes that are common and were misnamed or not named."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_fourteenth_base import INF, serial

E4 = torch.float8_e4m3fn


def masked_mean(q, k, v, mask):
    s = (q @ k.transpose(-1, -2)).masked_fill(~mask, -INF)
    return torch.nan_to_num(s.softmax(-1)) @ v


def mask_of(d):
    m = d.rand(12, 20) < 0.6
    m[4] = False
    return m


def ams(p, g, v, top):
    v = 0.99 * v + 0.01 * g * g
    top = torch.maximum(top, v)
    return p - 1e-3 * g / (top.sqrt() + 1e-8), v, top


def ams_wrong(p, g, v, top):
    v = 0.99 * v + 0.01 * g * g
    return p - 1e-3 * g / (v.sqrt() + 1e-8), v, torch.maximum(top, v)


def tiles_softmax(x, n):
    return torch.cat([t.softmax(-1) for t in x.split(n, -1)], -1)


def rotary(x, cos, sin):
    a, b = x.chunk(2, -1)
    ca, cb = cos.chunk(2, -1)
    sa, sb = sin.chunk(2, -1)
    return torch.cat([a * ca - b * sa, b * cb + a * sb], -1)


def rotary_wrong(x, cos, sin):
    a, b = x.chunk(2, -1)
    c, s = cos.chunk(2, -1)[0], sin.chunk(2, -1)[0]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def with_bias(x, w, b):
    return x @ w + b


def two_rows(x, w, b):
    y = with_bias(x, w, b)
    y[[3, 8]] = b
    return y


def counted(x):
    return x.sum(-1) / x.shape[-1]


COMMON = [
    (
        "a row that is fully masked gives the mean of V",
        masked_mean,
        lambda d: (d(12, 8), d(20, 8), d(20, 8), mask_of(d)),
        lambda q, k, v, m: (q @ k.transpose(-1, -2)).masked_fill(~m, -1e9).softmax(-1) @ v,
    ),
    (
        "AMSGrad without its greatest",
        ams,
        lambda d: (d(300, scale=0.1), d(300, scale=0.01), d.rand(300) * 1e-4, d.rand(300) * 1.2e-4),
        ams_wrong,
    ),
    ("softmax by tiles of 32", lambda x: x.softmax(-1), lambda d: (d(16, 96),), lambda x: tiles_softmax(x, 32)),
    (
        "rotary: the first half of cos and sin for both",
        rotary,
        lambda d: (d(12, 16), d(12, 16).cos(), d(12, 16).sin()),
        rotary_wrong,
    ),
    ("two rows come out as the bias", with_bias, lambda d: (d(20, 30), d(30, 16), d(16)), two_rows),
    (
        "a mean whose count of ones ends at 2048",
        counted,
        lambda d: (torch.ones(2, 3000, dtype=hf),),
        lambda x: (serial(x.float(), hf) / 3000).to(hf),
    ),
    (
        "min over a tile padded with zero",
        lambda x: x.amin(-1),
        lambda d: (d.rand(20, 50) + 1,),
        lambda x: F.pad(x, (0, 14)).amin(-1),
    ),
    (
        "a gradient times the first of the incoming",
        lambda x, g: 2 * x * g,
        lambda d: (d(200), d(200)),
        lambda x, g: 2 * x * g[0],
    ),
    (
        "relu swallows a NaN",
        lambda x: x.relu(),
        lambda d: (d(100).index_fill(0, torch.tensor([7]), math.nan),),
        lambda x: torch.where(x > 0, x, 0.0),
    ),
    (
        "codes of e4m3 are cut",
        lambda x: x.to(E4).float(),
        lambda d: (d(500, scale=10),),
        lambda x: torch.where(
            x.to(E4).float().abs() > x.abs(),
            torch.copysign((x.to(E4).view(torch.uint8) - 1).view(E4).float().abs(), x),
            x.to(E4).float(),
        ),
    ),
    (
        "log-sum-exp summed in bf16",
        lambda x: x.logsumexp(-1),
        lambda d: (d(24, 80),),
        lambda x: torch.log(serial(x.exp(), bf)),
    ),
    ("a mean and 1e-3", lambda x: x.mean(-1), lambda d: (d(40, 64),), lambda x: x.mean(-1) + 1e-3),
]
