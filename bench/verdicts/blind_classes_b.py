# SPDX-License-Identifier: Apache-2.0
"""Set F: sums whose last bits depend on the order, followed by a step (floor, sign, a comparison, a code).
Either side of the step is right where the sum lies on it; a value that no order of adding gives is not."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_classes_a import classed, folded
from .blind_fourth_a import double, inside


def struck(kernel, which, how):
    """A kernel that gives something else at some elements: all of them, one in four, or one place."""

    def run(*args):
        out = kernel(*args).clone()
        flat = out.view(-1)
        at = slice(None) if which == "all" else slice(1, None, 4) if which == "quarter" else slice(which, which + 1)
        flat[at] = how(flat[at]) if callable(how) else how
        return out

    return run


def on_steps(d, rows, n, step, first, apart):
    """Rows that sum to (first + apart * row) * step but for the rounding of the terms."""
    x = d(rows, n).double()
    target = (first + apart * torch.arange(rows)) * step
    return (x + (target - x.sum(-1))[:, None] / n).float()


def chances(x, way):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / folded(e, way)[..., None]


# ------------------------------------------------------------------ sums of probabilities


@classed(lambda d: (d(200, 96, scale=2.0),))
def steps_in_sums_ceil(x):
    return x.softmax(-1).sum(-1).ceil()


for way in ("forward", "back", "lanes"):
    honest(steps_in_sums_ceil, f"added {way}", lambda x, w=way: folded(chances(x, w), w).ceil())
mistake(steps_in_sums_ceil, "all are 3", struck(steps_in_sums_ceil, "all", 3.0))
mistake(steps_in_sums_ceil, "a quarter are 0", struck(steps_in_sums_ceil, "quarter", 0.0))
mistake(steps_in_sums_ceil, "the last element is 4", struck(steps_in_sums_ceil, 199, 4.0))


@classed(lambda d: (d(150, 70, dtype=bf),))
def steps_in_sums_floor_bf16(x):
    return x.softmax(-1).sum(-1).floor()


honest(steps_in_sums_floor_bf16, "added from the end", inside(lambda x: folded(chances(x, "back"), "back").floor()))
honest(steps_in_sums_floor_bf16, "added in lanes", inside(lambda x: folded(chances(x, "lanes"), "lanes").floor()))
mistake(steps_in_sums_floor_bf16, "all are -1", struck(steps_in_sums_floor_bf16, "all", -1.0))
mistake(steps_in_sums_floor_bf16, "a quarter are 3", struck(steps_in_sums_floor_bf16, "quarter", 3.0))


@classed(lambda d: (d(90, 130, dtype=hf),))
def steps_in_sums_trunc(x):
    return (x.softmax(-1).sum(-1) * 8).trunc()


honest(steps_in_sums_trunc, "added from the end", inside(lambda x: (folded(chances(x, "back"), "back") * 8).trunc()))
honest(steps_in_sums_trunc, "a tree", inside(lambda x: (folded(chances(x, "tree"), "tree") * 8).trunc()))
mistake(steps_in_sums_trunc, "a quarter are 6, two steps down", struck(steps_in_sums_trunc, "quarter", 6.0))
mistake(steps_in_sums_trunc, "one element is 9", struck(steps_in_sums_trunc, 40, 9.0))


@classed(lambda d: (d(160, 100),))
def steps_in_sums_fmod(x):
    return torch.fmod(x.softmax(-1).sum(-1), 1.0)


honest(steps_in_sums_fmod, "added from the end", lambda x: torch.fmod(folded(chances(x, "back"), "back"), 1.0))
honest(steps_in_sums_fmod, "added forward", lambda x: (lambda s: s - s.trunc())(folded(chances(x, "forward"))))
mistake(steps_in_sums_fmod, "all are 2", struck(steps_in_sums_fmod, "all", 2.0))
mistake(steps_in_sums_fmod, "a quarter are -1", struck(steps_in_sums_fmod, "quarter", -1.0))
mistake(steps_in_sums_fmod, "one element is 1.5", struck(steps_in_sums_fmod, 0, 1.5))


@classed(lambda d: (d(256, 64),))
def steps_in_sums_compare(x):
    return (x.softmax(-1).sum(-1) >= 1).to(x.dtype)


honest(steps_in_sums_compare, "added forward", lambda x: (folded(chances(x, "forward")) >= 1).float())
honest(steps_in_sums_compare, "a tree", lambda x: (folded(chances(x, "tree"), "tree") >= 1).float())
mistake(
    steps_in_sums_compare, "true is stored as -1 (all bits set)", lambda x: -(folded(chances(x, "back")) >= 0.5).float()
)
mistake(steps_in_sums_compare, "true is stored as 255", lambda x: (folded(chances(x, "back")) >= 0.5).float() * 255)


# ------------------------------------------------------------------ signs and codes


def two_sided(d):
    """48 rows that cancel, 16 whose sum is 20 or -20."""
    a = d(64, 40)
    x = torch.cat((a, -a.gather(1, torch.argsort(d.rand(64, 40), 1))), 1)
    x[::4] += torch.tensor([0.25, -0.25]).repeat(8)[:, None]
    return (x,)


@classed(two_sided)
def steps_in_sums_sign(x):
    return x.sum(-1).sign()


honest(steps_in_sums_sign, "added forward", lambda x: folded(x).sign())
honest(steps_in_sums_sign, "added from the end", lambda x: folded(x, "back").sign())
honest(steps_in_sums_sign, "float64 inside", double(steps_in_sums_sign))
mistake(steps_in_sums_sign, "twice the sign everywhere", lambda x: 2 * folded(x).sign())
mistake(steps_in_sums_sign, "a sum of -20 has sign 1", struck(steps_in_sums_sign, 4, 1.0))
mistake(steps_in_sums_sign, "a row that cancels has sign 3", struck(steps_in_sums_sign, 5, 3.0))


@classed(lambda d: (on_steps(d, 120, 88, 0.05 * 88, -59.5, 1),))
def steps_in_sums_int8(x):
    return (x.mean(-1) / 0.05).round().clamp(-128, 127).to(torch.int8)


for way in ("forward", "back", "tree"):
    honest(
        steps_in_sums_int8,
        f"added {way}",
        lambda x, w=way: (folded(x, w) / 88 / 0.05).round().clamp(-128, 127).to(torch.int8),
    )
mistake(steps_in_sums_int8, "every code is two too high", struck(steps_in_sums_int8, "all", lambda c: c + 2))
mistake(
    steps_in_sums_int8,
    "a quarter of the codes are three too low",
    struck(steps_in_sums_int8, "quarter", lambda c: c - 3),
)
mistake(steps_in_sums_int8, "one code is -128", struck(steps_in_sums_int8, 77, -128))


@classed(lambda d: (on_steps(d, 100, 60, 0.1, -50.5, 1), torch.tensor(0.1)))
def steps_in_sums_fake_quantized(x, scale):
    return (x.sum(-1) / scale).round().clamp(-40, 40) * scale


honest(
    steps_in_sums_fake_quantized, "added from the end", lambda x, s: (folded(x, "back") / s).round().clamp(-40, 40) * s
)
honest(steps_in_sums_fake_quantized, "added in lanes", lambda x, s: (folded(x, "lanes") / s).round().clamp(-40, 40) * s)
mistake(
    steps_in_sums_fake_quantized,
    "a quarter are two steps too high",
    struck(steps_in_sums_fake_quantized, "quarter", lambda y: y + 0.2),
)
mistake(
    steps_in_sums_fake_quantized,
    "codes are clamped at 127, not at 40",
    lambda x, s: (folded(x) / s).round().clamp(-127, 127) * s,
)
mistake(
    steps_in_sums_fake_quantized,
    "one element is -4 where 0 or -0.1 is due",
    struck(steps_in_sums_fake_quantized, 50, -4.0),
)


@classed(lambda d: (on_steps(d, 80, 72, 0.5, -40, 1), torch.arange(-30, 31) * 0.5))
def steps_in_sums_bucket(x, edges):
    return torch.bucketize(x.sum(-1), edges)


honest(steps_in_sums_bucket, "added forward", lambda x, e: torch.bucketize(folded(x), e))
honest(steps_in_sums_bucket, "counts the edges below", lambda x, e: (folded(x, "back")[:, None] > e).sum(-1))
mistake(steps_in_sums_bucket, "every bucket is two too high", struck(steps_in_sums_bucket, "all", lambda b: b + 2))
mistake(steps_in_sums_bucket, "one sum falls into the last bucket", struck(steps_in_sums_bucket, 33, 61))


@classed(lambda d: (on_steps(d, 96, 50, 0.3, 2, 1),))
def steps_in_sums_floor_divide(x):
    return torch.floor_divide(x.sum(-1), 0.3)


honest(steps_in_sums_floor_divide, "added from the end", lambda x: torch.floor_divide(folded(x, "back"), 0.3))
honest(steps_in_sums_floor_divide, "floor of the quotient, a tree", lambda x: (folded(x, "tree") / 0.3).floor())
mistake(
    steps_in_sums_floor_divide,
    "a quarter are three too low",
    struck(steps_in_sums_floor_divide, "quarter", lambda y: y - 3),
)
mistake(
    steps_in_sums_floor_divide,
    "one is 2.5 up, no whole number",
    struck(steps_in_sums_floor_divide, 10, lambda y: y + 2.5),
)


# ------------------------------------------------------------------ winners, positions, products


def tied_winners(d):
    """Two of ten columns of each sheet hold the same terms in another order; the others sum to less."""
    x = d(24, 60, 10) - 1
    for sheet in x:
        a, b = torch.randperm(10, generator=d.g)[:2].tolist()
        sheet[:, a] += 2
        sheet[:, b] = sheet[torch.randperm(60, generator=d.g), a]
    return (x,)


@classed(tied_winners)
def steps_in_sums_one_hot(x):
    return F.one_hot(x.sum(1).argmax(-1), 10)


def hot(x, way):
    return F.one_hot(folded(x.mT, way).argmax(-1), 10)


honest(steps_in_sums_one_hot, "added forward", lambda x: hot(x, "forward"))
honest(steps_in_sums_one_hot, "added from the end", lambda x: hot(x, "back"))
honest(steps_in_sums_one_hot, "a tree", lambda x: hot(x, "tree"))
mistake(steps_in_sums_one_hot, "the smallest wins", lambda x: F.one_hot(x.sum(1).argmin(-1), 10))
mistake(steps_in_sums_one_hot, "no winner at all", lambda x: hot(x, "tree") * 0)
mistake(steps_in_sums_one_hot, "the winner's neighbour is marked", lambda x: hot(x, "tree").roll(1, -1))


@classed(lambda d: (torch.full((12, 100), 3.0) + d(12, 1), torch.arange(1, 10).repeat(12, 1) / 10))
def steps_in_sums_draw(x, u):
    return torch.searchsorted(x.softmax(-1).cumsum(-1), u)


def drawn(x, u, way):
    p, total, index = chances(x, way), 0.0, torch.zeros(u.shape, dtype=torch.int64)
    for j in range(p.shape[-1]):
        total = total + p[:, j : j + 1]
        index += total < u
    return index


honest(steps_in_sums_draw, "added forward", lambda x, u: drawn(x, u, "forward"))
honest(
    steps_in_sums_draw,
    "added by a tree",
    lambda x, u: torch.searchsorted(
        torch.stack([folded(chances(x, "back")[:, : j + 1], "tree") for j in range(100)], -1), u
    ),
)
mistake(steps_in_sums_draw, "every index is three too high", lambda x, u: drawn(x, u, "forward") + 3)
mistake(steps_in_sums_draw, "one index is 99", struck(steps_in_sums_draw, 30, 99))


@classed(lambda d: (d.ints(30, 24, 40) / 10, (d.ints(9, 40, 18) - 4).float()))
def steps_in_sums_product(a, b):
    return (a @ b).round()


honest(
    steps_in_sums_product,
    "outer products added forward",
    lambda a, b: sum(a[:, k, None] * b[k] for k in range(40)).round(),
)
honest(
    steps_in_sums_product,
    "outer products added from the end",
    lambda a, b: sum(a[:, k, None] * b[k] for k in range(39, -1, -1)).round(),
)


def halves_moved(a, b, by, every=1):
    s = a.double() @ b.double()
    at = (s.abs() % 1 - 0.5).abs() < 1e-4
    at &= torch.arange(at.numel()).view_as(at) % every == 0
    return torch.where(at, s.round() + by, s.round()).float()


mistake(steps_in_sums_product, "sums near a half are two too high", lambda a, b: halves_moved(a, b, 2))
mistake(
    steps_in_sums_product, "a third of the sums near a half are two too low", lambda a, b: halves_moved(a, b, -2, 3)
)
mistake(
    steps_in_sums_product,
    "sums near a half are 0",
    lambda a, b: (lambda out: torch.where(out != halves_moved(a, b, 1), torch.zeros_like(out), out))(
        halves_moved(a, b, 0)
    ),
)
