# SPDX-License-Identifier: Apache-2.0
"""What computes the answers of a check: torch, the device and its driver, and the content
of every file that came in for it. A run that was cut short goes on only where these are
what they were. A worker tells them (it has it all loaded), the coordinator compares."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import sysconfig
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..calls.foreign import set_aside, theirs

if TYPE_CHECKING:
    from collections.abc import Iterable

# Kernel modules whose version is that of a device's driver.
DRIVERS = {
    "cuda": ("nvidia", "amdgpu"),
    "npu": ("drv_davinci",),
    "musa": ("mtgpu",),
    "mlu": ("cambricon",),
    "hpu": ("habanalabs",),
    "xpu": ("xe", "i915"),
}
DRIVER_FILES = {
    "cuda": ("/proc/driver/nvidia/version",),
    "npu": ("/usr/local/Ascend/driver/version.info", "/usr/local/Ascend/ascend-toolkit/latest/version.cfg"),
}


SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")


def loaded() -> frozenset[str]:
    """Names of the modules and libraries that are there, to be given to `told` later."""
    return frozenset(sys.modules) | _libraries()


def _libraries() -> set[str]:
    """Shared libraries that this process has mapped (Linux)."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        paths = (line.rstrip("\n").split(maxsplit=5)[5:] for line in maps)
        return {path for (path,) in filter(None, paths) if ".so" in os.path.basename(path)}
    return set()


def told(device: str, before: frozenset[str], via: str = "") -> dict[str, str]:
    """The facts as {text: text}, ready for JSON; `before` is what was loaded before anything
    came in that a user can change."""
    import torch

    from .. import _core
    from ..executors.via import versions

    facts = {"torch": torch.__version__} | device_facts(device) | versions(via)
    for path in sorted(_files(before) | set(torch.ops.loaded_libraries)):
        with suppress(OSError, _core.UlpscopeError):
            facts[f"file {path}"] = _core.file_digest(path)
    return facts


def _files(before: frozenset[str]) -> set[str]:
    """Files of modules and libraries that came in since, but for torch's, Python's, the
    system's and our own."""
    import torch

    known = sysconfig.get_paths()
    own = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(torch.__file__))
    library = (known["stdlib"], known["platstdlib"])
    packages = (known["purelib"], known["platlib"])
    found = set()
    for name in set(sys.modules) - before:
        path = getattr(sys.modules[name], "__file__", None)
        if not isinstance(path, str) or _below(path, own):
            continue
        if _below(path, packages) or not _below(path, library):
            found.add(os.path.abspath(path))
    places = (*own, *library, *SYSTEM)
    return found | {path for path in _libraries() - before if _below(path, packages) or not _below(path, places)}


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(folder + os.sep) for folder in folders)


def device_facts(device: str) -> dict[str, str]:
    """Name of the device, versions of its driver and of what torch knows it by."""
    import torch

    from ..calls.torch_private import cuda_driver_version
    from ..executors.device import PACKAGES

    kind, _, index = device.partition(":")
    facts = {}
    asked: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "device name": (
            getattr(getattr(torch, kind, None), "get_device_name", None),
            (int(index) if index.isdigit() else 0,),
        )
    }
    if kind == "cuda":
        asked["driver"] = cuda_driver_version, ()
    for name, (ask, given) in asked.items():
        with set_aside():  # of its backend it may raise whatever it likes
            if ask is not None:
                facts[name] = str(theirs(ask, *given))
    if kind == "cuda":
        facts |= {f"torch's {k}": str(v) for k in ("cuda", "hip") if (v := getattr(torch.version, k, None))}
    with suppress(importlib.metadata.PackageNotFoundError):
        package = PACKAGES.get(kind, "").split(".")[0]
        if package and package != "ulpscope":
            facts[package] = importlib.metadata.version(package)
    for path in (*(f"/sys/module/{name}/version" for name in DRIVERS.get(kind, ())), *DRIVER_FILES.get(kind, ())):
        with suppress(OSError), open(path) as file:
            facts[f"driver {path}"] = file.read(500).strip()
    return facts


def environment() -> dict[str, str]:
    """What the report says of the machine; not compared on resume."""
    import torch

    from .. import _core

    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": cores,
        "ulpscope": _core.version,
    }
