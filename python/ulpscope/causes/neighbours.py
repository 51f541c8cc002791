# SPDX-License-Identifier: Apache-2.0
"""What an operator or a function may be taken for: near relatives that torch has, and formulas
written out that it has not, among them those that cancel where a careful one does not. Data alone:
a new neighbour is a row here. Read by `inside` (operators inside a call).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from ..executors.formats import OWN_FORMAT, to_format

CASTS = OWN_FORMAT | {torch.float8_e4m3fn: "float8 (e4m3)", torch.float8_e5m2: "float8 (e5m2)"}

# Those of softmax without the underscore.
NEIGHBOURS = {
    "gt": "ge lt",
    "ge": "gt le",
    "lt": "le gt",
    "le": "lt ge",
    "eq": "ne",
    "ne": "eq",
    "floor": "trunc ceil round",
    "ceil": "floor trunc round",
    "trunc": "floor round",
    "round": "floor trunc ceil",
    "argmax": "argmin",
    "argmin": "argmax",
    "amax": "amin",
    "amin": "amax",
    "max": "min",
    "min": "max",
    "maximum": "minimum",
    "minimum": "maximum",
    "add": "sub",
    "sub": "add",
    "mul": "div",
    "div": "mul",
    "log": "log2 log10 log1p",
    "log2": "log log10",
    "log10": "log log2",
    "log1p": "log",
    "exp": "exp2 expm1",
    "exp2": "exp",
    "expm1": "exp",
    "sin": "cos",
    "cos": "sin",
    "sqrt": "rsqrt",
    "rsqrt": "sqrt reciprocal",
    "silu": "gelu mish relu hardswish",
    "gelu": "silu relu mish",
    "mish": "silu gelu",
    "relu": "gelu leaky_relu silu",
    "softplus": "relu",
    "hardswish": "silu",
    "hardsigmoid": "sigmoid",
    "leaky_relu": "relu",
    "elu": "relu celu selu",
    "tanh": "sigmoid hardtanh",
    "sigmoid": "tanh hardsigmoid",
    "softmax": "log_softmax softmin",
    "log_softmax": "softmax",
    "sum": "mean",
    "mean": "sum",
    "cumsum": "logcumsumexp",
    "mse_loss": "l1_loss smooth_l1_loss",
    "l1_loss": "mse_loss",
    "smooth_l1_loss": "mse_loss huber_loss l1_loss",
    "remainder": "fmod",
    "fmod": "remainder",
    "fmax": "maximum",
    "fmin": "minimum",
    "_fused_adam": "_fused_adamw",
    "_fused_adamw": "_fused_adam",
    "erf": "tanh",
    "bitwise_and": "bitwise_or mul",
    "bitwise_or": "bitwise_and add bitwise_xor",
    "bitwise_xor": "bitwise_or",
    "logical_and": "logical_or",
    "logical_or": "logical_and",
    "triu": "tril",
    "tril": "triu",
    "cummax": "cummin",
    "cummin": "cummax",
    "var_mean": "std_mean",
    "cumprod": "cumsum",
    "logcumsumexp": "cumsum",
    "prod": "sum",
    "var": "std",
    "std": "var",
    "special_i0e": "special_i1e special_i0",
    "special_i1e": "special_i0e special_i1",
    "special_i0": "special_i1 special_i0e",
    "special_i1": "special_i0 special_i1e",
    "i0": "special_i0e special_i1",
    "asin": "acos",
    "acos": "asin",
    "sinh": "cosh",
    "cosh": "sinh",
    "asinh": "acosh",
    "acosh": "asinh",
    "erfc": "erf",
    "floor_divide": "div",
    "logaddexp": "maximum logaddexp2",
    "logaddexp2": "logaddexp",
    "lgamma": "digamma",
    "huber_loss": "smooth_l1_loss mse_loss l1_loss",
    "isfinite": "isnan",
    "atan2": "atan",
    "max_pool2d_with_indices": "avg_pool2d",
    "hardshrink": "softshrink",
    "softshrink": "hardshrink",
    "kl_div": "mse_loss",
    "max_pool2d": "avg_pool2d",
    "avg_pool2d": "max_pool2d",
    "max_pool1d": "avg_pool1d",
    "avg_pool1d": "max_pool1d",
    "relu6": "relu",
    "instance_norm": "layer_norm",
    "adaptive_avg_pool2d": "adaptive_max_pool2d",
    "repeat_interleave": "tile",
}


def relatives(name: str) -> list[str]:
    """Names of operators that may stand in the place of one."""
    return NEIGHBOURS.get(name.lstrip("_") if "softmax" in name else name, "").split()


def _fmod_of(whole: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda x, y, *a, **k: x - whole(x / y) * y


def _copied_sign(x: torch.Tensor, y: Any) -> torch.Tensor:
    return x * torch.where(torch.signbit(torch.as_tensor(y, dtype=x.dtype)), -1.0, 1.0).to(x.dtype)


def _sinc(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x == 0, torch.ones_like(x), torch.sin(x) / x)


def _upper(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    if dim is None:
        return x.flatten().sort()[0][x.numel() // 2]
    return tuple(
        t.narrow(dim, x.shape[dim] // 2, 1) if keepdim else t.select(dim, x.shape[dim] // 2)
        for t in x.sort(dim=dim, stable=True)
    )


def _bordered(mode: str, fill: float | None = 0.0) -> Callable[..., torch.Tensor]:
    """A convolution or a pooling with another border."""

    def conv(
        x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, stride: list[int], padding: list[int], *rest: Any
    ) -> torch.Tensor:
        return torch.convolution(_padded(x, padding), w, b, stride, [0] * len(padding), *rest)

    def pool(x: torch.Tensor, size: Any, stride: Any = (), padding: int | list[int] = 0, *rest: Any) -> torch.Tensor:
        return functional.max_pool2d(_padded(x, padding), size, stride or None, 0, *rest)

    def _padded(x: torch.Tensor, padding: int | list[int]) -> torch.Tensor:
        padding = [padding] * 2 if isinstance(padding, int) else padding  # as torch has it: of both axes
        sides = [p for pair in zip(reversed(padding), reversed(padding)) for p in pair]
        return functional.pad(x, sides, mode, *([fill] if mode == "constant" else []))

    return conv if fill is None else pool


def _single(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype == torch.float64 else x


def _in_single(formula: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A formula as it runs in float32, whatever the rest runs in: it is its roundings that count."""
    return lambda x, *args, **kwargs: formula(_single(x)).to(x.dtype)


