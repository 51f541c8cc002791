# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels aimed at every row of the table of excuses, from drawn inputs: none passes in
silence. Each meets its excuse's condition as far as a wrong kernel can."""

import functools
import math
import tempfile
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from calls import make_call
import ulpscope
from selections import picks
from test_excuses import CODES
from ulpscope import _core, check_call, judge_call, reference
from ulpscope.executors.device import Answer, PythonDevice
from ulpscope.executors.formats import quantize
from ulpscope.executors.module_call import module_call
from ulpscope.judges import products
from ulpscope.judges.hops import strays
from ulpscope.session import judging as judging

aten = torch.ops.aten
SEEDS = (3, 1003)
FLAGGED = ("wrong", "reduced", "nonfinite")
# Of what most excuses touch nothing but an accusation will do. Wrong kernels of which none
# is possible, with the verdict that says so, and why.
UNSEEN = {
    "torn_rows": ("undefined", "each element holds one of the updates"),
    "coarse_inputs_below_noise": ("pass", "drawn: the inputs' rounding is far below the noise"),
    "a_scalar_off": ("pass", "of one number the bits that are left are told"),
    "half_that_overflows": ("pass", "float16 has Inf there: the reference leaves the dtype open"),
    "an_answer_where_shapes_do_not_fit": ("unjudged", "nobody knows what is right"),
}
KERNELS = {}  # code -> functions of a Draw


