# SPDX-License-Identifier: Apache-2.0
"""Faults of the simulated device, planted and taken back: ``ulpscope.sim`` has them all."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as _optimizer

from .calls.older import zip_equal
from .sim_memory import _Error

_lib: Any = None  # use() sets them
_changed: Any = None
_counts_steps = False


class _Info(ctypes.Structure):  # usc_sim_fault_info
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("stage", ctypes.c_int),
        ("on", ctypes.c_int),
        ("params", ctypes.c_char_p * 2),
        ("defaults", ctypes.c_double * 2),
        ("doc", ctypes.c_char_p),
    ]


class _Fault(ctypes.Structure):  # usc_sim_fault
    _fields_ = [
        ("id", ctypes.c_int64),
        ("text", ctypes.c_char * 512),
        ("pattern", ctypes.c_char * 512),
        ("kind", ctypes.c_int),
        ("params", ctypes.c_double * 2),
        ("output", ctypes.c_int64),
        ("step", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("stream", ctypes.c_int64),
        ("dtype", ctypes.c_char * 40),
        ("layout", ctypes.c_int),
        ("remainder", ctypes.c_int64),
        ("more", ctypes.c_int64),
        ("argument", ctypes.c_char * 40),
        ("nth", ctypes.c_int64),
        ("every", ctypes.c_int64),
        ("p", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("has_index", ctypes.c_bool),
        ("index", ctypes.c_int64),
        ("tile", ctypes.c_int64),
        ("tile_size", ctypes.c_int64),
        ("lane", ctypes.c_int64),
        ("lanes", ctypes.c_int64),
        ("n_calls", ctypes.c_int64),
        ("n_fired", ctypes.c_int64),
        ("n_changed", ctypes.c_int64),
    ]


def use(lib: ctypes.CDLL, changed: Callable[[], None]) -> None:
    """Declares what of the runtime is called here; ``changed`` tells torch's side of new faults."""
    global _lib, _changed
    _lib, _changed = lib, changed
    first, error = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(_Error)
    lib.usc_sim_fault_plant.argtypes = [ctypes.c_char_p, first, error]
    lib.usc_sim_fault_plant_lines.argtypes = [ctypes.c_char_p, ctypes.c_char_p, first, error]
    lib.usc_sim_fault_remove.argtypes = [ctypes.c_int64]
    lib.usc_sim_fault_get.argtypes = [ctypes.c_size_t, ctypes.POINTER(_Fault)]
    lib.usc_sim_fault_get.restype = ctypes.c_bool
    lib.usc_sim_fault_info_of.restype = ctypes.POINTER(_Info)
    lib.usc_sim_fault_set_step.argtypes = lib.usc_sim_fault_set_rank.argtypes = [ctypes.c_int64]
    lib.usc_sim_fault_step.restype = ctypes.c_int64
    lib.usc_sim_fault_storage_lost.restype = ctypes.c_bool
    lib.usc_sim_bug.argtypes = [ctypes.c_size_t, *3 * [ctypes.POINTER(ctypes.c_char_p)]]
    lib.usc_sim_bug.restype = ctypes.c_bool
    lib.usc_sim_fault_set_rank(int(os.environ.get("RANK", "0")) if os.environ.get("RANK", "0").isdigit() else 0)


