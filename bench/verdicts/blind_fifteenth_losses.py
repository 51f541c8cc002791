# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: losses of training, of preferences and of distillation."""

import torch
import torch.nn.functional as F

from .blind import bf, hf
from .blind_fifteenth_base import INF, LOG2E, add, hold
from .blind_fourteenth_base import gradients, halves, kahan, lanes, serial, up, wide

# A last layer and the cross entropy of its logits in one, with rows to ignore; its gradient by the way.


def fused(x, w, y):
    return F.cross_entropy(up(x) @ up(w).mT, y, ignore_index=-100)


def fused_kernel(x, w, y, block=40, rescale=True, every=False, kind=None, tail=0, seen=True, off=0):
    top, total, hit = torch.full((len(x),), -INF), torch.zeros(len(x)), torch.zeros(len(x))
    for c in range(0, len(w) - tail, block):
        s = hold(x @ w[c : c + block].mT, kind)
        new = torch.maximum(top, s.amax(-1))
        total = total * (torch.exp(top - new) if rescale else 1) + torch.exp(s - new[:, None]).sum(-1)
        top = new
        inside = (y >= c) & (y < c + s.shape[1])
        at = ((y + off) - c).clamp(0, s.shape[1] - 1)
        hit = torch.where(inside, s.gather(1, at[:, None])[:, 0], hit)
    loss = top + torch.log(total) - hit
    good = y != -100
    loss = loss * good if seen else loss
    return halves(loss) / (len(y) if every else good.sum())


def fused_args(d, kind=torch.float32):
    y = d.ints(200, 64)
    y[::9] = -100
    return d(64, 48, dtype=kind), d(200, 48, dtype=kind, scale=0.3), y


add(
    "fused_cross_entropy",
    fused,
    fused_args,
    fused_kernel,
    right={"blocks of 40 columns": {}, "blocks of 64": {"block": 64}, "in double": wide(fused)},
    wrong={
        "the sum is not rescaled when the maximum grows": {"rescale": False},
        "it divides by all rows, ignored ones among them": {"every": True},
        "ignored rows are not taken out of the sum": {"seen": False},
        "logits are rounded to bfloat16": {"kind": bf},
        "the last 40 columns are lost": {"tail": 40},
        "the target is one column further": {"off": 1},
    },
)

entropy_backward = gradients(lambda x, w, y: F.cross_entropy(x @ w.mT, y, ignore_index=-100), 2)


def entropy_grad(x, w, y, down, every=False, whole=False, kind=None, sign=1, block=16, lost=0):
    good = y != -100
    scale = down / (len(y) if every else good.sum())
    dx, dw = [], torch.zeros_like(w)
    for r in range(0, len(x) - lost, block):  # rows by blocks, each with its logits
        at = slice(r, r + block)
        s = x[at] @ w.mT
        p = torch.exp2((s - s.amax(-1, keepdim=True)) * LOG2E)
        p = hold(p / p.sum(-1, keepdim=True), kind)
        one = F.one_hot(y[at].clamp(min=0), w.shape[0]).float()
        g = (p - sign * one) * scale
        g = g if whole else g * good[at][:, None]
        dx.append(g @ w)
        dw = dw + g.mT @ x[at]
    return F.pad(torch.cat(dx), (0, 0, 0, lost)), dw


add(
    "fused_cross_entropy_backward",
    entropy_backward,
    lambda d: (*fused_args(d), torch.tensor(1.0)),
    entropy_grad,
    right={"blocks of 16 rows": {}, "in double": wide(entropy_backward)},
    wrong={
        "ignored rows get a gradient": {"whole": True},
        "it divides by all rows": {"every": True},
        "probabilities are rounded to float16": {"kind": hf},
        "the target's one is left out": {"sign": 0},
        "the last 16 rows give nothing": {"lost": 16},
    },
)

# Preferences: the logistic loss of two ratios, averaged.


def dpo(chosen, rejected, ref_chosen, ref_rejected):
    margin = 0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return -F.logsigmoid(margin).mean(), 0.1 * (chosen - ref_chosen)


