# SPDX-License-Identifier: Apache-2.0
"""A worker of `ulpscope check`: takes call numbers on standard input, gives rows back.

Run by `_check` as `python -m ulpscope._worker FD SETTINGS`. It opens the trace and the
device itself, so that a crash takes nothing along. Lines on FD, one JSON object each:
{"ready": what computes (`_identity`)} or {"fatal": text} once, {"phase": name} while a call is worked on,
{"row": {...}} at its end, with "leaving" where the device died and the worker ends.
"""

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import signal
import sys
import time

from ._verdicts import FLAGGED, UNKNOWN, base_row

PR_SET_PDEATHSIG = 1


class Channel:
    """Lines to the coordinator. A descriptor of its own: operators may print."""

    def __init__(self, number):
        self.file = os.fdopen(number, "w", buffering=1)

    def send(self, **message):
        self.file.write(json.dumps(message) + "\n")


class Bench:
    """Everything a worker holds while it works: trace, device, channel."""

    def __init__(self, settings, channel):
        from . import _core, _standards
        from ._device import open_device

        self.channel, self.path = channel, settings["trace"]
        self.rule, self.compared = _standards.chosen(settings["standard"], settings["compare"])
        self.trace = _core.Trace(self.path)
        say = lambda phase: channel.send(phase=phase)  # noqa: E731
        self.device = open_device(settings["device"], settings["home"], settings["via"], say)
        self.trace_id = settings["trace_id"]
        self._ranks = None
        self._row = None
        self._fired = set()

    @property
    def ranks(self):
        """The traces of all ranks, opened for the first collective."""
        from ._ranks import Ranks

        if self._ranks is None:
            self._ranks = Ranks(self.path)
        return self._ranks

    def call(self, sequence, module=None):
        """The call, or the forward of a module, rebuilt from the trace."""
        from ._read_call import call_from
        from ._standin import stand_in

        made = lambda tensor: stand_in(self.trace_id, sequence, tensor)  # noqa: E731
        if module:
            from ._module_call import module_call

            return module_call(module, self.trace.call, self.trace.blob, made)
        return call_from(self.row(sequence), self.trace.blob, made)

    def row(self, sequence):
        """What the trace tells of a call; the last one is kept."""
        if self._row is None or self._row["sequence"] != sequence:
            self._row = self.trace.call(sequence)
        return self._row

    def judge(self, sequence, timing, module=None):
        from . import _memory
        from ._judging import judge_call

        def mark(phase):
            self.channel.send(phase=phase)
            _memory.limit(phase)

        since = time.perf_counter_ns()
        call = self.call(sequence, module)
        timing.wide += time.perf_counter_ns() - since
        return call, judge_call(call, self.device, timing, mark, self.rule)

    def fired(self):
        """Planted faults that fired since this was asked last, by their texts."""
        sim = sys.modules.get("ulpscope.sim")
        now = {f["fault"] for f in sim.faults_fired() if f["fired"]} if sim else set()
        new, self._fired = sorted(now - self._fired), now
        return new

    def work(self, request):
        """The row for one request, and whether the device survived."""
        from . import _core, _judging, _ranks, _wording
        from ._device import DeviceDied
        from ._replay import BadCall

        timing = _judging.Timing()
        sequence = request["call"]
        if request.get("self_test"):
            return self.probe(sequence), True
        try:
            module = request.get("module")
            since = time.perf_counter_ns()
            collective = not module and _ranks.is_collective(self.row(sequence)["op"])
            timing.wide += time.perf_counter_ns() - since
            if collective:
                return self.collective(sequence, timing, request), True
            call, verdict = self.judge(sequence, timing, module)
            if verdict.verdict in FLAGGED and request.get("children"):
                self.name_culprit(verdict, request["children"], timing)
            if self.compared:
                _judging.compare_standards(self.compared, call, self.device, verdict, timing)
            row = _wording.row(call, verdict, timing.row(), request.get("stands_for", 1))
            row["metrics"] += self.loss_effect(call, verdict, request.get("backward"))
            return row, True
        except BadCall as problem:
            return self.plain(sequence, "unjudged", str(problem), request), True
        except DeviceDied as problem:
            return self.plain(sequence, "crashed", f"the device reports: {problem}", request), False
        except _core.CorruptError:
            raise  # nothing that is read from this trace can be trusted
        except Exception as problem:  # ours, or a device with errors of its own kind
            why = f"the check of it failed, {type(problem).__name__}: {problem}"
            return self.plain(sequence, "unjudged", why, request), True

    def collective(self, sequence, timing, request):
        """The row for a collective: judged as captured, since it cannot run alone."""
        from . import _collectives, _memory, _wording

        self.channel.send(phase="reference")
        _memory.limit("reference")
        call, verdict = _collectives.judge(self.ranks, self.row(sequence), timing, self.rule)
        if self.compared:
            verdict.notes = [*verdict.notes, "no other standard is compared: they know no collectives"]
        return _wording.row(call, verdict, timing.row(), request.get("stands_for", 1))

    def loss_effect(self, call, verdict, backward):
        """The metric that tells what the error means for the loss, as a list; empty where
        the trace does not tell."""
        from . import _core
        from ._impact import loss_effect

        reference = verdict.operands.reference if verdict.operands else None
        if reference is None or verdict.answer is None or call.made_up or call.composite:
            return []
        try:
            found = loss_effect(self.trace, call, verdict.answer.outputs, reference.truth, backward)
        except _core.CorruptError:
            raise
        except Exception:  # a trace that names what it does not hold: the verdict stands
            return []
        return [] if found is None else [(-1, "loss", found, None)]

    def probe(self, sequence):
        """What the verdict would have caught on a call: no row, `_selftest` keeps it."""
        from . import _ranks, _selftest

        self.channel.send(phase="reference")
        if _ranks.is_collective(self.row(sequence)["op"]):
            return {"self_test": {"skipped": "a collective is judged as captured, nothing is planted"}}
        try:
            return {"self_test": _selftest.probe(self.call(sequence))}
        except Exception as problem:
            return {"self_test": {"skipped": f"no reference: {problem}"[:200]}}

    def plain(self, sequence, verdict, reason, request):
        """A row for a call of which nothing could be measured."""
        module = request.get("module")
        source = module["source"] if module else self.trace.call(sequence)
        row = base_row(source, verdict)
        row.update(sentence=f"{source['op']}: {reason}", stack=source.get("frames") or "",
                   stands_for=request.get("stands_for", 1))  # fmt: skip
        return row

    def name_culprit(self, verdict, children, timing):
        """Replays the ATen calls below a call that did not pass: the first that does not
        pass either is where the fault lies."""
        from ._ranks import is_collective
        from ._replay import BadCall

        for sequence in children:
            if is_collective(self.row(sequence)["op"]):
                continue
            try:
                call, below = self.judge(sequence, timing)
            except BadCall:
                continue
            if below.verdict in FLAGGED:
                verdict.culprit = call.op
                if below.cause not in ("", UNKNOWN):
                    verdict.cause = below.cause
                return


