# SPDX-License-Identifier: Apache-2.0
"""The laws of docs/background/architecture.md, held by reading the sources: who may use whom, what is
exported, what is documented. Each law has a planted offence that must be caught."""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))


def folders(text: str) -> dict[str, set[str]]:
    """Folder of src/ -> all that it may use, from the lines of cmake/folders.cmake."""
    below: dict[str, set[str]] = {}
    for name, uses in re.findall(r"^usc_folder\((\w+)(?: USES ([a-z ]+))?", text, re.M):
        direct = set((uses or "").split())
        below[name] = direct.union(*(below[other] for other in direct))
    return below


# Internal headers of these are open to a folder; public ones (<ulpscope/...>) as below.
MAY_USE = folders((ROOT / "cmake" / "folders.cmake").read_text())
# folder -> public headers above it, which it must not include
HEADER_OWNER = {
    "diff.h": "diff",
    "stats.h": "stats",
    "sums.h": "stats",
    "judge.h": "judge",
    "standard.h": "standard",
    "trace.h": "trace",
    "trace_take.h": "trace",
    "result.h": "result",
    "capture.h": "capture",
    "report.h": "report",
    "kernels.h": "kernels",
    "safetensors.h": "files",
    "pack.h": "pack",
    "case.h": "case",
    "kept.h": "case",
    "finding.h": "case",
    "draw.h": "draw",
    "value.h": "call",
    "call.h": "call",
    "launch.h": "capture",
    "flow.h": "flow",
    "loss.h": "loss",
    "port.h": "port",
    "run.h": "run",
    "pairs.h": "run",
    "generate.h": "generate",
    "npy.h": "files",
    "foreign.h": "foreign",
    "inject.h": "watch",
    "watch.h": "watch",
    "watch_log.h": "watch",
    "watch_products.h": "watch",
}
# Types alone: the statistics row and the score bins, of the file formats and of the kernels
# that fill them; the row of a result, of the findings that fill it. What is called is the linker's matter.
HEADER_ALLOWED = {
    ("kernels", "stats.h"),
    ("kernels", "judge.h"),
    ("trace", "stats.h"),
    ("report", "trace.h"),
    ("case", "result.h"),
    ("call", "stats.h"),
}


def includes(text: str) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M)


def layer_offences(folder: str, text: str) -> list[str]:
    bad = []
    allowed = MAY_USE[folder] | {folder}
    for name in includes(text):
        if name.startswith("ulpscope/"):
            owner = HEADER_OWNER.get(name.split("/")[-1])
            if owner and owner not in allowed and (folder, name.split("/")[-1]) not in HEADER_ALLOWED:
                bad.append(f"<{name}> belongs to {owner}")
        elif "/" in name and name.split("/")[0] in MAY_USE and name.split("/")[0] not in allowed:
            bad.append(f'"{name}"')
        elif name in ("Python.h", "torch/torch.h") or name.startswith(("ATen/", "c10/", "torch/")):
            bad.append(f"<{name}>: the library knows neither Python nor torch")
    return bad


def sources(folder: Path, *endings: str) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in endings and "build" not in p.parts)


def test_each_folder_uses_only_what_lies_below_it():
    found = []
    for path in sources(ROOT / "src", ".c", ".h", ".inc"):
        folder = path.relative_to(ROOT / "src").parts[0]
        assert folder in MAY_USE, f"{path}: a folder that the design does not know"
        found += [f"{path.relative_to(ROOT)}: {o}" for o in layer_offences(folder, path.read_text())]
    assert not found, "\n".join(found)


def test_a_planted_upward_include_is_caught():
    assert layer_offences("stats", '#include "trace/trace_writer.h"\n')
    assert layer_offences("kernels", "#include <ulpscope/trace.h>\n")
    assert layer_offences("base", "#include <Python.h>\n")


def reached(path: Path, text: str | None = None) -> set[str]:
    """The headers that a file includes in front of its first `#if`, with those that these include in turn."""
    text = path.read_text() if text is None else text
    found = set()
    for name in re.findall(r'^#include [<"](.*)[>"]', re.split(r"^#if ", text, maxsplit=1, flags=re.M)[0], re.M):
        found.add(name)
        for home in (ROOT / "src", ROOT / "include", path.parent):
            if (home / name).exists():
                whole = (home / name).read_text().replace("#if", "#//")
                found |= reached(home / name, whole)
                break
    return found


