# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: sampling of images, boxes, points and rotations."""

import torch
import torch.nn.functional as F

from .blind import narrow
from .blind_fourteenth_base import add, lanes, wide


def bilinear(img, y, x, edge="zero"):
    """img [c, h, w] at y, x: zero outside, or the border."""
    c, h, w = img.shape
    y0, x0 = torch.floor(y), torch.floor(x)
    total = 0
    for dy in (0, 1):
        for dx in (0, 1):
            yy, xx = y0 + dy, x0 + dx
            wt = (1 - (y - yy).abs()) * (1 - (x - xx).abs())
            inside = (yy >= 0) & (yy < h) & (xx >= 0) & (xx < w)
            v = img[:, yy.clamp(0, h - 1).long(), xx.clamp(0, w - 1).long()]
            total = total + v * (wt * inside if edge == "zero" else wt)
    return total


def roi_align(img, boxes):
    out = []
    for b in boxes:
        x1, y1, x2, y2 = (b * 0.25 - 0.5).unbind()
        i = torch.arange(8, dtype=img.dtype)
        y = (y1 + (i + 0.5) / 2 * (y2 - y1) / 4).clamp(0, img.shape[1] - 1)
        x = (x1 + (i + 0.5) / 2 * (x2 - x1) / 4).clamp(0, img.shape[2] - 1)
        v = bilinear(img, y[:, None].expand(8, 8), x[None].expand(8, 8), "border")
        out.append(v.unflatten(1, (4, 2)).unflatten(3, (4, 2)).mean((2, 4)))
    return torch.stack(out)


def roi_kernel(img, boxes, half=0.5, scale=0.25, center=0.5, most=False, swap=False, samples=2, edge=1, add_one=0.0):
    out = torch.zeros(len(boxes), img.shape[0], 4, 4)
    for n, b in enumerate(boxes):
        x1, y1, x2, y2 = (b * scale - half).tolist() if not swap else (b[[1, 0, 3, 2]] * scale - half).tolist()
        bh, bw = (y2 - y1 + add_one) / 4, (x2 - x1 + add_one) / 4
        for p in range(4):
            for q in range(4):
                i = (torch.arange(samples).float() + center) / samples
                y = (y1 + (p + i) * bh).clamp(0, img.shape[1] - edge)[:, None].expand(samples, samples)
                x = (x1 + (q + i) * bw).clamp(0, img.shape[2] - edge)[None].expand(samples, samples)
                v = bilinear(img, y, x, "border").flatten(1)
                out[n, :, p, q] = v.amax(1) if most else v.sum(1) / samples**2
    return out


add(
    "roi_align",
    roi_align,
    lambda d: (
        d(6, 16, 16),
        torch.tensor([[2.0, 3, 40, 50], [10, 20, 63.5, 60], [0, 0, 17, 9], [33.3, 4.4, 51.7, 61.1]]),
    ),
    roi_kernel,
    right={"bin by bin": {}, "in double": wide(roi_align)},
    wrong={
        "the half pixel is left out": {"half": 0.0},
        "samples lie at the corner of their part": {"center": 0.0},
        "the greatest of the samples": {"most": True},
        "x and y are exchanged": {"swap": True},
        "one sample a bin": {"samples": 1},
        "boxes are one pixel larger": {"add_one": 1.0},
    },
)


