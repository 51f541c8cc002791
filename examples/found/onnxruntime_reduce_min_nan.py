# SPDX-License-Identifier: Apache-2.0
"""onnxruntime 1.32 CPU: ReduceMin and ReduceMax drop NaN or not, by where it stands and how many elements there are.
Found by `ulpscope fuzz --device cpu --via onnxruntime --programs --seed 51` (case 51:85).

Issues: microsoft/onnxruntime#10514 (open, 2022: ReduceMax by the number of NaN)."""

import sys

import torch
from onnx_node import run

wrong = 0
for name in ("ReduceMin", "ReduceMax"):
    for shape in ((1, 8), (1, 64), (8, 16)):
        seen = []
        for at in range(shape[1]):
            x = torch.ones(shape)
            x[:, at] = torch.nan
            seen.append(bool(run(name, x, torch.tensor([1])).isnan().all()))
        print(f"{name} of {list(shape)} with one NaN a row: NaN for {sum(seen)} of {len(seen)} places, torch for all")
        wrong += not all(seen)
sys.exit(wrong > 0)
