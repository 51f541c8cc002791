# SPDX-License-Identifier: Apache-2.0
"""What a result alone tells of a mistake that concerns all of it: the truth times a factor,
moved, transposed, clamped, or with NaN and Inf out of place. Runs nothing. Neighbours:
`_causes_pattern` (damage to some elements), `_diagnose` (chooses).
"""

import torch

from ._causes_pattern import LIMITS, far_off, same
from ._emulate import FORMATS, OWN_FORMAT


def constant(p):
    """All elements off by the same factor or the same amount."""
    device, truth = p.device, p.truth
    if not device.is_floating_point():
        d = device.double() - truth.double() if device.dtype != torch.bool else truth * 0.0
        if p.n >= 4 and float(d.flatten()[0]) and bool((d == d.flatten()[0]).all()):
            return f"{float(d.flatten()[0]):g} is added to the result (a constant; index shifted)"
        return ""
    live = truth.isfinite() & device.isfinite() & (truth != 0)
    d, r = device[live].double(), truth[live].double()
    steps = 2.0 ** (2 - FORMATS[OWN_FORMAT.get(device.dtype, "float32")][0])
    if r.numel() < 8:
        return _few_constant(d, r, steps)
    factor = float((d / r).median())
    offset = float((d - r).median())
    if abs(factor - 1) > (64 if steps < 1e-5 else 1) * steps and fits(d, r * factor, steps):
        return _factor_text(factor)
    if abs(offset) > 0 and fits(d, r + offset, steps) and not fits(d, r, steps):
        return f"{offset:.6g} is added to the result (a constant)"
    return ""


def blurred(p):
    """(text, result) for the likeliest factor and amount in a result of few bits."""
    d, t = p.device.double(), p.truth.double()
    live = d.isfinite() & t.isfinite() & (t.abs() > 0)
    dl, tl = d[live], t[live]
    if dl.numel() < 16:
        return
    big = tl.abs() >= tl.abs().median()
    for factor in (float((dl[big] / tl[big]).median()), float((dl[big] / tl[big]).mean())):
        if abs(factor - 1) > 2.0**-14:
            yield _factor_text(factor), t * factor
    small = ~big if bool((~big).any()) else big
    for amount in (float((dl - tl)[small].median()), float((dl - tl)[small].mean()), float((dl - tl).mean())):
        if amount:
            yield f"{amount:.6g} is added to the result (a constant)", t + amount


def _factor_text(factor):
    if abs(factor + 1) < 2.0**-8:
        return "the sign is flipped: the result is multiplied by -1"
    near = round(factor * 2) / 2
    factor = near if near and abs(factor / near - 1) < 2.0**-18 else factor
    return f"the result is multiplied by {factor:.6g}"


def _few_constant(d, r, steps):
    """One number, or a few: only a factor that is round is believed."""
    if not r.numel():
        return ""
    factor = float((d / r).median())
    round_ones = [s * v for v in (2.0, 0.5, 4.0, 0.25, 3.0, 1 / 3, 10.0, 0.1, 1.5, 1.01) for s in (1, -1)]
    for v in [-1.0, *round_ones]:
        if abs(factor / v - 1) <= 4 * steps and fits(d, r * v, steps):
            return _factor_text(v)
    return ""


def fits(device, candidate, steps, share=0.99):
    """Whether nearly all elements agree within some roundings of their own size."""
    error = (device - candidate).abs()
    typical = float(candidate.square().mean().sqrt())
    slack = steps * candidate.abs().clamp(min=typical / 2)
    return float((error <= 4 * slack).double().mean()) >= share


