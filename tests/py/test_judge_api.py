# SPDX-License-Identifier: Apache-2.0
"""judge_call and check_call: outputs that an honest device computes are never accused,
planted bugs get the right class of verdict, misuse is an error and nothing else is."""

import math

import pytest
import torch
import torch.nn.functional as F

import ulpscope

SEED = 31
LOW = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


def randn(*sizes):
    return torch.randn(*sizes)


def signs(*sizes):
    return torch.randn(*sizes).sign()


def rms_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def swiglu(x, gate):
    return x * F.silu(gate)


def rotary(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def attention(q, k, v):
    weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ v


def gradient_of(function, n_inputs=1):
    """A function that gives the gradients of the first inputs for a given cotangent."""

    def gradient(cotangent, *args):
        leaves = [a.detach().requires_grad_() for a in args[:n_inputs]]
        out = function(*leaves, *args[n_inputs:])
        return torch.autograd.grad(out, leaves, cotangent.expand_as(out))

    return gradient


def layer_norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


CASES = {
    "add": (torch.add, lambda: (randn(300), randn(300))),
    "mul": (torch.mul, lambda: (randn(300), randn(300))),
    "div": (torch.div, lambda: (randn(300), randn(300))),
    "exp": (torch.exp, lambda: (randn(300),)),
    "tanh": (torch.tanh, lambda: (randn(300),)),
    "gelu": (F.gelu, lambda: (3 * randn(300),)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda: (3 * randn(300),)),
    "silu": (F.silu, lambda: (randn(300),)),
    "sigmoid": (torch.sigmoid, lambda: (4 * randn(300),)),
    "softplus": (F.softplus, lambda: (4 * randn(300),)),
    "asin": (torch.asin, lambda: (torch.cat([randn(99).clamp(-1, 1), torch.ones(1)]),)),
    "softmax": (lambda x: x.softmax(-1), lambda: (3 * randn(16, 80),)),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda: (3 * randn(16, 80),)),
    "layer_norm": (layer_norm, lambda: (randn(16, 80), randn(80), randn(80))),
    "rms_norm": (rms_norm, lambda: (randn(16, 80), randn(80))),
    "swiglu": (swiglu, lambda: (randn(16, 40), randn(16, 40))),
    "rotary": (rotary, lambda: (randn(16, 40), randn(16, 40).cos(), randn(16, 40).sin())),
    "attention": (attention, lambda: (randn(2, 16, 24), randn(2, 20, 24), randn(2, 20, 24))),
    "mm": (torch.mm, lambda: (randn(16, 90), randn(90, 24))),
    "linear": (F.linear, lambda: (randn(16, 90), randn(24, 90), randn(24))),
    "conv2d": (F.conv2d, lambda: (randn(2, 4, 8, 8), randn(6, 4, 3, 3))),
    "sum": (lambda x: x.sum(-1), lambda: (randn(20, 300),)),
    "mean of all": (torch.mean, lambda: (randn(1000),)),
    "var": (lambda x: x.var(-1), lambda: (randn(20, 90),)),
    "norm": (lambda x: x.norm(dim=-1), lambda: (randn(20, 90),)),
    "cumsum": (lambda x: x.cumsum(-1), lambda: (randn(8, 90),)),
    "bce": (F.binary_cross_entropy, lambda: (torch.rand(200), torch.rand(200).round())),
    "hinge": (F.hinge_embedding_loss, lambda: (randn(200), signs(200))),
    "floor of a product": (lambda x, y: (x * y).floor(), lambda: (9 * randn(200), randn(200))),
    "gelu gradient": (gradient_of(F.gelu), lambda: (randn(300), randn(300))),
    "softmax gradient": (gradient_of(lambda x: x.softmax(-1)), lambda: (randn(9, 80), randn(9, 80))),
    "layer_norm gradient": (gradient_of(layer_norm, 3), lambda: (randn(16, 80), randn(16, 80), randn(80), randn(80))),
    "mm gradient": (gradient_of(torch.mm, 2), lambda: (randn(16, 24), randn(16, 90), randn(90, 24))),
    "cross entropy gradient": (
        gradient_of(lambda x: F.cross_entropy(x, torch.arange(8))),
        lambda: (torch.tensor(1.0), randn(8, 50)),
    ),
}


