# SPDX-License-Identifier: Apache-2.0
"""Operators by their names. Some are there only after a module of torch, or of a package beside
it, was imported: that is tried before anybody is asked to name one. Serves `replay`."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .foreign import foreign, set_aside
from .torch_private import take_back

if TYPE_CHECKING:
    from types import CodeType, ModuleType

# Modules of torch and of its sister packages that register operators when they are imported.
OPERATOR_HOMES = {
    "fsdp": ("torch.distributed.fsdp._fully_shard._fsdp_collectives",),
    "c10d": ("torch.distributed",),
    "_c10d_functional": ("torch.distributed._functional_collectives",),
    "c10d_functional": ("torch.distributed._functional_collectives",),
    "_c10d_functional_autograd": ("torch.distributed._functional_collectives",),
    "_dtensor": ("torch.distributed.tensor",),
    "symm_mem": ("torch.distributed._symmetric_memory",),
    "quantized_decomposed": ("torch.ao.quantization.fx._decomposed",),
    "prims": ("torch._inductor.inductor_prims",),
    "torchvision": ("torchvision",),
    "torchaudio": ("torchaudio",),
    "fbgemm": ("fbgemm_gpu",),
}


def _operator(name: str, module: str | None) -> Any:
    """The operator of that name after `module` was imported; None where it is unknown then."""
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    try:
        if module is not None:
            importlib.import_module(module)
        return getattr(getattr(getattr(torch.ops, space), base), overload or "default")
    except Exception as problem:  # whatever a module raises that cannot be imported here
        foreign(problem)
        return None


def operator(name: str) -> Callable[..., Any] | None:
    """The operator `ns::op.overload`, or None where nobody is known to bring it."""
    for module in (None, *OPERATOR_HOMES.get(name.partition("::")[0], ())):
        found: Callable[..., Any] | None = _operator(name, module)
        if found is not None:
            return found
    bare: Callable[..., Any] | None = _by_its_schema(name)
    return bare


told: dict[str, str] = {}  # operator of the captured program -> its schema
# libraries with operators that are defined by their schema alone; these go with them
_defined: list[torch.library.Library] = []


def _by_its_schema(name: str) -> Any:
    """An operator that nobody brings here, of which the schema is told; None."""
    if name not in told:
        return None
    library = torch.library.Library(name.partition("::")[0], "FRAGMENT")
    library.define(told[name].partition("::")[2])
    _defined.append(library)
    return _operator(name, None)


def _make_way() -> None:
    """Takes back the operators that stand here by their schema alone, before what may bring them itself."""
    for library in _defined:
        take_back(library)
    _defined.clear()


class _Source(importlib.machinery.SourceFileLoader):
    """Compiles a file anew: bytecode that is kept beside it stands for what it was up to a second ago, where
    somebody edits and tries in turn, and is nothing that we may leave in a user's folder."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def import_it(module: str) -> None:
    """Imports a module by name, or a file by path, as `python FILE` would find it but
    without being `__main__`."""
    if module.endswith(".so"):
        torch.ops.load_library(module)
        return
    if not module.endswith(".py"):
        _import_by_name(module)
        return
    installed = _installed_as(module)
    if installed:
        importlib.import_module(installed)
        return
    sys.path.insert(0, os.path.dirname(os.path.abspath(module)))
    name = os.path.basename(module).removesuffix(".py")
    if _that_ran(module) is not None:
        return  # what registers operators runs once only
    spec = importlib.util.spec_from_file_location(name, module, loader=_Source(name, module))
    assert spec is not None and spec.loader is not None  # of a file, by a loader
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[name])
    except BaseException:
        del sys.modules[name]  # half of it is none
        raise


def _installed_as(path: str) -> str:
    """The name of a file that belongs to an installed package: its folder on the path would have its neighbours stand
    for other packages (`integrations/executorch.py` for executorch). "" of any other file."""
    folder, file = os.path.split(os.path.abspath(path))
    parts = [] if file == "__init__.py" else [file.removesuffix(".py")]
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, part = os.path.split(folder)
        parts.insert(0, part)
    installed = os.path.basename(folder) in ("site-packages", "dist-packages") and folder in sys.path
    return ".".join(parts) if installed and len(parts) > 1 else ""


def _that_ran(path: str) -> ModuleType | None:
    """The module that this file became, under whatever name: one of a package, or the program; None."""
    name, real = os.path.basename(path), os.path.realpath(path)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.basename(file) == name and os.path.realpath(file) == real:
            return module
    return None


def _import_by_name(name: str) -> None:
    """As Python does; a file that ran under another name is that module."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    origin = (spec.origin if spec is not None else None) or ""
    ran = _that_ran(origin) if origin.endswith(".py") else None
    if ran is None:
        importlib.import_module(name)
    else:
        sys.modules[name] = ran


def _file(module: str) -> str:
    """One name for a file, whatever path is said for it; the name of a module as it is."""
    return os.path.realpath(module) if module.endswith((".py", ".so")) else module


def folder_beside(modules: Iterable[str]) -> str | None:
    """The current folder, where one of these modules lies in it and only there is found by its name; None."""
    here = os.path.realpath(os.getcwd())
    for module in modules:
        spec = None if module.endswith((".py", ".so")) else importlib.util.find_spec(module.partition(".")[0])
        places = [os.path.dirname(p) for p in spec.submodule_search_locations or [spec.origin or ""]] if spec else []
        if any(os.path.realpath(place) == here for place in places):
            return here
    return None


failed: dict[str, str] = {}  # module of a captured program -> why it cannot be imported here


def import_modules(recorded: Iterable[str], named: Iterable[str], package: str | None = None) -> None:
    """What the captured program had, as far as it is here, and what --import names. A file that
    registers operators may be run once only, and may need the package that brings the device."""
    if recorded or named:
        _make_way()
    if recorded and package is not None:
        with set_aside():
            importlib.import_module(package)
    for module in recorded:
        try:
            import_it(module)
        except Exception as problem:  # it may be gone: the verdict of the calls of its operators says so
            foreign(problem)
            failed[module] = f"{type(problem).__name__}: {problem}".split("\n")[0][:200]
    there = {_file(module) for module in recorded}
    for module in named:
        if _file(module) not in there:
            there.add(_file(module))
            import_it(module)


def not_imported() -> str:
    """What of the captured program's cannot be imported here and why, for a sentence; ""."""
    return "; ".join(f"{module}, which the program had, cannot be imported: {why}" for module, why in failed.items())
