# SPDX-License-Identifier: Apache-2.0
"""One call, one verdict: runs it on the device, asks `_reference` for operands until the
C judge has seen enough, and puts the result into words. Nothing here raises because of
what an operator or a device does: that is a verdict.

The rule is in docs/verdict.md; the escalation here (1, 4, then 16 perturbed replays) only
saves replays where fewer already show that the answer is good.
"""

import time
from dataclasses import dataclass, field

import torch

from . import _core, _diagnose
from ._device import DeviceDied, is_uninitialised, lacks, learn_writes
from ._reference import Reference
from ._replay import Unsupported, base_name, draws_random
from ._verdicts import FLAGGED, rank

LOOKS = (1, 4, 16)
N_EXAMPLES = 10
JUDGED_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

INDEX_OPS = {
    "argmax", "argmin", "max", "min", "topk", "sort", "argsort", "kthvalue", "median",
    "nanmedian", "mode", "cummax", "cummin", "msort", "_cummax_helper", "_cummin_helper",
}  # fmt: skip
REPEATING = {"cummax", "cummin", "_cummax_helper", "_cummin_helper"}


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
        return rank(self.verdict), self.bits


class Timing:
    """Nanoseconds per part of the work on one call."""

    def __init__(self):
        self.device = self.reference = self.perturbed = self.judge = 0
        self.start = time.perf_counter_ns()

    def add(self, part, since):
        now = time.perf_counter_ns()
        setattr(self, part, getattr(self, part) + now - since)
        return now

    def row(self):
        total = time.perf_counter_ns() - self.start
        return {"t_device": self.device, "t_reference": self.reference,
                "t_perturbed": self.perturbed, "t_judge": self.judge, "t_total": total}  # fmt: skip


class Operands:
    """Truth, yardstick and replays of one call, each computed once and shared by
    everything that is judged against them."""

    def __init__(self, call, timing):
        self.call, self.timing = call, timing
        self.reference = Reference(call)
        self._replays = {}
        self._flushed = None

    def begin(self):
        now = time.perf_counter_ns()
        self.reference.begin()
        self.timing.add("reference", now)

    def replay(self, k):
        """Truth and yardstick on perturbed input k; the first is kept, as it is what
        every look begins with."""
        if k in self._replays:
            return self._replays[k]
        now = time.perf_counter_ns()
        pair = self.reference.replay(k)
        self.timing.add("perturbed", now)
        if k == 0:
            self._replays[k] = pair
        return pair

    def flushed(self, path):
        if self._flushed is None:
            now = time.perf_counter_ns()
            self._flushed = self.reference.flushed()
            self.timing.add("perturbed", now)
        return self._flushed.get(path)

    def fan_in(self, path):
        now = time.perf_counter_ns()
        fan = self.reference.fan_in(path)
        self.timing.add("perturbed", now)
        return fan


# ---- one output ----------------------------------------------------------------------


def judge_outputs(operands, answer):
    """Findings for every output of an answer."""
    truth = operands.reference.truth
    if truth.keys() != answer.outputs.keys():
        counts = f"{len(answer.outputs)} outputs where the operator has {len(truth)}"
        return [Finding("", "wrong", counts, bits=0.0)]
    found = [judge_output(operands, answer, path) for path in truth]
    if answer.trespass:
        found.append(Finding("", "wrong", answer.trespass, bits=0.0))
    return found or [Finding("", "pass")]


def judge_output(operands, answer, path):
    """The finding for one output."""
    device = answer.outputs[path]
    truth = operands.reference.truth[path]
    finding = _shape_and_dtype(operands, path, device, truth)
    if finding is not None:
        return finding
    if is_uninitialised(operands.call.op):
        return Finding(path, "pass", n=device.numel(), sizes=tuple(device.shape))
    if not device.dtype.is_floating_point:
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
    return native[path].dtype if native and path in native else None


def _judge_float(operands, path, device):
    """Asks for replays until the judge has seen enough."""
    reference = operands.reference
    judge = _core.Judge(device, reference.truth[path], reference.yardstick[path])
    fed = 0
    found = None
    for upto in LOOKS:
        for k in range(fed, upto):
            _feed(operands, judge, path, k)
        fed = upto
        now = time.perf_counter_ns()
        found = judge.look()
        operands.timing.add("judge", now)
        if not found["needs_appeal"]:
            break
        if upto == LOOKS[0]:
            continue
        found = _appeal(operands, judge, path, found["exact"])
        if found["verdict"] == "pass":
            break
    return _float_finding(path, device, judge, found)


