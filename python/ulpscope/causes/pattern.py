# SPDX-License-Identifier: Apache-2.0
"""What a result alone tells of its mistake: which elements are off, what they hold, and
whether the whole is the truth moved, scaled, clamped or exchanged. Runs nothing.
Neighbours: `edits`, `emulate` (which run the call again), `diagnose` (chooses).
"""


import torch

from ..executors.formats import FORMATS, OWN_FORMAT

LIMITS = {65504.0: "float16", 448.0: "float8_e4m3fn", 240.0: "float8_e4m3fnuz", 57344.0: "float8_e5m2",
          127.0: "int8", 128.0: "int8", 255.0: "uint8", 32767.0: "int16", 32768.0: "int16",
          2147483647.0: "int32", 6.0: "fp4", 7.0: "int4"}  # fmt: skip
BIT_VIEWS = {torch.float32: torch.int32, torch.float16: torch.int16,
             torch.bfloat16: torch.int16, torch.float64: torch.int64}  # fmt: skip
FEW = 64  # so few elements are looked at one by one


class Picture:
    """One output: what the device gave, what is right, what it held before, what is off."""

    def __init__(self, device, truth, yardstick, before=None, inputs=None, finely=False):
        self.device, self.truth, self.yardstick = device, truth, yardstick
        self.inputs = inputs or {}  # name -> tensor of this shape and dtype
        self.before = before if before is not None and before.shape == device.shape else None
        self.bad = (off if finely else far_off)(device, truth, yardstick)
        self.n, self.n_bad = device.numel(), int(self.bad.sum())

    def finely(self):
        """The same with all that is off by more than roundings, where that is little."""
        return Picture(self.device, self.truth, self.yardstick, self.before, self.inputs, True)

    def gross(self):
        """Whether what is off is off by a good part of its size, in some elements."""
        got, want = self.device[self.bad].double(), self.truth[self.bad].double()
        left = (got - want).abs().nan_to_num(nan=torch.inf)
        return self.n_bad >= 4 and float(left.median()) > 2.0**-4 * float(want.abs().median())

    def noisy(self):
        """Whether what is not far off is off as well, beyond what float32 does."""
        if not self.device.is_floating_point():
            return False
        bits = FORMATS[OWN_FORMAT.get(self.device.dtype, "float32")][0]
        d, t, y = (x.double() for x in (self.device, self.truth, self.yardstick))
        rest = ~self.bad & d.isfinite() & t.isfinite()
        if bits < 24:
            right = same(d, t.to(self.device.dtype).double())
            return float((~right & rest).double().sum()) > 0.06 * max(int(rest.sum()), 1)
        room = 2.0 ** (1 - bits) * t.abs() + 8 * (y - t).abs()
        over = ((d - t).abs() > room + room[rest].median() if bool(rest.any()) else rest) & rest
        return float(over.double().sum()) > 0.02 * max(int(rest.sum()), 1)

    def holds(self, mask):
        """What the device left in some elements: a clause, "" for nothing known."""
        got, want = self.device[mask], self.truth[mask]
        if bool((got == 0).all()):
            return "zero"
        if self.before is not None and bool(same(self.before[mask], got).all()):
            return "stale"
        if got.is_floating_point() and bool(got.isnan().all()) and not bool(want.isnan().any()):
            return "NaN"
        if got.dtype != torch.bool and got.numel() > 1 and bool((got == got.flatten()[0]).all()):
            return f"constant {float(got.flatten()[0]):.6g}"
        return ""


def same(a, b):
    return (a == b) | ((a != a) & (b != b))


def far_off(device, truth, yardstick):
    """Elements that are nowhere near what float32 gives."""
    if not device.is_floating_point():
        return device != truth
    bits = FORMATS[OWN_FORMAT.get(device.dtype, "float32")][0]
    wide, want = device.double(), yardstick.double()
    right = truth.to(device.dtype).double()  # Inf where the dtype ends below the truth
    want = want.where(want.isfinite(), right)
    finite = want[want.isfinite()]
    typical = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    slack = 2.0 ** ((6 if bits > 11 else 3) - bits) * torch.clamp(want.abs(), min=typical * 2.0**-4)
    near = torch.minimum((wide - want).abs(), (wide - truth.double()).abs()) <= slack
    return ~(near | same(wide, want) | same(wide, right))


