# SPDX-License-Identifier: Apache-2.0
"""One call with what is known of it, and runs of it that are wrong on purpose: with an edit of one
of its operators, which `graph` computes, or with an argument that is another. `edits`, `inside`
and `edges` say which are worth a try; `diagnose` whether one explains what a device gave. Needs
of torch: what `graph` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch

from ..calls.flex import in_the_open
from ..calls.foreign import foreign, theirs, tried
from ..calls.nested import rebuilt, tensors_in
from ..calls.replay import Bound, Call, bind_cast, computed, widened
from ..calls.call_results import outputs_of, plain
from ..executors.formats import to_format
from ..executors.precision import Source, Widen, cpu_kernel
from .graph import Given, Graph, Node, PLAIN, Recording, Slot, slots_in

if TYPE_CHECKING:
    from ..calls.torch_private import OpOverload
    from ..executors.reference_runs import Reference

TWINS = {"TF32": "float16", "float16": "TF32"}  # 11 bits each; their range alone is another


class Lab:
    """One call, the graphs of its runs in two precisions."""

    def __init__(self, call: Call, reference: Reference) -> None:
        self.call, self.reference = call, reference
        self.dtype = torch.float64  # of runs that do not say
        self.chance: torch.Generator | None = None  # in runs whose roundings are to tell nothing but their size
        self.twin, self.twins = False, 0  # whether float16 and TF32 change places; how often they did
        self._graphs: dict[torch.dtype, Graph | None] = {}

    # ---- runs ----

    def run(self, edit: dict[Any, Any] | Callable[..., Any]) -> dict[str, torch.Tensor]:
        """The call's outputs with an edit: of operators, {place: what runs there}, of arguments, {path:
        function(tensors by path)}, or a function that gives the outputs."""
        if callable(edit):
            outputs: dict[str, torch.Tensor] = edit()
            return outputs
        if all(isinstance(at, tuple) for at in edit):
            return self.edited(edit)
        return self.changed(lambda tensors: {path: new(tensors) for path, new in edit.items()})

    def changed(self, make: Callable[..., Any], dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
        """The call's outputs by path, floats as doubles, with other arguments: those that
        `make(tensors by path)` gives, by path."""
        dtype = dtype or self.dtype
        graph, wide = self.graph(dtype), dtype == torch.float64
        if graph is not None:
            bound = self.bound(wide)
            new = self._made(make, bound, graph.held)
            if all(p in graph.inputs and _alike(bound.tensors[p], v) for p, v in new.items()):
                with suppress(LookupError):
                    return _finished(graph.run({}, self._put(bound, new) if graph.written else new))
        source = self.source()
        try:
            return self._run(make, wide, self.precision(wide) if source.held else None)
        except Exception as problem:  # one that cannot bear to be held to a precision runs as it is
            foreign(problem)
            if not source.held:
                raise
            return self._run(make, wide, None)

    def halfway(self, edit: dict[Any, Any] | Callable[..., Any]) -> dict[str, torch.Tensor]:
        """The call's outputs where floats go half the way of an edit; LookupError where none are edited."""
        if callable(edit):
            raise LookupError("a run of its own")
        if all(isinstance(at, tuple) for at in edit):
            return self.edited({place: _half_of(one) for place, one in edit.items()})
        return self.changed(lambda tensors: {path: _between(tensors[path], new(tensors)) for path, new in edit.items()})

    @staticmethod
    def _made(make: Callable[..., Any], bound: Bound, held: Widen | None) -> dict[str, Any]:
        with torch.no_grad(), held or nullcontext():
            new: dict[str, Any] = make(bound.tensors)
            return new

    def _run(self, make: Callable[..., Any], wide: bool, held: Widen | None) -> dict[str, torch.Tensor]:
        bound = self.bound(wide)
        arguments = _replaced([bound.args, bound.kwargs], self._put(bound, self._made(make, bound, held)))
        bound.args, bound.kwargs = arguments

        def function(*args: Any, **kwargs: Any) -> Any:
            with held or nullcontext():
                return theirs(self.source().run, *args, **kwargs)

        with in_the_open():
            result = bound.run(function)
        return _finished(outputs_of(self.call, bound, result))

    def _put(self, bound: Bound, new: dict[str, Any]) -> dict[str, Any]:
        """All tensors of a run, and what is new in it; what the call writes stays the same tensor."""
        for path in set(self.call.written()) & new.keys():
            if new[path] is not None and path in bound.tensors and bound.tensors[path].shape == new[path].shape:
                with torch.no_grad():
                    new = new | {path: bound.tensors[path].copy_(new[path].clone())}
        return bound.tensors | new

    def edited(
        self,
        edits: Mapping[tuple[int, ...], Callable[..., Any] | Given],
        dtype: torch.dtype | None = None,
        contents: dict[tuple[int, torch.dtype], torch.Tensor] | None = None,
    ) -> dict[str, torch.Tensor]:
        """The call with other operators at some places, and with other contents of its inputs as
        in `bind_cast`. LookupError where that cannot be told."""
        dtype = dtype or self.dtype
        graph = self.graph(dtype)
        if graph is None:
            raise LookupError("nothing is known of the inside")
        fresh = self.bound(dtype == torch.float64, contents).tensors if graph.written or contents else {}
        return _finished(graph.run(edits, fresh))

    def rounded(
        self, x: torch.Tensor, name: str, integer: Callable[[torch.Tensor], torch.Tensor] = torch.round
    ) -> torch.Tensor:
        """`x` rounded to a format, as doubles; with `chance` moved as far, to no grid, and with `twin`
        to the other format of as many bits."""
        if self.twin and name in TWINS:
            name, self.twins = TWINS[name], self.twins + 1
        chance = self.chance
        if chance is None:
            return to_format(x, name, integer)
        return to_format(x, name, lambda y: y + _drawn(y, integer, chance))

    @property
    def plain(self) -> bool:
        """Whether roundings are those that an emulation asks for."""
        return self.chance is None and not self.twin

    def in_twin(self, run: Callable[..., Any]) -> dict[str, torch.Tensor] | None:
        """What a run gives with float16 for TF32 and TF32 for float16; None where it rounds to neither."""
        self.twin, self.twins = True, 0
        try:
            outputs = run()
        finally:
            self.twin = False
        return outputs if self.twins else None

    def in_float32(self, run: Callable[..., Any]) -> dict[str, torch.Tensor]:
        """What a mistake gives in float32, by path; nothing where it is none there."""
        self.dtype = torch.float32
        try:
            with tried():  # it may be none in float32
                outputs: dict[str, torch.Tensor] = run()
                return outputs
            return {}
        finally:
            self.dtype = torch.float64

    # ---- what is run ----

    def bound(self, wide: bool, contents: dict[tuple[int, torch.dtype], torch.Tensor] | None = None) -> Bound:
        """The call's arguments in float64, or in float32."""
        return bind_cast(self.call, self.reference.parts, widened if wide else computed, contents)

    def source(self) -> Source:
        """What the truth was computed from."""
        if self.call.composite:
            return Source(self.call.function, held=True)
        chosen = self.reference._chosen.get(widened)
        return chosen or Source(cpu_kernel(self.call), held=True)

    def precision(self, wide: bool) -> Widen:
        """The mode that keeps a run in one precision."""
        whole = any(p.dtype == torch.float64 for p in self.reference.parts.values())
        return Widen(torch.float64 if wide or whole else torch.float32)

    def nodes(self) -> list[Node]:
        """Every operator inside the call, in the order of their calls, compound ones before what
        they consist of; empty where the call cannot be looked into."""
        graph = self.graph(torch.float64)
        return graph.nodes if graph else []

    def gives(self, path: str, kind: str) -> bool:
        """Whether an output is what an operator of some kind gives, as it gives it."""
        graph = self.graph(torch.float64)
        made = graph.outputs.get(path) if graph else None
        return made is not None and any(made in slots_in(n.result) for n in self.nodes() if kind in n.name)

    def reaches(self, size: float) -> bool:
        """Whether any number that the call is given is larger."""
        parts = [p.data for p in self.reference.parts.values() if p.dtype.is_floating_point]
        return any(bool((p.abs() > size).any()) for p in parts)

    def is_constant(self, slot: Slot) -> bool:
        """Whether a tensor of the run is one number everywhere."""
        found = self.wide_graph().tensors[slot.number].reshape(-1)
        return bool((found == found[:1]).all())

    def graph(self, dtype: torch.dtype) -> Graph | None:
        """The run in one precision as it was recorded, None where it cannot be."""
        if dtype not in self._graphs:
            self._graphs[dtype] = None
            with tried():  # whatever a call does not bear
                self._graphs[dtype] = self._recorded(dtype == torch.float64)
        return self._graphs[dtype]

    def wide_graph(self) -> Graph:
        """The run in float64, for who has nodes of it."""
        graph = self.graph(torch.float64)
        assert graph is not None
        return graph

    def _recorded(self, wide: bool) -> Graph:
        source, bound = self.source(), self.bound(wide)
        held = self.precision(wide) if source.held else None
        recording = Recording(bound.tensors, narrow=held.wider if held else ())

        def function(*args: Any, **kwargs: Any) -> Any:
            with held or nullcontext(), recording:
                return theirs(source.run, *args, **kwargs)

        with in_the_open():
            result = bound.run(function)
        quantized = any(t.is_quantized for t in tensors_in(result))
        with recording if quantized else nullcontext():  # its integers are what is judged
            outputs = outputs_of(self.call, bound, result)
        return Graph(recording, outputs, held)


