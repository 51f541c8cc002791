# SPDX-License-Identifier: Apache-2.0
"""Checks of Python functions (check --level api): replayed as a whole by their names, judged like
any call, and what is wrong is named down to the operator."""

import os
import subprocess

import pytest
import torch
import torch.nn.functional as F

import ulpscope
import ulpscope.sim  # noqa: F401  # the device
from ulpscope.calls import functions
from ulpscope.calls.replay import BadCall, resolve

X = torch.randn(24, 64, generator=torch.Generator().manual_seed(1))
W = torch.randn(32, 64, generator=torch.Generator().manual_seed(2))


def body(device="sim"):
    x, w = X.to(device), W.to(device)
    y = F.linear(x, w)
    y = F.layer_norm(y, (32,), weight=torch.ones(32, device=device), bias=None)
    z = y @ y.T
    F.softmax(z, -1), F.gelu(y), torch.topk(y, 3), torch.cat([y, y], 1), y[:, None, 1:3, ...]
    F.dropout(y, 0.5), F.relu(y.clone(), inplace=True), torch.linalg.norm(y), torch.fft.rfft(y)
    F.scaled_dot_product_attention(y[None], y[None], y[None])
    F.cross_entropy(y, torch.arange(24, device=device)).item(), bool((y > 0).any())


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / "trace"
    with ulpscope.capture(path, level="api,aten"):
        body()
    return path


