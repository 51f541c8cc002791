# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: median and nanmedian along an axis that is expanded take other rows for it, and read behind the
tensor.

Found by `ulpscope fuzz --device cpu` (layout expanded): two runs of one call differed. kthvalue is right.
Issues: none found of expanded tensors; pytorch/pytorch#46814 was of strided ones on a GPU, in 2020."""

import torch

import ulpscope

if __name__ == "__main__":
    rows = torch.arange(1.0, 7)
    x = rows.unsqueeze(1).expand(6, 5)
    for name, got in (("median", x.median(1)), ("nanmedian", x.nanmedian(1)), ("kthvalue", x.kthvalue(3, 1))):
        wrong = [i for i in range(6) if got.values[i] != rows[i]]
        print(f"{name:10} of {rows.tolist()}, each five times: {got.values.tolist()}, wrong in rows {wrong}")
    print(ulpscope.judge_call(torch.median, (x.contiguous(), 1), outputs=tuple(x.median(1))))
