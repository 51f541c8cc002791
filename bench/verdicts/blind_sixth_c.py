# SPDX-License-Identifier: Apache-2.0
"""Set G: recurrences and scans (state spaces, delta rules, gated cells, running extremes), rotary embeddings
and short convolutions over packed sequences."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_sixth_common import faults, sixth, sound, stored, through
from .blind_sixth_a import turn_pairs

# ------------------------------------------------------------------ state spaces and delta rules


@sixth(
    lambda d: (
        d(2, 50, 6, 8, dtype=bf),
        d(2, 50, 6, dtype=bf),
        d(6, scale=0.5),
        d(6, scale=0.5),
        d(2, 50, 2, 12, dtype=bf),
        d(2, 50, 2, 12, dtype=bf),
        d(6),
    )
)
def ssd_grouped_skip(x, dt, a_log, dt_bias, b, c, skip):
    dt = F.softplus(dt.to(a_log.dtype) + dt_bias)
    keep = (-dt * a_log.exp()).exp()
    b, c = (z.to(a_log.dtype).repeat_interleave(3, 2) for z in (b, c))
    state, out = a_log.new_zeros(2, 6, 8, 12), []
    for t in range(50):
        state = state * keep[:, t, :, None, None] + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        out.append((state * c[:, t, :, None]).sum(-1) + skip[:, None] * x[:, t])
    return torch.stack(out, 1).to(x.dtype)


def ssd_by_chunks(
    x,
    dt,
    a_log,
    dt_bias,
    b,
    c,
    skip,
    chunk=16,
    mixed=False,
    undecayed=False,
    linear=20.0,
    state=None,
    no_skip=0,
    strict=0,
    late=False,
):
    dt = torch.where(dt + dt_bias > linear, dt + dt_bias, (dt + dt_bias).exp().log1p())
    pick = torch.arange(6) % 2 if mixed else torch.arange(6) // 3
    b, c = b[:, :, pick], c[:, :, pick]
    log = -dt * a_log.exp()
    s, out = x.new_zeros(2, 6, 8, 12), torch.zeros_like(x)
    for at in range(0, 50, chunk):
        xs, ds, bs, cs, ls = (z[:, at : at + chunk] for z in (x, dt, b, c, log))
        run = ls.cumsum(1)
        n = ls.shape[1]
        i = torch.arange(n)
        fade = (
            (run[:, :, None] - run[:, None])
            .masked_fill((i[:, None] < i[None] + strict)[None, :, :, None], -math.inf)
            .exp()
        )
        inner = torch.einsum("bihn,bjhn,bijh,bjh,bjhp->bihp", cs, bs, fade, ds, xs)
        outer = torch.einsum("bihn,bhpn,bih->bihp", cs, s, (run - ls if late else run).exp())
        out[:, at : at + chunk] = inner + outer + skip[:, None] * xs * (at >= no_skip)
        new = torch.einsum("bjhn,bjh,bjhp->bhpn", bs, ds * (run[:, -1:] - run).exp(), xs)
        s = stored((s if undecayed else s * run[:, -1].exp()[..., None, None]) + new, state)
    return out


sound(ssd_grouped_skip, "chunks of 16", ssd_by_chunks, into=bf)
sound(ssd_grouped_skip, "chunks of 50", ssd_by_chunks, into=bf, chunk=50)
faults(
    ssd_grouped_skip,
    ssd_by_chunks,
    into=bf,
    mixed=("head h takes group h % 2, not h // 3", True),
    undecayed=("the state that enters a chunk is not decayed over it", True),
    linear=("softplus goes over to the identity at 0.5, not at 20", 0.5),
    state=("the state is stored as e4m3 between chunks", torch.float8_e4m3fn),
    no_skip=("the first chunk lacks the skip", 16),
    strict=("within a chunk a step does not see its own input", 1),
    late=("the entering state's decay leaves out the step's own", True),
)


@sixth(
    lambda d: (
        d(2, 2, 40, 16, scale=0.1),
        d(2, 2, 40, 16, scale=0.1),
        d(2, 2, 40, 16),
        -d.rand(2, 2, 40),
        d.rand(2, 2, 40),
        d(2, 2, 16, 16),
    )
)
def gated_delta_state(q, k, v, g, beta, state):
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * 0.25
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    out = []
    for t in range(40):
        state = state * g[..., t].exp()[..., None, None]
        gap = (v[..., t, :] - torch.einsum("bhk,bhkv->bhv", k[..., t, :], state)) * beta[..., t, None]
        state = state + k[..., t, :, None] * gap[..., None, :]
        out.append(torch.einsum("bhk,bhkv->bhv", q[..., t, :], state))
    return torch.stack(out, 2), state


def gated_delta_solved(
    q,
    k,
    v,
    g,
    beta,
    state,
    eps=1e-6,
    chunk=40,
    plain=False,
    squared=False,
    turned=False,
    scale=0.25,
    low=None,
    diagonal=-1,
):
    q = q / (q.square().sum(-1, keepdim=True) + eps).sqrt() * scale
    k = k / (k.square().sum(-1, keepdim=True) + eps).sqrt()
    s, out = state.mT if turned else state, []
    for at in range(0, 40, chunk):
        qs, ks, vs, bs, gs = (z[:, :, at : at + chunk] for z in (q, k, v, beta, g))
        run = gs.cumsum(-1)
        fade = (run[..., :, None] - run[..., None, :]).tril().exp()
        w = (ks @ ks.mT) * fade
        mat = torch.eye(w.shape[-1]) + (w * bs[..., None]).tril(diagonal)
        aim = vs - run.exp()[..., None] * (ks @ s) * (0.0 if plain else 1.0)
        u = torch.linalg.solve_triangular(mat, bs[..., None] * aim, upper=False)
        u = u * bs[..., None] if squared else u
        out.append(run.exp()[..., None] * (qs @ s) + ((qs @ ks.mT) * fade).tril() @ u)
        s = stored(s * run[..., -1, None, None].exp() + (ks * (run[..., -1:] - run).exp()[..., None]).mT @ u, low)
    return torch.cat(out, 2), s


honest(gated_delta_state, "one triangular system", gated_delta_solved)
honest(gated_delta_state, "a triangular system for every 8 steps", lambda *a: gated_delta_solved(*a, chunk=8))
for words, keys in {
    "eps of the norms is 1e-5": {"eps": 1e-5},
    "what the entering state predicts is not subtracted": {"plain": True},
    "beta is applied twice": {"squared": True},
    "the queries are not scaled": {"scale": 1.0},
    "the entering state is read transposed": {"turned": True},
    "the state is stored in bf16 after every 8 steps": {"chunk": 8, "low": bf},
    "the system's diagonal holds a step's own key too": {"diagonal": 0},
}.items():
    mistake(gated_delta_state, words, lambda *a, keys=keys: gated_delta_solved(*a, **keys))


@sixth(
    lambda d: (
        d(3, 2, 44, 12, dtype=hf),
        d(3, 2, 44, 12, dtype=hf),
        d(3, 2, 44, 12, dtype=hf),
        d(3, 2, 44, scale=3.0),
        d(3, 2, 44, scale=2.0, shift=2.0),
    )
)
def stabilised_matrix_memory(q, k, v, i, f):
    log = F.logsigmoid(f)
    run = log.cumsum(-1)
    d = (run[..., :, None] - run[..., None, :] + i[..., None, :]).masked_fill(
        ~torch.ones(44, 44, dtype=torch.bool).tril(), -math.inf
    )
    m = d.amax(-1, keepdim=True)
    w = (d - m).exp() * (q.to(i.dtype) @ k.to(i.dtype).mT * 12**-0.5)
    return (w @ v.to(i.dtype) / torch.maximum(w.sum(-1, keepdim=True).abs(), (-m).exp())).to(q.dtype)


def memory_step_by_step(q, k, v, i, f, floor=None, frozen=False, sig=True, signed=False, shift=0):
    c, n, m = q.new_zeros(3, 2, 12, 12), q.new_zeros(3, 2, 12), q.new_full((3, 2), -math.inf)
    k = k * 12**-0.5
    out = []
    for t in range(44):
        log = -F.softplus(-f[..., max(t - shift, 0)]) if sig else f[..., t].clamp(max=0)
        new = torch.maximum(m + log, i[..., t])
        keep, add = (log if frozen else m + log - new).exp(), (i[..., t] - new).exp()
        c = c * keep[..., None, None] + add[..., None, None] * v[..., t, :, None] * k[..., t, None, :]
        n = n * keep[..., None] + add[..., None] * k[..., t, :]
        m = new
        z = (n * q[..., t, :]).sum(-1)
        z = torch.maximum(z if signed else z.abs(), (-m).exp() if floor is None else torch.tensor(floor))
        out.append((c * q[..., t, None, :]).sum(-1) / z[..., None])
    return torch.stack(out, 2)


sound(stabilised_matrix_memory, "step by step", memory_step_by_step)
honest(stabilised_matrix_memory, "float64 inside", through(stabilised_matrix_memory, torch.float64, hf))
faults(
    stabilised_matrix_memory,
    memory_step_by_step,
    floor=("the denominator's floor is 1, though the sums are scaled by exp(-m)", 1.0),
    frozen=("the memory is not rescaled when the maximum grows", True),
    sig=("the forget gate's logarithm is min(f, 0)", False),
    signed=("the denominator's absolute value is missing", True),
    shift=("the forget gate is read one step late", 1),
)


@sixth(lambda d: (d.rand(3, 500, 20), d(3, 500, 20), d(3, 20)))
def linear_recurrence_gates(a, b, h):
    out = []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        out.append(h)
    return torch.stack(out, 1)


def recurrence_doubled(a, b, h, rounds=9, low=None, start=True, wrong=False):
    a, b = a.clone(), b.clone()
    if start:
        b[:, 0] += a[:, 0] * h
    for r in range(rounds):
        n = 2**r
        b[:, n:] = stored(b[:, n:] + a[:, n:] * b[:, :-n], low)
        a[:, n:] = a[:, n:] * (a[:, n - 1 : -1] if wrong else a[:, :-n])
    return b


def recurrence_by_tiles(a, b, h, tile=64, carry=0, tail=True):
    out = torch.zeros_like(b)
    for at in range(0, 500 if tail else 448, tile):
        x = recurrence_doubled(a[:, at : at + tile], b[:, at : at + tile], h, 6)
        out[:, at : at + tile] = x
        h = x[:, -1 - carry]
    return out


honest(linear_recurrence_gates, "doubling", recurrence_doubled)
honest(linear_recurrence_gates, "doubling in tiles of 64 with a carry", recurrence_by_tiles)
for words, kernel, keys in (
    ("the doubling stops at 4 steps", recurrence_doubled, {"rounds": 2}),
    ("the scan's values are stored in bf16 every round", recurrence_doubled, {"low": bf}),
    ("the initial state is not used", recurrence_doubled, {"start": False}),
    ("the products of gates are taken with the neighbour, not with the partner", recurrence_doubled, {"wrong": True}),
    ("a tile starts from the last but one state of the tile before", recurrence_by_tiles, {"carry": 1}),
    ("the last 52 steps, less than a tile, stay zero", recurrence_by_tiles, {"tail": False}),
):
    mistake(linear_recurrence_gates, words, lambda *a, kernel=kernel, keys=keys: kernel(*a, **keys))


@sixth(lambda d: (torch.where(d.rand(6, 300) < 0.004, torch.nan, -d.rand(6, 300).mul(40).round() - 1),))
def running_maximum_negative(x):
    return torch.cummax(x, 1)


def maximum_by_doubling(x, first=-math.inf, deaf=False, earliest=False, rounds=9, reset=300):
    best, at = x.clone(), torch.arange(300).expand(6, -1).clone()
    best = best.clamp(min=first) if first > -math.inf else best
    if deaf:
        best = best.nan_to_num(-math.inf)
    for r in range(rounds):
        n = 2**r
        left, mine = best[:, :-n], best[:, n:]
        held = torch.arange(300)[n:] % reset < n
        take = (left > mine) | (left.isnan() & ~mine.isnan()) | ((left == mine) & earliest)
        take = take & ~(held & (reset < 300))
        best = torch.cat((best[:, :n], torch.where(take, left, mine)), 1)
        at = torch.cat((at[:, :n], torch.where(take, at[:, :-n], at[:, n:])), 1)
    return best, at


honest(running_maximum_negative, "doubling with the places carried along", maximum_by_doubling)
for words, keys in {
    "the running maximum starts at 0, though all numbers are negative": {"first": 0.0},
    "NaN is passed over": {"deaf": True},
    "of equal maxima the first place is kept, not the last": {"earliest": True},
    "the doubling stops short": {"rounds": 5},
    "a tile of 100 does not get the maximum of the tiles before": {"reset": 100},
}.items():
    mistake(running_maximum_negative, words, lambda x, keys=keys: maximum_by_doubling(x, **keys))


# ------------------------------------------------------------------ cells


@sixth(lambda d: (d(30, 24), d(30, 20), d(30, 20), d(80, 24, scale=0.3), d(80, 20, scale=0.3), d(80), d(3, 20)))
def peephole_layer_norm_cell(x, h, c, w, u, b, peep):
    g = F.layer_norm(x @ w.mT, (80,)) + F.layer_norm(h @ u.mT, (80,)) + b
    i, f, o, z = g.chunk(4, 1)
    new = (f + peep[1] * c).sigmoid() * c + (i + peep[0] * c).sigmoid() * z.tanh()
    return (o + peep[2] * new).sigmoid() * new.tanh(), new


def peephole_cell_fused(x, h, c, w, u, b, peep, old=False, swap=False, whole=False, late=False, unbiased=0, forget=0.0):
    p, q = (torch.cat((x, h), 1)[:, s] @ m.mT for s, m in ((slice(0, 24), w), (slice(24, 44), u)))

    def norm(y):
        m = y.mean(1, keepdim=True)
        return (y - m) / ((y - m).square().sum(1, keepdim=True) / (80 - unbiased) + 1e-5).sqrt()

    g = norm(p + q) + b if whole else norm(p) + norm(q) + b
    i, f, z, o = (g[:, n : n + 20] for n in ((0, 20, 40, 60) if swap else (0, 20, 60, 40)))
    i, f = 1 / (1 + (-i - peep[0] * c).exp()), 1 / (1 + (-f - forget - peep[1] * c).exp())
    new = c - (1 - f) * c + i * torch.tanh(z)
    return 1 / (1 + (-o - peep[2] * (c if old else new)).exp()) * (c if late else new).tanh(), new


honest(peephole_layer_norm_cell, "gates written out", peephole_cell_fused)
honest(peephole_layer_norm_cell, "float64 inside", through(peephole_layer_norm_cell, torch.float64))
for words, keys in {
    "the output gate looks at the old cell": {"old": True},
    "the gates' order is i f z o, not i f o z": {"swap": True},
    "one norm over the sum of both products": {"whole": True},
    "the output is taken from the old cell": {"late": True},
    "the norms' variance is divided by n - 1": {"unbiased": 1},
    "the forget gate has an extra bias of 1": {"forget": 1.0},
}.items():
    mistake(peephole_layer_norm_cell, words, lambda *a, keys=keys: peephole_cell_fused(*a, **keys))


# ------------------------------------------------------------------ rotary


def heads_of(d):
    return (
        d(60, 5, 64, dtype=bf, scale=3.0),
        d(60, 5, 64, dtype=bf),
        d(64, dtype=bf, shift=1.0, scale=0.2),
        d(64, dtype=bf, shift=1.0, scale=0.2),
        torch.arange(60) + 37,
    )


@sixth(heads_of)
def normed_partial_rotary(q, k, wq, wk, at):
    """RMS norm of every head, then rotary of its first 32 channels by pairs of neighbours."""
    out = []
    for x, w in ((q, wq), (k, wk)):
        x = F.rms_norm(x, (64,), w, 1e-6).transpose(0, 1)
        out.append(torch.cat((turn_pairs(x[..., :32], at), x[..., 32:]), -1).transpose(0, 1))
    return tuple(out)


def normed_rotary_complex(q, k, wq, wk, at, halves=False, late=False, eps=1e-6, start=0, part=32, tight=64):
    def one(x, w):
        r = torch.rsqrt(x[..., :tight].square().sum(-1, keepdim=True) / tight + eps)
        x = x * r * (1.0 if late else w)
        angle = (at + start).double()[:, None] * 1e4 ** (-torch.arange(0, part, 2).double() / part)
        turn = torch.polar(torch.ones_like(angle), angle).to(torch.complex64)[:, None]
        y = x[..., :part]
        if halves:
            z = torch.complex(y[..., : part // 2].contiguous(), y[..., part // 2 :].contiguous()) * turn
            y = torch.cat((z.real, z.imag), -1)
        else:
            y = torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)
        x = torch.cat((y, x[..., part:]), -1)
        return x * w if late else x

    return one(q, wq), one(k, wk)


sound(normed_partial_rotary, "complex products", normed_rotary_complex)
honest(normed_partial_rotary, "float64 inside", through(normed_partial_rotary, torch.float64))
faults(
    normed_partial_rotary,
    normed_rotary_complex,
    halves=("halves are turned against each other", True),
    late=("the norm's weight is applied after the rotation", True),
    start=("places count from the chunk's start", -37),
    part=("all 64 channels are turned", 64),
    tight=("the norm's mean square is taken over the rotary channels only", 32),
)


@sixth(lambda d: (d(2, 90, 48, dtype=hf), torch.stack((torch.arange(90) // 4, torch.arange(90) % 9, d.ints(90, 90)))))
def rotary_three_axes_interleaved(x, at):
    """Pair i turns by axis i % 3 of the position for i < 18, the rest by axis 0; halves."""
    axis = torch.where(torch.arange(24) < 18, torch.arange(24) % 3, 0)
    angle = at[axis].double().mT * 5e5 ** (-torch.arange(24).double() / 24)
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :24], x[..., 24:]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def rotary_axes_by_sections(x, at, chunked=False, first=18, base=5e5, back=1.0, order=(0, 1, 2)):
    out = x.clone()
    for i in range(24):
        axis = i // 6 % 3 if chunked else order[i % 3]
        axis = axis if i < first else 0
        angle = at[axis].double() * base ** (-i / 24)
        c, s = angle.cos().float(), angle.sin().float() * back
        out[..., i] = x[..., i] * c - x[..., i + 24] * s
        out[..., i + 24] = x[..., i + 24] * c + x[..., i] * s
    return out


sound(rotary_three_axes_interleaved, "pair by pair", rotary_axes_by_sections)
honest(rotary_three_axes_interleaved, "float64 inside", through(rotary_three_axes_interleaved, torch.float64))
faults(
    rotary_three_axes_interleaved,
    rotary_axes_by_sections,
    chunked=("the axes own runs of six pairs instead of alternating", True),
    first=("all 24 pairs alternate, none is left to the first axis", 24),
    base=("the base is 10000, not 500000", 1e4),
    back=("the rotation runs backwards", -1.0),
    order=("the second and third axis are exchanged", (0, 2, 1)),
)


@sixth(lambda d: (d(3, 40, 64), torch.arange(40) + 300))
def rotary_long_factors(x, at):
    """Frequencies divided by per-pair factors of the long context, times the attention factor; halves."""
    factor = 1 + torch.arange(32).double() ** 1.5 / 8
    angle = at.double()[:, None] * 1e4 ** (-torch.arange(32).double() / 32) / factor
    scale = math.sqrt(1 + math.log(32) / math.log(4096))
    c, s = (angle.cos() * scale).to(x.dtype), (angle.sin() * scale).to(x.dtype)
    a, b = x[..., :32], x[..., 32:]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def rotary_by_shears(x, at, short=False, scaled=True, places=None, ntk=False, log2=False):
    factor = torch.ones(32).double() if short else 1 + torch.arange(32).double() ** 1.5 / 8
    if ntk:
        factor = 32.0 ** (torch.arange(32).double() / 31)
    angle = stored(at.float(), places).double()[:, None] * 1e4 ** (-torch.arange(32).double() / 32) / factor
    m = math.log(32) / (12 * math.log(2) if not log2 else 12)
    scale = math.sqrt(1 + m) if scaled else 1.0
    turn = torch.polar(torch.full_like(angle, scale), angle).to(torch.complex64)
    z = torch.complex(x[..., :32].contiguous(), x[..., 32:].contiguous()) * turn
    return torch.cat((z.real, z.imag), -1)


honest(rotary_long_factors, "complex products", rotary_by_shears)
honest(rotary_long_factors, "float64 inside", through(rotary_long_factors, torch.float64))
for words, keys in {
    "the short context's factors (all 1) are used": {"short": True},
    "the attention factor is left out": {"scaled": False},
    "places are held in bf16": {"places": bf},
    "the factors follow one base change (NTK)": {"ntk": True},
    "the attention factor's logarithm of 4096 is taken in base 2": {"log2": True},
}.items():
    mistake(rotary_long_factors, words, lambda *a, keys=keys: rotary_by_shears(*a, **keys))


# ------------------------------------------------------------------ convolutions along sequences


@sixth(lambda d: (d(24, 97, dtype=bf), d(24, 4, dtype=bf), d(24, dtype=bf), torch.tensor([0, 30, 32, 33, 97])))
def causal_conv_packed(x, w, b, ends):
    parts = [
        F.conv1d(F.pad(x[:, s:e], (3, 0))[None], w[:, None], b, groups=24)[0]
        for s, e in torch.stack((ends[:-1], ends[1:]), 1).tolist()
    ]
    return F.silu(torch.cat(parts, 1))


def causal_conv_by_taps(x, w, b, ends, leak=False, turned=False, act=True, bias=True, fix=0):
    at = torch.arange(97)
    start = ends[torch.bucketize(at, ends[1:], right=True)]
    out = b[:, None].expand(-1, 97).clone() if bias else torch.zeros(24, 97)
    for tap in range(4):
        src = at - 3 + tap
        inside = (src >= (0 if leak else start - fix)) & (src >= 0)
        out += w[:, 3 - tap if turned else tap, None] * x[:, src.clamp(min=0)] * inside
    return out / (1 + (-out).exp()) if act else out


sound(causal_conv_packed, "tap by tap", causal_conv_by_taps)
honest(causal_conv_packed, "float64 inside", through(causal_conv_packed, torch.float64))
faults(
    causal_conv_packed,
    causal_conv_by_taps,
    leak=("the window reaches into the sequence before", True),
    turned=("the taps are in the opposite order", True),
    act=("no SiLU after the convolution", False),
    fix=("the first step of a sequence sees one step of the sequence before", 1),
    bias=("the bias is left out", False),
)
