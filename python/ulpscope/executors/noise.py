# SPDX-License-Identifier: Apache-2.0
"""A precision as another honest device might round it: a call taken apart into its
elementary steps, and every inexact result of one moved by an ulp, of an elementary function
by two, up or down within the function's range, or flushed to zero. What a formula loses by that, no device can be
blamed for. Serves `reference`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .. import _core
from ..calls import large
from ..calls.foreign import foreign
from ..calls.mode import Mode
from ..calls.torch_private import OpOverload, decomposition_table
from . import attention_steps
from .algorithms import FIRST, LAST, accumulated, by_matrix, n_points
from .formats import rounded_once
from .orders import PRODUCTS, adds, is_whole_step
from .precision import sound
from .solved import nearby

LOW = (torch.float32, torch.float16, torch.bfloat16)
CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward.default

# Functions that devices approximate; what else rounds is off by half an ulp at most.
APPROXIMATED = {
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erf_inv",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "i0",
    "pow",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "tan",
    "tanh",
}

# What bounded functions never leave, however a device approximates them.
PI = 3.14159274101257324  # as float32 has it
RANGES = {
    "acos": (0, PI),
    "asin": (-PI / 2, PI / 2),
    "atan": (-PI / 2, PI / 2),
    "atan2": (-PI, PI),
    "cos": (-1, 1),
    "erf": (-1, 1),
    "erfc": (0, 2),
    "sigmoid": (0, 1),
    "sin": (-1, 1),
    "tanh": (-1, 1),
    "_softmax": (0, 1),
    "softmax": (0, 1),
    "_log_softmax": (-math.inf, 0),
    "log_sigmoid_forward": (-math.inf, 0),
    "cosh": (1, math.inf),
    "special_erf": (-1, 1),
    "special_expit": (0, 1),
    "special_i0e": (0, 1),
    "special_i1e": (-1, 1),
    "special_ndtr": (0, 1),
    "special_log_ndtr": (-math.inf, 0),
    "i0": (1, math.inf),
    "special_softmax": (0, 1),
}

# An exact result so near to the number that stands for it, in ulps, leaves nothing to round
# otherwise: 1 + 1e-13 is 1 on every device.
SETTLED = 2.0**-8
EVERYWHERE = (-math.inf, math.inf)
FLAT = 1 - 2.0**-3  # a function that is settled there as well has come to its limit

AT_ONCE = 1 << 20  # terms whose signs are drawn together

# The decompositions of sums take memory squared in the size; a device approximates sigmoid
# as a whole.
LEFT_WHOLE = {"cumsum", "cumprod", "cumsum_", "cumprod_", "sigmoid"}


ATTENTION = {
    "_scaled_dot_product_flash_attention_for_cpu": attention_steps.flash,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_steps.flash_backward,
}


def taken_apart(func: Any) -> Callable[..., Any] | None:
    """The formula of an operator in smaller steps, or None for one that is a step itself."""
    name = func._schema.name.split("::")[1]
    if name in LEFT_WHOLE or adds(name) or hasattr(torch.ops.prims, name):
        return None
    if any(a.alias_info is not None for a in func._schema.arguments):
        return None
    return ATTENTION.get(name) or decomposition_table().get(func)


def is_one_rounding(func: Any) -> bool:
    """Whether an operator computes each element by itself, and rounds it once."""
    if not isinstance(func, OpOverload):
        return False
    name = func._schema.name.split("::")[1]
    moves = name in ("_to_copy", "copy_", "copy", "convert_element_type")
    return moves or (torch.Tag.pointwise in func.tags and name not in APPROXIMATED)


def is_transform(func: Any) -> bool:
    """Whether an operator is a Fourier transform. Its honest error is one of the whole: what
    cancels to zero in one algorithm does not in another."""
    return func._schema.name.startswith("aten::_fft_")


def is_softmax_gradient(func: Any) -> bool:
    """Whether an operator is the gradient of a softmax: p (g - sum p g). Fused attention has that
    sum from its output instead, do . o, so what cancels here to nothing does not there."""
    return func._schema.name == "aten::_softmax_backward_data"


class InSteps(Mode):
    """Runs operators step by step, unless they are to stay whole, and hands each step to
    `_step`."""

    dtypes = LOW  # of what is handed to it

    def __init__(self, apart=True):
        super().__init__()
        self.apart, self.multiplied = apart, False
        self.ranged = False  # a step left the range of float32, which is no matter of rounding

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = self._run(func, args, kwargs)
        self.multiplied |= func._schema.name in ("aten::bmm", "aten::mm", "aten::baddbmm")
        fused = self.multiplied and is_softmax_gradient(func)  # alone it has no output to take it from
        return self._softmax_gradient(*args[:3], out) if fused else out

    def _run(self, func, args, kwargs):
        if func is CONVOLUTION_BACKWARD and len(args) == 11 and args[10][2]:
            return self._bias_apart(func, args)
        served, out = self._by_formula(func, args, kwargs)
        if served:
            return out
        out = sound(func)(*args, **kwargs)
        if is_transform(func):
            return self._transform(func, args, out)
        if any(r.alias_info is not None for r in func._schema.returns):
            return out
        if isinstance(out, tuple) and adds(func._schema.name.split("::")[1]):
            return self._step(func, args, kwargs, out[0]), *out[1:]  # the sum comes first
        if not isinstance(out, torch.Tensor) or out.dtype not in self.dtypes:
            return out
        return self._step(func, args, kwargs, out)

    def _by_formula(self, func, args, kwargs):
        """(whether an operator was taken apart, what its steps give)."""
        formula = taken_apart(func) if self.apart else None
        if formula is not None:
            try:
                with self:
                    return True, formula(*args, **kwargs)
            except Exception as problem:  # a formula that does not serve here: the operator does
                foreign(problem)
        return False, None

    def _bias_apart(self, func, args):
        """A gradient of a convolution, whose bias gets a sum of its own, in any order."""
        *given, mask = args
        others = self._run(func, (*given, [*mask[:2], False]), {})[:2] if any(mask[:2]) else (None, None)
        dims = [0, *range(2, given[0].dim())]
        with self:
            return *others, torch.ops.aten.sum.dim_IntList(given[0], dims)

    def _step(self, func, args, kwargs, out):
        return out

    def _transform(self, func, args, out):
        return out

    def _softmax_gradient(self, cotangent, p, dim, out):
        return out


class RoundedSteps(InSteps):
    """Rounds what every step gives to a narrower format."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def _step(self, func, args, kwargs, out):
        return rounded_once(out, self.name)


