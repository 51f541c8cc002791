# SPDX-License-Identifier: Apache-2.0
"""Capturing from torch: what a trace of a step holds, and that the run is not disturbed."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import ulpscope
from ulpscope import _core
from ulpscope.calls import read_call, replay
from ulpscope.program import hooks
from ulpscope.program.capture import parse_steps

EMPTY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"}


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 24)
        self.out = torch.nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.inner(x).chunk(3, -1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.relu_(self.norm(self.attention(x))))


class Training:
    def __init__(self, **options):
        torch.manual_seed(3)
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01, **options)

    def __call__(self):
        x = torch.randn(2, 6, 8)
        x += torch.rand(2, 6, 8) + torch.arange(8) / 8
        loss = F.cross_entropy(self.net(x).flatten(0, 1), torch.randint(0, 4, (12,)))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def recorded(path, body, **options):
    with ulpscope.capture(path, **options) as capture:
        body()
    return read(path), capture


def read(path):
    trace = _core.Trace(str(path))
    return [trace.call(s) for s in trace.select()]


def names(calls, phase=None):
    return [c["op"] for c in calls if phase in (None, c["phase"])]


def base(call):
    return call["op"].split(".")[0]


def notes(path):
    import sqlite3

    with sqlite3.connect(path / "trace.db") as db:
        return db.execute("select call, kind, text from note").fetchall()


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_every_phase_is_there_and_the_losses_are_not_touched(tmp_path, options):
    plain = Training(**options)
    expected = [plain() for _ in range(3)]
    training = Training(**options)
    got = [training()]
    calls, _ = recorded(tmp_path / "t", lambda: got.append(training()))
    got.append(training())
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert "aten::native_layer_norm" in names(calls, "forward")
    assert "aten::native_layer_norm_backward" in names(calls, "backward")
    step = {"foreach=False": "aten::addcdiv_", "fused": "aten::_fused_adamw_"}
    wanted = (
        step["fused"]
        if options.get("fused")
        else ("aten::_foreach_addcdiv_" if options.get("foreach") else step["foreach=False"])
    )
    assert any(n.startswith(wanted) for n in names(calls, "optimizer"))
    assert all(c["status"] == "ok" for c in calls)


def test_every_deterministic_call_replays_bit_equal(tmp_path):
    training = Training(foreach=False)
    training()
    recorded(tmp_path / "t", training)
    trace = _core.Trace(str(tmp_path / "t"))
    n = 0
    for sequence in trace.select():
        row = trace.call(sequence)
        if base(row) in EMPTY or (row["state"] and "rng" in row["state"]):
            continue
        call = read_call.call_from(row, trace.blob)
        bound = replay.bind_exact(call, lambda device: "cpu")
        results = bound.run(call.function)
        if len(call.schema.returns) < 2:
            results = [results]
        for path in call.results:
            replayed = results
            for index in path.removeprefix("out[").removesuffix("]").split("]["):
                replayed = replayed[int(index)]
            assert torch.equal(call.live(path, "out"), replayed.detach()), (row["op"], path)
            n += 1
        for path in call.mutated:
            assert torch.equal(call.live(path, "mutated"), bound.tensors[path]), row["op"]
            n += 1
    assert n > 100


def test_factories_are_recorded_and_right(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(4), torch.arange(3), torch.full((2,), 7.0)
    torch.manual_seed(5)
    got = []
    calls, _ = recorded(tmp_path / "t", lambda: got.extend([torch.rand(4), torch.arange(3), torch.full((2,), 7.0)]))
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert [base(c) for c in calls] == ["aten::rand", "aten::arange", "aten::full"]
    assert json.loads(calls[0]["state"])["rng"]["seed"] == "5"
    assert torch.equal(torch.rand(2), torch.rand(2)) is False  # and still work afterwards


def test_any_seed_can_be_checked(tmp_path):
    """Half of the seeds that torch draws for an unseeded program are no signed number."""
    torch.manual_seed(2**64 - 3)
    recorded(tmp_path / "t", lambda: torch.rand(1000))
    done = subprocess.run(
        ["ulpscope", "check", tmp_path / "t", "--device", "cpu", "-o", tmp_path / "o", "-j", "1"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0 and "1 pass" in done.stdout, done.stderr


def test_composite_calls_are_parents_with_inputs_before_autocast(tmp_path):
    layer, x = torch.nn.Linear(4, 4), torch.randn(2, 4)

    def body():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(x)
        F.scaled_dot_product_attention(*torch.randn(3, 1, 2, 4).unbind(0))
        x.numel(), x.size(0), x.is_contiguous()

    calls, _ = recorded(tmp_path / "t", body)
    linear = next(c for c in calls if c["op"] == "aten::linear")
    assert linear["composite"] and linear["tensors"][0]["dtype"] == "float32"
    assert json.loads(linear["state"])["autocast"] == {"cpu": "bfloat16"}
    below = [c for c in calls if c["parent"] == linear["sequence"]]
    assert any(base(c) == "aten::addmm" for c in below)
    assert any(c["op"].startswith("aten::scaled_dot_product_attention") for c in calls)
    assert all(any(k["parent"] == c["sequence"] for k in calls) for c in calls if c["composite"])


def test_a_backward_call_carries_module_and_stack_of_its_forward(tmp_path):
    calls, _ = recorded(tmp_path / "t", Training())
    forward = next(c for c in calls if c["op"] == "aten::native_layer_norm")
    backward = next(c for c in calls if c["op"] == "aten::native_layer_norm_backward")
    assert forward["module_path"] == backward["module_path"] == "norm"
    assert forward["stack"] == backward["stack"] != 0
    files = [frame[0] for frame in json.loads(forward["frames"])]
    assert __file__ in files and not any("nn/modules/module.py" in f for f in files)
    addmm = {c["module_path"] for c in calls if base(c) == "aten::addmm"}
    assert {"attention.inner", "attention.out", "head"} <= addmm


def test_an_unobserved_write_is_noticed(tmp_path):
    x = torch.zeros(16)

    def body():
        x.add(1)
        x.numpy()[3] = 5
        x.add(1)

    calls, _ = recorded(tmp_path / "t", body)
    assert [kind for _, kind, _ in notes(tmp_path / "t")] == ["unobserved-write"]
    first, second = (c["tensors"][0] for c in calls if base(c) == "aten::add")
    assert first["generation"] < second["generation"]


def test_other_threads_are_recorded(tmp_path):
    def body():
        torch.ones(3).exp()
        worker = threading.Thread(target=lambda: torch.ones(3).sin())
        worker.start()
        worker.join()

    calls, _ = recorded(tmp_path / "t", body)
    thread = {base(c): c["thread"] for c in calls}
    assert thread["aten::sin"] != thread["aten::exp"]


def test_custom_operators_before_and_after_the_start(tmp_path):
    @torch.library.custom_op("usctest::early", mutates_args=())
    def early(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def body():
        @torch.library.custom_op("usctest::late", mutates_args=("x",))
        def late(x: torch.Tensor) -> None:
            x.mul_(3)

        x = torch.ones(2)
        early(x)
        late(x)

    calls, _ = recorded(tmp_path / "t", body)
    assert [n for n in names(calls) if n.startswith("usctest")] == ["usctest::early", "usctest::late"]
    assert "mutated" in {t["role"] for t in calls[-1]["tensors"]}


@torch.library.custom_op("usctest::say", mutates_args=())
def say(x: torch.Tensor, text: str) -> torch.Tensor:
    return x + 1


@ulpscope.operator
def told(x, **options):
    return x + 1


@pytest.mark.parametrize("text", ["", 'a"\\\n\x7f', "zwölf 🂡", "a\0b"])
def test_a_text_leaves_a_trace_that_is_read(tmp_path, text):
    def body():
        say(torch.ones(2), text)
        told(torch.ones(2), said=text, **{"a.b": 1, "c.d": torch.ones(2), "e": 2})

    calls, _ = recorded(tmp_path / "t", body)
    made = {c["op"]: _core.arguments(c["args"]) for c in calls}
    kept = ("other", "str") if "\0" in text else text
    (_, said), _ = made["usctest::say"] if "usctest::say" in made else made["usctest::say.default"]
    options = next(options for op, (_, options) in made.items() if "told" in op)
    assert [(v.kind, v.text) if isinstance(v, _core.Value) else v for v in (said, options["said"])] == [kept, kept]
    assert options["e"] == 2 and [v.kind for v in options.values() if isinstance(v, _core.Value)][-2:] == ["other"] * 2
    run = subprocess.run(
        ["ulpscope", "check", tmp_path / "t", "--device", "cpu", "--ops", "add", "-o", tmp_path / "o"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def test_debug_mode_finds_a_schema_that_lies(tmp_path, monkeypatch):
    library = torch.library.Library("usclie", "FRAGMENT")
    library.define("sneak(Tensor x) -> Tensor")
    library.impl("sneak", lambda x: x.add_(1).clone(), "CPU")
    monkeypatch.setenv("ULPSCOPE_CAPTURE_DEBUG", "1")
    x, norm = torch.ones(3), torch.nn.BatchNorm1d(3)

    def body():
        torch.ops.usclie.sneak(x)
        norm(torch.randn(4, 3))  # in the table: not a finding

    recorded(tmp_path / "t", body)
    lies = [text for _, kind, text in notes(tmp_path / "t") if kind == "schema-lie"]
    assert len(lies) == 1 and "usclie::sneak" in lies[0]


def test_ops_pattern_selects_and_brings_what_is_below(tmp_path):
    layer = torch.nn.Linear(4, 4)
    calls, _ = recorded(tmp_path / "t", lambda: layer(torch.randn(2, 4)).exp().sin(), ops="linear,sin")
    assert set(names(calls)) == {"aten::linear", "aten::t", "aten::addmm", "aten::sin"} or {
        "aten::linear",
        "aten::addmm",
        "aten::sin",
    } <= set(names(calls))
    assert "aten::exp" not in names(calls) and "aten::randn" not in names(calls)


def test_meta_and_fake_tensors_are_left_out(tmp_path):
    def body():
        torch.empty(3, device="meta").exp()
        torch.ones(2).exp()

    calls, _ = recorded(tmp_path / "t", body)
    assert names(calls).count("aten::exp") == 1


def test_a_raising_call_is_marked(tmp_path):
    def body():
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))

    calls, _ = recorded(tmp_path / "t", body)
    assert calls[-1]["status"] == "raised"


def test_steps_in_python(tmp_path):
    training = Training()
    with ulpscope.capture(tmp_path / "t", steps=[1]) as c:
        for _ in range(3):
            training()
    assert {call["step"] for call in read(tmp_path / "t")} == {1}
    with ulpscope.capture(tmp_path / "u", steps="0,2") as c:
        for i in range(3):
            torch.full((1,), i)
            c.step()
    assert [call["step"] for call in read(tmp_path / "u")] == [0, 2]


def test_consecutive_steps_are_recorded_without_a_new_start(tmp_path, monkeypatch):
    """To put the kernels in costs more than a small step: it is done once per run of steps."""
    starts = []
    begin = hooks.Libraries.__init__
    monkeypatch.setattr(hooks.Libraries, "__init__", lambda self, *args: (starts.append(1), begin(self, *args))[1])
    training, alone = Training(), Net()
    outer = torch.nn.Sequential(alone)
    with ulpscope.capture(tmp_path / "t", steps="0,1,2,4"):
        for i in range(6):
            (outer if i == 2 else alone)(torch.ones(1, 2, 8))
            training()
    calls = read(tmp_path / "t")
    assert len(starts) == 2
    per_step = [[c["op"] for c in calls if c["step"] == step] for step in range(6)]
    assert per_step[3] == per_step[5] == [] and per_step[1] == per_step[2] == per_step[4]
    # What was a model becomes part of another: modules are met anew in each step.
    paths = [{c["module_path"] for c in calls if c["step"] == step} for step in (1, 2)]
    assert "0.head" in paths[1] and "0.head" not in paths[0] and "head" in paths[0]
    # A backward call's forward is of its own step.
    forward = [
        (c["step"], json.loads(c["state"])["forward"])
        for c in calls
        if c["phase"] == "backward" and c["state"] and "forward" in c["state"]
    ]
    steps = {c["sequence"]: c["step"] for c in calls}
    assert forward and all(steps[sequence] == step for step, sequence in forward)


def test_an_existing_folder_is_refused(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        ulpscope.capture(tmp_path / "t")


@pytest.mark.parametrize("text, steps", [("1", [1]), ("2,5-8", [2, 5, 6, 7, 8]), (3, [3])])
def test_steps_are_parsed(text, steps):
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2"])
def test_bad_steps_are_refused(text):
    with pytest.raises(ValueError):
        parse_steps(text)


# ---- unmodified commands -----------------------------------------------------------

SCRIPT = """
import os, torch
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 8))
loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers={workers})
if {ranks}:
    torch.distributed.init_process_group("gloo")
