# SPDX-License-Identifier: Apache-2.0
"""Other formulas that somebody may have written for a torch function or an operator, by name:
the upper of two middle values for a median, a mean that counts NaN, a running sum that starts
anew in every block. Each is (text, edit(func, args, kwargs)). Neighbours: `functions`
(functions as they were written), `inside` (operators inside a call).
"""

import torch
from torch.nn import functional

MIDDLE = "of two middle values the upper counts (shifted by one among the sorted)"
BLOCKS = (2, 4, 5, 8, 10, 16, 32, 64, 128, 256, 512, 1024)


def variant_edits(name):
    """(text, edit) for a function of this name."""
    name = name.strip("_").replace("linalg_", "").removesuffix("_with_indices")
    for text, variant in (*VARIANTS.get(name, ()), *_coded(name)):
        yield text, _into_out(variant)
    if name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
        for size in BLOCKS:
            yield (f"wrong variant: {name} starts anew every {size} elements (block carry is missing)",
                   _into_out(lambda func, *args, s=size, **kwargs: _in_blocks(s, func, *args, **kwargs)))  # fmt: skip


# Operators that know a choice as a number: the place of the argument, what the numbers mean.
CODES = {"grid_sampler_2d": (2, "mode", ("bilinear", "nearest", "bicubic")),
         "grid_sampler_3d": (2, "mode", ("bilinear", "nearest")),
         "embedding_bag": (4, "mode", ("sum", "mean", "max")),
         **{f"fft_{k}": (2, "norm", ("none", "ortho (by the root of n)", "by n")) for k in ("r2c", "c2c", "c2r")}}  # fmt: skip
PADDINGS = ("zeros", "border", "reflection")
FILTERS = ("nearest", "linear", "bilinear", "trilinear", "bicubic", "nearest-exact")


def _coded(name):
    """(text, variant) of operators whose choices are numbers or parts of the name."""
    codes = [CODES[name]] if name in CODES else []
    codes += [(3, "padding_mode", PADDINGS)] if name.startswith("grid_sampler") else []
    for place, what, names in codes:
        for code, meaning in enumerate(names):
            yield f"wrong variant: {what} is {meaning}", lambda func, *args, p=place, c=code: func(
                *args[:p], _other(args[p], c), *args[p + 1 :])  # fmt: skip
    if name.startswith("upsample_") and "backward" not in name:
        for mode in FILTERS:
            for corners in (None,) if "nearest" in mode else (False, True):
                for smooth in (False, True) if mode in ("bilinear", "bicubic") else (False,):
                    more = f", align_corners {corners}" if corners is not None else ""
                    yield (f"wrong variant: mode is {mode}{more}, antialias {smooth}",
                           lambda func, x, size, *_, m=mode, c=corners, s=smooth: functional.interpolate(
                               x, size, mode=m, align_corners=c, antialias=s))  # fmt: skip
    if name.startswith(("reflection_pad", "replication_pad")) and "backward" not in name:
        for mode in ("reflect", "replicate", "circular", "constant"):
            yield (f"wrong variant: mode is {mode}{' (zeros)' if mode == 'constant' else ''}",
                   lambda func, x, sides, m=mode: functional.pad(x, list(sides), mode=m))  # fmt: skip


def _other(old, new):
    if not isinstance(old, int) or isinstance(old, bool) or old == new:
        raise LookupError("the same")
    return new


def _into_out(variant):
    """An edit that also writes what out= names."""
    def edit(func, args, kwargs):
        into = kwargs.get("out")
        if into is None:
            return variant(func, *args, **kwargs)
        if hasattr(func, "overloadpacket"):
            func = func.overloadpacket
        made = variant(func, *args, **{k: v for k, v in kwargs.items() if k != "out"})
        return into.copy_(made)

    return edit


def _in_blocks(size, func, x, dim, **kwargs):
    if not size < x.shape[dim]:
        raise LookupError("one block")
    parts = [func(part, dim, **kwargs) for part in x.split(size, dim)]
    if isinstance(parts[0], torch.Tensor):
        return torch.cat(parts, dim)
    return tuple(torch.cat(p, dim) for p in zip(*parts))


def _backwards(func, x, dim, **kwargs):
    out = func(x.flip(dim), dim, **kwargs)
    return out.flip(dim) if isinstance(out, torch.Tensor) else tuple(t.flip(dim) for t in out)


def _of(change):
    """The function on another input."""
    return lambda func, x, *args, **kwargs: func(change(x), *args, **kwargs)


def _first(out, change):
    """A result, or of several the first, changed."""
    return change(out) if isinstance(out, torch.Tensor) else (change(out[0]), *out[1:])


