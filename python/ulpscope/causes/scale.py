# SPDX-License-Identifier: Apache-2.0
"""Results that are the truth times a factor or plus an amount: one for all of it, or one for
each slice. What rounding may have done to each element bounds the factor from both sides; it
is named where one number lies within nearly all of these bounds. Runs nothing. Neighbours:
`whole` (other mistakes that concern all of a result), `diagnose` (chooses).
"""

import torch

from ..executors.formats import FORMATS, OWN_FORMAT

COVERED = 0.98  # share of the elements that one factor or amount must suit
MOST = 1 << 15  # elements that are looked at
ROUND = (2.0, 0.5, 4.0, 0.25, 3.0, 1 / 3, 10.0, 0.1, 1.5, 1.01)


def constant(p):
    """All elements off by the same factor or the same amount: a clause and that result, as
    doubles; ("", None) for none."""
    device, truth = p.device, p.truth
    if not device.is_floating_point():
        return _whole_number(p), None
    d, t, room = rooms(p)
    if float((device.isinf() & truth.isfinite()).double().mean()) > 0.05:
        return "", None  # more than a factor takes beyond the range
    if d.numel() < 8:
        return _few(d, t, room)
    found = [_factor(d, t, room), _amount(*rooms(p, shrunk=False))]
    share, text, change = max(found, key=lambda f: f[0])
    if min(f[0] for f in found) > share - 0.005 and share:
        text = f"{found[0][1]}, or {found[1][1]}: these data cannot tell"
    return (text, change(truth.double())) if share else ("", None)


