# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels of training, written blind: optimizers, losses, quantizers, poolings, gradients."""

import torch
import torch.nn.functional as F

from .blind import family, hf, mistake, narrow, slow_matmul

# ------------------------------------------------------------------ optimizers


@family(lambda d: (d(40, 8), d(40, 8, scale=0.1), d(40, 8, scale=0.1), d(40, 8, scale=0.01).pow(2), 7))
def adamw(
    p,
    g,
    m,
    v,
    step,
    lr=1e-2,
    b1=0.9,
    b2=0.99,
    eps=1e-8,
    wd=0.1,
    coupled=False,
    fix1=True,
    fix2=True,
    inside=False,
    late=0,
    root=True,
):
    if coupled:
        g = g + wd * p
    else:
        p = p * (1 - lr * wd)
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    t = step + late
    mh = m / (1 - b1**t) if fix1 else m
    vh = v / (1 - b2**t) if fix2 else v
    den = (vh + eps).sqrt() if inside else (vh.sqrt() if root else vh) + eps
    return p - lr * mh / den, m, v


mistake(adamw, "weight decay coupled (L2 in the gradient)", coupled=True)
mistake(adamw, "no bias correction of the first moment", fix1=False)
mistake(adamw, "no bias correction of the second moment", fix2=False)
mistake(adamw, "weight decay left out", wd=0.0)
mistake(adamw, "step count one too low in the bias correction", late=-1)
mistake(adamw, "betas exchanged", b1=0.99, b2=0.9)
mistake(adamw, "eps inside the root, 1e-8", inside=True)
mistake(
    adamw,
    "second moment stored in bfloat16",
    lambda p, g, m, v, s: (adamw(p, g, m, v, s)[0], adamw(p, g, m, v, s)[1], narrow(adamw(p, g, m, v, s)[2])),
)
mistake(
    adamw,
    "learning rate not applied to weight decay",
    lambda p, g, m, v, s: (adamw(p, g, m, v, s, wd=0.0)[0] - 0.1 * p, *adamw(p, g, m, v, s)[1:]),
)


@family(lambda d: (d(64), d(64, scale=0.2), d(64, scale=0.2)))
def sgd_momentum(p, g, buf, lr=0.1, mu=0.9, damp=0.0, nesterov=True, wd=0.01):
    g = g + wd * p
    buf = mu * buf + (1 - damp) * g
    return p - lr * (g + mu * buf if nesterov else buf), buf


mistake(sgd_momentum, "nesterov left out", nesterov=False)
mistake(sgd_momentum, "dampening 0.9 applied", damp=0.9)
mistake(sgd_momentum, "weight decay subtracted instead of added", wd=-0.01)
mistake(
    sgd_momentum,
    "momentum of the old buffer in the nesterov step",
    lambda p, g, b: (p - 0.1 * (g + 0.01 * p + 0.9 * b), 0.9 * b + g + 0.01 * p),
)


@family(lambda d: (d(30, 20), d(30, 20, scale=0.3), d(30, 20, scale=0.3)))
def lion(p, g, m, lr=1e-3, b1=0.9, b2=0.99, wd=0.1, sign=True, order=False):
    c = b1 * m + (1 - b1) * g
    u = c.sign() if sign else c
    return p - lr * (u + wd * p), b2 * m + (1 - b2) * g


mistake(lion, "sign left out", sign=False)
mistake(lion, "momentum uses b1 instead of b2", lambda p, g, m: (lion(p, g, m)[0], 0.9 * m + 0.1 * g))


@family(lambda d: ([d(8, 5, scale=3.0), d(7, scale=2.0), d(3, 4)],))
def clip_grads(grads, limit=1.0, kind="2"):
    if kind == "max":
        norm = torch.stack([g.abs().max() for g in grads]).max()
    elif kind == "sq":
        norm = torch.stack([g.pow(2).sum() for g in grads]).sum()
    else:
        norm = torch.stack([g.norm() for g in grads]).norm()
    return [g * (limit / (norm + 1e-6)).clamp(max=1.0) for g in grads]