def moved_results(p):
    """(text, outputs) of the truth moved about: what wrong indices and strides leave."""
    t = p.truth
    for axis in range(t.dim()):
        size = t.shape[axis]
        for by in range(3, min(size - 2, 64)) if size > 5 else ():
            if quickly(p, t.roll(by, axis)):
                yield f"shifted by {by} along axis {axis} (moved, wrong index)", t.roll(by, axis)
        for by in (1, -1, 2, -2) if size > 2 else (1,) if size == 2 else ():
            yield (f"shifted by {abs(by)} along axis {axis} (wrong index: the neighbour's value)",
                   t.roll(by, axis))  # fmt: skip
            if size > 2:
                yield (f"shifted by {abs(by)} along axis {axis}, zeros come in", _shift(t, by, axis))
        if size > 1:
            yield f"elements are exchanged: reversed along axis {axis}", t.flip(axis)
        if size % 2 == 0 and size > 2:
            halves = t.unflatten(axis, (2, size // 2))
            yield (f"the halves along axis {axis} are exchanged", halves.flip(axis).flatten(axis, axis + 1))
            yield (f"elements are exchanged in pairs along axis {axis}",
                   t.unflatten(axis, (size // 2, 2)).flip(axis + 1).flatten(axis, axis + 1))  # fmt: skip
            yield (f"wrong stride: halves along axis {axis} interleaved",
                   halves.transpose(axis, axis + 1).flatten(axis, axis + 1))  # fmt: skip
            yield (f"wrong stride: pairs along axis {axis} split into halves",
                   t.unflatten(axis, (size // 2, 2)).transpose(axis, axis + 1).flatten(axis, axis + 1))  # fmt: skip
    for a in range(t.dim()):
        for b in range(a + 1, t.dim()):
            if t.shape[a] > 1 and t.shape[b] > 1:
                yield (f"wrong stride: the result is transposed (axes {a} and {b})",
                       t.transpose(a, b).reshape(t.shape))  # fmt: skip
    if t.is_floating_point():
        yield "the sign is lost: absolute values", t.abs()
    if t.dtype == torch.bool:
        yield "the result is inverted", ~t
    flat = t.flatten()
    for by in (1, -1):
        if flat.numel() > 2 and t.dim() > 1:
            yield "shifted by one element in memory (wrong index)", flat.roll(by).reshape(t.shape)


def quickly(p, moved):
    """Whether a few elements agree with a candidate."""
    step = max(p.n // 64, 1)
    a, b = p.device.flatten()[::step].double(), moved.flatten()[::step].double()
    return float(((a - b).abs() <= 2.0**-6 * b.abs()).double().mean()) > 0.9


def by_rows(p):
    """Rows along an axis that are each off by a factor of their own; "" for none."""
    d, t = p.device.double(), p.truth.double()
    for axis in range(p.device.dim() - 1, -1, -1):
        if p.device.dim() < 2 or p.device.shape[axis] < 8:
            continue
        ratio = d / t
        live = ratio.isfinite() & (t.abs() > 1e-3 * t[t.isfinite()].abs().median())
        if float(live.double().mean()) < 0.8:
            continue
        kept = ratio.where(live, torch.nan)
        middle = kept.nanmedian(axis, keepdim=True)[0]
        spread = ((kept - middle).abs()[live]).median() / ((middle - 1).abs().nanmedian() + 1e-30)
        if float(spread) < 2.0**-4:
            return (f"each row along axis {axis} is off by a factor of its own: the row's statistic is "
                    "wrong (a dropped contribution or a rounded intermediate)")  # fmt: skip
    return ""


def _shift(t, by, axis):
    out = t.roll(by, axis)
    out.narrow(axis, 0 if by > 0 else t.shape[axis] + by, abs(by)).zero_()
    return out


def saturated(p):
    """Large values held at a limit; ("", None) where none are."""
    d, t = p.device, p.truth
    finite = d[d.isfinite()] if d.is_floating_point() else d.flatten()
    if finite.numel() < 1 or d.dtype == torch.bool:
        return "", None
    top = float(finite.double().abs().max())
    held = d.double().abs() == top
    if not top:
        return "", None
    beyond = held & (t.double().abs() > top * (1 + 2.0**-6))
    if not bool(beyond.any()):
        return "", None
    name = LIMITS.get(top, "")
    if not name and int(held.sum()) < 2:
        return "", None
    of = f", the maximum of {name}" if name else ""
    for low, high in ((-top, top), (-torch.inf, top), (-top, torch.inf), (0.0, top)):
        clamped = t.double().clamp(low, high)
        off = far_off(d, clamped if d.is_floating_point() else clamped.to(d.dtype), p.yardstick.double().clamp(low, high))
        if float(off.double().mean()) <= 0.01 and bool((p.bad & ~off).any()):
            return f"saturated at {top:.6g}{of}", clamped
    return "", None


# ---- NaN and Inf ---------------------------------------------------------------------


def kinds_differ(p):
    """Whether NaN or Inf stand where they must not, or lack."""
    if not p.device.is_floating_point():
        return False
    d, t = p.device.double(), p.truth.to(p.device.dtype).double()
    odd = ~d.isfinite() | ~t.isfinite()
    return bool((odd & ~same(d, t)).any())


def nonfinite(p):
    """What happened to NaN and Inf."""
    d, t = p.device, p.truth.to(p.device.dtype)
    if not d.is_floating_point():
        return ""
    odd, true_odd = ~d.isfinite(), ~t.isfinite()
    lost = true_odd & ~odd
    made = odd & ~true_odd
    if bool(lost.any()) and not bool(made.any()):
        return _swallowed(d[lost], t[lost])
    if bool(made.any()):
        return _spurious(p, made)
    mixed = odd & true_odd & ~same(d.double(), t.double())
    if bool(mixed.any()):
        gave = "NaN" if bool(d[mixed].isnan().any()) else "Inf"
        return f"spurious {gave}: {int(mixed.sum()):,} elements are {gave} in place of another non-finite value"
    return ""


def _swallowed(got, want):
    what = "NaN" if bool(want.isnan().any()) else "Inf"
    n = got.numel()
    if bool((got == 0).all()):
        with_ = "0"
    elif bool((got.abs() == got.flatten()[0].abs()).all()):
        with_ = f"{abs(float(got.flatten()[0])):.6g}"
        if what == "Inf" and float(with_) > 100:
            return f"saturated at {with_}: Inf swallowed in {n:,} elements"
    else:
        with_ = "finite numbers"
    return f"{what} swallowed: {n:,} elements hold {with_} instead"


def _spurious(p, made):
    got, want = p.device[made], p.truth[made].double().abs()
    n, kind = got.numel(), "NaN" if bool(got.isnan().any()) else "Inf"
    rest = p.truth[~made & p.truth.isfinite()].double().abs()
    low = float(want.min())
    if kind == "Inf" and (not rest.numel() or low >= float(rest.max())) and low > 1000:
        limit = next((f"{v:g}, the maximum of {k}" for v, k in
                      ((65504.0, "float16"), (448.0, "float8_e4m3fn"), (57344.0, "float8_e5m2"))
                      if low > v * 0.999 and (not rest.numel() or float(rest.max()) <= v * 1.001)), "")  # fmt: skip
        return f"spurious Inf: overflow beyond {limit or f'{low:.6g}'}"
    where = ""
    if n == 1:
        where = " in one element"
    elif n == p.n:
        where = " everywhere"
    else:
        where = f" in {n:,} of {p.n:,} elements"
    return f"spurious {kind}{where}"
