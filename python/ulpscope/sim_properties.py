# SPDX-License-Identifier: Apache-2.0
"""What the simulated device says it is, under the names of torch.cuda, and its profiles: ``ulpscope.sim`` has
them all."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, NamedTuple

import torch

from . import sim_memory
from .sim_memory import _Error

_lib: Any = None  # use() sets it


class _Row(ctypes.Structure):  # usc_sim_profile
    _fields_ = [
        ("text", ctypes.c_char * 128),
        ("lacks", ctypes.c_char * 128),
        ("n_devices", ctypes.c_int64),
        ("memory_size", ctypes.c_int64),
        ("warp_size", ctypes.c_int64),
        ("shared_size", ctypes.c_int64),
        ("doc", ctypes.c_char_p),
    ]


class _Properties(NamedTuple):
    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    shared_memory_per_block: int
    profile: str


def use(lib: ctypes.CDLL) -> None:
    """Declares what of the runtime is called here."""
    global _lib
    _lib = lib
    lib.usc_sim_profile_set.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Error)]
    lib.usc_sim_profile_get.argtypes = [ctypes.POINTER(_Row)]
    lib.usc_sim_profile_row.argtypes = [ctypes.c_size_t, ctypes.POINTER(_Row)]
    lib.usc_sim_profile_row.restype = ctypes.c_bool
    lib.usc_sim_set_log.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Error)]
    lib.usc_sim_lacks.argtypes = [ctypes.c_char_p]
    lib.usc_sim_lacks.restype = ctypes.c_bool


def _profile() -> _Row:
    row = _Row()
    _lib.usc_sim_profile_get(ctypes.byref(row))
    return row


def _set_profile(text: str) -> None:
    error = _Error()
    if _lib.usc_sim_profile_set(text.encode(), ctypes.byref(error)) != 0:
        raise ValueError(error.text.decode())


_visible: str | None = None  # as read last, with what it left of how many
_left = _whole = -1


def see_devices() -> None:
    """``ULPSCOPE_SIM_VISIBLE_DEVICES`` leaves some of the profile's devices: as with CUDA's, those behind one that is
    not there are not seen, and until a device is used it may be set anew."""
    global _visible, _left, _whole
    visible = os.environ.get("ULPSCOPE_SIM_VISIBLE_DEVICES")
    if visible == _visible:
        return
    row = _profile()
    if row.n_devices != _left:  # not what this left: a profile's own
        _whole = row.n_devices
    count = _whole if visible is None else 0
    for word in (visible or "").split(","):
        if not word.strip().isdigit() or int(word) >= _whole:
            break
        count += 1
    _visible = visible
    with contextlib.suppress(ValueError):  # one is used already
        _set_profile(f"{row.text.decode()}:devices={count}")
        _left = count


def from_environment() -> None:
    """ULPSCOPE_SIM_PROFILE, ULPSCOPE_SIM_VISIBLE_DEVICES, ULPSCOPE_SIM_LOG."""
    if os.environ.get("ULPSCOPE_SIM_PROFILE"):
        _set_profile(os.environ["ULPSCOPE_SIM_PROFILE"])
    see_devices()
    error = _Error()
    if _lib.usc_sim_set_log(os.environ.get("ULPSCOPE_SIM_LOG", "").encode(), ctypes.byref(error)) != 0:
        raise ValueError(error.text.decode())


class profile:
    """From now on, or for a ``with`` block, the devices are what a row of :func:`profiles` says, written as in
    ``ULPSCOPE_SIM_PROFILE``; keys change it: ``profile("full", memory="2G", lacks="float64")``. What there is
    in memory stays; the number of devices can only be chosen before one is used."""

    def __init__(self, name: str, **keys: object):
        self._before = _profile().text.decode()
        _set_profile(name + "".join(f":{key}={value}" for key, value in keys.items()))

    def off(self) -> None:
        _set_profile(self._before)

    def __enter__(self) -> profile:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()


def profiles() -> dict[str, str]:
    """What can be chosen: name to one line that says what it is."""
    rows: dict[str, str] = {}
    row = _Row()
    while _lib.usc_sim_profile_row(len(rows), ctypes.byref(row)):
        rows[row.text.decode()] = row.doc.decode()
    return rows


def get_profile() -> str:
    return str(_profile().text.decode())


def lacks(dtype: torch.dtype) -> bool:
    """Whether the device has no tensors of a dtype."""
    return bool(_lib.usc_sim_lacks(str(dtype).removeprefix("torch.").encode()))


def get_device_name(device: object = None) -> str:
    return "Ulpscope simulated accelerator"


def get_device_capability(device: object = None) -> tuple[int, int]:
    return 1, 0


def get_device_properties(device: object = None) -> _Properties:
    """What the device is; without a profile it has as much memory as the machine, and a processor for each of
    its own."""
    total, row = sim_memory.mem_get_info(device)[1], _profile()
    return _Properties(
        get_device_name(device),
        *get_device_capability(device),
        total,
        os.cpu_count() or 1,
        row.warp_size,
        row.shared_size,
        row.text.decode(),
    )


def can_device_access_peer(device: object, peer_device: object) -> bool:
    """Copies go from each device to each other one; kernels read one device's memory."""
    return sim_memory._index(device) != sim_memory._index(peer_device)


def is_tf32_supported() -> bool:
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [dtype for dtype in (torch.bfloat16, torch.float16) if not lacks(dtype)]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return not lacks(torch.bfloat16)


def ipc_collect() -> None:
    """Nothing is shared between processes."""
