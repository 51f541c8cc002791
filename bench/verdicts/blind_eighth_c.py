# SPDX-License-Identifier: Apache-2.0
"""Set K, written as blind_eighth_a: one factor in all rows."""

import torch
import torch.nn.functional as F

from .blind import bf, honest
from .blind_eighth_a import doubled, eighth, halved, norm_rows, serial
from .blind_seventh_a import at, right, wrong

# ------------------------------------------------------------------ one factor in all rows


@eighth(lambda d: (d(16, 32, 16, 16), d(32), d(32)))
def eighth_group_norm(x, w, b):
    return F.group_norm(x, 8, w, b)


def group_norm(x, w, b, **k):
    y = norm_rows(x.reshape(16, 8, -1), **k).view(x.shape)
    return y * w[:, None, None] + b[:, None, None]


doubled(eighth_group_norm, group_norm)
right(eighth_group_norm, "one after another", group_norm, add=serial)
wrong(
    eighth_group_norm,
    group_norm,
    {
        "no eps": {"eps": 0.0},
        "eps outside of the root": {"outside": True},
        "eps is 2e-5": {"eps": 2e-5},
        "n - 1": {"n": 1023},
    },
)


@eighth(lambda d: (d(20, 16, 256),))
def eighth_instance_norm(x):
    return F.instance_norm(x)


doubled(eighth_instance_norm, norm_rows)
right(eighth_instance_norm, "one after another", norm_rows, add=serial)
wrong(eighth_instance_norm, norm_rows, {"eps is 1e-6": {"eps": 1e-6}, "n - 1": {"n": 255}})


@eighth(lambda d: (d(64, 256), d(64, 256), d(256)))
def eighth_layer_norm_grad(x, g, w):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.layer_norm(x, (256,), w), x, g)[0]


def layer_norm_grad(x, g, w, eps=1e-5, n=256, add=halved):
    h = x - add(x)[:, None] / 256
    r = (add(h * h)[:, None] / n + eps).rsqrt()
    y, u = h * r, g * w
    return r * (u - add(u)[:, None] / 256 - y * add(u * y)[:, None] / 256)


doubled(eighth_layer_norm_grad, layer_norm_grad)
right(eighth_layer_norm_grad, "one after another", layer_norm_grad, add=serial)
wrong(
    eighth_layer_norm_grad,
    layer_norm_grad,
    {"no eps": {"eps": 0.0}, "n - 1": {"n": 255}, "eps is 1e-6": {"eps": 1e-6}},
)


@eighth(lambda d: (d(200, 64),))
def eighth_normalize(x):
    return F.normalize(x, dim=-1, eps=1e-5)


def normalize(x, beside=0.0, add=halved):
    return x / (add(x * x).sqrt().clamp(min=1e-5) + beside)[:, None]


doubled(eighth_normalize, normalize)
right(eighth_normalize, "one after another", normalize, add=serial)
wrong(
    eighth_normalize,
    normalize,
    {"eps is added": {"beside": 1e-5}, "eps is added, ten times": {"beside": 1e-4}},
)


@eighth(lambda d: (d(128, 512, dtype=bf), d(512, dtype=bf)))
def eighth_rms_bf16(x, w):
    return F.rms_norm(x, (512,), w, 1e-6)


def rms(x, w, n=512, eps=1e-6, add=halved):
    return x * (add(x * x)[:, None] / n + eps).rsqrt() * w


doubled(eighth_rms_bf16, rms)
right(eighth_rms_bf16, "one after another", rms, add=serial)
wrong(eighth_rms_bf16, rms, {"n - 1": {"n": 511}, "n + 1": {"n": 513}, "eps is 1e-3": {"eps": 1e-3}})


@eighth(lambda d: (d(16, 12, 128), torch.zeros(12), torch.ones(12)))
def eighth_running(x, mean, var):
    mean, var = mean.clone(), var.clone()
    F.batch_norm(x, mean, var, training=True, momentum=0.1)
    return mean, var


def running(x, mean, var, n=2047, momentum=0.1, add=halved):
    h = x.transpose(0, 1).flatten(1)
    m = add(h) / 2048
    v = add((h - m[:, None]) ** 2) / n
    return mean * (1 - momentum) + momentum * m, var * (1 - momentum) + momentum * v


honest(eighth_running, "in double precision", at(running, torch.float64))
right(eighth_running, "one after another", running, add=serial)
wrong(
    eighth_running,
    running,
    {"the biased variance": {"n": 2048}, "momentum is 0.0999": {"momentum": 0.0999}},
)
