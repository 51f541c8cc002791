# SPDX-License-Identifier: Apache-2.0
"""Inputs: what kind of numbers, of which sizes, in which layout."""

import numpy as np
import torch

from .rounding import FORMATS, OF_DTYPE

PROFILES = ("normal", "wide", "cancel", "offset", "zeros", "infnan", "large", "heavy", "small", "ties", "awkward")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Inputs:
    """Draws the arguments of one call. `x` follows the profile; `w` (weights, gradients that
    arrive, second operands) does so only where the profile is about layout or spread."""

    def __init__(self, profile, dtype, seed):
        self.profile, self.dtype = profile, DTYPES[dtype]
        self.top = FORMATS[OF_DTYPE[self.dtype]][2]
        self.rng = np.random.default_rng(seed)
        self.torch = torch.Generator().manual_seed(seed)
        self.awkward = profile == "awkward"

    # ---- floats ----------------------------------------------------------------------

    def x(self, *shape):
        return self._tensor(self._numbers(shape))

    def w(self, *shape):
        kind = self.profile if self.profile in ("wide", "heavy", "ties") else "normal"
        return self._tensor(self._numbers(shape, kind))

    def n(self, *shape):
        """Plain normal numbers whatever the profile."""
        return self._tensor(self._numbers(shape, "normal"))

    def pos(self, *shape, least=0.0):
        return self._tensor(np.abs(self._numbers(shape)) + least)

    def unit(self, *shape):
        """Inside (0, 1)."""
        return self._tensor(self.rng.uniform(0.01, 0.99, shape))

    def _numbers(self, shape, kind=None):
        rng, kind = self.rng, kind or self.profile
        z = rng.standard_normal(shape)
        if kind == "wide":
            return z * np.exp2(np.clip(self._spread() * rng.standard_normal(shape), -40, 40))
        if kind == "cancel" and z.size > 1:
            flat = z.reshape(-1)
            half = z.size // 2
            flat[half : 2 * half] = -flat[:half] * (1 + 2.0**-9 * flat[half : 2 * half])
            return self._interleaved(flat, half).reshape(shape)
        if kind == "offset":
            return 100 + z
        if kind == "zeros":
            tiny = 2.0 ** (FORMATS[OF_DTYPE[self.dtype]][1] - 2)
            kinds = rng.integers(0, 10, shape)
            return np.where(kinds < 3, 0.0 * z, np.where(kinds < 5, tiny * z, z))
        if kind == "infnan":
            kinds = rng.integers(0, 400, shape)
            special = np.where(kinds == 0, np.nan, np.where(kinds == 1, np.inf, -np.inf))
            return np.where(kinds < 3, special, z)
        if kind == "large":
            return z * 2.0 ** (self.top - 5)
        if kind == "heavy":
            return z * np.where(rng.random(shape) < 0.01, 200.0, 1.0)
        if kind == "small":
            return z * (2.0**-12 if self.top < 20 else 1e-6)
        if kind == "ties":
            return np.round(z * 4) / 4
        return z

    def _spread(self):
        return 3 if self.top < 20 else 10

    def _interleaved(self, flat, half):
        """Each number next to the one that nearly cancels it."""
        out = flat.copy()
        out[0 : 2 * half : 2], out[1 : 2 * half : 2] = flat[:half], flat[half : 2 * half]
        return out

    def _tensor(self, numbers):
        t = torch.from_numpy(np.array(numbers, dtype=np.float64)).to(self.dtype)
        return self.laid_out(t)

    def laid_out(self, t):
        """As it is; in the awkward profile transposed in memory, or every other element of
        a larger storage."""
        if not self.awkward or t.dim() == 0:
            return t
        if t.dim() >= 2:
            return t.transpose(-1, -2).contiguous().transpose(-1, -2)
        holder = torch.zeros(2 * t.numel() + 3, dtype=t.dtype)
        holder[3::2] = t
        return holder[3::2]

    # ---- sizes and integers ----------------------------------------------------------

    def size(self, n):
        return n + 1 + n // 16 if self.awkward else n

    def ints(self, top, *shape):
        return torch.from_numpy(self.rng.integers(0, top, shape))

    def bools(self, *shape, share=0.5):
        return torch.from_numpy(self.rng.random(shape) < share)