def deform(img, off, w):
    c, h, wd = img.shape
    gy, gx = torch.meshgrid(torch.arange(h), torch.arange(wd), indexing="ij")
    total = 0
    for i in range(9):
        v = bilinear(img, gy + i // 3 - 1 + off[2 * i], gx + i % 3 - 1 + off[2 * i + 1])
        total = total + torch.einsum("oc,chw->ohw", w[:, :, i // 3, i % 3], v)
    return total


def deform_kernel(img, off, w, swap=False, edge="zero", layout=False, turn=False, center=1, lost=None):
    c, h, wd = img.shape
    gy, gx = torch.meshgrid(torch.arange(h).float(), torch.arange(wd).float(), indexing="ij")
    cols = []
    for i in range(9):
        a, b = (off[i], off[9 + i]) if layout else (off[2 * i], off[2 * i + 1])
        a, b = (b, a) if swap else (a, b)
        y, x = gy + (i // 3 - center) + a, gx + (i % 3 - center) + b
        v = bilinear(img, y, x, edge)
        cols.append(v * 0 if i == lost else v)
    w = w.transpose(2, 3) if turn else w
    return torch.einsum("ocn,nchw->ohw", w.flatten(2), torch.stack(cols))


add(
    "deformable",
    deform,
    lambda d: (d(5, 14, 15), d(18, 14, 15, scale=0.8), d(4, 5, 3, 3, scale=0.3)),
    deform_kernel,
    right={"columns, then one product": {}, "in double": wide(deform)},
    wrong={
        "offsets of x and y are exchanged": {"swap": True},
        "offsets lie all y, then all x": {"layout": True},
        "outside, the border is read": {"edge": "border"},
        "the filter is transposed": {"turn": True},
        "the last place of the filter is lost": {"lost": 8},
    },
)


def reflect(x, n):
    lo, hi = -0.5, n - 0.5
    x = (x - lo).abs() % (2 * (hi - lo))
    return (torch.where(x > hi - lo, 2 * (hi - lo) - x, x) + lo).clamp(0, n - 1)


def grid(img, g):
    return F.grid_sample(img, g, mode="bilinear", padding_mode="reflection", align_corners=False)


def grid_kernel(img, g, corners=False, mode="reflect", swap=False, near=False, middle=False):
    n, c, h, w = img.shape
    x, y = (g[..., 1], g[..., 0]) if swap else (g[..., 0], g[..., 1])
    un = (lambda t, m: (t + 1) / 2 * (m - 1)) if corners else (lambda t, m: ((t + 1) * m - 1) / 2)
    x, y = un(x, w), un(y, h)
    if mode == "reflect":
        x, y = reflect(x, w), reflect(y, h)
    if mode == "centres":
        r = lambda t, m: (m - 1) - ((t.abs() % (2 * (m - 1))) - (m - 1)).abs()
        x, y = r(x, w), r(y, h)
    if mode == "border":
        x, y = x.clamp(0, w - 1), y.clamp(0, h - 1)
    if near:
        x, y = torch.round(x), torch.round(y)
    return torch.stack([bilinear(img[i], y[i], x[i], "border" if mode != "zero" else "zero") for i in range(n)])


add(
    "grid_sample_reflection",
    grid,
    lambda d: (d(2, 3, 12, 10), d.rand(2, 9, 11, 2) * 3.2 - 1.6),
    grid_kernel,
    right={"reflected about the edges": {}},
    wrong={
        "corners are aligned": {"corners": True},
        "reflected about the centres of the last pixels": {"mode": "centres"},
        "the border is read outside": {"mode": "border"},
        "zero is read outside": {"mode": "zero"},
        "x and y are exchanged": {"swap": True},
        "the nearest pixel": {"near": True},
    },
)


def iou(a, b):
    lt, rb = torch.maximum(a[:, None, :2], b[None, :, :2]), torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = lambda t: (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])
    union = area(a)[:, None] + area(b)[None] - inter
    hull = (torch.maximum(a[:, None, 2:], b[None, :, 2:]) - torch.minimum(a[:, None, :2], b[None, :, :2])).prod(-1)
    return inter / union - (hull - union) / hull


def iou_kernel(a, b, clamp=True, both=True, hull="all", one=0.0, plain=False):
    cols = lambda t: t.unbind(-1)
    ax, ay, au, av = (t[:, None] for t in cols(a))
    bx, by, bu, bv = (t[None] for t in cols(b))
    w, h = torch.minimum(au, bu) - torch.maximum(ax, bx) + one, torch.minimum(av, bv) - torch.maximum(ay, by) + one
    inter = w.clamp(min=0) * h.clamp(min=0) if clamp else w * h
    union = (au - ax + one) * (av - ay + one) + (bu - bx + one) * (bv - by + one) - (inter if both else 0)
    c = (torch.maximum(au, bu) - torch.minimum(ax, bx)) * (torch.maximum(av, bv) - torch.minimum(ay, by))
    return inter / union - (0 if plain else (c - union) / (union if hull == "union" else c))


def boxes(d, n, size=20.0):
    at = d.rand(n, 2) * 60
    return torch.cat([at, at + d.rand(n, 2) * size + 1], 1)


add(
    "generalised_iou",
    iou,
    lambda d: (boxes(d, 20), boxes(d, 24)),
    iou_kernel,
    right={"column by column": {}},
    wrong={
        "boxes that do not meet have a product of two negatives": {"clamp": False},
        "the intersection is counted twice in the union": {"both": False},
        "the hull's part divides by the union": {"hull": "union"},
        "sides are one longer": {"one": 1.0},
        "no hull": {"plain": True},
    },
)


def suppress(b, s):
    order = s.argsort(descending=True, stable=True)
    b = b[order]
    lt, rb = torch.maximum(b[:, None, :2], b[None, :, :2]), torch.minimum(b[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = (b[:, 2:] - b[:, :2]).prod(-1)
    over = inter / (area[:, None] + area[None] - inter) > 0.4
    keep = torch.ones(len(s), dtype=torch.bool)
    for i in range(len(s)):
        keep = keep & ~(over[i] & keep[i] & (torch.arange(len(s)) > i))
    return torch.zeros_like(keep).scatter(0, order, keep)


def suppress_kernel(b, s, limit=0.4, gone=False, small=False, order=True, area_min=False):
    kept, rank = [], s.argsort(descending=True, stable=True).tolist() if order else range(len(s))
    out, seen = torch.zeros(len(s), dtype=torch.bool), []
    for i in rank:
        free = True
        for j in seen if gone else kept:
            w = (torch.minimum(b[i, 2:], b[j, 2:]) - torch.maximum(b[i, :2], b[j, :2])).clamp(min=0)
            ai, aj, inter = (b[i, 2:] - b[i, :2]).prod(), (b[j, 2:] - b[j, :2]).prod(), w.prod()
            over = inter / (torch.minimum(ai, aj) if area_min else ai + aj - inter)
            free = free and not bool(over > limit)
        seen.append(i)
        if free:
            kept.append(i)
            out[i] = True
    return out


add(
    "suppression",
    suppress,
    lambda d: (boxes(d, 120, 50.0), d.rand(120)),
    suppress_kernel,
    right={"against those kept": {}},
    wrong={
        "those that are gone put others out": {"gone": True},
        "the limit is 0.5": {"limit": 0.5},
        "boxes are not sorted by score": {"order": False},
        "the overlap is of the smaller box": {"area_min": True},
    },
)


def resize(x):
    return F.interpolate(x, size=(13, 20), mode="bilinear", align_corners=False)


def resize_kernel(x, corners=False, half=True, swap=False, clamp=True, near=False):
    n, c, h, w = x.shape

    def weights(m, k):
        i = torch.arange(k).double()
        s = i * (m - 1) / (k - 1) if corners else (i + 0.5) * m / k - 0.5 if half else i * m / k
        s = s.clamp(0, m - 1) if clamp else s
        s = torch.floor(s + 0.5) if near else s
        lo = torch.floor(s)
        out = torch.zeros(k, m)
        for r in range(k):
            for j, v in ((lo[r], 1 - (s[r] - lo[r])), (lo[r] + 1, s[r] - lo[r])):
                if 0 <= j < m:
                    out[r, int(j)] += v.float()
        return out

    return weights(h, 13) @ x @ weights(w, 20).T


add(
    "resize_bilinear",
    resize,
    lambda d: (d(2, 3, 9, 31),),
    resize_kernel,
    right={"two products with weights": {}},
    wrong={
        "corners are aligned": {"corners": True},
        "no half pixel": {"half": False},
        "weights beyond the edge are lost": {"clamp": False},
        "the nearest pixel": {"near": True},
    },
)


def quaternions(q):
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def quaternion_kernel(q, norm=True, last=False, turn=False, bad=False):
    n = lanes(q * q) if norm else torch.ones(q.shape[0])
    w, x, y, z = q.unbind(-1) if not last else q[:, [3, 0, 1, 2]].unbind(-1)
    v, s = torch.stack([x, y, z], -1), 2 / n
    o = torch.zeros_like(w)
    cross = torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))
    square = v[..., None] * v[:, None] - (v * v).sum(-1)[:, None, None] * torch.eye(3)
    r = torch.eye(3) + s[:, None, None] * (w[:, None, None] * cross + square)
    r = r.transpose(-1, -2) if turn else r
    if bad:
        r[:, 0, 2] = -r[:, 0, 2]
    return r


add(
    "quaternions",
    quaternions,
    lambda d: (d(200, 4),),
    quaternion_kernel,
    right={"by the cross product's matrix": {}},
    wrong={
        "not normed": {"norm": False},
        "the real part is read last": {"last": True},
        "the inverse rotation": {"turn": True},
        "one element has the other sign": {"bad": True},
    },
)


def chamfer(a, b):
    d = ((a[:, None] - b[None]) ** 2).sum(-1)
    return d.amin(1).mean() + d.amin(0).mean(), d.argmin(1)


def chamfer_kernel(a, b, root=False, one=False, most=False, product=False, lost=0):
    d = sum((a[:, None, i] - b[None, : len(b) - lost, i]) ** 2 for i in range(3))
    if product:
        d = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * narrow(a) @ narrow(b).T
    e = d.sqrt() if root else d
    return lanes(e.amin(1)) / len(a) + (0 if one else lanes(e.amin(0)) / len(b)), d.argmin(1)


add(
    "chamfer",
    chamfer,
    lambda d: (d(80, 3), d(70, 3)),
    chamfer_kernel,
    right={"by coordinates": {}},
    wrong={
        "distances, not squares": {"root": True},
        "one direction": {"one": True},
        "by a product with factors in bf16": {"product": True},
        "the last six points are lost": {"lost": 6},
    },
)
