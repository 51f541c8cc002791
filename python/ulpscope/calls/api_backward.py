# SPDX-License-Identifier: Apache-2.0
"""The backward pass of a Python function as one call: forward on the captured inputs, then
torch's autograd with the captured incoming gradients, giving those of the inputs. Needs the
trace's row of the forward call beside that of the backward one. Serves `session.bench`.
"""

import json

import torch

from .read_call import call_from
from .replay import BadCall, tensors_in


def forward_of(row):
    """The number of the forward call of a row that is a function's backward pass; None for
    any other row."""
    if "::" in row["op"] or row["phase"] != "backward" or not row.get("state"):
        return None
    return json.loads(row["state"]).get("forward")


def backward_call(row, forward, read_blob, stand_in=None):
    """The call of that row; `forward` is the row of its forward call."""
    given = [t for t in forward["tensors"] if t["role"] == "in"]
    asked = [_below(t["path"]) for t in given if t["requires_grad"]]
    arguments = json.loads(forward["args"])
    grads = json.loads(row["args"])["args"]
    tensors = [{**t, "path": _below(t["path"]), "storage": t["version"]} for t in given]
    tensors += [{**t, "path": t["path"].replace("args", "args[2]", 1), "storage": t["version"]}
                for t in row["tensors"] if t["role"] == "in"]  # fmt: skip
    tensors += [{**t, "storage": t["version"]} for t in row["tensors"] if t["role"] == "out"]
    args = [arguments["args"], {"dict": arguments["kwargs"]}, grads]
    merged = {**row, "tensors": tensors, "args": json.dumps({"args": args, "kwargs": {}})}
    writes = any(t["role"] == "mutated" for t in forward["tensors"])
    call = call_from(merged, read_blob, stand_in, lambda call: _derived(call, asked, writes))
    if call.random:
        raise BadCall("it draws random numbers in its forward pass, which no replay draws again")
    return call


def _below(path):
    return path.replace("args", "args[0]", 1) if path.startswith("args") else path.replace("kwargs", "args[1]", 1)


def _derived(call, asked, writes):
    """What gives the gradients of the arguments at the paths `asked`, in their order."""
    forward = call.function

    def run(args, kwargs, grads):
        leaves = {path: None for path in asked}
        with torch.enable_grad():
            args = _with_leaves(args, "args[0]", leaves, writes)
            kwargs = _with_leaves(kwargs, "args[1]", leaves, writes)
            outputs = list(_all_tensors(forward(*args, **kwargs)))
            pairs = [(o, g.to(o.dtype)) for o, g in zip(outputs, grads, strict=False)
                     if g is not None and o.requires_grad]  # fmt: skip
            return tuple(torch.autograd.grad([o for o, _ in pairs], list(leaves.values()),
                                             [g for _, g in pairs], allow_unused=True))  # fmt: skip

    run.__name__ = getattr(forward, "__name__", "function")
    return run


def _all_tensors(result):
    if isinstance(result, dict):
        result = list(result.values())
        for item in result:
            yield from _all_tensors(item)
    else:
        yield from tensors_in(result)


def _with_leaves(value, path, leaves, writes):
    """Arguments with leaves of a graph where gradients are asked for; what the function writes
    is a copy of one."""
    if isinstance(value, torch.Tensor):
        if path not in leaves:
            return value
        leaves[path] = value.detach().requires_grad_()
        return leaves[path].clone() if writes else leaves[path]
    if isinstance(value, dict):
        return {k: _with_leaves(v, f"{path}.{k}", leaves, writes) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_with_leaves(v, f"{path}[{i}]", leaves, writes) for i, v in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    return value
