# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind: convolutions, pooling, resampling and images."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake
from .blind_fourth_a import double, fourth, honest, stored_in
from .blind_third import kept

# ------------------------------------------------------------------ convolutions

@fourth(lambda d: (d(2, 6, 9, 11), d(6, 3, 3), d(6), d(6)))
def depthwise_relu6(x, w, scale, bias, pad=1, flipped=False, top=6.0, order=False, swapped=False, stride=2):
    w = w.flip(1, 2) if flipped else (w.mT if swapped else w)
    y = F.conv2d(x, w[:, None], stride=stride, padding=pad, groups=6)
    s, b = scale[:, None, None] * 3, bias[:, None, None]
    return y.clamp(0, top) * s + b if order else (y * s + b).clamp(0, top)


def depthwise_by_taps(x, w, scale, bias):
    p = F.pad(x, (1, 1, 1, 1))
    y = sum(p[:, :, i:i + 9:2, j:j + 11:2] * w[:, i, j, None, None] for i in range(3) for j in range(3))
    return F.relu6(y * (3 * scale)[:, None, None] + bias[:, None, None])


honest(depthwise_relu6, "tap by tap", depthwise_by_taps)
honest(depthwise_relu6, "float64 inside", double(depthwise_relu6))
mistake(depthwise_relu6, "the filter is flipped (convolution, not correlation)", flipped=True)
mistake(depthwise_relu6, "the filter's rows and columns are exchanged", swapped=True)
mistake(depthwise_relu6, "clamps before scale and bias", order=True)
mistake(depthwise_relu6, "relu without the upper end 6", top=1e9)
stored_in(depthwise_relu6, bf)


