# SPDX-License-Identifier: Apache-2.0
"""How good the reference itself is. Conversions from float64 and elementary functions in
float64 on the CPU against MPFR (200 bits), linear operators against exact rational sums, on
sampled and on adversarial points. What counts is that errors are small against half a
float32 rounding (2^28 ulps of float64)."""

import math
import random
from fractions import Fraction

import gmpy2
import pytest
import torch
from gmpy2 import mpfr
from torch.nn import functional as F

from ulpscope import _core
from ulpscope.executors.formulas.norms import _layer, _rms

SEED = 20
N = 400
F64 = torch.float64


@pytest.fixture(autouse=True)
def precision():
    with gmpy2.context(gmpy2.get_context(), precision=200, emin=-20000, emax=20000):
        yield


def ulps(got, exact):
    """Distance of a float from an exact value, in ulps of float64 at that value."""
    got = float(got)
    if exact != exact or not gmpy2.is_finite(exact):
        return 0.0 if got == float(exact) or got != got else math.inf
    if not math.isfinite(got):
        return 0.0 if got == float(exact) else math.inf
    return float(abs(mpfr(got) - exact) / mpfr(math.ulp(float(exact))))


# ---- conversions ---------------------------------------------------------------------

FORMATS = {torch.float32: (24, -126, 127), torch.float16: (11, -14, 15), torch.bfloat16: (8, -126, 127)}


def rounded(x, digits, emin, emax):
    """x rounded to nearest, ties to even, in a format with subnormals."""
    if x == 0 or not math.isfinite(x):
        return x
    exact = Fraction(x)
    exponent = max(math.frexp(x)[1] - 1, emin)
    step = Fraction(2) ** (exponent - digits + 1)
    value = round(exact / step) * step  # Python rounds halves to even
    if abs(value) >= Fraction(2) ** (emax + 1):
        return math.copysign(math.inf, x)
    return math.copysign(float(value), x)


def conversion_points(digits, emin, emax):
    """Random numbers, ties and their neighbours, at every kind of exponent."""
    rng = random.Random(SEED)
    points = [0.0, -0.0, math.inf, 2.0 ** (emin - digits), 2.0 ** (emin - digits + 1) * 1.5]
    for e in (emin - digits, emin - 1, emin, -1, 0, 3, emax):
        for _ in range(40):
            head = rng.getrandbits(digits - 1) | 1 << (digits - 1)
            middle = math.ldexp(2 * head + 1, e - digits)
            points += [middle, math.nextafter(middle, 0), math.nextafter(middle, math.inf), -middle]
    points.append(math.ldexp(2**digits * 2 - 1, emax - digits))  # the tie before infinity
    return points + [rng.gauss(0, 1) * 2.0 ** rng.uniform(emin - 20, emax) for _ in range(500)]


def mismatches(device, truth):
    """Elements that the judge does not take for a correct rounding of the truth. The
    yardstick is a little off: what it gives as well would be excused."""
    judge = _core.Judge(device, truth, (truth * 1.25).float())
    judge.replay(truth * (1 + 2.0**-20), (truth * (1 + 2.0**-20)).float())
    return judge.appeal(fan_in=1.0, movement=False, flushed=None)["n_mismatch"]


def test_conversion_to_float32_rounds_correctly():
    points = conversion_points(*FORMATS[torch.float32])
    got = torch.tensor(points, dtype=F64).float().double().tolist()
    for x, y in zip(points, got):
        want = rounded(x, *FORMATS[torch.float32])
        assert y == want and math.copysign(1, y) == math.copysign(1, want), (x.hex(), y, want)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_the_judge_knows_the_correct_rounding(dtype):
    """torch itself rounds float64 to the low dtypes by way of float32, twice: what that
    changes is seen, and the correct rounding is not accused."""
    points = [x for x in conversion_points(*FORMATS[dtype]) if math.isfinite(x)]
    points = [x for x in points if 2.0**-120 < abs(x) < 2.0**120 and math.isfinite(rounded(x, *FORMATS[dtype]))]
    truth = torch.tensor(points, dtype=F64)
    right = torch.tensor([rounded(x, *FORMATS[dtype]) for x in points], dtype=F64)
    assert torch.equal(right.to(dtype).double(), right)
    assert mismatches(right.to(dtype), truth) == 0
    twice = truth.to(dtype)
    assert mismatches(twice, truth) == int((twice.double() != right).sum())


# ---- elementary functions ------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + gmpy2.exp(-x))


def normal_cdf(x):
    return gmpy2.erfc(-x / gmpy2.sqrt(mpfr(2))) / 2


def tanh_gelu(x):
    return x * sigmoid(2 * gmpy2.sqrt(2 / gmpy2.const_pi()) * (x + mpfr("0.044715") * x**3))


