# SPDX-License-Identifier: Apache-2.0
"""Writes small traces for tests through the library's own writer (ulpscope/trace.h), from
calls given as Python arguments. Stands in for a capture."""

import ctypes
import json
from pathlib import Path

import torch
import ulpscope
from calls import Maker

ROLES = {"in": 0, "out": 1, "mutated": 2}
text = lambda value: None if value is None else value.encode()  # noqa: E731


def fields(**kinds):
    """A ctypes structure with these fields."""
    return type("Row", (ctypes.Structure,), {"_fields_": list(kinds.items())})


I64, TEXT, BOOL, INT = ctypes.c_int64, ctypes.c_char_p, ctypes.c_bool, ctypes.c_int
I64S = ctypes.POINTER(I64)
Op = fields(id=I64, name=TEXT, schema=TEXT)
Module = fields(id=I64, path=TEXT, class_name=TEXT)
Storage = fields(id=I64, device=TEXT, bytes=I64)
Version = fields(id=I64, storage=I64, generation=I64, blob=I64, call=I64)
Tensor = fields(
    id=I64,
    version=I64,
    dtype=TEXT,
    ndim=INT,
    sizes=I64S,
    strides=I64S,
    offset=I64,
    requires_grad=BOOL,
    stats=ctypes.c_void_p,
    form=TEXT,
    blob=I64,
    first=I64,
)
CallRow = fields(
    sequence=I64,
    step=I64,
    phase=INT,
    op=I64,
    module=I64,
    stack=I64,
    parent=I64,
    thread=I64,
    args=TEXT,
    state=TEXT,
    status=TEXT,
    composite=BOOL,
)
Arg = fields(call=I64, role=INT, path=TEXT, tensor=I64)
Error = fields(status=INT, where=I64, text=ctypes.c_char * 512)

_lib = ctypes.CDLL(str(Path(ulpscope.__file__).parent / "libulpscope.so"))


class TraceWriter:
    """`with TraceWriter(path) as t: t.add("aten::mm", a, b)`."""

    def __init__(self, path, kept=True):
        self.handle, self.error = ctypes.c_void_p(), Error()
        self.ids, self.n_calls, self.n_tensors, self.kept = {}, 0, 0, kept
        self._do("create", str(path).encode(), None, ctypes.byref(self.handle))

    def _do(self, name, *arguments):
        function = getattr(_lib, "usc_trace_" + name)
        if function(*arguments, ctypes.byref(self.error)) != 0:
            raise RuntimeError(self.error.text.decode())

    def _row(self, name, row):
        self._do("put_" + name, self.handle, ctypes.byref(row))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._do("finish", self.handle, ctypes.c_bool(True))

    def _id(self, kind, key, make):
        """The id of a row that is written once per key."""
        if (kind, key) not in self.ids:
            self.ids[kind, key] = number = sum(k == kind for k, _ in self.ids) + 1
            self._row(kind, make(number))
        return self.ids[kind, key]

    def add(self, op, *args, parent=0, composite=False, module="block", out=(), wrote=None, state=None, **kwargs):
        """Adds one call; `out` are its results, `wrote` (path -> tensor) the arguments that it wrote, as it left them.
        Returns its sequence number."""
        maker = Maker()
        arguments = {
            "args": [maker.argument(a, f"args[{i}]") for i, a in enumerate(args)],
            "kwargs": {k: maker.argument(v, f"kwargs.{k}") for k, v in kwargs.items()},
        }
        for i, t in enumerate(out):
            maker.tensor(t, f"out[{i}]", "out")
        for path, t in (wrote or {}).items():
            maker.tensor(t, path, "mutated")
        self.n_calls += 1
        op_id = self._id("op", op, lambda n: Op(n, text(op), b""))
        module_id = self._id("module", module, lambda n: Module(n, text(module), b"Block"))
        rows = [(t, self._tensor(t, maker.blobs[t["blob"]])) for t in maker.tensors]
        self._row(
            "call",
            CallRow(
                self.n_calls,
                0,
                0,
                op_id,
                module_id,
                0,
                parent,
                1,
                text(json.dumps(arguments)),
                text(state),
                b"ok",
                composite,
            ),
        )
        for t, number in rows:
            self._row("arg", Arg(self.n_calls, ROLES[t["role"]], text(t["path"]), number))
        return self.n_calls

    def _tensor(self, t, data):
        """Storage, version and tensor rows of one argument; the tensor's id."""
        storage = (self.n_calls, t["storage"])
        first = ("storage", storage) not in self.ids
        number = self._id("storage", storage, lambda n: Storage(n, text(t["device"]), len(data)))
        if first:
            blob = I64()
            if self.kept:
                self._do("put_blob", self.handle, data, I64(len(data)), ctypes.byref(blob))
            self._row("version", Version(number, number, 0, blob.value, 0))
        self.n_tensors += 1
        ndim = len(t["sizes"])
        array = I64 * max(ndim, 1)
        self._row(
            "tensor",
            Tensor(
                self.n_tensors,
                number,
                text(t["dtype"].removeprefix("torch.")),
                ndim,
                array(*t["sizes"]),
                array(*t["strides"]),
                t["offset"],
                False,
                None,
                None,
                0,
                0,
            ),
        )
        return self.n_tensors


def small_trace(path, n=4, seed=1):
    """A trace of `n` times mm, gelu, an in-place add and a linear with its addmm."""
    torch.manual_seed(seed)
    with TraceWriter(path) as t:
        for i in range(n):
            x, w, b = torch.randn(6, 8), torch.randn(8, 4), torch.randn(4)
            t.add("aten::mm", x, w, module=f"layers.{i}")
            t.add("aten::gelu", x, module=f"layers.{i}", out=(torch.nn.functional.gelu(x),))
            t.add("aten::add_.Tensor", x, x, module=f"layers.{i}")
            parent = t.add("aten::linear", x, w.t().contiguous(), b, composite=True)
            t.add("aten::addmm", b, x, w, parent=parent)
    return path
