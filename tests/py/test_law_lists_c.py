# SPDX-License-Identifier: Apache-2.0
"""Laws of the C sources whose offences of today stand in tests/laws: as test_law_lists.py, for what is C."""

from __future__ import annotations

import re
import subprocess

from law_lists import ROOT, files, held
from test_laws import BUILD, contracts, strip_comments

# ---- circles ---------------------------------------------------------------------------


def objects() -> dict[str, str]:
    """Object file -> its source, of the library and the program."""
    found = {}
    for folder in [*(BUILD / "CMakeFiles").glob("usc_*.dir"), BUILD / "CMakeFiles" / "ulpscope_cli.dir"]:
        for path in folder.rglob("*.c.o"):
            source = path.relative_to(folder).with_suffix("")
            if (ROOT / source).exists():  # a build folder keeps those of sources that are gone
                found[str(path)] = str(source)
    return found


def needs(symbols: str, source: dict[str, str]) -> dict[str, set[str]]:
    """Which file calls into which, from what nm -A says."""
    lines = [m.groups() for m in re.finditer(r"^(.*?):\s*[0-9a-f]*\s+([A-Za-z]) (\S+)$", symbols, re.M)]
    home = {name: source[path] for path, kind, name in lines if kind in "TDBRC"}
    found = {file: set() for file in source.values()}
    for path, kind, name in lines:
        if kind == "U" and name in home:
            found[source[path]].add(home[name])
    return found


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen, left = set(), [start]
    while left:
        for other in graph[left.pop()] - seen:
            seen.add(other)
            left.append(other)
    return seen


def in_circles(graph: dict[str, set[str]]) -> list[str]:
    """Files that need something that needs them."""
    return [file for file in graph if file in {o for other in graph[file] - {file} for o in reached(graph, other)}]


def test_files_of_c_do_not_need_each_other():
    source = objects()
    assert len(source) > 300
    symbols = subprocess.run(["nm", "-A", *source], capture_output=True, text=True, check=True).stdout
    held("circles", in_circles(needs(symbols, source)))
    planted = "a.o:00 T usc_a\na.o:  U usc_b\nb.o:00 T usc_b\nb.o:  U usc_a\nc.o:  U usc_a\nc.o:00 T usc_c\n"
    graph = needs(planted, {"a.o": "a.c", "b.o": "b.c", "c.o": "c.c"})
    assert in_circles(graph) == ["a.c", "b.c"] and graph["c.c"] == {"a.c"}


# ---- contracts -------------------------------------------------------------------------

DEFINED = re.compile(r"^[a-z][\w \*]*?\b(usc_\w+)\(([^;{}]*?)\)\s*\n\{\n(.*?)\n\}", re.M | re.S)


# Whether X is NULL, and not what it points to.
ASKS = (
    r"(?<![\w*>.])X (?:==|!=) NULL|(?<![\w*>.])!X\b(?!->|\[)|if \(X\)"
    r"|(?<![\w*>.])X (?:\?|&&)|&& X\)"
)


def bodies() -> dict[str, tuple[str, str]]:
    """Parameters and body of each function that is not static."""
    found = {}
    for folder in ("src", "sim"):
        for path in files(folder, ".c"):
            for m in DEFINED.finditer(strip_comments(path.read_text())):
                if not m.group().startswith("static"):
                    found[m.group(1)] = m.group(2), m.group(3)
    return found


def asked_for_null(parameters: str, body: str) -> list[str]:
    """Pointers of which a function asks whether they are NULL, but for an assert."""
    body = re.sub(r"\bassert\([^;]*;", "", body)
    names = [m.group() for m in (re.search(r"\w+$", p.strip()) for p in parameters.split(",") if "*" in p) if m]
    return [name for name in names if name != "err" and re.search(ASKS.replace("X", name), body)]


def unsaid(text: str, known: dict[str, tuple[str, str]]) -> list[str]:
    """What a header leaves open of NULL: its head says the rule, a contract what may be NULL otherwise."""
    found = [] if "// NULL: " in text.split("#ifndef")[0] or not re.search("^USC_API\\b", text, re.M) else ["the rule"]
    for comment, declaration in contracts(text):
        name = re.search(r"\busc_\w+(?=\s*[(\[;])", declaration.replace("usc_status usc", "usc")).group()
        if name in known and asked_for_null(*known[name]) and "NULL" not in comment:
            found.append(name)
    return found


def test_contracts_say_what_may_be_null():
    known = bodies()
    assert len(known) > 700
    held("null", [f"{p.name}: {one}" for p in files("include", ".h") for one in unsaid(p.read_text(), known)])
    text = "// NULL: never.\n#ifndef X\n/** Reads `x`{}. */\nUSC_API void usc_x(const char *x, usc_error *err);\n"
    known = {"usc_x": ("const char *x, usc_error *err", "    if (x == NULL) return;")}
    assert unsaid(text.format(""), known) == ["usc_x"] and not unsaid(text.format(", which may be NULL"), known)
    assert unsaid(text.format("").replace("// NULL: never.", ""), {}) == ["the rule"]
    for body in ("if (x) return;", "if (!x) return;", "y = x ? 1 : 0;", "if (x != NULL && y) z();", "if (x && y) z();"):
        assert asked_for_null("const char *x", body) == ["x"], body
    for body in ("assert(x != NULL);", "if (*x == NULL) y();", "if (y->x == NULL) z();", "if (!x->y) z();"):
        assert asked_for_null("const char *x", body) == [], body