class Flush(InSteps):
    """Every step's subnormal results become zero; `any` tells whether there was one."""

    def __init__(self):
        super().__init__()
        self.any = False

    def _step(self, func, args, kwargs, out):
        small = (out.abs() < torch.finfo(torch.float32).tiny) & (out != 0)
        if not bool(small.any()):
            return out
        self.any = True
        return torch.where(small, out * 0, out)


class Overflowing(InSteps):
    """Notes whether a step makes infinities of numbers."""

    def __init__(self):
        super().__init__()
        self.overflowed = False

    def _step(self, func, args, kwargs, out):
        every = (*args, *kwargs.values())
        if any(isinstance(n, float) and math.isinf(n) for n in every):  # a mask writes what it was given
            return out
        given = [t for t in every if isinstance(t, torch.Tensor)]
        if bool(out.isinf().any()) and all(bool(t.isfinite().all()) for t in given):
            self.overflowed = True
        return out


class Accumulated(InSteps):
    """Every sum in one order of `algorithms.accumulated`; `any` tells whether there was one."""

    def __init__(self, order, apart=True):
        super().__init__(apart)
        self.order, self.any = order, False

    def _step(self, func, args, kwargs, out):
        other = None
        self.ranged |= _leaves_range(lambda: _exactly(func, args, kwargs), out)
        if out.dtype == torch.float32 and out.numel():
            other = accumulated(func, args, kwargs, self.order)
        if other is None:
            return out
        self.any = True
        return other.reshape(out.shape)

    def _transform(self, func, args, out):
        known = self.order in (FIRST, LAST) and out.dtype in (torch.float32, torch.complex64)
        other = by_matrix(func, args, out, self.order == LAST) if known else None
        self.any |= other is not None
        return out if other is None else other


