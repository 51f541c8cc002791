# SPDX-License-Identifier: Apache-2.0
"""Extensions for the simulated device, built as torch builds those for others: sources in C++, and kernels
written for CUDA (``.cu``), whose operators then run on ``sim``::

    from setuptools import setup
    from ulpscope.extension import BuildExtension, SimExtension

    setup(name="ops", ext_modules=[SimExtension("ops._C", ["ops.cpp", "nms.cu"])],
          cmdclass={"build_ext": BuildExtension})

or, at once, ``ops = ulpscope.extension.load("ops", ["ops.cpp", "nms.cu"])``. Over torch.utils.cpp_extension,
with the same parameters. ``ULPSCOPE_SIM_WARP=64``, or the profile, builds for warps of 64 lanes;
``ULPSCOPE_SIM_RACES=1``, or ``races=True``, has each access looked at: races in shared memory, and what is outside of
all arguments.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch
from setuptools import Extension
from torch.utils import cpp_extension

from . import sim_properties
from .program import c_objects, glue, heads
from .program.lowered import KernelRefused, Lowering, write_if_changed

__all__ = [
    "BuildExtension",
    "ExtensionError",
    "KernelRefused",
    "SimExtension",
    "export_device",
    "include_paths",
    "library_paths",
    "load",
    "load_inline",
    "load_operators",
]

_STAMP = "ulpscope-built-for"


class ExtensionError(RuntimeError):
    """An extension cannot be built, or not be loaded; the text says why."""


def include_paths() -> list[str]:
    """Where the headers are: the device's, and torch's."""
    return [str(glue.PACKAGE / "glue" / "grid"), str(glue.PACKAGE / "include"), *cpp_extension.include_paths()]


def library_paths() -> list[str]:
    """Where the libraries are: the device's, and torch's."""
    return [str(glue.PACKAGE), *cpp_extension.library_paths()]


def _profile() -> sim_properties._Row:
    """What the devices are: by the profile that is set, the variable's where the device is not loaded."""
    if "ulpscope.sim" not in sys.modules:
        sim_properties.use(ctypes.CDLL(str(glue.PACKAGE / "libulpscope_sim.so")))
        sim_properties.from_environment()
    return sim_properties._profile()


def _warp() -> int:
    """Lanes of a warp: the variable's, else those of the device's profile."""
    width = os.environ.get("ULPSCOPE_SIM_WARP") or _profile().warp_size
    if str(width) not in ("32", "64"):
        raise ExtensionError(
            f"a warp of {width} lanes: kernels are built for 32 or 64 (ULPSCOPE_SIM_WARP, or the profile)"
        )
    return int(width)


def _wants_races(races: bool | None) -> bool:
    return os.environ.get("ULPSCOPE_SIM_RACES", "") not in ("", "0") if races is None else races


def _flags(races: bool) -> list[str]:
    """Symbols stay within an extension: two may have one kernel's name."""
    flags = [
        "-O2",
        "-g1",
        "-fvisibility=hidden",
        "-fno-gnu-unique",
        "-Wno-unknown-pragmas",
        "-Wno-attributes",
        "-DULPSCOPE_SIM_TORCH",
        f"-DULPSCOPE_SIM_WARP={_warp()}",
    ]
    return [*flags, "-fsanitize=thread", "-DULPSCOPE_SIM_RACES"] if races else flags


def _link_flags() -> list[str]:
    return [f"-L{glue.PACKAGE}", "-lulpscope_sim", "-lulpscope", f"-Wl,-rpath,{glue.PACKAGE}"]


_OF_NVCC = re.compile(r"-gencode|-arch|-X|--|-use_fast_math|-maxrregcount|arch=|-lineinfo|-rdc|-ccbin")


def _of_simcc(flags: list[str]) -> list[str]:
    """The flags of a kernels' compiler that one of C++ has, too."""
    return [flag for flag in flags if not _OF_NVCC.match(flag)]


# ---- what is checked when it is built


def _shared_names(lowering: Lowering, sources: list[str]) -> set[str]:
    """The names of what is declared as static shared memory."""
    texts = [p.read_bytes() for p in [*map(Path, sources), *lowering.headers.values()] if p.is_file()]
    found: set[str] = set()
    for text in texts:
        for declared in re.findall(rb"__shared__([^;=]*);", text):
            found |= {name.decode() for name in re.findall(rb"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:,|$)", declared)}
    return found


