# SPDX-License-Identifier: Apache-2.0
"""Memory of the simulated device under the names of torch.cuda: ``ulpscope.sim`` has them all."""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable
from typing import Any

import torch

GUARDS = ("strict", "pages", "open")


class _Error(ctypes.Structure):  # usc_error
    _fields_ = [("status", ctypes.c_int), ("where", ctypes.c_int64), ("text", ctypes.c_char * 512)]


class _Stats(ctypes.Structure):  # usc_sim_stats
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "allocated_size",
            "peak_size",
            "reserved_size",
            "n_allocs",
            "n_maps",
            "n_opens",
            "n_waits",
            "requested_size",
            "waiting_size",
            "peak_reserved",
            "n_live",
            "n_segments",
            "n_retries",
            "n_ooms",
        )
    ]


class _Block(ctypes.Structure):  # usc_sim_block_info
    _fields_ = [
        ("device", ctypes.c_int),
        ("stream", ctypes.c_int64),
        ("segment", ctypes.c_size_t),
        ("address", ctypes.c_size_t),
        ("segment_size", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("asked", ctypes.c_size_t),
        ("live", ctypes.c_bool),
        ("waits", ctypes.c_bool),
        ("small", ctypes.c_bool),
        ("allocated", ctypes.c_char_p),
    ]


class _Action(ctypes.Structure):  # usc_sim_action_info
    _fields_ = [
        ("action", ctypes.c_int),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_int64),
        ("address", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("time", ctypes.c_int64),
        ("label", ctypes.c_char_p),
    ]


_Visit = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Block))

_lib: Any = None  # use() sets them
_current_device: Any = None
_device_count: Any = None
_fractions: dict[int, float] = {}  # by device


def use(lib: ctypes.CDLL, current_device: Callable[[], int], device_count: Callable[[], int]) -> None:
    """Declares what of the runtime is called here."""
    global _lib, _current_device, _device_count
    _lib, _current_device, _device_count = lib, current_device, device_count
    lib.usc_sim_memory_stats.restype = _Stats
    lib.usc_sim_memory_info.argtypes = [ctypes.c_int, *2 * [ctypes.POINTER(ctypes.c_size_t)]]
    lib.usc_sim_set_memory_fraction.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.POINTER(_Error)]
    lib.usc_sim_set_memory_size.argtypes = [ctypes.c_size_t]
    lib.usc_sim_set_protection.argtypes = [ctypes.c_bool]
    lib.usc_sim_set_poison.argtypes = [ctypes.c_bool]
    lib.usc_sim_snapshot.argtypes = [_Visit, ctypes.c_void_p]
    lib.usc_sim_history_start.argtypes = [ctypes.c_size_t, ctypes.POINTER(_Error)]
    lib.usc_sim_history_get.argtypes = [ctypes.c_size_t, ctypes.POINTER(_Action)]
    lib.usc_sim_history_get.restype = ctypes.c_bool
    lib.usc_sim_action_name.restype = ctypes.c_char_p


def _index(device: object) -> int:
    if isinstance(device, int):
        return device
    index = torch.device(device).index if device is not None else None
    return int(_current_device() if index is None else index)


def _there(device: object) -> int:
    """The index of a device that there is."""
    index = _index(device)
    if not 0 <= index < _device_count():
        raise RuntimeError(f"sim: there is no device {index}; there are {_device_count()}")
    return index


def _checked(status: int, error: _Error) -> None:
    if status != 0:
        raise RuntimeError(error.text.decode())


# ---- how much ----------------------------------------------------------------------------


def memory_stats(device: object = None) -> dict[str, int]:
    """The counters of ``usc_sim_stats``, bytes and blocks since the process began, and the same under
    the names that torch.cuda.memory_stats has."""
    stats = _lib.usc_sim_memory_stats(_there(device))
    mine = {name: getattr(stats, name) for name, *_ in _Stats._fields_}
    return {
        **mine,
        "allocated_bytes.all.current": stats.allocated_size,
        "allocated_bytes.all.peak": stats.peak_size,
        "reserved_bytes.all.current": stats.reserved_size,
        "reserved_bytes.all.peak": stats.peak_reserved,
        "requested_bytes.all.current": stats.requested_size,
        "active_bytes.all.current": stats.allocated_size + stats.waiting_size,
        "allocation.all.current": stats.n_live,
        "allocation.all.allocated": stats.n_allocs,
        "segment.all.current": stats.n_segments,
        "num_alloc_retries": stats.n_retries,
        "num_ooms": stats.n_ooms,
        "num_device_alloc": stats.n_maps,
    }


def memory_allocated(device: object = None) -> int:
    return memory_stats(device)["allocated_size"]


def max_memory_allocated(device: object = None) -> int:
    return memory_stats(device)["peak_size"]


def memory_reserved(device: object = None) -> int:
    return memory_stats(device)["reserved_size"]


def max_memory_reserved(device: object = None) -> int:
    return memory_stats(device)["peak_reserved"]


def reset_peak_memory_stats(device: object = None) -> None:
    _lib.usc_sim_reset_peak(_there(device))


def empty_cache() -> None:
    """Gives cached blocks back that no stream still uses."""
    _lib.usc_sim_empty_cache()


