# SPDX-License-Identifier: Apache-2.0
"""The program as a user meets it: tests/cli/NAME.cmd is run by sh in a folder that holds a
result (sample), an empty one (nothing), a damaged one (corrupt) and a trace (trace); its
output, messages and exit code must be those of NAME.out, NAME.err and NAME.code.

`python tests/py/test_cli.py --rewrite` writes what it gives today; look at the diff."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
CASES = sorted((ROOT / "tests" / "cli").glob("*.cmd"))


def prepare(folder: Path) -> None:
    """Makes what the cases look at."""
    maker = BUILD / "tests" / "test_report_files"
    for what in ("sample", "trace"):
        subprocess.run([maker, what, folder / what], check=True)
    (folder / "nothing").mkdir()
    (folder / "corrupt").mkdir()
    (folder / "corrupt" / "result.db").write_text("no database" * 100)


def run(case: Path, folder: Path) -> dict[str, str]:
    """What the case gives: the texts of its .out, .err and .code files."""
    environment = {
        "PATH": f"{BUILD / 'bin'}:/usr/bin:/bin",
        "ULPSCOPE_PYTHON": "/nonexistent/python3",
        "COLUMNS": "100",
    }
    done = subprocess.run(
        ["sh", "-c", case.read_text()],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    return {".out": done.stdout, ".err": done.stderr, ".code": f"{done.returncode}\n"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("cli")
    prepare(made)
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(case, folder):
    for suffix, text in run(case, folder).items():
        assert text == case.with_suffix(suffix).read_text(), suffix


def test_there_are_cases():
    assert len(CASES) > 10


def rewrite() -> None:
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for case in CASES:
            for suffix, text in run(case, Path(name)).items():
                case.with_suffix(suffix).write_text(text)


if __name__ == "__main__":
    if sys.argv[1:] != ["--rewrite"]:
        sys.exit("usage: test_cli.py --rewrite")
    rewrite()
