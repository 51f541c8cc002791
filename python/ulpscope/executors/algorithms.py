# SPDX-License-Identifier: Apache-2.0
"""Sums and transforms by other honest algorithms than the CPU's own: one accumulator from the
first term to the last, or back; a Fourier transform by its matrix. Where terms come in an order
that makes partial sums large, or drops small ones, these lose far more than roundings that fall
by chance, and no device can be blamed for it. Serves `noise`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch

from .. import _core
from ..calls.torch_private import DisableTorchDispatch

MOST_TERMS = 1 << 17  # of the sums in a product of matrices
MOST_PRODUCTS = 1 << 29  # that are added one by one: a second
MOST_DRIFTING = 1 << 26  # of these, where each sum is cut off
MOST_ADDED = 1 << 26  # numbers that one step may add one by one
FIRST, LAST, UNITS, CUT, DRIFT, STALL = "first", "last", "units", "cut", "drift", "stall"
CUT_TERMS = 32  # of a sum whose accumulators are cut off: as many in each,
CUT_BLOCKS = 256  # and of these as many in one
MOST_CUT = 1 << 20  # numbers of such a sum: more would drift beyond what anybody builds
PARTS = (2, 8, 32)
AT_ONCE = 8  # products that a matrix unit adds in one step: of NVIDIA, 4, 8 or 16
MOST_POINTS = 2048  # of a transform by its matrix
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}


# ---- sums ----------------------------------------------------------------------------


def accumulated(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], order: Any) -> Any:
    """The float32 result of an operator that adds, with every sum in one accumulator, from its "first"
    term on or from its "last", or with one for each of so many parts; or, of 16 bits, as matrix "units"
    compute it; or with accumulators that are "cut" off instead of rounded; or ("drift") those of products as well,
    at every term; or as "first", though it has stopped growing ("stall"). None for all others. Modes
    around it are not asked: it is float32 throughout, in thousands of steps."""
    with DisableTorchDispatch():
        return _accumulated(func, args, kwargs, order)


def _accumulated(func, args, kwargs, order):
    name = func._schema.name.split("::")[1]
    if name in PRODUCTS:
        return None if order == CUT else _product(name, args, kwargs, order)
    if order == UNITS or name not in ("sum", "mean", "var") or args[0].dtype != torch.float32 or not args[0].numel():
        return None
    if args[0].numel() > (MOST_CUT if order in (CUT, DRIFT) else MOST_ADDED):
        return None
    x, dims = args[0], _dims_of(args)
    n = math.prod(x.shape[d] for d in dims)
    terms = x.movedim(dims, tuple(range(-len(dims), 0)))
    out = _sum(terms, order, len(dims))
    if name != "sum":
        out = out / n
    if name == "var":
        given = args[2] if len(args) > 2 and not isinstance(args[2], bool) else kwargs.get("correction")
        out = _sum(terms, order, len(dims), out) / (n - float(1 if given is None else given))
    return out


def _dims_of(args):
    dims = args[1] if len(args) > 1 else None
    dims = list(range(args[0].dim())) if dims is None or dims == [] else dims
    dims = [dims] if isinstance(dims, int) else dims
    return tuple(sorted(d % args[0].dim() for d in dims)) if args[0].dim() else ()


def _sum(terms, order, n_inner=1, centre=None):
    """The sum over the last dimensions, term by term, of squared differences from a `centre` of each if it is
    given."""
    rows = terms.shape[: terms.dim() - n_inner]
    if order in (CUT, DRIFT):
        terms = terms.reshape(*rows, -1)
        return _cut_sum(terms if centre is None else (terms - centre[..., None]).square())
    out = torch.empty(rows, dtype=torch.float32)
    _core.sum_in_order(
        terms, centre, out, n_inner, order if isinstance(order, int) else 1, order == LAST, order == STALL
    )
    return out


def _cut_sum(terms):
    """The sum over the last dimension, by blocks, and blocks of these where they are many; in each one term
    after another is added, and what does not fit is cut off."""
    while terms.shape[-1] > CUT_TERMS:
        pad = -terms.shape[-1] % CUT_TERMS
        terms = _cut_one_by_one(torch.nn.functional.pad(terms, (0, pad)).unflatten(-1, (-1, CUT_TERMS)))
        if terms.shape[-1] <= CUT_BLOCKS:
            break
    return _cut_one_by_one(terms)


def _cut_one_by_one(terms):
    total = torch.zeros(terms.shape[:-1])
    for term in terms.unbind(-1):
        total = _cut(total.double() + term)
    return total


def _cut(exact):
    """float32 next to numbers of float64, toward zero."""
    near = exact.float()
    return torch.where(near.double().abs() > exact.abs(), near.nextafter(torch.zeros(())), near)


def _product(name, args, kwargs, order):
    first = len(name.removesuffix("mm").removesuffix("b")) // 3  # addmm and baddbmm have a bias
    a, b = args[first], args[first + 1]
    if a.dtype != torch.float32 or not 0 < a.shape[-1] <= MOST_TERMS or a.numel() * b.shape[-1] > MOST_PRODUCTS:
        return None
    if order == DRIFT and a.numel() * b.shape[-1] > MOST_DRIFTING:
        return None
    if order == UNITS:
        total = _cut_off(a, b) if _is_low(a) and _is_low(b) else None
    elif isinstance(order, int):
        total = _in_parts(a, b, order)
    else:
        total = _chained(a, b, order)
    if total is None or not first:
        return total
    return kwargs.get("beta", 1) * args[0] + kwargs.get("alpha", 1) * total


def _chained(a, b, order):
    k, total = a.shape[-1], torch.zeros(*a.shape[:-1], b.shape[-1])
    for i in reversed(range(k)) if order == LAST else range(k):
        term = a[..., i, None] * b[..., i, None, :]
        total = _cut(total.double() + term) if order == DRIFT else total.add_(term)
    return total


def _in_parts(a, b, n):
    if n * a[..., 0].numel() * b.shape[-1] > MOST_ADDED:
        return None
    pad, more = torch.nn.functional.pad, -a.shape[-1] % n
    a = pad(a, (0, more)).unflatten(-1, (n, -1)).movedim(-2, 0)
    b = pad(b, (0, 0, 0, more)).unflatten(-2, (n, -1)).movedim(-3, 0)
    total = torch.zeros(a.shape[1:-1] + b.shape[-1:])
    for part in _chained(a, b, FIRST):
        total += part
    return total


def _is_low(x):
    """Whether 16 bits hold every number: a matrix unit takes them as they are."""
    return bool((x == x.bfloat16()).all()) or bool((x == x.half()).all())


def _cut_off(a, b):
    """A product as matrix units compute it: some products at once, exactly, added to an accumulator
    that is cut off instead of rounded."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for i in range(0, a.shape[-1], AT_ONCE):
        part = a[..., i : i + AT_ONCE].double() @ b[..., i : i + AT_ONCE, :].double()
        total = _cut(part.add_(total))
    return total


