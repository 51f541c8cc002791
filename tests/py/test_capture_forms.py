# SPDX-License-Identifier: Apache-2.0
"""Tensors that are more or less than bytes with strides, and surroundings in which a recorder
must not be noticed: modes, transforms, graphs of a device, recomputation."""

import contextlib
import os
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import ulpscope
from ulpscope import _core

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)


def calls_of(path):
    trace = _core.Trace(str(path))
    return [trace.call(s) for s in trace.select()]


def notes(path):
    with sqlite3.connect(path / "trace.db") as db:
        return db.execute("select call, kind, text from note").fetchall()


def check(trace, out, device):
    package = Path(ulpscope.__file__).absolute().parents[1]
    env = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["ulpscope", "check", str(trace), "--device", device, "-o", str(out), "-j", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=out.parent,
        env=env,
    )
    with sqlite3.connect(out / "result.db") as db:
        rows = db.execute("select op, verdict, sentence from verdict").fetchall()
    return done.returncode, rows


# ---- lazily conjugated, negated ------------------------------------------------------


def lazy_calls():
    torch.manual_seed(0)
    a, b = (torch.randn(9, 9, dtype=torch.complex64) for _ in range(2))
    c = b.conj()
    return [
        a @ c,
        torch.mm(a, b.mH),
        c.imag * 2,
        c.imag + a.real,
        c.resolve_conj(),
        c.clone(),
        torch.fft.ifft(torch.fft.fft(a).conj() * a),
        torch.linalg.vecdot(a, b),
        c[1:].t() @ a[1:],
        b.clone().conj().mul_(2),
        torch.view_as_real(c.resolve_conj()).sum(),
        c.imag.resolve_neg(),
        torch.bmm(a[None], c[None]),
        torch.view_as_real(a).neg().sum(),
    ]


FORGETS = """
def run(op, args, kwargs):
    unlazy = lambda x: x.conj() if getattr(x, "is_conj", bool)() else x
    return op(*[unlazy(a) for a in args], **kwargs)
"""


def test_lazily_conjugated_tensors_come_back_as_the_operator_saw_them(tmp_path):
    """On the device of the capture, where results are compared with the captured ones too, and
    on another. A kernel that forgets the conjugation is found."""
    with ulpscope.capture(tmp_path / "t"):
        lazy_calls()
    forms = {t["form"] for c in calls_of(tmp_path / "t") for t in c["tensors"]}
    assert {"conj", "neg", None} <= forms
    for device in ("cpu", "sim:0"):
        code, rows = check(tmp_path / "t", tmp_path / device.replace(":", ""), device)
        flagged = [r for r in rows if r[1] not in ("pass", "undefined")]
        assert not flagged and code == 0 and len(rows) > 20
    (tmp_path / "forgets.py").write_text(FORGETS)
    code, rows = check(tmp_path / "t", tmp_path / "wrong", "python:forgets:run")
    assert code == 1 and {"aten::mm", "aten::bmm"} <= {op for op, v, _ in rows if v == "wrong"}


# ---- no strides, no bytes ------------------------------------------------------------


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return op(*[a.inner if isinstance(a, cls) else a for a in args], **kwargs or {})


def strided_nested():
    return [t * 2 for t in (torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)]) * 3).unbind()]


ODD = {
    "nested strided": strided_nested,
    "nested jagged": lambda: [
        torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)], layout=torch.jagged).sin().values()
    ],
    "axes": lambda: [(torch.ones([1] * 40) + 1).sum()],
    "mkldnn": lambda: [torch.relu(torch.ones(4, 4).to_mkldnn()).to_dense()],
    "vmap": lambda: [torch.vmap(torch.sin)(torch.ones(3, 4))],
    "grad": lambda: [torch.func.grad(lambda x: x.sin().sum())(torch.ones(3))],
    "subclass": lambda: [
        Wrapped(torch.ones(3)) + 1,
        torch.nn.functional.linear(Wrapped(torch.ones(2, 3)), torch.ones(4, 3)),
    ],
    "sparse": lambda: [(torch.eye(3).to_sparse() + torch.eye(3).to_sparse()).to_dense()],
    "csr": lambda: [torch.eye(4).to_sparse_csr() @ torch.ones(4, 4)],
    "quantized": lambda: [torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8).dequantize()],
    "zero": lambda: [torch._efficientzerotensor(3) + 1],
    "meta": lambda: [torch.ones(3) + len(torch.empty(3, device="meta") + 1)],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_odd_tensors_neither_end_nor_alter_the_run(tmp_path, kind):
    expected = ODD[kind]()
    with ulpscope.capture(tmp_path / "t") as capture:
        got = ODD[kind]()
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert capture.counts["calls"] > 0 and calls_of(tmp_path / "t")
    told = {text.split("form '")[1].split("'")[0] for _, k, text in notes(tmp_path / "t") if k == "left-out"}
    wanted = {"nested strided": "nested", "axes": "over 32 axes", "mkldnn": "_mkldnn"}
    assert wanted.get(kind, "") in told or kind not in wanted


