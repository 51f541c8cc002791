# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz`: cases of a seed are the same each time, calls that are drawn can be run, what
is planted is found and named, and a wrong run costs nothing but a sentence."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from traces import TraceWriter, small_trace

import ulpscope
from ulpscope import _core
from ulpscope.calls.replay import BadCall, bind_exact
from ulpscope.executors.device import PythonDevice
from ulpscope.session.judging import judge_call
from ulpscope.fuzzer import drawn_cases, opdb


def example(tmp_path, op, *args, stats=None, **kwargs):
    """The example that a call is."""
    tmp_path.mkdir(exist_ok=True)
    with TraceWriter(tmp_path / "trace") as t:
        t.add(op, *args, **kwargs)
    row = _core.Trace(str(tmp_path / "trace")).call(1)
    for tensor in row["tensors"]:
        tensor["stats"] = stats
    return drawn_cases.Example(row, "id")


def contents(call):
    """All that a call is: forms and bytes."""
    forms = [(p, str(v.dtype), v.sizes, v.strides, v.offset, v.storage) for p, v in call.views.items()]
    return forms, call.args, {k: bytes(call.storages[k].numpy()) for k in {v.storage for v in call.views.values()}}


def test_a_case_is_the_same_each_time(tmp_path):
    given = torch.randn(4, 6), torch.randn(6, 5)
    one = example(tmp_path / "a", "aten::mm", *given)
    other = example(tmp_path / "b", "aten::mm", *(torch.zeros_like(t) for t in given))
    seen = set()
    for case in range(40):
        first, words = drawn_cases.drawn(one, 3, case)
        again, same = drawn_cases.drawn(other, 3, case)  # what the example held is not asked
        assert contents(first) == contents(again) and words == same
        seen.add(str(contents(first)))
        a, b = first.views.values()
        assert a.sizes[1] == b.sizes[0]
    assert len(seen) == 40
    assert contents(drawn_cases.drawn(one, 4, 0)[0]) != contents(drawn_cases.drawn(one, 3, 0)[0])


def test_kernels_that_read_beside_gaps_get_none(tmp_path):
    spread = {True: 0, False: 0}
    for op in ("aten::median.dim", "aten::cummax"):
        one = example(tmp_path / op[6:], op, torch.randn(6, 5), 0)
        for case in range(40):
            views = drawn_cases.drawn(one, 3, case)[0].views.values()
            spread[op == "aten::median.dim"] += sum(not v.is_contiguous() for v in views)
    assert spread[True] == 0 < spread[False]


def test_results_are_not_large(tmp_path):
    one, sizes = example(tmp_path, "aten::kron", torch.randn(9, 8), torch.randn(8, 7)), set()
    for case in range(60):
        call = drawn_cases.drawn(one, 5, case)[0]
        sizes.add(tuple(call.views["args[0]"].sizes))
        assert bind_exact(call, lambda captured: "cpu").run(call.function).numel() <= drawn_cases.MOST_RESULTS
    first = [next(one.attempts(5, case))[0].views.values() for case in range(60)]
    assert (
        len(sizes) > 10
        and max(math.prod(n for v in views for n in v.sizes) for views in first) > drawn_cases.MOST_RESULTS
    )


SHAPED = {
    "view": ("aten::view", lambda: (torch.randn(4, 6), [6, 4])),
    "expand": ("aten::expand", lambda: (torch.randn(1, 6), [5, 6])),
    "embedding": ("aten::embedding", lambda: (torch.randn(9, 4), torch.tensor([1, 8, 3]))),
    "gather": ("aten::gather", lambda: (torch.randn(5, 7), 1, torch.zeros(5, 3, dtype=torch.int64))),
    "pool": ("aten::avg_pool2d", lambda: (torch.randn(2, 3, 8, 8), [2, 2])),
    "cholesky": ("aten::linalg_cholesky", lambda: (torch.eye(6),)),
    "mask": ("aten::where.self", lambda: (torch.ones(3, 4, dtype=torch.bool), torch.randn(3, 4), torch.randn(4))),
    "complex": ("aten::mul.Tensor", lambda: (torch.randn(3, 4, dtype=torch.complex64), torch.randn(3, 4))),
    "in place": ("aten::add_.Tensor", lambda: (torch.randn(3, 4), torch.randn(4))),
    "no tensor": ("aten::arange", lambda: (7,)),
}


