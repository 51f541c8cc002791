# SPDX-License-Identifier: Apache-2.0
"""A worker of `ulpscope check`: takes call numbers on standard input, gives rows back.

Run by the coordinator (src/run) as `python -m ulpscope.worker FD SETTINGS`. It opens the trace
and the device itself, so that a crash takes nothing along. Lines on FD, one JSON object each:
{"say": text} for the user, {"ready": what computes (`session.identity`), "environment": what it runs on}
or {"fatal": text} once, {"phase": name} while a call is worked on, {"row": {...}} at its end, with
"leaving" where the device died and the worker ends. A row holds what was found; what the trace
tells of the call the coordinator knows. After a row with "searching" comes {"cause": {...}}: the
row once more, with what it is about. Before that {"group": name, "heard": n, "most": searches}
asks what is known of findings like it; the answer comes on standard input as {"causes": [...],
"search": whether to}, and {"found": name, "text": cause} tells.
"""

import json
import math
import os
import sys
import time

from .calls.verdicts import FLAGGED, UNKNOWN
from .causes.groups import SEARCHES
from .executors.process import die_with_parent
from .executors.threads import Threads


class Channel:
    """Lines to the coordinator. A descriptor of its own: operators may print."""

    def __init__(self, number):
        self.file = os.fdopen(number, "wb", buffering=0)

    def send(self, **message):
        text = json.dumps(speakable(message), ensure_ascii=False).replace("\\u0000", "\ufffd")
        left = text.encode("utf-8", "replace") + b"\n"
        while left:
            left = left[self.file.write(left) :]


