# SPDX-License-Identifier: Apache-2.0
"""Set G, attention: masks by structure (trees of drafts, shared prefixes, chosen blocks), log sums,
gates, gradients."""

import torch
import torch.nn.functional as F

from .blind import bf, honest, mistake
from .blind_sixth_common import LOWEST, faults, repeat_heads, sixth, sound, stored, stream, through


# ------------------------------------------------------------------ masks by structure

PARENTS = (-1, 0, 0, 1, 1, 2, 3, 3, 5, 5, 8, 9, 10, 4)


@sixth(lambda d: (d(2, 3, 14, 32), d(2, 3, 44, 32), d(2, 3, 44, 32), torch.tensor(PARENTS)))
def draft_tree_attention(q, k, v, parent):
    see = torch.eye(14, dtype=torch.bool)
    for i in range(1, 14):  # a node sees itself and what its parent sees
        see[i] |= see[parent[i]]
    see = torch.cat((torch.ones(14, 30, dtype=torch.bool), see), 1)
    return (q @ k.mT * 32**-0.5).masked_fill(~see, LOWEST).softmax(-1) @ v


def draft_tree_tiles(q, k, v, parent, rule="ancestors", own=True, context=30, **stream_keys):
    step = torch.zeros(14, 14)
    step[torch.arange(1, 14), parent[1:]] = 1
    line = torch.linalg.solve(torch.eye(14) - step, torch.eye(14)) > 0.5
    depth = line.sum(1)
    at = torch.arange(14)
    line = {
        "ancestors": line,
        "parent": (step + torch.eye(14)) > 0,
        "causal": at[:, None] >= at[None],
        "depth": (depth[:, None] > depth[None]) | (at[:, None] == at[None]),
    }[rule]
    line = line if own else line & ~torch.eye(14, dtype=torch.bool)
    see = torch.cat((torch.arange(30).expand(14, -1) < context, line), 1)
    return stream(q, k, v, 32**-0.5, None, lambda i, j: see[i, j], **stream_keys)[0]


sound(draft_tree_attention, "ancestors by an inverse, tiles of 16", draft_tree_tiles)
faults(
    draft_tree_attention,
    draft_tree_tiles,
    rule=[
        ("a node sees its parent only, not the line of ancestors", "parent"),
        ("a node sees every draft before it, siblings too", "causal"),
        ("a node sees all drafts of smaller depth", "depth"),
    ],
    own=("a draft does not see itself", False),
    context=("the context's last token is hidden from the drafts", 29),
)


def pooled_blocks(q, k):
    return q @ k.unflatten(1, (8, 12)).mean(2).mT


@sixth(lambda d: (d(2, 48, 32), d(2, 96, 32), d(2, 96, 32)))
def pooled_block_choice_attention(q, k, v):
    pick = pooled_blocks(q, k).topk(3).indices
    see = torch.zeros(2, 48, 8, dtype=torch.bool).scatter_(2, pick, True).repeat_interleave(12, 2)
    return (q @ k.mT * 32**-0.5).masked_fill(~see, LOWEST).softmax(-1) @ v


