# SPDX-License-Identifier: Apache-2.0
"""What the options of `ulpscope check` choose of a trace, and what is to be said of it.
Needs no torch. Neighbours: `_select` (which calls can be replayed), `_modules`, `_check`."""

from . import _modules, _select
from ._crew import Trouble

COMPILED = ("{what} not recorded: what torch.compile generated is not judged "
            "here; capture --no-compile, or check --via inductor")
INCOMPLETE = ("the trace is incomplete: the program ended or died in step {step}; calls that "
              "follow are missing")  # fmt: skip
MADE_UP = "the trace holds statistics only: inputs were drawn anew from them"


def selection(trace, options):
    """Picks, the device type that captured the trace, and what is to be said of the trace."""
    rows = [trace.call(s) for s in trace.select()]
    if not rows:
        why = trace.meta("lost") or "nothing to check"
        raise Trouble(f"{options.trace} holds no calls: {why}; capture it again")
    home = _select.home_of(rows)
    target = options.device.split(":")[0]
    picks = _select.pick(rows, home, target)
    wanted = wanted_calls(trace, options, rows)
    if options.level == "module":
        picks = module_selection(options, picks, rows, wanted)
    else:
        picks = picks if wanted is None else _select.narrow(picks, wanted)
        if options.distinct:
            by_sequence = {r["sequence"]: r for r in rows}
            picks = _select.distinct(picks, by_sequence.__getitem__)
        _select.link(picks, rows)
    if not picks:
        raise Trouble(nothing_to_check(options, rows, wanted))
    return picks, home, remarks_on(trace, rows)


def wanted_calls(trace, options, rows):
    """Sequences of the calls that the options ask for; None for all."""
    if options.call is not None and all(r["sequence"] != options.call for r in rows):
        raise Trouble(f"{options.trace} holds no call {options.call}: it has {rows[0]['sequence']} "
                      f"to {rows[-1]['sequence']}; ulpscope show lists them")  # fmt: skip
    if not filters(options):
        return None
    matching = trace.select(ops=options.ops, module=options.module, phase=options.phase)
    return _select.wanted(rows, set(matching), options.steps, options.call)


def filters(options):
    """The options that leave calls out, as they are written."""
    given = [f"#{options.call}"] if options.call is not None else []
    return given + [f"--{name} '{getattr(options, name)}'" for name in ("ops", "module", "phase", "step")
                    if getattr(options, name)]  # fmt: skip


def nothing_to_check(options, rows, wanted):
    """Why no call is left, and what to do, in one sentence."""
    what = "forward of a module" if options.level == "module" else "call"
    if not filters(options):
        return f"no {what} of {options.trace} can be replayed: nothing to check"
    told = " ".join(filters(options))
    if wanted and options.level == "call":
        ops = sorted({r["op"] for r in rows if r["sequence"] in wanted})
        return (f"what {told} leaves of {options.trace} cannot be replayed ({', '.join(ops[:3])}): "
                "nothing to check")  # fmt: skip
    meant = _select.likely_ops(options.ops, {r["op"] for r in rows}) if options.ops else []
    hint = f"; did you mean --ops {','.join(meant)}?" if meant else ""
    return f"no {what} of {options.trace} matches {told}: nothing to check{hint}"


def module_selection(options, picks, rows, wanted):
    """The forwards of modules that are to be judged."""
    found = _modules.forwards(picks, rows)
    if wanted is not None:
        found = [f for f in found if any(wanted & {p.sequence, *p.children} for p in f.calls)]
    return _modules.distinct(found, rows) if options.distinct else found


def remarks_on(trace, rows):
    """What is to be said of all verdicts on a trace."""
    remarks = [MADE_UP] if trace.meta("data") == "stats" else []
    if (lost := trace.meta("lost")) is not None:
        remarks.append(f"the trace is incomplete: {lost}")
    elif trace.meta("complete") == "0":
        step = max((r["step"] or 0 for r in rows), default=0)
        remarks.append(INCOMPLETE.format(step=step))
    regions = int(trace.meta("compiled_regions") or 0)
    if regions:
        were = "region was" if regions == 1 else "regions were"
        remarks.append(COMPILED.format(what=f"{regions} compiled {were}"))
    return remarks
