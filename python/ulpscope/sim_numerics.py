# SPDX-License-Identifier: Apache-2.0
"""Kernels of the simulated device whose arithmetic can be chosen: ``ulpscope.sim`` has them all."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .sim_memory import _Error

_lib: Any = None  # use() sets them
_wait: Any = None


class _Numerics(ctypes.Structure):  # usc_sim_numerics
    _fields_ = [
        ("id", ctypes.c_int64),
        ("pattern", ctypes.c_char * 128),
        ("accumulate", ctypes.c_int),
        ("order", ctypes.c_int),
        ("n_parts", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("factor_bits", ctypes.c_int),
        ("factor_emin", ctypes.c_int),
        ("fma", ctypes.c_bool),
        ("online", ctypes.c_bool),
        ("variance", ctypes.c_int),
        ("epsilon_outside", ctypes.c_bool),
        ("scale", ctypes.c_int),
        ("degree", ctypes.c_int64),
        ("tile", ctypes.c_int64),
        ("lacks_term", ctypes.c_bool),
        ("has_twice", ctypes.c_bool),
        ("term", ctypes.c_int64),
        ("group", ctypes.c_int64),
        ("causal_rows", ctypes.c_int64),
    ]


def use(lib: ctypes.CDLL, wait: Callable[[], None]) -> None:
    """Declares what of the runtime is called here; ``wait`` waits for all devices."""
    global _lib, _wait
    _lib, _wait = lib, wait
    one, error = ctypes.POINTER(_Numerics), ctypes.POINTER(_Error)
    lib.usc_sim_numerics_begin.argtypes = [ctypes.c_char_p, one, error]
    lib.usc_sim_numerics_choose.argtypes = [one, ctypes.c_char_p, ctypes.c_char_p, error]
    lib.usc_sim_numerics_add.argtypes = [one, error]
    lib.usc_sim_numerics_remove.argtypes = [ctypes.c_int64]
    lib.usc_sim_numerics_row.argtypes = [ctypes.c_size_t, *3 * [ctypes.POINTER(ctypes.c_char_p)]]
    lib.usc_sim_numerics_row.restype = ctypes.c_bool


def _checked(status: int, error: _Error) -> None:
    if status != 0:
        raise ValueError(error.text.decode())


class numerics:
    """From now on, or for a ``with`` block, operators that ``pattern`` selects are computed by kernels of the
    device's own: ``numerics("mm", accumulate="float16", order="split-k:4")``, or ``numerics("*mm*",
    "like:tf32-tensor-core")`` for a row of :func:`numerics_sets`. Keys: accumulate, order, factors, fma, online,
    variance, epsilon, scale, tile, degree."""

    def __init__(self, pattern: str, like: str | None = None, **keys: object) -> None:
        self._own, error = _Numerics(), _Error()
        _checked(_lib.usc_sim_numerics_begin(pattern.encode(), self._own, error), error)
        words = {"like": like.removeprefix("like:")} if like is not None else {}
        for key, value in {**words, **keys}.items():
            text = str(int(value) if isinstance(value, bool) else value).removeprefix("torch.")
            _checked(_lib.usc_sim_numerics_choose(self._own, key.encode(), text.encode(), error), error)
        _wait()  # what is queued was launched before
        _checked(_lib.usc_sim_numerics_add(self._own, error), error)

    def off(self) -> None:
        _wait()
        _lib.usc_sim_numerics_remove(self._own.id)

    def __enter__(self) -> numerics:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()


def numerics_sets() -> dict[str, tuple[str, str]]:
    """The named sets: what each chooses, and the document that it is taken from."""
    rows: dict[str, tuple[str, str]] = {}
    texts = [ctypes.c_char_p() for _ in range(3)]
    while _lib.usc_sim_numerics_row(len(rows), *(ctypes.byref(t) for t in texts)):
        name, chooses, source = ((t.value or b"").decode() for t in texts)
        rows[name] = (chooses, source)
    return rows