# ---- transforms ----------------------------------------------------------------------


def n_points(x: torch.Tensor, dims: Iterable[int]) -> int:
    """How many numbers a transform adds up."""
    return math.prod(x.shape[d] for d in dims)


def by_matrix(
    func: Callable[..., Any], args: Sequence[Any], like: torch.Tensor, back: bool = False
) -> torch.Tensor | None:
    """A Fourier transform in float32 as products with its matrix, shaped as its result `like`;
    None where that would be large."""
    name = func._schema.name.split("::")[1]
    x, dims, scaling, last = args[:4]
    if not dims or max(max(x.shape[d], like.shape[d]) for d in dims) > MOST_POINTS:
        return None
    if x.numel() * max(x.shape[d] for d in dims) > 16 * MOST_ADDED:
        return None
    sign = 1 if name == "_fft_c2r" or (name == "_fft_c2c" and not last) else -1
    real = torch.view_as_real(x.resolve_conj()) if x.is_complex() else torch.stack([x, 0 * x], -1)
    re, im = real[..., 0], real[..., 1]
    if name == "_fft_c2r":
        for d in dims[:-1]:
            re, im = _along(re, im, d, sign, back)
        re, im = _whole(re, im, dims[-1], last)
        dims_left = dims[-1:]
    else:
        dims_left = dims
    for d in dims_left:
        re, im = _along(re, im, d, sign, back)
    n = n_points(like if name == "_fft_c2r" else x, dims)
    factor = {0: 1.0, 1: n**-0.5, 2: 1 / n}[scaling]
    out = re if name == "_fft_c2r" else torch.complex(re, im)
    for d in dims:
        out = out.narrow(d, 0, like.shape[d])
    return out * factor


def _along(re, im, d, sign, back):
    cos, sin = _matrix(re.shape[d], sign)
    re, im = re.movedim(d, -1), im.movedim(d, -1)
    if back:
        re, im, cos, sin = re.flip(-1), im.flip(-1), cos.flip(0), sin.flip(0)
    return (re @ cos - im @ sin).movedim(-1, d), (re @ sin + im @ cos).movedim(-1, d)


@cache
def _matrix(n, sign):
    k = torch.arange(n, dtype=torch.float64)
    angle = sign * 2 * math.pi / n * (torch.outer(k, k) % n)
    return angle.cos().float(), angle.sin().float()


def _whole(re, im, d, n):
    """The spectrum of which one half is given along a dimension of n points."""
    re, im = re.narrow(d, 0, n // 2 + 1), im.narrow(d, 0, n // 2 + 1).clone()
    im.select(d, 0).zero_()
    if n % 2 == 0:
        im.select(d, n // 2).zero_()
    rest = (n - 1) // 2
    mirror = lambda t: t.narrow(d, 1, rest).flip(d)  # noqa: E731
    return torch.cat([re, mirror(re)], d), torch.cat([im, -mirror(im)], d)
