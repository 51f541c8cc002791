# SPDX-License-Identifier: Apache-2.0
"""The verdict on a call by what the captured run itself got: no device is asked again. Serves
`live` and `pairs`; `judging` has the rule."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ..calls.callable import as_numbers
from ..calls.contents import Reader
from ..calls.read_call import bytes_of, call_from, tensor_of
from ..calls.raw_bytes import fit, same_bytes
from ..calls.nested import TensorAt, mapped
from ..calls.replay import BadCall, Bound, Call, bind_exact, draws_random, is_write, resolve, written_names
from ..calls.call_results import plain
from ..calls.verdicts import FLAGGED
from ..executors import formulas
from ..executors.device import SCRATCH, Answer, learn_writes, trespass, unsaid_writes
from ..executors.module_call import module_call
from ..executors.operands import Operands, Timing
from ..calls.kernels import STANDARD
from ..executors.precision import space_of
from .layouts import judge_layouts
from .judging import Verdict, explain, judge_drawn, judge_given

if TYPE_CHECKING:
    from .earlier import Earlier
    from .. import _core

WRAPPED = (torch.float64, torch.int64, torch.complex128)  # what torch makes of Python's numbers
OF_TORCH = (*STANDARD, "fsdp")  # spaces of operators that are torch's own
MEANWHILE = "another thread wrote an input of it while it ran"
TENSORS = ("Tensor", "List[Tensor]", "Optional[Tensor]", "List[Optional[Tensor]]")


class NotJudged(Exception):
    """There is nothing to judge a call by; the text is a clause that says why."""


@cache
def gives_tensors(op: str) -> bool:
    """Whether an operator gives nothing but tensors; of one that nobody here knows, that it does."""
    try:
        schema = getattr(resolve(op), "_schema", None)
    except BadCall:
        return True
    return all(str(r.type) in TENSORS for r in (schema.returns if schema else ()))


def judge_captured(
    trace: _core.Trace,
    row: dict[str, Any],
    seconds: float,
    groups: Any,
    earlier: Earlier | None = None,
    call: Call | None = None,
    operands: Operands | None = None,
) -> tuple[Call, Verdict, Timing]:
    """The call that a row of a trace tells of, the verdict on what it gave, and the time that took.
    `seconds` are for the cause of a finding, `earlier` keeps what calls gave; `operands` are those of the
    same call on the same inputs. NotJudged, BadCall."""
    timing = Timing()
    call = call or call_from(row, Reader(trace))
    _as_number(call)
    answer = answer_of(call, row, trace)
    broken, note = judge_layouts(call, row)
    answer.trespass = answer.trespass or broken
    call.results = {}  # the device's own: they tell nothing of what is right
    if draws_random(call):
        verdict = judge_drawn(call, answer)
    else:
        verdict = judge_given(call, answer, seconds=0, operands=operands)
    if note:
        verdict.remarks.append(note)
    if draws_random(call):
        return call, verdict, timing
    if verdict.verdict in FLAGGED:
        if earlier is not None:
            earlier.beside(answer)
        explain(call, verdict, timing, seconds, groups)
    if earlier is not None and seconds:
        earlier.keep(row["sequence"], answer)
    return call, verdict, timing


def judge_chain(call: Call, answer: Answer, timing: Timing, seconds: float, groups: Any) -> Verdict:
    """The verdict on what a chain of calls gave, with its cause where there is one to be sought."""
    verdict = judge_given(call, answer, seconds=0)
    if verdict.verdict in FLAGGED:
        explain(call, verdict, timing, seconds, groups)
    return verdict


def judge_forward(
    trace: _core.Trace, forward: dict[str, Any], seconds: float, groups: Any
) -> tuple[Call, Verdict, Timing]:
    """The same of a module's forward, one of `trace.forwards`: its calls in a chain, from what they
    were given from outside to what was read behind them."""
    timing = Timing()
    source = {"sequence": forward["call"], "op": forward["op"]}
    call = module_call({**forward, "source": source}, trace.call, trace.blob)
    call.mutated = {p: call.views[p] for p in call.wrote}  # a buffer is judged with the operator that writes it
    outputs = {f"out[{i}]": _content(item, trace) for i, item in enumerate(call.gave)}
    outputs |= {path: _content(item, trace) for path, item in call.wrote.items()}
    call.results = {}
    answer = Answer(as_numbers(call, outputs), "", before_of(call))
    return call, judge_chain(call, answer, timing, seconds, groups), timing


def before_of(call: Call) -> dict[str, torch.Tensor]:
    """What the arguments that a call writes hold before it."""
    if not call.written():
        return {}
    bound = bind_exact(call, lambda captured: "cpu")
    return {path: plain(bound.tensors[path]).clone() for path in call.written()}


def _as_number(call: Call) -> None:
    """A Python number beside a 0-dim tensor (`norm + 1e-6`) is recorded as a tensor in float64, int64
    or complex128 that torch does not let decide the dtype; without that mark it would. Where the result
    shows that it was such a number, the call gets the number back."""
    if len(call.views) != 2 or any(v.sizes for v in (*call.views.values(), *call.results.values())):
        return
    (first, a), (second, b) = call.views.items()
    given = {v.dtype for v in call.results.values()}
    for path, number, other in ((second, b, a), (first, a, b)):
        if number.dtype not in WRAPPED or number.device != "cpu" or number.storage == other.storage:
            continue
        value = fit(call.storages[number.storage], number.dtype).as_strided((), (), number.offset).item()
        beside = torch.result_type(torch.empty((), dtype=other.dtype), value)
        if given == {beside} and torch.promote_types(a.dtype, b.dtype) != beside:
            _give(call, path, value)
            return


def _give(call: Call, path: str, value: Any) -> None:
    """Puts a value in the place of a tensor."""
    call.args, call.kwargs = (
        mapped(part, lambda v: value if v == TensorAt(path) else v) for part in (call.args, call.kwargs)
    )
    del call.views[path]


def answer_of(call: Call, row: dict[str, Any], trace: _core.Trace) -> Answer:
    """What the run left of a call: results, written arguments, and what it wrote besides."""
    wrong = _hidden_writes(call, trace) or _beside(call, row, trace)
    outputs = {}
    for item in row["tensors"]:
        path = item["path"]
        if item["role"] == "out" and not _is_argument(call, path):
            outputs[path] = _content(item, trace)
    for path in call.written():
        found = [t for t in row["tensors"] if t["role"] == "mutated" and t["path"] == path]
        if not found:
            raise NotJudged(f"what it wrote to {path} was not kept")
        outputs[path] = _content(found[0], trace)
    return Answer(as_numbers(call, outputs), wrong, before_of(call))


def _is_argument(call: Call, path: str) -> bool:
    """Whether a result is a written argument by its schema, and stands as that."""
    returns = call.schema.returns if call.schema else ()
    i = int(path.split("]")[0].partition("[")[2])
    return i < len(returns) and is_write(returns[i])


def _content(item: dict[str, Any], trace: _core.Trace) -> torch.Tensor:
    if 0 in item["sizes"]:
        tensor = torch.empty(item["sizes"], dtype=getattr(torch, item["dtype"]))
    elif not item["blob"] or not all(later["blob"] for later in item.get("writes", ())):
        raise NotJudged(f"the content of {item['path']} was not kept")
    else:
        tensor = tensor_of(item, Reader(trace))
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _hidden_writes(call: Call, trace: _core.Trace) -> str:
    """Arguments that were written though the schema says that they are only read: a clause, ""
    for none. They are judged no further. Of torch's own operators, and of those whose formula we
    have, it is known which schemas lie: what their kernel for the CPU writes, too, may be written. A
    call that the CPU ran is run again on copies: what it does not write then somebody else wrote. NotJudged."""
    if call.schema is None:
        return ""
    declared = written_names(call.function)
    hidden = {p: v for p, v in call.mutated.items() if call.views[p].argument not in declared}
    if not hidden:
        return ""
    call.mutated = {p: v for p, v in call.mutated.items() if p not in hidden}
    hidden = {p: v for p, v in hidden.items() if call.views[p].argument not in SCRATCH and _is_other(call, p, trace)}
    if space_of(call.op) in OF_TORCH or formulas.find(call.op) is not None:
        learn_writes(call)
    hidden = {path: call.views[path] for path in hidden if path not in call.mutated}
    if hidden and all(v.device == "cpu" for v in call.views.values()) and not unsaid_writes(call).keys() & hidden:
        raise NotJudged(MEANWHILE)
    left = [f"{view.argument} ({path})" for path, view in hidden.items()]
    if not left:
        return ""
    return f"wrote what its schema says it only reads: {', '.join(left[:3])}" + (", ..." if len(left) > 3 else "")


def _is_other(call: Call, path: str, trace: _core.Trace) -> bool:
    """Whether an argument holds other bytes behind the call: what lies beside it in its storage may be
    another thread's."""
    for item in call.row["tensors"]:
        if item["role"] == "mutated" and item["path"] == path and item["blob"]:
            view = call.views[path]
            before = fit(call.storages[view.storage], view.dtype).as_strided(view.sizes, view.strides, view.offset)
            return not same_bytes(tensor_of({**item, "form": ""}, Reader(trace)), before)
    return True


def _beside(call: Call, row: dict[str, Any], trace: _core.Trace) -> str:
    """What was written outside the views that may be, as far as the storage was kept."""
    bases = {}
    for item in row["tensors"]:
        if item["role"] != "mutated" or not item["blob"] or item["path"] not in call.mutated:
            continue
        view = call.views[item["path"]]
        raw = bytes_of(trace.blob(item["blob"]))
        if item["storage"] != view.storage:
            continue
        before = call.storages[view.storage]
        if raw.numel() != before.numel():  # of device memory a part was kept
            part, raw = raw, before.clone()
            raw[item["first"] : item["first"] + part.numel()] = part
        bases[view.storage] = raw
    return trespass(call, Bound([], {}, {}, bases))
