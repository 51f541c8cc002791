# SPDX-License-Identifier: Apache-2.0
"""What `ulpscope capture` says of a run in its one last line. Serves `launch`."""

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from .capture import listed

MOST_RANGES = 8
WHOLE = "to record the whole program: --steps 0"


def steps_text(steps):
    """"step 1" or "steps 2, 5-8"."""
    ranges = listed(steps).split(",")
    if len(ranges) > MOST_RANGES:
        ranges = [*ranges[: MOST_RANGES - 2], f"... {ranges[-1]} ({len(steps):,} in all)"]
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(ranges)}"


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


def ignoring_flag(command):
    """The flag by which a Python leaves PYTHONPATH or sites alone, None where none stands in
    the command. Words behind the script are the script's."""
    words = iter(command)
    for word in words:
        if re.fullmatch(r"(pypy|python)[\d.]*", os.path.basename(word)):
            break
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return None
        if not word.startswith("--"):
            flags = re.split("[cmWX]", word[1:])[0]  # these take what follows
            if found := re.search("[IES]", flags):
                return f"-{found.group()}"
            if re.search("[cm]", word):
                return None
            if re.fullmatch("-[a-zA-Z]*[WX]", word):
                next(words, None)
    return None


@dataclass
class Seen:
    """All that is known of a run that is over."""

    options: object
    reports: list  # of the processes that recorded
    code: int
    marks: dict  # how many processes came how far: "python", "torch"; "failed": why

    @classmethod
    def of(cls, folder, options, reports, code):
        """Reads the marks that the bootstrap left in the launcher's folder."""
        marks = {what: len(list(Path(folder).glob(f"{what}-*"))) for what in ("python", "torch")}
        failed = sorted(Path(folder).glob("failed-*"))
        marks["failed"] = failed[0].read_text(errors="replace") if failed else ""
        return cls(options, reports, code, marks)

    @property
    def command(self):
        return self.options.command[0]

    def captured_line(self):
        """The line for a run that recorded all that was asked for."""
        done = [r for r in self.reports if r["finished"]]
        calls = sum(r["counts"]["calls"] for r in done)
        written = sum(r["counts"]["bytes_written"] for r in done)
        ranks = f" on {len(done)} ranks" if len(done) > 1 else ""
        line = f"captured {steps_text(done[0]['steps'])}{ranks}: {calls:,} call{'s' * (calls != 1)}, {size(written)} -> "
        line += self.options.output
        if done[0]["whole"]:
            line += "; the last step ended with the program"
        elif not self.options.keep_going:
            line += "; run ended (--keep-going to go on)"
        return line + self._regions()

    def _regions(self):
        """What compiled code kept from the recorder, as a clause."""
        n = max((r["counts"].get("compiled_regions", 0) for r in self.reports if r["counts"]), default=0)
        if n == 0:
            return ""
        what = "region ran and was" if n == 1 else "regions ran and were"
        return f"; {n} compiled {what} not recorded; --no-compile sets TORCH_COMPILE_DISABLE=1 for the command"

    def _remains(self, whole=()):
        """What the trace folder holds of a run that was cut short, as a clause."""
        traces = [r["trace"] for r in self.reports if r["trace"]]
        if not any(os.path.exists(os.path.join(t, "trace.db")) for t in traces):
            return "; nothing was recorded"
        what = f"{steps_text(whole)} and what followed are" if whole else "what was recorded is"
        return f"; {what} in {self.options.output}, marked incomplete"

    def failed_sentence(self, report):
        """For a run whose recorder failed."""
        why = report["error"]
        if report["taken"]:
            why = f"{self.options.output} holds a trace that this run did not write"
            return f"recording failed: {why}; nothing was recorded, name another folder with -o"
        return f"recording failed: {why}{self._remains()}"

    def missed_sentence(self):
        """Why there is no trace, or not all of it."""
        options = self.options
        full = [r for r in self.reports if r["counts"] and r["counts"].get("stopped")]
        got = sorted({s for r in self.reports for s in r["steps"]})
        kept = self._remains(got)
        if full:
            wrote = size(full[0]["counts"]["bytes_written"])
            return (f"recording stopped in step {full[0]['steps_ended']} after {wrote}: the limit is "
                    f"reached (--limit; by default 5 % of the disk stay free){kept}")  # fmt: skip
        if self.code != 0:
            were = "was" if len(options.steps) == 1 else "were"
            return (f"{self.command} {ending(self.code)} before {steps_text(options.steps)} {were} "
                    f"captured{kept}")  # fmt: skip
        known = set(got)
        missing = steps_text([s for s in options.steps if s not in known] or options.steps)
        ended = max((r["steps_ended"] for r in self.reports), default=0)
        if ended > 0:
            s = "s" * (ended > 1)
            return f"{self.command} ended after {ended} step{s}, before {missing} ended{kept}"
        if unseen := self._unseen():
            return f"{unseen}{kept}"
        return f"{self.command} ended before {missing}: {self._nothing_stepped()}{kept}"

    def _nothing_stepped(self):
        never = {"manual": "it never called ulpscope.step()", "optimizer": "no optimizer stepped",
                 "dataloader": "no data loader was asked for a second batch"}  # fmt: skip
        why = never.get(self.options.step_by, "no optimizer stepped, no data loader gave two batches")
        if 0 not in self.options.steps:
            return f"{why}; {WHOLE}" + f" --step-by {self.options.step_by}" * (
                self.options.step_by == "manual")  # fmt: skip
        return why if self.options.step_by in never else "it made no operator call"

    def _unseen(self):
        """Why no process could be recorded at all; "" where one could."""
        if self.marks["failed"]:
            return f"the recorder could not be started: {self.marks['failed']}"
        if self.marks["torch"]:
            return ""
        if self.marks["python"]:
            return f"the recorder found nothing to record: no process of {self.command} imported torch"
        if flag := ignoring_flag(self.options.command):
            return (f"the recorder was never loaded: with {flag} Python ignores it; run {self.command} "
                    f"without {flag}")  # fmt: skip
        return (f"the recorder was never loaded: {self.command} started no Python that takes "
                "PYTHONPATH (python -I, -E and -S do not, nor does what a launcher starts with "
                "a cleared environment: pass on PYTHONPATH and ULPSCOPE_CAPTURE)")  # fmt: skip

    def no_call_sentence(self):
        """Why a trace is empty although its steps were reached."""
        steps = steps_text(next(r["steps"] for r in self.reports if r["finished"]))
        why = f"no operator call of {steps} matches --ops {self.options.ops}"
        if not self.options.ops:
            why = f"{steps} made no operator call{self._regions()}"
        return f"{why}; {self.options.output} holds an empty trace, remove it"