LABEL = r"(?:Errors|Memory|Threads|Shapes|Units|Numbers)"


def swallowed(text: str) -> list[str]:
    """Lines of a contract in which a label stands behind other words, as a formatter leaves them."""
    found = []
    for block in re.findall(r"/\*\*\n.*?\*/", text, re.S):
        if re.search(rf"^ \* {LABEL}:", block, re.M):
            found += re.findall(rf"^ \* .*\S +{LABEL}:(?: .*)?$", block, re.M)
    return found


def test_labels_of_a_contract_begin_lines():
    for folder in ("include", "sim", "src", "cli", "glue", "python"):
        for path in files(folder, ".h", ".c", ".cpp"):
            assert not swallowed(path.read_text()), path
    assert swallowed("/**\n * Memory:  the caller's. Errors:\n * USC_E_IO.\n */") == [
        " * Memory:  the caller's. Errors:"
    ]
    assert not swallowed("/**\n * Memory: the caller's.\n * Errors: USC_E_IO.\n */")


# ---- misuse ----------------------------------------------------------------------------


def careless(text: str) -> bool:
    """Whether a file hands out functions and asserts nothing of what they are given."""
    return not re.search(r"\b(?:static_)?assert\(|TORCH_INTERNAL_ASSERT|USC_ASSERT", strip_comments(text))


def test_what_drives_the_library_asserts_what_it_is_given():
    every = [*files("glue", ".cpp"), *files("python/ext", ".c")]
    held("asserts", [p.name for p in every if careless(p.read_text())])
    assert careless("int f(int *x)\n{\n    /* assert(x) */\n    return *x;\n}\n")
    assert not careless("int f(int *x)\n{\n    assert(x != NULL);\n    return *x;\n}\n")


# ---- torch's private names -------------------------------------------------------------

# What torch says is for extensions: what torch/extension.h brings, the classes of a backend of torch.distributed, and
# what a package of AOTInductor is compiled against.
FOR_EXTENSIONS = (
    r"torch/csrc/(?:api/|inductor/|Exceptions\.h|Export\.h|DynamicTypes\.h|python_headers\.h|utils/pybind\.h"
    r"|autograd/(?:function|custom_function|python_variable|variable)\.h"
    r"|autograd/autograd_not_implemented_fallback\.h"
    r"|distributed/c10d/(?:Backend|ProcessGroup|Types|Work)\.hpp)"
)


def private_to_torch(text: str) -> set[str]:
    """What a file of C++ names in namespaces that are torch's own business, by names that begin with an
    underscore, and in headers of such folders."""
    text = strip_comments(text)
    found = {
        path
        for path in re.findall(r"#include <((?:ATen|c10|torch)/[^>]+)>", text)
        if re.search(r"/(?:impl|detail|internal|native)/|_native\.h", path)
        or (path.startswith("torch/csrc/") and not re.match(FOR_EXTENSIONS, path))
    }
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', re.sub("#include.*", "", text))
    found |= set(re.findall(r"(?:\b\w+::)*\b(?:impl|detail|internal|native|_\w+)::\w+", text))
    return found | set(re.findall(r"(?:\b\w+::)+_\w+|(?:\.|->)_[A-Za-z]\w*", text))


def test_private_names_of_torch_stand_by_themselves_in_cpp():
    every = [p for p in files("glue", ".h", ".cpp", ".cc") if not p.name.startswith("torch_private")]
    assert len(every) > 60
    held("torch_private_glue", [f"{p.name}: {one}" for p in every for one in private_to_torch(p.read_text())])
    for planted, name in (
        ("c10::impl::VirtualGuardImpl g(t);", "c10::impl::VirtualGuardImpl"),
        ("ag::impl::try_get(x);", "ag::impl::try_get"),
        ("at::_GeneratorRegister r(f);", "at::_GeneratorRegister"),
        ("using S = at::_ops::add::schema;", "at::_ops"),
        ("if (t._is_zerotensor()) p->go();", "._is_zerotensor"),
        ("p->_set_conj(true);", "->_set_conj"),
        ("#include <c10/core/impl/LocalDispatchKeySet.h>\n", "c10/core/impl/LocalDispatchKeySet.h"),
        ("#include <ATen/ops/view_native.h>\n", "ATen/ops/view_native.h"),
        ("#include <torch/csrc/jit/frontend/tracer.h>\n", "torch/csrc/jit/frontend/tracer.h"),
    ):
        assert any(one.startswith(name) for one in private_to_torch(planted)), planted
    assert not private_to_torch(
        'call("aten::_to_copy"); // c10::impl::X\nm.impl("add", f); x->impl = y_; std::vector<int> v;\n'
        "#include <torch/csrc/autograd/function.h>\n#include <ATen/core/Tensor.h>\n"
    )