def _cancels(
    formula: str, instead: str, function: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[str, Callable[..., torch.Tensor]]:
    return f"{formula} instead of {instead}: cancellation near zero", _in_single(function)


def _cast(whole: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A cast to whole numbers that rounds before."""

    def cast(x: torch.Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
        if dtype is None or dtype.is_floating_point or not x.is_floating_point():
            raise LookupError("no such cast")
        return torch.ops.aten._to_copy(whole(x), *args, dtype=dtype, **kwargs)

    return cast


def _cut(x: torch.Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
    """A cast to a narrower float that cuts off what it cannot hold."""
    if dtype not in CASTS or not x.is_floating_point():
        raise LookupError("no such cast")
    return torch.ops.aten._to_copy(to_format(x, CASTS[dtype], torch.trunc).to(x.dtype), *args, dtype=dtype, **kwargs)


UPPER = "of two middle values the upper counts (shifted by one among the sorted)"
BORDERS = {"replicate": "repeats the edge", "reflect": "reflects", "circular": "goes around"}
CORNERS = (", corners aligned", True), (", corners not aligned", False)
FILTERS = {"nearest": [("", None)], "nearest-exact": [("", None)], "bilinear": CORNERS, "bicubic": CORNERS}
FORMULAS: dict[str, list[tuple[str, Callable[..., Any]]]] = {
    "frac": [
        ("x - floor(x) instead of frac", lambda x: x - x.floor()),
        ("x - round(x) instead of frac", lambda x: x - x.round()),
    ],
    "fmod": [("rounds the quotient instead of cutting it in fmod", _fmod_of(torch.round))],
    "remainder": [("rounds the quotient instead of flooring it in remainder", _fmod_of(torch.round))],
    "hypot": [
        ("the root is missing in hypot", lambda x, y: x * x + y * y),
        ("|x| + |y| instead of hypot", lambda x, y: x.abs() + y.abs()),
        ("max(|x|, |y|) instead of hypot", lambda x, y: torch.maximum(x.abs(), y.abs())),
    ],
    "erfinv": [("erf instead of erfinv", torch.erf)],
    "copysign": [("x times the sign of y instead of copysign", _copied_sign)],
    "atan2": [("atan(y / x) instead of atan2, whatever the quadrant", lambda y, x: torch.atan(y / x))],
    "sinc": [("sin(x) / x instead of sinc, without pi", _sinc)],
    "gelu": [("quick gelu, x * sigmoid(1.702 x), instead of gelu", lambda x, *a, **k: x * torch.sigmoid(1.702 * x))],
    "logcumsumexp": [("the logarithm of logcumsumexp is missing", lambda x, dim: x.exp().cumsum(dim))],
    "logsumexp": [("the logarithm of logsumexp is missing", lambda x, *a, **k: torch.logsumexp(x, *a, **k).exp())],
    "lgamma": [("log instead of lgamma", torch.log)],
    "digamma": [("log instead of digamma", torch.log)],
    "xlogy": [
        ("xlog1py instead of xlogy", torch.special.xlog1py),
        ("the factor of xlogy is missing", lambda x, y: torch.as_tensor(y).log() * torch.ones_like(x)),
    ],
    "logit": [("log instead of logit", lambda x, *a, **k: x.log())],
    "relu": [("the square of relu instead of relu", lambda x: x.relu() ** 2)],
    "clamp_min": [("the square of what was clamped", lambda x, low: x.clamp_min(low) ** 2)],
    "clamp": [("the square of what was clamped", lambda *a, **k: torch.clamp(*a, **k) ** 2)],
    "abs": [
        ("the square instead of the absolute value", lambda x: x * x),
        ("the sum of the parts' absolute values instead of the modulus", lambda x: torch.view_as_real(x).abs().sum(-1)),
    ],
    "square": [("the absolute value instead of the square", torch.abs)],
    "celu": [("elu instead of celu", lambda x, alpha=1.0, *a, **k: functional.elu(x, alpha))],
    "elu": [("celu instead of elu", lambda x, alpha=1.0, *a, **k: functional.celu(x, alpha or 1.0))],
    "softplus": [("relu instead of softplus", lambda x, *a, **k: x.relu())],
    "tan": [("tanh instead of tan", torch.tanh)],
    "atan": [("tanh instead of atan", torch.tanh)],
    "erfc": [("1 + erf instead of 1 - erf", lambda x: 1 + torch.erf(x))],
    "silu": [("quick gelu, x sigmoid(1.702 x), instead of silu", lambda x, *a, **k: x * torch.sigmoid(1.702 * x))],
    "hardsigmoid": [
        ("0.2 x + 0.5 instead of x / 6 + 0.5 (another slope)", lambda x, *a, **k: (0.2 * x + 0.5).clamp(0, 1))
    ],
    "log": [("log2 instead of log", lambda x: x.log() / math.log(2))],
    "_to_copy": [
        ("the cast to a narrower float is truncated instead of rounded", _cut),
        ("the cast to whole numbers is rounded to nearest instead of truncated", _cast(torch.round)),
        ("the cast to whole numbers is rounded down instead of truncated (floor)", _cast(torch.floor)),
        ("the cast to whole numbers is rounded up instead of truncated (ceil)", _cast(torch.ceil)),
    ],
    "median": [(UPPER, _upper), ("mean instead of median", lambda x, *a: x.mean(*a))],
    "nanmedian": [(UPPER, _upper), ("mean instead of median (nanmean)", lambda x, *a: x.nanmean(*a))],
    "topk": [
        ("the largest by absolute value (abs)", lambda x, k, dim=-1, *a: x.gather(dim, x.abs().topk(k, dim, *a)[1]))
    ],
    "convolution": [
        (f"wrong padding: the border {does} ({mode}) instead of being zero", _bordered(mode, None))
        for mode, does in BORDERS.items()
    ],
    "max_pool2d_with_indices": [("wrong padding: zeros instead of nothing around a maximum", _bordered("constant"))],
    **{
        f"{kind}_pad{n}d": [
            (f"mode is {mode}", lambda x, sides, m=mode: functional.pad(x, sides, m)) for mode in (*BORDERS, "constant")
        ]
        for kind in ("reflection", "replication")
        for n in (1, 2, 3)
    },
    **{
        f"upsample_{kind}2d": [
            (
                f"mode is {mode}{text}",
                lambda x, size, *a, m=mode, c=corners: functional.interpolate(x, size, mode=m, align_corners=c),
            )
            for mode in FILTERS
            if mode != kind
            for text, corners in FILTERS[mode]
        ]
        for kind in FILTERS
    },
}

# Formulas that leave the range on the way.
OVERFLOWS: dict[str, list[tuple[str, Callable[..., Any]]]] = {
    "hypot": [
        (
            "sqrt(x^2 + y^2) instead of hypot: the squares leave the range",
            lambda x, y: (_single(x) * _single(x) + _single(y) * _single(y)).sqrt().to(x.dtype),
        )
    ],
}

# Roundings that differ from torch's at ties alone.
TIES: dict[str, list[tuple[str, Callable[..., Any]]]] = {
    "round": [
        (
            "ties are rounded away from zero instead of to even",
            lambda x, *a, **k: torch.copysign(torch.floor(x.abs() + 0.5), x),
        ),
        ("ties are rounded up instead of to even", lambda x, *a, **k: torch.floor(x + 0.5)),
        ("ties are rounded down instead of to even", lambda x, *a, **k: torch.ceil(x - 0.5)),
        (
            "ties are rounded towards zero instead of to even",
            lambda x, *a, **k: torch.copysign(torch.ceil(x.abs() - 0.5), x),
        ),
    ],
}

# Formulas that cancel.
NAIVE = {
    "expm1": [_cancels("exp(x) - 1", "expm1", lambda x: x.exp() - 1)],
    "log1p": [_cancels("log(1 + x)", "log1p", lambda x: (1 + x).log())],
    "sinh": [_cancels("(exp(x) - exp(-x)) / 2", "sinh", lambda x: (x.exp() - (-x).exp()) / 2)],
    "tanh": [
        _cancels("1 - 2 / (exp(2 x) + 1)", "tanh", lambda x: 1 - 2 / ((2 * x).exp() + 1)),
        _cancels(
            "(exp(x) - exp(-x)) / (exp(x) + exp(-x))", "tanh", lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())
        ),
    ],
    "erf": [_cancels("1 - erfc(x)", "erf", lambda x: 1 - x.erfc())],
    "asinh": [_cancels("log(x + sqrt(x^2 + 1))", "asinh", lambda x: (x + (x * x + 1).sqrt()).log())],
    "atanh": [_cancels("log((1 + x) / (1 - x)) / 2", "atanh", lambda x: ((1 + x) / (1 - x)).log() / 2)],
}


def formulas(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(text, function) of formulas for an operator or a function of that name."""
    for text, formula in FORMULAS.get(name, ()):
        yield f"wrong variant: {text}", formula
    yield from NAIVE.get(name, ())
