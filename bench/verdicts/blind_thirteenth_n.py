# SPDX-License-Identifier: Apache-2.0
"""Set R, the thirteenth: linear algebra and sound."""

import math

import torch

from .blind import bf, hf, narrow
from .blind_thirteenth_a import A, add, wide

# ------------------------------------------------------------------ linear algebra


def definite(d, *n):
    a = d(*n, n[-1])
    return a @ a.mT / n[-1] + 0.5 * torch.eye(n[-1])


def cholesky(a, upper=False, kind=None, block=None):
    a = a.clone()
    n = a.shape[-1]
    l = torch.zeros_like(a)
    for j in range(n):
        s = a[..., j, j] - (l[..., j, :j] ** 2).sum(-1)
        l[..., j, j] = torch.sqrt(s)
        c = (a[..., j + 1 :, j] - (l[..., j + 1 :, :j] * l[..., j : j + 1, :j]).sum(-1)) / l[..., j, j, None]
        l[..., j + 1 :, j] = narrow(c, kind) if kind else c
    return l


add(
    "cholesky",
    A.linalg_cholesky.default,
    lambda d: (definite(d, 3, 14),),
    cholesky,
    right={"column by column": {}, "in double": wide(torch.linalg.cholesky)},
    wrong={
        "the upper one": lambda a: torch.linalg.cholesky(a).mT,
        "above the diagonal is what was there": lambda a: torch.linalg.cholesky(a) + torch.triu(a, 1),
        "hides: columns are kept in half": {"kind": hf},
        "hides: 1e-4 is added to the diagonal": lambda a: torch.linalg.cholesky(a + 1e-4 * torch.eye(14)),
    },
)


def forward_solve(a, b, unit=False, kind=None, lose=0):
    x = torch.zeros_like(b)
    for i in range(len(a)):
        v = b[i] - a[i, : max(i - lose, 0)] @ x[: max(i - lose, 0)]
        x[i] = v if unit else v / a[i, i]
        x[i] = narrow(x[i], kind) if kind else x[i]
    return x


add(
    "triangular_solve",
    lambda a, b: A.linalg_solve_triangular.default(a, b, upper=False),
    lambda d: (torch.tril(d(24, 24, scale=0.2)) + 2 * torch.eye(24), d(24, 9)),
    forward_solve,
    right={
        "row by row": {},
        "in double": lambda a, b: torch.linalg.solve_triangular(a.double(), b.double(), upper=False).float(),
    },
    wrong={
        "the diagonal is one": {"unit": True},
        "transposed": lambda a, b: torch.linalg.solve_triangular(a.T, b, upper=True),
        "hides: rows are kept in bfloat16": {"kind": bf},
        "hides: the neighbour is left out": {"lose": 1},
    },
)

add(
    "inverse",
    A.linalg_inv_ex.default,
    lambda d: (definite(d, 2, 12) + d(2, 12, 12, scale=0.1),),
    right={
        "solved": lambda a: (torch.linalg.solve(a, torch.eye(12).expand(2, 12, 12)), torch.zeros(2, dtype=torch.int32)),
        "in double": lambda a: (torch.linalg.inv(a.double()).float(), torch.zeros(2, dtype=torch.int32)),
    },
    wrong={
        "transposed": lambda a: (torch.linalg.inv(a).mT, torch.zeros(2, dtype=torch.int32)),
        "the second is the first": lambda a: (
            torch.linalg.inv(a[:1]).expand(2, 12, 12),
            torch.zeros(2, dtype=torch.int32),
        ),
        "hides: one step of newton from bfloat16": lambda a: (
            lambda x: (x @ (2 * torch.eye(12) - a @ x), torch.zeros(2, dtype=torch.int32))
        )(narrow(torch.linalg.inv(a))),
    },
)

