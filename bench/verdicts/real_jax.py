# SPDX-License-Identifier: Apache-2.0
"""JAX on the CPU as a device: the same operators by its own names, compiled."""

import numpy as np
import torch

from .peers import load

NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def table(jax):
    """Operator -> function of jax arrays."""
    jnp, nn, lax = jax.numpy, jax.nn, jax.lax
    sp = jax.scipy.special
    same = {
        n: getattr(jnp, n)
        for n in (
            "exp",
            "log",
            "sqrt",
            "sin",
            "tanh",
            "log1p",
            "expm1",
            "hypot",
            "reciprocal",
            "cumsum",
            "outer",
            "round",
        )
    }
    return same | {
        "add": lambda x, y, alpha: x + alpha * y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "rsqrt": lax.rsqrt,
        "erf": sp.erf,
        "atan": jnp.arctan,
        "atan2": jnp.arctan2,
        "pow3": lambda x: jnp.power(x, 3.0),
        "sigmoid": nn.sigmoid,
        "clamp": lambda x, min, max: jnp.clip(x, min, max),
        "gelu": lambda x: nn.gelu(x, approximate=False),
        "gelu_tanh": lambda x: nn.gelu(x, approximate=True),
        "silu": nn.silu,
        "softplus": nn.softplus,
        "mish": nn.mish,
        "elu": lambda x, a: nn.elu(x, a),
        "leaky_relu": nn.leaky_relu,
        "hardswish": nn.hard_swish,
        "logsigmoid": nn.log_sigmoid,
        "sum_dim": lambda x: x.sum(-1),
        "sum_all": lambda x: x.sum(),
        "mean_dim": lambda x: x.mean(0),
        "var": lambda x: x.var(-1, ddof=1),
        "std_unbiased0": lambda x: x.std(-1),
        "prod": lambda x: x.prod(-1),
        "norm2": lambda x: jnp.linalg.norm(x, axis=-1),
        "logsumexp": lambda x: sp.logsumexp(x, -1),
        "cumsum": lambda x: jnp.cumsum(x, -1),
        "amax": lambda x: x.max(-1),
        "argmax": lambda x: x.argmax(-1),
        "softmax": lambda x: nn.softmax(x, -1),
        "log_softmax": lambda x: nn.log_softmax(x, -1),
        "masked_softmax": lambda x, m: nn.softmax(jnp.where(m, x, -jnp.inf), -1),
        "layer_norm": lambda x, w, b: nn.standardize(x, -1, epsilon=1e-5) * w + b,
        "rms_norm": lambda x, w: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w,
        "mm": jnp.matmul,
        "bmm": jnp.matmul,
        "mv": jnp.matmul,
        "linear": lambda x, w, b: x @ w.T + b,
        "einsum_bhd": lambda a, b: jnp.einsum("bhd,khd->bhk", a, b),
        "attention_causal": lambda q, k, v: nn.dot_product_attention(
            *(t.swapaxes(1, 2) for t in (q, k, v)), is_causal=True
        ).swapaxes(1, 2),
        "conv2d": lambda x, w, b: lax.conv(x, w, (1, 1), "SAME") + b[:, None, None],
        "mse_loss": lambda x, y: ((x - y) ** 2).mean(),
        "rfft": lambda x: (lambda c: jnp.stack([c.real, c.imag], -1))(jnp.fft.rfft(x)),
        "cholesky": jnp.linalg.cholesky,
        "index_select": lambda x, i: x[i],
        "sort": lambda x: (jnp.sort(x, -1), jnp.argsort(x, -1)),
        "topk": lambda x: lax.top_k(x, 20),
        "lerp": lambda x, y, w: x + w * (y - x),
        "floor_divide": lambda x: jnp.floor(x * 3.0),
    }


def run(case):
    """The outputs, None where JAX is missing or has no such operator here."""
    jax = load("jax")
    if jax is None:
        return None
    import jax.scipy.special  # noqa: F401

    function = table(jax).get(case.op.name)
    if function is None:
        return None
    out = jax.jit(function, static_argnums=numbers(case))(*(there(jax, a) for a in case.args), **case.kwargs)
    return [back(t) for t in (out if isinstance(out, (tuple, list)) else [out])]


def numbers(case):
    return tuple(i for i, a in enumerate(case.args) if not isinstance(a, torch.Tensor))


def there(jax, a):
    if not isinstance(a, torch.Tensor):
        return a
    if a.dtype in NAMES:
        return jax.numpy.asarray(a.float().numpy()).astype(NAMES[a.dtype])
    return jax.numpy.asarray(a.numpy())


def back(t):
    if t.dtype == "bfloat16":
        return torch.from_numpy(np.array(t.astype("float32"))).bfloat16()
    return torch.from_numpy(np.array(t))
