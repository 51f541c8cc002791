# SPDX-License-Identifier: Apache-2.0
"""Set M: scans, recurrences, running sums and products, sums by segments."""

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ok
from .blind_tenth_a import tenth

F = torch.nn.functional
INF = float("inf")


# ------------------------------------------------------------------ Mamba 2 by chunks


@tenth(
    lambda d: (
        d(2, 64, 4, 8),
        F.softplus(d(2, 64, 4) - 1),
        -d.rand(4) - 0.2,
        d(2, 64, 16),
        d(2, 64, 16),
        d(4),
        d(2, 4, 8, 16),
    )
)
def tenth_state_space(x, dt, a, b, c, skip, h):
    out = []
    for t in range(64):
        fall = (dt[:, t] * a).exp()[..., None, None]
        h = h * fall + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, None, None]
        out.append((h * c[:, t, None, None]).sum(-1) + skip[:, None] * x[:, t])
    return torch.stack(out, 1), h


def state_space(x, dt, a, b, c, skip, h, chunk=16, strict=0, carry=True, kind=None, late=0, dt_of=None, own=True):
    out = []
    for s in range(0, 64, chunk):
        at = slice(s, s + chunk)
        d = dt_of(dt[:, at]) if dt_of else dt[:, at]
        run = (dt[:, at] * a).cumsum(1)
        gap = run[:, :, None] - run[:, None]
        low = torch.ones(chunk, chunk).tril(strict)[..., None] > 0
        w = gap.masked_fill(~low, -INF).exp() * torch.einsum("bin,bjn->bij", c[:, at], b[:, at])[..., None]
        y = torch.einsum("bijh,bjhp->bihp", w, d[..., None] * x[:, at])
        if carry is True or carry(s):
            first = run if not late else run - (dt[:, at] * a)
            y = y + torch.einsum("bhpn,bin,bih->bihp", h, c[:, at], first.exp())
        to_end = (run[:, -1:] - run).exp() * d
        h = h * run[:, -1].exp()[..., None, None] + torch.einsum("bjhp,bjn,bjh->bhpn", x[:, at], b[:, at], to_end)
        h = narrow(h, kind) if kind else h
        out.append(y + skip[:, None] * x[:, at] * own)
    return torch.cat(out, 1), h


ok(tenth_state_space, state_space, chunks_of_sixteen={}, chunks_of_eight={"chunk": 8}, chunks_of_32={"chunk": 32})
bad(
    tenth_state_space,
    state_space,
    {
        # strictly lower triangle inside chunks
        "a step does not see itself in its chunk": {"strict": -1},
        # D x
        "the skip is left out": {"own": False},
        # the state enters one step of decay late
        "the carried state decays one step too little": {"late": 1},
        # inter-chunk part dropped at the last chunk
        "the last chunk does not see the carried state": {"carry": lambda s: s < 48},
        # states of chunks are stored in bfloat16
        "hides: states between chunks in bfloat16": {"kind": bf},
        # dt in bfloat16
        "hides: steps are rounded to half precision beside x": {"dt_of": lambda d: narrow(d, hf)},
    },
)


# ------------------------------------------------------------------ a gated linear recurrence, log gates


@tenth(lambda d: (d(3, 100, 24), d(3, 100, 24), d(24, shift=-4.0)))
def tenth_gated_recurrence(x, r, lam):
    a = (-8 * torch.sigmoid(r) * F.softplus(lam)).exp()
    h, out = torch.zeros(3, 24), []
    for t in range(100):
        h = a[:, t] * h + (1 - a[:, t] ** 2).sqrt() * x[:, t]
        out.append(h)
    return torch.stack(out, 1)


def gated_recurrence(x, r, lam, way="steps", square=True, power=8.0, back=False, lost=(), kind=None, gate=None):
    la = -power * torch.sigmoid(r) * (F.softplus(lam) if gate is None else gate(lam))
    a = la.exp()
    b = ((-torch.expm1(2 * la)).sqrt() if way != "naive" else (1 - narrow(a, kind) ** 2).sqrt()) * x
    b = (1 - a).sqrt() * x if not square else b
    if way == "doubling":
        step = 1
        while step < 100:
            pa, pb = F.pad(a, (0, 0, step, 0), value=1.0)[:, :100], F.pad(b, (0, 0, step, 0))[:, :100]
            if step not in lost:
                a, b = a * pa, a * pb + b
            step *= 2
        return b
    h, out = torch.zeros(3, 24), []
    for t in range(100):
        h = a[:, t] * (torch.zeros_like(h) if t in lost else h) + b[:, t]
        h = narrow(h, kind) if kind and way == "steps" else h
        out.append(h)
    return torch.stack(out, 1)


