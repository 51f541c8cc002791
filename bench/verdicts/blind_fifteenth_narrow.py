# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: definitions of the other files that take and give 16 bits, with mistakes of their own."""

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_fifteenth_attention import chunk, chunk_kernel, sunk, sunk_kernel, window, window_kernel
from .blind_fifteenth_attentive import (
    causal_backward,
    causal_grad,
    differ,
    differ_kernel,
    linear,
    linear_kernel,
)
from .blind_fifteenth_base import add, hold
from .blind_fifteenth_losses import smooth, smooth_kernel
from .blind_fifteenth_norms import dynamic, dynamic_kernel, modulate, modulate_kernel, rms_backward, rms_grad
from .blind_fifteenth_optimizers import adamw, adamw_kernel
from .blind_fifteenth_positions import columns, conv, sample, sample_kernel, winograd
from .blind_fifteenth_recurrent import griffin, griffin_kernel, gru, gru_kernel, mlstm, mlstm_kernel, ssd, ssd_args
from .blind_fifteenth_recurrent import ssd_kernel
from .blind_fourteenth_base import halves, lanes, serial, up


def rounded(fn):
    """The definition read as float32 and rounded once to the format of its first argument."""

    def run(*args):
        got = fn(*map(up, args))
        kind = args[0].dtype
        return tuple(t.to(kind) for t in got) if isinstance(got, tuple) else got.to(kind)

    return run


def made(make, kind):
    """Arguments as `make` draws them, floating ones in `kind`."""
    return lambda d: tuple(t.to(kind) if t.is_floating_point() else t for t in make(d))


def put(name, fn, make, kernel, kind, right, wrong):
    add(f"{name}_{str(kind)[6:]}", rounded(fn), made(make, kind), kernel, dtype=kind, right=right, wrong=wrong)