add(
    "slogdet",
    lambda a: tuple(torch.linalg.slogdet(a)),
    lambda d: (d(6, 9, 9),),
    right={
        "by qr": lambda a: (
            torch.linalg.slogdet(a.double())[0].float(),
            torch.log(torch.linalg.qr(a)[1].diagonal(dim1=1, dim2=2).abs()).sum(1),
        ),
        "in double": lambda a: tuple(t.float() for t in torch.linalg.slogdet(a.double())),
    },
    wrong={
        "the sign of exchanges is lost": lambda a: (
            torch.linalg.lu_factor(a)[0].diagonal(dim1=1, dim2=2).sign().prod(1),
            torch.linalg.slogdet(a)[1],
        ),
        "hides: the last pivot is left out of the logarithm": lambda a: (
            torch.linalg.slogdet(a)[0],
            torch.linalg.lu_factor(a)[0].diagonal(dim1=1, dim2=2)[:, :8].abs().log().sum(1),
        ),
        "of base two": lambda a: (torch.linalg.slogdet(a)[0], torch.linalg.slogdet(a)[1] / math.log(2)),
    },
)


def least_squares(a, b):
    q, r = torch.linalg.qr(a)
    return torch.linalg.solve_triangular(r, q.T @ b, upper=True)


add(
    "least_squares",
    least_squares,
    lambda d: (d(40, 8), d(40, 3)),
    lambda a, b, ridge=0.0, n=40: torch.linalg.solve(a[:n].T @ a[:n] + ridge * torch.eye(8), a[:n].T @ b[:n]),
    right={"normal equations": {}, "in double": wide(least_squares)},
    wrong={
        "hides: a ridge of 0.01": {"ridge": 0.01},
        "hides: the last row is left out": {"n": 39},
        "not solved": lambda a, b: a.T @ b / 40,
    },
)

# ------------------------------------------------------------------ sound


def mu_law(x):
    y = torch.sign(x) * torch.log1p(255.0 * x.abs()) / math.log(256.0)
    return ((y + 1) / 2 * 255 + 0.5).to(torch.int64)


add(
    "mu_law",
    mu_law,
    lambda d: (d.rand(500) * 2 - 1,),
    lambda x, half=0.5, mu=255.0, sign=True: (
        (torch.sign(x) * torch.log2(1 + mu * x.abs().double()) / math.log2(1 + mu) + 1) / 2 * 255 + half
    ).long(),
    right={"in double": {}},
    wrong={
        "cut, not rounded": {"half": 0.0},
        "hides: mu is 250": {"mu": 250.0},
        "linear": lambda x: ((x + 1) / 2 * 255 + 0.5).long(),
    },
)


def biquad(x, b, a):
    y, z1, z2 = [], torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        out = b[0] * x[:, t] + z1
        z1 = b[1] * x[:, t] - a[0] * out + z2
        z2 = b[2] * x[:, t] - a[1] * out
        y.append(out)
    return torch.stack(y, 1)


def direct(x, b, a, sign=-1.0, kind=None, chunk=None, swap=False):
    a = a.flip(0) if swap else a
    y = []
    at = lambda s, t: (
        s[t] if 0 <= t < len(s) and not (chunk and t < len(y) // chunk * chunk) else torch.zeros_like(x[:, 0])
    )
    xs = x.unbind(1)
    for t in range(x.shape[1]):
        v = (
            b[0] * xs[t]
            + b[1] * at(xs, t - 1)
            + b[2] * at(xs, t - 2)
            + sign * (a[0] * at(y, t - 1) + a[1] * at(y, t - 2))
        )
        y.append(narrow(v, kind) if kind else v)
    return torch.stack(y, 1)


add(
    "biquad",
    biquad,
    lambda d: (d(3, 80), torch.tensor([0.2, 0.4, 0.2]), torch.tensor([-0.6, 0.3])),
    direct,
    right={"direct": {}, "in double": wide(biquad)},
    wrong={
        "what comes back is added": {"sign": 0.7},
        "coefficients that come back are swapped": {"swap": True},
        "hides: what comes back is kept in bfloat16": {"kind": bf},
        "hides: chunks of 32 begin anew": {"chunk": 32},
    },
)
