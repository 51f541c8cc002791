# SPDX-License-Identifier: Apache-2.0
"""Random operators: no two devices draw the same numbers, so their draws are judged by
what every honest draw has in common. Serves `session.judging` and `session.api`.

Known operators by their law (`laws`), dropouts by their mask and the values kept
(`dropouts`), everything else against draws of the CPU (`sampling`). The tests are in
`evenness`; what they promise is in docs/operators.md.
"""

import torch

from ..._core import Finding, Findings
from ...calls.arguments import arguments_of
from ...calls.replay import base_name, bind_exact
from ...calls.verdicts import clause
from ...executors.streams import kept_state
from . import dropouts, masks, sampling
from .evenness import (
    ENOUGH,
    count_is_odd,
    oddity,
    relation,
    repeats,
    runs_of,
    some,
    unlikely,
)  # fmt: skip
from .laws import law_of, multinomial, permutation
from .sampling import drawn, few_of

# Where points fall in their intervals; no device is ever seeded with it.
DITHER = 0x5EED_0F_E7E2


def judge_draws(call, answer, again=None):
    """
    Findings for every output of a call that draws random numbers.

    `again` is a second answer to the same call, for what only two draws can show.
    """
    try:
        with kept_state([*call.args, *call.kwargs.values()]):
            return _judged(call, answer, again)
    except Exception as problem:
        return Findings([Finding("", "unjudged", f"draws random numbers: {clause(problem)}")])


def _judged(call, answer, again):
    name, arguments, paths = _operator(call, answer)
    outputs = {to: answer.outputs[at] for at, to in paths.items() if at in answer.outputs}
    second = again and {to: again.outputs[at] for at, to in paths.items() if at in again.outputs}
    findings = sampling.forms(call, answer)
    if not findings:
        if name is None:
            findings = _by_masks(call, answer, again) or sampling.judge(call, answer, again)
        else:
            findings = _by_name(name, arguments, outputs, second)
            for i, finding in enumerate(findings):
                findings.rename(i, next((at for at, to in paths.items() if to == finding.path), ""))
    if answer.trespass:
        findings.extend([Finding("", "wrong", answer.trespass)])
    return findings or Findings([Finding("", "pass")])


def _by_masks(call, answer, again):
    """Findings from the masks of the dropouts inside, None where they cannot be found."""
    try:
        found = masks.judge(call, answer, again)
    except Exception:  # the function cannot bear to be given masks: its draws must do
        return None
    if found is None:
        return None
    findings, draws = found
    findings.extend([_finding(path, first, second) for path, first, second in draws])
    return findings


def _operator(call, answer):
    """Bare name and arguments of the operator whose draws the outputs of a call are, and
    outputs of the call -> outputs of the operator. None where it is none that is known."""
    if call.composite:
        return call.draw if call.draw and is_known(call.draw[0]) else (None, None, {})
    name = base_name(call.op)[1]
    if not call.op.startswith("aten::") or not is_known(name):
        return None, None, {}
    tensors = bind_exact(call, lambda captured: "cpu").tensors
    return name, arguments_of(call, tensors), {path: path for path in answer.outputs}


def is_known(name):
    """Whether the law of that operator is known by name."""
    special = name in ("multinomial", "randperm") or dropouts.is_one(name)
    return special or law_of(name) is not None


def _by_name(name, arguments, outputs, second):
    if dropouts.is_one(name):
        first, values = dropouts.judge(name, arguments, outputs)
        other = second and dropouts.judge(name, arguments, second, values=False)[0]
        values.extend([_finding(p, d, other and other.get(p)) for p, d in first.items()])
        return values
    (path, tensor), *_ = outputs.items()
    draws = _draws(name, arguments, tensor)
    other = second and _draws(name, arguments, second[path])
    return Findings([_finding(path, draws, other, tensor)])


def _draws(name, arguments, tensor):
    if name == "randperm":
        return permutation(tensor)
    if name == "multinomial":
        return multinomial(tensor, arguments["self"], arguments.get("replacement"))
    return law_of(name)(tensor.reshape(-1), arguments)


def points(draws, number):
    """Even numbers on [0, 1) from draws: a point at chance in the interval of each."""
    generator = torch.Generator().manual_seed(DITHER + number)
    at = torch.rand(draws.low.shape, generator=generator, dtype=torch.float64)
    return draws.low + at * (draws.high - draws.low)


def _finding(path, draws, other, tensor=None):
    """What is said of the draws of one output."""
    n = draws.low.numel()
    sizes = tuple(tensor.shape) if tensor is not None else (n,)
    known = int(draws.known.sum())
    problem = draws.outside or _odd(draws)
    if not problem and other is not None and other.low.shape == draws.low.shape:
        both = some(draws.known & other.known)
        problem = other.outside or relation(some(points(draws, 0)), some(points(other, 1)), both)
    if problem:
        kind = "nonfinite" if problem.startswith(("nan at", "inf at", "-inf at")) else "wrong"
        return Finding(path, kind, problem, 0.0, n=n, sizes=sizes)
    if 0 < known < ENOUGH:
        return drawn(path, few_of(known), n, sizes, "unjudged", few=known == n)
    tell = f", as far as {known:,} draws tell" if known else ""
    return drawn(path, f"drawn by its law{tell}", n, sizes)


def _hits(draws):
    """What is odd about yes and no, a clause."""
    hits, p = draws.hits, draws.chance
    k, n = int(hits.sum()), hits.numel()
    if count_is_odd(k, n, p):
        return f"{k:,} ones or kept among {n:,} draws of probability {p:.6g}"
    run = runs_of(~hits, 1 - p)
    if run:
        return f"zeros or dropped, {run}"
    run = runs_of(hits, p)
    return f"ones or kept, {run}" if run else ""


def _odd(draws):
    """What is odd about draws, a clause."""
    if int(draws.known.sum()) < ENOUGH or draws.odd:
        return draws.odd
    problem = _hits(draws) if draws.hits is not None else ""
    if not problem and draws.cells is not None:
        problem = unlikely(*draws.cells)
    if problem:
        return problem
    if draws.values is not None:
        again = repeats(some(draws.values), draws.atom)
        if again:
            return again
    return oddity(some(points(draws, 0)), some(draws.known), draws.slack)
