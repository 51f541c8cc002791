# SPDX-License-Identifier: Apache-2.0
"""Which zeros and ones explain numbers that are sums of them: the masks behind the outputs of
dropouts. Serves `masks`; arithmetic only.

With at least as many equations as half the unknowns the vertex of a box that a linear program
finds is the mask itself; with fewer as long as few are dropped. Whether it is, tells the same
search on outputs whose masks are known.
"""

import torch

N_STEPS = 30  # of an interior point method: each gains a digit or more
NEARLY = 0.995  # of the way to the boundary
TINY = 1e-15
DONE = 1e-11  # of the cost is open: no element moves any more
SLACK_COST = 8.0  # of leaving an equation open, against dropping what it holds


def ones_of(columns, sums):
    """
    x in [0, 1] with columns @ x = sums as nearly as can be, as much of it 1 as possible.

    Shapes: columns (blocks, equations, unknowns), sums (blocks, equations); float64.
    """
    n, d, k = columns.shape
    room = (0.5 * sums.abs().amax(1)).clamp(min=1e-300)[:, None]
    slack = torch.eye(d, dtype=columns.dtype).expand(n, d, d) * room[..., None]
    table = torch.cat([columns, slack, -slack], 2)
    cost = torch.cat([-columns.norm(dim=1), (SLACK_COST * room).expand(n, 2 * d)], 1)
    return _least_cost(table, sums, cost)[:, :k]


def _least_cost(table, sums, cost):
    """min cost.x over table x = sums, 0 <= x <= 1: Mehrotra's predictor and corrector, all
    blocks at once."""
    scale = table.norm(dim=2, keepdim=True).clamp(min=1e-300)
    table, sums = table / scale, sums / scale[..., 0]
    x = torch.full_like(cost, 0.5)
    w, z, v = 1 - x, torch.ones_like(x), torch.ones_like(x)
    y = torch.zeros_like(sums)
    for _ in range(N_STEPS):
        newton = _Newton(table, sums, cost, x, w, y, z, v)
        dx, dy, dz, dv = newton.step(-x * z, -w * v)
        primal, dual = _reach(x, dx, w, -dx), _reach(z, dz, v, dv)
        mu = (x * z).sum(1) + (w * v).sum(1)
        if bool((mu <= DONE * cost.abs().sum(1)).all()):
            break
        after = ((x + primal * dx) * (z + dual * dz)).sum(1) + (
            (w - primal * dx) * (v + dual * dv)).sum(1)  # fmt: skip
        aim = ((after / mu) ** 3 * mu / (2 * x.shape[1]))[:, None]
        dx, dy, dz, dv = newton.step(aim - x * z - dx * dz, aim - w * v + dx * dv)
        primal, dual = NEARLY * _reach(x, dx, w, -dx), NEARLY * _reach(z, dz, v, dv)
        x, w = (x + primal * dx).clamp(TINY, 1), (w - primal * dx).clamp(TINY, 1)
        y, z, v = y + dual * dy, (z + dual * dz).clamp(min=TINY), (v + dual * dv).clamp(min=TINY)
    return x


class _Newton:
    """The linear system of one iterate, solved for any right hand side."""

    def __init__(self, table, sums, cost, x, w, y, z, v):
        self.table, self.x, self.w, self.z, self.v = table, x, w, z, v
        self.primal = sums - _times(table, x)
        self.dual = cost - _times(table.mT, y) - z + v
        self.weight = 1 / (z / x + v / w)
        square = (table * self.weight[:, None]) @ table.mT
        ridge = 1e-14 * square.diagonal(dim1=1, dim2=2).mean(1)
        self.factors = torch.linalg.lu_factor(square + torch.diag_embed(
            ridge[:, None].expand(square.shape[:2])))  # fmt: skip

    def step(self, near_zero, near_one):
        held = self.dual - near_zero / self.x + near_one / self.w
        right = self.primal + _times(self.table, self.weight * held)
        dy = torch.linalg.lu_solve(*self.factors, right[..., None])[..., 0]
        dx = self.weight * (_times(self.table.mT, dy) - held)
        return dx, dy, (near_zero - self.z * dx) / self.x, (near_one + self.v * dx) / self.w


def _times(table, x):
    return (table @ x[..., None])[..., 0]


def _reach(a, da, b, db):
    """How far along a step all of a and b stay positive, at most 1, for each block."""
    ways = [torch.where(d < 0, -t / d, torch.inf).amin(1) for t, d in ((a, da), (b, db))]
    return torch.minimum(*ways).clamp(max=1.0)[:, None]


def settled(columns, sums, x):
    """The mask nearest to x after single elements were turned over as long as that brings
    the sums nearer, and whether x was near it."""
    mask = x.round()
    sure = (x - mask).abs() < 0.25
    squares = columns.square().sum(1)
    for _ in range(8):
        left = sums - _times(columns, mask)
        gain = 2 * (1 - 2 * mask) * _times(columns.mT, left) - squares
        best, at = gain.max(1)
        good = best > 0
        if not bool(good.any()):
            break
        turned = mask.gather(1, at[:, None])
        mask = mask.scatter(1, at[:, None], torch.where(good[:, None], 1 - turned, turned))
    return mask, sure