SCALES = """
def run(op, args, kwargs):
    out = op(*args, **kwargs)
    return out * 1.01 if out.shape == (6, 4) else out
"""


@pytest.mark.filterwarnings("ignore")
def test_calls_on_sparse_tensors_are_judged(tmp_path):
    torch.manual_seed(0)
    a, x = torch.randn(6, 6) * (torch.rand(6, 6) > 0.5), torch.randn(6, 4)
    coo, csr, dense = a.to_sparse(), a.to_sparse_csr(), torch.zeros(6, 6)
    with ulpscope.capture(tmp_path / "t"):
        torch.sparse.mm(coo, x), csr @ x, coo + coo, coo * 2, coo.to_dense(), csr.to_dense()
        dense.add_(coo)
    code, rows = check(tmp_path / "t", tmp_path / "honest", "cpu")
    other = [r for r in rows if r[1] not in ("pass", "undefined")]
    assert code == 0 and not other
    assert {"aten::_sparse_addmm", "aten::mul.Tensor", "aten::add_.Tensor"} <= {r[0] for r in rows}
    (tmp_path / "scales.py").write_text(SCALES)
    code, rows = check(tmp_path / "t", tmp_path / "wrong", "python:scales:run")
    assert code == 1 and "aten::_sparse_mm" in {op for op, v, _ in rows if v in ("wrong", "reduced")}


@pytest.mark.filterwarnings("ignore")
def test_a_call_without_content_says_why(tmp_path):
    with ulpscope.capture(tmp_path / "t"):
        strided_nested()
        torch.ones([1] * 40) + 1
    _, rows = check(tmp_path / "t", tmp_path / "out", "cpu")
    told = " ".join(sentence for _, v, sentence in rows if v == "unjudged")
    assert "of the form 'nested'" in told and "of the form 'over 32 axes'" in told
    assert "setStorage" not in told


# ---- nobody notices ------------------------------------------------------------------


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.seen.append(str(op))
        return op(*args, **kwargs or {})


def on_the_device():
    x = torch.arange(64.0).sim()
    with Log() as log:
        y = (x[8:16] * 2).add_(1)
        torch.func.grad(lambda v: (v * v).sum())(x)
        z = torch.vmap(lambda v: v + 1)(x.view(8, 8))
    return log.seen, y.cpu(), z.cpu()


def test_what_is_read_of_a_device_is_seen_by_no_mode(tmp_path):
    expected = on_the_device()
    with ulpscope.capture(tmp_path / "t") as capture:
        got = on_the_device()
    assert got[0] == expected[0] and capture.counts["bytes_read"] > 0
    assert not [n for n in notes(tmp_path / "t") if n[1] == "unreadable"]
    assert torch.equal(got[1], expected[1]) and torch.equal(got[2], expected[2])


def test_a_view_of_a_flat_device_buffer_is_read_alone(tmp_path):
    flat = torch.zeros(1 << 20).sim()
    flat[1024:2048].copy_(torch.arange(1024.0))
    with ulpscope.capture(tmp_path / "t") as capture:
        for _ in range(5):
            flat[1024:2048] * 2
    assert capture.counts["bytes_read"] < 100_000 < flat.nbytes
    code, rows = check(tmp_path / "t", tmp_path / "out", "sim:0")
    assert code == 0 and sum(v == "pass" for op, v, _ in rows if op == "aten::mul.Tensor") == 5


