# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind: routing, norms and their gradients, parts of blocks."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake, slow_matmul
from .blind_fourth_a import double, fourth, honest, inside, stored_in
from .blind_third import hurt, kept, last_rows_unwritten, two_rows_swapped

# ------------------------------------------------------------------ routing


@fourth(lambda d: (d(24, 16), d(16, 4), d(4, 16, 20, scale=0.3), d(4, 20, 16, scale=0.3)))
def expert_choice_moe(x, wr, w1, w2, room=8, over=-1, by_token=False, weighted=True, last_wins=False):
    p = (x @ wr).softmax(over)
    out = torch.zeros_like(x)
    for e in range(4):
        if by_token:
            ids = (p.argmax(-1) == e).nonzero()[:room, 0]
            g = p[ids, e]
        else:
            g, ids = p[:, e].topk(room)
        y = F.gelu(x[ids] @ w1[e]) @ w2[e] * (g[:, None] if weighted else 1.0)
        if last_wins:
            out[ids] = y
        else:
            out = out.index_add(0, ids, y)
    return out


def expert_choice_dense(x, wr, w1, w2):
    p = (x @ wr).softmax(-1)
    chosen = torch.zeros_like(p).scatter(0, p.topk(8, 0).indices, 1.0)
    y = torch.einsum("teh,ehd->ted", F.gelu(torch.einsum("td,edh->teh", x, w1)), w2)
    return torch.einsum("te,ted->td", p * chosen, y)


honest(expert_choice_moe, "every expert on every token, masked", expert_choice_dense)
honest(expert_choice_moe, "float64 inside", double(expert_choice_moe))
mistake(expert_choice_moe, "softmax over tokens instead of over experts", over=0)
mistake(expert_choice_moe, "tokens choose their expert instead of experts their tokens", by_token=True)
mistake(expert_choice_moe, "experts' outputs are not weighted", weighted=False)
mistake(
    expert_choice_moe, "a token taken by two experts keeps only the last one's output (lost update)", last_wins=True
)
mistake(expert_choice_moe, "each expert takes 7 tokens instead of 8", room=7)


@fourth(
    lambda d: (
        d(21, 16, dtype=bf),
        d(16, 5),
        d(5, 16, 24, dtype=bf, scale=0.3),
        d(5, 16, 24, dtype=bf, scale=0.3),
        d(5, 24, 16, dtype=bf, scale=0.3),
    )
)
def mixtral_block(x, wr, gate, up, down, k=2, everyone=False, swapped=False, early=False, low=None):
    x, gate, up, down = (t.to(wr.dtype) for t in (x, gate, up, down))
    s = x @ wr
    top, ids = s.topk(k, -1)
    w = s.softmax(-1).gather(1, ids) if everyone else top.softmax(-1)
    if swapped:
        gate, up = up, gate
    g = x[:, None] * w[..., None] if early else x[:, None].expand(-1, k, -1)
    h = F.silu(torch.einsum("tkd,tkdh->tkh", g, gate[ids])) * torch.einsum("tkd,tkdh->tkh", g, up[ids])
    y = torch.einsum("tkh,tkhd->tkd", kept(h, low), down[ids])
    return (y if early else y * w[..., None]).sum(1)


