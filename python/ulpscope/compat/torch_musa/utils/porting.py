# SPDX-License-Identifier: Apache-2.0
"""What the converters of torch_musa share: their mapping files, and the call of `ulpscope port`."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOG = logging.getLogger("torch_musa.utils")
CHAINS = [re.compile(rf"[A-Za-z_]\w*(?:{joint}[A-Za-z_]\w*)*") for joint in ("::", r"\.")]


def is_name(old: str, new: str) -> bool:
    """Whether a port can map the one to the other: whole names, or paths of headers."""
    if not old or not new or re.search(r'[\s"<>]', old + new):
        return False
    path = "/" in old or old.endswith((".h", ".hpp", ".cuh", ".muh"))
    return path or any(chain.fullmatch(old) and chain.fullmatch(new) for chain in CHAINS)


def read_mapping(paths: Iterable[str | Path]) -> dict[str, str]:
    """Their mapping files, the later over the earlier. A file that is none is a ValueError with its name."""
    rules: dict[str, str] = {}
    for path in paths:
        try:
            read = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as problem:
            raise ValueError(f"{path} is no mapping: {problem}") from None
        if not isinstance(read, dict):
            raise ValueError(f"{path} is no mapping: one JSON object is needed")
        rules.update(read)
    return rules


@contextmanager
def map_file(rules: dict[str, str], backwards: bool = False) -> Iterator[Path | None]:
    """A file for --map of these rules; None where there are none. What is not a name is told, and left out."""
    names = {
        new if backwards else old: old if backwards else new
        for old, new in rules.items()
        if is_name(*((new, old) if backwards else (old, new)))
    }
    left = [old for old, new in rules.items() if (new if backwards else old) not in names]
    if left:
        LOG.warning(
            "%d rules are no names and are not applied: %s",
            len(left),
            ", ".join(map(repr, left[:5])),
        )
    if not names:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.json"
        path.write_text(json.dumps(names))
        yield path


def port(source: str | Path, *arguments: str | Path) -> tuple[int, str]:
    """Runs `ulpscope port`; its exit code, what is left on stdout. A RuntimeError with its sentence for 2."""
    done = subprocess.run(
        [sys.executable, "-m", "ulpscope", "port", str(source), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.strip() or f"ulpscope port ended with {done.returncode}")
    return done.returncode, done.stdout
