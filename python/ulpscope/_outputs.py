# SPDX-License-Identifier: Apache-2.0
"""Findings over the outputs of one call: asks `_operands` until the C judge has seen enough.
Serves `_judging`.

The rule is in docs/verdict.md; the escalation here (1, 2, then 4 perturbed replays) only
saves replays where fewer already show that the answer is good.
"""

import math
import time
from dataclasses import dataclass, field, replace

import torch

from . import _core, _discrete, _lost
from ._excuses import excuse
from ._jumps import crossed, forgiven
from ._linear import is_sum_of_products, moved_by_slope, n_products
from ._orders import is_whole
from ._replay import in_memory_order, promises_nothing
from ._ties import aligned, as_good, choice_of, name_of_one
from ._trust import ANOTHER, natural as natural_size
from ._verdicts import clause, rank

LOOKS = (1, 2, 4)  # after so many replays; then the appeal
STEP_REPLAYS = 16  # of what chooses or converts, and runs with other roundings
N_EXAMPLES = 10
JUDGED_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2,
                 torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz)  # fmt: skip
ACCUSED = ("wrong", "reduced")
MOST_BITS_LESS = 3  # elements that only other roundings excuse do not decide the bits alone
ORDER_SLACK = 2.0  # times what one accumulator loses: another may lose more at one element
FEW, FEW_SLACK = 8, 1.25  # of so few none is another's luck
LOSS_WEIGHT = 2.0  # a few losses among the replays: about their own root mean square


@dataclass
class Finding:
    """What is known of one output, or of the call as a whole (path "")."""

    path: str
    verdict: str
    reason: str = ""  # a clause
    bits: float = 24.0
    yardstick_bits: float = 24.0
    bound: bool = False
    n: int = 0
    sizes: tuple = ()
    details: dict = field(default_factory=dict)  # the judge's numbers
    examples: list = field(default_factory=list)
    positions: list = field(default_factory=list)
    judge: object = None
    notes: list = field(default_factory=list)

    def order(self):
        return rank(self.verdict), math.inf if math.isnan(self.bits) else self.bits


# ---- one output ----------------------------------------------------------------------


def judge_outputs(operands, answer):
    """Findings for every output of an answer."""
    truth, promised = operands.reference.truth, answer.outputs.keys() - operands.reference.undefined
    if truth.keys() != promised:
        counts = f"{len(promised)} outputs where the operator has {len(truth)}"
        return [Finding("", "wrong", counts, bits=0.0)]
    answer = replace(answer, outputs=aligned(operands.call, answer.outputs, truth))
    found = [_judged(operands, answer, path) for path in truth]
    if answer.trespass:
        found.append(Finding("", "wrong", answer.trespass, bits=0.0))
    return found or [Finding("", "pass")]


def _judged(operands, answer, path):
    """The finding for one output; `unjudged` where its reference fails."""
    try:
        return _in_own_dtype(operands, answer.outputs[path], _judge_output(operands, answer, path))
    except Exception as problem:
        return Finding(path, "unjudged", f"no reference: {clause(problem)}")


def _in_own_dtype(operands, device, finding):
    """The finding; what is narrower than somebody else's formula gives says so, and what it
    does not hold is excused."""
    native = (operands.reference.native() or {}) if getattr(operands.call, "any_float", False) else {}
    want = native.get(finding.path)
    if want is None or want.shape != device.shape or finding.verdict in ACCUSED:
        return finding
    if device.is_floating_point() and device.element_size() < want.element_size():
        finding.notes.append(f"judged as {_short(device.dtype)}, where the reference gives {_short(want.dtype)}")
        lost = ~device.float().isfinite() & want.isfinite()
        excuse(finding, "dtype", int(lost.sum()))
    return finding


