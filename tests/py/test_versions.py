# SPDX-License-Identifier: Apache-2.0
"""What lets it run elsewhere: the oldest Python's grammar, glue that was compiled elsewhere, archives with
the same bytes, and the helpers of the oldest Python."""

import ast
import importlib.util
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from ulpscope.calls import older
from ulpscope.program import glue, shared_objects

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 9)
sys.path.insert(0, str(ROOT / "packaging"))
import archive  # noqa: E402
import matrix  # noqa: E402
import wheel  # noqa: E402


def newer_than_oldest(text: str) -> list[str]:
    """What the oldest Python does not take of a module."""
    try:
        tree = ast.parse(text, feature_version=OLDEST)
    except SyntaxError as problem:
        return [f"line {problem.lineno}: {problem.msg}"]
    lazy = "from __future__ import annotations" in text
    bad = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Match):
            bad.append(f"line {node.lineno}: match")
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            if name == "zip" and any(k.arg == "strict" for k in node.keywords):
                bad.append(f"line {node.lineno}: zip(strict=)")
            if name in ("isinstance", "issubclass") and isinstance(node.args[-1], ast.BinOp):
                bad.append(f"line {node.lineno}: a union as a class")
        notes = [node.annotation] if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation else []
        if isinstance(node, ast.FunctionDef) and node.returns:
            notes.append(node.returns)
        if not lazy and any(isinstance(x, ast.BinOp) for note in notes for x in ast.walk(note)):
            bad.append(f"line {node.lineno}: a union as an annotation")
    return bad


def test_the_oldest_python_reads_what_is_shipped():
    files = [
        *(ROOT / "python").rglob("*.py"),
        *(ROOT / "packaging").glob("*.py"),
        *(ROOT / "examples").glob("demo*/*.py"),
        ROOT / "examples/demo.py",
    ]
    own = {ROOT / "python/ulpscope/calls/older.py"}
    found = {str(p.relative_to(ROOT)): newer_than_oldest(p.read_text("utf-8")) for p in files if p not in own}
    assert {p: bad for p, bad in found.items() if bad} == {}
    assert len(found) > 200


@pytest.mark.parametrize(
    "text",
    [
        "match x:\n    case 1: pass\n",
        "def f(x: int | None): pass\n",
        "x: int | None = 1\n",
        "isinstance(x, int | str)\n",
        "zip(a, b, strict=True)\n",
        "def f() -> int | None: pass\n",
    ],
)
def test_what_it_does_not_read_is_caught(text):
    assert newer_than_oldest(text)


