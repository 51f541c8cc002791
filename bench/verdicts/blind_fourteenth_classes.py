# SPDX-License-Identifier: Apache-2.0
"""Set T: further members of classes of mistakes that once went free or were misjudged, a table: per class its name
and its members, each a definition, its inputs and one wrong kernel. None may go free; of `own_runs`, all kernels are
right."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow, tf32
from .blind_fourteenth_base import INF, add, gradients
from .blind_fourteenth_common import COMMON

E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2


def ties(x, kind, way):
    """x rounded to `kind` with ties `way`: away from zero, to zero, or to odd."""
    even = x.to(kind).float()
    step = torch.nextafter(even.to(kind), torch.full_like(even, INF).to(kind)).float()
    back = torch.nextafter(even.to(kind), torch.full_like(even, -INF).to(kind)).float()
    for other in (step, back):
        tie = (x - even).abs() == (other - x).abs()
        better = (
            other.abs() > even.abs() if way == "away" else other.abs() < even.abs() if way == "zero" else other != even
        )
        even = torch.where(tie & (x != even) & better, other, even)
    return even.to(kind)


def mean_by(n):
    return lambda x: (x.float().sum(-1) / n).to(x.dtype)


def var_by(n, root=False):
    def run(x):
        y = x.float()
        v = ((y - y.mean(-1, keepdim=True)) ** 2).sum(-1) / n
        return (v.sqrt() if root else v).to(x.dtype)

    return run


DIVISORS = [
    (
        "std in bf16 of 200, divided by n",
        lambda x: x.std(-1),
        lambda d: (d(120, 200, dtype=bf, scale=1.3),),
        var_by(200, True),
    ),
    (
        "var in bf16 of 280, divided by n",
        lambda x: x.var(-1),
        lambda d: (d(90, 280, dtype=bf, scale=1.35),),
        var_by(280),
    ),
    (
        "biased var in fp16 of 900, divided by n - 1",
        lambda x: x.var(-1, correction=0),
        lambda d: (d(100, 900, dtype=hf, scale=1.37),),
        var_by(899),
    ),
    (
        "mean in bf16 of 256, divided by 257",
        lambda x: x.mean(-1),
        lambda d: (d(100, 256, dtype=bf, shift=1.9, scale=0.3),),
        mean_by(257),
    ),
    (
        "mean in fp16 of 1000, divided by 1001",
        lambda x: x.mean(-1),
        lambda d: (d(100, 1000, dtype=hf, shift=1.9, scale=0.3),),
        mean_by(1001),
    ),
]


def unit_sum(x):
    return (x / x.pow(2).sum(-1, keepdim=True).sqrt()).pow(2).sum(-1)


def filled(fn, value, part=1):
    """The definition's result with every `part`-th element at a value that no rounding gives."""

    def run(*args):
        y = fn(*args).clone()
        y.flatten()[::part] = value
        return y

    return run


def softmax_sum(x):
    return x.softmax(-1).sum(-1)


STEPS = [
    ("ceil of a softmax's sum: 3", lambda x: torch.ceil(softmax_sum(x)), lambda d: (d(200, 64),), 3.0, 1),
    (
        "floor of a softmax's sum: -1 in each fifth",
        lambda x: torch.floor(softmax_sum(x)),
        lambda d: (d(200, 50),),
        -1.0,
        5,
    ),
    ("floor of a unit vector's length: 2", lambda x: torch.floor(unit_sum(x)), lambda d: (d(150, 40),), 2.0, 1),
    ("four times a softmax's sum, cut: 5", lambda x: torch.trunc(4 * softmax_sum(x)), lambda d: (d(200, 30),), 5.0, 3),
    (
        "floor of exp(log(7)): 9",
        lambda x: torch.floor(torch.exp(torch.log(x))),
        lambda d: (torch.full((100,), 7.0),),
        9.0,
        1,
    ),
]