def cast(value, dtype):
    if isinstance(value, (tuple, list)):
        return tuple(cast(v, dtype) for v in value)
    return value.to(dtype) if value.is_floating_point() else value


def through_float32(function, args, dtype):
    """What a device gives that computes in float32 and rounds once."""
    return cast(function(*cast(args, torch.float32)), dtype)


@pytest.mark.parametrize("dtype", LOW, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("name", CASES)
def test_float32_inside_and_one_rounding_passes(name, dtype):
    function, make = CASES[name]
    args = cast(make(), dtype)
    verdict = ulpscope.judge_call(function, args, {}, through_float32(function, args, dtype))
    assert verdict.verdict == "pass", verdict.sentence


def online_softmax(x):
    top = torch.full(x.shape[:-1], -torch.inf)
    total = torch.zeros(x.shape[:-1])
    for column in x.unbind(-1):
        new = torch.maximum(top, column)
        total = total * (top - new).exp() + (column - new).exp()
        top = new
    return (x - top[..., None]).exp() / total[..., None]


def summed(terms):
    """Adds along the last axis one after the other, the last first."""
    return terms.flip(-1).cumsum(-1)[..., -1]


def sequential_mm(a, b):
    return summed(a[:, None, :] * b.t()[None])


def two_pass_layer_norm(x, weight, bias):
    mean = summed(x)[..., None] / x.shape[-1]
    var = summed((x - mean).square())[..., None] / x.shape[-1]
    return (x - mean) / (var + 1e-5).sqrt() * weight + bias


OTHER_ORDERS = {
    "softmax": online_softmax,
    "mm": sequential_mm,
    "layer_norm": two_pass_layer_norm,
    "rms_norm": lambda x, w: x / (summed(x * x)[..., None] / x.shape[-1] + 1e-6).sqrt() * w,
    "sum": summed,
    "mean of all": lambda x: summed(x) / x.numel(),
    "linear": lambda x, w, b: sequential_mm(x, w.t()) + b,
    "attention": lambda q, k, v: online_softmax((q @ k.transpose(-1, -2)) * (1 / math.sqrt(24))) @ v,
}


@pytest.mark.parametrize("dtype", LOW, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("name", OTHER_ORDERS)
def test_another_order_of_adding_passes(name, dtype):
    function, make = CASES[name]
    args = cast(make(), dtype)
    output = through_float32(OTHER_ORDERS[name], args, dtype)
    verdict = ulpscope.judge_call(function, args, {}, output)
    assert verdict.verdict == "pass", verdict.sentence


# ---- planted bugs --------------------------------------------------------------------


def tf32(x):
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def bf16(x):
    return x.bfloat16().float()


def rounded_softmax(x):
    e = bf16((x - x.amax(-1, keepdim=True)).exp())
    return e / bf16(e.sum(-1, keepdim=True))


def rounded_norm(x, weight, bias=0.0, centred=True):
    x = bf16(x - x.mean(-1, keepdim=True)) if centred else x
    scale = bf16(bf16(x * x).mean(-1, keepdim=True)) + (1e-5 if centred else 1e-6)
    return bf16(x * bf16(scale.rsqrt())) * weight + bias


def half_sums(a, b):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float16)
    for i in range(a.shape[1]):
        total = total + (a[:, i : i + 1] * b[i]).half()
    return total.float()


def late_eps(x, weight, bias):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-3) * weight + bias


def dropped_tail(function):
    def device(*args):
        out = function(*args).clone()
        out.view(-1)[-5:] = 0
        return out

    return device


def shifted_mask(x):
    mask = torch.ones(x.shape[-2:]).tril()
    return (x.masked_fill(mask == 0, -torch.inf)).softmax(-1)


def masked(x):
    n, m = x.shape[-2:]
    columns = torch.arange(m)
    return x.masked_fill(columns > torch.arange(n)[:, None] + 1, -torch.inf).softmax(-1)


def with_nan(function):
    def device(*args):
        out = function(*args).clone()
        out.view(-1)[7] = torch.nan
        return out

    return device


