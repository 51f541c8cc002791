# SPDX-License-Identifier: Apache-2.0
"""Set N: losses and their gradients."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_eleventh_a import eleventh, rough_exp
from .blind_eleventh_d import lanes
from .blind_ninth_a import bad, grads, ok

# ---- cross entropy of the head in chunks, labels left out


def head_args(d):
    y = d.ints(1500, 96)
    y[5:9], y[95] = -100, -100
    return d(96, 64), d(1500, 64, scale=0.25), y


@eleventh(head_args)
def eleventh_head(x, w, y):
    logits = x @ w.T
    lse = torch.logsumexp(logits, -1)
    on = y != -100
    z = (lse.square() * on).sum() / on.sum()
    return F.cross_entropy(logits, y, ignore_index=-100, label_smoothing=0.1) + 1e-4 * z, lse


def head(
    x,
    w,
    y,
    chunk=500,
    smooth=0.1,
    seen=1500,
    all_rows=False,
    over=None,
    kind=None,
    zs=1e-4,
    stale=None,
    z_all=False,
    spread=1500,
    lse_of=None,
):
    top, total, mass = torch.full((96,), -float("inf")), torch.zeros(96), torch.zeros(96)
    hit = torch.zeros(96)
    for j in range(0, seen, chunk):
        s = x @ w[j : j + chunk].T
        s = narrow(s, kind) if kind else s
        new = torch.maximum(top, s.amax(1))
        total = total * (1.0 if j == stale else (top - new).exp()) + (s - new[:, None]).exp().sum(1)
        mass = mass + s.sum(1)
        own = (y >= j) & (y < j + chunk)
        hit = torch.where(own, s.gather(1, (y - j).clamp(0, s.shape[1] - 1)[:, None])[:, 0], hit)
        top = new
    lse = top + total.log()
    lse = lse_of(lse) if lse_of else lse
    on = torch.ones(96, dtype=torch.bool) if all_rows else y != -100
    n = over or on.sum()
    loss = ((1 - smooth) * (lse - hit) + smooth * (lse - mass / spread)) * on
    return (loss.sum() + zs * (lse.square() * (on | z_all)).sum()) / n, lse


ok(eleventh_head, head, three_chunks={}, six_chunks={"chunk": 250}, chunks_of_400={"chunk": 400})
bad(
    eleventh_head,
    head,
    {
        "labels left out are counted in the mean": {"over": 96},
        "the last chunk that is not full is left out": {"chunk": 400, "seen": 1200},
        "smoothing is left out": {"smooth": 0.0},
        "the sum keeps the old maximum in the third chunk": {"stale": 1000},
        # 1e-4 times a square of eighty: a thousandth of the loss
        "hides: there is no z-loss": {"zs": 0.0},
        # 4 % of the z-loss, 4e-5 of the loss
        "hides: rows left out are in the z-loss": {"z_all": True},
        # eight bits of each logit
        "hides: logits of a chunk in bfloat16": {"kind": bf},
        "hides: smoothing is 0.099": {"smooth": 0.099},
    },
)


# ---- gradient of cross entropy, bfloat16 logits


def ce_grad_args(d):
    y = d.ints(2000, 24)
    y[3] = -100
    return d(24, 2000, dtype=bf, scale=2), y


@eleventh(ce_grad_args)
def eleventh_ce_grad(x, y):
    f = lambda x: F.cross_entropy(x, y, ignore_index=-100, label_smoothing=0.05)
    return grads(f, x.float())[0].to(bf)


def ce_grad(x, y, n=23, smooth=0.05, ignore=True, cols=2000, exp=torch.exp, kind=None, uniform=True, hot=1.0):
    x = x.float()
    e = exp(x - x.amax(1, keepdim=True))
    total = e[:, :cols].view(24, -1, 100).sum(-1)
    if kind:
        run = torch.zeros(24)
        for j in range(total.shape[1]):
            run = narrow(run + total[:, j], kind)
        total = run[:, None]
    p = e / total.sum(1, keepdim=True)
    g = p - (smooth / 2000 if uniform else 0.0)
    g.scatter_add_(1, y.clamp(min=0)[:, None], torch.full((24, 1), -(1 - smooth) * hot))
    return (g * (y != -100)[:, None] if ignore else g) / n


ok(eleventh_ce_grad, ce_grad, bf, by_hundreds={}, powers_of_two={"exp": lambda x: torch.exp2(x * 1.4426950408889634)})
bad(
    eleventh_ce_grad,
    ce_grad,
    {
        "the row left out has a gradient": {"ignore": False},
        "divided by all rows": {"n": 24},
        "the last hundred classes are not in the sum": {"cols": 1900},
        # 2.5e-5 where the probabilities themselves are of 1e-4
        "hides: nothing is taken off for smoothing": {"uniform": False},
        # one per cent of the label's own term
        "hides: the label's term is one per cent short": {"hot": 0.99},
        # twenty roundings to eight bits
        "hides: the sum of a row in bfloat16": {"kind": bf},
        "hides: exp by a square": {"exp": lambda x: rough_exp(x, False)},
    },
    bf,
)


# ------------------------------------------------------------------ gradients of the head, fused


def fused_args(d):
    y = d.ints(600, 80)
    y[:3] = -100
    return d(80, 48, dtype=bf), d(600, 48, dtype=bf, scale=0.3), y


@eleventh(fused_args)
def eleventh_fused(x, w, y):
    f = lambda x, w: F.cross_entropy(x @ w.T, y, ignore_index=-100)
    return tuple(g.to(bf) for g in grads(f, x.float(), w.float()))


def fused(x, w, y, rows=16, n=77, kind=None, last=80, soft=None, acc=None, mean_late=False):
    x, w = x.float(), w.float()
    dx, dw = torch.zeros_like(x), torch.zeros_like(w)
    for i in range(0, last, rows):
        at = slice(i, i + rows)
        s = x[at] @ w.T
        p = torch.softmax(soft(s) if soft else s, -1)
        p = p - F.one_hot(y[at].clamp(min=0), 600)
        p = p * (y[at] != -100)[:, None] / (1 if mean_late else n)
        p = narrow(p, kind) if kind else p
        dx[at] = p @ w
        dw = dw + p.T @ x[at]
        dw = narrow(dw, acc) if acc else dw
    return (dx / n, dw / n) if mean_late else (dx, dw)


ok(
    eleventh_fused,
    fused,
    bf,
    rows_by_16={},
    rows_by_40_divided_last={"rows": 40, "mean_late": True},
    at_once={"rows": 80},
)
bad(
    eleventh_fused,
    fused,
    {
        "divided by all rows": {"n": 80},
        "the last sixteen rows have no gradient": {"last": 64},
        # a hundredth of the logits
        "logits are cut at four": {"soft": lambda s: s.clamp(-4, 4)},
        # p - 1 of four bits: p itself underflows
        "hides: gradients of logits through e5m2": {"kind": torch.float8_e5m2},
        # ten roundings to eight bits
        "hides: the weights' gradient in bfloat16 over tiles of four rows": {"rows": 4, "acc": bf},
    },
    bf,
)


# ---- divergence of a teacher at a temperature


@eleventh(lambda d: (d(60, 700, scale=2), d(60, 700, scale=2), d.rand(60) > 0.2))
def eleventh_teacher(s, t, on):
    a, b = torch.log_softmax(s / 2, -1), torch.log_softmax(t / 2, -1)
    return ((b.exp() * (b - a)).sum(-1) * on).sum() / on.sum() * 4, (b.exp() - a.exp()) * on[:, None]


def teacher(s, t, on, temp=2.0, square=True, flip=False, every=False, kind=None, cols=700, exp=torch.exp):
    s, t = (t, s) if flip else (s, t)
    ls, lt = (torch.logsumexp(x / temp, -1, keepdim=True) for x in (s, t))
    ls = narrow(ls, kind) if kind else ls
    a, b = s / temp - ls, t / temp - lt
    kl = lanes((exp(b) * (b - a))[:, :cols])[:, 0]
    n = 60 if every else on.sum()
    return (kl * on).sum() / n * (4 if square else 1), (exp(b) - exp(a)) * on[:, None]


def cross_less_entropy(s, t, on):
    a, b = torch.log_softmax(s / 2, -1), torch.log_softmax(t / 2, -1)
    p = b.exp()
    kl = (p * (t - s)).sum(-1) / 2 - torch.logsumexp(t / 2, -1) + torch.logsumexp(s / 2, -1)
    return (kl * on).sum() * 4 / on.sum(), (p - a.exp()) * on[:, None]


ok(eleventh_teacher, teacher, by_lanes={}, by_logits=cross_less_entropy)
bad(
    eleventh_teacher,
    teacher,
    {
        "the square of the temperature is left out": {"square": False},
        "student and teacher are swapped": {"flip": True},
        "masked rows are in the mean": {"every": True},
        # 4e-3 of a logsumexp of seven is 1e-2 of the loss
        "hides: the student's logsumexp in half precision": {"kind": hf},
        # 1e-4 a probability, and differences of them
        "hides: exp by a cubic": {"exp": rough_exp},
        "hides: the last four classes are not in the loss": {"cols": 696},
    },
)


# ---- group relative policy optimisation


def policy_args(d):
    old = -d.rand(16, 64) * 3
    return old + d(16, 64, scale=0.2), old, old + d(16, 64, scale=0.2), d(16), d.rand(16, 64) > 0.15


@eleventh(policy_args)
def eleventh_policy(new, old, ref, reward, on):
    g = reward.view(4, 4)
    adv = ((g - g.mean(1, keepdim=True)) / (g.std(1, keepdim=True) + 1e-4)).view(16, 1)
    r = (new - old).exp()
    obj = torch.minimum(r * adv, r.clamp(0.8, 1.2) * adv)
    k3 = (ref - new).exp() - (ref - new) - 1
    loss = (-(obj - 0.04 * k3) * on).sum(1) / on.sum(1)
    return loss.mean(), (r * on).sum() / on.sum()


def policy(
    new,
    old,
    ref,
    reward,
    on,
    hi=1.2,
    lo=0.8,
    correction=1,
    by_token=False,
    k=3,
    worst=True,
    beta=0.04,
    kind=None,
    eps=1e-4,
    turn=1,
    safe=False,
):
    g = reward.view(4, 4)
    c = g - g.sum(1, keepdim=True) / 4
    adv = (c / ((c.square().sum(1, keepdim=True) / (4 - correction)).sqrt() + eps)).view(16, 1)
    r = (new - old).exp()
    r = narrow(r, kind) if kind else r
    cut = r.clamp(lo, hi)
    obj = torch.minimum(r * adv, cut * adv) if worst else cut * adv
    d = turn * (ref - new)
    k3 = torch.expm1(d) - d if k == 3 else (0.5 * d * d if k == 2 else -d)
    each = -(obj - beta * k3) * on
    loss = each.sum() / on.sum() if by_token else (each.sum(1) / on.sum(1)).mean()
    return loss, (r * on).sum() / on.sum()


ok(
    eleventh_policy,
    policy,
    with_expm1={},
    in_double=lambda *a: policy(*(t.double() if t.is_floating_point() else t for t in a)),
)
bad(
    eleventh_policy,
    policy,
    {
        "the mean is that of all tokens": {"by_token": True},
        "the deviation lacks Bessel's factor": {"correction": 0},
        "the lesser of the two is not taken": {"worst": False},
        "the divergence is that of the first kind": {"k": 1},
        # a hundredth of the divergence, and that by 0.04
        "hides: the divergence has new and reference swapped": {"turn": -1},
        "hides: the divergence is its half square": {"k": 2},
        "hides: ratios in bfloat16": {"kind": bf},
        "hides: clipped at 1.21": {"hi": 1.21},
    },
)


# ------------------------------------------------------------------ preference pairs


def pair_args(d):
    y = d.ints(300, 12, 20)
    on = torch.arange(20)[None] < torch.randint(5, 20, (12, 1), generator=d.g)
    return d(12, 20, 300), y, on, -d.rand(12) * 50 - 60


@eleventh(pair_args)
def eleventh_pairs(x, y, on, ref):
    lp = (torch.log_softmax(x, -1).gather(2, y[..., None])[..., 0] * on).sum(1)
    d = lp - ref
    return -F.logsigmoid(0.1 * (d[:6] - d[6:])).mean(), lp


def pairs(x, y, on, ref, beta=0.1, late=0, mean=False, sign=1, kind=None, flip=False, soft=None, lse_of=None):
    top = x.amax(-1)
    lse = top + (x - top[..., None]).exp().sum(-1).log()
    lse = lse_of(lse) if lse_of else lse
    token = x.gather(2, y[..., None])[..., 0] - lse
    on = on.roll(late, 1) if late else on
    lp = token * on
    if kind:
        total = torch.zeros(12)
        for t in range(20):
            total = narrow(total + lp[:, t], kind)
        lp = total
    else:
        lp = lanes(lp, 4)[:, 0]
    lp = lp / on.sum(1) if mean else lp
    d = lp - ref
    z = beta * (d[6:] - d[:6] if flip else d[:6] - d[6:])
    return (soft(-z) if soft else z.neg().clamp(min=0) + torch.log1p((-z.abs()).exp())).mean(), lp


ok(eleventh_pairs, pairs, softplus_by_parts={}, softplus={"soft": F.softplus})
bad(
    eleventh_pairs,
    pairs,
    {
        "chosen and rejected are swapped": {"flip": True},
        "the mask is one token late": {"late": 1},
        "tokens are averaged": {"mean": True},
        # a sum of about eighty in eleven bits
        "hides: log probabilities summed in half precision": {"kind": hf},
        # 4e-3 a token
        "hides: the logsumexp in half precision": {"lse_of": lambda t: narrow(t, hf)},
        "hides: beta is 0.099": {"beta": 0.099},
    },
)


# ---- binary cross entropy with weights, and its gradient


@eleventh(lambda d: (d(40, 90, dtype=hf, scale=6), (d.rand(40, 90) > 0.7).to(hf), d.rand(90).to(hf) * 3 + 1))
def eleventh_binary(x, y, pos):
    f = lambda x: F.binary_cross_entropy_with_logits(x, y.float(), pos_weight=pos.float(), reduction="none")
    x = x.float()
    return f(x).to(hf), grads(lambda x: f(x).sum(), x)[0].to(hf)


def binary(
    x, y, pos, unsafe=False, weigh=True, both=False, soft=F.softplus, sig=torch.sigmoid, kind=None, cut=None, tail=90
):
    x, y, pos = x.float(), y.float(), pos.float()
    w = torch.where(torch.arange(90) < tail, pos, 1.0) if weigh else torch.ones(90)
    a, b = y * w, (1 - y) * (w if both else 1.0)
    if unsafe:
        p = narrow(sig(x), kind) if kind else sig(x)
        return -(a * p.log() + b * (1 - p).log()), p * (a + b) - a
    loss = a * soft(-x) + b * soft(x)
    return torch.where(x.abs() > cut, (a * (-x).clamp(min=0) + b * x.clamp(min=0)), loss) if cut else loss, sig(x) * (
        a + b
    ) - a


def slopes_apart(x, y, pos):
    x, y, pos = x.float(), y.float(), pos.float()
    loss = (1 - y) * x + (1 + (pos - 1) * y) * (torch.log1p((-x.abs()).exp()) + (-x).clamp(min=0))
    return loss, torch.where(y > 0, -pos * torch.sigmoid(-x), torch.sigmoid(x))


def apart(x, y, pos):
    """The gradient of a positive is the sigmoid of the other side: no difference of near ones."""
    x, y, pos = x.float(), y.float(), pos.float()
    return y * pos * F.softplus(-x) + (1 - y) * F.softplus(x), (1 - y) * torch.sigmoid(x) - y * pos * torch.sigmoid(-x)


ok(eleventh_binary, apart, hf, by_softplus={}, as_the_framework_has_it=slopes_apart)
bad(
    eleventh_binary,
    binary,
    {
        "positives are not weighed": {"weigh": False},
        "negatives are weighed as well": {"both": True},
        "the log of a sigmoid in half precision": {"unsafe": True, "kind": hf},
        # log(1 - p) loses all above eight: the infinite at 17
        "hides: the log of one less the sigmoid": {"unsafe": True},
        # log1p(exp(-4)) is 0.018
        "hides: the logarithm is left out beyond four": {"cut": 4.0},
        "hides: the last column is not weighed": {"tail": 89},
    },
    hf,
)


# ---- cosine similarity and its gradient, half precision


@eleventh(lambda d: (d(64, 300, dtype=hf, scale=30), d(64, 300, dtype=hf, scale=30), d(64)))
def eleventh_cosine(a, b, dy):
    f = lambda a, b: F.cosine_similarity(a, b, -1, 1e-8)
    a, b = a.float(), b.float()
    return f(a, b), grads(f, a, b, cotangent=dy.to(a.dtype))[0]


def cosine(a, b, dy, n=300, kind=None, term=1.0, project=True, root=None, same=False):
    a, b = a.float(), b.float()
    on = torch.arange(300) < n
    ab, aa, bb = lanes(a * b), lanes(a * a * on), lanes((a * a if same else b * b) * on)
    ab, aa, bb = (narrow(t, kind) for t in (ab, aa, bb)) if kind else (ab, aa, bb)
    r = 1 / (aa.sqrt() * bb.sqrt()) if not root else root(aa) * root(bb)
    c = ab * r
    return c[:, 0], dy[:, None] * (b * r - (term * c * a / aa if project else 0.0))


ok(eleventh_cosine, cosine, by_lanes={}, by_reciprocal_roots={"root": torch.rsqrt})
bad(
    eleventh_cosine,
    cosine,
    {
        "the gradient has no projection": {"project": False},
        "the second norm is the first's": {"same": True},
        "squares overflow half precision": {"kind": hf},
        "hides: norms leave out the last four lanes": {"n": 296},
        "hides: dot products in bfloat16": {"kind": bf},
        # a term of a twentieth
        "hides: the projection is two per cent short": {"term": 0.98},
    },
)


# ------------------------------------------------------------------ contrastive, both ways


@eleventh(lambda d: (F.normalize(d(72, 40), dim=-1), F.normalize(d(72, 40), dim=-1), torch.tensor(14.3)))
def eleventh_contrast(a, b, scale):
    s = a @ b.T * scale
    y = torch.arange(72)
    return (F.cross_entropy(s, y) + F.cross_entropy(s.T, y)) / 2, torch.softmax(s, -1) + torch.softmax(s, 0)


def contrast(a, b, scale, both=True, self_out=False, kind=None, cols=72, temp=None, half=0.5):
    s = a @ b.T * (temp or scale)
    s = narrow(s, kind) if kind else s
    if self_out:
        s = s - torch.diag(s.diag() * 0.5)
    rows, columns = torch.logsumexp(s[:, :cols], 1), torch.logsumexp(s[:cols], 0)
    d = s.diag()
    loss = half * ((rows - d).mean() + (columns - d).mean()) if both else (rows - d).mean()
    return loss, (s - rows[:, None]).exp() + (s - columns).exp()


def contrast_blocks(a, b, scale):
    t = torch.zeros(72, 72)
    for k in range(0, 40, 8):
        t = t + a[:, k : k + 8] @ b[:, k : k + 8].T
    s = t * scale
    p, q = torch.softmax(s, 1), torch.softmax(s, 0)
    return -(p.diag().log() + q.diag().log()).mean() / 2, p + q


ok(eleventh_contrast, contrast, by_logsumexps={}, by_softmaxes=contrast_blocks)
bad(
    eleventh_contrast,
    contrast,
    {
        "one way only": {"both": False},
        "the diagonal is halved": {"self_out": True},
        "the last eight are not in the sums": {"cols": 64},
        "hides: scores in half precision": {"kind": hf},
        "hides: the scale is 14.285714": {"temp": 14.285714},
        "hides: the last one is not in the sums": {"cols": 71},
    },
)
