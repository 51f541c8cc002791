# SPDX-License-Identifier: Apache-2.0
"""Tests written as plain torch text, run on two sides with the same draws (`ulpscope.fuzzing`).

A first run on the CPU makes the tensors: those of `tensor()`, weights of modules. They are the
arguments of a function then, what the text called (`steps`), which `check_text` runs on the device and in float64.
A text that asks where it runs is run there itself.
Needs of torch: modules called with other parameters (`torch.func.functional_call`), make_fx and a way out of its mode.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from ..calls.callable import parameters
from ..calls.foreign import theirs
from ..calls.torch_older import is_autocast_on
from ..calls.torch_private import disable_current_modes
from .generators import NOTHING, CannotDraw, Generator, drawing, settled
from .steps import DEVICE, Applied, Word, changed, tensors_of
from .tape import KINDS, LAYOUTS, RARE, Tape, check_known, drawn, even_values, laid_out, tape

MOST_INSIDE = 16  # intermediates that are judged
SIDES = {}  # attribute of a tensor -> whether it is that of the device (`compat.oneflow`)
MIXED = 0x9E3779B1  # torch's generator of the CPU reads 32 bits of a seed
HERE = (
    "device",
    "is_cuda",
    "is_cpu",
    "is_xpu",
    "is_mps",
    "is_mtia",
    "is_maia",
    "is_ipu",
    "is_xla",
    "is_vulkan",
    "is_meta",
    "is_sim",
    "is_npu",
    "is_musa",
    "is_mlu",
    "is_hpu",
    "get_device",
    "data_ptr",
)  # what asks where a text runs


# ---- tensors ---------------------------------------------------------------------------


def tensor(
    *sizes: Any,
    dtype: Any = torch.float32,
    values: Any = None,
    layout: Any = "any",
    low: Any = None,
    high: Any = None,
    requires_grad: Any = True,
) -> Any:
    """
    A tensor of drawn values. Sizes, dtype and all others may be generators.

    `values` is a kind ("ties", "nan", "index", ...: docs/reference/fuzz.md; None: any but NaN and Inf);
    with `low` and `high` values are even in [low, high). `layout`: "any", None (row-major) or one of
    transposed, sliced, storage-offset, expanded, channels_last.
    """
    now = tape()
    sizes = settled(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    dtype, values, layout = settled(dtype), settled(values), settled(layout)
    check_known("values", values, {*KINDS, *RARE, "index"})
    check_known("layout", layout, {"any", *LAYOUTS})
    if values == "index" and dtype.is_floating_point:
        raise CannotDraw(f"values='index' are whole numbers: give dtype=torch.int64, not {dtype}")
    kind = values or KINDS[now.below(len(KINDS))]
    laid = LAYOUTS[now.below(len(LAYOUTS))] if layout == "any" else layout
    even = None if low is None and high is None else (settled(low), settled(high))

    def make(i):
        made = laid_out(even_values(now, i, sizes, dtype, *even) if even else drawn(now, i, sizes, dtype, kind), laid)
        floats = dtype.is_floating_point or dtype.is_complex
        return made.requires_grad_(bool(settled(requires_grad)) and floats)

    said = f"values={kind!r}" if not even else f"low={even[0]}, high={even[1]}"
    return Value(now.leaf(make, said + (f", layout={laid!r}" if laid else "")))


# ---- the words of the text -------------------------------------------------------------


def given(value: Any) -> Any:
    """An argument as torch takes it."""

    def one(value):
        if isinstance(value, (Value, Layer)):
            return value.raw
        if isinstance(value, Generator):
            return given(value.value())
        return tape().place if value is DEVICE else value

    return changed(value, one)


def noted(value: Any) -> Any:
    """An argument as a step has it: tensors by their numbers, what is drawn as it is drawn."""

    def one(value):
        if isinstance(value, Generator):
            return noted(value.value())
        value = value.raw if isinstance(value, (Value, Layer)) else value
        return tape().steps.seen(value) if isinstance(value, torch.Tensor) else value

    return changed(value, one)


def shown(value: Any) -> Any:
    """A result of torch as the text sees it; tensors are noted."""

    def one(value):
        if not isinstance(value, torch.Tensor):
            return value
        if drawing.get() is not None and len(tape().seen) < MOST_INSIDE:
            tape().seen.append(value)
        return Value(value)

    return changed(value, one)


def called(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], word: Any = None) -> Any:
    """What a function of torch gives. Arguments that are nothing are left out."""
    args = [settled(a) for a in args]
    while args and args[-1] is NOTHING:
        args.pop()
    named = {k: v for k, v in ((k, settled(v)) for k, v in kwargs.items()) if v is not NOTHING}
    now = drawing.get()
    if now is None:  # after the end of a text
        return shown(theirs(function, *given(args), **given(named)))
    if now.inside:  # of a function that is a step itself
        return theirs(function, *given(args), **given(named))
    now.bodily |= is_autocast_on("cpu") or is_autocast_on("cuda")
    now.steps.add(
        function, word or Word("own", getattr(function, "__qualname__", repr(function))), noted(args), noted(named)
    )
    now.inside = True
    try:
        result = asked(function, *given(args), **given(named))
    finally:
        now.inside = False
    now.steps.done(result)
    return shown(result)


def asked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What torch gives; what it raises is a refusal, where what the text raises itself is none."""
    try:
        return theirs(function, *args, **kwargs)
    except Exception as problem:
        if drawing.get() is not None:
            drawing.get().refused = problem
        raise


