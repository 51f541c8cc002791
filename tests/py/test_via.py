# SPDX-License-Identifier: Apache-2.0
"""Runtimes behind `--via NAME`, with none installed: what is not there is a sentence, a runtime of a package's entry
points
is found, honest ones pass whatever a call writes or hands through, wrong ones are accused, and one that prints, refuses
or ends the process costs the calls that it was given."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from calls import make_call
from test_check_run import check, rows
from traces import TraceWriter

from ulpscope.executors import via
from ulpscope.executors.compiled import CompiledDevice
from ulpscope.executors.device import UnknownDevice, open_device
from ulpscope.executors.via.runtime import Runtime
from ulpscope.fuzzing import fuzz, ints, tensor
from ulpscope.session.api import check_call
from ulpscope.session.judging import judge_call
from ulpscope.testing import assert_accurate

ROOT = Path(__file__).resolve().parents[2]


class Honest(Runtime):
    options = {"half": "results lose bits"}

    def compile(self, graph, inputs):
        def run(*tensors):
            results = [t.clone() for t in graph(*tensors)]
            return [t.bfloat16().to(t.dtype) for t in results] if self.option == "half" else results

        return run


class Refusing(Runtime):
    def compile(self, graph, inputs):
        raise ValueError("Check 'x' failed at src/a.cpp:151: illegal\n  layout")


class Lossy(Honest):
    def compile(self, graph, inputs):
        run = super().compile(graph, inputs)
        return lambda *tensors: run(*tensors)[1:]


class NoNorms(Honest):
    def compile(self, graph, inputs):
        if any("native_layer_norm" in str(node.target) for node in graph.graph.nodes):
            raise NotImplementedError("no rule for native_layer_norm")
        return super().compile(graph, inputs)


class Entry:
    def __init__(self, made):
        self.load = lambda: made


@pytest.fixture(autouse=True)
def entries(monkeypatch):
    made = {c.__name__.lower(): Entry(c) for c in (Honest, Refusing, Lossy, NoNorms, NoKernels, Unscaled)}
    monkeypatch.setattr(via, "_entry_points", lambda: made)


def judged(name, *call, **kwargs):
    return judge_call(make_call(*call, **kwargs), CompiledDevice("cpu", name))


@pytest.mark.parametrize("name", via.OWN)
def test_what_is_not_installed_is_one_sentence(name, monkeypatch):
    runtime = via._class(name)
    monkeypatch.setattr(runtime, "packages", {"no_such_module": "no-such-package"})
    with pytest.raises(
        UnknownDevice, match=f"--via {name} needs a package that is not installed: pip install no-such-pack"
    ):
        open_device("cpu", via=name)
    monkeypatch.setattr(runtime, "packages", {})
    refuses = (
        "takes functions that launch Triton" if name == "triton" else "runs on the CPU: use --device cpu, not sim:0"
    )
    with pytest.raises(UnknownDevice, match=f"--via {name} {refuses}"):
        open_device("sim:0", via=name)
    with pytest.raises(UnknownDevice, match=f"--via {name}:no: {name} has no option no; "):
        open_device("cpu", via=f"{name}:no")


def test_extras_name_what_runtimes_need():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name: set(extras[name]) for name in via.OWN} == {
        name: set(via._class(name).packages.values()) for name in via.OWN
    }


def test_calls_that_write_hand_through_or_give_nothing():
    x, y = torch.randn(8, 6), torch.randn(8, 6)
    for call, out in (
        (("aten::mul.Tensor", x, y), None),
        (("aten::add_.Tensor", x.clone(), y), None),
        (("aten::copy_", x.clone(), y), None),
        (("aten::mul.out", x, y), torch.zeros(8, 6)),
        (("aten::native_layer_norm", x, [6], None, None, 1e-5), None),
        (("aten::view", x, [48]), None),
    ):
        verdict = judged("honest", *call, **({} if out is None else {"out": out}))
        assert verdict.verdict == "pass", (call[0], verdict.reason)
    assert judged("honest:half", "aten::add_.Tensor", x.clone(), y).verdict in ("reduced", "wrong")


def test_refusals_and_lost_results():
    refused = judged("refusing", "aten::exp", torch.randn(5))
    assert (refused.verdict, refused.reason) == ("unsupported", "refusing does not support it: illegal layout")
    lost = judged("lossy", "aten::exp", torch.randn(5))
    assert lost.verdict == "unsupported" and "lossy gives 0 results where 1 are due" in lost.reason


def test_a_norm_is_handed_on_as_it_is_called():
    verdict = judged("nonorms", "aten::native_layer_norm", torch.randn(4, 8), [8], torch.rand(8), None, 1e-5)
    assert verdict.verdict == "pass"
    assert verdict.notes == ["nonorms is given what torch takes it apart into: no rule for native_layer_norm"]


class NoKernels(Honest):
    """Knows attention as models call it, and takes its kernel apart by torch's table, which gives other strides and
    another second result."""

    def compile(self, graph, inputs):
        if any("flash_attention" in str(node.target) for node in graph.graph.nodes):
            raise NotImplementedError("no rule for the kernel")
        return super().compile(torch.export.export(graph, tuple(inputs)).run_decompositions().module(), inputs)


class Unscaled(NoKernels):
    def compile(self, graph, inputs):
        for node in graph.graph.nodes:
            if node.target is torch.ops.aten.logsumexp.default:
                node.target, node.args = torch.ops.aten.amax.default, (*node.args,)
        graph.recompile()
        return super().compile(graph, inputs)


@pytest.mark.parametrize("name, causal, heads, masked", [("nokernels", True, 2, False), ("nokernels", False, 4, True)])
def test_attention_is_handed_on_as_it_is_called(name, causal, heads, masked):
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    q, k, v = torch.randn(2, 12, 4, 8).transpose(1, 2), torch.randn(2, heads, 10, 8), torch.randn(2, heads, 10, 8)
    mask = torch.randn(2, 1, 12, 10) if masked else None

    def attend(q, k, v):
        out, logsumexp = flash(q, k, v, 0.0, causal, attn_mask=mask)
        return out.transpose(1, 2).view(2, 12, 32), logsumexp

    assert check_call(attend, (q, k, v), via=name, cause=False).verdict == "pass"
    wrong = check_call(attend, (q, k, v), via="unscaled", cause=False)
    assert [o.verdict for o in wrong.outputs] == ["pass", "wrong"]


def double(x):
    return x.sin() * 2


def broken_up(x):
    return x * 2 if float(x.sum()) > 0 else x


@pytest.mark.parametrize(
    "function, name, backward, verdict",
    [
        (double, "honest", False, "pass"),
        (double, "honest", True, "pass"),
        (double, "aot_eager", True, "pass"),
        (double, "honest:half", False, "reduced"),
        (double, "refusing", False, "unsupported"),
        (double, "refusing", True, "unsupported"),
        (broken_up, "honest", False, "unsupported"),  # in two graphs, with a test of torch's own between them
        (lambda x: x, "honest", False, "unsupported"),  # no graph at all
        (torch.nn.Linear(6, 4), "honest", True, "pass"),
        (torch.nn.Linear(6, 4), "honest:half", True, "reduced"),
    ],
)
def test_a_callable_as_a_whole(function, name, backward, verdict):
    torch.compiler.reset()
    found = check_call(function, (torch.randn(8, 6),), via=name, backward=backward, cause=False)
    assert found.verdict == verdict, found
    if verdict == "unsupported":
        with pytest.raises(AssertionError, match=name):
            assert_accurate(function, None, torch.randn(8, 6), via=name)


def test_callables_that_no_runtime_takes():
    with pytest.raises(ValueError, match="torch.compile has no backend nobody; known here: "):
        check_call(torch.sin, (torch.randn(4),), via="nobody")


def test_a_text_and_its_gradients():
    for name in ("honest", "honest:half"):

        @fuzz(n=2, devices=["cpu"], via=name, cause=False, shrink=False)
        def text():
            x = tensor(ints(1, 5), 8)
            return (x.sin() * x).sum(1)

        if name == "honest":
            text()
            assert text.ran["taken"] == 2
        else:
            with pytest.raises(AssertionError, match="reduced|wrong"):
                text()


RUDE = """
import os
import signal
import time

