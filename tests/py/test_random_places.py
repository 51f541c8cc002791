# SPDX-License-Identifier: Apache-2.0
"""Generators that are wrong in some places, digits or pairs alone, of every operator that
draws by a known law: each is accused from one answer. C's tests of the same, by test:
tests/unit/test_draw_place.c; faults of whole outputs: test_random_ops.py."""

import pytest
import torch
import torch.nn.functional as F

import ulpscope

aten = torch.ops.aten
ROWS, COLUMNS, SEED = 512, 64, 21
SHAPE = (ROWS, COLUMNS)
ALL = slice(None)


def x_of(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED)).to(dtype)


def put(tensor, at, values):
    tensor[at] = values
    return tensor


def dropped(edit, p=0.2, shape=SHAPE, dtype=torch.float32):
    """A dropout whose mask is edited: (function, input, answer)."""
    x = x_of(*shape, dtype=dtype)
    mask = edit(torch.rand(shape) >= p)
    return lambda x: F.dropout(x, p), x, torch.where(mask, x / (1 - p), 0.0).to(dtype)


def drawn(function, edit):
    """Draws that are edited: of a function of nothing."""
    return lambda x: function(), x_of(1), edit(function())


def filled(method, *args, shape=SHAPE, dtype=torch.float32):
    return lambda: getattr(torch.empty(shape, dtype=dtype), method)(*args)


def rand():
    return torch.rand(SHAPE)


def randn():
    return torch.randn(SHAPE)


def randint(high, n=2**15):
    return lambda: torch.randint(0, high, (n,))


def of_tensor(function, tensor, edit):
    return function, tensor, edit(function(tensor))


def alpha_without_last(p=0.1):
    x, mask = x_of(*SHAPE), torch.rand(SHAPE) >= p
    mask[:, -1] = True
    rest = -1.7580993408473766
    scale = ((1 - p) * (1 + p * rest**2)) ** -0.5
    return lambda x: F.alpha_dropout(x, p, True), x, torch.where(mask, x, rest) * scale - scale * rest * p


def features_kept():
    x, mask = x_of(256, 16, 2, 2), torch.rand(256, 16, 1, 1) >= 0.2
    return lambda x: F.dropout2d(x, 0.2), x, x * put(mask, (ALL, 7), True) / 0.8


def native_with_shared_row():
    x = x_of(*SHAPE)
    mask = torch.rand(SHAPE) >= 0.5
    mask[200] = mask[3]
    return lambda x: aten.native_dropout(x, 0.5, True), x, (x * mask * 2, mask)


def slopes_of_a_lane():
    x, slopes = x_of(*SHAPE), torch.empty(SHAPE).uniform_(0.1, 0.3)
    slopes[:, 3] = 0.15
    return lambda x: F.rrelu(x, 0.1, 0.3, True), x, torch.where(x < 0, x * slopes, x)


def attention(edit):
    x = x_of(3, 2, 4, 64, 64)

    def function(x):
        return F.scaled_dot_product_attention(*x, dropout_p=0.1)

    weights = (x[0] @ x[1].transpose(-1, -2) / 8).softmax(-1)
    return function, x, (weights * edit(torch.rand(weights.shape) >= 0.1) / 0.9) @ x[2]


