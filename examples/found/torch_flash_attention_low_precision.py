# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: flash attention in bfloat16 and float16 has an exp of 14 bits: the logsumexp of a
row with one key, which is that one score, is off by 5.3e-5 everywhere. No issue was searched for."""

import torch

attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    q, k, v = (torch.randn(2, 4, 64, 64).to(dtype) for _ in range(3))
    found = attention(q, k, v, 0.0, True)[1][:, :, 0]  # causal: the first row sees one key
    score = (q[:, :, 0].double() * k[:, :, 0].double()).sum(-1) / 8
    print(dtype, "largest error of the logsumexp:", float((found - score).abs().max()))
