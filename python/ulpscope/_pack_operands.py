# SPDX-License-Identifier: Apache-2.0
"""The operands of a pack: what `ulpscope judge` holds the outputs of one call against. Serves
`_pack`. Format: docs/pack-format.md.

The judge needs of the replays no more than S and N: how strongly each element reacts to the
inputs, and what float32 loses there. They are summed up here over as many replays as a
check asks for at most; the first looks of a check only save replays.
"""

import math
from itertools import chain

import torch

from . import _discrete
from ._device import is_uninitialised, learn_writes
from ._outputs import JUDGED_DTYPES, LOOKS, LOSS_WEIGHT, REAL_PART, Operands, Timing, clause
from ._reference import FAR_REPLAYS, Reference
from ._replay import draws_random
from ._ties import CUMULATIVE, OUT_OF_WINDOW, _each, choice_of, operator_of

RANDOM = "draws random numbers, which takes a device that can be asked again"
DELTA, ROUNDING = 2.0**-20, 2.0**-24


class Kept(Reference):
    """A reference that computes what float32 loses far away once for all outputs."""

    def __init__(self, call):
        super().__init__(call)
        self._far = {}

    def _pair(self, k, delta=0.0):
        if k < FAR_REPLAYS:
            return super()._pair(k, delta)
        if k not in self._far:
            self._far[k] = super()._pair(k, delta)
        return self._far[k]


class Sums:
    """Squares of what replays of one output move and lose."""

    def __init__(self, truth, yardstick):
        self.truth, self.yardstick = truth, yardstick
        self.s = torch.zeros_like(truth)
        self.n = torch.zeros_like(truth)
        self.count = 0
        self.exact = truth.dtype != yardstick.dtype and _same(truth, yardstick.double())

    def add(self, wide, narrow):
        self.s = torch.hypot(self.s, (wide - self.truth) / DELTA)
        self.n = torch.hypot(self.n, (narrow.double() - wide) / ROUNDING)
        self.exact = self.exact and _same(wide, narrow.double())
        self.count += 1

    def means(self):
        root = math.sqrt(self.count)
        return self.s / root, self.n / root


def _same(a, b):
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _pair_of(replay, path, sums):
    """Truth and yardstick of one output in a replay; where its shape depends on values, the
    unperturbed result stands in."""
    wide, narrow = replay
    if path in wide and wide[path].shape == sums.truth.shape == narrow[path].shape:
        return wide[path], narrow[path]
    return sums.truth, sums.yardstick


def float_sums(operands):
    """path -> Sums over the replays that a check asks for at most."""
    reference = operands.reference
    out = {}
    for path, truth in reference.truth.items():
        yardstick = reference.yardstick[path]
        if truth.is_floating_point():
            if truth.shape != yardstick.shape:
                truth = yardstick.double()
            out[path] = Sums(truth, yardstick)
            if yardstick.dtype == torch.float64:
                out[path].exact = True  # as the judge: float64 has no yardstick of its own
    for k in range(LOOKS[-1] if out else 0):
        replay = operands.replay(k)
        for path, sums in out.items():
            sums.add(*_pair_of(replay, path, sums))
    return out


def sensitivity(operands, path, sums):
    """S and N of an inexact output: those of a check's appeal or of its last appeal, where
    what float32 loses further away counts as well, whichever is larger."""
    s, n = sums.means()
    reference = operands.reference
    first, narrow = operands.replay(0)
    try:
        for lost in chain(reference.losses(path), reference.noises(path)):
            if first[path].shape == lost.shape:
                low = first[path] + LOSS_WEIGHT * lost
                sums.add(first[path], torch.where(low.isfinite(), low, narrow[path].double()))
    except Exception:  # the operator does not exist there: nothing is learnt
        pass
    last_s, last_n = sums.means()
    return torch.maximum(s, last_s), torch.maximum(n, last_n)


def _stored(x):
    """A sum as float32 where it holds all of it."""
    low = x.float()
    return x if bool((low.isinf() & x.isfinite()).any()) else low


def float_output(operands, path, sums, put):
    """Puts the operands of a float output; what the manifest says of it."""
    reference = operands.reference
    wide = sums.yardstick.dtype == torch.float64
    exact = sums.exact and not wide
    put("reference", sums.yardstick if exact else sums.truth)
    entry = {"exact": sums.exact}
    if not exact:
        put("yardstick", sums.yardstick)
        s, n = sums.means() if sums.exact else sensitivity(operands, path, sums)
        put("s", s if wide else _stored(s))
        if not sums.exact:
            put("n", _stored(n))
    entry["fan_in"] = operands.fan_in(path)
    entry["movement"] = sums.exact and reference.never_rounds()
    for flushed in operands.flushed(path)[:1]:
        put("flushed", flushed)
    jumps = reference.jumps.get(path, [])
    if jumps:
        put("jump_at", torch.cat([j.where for j in jumps]))
        put("jump_values", torch.cat([j.values.double() for j in jumps]))
    if _discrete.is_rounding(operands.call):
        entry["rounding"] = True
    return entry


# ---- what is not continuous ----------------------------------------------------------


def corners(operands):
    """path -> where a gradient hangs on a corner of its function, over probes that all
    outputs share."""
    call, reference = operands.call, operands.reference
    floats = {p: t for p, t in reference.truth.items()
              if t.is_floating_point() and _discrete._is_gradient(call, p)}  # fmt: skip
    low, high = dict(floats), dict(floats)
    for k in range(_discrete.PROBES if floats else 0):
        try:
            moved = reference.wide(_discrete._jittered(reference, k))
        except Exception:  # the operator does not exist there: nothing is learnt
            continue
        for path, truth in floats.items():
            if path in moved and moved[path].shape == truth.shape:
                low[path] = torch.fmin(low[path], moved[path])
                high[path] = torch.fmax(high[path], moved[path])
    return {
        path: high[path] - low[path]
        > _discrete.JUMP * torch.maximum(low[path].abs(), high[path].abs())
        for path in floats
    }


