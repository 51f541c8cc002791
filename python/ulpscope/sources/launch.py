# SPDX-License-Identifier: Apache-2.0
"""`ulpscope capture`: runs a command and records steps of it.

The command is not changed: its Python processes find a sitecustomize first
(`_bootstrap/`), which starts `launched` where torch is imported. Every process that
recorded reports through a file; this one puts the traces in their places
(`launch_folder`) and says in a line what came of it (`launch_words`).
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import launch_words as words
from .capture import listed, parse_steps
from .launch_folder import Folder, Refused, read_reports

PACKAGE = Path(os.path.abspath(__file__)).parent.parent  # not resolved: a build folder holds links
TROUBLE = 2
GRACE_S = 10


class Options:
    """What the program `ulpscope` read and checked (cli/cmd_capture.c): `words` are its values by
    their places, then the command."""

    def __init__(self, words):
        steps, self.data, ops, self.output, limit, step_by, force, no_compile, keep_going = words[:9]
        self.steps, self.ops, self.limit = parse_steps(steps), ops or None, int(limit) or None
        self.step_by, self.command = step_by or None, words[9:]
        self.force, self.no_compile, self.keep_going = map(bool, (force, no_compile, keep_going))


def check(options):
    """Refuses what cannot work before anything is started."""
    check_command(options.command[0])
    folder = Folder(Path(options.output), options.force)
    folder.check()
    build_glue()
    return folder


def check_command(name):
    """Refuses a command that cannot be run."""
    if shutil.which(name) is not None:
        return
    if os.path.isfile(name):
        raise Refused(f"{name} is not executable; name its interpreter, e.g. -- python {name}")
    raise Refused(f"command not found: {name}")


def build_glue():
    """Compiles the glue ahead, so that the run does not wait and ranks do not compete."""
    try:
        from . import glue
    except ImportError:
        return  # torch lives in the command's own environment: compiled there
    try:
        glue.build("intercept")
    except (glue.GlueError, OSError) as error:
        raise Refused(str(error)) from None


def environment(options, reports):
    """The environment in which every Python process starts our sitecustomize. It names the
    folder of reports alone, for one variable has room for 128 kB; what is to be recorded
    stands there in a file."""
    (Path(reports) / "options").write_text(json.dumps({
        "steps": listed(options.steps),
        "data": options.data,
        "ops": options.ops,
        "limit": options.limit,
        "step_by": options.step_by,
        "keep_going": options.keep_going,
        "trace": str(Path(options.output).resolve()),
    }))  # fmt: skip
    env = dict(os.environ)
    env["ULPSCOPE_CAPTURE"] = reports
    if options.no_compile:
        env["TORCH_COMPILE_DISABLE"] = "1"
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
            why = f"cannot run {command[0]}: {error.strerror}"
            if error.errno == errno.E2BIG:
                why = ("the command line and the environment are together too long for this "
                       "system; shorten them")  # fmt: skip
            raise Refused(why) from None
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


def all_finished(folder):
    """Whether every rank has recorded its steps, short of the program's end."""
    done = [r for r in read_reports(folder) if r["finished"] and not r["whole"]]
    return bool(done) and len(done) >= done[0]["world"]


def run(options, folder):
    """Runs the command; returns the exit code after one line about it."""
    with tempfile.TemporaryDirectory(prefix="ulpscope-") as reports, folder:
        child = Child(options.command, environment(options, reports))
        code = child.wait(lambda: not options.keep_going and all_finished(reports))
        said = folder.settle(read_reports(reports))
        seen = words.Seen.of(reports, options, said, code)
    return conclude(seen, child)


def conclude(seen, child):
    """Says what came of it; returns the exit code."""
    failed = [r for r in seen.reports if r.get("error")]
    if failed:
        raise Refused(seen.failed_sentence(failed[0]))
    done = [r for r in seen.reports if r["finished"]]
    if not done:
        raise Refused(seen.missed_sentence(),
                      128 + child.interrupted if child.interrupted else TROUBLE)  # fmt: skip
    if not any(r["counts"]["calls"] for r in done):
        raise Refused(seen.no_call_sentence())
    print(f"ulpscope: {seen.captured_line()}", file=sys.stderr)
    if (seen.options.keep_going or done[0]["whole"]) and seen.code != 0:
        raise Refused(f"after that {seen.command} {words.ending(seen.code)}")
    return 0


def main():
    """The program."""
    try:
        options = Options(sys.argv[1:])
        return run(options, check(options))
    except Refused as error:
        print(f"ulpscope capture: {error}", file=sys.stderr)
        return error.code
    except OSError as error:  # no room for the reports, no process to be had
        print(f"ulpscope capture: {error}", file=sys.stderr)
        return TROUBLE
    except KeyboardInterrupt:  # before the command was there to get it
        print("ulpscope capture: interrupted; nothing was recorded", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
