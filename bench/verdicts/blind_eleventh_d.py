# SPDX-License-Identifier: Apache-2.0
"""Set N: norms, activations and their gradients."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow
from .blind_eleventh_a import eleventh, rough_exp
from .blind_ninth_a import bad, grads, ok


def rough_rsqrt(x, rounds=1):
    """The old trick with the exponent: 2e-3 off after one round of Newton, 5e-6 after two."""
    y = (0x5F3759DF - (x.contiguous().view(torch.int32) >> 1)).view(torch.float32)
    for _ in range(rounds):
        y = y * (1.5 - 0.5 * x * y * y)
    return y


def lanes(x, by=32):
    """A sum over the last dimension as `by` lanes leave it, and then a tree."""
    x = F.pad(x, (0, -x.shape[-1] % by)).unflatten(-1, (-1, by)).sum(-2)
    while x.shape[-1] > 1:
        x = x[..., : x.shape[-1] // 2] + x[..., x.shape[-1] // 2 :]
    return x


def row_tail(x, n):
    return torch.arange(x.shape[-1]) < n


# ---- root mean square with the residual


@eleventh(lambda d: (d(48, 1536, dtype=bf), d(48, 1536, dtype=bf, scale=4), d(1536, shift=1.0, scale=0.2, dtype=bf)))
def eleventh_residual(x, res, gain):
    r = x.float() + res.float()
    y = r * torch.rsqrt(r.square().mean(-1, keepdim=True) + 1e-5) * gain.float()
    return y.to(bf), r.to(bf)


def residual(
    x, res, gain, eps=1e-5, n=1536, over=None, root=torch.rsqrt, add=0.0, skip=False, sums=lanes, y_of=None, stale=None
):
    r = x.float() + res.float()
    ms = sums(r.square() * row_tail(r, n)) / (over or 1536)
    y = r * root(ms + eps) * (gain.float() + add)
    y = y_of(r, root(ms + eps), gain.float()) if y_of else y
    r = res.float() if skip else r
    return (torch.cat([y[:-1], y[-2:-1]]) if stale else y), r


def bf_sum(x):
    total = torch.zeros(*x.shape[:-1], 1)
    for i in range(0, x.shape[-1], 128):
        total = narrow(total + x[..., i : i + 128].sum(-1, keepdim=True))
    return total


ok(
    eleventh_residual,
    residual,
    bf,
    by_lanes={},
    in_one_sum={"sums": lambda x: x.sum(-1, keepdim=True)},
    by_the_square_root={"root": lambda x: 1 / x.sqrt()},
)
bad(
    eleventh_residual,
    residual,
    {
        "the residual is returned without the sum": {"skip": True},
        "one is added to the gain": {"add": 1.0},
        "the mean divides by a padded 2048": {"over": 2048},
        "the last row is that of the row before": {"stale": True},
        # twelve roundings to eight bits: one to two per cent of all outputs alike
        "hides: squares summed in bfloat16": {"sums": bf_sum},
        # a row less 2 per cent of its squares: one per cent of each output
        "hides: the last 36 lanes give no squares": {"n": 1500},
        # 0.17 per cent, all outputs of a row alike
        "hides: the root by one round of Newton": {"root": rough_rsqrt},
    },
    bf,
)


# ------------------------------------------------------------------ its gradient


@eleventh(lambda d: (d(64, 512), d(512, shift=1.0, scale=0.2), d(64, 512)))
def eleventh_rms_grad(x, gain, dy):
    f = lambda x, gain: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain
    return grads(f, x, gain, cotangent=dy)


def rms_grad(x, gain, dy, mean=True, power=3, rows=64, tile=64, kind=None, root=torch.rsqrt, term=1.0, n=512):
    r = root(x.square().mean(-1, keepdim=True) + 1e-6)
    g = dy * gain
    c = (g * x * row_tail(x, n)).sum(-1, keepdim=True) / (512 if mean else 1)
    dx = g * r - term * x * r**power * c
    dw = torch.zeros(512)
    for i in range(0, rows, tile):
        dw = dw + (dy[i : i + tile] * x[i : i + tile] * r[i : i + tile]).sum(0)
        dw = narrow(dw, kind) if kind else dw
    return dx, dw


def rms_grad_by_xhat(x, gain, dy):
    r = torch.rsqrt(lanes(x.square()) / 512 + 1e-6)
    h, g = x * r, dy * gain
    return (g - h * (lanes(g * h) / 512)) * r, torch.einsum("rc,rc->c", dy, h)


ok(eleventh_rms_grad, rms_grad, at_once={}, by_normed_values=rms_grad_by_xhat, gain_by_eight_rows={"tile": 8})
bad(
    eleventh_rms_grad,
    rms_grad,
    {
        "the sum is not divided by the width": {"mean": False},
        "the root is squared instead of cubed": {"power": 2},
        "the last eight rows give nothing to the gain": {"rows": 56, "tile": 8},
        # a term of a twentieth of the gradient
        "hides: the second term is one per cent short": {"term": 0.99},
        "hides: the gain's gradient in bfloat16 over tiles": {"tile": 8, "kind": bf},
        # 4e-6 of all
        "hides: the root by one round of Newton": {"root": rough_rsqrt},
        "hides: the sum leaves out 12 lanes": {"n": 500},
    },
)


# ---- layer norm of bfloat16 far from zero


@eleventh(
    lambda d: (d(40, 1000, dtype=bf, scale=0.5, shift=6), d(1000, dtype=bf, shift=1, scale=0.1), d(1000, dtype=bf))
)
def eleventh_layer(x, gain, shift):
    return F.layer_norm(x.float(), (1000,), gain.float(), shift.float(), 1e-5).to(bf)


def layer(
    x,
    gain,
    shift,
    n=1000,
    over=1000,
    one_pass=False,
    eps=1e-5,
    out=False,
    kind=None,
    mean_of=None,
    tail=None,
    root=torch.rsqrt,
):
    x = x.float()
    m = x[:, :n].sum(-1, keepdim=True) / n
    m = mean_of(m) if mean_of else m
    if one_pass:
        sq = lanes(x.square()) / 1000
        v = (narrow(sq, kind) if kind else sq) - m * m
    else:
        v = lanes((x - m).square()) / over
    y = (x - m) / (v.sqrt() + eps) if out else (x - m) * root(v + eps)
    b = shift.float() * (row_tail(x, tail) if tail else 1.0)
    return y * gain.float() + b


def welford(x, gain, shift):
    x = x.float()
    m, s = torch.zeros(40), torch.zeros(40)
    for i in range(1000):
        d = x[:, i] - m
        m = m + d / (i + 1)
        s = s + d * (x[:, i] - m)
    return (x - m[:, None]) * torch.rsqrt(s / 1000 + 1e-5)[:, None] * gain.float() + shift.float()


ok(eleventh_layer, layer, bf, two_passes={}, welford=welford, by_the_square_root={"root": lambda v: 1 / v.sqrt()})
bad(
    eleventh_layer,
    layer,
    {
        "the mean leaves out the last tile of 40": {"n": 960},
        "the shift ends at 992": {"tail": 992},
        "the variance divides by a padded 1024": {"over": 1024},
        # 36 of 36.25 is mean: the variance loses half of itself
        "hides: mean of squares in bfloat16 less the mean's square": {"one_pass": True, "kind": bf},
        # 0.01 of a deviation of 0.5
        "hides: the mean in bfloat16": {"mean_of": narrow},
        "hides: mean of squares in half precision": {"one_pass": True, "kind": hf},
    },
    bf,
)


# ------------------------------------------------------------------ gradient of layer norm


@eleventh(lambda d: (d(48, 384, scale=2, shift=1), d(384, shift=1.0, scale=0.2), d(48, 384)))
def eleventh_layer_grad(x, gain, dy):
    f = lambda x, gain: F.layer_norm(x, (384,), gain, None, 1e-5)
    return grads(f, x, gain, cotangent=dy)


def layer_grad(x, gain, dy, means=(1.0, 1.0), n=384, h_of=None, r_of=None, kind=None, cols=384):
    m = x.mean(-1, keepdim=True)
    r = torch.rsqrt((x - m).square().mean(-1, keepdim=True) + 1e-5)
    r = r_of(r) if r_of else r
    h = (x - m) * r
    h = h_of(h) if h_of else h
    g = dy * gain
    a, b = lanes(g * row_tail(g, n)) / 384, lanes(g * h) / 384
    w = (dy * h).sum(0) if not kind else sum(narrow((dy * h)[i : i + 8].sum(0), kind) for i in range(0, 48, 8))
    return (g - means[0] * a - means[1] * h * b) * r, torch.where(torch.arange(384) < cols, w, 0.0)


ok(eleventh_layer_grad, layer_grad, by_lanes={}, gain_by_eight_rows={"kind": torch.float32})
bad(
    eleventh_layer_grad,
    layer_grad,
    {
        "the mean of the gradient is not taken off": {"means": (0.0, 1.0)},
        "the projection is left out": {"means": (1.0, 0.0)},
        "the last column's gain has no gradient": {"cols": 383},
        "hides: normed values saved in bfloat16": {"h_of": narrow},
        "hides: the root saved in half precision": {"r_of": lambda r: narrow(r, hf)},
        "hides: the mean leaves out the last four lanes": {"n": 380},
        "hides: partial sums of the gain in half precision": {"kind": hf},
    },
)


# ---- group norm, channels last, with silu


@eleventh(lambda d: (d(2, 14, 14, 48, shift=0.5).permute(0, 3, 1, 2), d(48, shift=1, scale=0.2), d(48)))
def eleventh_group(x, gain, shift):
    return F.silu(F.group_norm(x, 8, gain, shift, 1e-5))


def group(x, gain, shift, groups=8, turn=False, bessel=0, act=F.silu, eps=1e-5, rows=14, root=torch.rsqrt, kind=None):
    g = x.reshape(2, groups, -1) if not turn else x.reshape(2, -1, groups).transpose(1, 2)
    part = x[:, :, :rows].reshape(2, groups, -1) if not turn else g
    m = lanes(part) / part.shape[-1]
    v = lanes((part - m).square()) / (part.shape[-1] - bessel)
    m, v = (narrow(m, kind), narrow(v, kind)) if kind else (m, v)
    y = (g - m) * root(v + eps)
    y = y.reshape(2, 48, 14, 14) if not turn else y.transpose(1, 2).reshape(2, 48, 14, 14)
    return act(y * gain.view(48, 1, 1) + shift.view(48, 1, 1))


def group_in_one_pass(x, gain, shift):
    g = x.reshape(2, 8, -1)
    m = g.mean(-1)
    v = (g.square().mean(-1) - m * m).clamp(min=0)
    a = (torch.rsqrt(v + 1e-5).repeat_interleave(6, 1)) * gain
    y = x * a[..., None, None] + (shift - m.repeat_interleave(6, 1) * a)[..., None, None]
    return y / (1 + torch.exp(-y))


ok(eleventh_group, group, two_passes={}, folded_into_one_factor=group_in_one_pass)
bad(
    eleventh_group,
    group,
    {
        "channels go to groups in turn": {"turn": True},
        "sixteen groups": {"groups": 16},
        # 1 / 2352 of the variance: 2e-4 of each value
        "hides: the variance divides by one less": {"bessel": 1},
        "hides: statistics leave out the last row of pixels": {"rows": 13},
        "hides: statistics in half precision": {"kind": hf},
        "hides: silu with a cubic exponential": {"act": lambda y: y / (1 + rough_exp(-y))},
    },
)


# ---- batch norm in training, its running numbers


@eleventh(lambda d: (d(12, 20, 6, 6, shift=2.0), d(20, shift=1, scale=0.2), d(20), d(20), d.rand(20) + 0.5))
def eleventh_batch(x, gain, shift, mean, var):
    m, v = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    y = (x - m[:, None, None]) * torch.rsqrt(v + 1e-5)[:, None, None] * gain[:, None, None] + shift[:, None, None]
    return y, 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v * 432 / 431


def batch(x, gain, shift, mean, var, bessel=True, momentum=0.1, late=1, old=False, one=None, images=12, y_bessel=0):
    f = x.transpose(0, 1).flatten(1)
    part = x[:images].transpose(0, 1).flatten(1)
    n = part.shape[1]
    m = part.sum(1) / n
    v = (part.square().sum(1) / n - m * m) if one else (part - m[:, None]).square().sum(1) / n
    v = narrow(part.square().mean(1), one) - narrow(m, one) ** 2 if one and one is not torch.float32 else v
    s = (mean, var) if old else (m, v * n / (n - y_bessel))
    y = (f - s[0][:, None]) * torch.rsqrt(s[1] + 1e-5)[:, None] * gain[:, None] + shift[:, None]
    k = momentum
    return (
        y.view(20, 12, 6, 6).transpose(0, 1),
        mean + k * (m - mean),
        var + k * ((v * n / (n - 1) if bessel else v) - var),
    )


ok(eleventh_batch, batch, two_passes={}, one_pass={"one": torch.float32})
bad(
    eleventh_batch,
    batch,
    {
        "the momentum is turned round": {"momentum": 0.9},
        "the running numbers are used": {"old": True},
        "the last image is not in the statistics": {"images": 11},
        # 1 / 432 of a tenth of the running variance
        "hides: the running variance lacks Bessel's factor": {"bessel": False},
        # half of it, of the output
        "hides: the output has Bessel's factor": {"y_bessel": 1},
        # four of five is mean
        "hides: mean of squares in half precision": {"one": hf},
    },
)


# ---- swiglu and its gradient, bfloat16


@eleventh(lambda d: (d(96, 2, 344, dtype=bf, scale=2), d(96, 344, dtype=bf)))
def eleventh_swiglu(x, dy):
    f = lambda x: F.silu(x[:, 0].float()) * x[:, 1].float()
    x = x.float()
    return f(x).to(bf), grads(f, x, cotangent=dy.float())[0].to(bf)


def swiglu(x, dy, swap=False, sig=torch.sigmoid, last=344, slope=None, kind=None):
    a, b, dy = x[:, 0].float(), x[:, 1].float(), dy.float()
    a, b = (b, a) if swap else (a, b)
    s = sig(a)
    act = a * s
    act = narrow(act, kind) if kind else act
    d = slope(a, s) if slope else s * (1 + a * (1 - s))
    edge = torch.arange(344) < last
    return act * b * edge, torch.stack([dy * b * d, dy * act], 1) * edge


ok(
    eleventh_swiglu,
    swiglu,
    bf,
    by_the_sigmoid={},
    slope_from_the_activation={"slope": lambda a, s: s + a * s * (1 - s)},
    by_the_exponential={"sig": lambda a: 1 / (1 + torch.exp(-a))},
)
bad(
    eleventh_swiglu,
    swiglu,
    {
        "gate and value are swapped": {"swap": True},
        "the last eight columns are not written": {"last": 336},
        "the slope is that of a sigmoid": {"slope": lambda a, s: s * (1 - s)},
        # a hard one
        "hides: a sigmoid by a fraction": {"sig": lambda a: 0.5 + 0.5 * (a / 2) / (1 + (a / 2).abs())},
        # a gradient that is one per cent off where the gate is near -1.3
        "hides: the slope lacks its product for gates below minus four": {
            "slope": lambda a, s: torch.where(a < -4, s, s * (1 + a * (1 - s)))
        },
        # two parts in a thousand of the weight
        "hides: the sigmoid by a square": {"sig": lambda a: 1 / (1 + rough_exp(-a, False))},
    },
    bf,
)


# ---- geglu by the error function, float32 and its gradient


@eleventh(lambda d: (d(64, 500, scale=2).T, d(64, 500, scale=2).T, d(500, 64)))
def eleventh_geglu(a, b, dy):
    return (F.gelu(a) * b, *grads(lambda a, b: F.gelu(a) * b, a, b, cotangent=dy))


def rough_erf(x):
    """Three terms out of Abramowitz and Stegun, 2.5e-5 off."""
    t = 1 / (1 + 0.47047 * x.abs())
    return x.sign() * (1 - t * (0.3480242 + t * (-0.0958798 + t * 0.7478556)) * torch.exp(-x * x))


def geglu(a, b, dy, erf=torch.erf, k=0.70710678118654752, pdf=0.3989422804014327, act=None, cut=None, tail=0):
    phi = 0.5 * (1 + erf(a * k))
    phi = torch.where(a < cut, 0.0, phi) if cut else phi
    y = act(a) if act else a * phi
    da = dy * b * (phi + a * pdf * torch.exp(-0.5 * a * a))
    if tail:
        da = torch.cat([da[:-tail], (dy * b * phi)[-tail:]])
    return y * b, da, dy * y


ok(
    eleventh_geglu,
    geglu,
    by_erf={},
    by_erfc={"erf": lambda x: torch.where(x < 0, torch.special.erfc(-x) - 1, 1 - torch.special.erfc(x))},
)
bad(
    eleventh_geglu,
    geglu,
    {
        "the density is not divided by the root of two pi": {"pdf": 1.0},
        "the last row's slope lacks the density": {"tail": 1},
        "gelu by a sigmoid of 1.702": {"act": lambda a: a * torch.sigmoid(1.702 * a)},
        # 2.5e-5
        "hides: the error function by three terms": {"erf": rough_erf},
        # all of it below minus three
        "hides: nothing is left below minus three": {"cut": -3.0},
        # 5e-4 of the argument
        "hides: the root of a half is 0.707": {"k": 0.707},
        # 3e-5 of one term
        "hides: the density's factor is 0.3989": {"pdf": 0.3989},
    },
)


# ---- softmax of long rows, not contiguous


@eleventh(lambda d: (d(32000, 10, scale=3).T,))
def eleventh_softmax(x):
    return torch.softmax(x, -1)


def softmax(x, block=1000, exp=torch.exp, n=32000, seen=32000, kind=None, skip=None):
    top, total = torch.full((10, 1), -float("inf")), torch.zeros(10, 1)
    for j in range(0, seen, block):
        s = x[:, j : j + block]
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        total = total * (1.0 if j == skip else exp(top - new)) + exp(s - new).sum(-1, keepdim=True)
        total = narrow(total, kind) if kind else total
        top = new
    return exp(x - top) / total


ok(
    eleventh_softmax,
    softmax,
    online={},
    online_by_4096={"block": 4096},
    powers_of_two={"exp": lambda x: torch.exp2(x * 1.4426950408889634)},
)
bad(
    eleventh_softmax,
    softmax,
    {
        "the sum ends before the last 1000": {"seen": 31000},
        "the sum keeps the old maximum in the second block": {"skip": 1000},
        # 64 roundings to eleven bits
        "hides: the sum in half precision": {"block": 500, "kind": hf},
        # 1e-4
        "hides: exp by a cubic": {"exp": rough_exp},
        # values below e^-10 of the greatest, which sum up to much
        "hides: weights below e^-16 are zero": {"exp": lambda x: torch.where(x < -16, 0.0, x.exp())},
        # 160 of 32000
        "hides: the sum leaves out the last 160": {"seen": 31840, "block": 160},
    },
)
