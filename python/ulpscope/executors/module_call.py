# SPDX-License-Identifier: Apache-2.0
"""The forward of a module, rebuilt from the calls of a trace as one callable: what one call
gives is what the next one takes. Everything else that a call takes is an input, as it was
captured, and so is what cannot be replayed: random draws, memory that nobody has filled.

The coordinator (src/call/forwards.c) says which calls; `compiled` has the graph compiled, `reference` replays it in
another precision.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ..calls.callable import Composite, learn
from ..calls.foreign import theirs
from ..calls.read_call import bare_call, fill_storage, tensor_of, view_of
from ..calls.nested import TensorAt, mapped, substitute
from ..calls.replay import (
    BadCall,
    Call,
    draws_random,
    is_collective,
    is_write,
    makes_on_default_device,
    promises_nothing,
)
from ..calls.torch_private import disable_current_modes
from .formats import NATIVE
from .precision import STANDARD, sources_of, space_of

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_CALLS = 256  # of one graph; the modules inside a larger one are judged
LOW = {dtype: name for name, dtype in NATIVE.items()}


@dataclass
class ModuleStep:
    """One call of the graph."""

    call: object
    takes: dict  # path of an argument -> number of the value
    gives: list  # (path of a result, number of the value)
    numbers: dict = field(default_factory=dict)  # path of an argument -> a Python number


@dataclass
class ModuleCall(Composite):
    """A forward pass; its arguments are the tensors that come from outside."""

    steps_taken: list[Any] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)  # numbers of the values that it returns
    gave: list[dict[str, Any]] = field(default_factory=list)  # their rows, as they were captured
    # path -> row, of inputs that it writes and others read behind it
    wrote: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, str]:
        """What makes two forwards the same code."""
        return "module", repr(
            [
                (
                    s.call.op,
                    id(s.call.function),
                    repr(s.call.args),
                    repr(s.call.kwargs),
                    list(s.takes.items()),
                    s.gives,
                    list(s.numbers.items()),
                )
                for s in self.steps_taken
            ]
            + self.kept
        )

    def on(self, place: Callable[[str], Any]) -> Callable[..., Any]:
        """The forward as a function of its tensors, on the device that `place` names."""
        return lambda *tensors: self.replay(tensors, place)

    def on_host(self) -> Callable[..., Any]:
        """The forward as a function of its tensors on the CPU, an extension's operators by their formulas: those
        round what they give, and nothing inside."""
        return lambda *tensors: self.replay(tensors, function_of=_rounds_once)

    def replay(
        self,
        tensors: Iterable[Any],
        place: Callable[[str], Any] = lambda captured: "cpu",
        apply: Callable[..., Any] | None = None,
        function_of: Callable[..., Any] | None = None,
    ) -> tuple[Any, ...] | None:
        """Takes the steps on tensors, or on nodes of a graph that `apply(function, args,
        kwargs)` adds to."""
        apply = apply or _plainly
        values = list(tensors)
        for step in self.steps_taken:
            call, at = step.call, dict(step.numbers)
            at.update((path, values[n]) for path, n in step.takes.items())
            args = tuple(substitute(a, at, None, place) for a in call.args)
            kwargs = {k: substitute(a, at, None, place) for k, a in call.kwargs.items()}
            if call.schema and makes_on_default_device(call):
                kwargs["device"] = place("cpu")
            function = function_of(call) if function_of else call.function
            result = apply(function, args, kwargs)
            for path, n in step.gives:
                assert n == len(values)
                values.append(_part(result, path, call, apply))
        return tuple(values[n] for n in self.kept) or None


def _part(result, path, call, apply):
    """What a path like out[1] or out[0][2] is of a result or of its node."""
    indices = [int(i) for i in re.findall(r"\[(\d+)\]", path)]
    for i in indices if _gives_several(call) else indices[1:]:
        result = apply(operator.getitem, (result, i), {})
    return result


def _gives_several(call):
    return call.schema is not None and len(call.schema.returns) > 1


def _on_cpu(call):
    """What computes a step of the reference: an extension's operator by its formula."""
    return call.function if space_of(call.op) in STANDARD else sources_of(call)[0].run


def _rounds_once(call):
    """The same, as an honest kernel has it: a formula runs in float32, what is given in 16 bits is rounded to them."""
    function, low = _on_cpu(call), {p: v.dtype for p, v in call.results.items() if v.dtype in LOW}
    if function is call.function or call.mutated or not low:
        return function

    def run(*args, **kwargs):
        with disable_current_modes():  # to whom it is one operator
            wide = theirs(function, *mapped(args, _wide), **mapped(kwargs, _wide))
        for path, dtype in low.items():
            wide = _put(
                wide, [int(i) for i in re.findall(r"\[(\d+)\]", path)][0 if _gives_several(call) else 1 :], dtype
            )
        return wide

    return run


