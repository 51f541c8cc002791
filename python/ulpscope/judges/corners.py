# SPDX-License-Identifier: Apache-2.0
"""Probes of gradients at a corner of their function, where any subgradient is right. Which
elements go free there is decided by a case. Serves `answers`.

A corner is found by moving what is differentiated, and nothing else, by less than any slope
could show. Labels, masks and saved results belong to the definition: at them nothing is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..calls.foreign import theirs
from ..calls.mode import Mode
from ..calls.replay import is_composite

if TYPE_CHECKING:
    from ..calls.replay import Call, Segment
    from ..executors.reference_runs import Reference
    from ..calls.torch_private import OpOverload

JITTER = 2.0**-44  # of each input: only float64 sees it, and no slope makes it visible
GRID = 2.0**-36  # of the largest: far above what a jitter becomes on its way

# Arguments of ATen's gradients of which they are the gradient.
DIFFERENTIATED = {"self", "input", "x1", "x2"}
# Other gradients: arguments that no gradient is about.
SAVED = {
    "result",
    "output",
    "out",
    "y",
    "saved",
    "mask",
    "target",
    "targets",
    "label",
    "labels",
    "indices",
    "index",
    "noise",
    "buffer",
    "grad_output",
    "grad_out",
    "grad",
    "dy",
    "dout",
    "weights",
    "total_weight",
    "logsumexp",
    "save_mean",
    "save_invstd",
    "mean",
    "rstd",
}
# Gradients of activations: what they give at their corners is in their documentation, and
# where units are dead by the thousands it decides what is learnt.
ACTIVATIONS = {
    "threshold_backward",
    "hardtanh_backward",
    "leaky_relu_backward",
    "elu_backward",
    "hardswish_backward",
    "hardsigmoid_backward",
    "hardshrink_backward",
    "softshrink_backward",
    "_prelu_kernel_backward",
    "rrelu_with_noise_backward",
}


# ---- what is differentiated ----------------------------------------------------------


def differentiated(reference: Reference) -> list[tuple[int, torch.dtype]]:
    """Keys of the segments that a gradient is about."""
    call = reference.call
    floats = {k: p for k, p in reference.parts.items() if p.dtype.is_floating_point and not p.steers and p.data.numel()}
    known = getattr(call, "differentiated", None)
    if known:
        return [k for k in floats if k[0] in known]
    names = _argument_names(call)
    if names and call.op.startswith("aten::"):
        if any(_flag(call, f) for f in ("is_result", "self_is_result")):
            return []
        return [k for k in floats if names.get(k, set()) & DIFFERENTIATED]
    return [k for k, p in floats.items() if not names.get(k, set()) & SAVED and not _is_label(p)]


def _argument_names(call: Call) -> dict[tuple[int, torch.dtype], set[str]]:
    """Segment key -> names of the arguments that lie in it, {} where there is no schema."""
    schema: Any = call.schema or getattr(call.function, "_schema", None)
    out: dict[tuple[int, torch.dtype], set[str]] = {}
    for path, view in call.views.items() if schema else ():
        name = view.argument
        if path.startswith("args["):
            place = int(path[5 : path.index("]")])
            name = schema.arguments[place].name if place < len(schema.arguments) else name
        out.setdefault((view.storage, view.dtype), set()).add(name)
    return out


def _flag(call: Call, name: str) -> bool:
    """Whether a boolean argument of an operator is given and true."""
    schema = call.schema or call.function._schema
    places = [i for i, a in enumerate(schema.arguments) if a.name == name]
    given = call.kwargs.get(name, call.args[places[0]] if places and places[0] < len(call.args) else None)
    return given is True


def _is_label(part: Segment) -> bool:
    """Small integers, or two values only: a label, a mask, what a dropout kept."""
    return part.small_integers or bool(part.data[:4096].unique().numel() <= 2)


# ---- where corners are ---------------------------------------------------------------


class Settled(Mode):
    """Gradients of activations at the very point that the captured inputs reach: a jitter
    does not lift them off their corner."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func._schema.name.partition("::")[2] in ACTIVATIONS:
            args = (args[0], *map(_on_grid, args[1:]))
        return func(*args, **(kwargs or {}))


def _on_grid(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return value
    largest = float(value.nan_to_num(0, 0, 0).abs().max())
    if largest == 0:
        return value
    step = 2.0 ** (torch.tensor(largest).frexp()[1].item()) * GRID
    return torch.where(value.isfinite(), (value / step).round() * step, value)


def probe(
    reference: Reference, path: str, keys: list[tuple[int, torch.dtype]], k: int, by: float, settled: bool = False
) -> torch.Tensor:
    """Output `path` where what is differentiated is jittered in the k-th way by a share `by`;
    with activations at their captured point where `settled`. Raises where the operator does
    not exist there."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with Settled():
            return theirs(reference.call.function, *args, **kwargs)

    return reference.wide(_jittered(reference, keys, k, by), run if settled else None)[path]


def _jittered(
    reference: Reference, keys: list[tuple[int, torch.dtype]], k: int, by: float
) -> dict[tuple[int, torch.dtype], torch.Tensor]:
    """The inputs that are differentiated, moved: the k-th of them up or down as a whole while
    there is one, then all by chance."""
    generator = torch.Generator().manual_seed(0x11E5 + k)
    contents = {}
    for i, key in enumerate(keys):
        data = reference.parts[key].data.double()
        if k < 2 * len(keys):
            way = float(k // 2 == i) * (1 - 2 * (k % 2))
        else:
            way = 2 * torch.rand(data.shape, generator=generator, dtype=torch.float64) - 1
        live = data[data.isfinite() & (data != 0)].abs()
        least = float(live.min()) if live.numel() else 1.0
        # Zeros too, by less than anything there is.
        contents[key] = data + by * torch.where(data == 0, least, data.abs()) * way
    return contents


def is_gradient(call: Call, path: str) -> bool:
    """Whether an output of a call may be a gradient."""
    if is_composite(call):
        return call.differentiates and not (call.op.endswith("with backward") and path.startswith("out[0]"))
    return "backward" in call.op
