# SPDX-License-Identifier: Apache-2.0
"""The judge on dtypes that are not plain floats: float8, complex, quantized. Honest results
pass, each planted fault is found."""

import math

import pytest
import torch

import ulpscope
from ulpscope import _core

FLOAT8 = (torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz)


def generator(seed=7):
    return torch.Generator().manual_seed(seed)


def judged(fn, args, outputs):
    return ulpscope.judge_call(fn, args, outputs=outputs)


# ---- float8 ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_results_pass_and_their_faults_do_not(dtype):
    x = torch.randn(64, 128, generator=generator())
    w = torch.randn(128, 64, generator=generator(8)) / 8

    def fn(x, w):
        return (x @ w).to(dtype)

    right = fn(x, w)
    assert judged(fn, (x, w), right).verdict == "pass"
    other_order = (x.flip(1) @ w.flip(0)).to(dtype)
    assert judged(fn, (x, w), other_order).verdict == "pass"
    half = (x @ w).to(torch.float32) * 1.25
    assert judged(fn, (x, w), half.to(dtype)).verdict in ("wrong", "reduced")
    one = right.clone().view(torch.uint8)
    one[3, 5] ^= 0x08
    assert judged(fn, (x, w), one.view(dtype)).verdict in ("wrong", "nonfinite")
    spoilt = right.clone()
    spoilt.view(torch.uint8)[1, 1] = 0x80 if "uz" in str(dtype) else 0x7F
    assert judged(fn, (x, w), spoilt).verdict == "nonfinite"


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_inputs_are_widened_exactly(dtype):
    codes = torch.randint(0, 0x70, (32, 32), dtype=torch.uint8, generator=generator())
    x = codes.view(dtype)

    def fn(x):
        return x.float() * 3

    assert judged(fn, (x,), fn(x)).verdict == "pass"
    assert judged(fn, (x,), fn(x) * (1 + 2.0**-7)).verdict in ("wrong", "reduced")


def test_float8_overflow_is_nan_or_the_largest_number():
    x = torch.full((64,), 1000.0)
    x[::2] = 3.0
    moved = x.double() * (1 + 2.0**-20)
    for code, passes in ((0x7F, True), (0x7E, True), (0xFE, False), (0x44, False)):
        given = torch.where(x > 448, code, 0x44).to(torch.uint8).view(torch.float8_e4m3fn)
        judge = _core.Judge(given, x.double(), x)  # old and new versions of torch differ
        assert (judge.first(moved, moved.float())["verdict"] == "pass") == passes


# ---- complex -----------------------------------------------------------------------------


def complex_pair(dtype, n=4096):
    real = torch.float64 if dtype == torch.complex128 else torch.float32
    a, b = (
        torch.complex(
            torch.randn(n, dtype=real, generator=generator(s)),
            torch.randn(n, dtype=real, generator=generator(s + 1)),
        )
        for s in (1, 3)
    )
    return a, b


COMPLEX = (torch.complex64, torch.complex128)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("op", (torch.mul, torch.div, torch.add), ids=lambda f: f.__name__)
def test_complex_results_pass_and_their_faults_do_not(dtype, op):
    a, b = complex_pair(dtype)
    right = op(a, b)
    parts = torch.view_as_real(right)
    assert judged(op, (a, b), right).verdict == "pass"
    assert judged(op, (a, b), right.conj().resolve_conj()).verdict == "wrong"
    assert judged(op, (a, b), torch.view_as_complex(parts.flip(-1).contiguous())).verdict == "wrong"
    narrow = parts.clone()
    narrow[:, 1] = narrow[:, 1].bfloat16().to(narrow.dtype)
    assert judged(op, (a, b), torch.view_as_complex(narrow)).verdict in ("wrong", "reduced")
    one = right.clone()
    one[17] = one[17] * (1 + 0.01j)
    assert judged(op, (a, b), one).verdict == "wrong"


def test_a_large_part_does_not_excuse_a_small_one_that_is_easy():
    n = 4096
    a = torch.complex(torch.full((n,), 1e4), torch.rand(n, generator=generator()) * 0.1)
    b = torch.complex(torch.full((n,), 3e4), torch.rand(n, generator=generator(2)) * 0.1)
    right = a + b
    parts = torch.view_as_real(right).clone()
    parts[:, 1] += 4e4 * 2.0**-24  # less than one rounding of the whole
    found = judged(torch.add, (a, b), torch.view_as_complex(parts))
    assert found.verdict == "wrong"  # as a complex number it is right to float32; one number was added everywhere
    assert judged(torch.add, (a, b), right).verdict == "pass"


def test_a_part_that_cancels_to_zero_may_carry_roundings_of_the_whole():
    a, _ = complex_pair(torch.complex64)

    def fn(z):
        return z * z.conj()

    re, im = a.real.double(), a.imag.double()
    exact = (re * im).float().double()
    left = (re * im - exact).float()  # what a fused multiply-and-add leaves of ab - ba
    fused = torch.complex((re * re + im * im).float(), left)
    assert bool((left != 0).any())
    assert judged(fn, (a,), fused).verdict == "pass"
    assert judged(fn, (a,), torch.complex(fused.real, left * 64)).verdict in ("wrong", "reduced")