def _without_arguments(function: str) -> str:
    """(anonymous namespace)::f(int, g(*)(int)) to (anonymous namespace)::f"""
    depth = 0
    for i in range(len(function) - 1, 0, -1):
        depth += (function[i] == ")") - (function[i] == "(")
        if depth == 0:
            return function[:i] if function[i] == "(" else function
    return function


def _shared_sizes(library: Path, names: set[str]) -> dict[str, int]:
    """Bytes of static shared memory by kernel, as the library says."""
    done = subprocess.run(["nm", "-C", "-S", "--defined-only", str(library)], capture_output=True, text=True)
    sizes: dict[str, int] = {}
    for line in done.stdout.splitlines():
        found = re.match(r"\w+ (\w+) \w (.*)::(\w+)$", line)
        if found and found[3] in names:
            kernel = _without_arguments(found[2]).removeprefix("void ")
            sizes[kernel] = sizes.get(kernel, 0) + int(found[1], 16)
    return sizes


def _check_shared(library: Path, names: set[str]) -> None:
    row = _profile()
    for kernel, size in _shared_sizes(library, names).items():
        if size > row.shared_size:
            raise ExtensionError(
                f"kernel {kernel} has {size} bytes of static shared memory; a block has {row.shared_size} (profile "
                f"{row.text.decode()}): have it take less, or leave its file out of the sources"
            )


# ---- setup.py

_FLAGS_OF_USERS = {"CFLAGS", "CPPFLAGS", "CXXFLAGS"}


def SimExtension(name: str, sources: list[str], *args: object, **kwargs: object) -> Extension:
    """A setuptools.Extension for the simulated device, for :class:`BuildExtension`."""
    for key, more in (("include_dirs", include_paths()[:2]), ("extra_link_args", _link_flags())):
        kwargs[key] = [*kwargs.get(key, []), *more]  # type: ignore[misc]
    extension = cpp_extension.CppExtension(name, sources, *args, **kwargs)
    extension.is_sim = True
    return extension


class BuildExtension(cpp_extension.BuildExtension):
    """torch's, and kernels' files of a :func:`SimExtension` are lowered first. Torch's headers are taken as parsed
    before, as :func:`load` takes them, where ``CFLAGS`` and its like are not set."""

    def build_extensions(self) -> None:
        shared = {}
        for extension in self.extensions:
            if getattr(extension, "is_sim", False):
                shared[extension.name] = self._lower(extension)
        super().build_extensions()
        for name, names in shared.items():
            _check_shared(Path(self.get_ext_fullpath(name)), names)

    def _lower(self, extension: Extension) -> set[str]:
        own = [d for d in extension.include_dirs if not d.startswith(str(glue.PACKAGE))]
        folder = Path(self.build_temp).absolute() / "lowered" / extension.name
        lowering = Lowering(folder, [d for d in own if "site-packages" not in d])
        extension.sources = [lowering.source(source) for source in extension.sources]
        lowering.check()
        extension.depends = [*extension.depends, *map(str, lowering.headers)]
        extension.sources.append(_module_source(folder))
        given = extension.extra_compile_args
        if isinstance(given, dict):
            given = [*given.get("cxx", []), *_of_simcc(given.get("simcc", []))]
        races, sources = _wants_races(None), extension.sources
        extension.parsed = [] if _FLAGS_OF_USERS & os.environ.keys() else _parsed(lowering, sources, given, races)
        extension.extra_compile_args = [*_flags(races), *given, *extension.parsed]
        return _shared_names(lowering, sources)

    def build_extension(self, extension: Extension) -> None:
        before = self.compiler.compiler_so
        if getattr(extension, "parsed", None):  # without the interpreter's own flags, for which nothing is parsed
            self.compiler.compiler_so = [before[0], "-fPIC"]
        super().build_extension(extension)
        self.compiler.compiler_so = before


def _module_source(folder: Path) -> str:
    """The part of ours, beside the lowered files: where its object may lie."""
    copy = folder / "grid_module.cpp"
    write_if_changed(copy, (glue.PACKAGE / "glue" / "grid" / "grid_module.cc").read_bytes())
    return str(copy)


# ---- at once


def _build_folder(name: str, races: bool, sources: Sequence[str | os.PathLike[str]]) -> Path:
    """A folder of its own for each torch and for each place that the sources lie in: copies have one name."""
    places = sorted({str(Path(source).resolve().parent) for source in sources})
    key = repr((glue._torch_build(), glue.fits(), _warp(), races, places))
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    return glue.cache_home() / "extensions" / f"torch-{torch.__version__}-{digest}" / name