@pytest.mark.parametrize("name", SHAPED)
def test_what_is_drawn_runs(tmp_path, name):
    op, given = SHAPED[name]
    source = example(tmp_path, op, *given())
    first = refused = changed = 0
    for case in range(60):
        call, words = drawn_cases.drawn(source, 1, case)
        changed += "sizes" in words
        bind_exact(call, lambda captured: "cpu").run(call.function)
        try:
            tried = next(source.attempts(1, case))[0]
            bind_exact(tried, lambda captured: "cpu").run(tried.function)
            first += 1
        except Exception:  # the CPU refuses a draw in as many ways as there are operators
            refused += 1
    assert changed > 10 or name == "no tensor"
    assert first > 20, f"{refused} of 60 first draws are refused"


def test_what_nothing_satisfies_is_said(tmp_path):
    source = example(tmp_path, "aten::mm", torch.randn(4, 6), torch.randn(7, 5))
    with pytest.raises(BadCall, match="the CPU takes none of 5 draws: .*mat1 and mat2"):
        drawn_cases.drawn(source, 0, 0)
    with pytest.raises(BadCall, match="no plain tensor"):
        drawn_cases.Example({**source.row, "tensors": [{**source.row["tensors"][0], "form": "sparse_csr"}]})


def test_indices_of_a_forward_stay(tmp_path):
    x = torch.randn(1, 2, 8, 8)
    out, at = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    given = torch.randn_like(out), x, [2, 2], [2, 2], [0, 0], [1, 1], False, at
    source = example(tmp_path, "aten::max_pool2d_with_indices_backward", *given)
    for case in range(20):
        assert [v.sizes for v in drawn_cases.drawn(source, 0, case)[0].views.values()] == [
            (1, 2, 4, 4),
            (1, 2, 8, 8),
            (1, 2, 4, 4),
        ]


X53 = torch.arange(15.0).reshape(5, 3)
TRUSTED = {
    "_pdist_backward": (torch.randn(10), X53, 2.0, torch.pdist(X53)),
    "_reshape_alias": (X53, [3, 5], [1, 3]),  # of other sizes it would read beyond the tensor
}


@pytest.mark.parametrize("op", TRUSTED)
def test_what_a_kernel_trusts_is_kept(tmp_path, op):
    given = TRUSTED[op]
    source = example(tmp_path, f"aten::{op}", *given)
    for case in range(20):
        sizes = [v.sizes for v in drawn_cases.drawn(source, 0, case)[0].views.values()]
        assert sizes == [tuple(t.shape) for t in given if isinstance(t, torch.Tensor)]


def test_a_workspace_is_not_drawn(tmp_path):
    """What oneDNN's LSTM leaves for its backward: of other bytes it gives NaN, or dies."""
    x = torch.randn(3, 2, 4)
    w, u, b, h = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16), torch.randn(2, 4)
    with ulpscope.capture(tmp_path / "trace"):
        out = torch.ops.aten.mkldnn_rnn_layer(x, w, u, b, b, h, h, False, [], 2, 4, 1, True, False, False, True)
        given = x, w, u, b, b, h, h, *out[:3], *out[:3], False, 2, 4, 1, True, True, False, [], False, out[3]
        torch.ops.aten.mkldnn_rnn_layer_backward(*given)
    forward, backward = (_core.Trace(str(tmp_path / "trace")).call(i) for i in (1, 2))
    assert drawn_cases.Example(forward) and backward["op"] == "aten::mkldnn_rnn_layer_backward"
    with pytest.raises(BadCall, match="a workspace that its forward fills"):
        drawn_cases.Example(backward)


def test_what_reads_beside_other_layouts_keeps_its_own(tmp_path):
    """torch's attention of the CPU takes its last axis for dense: a device would be held to what it read beside."""
    q, k, v = (torch.randn(2, 2, n, 8) for n in (3, 6, 6))
    source = example(tmp_path, "aten::_scaled_dot_product_flash_attention_for_cpu", q, k, v)
    for case in range(20):
        assert all(v.is_contiguous() for v in drawn_cases.drawn(source, 0, case)[0].views.values())


