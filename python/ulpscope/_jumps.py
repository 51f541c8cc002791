# SPDX-License-Identifier: Apache-2.0
"""Replays freed of jumps. How strongly a result reacts to its inputs is a slope; a step
that a perturbed input happens to cross (a label, a rounding, a comparison) is none, and an
input that leaves the operator's domain tells nothing. Serves `_reference`.

A step is told from a slope by a second replay, moved PART as far, which only float64 can
tell from not moved at all: along a slope its difference is PART as large, across a step it
is all or nothing, and all of it means that the input lies upon the step.
"""

from dataclasses import dataclass

import torch

PART = 2.0**-12
REACH = 2.0**-22  # of the inputs: how far from a step roundings may cross it
NEAR_STEPS = 16  # replays that look for such steps
ROUNDINGS = 2.0**-18  # of a result, beyond what these give
FIRST_NEAR = 3000
STEEP = 2.0**-12  # 256 times the perturbation: below it a difference needs no second look


@dataclass
class Jump:
    """Elements where a replay crossed a step that the input is near to, but not upon."""

    where: torch.Tensor  # flat indices
    values: torch.Tensor  # what the replay gave there


def suspects(truth, moved):
    """Elements of a replay that moved more than a slope usually does, or out of the finite."""
    live = truth[truth.isfinite()]
    typical = float(live.square().mean().sqrt()) if live.numel() else 0.0
    size = truth.abs().clamp(min=typical)
    return truth.isfinite() & ~((moved - truth).abs() <= STEEP * size)


def is_slope(truth, moved, nearer):
    """Whether the difference of a replay grew with the distance, within a factor of 2."""
    far, near = (moved - truth).abs(), (nearer - truth).abs()
    return (far * PART >= near / 2) & (far * PART <= near * 2) & moved.isfinite()


def freed(truth, yardstick, moved, narrow, nearer):
    """
    A pair of replays of one output with every step replaced by the slope beside it, and
    the Jump that it made (None for none).

    `nearer` is the float64 result on inputs moved by PART of the way.
    """
    odd = suspects(truth, moved) & ~is_slope(truth, moved, nearer)
    if not bool(odd.any()):
        return moved, narrow, None
    step = nearer - truth
    crossed = ~((step.abs() * 2 <= (moved - truth).abs()) & nearer.isfinite())
    slope = torch.where(crossed, torch.zeros_like(step), step / PART)
    most = (moved - truth).abs().nan_to_num(nan=torch.inf)  # at a root, slopes have no bound
    smooth = truth + slope.clamp(-most, most)
    lost = yardstick.double() - truth
    wide = torch.where(odd, smooth, moved)
    low = torch.where(odd & lost.isfinite(), (smooth + lost).to(narrow.dtype), narrow)
    at = (odd & ~crossed & moved.isfinite()).flatten().nonzero().flatten()
    return wide, low, Jump(at, moved.flatten()[at])


def forgiven(device, truth, jumps):
    """
    (how many, spared): elements that took a step which a replay took as well, and the device's
    output with the true value in these. None where there is no such element.
    """
    flat = device.contiguous().clone().flatten()
    true = truth.to(device.dtype).flatten()
    near = 4 * torch.finfo(device.dtype).eps
    wide = flat.double()  # float8 can neither be indexed nor written by index
    bits, right = (t.view(torch.uint8) if t.element_size() == 1 else t for t in (flat, true))
    taken = torch.zeros(flat.shape, dtype=torch.bool)
    for jump in jumps:
        got = wide[jump.where]
        same = (got - jump.values).abs() <= near * jump.values.abs()
        if bool(same.any()):
            at = jump.where[same]
            bits[at] = right[at]
            taken[at] = True
    return (int(taken.sum()), flat.view(device.shape)) if bool(taken.any()) else None


def crossed(reference, path, device):
    """
    (where, spared): elements that lie so near a step that roundings cross it, of which the
    device's value is among or between those that such replays give, and the output with these
    put right. None where there are none.

    What sums over many steps is no single value of a replay, but it lies between them.
    """
    truth, wide = reference.truth[path], device.double()
    low, high, where = truth.clone(), truth.clone(), torch.zeros_like(truth, dtype=torch.bool)
    for k in range(NEAR_STEPS):
        try:
            contents = reference.moved(FIRST_NEAR + k, REACH)
            moved = reference.wide(contents)[path]
            if moved.shape != truth.shape or not bool(suspects(truth, moved).any()):
                continue
            nearer = reference.wide(reference.drawn_near(contents, PART))[path]
        except Exception:  # the operator does not exist there: nothing is learnt
            continue
        step = suspects(truth, moved) & moved.isfinite()
        step &= (nearer - truth).abs() * 2 <= (moved - truth).abs()
        step &= ~is_slope(truth, moved, nearer)
        where |= step
        low = torch.where(step, torch.fmin(low, moved), low)
        high = torch.where(step, torch.fmax(high, moved), high)
    slack = ROUNDINGS * torch.maximum(low.abs(), high.abs())
    where &= (wide >= low - slack) & (wide <= high + slack) & (device != truth.to(device.dtype))
    return (where, torch.where(where, truth.to(device.dtype), device)) if bool(where.any()) else None
