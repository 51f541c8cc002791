# SPDX-License-Identifier: Apache-2.0
"""Runs the calls of a pack on a device and saves what it gives: what somebody with firmware
or a simulator would write. Knows of a pack only what docs/reference/pack-format.md says.

    python run_pack.py PACK OUTPUTS [DEVICE]"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import plain_tensors
import torch


def tensor_of(entry, array, device):
    """An input as the call had it: dtype and strides."""
    dtype = getattr(torch, entry["dtype"])
    value = torch.from_numpy(np.array(array))
    value = torch.view_as_complex(value) if dtype.is_complex else value.to(dtype)
    if 0 in entry["shape"] or 0 in entry["strides"]:
        return value.to(device)
    out = torch.empty_strided(entry["shape"], entry["strides"], dtype=dtype)
    return out.copy_(value.reshape(entry["shape"])).to(device)


def argument_of(value, tensors, device):
    """An argument as the manifest writes it."""
    if isinstance(value, list):
        return [argument_of(v, tensors, device) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dtype":
        return getattr(torch, content)
    if kind == "device":
        return torch.device(device if content != "cpu" else "cpu")
    if kind == "float":
        return float(content)
    if kind == "other" and content.startswith("torch."):
        return getattr(torch, content.removeprefix("torch."))
    raise ValueError(value)


def run_call(call, pack, device):
    """Every output of a call by its name."""
    arrays = plain_tensors.read(pack / call["inputs_file"]) if call["inputs"] else {}
    tensors = {e["name"]: tensor_of(e, arrays[e["name"]], device) for e in call["inputs"]}
    args = argument_of(call["args"], tensors, device)
    kwargs = {k: argument_of(v, tensors, device) for k, v in call["kwargs"].items()}
    space, _, rest = call["op"].partition("::")
    name, _, overload = rest.partition(".")
    function = getattr(getattr(getattr(torch.ops, space), name), overload or "default")
    result = function(*args, **kwargs)
    result = result if isinstance(result, tuple) else (result,)
    out = {}
    for output in call["outputs"]:
        value = tensors.get(output["path"])
        if value is None:
            value = result
            for index in re.findall(r"\[(\d+)\]", output["path"]):
                value = value[int(index)]
        out[output["name"]] = value
    return out


def array_of(value):
    if isinstance(value, float):
        return np.float64(value)
    value = torch.as_tensor(value).detach().cpu()
    value = torch.view_as_real(value) if value.is_complex() else value
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def main(pack, outputs, device="sim:0"):
    if device.startswith("sim"):
        import ulpscope.sim  # noqa: F401
    pack, outputs = Path(pack), Path(outputs)
    outputs.mkdir()
    manifest = json.loads((pack / "pack.json").read_text())
    for call in manifest["calls"]:
        found = run_call(call, pack, device) if call["outputs"] else {}
        low = [k for k, v in found.items() if getattr(v, "dtype", None) == torch.bfloat16]
        arrays = {name: array_of(value) for name, value in found.items()}
        plain_tensors.write(outputs / f"{call['call']}.safetensors", arrays, low)


if __name__ == "__main__":
    main(*sys.argv[1:])
