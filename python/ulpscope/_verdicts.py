# SPDX-License-Identifier: Apache-2.0
"""The words of a verdict and the empty row of a result. Needs no torch, so that the
coordinator of a check starts at once."""

from . import _core

PRECEDENCE = tuple(text for text, _ in _core.verdicts)  # the worst first
FLAGGED = frozenset(text for text, flagged in _core.verdicts if flagged)

UNKNOWN = "cause unknown"  # what is said where a verdict accuses and nothing explains it


def rank(verdict):
    """Place of a verdict in the order of precedence, 0 the worst."""
    return PRECEDENCE.index(verdict)


def base_row(source, verdict):
    """A row for `_core.Result.put` with what the trace alone tells of a call."""
    return dict(
        call=source["sequence"], step=source.get("step") or 0,
        phase=source.get("phase") or "", op=source["op"], culprit="",
        module=source.get("module_path") or "", module_class=source.get("module_class") or "",
        verdict=verdict, bits=0.0, yardstick_bits=0.0, bound=False, cause="", sentence="",
        notes="", output="", args="", stack="", n_elements=0, stands_for=1, t_device=0,
        t_reference=0, t_perturbed=0, t_judge=0, t_total=0, metrics=[], examples=[],
    )  # fmt: skip
