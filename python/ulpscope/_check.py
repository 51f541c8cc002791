# SPDX-License-Identifier: Apache-2.0
"""`ulpscope check TRACE --device DEVICE`: replays every call of a trace on a device, has it
judged, and keeps the verdicts in OUT/result.db as they come, so that the same command goes
on where it was interrupted.

This process selects, hands out and writes; `_worker` processes replay and judge.
"""

import importlib.metadata
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress

from . import _core, _rank_runs, _rooms, _select, _threads
from ._agenda import Agenda, Budget, seconds_of
from ._chosen import selection
from ._crew import Crew, Trouble
from ._identity import difference
from ._options import Parser
from ._progress import Progress
from ._verdicts import FLAGGED, PRECEDENCE, base_row

UNKNOWN = "unknown here"  # as _replay.resolve says it
WHILE = {"device": "", "compiling": " while compiling"}  # phases that are the device's
TIMEOUT = 120.0
ENDS = {"crash": "crashed", "hang": "timeout"}  # faults by what becomes of their process
SEARCH_SECONDS = 2.0  # as in _causes_host, which needs torch
REPEAT = 2  # runs of a call on the device
PARTS = ("device", "reference", "perturbed", "judge", "causes")


def parse(argv):
    parser = Parser(
        prog="ulpscope check",
        description="Replay every call of a trace on a device and judge each one.",
        epilog="Collectives are not replayed: what this rank got is judged against what all ranks "
        "gave, from the folders rank-N beside TRACE. Exit code: 0 nothing flagged, 1 something "
        "flagged, 2 trouble or nothing judged.",
    )
    add = parser.add_argument
    add("trace", metavar="TRACE[#SEQUENCE]",
        help="folder that `ulpscope capture` wrote, and one call of it")
    add("--device", required=True, metavar="DEVICE",
        help="device under test: sim:0, npu:0, cuda:1, ..., or python:MODULE:FUNCTION")
    add("--via", default="", metavar="COMPILER",
        help="judge what torch.compile generates for DEVICE with this backend: inductor")
    add("--level", choices=("call", "module"), default="call",
        help="judge every call (default), or the forward of every module as one graph")
    add("-o", "--out", default="ulpscope-out", metavar="OUT",
        help="folder of the results (default ulpscope-out)")
    add("--ops", metavar="PATTERN", help="operators to check, e.g. 'aten::*mm*,!aten::bmm'")
    add("--module", metavar="GLOB", help="modules to check, e.g. 'layers.3.*'")
    add("--phase", choices=("forward", "backward", "optimizer"), help="phase to check")
    add("--step", metavar="LIST", help="steps to check, e.g. 2 or 2,5-8")
    add("-j", "--jobs", type=int, metavar="N", help="workers (default: one per core)")
    add("--memory", type=_rooms.size_of, metavar="SIZE",
        help="memory that all workers together may take, e.g. 6GiB (default 75%% of what is free)")
    add("--timeout", type=float, default=TIMEOUT, metavar="S",
        help="seconds that one call may take (default 120)")
    add("--causes", default=SEARCH_SECONDS, type=causes_of, metavar="off|S",
        help="seconds that the search for the cause of one finding may take (default 2), or off")
    add("--repeat", type=int, default=REPEAT, metavar="N",
        help="run each call N times on the device and judge every answer that differs (default 2)")
    add("--distinct", action="store_true",
        help="one call per operator, shapes, dtypes and module class")
    add("--import", action="append", default=[], dest="imports", metavar="MODULE",
        help="import MODULE (or FILE.py) first: it registers custom operators "
        "(may be repeated)")
    add("--faults", metavar="SPEC", help="faults to plant in the simulated device")
    add("--allow", action="append", default=[], metavar="VERDICT[:PATTERN]",
        help="do not flag these (may be repeated)")
    add("--strict", action="store_true", help="flag undefined, unjudged and unsupported as well")
    add("--min-judged", metavar="SHARE",
        help="exit code 2 where less of the calls is judged (default 50%%)")
    add("--standard", default="ulpscope", metavar="NAME",
        help="judge by another rule, e.g. ascend-v1, torch-close, allclose:1e-3,1e-3")
    add("--compare-standards", action="store_true",
        help="tell what every other standard says of each call as well")
    add("--baseline", metavar="FILE", help="flag only what is new since that run")
    add("--junit", metavar="FILE", help="write JUnit XML")
    add("--annotate", action="store_true", help="print ::error lines for GitHub")
    add("--sort", choices=("verdict", "loss"), default="verdict",
        help="what comes first in the table (default verdict)")
    add("--budget", metavar="TIME", help="stop after 90s, 10m or 1h; the most telling calls "
        "come first, the same command goes on with the rest")  # fmt: skip
    add("--self-test", action="store_true",
        help="tell what the verdict would have caught, and what not, on these data")
    add("--force", action="store_true", help="begin anew, whatever OUT holds")
    add("--verbose", action="store_true", help="tell where the time went")
    options = parser.parse_args(argv)
    options.trace, options.call = _select.split_call(options.trace, os.path.isdir)
    if not 0 < options.timeout < math.inf:
        parser.error("--timeout must be a number of seconds above 0")
    if options.repeat < 1:
        parser.error("--repeat must be 1 or more")
    if options.jobs is not None and options.jobs < 1:
        parser.error("-j must be 1 or more")
    try:
        options.steps = _select.steps_of(options.step) if options.step else []
    except ValueError as problem:
        parser.error(f"--step: {problem}")
    if not options.device:
        parser.error("--device names no device")
    if options.faults and not is_sim(options):
        parser.error("--faults: only the simulated device has planted faults; use --device sim:0")
    if options.via and options.device.startswith("python:"):
        parser.error("--via: torch.compile needs a device that torch knows, e.g. --device cpu")
    if options.level == "module" and options.device.startswith("python:"):
        parser.error("--level module: a callable computes single operators; name a device that "
                     "torch knows, e.g. --device cpu")  # fmt: skip
    if options.level == "module" and options.self_test:
        parser.error("--self-test is about single calls; leave out --level module")
    try:
        options.seconds = seconds_of(options.budget) if options.budget else None
    except ValueError as problem:
        parser.error(f"--budget: {problem}")
    for allowed in options.allow:
        check_allowed(allowed, parser)
    try:
        _core.Standard(options.standard)
    except _core.ArgError as problem:
        parser.error(f"--standard: {problem}")
    share = (options.min_judged or "0").removesuffix("%")
    if not (share.isascii() and share.isdigit() and int(share) <= 100):
        parser.error(f"--min-judged '{options.min_judged}': a share from 0% to 100% is needed")
    if options.junit and not os.path.isdir(os.path.dirname(options.junit) or "."):
        parser.error(f"--junit {options.junit}: there is no folder {os.path.dirname(options.junit)}")
    if options.baseline and not os.path.exists(options.baseline):
        parser.error(f"--baseline: there is no {options.baseline}")
    return options


