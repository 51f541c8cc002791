# SPDX-License-Identifier: Apache-2.0
"""`./run via NAME`: words of short programs give there what torch gives, or are refused with a sentence; what is
judged right
or wrong of a few calls is what it is; `check --via` of a small step, whole modules too. Needs the runtime."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "py"), str(ROOT / "tests" / "via")]

from calls import make_call  # noqa: E402
from selections import picks  # noqa: E402

from ulpscope import _core, capture  # noqa: E402
from ulpscope.executors import via  # noqa: E402
from ulpscope.executors.compiled import CompiledDevice  # noqa: E402
from ulpscope.executors.module_call import all_values, module_call  # noqa: E402
from ulpscope.executors.via.graphs import HandedOn, Unsupported  # noqa: E402
from ulpscope.fuzzer import words  # noqa: E402
from ulpscope.fuzzer.short_programs import made  # noqa: E402
from ulpscope.session.api import check_call  # noqa: E402
from ulpscope.session.departing import first_flagged  # noqa: E402
from ulpscope.session.judging import judge_call  # noqa: E402

NAME = os.environ.get("ULPSCOPE_VIA", "")
runtime = pytest.mark.skipif(
    NAME not in via.OWN or NAME == "triton", reason="for runtimes that take graphs: ./run via NAME"
)
triton = pytest.mark.skipif(NAME != "triton", reason="./run via triton")
EVERY = 40  # a word of so many; all of them take from half a minute to an hour
BF16 = {"openvino": ":f32"}  # whose own default is another precision
# What is wrong there indeed: examples/found, docs/reference/via.md.
WRONG = {"aten::expm1": {"openvino", "tvm", "litert", "onnxruntime", "tinygrad"}, "aten::native_layer_norm": {"tvm"}}


def module_of(text):
    function = made(f"def program(a, b, c):\n    return {text}\n", f"<word {text}>")

    class Word(torch.nn.Module):
        def forward(self, a, b, c):
            return (function(a, b, c),)

    return Word(), function


def same(word):
    """Whether a word gives there what it gives here; None where that runtime has none of it."""
    text, names = words.sampled(word)
    module, function = module_of(text)
    args = tuple(names[n] for n in "abc")
    try:
        (got,) = HandedOn(via.opened(NAME + BF16.get(NAME, "")), module)(*args)
    except (Unsupported, RuntimeError, TypeError, ValueError):
        return None
    want = function(*args)
    return got.shape == want.shape and torch.allclose(got.double(), want.double(), 1e-3, 1e-3, True)


@runtime
def test_words_are_the_same_functions():
    said = {words.WORDS[i][1]: same(i) for i in range(0, len(words.WORDS), EVERY)}
    assert sum(v is True for v in said.values()) > 2 and False not in said.values(), said


@runtime
def test_verdicts_of_calls():
    torch.manual_seed(3)
    device = CompiledDevice("cpu", NAME + BF16.get(NAME, ""))
    x = torch.randn(6, 32)
    said = {}
    for op, *args in (
        ("aten::mm", x, torch.randn(32, 10)),
        ("aten::exp", x),
        ("aten::add_.Tensor", x.clone(), torch.randn(6, 32)),
        ("aten::_softmax", x, 1, False),
        ("aten::native_layer_norm", x, [32], torch.rand(32), torch.randn(32), 1e-5),
        ("aten::expm1", x * 1e-4),
        ("aten::linalg_svdvals", x),
    ):
        verdict = judge_call(make_call(op, *args), device)
        said[op] = verdict.verdict if verdict.verdict != "unsupported" else verdict.reason
    refused = {op: why for op, why in said.items() if why not in ("pass", "wrong")}
    assert {op for op, v in said.items() if v == "wrong"} == {op for op, who in WRONG.items() if NAME in who}, said
    assert all(f"{NAME} does not support it: " in why for why in refused.values()) and len(refused) <= 2, refused
    assert "aten::mm" not in refused


def test_its_name_is_known():
    assert NAME in via.OWN  # else nothing here would run


@runtime
def test_versions_are_told():
    assert all(via.versions(NAME).values())


@runtime
def test_a_callable_and_its_gradients():
    how = {"via": NAME + BF16.get(NAME, ""), "backward": True, "cause": False}
    found = check_call(lambda x, w: torch.tanh(x @ w), (torch.randn(4, 8), torch.randn(8, 5)), **how)
    assert found.verdict == "pass", found


@pytest.mark.skipif(NAME != "jax", reason="./run via jax")
def test_a_wrong_runtime_is_found(tmp_path):
    """JAX's gammaln near its roots is off by hundreds of ulps (examples/found/jax_gammaln.py); its neg is right."""
    (tmp_path / "spec.jsonl").write_text(
        '{"op": "aten::lgamma", "args": [{"shape": [400], "range": [1.9, 2.1]}]}\n'
        '{"op": "aten::neg", "args": [{"shape": [400]}]}\n'
    )
    words = "ulpscope fuzz --device cpu --via jax --spec spec.jsonl --cases 10 -j 1 --causes off --json".split()
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert {json.loads(line)["op"] for line in done.stdout.splitlines()} == {"aten::lgamma"}


