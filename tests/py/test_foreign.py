# SPDX-License-Identifier: Apache-2.0
"""A mistake of ours is no statement about anybody's operator: wherever it arises it is raised, or told as
ours, and never a verdict. What an operator raises is one, whatever its kind."""

import contextlib
import os
import subprocess
import textwrap

import pytest
import torch
from test_check_run import check, rows
from traces import TraceWriter

import ulpscope
from ulpscope import _core
from ulpscope.calls import foreign
from ulpscope.causes import diagnose, host, parcel
from ulpscope.causes.lab import Lab
from ulpscope.executors.reference_runs import Reference
from ulpscope.judges import answers
from ulpscope.judges.answers import Answers
from ulpscope.program import capture
from ulpscope.program.hooks import Modules

A, B = torch.randn(4, 8), torch.randn(8, 3)
UNKNOWN = torch.zeros(2, dtype=torch.uint8).view(torch.bits8)
OURS = os.path.join(foreign.HERE, "planted.py")
PLANT = f"""
space = {{}}
exec(compile("def planted(*args, **kwargs):\\n    return None + 1", {OURS!r}, "exec"), space)
"""


def ours(line):
    """A function that runs a line which stands in our package."""
    space = {"torch": torch, "theirs": foreign.theirs, "contextlib": contextlib, "json": __import__("json")}
    exec(compile(f"def planted(*args, **kwargs):\n    {line}", OURS, "exec"), space)
    return space["planted"]


def raised(function, *args):
    with pytest.raises(Exception) as caught:  # noqa: B017 - whatever it is
        function(*args)
    return caught.value


@pytest.mark.parametrize(
    "line, mistake",
    [
        ("return None + 1", True),
        ("return torch.mm(3)", True),  # a builtin that we call wrongly has no frame
        ("return {}['out']", True),
        ("return unknown", True),
        ("a, b = 1, 2, 3", True),
        ("return json.dumps(json)", True),  # the standard library that we call
        ("return theirs(torch.mm, 3)", False),
        ("return theirs(lambda x: x + None, 3)", True),  # the function is ours
        ("raise TypeError('this is no tensor')", False),  # on purpose
        ("raise foreign.InternalError('told by a process')", True),
        ("return torch.ops.aten.mm.default(torch.ones(2, 3), torch.ones(2, 3))", False),
        ("return torch.nn.functional.linear(3, 4)", True),
    ],
)
def test_whose_a_mistake_is(line, mistake):
    problem = raised(ours(line.replace("foreign.", "__import__('ulpscope.calls.foreign').calls.foreign.")))
    assert foreign.is_ours(problem) == mistake, problem
    if mistake:
        assert type(raised(foreign.foreign, problem)) is type(problem)
        assert "internal error" in foreign.our_words(problem) or isinstance(problem, foreign.InternalError)
    else:
        assert foreign.foreign(problem) is problem


def test_what_somebody_else_raises_is_handed_on():
    def theirs(x):
        return x.nothing_of_that_name

    assert foreign.theirs(lambda function: function, function=3) == 3
    for function, args in ((theirs, (A,)), (theirs, (A, B)), (lambda x: {}[x], (1,))):
        assert not foreign.is_ours(raised(ours("return theirs(*args)"), function, *args))
        assert ulpscope.judge_call(function, args, {}, A).verdict == "unjudged"


@pytest.mark.parametrize(
    "where",
    [(Reference, "_run_plain"), (Reference, "narrow"), (Answers, "fan_in"), (Answers, "replay"), (Answers, "of")],
)
def test_a_mistake_in_reference_or_answers_is_raised(monkeypatch, where):
    monkeypatch.setattr(*where, ours("return None + 1"))
    with pytest.raises(TypeError, match="NoneType"):
        ulpscope.judge_call(torch.mm, (A, B), {}, (A.double() @ B.double() * (1 + 2.0**-12)).float())


