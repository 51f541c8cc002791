# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: scans, recurrences and positions."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_fifth_a import INF, cut, fifth, rights, wide, wrongs

# ------------------------------------------------------------------ state spaces


@fifth(lambda d: (d(2, 37, 12), d(2, 37, 12, shift=-1.0), -(d(12, 8).abs() + 0.2), d(2, 37, 8), d(2, 37, 8), d(12)))
def selective_scan_skip(u, delta, a, b, c, skip):
    dt = F.softplus(delta)
    h = u.new_zeros(u.shape[0], u.shape[2], a.shape[1])
    out = []
    for t in range(u.shape[1]):
        h = (dt[:, t, :, None] * a).exp() * h + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1) + skip * u[:, t])
    return torch.stack(out, 1)


def scan_chunks(
    u,
    delta,
    a,
    b,
    c,
    skip,
    chunk=16,
    forget=False,
    euler=False,
    early=False,
    through=True,
    low=None,
    plain=False,
    zoh=False,
):
    dt = delta.exp() if plain else F.softplus(delta)
    decay = 1 + dt[..., None] * a if euler else (dt[..., None] * a).exp()
    x = (dt * u)[..., None] * b[:, :, None]
    if zoh:
        x = (decay - 1) / a * u[..., None] * b[:, :, None]
    out, h = [], torch.zeros_like(x[:, 0])
    for t in range(u.shape[1]):
        if forget and t % chunk == 0:
            h = torch.zeros_like(h)
        before, h = h, cut(decay[:, t] * h + x[:, t], low)
        out.append(torch.einsum("bdn,bn->bd", before if early else h, c[:, t]))
    y = torch.stack(out, 1)
    return y + skip * u if through else y


def scan_by_doubling(u, delta, a, b, c, skip):
    dt = torch.logaddexp(delta, torch.zeros_like(delta))
    p, x = (dt[..., None] * a).exp(), (dt * u)[..., None] * b[:, :, None]
    step = 1
    while step < u.shape[1]:
        pad = (0, 0, 0, 0, step, 0)
        x = x + p * F.pad(x, pad)[:, :-step]
        p = p * F.pad(p, pad)[:, :-step]
        step *= 2
    return torch.einsum("btdn,btn->btd", x, c) + skip * u


honest(selective_scan_skip, "a parallel scan by doubling", scan_by_doubling)
honest(selective_scan_skip, "a sequential kernel", scan_chunks)
wrongs(
    selective_scan_skip,
    scan_chunks,
    {
        "the state starts again from zero at each chunk of 16": {"forget": True},
        "the decay is 1 + delta a instead of exp(delta a)": {"euler": True},
        "the output reads the state before this step's update": {"early": True},
        "the skip term d u is left out": {"through": False},
        "the state is kept in bf16": {"low": bf},
        "delta is exp instead of softplus of its input": {"plain": True},
        "the input is discretised by a zero-order hold, not by delta b": {"zoh": True},
    },
)


@fifth(
    lambda d: (
        d(1, 50, 4, 16, dtype=bf),
        d.rand(1, 50, 4).to(bf),
        -d.rand(4).to(bf) - 0.2,
        d(1, 50, 2, 8, dtype=bf),
        d(1, 50, 2, 8, dtype=bf),
    )
)
def ssd_heads(x, dt, a, b, c):
    store = x.dtype
    x, dt, a, b, c = (t.float() for t in (x, dt, a, b, c))
    b, c = b.repeat_interleave(2, 2), c.repeat_interleave(2, 2)
    h, out = x.new_zeros(1, 4, 16, 8), []
    for t in range(x.shape[1]):
        h = h * (dt[:, t] * a).exp()[..., None, None] + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        out.append((h * c[:, t, :, None]).sum(-1))
    return torch.stack(out, 1).to(store)