ok(tenth_gated_recurrence, gated_recurrence, steps_with_expm1={}, doubling={"way": "doubling"})
bad(
    tenth_gated_recurrence,
    gated_recurrence,
    {
        # sqrt(1 - a)
        "the square of the gate is forgotten": {"square": False},
        # a block boundary resets the state
        "the state is lost at step 64": {"lost": (64,)},
        # up-sweep misses its last level
        "the last level of the scan is missing": {"way": "doubling", "lost": (64,)},
        # the state lives in half precision
        "hides: the state in half precision": {"kind": hf},
        # 1 - a^2 where a is rounded to half precision first
        "hides: one less the square of a gate in half precision": {"way": "naive", "kind": hf},
        # softplus(x) = exp(x) for small x
        "hides: softplus by its first term": {"gate": torch.exp},
    },
)


# ------------------------------------------------------------------ running products


def product_args(d):
    x = 1 + d(12, 150, scale=0.3)
    x[3, 40] = 0
    return (x,)


@tenth(product_args)
def tenth_running_product(x):
    return x.cumprod(-1)


def running_product(x, way="blocks", block=30, skip=False):
    if way == "logs":
        return narrow(x.abs().log().cumsum(-1), hf).exp() * torch.where(x < 0, -1.0, 1.0).cumprod(-1)
    if way == "doubling":
        step = 1
        while step < 150:
            x, step = x * F.pad(x, (step, 0), value=1.0)[:, :150], step * 2
        return x
    out, carry = [], torch.ones(12, 1)
    for j in range(0, 150, block):
        p = carry * x[:, j : j + block].cumprod(-1)
        out.append(p)
        carry = p[:, -2:-1] if skip else p[:, -1:]
        carry = torch.where(carry == 0, 1.0, carry) if way == "no zeros" else carry
    return torch.cat(out, -1)


ok(tenth_running_product, running_product, blocks={}, doubling={"way": "doubling"})
bad(
    tenth_running_product,
    running_product,
    {
        # carry of the last but one
        "the carry misses the last of its block": {"skip": True},
        # zero carries replaced by one
        "a zero does not carry into the next block": {"way": "no zeros"},
        # exp(cumsum(log)), the sums stored in half precision
        "hides: through logarithms in half precision": {"way": "logs"},
    },
)


@tenth(lambda d: (1 + d(10, 60, scale=0.3), d(10, 60)))
def tenth_running_product_grad(x, g):
    return grads(lambda x: x.cumprod(-1), x, cotangent=g)[0]


def running_product_grad(x, g, eps=0.0, upto=60, kind=None):
    y = x.double().cumprod(-1) if kind is None else narrow(x.cumprod(-1), kind)
    s = (g * y).flip(-1).cumsum(-1).flip(-1)
    s = torch.cat([s[:, :upto], s[:, upto:] * 0], -1)
    return (s / (x + eps)).float()


ok(tenth_running_product_grad, running_product_grad, reversed_sum_over_x={})
bad(
    tenth_running_product_grad,
    running_product_grad,
    {
        # products in bfloat16
        "hides: products saved in bfloat16": {"kind": bf},
        # 1e-4 in the denominator
        "hides: 1e-4 is added to the divisor": {"eps": 1e-4},
        # last four
        "the last four gradients are zero": {"upto": 56},
    },
)


# ------------------------------------------------------------------ running sums in bfloat16, exclusive, reverse


@tenth(lambda d: (d(20, 260, dtype=bf, shift=0.3),))
def tenth_running_sum16(x):
    return x.float().cumsum(-1).to(bf)


def running_sum16(x, block=260, kind=None, exclusive=False, carry=None, fix=None):
    x, run, out = x.float(), torch.zeros(20, 1), []
    for n, j in enumerate(range(0, 260, block)):
        p = x[:, j : j + block].cumsum(-1)
        out.append(run + p - (x[:, j : j + block] if exclusive else 0))
        run = carry(n, run, p[:, -1:]) if carry else run + p[:, -1:]
        run = narrow(run, kind) if kind else run
    return torch.cat(out, -1)


ok(tenth_running_sum16, running_sum16, bf, blocks_of_20={"block": 20}, blocks_of_64={"block": 64})
bad(
    tenth_running_sum16,
    running_sum16,
    {
        # exclusive
        "each sum leaves its own element out": {"exclusive": True},
        # carries added to the neighbour only
        "a block takes only the sum of the one before": {"block": 65, "carry": lambda n, r, p: p},
        # the carry in bfloat16
        "hides: carries in bfloat16": {"block": 20, "kind": bf},
        # the carry in bfloat16, for a single block
        "hides: one carry in bfloat16": {"block": 130, "kind": bf},
    },
    bf,
)


# ------------------------------------------------------------------ long sums whose total cancels


@tenth(lambda d: (torch.cat([d(4, 2000, scale=1e3), d(4, 2000)], 1).float(),))
def tenth_far_running_sum(x):
    return (x - x.mean(-1, keepdim=True)).cumsum(-1)


