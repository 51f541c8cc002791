# SPDX-License-Identifier: Apache-2.0
"""The effect of a call's error on the loss: what is predicted from the captured gradient is
what the loss of the model does when that call's output alone is replaced; and no gradient
is taken that is not certainly the output's own."""

import csv
import json
import os
import subprocess
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
import ulpscope
from selections import picks
from torch import nn

import ulpscope.sim as sim
from ulpscope import _core
from ulpscope.judges import impact
from ulpscope.executors.device import TorchDevice
from ulpscope.session.judging import judge_call
from ulpscope.calls.read_call import call_from

N = 16  # batch, tokens and features agree, so that shapes alone tell nothing apart


class Net(nn.Module):
    """Square products, one without a gradient for its input, a residual, a broadcast."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.norm = nn.Linear(N, N), nn.GELU(), nn.LayerNorm(N)
        self.second, self.gate = nn.Linear(N, N, bias=False), nn.Sigmoid()
        self.conv, self.last = nn.Conv1d(1, 3, 3, padding=1), nn.Linear(3 * N, 4)

    def forward(self, x):
        h = self.act(self.first(x))
        h = h + self.second(self.norm(h))
        h = h * self.gate(h)
        return self.last(self.conv(h[:, None]).flatten(1))


def loss_of(model, x, target):
    return F.cross_entropy(model(x), target)


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """A captured training step of a model that was trained for a while, and the model
    and the batch with which it began."""
    torch.manual_seed(7)
    model, x, target = Net(), torch.randn(N, N), torch.randint(0, 4, (N,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def train():
        optimizer.zero_grad()
        loss_of(model, x, target).backward()
        optimizer.step()

    for _ in range(10):
        train()
    before, path = deepcopy(model), tmp_path_factory.mktemp("loss") / "trace"
    with ulpscope.capture(path, steps="0"):
        train()
    return path, before, x, target


def read(path):
    """A trace and its picks for a device of another type, linked to the backward."""
    trace = _core.Trace(str(path))
    rows = [trace.call(s) for s in trace.select()]
    return trace, {p.sequence: p for p in picks(path, "sim")}, {r["sequence"]: r for r in rows}


def replaced(model, place, x, target, output):
    """The loss in float64 where a module gives `output`, whatever it computes."""
    wide = deepcopy(model).double()
    module = wide.get_submodule(place)
    module.register_forward_hook(lambda *_: output.double())
    with torch.no_grad():
        return float(loss_of(wide, x.double(), target))


def judged(trace, pick, device):
    call = call_from(trace.call(pick.sequence), trace.blob)
    verdict = judge_call(call, device)
    truth, answer = verdict.operands.reference.truth, verdict.answer.outputs
    return call, answer, truth, impact.loss_effect(trace, call, answer, truth, pick.backward)


@pytest.mark.parametrize(
    "place, op, kind",
    [
        ("first", "addmm", "tf32"),
        ("second", "mm", "tf32"),
        ("last", "addmm", "bf16_inputs"),
        ("act", "gelu", "bf16_output"),
        ("act", "gelu", "truncate"),
        ("gate", "sigmoid", "fp16_output"),
        ("norm", "native_layer_norm", "bf16_output"),
        ("conv", "convolution*", "bf16_output"),
    ],
)
def test_the_loss_moves_as_predicted(step, place, op, kind):
    path, model, x, target = step
    trace, picks, rows = read(path)
    pick = next(p for s, p in picks.items() if rows[s]["module_path"] == place and rows[s]["phase"] == "forward")
    with sim.fault(f"aten::{op}", kind):
        _, answer, truth, effect = judged(trace, pick, TorchDevice("sim:0"))
    device, right = (replaced(model, place, x, target, t["out[0]"]) for t in (answer, truth))
    assert effect is not None and abs(device - right) > 1e-9
    assert effect == pytest.approx(abs(device - right), rel=0.2)


def test_every_gradient_is_the_one_that_autograd_gives(step):
    """All that is found for forward calls against hooks, orientation included."""
    path, model, x, target = step
    trace, picks, rows = read(path)
    gradients, model = {}, deepcopy(model)

    def keep(name):
        def hook(_module, _inputs, y):
            y.register_hook(lambda g: gradients.__setitem__(name, g.clone()))

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(keep(name))
    loss_of(model, x, target).backward()
    found = 0
    for sequence, pick in picks.items():
        row = rows[sequence]
        place = row["module_path"]
        if row["phase"] != "forward" or place not in gradients or not place:
            continue
        got = impact._gradient(trace, row, "out[0]", True, pick.backward)
        if got is not None:
            assert torch.equal(got, gradients[place]), row["op"]
            found += 1
    assert found == 7


def capture(path, run):
    with ulpscope.capture(path, steps="0"):
        run()
    return read(path)


def found_in(path, run, op):
    """What is found for the output of the only forward call of an operator."""
    trace, picks, rows = capture(path, run)
    pick = next(p for s, p in picks.items() if rows[s]["op"].startswith(op) and rows[s]["phase"] == "forward")
    return impact._gradient(trace, rows[pick.sequence], "out[0]", True, pick.backward)


def leaf(*sizes):
    return torch.randn(*sizes, requires_grad=True)


def twice():
    y = torch.erf(leaf(4, 4))
    y.sum().backward(retain_graph=True)
    (3 * y).sum().backward()


def given():
    """A cotangent from elsewhere is not the gradient of any loss."""
    cotangent = torch.randn(4, 4)
    torch.erf(leaf(4, 4)).backward(cotangent)


def without_grad():
    """The product below is not the one whose node runs."""
    a, w = leaf(4, 1), torch.randn(4, 4)
    b = a.expand(4, 4)
    with torch.no_grad():
        torch.erf(w)
    (b * b).sum().backward()


def no_backward():
    torch.erf(leaf(4, 4))


def other_function():
    class Erf(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.erf(x)

        @staticmethod
        def backward(ctx, g):
            return torch.cos(g)

    Erf.apply(leaf(4, 4)).sum().backward()


@pytest.mark.parametrize("run", [twice, given, without_grad, no_backward, other_function])
def test_what_is_not_certain_is_left_out(tmp_path, run):
    torch.manual_seed(3)
    assert found_in(tmp_path / "t", run, "aten::erf") is None


def test_a_square_transposed_gradient_is_turned_back(tmp_path):
    """The weight's gradient multiplies G', which has the shape of G here."""
    torch.manual_seed(4)
    weight, x, c = leaf(N, N), torch.randn(N, N), torch.randn(N, N)
    got = found_in(tmp_path / "t", lambda: (F.linear(x, weight) * c).sum().backward(), "aten::linear")
    assert torch.equal(got, c)


INDEX = torch.tensor([2, 0, 3, 3])


@pytest.mark.parametrize(
    "op, function",
    [
        ("aten::sum", lambda x: x.sum(1)),
        ("aten::sum", lambda x: x.sum((0, 1), keepdim=True)),
        ("aten::mean", lambda x: x.mean(0)),
        ("aten::cumsum", lambda x: x.cumsum(1)),
        ("aten::index.Tensor", lambda x: x[INDEX]),
        ("aten::index_select", lambda x: x.index_select(1, INDEX)),
        ("aten::gather", lambda x: x.gather(0, INDEX[:, None])),
        ("aten::cat", lambda x: torch.cat([x, x])),
        ("aten::flip", lambda x: x.flip(0)),
        ("aten::tril", lambda x: x.tril()),
        ("aten::pad", lambda x: F.pad(x, (1, 1))),
        ("aten::masked_fill", lambda x: x.masked_fill(x > 0, 0.0)),
    ],
)
def test_reductions_and_indices_have_a_gradient(tmp_path, op, function):
    """That of autograd, where the shapes of both are equal as well; and none after two
    backward passes."""
    torch.manual_seed(5)
    x = leaf(4, 4)
    cotangent = torch.randn_like(function(x))

    def once(y, keep=False):
        torch.dot(y.flatten(), cotangent.flatten()).backward(retain_graph=keep)

    def again():
        y = function(x)
        once(y, keep=True)
        once(3 * y)

    got = found_in(tmp_path / "once", lambda: once(function(x)), op)
    assert got is not None and torch.equal(got, cotangent)
    assert found_in(tmp_path / "again", again, op) is None


LIBRARY = torch.library.Library("impacttest", "FRAGMENT")
LIBRARY.define("scaled(Tensor x, Tensor w) -> Tensor")
LIBRARY.define("scaled_backward(Tensor grad, Tensor x, Tensor w) -> (Tensor, Tensor)")
LIBRARY.impl("scaled", lambda x, w: x * w, "CPU")
LIBRARY.impl("scaled_backward", lambda g, x, w: (g * w, g * x), "CPU")
torch.library.register_autograd(
    "impacttest::scaled",
    lambda ctx, g: torch.ops.impacttest.scaled_backward(g, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_an_operator_with_a_gradient_in_python_has_one(tmp_path):
    """Where the same weight scales two tensors, each has its own; the same input twice, or
    two backward passes, leave none."""
    torch.manual_seed(6)
    w, x, y, c, d = leaf(4, 4), leaf(4, 4), leaf(4, 4), torch.randn(4, 4), torch.randn(4, 4)
    scaled = torch.ops.impacttest.scaled

    def gradients(name, run):
        trace, picks, rows = capture(tmp_path / name, run)
        return [
            impact._gradient(trace, rows[s], "out[0]", True, p.backward)
            for s, p in picks.items()
            if rows[s]["op"] == "impacttest::scaled"
        ]

    def twice():
        out = scaled(x, w) * c
        out.sum().backward(retain_graph=True)
        (3 * out).sum().backward()

    both = gradients("both", lambda: (scaled(x, w) * c + scaled(y, w) * d).sum().backward())
    assert torch.equal(both[0], c) and torch.equal(both[1], d)
    same = gradients("same", lambda: (scaled(x, w) * c + scaled(x, w) * d).sum().backward())
    assert same == [None, None]
    assert gradients("twice", twice) == [None]


@pytest.mark.parametrize("spoil", ["shape", "dtype", "storage", "writer", "node", "input"])
def test_another_tensor_is_never_taken(step, spoil):
    """A planted mismatch in the rows of the backward leaves nothing to take."""
    path, *_ = step
    trace, picks, rows = read(path)
    pick = next(p for s, p in picks.items() if rows[s]["op"] == "aten::gelu")
    (below,) = ([rows[s] for s in seqs] for seqs in pick.backward.values())
    source = rows[pick.sequence]
    made = impact._output(source, "out[0]")
    assert impact._incoming(trace, source, made, True, below) is not None
    for row in below:
        for t in row["tensors"]:
            t.update(
                {
                    "shape": {"sizes": (N, N + 1)},
                    "dtype": {"dtype": "float64"},
                    "storage": {"storage": made["storage"]},
                    "writer": {"writer": 1},
                }.get(spoil, {})
            )
        if spoil == "node":
            row["state"] = json.dumps({"forward": source["sequence"], "node": "TanhBackward0"})
    for t in source["tensors"]:
        if spoil == "input":
            t["requires_grad"] = False
    assert impact._incoming(trace, source, made, True, below) is None


def test_the_report_tells_it_and_sorts_by_it(step, tmp_path):
    path, *_ = step
    out = tmp_path / "out"
    run = subprocess.run(
        [
            "ulpscope",
            "check",
            str(path),
            "--device",
            "sim:0",
            "-j",
            "1",
            "-o",
            str(out),
            "--ops",
            "gelu,sigmoid",
            "--sort",
            "loss",
            "--faults",
            "aten::gelu:bf16_output;aten::sigmoid:fp16_output",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 1, run.stdout + run.stderr
    findings = json.loads((out / "result.json").read_text())["findings"]
    known = [f["loss"] for f in findings if f["loss"] is not None]
    assert len(known) == len(findings) == 2
    shown = [float(line.split("±")[1].split()[0]) for line in run.stdout.splitlines() if "loss ±" in line]
    assert shown == sorted(shown, reverse=True) and len(shown) == len(known)
    assert shown[0] == pytest.approx(max(known), rel=0.1)
    with open(out / "result.csv", newline="") as f:
        calls = list(csv.DictReader(f))
    accused = {c["op"]: float(c["loss"]) for c in calls if c["verdict"] != "pass"}
    assert accused and all(v > 0 for v in accused.values())
