# SPDX-License-Identifier: Apache-2.0
"""The simulated accelerator ``sim``: a real torch device whose faults are known.

``import ulpscope.sim`` registers it (``import ulpscope`` alone does not); from then on
``torch.randn(3, device="sim")`` works, and this module is ``torch.sim``. Its memory faults
when the host touches it, and its operators compute what the CPU computes, bit by bit,
unless a fault is planted::

    with ulpscope.sim.fault("aten::mm", "tf32"):
        y = a @ b

``ULPSCOPE_SIM_FAULTS`` plants faults at import: ``PATTERN:KIND[:key=value]...`` with ``;``
between them, ``bug:NAME``, or ``@FILE`` of lines of JSON. Kernels run when their stream's turn comes, and not when they
are called, unless ``ULPSCOPE_SIM_LAUNCH_BLOCKING=1`` or :func:`set_launch_blocking` has them run in step. ``simccl`` is
its backend of torch.distributed.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from typing import TYPE_CHECKING, Any

import torch

from . import (
    _core,
    sim_amp as amp,
    sim_backends,
    sim_faults,
    sim_graphs,
    sim_inductor,
    sim_memory,
    sim_numerics,
    sim_properties,
    sim_random,
    sim_share,
)
from .calls.torch_private import has_kernel, private_backend, register_device_module
from .program import glue
from .sim_faults import (  # noqa: F401
    Fault,
    bugs,
    clear_faults,
    fault,
    fault_kinds,
    faults_fired,
    faults_from,
    plant,
    set_step,
)
from .sim_graphs import (  # noqa: F401
    SimGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from .sim_memory import (  # noqa: F401
    _dump_snapshot,
    _Error,
    _record_memory_history,
    _snapshot,
    empty_cache,
    get_guard,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_guard,
    set_per_process_memory_fraction,
    set_protection,
)
from .sim_numerics import numerics, numerics_sets  # noqa: F401
from .sim_properties import (  # noqa: F401
    can_device_access_peer,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_profile,
    ipc_collect,
    is_bf16_supported,
    is_tf32_supported,
    lacks,
    profile,
    profiles,
)
from .sim_random import (  # noqa: F401
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    random,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

if TYPE_CHECKING:
    import datetime


class _NoEvent:
    """For a torch without events of its own: the device is done as soon as it is asked."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Nothing is pending that it could stand behind."""

    wait = synchronize = record

    def query(self) -> bool:
        return True


class Stream(torch.Stream):
    """A queue of commands: those in it run one after the other. Streams of priority below 0 begin first."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        if kwargs:
            made: Stream = super().__new__(cls, **kwargs)
        else:
            made = super().__new__(cls, device=torch.device("sim", _index(device)), priority=priority)
        return made


class _AnyEvent(type):
    def __instancecheck__(cls, it: object) -> bool:
        return isinstance(it, torch.Event) and it.device.type == "sim"


class _Event(metaclass=_AnyEvent):  # torch.Event asks for itself where it is given another one
    """A point in a stream, to wait for or, with ``enable_timing``, to measure from."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        return torch.Event(device="sim", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


Event = _Event if hasattr(torch, "Event") else _NoEvent
if not hasattr(torch, "accelerator"):  # an older torch makes its streams otherwise
    globals()["Stream"] = torch.Stream


class _Schedule(ctypes.Structure):  # usc_sim_schedule_options
    _fields_ = [("seed", ctypes.c_uint64), ("delay", ctypes.c_double)]


def _load_runtime() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(glue.PACKAGE / "libulpscope_sim.so"))
    lib.usc_sim_schedule.argtypes = [ctypes.POINTER(_Schedule)]
    lib.usc_sim_launch_blocking.restype = ctypes.c_bool
    lib.usc_sim_device_synchronize.argtypes = [ctypes.c_int, ctypes.POINTER(_Error)]
    sim_properties.use(lib)
    sim_numerics.use(lib, lambda: synchronize_all())
    sim_faults.use(lib, lambda: _lib_glue.usc_glue_sim_faults_changed())
    sim_inductor.use(lib, sys.modules[__name__])
    sim_graphs.use(lib, sys.modules[__name__])
    sim_share.use(lib, sys.modules[__name__])
    sim_memory.use(lib, lambda: current_device(), lambda: device_count())
    return lib


