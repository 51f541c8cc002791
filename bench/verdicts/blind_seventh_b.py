# SPDX-License-Identifier: Apache-2.0
"""Set I, written blind (see blind_seventh_a): norms with what stands around them, rotary turns, losses."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_seventh_a import doubled, right, seventh, via, wrong


def ladder(x, step=64):
    """The sum over the last axis in blocks, the blocks' sums added one after another."""
    total = x.new_zeros(x.shape[:-1])
    for part in x.split(step, -1):
        total = total + part.sum(-1)
    return total


def folded(x):
    """The sum over the last axis by folding it in two again and again."""
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2))
        x = x[..., :x.shape[-1] // 2] + x[..., x.shape[-1] // 2:]
    return x[..., 0]


# ------------------------------------------------------------------ norms

@seventh(lambda d: (d(40, 320, dtype=bf), d(40, 320, dtype=bf, scale=0.5), d(320, dtype=bf, shift=1.0, scale=0.2)))
def add_then_rms_norm(x, residual, w):
    h = x + residual
    return F.rms_norm(h, (320,), w, 1e-6), h


def add_rms_kernel(x, residual, w, total=folded, over=320, eps=1e-6, source=1, add=1.0, kind=None, weight=True, tail=0):
    h = x + add * residual
    base = h if source else x
    sq = base * base
    ms = via(total(sq[:, :320 - tail]), kind)[:, None] / over
    y = base * torch.rsqrt(ms + eps)
    return (y * w if weight else y), (h if source < 2 else x)


right(add_then_rms_norm, "sum of squares by folding", add_rms_kernel)
right(add_then_rms_norm, "sum of squares in blocks of 64", add_rms_kernel, total=ladder)
wrong(add_then_rms_norm, add_rms_kernel, {
    "the norm is taken of x alone, before the residual": dict(source=0),
    "the sum of squares is divided by the padded width of 512": dict(over=512),
    "the second output is x without the residual": dict(source=2),
    "the last 64 columns are missing from the sum of squares": dict(tail=64),
    "the weight is not applied": dict(weight=False)})


@seventh(lambda d: (d(24, 512), d(512, shift=1.0, scale=0.3), d(24, 512)))
def rms_norm_gradients(x, w, g):
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    n = x * r
    gw = g * w
    return r * (gw - n * (gw * n).mean(-1, keepdim=True)), (g * n).sum(0)


def rms_gradients_rows(x, w, g, cube=True, over=512, eps=1e-5, rows=24, block=6, plain=False, kind=None, raw=False):
    r = (folded(x * x) / 512 + eps).rsqrt()[:, None]
    gw = g if plain else g * w
    dot = folded(gw * x)[:, None] / over
    dx = r * gw - x * (r ** 3 if cube else r) * dot
    dw = torch.zeros_like(w)
    for start in range(0, rows, block):
        part = (g * x * (1 if raw else r))[start:start + block].sum(0)
        dw = via(dw + part, kind)
    return dx, dw


def rms_gradients_autograd(x, w, g):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    return torch.autograd.grad(F.rms_norm(x, (512,), w, 1e-5), (x, w), g)


right(rms_norm_gradients, "row sums by folding, dw in blocks of 6 rows", rms_gradients_rows)
right(rms_norm_gradients, "automatic differentiation", rms_gradients_autograd)
wrong(rms_norm_gradients, rms_gradients_rows, {
    "the correcting term has the reciprocal root once instead of three times": dict(cube=False),
    "the correcting term is divided by 511": dict(over=511),
    "dw leaves out the last block of rows": dict(rows=18),
    "dw is added up in half precision, 2 rows at a time": dict(kind=hf, block=2),
    "dx lacks the weight": dict(plain=True)})


@seventh(lambda d: (d(30, 200, dtype=bf), d(200, dtype=bf, scale=0.2), d(30, 200, dtype=bf)))
def unit_offset_norm_gated(x, w, gate):
    return F.rms_norm(x, (200,), None, 1e-6) * (1 + w) * F.silu(gate)


def offset_norm_gated(x, w, gate, one=1.0, act=F.silu, first=False, over=200, groups=1, total=folded):
    h = x * act(gate) if first else x
    parts = h.unflatten(-1, (groups, -1))
    ms = total(parts * parts)[..., None] / (over // groups)
    y = (parts * (ms + 1e-6).rsqrt()).flatten(-2) * (one + w)
    return y if first else y * act(gate)


right(unit_offset_norm_gated, "sum of squares by folding", offset_norm_gated)
right(unit_offset_norm_gated, "sum of squares in blocks", offset_norm_gated, total=ladder)
wrong(unit_offset_norm_gated, offset_norm_gated, {
    "the weight is used without the 1": dict(one=0.0),
    "the gate goes through a sigmoid, not x times sigmoid": dict(act=torch.sigmoid),
    "the gate is multiplied in before the norm": dict(first=True),
    "the norm is taken over halves of the row": dict(groups=2)})


@seventh(lambda d: (d(3, 24, 9, 9, dtype=hf, shift=0.5), d(24, dtype=hf, shift=1.0), d(24, dtype=hf)))
def group_norm_then_silu(x, w, b):
    return F.silu(F.group_norm(x, 6, w, b, 1e-5))


def group_silu(
    x, w, b, groups=6, over=324, eps=1e-5, outside=False, order=False, welford=False, act=F.silu, naive=None
):
    y = x.unflatten(1, (-1, groups)).transpose(1, 2) if order else x.unflatten(1, (groups, -1))
    flat = y.flatten(2)
    if welford:
        mean, m2 = flat[..., 0] * 0, flat[..., 0] * 0
        for n, part in enumerate(flat.unbind(-1), 1):
            delta = part - mean
            mean = mean + delta / n
            m2 = m2 + delta * (part - mean)
        mean, var = mean[..., None], m2[..., None] / over
    else:
        mean = flat.mean(-1, keepdim=True)
        var = (flat - mean).square().sum(-1, keepdim=True) / over
    if naive is not None:
        var = via(flat.square().mean(-1, keepdim=True), naive) - via(mean, naive).square()
    n = (flat - mean) / (var.sqrt() + 0.1 if outside else (var + eps).sqrt())
    n = n.view(y.shape)
    n = (n.transpose(1, 2) if order else n).flatten(1, 2)
    return act(n * w[:, None, None] + b[:, None, None])


right(group_norm_then_silu, "two passes", group_silu)
right(group_norm_then_silu, "Welford, one number after another", group_silu, welford=True)
wrong(group_norm_then_silu, group_silu, {
    "channels of a group are taken 6 apart instead of side by side": dict(order=True),
    "the epsilon 0.1 is added outside the root": dict(outside=True),
    "the activation is a plain sigmoid": dict(act=torch.sigmoid),
    "the variance is the difference of two moments kept in bf16": dict(naive=bf),
    "the norm runs over one group of all channels": lambda *a: group_silu(*a, groups=1, over=1944)})


@seventh(lambda d: (d(20, 384, dtype=bf), d(384, dtype=bf, shift=1.0, scale=0.2), d(20, 384, dtype=bf)))
def layer_norm_bf16_gradients(x, w, g):
    m = x.mean(-1, keepdim=True)
    r = torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)
    n = (x - m) * r
    gw = g * w
    dx = r * (gw - gw.mean(-1, keepdim=True) - n * (gw * n).mean(-1, keepdim=True))
    return dx, (g * n).sum(0), g.sum(0)


def layer_gradients(x, w, g, total=folded, mean=1.0, over=384, crossed=False, rows=20, lost=0, unweighted=False):
    m = total(x)[:, None] / 384
    c = x - m
    r = (total(c * c)[:, None] / over + 1e-5).rsqrt()
    n = c * r
    gw = g if unweighted else g * w
    a = total(gw)[:, None] / 384
    b = total((gw * n)[:, :384 - lost])[:, None] / 384
    dx = r * (gw - mean * a - n * b)
    dw, db = (g * n)[:rows].sum(0), g[:rows].sum(0)
    return (dx, db, dw) if crossed else (dx, dw, db)


right(layer_norm_bf16_gradients, "sums by folding", layer_gradients)
right(layer_norm_bf16_gradients, "sums in blocks of 64", layer_gradients, total=ladder)
wrong(layer_norm_bf16_gradients, layer_gradients, {
    "the mean of the gradient is not subtracted": dict(mean=0.0),
    "the gradients of weight and bias are exchanged": dict(crossed=True),
    "the parameter gradients leave out the last 4 rows": dict(rows=16),
    "the second mean leaves out the last 128 columns": dict(lost=128),
    "the gradient of x lacks the weight": dict(unweighted=True)})


# ------------------------------------------------------------------ rotary

def angles(n, width, base=10000.0, first=0):
    f = base ** (-torch.arange(0, width, 2).double() / width)
    return (torch.arange(n).double() + first)[:, None] * f


@seventh(lambda d: (d(2, 20, 4, 64, dtype=bf), d(64, dtype=bf, shift=1.0, scale=0.2), angles(20, 64).cos().to(bf),
                    angles(20, 64).sin().to(bf)))
def qk_norm_then_rope(q, w, cos, sin):
    q = F.rms_norm(q, (64,), w, 1e-6)
    c, s = (torch.cat((t, t), -1)[:, None] for t in (cos, sin))
    a, b = q.chunk(2, -1)
    return q * c + torch.cat((-b, a), -1) * s


def qk_norm_rope(q, w, cos, sin, pairs=False, late=0, sign=1, whole=False, after=False, seq=1, eps=1e-6):
    flat = q.flatten(2) if whole else q
    r = (folded(flat * flat) / flat.shape[-1] + eps).rsqrt()[..., None]
    n = q * (r[..., None] if whole else r)
    n = n if after else n * w
    cos, sin = (t.roll(late, 0) for t in (cos, sin))
    c, s = (cos[:, None], sin[:, None]) if seq == 1 else (cos[:4], sin[:4])
    a, b = (n[..., ::2], n[..., 1::2]) if pairs else (n[..., :32], n[..., 32:])
    one, two = a * c - sign * b * s, b * c + sign * a * s
    o = torch.stack((one, two), -1).flatten(-2) if pairs else torch.cat((one, two), -1)
    return o * w if after else o


right(qk_norm_then_rope, "halves turned as two numbers", qk_norm_rope)
doubled(qk_norm_then_rope)
wrong(qk_norm_then_rope, qk_norm_rope, {
    "neighbours are turned against each other, not halves": dict(pairs=True),
    "each place takes the angle of the place before it": dict(late=1),
    "the turn goes the other way round": dict(sign=-1),
    "the mean square is taken over all heads of a token": dict(whole=True),
    "angles are read by head instead of by place": dict(seq=2)})


@seventh(lambda d: (d(2, 3, 24, 64), torch.arange(24) * 37))
def yarn_rope(x, place):
    f = 10000.0 ** (-torch.arange(0, 64, 2, dtype=x.dtype) / 64)
    low = 64 * math.log(4096 / (32 * 2 * math.pi)) / (2 * math.log(10000.0))
    high = 64 * math.log(4096 / (2 * math.pi)) / (2 * math.log(10000.0))
    ramp = ((torch.arange(32, dtype=x.dtype) - math.floor(low)) / (math.ceil(high) - math.floor(low))).clamp(0, 1)
    f = f / 8.0 * ramp + f * (1 - ramp)
    a = place[:, None] * f
    m = 0.1 * math.log(8.0) + 1
    c, s = a.cos() * m, a.sin() * m
    one, two = x[..., :32], x[..., 32:]
    return torch.cat((one * c - two * s, two * c + one * s), -1)


def yarn_kernel(
    x, place, factor=8.0, flip=False, m=0.1 * math.log(8.0) + 1, ends=(10, 23), shift=0, kind=None, base=10000.0
):
    f = base ** (-torch.arange(0, 64, 2).double() / 64)
    ramp = ((torch.arange(32) - ends[0]).double() / (ends[1] - ends[0])).clamp(0, 1)
    ramp = 1 - ramp if flip else ramp
    f = f * (1 - ramp + ramp / factor)
    a = (place + shift).double()[:, None] * via(f, kind)
    c, s = (a.cos() * m).to(x.dtype), (a.sin() * m).to(x.dtype)
    z = torch.complex(x[..., :32], x[..., 32:]) * torch.complex(c, s)
    return torch.cat((z.real, z.imag), -1)


right(yarn_rope, "complex product with angles in double precision", yarn_kernel)
doubled(yarn_rope)
wrong(yarn_rope, yarn_kernel, {
    "the magnitude factor 0.1 ln 8 + 1 is left out": dict(m=1.0),
    "low and high frequencies are exchanged in the ramp": dict(flip=True),
    "slow frequencies are divided by 4, not by 8": dict(factor=4.0),
    "frequencies are kept in bf16": dict(kind=bf),
    "places count from 1": dict(shift=1)})


@seventh(lambda d: (d(2, 18, 2, 32), d.ints(40, 3, 2, 18)))
def multimodal_rope(x, place):
    f = 10000.0 ** (-torch.arange(0, 32, 2, dtype=x.dtype) / 32)
    a = place[..., None] * f
    a = torch.cat((a[0, ..., :4], a[1, ..., 4:10], a[2, ..., 10:]), -1)
    c, s = a.cos()[:, :, None], a.sin()[:, :, None]
    one, two = x[..., :16], x[..., 16:]
    return torch.cat((one * c - two * s, two * c + one * s), -1)


def multimodal_kernel(x, place, cuts=(4, 10), order=(0, 1, 2), local=False, base=10000.0, mixed=False):
    i = torch.arange(16)
    axis = torch.tensor(order)[(i >= cuts[0]).long() + (i >= cuts[1]).long()]
    axis = i % 3 if mixed else axis
    power = i - torch.tensor((0, *cuts))[axis] if local else i
    a = place.double()[axis].permute(1, 2, 0) * base ** (-power.double() / 16)
    c, s = (t.to(x.dtype)[:, :, None] for t in (a.cos(), a.sin()))
    one, two = x[..., :16], x[..., 16:]
    return torch.cat((one * c - two * s, two * c + one * s), -1)


right(multimodal_rope, "the axis looked up per frequency, angles in double precision", multimodal_kernel)
doubled(multimodal_rope)
wrong(multimodal_rope, multimodal_kernel, {
    "the first section ends one frequency late": dict(cuts=(5, 10)),
    "rows and columns are exchanged": dict(order=(0, 2, 1)),
    "each section starts again at the highest frequency": dict(local=True),
    "sections are interleaved instead of side by side": dict(mixed=True)})


# ------------------------------------------------------------------ losses

@seventh(lambda d: (d(50, 120, scale=2.0), torch.where(d.rand(50) < 0.2, -100, d.ints(120, 50))))
def cross_entropy_with_z_loss(x, target):
    lse = x.logsumexp(-1)
    kept = target != -100
    loss = F.cross_entropy(x, target, ignore_index=-100, label_smoothing=0.1)
    return loss + 1e-3 * (lse.square() * kept).sum() / kept.sum()


def z_loss_rows(x, target, smooth=0.1, others=False, weight=1e-3, rows=None, all_rows=False, z_all=False, power=2,
                drop=0, total=folded):
    kept = target >= 0
    n = 50 if all_rows else kept.sum()
    top = x.amax(-1)
    lse = total((x - top[:, None]).exp()[:, :120 - drop]).log() + top
    picked = x.gather(1, target.clamp_min(0)[:, None])[:, 0]
    mean = total(x) / 120
    if others:
        mean = (total(x) - picked) / 119
    loss = lse - (1 - smooth) * picked - smooth * mean
    z = lse.abs() ** power
    z = z.sum() / 50 if z_all else (z * kept).sum() / n
    return (loss * kept).sum() / n + weight * z


right(cross_entropy_with_z_loss, "row by row from the log sums", z_loss_rows)
doubled(cross_entropy_with_z_loss)
wrong(cross_entropy_with_z_loss, z_loss_rows, {
    "the z term is averaged over all rows, ignored ones too": dict(z_all=True),
    "smoothing spreads over the 119 other classes": dict(others=True),
    "the mean divides by all 50 rows": dict(all_rows=True),
    "the z term has the log sum to the first power": dict(power=1),
    "the last class is missing from the sum of exponentials": dict(drop=1)})


@seventh(lambda d: (d(40, 32, scale=0.6), d(90, 32), d.ints(90, 40)))
def linear_cross_entropy_gradients(h, w, target):
    p = (h @ w.mT).softmax(-1)
    g = (p - F.one_hot(target, 90).to(p.dtype)) / 40
    return g @ w, g.mT @ h


def linear_loss_chunks(h, w, target, chunk=16, kind=None, over=40.0, tail=True, stale=False, shift=0, no_target=False):
    z = torch.full((40,), -math.inf).to(h.dtype)
    stop = 90 if tail else 80
    for start in range(0, stop, chunk):
        s = h @ w[start:min(start + chunk, stop)].mT
        z = torch.logaddexp(z, s.logsumexp(-1))
    dh, dw = torch.zeros_like(h), torch.zeros_like(w)
    for start in range(0, 90, chunk):
        c = w[start:start + chunk]
        p = (h @ c.mT - z[:, None]).exp()
        hit = torch.arange(start, start + len(c))[None] == (target + shift)[:, None]
        g = (p if no_target else p - hit.to(p.dtype)) / over
        dh = via(g @ c + (0 if stale else dh), kind)
        dw[start:start + chunk] = g.mT @ h
    return dh, dw


right(linear_cross_entropy_gradients, "chunks of 16 classes", linear_loss_chunks)
right(linear_cross_entropy_gradients, "chunks of 45 classes", linear_loss_chunks, chunk=45)
wrong(linear_cross_entropy_gradients, linear_loss_chunks, {
    "the log sums leave out the last 10 classes": dict(tail=False),
    "dh is kept in bf16 between chunks of 2 classes": dict(kind=bf, chunk=2),
    "dh holds the last chunk's part only": dict(stale=True),
    "the gradients are not divided by the number of rows": dict(over=1.0),
    "the target is taken one class late": dict(shift=1)})


@seventh(lambda d: (d(30, 100, dtype=bf, scale=2.0), d(30, 100, dtype=bf, scale=2.0), d.rand(30) > 0.3))
def masked_distillation_kl(student, teacher, mask):
    t = 2.0
    kl = F.kl_div(F.log_softmax(student.float() / t, -1), F.log_softmax(teacher.float() / t, -1),
                  reduction="none", log_target=True).sum(-1)
    return (kl * mask).sum() / mask.sum() * t * t


def distillation_rows(s, t, mask, temp=2.0, factor=4.0, flip=False, over=None, entropy=True, drop=0):
    s, t = (t, s) if flip else (s, t)
    s, t = s / temp, t / temp
    ls, lt = (x - ladder((x - x.amax(-1, keepdim=True)).exp(), 32).log()[:, None] - x.amax(-1, keepdim=True)
              for x in (s, t))
    row = folded((lt.exp() * ((lt if entropy else 0) - ls))[:, :100 - drop])
    return (row * mask).sum() / (over or mask.sum()) * factor


right(masked_distillation_kl, "log softmax in blocks, sum by folding", distillation_rows, into=torch.float32)
right(masked_distillation_kl, "in double precision", distillation_rows, torch.float64, torch.float32)
wrong(masked_distillation_kl, distillation_rows, {
    "the loss is not multiplied by the squared temperature": dict(factor=1.0),
    "student and teacher are exchanged in the divergence": dict(flip=True),
    "the mean is over all rows, masked ones too": dict(over=30),
    "the teacher's entropy is not subtracted": dict(entropy=False),
    "the last 4 classes are left out of the divergence": dict(drop=4)}, into=torch.float32)


@seventh(lambda d: (d(6, 40, scale=0.3, shift=-1.0), d(6, 40, scale=0.3, shift=-1.0), d(6, 40, scale=0.3, shift=-1.0),
                    d(6), d.rand(6, 40) > 0.25))
def grpo_clipped_loss(new, old, ref, reward, mask):
    adv = ((reward - reward.mean()) / (reward.std() + 1e-4))[:, None]
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * adv, ratio.clamp(0.8, 1.28) * adv)
    kl = (ref - new).exp() - (ref - new) - 1
    return (-(gain - 0.04 * kl) * mask).sum() / mask.sum()


def grpo_tokens(new, old, ref, reward, mask, ddof=1, high=1.28, per_row=False, worst=torch.minimum, flip=1, beta=0.04,
                centred=1.0):
    m = reward.sum() / 6
    adv = ((reward - centred * m) / (((reward - m) ** 2).sum() / (6 - ddof)).sqrt().add(1e-4))[:, None]
    ratio = new.exp() / old.exp()
    gain = worst(ratio * adv, ratio.clamp(0.8, high) * adv)
    d = flip * (ref - new)
    loss = beta * (torch.expm1(d) - d) - gain
    if per_row:
        return ((loss * mask).sum(1) / mask.sum(1)).mean()
    return folded(folded(loss * mask)) / mask.sum()


right(grpo_clipped_loss, "ratio of two exponentials, expm1, sums by folding", grpo_tokens)
doubled(grpo_clipped_loss)
wrong(grpo_clipped_loss, grpo_tokens, {
    "the rewards' spread is divided by n": dict(ddof=0),
    "the ratio is clipped at 1.2 above, not at 1.28": dict(high=1.2),
    "each row is averaged by itself first": dict(per_row=True),
    "the larger of the two gains is taken": dict(worst=torch.maximum),
    "the divergence has new and reference exchanged": dict(flip=-1)})