def rooms(p, most=MOST, shrunk=True):
    """(device, truth, room): elements that are finite in both, and how far rounding and
    float32 may have moved each."""
    step = max(p.n // most, 1)
    d, t, y = (x.reshape(-1)[::step].double() for x in (p.device, p.truth, p.yardstick))
    live = d.isfinite() & t.isfinite() & y.isfinite()
    d, t, y = d[live], t[live], y[live]
    bits = FORMATS[OWN_FORMAT.get(p.device.dtype, "float32")][0]
    growth = _growth(d, t)
    own = 1.03 * 2.0**-bits * (d.abs() + t.abs() * (min(growth, 1.0) if shrunk else 1.0))  # rounded twice
    noise = (y - t).abs() * max(growth, 1.0)
    common = float(noise.median()) if noise.numel() else 0.0
    least = 2.0 ** (FORMATS[OWN_FORMAT.get(p.device.dtype, "float32")][1] - bits + 1)
    return d, t, own + least + 6 * noise + 3 * min(common, 2.0**-20 * _typical(t))


def few_values(p, most=4):
    """Whether the truth holds so few numbers, seen as finely as the error is large, that each
    error comes back as a factor."""
    d, t, _ = rooms(p)
    d, t = d[t != 0].abs(), t[t != 0].abs()
    if p.n < 8 or not t.numel():
        return False
    finely = min(max(1 / (8 * float((d / t - 1).abs().median()) + 1e-9), 4.0), 2.0**18)
    return int(torch.log2(t).mul(finely).round().unique().numel()) <= most


def _growth(d, t):
    """How many times larger the results are: a factor takes float32's own errors with it."""
    size = float(t.abs().median()) if t.numel() else 0.0
    return min(float(d.abs().median()) / size, 2.0**20) if size else 1.0


def _typical(t):
    return float(t.square().mean().sqrt()) if t.numel() else 0.0


def stab(low, high):
    """The number that lies in most of the intervals, and the share it lies in."""
    ends = torch.cat([low, high])
    turn = torch.cat([torch.ones_like(low), -torch.ones_like(high)])
    order = ends.argsort()
    depth = turn[order].cumsum(0)
    deepest = int(depth.argmax())
    right = order[min(deepest + 1, len(order) - 1)]
    value, share = float(ends[order[deepest]] + ends[right]) / 2, float(depth[deepest]) / max(len(low), 1)
    plain = float(f"{value:.3g}")  # a plain number that as good as all elements allow as well
    held = float(((low <= plain) & (plain <= high)).double().mean()) if len(low) else 0.0
    return (plain, held) if held >= share - 0.005 else (value, share)


def _factor(d, t, room):
    """(share, text, change) of one factor."""
    seen = t.abs() > 0
    if int(seen.sum()) < 8 or float((d[~seen].abs() > room[~seen]).double().sum()) > 0.02 * len(d):
        return 0.0, "", None
    d, t, room = d[seen], t[seen], room[seen]
    a, b = (d - room) / t, (d + room) / t
    factor, share = stab(torch.minimum(a, b), torch.maximum(a, b))
    if share < COVERED or not factor or not _told(d - t, d - t * factor, room, (t * (factor - 1)).abs()):
        return 0.0, "", None
    return share, factor_text(factor), lambda x: x * factor


def _amount(d, t, room):
    """(share, text, change) of one amount."""
    amount, share = stab(d - t - room, d - t + room)
    if share < COVERED or not amount or not _told(d - t, d - t - amount, room, abs(amount)):
        return 0.0, "", None
    return share, amount_text(amount), lambda x: x + amount


def _told(error, left, room, change):
    """Whether the elements that are large enough to show a change show it, and nothing else."""
    change = torch.as_tensor(change)
    shows = room < 0.8 * change
    if int(shows.sum()) < max(8, 0.1 * len(room)):
        return False
    error, left, room = error[shows], left[shows], room[shows]
    apart = float((error.abs() > room / 2).double().mean()) > 0.9
    above = float((error.abs() > room).double().mean()) > 0.3
    return apart and above and float((left.abs() <= room).double().mean()) >= COVERED


def amount_text(amount):
    return f"{amount:.6g} is added to the result (a constant offset)"


def factor_text(factor):
    if abs(factor + 1) < 2.0**-8:
        return "the sign is flipped: the result is multiplied by -1"
    near = round(factor * 2) / 2
    factor = near if near and abs(factor / near - 1) < 2.0**-18 else factor
    return f"the result is multiplied by {factor:.6g}"


def _few(d, t, room):
    """One number, or a few: only a factor that is round is believed."""
    seen = t.abs() > 0
    if not bool(seen.any()):
        return "", None
    d, t, room = d[seen], t[seen], room[seen]
    for v in [-1.0, *(s * v for v in ROUND for s in (1, -1))]:
        if bool(((d - t * v).abs() <= 2 * room + room * abs(v)).all()) and not bool(
                ((d - t).abs() <= 8 * room).any()):  # fmt: skip
            return factor_text(v), None
    return "", None


def _whole_number(p):
    """The amount that was added to whole numbers."""
    if p.device.dtype == torch.bool or p.n < 4:
        return ""
    d = (p.device.double() - p.truth.double()).flatten()
    if not float(d[0]) or not bool((d == d[0]).all()):
        return ""
    return f"{float(d[0]):g} is added to the result (a constant offset; index shifted)"


# ---- one factor or amount for each slice -------------------------------------------------


def by_slices(p):
    """Slices along the axes that are each off by a factor, or an amount, of their own: a
    clause that says what such numbers are like; "" for none."""
    if not p.device.is_floating_point() or p.device.dim() < 2 or p.n < 32:
        return ""
    for axes in _axes(p.device.dim()):
        view = _Slices(p, axes)
        if view.rows < 2 or view.columns < 4:
            continue
        factors = view.factors()
        if factors is not None:
            return _name(p, factors, axes, "factor")
        amounts = view.amounts()
        if amounts is not None:
            return _name(p, amounts, axes, "amount")
    return ""


def _axes(rank):
    """Which axes share a number: the last, all but the first, all but the second, ..."""
    sets = [(rank - 1,), tuple(range(1, rank)), tuple(a for a in range(rank) if a != 1), (0,)]
    sets += [tuple(range(2, rank))]
    return [s for i, s in enumerate(sets) if s and s not in sets[:i]]


class _Slices:
    """One output as rows that share a number and columns."""

    def __init__(self, p, axes):
        kept = [a for a in range(p.device.dim()) if a not in axes]
        shape = p.device.shape
        self.rows = self.columns = 1
        for a in kept:
            self.rows *= shape[a]
        for a in axes:
            self.columns *= shape[a]
        bits = FORMATS[OWN_FORMAT.get(p.device.dtype, "float32")][0]
        d, t, y = (x.permute(*kept, *axes).reshape(self.rows, -1).double()
                   for x in (p.device, p.truth, p.yardstick))  # fmt: skip
        noise = (y - t).abs().nan_to_num()
        self.d, self.t, self.live = d, t, d.isfinite() & t.isfinite()
        self.room = 2.0 ** (0.1 - bits) * torch.maximum(d.abs(), t.abs()) + 6 * noise
        self.right = (d - t).abs() <= self.room

    def factors(self):
        seen = self.live & (self.t.abs() > 0)
        return self._common(self.d / self.t, self.room / self.t.abs(), seen, 1.0)

    def amounts(self):
        return self._common(self.d - self.t, self.room, self.live, 0.0)

    def _common(self, value, room, seen, neutral):
        """One number for each row, less `neutral`; None where rows have none."""
        if float(seen.double().mean()) < 0.7:
            return None
        room = room.where(seen, torch.full_like(room, torch.inf))
        weight = (1 / room.square().clamp(min=1e-300)).where(seen, room * 0)
        total = weight.sum(1, keepdim=True)
        value = value.where(seen, torch.zeros_like(value))
        middle = (weight * value).sum(1, keepdim=True) / total
        good = ((value - middle).abs() <= room)[seen]
        if float(good.double().mean()) < COVERED:
            return None
        off = (middle - neutral).squeeze(1)
        surely = off.abs() > 4 / total.squeeze(1).sqrt()
        right = float(self.right[seen].double().mean())
        if right > 0.7 or float(surely.double().mean()) < 0.4:
            return None
        return off[surely]


def _name(p, off, axes, kind):
    """Where the numbers of the slices come from."""
    what = f"each slice along axis {axes[0] if len(axes) == 1 else list(axes)}"
    size, n = float(off.abs().max()), off.numel()
    aside = int((off > 0).sum())
    if kind == "factor" and n >= 2 and float((off - off.median()).abs().max()) <= 2.0**-7 * size:
        factor = 1 + float(off.median())
        how = "the sign is flipped" if abs(factor + 1) < 2.0**-6 else f"multiplied by {factor:.6g}"
        return f"{how} in {n} slices along axis {axes[0] if len(axes) == 1 else list(axes)} (a factor of some results)"
    if n >= 6 and aside in (0, n) and kind == "factor":
        text = (f"dropped contribution: {what} is {'too large' if aside else 'too small'} by a factor of "
                "its own, as where part of a sum (partial sums) is missing from its statistic")  # fmt: skip
    elif n >= 6 and aside in (0, n):
        text = f"dropped contribution: part of the sum that {what} shares is missing (an amount of its own)"
    elif n >= 6 and kind == "factor" and 2.0**-10 < size <= 2.0**-8 * 1.05:
        text = f"intermediates rounded to bfloat16: the statistic of {what}"
    elif n >= 6 and kind == "factor" and 2.0**-13 < size <= 2.0**-11 * 1.05:
        text = f"intermediates rounded to TF32 or float16: the statistic of {what}"
    else:
        return f"{what} is off by {'a factor' if kind == 'factor' else 'an amount'} of its own: its statistic is wrong"
    return text


def by_sign(p):
    """A factor on the results of one sign alone, as a slope has."""
    if not p.device.is_floating_point():
        return ""
    d, t, room = rooms(p)
    for part, name in ((t < 0, "negative"), (t > 0, "positive")):
        rest = ~part & (t != 0)
        if int(part.sum()) < 16 or int(rest.sum()) < 16:
            continue
        if float(((d - t).abs() <= room)[rest].double().mean()) < COVERED:
            continue
        share, text, _ = _factor(d[part], t[part], room[part])
        if share:
            return text.replace("the result is", f"{name} results are") + " (a slope or scale factor)"
    return ""