net = torch.nn.Linear(8, 1)
if {ranks}:
    net = torch.nn.parallel.DistributedDataParallel(net)
if {optimizer}:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if __name__ == "__main__":
    for n, (x,) in enumerate(loader):
        loss = net(x).square().mean()
        loss.backward()
        if {optimizer}:
            optimizer.step(); optimizer.zero_grad()
        print("step", n, flush=True)
        if n == 3:
            {last}
"""


def script(tmp_path, workers=0, ranks=False, optimizer=True, last="pass"):
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(SCRIPT).format(workers=workers, ranks=ranks, optimizer=optimizer, last=last))
    return str(path)


def launch(tmp_path, *command, options=()):
    env = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run(
        ["ulpscope", "capture", "-o", str(tmp_path / "t"), *options, "--", *command],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        timeout=120,
    )


def test_an_unmodified_script_stops_after_its_second_step(tmp_path):
    done = launch(tmp_path, "sh", "-c", f"exec {sys.executable} {script(tmp_path, workers=2)}")
    assert done.returncode == 0, done.stderr
    assert "captured step 1: " in done.stderr and "run ended" in done.stderr
    assert done.stdout == "step 0\n"
    assert {c["step"] for c in read(tmp_path / "t")} == {1}
    assert {c["phase"] for c in read(tmp_path / "t")} == {"forward", "backward", "optimizer"}


def test_keep_going_and_the_loader_as_counter(tmp_path):
    done = launch(
        tmp_path, sys.executable, script(tmp_path, optimizer=False), options=["--keep-going", "--steps", "0,2"]
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step") == 8
    assert {c["step"] for c in read(tmp_path / "t")} == {0, 2}


def test_two_ranks_record_their_own_traces_and_stop_together(tmp_path):
    done = launch(
        tmp_path,
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        script(tmp_path, ranks=True),
    )
    assert done.returncode == 0, done.stderr
    assert "on 2 ranks" in done.stderr
    for rank in (0, 1):
        calls = read(tmp_path / "t" / f"rank-{rank}")
        reduced = next(c for c in calls if c["op"].startswith("c10d::allreduce_"))
        assert reduced["status"] == "ok"
        assert "mutated" in {t["role"] for t in reduced["tensors"]}


def test_of_several_programs_the_first_that_reaches_the_step_is_recorded(tmp_path):
    """What comes before may end short of the step; what comes behind does not run."""
    short = str(Path(script(tmp_path)).with_name("short.py"))
    Path(short).write_text(Path(script(tmp_path)).read_text().replace("torch.randn(64", "torch.randn(8"))
    whole, last = script(tmp_path), f"{sys.executable} {script(tmp_path)}"
    done = launch(tmp_path, "sh", "-c", f"{sys.executable} {short}; {sys.executable} {whole}; {last}")
    assert done.returncode == 0 and "captured step 1: " in done.stderr, done.stderr
    assert done.stdout == "step 0\n" * 2
    assert {c["step"] for c in read(tmp_path / "t")} == {1}
    shutil.rmtree(tmp_path / "t")
    done = launch(tmp_path, "sh", "-c", f"{sys.executable} {whole}; {last}", options=["--keep-going"])
    assert done.returncode == 0 and "captured step 1: " in done.stderr, done.stderr
    assert done.stdout.count("step") == 16


@pytest.mark.parametrize("what, words", [("manual", "ulpscope.step()"), ("optimizer", "optimizer")])
def test_a_run_without_steps_says_what_was_waited_for(tmp_path, what, words):
    done = launch(tmp_path, sys.executable, script(tmp_path, optimizer=False), options=["--step-by", what])
    assert done.returncode == 2 and words in done.stderr and "data loader" not in done.stderr


def test_a_failing_command_and_a_step_never_reached(tmp_path):
    failing = launch(tmp_path, sys.executable, "-c", "import torch, sys; sys.exit(5)")
    assert failing.returncode == 2 and "failed with exit code 5" in failing.stderr
    early = launch(tmp_path, sys.executable, script(tmp_path), options=["--steps", "50"])
    assert early.returncode == 2 and "ended after 8 steps, before step 50" in early.stderr
    absent = launch(tmp_path, "no-such-command-here")
    assert absent.returncode == 2 and "command not found" in absent.stderr
    assert not (tmp_path / "t").exists()
