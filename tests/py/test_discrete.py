# SPDX-License-Identifier: Apache-2.0
"""Operators that choose, count and convert: a tie broken otherwise passes, what nobody
promised is `undefined`, and every planted bug is `wrong`."""

import pytest
import torch
import torch.nn.functional as F
from calls import make_call

import ulpscope
from ulpscope.executors.device import PythonDevice
from ulpscope.session.judging import judge_call

aten = torch.ops.aten
SEED = 3
X = torch.randn(24, 40, generator=torch.Generator().manual_seed(SEED))
TIED = torch.randint(0, 6, (24, 40), generator=torch.Generator().manual_seed(SEED)).float()
WITH_NAN = X.clone().index_put((torch.tensor([0, 3]), torch.tensor([3, 5])), torch.tensor([float("nan"), float("inf")]))
ZEROS = torch.where(X.abs() < 0.3, 0.0, X)
COTANGENT = torch.randn(24, 40, generator=torch.Generator().manual_seed(SEED + 1))
PLACES = torch.randint(0, 24, (40,), generator=torch.Generator().manual_seed(SEED))
IMAGE = torch.randint(0, 4, (2, 3, 12, 12), generator=torch.Generator().manual_seed(SEED)).float()
BYTES = torch.arange(-120, 120, dtype=torch.int8)
A, B = torch.randn(300, 64), torch.randn(64, 30)


def last_argmax(x, dim=-1):
    return x.shape[dim] - 1 - x.flip(dim).argmax(dim)


def first_of(x, values):
    """Index of the first element of each row that is the row's value."""
    return (x == values[:, None]).int().argmax(-1)


def sorted_otherwise(x):
    """A sort that leaves ties in reverse order."""
    values, index = x.flip(-1).sort(dim=-1, stable=True)
    return values, x.shape[-1] - 1 - index


def pooled(image):
    return F.max_pool2d(image, 2, return_indices=True)


def pooled_from_the_right(image):
    values, index = pooled(image)
    mirrored = pooled(image.flip(-1))[1].flip(-1)
    return values, mirrored // 12 * 12 + 11 - mirrored % 12


def pooled_anywhere(image):
    """The right values, at the first such value of the whole plane."""
    values, index = pooled(image)
    planes = zip(image.flatten(0, 1), values.flatten(0, 1), strict=True)
    found = [(p.reshape(1, -1) == v.reshape(-1, 1)).int().argmax(-1).view(6, 6) for p, v in planes]
    return values, torch.stack(found).view(index.shape)


def unique_backwards(x):
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return values.flip(0), len(values) - 1 - inverse, counts.flip(0)


def swapped(function, a, b):
    """A device that takes two results of each row for one another."""

    def run(*args):
        out = tuple(t.clone() for t in function(*args))
        for t in out:
            t[:, [a, b]] = t[:, [b, a]]
        return out

    return run


def gradient(function):
    def run(x, cotangent):
        x = x.detach().requires_grad_()
        y = function(x)
        return torch.autograd.grad(y, x, cotangent.expand_as(y))[0]

    return run


def argmax(x):
    return x.argmax(-1)


def top(x):
    return x.topk(5)


def unsorted_top(x):
    return x.topk(5, sorted=False)


def unique(x):
    return torch.unique(x, sorted=False, return_inverse=True, return_counts=True)


def stable(x):
    return x.sort(dim=-1, stable=True)


def sort(x):
    return x.sort(-1)


def product_argmax(a, b):
    return (a @ b).argmax(-1)


def product_rounded(a, b):
    return (a @ b).round().long()


def to_int8(x):
    return x.to(torch.int8)


def scattered(x, index, source):
    return x.index_put((index,), source)


def reversed_scatter(x, index, source):
    return x.index_put((index.flip(0),), source.flip(0))


