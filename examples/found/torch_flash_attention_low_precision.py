# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: flash attention in bfloat16 and float16 has an exp of 14 bits: the logsumexp of a
row with one key, which is that one score, is off by 5.3e-5 everywhere; and what exp gives is rounded to that
format before it is multiplied with the values, while its sum is not. Rebuilt in float64 that gives the kernel's
numbers, all or all but one in a thousand. torch 2.14 (Debian's 2.14.1) takes it for inputs without heads, too,
which 2.13 computes in float32. No issue was searched for."""

import math

import torch
import torch.nn.functional as F

attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    q, k, v = (torch.randn(2, 4, 64, 64).to(dtype) for _ in range(3))
    found = attention(q, k, v, 0.0, True)[1][:, :, 0]  # causal: the first row sees one key
    score = (q[:, :, 0].double() * k[:, :, 0].double()).sum(-1) / 8
    print(dtype, "largest error of the logsumexp:", float((found - score).abs().max()))

for dtype in (torch.bfloat16, torch.float16):
    x = torch.rand(16, 12, 7).to(dtype)
    wide = x.double()
    scores = wide @ wide.transpose(1, 2) / math.sqrt(7)
    weights = torch.exp(scores - scores.amax(-1, True))
    rounded = weights.to(dtype).double() @ wide / weights.sum(-1, True)
    right = torch.softmax(scores, -1) @ wide
    found = attention(*[x[:, None]] * 3)[0][:, 0]
    print(dtype, "not the nearest number:", float((found != right.to(dtype)).double().mean()))
    print("  as rebuilt with rounded weights:", float((found == rounded.to(dtype)).double().mean()))
    without = F.scaled_dot_product_attention(x, x, x)
    print("  without heads, not the nearest:", float((without != right.to(dtype)).double().mean()))
