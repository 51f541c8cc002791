# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz --programs`: short programs go together, are the same each time, pass where they are computed
right and are found where a compiler fuses wrongly; their scripts fail alone."""

import base64
import json
import linecache
import os
import subprocess
import sys
import textwrap
import zlib

import pytest
import torch

from ulpscope import _core
from ulpscope.calls.callable import call_of, same_bytes
from ulpscope.calls.replay import BadCall, base_name
from ulpscope.executors.device import PythonDevice
from ulpscope.fuzzer import short, short_script
from ulpscope.fuzzer.fuzz_repro import judged, run_alone
from ulpscope.session.judging import judge_call
from ulpscope.fuzzer import short_programs, words

# A compiler that is right of each operator alone and wrong of two: a product that goes on is rounded to bfloat16.
WRONG = """
import operator
import torch
from torch._dynamo import register_backend

@register_backend
def fuses(module, inputs):
    for node in list(module.graph.nodes):
        given = node.args[0] if node.args else None
        if getattr(given, "target", None) is operator.mul and node.op != "output":
            with module.graph.inserting_before(node):
                low = module.graph.call_method("to", (given, torch.bfloat16))
                node.replace_input_with(given, module.graph.call_method("type_as", (low, given)))
    module.recompile()
    return module.forward
"""


def program(*lines, inputs):
    """A program of words by their texts: ("a + {b}" as a word is written, operands, numbers)."""
    texts = [w[1] for w in words.WORDS]
    steps = [short_programs.ShortStep(texts.index(text), operands, (0, 0)) for text, operands in lines]
    given = tuple(
        (short.dense((dtype, sizes, (), 0, i, 0, False)), "normal" if "float" in dtype else "index", "")
        for i, (dtype, sizes) in enumerate(inputs)
    )
    return short_programs.Program(3, 5, given, tuple(steps))


def made_words():
    words.made(words.folder(), words.record)
    return words.folder()


TWO = [("float32", (9, 17)), ("float32", (9, 17))]
FUSED = program(("{a} * {b}", (0, 1, 0)), ("{a} + {b}", (2, 1, 0)), ("{a}.flip({d})", (3, 0, 0)), inputs=TWO)


def test_a_program_is_the_same_each_time_and_goes_together():
    texts = set()
    for case in range(60):
        one, call = short_programs.drawn(4, case)
        other, again = short_programs.drawn(4, case)
        assert one == other and all(map(same_bytes, one.tensors(), other.tensors()))
        assert call.problem == "" and 2 <= len(one.steps) <= 6 and call.native
        texts.add(one.text())
    assert len(texts) == 60
    assert short_programs.drawn(5, 0)[0] != short_programs.drawn(4, 0)[0]


def test_each_word_has_its_turn():
    trace = _core.Trace(str(made_words()))
    assert {w[0] for w in words.WORDS} <= {base_name(trace.call(s)["op"])[1] for s in trace.select(top_only=True)}
    for word, (op, _, _) in enumerate(words.WORDS):
        text, names = words.sampled(word)
        assert isinstance(words.run(text, names), torch.Tensor), text
        made = None
        for case in range(40):
            try:
                made = short_programs.drawn(0, case, f"aten::{op}.any")[0]
                break
            except BadCall:
                continue
        assert op in {words.WORDS[s.word][0] for s in made.steps}, op


def test_a_rounding_error_becomes_no_step():
    floor = [w[1] for w in words.WORDS].index("torch.floor({a})")
    step = short_programs.ShortStep(floor, (1, 0, 0), (0, 0))
    x = torch.ones(3, device="meta")
    with pytest.raises(ValueError, match="would become a step"):
        short_programs.inferred(FUSED, step, [x, x], [True, False])
    assert short_programs.inferred(FUSED, step, [x, x], [True, True])[0] == "torch.floor(b)"


def test_what_is_accused_names_its_line_and_becomes_small():
    def rounds(fn, args, kwargs):
        """Right of each line alone, wrong of a sum of a product."""
        text, out = "".join(linecache.getlines(fn.__code__.co_filename)), fn(*args)
        return out.bfloat16().float() if " + " in text and " * " in text else out

    device = PythonDevice(rounds)
    said = short.judge_call(FUSED.call(), device)
    assert said.verdict == "reduced"
    assert short.culprit(FUSED, device) == ("aten::add", "d = c + b")
    small, verdict = short.shrunk(FUSED, said, device)
    assert [text for _, text in small.lines()] == ["a * b", "c + b"] and verdict.verdict == "reduced"
    assert max(n for t, *_ in small.inputs for n in t[1]) < 9
    assert short.judge_call(FUSED.call(), PythonDevice(lambda fn, args, kwargs: fn(*args))).verdict == "pass"


def test_what_eager_torch_rounds_is_no_finding_and_what_is_worse_is_one():
    """Eight products in bfloat16 are as far from float64 as bfloat16 is; a device may be so too, and no farther."""
    low = program(
        *[("{a} * {b}", (0, 1, 0))],
        *[("{a} * {b}", (i, 1, 0)) for i in range(2, 7)],
        inputs=[("bfloat16", (40, 9)), ("bfloat16", (40, 9))],
    )
    honest = PythonDevice(lambda fn, args, kwargs: fn(*args))
    assert judge_call(low.call(), honest, seconds=0).verdict == "pass"  # held to what its own roundings cost
    assert short.judge_call(low.call(), honest).verdict == "pass"
    assert short.judge_call(low.call(), PythonDevice(lambda fn, args, kwargs: fn(*args) * 1.06)).verdict in (
        "reduced",
        "wrong",
    )
    assert (
        short.judge_call(low.call(), PythonDevice(lambda fn, args, kwargs: fn(*args) * float("nan"))).verdict
        == "nonfinite"
    )


def test_whole_numbers_that_become_floats_are_held_to_float64():
    """Beside other floats, too: the last bit of sinh(7) is nobody's fault, and a hundredth is."""
    mixed = program(
        ("torch.sinh({a})", (0, 0, 0)),
        ("{a} / {b}", (0, 0, 0)),
        ("torch.exp({a})", (1, 0, 0)),
        inputs=[("int64", (40,)), ("float32", (9,))],
    )

    def off(factor):
        def run(fn, args, kwargs):
            out = fn(*args)
            return type(out)(torch.nextafter(t * factor, torch.full_like(t, 1e9)) for t in out)

        return PythonDevice(run)

    assert short.judge_call(mixed.call(), off(1)).verdict == "pass"
    assert short.judge_call(mixed.call(), off(1.01)).verdict in ("wrong", "reduced")


