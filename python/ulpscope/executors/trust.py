# SPDX-License-Identifier: Apache-2.0
"""How far a reference can be trusted: whether two runs gave the same, whether float64 was float64
throughout, whether float32 and float64 compute one function, whether a result is more than
nothing. Serves `reference` and `judges.outputs`."""

import math

import torch

from .. import _core

STEADY = 2.0**-16  # of a result's size: two runs of one function differ by no more
SAMPLE = 4096
FEW = 8
REPLAYS = 4


def equal(a, b):
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def near(a, b):
    """Equal but for roundings: kernels of libraries add in an order that hangs on where in
    memory the numbers lie."""
    if not a.is_floating_point() or a.shape != b.shape:
        return equal(a, b)
    same = (a == b) | ((a != a) & (b != b)) | ((a - b).abs() <= STEADY * size(a))
    return bool(same.all())


def fits(t, truth, moved=False):
    """Whether float32 holds the first elements of t, of which enough are no integers (and
    differ from the truth)."""
    if t.shape != truth.shape:
        return False
    t, truth = t.flatten()[:SAMPLE], truth.flatten()[:SAMPLE]
    real = t.isfinite() & (t != t.round())
    if moved:
        real &= t != truth
    t = t[real]
    return t.numel() >= FEW and bool((t.float().double() == t).all())


def moves(t, truth):
    """Whether most of the first elements of t differ from the truth, as they do where inputs
    moved by 16 float32 roundings: of numbers in 8 or 16 bits a few do."""
    t, truth = t.flatten()[:SAMPLE], truth.flatten()[:SAMPLE]
    live = truth.isfinite() & (truth != 0)
    return int((live & (t != truth)).sum()) > int(live.sum()) / 2


def size(x):
    """Root mean square of the finite elements."""
    if x.numel() and math.isfinite(whole := float(x.square().mean())):
        return math.sqrt(whole)  # none of them is anything else
    live = x[x.isfinite()]
    return float(live.square().mean().sqrt()) if live.numel() else 0.0


def most(x):
    """The largest size of a finite element."""
    x = x.float() if x.element_size() == 1 else x  # float8 has no abs of its own
    return float(x.abs().nan_to_num(0, 0, 0).max())


def is_another_function(reference, path):
    """Whether float32 and float64 differ on more than a few elements by what no rounding
    explains: neither that of the inputs nor that of the steps inside (usc_judge_apart)."""
    truth, yardstick = reference.truth[path], reference.yardstick[path]
    if truth.shape != yardstick.shape or reference.never_rounds():
        return False
    marks = torch.empty(truth.shape, dtype=torch.bool)
    far = _core.apart(truth.double(), yardstick, marks)
    for moved, was in _otherwise(reference, path) if far else ():
        far = moved.shape != truth.shape or _core.apart(truth.double(), yardstick, marks, moved, was)
        if not far:
            return False
    return far and not reference.overflows  # float32 fails there: a case excuses it


def _otherwise(reference, path):
    """Results beside those that they differ from by rounding alone: in either precision on inputs
    moved by 16 roundings, steps included, and in float32 with its own steps rounded otherwise."""
    truth, yardstick = reference.truth[path].double(), reference.yardstick[path]
    for k in range(REPLAYS):
        wide, narrow = reference.raw_replay(k)
        if path in wide:
            yield wide[path].double(), truth
            yield narrow[path], yardstick
    for narrow in reference.rounded_otherwise(path):
        yield narrow, yardstick
