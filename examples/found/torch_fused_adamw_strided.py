# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, CPU: a fused optimizer step takes as many elements as a parameter has from where
it begins, whatever its strides: a parameter with gaps is updated with other elements' gradients,
and what lies in the gaps is written.

Issues: none found. CUDA refuses such tensors (pytorch/pytorch#106951 is about that)."""

import torch

import ulpscope

HYPER = dict(lr=1e-2, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False)


def step(p, g, m, v):
    torch._fused_adamw_([p], [g], [m], [v], [], [torch.tensor(5.0)], **HYPER)
    return p, m, v


torch.manual_seed(0)
state = [torch.randn(8, 30), torch.randn(8, 30), torch.randn(8, 30), torch.rand(8, 30)]
gappy = torch.cat([state[0], torch.zeros(8, 30)], 1)[:, :30]  # every row is followed by zeros
for p in (state[0], gappy):
    given = [p, *state[1:]]
    copies = [torch.empty_strided(t.shape, t.stride()).copy_(t) for t in given]
    print(ulpscope.judge_call(step, given, {}, step(*copies)))

for fused in (False, True):
    whole = torch.ones(8, 60)
    weight = torch.nn.Parameter(whole[:, :30])
    weight.grad = torch.ones(8, 30)
    torch.optim.AdamW([weight], lr=1e-2, weight_decay=0, fused=fused).step()
    print(
        f"plain count, fused={fused}:",
        int((weight == 1).sum()),
        "of 240 not updated,",
        int((whole[:, 30:] != 1).sum()),
        "written beside them",
    )
