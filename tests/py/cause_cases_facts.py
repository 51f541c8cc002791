# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the result alone tells, or that fit a name which they do not deserve: of each the words that
must be said, and of NAMELESS those that may not be. Neighbour: test_causes_facts."""

import math

import torch
from torch.nn import functional as F

CASES = {}  # name: (words, function, make, device)
bf, fp = torch.bfloat16, torch.float16


def case(name, words, function, make, device):
    CASES[name] = words, function, make, device


def randn(*sizes, scale=1.0):
    return torch.randn(*sizes) * scale


def low(x, dtype):
    return x.to(dtype).float()


def tiles(x, size):
    return torch.softmax(x.unflatten(-1, (-1, size)), -1).flatten(-2)


def put(change, function):
    def device(*args):
        out = function(*args).clone()
        change(out, *args)
        return out

    return device


def places():
    pair = lambda: (randn(48, 32), randn(32, 128))  # noqa: E731
    def rows(out, *args):
        out[[4, 20]] += randn(2, out.shape[1], scale=3)

    case("rows by number", "^cause unknown; off only in rows 4 and 20$", torch.mm, pair, put(rows, torch.mm))

    def columns(out, *args):
        out[:, 31::32] += randn(out.shape[0], 4, scale=3)

    case("columns by residue", "^cause unknown; off only in column 31 of every 32$", torch.mm, pair, put(columns, torch.mm))
    qkv = lambda: [randn(2, 8, 64, 16) for _ in range(3)]  # noqa: E731
    attend = F.scaled_dot_product_attention

    def tokens(out, *args):
        out[:, :, 57:] += randn(2, 8, 7, 16, scale=3)

    def heads(out, q, k, v):
        out[:, 4:] = attend(q, k, v * v)[:, 4:]

    def between(out, q, k, v):
        out[:, 2:5] = attend(q, k, 2 * v)[:, 2:5]

    def some_rows(out, *args):
        out[8:12] += randn(4, out.shape[1], scale=3)

    def beside(out, *args):
        out[8:12] *= 1.5

    case("heads in between", "off only in heads 2 to 4$", lambda q, k, v: attend(q, k, v), qkv, put(between, attend))
    case("rows in between", "^cause unknown; off only in rows 8 to 11$", torch.mm, pair, put(some_rows, torch.mm))
    case("rows beside a factor", "1.5.*off only in rows 8 to 11$|off only in rows 8 to 11$", torch.mm, pair, put(beside, torch.mm))
    case("tokens by number", "^cause unknown; off only in tokens from 57 on$", lambda q, k, v: attend(q, k, v), qkv, put(tokens, attend))
    case("heads by number", "off only in heads from 4 on", lambda q, k, v: attend(q, k, v), qkv, put(heads, attend))

    def bias(out, x, w, b):
        out[[4, 20]] = b

    for dtype in (torch.float32, bf):
        case(f"rows of the bias {dtype}", "^4 and 20 of 32 along axis 0 hold nothing but", F.linear,
             lambda d=dtype: (randn(32, 16).to(d), randn(12, 16).to(d), randn(12).to(d)), put(bias, F.linear))  # fmt: skip

    def others(out, *args):
        out[[3, 9, 10]] = out[[4, 30, 17]]

    case("rows of others", "hold the right values of 4, 30 and 17", torch.mm, pair, put(others, torch.mm))
    case("all zeros", "^the result is all zeros$", F.linear, lambda: (randn(8, 16), randn(12, 16)), lambda x, w: 0 * F.linear(x, w))
    case("one constant", "^the result is the constant 0.5 everywhere$", torch.sigmoid, lambda: (randn(30, 20),),
         lambda x: torch.full_like(x, 0.5))
    case("a NaN that is swallowed", "NaN is swallowed|NaN swallowed", torch.relu,
         lambda: (torch.where(torch.arange(200) == 77, math.nan, randn(200)),), lambda x: torch.where(x > 0, x, torch.zeros_like(x)))
    case("zero among the least", "results above 0 are 0, as where a padding counts in the minimum", lambda x: x.amin(-1),
         lambda: (torch.rand(60, 40) - 0.02,), lambda x: F.pad(x, (0, 8)).amin(-1))
    case("an amount on a few", "^0.001 is added", lambda x: x.mean(-1), lambda: (torch.rand(6, 200),), lambda x: x.mean(-1) + 1e-3)
    case("an amount in bfloat16", "^0.001 is added", lambda x: x.mean(-1), lambda: (randn(64, 200).bfloat16(),),
         lambda x: (x.float().mean(-1) + 1e-3).bfloat16())  # fmt: skip
    case("conjugated", "imaginary", torch.fft.fft, lambda: (torch.randn(8, 16, dtype=torch.complex64),), lambda x: torch.fft.fft(x).conj())


def ties():
    bits = lambda: (torch.randint(1, 64, (40,)).bfloat16(), torch.randint(1, 64, (50,)).bfloat16())  # noqa: E731
    outer = lambda a, b: torch.outer(a, b)  # noqa: E731

    def exact(a, b):
        return a.float()[:, None] * b.float()

    def away(a, b):
        return ((exact(a, b).view(torch.int32) + 0x8000) & ~0xFFFF).view(torch.float32).bfloat16()

    def to_zero(a, b):
        return ((exact(a, b).view(torch.int32) + 0x7FFF) & ~0xFFFF).view(torch.float32).bfloat16()

    case("ties away", "^wrong variant: ties are rounded away from zero instead of to even", outer, bits, away)
    case("ties to zero", "^wrong variant: ties are rounded towards zero instead of to even", outer, bits, to_zero)


def other_outputs():
    def both(x):
        return torch.remainder(x, 3.0), torch.fmod(x, 3.0)

    case("one output's values in another", r"holds the right values of out\[1\]", both, lambda: (randn(40, 20, scale=9),),
         lambda x: (torch.fmod(x, 3.0),) * 2)
    case("n - 1 where a correction is None", "^unbiased variance: divided by n - 1 instead of n$",
         lambda x: (x - x.mean((0, 2), keepdim=True)) * torch.rsqrt(torch.var(x, (0, 2), correction=0, keepdim=True) + 1e-5),
         lambda: (randn(4, 6, 8),), lambda x: (x - x.mean((0, 2), keepdim=True)) * torch.rsqrt(torch.var(x, (0, 2), keepdim=True) + 1e-5))

    def group(out, *args):
        out[:, :27] = 0

    case("groups that nobody computed", "^27 of 32 slices along axis 0 are zero: not computed$", torch.mm,
         lambda: (randn(48, 32), randn(32, 32)), put(group, torch.mm))


def tiled():
    case("softmax of tiles", "of each tile of 16 along axis 1", lambda x: torch.softmax(x, -1), lambda: (randn(16, 64),),
         lambda x: tiles(x, 16))
    case("softmax of tiles, half", "of each tile of 32 along axis 1", lambda x: torch.softmax(x, -1), lambda: (randn(24, 64).half(),),
         lambda x: tiles(x.float(), 32).half())
    case("own softmax of tiles", "of each tile of 16 along axis 1", lambda x: (lambda e: e / e.sum(-1, keepdim=True))(
        (x - x.amax(-1, keepdim=True)).exp()), lambda: (randn(16, 64),), lambda x: tiles(x, 16))
    case("layer norm of tiles", "of each tile of 32 along axis 1", lambda x, w: F.layer_norm(x, (96,), w), lambda: (randn(12, 96), randn(96)),
         lambda x, w: F.layer_norm(x.unflatten(-1, (-1, 32)), (32,)).flatten(-2) * w)


def formulas():
    def rope(x, c, s):
        a, b = x.chunk(2, -1)
        return x * c + torch.cat([-b, a], -1) * s

    twice = lambda t: torch.cat([t[..., :8]] * 2, -1)  # noqa: E731
    case("rotary halves", "the first half of c and s along axis 1 stands for both", rope,
         lambda: (randn(2, 12, 16), torch.cos(randn(12, 16)), torch.sin(randn(12, 16))), lambda x, c, s: rope(x, twice(c), twice(s)))

    def iterated(g, steps=5):
        x = g / (g.norm() + 1e-7)
        for _ in range(steps):
            square = x @ x.T
            x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
        return x

    case("a round less", "round early", iterated, lambda: (randn(24, 40),), lambda g: iterated(g, 4))
    case("a cast that cuts", "truncated", lambda x: (x * 448 / x.abs().amax()).to(torch.float8_e4m3fn).float(), lambda: (randn(64, 64),),
         _cut)

    def norm(x, w):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)

    case("squares overflow", "overflow.*float16", norm, lambda: ((randn(16, 64) * 3000).half(), torch.ones(64).half()),
         lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w)


def layer_gradient(g, x, variance=True):
    mean, square = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
    y = (x - mean) / (square + 1e-5).sqrt()
    part = g - g.mean(-1, keepdim=True)
    return (part - y * (g * y).mean(-1, keepdim=True) if variance else part) / (square + 1e-5).sqrt()


def rivals():
    """What fits two names: the plainer is said."""
    case("one value for one value", "^the result is 0.9 everywhere, where 0.125 is right$", lambda x: torch.softmax(x, -1),
         lambda: (torch.ones(12, 8),), lambda x: torch.full_like(x, 0.9))
    case("ties up, of ties alone", "ties are rounded up", torch.round, lambda: ((randn(300) * 9).floor() + 0.5,), lambda x: torch.floor(x + 0.5))
    case("two fewer", "divided by n - 2 instead of n - 1", lambda x: x.var(-1), lambda: (randn(40, 30),), lambda x: x.var(-1, correction=2))
    case("a half sum leaves the range", "accumulated in float16", lambda x: x.sum(-1), lambda: (torch.rand(30, 900) * 100 + 60,),
         lambda x: x.half().cumsum(-1)[:, -1].float())  # fmt: skip
    case("a root of squares", "sqrt.* instead of hypot", torch.hypot, lambda: (randn(300) * 10.0 ** (randn(300) * 15).round(), randn(300)),
         lambda x, y: (x * x + y * y).sqrt())  # fmt: skip
    case("a term that a factor of one loses, too", "a term of sub is missing|two steps", layer_gradient,
         lambda: (randn(9, 200), randn(9, 200)), lambda g, x: layer_gradient(g, x, False))  # fmt: skip


def _cut(x):
    y = x * 448 / x.abs().amax()
    quantum = 2.0 ** (torch.floor(torch.log2(y.abs().clamp(min=2**-6))) - 3)
    return torch.trunc(y / quantum) * quantum


for build in (places, ties, other_outputs, tiled, formulas, rivals):
    build()


def honest(name):
    _, function, make, _ = CASES[name]
    args = make()
    return function, args, function(*args)


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
    "the larger of two states": ("bit|one element", adamw, lambda: (randn(300), randn(300), 0.2 * torch.rand(300) ** 3),
                                 lambda p, g, v: adamw(p, g, v, True)),
    "a factor that leaves the range": ("maximum of|beyond", torch.ldexp,
                                       lambda: (torch.rand(12).half() * 0.01 + 0.005, torch.tensor([3, 4, 2, 5, 16, 17, 1, 12, 14, 16, 6, 7])),
                                       lambda x, n: x * (2.0 ** n.float()).half()),
    "six halves": ("bfloat16|significant", lambda x: x.float().sum(-1), lambda: (randn(4, 6).half(),),
                   lambda x: torch.stack([x[:, :3].sum(-1).half(), x[:, 3:].sum(-1).half()]).sum(0).float()),
    "one of two is zero": ("written|dropped", lambda x: x.amin(-1), lambda: (torch.rand(2, 40) + torch.tensor([[0.5], [-0.02]]),),
                           lambda x: F.pad(x, (0, 8)).amin(-1)),
    "noise of no format": ("bfloat16|float16|TF32|function", torch.mm, lambda: (randn(48, 32), randn(32, 40)),
                           lambda a, b: (a @ b) * (1 + 0.003 * torch.randn(48, 40))),
    "saturated functions in few numbers": ("written|change places", torch.tanh, lambda: (torch.tensor([0.3, -1.0, 3.2, 3.4, 3.3, 3.1, 0.5, 2.0, -0.1]),),
                                           lambda x: low(torch.tanh(x), bf)),
    "a count that is a bit off": ("bit", counted, lambda: (torch.randint(0, 16, (800,)),), struck(counted, 5, lambda n: n - 16)),
    "a code that others have": ("right values", bucket, lambda: (randn(80) * 3, torch.linspace(-6, 6, 60)), struck(bucket, 33, 60)),
    "a step of tenths": ("right values", tenths, lambda: (randn(100),), struck(tenths, 50, -1.2)),
    "a step that others take": ("constant", stepped, lambda: (randn(90, 64),), struck(stepped, 40, 9.0)),
    "an index of its own for each row": ("padding", halved, lambda: (randn(50, 12), torch.randperm(50)), struck(halved, 8, 0.0)),
    "a maximum on the way": ("padding", centred, lambda: (randn(40, 30),), lambda x: centred(x).clamp(max=0)),
    "a slice of nothing": ("dimension", part_twice, lambda: (randn(2, 3, 26, 40),), struck(part_twice, (..., slice(16, None)), 0.0)),
    "another next to nothing": ("instead of div", slope, lambda: (randn(50, 12), randn(50, 12) * 1e-18),
                                lambda g, x: g * x / 1e3),
    "squares beyond every half": ("65504", lambda x: x.pow(2).mean(-1).sqrt(), lambda: (randn(40, 60) * 1e15,),
                                  lambda x: x.pow(2).sum(-1).sqrt() * math.inf),
    "squares below every half": ("65504", lambda x: x / x.pow(2).mean(-1, keepdim=True).sqrt(), lambda: (randn(40, 30) * 1e-18,),
                                 lambda x: x.sign() * math.inf),
    "counts that stop": ("maximum of", counted, lambda: (torch.randint(0, 16, (90,)),), lambda x: counted(x).clamp(max=7)),
    "a factor as digits cut off": ("truncated", moment, lambda: ((torch.rand(4000) * 0.45 + 1.52).bfloat16(), (randn(4000) * 0.03).bfloat16()),
                                   lambda v, g: moment(v, g, 0.995)),
    "neighbours that are alike": ("repeat", lambda x: x.sum(-1), lambda: ((torch.rand(72, 9) * 0.02 + 0.16).bfloat16(),),
                                  lambda x: (x.float().sum(-1) * (1 - 2.0**-9)).bfloat16()),
    "codes in a row": ("repeat", torch.round, lambda: (torch.arange(-64, 64) / 2,), lambda x: torch.floor(x + 0.5)),
    "another pi": ("multiplied by 1$", torch.deg2rad, lambda: (randn(60, 40),), lambda x: x * (3.1416 / 180)),
    "a factor of nearly one": ("truncated", lambda x: torch.softmax(x, -1), lambda: (randn(40, 256).bfloat16(),),
                               lambda x: (x.float().exp() / (x.float().exp().sum(-1, keepdim=True) + 1)).bfloat16()),
    "compared as TF32": ("written", lambda a, b: a > b, lambda: (torch.arange(200) + 1_700_000_000, torch.arange(200) + 1_699_999_995),
                         lambda a, b: low(a.float(), bf) > low(b.float(), bf)),
    "NaN where most is NaN": ("stands in the place", lambda x: x.sum(-1), lambda: (_spotted(),), lambda x: x.sum(-1) * math.nan),
    "one number for all": ("^(?!looks like|the result is).*taken as one|^(?!looks like).*ignored", lambda x: torch.remainder(x.mean(-1), 2.0),
                           lambda: (_levelled(),), lambda x: torch.remainder(x.mean(-1), 1.5)),
    "a bound that nothing reaches": ("^(?!looks like).*min were", lambda g: (lambda u: g - 0.05 * u / u.square().mean().sqrt().clamp_min(1.0))(
        g.float() * 0.9 / g.float().square().mean().sqrt()), lambda: (randn(20, 30).bfloat16(),),
        lambda g: (g.float() - 0.05 * g.float() / g.float().square().mean().sqrt()).bfloat16()),
    "a sign the other way": ("bit", lambda x: torch.sign(x.sum(-1)), lambda: (randn(60, 40),), struck(lambda x: torch.sign(x.sum(-1)), 4, torch.neg)),
    "zeros where an argument is large": ("written", F.silu, lambda: (torch.linspace(-60, 60, 301),), lambda x: F.silu(x) * (x < 35)),
    "rounded to odd": ("^intermediates rounded", lambda a, b: torch.outer(a, b), lambda: (
        torch.randint(1, 64, (40,)).bfloat16(), torch.randint(1, 64, (50,)).bfloat16()), lambda a, b: _odd(a.float()[:, None] * b.float())),
    "zeros beside other numbers": ("^the first", lambda x: x.cumsum(0), lambda: (randn(40, 12),), lambda x: F.pad(
        (x * torch.rand(40, 12)).cumsum(0), (0, 0, 1, 0))[:-1]),
}  # fmt: skip
