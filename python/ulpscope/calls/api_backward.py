# SPDX-License-Identifier: Apache-2.0
"""The backward pass of a Python function as one call: forward on the captured inputs, then
torch's autograd with the captured incoming gradients, giving those of the inputs. Needs the
trace's row of the forward call beside that of the backward one. Serves `session.bench`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .read_call import arguments_of, call_from, value_of
from .nested import tensors_in
from .replay import is_composite

if TYPE_CHECKING:
    from .callable import Composite
    from .replay import Call


def forward_of(row: dict[str, Any]) -> int | None:
    """The number of the forward call of a row that is a function's backward pass; None for
    any other row."""
    if "::" in row["op"] or row["phase"] != "backward" or not row.get("state"):
        return None
    found: int | None = json.loads(row["state"]).get("forward")
    return found


def backward_call(
    row: dict[str, Any],
    forward: dict[str, Any],
    read_blob: Callable[[int], Any],
    stand_in: Callable[..., Any] | None = None,
) -> Composite:
    """The call of that row; `forward` is the row of its forward call. Where the row has the
    gradients that the last node of autograd gave (what hooks of other tools see), they are taken
    for those of the arguments that they belong to."""
    given = [t for t in forward["tensors"] if t["role"] == "in"]
    asked = [_below(t["path"]) for t in given if t["requires_grad"]]
    arguments = [*_taken(forward, _below), _taken(row, _below_grads)[0]]
    tensors = [{**t, "path": _below(t["path"]), "storage": t["version"]} for t in given]
    tensors += [
        {**t, "path": _below_grads(t["path"]), "storage": t["version"]} for t in row["tensors"] if t["role"] == "in"
    ]
    tensors += [{**t, "storage": t["version"]} for t in row["tensors"] if t["role"] == "out"]
    merged = {**row, "tensors": tensors, "state": forward.get("state")}
    # A dump without results does not tell what its functions write.
    roles = {t["role"] for t in forward["tensors"]}
    writes = "mutated" in roles or "out" not in roles
    node: dict[str, Any] = {}
    call = call_from(
        merged, read_blob, stand_in, lambda function: _derived(function, asked, writes, node), (arguments, {})
    )
    if json.loads(row["state"]).get("gradients") == "node":
        _of_arguments(call, asked, node)
    assert is_composite(call)  # the row of a function
    # A replay draws anew, and what came in hangs on what the captured run drew; autocast shares
    # one cast of a weight among its users, in which their gradients are added up.
    if call.random or call.autocast:
        call.live = None
    return call


def _taken(row: dict[str, Any], below: Callable[[str], str]) -> tuple[list[Any], dict[str, Any]]:
    return arguments_of(row, lambda kind, text, path: value_of(kind, text, below(path)))


def _below(path: str) -> str:
    return path.replace("args", "args[0]", 1) if path.startswith("args") else path.replace("kwargs", "args[1]", 1)


def _below_grads(path: str) -> str:
    return path.replace("args", "args[2]", 1)


# Nodes that hand a gradient on as it is, in another shape.
MOVES = {
    "TBackward0",
    "TransposeBackward0",
    "PermuteBackward0",
    "ViewBackward0",
    "UnsafeViewBackward0",
    "CloneBackward0",
}


def _inputs_of(
    outputs: list[torch.Tensor], leaves: dict[str, torch.Tensor | None]
) -> list[tuple[str, list[Any]] | None]:
    """Of the only node of autograd that gave all outputs: for each of its inputs the path of the
    leaf, and the nodes that only move its gradient there; None for an input that is no leaf, or
    one to which other ways lead as well."""
    nodes = {o.grad_fn for o in outputs if o.grad_fn is not None}
    if len(nodes) != 1:
        return []
    paths = {id(leaf): path for path, leaf in leaves.items() if leaf is not None}
    inputs = [at for at, _ in nodes.pop().next_functions]
    ways = [path for at in inputs for path in _leaves_below(at, paths)]
    found: list[tuple[str, list[Any]] | None] = []
    for at in inputs:
        moves = []
        while at is not None and at.name() in MOVES:
            moves.append(at)
            at = at.next_functions[0][0]
        path = paths.get(id(getattr(at, "variable", None)))
        found.append((path, moves) if path is not None and ways.count(path) == 1 else None)
    return found


def _leaves_below(node: Any, paths: dict[int, str]) -> set[str]:
    """Paths of the leaves to which a node's gradient goes on."""
    found: set[str] = set()
    seen, ahead = set(), [node]
    while ahead:
        at = ahead.pop()
        if at is None or at in seen:
            continue
        seen.add(at)
        if id(getattr(at, "variable", None)) in paths:
            found.add(paths[id(at.variable)])
        ahead.extend(below for below, _ in at.next_functions)
    return found


