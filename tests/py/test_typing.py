# SPDX-License-Identifier: Apache-2.0
"""The package says that it is typed (py.typed): a program that calls what it exports passes `mypy --strict`."""

import subprocess
import sys
from pathlib import Path

import ulpscope

HERE = Path(__file__).parent
SETTINGS = """[mypy]
strict = True
follow_imports = silent
mypy_path = {package}
[mypy-torch.*]
follow_imports = skip
"""


def test_a_program_passes_mypy_strict(tmp_path):
    settings = tmp_path / "mypy.ini"
    settings.write_text(SETTINGS.format(package=Path(ulpscope.__file__).parents[1]))
    words = ["--config-file", settings, "--cache-dir", tmp_path, "--python-executable", sys.executable]
    said = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, words), str(HERE / "typed_program.py")],
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_all_that_is_exported_is_called():
    text = (HERE / "typed_program.py").read_text()
    classes = {"CallVerdict", "OutputVerdict", "CheckFailed", "WatchAlarm", "fuzzing"}
    assert [name for name in ulpscope.__all__ if name not in classes and f"ulpscope.{name}" not in text] == []
