# SPDX-License-Identifier: Apache-2.0
"""What a result alone tells of a mistake that concerns all of it: the truth moved,
transposed, clamped, or with NaN and Inf out of place. Runs nothing. Neighbours:
`pattern` (damage to some elements), `scale` (factors and amounts),
`order` (shape, order, slid), `diagnose` (chooses).
"""

import torch

from ..executors.formats import FORMATS, OWN_FORMAT
from .pattern import LIMITS, far_off, same


def moved_results(p):
    """(text, outputs) of the truth moved about: what wrong indices and strides leave."""
    t = p.truth
    for narrow in (torch.int8, torch.uint8, torch.int16, torch.int32) if t.dtype in (torch.int64, torch.int32) else ():
        if narrow != t.dtype:
            yield f"overflow: the result wraps around as in {str(narrow)[6:]}", t.to(narrow).to(t.dtype)
    for axis in range(t.dim()):
        size = t.shape[axis]
        if size % 2 == 0 and size > 2:
            yield (f"the halves along axis {axis} are exchanged (shifted by {size // 2}, wrong index)",
                   t.roll(size // 2, axis))  # fmt: skip
        for by in range(3, min(size - 2, 64)) if size > 5 else ():
            if quickly(p, t.roll(by, axis)):
                yield f"shifted by {by} along axis {axis} (moved, wrong index)", t.roll(by, axis)
        for by in (1, -1, 2, -2) if size > 2 else ():
            yield (f"shifted by {abs(by)} along axis {axis} (wrong index: the neighbour's value)",
                   t.roll(by, axis))  # fmt: skip
            if size > 2:
                yield (f"shifted by {abs(by)} along axis {axis}, zeros come in", _shift(t, by, axis))
        if size > 1:
            also = ", or shifted by one," if size == 2 else ""
            yield f"elements are exchanged: reversed{also} along axis {axis} (wrong stride or direction)", t.flip(axis)
        if size % 2 == 0 and size > 2:
            halves = t.unflatten(axis, (2, size // 2))
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
    if flat.numel() % 2 == 0 and flat.numel() > 4:
        for i, other in ((0, "before"), (1, "after")):
            yield (f"every other element repeats the one {other} it (stale, or wrong stride)",
                   flat[i::2].repeat_interleave(2).reshape(t.shape))  # fmt: skip
    for by in (1, -1):
        if flat.numel() > 2 and t.dim() > 1:
            yield "shifted by one element in memory (wrong index)", flat.roll(by).reshape(t.shape)


def quickly(p, moved):
    """Whether a few elements agree with a candidate."""
    step = max(p.n // 64, 1)
    a, b = p.device.flatten()[::step].double(), moved.flatten()[::step].double()
    return float(((a - b).abs() <= 2.0**-6 * b.abs()).double().mean()) > 0.9


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
    bits = FORMATS[OWN_FORMAT.get(d.dtype, "float32")][0]
    beyond = held & (t.double().abs() > top * (1 + 2.0 ** (2 - min(bits, 18))))
    if not bool(beyond.any()) or not _cuts(d, t, top, held):
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


def _cuts(d, t, top, held):
    """Whether a limit takes off more than rounding to few bits would, and from all alike."""
    beyond = (t.double().abs() > 1.125 * top) & (d.double() != t.to(d.dtype).double()) & (d != 0)
    if int((beyond & held).sum()) < 0.9 * int(beyond.sum()):
        return False
    if not d.is_floating_point() or int(held.sum()) < int((t != 0).sum()) // 2:
        return True
    return float(t[held].double().abs().max()) > top * (1 + 2.0**-7)


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
    if float((want > 4096).double().mean()) > 0.9 and rest.numel() and float(rest.max()) < 65520:
        return f"spurious {kind}: overflow of intermediates beyond 65504, the maximum of float16"
    where = ""
    if n == 1:
        where = " in one element"
    elif n == p.n:
        where = " everywhere"
    else:
        where = f" in {n:,} of {p.n:,} elements"
    return f"spurious {kind}{where}"


def opposite(p):
    """Whether every Inf that is off is one of the other sign, and NaN is where it must be."""
    d, t = p.device.double(), p.truth.to(p.device.dtype).double()
    odd = (~d.isfinite() | ~t.isfinite()) & ~same(d, t)
    return bool((d[odd] == -t[odd]).all())
