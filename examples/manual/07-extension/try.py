# SPDX-License-Identifier: Apache-2.0
"""Chapter 7: the manual's inputs of nms and box_iou_quadri, on the device."""

import numpy as np
import torch
from boxes import box_iou_quadri, nms

import ulpscope.sim  # noqa: F401

np_boxes = np.array(
    [[6.0, 3.0, 8.0, 7.0], [3.0, 6.0, 9.0, 11.0], [3.0, 7.0, 10.0, 12.0], [1.0, 4.0, 13.0, 7.0]], dtype=np.float32
)
np_scores = np.array([0.6, 0.9, 0.7, 0.2], dtype=np.float32)
dets, inds = nms(torch.from_numpy(np_boxes).sim(), torch.from_numpy(np_scores).sim(), iou_threshold=0.3, offset=0)
print(dets)
print(inds)

np_boxes1 = np.asarray(
    [[1.0, 1, 3, 4, 4, 4, 4, 1], [2.0, 2, 3, 4, 4, 2, 3, 1], [7.0, 7, 8, 8, 9, 7, 8, 6]], dtype=np.float32
)
np_boxes2 = np.asarray(
    [[0.0, 0, 0, 2, 2, 2, 2, 0], [2.0, 1, 2, 4, 4, 4, 4, 1], [7.0, 6, 7, 8, 9, 8, 9, 6]], dtype=np.float32
)
boxes1, boxes2 = torch.from_numpy(np_boxes1).to("sim"), torch.from_numpy(np_boxes2).to("sim")
for mode in ("iou", "iof"):
    for aligned in (False, True):
        print(mode, aligned, box_iou_quadri(boxes1, boxes2, mode=mode, aligned=aligned).cpu().numpy().round(4).tolist())
