# SPDX-License-Identifier: Apache-2.0
"""What lets it run elsewhere: the oldest Python's grammar, and the helpers of the oldest Python."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from ulpscope.calls import older

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 9)


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
    files = [*(ROOT / "python").rglob("*.py"), *(ROOT / "packaging").glob("*.py"), *(ROOT / "examples").glob("demo*/*.py"),
             ROOT / "examples/demo.py"]  # fmt: skip
    own = {ROOT / "python/ulpscope/calls/older.py"}
    found = {str(p.relative_to(ROOT)): newer_than_oldest(p.read_text("utf-8")) for p in files if p not in own}
    assert {p: bad for p, bad in found.items() if bad} == {}
    assert len(found) > 200


@pytest.mark.parametrize("text", ["match x:\n    case 1: pass\n", "def f(x: int | None): pass\n", "x: int | None = 1\n",
                                  "isinstance(x, int | str)\n", "zip(a, b, strict=True)\n", "def f() -> int | None: pass\n"])  # fmt: skip
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
