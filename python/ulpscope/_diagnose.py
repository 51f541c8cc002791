# SPDX-License-Identifier: Apache-2.0
"""The cause of a verdict: right or silent.

A mistake is named when its emulation on the CPU reproduces what the device gave: the same
bits on 99 % of the elements that rounding does not explain, or errors at least 8 times
smaller (median and 99th percentile) than those against the truth. Damage to a few elements
is named by its place and content.
"""

import torch

from ._emulate import FORMATS, OWN_FORMAT, candidates, to_dtype

SAME_BITS = 0.99
SMALLER = 8.0
MOST_ELEMENTS = 1 << 26  # beyond this, one emulation costs more than its answer is worth


def cause_of(call, verdict):
    """A short clause on why a call does not pass; "" where it is unknown."""
    worst = verdict.worst
    if worst is None or verdict.operands is None or not worst.path:
        return ""
    device = verdict.answer.outputs.get(worst.path)
    truth = verdict.operands.reference.truth.get(worst.path)
    if device is None or truth is None or device.shape != truth.shape:
        return ""
    if not device.dtype.is_floating_point or device.numel() > MOST_ELEMENTS:
        return ""
    try:
        return _damage(verdict, worst.path) or _constant(device, truth) or _emulated(call, verdict)
    except Exception:  # a diagnosis that fails is one that is silent
        return ""


# ---- damage to some elements ---------------------------------------------------------


def _failing(device, yardstick):
    """Elements that are nowhere near what float32 gives."""
    bits = FORMATS[OWN_FORMAT.get(device.dtype, "float32")][0]
    wide, want = device.double(), yardstick.double()
    finite = want[want.isfinite()]
    typical = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    slack = 2.0 ** (6 - bits) * torch.clamp(want.abs(), min=typical * 2.0**-4)
    near = (wide - want).abs() <= slack
    return ~(near | (wide == want) | (wide.isnan() & want.isnan()))


def _damage(verdict, path):
    """Names damage that leaves most elements alone, or that replaces all of them."""
    device = verdict.answer.outputs[path]
    yardstick = verdict.operands.reference.yardstick[path]
    before = verdict.answer.before.get(path)
    failing = _failing(device, yardstick)
    n, n_failing = failing.numel(), int(failing.sum())
    if n_failing == 0:
        return ""
    if before is not None and before.shape == device.shape and torch.equal(before, device):
        return "the in-place result was lost"
    if n > 1 and bool((device == 0).all()):
        return "the result is all zeros: nothing was written"
    flat, want, bad = device.flatten(), yardstick.flatten(), failing.flatten()
    where = bad.nonzero().flatten()
    if n_failing == 2:
        a, b = (int(i) for i in where)
        if _close(flat[a], want[b]) and _close(flat[b], want[a]):
            return f"elements {a} and {b} change places"
    tail = _tail(flat, bad, before)
    if tail:
        return tail
    if n_failing == 1:
        return _one_element(flat[int(where)], want[int(where)])
    return _axis_tail(device, failing)


def _close(a, b):
    a, b = float(a), float(b)
    return abs(a - b) <= 2.0**-6 * max(abs(a), abs(b))


def _tail(flat, bad, before):
    """All failing elements at the end, and the end of one kind."""
    n, first = flat.numel(), int(bad.nonzero()[0])
    size = n - first
    if first == 0 or size > n // 2:
        return ""
    name = "the last element" if size == 1 else f"the last {size:,} of {n:,} elements"
    verb = ("is", "was") if size == 1 else ("are", "were")
    end = flat[first:]
    if bool((end == 0).all()):
        return f"{name} {verb[0]} zero"
    if before is not None and torch.equal(before.flatten()[first:], end):
        return f"{name} {verb[1]} not written"
    if size >= 8 and float(bad[first:].double().mean()) > 0.9:
        return f"{name} {verb[1]} not computed"
    return ""


def _axis_tail(device, failing):
    """The end of one axis is zero where it must not be."""
    for axis in range(device.dim()):
        others = [a for a in range(device.dim()) if a != axis]
        hit = failing.any(dim=others) if others else failing
        first = int(hit.nonzero()[0])
        size = device.shape[axis] - first
        if first and size <= device.shape[axis] // 2 and others:
            end = device.narrow(axis, first, size)
            if bool((end == 0).all()):
                return f"the last {size} of {device.shape[axis]} along axis {axis} are zero"
    return ""


# What only inputs far from 1 tell apart.
TWINS = {"inputs rounded to float16": "inputs rounded to TF32"}

