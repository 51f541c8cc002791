# SPDX-License-Identifier: Apache-2.0
"""`python -m ulpscope ...`: the program `ulpscope` of this installation, with this Python."""

from __future__ import annotations

import os
import shutil
import sys

from . import shares


def program() -> str:
    """The `ulpscope` program: as it told us, on PATH, or beside the interpreter. Raises OSError
    with a sentence where there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "ulpscope")
    for path in (os.environ.get("ULPSCOPE_CLI"), shutil.which("ulpscope"), beside):
        if path and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("it is not on PATH")


def main() -> int:
    """Becomes the program; 2 and a sentence where it is not there."""
    os.environ["ULPSCOPE_PYTHON"] = sys.executable
    try:
        if sys.argv[1:2] == ["check"] and shares.found(os.environ):
            return shares.run(program(), sys.argv[1:])
        os.execv(program(), ["ulpscope", *sys.argv[1:]])
    except OSError as problem:
        print(f"ulpscope: no program to run ({problem}): set ULPSCOPE_CLI to it", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
