# SPDX-License-Identifier: Apache-2.0
"""A text as it was run: a line for each function of torch that it called. The lines run again on other tensors, on
another device, in float64 or by another framework's names, so what a text does besides (assertions, counters, prints)
happens once. Serves `programs`. Needs torch for its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..calls.foreign import theirs

SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
SIGNS = {"neg": "-", "pos": "+", "invert": "~", "abs": "abs"}


class Place:
    """Stands for the side that runs."""

    def __repr__(self):
        return "device"


DEVICE = Place()


@dataclass(frozen=True)
class Ref:
    """A tensor of a run, by its number."""

    number: int


@dataclass
class Word:
    """How the text calls something: by a name of torch ("nn.functional.gelu"), as a method or an attribute of its first
    argument, an operator of Python, a module made of a class, or a function of one's own."""

    kind: str  # "name", "method", "get", "set", "operator", "swapped", "module", "own"
    name: str


@dataclass
class Step:
    function: object
    word: Word
    args: list
    kwargs: dict
    grad: bool = True  # whether the text asks for gradients there
    forms: tuple = ()  # shapes and dtypes of what came of it
    results: list | None = None  # numbers of the tensors that came of it; None where it raised


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_of(item)] if isinstance(value, (list, tuple)) else []


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with `change` of all in it that is no list, tuple, dict or slice."""
    if isinstance(value, tuple) and type(value) is not tuple:
        if isinstance(value, torch.Size):
            return value
        parts = [changed(item, change) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)  # of torch.return_types
    if type(value) in (list, tuple):
        return type(value)(changed(item, change) for item in value)
    if type(value) is dict:
        return {k: changed(v, change) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(changed(v, change) for v in (value.start, value.stop, value.step)))
    return change(value)


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written, as far as torch tells."""
    return 0 if tensor.is_inference() else tensor._version


def form(tensor: torch.Tensor) -> str:
    """Shape and dtype in words."""
    return f"{tuple(tensor.shape)} {tensor.dtype}".replace("torch.", "")


class Applied:
    """A module as a function of its weights, in the mode in which it is."""

    def __init__(self, layer):
        self.layer, self.modes = layer, [(m, m.training) for m in layer.raw.modules()]

    def __call__(self, state, args, kwargs):
        before = [(m, m.training) for m, _ in self.modes]
        try:
            self._set(self.modes)
            return torch.func.functional_call(self.layer.raw, state, tuple(args), kwargs)
        finally:
            self._set(before)

    @staticmethod
    def _set(modes):
        for module, training in modes:
            module.training = training


