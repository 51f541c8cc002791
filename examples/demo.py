# SPDX-License-Identifier: Apache-2.0
"""The whole main job on a device whose faults are known: capture a training step on the
simulated accelerator, check every operator call of it, and see whether exactly the planted
faults are named. Run by ``./run demo``."""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAIN = ROOT / "examples" / "demo" / "train.py"

# Two bugs that cost a real team weeks, and one that vendors ship as a default.
PLANTED = [
    ("aten::_fused_adamw_", "step_plus_one", "fused AdamW adds 1 to the step count a second time"),
    ("demo::rms_norm", "bf16_intermediates", "rms_norm rounds its intermediates to bfloat16"),
    ("aten::mm", "tf32", "matmul silently computes in TF32"),
]


def fused_adamw() -> bool:
    """Whether this torch fuses AdamW on the CPU, too: train.py asks torch itself."""
    major, minor = importlib.metadata.version("torch").split(".")[:2]
    return (int(major), int(minor)) >= (2, 4)


def say(text: str = "") -> None:
    print(text, flush=True)


def run(command: list[str], **environment: str) -> int:
    say("\033[2m$ " + " ".join(os.path.relpath(c) if c.startswith("/") else c for c in command) + "\033[0m")
    return subprocess.run(command, env={**os.environ, **environment}).returncode


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__.split("\n\n")[0])
    parser.add_argument("--honest", action="store_true", help="plant nothing: nothing may be accused")
    parser.add_argument("--fault", metavar="KIND", help="plant this fault instead (see --list)")
    parser.add_argument("--op", metavar="PATTERN", help="operators that get it, e.g. 'aten::bmm'")
    parser.add_argument("--list", action="store_true", help="list the kinds of faults and leave")
    parser.add_argument("--steps", type=int, default=40, help="training steps (default 40)")
    parser.add_argument("-o", "--out", default="ulpscope-demo", help="folder for trace and report")
    args = parser.parse_args()
    if bool(args.fault) != bool(args.op):
        parser.error("--fault and --op belong together, e.g. --fault drop_tail --op aten::bmm")
    if args.honest and args.fault:
        parser.error("--honest plants nothing: leave out --fault and --op")
    if args.steps < 2:
        parser.error("--steps must be 2 or more: the second step is captured")
    if args.fault:
        check_fault(parser, f"{args.op}:{args.fault}")
    return args


def check_fault(parser: argparse.ArgumentParser, text: str) -> None:
    """Refuses what the device would refuse after all the training."""
    import ulpscope.sim

    try:
        ulpscope.sim.plant(text).remove()
    except ValueError as error:
        parser.error(f"{error}; --list explains them")


def list_faults() -> None:
    import ulpscope.sim

    for kind, what in ulpscope.sim.fault_kinds().items():
        say(f"  {kind:20} {what}")


def train_honest(out: Path, steps: int) -> list[float]:
    path = out / "losses-honest.json"
    if run([sys.executable, str(TRAIN), "--steps", str(steps), "--losses", str(path)]) != 0:
        sys.exit("demo: the honest training failed; the message above says why")
    return json.loads(path.read_text())


def train_on_sim(out: Path, steps: int, faults: str) -> list[float]:
    path = out / "losses-sim.json"
    code = run(
        [
            "ulpscope",
            "capture",
            "--keep-going",
            "-o",
            str(out / "trace"),
            "--",
            sys.executable,
            str(TRAIN),
            "--device",
            "sim",
            "--steps",
            str(steps),
            "--losses",
            str(path),
        ],
        ULPSCOPE_SIM_FAULTS=faults,
    )
    if code != 0:
        sys.exit("demo: the capture failed; the message above says why")
    return json.loads(path.read_text())


def accused_in(out: Path) -> dict[str, dict]:
    """The worst flagged call per operator, from result.json."""
    result = json.loads((out / "report" / "result.json").read_text())
    worst: dict[str, dict] = {}
    for call in result["calls"]:
        if call["verdict"] in ("crashed", "timeout", "nonfinite", "wrong", "reduced", "intermittent"):
            worst.setdefault(call.get("culprit") or call["op"], call)
    return worst


def matches(pattern: str, op: str) -> bool:
    names = (op, op.rsplit(".", 1)[0], op.split("::")[-1].rsplit(".", 1)[0])
    return any(fnmatch.fnmatchcase(n, p.strip()) for p in pattern.split(",") for n in names)


def show_losses(honest: list[float], sim: list[float]) -> None:
    say("\nWhat the loss tells of it:\n")
    say("   step   honest     sim   difference")
    for step in sorted({0, *range(9, len(honest), 10), len(honest) - 1}):
        a, b = honest[step], sim[step]
        say(f"   {step:4d}   {a:.4f}   {b:.4f}   {b - a:+.4f}  ({100 * (b - a) / a:+.2f} %)")


def checked_in(out: Path) -> set[str]:
    """The operators that were checked."""
    result = json.loads((out / "report" / "result.json").read_text())
    return {op["op"] for op in result["summary"]["operators"]}


def conclude(planted: list[tuple[str, str, str]], accused: dict[str, dict], checked: set[str]) -> int:
    say("\nPlanted against found:\n")
    good = True
    for pattern, kind, what in planted:
        found = [op for op in accused if matches(pattern, op)]
        good &= bool(found)
        say(f"   {'found ' if found else 'MISSED'}  {pattern} ({kind}): {what}")
        if not any(matches(pattern, op) for op in checked):
            say("           the captured step has no such operator; the table above names those it has")
        for op in found:
            say(f"           {accused[op]['verdict']}: {accused[op]['sentence']}")
    for op in accused:
        if not any(matches(pattern, op) for pattern, _, _ in planted):
            good = False
            say(f"   FALSE   {op}: {accused[op]['sentence']}")
    if not planted:
        say("   nothing was planted" + (" and nothing is accused" if good else ""))
    return 0 if good else 1


def main() -> int:
    args = parse()
    if args.list:
        list_faults()
        return 0
    planted = [] if args.honest else PLANTED[0 if fused_adamw() else 1 :]
    if args.fault:
        planted = [(args.op, args.fault, "planted by hand")]
    faults = ";".join(f"{pattern}:{kind}" for pattern, kind, _ in planted)
    out = Path(args.out).resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    began = time.monotonic()

    if len(planted) == 2:
        say("\nThis torch does not fuse AdamW on the CPU: the fault of its fused step is left out.")
    say("\n1. An honest run on the CPU, to compare the loss with at the end.\n")
    honest = train_honest(out, args.steps)
    say(
        f"\n2. The same script on the simulated accelerator with {len(planted)} planted "
        f"fault{'s' if len(planted) != 1 else ''}; its second step is captured.\n"
    )
    sim = train_on_sim(out, args.steps, faults)
    say("\n3. Every call of that step runs again on the device and is judged.\n")
    command = ["ulpscope", "check", str(out / "trace"), "--device", "sim:0", "-o", str(out / "report")]
    code = run(command + (["--faults", faults] if faults else []))
    if code not in (0, 1):
        sys.exit("demo: the check failed; the message above says why")
    show_losses(honest, sim)
    code = conclude(planted, accused_in(out), checked_in(out))
    say(
        f"\n   The report: {os.path.relpath(out / 'report' / 'report.html')}"
        f"   ({time.monotonic() - began:.0f} s in all)"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
