# SPDX-License-Identifier: Apache-2.0
"""Along which dimensions a call falls apart into calls that know nothing of each other: one
table by operator. Serves `judges.rows`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from ..calls.callable import form_of
from ..calls.exact import CARRY
from ..calls.replay import Call, View, base_name


@dataclass
class Cut:
    """The dimension that is cut, of every argument that has it and of every output."""

    length: int
    arguments: dict[str, int]  # path -> dimension
    outputs: dict[str, int]  # path -> dimension
    counts: tuple[int, ...] = ()  # places of the arguments that tell its length
    given: dict[str, int] = field(default_factory=dict)  # of a callable: argument of its operator -> dimension


# Operators along dimensions that their argument `dim` names; all else stands for itself.
ALONG = {
    "_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "softmax",
    "log_softmax",
    "sum",
    "mean",
    "amax",
    "amin",
    "logsumexp",
    "var",
    "std",
    "var_mean",
    "prod",
    "linalg_vector_norm",
    "norm",
    "argmax",
    "argmin",
    "max",
    "min",
    "topk",
    "sort",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "median",
    "kthvalue",
    "glu",
    "glu_backward",
}
LAST = {"topk", "sort", "argsort", "kthvalue", "glu"}  # where no dim is given
NORMS = {"native_layer_norm", "layer_norm", "_fused_rms_norm", "rms_norm"}
# The first dimension of the tensors named counts samples; how many dimensions the first has.
SAMPLES = {
    "bmm": (("self", "mat2"), 3),
    "baddbmm": (("batch1", "batch2", "self"), 3),
    "convolution": (("input",), 0),
    "conv1d": (("input",), 3),
    "conv2d": (("input",), 4),
    "conv3d": (("input",), 5),
    "max_pool2d_with_indices": (("self",), 4),
    "avg_pool2d": (("self",), 4),
    "_adaptive_avg_pool2d": (("self",), 4),
    "avg_pool2d_backward": (("grad_output", "self"), 4),
    "_adaptive_avg_pool2d_backward": (("grad_output", "self"), 4),
    "max_pool2d_with_indices_backward": (("grad_output", "self", "indices"), 4),
    "upsample_nearest2d": (("self",), 4),
    "upsample_bilinear2d": (("self",), 4),
    "upsample_bicubic2d": (("self",), 4),
    "native_group_norm": (("input",), 0),
    "_scaled_dot_product_flash_attention_for_cpu": (("query", "key", "value", "attn_mask"), 4),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        ("grad_out", "query", "key", "value", "out", "logsumexp", "attn_mask"),
        4,
    ),
}
COUNTS = {"native_group_norm": (3,)}


def cut_of(call: Call, shapes: dict[str, tuple[int, ...]]) -> Cut | None:
    """The Cut of a call whose outputs have these shapes, by path; None where it hangs together."""
    if call.composite:
        return _of_callable(call, shapes)
    name, views = base_name(call.op)[1], call.views
    aten = call.op.startswith("aten::") and call.schema is not None
    if not aten or not shapes or any(v.form for v in views.values()):
        return None
    if name in ALONG:
        cut = _along(call, name, shapes)
    elif name in NORMS:
        first = views.get("args[0]")
        rows = first is not None and len(first.sizes) > len(call.value("normalized_shape", first.sizes))
        cut = Cut(first.sizes[0], {"args[0]": 0}, dict.fromkeys(shapes, 0)) if rows else None
    elif name in SAMPLES:
        cut = _samples(call, name, shapes)
    elif name == "nll_loss_backward":
        n = shapes["out[0]"][0] if shapes.get("out[0]") else 0
        paths = [p for p, v in views.items() if v.sizes and v.argument != "weight" and v.sizes[0] == n]
        cut = Cut(n, dict.fromkeys(paths, 0), {"out[0]": 0})
    else:
        cut = _pointwise(call, name, shapes)
    fits = cut is not None and all(len(shapes[p]) > d and shapes[p][d] == cut.length for p, d in cut.outputs.items())
    return cut if fits else None


def _along(call, name, shapes):
    """Of an operator along dimensions: the first that it does not run along, else the longest."""
    views = call.views
    sizes = next(iter(views.values())).sizes if views else ()
    dim = call.value("dim", -1 if name in LAST else None)
    alike = name == "glu_backward" or all(v.sizes == sizes for v in views.values())
    if not alike or len({len(v.sizes) for v in views.values()}) > 1:
        return None
    return _across(sizes, dim, views, shapes)


def _across(sizes, dim, paths, shapes):
    """Of what runs along `dim` of arguments of these sizes."""
    if not sizes or dim is None or dim == []:
        return None
    dims = {d % len(sizes) for d in (dim if isinstance(dim, (list, tuple)) else [dim])}
    free = [d for d in range(len(sizes)) if d not in dims]
    if not free:
        return None
    at = 0 if 0 in free else max(free, key=lambda d: sizes[d])
    gone = sum(d < at for d in dims)
    outputs = {p: at - (gone if len(shape) < len(sizes) else 0) for p, shape in shapes.items()}
    return Cut(sizes[at], dict.fromkeys(paths, at), outputs)


def _samples(call, name, shapes):
    """Of an operator over samples that know nothing of each other."""
    names, dims = SAMPLES[name]
    cut = {p: v for p, v in call.views.items() if v.argument in names}
    first = next((v for v in cut.values() if v.argument == names[0]), None)
    if first is None or len(first.sizes) < 3 or dims not in (0, len(first.sizes)):
        return None
    if name == "convolution" and len(first.sizes) != 2 + len(call.value("stride")):
        return None
    n = first.sizes[0]
    alike = [p for p, v in cut.items() if len(v.sizes) == len(first.sizes) or v.argument == "logsumexp"]
    paths = [p for p in alike if cut[p].sizes[0] == n > 1]
    needed = {v.argument for p, v in call.views.items() if p in paths} >= set(names) - {"self", "attn_mask"}
    return Cut(n, dict.fromkeys(paths, 0), dict.fromkeys(shapes, 0), COUNTS.get(name, ())) if needed else None


def _of_callable(call, shapes):
    """Of a callable that hands its arguments to one operator, as they lie, and returns what that gives: one that
    works element by element, along dimensions, or that norms rows."""
    known = call.mutated or call.choices or call.autocast or call.differentiates
    if known or call.random or call.only is None or call.steps != 1 or not call.gives or not shapes:
        return None
    name, arguments = call.only
    given = {n: v for n, v in arguments.items() if isinstance(v, torch.Tensor)}
    paths = {n: path for n, t in given.items() if (path := _path_of(call, t)) is not None}
    if call.views.keys() - paths.values() or any(v.form for v in call.views.values()):
        return None
    sizes = {n: tuple(t.shape) for n, t in given.items()}
    first = next(iter(sizes.values()), ())
    if paths.keys() == given.keys() and (name in ALONG or _is_pointwise(name)) and set(sizes.values()) == {first}:
        if name in ALONG:
            dim = arguments.get("dim", -1 if name in LAST else None)
            cut = _across(first, dim, paths.values(), shapes)
        else:
            cut = _across(first, (), paths.values(), shapes) if set(map(tuple, shapes.values())) == {first} else None
    elif name in NORMS and next(iter(given)) in paths and len(first) > len(arguments["normalized_shape"]):
        cut = Cut(first[0], {paths[next(iter(given))]: 0}, dict.fromkeys(shapes, 0))
    else:
        return None
    fits = cut is not None and all(len(shapes[p]) > d and shapes[p][d] == cut.length for p, d in cut.outputs.items())
    if not fits or sum(paths[n] in cut.arguments for n in paths) != len(cut.arguments):
        return None
    cut.given = {n: cut.arguments[path] for n, path in paths.items() if path in cut.arguments}
    return cut


def _path_of(call, tensor):
    """The argument of a callable that a tensor is, as that lies; None of another, or of a part."""
    form = form_of(tensor)
    for path, v in call.views.items():
        base = call.storages[v.storage].untyped_storage().data_ptr()
        if form == (base, v.offset, tuple(v.sizes), tuple(v.strides)):
            return path
    return None


def _is_pointwise(name):
    packet = getattr(torch.ops.aten, name, None)
    tags = [tag for overload in packet.overloads() for tag in getattr(packet, overload).tags] if packet else []
    return torch.Tag.pointwise in tags and name not in CARRY


def _pointwise(call, name, shapes):
    """Of an operator that works element by element: its first dimension."""
    steps = torch.Tag.pointwise in call.function.tags and name not in CARRY
    if not steps or len(set(shapes.values())) != 1:
        return None
    (shape,) = set(shapes.values())
    views = call.views.items()
    if not shape or any(len(v.sizes) > len(shape) for _, v in views):
        return None
    paths = [p for p, v in views if len(v.sizes) == len(shape) and v.sizes[0] == shape[0] > 1]
    return Cut(shape[0], dict.fromkeys(paths, 0), dict.fromkeys(shapes, 0))


def weight(cut: Cut, views: dict[str, View], shapes: dict[str, tuple[int, ...]]) -> int:
    """Elements that one place along the cut stands for, of the largest tensor."""
    cuts = [views[p].sizes for p in cut.arguments] + [shapes[p] for p in cut.outputs]
    return max(math.prod(sizes) for sizes in cuts) // max(1, cut.length)
