# SPDX-License-Identifier: Apache-2.0
"""`--level module`: forwards of modules are found in a captured step and rebuilt to the last
bit; honest devices and compilers pass, one that breaks only what it fuses is accused at this
level and at no other."""

import os
import re
import subprocess

import check_compilers  # noqa: F401  registers backends
import pytest
import torch
from selections import picks
from test_check_run import check, rows
from test_compiled import plain_compiler  # noqa: F401  a fixture
from test_via import package
from torch import nn

import ulpscope
from ulpscope import _core
from ulpscope.executors.compiled import CompiledDevice
from ulpscope.executors.device import open_device
from ulpscope.session.judging import judge_call
from ulpscope.executors.module_call import MOST_CALLS, Builder, all_values, module_call
from ulpscope.session.departing import departure, first_flagged
from ulpscope.calls.read_call import call_from
from ulpscope.calls.replay import BadCall

SEED = 5


class Block(nn.Module):
    """Writes an argument in place, draws, keeps statistics, splits a storage."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(24, 16)
        self.drop, self.batch = nn.Dropout(0.25), nn.BatchNorm1d(16)

    def forward(self, x):
        a, b = self.up(self.norm(x)).chunk(2, -1)
        h = self.down(torch.nn.functional.gelu(a) * b.sigmoid())
        h.mul_(0.5)
        return x + self.batch(self.drop(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(16, 7)

    def forward(self, x):
        return self.head(self.blocks(x))


class Captured:
    """A training step of the model, and what its modules gave."""

    def __init__(self, folder):
        torch.manual_seed(SEED)
        self.path, self.outputs = folder / "trace", {}
        model, x = Model(), torch.randn(20, 16)
        for name, module in model.named_modules():
            module.register_forward_hook(lambda m, i, out, name=name: self.keep(name, out))
        with ulpscope.capture(self.path):
            model(x).square().sum().backward()
        self.trace = _core.Trace(str(self.path))
        self.rows = [self.trace.call(s) for s in self.trace.select()]

    def keep(self, name, out):
        self.outputs[name] = out.detach()

    def forwards(self, target="cpu"):
        return picks(self.path, target, modules=True)

    def rebuilt(self, path, target="cpu"):
        (found,) = [f for f in self.forwards(target) if f.path == path]
        return module_call(found.module, self.trace.call, self.trace.blob)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    print(f"seed {SEED}")
    return Captured(tmp_path_factory.mktemp("modules"))


def test_forwards_of_a_step(captured):
    found = {f.path: f for f in captured.forwards()}
    inside = [f"blocks.{i}{name}" for i in range(2) for name in ("", ".norm", ".up", ".down", ".drop", ".batch")]
    assert set(found) == {"", "blocks", "head", *inside}
    numbers = [f.sequence for f in found.values()]
    assert len(set(numbers)) == len(numbers)
    again = {f.path: f.sequence for f in captured.forwards()}
    assert again == {path: f.sequence for path, f in found.items()}  # as resuming needs it


@pytest.mark.parametrize("path", ["head", "blocks.0.norm", "blocks.1.up", "blocks.1", "blocks", ""])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_rebuilt_to_the_last_bit(captured, path, target):
    call = captured.rebuilt(path, target)
    expected = captured.outputs[path]
    assert any(t.shape == expected.shape and torch.equal(t, expected) for t in call.native.values())


def test_draws_are_inputs(captured):
    drop = captured.rebuilt("blocks.0.drop")
    assert not drop.random
    assert [s.call.op for s in drop.steps_taken if "bernoulli" in s.call.op] == []
    draws = [r["sequence"] for r in captured.rows if r["op"].startswith("aten::bernoulli_")]
    with pytest.raises(BadCall, match="aten::bernoulli_.float draws"):
        module_call({"calls": draws[:1], "kept": [], "source": {}}, captured.trace.call, captured.trace.blob)


def test_what_stands_beside_a_result_is_none():
    """Of a norm whose result is read nobody wants the statistics; of one at the end all that it gives."""
    builder = Builder(None)
    builder.made = [{"version": i, "storage": i, "sizes": [4], "strides": [1]} for i in range(5)]
    builder.together, builder.read = [[0, 1, 2], [3, 4]], {0}
    assert builder.kept(set()) == [3, 4]
    assert builder.kept({1}) == [1]  # which a later call reads
    builder.together, builder.read = [[0, 1, 2, 3, 4]], {0}
    assert builder.kept(set()) == [1, 2, 3, 4]  # there is nothing else


def test_writes_are_judged(captured):
    batch = captured.rebuilt("blocks.0.batch")
    assert len(batch.written()) >= 2  # the running statistics
    assert judge_call(batch, open_device("cpu")).verdict == "pass"


def test_equal_modules_compile_once(captured):
    same = [captured.rebuilt(f"blocks.{i}.up").identity for i in range(2)]
    assert same[0] == same[1] != captured.rebuilt("blocks.0.norm").identity


def test_an_error_inside_is_seen(captured, monkeypatch):
    """A device whose gelu is another one."""
    monkeypatch.setattr("ulpscope.causes.host.add_cause", lambda *_: None)  # takes its time
    call, device = captured.rebuilt("blocks.0"), open_device("cpu")
    gelu = next(s.call for s in call.steps_taken if s.call.op == "aten::gelu")
    assert judge_call(call, device).verdict == "pass"
    device.compute = lambda call, bound: bound.run(broken)

    def broken(*tensors):
        return call.replay(tensors, function_of=lambda c: tanh if c is gelu else c.function)

    def tanh(x, **_):
        return torch.nn.functional.gelu(x, approximate="tanh")

    assert judge_call(call, device).verdict in ("wrong", "reduced")


def test_check_without_compiler(captured, tmp_path):
    out = tmp_path / "out"
    only = "--level", "module", "--ops", "gelu,native_batch_norm"
    run = check(captured.path, out, *only, device="cpu")
    assert run.returncode == 0
    assert "module:head" not in {r["op"] for r in rows(out)}
    said = {r["op"]: r for r in rows(out)}
    assert said["module:blocks.0"]["verdict"] == said["module:(model)"]["verdict"] == "pass"
    assert {r["verdict"] for r in said.values()} == {"pass"}
    assert said["module:blocks.1"]["module"] == "blocks.1"
    assert said["module:blocks.1"]["module_class"] == "Block"
    again = check(captured.path, out, device="cpu")  # another run
    assert again.returncode == 2 and "--force" in again.stderr
    again = check(captured.path, out, *only, device="cpu")
    assert again.returncode == 0 and "resuming" not in again.stderr  # it was finished
    assert {r["op"]: r["verdict"] for r in rows(out)} == {op: "pass" for op in said}


def test_compiler_that_breaks_what_it_fuses(captured, monkeypatch):
    monkeypatch.setattr("ulpscope.causes.host.add_cause", lambda *_: None)  # takes its time
    device = CompiledDevice("cpu", "fusing")
    (gelu, *_) = [r for r in captured.rows if r["op"] == "aten::gelu"]
    alone = call_from(gelu, captured.trace.blob)
    assert judge_call(alone, device).verdict == "pass"
    assert judge_call(captured.rebuilt("blocks.0.up"), device).verdict == "pass"
    assert judge_call(captured.rebuilt("blocks.0"), device).verdict in ("wrong", "reduced")


def test_honest_inductor(captured):
    device = CompiledDevice("cpu", "inductor")
    for path in ("blocks.0", "blocks.1"):
        verdict = judge_call(captured.rebuilt(path), device)
        assert (verdict.verdict, verdict.notes) == ("pass", []), verdict.reason
    assert len(device.made) == 1  # the same code


def test_departure():
    """Of words on the first 1, 2, ... steps: what passes before it, where it departs, the word there."""
    asked = []
    for words, found in (
        ("wrong", (0, 1, "wrong")),
        ("pass wrong wrong wrong", (1, 2, "wrong")),
        ("pass pass pass reduced wrong", (3, 4, "reduced")),
        ("pass unjudged unsupported wrong", (1, 4, "wrong")),
        ("unjudged pass unjudged wrong wrong", (2, 4, "wrong")),
        ("unjudged wrong", (0, 2, "wrong")),
    ):
        said = words.split()
        assert departure(len(said), said[-1], lambda k, said=said: said[k - 1]) == found, words
    departure(256, "wrong", lambda k: asked.append(k) or ("pass" if k < 100 else "wrong"))
    assert len(asked) == 8


@pytest.mark.parametrize("guess, n_asked", [(100, 2), (1, 9), (256, 9), (0, 8)])
def test_a_guess_is_asked_first_and_decides_nothing(guess, n_asked):
    asked = []
    found = departure(256, "wrong", lambda k: asked.append(k) or ("pass" if k < 100 else "wrong"), guess)
    assert found == (99, 100, "wrong") and len(asked) == n_asked
    assert departure(4, "wrong", lambda k: asked.append(k) or "unjudged", 2) == (0, 4, "wrong")
    assert len(asked) == n_asked + 3  # none twice


@pytest.mark.parametrize("compiler, op", [("fusing", "aten::gelu"), ("aot_eager", None)])
def test_all_values_tell_which_call_departs(captured, compiler, op):
    (found,) = [f for f in captured.forwards() if f.path == "blocks.0"]
    whole = all_values(found.module, captured.trace.call)
    call = module_call(whole, captured.trace.call, captured.trace.blob)
    calls = [captured.trace.call(s) for s in whole["calls"]]
    at = first_flagged(call, judge_call(call, CompiledDevice("cpu", compiler)), calls)
    assert (calls[at - 1]["op"] if at else None) == op


TAPPING = """
import check_compilers
from ulpscope.executors.via.runtime import Runtime

