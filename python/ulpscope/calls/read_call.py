# SPDX-License-Identifier: Apache-2.0
"""A call read from a row of a trace: arguments as the C library reads them, storages filled with what
was captured. Knows nothing of files: a row comes as the dict that `_core.Trace.call` gives,
with a function that reads a blob. `replay` has what such a call is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .. import _core
from . import autocast, contents
from .callable import Composite, learn, parameter_names
from .contents import Reader
from .functions import references
from .older import zip_equal
from .raw_bytes import fit
from .nested import DeviceAt, TensorAt, substitute
from .replay import LAZY, BadCall, Call, View, is_composite, seen_as


def _of_torch(kind: str, text: str) -> Any:
    found = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(found, getattr(torch, kind)):
        raise BadCall(f"{kind} {text} is unknown to this torch")
    return found


def dtype_named(name: str) -> torch.dtype:
    """torch.float32 for "float32" or "torch.float32"."""
    return _of_torch("dtype", str(name))


def value_of(kind: str, text: str, path: str) -> Any:
    """An argument that Python alone does not have, as `_core.arguments` asks for it."""
    if kind == "tensor":
        return TensorAt(path)
    if kind == "device":
        return DeviceAt(text)
    if kind == "generator":
        return None
    if kind == "other":
        raise BadCall(f"argument {path} ({text}) was not kept in the trace")
    return _of_torch(kind, text)


def arguments_of(
    row: dict[str, Any], value: Callable[[str, str, str], Any] = value_of
) -> tuple[list[Any], dict[str, Any]]:
    """The list and the dict of a row's arguments, tensors as TensorAt."""
    try:
        return _core.arguments(row["args"], value)
    except _core.CorruptError as problem:
        raise BadCall(str(problem)) from None


def view_of(row: dict[str, Any]) -> View:
    """The View that a row of a tensor describes."""
    return View(
        path=row["path"],
        role=row["role"],
        storage=row["storage"],
        dtype=dtype_named(row["dtype"]),
        sizes=tuple(row["sizes"]),
        strides=tuple(row["strides"]),
        offset=row["offset"],
        device=row["device"] or "cpu",
        version=row.get("version", 0),
        form=row.get("form") or "",
    )


def call_from(
    row: dict[str, Any],
    read_blob: Callable[[int], Any],
    stand_in: Callable[..., torch.Tensor] | None = None,
    derive: Callable[..., Any] | None = None,
    given: tuple[list[Any], dict[str, Any]] | None = None,
) -> Call:
    """
    Builds a Call from a row of the trace.

    `read_blob(id)` gives a buffer with a storage's bytes. Where a version has no blob,
    `stand_in(argument row)` gives a CPU tensor of the view's shape; without it BadCall. Of a
    Python function `derive(function)` may give another one to be called, with other arguments,
    `given`.
    """
    call = bare_call(row, given)
    if is_composite(call):
        home = {view.device.partition(":")[0] for view in call.views.values()}
        call.autocast = {kind: dtype for kind, dtype in autocast.kinds_of(row).items() if kind in home}
    if derive is not None:
        if is_composite(call):
            call.within = derive, call.function
        call.function = derive(call.function)
    for item in row["tensors"]:
        if item["role"] == "in" and item["storage"] not in call.storages:
            fill_storage(call, item, read_blob, stand_in)
    if any(is_sparse(item) for item in row["tensors"] if item["role"] == "in"):
        return sparse_call(call, row)
    call.live = _live_reader(row, read_blob)
    if is_composite(call):
        learn(call)
    return call


def bare_call(row: dict[str, Any], given: tuple[list[Any], dict[str, Any]] | None = None) -> Call:
    """A call without the contents of its tensors; `given` stands for the arguments of the row."""
    if row["op"].startswith("_c10d_functional::"):
        raise BadCall("what it gives comes from other ranks, which a replay does not have")
    args, kwargs = arguments_of(row) if given is None else given
    call = (Call if "::" in row["op"] else Composite)(
        sequence=row["sequence"],
        op=row["op"],
        args=args,
        kwargs=kwargs,
        views={a["path"]: view_of(a) for a in row["tensors"] if a["role"] == "in"},
        results={a["path"]: view_of(a) for a in row["tensors"] if a["role"] == "out"},
        mutated={a["path"]: view_of(a) for a in row["tensors"] if a["role"] == "mutated"},
        row=row,
    )
    if is_composite(call):
        if call.op in references:
            call.launched, call.function = call.function, references[call.op]
        call.schema = None  # learnt by running
        for i, name in enumerate(parameter_names(call.function, len(call.args))):
            for path, view in call.views.items():
                if path.split("]")[0] == f"args[{i}":
                    view.argument = name
    return call


def is_sparse(item: dict[str, Any]) -> bool:
    """Whether a row is of a tensor whose parts are rows of their own."""
    return (item.get("form") or "").startswith("sparse")


def sparse_call(call: Call, row: dict[str, Any]) -> Call:
    """The same call on sparse arguments, put together of their parts. They are taken apart
    again as they are for a Python callable, so that replays can move the parts."""
    from .apart import sparse_maker
    from .callable import call_of

    tensors = {path: _seen(call, view) for path, view in call.views.items() if not is_sparse(vars(view))}
    if call.made_up or any(is_sparse(t) for t in row["tensors"] if t["role"] == "mutated"):
        raise BadCall("it writes a sparse tensor, or its content was not captured")
    for item in (t for t in row["tensors"] if t["role"] == "in" and is_sparse(t)):
        parts = {p[len(item["path"]) + 1 :]: t for p, t in tensors.items() if p.startswith(item["path"] + ".")}
        if not parts:
            raise BadCall(f"the parts of {item['path']} were not captured")
        tensors[item["path"]] = sparse_maker(item["form"], item["sizes"])(**parts)
    args = [substitute(a, tensors) for a in call.args]
    kwargs = {k: substitute(a, tensors) for k, a in call.kwargs.items()}
    made = call_of(call.function, args, kwargs)
    made.sequence, made.op, made.row = call.sequence, call.op, row
    return made


