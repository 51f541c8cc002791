# SPDX-License-Identifier: Apache-2.0
"""Set M: norms and their gradients."""

import torch

from .blind import bf, hf, narrow
from .blind_ninth_a import bad, grads, ok
from .blind_tenth_a import tenth

F = torch.nn.functional


# ------------------------------------------------------------------ residual and rms norm, both returned


@tenth(lambda d: (d(24, 320, dtype=bf), d(24, 320, dtype=bf), d(320, dtype=bf, shift=1.0, scale=0.1)))
def tenth_add_rms16(x, r, w):
    h = x.float() + r.float()
    return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * w.float()).to(bf), h.to(bf)


def add_rms16(x, r, w, tile=320, kind=None, width=320, one=0.0, lost=0, twice=False):
    h = x.float() + r.float()
    kept = narrow(h) if twice else h
    total = torch.zeros(24, 1)
    for j in range(0, 320 - lost, tile):
        total = total + kept[:, j : j + tile].square().sum(-1, keepdim=True)
        total = narrow(total, kind) if kind else total
    return kept * torch.rsqrt(total / width + 1e-6) * (w.float() + one), h


ok(tenth_add_rms16, add_rms16, bf, at_once={}, by_64={"tile": 64}, by_five={"tile": 5})
bad(
    tenth_add_rms16,
    add_rms16,
    {
        # Gemma's 1 + w
        "the weight is one more": {"one": 1.0},
        # divided by the padded width
        "divided by the padded width of 384": {"width": 384},
        # 320 = 2 * 128 + 64: the tail is lost
        "the last 64 squares are left out": {"tile": 128, "lost": 64},
        # the sum of squares in bfloat16
        "hides: squares summed in bfloat16": {"tile": 4, "kind": bf},
        # one element in 320 is left out: one block's last thread
        "hides: the last square is left out": {"tile": 1, "lost": 8},
    },
    bf,
)


# ------------------------------------------------------------------ layer norm of half precision, far from zero


@tenth(lambda d: (d(16, 512, dtype=hf, scale=0.5, shift=20.0), d(512, dtype=hf), d(512, dtype=hf)))
def tenth_layer_norm_far16(x, w, b):
    return F.layer_norm(x.float(), (512,), w.float(), b.float(), 1e-5).to(hf)


def layer_norm_far16(x, w, b, kind=None, one_pass=False, eps=1e-5, n=512, outside=False, lanes=512, shift=False):
    x, w, b = x.float(), w.float(), b.float()
    if shift:
        x = x - x[:, :1]
    mean = x.sum(-1, keepdim=True) / 512
    mean = narrow(mean, kind) if kind else mean
    if one_pass:
        squares = narrow(x.square(), hf).sum(-1, keepdim=True) / 512
        var = squares - mean.square()
    else:
        var = (x - mean)[:, :lanes].square().sum(-1, keepdim=True) / n
    r = 1 / (var.sqrt() + eps) if outside else torch.rsqrt(var + eps)
    return (x - mean) * r * w + b


def welford_rows(x, w, b):
    x = x.float()
    mean, m2 = torch.zeros(16), torch.zeros(16)
    for n in range(512):
        d = x[:, n] - mean
        mean = mean + d / (n + 1)
        m2 = m2 + d * (x[:, n] - mean)
    return (x - mean[:, None]) * torch.rsqrt(m2 / 512 + 1e-5)[:, None] * w.float() + b.float()


ok(
    tenth_layer_norm_far16,
    layer_norm_far16,
    hf,
    two_passes={},
    shifted_by_the_first_element={"shift": True},
    welford=welford_rows,
)
bad(
    tenth_layer_norm_far16,
    layer_norm_far16,
    {
        # x.var(-1)
        "the variance is unbiased": {"n": 511},
        # mean of squares, the squares in half precision
        "squares in half precision, less the mean's": {"one_pass": True},
        # the mean goes through shared memory of half precision
        "hides: the mean is kept in half precision": {"kind": hf},
        # eps beside the root
        "hides: eps is added to the root": {"outside": True, "eps": 1e-3},
        # the second moment of 511 elements
        "hides: the variance leaves out the last element": {"lanes": 511},
    },
    hf,
)