def die_with_parent():
    """A killed coordinator takes its workers along, also those that hang (Linux)."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass


def import_it(module):
    """Imports a module by name, or a file by path, as `python FILE` would find it but
    without being `__main__`."""
    if module.endswith(".so"):
        import torch

        torch.ops.load_library(module)
        return
    if not module.endswith(".py"):
        importlib.import_module(module)
        return
    sys.path.insert(0, os.path.dirname(os.path.abspath(module)))
    name = os.path.basename(module).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, module)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def prepare(settings):
    """Imports and threads, before anything else touches torch."""
    import torch

    torch.set_num_threads(max(1, settings["threads"]))
    for module in settings["recorded"]:
        # What the captured program had may be gone: then its operators are unknown here,
        # and the verdict of their calls says what to do.
        with contextlib.suppress(Exception):
            import_it(module)
    for module in settings["imports"]:
        if module not in settings["recorded"]:
            import_it(module)


def plain_words(problem):
    """What a user can do about an exception that ends the worker."""
    if isinstance(problem, ModuleNotFoundError) and problem.name == "torch":
        return (f"{sys.executable} has no torch: install it there (pip install torch), or name "
                "an interpreter that has it in ULPSCOPE_PYTHON")  # fmt: skip
    return f"{problem}" or type(problem).__name__


def main():
    from . import _core

    channel, settings = Channel(int(sys.argv[1])), json.loads(sys.argv[2])
    die_with_parent()
    sys.path.insert(0, os.getcwd())
    try:
        import torch  # noqa: F401  # nothing of it is a user's

        from . import _identity

        before = _identity.loaded()
        prepare(settings)
        bench = Bench(settings, channel)
        facts = _identity.told(settings["device"], before)
    except Exception as problem:  # whatever it is, the coordinator says it
        channel.send(fatal=plain_words(problem))
        return 2
    channel.send(ready=facts)
    for line in sys.stdin:
        try:
            row, alive = bench.work(json.loads(line))
        except _core.CorruptError as problem:
            channel.send(fatal=f"{problem}; the trace is damaged, capture it or copy it again")
            return 2
        channel.send(row={**row, "fired": bench.fired()}, leaving=not alive)
        if not alive:
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
