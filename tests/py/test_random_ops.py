# SPDX-License-Identifier: Apache-2.0
"""Random operators: honest draws of every law pass whatever the seed, and generators with
a planted bug are caught, from one answer and on a device that can be asked twice."""

import math

import pytest
import torch
import torch.nn.functional as F
from calls import make_call

import ulpscope
from ulpscope.executors.device import PythonDevice
from ulpscope import _core
from ulpscope.session.judging import judge_call

aten = torch.ops.aten
N, P, SEED = 2048, 0.3, 11
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


def x_of(dtype=torch.float32, n=N):
    values = torch.randn(n // 8, 8, generator=torch.Generator().manual_seed(SEED + 1))
    return values.to(dtype)


def weights():
    made = torch.rand(4, 64, generator=torch.Generator().manual_seed(SEED + 1))
    made[:, 0] = 0
    return made


def filled(method, *args):
    """A callable that fills a tensor of N elements of some dtype in place."""
    return lambda like: getattr(torch.empty(N, dtype=like.dtype), method)(*args)


# name -> function of one tensor whose dtype counts, and whether low precision has a kernel
LAWS = {
    "rand": lambda x: torch.rand(N, dtype=x.dtype),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn(N, dtype=x.dtype),
    "normal_": filled("normal_", 3.0, 0.5),
    "uniform_": filled("uniform_", -2.0, 7.0),
    "exponential_": filled("exponential_", 2.0),
    "cauchy_": filled("cauchy_", 1.0, 2.0),
    "log_normal_": filled("log_normal_", 0.0, 0.5),
    "geometric_": filled("geometric_", 0.3),
    "random_": filled("random_"),
    "random_ to": filled("random_", 0, 100),
    "bernoulli_": filled("bernoulli_", 0.2),
    "randint": lambda x: torch.randint(-5, 9, (N,), dtype=x.dtype),
    "dropout": lambda x: F.dropout(x, P),
    "native_dropout": lambda x: aten.native_dropout(x, P, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, P, True),
}
ONE_DTYPE = {
    "dropout of zeros": lambda x: F.dropout(x.relu(), 0.1),
    "dropout with p = 1": lambda x: F.dropout(x, 1.0),
    "dropout1d": lambda x: F.dropout1d(x.view(-1, 16, 4), P),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x.view(-1, 16, 4), P, True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "module": torch.nn.Dropout(0.4),
    "randperm": lambda x: torch.randperm(N),
    "int8": lambda x: torch.randint(-5, 100, (N,), dtype=torch.int8),
    "int64": lambda x: torch.empty(N, dtype=torch.int64).random_(),
    "complex": lambda x: torch.randn(N, dtype=torch.complex64),
    "bernoulli of p": lambda x: torch.bernoulli(x.sigmoid()),
    "poisson": lambda x: torch.poisson(x.abs() * 5),
    "normal of tensors": lambda x: torch.normal(x, x.abs()),
    "multinomial": lambda x: torch.multinomial(weights(), 30),
    "multinomial again": lambda x: torch.multinomial(weights(), 500, replacement=True),
}
UNKNOWN = {  # judged against draws of the CPU
    "classes": lambda x: F.gumbel_softmax(torch.zeros(600, 6), hard=True),
    "orders": lambda x: torch.stack([torch.randperm(12) for _ in range(300)]),
    "noise": lambda x: x + 0.1 * torch.randn_like(x),
    "gumbel": lambda x: F.gumbel_softmax(x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.2),
    "block": lambda x: F.dropout(F.relu(x @ torch.ones(8, 8)), 0.2).softmax(-1),
    "binomial": lambda x: torch.binomial(torch.full_like(x, 20), x.sigmoid()),
    "gamma": lambda x: torch._standard_gamma(x.abs() + 0.1),
    "rows in an order": lambda x: x.view(64, -1)[torch.randperm(64)],
    "elements in an order": lambda x: 0.7 * x.flatten()[torch.randperm(x.numel())],
    "put in an order": lambda x: torch.zeros_like(x).index_copy_(0, torch.randperm(len(x)), x),
}


def passes_for_seeds(function, argument, seeds):
    for seed in seeds:
        torch.manual_seed(seed)
        verdict = ulpscope.judge_call(function, (argument,), {}, function(argument))
        assert verdict.verdict == "pass", (seed, verdict.sentence)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAWS)
