# SPDX-License-Identifier: Apache-2.0
"""`ulpscope diff` of programs of their own: what entered a run, errors that a call makes itself, ranks, other
processors and settings, optimizers; the commands of the page."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from diff_runs import STEP, diff, ulpscope


def test_the_page_knows_where_differences_begin():
    """The bold kinds of the table in docs/reference/diff.md, all of them."""
    home = Path(__file__).resolve().parents[2]
    listed = re.search(r"begins = new Set\((\[.*?\])\)", (home / "cli/diff/diff_page.js").read_text())[1]
    assert set(json.loads(listed)) == set(
        re.findall(r"^\| \*\*(\w+)\*\* \|", (home / "docs/reference/diff.md").read_text(), re.M)
    )


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
