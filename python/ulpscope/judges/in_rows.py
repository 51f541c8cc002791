# SPDX-License-Identifier: Apache-2.0
"""A call with other tensors in it: each as rows of its own. Where tensors lie does not change what is computed. Serves
`readings` and the relations of `fuzzer`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..calls.replay import Call, base_name
from ..calls.trusting import TRUSTING
from .rows import put, tensor_of

# Their results tell of strides, or of memory beyond the arguments.
OF_STRIDES = {
    "stride",
    "is_contiguous",
    "_reshape_alias",
    "resize_",
    "resize_as_",
    "set_",
    "as_strided",
    "as_strided_copy",
    "as_strided_scatter",
    "_unsafe_view",
    "view",
    "view_as_complex",
    "data_ptr",
    "_nested_view_from_buffer",
}


def varied(call: Call, **changes: Any) -> Call:
    """A copy whose arguments can be given other contents; what the trace knows of results is left."""
    changes.setdefault("args", list(call.args))
    return replace(
        call,
        kwargs=dict(changes.pop("kwargs", call.kwargs)),
        views=dict(call.views),
        results={},
        mutated=dict(call.mutated),
        storages=call.storages.copy(),
        live=None,
        **changes,
    )


def fits(call: Call) -> bool:
    """Whether arguments of a call may be given storages of their own: it asks for no memory beyond
    them, and nothing that it writes is seen by another argument."""
    written = {call.views[p].storage for p in call.written()}
    shared = [v.storage for v in call.views.values()]
    trusts = base_name(call.op)[1] in TRUSTING
    return not call.whole and not call.composite and not trusts and all(shared.count(s) == 1 for s in written)


def in_rows(call: Call) -> Call | None:
    """The call with each tensor as rows of its own; None where all are so, or must lie where they do."""
    shared = [v.storage for v in call.views.values()]
    plain = all(v.is_contiguous() and v.offset == 0 and shared.count(v.storage) == 1 for v in call.views.values())
    if plain or not may_move(call):
        return None
    made = varied(call)
    for path in call.views:
        put(made, path, tensor_of(call, path))
    return made


def may_move(call: Call) -> bool:
    return fits(call) and base_name(call.op)[1] not in OF_STRIDES and not any(v.form for v in call.views.values())
