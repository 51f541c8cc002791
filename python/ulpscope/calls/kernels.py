# SPDX-License-Identifier: Apache-2.0
"""What an extension's operator runs on the CPU, opened up: a mode of torch sees an operator as one step, and
what its kernel casts to float32 lies below. Serves `callable` and `executors.precision`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .torch_private import (
    DisableTorchFunction,
    DispatchKey,
    DispatchKeySet,
    OpOverload,
    OpOverloadPacket,
    run_at,
)

STANDARD = ("aten", "prims")
KEY = DispatchKey
OWN = (KEY.CPU, KEY.CompositeExplicitAutograd)


def overload_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The overload that a callable stands for: of torch.library.custom_op and of a name that has one only;
    else the callable itself."""
    function = getattr(function, "_opoverload", function)
    if isinstance(function, OpOverloadPacket) and len(function.overloads()) == 1:
        one: Callable[..., Any] = getattr(function, function.overloads()[0])
        return one
    return function


def is_extension(function: Any) -> bool:
    """Whether a callable is one operator that is not torch's own."""
    return isinstance(function, OpOverload) and function.namespace not in STANDARD


def kernel_of(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The kernel of an extension's operator on the CPU, as a function into which every mode sees; None where it
    has none of its own. Modes of functions stay as they are within: torch hands them an operator that is called
    by its key as if it had been called as a whole."""
    overload: Any = function
    if not is_extension(function) or not any(map(overload.has_kernel_for_dispatch_key, OWN)):
        return None
    opened = getattr(torch.library, "get_kernel", None)
    if opened is None:  # a torch before it
        return lambda *args, **kwargs: _by_key(function, args, kwargs)
    kernel = opened(overload._name.removesuffix(".default"), "CPU")
    keys = DispatchKeySet(KEY.CPU)
    return lambda *args, **kwargs: kernel.call_boxed(keys, *args, **kwargs)


def _by_key(function: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    key = next(k for k in OWN if function.has_kernel_for_dispatch_key(k))
    with DisableTorchFunction():
        return run_at(function, key, args, kwargs)
