# SPDX-License-Identifier: Apache-2.0
"""`@ulpscope.fuzz`: a test in plain torch text as cases of a seed (`programs`), on two sides. Needs
nothing of torch itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..calls.older import add_note
from ..calls.verdicts import FLAGGED
from ..executors.device import open_device
from . import frameworks, steps, text_failure, text_profile
from .tape import Tape
from .text_case import Disagrees, Refused, judged
from .text_failure import Failure, parsed, told

if TYPE_CHECKING:
    import torch

REFUSALS = 20  # draws that the CPU may refuse for each that it takes
HOW = {"backward": True, "cause": True, "judge": True, "double_backward": False, "via": ""}  # of `judged`, by default


@overload
def fuzz(function: Callable[..., Any]) -> Callable[..., None]: ...


@overload
def fuzz(
    function: None = None,
    *,
    n: int = 20,
    devices: Sequence[str | torch.device] = ("cpu", "sim:0"),
    seed: int = 0,
    case: int | str | None = None,
    backward: bool = True,
    cause: bool | float = True,
    judge: bool = True,
    double_backward: bool = False,
    via: str = "",
    profile: bool = False,
    shrink: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., None]]: ...


def fuzz(
    function: Callable[..., Any] | None = None,
    *,
    n: int = 20,
    devices: Sequence[str | torch.device] = ("cpu", "sim:0"),
    seed: int = 0,
    case: int | str | None = None,
    backward: bool = True,
    cause: bool | float = True,
    judge: bool = True,
    double_backward: bool = False,
    via: str = "",
    profile: bool = False,
    shrink: bool = True,
) -> Any:
    """
    Runs a test as `n` cases of a seed on each device behind the first one, which is the CPU. Outputs,
    intermediates and gradients for a random cotangent are judged as `ulpscope.check_call` does; with
    `double_backward` the gradients of these for another one, too.

    `profile=True` judges nothing: it prints how long each operator takes on both sides, and keeps the rows as `.rows`
    of the test. `via` names a backend of torch.compile: what it makes of the text's operators runs on the device.

    AssertionError where one is accused, with the verdict, the program as it was drawn, made small by simpler draws
    where `shrink` is, and what to type to run it alone: `case` is a number, or what was printed. What the test itself
    raises, as by an assertion, is raised as it is. `judge=False` only runs them. `.ran` of the test counts the runs.
    ValueError where the CPU refuses more than 20 draws for each it takes, or nothing is judged.
    """
    how = {"backward": backward, "cause": cause, "judge": judge, "double_backward": double_backward, "via": via}
    if function is None:
        return functools.partial(
            fuzz, n=n, devices=devices, seed=seed, case=case, profile=profile, shrink=shrink, **how
        )
    if via and double_backward:
        raise ValueError("torch.compile has no double backward: leave double_backward or via out")
    options = {k: v for k, v in how.items() if v != HOW[k]} | {"by": ("fuzz", "ulpscope.fuzzing")}
    return on_two_sides(function, devices, how, options, n=n, seed=seed, case=case, profile=profile, shrink=shrink)


def _for_pytest(function):
    """The signature of a test as it is called, which pytest reads, and what stands for an argument that is left
    out: outside of a class nobody gives the TestCase, for which the text has a name."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if (
        "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
        or len(parameters) != 1
        or parameters[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD
        or parameters[0].default is not inspect.Parameter.empty
    ):
        return signature, ()
    return signature.replace(parameters=[parameters[0].replace(default=None)]), (None,)