mistake(clip_grads, "max norm instead of 2-norm", kind="max")
mistake(clip_grads, "root of the summed squares left out", kind="sq")
mistake(
    clip_grads,
    "the last gradient is not counted in the norm",
    lambda g: [t * (1.0 / (torch.stack([x.norm() for x in g[:2]]).norm() + 1e-6)).clamp(max=1.0) for t in g],
)


# ------------------------------------------------------------------ losses


@family(lambda d: (d(20, 30, scale=2.0), d.ints(30, 20)))
def smoothed_ce(logits, target, smooth=0.1, mean=True, others=False):
    logp = logits.log_softmax(-1)
    nll = -logp.gather(-1, target[:, None])[:, 0]
    n = logits.shape[-1]
    flat = -(logp.sum(-1) + nll) / (n - 1) if others else -logp.mean(-1)
    loss = (1 - smooth) * nll + smooth * flat
    return loss.mean() if mean else loss.sum()


mistake(smoothed_ce, "no label smoothing", smooth=0.0)
mistake(smoothed_ce, "sum instead of mean", mean=False)
mistake(smoothed_ce, "smoothing only over the other classes", others=True)
mistake(smoothed_ce, "mean over the batch plus one", lambda l, t: smoothed_ce(l, t, mean=False) / 21)


def _ignored(d):
    target = d.ints(12, 40)
    target[::5] = -100
    return d(40, 12), target, d.rand(12) + 0.5


@family(_ignored)
def weighted_ce(logits, target, weight):
    return F.cross_entropy(logits, target, weight, ignore_index=-100)


mistake(
    weighted_ce,
    "divides by the batch, not by the weights kept",
    lambda l, t, w: F.cross_entropy(l, t, w, reduction="sum") / 40,
)
mistake(
    weighted_ce,
    "divides by the count kept, not by the weights",
    lambda l, t, w: F.cross_entropy(l, t, w, reduction="sum") / 32,
)
mistake(weighted_ce, "class weights left out", lambda l, t, w: F.cross_entropy(l, t))
mistake(weighted_ce, "ignored rows counted as class 0", lambda l, t, w: F.cross_entropy(l, t.clamp(min=0), w))


@family(lambda d: (d(50, 6), (d.rand(50, 6) > 0.8).float()))
def focal(logits, target, gamma=2.0, alpha=0.25, plain=False, swapped=False):
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p = logits.sigmoid()
    pt = p * target + (1 - p) * (1 - target)
    a = alpha * target + (1 - alpha) * (1 - target)
    if swapped:
        a = 1 - a
    return ((1.0 if plain else a) * (1 - pt) ** gamma * ce).mean()


mistake(focal, "alpha exchanged between classes", swapped=True)
mistake(focal, "gamma 1 instead of 2", gamma=1.0)
mistake(focal, "alpha weighting left out", plain=True)


@family(lambda d: (d(24, 10), d(24, 10), 2.0))
def distill(student, teacher, temp, square=True, swap=False, over="batch"):
    p, q = (student / temp).log_softmax(-1), (teacher / temp).log_softmax(-1)
    if swap:
        p, q = q, p
    kl = (q.exp() * (q - p)).sum() / (student.shape[0] if over == "batch" else student.numel())
    return kl * temp**2 if square else kl


mistake(distill, "temperature not squared back", square=False)
mistake(distill, "arguments of the divergence exchanged", swap=True)
mistake(distill, "mean over all elements, not over the batch", over="all")
mistake(
    distill,
    "temperature not applied to the teacher",
    lambda s, t, c: (t.softmax(-1) * (t.log_softmax(-1) - (s / 2).log_softmax(-1))).sum() / 24 * 4,
)


@family(lambda d: (d(16, 12), d(16, 12)))
def info_nce(a, b, temp=0.1, normal=True, both=True):
    if normal:
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    s = a @ b.t() / temp
    t = torch.arange(a.shape[0])
    one = F.cross_entropy(s, t)
    return (one + F.cross_entropy(s.t(), t)) / 2 if both else one


mistake(info_nce, "only one direction", both=False)
mistake(info_nce, "not normalised", normal=False)
mistake(info_nce, "temperature 1 (left out)", temp=1.0)


@family(lambda d: (d(30), d(30)))
def huber(a, b):
    return F.huber_loss(a, b, reduction="none", delta=0.7)


