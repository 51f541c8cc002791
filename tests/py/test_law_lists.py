# SPDX-License-Identifier: Apache-2.0
"""Laws that are not kept everywhere yet, or that have exceptions: what offends today stands in tests/laws, a
line each, with a reason behind ` : ` where it may stay. Nothing may be added, and what no longer offends must
be taken out (law_lists.py). Each law has a planted offence that must be caught. Those without a list are in
test_laws.py, those of C in test_law_lists_c.py."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from law_lists import ROOT, at_most, entries, files, held, tally

PACKAGE = ROOT / "python" / "ulpscope"


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
HOSTS = {"program/", "watching/", "run_modes.py"}
HOMES = {"unhurt": HOSTS, "strictly": HOSTS, "tried": {"causes/", "session/judging.py"}}


def caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    return {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)}


def is_net(handler: ast.ExceptHandler) -> bool:
    """Whether it catches mistakes of ours, and neither asks at once whose they are nor raises them again."""
    first, last = handler.body[0], handler.body[-1]
    asks = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Call)
        and getattr(first.value.func, "id", "") == "foreign"
    )
    asks = asks or "foreign" in {
        n.func.id
        for n in ast.walk(first)
        if isinstance(first, ast.Raise) and isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    return bool(caught(handler) & WIDE) and not asks and not (isinstance(last, ast.Raise) and last.exc is None)


def nets(name: str, tree: ast.AST) -> list[str]:
    found, file = [], Path(name).name
    for where, node in named(tree):
        if isinstance(node, ast.ExceptHandler) and is_net(node):
            found.append(f"{file}:{where}")
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "suppress":
            if any(isinstance(a, ast.Name) and a.id in WIDE for a in node.args):
                found.append(f"{file}:{where}")
        elif isinstance(node, ast.FunctionDef) and node.name == "__exit__":
            if any(isinstance(n, ast.Return) and getattr(n.value, "value", None) is True for n in ast.walk(node)):
                found.append(f"{file}:{where}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == "foreign":
            found += [
                f"{name}: {alias.name}"
                for alias in node.names
                if not name.startswith(tuple(HOMES.get(alias.name, {""})))
            ]
    return found


def test_a_mistake_of_ours_is_caught_by_the_nets_that_ask_for_it():
    held("nets", [o for name, tree in python(PACKAGE) for o in nets(name, tree)])
    assert all(" : " in line for line in entries("nets")), "each with its reason"
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
    assert not nets("program/a.py", ast.parse("from ..calls.foreign import unhurt"))
    assert not nets("a.py", ast.parse(planted.format("Exception as p", "foreign(p)\n    return None")))
    assert not nets("a.py", ast.parse(planted.format("TypeError as p", "raise refusal(foreign(p)) from None")))
    assert not nets("a.py", ast.parse(planted.format("Exception", "close()\n    raise")))
    assert not nets("a.py", ast.parse(planted.format("RuntimeError", "pass")))


# ---- private names of torch ------------------------------------------------------------


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.AST) -> set[str]:
    """Names that a file gives to something of its own."""
    found = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    found |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    found |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    slots = [
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign) and any(getattr(t, "id", "") == "__slots__" for t in n.targets)
    ]
    return found | {c.value for value in slots for c in ast.walk(value) if isinstance(c, ast.Constant)}


def chain(node: ast.AST) -> list[str]:
    """The names of a.b.c; "" at its head where that is no name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [getattr(node, "id", ""), *reversed(names)]


