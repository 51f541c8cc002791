# SPDX-License-Identifier: Apache-2.0
"""Lazy generators of arguments for `@ulpscope.fuzz`. A generator is drawn once in a case, so one
that stands at two places gives both the same value; a case of a seed is the same everywhere, as
draws come from `_core.uniform`. Needs of torch: dtypes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.foreign import foreign, theirs
from ..calls.older import zip_equal

TRIES = 200  # of `where`
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
MOST_ELEMENTS = 1 << 12

drawing = ContextVar("drawing", default=None)


class Nothing:
    """Stands for an argument that is left out, so that its default counts."""

    def __repr__(self):
        return "nothing"


NOTHING = Nothing()


class Draws:
    """The draws of one case, in the order in which they are asked for."""

    def __init__(self, seed, case, choices=None):
        self.seed, self.case, self.n, self.values = seed, case, 0, {}
        self.choices, self.log = choices or {}, {}  # by number of a draw: what it gives instead; what it gave

    def uniform(self) -> float:
        """A number of [0, 1)."""
        self.n += 1
        self.log[self.n] = drawn = self.choices.get(self.n, _core.uniform(self.seed, self.case, self.n))
        return drawn

    def below(self, n: int) -> int:
        """A whole number of [0, n)."""
        return min(int(self.uniform() * n), n - 1)


class CannotDraw(ValueError):
    """A generator that gives nothing in this case; another one may."""


class Generator:
    """What is drawn by `draw(draws)`, once in a case."""

    if TYPE_CHECKING:  # `_arithmetic` makes them, below

        def __add__(self, other: Any) -> Generator: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __add__
        __mod__ = __rmod__ = __truediv__ = __rtruediv__ = __add__

        def __neg__(self) -> Generator: ...

    def value(self) -> Any:
        """What it is in this case."""
        draws = drawing.get()
        if draws is None:
            raise RuntimeError("a generator has a value inside a function under @ulpscope.fuzz alone")
        if self not in draws.values:
            try:
                draws.values[self] = settled(self.draw(draws))
            except CannotDraw:
                raise
            except Exception as problem:  # of a user's function in map or where
                foreign(problem)
                raise CannotDraw(f"a generator raises {type(problem).__name__}: {problem}") from problem
        return draws.values[self]

    def draw(self, draws: Draws) -> Any:
        raise NotImplementedError

    def __repr__(self):
        parts = ", ".join(f"{name}={part!r}" for name, part in vars(self).items())
        return f"{type(self).__name__.strip('_').lower()}({parts})"

    def options(self) -> list[Any]:
        """What `|` chooses among, all alike."""
        return [self]

    def size(self) -> int:
        """How many it counts for beside others."""
        return 1

    def eval(self) -> Any:
        """A value drawn anew, of all that it is made of, too."""
        if drawing.get() is not None:
            self.forget(drawing.get().values)
        return self.value()

    def forget(self, values: Any) -> None:
        """Leaves it and what it is made of to be drawn again."""
        values.pop(self, None)
        for part in vars(self).values():
            for one in part if isinstance(part, (list, tuple)) else [part]:
                if isinstance(one, Generator):
                    one.forget(values)

    def to(self, kind: Any) -> Generator:
        """The type that an untyped generator (`compat.oneflow.random`) gets; others have one."""
        return self

    def map(self, function: Callable[[Any], Any]) -> Generator:
        """`function` of what is drawn."""
        return Mapped(function, self)

    def where(self, condition: Callable[[Any], bool]) -> Generator:
        """Drawn anew until `condition(value)` holds."""
        return Where(self, condition)

    def __or__(self, other: Any) -> Generator:
        other = generator(other)
        if getattr(self, "weights", None) or getattr(other, "weights", None):
            return OneOf([self, other], [self.size(), other.size()])
        return OneOf([*self.options(), *other.options()])

    def __ror__(self, other: Any) -> Generator:
        return generator(other) | self

    def __index__(self) -> int:
        return operator.index(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __float__(self) -> float:
        return float(self.value())


def _arithmetic(name, swapped):
    function = getattr(operator, name)
    if swapped:
        return lambda self, other: Mapped(lambda a, b: function(b, a), self, other)
    return lambda self, other: Mapped(function, self, other)


for _name in ("add", "sub", "mul", "floordiv", "mod", "truediv"):
    setattr(Generator, f"__{_name}__", _arithmetic(_name, False))
    setattr(Generator, f"__r{_name}__", _arithmetic(_name, True))
Generator.__neg__ = lambda self: Mapped(operator.neg, self)


def settled(value: Any) -> Any:
    """A value with what is drawn in place of every generator in it."""
    if isinstance(value, Generator):
        return value.value()
    if type(value) in (list, tuple):
        return type(value)(settled(item) for item in value)
    return value


def generator(value: Any) -> Generator:
    """The generator that a value is, or one that gives it."""
    return value if isinstance(value, Generator) else Constant(value)


class Constant(Generator):
    def __init__(self, given):
        self.given = given

    def draw(self, draws: Draws) -> Any:
        return self.given

    def __repr__(self):
        return "nothing()" if self.given is NOTHING else f"{self.given!r}"


class Number(Generator):
    """ints, floats: of [low, high)."""

    def __init__(self, low, high, whole):
        self.low, self.high, self.whole = low, high, whole

    def __repr__(self):
        return f"{'ints' if self.whole else 'floats'}({self.low!r}, {self.high!r})"

    def draw(self, draws: Draws) -> Any:
        low, high = settled(self.low), settled(self.high)
        if not low < high:
            raise CannotDraw(f"nothing lies in [{low}, {high}): the upper end is left out")
        return low + draws.below(high - low) if self.whole else low + draws.uniform() * (high - low)


class OneOf(Generator):
    def __init__(self, choices: Iterable[Any], weights: Sequence[float] | None = None) -> None:
        self.choices, self.weights = [generator(c) for c in choices], weights

    def __repr__(self):
        weights = f", weights={self.weights}" if self.weights else ""
        return f"oneof({', '.join(map(repr, self.choices))}{weights})"

    def draw(self, draws: Draws) -> Any:
        weights = self.weights or [1] * len(self.choices)
        at = draws.uniform() * sum(weights)
        for choice, weight in zip_equal(self.choices, weights):
            at -= weight
            if at < 0:
                return choice
        return self.choices[-1]

    def options(self) -> list[Any]:
        return [self] if self.weights else self.choices

    def size(self) -> int:
        return sum(choice.size() for choice in self.choices)

    def __call__(self, *args, **kwargs):
        """Calls what is chosen, a function of torch."""
        return self.value()(*args, **kwargs)

    def to(self, kind: Any) -> Generator:
        for choice in self.choices:
            choice.to(kind)
        return self


class Mapped(Generator):
    def __init__(self, function, *given):
        self.function, self.given = function, given

    def __repr__(self):
        return f"{getattr(self.function, '__name__', self.function)}({', '.join(map(repr, self.given))})"

    def draw(self, draws: Draws) -> Any:
        return theirs(self.function, *settled(self.given))

    def to(self, kind: Any) -> Generator:
        for given in self.given:
            if isinstance(given, Generator):
                given.to(kind)
        return self


class Where(Generator):
    """What a generator gives once a condition holds; whatever it is made of is drawn anew."""

    def __init__(self, given, condition):
        self.given, self.condition = given, condition

    def __repr__(self):
        return f"{self.given!r}.where({getattr(self.condition, '__name__', '...')})"

    def draw(self, draws: Draws) -> Any:
        before = dict(draws.values)
        for _ in range(TRIES):
            value = self.given.value()
            if self.condition(value):
                return value
            draws.values.clear()
            draws.values.update(before)
            draws.values.pop(self.given, None)
        raise CannotDraw(f"where(): no draw of {TRIES} satisfies the condition: widen what is drawn")


# ---- what users call -------------------------------------------------------------------


def ints(low: Any, high: Any) -> Generator:
    """A whole number of [low, high)."""
    return Number(low, high, True)


def floats(low: Any = 0.0, high: Any = 1.0) -> Generator:
    """A number of [low, high)."""
    return Number(low, high, False)


def bools() -> Generator:
    """True or False."""
    return OneOf([False, True])


def oneof(*choices: Any, weights: Sequence[float] | None = None) -> Generator:
    """One of them, by weights."""
    return OneOf(choices, weights)


def constant(value: Any) -> Generator:
    """That value, in each case."""
    return Constant(value)


def nothing() -> Generator:
    """Leaves an argument out: `padding=ints(1, 3) | nothing()`."""
    return Constant(NOTHING)


def random_or_nothing(given: Any) -> Generator:
    """What is drawn two times of three, else nothing."""
    return OneOf([given, NOTHING], [2, 1])


DTYPES = {
    "bool": (torch.bool,),
    "float": (torch.float32, torch.float64),
    "half": (torch.float16,),
    "bfloat16": (torch.bfloat16,),
    "complex": (torch.complex64, torch.complex128),
    "int": (torch.int8, torch.int16, torch.int32, torch.int64),
    "unsigned": (torch.uint8,),
    "index": (torch.int32, torch.int64),
    "low": (torch.float16, torch.bfloat16),
}


def dtypes(*names: str | torch.dtype) -> Generator:
    """A torch.dtype, of those given or of groups: dtypes("float", "half", torch.int64)."""
    found = []
    for name in names or ("float", "low"):
        if name not in DTYPES and not isinstance(name, torch.dtype):
            raise ValueError(f"dtypes: {name!r} is no torch.dtype and no group; groups: {', '.join(DTYPES)}")
        found += [name] if isinstance(name, torch.dtype) else DTYPES[name]
    return OneOf(found)


class Sizes(Generator):
    """Sizes at which kernels break: one, a vector or a tile and those beside it; sometimes none."""

    def __init__(self, ndim, empty):
        self.ndim, self.empty = ndim, empty

    def __repr__(self):
        return f"shapes({self.ndim!r})"

    def draw(self, draws: Draws) -> tuple[int, ...]:
        sizes = []
        for _ in range(settled(self.ndim)):
            left = max(1, MOST_ELEMENTS // max(1, math.prod(sizes)))
            fitting = [n for n in SIZES if n <= left]
            sizes.append(fitting[min(draws.below(len(fitting)), draws.below(len(fitting)))])
        if sizes and self.empty and draws.below(24) == 0:
            sizes[draws.below(len(sizes))] = 0
        return tuple(sizes)


def shapes(ndim: Any = None, empty: bool = True) -> Generator:
    """A tuple of sizes, of 1 to 4 axes unless `ndim` says how many."""
    return Sizes(ints(1, 5) if ndim is None else ndim, empty)


class _Narrowed(Generator):
    """A shape that broadcasts to another one."""

    def __init__(self, whole):
        self.whole = whole

    def draw(self, draws):
        whole = self.whole.value()
        kept = whole[draws.below(len(whole) + 1) if draws.below(3) == 0 else 0 :]
        return tuple(1 if draws.below(4) == 0 else n for n in kept)


def broadcasting(n: int = 2, ndim: Any = None) -> list[Generator]:
    """`n` shapes that broadcast with one another; the first is that of the result."""
    whole = shapes(ndim)
    return [whole, *(_Narrowed(whole) for _ in range(n - 1))]


def contracting(batch: Sequence[Any] = ()) -> list[Generator]:
    """Two shapes that `matmul` takes."""
    m, k, n = (Mapped(lambda s: s[0], shapes(1)) for _ in range(3))
    return [Mapped(lambda *s: tuple(s), *batch, m, k), Mapped(lambda *s: tuple(s), *batch, k, n)]


def pooling(spatial: int = 2, kernel: Any = 1) -> Generator:
    """A shape (batch, channels, ...) whose `spatial` axes are no smaller than a kernel."""
    axes = [Mapped(lambda s, k: max(s[0], k), shapes(1, empty=False), kernel) for _ in range(spatial)]
    return Mapped(lambda *s: tuple(s), ints(1, 4), ints(1, 5), *(Mapped(lambda n: min(n, 33), a) for a in axes))