class Draw:
    """Numbers that hang on a seed."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *sizes):
        return torch.randn(*sizes, generator=self.generator)

    def even(self, *sizes):
        return torch.rand(*sizes, generator=self.generator)

    def whole(self, low, high, *sizes):
        return torch.randint(low, high, sizes, generator=self.generator)

    def some(self, like, share):
        return self.even(*like.shape) < share


@dataclass
class Wrong:
    """A call and what a wrong kernel gives for it."""

    fn: object
    args: tuple
    outputs: object
    kwargs: dict = field(default_factory=dict)
    most: float = 0.0  # bits that a pass may claim: as many as are left

    def judged(self):
        return judge_call(self.fn, self.args, self.kwargs, outputs=self.outputs, cause=False)


def aims_at(*codes):
    def add(made):
        for code in codes:
            KERNELS.setdefault(code, []).append(made)
        return made

    return add


def is_silent(name, verdict, most):
    """Whether a wrong kernel is not accused, or claims more than it may where it cannot be."""
    if verdict.verdict in FLAGGED:
        return False
    if name not in UNSEEN or verdict.verdict != UNSEEN[name][0]:
        return True
    told = math.isnan(verdict.effective_bits) or "elements are excused" in str(verdict.notes)
    return not told and verdict.effective_bits > most


# ---- rows for other layouts, vectors that may turn -----------------------------------


@aims_at("in_rows")
def rows_of_the_one_before(d):
    x = d.normal(8, 1).expand(8, 5)
    return WrongDevice("aten::median.dim", (x, 1), lambda x, dim: tuple(t.roll(1) for t in x.contiguous().median(dim)))


@aims_at("in_rows")
def strides_ignored(d):
    return WrongDevice("aten::exp.default", (d.normal(8, 8).t(),), lambda x: x.t().exp().contiguous())


def _symmetric(d):
    """With values of which three are one."""
    q = torch.linalg.qr(d.normal(12, 12).double())[0]
    return (q * torch.tensor([1.0, 1, 1, *range(2, 11)])) @ q.T


@aims_at("gauge")
def vectors_exchanged(d):
    def f(a, *more):
        w, v = torch.linalg.eigh(a)
        return w, v[:, [*range(10), 11, 10]]

    return WrongDevice("aten::_linalg_eigh.default", (_symmetric(d).float(), "L", True), f)


@aims_at("gauge")
def vectors_of_other_values_mixed(d):
    def f(a, *more):
        w, v = torch.linalg.eigh(a)
        x, y = v[:, 5], v[:, 6]
        return w, torch.stack([*v.T[:5], (x + y / 64) / 1.000122, (y - x / 64) / 1.000122, *v.T[7:]], 1)

    return WrongDevice("aten::_linalg_eigh.default", (_symmetric(d).float(), "L", True), f)


@aims_at("gauge")
def vectors_of_one_value_too_long(d):
    def f(a, *more):
        w, v = torch.linalg.eigh(a)
        return w, torch.cat([v[:, :3] * (1 + 2**-10), v[:, 3:]], 1)

    return WrongDevice("aten::_linalg_eigh.default", (_symmetric(d).float(), "L", True), f)


@aims_at("gauge")
def one_side_turned(d):
    def f(a, *more):
        u, s, v = torch.linalg.svd(a, full_matrices=False)
        return torch.cat([-u[:, :1], u[:, 1:]], 1), s, v

    return WrongDevice("aten::_linalg_svd.default", (d.normal(12, 8), False, True), f)


# ---- what an operator does not promise -----------------------------------------------


@aims_at("corner")
def dead_units_at_random(d):
    g, y = d.normal(64, 32), d.normal(64, 32).relu()
    out = aten.threshold_backward(g, y, 0.0)
    return Wrong(aten.threshold_backward, (g, y, 0.0), torch.where(y == 0, g * (5 * d.even(64, 32) - 2), out))


@aims_at("corner")
def beyond_a_side(d):
    g, x = d.normal(64, 32), torch.where(d.even(64, 32) < 0.02, 0.0, d.normal(64, 32))
    out = aten.leaky_relu_backward(g, x, 0.1, False)
    return Wrong(aten.leaky_relu_backward, (g, x, 0.1, False), torch.where(x == 0, 1.3 * g, out))


@aims_at("written_twice")
def torn_rows(d):
    x, v, i = d.normal(32, 8), d.normal(64, 8), d.whole(0, 32, 64)

    def put(x, i, v):
        return torch.index_put(x, (i,), v)

    out, other = put(x, i, v), put(x, i.flip(0), v.flip(0))
    return Wrong(put, (x, i, v), torch.where(d.some(out, 0.5), out, other))


@aims_at("written_twice")
def updates_of_neighbours(d):
    x, v, i = d.normal(32, 8), d.normal(64, 8), d.whole(0, 32, 64, 8)
    out = x.scatter(0, i, v)
    return Wrong(torch.scatter, (x, 0, i, v), torch.where(d.some(out, 0.1), out.roll(1, 0), out))


@aims_at("out_of_range")
def garbage_for_what_saturates(d):
    x = 100 * d.normal(64, 64)
    out = x.clamp(-128, 127).to(torch.int8)
    garbage = d.whole(-128, 128, 64, 64).to(torch.int8)
    return Wrong(_to_int8, (x,), torch.where(x.abs() >= 128, garbage, out))


def _to_int8(x):
    return x.to(torch.int8)


@aims_at("zero_division")
def a_quotient_off_by_one(d):
    a, b = d.whole(-50, 50, 400), d.whole(0, 4, 400)
    out = torch.where(b == 0, 0, a.div(b.clamp(min=1), rounding_mode="floor"))
    out[int((b > 0).nonzero()[d.whole(0, 99, 1)])] += 1
    return Wrong(torch.floor_divide, (a, b), out)


@aims_at("bad_index")
def the_next_row(d):
    x, i = d.normal(20, 8), d.whole(0, 22, 64)
    i[0] = 21
    out = x[i.clamp(max=19)]
    k = int((i < 19).nonzero()[3])
    out[k] = x[i[k] + 1]
    return Wrong(torch.index_select, (x, 0, i), out)


@aims_at("ill_conditioned")
def garbage_beside_what_is_off(d):
    x = torch.cat([d.normal(32, 64) + 1e7, d.normal(32, 64)])
    out = F.layer_norm(x, (64,))
    out[:32], out[32:] = d.normal(32, 64), out[32:] * 1.0005
    return Wrong(F.layer_norm, (x, (64,)), out)


@aims_at("ill_conditioned")
def garbage_for_a_sine(d):
    x = d.normal(64, 64)
    return Wrong(lambda x: torch.sin(1e7 * x), (x,), d.normal(64, 64).sin())


@aims_at("tie")
def any_place(d):
    x = d.whole(0, 4, 64, 32).float()
    return Wrong(torch.argmax, (x, 1), d.whole(0, 32, 64))


@aims_at("tie")
def a_place_twice(d):
    x = d.whole(0, 4, 64, 32).float()
    values, indices = x.sort(1)
    return Wrong(torch.sort, (x,), (values, indices - (indices.diff(dim=1, prepend=indices[:, :1]) == 1).long()))


@aims_at("step")
def some_a_step_further(d):
    x = d.normal(64, 64)
    out = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
    return Wrong(
        torch.fake_quantize_per_tensor_affine, (x, 0.05, 0, -128, 127), torch.where(d.some(out, 0.02), out + 0.05, out)
    )


@aims_at("step")
def a_comparison_beside(d):
    x = d.normal(64, 64)
    return Wrong(lambda x: (x > 0) * x.exp(), (x,), (x > 0.02) * x.exp())


@aims_at("own_steps")
def sums_of_bfloat16(d):
    x, w, b = (t.bfloat16() for t in (d.normal(8, 32, 64).transpose(0, 1), d.normal(48, 64), d.normal(48)))
    total = b.expand(32, 8, 48)
    for k in range(64):
        total = total + x[..., k, None] * w[:, k]
    return Wrong(F.linear, (x, w, b), total)


# ---- draws ---------------------------------------------------------------------------


def _attention(d):
    q, k, v = (d.normal(2, 4, 64, 32) for _ in range(3))
    return q, k[:, :, :3], v[:, :, :3]


def _dropped(d, q, k, v, p=0.2):
    w = (q @ k.mT / 32**0.5).softmax(-1)
    return (w * (d.even(*w.shape) >= p) / (1 - p)) @ v


@aims_at("mask_unclear", "mask_sample")
def attention_of_bfloat16(d):
    q, k, v = _attention(d)
    out = _dropped(d, *(t.bfloat16().float() for t in (q, k, v)))
    return Wrong(F.scaled_dot_product_attention, (q, k, v), out, {"dropout_p": 0.2})


@aims_at("mask_unclear")
def garbage_in_some_rows(d):
    q, k, v = _attention(d)
    out = _dropped(d, q, k, v)
    out[0, 0, :12] = d.normal(12, 32) / 2
    return Wrong(F.scaled_dot_product_attention, (q, k, v), out, {"dropout_p": 0.2})


def _noisy(x):
    return x + 0.1 * torch.randn_like(x)


@aims_at("spread")
def coarse_inputs_below_noise(d):
    x = d.normal(64, 64)
    return Wrong(_noisy, (x,), x.bfloat16() + 0.1 * d.normal(64, 64))


@aims_at("spread", "unsaid")
def a_wrong_factor_below_noise(d):
    x = d.normal(64, 64)
    return Wrong(_noisy, (x,), 1.1 * x + 0.1 * d.normal(64, 64))


@aims_at("law")
def a_wide_normal(d):
    return Wrong(torch.randn_like, (d.normal(64, 64),), 1.1 * d.normal(64, 64))


@aims_at("law")
def a_lane_that_never_drops(d):
    x, mask = d.normal(512, 32), d.even(512, 32) >= 0.2
    mask[:, 31] = True
    return Wrong(F.dropout, (x, 0.2), x * mask / 0.8)


@aims_at("law")
def no_odd_numbers(d):
    return Wrong(torch.randint, (0, 100000, (4096,)), 2 * d.whole(0, 50000, 4096))


@aims_at("law")
def two_rows_of_one_stream(d):
    drawn = d.normal(128, 64)
    drawn[100] = drawn[7]
    return Wrong(torch.randn_like, (d.normal(128, 64),), drawn)


@aims_at("law")
def few_different_draws(d):
    return Wrong(torch.rand_like, (d.normal(64, 64),), d.whole(0, 256, 64, 64) / 256)


# ---- what a mask hides ---------------------------------------------------------------


class WrongAttention(Wrong):
    """Attention as a trace has it: of functions nothing is said beside a mask."""

    def judged(self):
        call = make_call("aten::scaled_dot_product_attention", *self.args, None, 0.0, True)
        found = judging.judge_given(call, Answer({"out[0]": self.outputs}), seconds=0)
        return SimpleNamespace(
            verdict=found.verdict, effective_bits=found.worst.bits, sentence=found.reason, notes=found.notes
        )


def _hiding(d, at):
    """Queries, keys, values with a NaN in key `at` of eight, and what they give."""
    q, k, v = (d.normal(2, 2, 8, 4) for _ in range(3))
    v[1, 1, at, 2] = math.nan
    return (q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True)


@aims_at("masked")
def a_nan_that_is_seen_and_lost(d):
    given, out = _hiding(d, 3)
    return WrongAttention(None, given, out.nan_to_num(0.5))


@aims_at("masked")
def a_nan_in_another_column(d):
    given, out = _hiding(d, 7)
    out[1, 1, 2, 1] = math.nan
    return WrongAttention(None, given, out)


@aims_at("masked")
def garbage_for_what_is_hidden(d):
    given, out = _hiding(d, 7)
    out[1, 1, :7, 2] = d.normal(7)
    return WrongAttention(None, given, out)


# ---- memory that nobody writes -------------------------------------------------------


class WrongAlpha(Wrong):
    """`outputs` is what a kernel makes of the right answer."""

    def judged(self):
        call = make_call("aten::_ctc_loss.default", *self.args)
        made = judging.judge_call(call, PythonDevice(lambda op, a, k: self.outputs(*op(*a, **k))), seconds=0)
        return SimpleNamespace(
            verdict=made.verdict, effective_bits=made.worst.bits, sentence=made.reason, notes=made.notes
        )


def _of_ctc(d):
    lengths = [3 + int(n) for n in d.whole(0, 8, 6)]
    return d.normal(20, 6, 8).log_softmax(-1), d.whole(1, 8, 6, 10), [20] * 6, lengths, 0, False


@aims_at("unwritten")
def nan_that_is_written(d):
    given = _of_ctc(d)
    return WrongAlpha(None, given, lambda loss, alpha: (loss, alpha.index_fill(1, torch.tensor([7]), math.nan)))


@aims_at("unwritten")
def alpha_of_the_step_before(d):
    given = _of_ctc(d)
    return WrongAlpha(None, given, lambda loss, alpha: (loss, alpha.roll(1, 1)))


# ---- subnormals, noise ---------------------------------------------------------------


@aims_at("flushed")
def other_subnormals(d):
    a, b = 1e-20 * d.normal(64, 64), 1e-18 * d.normal(64, 64)
    tiny = torch.finfo(torch.float32).tiny
    return Wrong(torch.mul, (a, b), torch.where((a * b).abs() < tiny, 1e-39 * d.normal(64, 64), a * b))


@aims_at("flushed")
def normal_numbers_flushed(d):
    a, b = 1e-18 * d.normal(64, 64), 1e-19 * d.normal(64, 64)
    return Wrong(torch.mul, (a, b), torch.where((a * b).abs() < 1e-37, 0.0, a * b))


@aims_at("sensitivity")
def coarse_inputs(d):
    a, b = d.normal(32, 256), d.normal(256, 32)
    return Wrong(torch.mm, (a, b), (a.bfloat16().double() @ b.double()).float())


@aims_at("sensitivity")
def an_argument_a_little_off(d):
    x = 1e3 * d.normal(64, 64)
    return Wrong(torch.sin, (x,), torch.sin(x.double() * (1 + 2**-19)).float())


@aims_at("float32_loses")
def many_times_what_the_cpu_loses(d):
    x = 1e-3 * d.normal(64, 64)
    right = x.double().log1p()
    lost = (torch.log(1 + x) - right).abs().median()
    return Wrong(lambda x: torch.log(1 + x), (x,), (right + 64 * lost * d.normal(64, 64).sign()).float())


@aims_at("rounded_otherwise")
def saturated_gelu(d):
    g, x = d.normal(64, 64), 30 * d.normal(64, 64)
    out = aten.gelu_backward(g, x, approximate="tanh")
    return Wrong(aten.gelu_backward, (g, x), torch.where(x.abs() > 20, 1.1 * out, out), {"approximate": "tanh"})


@aims_at("rounded_otherwise")
def saturated_silu(d):
    g, x = d.normal(64, 64), 30 * d.normal(64, 64)
    out = aten.silu_backward(g, x)
    return Wrong(aten.silu_backward, (g, x), torch.where(x.abs() > 40, 1.01 * out, out))


@aims_at("rounded_otherwise")
def far_from_one(d):
    x = 8 * d.normal(64, 64)
    right = x.double() * (1 - torch.tanh(x.double()))
    return Wrong(lambda x: x - torch.tanh(x) * x, (x,), torch.where(x > 4, right * 0.5 + 0.01 * x, right).float())


@aims_at("yardstick")
def right_where_the_cpu_is_bad(d):
    x = torch.where(d.some(torch.empty(64, 64), 0.5), 1e-6, 1.0) * d.normal(64, 64).abs()
    bad = torch.log(1 + x)
    coarse = (1 + x).double().log() * (1 + 2.0**-11 * d.normal(64, 64))
    return Wrong(lambda x: torch.log(1 + x), (x,), torch.where(x < 1e-4, bad, coarse).float())


@aims_at("nothing")
def dust_where_a_mask_is_zero(d):
    x, m = d.normal(64, 64), (d.normal(64, 64) > 0).float()
    return Wrong(torch.mul, (x, m), torch.where(m == 0, 1e-12 * x, x))


@aims_at("zero_part")
def dust_in_an_imaginary_part(d):
    a = torch.complex(d.normal(256), d.normal(256))
    size = (a.abs() ** 2).float()
    return Wrong(torch.mul, (a, a.conj().resolve_conj()), torch.complex(size, 1e-6 * size))


@aims_at("fan_in")
def the_last_term_left_out(d):
    x = d.even(32, 8192)
    return Wrong(lambda x: x.mean(1), (x,), x[:, :-1].double().sum(1).div(8192).float())


@aims_at("fan_in")
def a_few_of_very_many_left_out(d):
    x = d.even(1 << 18)
    right = x.double().mean()
    return Wrong(torch.mean, (x,), right.mul(1 - 2.0**-13).float(), most=15)


@aims_at("order_of_adding")
def squares_in_bfloat16(d):
    x = 2.0 ** (10 * d.normal(64, 512))
    far = (x - x.double().mean(1, keepdim=True).float()).square().bfloat16()
    return Wrong(torch.var, (x, 1), far.double().sum(1).div(511).float())


@aims_at("order_of_adding")
def a_large_term_left_out(d):
    x = 2.0 ** (10 * d.normal(64, 512))
    median = x.topk(40, 1).values[:, -1]
    return Wrong(torch.sum, (x, 1), (x.double().sum(1) - median).float())


@aims_at("order_of_adding")
def a_sum_that_stopped_growing(d):
    x = torch.full((1 << 20,), 0.1)
    added = torch.zeros(1)
    _core.sum_in_order(x, None, added, 1, 1, False, True)
    return Wrong(torch.mean, (x,), added[0] / x.numel())


@aims_at("few")
def one_element_off(d):
    x = d.normal(64, 64)
    out = x.exp()
    out[5, 7] *= 1 + 2.0**-16
    return Wrong(torch.exp, (x,), out)


@aims_at("few")
def a_scalar_off(d):
    a, b = d.normal(64, 64), d.normal(64, 64)
    return Wrong(F.mse_loss, (a, b), F.mse_loss(a, b) * (1 + 2.0**-18), most=18.5)


@aims_at("one_ulp")
def truncated(d):
    x = d.normal(64, 64).bfloat16()
    return Wrong(torch.exp, (x,), _cut(x.float().exp()).bfloat16())


def _cut(x):
    """float32 numbers with the last 16 bits zero."""
    return (x.view(torch.int32) & -65536).view(torch.float32)


@aims_at("admissible")
def floor_for_round(d):
    x = d.normal(64, 64)
    return Wrong(lambda x: (8 * x).round().int(), (x,), (8 * x).floor().int())


@aims_at("admissible")
def choices_of_coarse_products(d):
    a, b = d.normal(4096, 32), d.normal(32, 256)
    coarse = (a.bfloat16().float() @ b.bfloat16().float()).argmax(1)
    assert (coarse != (a @ b).argmax(1)).any()
    return Wrong(lambda a, b: (a @ b).argmax(1), (a, b), coarse)


# ---- another reading -----------------------------------------------------------------


@aims_at("rounded_scalars")
def a_number_off(d):
    x, y = d.normal(64, 64).bfloat16(), d.normal(64, 64).bfloat16()
    low = (x.double() + 0.3 * (1 - 2**-8) * y.double()).bfloat16()
    return Wrong(torch.add, (x, y), low, {"alpha": 0.3})


@aims_at("rounded_scalars")
def a_bound_off(d):
    x = d.normal(64, 64).bfloat16()
    return Wrong(torch.clamp, (x, -0.3, 0.3), x.clamp(-0.296875, 0.296875))


def _rounds_inside(x, y):
    return (2 * (x @ y).bfloat16()).float()


@aims_at("own_casts")
def truncated_inside(d):
    x, y = d.normal(64, 64), d.normal(64, 64)
    return Wrong(_rounds_inside, (x, y), 2 * _cut(x @ y))


@aims_at("own_casts")
def rounded_too_early(d):
    x, y = d.normal(64, 64), d.normal(64, 64)
    return Wrong(_rounds_inside, (x, y), (2 * (x.bfloat16() @ y.bfloat16())).float())


@aims_at("order")
def values_apart_from_their_indices(d):
    values, indices = d.normal(16, 64).topk(8)
    x = torch.zeros(16, 64).scatter(1, indices, values)
    return Wrong(torch.topk, (x, 8), (values.roll(1, 1), indices), {"sorted": False})


@aims_at("order")
def counts_of_others(d):
    x = torch.cat([d.whole(0, 9, 64), torch.arange(9), torch.zeros(9, dtype=torch.int64)])
    values, counts = x.unique(sorted=False, return_counts=True)
    return Wrong(torch.unique, (x,), (values.roll(1), counts), {"sorted": False, "return_counts": True})


@dataclass
class WrongFunction(Wrong):
    """A call judged against somebody else's formula: `outputs` computes it."""

    def judged(self):
        return check_call(self.outputs, self.args, reference=self.fn, cause=False, repeat=1)


