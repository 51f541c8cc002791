# SPDX-License-Identifier: Apache-2.0
"""The private names of torch that this package needs, each by a name of ours: where torch changes, this file
does, and torch_private_inductor.py beside it. Loads nothing that torch does not load: what torch loads late is
imported where it is asked for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OperatorBase, OpOverload, OpOverloadPacket, _OpNamespace
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = [
    "AutoDispatchBelowAutograd",
    "DisableTorchDispatch",
    "DisableTorchFunction",
    "DispatchKey",
    "DispatchKeySet",
    "ForceDispatchKeyGuard",
    "OpNamespace",
    "OpOverload",
    "OpOverloadPacket",
    "OperatorBase",
    "TensorBase",
    "TorchDispatchMode",
    "all_operator_names",
    "backward_engine",
    "bare_name",
    "compiler_name",
    "coordinates",
    "core_decompositions",
    "cuda_driver_version",
    "cxx11_abi",
    "data_loader_iterator",
    "decomposition_table",
    "default_device_mode",
    "default_store",
    "disable_current_modes",
    "disable_dynamo",
    "dispatch_table",
    "excluded_keys",
    "frame_callback",
    "generated_kernels",
    "graph_task",
    "has_kernel",
    "in_this_process_only",
    "included_keys",
    "indexing_by_tensors",
    "inductor_serves",
    "is_alias_of",
    "is_any_autocast_enabled",
    "is_torch_function",
    "is_zerotensor",
    "key_for_device",
    "key_named",
    "known_backends",
    "load_decompositions",
    "lookup_backend",
    "mkldnn_enabled",
    "n_function_modes",
    "neg_view",
    "operator_database",
    "overload_name",
    "packet_name",
    "parsed_schema",
    "pop_function_mode",
    "private_backend",
    "push_function_mode",
    "python_operator",
    "quantized_channels",
    "quantized_tensor",
    "refused_by_compiler",
    "register_backend",
    "register_device_module",
    "resolved",
    "run_at",
    "sequence_number",
    "set_compiler",
    "set_mkldnn_enabled",
    "skip_one_function_mode",
    "take_back",
    "tree_flatten",
    "tree_map",
    "tree_unflatten",
    "unknown_backend",
]

OpNamespace, disable_current_modes, disable_dynamo = _OpNamespace, _disable_current_modes, torch._disable_dynamo


def _named(name: str) -> Callable[..., Any]:
    """A function of torch._C; where this torch has none of that name, that is raised when it is called."""
    return getattr(torch._C, name, None) or (lambda *args: getattr(torch._C, name)(*args))


# ---- the dispatcher ----

DispatchKey, DispatchKeySet = torch._C.DispatchKey, torch._C.DispatchKeySet
DisableTorchDispatch, DisableTorchFunction = torch._C._DisableTorchDispatch, torch._C.DisableTorchFunction
AutoDispatchBelowAutograd = torch._C._AutoDispatchBelowAutograd
included_keys, excluded_keys = _named("_dispatch_tls_local_include_set"), _named("_dispatch_tls_local_exclude_set")
has_kernel = _named("_dispatch_has_kernel_for_dispatch_key")
all_operator_names, private_backend = _named("_dispatch_get_all_op_names"), _named("_get_privateuse1_backend_name")
dispatch_table = _named("_dispatch_dump_table")
n_function_modes, push_function_mode = _named("_len_torch_function_stack"), _named("_push_on_torch_function_stack")
pop_function_mode = _named("_pop_torch_function_stack")
skip_one_function_mode = getattr(torch._C, "_skip_one_hop_torch_function", None)  # None: this torch has it not


class _Forced:
    """The keys of this thread, set one by one: for a torch without a guard that does it."""

    def __init__(self, included: Any, excluded: Any) -> None:
        self._wanted = included, excluded

    def __enter__(self) -> None:
        self._before = included_keys(), excluded_keys()
        self._set(*self._wanted)

    def __exit__(self, *_: object) -> None:
        self._set(*self._before)

    @staticmethod
    def _set(included: Any, excluded: Any) -> None:
        _change(torch._C._dispatch_tls_set_dispatch_key_included, included_keys(), included)
        _change(torch._C._dispatch_tls_set_dispatch_key_excluded, excluded_keys(), excluded)


def _change(tell: Callable[..., Any], now: Any, wanted: Any) -> None:
    for keys, on in ((now - wanted, False), (wanted - now, True)):
        while (key := keys.highestPriorityTypeId()) != DispatchKey.Undefined:
            tell(key, on)
            keys = keys.remove(key)


ForceDispatchKeyGuard = getattr(torch._C, "_ForceDispatchKeyGuard", _Forced)


def key_named(name: str) -> torch._C.DispatchKey:
    """A key by its name; not each has a name in Python."""
    has = hasattr(DispatchKey, name)
    key: torch._C.DispatchKey = getattr(DispatchKey, name) if has else torch._C._dispatch_key_parse(name)
    return key


def run_at(function: OpOverload, key: torch._C.DispatchKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """What an overload gives at one key, whatever the tensors' own keys are."""
    return function._op_dk(key, *args, **kwargs)


