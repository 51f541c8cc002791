# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: random numbers, recurrences and geometry."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, wide

# ------------------------------------------------------------------ random numbers


def source(seed=5):
    return torch.Generator().manual_seed(seed)


add(
    "bernoulli",
    A.bernoulli.default,
    lambda d: (d.rand(80, 100),),
    lambda p, less=0.0, seed=5, shift=0: (
        (torch.rand(p.shape, generator=source(seed)) + less) < p.roll(shift, 0)
    ).float(),
    right={
        "another seed": {},
        "by a normal one": lambda p: (torch.special.ndtr(torch.randn(p.shape, generator=source(8))) < p).float(),
    },
    wrong={
        "the other way": lambda p: (torch.rand(p.shape, generator=source()) > p).float(),
        "a row late": {"shift": 1},
        "a half for all": lambda p: (torch.rand(p.shape, generator=source()) < 0.5).float(),
        "hides: 0.05 less likely": {"less": 0.05},
        "cut at a half": lambda p: (p > 0.5).float(),
    },
)


def dropped(x, p=0.3, scale=None, seed=4, same=False):
    u = torch.rand(x[:1].shape if same else x.shape, generator=source(seed))
    keep = (u >= p).expand_as(x)
    return x * keep * (1 / 0.7 if scale is None else scale), keep


add(
    "native_dropout",
    A.native_dropout.default,
    lambda d: (d(90, 80, shift=2.0), 0.3, True),
    lambda x, *_, **k: dropped(x, **k),
    right={"another seed": {}, "a third seed": {"seed": 99}},
    wrong={
        "not scaled": {"scale": 1.0},
        "divided by p": {"scale": 1 / 0.3},
        "keeps what it should drop": {"p": 0.7},
        "hides: scaled by 1.42": {"scale": 1.42},
        "the mask is the other way": lambda x, *_: (dropped(x)[0], ~dropped(x)[1]),
        "hides: all rows have one mask": {"same": True},
    },
)

add(
    "multinomial",
    A.multinomial.default,
    lambda d: (torch.softmax(d(8, 12), 1) * (torch.arange(12) % 4 != 1), 3000, True),
    lambda p, n, _, less=0, power=1.0: torch.searchsorted(
        (p**power).cumsum(1) / (p**power).sum(1, keepdim=True), torch.rand(len(p), n, generator=source()), right=True
    ).clamp(max=11),
    right={
        "by a running sum": {},
        "by exponentials": lambda p, n, _: torch.stack(
            [(p / torch.empty(p.shape).exponential_(generator=g)).argmax(1) for g in [source(6)] for _ in range(n)], 1
        ),
    },
    wrong={
        "all are equally likely": lambda p, n, _: torch.randint(0, 12, (8, n), generator=source()),
        "the first row's for all": lambda p, n, _: torch.multinomial(p[:1].expand(8, -1), n, True, generator=source()),
        "hides: those of no likelihood are drawn at times": lambda p, n, _: torch.multinomial(
            p + 0.004, n, True, generator=source()
        ),
        "likelihoods are squared": {"power": 2.0},
    },
)

add(
    "normal",
    A.normal.Tensor_Tensor,
    lambda d: (d(50, 100), d.rand(50, 100) + 0.5),
    lambda m, s, seed=5, how=lambda s: s, centre=1: m * centre + how(s) * torch.randn(m.shape, generator=source(seed)),
    right={
        "another seed": {},
        "by sine and cosine": lambda m, s: (
            m
            + s
            * torch.sqrt(-2 * torch.log(1 - torch.rand(m.shape, generator=source())))
            * torch.cos(2 * math.pi * torch.rand(m.shape, generator=source(6)))
        ),
    },
    wrong={
        "the deviation is the variance": {"how": lambda s: s * s},
        "about zero": {"centre": 0},
        "even, not normal": lambda m, s: m + s * (torch.rand(m.shape, generator=source()) - 0.5) * 12**0.5,
        "hides: tails are cut at 1.5": lambda m, s: m + s * torch.randn(m.shape, generator=source()).clamp(-1.5, 1.5),
    },
)

add(
    "randperm_rows",
    lambda x: x[torch.randperm(x.shape[0])],
    lambda d: (d(40, 6),),
    right={"another order": lambda x: x[torch.randperm(40, generator=source())]},
    wrong={
        "with repeats": lambda x: x[torch.randint(0, 40, (40,), generator=source())],
        "hides: the last row is there twice, the first not at all": lambda x: torch.cat([x[1:], x[-1:]]),
    },
)

# ------------------------------------------------------------------ recurrences