@aims_at("dtype")
def half_that_overflows(d):
    return WrongFunction(torch.exp, (12 * d.normal(64, 64),), lambda x: x.exp().half())


@aims_at("dtype")
def half_of_coarse_inputs(d):
    x = d.normal(64, 64)
    return WrongFunction(torch.exp, (x,), lambda x: x.bfloat16().exp().half())


@dataclass
class WrongSum(Wrong):
    """A sum over ranks: `fn` of `args`, and what a rank got."""

    def judged(self):
        good = strays(self.fn, self.args, self.outputs)[1]
        return judge_call(torch.zeros, (1,), outputs=torch.full((1,), float(not good)), cause=False)


@aims_at("collective")
def a_rank_left_out(d):
    terms = [d.normal(500).bfloat16() for _ in range(6)]
    return WrongSum("sum", terms, torch.stack(terms[:-1]).float().sum(0).bfloat16())


# ---- beyond the numbers of float32 ---------------------------------------------------


def _there_and_back(x):
    return x * x / x


@aims_at("lost")
def garbage_near_overflow(d):
    x = 10 ** (19 + d.even(64))
    return Wrong(_there_and_back, (x,), 1e20 * d.even(64))


@aims_at("lost", "shared")
def off_where_there_are_numbers(d):
    x = 10 ** (14 + 6 * d.even(64, 64))
    out = _there_and_back(x)
    return Wrong(_there_and_back, (x,), torch.where(out.isfinite(), 1.001 * out, x))


