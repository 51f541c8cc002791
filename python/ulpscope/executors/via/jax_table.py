# SPDX-License-Identifier: Apache-2.0
"""Operators of ATen's core set as functions of JAX: by its own names where it has one, so that it is JAX that is
tested. Each gets what torch infers of the result, then the arguments in the order of the schema. Needs nothing of
torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any


@functools.cache
def table() -> dict[str, Callable[..., Any]]:
    """Bare name -> function."""
    import jax
    import jax.numpy as jnp
    import jax.scipy.special as sp
    from jax import lax, nn

    def plain(function):
        return lambda like, *args, **kwargs: function(*args, **kwargs)

    def axes(dims):
        return (
            tuple(dims)
            if isinstance(dims, (list, tuple)) and len(dims)
            else None
            if isinstance(dims, (list, tuple))
            else dims
        )

    def reduced(function):
        return lambda like, x, dim=None, keepdim=False, **k: function(x, axis=axes(dim), keepdims=keepdim)

    def truncated(x, y):
        x, y = jnp.broadcast_arrays(x, y)
        kind = jnp.result_type(x, y)
        return jnp.trunc(x / y) if jnp.issubdtype(kind, jnp.floating) else lax.div(x.astype(kind), y.astype(kind))

    def divided(like, x, y, rounding_mode=None):
        return {None: jnp.true_divide, "floor": jnp.floor_divide, "trunc": truncated}[rounding_mode](x, y)

    def part(x, dim, start, end, step):
        start, end = 0 if start is None else start, x.shape[dim] if end is None else min(end, x.shape[dim])
        return (*[slice(None)] * (dim % x.ndim), slice(start, end, step))

    def places(index, dim):
        grid = list(jnp.ix_(*map(jnp.arange, index.shape)))
        grid[dim % len(grid)] = index
        return tuple(grid)

    def top(like, x, k, dim=-1, largest=True, sorted=True):
        values, at = lax.top_k(jnp.moveaxis(x, dim, -1), k)
        return jnp.moveaxis(values, -1, dim), jnp.moveaxis(at, -1, dim)

    def windows(x, kernel, stride, padding, init, function):
        kernel, stride = [*kernel] * (2 // len(kernel)), [*(stride or kernel)]
        stride, padding = (
            stride * (2 // len(stride)),
            [padding] * 2 if isinstance(padding, int) else [*padding] * (2 // len(padding)),
        )
        ones = [1] * (x.ndim - 2)
        pads = [(0, 0)] * len(ones) + [(p, p) for p in padding]
        return lax.reduce_window(x, init, function, (*ones, *kernel), (*ones, *stride), pads), math.prod(kernel)

    def averaged(like, x, kernel, stride=(), padding=0, *rest):
        total, n = windows(x, kernel, stride, padding, jnp.zeros((), x.dtype), lax.add)
        return total / n

    def largest(like, x, kernel, stride=(), padding=0, *rest):
        low = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        return windows(x, kernel, stride, padding, jnp.array(low, x.dtype), lax.max)[0], None

    def padded(like, x, pad, value=0):
        pairs = [(pad[i], pad[i + 1], 0) for i in range(0, len(pad), 2)][::-1]
        return lax.pad(x, jnp.array(value, x.dtype), [(0, 0, 0)] * (x.ndim - len(pairs)) + pairs)

    def standardized(x, axis, eps):
        mean, variance = jnp.mean(x, axis=axis, keepdims=True), jnp.var(x, axis=axis, keepdims=True)
        return nn.standardize(x, axis=axis, epsilon=eps), mean, lax.rsqrt(variance + eps)

    def scaled(x, weight, bias):
        x = x if weight is None else x * weight
        return x if bias is None else x + bias

    def group_norm(like, x, weight, bias, n, c, hw, groups, eps):
        out, mean, inverse = standardized(x.reshape(n, groups, -1), -1, eps)
        weight, bias = (None if t is None else t.reshape(c, *(1,) * (x.ndim - 2)) for t in (weight, bias))
        return scaled(out.reshape(x.shape), weight, bias), mean.reshape(n, groups), inverse.reshape(n, groups)

    def layer_norm(like, x, shape, weight, bias, eps):
        out, mean, inverse = standardized(x, tuple(range(-len(shape), 0)), eps)
        return scaled(out, weight, bias), mean, inverse

    def filled(like, *args, **kwargs):
        return jnp.full(tuple(like.shape), args[-1])

    def summed(like, x, dim=None, keepdim=False, dtype=None):
        x = (
            x.astype(str(like.dtype).removeprefix("torch."))
            if jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool
            else x
        )
        return jnp.sum(x, axis=axes(dim), keepdims=keepdim)

    def running(function):
        def run(like, x, dim, dtype=None):
            return function(x.astype(str(like.dtype).removeprefix("torch.")), axis=dim % x.ndim)

        return run

    same = (
        "exp expm1 log log1p log2 sqrt sin cos tan sinh cosh tanh exp2 floor ceil trunc sign abs isnan reciprocal "
        "hypot copysign maximum minimum fmax fmod remainder logical_and logical_or logical_not bitwise_and bitwise_or "
        "bitwise_xor bitwise_not"
    )
    names = {
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
        "atan2": "arctan2",
        "neg": "negative",
        "round": "round",
        "mul": "multiply",
        "pow": "power",
        "mm": "matmul",
        "bmm": "matmul",
        "gt": "greater",
        "ge": "greater_equal",
        "lt": "less",
        "le": "less_equal",
        "eq": "equal",
        "ne": "not_equal",
        "__lshift__": "left_shift",
        "__rshift__": "right_shift",
        "where": "where",
    }
    found = {n: plain(getattr(jnp, n)) for n in same.split()} | {n: plain(getattr(jnp, j)) for n, j in names.items()}
    return found | {
        "add": lambda like, x, y, alpha=1: x + y if alpha == 1 else x + alpha * y,
        "sub": lambda like, x, y, alpha=1: x - y if alpha == 1 else x - alpha * y,
        "div": divided,
        "rsqrt": plain(lax.rsqrt),
        "erf": plain(sp.erf),
        "erfc": plain(sp.erfc),
        "lgamma": plain(sp.gammaln),
        "digamma": plain(sp.digamma),
        "sigmoid": plain(nn.sigmoid),
        "relu": plain(nn.relu),
        "gelu": lambda like, x, approximate="none": nn.gelu(x, approximate=approximate == "tanh"),
        "elu": lambda like, x, alpha=1, scale=1, inner=1: scale * nn.elu(x, alpha),
        "leaky_relu": lambda like, x, slope=0.01: nn.leaky_relu(x, slope),
        "hardtanh": lambda like, x, low=-1, high=1: jnp.clip(x, low, high),
        "clamp": lambda like, x, min=None, max=None: jnp.clip(x, min, max),
        "_softmax": lambda like, x, dim, half: nn.softmax(x, axis=dim),
        "_log_softmax": lambda like, x, dim, half: nn.log_softmax(x, axis=dim),
        "addmm": lambda like, c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
        "native_layer_norm": layer_norm,
        "native_group_norm": group_norm,
        "amax": reduced(jnp.max),
        "amin": reduced(jnp.min),
        "any": reduced(jnp.any),
        "mean": reduced(jnp.mean),
        "sum": summed,
        "prod": lambda like, x, dim=None, keepdim=False, dtype=None: jnp.prod(x, axis=dim, keepdims=keepdim),
        "var": lambda like, x, dim=None, correction=1, keepdim=False: jnp.var(
            x, axis=axes(dim), ddof=correction, keepdims=keepdim
        ),
        "argmax": lambda like, x, dim=None, keepdim=False: jnp.argmax(x, axis=dim, keepdims=keepdim),
        "linalg_vector_norm": lambda like, x, p=2, dim=None, keepdim=False, dtype=None: jnp.linalg.norm(
            x, ord=p, axis=dim[0] if dim else None, keepdims=keepdim
        ),
        "cumsum": running(jnp.cumsum),
        "cumprod": running(jnp.cumprod),
        "logcumsumexp": running(lax.cumlogsumexp),
        "cummax": lambda like, x, dim: (lax.cummax(x, axis=dim % x.ndim), None),
        "sort": lambda like, x, dim=-1, descending=False: (
            jnp.sort(x, axis=dim),
            jnp.argsort(x, axis=dim, stable=True),
        ),
        "topk": top,
        "cat": lambda like, xs, dim=0: jnp.concatenate(xs, axis=dim),
        "constant_pad_nd": padded,
        "diagonal": lambda like, x, offset=0, one=0, two=1: jnp.diagonal(x, offset, one, two),
        "arange": lambda like, start, end, step=1, **k: jnp.arange(start, end, step),
        "full": filled,
        "full_like": filled,
        "scalar_tensor": filled,
        "expand": lambda like, x, sizes, implicit=False: jnp.broadcast_to(x, tuple(like.shape)),
        "view": lambda like, x, sizes: x.reshape(tuple(like.shape)),
        "clone": lambda like, x, memory_format=None: x,
        "permute": plain(jnp.transpose),
        "unsqueeze": plain(jnp.expand_dims),
        "flip": plain(jnp.flip),
        "squeeze": lambda like, x, dims=None: x.reshape(tuple(like.shape)),
        "select": lambda like, x, dim, i: jnp.take(x, i % x.shape[dim], axis=dim),
        "slice": lambda like, x, dim=0, start=None, end=None, step=1: x[part(x, dim, start, end, step)],
        "slice_scatter": lambda like, x, src, dim=0, start=None, end=None, step=1: x.at[
            part(x, dim, start, end, step)
        ].set(src),
        "index": lambda like, x, at: x[tuple(slice(None) if i is None else i for i in at)],
        "index_select": lambda like, x, dim, at: jnp.take(x, at, axis=dim),
        "gather": lambda like, x, dim, at, sparse_grad=False: x[places(at, dim)],
        "scatter_add": lambda like, x, dim, at, src: x.at[places(at, dim)].add(src),
        "avg_pool2d": averaged,
        "max_pool2d_with_indices": largest,
        "upsample_bilinear2d": lambda like, x, *rest: jax.image.resize(
            x, tuple(like.shape), "bilinear", antialias=False
        ),
        "_to_copy": lambda like, x, **k: x,
    }
