# SPDX-License-Identifier: Apache-2.0
"""Movement, indices and choices: gather, scatter, embedding, sorting, comparisons. Machines
that add in another order break ties otherwise too, which is right."""

import numpy as np
import torch
import torch.nn.functional as F

from .op import op

aten = torch.ops.aten


@op(
    "embedding",
    lambda w, i: F.embedding(i, w),
    lambda g: ((g.x(50, g.size(16)), g.ints(50, 12, 5)), {}),
    tags="move",
    bugs="shifted padding",
)
def embedding(A, w, i):
    w, i = A.input(w), i.numpy()
    if A.bug == "padding":
        return A.where((i == 0)[..., None], 0.0, w[i])
    return w[np.minimum(i + (A.bug == "shifted"), 49)]


def counted(A, v, i, n, out=None):
    """Adds rows of v into n rows by index, in order, one rounding at a time."""
    acc = np.zeros((n, *v.shape[1:])) if out is None else out.v.copy()
    order = range(len(i)) if A.order != "reversed" else range(len(i) - 1, -1, -1)
    seen = set()
    with np.errstate(all="ignore"):
        for k in order:
            if A.bug == "overwrite" or (A.bug == "duplicates" and i[k] in seen):
                acc[i[k]] = v.v[k] if A.bug == "overwrite" else acc[i[k]]
                continue
            seen.add(int(i[k]))
            acc[i[k]] = A.round(acc[i[k]] + v.v[k], A.acc or A.work)
    return A.like(acc)


@op(
    "embedding_backward",
    lambda g, i: aten.embedding_dense_backward(g, i, 20, -1, False),
    lambda g: ((g.x(60, g.size(16)), g.ints(20, 60)), {}),
    tags="order acc",
    bugs="overwrite duplicates",
)
def embedding_backward(A, g, i):
    return counted(A, A.input(g), i.numpy(), 20)


@op(
    "index_add",
    lambda x, i, y: x.index_add(0, i, y),
    lambda g: ((g.x(20, g.size(16)), g.ints(20, 60), g.w(60, g.size(16))), {}),
    tags="order acc",
    bugs="overwrite shifted",
)
def index_add(A, x, i, y):
    i = (i.numpy() + (A.bug == "shifted")) % 20
    return counted(A, A.input(y), i, 20, A.input(x))


@op(
    "scatter_add",
    lambda x, i, y: x.scatter_add(0, i[:, None].expand_as(y), y),
    lambda g: ((g.x(20, g.size(16)), g.ints(20, 60), g.w(60, g.size(16))), {}),
    tags="order acc",
    bugs="overwrite",
)
def scatter_add(A, x, i, y):
    return counted(A, A.input(y), i.numpy(), 20, A.input(x))


@op(
    "embedding_bag_mean",
    lambda w, i: F.embedding_bag(i, w, mode="mean"),
    lambda g: ((g.x(50, g.size(16)), g.ints(50, 10, 7)), {}),
    tags="sum",
    bugs="drop_last count",
)
def embedding_bag_mean(A, w, i):
    rows = A.input(w)[i.numpy()]
    return A.sum(rows, 1, keep=False) / float(7 - (A.bug == "count"))


@op(
    "gather",
    lambda x, i: torch.gather(x, -1, i),
    lambda g: ((g.x(30, g.size(40)), g.ints(40, 30, 20)), {}),
    tags="move",
    bugs="shifted axis",
)
def gather(A, x, i):
    v, i = A.input(x).v, i.numpy()
    if A.bug == "axis":
        return A.like(np.take_along_axis(v, i % 30, 0)[:, :20])
    return A.like(np.take_along_axis(v, np.maximum(i - (A.bug == "shifted"), 0), -1))


@op(
    "index_select",
    lambda x, i: x.index_select(0, i),
    lambda g: ((g.x(40, g.size(20)), g.ints(40, 25)), {}),
    tags="move",
    bugs="shifted",
)
def index_select(A, x, i):
    return A.input(x)[(i.numpy() + (A.bug == "shifted")) % 40]


@op(
    "masked_fill",
    lambda x, m: x.masked_fill(m, -1e4),
    lambda g: ((g.x(30, g.size(40)), g.bools(30, g.size(40), share=0.2)), {}),
    tags="move",
    bugs="inverted",
)
def masked_fill(A, x, m):
    m = m.numpy() ^ (A.bug == "inverted")
    return A.where(m, -1e4, A.input(x))


@op(
    "contiguous_transpose",
    lambda x: x.transpose(0, 1).contiguous(),
    lambda g: ((g.x(g.size(30), g.size(40)),), {}),
    tags="move",
    bugs="stride",
)
def contiguous_transpose(A, x):
    x = A.input(x)
    return x.reshape(x.shape[1], x.shape[0]) if A.bug == "stride" else x.swap(0, 1)


