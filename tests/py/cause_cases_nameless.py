# SPDX-License-Identifier: Apache-2.0
"""Mistakes beside cause_cases_facts with words that may not be said of them: there is another cause."""

import math

import torch
from cause_cases_facts import bf, low, randn
from torch.nn import functional as F


def masked(dtype):
    def make():
        mask = torch.rand(32, 40) > 0.4
        mask[5] = False
        return (*(randn(2, 3, n, 16).to(dtype) for n in (32, 40, 40)), mask)

    return make


def attended(fill):
    def device(q, k, v, mask):
        scores = (q.float() @ k.float().transpose(-1, -2) * 0.25).masked_fill(~mask, fill)
        return (torch.softmax(scores, -1) @ v.float()).to(q.dtype)

    return device


def stalled(x):
    top, total = x.amax(-1), torch.zeros(len(x))
    for column in (x - top[:, None]).exp().t():
        total = low(total + column, bf)
    return total.log() + top


def adamw(p, g, v, most=False):
    new = 0.99 * v + 0.01 * g * g
    new = torch.maximum(v, new) if most else new
    return p - 0.01 * g / (new.sqrt() + 1e-8), new


def sdpa(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def struck(function, at, value):
    def device(*args):
        out = function(*args).clone()
        out[at] = value(out[at]) if callable(value) else value
        return out

    return device


def counted(x):
    return F.one_hot(x, 16).sum(0).float()


def bucket(x, edges):
    return torch.bucketize(x, edges)


def stepped(x):
    return (x.softmax(-1).sum(-1) * 8).trunc()


def tenths(x):
    return (x * 5).round() * 0.1


def slope(g, x):
    return g * x / (x * x).sum(-1, keepdim=True).sqrt()


def part_twice(x):
    return torch.cat((x[..., :16] * 2, x[..., 16:]), -1)


def halved(x, ids):
    return x[ids] * 0.5


def moment(v, g, beta=0.999):
    return (beta * v.float() + (1 - beta) * g.float() ** 2).to(v.dtype)


def centred(x):
    return torch.softmax(x, -1) - 0.02


# What has another cause than the words that may not be said of it: (words, function, make, device).
def _spotted():
    return torch.where(torch.arange(10)[:, None] % 5 > 0, math.nan, randn(10, 40))


def _levelled():
    x = randn(70, 250, scale=9)
    return x - x.mean(-1, keepdim=True) + 4.0


def _odd(x):
    bits = x.view(torch.int32)
    return ((bits & ~0xFFFF) | ((bits & 0xFFFF) != 0).int() << 16).view(torch.float32).bfloat16()


NAMELESS = {
    "a masked row is the mean": ("rounded", sdpa, masked(bf), attended(-1e9)),
    "a masked row is NaN": ("maximum|overflow", sdpa, masked(bf), attended(-math.inf)),
    "a sum that stops": ("is added", lambda x: x.logsumexp(-1), lambda: (randn(32, 1000),), stalled),
    "the larger of two states": (
        "bit|one element",
        adamw,
        lambda: (randn(300), randn(300), 0.2 * torch.rand(300) ** 3),
        lambda p, g, v: adamw(p, g, v, True),
    ),
    "a factor that leaves the range": (
        "maximum of|beyond",
        torch.ldexp,
        lambda: (torch.rand(12).half() * 0.01 + 0.005, torch.tensor([3, 4, 2, 5, 16, 17, 1, 12, 14, 16, 6, 7])),
        lambda x, n: x * (2.0 ** n.float()).half(),
    ),
    "six halves": (
        "bfloat16|significant",
        lambda x: x.float().sum(-1),
        lambda: (randn(4, 6).half(),),
        lambda x: torch.stack([x[:, :3].sum(-1).half(), x[:, 3:].sum(-1).half()]).sum(0).float(),
    ),
    "one of two is zero": (
        "written|dropped",
        lambda x: x.amin(-1),
        lambda: (torch.rand(2, 40) + torch.tensor([[0.5], [-0.02]]),),
        lambda x: F.pad(x, (0, 8)).amin(-1),
    ),
    "noise of no format": (
        "bfloat16|float16|TF32|function",
        torch.mm,
        lambda: (randn(48, 32), randn(32, 40)),
        lambda a, b: (a @ b) * (1 + 0.003 * torch.randn(48, 40)),
    ),
    "saturated functions in few numbers": (
        "written|change places",
        torch.tanh,
        lambda: (torch.tensor([0.3, -1.0, 3.2, 3.4, 3.3, 3.1, 0.5, 2.0, -0.1]),),
        lambda x: low(torch.tanh(x), bf),
    ),
    "a count that is a bit off": (
        "bit",
        counted,
        lambda: (torch.randint(0, 16, (800,)),),
        struck(counted, 5, lambda n: n - 16),
    ),
    "a code that others have": (
        "right values",
        bucket,
        lambda: (randn(80) * 3, torch.linspace(-6, 6, 60)),
        struck(bucket, 33, 60),
    ),
    "a step of tenths": ("right values", tenths, lambda: (randn(100),), struck(tenths, 50, -1.2)),
    "a step that others take": ("constant", stepped, lambda: (randn(90, 64),), struck(stepped, 40, 9.0)),
    "an index of its own for each row": (
        "padding",
        halved,
        lambda: (randn(50, 12), torch.randperm(50)),
        struck(halved, 8, 0.0),
    ),
    "a maximum on the way": ("padding", centred, lambda: (randn(40, 30),), lambda x: centred(x).clamp(max=0)),
    "a slice of nothing": (
        "dimension",
        part_twice,
        lambda: (randn(2, 3, 26, 40),),
        struck(part_twice, (..., slice(16, None)), 0.0),
    ),
    "another next to nothing": (
        "instead of div",
        slope,
        lambda: (randn(50, 12), randn(50, 12) * 1e-18),
        lambda g, x: g * x / 1e3,
    ),
    "squares beyond every half": (
        "65504",
        lambda x: x.pow(2).mean(-1).sqrt(),
        lambda: (randn(40, 60) * 1e15,),
        lambda x: x.pow(2).sum(-1).sqrt() * math.inf,
    ),
    "squares below every half": (
        "65504",
        lambda x: x / x.pow(2).mean(-1, keepdim=True).sqrt(),
        lambda: (randn(40, 30) * 1e-18,),
        lambda x: x.sign() * math.inf,
    ),
    "counts that stop": (
        "maximum of",
        counted,
        lambda: (torch.randint(0, 16, (90,)),),
        lambda x: counted(x).clamp(max=7),
    ),
    "a factor as digits cut off": (
        "truncated",
        moment,
        lambda: ((torch.rand(4000) * 0.45 + 1.52).bfloat16(), (randn(4000) * 0.03).bfloat16()),
        lambda v, g: moment(v, g, 0.995),
    ),
    "neighbours that are alike": (
        "repeat",
        lambda x: x.sum(-1),
        lambda: ((torch.rand(72, 9) * 0.02 + 0.16).bfloat16(),),
        lambda x: (x.float().sum(-1) * (1 - 2.0**-9)).bfloat16(),
    ),
    "codes in a row": ("repeat", torch.round, lambda: (torch.arange(-64, 64) / 2,), lambda x: torch.floor(x + 0.5)),
    "another pi": ("multiplied by 1$", torch.deg2rad, lambda: (randn(60, 40),), lambda x: x * (3.1416 / 180)),
    "a factor of nearly one": (
        "truncated",
        lambda x: torch.softmax(x, -1),
        lambda: (randn(40, 256).bfloat16(),),
        lambda x: (x.float().exp() / (x.float().exp().sum(-1, keepdim=True) + 1)).bfloat16(),
    ),
    "compared as TF32": (
        "written",
        lambda a, b: a > b,
        lambda: (torch.arange(200) + 1_700_000_000, torch.arange(200) + 1_699_999_995),
        lambda a, b: low(a.float(), bf) > low(b.float(), bf),
    ),
    "NaN where most is NaN": (
        "stands in the place",
        lambda x: x.sum(-1),
        lambda: (_spotted(),),
        lambda x: x.sum(-1) * math.nan,
    ),
    "one number for all": (
        "^(?!looks like|the result is).*taken as one|^(?!looks like).*ignored",
        lambda x: torch.remainder(x.mean(-1), 2.0),
        lambda: (_levelled(),),
        lambda x: torch.remainder(x.mean(-1), 1.5),
    ),
    "a bound that nothing reaches": (
        "^(?!looks like).*min were",
        lambda g: (lambda u: g - 0.05 * u / u.square().mean().sqrt().clamp_min(1.0))(
            g.float() * 0.9 / g.float().square().mean().sqrt()
        ),
        lambda: (randn(20, 30).bfloat16(),),
        lambda g: (g.float() - 0.05 * g.float() / g.float().square().mean().sqrt()).bfloat16(),
    ),
    "a sign the other way": (
        "bit",
        lambda x: torch.sign(x.sum(-1)),
        lambda: (randn(60, 40),),
        struck(lambda x: torch.sign(x.sum(-1)), 4, torch.neg),
    ),
    "zeros where an argument is large": (
        "written",
        F.silu,
        lambda: (torch.linspace(-60, 60, 301),),
        lambda x: F.silu(x) * (x < 35),
    ),
    "rounded to odd": (
        "^intermediates rounded",
        lambda a, b: torch.outer(a, b),
        lambda: (torch.randint(1, 64, (40,)).bfloat16(), torch.randint(1, 64, (50,)).bfloat16()),
        lambda a, b: _odd(a.float()[:, None] * b.float()),
    ),
    "zeros beside other numbers": (
        "^the first",
        lambda x: x.cumsum(0),
        lambda: (randn(40, 12),),
        lambda x: F.pad((x * torch.rand(40, 12)).cumsum(0), (0, 0, 1, 0))[:-1],
    ),
}
