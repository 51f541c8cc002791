# SPDX-License-Identifier: Apache-2.0
"""Compiling the glue: in the C++ that torch wants, and what is said where it fails."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from ulpscope import _core
from ulpscope.program import glue

COMPILER = """#!/bin/sh
echo "$*" >>{folder}/asked
case "$*" in *-fsyntax-only*) case "$*" in *{has}*) exit 0;; esac; exit 1;; esac
echo "In file included from all.h:3:"
echo "inner.h:7:2: error: C++20 or later needed"
for i in 1 2 3 4 5 6 7 8 9; do printf 'note: a consequence%0999d\\n' 0; done
exit 1
"""


def fake_compiler(folder, has):
    path = folder / "cxx"
    path.write_text(COMPILER.format(folder=folder, has=has))
    path.chmod(0o755)
    return str(path)


def asked_by_torch():
    text = Path(torch.utils.__file__).with_name("cpp_extension.py").read_text()
    return max(re.findall(r"-std=(c\+\+\d\d)\b", text))


@pytest.mark.parametrize("has, used", [("c++", asked_by_torch()), ("c++2a", "c++2a"), ("c++17", "c++17")])
def test_the_standard_is_torchs_or_what_the_compiler_has(tmp_path, monkeypatch, capsys, has, used):
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, has))
    monkeypatch.setenv("ULPSCOPE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(glue.GlueError) as failure:
        glue.build("intercept")
    compiled = [line for line in (tmp_path / "asked").read_text().splitlines() if " -c " in line]
    assert compiled and all(f"-std={used} " in line for line in compiled)
    text = str(failure.value)
    assert "inner.h:7:2: error: C++20 or later needed" in text and "consequence" not in text
    log = re.search(r"whole answer: (.*)\)", text).group(1)
    assert "a consequence" in Path(log).read_text()
    assert "once, about a minute" in capsys.readouterr().err


SLOW = """#!/bin/sh
for out; do :; done
case " $* " in
*" -fsyntax-only "*) exit 0 ;;
*" -c "*) echo "$*" >> {folder}/asked
    case "$*" in *runtime.cpp*) test ! -e {folder}/broken || exit 1 ;; esac
    sleep 0.1 ;;
esac
echo made > "$out"
"""


def test_what_is_compiled_tells_how_far_it_is_and_is_kept_as_it_grows(tmp_path, monkeypatch):
    compiler = tmp_path / "cxx"
    compiler.write_text(SLOW.format(folder=tmp_path))
    compiler.chmod(0o755)
    (tmp_path / "broken").touch()
    monkeypatch.setattr(glue, "_SAID_EVERY_S", 0.05)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("ULPSCOPE_CACHE", str(tmp_path / "cache"))
    said, n = [], len(glue._sources("sim"))
    with pytest.raises(glue.GlueError):
        glue.build("sim", said.append)
    assert f"({n} files)" in said[0]
    first = (tmp_path / "asked").read_text().splitlines()
    assert 1 < len(first)
    (tmp_path / "broken").unlink()
    assert glue.build("sim", said.append).read_text() == "made\n"
    assert re.fullmatch(rf"compiling the sim glue: \d+ of {n} files \(\d+ s\)", said[-1])
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == n + 2  # the one that failed alone was compiled twice, and the headers once
    assert "-x c++-header" in asked[0] and all("-include" in line for line in asked[1:])
    assert [p.name for p in glue.path_of("sim").parent.iterdir() if "objects" in p.name] == []


def test_another_environment_with_the_same_torch_takes_what_is_compiled(tmp_path, monkeypatch):
    here = {name: glue.path_of(name) for name in glue.names()}
    for folder in ("glue", "include"):
        shutil.copytree(glue.PACKAGE / folder, tmp_path / folder)
    for library in glue.PACKAGE.glob("libulpscope*.so"):
        shutil.copy(library, tmp_path)
    monkeypatch.setattr(glue, "PACKAGE", tmp_path)
    assert {name: glue.path_of(name) for name in glue.names()} == here
    (tmp_path / "glue" / "sim" / "more.cpp").touch()
    assert glue.path_of("sim") != here["sim"] and glue.path_of("intercept") == here["intercept"]
    for path in here.values():
        told = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
        assert "NEEDED" in told and re.findall(r"PATH\).*\[(.*)\]", told) == ["$ORIGIN"]  # nobody's folders


def test_the_program_names_the_glue_without_torch():
    made = {name: glue.build(name).parent for name in glue.names()}
    program = shutil.which("ulpscope")
    said = subprocess.run(
        [program, "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"ULPSCOPE_CACHE": str(glue.cache_home())},
    ).stdout
    for name in made:
        line = next(line for line in said.splitlines() if line.startswith(f"glue {name}"))
        assert f"{_core.version} for torch " in line
        assert (Path(line.split(" in ", 1)[1]) / f"usc_glue_{name}.so").exists()
