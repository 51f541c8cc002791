# SPDX-License-Identifier: Apache-2.0
"""Python functions that ran under autocast: run so again, on any device, and held to what they
compute then. Needs torch.autocast by device type; a row tells which were on ("state").

What autocast rounds before an operator is no mistake of the device: the inputs are rounded once
for all, after which the function means the same with autocast as without, in any precision. One
that computes in 16 bits several times over rounds between its operators, too; these are judged
in its place (`InParts`). Neighbours: `callable` (runs it), `session.bench` (says on which device).
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .exact import never_rounds
from .foreign import theirs
from .mode import Mode, any_complex
from .raw_bytes import fit
from .nested import tensors_in
from .replay import BadCall, base_name, bind_exact
from .call_results import outputs_of
from .torch_private import OpOverload, graph_task

if TYPE_CHECKING:
    from .callable import Composite
    from .replay import Call, View

LOW = (torch.float16, torch.bfloat16)


class InParts(BadCall):
    """A call that says nothing as a whole: the calls below it do."""


def kinds_of(row: dict[str, Any]) -> dict[str, torch.dtype]:
    """Device type -> dtype of autocast, as a row of a function tells."""
    state = json.loads(row["state"]) if row.get("state") else {}
    found = {kind: getattr(torch, name, None) for kind, name in (state.get("autocast") or {}).items()}
    if any(not isinstance(dtype, torch.dtype) for dtype in found.values()):
        raise InParts("it ran under an autocast that is unknown here")
    return found


def under(function: Callable[..., Any], kinds: dict[str, torch.dtype]) -> Callable[..., Any]:
    """The function under autocast for these device types."""

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for kind, dtype in kinds.items():
                stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=False))
            return theirs(function, *args, **kwargs)

    return run


class Casts(Mode):
    """What autocast does in a run: notes storages that it rounds, counts results in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded: dict[int, torch.dtype] = {}  # address of a storage -> dtype
        self.n_low = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = theirs(func, *args, **(kwargs or {}))
        if not any(t.dtype in LOW for t in tensors_in(out)):
            return out
        source: Any = args[0] if args else None
        if base_name(func.name())[1] == "_to_copy":
            if source.dtype == torch.float32:
                self.rounded[source.untyped_storage().data_ptr()] = out.dtype
        elif graph_task() == -1:  # in the forward pass
            makes = not any(r.alias_info for r in func._schema.returns)
            self.n_low += makes and not never_rounds(func.name(), any_complex(args))
        return out


def settle(call: Composite, device: Any = None) -> None:
    """Rounds the inputs of a call as autocast does on a device (None: on the CPU, as what
    follows), and notes the dtypes that results have there, in effect. InParts where the whole
    says nothing."""
    if call.native is None:
        raise InParts(f"the CPU does not run it under autocast: {call.problem}")
    casts = Casts()
    bound = device.bind(call) if device else bind_exact(call, lambda captured: "cpu")
    with casts:
        outputs = outputs_of(call, bound, bound.run(call.on(device.place) if device else call.on_host()))
    cast = {
        path: casts.rounded[t.untyped_storage().data_ptr()]
        for path, t in bound.tensors.items()
        if t.dtype == torch.float32 and t.untyped_storage().data_ptr() in casts.rounded
    }
    low = next(iter({**cast, **call.autocast}.values()))
    narrow = {path for path, t in outputs.items() if t.dtype in LOW or _fits(t, low)}
    given = call.views.items() if call.within else ()  # the gradients of what it gave
    wide = any(v.dtype == torch.float32 for p, v in given if p.startswith("args[2]"))
    wide |= any(t.is_floating_point() and path not in narrow for path, t in outputs.items())
    if casts.n_low > (0 if wide else 1) and (cast or wide):
        raise InParts("autocast rounds between its operators")
    for path, native in call.native.items():
        known = device is None or device.type == device.home
        told = call.results[path].dtype if known and path in call.results else outputs[path].dtype
        if told.is_floating_point and native.is_floating_point():
            call.native[path] = native.to(told)
    for path, dtype in cast.items():
        _round(call, call.views[path], dtype)
    for path in narrow if cast else ():
        call.numbers[path] = low
        call.native[path] = call.native[path].to(low)
    call.low = False  # these roundings are done


def _fits(t: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether all numbers of a wider tensor are numbers of a dtype."""
    return t.dtype == torch.float32 and bool(((t.to(dtype).float() == t) | t.isnan()).all())


def _round(call: Call, view: View, dtype: torch.dtype) -> None:
    raw = call.storages[view.storage].clone()
    seen = fit(raw, view.dtype).as_strided(view.sizes, view.strides, view.offset)
    seen.copy_(seen.to(dtype).to(view.dtype))
    call.storages[view.storage] = raw
