# SPDX-License-Identifier: Apache-2.0
"""Tests written as plain torch text, run on two sides with the same draws (`ulpscope.fuzzing`).

A first run on the CPU makes the tensors: those of `tensor()`, weights of modules. They are the
arguments of a function then, the text itself, which `check_text` runs on the device and in float64.
Needs of torch: modules called with other parameters (`torch.func.functional_call`), make_fx and a way out of its mode.
"""

import inspect
import itertools
import math
import operator
from contextlib import contextmanager
from types import ModuleType

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from ..calls.foreign import foreign, theirs
from ..calls.gradients import with_gradients
from ..calls.verdicts import clause
from ..sources import stress
from ..sources.generators import NOTHING, CannotDraw, Draws, Generator, drawing, settled
from .api import check_text

MOST_INSIDE = 16  # intermediates that are judged
FINE = 1 << 24  # values that a uniform draw has
MIXED = 0x9E3779B1  # torch's generator of the CPU reads 32 bits of a seed
DEVICE = object()  # stands for the side that runs


class Tape(Draws):
    """One run: its draws; the tensors that it began with and those that came up."""

    def __init__(self, seed, case, leaves=None, run=0):
        super().__init__(seed, case)
        self.run = run  # torch draws other numbers in each
        self.leaves, self.made, self.i_leaf, self.seen = leaves, [], 0, []
        self.place = leaves[0].device if leaves else torch.device("cpu")

    def leaf(self, make):
        """The next tensor that the run begins with; `make(i)` makes it where none is given."""
        i, self.i_leaf = self.i_leaf, self.i_leaf + 1
        if self.leaves is not None and i < len(self.leaves):
            return self.leaves[i]
        made = make(i)
        self.made.append(make(i))  # as it was: the text may write the other one
        return made if self.place.type == "cpu" else made.detach().to(self.place).requires_grad_(made.requires_grad)


def tape():
    """That of the run in work."""
    found = drawing.get()
    if not isinstance(found, Tape):
        raise RuntimeError("tensors are drawn inside a function under @ulpscope.fuzz alone")
    return found


# ---- tensors ---------------------------------------------------------------------------


KINDS = ("normal", "normal", "normal", "wide-exponents", "cancellation", "zeros", "subnormals", "ties",
         "outliers", "near-overflow", "one-hot", "sorted")  # fmt: skip
LAYOUTS = (None, None, None, *stress.LAYOUTS, "channels_last")
# What `values` may name besides; of whole numbers and truths the dtype says it.
RARE = ("common-offset", "all-zeros", "nan", "inf", "mask", "positive-definite")


