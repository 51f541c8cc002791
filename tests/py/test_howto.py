# SPDX-License-Identifier: Apache-2.0
"""The commands of the README, the tutorial and each page under docs/how-to run, in the order of the page, in a folder
that holds the files of tests/how-to/PAGE (else the program of the first) and what the page itself says to save; none
of them ends in trouble (exit code 2 or above). Its Python runs, too: a page's blocks in one namespace, in which
what its reader has is there (tests/how-to/names.py), its tests as a test's. A page in Chinese
shows byte for byte what the one in English shows, and is held to that instead."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "tests" / "how-to"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("start/*.md")),
    *(page for page in sorted((ROOT / "docs" / "how-to").glob("*.md")) if not page.name.startswith("migrate-")),
]  # those have tests of their own: test_migrate, test_msprobe_defects


def commands(text):
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def original(page):
    """The page in English of one in Chinese."""
    return page.with_name(page.name.replace(".zh.md", ".md"))


def run_of(page):
    """All that is run of a page, and what it says that this prints."""
    text = page.read_text()
    return commands(text), saved(text), snippets(text), printed_by(text)


def test_pages_in_chinese_run_what_those_in_english_run():
    """Byte for byte: a page that has to differ is to be run itself."""
    for page in PAGES:
        assert run_of(page) == run_of(original(page)), page


def asked_of_run(command):
    """What `./run` is asked for. The demo has a test of its own, and this is the test."""
    found = re.match(r"\./run (\w+)", command)
    return found and found[1]


def words(text):
    """Without digits, which depend on the processor, and without line breaks, which depend on digits."""
    return " ".join(re.sub(r"\d[\d.e-]*", "0", text).split())


@pytest.mark.parametrize("page", [p for p in PAGES if original(p) == p], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, tmp_path, same_place):
    files, text = FILES / page.stem, page.read_text()
    if [*files.rglob("*.cu")]:
        tmp_path = same_place / page.stem
    shutil.copytree(files if files.is_dir() else FILES / "does-it-compute-my-model", tmp_path, dirs_exist_ok=True)
    for name, code in saved(text):
        (tmp_path / name).write_text(code)
    assert commands(text), "a page shows a command that answers its question"
    printed = ""
    for command in commands(text):
        if asked_of_run(command):
            assert f"  {asked_of_run(command)} " in (ROOT / "run").read_text(), command
            continue
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
        assert done.returncode in (0, 1), f"{command}\n{done.stdout}{done.stderr}"
        printed += done.stdout
    for shown in printed_by(text):
        assert words(shown) in words(printed), "what the page shows is what it prints"


def printed_by(text):
    """Verdicts that a page shows."""
    return re.findall(r"^```\n(reduced .*?)^```", text, re.S | re.M)


def snippets(text):
    """Blocks of Python; not those that are to be saved, which the commands of the page run."""
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    return [b for b in blocks if not re.match(r"# \w+\.py\n", b)]


def saved(text):
    """What a page says to save: name and text."""
    return re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, re.S | re.M)


# Whose Python is about what no page can have: a loop over a reader's step, a call of a reader's trace, Triton kernels
# (tests/via has some).
WITHOUT = {"sim", "sim.zh", "trace-format", "via"}


@pytest.mark.parametrize(
    "page",
    [p for p in sorted((ROOT / "docs").glob("*/*.md")) if snippets(p.read_text()) and p.stem not in WITHOUT],
    ids=lambda page: page.stem,
)
def test_the_python_of_a_page_runs(page, tmp_path):
    text = page.read_text()
    program = (FILES / "names.py").read_text().partition("\n")[2]
    for block in snippets(text):
        if "jax" in block and not importlib.util.find_spec("jax"):
            continue
        program += f"\n{block}"
        for name, argument in re.findall(r"^def (test_\w+)\((test_case)?\)", block, re.M):
            program += f"\n{name}({'None' if argument else ''})\n"
    for name, code in [("page.py", program), *saved(text)]:
        (tmp_path / name).write_text(code)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, program + done.stdout + done.stderr
