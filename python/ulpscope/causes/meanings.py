# SPDX-License-Identifier: Apache-2.0
"""Mistakes of meaning in the order of trial: tables of makers, functions of a `Lab` that give (text, edit for
`Lab.run`). Neighbours: `edits`, `inside`, `edges`, `sums` (the makers), `diagnose` (tries them).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import edges, edits, inside, sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from .graph import Node
    from .lab import Lab


def of_nodes(
    *makers: Callable[[Node], Iterable[tuple[str, Any]]],
) -> Callable[[Lab], Iterator[tuple[str, dict[Any, Any]]]]:
    """Mistakes of single operators."""
    return lambda lab: (found for node in lab.nodes() for make in makers for found in edges.together(make, [node]))


# What may be another number; what gives a factor or an amount a better name.
NUMBERS = (edits.scalars, of_nodes(inside.arguments))
EPSILONS = (inside.epsilon_places, *NUMBERS)
WHOLE = (edits.scalars, of_nodes(inside.arguments, inside.swaps))
VARIANTS = (*WHOLE, of_nodes(inside.slices))
# Mistakes of meaning, each a function(lab) that gives (text, edit for `Lab.run`), in the order of trial: what
# leaves something out, what puts another function in its place, what is read from elsewhere.
MEANINGS = (
    edits.scalars,
    inside.epsilon_places,
    functools.partial(edits.tensors, kind="masks"),
    functools.partial(edits.tensors, kind="single"),
    edits.contiguous,
    edges.bounds,
    inside.masked,
    inside.parts,
    edits.swaps,
    edges.exchanged,
    inside.axes,
    sums.tiled,
    edges.rounds,
    edges.bypassed,
    edges.moved,
    edges.spread,
    edges.shares,
    edges.late,
    edges.values,
    edges.lost,
    inside.operators,
    inside.reductions,
    functools.partial(inside.operators, deep=True),
    sums.sums,
    edits.optionals,
    functools.partial(edits.tensors, kind="numbers"),
    edits.pairs,
    edges.places,
    edges.rewired,
)


def made(lab: Lab, makers: Iterable[Callable[[Lab], Iterable[tuple[str, Any]]]]) -> Iterator[tuple[str, Any]]:
    """(text, edit) of all makers, one after the other."""
    return (found for make in makers for found in make(lab))
