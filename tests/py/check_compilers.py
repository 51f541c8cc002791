# SPDX-License-Identifier: Apache-2.0
"""Backends of torch.compile with planted bugs, for `--via NAME --import check_compilers`."""

import torch
from torch._dynamo import lookup_backend, register_backend


@register_backend
def rounding(module, inputs):
    """Inductor, whose results went through bfloat16."""
    compiled = lookup_backend("inductor")(module, inputs)

    def run(*args):
        return [rounded(out) for out in compiled(*args)]

    return run


def rounded(value):
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.bfloat16().to(value.dtype) if floats else value


@register_backend
def refusing(module, inputs):
    raise ValueError("no layout for this\n  at node 3")


@register_backend
def forgetful(module, inputs):
    """Computes, but writes no argument."""

    def run(*args):
        return module(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))

    return run


@register_backend
def fusing(module, inputs):
    """Computes as it is told, but another gelu where there is a product to fuse it with."""
    names = ("addmm", "mm", "linear")
    products = [n for n in module.graph.nodes if any(name in str(n.target) for name in names)]
    for node in module.graph.nodes:
        if products and "gelu" in str(node.target):
            node.kwargs = {**node.kwargs, "approximate": "tanh"}
    module.recompile()
    return module