def private_names(tree: ast.AST, own: set[str]) -> set[str]:
    """Private names of others: of modules of torch in full, of what else there is as `.name`. Operators are
    named by their schemas, which are public."""
    roots, found = {}, set()
    for node in ast.walk(tree):
        names = {}
        if isinstance(node, ast.Import):
            names = {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        names = {name: full for name, full in names.items() if full.split(".")[0] == "torch"}
        found |= {full for full in names.values() if any(map(is_private, full.split(".")))}
        roots |= {name: full if full.count(".") and name != "torch" else name for name, full in names.items()}
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            root, *names = chain(node)
            if root in roots:
                full = f"{roots[root]}." + ".".join(names)
                if any(map(is_private, names)) and ".ops." not in full:
                    found.add(full)
            elif root != "aten":
                found |= {f".{name}" for name in names if is_private(name) and name not in own}
    return found


OTHERS = {"._getframe", "._testMethodName", "._cdata"}  # of sys and unittest; a tensor's number


def test_private_names_of_torch_stand_by_themselves():
    trees = dict(python(PACKAGE))
    own = set().union(*map(defined, trees.values())) | {p.stem for p in PACKAGE.rglob("*")}
    held(
        "torch_private",
        [
            f"{Path(name).name}: {one}"
            for name, tree in trees.items()
            if not Path(name).name.startswith("torch_private")
            for one in private_names(tree, own) - OTHERS
        ],
    )
    planted = lambda text: private_names(ast.parse(text), {"_mine"})  # noqa: E731
    assert planted("import torch\ntorch._C._is_alias_of(a, b)") == {"torch._C._is_alias_of"}
    assert planted("from torch._ops import OpOverload") == {"torch._ops.OpOverload"}
    assert planted("import torch.nn.functional as F\nF._threshold") == {"torch.nn.functional._threshold"}
    assert planted("f(op)._schema.name") == {"._schema"}
    assert not planted("import torch\ntorch.ops.aten._softmax(x)\nx._mine, x.__class__")


# ---- annotations, layout, size ---------------------------------------------------------


def unannotated(node: ast.AST) -> int:
    """How many functions with a public name, in public classes, lack an annotation."""
    found = 0
    for one in node.body:
        if getattr(one, "name", "_").startswith("_"):
            continue
        if isinstance(one, ast.ClassDef):
            found += unannotated(one)
        elif isinstance(one, ast.FunctionDef):
            a = one.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
            bare = any(x.annotation is None and x.arg not in ("self", "cls") for x in every)
            found += bare or one.returns is None
    return found


def test_public_functions_have_annotations():
    at_most("annotations", tally(["python/ulpscope"], lambda text: unannotated(ast.parse(text)), ".py"))
    assert unannotated(ast.parse("def f(x) -> int: pass")) == unannotated(ast.parse("def f(x: int): pass")) == 1
    assert unannotated(ast.parse("class A:\n  def f(self, *x) -> int: pass")) == 1
    assert not unannotated(ast.parse("class A:\n  def f(self, *x: int) -> int:\n    def g(x): pass\n  def _f(x): pass"))


def unformatted(text: str) -> int:
    """Places where the formatter is kept away, and lines that are too long for any reader."""
    return sum(bool(re.search("# fmt: (skip|off)", line)) or len(line) > 120 for line in text.splitlines())


def test_the_formatter_is_kept_away_from_no_new_place():
    at_most("unformatted", tally(["python", "tests", "bench", "examples"], unformatted, ".py"))
    assert unformatted("x = 1  # fmt: %s\n" % "skip" + "y" * 121 + "\n") == 2 and not unformatted("y" * 120)


SIZE = 500
PLACES = ("include", "src", "cli", "python", "sim", "glue", "tests", "bench", "examples", "cmake")


def long_files(where=PLACES, size=SIZE) -> list[str]:
    return [
        p.name
        for folder in where
        for p in files(folder, ".c", ".h", ".inc", ".cpp", ".py", ".js", ".cmake")
        if len(p.read_text().splitlines()) > size
    ]


def test_files_are_short():
    held("long_files", long_files())
    assert "test_laws.py" in long_files(["tests"], 100)


# ---- names -----------------------------------------------------------------------------


def twice(names) -> list[str]:
    return [name for name, n in Counter(names).items() if n > 1]


def classes(trees) -> list[str]:
    return [n.name for _, tree in trees for n in tree.body if isinstance(n, ast.ClassDef)]


def test_names_of_files_and_classes_stand_once():
    every = [p.name for p in files("python/ulpscope", ".py") if "compat" not in p.parts]
    found = [name for name in twice(every) if not name.startswith("__")]
    for folder in ("src", "cli", "sim", "glue"):
        every = [p.name for p in files(folder, ".c", ".h", ".inc", ".cpp")]
        found += twice(every)
    own = [(name, tree) for name, tree in python(PACKAGE) if not name.startswith("compat/")]
    held("names_twice", [*found, *(f"class {name}" for name in twice(classes(own)))])
    assert twice(["a.py", "b.py", "a.py"]) == ["a.py"]
    assert classes([("a.py", ast.parse("class A: pass\ndef f():\n  class B: pass"))]) == ["A"]


# ---- constants of C --------------------------------------------------------------------


def constants(text: str) -> dict[str, int]:
    """Whole numbers by name that a header or a source defines, without USC_."""
    found = re.findall(r"^\s*(?:#define\s+|)USC_(\w+)\s*=?\s+\(?(\w+)\)?,?\s*(?:/|$)", text, re.M)
    return {name: int(value, 0) for name, value in found if re.fullmatch(r"0[xX][0-9a-fA-F]+|[1-9]\d*|0", value)}


def repeated(text: str, known: dict[str, int]) -> list[str]:
    """Constants of C that Python has once more: by name and value, or by a comment that says so."""
    found = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
            found += [n for n in names if n in known and known[n] == node.value.value]
    for line in text.splitlines():
        code, mark, comment = line.partition("#")
        if mark and code.strip() and re.search(r"[=\s]\d", code):
            found += re.findall(r"\bUSC_(\w+)", comment)
    return found


def test_constants_of_c_are_not_repeated_by_hand():
    known = {}
    for folder in ("include", "src", "sim"):
        for path in files(folder, ".h"):
            known |= constants(path.read_text())
    held(
        "constants",
        [
            f"{path.name}: {one}"
            for path in files("python/ulpscope", ".py")
            for one in repeated(path.read_text(), known)
        ],
    )
    assert constants("#define USC_A 0x10\n    USC_B = 3, /* b */\n#define USC_C (1 << 3)\n") == {"A": 16, "B": 3}
    assert repeated("A = 16\n", {"A": 16}) == ["A"] and not repeated("A = 17\nD = 4", {"A": 16})
    assert repeated("LIMIT = 5  # USC_LIMIT\n", {}) == ["LIMIT"]
