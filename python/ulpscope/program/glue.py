# SPDX-License-Identifier: Apache-2.0
"""Builds and loads the C++ glue: one shared library per folder under ``glue/``.

The glue is compiled against the torch that is importable here, on first use, and kept in
``$ULPSCOPE_CACHE`` (default ``~/.cache/ulpscope``) under a name made of torch's version,
ours and a hash of everything that went in (`cli/common/version.c` reads it). ``python -m
ulpscope.program.glue`` builds all of it ahead, or what it is given names of. Torch is only
loaded to compile: that there is nothing to do shows in a tenth of a second.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import _core
from ..calls.mounts import runs_nothing, way_on
from .shared_objects import broken, too_old

PACKAGE = Path(__file__).parent.parent
_FLAGS = ["-O1", "-DNDEBUG", "-DAT_PER_OPERATOR_HEADERS", "-fPIC", "-fvisibility=hidden", "-w"]
_PARALLEL = 2
_SAID_EVERY_S = 5  # in a log; who looks on is told sooner
_SHOWN_EVERY_S = 2
_STANDARDS = ("c++20", "c++2a", "c++17")  # c++2a: what older compilers have of c++20


# called before a mode puts kernels in front of all others, by who must stand behind those
before_modes: list[Callable[..., Any]] = []


class GlueError(RuntimeError):
    """The glue could not be compiled; the text says why."""


def names() -> list[str]:
    """The glue libraries that this package has sources for, e.g. ``["intercept", "sim"]``."""
    return sorted(p.name for p in (PACKAGE / "glue").iterdir() if any(p.glob("*.cpp")))


def load(name: str) -> ctypes.CDLL:
    """The glue library ``name``, compiled first where this torch has none yet."""
    return ctypes.CDLL(str(ready(name)))


# ---- what was compiled elsewhere ------------------------------------------------------


def sources_digest() -> str:
    """Of all that the glue is compiled of here: what was compiled of something else does not fit."""
    digest = hashlib.sha256()
    for name in names():
        own = _own(name)
        for path in _public_headers(own) + own:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def fits() -> str:
    """What a compiled glue fits: torch's minor version, the C++ ABI, Python's, the machine."""
    minor = ".".join(torch_version().split(".")[:2])
    abi = _abi_flag()[-1]
    return f"torch{minor}-abi{abi}-cp{sys.version_info[0]}{sys.version_info[1]}-{platform.machine()}"


def prebuilt(name: str) -> Path | None:
    """Where the companion package has a glue that fits, and is whole; None where it has none."""
    path = _of_companion(name)
    return path if path is not None and not broken(path) else None


def _of_companion(name: str) -> Path | None:
    spec = importlib.util.find_spec("ulpscope_glue")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / sources_digest() / fits()
    path = folder / f"usc_glue_{name}.so"
    return path if path.exists() else None


def _why_not_compiled() -> str:
    """Why nothing can be compiled here; "" where it can."""
    compiler = _compiler()[0]
    if shutil.which(compiler) is None:
        return f"no C++ compiler '{compiler}'"
    if not (_torch_home() / "include" / "ATen" / "ATen.h").exists():
        return "torch came without its headers"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "no Python.h"
    return ""


def taken(name: str) -> Path | None:
    """The glue of the companion, where nothing can be compiled."""
    if _there(path_of(name)) or not _why_not_compiled():
        return None
    return prebuilt(name)


def _there(path: Path) -> bool:
    """Whether a file of the cache is there. GlueError where the cache is another user's."""
    try:
        return path.exists()
    except PermissionError:
        raise GlueError(
            f"{cache_home()}, where what is compiled is kept, belongs to another user; "
            "set ULPSCOPE_CACHE to a folder of your own"
        ) from None


def loadable(library: Path) -> bool:
    """Whether there is a library that can be loaded. GlueError where none can be from there."""
    if not _there(library):
        return False
    try:
        if runs_nothing(library.parent):
            raise GlueError(way_on(library.parent, "ULPSCOPE_CACHE"))
        return not broken(library)
    except PermissionError:
        raise GlueError(
            f"{library} cannot be read: it is another user's; set ULPSCOPE_CACHE to a folder of your own"
        ) from None


