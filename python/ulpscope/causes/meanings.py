# SPDX-License-Identifier: Apache-2.0
"""Mistakes of meaning in the order of trial: tables of makers, functions of a `Lab` that give (text, edit for
`Lab.run`). Neighbours: `edits`, `inside`, `edges`, `sums` (the makers), `diagnose` (tries them).
"""

import functools

from . import edges, edits, inside, sums


def of_nodes(*makers):
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
    edits.scalars, inside.epsilon_places, functools.partial(edits.tensors, kind="masks"),
    functools.partial(edits.tensors, kind="single"), edits.contiguous, edges.bounds, inside.masked, inside.parts, edits.swaps, edges.exchanged,
    inside.axes, sums.tiled, edges.rounds, edges.bypassed, edges.moved, edges.spread, edges.shares, edges.late, edges.values, edges.lost,
    inside.operators, inside.reductions, functools.partial(inside.operators, deep=True), sums.sums, edits.optionals,
    functools.partial(edits.tensors, kind="numbers"), edits.pairs, edges.places, edges.rewired,
)  # fmt: skip


def made(lab, makers):
    """(text, edit) of all makers, one after the other."""
    return (found for make in makers for found in make(lab))