# name: (torch, exact, range, bound in ulps of float64). gelu's tail cancels in any precision,
# in float32 2^29 times as much, which is the error that the rule allows there.
FUNCTIONS = {
    "exp": (torch.exp, gmpy2.exp, (-700, 700), 4),
    "expm1": (torch.expm1, gmpy2.expm1, (-40, 40), 4),
    "exp2": (torch.exp2, gmpy2.exp2, (-1000, 1000), 4),
    "log": (torch.log, gmpy2.log, (1e-300, 1e6), 4),
    "log1p": (torch.log1p, gmpy2.log1p, (-0.999, 1e4), 4),
    "log2": (torch.log2, gmpy2.log2, (1e-300, 1e6), 4),
    "log10": (torch.log10, gmpy2.log10, (1e-300, 1e6), 4),
    "sin": (torch.sin, gmpy2.sin, (-1e5, 1e5), 4),
    "cos": (torch.cos, gmpy2.cos, (-1e5, 1e5), 4),
    "tan": (torch.tan, gmpy2.tan, (-1e4, 1e4), 8),
    "tanh": (torch.tanh, gmpy2.tanh, (-30, 30), 8),
    "sinh": (torch.sinh, gmpy2.sinh, (-600, 600), 8),
    "atan": (torch.atan, gmpy2.atan, (-1e4, 1e4), 4),
    "asin": (torch.asin, gmpy2.asin, (-1, 1), 4),
    "erf": (torch.erf, gmpy2.erf, (-6, 6), 64),
    "erfc": (torch.erfc, gmpy2.erfc, (-6, 20), 512),
    "lgamma": (torch.lgamma, lambda x: gmpy2.lgamma(x)[0], (3, 1e5), 64),
    "sqrt": (torch.sqrt, gmpy2.sqrt, (1e-300, 1e300), 1),
    "rsqrt": (torch.rsqrt, lambda x: 1 / gmpy2.sqrt(x), (1e-300, 1e300), 2),
    "reciprocal": (torch.reciprocal, lambda x: 1 / x, (1e-300, 1e300), 1),
    "sigmoid": (torch.sigmoid, sigmoid, (-700, 40), 16),
    "silu": (F.silu, lambda x: x * sigmoid(x), (-700, 40), 16),
    "softplus": (F.softplus, lambda x: x if x > 20 else gmpy2.log1p(gmpy2.exp(x)), (-700, 40), 16),
    "gelu": (F.gelu, lambda x: x * normal_cdf(x), (-4, 10), 2**16),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), tanh_gelu, (-4, 10), 2**16),
    "mish": (F.mish, lambda x: x * gmpy2.tanh(gmpy2.log1p(gmpy2.exp(x))), (-700, 20), 64),
    "pow 2.5": (lambda x: x.pow(2.5), lambda x: x ** mpfr("2.5"), (1e-100, 1e100), 4),
    "pow -0.3": (lambda x: x.pow(-0.3), lambda x: x ** mpfr(-0.3), (1e-100, 1e100), 4),
}
# Near these a formula cancels, saturates or changes branch.
SPECIAL = (
    1e-300,
    1e-20,
    1e-8,
    1e-4,
    0.4999999999999999,
    0.5,
    0.9999999999999999,
    1.0,
    1.0000000000000002,
    1.5,
    math.pi / 2,
    3.0,
    math.pi,
    8 * math.pi,
    20.0,
    20.000000000000004,
    22.0,
    710 / 113 * 1e3,
    6381956970095103 * 2.0**797,
)


def sample(low, high):
    rng = random.Random(SEED)
    points = [p for p in (*SPECIAL, *(-p for p in SPECIAL)) if low <= p <= high]
    points += [rng.uniform(low, high) for _ in range(N)]
    near = min(high, 20.0), max(low, -20.0)
    points += [rng.uniform(near[1], near[0]) for _ in range(N)]
    wide = [math.exp(rng.uniform(-60, math.log(high))) * rng.choice((1, -1)) for _ in range(N)]
    return points + [p for p in wide if low <= p <= high]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementary_functions_in_float64(name):
    function, exact, (low, high), bound = FUNCTIONS[name]
    points = sample(low, high)
    got = function(torch.tensor(points, dtype=F64)).tolist()
    worst = max((ulps(y, exact(mpfr(x))), x) for x, y in zip(points, got))
    assert worst[0] <= bound, worst
    assert bound <= 2**16  # 12 bits below half a float32 rounding


# ---- linear operators ----------------------------------------------------------------


