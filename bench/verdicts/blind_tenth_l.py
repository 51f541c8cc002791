# SPDX-License-Identifier: Apache-2.0
"""Set M: polynomials and complex numbers."""

import torch

from .blind import hf, narrow
from .blind_ninth_a import bad, ok
from .blind_tenth_a import tenth


# ------------------------------------------------------------------ polynomials


@tenth(lambda d: (d(600), d(8)))
def tenth_polynomial(x, c):
    y = torch.zeros_like(x)
    for n in range(8):
        y = y * x + c[n]
    return y


def polynomial(x, c, way="horner", kind=None, lost=(), deg=8):
    if way == "estrin":
        p = [c[n] * x + c[n + 1] for n in range(0, 8, 2)]
        q = [p[0] * x * x + p[1], p[2] * x * x + p[3]]
        return q[0] * (x * x * x * x) + q[1]
    if way == "fused":
        y = torch.zeros_like(x)
        for n in range(8):
            y = (y.double() * x + (0.0 if n in lost else c[n])).float()
            y = narrow(y, kind) if kind and n < 4 else y
        return y
    return sum(c[7 - n] * x**n for n in range(deg))


ok(tenth_polynomial, polynomial, estrin={"way": "estrin"}, fused={"way": "fused"}, powers={})
bad(
    tenth_polynomial,
    polynomial,
    {
        # last degree missing
        "the highest power is left out": {"deg": 7},
        # coefficients reversed
        "coefficients are in the other order": lambda x, c: polynomial(x, c.flip(0)),
        # first four steps in half precision
        "hides: the high half in half precision": {"way": "fused", "kind": hf},
        # coefficients in bfloat16
        "hides: coefficients in bfloat16": lambda x, c: polynomial(x, narrow(c), "estrin"),
    },
)


# ------------------------------------------------------------------ complex


def complex_args(d):
    scale = torch.exp2(torch.linspace(-70, 60, 300))
    z = torch.complex(d(300), d(300)) * scale
    w = torch.complex(d(300), d(300)) * scale.flip(0)
    return z, w


@tenth(complex_args)
def tenth_complex_units(z, w):
    return z * w, z.abs(), torch.angle(z)


def complex_units(z, w, sign=-1.0, size="hypot", bar=False, half=False):
    a, b, c, e = z.real.double(), z.imag.double(), w.real.double(), w.imag.double()
    p = torch.complex((a * c + sign * b * e).float(), (a * e + b * c).float())
    s = (a * a + b * b).sqrt().float()
    if size == "squares":
        s = (z.real * z.real + z.imag * z.imag).sqrt()
    if size == "square":
        s = (a * a + b * b).float()
    t = torch.atan2(-b if bar else b, a).float()
    return p, s, narrow(t, hf) if half else t


ok(tenth_complex_units, complex_units, None, double_precision={})
bad(
    tenth_complex_units,
    complex_units,
    {
        # conj
        "the product is with the conjugate's real part": {"sign": 1.0},
        # underflow of squares
        "hides: squares of parts underflow": {"size": "squares"},
        # |z|^2
        "the size is squared": {"size": "square"},
        # angle sign
        "the angle has the other sign": {"bar": True},
        # angle in half precision
        "hides: the angle in half precision": {"half": True},
    },
    None,
)
