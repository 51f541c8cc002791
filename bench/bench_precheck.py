# SPDX-License-Identifier: Apache-2.0
"""The precheck of msprobe (bench/peer.py) and ours side by side: the same step captured, the same
faults planted in the simulated device, the same question: which calls does it compute wrongly?

    bench_precheck.py [--rounds N] [-j N]

The step, forward and backward on the CPU: the GPT of model.py in float32, the same in bfloat16, and a
small network of convolutions and norms. msprobe dumps it at level L1, as it does unasked, and `acc_check`
replays the dump; it knows the devices npu and cuda only, so that its own process is told before
(names of the device and its autocast, nothing else) that the device is `sim`. Ours captures at the
level of functions and checks on `sim` with one worker. A round plants one fault in each of 12
operators that the forward pass calls, another run one in each of 12 of the backward pass; the next
round other kinds. A fault is found where a call of the function that calls the operator is accused, in
that direction, of more than it is on an honest device. Faults that changed no number of a replay are not
counted. `sim` runs the CPU's kernels: where one sums in bfloat16, a right judge says so; ours then says
itself that this is usual. Seconds are CPU time: of the capture that of the one step, with its begin and
end, of the check all processes on an honest device.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import peer
import torch
import torch.nn.functional as F
from model import GPT
from torch import nn

FLAGGED = {"crashed", "timeout", "nonfinite", "wrong", "reduced", "intermittent"}
WORDS = ("", "usual", "warning", "error")  # what is said of a call, from mild to severe
#: Operator -> the function whose calls run it.
FORWARD = {
    "addmm": "linear",
    "bmm": "matmul",
    "native_layer_norm": "layer_norm",
    "gelu": "gelu",
    "_softmax": "softmax",
    "embedding": "embedding",
    "convolution": "conv2d",
    "native_batch_norm": "batch_norm",
    "native_group_norm": "group_norm",
    "silu": "silu",
    "avg_pool2d": "avg_pool2d",
    "_log_softmax": "cross_entropy",
}
BACKWARD = {
    "mm": "linear",
    "bmm": "matmul",
    "native_layer_norm_backward": "layer_norm",
    "gelu_backward": "gelu",
    "_softmax_backward_data": "softmax",
    "embedding_dense_backward": "embedding",
    "convolution_backward": "conv2d",
    "native_batch_norm_backward": "batch_norm",
    "native_group_norm_backward": "group_norm",
    "silu_backward": "silu",
    "avg_pool2d_backward": "avg_pool2d",
    "_log_softmax_backward_data": "cross_entropy",
}
KINDS = [
    "tf32",
    "bf16_inputs",
    "bf16_output",
    "truncate",
    "scale",
    "offset:value=0.001",
    "nan:index=3",
    "zero_one:index=3",
    "bit_flip:bit=14:every=2",
    "swap_two",
    "drop_tail:n=3",
    "inf:index=3",
]
STRIDE = 5  # from round to round, coprime to the number of kinds


class Picture(nn.Module):
    """Convolutions and norms on small images; `forward` returns a loss."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 24, 3, stride=2)
        self.batch, self.group, self.head = nn.BatchNorm2d(16), nn.GroupNorm(4, 24), nn.Linear(24, 10)

    def forward(self, x, target):
        x = F.silu(self.batch(self.first(x)))
        x = F.avg_pool2d(F.silu(self.group(self.second(x))), 6)
        return F.cross_entropy(self.head(x.flatten(1)), target)


