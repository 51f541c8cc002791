# SPDX-License-Identifier: Apache-2.0
"""Set M: functions element by element: gelu, silu, exponentials, logarithms, circles, powers, complex numbers."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
INF = float("inf")
NAN = float("nan")


def wide(f):
    """A function as an honest chip has it: right within about half an ulp."""
    return lambda *a: f(*(x.double() for x in a)).float()


def horner(x, c):
    y = torch.full_like(x, c[0])
    for a in c[1:]:
        y = y * x + a
    return y


# ------------------------------------------------------------------ gelu and its gradient


@tenth(lambda d: (torch.cat([torch.linspace(-5, 9, 900), d(100, scale=1e-4)]),))
def tenth_gelu_exact(x):
    return F.gelu(x), grads(F.gelu, x, cotangent=torch.ones_like(x))[0]


def gelu_exact(x, way="erfc", grad="both", kind=None):
    z = x.double() / math.sqrt(2)
    phi = 0.5 * torch.erfc(-z) if way == "erfc" else None
    if way == "erf32":
        phi = (0.5 * (1 + torch.erf((x * 0.70710678).float()))).double()
    if way == "tanh":
        phi = 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x.double() + 0.044715 * x.double() ** 3)))
    if way == "series":
        t = 1 / (1 + 0.47047 * z.abs())
        p = horner(t, [0.7478556, -0.0958798, 0.3480242]) * t
        tail = 0.5 * p * (-z * z).exp()
        phi = torch.where(z < 0, tail, 1 - tail)
    phi = narrow(phi.float(), kind).double() if kind else phi
    pdf = (-z * z).exp() / math.sqrt(2 * math.pi)
    d = phi + x.double() * pdf if grad == "both" else phi
    return (x.double() * phi).float(), d.float()


ok(tenth_gelu_exact, gelu_exact, erfc_in_double_precision={})
bad(
    tenth_gelu_exact,
    gelu_exact,
    {
        # approximate="tanh"
        "the tanh form": {"way": "tanh"},
        # gradient without x pdf
        "the gradient is the distribution alone": {"grad": "one"},
        # Abramowitz and Stegun 7.1.25
        "hides: erf of three terms": {"way": "series"},
        # distribution in half precision
        "hides: the distribution in half precision": {"kind": hf},
    },
)


@tenth(lambda d: (d(800, dtype=bf, scale=4), d(800, dtype=bf), d(800, dtype=bf)))
def tenth_glu_grad(a, b, g):
    return tuple(t.to(bf) for t in grads(lambda a, b: F.silu(a) * b, a.float(), b.float(), cotangent=g.float()))


def glu_grad(a, b, g, kind=None, order=None, term=True, swap=False, one=1.0):
    a, b, g = a.float(), b.float(), g.float()
    s = 1 / (1 + (-a).exp())
    s = narrow(s, kind) if kind else s
    da = g * b * s * (1 + a * (one - s) * term)
    db = g * a * s
    return (db, da) if swap else (da, db)


ok(tenth_glu_grad, glu_grad, bf, by_hand={})
bad(
    tenth_glu_grad,
    glu_grad,
    {
        # sigmoid only
        "the gradient is the sigmoid alone": {"term": False},
        # outputs swapped
        "the two gradients are swapped": {"swap": True},
        # sigmoid rounded to bfloat16
        "hides: the sigmoid in bfloat16": {"kind": bf},
        # 1 - s where it should be exact
        "hides: 0.998 less the sigmoid": {"one": 0.998},
    },
    bf,
)


# ------------------------------------------------------------------ exponentials


def exp_args(d):
    ends = torch.tensor([88.7, 88.73, -87.4, -90.0, -100.0, -103.9, -104.5, INF, -INF, NAN, 0.0, -0.0])
    return (torch.cat([torch.linspace(-103, 88.6, 1200), d(200, scale=1e-3), ends]),)


@tenth(exp_args)
def tenth_exponentials(x):
    return torch.exp(x), torch.expm1(x)


def exponentials(x, way="wide", flush=False, top=INF, naive=False, terms=7):
    if way == "wide":
        e, m = wide(torch.exp)(x), wide(torch.expm1)(x)
    else:
        k = (x.clamp(-110, 100) * 1.4426950408889634).round().nan_to_num(0)
        r = x.double() - k.double() * math.log(2) if way == "reduced" else (x - k * 0.6931472).double()
        p = sum(r**n / math.factorial(n) for n in range(terms))
        e = (p * torch.exp2(k.double())).float()
        e = torch.where(x > 89, INF, torch.where(x < -105, 0.0, e))
        m = wide(torch.expm1)(x)
    e = torch.where(e.abs() < 2**-126, 0.0, e) if flush else e
    e = torch.where(x > top, INF, e)
    return torch.where(x.isnan(), NAN, e), e - 1 if naive else m


ok(tenth_exponentials, exponentials, double_precision={}, reduced_and_twelve_terms={"way": "reduced", "terms": 12})
bad(
    tenth_exponentials,
    exponentials,
    {
        # exp(x) - 1
        "expm1 as exp less one": {"naive": True},
        # subnormal results
        "hides: subnormal results are flushed": {"flush": True},
        # overflow threshold
        "hides: infinity from 88 on": {"top": 88.0},
        # range reduction with one constant
        "hides: ln 2 in one piece": {"way": "one piece", "terms": 12},
        # too few terms
        "hides: five terms": {"way": "reduced", "terms": 5},
    },
)


@tenth(lambda d: (d(700, dtype=hf, scale=5),))
def tenth_half_exponential(x):
    return torch.exp(x), torch.exp2(x), torch.sigmoid(x)


def half_exponential(x, bits=None, wide_arg=True, low=False, table=None):
    x = x.float()
    e = wide(torch.exp)(x)
    two = wide(torch.exp2)(x)
    if not wide_arg:
        e = torch.exp2(narrow(x * 1.442695, hf))
    if table:
        i = x.floor()
        f = ((x - i) * table).floor() / table
        two = torch.exp2(i) * torch.exp2(f) * (1 + (x - i - f) * math.log(2))
    e = torch.where(e < 2**-14, 0.0, e) if low else e
    s = 1 / (1 + wide(torch.exp)(-x))
    return e, two, 1 - 1 / (1 + narrow(wide(torch.exp)(x), hf)) if bits else s


ok(tenth_half_exponential, half_exponential, hf, wide_inside={})
bad(
    tenth_half_exponential,
    half_exponential,
    {
        # exp2(x log2 e) with the product rounded to half precision
        "exp2 of a product in half precision": {"wide_arg": False},
        # a table of 8 entries with a slope
        "hides: exp2 from eight entries and slopes": {"table": 8},
        # flush
        "hides: subnormals are flushed": {"low": True},
        # 1 - 1 / (1 + e)
        "hides: the sigmoid as one less a quotient": {"bits": True},
    },
    hf,
)


# ------------------------------------------------------------------ logarithms


def log_args(d):
    near = 1 + torch.linspace(-1e-3, 1e-3, 300)
    ends = torch.tensor([0.0, -0.0, -1.0, INF, NAN, 1e-40, 1.4e-45, 3.4e38])
    return (torch.cat([torch.exp(torch.linspace(-80, 80, 600)), near, ends]),)


@tenth(log_args)
def tenth_logarithms(x):
    return torch.log(x), torch.log2(x), torch.log1p(x)


def logarithms(x, way="wide", flush=False, plus=False, zero=-INF, tail=None):
    y = x.masked_fill(x.abs() < 2**-126, 0.0) if flush else x
    lg = wide(torch.log)(y)
    if way == "log2":
        lg = wide(torch.log2)(y) * 0.69314718
    if way == "frexp":
        m, e = torch.frexp(y)
        lg = e.float() * 0.6931472 + m.log()
    two = wide(torch.log2)(x)
    one = wide(torch.log)(1 + x) if plus else wide(torch.log1p)(x)
    return torch.where(x == 0, zero, lg), two, one


ok(tenth_logarithms, logarithms, double_precision={})
bad(
    tenth_logarithms,
    logarithms,
    {
        # log(1 + x)
        "log1p as the logarithm of one plus": {"plus": True},
        # exponent and mantissa added: cancels below one
        "hides: exponent and mantissa apart, from a half to one": {"way": "frexp"},
        # subnormal inputs
        "hides: subnormal arguments are zero": {"flush": True},
        # log(0) = -max
        "hides: the logarithm of zero is finite": {"zero": -3.4e38},
    },
)


# ------------------------------------------------------------------ circles


@tenth(lambda d: (torch.cat([d(400, scale=3), d(300, scale=1e4), torch.arange(1, 200) * math.pi]).float(),))
def tenth_circles(x):
    return torch.sin(x), torch.cos(x), torch.tan(x)


def circles(x, way="wide", taylor=None, swap=None):
    if way == "wide":
        y = x.double()
    else:
        k = (x / (2 * math.pi)).round()
        y = (
            x - k * 6.2831853
            if way == "one"
            else torch.addcmul(x.double(), k.double(), torch.tensor(-6.28125).double())
        )
        y = y.double() - (k.double() * (6.283185307 - 6.28125) if way == "two" else 0)
    s, c = y.sin().float(), y.cos().float()
    if taylor:
        r = torch.atan2(y.sin(), y.cos())
        s = sum((-1) ** n * r ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(taylor)).float()
    return s, c, s / c if swap == "quotient" else c / s if swap else y.tan().float()


ok(tenth_circles, circles, reduced_in_double_precision={})
bad(
    tenth_circles,
    circles,
    {
        # one constant
        "reduced by two pi in one piece": {"way": "one"},
        # pi to 10 digits
        "hides: two pi of ten digits": {"way": "two"},
        # 1 / tan
        "the tangent is upside down": {"swap": "over"},
        # 6 terms
        "hides: the sine by six terms up to pi": {"taylor": 6},
    },
)


def plane_args(d):
    y, x = d(500), d(500)
    y[:6], x[:6] = torch.tensor([0.0, -0.0, 0.0, -0.0, 1e-30, INF]), torch.tensor([-1.0, -1.0, 0.0, -0.0, -1e30, -INF])
    return y, x


@tenth(plane_args)
def tenth_plane(y, x):
    return torch.atan2(y, x), torch.asin((x / 3).clamp(-1, 1)), torch.acos((y / 3).clamp(-1, 1))


def plane(y, x, way=0, sign=True, acos=0, half=False):
    a = wide(torch.atan2)(y, x)
    if way == 1:
        a = wide(torch.atan)(y / x)
        a = torch.where(x < 0, a + torch.where(y < 0, -math.pi, math.pi), a)
    u, v = (x / 3).clamp(-1, 1), (y / 3).clamp(-1, 1)
    s = wide(torch.asin)(u)
    c = (math.pi / 2 - wide(torch.asin)(v)) if acos == 1 else wide(torch.acos)(v)
    if acos == 2:
        c = wide(torch.acos)(v).abs() - (v < 0) * 0 + (v.abs() > 0.95) * 3e-6
    a = torch.where((y == 0) & ~torch.tensor(sign), a.abs(), a)
    return a, narrow(s, hf) if half else s, c


ok(tenth_plane, plane, double_precision={})
bad(
    tenth_plane,
    plane,
    {
        # atan(y / x) and quadrants
        "hides: atan of the quotient, with quadrants": {"way": 1},
        # sign of zero
        "hides: the sign of a zero is not looked at": {"sign": False},
        # asin in half precision
        "the arcsine in half precision": {"half": True},
        # near the ends
        "hides: the arccosine is off by 3e-6 near its ends": {"acos": 2},
    },
)


# ------------------------------------------------------------------ powers, roots, reciprocals


def power_args(d):
    x = torch.cat([d.rand(500) * 8, torch.tensor([0.0, -0.0, -2.0, -2.0, INF, 1.0, NAN, 0.0, 1e-40])])
    y = torch.cat([d(500, scale=6), torch.tensor([0.0, -1.0, 3.0, 0.5, -1.0, NAN, 0.0, 2.0, 0.5])])
    return x, y


@tenth(power_args)
def tenth_powers(x, y):
    return x**y, torch.rsqrt(x), torch.pow(x, 3)


def powers(x, y, way="wide", root="wide", nan=False, neg=True):
    p = wide(torch.pow)(x, y)
    if way == "logs":
        p = wide(torch.exp2)(y * wide(torch.log2)(x))
    if nan:
        p = torch.where(x.isnan() | y.isnan(), NAN, p)
    if not neg:
        p = torch.where(x < 0, wide(torch.pow)(x.abs(), y), p)
    r = wide(torch.rsqrt)(x)
    if root == "once":
        r = narrow(r, hf)
        r = r * (1.5 - 0.5 * x * r * r)
    if root == "flushed":
        r = torch.where(x < 2**-126, INF, r)
    return p, r, x * x * x


ok(tenth_powers, powers, double_precision={})
bad(
    tenth_powers,
    powers,
    {
        # exp2(y log2 x) in single precision
        "hides: exp2 of a product of logarithms": {"way": "logs"},
        # pow(1, nan), pow(nan, 0)
        "hides: not a number wherever one comes in": {"nan": True},
        # one Newton step from 11 bits
        "hides: one Newton step for the root": {"root": "once"},
        # odd powers of negatives
        "the sign of the base is lost": {"neg": False},
    },
)


def ends_args(d):
    a = torch.cat([d(300), torch.tensor([NAN, 1.0, 0.0, -0.0, INF, -3.0, 7.0, -7.0])])
    b = torch.cat([d(300), torch.tensor([1.0, NAN, -0.0, 0.0, 2.0, 2.0, -2.0, 2.0])])
    return a, b


@tenth(ends_args)
def tenth_pairs(a, b):
    return torch.maximum(a, b), torch.fmin(a, b), torch.floor_divide(a, b), torch.lerp(a, b, 0.3)


def pairs(a, b, nan=True, nan2=False, cut=False, lerp=0):
    big = torch.where(a > b, a, b) if not nan else torch.maximum(a, b)
    small = torch.minimum(a, b) if nan2 else torch.fmin(a, b)
    q = torch.trunc(a / b) if cut else torch.floor_divide(a, b)
    m = (
        (a + 0.3 * b) * 1.0 - 0.3 * b
        if lerp == 2
        else 0.7 * a + 0.3 * b
        if lerp
        else torch.addcmul(a, b - a, torch.tensor(0.3))
    )
    return big, small, q, narrow(m, hf) if lerp == 2 else m


ok(tenth_pairs, pairs, fused={})
bad(
    tenth_pairs,
    pairs,
    {
        # a > b ? a : b
        "the maximum takes b where a is not a number": {"nan": False},
        # fmin as minimum
        "the minimum passes not a number on": {"nan2": True},
        # trunc
        "the quotient is cut, not floored": {"cut": True},
        # interpolation in half precision, of a
        "hides: the mixture is a, in half precision": {"lerp": 2},
    },
)


# ------------------------------------------------------------------ tails: tanh, sigmoid, softplus, erf, gamma


@tenth(lambda d: (torch.cat([torch.linspace(-20, 20, 800), d(200, scale=1e-5)]),))
def tenth_tails(x):
    return torch.tanh(x), F.logsigmoid(x), torch.erfc(x / 2), torch.sinh(x / 4)


def tails(x, tanh=0, log=0, erfc=0, sinh=0):
    t = wide(torch.tanh)(x)
    t = (1 - 2 / (wide(torch.exp)(2 * x) + 1)) if tanh == 1 else torch.where(x.abs() < 0.0625, x, t) if tanh else t
    s = wide(F.logsigmoid)(x)
    s = wide(torch.sigmoid)(x).log() if log == 1 else torch.where(x > 8, 0.0, s) if log else s
    c = 1 - wide(torch.erf)(x / 2) if erfc else wide(torch.erfc)(x / 2)
    h = (wide(torch.exp)(x / 4) - wide(torch.exp)(-x / 4)) / 2 if sinh else wide(torch.sinh)(x / 4)
    return t, s, c, h


ok(tenth_tails, tails, double_precision={})
bad(
    tenth_tails,
    tails,
    {
        # 1 - 2 / (e + 1)
        "hides: tanh as one less a quotient": {"tanh": 1},
        # tanh(x) = x below 1/16
        "hides: tanh is x below a sixteenth": {"tanh": 2},
        # log(sigmoid)
        "the logarithm of the sigmoid": {"log": 1},
        # zero beyond 8
        "hides: the log-sigmoid is zero beyond eight": {"log": 2},
        # 1 - erf
        "erfc as one less erf": {"erfc": 1},
        # sinh by exponentials
        "hides: sinh as a difference of exponentials": {"sinh": 1},
    },
)