def test_a_wrong_kernel_is_caught_where_only_a_layout_shows_it(tmp_path):
    """What reads a strided tensor as if it were contiguous is right on the example."""

    def kernel(op, args, kwargs):
        x = args[0]
        rows = torch.empty(x.shape, device="meta").stride()
        return torch.exp(x if not x.numel() or 0 in x.stride() else x.as_strided(x.shape, rows, x.storage_offset()))

    source, device, verdicts = example(tmp_path, "aten::exp", torch.randn(4, 6)), PythonDevice(kernel), []
    for case in range(40):
        call, _ = drawn_cases.drawn(source, 0, case)
        contiguous = call.views["args[0]"].is_contiguous()
        verdict = judge_call(call, device, seconds=0).verdict
        assert verdict in ("pass", "unjudged") or not contiguous
        verdicts.append(verdict)
    assert {"wrong", "nonfinite"} & set(verdicts)


# ---- the command -----------------------------------------------------------------------


def topk_of_16(op, args, kwargs):
    """What stands behind the 16th is zero, as an MPS kernel had it (pytorch/pytorch#78915)."""
    values, places = op(*args, **kwargs)
    if values.dim() and values.shape[-1] > 16:
        for t in (values, places):
            t[..., 16:] = 0
    return values, places


def test_counts_that_no_size_follows_are_drawn_too(tmp_path):
    """topk's k is 3 in the example: a kernel that is wrong from 17 on is caught, the CPU's own is not."""
    one = example(tmp_path, "aten::topk", torch.randn(4, 40), 3)
    verdicts, said = {topk_of_16: [], None: []}, set()
    for case in range(60):
        call, words = drawn_cases.drawn(one, 1, case)
        assert call.args[1] == 3 or f"k 3 -> {call.args[1]}" in words
        said.add(call.args[1])
        for kernel, found in verdicts.items():
            device = PythonDevice(kernel or (lambda op, args, kwargs: op(*args, **kwargs)))
            found.append(judge_call(call, device, seconds=0, repeat=1).verdict)
    assert "wrong" in verdicts[topk_of_16] and set(verdicts[None]) <= {"pass", "unjudged"}
    assert max(said) > 16


def test_sizes_and_modes_are_no_counts(tmp_path):
    x = torch.randn(2, 6, 4)
    group = example(tmp_path / "a", "aten::native_group_norm", x, torch.ones(6), torch.zeros(6), 2, 6, 4, 3, 1e-5)
    loss = example(tmp_path / "b", "aten::nll_loss_forward", x[0], torch.tensor([1, 0, 2, 1, 0, 3]), None, 2, -100)
    assert group.counts == [] and [name for _, name in loss.counts] == ["ignore_index"]