@fourth(lambda d: (d(2, 5, 30), d(10, 5, 3, scale=0.4), d(10), d(5, 5, scale=0.4)))
def gated_causal_dilated(x, w, b, out, dilation=4, left=True, swapped=False, residual=True, shift=0,
        tanh=torch.tanh):
    reach = 2 * dilation
    p = F.pad(x, (reach + shift, -shift)) if left else F.pad(x, (reach // 2, reach // 2))
    f, g = F.conv1d(p, w, b, dilation=dilation).chunk(2, 1)
    if swapped:
        f, g = g, f
    y = torch.einsum("oc,bct->bot", out, tanh(f) * g.sigmoid())
    return x + y if residual else y


def dilated_by_taps(x, w, b, out):
    y = b[:, None] + torch.zeros(2, 10, 30, dtype=x.dtype)
    for i in range(3):
        back = 4 * (2 - i)
        y[:, :, back:] += torch.einsum("oc,bct->bot", w[..., i], x[..., :30 - back])
    f, g = y.split(5, 1)
    return x + torch.einsum("oc,bct->bot", out, f.tanh() / (1 + (-g).exp()))


honest(gated_causal_dilated, "tap by tap", dilated_by_taps)
honest(gated_causal_dilated, "float64 inside", double(gated_causal_dilated))
mistake(gated_causal_dilated, "padding on both sides: the future leaks in", left=False)
mistake(gated_causal_dilated, "dilation 2 instead of 4", dilation=2)
mistake(gated_causal_dilated, "filter and gate halves are exchanged", swapped=True)
mistake(gated_causal_dilated, "the output is one step late", shift=1)
mistake(gated_causal_dilated, "the input is not added", residual=False)
mistake(gated_causal_dilated, "relu instead of tanh on the filter", tanh=F.relu)
stored_in(gated_causal_dilated, hf)


@fourth(lambda d: (d(2, 4, 6, 5), d(4, 3, 4, 4, scale=0.4), d(3)))
def upsampling_transposed_conv(x, w, b, pad=1, flipped=False, last_wins=False, shift=0, twice=False):
    w = w.flip(2, 3) if flipped else w
    h, wd = 12, 10
    out = x.new_zeros(2, 3, h + 2 * pad, wd + 2 * pad)
    for i in range(4):
        for j in range(4):
            part = torch.einsum("bchw,co->bohw", x, w[:, :, i, j])
            view = (slice(None), slice(None), slice(i, i + 2 * 6, 2), slice(j, j + 2 * 5, 2))
            out[view] = part if last_wins else out[view] + part
    out = out + (b[:, None, None] * (4 if twice else 1))
    return out[:, :, pad + shift:pad + shift + h, pad:pad + wd].contiguous()


honest(upsampling_transposed_conv, "torch's own", lambda x, w,
    b: F.conv_transpose2d(x, w, b, stride=2, padding=1))
honest(upsampling_transposed_conv, "convolution of the spread input", lambda x, w, b: (lambda s: F.conv2d(
    s, w.flip(2, 3).transpose(0, 1), b, padding=2))(F.conv_transpose2d(
        x, torch.ones(4, 1, 1, 1), stride=2, groups=4)))
mistake(upsampling_transposed_conv, "the taps are mirrored in both directions", flipped=True)
mistake(upsampling_transposed_conv, "overlapping taps overwrite instead of adding (lost updates)",
    last_wins=True)
mistake(upsampling_transposed_conv, "the output is cut one row late", shift=1)
mistake(upsampling_transposed_conv, "the bias is added by each of four overlapping taps", twice=True)
stored_in(upsampling_transposed_conv, hf)


@fourth(lambda d: (d(2, 5, 7, 6), d(6, 5, 3, 3), d(2, 5, shift=1.0)))
def demodulated_conv(x, w, style, demod=True, eps=1e-8, over=(2, 3, 4), gain=True, plus=0.0, one=False):
    w = w[None] * (style[:1].expand(2, 5) if one else style + plus)[:, None, :, None, None]
    if demod:
        w = w * ((w * w).sum(over, keepdim=True) + eps).rsqrt()
    y = F.conv2d(x.reshape(1, 10, 7, 6), w.flatten(0, 1), padding=1, groups=2).view(2, 6, 7, 6)
    return F.leaky_relu(y, 0.2) * (math.sqrt(2) if gain else 1.0)


honest(demodulated_conv, "styles on the input, norms on the output", lambda x, w, s: F.leaky_relu(
    F.conv2d(x * s[..., None, None], w, padding=1)
    / ((s * s) @ (w * w).sum((2, 3)).T).sqrt()[..., None, None],
    0.2) * 2 ** 0.5)
honest(demodulated_conv, "float64 inside", double(demodulated_conv))
mistake(demodulated_conv, "weights are not demodulated", demod=False)
mistake(demodulated_conv, "norms over outputs instead of inputs", over=(1, 3, 4))
mistake(demodulated_conv, "the gain sqrt(2) after the activation is left out", gain=False)
mistake(demodulated_conv, "both images take the first one's style", one=True)
mistake(demodulated_conv, "one is added to the style", plus=1.0)
stored_in(demodulated_conv, bf)


@fourth(lambda d: (d(1, 3, 8, 9), d(1, 18, 6, 7, scale=0.7), d(4, 3, 3, 3)))
def deformable_conv(x, offset, w, swapped=False, round_=False, zero=True, same=False):
    h, wd = x.shape[2:]
    out = 0
    for i in range(3):
        for j in range(3):
            k = 0 if same else i * 3 + j
            dy, dx = offset[0, 2 * k], offset[0, 2 * k + 1]
            if swapped:
                dy, dx = dx, dy
            py = torch.arange(6, dtype=x.dtype)[:, None] + i + dy
            px = torch.arange(7, dtype=x.dtype)[None] + j + dx
            if round_:
                py, px = py.round(), px.round()
            y0, x0 = py.floor(), px.floor()
            got = 0
            for yy in (y0, y0 + 1):
                for xx in (x0, x0 + 1):
                    ok = (yy >= 0) & (yy < h) & (xx >= 0) & (xx < wd) if zero else torch.ones_like(yy,
                        dtype=torch.bool)
                    share = (1 - (py - yy).abs()) * (1 - (px - xx).abs()) * ok
                    got = got + x[0][:, yy.long().clamp(0, h - 1), xx.long().clamp(0, wd - 1)] * share
            out = out + torch.einsum("oc,chw->ohw", w[:, :, i, j], got)
    return out[None]


def deformable_by_grid(x, offset, w):
    base = torch.stack(torch.meshgrid(torch.arange(6.0), torch.arange(7.0), indexing="ij"))
    cols = []
    for k in range(9):
        at = base + offset[0, 2 * k:2 * k + 2] + torch.tensor([k // 3, k % 3])[:, None, None]
        grid = torch.stack(((2 * at[1] + 1) / 9 - 1, (2 * at[0] + 1) / 8 - 1), -1)[None]
        cols.append(F.grid_sample(x, grid, align_corners=False)[0])
    return torch.einsum("ock,kchw->ohw", w.flatten(2), torch.stack(cols))[None]


honest(deformable_conv, "torch's grid sample and one product", deformable_by_grid)
honest(deformable_conv, "float64 inside", double(deformable_conv))
mistake(deformable_conv, "vertical and horizontal offsets are exchanged", swapped=True)
mistake(deformable_conv, "samples the nearest pixel instead of interpolating", round_=True)
mistake(deformable_conv, "outside the border pixel counts instead of zero", zero=False)
mistake(deformable_conv, "every tap uses the first tap's offset", same=True)


# ------------------------------------------------------------------ pooling and resampling

@fourth(lambda d: (d(2, 3, 9, 10),))
def average_pool_edges(x, counted=False, ceil=True, stride=2):
    p = F.pad(x, (1, 3, 1, 3))
    on = F.pad(torch.ones_like(x), (1, 3, 1, 3))
    s = p.unfold(2, 3, stride).unfold(3, 3, stride).sum((-1, -2))
    n = on.unfold(2, 3, stride).unfold(3, 3, stride).sum((-1, -2))
    s, n = s[:, :, :5, :6], n[:, :, :5, :6]
    if not ceil:
        s, n = torch.cat((s[..., :5], torch.zeros_like(s[..., :1])), -1), torch.cat((n[..., :5], n[..., :1]),
            -1)
    return s / 9 if counted else s / n.clamp(min=1.0)


honest(average_pool_edges, "torch's own", lambda x: F.avg_pool2d(
    x, 3, 2, 1, ceil_mode=True, count_include_pad=False))
honest(average_pool_edges, "window by window", lambda x: torch.stack([torch.stack([
    x[:, :, max(2 * i - 1, 0):2 * i + 2, max(2 * j - 1, 0):2 * j + 2].mean((2, 3)) for j in range(6)], -1)
    for i in range(5)], -2))
mistake(average_pool_edges, "divides by 9 at the border too (padding counted)", counted=True)
mistake(average_pool_edges, "the last partial column of windows is not written (zeros)", ceil=False)
mistake(average_pool_edges, "stride 1 instead of 2", stride=1)
stored_in(average_pool_edges, bf)


@fourth(lambda d: (d(2, 3, 8, 10, shift=1.0),))
def generalised_mean_pool(x, p=3.0, clamp=True, root=True, mean=True, size=2):
    y = (x.clamp(min=1e-3) if clamp else x.abs()) ** p
    y = y.unfold(2, size, 2).unfold(3, size, 2)
    y = y.mean((-1, -2)) if mean else y.sum((-1, -2))
    return y ** (1 / p) if root else y


honest(generalised_mean_pool, "average pool of cubes, exp and log", lambda x: (
    F.avg_pool2d((3 * x.clamp(min=1e-3).log()).exp(), 2).log() / 3).exp())
honest(generalised_mean_pool, "float64 inside", double(generalised_mean_pool))
mistake(generalised_mean_pool, "magnitudes instead of values clamped from below", clamp=False)
mistake(generalised_mean_pool, "the root at the end is left out", root=False)
mistake(generalised_mean_pool, "sums instead of averaging", mean=False)
mistake(generalised_mean_pool, "squares instead of cubes", p=2.0)
stored_in(generalised_mean_pool, hf)


def line_weights(n, m, like, corners=False, half=True):
    """The m x n matrix of linear interpolation."""
    at = torch.arange(m, dtype=like.dtype)
    if corners:
        at = at * (n - 1) / (m - 1)
    elif half:
        at = (at + 0.5) * n / m - 0.5
    else:
        at = at * n / m
    at = at.clamp(0, n - 1)
    w = (1 - (at[:, None] - torch.arange(n, dtype=like.dtype)).abs()).clamp(min=0)
    return w / w.sum(1, keepdim=True)


@fourth(lambda d: (d(2, 3, 6, 7),))
def bilinear_resize(x, rows=11, cols=16, corners=False, half=True, nearest=False, low=None):
    a, b = line_weights(6, rows, x, corners, half), line_weights(7, cols, x, corners, half)
    if nearest:
        a, b = (F.one_hot(w.argmax(1), w.shape[1]).to(x.dtype) for w in (a, b))
    return kept(a @ x, low) @ b.T


honest(bilinear_resize, "torch's own", lambda x: F.interpolate(x, (11, 16), mode="bilinear",
    align_corners=False))
honest(bilinear_resize, "float64 inside", double(bilinear_resize))
mistake(bilinear_resize, "corners are aligned", corners=True)
mistake(bilinear_resize, "pixel centres are not moved by one half", half=False)
mistake(bilinear_resize, "nearest pixel instead of interpolation", nearest=True)
mistake(bilinear_resize, "rows interpolated first are rounded to bf16", low=bf)


@fourth(lambda d: (d(2, 2, 7, 8),))
def bicubic_resize(x, a=-0.75, half=True, clamp=True, shift=0):
    def weights(n, m):
        at = (torch.arange(m, dtype=x.dtype) + (0.5 if half else 0.0)) * n / m - (0.5 if half else 0.0)
        w = torch.zeros(m, n, dtype=x.dtype)
        base = at.floor().long()
        for k in range(-1, 3):
            t = (at - (base + k)).abs()
            near = ((a + 2) * t - (a + 3)) * t * t + 1
            far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
            val = torch.where(t <= 1, near, far)
            ids = base + k + shift
            keep = torch.ones_like(val) if clamp else ((ids >= 0) & (ids < n)).to(x.dtype)
            w = w.scatter_add(1, ids.clamp(0, n - 1)[:, None], (val * keep)[:, None])
        return w

    return weights(7, 12) @ x @ weights(8, 13).T


honest(bicubic_resize, "torch's own", lambda x: F.interpolate(x, (12, 13), mode="bicubic",
    align_corners=False))
honest(bicubic_resize, "float64 inside", double(bicubic_resize))
mistake(bicubic_resize, "a = -0.5 instead of -0.75", a=-0.5)
mistake(bicubic_resize, "pixel centres are not moved by one half", half=False)
mistake(bicubic_resize, "beyond the edge counts as zero instead of the edge pixel", clamp=False)
mistake(bicubic_resize, "the four taps are read one pixel late", shift=1)
stored_in(bicubic_resize, hf)


@fourth(lambda d: (d(2, 3, 12, 10), torch.tensor([[0, 1.3, 0.7, 8.2, 9.4], [1, 0.4, 2.2, 6.1, 7.9],
    [0, 3.0, 3.5, 5.2, 10.1]])))
def roi_align(x, boxes, aligned=0.5, scale=1.0, samples=2, swapped=False, first=False, corner=False):
    out = []
    for b, x1, y1, x2, y2 in boxes:
        if swapped:
            x1, y1, x2, y2 = y1, x1, y2, x2
        plane = x[0 if first else int(b)]
        x1, y1 = x1 * scale - aligned, y1 * scale - aligned
        bh, bw = (y2 * scale - aligned - y1) / 3, (x2 * scale - aligned - x1) / 3
        step = (torch.arange(3 * samples, dtype=x.dtype) + (0.0 if corner else 0.5)) / samples
        py, px = (y1 + step * bh).clamp(0, 11), (x1 + step * bw).clamp(0, 9)
        wy = (1 - (py[:, None] - torch.arange(12, dtype=x.dtype)).abs()).clamp(min=0)
        wx = (1 - (px[:, None] - torch.arange(10, dtype=x.dtype)).abs()).clamp(min=0)
        got = wy @ plane @ wx.T
        out.append(got.view(3, 3, samples, 3, samples).mean((2, 4)))
    return torch.stack(out)


def roi_by_points(x, boxes):
    out = torch.zeros(3, 3, 3, 3, dtype=x.dtype)
    for r, (b, x1, y1, x2, y2) in enumerate(boxes.tolist()):
        for i in range(6):
            for j in range(6):
                py = min(max(y1 - 0.5 + (i + 0.5) * (y2 - y1) / 6, 0.0), 11.0)
                px = min(max(x1 - 0.5 + (j + 0.5) * (x2 - x1) / 6, 0.0), 9.0)
                u, v = min(int(py), 10), min(int(px), 8)
                fy, fx = py - u, px - v
                p = x[int(b), :, u:u + 2, v:v + 2]
                out[r, :, i // 2, j // 2] += ((p[:, 0, 0] * (1 - fx) + p[:, 0, 1] * fx) * (1 - fy)
                                              + (p[:, 1, 0] * (1 - fx) + p[:, 1, 1] * fx) * fy) / 4
    return out


honest(roi_align, "point by point", roi_by_points)
honest(roi_align, "float64 inside", double(roi_align))
mistake(roi_align, "boxes are not moved by half a pixel", aligned=0.0)
mistake(roi_align, "x and y of the boxes are exchanged", swapped=True)
mistake(roi_align, "every box reads the first image", first=True)
mistake(roi_align, "samples sit at the bins' corners instead of their centres", corner=True)


@fourth(lambda d: (d(2, 96), d.rand(6, 17)))
def log_mel(x, bank, floor=1e-4, power=2, periodic=True, hop=16, window=True, decibel=False, low=None):
    k = torch.arange(32, dtype=x.dtype)
    w = 0.5 - 0.5 * torch.cos(2 * math.pi * k / (32 if periodic else 31))
    frames = F.pad(x[:, None], (16, 16), mode="reflect")[:, 0].unfold(1, 32, hop)[:, :7]
    s = torch.fft.rfft(frames * w if window else frames).abs() ** power
    mel = (kept(s, low) @ bank.T).clamp(min=floor)
    return mel.log10() if decibel else mel.log()


def mel_by_dft(x, bank):
    n = torch.arange(32, dtype=torch.float64)
    angle = 2 * math.pi * n[:17, None] * n / 32
    padded = torch.cat((x[:, 1:17].flip(1), x, x[:, -17:-1].flip(1)), 1).double()
    frames = padded.unfold(1, 32, 16) * torch.sin(math.pi * n / 32) ** 2
    s = (frames @ angle.cos().T) ** 2 + (frames @ angle.sin().T) ** 2
    return (s @ bank.double().T).clamp(min=1e-4).log().to(x.dtype)


honest(log_mel, "a DFT matrix in float64", mel_by_dft)
honest(log_mel, "torch's stft", lambda x, b: (torch.stft(
    x, 32, 16, window=torch.hann_window(32), return_complex=True).abs().square().mT
    @ b.T).clamp(min=1e-4).log())
mistake(log_mel, "magnitudes instead of powers", power=1)
mistake(log_mel, "the window is symmetric (31), not periodic (32)", periodic=False)
mistake(log_mel, "the logarithm to base 10 instead of natural", decibel=True)
mistake(log_mel, "frames are not windowed", window=False)
mistake(log_mel, "power spectra are stored in bf16", low=bf)


# ------------------------------------------------------------------ images

@fourth(lambda d: (d.rand(2, 3, 8, 10) * 255,))
def rgb_to_ycbcr_420(x, kr=0.299, kb=0.114, half=128.0, swapped=False, pooled=True, bgr=False):
    r, g, b = x.unbind(1)
    if bgr:
        r, b = b, r
    y = kr * r + (1 - kr - kb) * g + kb * b
    cb, cr = (b - y) / (2 * (1 - kb)) + half, (r - y) / (2 * (1 - kr)) + half
    if swapped:
        cb, cr = cr, cb
    c = torch.stack((cb, cr), 1)
    return y, F.avg_pool2d(c, 2) if pooled else c[:, :, ::2, ::2].clone()


honest(rgb_to_ycbcr_420, "one 3 x 3 matrix", lambda x: (lambda m: (lambda o: (o[:, 0].clone(),
    o[:, 1:].unflatten(
    2, (4, 2)).unflatten(4, (5, 2)).mean((3, 5)) + 128))(torch.einsum("oc,bchw->bohw", m, x)))(
        torch.tensor([[0.299, 0.587, 0.114], [-0.299 / 1.772, -0.587 / 1.772, 0.5],
        [0.5, -0.587 / 1.402, -0.114 / 1.402]])))
honest(rgb_to_ycbcr_420, "float64 inside", double(rgb_to_ycbcr_420))
mistake(rgb_to_ycbcr_420, "BT.709 weights instead of BT.601", kr=0.2126, kb=0.0722)
mistake(rgb_to_ycbcr_420, "the two colour planes are exchanged", swapped=True)
mistake(rgb_to_ycbcr_420, "colour takes one pixel of four instead of their mean", pooled=False)
mistake(rgb_to_ycbcr_420, "channels are read as BGR", bgr=True)
mistake(rgb_to_ycbcr_420, "colour planes lack the offset 128", half=0.0)


@fourth(lambda d: (d.rand(2, 3, 7, 9), d.rand(2) * 0.6 + 0.7, d.rand(2) * 0.8 + 0.6))
def srgb_adjust(x, gain, contrast, linear=True, power=2.4, offset=0.055, mean_first=True, whole=False):
    y = torch.where(x <= 0.04045, x / 12.92, ((x + offset) / (1 + offset)) ** power) if linear else x
    y = y * gain[:, None, None, None]
    m = y.mean((0, 1, 2, 3) if whole else (1, 2, 3), keepdim=True)
    y = (y - m) * contrast[:, None, None, None] + (m if mean_first else 0.0)
    y = y.clamp(1e-4, 1)
    return torch.where(y <= 0.0031308, y * 12.92, 1.055 * y ** (1 / 2.4) - 0.055) if linear else y


honest(srgb_adjust, "image by image, powers by exp and log", lambda x, g,
    c: torch.stack([(lambda y: (lambda z: torch.where(
    z > 0.0031308, 1.055 * (z.log() / 2.4).exp() - 0.055, 12.92 * z))(
        torch.lerp(y.mean(), y, k).clamp(1e-4, 1)))(a * torch.where(
            i > 0.04045, (2.4 * ((i + 0.055) / 1.055).log()).exp(), i / 12.92)) for i, a, k in zip(x, g, c)]))
honest(srgb_adjust, "float64 inside", double(srgb_adjust))
mistake(srgb_adjust, "works on gamma-coded values (not linearised)", linear=False)
mistake(srgb_adjust, "exponent 2.2 instead of 2.4 when linearising", power=2.2)
mistake(srgb_adjust, "the mean is not added back", mean_first=False)
mistake(srgb_adjust, "one mean for the whole batch", whole=True)


@fourth(lambda d: (d.rand(2, 10, 11), torch.tensor([[0.9, 0.15, 0.4], [-0.1, 1.05, 0.3],
    [0.01, -0.015, 1.0]])))
def homography_warp(x, h, divide=True, swapped=False, nearest=False, inverse=False):
    h = torch.linalg.inv(h) if inverse else h
    v, u = torch.meshgrid(torch.arange(10, dtype=x.dtype), torch.arange(11, dtype=x.dtype), indexing="ij")
    if swapped:
        u, v = v, u
    p = torch.einsum("ij,jhw->ihw", h, torch.stack((u, v, torch.ones_like(u))))
    px, py = (p[0] / p[2], p[1] / p[2]) if divide else (p[0], p[1])
    if swapped:
        px, py = py, px
    if nearest:
        px, py = px.round(), py.round()
    wy = (1 - (py[..., None] - torch.arange(10, dtype=x.dtype)).abs()).clamp(min=0)
    wx = (1 - (px[..., None] - torch.arange(11, dtype=x.dtype)).abs()).clamp(min=0)
    return torch.einsum("bhw,ijh,ijw->bij", x, wy, wx)


def warp_by_gather(x, h):
    out = torch.zeros_like(x)
    p = F.pad(x, (1, 1, 1, 1))
    for i in range(10):
        for j in range(11):
            a, b, c = (h @ torch.tensor([float(j), float(i), 1.0])).tolist()
            px, py = a / c + 1, b / c + 1
            if 0 <= px < 12 and 0 <= py < 11:
                u, v = int(py), int(px)
                fy, fx = py - u, px - v
                q = p[:, u:u + 2, v:v + 2]
                out[:, i, j] = (q[:, 0, 0] * (1 - fx) * (1 - fy) + q[:, 0, 1] * fx * (1 - fy)
                                + q[:, 1, 0] * (1 - fx) * fy + q[:, 1, 1] * fx * fy)
    return out


honest(homography_warp, "four neighbours of each pixel", warp_by_gather)
honest(homography_warp, "float64 inside", double(homography_warp))
mistake(homography_warp, "the projective division is left out", divide=False)
mistake(homography_warp, "the matrix is inverted first", inverse=True)
mistake(homography_warp, "row and column coordinates are exchanged", swapped=True)
mistake(homography_warp, "nearest pixel instead of bilinear", nearest=True)


@fourth(lambda d: (d.rand(2, 9, 10), d.rand(2, 9, 10)))
def structural_similarity(x, y, c1=1e-2, c2=9e-2, sigma=1.5, cross=True, squared=True, low=None):
    t = torch.arange(-2, 3, dtype=x.dtype)
    k = (-t * t / (2 * sigma ** 2 if squared else 2 * sigma)).exp()
    k = k / k.sum()

    def blur(z):
        return F.conv2d(F.conv2d(z[:, None], k.view(1, 1, 5, 1)), k.view(1, 1, 1, 5))[:, 0]

    m, n = blur(x), blur(y)
    a, b = blur(kept(x * x, low)) - m * m, blur(kept(y * y, low)) - n * n
    c = blur(kept(x * y, low)) - (m * n if cross else 0.0)
    return (2 * m * n + c1) * (2 * c + c2) / ((m * m + n * n + c1) * (a + b + c2))


honest(structural_similarity, "windows unfolded, centred sums", lambda x, y: (lambda w, u, v: (lambda m, n: (
    lambda a, b, c: (2 * m * n + 0.01) / (m * m + n * n + 0.01) * ((2 * c + 0.09) / (a + b + 0.09)))(
        (w * (u - m[..., None, None]) ** 2).sum((-1, -2)), (w * (v - n[..., None, None]) ** 2).sum((-1, -2)),
        (w * (u - m[..., None, None]) * (v - n[..., None, None])).sum((-1, -2))))(
            (w * u).sum((-1, -2)), (w * v).sum((-1, -2))))(
                (lambda g: torch.outer(g, g) / g.sum() ** 2)((-torch.arange(-2.0, 3.0) ** 2 / 4.5).exp()),
                x.unfold(1, 5, 1).unfold(2, 5, 1), y.unfold(1, 5, 1).unfold(2, 5, 1)))
honest(structural_similarity, "float64 inside", double(structural_similarity))
mistake(structural_similarity, "the covariance does not subtract the product of means", cross=False)
mistake(structural_similarity, "the window's exponent lacks the square of sigma", squared=False)
mistake(structural_similarity, "sigma 0.5 instead of 1.5", sigma=0.5)
mistake(structural_similarity, "squares and products are stored in bf16", low=bf)


@fourth(lambda d: (d.rand(2, 9, 8),))
def sobel_direction(x, eighth=True, swapped=False, reflect=True, two=2.0, power=True, sign=1.0):
    p = F.pad(x[:, None], (1, 1, 1, 1), mode="replicate" if reflect else "constant")[:, 0]
    s = torch.tensor([1.0, two, 1.0], dtype=x.dtype)
    d = torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype)
    gx, gy = (F.conv2d(p[:, None], k[None, None])[:, 0]
        for k in (torch.outer(s, d), torch.outer(d, s) * sign))
    if swapped:
        gx, gy = gy, gx
    m = (gx * gx + gy * gy + 1e-6).sqrt() if power else gx.abs() + gy.abs()
    return m / (8 if eighth else 1), gx / m, gy / m


honest(sobel_direction, "shifted differences", lambda x: (lambda p: (lambda gx,
    gy: (lambda m: (m / 8, gx / m, gy / m))(
    (gx.square() + gy.square() + 1e-6).sqrt()))(
        (lambda c: c[:, :-2] + 2 * c[:, 1:-1] + c[:, 2:])(p[:, :, 2:] - p[:, :, :-2]),
        (lambda c: c[:, :, :-2] + 2 * c[:, :, 1:-1] + c[:, :, 2:])(p[:, 2:] - p[:, :-2])))(
            torch.cat((lambda r: (r[:, :1], r, r[:, -1:]))(torch.cat((x[..., :1], x, x[..., -1:]), 2)), 1)))
honest(sobel_direction, "float64 inside", double(sobel_direction))
mistake(sobel_direction, "horizontal and vertical gradient are exchanged", swapped=True)
mistake(sobel_direction, "zeros instead of edge pixels beyond the border", reflect=False)
mistake(sobel_direction, "weights 1, 1, 1 (Prewitt) instead of 1, 2, 1", two=1.0)
mistake(sobel_direction, "magnitude as a sum of magnitudes", power=False)
mistake(sobel_direction, "the vertical gradient has the wrong sign", sign=-1.0)
mistake(sobel_direction, "the magnitude is not divided by 8", eighth=False)