def _load_glue() -> ctypes.CDLL:
    lib = glue.load("sim")
    lib.usc_glue_sim_register.restype = ctypes.c_char_p
    sim_random.use(lib)
    return lib


def _refuse_another_backend() -> None:
    """Torch has one PrivateUse1 slot; whoever came first keeps it."""
    name = private_backend()
    taken = has_kernel("aten::empty.memory_format", "PrivateUse1")
    if name not in ("privateuseone", "sim") or taken:
        raise RuntimeError(
            f"the simulated device cannot be registered: torch has room for one extension "
            f"device, and '{name}' is already there; use a process that does not load it"
        )


def _register_ranks() -> None:
    """``init_process_group("simccl")``: its glue is compiled once somebody asks for it."""
    if not torch.distributed.is_available():
        return

    def make(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
        lib = ctypes.PyDLL(str(glue.ready("simccl")))
        lib.usc_glue_simccl_make.restype = ctypes.py_object
        lib.usc_glue_simccl_make.argtypes = [ctypes.py_object, ctypes.c_int, ctypes.c_int, ctypes.c_double]
        _lib.usc_sim_fault_set_rank(rank)
        return lib.usc_glue_simccl_make(store, rank, size, timeout.total_seconds())

    torch.distributed.Backend.register_backend("simccl", make, devices=["sim"])


def _register() -> None:
    _refuse_another_backend()
    torch.utils.rename_privateuse1_backend("sim")
    why = _lib_glue.usc_glue_sim_register().decode()
    if why:
        raise RuntimeError(f"the simulated device cannot be registered: {why}")
    global _profiled
    _profiled = bool(_lib_glue.usc_glue_sim_register_profiler())
    register_device_module("sim", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    sys.modules["torch.sim.amp"] = amp
    sim_backends.register(_lib)
    sim_share.register()
    _register_ranks()


# ---- what torch asks of a device module ------------------------------------------------


def _index(device: Any = None) -> int:
    if isinstance(device, int):
        return device
    index = torch.device(device).index if device is not None else None
    return current_device() if index is None else index


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return True


def init() -> None:
    """Nothing is left to do once the module is imported."""


_lazy_init = init
_initialized = True  # for torch.utils.checkpoint, which keeps random states of what was used


def _is_in_bad_fork() -> bool:
    return False  # a forked child owns a copy of the device


def device_count() -> int:
    sim_properties.see_devices()
    return int(_lib_glue.usc_glue_sim_device_count())


def current_device() -> int:
    return int(_lib_glue.usc_glue_sim_current_device())


def set_device(device: object) -> None:
    if _lib_glue.usc_glue_sim_set_device(_index(device)) != 0:
        raise RuntimeError(f"sim: there is no device {device}; there are {device_count()}")


class device:
    """Context manager that changes the current device."""

    def __init__(self, device: Any) -> None:
        self._wanted = _index(device)

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self._wanted)

    def __exit__(self, *_: object) -> None:
        set_device(self._before)


class device_of(device):
    """The same for a tensor's device; one of another device changes nothing."""

    def __init__(self, obj: torch.Tensor):
        super().__init__(obj.device if obj.device.type == "sim" else current_device())


# ---- streams -----------------------------------------------------------------------------


def synchronize(device: object = None) -> None:
    """Waits for all streams of a device, and raises what a kernel there said."""
    error = _Error()
    _lib.usc_sim_wait(_index(device))
    if _lib.usc_sim_device_synchronize(_index(device), ctypes.byref(error)) != 0:
        raise RuntimeError(error.text.decode())


def current_stream(device: object = None) -> torch.Stream:
    index = _index(device)
    if not hasattr(torch, "accelerator"):
        return torch.Stream(stream_id=0, device_index=index, device_type=20)  # PrivateUse1
    return torch.accelerator.current_stream(torch.device("sim", index))


def default_stream(device: object = None) -> torch.Stream:
    now = current_stream(device)
    return torch.Stream(stream_id=0, device_index=now.device_index, device_type=now.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream`` the one this thread uses on its device; None: nothing changes."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class stream:
    """A context manager that makes ``stream`` the current one; None: nothing changes."""

    def __init__(self, stream: torch.Stream | None):
        self._wanted = stream

    def __enter__(self) -> None:
        if self._wanted is not None:
            self._wanted.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._wanted is not None:
            self._wanted.__exit__(*error)


StreamContext = stream


def set_launch_blocking(on: bool) -> None:
    """On: a kernel has run when its call returns, and what it says is raised there. Off, as at the start: it
    runs when its stream's turn comes."""
    synchronize_all()
    _lib_glue.usc_glue_sim_set_launch_blocking(int(bool(on)))


def launch_blocking() -> bool:
    return bool(_lib.usc_sim_launch_blocking())


def has_profiler() -> bool:
    """Whether this torch's profiler (``torch.profiler``) takes in what the device's streams run."""
    return _profiled


def synchronize_all() -> None:
    for i in range(device_count()):
        synchronize(i)


class schedule:
    """From now on a seed, and not the machine, orders what the program left unordered: a wait that is
    missing shows with one of few seeds, and each time with that one. ``delay`` is how much is held back
    until somebody waits, from 0 to 1. Ends with ``off()`` or the ``with`` block."""

    def __init__(self, seed: int, delay: float = 0.9):
        if not 0 <= delay <= 1:
            raise ValueError(f"sim: a delay of {delay}; it is in 0 to 1")
        self._blocking = launch_blocking()
        self._said = f"<schedule: seed {seed}, delay {delay:g}>"
        set_launch_blocking(False)
        _lib.usc_sim_schedule(ctypes.byref(_Schedule(seed & (2**64 - 1), delay)))

    def __repr__(self) -> str:
        return self._said

    def off(self) -> None:
        _lib.usc_sim_schedule(None)
        set_launch_blocking(self._blocking)

    def __enter__(self) -> schedule:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()


def __getattr__(name: str) -> object:
    if name in sim_inductor.NAMES:  # asked for by torch.compile; loading it takes seconds
        globals()[name] = sim_inductor.part(name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- the end of a program -----------------------------------------------------------------


def tell_idle() -> None:
    """Names, at the end of a program that used the device, the faults of ULPSCOPE_SIM_FAULTS that no
    call met. A check's workers do not: what one of them did not meet another did."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if (main is not None and main.name.startswith("ulpscope")) or memory_stats()["n_allocs"] == 0:
        return
    idle = [one["fault"] for one in faults_fired() if one["calls"] == 0]
    if idle:
        print(
            f"ulpscope: sim: planted, but met by no call: {'; '.join(idle)} (composite operators run as those "
            "below them there: layer_norm as native_layer_norm, linear as addmm)",
            file=sys.stderr,
        )


def _finish() -> None:
    """What is queued runs before the process ends; an error that nobody waited for is told."""
    if _lib.usc_sim_was_interrupted():
        return  # and may never end
    error = _Error()
    if _lib.usc_sim_device_synchronize(-1, ctypes.byref(error)) != 0:
        print(f"ulpscope: sim: {error.text.decode()}", file=sys.stderr)


seed = sim_random.seed
_profiled = False
_lib = _load_runtime()
_refuse_another_backend()  # before its time is spent on compiling
_lib_glue = _load_glue()
plant(os.environ.get("ULPSCOPE_SIM_FAULTS", ""))  # before a device is there: what is wrong is said each time
sim_properties.from_environment()
_register()
sys.modules[f"{__name__}.amp"] = amp  # a module of torch.cuda's, too
default_generators = sim_random.default_generators()
if os.environ.get("ULPSCOPE_SIM_GUARD"):
    set_guard(os.environ["ULPSCOPE_SIM_GUARD"])
random(os.environ.get("ULPSCOPE_SIM_RANDOM") or None)
set_launch_blocking(os.environ.get("ULPSCOPE_SIM_LAUNCH_BLOCKING", "0") not in ("", "0"))
if faults_fired():
    atexit.register(tell_idle)
atexit.register(_lib_glue.usc_glue_sim_settle)
glue.before_modes.append(_lib_glue.usc_glue_sim_before_modes)
atexit.register(_finish)
_lib.usc_sim_was_interrupted.restype = ctypes.c_bool
_lib.usc_sim_on_wait(ctypes.c_void_p(_core.interrupted_address()))
if os.environ.get("ULPSCOPE_SIM_OPS"):
    from . import extension

    extension._load_wanted()