def test_a_mistake_in_a_cause_leaves_the_verdict(monkeypatch):
    monkeypatch.setattr(host.Inquiry, "_asked", ours("return None + 1"))
    call = torch.mm, (A, B), {}, A @ B * 2
    monkeypatch.setenv(foreign.STRICT, foreign.CAUSES)
    with pytest.raises(TypeError, match="NoneType"):
        ulpscope.judge_call(*call)
    monkeypatch.delenv(foreign.STRICT)
    found = ulpscope.judge_call(*call)
    assert found.verdict == "wrong" and any("internal error of ulpscope" in note for note in found.notes)


def nonsense(self, path, *rest):
    """Runs of a formula that is not the operator's."""
    yield from ((torch.full_like(self.truth[path], 40.0), False) for _ in range(3))


def test_runs_that_are_nonsense_judge_nobody_and_are_told(monkeypatch):
    """A wrong formula of ours would let a result pass that is as far off as it is, or accuse by its errors."""
    torch.manual_seed(0)
    x, y = torch.randn(64, 64), torch.softmax(torch.randn(64, 64), -1)
    call = torch.softmax, (x, -1), {}, torch.softmax(x, -1) + 0.01 * y
    before = ulpscope.judge_call(*call, cause=False)
    monkeypatch.setattr(Reference, "noises", nonsense)
    with pytest.raises(foreign.InternalError, match="its runs 'noise' of .* are nonsense at out.0."):
        ulpscope.judge_call(*call, cause=False)
    monkeypatch.delenv(foreign.STRICT)
    found = ulpscope.judge_call(*call, cause=False)
    assert found.verdict == before.verdict == "wrong" and found.effective_bits == before.effective_bits
    assert any("are nonsense" in note for note in found.notes)


def apart(t):
    return t.mean(-1) - t[:, 0]


def spread(t):
    return t.var(-1) / t.mean(-1) ** 3


def cancelled(t):
    return (t + 1e8 - 1e8).sum(-1)


def stepped(t):
    return t.softmax(-1).sum(-1).floor()


def test_what_float32_loses_is_no_nonsense():
    """Runs of what cancels, or lies beside a step, are far from the truth in most elements, and honest."""
    x = 1e4 + torch.randn(64, 4096)
    for fn in (apart, spread, cancelled, stepped):
        for out in (fn(x) * 1.1 + 1, torch.zeros(64)):
            ulpscope.judge_call(fn, (x,), {}, out, cause=False)


@pytest.mark.parametrize("where", [(Lab, "run"), (diagnose, "search"), (parcel, "unpacked")])
def test_a_mistake_in_the_process_that_searches_leaves_the_verdict(monkeypatch, where):
    """The process is a fork of this one, so that it has the plant. The trial goes on, the rest ends the search."""
    call = torch.mm, (A, B), {}, A @ B * (1 + 2.0**-9)
    for strict in (foreign.CAUSES, None):
        with monkeypatch.context() as plant:
            host.end()
            plant.setattr(*where, ours("return None + 1"))
            if strict:
                plant.setenv(foreign.STRICT, strict)
            else:
                plant.delenv(foreign.STRICT)
            host.reserve()
            if strict:
                with pytest.raises(foreign.InternalError, match="NoneType"):
                    ulpscope.judge_call(*call)
            else:
                found = ulpscope.judge_call(*call)
                assert found.verdict in ("wrong", "reduced")
                assert any("internal error of ulpscope in planted.py" in note for note in found.notes)
    host.end()


class Host:
    """A job that a mode of ours looks at."""

    def __init__(self):
        self.heard = []

    def step(self, line):
        with foreign.unhurt(self.heard.append) as net:
            ours(line)()
        return net.failed


@pytest.mark.parametrize("line, mistake", [("return None + 1", True), ("return theirs(torch.mm, 3)", False)])
def test_a_job_goes_on_after_a_mistake_but_under_tests(monkeypatch, line, mistake):
    job = Host()
    if mistake:
        with pytest.raises(TypeError, match="NoneType"):
            job.step(line)
        assert job.heard == []
    monkeypatch.delenv(foreign.STRICT)
    assert job.step(line) and isinstance(job.heard[0], TypeError)
    assert not job.step("return 1")
    with pytest.raises(KeyboardInterrupt):
        job.step("raise KeyboardInterrupt")