def on_two_sides(
    function: Callable[..., Any],
    devices: Sequence[Any],
    how: dict[str, Any],
    options: dict[str, Any],
    *,
    n: int,
    seed: int,
    case: Any,
    profile: bool = False,
    shrink: bool = True,
    verbose: bool = False,
) -> Callable[..., Any]:
    """The test. `options` are those that a line to run a case again has; `by`: the name of the decorator and its
    module."""
    if not devices or str(devices[0]) != "cpu":
        raise ValueError(f'devices is {devices!r}: the first is "cpu", which says what is right')
    function = getattr(function, "text", function)  # of a test that has a decorator already
    alone = parsed(case, seed) if case is not None else None
    signature, nobody = _for_pytest(function)

    @functools.wraps(function)
    def test(*args):
        __tracebackhide__ = True
        args = args or nobody
        test.ran = {"taken": 0, "refused": 0}
        for device in devices[1:] or devices:
            if profile:
                if frameworks.find(device) is not None:
                    raise ValueError(
                        f"{device} is another framework, whose operators have no times here: leave profile out"
                    )
                test.rows = text_profile.profiled(
                    function,
                    seed,
                    range(n) if case is None else [alone[1]],
                    open_device(str(device)).name,
                    args,
                    how["backward"],
                )
                print(text_profile.table(getattr(function, "__name__", "the test"), device, test.rows))
                continue
            name = opened(device, how)
            _Run(function, name, args, how, options, shrink, verbose, test.ran).all(n, seed, alone)

    test.rows, test.text, test.ran, test.__signature__ = [], function, {}, signature
    return test


def opened(device: Any, how: dict[str, Any]) -> str:
    """The name of a device, or of another framework; a sentence where there is none."""
    if frameworks.find(device) is None:
        return open_device(str(device), via=how["via"]).name
    if how["via"] or how["double_backward"]:
        raise ValueError(f"{device} has neither via nor double_backward: leave these out")
    return str(device)


class _Run:
    """A test on one device."""

    def __init__(self, function, device, args, how, options, shrink, verbose, ran):
        self.function, self.device, self.args, self.how, self.options = function, device, args, how, options
        self.shrink, self.verbose, self.ran = shrink, verbose, ran
        self.name = getattr(function, "__name__", "the test")

    def all(self, n, seed, alone):
        """Cases until `n` are taken, or one that was asked for."""
        __tracebackhide__ = True
        taken = judged_ones = tried = 0
        why = ""
        while taken < (1 if alone else n):
            if tried > (0 if alone else REFUSALS * n):
                raise ValueError(
                    f"{self.name}: the CPU takes {taken} of {tried} draws, the last is refused: {why}; "
                    "narrow what is drawn"
                )
            tape = Tape(*alone[:2], choices=alone[2]) if alone else Tape(seed, tried)
            tried += 1
            try:
                verdict = self.one(tape)
            except Refused as problem:
                why = str(problem)
                self.ran["refused"] += 1
                self.say(f"case {tape.seed}:{tape.case} is refused: {why}")
                continue
            taken += 1
            self.ran["taken"] += 1
            judged_ones += verdict is None or verdict.verdict != "unjudged"
            self.say(
                "\n    ".join(
                    [f"case {tape.seed}:{tape.case}: {verdict.verdict if verdict else 'ran'}", *steps.text(tape.steps)]
                )
            )
        if tried > taken or self.verbose:
            print(
                f"{self.name} on {self.device}: {taken} cases, the test ran {tried} times: {tried - taken} draws "
                "were refused" + (f", the last one as {why}" if why else "")
            )
        if not judged_ones:
            raise ValueError(f"{self.name}: none of {taken} cases could be judged: {verdict.sentence}")

    def one(self, tape):
        """The verdict on one case; raises where it fails."""
        __tracebackhide__ = True
        try:
            verdict = judged(self.function, tape, self.device, self.args, **self.how | {"cause": False})
        except Refused:
            raise
        except Disagrees as problem:
            raise AssertionError(self.told(Failure(tape, problem=problem))) from problem.__cause__
        except AssertionError as problem:  # of the text itself
            add_note(problem, self.told(Failure(tape, problem=problem)))
            raise
        except Exception as problem:
            add_note(problem, text_failure.again(self.function, self.device, self.args, self.options, tape))
            raise
        if verdict is not None and verdict.verdict in FLAGGED:
            raise AssertionError(self.told(Failure(tape, verdict)))
        return verdict

    def told(self, failure):
        return told(failure, self.function, self.device, self.args, self.options, self.how, self.shrink)

    def say(self, text):
        if self.verbose:
            print(f"{self.name} on {self.device}, {text}")