def check(trace, out, *more, device="sim:0"):
    """Its exit code."""
    done = subprocess.run(
        ["ulpscope", "check", str(trace), "--device", device, "-o", str(out), "-j", "1", *more],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode


def verdicts(out):
    import sqlite3

    with sqlite3.connect(out / "result.db") as db:
        return db.execute("select op, verdict, culprit, sentence from verdict order by call").fetchall()


def test_an_honest_device_passes_whole_functions(trace, tmp_path):
    code = check(trace, tmp_path / "out", "--level", "api")
    rows = verdicts(tmp_path / "out")
    assert code == 0, rows
    assert {op for op, *_ in rows} >= {
        "torch.nn.functional.linear",
        "torch.nn.functional.layer_norm",
        "torch.Tensor.matmul",
        "torch.topk",
        "torch.cat",
        "torch.Tensor.__getitem__",
        "torch.nn.functional.dropout",
        "torch.Tensor.item",
        "torch.nn.functional.relu",
        "torch.fft.rfft",
        "torch.Tensor.__bool__",
    }
    assert not any("::" in op for op, *_ in rows)
    assert {verdict for _, verdict, *_ in rows} == {"pass"}, rows


@pytest.mark.parametrize(
    "pattern, fault, culprit",
    [
        ("torch.nn.functional.linear", "mm:bf16_inputs", "aten::mm"),
        ("torch.nn.functional.layer_norm", "native_layer_norm:scale:factor=1.01", "aten::native_layer_norm"),
        ("torch.Tensor.matmul", "mm:bf16_inputs", "aten::mm"),
        ("torch.nn.functional.softmax", "_softmax:bf16_output", "aten::_softmax"),
    ],
)
def test_a_fault_below_a_function_is_found_and_its_operator_named(trace, tmp_path, pattern, fault, culprit):
    code = check(trace, tmp_path / "out", "--ops", pattern, "--faults", fault)
    rows = verdicts(tmp_path / "out")
    assert code == 1
    assert [op for op, *_ in rows] == [pattern]
    _, verdict, named, sentence = rows[0]
    assert verdict in ("wrong", "reduced", "intermittent") and named.startswith(culprit)
    assert f"the fault is in {culprit}" in sentence


def test_another_device_type_gets_functions_as_they_are(trace, tmp_path):
    code = check(
        trace, tmp_path / "out", "--ops", "torch.nn.functional.linear,torch.nn.functional.softmax", device="cpu"
    )
    assert code == 0
    assert {op for op, *_ in verdicts(tmp_path / "out")} == {
        "torch.nn.functional.linear",
        "torch.nn.functional.softmax",
    }


# ---- autocast ---------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["cpu", "sim"])
def cast(request, tmp_path_factory):
    """One trace under the autocast of each device type: their lists of what is narrowed differ."""
    path, device = tmp_path_factory.mktemp("cast") / "t", request.param
    torch.manual_seed(3)
    x, w, b, scale = (torch.randn(*s).to(device).requires_grad_() for s in ((24, 64), (32, 64), (32,), (32,)))
    with ulpscope.capture(path, level="api,aten"):
        with torch.autocast(device, dtype=torch.bfloat16):
            y = F.layer_norm(F.linear(x, w, b), (32,), scale)
            loss = F.cross_entropy(y.float(), torch.arange(24, device=device)) + (y @ w).float().square().mean()
        loss.backward()
    return path


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_under_autocast_functions_are_run_under_autocast(cast, tmp_path, device):
    """What it rounds is nobody's mistake, forward and backward."""
    names = ["linear", "layer_norm", "cross_entropy"]
    ops = ",".join([*(f"torch.nn.functional.{name}" for name in names), "torch.Tensor.matmul"])
    code = check(cast, tmp_path / "out", "--level", "api", "--ops", ops, device=device)
    rows = verdicts(tmp_path / "out")
    flagged = {op.rpartition(".")[2] for op, verdict, *_ in rows if verdict != "pass"}
    # the CPU's own kernel adds up the gradients of its weights in bfloat16: that is seen
    assert flagged <= ({"layer_norm"} if device == "cpu" else set()) and code == bool(flagged), rows
    assert len(rows) == 8 and not any("::" in op for op, *_ in rows)


@pytest.mark.parametrize(
    "fault, op, culprit",
    [
        ("addmm:scale:factor=1.02", "linear", "aten::addmm"),
        ("native_layer_norm:scale:factor=1.001", "layer_norm", "aten::native_layer_norm"),
        ("mm:scale:factor=1.02", "linear,torch.Tensor.matmul", "aten::mm"),
    ],
)
def test_under_autocast_a_fault_below_is_found_and_its_operator_named(cast, tmp_path, fault, op, culprit):
    check(
        cast,
        tmp_path / "out",
        "--level",
        "api",
        "--phase",
        "forward",
        "--ops",
        f"torch.nn.functional.{op}",
        "--faults",
        fault,
    )
    found = [row for row in verdicts(tmp_path / "out") if row[1] != "pass"]
    assert found, verdicts(tmp_path / "out")
    for _, verdict, named, sentence in found:
        assert verdict in ("wrong", "reduced", "intermittent")
        assert named.startswith(culprit) and f"the fault is in {culprit}" in sentence, found


def test_under_autocast_results_have_the_dtypes_of_their_device(cast):
    from ulpscope import _core
    from ulpscope.executors.device import open_device
    from ulpscope.session.bench import rebuilt

    from test_capture import read

    trace = _core.Trace(cast)
    for number in (c["sequence"] for c in read(cast) if c["op"].startswith("torch.nn.functional.l")):
        row = trace.call(number)
        if row["op"].endswith("norm") and row["phase"] == "backward":
            continue
        for kind in ("cpu", "sim"):
            call = rebuilt(trace, trace.meta("id"), row, open_device(kind, row["tensors"][0]["device"].split(":")[0]))
            low = row["op"].endswith("linear") or (kind == "cpu" and row["phase"] == "forward")
            assert (call.native["out[0]"].dtype == torch.bfloat16) or not low  # of gradients: in effect
            if row["op"].endswith("linear"):
                floats = [
                    call.storages[v.storage].view(torch.float32)
                    for v in call.views.values()
                    if v.dtype == torch.float32
                ]
                assert all(t.equal(t.bfloat16().float()) for t in floats) and floats
            elif row["phase"] == "forward":
                assert call.native["out[0]"].dtype == (torch.bfloat16 if kind == "cpu" else torch.float32)


@pytest.mark.parametrize("fault", ["", "bmm:scale:factor=1.05"])
def test_a_function_in_which_autocast_rounds_several_times_has_the_verdict_of_its_operators(tmp_path, fault):
    module, x = torch.nn.MultiheadAttention(32, 4).to("sim"), X[:6, :64].reshape(6, 2, 32).to("sim")
    with ulpscope.capture(tmp_path / "t", level="api,aten"), torch.autocast("sim", dtype=torch.bfloat16):
        module(x, x, x)
    check(
        tmp_path / "t", tmp_path / "out", "--ops", "torch.nn.functional.multi_head_attention_forward", "--faults", fault
    )
    ((op, said, culprit, sentence),) = verdicts(tmp_path / "out")
    assert op == "torch.nn.functional.multi_head_attention_forward"
    assert (said == "pass") == (not fault) and culprit.startswith("aten::bmm" if fault else ""), sentence


def test_what_a_device_lacks_under_autocast_is_unsupported(tmp_path):
    # Captured on the device: without AVX-512 oneDNN has no bfloat16 LSTM for the CPU.
    module, x = torch.nn.LSTM(8, 4).to("sim"), X[:6, :8].reshape(3, 2, 8).to("sim")
    with ulpscope.capture(tmp_path / "t", level="api,aten"), torch.autocast("sim", dtype=torch.bfloat16):
        module(x)
    check(
        tmp_path / "t",
        tmp_path / "out",
        "--ops",
        "torch.lstm,torch.zeros",
        "--faults",
        "aten::_thnn_fused_lstm_cell:lacking",
        "--allow",
        "unsupported",
    )
    found = {op: (said, sentence) for op, said, _, sentence in verdicts(tmp_path / "out")}
    assert found["torch.lstm"][0] == "unsupported" and "lstm_cell" in found["torch.lstm"][1], found


def test_what_is_hardly_ever_dropped_is_no_race(tmp_path):
    """Stochastic depth of two samples: two runs, two seeds mostly give the same."""
    with ulpscope.capture(tmp_path / "trace", level="api"):
        for _ in range(48):
            torch.empty(2, 1).bernoulli_(0.964)
    assert check(tmp_path / "trace", tmp_path / "out") == 0, verdicts(tmp_path / "out")
    assert {verdict for _, verdict, *_ in verdicts(tmp_path / "out")} <= {"pass", "unjudged"}


@pytest.mark.parametrize(
    "name",
    "torch.os.system os.system torch.load torch.from_file torch.hub.load torch.Tensor.__reduce_ex__ subprocess.run "
    "torch.serialization.os.remove torch.Tensor.register_hook torch.import_ir_module builtins.eval".split(),
)
def test_a_trace_calls_nothing_but_computation(name):
    with pytest.raises(BadCall, match="unknown here"):
        resolve(name)


def test_functions_are_found_by_their_names():
    for name in (
        "torch.nn.functional.linear torch.nn.functional.layer_norm torch.Tensor.add torch.topk torch.Tensor.__rdiv__ "
        "torch.nn.functional.max_pool2d torch.linalg.norm torch._foreach_add torch.special.erf torch.einsum "
        "torch.ops.aten.add.Tensor"
    ).split():
        function = resolve(name)
        assert callable(function) and functions.name_of(function) == name
    assert resolve("torch.Tensor.T")(X).shape == (64, 24)


# ---- backward --------------------------------------------------------------------------


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = torch.nn.Linear(16, 24), torch.nn.LayerNorm(24)

    def forward(self, x):
        y = F.gelu(self.norm(self.inner(x)))
        q, k, v = y.chunk(3, -1)
        return F.relu(q @ k.T + v @ v.T, inplace=True)


def trained(path, device="sim", **options):
    torch.manual_seed(3)
    model, x = Small().to(device), torch.randn(6, 16).to(device)
    with ulpscope.capture(path, level="api,aten", **options):
        loss = F.cross_entropy(model(x), torch.arange(6, device=device))
        loss.backward()
    return model


def backward_rows(path):
    from test_capture import read

    calls = read(path)
    return calls, [c for c in calls if "::" not in c["op"] and c["phase"] == "backward"]


def test_gradients_in_and_out_are_a_call_of_the_function(tmp_path):
    import json

    model = trained(tmp_path / "t")
    calls, rows = backward_rows(tmp_path / "t")
    by_number = {c["sequence"]: c for c in calls}
    linear = next(c for c in rows if c["op"] == "torch.nn.functional.linear")
    forward = by_number[json.loads(linear["state"])["forward"]]
    assert forward["op"] == linear["op"] and forward["module_path"] == linear["module_path"] == "inner"
    sizes = {(t["role"], t["path"]): t["sizes"] for t in linear["tensors"]}
    assert sizes == {("in", "args[0]"): (6, 24), ("out", "out[0]"): (24, 16), ("out", "out[1]"): (24,)}
    below = {c["op"].split(".")[0] for c in calls if c["parent"] == linear["sequence"]}
    assert "aten::mm" in below
    chunk = next(c for c in rows if c["op"] == "torch.Tensor.chunk")
    assert json.loads(chunk["args"])["args"] == [{"tensor": True}] * 3
    assert model.inner.weight.grad is not None


def test_an_honest_backward_pass_is_judged_and_passes(tmp_path):
    trained(tmp_path / "t")
    code = check(tmp_path / "t", tmp_path / "out", "--level", "api", "--phase", "backward")
    rows = verdicts(tmp_path / "out")
    assert code == 0, rows
    judged = {op for op, verdict, *_ in rows if verdict == "pass"}
    assert judged >= {
        "torch.nn.functional.linear",
        "torch.nn.functional.layer_norm",
        "torch.nn.functional.gelu",
        "torch.Tensor.matmul",
        "torch.nn.functional.relu",
        "torch.nn.functional.cross_entropy",
        "torch.Tensor.chunk",
    }, rows


def test_a_fault_of_the_backward_pass_alone_is_found(tmp_path):
    trained(tmp_path / "t")
    code = check(
        tmp_path / "t", tmp_path / "out", "--level", "api", "--faults", "native_layer_norm_backward:scale:factor=1.01"
    )
    rows = [r for r in verdicts(tmp_path / "out") if r[1] != "pass"]
    assert code == 1 and [r[0] for r in rows] == ["torch.nn.functional.layer_norm"], rows
    assert rows[0][2].startswith("aten::native_layer_norm_backward")


@pytest.fixture(scope="module")
def dropped(tmp_path_factory):
    path = tmp_path_factory.mktemp("dropped") / "t"
    torch.manual_seed(3)
    x = torch.randn(64, 96).to("sim").requires_grad_()
    q = torch.randn(2, 2, 24, 16).to("sim").requires_grad_()
    with ulpscope.capture(path, level="api,aten"):
        drawn = [F.dropout(x, 0.25), F.scaled_dot_product_attention(q, q, q, dropout_p=0.2), F.rrelu(x, training=True)]
        sum((t * t).sum() for t in drawn).backward()
    return path


@pytest.mark.parametrize(
    "device, fault, wrong",
    [
        ("cpu", "", set()),
        ("sim:0", "", set()),
        ("sim:0", "native_dropout_backward:scale:factor=1.01", {"dropout", "scaled_dot_product_attention"}),
        ("sim:0", "rrelu_with_noise_backward:nan", {"rrelu"}),
    ],
)
def test_gradients_behind_random_numbers_are_judged_with_those_that_the_replay_drew(
    dropped, tmp_path, device, fault, wrong
):
    """The captured gradients hang on what the captured run drew, and accuse nobody."""
    names = ["dropout", "scaled_dot_product_attention", "rrelu"]
    ops = ",".join(f"torch.nn.functional.{name}" for name in names)
    check(
        dropped,
        tmp_path / "out",
        "--level",
        "api",
        "--phase",
        "backward",
        "--ops",
        ops,
        "--faults",
        fault,
        device=device,
    )
    rows = {op.rpartition(".")[2]: rest for op, *rest in verdicts(tmp_path / "out")}
    assert rows.keys() == set(names)
    assert {name for name, (verdict, *_) in rows.items() if verdict != "pass"} == wrong, rows
    assert all(rows[name][1].startswith("aten::") for name in wrong), rows


def test_operators_of_the_backward_pass_are_below_their_function(tmp_path):
    """Composite ones as well, and those that are composite on devices without a kernel for them."""
    x, w = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
    with ulpscope.capture(tmp_path / "t", level="api,aten"):
        (F.embedding(torch.arange(6), w) + F.silu(x) + F.mish(x)).sum().backward()
    calls, rows = backward_rows(tmp_path / "t")
    name_of = {c["sequence"]: c["op"] for c in calls}
    below = {(name_of[c["parent"]], c["op"]) for c in calls if c["parent"] and c["phase"] == "backward"}
    assert {
        ("torch.nn.functional.silu", "aten::silu_backward"),
        ("torch.nn.functional.mish", "aten::mish_backward"),
        ("torch.nn.functional.embedding", "aten::embedding_backward"),
        ("aten::embedding_backward", "aten::embedding_dense_backward"),
    } <= below, below
    code = check(tmp_path / "t", tmp_path / "out", "--ops", "aten::silu_backward", "--faults", "silu_backward:scale")
    assert code == 1 and {verdict for _, verdict, *_ in verdicts(tmp_path / "out")} <= {"wrong", "reduced"}


def test_gradients_are_the_same_to_the_bit(tmp_path):
    torch.manual_seed(3)
    plain, x = Small(), torch.randn(6, 16)
    F.cross_entropy(plain(x), torch.arange(6)).backward()
    watched = trained(tmp_path / "t", "cpu")
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad) and a.grad.stride() == b.grad.stride()


