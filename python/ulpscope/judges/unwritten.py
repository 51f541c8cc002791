# SPDX-License-Identifier: Apache-2.0
"""Elements that the CPU's own kernel never writes: the memory of a result as it was handed out (what lies behind
the targets in ctc_loss's log_alpha). Nobody promises them. They are found by what the C library fills new memory
with, once with one byte and once with another. Serves `readings`. Of torch it needs that its memory comes
from malloc; elsewhere nothing is found."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ..calls.foreign import foreign
from ..calls.replay import Call, bind_exact
from ..calls.call_results import outputs_of, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

M_PERTURB = -6  # mallopt(3): new memory holds the byte's complement
FILLS = 0x01, 0x55
MOST = 1 << 24  # elements of an output
_lock = threading.Lock()


def unwritten(call: Call) -> dict[str, torch.Tensor]:
    """path -> which elements of an output the CPU's kernel leaves as the memory was, where any."""
    if call.composite or call.schema is None:
        return {}
    try:
        first, second = (_bytes_of(call, fill) for fill in FILLS)
    except Exception as problem:  # another C library, or the CPU refuses
        foreign(problem)
        return {}
    found: dict[str, torch.Tensor] = {}
    for path in first.keys() & second.keys():
        if first[path].shape == second[path].shape:
            mask = torch.ones(first[path].shape[:-1], dtype=torch.bool)
            for given, fill in ((first, FILLS[0]), (second, FILLS[1])):
                mask &= (given[path] == 0xFF - fill).all(-1)
            found |= {path: mask} if bool(mask.any()) else {}
    return found


def _bytes_of(call: Call, fill: int) -> dict[str, torch.Tensor]:
    """path -> bytes of each element of an output."""
    bound = bind_exact(call, lambda captured: "cpu")
    with _filled(fill), torch.no_grad():
        outputs = {p: plain(t).clone() for p, t in outputs_of(call, bound, bound.run(call.function)).items()}
    return {
        p: t.contiguous().view(torch.uint8).reshape(*t.shape, t.element_size())
        for p, t in outputs.items()
        if 0 < t.numel() <= MOST
    }


@contextmanager
def _filled(fill: int) -> Iterator[None]:
    library = ctypes.CDLL(None)
    with _lock:
        library.mallopt(M_PERTURB, fill)
        try:
            yield
        finally:
            library.mallopt(M_PERTURB, 0)
