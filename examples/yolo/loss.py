# SPDX-License-Identifier: Apache-2.0
"""The loss: boxes by complete IoU, objectness, classes."""

import math

import torch
from torch import nn

from model import STRIDES
from utils.torch_utils import de_parallel


def ciou(a, b, eps=1e-7):
    """Complete IoU of boxes x y w h, row by row."""
    (x1, y1, w1, h1), (x2, y2, w2, h2) = a.chunk(4, -1), b.chunk(4, -1)
    left, right = torch.maximum(x1 - w1 / 2, x2 - w2 / 2), torch.minimum(x1 + w1 / 2, x2 + w2 / 2)
    top, bottom = torch.maximum(y1 - h1 / 2, y2 - h2 / 2), torch.minimum(y1 + h1 / 2, y2 + h2 / 2)
    both = (right - left).clamp(0) * (bottom - top).clamp(0)
    iou = both / (w1 * h1 + w2 * h2 - both + eps)
    width = torch.maximum(x1 + w1 / 2, x2 + w2 / 2) - torch.minimum(x1 - w1 / 2, x2 - w2 / 2)
    height = torch.maximum(y1 + h1 / 2, y2 + h2 / 2) - torch.minimum(y1 - h1 / 2, y2 - h2 / 2)
    apart = ((x2 - x1) ** 2 + (y2 - y1) ** 2) / (width**2 + height**2 + eps)
    v = (4 / math.pi**2) * (torch.atan(w2 / (h2 + eps)) - torch.atan(w1 / (h1 + eps))) ** 2
    with torch.no_grad():
        alpha = v / (v - iou + 1 + eps)
    return (iou - apart - alpha * v).squeeze(-1)


class ComputeLoss:
    balance = [4.0, 1.0, 0.4]  # of objectness, by head

    def __init__(self, model, box=0.05, obj=1.0, cls=0.5, anchor_t=4.0):
        self.detect = de_parallel(model).detect
        self.bce = nn.BCEWithLogitsLoss()
        self.box, self.obj, self.cls, self.anchor_t = box, obj, cls, anchor_t

    def __call__(self, preds, targets):
        device = targets.device
        lbox, lobj, lcls = (torch.zeros(1, device=device) for _ in range(3))
        for i, p in enumerate(preds):
            image, anchor, gy, gx, tbox, tcls = self.build_targets(i, p, targets)
            tobj = torch.zeros(p.shape[:4], device=device)
            if len(image):
                s = p[image, anchor, gy, gx].float()
                xy = s[:, :2].sigmoid() * 2 - 0.5
                wh = (s[:, 2:4].sigmoid() * 2) ** 2 * self.detect.anchors[i][anchor] / STRIDES[i]
                iou = ciou(torch.cat([xy, wh], 1), tbox)
                lbox += (1.0 - iou).mean()
                tobj[image, anchor, gy, gx] = iou.detach().clamp(0)
                t = torch.zeros_like(s[:, 5:])
                t[torch.arange(len(t), device=device), tcls] = 1.0
                lcls += self.bce(s[:, 5:], t)
            lobj += self.bce(p[..., 4].float(), tobj) * self.balance[i]
        items = torch.cat([lbox * self.box, lobj * self.obj, lcls * self.cls])
        return items.sum() * len(preds[0]), items.detach()

    def build_targets(self, i, p, targets):
        """Targets are rows of image, class, x y w h in shares of the image. Each goes to the anchors that have its
        shape, at its own place of the grid and at the two nearest beside it."""
        h, w = p.shape[2:4]
        gain = torch.tensor([w, h, w, h], device=p.device, dtype=torch.float32)
        anchors = self.detect.anchors[i] / STRIDES[i]
        box = targets[:, 2:] * gain
        ratio = box[:, None, 2:] / anchors[None]
        fits = torch.maximum(ratio, 1 / ratio).amax(2) < self.anchor_t
        t, anchor = fits.nonzero(as_tuple=True)
        box, xy, wh = box[t], box[t, :2], box[t, 2:]
        x, y = (xy % 1).unbind(1)
        inside_x, inside_y = xy[:, 0], xy[:, 1]
        sides = torch.stack(
            [
                torch.ones_like(x, dtype=torch.bool),
                (x < 0.5) & (inside_x > 1),
                (y < 0.5) & (inside_y > 1),
                (x > 0.5) & (inside_x < w - 1),
                (y > 0.5) & (inside_y < h - 1),
            ]
        )
        step = torch.tensor([[0, 0], [-1, 0], [0, -1], [1, 0], [0, 1]], device=p.device)
        side, k = sides.nonzero(as_tuple=True)
        cell = (xy[k].long() + step[side]).clamp_min(0)
        gx, gy = cell[:, 0].clamp_max(w - 1), cell[:, 1].clamp_max(h - 1)
        tbox = torch.cat([xy[k] - torch.stack([gx, gy], 1), wh[k]], 1)
        return targets[t[k], 0].long(), anchor[k], gy, gx, tbox, targets[t[k], 1].long()
