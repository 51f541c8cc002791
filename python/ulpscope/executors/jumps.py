# SPDX-License-Identifier: Apache-2.0
"""Replays freed of jumps. How strongly a result reacts to its inputs is a slope; a step
that a perturbed input happens to cross (a label, a rounding, a comparison) is none, and an
input that leaves the operator's domain tells nothing. Serves `reference`
and `judges.answers`; what a device may have crossed is decided by a case.

A step is told from a slope by a second replay, moved PART as far, which only float64 can
tell from not moved at all: along a slope its difference is PART as large, across a step it
is all or nothing, and all of it means that the input lies upon the step.
"""

from dataclasses import dataclass

import torch

PART = 2.0**-12
REACH = 2.0**-22  # of the inputs: how far from a step roundings may cross it
FIRST_NEAR = 3000  # number of the first replay that looks for such steps
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