def run(*words, code=0, folder=None):
    done = subprocess.run(
        ["ulpscope", "fuzz", *map(str, words)], capture_output=True, text=True, timeout=300, cwd=folder
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def rows(out):
    result = json.loads((out / "result.json").read_text())
    return {r["call"]: (r["op"], r["verdict"], r["args"]) for r in result["calls"]}


def bits(out):
    result = json.loads((out / "result.json").read_text())
    return {r["call"]: r["bits"] for r in result["calls"] if r["bits"] is not None}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return small_trace(tmp_path_factory.mktemp("fuzz") / "trace")


def test_honest_devices_pass_whatever_the_number_of_workers(trace, tmp_path):
    for jobs in (1, 2):
        run("--device", "sim:0", "--trace", trace, "--cases", 60, "-j", jobs, "-o", tmp_path / str(jobs))
    assert rows(tmp_path / "1") == rows(tmp_path / "2")
    # MKL promises the same bits from run to run only in its reproducible mode: a busy machine has shown another
    # kernel's bits for one product of 60.
    assert bits(tmp_path / "1") == pytest.approx(bits(tmp_path / "2"), abs=0.25)
    assert len(rows(tmp_path / "1")) == 60
    done = run("--device", "sim:0", "--trace", trace, "--cases", 80, "-o", tmp_path / "1")  # goes on
    assert "resuming: 60 cases done" in done.stderr and len(rows(tmp_path / "1")) == 80
    done = run("--device", "cpu", "--trace", trace, "--cases", 80, "-o", tmp_path / "1", code=2)
    assert "name another folder with -o, or --force to replace it" in done.stderr


def test_faults_are_found_named_and_replayed(trace, tmp_path):
    planted = "--device", "sim:0", "--faults", "mm:tf32;gelu:crash:nth=2", "--trace", trace
    done = run(*planted, "--cases", 40, "--json", "-j", 1, "-o", "out", code=1, folder=tmp_path)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(f["op"], f["verdict"]) for f in found} == {("aten::mm", "reduced"), ("aten::gelu", "crashed")}
    assert len(found) < sum(f["cases"] for f in found), "alike ones are one"
    crash = next(f for f in found if f["verdict"] == "crashed")
    reduced = next(f for f in found if "TF32" in f["cause"])
    assert len(rows(tmp_path / "out")) == 40, "a crash costs its case alone"
    assert crash["case"] + " crashed aten::gelu" in (tmp_path / "out" / "cases.txt").read_text()
    again = run("replay", reduced["case"], *planted, "--json", code=1, folder=tmp_path)
    assert json.loads(again.stdout)["sentence"] == reduced["sentence"]
    mended = run("replay", "out/cases.txt", *planted[:2], *planted[4:], folder=tmp_path)
    assert "No call is accused" in mended.stdout
    corpus = "--corpus", "out", "--cases", 2, "-j", 1, "-o", "new"
    done = run(*planted[:2], "--faults", "mm:tf32", *planted[4:], *corpus, "--json", code=1, folder=tmp_path)
    assert reduced["case"] in {json.loads(line)["case"] for line in done.stdout.splitlines()}
    assert len(rows(tmp_path / "new-corpus")) == len(found) and len(rows(tmp_path / "new")) == 2
    done = run("--device", "sim:0", "--programs", *corpus, code=2, folder=tmp_path)
    assert (
        "out/cases.txt names cases of 'ulpscope fuzz --trace trace', and this run draws as 'ulpscope fuzz --pro"
        in done.stderr
    )
    assert "leave it out" in run("replay", "out/cases.txt", *planted, *corpus[:2], code=2, folder=tmp_path).stderr
    made = run("minimize", reduced["case"], *planted, "-o", "repro", folder=tmp_path)
    assert "in a process of its own it fails" in made.stderr
    script = (tmp_path / "repro" / "repro.py").read_text()
    assert len(script.splitlines()) <= 25 and script in (tmp_path / "repro" / "report.md").read_text()
    for faults, code in ((planted[3], 1), ("", 0)):
        alone = subprocess.run(
            [sys.executable, "repro/repro.py"], cwd=tmp_path, env=os.environ | {"ULPSCOPE_SIM_FAULTS": faults}
        )
        assert alone.returncode == code


def test_two_on_one_folder_lose_nothing(trace, tmp_path):
    """The second one is refused, with --force too, and the first one's cases are all there."""
    words = "--device", "sim:0", "--trace", trace, "--cases", 60, "-j", 1, "-o", tmp_path / "out"
    first = subprocess.Popen(
        ["ulpscope", "fuzz", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    own = tmp_path / "out" / "result.db"
    while not own.exists() or own.stat().st_size == 0:  # then the folder is its own
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    try:
        for force in ((), ("--force",)):
            done = run(*words, *force, code=2)
            assert "in use by another process; wait until it ends, or name another folder with -o" in done.stderr
    finally:
        first.send_signal(signal.SIGCONT)
    first.communicate(timeout=200)
    assert first.returncode == 0 and len(rows(tmp_path / "out")) == 60


def test_patterns_that_match_nothing_say_so(trace, tmp_path):
    done = run("--device", "sim:0", "--trace", trace, "--ops", "MM", "-o", tmp_path / "out", code=2)
    assert "no operator of" in done.stderr and "did you mean --ops aten::mm?" in done.stderr
    assert not (tmp_path / "out").exists()
    done = run("--device", "sim:0", "--trace", trace, "--ops", "mm,mn", "--cases", "2", "-o", tmp_path / "out", code=2)
    assert done.stdout.splitlines()[-1].endswith("no call matches 'mn'")


def test_what_runs_inside_of_others_only_is_told_with_what_to_ask_for(tmp_path):
    with ulpscope.capture(tmp_path / "trace"):
        torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4))
    done = run("--device", "sim:0", "--trace", tmp_path / "trace", "--ops", "addmm", "-o", tmp_path / "out", code=2)
    assert "inside of aten::linear only" in done.stderr and "--ops aten::linear" in done.stderr


