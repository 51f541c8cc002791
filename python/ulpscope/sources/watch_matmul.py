# SPDX-License-Identifier: Apache-2.0
"""Matmuls held to row checksums while a model trains: the sum of a row of the result against the
row of the left side times the row sums of the right side. docs/watch.md has both bounds.

`Linears` takes one of n forward calls of nn.Linear (mode sound). `Matmuls` is what mode asd does while
its checksum is on: torch.matmul and Tensor.matmul of bfloat16. Both give a number that stays on the
device: above 1, or 1 in mode asd, is abnormal. Results of the program are only read.

Needs of torch: forward hooks; that torch.matmul can be replaced."""

import torch

from . import hooks

DEVIATIONS = 8  # of the checksum's own rounding: one false alarm in 10^15 rows


def _unit(result):
    """Unit roundoff of the accumulation: float32, or what float32 matmuls may be cut down to."""
    narrow = result.dtype == torch.float32 and result.is_cuda and torch.backends.cuda.matmul.allow_tf32
    return 2.0**-11 if narrow else 2.0**-24 if result.dtype != torch.float64 else 2.0**-53


def error_over_bound(x, weight, bias, result):
    """Largest |checksum error| / bound over the rows of x @ weight.T + bias; Inf where a result is
    not finite although its checksum is."""
    inner = x.shape[-1]
    x = x.reshape(-1, inner).to(result.dtype).double()
    weight = weight.to(result.dtype).double()
    y = result.reshape(-1, result.shape[-1]).double()
    expected = x @ weight.sum(0) + (0.0 if bias is None else bias.double().sum())
    squares = y.square().sum(1)
    terms = x.square() @ weight.square().sum(0)  # what partial sums are like
    rounding = torch.finfo(result.dtype).eps ** 2 / 12 * squares
    variance = rounding + _unit(result) ** 2 * inner * (terms + squares)
    bound = DEVIATIONS * variance.sqrt() + torch.finfo(result.dtype).tiny
    over = ((y.sum(1) - expected).abs() / bound).nan_to_num(nan=float("inf"), posinf=float("inf"))
    return torch.where(torch.isfinite(expected), over, torch.zeros_like(over)).amax()


def asd_abnormal(a, b, c, matmul):
    """torch_npu's checksum: 1.0 where it suspects the product and another one differs, else 0.0."""
    rows = c.float().sum(-1)
    error = (rows - (a.float() @ b.float().sum(-1).unsqueeze(-1)).squeeze(-1)).abs()
    size = c.abs().float()
    most, mean = size.amax(-1), c.abs().mean(-1).float()
    n = c.shape[-1]
    spread = (most / mean).amin() > 5
    allowed = torch.where(spread, most * 2.0**-8 * n**0.5, mean * 2.0**-8 * n)
    suspect = (error - 5 * allowed > 5e-20).any()
    again = (matmul(a, b).abs().mean(-1) != c.abs().mean(-1)).any()
    return (suspect & again).double()


class Linears:
    """Checks one of `every` forward calls of the model's nn.Linear; `told(module, number)`."""

    def __init__(self, model, every, told):
        self.every, self.told, self.n = every, told, 0
        self.handles = [module.register_forward_hook(self._after) for module in model.modules()
                        if isinstance(module, torch.nn.Linear)]  # fmt: skip

    def _after(self, module, args, result):
        if not (module.training and torch.is_grad_enabled()):
            return
        self.n += 1
        if self.n % self.every == 0 and result.dtype.is_floating_point and result.numel() > 0 and args:
            self.told(module, args[0], result)

    def remove(self):
        """Takes the hooks out."""
        for handle in self.handles:
            handle.remove()


class Matmuls:
    """While it is there, each matmul of two bfloat16 matrices is told: `told(a, b, c, matmul)`."""

    def __init__(self, told):
        self.told = told
        self.undo = [hooks.around(owner, "matmul", self._matmul) for owner in (torch, torch.Tensor)]

    def _matmul(self, original, a, b, *args, **kwargs):
        c = original(a, b, *args, **kwargs)
        both = isinstance(b, torch.Tensor) and a.dtype == b.dtype == torch.bfloat16
        if both and a.ndim >= 2 and b.ndim == 2 and c.numel() > 0:
            self.told(a.detach(), b.detach(), c.detach(), original)
        return c

    def remove(self):
        """Takes them out."""
        for undo in self.undo:
            undo()
