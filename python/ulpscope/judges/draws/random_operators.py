# SPDX-License-Identifier: Apache-2.0
"""Random operators: no two devices draw the same numbers, so their draws are judged by
what every honest draw has in common. Serves `session.judging` and `session.api`.

Of torch it needs the call's own arguments only: known operators are judged by their law in C
(`ulpscope/x/draw.h`), which also knows their names; everything else by the masks of the dropouts
inside (`masks`) or against draws of the CPU (`sampling`). What is promised: docs/reference/operators.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ... import _core
from ..._core import Finding, Findings
from ...calls.arguments import arguments_of
from ...calls.foreign import foreign
from ...calls.replay import Call, base_name, bind_exact, is_composite
from ...calls.verdicts import clause
from ...executors.streams import kept_state
from . import masks, sampling

if TYPE_CHECKING:
    from ...executors.device import Answer


def judge_draws(call: Call, answer: Answer, again: Answer | None = None) -> _core.Findings:
    """
    Findings for every output of a call that draws random numbers.

    `again` is a second answer to the same call, for what only two draws can show.
    """
    try:
        with kept_state([*call.args, *call.kwargs.values()]):
            return _judged(call, answer, again)
    except Exception as problem:
        foreign(problem)
        return Findings([Finding("", "unjudged", f"draws random numbers: {clause(problem)}")])


def _judged(call: Call, answer: Answer, again: Answer | None) -> Findings:
    name, arguments, paths = _operator(call, answer)
    findings = sampling.forms(call, answer)
    if not findings:
        if name is None:
            findings = _by_masks(call, answer, again) or sampling.judge(call, answer, again)
        else:
            findings = _by_name(name, arguments, paths, answer, again)
    if answer.trespass:
        findings.extend([Finding("", "wrong", answer.trespass)])
    return findings or Findings([Finding("", "pass")])


def _by_masks(call: Call, answer: Answer, again: Answer | None) -> Findings | None:
    """Findings from the masks of the dropouts inside, None where they cannot be found."""
    try:
        return masks.judge(call, answer, again)
    except Exception as problem:  # the function cannot bear to be given masks: its draws must do
        foreign(problem)
        return None


def _operator(call: Call, answer: Answer) -> tuple[str | None, Any, dict[str, str]]:
    """Bare name and arguments of the operator whose draws the outputs of a call are, and
    outputs of the operator -> outputs of the call. None where it is none that is known."""
    if is_composite(call):
        if not call.draw or not _core.draw_known(call.draw[0]):
            return None, None, {}
        name, arguments, paths = call.draw
        return name, arguments, {to: at for at, to in paths.items()}
    name = base_name(call.op)[1]
    if not call.op.startswith("aten::") or not _core.draw_known(name):
        return None, None, {}
    tensors = bind_exact(call, lambda captured: "cpu").tensors
    return name, arguments_of(call, tensors), {path: path for path in answer.outputs}


def _by_name(
    name: str, arguments: dict[str, Any], paths: dict[str, str], answer: Answer, again: Answer | None
) -> Findings:
    findings, twin = Findings(), again.outputs if again is not None else {}
    outputs = [(at, answer.outputs[at], twin.get(at)) for _, at in sorted(paths.items()) if at in answer.outputs]
    given = {k: v for k, v in arguments.items() if _is_plain(v)}
    _core.draw_judge(findings, name, given, outputs, _is_complex(arguments))
    return findings


def _is_plain(value: Any) -> bool:
    return not value.is_complex() if isinstance(value, torch.Tensor) else isinstance(value, (int, float))


def _is_complex(arguments: dict[str, Any]) -> bool:
    """Whether the draws are parts of complex numbers."""
    dtype, like = arguments.get("dtype"), arguments.get("self")
    kinds = [d for d in (dtype, getattr(like, "dtype", None)) if isinstance(d, torch.dtype)]
    return bool(kinds and kinds[0].is_complex)
