# SPDX-License-Identifier: Apache-2.0
"""`--via jax`: each operator of ATen's core set by JAX's own function (`jax_table`), compiled as one.

Needs of torch: its operators in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...calls.foreign import theirs
from .jax_table import table
from .runtime import Runtime, from_numpy, to_numpy
from .walk import name_of, refuse_unknown, walked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


WITH_NUMBERS = {"add", "sub", "mul", "div", "pow", "remainder", "fmod"}


class Jax(Runtime):
    packages = {"jax": "jax"}
    core = True

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        import jax

        jax.config.update("jax_enable_x64", True)  # its float64 is another dtype's kernel otherwise
        functions = table()
        refuse_unknown(graph, functions, "JAX")
        run = jax.jit(
            lambda *given: walked(
                graph, given, there, lambda node, *args, **kwargs: _one(functions, node, args, kwargs)
            )
        )

        def call(*given):
            return [from_numpy(t) for t in theirs(run, *map(there, given))]

        return call


def there(tensor: torch.Tensor) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(to_numpy(tensor))


def _one(functions, node, args, kwargs):
    name, like = name_of(node), node.meta["val"]
    return _typed(functions[name](like, *_as_torch_reads(name, like, args), **kwargs), like)


def _as_torch_reads(name, like, args):
    """Arguments as torch takes them, where JAX promotes otherwise: whole numbers become floats of the result's
    dtype, and a Python number beside 16 bits is not rounded to these first."""
    import jax

    arrays = [a for a in args if isinstance(a, jax.Array)]
    whole = arrays and not any(jax.numpy.issubdtype(a.dtype, jax.numpy.floating) for a in arrays)
    if not isinstance(like, torch.Tensor) or not arrays:
        return args
    if name == "pow" and not like.is_floating_point():
        raise NotImplementedError("not supported: to JAX whole numbers to negative powers are undefined")
    if whole and like.is_floating_point():
        to = str(like.dtype).removeprefix("torch.")
    elif name in WITH_NUMBERS and like.dtype in (torch.bfloat16, torch.float16) and any(type(a) is float for a in args):
        to = "float32"
    else:
        return args
    return [a.astype(to) if isinstance(a, jax.Array) else a for a in args]


def _typed(value, like):
    if isinstance(value, (tuple, list)):
        return [v if v is None else _typed(v, t) for v, t in zip(value, like)]
    return value.astype(str(like.dtype).removeprefix("torch."))
