# SPDX-License-Identifier: Apache-2.0
"""The defects of msprobe that docs/how-to/migrate-msprobe.md numbers, one row each: what must pass
passes, and what its defect would let go, or would accuse, is judged rightly. Where msprobe's own
rule is among our standards, the row shows the defect there first."""

import contextlib
import functools
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import ranks
import torch
import torch.nn.functional as F
from calls import make_call
from msprobe_rows import FLAGGED, ROOT, ROWS, holds, put, row, truncated

import ulpscope
import ulpscope.sim as sim
from ulpscope import _core
from ulpscope.executors.device import DeviceDied, PythonDevice, TorchDevice
from ulpscope.session import collectives
from ulpscope.session.judging import judge_call
from ulpscope.calls.ranks import Ranks
from ulpscope.calls.standin import stand_in


# ---- replays: what is computed with ------------------------------------------------------


def statistics(folder, step):
    """The calls of a step that was captured with statistics alone, as rows of its trace."""
    with ulpscope.capture(folder, data="stats"):
        step()
    trace = _core.Trace(str(folder))
    return [trace.call(n) for n in trace.select()]


def drawn(rows, op, argument=0):
    """The stand-in of an argument of the first such call."""
    call = next(r for r in rows if r["op"].startswith("aten::" + op))
    tensor = next(t for t in call["tensors"] if t["role"] == "in" and t["path"] == f"args[{argument}]")
    return stand_in("trace", call["sequence"], tensor, call)


@row(11)
def one_nan_stays_one(tmp_path):
    x = put(torch.randn(1000), float("nan"))
    values = drawn(statistics(tmp_path / "t", lambda: torch.tanh(x)), "tanh")
    assert int(values.isnan().sum()) == 1 and values.nan_to_num().abs().max() < 6
    call, bad = make_call("aten::tanh", values), PythonDevice(lambda op, args, kwargs: args[0].tanh() * 1.001)
    assert judge_call(call, TorchDevice("sim:0")).verdict == "pass"
    assert judge_call(call, bad).verdict in FLAGGED


@row(12)
def a_mask_stays_a_mask(tmp_path):
    mask = torch.zeros(16, 16).masked_fill(torch.ones(16, 16, dtype=torch.bool).triu(1), -float("inf"))
    values = drawn(statistics(tmp_path / "t", lambda: mask + 0), "add")
    assert torch.equal(values, mask)
    scores = torch.randn(16, 16)
    rows = torch.softmax(scores + values, -1)
    holds(lambda s: torch.softmax(s + values, -1), (scores,), rows, put(rows, 0.1, 5))


@row(13)
def structure_stays(tmp_path):
    lengths = torch.tensor([0, 7, 19, 20, 64])
    weights = torch.softmax(torch.randn(8, 50), -1)
    table, tokens = torch.randn(30, 4), torch.randint(0, 30, (40,))
    logits, target = torch.randn(40, 9), torch.randint(0, 9, (40,))
    target[::5] = -100

    def step():
        torch.diff(lengths), weights @ weights.T, F.embedding(tokens, table)
        F.cross_entropy(logits, target)

    rows = statistics(tmp_path / "t", step)
    sorted_ = drawn(rows, "diff")
    assert bool((sorted_.diff() >= 0).all()) and (int(sorted_[0]), int(sorted_[-1])) == (0, 64)
    assert torch.allclose(drawn(rows, "mm").sum(-1), torch.ones(8), atol=1e-3)
    assert 0 <= int(drawn(rows, "embedding", 1).min()) <= int(drawn(rows, "embedding", 1).max()) < 30
    labels = drawn(rows, "nll_loss", 1)
    assert int((labels == -100).sum()) == 8 and bool(((labels == -100) | (labels >= 0) & (labels < 9)).all())


@row(14)
def what_is_drawn_hangs_on_no_order(tmp_path):
    a, b = torch.randn(50), torch.randn(50)
    one = statistics(tmp_path / "a", lambda: (a.sin(), b.cos()))
    two = statistics(tmp_path / "b", lambda: (b.cos(), a.exp(), a.sin()))
    torch.manual_seed(99)
    assert torch.equal(drawn(one, "sin"), drawn(two, "sin")) and torch.equal(drawn(one, "cos"), drawn(two, "cos"))
    assert torch.equal(drawn(one, "sin"), drawn(two, "exp"))  # equal tensors stay equal
    assert not torch.equal(drawn(one, "sin"), drawn(one, "cos"))


