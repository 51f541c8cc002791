# SPDX-License-Identifier: Apache-2.0
"""JAX 0.10 CPU: nn.standardize computes the variance as E[x^2] - E[x]^2.

Issues: jax-ml/jax#37281, mended by #37358 (May 2026) after this release; #30426 (NaN)."""

import jax
import numpy as np
import torch
import torch.nn.functional as F

import ulpscope

torch.manual_seed(0)
x = 100 + torch.randn(40, 64)
y = torch.from_numpy(np.array(jax.nn.standardize(jax.numpy.asarray(x.numpy()), -1, epsilon=1e-5)))
print(ulpscope.judge_call(F.layer_norm, (x, (64,)), outputs=y))
truth, plain = F.layer_norm(x.double(), (64,)), F.layer_norm(x, (64,))
print("largest error: JAX", float((y - truth).abs().max()), "torch float32", float((plain - truth).abs().max()))
