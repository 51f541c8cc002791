# SPDX-License-Identifier: Apache-2.0
"""Prints what `pip install ulpscope[NAME]` adds, from pyproject.toml."""

import re
import sys
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
EXTRAS = dict(re.findall(r"^(\w+) = \[(.*)\]$", TEXT.split("[project.optional-dependencies]")[1].split("\n[")[0], re.M))

if __name__ == "__main__":
    if sys.argv[1] not in EXTRAS:
        sys.exit(f"there is no runtime {sys.argv[1]}; known: {', '.join(EXTRAS)}")
    print(EXTRAS[sys.argv[1]].replace('"', "").replace(",", ""))
