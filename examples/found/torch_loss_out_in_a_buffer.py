# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, CPU: huber_loss and soft_margin_loss with a reduction and `out=` one element of a buffer: the
elements of the loss are computed in `out`, which is resized for them, so that the buffer behind that element is
overwritten. mse_loss leaves it alone.

Found by `ulpscope fuzz --device cpu --relations`, relation `out`. No issue found."""

import torch

MEAN = 1


def changed(loss, *given):
    """(what stands in `out`, the loss, elements of the buffer that changed beside it)."""
    buffer = torch.zeros(16)
    want = loss(*given, MEAN)
    loss(*given, MEAN, out=buffer[3])
    beside = torch.cat([buffer[:3], buffer[4:]])
    return float(buffer[3]), float(want), int(beside.count_nonzero())


if __name__ == "__main__":
    torch.manual_seed(0)
    x, y = torch.randn(6), torch.randn(6)
    for name, given in (("mse_loss", (x, y)), ("huber_loss", (x, y)), ("soft_margin_loss", (x, y.sign()))):
        got, want, n = changed(getattr(torch._C._nn, name), *given)
        print(f"{name}: out {got:.6f}, the loss {want:.6f}; {n} of 15 elements beside it were written")