# ------------------------------------------------------------------ gradients of rms norm


@tenth(lambda d: (d(40, 96), d(96, shift=1.0, scale=0.3), d(40, 96)))
def tenth_rms_grad(x, w, g):
    return grads(lambda x, w: F.rms_norm(x, (96,), w, 1e-5), x, w, cotangent=g)


def rms_grad(x, w, g, power=3, n=96, rows=40, kind=None, weighted=True, order=None, hat=True, tile=40):
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    gw = g * w if weighted else g
    c = (gw * x).sum(-1, keepdim=True) / n
    dx = r * gw - x * r**power * c
    each = (g * x * (r if hat else 1.0))[:rows]
    dw = torch.zeros(96)
    for i in range(0, rows, tile):
        dw = dw + each[i : i + tile].sum(0)
        dw = narrow(dw, kind) if kind else dw
    return dx, dw


ok(tenth_rms_grad, rms_grad, in_one_go={}, rows_by_three={"tile": 3})
bad(
    tenth_rms_grad,
    rms_grad,
    {
        # r^2 for r^3
        "the correction has the square of r": {"power": 2},
        # the mean over the features is a sum over rows
        "the correction is divided by the number of rows": {"n": 40},
        # g without w in the correction
        "the gradient does not pass the weight": {"weighted": False},
        # blocks of 16 rows: 40 // 16 * 16
        "dw leaves out the last eight rows": {"rows": 32},
        # atomics of bfloat16
        "hides: dw is summed in bfloat16": {"kind": bf, "tile": 4},
        # of 40 rows the last is lost
        "hides: dw leaves out the last row": {"rows": 39},
    },
)


# ------------------------------------------------------------------ group norm and silu in one kernel


@tenth(lambda d: (d(3, 24, 7, 9, shift=1.0), d(24), d(24)))
def tenth_group_silu(x, w, b):
    return F.silu(F.group_norm(x, 6, w, b, 1e-5))


def group_silu(x, w, b, groups=6, n=252, sig=None, turn=None, act=True, parts=1, exact=True):
    y = x.view(3, groups, -1) if turn is None else turn(x)
    mean = sum(p.sum(-1, keepdim=True) for p in y.chunk(parts, -1)) / y.shape[-1]
    var = sum((p - mean).square().sum(-1, keepdim=True) for p in y.chunk(parts, -1)) / n
    y = ((y - mean) * torch.rsqrt(var + 1e-5)).view(3, groups, -1)
    y = y.view(3, 24, 7, 9) if turn is None else y.view(3, 6, 4, 63).transpose(1, 2).reshape(3, 24, 7, 9)
    y = y * w.view(24, 1, 1) + b.view(24, 1, 1)
    if not act:
        return y
    return y * (sig(y) if sig else 1 / (1 + (-y).exp()))


ok(
    tenth_group_silu,
    group_silu,
    exp_and_divide={},
    in_seven_parts={"parts": 7},
    half_a_tanh={"sig": lambda y: 0.5 * (1 + torch.tanh(y / 2)), "parts": 2},
)
bad(
    tenth_group_silu,
    group_silu,
    {
        # channels are dealt out in turn
        "channels are grouped in turn": {
            "turn": lambda x: x.view(3, 4, 6, 63).transpose(1, 2).reshape(3, 6, 252),
        },
        # the unbiased variance
        "the variance is divided by one less": {"n": 251},
        # the epilogue is skipped
        "no silu": {"act": False},
        # the swish of 1.702
        "the sigmoid is that of quick gelu": {"sig": lambda y: torch.sigmoid(1.702 * y)},
        # hard swish in the place of silu's tails
        "hides: below minus four it is zero": {"sig": lambda y: torch.sigmoid(y) * (y > -4)},
        # the sigmoid in bfloat16
        "hides: the sigmoid in bfloat16": {"sig": lambda y: narrow(torch.sigmoid(y))},
    },
)


