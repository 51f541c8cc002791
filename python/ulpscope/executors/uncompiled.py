# SPDX-License-Identifier: Apache-2.0
"""A process that compiles nothing does not load torch's compiler, which takes two seconds of CPU time: the first
decomposition of an operator asks for it, only to be left alone by it. Serves what programs of ours start."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

from ..calls.torch_private import compiler_name, set_compiler


def leave_compiler_out() -> None:
    """Stands in for the compiler in this process, unless it is there; never in a program of somebody else."""
    if compiler_name not in sys.modules:
        set_compiler(Compiler(compiler_name))


class Compiler(types.ModuleType):
    """torch's compiler as far as torch's own functions being left alone by it goes; anybody who asks for more
    is given the compiler itself."""

    def __init__(self, name):
        super().__init__(name)
        self.__spec__ = importlib.util.find_spec(name)
        self.__file__ = self.__spec__.origin  # whoever looks through all modules asks for this

    def disable(self, fn: Callable[..., Any] | None = None, recursive: bool = True, **options: Any) -> Any:
        """A function of torch's as it is: nothing is compiled here."""
        if (getattr(fn, "__module__", None) or "").startswith("torch."):
            return fn
        return self.__getattr__("disable")(fn, recursive, **options)

    def __getattr__(self, name):
        return getattr(_compiler(self), name)


@functools.cache
def _compiler(stand_in):
    """The compiler itself, which takes its place from now on."""
    if sys.modules.get(compiler_name) is stand_in:
        set_compiler(None)
    return importlib.import_module(compiler_name)