@functools.cache
def load_what_it_needs() -> None:
    """Torch and our own libraries: the glue names them without a path, so that what one environment
    has compiled serves every other that has the same torch."""
    import torch  # noqa: F401

    for library in ("ulpscope", "ulpscope_sim"):
        path = PACKAGE / f"lib{library}.so"
        if path.exists():
            ctypes.CDLL(str(path))


def ready(name: str) -> Path:
    """What `build` gives, with all loaded that it needs."""
    path = build(name)
    load_what_it_needs()
    return path


def build(name: str, say: Callable[[str], Any] | None = None) -> Path:
    """The path of the compiled library ``name``; ``say`` is called with what is being done."""
    old = too_old(torch_version())
    if old:
        raise GlueError(old)
    library = path_of(name)
    folder = library.parent
    if loadable(library):
        return library
    found = taken(name)
    if found is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = open(folder / f"{name}.lock", "w")
    except OSError as problem:
        raise GlueError(
            f"the {name} glue cannot be kept in {folder}: {problem.strerror}; set ULPSCOPE_CACHE to a "
            "folder that can be written"
        ) from None
    if runs_nothing(folder):
        raise GlueError(way_on(folder, "ULPSCOPE_CACHE"))
    # Ranks and workers that start together build once.
    say = say or _say
    with held as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"another process compiles the {name} glue; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not loadable(library):
            if library.exists():
                say(f"{library} {broken(library)}: it has to be compiled anew")
            _must_compile(name)
            say(
                f"compiling the {name} glue for torch {torch_version()}: once, about a minute "
                f"({len(_sources(name))} files)"
            )
            _compile(name, library, say)
    return library


def _say(text: str) -> None:
    print(f"ulpscope: {text}", file=sys.stderr, flush=True)


def _own(name: str) -> list[Path]:
    """All files that a library is made of: its folder's, and the headers that all share."""
    folder = PACKAGE / "glue"
    return sorted(folder.glob("*.h")) + sorted((folder / name).glob("*.h")) + _sources(name)


def _sources(name: str) -> list[Path]:
    return sorted((PACKAGE / "glue" / name).glob("*.cpp"))


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "c++"))


@functools.cache
def _torch_home() -> Path:
    """The folder of torch, which is not loaded. Raises ImportError where there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    return Path(spec.origin).parent


@functools.cache
def _torch_build() -> tuple[str, int]:
    """What tells builds of torch apart: version, commit and devices, and a library's size."""
    try:
        text = (_torch_home() / "version.py").read_text("utf-8")
        return text, (_torch_home() / "lib" / "libc10.so").stat().st_size
    except OSError:  # not as we know it
        import torch

        return f"__version__ = '{torch.__version__}'", 0


def torch_version() -> str:
    """The version of the torch that is importable here, which is not loaded to tell it."""
    found = re.search(r"^__version__ *= *['\"](.+?)['\"]", _torch_build()[0], re.M)
    return found.group(1) if found else "unknown"


def _wanted_standard() -> str:
    """The C++ standard that torch builds extensions with: its headers may need it."""
    text = (_torch_home() / "utils" / "cpp_extension.py").read_text("utf-8", "replace")
    return max(re.findall(r"-std=(c\+\+\d\d)\b", text), default="c++17")


def _standard(compiler: list[str]) -> str:
    """The standard that torch wants, or the newest that this compiler has instead."""
    wanted = _wanted_standard()
    for name in (wanted, *_STANDARDS):
        probe = [*compiler, f"-std={name}", "-fsyntax-only", "-x", "c++", os.devnull]
        if subprocess.run(probe, capture_output=True).returncode == 0:
            return name
    return wanted  # the compiler says itself what it lacks


def _compile_flags() -> list[str]:
    home = _torch_home() / "include"
    include = [home, home / "torch/csrc/api/include", PACKAGE / "include", sysconfig.get_paths()["include"]]
    return _FLAGS + [f"-I{path}" for path in include]


def _abi_flag() -> str:
    from ..calls.torch_private import cxx11_abi

    return f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11_abi())}"


