# SPDX-License-Identifier: Apache-2.0
"""Operators that ask more of their arguments than a distribution, captured with statistics
alone on the simulated device and replayed on stand-ins: an honest device passes, a planted
fault is found."""

import json

import pytest
import torch
import torch.nn.functional as F

import ulpscope
import ulpscope.sim as sim
from ulpscope import _core
from ulpscope.calls.read_call import call_from
from ulpscope.executors.device import TorchDevice
from ulpscope.session.judging import judge_call
from ulpscope.calls.standin import stand_in

FLAGGED = ("wrong", "reduced", "nonfinite", "crashed")


def inputs():
    torch.manual_seed(5)
    logits, target = torch.randn(40, 30), torch.randint(0, 30, (40,))
    target[::5] = -100
    tokens, weight = torch.randint(0, 500, (4, 16)), torch.randn(500, 24)
    rows = torch.stack([torch.randperm(12)[:7] for _ in range(20)])
    values, wide = torch.randn(20, 12), torch.randn(20, 7)
    square = torch.randn(4, 16, 16)
    definite = square @ square.mT + 0.5 * torch.eye(16)
    q, k, v = (torch.randn(2, 2, 16, 8) for _ in range(3))
    causal = torch.ones(16, 16, dtype=torch.bool).tril()
    hot = F.one_hot(torch.randint(0, 24, (16,)), 24).float()
    edges = torch.randn(50).sort()[0]
    return logits, target, tokens, weight, rows, values, wide, definite, q, k, v, causal, hot, edges


def step(logits, target, tokens, weight, rows, values, wide, definite, q, k, v, causal, hot, edges):
    F.cross_entropy(logits, target)
    F.embedding(tokens, weight)
    torch.gather(values, 1, rows)
    torch.scatter(values, 1, rows, wide)
    torch.scatter_add(values, 1, rows, wide)
    weight[tokens[0]]
    torch.index_select(weight, 0, tokens[1])
    lower = torch.linalg.cholesky(definite)
    torch.linalg.solve_triangular(lower, definite, upper=False)
    F.scaled_dot_product_attention(q, k, v, attn_mask=causal)
    weights = torch.softmax((q @ k.mT).masked_fill(~causal, float("-inf")), -1)
    torch.matmul(weights, v)
    torch.argsort(values, 1)
    hot @ weight[:24]
    torch.bucketize(values, edges)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stand-ins") / "trace"
    arguments = [t.to("sim:0") for t in inputs()]
    with ulpscope.capture(folder, data="stats"):
        step(*arguments)
    return _core.Trace(str(folder))


def calls_of(trace):
    """Every call but copies, on stand-ins."""
    for sequence in trace.select():
        row = trace.call(sequence)
        if row["op"].startswith(("aten::_to_copy", "aten::copy_", "aten::to", "aten::empty")):
            continue
        yield call_from(row, trace.blob, lambda t, row=row: stand_in("trace", row["sequence"], t, row))


def judged(trace, pattern):
    return [judge_call(c, TorchDevice("sim:0", home="sim")) for c in calls_of(trace) if pattern in c.op]


def test_an_honest_device_passes_on_all_of_them(trace):
    found = {}
    for call in calls_of(trace):
        verdict = judge_call(call, TorchDevice("sim:0", home="sim"))
        found.setdefault(call.op, []).append((verdict.verdict, verdict.reason))
    bad = {op: v for op, v in found.items() if any(one[0] != "pass" for one in v)}
    assert not bad, bad
    assert {
        "aten::embedding",
        "aten::gather",
        "aten::scatter.src",
        "aten::scatter_add",
        "aten::index.Tensor",
        "aten::nll_loss_forward",
        "aten::linalg_cholesky_ex",
        "aten::linalg_solve_triangular",
        "aten::argsort",
        "aten::masked_fill.Scalar",
        "aten::bucketize.Tensor",
    } <= set(found)


