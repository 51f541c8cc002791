# SPDX-License-Identifier: Apache-2.0
"""What a tensor may be taken for: rows of (words, change of the tensor), by what it holds; and rows of
(words, least size, change of the tensor and an axis) for each of its axes. One table for the inputs of a
call (`edits`) and the operands of operators inside (`edges`, `inside`). AXIS in words is the axis.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

GROUPS = (2, 4, 8, 16, 32)
TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MANY_STEPS = 1e9


def along(
    sizes: Sequence[int], rows: Iterable[tuple[str, int, Callable[..., torch.Tensor]]]
) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change) of rows for each axis that is long enough."""
    for axis, size in enumerate(sizes):
        for words, least, change in rows:
            if size >= least:
                yield words.replace("AXIS", str(axis)), lambda t, c=change, a=axis: c(t, a)


# ---- changes of a tensor along an axis -------------------------------------------------------


def first(t: torch.Tensor, axis: int) -> torch.Tensor:
    """The first slice in the place of all."""
    return t.narrow(axis, 0, 1).expand(t.shape)


def rolled(by: int, zeros: bool = False) -> Callable[..., torch.Tensor]:
    """The neighbours' slices, with `zeros` where nothing comes from."""

    def change(t: torch.Tensor, axis: int) -> torch.Tensor:
        out = t.roll(by, axis)
        if zeros:
            out.narrow(axis, 0 if by > 0 else t.shape[axis] + by, abs(by)).zero_()
        return out

    return change


