# SPDX-License-Identifier: Apache-2.0
"""Whatever a case asks of the device's own worker (quantizations, gradients at corners, tied maxima, sums over steps,
narrower arithmetic), and all that goes free (docs/reference/excuses.md), honest and with a planted bug: every way to a
verdict comes to that of a check, with its bits, its sentence and its notes."""

from __future__ import annotations

import json
import subprocess

import excuse_ops
import plain_tensors
import pytest
import torch
import ways
from pack_wants import CASES, DRAWN, IN_PLACE, OF_CASES, OF_NO_TRACE, OWN, ROWS
from packs import judge
from test_excuses import CODES
from traces import TraceWriter

import ulpscope
from ulpscope.executors.device import PythonDevice, TorchDevice


def results(op, args, computes):
    """What the CPU returns, as it is captured, but for what it writes; a device where it refuses the call."""
    if all(r.alias_info for r in ways.operator(op)._schema.returns):
        return []
    given = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
    try:
        out = ways.operator(op)(*given)
    except (RuntimeError, IndexError):
        out = computes(*given)
    return list(out) if isinstance(out, tuple) else [out]


def asked():
    """The table's calls, each with all devices that it is judged on."""
    calls = {}
    for name, ((op, args), computes) in CASES.items():
        if id(args) not in calls:
            calls[id(args)] = ways.Asked(str(len(calls)), op, args, results(op, args, computes), {})
        device = (
            computes
            if isinstance(computes, TorchDevice)
            else PythonDevice(lambda _, a, k, computes=computes: computes(*a, **k))
        )
        calls[id(args)].devices[name] = device
    return calls.values()


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """name -> {way: what it says}."""
    found = ways.answers(asked(), tmp_path_factory.mktemp("wants"), ["wanted_ops", "excuse_ops"])
    return {name: said for (_, name), said in found.items()}


@pytest.mark.parametrize("way", ways.OTHERS)
@pytest.mark.parametrize("name", CASES)
def test_every_way_says_what_a_check_says(said, name, way):
    assert not ways.differ(said[name][way], said[name]["check"]), (said[name]["check"], said[name][way])


@pytest.mark.parametrize("name", OWN)
def test_what_a_check_says(said, name):
    accused = ("wrong", "reduced", "nonfinite") if OWN[name][2] == "wrong" else (OWN[name][2],)
    assert said[name]["check"].verdict in accused


def test_what_writes_its_arguments_is_among_them():
    written = {op for op, *_ in (case for case, *_ in IN_PLACE.values())}
    assert len(written) >= 6 and all(ways.operator(op)._schema.is_mutable for op in written)


def test_every_row_of_the_excuses_has_cases():
    assert set(CODES) == DRAWN | OF_NO_TRACE | OF_CASES.keys() | {name.partition(":")[0] for name in ROWS}
    assert all(any(name.startswith(start) for name in CASES) for start in OF_CASES.values())


@pytest.mark.parametrize("code", ["law", "spread"])
def test_a_live_check_says_of_draws_what_a_verdict_on_outputs_says(code, tmp_path):
    """A pack says that it takes a device that can be asked again (test_pack)."""
    row = excuse_ops.case(code)
    asked = ways.Asked(code, row.op, row.args, [], {})
    live = ways.live(tmp_path / "trace", {1: (asked, {"out[0]": row.outputs})})[1]
    said = ways.on_outputs(asked, {"out[0]": row.outputs})
    assert (said.verdict, said.sentence, said.notes) == (live.verdict, live.sentence, live.notes)


@pytest.fixture(scope="module")
def at_corners(tmp_path_factory):
    """A pack of two gradients of leaky_relu: at few zeros, and where half are; their inputs."""
    folder = tmp_path_factory.mktemp("corners")
    chance = torch.Generator().manual_seed(5)
    g, x = torch.randn(40, 26, generator=chance), torch.randn(40, 26, generator=chance)
    few = torch.where(torch.rand(40, 26, generator=chance) < 0.01, 0.0, x)
    half = torch.where(torch.rand(40, 26, generator=chance) < 0.5, 0.0, x)
    with TraceWriter(folder / "trace") as t:
        for at in (few, half):
            out = torch.ops.aten.leaky_relu_backward(g, at, 0.1, False)
            t.add("aten::leaky_relu_backward", g, at, 0.1, False, out=[out])
    subprocess.run(
        ["ulpscope", "pack", folder / "trace", "-o", folder / "pack", "-j", "1"], check=True, capture_output=True
    )
    return folder / "pack", g, {1: few, 2: half}


def test_a_pack_holds_both_sides_of_corners(at_corners):
    calls = json.loads((at_corners[0] / "pack.json").read_text())["calls"]
    for call in calls:
        held = plain_tensors.read(at_corners[0] / call["operands_file"])
        names = call["outputs"][0]["operands"]
        low, high = held[names["side_low"]], held[names["side_high"]]
        corner = held[names["unpromised"]] != 0
        assert corner.any() and (low[corner] < high[corner]).all()


@pytest.mark.parametrize(
    "factor, few, half",
    [
        (0.1, "pass", "pass"),
        (1.0, "undefined", "wrong"),
        (0.5, "undefined", "wrong"),
        (1.5, "wrong", "wrong"),
        (-1.0, "wrong", "wrong"),
        (0.0, "wrong", "wrong"),
    ],
)
def test_a_corner_excuses_a_pack_as_it_does_a_check(at_corners, tmp_path, factor, few, half):
    pack, g, inputs = at_corners
    given = {}
    for number, x in inputs.items():
        out = torch.ops.aten.leaky_relu_backward(g, x, 0.1, False)
        out = torch.where(x == 0, factor * g, out)
        verdict = {1: few, 2: half}[number]
        found = ulpscope.judge_call(torch.ops.aten.leaky_relu_backward, (g, x, 0.1, False), outputs=out, cause=False)
        assert found.verdict == verdict
        given[f"{number}/out[0]"] = out.numpy()
    plain_tensors.write(tmp_path / "all.safetensors", given)
    _, calls = judge(pack, tmp_path / "all.safetensors", out=tmp_path / "out")
    assert [calls[n]["verdict"] for n in (1, 2)] == [few, half]
