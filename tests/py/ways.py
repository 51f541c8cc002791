# SPDX-License-Identifier: Apache-2.0
"""One call and what a device gave for it, judged in every way there is: a check of a captured trace, a verdict on
outputs, a live check, and a pack that is judged without torch. For test_pack_wants, test_pack_benchmark and
bench_ways."""

import collections
import json
import math
import os
import re
import subprocess
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import plain_tensors
import torch
from traces import TraceWriter

import ulpscope
from ulpscope import _core
from ulpscope.causes import host
from ulpscope.executors.device import PythonDevice
from ulpscope.judges import wording
from ulpscope.session.bench import rebuilt
from ulpscope.session.captured import judge_captured
from ulpscope.session.judging import judge_call

HERE = Path(__file__).resolve().parent
OTHERS = ("outputs", "live check", "pack")  # each is held to "check"
BITS = 0.01  # quantiles come from bins: an element at the end of one may lie on either side when a pack rounds it
JUDGED = ("pass", "reduced", "wrong")  # which have bits
NUMBER = re.compile(r"(?<=with )[0-9.]+(?= effective bits)")  # compared as such: 0.05 may round up or down
Said = collections.namedtuple("Said", "verdict bits sentence notes")


@dataclass
class Asked:
    """A call, what the capture saw of it, and the devices whose answers are judged: tensors, or what runs a call."""

    name: str
    op: str
    args: tuple
    captured: list
    devices: dict  # name -> list of tensors, or an object with `run(call)`
    kwargs: dict = field(default_factory=dict)


class Given(PythonDevice):
    """A device that gives these tensors."""

    def __init__(self, tensors):
        out = tuple(tensors) if len(tensors) > 1 else tensors[0]
        super().__init__(lambda *_: out)


def operator(op):
    """The overload of that name."""
    space, _, rest = op.partition("::")
    name, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), name), overload or "default")


def answers(asked, folder, imports=()):
    """(name of a call, name of a device) -> {way: Said}."""
    asked, said, gave = list(asked), collections.defaultdict(dict), {}
    folder = Path(folder)
    captured(
        folder / "trace", {i: (a, {f"out[{k}]": t for k, t in enumerate(a.captured)}) for i, a in enumerate(asked, 1)}
    )
    with _core.Trace(str(folder / "trace")) as trace:
        for number, one in enumerate(asked, 1):
            for name, device in one.devices.items():
                key = one.name, name
                said[key]["check"], gave[key] = checked(trace, number, one, device)
    run("pack", folder / "trace", "-o", folder / "pack", *sum((["--import", m] for m in imports), []))
    numbered = [[(i, a, name) for name in a.devices] for i, a in enumerate(asked, 1)]
    for turn, row in enumerate(zip_longest(*numbered)):
        given = {i: (a, gave[a.name, name]) for i, a, name in filter(None, row)}
        names = {i: (a.name, name) for i, a, name in filter(None, row)}
        found = {
            "pack": packed(folder, turn, given),
            "live check": live(folder / f"trace{turn}", given),
            "outputs": {i: on_outputs(*one) for i, one in given.items()},
        }
        for way, by_number in found.items():
            for number, verdict in by_number.items():
                said[names[number]][way] = verdict
    return dict(said)


def captured(path, given):
    """Writes a trace of calls with what they gave and wrote, by path; their numbers there."""
    with TraceWriter(path) as t:
        return {
            i: t.add(a.op, *a.args, out=returned(gave), wrote=written(gave), **a.kwargs)
            for i, (a, gave) in given.items()
        }


def returned(gave):
    """Results among what a device gave by path."""
    return [t for path, t in gave.items() if path.startswith("out[")]


def written(gave):
    """Arguments that were written, by path."""
    return {path: t for path, t in gave.items() if not path.startswith("out[")}


def told(call, verdict):
    """What a row of a result says."""
    row = wording.row(call, verdict, {})
    return Said(verdict.verdict, row["bits"], row["sentence"], row["notes"])


