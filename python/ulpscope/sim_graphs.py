# SPDX-License-Identifier: Apache-2.0
"""Graphs of the simulated device under the names of torch.cuda: what is launched on a stream is kept and run again.
Needs of torch its streams alone."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .calls.torch_private import tree_flatten, tree_unflatten
from .sim_memory import _Error


class _Stream(ctypes.Structure):  # usc_sim_stream
    _fields_ = [("device", ctypes.c_int), ("id", ctypes.c_int64)]


_lib: Any = None  # use() sets them
_sim: Any = None
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
    return bool(_lib.usc_sim_capturing(_current()))


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that graphs share; here each graph keeps all that its kernels use."""
    return (0, next(_pools))


class SimGraph:
    """The kernels and copies that were launched between ``capture_begin`` and ``capture_end``. They have not run then;
    ``replay`` runs them, on the same memory, which the graph keeps until ``reset``."""

    def __init__(self, keep_graph: bool = False):
        self._graph = ctypes.c_void_p()
        self._on: _Stream | None = None
        self._pool: object = None

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

    def pool(self) -> Any:
        return self._pool

    def __len__(self) -> int:
        """How many kernels and copies it has."""
        return int(_lib.usc_sim_graph_size(self._graph)) if self._graph else 0

    def __bool__(self) -> bool:
        return True

    def __del__(self) -> None:
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

    def __exit__(self, kind: type | None, *error: object) -> None:
        try:
            self._graph.capture_end()
        except RuntimeError:
            if kind is None:
                raise
        finally:
            self._stream.__exit__(kind, *error)


# ---- callables ------------------------------------------------------------------------------


def _tensors(nested: object) -> list[torch.Tensor]:
    return [t for t in tree_flatten(nested)[0] if isinstance(t, torch.Tensor)]


class _Captured:
    """One callable: its graphs of forward and backward, and the memory that they read and write."""

    def __init__(self, call: Callable[..., Any], arguments: tuple[Any, ...], n_warmups: int, unused: bool) -> None:
        self.inputs = _tensors(arguments)
        if len(self.inputs) != len(tree_flatten(arguments)[0]):
            raise TypeError(
                "sim: make_graphed_callables takes callables of tensors alone; sample_args have something else"
            )
        self.parameters = list(call.parameters()) if isinstance(call, torch.nn.Module) else []
        self.sources = [t for t in (*self.inputs, *self.parameters) if t.requires_grad]
        self.unused = unused
        with _sim.stream(_sim.Stream()):  # what is made once is made
            for _ in range(n_warmups):
                wanting = [t for t in _tensors(call(*arguments)) if t.requires_grad]
                if wanting and self.sources:
                    self._gradients(wanting, [torch.empty_like(t) for t in wanting])
        _sim.synchronize()
        self.forward, self.backward = SimGraph(), SimGraph()
        with graph(self.forward):
            outputs = call(*arguments)
        leaves, self.shape = tree_flatten(outputs)
        self.outputs = leaves
        wanting = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
        self.given = [torch.empty_like(t) for t in wanting]
        self.gradients: Sequence[torch.Tensor | None] = []
        if wanting and self.sources:
            with graph(self.backward):
                self.gradients = self._gradients(wanting, self.given)
        self.wanting = [any(t is w for w in wanting) for t in leaves]

    def _gradients(self, wanting: list[torch.Tensor], given: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        gradients: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            wanting, self.sources, given, allow_unused=self.unused
        )
        return gradients


def _graphed(captured: _Captured) -> Callable[..., Any]:
    def gradients_of(ctx: object, *given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        wanted = [t for t, wants in zip(given, captured.wanting) if wants]  # noqa: B905
        for own, t in zip(captured.given, wanted):  # noqa: B905
            if own.data_ptr() != t.data_ptr():
                own.copy_(t)
        captured.backward.replay()
        found = iter(captured.gradients)
        all_sources = (*captured.inputs, *captured.parameters)
        gradients = [next(found) if t.requires_grad else None for t in all_sources]
        return tuple(None if t is None else t.detach() for t in gradients)

    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for own, t in zip(captured.inputs, arguments):  # noqa: B905 (as old as Python 3.9)
                if own.data_ptr() != t.data_ptr():
                    own.copy_(t)
            captured.forward.replay()
            return tuple(t.detach() for t in captured.outputs)

        backward = staticmethod(torch.autograd.function.once_differentiable(gradients_of))

    def call(*arguments: object) -> object:
        out = Graphed.apply(*_tensors(arguments), *captured.parameters)
        return tree_unflatten(list(out), captured.shape)

    return call


def make_graphed_callables(
    callables: Any,
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: object = None,  # torch.cuda's; each graph keeps its own memory here
) -> Any:
    """``callables``, modules or functions of tensors, whose forward and backward are replayed. The tensors of
    ``sample_args`` are the memory that they read; a module in another mode (train or eval) than then runs as it is."""
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    if torch.is_autocast_enabled("sim") and torch.is_autocast_cache_enabled():
        raise RuntimeError("sim: make_graphed_callables does not keep what autocast caches; set cache_enabled=False")
    made = []
    for call, arguments in zip(callables, sample_args):  # noqa: B905 (as old as Python 3.9)
        replayed = _graphed(_Captured(call, arguments, num_warmup_iters, allow_unused_input))
        made.append(_placed(call, replayed) if isinstance(call, torch.nn.Module) else replayed)
    return made[0] if single else tuple(made)


def _placed(module: torch.nn.Module, replayed: Callable[..., Any]) -> torch.nn.Module:
    mode, own = module.training, module.forward

    def forward(*arguments: object) -> object:
        return replayed(*arguments) if module.training == mode else own(*arguments)

    module.forward = forward
    return module
