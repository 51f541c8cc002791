# SPDX-License-Identifier: Apache-2.0
"""Sums that this CPU happens to compute without rounding are not held to that: another order of
adding passes, an error that no order makes does not. Where no order rounds, none may."""

import pytest
import torch
import torch.nn.functional as F

import ulpscope
from ulpscope import _core
from ulpscope.executors import algorithms, noise

N = 64


def integers(*shape, most=16):
    generator = torch.Generator().manual_seed(4)
    return torch.randint(-most, most + 1, shape, generator=generator).float()


BINS = torch.arange(4096) % N
# calls on integers, whose sums are exact in every order
WHOLE = {
    "sum": (lambda x: x.sum(-1), (integers(8, 4096, most=4000),)),
    "small sum": (lambda x: x.sum(-1), (integers(N, 32),)),
    "index_add": (lambda x: torch.zeros(N).to(x).index_add(0, BINS, x), (integers(4096),)),
    "matmul": (torch.matmul, (integers(N, 1024), integers(1024, N))),
    "cumsum": (lambda x: x.cumsum(-1), (integers(N, 1024),)),
    "conv": (F.conv1d, (integers(2, 16, 128), integers(8, 16, 5))),
    "embedding_bag": (lambda w: F.embedding_bag(BINS.view(N, N), w, mode="sum"), (integers(N, 64),)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_sums_of_integers_that_are_off_by_one_are_flagged(name):
    fn, args = WHOLE[name]
    right = fn(*args)
    assert ulpscope.judge_call(fn, args, outputs=right).passed
    for at in (slice(0, 1), slice(None)):
        wrong = right.clone()
        wrong.view(-1)[at] += 1
        got = ulpscope.judge_call(fn, args, outputs=wrong)
        assert not got.passed, (at, got.sentence)


def test_an_update_that_is_dropped_is_flagged():
    x = integers(4096)
    x[7] = 1
    fn = WHOLE["index_add"][0]
    dropped = torch.where(torch.arange(4096) == 7, torch.zeros(4096), x)
    assert not ulpscope.judge_call(fn, (x,), outputs=fn(dropped)).passed


def cancelling():
    """Rows a, -a, b, 0: first to last is exact, other orders round b."""
    g = torch.Generator().manual_seed(2)
    a, b = torch.randn(N, generator=g) * 1e4, torch.randn(N, generator=g)
    return torch.stack([a, -a, b, torch.zeros(N)], -1)


ROWS = torch.arange(N).repeat_interleave(4)
BAGS = torch.arange(4 * N).view(N, 4)
# calls of the rows that give their sums times a factor
ROW_SUMS = {
    "sum": (lambda x: x.sum(-1), 1),
    "mean": (lambda x: x.mean(-1), 0.25),
    "cumsum": (lambda x: x.cumsum(-1)[:, -1], 1),
    "adaptive pool": (lambda x: F.adaptive_avg_pool2d(x[None, None], (N, 1)).reshape(-1), 0.25),
    "pool": (lambda x: F.avg_pool2d(x[None, None], (1, 4)).reshape(-1), 0.25),
    "index_add": (lambda x: torch.zeros(N).to(x).index_add(0, ROWS, x.reshape(-1)), 1),
    "scatter_add": (lambda x: torch.zeros(N).to(x).scatter_add(0, ROWS, x.reshape(-1)), 1),
    "embedding_bag": (lambda x: F.embedding_bag(BAGS, x.reshape(-1, 1), mode="sum").view(-1), 1),
    "matmul": (lambda x: (x @ torch.ones(4, 1).to(x)).view(-1), 1),
    "conv": (lambda x: F.conv1d(x[:, None], torch.ones(1, 1, 4).to(x)).view(-1), 1),
}


@pytest.mark.parametrize("name", ROW_SUMS)
def test_another_order_of_adding_passes(name):
    fn, factor = ROW_SUMS[name]
    x = cancelling()
    other = (((x[:, 2] + x[:, 0]) + x[:, 1]) + x[:, 3]) * factor
    got = ulpscope.judge_call(fn, (x,), outputs=other)
    assert got.passed, got.sentence
    right = fn(x)
    for wrong in (
        right + 2.0**-12 * factor * x.abs().amax(-1),
        right.roll(1),
        torch.where(torch.arange(N) == 3, right + 2.0**-12 * factor * x.abs().max(), right),
    ):
        assert not ulpscope.judge_call(fn, (x,), outputs=wrong).passed


# ---- other algorithms of sums and transforms -------------------------------------------


def by_matrix(x):
    """A Fourier transform as two products, in float32."""
    k = torch.arange(x.shape[-1], dtype=torch.float64)
    angle = -2 * torch.pi / x.shape[-1] * (torch.outer(k, k) % x.shape[-1])
    return torch.complex(x @ angle.cos().float(), x @ angle.sin().float())


def there_and_back(x):
    return torch.fft.ifft(torch.fft.fft(x)).real


def back_by_matrix(x):
    there = by_matrix(x)
    return (by_matrix(there.imag).imag + by_matrix(there.real).real) / x.shape[-1]


K = torch.arange(512)
SPECTRA = {
    "constant": torch.full((4, 512), 1.3),
    "sine": torch.sin(2 * torch.pi * 3 * K / 512).expand(4, 512).contiguous(),
    "steps": torch.where(K < 256, 1.1, -1.1).expand(4, 512).contiguous(),
}
TRANSFORMS = {
    "fft": (torch.fft.fft, by_matrix),
    "parts": (lambda x: torch.view_as_real(torch.fft.fft(x)), lambda x: torch.view_as_real(by_matrix(x))),
    "imaginary": (lambda x: torch.fft.fft(x).imag, lambda x: by_matrix(x).imag.clone()),
    "fft2": (torch.fft.fft2, lambda x: _both(by_matrix(x))),
    "there and back": (there_and_back, back_by_matrix),
}


def _both(x):
    """The transform of four rows, along the first dimension."""
    re, im = by_matrix(x.real.t().contiguous()), by_matrix(x.imag.t().contiguous())
    return torch.complex(re.real - im.imag, re.imag + im.real).t().contiguous()


@pytest.mark.parametrize("data", SPECTRA)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_by_its_matrix_passes(name, data):
    fn, other = TRANSFORMS[name]
    x = SPECTRA[data]
    got = ulpscope.judge_call(fn, (x,), outputs=other(x), cause=False)
    assert got.verdict in ("pass", "unjudged") and (got.passed or data == "sine"), got.sentence
    right = fn(x)
    for wrong in (other(x) + 1e-3 * x.norm(), torch.where(right.abs() > x.norm() / 9, 1.002, 1.0) * right):
        if torch.equal(wrong, right):
            continue  # of an imaginary part that is zero
        assert not ulpscope.judge_call(fn, (x,), outputs=wrong, cause=False).passed


def in_a_row(x):
    """A sum over the last dimension in one accumulator, from the last term on."""
    total = torch.zeros(x.shape[:-1])
    for term in x.flip(-1).unbind(-1):
        total = total + term
    return total


def variance(x, added=in_a_row):
    far = x - added(x)[..., None] / x.shape[-1]
    return added(far * far) / (x.shape[-1] - 1)


def statistics(x):
    scale = (variance(x) * (x.shape[-1] - 1) / x.shape[-1] + 1e-5).rsqrt()
    mean = in_a_row(x) / x.shape[-1]
    return (x - mean[:, None]) * scale[:, None], mean, scale


WIDE = 2.0 ** (10 * torch.randn(16, 2048, generator=torch.Generator().manual_seed(1)))
ROWWISE = {
    "var": (lambda x: x.var(-1), variance),
    "std": (lambda x: x.std(-1), lambda x: variance(x).sqrt()),
    "sum": (lambda x: x.sum(-1), in_a_row),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), lambda x: in_a_row(x * x).sqrt()),
    "matmul": (lambda x: x @ torch.ones(2048, 1).to(x), lambda x: in_a_row(x)[:, None]),
    "batch_norm": (
        lambda x: torch.native_batch_norm(x.t(), None, None, None, None, True, 0.1, 1e-5),
        lambda x: (statistics(x)[0].t(), *statistics(x)[1:]),
    ),
}