def causes_of(text):
    """The seconds of --causes; 0 for off."""
    seconds = 0.0 if text == "off" else float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def check_allowed(text, parser):
    """Refuses what `ulpscope report` would refuse when all the work is done."""
    verdict, _, pattern = text.partition(":")
    if verdict not in PRECEDENCE[:-1]:
        parser.error(f"--allow: '{verdict}' is no verdict that can be allowed; try one of "
                     + ", ".join(PRECEDENCE[:-1]))  # fmt: skip
    try:
        _core.check_pattern(pattern)
    except _core.ArgError as problem:
        parser.error(f"--allow: {problem}")


NEXT_STEPS = {
    "E_EXISTS": "; name another folder with -o, or --force to replace it",
    "E_VERSION": "; a newer ulpscope is needed",
    "E_CORRUPT": "; it is damaged, capture it or copy it again",
}


@contextmanager
def troubles(next_steps=NEXT_STEPS):
    """Errors of files and databases as the one sentence that ends the run, with what to do
    by the status of the error."""
    try:
        yield
    except Trouble:
        raise
    except Exception as problem:
        then = next_steps.get(getattr(problem, "status", ""), "")
        raise Trouble(f"{problem}{then}") from None


OUT_STEPS = {
    "E_EXISTS": "; name another folder with -o, or --force to replace it",
    "E_VERSION": "; a newer ulpscope is needed, or --force to replace it",
    "E_CORRUPT": "; --force replaces it, -o names another folder",
}

