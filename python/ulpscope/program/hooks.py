# SPDX-License-Identifier: Apache-2.0
"""Hooks into torch's Python side: where a step ends, and which nn.Module is running.

`Steps` calls back at the end of each step; `Modules` keeps the extension's per-thread
module stack while a step is recorded. Operators are not seen here (glue/intercept).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .. import _core
from ..calls.foreign import unhurt
from ..calls.torch_older import is_compiling
from ..calls.torch_private import data_loader_iterator, private_backend
from . import glue as _glue

EXIT_S = 10  # what the program's own os._exit waits for us
SOURCES = ("optimizer", "dataloader", "manual")


running: list[Steps] = []  # the Steps that are installed, innermost last
_wrapped: dict[tuple[Any, str], Wrapped] = {}  # (owner, name) -> its Wrapped


class Wrapped:
    """A function of torch with wrappers of ours around it, which come and go in any order."""

    def __init__(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)
        self.original: Any = original
        self.wrappers: list[Callable[..., Any]] = []
        self.call: Callable[..., Any] = original

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(*args, **kwargs)

        setattr(owner, name, call)

    def change(self, wrappers: list[Callable[..., Any]]) -> None:
        """These are around it from here on, the last outermost."""
        self.wrappers, call = wrappers, self.original
        for wrapper in wrappers:
            call = functools.partial(wrapper, call)
        self.call = call


def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """`wrapper(original, ...)` is called in place of `owner.name`, until what this returns is."""
    key = (owner, name)
    if key not in _wrapped:
        _wrapped[key] = Wrapped(owner, name)
    place = _wrapped[key]
    place.change([*place.wrappers, wrapper])

    def undo() -> None:
        place.change([w for w in place.wrappers if w is not wrapper])
        if not place.wrappers and _wrapped.get(key) is place:
            del _wrapped[key]
            setattr(owner, name, place.original)

    return undo


def before_os_exit(work: Callable[[], object], wanted: Callable[[], bool]) -> None:
    """A program that leaves by os._exit runs no handlers: then it runs this, where `wanted()` says so, for EXIT_S
    at most. Not in a process that it forks."""
    owner, original = os.getpid(), os._exit

    @functools.wraps(original)
    def exit_now(status: int) -> None:
        if os.getpid() == owner and wanted():
            ending = threading.Thread(target=work, daemon=True)
            ending.start()
            ending.join(EXIT_S)
        original(status)

    place: Any = os
    place._exit = exit_now


class Steps:
    """
    Tells where steps end. `at_end()` is called behind each; `at_start()` once, when the
    process shows that it has steps (it makes an optimizer, or iterates a data loader).

    What ends a step is `source`; None decides: the optimizer where there is one, else the
    data loader, else `manual_end`. Of several optimizers the one that stepped first
    counts, so that a step is one round of all of them. A data loader gives each batch inside
    of `loading()`.
    """

    def __init__(
        self,
        at_end: Callable[[], Any],
        at_start: Callable[[], Any] | None = None,
        source: str | None = None,
        loading: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        self.at_end = at_end
        self.at_start = at_start
        self.source = source
        self.loading = loading
        self.active = True
        self.has_optimizer: bool | None = None  # None: nobody asked yet
        self.leader: Any = None
        self.n_batches = 0
        self._undo: list[Callable[[], Any]] = []

    def install(self) -> None:
        """Puts the hooks in; they stay until `remove` and cost one call per step."""
        pre = register_optimizer_step_pre_hook(self._before_step)
        post = register_optimizer_step_post_hook(self._after_step)
        self._undo += [pre.remove, post.remove]
        self._wrap(torch.optim.Optimizer, "__init__", self._made_optimizer)
        self._wrap_loader()
        running.append(self)

    def remove(self) -> None:
        """Takes the hooks out. Not from inside one of them."""
        self.active = False
        running[:] = [steps for steps in running if steps is not self]
        while self._undo:
            self._undo.pop()()

    def manual_end(self) -> None:
        """The program itself says that a step ended."""
        if self.active and self.source in (None, "manual"):
            self.source = "manual"
            self.at_end()

    def _wrap(self, owner: Any, name: str, after: Callable[[], Any]) -> None:
        def wrapper(original: Callable[..., Any], this: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(this, *args, **kwargs)
            after()
            return result

        self._undo.append(around(owner, name, wrapper))

    def _start(self) -> None:
        if self.at_start is not None and self.active:
            start, self.at_start = self.at_start, None
            start()

    def _made_optimizer(self) -> None:
        self.has_optimizer = True
        if self.source in (None, "optimizer"):
            self._start()

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        _core.enter_optimizer()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        _core.leave_optimizer()
        if not self.active or self.source not in (None, "optimizer"):
            return
        leader = self.leader() if self.leader is not None else None
        if leader is None:
            self.leader, leader = weakref.ref(optimizer), optimizer
        if leader is optimizer:
            self.source = "optimizer"
            self.at_end()

    def _wrap_loader(self) -> None:
        def wrapper(original: Callable[..., Any], iterator: Any) -> Any:
            self._before_batch()
            try:
                with self.loading() if self.active else contextlib.nullcontext():
                    return original(iterator)
            except StopIteration:
                self.n_batches = 0
                raise

        self._undo.append(around(data_loader_iterator(), "__next__", wrapper))

    def _loader_counts(self) -> bool:
        if self.source is None and self.has_optimizer is None:  # it takes a look at all objects that there are
            self.has_optimizer = any(issubclass(type(o), torch.optim.Optimizer) for o in gc.get_objects())
        return self.source == "dataloader" or (self.source is None and not self.has_optimizer)

    def _before_batch(self) -> None:
        """The next batch is asked for: the step that used the last one is over."""
        if not self.active or not self._loader_counts():
            return
        self._start()
        if self.n_batches > 0:
            self.source = "dataloader"
            self.at_end()
        self.n_batches += 1


def _deactivate() -> None:
    """A forked child (a data-loader worker) has no part in this."""
    for steps in running:
        steps.active = False


os.register_at_fork(after_in_child=_deactivate)  # once: it cannot be taken back


class JoinedRanks:
    """Notes as which rank of how many this process joined a process group: programs leave
    it before they end. None: it has joined none."""

    def __init__(self) -> None:
        self.joined: tuple[int, int] | None = None
        self.undo: list[Callable[[], Any]] = []
        if not torch.distributed.is_available():
            return
        dist = torch.distributed

        def init_process_group(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self.joined = dist.get_rank(), dist.get_world_size()
            return result

        for owner in (dist, dist.distributed_c10d):
            self.undo.append(around(owner, "init_process_group", init_process_group))

    def remove(self) -> None:
        """Takes the hook out."""
        while self.undo:
            self.undo.pop()()


def graph_recorders() -> dict[str, Callable[[], bool]]:
    """By device type, the functions that tell whether this thread's stream is recording a
    graph of the device (torch.cuda.is_current_stream_capturing): of devices that are there."""
    found = {}
    for kind in ("cuda", "xpu", private_backend(), "npu", "musa"):
        module = getattr(torch, kind, None)
        ask = getattr(module, "is_current_stream_capturing", None)
        if ask is not None and getattr(module, "is_available", lambda: True)():
            found[kind] = ask
    return found


class Graphs:
    """Tells the extension whom to ask: while a graph is recorded, device memory is not read."""

    n_there = 0

    def __init__(self) -> None:
        Graphs.n_there += 1
        known = graph_recorders()
        _core.ask_graph((lambda kind: kind in known and known[kind]()) if known else None)

    def remove(self) -> None:
        """Forgets them, where nobody else needs them."""
        Graphs.n_there -= 1
        if Graphs.n_there == 0:
            _core.ask_graph(None)


class Modules:
    """Qualified names of the modules whose forward runs, told to the extension; `forwards` hears
    of each as well."""

    def __init__(self, session: Any, forwards: Any = None) -> None:
        self.session = session
        self.forwards = forwards
        self.known: dict[int, tuple[torch.nn.Module, int]] = {}  # id -> (module, kept alive; its id in the session)
        hooks = torch.nn.modules.module
        self.handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]

    def remove(self) -> None:
        """Takes the hooks out."""
        for handle in self.handles:
            handle.remove()
        self.forget()

    def forget(self) -> None:
        """Meets all modules anew: between two steps a model may have become part of another."""
        self.known.clear()

    def _add(self, path: str, module: torch.nn.Module) -> int:
        number: int = self.session.module(path, type(module).__qualname__)
        self.known[id(module)] = (module, number)
        return number

    def _meet(self, module: torch.nn.Module) -> int:
        """A module not met yet: the outermost one names all that it holds."""
        if self.session.module_depth() == 0:
            for path, inner in module.named_modules():
                if id(inner) not in self.known:
                    self._add(path, inner)
            return self.known[id(module)][1]
        return self._add(f"({type(module).__qualname__})", module)

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if is_compiling():  # it would break the graph for us
            return
        met = self.known.get(id(module))
        number = met[1] if met else 0
        if not met:
            with unhurt():  # a module that cannot be walked is run all the same
                number = self._meet(module)
        self.session.enter_module(number)
        if self.forwards is not None:
            self.forwards.enter()

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if is_compiling():
            return
        if self.forwards is not None:
            self.forwards.leave(module, args, output)
        self.session.leave_module()


class Libraries:
    """Looks for new operators, and devices, where Python registers or loads some."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.undo: list[Callable[[], Any]] = []
        self._wrap(torch.library.Library, "impl")
        self._wrap(type(torch.ops), "load_library")
        self._wrap(torch, "_register_device_module")

    def remove(self) -> None:
        """Takes the hooks out."""
        while self.undo:
            self.undo.pop()()

    def _wrap(self, owner: Any, name: str) -> None:
        def wrapper(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            for prepare in _glue.before_modes:
                prepare()
            self.session.adopt()
            return result

        self.undo.append(around(owner, name, wrapper))