def _of_arguments(call: Call, asked: list[str], node: dict[str, Any]) -> None:
    """Makes what was captured of the node's inputs that of the arguments: an argument has a
    gradient from the trace where one input of the node is that argument."""
    inputs = node.get("inputs", [])
    places = {}
    for j, path in enumerate(asked):
        at = [i for i, found in enumerate(inputs) if found and found[0] == path]
        if len(at) == 1 and f"out[{at[0]}]" in call.results:
            places[f"out[{j}]"] = at[0]
    sees, read = call.results, call.live or (lambda path, role: None)
    call.results = {path: replace(sees[f"out[{i}]"], path=path) for path, i in places.items()}

    def live(path: str, role: str) -> torch.Tensor | None:
        if role != "out" or path not in places:
            return read(path, role) if role != "out" else None
        i = places[path]
        tensor, given = read(f"out[{i}]", role), call.views[asked[int(path[4:-1])]]
        for move in inputs[i][1] if tensor is not None else ():
            try:
                tensor = move(tensor)
            except RuntimeError:  # recorded on a device that takes the function apart in another way
                return None
        fits = tensor is not None and tuple(tensor.shape) == given.sizes and tensor.dtype == given.dtype
        return tensor if fits else None

    call.live = live


def _derived(forward: Callable[..., Any], asked: list[str], writes: bool, node: dict[str, Any]) -> Callable[..., Any]:
    """What gives the gradients of the arguments at the paths `asked`, in their order; notes in
    `node` what its first run tells of the node that gave the results."""

    def run(args: Any, kwargs: Any, grads: Any) -> tuple[torch.Tensor | None, ...]:
        leaves: dict[str, torch.Tensor | None] = {path: None for path in asked}
        with torch.enable_grad():
            args = _with_leaves(args, "args[0]", leaves, writes)
            kwargs = _with_leaves(kwargs, "args[1]", leaves, writes)
            given = [(t, t.grad_fn) for t in (*_all_tensors(args), *_all_tensors(kwargs))]
            outputs = list(_all_tensors(forward(*args, **kwargs)))
            if not outputs:  # x[0] = y gives nothing: what it wrote
                outputs = [t for t, before in given if t.requires_grad and t.grad_fn is not before]
            if "inputs" not in node:
                node["inputs"] = _inputs_of(outputs, leaves)
            pairs = [(o, g.to(o.dtype)) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
            return tuple(
                torch.autograd.grad(
                    [o for o, _ in pairs], list(leaves.values()), [g for _, g in pairs], allow_unused=True
                )
            )

    run.__name__ = getattr(forward, "__name__", "function")
    return run


def _all_tensors(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, dict):
        result = list(result.values())
        for item in result:
            yield from _all_tensors(item)
    else:
        yield from tensors_in(result)


def _with_leaves(value: Any, path: str, leaves: dict[str, torch.Tensor | None], writes: bool) -> Any:
    """Arguments with leaves of a graph where gradients are asked for; what the function may write
    is a copy."""
    if isinstance(value, torch.Tensor):
        if path not in leaves:
            return value.clone() if writes else value
        leaves[path] = leaf = value.detach().requires_grad_()
        return leaf.clone() if writes else leaf
    if isinstance(value, dict):
        return {k: _with_leaves(v, f"{path}.{k}", leaves, writes) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_with_leaves(v, f"{path}[{i}]", leaves, writes) for i, v in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    return value
