# SPDX-License-Identifier: Apache-2.0
"""One run of a call written down: its operators, what each was given and gave, compound ones with
the simpler ones that compute the same; and runs that differ from it by an edit, of which only what
follows is computed, without autograd, dispatch modes or the callable's own Python.

An edit is a place and a function(func, args, kwargs) that runs there in the operator's stead, or a
`Given`, whose function is handed other tensors of the run as well.
Everything that looks into a run goes through here: `lab` (edits of a call), `program` (a callable
as its operators). Needs of torch: dispatch modes, schemas, the guard that leaves autograd out.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..calls.foreign import tried
from ..calls.mode import Mode
from ..calls.nested import mapped
from ..calls.replay import base_name, is_write, written_names
from ..calls.torch_private import AutoDispatchBelowAutograd, bare_name, is_zerotensor
from ..executors.precision import FUSED, IN_FLOAT64
from .compound import inside_of

if TYPE_CHECKING:
    from types import FrameType
    from ..calls.torch_private import OpOverload
    from ..executors.precision import Widen

MOST_BYTES = 1 << 29  # that the results of all operators may take
PLAIN = (torch.Tensor, torch.nn.Parameter)
NESTS = (list, tuple, dict)
PASSING = {"detach", "detach_", "alias", "lift_fresh", "lift"}  # autograd's own; not the same in every run
SENT = "ulpscope_sent"  # the module that a callable's code is in, over here


class Unfit(LookupError):
    """A run that cannot be written down, or an edit that leaves what was written down."""


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    storage: int

    @property
    def floats(self) -> bool:
        return bool(self.dtype.is_floating_point)


@dataclass
class Node:
    """One operator of a run: where it stands, what it was called with and what it gave, Slots in
    place of tensors."""

    place: tuple[int, ...]  # counters from the outside in
    func: OpOverload
    args: list[Any]
    kwargs: dict[str, Any]
    used: frozenset[int] = frozenset()  # numbers of the slots among the arguments
    site: tuple[int, ...] = ()  # the place of the code that runs it: several in a loop share one
    plain: bool = True  # runs as it is: nothing of it has to be kept in a precision
    result: Any = None
    inside: tuple[Node, ...] = ()  # operators that compute the same
    inner: Any = None  # what those give for `result`
    again: bool = False  # what it makes is written later: it runs in every run

    @property
    def name(self) -> str:
        return base_name(self.func._schema.name)[1].rstrip("_")

    @property
    def writes(self) -> bool:
        return any(is_write(a) for a in self.func._schema.arguments)

    @property
    def made(self) -> list[int]:
        return [s.storage for s in slots_in(self.result)]

    @property
    def shape(self) -> tuple[int, ...]:
        return next((s.shape for s in slots_in(self.result)), ())

    @property
    def floats(self) -> bool:
        return next((s.floats for s in slots_in(self.result)), False)

    def value(self, name: str) -> Any:
        """What an argument of the schema was."""
        for i, a in enumerate(self.func._schema.arguments):
            if a.name == name:
                if name in self.kwargs:
                    return self.kwargs[name]
                if i < len(self.args):
                    return self.args[i]
                return a.default_value if a.has_default_value() else None
        return None


@dataclass(frozen=True)
class Given:
    """An edit that takes other tensors of the run, which are there before its operator runs."""

    change: Callable[..., Any]  # function(func, args, kwargs, *tensors)
    slots: tuple[Slot, ...]


def slots_in(value: Any) -> Iterator[Slot]:
    """Every Slot of a nest of results or arguments."""
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from slots_in(item)


# ---- writing down --------------------------------------------------------------------------------


class Recording(Mode):
    """Runs operators as they are and writes down what it sees, with `deep` also the inside of
    compound ones. `inputs` are the run's tensors by name, `narrow` the dtypes that something
    below this mode widens."""

    def __init__(
        self, inputs: Mapping[Any, torch.Tensor], deep: bool = True, narrow: Collection[torch.dtype] = ()
    ) -> None:
        super().__init__()
        self.deep, self.narrow = deep, narrow
        self.nodes: list[Node] = []
        self.tensors: list[torch.Tensor] = []
        self.size, self.counter = 0, 0
        self.path: tuple[int, ...] = ()
        self.by_id: dict[int, tuple[Slot, torch.Tensor, tuple[Any, ...]]] = {}
        self.by_key: dict[tuple[Any, ...], Slot] = {}
        self.written: set[int] = set()  # storages
        self.outside: dict[int, int] = {}  # numbers of tensors that were no input
        self.inputs: dict[Any, Slot] = {name: self._made(t) for name, t in inputs.items()}

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if bare_name(func) in PASSING:
            return func(*args, **kwargs)
        if not hasattr(func, "_schema"):
            raise Unfit(str(func))
        node = self._noted(func, args, kwargs)
        self.nodes.append(node)
        out = func(*args, **kwargs)
        node.result = mapped(out, self._result)
        if self.deep and not node.writes and inside_of(func) is not None:
            self._take_apart(node, args, kwargs, out)
        return out

    def _noted(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        node = Node((*self.path, self.counter), func, *mapped([list(args), kwargs], self._slot))
        self.counter += 1
        seen = list(slots_in([*node.args, *node.kwargs.values()]))
        node.used = frozenset(s.number for s in seen)
        node.site = _site()
        node.plain = not (
            node.writes
            or func in IN_FLOAT64
            or bare_name(func) in FUSED
            or any(s.dtype in self.narrow for s in seen)
            or any(isinstance(v, torch.dtype) for v in (*args, *kwargs.values()))
        )
        given = dict(zip(_defaults(func), node.args)) | node.kwargs
        names = written_names(func) | (STATISTICS if _keeps_statistics(func, given) else set())
        self.written |= {s.storage for n in names for s in slots_in(given.get(n))}
        if _draws(func, given):
            raise Unfit("draws random numbers")  # which are judged by their statistics
        return node

    def _take_apart(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Writes down what computes an operator from simpler ones, if that gives the like."""
        saved, n, size = (self.path, self.counter), len(self.nodes), self.size
        self.path, self.counter = node.place, 0
        whole = True
        try:
            with tried():  # not for these arguments: it stays whole
                self._fill(node, args, kwargs, n)
                whole = False
        finally:
            self.path, self.counter = saved
        if whole:
            del self.nodes[n:]
            node.inner, self.size = None, size

    def _fill(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any], n: int) -> None:
        inside = inside_of(node.func)
        assert inside is not None  # as the caller asked
        with self:
            made = inside(*args, **kwargs)
        node.inner = mapped(made, self._slot)
        if [(s.shape, s.dtype) for s in slots_in(node.inner)] != [(s.shape, s.dtype) for s in slots_in(node.result)]:
            raise Unfit("another result")
        node.inside = tuple(m for m in self.nodes[n:] if len(m.place) == len(node.place) + 1)

    def _result(self, value: Any) -> Any:
        """The slot of what an operator gave, that of an argument where it gave that back."""
        return (self._known(value) or self._made(value)) if isinstance(value, torch.Tensor) else value

    def _known(self, tensor: torch.Tensor) -> Slot | None:
        """The slot of this very tensor, None where it is new or was given another shape."""
        slot, _, key = self.by_id.get(id(tensor), (None, None, None))
        return slot if key == _key(tensor) else None

    def _made(self, tensor: torch.Tensor) -> Slot:
        """The slot of a tensor that is new."""
        key = _key(tensor)
        slot = Slot(len(self.tensors), tuple(tensor.shape), tensor.dtype, key[0])
        self.tensors.append(tensor.detach())
        self.by_id[id(tensor)] = slot, tensor, key  # alive, so that no address comes twice
        if not self.path or key not in self.by_key:  # what is outside of a compound one has no other
            self.by_key[key] = slot
        self.size += tensor.nbytes
        if self.size > MOST_BYTES:
            raise Unfit("more than may be kept")
        return slot

    def _slot(self, value: Any) -> Any:
        return self.slot_of(value) if isinstance(value, torch.Tensor) else value

    def slot_of(self, tensor: torch.Tensor) -> Slot:
        """The slot of a tensor, a new one where it comes from outside."""
        known = self._known(tensor) or self.by_key.get(_key(tensor))
        if known is None:
            known = self._made(tensor)
            self.outside[known.number] = known.storage
        return known


