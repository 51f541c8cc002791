# SPDX-License-Identifier: Apache-2.0
"""A precision as another honest device might round it: every inexact result inside a callable
moved by an ulp, up or down. What a formula loses by that, no device can be blamed for.
Serves `_reference`."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LOW = (torch.float32, torch.float16, torch.bfloat16)


class Noise(TorchDispatchMode):
    """Moves what its operators round; exact results (moves, clamps, masks) stay."""

    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if any(r.alias_info is not None for r in func._schema.returns):
            return out
        if not isinstance(out, torch.Tensor) or out.dtype not in LOW:
            return out
        try:
            exact = func(*[_wide(a) for a in args], **{k: _wide(v) for k, v in kwargs.items()})
        except Exception:  # no float64 kernel: it stays as it is
            return out
        if exact.shape != out.shape:
            return out
        steps = 2 * torch.randint(0, 2, out.shape, generator=self.generator) - 1
        return torch.where(exact.double() == out.double(), out, (out * (1 + steps * torch.finfo(out.dtype).eps)).to(out.dtype))


def _wide(value):
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype in LOW else value
    if isinstance(value, (list, tuple)):
        return type(value)(_wide(item) for item in value)
    return torch.float64 if value in LOW else value