def dpo_kernel(
    chosen,
    rejected,
    ref_chosen,
    ref_rejected,
    beta=0.1,
    swap=False,
    ref=True,
    smooth=0.0,
    hinge=False,
    kind=None,
    total=False,
    half=False,
):
    a, b = chosen - ref_chosen * ref, rejected - ref_rejected * ref
    z = beta * ((b - a) if swap else (a - b))
    loss = torch.log1p(torch.exp(-z.abs())) + (-z).clamp(min=0)
    loss = (1 - z).clamp(min=0) if hinge else loss + smooth * z
    loss = halves(hold(loss, kind))
    return loss / (1 if total else 2 * len(z) if half else len(z)), beta * (rejected - ref_rejected if swap else a)


add(
    "dpo",
    dpo,
    lambda d: tuple(d(300, scale=8.0, shift=-60.0) for _ in range(4)),
    dpo_kernel,
    right={"log1p of an exponential": {}, "in double": wide(dpo)},
    wrong={
        "chosen and rejected are swapped": {"swap": True},
        "the reference is left out": {"ref": False},
        "labels are smoothed by a tenth": {"smooth": 0.1},
        "a hinge in place of the logistic": {"hinge": True},
        "losses are rounded to bfloat16 before they are added": {"kind": bf},
        "the mean is over both answers": {"half": True},
    },
)

# Policies by groups: advantages of a group, clipped ratios, a penalty, masked means.


def grpo(new, old, ref, reward, mask):
    a = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
    a = a.flatten()[:, None]
    ratio = torch.exp(new - old)
    gain = torch.minimum(ratio * a, ratio.clamp(0.8, 1.28) * a)
    kl = torch.exp(ref - new) - (ref - new) - 1
    each = ((gain - 0.04 * kl) * mask).sum(1) / mask.sum(1)
    return -each.mean()


def grpo_kernel(
    new,
    old,
    ref,
    reward,
    mask,
    less=1,
    normed=True,
    most=1.28,
    largest=False,
    beta=0.04,
    tokens=False,
    turned=False,
    masked=True,
    k1=False,
    over_all=False,
):
    r = reward.flatten()[None] if over_all else reward
    c = r - r.mean(1, keepdim=True)
    sd = torch.sqrt((c * c).sum(1, keepdim=True) / (r.shape[1] - less))
    a = (c / (sd + 1e-4) if normed else c).reshape(-1, 1)
    ratio = torch.exp(new - old)
    clip = torch.clamp(ratio, 0.8, most)
    gain = (torch.maximum if largest else torch.minimum)(ratio * a, clip * a)
    x = new - ref if turned else ref - new
    kl = -x if k1 else torch.expm1(x) - x
    m = mask if masked else torch.ones_like(mask)
    got = (gain - beta * kl) * m
    if tokens:
        return -got.sum() / m.sum()
    return -(lanes(got) / lanes(m)).sum() / len(new)


def grpo_args(d):
    new = d(24, 50, scale=0.5, shift=-2)
    n = d.ints(45, 24) + 5
    mask = (torch.arange(50)[None] < n[:, None]).float()
    return new, new + d(24, 50, scale=0.3), new + d(24, 50, scale=0.3), d(4, 6), mask


add(
    "grpo",
    grpo,
    grpo_args,
    grpo_kernel,
    right={"lanes, expm1": {}, "in double": wide(grpo)},
    wrong={
        "deviations divide by n": {"less": 0},
        "advantages are not divided by their deviation": {"normed": False},
        "the upper clip is 1.2": {"most": 1.2},
        "the greater of the two gains is taken": {"largest": True},
        "the penalty's ratio is turned": {"turned": True},
        "the mean is over tokens, not over answers first": {"tokens": True},
        "tokens after the end count": {"masked": False},
        "advantages are of all groups together": {"over_all": True},
    },
)

# Distillation: divergences at a temperature.


def distil(student, teacher):
    p = F.log_softmax(up(teacher) / 2, -1)
    q = F.log_softmax(up(student) / 2, -1)
    return (p.exp() * (p - q)).sum(-1) * 4