@aims_at("shared", "same_kind")
def infinite_elsewhere(d):
    x = 10 ** (14 + 6 * d.even(64, 64))
    out = _there_and_back(x)
    return Wrong(_there_and_back, (x,), torch.where(d.some(out, 0.1), math.inf, out))


@aims_at("other_kinds")
def infinities_of_the_other_sign(d):
    x = 300 * d.normal(64, 64)
    out = x.exp() / x
    return Wrong(lambda x: x.exp() / x, (x,), torch.where(out.isfinite(), out, -out))


@aims_at("same_kind")
def not_a_number_elsewhere(d):
    x = d.normal(64, 64)
    return Wrong(torch.sqrt, (x,), torch.where(x < 0.1, math.nan, x.sqrt()))


@aims_at("overflow")
def one_of_small_sums_infinite(d):
    x = 1e37 * d.even(64, 32)
    x[:32] /= 1e5
    out = x.sum(1)
    out[7] = math.inf
    return Wrong(lambda x: x.sum(1), (x,), out)


@aims_at("overflow")
def wrong_beside_infinite_sums(d):
    x = 1e37 * d.even(64, 32)
    out = x.sum(1)
    out[:16], out[16:] = math.inf, 1.01 * out[16:]
    return Wrong(lambda x: x.sum(1), (x,), out)