@row(15)
def no_dtype_is_held_to_its_own_roundings(_):
    """Mixed dtypes, and float32, have a wider reference."""
    x, w = torch.randn(64, 64).bfloat16(), torch.randn(64, 64)
    holds(torch.mul, (x, w), x * w, (x * w).bfloat16().float())
    coarse = torch.mm(truncated(w).float(), truncated(w).float())
    holds(torch.mm, (w, w), w @ w, coarse)
    image, kernel = torch.randn(2, 3, 12, 12), torch.randn(4, 3, 3, 3)
    narrow = F.conv2d(*(t.view(torch.int32).bitwise_and(-(1 << 12)).view(torch.float32) for t in (image, kernel)))
    holds(F.conv2d, (image, kernel), F.conv2d(image, kernel), narrow)


@row(16)
def what_the_cpu_has_not_is_judged(_):
    x, tokens = torch.randn(30, 8), torch.randint(0, 30, (64,), dtype=torch.int32)
    holds(F.embedding, (tokens, x), F.embedding(tokens, x), F.embedding(tokens, x).flip(0))
    for dtype in (torch.float16, torch.bfloat16):
        a = torch.randn(6, 6).to(dtype) + 4 * torch.eye(6, dtype=dtype)
        right = torch.linalg.inv(a.double()).to(dtype)
        holds(torch.linalg.inv, (a,), right, put(right, 2.0))


@row(17)
def states_of_failure_are_told_apart(_):
    call = make_call("aten::tanh", torch.randn(8, 8))

    def raising(error):
        def device(op, args, kwargs):
            raise error

        return judge_call(call, PythonDevice(device))

    assert judge_call(call, PythonDevice(lambda op, args, kwargs: op(*args))).verdict == "pass"
    for error in (NotImplementedError("no tanh"), RuntimeError("kernel 7 refuses")):
        said = raising(error)
        assert said.verdict == "unsupported" and str(error) in said.reason
    with pytest.raises(DeviceDied):  # the worker makes `crashed` of it
        raising(RuntimeError("illegal memory access"))
    said = judge_call(make_call("aten::linalg_cholesky", -torch.eye(4)), PythonDevice(lambda op, args, kwargs: args[0]))
    assert said.verdict == "undefined" and said.reason.startswith("the CPU rejects this call")


# ---- replays: what is compared -------------------------------------------------------------


@row(18)
def dropout_is_held_to_its_law(_):
    for n in (60, 10_000):
        x = torch.randn(n) + 5
        right = F.dropout(x, 0.3)
        kept = right != 0
        holds(
            lambda x: F.dropout(x, 0.3),
            (x,),
            right,
            torch.where(kept, x, 0),
            right * 1.01,
            put(right, 3.0, int(kept.nonzero()[0])),
        )
    holds(lambda x: F.dropout(x, 0.3), (x,), right, F.dropout(x, 0.33))


@row(19)
def every_output_is_compared(_):
    x = torch.randn(32, 64)
    norm = torch.ops.aten.native_layer_norm
    out, mean, rstd = norm(x, [64], None, None, 1e-5)
    holds(norm, (x, [64], None, None, 1e-5), (out, mean, rstd), (out, mean, rstd * 1.001), (out, mean + 1e-3, rstd))
    q = torch.randn(1, 2, 16, 8)
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = attend(q, q, q)
    holds(attend, (q, q, q), (out, lse), (out, lse + 1e-3))


@row(20)
def topk_in_any_order(_):
    x = torch.randn(8, 100)
    values, indices = torch.topk(x, 10)
    order = torch.randperm(10)
    other = indices.clone()
    other[0, 0] = (other[0, 0] + 1) % 100
    holds(
        lambda x: torch.topk(x, 10, sorted=False),
        (x,),
        (values[:, order], indices[:, order]),
        (values, other),
        (values[:, order], indices),
    )


# ---- replays: backward ---------------------------------------------------------------------


def program(*words, **options):
    """The program on these words, with its exit code and what it said."""
    return subprocess.run(["ulpscope", *map(str, words)], capture_output=True, text=True, timeout=240, **options)


def gradients_of(weight, x):
    """A backward pass of functions that msprobe leaves out, or of which it leaves out a part."""
    first, second = torch.split(x, [3, 5])
    F.linear(input=x.detach(), weight=weight).sum().backward()
    y = torch.matmul(x.detach().reshape(2, 4, 6), weight.T)
    (y.square().sum() + first.exp().sum() + second.sin().sum()).backward()
    (torch.repeat_interleave(x, 2, 0).cos().sum() + torch.masked_select(x, x > 0).tanh().sum()).backward()