LARGE = [
    (
        "log softmax of equal logits of 3e7: -20",
        lambda x: x.log_softmax(-1),
        lambda d: (torch.full((6, 50), 3e7),),
        lambda x: torch.full_like(x, -20.0),
    ),
    (
        "cross entropy of equal logits of 5e7: 11",
        lambda x: F.cross_entropy(x, torch.zeros(6, dtype=torch.long)),
        lambda d: (torch.full((6, 80), 5e7),),
        lambda x: torch.tensor(11.0),
    ),
    (
        "entropy of equal logits of 1e6: 0",
        lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1),
        lambda d: (torch.full((9, 60), 1e6),),
        lambda x: torch.zeros(9),
    ),
    (
        "attention at scores of 1e7: the first value alone",
        lambda q, k, v: (q @ k.T).softmax(-1) @ v,
        lambda d: (torch.full((5, 8), 1e3), torch.full((12, 8), 1.25e3), d(12, 8)),
        lambda q, k, v: v[:1].expand(5, 8),
    ),
    (
        "softmax of equal logits of 1e6: twice as much",
        lambda x: x.softmax(-1),
        lambda d: (torch.full((6, 40), 1e6),),
        lambda x: torch.full_like(x, 0.05),
    ),
]

eighths = lambda d, *shape: torch.round(d(*shape) * 512) / 512
TIES = [
    (
        "bf16 a - b, ties away",
        lambda a, b: a - b,
        lambda d: (d(3000, dtype=bf), d(3000, dtype=bf)),
        lambda a, b: ties(a.float() - b.float(), bf, "away"),
    ),
    (
        "fp16 a + b, ties towards zero",
        lambda a, b: a + b,
        lambda d: (d(3000, dtype=hf), d(3000, dtype=hf)),
        lambda a, b: ties(a.float() + b.float(), hf, "zero"),
    ),
    (
        "bf16 product by 1.5, ties away",
        lambda a: a * 1.5,
        lambda d: (d(2000, dtype=bf),),
        lambda a: ties(a.float() * 1.5, bf, "away"),
    ),
    (
        "a cast to bf16, ties towards zero",
        lambda a: a.to(bf),
        lambda d: (eighths(d, 3000),),
        lambda a: ties(a, bf, "zero"),
    ),
    (
        "a mean of two in bf16, ties away",
        lambda a, b: torch.lerp(a, b, 0.5),
        lambda d: (d(3000, dtype=bf), d(3000, dtype=bf)),
        lambda a, b: ties((a.float() + b.float()) / 2, bf, "away"),
    ),
]


def norm_rows(eps, center=False, beside=False):
    def run(x):
        y = x - x.mean(-1, keepdim=True) if center else x
        v = y.pow(2).mean(-1, keepdim=True)
        return y / (v.sqrt() + eps if beside else (v + eps).sqrt())

    return run


EPSILONS = [
    ("rms norm of 512: no epsilon for 1e-5", norm_rows(1e-5), lambda d: (d(40, 512),), norm_rows(0)),
    ("rms norm of 128: 2e-5 for 1e-5", norm_rows(1e-5), lambda d: (d(40, 128),), norm_rows(2e-5)),
    (
        "layer norm of 300: epsilon beside the root",
        lambda x: F.layer_norm(x, (300,)),
        lambda d: (d(40, 300),),
        norm_rows(1e-5, True, True),
    ),
    ("layer norm of 64: no epsilon", lambda x: F.layer_norm(x, (64,)), lambda d: (d(80, 64),), norm_rows(0, True)),
    (
        "group norm: 1e-6 for 1e-5",
        lambda x: F.group_norm(x, 2, eps=1e-5),
        lambda d: (d(8, 8, 40),),
        lambda x: F.group_norm(x, 2, eps=1e-6),
    ),
]


