# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels aimed at what an operator does not promise: layouts, vectors that turn, draws, what a mask hides,
memory that nobody writes."""

import math

import torch
import torch.nn.functional as F
from aimed import Wrong, WrongAlpha, WrongAttention, WrongDevice, _attention, aims_at, aten


def _symmetric(d):
    """With values of which three are one."""
    q = torch.linalg.qr(d.normal(12, 12).double())[0]
    return (q * torch.tensor([1.0, 1, 1, *range(2, 11)])) @ q.T


def _to_int8(x):
    return x.to(torch.int8)


def _noisy(x):
    return x + 0.1 * torch.randn_like(x)


# ---- rows for other layouts, vectors that may turn -----------------------------------


@aims_at("in_rows")
def rows_of_the_one_before(d):
    x = d.normal(8, 1).expand(8, 5)
    return WrongDevice("aten::median.dim", (x, 1), lambda x, dim: tuple(t.roll(1) for t in x.contiguous().median(dim)))


@aims_at("in_rows")
def strides_ignored(d):
    return WrongDevice("aten::exp.default", (d.normal(8, 8).t(),), lambda x: x.t().exp().contiguous())


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


def _dropped(d, q, k, v, p=0.2):
    w = (q @ k.mT / 32**0.5).softmax(-1)
    return (w * (d.even(*w.shape) >= p) / (1 - p)) @ v


@aims_at("mask_unclear")
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


@aims_at("mask_unclear")
def a_row_of_the_row_before(d):
    q, k, v = _attention(d)
    out = _dropped(d, q, k, v)
    out[0, 0, 5] = out[0, 0, 4]
    return Wrong(F.scaled_dot_product_attention, (q, k, v), out, {"dropout_p": 0.2})


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


def _kept_in_bfloat16(d, scale):
    """(x, what dropout keeps of it, which) as torch's kernel gives it, of a scale in bfloat16."""
    x, mask = d.normal(64, 64).bfloat16(), d.even(64, 64) >= 0.1
    return x, x * torch.tensor(scale).bfloat16() * mask, mask


@aims_at("rounded_scale")
def an_ulp_beyond_a_rounded_scale(d):
    x, out, mask = _kept_in_bfloat16(d, 1 / 0.9)
    more = torch.nextafter(out, torch.full_like(out, torch.inf).copysign(out))
    return Wrong(F.dropout, (x, 0.1), torch.where(mask & (d.even(64, 64) < 0.3), more, out))


@aims_at("rounded_scale")
def a_scale_of_the_next_number(d):
    x, out, _ = _kept_in_bfloat16(d, 1 / 0.9 + 2.0**-7)
    return Wrong(F.dropout, (x, 0.1), out)


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
