# SPDX-License-Identifier: Apache-2.0
"""Set U, the fifteenth: what its files share. Each file holds one subject; what is planted is said in plain words, and
"hides" marks what is planned within 8 times the rounding noise of float32 (or of the output's format)."""

import torch

from .blind import FAMILIES, RIGHT
from .blind_fourteenth_base import run_as

INF = float("inf")
LOG2E = 1.4426950408889634


def add(name, fn, args, kernel=None, right=(), wrong=(), dtype=None):
    """Registers a family of the set: a definition, its right kernels and its wrong ones, each a function or the
    keywords of `kernel`. With `dtype`, kernels compute in float32 and round once."""
    name = f"fifteenth_{name}"
    if name in FAMILIES:
        raise ValueError(f"two families are called {name}")
    FAMILIES[name] = (fn, args, [], "U")
    for into, kernels in ((RIGHT.setdefault(name, []), right), (FAMILIES[name][2], wrong)):
        for words, how in dict(kernels).items():
            part, how = (how, {}) if callable(how) else (kernel, how)
            into.append((words, run_as(part, dtype, how)))


def hold(x, kind):
    """`x` rounded to `kind` and back, or as it is."""
    return x.to(kind).to(x.dtype) if kind else x


def tiled(a, b, step=32, acc=None, skip=(), kind=None):
    """a @ b by blocks of the inner dimension, added in turn, each rounded to `acc`; blocks in `skip` are lost."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for i, k in enumerate(range(0, a.shape[-1], step)):
        if i not in skip:
            part = hold(a[..., k : k + step], kind) @ hold(b[..., k : k + step, :], kind)
            total = hold(total + part, acc)
    return total


def index(n, m):
    """Row and column numbers that broadcast to [n, m]."""
    return torch.arange(n)[:, None], torch.arange(m)[None]
