# SPDX-License-Identifier: Apache-2.0
"""Dispatch modes of this package: seen by every operator below them, and by torch.compile only
where it is in use. Serves everything that looks at the operators of a run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from .torch_private import (
    DisableTorchFunction,
    DispatchKeySet,
    ForceDispatchKeyGuard,
    OpOverload,
    TorchDispatchMode,
    disable_dynamo,
    excluded_keys,
    frame_callback,
    included_keys,
    is_any_autocast_enabled,
    key_named,
    n_function_modes,
)

if TYPE_CHECKING:
    from .replay import Bound, Call


class Mode(TorchDispatchMode):
    """A TorchDispatchMode whose first operator does not load torch's compiler, which takes
    seconds, only to tell it not to compile the mode itself."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__torch_dispatch__" in cls.__dict__:
            cls.__torch_dispatch__ = _left_alone(cls.__torch_dispatch__)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # here, where torch would load it


def _left_alone(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """The dispatch, kept from torch's compiler in a thread that runs compiled code: elsewhere it
    is not there to be kept from, and doing so costs more than an operator."""
    disabled = disable_dynamo(dispatch)

    @functools.wraps(dispatch)
    def run(
        mode: Mode, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        seen = disabled if _compiler_looks_on() else dispatch
        with _conjugation_seen(args), _unheard():
            return seen(mode, func, types, args, kwargs)

    return run


def _compiler_looks_on() -> bool:
    return frame_callback() is not None


NOTHING = contextlib.nullcontext()
LAZY = DispatchKeySet(key_named("Conjugate")) | DispatchKeySet(key_named("Negative"))


def any_complex(args: Iterable[Any]) -> bool:
    """Whether an operator is given a complex tensor."""
    return any(isinstance(a, torch.Tensor) and a.is_complex() for a in args)


def _conjugation_seen(args: tuple[Any, ...]) -> contextlib.AbstractContextManager[Any]:
    """Within: what a kernel calls conjugates where a tensor says so. torch leaves that out under
    any mode, so that linalg.pinv of complex numbers, one operator that calls others, is wrong
    there (examples/found/torch_pinv_under_a_mode.py)."""
    if not any_complex(args):
        return NOTHING
    included = included_keys()
    left_out = excluded_keys() - LAZY
    return ForceDispatchKeyGuard(included, left_out)


def _unheard() -> contextlib.AbstractContextManager[Any]:
    """Within: modes of functions hear nothing, as below any function. vmap calls operators with them on the
    stack, and what a mode of ours asks of a tensor is no question of the program's."""
    return DisableTorchFunction() if n_function_modes() else NOTHING


class Asked(TorchFunctionMode):
    """Notes of which tensors a callable asks gradients, by where their storages begin, and whether anything in it
    runs under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.autocast = False
        self.storages: set[int] = set()
        self._leaves: set[int] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.autocast = self.autocast or is_any_autocast_enabled()
        out = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if func is torch.autograd.grad:
            wanted = kwargs.get("inputs", args[1] if len(args) > 1 else ())
            wanted = (wanted,) if isinstance(wanted, torch.Tensor) else wanted
            self.storages |= {_begin(t) for t, g in zip(wanted, out) if g is not None}
        elif name == "requires_grad_" and args:
            self._leaves.add(_begin(args[0]))
        elif name == "backward":
            self.storages |= self._leaves
        return out

    def of(self, call: Call, bound: Bound) -> set[int]:
        """Storages of the call's arguments that are differentiated."""
        self.storages.discard(0)
        return {
            call.views[p].storage
            for p, t in bound.tensors.items()
            if t.layout == torch.strided and _begin(t) in self.storages
        }


def _begin(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # a tensor without a storage
        return 0