def cancelling(rng, n):
    """Numbers over 30 binary orders, of which half almost cancel the other half."""
    half = [rng.gauss(0, 1) * 2.0 ** rng.randint(-15, 15) for _ in range(n // 2)]
    return [v for x in half for v in (x, -x * (1 + rng.gauss(0, 1) * 2.0**-12))]


def fractions(tensor):
    return [Fraction(x) for x in tensor.flatten().tolist()]


def assert_exact(got, exact, sizes, n):
    """|got - exact| within n roundings of the sum of absolute terms, which float32's own
    n roundings exceed by 2^29."""
    for y, x, size in zip(got.flatten().tolist(), exact, sizes):
        assert abs(Fraction(y) - x) <= size * n * Fraction(1, 2**52), (y, float(x))


def matrices(n, k, m):
    rng = random.Random(SEED)
    a = torch.tensor([cancelling(rng, k) for _ in range(n)], dtype=F64)
    b = torch.tensor([[1 + rng.gauss(0, 1) * 2.0**-10 for _ in range(m)] for _ in range(k)], dtype=F64)
    return a, b


def dots(a, b):
    """Exact products of matrices, and the sums of their terms' sizes."""
    columns = [fractions(c) for c in b.T]
    terms = [[x * y for x, y in zip(fractions(r), c)] for r in a for c in columns]
    return [sum(t) for t in terms], [sum(map(abs, t)) for t in terms]


def test_matrix_products():
    a, b = matrices(4, 64, 5)
    for got in (a @ b, torch.bmm(a[None], b[None])[0], F.linear(a, b.T.contiguous())):
        assert_exact(got, *dots(a, b), 64)


def test_convolutions():
    a, b = matrices(3, 54, 4)
    x, w = a.view(3, 6, 3, 3), b.T.reshape(4, 6, 3, 3)
    assert_exact(F.conv2d(x, w).view(3, 4), *dots(a, b), 54)


@pytest.mark.parametrize("name", ["sum", "mean", "cumsum", "dot"])
def test_sums(name):
    rng = random.Random(SEED)
    x = cancelling(rng, 2000)
    t, exact = torch.tensor(x, dtype=F64), [Fraction(v) for v in x]
    size = sum(map(abs, exact))
    if name == "cumsum":
        sums = [sum(exact[: i + 1]) for i in range(0, 2000, 97)]
        return assert_exact(t.cumsum(0)[::97], sums, [size] * len(sums), 2000)
    if name == "dot":
        return assert_exact(torch.dot(t, torch.ones_like(t)), [sum(exact)], [size], 2000)
    scale = 2000 if name == "mean" else 1
    assert_exact(getattr(t, name)(), [sum(exact) / scale], [size / scale], 2000)
    assert math.fsum(x) == float(sum(exact))


def test_fourier_transform():
    rng = random.Random(SEED)
    x = cancelling(rng, 64)
    got = torch.view_as_real(torch.fft.fft(torch.tensor(x, dtype=F64)))
    size = sum(abs(mpfr(v)) for v in x)
    for k in range(0, 64, 5):
        angles = [-2 * gmpy2.const_pi() * (k * j % 64) / 64 for j in range(64)]
        for part, f in ((0, gmpy2.cos), (1, gmpy2.sin)):
            exact = sum(mpfr(v) * f(a) for v, a in zip(x, angles))
            assert abs(mpfr(float(got[k, part])) - exact) <= size * 32 * mpfr(2) ** -52


def test_linear_solves_have_small_residuals():
    """Backward stability: (A + E) x = b with E of a few roundings."""
    g = torch.Generator().manual_seed(SEED)
    a = torch.randn(24, 24, generator=g, dtype=F64)
    b = torch.randn(24, generator=g, dtype=F64)
    x = fractions(torch.linalg.solve(a, b))
    for row, target in zip(a, fractions(b)):
        terms = [p * q for p, q in zip(fractions(row), x)]
        room = (sum(map(abs, terms)) + abs(target)) * 24 * 32
        assert abs(sum(terms) - target) <= room * Fraction(1, 2**52)
    lower = torch.linalg.cholesky(a @ a.T + 24 * torch.eye(24, dtype=F64))
    again = lower @ lower.T
    assert (again - (a @ a.T + 24 * torch.eye(24, dtype=F64))).abs().max() <= 2.0**-42


def test_norms_on_an_offset():
    """The built-in norms in float64 against MPFR where the mean is large."""
    rng = random.Random(SEED)
    x = [1000 + rng.gauss(0, 1) for _ in range(64)]
    exact = [mpfr(v) for v in x]
    mean = sum(exact) / 64
    variance = sum((v - mean) ** 2 for v in exact) / 64
    t = torch.tensor(x, dtype=F64)
    for got, want in (
        (_layer(t, None, None, (0,), 1e-5)[0], [(v - mean) / gmpy2.sqrt(variance + mpfr(1e-5)) for v in exact]),
        (_rms(t, None, (0,), 1e-5)[0], [v / gmpy2.sqrt(sum(w * w for w in exact) / 64 + mpfr(1e-5)) for v in exact]),
    ):
        assert max(float(abs(mpfr(float(y)) - w)) for y, w in zip(got, want)) <= 2.0**-40


# ---- and a planted error -------------------------------------------------------------


def test_these_tests_see_an_error_of_a_float32_rounding():
    assert ulps(math.exp(1.5) * (1 + 2.0**-24), gmpy2.exp(mpfr(1.5))) > 2**16
    a, b = matrices(4, 64, 5)
    with pytest.raises(AssertionError):
        assert_exact((a.float() @ b.float()).double(), *dots(a, b), 64)