import torch
from ulpscope.executors.via.runtime import Runtime


def omp():
    os.write(2, b"\\x1b[31mOMP: Error #15: found libomp.so\\xff already initialized.\\n\\n")
    os.abort()


def hang():
    while True:
        time.sleep(1)


def close_all():
    os.closerange(3, 64)


ACTS = {
    "tanh": os.abort,
    "cosh": lambda: os._exit(0),
    "sinh": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exp2": hang,
    "log2": omp,
    "log10": exit,
    "asin": close_all,
    "erf": lambda: torch.set_flush_denormal(True),
    "log1p": lambda: torch.set_num_threads(7),
    "atan": lambda: torch.set_default_dtype(torch.float64),
    "acos": lambda: torch.set_float32_matmul_precision("medium"),
    "expm1": lambda: os.chdir("/"),
}


class Rude(Runtime):
    def versions(self):
        return {"rude": "7"}

    def compile(self, graph, inputs):
        os.write(1, b"{not json\\n")

        def run(*tensors):
            for name, act in ACTS.items():
                if f"aten.{name}." in str(graph.graph):
                    act()
            return [t.clone() for t in graph(*tensors)]

        return run
"""
# What a runtime does within a call of an operator, and what becomes of that call: verdict, part of the sentence.
COSTS = {
    "tanh": ("crashed", "died of SIGABRT while compiling; it last wrote: {not json"),
    "cosh": ("crashed", "left with exit code 0"),
    "sinh": ("crashed", "died of SIGKILL"),
    "exp2": ("timeout", "no answer from the device in 4 s"),
    "log2": ("crashed", "it last wrote: [31mOMP: Error #15: found libomp.so already initialized."),
    "log10": ("crashed", "left with exit code 0"),
    "asin": ("crashed", ""),
}
# What it leaves changed is put back, and told: calls behind it are judged as if alone.
LEFT = {
    "erf": "the processor's modes of rounding and subnormals",
    "log1p": "torch's number of threads",
    "atan": "torch's default dtype",
    "acos": "torch's float32 matmul precision",
    "expm1": "",
}


def package(folder, name, version, module=""):
    """What pip leaves of a package that brings a runtime."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if module:
        (info / "entry_points.txt").write_text(f"[ulpscope.via]\nrude = {module}\n")


