# SPDX-License-Identifier: Apache-2.0
"""`python -m ulpscope ...`: the program `ulpscope` of this installation, with this Python."""

import os
import sys

from ._check import Trouble, program


def main():
    """Becomes the program; 2 and a sentence where it is not there."""
    os.environ["ULPSCOPE_PYTHON"] = sys.executable
    try:
        os.execv(program(), ["ulpscope", *sys.argv[1:]])
    except (Trouble, OSError) as problem:
        why = problem if isinstance(problem, OSError) else "it is not on PATH"
        print(f"ulpscope: no program to run ({why}): set ULPSCOPE_CLI to it", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