def ssd_chunks(x, dt, a, b, c, size=16, strict=False, carry=True, late=0, strided=False, score=None, drop=False):
    x, dt, a, b, c = (t.float() for t in (x, dt, a, b, c))
    pick = torch.arange(4) % 2 if strided else torch.arange(4) // 2
    b, c = b[:, :, pick], c[:, :, pick]
    h, out = x.new_zeros(1, 4, 16, 8), []
    for at in range(0, x.shape[1], size):
        rows = slice(at, at + size)
        xs, ds, bs, cs = x[:, rows], dt[:, rows], b[:, rows], c[:, rows]
        n = xs.shape[1]
        total = (ds * a).cumsum(1)
        gap = (total[:, :, None] - total[:, None]).masked_fill(
            torch.ones(n, n, dtype=torch.bool).triu(0 if strict else 1)[None, :, :, None], -INF
        )
        m = cut(torch.einsum("bihn,bjhn->bijh", cs, bs) * gap.exp(), score)
        y = torch.einsum("bijh,bjh,bjhp->bihp", m, ds, xs)
        if carry:
            into = total if not late else total - ds * a
            y = y + torch.einsum("bihn,bhpn,bih->bihp", cs, h, into.exp())
        if drop and n < size:
            y = torch.zeros_like(y)
        out.append(y)
        left = (total[:, -1:] - total).exp() * ds
        h = h * total[:, -1].exp()[..., None, None] + torch.einsum("bjh,bjhp,bjhn->bhpn", left, xs, bs)
    return torch.cat(out, 1).to(bf)


honest(ssd_heads, "chunks of 16", ssd_chunks)
honest(ssd_heads, "chunks of 7", lambda *a: ssd_chunks(*a, size=7))
for words, keys in {
    "inside a chunk a token does not see itself": {"strict": True},
    "chunks are not joined: the carried state is left out": {"carry": False},
    "the carried state lacks the current step's decay": {"late": 1},
    "head h reads group h % 2 of b and c, not h // 2": {"strided": True},
    "the scores inside a chunk are rounded to e4m3": {"score": torch.float8_e4m3fn},
    "the last chunk, which is not full, is written as zeros": {"drop": True},
}.items():
    mistake(ssd_heads, words, lambda *a, keys=keys: ssd_chunks(*a, **keys))


# ------------------------------------------------------------------ linear attention


@fifth(lambda d: (d(1, 2, 40, 12), d(1, 2, 40, 12, scale=0.35), d(1, 2, 40, 16), d.rand(1, 2, 40)))
def normed_delta_rule(q, k, v, beta):
    k = k / k.norm(dim=-1, keepdim=True)
    s, out = q.new_zeros(1, 2, 12, 16), []
    for t in range(q.shape[2]):
        old = (s * k[:, :, t, :, None]).sum(2)
        s = s + k[:, :, t, :, None] * (beta[:, :, t, None] * (v[:, :, t] - old))[:, :, None]
        out.append((s * q[:, :, t, :, None]).sum(2))
    return torch.stack(out, 2)


def delta_chunks(q, k, v, beta, size=10, norm=True, erase=True, early=False, inverse=True):
    k = k / k.norm(dim=-1, keepdim=True) if norm else k
    s, out = q.new_zeros(1, 2, 12, 16), []
    for at in range(0, q.shape[2], size):
        a, b, c, w = (x[:, :, at : at + size] for x in (q, k, v, beta[..., None]))
        low = ((w if erase else 1.0) * (b @ b.mT)).tril(-1)
        eye = torch.eye(size)
        new = w * c - (w if erase else 1.0) * (b @ s)
        new = (
            torch.linalg.solve_triangular(eye + low, new, upper=False, unitriangular=True)
            if inverse
            else new - low @ new
        )
        out.append(a @ s + (a @ b.mT).tril(-1 if early else 0) @ new)
        s = s + b.mT @ new
    return torch.cat(out, 2)


honest(normed_delta_rule, "chunks of 10, a triangular solve each", delta_chunks)
honest(normed_delta_rule, "chunks of 8", lambda *a: delta_chunks(*a, size=8))
honest(normed_delta_rule, "float64 inside", wide(normed_delta_rule, torch.float64))
wrongs(
    normed_delta_rule,
    delta_chunks,
    {
        "keys are not normalised to length 1": {"norm": False},
        "the erased part is not multiplied by beta": {"erase": False},
        "the output reads the state before this token's update inside a chunk": {"early": True},
        "the triangular inverse is cut after its first power": {"inverse": False},
    },
)


