# SPDX-License-Identifier: Apache-2.0
"""Set Q: attention, of rows and of pages, and its gradient."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_twelfth_a import another, good, twelfth, wrong

# ------------------------------------------------------------------ grouped heads, causal from the bottom right


def grouped_args(dtype, heads=6, kv=2, q=40, k=56, w=32):
    return lambda d: (d(heads, q, w, dtype=dtype), d(kv, k, w, dtype=dtype), d(kv, k, w, dtype=dtype))


@twelfth(grouped_args(bf))
def twelfth_grouped_heads(q, k, v):
    q, k, v = (t.float() for t in (q, k, v))
    k, v = k.repeat_interleave(3, 0), v.repeat_interleave(3, 0)
    s = q @ k.mT * 32**-0.5
    allowed = torch.arange(56) <= torch.arange(40)[:, None] + 16
    return (torch.softmax(s.masked_fill(~allowed, -math.inf), -1) @ v).to(bf)


def streamed(s, v, step=16, forget=None, lost=None, kind=None, base2=False, keep=None):
    """Softmax and product by tiles of keys, the maximum kept along."""
    exp = (lambda t: torch.exp2(t * 1.4426950408889634)) if base2 else torch.exp
    m = torch.full((*s.shape[:-1], 1), -math.inf)
    z, out = torch.zeros(*s.shape[:-1], 1), torch.zeros(*s.shape[:-1], v.shape[-1])
    for i in range(0, s.shape[-1], step):
        if lost == i // step:
            continue
        part, vv = s[..., i : i + step], v[..., i : i + step, :]
        new = torch.maximum(m, part.amax(-1, keepdim=True))
        safe = new.masked_fill(new == -math.inf, 0.0)
        p, old = exp(part - safe), exp(m - safe)
        z = z * old + p.sum(-1, keepdim=True)
        out = out * (1.0 if forget == i // step else old) + (keep(p) if keep else p) @ vv
        out = narrow(out, kind) if kind else out
        m = new
    return out / z


def heads_of(q, k, v, mapping="blocks", offset=16, scale=32**-0.5, **how):
    q, k, v = (t.float() for t in (q, k, v))
    k, v = (t.repeat_interleave(3, 0) if mapping == "blocks" else t.repeat(3, 1, 1) for t in (k, v))
    allowed = torch.arange(56) <= torch.arange(40)[:, None] + offset
    return streamed((q @ k.mT * scale).masked_fill(~allowed, -math.inf), v, **how)


good(
    twelfth_grouped_heads,
    heads_of,
    bf,
    streamed_by_16={},
    streamed_by_8_and_base_two={"step": 8, "base2": True},
    one_tile={"step": 56},
)
wrong(
    twelfth_grouped_heads,
    heads_of,
    {
        "heads of queries take keys' heads in turn, not by blocks": {"mapping": "turn"},
        "the causal mask is aligned top left": {"offset": 0},
        "the mask lets one more key in": {"offset": 17},
        "the third tile of keys is left out": {"lost": 2},
        "the output is not rescaled at the second tile": {"forget": 1},
        "scaled by the width's inverse, not its root's": {"scale": 1 / 32},
        "hides: the output is accumulated in bfloat16": {"kind": bf, "step": 8},
        "hides: probabilities are e4m3 in the product": {"keep": lambda p: narrow(p, torch.float8_e4m3fn)},
    },
    bf,
)

# ------------------------------------------------------------------ a bias and documents, as a flexible attention has


@twelfth(lambda d: (d(4, 64, 16), d(4, 64, 16), d(4, 64, 16), torch.tensor([0] * 20 + [1] * 27 + [2] * 17)))
def twelfth_documents(q, k, v, document):
    i = torch.arange(64)
    slope = torch.tensor([2.0 ** (-2 * (h + 1)) for h in range(4)], dtype=torch.float64).to(q.dtype)
    s = q @ k.mT * 0.25 + slope[:, None, None] * (i - i[:, None])
    allowed = (i <= i[:, None]) & (document == document[:, None])
    return torch.softmax(s.masked_fill(~allowed, -math.inf), -1) @ v


def documents(q, k, v, document, first=2, sign=1, causal=True, same=True, scale=0.25, edge=0, scaled=False, **how):
    i = torch.arange(64)
    slope = torch.tensor([2.0 ** (-first * (h + 1)) for h in range(4)])[:, None, None]
    bias = sign * slope * (i - i[:, None])
    s = (q @ k.mT + bias) * scale if scaled else q @ k.mT * scale + bias
    d = torch.cat([document[:1].expand(edge), document[: 64 - edge]]) if edge else document
    allowed = ((i <= i[:, None]) | (not causal)) & ((d == d[:, None]) | (not same))
    return streamed(s.masked_fill(~allowed, -math.inf), v, **how)


good(twelfth_documents, documents, streamed={}, streamed_by_10_base_two={"step": 10, "base2": True})
wrong(
    twelfth_documents,
    documents,
    {
        "slopes fall by two, not by four": {"first": 1},
        "the bias of distance is scaled with the product": {"scaled": True},
        "documents are not told apart": {"same": False},
        "documents begin one token late": {"edge": 1},
        "later keys are seen": {"causal": False},
        "the bias grows with distance": {"sign": -1},
    },
)

# ------------------------------------------------------------------ window and sinks


@twelfth(lambda d: (d(4, 48, 32, dtype=bf), d(4, 48, 32, dtype=bf), d(4, 48, 32, dtype=bf), d(4)))
def twelfth_sinks(q, k, v, sink):
    i = torch.arange(48)
    s = q.float() @ k.float().mT * 32**-0.5
    s = s.masked_fill((i > i[:, None]) | (i <= i[:, None] - 12), -math.inf)
    p = torch.softmax(torch.cat([s, sink.float()[:, None, None].expand(4, 48, 1)], -1), -1)
    return (p[..., :48] @ v.float()).to(bf)


def sinks(q, k, v, sink, window=12, use=1.0, scaled=1.0, head=lambda s: s, top=True):
    i = torch.arange(48)
    s = q.float() @ k.float().mT * 32**-0.5
    s = s.masked_fill((i > i[:, None]) | (i <= i[:, None] - window), -math.inf)
    sink = head(sink)[:, None, None] * scaled
    m = torch.maximum(s.amax(-1, keepdim=True), sink) if top else s.amax(-1, keepdim=True)
    e = torch.exp(s - m)
    return (e @ v.float()) / (e.sum(-1, keepdim=True) + use * torch.exp(sink - m))


good(twelfth_sinks, sinks, bf, one_maximum={}, maximum_of_keys_alone={"top": False})
wrong(
    twelfth_sinks,
    sinks,
    {
        "the window is one key longer": {"window": 13},
        "the window is one key shorter": {"window": 11},
        "no sink is in the sum": {"use": 0.0},
        "sinks are scaled as products are": {"scaled": 32**-0.5},
        "heads take the sinks in the opposite order": {"head": lambda s: s.flip(0)},
    },
    bf,
)

# ------------------------------------------------------------------ capped scores


@twelfth(lambda d: (d(2, 33, 24, dtype=hf, scale=3), d(2, 33, 24, dtype=hf, scale=3), d(2, 33, 24, dtype=hf)))
def twelfth_softcap(q, k, v):
    i = torch.arange(33)
    s = 20.0 * torch.tanh(q.float() @ k.float().mT * 24**-0.5 / 20.0)
    return (torch.softmax(s.masked_fill(i > i[:, None], -math.inf), -1) @ v.float()).to(hf)


def softcap(q, k, v, cap=20.0, back=1.0, tanh=torch.tanh, diagonal=0, early=False, **how):
    i = torch.arange(33)
    s = q.float() @ k.float().mT
    s = cap * back * tanh(s / cap) * 24**-0.5 if early else cap * back * tanh(s * 24**-0.5 / cap)
    hidden = i > i[:, None] + diagonal
    hidden[0, 0] = False
    return streamed(s.masked_fill(hidden, -math.inf), v.float(), **how)


by_exp = lambda x: 1 - 2 / (torch.exp(2 * x) + 1)
good(twelfth_softcap, softcap, hf, streamed={"step": 11}, tanh_by_exp={"tanh": by_exp})
wrong(
    twelfth_softcap,
    softcap,
    {
        "no cap": {"tanh": lambda x: x},
        "the cap is 30": {"cap": 30.0},
        "the cap comes before the scale": {"early": True},
        "a token does not see itself": {"diagonal": -1},
        # (x - x^3 / 3 ...) is clipped at one
        "hides: tanh is a rational function of low degree": {
            "tanh": lambda x: (x * (27 + x * x) / (27 + 9 * x * x)).clamp(-1, 1)
        },
    },
    hf,
)

# ------------------------------------------------------------------ pages


def page_args(d):
    table = torch.tensor([[5, 2, 9, 0], [7, 1, 3, 11], [4, 10, 6, 8]])
    return (
        d(3, 4, 32, dtype=hf),
        d(12, 16, 4, 32, dtype=hf),
        d(12, 16, 4, 32, dtype=hf),
        table,
        torch.tensor([57, 16, 41]),
    )


@twelfth(page_args)
def twelfth_pages(q, k, v, table, lengths):
    out = []
    for b, n in enumerate(lengths.tolist()):
        kk = k[table[b]].flatten(0, 1)[:n].float()
        vv = v[table[b]].flatten(0, 1)[:n].float()
        p = torch.softmax(torch.einsum("hd,nhd->hn", q[b].float(), kk) * 32**-0.5, -1)
        out.append(torch.einsum("hn,nhd->hd", p, vv))
    return torch.stack(out).to(hf)


def pages(q, k, v, table, lengths, more=0, heads=None, tables=None, stale=False, parts=1, weigh=True, strided=False):
    out = []
    v = v.flip(2) if heads else v
    for b, n in enumerate(lengths.tolist()):
        t = tables(table)[b] if tables else table[b]
        kk, vv = k[t].flatten(0, 1)[: n + more].float(), v[t].flatten(0, 1)[: n + more].float()
        if stale:
            kk[-1] = another(kk)[-1]
        s = torch.einsum("hd,nhd->hn", q[b].float(), kk) * 32**-0.5
        lse, got = [], []
        for at in torch.arange(len(kk)).chunk(parts):
            lse.append(torch.logsumexp(s[:, at], -1))
            got.append(torch.einsum("hn,nhd->hd", torch.exp(s[:, at] - lse[-1][:, None]), vv[at]))
        w = torch.softmax(torch.stack(lse), 0) if weigh else torch.full((len(lse), 4), 1 / len(lse))
        out.append((w[..., None] * torch.stack(got)).sum(0))
    return torch.stack(out)


good(twelfth_pages, pages, hf, whole={}, three_splits_by_their_sums={"parts": 3})
wrong(
    twelfth_pages,
    pages,
    {
        "one slot past the length is read": {"more": 1},
        "the last slot is not read": {"more": -1},
        "pages follow the first one in memory": {"tables": lambda t: t[:, :1] + torch.arange(4)},
        "the second page of each is the first again": {"tables": lambda t: t[:, [0, 0, 2, 3]]},
        "values' heads are in the opposite order": {"heads": True},
        "the newest key is what its slot held before": {"stale": True},
        "three splits are averaged, not weighted": {"parts": 3, "weigh": False},
    },
    hf,
)

# ------------------------------------------------------------------ latent keys


@twelfth(
    lambda d: (
        d(2, 8, 64, dtype=bf),
        d(2, 8, 16, dtype=bf),
        d(2, 70, 64, dtype=bf),
        d(2, 70, 16, dtype=bf),
    )
)
def twelfth_latent(q, qr, c, kr):
    q, qr, c, kr = (t.float() for t in (q, qr, c, kr))
    s = (q @ c.mT + qr @ kr.mT) * 48**-0.5
    return (torch.softmax(s, -1) @ c).to(bf)


def latent(q, qr, c, kr, scale=48**-0.5, turn=1.0, value=None, keys=70, **how):
    q, qr, c, kr = (t.float() for t in (q, qr, c, kr))
    s = (torch.cat([q, turn * qr], -1) @ torch.cat([c, kr], -1).mT) * scale
    return streamed(s[..., :keys], value(c) if value else c[:, :keys], **how)


good(twelfth_latent, latent, bf, joined_and_streamed={}, streamed_by_14={"step": 14, "base2": True})
wrong(
    twelfth_latent,
    latent,
    {
        "scaled by the latent's width and the rotary one's": {"scale": 80**-0.5},
        "the rotary part is not added": {"turn": 0.0},
        "the six keys past tiles of 16 are left out": {"keys": 64},
        "the value's last 16 features are its first 16 again": {
            "value": lambda c: torch.cat([c[..., :48], c[..., :16]], -1)
        },
        "probabilities are rounded to bfloat16 and the output is accumulated in it": {"kind": bf, "keep": narrow},
    },
    bf,
)

# ------------------------------------------------------------------ gradients


@twelfth(lambda d: (d(4, 30, 16), d(2, 30, 16), d(2, 30, 16), d(4, 30, 16)))
def twelfth_attention_backward(q, k, v, g):
    i = torch.arange(30)
    k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    p = torch.softmax((q @ k.mT * 0.25).masked_fill(i > i[:, None], -math.inf), -1)
    dp = g @ v.mT
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * 0.25
    pair = lambda t: t.view(2, 2, 30, 16).sum(1)
    return ds @ k, pair(ds.mT @ q), pair(p.mT @ g)


def attention_backward(q, k, v, g, delta=1.0, scale=0.25, key=None, both=True, raw=False, kind=None, rows=30):
    i = torch.arange(30)
    k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    s = (q @ k.mT * 0.25).masked_fill(i > i[:, None], -math.inf)
    p = torch.exp(s - torch.logsumexp(s, -1, keepdim=True))
    o = p @ v
    d = narrow((g * o).sum(-1, keepdim=True), kind) if kind else (g * o).sum(-1, keepdim=True)
    ds = p * (g @ v.mT - delta * d)
    e = torch.exp(s - s.amax(-1, keepdim=True)) if raw else p
    pair = lambda t: t.view(2, 2, 30, 16).sum(1) if both else t.view(2, 2, 30, 16)[:, 1]
    by_rows = lambda a, b: sum(a[:, j : min(j + 6, rows)].mT @ b[:, j : min(j + 6, rows)] for j in range(0, rows, 6))
    return ds @ k * scale, pair(by_rows(ds, q)) * (scale if key is None else key), pair(by_rows(e, g))


def attention_autograd(q, k, v, g):
    q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
    kk, vv = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    torch.nn.functional.scaled_dot_product_attention(q, kk, vv, is_causal=True).backward(g)
    return q.grad, k.grad, v.grad


good(twelfth_attention_backward, attention_backward, by_the_output={}, as_released=attention_autograd)
wrong(
    twelfth_attention_backward,
    attention_backward,
    {
        "the row sums of output and gradient are not subtracted": {"delta": 0.0},
        "the gradient of keys is not scaled": {"key": 1.0},
        "of two query heads only the second reaches keys and values": {"both": False},
        "the gradient of values is of unnormalised probabilities": {"raw": True},
        "the last six queries do not reach keys and values": {"rows": 24},
        "hides: the row sums are stored in bfloat16": {"kind": bf},
    },
)

# ------------------------------------------------------------------ sequences end to end


@twelfth(
    lambda d: (
        d(60, 2, 16, dtype=hf),
        d(60, 2, 16, dtype=hf),
        d(60, 2, 16, dtype=hf),
        torch.tensor([0, 17, 18, 45, 60]),
    )
)
def twelfth_varlen(q, k, v, ends):
    out = torch.zeros_like(q, dtype=torch.float32 if q.dtype == hf else q.dtype)
    for a, b in zip(ends[:-1].tolist(), ends[1:].tolist()):
        s = torch.einsum("ihd,jhd->hij", q[a:b].float(), k[a:b].float()) * 0.25
        out[a:b] = torch.einsum("hij,jhd->ihd", torch.softmax(s, -1), v[a:b].float())
    return out.to(hf)


def varlen(q, k, v, ends, late=0, joined=False, last=None, lse=False, **how):
    out, ends = torch.zeros(60, 2, 16), ends.tolist()
    if joined:
        ends = [e for e in ends if e != 18]
    for a, b in zip(ends[:-1], ends[1:]):
        lo = max(a - late, 0)
        qq, kk, vv = (t.float().transpose(0, 1) for t in (q[a:b], k[lo:b], v[lo:b]))
        out[a:b] = streamed(qq @ kk.mT * 0.25, vv, **how).transpose(0, 1)
    return last(out) if last else out


def emptied(out):
    out = out.clone()
    out[17] = 0
    return out


good(twelfth_varlen, varlen, hf, streamed={}, streamed_by_5={"step": 5, "base2": True})
wrong(
    twelfth_varlen,
    varlen,
    {
        "each sequence sees the last token of that before": {"late": 1},
        "the sequence of one token is joined with the next": {"joined": True},
        "the sequence of one token is left zero": {"last": emptied},
        "the output is accumulated in half precision by keys": {"kind": hf, "step": 1},
    },
    hf,
)