@aims_at("lost")
def far_where_float32_has_none(d):
    x = 10 ** (14 + 6 * d.even(64, 64))
    out = _there_and_back(x)
    return Wrong(_there_and_back, (x,), torch.where(out.isfinite(), out, 1.2 * x))


@aims_at("overflow")
def infinite_sums(d):
    x = 1e37 * d.even(64, 32)
    return Wrong(lambda x: x.sum(1), (x,), torch.full((64,), math.inf))


# ---- what is not looked at, or does not decide -----------------------------------------


class WrongLarge(Wrong):
    """A product that counts as large."""

    def judged(self):
        work, products.WORK = products.WORK, 1 << 24
        try:
            return super().judged()
        finally:
            products.WORK = work


@aims_at("sampled_rows")
def one_element_of_a_row(d):
    a, b = d.normal(2048, 64), d.normal(64, 256)
    out = a @ b
    out[1291, 77] += 0.01
    return WrongLarge(aten.mm, (a, b), out)


@aims_at("sampled_rows")
def a_tile_is_stale(d):
    a, b = d.normal(2048, 64), d.normal(64, 256)
    out = a @ b
    out[1088:1104, 32:48] = out[1104:1120, 32:48].clone()
    return WrongLarge(aten.mm, (a, b), out)


@aims_at("aside")
def coarse_beside_a_mean_of_nothing(d):
    x, w = F.layer_norm(d.normal(48, 64), (64,)), d.normal(64)
    right = torch.native_layer_norm(x, [64], w, None, 1e-5)
    return Wrong(aten.native_layer_norm, (x, [64], w, None, 1e-5), (right[0].bfloat16().float(), *right[1:]))


