# SPDX-License-Identifier: Apache-2.0
"""`ulpscope check --self-test`: what the verdict would have caught on this trace's data.

Mistakes are planted into the right results of each call and judged as a device's would be:
those with a size are made smaller until they pass, those without are caught or not. Needs
no device. The mistakes are the ones that `causes.diagnose` names. docs/reference/causes.md.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch

from ..calls.foreign import InternalError, foreign, is_ours, our_words
from ..calls.replay import Call, draws_random
from ..calls.call_results import plain
from ..calls.verdicts import FLAGGED
from ..causes import edges, edits, inside
from ..causes import emulate as _emulate
from ..causes.lab import Lab
from ..executors.device import Answer
from ..executors.operands import Operands, Timing
from ..executors.memory_limit import die_with_parent
from ..judges.outputs import judge_outputs

KEPT = 1 << 24  # elements of replays that are kept instead of computed again
MOST_ELEMENTS = 1 << 22
N_FORMULAS = 24
TOLD_EPSILONS = ("missing", "outside", "inside", "0.001 instead of 1e-05", "0.001 instead of 1e-06")
MOST_ENDS = 40  # forks that planted mistakes of one call may end
STEPS = 6  # halvings of the exponent's range


class Remembered(Operands):
    """Operands that keep all their replays where these are small."""

    def replay(self, k: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        if k not in self._replays:
            pair = super().replay(k)
            size = sum(t.numel() for t in self.reference.truth.values())
            if size * 16 > KEPT:
                return pair
            self._replays[k] = pair
        kept: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] = self._replays[k]
        return kept


# ---- one call ------------------------------------------------------------------------


class Bed:
    """A call with its right results, into which mistakes are planted."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.operands = Remembered(call, Timing())
        self.operands.begin()
        reference = self.operands.reference
        native = reference.native() or {}
        self.lab = Lab(call, reference)
        self.dtypes = {p: self._dtype(p, t, native) for p, t in reference.truth.items()}
        self.honest = {p: t.to(self.dtypes[p]) for p, t in reference.yardstick.items()}
        floats = [p for p, t in self.honest.items() if t.is_floating_point() and t.numel()]
        self.path: Any = max(floats, key=lambda p: self.honest[p].numel()) if floats else None

    def _dtype(self, path: str, truth: torch.Tensor, native: dict[str, torch.Tensor]) -> torch.dtype:
        view = self.call.results.get(path) or self.call.views.get(path)
        if view is not None and not view.dtype.is_complex:
            return view.dtype
        return native[path].dtype if path in native else torch.float32

    def caught(self, outputs: dict[str, torch.Tensor]) -> bool:
        """Whether the verdict flags these outputs, given as doubles."""
        given = {}
        for path, honest in self.honest.items():
            new = outputs.get(path, honest)
            low = new.double() if new.is_floating_point() else new
            given[path] = plain(low.to(self.dtypes[path])).contiguous()
        before: dict[str, torch.Tensor] = {}
        findings = judge_outputs(self.operands, Answer(given, "", before))
        return any(f.verdict in FLAGGED for f in findings)

    def changes(self, outputs: dict[str, torch.Tensor]) -> bool:
        """Whether a mistake is one at all on these data."""
        return any(
            path in outputs
            and outputs[path].shape == truth.shape
            and not _same(outputs[path], truth, self.dtypes[path])
            for path, truth in self.operands.reference.truth.items()
        )

    def smallest(self, change: Callable[[torch.Tensor, float], torch.Tensor]) -> float | None:
        """The smallest relative error 2^-b of one kind that is caught, as b; None where
        even the largest passes."""
        truth = self.operands.reference.truth[self.path]

        def seen(b: float) -> bool:
            return self.caught({self.path: change(truth, 2.0**-b)})

        low, high = 0.0, 30.0
        if not seen(low):
            return None
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if seen(middle) else (low, middle)
        return low


