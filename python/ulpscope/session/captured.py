# SPDX-License-Identifier: Apache-2.0
"""The verdict on a call by what the captured run itself got: no device is asked again. Serves
`live`; `judging` has the rule."""

from dataclasses import replace

import torch

from ..calls.callable import as_numbers
from ..calls.contents import Reader
from ..calls.read_call import bytes_of, call_from, tensor_of
from ..calls.replay import Bound, bind_exact, draws_random, fit, is_write, plain, raw_bytes, written_names
from ..calls.verdicts import FLAGGED
from ..executors.device import Answer, learn_writes, trespass
from ..executors.module_call import module_call
from ..executors.operands import Timing
from .judging import explain, judge_drawn, judge_given

WRAPPED = (torch.float64, torch.int64, torch.complex128)  # what torch makes of Python's numbers
TENSORS = ("Tensor", "List[Tensor]", "Optional[Tensor]", "List[Optional[Tensor]]")


class NotJudged(Exception):
    """There is nothing to judge a call by; the text is a clause that says why."""


def judge_captured(trace, row, seconds, groups):
    """The call that a row of a trace tells of, the verdict on what it gave, and the time that took.
    `seconds` are for the cause of a finding. NotJudged, BadCall."""
    timing = Timing()
    call = call_from(row, Reader(trace))
    returns = call.schema.returns if call.schema else ()
    if any(str(r.type) not in TENSORS for r in returns):
        raise NotJudged("it returns what is no tensor")
    _narrow_number(call)
    answer = answer_of(call, row, trace)
    call.results = {}  # the device's own: they tell nothing of what is right
    if draws_random(call):
        return call, judge_drawn(call, answer), timing
    verdict = judge_given(call, answer, seconds=0)
    if verdict.verdict in FLAGGED:
        explain(call, verdict, timing, seconds, groups)
    return call, verdict, timing


def judge_forward(trace, forward, seconds, groups):
    """The same of a module's forward, one of `trace.forwards`: its calls in a chain, from what they
    were given from outside to what was read behind them."""
    timing = Timing()
    source = {"sequence": forward["call"], "op": forward["op"]}
    call = module_call({**forward, "source": source}, trace.call, trace.blob)
    call.mutated = {}  # a buffer that it writes is judged with the operator that does
    if any(_narrows(step.call) for step in call.steps_taken):
        raise NotJudged("it rounds to a narrow format inside, as autocast does")
    outputs = {f"out[{i}]": _content(item, trace) for i, item in enumerate(call.gave)}
    call.results = {}
    verdict = judge_given(call, Answer(as_numbers(call, outputs), ""), seconds=0)
    if verdict.verdict in FLAGGED:
        explain(call, verdict, timing, seconds, groups)
    return call, verdict, timing


def _narrows(call):
    """Whether a call makes numbers narrower than they came: of that a chain in float64 knows nothing."""
    wide = any(v.dtype in (torch.float32, torch.float64) for v in call.views.values())
    return call.op.startswith("aten::_to_copy") and wide and call.value("dtype") in (torch.float16, torch.bfloat16)


def _narrow_number(call):
    """A Python number beside a 0-dim tensor (`norm + 1e-6`) is recorded as a tensor in float64, int64
    or complex128 that torch does not let decide the dtype; without that mark it would. Here it
    gets the dtype that it was given: one number, rounded once more."""
    if len(call.views) != 2 or any(v.sizes for v in (*call.views.values(), *call.results.values())):
        return
    (first, a), (second, b) = call.views.items()
    for path, number, other in ((second, b, a), (first, a, b)):
        given = {v.dtype for v in call.results.values()}
        wide = number.dtype in WRAPPED and number.device == "cpu" and number.storage != other.storage
        if wide and given == {other.dtype} and torch.promote_types(a.dtype, b.dtype) not in given:
            raw = fit(call.storages[number.storage], number.dtype)
            value = raw.as_strided((), (), number.offset).to(other.dtype).reshape(1)
            call.storages[number.storage] = raw_bytes(value)
            call.views[path] = replace(number, dtype=other.dtype, offset=0)
            return


def answer_of(call, row, trace):
    """What the run left of a call: results, written arguments, and what it wrote besides."""
    wrong = _hidden_writes(call) or _beside(call, row, trace)
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
    before = {}
    if call.written():
        bound = bind_exact(call, lambda captured: "cpu")
        before = {path: plain(bound.tensors[path]).clone() for path in call.written()}
    return Answer(as_numbers(call, outputs), wrong, before)


def _is_argument(call, path):
    """Whether a result is a written argument by its schema, and stands as that."""
    returns = call.schema.returns if call.schema else ()
    i = int(path.split("]")[0].partition("[")[2])
    return i < len(returns) and is_write(returns[i])


def _content(item, trace):
    if 0 in item["sizes"]:
        tensor = torch.empty(item["sizes"], dtype=getattr(torch, item["dtype"]))
    elif not item["blob"]:
        raise NotJudged(f"the content of {item['path']} was not kept")
    else:
        tensor = tensor_of(item, Reader(trace))
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _hidden_writes(call):
    """Arguments that were written though neither the schema nor the CPU's own kernel does: a
    clause, "" for none. They are judged no further."""
    if call.schema is None:
        return ""
    declared = written_names(call.function)
    hidden = {p: v for p, v in call.mutated.items() if call.views[p].argument not in declared}
    if not hidden:
        return ""
    call.mutated = {p: v for p, v in call.mutated.items() if p not in hidden}
    learn_writes(call)
    left = [p for p in hidden if p not in call.mutated]
    return f"wrote the read-only argument {left[0]}" if left else ""


def _beside(call, row, trace):
    """What was written outside the views that may be, where the whole storage was kept."""
    bases = {}
    for item in row["tensors"]:
        if item["role"] != "mutated" or not item["blob"] or item["path"] not in call.mutated:
            continue
        view = call.views[item["path"]]
        raw = bytes_of(trace.blob(item["blob"]))
        if item["storage"] == view.storage and raw.numel() == call.storages[view.storage].numel():
            bases[view.storage] = raw
    return trespass(call, Bound([], {}, {}, bases))