def _judge_output(operands, answer, path):
    device = answer.outputs[path]
    truth = operands.reference.truth[path]
    finding = _shape_and_dtype(operands, path, device, truth)
    if finding is not None:
        return finding
    if promises_nothing(operands.call):
        return Finding(path, "pass", n=device.numel(), sizes=tuple(device.shape))
    scale = operands.reference.quantizes and path.endswith(".scale")
    if scale or not device.dtype.is_floating_point:
        return _judge_exact(operands, path, device)
    if device.dtype not in JUDGED_DTYPES:
        return _judge_bytes(operands, path, device)
    if not truth.is_floating_point():
        return Finding(path, "wrong", "a float where the operator gives integers", bits=0.0)
    return _judge_float(operands, path, device)


def _shape_and_dtype(operands, path, device, truth):
    """A finding where the form is already wrong, else None."""
    if device.shape != truth.shape:
        text = f"shape {list(device.shape)} where the operator gives {list(truth.shape)}"
        return Finding(path, "wrong", text, bits=0.0)
    expected = _expected_dtype(operands, path, device.dtype)
    if expected is not None and device.dtype != expected:
        text = f"dtype {_short(device.dtype)} where the operator gives {_short(expected)}"
        return Finding(path, "wrong", text, bits=0.0)
    return None


def _short(dtype):
    return str(dtype).removeprefix("torch.")


REAL_PART = {torch.complex64: torch.float32, torch.complex128: torch.float64,
             torch.complex32: torch.float16}  # fmt: skip


def _expected_dtype(operands, path, got):
    """The dtype that the operator gives, None where nobody knows. What was captured is
    trusted where it agrees; the CPU is asked only where it does not."""
    views = operands.call.views if path in operands.call.views else operands.call.results
    view = views.get(path)
    if view is not None and REAL_PART.get(view.dtype, view.dtype) == got:
        return got
    native = operands.reference.native()
    if not native or path not in native or _may_differ(operands.call, native[path].dtype, got):
        return None
    return native[path].dtype


def _may_differ(call, expected, got):
    """Where the reference is a formula of somebody else, its float dtype is not the law."""
    any_float = call.composite and call.any_float
    return any_float and expected.is_floating_point and got.is_floating_point


def _judge_float(operands, path, device):
    """The finding for a float output. One that fails is judged again without the steps
    that a perturbed replay took just as the device did, and without the elements of which
    the operator promises nothing."""
    finding = _looked_at(operands, path, device)
    truth = operands.reference.truth[path]
    if finding.verdict == "pass":
        return _not_exact(operands, path, device) or finding
    finding = _excused(operands, path, device, finding)
    if finding.verdict in ("pass", "unjudged"):
        return finding
    # What never rounds had the very values: no step lies between them and the truth.
    if path in operands.reference.jumps and not operands.reference.never_rounds():
        finding = _across_steps(operands, path, device, finding)
    if finding.verdict in ACCUSED:
        finding = _in_another_order(operands, path, device, finding)
    if finding.verdict == "pass":
        return finding
    want = truth.to(device.dtype)
    found = _discrete.unpromised(operands, path, device, device != want)
    if found is None:
        return finding
    rest = _looked_at(operands, path, found.spared)
    if rest.verdict != "pass":
        return excuse(rest, found.code, found.where.sum())
    return _undefined(path, device, found, found.where)


def _across_steps(operands, path, device, finding):
    """The finding, or the one without the elements that took a step to which the inputs are
    so near that another rounding takes it."""
    truth = operands.reference.truth[path]
    spared = forgiven(device, truth, operands.reference.jumps[path])
    if spared is not None:
        finding = excuse(_looked_at(operands, path, spared[1]), "step", spared[0])
    if finding.verdict == "pass":
        return finding
    found = crossed(operands.reference, path, device if spared is None else spared[1])
    if found is None:
        return finding
    before = 0 if spared is None else spared[0]
    again = _looked_at(operands, path, found[1])
    return excuse(again, "step", before + int(found[0].sum()))


