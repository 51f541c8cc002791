# SPDX-License-Identifier: Apache-2.0
"""flex_attention as the operators that it means. torch compiles it as one of higher order, which no mode
sees into, and refuses its gradients on the CPU. Within `in_the_open` it computes by its formula instead,
operator by operator: masks, score_mod with what that captures, shared heads, gradients.

Needs of torch: names of torch.nn.attention.flex_attention that begin with `_`; where they are gone
flex_attention stays as it is."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .torch_private import indexing_by_tensors

if TYPE_CHECKING:
    from types import ModuleType

HOME = "torch.nn.attention.flex_attention"
_lock = threading.Lock()
_depth = 0
_before: dict[str, Any] = {}  # name -> what the module has outside


@contextlib.contextmanager
def in_the_open() -> Iterator[None]:
    """Within: flex_attention computes with plain operators. The module is as it was outside, since what
    compiles it looks at these names."""
    home = sys.modules.get(HOME)  # a program that never had it needs nothing
    if home is None:
        yield
        return
    _enter(home)
    try:
        yield
    finally:
        _leave(home)


def _enter(home: ModuleType) -> None:
    global _depth
    with _lock:
        _depth += 1
        if _depth > 1:
            return
        for name, value in _inside().items():
            if hasattr(home, name):
                _before[name] = getattr(home, name)
                setattr(home, name, value)


def _leave(home: ModuleType) -> None:
    global _depth
    with _lock:
        _depth -= 1
        while _depth == 0 and _before:
            setattr(home, *_before.popitem())


def _inside() -> dict[str, Any]:
    return {
        "flex_attention_hop": _attention,
        "_validate_device": lambda *tensors: None,
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
    }


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., Any],
    block_mask: Any,
    scale: float,
    kernel_options: dict[str, Any],
    score_buffers: tuple[torch.Tensor, ...] = (),
    mask_buffers: tuple[torch.Tensor, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, log-sum-exp and largest score, the last two in powers of 2. A query that sees nothing has 0 and
    -Inf. Asks nothing of its dtype, so that it is the same formula in every one."""
    n_shared = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(n_shared, 1).expand(query.shape[0], -1, -1, -1) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * scale
    places = [torch.arange(n, device=query.device) for n in scores.shape]
    with indexing_by_tensors():
        scores = _at_places(score_mod, 1, len(score_buffers))(scores, *places, *score_buffers)
        seen = _at_places(block_mask[-1], 0, len(mask_buffers))(*places, *mask_buffers)
    scores = scores.masked_fill(~seen, -math.inf)
    blind = ~seen.any(-1, keepdim=True)
    weights = scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)
    lse = scores.masked_fill(blind, 0).logsumexp(-1).masked_fill(blind[..., 0], -math.inf)
    return weights @ value, lse / math.log(2), scores.amax(-1) / math.log(2)


def _at_places(function: Callable[..., Any], n_before: int, n_behind: int) -> Callable[..., Any]:
    """A function of one score's place as one of all: of batches, heads, queries and keys."""
    for axis in (3, 2, 1, 0):
        places = [0 if i == axis else None for i in range(4)]
        function = torch.vmap(function, in_dims=(*[0] * n_before, *places, *[None] * n_behind))
    return function
