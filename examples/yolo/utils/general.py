# SPDX-License-Identifier: Apache-2.0
"""Seeds, suppression of doubles, average precision."""

import random

import torch

from utils import ops


def init_seeds(seed=0, deterministic=False):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)  # for several GPUs, without one it does nothing
    if deterministic:
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True


def xywh2xyxy(x):
    return torch.cat([x[:, :2] - x[:, 2:4] / 2, x[:, :2] + x[:, 2:4] / 2], 1)


def non_max_suppression(prediction, conf_thres=0.001, iou_thres=0.5, max_det=30):
    """Of each image the boxes that no better one of their class covers: x1 y1 x2 y2, confidence, class."""
    out = []
    for x in prediction:
        conf, cls = (x[:, 5:] * x[:, 4:5]).max(1)
        keep = conf > conf_thres
        boxes, conf, cls = xywh2xyxy(x[keep]), conf[keep], cls[keep].float()
        kept = ops.nms(boxes + cls[:, None] * 4096, conf, iou_thres)[:max_det]
        out.append(torch.cat([boxes, conf[:, None], cls[:, None]], 1)[kept])
    return out


def match(detections, labels, thresholds):
    """[detections, thresholds]: whether it finds a label that no better one has found."""
    found = torch.zeros(len(detections), len(thresholds), dtype=torch.bool)
    if len(detections) == 0 or len(labels) == 0:
        return found
    iou = ops.box_iou(detections[:, :4].contiguous(), labels[:, 1:].contiguous()).cpu()
    same = detections[:, 5].cpu()[:, None] == labels[:, 0].cpu()[None]
    iou = torch.where(same, iou, torch.zeros(()))
    for k, threshold in enumerate(thresholds):
        free = torch.ones(len(labels), dtype=torch.bool)
        for i in range(len(detections)):  # the surest first
            best, j = torch.where(free, iou[i], -torch.ones(())).max(0)
            if best >= threshold:
                free[j], found[i, k] = False, True
    return found


def average_precision(found, conf, cls, labels, nc):
    """Mean over classes, for each threshold: the area under precision by recall."""
    rows = []
    order = conf.argsort(descending=True, stable=True)
    found, cls = found[order].double(), cls[order]
    for c in range(nc):
        n = int((labels == c).sum())
        if n == 0:
            continue
        hits = found[cls == c].cumsum(0)
        if len(hits) == 0:
            rows.append(torch.zeros(found.shape[1], dtype=torch.float64))
            continue
        recall = hits / n
        precision = hits / torch.arange(1, len(hits) + 1)[:, None]
        precision = precision.flip(0).cummax(0).values.flip(0)
        rows.append((torch.diff(recall, dim=0, prepend=torch.zeros(1, recall.shape[1])) * precision).sum(0))
    return torch.stack(rows).mean(0)
