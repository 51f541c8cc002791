# SPDX-License-Identifier: Apache-2.0
"""Random numbers of the simulated device under the names of torch.cuda: ``ulpscope.sim`` has them all."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import torch

from . import sim_memory
from .sim_memory import _index

KINDS = ("cpu", "philox")

_lib: Any = None  # use() sets it
_kind = KINDS[0]


def use(lib: ctypes.CDLL) -> None:
    """Declares what of the glue is called here."""
    global _lib
    _lib = lib
    lib.usc_glue_sim_seed.argtypes = [ctypes.c_int, ctypes.c_uint64]
    lib.usc_glue_sim_initial_seed.restype = ctypes.c_uint64
    state: Any = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int64]
    lib.usc_glue_sim_get_rng_state.argtypes = state
    lib.usc_glue_sim_get_rng_state.restype = ctypes.c_int64
    lib.usc_glue_sim_set_rng_state.argtypes = state


def random(kind: str | None = None) -> str:
    """Where random numbers come from, from now on: ``cpu``, the CPU's stream for the CPU's seed, as at the
    start; or ``philox``, a seed and an offset. Returns what it was before."""
    global _kind
    before = _kind
    if kind is not None:
        if kind not in KINDS:
            raise ValueError(f"sim: there are no random numbers of '{kind}'; there are {', '.join(KINDS)}")
        _lib.usc_glue_sim_use_philox(int(kind == "philox"))
        _kind = kind
    return before


def default_generators() -> tuple[torch.Generator, ...]:
    """The generators of the devices themselves, which ``generator=None`` stands for."""
    _lib.usc_glue_sim_hand_out_defaults(1)
    try:
        return tuple(torch.Generator(f"sim:{i}") for i in range(sim_memory._device_count()))
    finally:
        _lib.usc_glue_sim_hand_out_defaults(0)


def manual_seed(seed: int) -> None:
    _lib.usc_glue_sim_seed(sim_memory._current_device(), int(seed) & (2**64 - 1))


def manual_seed_all(seed: int) -> None:
    for i in range(sim_memory._device_count()):
        _lib.usc_glue_sim_seed(i, int(seed) & (2**64 - 1))


def seed() -> None:
    """Seeds the current device by chance."""
    manual_seed(torch.Generator().seed())


def seed_all() -> None:
    """Seeds all devices by chance, and alike."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    return int(_lib.usc_glue_sim_initial_seed(sim_memory._current_device()))


def get_rng_state(device: object = "sim") -> torch.Tensor:
    size = _lib.usc_glue_sim_get_rng_state(_index(device), None, 0)
    state = torch.empty(size, dtype=torch.uint8, device="cpu")
    _lib.usc_glue_sim_get_rng_state(_index(device), state.data_ptr(), size)
    return state


def set_rng_state(new_state: torch.Tensor, device: object = "sim") -> None:
    state = new_state.to("cpu", torch.uint8).contiguous()
    if _lib.usc_glue_sim_set_rng_state(_index(device), state.data_ptr(), state.numel()) != 0:
        raise RuntimeError(
            f"sim: these {state.numel()} bytes are no generator state where random numbers come from '{_kind}'"
        )


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(sim_memory._device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)
