# SPDX-License-Identifier: Apache-2.0
"""Set M, its third part: small losses in 16 bits, in long sums, in scans and in sums of unlike sizes."""

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, ok
from .blind_tenth_a import tenth
from .blind_tenth_o import block

F = torch.nn.functional
INF = float("inf")


# ------------------------------------------------------------------ a 16-bit product, small losses


@tenth(lambda d: (d(48, 512, dtype=bf), d(40, 512, dtype=bf)))
def tenth_deep16(x, w):
    return F.linear(x, w)


def deep16(x, w, depth=512, parts=1, kind=None, lean=None, rows=None, turn=None):
    x, w = x.float(), w.float()
    n = 512 // parts
    ys = [x[:, k : min(k + n, depth)] @ w[:, k : min(k + n, depth)].T for k in range(0, 512, n)]
    ys = [narrow(y, kind) for y in ys] if kind else ys
    y = sum(ys)
    y = lean(y) if lean else y
    return rows(y, x, w) if rows else y


def cut(y):
    return (y.view(torch.int32) & ~0xFFFF).view(torch.float32)


ok(tenth_deep16, deep16, bf, in_one_go={}, in_eight={"parts": 8}, in_sixty_four={"parts": 64})
bad(
    tenth_deep16,
    deep16,
    {
        # split-K with partial results in bfloat16
        "hides: two parts are added in bfloat16": {"parts": 2, "kind": bf},
        # split-K partials in half precision
        "hides: eight parts pass through half precision": {"parts": 8, "kind": hf},
        # truncation
        "hides: the result is cut off": {"lean": cut},
        # one of 512
        "hides: the last of the depth is left out": {"depth": 511},
        # last row only
        "hides: the last row leaves the last of the depth out": {
            "rows": lambda y, x, w: block(y, 47, lambda t: t - x[47, 511] * w[:, 511]),
        },
        # a factor of 1 + 2^-12: a sixteenth of a unit
        "hides: the result leans by a sixteenth of a unit": {"lean": lambda y: y * (1 + 2**-12)},
    },
    bf,
)


@tenth(lambda d: (d(8, 16, 20, 20, dtype=hf), d(24, 16, 3, 3, dtype=hf, scale=0.1)))
def tenth_conv16(x, w):
    return F.conv2d(x.float(), w.float(), padding=1).to(hf)


def conv16(x, w, kind=None, groups=1, edge=None, cut_channel=16):
    x, w = x.float(), w.float()
    y = torch.zeros(8, 24, 20, 20)
    n = 16 // groups
    for c in range(0, cut_channel, n):
        y = y + F.conv2d(x[:, c : c + n], w[:, c : c + n], padding=1)
        y = narrow(y, kind) if kind else y
    return edge(y, x, w) if edge else y


def no_border(y, x, w):
    return block(
        y,
        (slice(None), slice(None), 19),
        lambda t: t - F.conv2d(x[:, :, 19:], w[:, :, 1:2], padding=(0, 1))[:, :, 0] * 2**-8,
    )


ok(tenth_conv16, conv16, hf, at_once={}, four_channels_at_a_time={"groups": 4})
bad(
    tenth_conv16,
    conv16,
    {
        # accumulators
        "hides: four channels at a time in half precision": {"groups": 4, "kind": hf},
        # one row of pixels
        "hides: the last row of pixels is off by 2^-8 of a tap": {"edge": no_border},
        # winograd's transforms in half precision: two roundings
        "hides: halves of the channels are added in half precision": {"groups": 2, "kind": hf},
        # corner in the last image
        "hides: the last pixel of the last image is zero": {
            "edge": lambda y, x, w: block(y, (7, slice(None), 19, 19), lambda t: t * 0),
        },
    },
    hf,
)


# ------------------------------------------------------------------ long sums, unlike sizes


def unlike_args(d):
    x = d(12, 5000)
    x[:, 100] = 3e4
    return x, d(12, 3000).abs()


@tenth(unlike_args)
def tenth_unlike(x, y):
    return x.sum(-1), y.sum(-1), y.square().mean(-1).sqrt(), (y + 1).log().mean(-1)


def unlike(x, y, lost=(), n=3000, kind=None, step=100, each=None, serial=False):
    keep = torch.ones(5000)
    keep[list(lost)] = 0
    total = torch.zeros(12)
    for j in range(0, 5000, step):
        total = total + (x * keep)[:, j : j + step].sum(-1)
    part = torch.zeros(12)
    for j in range(0, n, step):
        part = part + y[:, j : min(j + step, n)].sum(-1)
        part = narrow(part, kind) if kind else part
    z = y.square()
    z = each(z) if each else z
    return total, part, (z.sum(-1) / 3000).sqrt(), torch.log1p(y).sum(-1) / 3000


def sticky(x, y):
    total = torch.zeros(12, 32)
    for j in range(0, 5000, 32):
        c = F.pad(x[:, j : j + 32], (0, max(0, j + 32 - 5000)))
        total = torch.where(total.abs() > 2e4, total, total + c)
    return (total.sum(-1), *unlike(x, y)[1:])


