# SPDX-License-Identifier: Apache-2.0
"""Traces of statistics joined into one: what was recorded in parts, each of which was kept as it was done. The
tables are those of docs/trace-format.md; of parts that hold data there is nothing to be made here."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

NUMBERED = {
    "call": "sequence",
    "stack": "id",
    "storage": "id",
    "version": "id",
    "tensor": "id",
    "module": "id",
    "op": "id",
}
FORWARD = "json_extract(state, '$.forward')"  # the call to which one of a backward pass belongs
MOVED = (
    "op SELECT id + :op, name, schema FROM part.op",  # made one by name at the end
    "module SELECT id + :module, path, class FROM part.module",
    "stack SELECT id + :stack, frames FROM part.stack",
    "storage SELECT id + :storage, device, bytes FROM part.storage",
    "version SELECT id + :version, storage + :storage, generation, NULL, call + :call FROM part.version",
    'tensor SELECT id + :tensor, version + :version, dtype, sizes, strides, "offset", requires_grad, stats, form, '
    "NULL, 0 "
    "FROM part.tensor",
    "call SELECT sequence + :call, step, phase, op + :op, module + :module, stack + :stack, thread, parent + "
    ":call, args, "
    f"CASE WHEN {FORWARD} IS NULL THEN state ELSE json_set(state, '$.forward', {FORWARD} + :call) END, status, "
    "composite "
    "FROM part.call",
    "arg SELECT call + :call, role, path, position, tensor + :tensor FROM part.arg",
    "note SELECT call + :call, kind, text FROM part.note",
)


def join(parts: Sequence[Path], out: Path) -> None:
    """Makes the trace `out` of those in the folders `parts`, their calls one after the other in one step."""
    shutil.copytree(parts[0], out)
    with contextlib.closing(sqlite3.connect(out / "trace.db", isolation_level=None)) as base:
        base.execute("PRAGMA synchronous = OFF")
        for part in parts[1:]:
            base.execute("ATTACH ? AS part", (str(part / "trace.db"),))
            _append(base)
            base.execute("DETACH part")
        first = "(SELECT min(id) FROM op o WHERE o.name = (SELECT name FROM op p WHERE p.id = call.op))"
        base.execute(f"UPDATE call SET op = {first}")
        base.execute("DELETE FROM op WHERE id NOT IN (SELECT op FROM call)")
        base.execute("UPDATE step SET last_call = (SELECT max(sequence) FROM call)")


def _append(base):
    last = {
        table: base.execute(f"SELECT coalesce(max({key}), 0) FROM main.{table}").fetchone()[0]
        for table, key in NUMBERED.items()
    }
    if base.execute("SELECT count(*) FROM part.blob").fetchone()[0]:
        raise ValueError("a part holds data")
    base.execute("BEGIN")
    for words in MOVED:
        table, _, query = words.partition(" ")
        base.execute(f"INSERT INTO main.{table} {query}", {k: v for k, v in last.items() if f":{k}" in query})
    base.execute("COMMIT")
