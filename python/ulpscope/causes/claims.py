# SPDX-License-Identifier: Apache-2.0
"""What the words of a cause claim: which of two names says more, which format one names, and whether
that format may be one of the call's; and causes that a finding's own words tell. Neighbour: `diagnose` (decides)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core
from ..calls.verdicts import FLAGGED, UNKNOWN
from ..executors.formats import FORMATS, OWN_FORMAT

if TYPE_CHECKING:
    import torch
    from ..calls.replay import Call

# Another name that explains as much says more.
VAGUE = (
    (
        "computes as if",
        "computes without",
        "wrong order",
        "operand",
        "wrong operand",
        "wrong index: operand",
        "the constants",
        "the sign of the factor",
        "the sign of operand",
    ),
    (
        "scale factor",
        "computes with 1 ",
        "computes with the square",
        "wrong variant: div instead",
        "wrong variant: mul instead",
    ),
)
# What is tried of any tensor: half of it must not do as well.
ANY = ("wrong variant: the mean of", "wrong variant: computes with", "wrong variant: 1 - ")
SEEN = "looks like"  # begins what is seen, and no name
BOTH = "TF32 or float16"  # where the inputs cannot tell


def formats_of(call: Call, outputs: dict[str, torch.Tensor]) -> set[str]:
    """Formats that a call may be computed in: those of its tensors, and what is narrower."""
    every = {v.dtype for v in call.views.values()} | {t.dtype for t in outputs.values() if t is not None}
    own = {OWN_FORMAT[d] for d in every if d in OWN_FORMAT}
    if own - {"bfloat16", "float16"} or not own:
        return set(FORMATS)
    return {"float32"} | {
        name
        for name, (bits, low, high) in FORMATS.items()
        for wide in own
        if bits <= FORMATS[wide][0] and low >= FORMATS[wide][1] and high <= FORMATS[wide][2]
    }


def vagueness(text: str, sure: bool) -> int:
    """0 for a name that says what is wrong, more for one that a better may replace."""
    if not sure or text.startswith(SEEN):
        return len(VAGUE) + 1
    if text.endswith("(zeros come in)"):  # in a sum that is one term less
        return 1
    return max((i for i, begins in enumerate(VAGUE, 1) if text.startswith(begins)), default=0)


def is_of_any(text: str) -> bool:
    """Whether a name is one that any tensor of a run may be given, and so explains much by chance."""
    anys = text.startswith(ANY) or "the result of " in text or " of both operands of " in text
    return anys or vagueness(text, True) > 0


def is_barred(text: str, formats: set[str]) -> bool:
    """Whether a format is named that no dtype of the call has room for."""
    plain = text.replace("bfloat16", "")
    return any(name in (plain if name == "float16" else text) for name in FORMATS if name not in formats)


def stale(text: str, earlier: dict[str, torch.Tensor]) -> str:
    """The words for a result that is one of `earlier` calls, instead of those for an argument that is there
    unchanged."""
    return next(
        (
            f"the result is {n}: it was not written, what was there before is stale"
            for n in earlier
            if text.startswith(f"the result is {n} unchanged")
        ),
        text,
    )


def is_nothing(device: torch.Tensor, truth: torch.Tensor) -> bool:
    """Whether a result is one zero alone, to which every mistake comes that loses it: it tells of none."""
    return device.numel() == 1 and device.is_floating_point() and not device.any() and bool(truth.any())


def is_one_sided(text: str) -> bool:
    """Whether a name tells of a rounding that goes one way."""
    return any(way in text for way in ("truncated", "rounded up", "rounded down", "rounded away"))


def names_range(text: str) -> bool:
    """Whether a name tells where float16 ends, which TF32 does not."""
    return "65504" in text


def format_of(text: str) -> str:
    return next((n for n in ("bfloat16", "float8", BOTH, "TF32", "float16") if n in text), text)


def of_reason(worst: _core.Finding | None) -> str:
    """What a finding without numbers says of its cause."""
    reason = worst.reason if worst is not None else ""
    if reason.startswith("wrote "):
        return "writes what must stay unchanged"
    if reason.startswith(("laid out ", "left ")):
        return "strides are not those that the call asks for"
    return UNKNOWN


def of_draws(verdict: Any) -> str:
    """The cause where random draws are not as they should be."""
    worst = verdict.worst
    if worst is None or not worst.reason or verdict.verdict not in FLAGGED:
        return ""
    if worst.measured:  # values that do not hang on chance
        return UNKNOWN
    return "the draws are not random as they should be"