mistake(huber, "smooth l1 (divided by delta)", lambda a, b: F.smooth_l1_loss(a, b, reduction="none", beta=0.7))
mistake(
    huber,
    "linear part without the offset",
    lambda a, b: torch.where((a - b).abs() < 0.7, 0.5 * (a - b) ** 2, 0.7 * (a - b).abs()),
)
mistake(huber, "delta 1 instead of 0.7", lambda a, b: F.huber_loss(a, b, reduction="none", delta=1.0))


# ------------------------------------------------------------------ quantisers


@family(lambda d: (d(20, 64, scale=2.0),))
def int8_rows(x, levels=127.0, axis=True, floor=False, clip=None):
    s = x.abs().amax(-1, keepdim=True) / levels if axis else x.abs().max() / levels
    q = (x / s).floor() if floor else (x / s).round()
    return q.clamp(-levels, levels) * s


mistake(int8_rows, "scale of the whole tensor instead of each row", axis=False)
mistake(int8_rows, "floor instead of round", floor=True)
mistake(
    int8_rows,
    "trunc instead of round",
    lambda x: (x / (x.abs().amax(-1, keepdim=True) / 127)).trunc() * (x.abs().amax(-1, keepdim=True) / 127),
)
mistake(int8_rows, "128 levels instead of 127", levels=128.0)


@family(lambda d: (d(8, 128, scale=0.5, dtype=hf), d(64, 128, scale=0.05)))
def int4_linear(x, w, group=32, offset=0.0, mix=False):
    g = w.reshape(w.shape[0], -1, group)
    s = g.abs().amax(-1, keepdim=True) / 7
    q = (g / s).round().clamp(-8, 7) + offset
    if mix:
        s = s.roll(1, 1)
    return x.to(w.dtype) @ (q * s).reshape(w.shape).t()


mistake(int4_linear, "scale of the neighbouring group", mix=True)
mistake(int4_linear, "zero point off by one", offset=1.0)
mistake(int4_linear, "groups of 64 instead of 32", group=64)
mistake(int4_linear, "last group of 32 left out of the sum", lambda x, w: int4_linear(x[:, :96], w[:, :96]))
mistake(
    int4_linear, "accumulated in float16", lambda x, w: slow_matmul(x.float(), int4_linear(torch.eye(128), w), hf, 8)
)


@family(lambda d: (d(16, 48), d(24, 48)))
def fp8_linear(x, w, cast=True, swap=False):
    sx, sw = x.abs().max() / 448, w.abs().max() / 448
    if cast:
        qx = (x / sx).to(torch.float8_e4m3fn).to(x.dtype)
        qw = (w / sw).to(torch.float8_e4m3fn).to(x.dtype)
    return qx @ qw.t() * (sx * sw)


mistake(fp8_linear, "weight's scale left out", lambda x, w: fp8_linear(x, w) / (w.abs().max() / 448))
mistake(
    fp8_linear,
    "scales added instead of multiplied",
    lambda x, w: (
        fp8_linear(x, w) / (x.abs().max() / 448 * (w.abs().max() / 448)) * (x.abs().max() / 448 + w.abs().max() / 448)
    ),
)


# ------------------------------------------------------------------ poolings, images


@family(lambda d: (d(2, 3, 11, 11),))
def avg_pool(x, pad=True):
    return F.avg_pool2d(x, 3, 2, 1, count_include_pad=pad)


mistake(avg_pool, "padding not counted in the divisor", pad=False)
mistake(avg_pool, "max instead of average", lambda x: F.max_pool2d(x, 3, 2, 1))
mistake(avg_pool, "sum instead of average", lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=1))


@family(lambda d: (d(2, 3, 12, 12),))
def max_pool_zero(x):
    return F.max_pool2d(x - 1.0, 3, 2, 1)


mistake(max_pool_zero, "padded with zeros instead of -inf", lambda x: F.max_pool2d(F.pad(x - 1.0, (1, 1, 1, 1)), 3, 2))
mistake(
    max_pool_zero,
    "window 2 instead of 3",
    lambda x: F.max_pool2d(F.pad(x - 1.0, (1, 0, 1, 0), value=-9e9), 2, 2)[..., :6, :6],
)