class Step(nn.Module):
    """The three networks; `run` is what is captured."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        size = {"vocabulary": 96, "width": 64, "layers": 1, "heads": 4, "length": 32}
        self.wide, self.narrow, self.picture = GPT(**size), GPT(**size).bfloat16(), Picture()
        self.tokens = torch.randint(0, 96, (2, 4, 32))
        self.image, self.label = torch.randn(8, 3, 18, 18), torch.randint(0, 10, (8,))

    def run(self):
        loss = self.wide(*self.tokens) + self.narrow(*self.tokens).float() + self.picture(self.image, self.label)
        loss.backward()


# ---- parts that run in processes of their own ------------------------------------------


def capture_part(tool, task, folder):
    """Captures one step; prints CPU seconds without and with it."""
    step = Step()
    if tool == "msprobe":
        peer.enable()
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(task=task, level="L1", dump_path=folder, step=[])
    else:
        import ulpscope

    for _ in range(2):
        plain = time.process_time()
        step.run()
        step.zero_grad()
    plain, start = time.process_time() - plain, time.process_time()
    if tool == "msprobe":
        debugger.start(model=step)
        step.run()
        debugger.stop()
        debugger.step()
    else:
        with ulpscope.capture(folder, level="api", data=task):
            step.run()
    print(json.dumps([plain, time.process_time() - start]))


def peer_check_part(dump, out, faults):
    """msprobe's own acc_check on the simulated device; prints which faults changed a number."""
    import ulpscope.sim as sim

    peer.enable()
    from msprobe.pytorch.api_accuracy_checker.acc_check import acc_check, acc_check_utils

    acc_check.current_device = acc_check_utils.current_device = "sim"
    acc_check_utils.autocast = functools.partial(torch.autocast, "sim")
    torch.cuda.set_device = lambda device: None
    parser = argparse.ArgumentParser()
    acc_check._acc_check_parser(parser)
    planted = sim.plant(faults)
    acc_check.acc_check_command(parser.parse_args(["-api_info", dump, "-o", out]))
    print(json.dumps([one["changed"] > 0 for one in planted.fired()]))


# ---- the two tools ------------------------------------------------------------------------


def child(*command):
    """The last line that a command prints, and CPU seconds of it and its own children."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(map(str, command))}\n{err.read()}")
        return (out.read().strip().splitlines() or [""])[-1], used.ru_utime + used.ru_stime


def part(name, *words):
    last, seconds = child(sys.executable, __file__, "--part", name, *words)
    return json.loads(last), seconds


class Ours:
    """A capture of one kind, and what checks of it say."""

    def __init__(self, task, folder):
        self.name, self.folder = f"ulpscope, {'statistics' if task == 'stats' else 'real data'}", folder
        (self.plain, self.capture), _ = part("capture", "ulpscope", task, folder / "trace")

    def size(self):
        return tree_size(self.folder / "trace")

    def check(self, faults=""):
        """(call, function, direction) -> one of WORDS, where it is judged; CPU seconds."""
        more = ["--faults", faults, "--causes", "off"] if faults else []
        _, seconds = child(
            "ulpscope",
            "check",
            self.folder / "trace",
            "--device",
            "sim:0",
            "--level",
            "api",
            "-j",
            "1",
            "--force",
            "-o",
            self.folder / "out",
            *more,
        )
        calls = json.loads((self.folder / "out" / "result.json").read_text())["calls"]
        return {
            (c["call"], c["op"].rsplit(".", 1)[-1], c["phase"]): ""
            if c["verdict"] == "pass"
            else "usual"
            if c["usual"]
            else "error"
            for c in calls
            if c["verdict"] in FLAGGED | {"pass"}
        }, seconds


class Peer:
    """The same of msprobe."""

    def __init__(self, task, folder):
        self.name, self.folder, self.changed = f"msprobe, {task}", folder, None
        (self.plain, self.capture), _ = part("capture", "msprobe", task, folder / "dump")

    def size(self):
        return tree_size(self.folder / "dump")

    def check(self, faults=""):
        dump = next((self.folder / "dump").rglob("dump.json"))
        out = Path(tempfile.mkdtemp(dir=self.folder))
        self.changed, seconds = part("peer-check", dump, out, faults)
        found = {}
        with open(next(out.glob("accuracy_checking_result_*.csv")), encoding="utf-8-sig") as file:
            for name, forward, backward, *_ in [row for row in csv.reader(file) if row][1:]:
                for direction, status in (("forward", forward), ("backward", backward)):
                    if status in ("pass", "warning", "error"):
                        function = name.split(".")[-2].strip("_")
                        found[name, function, direction] = "" if status == "pass" else status
        return found, seconds


def tree_size(folder):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


# ---- faults -----------------------------------------------------------------------------


def plans(rounds):
    """(direction, [(operator, function, kind)]) of each run."""
    for n in range(rounds):
        for direction, table in (("forward", FORWARD), ("backward", BACKWARD)):
            yield (
                direction,
                [
                    (op, function, KINDS[(i + n * STRIDE + (6 if direction == "backward" else 0)) % len(KINDS)])
                    for i, (op, function) in enumerate(table.items())
                ],
            )


def found_in(said, honest, function, direction):
    """The worst that is said of a function's calls in a direction, beyond what an honest device gets."""
    told = [
        word
        for key, word in said.items()
        if key[1:] == (function, direction) and WORDS.index(word) > WORDS.index(honest.get(key, ""))
    ]
    return max(told, key=WORDS.index, default="")


