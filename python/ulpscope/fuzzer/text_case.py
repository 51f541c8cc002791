# SPDX-License-Identifier: Apache-2.0
"""A case of a text (`programs`) as a function of tensors, and the verdict on it on a device. Needs of torch: make_fx,
for compilers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ..calls.foreign import foreign, theirs
from ..calls.gradients import with_gradients
from ..calls.older import zip_equal
from ..calls.verdicts import clause
from ..executors.via import backend
from .generators import CannotDraw
from . import frameworks
from ..session.api import check_text
from .programs import played, running
from .tape import Tape
from .steps import Run


LACKING = (NotImplementedError, AttributeError, ImportError)


class Refused(Exception):
    """The CPU refuses a case: another one is drawn."""


class Disagrees(AssertionError):
    """One side raises where the other one does not, or something else."""


def compiled(
    program: Callable[..., Any], leaves: Sequence[torch.Tensor], via: str, gradients: bool
) -> Callable[..., Any]:
    """What a compiler makes of the operators of a text, as a run on these tensors shows them."""
    torch.compiler.reset()
    module = torch.compile(make_fx(program)(*leaves), backend=backend(via, "cpu", gradients), dynamic=False)

    def run(*leaves):
        return module(*leaves)

    run.__name__ = program.__name__
    return run


def replayed(
    function: Callable[..., Any], first: Tape, device: Any, args: Sequence[Any] = ()
) -> tuple[Callable[..., Any], list[torch.Tensor], bool]:
    """
    A case of a text, on a tape of its own, as a function of the tensors that it begins with, these, and whether
    gradients can be asked. Refused where the CPU refuses it, and the device does with an exception of that kind;
    Disagrees where it does not.
    """
    runs = itertools.count(1)

    def program(*leaves):
        # Gradients are asked of all that a function is given: a buffer of a module takes none.
        leaves = [t if made.requires_grad else t.detach() for t, made in zip_equal(leaves, first.made)]
        now = Tape(first.seed, first.case, list(leaves), next(runs), first.choices)
        if first.bodily:
            return played(function, now, args)
        now.inside = True
        with running(now):
            return first.steps.run(leaves, now.place)

    program.__name__ = getattr(function, "__name__", "program")
    other = frameworks.find(device)
    first.elsewhere = frameworks.Side(other, first.steps, ()) if other else Run(first.steps, (), device)
    try:
        outputs = played(function, first, args)
    except CannotDraw as problem:
        raise Refused(str(problem)) from None
    except Exception as problem:
        foreign(problem)
        if problem is not first.refused or isinstance(problem, (NameError, AttributeError, ImportError, SyntaxError)):
            raise  # the text's own assertion, or a mistake in it: no other draw would mend it
        if first.steps.pending:  # no module that torch does not make
            _same_refusal(on_side(program, first, device), device, first.made, problem)
        raise Refused(f"{type(problem).__name__}: {clause(problem)}") from None
    leaves = [t.detach().requires_grad_(t.requires_grad) for t in first.made]
    own = any(
        step.word.kind == "method" and step.word.name == "backward" for step in first.steps.lines
    )  # its graph is gone
    return program, leaves, not own and any(t.requires_grad for t in outputs) and any(t.requires_grad for t in leaves)


def judged(
    function: Callable[..., Any],
    first: Tape,
    device: Any,
    args: Sequence[Any] = (),
    backward: bool = True,
    cause: bool = True,
    judge: bool = True,
    double_backward: bool = False,
    via: str = "",
) -> Any:
    """The verdict on a case of a text, on a device; None where it is only to run. As `replayed` where one of both
    refuses it."""
    program, leaves, has = replayed(function, first, device, args)
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
            theirs(on_side(program, first, device), *moved(leaves, device))
            return None
        made = compiled(program, leaves, via, backward) if via else None
        if frameworks.find(device):
            made, device = on_side(program, first, device, leaves if backward else None), "cpu"
        return check_text(program, leaves, device, backward, double_backward, cause, made)
    except frameworks.Differs as problem:
        raise Disagrees(str(problem)) from None
    except Exception as problem:
        foreign(problem)
        raise Disagrees(
            f"it raises {type(problem).__name__} where the CPU gives a result: {clause(problem)}"
        ) from problem


def on_side(
    program: Callable[..., Any], first: Tape, device: Any, leaves: Sequence[torch.Tensor] | None = None
) -> Callable[..., Any]:
    """The program as a device runs it. Where that is another framework, with the gradients of `leaves` if these are
    given."""
    framework = frameworks.find(device)
    if framework is None:
        return program
    asked = None if leaves is None else frameworks.asked_gradients(program, leaves)
    return frameworks.program(framework, first.steps, program.__name__, asked)


def moved(leaves: Sequence[torch.Tensor], device: Any) -> list[torch.Tensor]:
    """Copies of tensors on a device; another framework takes them from the CPU."""
    place = "cpu" if frameworks.find(device) else device
    return [t.detach().clone().to(place).requires_grad_(t.requires_grad) for t in leaves]


def _same_refusal(program, device, leaves, problem):
    """Disagrees where a device answers what the CPU refuses, or refuses it with an exception of another kind. Of
    another framework that is whether it has the thing at all: each has exceptions of its own for arguments that do not
    go."""
    framework = frameworks.find(device)
    if (framework is None and torch.device(device).type == "cpu") or not leaves:
        return
    try:
        theirs(program, *moved(leaves, device))
    except Exception as other:  # whatever the device raises
        foreign(other)
        kinds = type(problem), type(other)
        alike = issubclass(*kinds) or issubclass(*kinds[::-1])
        if framework is not None:
            alike = isinstance(problem, LACKING) == isinstance(other, LACKING)
        if not alike:
            raise Disagrees(
                f"it raises {kinds[1].__name__} ({clause(other)}) where the CPU raises "
                f"{kinds[0].__name__} ({clause(problem)})"
            ) from None
        return
    raise Disagrees(f"it gives a result where the CPU raises {type(problem).__name__} ({clause(problem)})")
