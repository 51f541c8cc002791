# SPDX-License-Identifier: Apache-2.0
"""The operands of a pack: what `ulpscope judge` holds the outputs of one call against. Serves
`session.pack`. Format: docs/pack-format.md.

The judge needs of the replays no more than S and N: how strongly each element reacts to the
inputs, and what float32 loses there. They are put as they stand at each look of a check, so
that whoever judges by them takes the very same way.
"""

import math

import torch

from ..calls.indices import choice_fields, choice_of, name_of_one
from ..calls.replay import draws_random, promises_nothing
from ..calls.verdicts import clause
from ..calls.writes import updates
from ..executors.conventions import with_rounded_scalars
from ..executors.device import learn_writes
from ..executors.linear import is_sum_of_products, moved_by_slope, n_products
from ..executors.operands import Operands, Timing
from ..executors.orders import is_whole
from ..executors.reference import FAR_REPLAYS, Reference
from . import corners as _corners
from . import discrete
from .answers import REAL_PART

RANDOM = "draws random numbers, which takes a device that can be asked again"
JUDGED_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2,
                 torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz)  # fmt: skip
LOOKS = (1, 2, 4)  # replays after which a case looks: `upto` of its want
LOSS_WEIGHT = 2.0  # of a loss among replays, as a case weighs it
DELTA, ROUNDING = 2.0**-20, 2.0**-24
PLAIN = 2.0**60  # S above it may tell of an overflow


class Kept(Reference):
    """A reference that computes what float32 loses far away once for all outputs."""

    def __init__(self, call):
        super().__init__(call)
        self._far = {}

    def _pair(self, k, delta=0.0):
        if k < FAR_REPLAYS:
            return super()._pair(k, delta)
        key = k, id(self.call)  # of a call over lists each place has a reference and a call
        if key not in self._far:
            self._far[key] = super()._pair(k, delta)
        return self._far[key]


class Sums:
    """Squares of what replays of one output move and lose, and what they came to whenever a
    check looks."""

    def __init__(self, truth, yardstick):
        self.truth, self.yardstick = truth, yardstick
        self.s = torch.zeros_like(truth)
        self.n = torch.zeros_like(truth)
        self.count = 0
        self.seen = []  # (S, N) after each of LOOKS

    def add(self, wide, narrow):
        self.s = torch.hypot(self.s, (wide - self.truth) / DELTA)
        self.n = torch.hypot(self.n, (narrow.double() - wide) / ROUNDING)
        self.count += 1
        if self.count in LOOKS:
            self.seen.append(self.means())

    def means(self):
        """S and N where the truth is finite; N is NaN where a replay gave no number."""
        root, live = math.sqrt(self.count), self.truth.isfinite()
        s, n = self.s / root, self.n / root
        n = torch.where(n.isfinite(), n, torch.nan)
        return s.where(live, 0.0), n.where(live, 0.0)


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
    for k in range(LOOKS[-1] if out else 0):
        replay = operands.replay(k)
        for path, sums in out.items():
            sums.add(*_pair_of(replay, path, sums))
    return out


def last_losses(operands, path, sums):
    """[(how many, N)] after each half of a check's last appeal: what float32 loses further
    away, then what it loses where its steps round otherwise."""
    reference = operands.reference_of(path)
    first, narrow = operands.replay(0)
    out = []
    for losses in (reference.losses(path), reference.noises(path)):
        before = sums.count
        try:
            for lost in losses:
                if first[path].shape == lost.shape:
                    low = first[path] + LOSS_WEIGHT * lost
                    sums.add(first[path], torch.where(low.isfinite(), low, narrow[path].double()))
        except Exception:  # the operator does not exist there: nothing is learnt
            pass
        out.append((sums.count - before, sums.means()[1]))
    return out


def slope(operands, path, sums):
    """(S, how many products) of a sum of products, whose slopes a check asks before any
    replay; None for all others."""
    if not is_sum_of_products(operands.call):
        return None
    try:
        moved = moved_by_slope(operands.reference, path)
        if moved is None or moved.shape != sums.truth.shape:
            return None
        return (moved - sums.truth) / DELTA, n_products(operands.reference, path)
    except Exception:  # an argument that has no square
        return None


