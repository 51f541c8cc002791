# SPDX-License-Identifier: Apache-2.0
"""The commands of each page under docs/how-to run, in the order of the page, in a folder that
holds the files of tests/how-to/PAGE; none of them ends in trouble (exit code 2 or above)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))
         if not page.name.startswith("migrate-")]  # those have tests of their own: test_migrate, test_msprobe_defects  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, tmp_path):
    files = ROOT / "tests" / "how-to" / page.stem
    if files.is_dir():
        shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M)
    commands = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    assert commands, "a page shows a command that answers its question"
    for command in commands:
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                              stdin=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(tmp_path)})  # fmt: skip
        assert done.returncode in (0, 1), f"{command}\n{done.stdout}{done.stderr}"
