# SPDX-License-Identifier: Apache-2.0
"""A finding as a file of at most 25 lines that torch alone runs: the inputs by value, the function, what it gives
on the device, what is right, and how far apart these may be. Which distance tells the device's result from that
of the CPU is found by taking them (`MEASURES`). Needs of torch what names operators and dtypes."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import torch

from ..calls.foreign import foreign
from ..calls.homes import folder_beside
from ..calls.nested import DeviceAt, TensorAt
from ..calls.replay import Call, segments
from ..calls.call_results import plain
from ..executors import via as runtimes
from ..executors.device import PACKAGES
from ..executors.reference_runs import Reference
from ..session.repro_script import LAZY, operator_text

LINES, SHOWN, RESULT, APART = 25, 48, 1000, 4.0
# How far `got` is from `right`: words, text; the first one that keeps the CPU's own result apart is taken.
MEASURES = (
    ("elements that are NaN or Inf where they must not be, or are not", "(got.isfinite() != right.isfinite()).sum()"),
    ("elements that differ", "(got != right).sum()"),
    ("relative error of the element", "((got.double() - right) / right).flatten()[{at}].abs()"),
    ("largest relative error", "((got.double() - right) / right).abs().nan_to_num(0, 0).max()"),
    ("relative error of the norm", "(got.double() - right).norm() / right.norm()"),
    ("share of elements that are not the nearest number", "(got != right.to(got.dtype)).double().mean()"),
)
WHOLE = 2  # measures that are counts: none may differ


class NoScript(Exception):
    """No short script shows it; the text is a clause that says why."""


# ---- values ----------------------------------------------------------------------------


def number(value: float, dtype: torch.dtype) -> str:
    """A float with as few digits as give the same number of a dtype."""
    if not math.isfinite(value):
        return f'float("{value}")'
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0"
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if torch.tensor(float(text), dtype=dtype).item() == value:
            return text
    return repr(value)


def tensor_text(data: torch.Tensor) -> str:
    """A flat tensor by value: all of it where it is short, one number where all are equal, else its bytes."""
    dtype = data.dtype
    if data.is_complex():
        return f"torch.view_as_complex({tensor_text(torch.view_as_real(data).flatten())}.reshape(-1, 2))"
    same = data.numel() > 1 and bool((data == data[0]).all())
    if not same and (data.numel() > SHOWN or dtype.itemsize == 1 and dtype.is_floating_point):
        raw = base64.b85encode(zlib.compress(bytes(data.view(torch.uint8).numpy()), 9)).decode()
        return f'torch.frombuffer(bytearray(zlib.decompress(base64.b85decode("{raw}"))), dtype={dtype})'
    shown = [number(v, dtype) if dtype.is_floating_point else repr(v) for v in data[: 1 if same else None].tolist()]
    return (
        f"torch.full([{data.numel()}], {shown[0]}, dtype={dtype})"
        if same
        else f"torch.tensor([{', '.join(shown)}], dtype={dtype})"
    )


class Inputs:
    """Names and texts of what goes in: a line for each piece of memory, an expression for each tensor."""

    def __init__(self, call):
        self.call, self.lines, self.names, self.seen = call, [], {}, {}
        parts = segments(call)
        for path, view in call.views.items():
            key = view.storage, view.dtype
            data = parts[key].data.contiguous()
            if key not in self.names:
                self.names[key] = "abcdefghijklmnopqrstuvwxyz"[len(self.names)]
                self.lines.append(f"{self.names[key]} = {tensor_text(data)}")
            self.seen[path] = self._view(view, data.numel(), parts[key].first)

    def given(self) -> str:
        """The pieces of memory, as a tuple."""
        return f"({', '.join(self.names.values())}{',' if len(self.names) == 1 else ''})"

    def function(self) -> str:
        """A line that makes the tensors of those pieces, on whatever device these lie: strides and sharing stay."""
        return f"inputs = lambda {', '.join(self.names.values())}: [{', '.join(self.seen.values())}]"

    def _view(self, view, n, first):
        text = self.names[view.storage, view.dtype]
        if view.is_contiguous() and math.prod(view.sizes) == n:
            text += f".reshape({list(view.sizes)})" if len(view.sizes) != 1 else ""
        else:
            text += f".as_strided({list(view.sizes)}, {list(view.strides)}, {view.offset - first})"
        for kind in view.form.split():
            text = LAZY.get(kind, "{}").format(text)
        return text

    def of(self, value: Any, names: dict[str, str]) -> str:
        """An argument, with names in place of tensors."""
        if isinstance(value, TensorAt):
            return names[value.path]
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.of(v, names) for v in value)}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f'"{k}": {self.of(v, names)}' for k, v in value.items()) + "}"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, DeviceAt):
            return "device"
        return repr(value)


# ---- what is run -----------------------------------------------------------------------


def operator_program(call: Call, inputs: Inputs) -> str:
    """A function of the tensors `*t` that is the call."""
    names = {path: f"t[{i}]" for i, path in enumerate(call.views)}
    args = [inputs.of(a, names) for a in call.args]
    args += [f"{k}={inputs.of(v, names)}" for k, v in call.kwargs.items()]
    given = "*t, device" if any(a.removeprefix("device=") == "device" for a in args) else "*t"
    return f"def program({given}):\n    return {operator_text(call.op)}({', '.join(args)})\n"


def compiled_text(via: str) -> str:
    if not via:
        return "program"
    backend = f"{via!r}"
    if runtimes.is_known(via):  # no backend that torch brings
        backend = f"__import__('ulpscope.executors.via', fromlist=['*']).backend({via!r})"
    return f"torch.compile(program, backend={backend}, dynamic=False)"


def moved_text(device: str) -> str:
    """Each piece of memory `x`, where it is computed."""
    return "x.clone()" if device == "cpu" else f"x.to({device!r})"


def _import_line(module):
    if module.endswith(".so"):  # of an extension in C++ that registers operators
        return f"__import__('torch').ops.load_library({module!r})"
    return f"__import__('runpy').run_path({module!r})" if module.endswith(".py") else f"import {module}"


def import_lines(how: dict[str, Any]) -> list[str]:
    """Lines that import what brings the device and the operators, and set the number of threads where that matters."""
    kind = PACKAGES.get(how["device"].split(":")[0])
    modules = [m for m in (kind, *how["imports"]) if m]
    folder = folder_beside(how["imports"])
    lines = [f"__import__('sys').path.append({folder!r})"] if folder else []
    lines += [_import_line(m) for m in modules]
    return [*lines, *([f"torch.set_num_threads({how['threads']})"] if how.get("threads") else [])]


def plain_text(call: Call, how: dict[str, Any], program: str = "") -> str:
    """A script that runs what is tested and compares nothing. `how` and `program` as Script has them."""
    inputs = Inputs(call)
    program = program or operator_program(call, inputs)
    more = f", {how['device']!r}" if "*t, device" in program else ""
    lines = [
        "import base64, zlib",
        "import torch",
        "import torch.nn.functional as F",
        *import_lines(how),
        program,
        *inputs.lines,
        inputs.function(),
        f"t = inputs(*[{moved_text(how['device'])} for x in {inputs.given()}])",
        f"print({compiled_text(how['via'])}(*t{more}))",
    ]
    return "\n".join(lines) + "\n"


class Script:
    """The file of one finding. `how`: device, via (a compiler, ""), imports; `program`: the text of a function."""

    def __init__(self, call, verdict, how, program=""):
        if len({(v.storage, v.dtype) for v in call.views.values()}) > 12:
            raise NoScript("it has too many tensors")
        if verdict.worst is None or verdict.answer is None or not _is_returned(call, verdict):
            raise NoScript("what is wrong is no result of its own")
        if how["device"].startswith("python:"):
            raise NoScript("its device is a Python function, which needs ulpscope")
        self.call, self.verdict, self.how, self.inputs = call, verdict, how, Inputs(call)
        self.program = program or operator_program(call, self.inputs)

    def results(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(of the device, right, of torch on the CPU): the output that decides, as plain tensors."""
        path = self.verdict.worst.path
        got = self.verdict.answer.outputs[path]
        right = Reference(self.call).wide()[path]
        near = own_result(self.call, got.dtype, path) if self._is_other() else right.to(got.dtype)
        if got.shape != right.shape or near is None or near.shape != got.shape:
            raise NoScript("its results have other shapes")
        return got, right if got.is_floating_point() else near, near

    def _is_other(self):
        """Whether torch on the CPU is another implementation than what is tested."""
        return self.call.composite or self.how["via"] or self.how["device"].split(":")[0] != "cpu"

    def measured(self) -> tuple[Any, ...]:
        """(words, text, what the device has, what the CPU has, limit)."""
        got, right, near = self.results()
        at = self.at = int(self.verdict.worst.examples[0][0]) if self.verdict.worst.examples else 0
        for i, (words, text) in enumerate(MEASURES):
            if i == 1 and got.is_floating_point():
                continue
            text = text.format(at=at)
            far, own = (float(eval(text, {"got": t, "right": right})) for t in (got, near))
            if i < WHOLE and far > 0 and own == 0:
                return words, text, far, own, 0
            floor = torch.finfo(got.dtype).eps / 2 if got.is_floating_point() and "share" not in words else 0.01
            if i >= WHOLE and math.isfinite(far) and far > APART * max(own, floor):
                return words, text, far, own, float(f"{math.sqrt(far * max(own, floor)):.2g}")
        raise NoScript("no simple distance tells its result from the CPU's")

    def text(self, about: str) -> str:
        """The file. NoScript where it would be longer."""
        words, measure, _, own, limit = self.measured()
        path, of = self.verdict.worst.path, self.how
        pick = "".join(f"[{part}" for part in path.split("[")[1:])
        pick = pick if len(self.verdict.answer.outputs) > 1 else ""
        right = self._right(pick)
        compiled, moved, names = compiled_text(of["via"]), moved_text(of["device"]), self.inputs.given()
        more = f", {of['device']!r}" if "*t, device" in self.program else ""
        own_words = "torch on the CPU" if self._is_other() else "the nearest number"
        lines = [
            f'"""{about}',
            f'Needs torch {self._needs()}; exit code 1: it is wrong."""',
            "import base64, sys, zlib" if "b85decode" in "".join(self.inputs.lines) + right else "import sys",
            "import torch",
            *(["import torch.nn.functional as F"] if "F." in self.program else []),
            *import_lines(of),
            "",
            *self.program.rstrip().splitlines(),
            "",
            *self.inputs.lines,
            self.inputs.function(),
            "",
            f"got = {compiled}(*inputs(*[{moved} for x in {names}]){more}){pick}.cpu()",
            right,
            f"off = float({measure})  # {words}; {own_words}: {own:.2g}",
            f'print("got", got.flatten()[{self.at}].item(), "expected", right.flatten()[{self.at}].item(), "off", off)',
            f"sys.exit(off > {limit})",
        ]
        lines = [line for line in lines if line or len(lines) <= LINES]
        if len(lines) > LINES:
            raise NoScript(f"it has {len(lines)} lines")
        return "\n".join(lines) + "\n"

    def _right(self, pick):
        """The line that makes what is right: in float64 where the function says the same there."""
        more = ', "cpu"' if "*t, device" in self.program else ""
        got, right, _ = self.results()
        if not got.is_floating_point():
            return f"right = program(*inputs(*{self.inputs.given()}){more}){pick}"
        wide = f"[x.double() if x.is_floating_point() else x for x in {self.inputs.given()}]"
        line = f"right = program(*inputs(*{wide}){more}){pick}"
        try:
            space = {"torch": torch, "F": torch.nn.functional, "zlib": zlib, "base64": base64}
            exec("\n".join([self.program, *self.inputs.lines, self.inputs.function(), line]), space)
            same = torch.allclose(space["right"].double(), right.double(), 1e-9, 0, equal_nan=True)
        except Exception as problem:  # whatever an operator says to float64
            foreign(problem)
            same = False
        if same:
            return line
        if right.numel() > RESULT:
            raise NoScript("its operator has no float64 form, and its result is long")
        return (
            f"right = {tensor_text(right.double().contiguous().flatten())}.reshape({list(right.shape)})  # from float64"
        )

    def _needs(self):
        """What it needs beside torch, after that word."""
        kind = self.how["device"].split(":")[0]
        more = [m for m in (PACKAGES.get(kind), *self.how["imports"]) if m]
        if runtimes.is_known(self.how["via"]):
            more += [self.how["via"].partition(":")[0], "ulpscope"]
        if self.how["faults"]:
            more.append(f"ULPSCOPE_SIM_FAULTS='{self.how['faults']}' in the environment")
        return f"and {', '.join(more)}" if more else "alone"


def _is_returned(call, verdict):
    """Whether the output that decides is among what the function returns; a written argument is where it is all."""
    if verdict.worst.path.startswith("out"):
        return True
    returns = call.schema.returns if call.schema else ()
    return len(returns) == 1 and returns[0].alias_info is not None and len(verdict.answer.outputs) == 1


def own_result(call: Call, dtype: torch.dtype, path: str) -> torch.Tensor | None:
    """What torch gives on the CPU: the operator in float32 and rounded once, a program as it stands."""
    found = call.native if call.composite else Reference(call).native()
    if not found or path not in found:
        return None
    return plain(found[path]).to(dtype)
