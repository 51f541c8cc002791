# SPDX-License-Identifier: Apache-2.0
"""A callable as the operators that it runs: written down in one process, done again in another
on other contents of its tensors. Serves `parcel`, for callables that cannot be sent. Needs of
torch: what `graph` needs.
"""

from dataclasses import fields, is_dataclass

import torch

from ..calls.replay import bind_cast, computed, mapped
from .graph import Recording, Slot


class Unsendable(Exception):
    """Something that another process cannot be given."""


class Program:
    """The operators of one run. Called with arguments of the same form as then."""

    def __init__(self, recording, result):
        if not recording.written.isdisjoint(recording.outside.values()):
            raise Unsendable("writes what it was not given")
        self.steps = [(n.func, n.args, n.kwargs, n.result) for n in recording.nodes]
        self.given = {number: recording.tensors[number].clone() for number in recording.outside}
        self.inputs, self.result = [s.number for s in recording.inputs.values()], result

    __name__ = "program"

    def __call__(self, *args, **kwargs):
        values = {number: t.clone() for number, t in self.given.items()}
        values.update(zip(self.inputs, tensors_in(args, kwargs), strict=True))

        def filled(value):
            return values[value.number] if isinstance(value, Slot) else value

        with torch.no_grad():  # the gradients are among the operators
            for func, arguments, keywords, result in self.steps:
                _take(result, func(*mapped(arguments, filled), **mapped(keywords, filled)), values)
        return mapped(self.result, filled)


def _take(result, out, values):
    if isinstance(result, Slot):
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
    recording = Recording(dict(enumerate(tensors_in(bound.args, bound.kwargs))), deep=False)

    def watched(*args, **kwargs):
        with recording:
            return function(*args, **kwargs)

    result = bound.run(watched)
    result = mapped(_plainly(result), lambda v: recording.slot_of(v) if isinstance(v, torch.Tensor) else v)
    return Program(recording, result)


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