# ---- the operator database -------------------------------------------------------------


def test_the_time_left_is_a_time_and_comes_when_it_is_known(monkeypatch):
    said = []
    monkeypatch.setattr(opdb, "say", said.append)
    for before, i in ((0, 1), (0, 10), (100, 110)):  # before: what an earlier run left
        progress = opdb.Progress(130)
        progress.said = float("inf")
        progress.at(before)
        progress.said, progress.begin = 0, progress.begin - 9.97  # for each second one
        progress.at(i)
    assert said == [
        "1 of 130 operators",
        "10 of 130 operators, about 2:00 left",
        "110 of 130 operators, about 0:20 left",
    ]


def test_the_database_becomes_a_trace(tmp_path, monkeypatch):
    entries = list({e.name: e for e in opdb.operators() if e.name in ("mm", "softmax", "cumsum")}.values())
    monkeypatch.setattr(opdb, "operators", lambda: entries)
    opdb.record(tmp_path / "trace", tmp_path / "whole")
    trace = _core.Trace(str(tmp_path / "trace"))
    ops = [trace.call(s)["op"] for s in trace.select()]
    assert {"aten::mm", "aten::_softmax", "aten::_softmax_backward_data", "aten::cumsum"} <= set(ops)
    monkeypatch.setattr(opdb, "PART", 1)  # in parts, interrupted behind the second: the rest comes later
    monkeypatch.setattr(opdb, "operators", lambda: [*entries[:2], None])
    with pytest.raises(AttributeError):
        opdb.record(tmp_path / "joined", tmp_path / "parts")
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["0000", "0001"]
    monkeypatch.setattr(opdb, "operators", lambda: [None, None, entries[2]])
    opdb.record(tmp_path / "joined", tmp_path / "parts")
    joined = _core.Trace(str(tmp_path / "joined"))
    rows = [[one.call(s) for s in one.select()] for one in (trace, joined)]
    for a, b in zip(*rows, strict=True):
        assert [(r["sequence"], r["op"], json.loads(r["state"] or "0"), r["args"]) for r in (a, a)] == [
            (r["sequence"], r["op"], json.loads(r["state"] or "0"), r["args"]) for r in (a, b)
        ]
        for x, y in zip(a["tensors"], b["tensors"], strict=True):
            assert all(x[k] == y[k] for k in ("path", "role", "dtype", "sizes", "strides"))
            assert a["op"].startswith("aten::empty") or [t["stats"] is None for t in a["tensors"]] == [
                t["stats"] is None for t in b["tensors"]
            ]
    assert any("forward" in (a["state"] or "") for a in rows[0])


@pytest.mark.parametrize("kind", ["opdb", "words"])
def test_examples_that_are_there_cost_no_loading_of_torch(kind, tmp_path):
    code = """if True:
        import sys
        from ulpscope.fuzzer import examples
        folder = examples.folder(sys.argv[1])
        folder.mkdir(parents=True)
        (folder / "trace.db").touch()
        assert examples.main() == 0 and "torch" not in sys.modules"""
    env = {**os.environ, "ULPSCOPE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", code, kind, "mm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "fuzz" / f"torch-{torch.__version__}") in done.stdout


def test_a_torch_without_the_database_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_methods_invocations", None)
    with pytest.raises(RuntimeError, match="give a captured trace with --trace"):
        opdb.operators()


def test_a_pattern_of_no_operator_is_said_before_the_minutes(tmp_path):
    done = subprocess.run(
        ["ulpscope", "fuzz", "--device", "cpu", "--ops", "sofmax"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"ULPSCOPE_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 2 and "did you mean softmax" in done.stderr and not (tmp_path / "cache/fuzz").exists()


def test_examples_in_the_making_end_with_who_asked(tmp_path):
    """Ctrl-C ends the child that makes them, and leaves nothing half made."""
    with subprocess.Popen(
        ["ulpscope", "fuzz", "--device", "cpu"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"ULPSCOPE_CACHE": str(tmp_path / "cache")},
    ) as process:
        assert "once" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130 and "interrupted" in said
    assert {p.suffix for p in (tmp_path / "cache/fuzz").iterdir()} - {".parts"} == {".lock"}
    assert all((p / "trace.db").exists() for p in (tmp_path / "cache/fuzz").glob("*.parts/*"))
