# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: geometry of images and cameras, and transforms."""

import math

import torch
import torch.nn.functional as F

from .blind import hf, narrow
from .blind_thirteenth_a import A, add, but, wide

# ------------------------------------------------------------------ geometry


def roi_align(x, boxes):
    out = []
    for b, x0, y0, x1, y1 in boxes:
        i = (torch.arange(8, dtype=x.dtype) + 0.5) / 8
        ys, xs = (y0 * 0.5 - 0.5 + i * (y1 - y0) * 0.5), (x0 * 0.5 - 0.5 + i * (x1 - x0) * 0.5)
        grid = torch.stack(
            torch.meshgrid((xs + 0.5) * 2 / x.shape[3] - 1, (ys + 0.5) * 2 / x.shape[2] - 1, indexing="xy"), -1
        )
        v = F.grid_sample(x[int(b)][None], grid[None], align_corners=False, padding_mode="border")
        out.append(F.avg_pool2d(v, 2)[0])
    return torch.stack(out)


def roi_kernel(x, boxes, shift=0.5, scale=0.5, taps=2, batch=True, swap=False, most=False):
    out = []
    for row in boxes.tolist():
        b, x0, y0, x1, y1 = row
        if swap:
            x0, y0, x1, y1 = y0, x0, y1, x1
        i = (torch.arange(4 * taps) + 0.5) / (4 * taps)
        ys = (y0 * scale - shift + i * (y1 - y0) * scale).clamp(0, x.shape[2] - 1)
        xs = (x0 * scale - shift + i * (x1 - x0) * scale).clamp(0, x.shape[3] - 1)
        ly, lx = ys.floor().long(), xs.floor().long()
        hy, hx = (ly + 1).clamp(max=x.shape[2] - 1), (lx + 1).clamp(max=x.shape[3] - 1)
        fy, fx = (ys - ly)[:, None], xs - lx
        m = x[int(b) if batch else 0]
        v = (m[:, ly][..., lx] * (1 - fx) + m[:, ly][..., hx] * fx) * (1 - fy) + (
            m[:, hy][..., lx] * (1 - fx) + m[:, hy][..., hx] * fx
        ) * fy
        out.append((F.max_pool2d if most else F.avg_pool2d)(v[None], taps)[0])
    return torch.stack(out)


add(
    "roi_align",
    roi_align,
    lambda d: (d(2, 3, 12, 14), torch.cat([d.ints(2, 6, 1).float(), d.rand(6, 2) * 8 + 1, d.rand(6, 2) * 8 + 12], 1)),
    roi_kernel,
    right={"four neighbours": {}},
    wrong={
        "hides: not moved by a half": {"shift": 0.0},
        "all are of the first image": {"batch": False},
        "rows and columns are swapped": {"swap": True},
        "the greatest, not the mean": {"most": True},
        "hides: one sample a side": {"taps": 1},
    },
)


def grid_kernel(x, grid, *_, aligned=False, zero=True, swap=False, far=0):
    n, c, h, w = x.shape
    gx, gy = (grid[..., 1], grid[..., 0]) if swap else (grid[..., 0], grid[..., 1])
    px = (gx + 1) / 2 * (w - 1) if aligned else ((gx + 1) * w - 1) / 2
    py = (gy + 1) / 2 * (h - 1) if aligned else ((gy + 1) * h - 1) / 2
    x0, y0 = px.floor(), py.floor()
    total = 0
    for dy in (0, 1):
        for dx in (0, 1):
            xx, yy = x0 + dx, y0 + dy
            k = (1 - (px - xx).abs()) * (1 - (py - yy).abs())
            inside = (xx >= 0) & (xx < w - far) & (yy >= 0) & (yy < h)
            at = (yy.clamp(0, h - 1) * w + xx.clamp(0, w - 1)).long().flatten(1)[:, None].expand(-1, c, -1)
            v = x.flatten(2).gather(2, at).reshape(n, c, *px.shape[1:])
            total = total + v * (k * (inside if zero else 1))[:, None]
    return total