# ---- operators of the program's own -----------------------------------------------------


@pytest.mark.parametrize("level", ["aten", "api,aten"])
def test_a_function_that_no_dispatcher_sees_becomes_a_call(tmp_path, level):
    from api_kernels import silent
    from test_capture import notes, read

    x, out = torch.arange(64.0), torch.zeros(64)
    with ulpscope.capture(tmp_path / "t", level=level):
        silent(x, out=out)
        out + 1
    call = next(c for c in read(tmp_path / "t") if c["op"] == "api_kernels.silent")
    assert {(t["role"], t["path"]) for t in call["tensors"]} == {
        ("in", "args[0]"),
        ("in", "kwargs.out"),
        ("mutated", "kwargs.out"),
        ("out", "out[0]"),
    }
    assert not notes(tmp_path / "t")
    code = check(tmp_path / "t", tmp_path / "out", "--ops", "api_kernels.*", device="cpu")
    assert code == 0 and [r[:2] for r in verdicts(tmp_path / "out")] == [("api_kernels.silent", "pass")]


def test_an_operator_is_a_parent_and_plain_outside_a_capture(tmp_path):
    from api_kernels import rotate
    from test_capture import read

    x, out = torch.arange(8.0), torch.zeros(8)
    rotate(x, out)
    assert out[0] == 14
    with ulpscope.capture(tmp_path / "t"):
        rotate(x, out, by=2)
    calls = read(tmp_path / "t")
    call = next(c for c in calls if c["op"] == "api_kernels.rotate")
    assert "aten::roll" in {c["op"] for c in calls if c["parent"] == call["sequence"]}
    code = check(tmp_path / "t", tmp_path / "out", "--ops", "api_kernels.rotate", device="cpu")
    assert code == 0 and [r[:2] for r in verdicts(tmp_path / "out")] == [("api_kernels.rotate", "pass")]


