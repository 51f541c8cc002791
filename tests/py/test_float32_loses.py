# SPDX-License-Identifier: Apache-2.0
"""What all elements of a float32 result lose together is held to what float32 loses in any order on the very
inputs, also where that is nearly all; so is a row, a head or part of one, however little the rest loses; single
elements of what adds nothing are."""

import pytest
import torch
from ulpscope import judge_call

F = torch.nn.functional
FLAGGED = ("wrong", "reduced", "nonfinite")
DRAW = torch.Generator().manual_seed(23)


def randn(*sizes):
    return torch.randn(*sizes, generator=DRAW)


def bf(x):
    return x.bfloat16().float()


def cut(exact):
    """float32 toward zero."""
    near = exact.float()
    return torch.where(near.double().abs() > exact.abs(), near.nextafter(torch.zeros(())), near)


# ---- definitions, and kernels with a keyword for what is wrong ----


def softmax(x, share=0.0, base_2=False):
    y = x - x.amax(-1, keepdim=True)
    e = torch.exp2(y * 1.4426950408889634) if base_2 else y.exp()
    total = e.flip(-1).cumsum(-1)[:, -1:] * (1 + share * (torch.arange(len(x))[:, None] % 5))
    return e / total


def norm(x, share=0.0):
    h = x - x.mean(-1, keepdim=True)
    q = h.square().sum(-1, keepdim=True) / x.shape[-1]
    return h * (q + 1e-5).rsqrt() * (1 + share * h[:, :1].sin())


def smoothed(x, t, eps=0.1):
    y = x - x.amax(-1, keepdim=True)
    log = y.exp().sum(-1).log()
    return (1 - eps) * (log - y.gather(1, t[:, None])[:, 0]) + eps * (log - y.mean(-1))


def smoothed_loss(x, t):
    return F.cross_entropy(x, t, label_smoothing=0.1, reduction="none")


def statistics(x, v):
    v = v.clone()
    return F.batch_norm(x, torch.zeros_like(v), v, training=True), v


def statistics_with(eps):
    def kernel(x, v):
        n = x.numel() // x.shape[1]
        q = x.transpose(0, 1).flatten(1).var(1) + eps
        return F.batch_norm(x, None, None, training=True), 0.9 * v + 0.1 * q, n

    return lambda x, v: kernel(x, v)[:2]


def product(a, b, parts=None, truncated=False):
    if parts:
        a1, b1 = bf(a), bf(b)
        a2, b2 = bf(a - a1), bf(b - b1)
        return {3: a1 @ b2 + a2 @ b1, 4: a2 @ b2 + a1 @ b2 + a2 @ b1}[parts] + a1 @ b1
    if truncated:
        return truncating(a[:, None] * b.T)
    total = torch.zeros(len(a), b.shape[1])
    for k in range(a.shape[1]):
        total = total + a[:, k, None] * b[None, k]
    return total


