# SPDX-License-Identifier: Apache-2.0
"""A callable of several operators as another honest device might round it: every result that is in 16 bits
is rounded to them, to nearest or to either side by chance. Serves `reference`; `module_call` does the same with the
calls of a captured forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..calls.exact import never_rounds
from ..calls.foreign import foreign
from ..calls.mode import Mode
from ..calls.nested import mapped
from ..calls.replay import is_write
from ..calls.torch_private import mkldnn_enabled, set_mkldnn_enabled
from .formats import FORMATS, NATIVE, rounded_once
from .lifting import tensors_in
from .precision import STANDARD, sound, space_of

LOW = {dtype: name for name, dtype in NATIVE.items()}
DRAWS = ("aten::native_dropout", "aten::bernoulli", "aten::bernoulli_")
OFTEN = 64  # operators, between two looks for numbers that nobody holds any more


def rounded_by_chance(x: torch.Tensor, name: str, draw: torch.Generator | None) -> torch.Tensor:
    """Numbers rounded to 16 bits: to the nearest, or with a generator to one of the two next to it, where it is
    none itself."""
    nearest = rounded_once(x, name)
    if draw is None:
        return nearest
    side = torch.rand(x.shape, generator=draw, dtype=x.dtype) - 0.5
    return torch.where(nearest == x, x, rounded_once(x * (1 + side * 2.0 ** (1 - FORMATS[name][0])), name))


class Chain(Mode):
    """Runs operators in the dtypes that they are given, so that autocast and autograd do what they do there, and
    rounds once what the same operator gives in float32. Keeps what was not rounded yet beside: an output's own
    rounding the verdict knows."""

    def __init__(self, seed=None):
        super().__init__()
        self.draw = None if seed is None else torch.Generator().manual_seed(seed)
        self.before = {}  # number of a storage -> (reference to it, its numbers before they were rounded)
        self.lost = set()  # numbers of storages that lost something by a rounding
        self.any = False  # such a number was an operand: something is rounded between operators
        self._n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.name in DRAWS:  # once, by whoever gives the draws
            return self._forgetting(func, args, kwargs)
        shows = any(r.alias_info is not None and not is_write(r) for r in func._schema.returns)
        used = not self.any and any(_number(t) in self.lost for t in tensors_in([args, kwargs]))
        if shows or not self._gives_low(func, args, kwargs):
            self.any = self.any or (used and not shows and not never_rounds(func.name()))
            out = self._forgetting(func, args, kwargs)
            self._widened(out, used and not shows)
            return out
        wide, written = self._in_float32(func, args, kwargs)
        kept = self._of_full(func, args, kwargs, wide) if used and not written and not self.any else wide
        out = self._forgetting(func, args, kwargs)
        if wide is not None:
            results = zip(tensors_in([out]), tensors_in([wide]), tensors_in([kept]))
            for tensor, full, before in [*results, *self._pairs(func, args, kwargs, written)]:
                self._round(tensor, full, before, used)
        self._widened(out, used)
        return out

    def _widened(self, out, used):
        """Notes that a number which lost something goes on as float32: what computes with it is behind a rounding."""
        for tensor in tensors_in([out]) if used else ():
            number = _number(tensor)
            if tensor.dtype is torch.float32 and number is not None:
                self.lost.add(number)
                self.before.setdefault(number, (StorageWeakRef(tensor.untyped_storage()), None))

    def in_full(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the run with the numbers that it had before it was rounded last."""
        known = self.before.get(_number(tensor)) if tensor.dtype in LOW else None
        return tensor.float() if known is None else _seen_in(known[1], tensor)

    def _gives_low(self, func, args, kwargs):
        """Whether it may give numbers in 16 bits: from such numbers, or because it is asked to."""
        given = (*tensors_in([args, kwargs]), *kwargs.values())
        return any(
            (v.dtype if isinstance(v, torch.Tensor) else v) in LOW
            for v in given
            if isinstance(v, (torch.Tensor, torch.dtype))
        )

    def _in_float32(self, func, args, kwargs):
        """What an operator gives for the same numbers in float32, and (name -> tensor) of what it writes; None
        where it does not run there."""
        written = {}
        names = [a.name for a in func._schema.arguments]
        writes = {a.name for a in func._schema.arguments if is_write(a)}

        def wide(name, value):
            def one(v):
                if isinstance(v, torch.dtype):
                    return torch.float32 if v in LOW else v
                if not isinstance(v, torch.Tensor):
                    return v
                copy = v.float() if v.dtype in LOW else v.clone() if name in writes else v
                if name in writes:
                    written.setdefault(name, []).append(copy)
                return copy

            return mapped(value, one)

        if space_of(func._schema.name) not in STANDARD:
            return None, {}  # of an extension's operator nobody knows what it does there
        try:
            given = [wide(n, a) for n, a in zip(names, args)]
            return sound(func)(*given, **{k: wide(k, v) for k, v in kwargs.items()}), written
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as problem:
            foreign(problem)
            return None, {}

    def _of_full(self, func, args, kwargs, wide):
        """What an operator gives for the numbers that its operands had before they were rounded. Where that is another
        result (behind a step, as a ceiling or a comparison, or a difference that is exact and small) the rounding is
        one between operators."""

        def full(v):
            return self.in_full(v) if isinstance(v, torch.Tensor) and v.dtype in LOW else v

        low = [t.dtype for t in tensors_in([args, kwargs]) if t.dtype in LOW]
        before, _ = self._in_float32(func, mapped(list(args), full), mapped(kwargs, full))
        if before is None or wide is None or not low:
            return wide
        eps = max(torch.finfo(d).eps for d in low)
        pairs = list(zip(tensors_in([before]), tensors_in([wide])))
        self.any = any(_differs(*pair, eps) for pair in pairs)
        return wide if self.any or any(a.shape != b.shape for a, b in pairs) else before

    def _pairs(self, func, args, kwargs, written):
        given = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
        for name, copies in written.items():
            yield from zip(tensors_in([given[name]]), copies, copies)

    def _forgetting(self, func, args, kwargs):
        """What it gives; of numbers that it writes is not known what they were before they were rounded."""
        given = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
        for a in func._schema.arguments:
            if is_write(a) and a.name in given:
                for tensor in tensors_in([given[a.name]]):
                    self._forget(tensor)
        return func(*args, **kwargs)

    def _forget(self, tensor):
        known = self.before.get(_number(tensor))
        if known is not None and tensor.dtype in LOW:
            _seen_in(known[1], tensor).copy_(tensor)

    def _round(self, tensor, full, before, used):
        """Rounds what an operator gives; what takes a rounded number on as it is (times 2, copied) adds nothing to
        its rounding, which is then the last one: it keeps what it was `before` that."""
        if tensor.dtype not in LOW or not full.is_floating_point() or full.shape != tensor.shape or not tensor.numel():
            return
        number, storage = _number(tensor), tensor.untyped_storage()
        if number is None:
            return
        low = rounded_by_chance(full.detach().float(), LOW[tensor.dtype], self.draw).to(tensor.dtype)
        loses = not torch.equal(low.float(), full.float())
        self.any = self.any or (used and loses)
        if used or loses:
            self.lost.add(number)
        tensor.detach().copy_(low)
        known = self.before.get(number)
        if known is None or known[0].expired():
            flat = torch.empty(0, dtype=tensor.dtype).set_(storage).float()
            known = self.before[number] = StorageWeakRef(storage), flat
        _seen_in(known[1], tensor).copy_(before)
        self._n += 1
        if self._n % OFTEN == 0:
            self.before = {n: k for n, k in self.before.items() if not k[0].expired()}
            self.lost &= self.before.keys()


def _differs(before, after, eps):
    """Whether a result is another one by more than the rounding of what it came from."""
    if before.shape != after.shape or not before.is_floating_point():
        return not torch.equal(before, after)
    return bool(((before - after).abs() > eps * after.abs()).any())


def _number(tensor):
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # without a storage
        return None


def _seen_in(flat, tensor):
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def chained(function: Callable[..., Any], mode: Chain) -> Callable[..., Any]:
    """The function run under a mode."""

    def run(*args, **kwargs):
        enabled = mkldnn_enabled()
        set_mkldnn_enabled(False)  # a whole LSTM is one operator of it
        try:
            with mode:
                return function(*args, **kwargs)
        finally:
            set_mkldnn_enabled(enabled)

    return run
