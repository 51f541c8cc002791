# SPDX-License-Identifier: Apache-2.0
"""Provenance: what a trace tells of the program that it is of, where its operators come from and the settings
that it ran with.

Needs of torch: its libraries of operators, its switches and version."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from ..calls import functions
from ..calls.torch_private import python_operator


def operator_sources(session: Any) -> list[str]:
    """
    What a replay must import to have the operators that this program registered itself:
    Python files and extension libraries, sorted. A script that would run on import (no
    `__name__` guard) is left out. From any thread, while others register kernels.
    """
    found, unplaced = set(torch.ops.loaded_libraries), set()
    for name, said in session.places():
        if said.startswith("registered at /dev/null:"):  # a torch that keeps the file to itself
            unplaced.add(name.split("::")[0])
        place = re.fullmatch(r"registered at (.*\.py):\d+", said)
        file = place.group(1) if place else ""
        if file.endswith(os.path.join("_library", "custom_ops.py")):  # torch.library.custom_op
            function = custom_operator(name)
            file = function.__code__.co_filename if function is not None else ""
        if file and os.path.isfile(file) and not is_of_torch(file):
            found.add(os.path.abspath(file))
    found |= {file for file in _holding_libraries(unplaced) if not is_of_torch(file)}
    for function in functions.registered.values():
        with contextlib.suppress(TypeError):  # of no file
            found.add(os.path.abspath(inspect.getfile(function)))
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script and os.path.abspath(script) in found and not guarded(script):
        found.remove(os.path.abspath(script))
    return sorted(found)


def is_of_torch(file: str) -> bool:
    """Whether a file is torch's own. Bytecode may name it by another path than torch was imported by."""
    home = os.path.realpath(os.path.dirname(torch.__file__))
    return os.path.realpath(file).startswith(home + os.sep)


def _holding_libraries(namespaces: Collection[str]) -> Iterator[str]:
    """Files of the modules that hold a torch.library.Library of one of these namespaces."""
    kind = torch.library.Library
    for module in list(sys.modules.values()) if namespaces else ():
        held = [v for v in list(getattr(module, "__dict__", {}).values()) if type(v) is kind and v.ns in namespaces]
        file = getattr(module, "__file__", None)
        if held and file and os.path.isfile(file):
            yield os.path.abspath(file)


def custom_operator(name: str) -> Callable[..., Any] | None:
    """The Python function behind an operator of `torch.library.custom_op`, or None."""
    return python_operator(name.split(".")[0])


def guarded(script: str) -> bool:
    """Whether a script does its work under `if __name__ == "__main__"`."""
    with open(script, encoding="utf-8", errors="replace") as file:
        return re.search(r"^if\s+__name__\s*==", file.read(), re.M) is not None


def environment(data: str, ops: str | None, rank: int, world: int) -> dict[str, str]:
    """What a reader of the trace wants to know about the run, as meta keys."""
    settings = {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "variables": {
            k: v
            for k, v in sorted(os.environ.items())
            if k.startswith(("OMP_", "MKL_", "ULPSCOPE_SIM_", "CUBLAS_", "NVIDIA_TF32"))
        },
    }
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "argv": json.dumps(sys.argv),
        "platform": platform.platform(),
        "rank": str(rank),
        "world_size": str(world),
        "data": data,
        "ops": ops or "",
        "seed": str(torch.initial_seed()),
        "environment": json.dumps(settings),
    }
