# SPDX-License-Identifier: Apache-2.0
"""docs/reference/trace-format.md, read as a stranger would: a trace written in C, opened with the
sqlite3 module and the safetensors package alone. At the end once through `_core`."""

import gc
import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest

safetensors = pytest.importorskip("safetensors", reason="pip install safetensors")
from safetensors.numpy import load_file  # noqa: E402

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
GOLDEN = ROOT / "tests/golden/trace-v1"
N_CALLS = 60


def size_of(call):
    """Bytes of the sample's storage of a call: tests/unit/trace_sample.h."""
    return 0 if call % 7 == 0 else call * 37 % 5000


def bytes_of(call):
    x, out = (call * 0x9E3779B97F4A7C15 + 1) % 2**64, bytearray()
    for _ in range(size_of(call)):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(x >> 56)
    return bytes(out)


@pytest.fixture(scope="module", params=["fresh", "golden"])
def trace(request, tmp_path_factory):
    """Folder of a trace, and how many calls are in it."""
    if request.param == "golden":
        return GOLDEN, 12
    writer = BUILD / "tests/test_trace"
    if not writer.exists():
        pytest.skip("the C tests are not built")
    path = tmp_path_factory.mktemp("format") / "t"
    subprocess.run([writer, path, str(N_CALLS)], check=True)
    return path, N_CALLS


def connect(path):
    return sqlite3.connect(f"file:{path / 'trace.db'}?mode=ro&immutable=1", uri=True)


def test_database_says_what_it_is(trace):
    base = connect(trace[0])
    assert base.execute("PRAGMA application_id").fetchone() == (0x554C5054,)
    version = 1 if trace[0] == GOLDEN else 2
    assert base.execute("PRAGMA user_version").fetchone() == (version,)
    meta = dict(base.execute("SELECT key, value FROM meta"))
    assert (meta["format"], meta["version"], meta["complete"]) == ("ulpscope-trace", str(version), "1")
    assert re.fullmatch("[0-9a-f]{32}", meta["id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["created"])


def test_tables_are_the_documented_ones(trace):
    text = (ROOT / "docs/reference/trace-format.md").read_text().split("## Results")[0]
    documented = {
        m[1]: [c.strip().strip("`") for c in m[2].split(",")]
        for m in re.finditer(r"^\| `(\w+)` \| ([^|]+) \|", text, re.M)
    }
    base = connect(trace[0])
    tables = [r[0] for r in base.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {t: [c[1] for c in base.execute(f"PRAGMA table_info({t})")] for t in tables}
    if trace[0] == GOLDEN:  # format 1
        documented["tensor"] = [c for c in documented["tensor"] if c not in ("form", "blob", "first")]
    assert found == documented


def test_every_byte_is_there(trace):
    path, n_calls = trace
    shards = {int(p.name[8:13]): load_file(p) for p in sorted(path.glob("tensors-*.safetensors"))}
    rows = (
        connect(path)
        .execute(
            """SELECT c.sequence, o.name, a.role, a.path, t.dtype, t.sizes, b.id, b.bytes, b.shard
           FROM call c JOIN op o ON o.id = c.op JOIN arg a ON a.call = c.sequence
           JOIN tensor t ON t.id = a.tensor JOIN version v ON v.id = t.version
           JOIN blob b ON b.id = v.blob ORDER BY c.sequence, a.position"""
        )
        .fetchall()
    )
    assert len(rows) == 2 * n_calls
    assert len(shards) == 1 + max(r[-1] for r in rows)
    for sequence, _, role, where, dtype, sizes, blob, n, shard in rows:
        assert (role, where) in (("in", "args[0]"), ("out", "out[0]"))
        assert (dtype, json.loads(sizes), n) == ("uint8", [size_of(sequence)], size_of(sequence))
        assert shards[shard][f"blob-{blob}"].tobytes() == bytes_of(sequence)


def test_offsets_are_those_of_the_file(trace):
    path, _ = trace
    rows = connect(path).execute('SELECT id, bytes, shard, "offset" FROM blob').fetchall()
    for blob, n, shard, offset in rows:
        with open(path / f"tensors-{shard:05d}.safetensors", "rb") as file:
            file.seek(offset)
            assert file.read(n) == bytes_of_blob(path, blob)
        assert n == 0 or offset % 64 == 0


def bytes_of_blob(path, blob):
    query = "SELECT a.call FROM arg a JOIN tensor t ON t.id = a.tensor JOIN version v "
    query += "ON v.id = t.version WHERE v.blob = ? ORDER BY a.call LIMIT 1"
    return bytes_of(connect(path).execute(query, [blob]).fetchone()[0])


def test_arguments_are_json(trace):
    for (text,) in connect(trace[0]).execute("SELECT args FROM call"):
        assert set(json.loads(text)) == {"args", "kwargs"}


def test_extension_reads_the_same(trace):
    from ulpscope import _core

    path, n_calls = trace
    with _core.Trace(path) as opened:
        assert opened.select() == list(range(1, n_calls + 1))
        assert opened.select(ops="mm", step=0) == list(range(2, n_calls + 1, 2))
        assert opened.select(top_only=True, phase="backward") == []
        call = opened.call(5)
        assert (call["op"], call["module_path"]) == ("aten::add.Tensor", "layers.0")
        first = call["tensors"][0]
        assert (first["path"], first["dtype"], first["sizes"]) == ("args[0]", "uint8", (185,))
        view = opened.blob(first["blob"])
        assert opened.meta("complete") == "1"
    gc.collect()
    assert view.readonly and bytes(view) == bytes_of(5)  # the files stay while it lives
    with pytest.raises(ValueError, match="closed"):
        opened.call(1)
    with pytest.raises(_core.NotFoundError, match="no call 99999"):
        _core.Trace(path).call(99999)