@pytest.mark.parametrize("plant", [(Modules, "_meet"), (capture.Recorder, "end"), (capture.Recorder, "close")])
def test_a_mistake_in_a_recording_ends_the_recording_alone(monkeypatch, tmp_path, capsys, plant):
    net = torch.nn.Linear(8, 3)
    monkeypatch.setattr(*plant, ours("return None + 1"))
    with pytest.raises(TypeError, match="NoneType"), ulpscope.capture(tmp_path / "strict"):
        net(A)
    monkeypatch.delenv(foreign.STRICT)
    with ulpscope.capture(tmp_path / "trace") as recording:
        net(A)
    if plant[1] != "_meet":  # a module that cannot be met has no path
        assert "NoneType" in recording.error and "the program goes on" in capsys.readouterr().err


def test_a_dtype_that_is_unknown_is_no_mistake_and_a_mistake_no_dtype(monkeypatch):
    """Only bytes are judged of a dtype that the table lacks. What is raised for it is a class of its own: a
    TypeError is a mistake, and no reason to judge something else."""
    with pytest.raises(_core.DtypeError, match="not in the table"):
        _core.bring([("out", UNKNOWN, UNKNOWN)], dim=0)
    monkeypatch.setattr(answers, "known_of", lambda *given: {"unheard": 1})
    with pytest.raises(TypeError, match="unheard"):
        ulpscope.judge_call(torch.mm, (A, B), {}, A @ B)


@pytest.fixture
def planting(tmp_path):
    """A module whose import plants a mistake of ours into the reference of one operator."""
    file = tmp_path / "planting.py"
    file.write_text(
        PLANT
        + textwrap.dedent("""
        from ulpscope.executors.reference_runs import Reference
        begin = Reference.begin
        Reference.begin = lambda self: (space["planted"]() if self.call.op.startswith("aten::mm") else begin(self))
    """)
    )
    return file


def test_a_check_tells_it_and_keeps_the_other_calls(tmp_path, planting):
    with TraceWriter(tmp_path / "trace") as trace:
        trace.add("aten::mm", A, B, out=(A @ B,))
        trace.add("aten::add.Tensor", A, A, out=(A + A,))
    done = check(tmp_path / "trace", tmp_path / "out", "--import", str(planting), device="cpu")
    assert done.returncode == 2
    assert {r["op"]: r["verdict"] for r in rows(tmp_path / "out")} == {
        "aten::mm": "internal",
        "aten::add.Tensor": "pass",
    }
    last = done.stdout.splitlines()[-1]
    assert "aten::mm 1 call (internal error of ulpscope in planted.py:2, please report it: TypeError" in last


def test_a_pack_tells_it_and_holds_the_other_calls(tmp_path, planting):
    with TraceWriter(tmp_path / "trace") as trace:
        trace.add("aten::mm", A, B, out=(A @ B,))
        trace.add("aten::add.Tensor", A, A, out=(A + A,))
    done = subprocess.run(
        ["ulpscope", "pack", tmp_path / "trace", "--import", planting, "-o", tmp_path / "pack"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2 and "internal error of ulpscope in planted.py:2" in done.stderr.splitlines()[-1]
    assert sorted(p.name for p in (tmp_path / "pack" / "operands").iterdir()) == ["2.safetensors"]


@pytest.mark.parametrize("strict", [True, False])
def test_a_live_check_tells_it_and_the_program_goes_on(tmp_path, planting, monkeypatch, capsys, strict):
    monkeypatch.chdir(tmp_path)
    if not strict:
        monkeypatch.delenv(foreign.STRICT)
    with pytest.raises(foreign.InternalError) if strict else contextlib.nullcontext():
        with ulpscope.live_check(imports=[str(planting)]) as live:
            torch.mm(A, B), torch.add(A, A)
        assert (live.findings(), live.error, live.n_judged, live.unjudged) == ([], None, 1, 1)
        assert capsys.readouterr().err.count("internal error of ulpscope") >= 1