BIT_VIEWS = {torch.float32: torch.int32, torch.float16: torch.int16,
             torch.bfloat16: torch.int16, torch.float64: torch.int64}  # fmt: skip


def _one_element(got, want):
    """What happened to a single element: zeroed, or one bit of it flipped."""
    if float(got) == 0:
        return "one element is zero"
    if got.isnan() or want.isnan():
        return "one element is NaN" if got.isnan() else ""
    bits = got.reshape(1).view(BIT_VIEWS[got.dtype])
    close = []
    for i in range(got.dtype.itemsize * 8):
        flag = torch.tensor(1, dtype=bits.dtype) << i
        mended = float((bits ^ flag).view(got.dtype))
        exact = FORMATS[OWN_FORMAT.get(got.dtype, "float32")][0]
        if abs(mended - float(want)) <= 2.0 ** (3 - exact) * abs(float(want)):
            close.append(i)
    return f"bit {close[0]} of one element flipped" if len(close) == 1 else ""


def _constant(device, truth):
    """All elements off by the same factor or the same amount."""
    live = truth.isfinite() & device.isfinite() & (truth != 0)
    d, r = device[live].double(), truth[live]
    if r.numel() < 8:
        return ""
    factor = float((d / r).median())
    offset = float((d - r).median())
    noise = float((d - r).abs().quantile(0.5)) if r.numel() <= 1 << 20 else 0.0
    steps = 2.0 ** (2 - FORMATS[OWN_FORMAT.get(device.dtype, "float32")][0])
    if abs(factor - 1) > 64 * steps and _fits(d, r * factor, steps):
        return f"the result is multiplied by {factor:.6g}"
    if noise and abs(offset) > 0 and _fits(d, r + offset, steps) and not _fits(d, r, steps):
        return f"{offset:.6g} is added to the result"
    return ""


def _fits(device, candidate, steps):
    """Whether nearly all elements agree within some roundings of their own size."""
    error = (device - candidate).abs()
    typical = float(candidate.square().mean().sqrt())
    slack = steps * candidate.abs().clamp(min=typical / 2)
    return float((error <= 4 * slack).double().mean()) >= SAME_BITS


# ---- emulations ----------------------------------------------------------------------


class Evidence:
    """One accused output: what the device gave, the truth, and how well an emulation
    explains the difference."""

    def __init__(self, device, truth):
        self.device = device.double().flatten()
        self.dtype = device.dtype
        self.truth = truth.flatten()
        self.rounded = to_dtype(self.truth, self.dtype)

    def residual(self, emulated):
        """0 where the bits agree; else the residual as a share of the error, at least
        as large at the median and the 99th percentile. Infinite for no explanation."""
        emulated = emulated.double().flatten()
        if emulated.shape != self.device.shape:
            return float("inf")
        own = to_dtype(emulated, self.dtype)
        counts = (self.device != self.rounded) | (own != self.rounded)
        counts &= self.device.isfinite() & self.truth.isfinite() & own.isfinite()
        if not bool(counts.any()):
            return float("inf")
        device = self.device[counts]
        if float((device == own[counts]).double().mean()) >= SAME_BITS:
            return 0.0
        error = (device - self.truth[counts]).abs()
        left = (device - emulated[counts]).abs()
        return max(_quantile(left, q) / max(_quantile(error, q), 1e-300) for q in (0.5, 0.99))


def _quantile(x, q):
    k = max(1, min(x.numel(), int(q * x.numel() + 0.999999)))
    return float(x.kthvalue(k)[0])


def _emulated(call, verdict):
    """The first candidate that reproduces the bits, else the one that comes nearest, if
    near enough."""
    reference = verdict.operands.reference
    accused = {
        f.path: Evidence(verdict.answer.outputs[f.path], reference.truth[f.path])
        for f in verdict.findings
        if f.verdict not in ("pass", "unjudged") and f.path in reference.truth
        and verdict.answer.outputs[f.path].is_floating_point()
    }  # fmt: skip
    if not accused:
        return ""
    best, best_text = 1 / SMALLER, ""
    device = verdict.answer.outputs[verdict.worst.path]
    for text, emulate in candidates(call, reference, device):
        try:
            outputs = emulate()
        except Exception:  # not every operator has every mistake
            continue
        if not accused.keys() <= outputs.keys():
            continue
        residual = max(e.residual(outputs[p]) for p, e in accused.items())
        if text in TWINS and TWINS[text] == best_text and residual <= 2 * best:
            return f"{best_text} or {text.split()[-1]}"
        if residual < best:
            best, best_text = residual, text
        if best == 0.0 and best_text not in TWINS.values():
            break
    return best_text
