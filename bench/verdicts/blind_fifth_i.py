# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: convolutions, pooling, resampling and boxes."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_fifth_a import INF, cut, fifth, rights, wrongs

# ------------------------------------------------------------------ convolutions


@fifth(lambda d: (d(2, 4, 6, 7, 9, dtype=bf), d(5, 4, 3, 3, 3, dtype=bf, scale=0.1), d(5, dtype=bf)))
def conv3d_strided(x, w, b):
    return F.conv3d(x, w, b, stride=(1, 2, 2), padding=1)


def conv3d_taps(x, w, b, mode="constant", flip=False, order=(0, 1, 2), lost=None, stride=(1, 2, 2), off=0, plain=False):
    x = F.pad(x, (1,) * 6, mode=mode)
    w = w.flip(2, 3, 4) if flip else w.permute(0, 1, *(2 + o for o in order))
    y = torch.zeros(2, 5, 6, 4, 5)
    for i in range(27):
        if i == lost:
            continue
        z, r, c = i // 9, i // 3 % 3, i % 3
        part = x[:, :, z : z + 6, r + off : r + off + 7 : stride[1], c + off : c + off + 9 : stride[2]]
        part = part if part.shape[-2:] == (4, 5) else F.pad(part, (0, 5 - part.shape[-1], 0, 4 - part.shape[-2]))
        y = y + torch.einsum("nczrs,oc->nozrs", part, w[:, :, z, r, c])
    return y if plain else y + b[:, None, None, None]


rights(conv3d_strided, conv3d_taps, {"tap by tap": {}})
rights(
    conv3d_strided,
    lambda x, w, b: (
        sum(
            F.conv2d(
                F.pad(x, (0, 0, 0, 0, 1, 1))[:, :, z : z + 6].transpose(1, 2).flatten(0, 1), w[:, :, z], None, 2, 1
            )
            for z in range(3)
        )
        .unflatten(0, (2, 6))
        .transpose(1, 2)
        + b[:, None, None, None]
    ),
    {"three 2-d convolutions": {}},
)
wrongs(
    conv3d_strided,
    conv3d_taps,
    {
        "borders are padded by copies of the edge, not zeros": {"mode": "replicate"},
        "the kernel is flipped (a true convolution)": {"flip": True},
        "depth and height of the kernel are exchanged": {"order": (1, 0, 2)},
        "the last of 27 taps is left out": {"lost": 26},
        "strided rows and columns start one pixel late": {"off": 1},
        "the bias is left out": {"plain": True},
    },
)

