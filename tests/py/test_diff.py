# SPDX-License-Identifier: Apache-2.0
"""`ulpscope diff`: two runs of one training step on the simulated device, with and without a
planted fault, by data and by statistics; other thread counts; what cannot be compared."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import schemas

STEP = """
import sys, torch
import ulpscope.sim
device, threads, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(seed)
net = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.LayerNorm(64), torch.nn.GELU(),
                          torch.nn.Linear(64, 16)).to(device)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
x = torch.randn(32, 48)
x.numpy()[:] *= 1 + 1.5e-6 * ("nearly" in sys.argv)  # unseen: as other data
x, y = x.to(device), torch.randint(0, 16, (32,)).to(device)
for step in range(2):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    if len(sys.argv) > 4 and sys.argv[4] == "more":
        loss = loss + net[0].weight.pow(2).sum() * 1e-4
    opt.zero_grad(); loss.backward(); opt.step()
"""


def ulpscope(*words, faults=""):
    env = dict(os.environ, ULPSCOPE_SIM_FAULTS=faults)
    return subprocess.run(["ulpscope", *map(str, words)], capture_output=True, text=True, timeout=300, env=env)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("diff"), {}
    (folder / "step.py").write_text(STEP)

    def make(name, *words, faults="", options=(), device="sim:0", threads=1, seed=0):
        if name not in made:
            done = ulpscope(
                "capture",
                "-o",
                folder / name,
                "--steps",
                "0,1",
                *options,
                "--",
                sys.executable,
                folder / "step.py",
                device,
                threads,
                seed,
                *words,
                faults=faults,
            )
            assert done.returncode == 0, done.stderr
            made[name] = folder / name
        return made[name]

    return make


def diff(*words, judge=False):
    done = ulpscope("diff", *words, "--json", *(() if judge else ("--no-judge",)))
    assert done.stdout, done.stderr
    found = schemas.one("diff", done.stdout)
    assert done.returncode == (1 if found["first"] else 0 if found["same"] else 2), done.stderr
    return found


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


def test_the_page_knows_where_differences_begin():
    """The bold kinds of the table in docs/reference/diff.md, all of them."""
    home = Path(__file__).resolve().parents[2]
    listed = re.search(r"begins = new Set\((\[.*?\])\)", (home / "cli/diff/diff_page.js").read_text())[1]
    assert set(json.loads(listed)) == set(
        re.findall(r"^\| \*\*(\w+)\*\* \|", (home / "docs/reference/diff.md").read_text(), re.M)
    )


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


ENTERED = """
import contextlib, sys, torch, ulpscope.sim
torch.manual_seed(0)
x, w = torch.randn(64, 16).to("sim:0"), torch.randn(16, 16)
w = (w + 0.5 * ("moved" in sys.argv) + float("nan" if "nan" in sys.argv else 0)).to("sim:0")
loss = (x @ w).sum()
norm = torch.nn.LayerNorm(16).to("sim:0").bfloat16()
fault = sys.argv[2]
with ulpscope.sim.plant(fault) if fault else contextlib.nullcontext(), ulpscope.capture(sys.argv[1]):
    loss.detach()
    h = x @ w
    h[h[:, 0] > 0.3].tanh().sum()
    norm(h.bfloat16().requires_grad_()).sum().backward()
"""


def test_what_entered_is_no_error_of_a_call(tmp_path):
    """A view of what a step before made, other rows for a mask, and numbers beside NaN where both sides' norm is
    coarse."""
    for name, *words in (
        ("a", ""),
        ("b", "", "moved"),
        ("nan", "", "nan"),
        ("bad", "aten::tanh:scale", "moved"),
        ("coarse", "aten::native_layer_norm_backward:scale", "moved"),
    ):
        done = subprocess.run([sys.executable, "-c", ENTERED, tmp_path / name, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for other in ("b", "nan"):
        for judge in (True, False):
            found = diff(tmp_path / "a", tmp_path / other, "--own" if judge else "--all", judge=judge)
            assert found["first"] is None and not found["same"], found["first"]
    shown = json.loads(ulpscope("diff", tmp_path / "a", tmp_path / "b", "--json", "--all").stdout)["rows"]
    assert any(r["in"] and r["in"]["reshaped"] and r["kind"] == "inherited" for r in shown)
    first = diff(tmp_path / "a", tmp_path / "bad", judge=True)["first"]
    assert (first["op"], first["verdict_b"]) == ("aten::tanh", "wrong") and "out[0] has another shape" in first[
        "sentence"
    ]
    first = diff(tmp_path / "a", tmp_path / "coarse", judge=True)[
        "first"
    ]  # both are coarse in the gradient of the bias
    assert (first["op"], first["verdict_a"], first["verdict_b"]) == (
        "aten::native_layer_norm_backward",
        "pass",
        "reduced",
    )


NORMS = """
import sys, torch, ulpscope
torch.manual_seed(0)
x, weight = torch.randn(64, 96).to(torch.bfloat16), (1 + torch.randn(96) / 10).to(torch.bfloat16)
def exact(x, weight):
    wide = x.float()
    return (wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.float()).to(x.dtype)