def unpromised(operands, path, like):
    """Which elements of an output the operator does not promise, whatever a device gives
    there, and why; None for none."""
    found = _discrete._out_of_range(operands, path, like, None)
    if found is not None:
        return found
    name, arguments = operator_of(operands.call)
    if name not in _discrete.WRITES or arguments.get("accumulate") or arguments.get("reduce"):
        return None
    try:
        places, _ = _discrete._updates(name, arguments, like)
    except (RuntimeError, IndexError, TypeError, KeyError):
        return None
    counts = torch.bincount(places, minlength=like.numel())
    return (counts > 1).view(like.shape), "several updates write one element, in no promised order"


def put_unpromised(operands, path, at_corners, like, put):
    """Puts the mask of elements that nothing is promised of; {} or why."""
    found = unpromised(operands, path, like)
    if found is None and path in at_corners:
        found = at_corners[path], "the function has a corner there, and any subgradient is one"
    if found is None or found[0].shape != like.shape or not bool(found[0].any()):
        return {}
    put("unpromised", found[0].to(torch.uint8))
    return {"why_unpromised": found[1]}


def window_of(choice):
    """[kernel, stride, padding, dilation] per pooled dimension; kernel 0: adaptive, -1: the
    windows hang on samples."""
    n = 3 if "3d" in choice.name else 2
    if choice.name.startswith(OUT_OF_WINDOW):
        return [[-1, 0, 0, 0]] * n
    if choice.name.startswith("adaptive"):
        return [[0, 0, 0, 0]] * n
    kernel = [_each(choice, "kernel_size", d, 1) for d in range(n)]
    return [[kernel[d], _each(choice, "stride", d, kernel[d]), _each(choice, "padding", d, 0),
             _each(choice, "dilation", d, 1)] for d in range(n)]  # fmt: skip


def choice_entry(operands, path, put):
    """How an index output chooses; {} where it does not, or only one index is right."""
    choice = choice_of(operands.call, path)
    if choice is None or choice.name == "mode" or choice.arguments.get("stable"):
        return {}
    put("choice", choice.values)
    dim = choice.dim
    if dim is not None and dim < 0:
        dim += choice.values.dim()
    pooled = "max_pool" in choice.name
    cumulative = choice.name in CUMULATIVE
    once = not (pooled or cumulative or choice.name.startswith("_embedding"))
    return {"choice": {"dim": dim, "once": once, "cumulative": cumulative, "slack": choice.slack,
                       "window": window_of(choice) if pooled else []}}  # fmt: skip


def exact_output(operands, path, put):
    """Puts what integers, booleans and unknown dtypes must equal."""
    native = operands.reference.native() or operands.reference.yardstick
    put("reference", native[path])
    return choice_entry(operands, path, put)


def dtypes_of(operands, path):
    """The dtypes that a device may give, the captured one first; [] for any."""
    call = operands.call
    views = call.views if path in call.views else call.results
    native = operands.reference.native() or {}
    found = []
    if path in views:
        found.append(REAL_PART.get(views[path].dtype, views[path].dtype))
    if path in native and native[path].dtype not in found:
        found.append(native[path].dtype)
    return found


def output_entry(operands, path, sums, at_corners, put):
    """Puts the operands of one output; its entry in the manifest."""
    dtypes = dtypes_of(operands, path)
    entry = {"path": path, "dtypes": [name_of(d) for d in dtypes],
             "shape": list(operands.reference.truth[path].shape)}  # fmt: skip
    dtype = dtypes[0] if dtypes else operands.reference.yardstick[path].dtype
    if is_uninitialised(operands.call.op):
        put("reference", torch.zeros(entry["shape"], dtype=dtype))
        return {**entry, "free": True}
    scale = operands.reference.quantizes and path.endswith(".scale")
    if path in sums and dtype in JUDGED_DTYPES and not scale:
        entry["pairs"] = path in operands.reference.pairs
        if dtype.itemsize < 4:
            native = (operands.reference.native() or {}).get(path)
            if native is not None and native.dtype == dtype:
                put("native", native)
        more = float_output(operands, path, sums[path], put)
    else:
        more = exact_output(operands, path, put)
    like = operands.reference.truth[path].to(dtype)
    return {**entry, **more, **put_unpromised(operands, path, at_corners, like, put)}


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def outputs_of_call(call, tensors):
    """Fills `tensors` with the operands of a call; entries of the manifest, and why the call
    cannot be judged ("" where it can)."""
    if draws_random(call):
        return [], RANDOM
    learn_writes(call)
    operands = Operands(call, Timing())
    operands.reference = Kept(call)
    try:
        operands.begin()
        if not is_uninitialised(call.op) and operands.reference.is_random():
            return [], RANDOM
        sums, at_corners = float_sums(operands), corners(operands)
    except Exception as problem:  # whatever an operator raises
        return [], f"no float64 reference: {clause(problem)}"
    entries = []
    for path in operands.reference.truth:
        kept = {}
        try:
            entry = output_entry(operands, path, sums, at_corners, kept.__setitem__)
            entry["operands"] = {name: f"{path}.{name}" for name in kept}
            tensors.update({f"{path}.{name}": t for name, t in kept.items()})
        except Exception as problem:
            entry = {"path": path, "unjudged": f"no reference: {clause(problem)}"}
        entries.append(entry)
    return entries, ""
