# SPDX-License-Identifier: Apache-2.0
"""Strides of what a recorded call gave, held against those that torch's own kernels give for arguments
laid out the same. Numbers do not depend on them, the next kernel's speed does, and so does code that
asks for `.stride()` or `.view()`. Serves `captured`. Needs torch's meta device.

Promised are those that the call asks for (a memory format, `empty_strided`), those of a view, and
those of an argument that is written: another layout there is wrong. Everything else is the kernel's to
choose, as convolutions and attention do: that is a note, where neither torch's shape rules (meta) nor
its kernel for the CPU lay it out so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..calls.foreign import foreign
from ..calls.nested import substitute
from ..calls.replay import Call, bind_exact, is_write
from ..calls.call_results import outputs_of
from ..calls.replay import Bound as _Bound
from ..calls.kernels import STANDARD
from ..executors.precision import sources_of, space_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ..calls.replay import View

UNUSUAL = "laid out "  # begins a note
MOST = 20000  # signatures that are remembered
FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
STRIDED = ("empty_strided", "new_empty_strided")
_usual: dict[tuple[Any, ...], dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {}


def judge_layouts(call: Call, row: dict[str, Any]) -> tuple[str, str]:
    """(clause, note) on the strides of a call's results: what breaks a promise and what is unusual,
    "" each for nothing."""
    if call.schema is None or call.made_up:
        return "", ""
    broken = _moved(call, row)
    results = [t for t in row["tensors"] if t["role"] == "out" and not (t.get("form") or "")]
    usual = _usual_of(call, row) if results else {}
    note = ""
    for item in results:
        asked = _asked(call, item)
        expected = usual.get(item["path"])
        if broken or expected is None or expected[0] != tuple(item["sizes"]):
            continue
        differs = not _same(item["sizes"], item["strides"], expected[1])
        if asked is False or (differs and _is_promised(call)):
            broken = f"laid out {_said(item, expected[1])}, which the call asks for"
        elif differs and asked is None and not note and not _as_on_cpu(call, item):
            note = f"{UNUSUAL}{_said(item, expected[1])} by torch's own kernels"
    return broken, note


def _said(item: dict[str, Any], expected: Iterable[int]) -> str:
    return f"{item['path']} with strides {list(item['strides'])}, not {list(expected)}"


def _same(sizes: Iterable[int], a: Iterable[int], b: Iterable[int]) -> bool:
    """Whether strides tell the same places: those of an axis of one element, or of nothing, do not."""
    return 0 in sizes or all(n == 1 or s == t for n, s, t in zip(sizes, a, b))


def _moved(call: Call, row: dict[str, Any]) -> str:
    """A clause on the first written argument that has other strides behind the call. Calls that are
    there for that (`t_`, `set_`, `resize_`) may."""
    tags = getattr(call.function, "tags", ())
    if torch.Tag.inplace_view in tags or "resize" in call.op or "set_" in call.op:
        return ""
    for item in row["tensors"]:
        view = call.views.get(item["path"])
        if item["role"] != "mutated" or view is None or tuple(item["sizes"]) != view.sizes:
            continue
        if not _same(view.sizes, item["strides"], view.strides):
            return f"left {_said(item, view.strides)} as before"
    return ""


def _asked(call: Call, item: dict[str, Any]) -> bool | None:
    """Whether a result is as the memory format says that the call names; None: it names none."""
    wanted = call.value("memory_format") if space_of(call.op) in STANDARD else None
    if wanted not in FORMATS or 0 in item["sizes"]:
        return None
    try:
        made = torch.empty_strided(item["sizes"], item["strides"], device="meta")
        return bool(made.is_contiguous(memory_format=wanted))
    except RuntimeError:  # a format of another number of axes
        return None


def _is_promised(call: Call) -> bool:
    """Whether the strides are what the call is about."""
    if call.op.partition("::")[2].partition(".")[0] in STRIDED:
        return True
    returns = call.schema.returns
    return bool(returns) and all(r.alias_info is not None and not is_write(r) for r in returns)


def _usual_of(call: Call, row: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """path -> (sizes, strides) of the results by torch's shape rules; {} where it has none."""
    key = (
        call.op,
        str(row["args"]),
        tuple((v.path, v.dtype, v.sizes, v.strides, v.offset, v.form) for v in call.views.values()),
    )
    if key not in _usual:
        if len(_usual) >= MOST:
            _usual.clear()
        _usual[key] = _on_meta(call)
    return _usual[key]


def _on_meta(call: Call) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    tensors = {path: _shell(call, view) for path, view in call.views.items()}
    bound = _Bound(
        [substitute(a, tensors, None, lambda device: "meta") for a in call.args],
        {k: substitute(a, tensors, None, lambda device: "meta") for k, a in call.kwargs.items()},
        tensors,
        {},
        call.composite,
    )
    try:
        return _forms(outputs_of(call, bound, bound.run(call.function)))
    except Exception as problem:  # no rule for it, or one that looks at numbers
        foreign(problem)
        return {}


def _shell(call: Call, view: View) -> torch.Tensor:
    """An argument without content."""
    first, last = view.extent()
    base = torch.empty(max(last, first, 0), dtype=view.dtype, device="meta")
    return base.as_strided(view.sizes, view.strides, view.offset)


def _forms(outputs: dict[str, torch.Tensor]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    return {path: (tuple(t.shape), t.stride()) for path, t in outputs.items() if t.layout == torch.strided}


def _as_on_cpu(call: Call, item: dict[str, Any]) -> bool:
    """Whether the kernel of the CPU lays that result out the same way."""
    bound = bind_exact(call, lambda captured: "cpu")
    first: Any = sources_of(call)[0]
    try:
        made = _forms(outputs_of(call, bound, bound.run(first.run))).get(item["path"])
    except Exception as problem:  # the CPU refuses: nothing to hold it against
        foreign(problem)
        return True
    return made is None or made[0] != tuple(item["sizes"]) or _same(item["sizes"], item["strides"], made[1])
