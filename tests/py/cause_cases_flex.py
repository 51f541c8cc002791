# SPDX-License-Identifier: Apache-2.0
"""flex_attention with the mistakes that its kernels have: of each the words that must be said. Plain code:
nothing here comes from the emulations under test. Neighbour: test_causes_facts."""

import math

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

CASES = {}  # name: (words, function, make, device)
HEADS, TOKENS, WIDTH = 4, 48, 16
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
WINDOW = 9


def randn(*sizes):
    return torch.randn(*sizes)


def slope(score, b, h, q, k):
    return score - SLOPES[h] * (q - k)


def causal(b, h, q, k):
    return q >= k


def windowed(b, h, q, k):
    return (q >= k) & (q - k < WINDOW)


def definition(mask, **more):
    held = create_block_mask(mask, None, None, TOKENS, TOKENS, device="cpu")
    return lambda q, k, v: flex_attention(q, k, v, score_mod=slope, block_mask=held, **more)


def apart():
    return torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)


def seen(window=TOKENS, first=0):
    return (apart() >= first) & (apart() < window)


def device(seen, slopes=SLOPES, scale=WIDTH**-0.5, change=lambda w: w):
    def run(q, k, v):
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        scores = q @ k.mT * scale - slopes[:, None, None] * apart()
        return change(scores.masked_fill(~seen, -math.inf).softmax(-1)) @ v

    return run


def without(keys):
    """A block of keys that no query visits."""
    hidden = seen().clone()
    hidden[TOKENS - 8 :, keys] = False
    return hidden


def make(heads=HEADS):
    return lambda: (randn(2, HEADS, TOKENS, WIDTH), randn(2, heads, TOKENS, WIDTH), randn(2, heads, TOKENS, WIDTH))


def case(name, words, mask, kernel, heads=HEADS):
    more = {"enable_gqa": True} if heads != HEADS else {}
    CASES[f"flex: {name}"] = words, definition(mask, **more), make(heads), kernel


case(
    "the diagonal is hidden",
    "gt instead of ge|shifted by one",
    causal,
    device(seen(first=1) | (apart() == 0) & (torch.arange(TOKENS) == 0)),
)
case("a key too many", "shifted by one|index inside|off by one", causal, device(seen(first=-1)))
case("the mask is not applied", "mask is ignored", causal, device(seen() | True))
case("no scale", "scale factor", causal, device(seen(), scale=1.0))
case("another scale", "scale factor", causal, device(seen(), scale=1 / WIDTH))
case(
    "score_mod is ignored",
    "a term of sub is missing|subtracted term|second term of sub",
    causal,
    device(seen(), slopes=SLOPES * 0),
)
case("the sign of score_mod", "sign of the second term of sub", causal, device(seen(), slopes=-SLOPES))
case("the next head's slope", "neighbour's along axis 0|shifted by one", causal, device(seen(), slopes=SLOPES.roll(-1)))
case(
    "the last tile of keys",
    "the last 8 of 48.*missing",
    lambda b, h, q, k: q >= 0,
    device(apart() * 0 + torch.arange(TOKENS) < TOKENS - 8),
)
case("the window has one more", "le instead of lt|shifted by one", windowed, device(seen(WINDOW + 1)))
case("the window is not applied", "mask is ignored|is taken as True", windowed, device(seen()))
case("weights in bfloat16", "bfloat16", causal, device(seen(), change=lambda w: w.bfloat16().float()))
