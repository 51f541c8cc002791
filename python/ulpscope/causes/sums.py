# SPDX-License-Identifier: Apache-2.0
"""Mistakes in how an operator adds up and rounds to whole numbers: entries that overwrite each
other where they must be added, casts, every sum of a kernel cut short alike.
Each is (text, edits for `Lab.edited`). Neighbours: `inside` (other mistakes in one
operator), `lab` (runs them), `diagnose` (chooses).
"""

import torch

from ..executors.noise import Noise
from .inside import apart
from .neighbours import NAIVE

ADDING = {"index_add", "scatter_add", "index_put", "embedding_dense_backward", "_unsafe_index_put",
          "scatter_reduce", "_index_put_impl", "embedding_backward", "bincount"}  # fmt: skip
COMPARED = 1 << 16  # entries that are put one by one


# What a scan begins with.
SCANS = {"cumsum": 0.0, "cumprod": 1.0, "logcumsumexp": -torch.inf, "cummax": None, "cummin": None}
BLOCKS = (2, 4, 5, 8, 10, 16, 32, 64, 128, 256, 512, 1024)


def scanning(node):
    """A running sum and its like in the other direction, in blocks, without the current element."""
    if node.name not in SCANS or node.writes or not isinstance(node.value("dim"), int):
        return
    dim, neutral = node.value("dim"), SCANS[node.name]

    def backwards(func, args, kwargs):
        return _each(lambda t: t.flip(dim), func(args[0].flip(dim), *args[1:], **kwargs))

    def blocks(func, args, kwargs, size):
        return _each(lambda *t: torch.cat(t, dim), *(func(x, *args[1:], **kwargs) for x in args[0].split(size, dim)))

    def before(func, args, kwargs, first):
        out = func(*args, **kwargs)
        start = torch.full_like(out.narrow(dim, 0, 1), neutral) if first else out.narrow(dim, 0, 1)
        return torch.cat([start, out.narrow(dim, 0, out.shape[dim] - 1)], dim)

    yield f"wrong direction: {node.name} runs from the end (reversed)", backwards
    for size in BLOCKS:
        if size < node.shape[dim]:
            yield (f"wrong variant: {node.name} starts anew every {size} elements (block carry is missing)",
                   lambda func, args, kwargs, s=size: blocks(func, args, kwargs, s))  # fmt: skip
    for first in (True, False) if neutral is not None else ():
        yield (f"shifted by one: {node.name} leaves out the current element (exclusive)",
               lambda func, args, kwargs, f=first: before(func, args, kwargs, f))  # fmt: skip


def _each(change, *outs):
    """`change` of results, or of each of several."""
    return change(*outs) if isinstance(outs[0], torch.Tensor) else tuple(change(*some) for some in zip(*outs))


def sum_edits(lab):
    """(text, run) of all of them."""
    for node in lab.nodes():
        for make in (overwriting, casting, scanning):
            for text, edit in make(node):
                yield text, lambda e={node.place: edit}: lab.edited(e)
    yield from list(one_pass_runs(lab))[:1]
    yield from every_sum(lab)


# ---- entries that share a place ------------------------------------------------------


def overwriting(node):
    """Where several entries go to one place, one of them is left."""
    if node.name not in ADDING:
        return
    for keep, way in ((False, "the place is overwritten"), (True, "only one of them is added")):
        for last in (True, False):
            yield (f"dropped contribution: of duplicate indices only the {'last' if last else 'first'} "
                   f"counts ({way} by {node.name.strip('_')})", _putting(node.name, keep, last))  # fmt: skip


def _putting(name, keep, last):
    """`keep`: what was in the place stays as a summand."""
    def edit(func, args, kwargs):
        return PUT[name](args, keep, last) if name in PUT else _by_dim(args, keep, last, kwargs.get("alpha", 1))

    return edit


def _unique_last(index, last):
    """Positions of the last, or first, entry of each value."""
    index = index.reshape(-1)
    if index.numel() > COMPARED:
        raise LookupError("too many entries")
    held = {}
    for at, value in enumerate(index.tolist()):
        if last or value not in held:
            held[value] = at
    return torch.tensor(sorted(held.values()), dtype=torch.long)


