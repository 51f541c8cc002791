# SPDX-License-Identifier: Apache-2.0
"""Where the traces lie that `ulpscope fuzz` draws from, and that they are there: told without loading torch, which
takes seconds. Where one is missing, `opdb` or `words` makes it:
`python -m ulpscope.fuzzer.examples opdb|words [OPS]`."""

import importlib
import sys
from pathlib import Path

from ..program.glue import cache_home, torch_version

# What opdb.py records, and what words.py does: cases have other numbers where WORDS changes.
VERSIONS = {"opdb": ("examples", 1), "words": ("words", 2)}


def folder(kind: str) -> Path:
    """Where the trace of this version of torch lies, or will."""
    name, version = VERSIONS[kind]
    return cache_home() / "fuzz" / f"torch-{torch_version()}-{name}-{version}"


def main() -> int:
    """Prints where the trace lies, once it is there, or why it is not. A word behind the kind is the PATTERN of
    operators that are wanted of it."""
    kind, *_ = sys.argv[1:]
    path = folder(kind)
    if (path / "trace.db").exists():
        print(f"examples lie in {path}", flush=True)
        return 0
    del sys.argv[1]
    code: int = importlib.import_module(f"ulpscope.fuzzer.{kind}").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
