# SPDX-License-Identifier: Apache-2.0
"""Safetensors with nothing but numpy and json, as somebody without torch would read and
write them. bfloat16 is held as float32."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def read(path) -> dict[str, np.ndarray]:
    """Every tensor of a file by name."""
    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    data = raw[8 + size :]
    out = {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = _decode(entry["dtype"], data[begin:end]).reshape(entry["shape"])
    return out


def _decode(dtype, data):
    if dtype == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, DTYPES[dtype])


def write(path, tensors, low=(), extra=""):
    """Writes a file; names in `low` as bfloat16, rounded to nearest even."""
    names = {np.dtype(v): k for k, v in DTYPES.items()}
    header, data = {}, b""
    for name, value in tensors.items():
        value = np.ascontiguousarray(value).reshape(np.shape(value))
        if name in low:
            bits = value.astype(np.float32).view(np.uint32)
            bits = bits + 0x7FFF + ((bits >> 16) & 1)
            dtype, raw = "BF16", (bits >> 16).astype(np.uint16).tobytes()
        else:
            dtype, raw = names[value.dtype], value.tobytes()
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode() + extra.encode()
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)
