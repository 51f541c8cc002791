# SPDX-License-Identifier: Apache-2.0
"""A verdict as a row of result.db: what its findings say (usc_findings_row), a summary of the
arguments, what is odd about the inputs. Neighbours: `session.judging` (makes verdicts), `_core.Result`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.raw_bytes import fit
from ..calls.replay import Call, all_finite, base_name
from .standards import metric_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

FILLS = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"}


def sentence(op: str, verdict: Any) -> str:
    """One English sentence on the verdict of a call."""
    left_out = verdict.findings.left_out
    return _core.sentence(op, verdict.verdict, verdict.reason, verdict.culprit, verdict.cause, verdict.worst, left_out)


def describe_arguments(call: Call) -> str:
    """One line: dtypes and shapes of tensors, other arguments as they are."""
    parts = [_describe(call, a) for a in call.args]
    parts += [f"{k}={_describe(call, a)}" for k, a in call.kwargs.items()]
    return ", ".join(parts)[:400]


def _describe(call: Call, value: Any) -> str:
    if isinstance(value, list):
        shown = [_describe(call, v) for v in value[:4]]
        return "[" + ", ".join(shown + ["..."] * (len(value) > 4)) + "]"
    path = getattr(value, "path", None)
    if path is not None:
        view = call.views[path]
        sizes = ", ".join(str(n) for n in view.sizes)
        return f"{str(view.dtype).removeprefix('torch.')}[{sizes}]"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return str(getattr(value, "device", value))


def row(call: Call, verdict: Any, timing: dict[str, Any], brief: bool = False) -> dict[str, Any]:
    """The verdict as a row for `_core.Result.put`, without what a trace tells of the call; `brief` without
    metrics."""
    whole = verdict.operands and not verdict.part
    remarks = verdict.remarks + (["made-up inputs"] if call.made_up else [])
    made = verdict.findings.row(
        call.op,
        verdict.verdict,
        reason=verdict.reason,
        culprit=verdict.culprit,
        cause=verdict.cause,
        notes="; ".join(remarks),
    )
    made["metrics"] += (
        []
        if brief
        else (
            metric_rows(verdict.opinions)
            + _search_time(timing)
            + _share(verdict)
            + odd_inputs(call, verdict.operands.reference.parts if whole else None)
        )
    )
    if verdict.internal:
        made["metrics"].append((-1, "internal", 1.0, verdict.internal))
    return dict(made, culprit=verdict.culprit, cause=verdict.cause, args=describe_arguments(call), **timing)


def _share(verdict: Any) -> list[tuple[int, str, float, str | None]]:
    """The share of the elements that was judged, where it is not all of them, as a metric."""
    sampled = verdict.part is not None and verdict.part.share < 1
    return [(-1, "sampled", verdict.part.share, None)] if sampled else []


def odd_inputs(call: Call, parts: dict[Any, Any] | None = None) -> list[tuple[int, str, float, str | None]]:
    """Metrics that count NaN and Inf among the inputs, for calls that have any: where the
    truth is one of them a pass says little. `parts` are its segments, where they are known."""
    if all(map(_is_finite, _contents_of(call) if parts is None else (p.data for p in parts.values()))):
        return []
    unread = call.written() if base_name(call.op)[1] in FILLS else ()
    nan = inf = 0
    for path, view in call.views.items():
        raw = fit(call.storages[view.storage], view.dtype)
        data = raw.as_strided(view.sizes, view.strides, view.offset)
        if path not in unread and view.argument != "out" and not _is_finite(data):
            data = data if view.dtype.itemsize > 1 else data.float()
            nan, inf = nan + int(data.isnan().sum()), inf + int(data.isinf().sum())
    counts = (("nan_inputs", nan), ("inf_inputs", inf))
    return [(-1, name, float(n), None) for name, n in counts if n]


def _contents_of(call: Call) -> Iterator[torch.Tensor]:
    """Yields all that its floats may be made of, as flat tensors that are not too large."""
    for storage, dtype in {(v.storage, v.dtype) for v in call.views.values()}:
        if dtype.is_floating_point or dtype.is_complex:
            yield from (fit(chunk, dtype) for _, chunk in call.storages.chunks(storage))


def _is_finite(data: torch.Tensor) -> bool:
    if not (data.is_floating_point() or data.is_complex()):
        return True
    data = data if data.dtype.itemsize > 1 else data.float()  # float8 has no isfinite
    return all_finite(data)


def _search_time(timing: dict[str, int]) -> list[tuple[int, str, float, str | None]]:
    """What the search for the cause took, in nanoseconds: a metric, since few calls have it."""
    spent = timing.get("t_causes", 0)
    return [(-1, "t_causes", float(spent), None)] if spent else []
