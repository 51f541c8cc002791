# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 CPU: the gradient of an embedding is summed in bfloat16: a frequent token's sum
stops growing.

Issues: none found for torch; tenstorrent/tt-metal#36341 and flagos-ai/FlagGems#305 are the same
defect of other backends, mended by summing in float32."""

import torch

import ulpscope


def gradient(g, index):
    return torch.ops.aten.embedding_dense_backward(g, index, 4, -1, False)


torch.manual_seed(0)
for tokens in (64, 1024, 16384):
    g, index = torch.rand(tokens, 32).bfloat16(), torch.randint(0, 4, (tokens,))
    y, truth = gradient(g, index), gradient(g.double(), index)
    print(f"{tokens} tokens:", ulpscope.judge_call(gradient, (g, index), outputs=y))
    print("  largest relative error", float(((y - truth) / truth).abs().max()))