SAFE = "; the results so far are safe, the same command goes on from there"


# ---- what to do ----------------------------------------------------------------------


def core_count():
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def is_sim(options):
    """Whether the device under test is the simulated one."""
    return options.device.split(":")[0] == "sim"


def faults_of(options):
    """The planted faults, from the option or the environment; a device that is not simulated
    has none."""
    if not is_sim(options):
        return ""
    return options.faults if options.faults is not None else os.environ.get("ULPSCOPE_SIM_FAULTS", "")


def environment():
    """What the report says of the machine; not compared on resume."""
    def version(name):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return ""

    return {"python": platform.python_version(), "torch": version("torch"),
            "system": platform.platform(), "machine": platform.machine(),
            "cores": core_count(), "ulpscope": _core.version}  # fmt: skip


def telling(options):
    """Other options that choose calls or change verdicts; a value that is false is the default."""
    return {"compare_standards": options.compare_standards,
            "call": options.call or 0, "module": options.module, "phase": options.phase,
            "step": options.step, "level": options.level if options.level != "call" else "",
            "timeout": options.timeout if options.timeout != TIMEOUT else 0,
            "repeat": options.repeat if options.repeat != REPEAT else 0}  # fmt: skip


def run_identity(trace, options):
    """What makes two runs the same run (usc_run)."""
    return {
        "trace": os.fsencode(os.path.abspath(options.trace)).decode(errors="replace"),
        "trace_id": trace.meta("id") or "",
        "device": f"{options.device} via {options.via}" if options.via else options.device,
        "standard": options.standard,
        "faults": faults_of(options),
        "options": json.dumps(
            {"ops": options.ops or "", "distinct": options.distinct, "import": options.imports}
            | {name: value for name, value in telling(options).items() if value}
        ),
        "environment": json.dumps(environment()),
    }


class Beginning:
    """Marks a run as begun when the first worker tells what computes. Until then OUT is as an
    earlier run left it; a run that goes on does so only with what computed before."""

    def __init__(self, result, options, remarks, n_selected, trace):
        self.result, self.out, self.begun = result, options.out, False
        self.goes_on = bool(result.done())
        self.keys = {"n_selected": str(n_selected), "remarks": "\n".join(remarks),
                     "compiled_regions": trace.meta("compiled_regions") or "0",
                     "trace_incomplete": str(int(trace.meta("complete") == "0"))}  # fmt: skip

    def __call__(self, facts):
        if self.goes_on:
            self._compare(facts)
        with troubles({"E_IO": SAFE}):
            self.result.set("inputs", json.dumps(facts, sort_keys=True))
            self.result.set("state", "running")
            for key, value in self.keys.items():
                self.result.set(key, value)
        self.begun = True

    def _compare(self, facts):
        known = self.result.get("inputs")
        changed = difference(json.loads(known), facts) if known else "it does not say what computed"
        if changed:
            raise Trouble(f"{self.out} holds a run that was cut short, and since then: {changed}; "
                          "--force begins anew, -o names another folder")  # fmt: skip


def worker_settings(trace, options, home, jobs):
    budget = memory_of(options)
    return {
        "trace": os.path.abspath(options.trace),
        "trace_id": trace.meta("id") or "",
        "device": options.device,
        "via": options.via,
        "home": home,
        "threads": _threads.most(core_count(), jobs),
        "memory": budget // jobs,
        "recorded": json.loads(trace.meta("imports") or "[]"),
        "imports": options.imports,
        "standard": options.standard,
        "compare": options.compare_standards,
        "causes": options.causes,
        "repeat": options.repeat,
    }


