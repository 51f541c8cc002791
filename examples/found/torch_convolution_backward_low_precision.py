# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: the gradients of a convolution in bfloat16 and float16 are summed in that
format: the input's over the taps of the kernel, the weight's over the samples of the batch.

The second check rebuilds both gradients bit by bit: products in float32, rounded, then added
in the low format. With one sample, or a kernel of one tap, nothing is left to add and every
element is the correct rounding."""

import torch

import ulpscope

ARGS = [8], [1], [1], [1], False, [0], 1, [True] * 3
backward = torch.ops.aten.convolution_backward.default


def taps_added(g, w):
    """The input's gradient, one tap after the other in the format of `g`."""
    columns = torch.einsum("oik,nol->nikl", w.float(), g.float()).to(g.dtype)
    total = torch.zeros(len(g), w.shape[1], g.shape[2] + 2, dtype=g.dtype)
    for k in range(3):
        total[:, :, k : k + g.shape[2]] += columns[:, :, k]
    return total[:, :, 1:-1]


def samples_added(g, x):
    """The weight's gradient, one sample after the other in the format of `g`."""
    x, n = torch.nn.functional.pad(x, (1, 1)).float(), g.shape[2]
    total = torch.zeros(g.shape[1], x.shape[1], 3, dtype=g.dtype)
    for gs, xs in zip(g.float(), x, strict=True):
        total = (total.float() + torch.stack([gs @ xs[:, k : k + n].T for k in range(3)], -1)).to(g.dtype)
    return total


torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    g, x, w = (torch.randn(s).to(dtype) for s in ((2, 8, 5), (2, 16, 5), (8, 16, 3)))
    found = backward(g, x, w, *ARGS)
    truth = backward(g.double(), x.double(), w.double(), *ARGS)
    single = backward(g.float(), x.float(), w.float(), *ARGS)
    print(ulpscope.judge_call(backward, (g, x, w, *ARGS), {}, found))
    print(ulpscope.judge_call(backward, (g, x, w, *ARGS), {}, [t.to(dtype) for t in single]))
    for name, d, r, s in zip(("input", "weight"), found, truth, single):
        off = [float((t.to(dtype) != r.to(dtype)).double().mean()) for t in (d, s)]
        print(f"  {name}: {off[0]:.1%} of the elements not the correct rounding, from float32 {off[1]:.1%}")
    print("  rebuilt bit by bit:", torch.equal(taps_added(g, w), found[0]), torch.equal(samples_added(g, x), found[1]))