def shared(size: int, last: bool) -> Callable[..., torch.Tensor]:
    """`size` neighbours share what the first or the last of them has."""

    def change(t: torch.Tensor, axis: int) -> torch.Tensor:
        i = torch.arange(t.shape[axis])
        i = (i // size * size + (size - 1 if last else 0)).clamp(max=t.shape[axis] - 1)
        return t.index_select(axis, i)

    return change


def fixed(at: int, value: bool) -> Callable[..., torch.Tensor]:
    """One slice of a mask is `value`."""
    return lambda t, axis: t.index_fill(axis, torch.tensor([at % t.shape[axis]]), value)


def scaled(x: torch.Tensor, axis: int, start: int, count: int, factor: float) -> torch.Tensor:
    """`x` with some slices along an axis multiplied."""
    x = x.clone()
    part = x.narrow(axis, start % x.shape[axis], count)
    part.copy_(part * factor if factor else torch.zeros_like(part))
    return x


def shifts(what: str) -> list[tuple[str, int, Callable[..., torch.Tensor]]]:
    """Rows: off by one."""
    return [
        (f"{what} is shifted by one along axis AXIS{end}", 2 if by > 0 else 3, rolled(by, bool(end)))
        for by in (1, -1)
        for end in ("", " (zeros come in)")
    ]


def groups(what: str) -> list[tuple[str, int, Callable[..., torch.Tensor]]]:
    """Rows: one mask or index for a group of neighbours."""
    return [
        (f"{what} is shared by groups of {size} along axis AXIS: one for each tile", size + 1, shared(size, last))
        for size in GROUPS
        for last in (True, False)
    ]


# ---- parts that are left out -------------------------------------------------------------------


def sizes_to_drop(size: int) -> list[int]:
    """How many at the end of an axis a kernel may have left out: one, a tile, a rest."""
    usual = {t for t in TILES if t < size} | {size % t for t in TILES if t < size}
    return sorted(s for s in usual | {size // 2} if 0 < s < size)


def last_left_out(x: torch.Tensor, axis: int, count: int) -> torch.Tensor:
    return x.narrow(axis, 0, x.shape[axis] - count)


def left_out(
    what: str, axis: int, size: int, lost: Callable[..., torch.Tensor] | None = None, holes: bool = True
) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change): slices of an axis that are missing or count twice. `lost` takes the place of zeros at
    its end."""
    lost = lost or (lambda x, a, count: scaled(x, a, -count, count, 0))
    for t in sizes_to_drop(size):
        yield (
            f"dropped contribution: the last {t} of {size} along axis {axis} {what} is missing",
            lambda x, t=t: lost(x, axis, t),
        )
    for m in (4, 8) if holes else ():
        for i in range(1, m - 1) if size >= m else ():
            start, end = i * size // m, (i + 1) * size // m
            some = f"{start} to {end - 1}" if end - start > 1 else f"{start}"
            yield (
                f"dropped contribution: {some} of {size} along axis {axis} {what} are missing",
                lambda x, s=start, n=end - start: scaled(x, axis, s, n, 0),
            )
    for t in sizes_to_drop(size):
        yield (
            f"dropped contribution: the first {t} of {size} along axis {axis} {what} is missing",
            lambda x, t=t: scaled(x, axis, 0, t, 0),
        )
        yield (
            f"duplicate contribution: the last {t} of {size} along axis {axis} {what} counts twice",
            lambda x, t=t: scaled(x, axis, -t, t, 2),
        )


def corners(name: str, rank: int) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """The last element left out: of all, of each slice along the first axis, of the last two axes."""
    for count in {c for c in (rank, rank - 1, 2) if 1 < c <= rank}:

        def change(x: torch.Tensor, c: int = count) -> torch.Tensor:
            x = x.clone()
            x[(..., *([-1] * c))] = 0
            return x

        yield f"dropped contribution: the last element over {count} axes of {name} is missing", change


def flat(name: str, sizes: Sequence[int]) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """The end, or a quarter, of all axes but one taken as one axis: what a sum over them leaves out."""
    for axis in {1, len(sizes) - 1} if len(sizes) > 2 else ():
        n = math.prod(sizes) // sizes[axis]
        for start, end in ((n - 1, n), (n // 4, n // 2), (n // 2, n)):

            def change(x: torch.Tensor, a: int = axis, i: int = start, j: int = end) -> torch.Tensor:
                moved = x.movedim(a, -1).clone(memory_format=torch.contiguous_format)
                moved.view(-1, x.shape[a])[i:j] = 0
                return moved.movedim(-1, a)

            yield (
                f"dropped contribution: {start} to {end - 1} of {n} over all axes of {name} but {axis} are missing",
                change,
            )


# ---- by what a tensor holds --------------------------------------------------------------------

COUNTS = re.compile(r"step|count|iter|^t$|^args")  # names that a count of steps may have, or none
STEPS = [
    ("adds 1 to the step count a second time", lambda t: t + 1),
    ("does not count the current step in the step count", lambda t: t - 1),
    ("no bias correction", lambda t: t * 0 + MANY_STEPS),
]
SINGLE = (
    "wrong variant: computes with {} + 1",
    "wrong variant: computes with {} - 1",
    "wrong variant: {} is taken as beyond all bounds: what it bounds is missing",
)


def single_number(name: str) -> list[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change) of a single number, which may be a count of steps."""
    if COUNTS.search(name.lower()):
        return STEPS
    return [(words.replace("{}", name), change) for words, (_, change) in zip(SINGLE, STEPS)]


def mask(name: str, sizes: Sequence[int]) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change) of a mask."""
    yield f"the mask is ignored: {name} taken as all true", torch.ones_like
    yield f"the mask is ignored: {name} taken as all false", torch.zeros_like
    yield f"the mask {name} is inverted, or what it chooses between is exchanged", torch.logical_not
    yield from along(sizes, shifts(f"the mask {name}"))
    last = max(len(sizes) - 2, 0)
    yield from along([1] * last + list(sizes[last:]), groups(f"the mask {name}"))
    yield from along(
        sizes,
        [
            (f"wrong index: the mask {name} is read from its first slice along axis AXIS (broadcast)", 2, first),
            *(
                (f"the {end} of the mask {name} along axis AXIS is always {value}", 3, fixed(at, value))
                for end, at in (("first", 0), ("last", -1))
                for value in (True, False)
            ),
        ],
    )


def index(name: str) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change) of an index: by one off, held at the ends."""
    yield f"index shifted by one: {name} + 1", lambda t: (t + 1).clamp(max=int(t.max()))
    yield f"index shifted by one: {name} - 1", lambda t: (t - 1).clamp(min=int(t.min()))


def whole(name: str, sizes: Iterable[int]) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change) of whole numbers, which may count among tensors of `sizes`."""
    yield from index(name)
    yield (
        f"wrong index: {name} is clamped below the last (saturated at the maximum less one)",
        lambda t: t.clamp(max=max(int(t.max()) - 1, int(t.min()))),
    )
    for by in (1, -1):
        yield (
            f"index shifted by one: {name} {'+' if by > 0 else '-'} 1, around the end",
            lambda t, s=by: torch.where(t >= 0, (t + s) % _range(t, sizes), t),
        )


def _range(t: torch.Tensor, sizes: Iterable[int]) -> int:
    """How many values an index may have: the least size of a tensor beside it that holds all."""
    top = int(t.max()) + 1
    return max(min((s for s in sizes if s >= top), default=top), 1)


def of_complex(name: str) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change) of complex numbers."""
    yield f"the sign of the imaginary part of {name} is flipped (conjugated, conj)", torch.conj_physical
    yield f"dropped contribution: the imaginary part of {name} is ignored", lambda t: torch.complex(t.real, 0 * t.imag)
    yield f"dropped contribution: the real part of {name} is ignored", lambda t: torch.complex(0 * t.real, t.imag)
    yield f"the real and imaginary parts of {name} are exchanged", lambda t: torch.complex(t.imag, t.real)


