# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, CPU: the gradient of hardsigmoid in float64 is 1/6 rounded to float32, 3e-8 off.

Found by `ulpscope fuzz --device cpu --relations`, relation `gradient`: the float64 kernel is off as the float32 one
is, so that no comparison between them shows it."""

from fractions import Fraction

import torch

if __name__ == "__main__":
    x = torch.tensor([0.25], dtype=torch.float64, requires_grad=True)
    torch.nn.functional.hardsigmoid(x).backward()
    off = abs(Fraction(x.grad.item()) - Fraction(1, 6)) * 6
    rise = (torch.nn.functional.hardsigmoid(x + 0.5) - torch.nn.functional.hardsigmoid(x)).item() / 0.5
    print(f"gradient {x.grad.item():.17g}, 1/6 is {1 / 6:.17g}: {float(off):.1e} of it off (float64 rounds by 1e-16)")
    print(f"the values rise by {rise:.17g}")
