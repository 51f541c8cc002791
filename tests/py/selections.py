# SPDX-License-Identifier: Apache-2.0
"""Which calls of a trace a check takes, as the library says (ulpscope/call.h)."""

import ctypes as c
from dataclasses import dataclass
from pathlib import Path

import ulpscope

_lib = c.CDLL(str(Path(ulpscope.__file__).parent / "libulpscope.so"))
I64, P = c.c_int64, c.POINTER
MODULE_LEVEL = 2  # usc_level


class Backward(c.Structure):
    _fields_ = [("of", I64), ("n", I64), ("call", P(I64))]


class Forward(c.Structure):
    _fields_ = [
        ("path", c.c_char_p),
        ("op", c.c_char_p),
        ("module_class", c.c_char_p),
        ("n_calls", I64),
        ("call", P(I64)),
        ("n_kept", I64),
        ("kept", P(I64)),
    ]


class RawPick(c.Structure):
    _fields_ = [
        ("call", I64),
        ("n_children", I64),
        ("child", P(I64)),
        ("stands_for", I64),
        ("n_backward", I64),
        ("backward", P(Backward)),
        ("forward", P(Forward)),
    ]


class Selection(c.Structure):
    _fields_ = [("home", c.c_char_p), ("n", I64), ("pick", P(RawPick)), ("memory", c.c_void_p)]


class Options(c.Structure):
    _fields_ = [
        ("target", c.c_char_p),
        ("wanted", P(I64)),
        ("n_wanted", I64),
        ("distinct", c.c_bool),
        ("level", c.c_int),
    ]


@dataclass
class Pick:
    """One thing that a check replays."""

    sequence: int
    children: list
    backward: dict
    stands_for: int
    path: str | None  # of a module
    module: dict | None  # what a worker is told of it


def _pick(raw):
    path = module = None
    if raw.forward:
        f = raw.forward.contents
        path = f.path.decode()
        module = {
            "calls": f.call[: f.n_calls],
            "kept": f.kept[: f.n_kept],
            "source": {"sequence": raw.call, "op": f.op.decode()},
        }
    backward = {b.of: b.call[: b.n] for b in raw.backward[: raw.n_backward]}
    return Pick(raw.call, raw.child[: raw.n_children], backward, raw.stands_for, path, module)


def picks(path, target, modules=False):
    """The picks for a device of that type."""
    trace, calls, found, n = c.c_void_p(), c.c_void_p(), P(I64)(), I64()
    row, chosen = c.create_string_buffer(1024), Selection()
    assert _lib.usc_trace_open(str(path).encode(), None, c.byref(trace), None) == 0
    assert _lib.usc_calls_create(c.byref(calls), None) == 0
    assert _lib.usc_trace_select(trace, None, c.byref(found), c.byref(n), None) == 0
    for sequence in found[: n.value]:
        assert _lib.usc_trace_read_call(trace, I64(sequence), row, None) == 0
        assert _lib.usc_calls_add(calls, row, None) == 0
    options = Options(target.encode(), None, 0, False, MODULE_LEVEL if modules else 0)
    assert _lib.usc_select(calls, c.byref(options), c.byref(chosen), None) == 0
    out = [_pick(raw) for raw in chosen.pick[: chosen.n]]
    _lib.usc_selection_free(c.byref(chosen))
    _lib.usc_calls_free(calls)
    _lib.usc_trace_close(trace)
    return out