def _wide(value):
    if isinstance(value, torch.dtype):
        return torch.float32 if value in LOW else value
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in LOW else value


def _put(value, places, dtype):
    """A result in a dtype at a place."""
    if not places:
        return value.to(dtype)
    return type(value)(_put(v, places[1:], dtype) if i == places[0] else v for i, v in enumerate(value))


def _plainly(function, args, kwargs):
    return theirs(function, *args, **kwargs)


class Builder:
    """Goes through the calls of a forward and wires them."""

    def __init__(self, read_blob):
        self.read_blob = read_blob
        self.inputs, self.made = [], []  # rows of tensors by number of the value
        self.known = {}  # (version, dtype, sizes, strides, offset) -> number of the value
        self.current = {}  # storage -> version
        self.writes = {}  # number of an input -> rows of what was written to it, in their order
        self.steps, self.left_out = [], []
        self.together = []  # numbers of what one call made
        self.read = set()  # versions that a step computes with

    def add(self, row: dict[str, Any]) -> None:
        """One call. Values are told apart by kind until all inputs are known, see `number`."""
        call = None if is_collective(row["op"]) else bare_call(row)
        if call is None or draws_random(call) or promises_nothing(call):
            self.left_out.append(row["op"])
            for t in row["tensors"]:
                if t["role"] != "in":
                    self._forget(t["storage"])
            return
        numbers, before = self._numbers(row), set(self.read)
        takes = {t["path"]: self._take(t) for t in row["tensors"] if t["role"] == "in" and t["path"] not in numbers}
        gives = []
        for t in row["tensors"]:
            if t["role"] == "mutated":
                self._renew(t)
        for t in row["tensors"]:
            if t["role"] == "out" and _key(t) not in self.known:
                self.current[t["storage"]] = t["version"]
                self.made.append(t)
                self.known[_key(t)] = ("made", len(self.made) - 1)
                gives.append((t["path"], self.known[_key(t)]))
        self.together.append([n for _, (_, n) in gives])
        if _only_shows(call):  # what it is given is what it gives
            self.read = before
        self.steps.append(ModuleStep(call, takes, gives, numbers))

    def _numbers(self, row):
        """Python numbers among the tensors of a call (`x * 0.5`): torch hands them on in
        float64, which would lift the precision of all the rest."""
        given = [t for t in row["tensors"] if t["role"] == "in"]
        written = {t["path"] for t in row["tensors"] if t["role"] == "mutated"}
        if not any(t["dtype"] != "float64" and "float" in t["dtype"] for t in given):
            return {}
        found = (
            t for t in given if t["dtype"] == "float64" and not t["sizes"] and t["blob"] and t["path"] not in written
        )
        return {t["path"]: float(tensor_of(t, self.read_blob)) for t in found}

    def _take(self, t):
        """Where an argument comes from."""
        if self.current.get(t["storage"]) != t["version"]:
            self._forget(t["storage"])
            self.current[t["storage"]] = t["version"]
        key = _key(t)
        if key not in self.known:
            self.inputs.append(t)
            self.known[key] = ("input", len(self.inputs) - 1)
        self.read.add(t["version"])
        return self.known[key]

    def _forget(self, storage):
        version = self.current.pop(storage, None)
        self.known = {k: v for k, v in self.known.items() if k[0] != version}

    def _renew(self, t):
        """A write: what saw the storage before sees its new content."""
        before = self.current.get(t["storage"])
        self.current[t["storage"]] = t["version"]
        for key, (kind, n) in self.known.items():
            if key[0] == before and kind == "input":
                self.writes.setdefault(n, []).append(t)
        self.known = {((t["version"], *k[1:]) if k[0] == before else k): v for k, v in self.known.items()}
        self.made = [
            {**m, "version": t["version"], "writes": (*m.get("writes", ()), t)} if m["version"] == before else m
            for m in self.made
        ]

    def number(self, value: tuple[str, int]) -> int:
        """Inputs come before what is made."""
        kind, n = value
        return n if kind == "input" else len(self.inputs) + n

    def kept(self, wanted: set[int]) -> list[int]:
        """Of every version that others read (where none is, that no step reads) the widest
        tensor; without those that only show an input, unless there is nothing else."""
        shown = {t["storage"] for t in self.inputs}
        wanted = wanted or self._unread()
        best = {}
        for n, t in enumerate(self.made):
            if t["version"] in wanted:
                rank = (t["storage"] not in shown, not _expanded(t), _numel(t), n)
                best[t["version"]] = max(best.get(t["version"], rank), rank)
        fresh = [r for r in best.values() if r[0]]
        return sorted(r[-1] for r in fresh or best.values())

    def _unread(self):
        """Versions that no step reads, without what a step gives beside one that is read: a norm's statistics, which
        are there for a backward that does not come."""
        unread = {t["version"] for t in self.made} - self.read
        beside = set()
        for numbers in self.together:
            versions = {self.made[n]["version"] for n in numbers}
            beside |= versions & unread if versions & self.read else set()
        return unread - beside or unread

    def written(self, wanted: set[int] | None) -> dict[str, dict[str, Any]]:
        """Of the inputs that were written those that others read, as they are behind the last write."""
        return {
            f"args[{n}]": {**self.inputs[n], "writes": rows}
            for n, rows in self.writes.items()
            if wanted is None or rows[-1]["version"] in wanted
        }


