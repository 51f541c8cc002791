# SPDX-License-Identifier: Apache-2.0
"""Know whether an accelerator computes your model correctly.

    ulpscope.capture(folder, steps=[0])     record what a program's operators do
    ulpscope.live_check()                   judge every operator while a program trains
    ulpscope.nan_tracker()                  find where NaN and Inf are born, while it trains
    ulpscope.watch(model, optimizer)        find silent corruption in a run of weeks
    ulpscope.fallback(ops)                  compute these operators on the CPU instead
    ulpscope.cast(ops, "float32")           or in another dtype
    ulpscope.substitute(op, fn)             or by a Python function
    ulpscope.fp32_collectives()             have gradients of half precision added in float32
    ulpscope.deterministic()                the same bits at every run, as far as settings go
    ulpscope.seed_all(0, cpu_random=True)   the same random numbers on every device
    ulpscope.time_ops()                     how long each operator takes
    ulpscope.observe(output="calls.jsonl")  what each operator got and gave, as JSON lines
    ulpscope.operator(mutates=["out"])      a decorator: the function's calls are recorded
    ulpscope.step()                         one step of that program ends here
    ulpscope.check_call(fn, args)           run a callable, judge what it computes
    ulpscope.judge_call(fn, args, kwargs, outputs)
                                            judge what some device computed
    ulpscope.results("ulpscope-out")        what a check or a diff found, for a notebook
    ulpscope.testing.assert_accurate(kernel, reference, *args)
                                            the same as an assertion of a test
    ulpscope.fuzz(n=20, devices=("cpu", "sim:0"))
                                            a decorator: a test in plain torch text, on two sides
    ulpscope.reference.register("ns::name") what an operator's results are held to

`import ulpscope.sim` adds the simulated accelerator as the torch device `sim`; nothing else
does. The program is `ulpscope` (`python -m ulpscope`): `ulpscope --help`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import fuzzing, reference, testing
    from .fuzzing import fuzz
    from .session.api import check_call, judge_call
    from .session.call_verdict import CallVerdict, OutputVerdict
    from .session.results import results
    from .program.capture import capture, step
    from .program.live import CheckFailed, live_check
    from .program.nan import nan_tracker
    from .program.observing import observe
    from .program.operators import operator
    from .program.repeatable import deterministic, seed_all
    from .program.reroute import cast, fallback, fp32_collectives, substitute
    from .program.timing import time_ops
    from .watching.watch import watch
    from .watching.watch_events import WatchAlarm

    __version__: str

__all__ = [
    "CallVerdict",
    "CheckFailed",
    "OutputVerdict",
    "capture",
    "cast",
    "check_call",
    "deterministic",
    "fallback",
    "fp32_collectives",
    "fuzz",
    "fuzzing",
    "judge_call",
    "live_check",
    "WatchAlarm",
    "nan_tracker",
    "observe",
    "operator",
    "reference",
    "results",
    "seed_all",
    "step",
    "substitute",
    "testing",
    "time_ops",
    "watch",
]

_HOMES = {
    "CallVerdict": "session.call_verdict",
    "OutputVerdict": "session.call_verdict",
    "results": "session.results",
    "operator": "program.operators",
    "fuzz": "fuzzing",
    "capture": "program.capture",
    "step": "program.capture",
    "live_check": "program.live",
    "CheckFailed": "program.live",
    "nan_tracker": "program.nan",
    "__version__": "_core",
    "fallback": "program.reroute",
    "watch": "watching.watch",
    "WatchAlarm": "watching.watch_events",
    "cast": "program.reroute",
    "substitute": "program.reroute",
    "fp32_collectives": "program.reroute",
    "time_ops": "program.timing",
    "observe": "program.observing",
    "deterministic": "program.repeatable",
    "seed_all": "program.repeatable",
}
_MODULES = ("fuzzing", "reference", "testing")


def __getattr__(name: str) -> object:
    """Loads what needs torch when it is asked for: the programs of this package begin without."""
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__ and name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = importlib.import_module("." + _HOMES.get(name, "session.api"), __name__)
    except (ImportError, AttributeError) as problem:
        old = importlib.import_module(".program.shared_objects", __name__).too_old_here()
        if old:
            raise ImportError(old) from problem
        raise
    found = globals()[name] = getattr(home, name.strip("_") if name == "__version__" else name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__", "__name__", "__file__", "__path__"])
