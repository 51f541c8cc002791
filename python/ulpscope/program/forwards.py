# SPDX-License-Identifier: Apache-2.0
"""Forwards of modules as calls of a trace (`capture --level module`): what went in and came out,
also where a compiler runs what lies between; and their backward passes, by the gradients that come
in and go out, also those of parameters. Needs what `apis.mode_for` does, and autograd's number of
the next node (a private name; without it there are no backward passes). A forward is written down
when a module is left, inputs as they are then, with the number of calls before it was entered, so
that it is known what lies inside.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from ..calls.torch_private import sequence_number
from . import apis

# src/call knows both: nothing that could be run again
NAME, BACKWARD = "module.forward", "module.backward"

WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")  # as in src/diff


class Forwards:
    """Writes down what `Modules` meets."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.thread = threading.local()  # .open: of each module, calls and nodes before it
        self.mode = apis.mode_for(session, lambda function: (NAME, frozenset()))

    def enter(self) -> None:
        """A module begins."""
        node = sequence_number() if sequence_number is not None else None
        self._open().append((self.session.counts()["calls"], node))

    def leave(self, module: torch.nn.Module, args: Sequence[Any], output: Any) -> None:
        """It ends; before the session leaves it."""
        if not self._open():  # it began before the capture did
            return
        begun, node = self._open().pop()
        self.thread.ended = module, node, output
        try:
            self.mode.__torch_function__(self._forward, (), args, {"from": begun})
        finally:
            self.thread.ended = None

    def _open(self) -> list[Any]:
        try:
            opened: list[Any] = self.thread.open
        except AttributeError:
            self.thread.open = opened = []
        return opened

    def _forward(self, *inputs: Any, **begun: Any) -> Any:
        module, node, output = self.thread.ended
        if node is not None and torch.is_grad_enabled():
            self.mode.graph(BACKWARD, node, _parameters(module))
        return output


def _parameters(module: torch.nn.Module) -> dict[str, Any]:
    """By the paths of their gradients; those of wrappers are what they wrap."""
    found = {}
    for name, parameter in module.named_parameters():
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")
        found[f"grad[{name}]"] = parameter
    return found