def mixtral_sorted(x, wr, gate, up, down, unsort=True):
    x, gate, up, down = (t.to(wr.dtype) for t in (x, gate, up, down))
    top, ids = (x @ wr).topk(2, -1)
    w = (top[:, :1] - top[:, 1:]).sigmoid()
    w = torch.cat((w, 1 - w), 1).flatten()
    flat = ids.flatten()
    order = flat.argsort(stable=True)
    rows, y = x[order // 2], []
    for e, part in enumerate(rows.split(torch.bincount(flat, minlength=5).tolist())):
        y.append((F.silu(part @ gate[e]) * (part @ up[e])) @ down[e])
    y = torch.cat(y) * w[order if unsort else slice(None), None]
    return torch.zeros_like(x).index_add(0, order // 2, y)


honest(mixtral_block, "tokens sorted by expert, one product each", mixtral_sorted)
honest(mixtral_block, "float64 inside", lambda *a: mixtral_block(*(t.double() for t in a)).to(torch.float32))
mistake(mixtral_block, "softmax over all experts, not renormalised over the two chosen", everyone=True)
mistake(mixtral_block, "gate and up matrices are exchanged", swapped=True)
mistake(mixtral_block, "routing weights scale the expert's input instead of its output", early=True)
mistake(
    mixtral_block,
    "weights are in token order while rows are sorted by expert",
    lambda *a: mixtral_sorted(*a, unsort=False),
)
mistake(mixtral_block, "the hidden layer is rounded to bf16", low=bf)


@fourth(lambda d: (d(32, 12, shift=0.5), d(12, 4, scale=0.3), d(4, 12, 12, scale=0.3)))
def switch_layer(x, wr, w, room=7, drop=True, gated=True, share=True, inclusive=True):
    p = (x @ wr).softmax(-1)
    g, ids = p.max(-1)
    hot = F.one_hot(ids, 4)
    place = (hot.cumsum(0) * hot).sum(-1) - (1 if inclusive else 0)
    keep = (place < room) if drop else torch.ones_like(place, dtype=torch.bool)
    y = torch.einsum("td,tde->te", x, w[ids]) * (g[:, None] if gated else 1.0)
    frac = hot.to(x.dtype).mean(0) if share else p.mean(0)
    return torch.where(keep[:, None], y, x), 4 * (frac * p.mean(0)).sum()


def switch_loop(x, wr, w):
    s = x @ wr
    e = (s - s.amax(1, keepdim=True)).exp()
    p = e / e.sum(1, keepdim=True)
    used, out = [0] * 4, x.clone()
    for t, i in enumerate(p.argmax(1).tolist()):
        if used[i] < 7:
            out[t] = x[t] @ w[i] * p[t, i]
        used[i] += 1
    return out, (torch.tensor(used, dtype=x.dtype) @ p.sum(0)) * 4 / 32**2


honest(switch_layer, "token by token with counters", switch_loop)
honest(switch_layer, "float64 inside", double(switch_layer))
mistake(switch_layer, "tokens over capacity are not dropped", drop=False)
mistake(switch_layer, "the expert's output is not multiplied by its probability", gated=False)
mistake(switch_layer, "the balance loss multiplies mean probabilities with themselves, not with counts", share=False)
mistake(switch_layer, "places count from 1: one token fewer fits", inclusive=False)


@fourth(lambda d: (d(30, 12), d(12, 12, scale=0.5), d(12, scale=0.2)))
def group_limited_router(x, w, bias, groups=4, picked=2, k=3, best=2, strided=False, biased=False, scale=1.5):
    s = (x @ w).sigmoid()
    b = s + bias
    view = (lambda t: t.view(30, -1, groups).mT) if strided else (lambda t: t.view(30, groups, -1))
    mark = view(b).topk(best, -1).values.sum(-1)
    open_ = torch.zeros_like(mark).scatter(1, mark.topk(picked, -1).indices, 1.0)
    mask = open_[:, :, None].expand(-1, -1, 12 // groups)
    mask = (mask.mT if strided else mask).reshape(30, 12)
    ids = b.masked_fill(mask == 0, float("-inf")).topk(k, -1).indices
    g = (b if biased else s).gather(1, ids)
    return torch.zeros_like(s).scatter(1, ids, g / g.sum(-1, keepdim=True) * scale)


def group_limited_loop(x, w, bias):
    out = torch.zeros(30, 12, dtype=x.dtype)
    s = 1 / (1 + (-(x @ w)).exp())
    for t in range(30):
        b = (s[t] + bias).tolist()
        marks = [sum(sorted(b[3 * g : 3 * g + 3])[1:]) for g in range(4)]
        allowed = sorted(range(4), key=lambda g: -marks[g])[:2]
        ids = sorted((e for e in range(12) if e // 3 in allowed), key=lambda e: -b[e])[:3]
        out[t, ids] = s[t, ids] * (1.5 / s[t, ids].sum())
    return out


honest(group_limited_router, "token by token with sorted lists", group_limited_loop)
honest(group_limited_router, "float64 inside", double(group_limited_router))
mistake(group_limited_router, "a group's mark is its best expert, not its best two", best=1)
mistake(group_limited_router, "expert e belongs to group e % 4 instead of e // 3", strided=True)
mistake(group_limited_router, "all groups are open", picked=4)
mistake(group_limited_router, "weights come from the biased scores", biased=True)


@fourth(lambda d: (d(19, 6), d.ints(5, 19, 2)))
def moe_permutation(x, ids, stable=True, source=2, ends=0, down=False):
    flat = ids.flatten()
    order = flat.argsort(stable=True, descending=down)
    if not stable:
        order = torch.cat([(flat == e).nonzero()[:, 0].flip(0) for e in range(5)])
    counts = torch.bincount(flat, minlength=5)
    starts = counts.cumsum(0) - (counts if not ends else 0)
    rows = order // 2 if source == 2 else order % 19
    back = torch.empty_like(order).scatter(0, order, torch.arange(38))
    return x[rows], starts, back


def permutation_by_counting(x, ids):
    rows, back, place, starts = [], [0] * 38, 0, []
    for e in range(5):
        starts.append(place)
        for j, i in enumerate(ids.flatten().tolist()):
            if i == e:
                rows.append(j // 2)
                back[j] = place
                place += 1
    return x[rows], torch.tensor(starts), torch.tensor(back)


honest(moe_permutation, "counting sort", permutation_by_counting)
honest(moe_permutation, "float64 inside", double(moe_permutation))
mistake(moe_permutation, "equal experts come in reversed order (sort is not stable)", stable=False)
mistake(moe_permutation, "the source row is flat index % tokens, not flat index // 2", source=19)
mistake(moe_permutation, "offsets are the segments' ends instead of their starts", ends=1)
mistake(moe_permutation, "sorts experts from last to first", down=True)


@fourth(
    lambda d: (d(45, 320, dtype=bf, shift=1.0), d(4, 320, 24, dtype=bf, shift=0.5), torch.tensor([0, 13, 13, 30, 45]))
)
def grouped_gemm(x, w, starts, tile=None, late=0, whole=False, low=None):
    out = x.new_zeros(len(x), w.shape[-1])
    for e, (a, b) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist())):
        e = min(e + late, 3)
        if tile:
            a, b = -(-a // tile) * tile, min(-(-b // tile) * tile, len(x))
        if whole:
            b = a + (b - a) // 8 * 8
        out[a:b] = slow_matmul(x[a:b], w[e], low, 1).to(x.dtype) if low else x[a:b] @ w[e]
    return out


honest(grouped_gemm, "float32 inside", inside(grouped_gemm))
honest(grouped_gemm, "float64 inside", double(grouped_gemm))
honest(
    grouped_gemm,
    "one product for each row, sums of 8 columns at a time",
    lambda x, w, s: sum(
        torch.einsum(
            "tk,tkn->tn",
            x[:, j : j + 8].float(),
            w[torch.bucketize(torch.arange(45), s[1:], right=True), j : j + 8].float(),
        )
        for j in range(0, 320, 8)
    ).to(x.dtype),
)
mistake(grouped_gemm, "a tile of 8 rows takes the expert of its first row", inside(grouped_gemm, tile=8))
mistake(grouped_gemm, "each group takes the next expert's matrix", inside(grouped_gemm, late=1))
mistake(grouped_gemm, "a group's last partial tile of 8 rows is not written (zeros)", inside(grouped_gemm, whole=True))
mistake(grouped_gemm, "accumulates in bf16", lambda *a: grouped_gemm(*a, low=bf))


@fourth(lambda d: (d(28, 6, scale=1.5),))
def sinkhorn_plan(x, rounds=4, cols=True, heat=0.5, rows_last=False, spread=True):
    p = (x / heat).exp()
    for _ in range(rounds):
        if rows_last and cols:
            p = p / p.sum(0, keepdim=True) * (28 / 6 if spread else 1)
        p = p / p.sum(1, keepdim=True)
        if cols and not rows_last:
            p = p / p.sum(0, keepdim=True) * (28 / 6 if spread else 1)
    return p


def sinkhorn_logs(x):
    s = x * 2
    u, w = x.new_zeros(28, 1), x.new_zeros(1, 6)
    for _ in range(4):
        u = -(s + w).logsumexp(1, keepdim=True)
        w = math.log(28 / 6) - (s + u).logsumexp(0, keepdim=True)
    return (s + u + w).exp()


honest(sinkhorn_plan, "in logarithms with two potentials", sinkhorn_logs)
honest(sinkhorn_plan, "float64 inside", double(sinkhorn_plan))
mistake(sinkhorn_plan, "three rounds instead of four", rounds=3)
mistake(sinkhorn_plan, "columns are never normalised", cols=False)
mistake(sinkhorn_plan, "columns are normalised before rows in each round", rows_last=True)
mistake(sinkhorn_plan, "temperature 1 instead of 0.5", heat=1.0)
mistake(sinkhorn_plan, "columns are brought to the sum 1 instead of 28/6", spread=False)


@fourth(lambda d: (d(20, 12), d(12, 8, scale=0.5), d(4, 12, 12, scale=0.3)))
def soft_moe(x, phi, w, send=0, back=1, same=False):
    s = x @ phi
    a, b = s.softmax(send), s.softmax(back)
    slots = (b if same else a).T @ x
    y = torch.einsum("esd,edf->esf", slots.view(4, 2, 12), w.tanh()).flatten(0, 1)
    return b @ y


honest(
    soft_moe,
    "exponentials shared by both softmaxes",
    lambda x, phi, w: (
        lambda e: (
            e
            / e.sum(1, keepdim=True)
            @ torch.cat(
                [(e[:, 2 * i : 2 * i + 2] / e[:, 2 * i : 2 * i + 2].sum(0)).T @ x @ w[i].tanh() for i in range(4)]
            )
        )
    )((x @ phi).exp()),
)
honest(soft_moe, "float64 inside", double(soft_moe))
mistake(soft_moe, "dispatch and combine weights both run over slots", same=True)
mistake(soft_moe, "combine weights run over tokens", back=0)
mistake(soft_moe, "the last token is not written (zeros)", hurt(soft_moe, last_rows_unwritten))
stored_in(soft_moe, bf)


# ------------------------------------------------------------------ norms


@fourth(lambda d: (d(3, 5, 7, 6, shift=4.0), d(5, shift=1.0), d(5)))
def instance_norm_2d(x, w, b, over=(2, 3), correction=0, eps=1e-5, low=None, flip=False):
    mean = x.mean(over, keepdim=True)
    if low:
        var = kept((x * x).mean(over, keepdim=True), low) - kept(mean * mean, low)
    else:
        var = x.var(over, correction=correction, keepdim=True)
    if flip:
        w, b = b, w
    return (x - mean) * (var + eps).rsqrt() * w[:, None, None] + b[:, None, None]


honest(
    instance_norm_2d,
    "torch's batch norm over planes as channels",
    lambda x, w, b: F.batch_norm(x.reshape(1, 15, 7, 6), None, None, w.repeat(3), b.repeat(3), True).view_as(x),
)
honest(
    instance_norm_2d,
    "one fused multiply-add by plane",
    lambda x, w, b: (lambda m, a: torch.addcmul(b[:, None, None] - m * a, x, a))(
        x.double().mean((2, 3), keepdim=True).float(),
        (w[:, None, None] / (x.double().var((2, 3), correction=0, keepdim=True) + 1e-5).sqrt()).float(),
    ),
)
mistake(instance_norm_2d, "statistics over the batch as well", over=(0, 2, 3))
mistake(instance_norm_2d, "divides by n - 1 in the variance", correction=1)
mistake(instance_norm_2d, "mean of squares less squared mean, both in bf16", low=bf)
mistake(instance_norm_2d, "scale and bias are exchanged", flip=True)


@fourth(lambda d: (d(14, 20), d(12, 20), d(12), d(12)))
def spectral_norm_linear(x, w, u, bias, rounds=3, unit=True, root=1.0, frobenius=False):
    for _ in range(rounds):
        v = F.normalize(w.T @ u, dim=0) if unit else w.T @ u
        u = F.normalize(w @ v, dim=0)
    sigma = w.norm() if frobenius else u @ w @ v
    return x @ (w / sigma**root).T + bias, u


def spectral_by_gram(x, w, u, bias):
    g = w @ w.T
    for _ in range(2):
        u = g @ u
        u = u / u.norm()
    v = w.T @ u
    v = v / v.norm()
    y = w @ v
    return x @ w.T / y.norm() + bias, y / y.norm()


honest(spectral_norm_linear, "iterates on w w^T, divides the output", spectral_by_gram)
honest(spectral_norm_linear, "float64 inside", double(spectral_norm_linear))
mistake(spectral_norm_linear, "one round of power iteration fewer", rounds=2)
mistake(spectral_norm_linear, "divides by the square root of sigma", root=0.5)
mistake(spectral_norm_linear, "divides by the Frobenius norm", frobenius=True)
mistake(spectral_norm_linear, "v is not normalised, so that sigma is too large", unit=False)


@fourth(lambda d: (d(2, 4, 9, 8), d(6, 4, 3, 3, scale=0.3), d(6), d(6, shift=1.0), d(6), d(6), d.rand(6) + 0.01))
def conv_with_folded_norm(x, w, b, gain, beta, mean, var, eps=1e-3, root=True, centred=True, bias_scaled=True):
    f = gain / ((var + eps).sqrt() if root else var + eps)
    bias = (b - mean if centred else b) * (f if bias_scaled else 1.0) + beta
    return F.conv2d(x, w * f[:, None, None, None], bias, padding=1)


honest(
    conv_with_folded_norm,
    "convolution, then batch norm",
    lambda x, w, b, g, beta, m, v: F.batch_norm(F.conv2d(x, w, b, padding=1), m, v, g, beta, False, eps=1e-3),
)
honest(conv_with_folded_norm, "float64 inside", double(conv_with_folded_norm))
mistake(conv_with_folded_norm, "the variance's square root is missing", root=False)
mistake(conv_with_folded_norm, "the running mean is not subtracted from the bias", centred=False)
mistake(conv_with_folded_norm, "bias less mean is not multiplied by the factor", bias_scaled=False)
mistake(conv_with_folded_norm, "epsilon 1e-5 instead of 1e-3", eps=1e-5)


@fourth(lambda d: (d(11, 36, dtype=bf, scale=0.02), d(36, dtype=bf, scale=0.3)))
def rms_norm_unit_offset(x, w, one=1.0, eps=1e-4, late=False, mean=True):
    ms = (x * x).mean(-1, keepdim=True) if mean else (x * x).sum(-1, keepdim=True)
    y = x * ((ms + eps).rsqrt() if not late else 1 / (ms.sqrt() + eps))
    return y * (one + w)


honest(rms_norm_unit_offset, "float32 inside", inside(rms_norm_unit_offset))
honest(rms_norm_unit_offset, "y + y w", inside(lambda x, w: (lambda y: y + y * w)(F.rms_norm(x, (36,), eps=1e-4))))
mistake(rms_norm_unit_offset, "multiplies by w instead of 1 + w", inside(rms_norm_unit_offset, one=0.0))
mistake(rms_norm_unit_offset, "sum of squares instead of their mean", inside(rms_norm_unit_offset, mean=False))
mistake(rms_norm_unit_offset, "epsilon is added after the square root", inside(rms_norm_unit_offset, late=True))
mistake(
    rms_norm_unit_offset, "the last row is not written (zeros)", inside(hurt(rms_norm_unit_offset, last_rows_unwritten))
)


@fourth(lambda d: (d(13, 30, shift=1.0), d(30, shift=1.0), d(13, 30)))
def layer_norm_gradients(x, w, g, first=True, second=True, weighted=True, raw=False, low=None):
    mean = x.mean(-1, keepdim=True)
    r = (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    y = kept((x - mean) * r, low)
    h = g * w if weighted else g
    dx = h
    if first:
        dx = dx - h.mean(-1, keepdim=True)
    if second:
        dx = dx - y * (h * y).mean(-1, keepdim=True)
    return dx * r, (g * (x if raw else y)).sum(0), g.sum(0)


def layer_norm_autograd(x, w, g):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    b = torch.zeros_like(w, requires_grad=True)
    F.layer_norm(x, (30,), w, b, 1e-5).backward(g)
    return x.grad, w.grad, b.grad


honest(layer_norm_gradients, "automatic differentiation", layer_norm_autograd)
honest(layer_norm_gradients, "float64 inside", double(layer_norm_gradients))
mistake(layer_norm_gradients, "the mean's share of the gradient is missing", first=False)
mistake(layer_norm_gradients, "the variance's share of the gradient is missing", second=False)
mistake(layer_norm_gradients, "dx leaves the weight out", weighted=False)
mistake(layer_norm_gradients, "the weight's gradient uses x instead of the normalised x", raw=True)
mistake(layer_norm_gradients, "the normalised x is stored in bf16", low=bf)


@fourth(lambda d: (d(9, 28), d(28, shift=1.0), d(9, 28), d(9, 28)))
def add_rms_norm_gradients(x, w, g, residual, power=3, through=True, size=28):
    r = ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt()
    h = g * w
    dx = h * r - x * r**power * (h * x).sum(-1, keepdim=True) / size
    return (dx + residual if through else dx), (g * x * r).sum(0)


def rms_autograd(x, w, g, residual):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    F.rms_norm(x, (28,), w, 1e-6).backward(g)
    return x.grad + residual, w.grad


honest(add_rms_norm_gradients, "automatic differentiation", rms_autograd)
honest(add_rms_norm_gradients, "float64 inside", double(add_rms_norm_gradients))
mistake(add_rms_norm_gradients, "r squared instead of cubed in the second term", power=2)
mistake(add_rms_norm_gradients, "the residual's gradient is not added", through=False)
mistake(add_rms_norm_gradients, "the second term is not divided by the row's length", size=1)
stored_in(add_rms_norm_gradients, hf)


@fourth(lambda d: (d(2, 6, 5, 10), d(10), d(10)))
def global_response_norm(x, gamma, beta, over=(1, 2), along=-1, skip=True, eps=1e-6):
    n = (x * x).sum(over, keepdim=True).sqrt()
    y = gamma * x * n / (n.mean(along, keepdim=True) + eps) + beta
    return y + x if skip else y


honest(
    global_response_norm,
    "per image vector norms",
    lambda x, g, b: torch.stack(
        [i * (1 + g * (lambda n: n / (n.mean() + 1e-6))(i.flatten(0, 1).norm(dim=0))) + b for i in x]
    ),
)
honest(global_response_norm, "float64 inside", double(global_response_norm))
mistake(global_response_norm, "norms over channels instead of places", over=(3,), along=(1, 2))
mistake(global_response_norm, "the input is not added back", skip=False)
mistake(global_response_norm, "norms take in the whole batch", over=(0, 1, 2))
mistake(
    global_response_norm,
    "the two images of the batch are exchanged",
    hurt(global_response_norm, lambda out: two_rows_swapped(out, 0, 1)),
)
stored_in(global_response_norm, hf)


@fourth(lambda d: (d(3, 8, 24), d(3, 8, 24), d(24, shift=1.0)))
def gated_group_rms(x, z, w, size=8, gate_first=True, act=F.silu, whole=False, low=None):
    h = kept(x * act(z), low) if gate_first else x
    y = h.reshape(3, 8, -1, 24 if whole else size)
    y = (y * ((y * y).mean(-1, keepdim=True) + 1e-5).rsqrt()).view_as(x) * w
    return y if gate_first else y * act(z)


honest(
    gated_group_rms,
    "group by group",
    lambda x, z, w: torch.cat(
        [
            F.rms_norm(a * b * torch.sigmoid(b), (8,), c, 1e-5)
            for a, b, c in zip(x.split(8, -1), z.split(8, -1), w.split(8))
        ],
        -1,
    ),
)
honest(gated_group_rms, "float64 inside", double(gated_group_rms))
mistake(gated_group_rms, "normalises before the gate", gate_first=False)
mistake(gated_group_rms, "one norm over all 24 channels instead of groups of 8", whole=True)
mistake(gated_group_rms, "sigmoid instead of silu", act=torch.sigmoid)
mistake(gated_group_rms, "the gated value is stored in fp16", low=hf)