def test_a_runtime_of_bad_manners_costs_its_own_calls(tmp_path, monkeypatch):
    (tmp_path / "rude.py").write_text(RUDE)
    package(tmp_path, "rude", "7", "rude:Rude")
    tiny = torch.full((50,), 1e-30), torch.full((50,), 1e-10)  # whose product is a subnormal
    with TraceWriter(tmp_path / "trace") as t:
        for op in ("exp", *COSTS, "cos", *LEFT):
            t.add(f"aten::{op}", torch.rand(50))
            t.add("aten::mul.Tensor", *tiny)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    words = ("--via", "rude", "--timeout", "4", "-j", "1")
    run = check(tmp_path / "trace", tmp_path / "out", *words, device="cpu")
    assert run.returncode == 1, run.stderr
    said = rows(tmp_path / "out")
    of = {r["op"].partition("::")[2]: r for r in said}
    assert {r["verdict"] for r in said if r["op"] == "aten::mul.Tensor"} == {"pass"}
    assert {op: of[op]["verdict"] for op in of} == {op: COSTS.get(op, ("pass", ""))[0] for op in of}
    assert all(part in of[op]["sentence"] for op, (_, part) in COSTS.items()), {o: of[o]["sentence"] for o in COSTS}
    for op, what in LEFT.items():
        notes = of[op]["notes"] or ""
        assert (f"it leaves {what} changed in its process, which was put back" in notes) == bool(what), (op, notes)


def test_two_versions_of_one_runtime(tmp_path, monkeypatch):
    """Of several on the path that beside the module counts; where two lie there, or two packages bring one name, it is
    refused with the way on."""
    near, far = tmp_path / "near", tmp_path / "far"
    package(near, "rude", "2")
    package(far, "rude", "1")
    (near / "rude.py").touch()
    for home in (near, far):  # `far` is asked first
        monkeypatch.syspath_prepend(str(home))
    monkeypatch.setattr(Honest, "packages", {"rude": "rude[cpu]"})
    assert via.versions("honest") == {"rude[cpu]": "2"}
    package(near, "rude", "3")
    with pytest.raises(UnknownDevice, match=r"2 versions of rude .*near \(2, 3\), and which .*: pip uninstall rude"):
        open_device("cpu", via="honest")


def test_two_packages_that_bring_one_name(tmp_path, monkeypatch):
    monkeypatch.undo()  # of what `entries` set
    for name in ("one", "other"):
        package(tmp_path, name, "1", f"{name}:Made")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnknownDevice, match="rude cannot be imported: .*several packages bring it .*uninstall all but"):
        open_device("cpu", via="rude")


def test_a_name_that_is_nobodys():
    done = subprocess.run(
        ["ulpscope", "fuzz", "--device", "cpu", "--via", "inducer", "--cases", "1"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "openvino" in done.stderr
