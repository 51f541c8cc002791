# SPDX-License-Identifier: Apache-2.0
"""What set G is written with. A kernel loads its arguments in float32, works there and rounds once; its keywords
are the faults, so the same kernel at its defaults is a right one."""

import torch

from .blind import family, honest, mistake

LOWEST = -float("inf")


def sixth(args):
    return family(args, sets="G")


def is_float(x):
    return torch.is_tensor(x) and x.is_floating_point()


def through(kernel, work=torch.float32, into=None, **keywords):
    """The kernel run in `work` on loaded arguments; floats are stored as `into` or as the first float came."""

    def run(*args):
        store = into or next(a.dtype for a in args if is_float(a))
        out = kernel(*(a.to(work) if is_float(a) else a for a in args), **keywords)
        if isinstance(out, tuple):
            return tuple(o.to(store) if is_float(o) else o for o in out)
        return out.to(store) if is_float(out) else out

    return run


def faults(fn, kernel, into=None, **cases):
    """Mistakes by keyword: name=(words, value), or name=[(words, value), ...]."""
    for name, given in cases.items():
        for words, value in given if isinstance(given, list) else [given]:
            mistake(fn, words, through(kernel, into=into, **{name: value}))


def sound(fn, words, kernel, into=None, **keywords):
    honest(fn, words, through(kernel, into=into, **keywords))


def stored(x, kind):
    """x after a stay in a narrower type."""
    return x if kind is None else x.to(kind).to(x.dtype)


def repeat_heads(x, times, axis=1):
    return x.repeat_interleave(times, axis)


def stream(q, k, v, scale, score=None, see=None, tile=16, back=False, acc=None, frozen=False, tail=True):
    """Attention over tiles of keys with a running maximum: the output and the log of the sum.

    score(s, i, j) and see(i, j) get the places of queries and keys."""
    n, keys = q.shape[-2], k.shape[-2]
    i = torch.arange(n)[:, None]
    top = q.new_full((*q.shape[:-1], 1), LOWEST)
    total, out = torch.zeros_like(top), q.new_zeros(*q.shape[:-1], v.shape[-1])
    tiles = list(range(0, keys if tail else keys // tile * tile, tile))
    for at in reversed(tiles) if back else tiles:
        j = torch.arange(at, min(at + tile, keys))[None]
        s = torch.matmul(q, k[..., at : at + tile, :].mT) * scale
        s = s if score is None else score(s, i, j)
        s = s if see is None else s.masked_fill(~see(i, j), LOWEST)
        peak = torch.maximum(top, s.amax(-1, keepdim=True))
        base = torch.where(peak == LOWEST, 0.0, peak)
        p, fade = (s - base).exp(), (top - base).exp()
        total = total * fade + p.sum(-1, keepdim=True)
        out = stored((out if frozen else out * fade) + p @ v[..., at : at + tile, :], acc)
        top = peak
    return out / total, (top + total.log())[..., 0]