SQUARE = lambda: (randn(24, 24),)  # noqa: E731
SMALL_VARIANCE = lambda: (0.02 * randn(16, 80), randn(80), randn(80))  # noqa: E731

PLANTED = {
    "tf32 matmul": (torch.mm, CASES["mm"][1], lambda a, b: tf32(a) @ tf32(b), "reduced"),
    "bf16 in softmax": (*CASES["softmax"], rounded_softmax, "reduced"),
    "bf16 in layer_norm": (*CASES["layer_norm"], rounded_norm, "reduced"),
    "bf16 in rms_norm": (*CASES["rms_norm"], lambda x, w: rounded_norm(x, w, centred=False), "reduced"),
    "fp16 accumulator": (torch.mm, CASES["mm"][1], half_sums, "reduced"),
    "n-1 in layer_norm": (
        *CASES["layer_norm"],
        lambda x, w, b: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() * w + b,
        "reduced wrong",
    ),
    "n for n-1": (*CASES["var"], lambda x: x.var(-1, correction=0), "reduced wrong"),
    "tanh for erf": (*CASES["gelu"], lambda x: F.gelu(x, approximate="tanh"), "reduced wrong"),
    "tail": (torch.mm, CASES["mm"][1], dropped_tail(torch.mm), "wrong"),
    "mask off by one": (masked, SQUARE, shifted_mask, "wrong"),
    "eps outside the root": (layer_norm, SMALL_VARIANCE, late_eps, "reduced wrong"),
    "factor": (*CASES["rms_norm"], lambda *a: 1.001 * rms_norm(*a), "reduced wrong"),
    "nan": (*CASES["softmax"], with_nan(CASES["softmax"][0]), "nonfinite"),
    "one gradient": (*CASES["mm gradient"], lambda g, a, b: (g @ b.t(), tf32(a).t() @ tf32(g)), "reduced"),
    "a loss with labels": (*CASES["hinge"], lambda x, y: 1.01 * F.hinge_embedding_loss(x, y), "reduced wrong"),
    "the edge of a domain": (*CASES["asin"], lambda x: x.asin() * (1 + 0.01 * (x == 1)), "reduced wrong"),
    "floor": (*CASES["floor of a product"], lambda x, y: (x * y).floor() + (torch.arange(200) == 3), "wrong"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_caught(name):
    function, make, device, expected = PLANTED[name]
    args = make()
    verdict = ulpscope.judge_call(function, args, {}, device(*args))
    print(verdict.sentence)
    assert verdict.verdict in expected.split()
    assert verdict.effective_bits < verdict.expected_bits or name == "nan"
    assert verdict.sentence.endswith(verdict.cause)


def test_causes_are_named():
    function, make, device, _ = PLANTED["tf32 matmul"]
    args = make()
    verdict = ulpscope.judge_call(function, args, {}, device(*args))
    assert verdict.cause == "inputs rounded to TF32 or float16"
    assert 9.5 < verdict.effective_bits < 13 and verdict.expected_bits > 20


def test_each_output_has_its_own_entry():
    function, make = CASES["mm gradient"]
    args = make()
    good = function(*args)
    verdict = ulpscope.judge_call(function, args, {}, (good[0], good[1] * 1.5))
    assert [o.verdict for o in verdict.outputs] == ["pass", "wrong"]
    assert [o.path for o in verdict.outputs] == ["out[0]", "out[1]"]
    assert verdict.outputs[1].cause == "the result is multiplied by 1.5" == verdict.cause
    assert verdict.worst == verdict.outputs[1].worst
    index, got, correct = verdict.worst[0]
    assert got == float((good[1] * 1.5)[index]) and abs(correct - float(good[1][index])) < 1e-4


def test_nested_outputs():
    def function(x):
        return {"a": [x.exp(), x + 1], "b": (x.argmax(), None)}

    x = randn(50)
    assert ulpscope.judge_call(function, (x,), {}, function(x)).verdict == "pass"
    wrong = function(x)
    wrong["a"][1] = wrong["a"][1] + 1
    verdict = ulpscope.judge_call(function, (x,), {}, wrong)
    assert verdict.verdict == "wrong"
    assert [o.path for o in verdict.outputs if not o.passed] == ["out[0].a[1]"]
    assert ulpscope.judge_call(function, (x,), {}, {"a": [x.exp()]}).verdict == "wrong"


# ---- written arguments ---------------------------------------------------------------


def adam(p, g, m, v, step, lr=1e-3):
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    step += 1
    unbiased = m / (1 - 0.9**step), v / (1 - 0.999**step)
    p.sub_(lr * unbiased[0] / (unbiased[1].sqrt() + 1e-8))


def optimizer_arguments():
    return randn(64), randn(64), 0.1 * randn(64), randn(64).square(), torch.tensor(3.0)


def after(function, args, **kwargs):
    left = tuple(a.clone() for a in args)
    function(*left, **kwargs)
    return left


def test_optimizer_step_is_judged_by_what_it_wrote():
    args = optimizer_arguments()
    left = after(adam, args)
    verdict = ulpscope.judge_call(adam, args, {}, None, mutated=(left, {}))
    assert verdict.verdict == "pass", verdict.sentence
    assert [o.path for o in verdict.outputs] == ["args[0]", "args[2]", "args[3]", "args[4]"]
    left = after(adam, args, lr=1.1e-3)
    assert ulpscope.judge_call(adam, args, {}, None, mutated=(left, {})).verdict in ("wrong", "reduced")


def test_lost_in_place_result_is_named():
    args = optimizer_arguments()
    verdict = ulpscope.judge_call(adam, args, {}, None, mutated=(args, {}))
    assert (
        verdict.verdict == "wrong"
        and verdict.cause == "the in-place result was lost: not written, previous contents are stale"
    )


def test_written_read_only_argument_is_wrong():
    x, y = randn(8, 8), randn(8, 8)
    spoilt = y.clone()
    spoilt[0, 0] += 1
    verdict = ulpscope.judge_call(torch.mm, (x, y), {}, x @ y, mutated=((x, spoilt), {}))
    assert verdict.verdict == "wrong" and "read-only" in verdict.sentence
    verdict = ulpscope.judge_call(torch.mm, (x, y), {}, x @ y, mutated=((x, y), {}))
    assert verdict.verdict == "pass"


def test_write_outside_the_view_is_wrong():
    def function(x):
        x.mul_(2)

    base = randn(20)
    good = base.clone()
    good[::2] *= 2
    verdict = ulpscope.judge_call(function, (base[::2],), {}, None, mutated=((good[::2],), {}))
    assert verdict.verdict == "pass", verdict.sentence
    good[1] += 1
    verdict = ulpscope.judge_call(function, (base[::2],), {}, None, mutated=((good[::2],), {}))
    assert verdict.verdict == "wrong" and "outside the view" in verdict.sentence


# ---- form, jumps, indices ------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [lambda y: y.double(), lambda y: y[:-1], lambda y: (y, y)], ids=["dtype", "shape", "count"]
)
def test_wrong_form_is_wrong(change):
    x = randn(9)
    assert ulpscope.judge_call(torch.exp, (x,), {}, change(x.exp())).verdict == "wrong"


def test_a_tie_may_be_broken_otherwise():
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0]])

    def verdict(function, *outputs):
        return ulpscope.judge_call(lambda x: tuple(function(x)), (x,), {}, outputs).verdict

    of_topk = [verdict(lambda x: x.topk(1), torch.tensor([[3.0]]), torch.tensor([[i]])) for i in (1, 2, 0)]
    of_max = [verdict(lambda x: x.max(1), torch.tensor([3.0]), torch.tensor([i])) for i in (1, 2, 0)]
    assert of_topk == ["pass", "pass", "wrong"] and of_max == ["pass", "wrong", "wrong"]


