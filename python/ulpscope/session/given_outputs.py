# SPDX-License-Identifier: Apache-2.0
"""What a device gave for a call, as its caller hands it over: outputs by order or path, what was written, copies on
another device. Serves `api`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..calls.callable import as_numbers, same_bytes, storage_bytes
from ..calls.nested import TensorAt, mapped
from ..calls.replay import Bound
from ..calls.call_results import plain, results_of
from ..executors.device import Answer, trespass

if TYPE_CHECKING:
    from ..calls.callable import Composite
    from ..calls.replay import Call, View


def given_answer(call: Composite, outputs: Any, mutated: Any) -> Answer:
    """The device's outputs and written arguments under the paths of the call."""
    new, again = results_of(call, outputs)
    given = {p: plain(t).clone() for p, t in as_numbers(call, new).items()}
    wrong = ""
    if mutated is None:
        call.mutated = {}
    before = {}
    if mutated is not None:
        left = _left(call, mutated)
        call.mutated = {p: v for p, v in call.mutated.items() if p in left}
        wrong = _trespass(call, left) or _elsewhere(call, again, left)
    if call.native is not None:
        gone = call.views.keys() - call.mutated.keys()
        call.native = {p: t for p, t in call.native.items() if p not in gone}
        given = by_order(given, [p for p in call.native if p not in call.views])
    if mutated is not None:
        for path in [p for p in call.written() if p in left]:
            given[path] = plain(left[path]).clone()
            view = call.views[path]
            before[path] = plain(_as_viewed(call.storages[view.storage], view)).clone()
    return Answer(given, wrong, before)


def _elsewhere(call: Call, again: dict[str, torch.Tensor], left: dict[str, torch.Tensor]) -> str:
    """Of results that are written arguments: one that is not what any of these was left as."""
    kept = [plain(left[p]) for p in call.written() if p in left]
    for path, result in again.items():
        if not any(same_bytes(t, plain(result)) for t in kept):
            return f"{path} is not the argument that it wrote"
    return ""


def by_order(given: dict[str, torch.Tensor], paths: Sequence[str]) -> dict[str, torch.Tensor]:
    """A list where the CPU gives a tuple is no mistake: outputs by their order then."""
    if given.keys() == set(paths) or len(given) != len(paths):
        return given
    return dict(zip(paths, given.values()))


def _as_viewed(raw: torch.Tensor, view: View) -> torch.Tensor:
    whole = raw[: raw.numel() // view.dtype.itemsize * view.dtype.itemsize].view(view.dtype)
    return whole.as_strided(view.sizes, view.strides, view.offset)


def _left(call: Call, mutated: Any) -> dict[str, torch.Tensor]:
    """Arguments as the device left them, by path."""
    args, kwargs = mutated if isinstance(mutated, (tuple, list)) and len(mutated) == 2 else ((), {})
    offset = len(call.args) - len(tuple(args))  # a module's own state is not among them
    left: dict[str, torch.Tensor] = {}

    def walk(stands: Any, value: Any) -> None:
        if isinstance(stands, TensorAt):
            if isinstance(value, torch.Tensor):
                left[stands.path] = value.detach()
        elif isinstance(stands, dict) and isinstance(value, dict):
            for k in stands.keys() & value.keys():
                walk(stands[k], value[k])
        elif isinstance(stands, (list, tuple)) and isinstance(value, (list, tuple)):
            for a, b in zip(stands, value):
                walk(a, b)

    walk(call.args[offset:] if offset >= 0 else call.args, list(args))
    walk(call.kwargs, dict(kwargs or {}))
    return left


def _trespass(call: Call, left: dict[str, torch.Tensor]) -> str:
    """What the device wrote that the function does not: whole storages where they still
    have the captured form, else the tensors."""
    bases = {}
    for path, tensor in left.items():
        view = call.views[path]
        form = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.dtype
        raw = storage_bytes(tensor)
        if form == (view.sizes, view.strides, view.offset, view.dtype) and (
            raw.numel() == call.storages[view.storage].numel()
        ):
            bases[view.storage] = raw
    found = trespass(call, Bound([], {}, {}, bases))
    if found:
        return found
    for path, tensor in left.items():
        view = call.views[path]
        if view.storage in bases or path in call.mutated:
            continue
        if not same_bytes(tensor, _as_viewed(call.storages[view.storage], view)):
            return f"wrote the read-only argument {path}"
    return ""


def moved_to(value: Any, device: Any) -> Any:
    """Copies of arguments on a device, so that the given ones stay as they were."""
    memo: dict[Any, torch.Tensor] = {}

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _copied(value, device, memo)
        if isinstance(value, torch.device) and device is not None:
            return torch.device(device)
        return value

    return mapped(value, move)


def _copied(tensor: torch.Tensor, device: Any, memo: dict[Any, torch.Tensor]) -> torch.Tensor:
    """A tensor on a device with its storage whole and its aliases kept; a quantized, sparse
    or lazily conjugated one by itself."""
    if tensor.is_quantized or tensor.layout != torch.strided:
        return tensor.clone() if device is None else tensor.to(device)
    if tensor.is_conj() or tensor.is_neg():
        twin = tensor.detach().resolve_conj().resolve_neg().to(device or tensor.device)
        return twin.requires_grad_(tensor.requires_grad)
    storage = tensor.untyped_storage()
    key = (storage.data_ptr(), tensor.dtype)
    if key not in memo:
        raw = storage_bytes(tensor) if device is not None else None
        if raw is None:
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            raw = flat.set_(storage).clone()
        whole = raw[: raw.numel() // tensor.itemsize * tensor.itemsize].view(tensor.dtype)
        memo[key] = whole if device is None else whole.to(device)
    twin = memo[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return twin.requires_grad_(tensor.requires_grad)


def run_on(fn: Any, device: Any) -> Callable[..., Any]:
    """A module on a device; other callables as they are."""
    if not isinstance(fn, torch.nn.Module):
        plain_one: Callable[..., Any] = fn
        return plain_one
    there = copy.deepcopy(fn)
    moved: Callable[..., Any] = there.to(device) if device is not None else there
    return moved
