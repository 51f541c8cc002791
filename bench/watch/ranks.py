# SPDX-License-Identifier: Apache-2.0
"""The same over several processes and gloo: each runs this file; the first writes what was found."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import plant, traincheck, watched
from .work import Training

ROOT = Path(__file__).resolve().parents[2]
WORKS_OF = {
    "ddp": (("mlp", "float32"), ("gpt", "bfloat16"), ("moe", "float32"), ("cnn", "bfloat16")),
    "fsdp2": (("gpt", "float32"), ("mlp", "bfloat16")),
}
CLEAN, STEPS = 24, 10  # a step over processes costs more


def launch(kind: str, world: int, path: Path, seconds: float, seed: int) -> None:
    """Runs it in `world` processes for about so many seconds; rows are appended to `path`."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world), OMP_NUM_THREADS="1")
    command = [sys.executable, "-m", "bench.watch.ranks", kind, str(path), str(seconds), str(seed)]
    runs = [subprocess.Popen(command, cwd=ROOT, env=dict(env, RANK=str(rank))) for rank in range(world)]
    codes = [run.wait() for run in runs]
    if any(codes):
        print(f"{world} processes, {kind}: ended with {codes}", file=sys.stderr)


def gathered(row: dict[str, Any]) -> dict[str, Any]:
    """What the ranks saw together: some checks are each rank's own."""
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (row["seen"], row["harm"], row["outside"]))
    for name in row["seen"]:
        row["seen"][name] = sorted(e for seen, _, _ in told for e in seen[name])
    return row | {"harm": max(h for _, h, _ in told), "outside": any(o for _, _, o in told)}


def go_on(until: float) -> bool:
    """All ranks stop at the same trial."""
    late = torch.tensor([float(time.monotonic() > until)])
    dist.all_reduce(late)
    return not late.item()


def trials(kind: str, world: int, seconds: float, seed: int, put: Any) -> None:
    works = WORKS_OF[kind]
    for i, (work, dtype) in enumerate(works):
        until = time.monotonic() + seconds / len(works)
        w = watched.Watched(Training(work, dtype, kind, dist.get_rank()), CLEAN)
        losses, alarms = watched.clean_losses(w, 3, STEPS)
        put(
            {
                "run": "clean",
                "work": work,
                "dtype": dtype,
                "kind": kind,
                "world": world,
                "steps": CLEAN + 3 * STEPS,
                "alarms": alarms,
            }
        )
        planned = plant.trials(w.t, world, seed + i, 1, CLEAN)
        order = torch.randperm(len(planned), generator=torch.Generator().manual_seed(seed)).tolist()
        for k in order:
            if not go_on(until):
                break
            put(gathered(watched.tried(w, planned[k], losses, STEPS)))
        w.close()


def main(arguments: list[str]) -> int:
    kind, path, seconds, seed = arguments[0], arguments[1], float(arguments[2]), int(arguments[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    with open(path, "a") if first else contextlib.nullcontext() as file:

        def put(row: dict[str, Any]) -> None:
            if file is not None:
                file.write(json.dumps(row) + "\n")
                file.flush()

        if kind == "traincheck":
            for row in traincheck.run(traincheck.OVER_RANKS):
                put(row)
        else:
            trials(kind, dist.get_world_size(), seconds, seed, put)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