def _feed(operands, judge, path, k):
    """One perturbed replay; where the operator's shape depends on values, the unperturbed
    result stands in for it."""
    wide, narrow = operands.replay(k)
    truth = operands.reference.truth[path]
    if path in wide and wide[path].shape == truth.shape == narrow[path].shape:
        pair = wide[path], narrow[path]
    else:
        pair = truth, operands.reference.yardstick[path]
    now = time.perf_counter_ns()
    judge.replay(*pair)
    operands.timing.add("judge", now)


def _appeal(operands, judge, path, exact):
    fan_in = operands.fan_in(path)
    movement = exact and operands.reference.moves_only(path)
    flushed = operands.flushed(path)
    now = time.perf_counter_ns()
    found = judge.appeal(fan_in=fan_in, movement=movement, flushed=flushed)
    operands.timing.add("judge", now)
    return found


def _float_finding(path, device, judge, found):
    finding = Finding(
        path, found["verdict"], found["reason"], found["bits"], found["yardstick_bits"],
        found["bound"], found["n"], tuple(device.shape), found, judge=judge,
    )  # fmt: skip
    if found["flushes"]:
        finding.notes.append("flushes subnormals")
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
    finding = Finding(path, found["verdict"], found["reason"], found["bits"], 24.0,
                      False, found["n"], tuple(device.shape), found)  # fmt: skip
    if finding.verdict != "pass":
        if _selects_equal(operands.call, operands.reference, path, device, want):
            return Finding(path, "pass", n=found["n"], sizes=tuple(device.shape),
                           notes=["ties broken otherwise"])  # fmt: skip
        flat, true = device.flatten(), want.flatten()
        i = found["i_worst"]
        score = float("inf")
        finding.examples = [(i, float(flat[i]), float(true[i]), float(true[i]), score)]
    return finding


def _judge_bytes(operands, path, device):
    """Dtypes that the judge does not compute with: equal to the CPU's own, or unjudged."""
    native = operands.reference.native()
    same = native and path in native and native[path].dtype == device.dtype and torch.equal(
        native[path].contiguous().view(torch.uint8), device.contiguous().view(torch.uint8)
    )
    if same:
        return Finding(path, "pass", n=device.numel(), sizes=tuple(device.shape))
    return Finding(path, "unjudged", f"{_short(device.dtype)} is not judged yet")