def memory_of(options):
    """Bytes that all workers together may take; 0 where nobody tells what is free."""
    if options.memory is None:
        options.memory = int(_rooms.SHARE * _rooms.free())
    return options.memory


def rooms_of(trace, options):
    """Who holds how much of the memory, None where there is no limit."""
    budget = memory_of(options)

    def need(request):
        module = request.get("module")
        calls = module["calls"] if module else [request["call"]]
        return sum(_rooms.need_of(trace.call(call)) for call in calls)

    return _rooms.Rooms(budget, need) if budget else None


# ---- doing it ------------------------------------------------------------------------


def source_of(trace, request):
    """What the trace alone tells of what is to be judged."""
    module = request.get("module")
    return module["source"] if module else trace.call(request["call"])


def lost_row(trace, request, verdict, reason):
    """The row of a call whose worker did not survive it."""
    source = source_of(trace, request)
    row = base_row(source, verdict)
    row.update(sentence=f"{source['op']}: {reason}", stack=source.get("frames") or "",
               stands_for=request["stands_for"])  # fmt: skip
    row["metrics"].append((-1, "reason", 0.0, reason))
    return row


def row_of(event, trace, timeout):
    """The row that an event of the crew stands for."""
    kind, request = event[:2]
    if kind in ("row", "cause"):
        row = event[2]
        row["metrics"] = [tuple(m) for m in row["metrics"]]
        row["examples"] = [tuple(e) for e in row["examples"]]
        return row
    phase = event[2]
    if kind == "lost" and phase in WHILE:
        return lost_row(trace, request, "crashed", f"the device's process {event[3]}{WHILE[phase]}")
    if kind == "lost":
        return lost_row(trace, request, "unjudged", f"the CPU's process {event[3]} "
                        "while computing the reference")  # fmt: skip
    if phase in WHILE:
        why = f"no answer from the device in {timeout:g} s{WHILE[phase]}"
        return lost_row(trace, request, "timeout", why)
    return lost_row(trace, request, "unjudged", f"the reference took longer than {timeout:g} s")


class Split:
    """Where the time went, over all calls of this run."""

    def __init__(self):
        self.sums = dict.fromkeys((*PARTS, "total"), 0)
        self.calls = self.n_accused = 0
        self.verdicts = set()
        # Nanoseconds of calls that are not accused and of those that are: of one float64
        # replay of each, and of all the rest but the device and the search for causes.
        self.wide, self.rest, self.causes = [0, 0], [0, 0], 0

    def add(self, row):
        self.calls += 1
        accused = row["verdict"] in FLAGGED
        self.verdicts.add(row["verdict"])
        self.n_accused += accused
        self.wide[accused] += row.pop("t_wide", 0)
        for part in self.sums:
            self.sums[part] += row.get("t_" + part, 0)
        row.pop("t_causes", 0)
        self.rest[accused] += row["t_total"] - row["t_device"]

    def explain(self, row):
        """Counts the search for the cause of a call that was added before."""
        row.pop("t_wide", 0)
        causes = row.pop("t_causes", 0)
        self.causes += causes
        for part in ("causes", "total"):
            self.sums[part] += causes

    def text(self, seconds, jobs, verbose):
        """One line; verbose: with what took how long. There the ratios are those of everything but the device to one float64 replay
        of every call, its arguments read from the trace included. Accused calls, which are
        appealed for, and the search for their causes have their own."""
        if not self.calls:
            return ""
        text = (f"{self.calls:,} call{'s' * (self.calls != 1)} in {seconds:.1f} s on {jobs} "
                f"worker{'s' * (jobs != 1)}")  # fmt: skip
        if not verbose:
            return text
        per = {part: t / self.calls / 1e6 for part, t in self.sums.items()}
        rest = per["total"] - sum(per[p] for p in PARTS)
        parts = ", ".join(f"{p} {per[p]:.1f}" for p in PARTS)
        text += f"; ms per call {per['total']:.1f}: {parts}, overhead {rest:.1f}"
        if self.wide[False]:
            ratio = self.rest[False] / self.wide[False]
            text += f"; without the device {ratio:.2f}x one float64 replay of every call"
        if self.wide[False] and self.wide[True]:
            text += (f" that is not accused, {self.rest[True] / self.wide[True]:.0f}x of the "
                     f"{self.n_accused:,} accused, and {self.causes / self.wide[True]:.0f}x more "
                     "for their causes")  # fmt: skip
        return text