@triton
def test_triton_kernels_on_the_cpu():
    import kernels
    from ulpscope.testing import assert_accurate

    x = torch.randn(8, 50)
    torch_softmax = lambda t: torch.softmax(t, 1)  # noqa: E731
    how = {"cause": False, "via": "triton"}
    assert check_call(kernels.add, (x, x), reference=torch.add, **how).passed
    assert check_call(kernels.scale_, (x.clone(),), reference=lambda t: t.mul_(3), **how).passed
    assert assert_accurate(kernels.softmax, torch_softmax, x, **how).passed
    assert check_call(kernels.softmax, (x * 60,), reference=torch_softmax, **how).verdict == "nonfinite"  # no maximum
    thrice = lambda t: t * 3  # noqa: E731
    assert check_call(kernels.scaled, (x,), reference=thrice, backward=True, **how).passed
    wrong = check_call(kernels.scaled_wrongly, (x,), reference=thrice, backward=True, **how)
    assert [o.verdict for o in wrong.outputs] == ["pass", "wrong"]


@triton
def test_what_triton_refuses_or_dies_of():
    import kernels

    x, how = torch.randn(8, 50), {"reference": torch.neg, "cause": False, "via": "triton"}
    refused = check_call(kernels.of_the_gpu, (x,), **how)
    assert refused.verdict == "unsupported" and not refused.passed
    assert "Triton's interpreter does not support it: " in refused.sentence and "inline_asm" in refused.sentence
    dead = check_call(kernels.far_away, (torch.randn(64),), **how)
    assert dead.verdict == "crashed" and "Triton's interpreter ended with code -11" in dead.sentence
    with pytest.raises(RuntimeError, match="ValueError: this kernel wants 7 rows"):
        check_call(kernels.picky, (x,), **how)
    with pytest.raises(ValueError, match="finds functions of a module or script by their name alone"):
        check_call(lambda t: -t, (x,), **how)
    with pytest.raises(ValueError, match="--via triton takes functions that launch Triton kernels, no operators"):
        CompiledDevice("cpu", "triton")


class Small(torch.nn.Module):
    """A forward in which one operator is that which runtimes have wrong."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)

    def forward(self, x):
        h = torch.tanh(self.up(x)) * 1e-4
        return self.down(torch.expm1(h).abs() * 1e4).sigmoid()


@pytest.mark.skipif(not (NAME in via.OWN and via.taps(NAME)), reason="for runtimes with taps: ./run via onnxruntime")
def test_taps_and_cuts_name_the_operator(tmp_path):
    torch.manual_seed(3)
    model, x = Small(), torch.randn(20, 16)
    with capture(tmp_path / "trace"), torch.no_grad():
        model(x)
    trace = _core.Trace(str(tmp_path / "trace"))
    (found,) = [f for f in picks(tmp_path / "trace", "cpu", modules=True) if f.path == ""]
    whole = all_values(found.module, trace.call)
    call, rows = module_call(whole, trace.call, trace.blob), [trace.call(s) for s in whole["calls"]]
    at = first_flagged(call, judge_call(call, CompiledDevice("cpu", NAME + BF16.get(NAME, ""))), rows)
    assert rows[at - 1]["op"] == "aten::expm1"
    how = "--device", "cpu", "--via", NAME + BF16.get(NAME, ""), "--bisect", "--causes", "off", "-o", "out", "-j", "1"
    done = subprocess.run(
        ["ulpscope", "check", "trace", *how], cwd=tmp_path, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 1, done.stdout + done.stderr
    with closing(sqlite3.connect(tmp_path / "out" / "result.db")) as db:
        said = dict(db.execute("select op, culprit from verdict"))
    assert said["module:(model)"] == "aten::expm1", said