@fifth(
    lambda d: (
        d(1, 2, 45, 8, dtype=hf),
        d(1, 2, 45, 8, dtype=hf),
        d(1, 2, 45, 8, dtype=hf),
        d(1, 2, 45, 8, shift=1.0, dtype=hf),
    )
)
def keywise_gated_attention(q, k, v, gate):
    g = F.logsigmoid(gate.float()).exp()
    s, out = torch.zeros(1, 2, 8, 8), []
    for t in range(q.shape[2]):
        s = s * g[:, :, t, :, None] + k[:, :, t, :, None].float() * v[:, :, t, None].float()
        out.append((q[:, :, t, :, None].float() * s).sum(2) * 8**-0.5)
    return torch.stack(out, 2).to(q.dtype)


def gated_chunks(q, k, v, gate, values=False, after=False, scale=8**-0.5, divide=False, low=None):
    lg = F.logsigmoid(gate)
    if divide:  # one chunk over the whole sequence: q times the decay, k divided by it
        total = lg.cumsum(2)
        return (((q * total.exp()) @ (k / total.to(hf).exp().float()).mT).tril() @ v) * scale
    s, out = torch.zeros(1, 2, 8, 8), []
    for t in range(q.shape[2]):
        g = lg[:, :, t].exp()
        g = g[:, :, None] if values else g[..., None]
        kv = k[:, :, t, :, None] * v[:, :, t, None]
        s = cut((s + kv) * g if after else s * g + kv, low)
        out.append((q[:, :, t, None] @ s)[:, :, 0] * scale)
    return torch.stack(out, 2)


def gated_pairwise(q, k, v, gate):
    total = F.logsigmoid(gate).cumsum(2)
    keep = torch.ones(45, 45, dtype=torch.bool).tril()[None, None, :, :, None]
    w = (total[:, :, :, None] - total[:, :, None]).masked_fill(~keep, -INF).exp()
    return torch.einsum("bhid,bhjd,bhijd,bhje->bhie", q, k, w, v) / 8**0.5


rights(keywise_gated_attention, gated_chunks, {"token by token": {}})
rights(keywise_gated_attention, gated_pairwise, {"all pairs with their decays": {}})
wrongs(
    keywise_gated_attention,
    gated_chunks,
    {
        "the gate is applied along the values, not along the keys": {"values": True},
        "the gate also decays the token just written": {"after": True},
        "the scale 1/sqrt(d) is left out": {"scale": 1.0},
        "k is divided by a decay kept in fp16, which underflows over the sequence": {"divide": True},
        "the state is kept in bf16": {"low": bf},
    },
)


@fifth(lambda d: (d(1, 60, 3, 10), d(1, 60, 3, 10), d(1, 60, 3, 14)))
def elu_linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    w = torch.einsum("bihd,bjhd->bhij", q, k).tril()
    return torch.einsum("bhij,bjhe->bihe", w / w.sum(-1, keepdim=True), v)


def elu_recurrent(q, k, v, shift=1.0, early=False, short=False, total=False):
    q, k = F.elu(q) + shift, F.elu(k) + shift
    s, z, out = torch.zeros(1, 3, 10, 14), torch.zeros(1, 3, 10), []
    whole = k.sum(1)
    for t in range(q.shape[1]):
        prior = z
        s, z = s + k[:, t, :, :, None] * v[:, t, :, None], z + k[:, t]
        n = (q[:, t] * (prior if early else whole if total else z)).sum(-1, keepdim=True)
        out.append((q[:, t, :, None] @ s)[:, :, 0] / (n.clamp(min=1e-6) if not short else t + 1))
    return torch.stack(out, 1)


honest(elu_linear_attention, "a running state", elu_recurrent)
honest(
    elu_linear_attention,
    "cumulative sums of outer products",
    lambda q, k, v: (
        lambda a, b: (
            torch.einsum("bihd,bihde->bihe", a, torch.einsum("bihd,bihe->bihde", b, v).cumsum(1))
            / (a * b.cumsum(1)).sum(-1, keepdim=True)
        )
    )(F.elu(q) + 1, F.elu(k) + 1),
)
wrongs(
    elu_linear_attention,
    elu_recurrent,
    {
        "the normaliser leaves out the current key": {"early": True},
        "the normaliser is the number of tokens, not the sum of weights": {"short": True},
        "the normaliser sums all keys, future ones too": {"total": True},
    },
)