@pytest.mark.parametrize("name", ROWWISE)
def test_one_accumulator_of_wide_numbers_passes(name):
    fn, other = ROWWISE[name]
    got = ulpscope.judge_call(fn, (WIDE,), outputs=other(WIDE), cause=False)
    assert got.passed, got.sentence
    coarse = fn(WIDE.bfloat16().float())
    assert not ulpscope.judge_call(fn, (WIDE,), outputs=coarse, cause=False).passed


def test_exactness_is_no_matter_of_lists_or_complex_numbers():
    """3 and 4 give a norm of 5 exactly, on this CPU."""
    x = torch.tensor([3.0, 4.0]).repeat(8, 1)
    near = [torch.tensor(5.0).nextafter(torch.tensor(6.0))] * 8
    norms = lambda *rows: torch._foreach_norm(list(rows))  # noqa: E731
    assert ulpscope.judge_call(norms, tuple(x), outputs=near, cause=False).passed


# ---- what float32 loses in long sums, and what fewer bits lose -------------------------


def shortened(x, bits):
    """To so many significand bits, to nearest."""
    far = x * (2.0 ** (24 - bits) + 1)
    return far - (far - x) if bits < 24 else x


def chained(terms, bits=24):
    """One accumulator over the last dimension."""
    total = torch.zeros(terms.shape[:-1])
    for term in terms.movedim(-1, 0):
        total = shortened(total + term, bits)
    return total