def test_files_of_an_instruction_set_are_empty_elsewhere():
    """What is Intel's is included behind the question for it: another processor's compiler refuses it."""
    files = [*sources(ROOT / "src", ".c"), *sources(ROOT / "sim", ".c")]
    named = [p for p in files if p.stem.endswith(("_avx2", "_avx512"))]
    assert len(named) > 8
    for path in named:
        assert "immintrin.h" not in reached(path), path
    planted = '#include "kernels/float8.h"\n#if defined(__AVX2__)\n#endif\n'
    assert "immintrin.h" in reached(named[0], planted)


def objects_of(*names: str) -> list[Path]:
    """Without those of sources that are gone: a build folder keeps them."""
    return [
        p
        for name in names
        for p in (BUILD / "CMakeFiles" / f"usc_{name}.dir").rglob("*.c.o")
        if (ROOT / "src" / name / p.stem).exists() or p.stem == "report_page.c"
    ]


def linked(tmp_path: Path, code: str, *names: str) -> str:
    """What the linker says of that code among the objects of these folders."""
    (tmp_path / "planted.c").write_text(code)
    done = subprocess.run(
        ["cc", "-o", tmp_path / "program", tmp_path / "planted.c", *objects_of(*names), "-lm"],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def test_the_linker_holds_each_folder_to_what_it_may_use(tmp_path):
    """The build linked a program of each folder and what lies below it (usc_link_law)."""
    for name in [*MAY_USE, "sim"]:
        assert (BUILD / "law" / f"law_{name}").exists(), name
    call = "void usc_judge_close(void *);\nint main(void) { usc_judge_close(0); }\n"
    assert "undefined reference to `usc_judge_close'" in linked(tmp_path, call, "stats", *MAY_USE["stats"])
    assert linked(tmp_path, call, "judge", *MAY_USE["judge"]) == ""
    assert not any(name in MAY_USE[name] for name in MAY_USE)


def test_the_table_of_the_architecture_says_what_the_linker_holds():
    rows = re.findall(
        r"^\| `src/(\w+)` \|[^|]*\| ([a-z, ]*)\|$", (ROOT / "docs" / "background" / "architecture.md").read_text(), re.M
    )
    lines = re.findall(r"^usc_folder\((\w+)(?: USES ([a-z ]+))?", (ROOT / "cmake" / "folders.cmake").read_text(), re.M)
    said = {name: set(uses.replace(",", " ").split()) for name, uses in rows}
    assert said == {name: set((uses or "").split()) for name, uses in lines}


@pytest.mark.parametrize("folder", ["cli", "python/ext"])
def test_programs_and_extension_use_the_public_api_only(folder):
    for path in sources(ROOT / folder, ".c", ".h"):
        for name in includes(path.read_text()):
            own = (ROOT / folder / name).exists()
            assert own or name.split("/")[0] not in MAY_USE, f"{path}: internal header {name}"


def test_simulated_device_knows_no_torch_and_only_base_tensor_and_which_instructions_there_are():
    for path in sources(ROOT / "sim", ".c", ".h"):
        for name in includes(path.read_text()):
            assert not name.startswith(("ATen/", "c10/", "torch/")) and name != "Python.h", path
            if name.startswith("ulpscope/"):
                assert HEADER_OWNER.get(name.split("/")[-1]) in (None, "kernels"), f"{path}: {name}"


def test_cplusplus_lives_in_glue_only():
    """Beside it there are examples of what users write, peers of a benchmark, which are torch's own code, and what
    asks torch for its private names."""
    beside = ("bench/*_peer.cpp", "tests/py/torch_private/probe.cpp")
    for path in sources(ROOT, ".cpp", ".cc", ".hpp", ".cxx"):
        within = path.relative_to(ROOT)
        assert within.parts[0] in ("glue", "build", "examples") or any(map(within.match, beside)), path


FORBIDDEN = re.compile(r"\b(printf|puts|exit|abort|getenv|_exit|perror)\s*\(|\bstd(out|err)\b")


def strip_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def test_the_library_never_prints_exits_or_reads_the_environment():
    found = []
    for path in sources(ROOT / "src", ".c", ".inc"):
        for number, line in enumerate(strip_comments(path.read_text()).splitlines(), 1):
            if FORBIDDEN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "\n".join(found)
    assert FORBIDDEN.search('printf("x")') and FORBIDDEN.search("getenv(name)")
    assert not FORBIDDEN.search("usc_sprintf_like(x); fprintf_none;")


# ---- public headers ------------------------------------------------------------------

DECLARATION = re.compile(r"^USC_API\b[^;]*;", re.M | re.S)


def contracts(text: str) -> list[tuple[str, str]]:
    """Comment and declaration of each public function. Declarations that follow each other
    share the comment above them; a blank line ends that."""
    found, comment, lines = [], "", text.splitlines()
    i = 0
    while i < len(lines):
        first = i
        if lines[i].startswith("/*"):
            while "*/" not in lines[i]:
                i += 1
            comment = "\n".join(lines[first : i + 1])
        elif lines[i].startswith("USC_API"):
            while ";" not in lines[i]:
                i += 1
            found.append((comment, " ".join(line.strip() for line in lines[first : i + 1])))
        elif not lines[i].strip():
            comment = ""
        i += 1
    return found


def broken_contracts(text: str) -> list[str]:
    """What a contract leaves open: a function that can fail names its errors, one that hands
    out memory says whose it is, and of each, or of its whole header, threads are known."""
    head, bad = text.split("#ifndef")[0], []
    for comment, declaration in contracts(text):
        name = re.search(r"\busc_\w+(?=\s*[(\[;])", declaration.replace("usc_status usc", "usc")).group()
        fails = "usc_status " in declaration and "usc_error *err" in declaration
        hands_out = re.search(r"\*\*\s*\w+[,)]", declaration) or re.match(
            r"USC_API (USC_NODISCARD )?(const )?\w+ \*", declaration
        )
        said = {
            "Errors": not fails or "Errors:" in comment,
            "Memory": not hands_out or "Memory:" in comment,
            "Threads": "Threads:" in comment + head,
            "a comment": comment != "",
        }
        bad += [f"{name}: {what}" for what, there in said.items() if not there]
    return bad


def test_every_public_contract_is_complete():
    for path in [*sources(ROOT / "include", ".h"), *sources(ROOT / "sim" / "include", ".h")]:
        assert not broken_contracts(path.read_text()), path
    whole = "// Threads: safe.\n#ifndef X\n/** a\n * Memory: the caller's.\n * Errors: USC_E_IO. */\n{}"
    opens = "USC_API usc_status usc_x_open(usc_x **out, usc_error *err);\n"
    assert broken_contracts(whole.format(opens)) == []
    assert broken_contracts(whole.format("\n" + opens)) == [
        "usc_x_open: Errors",
        "usc_x_open: Memory",
        "usc_x_open: a comment",
    ]
    for word in ("Errors", "Memory", "Threads"):
        assert broken_contracts(whole.format(opens).replace(f"{word}:", "")) == [f"usc_x_open: {word}"]


def test_one_header_includes_all_that_is_promised():
    text = (ROOT / "include" / "ulpscope" / "ulpscope.h").read_text()
    stable = [p for p in sources(ROOT / "include", ".h") if p.parent.name != "x"]
    assert {name.split("/")[1] for name in includes(text)} == {p.name for p in stable} - {"ulpscope.h"}
    for path in stable:
        upward = [name for name in includes(path.read_text()) if name.startswith("ulpscope/x/")]
        assert not upward, f"{path}: what is promised stands on what is not"


def test_headers_compile_alone():
    for path in sources(ROOT / "include", ".h"):
        source = f"#include <{path.relative_to(ROOT / 'include')}>\n"
        for compiler, language in (("cc", ["-std=c11", "-xc"]), ("c++", ["-std=c++17", "-xc++"])):
            run = subprocess.run(
                [compiler, *language, "-Wall", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}", "-"],
                input=source,
                text=True,
                capture_output=True,
            )
            assert run.returncode == 0, run.stderr


# ---- exported symbols ----------------------------------------------------------------


def exported(library: Path) -> set[str]:
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines() if line.split()[1] in "TDBR"}