def compare(tools, rounds, jobs):
    """What each tool says of an honest device, and a row for each fault."""
    rows = []
    with ThreadPoolExecutor(jobs) as pool:

        def asked(faults=""):
            return list(pool.map(lambda tool: tool.check(faults), tools))

        honest = {}
        for tool, (said, seconds) in zip(tools, asked(), strict=True):
            honest[tool], tool.seconds = said, seconds
        for direction, planted in plans(rounds):
            said = [found for found, _ in asked(";".join(f"aten::{op}:{kind}" for op, _, kind in planted))]
            for moved, (op, function, kind) in zip(tools[-1].changed, planted, strict=True):
                if moved:
                    rows.append(
                        (
                            f"{op}:{kind}",
                            [found_in(s, honest[t], function, direction) for t, s in zip(tools, said, strict=True)],
                        )
                    )
    return honest, rows


def table(tools, honest, rows):
    print(f"plain step {tools[0].plain * 1e3:.0f} ms; {len(rows)} faults\n")
    print(
        "| | calls judged: forward, backward | faults found | of them by an error | accused on an honest device "
        "| capture, s | check, s | MB |\n|---|---|---|---|---|---|---|---|"
    )
    for i, tool in enumerate(tools):
        found = [words[i] for _, words in rows]
        said = list(honest[tool].values())
        accused = ", ".join(f"{said.count(word)} {word}" for word in WORDS[:0:-1] if word in said)
        directions = [sum(key[2] == d for key in honest[tool]) for d in ("forward", "backward")]
        print(
            f"| {tool.name} | {directions[0]}, {directions[1]} | {sum(map(bool, found))} of {len(rows)} "
            f"| {found.count('error')} | {accused or 'none'} | {tool.capture:.2f} | {tool.seconds:.1f} "
            f"| {tool.size() / 1e6:.1f} |"
        )
    print("\n| found by some only | " + " | ".join(t.name for t in tools) + " |\n|---|" + "---|" * len(tools))
    for name, found in rows:
        if len(set(map(bool, found))) > 1 or not any(found):
            print(f"| `{name}` | " + " | ".join(word or "-" for word in found) + " |")
    for tool in tools:
        accused = sorted(
            {f"{function} {direction} {word}" for (_, function, direction), word in honest[tool].items() if word}
        )
        print(f"\naccused on an honest device by {tool.name}: {', '.join(accused) or 'nothing'}")


def main():
    parser = argparse.ArgumentParser(
        prog="./run bench precheck", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="of 24 faults each (default 1)")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="checks at a time (default 1)")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part:
        name, *words = options.part
        {"capture": capture_part, "peer-check": peer_check_part}[name](*words)
        return
    try:
        peer.prepare()
    except RuntimeError as reason:
        sys.exit(f"bench_precheck: msprobe cannot be had: {reason}")
    with tempfile.TemporaryDirectory() as scratch:
        tools = []
        for kind, tasks in ((Ours, ("stats", "full")), (Peer, ("statistics", "tensor"))):
            for task in tasks:
                folder = Path(scratch, f"{kind.__name__}-{task}")
                folder.mkdir()
                tools.append(kind(task, folder))
        table(tools, *compare(tools, options.rounds, options.jobs))


if __name__ == "__main__":
    main()
