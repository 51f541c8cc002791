# SPDX-License-Identifier: Apache-2.0
"""More of cause_cases: attention, steps of optimizers, whole numbers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from cause_cases import bf, case, low, randn, tf32


def attention_cases():
    sm = lambda x: torch.softmax(x, -1)  # noqa: E731
    make = lambda: (randn(32, 50),)  # noqa: E731
    case("softmax bf16", "bfloat16", sm, make, lambda x: _softmax_low(x, bf))
    case(
        "softmax bf16 exp",
        "bfloat16",
        sm,
        make,
        lambda x: (lambda e: e / e.sum(-1, keepdim=True))(low((x - x.amax(-1, keepdim=True)).exp(), bf)),
    )
    case(
        "softmax last",
        "last 1 of 50.*missing",
        sm,
        make,
        lambda x: (
            (x - x.amax(-1, keepdim=True)).exp() / (x - x.amax(-1, keepdim=True))[:, :-1].exp().sum(-1, keepdim=True)
        ),
    )
    case(
        "softmax no max",
        "max",
        sm,
        lambda: (randn(32, 50, scale=60),),
        lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    )
    case("softmax dim", "dimension|axis|along", sm, lambda: (randn(50, 50),), lambda x: torch.softmax(x, 0))
    case("log_softmax", "softmax instead of log_softmax|variant", lambda x: F.log_softmax(x, -1), make, sm)

    def sdpa(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def attend(q, k, v, scale=None, diagonal=0, causal=True, p=lambda t: t):
        s = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
        if causal:
            s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(diagonal), -math.inf)
        return p(torch.softmax(s, -1)) @ v

    qkv = lambda: [randn(2, 3, 20, 16) for _ in range(3)]  # noqa: E731
    case("sdpa no mask", "causal mask", sdpa, qkv, lambda q, k, v: attend(q, k, v, causal=False))
    case(
        "sdpa mask off", "mask.*shifted|shifted.*mask|diagonal", sdpa, qkv, lambda q, k, v: attend(q, k, v, diagonal=1)
    )
    case("sdpa scale", "scale", sdpa, qkv, lambda q, k, v: attend(q, k, v, scale=1.0))
    case("sdpa bf16 p", "bfloat16", sdpa, qkv, lambda q, k, v: attend(q, k, v, p=lambda t: low(t, bf)))
    case("sdpa tf32", "TF32", sdpa, qkv, lambda q, k, v: _sdpa_tf32(q, k, v))
    case(
        "sdpa head",
        "last 1 of 3 along axis 1",
        sdpa,
        qkv,
        lambda q, k, v: sdpa(q, k, v) * torch.tensor([1.0, 1, 0])[:, None, None],
    )
    case(
        "sdpa last key",
        "last 1 of 20.*missing|dropped",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        qkv,
        lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :, :-1], v[:, :, :-1]),
    )
    mask = lambda: (*qkv(), torch.rand(20, 20) > 0.4)  # noqa: E731
    case(
        "sdpa mask rolled",
        "mask.*shifted",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        mask,
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m.roll(1, -1)),
    )
    case(
        "sdpa mask ignored",
        "mask.*(ignored|missing)",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        mask,
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v),
    )

    def rope(x, c, s):
        a, b = x.chunk(2, -1)
        return x * c + torch.cat([-b, a], -1) * s

    ropes = lambda: (randn(2, 12, 16), torch.cos(randn(12, 16)), torch.sin(randn(12, 16)))  # noqa: E731
    case("rope position", "shifted", rope, ropes, lambda x, c, s: rope(x, c.roll(-1, 0), s.roll(-1, 0)))
    case("rope sign", "sign|sub|add|missing|neg", rope, ropes, lambda x, c, s: rope(x, c, -s))
    case(
        "embedding",
        "index shifted|shifted",
        F.embedding,
        lambda: (torch.randint(0, 20, (30,)), randn(20, 8)),
        lambda i, w: w[(i + 1).clamp(max=19)],
    )
    case("gather rows", "neighbour|shift|index", lambda x: x.clone(), make, lambda x: x.roll(1, 0))
    ce = lambda x, t: F.cross_entropy(x, t, ignore_index=3)  # noqa: E731
    case(
        "ce ignore",
        "ignore_index",
        ce,
        lambda: (randn(64, 10), torch.randint(0, 10, (64,))),
        lambda x, t: F.cross_entropy(x, t),
    )
    case(
        "ce sum",
        "sum instead of mean|multiplied by 64",
        F.cross_entropy,
        lambda: (randn(64, 10), torch.randint(0, 10, (64,))),
        lambda x, t: F.cross_entropy(x, t, reduction="sum"),
    )


def _softmax_low(x, dtype):
    e = low(low(x - x.amax(-1, keepdim=True), dtype).exp(), dtype)
    return low(e / low(e.sum(-1, keepdim=True), dtype), dtype)


def _sdpa_tf32(q, k, v):
    s = tf32(q.contiguous()) @ tf32(k.contiguous()).transpose(-1, -2) * q.shape[-1] ** -0.5
    s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return tf32(torch.softmax(s, -1)) @ tf32(v.contiguous())


def optimizer_cases():
    def adamw(p, g, m, v, step, lr=1e-2, b1=0.9, b2=0.999, eps=1e-8, wd=0.1):
        step = step + 1
        p = p * (1 - lr * wd)
        m = m.lerp(g, 1 - b1)
        v = v * b2 + g * g * (1 - b2)
        denominator = (v / (1 - b2**step)).sqrt() + eps
        return p - lr / (1 - b1**step) * m / denominator, m, v

    make = lambda: (randn(60), randn(60), 0.1 * randn(60), 0.01 * torch.rand(60), torch.tensor(3.0))  # noqa: E731
    case("adamw step", "step count", adamw, make, lambda p, g, m, v, s: adamw(p, g, m, v, s + 1))
    case("adamw no correction", "bias correction", adamw, make, lambda p, g, m, v, s: adamw(p, g, m, v, s + 1e9))
    case("adamw no decay", "decay|missing|ignored", adamw, make, lambda p, g, m, v, s: adamw(p, g, m, v, s, wd=0.0))
    case(
        "adamw eps inside",
        "epsilon is inside",
        adamw,
        lambda: (*(randn(60), randn(60, scale=1e-6), randn(60, scale=1e-6)), 1e-14 * torch.rand(60), torch.tensor(3.0)),
        _eps_inside,
    )

    def fused(p, g, m, v, step, decoupled=True, **other):
        op = torch.ops.aten._fused_adamw_ if decoupled else torch.ops.aten._fused_adam_
        options = (
            dict(
                lr=1e-2,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.1,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
                grad_scale=None,
                found_inf=None,
            )
            | other
        )
        op([p], [g], [m], [v], [], [step], **options)

    case("fused step", "step count", fused, make, lambda p, g, m, v, s: fused(p, g, m, v, s + 1), True)
    case(
        "fused coupled",
        "adam instead of.*adamw|decay",
        fused,
        make,
        lambda p, g, m, v, s: fused(p, g, m, v, s, decoupled=False),
        True,
    )
    case("fused decay", "weight_decay", fused, make, lambda p, g, m, v, s: fused(p, g, m, v, s, weight_decay=0.0), True)
    sgd = lambda p, g, b: (b.mul_(0.9).add_(g), p.add_(b, alpha=-0.1))  # noqa: E731
    case(
        "sgd lost",
        "lost|stale|not written",
        lambda p, g: p.add_(g, alpha=-0.1),
        lambda: (randn(64), randn(64)),
        lambda p, g: p,
        True,
    )
    case(
        "sgd momentum",
        "momentum|missing|unchanged",
        sgd,
        lambda: (randn(64), randn(64), randn(64)),
        lambda p, g, b: (b.zero_().add_(g), p.add_(b, alpha=-0.1)),
        True,
    )


def _eps_inside(p, g, m, v, step):
    step = step + 1
    p, m, v = p * (1 - 1e-3), m.lerp(g, 0.1), v * 0.999 + g * g * (1 - 0.999)
    return p - 1e-2 / (1 - 0.9**step) * m / torch.sqrt(v / (1 - 0.999**step) + 1e-8), m, v


def integer_cases():
    case(
        "argmax min",
        "argmin instead of argmax",
        lambda x: x.argmax(-1),
        lambda: (randn(30, 20),),
        lambda x: x.argmin(-1),
    )
    case(
        "argmax dim offset",
        "added|shifted",
        lambda x: x.argmax(-1),
        lambda: (randn(30, 20),),
        lambda x: x.argmax(-1) + 1,
    )
    case(
        "sort order",
        "order|descending|reversed",
        lambda x: torch.sort(x, -1)[0],
        lambda: (randn(30, 20),),
        lambda x: torch.sort(x, -1, descending=True)[0],
    )
    case(
        "gt ge",
        "ge instead of gt",
        torch.gt,
        lambda: (torch.randint(0, 4, (300,)), torch.randint(0, 4, (300,))),
        torch.ge,
    )
    case(
        "int tail",
        "last 5 of 100",
        lambda a, b: a + b,
        lambda: (torch.randint(1, 99, (100,)), torch.randint(1, 99, (100,))),
        lambda a, b: torch.cat([(a + b)[:-5], torch.zeros(5, dtype=torch.int64)]),
    )
    case(
        "int8 saturation",
        "saturated at 127",
        lambda a: a * 2,
        lambda: (torch.randint(0, 100, (200,)),),
        lambda a: (a * 2).clamp(max=127),
    )
    case(
        "floor div",
        "trunc",
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda: (torch.randint(-50, 50, (300,)), torch.randint(1, 9, (300,))),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    )


for make_cases in (attention_cases, optimizer_cases, integer_cases):
    make_cases()
