# SPDX-License-Identifier: Apache-2.0
"""Calls drawn from the benchmark of the verdict, right kernels and wrong ones: a check, a verdict on outputs, a live
check and a pack come to one verdict, with its bits and its sentence.

`python tests/py/test_pack_benchmark.py SEED CASES` draws others and prints where they differ.
"""

import collections
import json
import math
import random
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from calls import make_call
from test_pack_wants import run, told
from torch.utils._python_dispatch import TorchDispatchMode
from traces import TraceWriter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import plain_tensors

import ulpscope
from bench.verdicts.case import Case
from bench.verdicts.ops import OPS
from bench.verdicts.profiles import PROFILES
from ulpscope import _core
from ulpscope.causes import host
from ulpscope.executors.device import PythonDevice
from ulpscope.session.captured import judge_captured
from ulpscope.session.judging import judge_call

SEED, CASES, RIGHT, WRONG = 2029, 24, 2, 4
NUMBER = re.compile(r"(?<=with )[0-9.]+(?= effective bits)")  # compared as such: 0.05 may round up or down
Said = collections.namedtuple("Said", "verdict bits sentence notes")


class Seen(TorchDispatchMode):
    """Notes operators and their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def one_operator(case):
    """(name, arguments) of the one operator that a case is; None for others."""
    if case.native is None or case.op.mutates:
        return None
    seen = Seen()
    with seen:
        case.op.fn(*case.args, **case.kwargs)
    if len(seen.calls) != 1:
        return None
    func, args, kwargs = seen.calls[0]
    if len(func._schema.returns) != len(case.native):
        return None  # of which some are internal
    if kwargs or any(r.alias_info for r in func._schema.returns) or func._schema.is_mutable:
        return None
    return func.name(), args


def drawn(seed, n):
    """Cases by chance: (name, operator, arguments, [(variant, tensors)])."""
    draw = random.Random(seed)
    while n:
        name = draw.choice(sorted(OPS))
        op = OPS[name]
        profile, dtype = draw.choice(op.profiles or sorted(PROFILES)), draw.choice(op.dtypes)
        with np.errstate(all="ignore"):
            try:
                case = Case(op, profile, dtype, draw.randrange(1000))
                call = one_operator(case)
                right = case.correct() if call else []
                wrong = [(v, t) for v, t, dropped, _ in case.faults() if not dropped] if call else []
            except ValueError:  # a profile that the operator cannot have
                continue
        if not right:
            continue
        n -= 1
        kept = draw.sample(right, min(RIGHT, len(right))) + draw.sample(wrong, min(WRONG, len(wrong)))
        laid_out = [(v.name, [torch.empty_like(n).copy_(t) for n, t in zip(case.native, ts)]) for v, ts in kept]
        yield f"{name}, {profile}, {dtype}", *call, laid_out


def answers(seed, n, folder):
    """name -> {way: Said} of the drawn calls, each with each of its variants."""
    cases = list(drawn(seed, n))
    said = collections.defaultdict(dict)
    with TraceWriter(folder / "trace") as t:
        for _, op, args, variants in cases:
            t.add(op, *args, out=variants[0][1])
    run("pack", folder / "trace", "-o", folder / "pack")
    for turn in range(RIGHT + WRONG):
        given = {i: case[3][turn] for i, case in enumerate(cases, 1) if turn < len(case[3])}
        for number, verdict in packed(folder, turn, given).items():
            said[f"{cases[number - 1][0]}: {given[number][0]}"]["pack"] = verdict
        with TraceWriter(folder / f"trace{turn}") as t:
            for number, (_, tensors) in given.items():
                t.add(cases[number - 1][1], *cases[number - 1][2], out=tensors)
        with _core.Trace(str(folder / f"trace{turn}")) as trace:
            for at, (number, (variant, tensors)) in enumerate(given.items(), 1):
                name, op, args, _ = cases[number - 1]
                ways = said[f"{name}: {variant}"]
                call, verdict, _ = judge_captured(trace, trace.call(at), 0, host.Groups())
                ways["live check"] = Said(*told(call, verdict))
                ways["check"] = checked(op, args, tensors)
                ways["outputs"] = on_outputs(op, args, tensors)
    return said


def checked(op, args, tensors):
    out = tuple(tensors) if len(tensors) > 1 else tensors[0]
    call = make_call(op, *args, live=list(tensors))
    return Said(*told(call, judge_call(call, PythonDevice(lambda *_: out), seconds=0)))


def on_outputs(op, args, tensors):
    space, _, rest = op.partition("::")
    name, _, overload = rest.partition(".")
    function = getattr(getattr(getattr(torch.ops, space), name), overload or "default")
    out = tuple(tensors) if len(tensors) > 1 else tensors[0]
    found = ulpscope.judge_call(function, args, outputs=out, cause=False)
    return Said(found.verdict, found.effective_bits, found.sentence, "; ".join(found.notes))


def packed(folder, turn, given):
    """number -> Said of one set of outputs."""
    tensors, low = {}, []
    for number, (_, outputs) in given.items():
        for i, t in enumerate(outputs):
            key = f"{number}/out[{i}]"
            tensors[key] = (t.float() if t.dtype == torch.bfloat16 else t).numpy()
            low += [key] if t.dtype == torch.bfloat16 else []
    plain_tensors.write(folder / f"{turn}.safetensors", tensors, low)
    run("judge", folder / "pack", folder / f"{turn}.safetensors", "-o", folder / f"out{turn}")
    found = json.loads((folder / f"out{turn}" / "result.json").read_text())["calls"]
    return {c["call"]: Said(*(c[k] for k in Said._fields)) for c in found if c["call"] in given}


def differ(one, other):
    """Why two answers are not the same; "" where they are. A cause may follow a sentence of `one`."""
    if one.verdict != other.verdict:
        return "verdict"
    if not NUMBER.sub("", one.sentence).startswith(NUMBER.sub("", other.sentence)):
        return "sentence"
    if one.notes != other.notes:
        return "notes"
    if one.verdict not in ("pass", "reduced", "wrong"):
        return ""
    bits = [None if b is None or math.isnan(b) else b for b in (one.bits, other.bits)]
    if None in bits:
        return "" if bits == [None, None] else "bits"
    return "bits" if abs(bits[0] - bits[1]) > 1e-4 else ""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return answers(SEED, CASES, tmp_path_factory.mktemp("drawn"))


@pytest.mark.parametrize("way", ["pack", "live check", "outputs"])
def test_every_way_comes_to_what_a_check_says(said, way):
    assert len(said) > 3 * CASES
    others = {name: (ways["check"], ways[way]) for name, ways in said.items() if differ(ways[way], ways["check"])}
    assert not others, others


def test_the_draw_has_verdicts_of_each_kind(said):
    counts = collections.Counter(ways["check"].verdict for ways in said.values())
    assert counts["pass"] >= CASES and counts["wrong"] + counts["reduced"] >= 2 * CASES, counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        every = answers(int(sys.argv[1]), int(sys.argv[2]), Path(place))
    found = collections.Counter()
    for case, ways in every.items():
        for way in ("pack", "live check", "outputs"):
            if why := differ(ways[way], ways["check"]):
                found[way, why] += 1
                print(f"{case}: {way}, {why}\n  {ways['check']}\n  {ways[way]}")
    print(f"{len(every)} answers;", dict(found))