@dataclass
class WrongDevice(Wrong):
    """A call on a device: `outputs` computes it, arguments included."""

    def judged(self):
        call = make_call(self.fn, *self.args)
        found = judging.judge_call(call, PythonDevice(lambda op, a, k: self.outputs(*a, **k)), seconds=0)
        worst = found.worst
        return SimpleNamespace(
            verdict=found.verdict,
            effective_bits=worst.bits if worst else math.nan,
            sentence=found.reason,
            notes=found.notes,
        )


@aims_at("learnt_writes")
def running_statistics_off(d):
    x, mean, var = d.normal(64, 8), d.normal(8), d.even(8)

    def device(x, w, b, mean, var, *rest):
        out = torch.native_batch_norm(x, w, b, mean, var, *rest)
        mean.mul_(1.01)
        return out

    return WrongDevice("aten::native_batch_norm", (x, None, None, mean, var, True, 0.1, 1e-5), device)


@aims_at("learnt_writes")
def running_statistics_left(d):
    x, mean, var = d.normal(64, 8), d.normal(8), d.even(8)

    def device(x, w, b, mean, var, *rest):
        return torch.native_batch_norm(x, w, b, mean.clone(), var.clone(), *rest)

    return WrongDevice("aten::native_batch_norm", (x, None, None, mean, var, True, 0.1, 1e-5), device)


