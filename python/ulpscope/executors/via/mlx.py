# SPDX-License-Identifier: Apache-2.0
"""`--via mlx`: each operator of ATen's core set by MLX's own function, on its CPU device, evaluated as one graph.

Needs of torch: its operators in a graph."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from ...calls.foreign import theirs
from .runtime import Runtime, from_numpy
from .walk import name_of, refuse_unknown, walked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


PLAIN = """abs add:add mul:multiply div:divide sub:subtract neg:negative exp expm1 log log2 log10 log1p sin cos tan
asin:arcsin
acos:arccos atan:arctan sinh cosh tanh asinh:arcsinh acosh:arccosh atanh:arctanh erf erfinv floor ceil round sqrt rsqrt
reciprocal sign square maximum minimum pow:power eq:equal ne:not_equal lt:less le:less_equal gt:greater ge:greater_equal
logical_and logical_or logical_not isnan isinf isfinite sigmoid where logaddexp atan2:arctan2 matmul mm:matmul
bmm:matmul
remainder bitwise_and bitwise_or bitwise_xor"""
REDUCE = "amax:max amin:min mean sum logsumexp any all prod"


class Mlx(Runtime):
    packages = {"mlx.core": "mlx[cpu]"}
    core = True

    def versions(self) -> dict[str, str]:
        import mlx.core

        return {"mlx": mlx.core.__version__}

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        import mlx.core as mx

        functions = table()
        refuse_unknown(graph, functions, "MLX")

        def one(node, *args, **kwargs):
            like = node.meta["val"]
            result = functions[name_of(node)](like, *args, **kwargs)
            return result if isinstance(result, tuple) else result.astype(kind(like.dtype))

        def run(*given):
            with mx.stream(mx.cpu):
                results = walked(graph, map(there, given), there, one)
                theirs(mx.eval, *results)
            return [back(r) for r in results]

        return run


def kind(dtype: Any) -> Any:
    """The dtype of MLX that has a name of torch's."""
    import mlx.core as mx

    name = {"bool": "bool_"}.get(str(dtype).removeprefix("torch."), str(dtype).removeprefix("torch."))
    if not hasattr(mx, name):
        raise NotImplementedError(f"MLX has no {dtype}")
    return getattr(mx, name)


def there(tensor: torch.Tensor) -> Any:
    import mlx.core as mx

    tensor = tensor.detach().contiguous()
    kind(tensor.dtype)
    if tensor.dtype != torch.bfloat16:
        return mx.array(tensor.numpy(), dtype=kind(tensor.dtype))
    return mx.array(tensor.view(torch.int16).numpy()).view(mx.bfloat16)


def back(array: Any) -> torch.Tensor:
    import mlx.core as mx
    import numpy

    if array.dtype != mx.bfloat16:
        return from_numpy(numpy.array(array))
    return from_numpy(numpy.array(array.view(mx.int16))).view(torch.bfloat16)


@functools.cache
def table() -> Any:
    """Bare name -> function of what torch infers of the result, then the operator's arguments."""
    import mlx.core as mx
    from mlx import nn

    def plain(function):
        return lambda like, *args, **kwargs: function(*(_wide(a, like) for a in args), **kwargs)

    def reduced(function):
        def run(like, x, dim=None, keepdim=False, **kwargs):
            return function(x, axis=None if dim in (None, []) else dim, keepdims=keepdim)

        return run

    def scaled(function):
        return lambda like, x, y, alpha=1: function(x, y if alpha == 1 else mx.multiply(y, alpha))

    found = {}
    for words, make in ((PLAIN, plain), (REDUCE, reduced)):
        for word in words.split():
            name, _, theirs_is = word.partition(":")
            found[name] = make(getattr(mx, theirs_is or name))
    found |= {"add": scaled(mx.add), "sub": scaled(mx.subtract)}

    def addmm(like, c, a, b, beta=1, alpha=1):
        return mx.addmm(c, a, b, alpha=alpha, beta=beta)

    def layer_norm(like, x, shape, weight, bias, eps):
        if len(shape) != 1:
            raise NotImplementedError("layer_norm over several axes has no function of MLX")
        mean, variance = mx.mean(x, axis=-1, keepdims=True), mx.var(x, axis=-1, keepdims=True)
        return mx.fast.layer_norm(x, weight, bias, eps), mean, mx.rsqrt(variance + eps)

    def gelu(like, x, approximate="none"):
        return nn.gelu_approx(x) if approximate == "tanh" else nn.gelu(x)

    def clone(like, x, memory_format=None):
        return mx.array(x)

    def take(like, x, dim, index):
        return mx.take(x, index, axis=dim)

    found |= {
        "clone": clone,
        "addmm": addmm,
        "gelu": gelu,
        "relu": lambda like, x: nn.relu(x),
        "elu": lambda like, x, alpha=1, scale=1, input_scale=1: scale * nn.elu(x * input_scale, alpha),
        "leaky_relu": lambda like, x, slope=0.01: nn.leaky_relu(x, slope),
        "hardtanh": lambda like, x, low=-1, high=1: mx.clip(x, low, high),
        "clamp": lambda like, x, low=None, high=None: mx.clip(x, low, high),
        "_softmax": lambda like, x, dim, half: mx.softmax(x, axis=dim),
        "_log_softmax": lambda like, x, dim, half: nn.log_softmax(x, axis=dim),
        "native_layer_norm": layer_norm,
        "view": lambda like, x, shape: mx.reshape(x, tuple(like.shape)),
        "reshape": lambda like, x, shape: mx.reshape(x, tuple(like.shape)),
        "expand": lambda like, x, shape, **k: mx.broadcast_to(x, tuple(like.shape)),
        "permute": lambda like, x, dims: mx.transpose(x, dims),
        "transpose": lambda like, x, a, b: mx.swapaxes(x, a, b),
        "t": lambda like, x: mx.transpose(x),
        "unsqueeze": lambda like, x, dim: mx.expand_dims(x, dim),
        "squeeze": lambda like, x, dim=None: mx.reshape(x, tuple(like.shape)),
        "cat": lambda like, tensors, dim=0: mx.concatenate(tensors, axis=dim),
        "index_select": take,
        "embedding": lambda like, weight, index, *rest: mx.take(weight, index, axis=0),
        "cumsum": lambda like, x, dim, **k: mx.cumsum(x, axis=dim),
        "cumprod": lambda like, x, dim, **k: mx.cumprod(x, axis=dim),
        "logcumsumexp": lambda like, x, dim: mx.logcumsumexp(x, axis=dim),
        "sort": lambda like, x, dim=-1, descending=False: _sorted(x, dim, descending),
        "argmax": lambda like, x, dim=None, keepdim=False: mx.argmax(x, axis=dim, keepdims=keepdim),
        "argmin": lambda like, x, dim=None, keepdim=False: mx.argmin(x, axis=dim, keepdims=keepdim),
        "_to_copy": lambda like, x, **k: x,
    }
    return found


def _sorted(x, dim, descending):
    import mlx.core as mx

    if descending:
        raise NotImplementedError("MLX sorts upwards alone")
    return mx.sort(x, axis=dim), mx.argsort(x, axis=dim).astype(mx.int64)


def _wide(value, like):
    """Whole numbers of which torch computes a float, as floats."""
    import mlx.core as mx

    floats = isinstance(like, torch.Tensor) and like.is_floating_point()
    whole = isinstance(value, mx.array) and not mx.issubdtype(value.dtype, mx.floating)
    return value.astype(kind(like.dtype)) if floats and whole and value.dtype != mx.bool_ else value
