# SPDX-License-Identifier: Apache-2.0
"""Does `ulpscope diff` name the operator at fault? As a user captures: the second step of a training run, no
option, the fault there from the start on. Pairs of (model, operator, kind of fault) by chance, of all kinds of the
simulated device; honest pairs (other thread counts, the CPU beside the device) must name nobody."""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import torch
from model import TrainingStep
from torch import nn

import ulpscope
import ulpscope.sim

NO_NUMBERS = ("crash", "hang", "lacking", "cpu_fallback")  # a trace is cut short, or as it would be
COLUMNS = ("named", "another", "within rounding", "not told", "no effect", "the run ends", "nobody named")
SMALL = {"vocabulary": 64, "width": 32, "layers": 2, "heads": 2, "length": 16, "batch": 2}


class Classifier:
    """A training step of a small net of layers, in float32 or bfloat16."""

    def __init__(self, device: str, net: nn.Module, x: torch.Tensor, opt: type, **options: object):
        self.net, self.x = net.to(device), x.to(device)
        self.y = torch.randint(0, 10, (len(x),)).to(device)
        self.opt = opt(self.net.parameters(), **options)

    def __call__(self) -> None:
        self.opt.zero_grad()
        nn.functional.cross_entropy(self.net(self.x).float(), self.y).backward()
        self.opt.step()


def gpt(device: str) -> object:
    return TrainingStep(device=device, **SMALL)


def conv(device: str) -> object:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 10),
    )
    return Classifier(device, net, torch.randn(4, 3, 16, 16), torch.optim.SGD, lr=0.05, momentum=0.9, foreach=False)


def mlp(device: str) -> object:
    net = nn.Sequential(
        nn.Linear(24, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 48), nn.RMSNorm(48), nn.Tanh(), nn.Linear(48, 10)
    ).bfloat16()
    return Classifier(device, net, torch.randn(16, 24).bfloat16(), torch.optim.AdamW, lr=1e-2, fused=True)


class Routed(nn.Module):
    """Tokens through an LSTM, each by the two experts that a router chose for it."""

    def __init__(self, width: int = 16, experts: int = 3):
        super().__init__()
        self.tokens, self.memory = nn.Embedding(40, width), nn.LSTM(width, width, batch_first=True)
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Hardswish()) for _ in range(experts))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.memory(self.tokens(x))[0].flatten(0, 1)
        weights, chosen = self.router(h).softmax(-1).topk(2, -1)
        out = torch.zeros_like(h)
        for i, expert in enumerate(self.experts):
            rows, place = (chosen == i).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(h[rows]) * weights[rows, place, None])
        return self.head(nn.functional.dropout(out + h, 0.0).view(*x.shape, -1).mean(1))


def routed(device: str) -> object:
    return Classifier(device, Routed(), torch.randint(0, 40, (4, 6)), torch.optim.RMSprop, lr=0.01, foreach=True)


MODELS = {"gpt": gpt, "conv": conv, "mlp": mlp, "routed": routed}


def record(path: Path, model: str, device: str, fault: tuple | None = None) -> int:
    """Captures the second step; on how many calls of it the fault changed a bit."""
    shutil.rmtree(path, ignore_errors=True)
    torch.manual_seed(0)
    before = changed = 0
    planted = ulpscope.sim.fault(*fault) if fault else contextlib.nullcontext()
    with planted:
        step = MODELS[model](device)
        with ulpscope.capture(path, steps=1):
            step()
            before = sum(f["changed"] for f in ulpscope.sim.faults_fired())
            step()
            changed = sum(f["changed"] for f in ulpscope.sim.faults_fired()) - before
    return changed


def record_apart(path: Path, model: str, op: str, kind: str) -> int | None:
    """The same in a process of its own; None where the run does not end well."""
    words = ["python", __file__, "--record", path, model, op, kind]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=600)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else None


