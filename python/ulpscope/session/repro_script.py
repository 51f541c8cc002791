# SPDX-License-Identifier: Apache-2.0
"""What stands in the script that `repro` writes (src/report/report_script.py.in) of one call: its
arguments, their values. Needs of torch what names operators and dtypes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import torch

from .. import _core
from ..calls.homes import folder_beside
from ..calls.nested import DeviceAt, TensorAt
from ..calls.replay import Call, makes_on_default_device, segments
from ..executors.device import PACKAGES
from ..executors.placement import known_on_host

LAZY = {"conj": "{}.conj()", "neg": "torch._neg_view({})"}


class Text:
    """The Python text of a call's arguments. `home` is the device that captured them."""

    def __init__(self, call: Call, home: str) -> None:
        """Names a tensor for each piece of memory; where one argument shows all of it, as it does."""
        self.call, self.home, self.parts = call, home, segments(call)
        self.names: dict[tuple[int, torch.dtype], str] = {}
        self.stored: dict[str, torch.Tensor] = {}
        self.whole: set[str] = set()
        keys = [(v.storage, v.dtype) for v in call.views.values()]
        for key, (path, view) in zip(keys, call.views.items()):
            data = self.parts[key].data.contiguous()
            if keys.count(key) == 1 and view.is_contiguous() and math.prod(view.sizes) == data.numel():
                self.whole.add(path)
                data = data.reshape(view.sizes)
            if self.names.setdefault(key, path) == path:
                self.stored[path] = data
        self.exact = sorted(name for key, name in self.names.items() if self.parts[key].steers)
        host = [call.views[path] for path in known_on_host(call)]
        self.on_host = sorted({self.names[v.storage, v.dtype] for v in host})

    def tensor(self, path: str) -> str:
        view = self.call.views[path]
        key = view.storage, view.dtype
        text = f't["{self.names[key]}"]'
        text = f"torch.view_as_complex({text})" if view.dtype.is_complex else text
        if path not in self.whole:
            text += f".as_strided({list(view.sizes)}, {list(view.strides)}, {view.offset - self.parts[key].first})"
        for kind in view.form.split():
            text = LAZY.get(kind, "{}").format(text)
        return text

    def of(self, value: Any) -> str:
        if isinstance(value, TensorAt):
            return self.tensor(value.path)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self.of, value))}]"
        if isinstance(value, torch.dtype):
            return f"cast({value})"
        if isinstance(value, DeviceAt):
            return f"torch.device({'device' if value.device.split(':')[0] == self.home else repr(value.device)})"
        if isinstance(value, float) and (value != value or abs(value) == float("inf")):
            return f'float("{value}")'
        return repr(value)  # torch.strided and the like are written as they are read

    def arguments(self) -> str:
        kwargs = {k: self.of(v) for k, v in self.call.kwargs.items()}
        if self.call.schema and self.home == "cpu" and makes_on_default_device(self.call):
            kwargs["device"] = "torch.device(device)"
        named = ", ".join(f'"{k}": {v}' for k, v in kwargs.items())
        return f"{self.of(self.call.args)}, {{{named}}}"


def home_of(call: Call) -> str:
    """The type of the device that captured a call."""
    kinds = [v.device.split(":")[0] for v in (*call.views.values(), *call.results.values())]
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def operator_text(op: str) -> str:
    space, colons, rest = op.partition("::")
    name, _, overload = rest.partition(".")
    return f"torch.ops.{space}.{name}.{overload or 'default'}" if colons else op


def text_of(call: Call, home: str, device: str, imports: Iterable[str], about: str, path: str) -> str:
    """The script; what goes into it is written to a safetensors file at `path`."""
    text, kind = Text(call, home), device.split(":")[0]
    tensors = {name: torch.view_as_real(t) if t.is_complex() else t for name, t in text.stored.items()}
    _core.write_tensors(path, tensors)
    folder = folder_beside(imports)
    imports = [os.path.abspath(m) if m.endswith((".py", ".so")) else m for m in (PACKAGES.get(kind), *imports) if m]
    parts = {
        "about": about,
        "arguments": text.arguments(),
        "operator": operator_text(call.op),
        "where": f'"cpu" if name in {text.on_host} else device' if text.on_host else "device",
        "dtype": f"x.dtype if name in {text.exact} else cast(x.dtype)" if text.exact else "cast(x.dtype)",
        "device": repr(device),
        "imports": (f"sys.path.append({folder!r}) or " if folder else "") + repr(list(dict.fromkeys(imports))),
    }
    return _core.script(parts, tensors)
