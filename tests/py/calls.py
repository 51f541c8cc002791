# SPDX-License-Identifier: Apache-2.0
"""Makes calls in memory, as a trace would hold them, and devices to judge them on. Shared
by the tests of check; no trace, no simulated device."""

import json
import math

import torch

from ulpscope.executors.device import PythonDevice
from ulpscope.session.judging import judge_call
from ulpscope.calls.read_call import call_from


class Maker:
    """Turns Python arguments into the row of a call."""

    def __init__(self):
        self.tensors, self.blobs, self.storages = [], {}, {}

    def argument(self, value, path):
        if isinstance(value, (list, tuple)):
            return [self.argument(v, f"{path}[{i}]") for i, v in enumerate(value)]
        if isinstance(value, torch.Tensor):
            self.tensor(value, path, "in")
            return {"tensor": True}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        for kind in ("layout", "memory_format"):
            if isinstance(value, getattr(torch, kind)):
                return {kind: str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        return value

    def tensor(self, t, path, role):
        storage = t.untyped_storage()
        key = (storage.data_ptr() or id(storage), role != "in")
        number = self.storages.setdefault(key, len(self.storages) + 1)
        if number not in self.blobs:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.blobs[number] = bytes(flat.numpy().tobytes())
        self.tensors.append(
            dict(
                path=path,
                role=role,
                storage=number,
                blob=number,
                dtype=str(t.dtype),
                sizes=list(t.shape),
                strides=list(t.stride()),
                offset=t.storage_offset(),
                device="cpu",
                storage_bytes=storage.nbytes(),
                stats=None,
                version=number,
            )
        )


def make_call(op, /, *args, live=None, **kwargs):
    """A Call of `op` on these arguments; `live` are the captured run's own results."""
    maker = Maker()
    text = {
        "args": [maker.argument(a, f"args[{i}]") for i, a in enumerate(args)],
        "kwargs": {k: maker.argument(v, f"kwargs.{k}") for k, v in kwargs.items()},
    }
    for i, t in enumerate(live or ()):
        maker.tensor(t, f"out[{i}]", "out")
    row = dict(
        sequence=1,
        step=0,
        phase="forward",
        op=op,
        args=json.dumps(text),
        tensors=maker.tensors,
        module_path="",
        module_class="",
        frames="",
    )
    return call_from(row, maker.blobs.__getitem__)


def honest(op, args, kwargs):
    """A device that computes as the CPU does."""
    return op(*args, **kwargs)


def judged(device, op, /, *args, **kwargs):
    """The verdict on one call by a Python device."""
    return judge_call(make_call(op, *args, **kwargs), PythonDevice(device))