class Noise(InSteps):
    """Moves what its steps round; exact results (moves, clamps, masks) stay, and functions at
    their limits unless those are `rough`. `settled` tells whether any stayed for that."""

    def __init__(self, seed, apart=True, rough=False):
        super().__init__(apart)
        self.rough, self.settled = rough, False
        self.generator = torch.Generator().manual_seed(seed)
        self.across = bool(seed % 2)

    def _run(self, func, args, kwargs):
        return super()._run(func, *nearby(func, args, kwargs, self.generator, self.across))

    def _step(self, func, args, kwargs, out):
        steps = _signs(out.shape, self.generator)
        name = func._schema.name.split("::")[1]
        if (name in APPROXIMATED and not _is_square(name, args)) or name.startswith("special_"):
            # One ulp or two: where two functions cancel, equal errors would tell nothing. And
            # an approximation does not end at 1, but where the function has long come to it.
            far = torch.randint(1, 3, out.shape, dtype=torch.int8, generator=self.generator)
            if self.rough:
                self.ranged |= _leaves_range(lambda: _exactly(func, args, kwargs), out)
                return _moved(name, out, far.mul_(steps))
            exact = _exactly(func, args, kwargs)
            self.ranged |= _leaves_range(exact, out)
            flat = _exactly(func, args, kwargs, FLAT)
            moved, settled = _moved_unless_settled(name, out, far.mul_(steps), exact, flat)
            self.settled |= settled
            return moved
        exact = _exactly(func, args, kwargs)
        if exact is None or exact.shape != out.shape:  # no float64 kernel: it stays as it is
            return out
        self.ranged |= _leaves_range(exact, out)
        moved = _moved_unless_exact(name, out, steps, exact)
        return self._reordered(func, args, kwargs, exact, moved) if adds(name) else moved

    def _reordered(self, func, args, kwargs, exact, out):
        """A sum moved by what another order of adding may lose: half an ulp of each term, where
        any order rounds. That a CPU's own order was exact is luck."""
        same_inside = kwargs.get("dtype") is None  # then float64 throughout has been computed
        if not (same_inside and not torch.equal(exact, out.double())) and is_whole_step(func, args, kwargs, out):
            return out
        other = _exactly(func, self._with_terms_moved(func, args), kwargs)
        if other is None or other.shape != out.shape:
            return out
        return torch.where(exact.isfinite(), out + (other - exact), out).to(out.dtype)

    def _with_terms_moved(self, func, args):
        """The arguments with every term moved: of a product the first factor."""
        whole, out = func._schema.name.split("::")[1] not in PRODUCTS, list(args)
        at = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
        for i in at if whole else at[:1]:
            out[i] = self._terms_moved(args[i])
        return out

    def _terms_moved(self, x):
        if x.dtype not in LOW:
            return x
        if x.dtype is torch.float32 and x.is_contiguous():
            moved = large.empty(x.shape, torch.float64)
            for some, to in zip(x.view(-1).split(AT_ONCE), moved.view(-1).split(AT_ONCE)):
                up = torch.randint(0, 2, some.shape, dtype=torch.int8, generator=self.generator)
                _core.terms_moved(some, up.view(torch.uint8), 0.5 * torch.finfo(x.dtype).eps, to)
            return moved
        signs = _signs(x.shape, self.generator)
        factor = (signs * (0.5 * torch.finfo(x.dtype).eps)).add_(1)
        return x.double().mul_(factor)

    def _transform(self, func, args, out):
        """Moves every number by an ulp of the transform's mean size, as all fast ones err, or by
        twice what its matrix loses in one of its roundings, which the limits take many of."""
        dims, parts = args[1], torch.view_as_real(out) if out.is_complex() else out.unsqueeze(-1)
        if parts.dtype not in LOW or not dims:
            return out
        size = _mean_size(out, dims) * torch.finfo(parts.dtype).eps
        other = by_matrix(func, args, out) if parts.dtype == torch.float32 else None
        if other is not None:
            lost = _mean_size(other - out, dims).nan_to_num() / n_points(args[0], dims) ** 0.5
            size = torch.maximum(size, 2 * lost)
        signs = _signs(parts.shape, self.generator)
        moved = (parts + signs * size.unsqueeze(-1)).contiguous()
        return torch.view_as_complex(moved) if out.is_complex() else moved.squeeze(-1)

    def _softmax_gradient(self, cotangent, p, dim, out):
        """Moves the sum by an ulp of the row's largest cotangent."""
        if out.dtype not in LOW:
            return out
        size = cotangent.abs().amax(dim, keepdim=True)
        signs = _signs(size.shape, self.generator)
        return (out + p * signs * size * torch.finfo(out.dtype).eps).to(out.dtype)


class NoisyOrder(Noise):
    """Noise, with every sum in one accumulator; `any` tells whether there was one."""

    def __init__(self, seed, order, apart=True):
        super().__init__(seed, apart)
        self.order, self.any = order, False

    def _step(self, func, args, kwargs, out):
        other = accumulated(func, args, kwargs, self.order) if out.dtype == torch.float32 and out.numel() else None
        if other is None:
            return super()._step(func, args, kwargs, out)
        self.any = True
        steps = _signs(out.shape, self.generator)
        return _times(other.reshape(out.shape), steps)