def test_honest_sums_and_products_of_complex_matrices_pass():
    a, b = complex_pair(torch.complex64)
    x, y = a.view(64, 64), b.view(64, 64)
    other = torch.complex(
        x.real @ y.real - x.imag @ y.imag,
        (x.real + x.imag) @ (y.real + y.imag) - x.real @ y.real - x.imag @ y.imag,
    )
    assert judged(torch.mm, (x, y), other).verdict == "pass"
    assert judged(torch.fft.fft, (x,), torch.fft.fft(x)).verdict == "pass"
    wrong = torch.mm(x, y.conj().resolve_conj())
    assert judged(torch.mm, (x, y), wrong).verdict == "wrong"


def test_functions_of_complex_numbers_that_are_exact_of_real_ones():
    x = torch.randn(30, 7, dtype=torch.complex64, generator=generator())
    size = (x.real**2 + x.imag**2).sqrt()
    assert judged(torch.abs, (x,), size).verdict == "pass"
    assert judged(torch.sgn, (x,), x / size).verdict == "pass"
    assert judged(torch.abs, (x,), size.bfloat16().float()).verdict == "reduced"
    real = torch.randn(30, 7, generator=generator())
    turned = lambda x: x.cfloat() * (2 + 1j)  # noqa: E731
    assert judged(turned, (real,), turned(real)).verdict == "pass"
    assert judged(turned, (real,), turned(-real)).verdict == "wrong"


def test_gradients_of_complex_numbers():
    x = torch.randn(12, 5, dtype=torch.complex64, generator=generator())
    for fn in (torch.abs, torch.tanh, lambda x: (x @ x.mH).angle(), torch.ones_like):
        assert ulpscope.check_call(fn, (x,), backward=True).passed

    class Unconjugated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]  # of the conjugate

    square = ulpscope.check_call(Unconjugated.apply, (x,), reference=lambda x: x * x, backward=True)
    assert square.verdict == "wrong"


def test_lazy_conjugation_is_seen_below_a_mode():
    """torch leaves it out there: pytorch/pytorch#198118."""
    x = torch.randn(5, 5, dtype=torch.complex64, generator=generator())
    right = torch.pinverse(x)
    assert ulpscope.check_call(torch.mm, (x.conj(), x.mH), backward=True).passed
    parts = [torch.randn(4, 5, 5, dtype=torch.complex64, generator=generator(s)) for s in range(3)]
    lazy = [p.conj() for p in parts]
    right_sum = torch.baddbmm(*(p.resolve_conj() for p in lazy))
    assert judged(torch.baddbmm, lazy, right_sum).verdict == "pass"
    assert judged(torch.pinverse, (x,), right).verdict == "pass"
    assert judged(lambda x: torch.linalg.pinv(x).mH, (x,), right.mH).verdict == "pass"
    assert judged(torch.pinverse, (x,), right.mT).verdict == "wrong"


# ---- quantized ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:torch.quantize")
@pytest.mark.parametrize("dtype", (torch.quint8, torch.qint8, torch.qint32), ids=str)
def test_quantized_results_must_agree_in_integers_scale_and_zero_point(dtype):
    x = torch.rand(64, 3, generator=generator())

    def fn(x, scale=0.01, zero=10):
        return torch.quantize_per_tensor(x, scale, zero, dtype)

    assert judged(fn, (x,), fn(x)).verdict == "pass"
    other = x.clone()
    other[5, 1] += 0.2
    found = judged(fn, (x,), fn(other))
    assert found.verdict == "wrong" and found.worst[0][0] == (5, 1)
    assert judged(fn, (x,), fn(x * 2, scale=0.02)).outputs[1].verdict == "wrong"
    assert judged(fn, (x,), fn(x - 0.01, zero=11)).outputs[2].verdict == "wrong"
    assert judged(fn, (x,), fn(x).int_repr()).verdict == "wrong"  # scale and zero point lost

    def by_row(x, factor=1.0):
        scales = torch.linspace(0.01, 0.02, 64) * factor
        return torch.quantize_per_channel(x, scales, torch.zeros(64, dtype=torch.int64), 0, dtype)

    assert judged(by_row, (x,), by_row(x)).verdict == "pass"
    assert judged(by_row, (x,), by_row(x, 1.001)).verdict == "wrong"


def quantized(*sizes, scale=0.05, zero=3, dtype=torch.qint8, seed=7):
    x = torch.randn(*sizes, generator=generator(seed))
    return torch.quantize_per_tensor(x, scale, zero, dtype)


