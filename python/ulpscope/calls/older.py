# SPDX-License-Identifier: Apache-2.0
"""What Python 3.9 lacks of what this package is written in."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 10):
    from itertools import pairwise as pairwise  # noqa: F401
    from types import NoneType as NoneType, UnionType as UnionType  # noqa: F401

    def zip_equal(*parts: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """`zip` of what is as long as the others; ValueError where something is not."""
        return zip(*parts, strict=True)

    STANDARD = frozenset(sys.stdlib_module_names)
else:
    _END = object()
    NoneType = type(None)

    class UnionType:
        """Of `int | str`, which is written in no program there."""

    def pairwise(rows):
        rows = list(rows)
        return zip(rows, rows[1:])

    def zip_equal(*parts):
        for row in zip_longest(*parts, fillvalue=_END):
            if any(x is _END for x in row):
                raise ValueError("zip_equal() of what differs in length")
            yield row

    def _standard():
        """The names of the standard library's modules, by where they lie."""
        folder = Path(sysconfig.get_path("stdlib"))
        names = {
            p.name.split(".")[0]
            for place in (folder, folder / "lib-dynload")
            for p in place.glob("*")
            if p.is_dir() or p.suffix in (".py", ".so")
        }
        return names.union(sys.builtin_module_names) - {"site-packages"}

    STANDARD = frozenset(_standard())


def add_note(problem: BaseException, text: str) -> None:
    """A note on an exception, which tracebacks show from 3.11 on, pytest on every Python."""
    problem.__notes__ = [*getattr(problem, "__notes__", ()), text]