def _rows(into, dim, index, source, keep, last):
    """index_add and its like: whole slices."""
    out = into.clone()
    at = _unique_last(index, last)
    part = source.index_select(dim, at)
    where = index.reshape(-1).index_select(0, at)
    if keep:
        part = part + out.index_select(dim, where)
    return out.index_copy_(dim, where, part.to(out.dtype))


def _by_dim(args, keep, last, alpha=1):
    """index_add(self, dim, index, source) or scatter_add of the same form."""
    into, dim, index, source = args[:4]
    source = source * alpha
    if index.dim() <= 1 and source.dim() != index.dim():
        return _rows(into, dim, index, source, keep, last)
    return _scattered(into, dim, index, source, keep, last)


def _scattered(into, dim, index, source, keep, last):
    """scatter_add: one place for each element."""
    if index.numel() > COMPARED:
        raise LookupError("too many entries")
    source = source[tuple(slice(0, n) for n in index.shape)]
    places = list(torch.meshgrid(*[torch.arange(n) for n in index.shape], indexing="ij"))
    places[dim] = index
    flat = torch.zeros(index.shape, dtype=torch.long)
    for place, size in zip(places, into.shape):
        flat = flat * size + place
    at = _unique_last(flat, last)
    out = into.clone().reshape(-1)
    where, part = flat.reshape(-1)[at], source.reshape(-1)[at].to(out.dtype)
    out[where] = out[where] + part if keep else part
    return out.reshape(into.shape)


def _put(args, keep, last):
    """index_put(self, indices, values, accumulate) with indices of the first axes."""
    into, indices, values = args[:3]
    if any(i is None for i in indices) or not (len(args) > 3 and args[3]):
        raise LookupError("another form")
    indices = torch.broadcast_tensors(*indices)
    rest, flat = into.shape[len(indices) :], torch.zeros_like(indices[0])
    for index, size in zip(indices, into.shape):
        flat = flat * size + torch.where(index < 0, index + size, index)
    source = values.expand(*flat.shape, *rest).reshape(-1, *rest)
    out = _rows(into.reshape(-1, *rest), 0, flat.reshape(-1), source, keep, last)
    return out.reshape(into.shape)


def _counted(args, keep, last):
    """bincount(self, weights, minlength)."""
    index, weights = args[:2]
    size = max(int(index.max()) + 1, args[2] if len(args) > 2 else 0)
    return _rows(weights.new_zeros(size), 0, index, weights, keep, last)


def _embedding(args, keep, last):
    """embedding_dense_backward(grad, indices, num_weights, padding, scale)."""
    grad, index, rows = args[:3]
    flat = grad.reshape(-1, grad.shape[-1])
    out = _rows(flat.new_zeros(rows, grad.shape[-1]), 0, index, flat, keep, last)
    if len(args) > 3 and args[3] >= 0:
        out[args[3]] = 0
    return out


PUT = {"index_put": _put, "_unsafe_index_put": _put, "_index_put_impl": _put,
       "embedding_dense_backward": _embedding, "bincount": _counted}  # fmt: skip


# ---- casts to whole numbers ----------------------------------------------------------


CASTS = (("rounded to nearest instead of truncated", torch.round),
         ("rounded down instead of truncated (floor)", torch.floor),
         ("rounded up instead of truncated (ceil)", torch.ceil))  # fmt: skip


def casting(node):
    """A cast from a float to whole numbers that rounds otherwise."""
    if node.name not in ("_to_copy", "to", "int", "long") or not node.args:
        return
    seen = node.args[0]
    if not getattr(seen, "floats", False) or node.floats:
        return
    for text, integer in CASTS:
        yield (f"the cast to whole numbers is {text}",
               lambda func, args, kwargs, i=integer: func(i(args[0]), *args[1:], **kwargs))  # fmt: skip


# ---- variance in one pass ------------------------------------------------------------

