# SPDX-License-Identifier: Apache-2.0
"""Python functions by their names, and back. Needs torch's namespaces as they are. A name is
where people find the function: torch.nn.functional.linear, torch.Tensor.add (which `a + b`
calls), torch.linalg.norm, torch.ops.mylib.scale.

A trace may come from anywhere: only functions that compute are found by a name, never what
else can be reached from torch (torch.load, torch.os.system).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable
from typing import Any

import torch

from .homes import operator
from .torch_private import OperatorBase, is_torch_function, overload_name, packet_name

# Where a function that is found in several places is named after: the first of them.
SPACES = (
    "nn.functional",
    "linalg",
    "fft",
    "special",
    "sparse",
    "signal.windows",
    "nn.init",
    "nested",
    "distributed",
    "",
)

# They run a backward pass, in which functions of the program's own are called.
PASSED_THROUGH = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)


@functools.cache
def known() -> dict[Any, str]:
    """Function -> name, of all that torch shows."""
    found: dict[Any, str] = {}
    for space in SPACES:
        module = functools.reduce(lambda m, part: getattr(m, part, None), filter(None, space.split(".")), torch)
        prefix = f"torch.{space}." if space else "torch."
        for name, function in vars(module).items() if module is not None else ():
            if callable(function) and not issubclass(type(function), (type, types.ModuleType)):
                _add(found, function, prefix, name)
    for owner in reversed(torch.Tensor.__mro__[:-1]):
        for name, function in vars(owner).items():
            _add(found, function, "torch.Tensor.", name)
    return found


def _add(found: dict[Any, str], function: Any, prefix: str, name: str) -> None:
    if not isinstance(function, Hashable):  # torch hands out none of those
        return
    # F._threshold is F.threshold: of two names in one place the public one
    if found.setdefault(function, prefix + name) == f"{prefix}_{name}":
        found[function] = prefix + name


def name_of(function: Any) -> Any:
    """The name of a function that torch dispatches; None where its calls are of no interest,
    True where it is to be passed through."""
    if function in PASSED_THROUGH:
        return True
    function = getattr(function, "operator_of", function)  # below several captures
    if function in written:
        return next(n for n, f in registered.items() if f is function), written[function]
    overload = overload_name(function)
    if overload is not None:  # an OpOverload
        return "torch.ops." + str(function._name).removesuffix(".default").replace("::", ".")
    packet = packet_name(function)
    if isinstance(packet, str):
        return "torch.ops." + packet.replace("::", ".")
    if isinstance(function, OperatorBase):
        return None  # a higher-order operator, made of functions
    if getattr(function, "__name__", "") in ("__get__", "__set__", "__delete__"):
        function = function.__self__  # of a property
    name = known().get(function)
    if name is None:
        name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    head, _, last = name.rpartition(".")
    if head == "torch.distributed.distributed_c10d" and hasattr(torch.distributed, last):
        return f"torch.distributed.{last}"
    if last.startswith("_") and hasattr(torch.nn.functional, last[1:]) and head == "torch.nn.functional":
        name = f"{head}.{last[1:]}"  # half of a function that chooses between two
    return name


COMPUTE = (
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._fft",
    "torch._C._special",
    "torch._C._sparse",
    "torch._C._nested",
    "torch.functional",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.signal.windows.windows",
)
METHODS = {
    "__contains__",
    "__floordiv__",
    "__len__",
    "__rdiv__",
    "__rfloordiv__",
    "__rlshift__",
    "__rmatmul__",
    "__rmod__",
    "__rpow__",
    "__rrshift__",
    "__rsub__",
    "index",
    "istft",
    "lu",
    "norm",
    "pow",
    "pow_",
    "split",
    "stft",
    "unique",
    "unique_consecutive",
}  # those of torch.Tensor that are Python
NO_COMPUTATION = {"torch.from_file", "torch.Tensor.backward", "torch.Tensor.share_memory_"}
registered: dict[str, Callable[..., Any]] = {}  # name -> function, of the program's own: `program.operators`
# name of an operator or a function -> what computes it: `executors.registered`
references: dict[str, Callable[..., Any]] = {}
# (op, path) -> "", or why not: writes a reference to a file for another process
handing: list[Callable[[str, str], str]] = []
written: dict[Any, frozenset[str]] = {}  # such a function -> the places that it writes, as "args[1]" and "kwargs.out"


@functools.cache
def by_name() -> dict[str, Callable[..., Any]]:
    """Name -> function, of torch's that compute."""
    return {name: f for f, name in known().items() if name not in NO_COMPUTATION and _computes(f)}


def _computes(function: Any) -> bool:
    kind = type(function)
    if kind in (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType):
        return True
    if kind is types.BuiltinFunctionType and is_torch_function(function, function.__name__):
        return True
    if kind in (types.FunctionType, types.BuiltinFunctionType):
        module = getattr(function, "__module__", "")
        return module in COMPUTE or (module == "torch._tensor" and function.__name__ in METHODS)
    return False


def find(name: str) -> Callable[..., Any] | None:
    """The function that computes what a trace calls `name`; None where there is none."""
    if name in registered:
        return registered[name]
    if name.startswith("torch.ops."):
        space, _, rest = name.removeprefix("torch.ops.").partition(".")
        return operator(f"{space}::{rest}")
    found: Any = by_name().get(name)
    return found.__get__ if type(found) is types.GetSetDescriptorType else found