def test_honest_draws_pass(name, dtype):
    passes_for_seeds(LAWS[name], x_of(DTYPES[dtype]), range(5))


@pytest.mark.parametrize("name", ONE_DTYPE)
def test_honest_draws_of_one_dtype_pass(name):
    passes_for_seeds(ONE_DTYPE[name], x_of(), range(8))


@pytest.mark.parametrize("name", UNKNOWN)
def test_draws_that_nobody_described_pass(name):
    passes_for_seeds(UNKNOWN[name], x_of(n=512), range(3))


@pytest.mark.parametrize("name", ["dropout", "randn", "bernoulli_", "randint"])
def test_two_hundred_seeds_pass(name):
    passes_for_seeds(LAWS[name], x_of(n=512), range(200))


def test_what_is_infinite_is_kept_as_it_is():
    x = x_of()
    x[::97], x[50::97] = float("inf"), -float("inf")
    for name in ("alpha_dropout", "dropout"):
        torch.manual_seed(4)
        y = LAWS[name](x)
        assert ulpscope.judge_call(LAWS[name], (x,), {}, y).verdict == "pass", name
        wrong = torch.where(y.isinf(), -y, y)
        assert ulpscope.judge_call(LAWS[name], (x,), {}, wrong).verdict == "nonfinite", name


# ---- planted bugs --------------------------------------------------------------------


