# SPDX-License-Identifier: Apache-2.0
"""Set I, written blind (see blind_seventh_a): optimizers, recurrences and scans, segments, sampling."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_seventh_a import NEG, doubled, right, seventh, via, wrong
from .blind_seventh_b import folded, ladder

f32 = torch.float32


# ------------------------------------------------------------------ optimizers


@seventh(lambda d: (d(24, 40), d(24, 40)))
def muon_nesterov_update(g, m):
    """Nesterov momentum 0.95 and five Newton-Schulz steps, for a wide matrix."""
    m = 0.95 * m + 0.05 * g
    u = 0.05 * g + 0.95 * m
    x = u / (u.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x * math.sqrt(max(1.0, 24 / 40)), m


def muon_kernel(g, m, steps=5, nesterov=True, tall=False, b=-4.7750, c=2.0315, norm="fro", scale=1.0, kind=None):
    m = torch.lerp(m, g, 0.05)
    u = torch.lerp(m, g, 0.05) if nesterov else m
    x = u / (u.square().sum().sqrt() + 1e-7) if norm == "fro" else u / g.norm()
    for _ in range(steps):
        if tall:  # the other side's products: the same polynomial of x
            a = x.mT @ x
            x = 3.4445 * x + x @ (b * a + c * a @ a)
        else:
            a = via(x @ x.mT, kind)
            x = 3.4445 * x + b * (a @ x) + c * (a @ (a @ x))
    return x * scale, m


right(muon_nesterov_update, "the polynomial's terms multiplied out one by one", muon_kernel)
right(muon_nesterov_update, "products over the other side", muon_kernel, tall=True)
wrong(
    muon_nesterov_update,
    muon_kernel,
    {
        "four steps": dict(steps=4),
        "no Nesterov step: the momentum itself is orthogonalized": dict(nesterov=False),
        "the update is divided by the gradient's norm, not by its own": dict(norm="gradient"),
        "the third coefficient is 2.0135, not 2.0315": dict(c=2.0135),
        "the products x x^T are kept in bf16": dict(kind=bf),
    },
)


@seventh(lambda d: (d(600), d(600), d(600, scale=0.1), d.rand(600) * 0.01))
def adamw_step_seven(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.95 * v + 0.05 * g * g
    update = (m / (1 - 0.9**7)) / ((v / (1 - 0.95**7)).sqrt() + 1e-8)
    return p * (1 - 0.01 * 0.1) - 0.01 * update, m, v


def adamw_fused(
    p, g, m, v, step=7, coupled=False, swap=False, decay=0.1, late=False, stale=False, eps=1e-8, bias=True, old=False
):
    g = g + decay * p if coupled else g
    m1 = torch.lerp(m, g, 0.1)
    v1 = torch.addcmul(v * 0.95, g, g, value=0.05)
    size = 0.01 / (1 - 0.9**step)
    root = v1.sqrt() / (math.sqrt(1 - 0.95**step) if bias else 1.0) + eps
    p1 = p if coupled else p - 0.001 * decay * 10 * p
    p1 = p1 - size * (m if old else m1) / root
    return p1, m1, v if stale else v1


right(adamw_step_seven, "fused with the corrections in the step size", adamw_fused)
doubled(adamw_step_seven)
wrong(
    adamw_step_seven,
    adamw_fused,
    {
        "the corrections are those of step 6": dict(step=6),
        "the decay is added to the gradient": dict(coupled=True),
        "the second moment is not corrected": dict(bias=False),
        "the new second moment is not written back": dict(stale=True),
        "the step is made with the old first moment": dict(old=True),
    },
)


@seventh(lambda d: (d(20, 30, dtype=bf), d(20, 30, dtype=bf), d.rand(20).add(2).to(bf), d.rand(30).add(2).to(bf)))
def adafactor_step(p, g, row, col):
    sq = g * g + 1e-30
    row = 0.9 * row + 0.1 * sq.mean(-1)
    col = 0.9 * col + 0.1 * sq.mean(-2)
    u = g * torch.rsqrt(row / row.mean())[:, None] * torch.rsqrt(col)
    u = u / (u.square().mean().sqrt() / 1.0).clamp_min(1.0)
    return p - 0.05 * u, row, col


def adafactor_kernel(p, g, row, col, swap=False, norm=True, limit=1.0, mean=20, beta=0.9, cut=0, total=folded):
    sq = g * g
    row = beta * row + (1 - beta) * total(sq) / 30
    col = beta * col + (1 - beta) * total(sq.mT[:, : 20 - cut]) / 20
    middle = total(row[None])[0] / mean if norm else 1.0
    u = g / ((row / middle)[:, None] * col).sqrt()
    rms = (total(total(u * u)[None])[0] / 600).sqrt()
    u = u / (rms / limit).clamp_min(1.0)
    return p - 0.05 * u, row, col


right(adafactor_step, "one root of the product", adafactor_kernel)
doubled(adafactor_step)
wrong(
    adafactor_step,
    adafactor_kernel,
    {
        "the row factors are not divided by their mean": dict(norm=False),
        "the update is clipped at half the root mean square": dict(limit=0.5),
        "the decay is 0.99": dict(beta=0.99),
        "the column means leave out the last 4 rows": dict(cut=4),
        "the rows' mean divides by 16": dict(mean=16),
    },
)


# ------------------------------------------------------------------ scans


@seventh(lambda d: (d(2, 50, 12), d(2, 50, 12, scale=0.5), d(12, 8).exp().neg(), d(2, 50, 8), d(2, 50, 8), d(12)))
def mamba_selective_scan(u, dt, a, b, c, skip):
    dt = F.softplus(dt)
    h, out = u.new_zeros(2, 12, 8), []
    for t in range(50):
        h = h * torch.exp(dt[:, t, :, None] * a) + dt[:, t, :, None] * b[:, t, None] * u[:, t, :, None]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1) + u * skip


def selective_chunks(
    u, dt, a, b, c, skip, chunk=10, plain=False, reset=None, hold=False, kind=None, d_term=1.0, late=0, read=0
):
    dt = dt.exp() if plain else torch.logaddexp(dt, dt * 0)
    h, out = u.new_zeros(2, 12, 8), []
    b = b.roll(late, 1)
    for start in range(0, 50, chunk):
        s = slice(start, start + chunk)
        step = dt[:, s, :, None] * a
        run = step.cumsum(1)
        gain = dt[:, s, :, None] * b[:, s, None] * u[:, s, :, None]
        if hold:
            gain = gain / dt[:, s, :, None] * (step.exp() - 1) / a
        fade = (
            (run[:, :, None] - run[:, None])
            .masked_fill(~torch.ones(chunk, chunk).tril(-read).bool()[:, :, None, None], NEG)
            .exp()
        )
        states = (fade * gain[:, None]).sum(2) + run.exp() * h[:, None]
        out.append((states * c[:, s, None]).sum(-1))
        h = via(states[:, -1], kind)
        h = h * 0 if start + chunk == reset else h
    return torch.cat(out, 1) + d_term * u * skip


right(mamba_selective_scan, "chunks of 10 by differences of summed logs", selective_chunks)
right(mamba_selective_scan, "one step at a time with the states by chunk of 1", selective_chunks, chunk=1)
wrong(
    mamba_selective_scan,
    selective_chunks,
    {
        "dt goes through exp instead of softplus": dict(plain=True),
        "the state is lost at step 30": dict(reset=30),
        "the state is kept in bf16 between chunks": dict(kind=bf),
        "the skip term is left out": dict(d_term=0.0),
        "each step takes the input matrix of the step before": dict(late=1),
        "the input's weight is the exact hold (exp(dt a) - 1) / a": dict(hold=True),
    },
)


@seventh(
    lambda d: (
        F.normalize(d(2, 40, 16), dim=-1),
        F.normalize(d(2, 40, 16), dim=-1),
        d(2, 40, 20),
        d(2, 40).sigmoid(),
        F.logsigmoid(d(2, 40, shift=2.0)),
    )
)
def gated_delta_rule(q, k, v, beta, decay):
    s, out = q.new_zeros(2, 16, 20), []
    for t in range(40):
        s = s * decay[:, t, None, None].exp()
        error = v[:, t] - torch.einsum("bk,bkv->bv", k[:, t], s)
        s = s + beta[:, t, None, None] * k[:, t, :, None] * error[:, None]
        out.append(torch.einsum("bk,bkv->bv", q[:, t], s))
    return torch.stack(out, 1) * 0.25


def delta_by_solving(
    q,
    k,
    v,
    beta,
    decay,
    chunk=20,
    scale=0.25,
    raw_decay=False,
    linear=False,
    early=False,
    lost=False,
    square=False,
    kind=None,
):
    s, out = q.new_zeros(2, 16, 20), []
    beta = beta * beta if square else beta
    for start in range(0, 40, chunk):
        c = slice(start, start + chunk)
        x, y, z, w, g = q[:, c], k[:, c], v[:, c], beta[:, c, None], decay[:, c].cumsum(1)
        fade = (g[:, :, None] - g[:, None]).tril().exp().tril()
        m = (w * (y @ y.mT) * fade).tril(-1) * (0 if linear else 1)
        start_part = g[..., None].exp() * (y @ s) * (0 if lost else 1)
        e = torch.linalg.solve_triangular(
            torch.eye(chunk).to(q.dtype) + m, w * (z - start_part), upper=False, unitriangular=True
        )
        out.append(((x @ y.mT) * (fade.tril(-1) if early else fade)) @ e + g[..., None].exp() * (x @ s))
        last = g[:, -1:, None]
        s = s * (g[:, -1, None, None] if raw_decay else last).exp() + (y * (last - g[..., None]).exp()).mT @ e
        s = via(s, kind)
    return torch.cat(out, 1) * scale


def delta_steps(q, k, v, beta, decay, ungated=False):
    s, out = q.new_zeros(2, 20, 16), []
    for t in range(40):
        w = decay[:, t].exp()[:, None]
        error = v[:, t] - (s @ k[:, t, :, None])[..., 0] * (1 if ungated else w)
        s = w[..., None] * s + (beta[:, t, None] * error)[..., None] * k[:, t, None]
        out.append((s @ q[:, t, :, None])[..., 0] / 4)
    return torch.stack(out, 1)


right(gated_delta_rule, "chunks of 20 by a triangular system", delta_by_solving)
right(gated_delta_rule, "step by step with the transposed state", delta_steps)
wrong(
    gated_delta_rule,
    delta_by_solving,
    {
        "the error is taken against the state before its decay": lambda *a: delta_steps(*a, ungated=True),
        "within a chunk old values are not taken off (plain linear attention)": dict(linear=True),
        "the state is kept in bf16 between chunks": dict(kind=bf),
        "a chunk's values are not corrected by the state carried into it": dict(lost=True),
        "a query is read before its own token is written": dict(early=True),
        "beta is squared": dict(square=True),
    },
)


@seventh(lambda d: (d(6, 300, scale=3.0),))
def tiled_running_logsumexp(x):
    return torch.logcumsumexp(x, -1)


def running_lse(x, tile=50, carry=True, back=False, strict=False, first=None, base=0.0):
    out, held = [], x.new_full((6, 1), first if first is not None else NEG)
    for part in x.split(tile, -1):
        top = part.cummax(-1).values
        n = part.shape[-1]
        s = (part[:, None] - top[..., None]).masked_fill(torch.ones(n, n).triu(1).bool(), NEG).exp().sum(-1).log() + top
        y = torch.logaddexp(s, held)
        y = torch.cat((held, y[:, :-1]), -1) if strict else y
        out.append(y)
        held = torch.maximum(held, s[:, -1:]) if not carry else torch.logaddexp(s[:, -1:], held)
    return torch.cat(out, -1)


right(tiled_running_logsumexp, "tiles of 50 with a carried log sum", running_lse)
right(tiled_running_logsumexp, "sum of exponentials in double precision", lambda x: x.double().exp().cumsum(-1).log())
wrong(
    tiled_running_logsumexp,
    running_lse,
    {
        "between tiles the larger log sum is carried, not the sum of both": dict(carry=False),
        "the carry starts at 0 instead of minus infinity": dict(first=0.0),
        "the number just before a tile is missing from its carry": lambda x: torch.cat(
            [x[:, :50].logcumsumexp(-1)]
            + [
                torch.logaddexp(x[:, s : s + 50].logcumsumexp(-1), x[:, : s - 1].logsumexp(-1, keepdim=True))
                for s in range(50, 300, 50)
            ],
            -1,
        ),
        "each tile starts afresh": lambda x: x.unflatten(-1, (6, 50)).logcumsumexp(-1).flatten(1),
    },
)


# ------------------------------------------------------------------ segments, bags, sampling


@seventh(lambda d: (d(200, 4, scale=3.0), torch.cat((d.ints(20, 180), torch.full((20,), 21))).sort().values))
def segment_softmax(x, seg):
    at = seg[:, None].expand(-1, 4)
    top = x.new_full((23, 4), NEG).scatter_reduce(0, at, x, "amax")
    e = (x - top[seg]).exp()
    return e / x.new_zeros(23, 4).index_add(0, seg, e)[seg]


def segment_runs(x, seg, all_top=False, eps=0.0, heads=False, short=0, late=0):
    ends = torch.cat((torch.searchsorted(seg, torch.arange(23)), torch.tensor([200])))
    out = torch.zeros_like(x)
    for s in range(23):
        a, b = int(ends[s]), int(ends[s + 1])
        if a < b:
            part = x[a:b]
            e = (part - part.amax(0)).exp()
            z = e[: max(len(e) - short, 1)].sum(0)
            z = z.mean() if heads else z
            out[a + late : b + late] = (e / (z + eps))[: len(out[a + late : b + late])]
    return out


right(segment_softmax, "segment by segment", segment_runs)
right(
    segment_softmax,
    "one maximum for all, in double precision",
    lambda x, seg: (lambda e: e / torch.zeros(23, 4, dtype=e.dtype).index_add(0, seg, e)[seg])(
        (x - x.amax()).double().exp()
    ),
    into=f32,
)
wrong(
    segment_softmax,
    segment_runs,
    {
        "each segment's sum leaves out its last row": dict(short=1),
        "0.01 is added to each sum": dict(eps=0.01),
        "the sum is the mean over the four heads": dict(heads=True),
        "results are written one row late": dict(late=1),
    },
)


@seventh(
    lambda d: (
        d(50, 24, dtype=hf),
        d.ints(50, 120),
        torch.tensor([0, 12, 12, 40, 41, 90, 120])[:-1],
        d.rand(120).to(hf),
    )
)
def weighted_bags(table, ids, offsets, w):
    return F.embedding_bag(ids, table, offsets, mode="sum", per_sample_weights=w)


def bags_kernel(table, ids, offsets, w, late=0, plain=False, cut=False, mean=False, wrap=50, kind=None, first=False):
    ends = torch.cat((offsets, torch.tensor([120])))
    out = table.new_zeros(6, 24)
    for b in range(6):
        for i in range(int(ends[b]), int(ends[b + 1]) - (1 if cut and b == 5 else 0)):
            out[b] = via(out[b] + table[ids[i] % wrap] * (1 if plain else w[i - late]), kind)
            if first:
                break
    return out


def bags_by_hot(table, ids, offsets, w):
    bag = torch.searchsorted(offsets, torch.arange(120), right=True) - 1
    m = torch.zeros(6, 50).to(w.dtype).index_put((bag, ids), w, accumulate=True)
    return m @ table


right(weighted_bags, "row after row", bags_kernel)
right(weighted_bags, "a product with a matrix of weights", bags_by_hot)
wrong(
    weighted_bags,
    bags_kernel,
    {
        "each row takes the weight before its own": dict(late=1),
        "the weights are not used": dict(plain=True),
        "the last row of the last bag is left out": dict(cut=True),
        "the running sum is kept in half precision": dict(kind=hf),
    },
)


@seventh(lambda d: (d(12, 60, scale=2.0),))
def top_p_probabilities(x):
    p = (x / 0.8).softmax(-1)
    s, order = p.sort(-1, descending=True)
    gone = s.cumsum(-1) - s >= 0.7
    kept = p.masked_fill(torch.zeros_like(gone).scatter(1, order, gone), 0.0)
    return kept / kept.sum(-1, keepdim=True)


def top_p_kernel(x, temp=0.8, limit=0.7, without=False, sorted_out=False, plain=False, least=0):
    z = x / temp
    p = (z - z.logsumexp(-1, keepdim=True)).exp()
    before = (p[:, None] * (p[:, None] > p[..., None])).sum(-1)  # what larger ones hold together
    keep = (before + p < limit) | (p == p.amax(-1, keepdim=True)) if without else before < limit
    kept = torch.where(keep, p, 0.0)
    kept = kept if plain else kept / kept.sum(-1, keepdim=True)
    return kept.sort(dim=-1, descending=True).values if sorted_out else kept


right(top_p_probabilities, "sums of larger ones without sorting", top_p_kernel)
doubled(top_p_probabilities)
wrong(
    top_p_probabilities,
    top_p_kernel,
    {
        "the token that crosses the limit is dropped as well": dict(without=True),
        "what is kept is not made to sum to 1": dict(plain=True),
        "results stay in sorted order": dict(sorted_out=True),
        "the temperature is multiplied in": dict(temp=1.25),
    },
)


@seventh(lambda d: (d.ints(30, 4, 25), d(4, 30)))
def penalties_of_seen_tokens(ids, x):
    seen = torch.zeros_like(x, dtype=torch.bool).scatter(1, ids, True)
    count = torch.zeros_like(x).scatter_add(1, ids, torch.ones_like(ids, dtype=x.dtype))
    y = torch.where(seen, torch.where(x > 0, x / 1.3, x * 1.3), x)
    return y - 0.2 * count


def repetition_kernel(ids, x, divide=False, once=False, repeat=False, skip=0, hot=False):
    y = x.clone()
    for b in range(4):
        count = torch.bincount(ids[b, : 25 - skip], minlength=30)
        for t in range(30):
            for _ in range(int(count[t]) if repeat else int(count[t] > 0)):
                y[b, t] = y[b, t] / 1.3 if y[b, t] > 0 or divide else y[b, t] * 1.3
            y[b, t] -= 0.2 * (int(count[t] > 0) if once else int(count[t]))
    return y


right(penalties_of_seen_tokens, "token by token from a histogram", repetition_kernel)
doubled(penalties_of_seen_tokens)
wrong(
    penalties_of_seen_tokens,
    repetition_kernel,
    {
        "negative scores are divided as well": dict(divide=True),
        "a token seen often pays once": dict(once=True),
        "the factor is applied once for each time a token was seen": dict(repeat=True),
        "the last token is not counted": dict(skip=1),
    },
)


@seventh(lambda d: (d(5, 700, dtype=bf, shift=-0.4),))
def blocked_mean_and_spread(x):
    return x.mean(-1), x.var(-1), x.abs().amax(-1)


def merged_moments(x, blocks=7, ddof=1, cross=True, kind=None, sign=False, lost=0):
    n = mean = m2 = 0
    top = x[:, 0] * 0
    for part in x.chunk(blocks, -1)[lost:]:
        k, m = part.shape[-1], ladder(part) / part.shape[-1]
        q = folded((part - m[:, None]).square())
        delta, total = m - mean, n + k
        m2 = m2 + q + (delta * delta * n * k / total if cross else 0)
        mean, n = mean + delta * k / total, total
        top = torch.maximum(top, (part if sign else part.abs()).amax(-1))
    return mean, m2 / (n - ddof), top


right(blocked_mean_and_spread, "blocks merged by Chan's rule", merged_moments)
right(blocked_mean_and_spread, "35 blocks merged", merged_moments, blocks=35)
wrong(
    blocked_mean_and_spread,
    merged_moments,
    {
        "merging blocks forgets the difference of their means": lambda x: merged_moments(x, blocks=140, cross=False),
        "the largest is taken without regard to sign": dict(sign=True),
        "the first block is left out": dict(lost=1),
    },
)
