# SPDX-License-Identifier: Apache-2.0
"""`python -m ulpscope.calls.torch_tensors IN OUT`: the tensors of a file of torch.save as safetensors, for
`ulpscope judge`. Nothing in IN runs (torch_files.load). Names are those of the dicts and places of the lists that
hold them, behind six digits and a mark that keep their order (src/files/tensor_set.c). What is wrong is one line of
output."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from ulpscope.calls import torch_files

NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
}
MOST_LEVELS = 100


def found(value: Any, name: str = "", level: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of all that a value holds."""
    if level > MOST_LEVELS:
        raise torch_files.UnknownFile("values within values without end")
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from found(item, f"{name}.{key}" if name else str(key), level + 1)
    elif isinstance(value, (list, tuple)):
        for key, item in enumerate(value):
            yield from found(item, f"{name}.{key}" if name else str(key), level + 1)


def write(path: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """`tensors`: (name, tensor), in order."""
    header, at, parts = {}, 0, []
    for i, (name, tensor) in enumerate(tensors):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in NAMES or tensor.layout != torch.strided:
            raise torch_files.UnknownFile(f"the tensor '{name}' is {dtype}, {tensor.layout}: none that is judged")
        plain = tensor.detach().contiguous().flatten()
        size = plain.numel() * plain.element_size()
        parts.append(plain.view(torch.uint8).numpy().data if size else b"")
        header[f"{i:06d}\x1f{name}"] = {
            "dtype": NAMES[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for part in parts:
            file.write(part)


def main(source: str, target: str) -> int:
    try:
        tensors = list(found(torch_files.load(source)))
        if not tensors:
            raise torch_files.UnknownFile(f"{source}: no tensors in it")
        write(target, [(name or Path(source).stem, tensor) for name, tensor in tensors])
    except torch_files.UnreadFile as problem:
        text = str(problem)
    except (OSError, RuntimeError) as problem:
        text = f"{source}: {problem}"
    else:
        return 0
    print(" ".join(text.splitlines()))
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