@pytest.mark.parametrize(
    "op, kind",
    [
        ("aten::nll_loss_forward", "scale"),
        ("aten::embedding", "swap_two"),
        ("aten::gather", "bit_flip"),
        ("aten::scatter_add", "zero_one"),
        ("aten::index", "drop_tail"),
        ("aten::linalg_cholesky_ex", "bf16_inputs"),
        ("aten::bmm", "tf32"),
        ("aten::mm", "bf16_inputs"),
        ("aten::_softmax", "bf16_output"),
        ("aten::_log_softmax", "offset"),
        ("aten::index_select", "swap_two"),
        ("aten::linalg_solve_triangular", "fp16_output"),
    ],
)
def test_a_planted_fault_is_found_on_stand_ins(trace, op, kind):
    with sim.fault(op, kind):
        verdicts = [v.verdict for v in judged(trace, op)]
    assert verdicts and any(v in FLAGGED for v in verdicts), verdicts


def stand_ins_of(trace, op, path):
    for call in calls_of(trace):
        if call.op.startswith(op):
            view = call.views[path]
            raw = torch.empty(0, dtype=view.dtype).set_(call.storages[view.storage].untyped_storage())
            yield raw.as_strided(view.sizes, view.strides, view.offset)


def test_what_operators_need_is_there(trace):
    (target,) = stand_ins_of(trace, "aten::nll_loss_forward", "args[1]")
    kept = target[target != -100]
    assert int((target == -100).sum()) == 8 and bool(((kept >= 0) & (kept < 30)).all())
    (rows,) = stand_ins_of(trace, "aten::gather", "args[2]")
    assert all(len(set(row.tolist())) == 7 for row in rows) and int(rows.max()) < 12
    for definite in stand_ins_of(trace, "aten::linalg_cholesky_ex", "args[0]"):
        assert torch.equal(definite, definite.mT) and bool((torch.linalg.eigvalsh(definite) > 0).all())
    (mask,) = stand_ins_of(trace, "aten::masked_fill", "args[1]")
    assert torch.equal(mask, torch.ones(16, 16, dtype=torch.bool).triu(1))
    hot = list(stand_ins_of(trace, "aten::mm", "args[0]"))[-1]
    assert bool(((hot == 0).sum(1) == 23).all()) and bool((hot.sum(1) == 1).all())
    (edges,) = stand_ins_of(trace, "aten::bucketize", "args[1]")
    assert bool((edges.diff() >= 0).all())
    weights = [w for w in stand_ins_of(trace, "aten::bmm", "args[0]") if float(w.min()) >= 0]
    assert weights and torch.allclose(weights[0].sum(-1), torch.ones(()), atol=1e-3)


def test_equal_tensors_stay_equal_across_calls(trace):
    (gathered,) = stand_ins_of(trace, "aten::gather", "args[0]")
    (sorted_,) = stand_ins_of(trace, "aten::argsort", "args[0]")
    assert torch.equal(gathered, sorted_)


def test_a_trace_of_an_earlier_release_is_read():
    stats = dict(
        n=6, n_zero=1, min=-2.0, max=4.0, mean=1.0, l2=5.0, histogram={"pos": {"1": 2, "2": 1}, "neg": {"1": 1, "0": 1}}
    )
    row = dict(path="args[0]", role="in", dtype="float32", sizes=[2, 3], strides=[1, 2], stats=json.dumps(stats))
    made = stand_in("id", 3, row)
    assert made.shape == (2, 3) and (float(made.min()), float(made.max())) == (-2.0, 4.0)
    assert int((made == 0).sum()) == 1


@pytest.mark.parametrize("stats", ["[]", '{"n": 7}', '{"n": 6, "n_nan": 9}', "{"])
def test_statistics_that_cannot_be_are_refused_with_a_sentence(stats):
    from ulpscope.calls.replay import BadCall

    row = dict(path="args[0]", role="in", dtype="float32", sizes=[2, 3], strides=[3, 1], stats=stats)
    with pytest.raises(BadCall, match=r"args\[0\]: no stand-in: statistics"):
        stand_in("id", 3, row)
