# SPDX-License-Identifier: Apache-2.0
"""Set S, the fourteenth: what its files share. Each file holds one subject; what is planted is said in plain words, and
"hides" marks what is planned within 8 times the rounding noise of float32."""

import torch

from .blind import FAMILIES, RIGHT

INF = float("inf")


def low(t):
    """Whether `t` is a tensor of 8 or 16 bit floating numbers."""
    return torch.is_tensor(t) and t.is_floating_point() and t.element_size() < 4


def up(t):
    """Low precision to float32; the rest as it is."""
    return t.float() if low(t) else t


def run_as(kernel, dtype, keywords):
    """A kernel at its keywords: low inputs are read as float32, and its real outputs are rounded to `dtype`."""

    def run(*args):
        got = kernel(*(map(up, args) if dtype else args), **keywords)
        one = lambda t: t.to(dtype if dtype and t.is_floating_point() else t.dtype).contiguous()
        return tuple(map(one, got)) if isinstance(got, tuple | list) else one(got)

    return run


def add(name, fn, args, kernel=None, right=(), wrong=(), dtype=None, letter="S"):
    """Registers a family of the set: a definition, its right kernels and its wrong ones, each a function or the
    keywords of `kernel`. With `dtype`, kernels compute in float32 and round once."""
    name = f"fourteenth_{name}"
    if name in FAMILIES:
        raise ValueError(f"two families are called {name}")
    FAMILIES[name] = (fn, args, [], letter)
    for into, kernels in ((RIGHT.setdefault(name, []), right), (FAMILIES[name][2], wrong)):
        for words, how in dict(kernels).items():
            part, how = (how, {}) if callable(how) else (kernel, how)
            into.append((words, run_as(part, dtype, how)))


def wide(fn):
    """The definition in double precision, rounded once."""

    def run(*args):
        args = [t.double() if torch.is_tensor(t) and t.is_floating_point() else t for t in args]
        got = fn(*args)
        one = lambda t: t.float() if t.dtype == torch.float64 else t
        return tuple(map(one, got)) if isinstance(got, tuple | list) else one(got)

    return run


def halves(x, leaf=8):
    """Sums of the last dimension, pairs of halves."""
    n = x.shape[-1]
    return serial(x) if n <= leaf else halves(x[..., : n // 2], leaf) + halves(x[..., n // 2 :], leaf)


def serial(x, kind=None):
    """Sums of the last dimension one after the other, rounded to `kind` after each."""
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for i in range(x.shape[-1]):
        total = total + x[..., i]
        total = total.to(kind).to(x.dtype) if kind else total
    return total


def lanes(x, n=32):
    """Sums of the last dimension: `n` lanes strided over it, then a tree of them."""
    pad = -x.shape[-1] % n
    x = torch.nn.functional.pad(x, (0, pad)).unflatten(-1, (-1, n))
    return halves(serial(x.transpose(-1, -2)), 1)


def kahan(x):
    """Compensated sums of the last dimension."""
    total = lost = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for i in range(x.shape[-1]):
        y = x[..., i] - lost
        t = total + y
        lost = (t - total) - y
        total = t
    return total


def split(a, b, step=16, acc=None, lost=()):
    """a @ b by blocks of the inner dimension, added in turn; blocks in `lost` are left out."""
    total = 0
    for i, k in enumerate(range(0, a.shape[-1], step)):
        if i not in lost:
            total = total + a[..., k : k + step] @ b[..., k : k + step, :]
            total = total.to(acc).float() if acc else total
    return total


def trimmed(x, bits):
    """float32 `x` rounded to that many significant bits."""
    drop = 24 - bits
    return ((x.contiguous().view(torch.int32) + (1 << (drop - 1))) & -(1 << drop)).view(torch.float32)


def gradients(fn, wanted):
    """The gradients of fn's first `wanted` arguments at the last argument as the gradient of its result."""

    def run(*args):
        args, down = args[:-1], args[-1]
        leaves = [a.detach().clone().requires_grad_(i < wanted) for i, a in enumerate(args)]
        with torch.enable_grad():
            return torch.autograd.grad(fn(*leaves), leaves[:wanted], down)

    return run