def chosen_blocks_gathered(q, k, v, take=3, shared=False, skip=0, peak=False, merge=True):
    scores = pooled_blocks(q, k)
    if peak:
        scores = (q @ k.mT).unflatten(2, (8, 12)).amax(3)
    scores = scores[:, torch.arange(48) // 8 * 8] if shared else scores
    pick = scores[..., : 8 - skip].sort(dim=-1, descending=True, stable=True).indices[..., :take]
    kb, vb = (torch.stack([x[b].unflatten(0, (8, 12))[pick[b]] for b in range(2)]) for x in (k, v))
    s = torch.einsum("bid,bitjd->bitj", q, kb) * 32**-0.5
    lse = s.logsumexp(-1, keepdim=True)
    part = torch.einsum("bitj,bitjd->bitd", (s - lse).exp(), vb)
    w = lse.softmax(2) if merge else torch.full_like(lse, 1 / take)
    return (part * w).sum(2)


sound(pooled_block_choice_attention, "chosen blocks gathered, merged by log sums", chosen_blocks_gathered)
honest(pooled_block_choice_attention, "float64 inside", through(pooled_block_choice_attention, torch.float64))
faults(
    pooled_block_choice_attention,
    chosen_blocks_gathered,
    take=("only two blocks are chosen, not three", 2),
    shared=("eight neighbouring queries share the first one's choice", True),
    skip=("the last block can never be chosen", 1),
    peak=("blocks are ranked by their best key, not by their mean key", True),
    merge=("the chosen blocks' outputs are averaged without their sums", False),
)


@sixth(lambda d: (torch.tensor([0] * 21 + [1] * 12 + [2] * 28 + [3] * 29),))
def block_mask_kinds(doc):
    """0, 1 or 2 for a tile of 16 by 16 that is hidden, partly seen or wholly seen (the tail counts as hidden)."""
    at = torch.arange(96)
    doc = torch.cat((doc, doc.new_full((6,), -1)))
    see = (doc[:, None] == doc[None]) & (at[:, None] >= at[None]) & (at < 90) & (at < 90)[:, None]
    tiles = see.unflatten(0, (6, 16)).unflatten(2, (6, 16))
    count = tiles.sum((1, 3))
    return (count > 0).long() + (count == 256).long()


def block_mask_from_ends(doc, corner=False, tail=True):
    out = torch.zeros(6, 6, dtype=torch.long)
    for a in range(6):
        for b in range(6):
            rows, cols = (torch.arange(16 * x, min(16 * x + 16, 90)) for x in (a, b))
            see = (doc[rows][:, None] == doc[cols][None]) & (rows[:, None] >= cols[None])
            if corner:
                out[a, b] = see[-1, 0] * (1 + see[0, -1])
            else:
                full = see.all() & (not tail or len(rows) * len(cols) == 256)
                out[a, b] = see.any().long() + full.long()
    return out


honest(block_mask_kinds, "tile by tile", block_mask_from_ends)
mistake(
    block_mask_kinds, "a tile is judged by two of its corners only", lambda doc: block_mask_from_ends(doc, corner=True)
)
mistake(
    block_mask_kinds,
    "a short tile at the end is called wholly seen if all its entries are",
    lambda doc: block_mask_from_ends(doc, tail=False),
)
mistake(block_mask_kinds, "documents are not compared", lambda doc: block_mask_from_ends(torch.zeros_like(doc)))


# ------------------------------------------------------------------ log sums, gates, gradients


@sixth(lambda d: (d(2, 40, 32, scale=9.0), d(2, 56, 32, scale=4.0), d(2, 56, 32)))
def attention_and_log_sum(q, k, v):
    s = q @ k.mT * 32**-0.5
    return s.softmax(-1) @ v, s.logsumexp(-1)


def two_outputs(q, k, v, unit=1.0, lose=False, naked=False, scale=32**-0.5, **stream_keys):
    o, lse = stream(q, k, v, 32**-0.5, **stream_keys)
    s = q @ k.mT * scale
    if naked:
        e = s.exp()
        return e @ v / e.sum(-1, keepdim=True), e.sum(-1).log()
    if scale != 32**-0.5:
        lse = s.logsumexp(-1)
    return o, (lse - s.amax(-1) if lose else lse) * unit


sound(attention_and_log_sum, "tiles of 16", two_outputs)
sound(attention_and_log_sum, "tiles of 13 from the end", two_outputs, tile=13, back=True)
faults(
    attention_and_log_sum,
    two_outputs,
    unit=("the log sum is stored in base 2", 1.4426950408889634),
    lose=("the row's maximum is not added back to the log sum", True),
    naked=("no maximum is taken off before the exponential", True),
    scale=("the log sum is that of the unscaled scores", 1.0),
    frozen=("the output of earlier tiles is not rescaled when the maximum grows", True),
)


@sixth(lambda d: (d(2, 30, 4 * 32, dtype=bf), d(2, 30, 64, dtype=bf), d(2, 30, 64, dtype=bf), d(2, 30, 128, dtype=bf)))
def gated_output_attention(q, k, v, gate):
    q, k, v = (x.unflatten(2, (-1, 32)).transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, repeat_heads(k, 2), repeat_heads(v, 2), is_causal=True)
    return o.transpose(1, 2).flatten(2) * gate.sigmoid()


def gated_output_tiles(q, k, v, gate, act=torch.sigmoid, mixed=False, heads_first=False, tight=0, **stream_keys):
    q, k, v = (x.unflatten(2, (-1, 32)).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat(1, 2, 1, 1) if mixed else repeat_heads(x, 2) for x in (k, v))
    o, _ = stream(q, k, v, 32**-0.5, None, lambda i, j: (j <= i) & ((j + tight <= i) | (j == 0)), **stream_keys)
    if heads_first:
        gate = gate.unflatten(2, (32, 4)).transpose(2, 3).flatten(2)
    return o.transpose(1, 2).flatten(2) * act(gate)


sound(gated_output_attention, "tiles of 16", gated_output_tiles)
faults(
    gated_output_attention,
    gated_output_tiles,
    act=("the gate is x * sigmoid(x), not sigmoid(x)", F.silu),
    mixed=("kv heads are repeated as 0 1 0 1, not 0 0 1 1", True),
    heads_first=("the gate is laid out as (channel, head)", True),
    tight=("a query does not see its own key", 1),
)


@sixth(lambda d: (d(1, 4, 44, 16), d(1, 2, 44, 16), d(1, 2, 44, 16), d(1, 4, 44, 16)))
def alibi_window_gradients(q, k, v, g):
    kk, vv = repeat_heads(k, 2), repeat_heads(v, 2)
    at = torch.arange(44)
    back = at[:, None] - at[None]
    slope = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625])[:, None, None]
    s = (q @ kk.mT * 0.25 - slope * back).masked_fill((back < 0) | (back >= 16), LOWEST)
    p = s.softmax(-1)
    ds = g @ vv.mT
    ds = p * (ds - (p * ds).sum(-1, keepdim=True))
    dk, dv = ds.mT @ q * 0.25, p.mT @ g
    return ds @ kk * 0.25, dk[:, ::2] + dk[:, 1::2], dv[:, ::2] + dv[:, 1::2]


