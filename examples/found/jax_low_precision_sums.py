# SPDX-License-Identifier: Apache-2.0
"""JAX 0.10 CPU: x.at[i].add rounds after each addition in bfloat16 and float16 (4,096 ones are 256 and 2,048), and
jnp.linalg.norm of float16 overflows in between: Inf for a vector whose norm is 1,126.
Found by `ulpscope fuzz --device cpu --via jax --programs --seed 51` (cases 51:25 and 51:329).

Issues: jax-ml/jax#18440 and #39949 (open) of the sums in float32, jax-ml/jax#39899 with #40819 (open) of the norm.
Ones are counted, and the norm of n equal numbers is one times sqrt(n)."""

import math
import sys

import jax.numpy as jnp

wrong, at = 0, jnp.zeros(4096, int)
for dtype in (jnp.bfloat16, jnp.float16):
    total = float(jnp.zeros(1, dtype).at[at].add(jnp.ones(4096, dtype))[0])
    print(f"{jnp.dtype(dtype).name}: 4,096 ones scattered to one place are {total:g}")
    wrong += total != 4096
norm = float(jnp.linalg.norm(jnp.full(300, 65.0, jnp.float16)))
print(f"float16: the norm of 300 times 65 is {norm:g}, expected {65 * math.sqrt(300):g}")
sys.exit(wrong > 0 or not math.isfinite(norm))
