# SPDX-License-Identifier: Apache-2.0
"""The simulated accelerator ``sim``: a real torch device whose faults are known.

``import ulpscope.sim`` registers it (``import ulpscope`` alone does not); from then on
``torch.randn(3, device="sim")`` works, and this module is ``torch.sim``. Its memory faults
when the host touches it, and its operators compute what the CPU computes, bit by bit,
unless a fault is planted::

    with ulpscope.sim.fault("aten::mm", "tf32"):
        y = a @ b

``ULPSCOPE_SIM_FAULTS`` plants faults at import: ``PATTERN:KIND[:key=value]...`` with ``;``
between them. Streams are synchronous; LSTM cells, collectives and device timelines of the
profiler are not there.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys

import torch

from .calls.older import zip_equal
from .calls.torch_private import has_kernel, private_backend
from .program import glue

Stream = torch.Stream


class _Event:
    """For a torch without events of its own: the device is done as soon as it is asked."""

    def __init__(self, *_, **__):
        pass

    def record(self, stream=None):
        """Nothing is pending that it could stand behind."""

    wait = synchronize = record

    def query(self):
        return True


Event = getattr(torch, "Event", _Event)


class _Error(ctypes.Structure):  # usc_error
    _fields_ = [("status", ctypes.c_int), ("where", ctypes.c_int64),
                ("text", ctypes.c_char * 512)]


class _Stats(ctypes.Structure):  # usc_sim_stats
    _fields_ = [(name, ctypes.c_int64) for name in (
        "allocated_size", "peak_size", "reserved_size", "n_allocs", "n_maps", "n_opens",
        "n_waits", "requested_size", "waiting_size", "peak_reserved", "n_live", "n_segments",
        "n_retries", "n_ooms")]


class _Info(ctypes.Structure):  # usc_sim_fault_info
    _fields_ = [("name", ctypes.c_char_p), ("stage", ctypes.c_int),
                ("params", ctypes.c_char_p * 2), ("defaults", ctypes.c_double * 2),
                ("doc", ctypes.c_char_p)]


class _Fault(ctypes.Structure):  # usc_sim_fault
    _fields_ = [("id", ctypes.c_int64), ("text", ctypes.c_char * 256),
                ("pattern", ctypes.c_char * 256), ("kind", ctypes.c_int),
                ("params", ctypes.c_double * 2), ("nth", ctypes.c_int64),
                ("every", ctypes.c_int64), ("p", ctypes.c_double), ("seed", ctypes.c_uint64),
                ("n_calls", ctypes.c_int64), ("n_fired", ctypes.c_int64),
                ("n_changed", ctypes.c_int64)]


def _load_runtime() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(glue.PACKAGE / "libulpscope_sim.so"))
    lib.usc_sim_fault_plant.argtypes = [
        ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(_Error)]
    lib.usc_sim_fault_remove.argtypes = [ctypes.c_int64]
    lib.usc_sim_fault_get.argtypes = [ctypes.c_size_t, ctypes.POINTER(_Fault)]
    lib.usc_sim_fault_get.restype = ctypes.c_bool
    lib.usc_sim_fault_info_of.restype = ctypes.POINTER(_Info)
    lib.usc_sim_memory_stats.restype = _Stats
    lib.usc_sim_set_protection.argtypes = [ctypes.c_bool]
    return lib


def _load_glue() -> ctypes.CDLL:
    lib = glue.load("sim")
    lib.usc_glue_sim_register.restype = ctypes.c_char_p
    lib.usc_glue_sim_seed.argtypes = [ctypes.c_int, ctypes.c_uint64]
    lib.usc_glue_sim_initial_seed.restype = ctypes.c_uint64
    state = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int64]
    lib.usc_glue_sim_get_rng_state.argtypes = state
    lib.usc_glue_sim_get_rng_state.restype = ctypes.c_int64
    lib.usc_glue_sim_set_rng_state.argtypes = state
    return lib


def _refuse_another_backend() -> None:
    """Torch has one PrivateUse1 slot; whoever came first keeps it."""
    name = private_backend()
    taken = has_kernel(
        "aten::empty.memory_format", "PrivateUse1")
    if name not in ("privateuseone", "sim") or taken:
        raise RuntimeError(
            f"the simulated device cannot be registered: torch has room for one extension "
            f"device, and '{name}' is already there; use a process that does not load it")


def _register() -> None:
    _refuse_another_backend()
    torch.utils.rename_privateuse1_backend("sim")
    why = _lib_glue.usc_glue_sim_register().decode()
    if why:
        raise RuntimeError(f"the simulated device cannot be registered: {why}")
    torch._register_device_module("sim", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


# ---- faults ----------------------------------------------------------------------------


class Fault:
    """Planted faults; ``remove()`` or leaving a ``with`` block takes them out again."""

    def __init__(self, ids: list[int], text: str):
        self._ids, self.text = ids, text

    def remove(self) -> None:
        for i in self._ids:
            _lib.usc_sim_fault_remove(i)
        self._ids = []

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<fault {self.text}{'' if self._ids else ' (removed)'}>"


def plant(text: str) -> Fault:
    """Plants the faults of ``text``, written as in ``ULPSCOPE_SIM_FAULTS``."""
    first, error = ctypes.c_int64(), _Error()
    if _lib.usc_sim_fault_plant(text.encode(), ctypes.byref(first), ctypes.byref(error)) != 0:
        raise ValueError(error.text.decode())
    _lib_glue.usc_glue_sim_faults_changed()
    return Fault([f.id for f in _planted() if f.id >= first.value], text)


def fault(pattern: str, kind: str, **params: float) -> Fault:
    """Plants one fault on the operators that ``pattern`` selects.

    ``kind`` is a key of :func:`fault_kinds`; ``params`` are its parameters and when it
    fires: ``nth=3`` on the third call only, ``every=2``, ``p=0.1`` with ``seed=7``.
    """
    settings = "".join(f":{key}={float(value)!r}" for key, value in params.items())
    return plant(f"{pattern}:{kind}{settings}")


def clear_faults() -> None:
    """Removes every planted fault."""
    _lib.usc_sim_fault_clear()


def faults_fired() -> list[dict]:
    """One row for each planted fault, in the order of planting: ``calls`` of matching
    operators, on how many it ``fired``, and on how many of these it ``changed`` a bit."""
    return [{"fault": f.text.decode(), "pattern": f.pattern.decode(),
             "kind": _info(f.kind).name.decode(), "calls": f.n_calls, "fired": f.n_fired,
             "changed": f.n_changed} for f in _planted()]


def fault_kinds() -> dict[str, str]:
    """What can be planted: kind to one line that says what it does, parameters included."""
    kinds, i = {}, 0
    while _lib.usc_sim_fault_info_of(i):
        info = _info(i)
        settings = ", ".join(f"{name.decode()}={default:g}" for name, default in
                             zip_equal(info.params, info.defaults) if name)
        kinds[info.name.decode()] = info.doc.decode() + (f" ({settings})" if settings else "")
        i += 1
    return kinds


def _info(kind: int) -> _Info:
    return _lib.usc_sim_fault_info_of(kind).contents


def _planted() -> list[_Fault]:
    found, one = [], _Fault()
    while _lib.usc_sim_fault_get(len(found), ctypes.byref(one)):
        found.append(one)
        one = _Fault()
    return found


# ---- what torch asks of a device module ------------------------------------------------


def _index(device=None) -> int:
    if isinstance(device, int):
        return device
    index = torch.device(device).index if device is not None else None
    return current_device() if index is None else index


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def init() -> None:
    """Nothing is left to do once the module is imported."""


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return False  # a forked child owns a copy of the device


def device_count() -> int:
    return _lib_glue.usc_glue_sim_device_count()


def current_device() -> int:
    return _lib_glue.usc_glue_sim_current_device()


def set_device(device) -> None:
    if _lib_glue.usc_glue_sim_set_device(_index(device)) != 0:
        raise RuntimeError(f"sim: there is no device {device}; there are {device_count()}")


class device:
    """Context manager that changes the current device."""

    def __init__(self, device):
        self._wanted = _index(device)

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self._wanted)

    def __exit__(self, *_) -> None:
        set_device(self._before)


def get_device_name(device=None) -> str:
    return "Ulpscope simulated accelerator"


def synchronize(device=None) -> None:
    """Returns at once: nothing is ever pending."""


def current_stream(device=None) -> torch.Stream:
    index = _index(device)
    if not hasattr(torch, "accelerator"):
        return torch.Stream(stream_id=0, device_index=index, device_type=20)  # PrivateUse1
    return torch.accelerator.current_stream(torch.device("sim", index))


def stream(stream: torch.Stream) -> torch.Stream:
    """A context manager that makes ``stream`` the current one."""
    return stream


def manual_seed(seed: int) -> None:
    _lib_glue.usc_glue_sim_seed(current_device(), int(seed) & (2**64 - 1))


def manual_seed_all(seed: int) -> None:
    for i in range(device_count()):
        _lib_glue.usc_glue_sim_seed(i, int(seed) & (2**64 - 1))


def initial_seed() -> int:
    return _lib_glue.usc_glue_sim_initial_seed(current_device())


def get_rng_state(device="sim") -> torch.Tensor:
    size = _lib_glue.usc_glue_sim_get_rng_state(_index(device), None, 0)
    state = torch.empty(size, dtype=torch.uint8, device="cpu")
    _lib_glue.usc_glue_sim_get_rng_state(_index(device), state.data_ptr(), size)
    return state


def set_rng_state(new_state: torch.Tensor, device="sim") -> None:
    state = new_state.to("cpu", torch.uint8).contiguous()
    if _lib_glue.usc_glue_sim_set_rng_state(
            _index(device), state.data_ptr(), state.numel()) != 0:
        raise RuntimeError("sim: these bytes are no generator state")


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def memory_stats(device=None) -> dict[str, int]:
    """The counters of ``usc_sim_stats``: bytes and blocks since the process began."""
    stats = _lib.usc_sim_memory_stats(_index(device))
    return {name: getattr(stats, name) for name, _ in _Stats._fields_}


def memory_allocated(device=None) -> int:
    return memory_stats(device)["allocated_size"]


def max_memory_allocated(device=None) -> int:
    return memory_stats(device)["peak_size"]


def memory_reserved(device=None) -> int:
    return memory_stats(device)["reserved_size"]


def reset_peak_memory_stats(device=None) -> None:
    _lib.usc_sim_reset_peak(_index(device))


def empty_cache() -> None:
    _lib.usc_sim_empty_cache()


def set_protection(on: bool) -> None:
    """Off: memory stays open and host accesses go unnoticed, for runs that need speed."""
    _lib.usc_sim_set_protection(bool(on))


def tell_idle() -> None:
    """Names, at the end of a program that used the device, the faults of ULPSCOPE_SIM_FAULTS that no
    call met. A check's workers do not: what one of them did not meet another did."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if (main is not None and main.name.startswith("ulpscope")) or memory_stats()["n_allocs"] == 0:
        return
    idle = [one["fault"] for one in faults_fired() if one["calls"] == 0]
    if idle:
        print(f"ulpscope: sim: planted, but met by no call: {'; '.join(idle)} (composite operators run as those "
              "below them there: layer_norm as native_layer_norm, linear as addmm)", file=sys.stderr)  # fmt: skip


_lib = _load_runtime()
_refuse_another_backend()  # before its time is spent on compiling
_lib_glue = _load_glue()
plant(os.environ.get("ULPSCOPE_SIM_FAULTS", ""))  # before a device is there: what is wrong is said each time
_register()
if _planted():
    atexit.register(tell_idle)
atexit.register(_lib_glue.usc_glue_sim_settle)