def floats(name: str, view: Sequence[int], sizes: Iterable[int]) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change) of numbers; `sizes` are those of tensors beside it, whose roots a formula may have."""
    yield f"the sign of {name} is lost: negated", torch.neg
    known = {
        "2": 2.0,
        "1/2": 0.5,
        "log 2": math.log(2),
        "1 / log 2": 1 / math.log(2),
        "pi": math.pi,
        "1 / pi": 1 / math.pi,
    }
    for n in {view[-1] if view else 1, *list(sizes)[:4]} - {1, 2, 4}:
        known |= {f"sqrt {n}": n**0.5, f"1 / sqrt {n}": n**-0.5}
    for words, factor in known.items():
        yield f"scale factor: computes as if {name} were multiplied by {words}", lambda t, f=factor: t * f
    yield f"computes with 1 - {name} instead of {name} (swapped)", lambda t: 1 - t
    yield f"wrong variant: computes with 1 + {name} instead of {name}", lambda t: 1 + t
    yield f"wrong variant: computes with {name} - 1 instead of {name}", lambda t: t - 1
    yield f"wrong variant: computes with the square of {name}", lambda t: t * t
    if view and view[-1] > 2:
        yield (
            f"wrong variant: the mean of {name} is subtracted along the last axis",
            lambda t: t - t.mean(-1, keepdim=True),
        )
    yield from along(view, [(f"wrong index: {name} is read reversed along axis AXIS", 2, lambda t, a: t.flip(a))])
    if len(view) > 2:
        yield f"wrong index: {name} is read flipped (last two axes reversed)", lambda t: t.flip(-1, -2)


def strides(name: str, view: Sequence[int]) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change): read with other strides."""
    for a in range(len(view)):
        for b in range(a + 1, len(view)):
            if min(view[a], view[b]) > 1:
                yield (
                    f"wrong stride: {name} is read transposed (axes {a} and {b})",
                    lambda t, i=a, j=b: t.transpose(i, j).reshape(t.shape),
                )
    yield from along(
        view,
        [(f"wrong stride: {name} is read with stride 0 along axis AXIS (the first is repeated, broadcast)", 2, first)],
    )
    yield from along(view, shifts(name))


def half(t: torch.Tensor, axis: int, second: bool = False) -> torch.Tensor:
    """One half of an axis in the place of both."""
    part = t.chunk(2, axis)[int(second)]
    return torch.cat([part, part], axis)


HALVES = [
    ("wrong index: the first half of {} along axis AXIS stands for both", half),
    ("wrong index: the second half of {} along axis AXIS stands for both", lambda t, a: half(t, a, True)),
    ("the halves of {} along axis AXIS are exchanged (swapped)", lambda t, a: t.roll(t.shape[a] // 2, a)),
    (
        "wrong stride: {} is read interleaved along axis AXIS, pairs as halves",
        lambda t, a: t.unflatten(a, (-1, 2)).transpose(a, a + 1).flatten(a, a + 1),
    ),
    (
        "wrong stride: {} is read interleaved along axis AXIS, halves as pairs",
        lambda t, a: t.unflatten(a, (2, -1)).transpose(a, a + 1).flatten(a, a + 1),
    ),
]


def of_tensor(
    name: str, dtype: torch.dtype, view: Sequence[int], several: bool = False, sizes: Iterable[int] = ()
) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """(words, change) of a tensor of some shape, `view`, or of one of `several` that share an argument;
    `sizes` are those that tensors beside it have."""
    if dtype == torch.bool:
        yield from mask(name, view)
        return
    if dtype == torch.uint8:
        yield f"wrong type: {name} is read as signed (int8)", lambda t: t.view(torch.int8)
    if dtype.is_complex:
        yield from of_complex(name)
    single = math.prod(view) == 1
    if dtype.is_floating_point:
        yield f"dropped contribution: {name} is ignored (taken as zero)", torch.zeros_like
        yield f"dropped contribution: {name} is ignored (taken as one)", torch.ones_like
        yield from single_number(name) if single else floats(name, view, sizes)
    if single or several:
        return
    if not dtype.is_floating_point and not dtype.is_complex:
        yield from whole(name, sizes)
    yield from strides(name, view)
    if not dtype.is_floating_point:
        return
    even = [n if n % 2 == 0 else 0 for n in view]
    yield from along(even, [(words.replace("{}", name), 4, change) for words, change in HALVES])
    yield from corners(name, len(view))
    yield from flat(name, view)
    for axis, size in enumerate(view):
        yield from left_out(f"of {name}", axis, size, holes=False)
