# SPDX-License-Identifier: Apache-2.0
"""Random kernels that keep or choose, right and wrong: dropout, Bernoulli, categorical."""

import torch

from .random_law import bf, by_hash, hf, law, seed_of, uniform

P = torch.tensor((0.05, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05))


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