def default_device_mode() -> type:
    """The class of the mode behind `torch.device` as a context and `torch.set_default_device`."""
    from torch.utils._device import DeviceContext

    mode: type = DeviceContext
    return mode


def key_for_device(device_type: str) -> str:
    """The name of the dispatch key that a type of device has."""
    if hasattr(torch._C, "_dispatch_key_for_device"):
        return str(torch._C._dispatch_key_for_device(device_type))
    return "PrivateUse1" if device_type == private_backend() else device_type.upper()


# ---- what a thread is at ----

graph_task = _named("_current_graph_task_id")  # -1: no backward pass
is_any_autocast_enabled = _named("_is_any_autocast_enabled")
mkldnn_enabled, set_mkldnn_enabled = _named("_get_mkldnn_enabled"), _named("_set_mkldnn_enabled")


sequence_number = getattr(
    torch._C._autograd, "_get_sequence_nr", None
)  # of the next node; None: this torch does not tell


def _whether_compiler_is_loaded() -> object:
    return sys.modules.get("torch._dynamo")


# What the compiler does with frames of this thread, None without it; a torch that does not tell has it wherever
# the compiler was loaded.
frame_callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", _whether_compiler_is_loaded)


def backward_engine() -> Any:
    """What runs backward passes."""
    return torch.autograd.Variable._execution_engine


# ---- operators and tensors ----

is_alias_of, neg_view = _named("_is_alias_of"), torch._neg_view
quantized_tensor, quantized_channels = torch._make_per_tensor_quantized_tensor, torch._make_per_channel_quantized_tensor

TensorBase = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase


