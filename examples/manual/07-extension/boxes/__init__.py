# SPDX-License-Identifier: Apache-2.0
"""Operators on boxes, as a library for CUDA has them."""

from pathlib import Path

import torch

torch.ops.load_library(next(Path(__file__).parent.glob("_C*.so")))


def nms(boxes, scores, iou_threshold, offset=0):
    """The boxes that none with a higher score covers, with their scores, and which they are."""
    inds = torch.ops.boxes.nms(boxes, scores, iou_threshold, offset)
    return torch.cat([boxes[inds], scores[inds][:, None]], 1), inds


def box_iou_quadri(bboxes1, bboxes2, mode="iou", aligned=False):
    """Intersection over union of quadrilaterals, or over the first ("iof"); of each with each, or in pairs."""
    return torch.ops.boxes.box_iou_quadri(bboxes1, bboxes2, mode == "iof", aligned)


def upsample(image):
    """Each element twice, along both axes."""
    return torch.ops.boxes.upsample(image)