WRONG = {
    "dropout: lane 31 of 64": lambda: dropped(lambda m: put(m, (ALL, 31), True)),
    "dropout: the last 4 columns": lambda: dropped(lambda m: put(m, (ALL, slice(60, 64)), True)),
    "dropout: the last tile": lambda: dropped(lambda m: put(m, (slice(496, 512), slice(48, 64)), True), p=0.4),
    "dropout: a head, bfloat16": lambda: dropped(
        lambda m: put(m, (ALL, 5, slice(0, 16), slice(0, 16)), True), shape=(4, 8, 32, 32), dtype=torch.bfloat16
    ),
    "dropout: every 37th row": lambda: dropped(lambda m: put(m, slice(0, None, 37), True)),
    "dropout: two heads share a mask": lambda: dropped(lambda m: put(m, (1, 7), m[0, 0]), shape=(2, 8, 64, 64)),
    "dropout: two columns share a mask": lambda: dropped(lambda m: put(m, (ALL, 9), m[:, 5]), p=0.5),
    "dropout: a column is another's complement": lambda: dropped(lambda m: put(m, (ALL, 9), ~m[:, 5]), p=0.5),
    "dropout: as many in each row": lambda: dropped(
        lambda m: torch.stack([torch.randperm(COLUMNS) >= 16 for _ in range(ROWS)]), p=0.25
    ),
    "dropout: a mask of 4,096 again": lambda: dropped(lambda m: m.view(-1)[:4096].repeat(8).view(SHAPE), p=0.05),
    "native_dropout: two rows share a mask": native_with_shared_row,
    "alpha_dropout: the last column": alpha_without_last,
    "dropout2d: a channel": features_kept,
    "attention: the last key": lambda: attention(lambda m: put(m, (ALL, ALL, ALL, 63), True)),
    "attention: two heads share a mask": lambda: attention(lambda m: put(m, (1, 3), m[0, 0])),
    "rrelu: a lane": slopes_of_a_lane,
    "bernoulli: own p, a lane": lambda: of_tensor(
        torch.bernoulli, x_of(*SHAPE).sigmoid(), lambda t: put(t, (ALL, 0), 1.0)
    ),
    "rand: the last column is small": lambda: drawn(rand, lambda t: put(t, (ALL, 63), t[:, 63] / 2)),
    "rand: a row mirrored": lambda: drawn(lambda: torch.rand(256, 128), lambda t: put(t, 255, 1 - 2**-24 - t[0])),
    "rand: of 18 bits": lambda: drawn(rand, lambda t: (t * 2**18).floor() / 2**18),
    "randn: a wide column": lambda: drawn(randn, lambda t: put(t, (ALL, 7), 2 * t[:, 7])),
    "randn: blocks of one seed": lambda: drawn(
        lambda: torch.randn(2**17), lambda t: put(t, slice(90112, 90624), t[512:1024].clone())
    ),
    "randn: tails drawn again": lambda: drawn(
        randn, lambda t: torch.nn.init.trunc_normal_(torch.empty(SHAPE), 0, 1, -3, 3)
    ),
    "uniform_: a lane, bfloat16": lambda: drawn(
        filled("uniform_", -1, 1, dtype=torch.bfloat16), lambda t: put(t, (ALL, 10), -t[:, 10].abs())
    ),
    "exponential_: none above 8": lambda: drawn(
        filled("exponential_", shape=2**16), lambda t: torch.where(t > 8, t - 8, t)
    ),
    "cauchy_: a lane without sign": lambda: drawn(filled("cauchy_"), lambda t: put(t, (ALL, 10), t[:, 10].abs())),
    "log_normal_: a wide row": lambda: drawn(
        filled("log_normal_", 0, 0.5, shape=(64, 512)), lambda t: put(t, 3, t[3] ** 1.5)
    ),
    "geometric_: a lane of another p": lambda: drawn(
        filled("geometric_", 0.3), lambda t: put(t, (ALL, 8), torch.empty(ROWS).geometric_(0.2))
    ),
    "poisson: a lane of its rate": lambda: of_tensor(
        torch.poisson, torch.full(SHAPE, 4.0), lambda t: put(t, (ALL, 63), 4.0)
    ),
    "randint: even numbers": lambda: drawn(randint(10**5), lambda t: t & ~1),
    "randint: low 6 bits of 2**30": lambda: drawn(randint(2**30), lambda t: t & ~63),
    "randint: bit 12": lambda: drawn(randint(2**30), lambda t: t & ~4096),
    "randint: multiples of 3": lambda: drawn(randint(10**6), lambda t: t - (t % 3 == 2).long()),
    "randint: parity by place": lambda: drawn(randint(10**5), lambda t: t & ~1 | torch.arange(len(t)) & 1),
    "randint: low bits shared by neighbours": lambda: drawn(
        randint(1000), lambda t: t & ~1 | t.view(-1, 2)[:, :1].expand(-1, 2).reshape(-1) & 1
    ),
    "random_: low 8 bits of int64": lambda: drawn(filled("random_", dtype=torch.int64), lambda t: t & ~255),
    "randperm: in its parity": lambda: drawn(
        lambda: torch.randperm(8192),
        lambda t: torch.stack([torch.randperm(4096) * 2, torch.randperm(4096) * 2 + 1], 1).view(-1),
    ),
    "multinomial: parity by column": lambda: of_tensor(
        lambda w: torch.multinomial(w, 64, True), torch.ones(128, 64), lambda t: t // 2 * 2 + torch.arange(64) % 2
    ),
    "multinomial: two rows alike": lambda: of_tensor(
        lambda w: torch.multinomial(w, 64, True), torch.ones(128, 10), lambda t: put(t, 100, t[3])
    ),
}


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


@pytest.mark.parametrize("name", WRONG)
def test_a_generator_that_is_wrong_somewhere_is_accused(name):
    function, argument, answer = WRONG[name]()
    verdict = ulpscope.judge_call(function, (argument,), {}, answer)
    assert verdict.verdict == "wrong", verdict.sentence


def test_the_place_is_said():
    function, x, answer = WRONG["dropout: the last 4 columns"]()
    sentence = ulpscope.judge_call(function, (x,), {}, answer).sentence
    assert "axis 1, indices 60 to 63: 2,048 of 2,048 ones or kept where 1,638 are due" in sentence


def test_few_draws_tell_nothing_and_have_no_bits():
    x = x_of(4, 7)
    verdict = ulpscope.judge_call(lambda x: F.dropout(x, 0.5), (x,), {}, F.dropout(x, 0.5))
    assert verdict.verdict == "unjudged" and "28 elements are too few to tell" in verdict.sentence


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_whole_numbers_that_lie_closer_below_a_power_of_two_pass(dtype):
    def function(x):
        return torch.empty(200_000, dtype=dtype).random_()

    verdict = ulpscope.judge_call(function, (x_of(1),), {}, function(None))
    assert verdict.verdict == "pass", verdict.sentence