def _is_square(name, args):
    """Whether a power is a product of two, which every kernel makes of it."""
    return name == "pow" and len(args) == 2 and not isinstance(args[1], torch.Tensor) and args[1] == 2


def _mean_size(x, dims):
    """Root mean square over some dimensions, which stay."""
    return x.abs().square().mean(dims, keepdim=True).sqrt()


def _signs(shape, generator):
    """1 or -1 for each element, by chance, in a byte: what large tensors take is memory before it is time."""
    return torch.randint(0, 2, shape, dtype=torch.int8, generator=generator).mul_(2).sub_(1)


def _moved(name, out, ulps):
    """Results moved by so many ulps, the other way where that would leave a function's range."""
    moved = _times(out, ulps)
    if name not in RANGES:
        return moved
    low, high = RANGES[name]
    inward = _times(out, -ulps).clamp(low, high)
    return torch.where((moved < low) | (moved > high), inward, moved)


def _times(out, ulps):
    factor = (ulps * torch.finfo(out.dtype).eps).add_(1)
    return factor.mul_(out) if out.dtype == factor.dtype else (out * factor).to(out.dtype)


def _exactly(func, args, kwargs, scale=1.0):
    """A step in float64, on inputs of another scale; None where it does not exist there."""
    try:
        out = func(*[_wide(a, scale) for a in args], **{k: _wide(v, scale) for k, v in kwargs.items()})
        return out[0] if isinstance(out, tuple) else out
    except Exception as problem:  # whatever an operator raises
        foreign(problem)
        return None


def _moved_unless_exact(name, out, ulps, exact):
    """Results moved by so many ulps, but for those that are exact, or as good as exact."""
    if _in_one_pass(out, exact):
        moved = large.on_large_pages(torch.empty_like(out))
        _core.step_moved(out, exact, None, ulps, *RANGES.get(name, EVERYWHERE), moved)
        return moved
    return torch.where(_is_near(exact, out), out, _moved(name, out, ulps))


def _moved_unless_settled(name, out, ulps, exact, flat):
    """Results moved by so many ulps, but for those at which a function has come to a limit; whether one that is
    not zero has."""
    if _in_one_pass(out, exact, flat):
        moved = large.on_large_pages(torch.empty_like(out))
        return moved, _core.step_moved(out, exact, flat, ulps, *RANGES.get(name, EVERYWHERE), moved)
    settled = _is_settled(exact, flat, out)
    return torch.where(settled, out, _moved(name, out, ulps)), bool((settled & (out != 0)).any())


def _in_one_pass(out, *wide):
    """Whether C moves them, as the operators below do: float32 and float64 as they lie in memory."""
    return (
        out.dtype is torch.float32
        and out.is_contiguous()
        and all(t is not None and t.dtype is torch.float64 and t.shape == out.shape and t.is_contiguous() for t in wide)
    )


def _leaves_range(exact, out):
    """Whether float32 has no normal number for a step's result anywhere; `exact`: that in float64, or what gives
    it."""
    if out.dtype != torch.float32 or not _core.beyond_float32(out, True):
        return False
    exact = exact() if callable(exact) else exact
    if exact is None or not exact.is_floating_point():
        return False
    return _core.beyond_float32(exact.double(), False)


def _is_near(exact, out):
    """Where a step's result is exact, or as good as exact."""
    exact, held = exact.double(), out.double()
    equal, apart = exact == held, (exact - held).abs_()
    return equal.logical_or_(apart <= held.abs().mul_(SETTLED * torch.finfo(out.dtype).eps))


def _is_settled(here, flat, out):
    """Where a function has come to a limit that is a number of the dtype (tanh to 1): inputs an
    eighth smaller give it as well. And where it is exactly 1, as exp(0) and 1 squared are."""
    if here is None or flat is None or not here.shape == flat.shape == out.shape:
        return torch.zeros_like(out, dtype=torch.bool)
    limit = _is_near(here, out) & _is_near(flat, out)
    return limit | ((here.abs() == 1) & (out == here))


def _wide(value, scale=1.0):
    if isinstance(value, torch.Tensor):
        if value.dtype not in LOW:
            return value
        wide = large.cast(value, torch.float64)
        return wide if scale == 1 else wide * scale
    if isinstance(value, (list, tuple)):
        return type(value)(_wide(item, scale) for item in value)
    return torch.float64 if value in LOW else value