@functools.cache
def checked_backward(faulty):
    """Function -> verdicts on its backward passes, and the check's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(1)
        with ulpscope.capture(f"{folder}/t", level="api,aten"):
            gradients_of(torch.randn(5, 6, requires_grad=True), torch.randn(8, 6, requires_grad=True))
        trace = _core.Trace(f"{folder}/t")
        rows = [trace.call(n) for n in trace.select()]
        below = {r["op"].split(".")[0] for r in rows if r["phase"] == "backward" and "::" in r["op"]}
        faults = ["--faults", ";".join(f"{op}:scale" for op in sorted(below))] if faulty else []
        done = program(
            "check",
            f"{folder}/t",
            "--device",
            "sim:0",
            "--level",
            "api",
            "--phase",
            "backward",
            "--causes",
            "off",
            "-o",
            f"{folder}/o",
            "-j",
            "1",
            *faults,
        )
        assert done.returncode in (0, 1), done.stderr
        found = {}
        for call in json.loads(Path(f"{folder}/o/result.json").read_text())["calls"]:
            found.setdefault(call["op"].rsplit(".", 1)[1], set()).add(call["verdict"])
        return found, done.returncode


def gradients_are_judged(name):
    (honest, passed), (faulty, failed) = checked_backward(False), checked_backward(True)
    assert (passed, failed) == (0, 1)
    assert honest[name] == {"pass"} and faulty[name] <= FLAGGED, (honest, faulty)


@row(21)
def several_gradients_come_in(_):
    gradients_are_judged("split")


@row(22)
def gradients_of_keyword_tensors(_):
    gradients_are_judged("linear")


@row(23)
def functions_without_a_backward_pass_there(_):
    gradients_are_judged("masked_select")
    gradients_are_judged("repeat_interleave")


@row(24)
def the_weight_of_a_wide_product(_):
    gradients_are_judged("matmul")


@row(25)
def overflows_of_the_backward_pass(tmp_path):
    def step(folder):
        x = torch.randn(8, 8, device="sim:0", requires_grad=True)
        with ulpscope.capture(folder):
            (torch.sigmoid(x) > 0.5).any(), torch.sigmoid(x).sum().backward()
        done = program("overflow", folder, "--json")
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert not [r for r in step(tmp_path / "a") if r["kind"] == "born"]
    with sim.fault("aten::sigmoid_backward", "inf"):
        born = [r for r in step(tmp_path / "b") if r["kind"] == "born"]
    assert [r["op"] for r in born] == ["aten::sigmoid_backward"]


# ---- capture -------------------------------------------------------------------------------


def captured(folder, step, **options):
    with ulpscope.capture(folder, level="api,aten", **options):
        step()
    trace = _core.Trace(str(folder))
    return [trace.call(n) for n in trace.select()]


@row(26)
def numbers_and_streams_are_not_touched(tmp_path):
    def step():
        torch.manual_seed(2)
        net = torch.nn.Sequential(torch.nn.Linear(9, 7), torch.nn.Dropout(), torch.nn.ReLU(True), torch.nn.Linear(7, 3))
        for _ in range(2):  # gradients are added up
            net(torch.randn(20, 9)).square().sum().backward()
        return [p.grad for p in net.parameters()] + [torch.get_rng_state()]

    plain, watched = step(), []
    assert captured(tmp_path / "t", lambda: watched.extend(step()))
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


relu, gelu = torch.relu, F.gelu


@row(27)
def names_imported_before_are_seen_and_stay_what_they_are(tmp_path):
    same = []
    rows = captured(
        tmp_path / "t",
        lambda: (relu(torch.ones(3)), gelu(torch.ones(3)), same.append(F.gelu is gelu and torch.relu is relu)),
    )
    assert {"torch.relu", "torch.nn.functional.gelu"} <= {r["op"] for r in rows} and same == [True]


@row(28)
def modules_with_hooks_and_in_place_activations(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(inplace=True))
    called = []
    net[0].register_backward_hook(lambda module, into, out: called.append(1))  # the deprecated kind
    rows = captured(tmp_path / "t", lambda: net(torch.randn(5, 6)).sum().backward())
    found = {(r["op"].split(".")[0], r["phase"], r["module_path"]) for r in rows}
    assert (
        called
        and {
            ("aten::addmm", "forward", "0"),
            ("aten::relu_", "forward", "1"),
            ("aten::threshold_backward", "backward", "1"),
            ("aten::mm", "backward", "0"),
        }
        <= found
    ), found


KILLED = """
import os, signal, sys, torch, ulpscope
with ulpscope.capture(sys.argv[1]) as capture:
    torch.ones(50).cos()
    capture.recorder.session.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@row(29)
