# SPDX-License-Identifier: Apache-2.0
"""Correct rounding of doubles to narrower formats, independent of the library under test."""

import numpy as np
import torch

#: name -> significand bits, smallest normal exponent, largest exponent
FORMATS = {
    "f32": (24, -126, 127),
    "bf16": (8, -126, 127),
    "f16": (11, -14, 15),
    "tf32": (11, -126, 127),
    "f64": (53, -1022, 1023),
}
OF_DTYPE = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}


def quantum(x, name):
    """Distance of the representable numbers around each x."""
    bits, lowest, _ = FORMATS[name]
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, lowest) - (bits - 1))


def rounded(x, name, how="nearest"):
    """Doubles rounded to a format: "nearest" (ties to even), "zero" or "f16flush"."""
    if name == "f64":
        return x
    with np.errstate(all="ignore"):
        if name == "f32" and how == "nearest":
            return x.astype(np.float32).astype(np.float64)
        q = quantum(x, name)
        y = (np.rint if how == "nearest" else np.trunc)(x / q) * q
        top = 2.0 ** (FORMATS[name][2] + 1)
        y = np.where(np.abs(y) >= top, np.copysign(np.inf, x), y)
        return np.where(np.isfinite(x), y, x)


def to_tensor(x, dtype, how="nearest"):
    """A torch tensor of a float dtype from doubles, rounded once."""
    if dtype in OF_DTYPE:
        x = rounded(np.asarray(x, dtype=np.float64), OF_DTYPE[dtype], how)
    return torch.from_numpy(np.array(x)).to(dtype)


def flushed(x, name="f32"):
    """Subnormals of a format become zero, as hardware without them does."""
    return np.where(np.abs(x) < 2.0 ** FORMATS[name][1], np.copysign(0.0, x), x)