def _link_flags() -> list[str]:
    torch_lib = _torch_home() / "lib"
    ours = [f"-l{n}" for n in ("ulpscope_sim", "ulpscope") if (PACKAGE / f"lib{n}.so").exists()]
    return [
        "-shared",
        "-Wl,--as-needed",
        f"-L{PACKAGE}",
        *ours,
        f"-L{torch_lib}",
        "-ltorch_cpu",
        "-ltorch_python",
        "-lc10",
        "-Wl,-rpath,$ORIGIN",  # where it is handed on, ours lie beside it
    ]


def cache_home() -> Path:
    """The folder of what is kept between runs: glue, what devices said. GlueError where there
    is none."""
    cache = os.environ.get("ULPSCOPE_CACHE") or "~/.cache/ulpscope"
    try:
        return Path(cache).expanduser()
    except RuntimeError:  # no home at all
        raise GlueError(
            "there is no home folder to keep things in; set ULPSCOPE_CACHE to a folder that can be written"
        ) from None


def told() -> list[str]:
    """What `ulpscope info` says of the glue: what is built, the compiler, the cache."""
    try:
        built = [f"{n} {_state(n)}" for n in names()]
        cache = str(cache_home())
    except (GlueError, OSError) as problem:
        built, cache = [], str(problem)
    if any("not built" in text for text in built):
        built.append("compiled at first use, once, about a minute")
    compiler = _compiler()[0]
    path = shutil.which(compiler)
    return [", ".join(built), path or f"no '{compiler}': install g++ or set CXX to a C++ compiler", cache]


def _state(name: str) -> str:
    if _there(path_of(name)):
        return "built"
    why = _why_not_compiled()
    if why and prebuilt(name):
        return f"prebuilt ({why})"
    return "not built yet"


def path_of(name: str) -> Path:
    """Where the library ``name`` for this torch lies, or will."""
    return _cache_folder(name) / f"usc_glue_{name}.so"


def _public_headers(files: list[Path]) -> list[Path]:
    """Those of our public headers that some files include, or these in turn."""
    found: set[Path] = set()
    rest = list(files)
    while rest:
        named = re.findall(r"^#include <(ulpscope(?:_sim)?/(?:x/)?\w+\.h)>", rest.pop().read_text("utf-8"), re.M)
        new = {PACKAGE / "include" / name for name in named} - found
        found |= new
        rest += new
    return sorted(found)


def _cache_folder(name: str) -> Path:
    flags = [f for f in _FLAGS + _link_flags() if not f.startswith("-L")]  # where these lie does not count
    digest = hashlib.sha256(
        repr((_compiler(), _wanted_standard(), sys.version_info[:2], flags, _torch_build())).encode()
    )
    own = _own(name)
    for path in _public_headers(own) + own:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    version = torch_version().replace("/", "_")
    return cache_home() / f"torch-{version}-ulpscope-{_core.version}-{digest.hexdigest()[:16]}"


