# SPDX-License-Identifier: Apache-2.0
"""Random kernels that draw numbers, right and wrong: normal, uniform, whole, permutations, waiting times, counts,
Gumbel softmax."""

import math

import torch

from .random_law import bf, by_hash, law, seed_of, uniform


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
