# SPDX-License-Identifier: Apache-2.0
"""What stand-ins hide: the documented bugs of bench/verdicts and the faults of the simulated
device, judged on real data and on what is drawn from statistics. docs/reference/stand-ins.md has the
tables that this prints, with a reason for each row that is lost.

A documented bug is a function that draws inputs and computes from them what a right device
and the bug make of it. It runs twice: the second time every input is overwritten by its
stand-in as soon as it is complete, so that both results are computed from that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ulpscope
from ulpscope import _core
from ulpscope.calls.replay import BadCall
from ulpscope.calls.standin import stand_in

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TRAIN = ROOT / "examples" / "demo" / "train.py"
FLAGGED = {"crashed", "timeout", "nonfinite", "wrong", "reduced", "intermittent"}
OPERATORS = [
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::gelu",
    "aten::gelu_backward",
    "demo::rms_norm",
    "demo::rms_norm_backward",
    "aten::_softmax_backward_data",
    "aten::_log_softmax",
    "aten::nll_loss_forward",
    "aten::embedding",
    "aten::_fused_adamw_",
]
NEEDS_NO_DATA = {"crash", "hang", "lacking", "cpu_fallback"}


def tensors(value):
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def content(tensor):
    storage = tensor.untyped_storage()
    return bytes(storage) if storage.nbytes() < 1 << 20 else _core.stats(tensor)


class Watch(TorchDispatchMode):
    """Counts operators and remembers what the storages that they touched held after each."""

    def __init__(self):
        super().__init__()
        self.n, self.seen, self.alive = 0, [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for place, t in enumerate(tensors((args, kwargs, out))):
            self.seen.append((self.n, place, t.untyped_storage().data_ptr(), content(t)))
            self.alive.append(t.untyped_storage())  # so that no address is used twice
        self.n += 1
        return out

    def complete(self, tensor):
        """(operator, place) after which the storage of a tensor held what it holds now."""
        now, at = content(tensor), tensor.untyped_storage().data_ptr()
        return next((n, place) for n, place, address, held in self.seen if address == at and held == now)


class Overwrite(TorchDispatchMode):
    """Puts stand-ins where the inputs become complete."""

    def __init__(self, at):
        super().__init__()
        self.n, self.at = 0, at  # (operator, place) -> [(view like this one, values)]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for place, t in enumerate(tensors((args, kwargs, out))):
            for like, values in self.at.get((self.n, place), ()):
                put(t.untyped_storage(), like, values)
        self.n += 1
        return out


def put(storage, like, values):
    """Writes through a view of a storage; broadcast elements once."""
    once = tuple(slice(1) if step == 0 else slice(None) for step in like.stride())
    whole = torch.empty(0, dtype=like.dtype).set_(storage)
    whole.as_strided(like.shape, like.stride(), like.storage_offset())[once].copy_(values[once])


def stand_ins(shown, folder):
    """A stand-in of each tensor argument, drawn as a check of a trace would."""
    inputs = tensors((shown.args, shown.kwargs))
    with ulpscope.capture(folder, data="stats"):
        for t in inputs:
            torch.ops.aten.alias_copy(t)
        try:
            shown.fn(*shown.args, **shown.kwargs)
        except Exception as problem:  # the operator of another backend
            print(f"  {problem}", file=sys.stderr)
    trace = _core.Trace(str(folder))
    rows = [trace.call(n) for n in trace.select()]
    identity = trace.meta("id")
    return [(t, of_tensor(identity, rows, rows[i])) for i, t in enumerate(inputs)]


def of_tensor(identity, rows, copied):
    """Drawn for the first operator that takes the same tensor: it may ask more of it."""
    own = copied["tensors"][0]
    for row in rows:
        for item in row["tensors"]:
            same = item["role"] == "in" and all(item[k] == own[k] for k in ("stats", "dtype", "sizes"))
            if same and row["op"] != copied["op"]:
                return stand_in(identity, row["sequence"], item, row)
    return stand_in(identity, copied["sequence"], own, copied)


def bug_row(name, make, seed, folder):
    """The verdicts of one bug: on real data, on stand-ins, and of its control there."""
    torch.manual_seed(seed)
    with Watch() as watch:
        shown = make()
    places = [watch.complete(t) for t in tensors((shown.args, shown.kwargs))]
    real = verdict(shown, shown.bad, shown.left_bad)
    try:
        drawn = stand_ins(shown, folder / name)
    except BadCall as problem:
        return {"bug": name, "real": real, "stand_ins": "none", "control": str(problem)}
    at = {}
    for place, one in zip(places, drawn):
        at.setdefault(place, []).append(one)
    torch.manual_seed(seed)
    with Overwrite(at):
        made = make()
    return {
        "bug": name,
        "real": real,
        "stand_ins": verdict(made, made.bad, made.left_bad),
        "control": verdict(made, made.good, made.left_good),
    }


def verdict(shown, outputs, left):
    mutated = None if left is None else (left, shown.kwargs)
    return ulpscope.judge_call(shown.fn, shown.args, shown.kwargs, outputs, mutated=mutated).verdict


def documented(seed, only, folder):
    from bench.verdicts.documented import BUGS

    rows = [bug_row(name, make, seed, folder) for name, (make, _) in BUGS.items() if not only or name in only]
    print("| documented bug | real data | stand-ins | right device, stand-ins |\n|---|---|---|---|")
    for r in rows:
        print(f"| `{r['bug']}` | {r['real']} | {r['stand_ins']} | {r['control']} |")
    found = [sum(r[k] in FLAGGED for r in rows) for k in ("real", "stand_ins", "control")]
    print(
        f"\n{len(rows)} bugs: {found[0]} found on real data, {found[1]} on stand-ins; "
        f"{found[2]} right devices accused\n",
        flush=True,
    )


# ---- the simulated device ------------------------------------------------------------------


def run(*command):
    return subprocess.run(["ulpscope", *map(str, command)], capture_output=True, text=True)


def accused(trace, out, kind):
    """The operators with the fault that a check accuses, and the others that it does."""
    faults = ";".join(f"{op}:{kind}" for op in OPERATORS)
    run(
        "check",
        trace,
        "--device",
        "sim:0",
        "--ops",
        ",".join(OPERATORS),
        "--distinct",
        "--causes",
        "off",
        "--force",
        "-o",
        out,
        *(["--faults", faults] if kind else []),
    )
    calls = json.loads((out / "result.json").read_text())["calls"]
    return {c["op"].rsplit(".", 1)[0] for c in calls if c["verdict"] in FLAGGED}


def fault_kinds(kinds, folder):
    import ulpscope.sim

    wanted = kinds or [k for k in ulpscope.sim.fault_kinds() if k not in NEEDS_NO_DATA]
    traces = {data: folder / f"trace-{data}" for data in ("full", "stats")}
    for data, trace in traces.items():
        done = run(
            "capture", "--data", data, "-o", trace, "--", sys.executable, TRAIN, "--device", "sim", "--steps", "2"
        )
        if done.returncode:
            sys.exit(done.stderr)
    print("| fault | real data | stand-ins | lost | only with stand-ins |\n|---|---|---|---|---|")
    for kind in ["", *wanted]:
        real, drawn = (accused(trace, folder / "out", kind) for trace in traces.values())
        told = [", ".join(sorted(found)) or "-" for found in (real - drawn, drawn - real)]
        print(f"| {f'`{kind}`' if kind else 'none'} | {len(real)} | {len(drawn)} | {told[0]} | {told[1]} |", flush=True)


def main():
    p = argparse.ArgumentParser(prog="./run bench standins", description=__doc__)
    p.add_argument("--seed", type=int, default=0, help="seed of the inputs (default 0)")
    p.add_argument("--bugs", nargs="*", help="documented bugs (default all; none: leave them out)")
    p.add_argument("--kinds", nargs="*", help="faults of the simulated device (default all; none: leave them out)")
    o = p.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        if o.bugs is None or o.bugs:
            documented(o.seed, o.bugs, Path(scratch))
        if o.kinds is None or o.kinds:
            fault_kinds(o.kinds, Path(scratch))


if __name__ == "__main__":
    main()
