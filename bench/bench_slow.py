# SPDX-License-Identifier: Apache-2.0
"""What a verdict costs where the call is right and where it is wrong, before a cause is sought: CPU seconds and
the most memory beside the tensors' own bytes, each in a process of its own. `--size N` elements (default 2e7)."""

import argparse
import resource
import subprocess
import sys
import time

SMALL = ("softmax 512x64 half", "layer_norm 64x4096")
LARGE = ("add", "relu", "linear", "mean")


def call(name, n):
    """(function, arguments) of a row."""
    import torch

    F = torch.nn.functional
    if name == "add":
        return torch.add, (torch.rand(n), torch.rand(n))
    if name == "relu":
        return torch.relu, (torch.randn(n),)
    if name == "linear":
        return F.linear, (torch.randn(n // 256, 256), torch.randn(256, 256))
    if name == "mean":
        return torch.mean, (torch.rand(n),)
    if name.startswith("softmax"):
        return torch.softmax, (torch.randn(512, 64).half(), -1)
    return F.layer_norm, (torch.randn(64, 4096), (4096,))


def one(name, n, wrong):
    """Prints CPU seconds and bytes of one verdict, behind one on the same call of a few elements."""
    import torch

    import ulpscope

    torch.manual_seed(0)
    fn, args = call(name, n)
    out = fn(*args)
    if wrong:
        flat = out.view(-1)
        flat[:: max(1, flat.numel() // 7)] *= 1.1
    size = sum(t.nbytes for t in (*args, out) if isinstance(t, torch.Tensor))
    warm = call(name, 1 << 12)
    ulpscope.judge_call(*warm, outputs=1.1 * warm[0](*warm[1]), cause=False)  # what is loaded once
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    verdict = ulpscope.judge_call(fn, args, outputs=out, cause=False).verdict
    seconds = time.process_time() - start
    most = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if (verdict != "pass") != wrong:
        sys.exit(f"{name} is {verdict}")
    print(seconds, most / size)


def main():
    take = argparse.ArgumentParser(description=__doc__)
    take.add_argument("--size", type=float, default=2e7)
    take.add_argument("--one", nargs=2)
    asked = take.parse_args()
    n = int(asked.size)
    if asked.one:
        return one(asked.one[0], n, asked.one[1] == "wrong")
    print(f"{'call':22} {'CPU s, right':>13} {'CPU s, wrong':>13} {'memory / tensors, wrong':>24}")
    for name in (*SMALL, *LARGE):
        told = []
        for how in ("right", "wrong"):
            done = subprocess.run([sys.executable, __file__, "--size", str(n), "--one", name, how],
                                  capture_output=True, text=True, check=True)  # fmt: skip
            told.append([float(x) for x in done.stdout.split()])
        print(f"{name:22} {told[0][0]:13.2f} {told[1][0]:13.2f} {told[1][1]:24.1f}", flush=True)


if __name__ == "__main__":
    main()