# ---- floats --------------------------------------------------------------------------


def _stored(x):
    """A sum as float32 where it holds all of it."""
    low = x.float()
    return x if bool((low.isinf() & x.isfinite()).any()) else low


def _matters(sums, *scales):
    """Whether S or N is anywhere above |R|: else the scale of an error is |R| alone."""
    size = sums.truth.abs()
    return any(bool((~(x <= size) | (x > PLAIN)).where(sums.truth.isfinite(), False).any())
               for x in scales)  # fmt: skip


def put_looks(operands, path, sums, same, put):
    """Puts S and N of every look of a check; what the manifest says of them."""
    store = (lambda x: x) if sums.yardstick.dtype == torch.float64 else _stored
    put_n = lambda name, n: put(name, store(n)) if (  # noqa: E731
        bool((n != 0).any()) if same else _matters(sums, n)) else None
    entry = {"replays": LOOKS[-1]}
    closed = slope(operands, path, sums)
    if closed is not None:
        entry["products"] = closed[1]
        if _matters(sums, closed[0]):
            put("slope", store(closed[0]))
    if _matters(sums, *(s for s, _ in sums.seen)):
        for taken, (s, _) in zip(LOOKS, sums.seen):
            put(f"s{taken}", store(s))
    for taken, (_, n) in zip(LOOKS, sums.seen):
        put_n(f"n{taken}", n)
    if not operands.reference.never_rounds():
        for name, (count, n) in zip(("far", "noise"), last_losses(operands, path, sums)):
            entry[name] = count
            put_n(f"n_{name}", n)
    return entry


def float_output(operands, path, sums, put):
    """Puts the operands of a float output; what the manifest says of it."""
    reference = operands.reference
    same = _same(sums.truth, sums.yardstick.double())
    put("reference", sums.yardstick if same else sums.truth)
    if not same:
        put("yardstick", sums.yardstick)
    never = reference.never_rounds()
    entry = {"never_rounds": never, "fan_in": operands.fan_in(path)}
    entry["natural"] = reference.largest_input
    if operands.is_another_function(path):
        entry["functions"] = True
    entry.update(put_looks(operands, path, sums, same, put))
    for i, flushed in enumerate(operands.flushed(path)):
        put(f"flushed{i + 1}", flushed)
    jumps = [] if never else reference.jumps.get(path, [])
    if jumps:
        put("jump_at", torch.cat([j.where for j in jumps]))
        put("jump_values", torch.cat([j.values.double() for j in jumps]))
    if discrete.is_rounding(operands.call):
        entry["rounding"] = True
    if is_whole(reference, path):
        entry["whole"] = True
    if _may_overflow(operands, sums):
        entry["overflows"] = True
    put_added(operands.reference_of(path), path, put)
    kinds = other_kinds(operands, path, sums.truth)
    if kinds is not None:
        put("kinds", kinds)
    return entry


def put_added(reference, path, put):
    """Puts the most that one accumulator loses in the sums inside."""
    try:
        most = reference.lost_by_order(path)
    except Exception:  # what does not run in steps
        return
    if most is not None:
        put("added", most)


def other_kinds(operands, path, truth):
    """What a device may give besides where the truth is NaN or Inf, as float32 does when its
    roundings fall otherwise: 1 for NaN, 2 for Inf, 4 for -Inf; None where nowhere more."""
    odd = ~truth.isfinite()
    if not bool(odd.any()):
        return None
    out = torch.zeros(truth.shape, dtype=torch.uint8)
    try:
        for other in operands.reference_of(path).rounded_otherwise(path):
            out |= other.isnan() * 1 | (other == torch.inf) * 2 | (other == -torch.inf) * 4
            out |= (truth.isnan() & other.isinf()) * 6  # there its sign is a matter of luck
    except Exception:  # the operator does not exist there: nothing is learnt
        pass
    out = torch.where(odd, out, 0).to(torch.uint8)
    return out if bool(out.any()) else None


