# SPDX-License-Identifier: Apache-2.0
"""Set Q, the twelfth: norms, forward and backward. What is planted is said in plain words; "hides" marks mistakes
near the noise or of few elements."""

import torch
import torch.nn.functional as F

from .blind import bf, family, hf, honest, mistake, narrow


def twelfth(args):
    return family(args, sets="Q")


def run_as(kernel, dtype, keywords):
    """A kernel at its keywords, its real outputs rounded to `dtype`."""

    def run(*args):
        got = kernel(*args, **keywords)
        one = lambda t: t.to(dtype if dtype and t.is_floating_point() else t.dtype).contiguous()
        return tuple(map(one, got)) if isinstance(got, tuple) else one(got)

    return run


def good(fn, kernel, dtype=None, **variants):
    for words, how in variants.items():
        part, how = (how, {}) if callable(how) else (kernel, how)
        honest(fn, words.replace("_", " "), run_as(part, dtype, how))


def wrong(fn, kernel, variants, dtype=None):
    for words, how in variants.items():
        part, how = (how, {}) if callable(how) else (kernel, how)
        mistake(fn, words, run_as(part, dtype, how))


def pairwise(x, leaf=8):
    """Sums of the last dimension by halves."""
    n = x.shape[-1]
    if n <= leaf:
        total = x[..., 0]
        for i in range(1, n):
            total = total + x[..., i]
        return total
    return pairwise(x[..., : n // 2], leaf) + pairwise(x[..., n // 2 :], leaf)


def lanes(x, width=32, kind=None):
    """Sums of the last dimension by `width` accumulators, one rounding to `kind` a step."""
    total = torch.zeros(*x.shape[:-1], width)
    for i in range(0, x.shape[-1], width):
        part = x[..., i : i + width]
        total[..., : part.shape[-1]] += part
        total = narrow(total, kind) if kind else total
    return pairwise(total)


def another(x, seed=77):
    """What a buffer held from a call before: numbers like x's."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(x.shape, generator=g).to(x.dtype) * x.float().std().to(x.dtype)


# ------------------------------------------------------------------ layer norm far from zero


@twelfth(lambda d: (d(48, 640, shift=300.0), d(640, shift=1.0, scale=0.2), d(640)))
def twelfth_layer_norm(x, w, b):
    return F.layer_norm(x, (640,), w, b, 1e-5)


def welford(x):
    mean, m2 = torch.zeros(x.shape[0]), torch.zeros(x.shape[0])
    for i in range(x.shape[1]):
        delta = x[:, i] - mean
        mean = mean + delta / (i + 1)
        m2 = m2 + delta * (x[:, i] - mean)
    return mean[:, None], (m2 / x.shape[1])[:, None]


def two_pass(x, total=pairwise):
    mean = total(x)[..., None] / x.shape[-1]
    return mean, total((x - mean) ** 2)[..., None] / x.shape[-1]


def shifted(x):
    base = x[:, :1]
    mean = pairwise(x - base)[:, None] / x.shape[1]
    return base + mean, pairwise((x - base) ** 2)[:, None] / x.shape[1] - mean**2


def one_pass(x):
    mean = pairwise(x)[:, None] / x.shape[1]
    return mean, (pairwise(x * x)[:, None] / x.shape[1] - mean**2).clamp(min=0)


def layer_norm(x, w, b, moments=two_pass, n=640, by=None, eps=1e-5, bias=640, cut=None, last=None):
    mean, var = moments(x[:, :n])
    var = var * 640 / by if by else var
    y = (x - mean) * torch.rsqrt(var + eps) * w + torch.where(torch.arange(640) < bias, b, 0.0)
    return last(y) if last else y


def slipped(y):
    y = y.clone()
    y[17, 512:] = y[17, 511:639].clone()
    return y


good(
    twelfth_layer_norm,
    layer_norm,
    two_passes={},
    shifted_by_the_first={"moments": shifted},
    two_passes_of_32_lanes={"moments": lambda x: two_pass(x, lanes)},
)
wrong(
    twelfth_layer_norm,
    layer_norm,
    {
        "the variance is the mean of squares less the square of the mean": {"moments": one_pass},
        "moments leave out the last tile of 128": {"n": 512},
        "the last tile of 64 gets no bias": {"bias": 576},
        # 8e-4 of each deviation
        "hides: the variance is divided by n - 1": {"by": 639},
        "hides: the last tile of one row is a lane late": {"last": slipped},
    },
)

# ------------------------------------------------------------------ root mean square, gain of one and more


@twelfth(lambda d: (d(64, 1000, dtype=bf, scale=0.02), d(1000, dtype=bf, scale=0.3)))
def twelfth_rms_norm(x, w):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + w.float())).to(bf)


def rms_norm(x, w, total=pairwise, n=1000, eps=1e-6, outside=False, one=1.0, root=None, early=False, back=False):
    f = x.float()
    mean = total(f * f)[:, None] / n
    inv = 1 / (mean.sqrt() + eps) if outside else root(mean + eps) if root else torch.rsqrt(mean + eps)
    y = narrow(f * inv) if early else f / (1 / inv) if back else f * inv
    return y * (one + w.float())


def quick_root(x):
    """The bits halved, and one step of Newton's."""
    i = 0x5F3759DF - (x.contiguous().view(torch.int32) >> 1)
    y = i.view(torch.float32)
    return y * (1.5 - 0.5 * x * y * y)


def newton(x):
    y = quick_root(x)
    for _ in range(3):
        y = y * (1.5 - 0.5 * x * y * y)
    return y


good(
    twelfth_rms_norm,
    rms_norm,
    bf,
    pairwise={},
    lanes={"total": lanes},
    four_steps_of_newton={"root": newton},
    divided_by_the_root={"back": True},
)
wrong(
    twelfth_rms_norm,
    rms_norm,
    {
        "the mean is by 1024 padded lanes, not 1000": {"n": 1024},
        "the gain lacks the one": {"one": 0.0},
        # the mean square is 4e-4: 3e-4 more
        "epsilon is 1e-5": {"eps": 1e-5},
        "hides: rounded to bfloat16 before the gain": {"early": True},
        "hides: the root from its bits has one step of Newton's": {"root": quick_root},
        "squares are summed in bfloat16": {"total": lambda x: lanes(x, 8, bf)},
    },
    bf,
)

# ------------------------------------------------------------------ groups of channels


@twelfth(lambda d: (d(4, 24, 9, 11, dtype=hf, scale=2, shift=1), d(24, dtype=hf, shift=1), d(24, dtype=hf)))
def twelfth_group_norm(x, w, b):
    return F.group_norm(x, 6, w, b, 1e-5)


def group_norm(x, w, b, groups=6, unbiased=False, gain=None, rows=None, kind=None):
    f = x.float().reshape(4, groups, -1)
    part = f[..., :rows]
    mean, var = part.mean(-1, keepdim=True), part.var(-1, keepdim=True, unbiased=unbiased)
    mean = narrow(mean, kind) if kind else mean
    y = ((f - mean) / torch.sqrt(var + 1e-5)).reshape(x.shape)
    w = gain(w) if gain else w
    return y * w.float()[:, None, None] + b.float()[:, None, None]


def folded(x, w, b):
    """As a scale and a shift of each channel."""
    f = x.float().reshape(4, 6, -1)
    mean, var = two_pass(f, lanes)
    scale = (1 / (var + 1e-5).sqrt()).expand(-1, -1, 4).reshape(4, 24) * w.float()
    shift = b.float() - mean.expand(-1, -1, 4).reshape(4, 24) * scale
    return torch.addcmul(shift[..., None, None], x.float(), scale[..., None, None])


good(twelfth_group_norm, group_norm, hf, two_passes={}, scale_and_shift=folded)
wrong(
    twelfth_group_norm,
    group_norm,
    {
        "four groups of six channels": {"groups": 4},
        "the gain is that of the group, not of the channel": {"gain": lambda w: w[:6].repeat_interleave(4)},
        "moments leave out the last row of the last channel": {"rows": 4 * 99 - 11},
        # 1/792 of each value
        "hides: the variance is unbiased": {"unbiased": True},
    },
    hf,
)

# ------------------------------------------------------------------ batch norm in training


@twelfth(lambda d: (d(16, 20, 6, 6, shift=2), d(20, shift=1), d(20), d(20), d.rand(20) + 0.5))
def twelfth_batch_norm(x, w, b, mean, var):
    m, v = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    at = lambda t: t[:, None, None]
    y = (x - at(m)) * at(torch.rsqrt(v + 1e-5)) * at(w) + at(b)
    return y, 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v * (576 / 575)


def batch_norm(x, w, b, mean, var, m=0.1, bessel=576 / 575, images=16, stale=False, kind=None, evaluate=False):
    rows = x[:images].transpose(0, 1).reshape(20, -1)
    mu, v = two_pass(rows)
    mu, v = mu[:, 0], v[:, 0]
    k, c = (mean, var) if evaluate else (mu, v)
    scale = w / torch.sqrt(c + 1e-5)
    y = x * scale[:, None, None] + (b - k * scale)[:, None, None]
    if stale:
        y[15] = another(x)[15]
    new = mean + m * (mu - mean), var + m * (v * bessel - var)
    return y, *((narrow(t, kind) if kind else t) for t in new)


def native_batch_norm(x, w, b, mean, var):
    mean, var = mean.clone(), var.clone()
    return F.batch_norm(x, mean, var, w, b, True, 0.1, 1e-5), mean, var


good(twelfth_batch_norm, batch_norm, folded={}, as_released=native_batch_norm)
wrong(
    twelfth_batch_norm,
    batch_norm,
    {
        "momentum is used for the old value: 0.9 of the new one": {"m": 0.9},
        "the running variance is biased": {"bessel": 1.0},
        "moments leave out the last image": {"images": 15},
        "the last image's output is of a call before": {"stale": True},
        "normalised by the running moments": {"evaluate": True},
        "hides: running moments are stored through half precision": {"kind": hf},
    },
)

# ------------------------------------------------------------------ layer norm backward


@twelfth(lambda d: (d(96, 256), d(96, 256), d(256, shift=1.0, scale=0.3)))
def twelfth_layer_norm_backward(g, x, w):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    r = torch.rsqrt(var + 1e-5)
    h = (x - mean) * r
    gw = g * w
    gx = r * (gw - gw.mean(-1, keepdim=True) - h * (gw * h).mean(-1, keepdim=True))
    return gx, (g * h).sum(0), g.sum(0)


def layer_norm_backward(g, x, w, centre=1, along=1, sign=1, rows=96, raw=False, kind=None, count=256, twice=False):
    mean, var = two_pass(x)
    r = 1 / torch.sqrt(var + 1e-5)
    h = (x - mean) * r
    gw = g * w
    a, c = pairwise(gw)[:, None] / count, pairwise(gw * h)[:, None] / 256
    gx = (gw - centre * a - along * h * c) * r * sign
    left = (g * (x if raw else h))[:rows]
    parts = [lanes(left[i : i + 16].T, 4, kind) for i in range(0, rows, 16)]
    gain = sum(parts) + (parts[2] if twice else 0)
    return gx, gain, lanes(g.T, 4)


def by_autograd(g, x, w):
    x, w, b = x.clone().requires_grad_(), w.clone().requires_grad_(), torch.zeros(256, requires_grad=True)
    F.layer_norm(x, (256,), w, b, 1e-5).backward(g)
    return x.grad, w.grad, b.grad


good(twelfth_layer_norm_backward, layer_norm_backward, blocks_of_16_rows={}, as_released=by_autograd)
wrong(
    twelfth_layer_norm_backward,
    layer_norm_backward,
    {
        "the term of the mean is not subtracted": {"centre": 0},
        "the term along the normalised input is added": {"along": -1},
        "the gain's gradient lacks the last block of 16 rows": {"rows": 80},
        "the gain's gradient is of the raw input": {"raw": True},
        "the third block of the gain's gradient is added twice": {"twice": True},
        # 0.4 per cent of a mean that is itself 1/16
        "hides: the mean of the gradient is by 255": {"count": 255},
        "hides: the gain's gradient is summed in half precision": {"kind": hf},
    },
)

# ------------------------------------------------------------------ residual, norm, both returned


@twelfth(lambda d: (d(32, 512, dtype=bf), d(32, 512, dtype=bf, scale=6), d(512, dtype=bf, shift=1, scale=0.1)))
def twelfth_add_norm(x, residual, w):
    s = x.float() + residual.float()
    return (s * torch.rsqrt((s * s).mean(-1, keepdim=True) + 1e-5) * w.float()).to(bf), s.to(bf)


def add_norm(x, residual, w, keep=1, skip=1, again=False, total=pairwise, gain=lambda w: w, early=False):
    s = x.float() + skip * residual.float()
    s = narrow(s) if early else s
    y = s * torch.rsqrt(total(s * s)[:, None] / 512 + 1e-5) * gain(w.float())
    return y, x.float() if not keep else s + residual.float() if again else s


good(twelfth_add_norm, add_norm, bf, pairwise={}, lanes={"total": lanes})
wrong(
    twelfth_add_norm,
    add_norm,
    {
        "the residual is not added": {"skip": 0},
        "the residual that is returned is the branch alone": {"keep": 0},
        "the residual that is returned has the old one twice": {"again": True},
        "the gain's lanes are read four later": {"gain": lambda w: w.roll(-4)},
        "hides: the sum is rounded to bfloat16 before it is normalised": {"early": True},
    },
    bf,
)

# ------------------------------------------------------------------ unit length


@twelfth(lambda d: (d(40, 24, dtype=hf) * torch.where(torch.arange(40) % 5 == 0, 2e-4, 1.0)[:, None].half(),))
def twelfth_normalize(x):
    return F.normalize(x.float(), dim=-1, eps=1e-3).to(hf)


def normalize(x, dim=-1, add=False, one=False, squares=None, root=True, eps=1e-3):
    f = x.float()
    q = f * f
    q = squares(q) if squares else q
    n = f.abs().sum(dim, keepdim=True) if one else q.sum(dim, keepdim=True)
    n = n.sqrt() if root and not one else n
    return f / (n + eps if add else n.clamp(min=eps))


good(twelfth_normalize, normalize, hf, as_defined={}, by_hypot=lambda x: x.float() / hypots(x.float()).clamp(min=1e-3))


def hypots(x):
    n = torch.zeros(len(x))
    for i in range(x.shape[1]):
        n = torch.hypot(n, x[:, i])
    return n[:, None]


wrong(
    twelfth_normalize,
    normalize,
    {
        "epsilon is added, not the least": {"add": True},
        "columns are normalised, not rows": {"dim": 0},
        "divided by the sum of magnitudes": {"one": True},
        "divided by the square of the length": {"root": False},
        # those of small rows are under 6e-8
        "squares are held in half precision": {"squares": lambda q: narrow(q, hf)},
        "hides: the least length is 1e-12": {"eps": 1e-12},
    },
    hf,
)

# ------------------------------------------------------------------ norm that a condition modulates


@twelfth(lambda d: (d(3, 50, 192), d(3, 192, scale=0.5), d(3, 192), d(3, 192)))
def twelfth_modulate(x, scale, shift, gate):
    h = F.layer_norm(x, (192,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
    return x + gate[:, None] * h


def modulate(x, scale, shift, gate, one=1, skip=1, swap=False, of=lambda t: t, dim=-1):
    scale, shift = (shift, scale) if swap else (scale, shift)
    mean = x.mean(dim, keepdim=True)
    h = (x - mean) / ((x - mean).square().mean(dim, keepdim=True) + 1e-6).sqrt()
    return skip * x + of(gate)[:, None] * (h * (one + scale[:, None]) + shift[:, None])


def spread(x, scale, shift, gate):
    mean, var = two_pass(x)
    r = torch.rsqrt(var + 1e-6) * (1 + scale[:, None]) * gate[:, None]
    return x * (1 + r) + ((gate * shift)[:, None] - mean * r)


good(twelfth_modulate, modulate, as_defined={}, one_multiply_and_add=spread)
wrong(
    twelfth_modulate,
    modulate,
    {
        "the scale lacks its one": {"one": 0},
        "scale and shift are swapped": {"swap": True},
        "the input is not added": {"skip": 0},
        "every sample takes the first one's gate": {"of": lambda t: t[:1].expand(3, -1)},
        "normalised over tokens, not features": {"dim": 1},
    },
)
