# SPDX-License-Identifier: Apache-2.0
"""Parts of one tensor that a kernel leaves out, counts twice or takes for one another: its
last slices, corners, halves. Each is (text, change of the tensor). Neighbours:
`edits`, `inside` (apply them).
"""

import torch

TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def half_edits(name, view):
    """The halves of an axis in each other's place, or read as pairs of neighbours."""
    for a, size in enumerate(view.sizes):
        if size % 2 or size < 4 or not view.dtype.is_floating_point:
            continue
        yield (f"the halves of {name} along axis {a} are exchanged (swapped)",
               lambda t, a=a: t.roll(t.shape[a] // 2, a))  # fmt: skip
        yield (f"wrong stride: {name} is read interleaved along axis {a}, pairs as halves",
               lambda t, a=a: t.unflatten(a, (-1, 2)).transpose(a, a + 1).flatten(a, a + 1))  # fmt: skip
        yield (f"wrong stride: {name} is read interleaved along axis {a}, halves as pairs",
               lambda t, a=a: t.unflatten(a, (2, -1)).transpose(a, a + 1).flatten(a, a + 1))  # fmt: skip


def sizes_to_drop(size):
    """How many at the end of an axis a kernel may have left out: one, a tile, a rest."""
    usual = {t for t in TILES if t < size} | {size % t for t in TILES if t < size}
    return sorted(s for s in usual | {size // 2} if 0 < s < size)


def _corner_edits(name, view):
    """The last element left out: of all, of each slice along the first axis, of the last
    two axes."""
    rank = len(view.sizes)
    for count in {rank, rank - 1, 2} - {0, 1}:
        if count <= rank:
            def change(x, c=count):
                x = x.clone()
                x[(..., *([-1] * c))] = 0
                return x

            yield (f"dropped contribution: the last element over {count} axes of {name} is missing",
                   change)  # fmt: skip


def _flat_edits(name, view):
    """The end, or a quarter, of all axes but one taken as one axis: what a sum over them
    leaves out."""
    rank = len(view.sizes)
    for axis in {1, rank - 1} if rank > 2 else ():
        n = 1
        for a, size in enumerate(view.sizes):
            n *= size if a != axis else 1
        for first, last in ((n - 1, n), (n // 4, n // 2), (n // 2, n)):
            def change(x, a=axis, i=first, j=last):
                moved = x.movedim(a, -1).clone(memory_format=torch.contiguous_format)
                moved.view(-1, x.shape[a])[i:j] = 0
                return moved.movedim(-1, a)

            yield (f"dropped contribution: {first} to {last - 1} of {n} over all axes of {name} but {axis} "
                   "are missing", change)  # fmt: skip


def slice_edits(name, view):
    if view.dtype.is_floating_point:
        yield from _corner_edits(name, view)
        yield from _flat_edits(name, view)
    for axis, size in enumerate(view.sizes):
        for t in sizes_to_drop(size):
            of = f"{t} of {size} along axis {axis} of {name}"
            if view.dtype.is_floating_point:
                yield (f"dropped contribution: the last {of} is missing",
                       lambda x, a=axis, s=t: scaled(x, a, -s, 0))  # fmt: skip
        for t in sizes_to_drop(size) if view.dtype.is_floating_point else ():
            of = f"{t} of {size} along axis {axis} of {name}"
            if t in (1, 8, 16, 32, 64, 128):
                yield (f"dropped contribution: the first {of} is missing",
                       lambda x, a=axis, s=t: scaled(x, a, s, 0))  # fmt: skip
            yield (f"duplicate contribution: the last {of} counts twice",
                   lambda x, a=axis, s=t: scaled(x, a, -s, 2))  # fmt: skip


def scaled(x, axis, count, factor):
    """`x` with its first (count > 0) or last slices along an axis multiplied."""
    x = x.clone()
    start = 0 if count > 0 else x.shape[axis] + count
    part = x.narrow(axis, start, abs(count))
    part.copy_(part * factor if factor else torch.zeros_like(part))
    return x
