# SPDX-License-Identifier: Apache-2.0
"""Set Q: softmax and losses."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_twelfth_a import good, lanes, pairwise, twelfth, wrong

# ------------------------------------------------------------------ softmax far from zero


@twelfth(lambda d: (d(64, 500, scale=3, shift=-700.0),))
def twelfth_softmax(x):
    return F.softmax(x, -1)


def by_powers(x):
    """exp by powers of two and a polynomial of degree 6."""
    t = x * 1.4426950408889634
    n = torch.round(t)
    r = (x - n * 0.693359375) + n * 2.12194440e-4
    p = torch.full_like(r, 1 / 720)
    for k in (1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
        p = p * r + k
    return torch.ldexp(p, n.to(torch.int32))


def coarse(x):
    t = x * 1.4426950408889634
    n = torch.floor(t)
    r = (t - n) * 0.6931472
    return torch.ldexp(1 + r * (0.99992807 + r * (0.50240088 + r * 0.16025803)), n.to(torch.int32))


def softmax(x, exp=torch.exp, top=None, count=500, total=pairwise, heat=1.0, last=None):
    m = top(x) if top else x.amax(-1, keepdim=True)
    e = exp((x - m) * heat)
    y = e / total(e[:, :count])[:, None]
    return last(y) if last else y


def online(x, forget=False):
    m, s = torch.full((64, 1), -math.inf), torch.zeros(64, 1)
    for i in range(0, 500, 50):
        part = x[:, i : i + 50]
        new = torch.maximum(m, part.amax(-1, keepdim=True))
        s = s * (1.0 if forget and i == 450 else torch.exp(m - new)) + torch.exp(part - new).sum(-1, keepdim=True)
        m = new
    return torch.exp(x - m) / s


def older(y):
    y = y.clone()
    y[32:, 496:] = y[:32, 496:]
    return y


good(
    twelfth_softmax,
    softmax,
    polynomial_of_degree_six={"exp": by_powers},
    online_by_tiles_of_50=online,
    sums_of_32_lanes={"total": lanes},
)
wrong(
    twelfth_softmax,
    softmax,
    {
        "no maximum is subtracted": {"top": lambda x: torch.zeros(64, 1)},
        "the last 12 lanes are not in the sum": {"count": 488},
        "differences are multiplied by 0.9": {"heat": 0.9},
        "the last four lanes are those of 32 rows before": {"last": older},
        "hides: the sum is not rescaled at the last tile's maximum": lambda x: online(x, True),
        "hides: exp is a polynomial of degree three": {"exp": coarse},
    },
)

# ------------------------------------------------------------------ log softmax, half precision


@twelfth(lambda d: (d(32, 130, dtype=hf, scale=4),))
def twelfth_log_softmax(x):
    return F.log_softmax(x, -1)


def log_softmax(x, base=math.e, late=False, kind=None, axis=-1, keep=130):
    f = x.float()
    m = f.amax(axis, keepdim=True)
    e = torch.exp(f[:, :keep] - m[:, :keep])
    s = lanes(e, 8, kind)[:, None] if axis == -1 else e.sum(axis, keepdim=True)
    return torch.log(torch.exp(f - m) / s) if late else f - m - torch.log(s) / math.log(base)


good(twelfth_log_softmax, log_softmax, hf, as_defined={}, log_of_the_quotient={"late": True})
wrong(
    twelfth_log_softmax,
    log_softmax,
    {
        "the logarithm is to base two": {"base": 2},
        "taken over the other dimension": {"axis": 0},
        "two lanes past 128 are not summed": {"keep": 128},
        "the sum is accumulated in bfloat16": {"kind": bf},
    },
    hf,
)

# ------------------------------------------------------------------ log of a sum of exponentials


@twelfth(lambda d: (d(40, 300, scale=30, shift=60),))
def twelfth_logsumexp(x):
    return torch.logsumexp(x, -1)


def logsumexp(x, top=None, last=300):
    m = top(x) if top else x.amax(-1)
    return m + torch.log(torch.exp(x[:, :last] - m[:, None]).sum(-1))


def folded(x):
    m = x[:, 0]
    for i in range(1, 300):
        m = torch.logaddexp(m, x[:, i])
    return m


good(twelfth_logsumexp, logsumexp, as_defined={}, one_by_one=folded)
wrong(
    twelfth_logsumexp,
    logsumexp,
    {
        "no maximum is subtracted": {"top": lambda x: torch.zeros(40)},
        "only the first 256 are summed": {"last": 256},
        "the maximum alone": lambda x: x.amax(-1),
    },
)

# ------------------------------------------------------------------ cross entropy with smoothing


def classes(d, n=48, c=97, dtype=bf):
    y = d.ints(c, n)
    y[::7] = -100
    return d(n, c, dtype=dtype, scale=2), y


@twelfth(classes)
def twelfth_cross_entropy(x, y):
    return F.cross_entropy(x.float(), y, ignore_index=-100, label_smoothing=0.1)


def cross_entropy(x, y, by=None, others=97, eps=0.1, rows=48, ignored=False, kind=None):
    keep = y >= 0
    lp = x.float() - torch.logsumexp(x.float(), -1, keepdim=True)
    lp = narrow(lp, kind) if kind else lp
    hit = lp.gather(1, y.clamp(min=0)[:, None])[:, 0]
    smooth = lp.sum(-1) / 97 if others == 97 else (lp.sum(-1) - hit) / others
    loss = -(1 - eps) * hit - eps * smooth
    loss = loss if ignored else torch.where(keep, loss, 0.0)
    return loss[:rows].sum() / (by or keep.sum())


def by_chunks(x, y):
    total, count = torch.tensor(0.0), 0
    for i in range(0, 48, 12):
        part = x[i : i + 12].float()
        keep = y[i : i + 12] >= 0
        lse = torch.logsumexp(part, -1)
        hit = part.gather(1, y[i : i + 12].clamp(min=0)[:, None])[:, 0]
        total = total + (lse - 0.9 * hit - 0.1 * part.mean(-1))[keep].sum()
        count += int(keep.sum())
    return total / count


good(twelfth_cross_entropy, cross_entropy, as_defined={}, four_chunks=by_chunks)
wrong(
    twelfth_cross_entropy,
    cross_entropy,
    {
        "the mean is by all rows, ignored ones too": {"by": 48},
        "no label smoothing": {"eps": 0.0},
        "ignored rows count as class zero": {"ignored": True},
        "the last chunk of 12 rows is not added": {"rows": 36},
        "smoothing is shared by the 96 other classes": {"others": 96},
        "hides: log probabilities in bfloat16": {"kind": bf},
    },
)

# ------------------------------------------------------------------ its gradient


@twelfth(lambda d: classes(d, 30, 65, torch.float32))
def twelfth_cross_entropy_backward(x, y):
    keep = (y >= 0).to(x.dtype)
    p = torch.softmax(x, -1) - F.one_hot(y.clamp(min=0), 65).to(x.dtype)
    return p * (keep / keep.sum())[:, None]


def cross_entropy_backward(x, y, sign=1, by=None, zero=True, hit=1.0, kind=None):
    keep = (y >= 0) if zero else torch.ones(30, dtype=torch.bool)
    p = torch.exp(x - torch.logsumexp(x, -1, keepdim=True))
    p = narrow(p, kind) if kind else p
    p[torch.arange(30), y.clamp(min=0)] -= hit
    return sign * torch.where(keep[:, None], p, 0.0) / (by or (y >= 0).sum())


def entropy_autograd(x, y):
    x = x.clone().requires_grad_()
    F.cross_entropy(x, y).backward()
    return x.grad


good(twelfth_cross_entropy_backward, cross_entropy_backward, by_the_logarithm={}, as_released=entropy_autograd)
wrong(
    twelfth_cross_entropy_backward,
    cross_entropy_backward,
    {
        "the sign is turned": {"sign": -1},
        "divided by all rows": {"by": 30},
        "ignored rows have a gradient": {"zero": False},
        "hides: probabilities in bfloat16": {"kind": bf},
    },
)

# ------------------------------------------------------------------ small losses


@twelfth(lambda d: (d(37, scale=2), d.ints(5, 37), d.rand(5) + 0.2))
def twelfth_nll_weighted(x, y, w):
    lp = F.log_softmax(torch.stack([x, -x, x * 0.5, x * 0 + 1, 1 - x], -1), -1)
    return F.nll_loss(lp, y, w)


def nll_weighted(x, y, w, count=False, squared=False, total=False):
    z = torch.stack([x, -x, x * 0.5, x * 0 + 1, 1 - x], -1)
    lp = z - torch.logsumexp(z, -1, keepdim=True)
    k = w[y]
    loss = -(lp[torch.arange(37), y] * (k * k if squared else k)).sum()
    return loss / (37 if count else 1.0 if total else k.sum())


good(twelfth_nll_weighted, nll_weighted, by_logsumexp={})
wrong(
    twelfth_nll_weighted,
    nll_weighted,
    {
        "the mean is by the count, not by the weights": {"count": True},
        "weights are applied twice": {"squared": True},
        "the sum is not divided": {"total": True},
    },
)


@twelfth(lambda d: (d(25, 16, scale=40), (d.rand(25, 16) > 0.5).float(), d.rand(16) * 3))
def twelfth_binary(x, y, pos):
    return F.binary_cross_entropy_with_logits(x, y, pos_weight=pos, reduction="none")


def binary(x, y, pos, naive=False, swap=False, none=False):
    if naive:
        p = torch.sigmoid(x)
        return -(pos * y * torch.log(p) + (1 - y) * torch.log(1 - p))
    low = torch.log1p(torch.exp(-x.abs())) + (-x).clamp(min=0)
    k = 1 + (pos - 1) * (1 - y if swap else y)
    return (1 - y) * x + (1.0 if none else k) * low


good(twelfth_binary, binary, stable={}, by_softplus=lambda x, y, p: p * y * F.softplus(-x) + (1 - y) * F.softplus(x))
wrong(
    twelfth_binary,
    binary,
    {
        "logarithms of a sigmoid that saturates": {"naive": True},
        "the weight is on the negative term": {"swap": True},
        "no weight of positives": {"none": True},
    },
)


@twelfth(lambda d: (d(200, dtype=hf), d(200, dtype=hf)))
def twelfth_smooth_l1(x, y):
    return F.smooth_l1_loss(x.float(), y.float(), beta=0.5)


def smooth_l1(x, y, beta=0.5, huber=False, half=0.5, total=False, n=200):
    e = (x.float() - y.float()).abs()
    loss = torch.where(e < beta, half * e * e / beta, e - 0.5 * beta) * (beta if huber else 1)
    return loss[:n].sum() / (1 if total else 200)


good(twelfth_smooth_l1, smooth_l1, chosen_by_where={}, pairwise=lambda x, y: pairwise(terms(x, y)) / 200)


def terms(x, y):
    e = (x.float() - y.float()).abs()
    m = e.clamp(max=0.5)
    return m * (e - 0.5 * m) * 2


wrong(
    twelfth_smooth_l1,
    smooth_l1,
    {
        "the loss of Huber: by beta less": {"huber": True},
        "beta is one": {"beta": 1.0},
        "a sum for a mean": {"total": True},
        "the last eight elements are not added": {"n": 192},
    },
)


@twelfth(lambda d: (F.log_softmax(d(20, 33), -1), F.softmax(d(20, 33), -1)))
def twelfth_kl(x, y):
    return F.kl_div(x, y, reduction="batchmean")


def kl(x, y, by=20, turn=False, entropy=True):
    p, q = (torch.exp(x), torch.log(y)) if turn else (y, x)
    lp = x if turn else torch.log(y)
    return (p * ((lp if entropy else 0) - q)).sum() / by


good(twelfth_kl, kl, as_defined={}, by_rows=lambda x, y: (y * (y.log() - x)).sum(1).mean())
wrong(
    twelfth_kl,
    kl,
    {
        "divided by elements, not rows": {"by": 660},
        "the divergence is of the other direction": {"turn": True},
        "the target's entropy is not subtracted": {"entropy": False},
    },
)


@twelfth(lambda d: (-d.rand(24) * 40, -d.rand(24) * 40, -d.rand(24) * 40, -d.rand(24) * 40))
def twelfth_preference(chosen, rejected, base_chosen, base_rejected):
    h = 0.1 * ((chosen - base_chosen) - (rejected - base_rejected))
    return -F.logsigmoid(h).mean()


def preference(c, r, bc, br, beta=0.1, base=1, sign=1, smooth=0.0):
    h = sign * beta * ((c - r) - base * (bc - br))
    return ((1 - smooth) * F.softplus(-h) + smooth * F.softplus(h)).sum() / 24


good(twelfth_preference, preference, by_softplus={})
wrong(
    twelfth_preference,
    preference,
    {
        "the reference model is left out": {"base": 0},
        "chosen and rejected are swapped": {"sign": -1},
        "beta is 0.5": {"beta": 0.5},
    },
)
