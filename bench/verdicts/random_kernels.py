# SPDX-License-Identifier: Apache-2.0
"""Random kernels, right and wrong, written blind: dropout, Bernoulli, categorical, normal, uniform, whole
numbers, permutations, waiting times, counts, Gumbel softmax.

random_masks has those that keep or choose, random_numbers the others. KERNELS lists (name, operator, words,
right, kernel): `operator` says which law the kernel is meant to draw from (each kernel of one operator should
have the same), `kernel(generator)` returns one draw, always of the same shape. Mistakes are in the marginals
along one axis, in periods of 2 to 64, in pairs, in low bits and in single places; most means and variances over
a whole tensor are as they should be.

`python -m verdicts.random_kernels` in bench/ judges each by one answer at a time, wrong ones three times,
right ones six times: a wrong one is missed where none of its answers is accused, a right one must never be.
"""

import collections

import torch
import torch.nn.functional as F

import ulpscope

from .random_law import KERNELS, bf, hf
from .random_masks import P
from . import random_numbers  # noqa: F401 - its kernels stand in the table, too

DEFINITIONS = {
    "bernoulli(0.25), (40000,) fp16": (lambda x: torch.bernoulli(x, 0.25), (torch.zeros(40000, dtype=hf),)),
    "dropout(ones(256, 128), 0.3)": (lambda x: F.dropout(x, 0.3), (torch.ones(256, 128),)),
    "dropout(ones(512, 64) bf16, 0.5)": (lambda x: F.dropout(x, 0.5), (torch.ones(512, 64, dtype=bf),)),
    "exponential(2), (200, 100)": (lambda: torch.empty(200, 100).exponential_(2.0), ()),
    "hard gumbel_softmax(zeros(4000, 6))": (lambda x: F.gumbel_softmax(x, hard=True), (torch.zeros(4000, 6),)),
    "multinomial(P, 32 of each of 600 rows, replacement)": (
        lambda p: torch.multinomial(p, 32, True),
        (P.expand(600, 8).contiguous(),),
    ),
    "normal(0, 1), (300, 64)": (lambda: torch.randn(300, 64), ()),
    "poisson(3), (300, 80)": (torch.poisson, (torch.full((300, 80), 3.0),)),
    "randint(0, 10), (64, 500)": (lambda: torch.randint(0, 10, (64, 500)), ()),
    "randperm(20), 1500 rows": (lambda x: torch.stack([torch.randperm(20) for _ in range(1500)]), (torch.zeros(1),)),
    "uniform(0, 1), (20000,) bf16": (lambda: torch.rand(20000, dtype=bf), ()),
    "uniform(0, 1), (50000,)": (lambda: torch.rand(50000), ()),
}


def main():
    """Prints a line a kernel, then how many of each kind came otherwise than they should."""
    torch.set_num_threads(1)
    odd = collections.Counter()
    for _name, operator, words, right, kernel in KERNELS:
        fn, args = DEFINITIONS[operator]
        said = collections.Counter()
        for seed in range(6 if right else 3):
            torch.manual_seed(seed)
            given = kernel(torch.Generator().manual_seed(100 + seed))
            said[ulpscope.judge_call(fn, args, outputs=given, cause=False).verdict] += 1
        accused = said["wrong"] + said["nonfinite"] + said["reduced"]
        bad = accused > 0 if right else accused == 0
        odd["right and accused" if right else "wrong and missed"] += bad
        print(f"{'NO ' if bad else 'yes'} {operator}: {words} -> {dict(said)}", flush=True)
    print(", ".join(f"{n} {kind}" for kind, n in odd.items()), f"of {len(KERNELS)}")


if __name__ == "__main__":
    main()