ok(tenth_unlike, unlike, by_hundreds={}, by_twenty={"step": 20})
bad(
    tenth_unlike,
    unlike,
    {
        # one small element beside 3e4
        "hides: the last ten of five thousand are left out": {"lost": range(4990, 5000)},
        # a lane that holds the large one takes no more
        "hides: the lane with the large value takes no more": sticky,
        # one of 3000 positive
        "hides: the last of three thousand is left out": {"n": 2999},
        # half precision at the end
        "hides: sums by hundreds in half precision": {"kind": hf},
        # squares cut to half precision
        "hides: squares in half precision": {"each": lambda z: narrow(z, hf)},
        # a square dropped below 1e-4
        "hides: squares below 1e-3 are dropped": {"each": lambda z: torch.where(z < 1e-3, 0.0, z)},
    },
)


# ------------------------------------------------------------------ scans that forget


@tenth(lambda d: (d(4, 256, 8), torch.sigmoid(d(4, 256, 8) + 4), d(4, 8)))
def tenth_forgetful(x, a, h):
    out = []
    for t in range(256):
        h = a[:, t] * h + x[:, t]
        out.append(h)
    return torch.stack(out, 1), h


def forgetful(x, a, h, chunk=256, kind=None, drop=0.0, last=None, late=False, final=None):
    out = []
    for s in range(0, 256, chunk):
        for t in range(s, s + chunk):
            h = torch.addcmul(x[:, t], a[:, t], h)
            out.append(h)
        h = narrow(h, kind) if kind else h
        h = torch.where(h.abs() < drop, 0.0, h)
    y = torch.stack(out, 1)
    return (last(y) if last else y), (final(y) if final else y[:, -1])


ok(tenth_forgetful, forgetful, fused={}, chunks={"chunk": 32})
bad(
    tenth_forgetful,
    forgetful,
    {
        # chunk states in half precision
        "hides: states between chunks of 64 in half precision": {"chunk": 64, "kind": hf},
        # one chunk state in half precision
        "hides: one state in half precision": {"chunk": 128, "kind": hf},
        # small states are dropped
        "hides: states below 0.05 are dropped between chunks": {"chunk": 64, "drop": 0.05},
        # final state is the last but one
        "hides: the final state is the last but one": {"final": lambda y: y[:, -2]},
        # final in half
        "hides: the final state in bfloat16": {"final": lambda y: narrow(y[:, -1])},
        # the last step
        "hides: the last step in half precision": {
            "last": lambda y: block(y, (slice(None), 255), lambda t: narrow(t, hf))
        },
    },
)


# ------------------------------------------------------------------ normalised results whose mistake cancels


@tenth(lambda d: (d(30, 64), d(30, 64), d(64, shift=1.0, scale=0.1)))
def tenth_cancelled(x, y, w):
    n = F.rms_norm(x, (64,), w, 1e-6)
    p = torch.softmax(x, -1)
    return n, p, F.cosine_similarity(x, y), F.normalize(x - x.mean(-1, keepdim=True), dim=-1)


def cancelled(x, y, w, scale=1.0, shift=0.0, rows=None, p_rows=None, cos=None, eps=1e-6, mean=None):
    z = x * scale
    n = z * torch.rsqrt(z.square().mean(-1, keepdim=True) + eps) * w
    n = rows(n) if rows else n
    e = (x - shift - x.amax(-1, keepdim=True)).exp()
    p = e / e.sum(-1, keepdim=True)
    c = (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1)).sqrt()
    m = x.mean(-1, keepdim=True)
    d = x - (mean(m) if mean else m)
    return n, p_rows(p) if p_rows else p, cos(c) if cos else c, d / d.square().sum(-1, keepdim=True).sqrt()


ok(tenth_cancelled, cancelled, scaled_by_two={"scale": 2.0, "eps": 4e-6}, shifted={"shift": 3.0})
bad(
    tenth_cancelled,
    cancelled,
    {
        # eps after scaling
        "hides: eps is a thousandth": {"eps": 1e-3},
        # eps 1e-5
        "hides: eps is 1e-5": {"eps": 1e-5},
        # mean in half precision
        "hides: the mean that is taken off in half precision": {"mean": lambda m: narrow(m, hf)},
        # one row of p sums to 1 + 2^-12
        "hides: one row of weights is not quite normalised": {
            "p_rows": lambda p: block(p, 29, lambda t: t * (1 + 2**-13))
        },
        # cosine
        "hides: one cosine in half precision": {"cos": lambda c: block(c, slice(29, 30), lambda t: narrow(t, hf))},
        # one row of n
        "hides: one row of the norm in half precision": {"rows": lambda n: block(n, 29, lambda t: narrow(t, hf))},
        # all rows, sixteen last columns
        "hides: every fourth column in tf32": {
            "rows": lambda n: block(n, (slice(None), slice(3, None, 4)), lambda t: narrow(t, hf)),
        },
    },
)