def _may_overflow(operands, sums):
    """Whether float32 keeps no bit of an element because a step inside overflows."""
    off = (sums.yardstick.double() - sums.truth).abs()
    if not bool((sums.truth.isfinite() & ~(off < sums.truth.abs() / 8)).any()):
        return False
    try:
        return operands.reference.overflows
    except Exception:  # whatever a step raises
        return False


# ---- what is not continuous ----------------------------------------------------------


def corners(operands):
    """path -> (where a gradient hangs on a corner of its function, the lower side, the upper)."""
    call, reference = operands.call, operands.reference
    single = bool(name_of_one(call)) or not call.composite
    if single and reference.never_rounds():
        return {}
    out = {}
    for path, truth in reference.truth.items():
        if truth.is_floating_point() and _corners.is_gradient(call, path):
            sides = _corners.Sides(reference, path)
            where = sides.corners()
            if bool(where.any()):
                out[path] = where, sides.low, sides.high
    return out


def put_unpromised(operands, path, at_corners, like, put):
    """Puts what an output may hold besides where nothing is promised of it: elements that the
    integer type does not hold, updates of one place, both sides of corners."""
    held = discrete.not_held(operands.call, like)
    if held is not None and held.shape == like.shape and bool(held.any()):
        put("unpromised", held.to(torch.uint8))
        put("usual", discrete.conversions(operands.call, like))
    elif path in at_corners:
        where, low, high = at_corners[path]
        put("unpromised", where.to(torch.uint8))
        put("side_low", low.double())
        put("side_high", high.double())
    put_writes(updates(operands.call, like), put)


def put_writes(written, put):
    """Puts the updates that share a place with another."""
    if written is None or not written[2].numel():
        return
    places, values, rows = written
    twice = (torch.bincount(rows) > 1)[rows]
    if bool(twice.any()):
        put("write_at", places[twice].contiguous())
        put("writes", values[twice].contiguous())
        put("write_rows", rows[twice].contiguous())


def choice_entry(operands, path, put):
    """How an index output chooses; {} where it does not, or only one index is right."""
    choice = choice_of(operands.call, path)
    if choice is None or choice.arguments.get("stable"):
        return {}
    put("choice", choice.values)
    return {"choice": choice_fields(choice)}


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
    if promises_nothing(operands.call):
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
        more = {"exact": scale, **exact_output(operands, path, put)}
    like = operands.reference.truth[path].to(dtype)
    put_unpromised(operands, path, at_corners, like, put)
    return {**entry, **more}


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def outputs_of_call(call, tensors, prefix=""):
    """Fills `tensors` with the operands of a call, names behind `prefix`; entries of the
    manifest, and why the call cannot be judged ("" where it can)."""
    if draws_random(call):
        return [], RANDOM
    learn_writes(call)
    operands = Operands(call, Timing())
    operands.reference = Kept(call)
    try:
        operands.begin()
        if not promises_nothing(call) and operands.reference.is_random():
            return [], RANDOM
        sums, at_corners = float_sums(operands), corners(operands)
    except Exception as problem:  # whatever an operator raises
        return [], f"no float64 reference: {clause(problem)}"
    entries = []
    for path in operands.reference.truth:
        kept = {}
        try:
            entry = output_entry(operands, path, sums, at_corners, kept.__setitem__)
            names = {name: f"{prefix}{path}.{name}" for name in kept}
            entry["operands"] = names
            tensors.update({names[name]: t for name, t in kept.items()})
        except Exception as problem:
            entry = {"path": path, "unjudged": f"no reference: {clause(problem)}"}
        entries.append({**entry, "name": f"{call.sequence}/{path}"})
    return entries, ""


def rounded_outputs(call, tensors):
    """What outputs may be instead, where numbers among the arguments are rounded first, as
    eager kernels do: entries and the note of a verdict by them, or {}."""
    for note, other in with_rounded_scalars(call):  # of several dtypes, the first
        entries, reason = outputs_of_call(other, tensors, "rounded/")
        return {} if reason else {"rounded": {"note": note, "outputs": entries}}
    return {}