def test_a_step_that_rounding_may_take_is_forgiven_and_another_is_not():
    x, y = torch.tensor([7.0, 3.3, 2.5]), torch.tensor([1 / 7, 1.0, 1.0])
    function = lambda x, y: (x * y).floor()  # noqa: E731
    x = torch.cat([x, 9 * randn(61)])
    y = torch.cat([y, randn(61)])
    good = function(x, y)
    near = good.clone()
    near[0] = 1 - near[0]  # 7 * float32(1/7) is 1.00000001: on either side of the step
    assert ulpscope.judge_call(function, (x, y), {}, near).verdict == "pass"
    near[2] = 3.0
    assert ulpscope.judge_call(function, (x, y), {}, near).verdict == "wrong"


def test_labels_do_not_excuse_errors():
    x, y, z = randn(16, 30), randn(16, 30), signs(16)
    function = F.cosine_embedding_loss
    assert ulpscope.judge_call(function, (x, y, z), {}, function(x, y, z)).verdict == "pass"
    verdict = ulpscope.judge_call(function, (x, y, z), {}, function(x, y, z) * 1.01)
    assert verdict.verdict in ("wrong", "reduced")


# ---- what a callable may be ----------------------------------------------------------


def test_constants_of_a_callable_are_widened_with_its_arguments():
    weight, bias = randn(64, 32), randn(32)

    def layer(x):
        return torch.addmm(bias, x.float(), weight).to(torch.float32) + torch.ones(32) / 3

    x = randn(16, 64)
    verdict = ulpscope.judge_call(layer, (x,), {}, layer(x))
    assert verdict.verdict == "pass" and verdict.effective_bits > 19
    assert ulpscope.judge_call(layer, (x,), {}, tf32(x) @ weight + bias + 1 / 3).verdict == "reduced"


