# SPDX-License-Identifier: Apache-2.0
"""A pack answers what a case asks of the device's own worker: of quantizations, gradients at
corners, tied maxima, sums over steps and narrower arithmetic, and of all that goes free
(docs/reference/excuses.md), honest and with a planted bug, it comes to the verdict of a check, with its bits
and its sentence."""

import json
import math
import os
import subprocess
from itertools import zip_longest
from pathlib import Path

import excuse_ops
import plain_tensors
import pytest
import torch
from calls import make_call
from pack_wants import CASES, DRAWN, OF_CASES, OF_NO_TRACE, OWN, ROWS, operator
from test_excuses import CODES
from traces import TraceWriter

import ulpscope
from ulpscope import _core
from ulpscope.causes import host
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.judges import wording
from ulpscope.session.captured import judge_captured
from ulpscope.session.judging import judge_call

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """name -> (what a check says, what the pack of the same call says)."""
    folder = tmp_path_factory.mktemp("wants")
    calls, checked = {}, {}
    with TraceWriter(folder / "trace") as t:
        for (op, args), computes in CASES.values():
            if id(args) not in calls:
                calls[id(args)] = (len(calls) + 1, args)
                t.add(op, *args, out=results(op, args, computes))
    for name, ((op, args), computes) in CASES.items():
        device = (
            computes
            if isinstance(computes, TorchDevice)
            else PythonDevice(lambda _, a, k, computes=computes: computes(*a, **k))
        )
        call = make_call(op, *args, live=results(op, args, computes))
        checked[name] = call, judge_call(call, device, seconds=0)
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    run(
        "pack",
        folder / "trace",
        "-o",
        folder / "pack",
        "--import",
        "wanted_ops",
        "--import",
        "excuse_ops",
        env=environment,
    )
    packed = {}
    groups = {}
    for name, ((_, args), _) in CASES.items():
        groups.setdefault(calls[id(args)][0], []).append(name)
    for turn, names in enumerate(zip_longest(*groups.values())):
        packed.update(judged(folder, turn, dict(zip(groups, names)), checked))
    return {name: (told(*checked[name]), packed[name], checked[name][1].answer.outputs) for name in checked}


def told(call, verdict):
    """What a check says: verdict, bits, sentence, notes."""
    row = wording.row(call, verdict, {})
    return verdict.verdict, row["bits"], row["sentence"], row["notes"]


def results(op, args, computes):
    """What the CPU gives, as it is captured; what a device gives where it refuses the call."""
    given = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
    try:
        out = operator(op)(*given)
    except (RuntimeError, IndexError):
        out = computes(*given)
    return list(out) if isinstance(out, tuple) else [out]


def run(*words, **more):
    done = subprocess.run(["ulpscope", *map(str, words)], capture_output=True, text=True, **more)
    assert done.returncode < 2, done.stderr


def judged(folder, turn, names, checked):
    """name -> verdict on one set of outputs: of each call one."""
    given, low = {}, []
    for number, name in names.items():
        for path, tensor in checked[name][1].answer.outputs.items() if name else ():
            given[f"{number}/{path}"] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
            low += [f"{number}/{path}"] if tensor.dtype == torch.bfloat16 else []
    plain_tensors.write(folder / f"{turn}.safetensors", {k: v.numpy() for k, v in given.items()}, low)
    run("judge", folder / "pack", folder / f"{turn}.safetensors", "-o", folder / f"out{turn}")
    found = json.loads((folder / f"out{turn}" / "result.json").read_text())["calls"]
    said = ("verdict", "bits", "sentence", "notes")
    return {names[c["call"]]: tuple(c[k] for k in said) for c in found if names[c["call"]]}


@pytest.mark.parametrize("name", CASES)
def test_a_pack_says_what_a_check_says(said, name):
    (verdict, bits, sentence, notes), packed, _ = said[name]
    assert packed[0] == verdict
    assert packed[2].startswith(sentence)  # a cause may follow
    assert packed[3] == notes
    if verdict in ("pass", "reduced", "wrong"):
        known = bits is not None and not math.isnan(bits)
        assert (packed[1] is not None) == known and (not known or abs(bits - packed[1]) < 0.1)


@pytest.mark.parametrize("name", OWN)
def test_what_a_check_says(said, name):
    accused = ("wrong", "reduced", "nonfinite") if OWN[name][2] == "wrong" else (OWN[name][2],)
    assert said[name][0][0] in accused


# One that is right and one that is wrong of each kind: what a program that trains, and who asks for a
# verdict on outputs, is told.
GIVEN = {(name.split(":")[0], case[2]): name for name, case in reversed(OWN.items())}


@pytest.mark.parametrize("name", GIVEN.values())
def test_a_live_check_says_what_a_check_says(said, name, tmp_path):
    checked, _, outputs = said[name]
    with TraceWriter(tmp_path / "trace") as t:
        t.add(OWN[name][0][0], *OWN[name][0][1], out=list(outputs.values()))
    with _core.Trace(str(tmp_path / "trace")) as trace:
        call, verdict, _ = judge_captured(trace, trace.call(1), 0, host.Groups())
    verdict, bits, sentence, notes = told(call, verdict)
    assert (verdict, sentence, notes) == (checked[0], checked[2], checked[3])
    assert bits == checked[1] or math.isnan(bits)


@pytest.mark.parametrize("name", GIVEN.values())
def test_a_verdict_on_outputs_says_what_a_check_says(said, name):
    (checked, bits, sentence, notes), _, outputs = said[name]
    given = tuple(outputs.values())
    verdict = ulpscope.judge_call(
        operator(OWN[name][0][0]), OWN[name][0][1], outputs=given if len(given) > 1 else given[0], cause=False
    )
    assert (verdict.verdict, verdict.sentence, "; ".join(verdict.notes)) == (checked, sentence, notes)
    assert verdict.effective_bits == bits or math.isnan(verdict.effective_bits)


def test_every_row_of_the_excuses_has_cases():
    assert set(CODES) == DRAWN | OF_NO_TRACE | OF_CASES.keys() | {name.partition(":")[0] for name in ROWS}
    assert all(any(name.startswith(start) for name in CASES) for start in OF_CASES.values())


@pytest.mark.parametrize("code", ["law", "spread"])
def test_a_live_check_says_of_draws_what_a_verdict_on_outputs_says(code, tmp_path):
    """A pack says that it takes a device that can be asked again (test_pack)."""
    row = excuse_ops.case(code)
    with TraceWriter(tmp_path / "trace") as t:
        t.add(row.op, *row.args, out=[row.outputs])
    with _core.Trace(str(tmp_path / "trace")) as trace:
        live = told(*judge_captured(trace, trace.call(1), 0, host.Groups())[:2])
    verdict = ulpscope.judge_call(operator(row.op), row.args, outputs=row.outputs, cause=False)
    assert (verdict.verdict, verdict.sentence, "; ".join(verdict.notes)) == (live[0], *live[2:])
