# SPDX-License-Identifier: Apache-2.0
"""The private names of torch that this package needs, each by a name of ours: where torch changes, this file
does. What stands elsewhere yet is in tests/laws/torch_private.txt. Loads nothing that torch does not load."""

from __future__ import annotations

import torch
from torch._ops import OperatorBase, OpOverload, OpOverloadPacket, _OpNamespace
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

__all__ = [
    "AutoDispatchBelowAutograd", "DisableTorchDispatch", "DisableTorchFunction", "DispatchKey",
    "DispatchKeySet", "ForceDispatchKeyGuard", "OpNamespace", "OpOverload", "OpOverloadPacket",
    "OperatorBase", "TensorBase", "TorchDispatchMode", "all_operator_names", "backward_engine", "bare_name",
    "decomposition_table", "disable_current_modes", "disable_dynamo", "excluded_keys", "graph_task",
    "has_kernel", "included_keys", "is_alias_of", "is_any_autocast_enabled", "is_zerotensor",
    "key_for_device", "key_named", "mkldnn_enabled", "n_function_modes", "neg_view", "overload_name", "packet_name",
    "private_backend", "quantized_channels", "quantized_tensor", "resolved", "set_mkldnn_enabled", "tree_flatten",
    "tree_map",
]  # fmt: skip

OpNamespace, disable_current_modes, disable_dynamo = _OpNamespace, _disable_current_modes, torch._disable_dynamo


def _named(name):
    """A function of torch._C; where this torch has none of that name, that is raised when it is called."""
    return getattr(torch._C, name, None) or (lambda *args: getattr(torch._C, name)(*args))


# ---- the dispatcher ----

DispatchKey, DispatchKeySet = torch._C.DispatchKey, torch._C.DispatchKeySet
DisableTorchDispatch, DisableTorchFunction = torch._C._DisableTorchDispatch, torch._C.DisableTorchFunction
AutoDispatchBelowAutograd = torch._C._AutoDispatchBelowAutograd
included_keys, excluded_keys = _named("_dispatch_tls_local_include_set"), _named("_dispatch_tls_local_exclude_set")
has_kernel = _named("_dispatch_has_kernel_for_dispatch_key")
all_operator_names, private_backend = _named("_dispatch_get_all_op_names"), _named("_get_privateuse1_backend_name")
n_function_modes = _named("_len_torch_function_stack")


class _Forced:
    """The keys of this thread, set one by one: for a torch without a guard that does it."""

    def __init__(self, included, excluded):
        self._wanted = included, excluded

    def __enter__(self):
        self._before = included_keys(), excluded_keys()
        self._set(*self._wanted)

    def __exit__(self, *_):
        self._set(*self._before)

    @staticmethod
    def _set(included, excluded):
        _change(torch._C._dispatch_tls_set_dispatch_key_included, included_keys(), included)
        _change(torch._C._dispatch_tls_set_dispatch_key_excluded, excluded_keys(), excluded)


def _change(tell, now, wanted):
    for keys, on in ((now - wanted, False), (wanted - now, True)):
        while (key := keys.highestPriorityTypeId()) != DispatchKey.Undefined:
            tell(key, on)
            keys = keys.remove(key)


ForceDispatchKeyGuard = getattr(torch._C, "_ForceDispatchKeyGuard", _Forced)


def key_named(name: str) -> DispatchKey:
    """A key by its name; not each has a name in Python."""
    return getattr(DispatchKey, name) if hasattr(DispatchKey, name) else torch._C._dispatch_key_parse(name)


def key_for_device(device_type: str) -> str:
    """The name of the dispatch key that a type of device has."""
    if hasattr(torch._C, "_dispatch_key_for_device"):
        return torch._C._dispatch_key_for_device(device_type)
    return "PrivateUse1" if device_type == private_backend() else device_type.upper()

# ---- what a thread is at ----

graph_task = _named("_current_graph_task_id")  # -1: no backward pass
is_any_autocast_enabled = _named("_is_any_autocast_enabled")
mkldnn_enabled, set_mkldnn_enabled = _named("_get_mkldnn_enabled"), _named("_set_mkldnn_enabled")


def backward_engine() -> object:
    """What runs backward passes."""
    return torch.autograd.Variable._execution_engine


# ---- operators and tensors ----

is_alias_of, neg_view = _named("_is_alias_of"), torch._neg_view
quantized_tensor, quantized_channels = torch._make_per_tensor_quantized_tensor, torch._make_per_channel_quantized_tensor


TensorBase = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase


def resolved(packet: OpOverloadPacket, args: tuple, kwargs: dict) -> OpOverload | None:
    """The overload of a packet that takes these arguments; None where none does."""
    if hasattr(torch._C, "_jit_resolve_packet"):
        try:
            name = torch._C._jit_resolve_packet(packet._qualified_op_name, *args, **kwargs)
        except RuntimeError:
            return None
        return getattr(packet, name or "default")
    with _Met() as met, AutoDispatchBelowAutograd():
        try:
            packet(*args, **kwargs)
        except (RuntimeError, ValueError):  # it takes no such arguments, or was met and has not run
            pass
    return met.function if getattr(met.function, "overloadpacket", None) is packet else None


def lookup_backend(name: str) -> object:
    """What torch.compile calls for a backend."""
    import torch._dynamo.backends.registry as registry

    return registry.lookup_backend(name)


class _Met(TorchDispatchMode):
    """Notes the first operator that is called, and does not run it."""

    function = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.function = self.function or func
        raise RuntimeError("met")


def bare_name(function: object) -> str:
    """The name of an overload, without namespace and overload; "" of anything else."""
    return getattr(function, "_opname", "")


def overload_name(function: object) -> str | None:
    """What tells it from its packet's others: "default"; None of anything else."""
    return getattr(function, "_overloadname", None)


def packet_name(function: object) -> str | None:
    """Of an OpOverloadPacket, "aten::add"; None of anything else."""
    return getattr(function, "_qualified_op_name", None)


def is_zerotensor(tensor: torch.Tensor) -> bool:
    """Whether it has no storage at all."""
    return tensor._is_zerotensor()


def decomposition_table() -> dict:
    """Operators and how torch takes them apart; loading it costs a tenth of a second."""
    from torch import _decomp

    return _decomp.decomposition_table
