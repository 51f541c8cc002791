# SPDX-License-Identifier: Apache-2.0
"""What CMake needs for an extension of the simulated device, asked by ``ulpscope_add_extension`` of
``UlpscopeExtension.cmake``: ``python -m ulpscope.extension_cmake FOLDER NAME [--include=DIR] SOURCE...`` lowers kernels
into the folder and writes ``words.cmake`` there. Over torch.utils.cpp_extension, as :mod:`ulpscope.extension`."""

from __future__ import annotations

import argparse
import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from . import extension
from .program import glue
from .program.lowered import KernelRefused, Lowering, write_if_changed

_PROJECT = """# Written by ulpscope.extension_cmake.write_cmake: cmake -B build && cmake --build build
cmake_minimum_required(VERSION 3.18)
project({name} LANGUAGES CXX)
set(Python3_EXECUTABLE "{python}" CACHE FILEPATH "the Python that has torch and ulpscope")
include("{package}")
ulpscope_add_extension({name}
  SOURCES {sources}
  INCLUDES {includes})
"""


def package() -> Path:
    """The file that a project includes for ``ulpscope_add_extension``."""
    return glue.PACKAGE / "glue" / "grid" / "UlpscopeExtension.cmake"


def _quoted(words: Sequence[object]) -> str:
    escaped = (re.sub(r'([\\"$])', r"\\\1", str(word)) for word in words)
    return " ".join(f'"{word}"' for word in escaped)


def write_cmake(
    folder: str | Path, name: str, sources: Sequence[str | Path], include_paths: Sequence[str | Path] = ()
) -> Path:
    """Writes the CMakeLists.txt of a project that builds NAME.so as :func:`ulpscope.extension.load` builds one."""
    file = Path(folder).absolute() / "CMakeLists.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and "ulpscope.extension_cmake.write_cmake" not in file.read_text("utf-8", "replace"):
        raise FileExistsError(f"{file} was written by somebody else: name another folder")
    file.write_text(
        _PROJECT.format(
            name=name,
            python=sys.executable,
            package=package(),
            sources=_quoted([Path(source).absolute() for source in sources]),
            includes=_quoted([Path(path).absolute() for path in include_paths]),
        ),
        "utf-8",
    )
    return file


def _words(folder: Path, name: str, includes: list[str], sources: list[str]) -> str:
    includes = [str(Path(path).absolute()) for path in includes]
    sources = [str(Path(source).absolute()) for source in sources]
    lowering = Lowering(folder, includes)
    lowered = [lowering.source(source) for source in sources]
    lowering.check()
    flags = [*extension._flags(False), f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    libraries = [f"-l{name}" for name in ("c10", "torch_cpu", "torch", "torch_python")]
    link = [*(f"-L{path}" for path in extension.library_paths()[1:]), *libraries]
    lists: dict[str, Sequence[object]] = {
        "sources": [*lowered, extension._module_source(folder)],
        "depends": [*sources, *lowering.headers],
        "includes": [*includes, *extension.include_paths(), sysconfig.get_paths()["include"]],
        "flags": flags,
        "link": [*link, *extension._link_flags()],
        "standard": [re.sub(r"\D", "", glue._wanted_standard())],
    }
    return "".join(f"set(usc_{key} {_quoted(words)})\n" for key, words in lists.items())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ulpscope.extension_cmake", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("sources", nargs="+")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    try:
        words = _words(given.folder, given.name, given.include, given.sources)
    except (KernelRefused, extension.ExtensionError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    write_if_changed(given.folder / "words.cmake", words.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
