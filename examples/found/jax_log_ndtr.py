# SPDX-License-Identifier: Apache-2.0
"""JAX 0.10 CPU: scipy.special.log_ndtr is log(ndtr(x)) for positive x: 1 - a tiny number has
lost that number before the logarithm.

Issues: none found for JAX; scipy/scipy#15172 is the same defect in scipy, mended by #15187."""

import jax.scipy.special
import mpmath
import numpy as np
import torch

import ulpscope

x = torch.linspace(2, 5, 400)
y = torch.from_numpy(np.array(jax.scipy.special.log_ndtr(jax.numpy.asarray(x.numpy()))))
print(ulpscope.judge_call(torch.special.log_ndtr, (x,), outputs=y))
truth = torch.tensor([float(mpmath.log(mpmath.ncdf(float(v)))) for v in x], dtype=torch.float64)
print(
    "largest relative error, against mpmath: JAX",
    float(((y - truth) / truth).abs().max()),
    "torch float32",
    float(((torch.special.log_ndtr(x) - truth) / truth).abs().max()),
)
