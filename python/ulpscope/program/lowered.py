# SPDX-License-Identifier: Apache-2.0
"""Kernels' files (``.cu``, and the headers they include) as a compiler of C++ takes them for the simulated
device: `src/port/lower.c` through ctypes, file by file into a folder. Files whose text is the same are not
written again, so that only what changed is compiled. Each copy names the file it was made of, and compilers
and debuggers speak of that one."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from pathlib import Path

from . import glue

KERNEL_ENDINGS = (".cu", ".cuh")
_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)


class KernelRefused(RuntimeError):
    """A kernel has what the simulated device lacks; the text names file, line and construct."""


class _Options(ctypes.Structure):  # usc_port_options
    _fields_ = [
        ("target", ctypes.c_int),
        ("map", ctypes.c_char_p),
        ("no_default_map", ctypes.c_bool),
        ("ignore", ctypes.c_void_p),
        ("n_ignore", ctypes.c_size_t),
        ("only", ctypes.c_uint),
        ("launch", ctypes.c_char_p),
        ("comments", ctypes.c_bool),
        ("rename_own", ctypes.c_bool),
        ("out", ctypes.c_char_p),
        ("in_place", ctypes.c_bool),
        ("dry_run", ctypes.c_bool),
        ("diff", ctypes.c_bool),
        ("lower", ctypes.c_bool),
    ]


class _Left(ctypes.Structure):  # usc_port_left
    _fields_ = [
        ("line", ctypes.c_int64),
        ("construct", ctypes.c_char_p),
        ("excerpt", ctypes.c_char_p),
        ("advice", ctypes.c_char_p),
    ]


class _File(ctypes.Structure):  # usc_port_file
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("to", ctypes.c_char_p),
        ("language", ctypes.c_int),
        ("n_changes", ctypes.c_int64),
        ("left", ctypes.POINTER(_Left)),
        ("n_left", ctypes.c_size_t),
        ("after", ctypes.c_void_p),
        ("after_size", ctypes.c_size_t),
        ("diff", ctypes.c_char_p),
    ]


class _Result(ctypes.Structure):  # usc_port_result
    _fields_ = [("out", ctypes.c_char_p), ("file", ctypes.POINTER(_File)), ("n_files", ctypes.c_size_t)]


_SIM = 1  # usc_port_target


def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(glue.PACKAGE / "libulpscope.so"))
    lib.usc_port_bytes.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.POINTER(_Options),
        ctypes.POINTER(ctypes.POINTER(_Result)),
        ctypes.c_void_p,
    ]
    lib.usc_port_free.argtypes = [ctypes.POINTER(_Result)]
    return lib


def lower(name: str, text: bytes) -> tuple[bytes, list[str]]:
    """The lowered text, and what is refused: "k.cu:3: inline PTX: asm(...): what to do"."""
    lib, result = _library(), ctypes.POINTER(_Result)()
    options = _Options(target=_SIM, lower=True)
    if lib.usc_port_bytes(b"kernel.cu", text, len(text), ctypes.byref(options), ctypes.byref(result), None):
        raise RuntimeError(f"{name} cannot be lowered")
    try:
        file = result.contents.file[0]
        left = [file.left[i] for i in range(file.n_left)]
        refused = [
            f"{name}:{one.line}: {one.construct.decode()}: {one.excerpt.decode(errors='replace')}: "
            f"{one.advice.decode()}"
            for one in left
        ]
        return ctypes.string_at(file.after, file.after_size), refused
    finally:
        lib.usc_port_free(result)


def write_if_changed(path: Path, text: bytes) -> None:
    if not path.exists() or path.read_bytes() != text:
        part = path.with_name(path.name + ".part")
        part.write_bytes(text)
        os.replace(part, path)


class Lowering:
    """The files of one extension, lowered into `folder`. `headers` are all those of its own that were seen."""

    def __init__(self, folder: Path, include_dirs: list[str]):
        self.folder, self.include_dirs = folder, [Path(d) for d in include_dirs]
        self.headers: dict[Path, Path] = {}
        self.refused: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def _find(self, quoted: str | None, angled: str | None, beside: Path) -> Path | None:
        """The extension's own header that an include names; None: somebody else's."""
        name = quoted or angled or ""
        places = ([beside] if quoted else []) + self.include_dirs
        return next((p.resolve() for d in places if (p := d / name).is_file()), None)

    def _place(self, path: Path, ending: str = "") -> Path:
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
        return self.folder / f"{path.stem}-{digest}{ending or path.suffix}"

    def _text(self, path: Path) -> bytes:
        text, refused = lower(str(path), path.read_bytes())
        self.refused += refused

        def include(found: re.Match[str]) -> str:
            header = self._find(found[2], found[3], path.parent)
            return f'{found[1]}"{self._header(header)}"' if header else found[0]

        decoded = _INCLUDE.sub(include, text.decode("utf-8", "surrogateescape"))
        name = str(path).replace("\\", "\\\\").replace('"', '\\"')
        return f'#line 1 "{name}"\n{decoded}'.encode("utf-8", "surrogateescape")

    def _header(self, path: Path) -> Path:
        if path not in self.headers:
            self.headers[path] = self._place(path)
            write_if_changed(self.headers[path], self._text(path))
        return self.headers[path]

    def source(self, path: str | Path) -> str:
        """The source to compile for one of the extension's: of a kernel's file its lowered copy."""
        given = Path(path)
        if given.suffix not in KERNEL_ENDINGS:
            self._watch(given.resolve())
            return str(path)
        if not given.is_file():
            raise FileNotFoundError(f"no such source: {path}")
        copy = self._place(given.resolve(), ".cpp")
        write_if_changed(copy, b"#include <cuda_runtime.h>\n" + self._text(given.resolve()))
        return str(copy)

    def _watch(self, path: Path) -> None:
        """Notes the own headers of a file that is compiled as it is."""
        if path in self.headers or not path.is_file():
            return
        self.headers[path] = path
        for found in _INCLUDE.finditer(path.read_bytes().decode("utf-8", "surrogateescape")):
            header = self._find(found[2], found[3], path.parent)
            if header:
                self._watch(header)

    def check(self) -> None:
        if self.refused:
            raise KernelRefused("the simulated device does not have:\n  " + "\n  ".join(self.refused))

    def digest(self) -> str:
        """Of all own headers: where one changed, what was loaded is no longer right."""
        digest = hashlib.sha256()
        for path in sorted(self.headers):
            digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]