def drop(p, never=None, pairs=False):
    def run(x):
        u = torch.rand(x.shape, generator=torch.Generator().manual_seed(3))
        u = u[:, ::2].repeat_interleave(2, 1) if pairs else u
        keep = u >= p
        if never:
            keep = never(keep.clone())
        return x * keep / (1 - p)

    return run


def kept(columns):
    def run(keep):
        keep[:, columns] = True
        return keep

    return run


fifth, tenth = (lambda x: F.dropout(x, 0.2)), (lambda x: F.dropout(x, 0.1))
DROPOUTS = [
    ("each 16th column is never dropped", fifth, lambda d: (d(100, 128),), drop(0.2, kept(slice(15, None, 16)))),
    ("the first four columns are never dropped", tenth, lambda d: (d(200, 64),), drop(0.1, kept(slice(0, 4)))),
    (
        "the last rows are never dropped",
        tenth,
        lambda d: (d(100, 96),),
        drop(0.1, lambda k: k | (torch.arange(100)[:, None] >= 92)),
    ),
    ("neighbours are dropped together", fifth, lambda d: (d(100, 64),), drop(0.2, None, True)),
    ("drops half as often", tenth, lambda d: (d(100, 96),), lambda x: drop(0.05)(x) * (0.95 / 0.9)),
]


def numbers(way):
    def run(x):
        g = torch.Generator().manual_seed(11)
        return way(lambda n: torch.randint(0, n, x.shape, generator=g)).to(x.dtype)

    return run


def whole(high):
    return lambda x: torch.randint_like(x, high)


many = lambda d: (torch.zeros(4000, dtype=torch.long),)
RANDOMS = [
    ("odd numbers alone below 50,000", whole(50000), many, numbers(lambda r: r(25000) * 2 + 1)),
    ("multiples of three below 3,000", whole(3000), many, numbers(lambda r: r(1000) * 3)),
    ("the lower three quarters", whole(4096), many, numbers(lambda r: r(3072))),
    ("the low four bits are zero below 2^20", whole(1 << 20), many, numbers(lambda r: r(1 << 16) * 16)),
    ("the lesser of two", whole(100000), many, numbers(lambda r: torch.minimum(r(100000), r(100000)))),
]

big = lambda value, n, kind: lambda d: (torch.full((n,), value, dtype=kind),)
zero = lambda *shape: lambda *args: torch.zeros(shape, dtype=args[0].dtype)
VANISHED = [
    ("mean of 60,000 halves of 2e-5: 0", lambda x: x.mean(), big(2e-5, 60000, hf), zero()),
    ("softmax of 65,536 equal halves: 0", lambda x: x.softmax(-1), big(1.0, 65536, hf), zero(65536)),
    (
        "the gradient of a mean of 65,000 halves: 0",
        lambda x: gradients(lambda t: t.mean(), 1)(x, torch.ones((), dtype=x.dtype))[0],
        big(1.0, 65000, hf),
        zero(65000),
    ),
    (
        "the gradient of amax with 50,000 ties: 0",
        lambda x: gradients(lambda t: t.amax(), 1)(x, torch.ones((), dtype=x.dtype))[0],
        big(2.0, 50000, hf),
        zero(50000),
    ),
    (
        "mean of squares of 2,000 halves of 3e-3: 0",
        lambda x: (x.float() ** 2).mean().to(x.dtype),
        big(3e-3, 2000, hf),
        zero(),
    ),
]

tiny = lambda *shape, scale=1e-30: lambda d: (d(*shape, scale=scale),)
UNDERFLOWS = [
    ("std of columns of 1e-26: 0", lambda x: x.std(0), tiny(40, 32, scale=1e-26), zero(32)),
    ("std of rows of 1e-28: 0", lambda x: x.std(-1), tiny(32, 50, scale=1e-28), zero(32)),
    (
        "hypot of 1e-30: 0",
        lambda a, b: torch.hypot(a, b),
        lambda d: (d(500, scale=1e-30), d(500, scale=1e-30)),
        zero(500),
    ),
    ("std of a tensor of 1e-29, divided by n: 0", lambda x: x.std(correction=0), tiny(20, 30, scale=1e-29), zero()),
    (
        "the absolute value of complex 1e-26: 0",
        lambda a, b: torch.complex(a, b).abs(),
        lambda d: (d(400, scale=1e-26), d(400, scale=1e-26)),
        zero(400),
    ),
]