def diff(a: Path, b: Path, *options: str) -> tuple[int, dict, float]:
    began = time.perf_counter()
    done = subprocess.run(["ulpscope", "diff", a, b, "--json", *options], capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return done.returncode, json.loads(done.stdout), time.perf_counter() - began


def computing(trace: Path) -> list[str]:
    """Operators of calls on the device that give float numbers and are no views."""
    base = sqlite3.connect(trace / "trace.db")
    rows = base.execute(
        "SELECT DISTINCT o.name FROM call c JOIN op o ON o.id = c.op JOIN arg a ON a.call = c.sequence "
        "JOIN tensor t ON t.id = a.tensor JOIN version v ON v.id = t.version "
        "JOIN storage s ON s.id = v.storage WHERE s.device LIKE 'sim%' AND a.role <> 'in' AND "
        "t.dtype LIKE '%float%' AND v.call = c.sequence AND c.composite = 0"
    )
    found = sorted({name.split(".")[0] for (name,) in rows if not name.startswith(("aten::empty", "aten::clone"))})
    base.close()
    return found


def holders(op: str) -> tuple[str, ...]:
    """What stands in a trace for an operator: it, and what it runs inside of."""
    inside = {"aten::index_select": "aten::embedding"}
    return op, inside.get(op, ""), op.replace("aten::", "aten::_foreach_")


def outcome(code: int, found: dict, op: str, changed: int) -> str:
    """What the diff made of a faulty operator."""
    first = found["first"]
    if first is not None and first["op"].split(".")[0] in holders(op) and code == 1:
        return "named"
    if first is not None:
        return "another"
    if changed == 0 or found["differ"] == 0:  # it changed what is not kept, or back again
        return "no effect"
    return "within rounding" if code == 0 else "not told"


def honest_pairs(folder: Path, counts: dict, others: list) -> None:
    for model in MODELS:
        record(folder / "one", model, "cpu")
        record(folder / "sim", model, "sim:0")
        rows = [(f"{n} threads", "one", ("cpu", n)) for n in (2, 4)] + [
            ("again", "sim", ("sim:0", 1)),
            ("device", "one", ("sim:0", 1)),
        ]
        for name, beside, (device, threads) in rows:
            torch.set_num_threads(threads)
            record(folder / "more", model, device)
            torch.set_num_threads(1)
            code, found, _ = diff(folder / beside, folder / "more")
            counts[f"honest, {name}"]["nobody named" if code != 1 and found["first"] is None else "another"] += 1
            if code == 1:
                others.append(
                    (model, "honest", name, found["first"] and found["first"]["op"], found["first"]["sentence"])
                )


def pairs(calls: dict, given: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(model, operator, kind): all of them in an order by chance, in which each kind has its turn; the first so
    many."""
    chance, turns = random.Random(given.seed), []
    for kind in [k for k in ulpscope.sim.fault_kinds() if k not in NO_NUMBERS]:
        every = [(model, op, kind) for model, ops in calls.items() for op in ops]
        turns.append(chance.sample(every, len(every)))
    return [pair for turn in zip(*turns, strict=True) for pair in turn][: given.pairs or None]


def one_pair(folder: Path, pair: tuple[str, str, str]) -> dict:
    """What a diff says of a pair of traces, as the table and whoever mends a miss need it."""
    model, op, kind = pair
    changed = record_apart(folder / "bad", model, op, kind)
    if changed is None:  # an index that torch itself refuses
        return {"model": model, "op": op, "kind": kind, "said": "the run ends", "seconds": 0.0}
    code, found, took = diff(folder / model, folder / "bad")
    first = found["first"]
    row = {
        "model": model,
        "op": op,
        "kind": kind,
        "said": outcome(code, found, op, changed),
        "code": code,
        "changed": changed,
        "seconds": took,
        "differ": found["differ"],
        "alike": found["alike"],
        "untold": found["untold"],
    }
    return row | ({"first": first["op"], "call": first["call_a"], "sentence": first["sentence"]} if first else {})


def print_table(counts: dict) -> Counter:
    print("| fault | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for kind, count in counts.items():
        print(f"| {kind} | " + " | ".join(str(count[c]) if count[c] else "" for c in COLUMNS) + " |")
    return sum((count for kind, count in counts.items() if not kind.startswith("honest")), Counter())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pairs", type=int, default=100, help="faults in all; 0: each kind at each operator of each model"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--honest", action="store_true", help="honest pairs alone")
    parser.add_argument("--models", default=",".join(MODELS), help="those (default: %(default)s)")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="a line of JSON for each pair; what it has is not run again"
    )
    parser.add_argument("--record", nargs=4, metavar=("PATH", "MODEL", "OP", "KIND"), help="records one faulty run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.record:
        path, model, *fault = given.record
        print(record(Path(path), model, "sim:0", tuple(fault)))
        return 0
    counts, others, rows = defaultdict(Counter), [], []
    kept = (
        [json.loads(line) for line in given.keep.read_text().splitlines()] if given.keep and given.keep.exists() else []
    )
    known = {(row["model"], row["op"], row["kind"]): row for row in kept}
    with tempfile.TemporaryDirectory() as name:
        folder, calls = Path(name), {}
        for model in given.models.split(","):
            record(folder / model, model, "sim:0")
            calls[model] = computing(folder / model)
        every = [] if given.honest else pairs(calls, given)
        print(
            f"{len({p[2] for p in every})} kinds, {len({p[1] for p in every})} operators, {len(calls)} models, "
            f"{len(every)} pairs",
            flush=True,
        )
        for pair in every:
            row = known.get(pair) or one_pair(folder, pair)
            if given.keep and pair not in known:
                with given.keep.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            rows.append(row)
            counts[row["kind"]][row["said"]] += 1
            if row["said"] in ("another", "within rounding", "not told"):
                others.append(tuple(row.values()))
                print("*", *others[-1], flush=True)
        if given.honest or given.pairs:
            honest_pairs(folder, counts, others)
    total = print_table(counts)
    acted = sum(total[c] for c in COLUMNS[:4])
    print(f"\nnamed first: {total['named']} of {acted} that changed a bit of the step")
    if rows:
        seconds = sorted(row["seconds"] for row in rows)
        print(f"a diff took {seconds[len(seconds) // 2]:.1f} s at the median, {seconds[-1]:.1f} s at most")
    for other in others:
        print("not so:", *other)
    return 0


if __name__ == "__main__":
    sys.exit(main())
