# SPDX-License-Identifier: Apache-2.0
"""A run of a call written down, operator by operator, so that a run which differs in one place
computes only what follows from it, without autograd, dispatch modes or the callable's own Python.

Results are those of the run itself, bit for bit. Where that cannot be promised (the call writes
or draws, a result has another shape than before, a number that Python saw is another) the answer
is None and the run has to be made. Neighbour: `nodes` (runs calls, asks).
"""

import functools
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from ..calls.replay import mapped, outputs_of, plain, written_names
from .nodes import PASSING, Edited, doubles

MOST_BYTES = 1 << 28  # that the results of all operators may take
PLAIN = (torch.Tensor, torch.nn.Parameter)
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Unfit(Exception):
    """A run that cannot be written down, or one that leaves what was."""


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor in a step."""

    number: int


@dataclass
class Step:
    """One operator: its arguments with Slots for tensors, and where its results go."""

    place: tuple
    func: object
    args: tuple
    kwargs: dict
    used: frozenset  # numbers of the slots among the arguments
    free: bool  # of what would have to be widened
    result: object = None  # as the operator gave it, with Slots


class Recording(Edited):
    """Runs operators as they are, those at the places in `open` taken apart, and writes
    down what it sees. `inputs` are the call's tensors by path, `narrow` the dtypes that do not
    stay what they are."""

    def __init__(self, inputs, open=(), narrow=()):
        super().__init__()
        self.narrow = narrow
        self.open = set(open)
        self.steps, self.tensors = [], []
        self.by_id, self.by_key, self.storages = {}, {}, set()
        self.unsure = set()  # slots that cannot be told from others
        self.size = 0
        self.inputs = {path: self._made(t) for path, t in inputs.items()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "_opname", "") in PASSING:
            return func(*args, **kwargs)
        if not hasattr(func, "_schema") or written_names(func) or _more_than_its_results(func, args, kwargs):
            raise Unfit
        me = (*self.path, self.counter)
        self.counter += 1
        if me in self.open:
            out = self._within(me, func, args, kwargs)
            if out is not NotImplemented:
                return out
        step = self._step(me, func, args, kwargs)
        out = func(*args, **kwargs)
        step.result = mapped(out, lambda t: self._made(t) if isinstance(t, torch.Tensor) else t)
        self.steps.append(step)
        return out

    def _step(self, me, func, args, kwargs):
        used, free = set(), True

        def slot(value):
            nonlocal free
            if not isinstance(value, torch.Tensor):
                return value
            found = self.slot_of(value)
            free &= value.dtype not in self.narrow
            used.add(found.number)
            return found

        every = mapped(list(args), slot), mapped(kwargs, slot)
        free &= not any(isinstance(v, torch.dtype) for v in (*args, *kwargs.values()))
        return Step(me, func, *every, frozenset(used), free)

    def _made(self, tensor):
        """The slot of a tensor that is new."""
        key = _key(tensor)
        slot = Slot(len(self.tensors))
        self.tensors.append(tensor.detach())
        self.by_id[id(tensor)] = slot, tensor
        self.by_key.setdefault(key, []).append(slot)
        self.storages.add(key[0])
        self.size += tensor.numel() * tensor.element_size()
        if self.size > MOST_BYTES:
            raise Unfit
        return slot

    def slot_of(self, tensor):
        """The slot of a tensor, a new one where it comes from outside."""
        if id(tensor) in self.by_id:
            return self.by_id[id(tensor)][0]
        key = _key(tensor)
        known = self.by_key.get(key)
        if known is None:
            if key[0] in self.storages:
                raise Unfit  # a view that was made unseen
            return self._made(tensor)
        if len(known) > 1:
            self.unsure.update(s.number for s in known)
        return known[-1]


def _more_than_its_results(func, args, kwargs):
    """Whether an operator draws random numbers, or writes statistics as batch norms do without
    saying so in their schemas."""
    draws = torch.Tag.nondeterministic_seeded in func.tags
    names = _names(func)
    if not draws and "running_mean" not in names:
        return False
    given = dict(zip(names, args)) | kwargs
    if draws:
        return given.get("dropout_p", names.get("dropout_p")) != 0
    return given.get("running_mean") is not None and bool(given.get("training", given.get("train", True)))


@functools.cache
def _names(func):
    """The names of an operator's arguments with their defaults, None where there is none."""
    return {a.name: a.default_value if a.has_default_value() else None for a in func._schema.arguments}


def _key(tensor):
    """What tells a tensor from others where nothing is written: its place in memory."""
    if type(tensor) not in PLAIN or tensor.layout != torch.strided or tensor.is_complex():
        raise Unfit
    if tensor.is_quantized or tensor.is_neg() or tensor._is_zerotensor() or tensor.device.type != "cpu":
        raise Unfit
    return (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape,
            tensor.stride(), tensor.dtype)  # fmt: skip


