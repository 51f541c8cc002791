# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz minimize SEED:CASE`: a case as a folder to hand to those who mend the device: a file of at most
25 lines that torch alone runs (`short_script`), which was seen to fail in a process of its own, and the text of a
bug report. Where no such file shows it, it is the folder that `ulpscope repro` writes. Needs of torch what
replays need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.foreign import is_ours, our_words
from ..calls.homes import import_modules
from ..calls.verdicts import FLAGGED
from ..executors.device import open_device
from ..executors.precision import STANDARD, space_of
from ..judges import wording
from . import drawn_cases, short_programs
from ..program.waiting import waiting
from ..session import repro
from . import short
from .short_script import LINES, NoScript, Script, plain_text

if TYPE_CHECKING:
    from .short_programs import Program
    from ..calls.callable import Composite
    from ..calls.replay import Call
    from ..session.judging import Verdict
    from ..session.repro import ReproFailure


class CaseOptions:
    """What the program read and checked (cli/cmd_fuzz.c): values by their places, then the
    modules to import. As `repro.Options`."""

    def __init__(self, words):
        (self.folder, example, self.device, self.out, seed, case, how, self.faults, self.via, *self.imports) = words
        self.example, self.seed, self.case = int(example), int(seed), int(case)
        self.stress, self.programs = "stress" in how.split(), "programs" in how.split()
        self.sequence, self.out = self.case, os.path.abspath(self.out)

    def told(self, row: dict[str, Any], **more: Any) -> dict[str, Any]:
        """The row that a report speaks of."""
        return {**row, "sequence": self.case, "step": 0, "phase": "", "module_path": "", "module_class": "", **more}


def read(options: Any) -> tuple[Call, dict[str, Any], list[str]]:
    """The case, the row that a report speaks of, and what to import for its operator."""
    trace = _core.Trace(options.folder)
    recorded = json.loads(trace.meta("imports") or "[]")
    import_modules(recorded, options.imports)
    row = trace.call(options.example)
    call, words = drawn_cases.drawn(
        drawn_cases.Example(row, trace.meta("id") or ""), options.seed, options.case, options.stress
    )
    repro.say(f"case {options.seed}:{options.case}: {call.op}({wording.describe_arguments(call)}), {words}")
    imports = [] if space_of(call.op) in STANDARD else recorded
    return call, options.told(row), list(dict.fromkeys(imports + options.imports))


class ShortFolder(repro.Folder):
    """A folder whose script is a short one, where such a script is seen to fail."""

    program = ""

    def __init__(self, options, row, imports, call):
        super().__init__(options, row, imports, call)
        more = " --programs" if options.programs else " --stress" if options.stress else ""
        self.run["trace"] = f"ulpscope fuzz --seed {options.seed}{more}"
        self.how = {"device": self.device, "via": options.via, "imports": imports, "faults": options.faults}
        self.via = options.via
        self.plain = bool(options.via)  # whether the other script only runs what is tested

    def script(self, path: str, failure: ReproFailure) -> Any:
        if not self.plain:
            return super().script(path, failure)
        repro.write(path, "repro.py", plain_text(failure.call, self.how, self.program))

    def prove(self, path: str, failure: ReproFailure) -> Any:
        if not self.plain:
            return super().prove(path, failure)
        code, _, said = run_alone(os.path.join(path, "repro.py"))
        failure.tried = code, False, said if code not in (0, 1) else ""
        if failure.verdict.verdict in FLAGGED:  # one that was made smaller
            with suppress(NoScript):
                self.put_short(path, failure)

    def rest(self, path: str, failure: ReproFailure) -> None:
        super().rest(path, failure)
        if failure.verdict.verdict not in FLAGGED:
            return
        try:
            self.put_short(path, failure)
        except NoScript as problem:
            why = f"no script of {LINES} lines: {problem}"
            repro.say(why)
            if self.plain:
                failure.tried = 2, False, why
                repro.write(path, "report.md", _core.markdown(self.row(failure), self.run, failure.tried))

    def put_short(self, path: str, failure: ReproFailure) -> None:
        """Puts a short script in the place of the other one. NoScript where it does not fail."""
        text = Script(failure.call, failure.verdict, self.how, self.program).text(self.title(failure))
        repro.write(path, "short.py", text)
        tried = run_alone(os.path.join(path, "short.py"))
        if not (tried[0] == 1 and "off" in tried[1]):
            os.remove(os.path.join(path, "short.py"))
            raise NoScript(f"alone in a process it does not fail (exit code {tried[0]}): {tried[1] or tried[2]}")
        os.replace(os.path.join(path, "short.py"), os.path.join(path, "repro.py"))
        for name in ("inputs", "device", "reference"):
            with suppress(FileNotFoundError):
                os.remove(os.path.join(path, f"{name}.safetensors"))
        failure.tried = 1, False, tried[1]
        report = _core.markdown(self.row(failure), self.run, failure.tried)
        repro.write(path, "report.md", f"{report}\n`repro.py`:\n\n```python\n{text}```\n")

    def title(self, failure: ReproFailure) -> str:
        """One line on what is wrong, that may stand in a docstring."""
        facts = json.loads(self.run["environment"])
        said = f"{wording.sentence(self.known['op'], failure.verdict)} (torch {facts.get('torch', '')}, {self.device}"
        return (said + (f" via {self.options.via})" if self.options.via else ")")).replace("\\", "/").replace('"', "'")


