# SPDX-License-Identifier: Apache-2.0
"""`ulpscope diff`: two runs of one training step on the simulated device, with and without a
planted fault, by data and by statistics; other thread counts; what cannot be compared."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys

import diff_runs
import pytest
from diff_runs import diff, ulpscope

captured = diff_runs.captured  # a fixture


def test_honest_runs_are_the_same(captured):
    a, b = captured("honest"), captured("again")
    found = diff(a, b)
    assert found["same"] and found["paired"] == found["calls_a"] == found["how"]["exactly"]
    assert found["unpaired_a"] == found["unpaired_b"] == [] and found["basis"] == "bits"
    assert "the same, bit by bit" in ulpscope("diff", a, b).stdout


def test_another_thread_count_names_nobody(captured):
    a, b = captured("one", device="cpu"), captured("two", device="cpu", threads=2)
    found = diff(a, b, judge=True)
    assert found["same"] and found["beginnings"] == [] and found["stand"] == found["differ"] > 0
    found = diff(a, b)  # limits accuse nobody, which is not to say that they are the same
    assert not found["same"] and found["first"] is None and found["untold"] == found["differ"]


@pytest.mark.parametrize(
    ("op", "fault", "phase"),
    [
        ("aten::gelu", "bf16_output", "forward"),
        ("aten::gelu_backward", "truncate:bits=12", "backward"),
        ("aten::addcdiv_", "nan", "optimizer"),
        ("aten::mm", "tf32:nth=2", "backward"),
    ],
)
def test_a_planted_fault_is_named_first(captured, op, fault, phase):
    bad = captured(f"{op}-{fault}".replace(":", "-"), faults=f"{op}:{fault}")
    found = diff(captured("honest"), bad)
    first = found["first"]
    assert first["op"].split(".")[0] == op
    assert (first["phase"], first["step"], first["kind"]) == (phase, 0, "made")
    assert first["call_a"] == first["call_b"] and first["sentence"].startswith("the inputs are the same")
    assert first["carried"] > 0 and first["how"] == "exactly"
    said = ulpscope("diff", captured("honest"), bad)
    assert said.returncode == 1 and f"the runs part at call {first['call_a']} of A" in said.stdout


def test_a_replay_tells_the_guilty_side(captured):
    bad = captured("aten--gelu-bf16_output", faults="aten::gelu:bf16_output")
    first = diff(bad, captured("honest"), "-j", "1", judge=True)["first"]
    assert first["op"] == "aten::gelu" and first["verdict"] == first["verdict_a"] != "pass"
    assert first["verdict_b"] == "pass" and "A: " in first["sentence"]


def test_the_page_holds_all_that_differs(captured, tmp_path):
    bad = captured("aten--gelu-bf16_output", faults="aten::gelu:bf16_output")
    page = tmp_path / "page.html"
    assert ulpscope("diff", captured("honest"), bad, "--no-judge", "--html", page).returncode == 1
    text = page.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))
    assert data["first"]["op"] == "aten::gelu" and "<" not in re.search(r'id="data">(.*?)</script>', text, re.S)[1]
    rows = {r["call_a"]: r for r in data["rows"]}
    assert all(r["kind"] != "same" for r in rows.values()) and len(rows) > data["first"]["carried"]
    assert all(r["result_a"]["l2"] > 0 and r["result_b"]["l2"] > 0 for r in rows.values() if r["out"]["n"] > 1)
    row = next(r for r in reversed(rows.values()) if r["phase"] == "forward")
    while row["call_a"] != data["first"]["call_a"]:  # the way from the loss back
        row = rows[row["from"]]
    assert ulpscope("diff", captured("honest"), bad, "--no-judge", "--html", tmp_path / "no" / "x.html").returncode == 2


def test_rounding_keeps_within_its_limit(captured):
    a, b = captured("one", device="cpu"), captured("two", device="cpu", threads=2)
    rows = json.loads(ulpscope("diff", a, b, "--json", "--all").stdout)["rows"]
    assert all(r["kind"] in ("same", "rounded", "inherited") for r in rows)
    assert all(r["out"]["worst"] <= r["limit"] for r in rows if r["kind"] == "rounded")


def test_statistics_alone_tell_it_and_say_so(captured):
    options = ("--data", "stats")
    a = captured("stats", options=options)
    b = captured("stats-bad", options=options, faults="aten::gelu:bf16_output")
    found = diff(a, b)
    assert found["basis"] == "statistics" and found["first"]["op"] == "aten::gelu"
    assert "compared by statistics" in ulpscope("diff", a, b).stdout
    assert diff(captured("honest"), b)["basis"] == "statistics"  # one with data, one without


@pytest.mark.parametrize(("data", "words"), (("stats", "as far as statistics tell; "), ("full", "bit by bit; ")))
def test_what_was_compared_is_said_where_one_run_is_longer(captured, data, words):
    whole = captured("honest") if data == "full" else captured("stats", options=("--data", "stats"))
    part = captured(f"{data}-1", options=("--data", data, "--steps", "1"))
    for sides in ((whole, part), (part, whole)):
        done = ulpscope("diff", *sides)
        last = done.stdout.splitlines()[-1]
        assert done.returncode == 2 and last.startswith("not told: the "), done.stdout
        assert f" calls that both have, of step 1, are the same, {words}" in last
        assert last.endswith("were not compared: capture the same steps on both, or --allow unpaired")
        allowed = ulpscope("diff", *sides, "--allow", "unpaired")
        last = allowed.stdout.splitlines()[-1]
        assert allowed.returncode == 0 and "the same in step 1, which is all that both have, " in last, allowed.stdout
        assert f" calls of {'AB'[sides.index(whole)]} (step 0) have no partner, of which " in last


def test_memory_that_something_unseen_fills_shifts_no_pair(captured, tmp_path):
    """Whether the fill is noticed hangs on what lay there: torch.tensor(0.0) over a zero."""
    for side, noticed in (("a", 0), ("b", 3)):
        shutil.copytree(captured("honest"), tmp_path / side)
        base = sqlite3.connect(tmp_path / side / "trace.db")
        filled = base.execute("""SELECT DISTINCT v.id, w.sequence FROM version v JOIN tensor t ON t.version = v.id
            JOIN arg a ON a.tensor = t.id JOIN call c ON c.sequence = a.call JOIN op o ON o.id = c.op
            JOIN version f ON f.storage = v.storage AND f.generation = 0 JOIN call w ON w.sequence = f.call
            JOIN op p ON p.id = w.op WHERE o.name LIKE 'aten::lift_fresh%' AND p.name LIKE 'aten::empty%'
            AND c.step = 0 ORDER BY w.sequence""").fetchall()
        assert len(filled) > 3
        with base:
            for i, (version, writer) in enumerate(filled):
                base.execute("UPDATE version SET call = ? WHERE id = ?", (writer if i == noticed else None, version))
            base.execute("UPDATE meta SET value = ? WHERE key = 'id'", (side,))
        base.close()
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found["same"] and found["how"]["exactly"] == found["calls_a"]


def test_what_one_run_lacks_is_listed(captured):
    more = captured("more", "more")
    found = diff(captured("honest"), more)
    assert found["unpaired_a"] == [] and len(found["unpaired_b"]) > 5
    assert found["paired"] == found["calls_a"]
    said = ulpscope("diff", captured("honest"), more, "--no-judge").stdout
    assert "without a partner in A:" in said and "aten::pow" in said
    assert re.search(
        r"it reads what aten::\w+[.\w]*, call \d+ of B, which has no partner, wrote: ", said.splitlines()[-1]
    ), said


def test_other_data_are_no_fault_of_an_operator(captured):
    a, b = captured("honest"), captured("seed", seed=7)
    first = diff(a, b)["first"]
    assert first["kind"] == "drew" and "random numbers" in first["sentence"]
    found = diff(a, b, "--phase", "optimizer")
    assert found["first"] is None and found["entered"]["parameters_differ"] > 3
    said = ulpscope("diff", a, b, "--phase", "optimizer", "--no-judge").stdout
    assert "differ already where the phase begins" in said


def test_what_came_in_from_outside_is_one_line(captured):
    later = [
        captured(name, device="cpu", seed=seed, options=("--steps", steps))
        for name, seed, steps in (("l0", 0, "1"), ("l7", 7, "1"))
    ]
    done = ulpscope("diff", *later)
    assert "6 of 6 parameters and " in done.stdout and "the steps before are not in them" in done.stdout
    assert "capture --steps 0-1 on both, or --until-differs" in done.stdout
    assert done.returncode == 2 and done.stdout.splitlines()[-1].startswith("not told: "), done.stdout
    assert "  entered: " not in done.stdout
    said = ulpscope("diff", captured("c0", device="cpu"), captured("c7", device="cpu", seed=7), "--no-judge").stdout
    assert "the steps before" not in said  # they are captured: what differs is drawn in them


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        ("aten::gelu", "bf16_output"),
        ("aten::mm", "tf32"),
        ("aten::native_layer_norm", "scale"),
        ("aten::addcdiv_", "truncate:bits=12"),
    ],
)
def test_a_run_captured_as_users_do_names_what_errs(captured, op, fault):
    """The second step, of which the parameters differ already: first is what makes an error, not what shows one."""
    options = ("--steps", "1")
    a, b = captured("later", options=options), captured(f"later-{op[6:]}", options=options, faults=f"{op}:{fault}")
    found = diff(a, b, judge=True)
    first = found["first"]
    assert (first["op"].split(".")[0], first["kind"], first["step"]) == (op, "erred", 1)
    assert first["verdict_a"] == "pass" and first["verdict_b"] in ("reduced", "wrong") and first["judged"] == "errs"
    assert found["entered"]["parameters_differ"] > 2 and found["entered"]["parameters"] == 6


def test_an_error_below_what_it_inherits_is_found(captured):
    a = captured("honest")
    honest, bad = captured("seed", seed=7), captured("seed-bad", seed=7, faults="aten::gelu:bf16_output:nth=2")
    assert [r for r in diff(a, honest, judge=True)["beginnings"] if r["kind"] == "erred"] == []
    found = diff(a, bad, "--own", judge=True)
    (erred,) = (r for r in found["beginnings"] if r["kind"] == "erred")
    assert (erred["op"], erred["step"], erred["verdict_a"], erred["verdict_b"]) == ("aten::gelu", 1, "pass", "reduced")
    assert "errs on its own" in erred["sentence"] and found["first"]["call_a"] == erred["call_a"]
    for words in (("--no-judge",), ("--module",)):
        done = ulpscope("diff", a, bad, "--own", *words)
        assert done.returncode == 2 and "--own" in done.stderr


def test_a_verdict_in_a_diff_is_that_of_a_check(captured, tmp_path):
    bad, fault = captured("aten--gelu-bf16_output", faults="aten::gelu:bf16_output"), "aten::gelu:bf16_output"
    first = diff(captured("honest"), bad, "-j", "1", judge=True)["first"]
    done = ulpscope(
        "check", f"{bad}#{first['call_b']}", "--device", "sim:0", "--faults", fault, "-j", "1", "-o", tmp_path / "out"
    )
    assert done.returncode == 1, done.stderr
    base = sqlite3.connect(tmp_path / "out" / "result.db")
    verdict, bits, cause, sentence = base.execute("SELECT verdict, bits, cause, sentence FROM verdict").fetchone()
    base.close()
    assert (first["verdict_b"], first["cause_b"]) == (verdict, cause) and cause
    assert abs(first["bits_b"] - bits) < 1e-4 and sentence in first["sentence"]


def test_what_both_runs_do_alike_is_no_difference_between_them(captured):
    a, b = (captured(f"alike-{seed}", seed=seed, faults="aten::gelu:bf16_output") for seed in (0, 7))
    found = diff(a, b, "--phase", "forward", "--own", judge=True)
    assert found["alike"] == 2 and not [r for r in found["beginnings"] if r["kind"] in ("made", "erred", "grew")]
    assert not found["same"]


def test_statistics_do_not_say_that_calls_are_right(captured):
    options = ("--data", "stats", "--steps", "1")
    a, b = (captured(f"later-{seed}", device="cpu", options=options, seed=seed) for seed in (0, 7))
    done = ulpscope("diff", a, b, "--json")
    found = json.loads(done.stdout)
    assert (found["same"], found["first"], found["basis"]) == (False, None, "statistics") and found["untold"] > 20
    done = ulpscope("diff", a, b)
    assert done.returncode == 2 and "of which statistics alone were kept; capture --data full on both" in done.stdout
    assert "same" not in done.stdout.splitlines()[-1]


def test_a_capture_goes_on_until_something_differs(captured, tmp_path):
    a, step = captured("every", options=("--data", "stats")), captured("honest").parent / "step.py"

    def until(name, *words, faults=""):
        return ulpscope(
            "capture",
            "--until-differs",
            a,
            "-o",
            tmp_path / name,
            *words,
            "--",
            sys.executable,
            step,
            "sim:0",
            1,
            0,
            faults=faults,
        )

    done = until("b", faults="aten::gelu:bf16_output:nth=2")
    assert done.returncode == 0 and "captured steps 0-1: " in done.stderr, done.stderr
    assert re.search(
        "step 1 differs from every, at call [0-9]+ of the step, aten::gelu: .*; its data were kept", done.stderr
    )
    assert "run ended" not in done.stderr
    first = diff(captured("honest"), tmp_path / "b", judge=True)["first"]
    assert (first["op"], first["step"], first["kind"], first["verdict_a"]) == ("aten::gelu", 1, "made", "pass")
    assert first["verdict_b"] == "reduced" and first["out"]["basis"] == "data"
    base = sqlite3.connect(tmp_path / "b" / "trace.db")
    kept = dict(
        base.execute(
            "SELECT c.step, count(DISTINCT coalesce(t.blob, v.blob)) FROM call c JOIN arg a ON a.call = c.sequence "
            "JOIN tensor t ON t.id = a.tensor JOIN version v ON v.id = t.version GROUP BY c.step"
        )
    )
    base.close()
    assert kept[0] < kept[1] / 2  # of the step before what the next one reads
    done = until("same")
    assert done.returncode == 0 and "nothing differs from every" in done.stderr, done.stderr
    assert not list((tmp_path / "same").glob("*.safetensors")) and not (tmp_path / "same" / "step").exists()
    for words, said in ((("--steps", "3"), "leave out --steps"), (("--data", "full"), "leave out --data")):
        done = until("refused", *words)
        assert done.returncode == 2 and said in done.stderr
    done = ulpscope("capture", "--until-differs", tmp_path, "--", "true")
    assert done.returncode == 2 and "it is no trace" in done.stderr


def test_a_part_of_a_run_is_compared(captured):
    found = diff(captured("honest"), captured("again"), "--phase", "optimizer")
    assert 0 < found["calls_a"] < diff(captured("honest"), captured("again"))["calls_a"]


def test_two_ranks_are_compared_by_the_optimizer(captured, tmp_path):
    for rank, seed in ((0, "honest"), (1, "seed")):
        shutil.copytree(captured(seed, seed=7 * rank), tmp_path / f"rank-{rank}")
    said = ulpscope("diff", tmp_path / "rank-0", tmp_path / "rank-1")
    assert said.returncode == 1 and "two ranks of one job" in said.stdout
    assert "optimizer" in said.stdout.splitlines()[-1]


def broken(captured, tmp_path, statement):
    copy = tmp_path / "copy"
    shutil.copytree(captured("honest"), copy)
    with sqlite3.connect(copy / "trace.db") as base:
        base.execute(statement)
    base.close()
    return copy


@pytest.mark.parametrize(
    ("statement", "words", "code"),
    [
        ("PRAGMA user_version = 99", "a newer ulpscope is needed", 2),
        ("UPDATE op SET name = 'x::' || id || name", "hardly anything pairs", 2),
        ("UPDATE meta SET value = '0' WHERE key = 'complete'", "was cut short", 0),
        ("UPDATE call SET step = step + 7", "step 0 of A is held against step 7 of B", 0),
    ],
)
def test_bad_input_is_told_in_a_sentence(captured, tmp_path, statement, words, code):
    copy = broken(captured, tmp_path, statement)
    with sqlite3.connect(copy / "trace.db") as base:
        base.execute("UPDATE meta SET value = 'other' WHERE key = 'id'")
    base.close()
    done = ulpscope("diff", captured("honest"), copy, "--no-judge")
    if "op SET" in statement:  # a module's results have the shapes that they had
        done = ulpscope("diff", captured("honest"), copy, "--phase", "optimizer")
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr


def test_what_is_no_pair_of_traces_is_refused(captured, tmp_path):
    a = captured("honest")
    for words, said in (
        ((a, a), "are one trace"),
        ((a,), "two traces are needed"),
        ((a, tmp_path / "nowhere"), "nowhere"),
        ((a, tmp_path), "trace.db"),
        ((a, captured("again"), "--device", "cpu", "--no-judge"), "--no-judge forbids"),
        ((a, captured("again"), "--amplify", "0"), "1 to 100"),
        ((a, captured("again"), "--phase", "x"), "forward, backward"),
    ):
        done = ulpscope("diff", *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)


def test_rounding_alone_as_the_model_amplifies_it(captured):
    a = captured("one", device="cpu")
    for b, same in (
        (captured("two", device="cpu", threads=2), True),
        (captured("nearly", "nearly", device="cpu"), False),
    ):
        assert diff(a, b)["first"] is None  # the data are 25 roundings off, which no call does
        found = diff(a, b, "--amplify", "3", "--all")
        assert (found["first"] is None, found["replays"], found["fed"]) == (same, 3, 0)
        told = [r for r in found["rows"] if r["noise"] is not None]
        assert len(told) > (5 if same else 50) and all(1 <= r["noise"] < 100 for r in told if r["step"] == 0)
    assert found["first"]["kind"] == "beyond" and "rounding alone" in found["first"]["sentence"]
    said = ulpscope("diff", a, b, "--amplify", "2").stdout
    assert re.search(r"forward +ends at +call \d+ .* roundings apart, rounding alone gives ", said)
    assert re.search(r"forward +most at +call \d+ .*: beyond", said)


def test_what_cannot_be_run_again_is_said(captured, tmp_path):
    options = ("--data", "stats")
    done = ulpscope(
        "diff",
        captured("stats", options=options),
        captured("stats-bad", options=options, faults="aten::gelu:bf16_output"),
        "--amplify",
        "2",
    )
    assert done.returncode == 2 and "statistics alone" in done.stderr
    bad = captured("aten--gelu-bf16_output", faults="aten::gelu:bf16_output")
    done = ulpscope("diff", captured("honest"), bad, "--device", "nowhere:0")
    assert done.returncode == 2 and "--no-judge" in done.stderr


# Runs with blocks compiled by backends: "wrong" rounds what the second gives, "behind" what its
# backward pass gives. The gradients of the eager run are printed.
BLOCKS = """
import sys, torch, ulpscope
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
torch.set_num_threads(1)
nn = torch.nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))
def rounded(graph):
    return lambda *args: [x.bfloat16().float() for x in graph(*args)]