def far_running_sum(x, block=400, lost=None, kind=None, again=1):
    y = x - x.sum(-1, keepdim=True) / 4000
    out, run = [], torch.zeros(4, 1)
    for n, j in enumerate(range(0, 4000, block)):
        p = y[:, j : j + block].cumsum(-1)
        out.append(run + p)
        run = run + p[:, -1:] * (0 if n == lost else 1)
        run = narrow(run, kind) if kind else run
    return torch.cat(out, -1)


ok(tenth_far_running_sum, far_running_sum, blocks={}, small_blocks={"block": 50})
bad(
    tenth_far_running_sum,
    far_running_sum,
    {
        # a block of the small half is lost: 400 elements of order one beside 1e5
        "hides: the carry of a small block is lost": {"lost": 7},
        # bfloat16 carries
        "carries in bfloat16": {"kind": bf},
        # half-precision carries overflow
        "carries in float16": {"kind": hf},
    },
)


# ------------------------------------------------------------------ log-cumsum-exp gradient-like; lstm


def lstm_args(d):
    return d(8, 20), d(8, 16), d(8, 16), d(64, 20, scale=0.3), d(64, 16, scale=0.3), d(64), d(64)


@tenth(lstm_args)
def tenth_lstm(x, h, c, wi, wh, bi, bh):
    i, f, g, o = (x @ wi.T + bi + h @ wh.T + bh).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def lstm(x, h, c, wi, wh, bi, bh, order=(0, 1, 2, 3), one=False, hard=False, two=True, kind=None, peek=False):
    z = (torch.cat([x, h], 1) @ torch.cat([wi, wh], 1).T + (bi + bh * two)).chunk(4, -1)
    i, f, g, o = (z[n] for n in order)
    s = (lambda u: (u / 6 + 0.5).clamp(0, 1)) if hard else lambda u: 1 / (1 + (-u).exp())
    t = (lambda u: narrow(torch.tanh(u), kind)) if kind else lambda u: torch.tanh(u)
    new = s(f + one) * c + s(i) * t(g)
    return s(o) * torch.tanh(c if peek else new), new


ok(tenth_lstm, lstm, one_product={})
bad(
    tenth_lstm,
    lstm,
    {
        # i, f, o, g as other frameworks order them
        "gates are in another framework's order": {"order": (0, 1, 3, 2)},
        # forget bias of one
        "one is added to the forget gate": {"one": 1.0},
        # tanh of the old cell
        "the output looks at the old cell": {"peek": True},
        # hard sigmoid
        "the sigmoid is the hard one": {"hard": True},
        # bias of the recurrent part
        "the recurrent bias is left out": {"two": 0.0},
        # tanh from a table of half precision
        "hides: the candidate's tanh in half precision": {"kind": hf},
    },
)


# ------------------------------------------------------------------ softmax over the edges of a graph


def edge_args(d):
    return d(200, 4, scale=3), d.ints(30, 200), d(200, 4, 8)


@tenth(edge_args)
def tenth_edge_softmax(s, to, v):
    top = torch.full((30, 4), -INF).index_reduce(0, to, s, "amax")
    e = (s - top[to]).exp()
    total = torch.zeros(30, 4).index_add(0, to, e)
    return torch.zeros(30, 4, 8).index_add(0, to, (e / total[to])[..., None] * v)


def edge_softmax(s, to, v, way=0, order=None, lost=0, top=None, kind=None):
    if order is not None:
        s, to, v = s[order], to[order], v[order]
    m = s.amax() if way == "one" else torch.full((30, 4), -INF).index_reduce(0, to, s, "amax")[to]
    e = (s - m).exp()
    live = torch.arange(200) < 200 - lost
    total = torch.zeros(30, 4).index_add(0, to, e)
    total = narrow(total, kind) if kind else total
    acc = torch.zeros(30, 4, 8).index_add(0, to, (e * live[:, None])[..., None] * v)
    return acc / torch.where(total == 0, 1.0, total)[..., None]


ok(
    tenth_edge_softmax,
    edge_softmax,
    edges_backwards={"order": torch.arange(199, -1, -1)},
    one_maximum_for_all={"way": "one"},
)
bad(
    tenth_edge_softmax,
    edge_softmax,
    {
        # a race: the last edge of a block is not added
        "the last edge adds no value": {"lost": 1},
        # totals in half precision
        "hides: totals in half precision": {"kind": hf},
        # eps in the denominator
        "hides: 1e-3 is added to the total": lambda s, to, v: plus_edge(s, to, v),
    },
)


def plus_edge(s, to, v):
    e = (s - s.amax(0)).exp()
    total = torch.zeros(30, 4).index_add(0, to, e)
    return torch.zeros(30, 4, 8).index_add(0, to, e[..., None] * v) / (total + 1e-3)[..., None]