@family(lambda d: (d(2, 5, 14, 10),))
def resize(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


mistake(resize, "aligned corners", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True))
mistake(resize, "nearest instead of bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"))


@family(lambda d: (d(3, 20, 16), d.rand(3, 20) > 0.4))
def masked_mean(x, keep, all_count=False, extra=0.0):
    m = keep.to(x.dtype)[..., None]
    n = x.shape[1] if all_count else m.sum(1) + extra
    return (x * m).sum(1) / n


mistake(masked_mean, "divides by the length, not by the count kept", all_count=True)
mistake(masked_mean, "mask ignored", lambda x, k: x.mean(1))
mistake(
    masked_mean,
    "first token always kept",
    lambda x, k: masked_mean(x, torch.cat((torch.ones(3, 1, dtype=torch.bool), k[:, 1:]), 1)),
)


@family(lambda d: (d(2, 4, 9, 9), d(6, 4, 3, 3), d(6)))
def conv2d(x, w, b):
    return F.conv2d(x, w, b, stride=2, padding=1)


mistake(conv2d, "padding 0 with the output shifted", lambda x, w, b: F.conv2d(F.pad(x, (0, 2, 0, 2)), w, b, stride=2))
mistake(conv2d, "kernel flipped", lambda x, w, b: F.conv2d(x, w.flip(-1, -2), b, stride=2, padding=1))
mistake(
    conv2d,
    "replicated border instead of zeros",
    lambda x, w, b: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), w, b, stride=2),
)
mistake(conv2d, "last input channel left out", lambda x, w, b: F.conv2d(x[:, :3], w[:, :3], b, stride=2, padding=1))
mistake(conv2d, "weights rounded to float16", lambda x, w, b: F.conv2d(x, narrow(w, hf), b, stride=2, padding=1))


# ------------------------------------------------------------------ activations and fused pieces


@family(lambda d: (d(10, 64), d(10, 64)))
def swiglu(a, b):
    return F.silu(a) * b


mistake(swiglu, "gate and value exchanged", lambda a, b: F.silu(b) * a)
mistake(swiglu, "sigmoid instead of silu", lambda a, b: a.sigmoid() * b)
mistake(swiglu, "sigmoid(1.702 x) x (quick gelu) instead of silu", lambda a, b: a * (1.702 * a).sigmoid() * b)


@family(lambda d: (d(200, scale=3.0),))
def gelu(x):
    return F.gelu(x)


mistake(gelu, "tanh approximation", lambda x: F.gelu(x, approximate="tanh"))
mistake(gelu, "quick gelu", lambda x: x * (1.702 * x).sigmoid())
mistake(gelu, "erf without dividing by sqrt(2)", lambda x: 0.5 * x * (1 + x.erf()))


@family(lambda d: (d(8, 32), d(48, 32), d(48), d(8, 48)))
def linear_residual(x, w, b, r, scale=1.0):
    return r + scale * F.gelu(F.linear(x, w, b))


mistake(linear_residual, "residual left out", lambda x, w, b, r: F.gelu(F.linear(x, w, b)))
mistake(linear_residual, "residual added before the activation", lambda x, w, b, r: F.gelu(F.linear(x, w, b) + r))
mistake(linear_residual, "bias added after the activation", lambda x, w, b, r: r + F.gelu(F.linear(x, w)) + b)
mistake(linear_residual, "last 8 of K=32 not added", lambda x, w, b, r: r + F.gelu(F.linear(x[:, :24], w[:, :24], b)))


@family(lambda d: (d(300, scale=1e-3),))
def log_one_plus(x):
    return torch.log1p(x.abs()) - torch.expm1(x) * 0.5


mistake(log_one_plus, "log(1+x) in place of log1p", lambda x: torch.log(1 + x.abs()) - torch.expm1(x) * 0.5)
mistake(log_one_plus, "exp(x)-1 in place of expm1", lambda x: torch.log1p(x.abs()) - (x.exp() - 1) * 0.5)


@family(lambda d: (d(6, 3, 20), d(20, 3), d(3)))
def lora(x, a, b, rank=3, alpha=6.0):
    return x + (x @ a) @ a.t() * (alpha / rank) + b.sum()