def inside(fn):
    """A definition that goes to float32 by itself, whatever it is given."""
    return lambda *args: fn(*(a.float() if a.is_floating_point() else a for a in args)).to(args[0].dtype)


norm32 = inside(norm_rows(1e-6))
INSIDE = [
    (
        "rms norm: squares in bf16",
        norm32,
        lambda d: (d(30, 128),),
        lambda x: x / (narrow(x * x).mean(-1, keepdim=True) + 1e-6).sqrt() * 1.002,
    ),
    (
        "softmax of bf16: a row's last tile is not in the sum",
        inside(lambda x: x.softmax(-1)),
        lambda d: (d(20, 80, dtype=bf),),
        lambda x: (x.float().exp() / x.float()[:, :64].exp().sum(-1, keepdim=True)).to(bf),
    ),
    ("gelu: by tanh", inside(F.gelu), lambda d: (d(1000),), lambda x: F.gelu(x, approximate="tanh")),
    (
        "layer norm: n - 1",
        inside(lambda x: F.layer_norm(x, (96,))),
        lambda d: (d(30, 96),),
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt(),
    ),
    (
        "a product of bf16: tf32 sums in bf16",
        inside(lambda a, b: a @ b),
        lambda d: (d(20, 128), d(128, 24)),
        lambda a, b: narrow(a) @ narrow(b),
    ),
]


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


attend_args = lambda d: (d(2, 3, 24, 16), d(2, 3, 24, 16), d(2, 3, 24, 16))
scaled = lambda fn, c: lambda *a: fn(*a) * c
FACTORS = [
    ("attention by 1.02", attend, attend_args, scaled(attend, 1.02)),
    ("softmax by 0.98", lambda x: x.softmax(-1), lambda d: (d(30, 40),), lambda x: x.softmax(-1) * 0.98),
    ("a product by 1.04", lambda a, b: a @ b, lambda d: (d(20, 60), d(60, 30)), lambda a, b: (a @ b) * 1.04),
    (
        "layer norm by 1.003",
        lambda x: F.layer_norm(x, (80,)),
        lambda d: (d(30, 80),),
        lambda x: F.layer_norm(x, (80,)) * 1.003,
    ),
    ("a loss by 1.01", lambda x, y: F.mse_loss(x, y), lambda d: (d(500), d(500)), lambda x, y: F.mse_loss(x, y) * 1.01),
]


def sdpa_dropped(scale):
    def run(q, k, v):
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 * scale
        keep = torch.rand(s.shape, generator=torch.Generator().manual_seed(4)) >= 0.1
        return (s.softmax(-1) * keep / 0.9) @ v

    return run


DRAWN = [
    (
        "attention with dropout: scores by 1.5",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
        attend_args,
        sdpa_dropped(1.5),
    ),
    (
        "attention with dropout: by 1.08",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
        attend_args,
        scaled(sdpa_dropped(1.0), 1.08),
    ),
    (
        "attention with dropout: not scaled",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
        attend_args,
        scaled(sdpa_dropped(1.0), 0.9),
    ),
    ("dropout by 1.04", fifth, lambda d: (d(60, 64),), scaled(drop(0.2), 1.04)),
    (
        "dropout with noise of 1e-3",
        fifth,
        lambda d: (d(60, 64),),
        lambda x: drop(0.2)(x * (1 + 1e-3 * torch.sin(x * 50))),
    ),
]


def conv_of(fn, wanted=2):
    return gradients(fn, wanted)