def _upper(func, x, dim=None, keepdim=False, **_):
    if dim is None:
        return x.flatten().sort()[0][x.numel() // 2]
    values, where = x.sort(dim=dim, stable=True)
    return tuple(t.narrow(dim, x.shape[dim] // 2, 1) if keepdim else t.select(dim, x.shape[dim] // 2)
                 for t in (values, where))  # fmt: skip


def _mean(func, x, dim=None, keepdim=False, **_):
    return _first(func(x, dim, keepdim) if dim is not None else func(x),
                  lambda _: x.mean() if dim is None else x.mean(dim, keepdim))  # fmt: skip


def _around_zero(func, x, dim=None, **kwargs):
    """A variance of values from which no mean is taken."""
    dims = list(range(x.dim())) if dim is None else dim
    mean = x.mean(dims, keepdim=True)
    counts = (x - x + mean).square()  # in the sum as often as there are elements
    spread = func(x, dim, **kwargs)
    n = x.numel() // max(spread.numel(), 1)
    by = kwargs.get("correction", 1)
    more = counts.sum(dims, keepdim=kwargs.get("keepdim", False)) / (n - (1 if by is None else by))
    return (spread.square() + more).sqrt() if "std" in getattr(func, "__name__", str(func)) else spread + more


def _largest_size(func, x, k, dim=-1, **kwargs):
    where = func(x.abs(), k, dim, **kwargs)[1]
    return x.gather(dim, where), where


def _at_own_place(func, x, mask, source):
    own = source.flatten()[: x.numel()]
    if own.numel() < x.numel():
        own = torch.cat([own, own.new_zeros(x.numel() - own.numel())])
    return torch.where(mask, own.view(x.shape), x)


def _elements(func, x, *args, **kwargs):
    return x.pow(args[0] if args else kwargs.get("n", 2))


def _rectangles(at):
    def edit(func, y, x=None, *, dx=1.0, dim=-1):
        y = y.movedim(dim, -1)
        steps = dx if x is None else x.diff() if x.dim() == 1 else x.movedim(dim, -1).diff()
        return (y[..., at : y.shape[-1] - 1 + at] * steps).sum(-1)

    return edit


def _beyond(func, x, bins=100, min=0, max=0):
    return func(x.clamp(min, max), bins, min=min, max=max)


def _triangle_left(func, x, **kwargs):
    ones = torch.ones_like(x)
    other = (ones.tril(-1) if kwargs.get("upper") else ones.triu(1)).bool()
    return _first(func(x, **kwargs), lambda out: torch.where(other, x, out))


def _fraction(func, x, *args, **kwargs):
    """Integers that divide toward zero instead of down."""
    other = args[0] if args else kwargs["other"]
    return torch.div(x, other, rounding_mode="trunc")


def _by_determinant(func, x, *args, **kwargs):
    return _first(func(x, *args, **kwargs), lambda out: out * torch.linalg.det(x)[..., None, None])


NORMS = [("wrong variant: sums of absolute values (p = 1)", 1), ("wrong variant: the Euclidean norm (p = 2)", 2),
         ("wrong variant: the largest absolute value (p = inf)", torch.inf)]  # fmt: skip


def _norm_of(order):
    def edit(func, x, *args, dim=None, keepdim=False, **kwargs):
        rest = args[1:] if args else ()
        dim = rest[0] if rest else dim
        return torch.linalg.vector_norm(x, order, dim, keepdim=rest[1] if len(rest) > 1 else keepdim)

    return edit


def _root_missing(func, x, *args, **kwargs):
    p = next((a for a in args if isinstance(a, (int, float))), kwargs.get("ord", kwargs.get("p", 2)))
    if isinstance(x, torch.Tensor) and p not in (0, 1, torch.inf, -torch.inf):
        return func(x, *args, **kwargs).pow(p)
    raise LookupError("no root")


def _bag_short(func, index, weight, offsets=None, *, mode="mean", per_sample_weights=None, **kwargs):
    """Bags without their last entry, which still counts in a mean."""
    if index.dim() != 1 or mode == "max":
        raise LookupError("another form")
    ends = torch.cat([offsets[1:], offsets.new_tensor([index.numel()])])
    last = torch.where(ends > offsets, ends - 1, 0)
    gone = weight[index[last]] * (1.0 if per_sample_weights is None else per_sample_weights[last, None])
    gone = gone * (ends > offsets)[:, None]
    count = (ends - offsets).clamp(min=1)[:, None] if mode == "mean" else 1
    return func(index, weight, offsets, mode=mode, per_sample_weights=per_sample_weights, **kwargs) - gone / count


def _segment_short(func, x, reduce, *, lengths=None, axis=0, **kwargs):
    if lengths is None or lengths.dim() != 1 or axis or reduce not in ("sum", "mean"):
        raise LookupError("another form")
    ends = lengths.cumsum(0)
    gone = x[(ends - 1).clamp(min=0)].masked_fill((lengths == 0).view(-1, *[1] * (x.dim() - 1)), 0)
    count = lengths.clamp(min=1).view(-1, *[1] * (x.dim() - 1)) if reduce == "mean" else 1
    return func(x, reduce, lengths=lengths, axis=axis, **kwargs) - gone / count


def _taps(change):
    """fold of columns whose taps, an axis of their own, were changed."""
    def edit(func, x, size, kernel_size, *args, **kwargs):
        high, wide = (kernel_size,) * 2 if isinstance(kernel_size, int) else kernel_size
        parts = x.unflatten(-2, (-1, high, wide)).clone()
        return func(change(parts).flatten(-4, -2), size, kernel_size, *args, **kwargs)

    return edit


def _tap_missing(at):
    def change(parts):
        parts.flatten(-3, -2).select(-2, at).zero_()
        return parts

    return change


def _one_tap(parts):
    kept = torch.zeros_like(parts)
    high, wide = parts.shape[-3] // 2, parts.shape[-2] // 2
    kept[..., high, wide, :] = parts[..., high, wide, :]
    return kept


def _opposite_range(func, x, scale, zero_point, low, high):
    signed = (0, 255) if low < 0 else (-128, 127)
    return func(x, scale, zero_point, *signed)


SEGMENT = "dropped contribution: the last element of every segment (bag) is missing"
ROOT = ("wrong variant: the root is missing (sums of powers)", _root_missing)
_ABSOLUTE = _of(torch.abs)
_SIGNS = ("wrong variant: of absolute values (abs)", _ABSOLUTE)
STALE_TRIANGLE = ("the other triangle is not zero: the mask (tril) is missing, what was there is stale", _triangle_left)
ADJUGATE = ("wrong variant: the adjugate, not divided by the determinant (a factor for each matrix)", _by_determinant)
VARIANTS = {
    "median": [(f"wrong variant: {MIDDLE}", _upper), ("wrong variant: mean instead of median", _mean)],
    "nanmedian": [(f"wrong variant: {MIDDLE}", _upper), ("wrong variant: mean instead of median (nanmean)",
                  lambda func, x, dim=None, keepdim=False: _first(func(x) if dim is None else func(x, dim, keepdim),
                  lambda _: x.nanmean() if dim is None else x.nanmean(dim, keepdim)))],
    "kthvalue": [("wrong order: counted from the largest (descending) instead of the smallest",
                  lambda func, x, k, dim=-1, keepdim=False: func(x, x.shape[dim] + 1 - k, dim, keepdim))],
    "addbmm": [("wrong variant: the mean over the batch instead of the sum", lambda func, x, a, b, **k: func(
                x, a, b, **{**k, "alpha": k.get("alpha", 1) / a.shape[0]}))],
    "cross": [("dropped contribution: the subtracted term of the cross product is missing", lambda func, a, b, dim=-1:
               a.roll(-1, dim) * b.roll(-2, dim))],
    "nansum": [("wrong variant: mean of what is no NaN (nanmean instead of nansum)",
                lambda func, x, *a, **k: func(x, *a, **k) / func(x.isnan().logical_not().to(x.dtype), *a, **k)),
               ("wrong variant: NaN counts as 1 instead of 0 (replaced by another value)", _of(lambda x: x.nan_to_num(1.0))),
               ("wrong variant: NaN is not left out (sum instead of nansum)", lambda func, x, *a, **k: torch.sum(x, *a, **k))],
    "nanmean": [("wrong variant: NaN counts among the elements (divided by all)", lambda func, x, *a, **k: torch.nansum(
        x, *a, **k) / torch.sum(torch.ones_like(x), *a, **k))],
    "cummax": [("wrong direction: cummax runs from the end (reversed)", _backwards)],
    "cummin": [("wrong direction: cummin runs from the end (reversed)", _backwards)],
    "cumsum": [("wrong direction: cumsum runs from the end (reversed)", _backwards)],
    "cumprod": [("wrong direction: cumprod runs from the end (reversed)", _backwards)],
    "var": [("wrong variant: the mean is not subtracted (second moment instead of variance)", _around_zero)],
    "std": [("wrong variant: the mean is not subtracted (second moment instead of variance)", _around_zero),
            ("wrong variant: mean absolute deviation instead of std", lambda func, x, dim=None, **k: (
                x - x.mean(dim, keepdim=True)).abs().mean(dim, keepdim=k.get("keepdim", False)))],
    "amax": [_SIGNS], "amin": [_SIGNS], "max": [_SIGNS], "min": [_SIGNS], "argmax": [_SIGNS], "argmin": [_SIGNS],
    "sum": [_SIGNS], "prod": [_SIGNS], "sort": [_SIGNS], "argsort": [_SIGNS],
    "topk": [("wrong variant: the largest by absolute value (abs)", _largest_size)],
    "masked_scatter": [("wrong index: the source is read at the place of the result instead of in order",
                        _at_own_place)],
    "matrix_power": [("wrong variant: element by element instead of matrix products", _elements)],
    "trapezoid": [("wrong variant: rectangles instead of trapezoids (right ends)", _rectangles(1)),
                  ("wrong variant: rectangles instead of trapezoids (left ends)", _rectangles(0))],
    "histc": [("wrong variant: what lies outside is clamped to the bounds min and max instead of left out", _beyond)],
    "cholesky": [STALE_TRIANGLE], "cholesky_ex": [STALE_TRIANGLE], "inv": [ADJUGATE], "inv_ex": [ADJUGATE],
    "det": [("wrong variant: the product of the diagonal instead of the determinant",
             lambda func, x: x.diagonal(0, -2, -1).prod(-1))],
    "vector_norm": [*[(text, _norm_of(p)) for text, p in NORMS], ROOT], "pdist": [ROOT], "cdist": [],
    "floor_divide": [("wrong rounding: truncated (trunc) instead of floor", _fraction)],
    "one_hot": [("inverted: 1 - the result (zeros and ones are exchanged)", lambda func, *a, **k: 1 - func(*a, **k))],
    "logsumexp": [("wrong variant: the maximum (max) alone, without the sum of exp", lambda func, x, dim, keepdim=False:
                   x.amax(dim, keepdim)),
                  ("wrong variant: powers of 2 instead of e (base 2)", lambda func, x, dim, keepdim=False:
                   x.exp2().sum(dim, keepdim).log())],
    "embedding_bag": [(SEGMENT, _bag_short)], "segment_reduce": [(SEGMENT, _segment_short)],
    "fold": [("dropped contribution: the last tap of every window is missing", _taps(_tap_missing(-1))),
             ("dropped contribution: the first tap of every window is missing", _taps(_tap_missing(0))),
             ("dropped contribution: overlapping windows overwrite each other (the middle tap alone is left)", _taps(_one_tap)),
             ("wrong stride: the axes of the window are exchanged (transposed)",
              _taps(lambda t: t.transpose(-3, -2) if t.shape[-3] == t.shape[-2] else t))],
    "fake_quantize_per_tensor_affine": [("wrong variant: the range quant_min to quant_max of the other signedness "
                                         "(clamped at other bounds)", _opposite_range)],
    "abs": [("wrong variant: the sum of the parts' absolute values instead of the modulus", lambda func, x: (
                torch.view_as_real(x).abs().sum(-1))),
            ("wrong variant: the root is missing (square of the modulus)", lambda func, x: torch.view_as_real(
                x).square().sum(-1))],
}  # fmt: skip


# ---- tensors ---------------------------------------------------------------------------


def complex_edits(name):
    """(text, change) of a complex argument."""
    yield f"the sign of the imaginary part of {name} is flipped (conjugated, conj)", torch.conj_physical
    yield f"dropped contribution: the imaginary part of {name} is ignored", lambda t: torch.complex(t.real, 0 * t.imag)
    yield f"dropped contribution: the real part of {name} is ignored", lambda t: torch.complex(0 * t.real, t.imag)
    yield f"the real and imaginary parts of {name} are exchanged", lambda t: torch.complex(t.imag, t.real)


def product_variants(name):
    """(text, edit) of a product of complex operands, or of what makes complex numbers."""
    if name in ("polar", "complex", "view_as_complex"):
        yield (f"the sign of the imaginary part is flipped after {name.strip('_')} (conjugated, conj)",
               lambda func, args, kwargs: torch.conj_physical(func(*args, **kwargs)))  # fmt: skip
    if name.strip("_") not in ("mul", "mm", "bmm", "matmul", "addmm", "baddbmm", "dot", "mv"):
        return

    def edit(func, args, kwargs, sign):
        a, b = args[-2:]
        if not (a.is_complex() and b.is_complex()):
            raise LookupError("real")

        def times(x, y):
            return func(*args[:-2], x.to(a.dtype), y.to(a.dtype), **kwargs)

        out = func(*args, **kwargs)
        more = times(a.imag, b.imag)
        return out + (1 + sign) * more

    yield ("the sign of the product of imaginary parts is flipped (i * i taken as 1)",
           lambda f, a, k: edit(f, a, k, 1))  # fmt: skip
    yield ("dropped contribution: the product of imaginary parts is missing",
           lambda f, a, k: edit(f, a, k, 0))  # fmt: skip