def _in_another_order(operands, path, device, finding):
    """The finding, or where that passes the one without the elements that are off by no more than
    one accumulator loses that takes the terms as they come: small ones vanish beside large sums."""
    try:
        most = operands.reference.lost_by_order(path)
    except Exception:  # what does not run in steps
        most = None
    if most is None:
        return finding
    truth = operands.reference.truth[path]
    want, rounding = truth.to(device.dtype), truth.abs() * (torch.finfo(device.dtype).eps / 2)
    reach = most * (ORDER_SLACK if device.numel() >= FEW else FEW_SLACK) + rounding
    where = ((device.double() - truth).abs() <= reach) & (device != want)
    again = _looked_at(operands, path, torch.where(where, want, device))
    if again.verdict != "pass":
        return finding
    again.bits, again.bound = finding.bits, False
    return excuse(again, "order_of_adding", where.sum())


def _undefined(path, device, free, differs):
    finding = Finding(path, "undefined", free.why, n=device.numel(), sizes=tuple(device.shape),
                      details={"n_mismatch": int(differs.sum())})  # fmt: skip
    return excuse(finding, free.code, free.where.sum())


def _not_exact(operands, path, device):
    """A finding where an operator that rounds does not give the exact result, or a sum that no
    order of adding rounds, else None."""
    truth = operands.reference.truth[path]
    if truth.shape != device.shape or not _is_held(operands, path, device):
        return None
    bad = _discrete.inexact(device, truth)
    if not bool(bad.any()):
        return None
    return _discrete_finding(path, device, truth.to(device.dtype), bad, {})


def _is_held(operands, path, device):
    """Whether the exact result alone is right: of roundings, and of sums that are exact in every
    order."""
    if _discrete.is_rounding(operands.call):
        return True
    if device.dtype != torch.float32 or bool((device == operands.reference.truth[path]).all()):
        return False
    return is_whole(operands.reference, path)


def _discrete_finding(path, device, want, bad, details):
    """`wrong` for elements that have to be exact, with the first of them as examples."""
    at = bad.reshape(-1).nonzero().flatten()
    flat, true = device.reshape(-1), want.reshape(-1)
    finding = Finding(
        path, "wrong", f"{len(at):,} elements differ", 0.0, 24.0, False, device.numel(),
        tuple(device.shape), {**details, "n_mismatch": len(at)},
    )  # fmt: skip
    for i in at[:N_EXAMPLES].tolist():
        got, right = float(flat[i]), float(true[i])
        finding.examples.append((i, got, right, right, float("inf")))
    return finding


def _excused(operands, path, device, finding):
    """The finding, or the one without the elements at which float32 itself fails: where NaN
    and Inf hang on the formula, where it has no number or no right bit."""
    if finding.verdict == "nonfinite":
        spared = _lost.with_other_kinds(operands, path, device)
        finding = finding if spared is None else _looked_at(operands, path, spared)
        device = device if spared is None else spared
    if finding.verdict == "pass":
        return finding
    same = finding.verdict == "unjudged"
    lost = (_lost.shared if same else _lost.elements)(operands, path, device)
    if lost is None:
        return finding
    truth = operands.reference.truth[path].to(device.dtype)
    others = _looked_at(operands, path, torch.where(lost, truth, device))
    if others.verdict != "pass" and (same or others.verdict != "unjudged"):
        return finding
    text = f"float32 itself overflows at {int(lost.sum()):,} of {lost.numel():,} elements"
    if same:
        others.notes.append(text + ", as the device does")
        return others
    return Finding(path, "unjudged", text, n=others.n, sizes=others.sizes)