# ---- scripts ---------------------------------------------------------------------------


HOW = {"device": "cpu", "via": "", "imports": [], "faults": ""}


def script(tmp_path, call, device, program=""):
    made = short_script.Script(call, judge_call(call, device, seconds=0), HOW, program)
    path = tmp_path / "repro.py"
    path.write_text(made.text("A title."))
    assert len(path.read_text().splitlines()) <= 25
    return path


VALUES = {
    "short": torch.randn(7),
    "long": torch.randn(300).half(),
    "equal": torch.full((9,), 0.1).bfloat16(),
    "zeros": torch.tensor([0.0, -0.0, float("inf"), 1e-45]),
    "complex": torch.randn(40, dtype=torch.complex64),
    "bytes": torch.arange(99, dtype=torch.uint8),
    "truths": torch.tensor([True, False]),
}


@pytest.mark.parametrize("values", VALUES)
def test_values_stand_in_a_script_bit_by_bit(values):
    data = VALUES[values]
    text = short_script.tensor_text(data)
    back = eval(text, {"torch": torch, "zlib": zlib, "base64": base64})
    assert same_bytes(
        torch.view_as_real(back) if back.is_complex() else back, torch.view_as_real(data) if data.is_complex() else data
    )
    assert len(text) < (200 if values in ("short", "equal") else 2000)


def test_layouts_stand_in_a_script():
    """What has gaps, is expanded, or shares memory does so there, on whatever device."""
    base = torch.randn(6, 8)
    given = base[::2, 1:5], base.T[3:], torch.randn(4, 1).expand(4, 3)
    call = call_of(lambda a, b, c: a.sum() + b.sum() + c.sum(), given)
    made = short_script.Inputs(call)
    space = {"torch": torch}
    exec("\n".join([*made.lines, made.function(), f"t = inputs(*[x.clone() for x in {made.given()}])"]), space)
    assert len(made.lines) == 2
    for one, other in zip(space["t"], given):
        assert same_bytes(one, other) and one.stride() == other.stride()
    assert space["t"][0].untyped_storage().data_ptr() == space["t"][1].untyped_storage().data_ptr()


