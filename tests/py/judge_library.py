# SPDX-License-Identifier: Apache-2.0
"""The C judge through ctypes, for tests that compare it with the rule in plain Python: no
extension module is needed. Struct layouts mirror include/ulpscope/*.h."""

from __future__ import annotations

import ctypes as c
import os
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
N_BINS, MAX_DIMS = 160, 32
VERDICTS = [
    "crashed",
    "timeout",
    "nonfinite",
    "wrong",
    "reduced",
    "intermittent",
    "internal",
    "undefined",
    "unjudged",
    "unsupported",
    "pass",
]
DTYPES = {
    torch.float64: 1,
    torch.float32: 2,
    torch.float16: 3,
    torch.bfloat16: 4,
    torch.int64: 5,
    torch.int32: 6,
    torch.int16: 7,
    torch.int8: 8,
    torch.uint8: 12,
    torch.bool: 13,
}


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("dtype", c.c_int),
        ("ndim", c.c_int),
        ("sizes", c.c_int64 * MAX_DIMS),
        ("strides", c.c_int64 * MAX_DIMS),
    ]


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("where", c.c_int64), ("text", c.c_char * 512)]


class Judgement(c.Structure):
    _fields_ = [
        ("verdict", c.c_int),
        ("needs_appeal", c.c_bool),
        ("exact", c.c_bool),
        ("flushes", c.c_bool),
        ("bound", c.c_bool),
        ("yardstick_bound", c.c_bool),
        ("bits", c.c_double),
        ("yardstick_bits", c.c_double),
        ("n", c.c_int64),
        ("n_mismatch", c.c_int64),
        ("n_bad", c.c_int64),
        ("n_free", c.c_int64),
        ("n_ill", c.c_int64),
        ("n_flushed", c.c_int64),
        ("n_finite", c.c_int64),
        ("n_nan_inf", c.c_int64),
        ("max", c.c_double),
        ("mid", c.c_double),
        ("q99", c.c_double),
        ("rel", c.c_double),
        ("z", c.c_double),
        ("mean_sign", c.c_double),
        ("spread", c.c_double),
        ("expected_share", c.c_double),
        ("fan_in", c.c_double),
        ("t_max", c.c_double),
        ("t_mid", c.c_double),
        ("i_worst", c.c_int64),
        ("i_bad", c.c_int64),
        ("histogram", c.c_int64 * N_BINS),
        ("reason", c.c_char * 256),
    ]

    @property
    def status(self) -> str:
        return VERDICTS[self.verdict]


class Options(c.Structure):
    _fields_ = [("alloc", c.c_void_p), ("n_threads", c.c_int)]


class Appeal(c.Structure):
    _fields_ = [("fan_in", c.c_double), ("movement", c.c_bool), ("flushed", c.POINTER(Tensor)), ("natural", c.c_double)]


class Perturbation(c.Structure):
    _fields_ = [
        ("seed", c.c_uint64),
        ("replay", c.c_int),
        ("argument", c.c_int),
        ("delta", c.c_double),
        ("share", c.c_double),
    ]


_library = c.CDLL(str(BUILD / "python" / "ulpscope" / "libulpscope.so"), mode=os.RTLD_LAZY)


class JudgeError(Exception):
    """A status other than success."""


def call(name: str, *args) -> None:
    error = Error()
    if getattr(_library, name)(*args, c.byref(error)):
        raise JudgeError(error.text.decode())


def view(t: torch.Tensor) -> Tensor:
    out = Tensor(data=t.data_ptr(), dtype=DTYPES[t.dtype], ndim=t.dim())
    out.sizes[: t.dim()] = t.shape
    out.strides[: t.dim()] = t.stride()
    return out


class Judge:
    """One float output; keeps the operands alive."""

    def __init__(self, device, reference, yardstick, n_threads: int = 1):
        self.held = (device, reference, yardstick)
        self.handle = c.c_void_p()
        call(
            "usc_judge_open",
            *(c.byref(view(t)) for t in self.held),
            c.byref(Options(None, n_threads)),
            c.byref(self.handle),
        )

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_) -> None:
        _library.usc_judge_close(self.handle)

    def replay(self, reference_k, yardstick_k) -> None:
        call("usc_judge_replay", self.handle, c.byref(view(reference_k)), c.byref(view(yardstick_k)))

    def look(self) -> Judgement:
        out = Judgement()
        call("usc_judge_look", self.handle, c.byref(out))
        return out

    def appeal(self, fan_in: float, movement: bool = False, flushed=None) -> Judgement:
        out = Judgement()
        extra = c.pointer(view(flushed)) if flushed is not None else None
        call("usc_judge_appeal", self.handle, c.byref(Appeal(fan_in, movement, extra)), c.byref(out))
        return out


def perturb(
    x: torch.Tensor, seed: int = 0, replay: int = 0, argument: int = 0, delta: float = 0.0, share: float = 0.0
) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.float64)
    call(
        "usc_perturb", c.byref(view(x)), c.byref(Perturbation(seed, replay, argument, delta, share)), c.byref(view(out))
    )
    return out
