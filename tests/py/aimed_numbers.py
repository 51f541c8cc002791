# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels aimed at numbers: subnormals, noise, other readings, what lies beyond float32."""

import math

import torch
import torch.nn.functional as F
from aimed import Wrong, WrongFunction, WrongSum, aims_at, aten

from ulpscope import _core


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


@aims_at("dtype")
def half_that_overflows(d):
    return WrongFunction(torch.exp, (12 * d.normal(64, 64),), lambda x: x.exp().half())


@aims_at("dtype")
def half_of_coarse_inputs(d):
    x = d.normal(64, 64)
    return WrongFunction(torch.exp, (x,), lambda x: x.bfloat16().exp().half())


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
