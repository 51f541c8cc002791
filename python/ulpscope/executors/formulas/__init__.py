# SPDX-License-Identifier: Apache-2.0
"""The built-in references: a table operator -> formula, filled by the `executors.formulas`
modules, and the adapter that calls a formula with the arguments of a schema.

A formula takes its operator's arguments by name, in any precision, and returns what the
operator returns, with None for a result that is promised nothing (a seed, a work space). It
names the arguments that it understands; another one must be at its default, so that a
variant without a reference is `unjudged` and not judged by the wrong formula.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

# Arguments that change how a result is computed, or what else is returned, but not its value.
IDLE = {
    "inner_precise",
    "gen_mask_parallel",
    "sync",
    "seed",
    "offset",
    "numels",
    "workspace",
    "deterministic",
    "rng_state",
    "num_splits",
    "num_splits_key",
    "benchmark",
    "allow_tf32",
    "philox_seed",
    "philox_offset",
    "cum_seq_q",
    "cum_seq_k",
    "max_q",
    "max_k",
    "unused",
    "return_debug_mask",
    "return_softmax",
    "compute_log_sumexp",
    "use_fast_accum",
    "use_locking",
    "zero_tensors",
    "dropout_mask",
    "softmax_in",
    "shared_storage_dqdkdv",
    "passes",
    "use_group_norm_v2",
    "gelu",
}

_table = {}
_loaded = []  # whether all files of formulas were


class NoReference(Exception):
    """A form of an operator that its reference does not cover; the text is a clause."""


def builtin(*operators: str, **fixed: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function is the formula of these operators (`ns::name`, or
    `ns::name.overload`); `fixed` are arguments that it gets besides theirs."""

    def bind(function):
        for operator in operators:
            _table[operator] = (function, fixed)
        return function

    return bind


def find(op: str) -> Callable[..., Any] | None:
    """The built-in reference of `ns::name.overload` as a function of (schema, args,
    kwargs), or None."""
    load()
    exact = op.removesuffix(".default")
    entry = _table.get(exact) or _table.get(exact.split(".")[0])
    if entry is None:
        return None
    function, fixed = entry
    wanted = _parameters(function) - fixed.keys()

    def call(schema, args, kwargs):
        return function(**_named(schema, wanted, args, kwargs), **fixed)

    return call


@cache
def _parameters(function):
    return inspect.signature(function).parameters.keys()


def known() -> list[str]:
    """Names of all operators with a built-in reference, sorted."""
    load()
    return sorted(_table)


def load() -> None:
    """Loads the formulas, which the first search for one does otherwise."""
    if not _loaded:
        # Each fills the table; one that somebody imported before must not hide the others.
        from . import activations, aten, attention, norms, npu_attention  # noqa: F401
        from . import quantized, recurrent, scaled_products  # noqa: F401

        _loaded.append(True)


def _named(schema, wanted, args, kwargs):
    """Arguments by their schema's names; NoReference where one that the formula does not
    know is not at its default."""
    given = {a.name: value for a, value in zip(schema.arguments, args)} | kwargs
    for argument in schema.arguments:
        name = argument.name
        if name in wanted or name in IDLE or name not in given:
            continue
        default = argument.default_value if argument.has_default_value() else None
        if given[name] is not None and given[name] != default:
            raise NoReference(f"{name}={given[name]} is not in the built-in reference")
    return {name: value for name, value in given.items() if name in wanted}


def no_dropout(probability: float) -> None:
    """Refuses a formula whose result is random."""
    if probability:
        raise NoReference("it drops out at random")
