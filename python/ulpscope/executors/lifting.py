# SPDX-License-Identifier: Apache-2.0
"""Whether a reference was float64 throughout: what `Widen` cannot lift is what no mode of torch sees, numbers that
went through numpy, raw pointers or a kernel in C++. Told from what rounds on purpose, a grid or a format of 8 bits,
by this: there every operator is seen. And what to do about it. Serves `reference`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..calls.kernels import STANDARD, is_extension
from ..calls.replay import Call, base_name, is_write
from ..calls.torch_private import disable_current_modes
from . import registered
from .precision import Widen, space_of

BLANK = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
FILLS = ("copy_", "fill_", "zero_")


class Seen(Widen):
    """Notes every tensor that an operator takes and no operator made of what was given: constants, and what came
    another way (`foreign`). Whether numbers were written into a narrower tensor: `narrowed`."""

    def __init__(self, dtype, means=None, given=()):
        super().__init__(dtype, means)
        self.made, self.blank, self.foreign, self.narrowed = {}, {}, [], False
        for tensor in given:
            self._keep(self.made, tensor)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = tensors_in((*args, *kwargs.values()))
        written = _written(func, args, kwargs)
        known = any(self._is(self.made, t) for t in given)
        for tensor in given:
            self._look_at(tensor, func, written)
        self.narrowed |= known and any(t.dtype in self.wider for t in written)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        bare = base_name(func._schema.name)[1]
        for tensor in tensors_in([out]):
            if bare in BLANK:
                self._keep(self.blank, tensor)
            elif known and not bare.endswith("_like") and not bare.startswith("new_"):
                self._keep(self.made, tensor)
        for tensor in written if known else ():
            self._keep(self.made, tensor)
        return out

    def _look_at(self, tensor, func, written):
        if self._is(self.made, tensor):
            return
        filled = any(tensor is t for t in written) and self._is(self.blank, tensor)
        if not filled or base_name(func._schema.name)[1] not in FILLS:
            self.foreign.append(tensor.detach().clone())

    def end(self, result: Any) -> None:
        """Looks at what came out of it, too."""
        with disable_current_modes():
            self.foreign += [t.detach().clone() for t in tensors_in([result]) if not self._is(self.made, t)]

    def _keep(self, where, tensor):
        with contextlib.suppress(RuntimeError, NotImplementedError):  # without a storage
            storage = tensor.untyped_storage()
            where[storage._cdata] = StorageWeakRef(storage)  # which keeps the number from being given away

    def _is(self, where, tensor):
        try:
            return tensor.untyped_storage()._cdata in where
        except (RuntimeError, NotImplementedError):
            return True


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_in(value)
        elif isinstance(value, dict):
            found += tensors_in(value.values())
    return found


def _written(func, args, kwargs):
    declared = func._schema.arguments
    named = dict(zip((a.name for a in declared), args)) | kwargs
    return tensors_in([named.get(a.name) for a in declared if is_write(a)])


def same_constants(first: Sequence[torch.Tensor], then: Sequence[torch.Tensor]) -> bool:
    """Whether two runs on different inputs took up the same numbers besides what was given."""
    return len(first) == len(then) and all(
        a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in zip(first, then)
    )


def remedy(call: Call) -> str:
    """What to do where a call's reference is no reference, as a clause."""
    if registered.registered(call.op) is not None:
        return f"let the formula registered for {call.op} keep the dtype that it is given"
    known = call.composite and is_extension(getattr(call, "launched", None))
    if known or space_of(call.op) not in ("", *STANDARD):
        name = call.op.removesuffix(".default")
        return f'write its formula, @ulpscope.reference.register("{name}"), in a file that --import names'
    return "give a reference that keeps the dtype it is given"