# name: (function, arguments, what the device computes)
HONEST = {
    "argmax": (argmax, (TIED,), lambda x: first_of(x, x.amax(-1))),
    "argmax of what rounds": (
        lambda x: (x * 0.7).softmax(-1).argmax(-1),
        (TIED,),
        lambda x: last_argmax((x * 0.7).softmax(-1)),
    ),
    "median": (lambda x: x.median(-1), (TIED,), lambda x: (m := x.median(-1)[0], first_of(x, m))),
    "kthvalue": (lambda x: x.kthvalue(5), (TIED,), lambda x: (m := x.kthvalue(5)[0], first_of(x, m))),
    "mode": (lambda x: x.mode(-1), (TIED,), lambda x: (m := x.mode(-1)[0], first_of(x, m))),
    "cummax": (
        lambda x: x.cummax(-1),
        (TIED,),
        lambda x: (m := x.cummax(-1)[0], (x[:, None] == m[..., None]).int().argmax(-1)),
    ),
    "sort": (sort, (TIED,), sorted_otherwise),
    "argsort": (lambda x: x.argsort(-1), (TIED,), lambda x: sorted_otherwise(x)[1]),
    "stable sort": (stable, (TIED,), stable),
    "sort with NaN": (sort, (WITH_NAN,), sort),
    "topk": (top, (TIED,), lambda x: (top(x)[0], sorted_otherwise(x)[1].flip(-1)[:, :5])),
    "topk in any order": (unsorted_top, (X,), lambda x: tuple(t.flip(-1) for t in top(x))),
    "max_pool2d": (pooled, (IMAGE,), pooled_from_the_right),
    "adaptive_max_pool2d": (
        lambda x: F.adaptive_max_pool2d(x, 5, return_indices=True),
        (IMAGE,),
        lambda x: F.adaptive_max_pool2d(x, 5, return_indices=True),
    ),
    "unique in any order": (unique, (TIED,), unique_backwards),
    "round": (torch.round, (100 * X,), torch.round),
    "floor in bfloat16": (torch.floor, (10 * X.bfloat16(),), torch.floor),
    "argmax of a product": (product_argmax, (A, B), lambda a, b: product_argmax(a.double(), b.double())),
    "argmax of a bfloat16 product": (
        product_argmax,
        (A.bfloat16(), B.bfloat16()),
        lambda a, b: product_argmax(a.float(), b.float()),
    ),
    "a product above zero": (lambda a, b: a @ b > 0, (A, B), lambda a, b: a.double() @ b.double() > 0),
    "a bfloat16 product rounded": (
        product_rounded,
        (A.bfloat16(), B.bfloat16()),
        lambda a, b: (a.float() @ b.float()).bfloat16().round().long(),
    ),
    "clamp's gradient on a bound": (
        gradient(lambda x: x.clamp(0, 1)),
        (TIED, COTANGENT),
        gradient(lambda x: x.clamp(0, 1)),
    ),
}
WRONG = {
    "argmax: the last of equals": (argmax, (TIED,), last_argmax),
    "argmin of dim 0: the last of equals": (lambda x: x.argmin(0), (TIED,), lambda x: last_argmax(-x, 0)),
    "argmax of all: the last of equals": (torch.argmax, (TIED,), lambda x: (x.view(-1) == x.max()).nonzero()[-1, 0]),
    "argmax kept: the last": (lambda x: x.argmax(1, keepdim=True), (TIED,), lambda x: last_argmax(x)[:, None]),
    "argmax of integers: the last of equals": (argmax, (TIED.long(),), last_argmax),
    "max: the last of equals": (lambda x: x.max(1), (TIED,), lambda x: (x.amax(1), last_argmax(x))),
    "max of integers: the last of equals": (lambda x: x.max(1), (TIED.int(),), lambda x: (x.amax(1), last_argmax(x))),
    "beside others: the last of equals": (
        lambda x: (x.topk(5)[0], x.amax(1), x.argmax(1)),
        (TIED,),
        lambda x: (x.topk(5)[0], x.amax(1), last_argmax(x)),
    ),
    "of moved ones: the last of equals": (
        lambda x: x.flip(0).relu().argmax(1),
        (TIED,),
        lambda x: last_argmax(x.flip(0).relu()),
    ),
    "off by one": (argmax, (X,), lambda x: (argmax(x) + 1) % 40),
    "one index off": (argmax, (X,), lambda x: argmax(x) - (torch.arange(24) == 5).long()),
    "wrong dim": (argmax, (X[:, :24],), lambda x: x.argmax(0)),
    "NaN is not the largest": (argmax, (WITH_NAN,), lambda x: argmax(x.nan_to_num(-9))),
    "index of the smallest": (lambda x: x.max(1), (X,), lambda x: (x.amax(1), x.argmin(1))),
    "upper median": (lambda x: x.median(-1), (X,), lambda x: tuple(t[:, 20] for t in sort(x))),
    "cummax from the future": (
        lambda x: x.cummax(-1),
        (TIED,),
        lambda x: (m := x.cummax(-1)[0], 39 - (x[:, None] == m[..., None]).flip(-1).int().argmax(-1)),
    ),
    "stable sort turns ties": (stable, (TIED,), sorted_otherwise),
    "stable argsort turns ties": (lambda x: x.argsort(dim=-1, stable=True), (TIED,), lambda x: sorted_otherwise(x)[1]),
    "index twice": (
        sort,
        (TIED,),
        lambda x: (sort(x)[0], sort(x)[1].index_copy(1, torch.tensor([1]), sort(x)[1][:, :1])),
    ),
    "last element dropped": (sort, (X,), lambda x: tuple(torch.cat([t[:, :-1], t[:, -2:-1]], 1) for t in sort(x))),
    "descending": (sort, (X,), lambda x: x.sort(-1, descending=True)),
    "two out of order": (sort, (X,), swapped(sort, 3, 4)),
    "NaN first": (sort, (WITH_NAN,), lambda x: tuple(t.roll(1, -1) for t in sort(x))),
    "topk from below": (top, (X,), lambda x: x.topk(5, largest=False)),
    "topk ascending": (top, (X,), lambda x: tuple(t.flip(-1) for t in top(x))),
    "topk past 16 is zero": (
        lambda x: x.topk(20),
        (X,),
        lambda x: tuple(torch.cat([t[:, :16], 0 * t[:, 16:]], 1) for t in x.topk(20)),
    ),
    "values of other indices": (unsorted_top, (X,), lambda x: (top(x)[0].flip(-1), top(x)[1])),
    "index in the window": (pooled, (IMAGE,), lambda x: (pooled(x)[0], pooled(x)[1] // 12 % 2 * 2 + pooled(x)[1] % 2)),
    "index of another window": (pooled, (IMAGE,), pooled_anywhere),
    "unique out of order": (lambda x: torch.unique(x), (TIED,), lambda x: torch.unique(x).flip(0)),
    "counts of other values": (unique, (TIED,), lambda x: (*unique_backwards(x)[:2], unique_backwards(x)[2].flip(0))),
    "searchsorted on the right": (
        torch.searchsorted,
        (TIED[0].sort()[0], TIED[1]),
        lambda a, b: torch.searchsorted(a, b, right=True),
    ),
    "half away from zero": (
        torch.round,
        (torch.arange(-10, 10) + 0.5,),
        lambda x: torch.where(x < 0, (x - 0.5).ceil(), (x + 0.5).floor()),
    ),
    "floor toward zero": (torch.floor, (10 * X,), torch.trunc),
    "floor of large numbers": (
        torch.floor,
        (X.abs() * 2**20 + 2**21,),
        lambda x: x.floor() + 0.5 * (torch.arange(40) == 3),
    ),
    "> for >=": (torch.ge, (TIED, TIED.flip(0)), torch.gt),
    "nonzero loses one": (torch.nonzero, (TIED,), lambda x: x.nonzero()[:-1]),
    "masked_select loses two": (torch.masked_select, (X, X > 0), lambda x, m: x[m][:-2]),
    "integers saturate": (torch.add, (BYTES, BYTES), lambda a, b: (a.int() + b.int()).clamp(-128, 127).to(torch.int8)),
    "cast rounds": (lambda x: x.int(), (10 * X,), lambda x: x.round().int()),
    "cast saturates too early": (to_int8, (200 * X,), lambda x: to_int8(x.clamp(-100, 100))),
    "second best of a product": (product_argmax, (A, B), lambda a, b: (a @ b).topk(2)[1][:, 1]),
    "a product truncated": (product_rounded, (A, B), lambda a, b: (a @ b).trunc().long()),
    "relu's gradient to 0.5": (gradient(F.relu), (ZEROS, COTANGENT), lambda x, c: torch.where(x >= 0.5, c, 0.0)),
    "garbage at relu's corner": (
        aten.threshold_backward.default,
        (COTANGENT, ZEROS, 0.0),
        lambda c, x, t: torch.where(x == 0, 1e6, torch.where(x > 0, c, 0.0)),
    ),
    "relu at 0": (gradient(F.relu), (ZEROS, COTANGENT), lambda x, c: torch.where(x >= 0, c, 0.0)),
    "threshold_backward": (
        aten.threshold_backward.default,
        (COTANGENT, ZEROS, 0.0),
        lambda c, x, t: torch.where(x >= t, c, 0.0),
    ),
    "duplicates are added": (
        scattered,
        (X, PLACES, torch.randn(40, 40)),
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
    ),
    "histc loses one": (
        lambda x: torch.histc(x, 10, -3, 3),
        (X,),
        lambda x: torch.histc(x, 10, -3, 3) - (torch.arange(10) == 9).float(),
    ),
}
UNDEFINED = {
    "cast saturates": (to_int8, (200 * X,), lambda x: to_int8(x.clamp(-128, 127))),
    "cast of NaN": (lambda x: x.int(), (WITH_NAN,), lambda x: x.nan_to_num(7, 7, 7).int()),
    "abs at 0": (gradient(torch.abs), (ZEROS, COTANGENT), lambda x, c: torch.where(x >= 0, c, -c)),
    "amax of a tie": (
        gradient(lambda x: x.amax(-1)),
        (TIED, COTANGENT[:, 0]),
        lambda x, c: torch.zeros_like(x).scatter(1, argmax(x)[:, None], c[:, None]),
    ),
    "max of a tie": (
        gradient(lambda x: x.max(-1)[0]),
        (TIED, COTANGENT[:, 0]),
        lambda x, c: torch.zeros_like(x).scatter(1, last_argmax(x)[:, None], c[:, None]),
    ),
    "clamp on a bound": (
        gradient(lambda x: x.clamp(0, 1)),
        (TIED, COTANGENT),
        lambda x, c: torch.where((x > 0) & (x < 1), c, 0.0),
    ),
    "max_pool2d of a tie": (
        gradient(lambda x: F.max_pool2d(x, 2)),
        (IMAGE, torch.randn(2, 3, 6, 6)),
        lambda x, c: gradient(lambda x: F.max_pool2d(x, 2))(x.flip(-1), c.flip(-1)).flip(-1),
    ),
    "scatter": (
        lambda x, i, s: x.scatter(1, i, s),
        (X, PLACES[torch.randint(0, 24, (24, 40))], COTANGENT),
        lambda x, i, s: x.scatter(1, i.flip(1), s.flip(1)),
    ),
    "index_put": (scattered, (X, PLACES, torch.randn(40, 40)), reversed_scatter),
    "index_copy": (
        lambda x, i, s: x.index_copy(0, i, s),
        (X, PLACES, torch.randn(40, 40)),
        lambda x, i, s: x.index_copy(0, i.flip(0), s.flip(0)),
    ),
}
CASES = [(kind, name) for kind in ("HONEST", "WRONG", "UNDEFINED") for name in globals()[kind]]


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


@pytest.mark.parametrize("kind, name", CASES)
def test_verdict(kind, name):
    function, arguments, device = globals()[kind][name]
    verdict = ulpscope.judge_call(function, arguments, {}, device(*arguments))
    expected = {"HONEST": ("pass",), "UNDEFINED": ("undefined",), "WRONG": ("wrong", "nonfinite")}
    assert verdict.verdict in expected[kind], verdict.sentence


# ---- the same from a trace, by operator ----------------------------------------------


def answering(change):
    """A device that gives what `change` makes of the operator's result and arguments."""
    return PythonDevice(lambda op, args, kwargs: change(op(*args, **kwargs), *args))


@pytest.mark.parametrize(
    "op, args, change, verdict",
    [
        ("aten::argmax", (TIED, 1), lambda out, x, d: last_argmax(x), "wrong"),
        ("aten::argmax", (X, 1), lambda out, x, d: x.argmin(1), "wrong"),
        ("aten::max.dim", (TIED, 1), lambda out, x, d: (out[0], last_argmax(x)), "wrong"),
        ("aten::max.dim", (TIED.long(), 1), lambda out, x, d: (out[0] - 1, out[1]), "wrong"),
        ("aten::kthvalue", (TIED, 5), lambda out, x, k: (out[0], first_of(x, out[0])), "pass"),
        ("aten::sort.stable", (TIED,), lambda out, x: sorted_otherwise(x), "pass"),
        ("aten::topk", (X, 5, 1, True, False), lambda out, *_: tuple(t.flip(1) for t in out), "pass"),
        ("aten::max_pool2d_with_indices", (IMAGE, [2, 2]), lambda out, x, k: pooled_from_the_right(x), "pass"),
        ("aten::max_pool2d_with_indices", (IMAGE, [2, 2]), lambda out, x, k: (out[0], out[1] % 12), "wrong"),
        (
            "aten::threshold_backward",
            (COTANGENT, ZEROS, 0.0),
            lambda out, c, x, t: torch.where(x >= t, c, 0.0),
            "wrong",
        ),
    ],
)
def test_verdict_on_an_operator(op, args, change, verdict):
    kwargs = {"stable": False} if op == "aten::sort.stable" else {}
    device = answering(lambda out, *a: change(out, *a))
    found = judge_call(make_call(op, *args, **kwargs), device)
    assert found.verdict == verdict, (found.worst.reason, found.reason)


def test_cast_of_a_trace_is_undefined_where_out_of_range():
    call = make_call("aten::_to_copy", 200 * X, dtype=torch.int8)
    device = PythonDevice(lambda op, args, kwargs: args[0].clamp(-128, 127).to(torch.int8))
    verdict = judge_call(call, device)
    assert verdict.verdict == "undefined" and "does not hold" in verdict.worst.reason


def test_integers_divided_by_zero_are_undefined():
    numbers = torch.tensor([4, 0, 2])
    verdict = ulpscope.judge_call(lambda x: 8 // x, (numbers,), {}, torch.tensor([2, -1, 4]))
    assert verdict.verdict == "undefined" and "divided by zero" in verdict.sentence


@pytest.mark.parametrize("name", ["argsort", "topk", "max_pool2d"])
def test_a_pass_says_that_another_value_was_chosen(name):
    """The sentence of an output that is not the CPU's and as good agrees with the note; one that is the CPU's has
    neither."""
    function, arguments, device = HONEST[name]
    other = ulpscope.judge_call(function, arguments, {}, device(*arguments))
    chosen = other.outputs[-1].sentence
    assert "ties broken otherwise" in other.notes and "are not the CPU's, and as good" in chosen, chosen
    own = ulpscope.judge_call(function, arguments, {}, function(*arguments))
    assert not own.notes and own.outputs[-1].sentence.endswith("is correctly rounded"), own.outputs[-1].sentence
