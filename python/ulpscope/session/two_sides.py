# SPDX-License-Identifier: Apache-2.0
"""`@ulpscope.fuzz`: a test in plain torch text as cases of a seed (`programs`), on two sides. Needs
nothing of torch itself."""

import functools

from ..calls.verdicts import FLAGGED
from ..executors.device import open_device
from . import text_profile
from .explained import explain
from .programs import Refused, judged

REFUSALS = 20  # draws that the CPU may refuse for each that it takes
# What the parts of a result are called in a text that is differentiated (`calls.gradients`).
PARTS = {"out[1]": "gradient of an input", "out[2]": "gradient of a gradient: of the inputs, then of the first cotangent"}


def fuzz(function=None, *, n=20, devices=("cpu", "sim:0"), seed=0, case=None, backward=True, cause=True, judge=True,
         double_backward=False, via="", profile=False):  # fmt: skip
    """
    Runs a test as `n` cases of a seed on each device behind the first one, which is the CPU. Outputs,
    intermediates and gradients for a random cotangent are judged as `ulpscope.check_call` does; with
    `double_backward` the gradients of these for another one, too.

    `profile=True` judges nothing: it prints how long each operator takes on both sides, and keeps the rows as `.rows` of the test.
    `via` names a backend of torch.compile: what it makes of the text's operators runs on the device.

    AssertionError with the verdict and the case where one is accused; `case` runs that one alone.
    `judge=False` only runs them.
    ValueError where the CPU refuses more than 20 draws for each it takes, or nothing is judged.
    """
    if function is None:
        return functools.partial(fuzz, n=n, devices=devices, seed=seed, case=case, backward=backward, cause=cause,
                                 judge=judge, double_backward=double_backward, via=via, profile=profile)  # fmt: skip
    if not devices or str(devices[0]) != "cpu":
        raise ValueError(f"devices is {devices!r}: the first is \"cpu\", which says what is right")

    if via and double_backward:
        raise ValueError("torch.compile has no double backward: leave double_backward or via out")

    @functools.wraps(function)
    def test(*args):
        __tracebackhide__ = True
        for device in devices[1:] or devices:
            if profile:
                test.rows = text_profile.profiled(function, seed, range(n) if case is None else [case], open_device(str(device)).name,
                                                  args, backward)  # fmt: skip
                print(text_profile.table(getattr(function, "__name__", "the test"), device, test.rows))
                continue
            name = open_device(str(device), via=via).name  # a sentence where there is none
            _run(function, args, name, [case] if case is not None else None, n, seed,
                 {"backward": backward, "cause": cause, "judge": judge, "double_backward": double_backward, "via": via})  # fmt: skip

    test.rows = []
    return test


def _run(function, args, device, cases, n, seed, how):
    __tracebackhide__ = True
    name = getattr(function, "__name__", "the test")
    taken = told = tried = 0
    why = ""
    while taken < (1 if cases else n):
        if tried > (0 if cases else REFUSALS * n):
            raise ValueError(f"{name}: the CPU takes {taken} of {tried} draws, the last is refused: {why}; "
                             "narrow what is drawn")  # fmt: skip
        case, tried = cases[0] if cases else tried, tried + 1
        try:
            verdict = judged(function, seed, case, device, args, **how)
        except Refused as problem:
            why = str(problem)
            continue
        except AssertionError as problem:
            raise AssertionError(_said(name, device, seed, case, str(problem))) from problem.__cause__
        taken += 1
        told += verdict is None or verdict.verdict != "unjudged"
        if verdict is not None and verdict.verdict in FLAGGED:
            raise AssertionError(_said(name, device, seed, case, explain(verdict)))
    if not told:
        raise ValueError(f"{name}: none of {taken} cases could be judged: {verdict.sentence}")


def _said(name, device, seed, case, text):
    differentiated = " with backward " in text or " with double backward " in text
    where = "".join(f"\n{path} is a {what}" for path, what in PARTS.items() if differentiated and path in text)
    return f"{name} on {device}, case {seed}:{case}: {text}{where}\nthat case alone: fuzz(seed={seed}, case={case}, ...)"