def selective(x, dt, a, b, c, skip):
    dt = F.softplus(dt)
    h = torch.zeros(x.shape[0], x.shape[2], a.shape[1], dtype=x.dtype)
    out = []
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t, :, None] * a) * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1) + skip * x


def selective_kernel(x, dt, a, b, c, skip, plus=True, chunk=None, kind=None, soft=True, late=0, states=4):
    dt = torch.log1p(dt.exp()) if soft else dt
    h, out = 0, []
    for t in range(x.shape[1]):
        if chunk and t % chunk == 0:
            h = 0
        h = h * torch.exp(dt[:, max(t - late, 0), :, None] * a) + dt[:, t, :, None] * x[:, t, :, None] * b[:, t, None]
        h = narrow(h, kind) if kind else h
        out.append((h[..., :states] @ c[:, t, :states, None])[..., 0])
    return torch.stack(out, 1) + (skip * x if plus else 0)


add(
    "selective_scan",
    selective,
    lambda d: (d(2, 40, 6), d(2, 40, 6, shift=-1.0), -d.rand(6, 4) - 0.1, d(2, 40, 4), d(2, 40, 4), d(6)),
    selective_kernel,
    right={"step by step": {}, "in double": wide(selective)},
    wrong={
        "the skip is left out": {"plus": False},
        "steps are not made positive": {"soft": False},
        "hides: the state is lost at each 16": {"chunk": 16},
        "hides: the state is kept in bfloat16": {"kind": bf},
        "the decay is of the step before": {"late": 1},
        "hides: the last state is not read": {"states": 3},
    },
)


def linear_attention(q, k, v, decay):
    n = q.shape[1]
    d = torch.arange(n)[:, None] - torch.arange(n)
    w = torch.where(d >= 0, decay[:, None, None] ** d.clamp(min=0).to(q.dtype), 0.0)
    return (q @ k.mT * w) @ v


def retention(q, k, v, decay, chunk=8, cross=True, off=0, carry=True, kind=None):
    s, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2]), []
    g = decay[:, None, None]
    for a in range(0, q.shape[1], chunk):
        x, y, z = (t[:, a : a + chunk] for t in (q, k, v))
        m = x.shape[1]
        i = torch.arange(m)
        d = i[:, None] - i
        part = (x @ y.mT * torch.where(d >= 0, g ** d.clamp(min=0), 0.0)) @ z
        out.append(part + ((x * g ** (i[:, None] + 1 - off)) @ s if cross else 0))
        s = (s * g**m if carry else s) + (y * g ** (m - 1 - i[:, None])).mT @ z
        s = narrow(s, kind) if kind else s
    return torch.cat(out, 1)


add(
    "retention",
    linear_attention,
    lambda d: (d(3, 44, 12), d(3, 44, 12), d(3, 44, 10), torch.tensor([0.9, 0.95, 0.99])),
    retention,
    right={"chunks of 8": {}, "chunks of one": {"chunk": 1}, "in double": wide(linear_attention)},
    wrong={
        "chunks do not see one another": {"cross": False},
        "the state does not decay": {"carry": False},
        "hides: the state is a step too fresh": {"off": 1},
        "hides: the state is kept in bfloat16": {"kind": bf},
    },
)


def gated_delta(q, k, v, beta, g):
    k = k / k.norm(dim=-1, keepdim=True)
    s = torch.zeros(q.shape[0], k.shape[2], v.shape[2], dtype=q.dtype)
    out = []
    for t in range(q.shape[1]):
        s = s * torch.exp(g[:, t])[:, None, None]
        err = v[:, t] - torch.einsum("bk,bkv->bv", k[:, t], s)
        s = s + torch.einsum("bk,bv->bkv", k[:, t], err * beta[:, t, None])
        out.append(torch.einsum("bk,bkv->bv", q[:, t], s))
    return torch.stack(out, 1)


def delta_kernel(q, k, v, beta, g, late=False, norm=True, before=False, kind=None, gate=True, once=False):
    k = F.normalize(k, dim=-1) if norm else k / 4
    s, out = torch.zeros(q.shape[0], k.shape[2], v.shape[2]), []
    for t in range(q.shape[1]):
        if before:
            out.append((q[:, t, None] @ s)[:, 0])
        d = g[:, t].exp()[:, None, None] if gate else 1.0
        kt = k[:, t, :, None]
        read = kt.mT @ (s if late else s * d)
        s = s * d + kt @ ((v[:, t, None] - read) * beta[:, t, None, None])
        s = narrow(s, kind) if kind else s
        if not before:
            out.append((q[:, t, None] @ s)[:, 0])
    return torch.stack(out, 1)


