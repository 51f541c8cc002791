# SPDX-License-Identifier: Apache-2.0
"""Random kernels, right and wrong, written blind: dropout, Bernoulli, categorical, normal, uniform, whole
numbers, permutations, waiting times, counts, Gumbel softmax.

KERNELS lists (name, operator, words, right, kernel): `operator` says which law the kernel is meant to draw
from (each kernel of one operator should have the same), `kernel(generator)` returns one draw, always of the
same shape. Mistakes are in the marginals along one axis, in periods of 2 to 64, in pairs, in low bits and in
single places; most means and variances over a whole tensor are as they should be.

`python -m verdicts.random_kernels` in bench/ judges each by one answer at a time, wrong ones three times,
right ones six times: a wrong one is missed where none of its answers is accused, a right one must never be.
"""

import collections
import math

import torch
import torch.nn.functional as F

import ulpscope

bf, hf = torch.bfloat16, torch.float16
KERNELS = []
P = torch.tensor((0.05, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05))


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


# ------------------------------------------------------------------ dropout of ones, p = 0.3, 256 x 128


def dropped(keep, dtype=torch.float32, scale=1 / 0.7):
    return (keep.to(torch.float32) * scale).to(dtype)


@law("dropout(ones(256, 128), 0.3)", "a uniform number below 0.7 keeps", True)
def dropout_right(g):
    return dropped(uniform(g, 256, 128) < 0.7)


@law("dropout(ones(256, 128), 0.3)", "a counter mixed by hand", True)
def dropout_right_counter(g):
    return dropped((by_hash(32768, seed_of(g)).double() / 2**32 >= 0.3).view(256, 128))


@law("dropout(ones(256, 128), 0.3)", "every row has the same mask")
def dropout_same_rows(g):
    return dropped((uniform(g, 1, 128) < 0.7).expand(256, 128))


@law("dropout(ones(256, 128), 0.3)", "each block of 64 rows has the same mask")
def dropout_same_blocks(g):
    return dropped((uniform(g, 64, 128) < 0.7).repeat(4, 1))


@law("dropout(ones(256, 128), 0.3)", "the last column is never dropped")
def dropout_last_column(g):
    return dropped((uniform(g, 256, 128) < 0.7) | (torch.arange(128) == 127))


@law("dropout(ones(256, 128), 0.3)", "neighbouring columns are dropped together")
def dropout_pairs(g):
    return dropped((uniform(g, 256, 64) < 0.7).repeat_interleave(2, 1))


@law("dropout(ones(256, 128), 0.3)", "columns 0 and 1 of each 16 share what should be 0.7: 0.9 and 0.5")
def dropout_uneven_columns(g):
    p = torch.full((128,), 0.7)
    p[0::16], p[1::16] = 0.9, 0.5
    return dropped(uniform(g, 256, 128) < p)


@law("dropout(ones(256, 128), 0.3)", "kept values are not divided by 0.7")
def dropout_not_scaled(g):
    return dropped(uniform(g, 256, 128) < 0.7, scale=1.0)


@law("dropout(ones(256, 128), 0.3)", "keeps with probability 0.3")
def dropout_turned(g):
    return dropped(uniform(g, 256, 128) < 0.3)


@law("dropout(ones(512, 64) bf16, 0.5)", "a uniform number below 0.5 keeps", True)
def dropout_bf16_right(g):
    return dropped(uniform(g, 512, 64) < 0.5, bf, 2.0)


@law("dropout(ones(512, 64) bf16, 0.5)", "exactly half of each row is kept")
def dropout_bf16_exact(g):
    return dropped(uniform(g, 512, 64).argsort(1) < 32, bf, 2.0)


@law("dropout(ones(512, 64) bf16, 0.5)", "each second row is the complement of the row before")
def dropout_bf16_mirror(g):
    m = uniform(g, 256, 64) < 0.5
    return dropped(torch.stack((m, ~m), 1).flatten(0, 1), bf, 2.0)


# ------------------------------------------------------------------ bernoulli(0.25) of 40000, fp16 and float32


@law("bernoulli(0.25), (40000,) fp16", "a uniform number below 0.25", True)
def bernoulli_right(g):
    return (uniform(g, 40000) < 0.25).to(hf)


@law("bernoulli(0.25), (40000,) fp16", "a byte below 64", True)
def bernoulli_right_bytes(g):
    return (torch.randint(256, (40000,), generator=g) < 64).to(hf)


@law("bernoulli(0.25), (40000,) fp16", "by place mod 4 the share is 40, 56, 72 or 88 of 256")
def bernoulli_residues(g):
    return (torch.randint(256, (40000,), generator=g) < 64 + (torch.arange(40000) % 4) * 16 - 24).to(hf)


