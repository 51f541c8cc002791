# SPDX-License-Identifier: Apache-2.0
"""`ulpscope schema`: there is one of each command that has --json, and what the program prints keeps to it. What
needs torch is held to its schema in the tests of its command."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import schemas

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
FILE = {"check", "judge", "report", "result"}  # of which it is a file
HELD = {  # by whom: what gives schemas.one or each these words
    "bisect": "test_bisect.py",
    "config": "test_config.py",
    "coverage": "test_coverage.py",
    "diff": "diff_runs.py",
    "doctor": "test_doctor.py",
    "env": "test_env.py",
    "fuzz": "test_fuzz_sides.py",
    "info": "test_surroundings.py",
    "loss": "test_loss.py",
    "ops": "test_operators_yaml.py",
    "overflow": "test_overflow.py",
    "trial": "test_trial.py",
    "watch": "test_watch_explain.py",
}


def ulpscope(*words, code=0, **options):
    done = subprocess.run([BUILD / "bin" / "ulpscope", *map(str, words)], capture_output=True, text=True, **options)
    assert done.returncode == code, done.stderr
    return done.stdout if code != 2 else done.stderr


COMMANDS = re.findall(r"^  ([a-z]+) +\S", ulpscope("--help").split("examples:")[0], re.M)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    for what in ("sample", "trace"):
        subprocess.run([BUILD / "tests" / "test_report_files", what, folder / what], check=True)
    return folder


def test_each_command_with_json_has_a_schema():
    listed = {line.split()[0] for line in ulpscope("schema").splitlines()}
    has = {c for c in COMMANDS if c != "help" and re.search(r"^  --json\b", ulpscope("help", c), re.M)}
    assert len(has) > 10 and listed - FILE == has
    for name in listed:
        schema = json.loads(ulpscope("schema", name))
        assert schema["$schema"].endswith("2020-12/schema") and schema["title"] and schema["$comment"]


def test_each_schema_is_held_to_something_real():
    listed = {line.split()[0] for line in ulpscope("schema").splitlines()}
    for name, file in HELD.items():
        assert re.search(rf'(one|each)\("{name}", ', (ROOT / "tests/py" / file).read_text()), name
    assert listed - FILE - set(HELD) == {"explain", "port", "show", "sql"}  # below


def test_what_needs_no_torch(made):
    schemas.each("explain", ulpscope("explain", "--json"))
    schemas.each("show", ulpscope("show", made / "trace", "--json", "--stats"))
    for view in ("calls", "tensors", "modules", "verdicts", "causes", "ranks"):
        for what in ("trace", "sample"):
            lacks = what == "trace" and view in ("verdicts", "causes")  # which is told, in place of no rows
            rows = ulpscope("sql", made / what, f"select * from {view}", "--json", code=2 if lacks else 0)
            schemas.each("sql", rows) if not lacks else None


def test_a_port(tmp_path):
    (tmp_path / "train.py").write_text('import torch\nx = torch.zeros(3).cuda()\ny = state["cuda"]\n')
    schemas.one("port", ulpscope("port", tmp_path, "--to", "musa", "--dry-run", "--json", code=1))


def test_result_json(made):
    ulpscope("report", made / "sample", code=1)
    schemas.each("report", (made / "sample" / "result.json").read_text())


def test_a_schema_catches_what_is_not_of_it(made):
    good = ulpscope("show", made / "trace", "--json", "--limit", 1)
    for old, new, said in [
        ('"call": 1', '"call": "1"', "no integer"),
        ('"op"', '"operator"', "lacks op"),
        ('"role": "in"', '"role": "inside"', "none of the values"),
    ]:
        assert old in good
        with pytest.raises(AssertionError, match=said):
            schemas.each("show", good.replace(old, new))


def test_what_has_no_schema():
    assert "did you mean show?" in ulpscope("schema", "shov", code=2)
    assert "or it writes no JSON" in ulpscope("schema", "capture", code=2)
    assert "takes one command" in ulpscope("schema", "show", "diff", code=2)
