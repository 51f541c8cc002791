# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, any device: the gradient of linalg.pinv where atol or rtol leaves out singular values that are not 0 is
that of another function: its formula holds for a pseudo-inverse of the whole matrix.

Found by `ulpscope fuzz --device sim:0 --relations`, relation `gradient`. Issues: pytorch/pytorch#110009 met the
difference in 2023 and was closed without a change."""

import torch

if __name__ == "__main__":
    torch.manual_seed(0)
    q, p, way, weights = (torch.randn(3, 3, dtype=torch.float64) for _ in range(4))
    q, p = torch.linalg.qr(q)[0], torch.linalg.qr(p)[0]
    for small in (0.0, 0.3):
        x = ((q * torch.tensor([2.0, 1.0, small], dtype=torch.float64)) @ p.T).requires_grad_()

        def total(x):
            return (torch.linalg.pinv(x, atol=0.5, rtol=0.0) * weights).sum()

        along = float((torch.autograd.grad(total(x), x)[0] * way).sum())
        with torch.no_grad():
            slopes = [float(total(x + h * way) - total(x - h * way)) / (2 * h) for h in (1e-4, 1e-5, 1e-6)]
        print(
            f"values 2, 1, {small}, atol=0.5: gradient {along:.7f}; the values rise by", *(f"{s:.7f}" for s in slopes)
        )