def coordinates(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and values of a sparse COO tensor as they are: what stands there twice stands there twice."""
    return tensor._indices(), tensor._values()


def is_torch_function(function: object, name: str) -> bool:
    """Whether a builtin is torch's function of that name."""
    return getattr(torch._C._VariableFunctions, name, None) == function


def parsed_schema(text: str) -> torch.FunctionSchema:
    """A schema of its text; RuntimeError where it is none."""
    return torch._C.parse_schema(text)


def python_operator(name: str) -> Callable[..., Any] | None:
    """The Python function behind an operator of `torch.library.custom_op` ("space::name"), or None."""
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:  # a torch before such operators
        return None
    return getattr(OPDEFS.get(name), "_init_fn", None)


def resolved(packet: OpOverloadPacket, args: Sequence[Any], kwargs: dict[str, Any]) -> OpOverload | None:
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


class _Met(TorchDispatchMode):
    """Notes the first operator that is called, and does not run it."""

    function = None

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
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
    return bool(tensor._is_zerotensor())


def decomposition_table() -> dict[OpOverload, Callable[..., Any]]:
    """Operators and how torch takes them apart; loading it costs a tenth of a second."""
    from torch import _decomp

    table: dict[OpOverload, Callable[..., Any]] = _decomp.decomposition_table
    return table


def core_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Those that leave only operators of ATen's core set."""
    from torch._decomp import core_aten_decompositions

    table: dict[OpOverload, Callable[..., Any]] = core_aten_decompositions()
    return table


def load_decompositions() -> None:
    """Loads what torch takes operators apart with."""
    import torch._decomp
    import torch._refs  # noqa: F401


def operator_database() -> list[Any]:
    """torch's own samples of each operator. Whatever an import raises where its test helpers cannot be had."""
    from torch.testing._internal.common_methods_invocations import op_db

    samples: list[Any] = op_db
    return samples


# ---- the compiler, which takes seconds to load ----

compiler_name = "torch._dynamo"


def set_compiler(module: Any) -> None:
    """Stands for torch's compiler in this process, None: nothing does, and torch loads it where it is asked for it."""
    if module is None:
        del sys.modules[compiler_name], torch._dynamo
    else:
        torch._dynamo = sys.modules[compiler_name] = module


def lookup_backend(name: str) -> object:
    """What torch.compile calls for a backend; `unknown_backend()` where it knows none of that name."""
    import torch._dynamo.backends.registry as registry

    return registry.lookup_backend(name)


def unknown_backend() -> type[Exception]:
    """What is raised for a backend that nobody registered."""
    from torch._dynamo.exc import InvalidBackend

    kind: type[Exception] = InvalidBackend
    return kind


def refused_by_compiler() -> type[Exception]:
    """The class of what torch's compiler raises for what it does not compile."""
    from torch._dynamo.exc import TorchDynamoException

    kind: type[Exception] = TorchDynamoException
    return kind


def known_backends(exclude: tuple[str, ...] = ("debug", "experimental")) -> list[str]:
    """Names of torch.compile's backends but those of these kinds."""
    from torch._dynamo import list_backends

    names: list[str] = list_backends(exclude)
    return names


def register_backend(function: Callable[..., Any], name: str) -> None:
    """Makes a backend known to torch.compile."""
    from torch._dynamo import register_backend as register

    register(function, name=name)


def with_backward(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A backend of torch.compile that has this one compile the forward and the backward, each as a graph of its own."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    backend: Callable[..., Any] = aot_autograd(
        fw_compiler=lambda graph, inputs: make_boxed_func(compiler(graph, inputs))
    )
    return backend


def inductor_serves(device: str) -> bool:
    """Whether inductor generates code for devices of that type."""
    from torch._inductor.codegen import common

    common.init_backend_registration()
    return common.get_scheduling_for_device(device) is not None


def generated_kernels() -> int:
    """How many kernels inductor has generated in this process."""
    from torch._inductor import metrics

    return int(metrics.generated_kernel_count)


def in_this_process_only() -> None:
    """inductor starts no processes of its own."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1


def indexing_by_tensors() -> contextlib.AbstractContextManager[Any]:
    """Inside of it `x[i]` with a tensor without dimensions is an index, as flex attention's functions write it."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    mode: contextlib.AbstractContextManager[Any] = TransformGetItemToIndex()
    return mode


# ---- builds, devices, data, ranks ----


def cxx11_abi() -> bool:
    """Whether this torch's C++ has the newer strings."""
    return bool(torch._C._GLIBCXX_USE_CXX11_ABI)


cuda_driver_version = getattr(torch._C, "_cuda_getDriverVersion", None)  # None where torch has no CUDA


def register_device_module(device: str, module: object) -> None:
    """Makes a module `torch.DEVICE`."""
    torch._register_device_module(device, module)


def data_loader_iterator() -> type:
    """What iterating over a DataLoader gives, of every kind."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    kind: type = _BaseDataLoaderIter
    return kind


def default_store() -> object:
    """The store by which the ranks of the default process group met."""
    return torch.distributed.distributed_c10d._get_default_store()


def take_back(library: torch.library.Library) -> None:
    """Unregisters what a library registered."""
    library._destroy()