def blocks(terms, bits=24, size=128):
    return chained(chained(terms.unflatten(-1, (-1, size)), bits), bits)


def lanes(terms, bits=24, n=32):
    return chained(chained(terms.unflatten(-1, (-1, n)).movedim(-1, -2), bits), bits)


def fused(a, b):
    """One accumulator; products are not rounded."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = (a[:, k, None].double() * b[k].double() + total.double()).float()
    return total


LONG = {  # data of a sum of products: normal, and positive numbers
    "normal": lambda g, *shape: torch.randn(*shape, generator=g),
    "positive": lambda g, *shape: torch.rand(*shape, generator=g),
}


def factors(data, k):
    g = torch.Generator().manual_seed(k)
    a, b = LONG[data](g, 16, k), LONG[data](g, k, 24)
    return a, b, a[:, None] * b.t()


@pytest.mark.parametrize("data", LONG)
@pytest.mark.parametrize("k", [256, 1024, 4096])
def test_honest_orders_of_long_sums_pass(k, data):
    a, b, terms = factors(data, k)
    orders = (
        chained(terms),
        chained(terms.flip(-1)),
        blocks(terms),
        lanes(terms),
        blocks(terms, size=k // 4),
        fused(a, b),
    )
    for order in orders:
        got = ulpscope.judge_call(torch.mm, (a, b), outputs=order, cause=False)
        assert got.passed, got.sentence


@pytest.mark.parametrize("data", LONG)
@pytest.mark.parametrize(
    "order, bits, k",
    [
        (chained, 19, 1024),
        (chained, 19, 4096),
        (lanes, 17, 256),
        (lanes, 16, 1024),
        (blocks, 19, 256),
        (blocks, 17, 1024),
        (blocks, 17, 4096),
        (lanes, 16, 4096),
    ],
)
def test_accumulators_of_fewer_bits_are_caught(order, bits, k, data):
    a, b, terms = factors(data, k)
    got = ulpscope.judge_call(torch.mm, (a, b), outputs=order(terms, bits), cause=False)
    assert got.verdict in ("reduced", "wrong"), got.sentence


def cut_off(a, b, at_once=16):
    """As matrix units add: exact products, some at once, and an accumulator that is cut off."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], at_once):
        exact = total.double() + a[:, k : k + at_once].double() @ b[k : k + at_once].double()
        near = exact.float()
        total = torch.where(near.double().abs() > exact.abs(), near.nextafter(torch.zeros(())), near)
    return total


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("data", LONG)
@pytest.mark.parametrize("k", [1024, 8192])
def test_matrix_units_that_cut_off_pass(k, data, dtype):
    g = torch.Generator().manual_seed(k)
    a, b = LONG[data](g, 16, k).to(dtype), LONG[data](g, k, 24).to(dtype)
    wide = lambda a, b: a.float() @ b.float()  # noqa: E731
    right = cut_off(a, b)
    halves = cut_off(a[:, : k // 2], b[: k // 2]) + cut_off(a[:, k // 2 :], b[k // 2 :])
    for fn, out in ((wide, right), (wide, halves), (wide, cut_off(a, b, 8)), (torch.mm, right.to(dtype))):
        got = ulpscope.judge_call(fn, (a, b), outputs=out, cause=False)
        assert got.passed, got.sentence
    coarse = torch.zeros(16, 24)
    for i in range(0, k, 16):
        coarse = shortened(coarse + a[:, i : i + 16].float() @ b[i : i + 16].float(), 14)
    got = ulpscope.judge_call(wide, (a, b), outputs=coarse, cause=False)
    assert got.verdict in ("reduced", "wrong"), got.sentence


@pytest.mark.parametrize("order", [chained, blocks, lanes, lambda x: blocks(x, size=1024), lambda x: lanes(x, n=4)])
def test_sums_of_one_value_drift_and_pass(order):
    """As gradients of biases are: each addition rounds the same way."""
    g = torch.Generator().manual_seed(7)
    x = (torch.rand(64, 1, generator=g) + 0.5).expand(64, 4096).contiguous()
    total = lambda x: x.sum(-1)  # noqa: E731
    got = ulpscope.judge_call(total, (x,), outputs=order(x), cause=False)
    assert got.passed, got.sentence
    coarse = shortened(order(x), 12)
    assert not ulpscope.judge_call(total, (x,), outputs=coarse, cause=False).passed


# ---- the loops in C, beside the operators that say what they compute ----


def slow_sum(terms, order, centre=None):
    """The same sum as loops over accumulators."""
    terms = terms if centre is None else (terms - centre[..., None]).square()
    terms = terms.flip(-1) if order == algorithms.LAST else terms
    if isinstance(order, int):
        parts = F.pad(terms, (0, -terms.shape[-1] % order)).unflatten(-1, (order, -1))
        return slow_sum(slow_sum(parts, algorithms.FIRST), algorithms.FIRST)
    total = torch.zeros(terms.shape[:-1])
    for term in terms.unbind(-1):
        total = total + term
    return total


@pytest.mark.parametrize("order", [algorithms.FIRST, algorithms.LAST, 2, 8, 32])
@pytest.mark.parametrize("sizes", [(3, 1, 1), (5, 2, 3), (2, 40, 50), (300, 2, 5), (2, 1, 512), (0, 2, 3), (2, 0, 3)])
def test_sums_in_order_are_loops_over_their_terms(order, sizes):
    x = torch.randn(*sizes, generator=torch.Generator().manual_seed(5)) + 0.3
    for terms in (x, x.transpose(1, 2).contiguous().transpose(1, 2), x.expand(2, *sizes)[1]):
        flat = terms.reshape(sizes[0], sizes[1] * sizes[2])
        assert torch.equal(algorithms._sum(terms, order, 2), slow_sum(flat, order))
        centre = torch.randn(sizes[0])
        assert torch.equal(algorithms._sum(terms, order, 2, centre), slow_sum(flat, order, centre))


EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 3.4e38, torch.inf, -torch.inf, torch.nan, 0.5, 2.0])