def run_alone(script: str | Path) -> tuple[int, str, str]:
    """(exit code, last line of output, last line of errors) of a script in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, errors="replace", timeout=repro.SECONDS
        )
    except subprocess.TimeoutExpired:
        return 2, "", f"no end after {repro.SECONDS} s"
    last = lambda text: (text.strip().splitlines() or [""])[-1]  # noqa: E731
    return done.returncode, last(done.stdout), last(done.stderr)


# ---- programs --------------------------------------------------------------------------


class ProgramFolder(ShortFolder):
    """The folder of a short program, which has no other script than one that runs it."""

    def __init__(self, options, row, imports, call):
        super().__init__(options, row, imports, call)
        self.plain, self.said = True, ""

    def shows(self, call: Composite, verdict: Verdict) -> bool:
        """Whether a script tells the result from a right one."""
        try:
            return bool(Script(call, verdict, self.how, self.program).measured())
        except NoScript:
            return False

    def row(self, failure: ReproFailure) -> dict[str, Any]:
        return super().row(failure) | {"args": self.said}


def of_program(options: CaseOptions) -> int:
    """Writes the folder of a short program, made as small as it still fails."""
    trace = _core.Trace(options.folder)
    import_modules(options.imports, [])
    row = trace.call(options.example)
    program, call = short_programs.drawn(options.seed, options.case, row["op"])
    folder = ProgramFolder(options, options.told(row), options.imports, call)
    failure = repro.ReproFailure(call)
    with repro.scratch(options.out) as path:
        tell(folder, program)
        folder.script(path, failure)
        folder.prove(path, failure)
        if failure.tried[0] in (0, 1):
            device = open_device(options.device, "cpu", options.via)
            failure.verdict = judged(call, device, folder.how)
            if failure.verdict.verdict in FLAGGED:
                shows = folder.shows if folder.shows(call, failure.verdict) else None
                waiting.at("making the program smaller, as long as it fails in the same way")
                program, failure.verdict = short.shrunk(program, failure.verdict, device, shows)
                program, failure.call, failure.verdict = short.texts(program, failure.verdict, device, shows)
                folder.known["op"] = failure.call.op = short.culprit(program, device)[0]
        else:
            failure.verdict = repro.Verdict("crashed", reason=failure.tried[2] or "its process ends")
        tell(folder, program)
        folder.rest(path, failure)
        repro.put(path, options.out)
    repro.say(f"{options.out}: {folder.about(failure)}")
    return 0


def judged(call: Call, device: Any, how: dict[str, Any]) -> Verdict:
    """The verdict; where nothing is accused, that of one thread, as workers may have: `how` says so then."""
    verdict = short.judge_call(call, device)
    if verdict.verdict in FLAGGED or torch.get_num_threads() == 1:
        return verdict
    torch.set_num_threads(1)
    short.forget(device)
    alone = short.judge_call(call, device)
    if alone.verdict not in FLAGGED:
        return verdict
    how["threads"] = 1
    repro.say("it fails with one thread, and not with more")
    return alone


def tell(folder: ProgramFolder, program: Program) -> None:
    """Notes what a folder is about."""
    folder.program = program.text()
    folder.said = "; ".join(f"{n} = {t}" for n, t in program.lines()) + f"; with {program.inputs_said()}"
    repro.say(f"case {program.seed}:{program.case}: {folder.said}")


def main(words: Sequence[str] | None = None) -> int:
    """The program's half of the command."""
    options = CaseOptions(sys.argv[1:] if words is None else words)
    try:
        if options.faults:
            os.environ["ULPSCOPE_SIM_FAULTS"] = options.faults
        if options.programs:
            return of_program(options)
        return repro.repro(options, read, ShortFolder)
    except Exception as problem:
        repro.say(our_words(problem) if is_ours(problem) else repro.trouble(problem, options))
    return 2


if __name__ == "__main__":
    sys.exit(main())
