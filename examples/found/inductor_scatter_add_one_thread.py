# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 inductor, CPU, one thread: what torch.compile generates for scatter_add in bfloat16 and float16 rounds
after each addition: 4,096 ones are 256, and 2,048. Eager torch, and compiled code of two threads, give 4,096.
Found by `ulpscope fuzz --device cpu --programs --via inductor --seed 41 -j 1` (case 41:249, sums of 16 elements).

Issues: none found of the CPU; pytorch/pytorch#198199 (open, September 2026) is the same of index_put on ROCm.
Needs torch alone; 1: it fails. Ones are counted: the sum is exact in both formats."""

import sys

import torch


def program(x, at):
    return torch.zeros(2, dtype=x.dtype).scatter_add(0, at, x)


wrong, at = 0, torch.zeros(4096, dtype=torch.int64)
for dtype in (torch.bfloat16, torch.float16):
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.compiler.reset()
        x = torch.ones(4096, dtype=dtype)
        eager, compiled = program(x, at)[0].item(), torch.compile(program)(x, at)[0].item()
        print(dtype, f"{threads} threads: eager {eager:g}, compiled {compiled:g}, expected 4096")
        wrong += compiled != 4096
sys.exit(wrong > 0)