def same_bits(a, b):
    return bool(((a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())).all())


def test_steps_move_as_the_operators_say():
    g = torch.Generator().manual_seed(6)
    out = torch.cat([torch.randn(4000, generator=g), torch.rand(4000, generator=g), EDGES])
    exact = out.double() * (1 + torch.randn(out.shape, generator=g) * 2.0**-28)
    exact[::7] = out[::7].double()
    flat = torch.where(torch.rand(out.shape, generator=g) < 0.5, exact, exact * 0.875)
    ulps = torch.randint(-2, 3, out.shape, dtype=torch.int8, generator=g)
    for name in ("add", "sigmoid", "cos", "exp", "_log_softmax"):
        slow = torch.where(noise._is_near(exact, out), out, noise._moved(name, out, ulps))
        assert same_bits(noise._moved_unless_exact(name, out, ulps, exact), slow), name
        settled = noise._is_settled(exact, flat, out)
        quick, any_settled = noise._moved_unless_settled(name, out, ulps, exact, flat)
        assert same_bits(quick, torch.where(settled, out, noise._moved(name, out, ulps))), name
        assert any_settled == bool((settled & (out != 0)).any())


@pytest.mark.parametrize("wide", [False, True])
def test_range_of_float32_is_asked_as_it_is_said(wide):
    tiny, most = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    neither, either, both = (False, False), (False, True), (True, True)
    cases = {0.0: either, tiny: neither, tiny / 2: both, -most: neither, torch.inf: either, torch.nan: neither}
    cases |= {1e-60: both, 2.0 * most: both} if wide else {}
    for value, (sure, maybe) in cases.items():
        t = torch.ones(700, dtype=torch.float64 if wide else torch.float32)
        t[650] = value
        assert (_core.beyond_float32(t, False), _core.beyond_float32(t, True)) == (sure, maybe), value


