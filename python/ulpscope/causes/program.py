# SPDX-License-Identifier: Apache-2.0
"""A callable as the operators that it runs: written down in one process, done again in another
on other contents of its tensors. Serves `parcel`, for callables that cannot be sent.
"""

from dataclasses import fields, is_dataclass

import torch

from ..calls.mode import Mode
from ..calls.replay import bind_cast, computed, mapped
from .nodes import PASSING

MOST_BYTES = 1 << 28  # that the results of all operators may take


class Unsendable(Exception):
    """Something that another process cannot be given."""


class Place:
    """Stands for a tensor in a step."""

    def __init__(self, number):
        self.number = number


class Recorder(Mode):
    """Writes down every operator of a run. Keeps all results alive, so that an address stands
    for one tensor."""

    def __init__(self, inputs):
        super().__init__()
        self.steps, self.given = [], {}  # (operator, args, kwargs, result); number -> constant
        self.by_id, self.by_key, self.keep, self.size = {}, {}, [], 0
        self.inputs = [self._new(t) for t in inputs]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "_opname", "") in PASSING:
            return func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in func.tags:
            raise Unsendable(str(func))
        before = self.placed(list(args)), self.placed(kwargs)
        out = func(*args, **kwargs)
        result = mapped(out, lambda v: self._new(v) if isinstance(v, torch.Tensor) else v)
        self.steps.append((func, *before, result))
        return out

    def placed(self, value):
        """A nest of arguments with a Place for every tensor."""
        return mapped(value, lambda v: self._place(v) if isinstance(v, torch.Tensor) else v)

    def _new(self, tensor):
        place = Place(len(self.keep))
        self.keep.append(tensor)
        self.by_id[id(tensor)] = self.by_key[_key(tensor)] = place
        self.size += tensor.nbytes
        if self.size > MOST_BYTES:
            raise Unsendable("more than the search can take")
        return place

    def _place(self, tensor):
        known = self.by_id.get(id(tensor)) or self.by_key.get(_key(tensor))
        if known is None:  # from outside: it is what it is now
            known = self._new(tensor)
            self.given[known.number] = tensor.detach().clone()
        return known


def _key(tensor):
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise Unsendable(f"a tensor on {tensor.device}")
    return (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride(),
            tensor.dtype, tensor.is_conj(), tensor.is_neg())  # fmt: skip


class Program:
    """The operators of one run. Called with arguments of the same form as then."""

    def __init__(self, recorder, result):
        self.steps, self.given = recorder.steps, recorder.given
        self.inputs, self.result = [p.number for p in recorder.inputs], result

    __name__ = "program"

    def __call__(self, *args, **kwargs):
        values = {number: t.clone() for number, t in self.given.items()}
        values.update(zip(self.inputs, tensors_in(args, kwargs), strict=True))

        def filled(value):
            return values[value.number] if isinstance(value, Place) else value

        with torch.no_grad():  # the gradients are among the operators
            for func, arguments, keywords, result in self.steps:
                _take(result, func(*mapped(arguments, filled), **mapped(keywords, filled)), values)
        return mapped(self.result, filled)


def _take(result, out, values):
    if isinstance(result, Place):
        values[result.number] = out
    elif isinstance(result, list | tuple):
        for one, value in zip(result, out):
            _take(one, value, values)


def tensors_in(args, kwargs):
    """Every tensor among arguments, in one order."""
    found = []
    mapped([list(args), kwargs], lambda v: found.append(v) if isinstance(v, torch.Tensor) else None)
    return found


def program_of(call, reference, function):
    """The Program of a callable on the call's arguments, as the yardstick runs it. Unsendable
    where it draws, or runs what is no operator."""
    bound = bind_cast(call, reference.parts, computed)
    recorder = Recorder(tensors_in(bound.args, bound.kwargs))

    def watched(*args, **kwargs):
        with recorder:
            return function(*args, **kwargs)

    result = bound.run(watched)
    return Program(recorder, recorder.placed(_plainly(result)))


def _plainly(value):
    """A result with dicts in place of dataclasses, whose paths are the same."""
    if is_dataclass(value) and not isinstance(value, dict | type):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, dict):
        return {k: _plainly(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [_plainly(v) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value
