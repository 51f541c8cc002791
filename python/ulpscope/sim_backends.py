# SPDX-License-Identifier: Apache-2.0
"""``torch.backends.sim``: in what precision the simulated device multiplies float32.

``allow_tf32`` is one switch for matrix products and convolutions, False at the start; ``matmul`` and ``conv``
have it each, and ``fp32_precision`` as torch's newer backends do: "ieee", "tf32", or "none" for what stands
one level above."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

PRECISIONS = ("none", "ieee", "tf32")
_PRODUCTS = {"matmul": 1, "conv": 2}  # usc_sim_product

_lib: Any = None  # use() sets it


class _Precision(types.ModuleType):
    """Of one kind of product, or of all where there is nothing above."""

    def __init__(self, name: str, above: _Precision | None = None):
        super().__init__(name)
        self.__dict__.update(wanted="none", above=above)

    def effective(self) -> str:
        """What it comes to."""
        if self.wanted != "none":
            return str(self.wanted)
        return self.above.effective() if self.above is not None else "ieee"

    @property
    def fp32_precision(self) -> str:
        return self.effective() if self.above is not None else self.wanted

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in PRECISIONS:
            raise RuntimeError(
                f"sim: there is no precision '{precision}' of float32; there are {', '.join(PRECISIONS)}"
            )
        self.__dict__["wanted"] = precision
        _tell()

    @property
    def allow_tf32(self) -> bool:
        return self.effective() == "tf32"

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        self.fp32_precision = "tf32" if on else "ieee"

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("allow_tf32", "fp32_precision") and not name.startswith("__"):
            raise AttributeError(f"Unknown attribute {name}")
        super().__setattr__(name, value)


class _Backend(_Precision):
    @property
    def allow_tf32(self) -> bool:
        return matmul.allow_tf32 and conv.allow_tf32

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        for one in (self, matmul, conv):
            one.__dict__["wanted"] = "none"
        self.fp32_precision = "tf32" if on else "ieee"

    def set_flags(self, allow_tf32: bool | None = None, fp32_precision: str | None = None) -> tuple[str, ...]:
        """Sets what is given; returns what there was, for restore()."""
        before = tuple(one.wanted for one in (self, matmul, conv))
        if allow_tf32 is not None:
            self.allow_tf32 = allow_tf32
        if fp32_precision is not None:
            self.fp32_precision = fp32_precision
        return before

    def restore(self, before: tuple[str, ...]) -> None:
        for one, wanted in zip((self, matmul, conv), before):  # noqa: B905 (as old as Python 3.9)
            one.__dict__["wanted"] = wanted
        _tell()

    @contextlib.contextmanager
    def flags(self, allow_tf32: bool | None = None, fp32_precision: str | None = None) -> Iterator[None]:
        """For a ``with`` block."""
        before = self.set_flags(allow_tf32, fp32_precision)
        try:
            yield
        finally:
            self.restore(before)

    def is_available(self) -> bool:
        return True


backend = _Backend("torch.backends.sim")
matmul = _Precision("torch.backends.sim.matmul", backend)
conv = _Precision("torch.backends.sim.conv", backend)


def _tell() -> None:
    for one, kind in ((matmul, _PRODUCTS["matmul"]), (conv, _PRODUCTS["conv"])):
        _lib.usc_sim_set_tf32(kind, one.allow_tf32)


def register(lib: ctypes.CDLL) -> None:
    """Makes it ``torch.backends.sim``."""
    global _lib
    _lib = lib
    lib.usc_sim_set_tf32.argtypes = [ctypes.c_int, ctypes.c_bool]
    backend.__dict__.update(matmul=matmul, conv=conv)
    torch.backends.sim = backend
    for one in (backend, matmul, conv):
        sys.modules[one.__name__] = one
