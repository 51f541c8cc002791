# SPDX-License-Identifier: Apache-2.0
"""Set C, written blind: recurrences, convolutions with state, norms and blocks of layers."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake
from .blind_third import hurt, kept, last_rows_unwritten, third, widened

# ------------------------------------------------------------------ recurrences


@third(lambda d: (d(2, 32, 4, 8), d(2, 32, 4), d(4), d(4), d(2, 32, 8), d(2, 32, 8), d(4)))
def head_scan(x, dt, dt_bias, a_log, b, c, skip, late=0, bias_after=False, low=None, no_skip=False):
    dt = F.softplus(dt) + dt_bias if bias_after else F.softplus(dt + dt_bias)
    decay = (-dt * a_log.exp()).exp()
    if late:
        decay = torch.cat((torch.ones_like(decay[:, :1]), decay[:, :-1]), 1)
    h = x.new_zeros(x.shape[0], 4, 8, 8)
    out = []
    for t in range(x.shape[1]):
        h = h * decay[:, t, :, None, None] + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, None, None]
        h = kept(h, low)
        out.append(torch.einsum("bhpn,bn->bhp", h, c[:, t]))
    y = torch.stack(out, 1)
    return y if no_skip else y + skip[:, None] * x


mistake(head_scan, "each step decays with the step size of the one before", late=1)
mistake(head_scan, "dt's bias is added after the softplus", bias_after=True)
mistake(head_scan, "the state is kept in bf16 between steps", low=bf)
mistake(head_scan, "the skip D x is left out", no_skip=True)


@third(lambda d: (d(2, 2, 48, 8), d(2, 2, 48, 8), d(2, 2, 48, 8)))
def feature_attention(q, k, v, plus=1.0, strict=False, chunk=None, low=None):
    q, k = F.elu(q) + plus, F.elu(k) + plus
    n = q.shape[2]
    mask = q.new_ones(n, n).tril()
    if chunk:
        mask = mask * (torch.arange(n)[:, None] // chunk == torch.arange(n) // chunk)
    p = kept(q @ k.mT, low) * mask
    return p @ v / ((p.tril(-1) if strict else p).sum(-1, keepdim=True) + 1e-3)


mistake(feature_attention, "the normaliser misses the current token", strict=True)
mistake(feature_attention, "the state is reset at every chunk of 16", chunk=16)
mistake(feature_attention, "feature map elu + 2 instead of elu + 1", plus=2.0)
mistake(feature_attention, "scores are stored in fp8 (e4m3)", low=torch.float8_e4m3fn)


@third(lambda d: (d(1, 2, 32, 8), d(1, 2, 32, 8), d(1, 2, 32, 8), d(1, 2, 32), d(1, 2, 32)))
def gated_delta(q, k, v, b, g, unit=True, early=False, value_only=False, low=None):
    if unit:
        k = F.normalize(k, dim=-1)
    else:
        k = k * k.shape[-1] ** -0.5
    beta, decay = b.sigmoid(), (-F.softplus(g)).exp()
    s = q.new_zeros(1, 2, 8, 8)
    out = []
    for t in range(q.shape[2]):
        kt, bt = k[:, :, t, :, None], beta[:, :, t, None, None]
        before, s = s, s * decay[:, :, t, None, None]
        seen = kt.mT @ (before if early else s)
        new = bt * v[:, :, t, None] - seen if value_only else bt * (v[:, :, t, None] - seen)
        s = kept(s + kt @ new, low)
        out.append((q[:, :, t, None] @ s)[..., 0, :])
    return torch.stack(out, 2)


mistake(gated_delta, "the delta reads the state before its decay", early=True)
mistake(gated_delta, "keys are divided by sqrt(d) instead of by their norm", unit=False)
mistake(gated_delta, "beta scales the value only, not what is taken away", value_only=True)
mistake(gated_delta, "the state is kept in bf16 between steps", low=bf)


@third(lambda d: (d(2, 40, 16), d(2, 40, 16), d(16), d(16)))
def wkv(k, v, w, u, stored_bonus=False, one_decay=False, low=None):
    decay = (-w.exp()).exp()
    num = den = torch.zeros_like(k[:, 0])
    out = []
    for t in range(k.shape[1]):
        now, plain = (u + k[:, t]).exp(), k[:, t].exp()
        out.append((num + now * v[:, t]) / (den + now))
        put = now if stored_bonus else plain
        num = kept(num * decay + put * v[:, t], low)
        den = kept(den * (1.0 if one_decay else decay) + put, low)
    return torch.stack(out, 1)


mistake(wkv, "the bonus u goes into the state as well", stored_bonus=True)
mistake(wkv, "the denominator does not decay", one_decay=True)
mistake(wkv, "numerator and denominator are kept in bf16", low=bf)


@third(
    lambda d: (d(2, 20, 16), d.rand(16), d.rand(16), d(16, 32, scale=0.3), d(32, 16, scale=0.3), d(16, 16, scale=0.3))
)
def channel_mix(x, mk, mr, wk, wv, wr, power=2, swapped=False, around=False):
    before = x.roll(1, 1) if around else F.pad(x, (0, 0, 1, 0))[:, :-1]
    now, old = (before, x) if swapped else (x, before)
    k = F.relu((now * mk + old * (1 - mk)) @ wk) ** power
    return ((now * mr + old * (1 - mr)) @ wr).sigmoid() * (k @ wv)


mistake(channel_mix, "relu is not squared", power=1)
mistake(channel_mix, "present and previous token exchange their weights", swapped=True)
mistake(channel_mix, "the first token sees the last one as its predecessor", around=True)


@third(lambda d: (d(2, 12, 40), d(12, 4), d(12), d(2, 12, 3)))
def conv_with_state(x, w, bias, state, reverse=False, stale=0, after=False):
    whole = torch.cat((state, x), -1)
    y = F.conv1d(whole, (w.flip(1) if reverse else w)[:, None], groups=12)
    y = F.silu(y) + bias[:, None] if after else F.silu(y + bias[:, None])
    n = whole.shape[-1] - stale
    return y, whole[..., n - 3 : n].clone()


mistake(conv_with_state, "taps are applied in reverse order", reverse=True)
mistake(conv_with_state, "the state handed on misses the newest input", stale=1)
mistake(conv_with_state, "the bias is added after silu", after=True)


@third(lambda d: (d(2, 6, 64), d(6, 64, scale=0.2), d(6)))
def fft_conv(x, kernel, skip, pad=2, conj=False, low=None):
    n = x.shape[-1]
    a, b = torch.fft.rfft(x, pad * n), torch.fft.rfft(kernel, pad * n)
    b = b.conj() if conj else b
    s = torch.view_as_complex(kept(torch.view_as_real(a * b).contiguous(), low))
    return torch.fft.irfft(s, pad * n)[..., :n] + skip[:, None] * x


mistake(fft_conv, "no zero padding: the convolution is circular", pad=1)
mistake(fft_conv, "multiplies with the conjugate spectrum (a correlation)", conj=True)
mistake(fft_conv, "the product of the spectra is stored in bf16", low=bf)


# ------------------------------------------------------------------ norms and blocks


@third(lambda d: (d(3, 8, 5, 5, shift=3.0), d(8), d(8)))
def group_norm_silu(x, w, b, groups=4, strided=False, unbiased=0, low=None):
    y = x.view(3, -1, groups, 25).transpose(1, 2) if strided else x.view(3, groups, -1, 25)
    mean = y.mean((2, 3), keepdim=True)
    if low:
        var = kept(kept((y * y).mean((2, 3), keepdim=True), low) - kept(mean, low) ** 2, low)
    else:
        var = y.var((2, 3), correction=unbiased, keepdim=True)
    y = (y - mean) / (var + 1e-5).sqrt()
    y = (y.transpose(1, 2) if strided else y).reshape(x.shape)
    return F.silu(y * w[:, None, None] + b[:, None, None])


mistake(group_norm_silu, "divides by n - 1 in the variance", unbiased=1)
mistake(group_norm_silu, "channel c belongs to group c % 4 instead of c // 2", strided=True)
mistake(group_norm_silu, "variance as mean square less squared mean, both rounded to fp16", low=hf)


@third(lambda d: (d(20, 24), d(16, 24), d(16, shift=1.0), d(16)))
def weight_norm_linear(x, v, g, bias, over=1, power=1.0):
    w = g[:, None] * v / (v * v).sum(over, keepdim=True).sqrt() ** power
    return x @ w.T + bias


mistake(weight_norm_linear, "the norm runs over outputs instead of inputs", over=0)
mistake(weight_norm_linear, "divides by the squared norm", power=2.0)
mistake(weight_norm_linear, "one norm for the whole matrix", over=(0, 1))
mistake(
    weight_norm_linear,
    "the last row of the batch is not written (zeros)",
    hurt(weight_norm_linear, last_rows_unwritten),
)


@third(lambda d: (d(4, 6, 3, 3, scale=2.0, shift=1.0), d(6), d(6), d(6), d.rand(6) + 0.5))
def batch_norm_train(x, w, b, mean, var, momentum=0.1, correction=1, running=False):
    m, s = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    a, c = (mean, var) if running else (m, s)
    y = (x - a[:, None, None]) / (c[:, None, None] + 1e-5).sqrt() * w[:, None, None] + b[:, None, None]
    n = x.numel() // 6
    return (y, mean + momentum * (m - mean), var + momentum * (s * (n / (n - correction)) - var))


mistake(batch_norm_train, "the running variance takes the biased variance", correction=0)
mistake(batch_norm_train, "momentum the other way round: 0.9 of the new", momentum=0.9)
mistake(batch_norm_train, "normalises with the running statistics while training", running=True)


@third(lambda d: (d(12, 48, scale=0.05), d(12, 48, scale=0.05), d(48), d(48)))
def add_rms_bias(x, residual, w, b, eps=1e-3, outside=False, alone=False, low=None):
    h = kept(x + residual, low)
    ms = ((x if alone else h) ** 2).mean(-1, keepdim=True)
    return h / (ms.sqrt() + eps if outside else (ms + eps).sqrt()) * w + b, h


mistake(add_rms_bias, "epsilon is added after the square root", outside=True)
mistake(add_rms_bias, "mean square of x alone, not of the sum", alone=True)
mistake(add_rms_bias, "the sum is rounded to bf16 before the norm", low=bf)


@third(lambda d: (d(2, 12, 32, dtype=bf), d(2, 32, dtype=bf), d(2, 32, dtype=bf)))
def modulated_norm(x, shift, scale, one=1.0, swapped=False, last=None):
    if swapped:
        shift, scale = scale, shift
    y = F.layer_norm(x, x.shape[-1:]) * (one + scale[:, None]) + shift[:, None]
    if last is not None:
        y[:, -1] = last
    return y


mistake(modulated_norm, "multiplies by scale instead of 1 + scale", widened(modulated_norm, one=0.0))
mistake(modulated_norm, "shift and scale are exchanged", widened(modulated_norm, swapped=True))
mistake(modulated_norm, "the last token is not written (zeros)", widened(modulated_norm, last=0.0))


@third(lambda d: (d(2, 3, 16, 16), d(24, 3, 4, 4, scale=0.2), d(24), d(24), d(17, 24)))
def patch_embedding(image, w, b, cls, pos, late=0, columns=False, channels_last=False):
    y = image.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5)
    if columns:
        y = y.transpose(1, 2)
    if channels_last:
        y = y.permute(0, 1, 2, 4, 5, 3)
    y = y.reshape(2, 16, 48) @ w.flatten(1).T + b
    return torch.cat((cls.expand(2, 1, -1), y), 1) + pos.roll(late, 0)


mistake(patch_embedding, "the position table is read one row late", late=1)
mistake(patch_embedding, "patches are numbered down the columns", columns=True)
mistake(patch_embedding, "pixels taken channels last against channels-first weights", channels_last=True)


@third(lambda d: (d(20, 16), d(16, 32, scale=0.3), d(32, 16, scale=0.3), d(16)))
def layer_scale_mlp(x, w1, w2, gamma, both=False, quick=False, low=None):
    h = x @ w1
    h = kept(h * (1.702 * h).sigmoid() if quick else F.gelu(h), low)
    return (x + h @ w2) * gamma if both else x + gamma * (h @ w2)


mistake(layer_scale_mlp, "gamma scales the residual too", both=True)
mistake(layer_scale_mlp, "gelu as x sigmoid(1.702 x)", quick=True)
mistake(layer_scale_mlp, "the hidden layer is stored in fp8 (e4m3)", low=torch.float8_e4m3fn)


@third(lambda d: (d(24, 32, dtype=bf), d(32, 48, dtype=bf, scale=0.3), d(24, 16, dtype=bf, scale=0.3)))
def geglu_mlp(x, w1, w2, swapped=False, of_product=False, up_gelu=False):
    a, b = (x @ w1).chunk(2, -1)
    if swapped:
        a, b = b, a
    h = F.gelu(a * b) if of_product else F.gelu(a) * (F.gelu(b) if up_gelu else b)
    return h @ w2


mistake(geglu_mlp, "gate and value halves are exchanged", widened(geglu_mlp, swapped=True))
mistake(geglu_mlp, "gelu of the product instead of gelu of the gate", widened(geglu_mlp, of_product=True))
mistake(geglu_mlp, "gelu on both halves", widened(geglu_mlp, up_gelu=True))