@op(
    "cat_slice",
    lambda a, b: torch.cat([a[:, 1:], b[:, ::2]], 1),
    lambda g: ((g.x(20, g.size(20)), g.w(20, 30)), {}),
    tags="move",
    bugs="stride",
)
def cat_slice(A, a, b):
    a, b = A.input(a), A.input(b)
    return A.cat([a[:, 1:], b[:, :15] if A.bug == "stride" else b[:, ::2]], 1)


@op("roll", lambda x: torch.roll(x, 3, -1), lambda g: ((g.x(20, g.size(33)),), {}), tags="move", bugs="direction")
def roll(A, x):
    return A.like(np.roll(A.input(x).v, -3 if A.bug == "direction" else 3, -1))


# ---- choices ---------------------------------------------------------------------------


NO_NAN = ("normal", "wide", "cancel", "offset", "zeros", "large", "heavy", "small", "ties", "awkward")


def ordered(A, v, k, largest=True):
    """Indices of the k largest along the last axis; ties broken by the machine's order."""
    if A.order == "reversed":
        n = v.shape[-1]
        return n - 1 - np.argsort(-v[..., ::-1] if largest else v[..., ::-1], -1, kind="stable")[..., :k]
    return np.argsort(-v if largest else v, -1, kind="stable")[..., :k]


def rows(g):
    return (g.x(20, g.size(50)),), {}


@op("argmax", lambda x: x.argmax(-1), rows, tags="move", bugs="skip_last magnitude", profiles=NO_NAN)
def argmax(A, x):
    v = A.input(x).v
    v = np.abs(v) if A.bug == "magnitude" else v
    return ordered(A, v[..., :-1] if A.bug == "skip_last" else v, 1)[..., 0]


@op("topk", lambda x: tuple(torch.topk(x, 20)), rows, tags="move order", bugs="over16 smallest", profiles=NO_NAN)
def topk(A, x):
    v = A.input(x).v
    i = ordered(A, v, 20, A.bug != "smallest")
    values = np.take_along_axis(v, i, -1)
    if A.bug == "over16":
        i[..., 16:] = 0
        values[..., 16:] = 0
    return A.like(values), i


@op("sort", lambda x: tuple(torch.sort(x, -1)), rows, tags="move order", bugs="descending unsorted", profiles=NO_NAN)
def sort(A, x):
    v = A.input(x).v
    i = ordered(A, v, v.shape[-1], A.bug == "descending")
    if A.bug == "unsorted":
        i[..., -2:] = i[..., [-1, -2]]
    return A.like(np.take_along_axis(v, i, -1)), i


@op("max_indices", lambda x: tuple(torch.max(x, -1)), rows, tags="move", bugs="second", profiles=NO_NAN)
def max_indices(A, x):
    v = A.input(x).v
    i = ordered(A, v, 2)[..., int(A.bug == "second")][..., None]
    return A.like(np.take_along_axis(v, i, -1)[..., 0]), i[..., 0]


@op("compare_less", torch.lt, lambda g: ((g.x(30, 40), g.w(30, 40)), {}), tags="move", bugs="equal")
def compare_less(A, x, y):
    x, y = A.input(x).v, A.input(y).v
    return x <= y if A.bug == "equal" else x < y


@op("isfinite_any", lambda x: x.isfinite().all(-1), rows, tags="move", bugs="always")
def isfinite_all(A, x):
    finite = np.isfinite(A.input(x).v).all(-1)
    return np.ones_like(finite) if A.bug == "always" else finite


@op("round", torch.round, lambda g: ((g.x(30, g.size(40)),), {}), tags="move", bugs="away")
def round_(A, x):
    v = A.input(x).v
    with np.errstate(all="ignore"):
        return A.like(np.copysign(np.floor(np.abs(v) + 0.5), v) if A.bug == "away" else np.rint(v))


@op(
    "floor_divide",
    lambda x: torch.floor(x * 3.0),
    lambda g: ((g.x(30, g.size(40)),), {}),
    tags="",
    bugs="truncate",
    profiles=("normal", "offset", "heavy", "ties", "awkward"),
)
def floor_divide(A, x):
    y = (A.input(x) * 3.0).v
    return A.like(np.trunc(y) if A.bug == "truncate" else np.floor(y))


@op(
    "to_int",
    lambda x: x.to(torch.int32),
    lambda g: ((g.x(30, g.size(40)),), {}),
    tags="move",
    bugs="nearest",
    profiles=("normal", "offset", "heavy", "ties", "awkward", "cancel"),
)
def to_int(A, x):
    v = A.input(x).v
    return (np.rint(v) if A.bug == "nearest" else np.trunc(v)).astype(np.int32)