class Tape:
    """A run as it was recorded; `outputs` are its tensors by path, `held` the mode that kept it
    in one precision, or None."""

    def __init__(self, recording, outputs, held):
        self.steps, self.tensors = recording.steps, recording.tensors
        self.inputs, self.unsure, self.open = recording.inputs, recording.unsure, recording.open
        self.outputs = {path: recording.slot_of(t) for path, t in outputs.items()}
        self.held = held
        self.places = {step.place: step for step in self.steps}

    def run(self, edits, inputs):
        """
        The outputs by path where the operators at some places are others, as in `Edited`, and
        some inputs, by path, hold something else; None where the run has to be made.
        """
        values = {self.inputs[path].number: t for path, t in inputs.items()}
        if not edits.keys() <= self.places.keys():
            return None
        made = [s.number for place in edits for s in _slots(self.places[place].result)]
        if not self.unsure.isdisjoint([*made, *values]):
            return None
        try:
            with torch._C._AutoDispatchBelowAutograd():
                for step in self.steps:
                    edit = edits.get(step.place)
                    if edit is not None or not step.used.isdisjoint(values):
                        self._again(step, edit, values)
        except Unfit:
            return None
        return {path: self._value(slot, values) for path, slot in self.outputs.items()}

    def _value(self, slot, values):
        found = values.get(slot.number)
        return self.tensors[slot.number] if found is None else found

    def _again(self, step, edit, values):
        """Runs one operator on what is new."""
        def filled(value):
            return self._value(value, values) if isinstance(value, Slot) else value

        args, kwargs = mapped(step.args, filled), mapped(step.kwargs, filled)
        if edit is not None:
            out = self._edited(edit, step.func, tuple(args), kwargs)
        elif step.free or self.held is None:
            out = step.func(*args, **kwargs)
            out = self.held._wide(out) if self.held is not None else out
        else:
            out = self.held.__torch_dispatch__(step.func, (), args, kwargs)
        self._keep(step.result, out, values)

    def _edited(self, edit, func, args, kwargs):
        """What an edit gives; Unfit where it wrote what others read, which is as it was then."""
        given = [v for a in (*args, *kwargs.values()) for v in (a if isinstance(a, (list, tuple)) else (a,))]
        held = [(t, t.clone()) for t in given if isinstance(t, torch.Tensor)]
        try:
            with self.held or nullcontext():
                return edit(func, args, kwargs)
        finally:
            written = [t.copy_(was) for t, was in held if not _same_bits(t, was)]
            if written:
                raise Unfit

    def _keep(self, result, out, values):
        """Puts results where they belong, if they look as they did."""
        if isinstance(result, Slot):
            was = self.tensors[result.number]
            if not isinstance(out, torch.Tensor) or (out.shape, out.dtype, out.stride()) != (
                was.shape, was.dtype, was.stride()):  # fmt: skip
                raise Unfit
            values[result.number] = out
        elif isinstance(result, (list, tuple)):
            if not isinstance(out, (list, tuple)) or len(out) != len(result):
                raise Unfit
            for one, value in zip(result, out):
                self._keep(one, value, values)
        elif result is not out and result != out:
            raise Unfit  # Python may have gone another way


class Tapes:
    """What was recorded of one call, for the runs of its `Lab`."""

    def __init__(self, lab):
        self.lab = lab
        self.made = {}  # (dtype, places taken apart) -> Tape, or None

    def edited(self, edits, dtype):
        """The outputs with other operators at some places; None where the call has to be run."""
        tape = self._tape(dtype, {place[:i] for place in edits for i in range(1, len(place))})
        return tape and _finished(tape.run(edits, {}))

    def on(self, change, dtype):
        """The outputs where `change` gives some tensors other contents and nothing else; None
        where the call has to be run, or where that costs nothing more."""
        tape = self._tape(dtype, ()) if self.lab.source().held else None
        if tape is None:
            return None
        bound = self.lab.bound(dtype == torch.float64)
        fresh = {path: t._version for path, t in bound.tensors.items()}
        with tape.held:
            args, kwargs = change(list(bound.args), dict(bound.kwargs))
        written = {p: t.detach() for p, t in bound.tensors.items() if t._version != fresh[p]}
        inputs = changed_inputs((bound.args, bound.kwargs), (args, kwargs), bound.tensors, written)
        return _finished(tape.run({}, inputs)) if inputs is not None else None

    def _tape(self, dtype, places):
        key = dtype, frozenset(places)
        if key not in self.made:
            try:
                self.made[key] = self._recorded(dtype == torch.float64, places)
            except Exception:  # whatever a call does not bear
                self.made[key] = None
        return self.made[key]

    def _recorded(self, wide, places):
        source, bound = self.lab.source(), self.lab.bound(wide)
        held = self.lab.precision(wide) if source.held else None
        recording = Recording(bound.tensors, places, held.wider if held else ())

        def function(*args, **kwargs):
            with held or nullcontext(), recording:
                return source.run(*args, **kwargs)

        result = bound.run(function)
        return Tape(recording, outputs_of(self.lab.call, bound, result), held)


def _finished(outputs):
    return outputs and {p: doubles(plain(t)) for p, t in outputs.items()}


def _same_bits(a, b):
    whole = INTEGERS.get(a.element_size())
    return torch.equal(a.view(whole), b.view(whole)) if whole else torch.equal(a, b)


def _slots(value):
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _slots(item)


def changed_inputs(before, after, tensors, written):
    """
    Which inputs, by path, a change of arguments has given other contents; None where it changed
    anything else.

    Shapes: `before` and `after` are (args, kwargs); `tensors` the inputs by path, as in `before`,
    `written` those of them that were written.
    """
    paths = {id(t): path for path, t in tensors.items()}
    found = dict(written)

    def same(a, b):
        if isinstance(a, torch.Tensor):
            return _replaced(a, b, paths, found)
        if isinstance(a, (list, tuple)):
            return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
        if isinstance(a, dict):
            return type(a) is type(b) and a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
        return a is b or (type(a) is type(b) and isinstance(a, (bool, int, float, str)) and a == b)

    return found if same(list(before), list(after)) else None


def _replaced(a, b, paths, found):
    if a is b:
        return True
    if type(b) not in PLAIN or id(a) not in paths:
        return False
    if (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
        return False
    found[paths[id(a)]] = b.detach()
    return True