def _clear_if_foreign(folder: Path) -> None:
    """What was built there for another torch is built anew."""
    stamp, now = folder / _STAMP, repr(glue._torch_build())
    if stamp.exists() and stamp.read_text() != now:
        for path in [*folder.glob("*.so"), *folder.glob("*.o"), *folder.glob("*.ninja")]:
            path.unlink()
    stamp.write_text(now)


def _parsed(lowering: Lowering, lowered: list[str], given: list[str], races: bool) -> list[str]:
    """Flags by which torch's headers are taken as parsed before; code that tells of each access has none."""
    own = [flag for flag in _flags(races) if "ULPSCOPE_SIM" not in flag]
    if races or not heads.harmless([flag for flag in given if flag not in own]):
        return []
    files = [*map(Path, lowered), *lowering.headers.values()]
    texts = [path.read_text("utf-8", "replace") for path in files if path.is_file()]
    return heads.flags(heads.wanted(texts), own)


_loaded: dict[str, tuple[str, int]] = {}  # name: digest of its headers, how often that has changed


def _again(name: str, digest: str) -> list[str]:
    """A flag that differs where this process has loaded the extension with other headers: torch looks at
    sources and flags alone."""
    before, n = _loaded.get(name, (digest, 0))
    n += before != digest
    _loaded[name] = (digest, n)
    return [f"-DULPSCOPE_AGAIN={n}"] if n else []


def load(
    name: str,
    sources: str | list[str],
    extra_cflags: Sequence[str] | None = None,
    extra_sim_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | Path | None = None,
    verbose: bool = False,
    is_python_module: bool = True,
    races: bool | None = None,
) -> ModuleType | str:
    """Builds an extension where it or a header of its own has changed, and loads it: its module, or its path with
    ``is_python_module=False``, where the library registers operators alone. Built for each torch apart."""
    from . import sim, sim_faults  # noqa: F401 the operators need their device

    races = _wants_races(races)
    sources = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    folder = Path(build_directory) if build_directory else _build_folder(name, races, sources)
    folder.mkdir(parents=True, exist_ok=True)
    _clear_if_foreign(folder)
    in_c = [source for source in sources if str(source).endswith(".c")]
    lowering = Lowering(folder / "lowered", list(extra_include_paths or []))
    lowered = [lowering.source(source) for source in sources if source not in in_c]
    lowering.check()
    given = [*(extra_cflags or []), *_of_simcc(list(extra_sim_cflags or []))]
    flags = [*_flags(races), *given, *_again(name, lowering.digest()), *_parsed(lowering, lowered, given, races)]
    try:
        objects = c_objects.compiled(in_c, folder, [*(extra_include_paths or []), *include_paths()[:2]])
    except RuntimeError as problem:
        raise ExtensionError(f"the extension {name} does not compile: {problem}") from problem
    try:
        module = cpp_extension.load(
            name,
            [*lowered, _module_source(folder / "lowered")],
            extra_cflags=flags,
            extra_ldflags=[*objects, *_link_flags(), *(extra_ldflags or [])],
            extra_include_paths=[*(extra_include_paths or []), *include_paths()[:2]],
            build_directory=str(folder),
            verbose=verbose,
            is_python_module=is_python_module,
        )
    except RuntimeError as problem:
        if "Error building" not in str(problem):
            raise
        raise ExtensionError(f"the extension {name} does not compile: {glue._first_error(str(problem))}") from problem
    _check_shared(folder / f"{name}.so", _shared_names(lowering, lowered))
    sim_faults.look_again()
    loaded: ModuleType | str = module
    return loaded


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str] = (),
    sim_sources: str | Sequence[str] = (),
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_sim_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | Path | None = None,
    verbose: bool = False,
    is_python_module: bool = True,
    races: bool | None = None,
) -> ModuleType | str:
    """The same of sources in texts. ``functions``: those of the sources to bind, names or a dictionary of name and
    docstring; what kernels' sources define is to be declared in ``cpp_sources``."""
    cpp_sources = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    sim_sources = [sim_sources] if isinstance(sim_sources, str) else list(sim_sources)
    folder = Path(build_directory) if build_directory else _build_folder(name, _wants_races(races), [])
    folder.mkdir(parents=True, exist_ok=True)
    if functions is not None:
        functions = [functions] if isinstance(functions, str) else functions
        docs = functions if isinstance(functions, dict) else {f: f for f in functions}
        rows = [f'm.def("{f}", torch::wrap_pybind_function({f}), "{doc}");' for f, doc in docs.items()]
        cpp_sources.append("\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *rows, "}"]))
    files = []
    if cpp_sources:
        write_if_changed(folder / "main.cpp", "\n".join(["#include <torch/extension.h>", *cpp_sources, ""]).encode())
        files.append(str(folder / "main.cpp"))
    if sim_sources:
        head = ["#include <torch/types.h>", "#include <grid_torch.h>"]
        write_if_changed(folder / "sim.cu", "\n".join([*head, *sim_sources, ""]).encode())
        files.append(str(folder / "sim.cu"))
    return load(
        name,
        files,
        extra_cflags,
        extra_sim_cflags,
        extra_ldflags,
        extra_include_paths,
        str(folder),
        verbose,
        is_python_module,
        races,
    )


