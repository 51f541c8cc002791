# SPDX-License-Identifier: Apache-2.0
"""What `ulpscope doctor` (cli/cmd_doctor.c) asks of Python, one question a process, since what is
broken may crash: `doctor_probe.py torch | core | glue | device NAME | import NAME...`. Lines of
name, tab and value behind a mark. A failure is told as it was raised: C finds the words.

Needs of torch: that it can be imported, its device types, `is_available` of a device module."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

MARK = "ulpscope doctor begins here"
FOLDERS = {"cuda": "/dev/nvidia0", "npu": "/dev/davinci0", "musa": "/dev/mtgpu.0", "mlu": "/dev/cambricon_dev0"}
HIDES = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
    "musa": "MUSA_VISIBLE_DEVICES",
    "mlu": "MLU_VISIBLE_DEVICES",
}


def tell(name: str, value: object) -> None:
    """A line of its own, whatever was printed before; what would break it is replaced."""
    print(f"\n{name}\t{' '.join(str(value).split())}", flush=True)


def owner(path: str) -> None:
    """Tells the package that a file belongs to, and which torch that package asks for."""
    import importlib.metadata

    for package in importlib.metadata.distributions() if path else ():
        try:
            mine = any(str(package.locate_file(file)) == path for file in package.files or ())
        except (OSError, ValueError):
            continue
        if mine:
            tell("package", f"{package.metadata['Name']} {package.version}")
            for need in package.requires or ():
                if need.split(";")[0].strip().lower().startswith(("torch=", "torch>", "torch<", "torch~", "torch ")):
                    tell("wants", need)
            return


def told(function: Callable[..., Any], *arguments: Any) -> bool:
    """Calls; what it raises is told. Whether it went well."""
    try:
        function(*arguments)
    except BaseException as problem:  # a module may leave by SystemExit
        while isinstance(problem.__cause__, (ImportError, OSError)):
            problem = problem.__cause__
        tell("kind", type(problem).__name__)
        tell("missing", getattr(problem, "name", None) or "")
        tell("error", problem)
        first = str(problem).split(":")[0]
        owner(first if os.path.isabs(first) else "")
        return False
    return True


def look_at_torch() -> None:
    import torch

    tell("version", torch.__version__)
    tell("where", os.path.dirname(torch.__file__))
    from ulpscope.program.shared_objects import too_old

    tell("too_old", too_old(torch.__version__))


def look_at_core() -> None:
    from ulpscope import _core

    tell("version", _core.version)
    from ulpscope.program import lacks

    for what, less in lacks.lacking():
        tell("lacks", f"{what}: {less}")


def look_at_glue() -> None:
    import ctypes
    import shutil
    import sysconfig
    import tempfile

    import torch
    from ulpscope.program import glue

    tell("torch", torch.__version__)
    built, compiler, cache = glue.told()
    tell("built", built)
    tell("compiler", compiler)
    tell("compiles", int(shutil.which(compiler) is not None))
    tell("python_h", int(os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))))
    tell("cache", cache)
    try:
        others = [name for name in os.listdir(cache) if name.startswith("torch-")]
    except OSError:  # there is none yet, or it is another user's
        others = []
    mine = {glue.path_of(name).parent.name for name in glue.names()}
    tell("others", ", ".join(sorted({name.split("-ulpscope-")[0][6:] for name in others if name not in mine})))
    try:
        os.makedirs(cache, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache):
            pass
    except OSError as problem:
        tell("unwritable", problem.strerror)
    glue.load_what_it_needs()
    for name in glue.names():
        glue.loadable(glue.path_of(name))
        path = glue.taken(name) or glue.path_of(name)
        tell("library", path)
        if path.exists():
            ctypes.CDLL(str(path))


def device_there(torch: ModuleType, name: str) -> None:
    """Tells why a device that torch has a type for is not to be seen."""
    kind, _, index = name.partition(":")
    module = getattr(torch, kind, None)
    for what, path in (("variable", HIDES.get(kind)), ("node", FOLDERS.get(kind))):
        if path and what == "variable" and path in os.environ:
            tell("hidden", f"{path}={os.environ[path]}")
        if path and what == "node":
            seen = os.access(path, os.R_OK | os.W_OK)
            tell("node", f"{path} {'open' if seen else 'closed' if os.path.exists(path) else 'absent'}")
    if kind == "cuda":
        tell(
            "built_for", getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None) or "the CPU alone"
        )
    if module is not None and hasattr(module, "is_available"):
        tell("available", int(module.is_available()))
        if module.is_available() and hasattr(module, "device_count"):
            tell("count", module.device_count())
    if index and not index.isdigit():
        raise ValueError(f"'{index}' is no number of a device")


def look_at_device(name: str) -> None:
    from ulpscope.executors.device import PACKAGES, open_device

    if name.startswith("python:"):
        open_device(name)
        return
    import importlib

    import torch

    package = PACKAGES.get(name.split(":")[0])
    if package:
        tell("brought_by", package)
        importlib.import_module(package)
    try:
        torch.device(name)
    except RuntimeError:
        tell("unregistered", 1)
        raise
    device_there(torch, name)
    sums = (torch.arange(4.0, device=name) + 1).cpu().tolist()
    if sums != [1.0, 2.0, 3.0, 4.0]:
        tell("counts", sums)


def look_at_import(name: str) -> None:
    sys.path.insert(0, os.getcwd())
    from ulpscope.calls.homes import import_it

    import_it(name)


QUESTIONS: dict[str, Callable[..., Any]] = {
    "torch": look_at_torch,
    "core": look_at_core,
    "glue": look_at_glue,
    "device": look_at_device,
    "import": look_at_import,
}


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    sys.path.append(os.path.dirname(here))
    print(MARK)
    what, *words = sys.argv[1:]
    if what == "device":
        for name in words[1:]:
            if not told(look_at_import, name):
                return
        words = words[:1]
    if told(QUESTIONS[what], *words):
        tell("fine", 1)


if __name__ == "__main__":
    main()