BT = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
G = [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
AT = [[1, 1, 1, 0], [0, 1, -1, -1]]


@fifth(lambda d: (d(1, 6, 13, 15), d(8, 6, 3, 3, scale=0.2)))
def conv_three_by_three(x, w):
    return F.conv2d(x, w, padding=1)


def winograd(x, w, at=AT, g=G, drop=False, low=None, low_w=None):
    bt, g, at = (torch.tensor(m).float() for m in (BT, g, at))
    h, wd = x.shape[-2:]
    x = F.pad(x, (1, 1 + wd % 2, 1, 1 + h % 2))
    tiles = x.unfold(2, 4, 2).unfold(3, 4, 2)
    u = cut(torch.einsum("ij,ocjk,lk->ocil", g, w, g), low_w)
    v = cut(torch.einsum("ij,nchwjk,lk->nchwil", bt, tiles, bt), low)
    m = torch.einsum("ocil,nchwil->nohwil", u, v)
    y = torch.einsum("ij,nohwjk,lk->nohwil", at, m, at)
    y = y.transpose(3, 4).flatten(4, 5).flatten(2, 3)[:, :, :h, :wd]
    if drop:
        y = y.contiguous()
        y[..., h // 2 * 2 :, :], y[..., wd // 2 * 2 :] = 0, 0
    return y.contiguous()


def conv_by_fft(x, w):
    s = (16, 18)
    f = torch.einsum(
        "nchw,ochw->nohw",
        torch.fft.rfft2(F.pad(x, (1, 1, 1, 1)).double(), s),
        torch.fft.rfft2(w.flip(2, 3).double(), s),
    )
    return torch.fft.irfft2(f, s)[:, :, 2:15, 2:17].float().contiguous()


honest(conv_three_by_three, "Winograd F(2, 3)", winograd)
honest(conv_three_by_three, "Fourier transforms in double precision", conv_by_fft)
honest(conv_three_by_three, "im2col", lambda x, w: (w.flatten(1) @ F.unfold(x, 3, padding=1)).view(1, 8, 13, 15))
wrongs(
    conv_three_by_three,
    winograd,
    {
        "one sign of the output transform is wrong": {"at": [[1, 1, 1, 0], [0, 1, -1, 1]]},
        "the weight transform's halves are ones": {"g": [[1, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 1]]},
        "rows and columns past the last full tile are zero": {"drop": True},
        "transformed inputs are rounded to bf16": {"low": bf},
        "transformed weights are rounded to e4m3": {"low_w": torch.float8_e4m3fn},
    },
)


@fifth(lambda d: (d(2, 6, 9, 8, dtype=hf), d(6, 4, 3, 3, dtype=hf, scale=0.3)))
def transposed_conv(x, w):
    return F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)


def transposed_scatter(x, w, lost=False, turned=False, shift=0, tail=True, flip=False):
    y = torch.zeros(2, 4, 21, 19)
    w = w.mT if turned else w.flip(2, 3) if flip else w
    for r in range(3):
        for c in range(3):
            part = torch.einsum("nchw,co->nohw", x, w[:, :, r, c])
            view = y[:, :, r : r + 18 : 2, c : c + 16 : 2]
            view.copy_(part if lost else view + part)
    y = y[:, :, 1 + shift : 19 + shift, 1 + shift : 17 + shift]
    if not tail:
        y = y.clone()
        y[:, :, -1], y[..., -1] = 0, 0
    return y.contiguous()


rights(transposed_conv, transposed_scatter, {"scattered tap by tap": {}})
rights(
    transposed_conv,
    lambda x, w: (lambda z: F.conv2d(F.pad(z, (1, 2, 1, 2)), w.flip(2, 3).transpose(0, 1)))(
        torch.zeros(2, 6, 17, 15).index_put(
            (
                torch.arange(2)[:, None, None, None],
                torch.arange(6)[:, None, None],
                torch.arange(0, 17, 2)[:, None],
                torch.arange(0, 15, 2),
            ),
            x,
        )
    ),
    {"a convolution of the input spread with zeros": {}},
)
wrongs(
    transposed_conv,
    transposed_scatter,
    {
        "taps that meet overwrite each other": {"lost": True},
        "height and width of the kernel are exchanged": {"turned": True},
        "the kernel is flipped": {"flip": True},
        "the output starts one pixel early": {"shift": -1},
        "the row and column of the output padding are left at zero": {"tail": False},
    },
)


@fifth(lambda d: (d(2, 8, 50, dtype=bf), d(8, 5, dtype=bf)))
def dilated_depthwise(x, w):
    return F.conv1d(x, w[:, None], padding=6, dilation=3, groups=8)


def dilated_taps(x, w, gap=3, pad=6, channel=0, wrap=False, lost=None):
    x = torch.cat((x[..., -6:], x, x[..., :6]), -1) if wrap else F.pad(x, (pad, 12 - pad))
    w = w.roll(channel, 0)
    return sum(w[:, t, None] * x[..., t * gap : t * gap + 50] for t in range(5) if t != lost)


rights(dilated_depthwise, dilated_taps, {"tap by tap": {}})
wrongs(
    dilated_depthwise,
    dilated_taps,
    {
        "the sequence wraps round at its ends": {"wrap": True},
        "padding is all on the left": {"pad": 12},
        "channels take the weights of the channel before": {"channel": 1},
    },
)

# ------------------------------------------------------------------ pooling


@fifth(lambda d: (d(2, 3, 11, 10, shift=-1.0),))
def pooled(x):
    return (F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.max_pool2d(x, 3, 2, 1))


def pool_windows(x, count=True, floor=-INF, stride=2, lost=False, area=9.0):
    ones = torch.ones_like(x)

    def taps(t, fill):
        u = F.pad(t, (1, 1, 1, 1), value=fill).unfold(2, 3, stride).unfold(3, 3, stride).flatten(-2)
        return u[..., :8] if lost else u

    n = taps(ones, 0.0).sum(-1) if count else area
    return taps(x, 0.0).sum(-1) / n, taps(x, floor).amax(-1)


honest(pooled, "windows with their counts", pool_windows)
wrongs(
    pooled,
    pool_windows,
    {
        "border averages divide by all 9 values": {"count": False},
        "the maximum sees zeros in the padding": {"floor": 0.0},
        "the last of the window's 9 values is not read": {"lost": True},
    },
)


@fifth(lambda d: (d(3, 5, 17, dtype=hf),))
def adaptive_average(x):
    return F.adaptive_avg_pool1d(x, 6)


def adaptive_kernel(x, up=True, even=False):
    out = []
    for i in range(6):
        a, b = i * 17 // 6, -(-(i + 1) * 17 // 6) if up else (i + 1) * 17 // 6
        out.append(x[..., a:b].sum(-1) / (17 / 6 if even else b - a))
    return torch.stack(out, -1)


rights(adaptive_average, adaptive_kernel, {"window by window": {}})
wrongs(
    adaptive_average,
    adaptive_kernel,
    {
        "windows end at the rounded down border": {"up": False},
        "sums divide by 17/6, not by the window's size": {"even": True},
    },
)

# ------------------------------------------------------------------ resampling


@fifth(lambda d: (d(1, 3, 9, 11, dtype=bf),))
def bilinear_upsample(x):
    return F.interpolate(x, size=(20, 24), mode="bilinear", align_corners=False)


def axis_weights(n, m, corners=False, half=0.5, clip=True, cubic=None, near=False):
    pos = torch.arange(m).double()
    pos = pos * (n - 1) / (m - 1) if corners else (pos + half) * n / m - half
    if clip:
        pos = pos.clamp(min=0)
    w = torch.zeros(m, n).double()
    base = pos.floor()
    for tap in range(-1, 3) if cubic else range(2):
        t = (pos - base - tap).abs()
        if cubic:
            a = cubic
            v = torch.where(t <= 1, (a + 2) * t**3 - (a + 3) * t**2 + 1, a * (t**3 - 5 * t**2 + 8 * t - 4))
        else:
            v = 1 - t
            v = (v > 0.5).double() if near else v
        at = (base + tap).long().clamp(0, n - 1)
        w.scatter_add_(1, at[:, None], v[:, None])
    return w.float()


def resample(x, size=(20, 24), low=None, **keys):
    h, w = x.shape[-2:]
    a, b = axis_weights(h, size[0], **keys), axis_weights(w, size[1], **keys)
    return cut(a, low) @ x @ cut(b, low).T


rights(bilinear_upsample, resample, {"two products with weight matrices": {}})
wrongs(
    bilinear_upsample,
    resample,
    {
        "corners are aligned": {"corners": True},
        "source positions are i n / m, without the half pixel's shift": {"half": 0.0},
        "the nearer of the two pixels instead of their blend": {"near": True},
        "weights are rounded to e4m3": {"low": torch.float8_e4m3fn},
    },
)


@fifth(lambda d: (d(2, 2, 12, 10),))
def bicubic_upsample(x):
    return F.interpolate(x, size=(25, 17), mode="bicubic", align_corners=False)


def bicubic(x, **keys):
    return resample(x, (25, 17), clip=False, **{"cubic": -0.75, **keys})


honest(bicubic_upsample, "two products with weight matrices", bicubic)
wrongs(
    bicubic_upsample,
    bicubic,
    {
        "the cubic's constant is -0.5": {"cubic": -0.5},
        "bilinear weights": {"cubic": None},
        "weights are rounded to bf16": {"low": bf},
        "corners are aligned": {"corners": True},
    },
)


@fifth(lambda d: (d(2, 3, 9, 12), d(2, 7, 8, 2, scale=0.6)))
def grid_sampled(x, grid):
    return F.grid_sample(x, grid, align_corners=False)


def grid_kernel(x, grid, corners=False, swap=False, border=False, near=False, third=True, square=False):
    n, c, h, w = x.shape
    gx, gy = (grid[..., 1], grid[..., 0]) if swap else (grid[..., 0], grid[..., 1])
    px = (gx + 1) / 2 * (w - 1) if corners else ((gx + 1) * (h if square else w) - 1) / 2
    py = (gy + 1) / 2 * (h - 1) if corners else ((gy + 1) * h - 1) / 2
    x0, y0 = px.floor(), py.floor()
    out = torch.zeros(n, c, *gx.shape[1:])
    for dy in (0, 1):
        for dx in (0, 1):
            if dx and dy and not third:
                continue
            ix, iy = x0 + dx, y0 + dy
            wt = (1 - (px - ix).abs()) * (1 - (py - iy).abs())
            if near:
                wt = ((px - ix).abs() < 0.5).float() * ((py - iy).abs() < 0.5)
            live = (ix >= 0) & (ix < w) & (iy >= 0) & (iy < h)
            at = (iy.clamp(0, h - 1) * w + ix.clamp(0, w - 1)).long().flatten(1)
            v = x.flatten(2).gather(2, at[:, None].expand(n, c, -1)).view(out.shape)
            out += v * (wt if border else wt * live)[:, None]
    return out


honest(grid_sampled, "four gathers", grid_kernel)
wrongs(
    grid_sampled,
    grid_kernel,
    {
        "corners are aligned": {"corners": True},
        "the grid's two coordinates are exchanged": {"swap": True},
        "points outside take the border's value, not zero": {"border": True},
        "the nearest pixel instead of a blend": {"near": True},
        "the fourth neighbour is left out": {"third": False},
        "columns are scaled by the height": {"square": True},
    },
)


@fifth(lambda d: (d(2, 12, 5, 6),))
def shuffle_pixels(x):
    return F.pixel_shuffle(x, 2)


honest(
    shuffle_pixels,
    "views and a permutation",
    lambda x: x.view(2, 3, 2, 2, 5, 6).permute(0, 1, 4, 2, 5, 3).reshape(2, 3, 10, 12),
)
mistake(
    shuffle_pixels,
    "channels are split factor first (depth to space, DCR)",
    lambda x: x.view(2, 2, 2, 3, 5, 6).permute(0, 3, 4, 1, 5, 2).reshape(2, 3, 10, 12),
)
mistake(
    shuffle_pixels,
    "row and column factors are exchanged",
    lambda x: x.view(2, 3, 2, 2, 5, 6).permute(0, 1, 4, 3, 5, 2).reshape(2, 3, 10, 12),
)

# ------------------------------------------------------------------ boxes


def boxes(d):
    a = d.rand(60, 2) * 40
    b = torch.cat((a, a + d.rand(60, 2) * 25 + 5), 1).round()
    return b, d.rand(60), d.ints(2, 60), 0.3


@fifth(boxes)
def class_nms(box, score, label, limit):
    order = torch.sort(score, descending=True, stable=True)[1]
    b, c = box[order], label[order]
    size = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    side = (torch.minimum(b[:, None, 2:], b[None, :, 2:]) - torch.maximum(b[:, None, :2], b[None, :, :2])).clamp(min=0)
    both = side[..., 0] * side[..., 1]
    iou = both / (size[:, None] + size[None] - both)
    keep = torch.ones(len(b), dtype=torch.bool)
    for i in range(len(b)):
        if keep[i]:
            keep[i + 1 :] &= ~((iou[i, i + 1 :] > limit) & (c[i + 1 :] == c[i]))
    return torch.zeros_like(keep).scatter(0, order, keep)


def nms_loop(box, score, label, limit, plus=0.0, any_class=False, dead=False, rising=False, small=False):
    kept, mask = [], torch.zeros(60, dtype=torch.bool)
    seen = []
    for i in torch.argsort(score, descending=not rising).tolist():
        ok = True
        for j in seen if dead else kept:
            x = min(box[i, 2], box[j, 2]) - max(box[i, 0], box[j, 0]) + plus
            y = min(box[i, 3], box[j, 3]) - max(box[i, 1], box[j, 1]) + plus
            both = max(float(x), 0.0) * max(float(y), 0.0)
            a, b = (float((t[2] - t[0] + plus) * (t[3] - t[1] + plus)) for t in (box[i], box[j]))
            over = both / (min(a, b) if small else a + b - both)
            ok &= over <= limit or (not any_class and bool(label[i] != label[j]))
        seen.append(i)
        if ok:
            kept.append(i)
            mask[i] = True
    return mask


honest(class_nms, "a loop over the kept boxes", nms_loop)
for words, keys in {
    "boxes of other classes suppress too": {"any_class": True},
    "suppressed boxes go on suppressing": {"dead": True},
    "boxes are visited from the lowest score": {"rising": True},
    "the overlap divides by the smaller box, not the union": {"small": True},
}.items():
    mistake(class_nms, words, lambda *a, keys=keys: nms_loop(*a, **keys))


@fifth(lambda d: (boxes(d)[0] + 0.3, boxes(d)[0] - 1.4))
def giou_loss(a, b):
    lt, rb = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    both = (rb - lt).clamp(min=0).prod(-1)
    union = (a[:, 2:] - a[:, :2]).prod(-1) + (b[:, 2:] - b[:, :2]).prod(-1) - both
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(-1)
    return 1 - both / union + (hull - union) / hull


def giou(a, b, clamp=True, plain=False, plus=0.0, union=False):
    w, h = ((torch.minimum(a[:, i + 2], b[:, i + 2]) - torch.maximum(a[:, i], b[:, i]) + plus) for i in (0, 1))
    both = w.clamp(min=0) * h.clamp(min=0) if clamp else w * h
    u = sum((t[:, 2] - t[:, 0] + plus) * (t[:, 3] - t[:, 1] + plus) for t in (a, b)) - (0 if union else both)
    hull = 1.0
    for i in (0, 1):
        hull = hull * (torch.maximum(a[:, i + 2], b[:, i + 2]) - torch.minimum(a[:, i], b[:, i]) + plus)
    return 1 - both / u if plain else 2 - both / u - u / hull


honest(giou_loss, "2 less two quotients", giou)
wrongs(
    giou_loss,
    giou,
    {
        "the intersection is not clamped at 0": {"clamp": False},
        "the hull's term is left out": {"plain": True},
        "sides are measured in pixels (plus 1)": {"plus": 1.0},
        "the union does not take the intersection off": {"union": True},
    },
)