add(
    "gated_delta",
    gated_delta,
    lambda d: (d(3, 30, 12), d(3, 30, 12), d(3, 30, 10), d.rand(3, 30), -d.rand(3, 30) * 0.2),
    delta_kernel,
    right={"as products": {}, "in double": wide(gated_delta)},
    wrong={
        "read before it decays": {"late": True},
        "keys are not normed": {"norm": False},
        "the output lacks the present": {"before": True},
        "no gate": {"gate": False},
        "hides: the state is kept in half": {"kind": hf},
    },
)


def rwkv(r, k, v, w, u):
    s = torch.zeros(k.shape[0], k.shape[2], v.shape[2], dtype=k.dtype)
    out = []
    for t in range(k.shape[1]):
        kv = k[:, t, :, None] * v[:, t, None]
        out.append((r[:, t, None] @ (s + u[:, None] * kv))[:, 0])
        s = s * torch.exp(-torch.exp(w[:, t]))[..., None] + kv
    return torch.stack(out, 1)


def rwkv_kernel(r, k, v, w, u, bonus=True, twice=True, swap=False, kind=None, most=None):
    s, out = torch.zeros(k.shape[0], k.shape[2], v.shape[2]), []
    for t in range(k.shape[1]):
        now = (r[:, t] * k[:, t] * (u if bonus else 1)).sum(-1, keepdim=True) * v[:, t]
        out.append((r[:, t, None] @ s)[:, 0] + now)
        z = w[:, t].exp() if twice else w[:, t].abs()
        z = z.clamp(max=most) if most else z
        s = torch.exp(-z)[..., None] * s + k[:, t, :, None] * v[:, t, None]
        s = narrow(s, kind) if kind else s
    return torch.stack(out, 1)


add(
    "rwkv",
    rwkv,
    lambda d: (d(2, 30, 8), d(2, 30, 8), d(2, 30, 8), d(2, 30, 8, shift=-2.0), d(8)),
    rwkv_kernel,
    right={"the present apart": {}, "in double": wide(rwkv)},
    wrong={
        "no bonus of the present": {"bonus": False},
        "one exponential alone": {"twice": False},
        "hides: the state is kept in bfloat16": {"kind": bf},
        "hides: decays are 0.6 at most": {"most": 0.6},
    },
)


def gru(x, h, wi, wh, bi, bh, swap=False, early=False):
    ir, iz, i = (x @ wi.T + bi).chunk(3, 1)
    hr, hz, n = (h @ wh.T + bh).chunk(3, 1)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    n = (r * h) @ wh[32:].T + bh[32:] if early else r * n
    n = torch.tanh(i + n)
    return z * n + (1 - z) * h if swap else (1 - z) * n + z * h


add(
    "gru_cell",
    A.gru_cell.default,
    lambda d: (d(10, 12), d(10, 16), d(48, 12, scale=0.4), d(48, 16, scale=0.4), d(48), d(48)),
    gru,
    right={"three gates": {}, "in double": wide(gru)},
    wrong={
        "gates of reset and update are swapped": lambda x, h, *w: gru(
            x, h, *(torch.cat([t[16:32], t[:16], t[32:]]) for t in w)
        ),
        "old and new are swapped": {"swap": True},
        "hides: the reset is applied before the product": {"early": True},
        "hides: the new state's bias is outside of the reset": lambda x, h, wi, wh, bi, bh: gru(
            x, h, wi, wh, bi + bh * (torch.arange(48) > 31), bh * (torch.arange(48) < 32)
        ),
    },
)


def lstm(x, h, c, w, u, b):
    i, f, g, o = (x @ w.T + h @ u.T + b).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def lstm_kernel(x, h, c, w, u, b, order=(0, 1, 2, 3), plus=0.0, hard=False, bend=True):
    z = torch.cat([x, h], 1) @ torch.cat([w, u], 1).T + b
    p = z.chunk(4, 1)
    i, f, g, o = (p[k] for k in order)
    s = (lambda t: (t / 6 + 0.5).clamp(0, 1)) if hard else (lambda t: 1 / (1 + torch.exp(-t)))
    c = s(f + plus) * c + s(i) * torch.tanh(g)
    return s(o) * (torch.tanh(c) if bend else c), c


