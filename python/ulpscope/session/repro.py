# SPDX-License-Identifier: Apache-2.0
"""`ulpscope repro TRACE#N`: a folder to hand to those who mend the device: the call as a script
that torch alone runs (`repro_script`), what went in and came out, and a bug report. The script
has run in a process of its own before anybody reads that it fails. Needs of torch what replays
need."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _core
from ..calls.foreign import is_ours, our_words, set_aside
from ..calls.homes import import_modules
from ..calls.read_call import call_from
from ..calls.replay import Call, draws_random, is_composite, promises_nothing
from ..calls.call_results import plain
from ..calls.verdicts import FLAGGED, clause
from ..executors.device import PACKAGES, Answer, DeviceDied, UnknownDevice, open_device
from ..calls.kernels import STANDARD
from ..executors.precision import space_of
from ..executors.reference_runs import Reference
from ..judges import wording
from ..program.waiting import waiting
from . import identity, repro_script, shrink
from .judging import Verdict, judge_call, judge_given

if TYPE_CHECKING:
    import torch

SECONDS = 180  # that the script may take


class Trouble(Exception):
    """Something that ends the run; the text is the sentence that the user gets."""


class Options:
    """What the program read and checked (cli/cmd_repro.c): values by their places, then the
    modules to import."""

    def __init__(self, words: Sequence[str]) -> None:
        self.folder, sequence, self.device, self.out, *self.imports = words
        self.sequence, self.out = int(sequence), os.path.abspath(self.out)


@dataclass
class ReproFailure:
    """A call, what is said of it, and what its script did: (exit code, negative for a signal;
    whether it fails by its own comparison too; the last line of what it could not do, or of what one prints that
    compares in one way alone)."""

    call: Call
    verdict: Verdict = field(default_factory=lambda: Verdict("unjudged"))
    tried: Any = None

    @property
    def fails(self) -> bool:
        return bool(self.tried[0] == 1 or self.tried[0] < 0)


# ---- what is written -----------------------------------------------------------------


class Folder:
    """What is written of a call of a trace on a device; a script and a bug report speak of the
    row that `row` gives."""

    via = ""

    def __init__(self, options: Options, row: dict[str, Any], imports: Any, call: Call) -> None:
        self.options, self.imports, self.home = options, imports, repro_script.home_of(call)
        self.device = options.device or self.home
        self.known = {k: row.get(k) for k in ("step", "phase", "module_class", "op")}
        self.known |= {"call": row["sequence"], "module": row.get("module_path")}
        facts = identity.environment() | identity.device_facts(self.device)
        self.run = {"trace": options.folder, "device": self.device, "environment": json.dumps(facts)}
        if self.device.startswith("sim"):
            self.run["faults"] = os.environ.get("ULPSCOPE_SIM_FAULTS", "")

    def row(self, failure: ReproFailure) -> dict[str, Any]:
        return wording.row(failure.call, failure.verdict, {}) | self.known

    def about(self, failure: ReproFailure) -> str:
        """What was found, in words for the terminal."""
        return _core.about(self.row(failure), self.run, failure.tried).partition("\n")[2]

    def script(self, path: str, failure: ReproFailure) -> None:
        """Writes the script and what it reads."""
        inputs = os.path.join(path, "inputs.safetensors")
        about = _core.about(self.row(failure), self.run, failure.tried)
        write(path, "repro.py", repro_script.text_of(failure.call, self.home, self.device, self.imports, about, inputs))

    def prove(self, path: str, failure: ReproFailure) -> None:
        """Runs the script in a process of its own."""

        def run(*more: str) -> subprocess.CompletedProcess[str]:
            words = [sys.executable, os.path.join(path, "repro.py"), *more]
            try:
                return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return subprocess.CompletedProcess(words, 2, "", f"no end after {SECONDS} s")

        waiting.at("running the script in a process of its own")
        done = run()
        alone = done.returncode == 1 and run("--plain").returncode == 1
        said = (done.stderr.strip().splitlines() or [""])[-1] if done.returncode not in (0, 1) else ""
        failure.tried = done.returncode, alone, said

    def rest(self, path: str, failure: ReproFailure) -> None:
        """Writes the outputs and the bug report, and the script with what is known now."""
        if failure.verdict.answer is not None:
            write_tensors(path, "device", failure.verdict.answer.outputs)
        right = None
        with set_aside():  # the verdict says why there is none
            right = Reference(failure.call).wide()
        if right:
            write_tensors(path, "reference", right)
        self.script(path, failure)
        write(path, "report.md", _core.markdown(self.row(failure), self.run, failure.tried))


def write_tensors(path: str, name: str, tensors: dict[str, torch.Tensor]) -> None:
    _core.write_tensors(os.path.join(path, name + ".safetensors"), {p: t.contiguous() for p, t in tensors.items()})


def write(path: str, name: str, text: str) -> None:
    with open(os.path.join(path, name), "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


@contextmanager
def scratch(out: str) -> Iterator[str]:
    """A folder beside `out`, of which nothing stays unless it is put in its place."""
    parent, name = os.path.split(out)
    room = tempfile.mkdtemp(prefix=f".{name}-", dir=parent)
    try:
        os.mkdir(os.path.join(room, name))
        yield os.path.join(room, name)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def put(path: str, out: str) -> None:
    """Gives a scratch folder the name `out`, in place of one that was there."""
    if os.path.exists(out):
        os.rename(out, path + "-old")
    os.rename(path, out)


# ---- the command ---------------------------------------------------------------------


def refuse_odd(call: Call) -> None:
    """Trouble for what no script can show."""
    if draws_random(call):
        raise Trouble(
            f"{call.op} draws random numbers: it is judged by what all honest draws have in "
            "common, which one run cannot show"
        )
    if promises_nothing(call):
        raise Trouble(f"{call.op} gives memory that nobody has written: there is nothing to compare")
    if call.op.startswith("c10d::"):
        raise Trouble(f"{call.op} needs all ranks: no script of one process can show it")
    if is_composite(call) and call.autocast:
        raise Trouble(
            f"{call.op} ran under autocast, which a script does not set: name an operator below it, "
            "`ulpscope show TRACE` lists them"
        )
    if call.composite:
        raise Trouble(f"{call.op} has arguments that a script cannot hold (sparse tensors)")


def read(options: Options) -> tuple[Call, dict[str, Any], list[str]]:
    """The call, its row, and what to import for its operator."""
    trace = _core.Trace(options.folder)
    recorded = json.loads(trace.meta("imports") or "[]")
    sys.path.insert(0, os.getcwd())
    import_modules(recorded, options.imports, PACKAGES.get(options.device.partition(":")[0]))
    row = trace.call(options.sequence)
    call = call_from(row, trace.blob)
    imports = [] if space_of(call.op) in STANDARD else recorded
    return call, row, list(dict.fromkeys(imports + options.imports))


def captured(call: Call, failure: ReproFailure, folder: Folder) -> Verdict:
    """The verdict on what the captured run got, where it ran on that type of device."""
    paths = {**dict.fromkeys(call.results, "out"), **dict.fromkeys(call.mutated, "mutated")}
    kept = {p: call.live(p, role) for p, role in paths.items()} if call.live is not None else {}
    if folder.device.split(":")[0] != folder.home or not kept or any(t is None for t in kept.values()):
        return Verdict("crashed" if failure.fails else "unjudged", reason=failure.tried[2] or "its process ends")
    return judge_given(call, Answer({p: plain(t) for p, t in kept.items()}))


def refuse_passing(call: Call, failure: ReproFailure, folder: Folder) -> None:
    """Trouble for a call that passes, unless what was captured of it is wrong: then the failure comes and goes,
    and what is known is worth handing on."""
    if (
        failure.tried[0] == 0
        and failure.verdict.verdict == "pass"
        and captured(call, failure, folder).verdict not in FLAGGED
    ):
        raise Trouble(f"{call.op} passes here, on {folder.device}: nothing to hand on, and nothing was written")


def repro(
    options: Options,
    read: Callable[[Options], tuple[Call, dict[str, Any], list[str]]] = read,
    kind: Callable[..., Folder] = Folder,
) -> int:
    """Writes the folder of the call that `read` gives, as a Folder of that kind does."""
    waiting.at(f"reading the call of {options.folder}")
    call, row, imports = read(options)
    refuse_odd(call)
    folder = kind(options, row, imports, call)
    failure, device = ReproFailure(call), None
    with scratch(options.out) as path:
        folder.script(path, failure)
        folder.prove(path, failure)
        waiting.at(f"judging what {folder.device} gives")
        try:
            device = open_device(folder.device, folder.home, folder.via) if failure.tried[0] in (0, 1) else None
            failure.verdict = judge_call(call, device) if device else captured(call, failure, folder)
        except (DeviceDied, UnknownDevice) as problem:
            device, failure.verdict = None, Verdict("unjudged", reason=str(problem))
        refuse_passing(call, failure, folder)
        folder.rest(path, failure)
        put(path, options.out)
    say(f"{options.out}: {folder.about(failure)}")
    if device is not None and failure.fails and failure.verdict.verdict in FLAGGED:
        smaller(folder, failure, device)
    return 0


def smaller(folder: Folder, failure: ReproFailure, device: Any) -> None:
    """Puts the smallest call that fails as well in its place, once its script was seen to fail."""
    waiting.at("making the call smaller, as long as it fails in the same way")
    small = ReproFailure(*shrink.shrunk(failure.call, failure.verdict, device))
    if small.call is failure.call:
        return
    with scratch(folder.options.out) as path:
        folder.script(path, small)
        folder.prove(path, small)
        if not small.fails or failure.tried[1] > small.tried[1]:
            return say("made smaller it does not fail by itself: it stays as captured")
        folder.rest(path, small)
        put(path, folder.options.out)
    say(made_smaller(wording.describe_arguments(small.call), wording.describe_arguments(failure.call)))


def made_smaller(small: str, whole: str) -> str:
    """What became of a call, by its arguments in words: where these stay, other values were put in."""
    return f"made smaller: {small} of {whole}" if small != whole else f"made simpler in its values: {small}"


def trouble(problem: BaseException, options: Options) -> str:
    """The sentence on whatever ended the run."""
    if isinstance(problem, OSError) and problem.filename is None:  # a full disk
        problem = OSError(problem.errno, problem.strerror, options.out)
    if isinstance(problem, (OSError, _core.UlpscopeError)):
        return f"{problem}{getattr(problem, 'advice', '')}"
    if isinstance(problem, Trouble):
        return str(problem)
    return f"call {options.sequence}: {clause(problem)}"  # an operator unknown here, contents not kept


def say(text: str) -> None:
    waiting.end()
    print(f"ulpscope repro: {text}", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """The program's half of the command; `words` as Options has them."""
    options = Options(sys.argv[1:] if words is None else words)
    try:
        return repro(options)
    except Exception as problem:
        say(our_words(problem) if is_ours(problem) else trouble(problem, options))
    return 2


if __name__ == "__main__":
    sys.exit(main())