def _only_shows(call):
    returns = call.schema.returns if call.schema else ()
    return bool(returns) and all(r.alias_info is not None and not is_write(r) for r in returns)


def _key(t):
    return t["version"], t["dtype"], tuple(t["sizes"]), tuple(t["strides"]), t["offset"]


def _numel(t):
    n = 1
    for size in t["sizes"]:
        n *= size
    return n


def _expanded(t):
    return any(step == 0 and size > 1 for size, step in zip(t["sizes"], t["strides"]))


def arguments(call: Call) -> list[tuple[int, str, float, str]]:
    """The metric that keeps how the inputs of a module were laid out and what their statistics
    are, as a list; a trace alone does not tell what they are."""
    names = "path", "role", "dtype", "sizes", "strides", "offset", "device"
    told = [
        {k: t[k] for k in names} | ({"stats": json.loads(t["stats"])} if t.get("stats") else {})
        for t in call.row["tensors"]
    ]
    return [(-1, "arguments", 0.0, json.dumps(told))] if told else []


def module_call(
    request: dict[str, Any],
    row_of: Callable[[int], dict[str, Any]],
    read_blob: Callable[[int], Any],
    stand_in: Callable[..., Any] | None = None,
) -> ModuleCall:
    """
    The forward that a request of `_modules` names, as a Composite call.

    `row_of(sequence)` gives a row of the trace, `read_blob` and `stand_in` as for
    `calls.read_call.call_from`. BadCall where it cannot be rebuilt.
    """
    if len(request["calls"]) > MOST_CALLS:
        raise BadCall(f"{len(request['calls'])} calls are too many for one graph; the modules inside it are judged")
    builder = Builder(read_blob)
    for sequence in request["calls"]:
        builder.add(row_of(sequence))
    kept = builder.kept(set(request["kept"]))
    wrote = builder.written(set(request["kept"]) if kept else None)
    if not kept and not wrote:
        what = ", ".join(sorted(set(builder.left_out))) or "it"
        raise BadCall(f"nothing in it can be replayed: {what} draws, waits for other ranks or gives no tensor")
    call = _assembled(builder, kept, request["source"], read_blob, stand_in)
    call.function = lambda *tensors: call.replay(tensors, function_of=_on_cpu)
    call.wrote = wrote
    learn(call)
    call.chained = call.low and call.steps > 1  # casts of autocast are steps of it
    return call


def first_calls(request: dict, n: int, row_of: Callable[[int], dict]) -> dict:
    """The request for a forward up to its n-th call: it gives what the calls behind that read, and what others do."""
    later = {t["version"] for s in request["calls"][n:] for t in row_of(s)["tensors"] if t["role"] == "in"}
    return request | {"calls": request["calls"][:n], "kept": sorted(later | set(request["kept"]))}


def all_values(request: dict, row_of: Callable[[int], dict]) -> dict:
    """The request for a forward that gives what each of its calls makes."""
    made = {t["version"] for s in request["calls"] for t in row_of(s)["tensors"] if t["role"] != "in"}
    return request | {"kept": sorted(made | set(request["kept"]))}


def _assembled(builder, kept, source, read_blob, stand_in):
    """The call with its inputs, by version of their storages, so that what shares memory
    does so again."""
    tensors = [{**t, "path": f"args[{i}]", "storage": t["version"]} for i, t in enumerate(builder.inputs)]
    call = ModuleCall(
        source["sequence"],
        source["op"],
        [TensorAt(t["path"]) for t in tensors],
        {},
        {t["path"]: view_of(t) for t in tensors},
        row={**source, "tensors": tensors},
        function=len,
        kept=[builder.number(("made", n)) for n in kept],
    )
    call.schema = None
    call.gave = [builder.made[n] for n in kept]
    call.results = {f"out[{i}]": view_of(builder.made[n]) for i, n in enumerate(kept)}
    for t in tensors:
        if t["storage"] not in call.storages:
            fill_storage(call, t, read_blob, stand_in)
    call.steps_taken = [
        ModuleStep(
            s.call,
            {p: builder.number(v) for p, v in s.takes.items()},
            [(p, builder.number(v)) for p, v in s.gives],
            s.numbers,
        )
        for s in builder.steps
    ]
    return call
