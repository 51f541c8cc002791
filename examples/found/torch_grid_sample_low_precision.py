# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: grid_sample in bfloat16 and float16 computes where to look in that format: in an image 200 wide the
place is off by half a pixel. Computed in float32 and rounded once, every element is as near as the format allows.

Issues: pytorch/pytorch#89836 is the same of CUDA, mended by #90427; of the CPU none found ("grid_sample bfloat16 CPU
precision"). Needs torch alone; 1: it fails."""

import sys
from fractions import Fraction

import torch

torch.manual_seed(0)
wrong = 0
for dtype in (torch.bfloat16, torch.float16):
    image = torch.arange(200).to(dtype)  # in both formats exact, but for nothing above 256
    grid = (torch.rand(1000) * 1.9 - 0.95).to(dtype)
    points = torch.stack([grid, torch.zeros_like(grid)], -1)[None, None]
    found = torch.nn.functional.grid_sample(image[None, None, None], points, align_corners=True)[0, 0, 0]
    right = [float((Fraction(x) + 1) * 199 / 2) for x in grid.tolist()]  # the image is its own place
    off = (found.double() - torch.tensor(right, dtype=torch.float64)).abs().max()
    print(
        dtype, f"largest error: {float(off):.3g} pixels; half a unit of the format is {64 * torch.finfo(dtype).eps:.3g}"
    )
    wrong += float(off) > 80 * torch.finfo(dtype).eps
sys.exit(wrong > 0)
