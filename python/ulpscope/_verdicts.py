# SPDX-License-Identifier: Apache-2.0
"""The words of a verdict and the empty row of a result. Needs no torch, so that the
coordinator of a check starts at once."""

import json
import math
import re

from . import _core

PRECEDENCE = tuple(text for text, _ in _core.verdicts)  # the worst first
FLAGGED = frozenset(text for text, flagged in _core.verdicts if flagged)

UNKNOWN = "cause unknown"  # what is said where a verdict accuses and nothing explains it


def rank(verdict):
    """Place of a verdict in the order of precedence, 0 the worst."""
    return PRECEDENCE.index(verdict)


LONGEST = 400  # characters of a summary of arguments


def base_row(source, verdict):
    """A row for `_core.Result.put` with what the trace alone tells of a call: also of one
    whose process did not live to tell more."""
    tensors = source.get("tensors") or []
    return dict(
        call=source["sequence"], step=source.get("step") or 0,
        phase=source.get("phase") or "", op=source["op"], culprit="",
        module=source.get("module_path") or "", module_class=source.get("module_class") or "",
        verdict=verdict, bits=0.0, yardstick_bits=0.0, bound=False, cause="", sentence="",
        notes="", output="", args=summary(source), stack="",
        n_elements=sum(math.prod(t["sizes"]) for t in tensors if t["role"] != "in"),
        stands_for=1, t_device=0, t_reference=0, t_perturbed=0, t_judge=0, t_total=0,
        metrics=arguments(tensors) if verdict != "pass" else [], examples=[],
    )  # fmt: skip


def arguments(tensors):
    """The metric that keeps where the tensors of a call were, how they were laid out and
    what their statistics are, as a list; empty where there are none."""
    kept = [{k: t[k] for k in ("path", "role", "dtype", "sizes", "strides", "offset", "device")
             if k in t} | _statistics(t) for t in tensors]  # fmt: skip
    return [(-1, "arguments", 0.0, json.dumps(kept))] if kept else []


def _statistics(tensor):
    stats = tensor.get("stats")
    stats = json.loads(stats) if isinstance(stats, str) and stats else stats
    return {"stats": stats} if isinstance(stats, dict) else {}


def summary(source):
    """The arguments of a call in one line: dtypes and shapes of tensors, others as they are."""
    text = source.get("args")
    try:
        given = json.loads(text) if isinstance(text, str) and text else text or {}
    except ValueError:
        return ""
    if not isinstance(given, dict):
        return ""
    tensors = {t["path"]: t for t in source.get("tensors") or [] if t["role"] == "in"}
    parts = [_told(v, f"args[{i}]", tensors) for i, v in enumerate(given.get("args", []))]
    parts += [f"{k}={_told(v, f'kwargs.{k}', tensors)}" for k, v in given.get("kwargs", {}).items()]
    return ", ".join(parts)[:LONGEST]


def _told(value, path, tensors):
    if isinstance(value, list):
        shown = [_told(v, f"{path}[{i}]", tensors) for i, v in enumerate(value[:4])]
        return "[" + ", ".join(shown + ["..."] * (len(value) > 4)) + "]"
    if path in tensors:
        tensor = tensors[path]
        sizes = ", ".join(str(n) for n in tensor["sizes"])
        return f"{str(tensor['dtype']).removeprefix('torch.')}[{sizes}]"
    if isinstance(value, dict) and len(value) == 1:
        ((kind, held),) = value.items()
        return "None" if kind in ("tensor", "generator") else str(held)
    return str(value)


# What torch's dispatcher says, with pages about its backends behind it.
NO_KERNEL = re.compile(r"Could not run '([^']+)' with arguments from the '([^']+)' backend\b.*", re.DOTALL)


def clause(problem):
    """An exception's text on one line, or its kind where it has none."""
    text = NO_KERNEL.sub(r"there is no kernel for \1 with arguments of the backend \2", str(problem))
    text = " ".join(text.split("\n\n")[0].split())
    return (text or type(problem).__name__)[:300]