def _looked_at(operands, path, device):
    """Asks for replays until the judge has seen enough."""
    truth, yardstick = operands.reference.truth[path], operands.reference.yardstick[path]
    if truth.shape != yardstick.shape == device.shape:
        truth = yardstick.double()  # the shape hangs on values: no closer truth is to be had
    now = time.perf_counter_ns()
    pairs = path in operands.reference.pairs
    judge = _core.Judge(*in_memory_order(pairs, device, truth, yardstick), pairs=pairs)
    found = judge.look()
    operands.timing.add("judge", now)
    if found["verdict"] == "pass":
        return _float_finding(path, device, judge, found)  # right beside |R| alone
    short = _closed_form(operands, path, device)
    if short is not None:
        return short
    if operands.is_another_function(path):
        return Finding(path, "unjudged", ANOTHER, n=device.numel(), sizes=tuple(device.shape))
    if not device.is_contiguous():
        judge = _core.Judge(device, truth, yardstick, pairs=pairs)  # tells places
    found = _feed(operands, judge.first, path, 0)
    for fed, upto in zip(LOOKS, LOOKS[1:]):
        if not found["needs_appeal"]:
            break
        for k in range(fed, upto):
            _feed(operands, judge.replay, path, k)
        now = time.perf_counter_ns()
        found = judge.look()
        operands.timing.add("judge", now)
    if found["needs_appeal"]:
        found = _appeal(operands, judge, path, found["exact"])
    if found["verdict"] in ACCUSED and not operands.reference.never_rounds():
        found = _last_appeal(operands, judge, path)
    return _float_finding(path, device, judge, found)


def _closed_form(operands, path, device):
    """The finding where the slopes of a linear operator already show that an output is
    good; None for all others."""
    if not is_sum_of_products(operands.call):
        return None
    now = time.perf_counter_ns()
    try:
        moved = moved_by_slope(operands.reference, path)
    except Exception:  # an argument that has no square: replays will do
        moved = None
    now = operands.timing.add("perturbed", now)
    if moved is None:
        return None
    truth, yardstick = operands.reference.truth[path], operands.reference.yardstick[path]
    pairs = path in operands.reference.pairs
    *three, moved = in_memory_order(pairs, device, truth, yardstick, moved)
    judge = _core.Judge(*three, pairs=pairs)
    found = judge.first(moved, moved)
    now = operands.timing.add("judge", now)
    if found["needs_appeal"]:
        fan_in = n_products(operands.reference, path)
        now = operands.timing.add("perturbed", now)
        found = judge.appeal(fan_in=fan_in, movement=False)
        operands.timing.add("judge", now)
    if found["verdict"] != "pass":
        return None
    found["bound"] = found["n_mismatch"] > 0  # without N, bits are a lower bound
    return _float_finding(path, device, judge, found)


def _last_appeal(operands, judge, path):
    """Adds what float32 loses further away to the yardstick of every element, and nothing
    to its slope; then what it loses when its steps round otherwise. The latter may acquit,
    but bits are counted without it: a device's own functions are no yardstick."""
    found = _with_losses(operands, judge, path, operands.reference.losses(path))
    if found["verdict"] not in ACCUSED:
        return found
    again = _with_losses(operands, judge, path, operands.reference.noises(path))
    if again["verdict"] in ACCUSED:
        again["bits"] = max(min(found["bits"], again["bits"]), again["bits"] - MOST_BITS_LESS)
    return again


def _with_losses(operands, judge, path, losses):
    """The appeal with more losses of float32, each as a replay that did not move."""
    wide, narrow = operands.replay(0)
    now = time.perf_counter_ns()
    try:
        for lost in losses:
            if wide[path].shape == lost.shape:
                low = wide[path] + LOSS_WEIGHT * lost
                judge.replay(wide[path], torch.where(low.isfinite(), low, narrow[path].double()))
    except Exception:  # the operator does not exist there: nothing is learnt
        pass
    operands.timing.add("perturbed", now)
    return _appeal(operands, judge, path, False)


def _feed(operands, take, path, k):
    """What `take`, a method of the judge, says to one perturbed replay; where the
    operator's shape depends on values, the unperturbed result stands in for it."""
    wide, narrow = operands.replay_of(path, k)
    truth = operands.reference.truth[path]
    if path in wide and wide[path].shape == truth.shape == narrow[path].shape:
        pair = wide[path], narrow[path]
    else:
        pair = truth, operands.reference.yardstick[path]
    now = time.perf_counter_ns()
    said = take(*pair)
    operands.timing.add("judge", now)
    return said