def _seen(call: Call, view: View) -> torch.Tensor:
    elements = fit(call.storages[view.storage], view.dtype)
    return seen_as(elements.as_strided(view.sizes, view.strides, view.offset), view.form)


def bytes_of(buffer: bytes | memoryview) -> torch.Tensor:
    """A private uint8 tensor with a buffer's bytes (the buffer is read-only)."""
    data = bytearray(buffer)
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def is_far(item: dict[str, Any], read_blob: Callable[[int], Any]) -> bool:
    """Whether the storage of `item` is large, and one blob that can be read in parts."""
    if not isinstance(read_blob, Reader) or item["storage_bytes"] < contents.LARGE:
        return False
    return read_blob.has(item["blob"], item["storage_bytes"])


def stored(items: list[dict[str, Any]], item: dict[str, Any], read_blob: Callable[[int], Any]) -> torch.Tensor:
    """The bytes of the storage of `item`, in its full size. Of device memory a trace keeps the
    parts that calls used: those that `items` name are there, the rest is zero."""
    if isinstance(read_blob, Reader) and is_far(item, read_blob):
        raw = torch.empty(item["storage_bytes"], dtype=torch.uint8)
        read_blob.fill(item["blob"], 0, raw)
        return raw
    raw = bytes_of(read_blob(item["blob"]))
    if raw.numel() == item["storage_bytes"]:
        return raw
    whole = torch.zeros(item["storage_bytes"], dtype=torch.uint8)
    parts = {t["blob"]: t["first"] for t in items if t["blob"] and t["version"] == item["version"]}
    for blob, first in parts.items():
        part = raw if blob == item["blob"] else bytes_of(read_blob(blob))
        whole[first : first + part.numel()] = part
    return whole


def tensor_of(item: dict[str, Any], read_blob: Callable[[int], Any]) -> torch.Tensor:
    """The tensor of one row as it was captured, on the CPU, not lazy."""
    view = view_of(item)
    raw = stored([item], item, read_blob) if item["blob"] else bytes_of(b"")
    for later in item.get("writes", ()):  # of a module's forward, that came behind
        part = stored([later], later, read_blob) if is_far(later, read_blob) else bytes_of(read_blob(later["blob"]))
        raw[later["first"] or 0 :][: part.numel()] = part
    tensor = fit(raw, view.dtype).as_strided(view.sizes, view.strides, view.offset)
    return seen_as(tensor, view.form).resolve_conj().resolve_neg()


def fill_storage(
    call: Call, item: dict[str, Any], read_blob: Callable[[int], Any], stand_in: Callable[..., Any] | None
) -> None:
    """Gives a call the content of one storage, see `call_from`."""
    form = item.get("form") or ""
    if form and not form.startswith("sparse") and form.split()[0] not in LAZY:
        why = "its device was recording a graph" if form == "graph" else f"a tensor of the form '{form}'"
        raise BadCall(f"the content of {item['path']} was not captured: {why}")
    for other in call.row["tensors"]:  # of what a view was made of, the view may be kept
        if other["blob"] and other["version"] == item["version"]:
            if isinstance(read_blob, Reader) and is_far(other, read_blob):
                fill = partial(read_blob.fill, other["blob"])
                call.storages.later(item["storage"], item["storage_bytes"], fill)
            else:
                call.storages[item["storage"]] = stored(call.row["tensors"], other, read_blob)
            return
    if item["storage_bytes"] == 0 or 0 in item["sizes"]:
        call.storages[item["storage"]] = torch.zeros(item["storage_bytes"], dtype=torch.uint8)
        return
    if stand_in is None:
        raise BadCall(f"the content of {item['path']} was not captured")
    raw = torch.zeros(item["storage_bytes"], dtype=torch.uint8)
    shown = [t for t in call.row["tensors"] if t["role"] == "in" and t["storage"] == item["storage"]]
    # what a view of a part shows is more exact there than what the whole does
    for other in sorted(shown, key=lambda t: -math.prod(t["sizes"])):
        view = call.views[other["path"]]
        _put_view(fit(raw, view.dtype), view, stand_in(other))
    call.storages[item["storage"]] = raw
    call.made_up = True


def _live_reader(row: dict[str, Any], read_blob: Callable[[int], Any]) -> Callable[[str, str], torch.Tensor | None]:
    """Reads what the captured run itself got for a result or a mutated argument."""
    blobs = {(a["role"], a["path"]): a for a in row["tensors"] if a["role"] != "in"}

    def live(path: str, role: str) -> torch.Tensor | None:
        item = blobs.get((role, path))
        if item is None or not item["blob"]:
            return None
        return tensor_of(item, read_blob)

    return live


def _put_view(elements: torch.Tensor, view: View, values: torch.Tensor) -> None:
    """Writes `values` through a view. Where it shows an element more than once (an expanded
    tensor), the element gets one of the values meant for it."""
    distinct = [min(size, 1) if stride == 0 else size for size, stride in zip_equal(view.sizes, view.strides)]
    values = values[tuple(slice(size) for size in distinct)]
    try:
        elements.as_strided(distinct, view.strides, view.offset).copy_(values)
    except RuntimeError:  # rows that overlap, as unfold makes them
        places = torch.arange(elements.numel()).as_strided(distinct, view.strides, view.offset)
        elements[places.reshape(-1)] = values.reshape(-1)
