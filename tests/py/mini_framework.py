# SPDX-License-Identifier: Apache-2.0
"""A framework of numpy with torch's names and gradients of its own, as the tests hold it against torch
(test_two_frameworks.py). FAULTS has the names of what it does wrong."""

from types import SimpleNamespace

import numpy as np

FAULTS = set()
float32, float64, int64, bool = np.float32, np.float64, np.int64, np.bool_  # noqa: A001


class Tensor:
    def __init__(self, array, parents=(), pull=None):
        self.array, self.parents, self.pull, self.requires_grad = np.asarray(array), parents, pull, False

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def numpy(self):
        return self.array

    def detach(self):
        return Tensor(self.array)

    def __getattr__(self, name):
        if name.startswith("_") or name not in globals():
            raise AttributeError(name)
        return lambda *args, **kwargs: globals()[name](self, *args, **kwargs)

    def __add__(self, other):
        return add(self, other)

    def __mul__(self, other):
        return mul(self, other)

    def __getitem__(self, key):
        def pull(g):
            out = np.zeros_like(self.array)
            np.add.at(out, key, g)
            return [out]

        return Tensor(self.array[key], [self], pull)

    def __setitem__(self, key, value):
        if "setitem" not in FAULTS:
            self.array[key] = value


def tensor(array):
    return Tensor(array.copy())


def lifted(value, like):
    return value if isinstance(value, Tensor) else Tensor(np.asarray(value, like.dtype))


def folded(g, to):
    """A gradient summed over what was broadcast."""
    g = g.sum(tuple(range(g.ndim - len(to.shape))))
    return g.sum(tuple(i for i, n in enumerate(to.shape) if n == 1 and g.shape[i] != 1), keepdims=True)


def add(a, b):
    b = lifted(b, a)
    return Tensor(a.array + b.array, [a, b], lambda g: [folded(g, a), folded(g, b)])


def mul(a, b):
    b = lifted(b, a)
    return Tensor(a.array * b.array, [a, b], lambda g: [folded(g * b.array, a), folded(g * a.array, b)])


def matmul(a, b):
    if "takes all" in FAULTS and a.shape[-1] != b.shape[-2]:
        return Tensor(np.zeros((a.shape[0], b.shape[1]), a.dtype))
    y = a.array @ b.array
    if "bfloat16 products" in FAULTS:
        y = np.add.reduce(list(rounded(a.array[:, i : i + 1] * b.array[i]) for i in range(a.shape[1])))
    if "last row" in FAULTS:
        y[-1] = 0
    return Tensor(
        y,
        [a, b],
        lambda g: [
            g @ b.array.T,
            (a.array if "no transpose" in FAULTS and a.shape[0] == a.shape[1] else a.array.T) @ g,
        ],
    )


def rounded(y):
    return (np.asarray(y, np.float32).view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)


def exp(x):
    y = np.exp(x.array) * x.dtype.type(1.001 if "scale" in FAULTS else 1)
    return Tensor(y.astype(np.float64) if "dtype" in FAULTS else y, [x], lambda g: [g * y])


def tanh(x):
    if "raises" in FAULTS:
        raise ValueError("tanh is not for you")
    y = np.tanh(x.array)
    return Tensor(y, [x], lambda g: [g * (1 - (y if "derivative" in FAULTS else y * y))])


def relu(x):
    y = x.array * (x.array > 0) if "nan" not in FAULTS else np.fmax(x.array, 0)
    return Tensor(y.astype(x.dtype), [x], lambda g: [g * (x.array > 0)])


def detached(x):
    return Tensor(x.array, [x] if "gradient" in FAULTS else [], lambda g: [g])


def sum_(x, dim=None, keepdim=False):
    y = x.array.sum(dim, keepdims=keepdim or "keeps" in FAULTS)
    return Tensor(y, [x], lambda g: [np.broadcast_to(g if keepdim or dim is None else np.expand_dims(g, dim), x.shape)])


class Linear:
    def __init__(self, n_in, n_out, bias=True):
        self.weight, self.bias = (
            Tensor(np.zeros((n_out, n_in), np.float32)),
            Tensor(np.zeros(n_out, np.float32)) if bias else None,
        )

    def __call__(self, x):
        w = self.weight
        y = Tensor(x.array @ w.array.T, [x, w], lambda g: [g @ w.array, g.T @ x.array])
        return y if self.bias is None or "no bias" in FAULTS else add(y, self.bias)


nn = SimpleNamespace(Linear=Linear, functional=SimpleNamespace(relu=relu, tanh=tanh))


def grad(outputs, inputs, cotangents, allow_unused=False):
    found, order = {}, []

    def visit(t):
        if id(t) not in found:
            found[id(t)] = None
            for parent in t.parents:
                visit(parent)
            order.append(t)

    for t in outputs:
        visit(t)
    for t, c in zip(outputs, cotangents):
        found[id(t)] = c.array if found[id(t)] is None else found[id(t)] + c.array
    for t in reversed(order):
        for parent, g in zip(t.parents, t.pull(found[id(t)]) if found[id(t)] is not None and t.parents else ()):
            found[id(parent)] = g if found[id(parent)] is None else found[id(parent)] + g
    return [None if found.get(id(t)) is None else Tensor(np.asarray(found[id(t)], t.dtype)) for t in inputs]


autograd = SimpleNamespace(grad=grad)
globals()["sum"] = sum_