def distil_kernel(student, teacher, t=2.0, back=4.0, reverse=False, entropy=True, mean=False, kind=None, one=False):
    def log(x, temperature):
        s = x / temperature
        top = s.amax(-1, keepdim=True)
        return s - (top + torch.log(lanes(torch.exp(s - top))[..., None]))

    p, q = hold(log(teacher, t), kind), hold(log(student, 1.0 if one else t), kind)
    p, q = (q, p) if reverse else (p, q)
    got = torch.exp(p) * (p - q if entropy else -q)
    return lanes(got) * back / (got.shape[-1] if mean else 1)


for form, kind in (("", None), ("_bf16", bf)):
    add(
        "distillation" + form,
        distil if kind is None else lambda *a: distil(*a).to(a[0].dtype),
        lambda d, kind=kind: tuple(d(30, 150, dtype=kind or torch.float32, scale=2.5) for _ in range(2)),
        distil_kernel,
        dtype=kind,
        right={"lanes": {}},
        wrong={
            "the divergence is turned": {"reverse": True},
            "the teacher's entropy is not taken off": {"entropy": False},
            "the student has no temperature": {"one": True},
        }
        if kind
        else {
            "the squared temperature is left out": {"back": 1.0},
            "it is averaged over columns": {"mean": True},
            "logarithms are rounded to float16": {"kind": hf},
            "the temperature is one": {"t": 1.0},
        },
    )

# Smoothed labels with a penalty on the sum of exponentials.


def smooth(x, y):
    lse = torch.logsumexp(x, -1)
    nll = lse - x.gather(1, y[:, None])[:, 0]
    return 0.9 * nll + 0.1 * (lse - x.mean(-1)) + 1e-2 * lse**2


def smooth_kernel(x, y, eps=0.1, z=1e-2, over=None, square=True, base2=False, total=kahan):
    top = x.amax(-1)
    e = torch.exp2((x - top[:, None]) * LOG2E)
    lse = top + (torch.log2(total(e)) if base2 else torch.log(total(e)))
    n = over or x.shape[-1]
    mean = total(x) / n
    return lse - (1 - eps) * x.gather(1, y[:, None])[:, 0] - eps * mean + z * (lse * lse if square else lse.abs())


add(
    "smoothed_labels",
    smooth,
    lambda d: (d(50, 120, scale=2.0, shift=1.0), d.ints(120, 50)),
    smooth_kernel,
    right={"compensated": {}, "lanes": {"total": lanes}, "in double": wide(smooth)},
    wrong={
        "the smoothed part divides by n - 1": {"over": 119},
        "the penalty is not squared": {"square": False},
        "the logarithm is of base two": {"base2": True},
        "the smoothing is 0.05": {"eps": 0.05},
        "sums are rounded to float16 as they grow": {"total": lambda x: serial(x, hf)},
    },
)

# Contrast of images and texts, in both directions.


def contrast(a, b, scale):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    s = a @ b.mT * torch.exp(scale)
    at = torch.arange(len(a))
    return (F.cross_entropy(s, at) + F.cross_entropy(s.mT, at)) / 2


def contrast_kernel(a, b, scale, one=False, normed=True, plain=False, half=True, kind=None, off=0):
    if normed:
        a, b = (hold(t / torch.sqrt(lanes(t * t))[:, None], kind) for t in (a, b))
    s = a @ b.mT * (scale if plain else torch.exp(scale))
    side = lambda t: torch.log(torch.exp(t - t.amax(1, keepdim=True)).sum(1)) + t.amax(1) - t.roll(off, 1).diagonal()
    rows, cols = side(s), side(s.mT)
    return (halves(rows) + (halves(rows if one else cols))) / (len(a) * (2 if half else 1))


add(
    "contrast",
    contrast,
    lambda d: (d(48, 40), d(48, 40), torch.tensor(2.6)),
    contrast_kernel,
    right={"lanes and halves": {}, "in double": wide(contrast)},
    wrong={
        "the rows' loss is counted for both directions": {"one": True},
        "the scale is not raised to a power": {"plain": True},
        "directions are added, not averaged": {"half": False},
        "unit vectors are rounded to bfloat16": {"kind": bf},
        "targets are one further": {"off": -1},
    },
)
