# SPDX-License-Identifier: Apache-2.0
"""The package says that it is typed (py.typed): a program that calls what it exports passes `mypy --strict`, and so
does each file of these rooms but for those in tests/laws/untyped.txt, which only shrinks."""

import functools
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import ulpscope
from law_lists import PACKAGE, ROOT, held

HERE = Path(__file__).parent
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
ROOMS = ("_bootstrap", "calls", "causes", "compat", "judges", "program", "session", "watching")
# torch is not followed, so that each class of its is Any: what derives from one is no offence of the file.
SETTINGS = """[mypy]
strict = True
disallow_subclassing_any = False
follow_imports = silent
python_version = 3.11
mypy_path = {package}
[mypy-torch.*]
follow_imports = skip
[mypy-functorch.*,setuptools.*]
ignore_missing_imports = True
"""
PLANTED = "def planted(x): return x\n"


@functools.cache
def objections() -> tuple[str, Counter[str]]:
    """All that mypy says, and how often of each file: of a program, of the rooms, and of a planted offence. What it
    knows of files that have not changed is kept in the build folder."""
    package = Path(ulpscope.__file__).parent
    rooms = [p for p in PACKAGE.rglob("*.py") if p.parent == PACKAGE or p.relative_to(PACKAGE).parts[0] in ROOMS]
    with tempfile.TemporaryDirectory() as folder:
        settings, planted = Path(folder, "mypy.ini"), Path(folder, "planted.py")
        settings.write_text(SETTINGS.format(package=package.parent))
        planted.write_text(PLANTED)
        names = [str(package / p.relative_to(PACKAGE)) for p in sorted(rooms)]
        words = ["--config-file", settings, "--cache-dir", BUILD / "mypy", "--python-executable", sys.executable]
        said = subprocess.run(
            [sys.executable, "-m", "mypy", *map(str, words), str(HERE / "typed_program.py"), str(planted), *names],
            capture_output=True,
            text=True,
        )
    return said.stdout + said.stderr, Counter(re.findall(r"([\w.-]+\.py):\d+: error: ", said.stdout))


def test_a_program_passes_mypy_strict():
    said, found = objections()
    assert found["planted.py"] == 1, said[-2000:]
    assert not found["typed_program.py"], said


def test_typed_files_stay_typed():
    _, found = objections()
    held("untyped", [name for name in found if name != "planted.py"])


def test_all_that_is_exported_is_called():
    text = (HERE / "typed_program.py").read_text()
    classes = {"CallVerdict", "OutputVerdict", "CheckFailed", "WatchAlarm", "fuzzing"}
    assert [name for name in ulpscope.__all__ if name not in classes and f"ulpscope.{name}" not in text] == []
