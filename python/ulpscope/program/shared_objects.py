# SPDX-License-Identifier: Apache-2.0
"""What can be told of a compiled file and of the torch that it is for before either is loaded: loading what is cut
short or another processor's gives the loader's words, which say nothing of what to do."""

import importlib.util
import os
import platform
import re
import struct
from pathlib import Path

OLDEST = (2, 1)
MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine of ELF


def broken(path: Path) -> str:
    """Why a file is no shared object of this machine, behind its name; "" where it is one, whole."""
    with open(path, "rb") as file:
        head = file.read(64)
        size = os.fstat(file.fileno()).st_size
    if head[:4] != b"\x7fELF" or len(head) < 64:
        return "is no shared object"
    (machine,) = struct.unpack_from("<H", head, 18)
    if machine != MACHINES.get(platform.machine(), machine):
        return "is made for another processor"
    (sections,) = struct.unpack_from("<Q", head, 40)
    each, n = struct.unpack_from("<HH", head, 58)
    return "is cut short" if sections + each * n > size else ""


def too_old(version: str) -> str:
    """What to say of a torch before the first that is served; "" of one that is."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) >= OLDEST:
        return ""
    first = ".".join(map(str, OLDEST))
    return f"torch {version} is too old: torch {first} is the first that ulpscope serves (pip install 'torch>={first}')"


def too_old_here() -> str:
    """The same of the torch that would be imported, which is not loaded to tell it."""
    try:
        spec = importlib.util.find_spec("torch")
        text = (Path(spec.origin).parent / "version.py").read_text("utf-8") if spec and spec.origin else ""
    except (ImportError, OSError, ValueError):
        return ""
    found = re.search(r"^__version__ *= *['\"](.+?)['\"]", text, re.M)
    return too_old(found.group(1)) if found else ""
