# SPDX-License-Identifier: Apache-2.0
"""A graph of ATen's core operators, computed operator by operator by functions of another framework.

Needs of torch: its operators in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...calls.foreign import theirs

if TYPE_CHECKING:
    from typing import Any


def is_operator(node: Any) -> Any:
    """Whether a node computes; the others pick a part of a result."""
    return node.op == "call_function" and hasattr(node.target, "overloadpacket")


def name_of(node: Any) -> Any:
    """The bare name of its operator."""
    name = node.target.overloadpacket.__name__
    return name if name.startswith("__") else name.rstrip("_")


def refuse_unknown(graph: torch.fx.GraphModule, functions: Any, framework: Any) -> None:
    """Raises where an operator of the graph has no function."""
    for node in graph.graph.nodes:
        if is_operator(node) and name_of(node) not in functions:
            raise NotImplementedError(f"no function of {framework} is known for {node.target}")


def walked(graph: torch.fx.GraphModule, given: Any, there: Any, one: Any) -> Any:
    """What the graph gives on arrays: `there` makes one of a constant, `one(node, *args, **kwargs)` computes."""
    given, values = iter(given), {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "get_attr":
            values[node] = there(getattr(graph, node.target))
        elif node.op == "output":
            return [values[n] for n in node.args[0]]
        else:
            args = torch.fx.node.map_arg(node.args, lambda n: values[n])
            kwargs = torch.fx.node.map_arg(node.kwargs, lambda n: values[n])
            values[node] = one(node, *args, **kwargs) if is_operator(node) else theirs(node.target, *args)