class MadeCalls:
    """What a run of a text called."""

    def __init__(self, made):
        self.lines, self.n = [], 0
        self.made, self.leaves, self.said = (
            made,
            [],
            [],
        )  # the tensors that it begins with, their numbers, how they are drawn
        self.modules = []  # how the modules of the text were made
        self.constants = {}  # number -> a tensor that the text brought, as it was
        self.known = {}  # id -> (number, tensor, its version), while the text runs
        self.kept = []  # numbers of what is judged

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor that came up; the same one for a tensor that is known."""
        found = self.known.get(id(tensor))
        if found is None:
            found = self.known[id(tensor)] = self.n, tensor, [0]
            self.n += 1
        found[2][0] = version(tensor)
        return found[0]

    def leaf(self, tensor: torch.Tensor, said: str) -> None:
        self.leaves.append(self.number(tensor))
        self.said.append(said)

    def seen(self, tensor: torch.Tensor) -> Ref:
        """A tensor as an argument; one that no step made, or that was written beside them, is kept as it is now."""
        found = self.known.get(id(tensor))
        if found is None or found[2][0] != version(tensor):
            self.known.pop(id(tensor), None)
            number = self.number(tensor)
            self.constants[number] = tensor.detach().clone().requires_grad_(tensor.requires_grad and tensor.is_leaf)
            return Ref(number)
        return Ref(found[0])

    @property
    def pending(self) -> bool:
        """Whether the last step gave nothing."""
        return bool(self.lines) and self.lines[-1].results is None

    def add(self, function: Callable[..., Any], word: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.lines.append(Step(function, word, args, kwargs, torch.is_grad_enabled()))

    def done(self, result: Any) -> None:
        """Notes what came of the last step."""
        last = self.lines[-1]
        for known in self.known.values():  # what it wrote
            known[2][0] = version(known[1])
        last.results = [self.number(t) for t in tensors_of(result)]
        last.forms = [form(t) for t in tensors_of(result)]

    def end(self, kept: Sequence[torch.Tensor]) -> None:
        """The text has ended: what is judged of it. Its tensors may go."""
        self.kept = [self.seen(t).number for t in kept]
        self.lines = [step for step in self.lines if step.results is not None]  # the text caught what others raised
        self.known = {}

    def run(self, leaves: Sequence[torch.Tensor], place: Any) -> list[torch.Tensor]:
        """What is judged, of a run on other tensors."""
        run = Run(self, leaves, place)
        run.go_on()
        return run.kept()


class Run:
    """The steps on other tensors, as far as they are known; those that the text began with, unless others are given."""

    def __init__(self, steps, leaves, place):
        self.steps, self.place, self.at = steps, place, 0
        self.tensors = dict(zip(steps.leaves, leaves))

    def go_on(self, to: int | None = None) -> None:
        """Runs what has not run yet."""
        for step in self.steps.lines[self.at : to]:
            self.at += 1
            with torch.set_grad_enabled(step.grad and torch.is_grad_enabled()):
                result = self.call(step, *self.given((list(step.args), step.kwargs)))
            for number, tensor in zip(step.results or (), self.found(result)):
                self.tensors[number] = tensor

    def call(self, step: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return theirs(step.function, *args, **kwargs)

    def found(self, result: Any) -> list[torch.Tensor]:
        return tensors_of(result)

    def given(self, value: Any) -> Any:
        return changed(value, self._given)

    def _given(self, value):
        if value is DEVICE:
            return self.place
        return self.tensor(value.number) if isinstance(value, Ref) else value

    def tensor(self, number: int) -> torch.Tensor:
        if number not in self.tensors:
            made = self.steps.constants.get(number)
            self.tensors[number] = self.moved(
                self.steps.made[self.steps.leaves.index(number)] if made is None else made
            )
        return self.tensors[number]

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor of the text where the steps run."""
        if torch.device(self.place).type == tensor.device.type:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return tensor.detach().to(self.place).requires_grad_(tensor.requires_grad)

    def kept(self) -> list[torch.Tensor]:
        return [self.tensor(n) for n in self.steps.kept]


# ---- in words --------------------------------------------------------------------------


def text(steps: MadeCalls, wanted: set[int] | None = None) -> list[str]:
    """The run as lines: what it began with, then what it called, as far as the tensors numbered `wanted` hang on it."""
    lines = steps.lines if wanted is None else behind(steps, set(wanted))
    words = Words(steps)
    used = {n for step in lines for n in numbers((step.args, step.kwargs))} | set(
        steps.leaves if wanted is None else wanted
    )
    told = [words.begin(i) for i, n in enumerate(steps.leaves) if n in used and n not in words.weights]
    told += [
        words.module(made)
        for made in steps.modules
        if any(steps.leaves[made.leaf + i] in used for i in range(made.n_leaves))
    ]
    return told + [words.line(step) for step in lines]


def numbers(value: Any) -> list[int]:
    found = []
    changed(value, lambda v: found.append(v.number) if isinstance(v, Ref) else None)
    return found


def writes(step: Any) -> bool:
    name = step.word.name
    return step.word.kind == "set" or name == "setitem" or (name.endswith("_") and not name.endswith("__"))


def behind(steps: MadeCalls, wanted: set[int]) -> list[Any]:
    """The steps on which tensors hang."""
    kept = []
    for step in reversed(steps.lines):
        given = numbers((step.args, step.kwargs))
        if wanted & set(step.results or ()) or (writes(step) and wanted & set(given[:1])):
            kept.append(step)
            wanted |= set(given)
    return kept[::-1]


