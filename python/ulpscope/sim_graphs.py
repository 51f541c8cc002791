# SPDX-License-Identifier: Apache-2.0
"""Graphs of the simulated device under the names of torch.cuda: what is launched on a stream is kept and run again.
Needs of torch its streams alone."""

from __future__ import annotations

import ctypes
import itertools

import torch

from .sim_memory import _Error


class _Stream(ctypes.Structure):  # usc_sim_stream
    _fields_ = [("device", ctypes.c_int), ("id", ctypes.c_int64)]


_lib = _sim = None  # use() sets them
_pools = itertools.count(1)


def use(lib: ctypes.CDLL, sim: object) -> None:
    """The runtime, and the device's module."""
    global _lib, _sim
    _lib, _sim = lib, sim
    lib.usc_sim_capture_begin.argtypes = [_Stream, ctypes.POINTER(_Error)]
    lib.usc_sim_capture_end.argtypes = [_Stream, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_Error)]
    lib.usc_sim_capturing.argtypes = [_Stream]
    lib.usc_sim_capturing.restype = ctypes.c_bool
    lib.usc_sim_graph_size.argtypes = [ctypes.c_void_p]
    lib.usc_sim_graph_size.restype = ctypes.c_size_t
    lib.usc_sim_graph_replay.argtypes = [ctypes.c_void_p, _Stream, ctypes.POINTER(_Error)]
    lib.usc_sim_graph_free.argtypes = [ctypes.c_void_p]


def _current() -> _Stream:
    stream = _sim.current_stream()
    return _Stream(stream.device_index, stream.stream_id)


def is_current_stream_capturing() -> bool:
    return _lib.usc_sim_capturing(_current())


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that graphs share; here each graph keeps all that its kernels use."""
    return (0, next(_pools))


class SimGraph:
    """The kernels and copies that were launched between ``capture_begin`` and ``capture_end``. They have not run then;
    ``replay`` runs them, on the same memory, which the graph keeps until ``reset``."""

    def __init__(self, keep_graph: bool = False):
        self._graph = ctypes.c_void_p()
        self._on = self._pool = None

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        if self._graph or self._on:
            raise RuntimeError("sim: this graph has been captured; reset() it, or make another one")
        error, self._on, self._pool = _Error(), _current(), pool or graph_pool_handle()
        if _lib.usc_sim_capture_begin(self._on, ctypes.byref(error)) != 0:
            self._on = None
            raise RuntimeError(error.text.decode())

    def capture_end(self) -> None:
        if self._on is None:
            raise RuntimeError("sim: no capture of this graph is under way")
        error, on, self._on = _Error(), self._on, None
        if _lib.usc_sim_capture_end(on, ctypes.byref(self._graph), ctypes.byref(error)) != 0:
            raise RuntimeError(error.text.decode())

    def replay(self) -> None:
        """Puts all of it on the current stream."""
        if not self._graph:
            raise RuntimeError("sim: a graph has to be captured before it is replayed")
        error = _Error()
        if _lib.usc_sim_graph_replay(self._graph, _current(), ctypes.byref(error)) != 0:
            raise RuntimeError(error.text.decode())

    def reset(self) -> None:
        """Lets its kernels and their memory go."""
        freed, self._graph = self._graph, ctypes.c_void_p()
        _lib.usc_sim_graph_free(freed)

    def pool(self) -> tuple[int, int] | None:
        return self._pool

    def __len__(self) -> int:
        """How many kernels and copies it has."""
        return _lib.usc_sim_graph_size(self._graph) if self._graph else 0

    def __bool__(self) -> bool:
        return True

    def __del__(self):
        self.reset()


class graph:
    """A context manager: what is launched in it is captured into ``cuda_graph`` and does not run. Without ``stream`` on
    one of its own."""

    def __init__(
        self,
        cuda_graph: SimGraph,  # torch.cuda's name of it
        pool: object = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,  # what a graph reads it keeps
    ):
        self._graph, self._pool = cuda_graph, pool
        self._stream = _sim.stream(stream if stream is not None else _sim.Stream())

    def __enter__(self) -> None:
        _sim.synchronize()
        self._stream.__enter__()
        try:
            self._graph.capture_begin(self._pool)
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise

    def __exit__(self, kind: type | None, *error) -> None:
        try:
            self._graph.capture_end()
        except RuntimeError:
            if kind is None:
                raise
        finally:
            self._stream.__exit__(kind, *error)
