# SPDX-License-Identifier: Apache-2.0
"""musa-converter: Python scripts in place, by `ulpscope port`. `ulpscope port ROOT --revert` takes it back."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from .porting import port


def below(path: str, root: str) -> str:
    """A path as a glob below the root; a ValueError where it is not there, or lies elsewhere."""
    if not os.path.exists(path):
        raise ValueError(f"{path}: no such file or folder")
    inside = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    if inside.startswith(os.pardir):
        raise ValueError(f"{path} does not lie in {root}")
    return inside.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")


def convert(root: str, launch: str | None = None, excluded: Iterable[str] = ()) -> str:
    """Converts the Python files of a folder, or one; what is left for a human, as text."""
    folder = root if os.path.isdir(root) else os.path.dirname(root) or "."
    more = [
        "--launch",
        below(launch, folder) if launch else "",
    ]  # without one none loads the device
    for path in excluded:
        for part in [path] if os.path.exists(path) else path.split(","):
            name = below(part, folder)
            more += ["--ignore", name, *(["--ignore", f"{name}/*"] if os.path.isdir(part) else [])]
    if not os.path.exists(root):
        raise ValueError(f"{root}: no such file or folder")
    return port(root, "--to", "musa", "--in-place", "--only", "python", "--force", *more)[1]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="musa-converter", description=__doc__)
    parser.add_argument("-r", "--root_path", required=True, help="a folder, or a file")
    parser.add_argument("-l", "--launch_path", help="the script that is started: it loads torch_musa")
    parser.add_argument("-e", "--excluded_path", nargs="*", default=[], help="files and folders that stay")
    given = parser.parse_args(arguments)
    if given.launch_path is None:
        print(
            "musa-converter: no -l: add `import torch_musa` to the script that is started",
            file=sys.stderr,
        )
    try:
        left = convert(given.root_path, given.launch_path, given.excluded_path)
        root = Path(given.root_path)
        if given.launch_path and root.is_file() and not root.samefile(given.launch_path):
            left += convert(given.launch_path, given.launch_path)
    except (OSError, RuntimeError, ValueError) as problem:
        print(f"musa-converter: {problem}", file=sys.stderr)
        return 2
    print(left, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
