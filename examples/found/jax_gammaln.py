# SPDX-License-Identifier: Apache-2.0
"""JAX 0.10 CPU: scipy.special.gammaln in float32 is off by hundreds of ulps near its roots.

Issues: jax-ml/jax#21284 (open), #19010."""

import jax.scipy.special
import mpmath
import numpy as np
import torch

import ulpscope

x = torch.cat([torch.linspace(0.9, 1.1, 200), torch.linspace(1.9, 2.1, 200)])
y = torch.from_numpy(np.array(jax.scipy.special.gammaln(jax.numpy.asarray(x.numpy()))))
print(ulpscope.judge_call(torch.lgamma, (x,), outputs=y))
truth = torch.tensor([float(mpmath.loggamma(float(v))) for v in x], dtype=torch.float64)
print(
    "median relative error, against mpmath: JAX",
    float(((y - truth) / truth).abs().median()),
    "torch float32",
    float(((torch.lgamma(x) - truth) / truth).abs().median()),
)