def _same(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> bool:
    a, b = a.to(dtype), b.to(dtype)
    return bool(((a == b) | ((a != a) & (b != b))).all())


def noise(truth: torch.Tensor, size: float) -> torch.Tensor:
    """Every element off by up to `size` of itself, up or down."""
    signs = torch.rand(truth.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return truth * (1 + size * (2 * signs - 1))


def factor(truth: torch.Tensor, size: float) -> torch.Tensor:
    return truth * (1 + size)


def one_element(truth: torch.Tensor, size: float) -> torch.Tensor:
    """The element of median size off by `size` of itself."""
    flat = truth.reshape(-1).clone()
    finite = flat.abs().where(flat.isfinite() & (flat != 0), torch.nan)
    i = int((finite - finite.nanmedian()).abs().nan_to_num(nan=torch.inf).argmin())
    flat[i] *= 1 + size
    return flat.reshape(truth.shape)


SIZED = {"noise": noise, "factor": factor, "element": one_element}


def _tail(bed: Bed) -> dict[str, torch.Tensor]:
    truth = bed.operands.reference.truth[bed.path].clone()
    truth.reshape(-1)[-max(1, min(8, truth.numel() // 4)) :] = 0
    return {bed.path: truth}


def planted(bed: Bed) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(text, function) of the mistakes that have no size."""
    yield "dropped tail: zeros instead of the last elements", lambda: _tail(bed)
    truth = bed.operands.reference.truth[bed.path]
    if truth.dim() and truth.shape[-1] > 1:
        yield ("index shifted by one", lambda: {bed.path: truth.roll(1, -1)})
    device = bed.honest[bed.path]
    for text, run in _emulate.result_candidates(bed.lab, device):
        if device.dtype != torch.float32 or "to nearest" not in text:  # half an ulp is honest
            yield text, run
    yield from islice(_emulate.input_candidates(bed.lab), 8)
    inside = (c for c in _emulate.inside_candidates(bed.lab) if c[0].startswith("intermediates"))
    yield from islice(inside, 3)
    yield from islice(_formulas(bed.lab), N_FORMULAS)


def _formulas(lab: Lab) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Some of every kind of a wrong formula."""
    for text, edit in _wrong(lab):
        yield text, partial(lab.run, edit)


def _wrong(lab: Lab) -> Iterator[tuple[str, Any]]:
    for node in lab.nodes():
        for text, edit in edges.together(inside.arguments, [node]):
            several = text.startswith("epsilon is") and not text.endswith(TOLD_EPSILONS)
            if not text.startswith("computes as if") and not several:
                yield text, edit
    yield from inside.epsilon_places(lab)
    yield from edits.optionals(lab)
    for node in lab.nodes():
        yield from islice(edges.together(inside.slices, [node]), 2)


def probe(
    call: Call,
    tell: Callable[[int, dict[str, Any]], Any] | None = None,
    behind: int = -1,
    found: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """
    What the verdict would have caught on a call. `tell(n, found)` hears what is known before the
    n-th mistake without a size; another process goes on from that, behind it.

    A dict: "bits" by kind of sized mistake (the exponent b of the smallest relative error
    2^-b that is caught, None: not even 1), "caught", "unseen" and "idle" (no mistake on
    these data), lists of texts; or "skipped" with the reason.
    """
    if draws_random(call):
        return {"skipped": "draws random numbers"}
    bed = Bed(call)
    if bed.path is None:
        return {"skipped": "integer or no outputs are compared bit by bit"}
    if bed.honest[bed.path].numel() > MOST_ELEMENTS:
        return {"skipped": f"more than {MOST_ELEMENTS:,} elements"}
    if bed.caught({}):
        return {"skipped": "the CPU's own float32 result is flagged"}
    found = found or {"bits": {k: bed.smallest(f) for k, f in SIZED.items()}, "caught": [], "unseen": [], "idle": []}
    for n, (text, emulate) in enumerate(planted(bed)):
        if n <= behind:
            continue
        if tell is not None:
            tell(n, found)
        try:
            outputs = emulate()
            kind = "idle" if not bed.changes(outputs) else "caught" if bed.caught(outputs) else "unseen"
        except Exception as problem:  # not every operator has every mistake
            foreign(problem)
            continue
        if text not in found[kind]:
            found[kind].append(text)
    return found


def probe_apart(call: Call) -> dict[str, Any]:
    """`probe` in a fork, since kernels may not survive what is planted: a mistake that one dies
    of is left out. For a process that lives alone and has no other threads."""
    behind = -1
    found: Any = None
    for _ in range(MOST_ENDS):
        last = _forked(lambda tell, b=behind, f=found: probe(call, tell, b, f))
        if last is None:
            return {"skipped": "the CPU's kernel ends the process"}
        if "internal" in last.get("known", ()):
            raise InternalError(last["known"]["internal"])
        if "known" in last:
            known: dict[str, Any] = last["known"]
            return known
        behind, found = last["n"], last["found"]
    told: dict[str, Any] = found
    return told


def _tried(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return run()
    except Exception as problem:
        if is_ours(problem):
            return {"internal": our_words(problem)}
        return {"skipped": f"no reference: {problem}"[:200]}


def _forked(run: Callable[..., Any]) -> Any:
    """The last that run(tell) told, or {"known": what it gave}; None where it told nothing."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            die_with_parent()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            torch.set_num_threads(1)  # others were left behind
            with os.fdopen(write, "w", buffering=1) as file:
                known = _tried(lambda: run(lambda n, found: file.write(json.dumps({"n": n, "found": found}) + "\n")))
                file.write(json.dumps({"known": known}) + "\n")
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        lines = [line for line in file if line.endswith("\n")]
    os.waitpid(pid, 0)
    return json.loads(lines[-1]) if lines else None