def names_of(header: Path) -> set[str]:
    """The functions and data that a header declares."""
    found = set()
    for text in DECLARATION.findall(strip_comments(header.read_text())):
        text = re.sub(r"USC_PRINTF\([^)]*\)|USC_NODISCARD", "", text)
        found.add(re.search(r"\b(usc_\w+)\s*(\(|;|\[)", text.replace("usc_status usc", "usc")).group(1))
    return found


@pytest.mark.parametrize("library", ["libulpscope.so", "libulpscope_sim.so"])
def test_exported_symbols_are_the_documented_ones(library):
    """Exactly what the public headers declare is exported: nothing leaks, nothing lacks."""
    folder = ROOT / ("include" if library == "libulpscope.so" else "sim/include")
    declared = {path: names_of(path) for path in sources(folder, ".h")}
    assert exported(BUILD / "python" / "ulpscope" / library) == set().union(*declared.values())
    if library == "libulpscope.so":
        for name, tier in (("exported.txt", ""), ("exported_x.txt", "x")):
            listed = (ROOT / "tests" / name).read_text().split()
            there = set().union(*(d for p, d in declared.items() if (p.parent.name == "x") == bool(tier)))
            assert listed == sorted(there), f"tests/{name} is what a release has: edit it too"


# ---- Python's rooms --------------------------------------------------------------------