def left_out(trace, agenda, total, out):
    """What a budget left undone, in one sentence; "" for nothing."""
    calls = agenda.left()
    if not calls:
        return ""
    ops = Counter(source_of(trace, r)["op"] for r in calls)
    most = ", ".join(f"{op} ({n:,})" for op, n in ops.most_common(4))
    more = f" and {len(ops) - 4} other operators" if len(ops) > 4 else ""
    return (f"the budget is spent: {len(calls):,} of {total:,} calls are left out, of {most}{more}; "
            f"the same command goes on with them ({out})")  # fmt: skip


def agenda_of(trace, todo, options):
    """The requests for the crew, in the order in which they are to be taken."""
    requests = [p.request(bool(options.via)) for p in todo]
    if options.seconds is None:
        return Agenda(requests)
    by_call = {r["call"]: r for r in requests}
    return Budget(requests, lambda call: told_of(trace, by_call[call]), options.seconds)


def told_of(trace, request):
    """What tells one request from another: the row of its call, or the class of a module with
    all that its calls take."""
    module = request.get("module")
    if not module:
        return trace.call(request["call"])
    calls = [trace.call(s) for s in module["calls"]]
    kind = module["source"]["module_class"] or module["source"]["op"]
    return {"op": kind, "args": [[c["op"], c["args"]] for c in calls], "module_class": "",
            "tensors": [t for c in calls for t in c["tensors"]]}  # fmt: skip


def work_through(trace, result, crew, agenda, progress):
    """Hands every request to the crew and writes what comes back."""
    split, unknown, fired = Split(), set(), set()
    for event in crew.work(agenda):
        row = row_of(event, trace, crew.timeout)
        fired.update(row.pop("fired", ()))
        if event[0] == "cause":
            split.explain(row)
        else:
            split.add(row)
            agenda.hear(row)
        with troubles({"E_IO": SAFE}):
            result.put(row)
        if event[0] == "cause":
            continue
        progress.step(row)
        if UNKNOWN in row["sentence"]:
            unknown.add(row["op"])
    if unknown:
        script = (json.loads(trace.meta("argv") or "[]") or ["FILE.py"])[0]
        say(f"{', '.join(sorted(unknown))} {UNKNOWN}; what registers such operators can be "
            f"named with --import, e.g. --import {script}")  # fmt: skip
    if split.calls and split.calls == len(result.done()):  # all of them in this run
        say_idle(result.get("faults"), fired, split.verdicts)
    return split


def say_idle(faults, fired, verdicts):
    """Says which planted faults fired at no call; a process that one of them ended did not
    live to tell."""
    ended = {kind for kind, verdict in ENDS.items() if verdict in verdicts}
    planted = [f.strip() for f in (faults or "").split(";") if f.strip()]
    idle = [f for f in planted if f not in fired and not ended & set(f.split(":"))]
    if idle:
        say(f"planted, but fired at no call: {'; '.join(idle)}")


def check(options):
    """The whole run, of one trace or of every rank's; the exit code."""
    if options.faults is not None:
        os.environ["ULPSCOPE_SIM_FAULTS"] = options.faults
    ranks = _rank_runs.ranks_of(options.trace)
    if ranks:
        return _rank_runs.check_all(options, ranks, check_trace, report, say)
    return check_trace(options)


def check_trace(options):
    """The check of one trace; the exit code."""
    with troubles():
        trace = _core.Trace(options.trace)
        picks, home, remarks = selection(trace, options)
    with troubles(OUT_STEPS):
        result = _core.Result(options.out, run_identity(trace, options), options.force)
    try:
        beginning = Beginning(result, options, remarks, len(picks), trace)
        code = check_calls(trace, result, picks, home, beginning, options)
        result.close()
    finally:
        result.discard()
    trace.close()
    return report(options.out, options) if code == 0 else code