class Words:
    """Names for the tensors of a run: x0, x1, ... of those that it begins with, y0, ... of those that came up."""

    def __init__(self, steps):
        self.steps, self.names, self.weights = steps, {}, set()
        for i, made in enumerate(steps.modules):
            made.name = f"m{i}"
            for k, key in enumerate(made.keys):
                self.names[steps.leaves[made.leaf + k]] = f"m{i}.{key}"
                self.weights.add(steps.leaves[made.leaf + k])
        for i, number in enumerate(steps.leaves):
            self.names.setdefault(number, f"x{i}")

    def begin(self, i: int) -> str:
        made, said = self.steps.made[i], self.steps.said[i]
        sizes = f"{tuple(made.shape)}, dtype={made.dtype}" + (f", {said}" if said else "")
        return (
            f"{self.names[self.steps.leaves[i]]} = tensor({sizes}"
            + ("" if made.requires_grad else ", requires_grad=False")
            + ")"
        )

    def module(self, made: Any) -> str:
        weights = "; ".join(f"{key} {form(self.steps.made[made.leaf + k])}" for k, key in enumerate(made.keys))
        name = f"torch.{made.path}" if made.path else made.kind.__name__
        return f"{made.name} = {name}({self.listed(made.args, made.kwargs)})" + (f"  # {weights}" if weights else "")

    def listed(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        return ", ".join([*(self.one(a) for a in args), *(f"{k}={self.one(v)}" for k, v in kwargs.items())])

    def one(self, value: Any) -> str:
        """An argument as one writes it."""
        if isinstance(value, Ref):
            return self.name(value.number)
        if isinstance(value, slice):
            parts = [("" if v is None else self.one(v)) for v in (value.start, value.stop)]
            return ":".join(parts + ([self.one(value.step)] if value.step is not None else []))
        if type(value) in (list, tuple):
            inside = ", ".join(self.one(v) for v in value)
            return f"[{inside}]" if type(value) is list else f"({inside}{',' * (len(value) == 1)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.one(v)}" for k, v in value.items()) + "}"
        if callable(value) and hasattr(value, "__name__"):
            return value.__name__
        return "..." if value is Ellipsis else repr(value)

    def name(self, number: int) -> str:
        if number in self.steps.constants and number not in self.names:
            self.names[number] = f"tensor of the text {form(self.steps.constants[number])}"
        return self.names.setdefault(number, f"y{sum(name.startswith('y') for name in self.names.values())}")

    def line(self, step: Any) -> str:
        called = self.called(step, *step.args)
        inplace = step.word.kind == "operator" and step.word.name.startswith("i") and step.word.name != "invert"
        results = "" if inplace else ", ".join(dict.fromkeys(self.name(n) for n in step.results or ()))
        forms = ", ".join(step.forms)
        return (f"{results} = {called}" if results else called) + (f"  # {forms}" if forms else "")

    def called(self, step: Any, first: Any = None, *rest: Any) -> str:
        kind, name = step.word.kind, step.word.name
        if kind == "module":
            path = f"{step.function.layer.made.name}.{step.function.layer.path}".rstrip(".")
            return f"{path}({self.listed(*rest)})"
        if kind == "get":
            return f"{self.one(first)}.{name}"
        if kind == "set":
            return f"{self.one(first)}.{rest[0]} = {self.one(rest[1])}"
        if kind == "method":
            return f"{self.one(first)}.{name}({self.listed(rest, step.kwargs)})"
        if kind == "operator":
            return self.operation(name, self.one(first), *rest)
        if kind == "function":
            name = torch.overrides.resolve_name(step.function) or getattr(
                step.function, "__name__", repr(step.function)
            )
        return f"{'torch.' if kind == 'name' else ''}{name}({self.listed(step.args, step.kwargs)})"

    def operation(self, name: str, first: Any, *rest: Any) -> str:
        if name == "getitem":
            return f"{first}[{self.key(rest[0])}]"
        if name == "setitem":
            return f"{first}[{self.key(rest[0])}] = {self.one(rest[1])}"
        if name in SIGNS:
            return f"abs({first})" if name == "abs" else f"{SIGNS[name]}{first}"
        if name.startswith("i"):
            return f"{first} {SYMBOLS[name[1:]]}= {self.one(rest[0])}"
        return f"{first} {SYMBOLS[name.strip('_')]} {self.one(rest[0])}"

    def key(self, value: Any) -> str:
        return ", ".join(self.one(v) for v in value) if type(value) is tuple and value else self.one(value)
