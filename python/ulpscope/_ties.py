# SPDX-License-Identifier: Apache-2.0
"""Indices that differ: which of them select a value as good as the right one, and orders
that nobody promised. Serves `_outputs` and `_callable`."""

from dataclasses import dataclass

import torch

from ._laws import Arguments, arguments_of
from ._replay import base_name, bind_exact

# Operators that return indices, and which of their results these are.
INDEX_OPS = {
    "argmax": 0, "argmin": 0, "argsort": 0, "max": 1, "min": 1, "topk": 1, "sort": 1, "msort": 1,
    "kthvalue": 1, "median": 1, "nanmedian": 1, "mode": 1, "cummax": 1, "cummin": 1,
    "_cummax_helper": 1, "_cummin_helper": 1, "max_pool2d_with_indices": 1,
    "max_pool3d_with_indices": 1, "adaptive_max_pool2d": 1, "adaptive_max_pool3d": 1,
    "fractional_max_pool2d": 1, "fractional_max_pool3d": 1, "_embedding_bag": 3,
    "_embedding_bag_forward_only": 3,
}  # fmt: skip
CUMULATIVE = {"cummax", "cummin", "_cummax_helper", "_cummin_helper"}
LAST_DIM = {"topk", "sort", "argsort", "kthvalue", "mode"}  # where no dim is given
UNSORTED = {"topk", "_unique", "_unique2"}  # with sorted=False
OUT_OF_WINDOW = "fractional"  # their windows hang on samples


@dataclass
class Choice:
    """How an operator chose indices: over which values, along which dimension."""

    name: str
    values: torch.Tensor
    dim: int | None
    arguments: Arguments
    slack: float = 0.0  # values that differ by this share are as good as equal


def name_of_one(call):
    """Bare name of the one operator that a call is, "" where a callable is more than one."""
    if call.composite:
        return call.only[0] if call.only else ""
    return base_name(call.op)[1] if call.schema is not None else ""


def operator_of(call):
    """Bare name and arguments of the one operator that a call is; ("", {}) where a callable
    is more than one."""
    if call.composite:
        return call.only or ("", Arguments())
    if call.schema is None:
        return "", Arguments()
    tensors = bind_exact(call, lambda captured: "cpu").tensors
    return name_of_one(call), arguments_of(call, tensors)


def chosen_by(name, arguments, slack=0.0):
    """The Choice that an operator makes, None where it chooses no index."""
    values = next((v for v in arguments.values() if isinstance(v, torch.Tensor)), None)
    if name not in INDEX_OPS or values is None:
        return None
    dim = arguments.get("dim", -1 if name in LAST_DIM else None)
    if name.startswith("_embedding_bag"):
        dim = 0
    return Choice(name, values, dim, arguments, slack)


def choice_of(call, path):
    """The Choice behind index output `path`, or None."""
    if call.composite:
        return call.choices.get(path)
    if INDEX_OPS.get(name_of_one(call)) != _place(path):
        return None
    return chosen_by(*operator_of(call))


def _place(path):
    """Which result a path is: 1 for "out[1]"."""
    inner = path.removeprefix("out[").removesuffix("]")
    return int(inner) if inner.isdigit() and path != inner else None


def as_good(choice, got, want):
    """
    Where an index output is right: it selects a value equal to the one that `want` selects,
    in a place from which it may come, and none twice where each is to come once.

    A bool tensor of the shape of `got`; None where nothing can be said.
    """
    if choice is None or got.dtype != torch.int64 or got.shape != want.shape:
        return None
    if "max_pool" in choice.name:
        return _pooled(choice, got, want)
    x, dim, shape = choice.values, choice.dim, got.shape
    if dim is None:
        x, dim = x.flatten(), 0
        got, want = got.reshape(-1), want.reshape(-1)
    if x.dim() == 0:
        return None
    if got.dim() < x.dim():
        got, want = got.unsqueeze(dim), want.unsqueeze(dim)
    inside = (got >= 0) & (got < x.shape[dim])
    safe = got.clamp(0, max(x.shape[dim] - 1, 0))
    if choice.arguments.get("stable"):
        return (got == want).reshape(shape)
    good = inside & _equal(choice, x.gather(dim, safe), x.gather(dim, want), dim)
    if choice.name in CUMULATIVE:
        places = torch.arange(x.shape[dim]).view([-1] + [1] * (x.dim() - dim % x.dim() - 1))
        good &= got <= places
    elif got.shape[dim] > 1 and not choice.name.startswith("_embedding"):
        good &= ~_repeated(safe, dim)
    return good.reshape(shape)


