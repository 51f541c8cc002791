# SPDX-License-Identifier: Apache-2.0
"""What ran past the recorder: graphs that a compiler turned into code of its own. Their calls
never come to the dispatcher, so that a trace cannot hold them; it says how many there were."""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where torch keeps what runs generated code: module, class (its subclasses too).
PLACES = (
    ("torch._inductor.output_code", "OutputCode"),
    ("torch._inductor.codecache", "CompiledFxGraph"),  # before 2.6
    ("torch._inductor.package.package", "AOTICompiledModel"),
)


class Meeting:
    """Calls `met(module)` for modules that are there, and for others when the program imports
    them: it loads nothing itself."""

    def __init__(self, **met: Callable[[Any], Any]) -> None:
        self.waits = {name: f for name, f in met.items() if name not in sys.modules}
        for name in met.keys() - self.waits.keys():
            met[name](sys.modules[name])
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Waits no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Python's question where a module is: of those waited for, to be there behind it."""
        met = self.waits.pop(name, None)
        if met is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if self in sys.meta_path:
                met(module)

        setattr(spec.loader, "exec_module", exec_module)  # noqa: B010
        return spec


class Regions:
    """Counts generated graphs while it is installed, each once however often it runs."""

    def __init__(self, ran: dict[int, Any]) -> None:
        self.ran = ran  # id -> graph, kept alive so that no other gets its id
        self.undo: list[Callable[[], Any]] = []
        self.meeting = Meeting(**{name: functools.partial(self._watch, owner) for name, owner in PLACES})

    def remove(self) -> None:
        """Takes the hooks out."""
        self.meeting.remove()
        while self.undo:
            self.undo.pop()()

    def _watch(self, name: str, module: Any) -> None:
        owner = getattr(module, name, None)
        if not isinstance(owner, type):
            return
        for one in (owner, *_below(owner)):
            if "__call__" in vars(one):
                self._wrap(one)

    def _wrap(self, owner: type) -> None:
        from .hooks import around

        def call(original: Callable[..., Any], this: Any, *args: Any, **kwargs: Any) -> Any:
            self.ran.setdefault(id(this), this)
            return original(this, *args, **kwargs)

        self.undo.append(around(owner, "__call__", call))


def _below(owner: type) -> Iterator[type]:
    below: list[type] = owner.__subclasses__()
    for one in below:
        yield one
        yield from _below(one)
