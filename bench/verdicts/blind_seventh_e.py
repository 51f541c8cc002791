# SPDX-License-Identifier: Apache-2.0
"""Set I, written blind (see blind_seventh_a): convolutions, pooling, resampling, Fourier transforms, linear
algebra, sorting."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, tf32
from .blind_seventh_a import doubled, right, seventh, via, wrong

f32 = torch.float32


# ------------------------------------------------------------------ convolutions

@seventh(lambda d: (d(2, 20, 70, dtype=hf), d(20, 4, dtype=hf), d(20, dtype=hf)))
def causal_conv1d_then_silu(x, w, b):
    return F.silu(F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=20))


def causal_taps(x, w, b, flip=False, lead=3, bias=1.0, edge=None, tile=None, act=F.silu, channel=0):
    w = w.flip(1) if flip else w
    padded = F.pad(x, (lead, 3 - lead))
    if tile:  # each tile starts with zeros instead of the last three numbers of the tile before
        y = torch.cat([sum(F.pad(t, (3, 0))[..., i:i + t.shape[-1]] * w[:, i, None] for i in range(4))
                       for t in x.split(tile, -1)], -1)
    else:
        y = sum(padded[..., i:i + 70] * w[:, i, None] for i in range(4))
    return act(y + bias * b.roll(channel)[:, None])


right(causal_conv1d_then_silu, "tap by tap", causal_taps)
doubled(causal_conv1d_then_silu)
wrong(causal_conv1d_then_silu, causal_taps, {
    "the taps are in reverse order": dict(flip=True),
    "one of the three zeros stands at the end: the next number is seen": dict(lead=2),
    "tiles of 35 do not see the end of the tile before": dict(tile=35),
    "the bias is added twice": dict(bias=2.0),
    "the activation is left out": dict(act=lambda t: t)})


@seventh(lambda d: (d(2, 8, 17, 15, dtype=bf), d(12, 4, 3, 3, scale=0.3, dtype=bf), d(12, dtype=bf)))
def dilated_grouped_conv2d(x, w, b):
    return F.conv2d(x, w, b, stride=2, padding=2, dilation=2, groups=2)


def conv_by_columns(x, w, b, dilation=2, pad=2, crossed=False, mixed=False, bias=True, kind=None, taps=9, wrap=False):
    if wrap:
        x = F.pad(x, (2, 2, 2, 2), mode="circular")
        pad = 0
    cols = (
        F.unfold(x, 3, dilation=dilation, padding=pad, stride=2).unflatten(1, (8, 9))[..., :9, :]
        if not crossed
        else F.unfold(x.mT, 3, dilation=dilation, padding=pad, stride=2).unflatten(1, (8, 9))
    )
    cols = cols.unflatten(1, (4, 2)).transpose(1, 2) if mixed else cols.unflatten(1, (2, 4))
    k = w.flatten(2).unflatten(0, (2, 6))
    out = 0
    for t in range(taps):
        out = via(out + torch.einsum("goc,bgcl->bgol", k[..., t], cols[:, :, :, t]), kind)
    out = out.flatten(1, 2)
    h, v = (17 + 2 * pad - 2 * dilation - 1) // 2 + 1, (15 + 2 * pad - 2 * dilation - 1) // 2 + 1
    if wrap:
        h, v = 9, 8
    return out.unflatten(2, (h, v)) + (b[:, None, None] if bias else 0)


right(dilated_grouped_conv2d, "columns, tap by tap", conv_by_columns)
doubled(dilated_grouped_conv2d)
wrong(dilated_grouped_conv2d, conv_by_columns, {
    "channels are given to the groups alternately": dict(mixed=True),
    "the image is wrapped around instead of padded with zeros": dict(wrap=True),
    "the last tap is left out": dict(taps=8),
    "the bias is left out": dict(bias=False),
    "sums are kept in bf16 between taps": dict(kind=bf)})


@seventh(lambda d: (d(2, 6, 9, 11), d(6, 5, 4, 4, scale=0.3)))
def transposed_conv2d_stride_three(x, w):
    return F.conv_transpose2d(x, w, stride=3, padding=1, output_padding=1)


def scattered_conv(x, w, flip=False, pad=1, lose=0, keep=False, kind=None):
    w = w.flip(2, 3) if flip else w
    out = x.new_zeros(2, 5, 3 * 8 + 4 + 2, 3 * 10 + 4 + 2)
    for i in range(9):
        for j in range(11 - lose):
            part = torch.einsum("bc,cokl->bokl", x[:, :, i, j], w)
            here = out[:, :, 3 * i:3 * i + 4, 3 * j:3 * j + 4]
            out[:, :, 3 * i:3 * i + 4, 3 * j:3 * j + 4] = part if keep else via(here + part, kind)
    return out[:, :, pad:pad + 27, pad:pad + 33]


right(transposed_conv2d_stride_three, "pixel by pixel scattered", scattered_conv)
right(transposed_conv2d_stride_three, "zeros between pixels and a plain convolution", lambda x, w: F.conv2d(
    F.pad(F.pad(x[..., None, :, None], (0, 2, 0, 0, 0, 2)).flatten(4, 5).flatten(2, 3)[:, :, :25, :31], (2, 3, 2, 3)),
    w.flip(2, 3).transpose(0, 1)))
wrong(transposed_conv2d_stride_three, scattered_conv, {
    "the taps are in reverse order": dict(flip=True),
    "the result is cut one pixel late": dict(pad=2),
    "where two pixels' taps overlap the later one overwrites": dict(keep=True),
    "the last column of pixels is not scattered": dict(lose=1)})


@seventh(lambda d: (d(3, 40, 48), d(16, 40, 3, scale=0.2), d(3, 16, 46)))
def conv1d_gradients(x, w, g):
    dx = F.conv_transpose1d(g, w)
    dw = torch.einsum("bot,bctk->ock", g, x.unfold(2, 3, 1))
    return dx, dw, g.sum((0, 2))


def conv1d_grads_taps(x, w, g, flip=False, batches=3, cut=0, low=False, last=0):
    dx, dw = torch.zeros_like(x), torch.zeros_like(w)
    for k in range(3):
        a, b = (tf32(g), tf32(x)) if low else (g, x)
        dx[:, :, k:k + 46] += torch.einsum("bot,oc->bct", g, w[:, :, 2 - k if flip else k])
        dw[:, :, k] = sum(a[n, :, cut:] @ b[n, :, k + cut:k + 46].mT for n in range(batches))
    return dx, dw, g[:, :, :46 - last].sum(2).sum(0)


right(conv1d_gradients, "tap by tap", conv1d_grads_taps)
right(
    conv1d_gradients,
    "automatic differentiation",
    lambda x, w, g: (
        (lambda a, b: torch.autograd.grad(F.conv1d(a, b), (a, b), g))(
            x.clone().requires_grad_(), w.clone().requires_grad_()
        )
        + (g.double().sum((0, 2)).float(),)
    ),
)
wrong(conv1d_gradients, conv1d_grads_taps, {
    "the gradient of x has the taps in reverse order": dict(flip=True),
    "the gradient of w leaves out the last of the batch": dict(batches=2),
    "the gradient of w is made of TF32 products": dict(low=True),
    "the bias gradient leaves out the last place": dict(last=1)})


# ------------------------------------------------------------------ pooling and resampling

@seventh(lambda d: (d(2, 3, 11, 14),))
def ceil_average_pool(x):
    return F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)


def pooled(x, count=None, pad=1, size=3, last=True, top=False):
    out = x.new_zeros(2, 3, 6, 8)
    for i in range(6):
        for j in range(8):
            a, b = 2 * i - pad, 2 * j - pad
            part = x[:, :, max(a, 0):a + size, max(b, 0):min(b + size, 14 if last else 13)]
            total = part.flatten(2).sum(-1)
            n = part.shape[2] * part.shape[3]
            out[:, :, i, j] = part.amax((2, 3)) if top else total / (max(n, 1) if count is None else count)
    return out


right(ceil_average_pool, "window by window", pooled)
right(ceil_average_pool, "sums divided by pooled ones", lambda x: F.avg_pool2d(x, 3, 2, 1, True, divisor_override=1)
      / F.avg_pool2d(torch.ones_like(x), 3, 2, 1, True, divisor_override=1))
wrong(ceil_average_pool, pooled, {
    "windows at the edge are divided by 9 all the same": dict(count=9),
    "the padding is left out: windows start at the corner": dict(pad=0),
    "the last column is never read": dict(last=False)})


@seventh(lambda d: (d(2, 3, 10, 13),))
def bilinear_to_seventeen(x):
    return F.interpolate(x, (17, 20), mode="bilinear", align_corners=False)


def bilinear(x, corners=False, clamp=True, half=0.5, swapped=False, fixed=None, nearest=False, short=0):
    def weights(n, m):
        at = torch.arange(m).to(x.dtype)
        at = at * (n - 1) / (m - 1) if corners else (at + half) * (fixed or n / m) - half
        at = at.clamp_min(0) if clamp else at
        low = at.floor()
        t = at - low
        t = t.round() if nearest else t
        t = 1 - t if swapped else t
        i = low.long().clamp(0, n - 1)
        j = (low.long() + 1).clamp(0, n - 1 - short)
        return torch.zeros(m, n).to(x.dtype).scatter_add(1, i[:, None], (1 - t)[:, None]).scatter_add(
            1, j[:, None], t[:, None])

    return torch.einsum("oh,bchw,pw->bcop", weights(10, 17), x, weights(13, 20))


right(bilinear_to_seventeen, "two products with weights", bilinear)
doubled(bilinear_to_seventeen)
wrong(bilinear_to_seventeen, bilinear, {
    "corners are aligned": dict(corners=True),
    "pixel centres are not taken at one half": dict(half=0.0),
    "the two weights are exchanged": dict(swapped=True),
    "the last row and column are never the right-hand neighbour": dict(short=1),
    "the step is 0.6 in both directions": dict(fixed=0.6)})


@seventh(lambda d: (d(2, 4, 8, 8), d.rand(2, 10, 10, 2) * 2.6 - 1.3))
def sampled_with_border(x, grid):
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


def sampler(x, grid, swapped=False, zeros=False, corners=False, shift=0.0, plain=False, edge=7):
    px, py = grid[..., 1 if swapped else 0], grid[..., 0 if swapped else 1]
    px, py = ((p + 1) * 3.5 if corners else ((p + 1) * 8 - 1) / 2 + shift for p in (px, py))
    if not zeros:
        px, py = px.clamp(0, edge), py.clamp(0, edge)
    out = 0
    for dx in (0, 1):
        for dy in (0, 1):
            i, j = px.floor().long() + dx, py.floor().long() + dy
            w = (1 - (px - i).abs()) * (1 - (py - j).abs())
            ok = (i >= 0) & (i < 8) & (j >= 0) & (j < 8)
            at = (j.clamp(0, 7) * 8 + i.clamp(0, 7)).flatten(1)[:, None].expand(-1, 4, -1)
            out = out + x.flatten(2).gather(2, at).unflatten(2, (10, 10)) * (w * ok)[:, None]
    return out


right(sampled_with_border, "four corners gathered", sampler)
doubled(sampled_with_border)
wrong(sampled_with_border, sampler, {
    "x and y of the grid are exchanged": dict(swapped=True),
    "places outside count as zero": dict(zeros=True),
    "corners are aligned": dict(corners=True),
    "places are clamped at 6.5, half a pixel inside the border": dict(edge=6.5)})


# ------------------------------------------------------------------ Fourier transforms

@seventh(lambda d: (d(3, 200), torch.hann_window(32)))
def reflect_power_spectrogram(x, window):
    frames = F.pad(x, (16, 16), mode="reflect").unfold(1, 32, 8)
    return torch.fft.rfft(frames * window, dim=-1).abs().square()


def spectrogram_by_product(x, window, zeros=False, symmetric=False, hop=8, short=0, half=False, root=False, late=0):
    if symmetric:
        window = 0.5 - 0.5 * torch.cos(2 * math.pi * torch.arange(32).to(x.dtype) / 31)
    frames = F.pad(x, (16 + late, 16 - late), mode="constant" if zeros else "reflect").unfold(1, 32, hop)
    a = 2 * math.pi * (torch.arange(32)[:, None] * torch.arange(17)[None] % 32).double() / 32
    y = frames * window
    y = y[..., :32 - short]
    re, im = (y @ t.to(x.dtype)[:32 - short] for t in (a.cos(), a.sin()))
    p = re.square() + im.square()
    p = p / 32 if half else p
    return p.sqrt() if root else p


right(reflect_power_spectrogram, "two products with cosines and sines", spectrogram_by_product)
doubled(reflect_power_spectrogram)
wrong(reflect_power_spectrogram, spectrogram_by_product, {
    "the ends are padded with zeros": dict(zeros=True),
    "the window is the symmetric one": dict(symmetric=True),
    "each frame leaves out its last two numbers": lambda x, w: spectrogram_by_product(x, w, short=2),
    "frames start one number early": dict(late=1),
    "the magnitude is given, not its square": dict(root=True)})


@seventh(lambda d: (d(4, 60), d(4, 60, scale=0.3)))
def long_filter_by_fft(x, k):
    n = 120
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(k, n), n)[..., :60]


def long_filter_direct(x, k, wrap=False, late=0, taps=60, mixed=False, skip=0):
    out = torch.zeros_like(x)
    k = k.roll(1, 0) if mixed else k
    for t in range(skip, taps):
        moved = x.roll(t + late, -1) if wrap else F.pad(x, (t + late, 0))[..., :60]
        out = out + k[:, t, None] * moved
    return out


right(long_filter_by_fft, "tap by tap", long_filter_direct)
right(long_filter_by_fft, "as a grouped convolution", lambda x, k: F.conv1d(F.pad(x, (59, 0))[None], k.flip(1)[:, None],
                                                                             groups=4)[0])
wrong(long_filter_by_fft, long_filter_direct, {
    "no zeros are appended: the end wraps to the start": dict(wrap=True),
    "the result is one step late": dict(late=1),
    "the last 12 taps are left out": dict(taps=48),
    "each row uses its neighbour's filter": dict(mixed=True)})


@seventh(lambda d: (torch.complex(d(6, 20), d(6, 20)), torch.complex(d(20, 9), d(20, 9))))
def complex_product_and_phase(a, b):
    y = a.conj() @ b
    return torch.view_as_real(y), y.abs()


def complex_parts(a, b, conj=-1, three=False, crossed=False, root=True, terms=20):
    ar, ai, br, bi = a.real[:, :terms], conj * a.imag[:, :terms], b.real[:terms], b.imag[:terms]
    re, im = ar @ br - ai @ bi, ar @ bi + ai @ br
    if three:
        p, q = ar @ br, ai @ bi
        re, im = p - q, (ar + ai) @ (br + bi) - p - q
    size = torch.hypot(re, im) if root else re.square() + im.square()
    return torch.stack((im, re) if crossed else (re, im), -1), size


right(complex_product_and_phase, "four real products", complex_parts, into="same")
right(complex_product_and_phase, "three real products", complex_parts, into="same", three=True)
wrong(complex_product_and_phase, complex_parts, {
    "the first factor is not conjugated": dict(conj=1),
    "real and imaginary parts are exchanged": dict(crossed=True),
    "the square of the magnitude is given": dict(root=False),
    "the last term of the inner axis is left out": dict(terms=19)}, into="same")


# ------------------------------------------------------------------ linear algebra, sorting, scans

@seventh(lambda d: ((lambda a: a @ a.mT / 12 + torch.eye(12))(d(3, 12, 12)), d(3, 12, 4)))
def cholesky_and_solve(a, b):
    low = torch.linalg.cholesky(a)
    return low, torch.cholesky_solve(b, low)


def cholesky_rows(a, b, upper=False, half=False, lose=False, shift=0.0, skip=0):
    a = a + shift * torch.eye(12).to(a.dtype)
    low = torch.zeros_like(a)
    for j in range(12):
        col = (
            a[:, :, j]
            - (low[:, :, : j - (skip if j > 8 else 0)] @ low[:, j, : j - (skip if j > 8 else 0), None])[..., 0]
        )
        low[:, j:, j] = col[:, j:] / col[:, j, None].sqrt()
    y = torch.linalg.solve_triangular(low, b, upper=False)
    x = y if half else torch.linalg.solve_triangular(low.mT, y, upper=True)
    return low.mT if upper else low, x


right(cholesky_and_solve, "column by column", cholesky_rows)
doubled(cholesky_and_solve)
wrong(cholesky_and_solve, cholesky_rows, {
    "the upper factor is given": dict(upper=True),
    "only the first of two triangular systems is solved": dict(half=True),
    "0.001 is added to the diagonal": dict(shift=1e-3),
    "columns after the ninth do not take off the one before": dict(skip=1)})


@seventh(lambda d: ((d(8, 90) * 4).round() / 4, d(8, 90)))
def sorted_with_partners(keys, values):
    order = keys.argsort(dim=-1, stable=True)
    return keys.gather(1, order), values.gather(1, order)


def merge_sorted(keys, values, unstable=False, down=False, alone=False, width=90, late=0):
    if down:
        order = keys.argsort(dim=-1, descending=True, stable=True)
    elif unstable:
        order = 89 - keys.flip(1).argsort(dim=-1, stable=True)
    else:
        less = (keys[:, None] < keys[..., None]).sum(-1)
        tie = ((keys[:, None] == keys[..., None]) & (torch.arange(90)[None] < torch.arange(90)[:, None])).sum(-1)
        order = torch.empty_like(less).scatter_(1, less + tie, torch.arange(90).expand(8, -1))
    if width < 90:
        order = torch.cat((keys[:, :width].argsort(dim=-1, stable=True), torch.arange(width, 90).expand(8, -1)), 1)
    return keys.gather(1, order), values if alone else values.gather(1, order)


right(sorted_with_partners, "places by counting smaller ones", merge_sorted)
right(
    sorted_with_partners,
    "sorted from pairs of key and place",
    lambda k, v: (lambda o: (k.gather(1, o), v.gather(1, o)))((k.double() * 4 * 128 + torch.arange(90)).argsort(-1)),
)
wrong(sorted_with_partners, merge_sorted, {
    "equal keys come in reverse order": dict(unstable=True),
    "largest first": dict(down=True),
    "the partners are not moved": dict(alone=True),
    "the last 26 are not sorted in": dict(width=64)})


@seventh(lambda d: (d(5, 200, scale=0.05, shift=1.0), d(5, 200)))
def running_product_recurrence(a, x):
    """h = a h + x along the row."""
    h, out = torch.zeros_like(x[:, 0]), []
    for t in range(200):
        h = a[:, t] * h + x[:, t]
        out.append(h)
    return torch.stack(out, 1)


def doubling_scan(a, x, steps=8, kind=None, late=False, wrap=False):
    for i in range(steps):
        s = 2 ** i
        pa, px = (F.pad(t, (s, 0), value=v)[:, :200] for t, v in ((a, 1.0), (x, 0.0)))
        if wrap:
            pa, px = a.roll(s, 1), x.roll(s, 1)
        x = via(x + (1 if late else a) * px, kind)
        a = a * pa
    return x


right(running_product_recurrence, "doubling steps", doubling_scan)
doubled(running_product_recurrence)
wrong(running_product_recurrence, doubling_scan, {
    "seven doubling steps for 200 numbers": dict(steps=7),
    "the sums are kept in bf16": dict(kind=bf),
    "the step factors are not applied": dict(late=True),
    "the doubling reads round the end of the row": dict(wrap=True)})


@seventh(lambda d: (d(3, 16, 10), d(3, 16, 10)))
def sinkhorn_transport(x, y):
    cost = torch.cdist(x, y)
    k = -cost / 0.5
    f, g = torch.zeros_like(k[..., 0]), torch.zeros_like(k[:, 0])
    for _ in range(6):
        f = -torch.logsumexp(k + g[:, None], -1) - math.log(16)
        g = -torch.logsumexp(k + f[..., None], -2) - math.log(16)
    return (k + f[..., None] + g[:, None]).exp()


def sinkhorn_scaled(x, y, steps=6, order=False, mass=16.0, temp=0.5, squared=False, stop=False):
    c = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    k = (-(c if squared else c.sqrt()) / temp).exp()
    u, v = torch.ones_like(k[..., 0]), torch.ones_like(k[:, 0])
    for i in range(steps):
        if order:
            v = 1 / (mass * (k.mT @ u[..., None])[..., 0])
        u = 1 / (mass * (k @ v[..., None])[..., 0])
        if not order and not (stop and i == steps - 1):
            v = 1 / (mass * (k.mT @ u[..., None])[..., 0])
    return k * u[..., None] * v[:, None]


right(sinkhorn_transport, "scaling without logs", sinkhorn_scaled)
doubled(sinkhorn_transport)
wrong(sinkhorn_transport, sinkhorn_scaled, {
    "five rounds": dict(steps=5),
    "columns are scaled before rows": dict(order=True),
    "the last round does not scale the columns": dict(stop=True),
    "the masses are 1/15": dict(mass=15.0)})
