# SPDX-License-Identifier: Apache-2.0
"""`ulpscope repro`: a call as a script that torch alone runs, honest devices and wrong ones."""

import os
import subprocess
import sys

import pytest
import torch
from traces import TraceWriter

import ulpscope.reference
from ulpscope.session import repro as _repro

torch.manual_seed(11)
W = torch.randn(64, 64)
X, LOW = torch.randn(16, 64), torch.randn(16, 64).bfloat16()
FLAT = torch.randn(200)
Z = torch.randn(4, 4, dtype=torch.complex64)
OPS = torch.ops.aten
CASES = [
    ("aten::mm", (X, W.t()), {}),
    ("aten::linear", (LOW, W.bfloat16(), None), {}),
    ("aten::mm", (Z, Z.conj()), {}),
    ("aten::mul.Tensor", (FLAT[8:72].view(8, 8), FLAT[40:104].view(8, 8)), {}),  # one storage
    ("aten::sum.dim_IntList", (LOW, [1], True), {"dtype": torch.float32}),
    ("aten::argmax", (X, 1), {}),
    ("aten::where.self", (X > 0, X, torch.tensor(float("-inf"))), {}),
    ("aten::_softmax", (X, -1, False), {}),
    ("aten::native_layer_norm", (X, [64], W[0], W[1], 1e-5), {}),
    ("aten::full_like", (X, float("inf")), {"dtype": torch.float16, "device": torch.device("cpu")}),
    ("aten::index.Tensor", (W, [None, torch.tensor([3, 1])]), {}),
    ("aten::add_.Tensor", (X.clone(), X), {"alpha": 0.1}),
    ("aten::_foreach_add_.Scalar", ([X.clone(), W.clone()], 2.0), {}),
    ("aten::clone", (X.t(),), {"memory_format": torch.contiguous_format}),
    ("aten::sigmoid", (torch.empty(0, 3),), {}),
]


def write(folder, cases):
    with TraceWriter(folder) as t:
        for op, args, kwargs in cases:
            t.add(op, *args, **kwargs)
    return folder


def repro(trace, call, out, device=""):
    """What the command says, by its main behind the program."""
    return _repro.main([str(trace), str(call), device, str(out)])


def tried(script, monkeypatch, *words):
    """Exit code of a script that was written, in this process."""
    space = {"__name__": "script", "__file__": str(script)}
    exec(compile(script.read_text(), str(script), "exec"), space)
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    return space["main"]()


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write(tmp_path_factory.mktemp("repro") / "trace", CASES)


@pytest.mark.parametrize("i", range(len(CASES)), ids=lambda i: CASES[i][0])
def test_a_call_passes_where_it_was_captured(trace, tmp_path, monkeypatch, capsys, i):
    script = tmp_path / "again.py"
    assert repro(trace, i + 1, script) == 0
    assert tried(script, monkeypatch) == 0, capsys.readouterr().out
    assert "DIFFERS" not in capsys.readouterr().out


def wrong(op, change):
    """The operator with a mistake in its results or written arguments."""
    def made(*args, **kwargs):
        out = op(*args, **kwargs)
        return change(args[0] if out is None else out)

    return made


