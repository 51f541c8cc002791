# SPDX-License-Identifier: Apache-2.0
"""JAX under torch's names, as the second side of a test in torch text:

    @autotest(n=20, devices=("cpu", "module:examples/jax_torch.py"))

What a test uses of torch is here or is said to be lacking: a framework of your own needs no more than its own names.
`Tensor` has methods, as functions of their first argument; `vjp` is JAX's own, and values go over by DLPack."""

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)  # or float64 would be float32
jax.config.update("jax_default_matmul_precision", "highest")

from jax import vjp  # noqa: E402, F401  # which is how gradients are asked for
from jax.dlpack import from_dlpack  # noqa: E402, F401
from jax.numpy import (  # noqa: E402, F401  # the same name, the same arguments
    bfloat16,
    cos,
    exp,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    log,
    log1p,
    matmul,
    maximum,
    minimum,
    sin,
    sqrt,
    square,
    tanh,
    uint8,
    where,
)

bool = jnp.bool_  # noqa: A001


def axes(dim):
    return tuple(dim) if isinstance(dim, list) else dim


def reduced(function):
    return lambda x, dim=None, keepdim=False, **more: function(x, axis=axes(dim), keepdims=keepdim, **more)


sum, mean, prod, amax, amin = map(reduced, (jnp.sum, jnp.mean, jnp.prod, jnp.max, jnp.min))  # noqa: A001
logsumexp = reduced(jax.nn.logsumexp)
argmax = reduced(jnp.argmax)
sigmoid, relu, erf = jax.nn.sigmoid, jax.nn.relu, jax.scipy.special.erf
abs, add, sub, mul, div, pow = jnp.abs, jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.power  # noqa: A001
neg, rsqrt = jnp.negative, jax.lax.rsqrt


def cat(tensors, dim=0):
    return jnp.concatenate(tensors, axis=dim)


def stack(tensors, dim=0):
    return jnp.stack(tensors, axis=dim)


def flatten(x, start_dim=0, end_dim=-1):
    first, last = start_dim % max(x.ndim, 1), end_dim % max(x.ndim, 1)
    return x.reshape(x.shape[:first] + (-1,) + x.shape[last + 1 :])


def softmax(x, dim):
    return jax.nn.softmax(x, axis=dim)


class functional:  # noqa: N801
    relu, sigmoid, silu, softplus, elu = jax.nn.relu, jax.nn.sigmoid, jax.nn.silu, jax.nn.softplus, jax.nn.elu
    softmax = staticmethod(softmax)

    @staticmethod
    def gelu(x, approximate="none"):
        return jax.nn.gelu(x, approximate=approximate == "tanh")

    @staticmethod
    def linear(x, weight, bias=None):
        return x @ weight.T if bias is None else x @ weight.T + bias

    @staticmethod
    def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
        over = tuple(range(-len(shape), 0))
        y = (x - x.mean(over, keepdims=True)) * jax.lax.rsqrt(x.var(over, keepdims=True) + eps)
        y = y if weight is None else y * weight
        return y if bias is None else y + bias

    @staticmethod
    def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        pair = lambda n: tuple(n) if isinstance(n, (list, tuple)) else (n, n)  # noqa: E731
        y = jax.lax.conv_general_dilated(
            x,
            weight,
            pair(stride),
            [(n, n) for n in pair(padding)],
            rhs_dilation=pair(dilation),
            feature_group_count=groups,
        )
        return y if bias is None else y + bias[None, :, None, None]


class Linear:
    """A module: what it holds takes the weights of the test, by torch's names."""

    def __init__(self, in_features, out_features, bias=True):
        self.weight, self.bias = jnp.zeros((out_features, in_features)), jnp.zeros(out_features) if bias else None

    def __call__(self, x):
        return functional.linear(x, self.weight, self.bias)


class LayerNorm:
    def __init__(self, shape, eps=1e-5):
        self.shape, self.eps = (shape,) if isinstance(shape, int) else tuple(shape), eps
        self.weight, self.bias = jnp.ones(self.shape), jnp.zeros(self.shape)

    def __call__(self, x):
        return functional.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class nn:  # noqa: N801
    functional, Linear, LayerNorm = functional, Linear, LayerNorm


class Tensor:
    """Methods, where those of a JAX array are others."""

    sum, mean, prod, amax, amin, logsumexp, argmax = map(staticmethod, (sum, mean, prod, amax, amin, logsumexp, argmax))
    softmax, flatten, relu, sigmoid = map(staticmethod, (softmax, flatten, relu, sigmoid))
    transpose, unsqueeze, squeeze = map(staticmethod, (jnp.swapaxes, jnp.expand_dims, jnp.squeeze))

    @staticmethod
    def clamp(x, min=None, max=None):
        return jnp.clip(x, min, max)
