# SPDX-License-Identifier: Apache-2.0
"""Products whose operands are scaled, grouped or packed, and flex_attention, of which torch has no float64
kernel: judged by whatever name they are called, right kernels pass, wrong ones are flagged."""

import math

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from ulpscope import check_call, judge_call

aten = torch.ops.aten
FLAGGED = ("wrong", "reduced", "nonfinite")
E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu


def normal(*sizes, seed=0, dtype=torch.float32):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def some(*sizes, seed=0):
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(seed)) + 0.5


def whole(low, high, *sizes, dtype=torch.int32):
    return torch.randint(low, high, sizes, generator=torch.Generator().manual_seed(3), dtype=dtype)


def in_tiles(scales):
    """Scales [rows, blocks] in the order in which tensor cores read them."""
    down, right = -(-scales.shape[0] // 128), -(-scales.shape[1] // 4)
    padded = torch.zeros(down * 128, right * 4)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    tiles = padded.view(down, 128, right, 4).transpose(1, 2)
    return tiles.reshape(-1, 4, 32, 4).transpose(1, 2).flatten()


def spread(scales, rows, columns):
    return scales.double().repeat_interleave(rows, 0).repeat_interleave(columns, 1)


# ---- a case: (callable, arguments, keywords, right result in float64, wrong ones) -------------


def scaled(dtype):
    a, b, sa, sb = (
        normal(32, 64, seed=1).to(E4M3),
        normal(48, 64, seed=2).to(E4M3).t(),
        some(32, 1),
        some(1, 48, seed=4),
    )
    right = a.double() @ b.double()
    wrong = [right * sa * sb.roll(1, 1), right * sa, 1.01 * right * sa * sb]
    return aten._scaled_mm, (a, b, sa, sb), {"out_dtype": dtype}, right * sa * sb, wrong


def scaled_by_name(dtype):
    recipe = F.ScalingType.RowWise
    _, (a, b, sa, sb), _, right, wrong = scaled(dtype)
    return F.scaled_mm, (a, b, sa, recipe, sb, recipe), {"output_dtype": dtype}, right, wrong


def scaled_in_blocks(dtype):
    a, b = normal(64, 256, seed=1).to(E4M3), normal(128, 256, seed=2).to(E4M3).t()
    sa, sb = some(64, 2), some(2, 1, seed=5)
    left, right = a.double() * spread(sa, 1, 128), b.double() * spread(sb, 128, 128)
    wrong = [left @ (b.double() * sb[0].double()), (a.double() * sa[:, :1].double()) @ right]
    return aten._scaled_mm, (a, b, sa, sb), {"out_dtype": dtype}, left @ right, wrong


def scaled_in_tiles(dtype):
    a, b = normal(64, 256, seed=1).to(E4M3), normal(128, 256, seed=2).to(E4M3).t()
    sa, sb = 2.0 ** whole(-2, 3, 64, 8), 2.0 ** whole(-2, 3, 128, 8)
    right = b.double() * spread(sb, 1, 32).T
    wrong = [(a.double() * spread(sa.roll(1, 1), 1, 32)) @ right, (a.double() * spread(sa.roll(32, 0), 1, 32)) @ right]
    right = (a.double() * spread(sa, 1, 32)) @ right
    return aten._scaled_mm, (a, b, in_tiles(sa).to(E8M0), in_tiles(sb).to(E8M0)), {"out_dtype": dtype}, right, wrong


ENDS = (8, 16, 20, 32)


def by_groups(x, w):
    spans = zip((0, *ENDS), ENDS)
    return torch.cat([x[a:b].double() @ w[i].double() for i, (a, b) in enumerate(spans)])


def grouped(dtype, function=aten._grouped_mm):
    x, w, offs = (
        normal(32, 64, dtype=dtype),
        normal(4, 64, 48, seed=1, dtype=dtype),
        torch.tensor(ENDS, dtype=torch.int32),
    )
    wrong = [by_groups(x, w.roll(1, 0)), 1.01 * by_groups(x, w), by_groups(x, w).roll(1, 0)]
    return function, (x, w), {"offs": offs}, by_groups(x, w), wrong


def grouped_by_name(dtype):
    return grouped(dtype, F.grouped_mm)


def scaled_groups(dtype):
    x, w = normal(32, 64).to(E4M3), normal(4, 48, 64, seed=1).to(E4M3).transpose(1, 2)
    sa, sb, offs = some(32), some(4, 48, seed=1), torch.tensor(ENDS, dtype=torch.int32)
    made = lambda sa, sb: by_groups(x, w.double() * sb[:, None].double()) * sa[:, None].double()  # noqa: E731
    wrong = [made(sa, sb.roll(1, 0)), made(sa, sb[:1].expand(4, 48)), made(sa.roll(1), sb)]
    return aten._scaled_grouped_mm, (x, w, sa, sb, offs), {"out_dtype": torch.bfloat16}, made(sa, sb), wrong


def packed_bytes(dtype):
    x, q, scales = normal(16, 64, dtype=dtype), whole(-128, 127, 32, 64, dtype=torch.int8), (some(32) / 100).to(dtype)
    made = x.double() @ q.double().T
    return aten._weight_int8pack_mm, (x, q, scales), {}, made * scales, [made * scales.roll(1), 1.01 * made * scales]


def packed_nibbles(dtype):
    x, q, group = normal(16, 64, dtype=dtype), whole(0, 16, 32, 64), 32
    scales = (some(2, 32, 2) - 1).to(dtype)
    packed = aten._convert_weight_to_int4pack_for_cpu(q, 1)
    scale, zero = (scales[..., i].double().repeat_interleave(group, 0) for i in (0, 1))
    made = lambda by: x.double() @ ((q.T.double() - by) * scale + zero)  # noqa: E731
    wrong = [made(7), made(8) - x.double() @ zero]
    return aten._weight_int4pack_mm_for_cpu, (x, packed, group, scales), {}, made(8), wrong


CASES = [
    scaled,
    scaled_by_name,
    scaled_in_blocks,
    scaled_in_tiles,
    grouped,
    grouped_by_name,
    scaled_groups,
    packed_bytes,
    packed_nibbles,
]


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=("float32", "bfloat16"))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_products(case, dtype):
    function, args, kwargs, right, wrong = case(dtype)
    dtype = kwargs.get("out_dtype", dtype)
    verdict = judge_call(function, args, kwargs, outputs=right.to(dtype), cause=False)
    assert verdict.verdict == "pass", verdict.sentence
    for outputs in wrong:
        verdict = judge_call(function, args, kwargs, outputs=outputs.to(dtype), cause=False)
        assert verdict.verdict in FLAGGED, verdict.sentence