def _moves(name, args, kwargs):
    """Whether a call of `to` and the like only says where: the side that runs does."""
    said = [*args, *kwargs.values()]
    device = all(a is DEVICE or isinstance(given(a), (torch.device, str)) for a in said)
    return name in ("cuda", "cpu") or (name == "to" and bool(said) and device)


class Value:
    """A tensor of the text. Functions of torch take it, so those that are made of them do."""

    __slots__ = ("raw",)

    def __init__(self, raw):
        self.raw = raw

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return called(function, args, kwargs or {}, Word("function", ""))

    def __getattr__(self, name):
        if name in SIDES:
            return tape().on_side(self.raw, SIDES[name])
        found = getattr(self.raw, name)
        now = drawing.get()
        if now is not None and name in HERE:
            now.bodily = True
        if isinstance(found, torch.Tensor):
            return called(getattr, (self, name), {}, Word("get", name))
        if not callable(found):
            return shown(found)

        def method(*args, **kwargs):
            if _moves(name, args, kwargs):
                return self
            return called(_method(name), (self, *args), kwargs, Word("method", name))

        return method

    def __setattr__(self, name, value):
        if name == "raw":
            object.__setattr__(self, name, value)
        else:
            called(setattr, (self, name, value), {}, Word("set", name))

    def __setitem__(self, key, value):
        called(operator.setitem, (self, key, value), {}, Word("operator", "setitem"))

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __len__(self):
        return asked(len, self.raw)

    def __bool__(self):
        return asked(bool, self.raw)

    def __float__(self):
        return asked(float, self.raw)

    def __int__(self):
        return asked(int, self.raw)

    def __contains__(self, item):
        return asked(operator.contains, self.raw, given(item))

    def __index__(self):
        return asked(operator.index, self.raw)

    def __array__(self, *args, **kwargs):
        return asked(self.raw.__array__, *args, **kwargs)

    def __repr__(self):
        return repr(self.raw)

    def __format__(self, spec):
        return asked(format, self.raw, spec)

    __hash__ = object.__hash__


@functools.cache
def _method(name):
    def method(tensor, *args, **kwargs):
        return getattr(tensor, name)(*args, **kwargs)

    method.__name__ = name
    return method


def _operator(name):
    function = getattr(operator, name)
    return lambda self, *others: called(function, (self, *others), {}, Word("operator", name))