def of_the_oldest(monkeypatch):
    """calls/older.py as Python 3.9 runs it."""
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    spec = importlib.util.spec_from_file_location("older_of_3_9", older.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_helpers_of_the_oldest_python_do_what_the_newer_ones_do(monkeypatch):
    new, old = older, of_the_oldest(monkeypatch)
    for module in (new, old):
        assert list(module.zip_equal("ab", [1, 2])) == [("a", 1), ("b", 2)]
        assert list(module.pairwise([1, 2, 3])) == [(1, 2), (2, 3)]
        with pytest.raises(ValueError):
            list(module.zip_equal("ab", [1]))
        problem = ValueError("no")
        module.add_note(problem, "so")
        assert problem.__notes__ == ["so"]
    common = {"json", "os", "sys", "math", "collections", "importlib"}
    assert common <= old.STANDARD and common <= new.STANDARD
    assert "torch" not in old.STANDARD and "numpy" not in old.STANDARD


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A machine without a compiler; the folder in which a companion package would hold what fits."""
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    monkeypatch.setenv("ULPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("ulpscope_glue", None)
    package = tmp_path / "ulpscope_glue"
    package.mkdir()
    (package / "__init__.py").touch()
    return package


def compiled(path, machine, sections=0):
    """A file that looks like a shared object, of a processor, with its sections at a place."""
    head = bytearray(64)
    head[:20] = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + machine.to_bytes(2, "little")
    head[40:48] = sections.to_bytes(8, "little")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)


FOREIGN = 62 if platform.machine() == "aarch64" else 183
HERE = 183 if platform.machine() == "aarch64" else 62
DAMAGED = [
    (lambda path: path.write_text("<html>"), "is no shared object"),
    (lambda path: compiled(path, FOREIGN), "is made for another processor"),
    (lambda path: compiled(path, HERE, 4096), "is cut short"),
]


@pytest.mark.parametrize("damage, why", DAMAGED)
def test_damaged_glue_is_not_taken(elsewhere, damage, why):
    place = elsewhere / glue.sources_digest() / glue.fits()
    place.mkdir(parents=True)
    damage(place / "usc_glue_intercept.so")
    assert glue.taken("intercept") is None
    with pytest.raises(glue.GlueError, match=f"the one that is here {why}.*: install it again"):
        glue.build("intercept", print)


@pytest.mark.parametrize("damage, why", DAMAGED)
def test_damaged_glue_of_the_cache_is_compiled_anew(elsewhere, damage, why, monkeypatch):
    said, path = [], glue.path_of("intercept")
    path.parent.mkdir(parents=True)
    damage(path)
    monkeypatch.setattr(glue, "_compile", lambda name, library, say: compiled(library, HERE))
    with pytest.raises(glue.GlueError, match="no C\\+\\+ compiler"):
        glue.build("intercept", said.append)
    assert len(said) == 1 and why in said.pop()  # nothing is begun that cannot be done
    for name, gives in (("_why_not_compiled", ""), ("_must_compile", None)):
        monkeypatch.setattr(glue, name, lambda *_, gives=gives: gives)
    assert glue.build("intercept", said.append) == path and why in said[0] and "anew" in said[0]
    assert glue.build("intercept", said.append) == path and len(said) == 2  # it is whole now


def test_a_cache_that_serves_nobody_here_is_told_with_its_variable(elsewhere, monkeypatch):
    compiled(glue.path_of("intercept"), HERE)
    assert glue.build("intercept", print)
    with monkeypatch.context() as other:
        other.setattr(glue, "runs_nothing", lambda folder: True)
        with pytest.raises(glue.GlueError, match="mounted noexec; set ULPSCOPE_CACHE"):
            glue.build("intercept", print)

    def closed(path, there=Path.exists):
        if path.is_relative_to(glue.cache_home()):
            raise PermissionError(13, "Permission denied", str(path))
        return there(path)

    for name in ("broken", "exists"):
        with monkeypatch.context() as other:
            other.setattr(*((glue, name, closed) if name == "broken" else (Path, name, closed)))
            with pytest.raises(glue.GlueError, match="another user.*set ULPSCOPE_CACHE"):
                glue.build("intercept", print)


@pytest.mark.parametrize("version, old", [("1.13.1", True), ("2.0.1+cpu", True), ("2.1.0", False), ("2.15.0a0", False)])
def test_a_torch_before_the_first_that_is_served(version, old, tmp_path):
    assert bool(shared_objects.too_old(version)) == old
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '{version}'")
    (tmp_path / "torch" / "__init__.py").write_text("from .version import __version__")
    done = subprocess.run(
        [sys.executable, "-c", "import ulpscope; ulpscope.check_call"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode and (f"torch {version} is too old" in done.stderr) == old, done.stderr


def test_glue_of_the_companion_is_taken_where_nothing_can_be_compiled(elsewhere):
    assert glue.taken("intercept") is None and "not built yet" in glue.told()[0]
    with pytest.raises(glue.GlueError, match=f"no C\\+\\+ compiler.*ulpscope-glue.*{glue.fits()}"):
        glue.build("intercept", print)
    place = elsewhere / glue.sources_digest() / glue.fits()
    compiled(place / "usc_glue_intercept.so", HERE)
    assert glue.build("intercept", print) == place / "usc_glue_intercept.so"
    assert "intercept prebuilt (no C++ compiler" in glue.told()[0]


@pytest.mark.parametrize(
    "text, package",
    [
        ("a.h:8:10: fatal error: pybind11/pybind11.h: No such file or directory", "pybind11-dev"),
        ("a.h:8:10: fatal error: 'fmt/format.h' file not found", "libfmt-dev"),
        ("a.h:8:10: fatal error: Python.h: No such file or directory", "python3-dev"),
        ("a.h:8:10: fatal error: other/other.h: No such file or directory", ""),
        ("error: no such member", ""),
    ],
)
def test_a_header_that_is_missing_is_told_with_its_package(text, package):
    assert glue._missing(text) == (f"; install it (Debian: apt-get install {package})" if package else "")


@pytest.mark.parametrize(
    "wrong", [lambda: ("0" * 16, glue.fits()), lambda: (glue.sources_digest(), "torch1.0-abi1-cp39-x86_64")]
)
def test_glue_of_another_torch_or_of_other_sources_is_not_taken(elsewhere, wrong):
    place = elsewhere.joinpath(*wrong())
    compiled(place / "usc_glue_intercept.so", HERE)
    assert glue.taken("intercept") is None


def test_glue_is_compiled_where_it_can_be(elsewhere, monkeypatch):
    place = elsewhere / glue.sources_digest() / glue.fits()
    compiled(place / "usc_glue_intercept.so", HERE)
    monkeypatch.delenv("CXX")
    assert glue.taken("intercept") is None


def test_archives_have_the_same_bytes_whatever_the_order(tmp_path):
    files = {"b/x.py": b"1", "a/y.so": b"2" * 999}
    for name, order in (("one", files), ("two", dict(reversed(files.items())))):
        (tmp_path / name).mkdir()
        archive.wheel(tmp_path / name / "p-1.0-py3-none-any.whl", order, "Name: p\n", "py3-none-any")
        archive.tar(tmp_path / name / "p.tar.gz", {k: (v, 0o644) for k, v in order.items()})
    for name in ("p-1.0-py3-none-any.whl", "p.tar.gz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with zipfile.ZipFile(tmp_path / "one" / "p-1.0-py3-none-any.whl") as made:
        rows = made.read("p-1.0.dist-info/RECORD").decode().splitlines()
        assert len(rows) == len(made.namelist()) and rows[0].startswith("a/y.so,sha256=")
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "one" / "p.tar.gz").read_bytes())) as made:
        assert made.getnames() == sorted(files)


def test_the_page_of_versions_says_what_did_not_work():
    told = {
        "trixie": {
            "date": "2026-01-02",
            "found": {
                "python": "3.13.5",
                "torch": "2.6.0",
                "glue": ["works", "", 60],
                "demo": ["does not", "a sentence", 3],
            },
        }
    }
    text = matrix.page(told)
    assert "| trixie | 2026-01-02 | 3.13.5 | 2.6.0 | yes | - |" in text and "- trixie, demo: a sentence" in text


def test_the_tests_of_a_row_need_nothing_of_this_tree():
    own = {"torch", "pytest", "ulpscope", *older.STANDARD}
    for name in matrix.TESTS:
        text = (ROOT / "tests" / "py" / name).read_text()
        nodes = list(ast.walk(ast.parse(text)))
        asked = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
        asked |= {n.module for n in nodes if isinstance(n, ast.ImportFrom)}
        assert {m.partition(".")[0] for m in asked} <= own, name
        assert "__file__" not in text, name


def row_of(folder):
    """packaging/row.py from a copy in a folder."""
    (folder / "row.py").write_text((ROOT / "packaging" / "row.py").read_text())
    spec = importlib.util.spec_from_file_location("row_of_a_copy", folder / "row.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("fails, state", [(False, "works"), (True, "does not")])
def test_a_row_runs_the_tests_beside_it(tmp_path, monkeypatch, fails, state):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(f"def test_one(): assert not {fails}\n")
    done = row_of(tmp_path).Row(tmp_path, tmp_path)
    done.compat()
    assert done.found["compat"][0] == state
    (tmp_path / "tests").rename(tmp_path / "elsewhere")
    done.found.clear()
    done.compat()
    assert done.found == {}


def test_a_row_excuses_what_its_torch_computes_wrong(tmp_path):
    allowed = row_of(tmp_path).allowed
    softmax = ["--allow", "reduced:aten::_softmax_backward_data"]
    assert [allowed(v) for v in ("2.4.1+cu121", "2.6.0+debian", "2.7.1+cu126", "2.13.0", "2.10.0")] == [
        *[softmax] * 2,
        *[[]] * 3,
    ]


def test_a_row_does_some_things_anew_and_keeps_the_others(tmp_path):
    made, no = row_of(tmp_path).Row, [sys.executable, "-c", "raise SystemExit(1)"]
    first = made(tmp_path, tmp_path)
    first.run("check", no)
    first.run("demo", [sys.executable, "-c", ""])
    anew = made(tmp_path, tmp_path, ["check"])
    anew.run("check", [sys.executable, "-c", ""])
    anew.run("demo", no)
    assert {name: anew.found[name][0] for name in ("check", "demo")} == {"check": "works", "demo": "works"}
    assert first.found["check"][0] == "does not"


def test_what_was_done_stays_where_some_things_are_done_anew(tmp_path):
    (tmp_path / "a.whl").write_text("")
    for only, there in (([], False), (["check"], True), ([], False)):
        work = matrix.lay(tmp_path, tmp_path / "a.whl", only)
        assert (work / "out" / "row.json").exists() == there and (work / "row.py").exists()
        (work / "out").mkdir(exist_ok=True)
        (work / "out" / "row.json").write_text("{}")


def test_headers_that_serve_another_machine(tmp_path):
    """Debian's pyconfig.h asks for one of each machine, beside it or not; what was built by hand has one for all."""
    for name, text in (("built", "#define HAVE_POLL 1\n"), ("python3.11", "#include <aarch64-linux-gnu/p.h>\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyconfig.h").write_text(text)
    assert wheel.serves(tmp_path / "built", "aarch64")
    assert not wheel.serves(tmp_path / "python3.11", "aarch64")
    (tmp_path / "aarch64-linux-gnu" / "python3.11").mkdir(parents=True)
    assert wheel.serves(tmp_path / "python3.11", "aarch64")


def test_fields_of_the_debian_package_are_lists_as_dpkg_reads_them():
    """A list of CMake becomes words with semicolons, and dpkg refuses the package that has them."""
    text = (ROOT / "cmake" / "install.cmake").read_text()
    fields = dict(re.findall(r"set\(CPACK_DEBIAN_PACKAGE_(DEPENDS|RECOMMENDS|SUGGESTS) ([^)]*)\)", text))
    assert {"RECOMMENDS", "SUGGESTS"} <= fields.keys()
    for name, value in fields.items():
        assert re.fullmatch(r"[-+.\w]+|\"[-+.\w]+(, [-+.\w]+)*\"", value), (name, value)
