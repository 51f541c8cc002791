# SPDX-License-Identifier: Apache-2.0
"""`python -m ulpscope._launch`: runs a command and records steps of it.

The command is not changed: its Python processes find a sitecustomize first
(`_bootstrap/`), which starts `_launched` where torch is imported. Every process that
recorded reports through a file; this one says in a line what came of it.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ._capture import check_ops, parse_steps
from ._options import Parser

PACKAGE = Path(os.path.abspath(__file__)).parent  # not resolved: a build folder holds links
TROUBLE = 2
GRACE_S = 10


class Refused(Exception):
    """Something is wrong; the text is the one sentence that the user gets."""

    def __init__(self, sentence, code=TROUBLE):
        super().__init__(sentence)
        self.code = code


def parser():
    """The options of `ulpscope capture`."""
    p = Parser(
        prog="ulpscope capture",
        description="Run COMMAND unmodified (python train.py, python -m pkg, torchrun, a shell "
        "script), record every operator call of the steps asked for, then end the run.",
        epilog="A step ends with the optimizer's step (of several optimizers, the one that "
        "steps first); without an optimizer it ends when the data loader is asked for the next "
        "batch. Step 0 begins when the first optimizer is made. With several ranks each writes "
        "TRACE/rank-N and all stop together. Exit code: 0 when the steps were recorded, 2 when "
        "not, 128 + n when signal n ended it.",
    )
    p.add_argument("--steps", default="1", metavar="LIST",
                   help="steps to record, from 0, e.g. 1 or 2,5-8 (default 1, the second)")
    p.add_argument("--data", choices=("full", "stats"), default="full",
                   help="keep the tensors (default), or only statistics of them")
    p.add_argument("--ops", metavar="PATTERN",
                   help="only these operators: globs, comma-separated, ! excludes")
    p.add_argument("-o", "--output", default="ulpscope-trace", metavar="TRACE",
                   help="folder of the trace (default ulpscope-trace)")
    p.add_argument("--step-by", choices=("optimizer", "dataloader", "manual"),
                   help="what ends a step (default: the optimizer, else the data loader; "
                   "manual: the program calls ulpscope.step())")
    p.add_argument("--keep-going", action="store_true",
                   help="let the run go on after the last step recorded")
    p.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND [ARGS]...")
    return p


def check(options):
    """Refuses what cannot work before anything is started."""
    if options.command[:1] == ["--"]:
        options.command = options.command[1:]
    if not options.command:
        raise Refused("no command given; put it behind --, e.g. -- python train.py")
    check_command(options.command[0])
    try:
        options.steps = parse_steps(options.steps)
        check_ops(options.ops)
    except ValueError as error:
        raise Refused(f"--{error}") from None
    check_output(Path(options.output))
    build_glue()


def check_command(name):
    """Refuses a command that cannot be run."""
    if shutil.which(name) is not None:
        return
    if os.path.isfile(name):
        raise Refused(f"{name} is not executable; name its interpreter, e.g. -- python {name}")
    raise Refused(f"command not found: {name}")


def check_output(trace):
    """Refuses a folder that is in use or cannot be made."""
    if trace.exists() and not trace.is_dir():
        raise Refused(f"{trace} is a file; name another folder with -o")
    try:
        if trace.exists() and any(trace.iterdir()):
            raise Refused(f"{trace} exists and is not empty; remove it or name another with -o")
        trace.resolve().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{trace} cannot be made ({error.strerror}: {error.filename}); "
                      "name another folder with -o") from None  # fmt: skip
    folder = trace if trace.exists() else trace.resolve().parent
    if not os.access(folder, os.W_OK):
        raise Refused(f"{folder}: no permission to write; name another folder with -o")


def build_glue():
    """Compiles the glue ahead, so that the run does not wait and ranks do not compete."""
    try:
        from . import _glue
    except ImportError:
        return  # torch lives in the command's own environment: compiled there
    try:
        _glue.build("intercept")
    except (_glue.GlueError, OSError) as error:
        raise Refused(str(error)) from None


def environment(options, reports):
    """The environment in which every Python process starts our sitecustomize."""
    env = dict(os.environ)
    env["ULPSCOPE_CAPTURE"] = json.dumps({
        "steps": options.steps,
        "data": options.data,
        "ops": options.ops,
        "step_by": options.step_by,
        "keep_going": options.keep_going,
        "trace": str(Path(options.output).resolve()),
        "reports": reports,
    })
    bootstrap = str(PACKAGE / "_bootstrap")
    env["PYTHONPATH"] = os.pathsep.join([bootstrap, *filter(None, [env.get("PYTHONPATH")])])
    return env


class Child:
    """The command, with our signals passed on to it."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, command, env):
        self.interrupted = 0  # the signal that was meant to end us
        # A terminal sends its signals to the whole group: then stay in it.
        self.own_group = not sys.stdin.isatty() if sys.stdin else True
        try:
            self.process = subprocess.Popen(
                command, env=env, process_group=0 if self.own_group else None
            )
        except OSError as error:
            raise Refused(f"cannot run {command[0]}: {error.strerror}") from None
        for number in self.SIGNALS:
            signal.signal(number, self._pass_on)

    def _pass_on(self, number, frame):
        self.interrupted = number
        if number != signal.SIGINT or self.own_group:
            self.send(number)

    def send(self, number):
        """Signals the command, with all that it started where that is known."""
        try:
            if self.own_group:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)
        except ProcessLookupError:
            pass

    def wait(self, is_over):
        """The command's return code. Once `is_over()`, it has a grace to end by itself."""
        deadline = None
        while True:
            try:
                return self.process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                pass
            if deadline is None:
                deadline = time.monotonic() + GRACE_S if is_over() else None
            elif time.monotonic() > deadline + GRACE_S:
                self.send(signal.SIGKILL)
            elif time.monotonic() > deadline:
                self.send(signal.SIGTERM)