def _run(command: list[str], log: Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        log.write_text(f"{shlex.join(command)}\n{done.stdout}")
        raise GlueError(
            f"the glue does not compile against torch {torch_version()}: "
            f"{_first_error(done.stdout)}{_missing(done.stdout)} (the compiler's whole answer: {log})"
        )


# Torch's headers include these, and a distribution's torch comes without them: Debian's package of each.
_HEADERS = {"pybind11": "pybind11-dev", "fmt": "libfmt-dev", "ATen": "libtorch-dev", "Python.h": "python3-dev"}


def _missing(output: str) -> str:
    """Which package brings the header that was not found; "" where none was missed."""
    found = re.search(r"fatal error: '?([^'\s:]+)'?(?:: No such file| file not found)", output)
    package = _HEADERS.get(found.group(1).split("/")[0]) if found else None
    return f"; install it (Debian: apt-get install {package})" if package else ""


def _first_error(output: str) -> str:
    """The line of a compiler's or linker's output that tells what is wrong: what follows the
    first error is mostly its consequences."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"\berror\b|undefined reference|cannot find", line)]
    return (told or lines or ["it says nothing"])[0][:400]


def _object(base: list[str], source: Path, out: Path, log: Path) -> None:
    """Compiles one file, unless somebody who was stopped has done it; what is there is whole."""
    if not out.exists():
        part = out.with_suffix(".part.o")
        _run([*base, "-c", str(source), "-o", str(part)], log)
        os.replace(part, out)


def _objects(base: list[str], pairs: list[tuple[Path, Path]], log: Path, name: str, say: Callable[[str], Any]) -> None:
    """Compiles all files, and says now and then how far it is."""
    from concurrent.futures import ThreadPoolExecutor, wait

    every = min(_SAID_EVERY_S, _SHOWN_EVERY_S) if sys.stderr.isatty() else _SAID_EVERY_S
    with ThreadPoolExecutor(_PARALLEL) as pool:
        left = {pool.submit(_object, base, source, out, log) for source, out in pairs}
        began = time.monotonic()
        try:
            while left:
                done, left = wait(left, timeout=every, return_when="FIRST_EXCEPTION")
                for future in done:
                    future.result()
                if left:
                    n = sum(out.exists() for _, out in pairs)
                    say(f"compiling the {name}: {n} of {len(pairs)} files ({time.monotonic() - began:.0f} s)")
        finally:
            for future in left:
                future.cancel()


def _heads(base: list[str], folder: Path, n: int, log: Path, name: str, say: Callable[[str], Any]) -> list[str]:
    """Words that let a compiler take the headers that nearly all files include as parsed once, which halves
    what a file takes; none for a few files, and where the compiler cannot: what is missed is time alone."""
    if n < 8:
        return []
    heads = folder / "heads.h"
    shutil.copy(PACKAGE / "glue" / heads.name, heads)
    try:
        parsed = [(heads, folder / "heads.h.gch")]
        _objects([*base, "-x", "c++-header"], parsed, log, f"headers of the {name} glue", say)
    except GlueError:
        return []
    return ["-include", str(heads)]


def _half_there(name: str) -> str:
    """Of a companion that has what fits, but not whole."""
    path = _of_companion(name)
    return f"; the one that is here {broken(path)} ({path}): install it again" if path is not None else ""


def _must_compile(name: str) -> None:
    """GlueError where nothing can be compiled here: before it is said that something is."""
    compiler = _compiler()
    if shutil.which(compiler[0]) is None:
        raise GlueError(
            f"the {name} glue must be compiled against your torch and there is no C++ compiler "
            f"'{compiler[0]}': install g++ (Debian: apt-get install g++) or set CXX to one; or "
            f"install the package ulpscope-glue of this version, if it has {fits()}{_half_there(name)}"
        )
    if not (_torch_home() / "include" / "ATen" / "ATen.h").exists():
        raise GlueError(
            f"the {name} glue must be compiled against your torch, which came without its headers: install "
            f"them (Debian: apt-get install libtorch-dev), or the package ulpscope-glue, if it has {fits()}"
        )


def _compile(name: str, library: Path, say: Callable[[str], Any]) -> None:
    compiler = _compiler()
    log = library.parent / f"{name}.log"
    base = [*compiler, f"-std={_standard(compiler)}", _abi_flag(), *_compile_flags()]
    scratch = library.parent / f"{name}.objects"  # stays where this is stopped: the next goes on
    scratch.mkdir(exist_ok=True)
    pairs = [(source, scratch / f"{source.stem}.o") for source in _sources(name)]
    _objects([*base, *_heads(base, scratch, len(pairs), log, name, say)], pairs, log, f"{name} glue", say)
    linked = scratch / library.name
    _run([*compiler, *(str(out) for _, out in pairs), *_link_flags(), "-o", str(linked)], log)
    os.replace(linked, library)
    shutil.rmtree(scratch, ignore_errors=True)


def hand_on(folder: Path) -> None:
    """Puts the glue of this torch into a folder, as the companion package holds it."""
    place = folder / sources_digest() / fits()
    place.mkdir(parents=True, exist_ok=True)
    for name in names():
        built = build(name)
        shutil.copy(built, place / built.name)
        print(place / built.name)


def main() -> int:
    """Builds every glue library, or those that are named; 2 and a sentence on stderr where
    that fails. One that is named is not missed where there is no torch to need it."""
    wanted = sys.argv[1:]
    try:
        if wanted[:1] == ["--hand-on"]:
            hand_on(Path(wanted[1]))
            return 0
        for name in wanted or names():
            path = build(name)
            print(f"{name} glue: {path}")
    except (GlueError, OSError) as error:
        _say(str(error))
        return 2
    except ImportError:
        if not wanted:
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
