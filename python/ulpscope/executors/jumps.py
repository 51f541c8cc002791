# SPDX-License-Identifier: Apache-2.0
"""Replays freed of steps that a moved input happened to cross (usc_judge_free_steps). Serves
`reference` and `judges.answers`; what a device may have crossed is decided by a case."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import _core

FIRST_NEAR = 3000  # number of the first replay that looks for steps


@dataclass
class Jump:
    """Elements where a replay crossed a step that the input is near to, but not upon."""

    where: torch.Tensor  # flat indices
    values: torch.Tensor  # what the replay gave there


def freed(
    truth: torch.Tensor, yardstick: torch.Tensor, moved: torch.Tensor, narrow: torch.Tensor, nearer: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, Jump | None]:
    """A pair of replays of one output with every step replaced by the slope beside it, and
    the Jump that it made (None for none)."""
    wide, low = torch.empty(2, *truth.shape, dtype=torch.float64)
    crossed = torch.empty(truth.shape, dtype=torch.bool)
    if not _core.free_steps(truth, yardstick, moved, narrow, nearer, wide, low, crossed):
        return moved, narrow, None
    at = crossed.flatten().nonzero().flatten()
    return wide, low.to(narrow.dtype), Jump(at, moved.flatten()[at])
