# SPDX-License-Identifier: Apache-2.0
"""What a watch does not look at, and why: "no alarm" is said of the rest alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import watch_rows

if TYPE_CHECKING:
    from .watch import Watch

LEARN = 8  # steps, as in src/watch/watch_watched.c


def _says(w: Any, key: str, default: bool = False) -> bool:
    """Whether its configuration switches a key on; the last word counts."""
    said = [word.split(":", 1)[1].strip() for word in w.config.split(",") if word.split(":", 1)[0].strip() == key]
    return said[-1] == "true" if said else default


def _asd(w: Any) -> list[str]:
    """Of mode asd, which looks at what torch_npu's detection does."""
    every = w.core.config()["grad_sample_interval"]
    left = ["weights, optimizer state, reductions, gradients of vectors"]
    if every > 1:
        left.append(f"all but one of {every} other gradients (grad_sample_interval)")
    if not _says(w, "with_checksum"):
        left.append("matrix products (with_checksum:true checks them after a warning)")
    elif all(p.dtype != torch.bfloat16 for p in w.parameters.values()):
        left.append("matrix products (with_checksum looks at bfloat16 alone)")
    else:
        minutes = w.core.config()["cooldown"]
        left.append(f"matrix products but torch.matmul of bfloat16, for {minutes} minutes after a warning; nn.Linear")
    return left


def _sound(w: Any) -> list[str]:
    left = []
    linears = getattr(w, "linears", None)  # stay where a watch is closed
    if linears is None:
        left.append("matrix products (matmul_every:100)")
    elif not linears:
        left.append("matrix products (no nn.Linear is in the model)")
    else:
        left.append("matrix products but those of nn.Linear, one of so many")
    if w.audit is None:
        left.append("other operators (audit:100)")
    if w.weights_every > 1:
        left.append(f"weights and optimizer state but at one of {w.weights_every} steps (weights_every:1)")
    if w.exchange is None:
        left.append("copies of it (one process)")
    elif w.collectives is None:
        left.append("reductions (neither DistributedDataParallel nor FSDP2)")
    if w.step <= LEARN:
        left.append(f"anything against its past ({w.step} steps, of which the first {LEARN} are what is learnt by)")
    return left


def off(w: Watch) -> str:
    """Why nothing at all is watched; "" where something is."""
    if not w.parameters:
        return "no parameter is known"
    if not _says(w, "enable", default=not w.asd):
        return f"mode {'asd' if w.asd else 'sound'} is off: enable:true switches it on"
    if w.asd and any(p.dtype == torch.float16 for p in w.parameters.values()):
        return (
            "one float16 parameter switches mode asd off, as in torch_npu; mode sound, --watch=mode:sound, has "
            "no such rule"
        )
    return ""


def not_watched(w: Watch) -> str:
    """One line for the end of a run."""
    why = off(w)
    if why:
        return f"not watched: anything ({why})"
    left = _asd(w) if w.asd else _sound(w)
    odd = sorted(
        {str(p.dtype).removeprefix("torch.") for p in w.parameters.values() if p.dtype not in watch_rows.NUMBERS}
    )
    if odd:
        left.append(f"parameters of {', '.join(odd)}")
    return f"not watched: {'; '.join(left)}" if left else ""