def test_a_module_is_judged_with_its_parameters():
    module = torch.nn.Sequential(torch.nn.Linear(24, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    x = randn(6, 24)
    assert ulpscope.judge_call(module, (x,), {}, module(x)).verdict == "pass"
    assert ulpscope.judge_call(module, (x,), {}, module(bf16(x))).verdict == "reduced"


def test_aliased_arguments_stay_aliased():
    def function(x, y):
        x.add_(1)
        return y.exp()

    x = randn(8)
    assert ulpscope.judge_call(function, (x, x), {}, (x + 1).exp()).verdict == "pass"
    assert ulpscope.judge_call(function, (x, x), {}, x.exp()).verdict == "wrong"


def test_what_promises_nothing_is_held_to_its_form():
    for fn in (torch.empty_like, lambda x: x.new_empty(4, 5)):
        assert ulpscope.judge_call(fn, (randn(4, 5),), {}, randn(4, 5)).passed
        assert ulpscope.judge_call(fn, (randn(4, 5),), {}, randn(4, 6)).verdict == "wrong"


@pytest.mark.parametrize("dtype", LOW)
def test_neighbouring_numbers_are_those_of_the_dtype(dtype):
    x = randn(8, 9).to(dtype)
    right = torch.nextafter(x, 2 * x)
    assert ulpscope.judge_call(torch.nextafter, (x, 2 * x), {}, right).passed
    assert not ulpscope.judge_call(torch.nextafter, (x, 2 * x), {}, x).passed


def test_what_lies_around_an_argument_can_be_read():
    storage = randn(64)
    x = storage[10:30]

    def around(x):
        return torch.as_strided(x, (3, 4), (4, 1), 2) * 3.3

    right = torch.as_strided(storage, (3, 4), (4, 1), 2)
    assert ulpscope.judge_call(around, (x,), {}, right * 3.3).passed
    assert ulpscope.judge_call(around, (x,), {}, bf16(right) * 3.3).verdict == "reduced"
    shifted = torch.as_strided(storage, (3, 4), (4, 1), 3) * 3.3
    assert ulpscope.judge_call(around, (x,), {}, shifted).verdict == "wrong"
    moved = torch.ops.aten.as_strided.default, (x, (3, 4), (4, 1), 40)
    assert ulpscope.judge_call(*moved, {}, torch.as_strided(storage, (3, 4), (4, 1), 40)).passed


def test_value_dependent_shapes():
    x = F.relu(randn(20))
    function = lambda x: (x.nonzero(), x[x > 0].exp())  # noqa: E731
    assert ulpscope.judge_call(function, (x,), {}, function(x)).verdict == "pass"
    assert ulpscope.judge_call(function, (x,), {}, function(x[:-3])).verdict == "wrong"