def check_calls(trace, result, picks, home, beginning, options):
    """Has every call checked that is left to do; 0 or the exit code of an interrupted run."""
    done = set(result.done())
    todo = [p for p in picks if p.sequence not in done]
    if done:
        say(f"resuming: {len(picks) - len(todo):,} of {len(picks):,} calls done")
    jobs = max(1, min(options.jobs or core_count(), len(todo) or 1))
    before = float(result.get("seconds") or 0)
    start = time.monotonic()

    def spent():
        return before + time.monotonic() - start

    agenda = agenda_of(trace, todo, options)
    settings = worker_settings(trace, options, home, jobs)
    crew = Crew(settings, jobs, options.timeout, beginning, rooms_of(trace, options))
    try:
        with Progress(len(picks), len(picks) - len(todo)) as progress:
            split = work_through(trace, result, crew, agenda, progress)
        if not beginning.begun and result.get("state") is None:  # of an earlier run, finished
            raise Trouble("the budget was spent before a worker was ready: nothing was checked, "
                          f"{options.out} is as it was")  # fmt: skip
        if split.calls:
            say(split.text(time.monotonic() - start, jobs, options.verbose))
        if agenda.left():
            say(left_out(trace, agenda, len(picks), options.out))
        if options.self_test:
            self_test(options, trace, result, picks, home)
    except KeyboardInterrupt:
        return interrupted(result, beginning, spent(), options.out)
    finally:
        crew.close()
    with troubles({"E_IO": SAFE}):
        result.set("state", "budget" if agenda.left() else "done")
        result.set("seconds", f"{spent():.1f}")
    return 0


def interrupted(result, beginning, seconds, out):
    """Keeps what took no time to keep; the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left takes no time
    if not beginning.begun:
        say("interrupted before anything was checked")
        return 130
    with suppress(_core.UlpscopeError):  # the rows are safe without it
        result.set("seconds", f"{seconds:.1f}")
    say(f"interrupted; the same command goes on from here ({out})")
    return 130


def self_test(options, trace, result, picks, home):
    """Plants mistakes into the right results of every operator and keeps what was caught."""
    from . import _selftest

    jobs = max(1, min(options.jobs or core_count(), len(picks)))
    say("self-test: planting mistakes into the results of every operator")
    crew = Crew(worker_settings(trace, options, home, jobs), jobs, options.timeout)
    found = _selftest.run(crew, trace, picks)
    with troubles():
        result.set("self_test", _selftest.kept(found))


def say(text):
    print(f"ulpscope check: {text}", file=sys.stderr, flush=True)


def program():
    """The `ulpscope` program: as it told us, on PATH, or beside the interpreter."""
    beside = os.path.join(os.path.dirname(sys.executable), "ulpscope")
    for path in (os.environ.get("ULPSCOPE_CLI"), shutil.which("ulpscope"), beside):
        if path and os.access(path, os.X_OK):
            return path
    raise Trouble("the ulpscope program is not on PATH; the results are safe: "
                  "`ulpscope report OUT`, with that program, shows them")  # fmt: skip


def report(out, options):
    """Has the report written and gives its exit code."""
    command = [program(), "report", out]
    for allowed in options.allow:
        command += ["--allow", allowed]
    for name in ("strict", "annotate"):
        command += [f"--{name}"] * getattr(options, name)
    for name in ("baseline", "junit", "sort", "min-judged"):
        value = getattr(options, name.replace("-", "_"))
        if value:
            command += [f"--{name}", value]
    sys.stdout.flush()
    return subprocess.run(command).returncode


def main(argv=None):
    options = parse(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return check(options)
    except Trouble as trouble:
        say(str(trouble))
        return 2
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        return 130
    except OSError as problem:  # no process or no temporary file to be had
        say(str(problem))
        return 2


if __name__ == "__main__":
    sys.exit(main())
