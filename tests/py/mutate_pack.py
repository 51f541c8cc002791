# SPDX-License-Identifier: Apache-2.0
"""Judges outputs against packs in which one thing is of another kind: every member of the
manifest as every kind of JSON value, every operand in other dtypes and shapes. Prints how many
were judged and how many refused; what matters is that it ends, also under sanitizers.

    python mutate_pack.py LIBRARY PACK OUTPUTS OUT      (PACK is changed)"""

from __future__ import annotations

import copy
import ctypes
import json
import sys
from pathlib import Path

VALUES = [None, -1, 2.5, -1e308, 2**70, "x", [3], {"x": 1}]
DTYPES = ["F4", "C64", "F64", "I64", "U8"]
LONG = 2**24


class Options(ctypes.Structure):
    _fields_ = [
        ("out", ctypes.c_char_p),
        ("standard", ctypes.c_char_p),
        ("scale", ctypes.c_char_p),
        ("force", ctypes.c_bool),
        ("n_threads", ctypes.c_int),
        ("alloc", ctypes.c_void_p),
    ]


def members(value, path=()):
    """Places of all members in a JSON value; of lists the first and the last only."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from members(inside, (*path, key))
    elif isinstance(value, list) and value:
        for i in {0, len(value) - 1}:
            yield from members(value[i], (*path, i))


def put(value, path, new):
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


def kind_of(path):
    """Members of one kind are tried at one call only."""
    return tuple("#" if isinstance(step, int) else step for step in path)


def manifests(whole):
    """Every manifest with one call in which one member is another value."""
    seen = set()
    for path in members({k: v for k, v in whole.items() if k != "calls"}):
        for value in VALUES:
            changed = {**whole, "calls": whole["calls"][:1]}
            put(changed, path, value)
            yield changed
    for call in whole["calls"]:
        for path in members(call):
            if kind_of(path) in seen or path[0] in ("args", "inputs", "stack"):
                continue
            seen.add(kind_of(path))
            for value in VALUES:
                changed = copy.deepcopy(call)
                put(changed, path, value)
                yield {**whole, "calls": [changed]}
    yield {**whole, "calls": 3}


def split(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def join(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def operands(whole, pack):
    """Every operand of another dtype or shape: (manifest, what to write, what to put back)."""
    seen = set()
    for call in whole["calls"]:
        if "operands_file" not in call:
            continue
        path = pack / call["operands_file"]
        header, data = split(path)
        kinds = {k: name for o in call["outputs"] for k, name in o.get("operands", {}).items()}
        for kind, name in kinds.items():
            if (kind, header[name]["dtype"]) in seen:
                continue
            seen.add((kind, header[name]["dtype"]))
            shape = header[name]["shape"]
            for dtype in DTYPES:
                for other in (shape, [LONG], [] if shape else [0]):
                    changed = copy.deepcopy(header)
                    changed[name].update(dtype=dtype, shape=other)
                    join(path, changed, data)
                    yield {**whole, "calls": [call]}
        join(path, header, data)


def main(library, pack, outputs, out):
    judge = ctypes.CDLL(library).usc_pack_judge
    error = ctypes.create_string_buffer(1024)
    manifest = Path(pack) / "pack.json"
    whole = json.loads(manifest.read_text())
    counts = [0, 0]
    for source in (manifests(whole), operands(whole, Path(pack))):
        for changed in source:
            manifest.write_text(json.dumps(changed))
            given = Options(out.encode(), None, None, True, 1, None)
            counts[judge(pack.encode(), outputs.encode(), ctypes.byref(given), error) != 0] += 1
    print(*counts)


if __name__ == "__main__":
    main(*sys.argv[1:5])