def speakable(value):
    """A message without what JSON cannot say: NaN and Inf are texts there."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k: speakable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [speakable(v) for v in value]
    return value


class Shared:
    """What is known of groups of findings, which the coordinator keeps for all workers."""

    def __init__(self, channel):
        self.channel = channel

    def ask(self, group, heard):
        """As `causes.groups.Known.ask`; waits where somebody else searches."""
        self.channel.send(group=group, heard=heard, most=SEARCHES)
        answer = json.loads(sys.stdin.readline())
        return answer["causes"], answer["search"]

    def found(self, group, cause):
        """As `causes.groups.Known.found`."""
        self.channel.send(found=group, text=cause)


class Bench:
    """Everything a worker holds while it works: trace, device, channel."""

    def __init__(self, settings, channel):
        from . import _core
        from .causes import host
        from .executors.device import open_device
        from .judges import standards

        self.channel, self.path = channel, settings["trace"]
        self.repeat = settings.get("repeat", 2)
        self.rule, self.compared = standards.chosen(settings["standard"], settings["compare"])
        self.trace = _core.Trace(self.path)
        say = lambda phase: channel.send(phase=phase)  # noqa: E731
        self.device = open_device(settings["device"], settings["home"], settings["via"], say)
        self.threads, self.fair = Threads(settings["threads"]), settings["memory"]
        self.trace_id, self.causes = settings["trace_id"], settings["causes"]
        self.groups = host.Groups(Shared(channel))
        self._ranks = None
        self._row = None
        self._fired = set()

    @property
    def ranks(self):
        """The traces of all ranks, opened for the first collective."""
        from .sources.ranks import Ranks

        if self._ranks is None:
            self._ranks = Ranks(self.path)
        return self._ranks

    def call(self, sequence, module=None):
        """The call, or the forward of a module, rebuilt from the trace."""
        from .calls.contents import Reader
        from .calls.read_call import call_from
        from .sources.standin import stand_in

        made = lambda tensor: stand_in(self.trace_id, sequence, tensor)  # noqa: E731
        if module:
            from .executors.module_call import module_call

            return module_call(module, self.trace.call, self.trace.blob, made)
        return call_from(self.row(sequence), Reader(self.trace), made)

    def row(self, sequence):
        """What the trace tells of a call; the last one is kept."""
        if self._row is None or self._row["sequence"] != sequence:
            self._row = self.trace.call(sequence)
        return self._row

    def judge(self, sequence, timing, module=None):
        from .executors import process
        from .session.judging import judge_call

        def mark(phase):
            self.channel.send(phase=phase)
            process.limit(phase)

        since = time.perf_counter_ns()
        call = self.call(sequence, module)
        timing.wide += time.perf_counter_ns() - since
        return call, judge_call(call, self.device, timing, mark, self.rule, seconds=0,
                                repeat=self.repeat)  # fmt: skip

    def fired(self):
        """Planted faults that fired since this was asked last, by their texts."""
        sim = sys.modules.get("ulpscope.sim")
        now = {f["fault"] for f in sim.faults_fired() if f["fired"]} if sim else set()
        new, self._fired = sorted(now - self._fired), now
        return new

    def work(self, request):
        """The row for one request, whether the device survived, and a function that gives the
        row with the cause, None where none is to be sought."""
        from . import _core
        from .calls.replay import BadCall
        from .executors import process
        from .executors.device import DeviceDied
        from .session import judging

        timing = judging.Timing()
        sequence = request["call"]
        process.share(max(request.get("room", 0), self.fair) if "room" in request else 0)
        if request.get("self_test"):
            return self.probe(sequence), True, None
        try:
            return self.judged(request, timing)
        except BadCall as problem:
            row = self.plain(sequence, "unjudged", str(problem), request)
            return row | {"unknown": problem.importable}, True, None
        except DeviceDied as problem:
            return self.plain(sequence, "crashed", f"the device reports: {problem}", request), False, None
        except _core.CorruptError:
            raise  # nothing that is read from this trace can be trusted
        except Exception as problem:  # ours, or a device with errors of its own kind
            why = f"the check of it failed, {type(problem).__name__}: {problem}"
            return self.plain(sequence, "unjudged", why, request), True, None

    def judged(self, request, timing):
        """What `work` gives for a call that can be judged."""
        from .calls.replay import is_collective
        from .executors import module_call as _module_call
        from .judges import wording
        from .judges.usual import is_usual
        from .session import judging

        sequence, module, below = request["call"], request.get("module"), None
        since = time.perf_counter_ns()
        self.threads.suit(None if module else self.row(sequence))
        collective = not module and is_collective(self.row(sequence)["op"])
        timing.wide += time.perf_counter_ns() - since
        if collective:
            call, verdict = self.collective(sequence, timing)
        else:
            call, verdict = self.judge(sequence, timing, module)
            if verdict.verdict in FLAGGED and request.get("children"):
                below = self.name_culprit(verdict, request["children"], timing)
            if self.compared:
                judging.compare_standards(self.compared, call, self.device, verdict, timing)

        effect = [] if collective else self.loss_effect(call, verdict, request.get("backward"))
        if not collective and self.rule is None and verdict.verdict in FLAGGED:
            effect += [(-1, "usual", 1.0, None)] if is_usual(call, verdict) else []

        def told():
            row = wording.row(call, verdict, timing.row())
            row["metrics"] += effect + (_module_call.arguments(call) if module else [])
            return row

        search = self.search(call, verdict, below, timing, told)
        verdict.cause = verdict.cause or (UNKNOWN if search else "")
        row = told()
        verdict.cause = "" if search else verdict.cause
        return row, True, search

    def search(self, call, verdict, below, timing, told):
        """A function that seeks the cause and gives the row with it; None where there is nothing
        to be sought. The verdict of the culprit below has the better cause."""
        from .causes.host import is_named
        from .session import judging

        if verdict.verdict not in FLAGGED or verdict.cause or verdict.operands is None:
            return None
        if self.rule is not None or not self.causes:
            return None

        def run():
            if below is not None:
                judging.explain(*below, timing, self.causes, self.groups)
                verdict.cause = below[1].cause if is_named(below[1].cause) else ""
            judging.explain(call, verdict, timing, self.causes, self.groups)
            return told()

        return run

    def collective(self, sequence, timing):
        """A collective and its verdict: judged as captured, since it cannot run alone."""
        from .executors import process
        from .session import collectives

        self.channel.send(phase="reference")
        process.limit("reference")
        call, verdict = collectives.judge(self.ranks, self.row(sequence), timing, self.rule)
        if self.compared:
            verdict.remarks = [*verdict.remarks, "no other standard is compared: they know no collectives"]
        return call, verdict

    def loss_effect(self, call, verdict, backward):
        """The metric that tells what the error means for the loss, as a list; empty where
        the trace does not tell."""
        from . import _core
        from .judges.impact import loss_effect

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
        """What the verdict would have caught on a call: no row, `session.selftest` keeps it."""
        from .calls.replay import is_collective
        from .session import selftest

        self.channel.send(phase="reference")
        if is_collective(self.row(sequence)["op"]):
            return {"self_test": {"skipped": "a collective is judged as captured, nothing is planted"}}
        try:
            return {"self_test": selftest.probe_apart(self.call(sequence))}
        except Exception as problem:
            return {"self_test": {"skipped": f"no reference: {problem}"[:200]}}

    def plain(self, sequence, verdict, reason, request):
        """A row for a call of which nothing could be measured."""
        module = request.get("module")
        source = module["source"] if module else self.trace.call(sequence)
        return {"verdict": verdict, "sentence": f"{source['op']}: {reason}"}

    def name_culprit(self, verdict, children, timing):
        """Replays the ATen calls below a call that did not pass: the first that does not
        pass either, with its verdict, is where the fault lies. None where all pass."""
        from .calls.replay import BadCall, is_collective

        for sequence in children:
            if is_collective(self.row(sequence)["op"]):
                continue
            try:
                call, below = self.judge(sequence, timing)
            except BadCall:
                continue
            if below.verdict in FLAGGED:
                verdict.culprit = call.op
                return call, below
        return None


def prepare(settings):
    """Imports and threads, before anything else touches torch."""
    import torch

    from .calls.homes import import_modules

    torch.set_num_threads(max(1, settings["threads"]))
    import_modules(settings["recorded"], settings["imports"])


def plain_words(problem):
    """What a user can do about an exception that ends the worker."""
    if isinstance(problem, ModuleNotFoundError) and problem.name == "torch":
        return (f"{sys.executable} has no torch: install it there (pip install torch), or name "
                "an interpreter that has it in ULPSCOPE_PYTHON")  # fmt: skip
    return f"{problem}" or type(problem).__name__


def opened(settings, channel, before):
    """What works on requests of this kind, and what computes."""
    from .session import identity

    if settings["kind"] == "pack":
        from .session.pack import Packer

        return Packer(settings, channel), {}
    bench = Bench(settings, channel)
    return bench, identity.told(settings["device"], before)


def main():
    from . import _core

    channel, settings = Channel(int(sys.argv[1])), json.loads(sys.argv[2])
    die_with_parent()
    sys.path.insert(0, os.getcwd())
    try:
        import torch  # noqa: F401  # nothing of it is a user's

        from .session import identity
        from .sources import glue

        glue._say = lambda text: channel.send(say=text)
        before = identity.loaded()
        prepare(settings)
        bench, facts = opened(settings, channel, before)
    except Exception as problem:  # whatever it is, the coordinator says it
        channel.send(fatal=plain_words(problem))
        return 2
    channel.send(ready=facts, environment=identity.environment())
    for line in sys.stdin:
        try:
            row, alive, search = bench.work(json.loads(line))
        except _core.CorruptError as problem:
            channel.send(fatal=f"{problem}; the trace is damaged, capture it or copy it again")
            return 2
        except OSError as problem:  # what a pack is written to
            channel.send(fatal=f"{problem.filename or 'a file'}: {problem.strerror or problem}; nothing "
                         "was packed: make room, or name another folder with -o")  # fmt: skip
            return 2
        channel.send(row={**row, "fired": bench.fired()}, leaving=not alive, searching=search is not None)
        if search is not None:
            channel.send(cause=search())
        if not alive:
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