def _equal(choice, a, b, dim):
    equal = (a == b) | ((a != a) & (b != b))
    if a.dtype in (torch.float32, torch.bfloat16):  # a device may flush subnormals: ties
        tiny = torch.finfo(a.dtype).tiny
        equal |= (a.abs() < tiny) & (b.abs() < tiny)
    if choice.slack:
        equal |= (a - b).abs() <= choice.slack * b.abs()
    if choice.name == "mode":  # of values that come as often, any
        x = choice.values
        count = lambda v: (x == v).sum(dim, keepdim=True)  # noqa: E731
        equal |= count(a) == count(b)
    return equal


def _repeated(index, dim):
    """Where an index comes a second time along `dim`."""
    sorted_, order = index.sort(dim=dim, stable=True)
    again = torch.zeros_like(sorted_, dtype=torch.bool)
    n = index.shape[dim]
    again.narrow(dim, 1, n - 1).copy_(sorted_.diff(dim=dim) == 0)
    return torch.zeros_like(again).scatter(dim, order, again)


# ---- pooling -------------------------------------------------------------------------


def _pooled(choice, got, want):
    """Equal values within the window that an element looks at."""
    x = choice.values
    n = 3 if "3d" in choice.name else 2
    planes = x.flatten(-n)
    inside = (got >= 0) & (got < planes.shape[-1])
    safe = got.clamp(0, max(planes.shape[-1] - 1, 0))
    a = planes.gather(-1, safe.flatten(-n)).view(got.shape)
    b = planes.gather(-1, want.flatten(-n)).view(got.shape)
    good = inside & _equal(choice, a, b, -1)
    if choice.name.startswith(OUT_OF_WINDOW):
        return good
    rest = safe
    for d in reversed(range(n)):
        size = x.shape[x.dim() - n + d]
        good &= _in_window(choice, rest % size, d, n, size, got.shape[got.dim() - n + d])
        rest = rest // size
    return good


def _in_window(choice, at, d, n, size, n_out):
    """Whether coordinates along pooled dimension d lie in their element's window."""
    out = torch.arange(n_out).view([-1] + [1] * (n - 1 - d))
    if choice.name.startswith("adaptive"):
        start = out * size // n_out
        stop = ((out + 1) * size + n_out - 1) // n_out
        return (at >= start) & (at < stop)
    kernel, pad = _each(choice, "kernel_size", d, 1), _each(choice, "padding", d, 0)
    step = _each(choice, "stride", d, kernel)
    dilation = _each(choice, "dilation", d, 1)
    away = at - (out * step - pad)
    return (away >= 0) & (away < kernel * dilation) & (away % dilation == 0)


def _each(choice, name, d, default):
    value = choice.arguments.get(name)
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return default
    if isinstance(value, (list, tuple)):
        return value[d] if len(value) > 1 else value[0]
    return value


# ---- orders that nobody promised -----------------------------------------------------


def aligned(call, outputs, truth):
    """
    The device's outputs in the order of the reference's, where the operator promises no
    order (sorted=False of topk and unique), else as they are.
    """
    if name_of_one(call) not in UNSORTED:
        return outputs
    name, arguments = operator_of(call)
    if arguments.get("sorted", True) or "out[0]" not in outputs:
        return outputs
    values, right = outputs["out[0]"], truth["out[0]"]
    if values.shape != right.shape or values.dim() == 0:
        return outputs
    dim = arguments.get("dim", -1) if name == "topk" else 0
    mine, its = values.argsort(dim), right.argsort(dim)
    place = torch.empty_like(its).scatter(dim, mine, its)  # where each of the device's goes
    inverse = "out[1]" if name != "topk" and arguments.get("return_inverse") else ""
    out = dict(outputs)
    for path, tensor in outputs.items():
        if path != inverse and tensor.shape == values.shape:
            out[path] = torch.empty_like(tensor).scatter(dim, place, tensor)
    slots = outputs.get(inverse)
    if slots is not None and bool(((slots >= 0) & (slots < len(place))).all()):
        out[inverse] = place[slots]
    return out
