# SPDX-License-Identifier: Apache-2.0
"""What the error of a call means for the loss, to first order: |<dL/dy, y_device - R>|.

The gradient dL/dy of a call's output is an input of the backward calls of its autograd
node, which a trace names (`call.state`, docs/reference/trace-format.md). It is taken from there or
not at all: whatever could be another tensor leaves the effect out.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import torch

from ..calls.read_call import dtype_named, stored
from ..calls.raw_bytes import fit
from ..calls.replay import BadCall, Call, base_name, is_row_major, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from .. import _core

NAMED = ("grad_output", "grad", "grad_out")  # of a backward operator: dL/d(first output)
PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}  # their factors

# Their backward reads no tensor of floats but the gradient.
ALONE = {
    "sum",
    "mean",
    "cumsum",
    "cat",
    "stack",
    "index",
    "index_select",
    "gather",
    "flip",
    "roll",
    "constant_pad_nd",
    "tril",
    "triu",
    "masked_fill",
    "repeat",
}


def loss_effect(
    trace: _core.Trace,
    call: Call,
    answer: dict[str, torch.Tensor],
    truth: dict[str, torch.Tensor],
    backward: dict[Any, Any],
) -> float | None:
    """
    |sum(dL/dy * (y - R))| in the loss's units over elements where all are finite.

    Shapes: `answer` and `truth` map paths to outputs; of several the first one counts.
    Numbers: None where the trace holds no gradient of it for certain, where the output is
    no float or correctly rounded, and where no element is finite. `backward` maps
    the call, and calls below it, to the calls of their autograd nodes (`_select.link`).
    """
    path = "out[0]" if "out[0]" in answer else next(iter(answer), "")
    device, right = answer.get(path), (truth or {}).get(path)
    if not backward or device is None or right is None or not device.dtype.is_floating_point:
        return None
    if device.shape != right.shape or torch.equal(device, right.to(device.dtype)):
        return None
    floats = [p for p, t in answer.items() if t.dtype.is_floating_point]
    gradient = _gradient(trace, call.row, path, len(floats) == 1, backward)
    if gradient is None or gradient.shape != device.shape:
        return None
    products = (device.double() - right).mul_(gradient)
    total = float(products.sum())
    if not math.isfinite(total):
        products = products[products.isfinite()]
        total = float(products.sum()) if products.numel() else math.nan
    return None if math.isnan(total) else abs(total)


# ---- the gradient --------------------------------------------------------------------


def _gradient(
    trace: _core.Trace, row: dict[str, Any], path: str, alone: bool, backward: dict[Any, Any]
) -> torch.Tensor | None:
    """dL/d(output `path` of a call), from its own node or that of the call below it that
    made the output; None where neither is certain."""
    whole = _output(row, path)
    for forward, sequences in sorted((int(k), v) for k, v in backward.items()):
        source = row if forward == row["sequence"] else trace.call(forward)
        made = whole if source is row else _output(source, "out[0]")
        if made is None or whole is None or made["version"] != whole["version"]:
            continue
        below = [trace.call(s) for s in sequences]
        item = _incoming(trace, source, made, alone or source is not row, below)
        tensor = _read(trace, item) if item else None
        if tensor is not None:
            return _reshaped(tensor, made, whole)
    return None


def _output(row: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The argument row of an output: a result, or what a written argument became."""
    role = "out" if path.startswith("out") else "mutated"
    found = [t for t in row["tensors"] if t["role"] == role and t["path"] == path]
    return found[0] if found else None


def _reshaped(tensor: torch.Tensor, made: dict[str, Any], whole: dict[str, Any]) -> torch.Tensor | None:
    """The gradient of `made` as that of `whole`, another view of the same content."""
    same = all(made[k] == whole[k] for k in ("sizes", "strides", "offset", "dtype"))
    if same:
        return tensor
    dense = all(is_row_major(v["sizes"], v["strides"]) for v in (made, whole))
    if dense and made["offset"] == whole["offset"] and made["dtype"] == whole["dtype"]:
        count = torch.Size(whole["sizes"]).numel()
        return tensor.reshape(whole["sizes"]) if tensor.numel() == count else None
    return None


