# SPDX-License-Identifier: Apache-2.0
"""Laws that are not kept everywhere yet, or that have exceptions: what offends today stands in tests/laws, a
line each, with a reason behind ` : ` where it may stay. Nothing may be added, and what no longer offends must
be taken out. Each law has a planted offence that must be caught. (`tests/py/test_laws.py`: those without.)"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "ulpscope"
LISTS = ROOT / "tests" / "laws"


def listed(name: str) -> Counter:
    lines = (LISTS / f"{name}.txt").read_text().splitlines()
    return Counter(line.partition(" : ")[0].strip() for line in lines if line and not line.startswith("#"))


def held(name: str, found, more="") -> None:
    """That what offends is what the list says."""
    found, said = Counter(found), listed(name)
    new, gone = found - said, said - found
    assert not new, f"tests/laws/{name}.txt lacks, and may not get: {sorted(new.elements())} {more}"
    assert not gone, f"take out of tests/laws/{name}.txt: {sorted(gone.elements())}"


def python(folder: Path):
    """(path below the folder, tree) of each file."""
    for path in sorted(folder.rglob("*.py")):
        yield str(path.relative_to(folder)), ast.parse(path.read_text())


def named(tree: ast.AST):
    """(the function or method that it lies in, node) of all nodes."""
    def walk(node, name):
        for child in ast.iter_child_nodes(node):
            own = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            at = f"{name}.{child.name}" if own and name else child.name if own else name
            yield at, child
            yield from walk(child, at)
    yield from walk(tree, "")


# ---- whose a mistake is ----------------------------------------------------------------

WIDE = {"Exception", "BaseException", "TypeError"}
# The nets with a name, and where they may be used: inside somebody's job, and in a search for a cause.
HOMES = {"unhurt": {"sources"}, "strictly": {"sources"}, "tried": {"causes", "session/judging.py"}}


def caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    return {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)}


def is_net(handler: ast.ExceptHandler) -> bool:
    """Whether it catches mistakes of ours, and neither asks at once whose they are nor raises them again."""
    first, last = handler.body[0], handler.body[-1]
    asks = (isinstance(first, ast.Expr) and isinstance(first.value, ast.Call)
            and getattr(first.value.func, "id", "") == "foreign")
    asks = asks or "foreign" in {n.func.id for n in ast.walk(first) if isinstance(first, ast.Raise)
                                 and isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return bool(caught(handler) & WIDE) and not asks and not (isinstance(last, ast.Raise) and last.exc is None)


def nets(name: str, tree: ast.AST) -> list[str]:
    found = []
    for where, node in named(tree):
        if isinstance(node, ast.ExceptHandler) and is_net(node):
            found.append(f"{name}:{where}")
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "suppress":
            if any(isinstance(a, ast.Name) and a.id in WIDE for a in node.args):
                found.append(f"{name}:{where}")
        elif isinstance(node, ast.FunctionDef) and node.name == "__exit__":
            if any(isinstance(n, ast.Return) and getattr(n.value, "value", None) is True for n in ast.walk(node)):
                found.append(f"{name}:{where}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == "foreign":
            found += [f"{name}: {alias.name}" for alias in node.names
                      if not name.startswith(tuple(HOMES.get(alias.name, {""})))]
    return found


def test_a_mistake_of_ours_is_caught_by_the_nets_that_ask_for_it():
    held("nets", [o for name, tree in python(PACKAGE) for o in nets(name, tree)])
    planted = "def f():\n  try:\n    run()\n  except {}:\n    {}\n"
    for types in ("Exception", "(RuntimeError, TypeError)", "BaseException"):
        assert nets("a.py", ast.parse(planted.format(types, "return 'unjudged'"))) == ["a.py:f"]
    assert nets("a.py", ast.parse(planted.format("Exception as p", "say(p)\n    foreign(p)")))
    assert nets("a.py", ast.parse(planted.format("Exception as p", "say(our_words(p) if is_ours(p) else p)")))
    assert nets("a.py", ast.parse("with contextlib.suppress(TypeError):\n    run()\n"))
    assert nets("a.py", ast.parse("class A:\n  def __exit__(self, *what):\n    return True\n"))
    assert nets("judges/a.py", ast.parse("from ..calls.foreign import unhurt"))
    assert nets("causes/a.py", ast.parse("from ..calls.foreign import unhurt"))
    assert nets("judges/a.py", ast.parse("from ..calls.foreign import tried"))
    assert not nets("sources/a.py", ast.parse("from ..calls.foreign import unhurt"))
    assert not nets("a.py", ast.parse(planted.format("Exception as p", "foreign(p)\n    return None")))
    assert not nets("a.py", ast.parse(planted.format("TypeError as p", "raise refusal(foreign(p)) from None")))
    assert not nets("a.py", ast.parse(planted.format("Exception", "close()\n    raise")))
    assert not nets("a.py", ast.parse(planted.format("RuntimeError", "pass")))
