# SPDX-License-Identifier: Apache-2.0
"""Defaults of a project (`ulpscope.toml`, `[tool.ulpscope]`): which file is read, which values a command takes and
says that it took, what `ulpscope config` tells, what is wrong with a file."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import schemas

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
CURVES = ("step,loss\n" + "".join(f"{i},{2 - i / 100}\n" for i in range(50)), "step,loss\n0,1\n")


def ulpscope(folder, *words, code=0, **variables):
    env = {k: v for k, v in os.environ.items() if k != "ULPSCOPE_CONFIG"} | variables
    done = subprocess.run([BUILD / "bin" / "ulpscope", *words], capture_output=True, text=True, cwd=folder, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def told(folder, *words, **variables):
    return schemas.one("config", ulpscope(folder, "config", *words, "--json", **variables).stdout)


def values(folder, command, **variables):
    options = told(folder, command, **variables)["options"]
    return {o["name"]: (o["value"], o["line"]) for o in options if o["from"] == "file"}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "above" / "below").mkdir(parents=True)
    return tmp_path / "above"


def test_values_and_where_they_come_from(place):
    text = 'device = "npu:0"\nimport = ["a", "b"]\njobs = 2\n[check]\njobs = 3\nverbose = true\nmin_judged = 50\n'
    (place / "ulpscope.toml").write_text(text)
    expected = {
        "device": ("npu:0", 1),
        "import": ("a, b", 2),
        "jobs": ("3", 5),
        "verbose": ("true", 6),
        "min-judged": ("50", 7),
    }
    got = values(place / "below", "check")
    assert expected.items() <= got.items(), got
    assert values(place, "bisect") == {"jobs": ("2", 3)}
    built_in = [o for o in told(place, "check")["options"] if o["from"] == "built in"]
    assert built_in and all(o["line"] is None for o in built_in)
    whole = told(place)
    assert whole["command"] is None and whole["file"] == "ulpscope.toml"
    assert [d["value"] for d in whole["defaults"] if d["name"] == "import"] == ["a", "b"]
    page = ulpscope(place / "below", "config", "check").stdout
    assert "--device" in page and "npu:0" in page and "/ulpscope.toml:1" in page and "built in" in page
    page = ulpscope(place, "config", ULPSCOPE_ISA="scalar").stdout
    assert "line 5    check        --jobs 3" in page and "ULPSCOPE_ISA=scalar" in page
    assert "no ulpscope.toml" in ulpscope("/", "config").stdout


def test_what_is_typed_goes_before_the_file(place):
    (place / "a.csv").write_text(CURVES[0])
    (place / "b.csv").write_text(CURVES[0].replace("1.9", "1.8"))
    (place / "ulpscope.toml").write_text('[loss]\nkey = "nothing"\n')
    taken = ulpscope(place, "loss", "a.csv", "b.csv", code=2)
    assert "ulpscope: ulpscope.toml: --key nothing (line 2)" in taken.stderr and "'nothing'" in taken.stderr
    for words in (("loss", "--key", "loss"), ("loss", "--key=loss"), ("--no-config", "loss"), ("loss", "--no-config")):
        done = ulpscope(place, *words, "a.csv", "b.csv", code=1)
        assert "ulpscope.toml" not in done.stderr
    ulpscope(place, "loss", "a.csv", "b.csv", code=1, ULPSCOPE_CONFIG="off")
    (place / "other").write_text('[loss]\nkey = "loss"\njson = true\n')
    other = ulpscope(place, "loss", "a.csv", "b.csv", code=1, ULPSCOPE_CONFIG="other")
    assert "ulpscope: other: --key loss (line 2), --json (line 3)" in other.stderr and json.loads(other.stdout)
    (place / "ulpscope.toml").write_text('json = true\n[loss]\njson = false\nkey = "loss"\n')
    assert not ulpscope(place, "loss", "a.csv", "b.csv", code=1).stdout.startswith("{")


def test_a_program_gets_its_own_words(place):
    """Defaults of `capture` and `run` stand before the program, never among its words."""
    (place / "ulpscope.toml").write_text('[run]\nfallback = "*softmax*"\n')
    (place / "train.py").write_text("import sys; print(sys.argv)\n")
    done = ulpscope(place, "run", "python", "train.py", "--fallback", "mine", code=2)
    assert "['train.py', '--fallback', 'mine']" in done.stdout and "--fallback *softmax* (line 2)" in done.stderr


def test_the_nearest_file_counts_and_pyproject_where_it_speaks_of_us(place):
    own, shared = place / "ulpscope.toml", place / "below" / "pyproject.toml"
    own.write_text("[check]\njobs = 2\n")
    shared.write_text('[tool.ruff]\nlint = { select = ["E", """x\n"""] }\n')
    assert values(place / "below", "check") == {"jobs": ("2", 2)}
    shared.write_text("this is no TOML = = and says nothing of us\n")
    assert values(place / "below", "check") == {"jobs": ("2", 2)}
    shared.write_text('[project]\nname = "x"\n[tool.ulpscope]\n[tool.ulpscope.check]\njobs = 5\n')
    assert values(place / "below", "check") == {"jobs": ("5", 5)}
    (place / "below" / "ulpscope.toml").write_text("")
    assert values(place / "below", "check") == {}


WRONG = {  # a file, its line, what is said
    "[chekc]\n": (1, "there is no command 'chekc'; did you mean [check]?"),
    "\n[check]\njbs = 3\n": (3, "ulpscope check has no option --jbs; did you mean jobs?"),
    "dvice = 'x'\n": (1, "no command has an option --dvice; did you mean device?"),
    "zzzzzzzz = 1\n": (1, "no command has an option --zzzzzzzz"),
    "jobs = 1\njobs = 2\n": (2, "'jobs' is given in line 1 already"),
    "jobs = [1]\njobs = [2]\n": (2, "'jobs' is given in line 1 already"),
    "import = [['a']]\n": (1, "'import' is an array of arrays"),
    "[check.jobs]\nx = 1\n": (1, "a table lies within that of 'check'"),
    "device = 'x\n": (1, "a text has no closing '"),
    "device = npu:0\n": (1, "'npu:0' is no value; a text stands in \"quotes\""),
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text.split("\n")[0] or "empty")
def test_what_is_wrong_with_a_file_ends_with_2(place, text):
    (place / "ulpscope.toml").write_text(text)
    line, why = WRONG[text]
    for words in (("config",), ("check", "nothing", "--device", "cpu")):
        done = ulpscope(place, *words, code=2)
        assert f"ulpscope.toml:{line}: {why}" in done.stderr and "--no-config" in done.stderr, done.stderr


def test_values_that_an_option_does_not_take(place):
    for text, why in (("[check]\nverbose = 3\n", "'verbose' takes true or false"), ("jobs = true", "takes a value: N")):
        (place / "ulpscope.toml").write_text(text)
        assert why in ulpscope(place, "check", "nothing", "--device", "cpu", code=2).stderr
    assert "there is no file 'gone'" in ulpscope(place, "check", "x", code=2, ULPSCOPE_CONFIG="gone").stderr
    assert "did you mean check?" in ulpscope(place, "--no-config", "config", "chekc", code=2).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_read(place):
    (place / "ulpscope.toml").write_text("jobs = 7\n")
    os.chown(place / "ulpscope.toml", 12345, 12345)
    done = ulpscope(place, "check", "nothing", "--device", "cpu", code=2)
    assert "another user's and is not read" in done.stderr and "--jobs 7" not in done.stderr
    assert values(place, "check", ULPSCOPE_CONFIG="ulpscope.toml") == {"jobs": ("7", 1)}
    os.chown(place, 12345, 12345)  # the folder is his as well: who works there knows it
    assert values(place, "check") == {"jobs": ("7", 1)}
