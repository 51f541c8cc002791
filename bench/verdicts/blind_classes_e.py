# SPDX-License-Identifier: Apache-2.0
"""Set F: norms whose statistic is a little off in every row: eps missing, beside the root or another one,
n - 1 for n, the length of the padded row. A right kernel's rows round each by itself."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_classes_a import classed, folded, welford
from .blind_fourth_a import double, inside


def scaled(x, axes=-1, eps=1e-5, center=True, beside=False, less=0, pad=0):
    """x over its deviation along `axes`, and 1 over that."""
    axes = (axes,) if isinstance(axes, int) else axes
    n = 1
    for a in axes:
        n *= x.shape[a]
    if center:
        x = x - x.sum(axes, keepdim=True) / (n + pad)
    v = x.square().sum(axes, keepdim=True) / (n - less + pad)
    r = 1 / (v.sqrt() + eps) if beside else 1 / (v + eps).sqrt()
    return x * r, r


SLIPS = {
    "no eps": {"eps": 0.0},
    "eps stands beside the root": {"beside": True},
    "eps is 1e-5, not 1e-6": {"eps": 1e-5},
    "eps is 1e-6, not 1e-5": {"eps": 1e-6},
    "eps is 1e-3, not 1e-5": {"eps": 1e-3},
    "eps is 1e-12, not 1e-5": {"eps": 1e-12},
    "divides by n - 1": {"less": 1},
    "divides by n + 3, the padded length": {"pad": 3},
    "divides by n + 1": {"pad": 1},
}


def slips(fn, kernel, *words):
    for w in words:
        mistake(fn, w, inside(kernel, **SLIPS[w]))


# ------------------------------------------------------------------ rms norm


def rms(x, w, eps=1e-6, **keys):
    return scaled(x, eps=eps, center=False, **keys)[0] * w


def rms_by_lanes(x, w):
    return x / (folded(x.square(), "lanes")[..., None] / x.shape[-1] + 1e-6).sqrt() * w


@classed(lambda d: (d(48, 256), d(256, scale=0.2, shift=1.0)))
def statistics_slip_rms_256(x, w):
    return F.rms_norm(x, (256,), w, 1e-6)


@classed(lambda d: (d(100, 32, scale=0.02), d(32, shift=1.0)))
def statistics_slip_rms_32(x, w):
    return F.rms_norm(x, (32,), w, 1e-6)


@classed(lambda d: (d(40, 77, scale=0.02, dtype=bf), d(77, scale=0.1, shift=1.0, dtype=bf)))
def statistics_slip_rms_77_bf16(x, w):
    return F.rms_norm(x, (77,), w, 1e-6)


@classed(lambda d: (d(12, 4096, shift=3.0), torch.ones(4096)))
def statistics_slip_rms_4096(x, w):
    return F.rms_norm(x, (4096,), w, 1e-6)


for fn in (statistics_slip_rms_256, statistics_slip_rms_32, statistics_slip_rms_77_bf16, statistics_slip_rms_4096):
    honest(fn, "in eight lanes, divided by the root", inside(rms_by_lanes))
    honest(fn, "float64 inside", double(rms))
slips(statistics_slip_rms_256, rms, "eps is 1e-5, not 1e-6", "divides by n - 1")
slips(statistics_slip_rms_32, rms, "no eps", "eps is 1e-5, not 1e-6", "eps stands beside the root")
slips(statistics_slip_rms_77_bf16, rms, "eps is 1e-5, not 1e-6", "divides by n + 3, the padded length")
slips(statistics_slip_rms_4096, rms, "divides by n - 1", "divides by n + 1")


# ------------------------------------------------------------------ layer norm


def layer(x, w, b, **keys):
    return scaled(x, **keys)[0] * w + b


def layer_welford(x, w, b):
    mean, m2 = welford(x)
    return (x - mean[..., None]) * torch.rsqrt(m2 / x.shape[-1] + 1e-5)[..., None] * w + b


@classed(lambda d: (d(64, 77), d(77, shift=1.0), d(77)))
def statistics_slip_layer_77(x, w, b):
    return F.layer_norm(x, (77,), w, b)


@classed(lambda d: (d(50, 256, shift=3.0), d(256, scale=0.1, shift=1.0), torch.zeros(256)))
def statistics_slip_layer_256(x, w, b):
    return F.layer_norm(x, (256,), w, b)


@classed(lambda d: (d(16, 1024, scale=0.02), torch.ones(1024), torch.zeros(1024)))
def statistics_slip_layer_1024(x, w, b):
    return F.layer_norm(x, (1024,), w, b)


@classed(lambda d: (d(60, 32, scale=0.02, dtype=hf), d(32, shift=1.0, dtype=hf), d(32, dtype=hf)))
def statistics_slip_layer_32_half(x, w, b):
    return F.layer_norm(x, (32,), w, b)


for fn in (
    statistics_slip_layer_77,
    statistics_slip_layer_256,
    statistics_slip_layer_32_half,
    statistics_slip_layer_1024,
):
    honest(fn, "element after element in eight lanes", inside(layer_welford))
    honest(fn, "two passes", inside(layer))
    honest(fn, "float64 inside", double(layer))
slips(
    statistics_slip_layer_77,
    layer,
    "no eps",
    "eps stands beside the root",
    "divides by n - 1",
    "divides by n + 3, the padded length",
)
slips(statistics_slip_layer_256, layer, "eps is 1e-12, not 1e-5", "divides by n - 1")
slips(statistics_slip_layer_1024, layer, "eps is 1e-6, not 1e-5", "eps stands beside the root", "no eps")
slips(statistics_slip_layer_32_half, layer, "divides by n - 1", "eps stands beside the root", "no eps")


# ------------------------------------------------------------------ group, instance, batch norm


def sizes(d, n):
    return 10 ** (d.rand(n) * 3 - 2)


@classed(lambda d: (d(5, 12, 64) * sizes(d, 3).repeat_interleave(4)[:, None], d(12), d(12)))
def statistics_slip_group(x, w, b):
    return F.group_norm(x, 3, w, b)


def group(x, w, b, **keys):
    y = scaled(x.view(5, 3, -1), **keys)[0].view_as(x)
    return y * w[:, None] + b[:, None]


def group_welford(x, w, b):
    mean, m2 = (t.repeat_interleave(4, 1)[..., None] for t in welford(x.view(5, 3, -1)))
    return (x - mean) / (m2 / 256 + 1e-5).sqrt() * w[:, None] + b[:, None]


honest(statistics_slip_group, "element after element in eight lanes", group_welford)
honest(statistics_slip_group, "float64 inside", double(group))
slips(statistics_slip_group, group, "no eps", "eps stands beside the root", "divides by n - 1")


@classed(lambda d: (d(6, 8, 77) * sizes(d, 8)[:, None],))
def statistics_slip_instance(x):
    return F.instance_norm(x)


def instance(x, **keys):
    return scaled(x, **keys)[0]


honest(statistics_slip_instance, "element after element in eight lanes", inside(lambda x: layer_welford(x, 1.0, 0.0)))
honest(statistics_slip_instance, "float64 inside", double(instance))
slips(
    statistics_slip_instance,
    instance,
    "divides by n - 1",
    "divides by n + 3, the padded length",
    "eps is 1e-3, not 1e-5",
)


@classed(lambda d: ((d(256, 24) + 2) * sizes(d, 24), d(24, shift=1.0), d(24)))
def statistics_slip_batch(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


def batch(x, w, b, **keys):
    return scaled(x, 0, **keys)[0] * w + b


honest(
    statistics_slip_batch, "row after row", lambda x, w, b: layer_welford(x.mT, w[:, None], b[:, None]).mT.contiguous()
)
honest(statistics_slip_batch, "float64 inside", double(batch))
slips(statistics_slip_batch, batch, "divides by n - 1", "no eps", "eps is 1e-3, not 1e-5", "divides by n + 1")


@classed(lambda d: (d(77, 40, scale=0.05, dtype=hf), d(40, shift=1.0, dtype=hf), d(40, dtype=hf)))
def statistics_slip_batch_half(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


honest(
    statistics_slip_batch_half,
    "row after row",
    inside(lambda x, w, b: layer_welford(x.mT, w[:, None], b[:, None]).mT.contiguous()),
)
honest(statistics_slip_batch_half, "float64 inside", double(batch))
slips(
    statistics_slip_batch_half,
    batch,
    "divides by n - 1",
    "divides by n + 3, the padded length",
    "eps is 1e-3, not 1e-5",
)


# ------------------------------------------------------------------ unit vectors, standard scores


@classed(lambda d: (d(70, 32, scale=0.02),))
def statistics_slip_normalize(x):
    return F.normalize(x)


honest(statistics_slip_normalize, "in eight lanes", lambda x: x / folded(x.square(), "lanes").sqrt()[:, None])
honest(statistics_slip_normalize, "float64 inside", double(lambda x: x / x.norm(dim=-1, keepdim=True)))
mistake(
    statistics_slip_normalize,
    "eps of 1e-6 under the root",
    lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6),
)
mistake(
    statistics_slip_normalize, "eps of 1e-5 is added to the norm", lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-5)
)


@classed(lambda d: (lambda x: (x, x + d(60, 77, scale=0.01)))(d(60, 77, scale=0.02)))
def statistics_slip_cosine(x, y):
    return F.cosine_similarity(x, y)


honest(
    statistics_slip_cosine,
    "products over the root of both sums",
    lambda x, y: folded(x * y) / (folded(x * x) * folded(y * y)).sqrt(),
)
honest(statistics_slip_cosine, "unit vectors first", lambda x, y: (F.normalize(x) * F.normalize(y)).sum(-1))
mistake(
    statistics_slip_cosine,
    "eps of 1e-6 under both roots",
    lambda x, y: (x * y).sum(-1) * torch.rsqrt(x.square().sum(-1) + 1e-6) * torch.rsqrt(y.square().sum(-1) + 1e-6),
)
mistake(
    statistics_slip_cosine,
    "eps of 1e-5 is added to the product of the norms",
    lambda x, y: (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1) + 1e-5),
)


@classed(lambda d: (d(16, 1024, scale=0.3, shift=1.0),))
def statistics_slip_standardize(x):
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


honest(
    statistics_slip_standardize,
    "element after element in eight lanes",
    lambda x: (lambda m, s: (x - m[:, None]) / (s / 1023).sqrt()[:, None])(*welford(x)),
)
honest(statistics_slip_standardize, "float64 inside", double(statistics_slip_standardize))
mistake(statistics_slip_standardize, "divides by n, not n - 1", lambda x: scaled(x, eps=0.0)[0])
mistake(
    statistics_slip_standardize,
    "eps of 1e-6 is added to the deviation",
    lambda x: scaled(x, eps=1e-6, less=1, beside=True)[0],
)
mistake(statistics_slip_standardize, "eps of 1e-5 under the root", lambda x: scaled(x, less=1)[0])


# ------------------------------------------------------------------ backward


@classed(lambda d: (d(40, 256), d(40, 256, shift=3.0), d(256, shift=1.0)))
def statistics_slip_layer_gradient(g, x, w):
    m = x - x.mean(-1, keepdim=True)
    r = torch.rsqrt(m.square().mean(-1, keepdim=True) + 1e-5)
    y, h = m * r, g * w
    return (h - h.mean(-1, keepdim=True) - y * (h * y).mean(-1, keepdim=True)) * r, (g * y).sum(0)


def layer_gradient(g, x, w, **keys):
    y, r = scaled(x, **keys)
    h = g * w
    return (h - h.mean(-1, keepdim=True) - y * (h * y).mean(-1, keepdim=True)) * r, (g * y).sum(0)


def layer_autograd(g, x, w):
    x, w = x.requires_grad_(), w.requires_grad_()
    F.layer_norm(x, (x.shape[-1],), w).backward(g)
    return x.grad, w.grad


honest(statistics_slip_layer_gradient, "automatic differentiation", layer_autograd)
honest(statistics_slip_layer_gradient, "float64 inside", double(layer_gradient))
slips(statistics_slip_layer_gradient, layer_gradient, "no eps", "eps stands beside the root", "divides by n - 1")


@classed(lambda d: (d(30, 1024), d(30, 1024, scale=0.02), d(1024, scale=0.1, shift=1.0)))
def statistics_slip_rms_gradient(g, x, w):
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    h = g * w
    return r * h - x * r**3 * (h * x).mean(-1, keepdim=True)


def rms_gradient(g, x, w, eps=1e-6, **keys):
    y, r = scaled(x, eps=eps, center=False, **keys)
    return r * (g * w - y * (g * w * y).mean(-1, keepdim=True))


honest(statistics_slip_rms_gradient, "by normalised rows", rms_gradient)
honest(statistics_slip_rms_gradient, "float64 inside", double(rms_gradient))
slips(
    statistics_slip_rms_gradient,
    rms_gradient,
    "no eps",
    "eps is 1e-5, not 1e-6",
    "eps stands beside the root",
    "divides by n - 1",
)


@classed(lambda d: (d(128, 20), (d(128, 20) - 1) * sizes(d, 20), d(20, shift=1.0)))
def statistics_slip_batch_gradient(g, x, w):
    m = x - x.mean(0)
    r = torch.rsqrt(m.square().mean(0) + 1e-5)
    return w * r * (g - g.mean(0) - m * r * (g * m * r).mean(0))


def batch_gradient(g, x, w, **keys):
    y, r = scaled(x, 0, **keys)
    return w * r * (g - g.mean(0) - y * (g * y).mean(0))


def batch_autograd(g, x, w):
    x = x.requires_grad_()
    F.batch_norm(x, None, None, w, training=True).backward(g)
    return x.grad


honest(statistics_slip_batch_gradient, "automatic differentiation", batch_autograd)
honest(statistics_slip_batch_gradient, "float64 inside", double(batch_gradient))
slips(
    statistics_slip_batch_gradient,
    batch_gradient,
    "no eps",
    "divides by n - 1",
    "eps is 1e-3, not 1e-5",
    "eps stands beside the root",
)


@classed(lambda d: (d(50, 64), d(50, 64, scale=0.02)))
def statistics_slip_normalize_gradient(g, x):
    n = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return (g - x * (g * x).sum(-1, keepdim=True) / n**2) / n


def unit_gradient(g, x, eps=0.0, beside=0.0):
    n = (folded(x.square(), "lanes")[:, None] + eps).sqrt() + beside
    y = x / n
    return (g - y * folded(g * y)[:, None]) / n


honest(statistics_slip_normalize_gradient, "by unit vectors", unit_gradient)
honest(statistics_slip_normalize_gradient, "float64 inside", double(unit_gradient))
mistake(statistics_slip_normalize_gradient, "eps of 1e-6 under the root", lambda g, x: unit_gradient(g, x, 1e-6))
mistake(
    statistics_slip_normalize_gradient,
    "eps of 1e-5 is added to the norm",
    lambda g, x: unit_gradient(g, x, beside=1e-5),
)