def kernel(x, weight):
    if "split" in sys.argv:  # another order of adding
        wide = x.float()
        square = wide[:, :32].pow(2).sum(-1, keepdim=True) + wide[:, 32:].pow(2).sum(-1, keepdim=True)
        return (wide * (square / 96 + 1e-6).rsqrt() * weight.float()).to(x.dtype)
    if "rounded" in sys.argv:  # the squares, their mean and the factor are
        square = x.pow(2).float().mean(-1, keepdim=True).to(x.dtype)
        return (x * (square + 1e-6).rsqrt() * weight).to(x.dtype)
    return exact(x, weight)
library = torch.library.Library("aten", "IMPL")
def fused(x, shape, w, eps):
    return kernel(x, w), x.float().pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
library.impl("_fused_rms_norm", fused, "CPU")
with ulpscope.capture(sys.argv[1]):
    torch.ops.aten._fused_rms_norm(x, [96], weight, 1e-6)
"""


def test_own_errors_are_held_to_the_rule_not_to_the_largest_value(tmp_path):
    """A bfloat16 norm whose intermediates are rounded is off by about one rounding of each element: a bound by the
    largest of all acquits it, and so does no judge."""
    for name, words in (("a", []), ("b", ["split"]), ("c", ["rounded"])):
        done = subprocess.run([sys.executable, "-c", NORMS, tmp_path / name, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    found = diff(tmp_path / "a", tmp_path / "b", judge=True)
    assert found["same"], found["first"]
    first = diff(tmp_path / "a", tmp_path / "c", judge=True)["first"]
    assert (first["op"].split(".")[0], first["kind"], first["verdict_b"]) == (
        "aten::_fused_rms_norm",
        "made",
        "reduced",
    )
    assert diff(tmp_path / "a", tmp_path / "c")["first"] is None  # limits alone


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


RANKS = """
import sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, faulty = dist.get_rank(), [int(word) for word in sys.argv[1:]]
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
torch.manual_seed(1 + rank)
for step in range(3):
    h = net[0](torch.randn(8, 16)) * (1.001 if [rank, step] == faulty else 1.0)
    net[2](net[1](h)).pow(2).mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    net.zero_grad()
dist.barrier()
dist.destroy_process_group()
"""


def test_of_two_ranks_the_one_is_named_that_differs_first(tmp_path):
    """What rank 1 makes reaches rank 0 by a collective, which is what differs first there."""
    (tmp_path / "ranks.py").write_text(RANKS)

    def capture(name, *options, faulty=()):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
        return ulpscope("capture", "-o", tmp_path / name, *options, "--", *torchrun, tmp_path / "ranks.py", *faulty)

    done = capture("old", "--data", "stats", "--steps", "0-2")
    assert done.returncode == 0, done.stderr
    done = capture("new", "--until-differs", tmp_path / "old", faulty=(1, 1))
    assert done.returncode == 0 and "captured steps 0-1 on 2 ranks: " in done.stderr, done.stderr
    assert re.search("on rank 1 step 1 differs from old, at call [0-9]+ of the step, aten::mul", done.stderr)
    assert re.search("rank 0 from call [0-9]+ of step 1 on", done.stderr)
    for rank in range(2):  # each holds its step with data
        assert (tmp_path / "new" / f"rank-{rank}" / "tensors-00000.safetensors").stat().st_size > 0
    done = capture("same", "--until-differs", tmp_path / "old")
    assert done.returncode == 0 and "nothing differs from old in the run's 3 steps" in done.stderr, done.stderr
    assert "on rank" not in done.stderr


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


def test_the_commands_of_the_page_do_what_it_says(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/where-do-two-runs-part.md").read_text()
    python = STEP.replace("sys.argv[1], int(sys.argv[2]), int(sys.argv[3])", '"sim:0", 1, 0')
    (tmp_path / "step.py").write_text(python)
    said = []
    for block in re.findall(r"```sh\n(.*?)```", page, re.S):
        done = subprocess.run(
            ["sh", "-c", block.replace("python ", f"{sys.executable} ")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        said.append((done.returncode, done.stdout))
    assert [code for code, _ in said] == [0, 1, 1], said
    assert "the runs part at call" in said[1][1] and "aten::gelu" in said[1][1].splitlines()[-1]
    assert "A: pass; B: " in said[1][1] and "rounding alone" in said[2][1]


# Honest runs of another kind: each is run once with the words of the first list, once with
# those of the second.
OTHER_RUNS = """
import shutil, sys, torch, ulpscope
path, kind, backend = sys.argv[1:4]
torch.set_num_threads(1 + ("two" in sys.argv))
torch.manual_seed(0)
nn = torch.nn
if kind == "conv":  # the gradient of a bias before a normalisation is nothing but rounding
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10))
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
else:
    net = nn.Sequential(nn.Linear(48, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 16))
    x, y = torch.randn(32, 48), torch.randint(0, 16, (32,))
