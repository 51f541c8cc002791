# SPDX-License-Identifier: Apache-2.0
"""What a verdict costs where the call is right and where it is wrong, before a cause is sought: CPU seconds, how
many times as long a wrong one takes, and the most memory beside the tensors' own bytes, each in a process of its
own. `--size N` elements (default 2e7); `--only NAME` one row."""

import argparse
import copy
import resource
import subprocess
import sys
import time

SMALL = ("softmax 512x64 half", "layer_norm 64x4096")
STATISTICS = "running statistics 32x64x56x56"
LARGE = ("add", "relu", "gelu", "softmax", "layer_norm", "linear", "mean")
ROWS = (*SMALL, STATISTICS, *LARGE)


def call(name, n):
    """(function, arguments) of a row."""
    import torch

    F = torch.nn.functional
    if name == "add":
        return torch.add, (torch.rand(n), torch.rand(n))
    if name == "relu":
        return torch.relu, (torch.randn(n),)
    if name == "gelu":
        return F.gelu, (torch.randn(n),)
    if name == "softmax":
        return torch.softmax, (torch.randn(n // 1024, 1024), -1)
    if name == "layer_norm":
        return F.layer_norm, (torch.randn(n // 4096, 4096), (4096,), torch.rand(4096), torch.rand(4096))
    if name == "linear":
        return F.linear, (torch.randn(n // 256, 256), torch.randn(256, 256))
    if name == "mean":
        return torch.mean, (torch.rand(n),)
    if name == STATISTICS:
        x = torch.randn(32 if n > 1 << 12 else 1, 64, 56, 56)
        return F.batch_norm, (x, torch.zeros(64), torch.ones(64), torch.rand(64), torch.randn(64), True, 0.1, 1e-5)
    if name.startswith("softmax"):
        return torch.softmax, (torch.randn(512, 64).half(), -1)
    return F.layer_norm, (torch.randn(64, 4096), (4096,))


def one(name, n, wrong):
    """Prints CPU seconds and bytes of one verdict, behind one on the same call of a few elements."""
    import torch

    import ulpscope

    torch.manual_seed(0)
    fn, args = call(name, n)
    after = copy.deepcopy(args) if name == STATISTICS else args
    out = fn(*after)
    if wrong and name == STATISTICS:
        after[1].mul_(1.02)
        after[2].mul_(0.97)
    elif wrong:
        flat = out.view(-1)
        flat[:: max(1, flat.numel() // 7)] *= 1.1
    more = {"mutated": (after, {})} if name == STATISTICS else {}
    del after
    size = sum(t.nbytes for t in (*args, out) if isinstance(t, torch.Tensor))
    warm = call(name, 1 << 12)
    ulpscope.judge_call(*warm, outputs=1.1 * warm[0](*warm[1]), cause=False)  # what is loaded once
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    verdict = ulpscope.judge_call(fn, args, outputs=out, cause=False, **more).verdict
    seconds = time.process_time() - start
    most = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if (verdict != "pass") != wrong:
        sys.exit(f"{name} is {verdict}")
    print(seconds, most / size)


def main():
    take = argparse.ArgumentParser(description=__doc__)
    take.add_argument("--size", type=float, default=2e7)
    take.add_argument("--only", action="append", choices=ROWS)
    take.add_argument("--one", nargs=2)
    asked = take.parse_args()
    n = int(asked.size)
    if asked.one:
        return one(asked.one[0], n, asked.one[1] == "wrong")
    print(
        f"{'call':32} {'CPU s, right':>13} {'CPU s, wrong':>13} {'wrong / right':>14} {'memory / tensors, wrong':>24}"
    )
    for name in asked.only or ROWS:
        told = []
        for how in ("right", "wrong"):
            done = subprocess.run(
                [sys.executable, __file__, "--size", str(n), "--one", name, how],
                capture_output=True,
                text=True,
                check=True,
            )
            told.append([float(x) for x in done.stdout.split()])
        (right, _), (wrong, memory) = told
        print(f"{name:32} {right:13.2f} {wrong:13.2f} {wrong / right:14.1f} {memory:24.1f}", flush=True)


if __name__ == "__main__":
    main()