add(
    "lstm_cell",
    lstm,
    lambda d: (d(8, 10), d(8, 14), d(8, 14), d(56, 10, scale=0.4), d(56, 14, scale=0.4), d(56)),
    lstm_kernel,
    right={"one product": {}, "in double": wide(lstm)},
    wrong={
        "gates are in another order": {"order": (0, 1, 3, 2)},
        "one is added to the gate that forgets": {"plus": 1.0},
        "the output's cell is not bent": {"bend": False},
        "hides: sigmoids are lines": {"hard": True},
    },
)

# ------------------------------------------------------------------ geometry


def box_iou(a, b):
    area = lambda t: (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    wh = (high - low).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (area(a)[:, None] + area(b) - inter)


def for_boxes(d, n=20, m=25):
    at = lambda k: torch.cat([d.rand(k, 2) * 50, d.rand(k, 2) * 50 + 20], 1)
    box = lambda t: torch.cat([t[:, :2], t[:, :2] + t[:, 2:]], 1)
    return box(at(n)), box(at(m))


def iou_kernel(a, b, plus=0.0, clip=True, union=True, eps=0.0):
    w = torch.minimum(a[:, None, 2], b[:, 2]) - torch.maximum(a[:, None, 0], b[:, 0]) + plus
    h = torch.minimum(a[:, None, 3], b[:, 3]) - torch.maximum(a[:, None, 1], b[:, 1]) + plus
    inter = w.clamp(min=0) * h.clamp(min=0) if clip else w * h
    s = lambda t: (t[:, 2] - t[:, 0] + plus) * (t[:, 3] - t[:, 1] + plus)
    return inter / ((s(a)[:, None] + s(b) - (inter if union else 0)) + eps)


add(
    "box_iou",
    box_iou,
    for_boxes,
    iou_kernel,
    right={"by sides": {}, "in double": wide(box_iou)},
    wrong={
        "pixels are counted": {"plus": 1.0},
        "apart on both sides meets": {"clip": False},
        "the overlap is counted twice": {"union": False},
        "hides: one is added to the union": {"eps": 1.0},
    },
)


def nms(boxes, scores):
    keep, left = [], torch.argsort(scores, descending=True)
    while len(left):
        keep.append(left[0])
        iou = box_iou(boxes[left[:1]], boxes[left[1:]])[0]
        left = left[1:][iou <= 0.4]
    return torch.stack(keep)


def nms_kernel(boxes, scores, at=0.4, up=False, all_=False, plus=0.0):
    order = torch.argsort(scores, descending=not up)
    iou = iou_kernel(boxes, boxes, plus)
    keep = []
    for p, i in enumerate(order.tolist()):
        others = order[:p].tolist() if all_ else keep
        if all(iou[i, j] <= at for j in others):
            keep.append(i)
    return torch.tensor(keep)


def one_shape(kernel):
    """Places in order, the rest -1: the shape does not tell."""

    def run(boxes, scores):
        got = kernel(boxes, scores)
        return F.pad(got, (0, len(boxes) - len(got)), value=-1)

    return run


def padded_nms(boxes, scores):
    return one_shape(nms)(boxes, scores)


add(
    "nms",
    padded_nms,
    lambda d: (for_boxes(d, 5, 40)[1], d.rand(40)),
    right={"all against all": one_shape(nms_kernel)},
    wrong={
        "the worst first": one_shape(lambda b, s: nms_kernel(b, s, up=True)),
        "hides: those that are gone put others out": one_shape(lambda b, s: nms_kernel(b, s, all_=True)),
        "hides: at 0.35": one_shape(lambda b, s: nms_kernel(b, s, 0.35)),
        "at a half": one_shape(lambda b, s: nms_kernel(b, s, 0.5)),
    },
)


def penalties(logits, seen, alpha):
    counts = F.one_hot(seen, logits.shape[-1]).sum(1)
    hit = counts > 0
    y = torch.where(hit, torch.where(logits > 0, logits / alpha, logits * alpha), logits)
    return y - 0.3 * counts.to(y.dtype) - 0.5 * hit.to(y.dtype)


add(
    "token_penalties",
    penalties,
    lambda d: (d(6, 40, scale=3), d.ints(40, 6, 25), 1.3),
    lambda x, s, a, n=25, sign=True, presence=0.5, count=True: (
        lambda c: (
            torch.where(c > 0, torch.where((x > 0) | (not sign), x / a, x * a), x)
            - 0.3 * (c if count else (c > 0))
            - presence * (c > 0).float()
        )
    )((s[:, :n, None] == torch.arange(40)).sum(1).float()),
    right={"compared": {}},
    wrong={
        "negative logits are divided, too": {"sign": False},
        "a token counts once": {"count": False},
        "hides: the last token is not counted": {"n": 24},
        "no penalty of presence": {"presence": 0.0},
    },
)
