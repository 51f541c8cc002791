# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels aimed at what is not looked at, does not decide, or has nothing to be held to."""

import functools

import torch
import torch.nn.functional as F
from aimed import Wrong, WrongDevice, WrongLarge, WrongModule, aims_at, aten

from ulpscope import reference
from ulpscope.executors.formats import quantize


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