def alibi_window_autograd(q, k, v, g):
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    slope = 4.0 ** -torch.arange(1, 5)[:, None, None]
    stream(
        q,
        repeat_heads(k, 2),
        repeat_heads(v, 2),
        0.25,
        lambda s, i, j: s - slope * (i - j),
        lambda i, j: (j <= i) & (j > i - 16),
        44,
    )[0].backward(g)
    return q.grad, k.grad, v.grad


def alibi_window_by_tiles(q, k, v, g, reach=16, unscaled=False, lost=False, delta=None, first_slope=1, tile=11):
    kk, vv = repeat_heads(k, 2), repeat_heads(v, 2)
    i = torch.arange(44)[:, None]
    slope = (4.0 ** -torch.arange(1, 5))[:, None, None]
    o, lse = stream(q, kk, vv, 0.25, lambda s, i, j: s - slope * (i - j), lambda i, j: (j <= i) & (j > i - 16))
    row = stored((o * g).sum(-1, keepdim=True), delta)
    slope = (4.0 ** -torch.arange(first_slope, first_slope + 4))[:, None, None]
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for at in range(0, 44, tile):
        j = torch.arange(at, min(at + tile, 44))[None]
        keys = slice(at, at + tile)
        s = q @ kk[:, :, keys].mT * 0.25 - slope * (i - j)
        p = (s - lse[..., None]).exp() * ((j <= i) & (j > i - reach))
        ds = p * (g @ vv[:, :, keys].mT - row)
        dq += ds @ kk[:, :, keys] * 0.25
        for h in range(1 if lost else 0, 4, 2 if lost else 1):
            dk[:, h // 2, keys] += ds[:, h].mT @ q[:, h] * (1.0 if unscaled else 0.25)
            dv[:, h // 2, keys] += p[:, h].mT @ g[:, h]
    return dq, dk, dv


honest(alibi_window_gradients, "automatic differentiation", alibi_window_autograd)
sound(alibi_window_gradients, "tiles of 11 keys from the log sums", alibi_window_by_tiles)
faults(
    alibi_window_gradients,
    alibi_window_by_tiles,
    reach=("the backward pass recomputes with a window of 15 keys", 15),
    unscaled=("the gradient of k lacks the scale of the scores", True),
    lost=("one of two heads that share a kv head loses its addition to dk and dv", True),
    delta=("the row sums of output times gradient are kept in bf16", bf),
    first_slope=("the backward pass gives each head the next head's slope", 2),
)