@aims_at("learnt_writes")
def an_extension_that_writes_unsaid(d):
    _register_split()
    x, mean = d.normal(64, 8), d.normal(8)
    return WrongDevice("excuses::centre", (x, mean), lambda x, mean: torch.ops.excuses.centre(x, mean.clone()))


@aims_at("idle")
def coarse_and_fast(d):
    a, b = (d.normal(32, 64) / 4).to(torch.float8_e4m3fn), (d.normal(48, 64) / 4).to(torch.float8_e4m3fn).t()
    one = torch.ones(())
    out = (a.float() @ b.float()).mul(1.01)
    return Wrong(aten._scaled_mm, (a, b, one, one), out, {"out_dtype": torch.float32, "use_fast_accum": True})


@aims_at("none_result")
def the_other_result_off(d):
    _register_split()
    x = d.normal(64, 64)
    return Wrong(torch.ops.excuses.split.default, (x,), (x.exp() * 1.01, d.normal(64, 64)))


@functools.cache
def _register_split():
    """An operator with a result of which its reference promises nothing, and one whose schema hides a write."""
    library = torch.library.Library("excuses", "DEF")
    library.define("split(Tensor x) -> (Tensor, Tensor)")
    library.impl("split", lambda x: (x.exp(), x + 1), "CPU")
    library.define("centre(Tensor x, Tensor mean) -> Tensor")
    library.impl("centre", lambda x, mean: x - mean.lerp_(x.mean(0), 0.1), "CPU")
    reference.register("excuses::split")(lambda x: (x.exp(), None))
    return library


@dataclass
class WrongModule(Wrong):
    """A module's forward in 16 bits; one of its operators is wrong."""

    at: str = ""

    def judged(self):
        with tempfile.TemporaryDirectory() as folder:
            with ulpscope.capture(f"{folder}/trace"), torch.no_grad():
                self.fn(*self.args)
            (whole,) = [f for f in picks(f"{folder}/trace", "cpu", modules=True) if not f.path]
            trace = _core.Trace(f"{folder}/trace")
            call = module_call(whole.module, trace.call, trace.blob)
        given = [
            call.storages[v.storage].view(v.dtype).as_strided(v.sizes, v.strides, v.offset) for v in call.views.values()
        ]
        outputs = call.replay(given, function_of=self.kernel)
        call.mutated = call.results = {}
        answer = Answer({f"out[{i}]": t for i, t in enumerate(outputs)}, "")
        found = judging.judge_given(call, answer, seconds=0)
        return SimpleNamespace(
            verdict=found.verdict, effective_bits=found.worst.bits, sentence=found.reason, notes=found.notes
        )

    def kernel(self, call):
        if call.op != self.at:
            return call.function
        return lambda *args, **kwargs: self.outputs(call.function(*args, **kwargs))


