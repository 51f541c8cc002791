# SPDX-License-Identifier: Apache-2.0
"""Runs in every Python process under `ulpscope capture`, `ulpscope run` and `ulpscope env`: waits for torch
to be imported, then starts the recorder, the modes, or what tells flags at the end. A sitecustomize that this one hides
is run first. How far each process came stands in the launcher's folder, a file for each."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
TOLD = (
    ("ULPSCOPE_CAPTURE", "program.launched"),
    ("ULPSCOPE_RUN", "run_modes"),
    ("ULPSCOPE_BISECT", "program.trial"),
    ("ULPSCOPE_ENV", "program.env_facts"),
)
STARTS = [(os.environ[name], module) for name, module in TOLD if os.path.isdir(os.environ.get(name, ""))]


def mark(reports: str, what: str, text: str = "") -> None:
    """Leaves word for the launcher; one that is gone does not matter."""
    try:
        with open(os.path.join(reports, f"{what}-{os.getpid()}"), "w", errors="replace") as file:
            file.write(text)
    except OSError:
        pass


def run_hidden_sitecustomize() -> None:
    """Executes the sitecustomize that Python would have found without us."""
    path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def load_ulpscope() -> None:
    """Imports this very package, wherever the program's own path leads."""
    if "ulpscope" in sys.modules:
        return
    package = os.path.dirname(HERE)
    spec = importlib.util.spec_from_file_location(
        "ulpscope", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None and spec.loader is not None  # of a file that is there
    module = importlib.util.module_from_spec(spec)
    sys.modules["ulpscope"] = module
    spec.loader.exec_module(module)


def names_sim() -> bool:
    """Whether the program's words name the simulated device: sim, sim:1, --device=sim:0."""
    return any(re.fullmatch(r"sim(:\d+)?", word.rpartition("=")[2]) for word in sys.argv[1:])


def tell_of_sim() -> None:
    """Where the program names a device that nobody put there, torch lists all that it has heard of."""
    told = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        told(kind, error, trace)
        if "at start of device string: sim" in str(error) and "ulpscope.sim" not in sys.modules:
            print(
                "ulpscope: the simulated device is there after `import ulpscope.sim`, or where the command's own "
                "words name it: --device sim:0",
                file=sys.stderr,
                flush=True,
            )

    sys.excepthook = hook


def refuse(why: str) -> None:
    """What was asked for is no sense: the launcher says so, or we where it reads no marks, and the program does
    not begin; it would come to its end by another error, or by results of another device."""
    for reports, module in STARTS:
        mark(reports, "failed", why)
        if module == "program.trial":
            print(f"ulpscope: {why}", file=sys.stderr, flush=True)
    os._exit(2)


def start() -> None:
    """Torch is there: start recording; a failure must not break the program."""
    if names_sim():  # no script knows of it by itself
        try:
            load_ulpscope()
            importlib.import_module("ulpscope.sim")
        except Exception as error:
            if isinstance(error, ValueError) and os.environ.get("ULPSCOPE_SIM_FAULTS"):
                refuse(f"ULPSCOPE_SIM_FAULTS: {error}")
            print(f"ulpscope: the device sim is not there: {error}", file=sys.stderr)
    else:
        tell_of_sim()
    for reports, module in STARTS:
        mark(reports, "torch")
        try:
            load_ulpscope()
            importlib.import_module(f"ulpscope.{module}").start(reports)
        except Exception as error:
            if getattr(error, "refuses", False):
                refuse(str(error))
            mark(reports, "failed", f"{type(error).__name__}: {error}")
            print(f"ulpscope: cannot capture this process: {error}", file=sys.stderr)


class TorchWatcher:
    """Finds nothing itself; calls `start` once torch has been executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            start()

        setattr(spec.loader, "exec_module", exec_module)  # noqa: B010
        return spec


if STARTS:  # a process that outlives the launcher is not recorded
    for folder, _ in STARTS:
        mark(folder, "python")
    sys.meta_path.insert(0, TorchWatcher())
run_hidden_sitecustomize()