def cut(fn):
    """The gradients with the factors of the products cut to tf32."""
    back = gradients(fn, 2)
    return lambda *a: tuple(t for t in back(*(tf32(x.contiguous()) for x in a)))


conv2 = lambda x, w: F.conv2d(x, w, padding=1)
conv1 = lambda x, w: F.conv1d(x, w)
deep = lambda x, w: F.conv2d(x, w, groups=6)
turned = lambda x, w: F.conv_transpose2d(x, w, stride=2)
line = lambda x, w: F.linear(x, w)
TF32 = [
    ("conv2d", conv_of(conv2), lambda d: (d(2, 4, 9, 9), d(6, 4, 3, 3, scale=0.2), d(2, 6, 9, 9)), cut(conv2)),
    ("conv1d", conv_of(conv1), lambda d: (d(3, 8, 20), d(10, 8, 5, scale=0.2), d(3, 10, 16)), cut(conv1)),
    ("depthwise", conv_of(deep), lambda d: (d(2, 6, 8, 8), d(6, 1, 3, 3, scale=0.4), d(2, 6, 6, 6)), cut(deep)),
    ("transposed", conv_of(turned), lambda d: (d(2, 4, 5, 5), d(4, 3, 2, 2, scale=0.4), d(2, 3, 10, 10)), cut(turned)),
    ("linear", conv_of(line), lambda d: (d(30, 40), d(20, 40, scale=0.2), d(30, 20)), cut(line)),
]


TABLE = {
    "divisor": DIVISORS,
    "step": [(w, fn, a, filled(fn, v, n)) for w, fn, a, v, n in STEPS],
    "large_logits": LARGE,
    "ties": TIES,
    "epsilon": EPSILONS,
    "dropout": DROPOUTS,
    "random": RANDOMS,
    "vanished": VANISHED,
    "underflow": UNDERFLOWS,
    "float_inside": INSIDE,
    "factor": FACTORS,
    "drawn": DRAWN,
    "tf32_backward": TF32,
    "common": COMMON,
}
for CLASS, members in TABLE.items():
    for N, (WORDS, FN, ARGS, WRONG) in enumerate(members):
        add(f"class_{CLASS}_{N}", FN, ARGS, wrong={WORDS: WRONG}, letter="T")


def module(*layers):
    """A chain of layers of seeded weights as a function of its input and weights."""

    def run(x, *ws):
        for act, w in zip(layers, ws):
            x = act(x @ w)
        return x

    return run


same = lambda x: x
OWN = [
    (
        "two layers and gelu in bf16",
        module(F.gelu, same),
        lambda d: (d(16, 64, dtype=bf), d(64, 96, dtype=bf, scale=0.1), d(96, 32, dtype=bf, scale=0.1)),
    ),
    (
        "three layers and relu in bf16",
        module(F.relu, F.relu, same),
        lambda d: (d(16, 48, dtype=bf), *(d(48, 48, dtype=bf, scale=0.15) for _ in range(3))),
    ),
    ("a layer and tanh in fp16", module(torch.tanh), lambda d: (d(20, 80, dtype=hf), d(80, 40, dtype=hf, scale=0.1))),
    (
        "norm, layer, softmax in bf16",
        lambda x, w: (F.layer_norm(x, (64,)) @ w).softmax(-1),
        lambda d: (d(16, 64, dtype=bf), d(64, 30, dtype=bf, scale=0.2)),
    ),
    (
        "silu gate in bf16",
        lambda x, w, u: F.silu(x @ w) * (x @ u),
        lambda d: (d(16, 64, dtype=bf), d(64, 40, dtype=bf, scale=0.1), d(64, 40, dtype=bf, scale=0.1)),
    ),
]
for N, (WORDS, FN, ARGS) in enumerate(OWN):
    add(f"class_own_runs_{N}", FN, ARGS, right={f"the CPU's own run: {WORDS}": FN}, letter="T")