def test_nothing_is_read_while_a_graph_is_recorded(tmp_path, monkeypatch):
    recording = [False]
    monkeypatch.setattr(torch.sim, "is_current_stream_capturing", lambda: recording[0], raising=False)
    x = torch.ones(8).sim()
    with ulpscope.capture(tmp_path / "t") as capture:
        x + 1
        before = capture.recorder.session.counts()["bytes_read"]
        recording[0] = True
        y = x * 3
        recording[0] = False
        assert capture.recorder.session.counts()["bytes_read"] == before > 0
    assert torch.equal(y.cpu(), torch.full((8,), 3.0))
    times = next(c for c in calls_of(tmp_path / "t") if c["op"] == "aten::mul.Tensor")
    assert {(t["form"], t["blob"]) for t in times["tensors"] if t["device"] == "sim:0"} == {("graph", 0)}
    assert any("was recording a graph" in text for _, _, text in notes(tmp_path / "t"))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.second(torch.sin(self.first(x)))


class Stack(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x.sum()


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_calls_stand_under_the_module_that_runs(tmp_path, reentrant):
    net, x = Stack(reentrant), torch.ones(2, 4, requires_grad=True)
    with ulpscope.capture(tmp_path / "t"):
        net(x).backward()
    calls = calls_of(tmp_path / "t")
    for phase in ("forward", "backward"):
        sines = [c["module_path"] for c in calls if c["op"] == "aten::sin" and c["phase"] == phase]
        assert sorted(sines) == ["blocks.0", "blocks.1"], phase
        linear = {c["module_path"] for c in calls if c["op"] == "aten::addmm" and c["phase"] == phase}
        needed = {f"blocks.{i}.first" for i in (0, 1)}  # torch stops where it has what it needs
        assert needed <= linear <= needed | {f"blocks.{i}.second" for i in (0, 1)}, phase
    cosines = [c["module_path"] for c in calls if c["op"] == "aten::cos"]
    assert sorted(cosines) == ["blocks.0", "blocks.1"]


# ---- several Python threads ----------------------------------------------------------


def all_at_once(*works, rounds=200):
    def loop(work):
        for _ in range(rounds):
            with contextlib.suppress(RuntimeError, ValueError, _core.ArgError):
                work()

    threads = [threading.Thread(target=loop, args=(work,)) for work in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def test_two_threads_may_flush_and_close(tmp_path):
    for i in range(5):
        with ulpscope.capture(tmp_path / f"t{i}") as capture:
            session = capture.recorder.session
            torch.ones(3) + 1
        capture = ulpscope.capture(tmp_path / f"u{i}").__enter__()
        session = capture.recorder.session
        torch.ones(3) + 1
        all_at_once(session.flush, session.flush, lambda s=session: s.close(True), rounds=20)
        capture.recorder.session = None
        capture.hooks.remove()
        capture.recorder._unhook()
        assert calls_of(tmp_path / f"u{i}")


def test_two_threads_may_use_a_judge():
    x = torch.randn(20_000, dtype=torch.float64)
    judge = _core.Judge(x.float(), x, x.float())

    def appeal():
        judge.replay(x, x.float())
        judge.appeal(1.0)

    all_at_once(appeal, judge.look, lambda: judge.first(x, x.float()), rounds=50)
    judge.__init__(x.float(), x, x.float())
    assert judge.look()["n"] == 20_000


def test_a_call_on_wrapped_tensors_is_judged_by_the_calls_below(tmp_path):
    weight, x = torch.randn(4, 6), torch.randn(5, 6)

    def loss(w, v):
        return torch.nn.functional.linear(v, w).square().sum()

    with ulpscope.capture(tmp_path / "trace"):
        torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, x)
        torch.func.jvp(lambda v: torch.nn.functional.linear(v, weight), (x,), (x,))
    code, rows = check(tmp_path / "trace", tmp_path / "out", "sim:0")
    assert code == 0 and {verdict for _, verdict, _ in rows} == {"pass"}, rows
    assert {"aten::mm"} <= {op for op, _, _ in rows}