@law("bernoulli(0.25), (40000,) fp16", "each 37th place is always 0")
def bernoulli_stuck_residue(g):
    return (uniform(g, 40000) < 0.25).to(hf) * (torch.arange(40000) % 37 != 36)


@law("bernoulli(0.25), (40000,) fp16", "the second half copies the first")
def bernoulli_copied(g):
    return (uniform(g, 20000) < 0.25).to(hf).repeat(2)


@law("bernoulli(0.25), (40000,) fp16", "nothing is drawn from place 39936 on, the last full block")
def bernoulli_tail(g):
    return (uniform(g, 40000) < 0.25).to(hf) * (torch.arange(40000) < 39936)


# ------------------------------------------------------------------ multinomial of 8 shares, (600, 32)


@law("multinomial(P, 32 of each of 600 rows, replacement)", "places in the cumulative sum", True)
def multinomial_right(g):
    return torch.searchsorted(P.cumsum(0), uniform(g, 600, 32) * P.sum())


@law("multinomial(P, 32 of each of 600 rows, replacement)", "Gumbel's largest", True)
def multinomial_right_gumbel(g):
    u = uniform(g, 600, 32, 8, dtype=torch.float64).clamp(min=1e-300)
    return (P.log() - (-u.log()).log()).argmax(-1)


@law("multinomial(P, 32 of each of 600 rows, replacement)", "the last draw of each row is uniform")
def multinomial_last(g):
    at = multinomial_right(g)
    at[:, -1] = torch.randint(8, (600,), generator=g)
    return at


@law("multinomial(P, 32 of each of 600 rows, replacement)", "the last class is never drawn")
def multinomial_missing(g):
    return multinomial_right(g).clamp(max=6)


@law("multinomial(P, 32 of each of 600 rows, replacement)", "one uniform number serves a row, moved by 1/32 a draw")
def multinomial_stratified(g):
    u = (uniform(g, 600, 1) + torch.arange(32) / 32) % 1
    return torch.searchsorted(P.cumsum(0), u * P.sum()).clamp(max=7)


@law("multinomial(P, 32 of each of 600 rows, replacement)", "classes 3 and 4, alike in share, take turns by column")
def multinomial_turns(g):
    at = multinomial_right(g)
    return torch.where((at == 3) | (at == 4), 3 + torch.arange(32) % 2, at)


# ------------------------------------------------------------------ normal_(0, 1), (300, 64)


@law("normal(0, 1), (300, 64)", "Box and Muller", True)
def normal_right(g):
    u, v = uniform(g, 9600, dtype=torch.float64), uniform(g, 9600, dtype=torch.float64)
    r = (-2 * (1 - u).log()).sqrt()
    return torch.stack((r * (2 * math.pi * v).cos(), r * (2 * math.pi * v).sin()), -1).view(300, 64).float()


@law("normal(0, 1), (300, 64)", "the inverse of the distribution function", True)
def normal_right_inverse(g):
    return torch.special.ndtri(uniform(g, 300, 64, dtype=torch.float64).clamp(1e-15)).float()


@law("normal(0, 1), (300, 64)", "twelve uniform numbers less six")
def normal_twelve(g):
    return uniform(g, 300, 64, 12).sum(-1) - 6


@law("normal(0, 1), (300, 64)", "the second of a pair is minus the first")
def normal_mirrored(g):
    z = torch.randn(9600, generator=g)
    return torch.stack((z, -z), -1).view(300, 64)


@law("normal(0, 1), (300, 64)", "column deviations run from 0.9 to 1.1")
def normal_columns(g):
    return torch.randn(300, 64, generator=g) * torch.linspace(0.9, 1.1, 64)


@law("normal(0, 1), (300, 64)", "sine is taken twice: pairs are equal in size")
def normal_one_branch(g):
    u, v = uniform(g, 9600), uniform(g, 9600)
    r = (-2 * (1 - u).log()).sqrt() * (2 * math.pi * v).sin()
    return torch.stack((r, r), -1).view(300, 64)


@law("normal(0, 1), (300, 64)", "the last element of each row is not written")
def normal_last(g):
    z = torch.randn(300, 64, generator=g)
    z[:, -1] = 0
    return z


@law("normal(0, 1), (300, 64)", "cut at 2.5, drawn again")
def normal_cut(g):
    z, other = torch.randn(300, 64, generator=g), torch.randn(300, 64, generator=g)
    return torch.where(z.abs() > 2.5, other.clamp(-2.5, 2.5), z)


@law("normal(0, 1), (300, 64)", "rows follow each other with a correlation of 0.2")
def normal_correlated(g):
    z = torch.randn(301, 64, generator=g)
    return z[1:] * 0.96**0.5 + 0.2 * z[:-1]