put(
    "sliding_window",
    window,
    lambda d: (d(4, 72, 32), d(2, 72, 32), d(2, 72, 32)),
    window_kernel,
    hf,
    {"tiles of 16": {"block": 16}, "tiles of 24": {"block": 24}},
    {
        "the window holds 25": {"size": 25},
        "the accumulator is not rescaled when the maximum grows": {"rescale": False, "block": 8},
        "one column of the future is seen": {"ahead": 1},
        "logits lack the scale": {"scale": 1.0},
        "query heads take the key heads in turn, not in groups": {"wrap": True},
    },
)
put(
    "sinks",
    sunk,
    lambda d: (d(4, 64, 32), d(4, 64, 32), d(4, 64, 32), d(4, shift=1.5)),
    sunk_kernel,
    bf,
    {"tiles of 16": {"block": 16}},
    {
        "the sink is left out": {"sunk": 0},
        "each head takes the sink of its neighbour": {"roll": 1},
        "the sum is not rescaled when the maximum grows": {"sums": False, "block": 16},
        "hides: probabilities are rounded to bfloat16": {"kind": bf},
    },
)
put(
    "chunked_prefill",
    chunk,
    lambda d: (d(2, 40, 64), d(2, 100, 64), d(2, 100, 64)),
    lambda q, k, v, **how: chunk_kernel(q, k, v, **({"past": 60} | how)),
    bf,
    {"tiles of 32": {}, "tiles of 20": {"block": 20}},
    {
        "the offset of the cache is forgotten": {"past": 0},
        "the last partial tile is lost": {"tail": 4},
        "the accumulator is not rescaled when the maximum grows": {"rescale": False},
        "hides: the accumulator is in bfloat16": {"acc": bf, "block": 20},
    },
)
put(
    "differential_attention",
    differ,
    lambda d: (d(3, 36, 32), d(3, 36, 32), d(3, 36, 32), 0.2 + 0.3 * d.rand(3)),
    differ_kernel,
    bf,
    {"by the formula": {}},
    {
        "the maps are added": {"plus": True},
        "the output is not normed": {"normed": False},
        "all heads take the first one's lambda": {"one": True},
        "the mean square divides by 16, half a head": {"n": 16},
    },
)
put(
    "linear_attention",
    linear,
    lambda d: (d(2, 60, 16), d(2, 60, 16), d(2, 60, 16, shift=0.5)),
    linear_kernel,
    hf,
    {"blocks of 16": {}, "blocks of 20": {"block": 20}},
    {
        "the diagonal is left out within blocks": {"strict": True},
        "the state takes the block before it is used": {"lag": True},
        "hides: the state is rounded to bfloat16 after each block": {"kind": bf, "block": 4},
    },
)
put(
    "attention_backward",
    causal_backward,
    lambda d: (d(2, 40, 32), d(2, 40, 32), d(2, 40, 32), d(2, 40, 32)),
    causal_grad,
    hf,
    {"by tiles of 16 columns": {}, "by tiles of 8 columns": {"group": 8}},
    {
        "the rows' products of output and gradient are not taken off": {"delta": False},
        "the queries' gradient takes the probabilities' gradient": {"raw": True},
        "the keys' gradient lacks the scale": {"k_scale": False},
        "the last tile of keys gets no gradient": {"tail": 8, "group": 8},
    },
)
put(
    "rms_backward",
    rms_backward,
    lambda d: (d(30, 128, scale=1.7), d(128, scale=0.2, shift=1), d(30, 128, scale=0.1)),
    rms_grad,
    bf,
    {"lanes": {}, "pairs of halves": {"total": halves}},
    {
        "the part through the statistic is left out": {"inner": False},
        "the weight is left out of the inputs' gradient": {"weight": False},
        "the weight's gradient lacks the last six rows": {"rows": 24},
        "the mean square divides by 120": {"n": 120},
        "hides: squares are summed in bfloat16": {"total": lambda x: serial(x, bf)},
    },
)
put(
    "adaptive_norm",
    modulate,
    lambda d: (d(4, 10, 96, shift=0.5), d(4, 96, scale=0.5), d(4, 96, scale=0.5), d(4, 96, scale=0.7)),
    modulate_kernel,
    bf,
    {"pairs of halves": {}},
    {
        "the scale has no offset of one": {"plus": 0.0},
        "the gate is left out": {"bare": True},
        "the scale is that of the image before": {"roll": 1},
    },
)
put(
    "dynamic_tanh",
    dynamic,
    lambda d: (d(24, 120, scale=2.0), torch.tensor([0.6]), d(120, scale=0.3, shift=1), d(120, scale=0.5)),
    dynamic_kernel,
    hf,
    {"by expm1": {}},
    {
        "the bias is added before the weight": {"early": True},
        "the tangent is in bfloat16": {"kind": bf},
        "alpha is left out": {"scale": 1 / 0.6},
    },
)
put(
    "adamw_step",
    adamw,
    lambda d: (d(800, scale=0.01), d(800, scale=0.1), d(800, scale=0.05), d(800, scale=0.1) ** 2),
    adamw_kernel,
    bf,
    {"in float32, rounded once": {}},
    {
        "the bias correction counts from zero": {"step": 6},
        "the second moment is not corrected": {"both": False},
        "the parameter moves by the momentum of the step before": {"old": True},
        "the momentum is left out of the step": {"plain": True},
        "hides: the decay comes after the step": {"late": True},
    },
)
put(
    "smoothed_labels",
    smooth,
    lambda d: (d(40, 200, scale=2.0, shift=1.0), d.ints(200, 40)),
    smooth_kernel,
    bf,
    {"compensated": {}, "pairs of halves": {"total": halves}},
    {
        "hides: sums are rounded to bfloat16 as they grow": {"total": lambda x: serial(x, bf)},
        "the smoothing is left out": {"eps": 0.0},
        "the penalty is not squared": {"square": False},
    },
)
put(
    "convolution_three",
    conv,
    lambda d: (d(1, 16, 12, 12), d(16, 16, 3, 3, scale=0.1), d(16)),
    winograd,
    hf,
    {"tiles of two in float32": {}, "columns and a product": columns},
    {
        "transformed tiles are rounded to bfloat16": {"kind": bf},
        "the filter is turned around": {"flip": True},
        "the edge is repeated, not zero": {"edge": 1},
    },
)
put(
    "grid_sample_points",
    sample,
    lambda d: (d(1, 8, 14, 12), d.rand(1, 12, 12, 2) * 2.2 - 1.1),
    sample_kernel,
    hf,
    {"corner by corner": {}},
    {
        "corners are aligned": {"corners": True},
        "the border is repeated": {"border": True},
        "positions are rounded to bfloat16": {"kind": bf},
    },
)
put(
    "griffin_scan",
    griffin,
    lambda d: (d(48, 24), d(48, 24), d(48, 24), d(24, shift=-3.0)),
    griffin_kernel,
    bf,
    {"by doubling": {}},
    {
        "the input's root is left out": {"root": False},
        "the two gates are swapped": {"swap": True},
        "the input's gate is left out": {"gate": False},
    },
)
put(
    "gru_cell",
    gru,
    lambda d: (d(20, 48), d(20, 40), d(120, 48, scale=0.2), d(120, 40, scale=0.2), d(120, scale=0.2)),
    gru_kernel,
    hf,
    {"a lerp at the end": {}},
    {
        "reset and update gates are swapped": {"order": (1, 0, 2)},
        "the reset gate is left out": {"reset": False},
        "the bias is left out": {"bias": False},
    },
)
put(
    "mlstm",
    mlstm,
    lambda d: (d(40, 16), d(40, 16), d(40, 16), d(40), d(40, shift=2.0)),
    mlstm_kernel,
    bf,
    {"all rows at once": {}},
    {
        "the normaliser is left out": {"normal": False},
        "forget gates take the sigmoid from the other side": {"sig": False},
        "queries are not scaled": {"scale": False},
    },
)
put(
    "mamba2_chunks",
    ssd,
    ssd_args,
    ssd_kernel,
    hf,
    {"chunks of 16": {}, "chunks of 8": {"chunk": 8}},
    {
        "b and c are swapped": {"swap": True},
        "no state is carried between chunks": {"carried": False},
        "the decay takes a without its exponential": {"negative": False},
        "hides: the states between chunks are in bfloat16": {"kind": bf, "chunk": 8},
    },
)

# A gated product of heads: the output of attention times a sigmoid, projected.


def gated_out(o, g, w):
    return (F.silu(g) * o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + 1e-5)) @ w.mT


def gated_out_kernel(o, g, w, first=False, sig=False, tail=0, acc=None, normed=True, n=None):
    y = g / (1 + torch.exp(-g)) if not sig else 1 / (1 + torch.exp(-g))
    t = y * o if first else o
    r = torch.rsqrt(lanes(t * t)[..., None] / (n or o.shape[-1]) + 1e-5)
    h = t * (r if normed else 1) * (1 if first else y)
    total = torch.zeros(o.shape[0], w.shape[0])
    for k in range(0, o.shape[1] - tail, 16):
        total = hold(total + h[:, k : k + 16] @ w[:, k : k + 16].mT, acc)
    return total


put(
    "gated_output",
    gated_out,
    lambda d: (d(40, 96), d(40, 96), d(64, 96, scale=0.1)),
    gated_out_kernel,
    hf,
    {"lanes, blocks of 16": {}},
    {
        "the gate comes before the norm": {"first": True},
        "a sigmoid in place of silu": {"sig": True},
        "the last block is lost": {"tail": 16},
        "the accumulator is in bfloat16": {"acc": bf},
        "it is not normed": {"normed": False},
    },
)