add(
    "grid_sample",
    A.grid_sampler_2d.default,
    lambda d: (d(2, 3, 8, 9), d(2, 6, 7, 2, scale=0.7), 0, 0, False),
    grid_kernel,
    right={
        "four neighbours": {},
        "in double": lambda x, g, *k: A.grid_sampler_2d.default(x.double(), g.double(), *k).float(),
    },
    wrong={
        "corners are aligned": {"aligned": True},
        "rows and columns are swapped": {"swap": True},
        "hides: beyond the edge is the edge": {"zero": False},
        "hides: the last column is outside": {"far": 1},
    },
)


def quaternion_matrix(q):
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return torch.stack([torch.stack(r, -1) for r in rows], -2)


def turned(q, last=False, turn=False, norm=True, lose=False):
    q = torch.cat([q[:, 1:], q[:, :1]], 1).roll(1, 1) if not last else q.roll(1, 1)
    s = 2 / (q * q).sum(-1) if norm else torch.full((len(q),), 2.0)
    w, x, y, z = q.unbind(-1)
    e = torch.eye(3).expand(len(q), 3, 3)
    k = torch.zeros(len(q), 3, 3)
    k[:, 0, 1], k[:, 0, 2], k[:, 1, 2] = -z, y, -x
    k = k - k.mT
    v = torch.stack([x, y, z], -1)
    m = e + s[:, None, None] * (w[:, None, None] * k + v[:, :, None] * v[:, None] - (v * v).sum(-1)[:, None, None] * e)
    if lose:
        m[:, 2, 2] = 1 - s * x * x
    return m.mT if turn else m


add(
    "quaternion_matrix",
    quaternion_matrix,
    lambda d: (d(30, 4),),
    turned,
    right={"by the cross product": {}, "in double": wide(quaternion_matrix)},
    wrong={
        "the real part is last": {"last": True},
        "transposed": {"turn": True},
        "not normed": {"norm": False},
        "hides: the last diagonal has one square": {"lose": True},
    },
)


def project(p, r, t, f, c, k):
    q = p @ r.T + t
    u = q[:, :2] / q[:, 2:].clamp(min=0.1)
    s = u.square().sum(1, keepdim=True)
    return f * u * (1 + k[0] * s + k[1] * s * s) + c


add(
    "camera_projection",
    project,
    lambda d: (
        d(50, 3),
        torch.linalg.qr(d(3, 3))[0],
        torch.tensor([0.0, 0.0, 3.0]),
        torch.tensor([300.0, 310.0]),
        torch.tensor([160.0, 120.0]),
        torch.tensor([0.1, -0.02]),
    ),
    lambda p, r, t, f, c, k, flip=False, near=0.1, second=1, square=True: (
        lambda q: (
            lambda u: (lambda s: u * (1 + s * (k[0] + s * k[1] * second)) * f + c)(
                (u * u).sum(1, keepdim=True) if square else u.norm(dim=1, keepdim=True)
            )
        )(q[:, :2] / q[:, 2:].clamp(min=near))
    )(p @ (r if flip else r.T) + t),
    right={"horner": {}, "in double": wide(project)},
    wrong={
        "turned the other way": {"flip": True},
        "distortion is of the distance, not its square": {"square": False},
        "hides: the second coefficient is left out": {"second": 0},
        "hides: the least depth is 1": {"near": 1.0},
    },
)


def rgb_hsv(x):
    r, g, b = x.unbind(1)
    v = x.amax(1)
    c = v - x.amin(1)
    safe = torch.where(c == 0, 1.0, c)
    h = torch.where(v == r, ((g - b) / safe) % 6, torch.where(v == g, (b - r) / safe + 2, (r - g) / safe + 4))
    return torch.stack(
        [torch.where(c == 0, 0.0, h / 6), torch.where(v == 0, 0.0, c / torch.where(v == 0, 1.0, v)), v], 1
    )