def test_a_script_fails_where_the_device_is_wrong_and_not_where_it_is_right(tmp_path):
    """Only a right program is run in the file: made of a wrong device, it must not fail alone."""
    path = script(tmp_path, FUSED.call(), PythonDevice(lambda fn, args, kwargs: fn(*args) * 1.01), FUSED.text())
    assert run_alone(path)[0] == 0
    path.write_text(path.read_text().replace("return e", "return e * (1.01 if e.dtype == torch.float32 else 1)"))
    code, said, _ = run_alone(path)
    assert code == 1 and said.startswith("got ")


def test_what_cannot_be_a_short_script_says_why(tmp_path):
    call = FUSED.call()
    with pytest.raises(short_script.NoScript, match="no simple distance"):
        short_script.Script(
            call, judge_call(call, PythonDevice(lambda fn, args, kwargs: fn(*args)), seconds=0), HOW, FUSED.text()
        ).text("A title.")


def test_what_fails_on_one_thread_alone_says_so():
    device = PythonDevice(lambda fn, args, kwargs: fn(*args) * (1.01 if torch.get_num_threads() == 1 else 1))
    how, before = {}, torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        verdict = judged(FUSED.call(), device, how)
    finally:
        torch.set_num_threads(before)
    assert verdict.verdict == "wrong" and how == {"threads": 1}
    assert "torch.set_num_threads(1)" in short_script.import_lines(HOW | how)


# ---- the command -----------------------------------------------------------------------


def run(*words, code=0, folder=None):
    done = subprocess.run(
        ["ulpscope", "fuzz", *map(str, words)], capture_output=True, text=True, timeout=300, cwd=folder
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_a_wrong_fusion_is_found_named_and_handed_on(tmp_path):
    """The name of the file has what a shell would take apart."""
    (tmp_path / "what it's.py").write_text(textwrap.dedent(WRONG))
    how = "--programs", "--device", "cpu", "--import", "what it's.py", "--ops", "mul"
    done = run(
        *how,
        "--via",
        "fuses",
        "--cases",
        24,
        "--seed",
        3,
        "-j",
        1,
        "--json",
        "-o",
        "out",
        "--causes",
        "off",
        code=1,
        folder=tmp_path,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found and all({"op", "verdict", "cause", "case", "repro"} <= set(f) for f in found)
    honest = run(
        *how, "--via", "eager", "--cases", 24, "--seed", 3, "-j", 1, "-o", "honest", "--causes", "off", folder=tmp_path
    )
    assert "No call is accused" in honest.stdout
    done = subprocess.run(found[0]["repro"] + " -o repro", shell=True, capture_output=True, text=True, cwd=tmp_path)
    text = (tmp_path / "repro" / "repro.py").read_text()
    assert "in a process of its own it fails" in done.stderr and len(text.splitlines()) <= 25
    assert "ulpscope" not in text.replace("Needs", "")
    report = (tmp_path / "repro" / "report.md").read_text()
    assert found[0]["op"] in report and "expected" in report and "Effective bits" in report
    assert subprocess.run([sys.executable, "repro/repro.py"], cwd=tmp_path, env=os.environ).returncode == 1


def test_programs_find_a_fault_and_no_other(tmp_path):
    how = "--programs", "--device", "sim:0", "--seed", 21, "-j", 1, "--causes", "off"
    honest = run(*how, "--cases", 120, "-o", "honest", folder=tmp_path)
    assert "No call is accused" in honest.stdout
    planted = *how, "--faults", "aten::_softmax:scale", "--ops", "softmax"
    done = run(*planted, "--cases", 4, "--json", "-o", "out", code=1, folder=tmp_path)
    assert "aten::softmax" in {json.loads(line)["op"] for line in done.stdout.splitlines()}


REFUSED = {
    ("--programs", "--trace", "t"): "leave --trace and --spec out",
    ("--programs", "--spec", "t"): "leave --trace and --spec out",
    ("--programs", "--relations"): "leave them or --programs out",
    ("--programs", "--ops", "no_such_word", "-o", "out"): "no operator of",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_does_not_go_with_programs_is_one_sentence(words, tmp_path):
    done = run(*words, "--device", "cpu", code=2, folder=tmp_path)
    assert REFUSED[words] in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_steps_without_values_are_refused():
    with pytest.raises(ValueError, match="0 values"):
        _core.fuzz_step(0, 0, 0, 0, 0, 0, 5)