def what_a_killed_program_did_is_kept(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "t"], timeout=120)
    assert done.returncode == -9
    trace = _core.Trace(str(tmp_path / "t"))
    assert "aten::cos" in {trace.call(n)["op"] for n in trace.select()}
    dump = ROOT / "tests/golden/msprobe/statistics/step0/rank0/dump.json"
    (tmp_path / "dump.json").write_text(dump.read_text()[:-400])  # as msprobe's is cut off
    said = program("import", tmp_path / "dump.json", "-o", tmp_path / "cut")
    assert said.returncode == 2 and "cut off" in said.stderr and not (tmp_path / "cut").exists(), said.stderr


@row(30)
def any_path_and_nothing_is_overwritten(tmp_path):
    folder = tmp_path / "a b;$'ü*"
    assert captured(folder, lambda: torch.ones(3).cos())
    before = (folder / "trace.db").read_bytes()
    with pytest.raises(Exception, match="not empty"):
        captured(folder, lambda: torch.ones(3).sin())
    assert (folder / "trace.db").read_bytes() == before
    assert "aten::cos" in program("show", folder).stdout


@torch.library.custom_op("msprobe_defects::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@row(31)
def nothing_has_to_be_on_a_list(tmp_path):
    x = torch.randn(4, 4)
    rows = captured(tmp_path / "t", lambda: (F.linear(x, x), torch.chain_matmul(x, x), x.view(2, 8), twice(x)))
    assert {"torch.nn.functional.linear", "aten::chain_matmul", "torch.Tensor.view", "msprobe_defects::twice"} <= {
        r["op"] for r in rows
    }, {r["op"] for r in rows}
    only = captured(tmp_path / "u", lambda: (x.cos(), x.sin()), ops="cos")
    assert {r["op"].split(".")[-1].split("::")[-1] for r in only} == {"cos"}


@row(32)
def statistics_of_every_dtype(tmp_path):
    wide = torch.full((64,), 6e4).half()
    numbers = [torch.randn(64, dtype=torch.float64), torch.arange(-5, 59), wide, wide.float().bfloat16()]
    rows = statistics(tmp_path / "t", lambda: [t.clone() for t in numbers])
    clones = [r for r in rows if r["op"].startswith("aten::clone")]
    for t, call in zip(numbers, clones, strict=True):
        said = json.loads(call["tensors"][0]["stats"])
        assert said["mean"] == pytest.approx(float(t.double().mean()), rel=1e-12, abs=1e-300)
        assert said["l2"] == pytest.approx(float(t.double().norm()), rel=1e-12)
    assert drawn(rows, "clone").norm() != 0


RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
dist.all_reduce(torch.randn(70))
"""


@row(33)
def collectives_are_judged(tmp_path):
    trace = ranks.captured(tmp_path / "r", RANKS, 2, "--steps", "0") / "rank-0"

    def verdict():
        opened = Ranks(trace)
        rows = map(opened.indexes[0].trace.call, opened.indexes[0].trace.select())
        return collectives.judge(opened, next(r for r in rows if r["op"].startswith("c10d::allreduce")))[1].verdict

    assert verdict() == "pass"
    with contextlib.closing(sqlite3.connect(trace / "trace.db")) as base, base:
        base.execute(
            "UPDATE arg SET tensor = (SELECT tensor FROM arg AS other WHERE other.call = arg.call AND "
            "other.role = 'in' LIMIT 1) WHERE role = 'mutated'"
        )  # what this rank gave, unsummed
    assert verdict() == "wrong"


@pytest.mark.parametrize("number", sorted(ROWS))
def test_defect_is_absent(number, tmp_path):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    ROWS[number](tmp_path)


@pytest.mark.parametrize("page", ["docs/how-to/migrate-msprobe.md", "docs/how-to/migrate-msprobe.zh.md"])
def test_every_number_of_the_page_has_a_row(page):
    named = [int(n) for n in re.findall(r"^\| (\d+) \|", (ROOT / page).read_text(), re.M)]
    assert named == sorted(ROWS) == list(range(1, len(ROWS) + 1))