def read_reports(folder):
    """What the processes of the run said, by rank."""
    return [json.loads(p.read_text()) for p in sorted(Path(folder).glob("*.json"))]


def all_finished(folder):
    """Whether every rank has recorded its steps."""
    reports = read_reports(folder)
    done = [r for r in reports if r["finished"]]
    return bool(done) and len(done) >= done[0]["world"]


def listed(steps):
    """"step 1" or "steps 2, 5, 6"."""
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))}"


def size(n):
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.3g} {unit}" if n < 1000 else f"{n:,.0f} {unit}"
        n /= 1000
    return ""


def ending(code):
    """How a command ended, in words."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"failed with exit code {code}"


def captured_line(reports, options):
    """The line for a run that recorded all that was asked for."""
    done = [r for r in reports if r["finished"]]
    calls = sum(r["counts"]["calls"] for r in done)
    written = sum(r["counts"]["bytes_written"] for r in done)
    ranks = f" on {len(done)} ranks" if len(done) > 1 else ""
    line = f"captured {listed(done[0]['steps'])}{ranks}: {calls:,} calls, {size(written)} -> "
    line += options.output
    return line if options.keep_going else line + "; run ended (--keep-going to go on)"


def remains(output, whole=()):
    """What the trace folder holds of a run that was cut short, as a clause."""
    trace = Path(output)
    with contextlib.suppress(OSError):
        if any(f.exists() for f in (trace / "trace.db", *trace.glob("rank-*/trace.db"))):
            what = f"{listed(whole)} and what followed" if whole else "what was recorded"
            return f"; {what} is in {output}, marked incomplete"
    return "; nothing was recorded"


def missed_sentence(reports, options, code):
    """Why there is no trace, or not all of it."""
    command = options.command[0]
    got = sorted({s for r in reports for s in r["steps"]})
    kept = remains(options.output, got)
    if code != 0:
        return f"{command} {ending(code)} before {listed(options.steps)} was captured{kept}"
    ended = max((r["steps_ended"] for r in reports), default=0)
    missing = listed([s for s in options.steps if s not in got] or options.steps)
    if ended == 0:
        never = {"manual": "it never called ulpscope.step()", "optimizer": "no optimizer stepped",
                 "dataloader": "no data loader was asked for a second batch"}  # fmt: skip
        why = never.get(options.step_by, "no optimizer stepped, no data loader gave two batches")
        return f"{command} ended before {missing}: {why}{kept}"
    return f"{command} ended after {ended} step{'s' * (ended > 1)}, before {missing} ended{kept}"


def no_call_sentence(reports, options):
    """Why a trace is empty although its steps were reached."""
    steps = listed(next(r["steps"] for r in reports if r["finished"]))
    why = f"no operator call of {steps} matches --ops {options.ops}"
    if not options.ops:
        why = f"{steps} made no operator call"
    return f"{why}; {options.output} holds an empty trace, remove it"


def run(options):
    """Runs the command; returns the exit code after one line about it."""
    with tempfile.TemporaryDirectory(prefix="ulpscope-") as reports:
        child = Child(options.command, environment(options, reports))
        code = child.wait(lambda: not options.keep_going and all_finished(reports))
        said = read_reports(reports)
    for report in said:
        if report.get("error"):
            raise Refused(f"recording failed: {report['error']}{remains(options.output)}")
    if not any(r["finished"] for r in said):
        sentence = missed_sentence(said, options, code)
        raise Refused(sentence, 128 + child.interrupted if child.interrupted else TROUBLE)
    if not any(r["counts"]["calls"] for r in said if r["finished"]):
        raise Refused(no_call_sentence(said, options))
    print(f"ulpscope: {captured_line(said, options)}", file=sys.stderr)
    if options.keep_going and code != 0:
        raise Refused(f"after that {options.command[0]} {ending(code)}")
    return 0


def main(arguments=None):
    """The program."""
    options = parser().parse_args(arguments)
    try:
        check(options)
        return run(options)
    except Refused as error:
        print(f"ulpscope capture: {error}", file=sys.stderr)
        return error.code
    except OSError as error:  # no room for the reports, no process to be had
        print(f"ulpscope capture: {error}", file=sys.stderr)
        return TROUBLE


if __name__ == "__main__":
    sys.exit(main())