# ------------------------------------------------------------------ uniform_(0, 1), (50000,) float32 and bf16


@law("uniform(0, 1), (50000,)", "24 bits over 2^24", True)
def uniform_right(g):
    return torch.randint(2**24, (50000,), generator=g).float() * 2.0**-24


@law("uniform(0, 1), (50000,)", "a counter mixed by hand", True)
def uniform_right_counter(g):
    return (by_hash(50000, seed_of(g)) >> 8).float() * 2.0**-24


@law("uniform(0, 1), (50000,)", "only 16 bits: low bits are 0")
def uniform_sixteen(g):
    return torch.randint(2**16, (50000,), generator=g).float() * 2.0**-16


@law("uniform(0, 1), (50000,)", "the lowest of 24 bits is always 1")
def uniform_stuck_bit(g):
    return (torch.randint(2**24, (50000,), generator=g) | 1).float() * 2.0**-24


@law("uniform(0, 1), (50000,)", "every place with i mod 64 = 63 repeats the place before")
def uniform_repeats(g):
    u = uniform(g, 50000)
    at = torch.arange(50000)
    return u[at - (at % 64 == 63).long()]


@law("uniform(0, 1), (50000,)", "the root of a uniform number in each 16th place")
def uniform_bent(g):
    u = uniform(g, 50000)
    return torch.where(torch.arange(50000) % 16 == 5, u.sqrt(), u)


@law("uniform(0, 1), (50000,)", "a grid in random order: every 50000th part has one number")
def uniform_grid(g):
    return torch.randperm(50000, generator=g).float() / 50000


@law("uniform(0, 1), (20000,) bf16", "8 bits over 256", True)
def uniform_bf16_right(g):
    return (torch.randint(256, (20000,), generator=g).float() / 256).to(bf)


@law("uniform(0, 1), (20000,) bf16", "float32 rounded to nearest, so 1 comes up")
def uniform_bf16_one(g):
    return uniform(g, 20000).to(bf)


@law("uniform(0, 1), (20000,) bf16", "7 bits, with the eighth from the place's parity")
def uniform_bf16_parity(g):
    return ((torch.randint(128, (20000,), generator=g) * 2 + torch.arange(20000) % 2).float() / 256).to(bf)


@law("uniform(0, 1), (20000,) bf16", "each block of 2048 starts anew from the same seed")
def uniform_bf16_blocks(g):
    return (torch.randint(256, (2048,), generator=g).float() / 256).to(bf).repeat(10)[:20000]


# ------------------------------------------------------------------ randint(0, 10), (64, 500)


@law("randint(0, 10), (64, 500)", "whole part of ten uniform parts", True)
def randint_right(g):
    return (uniform(g, 64, 500, dtype=torch.float64) * 10).long()


@law("randint(0, 10), (64, 500)", "a 31-bit number mod 10", True)
def randint_right_mod(g):
    return torch.randint(2**31, (64, 500), generator=g) % 10


@law("randint(0, 10), (64, 500)", "a 5-bit number mod 10: 0 and 1 come too often")
def randint_few_bits(g):
    return torch.randint(32, (64, 500), generator=g) % 10


@law("randint(0, 10), (64, 500)", "9 is never drawn; the other nine are")
def randint_missing(g):
    return torch.randint(9, (64, 500), generator=g)


@law("randint(0, 10), (64, 500)", "parity follows the column")
def randint_parity(g):
    return torch.randint(5, (64, 500), generator=g) * 2 + torch.arange(500) % 2


@law("randint(0, 10), (64, 500)", "row r is row 0 plus r, mod 10")
def randint_shifted(g):
    return (torch.randint(10, (1, 500), generator=g) + torch.arange(64)[:, None]) % 10


# ------------------------------------------------------------------ randperm(20), 1500 times


@law("randperm(20), 1500 rows", "keys sorted", True)
def randperm_right(g):
    return uniform(g, 1500, 20, dtype=torch.float64).argsort(-1)


@law("randperm(20), 1500 rows", "swaps with later places", True)
def randperm_right_swaps(g):
    out, rows = torch.arange(20).repeat(1500, 1), torch.arange(1500)
    for i in range(19):
        j = torch.randint(i, 20, (1500,), generator=g)
        a, b = out[:, i].clone(), out[rows, j].clone()
        out[:, i], out[rows, j] = b, a
    return out


@law("randperm(20), 1500 rows", "each place is swapped with any place: not all orders alike")
def randperm_any_swap(g):
    out, rows = torch.arange(20).repeat(1500, 1), torch.arange(1500)
    for i in range(20):
        j = torch.randint(20, (1500,), generator=g)
        a, b = out[:, i].clone(), out[rows, j].clone()
        out[:, i], out[rows, j] = b, a
    return out