own = {"wrong": lambda graph, inputs: rounded(graph),
       "behind": aot_autograd(fw_compiler=lambda g, _: make_boxed_func(g.forward),
                              bw_compiler=lambda g, _: make_boxed_func(rounded(g)))}
def run(backend):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), Block(), Block(), Block(), nn.Linear(32, 8))
    x, y = torch.randn(8, 16), torch.randint(0, 8, (8,))
    for i in (1, 2, 3) if backend != "eager" else ():
        net[i] = torch.compile(net[i], backend=own.get(backend, backend) if i == 2 or backend not in own else "eager")
    nn.functional.cross_entropy(net(x), y).backward()
    return {name: p.grad.double().norm().item() for name, p in net.named_parameters()}
for backend in ("eager", "aot_eager", "inductor", *own):
    with ulpscope.capture(sys.argv[1] + "/" + backend, level="module"):
        found = run(backend)
    torch._dynamo.reset()
    if backend == "eager":
        assert found == run(backend)  # without a capture
        print(found)
"""


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blocks")
    done = subprocess.run([sys.executable, "-c", BLOCKS, folder], text=True, capture_output=True, timeout=900)
    assert done.returncode == 0, done.stderr
    (folder / "gradients").write_text(done.stdout)
    return folder


@pytest.mark.parametrize("how", ["aot_eager", "inductor"])
def test_honest_compilers_name_no_module(blocks, how):
    found = diff(blocks / "eager", blocks / how, "--module", "--all")
    assert found["same"] and found["paired"] == 12, found["first"]
    assert {(r["module"], r["phase"]) for r in found["rows"]} == {
        (m, p) for m in ("", *"01234") for p in ("forward", "backward")
    }


def test_a_compilers_fault_is_named_by_its_module(blocks):
    found = diff(blocks / "eager", blocks / "wrong", "--module", "--all")
    first = found["first"]
    assert (first["op"], first["module"], first["kind"]) == ("module.forward", "2", "made")
    rows = {row["module"]: row for row in found["rows"] if row["phase"] == "forward"}
    assert {m: rows[m]["source"] for m in ("3", "4", "")} == dict.fromkeys(("3", "4", ""), first["call_a"])
    assert rows["1"]["kind"] == "same" and first["carried"] >= 3
    assert [r["call_a"] for r in found["rows"] if r["kind"] in ("made", "entered", "grew")] == [first["call_a"]]
    assert "in 2, step 0, forward" in ulpscope("diff", blocks / "eager", blocks / "wrong", "--module").stdout


@pytest.mark.parametrize("other, kind", [("eager", "made"), ("inductor", "grew")])
def test_a_compilers_fault_in_a_backward_is_named_by_its_module(blocks, other, kind):
    found = diff(blocks / other, blocks / "behind", "--module", "--all")
    first = found["first"]
    assert (first["op"], first["module"], first["phase"]) == ("module.backward", "2", "backward")
    assert first["kind"] == kind and first["out"]["path"].startswith("grad[")
    assert first["sentence"].startswith("the gradients that come in ")
    rows = {row["module"]: row for row in found["rows"] if row["phase"] == "backward"}
    assert rows["1"]["source"] == rows["0"]["source"] == first["call_a"]
    assert rows["3"]["kind"] in (("same",) if other == "eager" else ("same", "rounded", "inherited"))
    assert [r["module"] for r in found["rows"] if r["kind"] in ("made", "entered", "grew")] == ["2"]
    said = ulpscope("diff", blocks / other, blocks / "behind", "--module").stdout.splitlines()
    assert said[-1].endswith("module.backward in 2, step 0, backward"), said[-1]


def test_gradients_of_a_module_are_those_of_autograd(blocks):
    base = sqlite3.connect(blocks / "eager" / "trace.db")
    rows = base.execute("""SELECT m.path, a.path, json_extract(t.stats, '$.l2') FROM call c
        JOIN op o ON o.id = c.op JOIN module m ON m.id = c.module JOIN arg a ON a.call = c.sequence
        JOIN tensor t ON t.id = a.tensor WHERE o.name = 'module.backward' AND a.path LIKE 'grad[%'""").fetchall()
    base.close()
    found, truth = {}, eval((blocks / "gradients").read_text())
    for module, path, l2 in rows:
        found.setdefault(".".join(filter(None, (module, path[5:-1]))), set()).add(l2)
    assert found.keys() == truth.keys()
    assert all(abs(l2 / truth[name] - 1) < 1e-6 for name, all_of in found.items() for l2 in all_of)
    assert len(rows) == len(truth) + 2 * 18 + 4  # of the model, of the blocks and what lies in them, of the ends


def test_calls_that_stand_for_gradients_are_not_run_again(blocks, tmp_path):
    words = blocks / "eager", "--device", "cpu", "--phase", "backward", "--distinct", "-j", "1"
    done = ulpscope("check", *words, "-o", tmp_path / "out")
    assert done.returncode == 0 and "module." not in done.stdout, done.stdout + done.stderr


def test_what_follows_a_wrong_gradient_is_no_fault_of_a_later_step(captured):
    options = ("--level", "module")
    a = captured("modules", options=options)
    b = captured("modules-bad", options=options, faults="aten::gelu_backward:bf16_output:nth=1")
    found = diff(a, b, "--module", "--all")
    begun = [(r["module"], r["phase"], r["step"]) for r in found["rows"] if r["kind"] in ("made", "grew", "entered")]
    assert begun == [("2", "backward", 0)]
    assert {r["kind"] for r in found["rows"] if r["step"] == 1 and r["module"] == "0"} == {"inherited"}
    for words in (("--phase", "backward"), ("--phase", "optimizer")):
        done = ulpscope("diff", a, b, "--module", *words)
        assert done.returncode == 2 and "leave out --module, or --phase" in done.stderr


def test_two_models_are_warned_of(blocks, captured):
    for a, b, warned in (
        (captured("honest"), blocks / "eager", True),
        (captured("honest"), captured("seed", seed=7), False),
        (captured("honest"), captured("more", "more"), False),
    ):
        said = ulpscope("diff", a, b, "--no-judge").stderr
        assert ("of the same operator, module and shapes: of two models" in said) == warned, said


def test_forwards_are_asked_for_where_they_are_not(blocks, captured):
    done = ulpscope("diff", captured("honest"), captured("again"), "--module")
    assert done.returncode == 2 and "capture both runs with --level module" in done.stderr
    done = ulpscope("diff", blocks / "eager", blocks / "wrong", "--module", "--amplify", "2")
    assert done.returncode == 2 and "leave one of them out" in done.stderr
