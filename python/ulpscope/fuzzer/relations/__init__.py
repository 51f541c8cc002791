# SPDX-License-Identifier: Apache-2.0
"""Calls that must give what another call gives: each relation makes variants of a call and brings
what they gave back to the form of the call itself. docs/reference/fuzz.md has the list. Needs of torch schemas
and copies; knows nothing of verdicts."""

from ...judges.in_rows import fits
from . import rules, samples, spellings, strided
from .variant import Variant

# name -> (function of call, answer, number that gives a Variant or None, what is the same, exact:
# whether its two sides have the same bits on any kernel that rounds to nearest).
RELATIONS = {
    "in-place": (spellings.in_place, "the operator in place", False),
    "functional": (spellings.functional, "the operator out of place", False),
    "out": (spellings.out, "the operator with out=, a strided view", False),
    "method": (spellings.method, "the method of the tensor", False),
    "layout": (strided.layout, "the same tensors laid out otherwise", False),
    "far": (strided.far, "a tensor whose last row lies beyond 2^31 elements", False),
    "permutation": (samples.permuted, "samples in another order", False),
    "split": (samples.split, "the samples in two calls", False),
    "padding": (rules.padded, "more elements that are neutral", False),
    "wider": (rules.wider, "the same numbers in a wider dtype, rounded back", False),
    "linearity": (rules.linear, "the answer to inputs times -2, divided by -2", True),
}

__all__ = ["RELATIONS", "Variant", "fits"]