def _half_of(edit: Callable[..., Any] | Given) -> Given:
    """An edit of an operator that gives the middle between what it gave and what `edit` makes of it."""
    change, slots = (edit.change, edit.slots) if isinstance(edit, Given) else (edit, ())

    def half(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], *tensors: torch.Tensor) -> torch.Tensor:
        return _between(func(*args, **kwargs), change(func, args, kwargs, *tensors))

    return Given(half, slots)


def _between(old: Any, new: torch.Tensor) -> torch.Tensor:
    if not isinstance(old, torch.Tensor) or not old.is_floating_point() or new.shape != old.shape:
        raise LookupError("nothing lies between")
    return (old + new) / 2


def _drawn(y: torch.Tensor, integer: Callable[[torch.Tensor], torch.Tensor], chance: torch.Generator) -> torch.Tensor:
    """As far as `integer` moves a number, as often the same way."""
    part = torch.rand(y.shape, generator=chance, dtype=y.dtype)
    return part - 0.5 if integer is torch.round else -part * y.sign()


def _finished(outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {p: doubles(plain(t)) for p, t in outputs.items()}


def doubles(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor


def _alike(old: torch.Tensor, new: Any) -> bool:
    """Whether a tensor may stand for another where a run was written down."""
    return type(new) in PLAIN and (new.shape, new.dtype) == (old.shape, old.dtype)


def _replaced(arguments: list[Any], new: dict[str, Any]) -> list[Any]:
    """Arguments, [positional, by name], with what is new by path."""

    def leaf(value: Any, path: str) -> Any:
        if path in new:
            made = new[path]
            grad = isinstance(value, torch.Tensor) and value.requires_grad and isinstance(made, torch.Tensor)
            return made.detach().requires_grad_() if grad and made is not value else made
        if isinstance(value, dict):
            return rebuilt(value, lambda k, v: leaf(v, f"{path}.{k}"))
        return rebuilt(value, lambda i, v: leaf(v, f"{path}[{i}]")) if isinstance(value, (list, tuple)) else value

    return [leaf(value, path) for value, path in zip(arguments, ("args", "kwargs"))]


# ---- arguments of the call -----------------------------------------------------------


def leaves(call: Call) -> list[tuple[str, str, Any]]:
    """(path, name, value) of every argument leaf; tensors as their View."""
    found: list[tuple[str, str, Any]] = []

    def walk(value: Any, path: str, name: str) -> None:
        stands = getattr(value, "path", None)
        if stands is not None and stands in call.views:
            found.append((stands, name, call.views[stands]))
        elif isinstance(value, dict):
            for k, v in value.items():
                walk(v, f"{path}.{k}", str(k))
        elif isinstance(value, (list, tuple)) and value and not _sizes(value):
            for i, v in enumerate(value):
                walk(v, f"{path}[{i}]", name)
        else:
            found.append((path, name, value))

    names = names_of(call)
    for i, a in enumerate(call.args):
        walk(a, f"args[{i}]", names[i])
    for k, v in call.kwargs.items():
        walk(v, f"kwargs.{k}", k)
    return found


def _sizes(value: Sequence[Any]) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) for v in value)


def names_of(call: Call) -> list[str]:
    """Names of the positional arguments, "" where they are unknown."""
    if call.schema:
        names = [a.name for a in call.schema.arguments]
    else:
        from ..calls.callable import parameter_names

        schema = getattr(call.function, "_schema", None)
        names = (
            [a.name for a in schema.arguments] if schema is not None else parameter_names(call.function, len(call.args))
        )
        head = len(call.args) - len(names)
        names = [""] * max(head, 0) + names
    return (names + [""] * len(call.args))[: len(call.args)]
