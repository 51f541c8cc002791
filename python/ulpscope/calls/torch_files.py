# SPDX-License-Identifier: Apache-2.0
"""A worker that opens files of torch.save for the program: `python -m
ulpscope.calls.torch_files FD SETTINGS`. Of torch it needs torch.load(weights_only=True), which
makes tensors and plain values and refuses whatever else a pickle asks for.

Requests are lines of JSON on standard input. {"open": path} is answered on FD by one line,
{"value": what lies in it, "tensors": [...], "storages": [bytes, ...]}, with the bytes of each
storage behind it; {"save": path, "value": ..., "tensors": [...]} with the bytes of each tensor
behind it by {}. Either by {"refused": sentence, "kind": "corrupt", "unsupported" or "io"}.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import zipfile
from typing import Any, BinaryIO

from .foreign import foreign, theirs

try:
    import torch
except ModuleNotFoundError:
    torch = None

SPECIAL = {float("inf"): "inf", float("-inf"): "-inf"}


class UnreadFile(Exception):
    """A file that is not read; the text says why."""

    kind = "corrupt"


class UnknownFile(UnreadFile):
    kind = "unsupported"


class FileContents:
    """What lies in a file: a value of the kind that arguments of a trace are, and its tensors."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tensors: list[dict[str, Any]] = []
        self.storages: list[Any] = []
        self.places: dict[Any, int] = {}

    def value(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return {"tensor": self.tensor(x)}
        if isinstance(x, tuple):
            return {"tuple": [self.value(item) for item in x]}
        if isinstance(x, list):
            return [self.value(item) for item in x]
        if isinstance(x, slice):
            return {"slice": [self.value(part) for part in (x.start, x.stop, x.step)]}
        if x is ...:
            return {"ellipsis": True}
        if isinstance(x, dict):
            return {"members": {str(k): self.value(v) for k, v in x.items()}}
        for kind in ("dtype", "device", "layout", "memory_format"):
            if isinstance(x, getattr(torch, kind)):
                return {kind: str(x).removeprefix("torch.")}
        if isinstance(x, float):
            return {"float": SPECIAL.get(x, "nan")} if x != x or x in SPECIAL else x
        if isinstance(x, complex):
            return {"complex": [x.real, x.imag]}
        return x if x is None or isinstance(x, (bool, int, str)) else {"other": type(x).__name__}

    def tensor(self, x: torch.Tensor) -> int:
        if x.layout is not torch.strided or x.is_quantized:
            raise UnknownFile(f"{self.path}: a tensor of layout {x.layout}; only plain ones are read")
        wants_grad = x.requires_grad
        x = x.detach().resolve_conj().resolve_neg()
        storage = x.untyped_storage()
        if storage.nbytes() > max(2 * x.numel() * x.itemsize, 4096):  # a piece of something large
            x = x.contiguous().clone()
            storage = x.untyped_storage()
        place = self.places.setdefault(storage.data_ptr() or -len(self.tensors), len(self.storages))
        if place == len(self.storages):
            self.storages.append(storage)
        self.tensors.append(
            {
                "dtype": str(x.dtype).removeprefix("torch."),
                "sizes": list(x.shape),
                "strides": list(x.stride()),
                "offset": x.storage_offset(),
                "item_size": x.itemsize,
                "storage": place,
                "requires_grad": wants_grad,
            }
        )
        return len(self.tensors) - 1


def more_than_tensors() -> list[Any]:
    """What calls are given and give besides what weights_only=True takes by itself: places in a
    tensor, and results with names, tuples all of them. Making one runs nothing of a file's."""
    results = (value for value in vars(torch.return_types).values() if isinstance(value, type))
    return [slice, (Ellipsis, "builtins.Ellipsis"), *results]


def load(path: str) -> Any:
    """What torch.save wrote, as far as it is tensors and plain values. A file whose parts are
    packed is refused: a few of its bytes could become any number in memory."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            if any(part.compress_type != zipfile.ZIP_STORED for part in parts.infolist()):
                raise UnknownFile(f"{path}: its parts are compressed, as torch.save never does")
    try:
        allowed = getattr(torch.serialization, "safe_globals", lambda more: contextlib.nullcontext())
        with allowed(more_than_tensors()):
            return theirs(torch.load, path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as problem:
        lines = [line.strip().removeprefix("WeightsUnpickler error: ") for line in str(problem).splitlines()]
        why = next((line for line in lines if line.startswith(("Unsupported", "Trying to"))), lines[0] if lines else "")
        raise UnknownFile(
            f"{path}: holds more than tensors and plain values, which only running code "
            f"from the file could make ({why[:60]}); save its tensors alone"
        ) from None
    except OSError as problem:
        refused = UnreadFile(f"{path}: {problem.strerror or problem}")
        refused.kind = "io"
        raise refused from None
    except Exception as problem:  # whatever bytes make of a reader
        foreign(problem)
        raise UnreadFile(f"{path}: no file of torch.save, or a damaged one ({str(problem)[:120]})") from None


def answer(out: BinaryIO, request: dict[str, Any]) -> None:
    try:
        contents = FileContents(request["open"])
        value = contents.value(load(request["open"]))
    except UnreadFile as problem:
        return put(out, {"refused": str(problem), "kind": problem.kind})
    put(out, {"value": value, "tensors": contents.tensors, "storages": [s.nbytes() for s in contents.storages]})
    for storage in contents.storages:
        if storage.nbytes():
            out.write(memoryview(torch.tensor([], dtype=torch.uint8).set_(storage).numpy()))
    out.flush()


def save(request: dict[str, Any], source: BinaryIO) -> dict[str, Any]:
    """Writes a value with its tensors, each of them contiguous unless its strides are asked for."""
    tensors = []
    for said in request["tensors"]:
        raw = torch.frombuffer(bytearray(source.read(said["bytes"]) or b"\0" * 16), dtype=torch.uint8)
        dtype = getattr(torch, said["dtype"])
        elements = raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        tensor = elements.as_strided(said["sizes"], said["strides"])
        if not said.get("as_it_lies"):
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        tensors.append(tensor.requires_grad_(said.get("requires_grad", False)))
    try:
        torch.save(made(request["value"], tensors), request["save"])
    except (OSError, RuntimeError) as problem:  # torch's own writer raises the latter
        return {"refused": f"{request['save']}: {problem}", "kind": "io"}
    return {}


def made(value: Any, tensors: list[torch.Tensor]) -> Any:
    """What `Contents.value` said, once more."""
    if isinstance(value, list):
        return [made(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "tensor":
        return tensors[held]
    if kind in ("members", "dict"):
        return {k: made(v, tensors) for k, v in held.items()}
    if kind == "tuple":
        return tuple(made(held, tensors))
    if kind == "slice":
        return slice(*made(held, tensors))
    if kind == "ellipsis":
        return ...
    if kind in ("float", "complex"):
        return float(held) if kind == "float" else complex(*map(float, held))
    return torch.device(held) if kind == "device" else getattr(torch, str(held).removeprefix("torch."), None)


def put(out: BinaryIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message).encode() + b"\n")
    out.flush()


def main() -> None:
    out = os.fdopen(int(sys.argv[1]), "wb")
    if torch is None:
        return put(
            out,
            {
                "fatal": f"{sys.executable} has no torch, which opens files of torch.save: install it "
                "there, or name an interpreter that has it in ULPSCOPE_PYTHON"
            },
        )
    torch.set_num_threads(1)
    put(out, {"ready": True})
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if "save" in request:
            put(out, save(request, sys.stdin.buffer))
        else:
            answer(out, request)


if __name__ == "__main__":
    main()