# ---- flex_attention --------------------------------------------------------------------------

B, H, KV, S, D = 2, 4, 2, 48, 16
MASK = torch.ones(S, S).tril().bool()
SLOPES = some(H)
BIAS = SLOPES[:, None, None].double() * (torch.arange(S) - torch.arange(S)[:, None])


def leaning(score, b, h, i, j):
    return score + SLOPES[h] * (j - i)


def plain(q, k, v, mask=MASK, bias=BIAS, scale=D**-0.5):
    k, v = (t.repeat_interleave(H // KV, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * scale + bias.to(q.dtype)
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v


def blocks():
    return create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, device="cpu", BLOCK_SIZE=16)


BLOCKS = blocks()  # made once: a judge runs what it judges often, and to make them takes as long as the rest


def flex(q, k, v, mask=BLOCKS):
    return flex_attention(q, k, v, score_mod=leaning, block_mask=mask, enable_gqa=True)


def flex_of_own_blocks(q, k, v):
    return flex(q, k, v, blocks())


def gradients(of, q, k, v, g):
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    with torch.enable_grad():
        return torch.autograd.grad(of(q, k, v), (q, k, v), g)


def flex_gradients(q, k, v, g):
    return gradients(flex, q, k, v, g)


WRONG = {
    "a mask one off": {"mask": torch.ones(S, S).tril(1).bool()},
    "no buffer": {"bias": torch.zeros(())},
    "a buffer of the next head": {"bias": BIAS.roll(1, 0)},
    "a scale 2 % off": {"scale": 1.02 * D**-0.5},
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=("float32", "bfloat16"))
def test_flex_attention(dtype):
    q, k, v, g = (normal(B, h, S, D, seed=i, dtype=dtype) for i, h in enumerate((H, KV, KV, H)))
    wide = [t.double() for t in (q, k, v, g)]
    right = plain(*wide[:3]).to(dtype), tuple(t.to(dtype) for t in gradients(plain, *wide))
    assert judge_call(flex, (q, k, v), outputs=right[0], cause=False).passed
    assert judge_call(flex_gradients, (q, k, v, g), outputs=right[1], cause=False).passed
    for mistake, change in WRONG.items():
        made = lambda q, k, v: plain(q, k, v, **change)  # noqa: E731, B023
        verdict = judge_call(flex, (q, k, v), outputs=made(*wide[:3]).to(dtype), cause=False)
        assert verdict.verdict in FLAGGED, (mistake, verdict.sentence)
        outputs = tuple(t.to(dtype) for t in gradients(made, *wide))
        verdict = judge_call(flex_gradients, (q, k, v, g), outputs=outputs, cause=False)
        assert verdict.verdict in FLAGGED, (mistake, verdict.sentence)


def test_flex_attention_is_a_reference_with_gradients_and_stays_what_it_was():
    import torch.nn.attention.flex_attention as home

    before = home.flex_attention_hop, home._validate_device
    q, k, v = (normal(B, h, S, D, seed=i) for i, h in enumerate((H, KV, KV)))
    assert check_call(plain, (q, k, v), reference=flex_of_own_blocks, backward=True, repeat=1, cause=False).passed
    assert before == (home.flex_attention_hop, home._validate_device)