MISTAKES = {
    "bfloat16 inside": (0, lambda t: t.bfloat16().to(t.dtype)),
    "one element": (7, lambda t: t.index_put((torch.tensor(3),) * 2, torch.tensor(0.5))),
    "shape": (0, lambda t: t[:-1]),
    "dtype": (0, lambda t: t.double()),
    "NaN": (7, lambda t: t.masked_fill(t == t.max(), float("nan"))),
    "an index": (5, lambda t: t.roll(1)),
    "in place": (11, lambda t: t.mul_(1.01)),
    "one of a list": (12, lambda ts: ts[1].add_(1e-3)),
    "low precision": (1, lambda t: t + 0.05 * t),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_device_is_told(trace, tmp_path, monkeypatch, capsys, name):
    i, change = MISTAKES[name]
    script = tmp_path / "again.py"
    assert repro(trace, i + 1, script) == 0
    text = script.read_text()
    # The device under test is every run but those of the truth, which come first.
    broken = text.replace("got = run(data, options.device)", "got = BREAK(run, data, options.device)")
    assert broken != text
    space = {"__name__": "script", "__file__": str(script)}
    exec(compile(broken, str(script), "exec"), space)

    def run_broken(run, data, device):
        right = space["operator"]
        space["operator"] = lambda op: wrong(right(op), change)
        try:
            return run(data, device)
        finally:
            space["operator"] = right

    space["BREAK"] = run_broken
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert space["main"]() == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_the_script_needs_torch_alone_and_may_have_a_file_beside_it(tmp_path):
    big = torch.randn(300, 300)
    trace = write(tmp_path / "t", [("aten::mm", (big, big), {})])
    assert repro(trace, 1, tmp_path / "big.py", "sim:0") == 0
    (tmp_path / "elsewhere").mkdir()
    for name in ("big.py", "big.safetensors"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ULPSCOPE_SIM_FAULTS")}

    def run(env, *words):
        return subprocess.run([sys.executable, tmp_path / "elsewhere" / "big.py", *words], env=env,
                              capture_output=True, text=True, timeout=120)  # fmt: skip

    text = (tmp_path / "elsewhere" / "big.py").read_text()
    assert "import ulpscope" not in text
    (tmp_path / "elsewhere" / "big.py").write_text(text.replace("['ulpscope.sim']", "[]"))
    on_cpu = run({**clean, "PYTHONSAFEPATH": "1"}, "--device", "cpu")
    assert on_cpu.returncode == 0, on_cpu.stdout + on_cpu.stderr
    nowhere = run(clean, "--device", "sim:0")
    assert nowhere.returncode == 2 and "could not be tried" in nowhere.stderr
    sim = ("--device", "sim:0", "--import", "ulpscope.sim")
    assert run({**clean, "PYTHONPATH": os.environ["PYTHONPATH"]}, *sim).returncode == 0
    faulty = {**clean, "PYTHONPATH": os.environ["PYTHONPATH"], "ULPSCOPE_SIM_FAULTS": "mm:tf32"}
    told = run(faulty, *sim)
    assert told.returncode == 1 and "DIFFERS out[0]" in told.stdout
    crash = run({**faulty, "ULPSCOPE_SIM_FAULTS": "mm:crash"}, *sim)
    assert crash.returncode < 0  # a call that kills the device's process does so here


def test_a_registered_reference_is_the_truth(tmp_path, monkeypatch, capsys):
    @torch.library.custom_op("reproduced::halve", mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().to(x.dtype) / 2

    ulpscope.reference.register("reproduced::halve")(lambda x: x / 2)
    trace = write(tmp_path / "t", [("reproduced::halve", (X,), {})])
    assert repro(trace, 1, tmp_path / "own.py") == 0
    assert tried(tmp_path / "own.py", monkeypatch) == 1
    assert "DIFFERS" in capsys.readouterr().out


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    (folder / "there.py").write_text("mine")
    return write(folder / "t", [
        ("aten::mm", (X, W), {}), ("aten::bernoulli", (X,), {}), ("aten::empty.memory_format", ([4],), {}),
        ("no::such", (X,), {})])  # fmt: skip


@pytest.mark.parametrize("call, said", [
    (99, "99"), (2, "draws random"), (3, "nobody has written"), (4, "unknown here"),
])  # fmt: skip
def test_what_cannot_be_a_script_is_refused(odd, tmp_path, capsys, call, said):
    assert repro(odd, call, tmp_path / "new.py") == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "new.py").exists()


@pytest.mark.parametrize("words, said", [
    (["t"], "t names no call; write t#SEQUENCE"), (["t#1", "-o", "x.txt"], "ends in .py"), ([], "one call"),
    (["t#1", "--device", "python:a:b"], "one that torch has"), (["t#1", "t#2"], "one call"),
    (["t#1", "-o", "there.py"], "there.py is there already"), (["t#x"], "t#x names no call"),
    (["t#1", "--dvice", "cpu"], "did you mean --device?"), (["t#1", "-o"], "needs a value"),
])  # fmt: skip
def test_options_that_cannot_be_are_refused_before_python_starts(odd, words, said):
    done = subprocess.run(["ulpscope", "repro", *words], capture_output=True, text=True, cwd=odd.parent,
                          env={**os.environ, "ULPSCOPE_PYTHON": "/nowhere"}, timeout=60)  # fmt: skip
    assert done.returncode == 2 and said in done.stderr and done.stderr.startswith("ulpscope repro: ")
    assert done.stderr.count("\n") == 1 and (odd.parent / "there.py").read_text() == "mine"


def test_the_command_writes_the_script(odd, tmp_path):
    done = subprocess.run(["ulpscope", "repro", f"{odd}#1", "--import", "colorsys", "--device=cpu"],
                          capture_output=True, text=True, cwd=tmp_path, timeout=120)  # fmt: skip
    assert done.returncode == 0 and "aten::mm in repro-1.py" in done.stderr, done.stderr
    text = (tmp_path / "repro-1.py").read_text()
    assert "OPERATOR, DEVICE, IMPORTS = 'aten::mm', 'cpu', ['colorsys']" in text
    gone = subprocess.run(["ulpscope", "repro", f"{odd}/none#1", "-o", tmp_path / "x.py"],
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert gone.returncode == 2 and "no such" in gone.stderr


def test_the_example_in_the_body_runs(monkeypatch, capsys):
    from pathlib import Path

    assert tried(Path(_repro.repro_script.__file__), monkeypatch) == 0
