# SPDX-License-Identifier: Apache-2.0
"""Python functions as calls of a trace: the function mode that sees them, put where it hurts
nobody. Needs torch's stack of function modes (private names, each with a way on without it).
Rows are written by the extension (python/ext/py_api.c), names are `calls.functions`.
"""

from __future__ import annotations

import functools
import os
import threading
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.functions import name_of
from ..calls.torch_private import (
    default_device_mode,
    n_function_modes,
    pop_function_mode,
    push_function_mode,
    skip_one_function_mode,
)
from . import operators
from .hooks import around
from .regions import Meeting

if TYPE_CHECKING:
    from types import ModuleType

running: list[Apis] = []  # the Apis that are installed


def _meet_all() -> None:
    for apis in list(running):
        apis._meet()


def _leave_child() -> None:
    """A forked child (a data-loader worker) records nothing."""
    while running:
        running[-1].remove()


os.register_at_fork(after_in_child=_leave_child)


def mode_for(session: Any, namer: Callable[[Any], Any] = name_of) -> Any:
    """The mode that records into a session what `namer` has a name for. RuntimeError where the glue
    cannot look into Python."""
    stack = push_function_mode, pop_function_mode, skip_one_function_mode
    kinds = (torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator)
    return _core.ApiMode(session, namer, stack, kinds)


class Operators:
    """Functions that the program made operators are seen until `remove`."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        operators.modes.append(mode)

    def remove(self) -> None:
        """They are not."""
        operators.modes[:] = [mode for mode in operators.modes if mode is not self.mode]


class Apis:
    """
    The mode on the stack of the thread that makes it, until `remove`; on that of any other
    thread from its first operator on.

    No other thread's stack can be reached from here: theirs keep the mode, which then only
    calls what it is given, until they meet what hides it, which stays for them.
    """

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self.undo: list[Callable[[], Any]] = []
        self.thread = threading.local()  # .hidden: the mode is off its stack for a while
        self.home = threading.get_ident()
        self.met = False  # other threads were
        self.active = True
        self.put_in()
        running.append(self)
        self._hide_from_fast_paths()
        meeting = Meeting(**{"torch._dynamo.eval_frame": self._hide_from_compiler})
        self.undo.append(meeting.remove)
        for name in getattr(torch.distributed, "__all__", ()) or vars(torch.distributed):
            self._see_collective(vars(torch.distributed).get(name))
        _core.meet_threads(_meet_all)

    def remove(self) -> None:
        """Takes it out, and what hides it where no other thread needs that."""
        self.active = False
        running.remove(self)
        if not running:
            _core.meet_threads(None)
        self.take_out()
        while self.undo and not self.met:
            self.undo.pop()()

    def _meet(self) -> None:
        if threading.get_ident() != self.home and not getattr(self.thread, "hidden", False):
            self.met = True
            self.put_in()

    def put_in(self) -> None:
        """Below the modes of the program, which takes them off in the order in which it put
        them on; a default device's belongs at the bottom."""
        self.thread.hidden = False
        if not self.active:
            return
        modes = [m for m in popped() if m is not self.mode]
        at = sum(isinstance(m, default_device_mode()) for m in modes[:1])
        pushed([*modes[:at], self.mode, *modes[at:]])

    def take_out(self) -> bool:
        """Whether it was there."""
        modes = popped()
        pushed([m for m in modes if m is not self.mode])
        there = any(m is self.mode for m in modes)
        self.thread.hidden = there or getattr(self.thread, "hidden", False)
        return there

    def calls(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` as a function whose calls are seen."""

        @functools.wraps(function)
        def seen(*args: Any, **kwargs: Any) -> Any:
            return self.mode.__torch_function__(function, (), args, kwargs)

        return seen

    def _see_collective(self, function: Any) -> None:
        """Functions of torch.distributed ask no mode. All that move tensors are wrapped to log
        what they raise: what is wrapped is replaced, so that it is seen by whatever name the
        program has the function."""
        if type(function) is not types.FunctionType:
            return
        wrapped = getattr(function, "__wrapped__", None)
        for cell in function.__closure__ or () if wrapped is not None else ():
            if cell.cell_contents is wrapped:
                cell.cell_contents = self.calls(wrapped)
                self.undo.append(functools.partial(setattr, cell, "cell_contents", wrapped))

    def _hide_from_fast_paths(self) -> None:
        """Modules ask whether anybody overrides functions, and take another way then."""

        def has_torch_function(original: Callable[..., Any], args: Any) -> Any:
            was_there = self.take_out()
            try:
                return original(args)
            finally:
                if was_there:
                    self.put_in()

        self.undo.append(around(torch.overrides, "has_torch_function", has_torch_function))

    def _hide_from_compiler(self, module: ModuleType) -> None:
        """A compiler would compile the mode as well, and again whenever it comes or goes."""
        original = getattr(module, "set_eval_frame", None)
        if original is None:
            return

        @functools.wraps(original)
        def set_eval_frame(callback: Any) -> Any:
            if callback is not None:
                self.take_out()
            before = original(callback)
            if callback is None and before is not None and getattr(self.thread, "hidden", False):
                self.put_in()
            return before

        for name in ("set_eval_frame", "_maybe_set_eval_frame"):
            if getattr(module, name, None) is original:
                setattr(module, name, set_eval_frame)
                self.undo.append(functools.partial(setattr, module, name, original))


def popped() -> list[Any]:
    """All modes of this thread's stack, the bottom first, taken off."""
    return [pop_function_mode() for _ in range(n_function_modes())][::-1]


def pushed(modes: Iterable[Any]) -> None:
    """Puts modes on, the first at the bottom."""
    for mode in modes:
        push_function_mode(mode)
