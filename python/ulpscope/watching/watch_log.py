# SPDX-License-Identifier: Apache-2.0
"""The stream file of a watch: what detectors were fed, as JSON lines, which `ulpscope watch LOG`
reads. A file that cannot be written any more is said once and is no matter of the program.

Needs of torch: nothing."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO


def _number(x: float) -> float | str:
    return x if math.isfinite(x) else str(x)


class WatchLog:
    """The file at `path`, from its first line on."""

    def __init__(self, path: str, world: int, tensors: Any) -> None:
        self.path = path
        self.file: TextIO | None = None
        with self._guarded():
            self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - it stays open
            self._line({"ulpscope_watch": 1, "world": world, "tensors": tensors})

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.file = None
            print(f"ulpscope: {self.path}: {error.strerror}; the watch goes on without its log", file=sys.stderr)

    def _line(self, what: Any) -> None:
        assert self.file is not None  # who writes has looked
        self.file.write(json.dumps(what, separators=(",", ":")) + "\n")

    def put(self, step: int, rank: int, site: str, seconds: float, rows: Iterable[tuple[Any, ...]]) -> None:
        """`rows`: (tensor, max |x|, sum |x|, sum x^2, elements, not finite, zeros, hash)."""
        if self.file is None:
            return
        with self._guarded():
            told = [
                [i, _number(a), _number(s), _number(q), n, odd, zero, f"{h:016x}"]
                for i, a, s, q, n, odd, zero, h in rows
            ]
            self._line({"step": step, "rank": rank, "site": site, "t": round(seconds, 6), "rows": told})
            self.file.flush()

    def put_values(self, step: int, rank: int, site: str, seconds: float, rows: Iterable[tuple[Any, ...]]) -> None:
        """`rows`: (tensor or None, value, hash)."""
        if self.file is None:
            return
        with self._guarded():
            told = [[i, _number(value), f"{h:016x}"] for i, value, h in rows]
            self._line({"step": step, "rank": rank, "site": site, "t": round(seconds, 6), "rows": told})
            self.file.flush()

    def __exit__(self, *raised: object) -> None:
        if self.file is not None:
            with self._guarded():
                self.file.close()
        self.file = None
