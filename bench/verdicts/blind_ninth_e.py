# SPDX-License-Identifier: Apache-2.0
"""Set L: scans, recurrences, sums by segments."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, ninth, ok

# ------------------------------------------------------------------ selective scan


def mamba_args(d):
    a_log = torch.log(torch.arange(1, 9).float()).expand(12, 8).clone()
    return d(2, 12, 96), d(2, 12, 96, shift=-1.0), a_log, d(2, 8, 96), d(2, 8, 96), d(12), d(12)


@ninth(mamba_args)
def ninth_selective_scan(u, dt, a_log, b, c, skip, bias):
    dt = F.softplus(dt + bias[:, None])
    a = -a_log.exp()
    h, ys = torch.zeros_like(dt[:, :, :1] * a), []
    for t in range(u.shape[-1]):
        h = (dt[:, :, t, None] * a).exp() * h + dt[:, :, t, None] * b[:, None, :, t] * u[:, :, t, None]
        ys.append((h * c[:, None, :, t]).sum(-1))
    return torch.stack(ys, -1) + skip[:, None] * u


def scan(
    u,
    dt,
    a_log,
    b,
    c,
    skip,
    bias,
    chunk=32,
    reset=False,
    zoh=False,
    kind=None,
    soft=F.softplus,
    lag=0,
    last=96,
    tree=False,
):
    dt = soft(dt + bias[:, None])
    a = -a_log.exp()
    h, ys = torch.zeros(2, 12, 8), []
    for s in range(0, 96, chunk):
        if reset and s == 64:
            h = torch.zeros_like(h)
        h = h if kind is None else narrow(h, kind)
        d, x = dt[:, :, s : s + chunk], u[:, :, s : s + chunk]
        g = d[:, :, None] * a[:, :, None]  # (2, 12, 8, chunk)
        e = d[:, :, None] * b[:, None, :, s : s + chunk] * x[:, :, None]
        if zoh:
            e = torch.expm1(g) / a[:, :, None] * b[:, None, :, s : s + chunk] * x[:, :, None]
        states = pairs(g.exp(), e) if tree else steps(g, e)
        states = states + g.cumsum(-1).exp() * h[..., None]
        h = states[..., -1 - lag]
        ys.append((states * c[:, None, :, s : s + chunk]).sum(2))
    y = torch.cat(ys, -1)
    return torch.cat((y[..., :last] + skip[:, None] * u[..., :last], y[..., last:]), -1)


def steps(g, e):
    h, out = torch.zeros_like(e[..., 0]), []
    for t in range(e.shape[-1]):
        h = g[..., t].exp() * h + e[..., t]
        out.append(h)
    return torch.stack(out, -1)


def pairs(a, e):
    """Hillis and Steele: doubling distances."""
    by = 1
    while by < e.shape[-1]:
        e = torch.cat((e[..., :by], e[..., by:] + a[..., by:] * e[..., :-by]), -1)
        a = torch.cat((a[..., :by], a[..., by:] * a[..., :-by]), -1)
        by *= 2
    return e


ok(
    ninth_selective_scan,
    scan,
    chunks_of_32={},
    doubling_distances={"tree": True, "chunk": 96},
    chunks_of_8={"chunk": 8},
)
bad(
    ninth_selective_scan,
    scan,
    {
        # the state between two chunks is lost once
        "the state is zero at the last chunk": {"reset": True},
        # exact discretisation of B where Euler's is meant
        "hides: B is discretised exactly": {"zoh": True},
        # state in bfloat16 between chunks
        "hides: the state between chunks is bfloat16": {"kind": bf},
        # a threshold of softplus far too low
        "hides: softplus is the identity above 2": {"soft": lambda x: torch.where(x > 2.0, x, F.softplus(x))},
        # the state before the last of a chunk is handed on
        "the state handed on is one step old": {"lag": 1},
        # u * D of the tail
        "hides: the last position lacks the skip": {"last": 95},
    },
)


# ------------------------------------------------------------------ delta rule and decayed linear attention


def delta_args(d):
    return d(3, 64, 16), F.normalize(d(3, 64, 16), dim=-1), d(3, 64, 16), d.rand(3, 64), -0.1 * d.rand(3, 64)


@ninth(delta_args)
def ninth_gated_delta(q, k, v, beta, g):
    return gated_delta(q, k, v, beta, g)


def gated_delta(q, k, v, beta, g, late=False, twice=False, start=1, kind=None, every=16, decay_v=False, alpha=1.0):
    s, out = torch.zeros_like(k[:, 0, :, None] * v[:, 0, None]), []
    for t in range(64):
        if kind is not None and t % every == 0:
            s = narrow(s, kind)
        kt, b = k[:, t, :, None], beta[:, t, None, None]
        before = s
        s = s * (g[:, t] * alpha).exp()[:, None, None]
        old = ((before if decay_v else s) * kt).sum(1, keepdim=True)
        new = v[:, t, None] - old * (b if twice else 1.0)
        s = s + kt * (b * new)
        out.append(((before if late else s) * q[:, t, :, None]).sum(1))
    return torch.stack(out, 1) * 16**-0.5


def gated_delta_matrix(q, k, v, beta, g):
    s, out, eye = torch.zeros(3, 16, 16), [], torch.eye(16)
    for t in range(64):
        kt = k[:, t, :, None]
        keep = (eye - beta[:, t, None, None] * (kt @ kt.mT)) * g[:, t].exp()[:, None, None]
        s = torch.baddbmm(beta[:, t, None, None] * (kt @ v[:, t, None]), keep, s)
        out.append((q[:, t, None] * 0.25 @ s)[:, 0])
    return torch.stack(out, 1)


ok(ninth_gated_delta, gated_delta, by_matrices=gated_delta_matrix)
bad(
    ninth_gated_delta,
    gated_delta,
    {
        # S of the step before
        "the output takes the state before the update": {"late": True},
        # beta k k' S with beta twice
        "what is erased is weighted by beta twice": {"twice": True},
        # the erased value is that before the decay
        "hides: the erased value is not decayed": {"decay_v": True},
        # bf16 state between chunks
        "hides: the state is bfloat16 between chunks of 16": {"kind": bf},
        # float16 state, once
        "hides: the state is float16 once": {"kind": hf, "every": 48},
    },
)


@ninth(lambda d: (d(2, 4, 128, 16), d(2, 4, 128, 16), d(2, 4, 128, 16), -d.rand(2, 4, 128) * 0.3))
def ninth_retention(q, k, v, g):
    c = g.cumsum(-1)
    w = torch.where(torch.ones(128, 128).tril() > 0, (c[..., :, None] - c[..., None, :]), -math.inf).exp()
    return ((q @ k.mT) * w) @ v


def retention(q, k, v, g, chunk=32, exclusive=False, lost=None, kind=None, diag=0, own=True):
    s, out = torch.zeros(2, 4, 16, 16), []
    for n, t in enumerate(range(0, 128, chunk)):
        r = slice(t, t + chunk)
        c = g[:, :, r].cumsum(-1)
        e = c - g[:, :, r] if exclusive else c
        see = torch.ones(chunk, chunk).tril(diag) > 0
        w = torch.where(see, (c[..., :, None] - c[..., None, :]), -math.inf).exp()
        w = w if own else w * g[:, :, r].exp()[..., None, :]
        o = ((q[:, :, r] @ k[:, :, r].mT) * w) @ v[:, :, r] + (q[:, :, r] * e.exp()[..., None]) @ s
        kd = k[:, :, r] * (c[..., -1:] - c).exp()[..., None]
        s = s * c[..., -1:, None].exp() * (0.0 if n == lost else 1.0) + kd.mT @ v[:, :, r]
        s = s if kind is None else narrow(s, kind)
        out.append(o)
    return torch.cat(out, 2)


ok(ninth_retention, retention, chunks_of_32={}, chunks_of_16={"chunk": 16}, step_by_step={"chunk": 1})
bad(
    ninth_retention,
    retention,
    {
        # the state is decayed by the steps before, not by this one
        "the state of earlier chunks is decayed one step less": {"exclusive": True},
        # a lost state, one chunk
        "the state older than one chunk is lost once": {"lost": 2},
        # the diagonal is not seen
        "a position does not see itself": {"diag": -1},
        # decay of the own step in the chunk
        "hides: keys in the own chunk are decayed once more": {"own": False},
        # state stored in bfloat16
        "hides: the state is stored in bfloat16": {"kind": bf},
    },
)


# ------------------------------------------------------------------ running sums


@ninth(lambda d: (d(20, 1000) * torch.exp(2 * d(20, 1000)),))
def ninth_running_sum(x):
    return x.cumsum(-1)


def running_sum(x, tile=128, lost=None, stale=None, kind=None, exclusive=False):
    out, carry = [], torch.zeros(20, 1)
    for n, t in enumerate(range(0, 1000, tile)):
        part = x[:, t : t + tile]
        y = part.cumsum(-1)
        seen = carry.clone()
        if lost is not None and n == lost[1]:
            seen[lost[0]] -= x[lost[0], t - tile : t].sum()
        out.append(seen + (y - part if exclusive else y))
        carry = carry + y[:, -1:]
        carry = carry if kind is None else narrow(carry, kind)
    return torch.cat(out, -1)


def doubling(x):
    by = 1
    while by < 1000:
        x = torch.cat((x[:, :by], x[:, by:] + x[:, :-by]), -1)
        by *= 2
    return x


ok(ninth_running_sum, running_sum, tiles_of_128={}, tiles_of_33={"tile": 33}, doubling_distances=doubling)
bad(
    ninth_running_sum,
    running_sum,
    {
        # decoupled look-back reads one tile too few, one row, one tile
        "hides: one tile of one row lacks the tile before": {"lost": (7, 5)},
        # the sum before
        "the sum leaves itself out": {"exclusive": True},
        # carry in float16
        "hides: the carry is bfloat16": {"kind": bf},
        # the last tile begins anew
        "hides: the last three are sums of their tile alone": lambda x: torch.cat(
            (x[:, :997].cumsum(-1), x[:, 997:].cumsum(-1)), -1
        ),
    },
)


@ninth(lambda d: (d(16, 200, scale=20),))
def ninth_running_lse(x):
    return x.logcumsumexp(-1)


def running_lse(x, tile=50, fresh=True, top=None):
    m, s, out = torch.full((16,), -math.inf), torch.zeros(16), []
    for t in range(200):
        new = torch.maximum(m, x[:, t])
        s = s * ((m - new).exp() if fresh or t % tile else 1.0) + (x[:, t] - new).exp()
        m = new
        out.append(m + s.log())
    return torch.stack(out, -1)


ok(ninth_running_lse, running_lse, running_maximum={})
bad(
    ninth_running_lse,
    running_lse,
    {
        # the carry of a tile is not rescaled to its new maximum
        "hides: the carry is not rescaled where a tile begins": {"fresh": False},
        # one maximum for the row: underflow at the beginning
        "hides: the maximum of the row serves for all": lambda x: (
            (x - x.amax(-1, keepdim=True)).exp().cumsum(-1).log() + x.amax(-1, keepdim=True)
        ),
        # log(a + b) = max
        "hides: the maximum for the sum where they are near": lambda x: torch.where(
            x.logcumsumexp(-1) - x.cummax(-1).values < 5e-2, x.cummax(-1).values, x.logcumsumexp(-1)
        ),
    },
)


@ninth(lambda d: (d(300, 24), torch.tensor([0, 40, 40, 41, 200, 299, 300])))
def ninth_segments(x, ends):
    at = torch.bucketize(torch.arange(300), ends[1:], right=True)
    return torch.zeros(6, 24, dtype=x.dtype).index_add(0, at, x) / (ends[1:] - ends[:-1]).clamp(min=1)[:, None]


def segments(x, ends, over=None, less=0, empty=0.0, kind=None):
    out = []
    for a, b in zip(ends.tolist(), ends.tolist()[1:], strict=False):
        part = x[a : max(a, b - less)] if b - a > 32 else x[a:b]
        total = (
            part.sum(0)
            if kind is None
            else narrow(narrow(part[::2].sum(0), kind) + narrow(part[1::2].sum(0), kind), kind)
        )
        n = max(b - a, 1) if over is None else over
        out.append(total / n if b > a else (out[-1] if empty is None else total + empty))
    return torch.stack(out)


ok(ninth_segments, segments, one_by_one={})
bad(
    ninth_segments,
    segments,
    {
        # an empty segment keeps the value of the one before
        "an empty segment repeats the one before": {"empty": None},
        # the last element of longer segments
        "hides: the last of a long segment is not added": {"less": 1},
        # over 50
        "the mean is over the mean length": {"over": 50},
        # halves in float16
        "hides: halves of a segment are added in float16": {"kind": hf},
    },
)


# ------------------------------------------------------------------ recurrences


def gae_args(d):
    return d(10, 80), d(10, 81), (d.rand(10, 80) < 0.05).float()


@ninth(gae_args)
def ninth_gae(r, v, done):
    adv, out = torch.zeros_like(r[:, 0]), []
    for t in reversed(range(80)):
        live = 1 - done[:, t]
        adv = r[:, t] + 0.99 * v[:, t + 1] * live - v[:, t] + 0.99 * 0.95 * live * adv
        out.append(adv)
    return torch.stack(out[::-1], 1)


def gae(r, v, done, gamma=0.99, lam=0.95, late=0, boot=1.0, cut=True, tree=False):
    live = 1 - (torch.cat((done[:, late:], done[:, :late]), 1) if late else done)
    v = torch.cat((v[:, :-1], v[:, -1:] * boot), 1)
    delta = r + gamma * v[:, 1:] * live - v[:, :-1]
    keep = gamma * lam * (live if cut else torch.ones_like(live))
    if tree:
        return pairs(keep.flip(1), delta.flip(1)).flip(1)
    adv, out = torch.zeros(10), []
    for t in reversed(range(80)):
        adv = delta[:, t] + keep[:, t] * adv
        out.append(adv)
    return torch.stack(out[::-1], 1)


ok(ninth_gae, gae, serial={}, doubling_distances={"tree": True})
bad(
    ninth_gae,
    gae,
    {
        # done of the next step
        "the end of an episode is read one step late": {"late": 1},
        # v[T] = 0
        "the last value is not used": {"boot": 0.0},
        # the trace runs over the end of an episode
        "the trace runs on over the end of an episode": {"cut": False},
        # 0.95 -> bf16 0.94921875
        "hides: lambda is rounded to bfloat16": {"lam": 0.94921875},
    },
)


@ninth(lambda d: (d(8, 20), d(8, 24), d(72, 20, scale=0.3), d(72, 24, scale=0.3), d(72), d(72)))
def ninth_gru(x, h, wi, wh, bi, bh):
    return torch.gru_cell(x, h, wi, wh, bi, bh)


def gru(x, h, wi, wh, bi, bh, early=False, turn=False, swap=False, sig=torch.sigmoid):
    i, g = (x @ wi.T + bi).chunk(3, 1), (h @ wh.T + bh).chunk(3, 1)
    r, z = sig(i[0] + g[0]), sig(i[1] + g[1])
    r, z = (z, r) if swap else (r, z)
    n = torch.tanh(i[2] + ((r * h) @ wh[48:].T + bh[48:] if early else r * g[2]))
    return n + (z if not turn else 1 - z) * (h - n)


ok(ninth_gru, gru, by_the_difference={})
bad(
    ninth_gru,
    gru,
    {
        # the variant of the paper
        "the reset gate comes before the product": {"early": True},
        # 1 - z
        "the update gate is turned round": {"turn": True},
        # z before r, as in ONNX
        "update and reset gate are swapped": {"swap": True},
        # gates in half precision
        "hides: sigmoids are stored in float16": {"sig": lambda z: narrow(torch.sigmoid(z), hf)},
    },
)