add(
    "rgb_to_hsv",
    rgb_hsv,
    lambda d: (torch.cat([d.rand(2, 3, 8, 9), d.rand(2, 1, 8, 9).expand(-1, 3, -1, -1)], 2),),
    right={"in double": wide(rgb_hsv)},
    wrong={
        "hides: reds may be negative": lambda x: but(
            (slice(None), 0), of=lambda h: torch.where((h > 5 / 6) & (h < 1), h - 1, h)
        )(rgb_hsv)(x),
        "saturation is not divided": lambda x: torch.stack([rgb_hsv(x)[:, 0], x.amax(1) - x.amin(1), x.amax(1)], 1),
        "channels are turned round": lambda x: rgb_hsv(x.flip(1)),
        "hides: grey has a saturation of one": lambda x: but(
            (slice(None), 1), of=lambda s: torch.where(s == 0, 1.0, s)
        )(rgb_hsv)(x),
    },
)


def blur(x):
    t = torch.arange(7, dtype=x.dtype) - 3
    k = torch.exp(-(t**2) / (2 * 1.5**2))
    k = k / k.sum()
    x = F.pad(x, (3, 3, 3, 3), mode="reflect")
    c = x.shape[1]
    x = F.conv2d(x, k.reshape(1, 1, 1, 7).expand(c, 1, 1, 7), groups=c)
    return F.conv2d(x, k.reshape(1, 1, 7, 1).expand(c, 1, 7, 1), groups=c)


def blur_kernel(x, sigma=1.5, norm=True, mode="reflect", rows=True):
    t = torch.arange(7.0) - 3
    k = torch.exp(-(t**2) / (2 * sigma**2))
    k = k / k.sum() if norm else k
    p = F.pad(x, (3, 3, 3, 3), mode=mode)
    w = k[:, None] * k if rows else F.pad(k[None], (0, 0, 3, 3))
    return sum(w[i, j] * p[:, :, i : i + x.shape[2], j : j + x.shape[3]] for i in range(7) for j in range(7))


add(
    "gaussian_blur",
    blur,
    lambda d: (d.rand(1, 3, 12, 14),),
    blur_kernel,
    right={"both at once": {}, "in double": wide(blur)},
    wrong={
        "not normed": {"norm": False},
        "hides: beyond the edge is the edge": {"mode": "replicate"},
        "rows alone": {"rows": False},
        "hides: sigma is 1.52": {"sigma": 1.52},
    },
)

# ------------------------------------------------------------------ transforms


def dft(n, sign=-1.0):
    k = torch.arange(n, dtype=torch.float64)
    return torch.polar(torch.ones(n, n, dtype=torch.float64), sign * 2 * math.pi * (k[:, None] * k % n) / n)


add(
    "rfft",
    A._fft_r2c.default,
    lambda d: (d(6, 60), [1], 0, True),
    lambda x, *_, sign=-1.0, scale=1.0, kind=None: (
        (
            x.double().to(torch.complex128)
            @ (dft(60, sign) if kind is None else torch.complex(narrow(dft(60).real, kind), narrow(dft(60).imag, kind)))
        )[:, :31]
        * scale
    ).to(torch.complex64),
    right={
        "a matrix": {},
        "halves": lambda x, *_: (lambda e, o, w: torch.cat([e + w * o, e[:, :1] - o[:, :1]], 1))(
            torch.fft.fft(x[:, ::2]),
            torch.fft.fft(x[:, 1::2]),
            torch.polar(torch.ones(30), -2 * math.pi * torch.arange(30.0) / 60),
        ),
    },
    wrong={
        "the other sign": {"sign": 1.0},
        "divided by n": {"scale": 1 / 60},
        "hides: twiddles are in half": {"kind": hf},
        "hides: the last frequency is the one before's": lambda x, *_: but(
            (slice(None), 30), of=lambda y: torch.fft.rfft(x)[:, 29]
        )(torch.fft.rfft)(x),
    },
)

