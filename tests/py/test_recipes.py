# SPDX-License-Identifier: Apache-2.0
"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the sources: each block of
code is put where its first line says, the copy is built, and what was added works. Each recipe
stays within the folder that the table names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def recipes(text):
    """{change: [(file, how, code)]} of the sections `Add a ...`."""
    found = {}
    for title, body in re.findall(r"^## Add (an? [^\n]+)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        blocks = re.findall(r"^```(?:c|python)\n(?://|#) ([^,\n]+), ([^\n]+)\n(.*?)^```$", body, re.M | re.S)
        if blocks:
            found[title] = blocks
    return found


def followed(text, how, code):
    """The text of a file after one block."""
    if how == "new":
        assert text is None, "it exists"
        return code
    if how.startswith("after "):
        line = how.removeprefix("after ")
        assert text.count(f"\n{line}\n") == 1, f"not once in it: {line}"
        return text.replace(f"\n{line}\n", f"\n{line}\n{code}")
    name = how.removeprefix("a row of ")
    macro = re.search(rf"^#define {name}\(X\)(?:.*\\\n)+.*\n", text, re.M)
    if macro:
        return text[: macro.end() - 1] + " \\\n" + code + text[macro.end() :]
    table = re.search(rf"\b{name}(?:\[[^\]]*\])? = \{{.*?^(?=\}})", text, re.M | re.S)
    assert table, f"no list {name}"
    return text[: table.end()] + code + text[table.end() :]


def test_each_recipe_touches_the_folder_that_the_table_names():
    named = dict(re.findall(r"^\| (an? [^|]+?) \| `([\w/]+)/`", PAGE, re.M))
    blocks = recipes(PAGE)
    assert blocks and blocks.keys() <= named.keys()
    for change, parts in blocks.items():
        outside = [file for file, _, _ in parts if not file.startswith(named[change] + "/")]
        assert not outside, f"{change}: {outside}"


def test_a_block_that_has_no_place_is_an_error():
    with pytest.raises(AssertionError, match="no list nowhere"):
        followed("int x;\n", "a row of nowhere", "")
    with pytest.raises(AssertionError, match="not once in it"):
        followed("int x;\n", "after int y;", "")
    assert followed("#define L(X)  \\\n    X(A)\n\n", "a row of L", "    X(B)\n") == (
        "#define L(X)  \\\n    X(A) \\\n    X(B)\n\n"
    )
    assert followed("t[N] = {\n  1,\n};\n", "a row of t", "  2,\n") == "t[N] = {\n  1,\n  2,\n};\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The build folder of a copy to which everything was added."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("include", "src", "cli", "cmake", "sim", "tests", "examples", "python", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("py", "__pycache__"))
    shutil.copy(ROOT / "CMakeLists.txt", copy)
    for file, how, code in sum(recipes(PAGE).values(), []):
        path = copy / file
        text = path.read_text() if path.exists() else None
        path.write_text(followed(text, how, code))
    run(
        "cmake",
        "-S",
        copy,
        "-B",
        copy / "b",
        "-G",
        "Ninja",
        "-DULPSCOPE_PYTHON=OFF",
        "-DULPSCOPE_TESTS=ON",
        "-DULPSCOPE_WERROR=ON",
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_C_FLAGS=-O0",
    )
    run("cmake", "--build", copy / "b", "--target", "ulpscope_cli", "test_dtype", "test_stats")
    return copy / "b"


def run(*command, code=0, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_a_dtype_is_one_row(built):
    """The C tests walk the list: conversions and statistics against slow definitions."""
    run(built / "tests" / "test_dtype")
    run(built / "tests" / "test_stats")


def test_a_command_has_help_and_runs(built):
    program = built / "bin" / "ulpscope"
    assert "float8_e3m4      5" in run(program, "dtypes", "--floats").splitlines()
    assert "--floats" in run(program, "dtypes", "--help")
    assert "  dtypes      the dtypes that are judged\n" in run(program, "--help")
    run(program, "dtypes", "--flots", code=2)


@pytest.mark.parametrize(("off", "code"), [(0.25, 0), (0.75, 1)])
def test_a_standard_judges(built, tmp_path, off, code):
    x = torch.arange(8.0, dtype=torch.float64)
    save_file({"y": (x + off).float()}, tmp_path / "d.safetensors")
    save_file({"y": x}, tmp_path / "r.safetensors")
    said = run(
        built / "bin" / "ulpscope",
        "judge",
        tmp_path / "d.safetensors",
        tmp_path / "r.safetensors",
        "--standard",
        "within:0.5",
        "-o",
        tmp_path / "out",
        code=code,
    )
    assert ("off by up to 0.75" in " ".join(said.split())) == bool(code)


def test_a_neighbour_is_named(built, tmp_path):
    """In the copy's Python, with the extension of this build: lgamma is named where digamma was asked."""
    package = tmp_path / "ulpscope"
    shutil.copytree(built.parent / "python" / "ulpscope", package)
    for path in (BUILD / "python" / "ulpscope").iterdir():
        if path.suffix == ".so" or path.name in ("glue", "include"):
            (package / path.name).symlink_to(path)
    code = (
        "import torch, ulpscope\n"
        "x = torch.linspace(2.5, 9, 1000)\n"
        "print(ulpscope.judge_call(torch.digamma, (x,), None, x.lgamma()).sentence)"
    )
    for where, named in ((tmp_path, True), (BUILD / "python", False)):
        said = run(sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": str(where)})
        assert ("lgamma instead of digamma" in said) == named, said