@fifth(lambda d: (d(2, 35, 20, scale=2.0), d(2, 35, 20), d.rand(20) * 0.8 + 0.05, d(20)))
def rwkv_wkv(k, v, decay, bonus):
    n = k.shape[1]
    gap = torch.arange(n)[:, None] - torch.arange(n)[None]
    s = k[:, None] - ((gap - 1).to(k.dtype)[..., None] * decay)
    s = torch.where((gap == 0)[..., None], k[:, None] + bonus, s)
    return (s.masked_fill((gap < 0)[..., None], -INF).softmax(2) * v[:, None]).sum(2)


def wkv_running(k, v, decay, bonus, always=False, late=0, zero=False, use=True):
    a, b = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0])
    m = torch.zeros_like(a) if zero else torch.full_like(a, -INF)
    if zero:
        b = b + 1
    out = []
    for t in range(k.shape[1]):
        now = k[:, t] + (bonus if use else 0.0)
        top = torch.maximum(m, now)
        x, y = (m - top).exp(), (now - top).exp()
        out.append((x * a + y * v[:, t]) / (x * b + y))
        kt = now if always else k[:, t]
        past = m - decay
        kt = kt - late * decay
        top = torch.maximum(past, kt)
        x, y = (past - top).exp(), (kt - top).exp()
        a, b, m = x * a + y * v[:, t], x * b + y, top
    return torch.stack(out, 1)


honest(rwkv_wkv, "a running maximum", wkv_running)
honest(rwkv_wkv, "float64 inside", wide(rwkv_wkv, torch.float64))
wrongs(
    rwkv_wkv,
    wkv_running,
    {
        "the bonus is kept in the state, not only used for the current token": {"always": True},
        "a token is decayed already when it is written": {"late": 1},
        "the running maximum starts at 0 with a weight of 1": {"zero": True},
        "the bonus of the current token is left out": {"use": False},
    },
)


# ------------------------------------------------------------------ causal convolution


@fifth(lambda d: (d(2, 24, 35, dtype=bf), d(24, 4, dtype=bf, scale=0.5), d(24, dtype=bf), d(2, 24, 3, dtype=bf)))
def causal_conv_step(x, w, bias, state):
    full = torch.cat((state, x), -1)
    y = F.conv1d(full, w[:, None], bias, groups=w.shape[0])
    return F.silu(y), full[..., -3:]


def causal_taps(x, w, bias, state, flip=False, off=0, turned=False, late=False, act=F.silu, stale=False):
    n = x.shape[-1]
    full = torch.cat((state.flip(-1) if turned else state, x, x.new_zeros(*x.shape[:2], 1)), -1)
    y = torch.zeros_like(x) if late else bias[:, None].expand_as(x)
    for tap in range(4):
        y = y + w[:, 3 - tap if flip else tap, None] * full[..., tap + off : tap + off + n]
    y = act(y) + bias[:, None] if late else act(y)
    return y, full[..., -5:-2] if stale else full[..., -4:-1]


rights(causal_conv_step, causal_taps, {"tap by tap": {}})
honest(causal_conv_step, "float64 inside", wide(causal_conv_step, torch.float64))
wrongs(
    causal_conv_step,
    causal_taps,
    {
        "the taps are in reversed order": {"flip": True},
        "the window is one step late and reads the future": {"off": 1},
        "the carried state is read newest first": {"turned": True},
        "the bias is added after silu": {"late": True},
        "relu instead of silu": {"act": F.relu},
        "the state written back leaves out the newest input": {"stale": True},
    },
)


# ------------------------------------------------------------------ rotary positions


@fifth(lambda d: (d(2, 3, 26, 40, dtype=hf), torch.arange(900, 926)))
def rotary_partial_pairs(x, pos):
    angle = pos[:, None] * 10000.0 ** (-torch.arange(0, 16, 2).float() / 16)
    a, b = x[..., 0:16:2].float(), x[..., 1:16:2].float()
    c, s = angle.cos(), angle.sin()
    turned = torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)
    return torch.cat((turned.to(x.dtype), x[..., 16:]), -1)


