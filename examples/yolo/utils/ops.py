# SPDX-License-Identifier: Apache-2.0
"""The operators of nms.cu, built at their first use on a GPU, and what they are on the CPU."""

from pathlib import Path

import torch
from torch.utils.cpp_extension import load

lib = torch.library.Library("yolo", "DEF")
lib.define("nms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
lib.define("box_iou(Tensor a, Tensor b) -> Tensor")


def box_iou_cpu(a, b):
    wh = (torch.min(a[:, None, 2:], b[None, :, 2:]) - torch.max(a[:, None, :2], b[None, :, :2])).clamp(0)
    both = wh[..., 0] * wh[..., 1]
    area_a, area_b = ((x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b))
    return both / (area_a[:, None] + area_b[None] - both)


def nms_cpu(boxes, scores, threshold):
    order = scores.argsort(descending=True, stable=True)
    covers = box_iou_cpu(boxes[order], boxes[order]) > threshold
    gone = torch.zeros(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if not gone[i]:
            gone[i + 1 :] |= covers[i, i + 1 :]
    return order[~gone]


lib.impl("nms", nms_cpu, "CPU")
lib.impl("box_iou", box_iou_cpu, "CPU")
built = False


def build():
    """Needs a compiler, and compiles once."""
    global built
    if not built:
        source = Path(__file__).resolve().parent / "nms.cu"
        load("yolo_ops", [str(source)], extra_cuda_cflags=["-O2"], is_python_module=False)
        built = True


def nms(boxes, scores, threshold):
    if boxes.is_cuda:
        build()
    return torch.ops.yolo.nms(boxes, scores, threshold)


def box_iou(a, b):
    if a.is_cuda:
        build()
    return torch.ops.yolo.box_iou(a, b)