# ------------------------------------------------------------------ batch norm while training, state and all


@tenth(lambda d: (d(10, 12, 5, 5, shift=2.0), d(12), d(12), d(12), d.rand(12) + 0.5))
def tenth_batch_state(x, w, b, rm, rv):
    rm, rv = rm.clone(), rv.clone()
    y = F.batch_norm(x, rm, rv, w, b, True, 0.1, 1e-3)
    return y, rm, rv


def batch_state(x, w, b, rm, rv, n=250, unbiased=True, momentum=0.1, root=False, eps=1e-3, sums=1, stale=False):
    mean = sum(p.sum((0, 2, 3)) for p in x.chunk(sums, 0)) / 250
    at = rm if stale else mean
    m2 = sum((p - mean.view(12, 1, 1)).square().sum((0, 2, 3)) for p in x.chunk(sums, 0))
    var = m2 / n
    y = (x - at.view(12, 1, 1)) * (w * torch.rsqrt(var + eps)).view(12, 1, 1) + b.view(12, 1, 1)
    kept = m2 / 249 if unbiased else var
    kept = kept.sqrt() if root else kept
    return y, rm + momentum * (mean - rm), (1 - momentum) * rv + momentum * kept


ok(tenth_batch_state, batch_state, in_one_go={}, five_parts_of_the_batch={"sums": 5})
bad(
    tenth_batch_state,
    batch_state,
    {
        # running variance of n, not n - 1
        "the running variance is biased": {"unbiased": False},
        # the other convention of momentum
        "momentum is 0.9": {"momentum": 0.9},
        # eps 1e-5
        "hides: eps is 1e-5": {"eps": 1e-5},
        # normalised by n - 1
        "hides: normalised by the unbiased variance": {"n": 249},
        # the deviation is kept
        "the running deviation is kept for the variance": {"root": True},
    },
)


# ------------------------------------------------------------------ gradients of batch norm


@tenth(lambda d: (d(12, 8, 6, 6, shift=1.0), d(8), d(12, 8, 6, 6)))
def tenth_batch_norm_grad(x, w, g):
    return grads(lambda x, w: F.batch_norm(x, None, None, w, None, True, 0.1, 1e-5), x, w, cotangent=g)


def batch_norm_grad(x, w, g, one=True, two=True, n=432, split=1, lone=False):
    v = lambda t: t.view(8, 1, 1)
    mean = x.mean((0, 2, 3))
    var = (x - v(mean)).square().mean((0, 2, 3))
    r = torch.rsqrt(var + 1e-5)
    hat = (x - v(mean)) * v(r)
    add = lambda t: sum(p.sum((0, 2, 3)) for p in t.chunk(split, 0))
    db, dw = add(g), add(g * hat)
    if lone:
        db, dw = db - g[-1, :, -1, -1], dw - (g * hat)[-1, :, -1, -1]
    return v(w * r) * (g - v(db) / n * one - hat * v(dw) / n * two), dw


ok(tenth_batch_norm_grad, batch_norm_grad, in_one_go={}, four_parts={"split": 4})
bad(
    tenth_batch_norm_grad,
    batch_norm_grad,
    {
        # the mean's term is missing
        "the gradient's mean is not taken off": {"one": False},
        # the variance's term is missing
        "the term of the variance is missing": {"two": False},
        # divided by the batch
        "sums are divided by twelve": {"n": 12},
        # one element of the last image is lost
        "hides: the sums miss the last element": {"lone": True},
        # divided by n - 1
        "hides: sums are divided by one less": {"n": 431},
    },
)