def tensor(*sizes, dtype=torch.float32, values=None, layout="any", low=None, high=None, requires_grad=True):
    """
    A tensor of drawn values. Sizes, dtype and all others may be generators.

    `values` is a kind ("ties", "nan", "index", ...: docs/fuzz.md; None: any but NaN and Inf);
    with `low` and `high` values are even in [low, high). `layout`: "any", None (row-major) or one of
    transposed, sliced, storage-offset, expanded, channels_last.
    """
    now = tape()
    sizes = settled(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    dtype, values, layout = settled(dtype), settled(values), settled(layout)
    _known("values", values, {*KINDS, *RARE, "index"})
    _known("layout", layout, {"any", *LAYOUTS})
    if values == "index" and dtype.is_floating_point:
        raise CannotDraw(f"values='index' are whole numbers: give dtype=torch.int64, not {dtype}")
    kind = values or KINDS[now.below(len(KINDS))]
    laid = LAYOUTS[now.below(len(LAYOUTS))] if layout == "any" else layout
    even = None if low is None and high is None else (settled(low), settled(high))

    def make(i):
        made = _laid(_even(now, i, sizes, dtype, *even) if even else _drawn(now, i, sizes, dtype, kind), laid)
        floats = dtype.is_floating_point or dtype.is_complex
        return made.requires_grad_(bool(settled(requires_grad)) and floats)

    return Value(now.leaf(make))


def _known(what, name, names):
    if name is not None and name not in names:
        raise AttributeError(f"{what}={name!r} is none of {', '.join(sorted(n for n in names if n))}")


def _filled(now, i, sizes, word, kind, domain):
    strides = torch.empty(sizes, device="meta").stride()
    raw = _core.fuzz_fill(now.seed, now.case, i, (word, sizes, strides, 0, i, math.prod(sizes), False), kind, domain)
    return torch.frombuffer(raw, dtype=getattr(torch, word)) if raw else torch.empty(0, dtype=getattr(torch, word))


def _drawn(now, i, sizes, dtype, kind):
    if dtype.is_complex:
        word = "float64" if dtype == torch.complex128 else "float32"
        return torch.view_as_complex(_filled(now, i, (*sizes, 2), word, kind, (False, False, 0, 0)).reshape(*sizes, 2))
    if not dtype.is_floating_point:
        kind = "mask" if dtype == torch.bool else "index"
    low = 0 if dtype == torch.uint8 else -8
    word = str(dtype).removeprefix("torch.")
    return _filled(now, i, sizes, word, kind, (False, False, low, 8)).reshape(sizes)


def _even(now, i, sizes, dtype, low, high):
    """Even values of [low, high), whole ones of an integer dtype."""
    drawn = _filled(now, i, sizes, "int64", "index", (False, False, 0, FINE - 1)).reshape(sizes).double() / FINE
    spread = low + drawn * (high - low)
    return spread.to(dtype) if dtype.is_floating_point or dtype.is_complex else spread.floor().to(dtype)


def _laid(made, layout):
    if layout == "channels_last":
        return made.contiguous(memory_format=torch.channels_last) if made.ndim == 4 else made
    laid = stress.LAYOUTS[layout](made) if layout else None
    return made if laid is None else laid


# ---- the words of the text -------------------------------------------------------------


def given(value):
    """An argument as torch takes it."""
    if isinstance(value, (Value, Layer)):
        return value.raw
    if value is DEVICE:
        return tape().place
    if isinstance(value, Generator):
        return given(value.value())
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(given(item) for item in value)
    if isinstance(value, dict):
        return {k: given(v) for k, v in value.items()}
    return value


def shown(value):
    """A result of torch as the text sees it; tensors are noted."""
    if isinstance(value, torch.Tensor):
        if drawing.get() is not None and len(tape().seen) < MOST_INSIDE:
            tape().seen.append(value)
        return Value(value)
    if type(value) in (list, tuple):
        return type(value)(shown(item) for item in value)
    return value


def called(function, args, kwargs):
    """What a function of torch gives. Arguments that are nothing are left out."""
    args = [given(a) for a in args]
    while args and args[-1] is NOTHING:
        args.pop()
    named = {k: v for k, v in ((k, given(v)) for k, v in kwargs.items()) if v is not NOTHING}
    return shown(theirs(function, *args, **named))


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
        return called(function, args, kwargs or {})

    def __getattr__(self, name):
        found = getattr(self.raw, name)
        if not callable(found) or isinstance(found, torch.Tensor):
            return shown(found)

        def method(*args, **kwargs):
            return self if _moves(name, args, kwargs) else called(found, args, kwargs)

        return method

    def __setattr__(self, name, value):
        if name == "raw":
            object.__setattr__(self, name, value)
        else:
            setattr(self.raw, name, given(value))

    def __setitem__(self, key, value):
        self.raw[given(key)] = given(value)

    def __iter__(self):
        return iter([shown(t) for t in self.raw])

    def __len__(self):
        return len(self.raw)

    def __bool__(self):
        return bool(self.raw)

    def __float__(self):
        return float(self.raw)

    def __int__(self):
        return int(self.raw)

    def __repr__(self):
        return f"Value({self.raw!r})"

    __hash__ = object.__hash__


def _operator(name):
    function = getattr(operator, name)
    return lambda self, *others: called(function, (self, *others), {})


def _swapped(name):
    function = getattr(operator, name)
    return lambda self, other: called(lambda a, b: function(b, a), (self, other), {})


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    _word = _name.strip("_")
    setattr(Value, f"__{_word}__", _operator(_name))
    setattr(Value, f"__r{_word}__", _swapped(_name))
    setattr(Value, f"__i{_word}__", _operator(f"i{_word}"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem"):
    setattr(Value, f"__{_name}__", _operator(_name))


class Layer:
    """A module of the text. Its weights are tensors that the run begins with."""

    def __init__(self, module):
        self.raw, self.state = module, {}
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            made = lambda i, v=value: v.detach().clone().requires_grad_(v.requires_grad)  # noqa: E731
            self.state[name] = tape().leaf(made)

    def __call__(self, *args, **kwargs):
        return called(lambda *a, **k: torch.func.functional_call(self.raw, self.state, a, k), args, kwargs)

    def to(self, *args, **kwargs):
        return self

    def train(self, mode=True):
        """As torch has it; a generator is drawn as a truth."""
        mode = given(mode.to(bool)) if isinstance(mode, Generator) else mode
        self.raw.train(True if mode is NOTHING else bool(mode))
        return self

    def eval(self):
        return self.train(False)

    def __getattr__(self, name):
        if name in self.state:
            return Value(self.state[name])
        return getattr(self.raw, name)


class Space:
    """A module of Python as the text sees it: `torch`, `torch.nn.functional`, ..."""

    def __init__(self, raw):
        self.__dict__["raw"] = raw

    def __getattr__(self, name):
        found = getattr(self.raw, name)
        if isinstance(found, ModuleType):
            return Space(found)
        if isinstance(found, type):
            return _maker(found) if issubclass(found, torch.nn.Module) else found
        return (lambda *args, **kwargs: called(found, args, kwargs)) if callable(found) else found

    def __repr__(self):
        return f"<{self.raw.__name__} of a test on two sides>"


TORCH = Space(torch)


def call(function, *args, **kwargs):
    """What a function of one's own gives, which gets tensors and numbers: a kernel, an autograd.Function's apply."""
    return called(function, args, kwargs)


def layer(kind, *args, **kwargs):
    """A module of one's own: a class and what it is made of. It begins with the same weights on both sides."""
    return _maker(kind)(*args, **kwargs)


def _maker(kind):
    """What makes a module of a class: untyped generators get the types that it is written with."""
    def make(*args, **kwargs):
        names = list(inspect.signature(kind).parameters.values())
        by_name = {p.name: p.annotation for p in names}
        typed = [*zip(args, [p.annotation for p in names]), *((v, by_name.get(k)) for k, v in kwargs.items())]
        for value, annotation in typed:
            if isinstance(value, Generator) and annotation in (bool, float, "bool", "float"):
                value.to(float if annotation in (float, "float") else bool)
        named = {k: v for k, v in ((k, given(v)) for k, v in kwargs.items()) if v is not NOTHING}
        args = given(list(args))
        with _disable_current_modes():  # whoever traces the text sees no weights being made
            made = kind(*args, **named)
        return Layer(made)

    return make


# ---- a case ----------------------------------------------------------------------------


@contextmanager
def running(now):
    """Draws are those of a tape; torch's own numbers those of its seed and run: a device that takes them from the CPU's
    generator does not repeat itself."""
    token = drawing.set(now)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(now.seed ^ now.case ^ now.run * MIXED)
            yield now
    finally:
        drawing.reset(token)


def played(function, now, args):
    """What the text gives in a run: what it returns, then what came up on the way."""
    with running(now):
        results = theirs(function, *args)
    returned = [given(r) for r in (results if isinstance(results, (list, tuple)) else [results])]
    outputs = [t for t in returned if isinstance(t, torch.Tensor)]
    known = {id(t) for t in outputs}
    return outputs + [t for t in now.seen if id(t) not in known and t.is_floating_point()]


class Refused(Exception):
    """The CPU refuses a case: another one is drawn."""


def compiled(program, leaves, via):
    """What a compiler makes of the operators of a text, as a run on these tensors shows them."""
    torch.compiler.reset()
    module = torch.compile(make_fx(program)(*leaves), backend=via, dynamic=False)

    def run(*leaves):
        return module(*leaves)

    run.__name__ = program.__name__
    return run


def replayed(function, seed, case, device, args=()):
    """
    A case of a text as a function of the tensors that it begins with, these, and whether gradients can be asked. Refused where the
    CPU refuses it, and the device does with an exception of that kind; AssertionError where the two disagree in that.
    """
    first, runs = Tape(seed, case), itertools.count(1)

    def program(*leaves):
        # Gradients are asked of all that a function is given: a buffer of a module takes none.
        leaves = [t if made.requires_grad else t.detach() for t, made in zip(leaves, first.made, strict=True)]
        return played(function, Tape(seed, case, list(leaves), next(runs)), args)

    program.__name__ = getattr(function, "__name__", "program")
    try:
        outputs = played(function, first, args)
    except CannotDraw as problem:
        raise Refused(str(problem)) from None
    except (NameError, AttributeError, ImportError, SyntaxError):
        raise  # a mistake in the text: no other draw would mend it
    except Exception as problem:  # whatever the text raises
        foreign(problem)
        _same_refusal(program, device, first.made, problem)
        raise Refused(f"{type(problem).__name__}: {clause(problem)}") from None
    leaves = [t.detach().requires_grad_(t.requires_grad) for t in first.made]
    return program, leaves, any(t.requires_grad for t in outputs) and any(t.requires_grad for t in leaves)


def judged(function, seed, case, device, args=(), backward=True, cause=True, judge=True, double_backward=False, via=""):
    """The verdict on a case of a text, on a device; None where it is only to run. As `replayed` where one of both refuses it."""
    program, leaves, has = replayed(function, seed, case, device, args)
    backward, double_backward = backward and has, double_backward and has
    if double_backward:  # many an operator has none
        twice = with_gradients(program, twice=True)
        try:
            twice(*leaves)
        except Exception as problem:  # whatever a backward raises
            foreign(problem)
            _same_refusal(twice, device, leaves, problem)
            raise Refused(f"in a double backward {type(problem).__name__}: {clause(problem)}") from None
    try:
        if not judge:
            theirs(program, *(t.to(device).requires_grad_(t.requires_grad) for t in leaves))
            return None
        made = compiled(program, leaves, via) if via else None
        return check_text(program, leaves, device, backward, double_backward, cause, made)
    except Exception as problem:
        foreign(problem)
        raise AssertionError(f"it raises {type(problem).__name__} where the CPU gives a result: {clause(problem)}") from problem


def _same_refusal(program, device, leaves, problem):
    """AssertionError where a device answers what the CPU refuses, or refuses it with an exception of
    another kind."""
    if torch.device(device).type == "cpu" or not leaves:
        return
    try:
        theirs(program, *(t.detach().to(device).requires_grad_(t.requires_grad) for t in leaves))
    except Exception as other:  # whatever the device raises
        foreign(other)
        kinds = type(problem), type(other)
        if not (issubclass(*kinds) or issubclass(*kinds[::-1])):
            raise AssertionError(f"it raises {kinds[1].__name__} ({clause(other)}) where the CPU raises "
                                 f"{kinds[0].__name__} ({clause(problem)})") from None  # fmt: skip
        return
    raise AssertionError(f"it gives a result where the CPU raises {type(problem).__name__} ({clause(problem)})")