def from_integers(real, scale, zero, dtype=torch.int8):
    limits = torch.iinfo(dtype)
    integers = (real + zero).clamp(limits.min, limits.max).to(dtype)
    return torch._make_per_tensor_quantized_tensor(integers, scale, zero)


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_quantized_arguments_are_read_in_float64():
    q = quantized(8, 16)
    scales = torch.rand(8, generator=generator()) / 10 + 0.01
    rows = torch.quantize_per_channel(q.dequantize(), scales, torch.zeros(8, dtype=int), 0, torch.qint8)
    for given in (q, q.t(), q[2:, ::2], q[:0], rows):
        right = given.dequantize()
        assert judged(torch.dequantize, (given,), right).verdict == "pass"
        if right.numel():
            found = judged(torch.dequantize, (given,), right.bfloat16().float())
            assert found.verdict == "reduced" and "bfloat16" in found.cause
    assert judged(torch.relu, (q,), torch.relu(q)).verdict == "pass"
    assert judged(torch.relu, (q,), q).verdict == "wrong"
    assert judged(torch.relu, (q,), torch.relu(q).dequantize()).verdict == "wrong"
    assert ulpscope.check_call(torch.relu, (q,)).passed


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_a_tie_between_quantized_values_may_fall_to_either_side():
    a, b = quantized(8, 16), quantized(8, 16, seed=8)
    add = torch.ops.quantized.add  # of twice the scale: every odd sum is a tie
    halves = (a.int_repr().double() + b.int_repr() - 6) / 2
    away = halves.sign() * (halves.abs() + 0.5).floor()
    assert judged(add, (a, b, 0.1, 0), add(a, b, 0.1, 0)).verdict == "pass"
    assert judged(add, (a, b, 0.1, 0), from_integers(away, 0.1, 0)).verdict == "pass"
    assert judged(add, (a, b, 0.1, 0), from_integers(away + 1, 0.1, 0)).verdict == "wrong"

    def third(x):
        return torch.quantize_per_tensor(x / 3, 0.07, 0, torch.qint8)

    x = torch.randn(64, 64, generator=generator())
    cut = from_integers((x.double() / 3 / 0.07).trunc(), 0.07, 0)
    assert judged(third, (x,), cut).verdict == "wrong"


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_what_is_quantized_after_a_sum_may_be_added_in_any_order():
    a, b = (torch.randn(64, 512, generator=generator(s)) for s in (1, 2))

    def product(a, b):
        return torch.quantize_per_tensor(a @ b.t(), 0.1, 0, torch.qint8)

    parts = sum(a[:, i : i + 64] @ b[:, i : i + 64].t() for i in range(0, 512, 64))
    ahead = from_integers(((a.double() @ b.double().t()) / 0.1).round(), 0.1, 0)
    for right in (torch.quantize_per_tensor(parts, 0.1, 0, torch.qint8), ahead):
        assert judged(product, (a, b), right).verdict == "pass"
    low = (a.bfloat16() @ b.bfloat16().t()).float()
    found = judged(product, (a, b), torch.quantize_per_tensor(low, 0.1, 0, torch.qint8))
    assert found.verdict == "wrong" and "bfloat16" in found.cause


# ---- sparse ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("form", ("to_sparse", "to_sparse_csr", "to_sparse_csc"))
def test_sparse_tensors_are_judged_by_their_values(form):
    x, y = torch.randn(40, 64, generator=generator()), torch.randn(64, 32, generator=generator(8))
    x[x.abs() < 1] = 0
    sparse = getattr(x, form)()
    assert judged(torch.mm, (sparse, y), x @ y).verdict == "pass"
    found = judged(torch.mm, (sparse, y), (x.bfloat16() @ y.bfloat16()).float())
    assert found.verdict == "reduced" and "bfloat16" in found.cause
    assert judged(lambda s: s * 3.3, (sparse,), sparse * 3.3).verdict == "pass"
    x[5, 0] += 1
    found = judged(lambda s: s * 3.3, (sparse,), x * 3.3)
    assert found.verdict == "wrong" and found.worst[0][0] == (5, 0)
    assert ulpscope.check_call(torch.mm, (sparse, y)).passed


# ---- nothing to judge, and another form ---------------------------------------------------


def test_nothing_finite_is_said_and_claims_no_bits():
    x = torch.full((100,), float("nan"))
    found = judged(torch.exp, (x,), torch.exp(x))
    assert found.verdict == "pass" and "nothing finite to judge" in found.sentence
    assert math.isnan(found.effective_bits) and math.isnan(found.expected_bits)
    x[5] = 1.0
    found = judged(torch.exp, (x,), torch.exp(x))
    assert found.verdict == "pass" and found.effective_bits > 0
    empty = torch.empty(0, 3)
    found = judged(torch.exp, (empty,), empty.clone())
    assert found.verdict == "pass" and "nan" not in found.sentence
    assert judged(torch.exp, (x,), torch.zeros(100)).verdict == "nonfinite"


@pytest.mark.parametrize(
    "given",
    (torch.zeros(4, 5), torch.zeros(20), torch.zeros(5, 4).half(), torch.zeros(5, 4, dtype=torch.int32)),
    ids=str,
)
def test_another_form_is_wrong_and_says_which(given):
    x = torch.rand(5, 4, generator=generator())
    found = judged(torch.exp, (x,), given)
    assert found.verdict == "wrong"
    assert "shape" in found.sentence or "dtype" in found.sentence
