# SPDX-License-Identifier: Apache-2.0
"""Writes tensors as a safetensors file. Serves `session.pack`; the reader is the C library's."""

import json
from contextlib import contextmanager

import torch

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64",
    torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip
ALIGN = 64


@contextmanager
def writing(path, *how, **more):
    """open() whose every error names the file, also those of writing and closing."""
    try:
        with open(path, *how, **more) as file:
            yield file
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, path) from None


def write_tensors(path, tensors):
    """
    Writes {name: tensor on the CPU}; shapes any, values bit by bit.

    Wide dtypes come first, so that every tensor lies aligned. ValueError for a dtype that
    the format has no name for; OSError.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header, end = {}, 0
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in NAMES:
            raise ValueError(f"{name}: safetensors has no name for {tensor.dtype}")
        begin, end = end, end + tensor.numel() * tensor.dtype.itemsize
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [begin, end]}  # fmt: skip
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % ALIGN)
    with writing(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            flat = tensors[name].detach().contiguous().reshape(-1)
            file.write(memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else b"")
