# SPDX-License-Identifier: Apache-2.0
"""What random kernels are written with: the table they stand in, uniform numbers, a counter mixed by hand."""

import torch


bf, hf = torch.bfloat16, torch.float16
KERNELS = []


def law(operator, words, right=False):
    def keep(fn):
        KERNELS.append((fn.__name__, operator, words, right, fn))
        return fn

    return keep


def uniform(g, *shape, dtype=torch.float32):
    return torch.rand(*shape, generator=g, dtype=dtype)


def by_hash(n, seed, lane=0):
    """Whole numbers of 32 bits from a counter, mixed as in murmur3's last step."""
    i = (torch.arange(n, dtype=torch.int64) * 2 + lane + seed * 0x9E3779B1) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        i = ((i ^ (i >> shift)) * factor) & 0xFFFFFFFF
    return i


def seed_of(g):
    return int(torch.randint(2**31, (1,), generator=g))
