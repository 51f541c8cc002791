# SPDX-License-Identifier: Apache-2.0
"""The sets of docs/reference/excuses.md: what an excuse admits passes, and a value one step outside is
accused: at significands near 1, 1.5 and 2, in float32, bfloat16 and float16."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import torch
from calls import make_call
from test_excuses import CODES

import ulpscope.sim  # noqa: F401, the device
from ulpscope import judge_call
from ulpscope.executors.device import TorchDevice
from ulpscope.session import judging

aten = torch.ops.aten
FLAGGED = ("wrong", "reduced", "nonfinite")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
NEAR = {"1": 1.03125, "1.5": 1.5, "2": 1.96875}  # in 6 bits, so that all dtypes hold them
WHOLE = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
AT = 37
# What rows say that do not pass.
OTHERS = {
    "ill_conditioned": "unjudged",
    "overflow": "unjudged",
    **dict.fromkeys(("corner", "written_twice", "out_of_range"), "undefined"),
}
SETS = {}  # (code, function's name) -> function of a significand and a dtype


@dataclass
class Set:
    """A call, an honest answer, and values of its element AT."""

    fn: object
    args: tuple
    honest: torch.Tensor
    inside: list
    outside: list
    kwargs: dict = field(default_factory=dict)
    at: int = AT

    def judged(self, value):
        out = self.honest.clone()
        out.view(-1)[self.at] = value
        return judge_call(self.fn, self.args, self.kwargs, outputs=out, cause=False)


def of(code, dtypes=DTYPES, near=NEAR):
    def add(made):
        for name in dtypes:
            for m in near:
                SETS[code, made.__name__, name, m] = made
        return made

    return add


def further(x, n, dtype):
    """`n` ulps further from zero."""
    t = torch.as_tensor(float(x), dtype=dtype)
    return (t.view(WHOLE[dtype]) + n).view(dtype).item()


def normal(*sizes, seed=5):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def even(*sizes, seed=5):
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(seed))


def between(m, n, dtype):
    """Numbers around m of which element AT is m."""
    x = (1 + even(n)).to(dtype)
    x[AT] = m
    return x


# ---- steps ---------------------------------------------------------------------------


@of("step")
def floor_of_a_product(m, dtype):
    near = 2 - 2.0**-23
    x = (4 * even(512) + 8.25).to(dtype)
    x[AT] = 1.5  # times `near` it lies just below 3

    def fn(x):
        return ((x.double() * near).floor() * (m / 3)).to(x.dtype)

    right = fn(x)
    step = torch.tensor(m / 3).double()
    ulps = 256 if dtype == torch.float32 else 2
    return Set(
        fn,
        (x,),
        right,
        [2 * step, 3 * step],
        [4 * step, step, further(m, ulps, dtype), further(2 * step, -ulps, dtype)],
    )


def _beside(m, value):
    """Rows of 64 numbers; the mean of one is `value`, but for what float32 keeps of each."""
    x = normal(512 * 64).view(512, 64)
    x[AT] -= x[AT].double().mean() - value
    return x


@of("step", ("float32",))
def a_remainder_of_a_mean(m, dtype):
    x = _beside(m, 2 * m)
    return Set(
        lambda x: torch.remainder(x.mean(-1), 2 * m),
        (x,),
        torch.remainder(x.double().mean(-1), 2 * m).float(),
        [0.0, 2 * m],
        [m, 1.5 * m, 1.9 * m, 0.1 * m, -m],
    )


@of("step", ("float32",))
def one_of_two_by_a_mean(m, dtype):
    def fn(x):
        return torch.where(x.mean(-1) > m, x.amax(-1), x.amin(-1))

    x = _beside(m, m)
    low, high = x[AT].min().item(), x[AT].max().item()
    return Set(fn, (x,), fn(x.double()).float(), [low, high], [(low + high) / 2, 0.9 * high, 1.1 * high, 0.9 * low])


@of("step", ("float32",))
def a_code_at_a_tie(m, dtype):
    """Half of 255 exactly, if the largest is taken off first."""
    x = normal(512 * 2).view(512, 2)
    x[AT] = 0.842 * m
    honest = (x.double().softmax(-1)[:, 0] * 255).round().float()
    return Set(lambda x: (x.softmax(-1)[:, 0] * 255).round(), (x,), honest, [127.0, 128.0], [126.0, 129.0, 127.5])


# ---- what float32 loses ----------------------------------------------------------------


def through(x, size):
    """A number of float32 and a dimension: the sum is in float32, and eager rounds once."""
    return ((x + size) - size).to(x.dtype)


def _lost(m, dtype, size, step, terms):
    """Sums that lose all below `step`. Where no step leaves few values, they lie between runs that are off by
    a step or two, and within four times their spread."""
    x = ((1 + even(512)) * terms * step).to(dtype)
    x[AT] = m * terms * step
    honest = ((x.float() + size) - size).to(dtype)
    low = torch.floor(x[AT].double() / step).item() * step
    high = torch.ceil(x[AT].double() / step).item() * step
    return Set(
        through,
        (x, torch.tensor([size])),
        honest,
        [low, high],
        [high + 12 * step, low - 12 * step, 40 * terms * step, -m * 1024],
    )


@of("yardstick")
def a_sum_beside_a_large_number(m, dtype):
    return _lost(m, dtype, 1024.0, 2.0**-13, 8)


@of("ill_conditioned")
def a_sum_beside_a_larger_number(m, dtype):
    return _lost(m, dtype, 2.0**14, 2.0**-9, 1)


@of("float32_loses")
def a_sum_beside_a_number(m, dtype):
    x = between(m, 512, dtype)
    honest = ((x.float() + 1024) - 1024).to(dtype)
    off = max(2.0**-8, 4 * (further(m, 1, dtype) - m))
    return Set(through, (x, torch.tensor([1024.0])), honest, [m], [m + off, m - off])


@of("sensitivity")
def an_exponential(m, dtype):
    """exp(x) near 2^14 m: S is 10 times |R|."""
    x = (9 + even(512)).to(dtype)
    x[AT] = torch.tensor(m * 2.0**13).log().item()
    right = x[AT].double().exp()
    off = max(right.item() * 10 * 48 * 2.0**-24, 2 * 2.0**-8 * right.item() if dtype == torch.bfloat16 else 0)
    if dtype == torch.float16:
        off = 3 * (further(right, 1, dtype) - further(right, 0, dtype))
    return Set(
        torch.exp, (x,), x.float().exp().to(dtype), [right, right * (1 + 10 * 4 * 2.0**-24)], [right + off, right - off]
    )


@of("rounded_otherwise")
def a_saturated_activation(m, dtype):
    g, x = between(m, 512, dtype), (12 + 12 * even(512)).to(dtype)
    honest = aten.gelu_backward(g.float(), x.float(), approximate="tanh").to(dtype)
    off = 2 if dtype != torch.float32 else 1 << 12
    return Set(
        aten.gelu_backward,
        (g, x),
        honest,
        [m],
        [further(m, off, dtype), further(m, -off, dtype)],
        {"approximate": "tanh"},
    )


# ---- sums ------------------------------------------------------------------------------


@of("order_of_adding")
def small_terms_beside_a_large_one(m, dtype):
    n = 1 << 17
    x = torch.full((1, n), 2.0**-15, dtype=dtype)
    x[0, 0] = m * 2.0**10
    one, right = m * 2.0**10, m * 2.0**10 + (n - 1) * 2.0**-15
    lost = right - one
    ulps = 2 if dtype != torch.float32 else 64
    outside = [further(right + 1.25 * lost, ulps, dtype), further(one - 1.25 * lost, -ulps, dtype)]
    return Set(_sum, (x,), torch.tensor([right]).to(dtype), [one, right], outside, at=0)


def _sum(x):
    return x.sum(1)


@of("fan_in")
def a_mean(m, dtype):
    x = even(64, 1024).mul(0.5 * m).add(0.75 * m).to(dtype)
    right = x.double().mean(1)
    off = 900 * 2.0**-24 * right[AT].item()  # N, of other orders, is about 3 |R|
    if dtype != torch.float32:
        off = 2 * (further(right[AT], 1, dtype) - further(right[AT], 0, dtype))
    return Set(
        lambda x: x.mean(1),
        (x,),
        right.to(dtype),
        [right[AT], right[AT] * (1 + 2.0**-22)],
        [right[AT] + off, right[AT] - off],
    )


# ---- zeros and subnormals ----------------------------------------------------------------


@of("nothing")
def beside_a_mask(m, dtype):
    x, mask = between(m, 512, dtype), (even(512, seed=7) > 0.5).to(dtype)
    mask[AT] = 0
    dust = 2.0**-40 if dtype != torch.float16 else 2.0**-24
    return Set(torch.mul, (x, mask), x * mask, [0.0, -0.0], [m * dust, -m * dust])


@of("flushed", ("float32", "bfloat16"))
def a_product_below_the_normal_numbers(m, dtype):
    x, y = between(m, 512, dtype), torch.full((512,), 2.0**-64).to(dtype)
    x = (x * 2.0**-65).to(dtype)
    y[::2] = 2.0**-30
    y[AT] = 2.0**-64
    right = (x.double() * y.double()).to(dtype)
    flushed = torch.where(right.abs() < 2.0**-126, 0, right)
    return Set(torch.mul, (x, y), flushed, [0.0], [m * 2.0**-128, m * 2.0**-127, -m * 2.0**-129])


# ---- steps of torch's own --------------------------------------------------------------


@of("own_steps", ("bfloat16", "float16"))
def products_in_a_row(m, dtype):
    """On a device that takes them apart; the steps that torch takes give `honest`."""
    a, b, c = normal(16, 24).to(dtype), normal(24, 48, seed=6).to(dtype), normal(48, 12, seed=7).to(dtype)
    honest = torch.chain_matmul(a, b, c)
    right = torch.chain_matmul(*(t.double() for t in (a, b, c)))
    off = torch.frexp(right.abs()).mantissa.mul(2).sub(m).abs() + 64 * (honest.double() - right).abs() / right.abs()
    at = int(off.argmin())
    value = honest.view(-1)[at].item()
    inside = [value, right.view(-1)[at].item()]
    return OwnSteps(
        "aten::chain_matmul", ([a, b, c],), honest, inside, [further(value, 6, dtype), further(value, -6, dtype)], at=at
    )


class OwnSteps(Set):
    def judged(self, value):
        def run(call):
            answer = TorchDevice.run(device, call)
            given = {path: t.clone() for path, t in answer.outputs.items()}
            given["out[0]"].view(-1)[self.at] = value
            return replace(answer, outputs=given)

        device = TorchDevice("sim:0")
        device.run = run
        found = judging.judge_call(make_call(self.fn, *self.args), device, seconds=0)
        return SimpleNamespace(verdict=found.verdict, sentence=found.reason, notes=found.notes)


@of("rounded_between", ("bfloat16", "float16"))
def a_sum_of_rounded_products(m, dtype):
    """A product is rounded up or down (by chance, so seldom to what is far): two values, which the sum moves."""
    x, y, z = between(1.0, 512, dtype), even(512, seed=6).add(1).to(dtype), even(512, seed=7).mul(0.25).to(dtype)
    x[AT] = further(1.0, 43, dtype)
    y[AT] = further(m, 3, dtype)
    z[AT] = 2.0**-7 * m
    honest, exact = x * y + z, x.double() * y.double()
    right = (exact + z.double()).to(dtype)[AT].item()
    near, whole = (x * y)[AT].double().item(), exact[AT].item()
    other = further(near, 1 if whole > near else -1, dtype)
    low, high = (torch.tensor(v + z[AT].item(), dtype=dtype).item() for v in sorted([near, other]))
    return Set(
        lambda x, y, z: x * y + z,
        (x, y, z),
        honest,
        [honest[AT].item(), right],
        [further(high, 2, dtype), further(low, -2, dtype), 2 * right],
    )


# ---- what an operator does not promise ---------------------------------------------------


@of("corner")
def a_dead_unit(m, dtype):
    g, y = between(m, 512, dtype), normal(512).relu().to(dtype)
    y[AT] = 0
    x = torch.where(y > 0, y, -1).to(dtype)
    x[AT] = 0
    honest = torch.where(x > 0, g, 0)
    ulps = 1 if dtype != torch.float32 else 256
    outside = [further(m, ulps, dtype), -further(2.0**-6, ulps, dtype), 2 * m]
    return Set(aten.leaky_relu_backward, (g, x, 0.0, False), honest, [0.0, m, m / 2], outside)


@of("written_twice")
def updates_of_one_place(m, dtype):
    x, v = between(1.0, 64, dtype), between(m, 512, dtype)
    i = torch.arange(512) % 64
    others = v.view(8, 64)[:, AT]
    taken = v.view(8, 64)[-1].clone()
    value = further(m, 1, dtype)
    while (others == value).any():
        value = further(value, 1, dtype)
    return Set(torch.scatter, (x, 0, i, v), taken, [m, others[3]], [value, 2 * value])


@of("out_of_range")
def conversions_that_saturate(m, dtype):
    x = (100 * normal(512)).to(dtype)
    x[AT] = m * 512
    low = (int(m * 512) + 128) % 256 - 128  # what a wider integer keeps
    honest = x.clamp(-128, 127).to(torch.int8)
    return Set(_to_int8, (x,), honest, [127, -128, 0, -1, low], [1, 126, -127, low + 1])


def _to_int8(x):
    return x.to(torch.int8)


# ---- NaN and Inf -------------------------------------------------------------------------


@of("same_kind")
def a_root_of_a_negative_number(m, dtype):
    x = between(m, 512, dtype)
    x[AT] = -m
    return Set(torch.sqrt, (x,), x.sqrt(), [float("nan")], [m, 0.0, float("inf"), float("-inf")])


@of("other_kinds")
def an_infinite_quotient(m, dtype):
    x = between(1.5, 512, dtype)
    x[AT] = 200.0
    big = torch.finfo(dtype).max
    return Set(_exp_over, (x,), _exp_over(x.double()).to(dtype), [float("inf")], [float("-inf"), float("nan"), m, big])


def _exp_over(x):
    return (4 * x).exp() / x


INF = float("inf")


@of("overflow", ("float32", "bfloat16"))
def terms_of_one_sign_beyond_the_largest_number(m, dtype):
    """Two terms are too large together; another between them takes one away again."""
    x = between(m, 1536, dtype).view(512, 3) * 2.0**100
    x[AT] = torch.tensor([m, -m, m], dtype=torch.float64) * 2.0**127
    right = m * 2.0**127
    return Set(_sum, (x,), x.double().sum(1).to(dtype), [right, INF], [-INF, float("nan"), 0.75 * right])


@of("overflow", ("float32", "bfloat16"))
def products_beyond_the_largest_number(m, dtype):
    a, b = between(m, 96, dtype).view(32, 3), between(1.0, 48, dtype).view(3, 16)
    a[2] = torch.tensor([-m, m, -m], dtype=torch.float64) * 2.0**100
    b[:, 5] = 2.0**27
    honest = (a.double() @ b.double()).to(dtype)
    right = -m * 2.0**127
    return Set(torch.mm, (a, b), honest, [right, -INF], [INF, float("nan"), 0.75 * right], at=2 * 16 + 5)


@of("overflow", ("float32", "bfloat16", "float16"))
def positive_terms_near_the_largest_number(m, dtype):
    """No order of adding comes to more than the sum itself."""
    x = torch.full((512, 4), m * torch.finfo(dtype).max / 16, dtype=dtype)
    right = x[AT].double().sum().item()
    return Set(_sum, (x,), x.double().sum(1).to(dtype), [right], [INF, -INF, float("nan"), 0.75 * right])


# ---- the property ------------------------------------------------------------------------


def test_the_sets_are_those_of_the_page():
    assert {code for code, *_ in SETS} <= set(CODES)


@pytest.mark.parametrize("key", SETS, ids="-".join)
def test_a_value_outside_of_its_set_is_accused(key):
    made = SETS[key](NEAR[key[3]], DTYPES[key[2]])
    for value in made.inside:
        verdict = made.judged(value)
        assert verdict.verdict in ("pass", OTHERS.get(key[0])), (value, verdict.sentence)
    for value in made.outside:
        verdict = made.judged(value)
        assert verdict.verdict in FLAGGED, (value, verdict.sentence, verdict.notes)


# ---- what no pass may say ----


def of_logits(x):
    return torch.nn.functional.cross_entropy(1e6 + x, torch.arange(len(x)) % x.shape[1], reduction="none")


def of_variance(x):
    return (100 + x).bfloat16().var(-1)


REACHED = {
    "steps": lambda x: x.softmax(-1).sum(-1).floor(),
    "equal logits": of_logits,
    "16 bits": of_variance,
    "cancels": lambda x: (1e4 + x).mean(-1) - 1e4,
    "subnormals": lambda x: 1e-38 * x.mean(-1),
    "ill-conditioned": lambda x: torch.nn.functional.layer_norm(1e7 + x, x.shape[-1:]).sum(-1),
}


CHANGES = (
    lambda r: r * (1 + 2.0**-12),
    lambda r: r * (1 - 2.0**-7),
    lambda r: r.roll(1),
    lambda r: 0 * r,
    lambda r: r + 1,
)


@pytest.mark.parametrize("name", REACHED)
def test_no_pass_has_fewer_bits_than_what_is_reduced(name):
    """The assert in src/case/case_finding.c, from as many sides as excuses have."""
    fn, g = REACHED[name], torch.Generator().manual_seed(35)
    x = torch.randn(64, 300, generator=g)
    right = fn(x)
    for share in (0.1, 0.4, 1.0):
        for change in CHANGES:
            out = torch.where(torch.rand(right.shape, generator=g) < share, change(right), right)
            found = judge_call(fn, (x,), outputs=out.to(right.dtype), cause=False)
            if found.passed:
                excused = any("elements are excused" in note for note in (*found.notes, found.sentence))
                assert excused or found.effective_bits >= 11 or "at least" in found.sentence, (share, found)