def _site() -> tuple[int, ...]:
    """The place in somebody's own code that is running, () where there is none."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name == SENT or name.partition(".")[0] not in ("torch", "ulpscope", "contextlib"):
            return (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back
    return ()


STATISTICS = {"running_mean", "running_var"}  # written by batch norms whose schemas do not say so


@functools.cache
def _defaults(func: OpOverload) -> dict[str, Any]:
    """The names of an operator's arguments with their defaults, None where there is none."""
    return {a.name: a.default_value if a.has_default_value() else None for a in func._schema.arguments}


def _keeps_statistics(func: OpOverload, given: dict[str, Any]) -> bool:
    return "running_mean" in _defaults(func) and bool(given.get("training", given.get("train", True)))


def _draws(func: OpOverload, given: dict[str, Any]) -> bool:
    draws = torch.Tag.nondeterministic_seeded in func.tags
    return bool(draws and given.get("dropout_p", _defaults(func).get("dropout_p")) != 0)


def _key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What tells a tensor from others: its place in memory and how it is read."""
    if type(tensor) not in PLAIN or tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise Unfit(f"a {type(tensor).__name__} on {tensor.device}")
    if is_zerotensor(tensor):
        raise Unfit("a tensor without elements of its own")
    return (
        tensor.untyped_storage().data_ptr(),
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )


# ---- runs that differ ----------------------------------------------------------------------------


class Graph:
    """A run as it was recorded; `outputs` are its tensors by path, `held` the mode that kept it
    in one precision, or None."""

    def __init__(self, recording: Recording, outputs: dict[str, torch.Tensor], held: Widen | None = None) -> None:
        self.nodes, self.tensors = recording.nodes, recording.tensors
        self.inputs: dict[str, Slot] = recording.inputs
        self.slots = {s.number: s for n in self.nodes for s in slots_in(n.result)}
        self.slots |= {s.number: s for s in self.inputs.values()}
        self.top = [n for n in self.nodes if len(n.place) == 1]
        self.places = {n.place for n in self.nodes}
        self.outputs = {path: recording.slot_of(t) for path, t in outputs.items()}
        self.held, self.written = held, recording.written
        own = {s.storage for s in self.inputs.values()}
        if not self.written.isdisjoint(set(recording.outside.values()) - own):
            raise Unfit("writes what it was not given")
        for node in self.nodes:
            node.again = not self.written.isdisjoint(node.made)

    def run(
        self, edits: Mapping[tuple[int, ...], Callable[..., Any] | Given], inputs: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """The outputs by path with the edits by place, and some inputs that hold something else;
        all of them, fresh, where the run writes. Unfit where it cannot be told what follows."""
        if not edits.keys() <= self.places:
            raise Unfit("no such place")
        opened = {place[:i] for place in edits for i in range(1, len(place))}
        values = {self.inputs[path].number: t for path, t in inputs.items()}
        with AutoDispatchBelowAutograd():
            self._go(self.top, edits, opened, values)
        found = {path: self._value(slot, values) for path, slot in self.outputs.items()}
        if any(found[p].shape != s.shape for p, s in self.outputs.items()):
            raise Unfit("a result of another shape")
        return found

    def _go(
        self,
        nodes: Iterable[Node],
        edits: Mapping[tuple[int, ...], Callable[..., Any] | Given],
        opened: set[tuple[int, ...]],
        values: dict[int, torch.Tensor],
    ) -> None:
        for node in nodes:
            if node.place in opened and node.place not in edits:
                self._go(node.inside, edits, opened, values)
                self._keep(node.result, self._filled(node.inner, values), values, shapes=True)
            elif node.place in edits or node.again or any(map(values.__contains__, node.used)):
                self._again(node, edits.get(node.place), values)

    def _value(self, slot: Slot, values: dict[int, torch.Tensor]) -> torch.Tensor:
        found = values.get(slot.number)
        return self.tensors[slot.number] if found is None else found

    def _mine(self, slot: Slot) -> Slot:
        """The slot of that number in this precision."""
        mine = self.slots.get(slot.number)
        if mine is None or mine.shape != slot.shape:
            raise Unfit("another run")
        return mine

    def _filled(self, nest: Any, values: dict[int, torch.Tensor]) -> Any:
        return mapped(nest, lambda v: self._value(v, values) if isinstance(v, Slot) else v)

    def _again(self, node: Node, edit: Callable[..., Any] | Given | None, values: dict[int, torch.Tensor]) -> None:
        """Runs one operator on what is new."""
        args = [
            self._value(a, values) if type(a) is Slot else self._filled(a, values) if type(a) in NESTS else a
            for a in node.args
        ]
        kwargs = self._filled(node.kwargs, values) if node.kwargs else {}
        if edit is not None:
            out = self._edited(node, edit, values)
        elif node.plain or self.held is None:
            out = node.func(*args, **kwargs)
            out = self.held._wide(out) if self.held is not None else out
        else:
            out = self.held.__torch_dispatch__(node.func, (), args, kwargs)
        indices = edit is not None and isinstance(out, torch.Tensor) and not out.is_floating_point()
        self._keep(node.result, out, values, shapes=indices)

    def _edited(self, node: Node, edit: Callable[..., Any] | Given, values: dict[int, torch.Tensor]) -> Any:
        """What an edit gives, in what the operator writes if it does that. What else the edit may
        write is a copy: others read it."""

        def own(value: Any) -> Any:
            if not isinstance(value, Slot):
                return value
            tensor = self._value(value, values)
            return tensor if value.storage in self.written else tensor.clone()

        args, kwargs = mapped([node.args, node.kwargs], own)
        others = [own(self._mine(slot)) for slot in edit.slots] if isinstance(edit, Given) else ()
        with self.held or nullcontext():
            change = edit.change if isinstance(edit, Given) else edit
            out = change(node.func, tuple(args), kwargs, *others)
        if node.writes and isinstance(out, torch.Tensor) and isinstance(node.result, Slot):
            into = args[0] if kwargs.get("out") is None else kwargs["out"]
            return out if out is into else into.copy_(out)
        return out

    def _keep(self, result: Any, out: Any, values: dict[int, torch.Tensor], shapes: bool = False) -> None:
        """Puts results where they belong. They may have another shape, as along another axis, but
        not with `shapes`: indices that were edited and what one kernel gives to another are trusted."""
        if isinstance(result, Slot):
            if not isinstance(out, torch.Tensor) or out.dtype != result.dtype:
                raise Unfit("another kind of result")
            was = self.tensors[result.number]
            if was.numel() and not out.numel():  # kernels take nothing for anything
                raise Unfit("a result without elements")
            if out.shape != was.shape and shapes:
                raise Unfit("a result of another shape")
            if out.shape == was.shape and out.stride() != was.stride():
                out = torch.empty_like(was).copy_(out)
            values[result.number] = out
        elif isinstance(result, (list, tuple)):
            if not isinstance(out, (list, tuple)) or len(out) != len(result):
                raise Unfit("another number of results")
            for one, value in zip(result, out):
                self._keep(one, value, values, shapes)
        elif result is not out and result != out:
            raise Unfit("Python may have gone another way")