start = {k: v.clone() for k, v in net.state_dict().items()}
run = net if backend == "eager" else torch.compile(net, backend=backend)
def step():
    loss = nn.functional.cross_entropy(run(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
for recorded in (False, True):
    net.load_state_dict(start)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
    if recorded:
        with ulpscope.capture(path, steps=[0, 1]):
            step(), step()
    elif backend != "eager":
        step()
"""
OLD_PROCESSOR = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}


@pytest.mark.parametrize(
    ("kind", "backend", "extra", "settings"),
    [
        ("conv", "eager", ["two"], {}),
        ("conv", "eager", [], OLD_PROCESSOR),
        ("mlp", "eager", [], OLD_PROCESSOR),
        ("mlp", "aot_eager", [], {}),
        ("mlp", "inductor", [], {}),
    ],
)
def test_honest_runs_name_none(tmp_path, kind, backend, extra, settings):
    for name, how, more, env in (("a", "eager", [], {}), ("b", backend, extra, settings)):
        done = subprocess.run(
            [sys.executable, "-c", OTHER_RUNS, tmp_path / name, kind, how, *more],
            text=True,
            capture_output=True,
            timeout=900,
            env=os.environ | env,
        )
        assert done.returncode == 0, done.stderr
    found = diff(tmp_path / "a", tmp_path / "b", judge=True)
    assert found["same"], found["first"]["sentence"]
    assert found["paired"] > 0.7 * found["calls_a"]


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
    done = ulpscope(
        "check",
        blocks / "eager",
        "--device",
        "cpu",
        "--phase",
        "backward",
        "--distinct",
        "-j",
        "1",
        "-o",
        tmp_path / "out",
    )
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


OPTIMIZED = """
import sys, torch, ulpscope
torch.manual_seed(0)
net, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)), torch.randn(4, 8)
opt = torch.optim.SGD(net.parameters(), lr=float(sys.argv[2]))
with ulpscope.capture(sys.argv[1], level="module", steps=[0, 1]):
    for _ in range(int(sys.argv[3])):
        opt.zero_grad()
        net(x).square().mean().backward()
        opt.step()
"""


@pytest.mark.parametrize("steps", ["1", "2"])
def test_passes_of_modules_are_not_the_runs(tmp_path, steps):
    """Two runs that differ in their optimizer alone have the same passes in the first step."""
    for name, rate in (("a", "0.1"), ("b", "0.2")):
        subprocess.run([sys.executable, "-c", OPTIMIZED, tmp_path / name, rate, steps], check=True)
    done = ulpscope("diff", tmp_path / "a", tmp_path / "b", "--module")
    same = "the passes of modules are the same, bit by bit\nnot compared:" in done.stdout
    assert same == (steps == "1"), done.stdout
    assert "the runs are the same" not in done.stdout


def test_what_neither_side_could_judge_is_the_last_line(tmp_path):
    (tmp_path / "two.py").write_text(
        "import sys, torch, ulpscope\n"
        "library = torch.library.Library('apart', 'DEF')\n"
        "library.define('norm(Tensor x) -> Tensor')\n"
        "library.impl('norm', lambda x: x.exp() * float(sys.argv[2]), 'CPU')\n"
        "torch.manual_seed(0)\n"
        "with ulpscope.capture(sys.argv[1]):\n"
        "    torch.ops.apart.norm(torch.randn(8, 8))\n"
    )
    for name, factor in (("a", "1"), ("b", "1.01")):
        subprocess.run([sys.executable, "two.py", name, factor], cwd=tmp_path, check=True)
    done = ulpscope("diff", str(tmp_path / "a"), str(tmp_path / "b"), "--own")
    last = done.stdout.splitlines()[-1]
    assert last.startswith("not judged: apart::norm 1 call (operator apart::norm is unknown here; "), done.stdout