# ---- programs of C++


_CMAKE = """# The simulated device for programs of C++ that link torch: find_package(Ulpscope COMPONENTS sim).
get_filename_component(_usc "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_part IN LISTS Ulpscope_FIND_COMPONENTS)
  if(NOT _part STREQUAL "sim")
    set(Ulpscope_FOUND FALSE)
    set(Ulpscope_NOT_FOUND_MESSAGE "there is no component ${_part}; there is sim")
  endif()
endforeach()
if(NOT TARGET Ulpscope::sim)
  add_library(Ulpscope::sim SHARED IMPORTED)
  set_target_properties(Ulpscope::sim PROPERTIES
    IMPORTED_LOCATION "${_usc}/lib/libulpscope_sim_torch.so" IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${_usc}/include"
    INTERFACE_LINK_LIBRARIES "${_usc}/lib/libulpscope_sim.so;${_usc}/lib/libulpscope.so")
endif()
"""


def export_device(folder: str | Path) -> Path:
    """Writes the device as what a program of C++ is built with, for this torch: ``lib``, ``include`` and CMake's
    package ``Ulpscope`` with its component ``sim``. Python is not needed where the program runs."""
    folder = Path(folder).absolute()
    libraries = {
        "libulpscope_sim_torch.so": glue.build("sim"),
        "libulpscope_sim.so": glue.PACKAGE / "libulpscope_sim.so",
        "libulpscope.so": glue.PACKAGE / "libulpscope.so",
    }
    for part in ("lib/cmake/Ulpscope", "include"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, library in libraries.items():
        shutil.copy2(library, folder / "lib" / name)
    for name in ("ulpscope", "ulpscope_sim"):
        shutil.copytree(glue.PACKAGE / "include" / name, folder / "include" / name, dirs_exist_ok=True)
    shutil.copy2(glue.PACKAGE / "glue" / "grid" / "grid_deploy.h", folder / "include" / "ulpscope_sim" / "torch.h")
    write_if_changed(folder / "lib/cmake/Ulpscope/UlpscopeConfig.cmake", _CMAKE.encode())
    return folder


# ---- operators from YAML


def _load_wanted() -> None:
    for folder in filter(None, os.environ.get("ULPSCOPE_SIM_OPS", "").split(":")):
        load_operators(folder)


def load_operators(folder: str | Path) -> None:
    """Builds and loads what ``ulpscope ops gen -o FOLDER`` wrote, with the sources that it was told of; the same as
    ``ULPSCOPE_SIM_OPS=FOLDER`` (several with ``:``) where the device is imported. A second one replaces nothing."""
    folder = Path(folder).absolute()
    if not (folder / "sim_ops.cpp").is_file():
        raise ExtensionError(f"{folder} holds no operators: ulpscope ops gen FILE.yaml -o {folder} writes them")
    sources = [line for line in (folder / "sources.txt").read_text("utf-8").splitlines() if line]
    gone = [source for source in sources if not Path(source).is_file()]
    if gone:
        raise ExtensionError(f"{gone[0]} is not there any more: run ulpscope ops gen again")
    name = "usc_ops_" + hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    try:
        load(name, [str(folder / "sim_ops.cpp"), *sources], extra_include_paths=[str(folder)], is_python_module=False)
    except OSError as problem:
        found = re.search(r"undefined symbol: (\w+)", f"{problem} {problem.__cause__}")
        if found is None:
            raise
        done = subprocess.run(["c++filt", found[1]], capture_output=True, text=True)
        raise ExtensionError(
            f"no source defines {done.stdout.strip() or found[1]}, which {folder / 'sim_ops.h'} declares: "
            "give its file by ulpscope ops gen --source, with that signature"
        ) from problem