class Tapping(Runtime):
    taps = {taps}

    def compile(self, graph, inputs):
        with open({path!r}, "a") as file:
            file.write("x")
        made = check_compilers.fusing(graph, inputs)
        return lambda *tensors: list(made(*tensors))
"""


@pytest.mark.parametrize("taps", [True, False])
def test_of_a_runtime_with_taps_fewer_graphs_are_compiled(captured, tmp_path, monkeypatch, taps):
    (tmp_path / "tapping.py").write_text(TAPPING.format(taps=taps, path=str(tmp_path / "compiled")))
    package(tmp_path, "tapping", "7", "tapping:Tapping")
    info = tmp_path / "tapping-7.dist-info" / "entry_points.txt"
    info.write_text(info.read_text().replace("rude =", "tapping ="))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    more = "--via", "tapping", "--import", "check_compilers", "--bisect", "--module", "blocks", "--causes", "off"
    assert check(captured.path, tmp_path / "out", *more, device="cpu").returncode == 1
    (row,) = [r for r in rows(tmp_path / "out") if r["op"] == "module:blocks"]
    assert row["culprit"] == "aten::gelu"
    assert len((tmp_path / "compiled").read_text()) == (6 if taps else 9), row


def test_the_first_operator_at_which_a_compiler_departs(captured, tmp_path):
    more = "--via", "fusing", "--import", "check_compilers", "--bisect", "--module", "blocks.0*", "--causes", "off"
    assert check(captured.path, tmp_path / "out", *more, device="cpu").returncode == 1
    said = {r["op"]: r for r in rows(tmp_path / "out")}
    assert {op for op, r in said.items() if r["verdict"] != "pass"} == {
        "module:blocks.0",
        "module:blocks",
        "module:(model)",
    }
    where = r"up to aten::\w+[.\w]* \(call \d+\) it passes, up to aten::gelu \(call \d+\) it is (wrong|reduced)"
    for row in said.values():
        accused = row["verdict"] != "pass"
        assert row["culprit"] == ("aten::gelu" if accused else "") and row["cause"] == ""
        assert re.fullmatch(where if accused else "", row["notes"]), row["notes"]


@pytest.mark.parametrize(
    "more, word",
    [
        (["--bisect", "--level", "api", "--device", "cpu"], "leave out --level api"),
        (["--device", "python:check_devices:device"], "--device cpu"),
        (["--device", "cpu", "--self-test"], "leave out --level module"),
    ],
)
def test_what_does_not_go_together(more, word):
    said = subprocess.run(["ulpscope", "check", "trace", "--level", "module", *more], capture_output=True, text=True)
    assert said.returncode == 2 and word in said.stderr


def test_too_large_for_one_graph(captured):
    request = {"calls": [1] * (MOST_CALLS + 1), "kept": [], "source": {}}
    with pytest.raises(BadCall, match="too many for one graph"):
        module_call(request, captured.trace.call, captured.trace.blob)
