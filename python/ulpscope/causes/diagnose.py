# SPDX-License-Identifier: Apache-2.0
"""The cause of a verdict: right or silent.

A mistake is named when its emulation on the CPU reproduces what the device gave: the same
bits on 99 % of the elements that rounding does not explain, or errors at least 8 times
smaller than those against the truth. Damage to a few elements is named by its place and
content; noise whose emulation only correlates with it, by its format. docs/reference/causes.md.
What the result alone shows: `evidence`; the mistakes: `emulate`, `edits`.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.foreign import foreign, tried
from . import claims, emulate, fit, inside, rivals, sums
from .claims import BOTH, SEEN, format_of, formats_of, is_barred, is_of_any, is_one_sided, names_range, stale, vagueness
from .edges import MOST_SINGLE
from .evidence import LEFT_MOST, Evidence, content, put_right, reals, with_factors
from .lab import TWINS, Lab
from .meanings import EPSILONS, MEANINGS, NUMBERS, VARIANTS, WHOLE, made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from .process import Limit
    from ..calls.replay import Call
    from ..executors.precision_runs import Outputs
    from ..executors.reference_runs import Reference

CERTAIN = 2.0**-7  # so little of the error left, in rounding alone, leaves no room for a rival
MOST_ELEMENTS = 1 << 26  # beyond this, one emulation costs more than its answer is worth
GROSS = 2.5  # bits: what has fewer is hardly noise of a format
COARSE = 4.0  # bits: of what has fewer, noise of a format says less
NOISE = 0.4  # share of the time after which noise may be something else than a sum's
MEANING = 0.75  # share of the time that mistakes of meaning leave to those of precision
BY_BITS = "inputs and result"  # of which the result's own rounding is followed whatever the inputs were
OTHERWISE = ("overflow", "softmax without", "subnormals", "result")  # begins formats that a range or a grid shows
LEAST_ERRORS = 8  # of their own, that a format has to explain
FOLLOWS = 0.85  # correlation with rounding that leaves no room for another mistake
FOLLOWS_STEPS = 0.97  # the same of a narrow result, where a wrong constant leads to the next number as often, and
#                       where so much is off that it may be what becomes zero, rather than what is rounded
NAMED, HINTS = 0.3, 4.0  # correlation with noise that names its format; standard deviations worth a remark
HALFWAY = 0.5  # as far chance may go with the errors, beyond which a format has to go further than usual
BITS = 2.0**-14  # of the error, where one number alone is told
ALIKE, FACTOR = 0.85, 0.95  # correlations this close cannot be told apart; of a factor, which has no chance


def search(call: Call, verdict: Any, limit: Limit, known: str = "") -> tuple[str, str]:
    """(a short clause on why a call does not pass, "" where nothing explains it; another one on which
    places are off). `limit` says how long that may take; with `known` only that mistake is tried. Runs
    what may not survive it: `process` alone calls this."""
    place = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is wrong on purpose may well be warned of
            search = Search(call, verdict, limit, known)
            place = search.place("")
            text = search.cause()
            return text, search.place(text)
    except Exception as problem:  # a diagnosis that fails is one that does not know
        foreign(problem)
        return "", place


class Search:
    """Goes through the mistakes, the cheap and certain ones first."""

    def __init__(self, call: Call, verdict: Any, limit: Limit, known: str = "") -> None:
        self.call, self.verdict = call, verdict
        known = known.removeprefix(f"{SEEN}: ")
        self.limit = limit
        self.known = {known, *(known.replace(BOTH, n) for n in BOTH.split(" or "))} if known else None
        self.reference: Reference = verdict.operands.reference
        self.worst: _core.Finding = verdict.worst
        self.lab = Lab(call, self.reference)
        self.outputs = {
            p: put_right(t, self.reference.truth.get(p), (self.reference.native() or {}).get(p))
            for p, t in verdict.answer.outputs.items()
        }
        self.accused: dict[str, Evidence] = {}
        self.fine: dict[str, Evidence] = {}
        for f in verdict.findings:
            if self._usable(f.path):
                good = f.verdict in ("pass", "unjudged")
                kept = self.fine if good else self.accused
                facts = {} if good else self._known_of(f)
                kept[f.path] = Evidence(self.outputs[f.path], self.truth(f.path), self._yardstick(f.path), **facts)
        self.path = self._decisive()
        self.best, self.text, self.sure = LEFT_MOST, "", True
        self.alone = LEFT_MOST / 2, ""  # (residual, text): in one output, others beside it
        self.shown, self.where = False, ""  # whether the result alone shows where a range ends; what is off
        self.followed: list[tuple[float, str, float]] = []  # (correlation, text, that of as much noise by chance)
        self.formats = formats_of(call, self.outputs)

    def _decisive(self) -> str:
        """The output that tells most: values rather than the positions that go with them, which
        ties leave open."""
        floats = {p: e for p, e in self.accused.items() if e.floats}
        if floats and len(floats) < len(self.accused):
            self.accused = floats
            return self.worst.path if self.worst.path in floats else next(iter(floats))
        return self.worst.path

    def _usable(self, path: str) -> bool:
        device = self.outputs.get(path)
        truth = self.truth(path)
        if device is None or truth is None or device.shape != truth.shape:
            return False
        return bool(0 < device.numel() <= MOST_ELEMENTS and device.is_floating_point() == truth.is_floating_point())

    def truth(self, path: str) -> torch.Tensor:
        truth = self.reference.truth.get(path)
        if truth is None or truth.is_floating_point():
            return truth
        native, device = (self.reference.native() or {}).get(path, truth), self.outputs.get(path)
        if device is None or not device.shape == native.shape == truth.shape:
            return native
        return torch.where(device == truth, truth.to(native.dtype), native)  # either is right

    def _yardstick(self, path: str) -> torch.Tensor:
        found = self.reference.yardstick.get(path)
        truth = self.truth(path)
        return found if found is not None and found.shape == truth.shape else truth

    # ---- the order of questions ----

    def cause(self) -> str:
        """The name, "looks like ..." for one that comes near without giving the same numbers."""
        text = self._answer()
        if text.startswith("epsilon is ") and text == self.text:
            text = self.text = rivals.other_epsilon(
                self.lab, self.accused[self.path], self.path, text, self.best, made(self.lab, EPSILONS), self._spend
            )
        fits = text == self.text and not self.sure
        return f"{SEEN}: {text}" if text and fits and not text.startswith(SEEN) else text

    def place(self, text: str) -> str:
        """Which places are off, where that is not most of all and `text` does not say it."""
        evidence = self.accused.get(self.path)
        self.where = self.where or (evidence.place(text) if evidence else "")
        return evidence.place(text) if evidence else ""

    def _answer(self) -> str:
        path = self.path
        if path not in self.accused:
            device, truth = self.outputs.get(path), self.truth(path)
            known = device is not None and truth is not None and device.shape != truth.shape
            return _core.cause_of_shape(reals(device), reals(truth)) if known else ""
        first = self._lost_elsewhere() or self._padded_choice()
        if first:
            return first
        code, text, _ = self.accused[path].ask("plain")
        self.shown, text = bool(code), stale(text, self.verdict.answer.earlier)
        if code == "all_zero":
            return self._underflow(text)
        if claims.is_nothing(self.outputs[self.path], self.truth(self.path)):
            return text
        if code in ("saturated", "constant"):
            return self._stopped() or text
        return text or self._nonfinite() or self._whole() or self._uncertain()

    def _known_of(self, finding: _core.Finding) -> dict[str, Any]:
        """What else a result may be taken for: what was there, arguments, other outputs; and the
        arguments that may be indices of its rows."""
        device, whole = self.outputs[finding.path], (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
        inputs = {
            v.argument or p: content(self.reference, v)
            for p, v in self.call.views.items()
            if v.dtype in whole or v.dtype.is_floating_point
        }
        heads = device.dim() == 4 and self.lab.gives(finding.path, "attention")
        inputs |= self.verdict.answer.earlier
        return {
            "before": self.verdict.answer.before.get(finding.path),
            "inputs": inputs,
            "others": {p: t for p, t in self.reference.truth.items() if p != finding.path},
            "verdict": self.verdict.verdict,
            "bits": finding.bits,
            "odd_is_excused": finding.verdict != "nonfinite",
            "heads": heads,
            "parts": finding.path in self.reference.pairs,
        }

    def _padded_choice(self) -> str:
        """A number that counts in a minimum or a maximum as if among its terms."""
        _, text, _ = self.accused[self.path].ask("clip")
        shapes = {n.shape for n in self.lab.nodes() if n.name in inside.CHOICES}  # on the way they have others
        if not text or tuple(self.outputs[self.path].shape) not in shapes:
            return ""
        return f"{text}, as where a padding counts in the {'maximum' if 'below' in text else 'minimum'}"

    def _lost_elsewhere(self) -> str:
        """What is said of an argument that must be written and is as it was, while what is
        returned is a part of it."""
        for path in self.accused.keys() - {self.path}:
            there = self.verdict.answer.before.get(path) is not None
            code, text, _ = self.accused[path].ask("plain") if there else ("", "", 0.0)
            if code == "lost":
                return text
        return ""

    def _stopped(self) -> str:
        """Sums that all end at one limit: an accumulator too coarse to take another term."""
        evidence = self.accused[self.path]
        if evidence.floats and evidence.errors()["far"] > self.outputs[self.path].numel() // 2 and self._adds():
            self._try(emulate.accumulator_candidates(self.lab))
        return self.text

    def _whole(self) -> str:
        """Mistakes that concern the whole result."""
        evidence, device = self.accused[self.path], self.outputs[self.path]
        self._try(sums.stalled_candidates(self.lab))
        code, scale, left = evidence.ask("size")
        if code and left <= 1:
            return self._better_than(code, scale, left)
        gross = self.worst.bits < GROSS and len(self.lab.nodes()) > MOST_SINGLE
        if gross:  # no format leaves so little, and to try them all takes long
            self._try(made(self.lab, MEANINGS), share=MEANING)
        if evidence.floats:
            self._try(emulate.result_candidates(self.lab, device))
        self._try(emulate.input_candidates(self.lab), follow=True)
        self._try(emulate.inside_candidates(self.lab), follow=True)
        mixed = evidence.errors()["mixed"]
        if mixed and self._adds():  # noise: of sums before anything else
            self._try(emulate.accumulator_candidates(self.lab), follow=True, share=NOISE)
        narrow = max(self.followed, default=(0.0,))[0] >= FOLLOWS
        brief = narrow and mixed
        self._try(made(self.lab, NUMBERS if brief else () if gross else MEANINGS), share=MEANING)
        if evidence.floats:
            if not brief:
                self._try(fit.fitted(self.lab, evidence, self.path, self._spend))
            self._try(emulate.function_candidates(self.lab), follow=True)
            self._try(emulate.single_candidates(self.lab), follow=True)
            self._try(emulate.several_candidates(self.lab, self._follows, self._spend), follow=True)
            self._try(emulate.accumulator_candidates(self.lab), follow=True)
        return (self.text if self.sure else "") or self.alone[1] or scale or self.text or evidence.ask("order")[1]

    def _better_than(self, code: str, scale: str, left: float) -> str:
        """A factor or an amount has a better name where a variant of the operator gives it
        as well."""
        if code == "sign":
            return scale
        few = self.accused[self.path].errors()["few_values"]  # of which a part of a sum is any factor
        self._try((t, e) for t, e in made(self.lab, WHOLE if few else VARIANTS) if not t.startswith("computes"))
        if few:
            self._try(emulate.result_candidates(self.lab, self.outputs[self.path]))
            self._try(emulate.input_candidates(self.lab))
        if self._adds():
            self._try(emulate.accumulator_candidates(self.lab))
        better = self.text and self.best <= max(left if left < 1 else 0.0, CERTAIN / 4)
        return self.text if better else scale

    def _nonfinite(self) -> str:
        """NaN and Inf out of place: overflow of a lower format, a variant."""
        evidence = self.accused[self.path]
        _, text, _ = evidence.ask("kinds")
        if not text or self._overflow():
            return self.text
        if evidence.errors()["finite"] >= 16:  # what is off is not NaN and Inf alone
            self._try(made(self.lab, MEANINGS), share=MEANING)
        return self.text or text

    def _underflow(self, text: str) -> str:
        """A better name than `text` where a narrower range makes zeros of all there is."""
        if not (truth := self.truth(self.path)).is_floating_point():
            return text
        if self.lab.reaches(emulate.SQUARES):
            self._overflow()
        if float(truth[truth.isfinite()].abs().max()) <= 2.0**-9:
            for made in (emulate.input_candidates(self.lab), emulate.inside_candidates(self.lab)):
                self._try((t, run) for t, run in made if "float16" in t and "bfloat16" not in t or "flush" in t)
        return f"{text}, or {self.text}: these data cannot tell" if self.text else text

    def _overflow(self) -> str:
        """A formula or a format whose intermediates overflow."""
        self._try(emulate.overflow_candidates(self.lab))
        return self.text

    def _uncertain(self) -> str:
        """Noise whose emulation goes with it, then what the place alone tells."""
        evidence = self.accused[self.path]
        text = (
            sums.noisy(self.lab, evidence, self.path)
            or evidence.ask("clip")[1]
            or evidence.ask("side")[1]
            or self._followed()
        )
        if text:
            return text
        some = [] if self._by_chance() else self.followed
        evidence.hint(self._adds(), {format_of(t) for v, t, _ in some if v * self._count() ** 0.5 > HINTS})
        return evidence.ask("places")[1]

    def _followed(self) -> str:
        """The format whose rounding the errors follow, unless they follow noise of that size at the
        same place as well, as they do where the truth itself is rounded on the way."""
        alike = self._alike()
        if not alike or self._by_chance():
            return ""
        value, text, _ = max(alike, key=lambda f: ("truncated" not in f[1], f[0]))
        chancy = max(reach for _, _, reach in alike) > HALFWAY
        if chancy and value < (FOLLOWS_STEPS if text.startswith("accumulated") else FOLLOWS):
            return ""
        # neither cut off digits nor what is off by more than any format hangs on an order of adding; of a
        # few bits an order decides little
        loose = "truncated" not in text and "float8" not in text and self.worst.bits >= COARSE
        steps = self.worst.bits < GROSS or (is_one_sided(text) and self.outputs[self.path].element_size() < 4)
        if value < max(NAMED if loose else FOLLOWS_STEPS if steps else FOLLOWS, rivals.SIGMAS / self._count() ** 0.5):
            return ""
        if self._follows_factor(value, each=not loose):
            return ""
        others = {format_of(t) for _, t, _ in alike}
        if len(others) > 1 and others <= {"TF32", "float16", BOTH}:
            return text.replace(format_of(text), BOTH)
        return text if len(others) == 1 else ""

    def _alike(self) -> list[tuple[float, str, float]]:
        """What the errors follow best, and what they follow nearly as well; the best last."""
        best = max((f[0] for f in self.followed), default=0.0)
        return sorted(f for f in self.followed if f[0] >= ALIKE * best)

    def _follows_factor(self, least: float, each: bool = True) -> bool:
        """Whether one factor makes results smaller as cutting digits off does, or as another norm does; or, with
        `each`, one of each slice."""
        made = with_factors(self.outputs[self.path], self.truth(self.path))
        made = made if each else itertools.islice(made, 1)
        return any(self._follows({self.path: t}) >= least for t in made)

    def _by_chance(self) -> bool:
        """Whether it is the size of a rounding alone that the errors follow."""
        return any(value < reach for value, _, reach in self._alike())

    def _count(self) -> int:
        return self.accused[self.path].independent()

    def _adds(self) -> bool:
        return bool({n.name for n in self.lab.nodes()} & (inside.PRODUCTS | {"sum", "mean", "cumsum", "var"}))

    # ---- trying ----

    def _try(self, candidates: Iterable[tuple[str, Any]], follow: bool = False, share: float = 1.0) -> None:
        """Runs candidates until one gives the same bits, or until `share` of the time
        is gone; keeps the one that comes nearest."""
        if self._settled():
            return
        for text, edit in candidates:
            if is_barred(text, self.formats) or (self.known is not None and text not in self.known):
                continue
            if self.limit.over(share):
                return
            if self.limit.begins():
                self._weigh_run(text, edit, follow)
            for state in self.limit.noted():
                self._take_up(state)
            if self._settled():
                return

    def _weigh_run(self, text: str, edit: Any, follow: bool) -> None:
        """Runs one mistake and tells what it changed, should this process die of a later one."""
        before, run = self._state(), functools.partial(self.lab.run, edit)
        outputs = None
        with tried():  # not every operator has every mistake
            outputs = run()
        if outputs is None:
            return
        self._weigh(text, outputs, follow, run, edit)
        if self._state() != before:
            self.limit.note(self._state())

    def _state(self) -> dict[str, Any]:
        lists = {"alone": list(self.alone), "followed": [list(f) for f in self.followed]}
        return lists | {"best": self.best, "text": self.text, "sure": self.sure, "place": self.where}

    def _take_up(self, state: dict[str, Any]) -> None:
        """Goes on from what another process knew."""
        self.best, self.text, self.sure = state["best"], state["text"], state["sure"]
        self.alone, self.followed = tuple(state["alone"]), [tuple(f) for f in state["followed"]]

    def _spend(self, runs: int) -> bool:
        """Whether there is time for some more runs."""
        return self.known is None and not self.limit.over() and self.limit.begins()

    def _settled(self) -> bool:
        """Whether what is left of the error leaves no room for a better name."""
        return self.best <= CERTAIN and bool(self.text) and not vagueness(self.text, self.sure)

    def _residual(self, outputs: Outputs) -> float:
        """How well the worst output is explained; another accused one must be as well, or
        be left alone: then it has a mistake of its own."""
        worst = self.accused[self.path].residual(outputs[self.path])
        for path, evidence in self.accused.items():
            if worst <= LEFT_MOST and path != self.path:
                found = evidence.residual(outputs[path])
                alone = found > LEFT_MOST and evidence.unmoved(outputs[path])
                worst = max(worst, 1e-3 if alone else found)
        return worst

    def _weigh(self, text: str, outputs: Outputs, follow: bool, run: Callable[[], Outputs], edit: Any) -> None:
        if not self.accused.keys() <= outputs.keys() or self._says_too_much(text):
            return
        residual = self._residual(outputs)
        if residual > LEFT_MOST and not follow and self._gives_the_bits(outputs, run):
            residual = 0.0
        if follow and residual > LEFT_MOST and not text.startswith(BY_BITS):
            self._follow(outputs, text, run)
        if residual > 2 * self.best:
            return
        evidence = self.accused[self.path]
        sure = self._is_reproduced(outputs, run) or (follow and not evidence.errors()["one_sided"])
        sure = sure and not evidence.is_one_number(outputs[self.path])
        vague = self.text and vagueness(self.text, self.sure) > vagueness(text, sure)
        if not vague and self.text and self.best <= CERTAIN**2 and sure <= self.sure:
            return  # both leave rounding alone
        if not vague and (residual >= self.best or (self.text and residual > self.best / 2)):
            return
        if is_one_sided(text) and self._follows_factor(FACTOR * self._follows(outputs)):
            return
        if format_of(text) != text and BITS < residual and rivals.is_one_free(self.lab, run, self._follows):
            return
        if is_of_any(text) and rivals.half_does(self.lab, evidence, self.path, edit, 2 * residual + CERTAIN):
            return
        if self._spoils_fine(outputs) or self._leaves_another(outputs):
            self._keep_alone(residual, text)
            return
        self.best, self.text, self.sure = min(residual, self.best), self._told(text, outputs, run), sure

    def _says_too_much(self, text: str) -> bool:
        """Whether a format is claimed of fewer errors than tell it from another number."""
        shown = self.shown or text.startswith(OTHERWISE)
        return format_of(text) != text and not shown and self._count() < LEAST_ERRORS

    def _told(self, text: str, outputs: Outputs, run: Callable[[], Outputs]) -> str:
        """A name with both formats of 11 bits unless the range of one shows in the result."""
        own = format_of(text)
        may = TWINS.get(own) in self.formats and not names_range(text)
        other = self._in_twin(run) if may else None
        nearer = 0 if other is None else self.accused[self.path].nearer(outputs[self.path], other[self.path])
        if other is None or nearer > 0:
            return text
        return text.replace(own, TWINS[own] if nearer else BOTH)

    def _in_twin(self, run: Callable[[], Outputs]) -> Outputs | None:
        found = None
        with tried():  # it may not be there in that format
            found = self.lab.in_twin(run)
        return found if found and self.path in found else None

    def _leaves_another(self, outputs: Outputs) -> bool:
        """Whether another accused output has nothing of a mistake."""
        others = ((p, e) for p, e in self.accused.items() if p != self.path)
        return any(e.unmoved(outputs[p]) for p, e in others)

    def _spoils_fine(self, outputs: Outputs) -> bool:
        """Whether a mistake would show in an output that is right."""
        return any(e.contradicts(outputs[p]) for p, e in self.fine.items() if p in outputs)

    def _follows(self, outputs: Outputs) -> float:
        return self.accused[self.path].correlation(outputs[self.path])

    def _follow(self, outputs: Outputs, text: str, run: Callable[[], Outputs]) -> None:
        """Notes how far the errors go with those of a format, and how far chance would take them."""
        value = self._follows(outputs)
        best = max((f[0] for f in self.followed), default=0.0)
        asked = value >= ALIKE * best and value >= min(NAMED, HINTS / self._count() ** 0.5)
        if asked and self._spoils_fine(outputs):
            return
        own = format_of(text)
        other = self._in_twin(run) if asked and TWINS.get(own) in self.formats else None
        if other is not None and ALIKE * value <= self._follows(other) <= value / ALIKE:
            text = text.replace(own, BOTH)
        self.followed.append(
            (value, text, rivals.reach(self.lab, run, self._follows, self._count(), self.limit.over) if asked else 0.0)
        )

    def _is_reproduced(self, outputs: Outputs, run: Callable[[], Outputs]) -> bool:
        """Whether all that an emulation changes of what is accused is as the device has it, to
        within what float32 loses, also by that mistake itself."""
        return self._all_near(outputs, {}) or self._all_near(outputs, self.lab.in_float32(run))

    def _gives_the_bits(self, outputs: Outputs, run: Callable[[], Outputs]) -> bool:
        """Whether the mistake gives, in float32, every bit of what is accused."""
        near = self.path in outputs and self.accused[self.path].near(outputs[self.path])
        narrow = self.lab.in_float32(run) if near else {}
        return near and all(e.same_bits(narrow.get(p)) for p, e in self.accused.items())

    def _all_near(self, outputs: Outputs, narrow: Outputs) -> bool:
        return all(
            e.reproduces(outputs[p], narrow.get(p)) for p, e in self.accused.items() if not e.unmoved(outputs[p])
        )

    def _keep_alone(self, residual: float, text: str) -> None:
        """A mistake that only the path to this output has, where several share a formula."""
        if residual < self.alone[0] / 2:
            self.alone = residual, f"{text} (in {self.path} alone)"