mistake(lora, "alpha not divided by rank", lambda x, a, b: lora(x, a, b, rank=1))
mistake(lora, "scaled twice", lambda x, a, b: lora(x, a, b, alpha=12.0))


# ------------------------------------------------------------------ gradients, segments, embeddings


@family(lambda d: (d(12, 40), d(12, 40)))
def softmax_grad(g, x):
    y = x.softmax(-1)
    return y * (g - (g * y).sum(-1, keepdim=True))


mistake(softmax_grad, "row sum not subtracted", lambda g, x: x.softmax(-1) * g)
mistake(softmax_grad, "row sum of g alone", lambda g, x: x.softmax(-1) * (g - g.sum(-1, keepdim=True)))
mistake(
    softmax_grad,
    "row sum over the first 32 of 40",
    lambda g, x: x.softmax(-1) * (g - (g * x.softmax(-1))[:, :32].sum(-1, keepdim=True)),
)


@family(lambda d: (d(12, 40), d(12, 40), d(40)))
def rms_grad(g, x, w):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    gw = g * w
    return r * (gw - x * r * r * (gw * x).mean(-1, keepdim=True))


mistake(rms_grad, "second term left out", lambda g, x, w: torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * g * w)
mistake(
    rms_grad,
    "sum instead of mean in the second term",
    lambda g, x, w: (lambda r: r * (g * w - x * r * r * (g * w * x).sum(-1, keepdim=True)))(
        torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    ),
)
mistake(
    rms_grad,
    "weight left out of the second term",
    lambda g, x, w: (lambda r: r * (g * w - x * r * r * (g * x).mean(-1, keepdim=True)))(
        torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    ),
)


@family(lambda d: (d(20, 6), d.ints(5, 20)))
def segment_mean(x, seg):
    total = torch.zeros(5, x.shape[1], dtype=x.dtype).index_add(0, seg, x)
    count = torch.zeros(5, dtype=x.dtype).index_add(0, seg, torch.ones(20, dtype=x.dtype))
    return total / count[:, None]


mistake(segment_mean, "sum instead of mean", lambda x, s: torch.zeros(5, 6).index_add(0, s, x))
mistake(
    segment_mean,
    "lost updates: only the last of each segment is kept",
    lambda x, s: torch.zeros(5, 6).index_copy(0, s, x),
)
mistake(
    segment_mean,
    "the last row is not added",
    lambda x, s: torch.zeros(5, 6).index_add(0, s[:19], x[:19]) / torch.bincount(s, minlength=5).float()[:, None],
)


@family(lambda d: (d.ints(50, 4, 9), d(50, 16), d(9, 16)))
def embed(index, table, pos):
    return F.embedding(index, table) * 4.0 + pos


mistake(embed, "not scaled by sqrt(d)", lambda i, t, p: F.embedding(i, t) + p)
mistake(embed, "positions one late", lambda i, t, p: F.embedding(i, t) * 4 + p.roll(1, 0))
mistake(embed, "index off by one (1-based)", lambda i, t, p: F.embedding((i - 1) % 50, t) * 4 + p)


@family(lambda d: (d(5, 10, 8), d(24, 8), d(24, 8), d(24), d(24)))
def gru(x, wi, wh, bi, bh, outside=True, swap=False, lag=False):
    h = torch.zeros(x.shape[0], 8, dtype=x.dtype)
    for t in range(x.shape[1]):
        ir, iz, n = F.linear(x[:, t], wi, bi).chunk(3, -1)
        hr, hz, hn = F.linear(h, wh, bh).chunk(3, -1)
        r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
        if swap:
            r, z = z, r
        n = (n + r * hn).tanh() if outside else (n + F.linear(r * h, wh[16:], bh[16:])).tanh()
        h = z * n + (1 - z) * h if lag else (1 - z) * n + z * h
    return h


mistake(gru, "reset gate applied before the product", outside=False)
mistake(gru, "gates r and z exchanged", swap=True)
mistake(gru, "z and 1 - z exchanged", lag=True)
mistake(gru, "hidden bias left out", lambda x, wi, wh, bi, bh: gru(x, wi, wh, bi, torch.zeros_like(bh)))
