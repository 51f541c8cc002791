# SPDX-License-Identifier: Apache-2.0
"""JAX 0.10 CPU: jnp.max and jnp.min along an axis of 8,192 elements or so drop NaN: -inf where all are NaN; of fewer
elements they give NaN, as numpy does. Pools (lax.reduce_window) do so from fewer on.
Found by `ulpscope fuzz --device cpu --via jax --programs --seed 51` (cases 51:765 and 51:563).

Issues: none found of JAX; openxla/xla#21461 (open) is of constants against parameters, tensorflow/tensorflow#116992
(open) of reductions under XLA, and says that JAX is right. NaN is counted: no arithmetic is needed."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

wrong = 0
for rows in (2, 8, 32, 64):
    x = np.full((rows, 256), np.nan, np.float32)
    high, low = np.asarray(jnp.max(jnp.asarray(x), 0)), np.asarray(jnp.min(jnp.asarray(x), 0))
    print(
        f"{rows} x 256, all NaN: {int(np.isnan(high).sum())} of 256 maxima and {int(np.isnan(low).sum())} minima "
        "are NaN, "
        f"numpy {int(np.isnan(np.max(x, 0)).sum())}; the first is {high[0]}"
    )
    wrong += not np.isnan(high).all() or not np.isnan(low).all()
pool = jax.lax.reduce_window(
    jnp.full((15, 3, 31, 3), jnp.nan), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
)
print(f"max pool of 15 x 3 x 31 x 3, all NaN: {int(jnp.isnan(pool).sum())} of {pool.size} are NaN")
sys.exit(wrong > 0)