def off(device, truth, yardstick):
    """Elements that are further off than float32 and one rounding more may take them."""
    if not device.is_floating_point():
        return device != truth
    bits = FORMATS[OWN_FORMAT.get(device.dtype, "float32")][0]
    d, t, y = device.double(), truth.double(), yardstick.double()
    noise = (y - t).abs().nan_to_num(nan=0.0, posinf=0.0)
    room = 2.0 ** (1.1 - bits) * torch.maximum(t.abs(), d.abs()) + 8 * noise + 4 * noise.median()
    return ~(((d - t).abs() <= room) | same(d, y) | same(d, t.to(device.dtype).double()))


# ---- some elements -------------------------------------------------------------------


def damage(p, certain=True):
    """Names damage that leaves most elements alone, or replaces all of them by nothing.
    With `certain` only where the content tells what happened."""
    if p.n_bad == 0:
        return ""
    if certain:
        text = lost(p) or _exchanged(p)
        if text:
            return text
    return _flat_tail(p, certain) or _flat_run(p, certain) or _region(p, certain) or (_single(p) if certain else "")


LOST = "the in-place result was lost: not written, previous contents are stale"


def lost(p):
    """The whole result is not there."""
    if p.before is not None and p.n_bad and torch.equal(p.before, p.device):
        return LOST
    for name, tensor in p.inputs.items():
        if p.n > 1 and bool(same(tensor, p.device).all()):
            return f"the result is {name} unchanged: it was lost, not written, or the rest of the formula is missing"
    if p.n > 1 and bool((p.device == 0).all()):
        return "the result is all zeros: nothing was written"
    if p.n > 1 and p.n_bad > 0.9 * p.n and p.device.is_floating_point() and bool(
        p.device.isnan().all()
    ):
        return "the result is all NaN: spurious NaN"
    return ""


def _exchanged(p):
    """Two elements in each other's place."""
    if p.n_bad != 2:
        return ""
    where = p.bad.flatten().nonzero().flatten()
    got, want = p.device.flatten()[where].double(), p.truth.flatten()[where].double()
    if _close(got[0], want[1]) and _close(got[1], want[0]):
        a, b = (int(i) for i in where)
        return f"elements {a} and {b} change places (exchanged)"
    return ""


def exchanged(p):
    """Some elements in each other's places."""
    if not 3 <= p.n_bad <= FEW:
        return ""
    where = p.bad.flatten().nonzero().flatten()
    got, want = p.device.flatten()[where].double(), p.truth.flatten()[where].double()
    if float((got - want).abs().median()) < 2.0**-3 * float(want.abs().median()):
        return ""
    order = got.sort()[0], want.sort()[0]
    if bool(torch.isclose(*order, rtol=2.0**-7, atol=0.0).all()):
        return f"{p.n_bad} elements are exchanged among each other (wrong order or index)"
    return ""


def _close(a, b):
    a, b = float(a), float(b)
    return abs(a - b) <= 2.0**-6 * max(abs(a), abs(b))


GARBAGE = "garbage (not written or not computed)"
WORDS = {"zero": "zero: the tail was not written", "stale": "stale: they were not written",
         "NaN": "NaN: spurious NaN, not written", "": GARBAGE}  # fmt: skip


def _words(kind):
    if kind.startswith("constant"):
        return f"{kind}: they were not written"
    return WORDS[kind]


def _flat_tail(p, certain):
    """All that is off lies at the end of memory, and that end is of one kind."""
    bad = p.bad.flatten()
    first = int(bad.nonzero()[0])
    size = p.n - first
    if first == 0 or size > p.n // 2:
        return ""
    mask = torch.zeros_like(bad)
    mask[first:] = True
    kind = p.holds(mask.reshape(p.bad.shape))
    whole = _axis_of(p, size)
    more = 0 if kind else _copied(p.device.flatten(), first, size)
    if more:
        kind, size, first = "copied", more, p.n - more
    if not kind and (certain or size < 4 or not p.gross() or float(bad[first:].double().mean()) < 0.9):
        return ""
    if whole:
        return ""  # said better by the axis
    if size == 1:
        return {"zero": "the last element is zero: the tail was not written",
                "copied": "the last element repeats the one before: it is stale, not written",
                "stale": "the last element was not written: it is stale"}.get(kind, "")  # fmt: skip
    if kind == "copied":
        return f"the last {size:,} of {p.n:,} elements repeat those before: stale tail"
    return f"the last {size:,} of {p.n:,} elements are {_words(kind)}"


