# SPDX-License-Identifier: Apache-2.0
"""The call of one operator on arguments that somebody gives, as a trace of it would have it: judged so, it is told
what a check tells. Beside it `callable` makes calls of whatever else can be called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .callable import Maker, as_numbers, changed, name_of
from .flex import in_the_open
from .foreign import foreign
from .kernels import overload_of
from .replay import BadCall, Call, bind_exact, draws_random, is_write
from .call_results import outputs_of, plain
from .torch_older import is_autocast_on
from .torch_private import OpOverload, OpOverloadPacket, resolved
from .verdicts import clause

TENSORS = ("Tensor", "List[Tensor]")


@dataclass
class OperatorCall(Call):
    """With what was learnt of it on the CPU, as `callable.Composite` has it."""

    native: dict[str, torch.Tensor] | None = None  # its outputs on the CPU in the dtypes given, None where it raises
    problem: str = ""  # what it raised
    random: bool = False
    returned: str = ""  # of a callable: what it returns that is no number


def operator_call(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    left: bool = False,
) -> Call | None:
    """The call; None where the function is no operator, gives what is no tensor, is given tensors that a trace does
    not hold as they are, or writes arguments by its schema and nobody says how these were `left`."""
    overload, kwargs = _overload(getattr(function, "stands_for", function), args, kwargs or {}), kwargs or {}
    if overload is None or is_autocast_on("cpu") or not _is_plain(overload._schema, left):
        return None
    if any(isinstance(a, torch.Tensor) and a.is_quantized for a in (*args, *kwargs.values())):
        return None
    maker = Maker()
    try:
        args = [maker.argument(a, f"args[{i}]", "") for i, a in enumerate(args)]
        kwargs = {k: maker.argument(v, f"kwargs.{k}", k) for k, v in kwargs.items()}
    except BadCall:
        return None
    # Its name as sentences have it: a default overload goes without.
    call = OperatorCall(0, name_of(overload), args, kwargs, maker.views, storages=maker.storages, function=overload)
    call.random = draws_random(call)
    _learn(call)
    return call


def _overload(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> OpOverload | None:
    """The overload that a callable is on these arguments; None where it is none."""
    function = overload_of(function)
    if isinstance(function, OpOverloadPacket):
        function = resolved(function, args, kwargs)
    return function if isinstance(function, OpOverload) else None


def _is_plain(schema: Any, left: bool) -> bool:
    """Whether it gives new tensors alone; where it is known how it `left` its arguments, these as well."""
    writes = any(map(is_write, schema.arguments))
    return (
        bool(schema.returns or writes)
        and (left or not writes)
        and all(str(r.type) in TENSORS and (r.alias_info is None or is_write(r)) for r in schema.returns)
    )


def _learn(call: OperatorCall) -> None:
    """Runs the call as it is and notes what it gives, and writes beside its schema."""
    bound = bind_exact(call, lambda captured: "cpu")
    try:
        with in_the_open():
            result = bound.run(call.function)
    except Exception as problem:  # the CPU refuses these dtypes: float32 may do
        foreign(problem)
        call.problem = clause(problem)
        return
    call.mutated = {p: call.views[p] for p in changed(call, bound)}
    call.native = {p: plain(t).clone() for p, t in as_numbers(call, outputs_of(call, bound, result)).items()}