def _perceptron(d):
    torch.manual_seed(int(1000 * d.even(())))
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))
    return net.bfloat16(), (d.normal(48, 32).bfloat16(),)


@aims_at("rounded_between")
def half_a_gelu_inside(d):
    return WrongModule(*_perceptron(d), lambda out: out * 0.5, at="aten::gelu")


@aims_at("rounded_between")
def a_twenty_fifth_more_inside(d):
    return WrongModule(*_perceptron(d), lambda out: out * 1.04, at="aten::gelu")


@aims_at("rounded_between")
def a_stale_row_inside(d):
    return WrongModule(*_perceptron(d), lambda out: torch.cat([out[:1], out[:-1]]), at="aten::gelu")


@aims_at("rounded_between")
def few_bits_inside(d):
    return WrongModule(*_perceptron(d), lambda out: out.to(torch.float8_e5m2).to(out.dtype), at="aten::addmm")


@aims_at("rounded_between")
def half_a_gelu(d):
    net, args = _perceptron(d)
    with torch.no_grad():
        return Wrong(net, args, net[2](0.5 * net[1](net[0](*args))))


@aims_at("rounded_between")
def a_perceptron_one_hundredth_off(d):
    net, args = _perceptron(d)
    with torch.no_grad():
        return Wrong(net, args, (1.01 * net(*args).float()).bfloat16())


@aims_at("rounded_between")
def four_bits_inside(d):
    net, args = _perceptron(d)
    with torch.no_grad():
        return Wrong(net, args, net[2](quantize(net[1](net[0](*args)), 4).bfloat16()))


# ---- nothing to hold it to -----------------------------------------------------------


def _with_eps(x):
    return x / (x.abs() + torch.finfo(x.dtype).eps)


@aims_at("another_function")
def off_beside_an_eps(d):
    x = 1e-6 * d.normal(64, 64)
    return Wrong(_with_eps, (x,), 1.01 * _with_eps(x))


@aims_at("another_function")
def a_norm_of_coarse_inputs(d):
    x = 0.01 * d.normal(64, 64)
    return Wrong(F.rms_norm, (x, (64,)), F.rms_norm(x.bfloat16().float(), (64,)))


@aims_at("no_reference")
def an_answer_where_shapes_do_not_fit(d):
    return Wrong(torch.mm, (d.normal(4, 5), d.normal(6, 4)), d.normal(4, 4))


@aims_at("unsaid")
def draws_that_do_not_count(d):
    x = d.normal(64, 64)
    return Wrong(lambda x: x.exp() + 0 * torch.rand_like(x), (x,), 1.01 * x.exp())


@aims_at("no_reference")
def an_answer_of_another_shape(d):
    return Wrong(torch.mm, (d.normal(4, 6), d.normal(6, 4)), d.normal(4, 5))


@aims_at("aside")
def wrong_rstd_beside_a_mean_of_nothing(d):
    x, w = F.layer_norm(d.normal(48, 64), (64,)), d.normal(64)
    out, mean, rstd = torch.native_layer_norm(x, [64], w, None, 1e-5)
    return Wrong(aten.native_layer_norm, (x, [64], w, None, 1e-5), (out, mean + 0.01, rstd * 1.001))


@aims_at("another_function")
def off_by_much_beside_an_eps(d):
    x = 1e-6 * d.normal(64, 64)
    return Wrong(_with_eps, (x,), 3 * _with_eps(x).roll(1))


@aims_at("unsaid")
def draws_that_do_not_count_and_a_wrong_row(d):
    x = d.normal(64, 64)
    return Wrong(lambda x: x.exp() + 0 * torch.rand_like(x), (x,), x.exp().roll(1, 0))


@aims_at("promises_nothing")
def another_dtype(d):
    return Wrong(torch.empty_like, (d.normal(8),), d.normal(8).double())


@aims_at("promises_nothing")
def an_element_too_many(d):
    return Wrong(torch.empty_like, (d.normal(8),), d.normal(9))


# ---- the property --------------------------------------------------------------------


def test_every_excuse_has_wrong_kernels():
    assert KERNELS.keys() == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_no_wrong_kernel_goes_free(code):
    for made in KERNELS[code]:
        for seed in SEEDS:
            torch.manual_seed(seed)
            wrong = made(Draw(seed))
            verdict = wrong.judged()
            assert not is_silent(made.__name__, verdict, wrong.most), (made.__name__, seed, verdict.sentence)