def _appeal(operands, judge, path, exact):
    fan_in, natural = operands.fan_in(path), natural_size(operands.reference, path)
    movement = exact and operands.reference.never_rounds()
    found = None
    for flushed in operands.flushed(path) or [None]:
        now = time.perf_counter_ns()
        found = judge.appeal(fan_in, movement, flushed, natural)
        operands.timing.add("judge", now)
        if found["verdict"] == "pass":
            break
    return found


def _float_finding(path, device, judge, found):
    found["wide"] = device.dtype in (torch.float64, torch.complex128)
    finding = Finding(
        path, found["verdict"], found["reason"], found["bits"], found["yardstick_bits"],
        found["bound"], found["n"], tuple(device.shape), found, judge=judge,
    )  # fmt: skip
    if finding.verdict != "unjudged":  # which says it itself
        excuse(finding, "ill_conditioned", found.get("n_ill", 0))
    if found["flushes"]:
        finding.notes.append("flushes subnormals")
    finding = excuse(finding, "flushed", found["n_flushed"])
    n_odd = found["n"] - found["n_finite"]
    if n_odd:
        finding.notes.append(
            f"truth is NaN or Inf at {n_odd:,} of {found['n']:,} elements" if found["n_finite"]
            else "nothing finite to judge")
    if finding.verdict != "pass":
        finding.examples = judge.worst(N_EXAMPLES)
        finding.positions = judge.positions()
    return finding


def _judge_exact(operands, path, device):
    """Integers and booleans; an index may differ where it selects an equal value."""
    native = operands.reference.native() or operands.reference.yardstick
    want = native[path]
    if want.dtype != device.dtype or want.shape != device.shape:
        return Finding(path, "unjudged", "no reference in this dtype on the CPU")
    now = time.perf_counter_ns()
    found = _core.exact(device, want)
    operands.timing.add("judge", now)
    n, sizes = found["n"], tuple(device.shape)
    if found["verdict"] == "pass":
        return Finding(path, "pass", found["reason"], found["bits"], n=n, sizes=sizes,
                       details=found)  # fmt: skip
    open_ = differs = _open(operands, path, device, want)
    if not bool(open_.any()):
        return Finding(path, "pass", n=n, sizes=sizes, notes=["ties broken otherwise"])
    free = _discrete.unpromised(operands, path, device, open_)
    if free is not None:
        open_ = differs & ~free.where
        if not bool(open_.any()):
            return _undefined(path, device, free, differs)
    return _discrete_finding(path, device, want, open_, found)


def _open(operands, path, device, want):
    """Which integers that differ are not right all the same: an index may select an equal
    value, and what was computed before may lie so near a step that a replay, or another
    rounding, crosses it too."""
    open_ = device != want
    good = as_good(choice_of(operands.call, path), device, want)
    if good is not None:
        open_ &= ~good
    call = operands.call
    quantizes = operands.reference.quantizes or "fake_quant" in name_of_one(call)
    if not quantizes and (not call.composite or call.steps <= 1):
        return open_
    for others in _admissible(operands):
        if not bool(open_.any()):
            break
        if path in others and others[path].shape == device.shape:
            open_ &= device != others[path]
    return open_


def _admissible(operands):
    """What a callable gives where its inputs, or its roundings, fall otherwise."""
    for k in range(STEP_REPLAYS):
        yield from operands.replay(k)
    if operands.call.composite:
        yield from operands.reference.roundings(STEP_REPLAYS)


def _judge_bytes(operands, path, device):
    """Dtypes that the judge does not compute with: equal to the CPU's own, or unjudged."""
    native = operands.reference.native()
    same = native and path in native and native[path].dtype == device.dtype and torch.equal(
        native[path].contiguous().view(torch.uint8), device.contiguous().view(torch.uint8)
    )
    if same:
        return Finding(path, "pass", n=device.numel(), sizes=tuple(device.shape))
    return Finding(path, "unjudged", f"{_short(device.dtype)} is not judged yet")
