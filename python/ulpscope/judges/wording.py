# SPDX-License-Identifier: Apache-2.0
"""A verdict in words and as a row of result.db: one sentence, a summary of the arguments,
the numbers of the judge. Neighbours: `session.judging` (makes verdicts), `_core.Result`."""

import json
import math

import torch

from .. import _core
from ..calls.replay import all_finite, base_name, fit
from ..calls.verdicts import FLAGGED
from .standards import metric_rows

FILLS = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"}
METRICS = ("max", "mid", "q99", "rel", "z", "fan_in", "t_max", "t_mid", "n_mismatch", "n_bad")


def position(flat, sizes):
    """Row-major index as a list of coordinates."""
    out = []
    for size in reversed(sizes):
        out.append(flat % size if size else 0)
        flat //= max(size, 1)
    return out[::-1]


def sentence(call, verdict):
    """One English sentence on the verdict of a call."""
    return _core.sentence(call.op, verdict.verdict, verdict.reason, verdict.culprit, verdict.cause,
                          _told(verdict.worst))  # fmt: skip


ALL, COUNT, NONE = 2, 1, 0  # of a judgement's numbers: usc_finding_numbers


def _told(worst):
    """What `_core.sentence` is told of a finding."""
    if worst is None:
        return None
    d = worst.details
    numbers = ALL if "n_finite" in d else COUNT if d else NONE
    return (
        worst.path, worst.reason, worst.bits, worst.yardstick_bits, bool(worst.bound), worst.n,
        tuple(worst.sizes), bool(d.get("wide")), bool(d.get("exact")), bool(d.get("yardstick_bound")),
        numbers, d.get("n_mismatch", -1), d.get("n_bad") or 0, d.get("n_finite", -1), d.get("excused") or 0,
        tuple(worst.examples[0][:3]) if worst.examples else None,
    )  # fmt: skip


def describe_arguments(call):
    """One line: dtypes and shapes of tensors, other arguments as they are."""
    parts = [_describe(call, a) for a in call.args]
    parts += [f"{k}={_describe(call, a)}" for k, a in call.kwargs.items()]
    return ", ".join(parts)[:400]


def _describe(call, value):
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


def row(call, verdict, timing):
    """The verdict as a row for `_core.Result.put`, without what a trace tells of the call."""
    worst = verdict.worst
    flagged = verdict.verdict in FLAGGED
    whole = verdict.operands and not verdict.part
    parts = verdict.operands.reference.parts if whole else None
    return dict(
        verdict=verdict.verdict,
        culprit=verdict.culprit,
        bits=worst.bits if worst else 0.0,
        yardstick_bits=worst.yardstick_bits if worst else 0.0,
        bound=bool(worst.bound) if worst else False,
        cause=verdict.cause,
        sentence=sentence(call, verdict),
        notes="; ".join(verdict.notes + (["made-up inputs"] if call.made_up else [])),
        output=worst.path if worst else "",
        args=describe_arguments(call),
        **elements(verdict),
        metrics=((metrics(verdict) if flagged else []) + metric_rows(verdict.opinions)
                 + _search_time(timing) + odd_inputs(call, parts) + excused(verdict) + _share(verdict) + _reason(verdict)),
        examples=examples(verdict) if flagged else [],
        **timing,
    )


def elements(verdict):
    """{"n_elements": n} of what was judged; {} where nothing was."""
    n = sum(f.n for f in verdict.findings)
    return {"n_elements": n} if n else {}


def _share(verdict):
    """The share of the elements that was judged, where it is not all of them, as a metric."""
    sampled = verdict.part is not None and verdict.part.share < 1
    return [(-1, "sampled", verdict.part.share, None)] if sampled else []


def _reason(verdict):
    """Why it was not judged, as a metric: reports sum up calls by it."""
    if verdict.verdict not in ("unjudged", "unsupported"):
        return []
    reason = verdict.reason or (verdict.worst.reason if verdict.worst else "")
    return [(-1, "reason", 0.0, reason)] if reason else []


def odd_inputs(call, parts=None):
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


def _contents_of(call):
    """Yields all that its floats may be made of, as flat tensors that are not too large."""
    for storage, dtype in {(v.storage, v.dtype) for v in call.views.values()}:
        if dtype.is_floating_point or dtype.is_complex:
            yield from (fit(chunk, dtype) for _, chunk in call.storages.chunks(storage))


def _is_finite(data):
    if not (data.is_floating_point() or data.is_complex()):
        return True
    data = data if data.dtype.itemsize > 1 else data.float()  # float8 has no isfinite
    return all_finite(data)


def _search_time(timing):
    """What the search for the cause took, in nanoseconds: a metric, since few calls have it."""
    spent = timing.get("t_causes", 0)
    return [(-1, "t_causes", float(spent), None)] if spent else []


def excused(verdict):
    """Metrics that count the elements that went free by an excuse, and name the excuses."""
    found = [(i, f.details) for i, f in enumerate(verdict.findings) if f.details.get("excused")]
    counts = [(i, "excused", float(d["excused"]), None) for i, d in found]
    return counts + [(i, "excuse", 0.0, d["excuse"]) for i, d in found]


def metrics(verdict):
    """(output, name, value, text) of every output that was measured."""
    out = []
    for i, finding in enumerate(verdict.findings):
        out.append((i, "path", 0.0, finding.path))
        out.append((i, "sizes", 0.0, json.dumps(list(finding.sizes))))
        for name in METRICS:
            value = finding.details.get(name)
            if value is not None and math.isfinite(value):
                out.append((i, name, float(value), None))
        histogram = finding.details.get("histogram")
        if histogram and any(histogram):
            out.append((i, "score_histogram", 0.0, json.dumps(histogram)))
    return out


def examples(verdict):
    """(output, rank, index, device, reference, yardstick, score) of the worst elements."""
    return [
        (i, place, json.dumps(position(flat, finding.sizes)), device, reference, yardstick, score)
        for i, finding in enumerate(verdict.findings)
        for place, (flat, device, reference, yardstick, score) in enumerate(finding.examples)
    ]
