# SPDX-License-Identifier: Apache-2.0
"""What the places of a result tell: a shape that is short, values in another order, a result
that slid along two axes, elements that are all of one content wherever they lie. Runs
nothing. Neighbours: `pattern` (runs, tails and tiles), `diagnose` (chooses).
"""

import torch

from .pattern import same


def of_shape(device, truth):
    """A clause on a result of another shape than the truth's."""
    a, b = tuple(device.shape), tuple(truth.shape)
    if sorted(a) == sorted(b) and a != b:
        return "wrong stride: the result is transposed (its sizes are in another order)"
    if len(a) != len(b):
        return f"wrong shape: {len(a)} dimensions instead of {len(b)}"
    axes = [i for i in range(len(a)) if a[i] != b[i]]
    if len(axes) != 1:
        return f"wrong shape: sizes {list(a)} instead of {list(b)}"
    axis, = axes
    have, want = a[axis], b[axis]
    if have > want:
        return f"wrong size: {have - want} elements too many along axis {axis}"
    for first, where in ((0, "last"), (want - have, "first")):
        if bool(same(device.double(), truth.narrow(axis, first, have).double()).all()):
            return (f"truncated: the {where} {want - have} of {want} elements along axis {axis} are missing "
                    "(dropped contribution)")  # fmt: skip
    return f"wrong size: {want - have} of {want} elements along axis {axis} are missing"


def uniform(p):
    """All elements hold one value although they must not."""
    d, t = p.device.flatten(), p.truth.to(p.device.dtype).flatten()
    if p.n < 4 or (d.dtype.is_floating_point and p.n_bad < p.n // 4) or not bool(same(d, d[:1]).all()) or bool(same(t, t[:1]).all()):
        return ""
    if p.device.dtype == torch.bool:
        return f"the result is always {bool(d[0])} (a constant, whatever the input)"
    value = float(d[0])
    if value == 0 or value != value:
        return ""  # said better elsewhere
    return f"the result is the constant {value:.6g} everywhere"


def reordered(p):
    """Right values along an axis, in another order."""
    if not p.device.dim() or p.n_bad < 3:
        return ""
    d, t = p.device, p.truth.to(p.device.dtype)
    for axis in range(p.device.dim() - 1, -1, -1):
        if p.device.shape[axis] < 3:
            continue
        ours, right = (x.to(torch.int32 if x.dtype == torch.bool else x.dtype) for x in (d, t))
        if right.dtype == torch.int32 and d.dtype == torch.bool:
            return ""
        touched = p.bad.any(axis, keepdim=True).expand_as(p.bad)
        ours, right = (x.movedim(axis, -1)[touched.movedim(axis, -1)].reshape(-1, x.shape[axis])
                       for x in (ours, right))  # fmt: skip
        ours, right = ours.sort(-1)[0], right.sort(-1)[0]
        if float(same(ours, right).double().mean()) < 0.98:
            continue
        distinct = float((right.diff() != 0).double().mean())
        if distinct > 0.5:
            return (f"elements are exchanged among each other along axis {axis}: the right values in "
                    "another order (unsorted, or a wrong index)")  # fmt: skip
    return _permuted(d, t) if d.is_floating_point() and d.dim() > 1 else ""


def _permuted(d, t):
    """Right values, each of which lies in another place of several axes."""
    ours, right = d.reshape(-1).sort()[0], t.reshape(-1).sort()[0]
    distinct = float((right.diff() != 0).double().mean()) if right.numel() > 8 else 0.0
    if distinct > 0.5 and float(same(ours, right).double().mean()) >= 0.98:
        return "the right values in another order: axes are exchanged or strides are wrong (permuted)"
    return ""


def slid(p):
    """The result moved against the truth, whatever came in at the border."""
    rank = p.device.dim()
    if not rank or p.n_bad < 4:
        return ""
    moves = [{a: s} for a in range(rank) for s in (1, -1, 2, -2)]
    moves += [{a: s, b: r} for a in range(rank) for b in range(a + 1, rank) for s in (1, -1) for r in (1, -1)]
    for move in moves:
        if all(p.device.shape[a] > 3 * abs(s) for a, s in move.items()) and _overlaps(p, move):
            where = " and ".join(f"by {abs(s)} along axis {a}" for a, s in move.items())
            return f"shifted {where} (moved against the border or padding, wrong index)"
    return ""


def _overlaps(p, move):
    """Whether device[i + by] is truth[i] where both are there, and was not without."""
    d, t, bad = p.device, p.truth.to(p.device.dtype), p.bad
    own = t  # what belongs where the device's value lies
    for axis, by in move.items():
        n = d.shape[axis] - abs(by)
        d, bad, own = (x.narrow(axis, max(by, 0), n) for x in (d, bad, own))
        t = t.narrow(axis, max(-by, 0), n)
    step = max(p.n // 256, 1)
    a, b = d.reshape(-1)[::step].double(), t.reshape(-1)[::step].double()
    if float((((a - b).abs() <= 2.0**-6 * b.abs()) | same(a, b)).double().mean()) < 0.8:
        return False
    d, t, own = d.double(), t.double(), own.double()
    if not float((d - t)[bad].abs().nan_to_num().median()) <= float((d - own)[bad].abs().nan_to_num(torch.inf).median()) / 8:
        return False  # so near its own place that the neighbour's value says nothing
    if int(bad.sum()) < 4 or float(bad.double().mean()) < 0.2 or _flat(d.double()):
        return False
    near = ((d - t).abs() <= 2.0**-6 * t.abs()) | same(d, t)
    told = float(near[bad].double().mean())
    return told >= 0.97 and float(near.double().mean()) >= 0.97


def _flat(d):
    """Whether most elements are so alike that no move would show."""
    middle = d[d.isfinite()].median() if bool(d.isfinite().any()) else 0.0
    return float(((d - middle).abs() <= 2.0**-5 * abs(middle)).double().mean()) > 0.5


def content(p):
    """All that is off holds one thing wherever it lies."""
    if p.n_bad < 4 or p.n_bad > 0.95 * p.n:
        return ""
    kind = p.holds(p.bad)
    if kind not in ("zero", "stale", "NaN") and not kind.startswith("constant"):
        return ""
    if kind == "zero" and bool((p.truth[p.bad].double().abs() < 2.0**-14).all()):
        return ""  # flushed rather than lost
    words = {"zero": "zero: dropped contribution, not written", "stale": "stale: they were not written",
             "NaN": "NaN: spurious NaN"}.get(kind, f"{kind}: not computed")  # fmt: skip
    return f"{p.n_bad:,} of {p.n:,} elements are {words}"


def padded(p, indices):
    """Zeros where an index has one value. `indices`: (name, whole numbers) that the call reads."""
    if p.n_bad < 4 or not bool((p.device[p.bad] == 0).all()):
        return ""
    for name, index in indices:
        k = index.dim()
        if not 0 < k <= p.bad.dim() or tuple(index.shape) != tuple(p.bad.shape[:k]):
            continue
        hit = p.bad.reshape(*index.shape, -1)
        hit = hit.double().mean(-1) > 0.5
        values = index[hit].unique()
        if values.numel() == 1 and bool((hit == (index == values[0])).all()):
            return (f"the rows whose {name} is {int(values[0])} are zero: taken for padding "
                    "(dropped contribution)")  # fmt: skip
    return ""