def _flat_run(p, certain):
    """All that is off lies together in the middle of memory, and is of one kind."""
    where = p.bad.flatten().nonzero().flatten()
    first, last = int(where[0]), int(where[-1])
    size = last - first + 1
    if not certain or size < 4 or size > p.n // 2 or last == p.n - 1 or p.n_bad < size // 2:
        return ""
    mask = torch.zeros(p.n, dtype=torch.bool)
    mask[first : last + 1] = True
    kind = p.holds(mask.reshape(p.bad.shape))
    if not kind or _whole_slices(p, first, size):
        return ""
    words = _words(kind).replace("the tail was not written", "a tile that was not written")
    return f"the elements {first} to {last} of {p.n:,} in memory are {words}"


def _whole_slices(p, first, size):
    inner = p.n // max(p.device.shape[0], 1) if p.device.dim() else 1
    return p.device.dim() > 1 and first % inner == 0 and size % inner == 0


def _axis_of(p, size):
    """Whether the last `size` elements are whole slices of an axis of several."""
    inner = 1
    for n in reversed(p.device.shape):
        inner *= n
    return p.device.dim() > 1 and size % (inner // p.device.shape[0]) == 0 and size < inner


def _copied(flat, first, size):
    """How many elements at the end hold what lies before them, or at the start: 0 for none,
    or so few that it may be by chance."""
    bits = FORMATS[OWN_FORMAT.get(flat.dtype, "float32")][0]
    n = flat.numel()
    for k in range(size, min(size + 8, n // 2) + 1):
        tail = flat[n - k :]
        if int(tail.unique().numel()) * bits >= 22 and any(
                bool(same(tail, part).all()) for part in (flat[n - 2 * k : n - k], flat[:k])):  # fmt: skip
            return k
    return 0


def _region(p, certain):
    """What is off fills slices along one axis, or a tile at the end of two."""
    found = sorted(_hit_slices(p), key=lambda f: f[0])
    for _, axis, hit, mask in found:
        kind = p.holds(mask) or ("copied" if _repeats(p, axis, hit) else "")
        if kind:
            return _slices(axis, hit, kind, p)
    if not found:
        return ""
    _, axis, hit, mask = found[0]
    dense = float(p.bad[mask].double().mean()) if p.gross() else 0.0
    return _tile(p) or ("" if certain or dense < 0.9 else _slices(axis, hit, "", p))


def _hit_slices(p):
    """(elements, axis, hit, mask) by axis: slices with something off, in a pattern."""
    for axis in range(p.device.dim()):
        others = [a for a in range(p.device.dim()) if a != axis]
        hit = p.bad.any(dim=others) if others else p.bad
        n, n_hit = hit.numel(), int(hit.sum())
        if n < 2 or n_hit > n // 2 or n_hit == n:
            continue
        where = hit.nonzero().flatten()
        steps = where[1:] - where[:-1]
        if n_hit > 2 and int(steps.min()) != int(steps.max()):
            continue  # no pattern
        mask = hit.reshape([n if a == axis else 1 for a in range(p.device.dim())]).expand_as(p.bad)
        yield int(mask.sum()), axis, hit, mask


def _repeats(p, axis, hit):
    """Whether the slices that are off hold what other slices hold."""
    where = hit.nonzero().flatten()
    size = int(where.numel())
    first = int(where[0])
    if not bool(torch.equal(where, torch.arange(first, first + size))):
        return False
    got, n = p.device.narrow(axis, first, size), p.device.shape[axis]
    if int(got.unique().numel()) < 2:
        return False
    for start in (first - size, first + size, 0, n - size):
        if 0 <= start and start + size <= n and abs(start - first) >= size:
            if bool(same(got, p.device.narrow(axis, start, size)).all()):
                return True
    return False


def _slices(axis, hit, kind, p):
    where = hit.nonzero().flatten()
    n, size, first, last = hit.numel(), where.numel(), int(where[0]), int(where[-1])
    run = last - first + 1 == size
    flat = "" if p.device.dim() > 1 else "elements "
    along = f"along axis {axis}" if p.device.dim() > 1 else ""
    if run and last == n - 1:
        name = f"the last {size} of {n} {flat}{along}".strip()
    elif run and first == 0:
        name = f"the first {size} of {n} {flat}{along}".strip()
    elif run:
        name = f"{flat}{first} to {last} of {n} {along}".strip()
    else:
        step = int((where[1:] - where[:-1]).min())
        name = f"{size} of {n} {flat}{along} (every {step}th at most)".strip()
    if kind == "copied":
        return f"{name} repeat their neighbours: stale or wrong stride"
    words = _words(kind)
    if not (run and last == n - 1):
        words = words.replace("the tail was not written", "dropped contribution, not written")
    return f"{name} are {words}"


def _tile(p):
    """A corner tile of the last two axes."""
    if p.device.dim() < 2:
        return ""
    spans = []
    for axis in (-2, -1):
        others = [a for a in range(p.device.dim()) if a != axis % p.device.dim()]
        hit = p.bad.any(dim=others) if others else p.bad
        where = hit.nonzero().flatten()
        spans.append((int(where[0]), int(where[-1]) + 1))
    (r0, r1), (c0, c1) = spans
    if r1 - r0 == p.device.shape[-2] and c1 - c0 == p.device.shape[-1]:
        return ""
    mask = torch.zeros_like(p.bad)
    mask[..., r0:r1, c0:c1] = True
    kind = p.holds(mask)
    if not kind or int(mask.sum()) == 1:
        return ""
    last = " last" if (r1, c1) == tuple(p.device.shape[-2:]) else ""
    return (f"the{last} tile (rows {r0} to {r1 - 1}, columns {c0} to {c1 - 1}) is "
            + _words(kind).replace("they were", "it was"))  # fmt: skip


def _single(p):
    if p.n_bad != 1 or p.n < 8 or p.noisy() or _like_others(p):
        return ""
    got, want = p.device[p.bad][0], p.truth[p.bad][0]
    return _one_element(got, want)


def _like_others(p):
    """Whether results of about the size of the one that is off are off as well, if less."""
    if p.n < 4 * FEW or not p.device.is_floating_point():
        return False
    d, t = p.device.double().flatten(), p.truth.double().flatten()
    at = p.bad.flatten().nonzero()[0, 0]
    near = (t.abs() - t[at].abs()).abs().nan_to_num(torch.inf).argsort()[1 : FEW // 2]
    ulps = (d - t)[near].abs() / (t[near].abs() * 2.0 ** -FORMATS[OWN_FORMAT.get(p.device.dtype, "float32")][0]).clamp(min=1e-300)
    return float(ulps.median()) > 4


def _one_element(got, want):
    """What happened to a single element: zeroed, or one bit of it flipped."""
    if float(got) == 0 and got.dtype in OWN_FORMAT and abs(float(want)) < 2.0 ** FORMATS[OWN_FORMAT[got.dtype]][1]:
        return "subnormals flushed to zero"
    if float(got) == 0:
        return "one element is zero"
    if got.dtype.is_floating_point and (got.isnan() or want.isnan()):
        return "one element is NaN: spurious NaN" if got.isnan() else "one NaN is swallowed"
    if got.dtype.is_floating_point and got.isinf():
        return "one element is Inf: spurious Inf"
    if float(got) == -float(want):
        return "the sign of one element is flipped (bit flip)"
    if not got.dtype.is_floating_point and abs(int(got) - int(want)) == 1:
        return ""  # a rounding or an index rather than a bit
    close = [i for i, mended in _flips(got) if _is(mended, want, got.dtype)]
    return f"bit {close[0]} of one element flipped" if len(close) == 1 else ""


def _flips(got):
    if got.dtype == torch.bool:
        return
    view = BIT_VIEWS.get(got.dtype, got.dtype)
    bits = got.reshape(1).view(view)
    for i in range(got.dtype.itemsize * 8):
        n = (1 << i) if i < got.dtype.itemsize * 8 - 1 else -(1 << i)
        if view == torch.uint8:
            n = 1 << i
        yield i, float((bits ^ torch.tensor(n, dtype=view)).view(got.dtype))


def _is(value, want, dtype):
    if not dtype.is_floating_point:
        return value == float(want)
    exact = FORMATS[OWN_FORMAT.get(dtype, "float32")][0]
    return abs(value - float(want)) <= 2.0 ** (1.6 - min(exact, 20)) * abs(float(want))