def dropped(x, q=P, scale=1 / (1 - P), tail=0, rows=False, period=0):
    """A dropout with a choice of bugs: (result, mask)."""
    mask = torch.rand(x.shape) >= q
    if rows:
        mask = mask[:1].expand_as(x)
    if period:
        mask = mask.flatten()[:period].repeat(x.numel() // period + 1)[: x.numel()].view_as(x)
    out = torch.where(mask, x * scale, 0.0)
    if tail:
        out.view(-1)[-tail:] = 0
    return out, mask


def forgets_mask(x):
    out, mask = dropped(x)
    return out, torch.where(torch.arange(len(mask))[:, None] == 0, ~mask, mask)


def with_last(values, last):
    return torch.cat([values[:-1], torch.tensor([last])])


def with_first(values, first):
    return torch.cat([first[None], values[1:]])


def torn(rows):
    """The first two rows, each with the other's first element."""
    rows[0, 0], rows[1, 0] = rows[1, 0].clone(), rows[0, 0].clone()
    return rows


def two_runs():
    return torch.randint(0, 2, (N,)).sort(stable=True).indices


DROPOUT = lambda x: F.dropout(x, P)  # noqa: E731
RAND, RANDN = (lambda x: torch.rand(N)), (lambda x: torch.randn(N))
TENS, PERM = (lambda x: torch.randint(0, 10, (N,))), (lambda x: torch.randperm(N))
PICK = lambda w: torch.multinomial(w, 400, replacement=True)  # noqa: E731
PICK_ONCE = lambda w: torch.multinomial(w, 40)  # noqa: E731
NOISE, ROWS = UNKNOWN["noise"], UNKNOWN["rows in an order"]
CLASSES = lambda x: F.gumbel_softmax(torch.zeros(3000, 6), hard=True)  # noqa: E731
ORDERS = lambda x: torch.stack([torch.randperm(12) for _ in range(1200)])  # noqa: E731
WAITS = lambda x: torch.empty(200, 100).exponential_(2.0)  # noqa: E731
ONES = lambda x: torch.bernoulli(torch.zeros(40000), 0.25)  # noqa: E731
MANY = lambda x: torch.rand(20000)  # noqa: E731


def five_classes(x):
    return F.one_hot(F.gumbel_softmax(torch.zeros(3000, 5)).argmax(-1), 6).float()


def cycles(x):
    """Permutations in which no place keeps its own number (Sattolo's)."""
    out = torch.arange(12).repeat(1200, 1)
    for i in range(11, 0, -1):
        j = torch.randint(0, i, (1200,))
        rows = torch.arange(1200)
        out[rows, i], out[rows, j] = out[rows, j], out[rows, i].clone()
    return out


ATTENTION = UNKNOWN["attention"]
BUGS = {
    "wrong p": (DROPOUT, lambda x: dropped(x, 0.2)[0]),
    "not scaled": (DROPOUT, lambda x: dropped(x, scale=1.0)[0]),
    "scaled by p": (DROPOUT, lambda x: dropped(x, scale=1 / P)[0]),
    "inverted mask": (DROPOUT, lambda x: dropped(x, 1 - P)[0]),
    "one mask for all rows": (DROPOUT, lambda x: dropped(x, rows=True)[0]),
    "a mask that repeats": (DROPOUT, lambda x: dropped(x, period=96)[0]),
    "tail lost": (DROPOUT, lambda x: dropped(x, tail=16)[0]),
    "never drops": (DROPOUT, lambda x: x / (1 - P)),
    "drops nothing, scales nothing": (DROPOUT, lambda x: x.clone()),
    "kept in bfloat16": (DROPOUT, lambda x: dropped(x)[0].bfloat16().float()),
    "mask of another row": (lambda x: aten.native_dropout(x, P, True), forgets_mask),
    "torn features": (ONE_DTYPE["dropout1d"], lambda x: dropped(x.view(-1, 16, 4))[0]),
    "rand gives 1": (RAND, lambda x: with_last(torch.rand(N), 1.0)),
    "rand loses its tail": (RAND, lambda x: with_last(torch.rand(N), 0.0)),
    "rand of 8 bits": (RAND, lambda x: torch.rand(N).bfloat16().float().clamp(max=0.99)),
    "rand repeats": (RAND, lambda x: torch.rand(N // 3 + 1).repeat(3)[:N]),
    "rand is constant": (RAND, lambda x: torch.full((N,), 0.37)),
    "rand is sorted": (RAND, lambda x: torch.rand(N).sort().values),
    "randn too wide": (RANDN, lambda x: 1.2 * torch.randn(N)),
    "randn is even": (RANDN, lambda x: (torch.rand(N) - 0.5) * 12**0.5),
    "randn in pairs": (RANDN, lambda x: torch.randn(N // 2).repeat_interleave(2)),
    "randn with NaN": (RANDN, lambda x: with_last(torch.randn(N), float("nan"))),
    "high is drawn": (TENS, lambda x: torch.randint(0, 11, (N,))),
    "high - 1 is not": (TENS, lambda x: torch.randint(0, 9, (N,))),
    "a value is missing": (TENS, lambda x: (t := TENS(x)) + (t == 5)),
    "two increasing runs": (PERM, lambda x: two_runs()),
    "no permutation": (PERM, lambda x: torch.randint(0, N, (N,))),
    "always zero": (PICK, lambda w: torch.zeros(4, 400, dtype=torch.int64)),
    "weights ignored": (PICK, lambda w: torch.randint(1, 64, (4, 400))),
    "replaced all the same": (PICK_ONCE, lambda w: torch.multinomial(w, 40, True)),
    "the largest always": (PICK_ONCE, lambda w: w.topk(40).indices),
    "rate for scale": (LAWS["exponential_"], filled("exponential_", 0.5)),
    "infinite": (LAWS["exponential_"], lambda x: with_last(torch.empty(N).exponential_(2.0), float("inf"))),
    "counts from zero": (LAWS["geometric_"], lambda x: torch.empty(N).geometric_(0.3) - 1),
    "p for all alike": (ONE_DTYPE["bernoulli of p"], lambda x: torch.bernoulli(0 * x + 0.5)),
    "slope is fixed": (ONE_DTYPE["rrelu"], lambda x: F.rrelu(x)),
    "a class that never wins": (CLASSES, five_classes),
    "no place keeps its number": (ORDERS, cycles),
    "columns wait longer and longer": (WAITS, lambda x: WAITS(x) * torch.linspace(0.8, 1.2, 100)),
    "each 37th is never one": (ONES, lambda x: ONES(x) * (torch.arange(40000) % 37 != 5)),
    "one of each part of a grid": (MANY, lambda x: ((torch.arange(20000) + MANY(x)) / 20000)[torch.randperm(20000)]),
    "rows with repeats": (ROWS, lambda x: x.view(64, -1)[torch.randint(0, 64, (64,))]),
    "the last row twice": (ROWS, lambda x: x.view(64, -1)[[*range(1, 64), 63]]),
    "rows torn apart": (ROWS, lambda x: torn(ROWS(x))),
    "a class of two halves": (CLASSES, lambda x: with_first(CLASSES(x), torch.tensor([0.5, 0.5, 0, 0, 0, 0]))),
    "noise 20 % larger": (NOISE, lambda x: x + 0.12 * torch.randn_like(x)),
    "noise shared by rows": (NOISE, lambda x: x + 0.1 * torch.randn_like(x[:1])),
    "attention without dropout": (ATTENTION, lambda x: F.scaled_dot_product_attention(x, x, x)),
    "attention with another p": (ATTENTION, lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4)),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught(name):
    function, device = BUGS[name]
    argument = weights() if function in (PICK, PICK_ONCE) else x_of()
    if function is ATTENTION:
        argument = argument[:64]
    verdict = ulpscope.judge_call(function, (argument,), {}, device(argument))
    kinds = {"kept in bfloat16": "reduced", "randn with NaN": "nonfinite", "infinite": "nonfinite"}
    assert verdict.verdict == kinds.get(name, "wrong"), verdict.sentence


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("op", [F.dropout, F.alpha_dropout])
def test_a_rounded_scale_is_no_room(op, p, dtype):
    """torch's own kernel rounds each step to the dtype; what is an ulp beyond that is accused."""
    torch.manual_seed(2)
    x = torch.randn(5000).to(dtype)
    own = op(x, p, True)
    more = torch.nextafter(own, torch.full_like(own, torch.inf).copysign(own))
    up = torch.where((torch.arange(5000) % 3 == 0) & (own != 0), more, own)
    verdicts = [ulpscope.judge_call(op, (x, p, True), {}, out, cause=False).verdict for out in (own, up)]
    assert verdicts[0] == "pass" and verdicts[1] in ("wrong", "reduced"), verdicts


def heads(q, w, b, out, bias):
    return F.multi_head_attention_forward(q, q, q, 4, 2, w, b, None, None, False, 0.3, out, bias, True)


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_masks_that_one_output_hides_are_told_by_the_other(seed):
    """Weights that are small or alike show in the averaged weights and not in the output, or the other way round."""
    torch.manual_seed(seed)
    args = [torch.randn(6, 4, 4) * 8, torch.randn(12, 4) * 2, torch.randn(12), torch.randn(4, 4), torch.randn(4)]
    out, weights = heads(*args)
    small = (weights < 1e-4) & (weights > 0)
    assert small.any()
    assert ulpscope.judge_call(heads, args, {}, (out, weights), cause=False).verdict == "pass"
    for wrong in (weights * 1.001, torch.where(small, 2 * weights, weights)):
        verdict = ulpscope.judge_call(heads, args, {}, (out, wrong), cause=False)
        assert verdict.verdict in ("wrong", "reduced"), str(verdict)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masks_between_operators_that_round(dtype):
    """Attention with dropout in 16 bits: held to what the roundings between its operators cost, with its masks."""
    torch.manual_seed(0)
    args = [torch.randn(6, 4, 4), torch.randn(12, 4) / 2, torch.randn(12), torch.randn(4, 4) / 2, torch.randn(4)]
    args = [t.to(dtype) for t in args]
    out, weights = heads(*args)
    assert ulpscope.judge_call(heads, args, {}, (out, weights), cause=False).verdict == "pass"
    stale = torch.cat([out[:1], out[:1], out[2:]])
    for wrong in ((stale, weights), (out, (weights.double() * 1.05).to(dtype))):
        verdict = ulpscope.judge_call(heads, args, {}, wrong, cause=False)
        assert verdict.verdict in ("wrong", "reduced"), str(verdict)


def wide_heads(q, w, b, out, bias):
    return F.multi_head_attention_forward(q, q, q, 32, 4, w, b, None, None, False, 0.1, out, bias, True)


@pytest.mark.parametrize("dtype, size", [(torch.bfloat16, 1), (torch.float16, 1), (torch.float16, 4)])
def test_masks_that_nothing_tells_leave_no_freedom(dtype, size):
    """Weights that show nowhere, since they are alike or what rounds before them hides them (logits of 50 and more): an
    output is held to what draws of them give, and tells no bits."""
    torch.manual_seed(0)
    root = 32**0.5
    args = [
        torch.randn(16, 4, 32) * size,
        torch.randn(96, 32) / root,
        torch.randn(96),
        torch.randn(32, 32) / root,
        torch.randn(32),
    ]
    args = [t.to(dtype) for t in args]
    out, weights = wide_heads(*args)
    own = ulpscope.judge_call(wide_heads, args, {}, (out, weights), cause=False)
    assert own.verdict == "pass"
    first = next(f for f in own.outputs if f.path == "out[0]")
    assert math.isnan(first.effective_bits), str(first)
    some = (torch.arange(out.numel()) % 7 == 0).view(out.shape)
    beyond = torch.where(some, out.double() + out.double().abs().mean(), out.double()).to(dtype)
    for wrong in (torch.cat([out[:1], out[:1], out[2:]]), beyond):
        verdict = ulpscope.judge_call(wide_heads, args, {}, (wrong, weights), cause=False)
        assert verdict.verdict in ("wrong", "reduced"), str(verdict)


# ---- a device that can be asked twice ------------------------------------------------


def native(op, args, kwargs):
    return op(*args, **kwargs)


def constant_seed(op, args, kwargs):
    torch.manual_seed(3)
    return op(*args, **kwargs)


@pytest.mark.parametrize(
    "op, args, kwargs",
    [
        ("aten::native_dropout", lambda: (x_of(), P, True), {}),
        ("aten::bernoulli_.float", lambda: (x_of(), 0.4), {}),
        ("aten::randn", lambda: ([N],), {}),
        ("aten::randperm", lambda: (N,), {}),
        ("aten::multinomial", lambda: (weights(), 40), {}),
        ("aten::binomial", lambda: (torch.full((N,), 9.0), torch.full((N,), 0.5)), {}),
        ("aten::rand_like", lambda: (x_of(),), {}),
    ],
)
def test_a_constant_seed_shows_in_the_second_call(op, args, kwargs):
    call = make_call(op, *args(), **kwargs)
    honest = judge_call(call, PythonDevice(native))
    assert honest.verdict == "pass", honest.worst
    verdict = judge_call(call, PythonDevice(constant_seed))
    assert verdict.verdict == "wrong" and "two calls" in verdict.worst.reason


def test_few_elements_are_not_judged_by_chance_but_by_what_never_happens():
    verdict = ulpscope.judge_call(torch.rand, (8,), {}, torch.rand(8))
    assert verdict.verdict == "unjudged" and "8 elements are too few to tell" in verdict.sentence
    assert ulpscope.judge_call(torch.rand, (8,), {}, torch.rand(8) + 1).verdict == "wrong"
    assert ulpscope.judge_call(torch.randperm, (8,), {}, torch.zeros(8).long()).verdict == "wrong"
    assert ulpscope.judge_call(torch.rand, (0,), {}, torch.rand(0)).verdict == "pass"


def test_the_callers_generators_stay_as_they_were():
    generator = torch.Generator().manual_seed(5)
    out = torch.rand(N, generator=generator)
    before, state = generator.get_state(), torch.random.get_rng_state()
    verdict = ulpscope.judge_call(torch.rand, (N,), {"generator": generator}, out)
    assert verdict.verdict == "pass"
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(generator.get_state(), before)


def test_shape_and_dtype_count():
    assert "shape" in ulpscope.judge_call(torch.rand, (N,), {}, torch.rand(N - 1)).sentence
    assert "dtype" in ulpscope.judge_call(torch.rand, (N,), {}, torch.rand(N).double()).sentence


def test_bounds_of_rare_hits():
    odd = _core.draw_count_odd
    assert not odd(10, 1000, 0.01) and not odd(24, 1000, 0.01)
    assert odd(40, 1000, 0.01) and odd(0, 4000, 0.01)
