# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: caches, alignments and scans."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, honest, mistake
from .blind_fifth_a import INF, cut, fifth, rights, wrongs

# ------------------------------------------------------------------ caches


@fifth(lambda d: (d(6, 8, 2, 12, dtype=bf), d(7, 2, 12, dtype=bf), torch.tensor([13, 14, 15, 16, 17, -1, 40])))
def paged_cache_append(cache, new, slots):
    flat = cache.flatten(0, 1).clone()
    keep = slots >= 0
    flat[slots[keep]] = new[keep]
    return flat.view_as(cache)


def append_loop(cache, new, slots, wrap=False, size=8, short=0, page=False, low=None):
    out = cache.clone()
    for i, s in enumerate(slots.tolist()[: len(slots) - short]):
        if s < 0 and not wrap:
            continue
        at, off = divmod(s % 48, size)
        if page and off == 0:
            at -= 1
        out[at, off % 8] = cut(new[i], low)
    return out


honest(paged_cache_append, "a loop over the tokens", append_loop)
honest(
    paged_cache_append,
    "a scatter over pages",
    lambda c, n, s: c.clone().index_put_((s[s >= 0] // 8, s[s >= 0] % 8), n[s >= 0]),
)
for words, keys in {
    "slot -1 (padding) is written to the cache's last slot": {"wrap": True},
    "the last token of the batch is not written": {"short": 1},
    "a token that opens a page is written to the page before": {"page": True},
    "new entries pass through e4m3": {"low": torch.float8_e4m3fn},
}.items():
    mistake(paged_cache_append, words, lambda *a, keys=keys: append_loop(*a, **keys))


# ------------------------------------------------------------------ alignments and scans


@fifth(lambda d: (d(2, 20, 5), d(5, 5), d(5), d(5)))
def viterbi_decode(emit, trans, start, end):
    score, back = start + emit[:, 0], []
    for t in range(1, emit.shape[1]):
        best, arg = (score[:, :, None] + trans).max(1)
        score = best + emit[:, t]
        back.append(arg)
    best, last = (score + end).max(1)
    path = [last]
    for arg in reversed(back):
        path.append(arg.gather(1, path[-1][:, None])[:, 0])
    return best, torch.stack(path[::-1], 1)


def viterbi_backward(emit, trans, start, end, turned=False, final=True, first=True, greedy=False, off=0):
    trans = trans.T if turned else trans
    n = emit.shape[1]
    score = end.expand_as(emit[:, 0]) if final else torch.zeros_like(emit[:, 0])
    ahead = []
    for t in range(n - 1, 0, -1):
        best, arg = (trans + (emit[:, t] + score)[:, None]).max(2)
        score = best
        ahead.append(arg)
    best, at = ((start if first else 0.0) + emit[:, 0] + score).max(1)
    path = [at]
    for t in range(1, n):
        arg = ahead[n - 1 - min(t + off, n - 1)]
        path.append(emit[:, t].argmax(1) if greedy else arg.gather(1, path[-1][:, None])[:, 0])
    return best, torch.stack(path, 1)


honest(viterbi_decode, "from the end to the start", viterbi_backward)
for words, keys in {
    "the transition table is read transposed": {"turned": True},
    "the scores of ending are left out": {"final": False},
    "the scores of starting are left out": {"first": False},
    "the path takes each step's best emission, not the back pointers": {"greedy": True},
    "back pointers are read one step off": {"off": 1},
}.items():
    mistake(viterbi_decode, words, lambda *a, keys=keys: viterbi_backward(*a, **keys))


@fifth(
    lambda d: (
        d(18, 3, 7).log_softmax(-1),
        torch.tensor([[1, 1, 4, 2], [3, 5, 5, 0], [6, 2, 0, 0]]),
        torch.tensor([18, 15, 11]),
        torch.tensor([4, 3, 2]),
    )
)
def ctc_mean_loss(logp, labels, frames, sizes):
    losses = []
    for b in range(logp.shape[1]):
        n = int(sizes[b])
        path = torch.zeros(2 * n + 1, dtype=torch.long)
        path[1::2] = labels[b, :n]
        skip = (path[2:] != 0) & (path[2:] != path[:-2])
        alpha = torch.full((2 * n + 1,), -INF, dtype=logp.dtype)
        alpha[:2] = logp[0, b, path[:2]]
        for t in range(1, int(frames[b])):
            one = F.pad(alpha[:-1], (1, 0), value=-INF)
            two = F.pad(alpha[:-2].masked_fill(~skip, -INF), (2, 0), value=-INF)
            alpha = torch.stack((alpha, one, two)).logsumexp(0) + logp[t, b, path]
        losses.append(-torch.logaddexp(alpha[-1], alpha[-2]) / n)
    return torch.stack(losses).mean()


def ctc_kernel(logp, labels, frames, sizes, skips=False, blank_end=False, by="label", whole=False, best=False):
    losses = []
    for b in range(logp.shape[1]):
        n, end = int(sizes[b]), logp.shape[0] if whole else int(frames[b])
        path = [0] + [x for y in labels[b, :n].tolist() for x in (y, 0)]
        p = [[logp[t, b, c].item() for c in path] for t in range(end)]
        alpha = [p[0][0], p[0][1]] + [-INF] * (len(path) - 2)
        for t in range(1, end):
            new = []
            for s, c in enumerate(path):
                terms = [alpha[s]] + ([alpha[s - 1]] if s else [])
                if s > 1 and c and (skips or c != path[s - 2]):
                    terms.append(alpha[s - 2])
                top = max(terms)
                add = 0.0 if best or top == -INF else math.log(sum(math.exp(x - top) for x in terms))
                new.append(top + add + p[t][s])
            alpha = new
        total = alpha[-1] if blank_end else torch.logaddexp(*torch.tensor(alpha[-2:]).double()).item()
        losses.append(-total / {"label": n, "frame": end, "none": 1}[by])
    return torch.tensor(sum(losses) / len(losses), dtype=logp.dtype)


honest(ctc_mean_loss, "torch's own loss", lambda p, y, f, s: F.ctc_loss(p, y, f, s))
honest(ctc_mean_loss, "a loop in double precision", ctc_kernel)
for words, keys in {
    "a repeated label may be entered without a blank between": {"skips": True},
    "paths must end in a blank": {"blank_end": True},
    "losses are divided by the frames, not by the labels": {"by": "frame"},
    "losses are not divided by the labels' number": {"by": "none"},
    "every sequence runs over all 18 frames": {"whole": True},
    "the best path instead of the sum over paths": {"best": True},
}.items():
    mistake(ctc_mean_loss, words, lambda *a, keys=keys: ctc_kernel(*a, **keys))


@fifth(lambda d: (d(4, 1000, scale=8.0, shift=80.0),))
def scanned_logsumexp(x):
    return torch.logcumsumexp(x, -1)


def running_lse_tiles(x, tile=128, reset=False, shift=True, exclusive=False, low=None):
    carry, out = torch.full_like(x[:, :1], -INF), []
    for at in range(0, x.shape[1], tile):
        part = x[:, at : at + tile]
        m = torch.maximum(part.amax(-1, keepdim=True), carry) if shift else torch.zeros_like(carry)
        y = (cut((part - m).exp().cumsum(-1), low) + (carry - m).exp()).log() + m
        out.append(y)
        carry = carry if reset else y[:, -1:]
    y = torch.cat(out, -1)
    return F.pad(y[:, :-1], (1, 0), value=-INF) if exclusive else y


def running_lse_doubling(x):
    step = 1
    while step < x.shape[1]:
        x = torch.logaddexp(x, F.pad(x[:, :-step], (step, 0), value=-INF))
        step *= 2
    return x


honest(scanned_logsumexp, "doubling steps", running_lse_doubling)
honest(
    scanned_logsumexp,
    "one element after another in double precision",
    lambda x: torch.stack([x[:, : i + 1].double().logsumexp(-1) for i in range(x.shape[1])], 1).float(),
)
wrongs(
    scanned_logsumexp,
    running_lse_tiles,
    {
        "the sum starts anew at each tile of 128": {"reset": True},
        "no maximum is taken off, so that exp overflows": {"shift": False},
        "the scan is exclusive: shifted by one": {"exclusive": True},
        "running sums of exponentials are kept in bf16": {"low": bf},
    },
)


@fifth(lambda d: (d(3, 300, shift=5.0, dtype=bf), 0.1))
def ema_smooth(x, alpha):
    y = [x[:, 0].float()]
    for t in range(1, x.shape[1]):
        y.append((1 - alpha) * y[-1] + alpha * x[:, t].float())
    return torch.stack(y, 1).to(x.dtype)


def ema_blocks(x, alpha, size=64, zero=False, swap=False, power=0, reset=False, low=None):
    keep = alpha if swap else 1 - alpha
    y, h = [], torch.zeros_like(x[:, 0]) if zero else x[:, 0]
    for at in range(0, x.shape[1], size):
        part = x[:, at : at + size]
        n = part.shape[1]
        gap = torch.arange(n)[:, None] - torch.arange(n)[None]
        w = (1 - keep) * (keep ** gap.clamp(min=0)).tril()
        h = part[:, 0] if reset else h
        y.append(cut(part @ w.T + h[:, None] * keep ** (torch.arange(n) + 1 - power), low))
        h = y[-1][:, -1]
    return torch.cat(y, 1)


rights(ema_smooth, ema_blocks, {"blocks of 64 by a matrix product": {}, "blocks of 19": {"size": 19}})
wrongs(
    ema_smooth,
    ema_blocks,
    {
        "the average starts from zero, not from the first value": {"zero": True},
        "alpha weighs the past instead of the new value": {"swap": True},
        "the value carried between blocks is one decay short": {"power": 1},
        "each block starts from its own first value": {"reset": True},
    },
)