def _lost(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
    """Of a storage that is loaded: one that was never written, where that is planted; else none, and torch goes on."""
    if location.partition(":")[0] != "sim" or _lib is None or not _lib.usc_sim_fault_storage_lost():
        return None
    return torch.UntypedStorage(storage.nbytes(), device=location)


# Once, right before torch's own for this device, 23: torch cannot sort two of one priority.
torch.serialization.register_package(22.5, lambda storage: None, _lost)


class Fault:
    """Planted faults; ``remove()`` or leaving a ``with`` block takes them out again."""

    def __init__(self, ids: list[int], text: str):
        self._ids, self.text = ids, text

    def remove(self) -> None:
        for i in self._ids:
            _lib.usc_sim_fault_remove(i)
        self._ids = []

    def fired(self) -> list[dict[str, Any]]:
        """Its rows of :func:`faults_fired`."""
        return [_row(f) for f in _planted() if f.id in self._ids]

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<fault {self.text}{'' if self._ids else ' (removed)'}>"


def _planted_now(first: int, text: str) -> Fault:
    new = [f for f in _planted() if f.id >= first]
    if any(f.step >= 0 for f in new):
        _count_steps()
    _changed()
    return Fault([f.id for f in new], text)


def look_again() -> None:
    """New operators are there, an extension's, on which faults may have been planted before."""
    _changed()


def plant(text: str) -> Fault:
    """Plants the faults of ``text``, written as in ``ULPSCOPE_SIM_FAULTS``."""
    first, error = ctypes.c_int64(), _Error()
    if _lib.usc_sim_fault_plant(text.encode(), ctypes.byref(first), ctypes.byref(error)) != 0:
        raise ValueError(error.text.decode())
    return _planted_now(first.value, text)


def faults_from(path: str | os.PathLike[str]) -> Fault:
    """Plants the faults of a file of lines of JSON: ``{"ops": PATTERN, "kind": NAME, "output": 0,
    "params": {...}, "when": {...}, "where": {...}}`` or ``{"bug": NAME}``. All of them or none."""
    name, first, error = os.fspath(path), ctypes.c_int64(), _Error()
    lines = Path(name).read_bytes()
    if b"\0" in lines:
        raise ValueError(f"{name}: no text")
    if _lib.usc_sim_fault_plant_lines(lines, name.encode(), ctypes.byref(first), ctypes.byref(error)) != 0:
        raise ValueError(error.text.decode())
    return _planted_now(first.value, f"@{name}")


def fault(pattern: str, kind: str | None = None, **params: float | str) -> Fault:
    """Plants one fault on the operators that ``pattern`` selects, or ``"bug:NAME"`` of :func:`bugs`.

    ``kind`` is a key of :func:`fault_kinds`; ``params`` are its parameters, when it fires (``nth=3`` on the
    third call only, ``every=2``, ``p=0.1`` with ``seed=7``, ``step``, ``rank``, ``stream``, ``dtype``,
    ``layout``) and where (``index``, ``tile``, ``lane``).
    """
    if kind is None:
        if not pattern.startswith("bug:") or params:
            raise ValueError(f"fault {pattern!r}: neither a pattern with a kind nor 'bug:NAME' of sim.bugs()")
        return plant(pattern)
    settings = "".join(
        f":{key}={value if isinstance(value, str) else repr(float(value))}" for key, value in params.items()
    )
    return plant(f"{pattern}:{kind}{settings}")


def clear_faults() -> None:
    """Removes every planted fault."""
    _lib.usc_sim_fault_clear()


def faults_fired() -> list[dict[str, Any]]:
    """One row for each planted fault, in the order of planting: ``calls`` of matching
    operators, on how many it ``fired``, and on how many of these it ``changed`` a bit."""
    return [_row(f) for f in _planted()]


def _row(f: _Fault) -> dict[str, Any]:
    return {
        "fault": f.text.decode(),
        "pattern": f.pattern.decode(),
        "kind": _info(f.kind).name.decode(),
        "calls": f.n_calls,
        "fired": f.n_fired,
        "changed": f.n_changed,
    }


def fault_kinds() -> dict[str, str]:
    """What can be planted: kind to one line that says what it does, parameters included."""
    kinds, i = {}, 0
    while _lib.usc_sim_fault_info_of(i):
        info = _info(i)
        settings = ", ".join(
            f"{name.decode()}={default:g}" for name, default in zip_equal(info.params, info.defaults) if name
        )
        kinds[info.name.decode()] = info.doc.decode() + (f" ({settings})" if settings else "")
        i += 1
    return kinds


def bugs() -> dict[str, tuple[str, str]]:
    """Bugs that devices are known to have had, for ``fault("bug:NAME")``: the faults that do alike, and where
    each was told."""
    rows: dict[str, tuple[str, str]] = {}
    texts = [ctypes.c_char_p() for _ in range(3)]
    while _lib.usc_sim_bug(len(rows), *(ctypes.byref(t) for t in texts)):
        name, faults, link = ((t.value or b"").decode() for t in texts)
        rows[name] = (faults, link)
    return rows


def set_step(step: int) -> None:
    """Which training step it is, from 0, for faults with ``step=``. Optimizers of torch count it themselves."""
    _count_steps()
    _lib.usc_sim_fault_set_step(step)


def _count_steps() -> None:
    global _counts_steps
    if not _counts_steps:
        _optimizer.register_optimizer_step_post_hook(
            lambda *_: _lib.usc_sim_fault_set_step(_lib.usc_sim_fault_step() + 1)
        )
    _counts_steps = True


def _info(kind: int) -> _Info:
    info: _Info = _lib.usc_sim_fault_info_of(kind).contents
    return info


def _planted() -> list[_Fault]:
    found: list[_Fault] = []
    one = _Fault()
    while _lib.usc_sim_fault_get(len(found), ctypes.byref(one)):
        found.append(one)
        one = _Fault()
    return found