def partial_pairs(x, pos, halves=False, spread=16, last=False, zero=False, low=None, sign=1.0, late=0):
    z = cut((pos[:, None] + late) * (10000.0 ** (-torch.arange(0, 16, 2) / spread)), low)
    part = x[..., -16:] if last else x[..., :16]
    a, b = part.chunk(2, -1) if halves else (part[..., 0::2], part[..., 1::2])
    a, b = a * z.cos() - sign * b * z.sin(), sign * a * z.sin() + b * z.cos()
    part = torch.cat((a, b), -1) if halves else torch.stack((a, b), -1).flatten(-2)
    return torch.cat((x[..., :-16], part), -1) if last else torch.cat((part, x[..., 16:] * (not zero)), -1)


def partial_complex(x, pos):
    z = torch.view_as_complex(x[..., :16].unflatten(-1, (8, 2)).contiguous().double())
    z = z * torch.polar(torch.ones(()).double(), pos[:, None] * 10000.0 ** (-torch.arange(8).double() / 8))
    return torch.cat((torch.view_as_real(z).flatten(-2).to(x.dtype), x[..., 16:]), -1)


rights(rotary_partial_pairs, partial_pairs, {"pairs in float32": {}})
honest(rotary_partial_pairs, "complex multiplication in double precision", partial_complex)
wrongs(
    rotary_partial_pairs,
    partial_pairs,
    {
        "halves are rotated where the layout has interleaved pairs": {"halves": True},
        "frequencies are spread over the whole head (40), not the rotated 16": {"spread": 40},
        "the last 16 channels are rotated, not the first": {"last": True},
        "channels that are not rotated are stored as zeros": {"zero": True},
        "the angle is rounded to bf16": {"low": bf},
        "positions start at 1 instead of 0": {"late": 1},
        "the rotation turns the other way": {"sign": -1.0},
    },
)


@fifth(lambda d: (d(1, 2, 30, 64), torch.arange(30) * 37))
def yarn_rotated(x, pos):
    dim, base, factor, trained, fast, slow = 64, 10000.0, 4.0, 512, 32, 1
    i = torch.arange(0, dim, 2, dtype=x.dtype) / dim
    low, high = (dim * math.log(trained / (r * 2 * math.pi)) / (2 * math.log(base)) for r in (fast, slow))
    low, high = math.floor(low), math.ceil(high)
    ramp = ((torch.arange(dim // 2, dtype=x.dtype) - low) / (high - low)).clamp(0, 1)
    inv = base**-i / factor * ramp + base**-i * (1 - ramp)
    angle = torch.cat((pos[:, None] * inv,) * 2, -1)
    m = 0.1 * math.log(factor) + 1.0
    a, b = x.chunk(2, -1)
    return x * (angle.cos() * m) + torch.cat((-b, a), -1) * (angle.sin() * m)


def yarn(x, pos, factor=4.0, scaled=True, fast=32, slow=1, flip=False, ramped=True, pi=2 * math.pi, low=None):
    inv = 10000.0 ** (-torch.arange(32, dtype=x.dtype) / 32)
    lo, hi = (math.log(512 / (r * pi)) * 32 / math.log(10000.0) for r in (fast, slow))
    lo, hi = math.floor(lo), math.ceil(hi)
    keep = 1 - ((torch.arange(32) - lo) / (hi - lo)).clamp(0, 1)
    keep = 1 - keep if flip else keep
    inv = inv * (keep + (1 - keep) / factor) if ramped else inv / factor
    angle = cut(torch.outer(pos.to(x.dtype), inv), low)
    z = torch.complex(*x.chunk(2, -1)) * torch.polar(
        torch.full_like(angle, 0.1 * math.log(factor) + 1 if scaled else 1.0), angle
    )
    return torch.cat((z.real, z.imag), -1)


honest(yarn_rotated, "complex multiplication by one factor", yarn)
honest(yarn_rotated, "float64 inside", wide(yarn, torch.float64))
wrongs(
    yarn_rotated,
    yarn,
    {
        "the attention factor (0.1 ln s + 1) is left out": {"scaled": False},
        "the ramp is the wrong way round: fast channels are interpolated": {"flip": True},
        "every channel is interpolated, without a ramp": {"ramped": False},
        "the number of rotations lacks its 2 pi": {"pi": 1.0},
        "the angle is rounded to fp16": {"low": hf},
    },
)