def checked(trace, number, asked, device):
    """What a check of a captured call says of a device, and what that gave by path."""
    call = rebuilt(trace, "ways", trace.call(number))
    if isinstance(device, list):
        gave = {f"out[{i}]": t for i, t in enumerate(device)}
        return told(call, judge_call(call, Given(device), seconds=0)), gave
    verdict = judge_call(call, device, seconds=0)
    gave = dict(verdict.answer.outputs)
    for path, t in ((f"out[{i}]", t) for i, t in enumerate(asked.captured)):
        if t.is_complex() and path in gave:  # which an answer holds as pairs
            gave[path] = torch.view_as_complex(gave[path])
    return told(call, verdict), gave


def live(path, given):
    """number -> Said of a live check, which judges what was captured."""
    numbers = captured(path, given)
    with _core.Trace(str(path)) as trace:
        return {i: told(*judge_captured(trace, trace.call(at), 0, host.Groups())[:2]) for i, at in numbers.items()}


def left(asked, wrote):
    """Arguments and keywords with those that were written as they were left."""

    def after(path, value):
        if isinstance(value, (list, tuple)):
            return [after(f"{path}[{i}]", v) for i, v in enumerate(value)]
        return wrote.get(path, value)

    return after("args", asked.args), {k: after(f"kwargs.{k}", v) for k, v in asked.kwargs.items()}


def on_outputs(asked, gave):
    """What a verdict on outputs says."""
    out, wrote = returned(gave), written(gave)
    out = tuple(out) if len(out) > 1 else out[0] if out else None
    found = ulpscope.judge_call(
        operator(asked.op),
        asked.args,
        asked.kwargs,
        outputs=out,
        mutated=left(asked, wrote) if wrote else None,
        cause=False,
    )
    return Said(found.verdict, found.effective_bits, found.sentence, "; ".join(found.notes))


def packed(folder, turn, given):
    """number -> Said of one set of outputs, judged without torch."""
    tensors, low = {}, []
    for number, (_, outputs) in given.items():
        for path, t in outputs.items():
            key = f"{number}/{path}"
            t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
            tensors[key] = (t.float() if t.dtype == torch.bfloat16 else t).numpy()
            low += [key] if t.dtype == torch.bfloat16 else []
    plain_tensors.write(folder / f"{turn}.safetensors", tensors, low)
    run("judge", folder / "pack", folder / f"{turn}.safetensors", "-o", folder / f"out{turn}")
    found = json.loads((folder / f"out{turn}" / "result.json").read_text())["calls"]
    return {c["call"]: Said(*(c[k] for k in Said._fields)) for c in found if c["call"] in given}


def run(*words):
    """A command of the program; what it imports may lie beside this file."""
    paths = [str(HERE), str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(["ulpscope", *map(str, words)], capture_output=True, text=True, env=environment)
    assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr, (
        done.returncode,
        done.stderr,
    )  # 2: some are not judged


def says_alike(one, other):
    """Whether a sentence is another one, but for a cause: `... (2 of 8 elements differ): CAUSE; not judged: ...`."""
    said, mark, left = other.partition("; not judged: ")
    return one.startswith(said) and one.endswith(mark + left)


def known(bits):
    """Bits that are told; None where none are."""
    return None if bits is None or math.isnan(bits) else bits


def differ(one, other):
    """What two answers do not have in common; "" where they are the same. A cause may follow a sentence of `one`."""
    if one.verdict != other.verdict:
        return "verdict"
    if not says_alike(*(NUMBER.sub("", said.sentence) for said in (one, other))):
        return "sentence"
    if one.notes != other.notes:
        return "notes"
    bits = known(one.bits), known(other.bits)
    if one.verdict not in JUDGED or bits == (None, None):
        return ""
    return "bits" if None in bits or abs(bits[0] - bits[1]) > BITS else ""


def differences(said):
    """(call, device, way, what differs, what a check says, what that way says) of those that are not the same."""
    return [
        (*key, way, why, ways["check"], ways[way])
        for key, ways in said.items()
        for way in ways
        if way != "check" and (why := differ(ways[way], ways["check"]))
    ]