PACKAGE = ROOT / "python" / "ulpscope"
# What a room of the package may import from; what lies beside the rooms may use them all.
ROOMS = {
    "calls": set(),
    "program": {"calls"},
    "watching": {"calls", "program"},
    "executors": {"calls"},
    "judges": {"calls", "executors"},
    "causes": {"calls", "executors", "judges"},
    "session": {"calls", "program", "executors", "judges", "causes"},
    "fuzzer": {"calls", "program", "executors", "judges", "causes", "session"},
    "compat": {"calls", "program", "executors", "judges", "causes", "session", "fuzzer"},
}


def room_offences(path: Path, text: str) -> list[str]:
    """Imports of a module of the package, at its head or in a function, that point the wrong way,
    and names beginning with _ that a room takes from another one."""
    parts, bad = path.relative_to(PACKAGE).with_suffix("").parts, []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom):
            continue
        module = (node.module or "").split(".")
        if node.level:
            module = [*parts[: len(parts) - node.level], *filter(None, module)]
        elif module[0] == "ulpscope":
            module = module[1:]
        else:
            continue
        names = [alias.name for alias in node.names]
        for target in [module[0]] if module else names:
            if parts[0] in ROOMS and target not in ("_core", parts[0], *ROOMS[parts[0]]):
                bad.append(f"{'/'.join(parts)}: imports from {target}")
        if module and module[0] in ROOMS and module[0] != parts[0]:
            bad += [f"{'/'.join(parts)}: {name} is private to {module[0]}" for name in names if name.startswith("_")]
    return bad


def test_the_rooms_of_the_package_import_one_way():
    found = [o for path in sources(PACKAGE, ".py") for o in room_offences(path, path.read_text())]
    assert not found, "\n".join(found)
    assert {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()} == set(ROOMS)
    planted = PACKAGE / "calls" / "planted.py"
    assert room_offences(planted, "def f():\n    from ..judges import excuses\n")
    assert room_offences(planted, "from .. import worker\n")
    assert room_offences(planted, "from ulpscope.causes.lab import Lab\n")
    assert room_offences(PACKAGE / "judges" / "planted.py", "from ..calls.replay import _fits\n")
    assert not room_offences(planted, "from .. import _core\nfrom .replay import _fits\n")


# ---- words and files -----------------------------------------------------------------


def wide_offence(name: str, code: str) -> bool:
    """Whether an object file has registers of another instruction set than its name says:
    such code would stop a processor without it, or be slow where the name promises more."""
    isa = (re.findall(r"_(avx2|avx512)\.c", name) or [""])[0]
    widest = {"": 0, "avx2": 1, "avx512": 2}[isa]
    return widest != ("ymm" in code) + ("zmm" in code)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 registers")
def test_wide_instructions_lie_in_the_files_named_for_them():
    there = {f"{path.name}.o" for path in sources(ROOT / "src", ".c")}  # a build folder may hold older ones
    objects = sorted(p for p in (BUILD / "CMakeFiles").glob("usc_*.dir/**/*.c.o") if p.name in there)
    wide = {name for name in there if re.search(r"_avx(2|512)\.c", name)}
    assert len(wide) >= 5 and wide <= {path.name for path in objects}
    for path in objects:
        code = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True
        ).stdout
        assert not wide_offence(path.name, code), path.name
    assert wide_offence("judge.c.o", "vaddpd %ymm0")
    assert wide_offence("judge_avx2.c.o", "vaddpd %ymm0 vaddpd %zmm0")
    assert wide_offence("judge_avx512.c.o", "vaddpd %ymm0")


def test_sources_open_with_licence_and_hold_no_left_overs():
    endings = (".c", ".h", ".cpp", ".py", ".inc", ".js", ".css")
    for folder in ("include", "src", "cli", "python", "sim", "glue", "tests", "bench", "examples"):
        for path in sources(ROOT / folder, *endings):
            text = path.read_text()
            if not text.strip():
                continue
            assert "SPDX-License-Identifier: Apache-2.0" in "\n".join(text.splitlines()[:3]), path
            if path.name != Path(__file__).name:
                assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text), path


def test_no_file_is_over_a_thousand_lines():
    for folder in ("include", "src", "cli", "python", "sim", "glue", "tests", "bench"):
        for path in sources(ROOT / folder, ".c", ".h", ".cpp", ".py", ".js"):
            assert len(path.read_text().splitlines()) <= 1000, path
