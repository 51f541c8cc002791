# SPDX-License-Identifier: Apache-2.0
"""`ulpscope sql`: six views as docs/reference/sql.md has them, its ten questions, and nothing but reading."""

import csv
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import traces

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
PROGRAM = BUILD / "bin" / "ulpscope"
PAGE = (ROOT / "docs" / "reference" / "sql.md").read_text()
QUESTIONS = re.findall(r"^```sql\n(.*?)^```", PAGE, re.S | re.M)
VIEWS = ("calls", "tensors", "modules", "verdicts", "causes", "ranks")
ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"


def sql(*words, code=0):
    done = subprocess.run([PROGRAM, "sql", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def rows(*words):
    return [json.loads(line) for line in sql(*words, "--json").splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trace, and results of which the trace is gone."""
    folder = tmp_path_factory.mktemp("sql")
    for what in ("sample", "trace"):
        subprocess.run([BUILD / "tests" / "test_report_files", what, folder / what], check=True)
    return folder


def contents(folder):
    return {
        p.relative_to(folder): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.mark.parametrize("what", ["trace", "sample"])
def test_each_view_has_the_columns_of_the_page(made, what):
    for view in VIEWS:
        body = re.search(rf"^### {view}: .*?\n(.*?)(?=^##)", PAGE, re.S | re.M)[1]
        told = re.findall(
            r"`(\w+)`", " ".join(line.split(" | ")[0] for line in body.splitlines() if line.startswith("| `"))
        )
        titles = sql(made / what, f"select * from {view} where 0", "--csv").strip().split(",")
        assert sorted(titles) == sorted(told), view
    listed = sql(made / what)
    assert all(re.search(rf"^{view}  +\d+  ", listed, re.M) for view in VIEWS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_question_has_an_answer(made, question):
    assert len(QUESTIONS) == 10
    judged = "verdicts" in question or "causes" in question  # a trace holds none
    n = [len(rows(made / what, question)) for what in ("trace", "sample")[judged:]]
    assert "narrow" in question or "bits < 19" in question or "loss" in question or max(n) > 0 or "n_" in question


def test_the_views_say_what_the_files_hold(made):
    assert rows(made / "sample", "select count(*) as n, sum(flagged) as f from verdicts") == [{"n": 18, "f": 13}]
    assert rows(made / "sample", "select verdict, bits from verdicts where call = 2") == [
        {"verdict": "wrong", "bits": 4.2}
    ]
    assert [r["calls"] for r in rows(made / "sample", "select calls from causes order by calls")] == [1, 12]
    calls = [
        json.loads(line)
        for line in subprocess.run(
            [PROGRAM, "show", made / "trace", "--json"], capture_output=True, text=True
        ).stdout.splitlines()
    ]
    ours = rows(made / "trace", "select call, op, step, phase, module from calls order by call")
    assert [(c["call"], c["op"], c["module"] or "") for c in ours] == [(c["call"], c["op"], c["module"]) for c in calls]
    assert len(rows(made / "trace", "select * from tensors")) == sum(len(c["tensors"]) for c in calls)
    assert rows(made / "trace", "select value from calls, json_each(args) limit 1")


def test_ranks_are_rows(made, tmp_path):
    (tmp_path / "t").mkdir()
    for rank in range(2):
        traces.small_trace(tmp_path / "t" / f"rank-{rank}")
    n = rows(tmp_path / "t" / "rank-1", "select count(*) as n from calls")[0]["n"]
    assert rows(tmp_path / "t", "select rank, count(*) as n from calls group by 1") == [
        {"rank": 0, "n": n},
        {"rank": 1, "n": n},
    ]
    assert [r["calls"] for r in rows(tmp_path / "t", "select calls from ranks")] == [n, n]
    for rank in range(2, 14):
        traces.small_trace(tmp_path / "t" / f"rank-{rank}")
    assert "at a time; name one rank" in sql(tmp_path / "t", "select 1", code=2)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("delete from calls", "cannot modify calls"),
        ("insert into t0.call select * from t0.call", "only SELECT is allowed"),
        ("update t0.call set step = 1", "only SELECT is allowed"),
        ("drop view calls", "only SELECT is allowed"),
        ("create temp table x(y)", "only SELECT is allowed"),
        ("vacuum into 'x.db'", "only SELECT is allowed"),
        ("begin", "only SELECT is allowed"),
        ("attach 'x.db' as x", "ATTACH: nothing else can be attached here"),
        ("detach t0", "DETACH"),
        ("pragma query_only = off", "PRAGMA query_only is not allowed here"),
        ("select load_extension('x')", "load_extension is not allowed here"),
        ("select writefile('x', 'y')", "no such function: writefile"),
        ("select name from sqlite_master", "'sqlite_master' is no view: there are calls, tensors"),
        ("select name from t0.op", "'op' is no view"),
        ("with x as (select name from t0.op) select * from x", "'op' is no view"),
        ("select nope from calls", "no such column: nope, at 'nope from calls'"),
        ("selec 1", "syntax error, at 'selec 1'"),
        ("select 'a", "unrecognized token"),
        ("select 1; select 2", "one statement at a time"),
        ("select ?", "there are no parameters here"),
        ("", "there is no statement in it"),
        ("/* nothing */ ;", "there is no statement in it"),
        ("select zeroblob(100000000)", "too big"),
        ("select " + "1," * 300 + "1", "at most 200 columns"),
        ("select " + "(" * 300 + "1" + ")" * 300, ""),
        ("select '" + "x" * 120000 + "'", "too big"),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_select_changes_nothing_and_says_why(made, tmp_path, statement, said):
    before = contents(made)
    assert said in sql(made / "trace", statement, code=2)
    assert contents(made) == before


def test_an_endless_statement_ends_with_ctrl_c(made):
    running = subprocess.Popen(
        [PROGRAM, "sql", made / "trace", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130 and out == "count(*)\n" and "interrupted after 0 rows" in err


def test_forms(made):
    text = "select 'a,\"b' || char(10) as x, 1e999 as y, null as z, 0.1 as w"
    assert list(csv.reader(io.StringIO(sql(made / "trace", text, "--csv"), newline=""))) == [
        ["x", "y", "z", "w"],
        ['a,"b\n', "inf", "", "0.1"],
    ]
    assert rows(made / "trace", text) == [{"x": 'a,"b\n', "y": "inf", "z": None, "w": 0.1}]
    assert "two columns are called 'a'" in sql(made / "trace", "select 1 a, 2 a", "--json", code=2)
    table = sql(made / "trace", "select char(27) || '[31m' || char(155) || 'x' as a, 12 as bcd")
    assert table == "a         bcd\n [31m  x   12\n" or ("\x1b" not in table and "\x9b" not in table)
    assert sql(made / "trace", "select call from calls", "--limit", "2") == "call\n1\n2\n"
    assert sql(made / "trace", "select call from calls where 0") == "call\n"


def test_what_is_neither(tmp_path, made):
    assert "no such folder" in sql(tmp_path / "no", "select 1", code=2)
    for statement in ("select count(*) from verdicts", "select op from causes", "select max(bits) from verdicts"):
        assert "a trace holds no verdicts" in sql(made / "trace", statement, code=2)
    assert "neither a trace nor results" in sql(tmp_path, "select 1", code=2)
    assert "sql needs a trace" in sql(code=2) and "put it in quotes" in sql("a", "b", "c", code=2)
    done = subprocess.run(
        [PROGRAM, "sql", made / "sample", "select count(*) from tensors"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "the trace demo is not there" in done.stderr