def _incoming(
    trace: _core.Trace, source: dict[str, Any], made: dict[str, Any], alone: bool, below: list[dict[str, Any]]
) -> tuple[dict[str, Any], bool] | None:
    """The one argument of the node's calls that is its incoming gradient: (argument row,
    whether it lies transposed); None where it is none or not certain."""
    below = [b for b in below if _belongs(b, source)]
    if not below:
        return None
    own = {t["storage"] for t in source["tensors"]}
    node = {b["sequence"] for b in below}

    def outside(item: dict[str, Any]) -> bool:
        """Made after the forward call and by no call of the node, of no tensor of it."""
        late = item["writer"] > source["sequence"] and item["writer"] not in node
        return late and item["storage"] not in own and item["dtype"] == made["dtype"]

    op = base_name(source["op"])[1]
    named = [(t, False) for b in below for t in _named(b) if outside(t)]
    if named:
        found = named
    elif op in PRODUCTS:
        found = [f for b in below for f in _of_product(b, source, PRODUCTS[op]) if outside(f[0])]
    elif alone and (op.rstrip("_") in ALONE or _is_pointwise(source["op"])):
        found = [
            (t, False) for b in below if base_name(b["op"])[1].rstrip("_") != "add" for t in _inputs(b) if outside(t)
        ]
    else:
        return None
    found = [(t, turned) for t, turned in found if _sizes(t, turned) == tuple(made["sizes"])]
    kinds = {_content(t, turned) for t, turned in found}
    return found[0] if len(kinds) == 1 else None


def _belongs(row: dict[str, Any], source: dict[str, Any]) -> bool:
    """Whether a backward call's node is that of this forward call: its name says so, and
    an input asked for a gradient. A node that Python made has no name: then the call is
    named after the forward call and reads all that it read."""
    if not any(t["requires_grad"] for t in source["tensors"] if t["role"] == "in"):
        return False
    state, name = _state(row), base_name(source["op"])[1]
    if not state:
        read, of = ({_content(t) for t in _inputs(r)} for r in (row, source))
        return base_name(row["op"])[1] == name + "_backward" and of <= read
    node = re.fullmatch(r"(?:.*::)?(\w+?)Backward\d+", state.get("node", ""))
    return node is not None and node[1].lower() == name.replace("_", "").removesuffix("forward")


def _content(item: dict[str, Any], turned: bool = False) -> tuple[Any, ...]:
    """What an argument shows, whatever its path."""
    return item["version"], item["offset"], _sizes(item, turned), _strides(item, turned)


def _state(row: dict[str, Any]) -> dict[str, Any]:
    return json.loads(row["state"]) if row.get("state") else {}


def _inputs(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [t for t in row["tensors"] if t["role"] == "in"]


def _named(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The gradient among the arguments of an operator made for the backward pass."""
    schema = _schema(row["op"])
    if "backward" not in row["op"] or schema is None:
        return []
    names = [a.name for a in schema.arguments]
    at = [f"args[{names.index(n)}]" for n in NAMED if n in names[:1]]
    return [t for t in _inputs(row) if t["path"] in at]


def _schema(op: str) -> Any:
    try:
        return getattr(resolve(op), "_schema", None)
    except BadCall:
        return None


def _is_pointwise(op: str) -> bool:
    try:
        return torch.Tag.pointwise in getattr(resolve(op), "tags", ())
    except BadCall:
        return False


def _of_product(
    row: dict[str, Any], source: dict[str, Any], factors: Sequence[int]
) -> list[tuple[dict[str, Any], bool]]:
    """(argument, transposed) of the gradient in a product with one of the factors: G b' and
    a' G hold it as it is, b G' and G' a transposed."""
    if base_name(row["op"])[1] not in ("mm", "bmm"):
        return []
    pair = {t["path"]: t for t in _inputs(row)}
    forward = {t["path"]: t for t in _inputs(source)}
    sides: list[Any] = [forward.get(f"args[{i}]") for i in factors]
    if len(pair) != 2 or None in sides or sides[0]["storage"] == sides[1]["storage"]:
        return []
    out = []
    for mine, other in ((0, 1), (1, 0)):
        item, with_ = pair[f"args[{mine}]"], pair[f"args[{other}]"]
        for side, factor in enumerate(sides):
            if with_["version"] == factor["version"]:
                out.append((item, side == mine))
    return out


def _turn(values: Iterable[int], turned: bool) -> tuple[int, ...]:
    values = tuple(values)
    return (*values[:-2], values[-1], values[-2]) if turned and len(values) > 1 else values


def _sizes(item: dict[str, Any], turned: bool) -> tuple[int, ...]:
    return _turn(item["sizes"], turned)


def _strides(item: dict[str, Any], turned: bool) -> tuple[int, ...]:
    return _turn(item["strides"], turned)


def _read(trace: _core.Trace, found: tuple[dict[str, Any], bool]) -> torch.Tensor:
    """The tensor of an argument row, None where its content was not kept."""
    item, turned = found
    if not item["blob"]:
        return None
    raw = fit(stored([item], item, trace.blob), dtype_named(item["dtype"]))
    return raw.as_strided(_sizes(item, turned), _strides(item, turned), item["offset"])