def mem_get_info(device: object = None) -> tuple[int, int]:
    """Bytes that are not reserved, and bytes that the device has."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _lib.usc_sim_memory_info(_there(device), ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def set_per_process_memory_fraction(fraction: float, device: object = None) -> None:
    """Beyond this part of what the device has, a request raises torch.OutOfMemoryError."""
    error = _Error()
    _checked(_lib.usc_sim_set_memory_fraction(_there(device), fraction, ctypes.byref(error)), error)
    _fractions[_there(device)] = fraction


def get_per_process_memory_fraction(device: object = None) -> float:
    return _fractions.get(_there(device), 1.0)


def memory_stats_as_nested_dict(device: object = None) -> dict[str, Any]:
    """memory_stats(), a level for each word between dots."""
    nested: dict[str, Any] = {}
    for key, value in memory_stats(device).items():
        *outer, last = key.split(".")
        at = nested
        for word in outer:
            at = at.setdefault(word, {})
        at[last] = value
    return nested


def reset_accumulated_memory_stats(device: object = None) -> None:
    """Counters here count since the process began; peaks begin anew."""
    reset_peak_memory_stats(device)


def memory_summary(device: object = None, abbreviated: bool = False) -> str:
    """A table of the counters, for people."""
    stats, (free, total) = memory_stats(device), mem_get_info(device)
    rows = [
        ("allocated", "allocated_size"),
        ("peak allocated", "peak_size"),
        ("requested", "requested_size"),
        ("reserved", "reserved_size"),
        ("peak reserved", "peak_reserved"),
        ("freed, used by other streams", "waiting_size"),
    ]
    lines = [f"{name:<30}{stats[key] / 2**20:>14.2f} MiB" for name, key in rows]
    lines += [f"{name:<30}{n / 2**20:>14.2f} MiB" for name, n in (("free", free), ("total", total))]
    if not abbreviated:
        lines += [
            f"{name:<30}{stats[key]:>14}"
            for name, key in (
                ("blocks", "n_live"),
                ("mappings", "n_segments"),
                ("requests", "n_allocs"),
                ("requests after a collection", "n_retries"),
                ("requests refused", "n_ooms"),
            )
        ]
    return "\n".join([f"memory of sim:{_index(device)}", *lines])


# ---- what there is -------------------------------------------------------------------------


def _frames(label: bytes | None) -> list[dict[str, Any]]:
    """Who allocated, in the form of the one frame that torch's viewer shows."""
    return [{"filename": "", "line": 0, "name": label.decode()}] if label else []


def memory_snapshot(mempool_id: object = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Every mapping with its blocks, as torch.cuda.memory_snapshot() tells of them."""
    segments: dict[tuple[int, int], dict[str, Any]] = {}

    def visit(_: object, found: Any) -> None:
        b = found.contents
        segment = segments.setdefault(
            (b.device, b.segment),
            {
                "device": b.device,
                "address": b.segment,
                "total_size": b.segment_size,
                "allocated_size": 0,
                "active_size": 0,
                "requested_size": 0,
                "stream": b.stream,
                "is_expandable": False,
                "frames": [],
                "segment_type": "small" if b.small else "large",
                "segment_pool_id": (0, 0),
                "blocks": [],
            },
        )
        state = "active_allocated" if b.live else "active_pending_free" if b.waits else "inactive"
        segment["allocated_size"] += b.size if b.live else 0
        segment["active_size"] += b.size if b.live or b.waits else 0
        segment["requested_size"] += b.asked
        segment["blocks"].append(
            {
                "address": b.address,
                "size": b.size,
                "requested_size": b.asked,
                "state": state,
                "frames": _frames(b.allocated) if b.live else [],
            }
        )

    _lib.usc_sim_snapshot(_Visit(visit), None)
    return sorted(segments.values(), key=lambda s: s["address"])


def _record_memory_history(enabled: str | None = "all", max_entries: int = 100_000, **_: object) -> None:
    """Keeps the last ``max_entries`` requests and frees; None: none."""
    error = _Error()
    _checked(_lib.usc_sim_history_start(max_entries if enabled else 0, ctypes.byref(error)), error)


def _history() -> list[list[dict[str, Any]]]:
    traces: list[list[dict[str, Any]]] = [[] for _ in range(_device_count())]
    one, i = _Action(), 0
    while _lib.usc_sim_history_get(i, ctypes.byref(one)):
        traces[one.device].append(
            {
                "action": _lib.usc_sim_action_name(one.action).decode(),
                "addr": one.address,
                "size": one.size,
                "stream": one.stream,
                "time_us": one.time // 1000,
                "frames": _frames(one.label),
            }
        )
        i += 1
    return traces


def _snapshot(device: object = None) -> dict[str, Any]:
    """What torch's memory viewer reads: segments and the history."""
    return {
        "segments": memory_snapshot(),
        "device_traces": _history(),
        "allocator_settings": {},
        "external_annotations": [],
    }


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


# ---- how it is watched ---------------------------------------------------------------------


def set_guard(guard: str, poison: bool = False) -> None:
    """How closely memory is watched from now on: ``strict`` (a mapping for each block, and bytes around it
    that must stay), ``pages`` (small tensors share pages) or ``open`` (nothing is closed: for speed).
    With ``poison``, what nobody has written is NaN."""
    if guard not in GUARDS:
        raise ValueError(f"sim: there is no guard '{guard}'; there are {', '.join(GUARDS)}")
    _lib.usc_sim_set_guard(GUARDS.index(guard))
    _lib.usc_sim_set_poison(bool(poison))


def get_guard() -> str:
    return GUARDS[_lib.usc_sim_get_guard()]


def set_protection(on: bool) -> None:
    """Off: memory stays open and host accesses go unnoticed, for runs that need speed."""
    _lib.usc_sim_set_protection(bool(on))
