# SPDX-License-Identifier: Apache-2.0
"""What the readers of how-to pages have: the names that the pages' Python uses and does not define."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.GELU(), torch.nn.Linear(24, 4))
loader = [(torch.randn(8, 16), torch.randint(4, (8,))) for _ in range(8)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, weight = torch.randn(4, 16), torch.rand(16)


def train(batch=None):
    """A step, or one for each batch."""
    for one, wanted in loader if batch is None else [batch]:
        optimizer.zero_grad()
        F.cross_entropy(model(one), wanted).backward()
        optimizer.step()


def reference(x, weight):
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


reference_rms_norm = reference


def my_rms_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-6)


library = torch.library.Library("npu", "DEF")
library.define("npu_rms_norm(Tensor x, Tensor weight, float eps) -> Tensor")
library.impl("npu_rms_norm", lambda x, weight, eps: F.rms_norm(x, [16], weight, eps), "CPU")
