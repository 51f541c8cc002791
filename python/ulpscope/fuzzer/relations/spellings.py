# SPDX-License-Identifier: Apache-2.0
"""The forms of one operator: in place, out of place, with out=, as a method. Which there are is read
from the schemas."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ...calls.older import zip_equal
from ...calls.nested import TensorAt
from ...calls.replay import Call, is_write, written_names
from ...calls.torch_private import TensorBase
from ...judges.in_rows import varied
from ...judges.rows import put, tensor_of
from .variant import Variant, new_argument, same

if TYPE_CHECKING:
    from ...executors.device import Answer


GIVE_COMPLEX = ("fft", "_fft", "linalg_eig", "_linalg_eig", "complex", "polar", "stft")  # of real numbers too


@cache
def overloads(space: str, name: str) -> list[tuple[Any, str]]:
    """Overloads of an operator, each with its name `space::name.overload`."""
    packet = getattr(getattr(torch.ops, space), name, None)
    return [(getattr(packet, o), f"{space}::{name}.{o}") for o in packet.overloads()] if packet else []


def _arguments(function):
    """(name, kind) of each argument that is no output."""
    return [(a.name, str(a.type)) for a in function._schema.arguments if not a.is_out]


@cache
def _form(function, space, name, wanted):
    """The overload of `space::name` with the arguments of `function`, of the form `wanted`."""
    for other, text in overloads(space, name):
        outs = [a for a in other._schema.arguments if a.is_out]
        first = other._schema.arguments[0] if other._schema.arguments else None
        kind = "out" if outs else "in-place" if first is not None and is_write(first) else "functional"
        if kind == wanted and _arguments(other) == _arguments(function):
            return other, text
    return None


def _plain_op(call):
    """(space, name) of an operator of torch that writes nothing."""
    space, _, rest = call.op.partition("::")
    ok = call.schema is not None and not call.written() and not written_names(call.function)
    return (space, rest.split(".")[0]) if ok and rest and not call.composite else (None, None)


def _becomes(call, found, **changes):
    function, op = found
    return varied(call, function=function, op=op, **changes)


def in_place(call: Call, answer: Answer, number: int) -> Variant | None:
    space, name = _plain_op(call)
    found = space and _form(call.function, space, name + "_", "in-place")
    view, out = call.views.get("args[0]"), answer.outputs.get("out[0]")
    if not found or view is None or out is None or len(answer.outputs) != 1:
        return None
    if view.dtype != out.dtype or tuple(out.shape) != tuple(view.sizes) or view.form:
        return None
    made = _becomes(call, found)
    put(made, "args[0]", tensor_of(call, "args[0]"))
    return Variant([made], lambda outputs: {"out[0]": outputs[0]["args[0]"]})


def functional(call: Call, answer: Answer, number: int) -> Variant | None:
    space, _, rest = call.op.partition("::")
    name = rest.split(".")[0]
    if call.schema is None or not name.endswith("_") or name.endswith("__") or call.composite or call.is_complex:
        return None
    found = _form(call.function, space, name[:-1], "functional")
    if not found or call.written() != ["args[0]"] or len(answer.outputs) != 1:
        return None
    made = _becomes(call, found)
    made.mutated = {}
    return Variant([made], lambda outputs: {"args[0]": outputs[0]["out[0]"].to(call.views["args[0]"].dtype)})


def out(call: Call, answer: Answer, number: int) -> Variant | None:
    space, name = _plain_op(call)
    found = space and _form(call.function, space, name, "out")
    if not found or call.is_complex or name.startswith(GIVE_COMPLEX):
        return None
    names = [a.name for a in found[0]._schema.arguments if a.is_out]
    paths = [f"out[{i}]" for i in range(len(names))]
    if list(answer.outputs) != paths:
        return None
    given = {n: TensorAt(f"kwargs.{n}") for n in names}
    made = _becomes(call, found, kwargs={**call.kwargs, **given})
    for path, word in zip_equal(paths, names):
        # What begins with _ is called by an operator that brings a dense one (softmax does for _softmax).
        new_argument(made, f"kwargs.{word}", answer.outputs[path], word, strided=not name.startswith("_"))
    return Variant([made], lambda outputs: {p: outputs[0][f"kwargs.{n}"] for p, n in zip_equal(paths, names)})


class _AsMethod:
    """What stands for an overload: the method of that name, with the names of the schema. Those that torch
    has in Python have arguments of their own and are left out."""

    def __init__(self, function, name):
        self.function, self.method = function, getattr(torch.Tensor, name)
        self.names = [a.name for a in function._schema.arguments]

    def __getattr__(self, name):
        return getattr(self.function, name)

    def __call__(self, *args, **kwargs):
        return self.method(args[0], **dict(zip(self.names[1:], args[1:])), **kwargs)


def method(call: Call, answer: Answer, number: int) -> Variant | None:
    space, name = _plain_op(call)
    if space != "aten" or not hasattr(TensorBase, name) or "args[0]" not in call.views:
        return None
    if getattr(getattr(torch.Tensor, name), "__module__", "") == "torch._tensor":
        return None
    made, stands = copy.copy(call), _AsMethod(call.function, name)
    made.on = lambda place: stands
    return Variant([made], same)