def truncating(terms, block=32):
    """Sums over the last dimension, in blocks, by accumulators that cut off."""
    while terms.shape[-1] > 1:
        total = torch.zeros(*terms.shape[:-1], -(-terms.shape[-1] // block))
        for k in range(min(block, terms.shape[-1])):
            part = terms[..., k::block]
            total[..., : part.shape[-1]] = cut(total[..., : part.shape[-1]].double() + part)
        terms = total
    return terms[..., 0]


def gram(g, half=False):
    x = g / g.norm()
    m = x @ x.T
    m = m.half().float() if half else m
    for _ in range(4):
        x = 3.4445 * x - (4.775 * m - 2.0315 * (m @ m)) @ x
        m = x @ x.T
    return x


def hypot(x, y, small=0.0):
    a, b = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    r = b / a
    return a * torch.where(r < small, 1.0, (1 + r * r).sqrt())


def kurtosis(x):
    h = x - x.mean(-1, keepdim=True)
    return (h**3).mean(-1) / h.square().mean(-1) ** 1.5


def kurtosis_of(x, of=32, parts=32):
    h = x - x[:, :1]
    h = h - h.mean(-1, keepdim=True)
    cubes = sum(p.sum(-1) for p in (h**3).chunk(parts, -1)[:of]) / x.shape[-1]
    return cubes / h.square().mean(-1) ** 1.5


def cosine(a, n):
    return 1 - F.cosine_similarity(a, a + n)


def cosine_of(a, n, narrow=False, more=0.0, chord=False):
    b = bf(a + n) if narrow else a + n
    u, v = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    return more + (0.5 * (u - v).square().sum(-1) if chord else 1 - (u * v).sum(-1))


def attention(q, k, v, bias, worse=(), how=None, apart=False):
    """`worse`: a place whose results go through `how`. `apart`: rows are shifted, which cancels."""
    s = q @ k.mT * q.shape[-1] ** -0.5 + bias - 20 * apart
    p = (s - s.amax(-1, keepdim=True)).exp()
    out = (p @ v) / p.sum(-1, keepdim=True)
    if how:
        out = out.index_put(tuple(map(torch.tensor, worse)), how(out[worse]))
    return out


HEAVY = randn(96, 333) * (2 * randn(96, 333)).exp()
ROWS = (randn(96, 333) * 4,)
LOGITS = (randn(150, 400) + 60, torch.randint(0, 400, (150,), generator=DRAW))
IMAGES = (randn(16, 24, 6, 6) + 1, torch.rand(24, generator=DRAW) + 0.5)
MATRICES = (randn(24, 2048), randn(2048, 20))
FAR = (randn(9, 3072) + 1500,)
NEAR = (randn(72, 200), randn(72, 200) * 1.5e-3)
HEADS = randn(2, 4, 32, 64) * 2, randn(2, 4, 640, 64) * 2, randn(2, 4, 640, 64), randn(2, 4, 32, 640)
SIDES = (randn(3000), randn(3000) * torch.exp2(randn(3000) * 6))

# name: (definition, arguments, kernel)
WRONG = {
    "one share of each row, of a softmax": (F.softmax, (*ROWS, -1), lambda x, _: softmax(x, 3e-6)),
    "one share of each row, of a norm": (lambda x: F.layer_norm(x, x.shape[-1:]), ROWS, lambda x: norm(x, 3e-6)),
    "0.1 a little larger": (smoothed_loss, LOGITS, lambda x, t: smoothed(x, t, 0.10003)),
    "epsilon in a variance": (statistics, IMAGES, statistics_with(2e-5)),
    "three products of bfloat16": (torch.matmul, MATRICES, lambda a, b: product(a, b, 3)),
    "the first product in float16": (gram, (randn(40, 90),), lambda g: gram(g, half=True)),
    "without the smaller side": (torch.hypot, SIDES, lambda x, y: hypot(x, y, 1 / 500)),
    "one part of 32 is missing": (kurtosis, FAR, lambda x: kurtosis_of(x, of=31)),
    "one side in bfloat16": (cosine, NEAR, lambda a, n: cosine_of(a, n, narrow=True)),
    "one row of one head through float16": (
        attention,
        HEADS,
        lambda *a: attention(*a, worse=(1, 3, 31), how=lambda row: row.half().float()),
    ),
    "sixteen of a row through float16": (
        attention,
        HEADS,
        lambda *a: attention(*a, worse=(0, 1, 7, range(32, 48)), how=lambda part: part.half().float()),
    ),
    "one row of a norm through float16, beside a scan": (
        lambda x: (F.layer_norm(x, x.shape[-1:]), x.cumsum(-1)),
        ROWS,
        lambda x: (torch.cat([norm(x[:-1]), norm(x[-1:]).half().float()]), x.cumsum(-1)),
    ),
    "a millionth more": (cosine, NEAR, lambda a, n: cosine_of(a, n, more=2e-6)),
}

RIGHT = {
    "heads, in steps": (attention, HEADS, attention),
    "heads, beside a number that cancels": (attention, HEADS, lambda *a: attention(*a, apart=True)),
    "a norm beside a scan": (
        lambda x: (F.layer_norm(x, x.shape[-1:]), x.cumsum(-1)),
        ROWS,
        lambda x: (norm(x), x.cumsum(-1)),
    ),
    "another order": (F.softmax, (*ROWS, -1), lambda x, _: softmax(x)),
    "powers of 2": (F.softmax, (*ROWS, -1), lambda x, _: softmax(x, base_2=True)),
    "two passes": (lambda x: F.layer_norm(x, x.shape[-1:]), ROWS, norm),
    "in steps": (smoothed_loss, LOGITS, smoothed),
    "statistics": (statistics, IMAGES, statistics_with(0.0)),
    "one term after another": (torch.matmul, MATRICES, product),
    "accumulators that cut off": (
        torch.matmul,
        (randn(40, 256), randn(256, 40)),
        lambda a, b: product(a, b, truncated=True),
    ),
    "a gradient whose sum cuts off": (
        lambda g, y: torch.ops.aten._log_softmax_backward_data(g, y, -1, torch.float32),
        (HEAVY, (randn(96, 333) * 4).log_softmax(-1)),
        lambda g, y: g - y.exp() * truncating(g)[:, None],
    ),
    "a moment by its two shares": (
        lambda m, g: m + (g - m) * (1 - 0.9),
        (HEAVY, HEAVY.roll(1, 0)),
        lambda m, g: 0.9 * m + (1 - 0.9) * g,
    ),
    "a variance that cuts off": (
        lambda x: x.var(-1, correction=0),
        (randn(12, 96) ** 3,),
        lambda x: truncating((x - x.mean(-1, keepdim=True)).square()) / x.shape[-1],
    ),
    "four products of bfloat16 and a rest": (
        torch.matmul,
        MATRICES,
        lambda a, b: product(a, b, 4) + (a - bf(a) - bf(a - bf(a))) @ b + a @ (b - bf(b) - bf(b - bf(b))),
    ),
    "in the same order": (gram, (randn(40, 90),), gram),
    "scaled": (torch.hypot, SIDES, hypot),
    "shifted": (kurtosis, FAR, kurtosis_of),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_loses_more_than_float32_is_flagged(name):
    fn, args, kernel = WRONG[name]
    found = judge_call(fn, args, outputs=kernel(*args), cause=False)
    assert found.verdict in FLAGGED, found.sentence


@pytest.mark.parametrize("name", RIGHT)
def test_what_loses_as_much_passes(name):
    fn, args, kernel = RIGHT[name]
    found = judge_call(fn, args, outputs=kernel(*args), cause=False)
    assert found.verdict == "pass", found.sentence


@pytest.mark.parametrize("size", [1.5e-2, 1.5e-3, 1.5e-4, 1e-5])
@pytest.mark.parametrize("chord", [False, True])
def test_what_float32_loses_where_it_leaves_little_passes(chord, size):
    near = (NEAR[0], NEAR[1] / 1.5e-3 * size)
    found = judge_call(cosine, near, outputs=cosine_of(*near, chord=chord), cause=False)
    nobody_knows = size < 1e-3 and not chord
    assert found.verdict == ("unjudged" if nobody_knows else "pass"), found.sentence
    assert not nobody_knows or "loses no more than these" in found.sentence
    found = judge_call(cosine, near, outputs=cosine_of(*near, more=2e-6), cause=False)
    assert found.verdict in FLAGGED, found.sentence


@pytest.mark.parametrize("size", [3e-4, 1.5e-4, 1e-5])
def test_nothing_passes_where_nobody_knows(size):
    """Runs of float32 are off by more than all of it: what is off by less is not told from it."""
    near = (NEAR[0], NEAR[1] / 1.5e-3 * size)
    truth = cosine(*(t.double() for t in near))
    for out in (torch.zeros(72), truth * 1.5, truth.flip(0), -truth):
        found = judge_call(cosine, near, outputs=out.float(), cause=False)
        assert found.verdict in ("unjudged", *FLAGGED), found.sentence
    out = truth + 40 * truth.abs() + 4e-6
    assert judge_call(cosine, near, outputs=out.float(), cause=False).verdict in FLAGGED


def test_a_factor_that_no_run_has_is_wrong_however_little_is_right():
    near = (NEAR[0], NEAR[1] * 0.6)
    truth = cosine(*(t.double() for t in near))
    for factor, verdicts in ((1.75, ("wrong",)), (0.6, ("wrong", "unjudged")), (1.3, ("wrong", "unjudged"))):
        found = judge_call(cosine, near, outputs=(truth * factor).float(), cause=False)
        assert found.verdict in verdicts, found.sentence


OFFSETS = {
    "exp": (torch.exp, (randn(400) * 0.3,)),
    "log": (torch.log, (randn(400).abs() + 0.5,)),
    "softmax": (F.softmax, (*ROWS, -1)),
    "product": (torch.matmul, MATRICES),
}


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("share", [1e-1, 1e-2, 1e-3])
def test_what_is_off_by_one_number_everywhere_is_wrong(name, share):
    """No precision loses the same everywhere; and what has fewer than 4.5 bits is never `reduced`."""
    fn, args = OFFSETS[name]
    out = fn(*args)
    found = judge_call(fn, args, outputs=out + share * out.abs().mean(), cause=False)
    assert found.verdict == "wrong", found.sentence
    noisy = out * (1 + share / 4 * randn(*out.shape))
    assert judge_call(fn, args, outputs=noisy, cause=False).verdict in FLAGGED


HUGE = {
    "softmax": lambda x: F.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "sin": torch.sin,
    "reciprocal": torch.reciprocal,
}


@pytest.mark.parametrize("name", HUGE)
def test_a_result_is_not_nothing_beside_huge_inputs(name):
    """What is a trillionth of its inputs may be rounding, and is not where it follows them."""
    fn, x = HUGE[name], 1e15 * randn(30, 60)
    right = fn(x.double()).float()
    for good in (right, fn(x)):
        found = judge_call(fn, (x,), outputs=good, cause=False)
        assert found.verdict == "pass", found.sentence
    for other in (right * 1.01, 0 * right, right.flip(0)):
        found = judge_call(fn, (x,), outputs=other, cause=False)
        assert found.verdict in FLAGGED, found.sentence


def test_what_float32_has_nothing_of_is_no_pass():
    """Squares that overflow leave zero, here as on the CPU; another number is wrong all the same."""
    x, fn = 1e30 * randn(30, 60), HUGE["normalize"]
    zeros = judge_call(fn, (x,), outputs=fn(x), cause=False)
    assert not fn(x).any() and zeros.verdict == "unjudged", zeros.sentence
    assert judge_call(fn, (x,), outputs=fn(x).index_fill(0, torch.tensor([2]), 0.1), cause=False).verdict == "wrong"
    assert judge_call(fn, (x,), outputs=fn(x.double()).float(), cause=False).verdict == "pass"