def _swapped(name):
    function = getattr(operator, name)
    return lambda self, other: called(function, (other, self), {}, Word("operator", name))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    _word = _name.strip("_")
    setattr(Value, f"__{_word}__", _operator(_name))
    setattr(Value, f"__r{_word}__", _swapped(_name))
    setattr(Value, f"__i{_word}__", _operator(f"i{_word}"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem"):
    setattr(Value, f"__{_name}__", _operator(_name))


class Layer:
    """A module of the text. Its weights are tensors that the run begins with."""

    def __init__(self, module, made, state=None, path=""):
        self.raw, self.made, self.path, self.state = module, made, path, {} if state is None else state
        for name, value in (*module.named_parameters(), *module.named_buffers()) if state is None else ():
            leaf = lambda i, v=value: v.detach().clone().requires_grad_(v.requires_grad)  # noqa: E731
            self.state[name] = Value(tape().leaf(leaf))
        if state is None:
            tape().steps.modules.append(made)

    def __call__(self, *args, **kwargs):
        return called(Applied(self), (self.state, args, kwargs), {}, Word("module", ""))

    def to(self, *args: Any, **kwargs: Any) -> Layer:
        return self

    def train(self, mode: Any = True) -> Layer:
        """As torch has it; a generator is drawn as a truth."""
        mode = given(mode.to(bool)) if isinstance(mode, Generator) else mode
        self.raw.train(True if mode is NOTHING else bool(mode))
        return self

    def eval(self) -> Layer:
        return self.train(False)

    def on_side(self, other: bool) -> Any:
        """A module of torch with the weights as the side in work has them, or as the other one does."""
        made = copy.deepcopy(self.raw)
        for name, value in self.state.items():
            tensor = tape().on_side(value.raw, other)
            if not isinstance(tensor, torch.Tensor):
                raise AttributeError(f"another framework has no module of torch's: {name} of it is .{name}.oneflow")
            owner, _, leaf = name.rpartition(".")
            owner = made.get_submodule(owner)
            kept = torch.nn.Parameter(tensor.detach(), tensor.requires_grad) if leaf in owner._parameters else tensor
            setattr(owner, leaf, kept)
            if kept is not tensor:
                kept.grad = tensor.grad
        return made

    def __getattr__(self, name):
        if name in self.state:
            return self.state[name]
        if name in SIDES:
            return self.on_side(SIDES[name])
        return self._part(name, getattr(self.raw, name))

    def __getitem__(self, key):
        return self._part(str(range(len(self.raw))[key]), self.raw[key])

    def _part(self, name, found):
        if not isinstance(found, torch.nn.Module):
            return found
        inside = {k.removeprefix(f"{name}."): v for k, v in self.state.items() if k.startswith(f"{name}.")}
        return Layer(found, self.made, inside, f"{self.path}.{name}".strip("."))


class Space:
    """A module of Python as the text sees it: `torch`, `torch.nn.functional`, ..."""

    def __init__(self, raw, path=""):
        self.__dict__.update(raw=raw, path=path)

    def __getattr__(self, name):
        found, path = getattr(self.raw, name), f"{self.path}.{name}".strip(".")
        if isinstance(found, ModuleType):
            return Space(found, path)
        if isinstance(found, type):
            return _maker(found, path) if issubclass(found, torch.nn.Module) else found
        return typed(found, Word("name", path)) if callable(found) else found

    def __repr__(self):
        return f"<{self.raw.__name__} of a test on two sides>"


TORCH = Space(torch)


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function of one's own gives, which gets tensors and numbers: a kernel, an autograd.Function's apply."""
    return called(function, args, kwargs)


def layer(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """A module of one's own: a class and what it is made of. It begins with the same weights on both sides."""
    return _maker(getattr(kind, "kind", kind), getattr(kind, "path", ""))(*args, **kwargs)


@functools.cache
def annotations(function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """The types that a function or a class is written with: by place, by name."""
    names = parameters(function) or ()
    return [p.annotation for p in names], {p.name: p.annotation for p in names}


def _offer(function, args, kwargs):
    """Offers untyped generators the types that a function is written with."""
    by_place, by_name = annotations(function)
    for value, kind in [*zip(args, by_place), *((v, by_name.get(k)) for k, v in kwargs.items())]:
        if isinstance(value, Generator) and kind is not None and kind is not inspect.Parameter.empty:
            value.to(kind)


def typed(function: Callable[..., Any], word: Any) -> Callable[..., Any]:
    """A function of torch as the text calls it."""

    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        if any(isinstance(v, Generator) for v in (*args, *kwargs.values())):
            _offer(function, args, kwargs)
        return called(function, args, kwargs, word)

    return call


@dataclass
class Made:
    """How a module was made."""

    path: str  # its name in torch, "" of a class of one's own
    kind: type
    args: list
    kwargs: dict
    leaf: int  # the number of its first weight
    keys: list  # the names of its weights
    name: str = ""

    @property
    def n_leaves(self) -> int:
        return len(self.keys)


def _maker(kind, path=""):
    """What makes a module of a class: untyped generators get the types that it is written with."""

    def make(*args, **kwargs):
        _offer(kind, args, kwargs)
        named = {k: v for k, v in ((k, settled(v)) for k, v in kwargs.items()) if v is not NOTHING}
        args = [settled(a) for a in args]
        while args and args[-1] is NOTHING:
            args.pop()
        with disable_current_modes():  # whoever traces the text sees no weights being made
            made = asked(kind, *given(args), **given(named))
        keys = [name for name, _ in (*made.named_parameters(), *made.named_buffers())]
        return Layer(made, Made(path, kind, args, named, tape().i_leaf, keys))

    make.kind, make.path = kind, path
    return make


# ---- a case ----------------------------------------------------------------------------


@contextmanager
def running(now: Any) -> Iterator[Any]:
    """Draws are those of a tape; torch's own numbers those of its seed and run: a device that takes them from the CPU's
    generator does not repeat itself."""
    token = drawing.set(now)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(now.seed ^ now.case ^ now.run * MIXED)
            yield now
    finally:
        drawing.reset(token)


def played(function: Callable[..., Any], now: Tape, args: Sequence[Any]) -> list[torch.Tensor]:
    """What the text gives in a run of its own: what it returns, then what came up on the way."""
    with running(now):
        results = given(theirs(function, *args))
        outputs = tensors_of(results if isinstance(results, (list, tuple)) else [results])
        known = {id(t) for t in outputs}
        kept = outputs + [t for t in now.seen if id(t) not in known and t.is_floating_point()]
        now.steps.end(kept)
    return kept
