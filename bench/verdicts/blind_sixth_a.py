# SPDX-License-Identifier: Apache-2.0
"""Set G, written blind: attention of 2025 and 2026 (score modifications; latent, paged and quantized caches).
blind_sixth_a_masks has the other attention, blind_sixth_b and on the rest of the set; what all use is in
blind_sixth_common."""

import math

import torch

from .blind import bf, hf, mistake
from .blind_sixth_common import LOWEST, faults, repeat_heads, sixth, sound, stored, stream, through


# ------------------------------------------------------------------ score modifications


@sixth(lambda d: (d(1, 6, 72, 32, dtype=bf), d(1, 2, 72, 32, dtype=bf), d(1, 2, 72, 32, dtype=bf), d(6, 33, dtype=bf)))
def flex_clipped_distance_bias(q, k, v, table):
    at = torch.arange(q.shape[2])
    away = (at[None] - at[:, None]).clamp(-16, 16) + 16
    s = q @ repeat_heads(k, 3).mT * 32**-0.5 + table[:, away]
    return s.softmax(-1) @ repeat_heads(v, 3)


def clipped_distance_tiles(q, k, v, table, wrap=False, sign=1, kv_table=False, **stream_keys):
    table = table[torch.arange(6) // 3] if kv_table else table

    def score(s, i, j):
        away = sign * (j - i)
        return s + table[:, away % 33 if wrap else away.clamp(-16, 16) + 16]

    return stream(q, repeat_heads(k, 3), repeat_heads(v, 3), 32**-0.5, score, **stream_keys)[0]


sound(flex_clipped_distance_bias, "tiles of 16 keys", clipped_distance_tiles)
sound(flex_clipped_distance_bias, "tiles of 11 keys from the end", clipped_distance_tiles, tile=11, back=True)
faults(
    flex_clipped_distance_bias,
    clipped_distance_tiles,
    wrap=("distances beyond the table wrap around in it instead of being clipped", True),
    sign=("the bias is read by query minus key instead of key minus query", -1),
    kv_table=("the bias table is indexed with the kv head", True),
    tail=("the last 8 keys, which do not fill a tile, are never visited", False),
)
mistake(
    flex_clipped_distance_bias,
    "tiles of 2 keys, the output accumulator in bf16 between them",
    through(clipped_distance_tiles, tile=2, acc=bf),
)


@sixth(
    lambda d: (
        d(3, 8, 64, scale=1.5, dtype=hf),
        d(3, 2, 150, 64, dtype=hf),
        d(3, 2, 150, 64, dtype=hf),
        torch.tensor([150, 40, 97]),
    )
)
def capped_window_decode(q, k, v, lens):
    s = torch.einsum("bhd,bhnd->bhn", q, repeat_heads(k, 4)) / 8
    s = 4.0 * (s / 4.0).tanh()
    at = torch.arange(k.shape[2])
    see = (at[None] < lens[:, None]) & (at[None] >= lens[:, None] - 64)
    p = s.masked_fill(~see[:, None], LOWEST).softmax(-1)
    return torch.einsum("bhn,bhnd->bhd", p, repeat_heads(v, 4))


def capped_window_splits(q, k, v, lens, splits=3, reach=64, late=False, inner=True, even=False, kind=None, share=4):
    out = torch.zeros_like(q)
    for b in range(3):
        parts, sums = [], []
        kb, vb = (x[b][torch.arange(8) // share % 2] for x in (k, v))
        for keys in torch.arange(150).chunk(splits):
            see = (keys < lens[b]) & (keys >= lens[b] - reach)
            s = (q[b][:, None] * kb[:, keys]).sum(-1) / 8
            if late:
                s = s.masked_fill(~see, LOWEST)
            s = 4.0 * (s / 4.0 if inner else s).tanh()
            s = s if late else s.masked_fill(~see, LOWEST)
            if not late and not see.any():
                continue
            lse = s.logsumexp(-1)
            sums.append(lse)
            parts.append(
                (stored((s - s.amax(-1, keepdim=True)).exp(), kind)[..., None] * vb[:, keys]).sum(1)
                * (s.amax(-1) - lse).exp()[:, None]
            )
        w = torch.stack(sums).softmax(0)
        w = torch.full_like(w, 1 / len(w)) if even else w
        out[b] = (torch.stack(parts) * w[..., None]).sum(0)
    return out


sound(capped_window_decode, "three splits merged by their log sums", capped_window_splits)
sound(capped_window_decode, "one pass", capped_window_splits, splits=1)
faults(
    capped_window_decode,
    capped_window_splits,
    reach=("the window holds 65 keys", 65),
    late=("the cap comes after the mask, so that hidden keys score -4 instead of nothing", True),
    inner=("the score is not divided by the cap before the tanh", False),
    even=("the splits' outputs are averaged evenly", True),
    kind=("probabilities are stored as e4m3 for the second product", torch.float8_e4m3fn),
    share=("query heads are paired with kv heads in turn (h % 2)", 1),
)


@sixth(lambda d: (d(2, 4, 33, 24), d(2, 4, 33, 24), d(2, 4, 33, 24), d.rand(2, 4, 33, 33) > 0.25))
def attention_with_kept_mask(q, k, v, keep):
    p = (q @ k.mT * 24**-0.5).softmax(-1)
    return (p * keep / 0.75) @ v


def kept_mask_rows(q, k, v, keep, before=False, scale=1 / 0.75, pair=False, high=None):
    keep = keep[:, :, torch.arange(33) // 2 * 2] if pair else keep
    s = torch.einsum("bhid,bhjd->bhij", q, k) * 24**-0.5
    e = (s - s.amax(-1, keepdim=True)).exp()
    z = (e * keep if before else e).sum(-1, keepdim=True)
    return torch.einsum("bhij,bhjd->bhid", stored(e, high) * keep, v) * scale / z


sound(attention_with_kept_mask, "the sum of exponentials divided out last", kept_mask_rows)
sound(
    attention_with_kept_mask,
    "float64 inside",
    lambda *a: attention_with_kept_mask(*(x.double() if x.is_floating_point() else x for x in a)),
)
faults(
    attention_with_kept_mask,
    kept_mask_rows,
    before=("the denominator counts only the kept keys", True),
    scale=("kept probabilities are multiplied by 1 / 0.25, the chance to drop", 4.0),
    pair=("two neighbouring rows share one row of the mask", True),
    high=("the exponentials are rounded to bf16 before the second product", bf),
)


# ------------------------------------------------------------------ latent, paged and quantized caches


def turn_pairs(x, at, halves=False, base=10000.0):
    """Rotary of the last axis by pairs of neighbours (or of halves); at: places of the axis before it."""
    n = x.shape[-1]
    angle = at.double()[:, None] * base ** (-torch.arange(0, n, 2).double() / n)
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = (x[..., : n // 2], x[..., n // 2 :]) if halves else (x[..., ::2], x[..., 1::2])
    one, two = a * c - b * s, b * c + a * s
    return torch.cat((one, two), -1) if halves else torch.stack((one, two), -1).flatten(-2)


@sixth(
    lambda d: (
        d(1, 4, 40, 32, dtype=bf),
        d(1, 40, 48, scale=2.0, dtype=bf),
        d(1, 40, 8, dtype=bf),
        d(4, 48, 24, scale=0.15, dtype=bf),
        d(4, 48, 16, scale=0.15, dtype=bf),
    )
)
def latent_prefill_causal(q, latent, shared, wk, wv):
    at = torch.arange(q.shape[2]) + 100
    c = latent * torch.rsqrt(latent.square().mean(-1, keepdim=True) + 1e-6)
    k = torch.cat((torch.einsum("bnr,hrd->bhnd", c, wk), turn_pairs(shared, at)[:, None].expand(-1, 4, -1, -1)), -1)
    q = torch.cat((q[..., :24], turn_pairs(q[..., 24:], at)), -1)
    s = (q @ k.mT * 32**-0.5).masked_fill(at[None] > at[:, None], LOWEST)
    return s.softmax(-1) @ torch.einsum("bnr,hrd->bhnd", c, wv)


def latent_prefill_absorbed(
    q, latent, shared, wk, wv, width=32, halves=False, first=100, plain=False, normed=48, **stream_keys
):
    at = torch.arange(40) + 100
    c = latent * torch.rsqrt(latent.square().sum(-1, keepdim=True) / normed + 1e-6)
    r = shared if plain else turn_pairs(shared, torch.arange(40) + first, halves)
    lifted = torch.einsum("bhnd,hrd->bhnr", q[..., :24], wk)
    full = torch.cat((lifted, turn_pairs(q[..., 24:], at, halves)), -1)
    o, _ = stream(
        full, torch.cat((c, r), -1)[:, None], c[:, None], width**-0.5, None, lambda i, j: j <= i, **stream_keys
    )
    return torch.einsum("bhnr,hrd->bhnd", o, wv)


sound(latent_prefill_causal, "absorbed into the latents, tiles of 16", latent_prefill_absorbed)
sound(latent_prefill_causal, "absorbed, tiles of 9 from the end", latent_prefill_absorbed, tile=9, back=True)
faults(
    latent_prefill_causal,
    latent_prefill_absorbed,
    width=("scores are scaled by the part without rotary (24), not the whole head (32)", 24),
    halves=("the rotary part turns halves against each other, not neighbours", True),
    first=("the keys' rotary counts places from 0, the queries' from the chunk's start", 0),
    plain=("the shared key's rotary part is cached before it was turned", True),
    normed=("the latent's mean square is divided by the padded width of 64", 64),
)


def paged_arguments(d):
    return (
        d(2, 12, 4, 32),
        d(14, 16, 2, 32),
        d(14, 16, 2, 32),
        torch.tensor([[6, 2, 9, 13, 0], [3, 11, 1, 8, 5]]),
        torch.tensor([37, 63]),
    )


@sixth(paged_arguments)
def paged_prefill_chunk(q, kp, vp, table, start):
    out = []
    for b in range(2):
        k, v = (x[table[b]].flatten(0, 1)[: start[b] + 12].repeat_interleave(2, 1) for x in (kp, vp))
        s = torch.einsum("ihd,jhd->hij", q[b], k) * 32**-0.5
        hidden = torch.arange(k.shape[0])[None] > torch.arange(12)[:, None] + start[b]
        out.append(torch.einsum("hij,jhd->ihd", s.masked_fill(hidden, LOWEST).softmax(-1), v))
    return torch.stack(out)


def paged_chunk_tiles(
    q, kp, vp, table, start, local=False, shared=False, whole=False, slots=16, lose=False, **stream_keys
):
    out = torch.zeros_like(q)
    for b in range(2):
        n = int(start[b]) + 12
        at = torch.arange(n // 16 * 16 if lose else n)
        place = table[0 if shared else b][at // 16], at % slots
        k, v = (x[place].repeat_interleave(2, 1).transpose(0, 1) for x in (kp, vp))
        off = 0 if local else int(start[b])
        o, _ = stream(
            q[b].transpose(0, 1), k, v, 32**-0.5, None, lambda i, j, off=off: (j <= i + off) | whole, **stream_keys
        )
        out[b] = o.transpose(0, 1)
    return out


sound(paged_prefill_chunk, "slot by slot, tiles of 16", paged_chunk_tiles)
sound(paged_prefill_chunk, "tiles of 32 from the end", paged_chunk_tiles, tile=32, back=True)
faults(
    paged_prefill_chunk,
    paged_chunk_tiles,
    local=("the causal test forgets how many keys stand before the chunk", True),
    shared=("both sequences read the first one's page table", True),
    whole=("within the chunk, queries see later keys", True),
    slots=("the slot in a page is taken modulo 8, for pages of 16", 8),
    lose=("a last page that is not full is dropped", True),
    acc=("the output accumulator is kept in half precision", hf),
)


@sixth(
    lambda d: (
        d(2, 4, 64, dtype=bf),
        d.ints(255, 2, 90, 4, 64).sub(127).to(torch.int8),
        d.ints(255, 2, 90, 4, 64).sub(127).to(torch.int8),
        d.rand(2, 90, 4).mul(0.02).add(0.004).to(bf),
        d.rand(2, 90, 4).mul(0.02).add(0.004).to(bf),
    )
)
def int8_cache_attention(q, kc, vc, ks, vs):
    p = (torch.einsum("bhd,bnhd->bhn", q, kc * ks[..., None]) / 8).softmax(-1)
    return torch.einsum("bhn,bnhd->bhd", p, vc * vs[..., None])


def int8_cache_late_scales(q, kc, vc, ks, vs, late=0, crossed=False, unsigned=False, codes=None):
    kf, vf = (torch.where(c < 0, c + 256.0, c.float()) if unsigned else c.float() for c in (kc, vc))
    ks, vs = ks.permute(0, 2, 1), vs.permute(0, 2, 1)
    s = torch.einsum("bhd,bnhd->bhn", q, kf) * ks.roll(late, -1) / 8
    p = s.softmax(-1) * (ks if crossed else vs)
    if codes is not None:
        top = p.amax(-1, keepdim=True)
        p = (p / top * codes).floor() / codes * top
    return torch.einsum("bhn,bnhd->bhd", p, vf)


sound(int8_cache_attention, "scales applied to scores and probabilities", int8_cache_late_scales)
sound(
    int8_cache_attention,
    "dequantized first, tiles of 16",
    lambda q, kc, vc, ks, vs: stream(
        q[:, :, None], (kc * ks[..., None]).transpose(1, 2), (vc * vs[..., None]).transpose(1, 2), 0.125
    )[0][:, :, 0],
)
faults(
    int8_cache_attention,
    int8_cache_late_scales,
    late=("each key takes the scale of the key before it", 1),
    crossed=("the values are dequantized with the keys' scales", True),
    unsigned=("the codes are loaded as unsigned bytes", True),
    codes=("probabilities are cut down to multiples of 1/127 of the largest", 127.0),
)


def int4_cache(d):
    packed = [d.ints(256, 2, 70, 2, 16).to(torch.uint8) for _ in range(2)]
    scales = [d.rand(2, 70, 2, 2).mul(0.2).add(0.05).to(hf) for _ in range(2)]
    zeros = [d(2, 70, 2, 2, shift=7.5, dtype=hf) for _ in range(2)]
    return d(2, 2, 32, dtype=hf), *packed, *scales, *zeros


@sixth(int4_cache)
def int4_cache_attention(q, kp, vp, ks, vs, kz, vz):
    k, v = (
        ((torch.stack((p & 15, p >> 4), -1).flatten(-2).unflatten(-1, (2, 16)) - z[..., None]) * s[..., None]).flatten(
            -2
        )
        for p, s, z in ((kp, ks, kz), (vp, vs, vz))
    )
    p = (torch.einsum("bhd,bnhd->bhn", q, k) * 32**-0.5).softmax(-1)
    return torch.einsum("bhn,bnhd->bhd", p, v)


def int4_cache_tiles(
    q, kp, vp, ks, vs, kz, vz, swapped=False, split=False, late=False, signed=False, group=16, **stream_keys
):
    def opened(p, s, z):
        low, high = (p & 15).float(), (p >> 4).float()
        if signed:
            low, high = low - 16 * (low > 7), high - 16 * (high > 7)
        pair = (high, low) if swapped else (low, high)
        c = torch.cat(pair, -1) if split else torch.stack(pair, -1).flatten(-2)
        at = torch.arange(32) // group
        return (c * s[..., at] - z[..., at] if late else (c - z[..., at]) * s[..., at]).transpose(1, 2)

    return stream(q[:, :, None], opened(kp, ks, kz), opened(vp, vs, vz), 32**-0.5, **stream_keys)[0][:, :, 0]


sound(int4_cache_attention, "tiles of 16 tokens", int4_cache_tiles)
sound(int4_cache_attention, "tiles of 35 from the end", int4_cache_tiles, tile=35, back=True)
faults(
    int4_cache_attention,
    int4_cache_tiles,
    swapped=("the high half of a byte is taken for the even channel", True),
    split=("a byte's halves are unpacked 16 channels apart, not side by side", True),
    late=("the zero point is subtracted after scaling, not before", True),
    signed=("codes above 7 are sign-extended", True),
    group=("all 32 channels take the first group's scale and zero", 32),
    tail=("the last 6 tokens, which do not fill a tile, are left out", False),
)


@sixth(
    lambda d: (
        d(3, 4, 7, 32, dtype=hf),
        d(4, 60, 32, dtype=hf),
        d(4, 60, 32, dtype=hf),
        d(3, 4, 21, 32, dtype=hf),
        d(3, 4, 21, 32, dtype=hf),
    )
)
def shared_prefix_cascade(q, ka, va, kb, vb):
    k = torch.cat((ka.expand(3, -1, -1, -1), kb), 2)
    v = torch.cat((va.expand(3, -1, -1, -1), vb), 2)
    return (q @ k.mT * 32**-0.5).softmax(-1) @ v


def cascade_in_two_levels(q, ka, va, kb, vb, base=math.e, even=False, swapped=False, kind=None, prefix_row=False):
    oa, la = stream(q[:1].expand_as(q) if prefix_row else q, ka, va, 32**-0.5)
    ob, lb = stream(q, kb, vb, 32**-0.5)
    oa, ob = stored(oa, kind), stored(ob, kind)
    w = 1 / (1 + base ** (lb - la))[..., None]
    w = torch.full_like(w, 60 / 81) if even else 1 - w if swapped else w
    return oa * w + ob * (1 - w)


sound(shared_prefix_cascade, "the prefix and the suffix merged by log sums", cascade_in_two_levels)
sound(
    shared_prefix_cascade,
    "all keys in tiles of 27",
    lambda q, ka, va, kb, vb: stream(
        q, torch.cat((ka.expand(3, -1, -1, -1), kb), 2), torch.cat((va.expand(3, -1, -1, -1), vb), 2), 32**-0.5, tile=27
    )[0],
)
faults(
    shared_prefix_cascade,
    cascade_in_two_levels,
    base=("natural log sums are merged as powers of two", 2.0),
    even=("the two parts are weighted by their numbers of keys", True),
    swapped=("the two weights are exchanged", True),
    kind=("both parts are stored as e4m3 before they are merged", torch.float8_e4m3fn),
    prefix_row=("the prefix part is computed for the first sequence's queries alone", True),
)