@law("randperm(20), 1500 rows", "the last stays last")
def randperm_last(g):
    return torch.cat((uniform(g, 1500, 19).argsort(-1), torch.full((1500, 1), 19)), 1)


@law("randperm(20), 1500 rows", "turns of one order")
def randperm_turned(g):
    return (torch.arange(20) + torch.randint(20, (1500, 1), generator=g)) % 20


@law("randperm(20), 1500 rows", "no place keeps its own number (cycles of 20 only)")
def randperm_cycles(g):
    out, rows = torch.arange(20).repeat(1500, 1), torch.arange(1500)
    for i in range(19):
        j = torch.randint(i + 1, 20, (1500,), generator=g)
        a, b = out[:, i].clone(), out[rows, j].clone()
        out[:, i], out[rows, j] = b, a
    return out


# ------------------------------------------------------------------ exponential_(2), poisson(3), gumbel softmax


@law("exponential(2), (200, 100)", "minus the log over the rate", True)
def exponential_right(g):
    return (-(1 - uniform(g, 200, 100, dtype=torch.float64)).log() / 2).float()


@law("exponential(2), (200, 100)", "the rate is multiplied, not divided")
def exponential_rate(g):
    return exponential_right(g) * 4


@law("exponential(2), (200, 100)", "the log of 11-bit numbers: no large ones, steps between")
def exponential_few_bits(g):
    return -((torch.randint(2**11, (200, 100), generator=g) + 1).float() * 2.0**-11).log() / 2


@law("exponential(2), (200, 100)", "a column's mean runs from 0.45 to 0.55")
def exponential_columns(g):
    return exponential_right(g) * torch.linspace(0.9, 1.1, 100)


@law("exponential(2), (200, 100)", "half a normal number's size, with the same mean")
def exponential_folded(g):
    return torch.randn(200, 100, generator=g).abs() * (0.5 * (math.pi / 2) ** 0.5)


@law("poisson(3), (300, 80)", "products of uniform numbers", True)
def poisson_right(g):
    return (uniform(g, 300, 80, 40, dtype=torch.float64).cumprod(-1) > math.exp(-3)).sum(-1).float()


@law("poisson(3), (300, 80)", "waiting times added", True)
def poisson_right_times(g):
    return ((-(1 - uniform(g, 300, 80, 40, dtype=torch.float64)).log()).cumsum(-1) < 3).sum(-1).float()


@law("poisson(3), (300, 80)", "a rounded normal number, not below 0")
def poisson_normal(g):
    return (torch.randn(300, 80, generator=g) * 3**0.5 + 3).round().clamp(min=0)


@law("poisson(3), (300, 80)", "binomial of 12, a quarter each: the mean is right, the spread is not")
def poisson_binomial(g):
    return (uniform(g, 300, 80, 12) < 0.25).sum(-1).float()


@law("poisson(3), (300, 80)", "counts stop at 6")
def poisson_stopped(g):
    return poisson_right(g).clamp(max=6)


@law("poisson(3), (300, 80)", "each odd row is one more, each even row one less")
def poisson_rows(g):
    keep = torch.where(torch.arange(300) % 2 == 1, 3.3, 2.7)[:, None].expand(300, 80).contiguous()
    return torch.poisson(keep, generator=g)


@law("hard gumbel_softmax(zeros(4000, 6))", "log of minus log", True)
def gumbel_right(g):
    u = uniform(g, 4000, 6, dtype=torch.float64).clamp(min=1e-300)
    return torch.nn.functional.one_hot((-(-u.log()).log()).argmax(-1), 6).float()


@law("hard gumbel_softmax(zeros(4000, 6))", "exponential waiting times", True)
def gumbel_right_times(g):
    return torch.nn.functional.one_hot((-(1 - uniform(g, 4000, 6, dtype=torch.float64)).log()).argmin(-1), 6).float()


@law("hard gumbel_softmax(zeros(4000, 6))", "ties of 3-bit numbers go to the first class")
def gumbel_ties(g):
    return torch.nn.functional.one_hot(torch.randint(8, (4000, 6), generator=g).argmax(-1), 6).float()


@law("hard gumbel_softmax(zeros(4000, 6))", "the noise of class 5 is that of class 4, so it never wins")
def gumbel_shared(g):
    u = uniform(g, 4000, 6)
    u[:, 5] = u[:, 4]
    return torch.nn.functional.one_hot(u.argmax(-1), 6).float()


@law("hard gumbel_softmax(zeros(4000, 6))", "in rows of residue 7 mod 8 the winner of the row before is written")
def gumbel_rows(g):
    out, at = gumbel_right(g), torch.arange(4000)
    return out[at - (at % 8 == 7).long()]


# ------------------------------------------------------------------ judged

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