def _selects_equal(call, reference, path, got, want):
    """Whether an index output points at values equal to the right ones: a tie that was
    broken otherwise. No index may occur twice along the dimension."""
    name = base_name(call.op)[1]
    source = next(iter(call.views), None)
    if source is None or got.dtype != torch.int64:
        return False
    part = reference.parts[call.views[source].storage, call.views[source].dtype]
    view = call.views[source]
    x = part.data.as_strided(view.sizes, view.strides, view.offset - part.first)
    if name.startswith("max_pool2d_with_indices"):
        return _same_pool_choice(x, got, want, call.value("kernel_size"))
    if name not in INDEX_OPS:
        return False
    dim = call.value("dim", -1 if name in ("topk", "sort", "argsort", "kthvalue") else None)
    if dim is None:
        x, dim = x.flatten(), 0
        got, want = got.reshape(-1), want.reshape(-1)
    if x.dim() == 0:
        return False
    if got.dim() < x.dim():
        got, want = got.unsqueeze(dim), want.unsqueeze(dim)
    if not bool(((got >= 0) & (got < x.shape[dim])).all()):
        return False
    if name not in REPEATING and got.shape[dim] > 1:
        if bool((got.sort(dim)[0].diff(dim=dim) == 0).any()):
            return False
    a, b = x.gather(dim, got), x.gather(dim, want)
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _same_pool_choice(x, got, want, kernel):
    """Equal values within one window's reach of the right place."""
    kernel = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
    values, width = x.flatten(-2), x.shape[-1]
    if not bool(((got >= 0) & (got < values.shape[-1])).all()):
        return False
    a = values.gather(-1, got.flatten(-2))
    b = values.gather(-1, want.flatten(-2))
    near = ((got // width - want // width).abs() < kernel[0]) & (
        (got % width - want % width).abs() < kernel[-1]
    )
    return bool(((a == b) | ((a != a) & (b != b))).all()) and bool(near.all())


# ---- one call ------------------------------------------------------------------------


@dataclass
class Verdict:
    """What is said of one call."""

    verdict: str
    findings: list = field(default_factory=list)
    reason: str = ""
    cause: str = ""
    culprit: str = ""
    notes: list = field(default_factory=list)
    answer: object = None
    operands: object = None

    @property
    def worst(self):
        """The finding that decided."""
        return min(self.findings, key=Finding.order) if self.findings else None


def judge_call(call, device, timing=None, mark=lambda phase: None):
    """
    Judges one call on a device.

    `mark(phase)` is told "device", "reference" before each part begins, so that whoever
    watches this process knows where it died. Raises DeviceDied only.
    """
    timing = timing or Timing()
    mark("device")
    now = time.perf_counter_ns()
    try:
        answer = device.run(call)
        if answer.trespass and learn_writes(call):
            answer = device.run(call)
    except Unsupported as problem:
        return _refused(call, str(problem))
    except DeviceDied:
        raise
    except Exception as problem:
        return Verdict("unjudged", reason=f"the call could not be run: {_clause(problem)}")
    finally:
        timing.add("device", now)
    mark("reference")
    if draws_random(call):
        return Verdict("unjudged", reason="draws random numbers", answer=answer)
    verdict = _judge_answer(call, answer, timing)
    if verdict.operands is None:
        return verdict
    return _settle(call, device, verdict, timing, mark)


def _refused(call, text):
    """The device raised: it lacks the operator, or refuses what the CPU accepts."""
    if lacks(text):
        return Verdict("unsupported", reason=text)
    if Reference(call).native() is None:
        return Verdict("unjudged", reason=f"device and CPU both refuse the call: {text}")
    return Verdict("unsupported", reason=f"the device refuses what the CPU accepts: {text}")


def _clause(problem):
    text = " ".join(str(problem).split("\n\n")[0].split())
    return (text or type(problem).__name__)[:300]


def _judge_answer(call, answer, timing, operands=None):
    """The verdict over one answer; `unjudged` with the reason where anything fails."""
    try:
        if operands is None:
            operands = Operands(call, timing)
            operands.begin()
        findings = judge_outputs(operands, answer)
    except Exception as problem:
        return Verdict("unjudged", reason=f"no float64 reference: {_clause(problem)}",
                       answer=answer)  # fmt: skip
    verdict = Verdict("pass", findings, answer=answer, operands=operands)
    verdict.verdict = verdict.worst.verdict
    verdict.notes = sorted({n for f in findings for n in f.notes})
    return verdict


def _settle(call, device, verdict, timing, mark):
    """Second opinions: the captured run's own results, another run of the device, and
    whether the operator is deterministic at all. Then the cause."""
    live = _live_answer(call, device, verdict.answer)
    if live is not None and not _same_bits(live, verdict.answer):
        judged = _judge_answer(call, live, timing, verdict.operands)
        verdict = _weigh(verdict, "the replay", judged, "the captured run")
    if verdict.verdict not in FLAGGED:
        return verdict
    now = time.perf_counter_ns()
    is_random = verdict.operands.reference.is_random()
    timing.add("reference", now)
    if is_random:
        return Verdict("unjudged", reason="draws random numbers", answer=verdict.answer)
    if verdict.verdict != "intermittent":
        verdict = _run_again(call, device, verdict, timing, mark)
    now = time.perf_counter_ns()
    verdict.cause = _diagnose.cause_of(call, verdict)
    timing.add("perturbed", now)  # emulations are replays too
    return verdict


def _live_answer(call, device, answer):
    """What the captured run got, where it ran on this type of device and all was kept."""
    if device.type != device.home or call.live is None or call.made_up:
        return None
    outputs = {}
    for path in answer.outputs:
        role = "mutated" if path in call.views else "out"
        tensor = call.live(path, role)
        if tensor is None:
            return None
        outputs[path] = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return type(answer)(outputs, "", answer.before)


def _same_bits(a, b):
    return all(
        p in b.outputs
        and t.dtype == b.outputs[p].dtype
        and t.shape == b.outputs[p].shape
        and torch.equal(_as_bytes(t), _as_bytes(b.outputs[p]))
        for p, t in a.outputs.items()
    )


def _as_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _run_again(call, device, verdict, timing, mark):
    """Runs a call that did not pass once more: a device that then gives an acceptable
    answer is not wrong, but unreliable."""
    mark("device")
    now = time.perf_counter_ns()
    try:
        answer = device.run(call)
    except (Unsupported, RuntimeError):
        return verdict
    finally:
        timing.add("device", now)
    mark("reference")
    if _same_bits(answer, verdict.answer) and answer.trespass == verdict.answer.trespass:
        return verdict
    again = _judge_answer(call, answer, timing, verdict.operands)
    return _weigh(verdict, "one run", again, "another run of the same call")


def _weigh(first, first_name, second, second_name):
    """One verdict from two answers to the same call."""
    bad = [v for v in (first, second) if v.verdict in FLAGGED]
    if not bad:
        first.notes.append("differs from run to run, within rounding")
        return first
    worse = min(bad, key=lambda v: rank(v.verdict))
    if len(bad) == 2:
        worse.notes.append("differs from run to run")
        return worse
    names = (first_name, second_name) if worse is first else (second_name, first_name)
    worse.reason = f"{names[0]} is {worse.verdict}, {names[1]} passes: {worse.worst.reason}"
    worse.verdict = "intermittent"
    return worse
