# SPDX-License-Identifier: Apache-2.0
"""What a prompt and a notebook show of what the Python API returns: a line, and in a notebook a table below it.
Serves all that users hold in their hands."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_ROWS = 30


class Shown:
    """What derives from it says a line of itself, and gives rows if it has some. Showing waits for nothing and
    changes nothing."""

    def _shown(self) -> str:
        """What it is and what came of it, in a line."""
        raise NotImplementedError

    def _titles_and_rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """(titles, rows of values) for a notebook."""
        return (), ()

    def __repr__(self) -> str:
        return f"<{self._shown()}>"

    def _repr_html_(self) -> str:
        titles, rows = self._titles_and_rows()
        rows = list(rows)
        parts = [f"<p><b>{html.escape(self._shown())}</b></p>"]
        if rows:
            parts += ["<table><thead><tr>", *(f"<th>{html.escape(t)}</th>" for t in titles), "</tr></thead><tbody>"]
            parts += [_row(row) for row in rows[:MOST_ROWS]]
            parts.append("</tbody></table>")
        if len(rows) > MOST_ROWS:
            parts.append(f"<p>and {len(rows) - MOST_ROWS} more</p>")
        return "".join(parts)


def _row(values: Sequence[object]) -> str:
    return "<tr>" + "".join(f'<td style="text-align:left">{html.escape(text_of(v))}</td>' for v in values) + "</tr>"


def text_of(value: Any) -> str:
    """A value in a table: numbers short, nothing for None."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.6g}"
    return "" if value is None else str(value)


def sized(n: float) -> str:
    """ "512 B", "1.5 MB": as the program says it of a trace."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


def counted(n: int, word: str) -> str:
    """ "1 call", "2 calls"."""
    return f"{n:,} {word}{'s' * (n != 1)}"
