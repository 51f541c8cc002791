# SPDX-License-Identifier: Apache-2.0
"""Set Q: convolutions, pools, images, transforms of Fourier."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow, tf32
from .blind_twelfth_a import another, good, twelfth, wrong

# ------------------------------------------------------------------ two dimensions, stride, groups


@twelfth(lambda d: (d(2, 12, 15, 17), d(18, 4, 3, 3, scale=0.3), d(18)))
def twelfth_conv2d(x, w, b):
    return F.conv2d(x, w, b, stride=2, padding=2, dilation=2, groups=3)


def patches(x, k=3, stride=2, pad=2, dilation=2, mode="constant"):
    return F.unfold(F.pad(x, (pad,) * 4, mode=mode), k, dilation, 0, stride)


def conv2d(x, w, b, groups="blocks", flip=False, bias=18, of=None, taps=36, mode="constant", dilation=2, pad=2):
    x, w = (of(x), of(w)) if of else (x, w)
    w = w.flip((2, 3)) if flip else w
    x = x.view(2, 4, 3, 15, 17).transpose(1, 2).reshape(x.shape) if groups == "turn" else x
    cols = patches(x, mode=mode, dilation=dilation, pad=pad).view(2, 3, 36, -1)
    y = torch.einsum("ngkp,gok->ngop", cols[:, :, :taps], w.view(3, 6, 36)[..., :taps]).reshape(2, 18, -1)
    return y.view(2, 18, 8, 9) + torch.where(torch.arange(18) < bias, b, 0.0)[:, None, None]


def tap_by_tap(x, w, b):
    x = F.pad(x, (2,) * 4)
    y = b[:, None, None].expand(2, 18, 8, 9).clone()
    for c in range(4):
        for i in range(3):
            for j in range(3):
                part = x[:, c::4, 2 * i : 2 * i + 16 : 2, 2 * j : 2 * j + 18 : 2]
                y = y + part.repeat_interleave(6, 1) * w[:, c, i, j, None, None]
    return y


good(twelfth_conv2d, conv2d, by_patches={}, tap_by_tap=tap_by_tap)
wrong(
    twelfth_conv2d,
    conv2d,
    {
        "the kernel is turned about": {"flip": True},
        "channels go to groups in turn, not by blocks": {"groups": "turn"},
        "the border is repeated, not zero": {"mode": "replicate"},
        "the last two channels have no bias": {"bias": 16},
        "dilation and padding are one": {"dilation": 1, "pad": 1},
        "the last tap of the last channel is left out": {"taps": 35},
        "the operands are tf32": {"of": lambda t: tf32(t.contiguous())},
    },
)

# ------------------------------------------------------------------ causal, of each channel


@twelfth(lambda d: (d(2, 20, 70, dtype=hf), d(20, 4, dtype=hf), d(20, dtype=hf)))
def twelfth_conv1d_causal(x, w, b):
    y = F.conv1d(F.pad(x.float(), (3, 0)), w.float()[:, None], b.float(), groups=20)
    return F.silu(y).to(hf)


def conv1d_causal(x, w, b, left=3, act=True, tile=None, turn=False, kind=None, bias=1.0):
    f, w = F.pad(x.float(), (left, 3 - left)), w.float()
    w = w.flip(1) if turn else w
    y = bias * b.float()[:, None].expand(2, 20, 70)
    for k in range(4):
        part = f[..., k : k + 70] * w[:, k, None]
        if tile:  # what is before a tile is not seen
            part = torch.where(torch.arange(70) % tile + k >= 3, part, 0.0)
        y = narrow(y + part, kind) if kind else y + part
    return y * (1 / (1 + torch.exp(-y)) if act else 1.0)


good(
    twelfth_conv1d_causal, conv1d_causal, hf, tap_by_tap={}, in_float64=lambda x, w, b: conv1d_causal(x.double(), w, b)
)
wrong(
    twelfth_conv1d_causal,
    conv1d_causal,
    {
        "one later element is seen": {"left": 2},
        "the activation is left out": {"act": False},
        "tiles of 32 begin without what is before them": {"tile": 32},
        "taps are in the opposite order": {"turn": True},
        "hides: taps are summed in bfloat16": {"kind": bf},
    },
    hf,
)

# ------------------------------------------------------------------ transposed, and gradients


@twelfth(lambda d: (d(2, 8, 7, 6), d(8, 5, 3, 3), d(5)))
def twelfth_conv_transpose(x, w, b):
    return F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)


def conv_transpose(x, w, b, pad=1, turn=False, edge=True, over=False):
    w = w.flip((2, 3)) if turn else w
    out = torch.zeros(2, 5, 16, 14)
    for i in range(3):
        for j in range(3):
            part = torch.einsum("nchw,co->nohw", x, w[:, :, i, j])
            at = (slice(None), slice(None), slice(i, i + 14, 2), slice(j, j + 12, 2))
            out[at] = part if over else out[at] + part
    out = out[:, :, pad : pad + 14, pad : pad + 12] + b[:, None, None]
    if not edge:
        out[:, :, -1] = b[:, None]
    return out


good(
    twelfth_conv_transpose,
    conv_transpose,
    scattered={},
    by_the_gradient=lambda x, w, b: torch.nn.grad.conv2d_input((2, 5, 14, 12), w, x, 2, 1) + b[:, None, None],
)
wrong(
    twelfth_conv_transpose,
    conv_transpose,
    {
        "nothing is cut at the top left": {"pad": 0},
        "the kernel is turned about": {"turn": True},
        "the added last row has the bias alone": {"edge": False},
        "overlapping outputs are overwritten": {"over": True},
    },
)


@twelfth(lambda d: (d(6, 4, 10, 10, dtype=bf), d(6, 8, 10, 10, dtype=bf)))
def twelfth_conv_weight_gradient(x, g):
    return torch.nn.grad.conv2d_weight(x.float(), (8, 4, 3, 3), g.float(), padding=1).to(bf)


def conv_weight_gradient(x, g, images=6, pad=1, mode="constant", turn=False, by=1.0, kind=None):
    x = F.pad(x.float(), (pad, 2 - pad, pad, 2 - pad), mode=mode)
    out = torch.zeros(8, 4, 3, 3)
    for n in range(images):
        for i in range(3):
            for j in range(3):
                out[:, :, i, j] += torch.einsum("chw,ohw->oc", x[n, :, i : i + 10, j : j + 10], g[n].float())
        out = narrow(out, kind) if kind else out
    return (out.mT if turn else out) * by


good(twelfth_conv_weight_gradient, conv_weight_gradient, bf, image_by_image={})
wrong(
    twelfth_conv_weight_gradient,
    conv_weight_gradient,
    {
        "the last image is left out": {"images": 5},
        "the input is padded by two on the right and below, not by one all round": {"pad": 0},
        "the kernel is transposed": {"turn": True},
        "divided by the six images": {"by": 1 / 6},
        "the input's border is repeated": {"mode": "replicate"},
        "the sum over images is in bfloat16": {"kind": bf},
    },
    bf,
)

# ------------------------------------------------------------------ pools


@twelfth(lambda d: (d(3, 4, 13, 14),))
def twelfth_max_pool(x):
    return F.max_pool2d(x - 1, 3, 2, 1, ceil_mode=True, return_indices=True)


def max_pool(x, border=-torch.inf, width=14, local=False, taps=9):
    x = x - 1
    f = F.pad(x, (1, 2, 1, 2), value=border)
    cols = torch.stack([f[..., i : i + 13 : 2, j : j + 15 : 2] for i in range(3) for j in range(3)], -1)
    v, k = cols[..., :taps].max(-1)
    i = torch.arange(7)[:, None] * 2 - 1 + k // 3
    j = torch.arange(8) * 2 - 1 + k % 3
    return v, k if local else i * width + j


good(twelfth_max_pool, max_pool, by_shifts={})
wrong(
    twelfth_max_pool,
    max_pool,
    {
        "the border is zero": {"border": 0.0},
        "indices are of a row of 15": {"width": 15},
        "indices are those in the window": {"local": True},
        "the window's last element is not looked at": {"taps": 8},
    },
)


@twelfth(lambda d: (d(2, 6, 12, 11, dtype=bf),))
def twelfth_avg_pool(x):
    return F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)


def avg_pool(x, inside=True, ceil=True, kind=None):
    f, one = F.pad(x.float(), (1, 1, 1, 2)), F.pad(torch.ones(12, 11), (1, 1, 1, 2))
    total, count = torch.zeros(2, 6, 7, 6), torch.zeros(7, 6)
    for i in range(3):
        for j in range(3):
            total = total + f[..., i : i + 13 : 2, j : j + 11 : 2]
            count = count + one[i : i + 13 : 2, j : j + 11 : 2]
            total = narrow(total, kind) if kind else total
    y = total / (count if inside else 9.0)
    if not ceil:
        y[..., 6, :] = 0
    return y


good(twelfth_avg_pool, avg_pool, bf, by_shifts={})
wrong(
    twelfth_avg_pool,
    avg_pool,
    {
        "padding is counted": {"inside": False},
        "the row that ceil mode adds is zero": {"ceil": False},
        "windows are summed in bfloat16": {"kind": bf},
    },
    bf,
)


@twelfth(lambda d: (d(2, 5, 17),))
def twelfth_adaptive_pool(x):
    return F.adaptive_avg_pool1d(x, 6)


def adaptive_pool(x, apart=False, equal=False, by=None):
    out = []
    for k in range(6):
        a, b = k * 17 // 6, -(-(k + 1) * 17 // 6)
        b = (k + 1) * 17 // 6 if apart else b
        a, b = (2 * k, 2 * k + 3) if equal else (a, b)
        out.append(x[..., a:b].sum(-1) / (by or b - a))
    return torch.stack(out, -1)


good(twelfth_adaptive_pool, adaptive_pool, window_by_window={})
wrong(
    twelfth_adaptive_pool,
    adaptive_pool,
    {
        "windows do not overlap": {"apart": True},
        "windows of three at steps of two": {"equal": True},
        "every window is divided by three": {"by": 3},
    },
)

# ------------------------------------------------------------------ images resized


@twelfth(lambda d: (d(2, 3, 9, 10),))
def twelfth_bilinear(x):
    return F.interpolate(x, (20, 13), mode="bilinear", align_corners=False)


def grid(out, n, corners=False, clamp=True, half=0.5):
    i = torch.arange(out, dtype=torch.float32)
    at = i * ((n - 1) / (out - 1)) if corners else (i + half) * (n / out) - half
    return at.clamp(min=0) if clamp else at


def weights(at, n, kind=None):
    lo = at.floor().long()
    t = at - lo
    t = torch.round(t * kind) / kind if kind else t
    w = torch.zeros(len(at), n)
    w.scatter_add_(1, lo.clamp(0, n - 1)[:, None], (1 - t)[:, None])
    return w.scatter_add_(1, (lo + 1).clamp(0, n - 1)[:, None], t[:, None])


def bilinear(x, kind=None, corners=False, half=0.5, nearest=False):
    h, w = grid(20, 9, corners, half=half), grid(13, 10, corners, half=half)
    h, w = (h.round(), w.round()) if nearest else (h, w)
    return torch.einsum("oh,nchw,pw->ncop", weights(h, 9, kind), x, weights(w, 10, kind))


good(twelfth_bilinear, bilinear, by_matrices={})
wrong(
    twelfth_bilinear,
    bilinear,
    {
        "corners are aligned": {"corners": True},
        "centres are not shifted by a half": {"half": 0.0},
        "the nearest for the two about it": {"nearest": True},
        "hides: weights are in steps of 1/256": {"kind": 256},
    },
)


@twelfth(lambda d: (d(2, 2, 12, 8),))
def twelfth_bicubic(x):
    return F.interpolate(x, (20, 24), mode="bicubic", align_corners=False)


def cubic(t, a):
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return torch.where(t <= 1, near, torch.where(t < 2, far, 0.0))


def bicubic(x, a=-0.75, border=True):
    made = []
    for out, n in ((20, 12), (24, 8)):
        at = grid(out, n, clamp=False)
        lo = at.floor().long()
        w = torch.zeros(out, n)
        for k in range(-1, 3):
            c = cubic((at - lo - k).abs(), a)
            c = c if border else torch.where((lo + k >= 0) & (lo + k < n), c, 0.0)
            w.scatter_add_(1, (lo + k).clamp(0, n - 1)[:, None], c[:, None])
        made.append(w)
    return torch.einsum("oh,nchw,pw->ncop", made[0], x, made[1])


good(twelfth_bicubic, bicubic, by_matrices={})
wrong(
    twelfth_bicubic,
    bicubic,
    {
        "the cubic's constant is -0.5": {"a": -0.5},
        "outside the image is zero": {"border": False},
        "bilinear for bicubic": lambda x: F.interpolate(x, (20, 24), mode="bilinear", align_corners=False),
    },
)


@twelfth(lambda d: (d(2, 3, 8, 9), d.rand(2, 6, 7, 2) * 2.6 - 1.3))
def twelfth_grid_sample(x, at):
    return F.grid_sample(x, at, mode="bilinear", padding_mode="zeros", align_corners=False)


def grid_sample(x, at, corners=False, swap=False, border=False, cut=False):
    u, v = at[..., 0], at[..., 1]
    u, v = (v, u) if swap else (u, v)
    u, v = ((u + 1) * 4, (v + 1) * 3.5) if corners else (((u + 1) * 9 - 1) / 2, ((v + 1) * 8 - 1) / 2)
    u, v = (u.clamp(0, 8), v.clamp(0, 7)) if border else (u, v)
    out = 0
    lo = (lambda t: t.trunc()) if cut else torch.floor
    for i in (0, 1):
        for j in (0, 1):
            a, b = lo(v) + i, lo(u) + j
            w = (1 - (v - a).abs()) * (1 - (u - b).abs())
            w = torch.where((a >= 0) & (a < 8) & (b >= 0) & (b < 9), w, 0.0)
            ai, bi = a.long().clamp(0, 7), b.long().clamp(0, 8)
            out = out + torch.stack([x[n][:, ai[n], bi[n]] * w[n] for n in range(2)])
    return out


good(twelfth_grid_sample, grid_sample, four_corners={})
wrong(
    twelfth_grid_sample,
    grid_sample,
    {
        "corners are aligned": {"corners": True},
        "the two coordinates are swapped": {"swap": True},
        "the border is repeated, not zero": {"border": True},
        "coordinates are cut towards zero, not down": {"cut": True},
    },
)

# ------------------------------------------------------------------ layout and Fourier


@twelfth(lambda d: (d(2, 12, 5, 6, dtype=hf),))
def twelfth_pixel_shuffle(x):
    return F.pixel_shuffle(x, 2)


def pixel_shuffle(x, order=(0, 1, 4, 2, 5, 3), first=False, stale=False):
    v = x.view(2, 2, 2, 3, 5, 6).permute(0, 3, 1, 2, 4, 5) if first else x.view(2, 3, 2, 2, 5, 6)
    y = v.permute(*order).reshape(2, 3, 10, 12).clone()
    if stale:
        y[1, 2, 9, 8:] = another(y)[1, 2, 9, 8:]
    return y


good(twelfth_pixel_shuffle, pixel_shuffle, by_a_view={})
wrong(
    twelfth_pixel_shuffle,
    pixel_shuffle,
    {
        "the block's rows and columns are swapped": {"order": (0, 1, 4, 3, 5, 2)},
        "the block is the channels' slow part": {"first": True},
        "the last four elements are of a call before": {"stale": True},
    },
)


@twelfth(lambda d: (d(6, 90, shift=1),))
def twelfth_rfft(x):
    return torch.view_as_real(torch.fft.rfft(x, norm="ortho"))


def rfft(x, scale=90**-0.5, sign=-1, n=90, of=None):
    k = torch.outer(torch.arange(46), torch.arange(90)).remainder(n).double() * (2 * torch.pi / n)
    c, s = k.cos().float(), k.sin().float()
    c, s = (of(c), of(s)) if of else (c, s)
    return torch.stack([x @ c.T, sign * (x @ s.T)], -1) * scale


def halves(x):
    even, odd = torch.fft.rfft(x[:, ::2].contiguous()), torch.fft.rfft(x[:, 1::2].contiguous())
    j = torch.arange(46) % 45
    fold = lambda z: torch.cat([z, z[:, 1:].flip(1).conj()], 1)[:, j]
    t = torch.polar(torch.ones(46), (-2 * torch.pi / 90 * torch.arange(46)).float())
    return torch.view_as_real((fold(even) + t * fold(odd)) * 90**-0.5)


good(twelfth_rfft, rfft, by_matrix={}, even_and_odd=halves)
wrong(
    twelfth_rfft,
    rfft,
    {
        "not divided by the root of n": {"scale": 1.0},
        "divided by n": {"scale": 1 / 90},
        "the conjugate": {"sign": 1},
        "twiddles are in bfloat16": {"of": narrow},
        "hides: twiddles are in half precision": {"of": lambda t: narrow(t, hf)},
    },
)


@twelfth(lambda d: (d(3, 160), torch.hann_window(32)))
def twelfth_spectrogram(x, window):
    z = torch.stft(x, 32, 8, window=window, center=True, pad_mode="reflect", return_complex=True)
    return z.real**2 + z.imag**2


def spectrogram(x, window, mode="reflect", root=False, symmetric=False):
    f = F.pad(x[:, None], (16, 16), mode=mode)[:, 0].unfold(-1, 32, 8)
    w = torch.hann_window(32, periodic=False) if symmetric else torch.ones(32) if root else window
    z = torch.fft.rfft(f * w)
    return (z.real**2 + z.imag**2).mT


good(twelfth_spectrogram, spectrogram, frame_by_frame={})
wrong(
    twelfth_spectrogram,
    spectrogram,
    {
        "the border is zero, not reflected": {"mode": "constant"},
        "the window is symmetric, not periodic": {"symmetric": True},
        "no window": {"root": True},
    },
)


@twelfth(lambda d: (d(2, 3, 7, 8),))
def twelfth_pad_reflect(x):
    return F.pad(x, (3, 2, 1, 4), mode="reflect")


def pad_reflect(x, edge=0, mode=None):
    if mode:
        return F.pad(x, (3, 2, 1, 4), mode=mode)

    def at(n, lo, hi):
        i = torch.arange(-lo, n + hi)
        i = torch.where(i < 0, -i - edge, i)
        return torch.where(i > n - 1, 2 * (n - 1) - i + edge, i)

    return x[:, :, at(7, 1, 4)][..., at(8, 3, 2)]


good(twelfth_pad_reflect, pad_reflect, by_indices={})
wrong(
    twelfth_pad_reflect,
    pad_reflect,
    {
        "the border itself is repeated": {"edge": 1},
        "the border is continued": {"mode": "replicate"},
        "the other side is taken": {"mode": "circular"},
    },
)