ONE_PASS = "one-pass variance, E[x^2] - E[x]^2: cancellation in float32"
VARIANCES = {"var", "std", "var_mean"}
ORDERS = 4


def one_pass_runs(lab):
    """(text, run): the call with every variance as the mean of the squares less the square of
    the mean, added in another order in each."""
    places = [n.place for n in lab.nodes() if n.name in VARIANCES]
    for seed in range(ORDERS) if places else ():
        yield ONE_PASS, lambda s=seed: lab.edited({p: _one_pass(s) for p in places})


def _one_pass(seed):
    def edit(func, args, kwargs):
        return apart(variance_of, func, args, kwargs)

    def variance_of(func, args, kwargs):
        x, name = args[0].float(), func._opname
        given = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
        dim, keepdim = given.get("dim"), given.get("keepdim", False)
        correction = given.get("correction", given.get("unbiased", 1))
        correction = 1 if correction is None else int(correction)
        dims = [d % x.dim() for d in ([dim] if isinstance(dim, int) else dim or range(x.dim()))]
        kept = [d for d in range(x.dim()) if d not in dims]
        flat = x.permute(*kept, *dims).reshape(*[x.shape[d] for d in kept], -1)
        n = flat.shape[-1]
        if seed:
            flat = flat[..., torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
        mean = flat.sum(-1) / n
        variance = ((flat * flat).sum(-1) / n - mean * mean).clamp(min=0) * (n / max(n - correction, 1))
        sizes = [1 if d in dims else s for d, s in enumerate(x.shape)]
        mean, variance = ((t.reshape(sizes) if keepdim else t).to(args[0].dtype) for t in (mean, variance))
        return variance.sqrt() if name == "std" else (variance, mean) if name == "var_mean" else variance

    return edit


def naive_runs(lab):
    """For each operator with a formula that cancels, (text, run) of some ways to round inside it."""
    for node in lab.nodes():
        for text, formula in NAIVE.get(node.name, ()) if not node.writes else ():
            yield [(text, lambda e={node.place: _rounded_otherwise(formula, seed)}: lab.edited(e))
                   for seed in range(ORDERS)]  # fmt: skip


def _rounded_otherwise(formula, seed):
    def edit(func, args, kwargs):
        def noisy(*given):
            with Noise(seed, apart=False):
                return formula(*given)

        return apart(noisy, args[0].float()).to(args[0].dtype)

    return edit


# ---- every sum alike -----------------------------------------------------------------


def every_sum(lab):
    """All reductions of a call without their last terms, or without a part in the middle."""
    from .inside import REDUCING, _hole, _reduced_axes, _times

    nodes = [n for n in lab.nodes() if n.name in REDUCING]
    leaves = [n for n in nodes if not any(m is not n and m.place[: len(n.place)] == n.place for m in nodes)]
    of = {n.place: [a for a in _reduced_axes(n, 0, n.args[0])] for n in leaves
          if n.args and hasattr(n.args[0], "shape")}  # fmt: skip
    sizes = {n.place: n.args[0].shape for n in leaves if n.place in of}
    of = {p: axes[0] for p, axes in of.items() if len(axes) == 1}
    if len(of) < 2:
        return
    top = max(sizes[p][a] for p, a in of.items())
    for t in sorted({1, top % 32, top % 16, top % 64, top // 2} - {0}):
        edits = {p: _times(0, a, -t, 0) for p, a in of.items() if sizes[p][a] > t}
        yield (f"dropped contribution: the last {t} of {top} in every sum is missing",
               lambda e=edits: lab.edited(e))  # fmt: skip
    for m, i in ((4, 1), (4, 2), (2, 0)):
        edits = {p: _hole(0, a, i * sizes[p][a] // m, (i + 1) * sizes[p][a] // m - i * sizes[p][a] // m)
                 for p, a in of.items() if sizes[p][a] >= m}  # fmt: skip
        yield (f"dropped contribution: a part of {top} in every sum is missing", lambda e=edits: lab.edited(e))
