# SPDX-License-Identifier: Apache-2.0
"""Chapter 5.7: products of float32 with factors of 10 bits, by context manager and by assignment, and what is left of
a result then: its effective bits."""

import math

import torch

import ulpscope.sim  # noqa: F401

a = torch.randn(256, 256, generator=torch.Generator().manual_seed(0)).to("sim")
b = torch.randn(256, 256, generator=torch.Generator().manual_seed(1)).to("sim")
exact = a.cpu().double() @ b.cpu().double()


def effective_bits(result):
    worst = (result.cpu().double() - exact).abs().max() / exact.abs().max()
    return -math.log2(worst.item())


print(f"float32: {effective_bits(a @ b):.0f} bits")
with torch.backends.sim.flags(allow_tf32=True):
    assert torch.backends.sim.allow_tf32
    print(f"tf32, by context manager: {effective_bits(a @ b):.0f} bits")
assert not torch.backends.sim.allow_tf32
torch.backends.sim.allow_tf32 = True
print(f"tf32, by assignment: {effective_bits(a @ b):.0f} bits")
