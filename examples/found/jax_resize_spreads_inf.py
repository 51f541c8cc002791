# SPDX-License-Identifier: Apache-2.0
"""JAX 0.10 CPU: jax.image.resize multiplies by a matrix of weights, most of which are 0: one Inf or NaN makes the whole
row NaN (0 * Inf), also where no weight reaches it. torch has NaN beside the pixel alone.
Found by `ulpscope fuzz --device cpu --via jax --programs --seed 51` (case 51:783).

Issues: none found of JAX; of TensorFlow under XLA tensorflow/tensorflow#118382 (open), #117803 (closed)."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import torch

row = np.ones((1, 8), np.float32)
row[0, 0] = np.inf
ours = np.asarray(jax.image.resize(jnp.asarray(row), (1, 16), "bilinear", antialias=False))
theirs = torch.nn.functional.interpolate(torch.from_numpy(row)[None, None], size=(1, 16), mode="bilinear")[0, 0].numpy()
# Half-pixel centres: output i lies at (i + 0.5) / 2 - 0.5, between pixels 0 and 1 up to i = 2.
print("JAX  ", ours[0])
print("torch", theirs[0])
print(
    f"of the 13 pixels that lie between ones, JAX has {int((ours[0, 3:] == 1).sum())} right, torch "
    f"{int((theirs[0, 3:] == 1).sum())}"
)
sys.exit(not bool((ours[0, 3:] == 1).all()))
