# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin, run in sessions of its own: fixture, marker, and one report over all
that was judged, also with workers."""

import importlib.util
import json
import subprocess
import sys

import pytest

SUITE = """
import pytest, torch
from ulpscope import check_call
from ulpscope.testing import assert_accurate

def rms_norm(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w

def in_bfloat16(x, w):
    return rms_norm(x.bfloat16(), w.bfloat16()).float()

@pytest.fixture
def operands():
    g = torch.Generator().manual_seed(3)
    return torch.randn(8, 40, generator=g), torch.randn(40, generator=g)

def test_good(ulpscope_check, operands):
    assert ulpscope_check(rms_norm, rms_norm, *operands).passed

def test_bad(ulpscope_check, operands):
    ulpscope_check(in_bfloat16, rms_norm, *operands)

def test_without_the_fixture(operands):
    assert check_call(rms_norm, operands).passed

@pytest.mark.ulpscope(inputs="stress:4:given,size*", backward=True)
class TestMarked:
    def test_stress(self, ulpscope_check, operands):
        assert len(ulpscope_check(rms_norm, rms_norm, *operands).cases) > 5

    @pytest.mark.ulpscope(inputs="given")
    def test_nearer_marker_wins(self, ulpscope_check, operands):
        verdict = ulpscope_check(rms_norm, rms_norm, *operands)
        assert not verdict.cases and len(verdict.outputs) == 3
"""


def session(folder, *options, suite=SUITE):
    (folder / "test_suite.py").write_text(suite)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "ulpscope.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        *options,
        str(folder),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def calls_of(folder):
    return json.loads((folder / "report/result.json").read_text())["calls"]


def test_a_session_with_a_report(tmp_path):
    done = session(tmp_path, "--ulpscope-report", "report")
    assert done.returncode == 1 and "1 failed, 4 passed" in done.stdout, done.stdout
    assert "reduced: in_bfloat16 computed with" in done.stdout
    assert "calls judged, report/report.html" in done.stdout
    calls = calls_of(tmp_path)
    assert (tmp_path / "report/report.html").stat().st_size > 10_000
    bad = [c for c in calls if c["verdict"] != "pass"]
    assert [(c["verdict"], c["op"], c["module"]) for c in bad] == [
        ("reduced", "in_bfloat16", "test_suite.py::test_bad")
    ]
    assert "test_suite.py::test_without_the_fixture" in {c["module"] for c in calls}
    stress = [c for c in calls if "stress case" in c["notes"]]
    assert len(stress) > 5 and all("seed 4" in c["notes"] for c in stress)


def test_no_report_unless_asked_for(tmp_path):
    done = session(tmp_path, "-k", "good")
    assert done.returncode == 0 and "ulpscope" not in done.stdout.splitlines()[-1]
    assert not (tmp_path / "report").exists()


def test_unknown_marker_argument_is_named(tmp_path):
    suite = SUITE.replace("backward=True", "backwards=True")
    done = session(tmp_path, "-k", "stress", suite=suite)
    assert "the ulpscope marker knows inputs, backward, device, repeat, via, allow, not backwards" in done.stdout


def test_report_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    done = session(tmp_path, "-k", "good", "--ulpscope-report", "file/report")
    assert done.returncode == 0 and "ulpscope: no report: " in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="no pytest-xdist")
def test_workers_share_one_report(tmp_path):
    done = session(tmp_path, "-n", "2", "--ulpscope-report", "report")
    assert done.returncode == 1, done.stdout
    calls = calls_of(tmp_path)
    assert sorted(c["call"] for c in calls) == list(range(1, len(calls) + 1))
    assert sum(c["verdict"] == "reduced" for c in calls) == 1