@pytest.mark.parametrize("fault", ["", "aten::mul:scale:factor=1.01"])
def test_a_kernel_that_is_launched_by_a_grid_is_held_to_the_reference_registered_for_it(tmp_path, fault):
    """As a Triton kernel, it does not run where the reference does."""
    from api_kernels import scaled
    from test_capture import read

    x, out = torch.randn(200).to("sim"), torch.zeros(200, device="sim")
    with pytest.raises(ValueError, match="cpu tensor"):
        scaled(torch.ones(3), torch.ones(3), 2.0)
    with ulpscope.capture(tmp_path / "t"):
        scaled(x, out, 1.5)
    call = next(c for c in read(tmp_path / "t") if c["op"] == "api_kernels.scaled")
    assert {(t["role"], t["path"]) for t in call["tensors"]} == {
        ("in", "args[0]"),
        ("in", "args[1]"),
        ("mutated", "args[1]"),
    }
    check(tmp_path / "t", tmp_path / "out", "--ops", "api_kernels.scaled", "--faults", fault)
    ((op, said, culprit, sentence),) = verdicts(tmp_path / "out")
    assert (said == "pass") == (not fault) and culprit.startswith("aten::mul" if fault else ""), sentence


def test_mutates_must_name_parameters():
    with pytest.raises(ValueError, match="no parameter"):
        ulpscope.operator(lambda x: x, mutates=["y"])


# ---- modules ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault, flagged", [("", set()), ("native_layer_norm:scale:factor=1.01", {"module:norm", "module:(model)"})]
)
def test_a_capture_at_the_level_of_modules_has_what_their_check_puts_together(tmp_path, fault, flagged):
    torch.manual_seed(3)
    model, x = Small().to("sim"), torch.randn(6, 16).to("sim")
    with ulpscope.capture(tmp_path / "t", level="module"):
        model(x)
    check(tmp_path / "t", tmp_path / "out", "--level", "module", "--faults", fault)
    rows = {op: verdict for op, verdict, *_ in verdicts(tmp_path / "out")}
    assert rows.keys() == {"module:inner", "module:norm", "module:(model)"}
    assert {op for op, verdict in rows.items() if verdict != "pass"} == flagged, rows
    with pytest.raises(ValueError, match="or both, or module"), ulpscope.capture(tmp_path / "u", level="modules"):
        pass
