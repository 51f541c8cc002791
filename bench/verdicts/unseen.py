# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels of modern callables that no part of the search for causes was written for:
how many causes are right, unknown, or name something else.

Run `python -m verdicts.unseen [later]` in bench/. A cause is right where it says what was planted
(the pattern beside it), unknown where it says so or tells only what is seen ("looks like ..."),
and wrong in every other case.
"""

import math
import re
import sys

import torch
from torch.nn import functional

import ulpscope

SECONDS = 20.0  # so that a busy machine counts the same


def r(*sizes):
    return torch.randn(*sizes)


# ---- attention and places --------------------------------------------------------------------


def gqa(q, k, v, repeat=True, scale=None):
    n = q.shape[1] // k.shape[1]
    spread = (lambda t: t.repeat_interleave(n, 1)) if repeat else (lambda t: t.repeat(1, n, 1, 1))
    return functional.scaled_dot_product_attention(q, spread(k), spread(v), scale=scale)


def capped(q, k, v, cap=20.0, softcap=True):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    s = cap * torch.tanh(s / cap) if softcap else s
    return s.softmax(-1) @ v


def window(q, k, v, size=4):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    i = torch.arange(q.shape[-2])
    gap = i[:, None] - i
    return s.masked_fill((gap < 0) | (gap >= size), -torch.inf).softmax(-1) @ v


def alibi(q, k, v, slopes, sign=-1.0):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    i = torch.arange(q.shape[-2], dtype=q.dtype)
    return (s + sign * slopes[:, None, None] * (i[:, None] - i).abs()).softmax(-1) @ v


def sink(q, k, v, extra, used=True):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    extra = extra.expand(*s.shape[:-1], 1)
    return (torch.cat([s, extra], -1).softmax(-1)[..., :-1] if used else s.softmax(-1)) @ v


def rope(x, base=10000.0, half=True, sign=1.0, start=0):
    n, d = x.shape[-2:]
    f = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    a = torch.arange(start, start + n, dtype=x.dtype)[:, None] * f
    c, s = a.cos(), sign * a.sin()
    u, w = (x[..., : d // 2], x[..., d // 2 :]) if half else (x[..., ::2], x[..., 1::2])
    u, w = u * c - w * s, u * s + w * c
    return torch.cat([u, w], -1) if half else torch.stack([u, w], -1).flatten(-2)


# ---- norms and gates -------------------------------------------------------------------------


def rms(x, w, eps=1e-6, offset=0.0, mean=True):
    v = x.square().mean(-1, keepdim=True) if mean else x.square().sum(-1, keepdim=True)
    return x * torch.rsqrt(v + eps) * (w + offset)


def gated_norm(x, g, w, first=False):
    gate = functional.silu(g)
    y = x * gate if first else x
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * w
    return y if first else y * gate


def layer(x, w, b, residual, after=True):
    y = functional.layer_norm(x + residual if after else x, x.shape[-1:], w, b)
    return y if after else y + residual


def group(x, groups):
    return functional.group_norm(x, groups)


def instance(x, axes=(2, 3)):
    m, v = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
    return (x - m) / torch.sqrt(v + 1e-5)


def swiglu(x, a, b, swap=False, gate=functional.silu):
    u, w = x @ a, x @ b
    return u * gate(w) if swap else gate(u) * w


# ---- routing and losses ----------------------------------------------------------------------


def routed(x, gate, experts, k=2, renormalise=True, first=False):
    p = (x @ gate).softmax(-1)
    value, index = p.topk(k, -1)
    value = value / value.sum(-1, keepdim=True) if renormalise else value
    y = torch.einsum("td,edf->tef", x, experts)
    value = torch.ones_like(value) / k if first else value
    return (y.gather(1, index[..., None].expand(-1, -1, y.shape[-1])) * value[..., None]).sum(1)


def balance(p, load, n=8):
    return n * (p.mean(0) * load).sum()


def focal(x, y, gamma=2.0, alpha=0.25):
    p = x.sigmoid()
    at = p * y + (1 - p) * (1 - y)
    return -((alpha * y + (1 - alpha) * (1 - y)) * (1 - at) ** gamma * at.log()).sum(-1)


def distill(a, b, t=3.0, squared=True):
    loss = (b / t).softmax(-1) * ((b / t).log_softmax(-1) - (a / t).log_softmax(-1))
    return loss.sum(-1) * (t * t if squared else 1)


def contrast(a, b, t=0.07):
    a, b = functional.normalize(a, dim=-1), functional.normalize(b, dim=-1)
    return (a @ b.T / t).log_softmax(-1).diagonal().neg()


def zloss(x, weight=1e-2):
    z = x.logsumexp(-1)
    return z - x[..., 0] + weight * z.square()


# ---- states, optimizers, quantization --------------------------------------------------------


def scan(x, dt, a, b, euler=False):
    h, out = torch.zeros_like(x[0]), []
    for i in range(x.shape[0]):
        step = dt[i] * a
        h = (1 + step if euler else step.exp()) * h + dt[i] * b[i] * x[i]
        out.append(h)
    return torch.stack(out)


def decayed(q, k, v, gate):
    s, out = torch.zeros(q.shape[-1], v.shape[-1], dtype=q.dtype), []
    for i in range(q.shape[0]):
        s = gate * s + k[i][:, None] * v[i]
        out.append(q[i] @ s)
    return torch.stack(out)


def adamw(p, g, m, v, lr=1e-2, wd=0.1, b1=0.9, b2=0.999, step=3, correct=True, coupled=False, nolr=False):
    g = g + wd * p if coupled else g
    p = p if coupled else p * (1 - (wd if nolr else lr * wd))
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    c1, c2 = (1 - b1**step, 1 - b2**step) if correct else (1.0, 1.0)
    return p - lr * (m / c1) / ((v / c2).sqrt() + 1e-8)


def lion(p, g, m, lr=1e-3, b1=0.9, b2=0.99):
    return p - lr * torch.sign(b1 * m + (1 - b1) * g), b2 * m + (1 - b2) * g


def muon(g, a=3.4445, b=-4.7750, c=2.0315, steps=3):
    x = g / g.norm()
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x


def dequantized(q, scale, zero, size=16, shift=0):
    n = q.shape[-1] // size
    scale, zero = (t.roll(shift, -1).repeat_interleave(size, -1)[..., : n * size] for t in (scale, zero))
    return (q - zero) * scale


def attention_arguments(heads=4, kv=4):
    return 2 * r(1, heads, 12, 16), 2 * r(1, kv, 12, 16), r(1, kv, 12, 16)


def optimizer_arguments():
    return r(40, 30), r(40, 30), 0.1 * r(40, 30), 0.1 * r(40, 30).square()


def moe_arguments():
    return r(32, 16), r(16, 8), r(8, 16, 24)


# name -> (reference, arguments, wrong kernel or its keywords, what a right cause says)
CASES = {
    "gqa tiled": (gqa, lambda: attention_arguments(4, 2), {"repeat": False}, "repeat|tile|heads|interleav"),
    "attention scale 1/d": (gqa, lambda: attention_arguments(), {"scale": 1 / 16}, r"scale|factor|multipl"),
    "no softcap": (
        capped,
        lambda: tuple(4 * t for t in attention_arguments()),
        {"softcap": False},
        "tanh.*(left out|ignored|missing)|(left out|without).*tanh",
    ),
    "softcap 30": (capped, lambda: tuple(4 * t for t in attention_arguments()), {"cap": 30.0}, r"30|20"),
    "window one longer": (window, lambda: attention_arguments(), {"size": 5}, "size|mask|window|>= |ge|4.*5"),
    "alibi sign": (
        alibi,
        lambda: (*attention_arguments(), torch.tensor([0.5, 0.25, 0.1, 0.05])),
        {"sign": 1.0},
        "sign|negat|-1",
    ),
    "no sink": (sink, lambda: (*attention_arguments(), torch.tensor(1.0)), {"used": False}, "extra|dropp|missing|last"),
    "rope base": (rope, lambda: (r(2, 12, 16),), {"base": 5e5}, "base|10000|500000|constant"),
    "rope interleaved": (rope, lambda: (r(2, 12, 16),), {"half": False}, "interleav"),
    "rope sign": (rope, lambda: (r(2, 12, 16),), {"sign": -1.0}, "sign|negat|sin"),
    "rope from 1": (rope, lambda: (r(2, 12, 16),), {"start": 1}, "start|shift|position|arange"),
    "rms sum": (rms, lambda: (r(12, 32), r(32)), {"mean": False}, "sum|mean"),
    "rms plain weight": (
        lambda x, w: rms(x, w, offset=1.0),
        lambda: (r(12, 32), 0.2 * r(32)),
        lambda x, w: rms(x, w),
        r"1 .*(missing|ignored|left out)|add|offset|\+ 1",
    ),
    "gate after norm": (gated_norm, lambda: (r(12, 32), r(12, 32), r(32)), {"first": True}, "order|gate|before"),
    "residual after norm": (layer, lambda: (r(12, 32), r(32), r(32), r(12, 32)), {"after": False}, "residual|order"),
    "groups 2 for 4": (lambda x: group(x, 4), lambda: (r(3, 8, 5, 5),), lambda x: group(x, 2), "group"),
    "batch for instance": (instance, lambda: (r(3, 4, 5, 5),), lambda x: instance(x, (0, 2, 3)), "batch|axis|axes|dim"),
    "swiglu halves": (swiglu, lambda: (r(12, 16), r(16, 24), r(16, 24)), {"swap": True}, "swap|exchang|other|argument"),
    "geglu": (swiglu, lambda: (r(12, 16), r(16, 24), r(16, 24)), {"gate": functional.gelu}, "gelu"),
    "top-2 not renormalised": (routed, moe_arguments, {"renormalise": False}, "div|sum|normal|left out"),
    "top-1": (routed, moe_arguments, {"k": 1}, r"\bk (is|were)|topk|last"),
    "uniform experts": (routed, moe_arguments, {"first": True}, "weight|value|ones|0.5|1/2|gate"),
    "focal gamma 1": (focal, lambda: (r(20, 30), (r(20, 30) > 0).float()), {"gamma": 1.0}, "pow|exponent|gamma|2"),
    "distill no t^2": (distill, lambda: (r(20, 30), r(20, 30)), {"squared": False}, "multipl|factor|0.111|1/9"),
    "contrast t 0.1": (contrast, lambda: (r(16, 32), r(16, 32)), {"t": 0.1}, r"0\.1|0\.07|div"),
    "zloss not squared": (
        zloss,
        lambda: (r(20, 50),),
        lambda x: x.logsumexp(-1) * 1.01 - x[..., 0],
        "square|dropp|missing|left out|pow",
    ),
    "ssm euler": (
        scan,
        lambda: (r(10, 4, 6), 0.3 * torch.rand(10, 4, 6), -torch.rand(4, 6), r(10, 4, 6)),
        {"euler": True},
        r"exp\b|euler|first order|1 \+",
    ),
    "gate squared": (
        decayed,
        lambda: (r(10, 6), r(10, 6), r(10, 8), torch.tensor(0.9)),
        lambda q, k, v, g: decayed(q, k, v, g * g),
        "gate|square|0.81",
    ),
    "decay without lr": (
        adamw,
        optimizer_arguments,
        {"nolr": True},
        r"\blr|decay|0\.999.*were 0\.9\b|0\.9 instead of 0\.999",
    ),
    "coupled decay": (adamw, optimizer_arguments, {"coupled": True}, "coupled|decay"),
    "no bias correction": (adamw, optimizer_arguments, {"correct": False}, "correction"),
    "beta2 0.95": (adamw, optimizer_arguments, {"b2": 0.95}, r"0\.95|beta|0\.999"),
    "step one late": (adamw, optimizer_arguments, {"step": 4}, "step|correction"),
    "lion betas": (
        lion,
        lambda: optimizer_arguments()[:3],
        lambda p, g, m: lion(p, g, m, b1=0.99, b2=0.9),
        r"0\.9\b.*0\.99|0\.99 .*0\.9\b|exchang|swap",
    ),
    "muon two steps": (muon, lambda: (r(12, 20),), {"steps": 2}, "step|twice|last|dropp|left out|missing"),
    "scales one group late": (
        dequantized,
        lambda: (torch.randint(0, 16, (8, 64)).float(), torch.rand(8, 4), torch.randint(6, 10, (8, 4)).float()),
        {"shift": 1},
        "shift|scale|index|roll|moved",
    ),
}


def mla(q, k, v, up, first=True):
    k = k @ up if first else k @ up.transpose(-1, -2)
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def qk_normed(q, k, v, eps=1e-6, both=True):
    n = lambda t: t * torch.rsqrt(t.square().mean(-1, keepdim=True) + eps)  # noqa: E731
    return functional.scaled_dot_product_attention(n(q), n(k) if both else k, v)


def relative(q, k, v, table, clip=4):
    i = torch.arange(q.shape[-2])
    at = (i[:, None] - i).clamp(-clip, clip) + clip
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + table[at.clamp(max=table.numel() - 1)]).softmax(-1) @ v


def conv_state(x, w, b, causal=True):
    n = w.shape[-1]
    pad = (n - 1, 0) if causal else (n // 2, n - 1 - n // 2)
    return functional.silu(functional.conv1d(functional.pad(x, pad), w, b, groups=x.shape[1]))


def smoothed(x, y, s=0.1, n=None):
    logs = x.log_softmax(-1)
    return -(1 - s) * logs.gather(-1, y[:, None]).squeeze(-1) - s * logs.sum(-1) / (n or x.shape[-1])


def dice(x, y, smooth=1.0, twice=True):
    p = x.sigmoid()
    return 1 - ((2 if twice else 1) * (p * y).sum(-1) + smooth) / (p.sum(-1) + y.sum(-1) + smooth)


def adafactor(g, r, c, beta=0.9, mean=True):
    r, c = (beta * t + (1 - beta) * u for t, u in ((r, g.square().mean(1)), (c, g.square().mean(0))))
    scale = r[:, None] * c / (r.mean() if mean else r.sum())
    return g * torch.rsqrt(scale)


def quantized(x, bits=8, symmetric=True, axis=-1):
    top = x.abs().amax(axis, keepdim=True)
    return x / top * (2 ** (bits - 1) - (1 if symmetric else 0))


def retention(q, k, v, gamma=0.9, strict=False):
    i = torch.arange(q.shape[-2])
    gap = i[:, None] - i
    decay = torch.where(gap >= (1 if strict else 0), gamma ** gap.clamp(min=0).to(q.dtype), 0.0)
    return (q @ k.transpose(-1, -2) * decay) @ v


def embedded(t, dim=16, top=10000.0, swapped=False):
    f = torch.exp(-math.log(top) * torch.arange(dim // 2, dtype=t.dtype) / (dim // 2))
    a = t[:, None] * f
    return torch.cat([a.sin(), a.cos()] if swapped else [a.cos(), a.sin()], -1)


def film(x, scale, shift, one=True):
    return functional.layer_norm(x, x.shape[-1:]) * (scale + (1 if one else 0)) + shift


def guided(a, b, weight=7.5, mine=False):
    return (a if mine else b) + weight * (a - b)


# A second set, written after the bar was set.
LATER = {
    "latent transposed": (
        mla,
        lambda: (r(2, 9, 16), r(2, 9, 16), r(2, 9, 16), r(16, 16)),
        {"first": False},
        "transpos|stride",
    ),
    "key not normed": (qk_normed, lambda: attention_arguments(), {"both": False}, "norm|rsqrt|factor|left out|missing"),
    "relative clip 3": (relative, lambda: (*attention_arguments(), r(9)), {"clip": 3}, "clip|clamp|min|max"),
    "conv not causal": (conv_state, lambda: (r(2, 6, 20), r(6, 1, 4), r(6)), {"causal": False}, "pad|shift"),
    "smoothing over one more": (smoothed, lambda: (r(20, 50), torch.randint(0, 50, (20,))), {"n": 51}, "51|50"),
    "dice not twice": (
        dice,
        lambda: (r(20, 50), (r(20, 50) > 0).float()),
        {"twice": False},
        r"factor.*2.*missing|\b2\b",
    ),
    "dice no smooth": (dice, lambda: (r(20, 50), (r(20, 50) > 0).float()), {"smooth": 0.0}, "term|add|smooth|constant"),
    "adafactor sum": (
        adafactor,
        lambda: (r(12, 20), torch.rand(12), torch.rand(20)),
        {"mean": False},
        "sum instead of mean|multiplied",
    ),
    "quantize by 128": (quantized, lambda: (r(8, 64),), {"symmetric": False}, "128"),
    "quantize by tensor": (quantized, lambda: (r(8, 64),), {"axis": (0, 1)}, "amax|per tensor|dim is"),
    "retention strict": (
        retention,
        lambda: tuple(t[0] for t in attention_arguments()),
        {"strict": True},
        "mask|gt|diagonal|shift",
    ),
    "retention 0.8": (retention, lambda: tuple(t[0] for t in attention_arguments()), {"gamma": 0.8}, r"0\.8"),
    "sin before cos": (embedded, lambda: (torch.rand(20) * 100,), {"swapped": True}, "exchang|halves|swap|order"),
    "film without one": (film, lambda: (r(12, 32), r(32), r(32)), {"one": False}, "1 of add|term"),
    "guidance from the other": (guided, lambda: (r(30, 20), r(30, 20)), {"mine": True}, "exchang|swap|argument"),
    "guidance 8": (guided, lambda: (r(30, 20), r(30, 20)), {"weight": 8.0}, r"\b8\b"),
}


def caused(name):
    """(verdict, cause) of a wrong kernel."""
    function, make, wrong, _ = (CASES | LATER)[name]
    torch.manual_seed(sum(map(ord, name)))
    args = make()
    outputs = wrong(*args) if callable(wrong) else function(*args, **wrong)
    found = ulpscope.judge_call(function, args, {}, outputs, cause=SECONDS)
    return found.verdict, found.cause


def place_of(cause, words):
    """Where a cause counts: right, unknown or wrong."""
    if not cause or cause.startswith(("cause unknown", "looks like")):
        return "unknown"
    return "right" if re.search(words, cause) else "wrong"


def main():
    names = LATER if sys.argv[1:] == ["later"] else sys.argv[1:] or CASES
    counts = dict.fromkeys(("right", "unknown", "wrong", "not accused"), 0)
    for name in names:
        verdict, cause = caused(name)
        accused = verdict in ("wrong", "reduced", "nonfinite")
        place = place_of(cause, (CASES | LATER)[name][3]) if accused else "not accused"
        counts[place] += 1
        print(f"{place:12} {name:24} {verdict:8} {cause}", flush=True)
    print(", ".join(f"{n} {k}" for k, n in counts.items()))


if __name__ == "__main__":
    main()
