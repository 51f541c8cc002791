# SPDX-License-Identifier: Apache-2.0
"""Commands in odd surroundings: a site that prints, a torch that is not there, a cache that
cannot be written, names that are not UTF-8; and what is said where a word was mistyped."""

import os
import subprocess
import sys

import pytest
import schemas
from traces import small_trace

from ulpscope.program import glue


def run(*words, path="", **environment):
    before = [str(path)] if path else []
    setting = {"PYTHONPATH": os.pathsep.join([*before, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [str(w) if not isinstance(w, bytes) else w for w in words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", **setting, **environment},
    )


def check(trace, out, *more, **options):
    return run("ulpscope", "check", trace, "--device", "cpu", "-o", out, "-j", "1", "--ops", "mm", *more, **options)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return small_trace(tmp_path_factory.mktemp("trace") / "trace", 1)


def test_info_tells_glue_compiler_and_cache_also_where_a_site_prints(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('hello from the site ' * 100)")
    said = run(
        "ulpscope",
        "info",
        "--json",
        path=tmp_path,
        ULPSCOPE_PYTHON=sys.executable,
        ULPSCOPE_CACHE=str(tmp_path / "cache"),
    )
    assert said.returncode == 0, said.stderr
    told = schemas.one("info", said.stdout)
    assert told["torch"][0].isdigit() and "sim:0" in told["devices"]
    assert told["glue"] == (
        "intercept not built yet, sim not built yet, simccl not built yet, compiled at first use, once, about a minute"
    )
    assert told["cache"] == str(tmp_path / "cache") and told["compiler"]


def test_glue_is_compiled_anew_for_headers_that_it_includes():
    headers = {p.name for p in glue._public_headers([p for p in (glue.PACKAGE / "glue/intercept").iterdir()])}
    assert {"capture.h", "call.h", "stats.h", "api.h"} <= headers  # the last two through the first
    assert not {"loss.h", "watch.h", "fuzz.h"} & headers


def test_a_missing_torch_is_named_with_what_to_do(trace, tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('none', name='torch')")
    said = check(trace, tmp_path / "out", path=tmp_path)
    assert said.returncode == 2 and "pip install torch" in said.stderr
    assert not (tmp_path / "out").exists()


def test_a_cache_that_cannot_be_written_names_its_variable():
    code = "from ulpscope.program import glue; glue.build('sim')"
    said = run(sys.executable, "-c", code, ULPSCOPE_CACHE="/proc/no/cache")
    assert "set ULPSCOPE_CACHE to a folder that can be written" in said.stderr


def test_names_that_are_not_utf_8_are_no_obstacle(tmp_path):
    trace = os.fsencode(tmp_path) + b"/tr\xffce"
    small_trace(tmp_path / "trace", 1)
    os.rename(tmp_path / "trace", trace)
    said = check(trace, os.fsencode(tmp_path) + b"/o\xfft")
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize(
    "words, meant",
    [
        (("chek",), "did you mean check?"),
        (("report", "--bseline=x", "out"), "did you mean --baseline?"),
        (("show", "--modul", "x", "--jsno", "t"), "did you mean --json?"),
    ],
)
def test_a_mistyped_word_of_the_program(words, meant):
    said = run("ulpscope", *words)
    assert said.returncode == 2 and meant in said.stderr


def test_a_mistyped_option_of_check(trace, tmp_path):
    said = check(trace, tmp_path / "out", "--distnct")
    assert said.returncode == 2 and "did you mean --distinct?" in said.stderr


def test_damaged_results_say_what_to_do(trace, tmp_path):
    (tmp_path / "result.db").write_text("no database at all, but long enough to look at")
    said = check(trace, tmp_path)
    assert said.returncode == 2 and "--force replaces it" in said.stderr
