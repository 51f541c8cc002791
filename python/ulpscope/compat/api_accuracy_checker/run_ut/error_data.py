# SPDX-License-Identifier: Apache-2.0
"""`python -m ulpscope.compat.api_accuracy_checker.run_ut.error_data TRACE DEVICE FOLDER`: inputs, the
device's outputs and the reference of calls, a line `SEQUENCE NAME` of standard input each, as files
for torch.load. Needs torch.save; calls are rebuilt and run as a check does it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from .... import _core
from ....calls.replay import BadCall, Call, bind_exact
from ....calls.call_results import plain
from ....executors.device import open_device
from ....executors.reference_runs import Reference
from ....session.bench import rebuilt


def write(call: Call, device: Any, start: str | Path) -> None:
    """START.input.PATH.pt, START.output.device.PATH.pt and START.output.bench.PATH.pt."""
    inputs = bind_exact(call, lambda captured: "cpu").tensors
    reference = Reference(call)
    reference.begin()
    for kind, tensors in (
        ("input", inputs),
        ("output.device", device.run(call).outputs),
        ("output.bench", reference.truth),
    ):
        for path, tensor in tensors.items():
            torch.save(plain(tensor).detach().cpu().clone(), f"{start}.{kind}.{path}.pt")


def main() -> int:
    """2 where a call could not be written, with a sentence for each."""
    folder, name, out = sys.argv[1:]
    trace, code = _core.Trace(folder), 0
    device = open_device(name, name.partition(":")[0])
    for line in sys.stdin:
        sequence, start = line.rstrip("\n").split(" ", 1)
        try:
            write(rebuilt(trace, trace.meta("id") or "", trace.call(int(sequence))), device, Path(out) / start)
        except (BadCall, RuntimeError, OSError, ValueError) as problem:
            print(f"{start}: no data: {problem}", file=sys.stderr)
            code = 2
    return code


if __name__ == "__main__":
    raise SystemExit(main())
