# SPDX-License-Identifier: Apache-2.0
"""`ulpscope show` on traces that are made here: arguments as people read them, folders with
odd names, lists of steps, traces that are cut short or hold what no capture writes."""

import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest
import torch
from traces import TraceWriter


def show(*words):
    return subprocess.run(["ulpscope", "show", *map(str, words)], capture_output=True, text=True, timeout=60)


def change(trace, sql, *values):
    with closing(sqlite3.connect(trace / "trace.db")) as db, db:
        db.execute(sql, values)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "we#ird"
    with TraceWriter(path) as t:
        x = torch.randn(2, 3)
        t.add(
            "aten::foo",
            x,
            [x, 4],
            None,
            True,
            0.5,
            float("inf"),
            "mean",
            dtype=torch.float16,
            approximate="tanh",
            state='{"grad": true, "autocast": {"cpu": "bfloat16"}}',
        )
        t.add("aten::bar", x)
    return path


def test_arguments_are_shown_as_people_read_them(trace):
    said = show(f"{trace}#1").stdout.splitlines()
    at = said.index("arguments")
    assert [line.split(maxsplit=1) for line in said[at + 1 : at + 10]] == [
        ["args[0]", "f32[2,3]"],
        ["args[1]", "[f32[2,3], 4]"],
        ["args[2]", "None"],
        ["args[3]", "True"],
        ["args[4]", "0.5"],
        ["args[5]", "float inf"],
        ["args[6]", "mean"],
        ["kwargs.dtype", "dtype float16"],
        ["kwargs.approximate", "tanh"],
    ]
    assert not any('{"' in line for line in said)


def test_a_folder_may_have_a_number_sign_in_its_name(trace):
    listed = show(trace)
    assert listed.returncode == 0 and "aten::bar" in listed.stdout
    assert "no such folder" in show(f"{trace}else#1").stderr


def test_steps_are_a_list(trace):
    change(trace, "UPDATE call SET step = 7 WHERE sequence = 2")
    assert "aten::bar" in show(trace, "--step", "1,5-8").stdout
    assert "aten::foo" not in show(trace, "--step", "1,5-8").stdout
    none = show(trace, "--step", "1-6")
    assert "no call matches" in none.stderr and none.returncode == 2
    some = show(trace, "--ops", "bar,nothere")
    assert "aten::bar" in some.stdout and "matches 'nothere' of --ops" in some.stderr and some.returncode == 2
    for bad in ("5-3", "1,", "x", "", "-1"):
        assert "no list of steps" in show(trace, f"--step={bad}").stderr, bad


def test_a_name_of_torch_is_told_apart_from_an_operator(trace):
    assert "names such as aten::mm" in show(trace, "--ops", "torch.mm").stderr


def test_a_trace_that_was_cut_short_is_said_to_be(trace):
    assert "incomplete" not in show(trace).stderr
    change(trace, "UPDATE meta SET value = '0' WHERE key = 'complete'")
    assert "the trace is incomplete" in show(trace).stderr
    assert "the trace is incomplete" in show(f"{trace}#1").stderr


def test_text_of_a_trace_cannot_steer_the_terminal(trace):
    evil = '{"args": ["\\u001b[31m", "\x9b"], \x1b[0m broken'
    change(trace, "UPDATE call SET args = ?, state = ?", evil, '{"x": "\\u001b[31m\\u009b"}')
    said = show(f"{trace}#1")
    assert said.returncode == 0 and "\x1b" not in said.stdout and "\x9b" not in said.stdout
    said = show(f"{trace}#1", "--json").stdout
    assert "\x1b" not in said and '"args": "{' in said


def test_one_trace_of_several_ranks_has_to_be_named(trace, tmp_path):
    (tmp_path / "job").mkdir()
    trace.rename(tmp_path / "job/rank-0")
    said = show(tmp_path / "job")
    assert said.returncode == 2 and "holds a trace for each rank: name one" in said.stderr


def test_what_a_killed_capture_left_is_opened(trace, tmp_path):
    (tmp_path / "cut").mkdir()
    shutil.copytree(trace, tmp_path / "cut/process-77")
    assert show(tmp_path / "cut").stdout == show(tmp_path / "cut/process-77").stdout == show(trace).stdout
    trace.rename(tmp_path / "cut/process-78")
    said = show(tmp_path / "cut")
    assert said.returncode == 2 and "name one of the folders process-N in it" in said.stderr