# ------------------------------------------------------------------ unit vectors, with rows of zeros


def unit_args(d):
    x = d(40, 48)
    x[3] = 0
    x[7] *= 1e-13
    x[11] *= 1e-22
    x[20] *= 1e20
    return (x,)


@tenth(unit_args)
def tenth_unit(x):
    return F.normalize(x.double(), dim=-1, eps=1e-12).to(x.dtype)


def unit(x, eps=1e-12, added=False, scaled=True, axis=-1, kind=None):
    top = x.abs().amax(axis, keepdim=True) if scaled else torch.ones(1)
    y = x / torch.where(top == 0, 1.0, top)
    norm = y.square().sum(axis, keepdim=True).sqrt() * top
    norm = narrow(norm, kind) if kind else norm
    if added == "under the root":
        return x * torch.rsqrt(x.square().sum(axis, keepdim=True) + eps)
    return x / (norm + eps) if added else x / norm.clamp_min(eps)


ok(tenth_unit, unit, scaled_by_the_greatest={})
bad(
    tenth_unit,
    unit,
    {
        # max(norm, 0)
        "a row of zeros gives not a number": {"eps": 0.0},
        # columns
        "columns are normed": {"axis": 0},
        # plain squares overflow at 1e20 and underflow at 1e-22
        "hides: squares overflow and underflow": {"scaled": False},
        # norm + eps
        "hides: eps is added to the norm": {"added": True},
        # rsqrt(sum + eps)
        "hides: eps under the root": {"added": "under the root"},
        # the norm in bfloat16
        "hides: norms in bfloat16": {"kind": bf},
    },
)


# ------------------------------------------------------------------ weight norm, and instance norm


@tenth(lambda d: (d(24, 8, 3, 3), d.rand(24, 1, 1, 1) + 0.5))
def tenth_weight_norm(v, g):
    return torch._weight_norm(v, g, 0)


def weight_norm(v, g, axes=(1, 2, 3), square=False, lost=0, order=None):
    x = v.flatten(1)[:, : 72 - lost] if axes == (1, 2, 3) else v
    norm = x.square().sum(-1).view(24, 1, 1, 1) if axes == (1, 2, 3) else x.square().sum(axes, keepdim=True)
    return v * (g / norm if square else g * torch.rsqrt(norm) if order else g / norm.sqrt())


ok(tenth_weight_norm, weight_norm, root_and_divide={}, by_the_reciprocal_root={"order": "r"})
bad(
    tenth_weight_norm,
    weight_norm,
    {
        # dim=1
        "the norm is that of the other axis": {"axes": (0, 2, 3)},
        # divided by the square
        "divided by the squared norm": {"square": True},
        # 72 = 64 + 8
        "hides: the norm leaves out the last eight": {"lost": 8},
    },
)


@tenth(lambda d: (d(4, 6, 150, shift=30.0, scale=0.01),))
def tenth_instance(x):
    return F.instance_norm(x, eps=1e-5)


def instance(x, shift=None, eps=1e-5, n=150, cut=0):
    y = x - (x[..., :1] if shift == "first" else 0.0)
    mean = y.mean(-1, keepdim=True)
    if shift == "squares":
        var = y.square().mean(-1, keepdim=True) - mean.square()
        var = var.clamp_min(0.0)
    else:
        var = (y - mean)[..., : 150 - cut].square().sum(-1, keepdim=True) / n
    return (y - mean) * torch.rsqrt(var + eps)


ok(tenth_instance, instance, two_passes={}, shifted_by_the_first={"shift": "first"})
bad(
    tenth_instance,
    instance,
    {
        # E[x^2] - E[x]^2 at mean 30 and deviation 0.01: nothing is left
        "hides: the variance is a difference of squares": {"shift": "squares"},
        # eps 1e-6
        "eps is 1e-6": {"eps": 1e-6},
        # n - 1
        "hides: the variance is divided by one less": {"n": 149},
    },
)