def test_moved_inputs_of_float32_are_the_same_in_float32():
    x = torch.cat([torch.randn(3000), EDGES])
    for k in range(4):
        wide, narrow = torch.empty(x.shape, dtype=torch.float64), torch.empty(x.shape)
        for out in (wide, narrow):
            _core.perturb(x, out, seed=3, replay=k, argument=k // 2)
        assert torch.equal(wide.nan_to_num(7), narrow.double().nan_to_num(7))
    with pytest.raises(_core.ArgError, match="float32 does not hold"):
        _core.perturb(x, narrow, seed=3, replay=0, argument=0, share=0.5)


def of_groups(x, y):
    """A weight's gradient for each group of rows, one of which has none."""
    return torch.stack([x[part].T @ y[part] for part in (slice(0, 24), slice(24, 24), slice(24, None))])


@pytest.mark.parametrize("off", [0, 2.0**-9, "empty"])
def test_products_without_terms_are_zero_in_every_order(off):
    generator = torch.Generator().manual_seed(6)
    args = torch.randn(64, 16, generator=generator), torch.randn(64, 24, generator=generator)
    right = of_groups(*(t.double() for t in args)).float()
    given = right + 1e-6 * torch.eye(3)[1, :, None, None] if off == "empty" else right * (1 + off * right.sin())
    found = ulpscope.judge_call(of_groups, args, outputs=given, cause=False)
    assert found.verdict in (("pass",) if off == 0 else ("wrong", "reduced")), found.sentence


def test_a_sum_that_has_stopped_growing_is_no_order_of_adding():
    """What few terms lose stays, and so does what overflows on the way, as it does in other orders."""
    n = 1 << 20
    shared = torch.full((4, n), 0.1)
    shared[1, 1 << 16 :] = 0
    shared[2], shared[2, :4] = 0, torch.tensor([3e38, 3e38, -3e38, -3e38])
    shared[3, :] = torch.tensor([0.1, -0.1]).repeat(n // 2)
    found = {}
    for stalls in (False, True):
        found[stalls] = out = torch.empty(4)
        _core.sum_in_order(shared, None, out, 1, 1, False, stalls)
    assert found[False][0] == shared[0].double().sum().float() and found[True][0] > 1.009 * found[False][0]
    assert torch.equal(found[False][1:], found[True][1:]) and found[True][2] == torch.inf
    assert found[True][1] != shared[1].double().sum().float()