add(
    "irfft",
    A._fft_c2r.default,
    lambda d: (torch.complex(d(5, 21), d(5, 21)), [1], 2, 40),
    right={
        "a matrix": lambda z, *_: (
            (
                torch.cat([z[:, :1].real + 0j, z[:, 1:20], z[:, 20:].real + 0j, z[:, 1:20].conj().flip(1)], 1).to(
                    torch.complex128
                )
                @ dft(40, 1.0)
            ).real
            / 40
        ).float()
    },
    wrong={
        "not divided": lambda z, *_: torch.fft.irfft(z, 40) * 40,
        "conjugated": lambda z, *_: torch.fft.irfft(z.conj(), 40),
        "hides: the last frequency counts twice": lambda z, *_: torch.fft.irfft(
            torch.cat([z[:, :20], 2 * z[:, 20:]], 1), 40
        ),
        "hides: divided by 41": lambda z, *_: torch.fft.irfft(z, 40) * 40 / 41,
    },
)


def mel(x, window, bank):
    frames = x.unfold(-1, 32, 12) * window
    power = torch.fft.rfft(frames).abs().square()
    return torch.log(torch.clamp(power @ bank, min=1e-5))


def mel_kernel(x, window, bank, hop=12, square=True, least=1e-5, dec=False, win=True, periodic=None):
    n = (x.shape[-1] - 32) // 12 + 1
    at = (torch.arange(n)[:, None] * hop + torch.arange(32)).clamp(max=x.shape[-1] - 1)
    f = x[..., at] * (window if win else 1)
    k = torch.arange(17)[:, None] * torch.arange(32) % 32
    re, im = f @ torch.cos(2 * math.pi * k / 32).T, f @ torch.sin(2 * math.pi * k / 32).T
    p = re**2 + im**2
    y = ((p if square else p.sqrt()) @ bank).clamp(min=least)
    return torch.log10(y) if dec else torch.log(y)


add(
    "log_mel",
    mel,
    lambda d: (d(2, 200), torch.hann_window(32), d.rand(17, 8) ** 3 * (d.rand(17, 8) < 0.6)),
    mel_kernel,
    right={"sines and cosines": {}, "in double": wide(mel)},
    wrong={
        "magnitudes are not squared": {"square": False},
        "logarithm of base ten": {"dec": True},
        "no window": {"win": False},
        "hides: the window is symmetric": lambda x, w, b: mel(x, torch.hann_window(32, periodic=False), b),
        "hides: hops of 11": {"hop": 11},
    },
)


def dct(x):
    n = x.shape[-1]
    k = torch.arange(n, dtype=x.dtype)
    m = torch.cos(math.pi * (k[:, None] + 0.5) * k / n) * math.sqrt(2 / n)
    m = torch.where(k == 0, m * math.sqrt(0.5), m)
    return x @ m


def dct_kernel(x, first=True, half=0.5, kind=None, scale=1.0):
    k = torch.arange(48.0, dtype=torch.float64)
    m = torch.cos(math.pi * (k[:, None] + half) * k / 48) * (2 / 48) ** 0.5
    if first:
        m[:, 0] *= 0.5**0.5
    m = narrow(m, kind) if kind else m
    return (x.double() @ m).float() * scale


add(
    "dct",
    dct,
    lambda d: (d(8, 48),),
    dct_kernel,
    right={
        "in double": {},
        "by a transform": lambda x: (
            (
                torch.fft.fft(torch.cat([x, x.flip(1)], 1))[:, :48]
                * torch.polar(torch.ones(48), -math.pi * torch.arange(48.0) / 96)
            ).real
            / torch.where(torch.arange(48) == 0, 192.0, 96.0).sqrt()
        ),
    },
    wrong={
        "the first is not scaled": {"first": False},
        "not from the middle": {"half": 0.0},
        "hides: cosines are rounded to half": {"kind": hf},
        "not orthonormal": {"scale": 48**0.5},
    },
)
