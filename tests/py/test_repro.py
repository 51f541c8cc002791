# SPDX-License-Identifier: Apache-2.0
"""`ulpscope repro`: a call handed on as a script that torch alone runs, small and proven."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
import torch
from traces import TraceWriter

import ulpscope.reference
from ulpscope.session import repro as _repro
from ulpscope.program import glue, waiting

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


def script_of(trace, call, out, device=""):
    """The script alone, which nobody has tried."""
    options = _repro.Options([str(trace), str(call), device, str(out)])
    call, row, imports = _repro.read(options)
    out.mkdir()
    _repro.Folder(options, row, imports, call).script(str(out), _repro.ReproFailure(call))
    return out / "repro.py"


def tried(script, monkeypatch, *words, broken=None):
    """Exit code of a script that was written, in this process; `broken` stands for the run on the
    device under test."""
    text = script.read_text()
    assert len(text.splitlines()) <= 40
    if broken is not None:
        text = text.replace("ran = run(*arguments(", "ran = BREAK(run, *arguments(")
        assert "BREAK" in text
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    with pytest.raises(SystemExit) as ended:
        exec(compile(text, str(script), "exec"), {"__name__": "script", "__file__": str(script), "BREAK": broken})
    return int(ended.value.code)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write(tmp_path_factory.mktemp("repro") / "trace", CASES)


HOW = pytest.mark.parametrize("words", [[], ["--plain"]], ids=["ulpscope", "plain"])


@HOW
@pytest.mark.parametrize("i", range(len(CASES)), ids=lambda i: CASES[i][0])
def test_a_call_passes_where_it_was_captured(trace, tmp_path, monkeypatch, capsys, i, words):
    script = script_of(trace, i + 1, tmp_path / "again")
    assert tried(script, monkeypatch, *words) == 0, capsys.readouterr()


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


@HOW
@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_device_is_told(trace, tmp_path, monkeypatch, capsys, name, words):
    i, change = MISTAKES[name]

    def broken(run, args, kwargs):
        out, args, kwargs = run(args, kwargs)
        made = change(args[0] if out is None else out)
        return (None if out is None else made), args, kwargs

    script = script_of(trace, i + 1, tmp_path / "again")
    assert tried(script, monkeypatch, *words, broken=broken) == 1
    assert ("DIFFERS" in capsys.readouterr().out) == bool(words)


def run_script(folder, *words, env=None):
    return subprocess.run(
        [sys.executable, folder / "repro.py", *words],
        env=env or os.environ,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_the_script_needs_torch_alone_and_the_folder_can_move(tmp_path):
    big = torch.randn(300, 300)
    trace = write(tmp_path / "t", [("aten::mm", (big, big), {})])
    script_of(trace, 1, tmp_path / "big", "sim:0")
    (tmp_path / "big").rename(tmp_path / "elsewhere")
    folder, known = tmp_path / "elsewhere", os.environ
    clean = {k: v for k, v in known.items() if k not in ("PYTHONPATH", "ULPSCOPE_SIM_FAULTS")}
    clean["PYTHONSAFEPATH"] = "1"
    text = (folder / "repro.py").read_text()
    (folder / "repro.py").write_text(text.replace("['ulpscope.sim']", "[]"))
    on_cpu = run_script(folder, "--device", "cpu", env=clean)
    assert on_cpu.returncode == 0 and on_cpu.stdout.startswith("ok: [300, 300]"), on_cpu
    nowhere = run_script(folder, "--device", "sim:0", env=clean)
    assert nowhere.returncode == 2 and "could not be tried" in nowhere.stderr
    sim = ("--device", "sim:0", "--import", "ulpscope.sim")
    assert run_script(folder, *sim).returncode == 0
    told = run_script(folder, *sim, "--plain", env={**known, "ULPSCOPE_SIM_FAULTS": "mm:tf32"})
    assert told.returncode == 1 and "DIFFERS" in told.stdout


def test_a_registered_reference_is_the_truth(tmp_path, monkeypatch):
    @torch.library.custom_op("reproduced::halve", mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().to(x.dtype) / 2

    ulpscope.reference.register("reproduced::halve")(lambda x: x / 2)
    trace = write(tmp_path / "t", [("reproduced::halve", (X,), {})])
    assert tried(script_of(trace, 1, tmp_path / "own"), monkeypatch) == 1


ADAM = [[torch.randn(32, 16) for _ in range(3)] for _ in range(3)] + [[torch.rand(32, 16) for _ in range(3)]]
STEPS = [torch.tensor(3.0) for _ in range(3)]
RATES = {
    "lr": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "weight_decay": 0.01,
    "eps": 1e-8,
    "amsgrad": False,
    "maximize": False,
}
FAULTS = {
    "mm:tf32": (("aten::mm", (X, W), {}), "TF32"),
    "_softmax:bf16_intermediates": (("aten::_softmax", (torch.randn(4, 32, 32), -1, False), {}), "bfloat16"),
    "native_layer_norm:bf16_intermediates": (
        ("aten::native_layer_norm", (torch.randn(4, 16, 64), [64], W[0].clone(), W[1].clone(), 1e-5), {}),
        "bfloat16",
    ),
    "_fused_adamw_:step_plus_one": (("aten::_fused_adamw_", (*ADAM, [], STEPS), RATES), ""),
    "embedding:drop_tail:n=3": (("aten::embedding", (W, torch.randint(0, 64, (8, 16))), {}), ""),
    "argmax:swap_two": (("aten::argmax", (X, 1), {}), ""),
    "gelu:nan:index=5": (("aten::gelu", (X,), {}), ""),
}


def command(trace, out, faults="", device="sim:0"):
    planted = ["--faults", faults] if faults else []
    return subprocess.run(
        ["ulpscope", "repro", f"{trace}#1", "--device", device, "-o", out, *planted],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "ULPSCOPE_SIM_FAULTS": ""},
    )


def elements(folder):
    raw = (folder / "inputs.safetensors").read_bytes()
    first = 8 + int.from_bytes(raw[:8], "little")
    return sum(torch.Size(v["shape"]).numel() for v in json.loads(raw[8:first]).values())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_handed_on_small_and_proven(tmp_path, fault):
    case, cause = FAULTS[fault]
    trace = write(tmp_path / "t", [case])
    done = command(trace, tmp_path / "out", fault)
    assert done.returncode == 0 and "in a process of its own it fails" in done.stderr, done.stderr
    names = {"repro.py", "report.md", "inputs.safetensors", "device.safetensors", "reference.safetensors"}
    assert set(os.listdir(tmp_path / "out")) == names and set(os.listdir(tmp_path)) == {"t", "out"}
    given = script_of(trace, 1, tmp_path / "whole", "sim:0").parent
    assert elements(tmp_path / "out") < elements(given) / 2
    assert len((tmp_path / "out" / "repro.py").read_text().splitlines()) <= 40
    told = (tmp_path / "out" / "report.md").read_text()
    assert told.startswith(f"## `{case[0]}` on `sim:0`: ") and cause in told and "it fails (exit code 1)" in told
    assert f"planted faults: `{fault}`" in told
    alone = run_script(tmp_path / "out", env={**os.environ, "ULPSCOPE_SIM_FAULTS": fault})
    assert alone.returncode == 1, alone
    if fault.startswith("mm"):  # the fault, and nothing else, is what fails
        assert run_script(tmp_path / "out", env={**os.environ, "ULPSCOPE_SIM_FAULTS": ""}).returncode == 0


def test_an_honest_call_is_nothing_to_hand_on(tmp_path):
    done = command(write(tmp_path / "t", [CASES[0]]), tmp_path / "out")
    assert done.returncode == 2 and "aten::mm passes here, on sim:0: nothing to hand on" in done.stderr, done.stderr
    assert os.listdir(tmp_path) == ["t"]


def test_a_failure_that_does_not_come_again_is_told_as_such(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_repro, "captured", lambda *_: _repro.Verdict("wrong"))
    assert repro(write(tmp_path / "t", [CASES[0]]), 1, tmp_path / "out") == 0
    said = capsys.readouterr().err
    assert "NOT REPRODUCED" in said and "smaller" not in said
    for name in ("repro.py", "report.md"):
        assert "NOT REPRODUCED" in (tmp_path / "out" / name).read_text()


def test_without_the_device_what_was_captured_is_written(tmp_path):
    done = command(write(tmp_path / "t", [CASES[0]]), tmp_path / "out", device="npu:0")
    assert done.returncode == 0 and "NOT TRIED" in done.stderr, done.stderr
    assert "NOT TRIED" in (tmp_path / "out" / "repro.py").read_text()
    assert "on `npu:0`: unjudged" in (tmp_path / "out" / "report.md").read_text()


def test_a_call_that_kills_its_process_is_handed_on(tmp_path):
    done = command(write(tmp_path / "t", [CASES[0]]), tmp_path / "out", "mm:crash")
    assert done.returncode == 0 and "ends that process" in done.stderr, done.stderr
    assert ": crashed" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), OSError(28, "No space left on device", "x")], ids=repr)
def test_nothing_half_written_stays(tmp_path, monkeypatch, capsys, problem):
    def ends(*_):
        raise problem

    monkeypatch.setattr(_repro.Folder, "prove", ends)
    trace = write(tmp_path / "t", [CASES[0]])
    if isinstance(problem, OSError):
        assert repro(trace, 1, tmp_path / "out") == 2 and "No space left" in capsys.readouterr().err
    else:
        with pytest.raises(KeyboardInterrupt):
            repro(trace, 1, tmp_path / "out")
    assert os.listdir(tmp_path) == ["t"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    (folder / "there.py").write_text("mine")
    return write(
        folder / "t",
        [
            ("aten::mm", (X, W), {}),
            ("aten::bernoulli", (X,), {}),
            ("aten::empty.memory_format", ([4],), {}),
            ("no::such", (X,), {}),
        ],
    )


@pytest.mark.parametrize(
    "call, said",
    [
        (99, "99"),
        (2, "draws random"),
        (3, "nobody has written"),
        (4, "unknown here"),
    ],
)
def test_what_cannot_be_a_script_is_refused(odd, tmp_path, capsys, call, said):
    assert repro(odd, call, tmp_path / "new") == 2 and said in capsys.readouterr().err
    assert not os.listdir(tmp_path)


def test_a_function_under_autocast_is_told_by_the_operators_below(tmp_path, capsys):
    with ulpscope.capture(tmp_path / "t", level="api,aten"), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.nn.functional.linear(X, W.t().contiguous())
    assert repro(tmp_path / "t", 1, tmp_path / "new") == 2 and "name an operator below it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        (["t"], "t names no call; write t#SEQUENCE"),
        ([], "one call"),
        (["t#1", "--device", "python:a:b"], "one that torch has"),
        (["t#1", "t#2"], "one call"),
        (["t#1", "-o", "there.py"], "there.py is there already"),
        (["t#1", "-o", "t", "--force"], "no repro.py that --force"),
        (["t#x"], "t#x names no call"),
        (["t#1", "--device", "cuda:0", "--faults", "mm:tf32"], "only the simulated device"),
        (["t#1", "--dvice", "cpu"], "did you mean --device?"),
        (["t#1", "-o"], "needs a value"),
    ],
)
def test_options_that_cannot_be_are_refused_before_python_starts(odd, words, said):
    done = subprocess.run(
        ["ulpscope", "repro", *words],
        capture_output=True,
        text=True,
        cwd=odd.parent,
        env={**os.environ, "ULPSCOPE_PYTHON": "/nowhere"},
        timeout=60,
    )
    assert done.returncode == 2 and said in done.stderr and done.stderr.startswith("ulpscope repro: ")
    assert done.stderr.count("\n") == 1 and (odd.parent / "there.py").read_text() == "mine"


def test_what_takes_its_time_says_what_it_is_at(monkeypatch, capsys):
    """A word where a part takes longer than anybody waits, none where all goes fast."""
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.2)
    w = waiting.Waiting()
    w.at("nobody asked")
    w.begin("repro", "loading")
    w.at("reading")
    time.sleep(0.5)
    w.at("judging")
    w.end()
    time.sleep(0.3)
    assert capsys.readouterr().err == "ulpscope repro: reading ...\n"
    monkeypatch.setattr(waiting, "AGAIN_S", 0.2)
    w.at("waiting")
    time.sleep(0.7)
    w.end()
    first, again, *_ = capsys.readouterr().err.splitlines()  # for how long, as long as it lasts
    assert first == "ulpscope repro: waiting ..." and re.fullmatch(r"ulpscope repro: waiting \.\.\. \(\d s\)", again)


def test_the_command_writes_the_folder(odd, tmp_path):
    (tmp_path / "beside.py").write_text("")  # a module by its name, as `check --import` takes it
    done = subprocess.run(
        [
            "ulpscope",
            "repro",
            f"{odd}#1",
            "--import",
            "colorsys",
            "--import",
            "beside",
            "--import",
            glue.PACKAGE / "libulpscope.so",  # as one of an extension in C++
            "--device=sim:0",
            "--faults",
            "mm:scale",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0 and f"{tmp_path}/repro-1: aten::mm" in done.stderr, done.stderr
    assert "NOT TRIED" not in done.stderr
    assert f"sys.path.append({str(tmp_path)!r}) or " in (tmp_path / "repro-1" / "repro.py").read_text()
    again = ["ulpscope", "repro", f"{odd}#1", "--device=sim:0", "--faults", "mm:nan"]
    done = subprocess.run(again, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 2 and "or give --force to replace it" in done.stderr
    done = subprocess.run([*again, "--force"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0 and "`mm:nan`" in (tmp_path / "repro-1" / "report.md").read_text(), done.stderr
    gone = subprocess.run(
        ["ulpscope", "repro", f"{odd}/none#1", "-o", tmp_path / "x"], capture_output=True, text=True, timeout=120
    )
    assert gone.returncode == 2 and "no such" in gone.stderr and not (tmp_path / "x").exists()


def test_a_call_that_keeps_its_shapes_is_not_called_smaller():
    assert _repro.made_smaller("float32[1, 8]", "float32[32, 128]") == "made smaller: float32[1, 8] of float32[32, 128]"
    assert _repro.made_smaller("float32[7, 7]", "float32[7, 7]") == "made simpler in its values: float32[7, 7]"
