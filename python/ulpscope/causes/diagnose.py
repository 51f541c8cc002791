# SPDX-License-Identifier: Apache-2.0
"""The cause of a verdict: right or silent.

A mistake is named when its emulation on the CPU reproduces what the device gave: the same
bits on 99 % of the elements that rounding does not explain, or errors at least 8 times
smaller than those against the truth. Damage to a few elements is named by its place and
content; noise whose emulation only correlates with it, by its format. docs/causes.md.
The mistakes: `pattern`, `emulate`, `edits`.
"""

import re
import warnings

import torch

from ..calls.verdicts import FLAGGED, UNKNOWN
from . import edits as _causes_edits
from . import emulate as _emulate
from . import fit, graph, inside, order, pattern, sums, whole
from . import scale as _causes_scale
from .evidence import SMALLER, Evidence
from .graph import MOST_SINGLE
from .nodes import Lab

CERTAIN = 2.0**-7  # so little of the error left, in rounding alone, leaves no room for a rival
MOST_ELEMENTS = 1 << 26  # beyond this, one emulation costs more than its answer is worth
GROSS = 2.5  # bits: what has fewer is hardly noise of a format
NOISE = 0.4  # share of the time after which noise may be something else than a sum's
MEANING = 0.75  # share of the time that mistakes of meaning leave to those of precision
# What the number of bits speaks for where no emulation reproduces the noise.
LIKELY = ((5.5, 9.3, "looks like noise consistent with bfloat16 arithmetic (intermediates or accumulator)"),
          (9.3, 10.2, "looks like noise consistent with bfloat16, float16 or TF32 arithmetic (intermediates or accumulator)"),
          (10.2, 12.4, "looks like noise consistent with TF32 or float16 arithmetic (intermediates or accumulator)"),
          (12.4, 20.0, "looks like an inaccurate elementary function or approximation"))  # fmt: skip
# Another name that explains as much says more.
VAGUE = (("computes as if", "computes without", "wrong order", "operand", "wrong index: operand", "the constants",
          "the sign of the factor", "the sign of operand"),
         ("scale factor", "computes with", "wrong variant: div instead", "wrong variant: mul instead"))
ONLY_SEEN = (pattern.GARBAGE, "by a factor of its own")
SEEN = "looks like"  # begins what is seen, and no name
BOTH = "TF32 or float16"  # where the inputs cannot tell
FOLLOWS = 0.85  # correlation with rounding that leaves no room for another mistake
NAMED = 0.3  # correlation with an emulated noise that names its format
PLAIN_DIGITS = 5  # of a factor: another is told as seen
ALIKE = 0.85  # correlations this close cannot be told apart


def search(call, verdict, limit, known=""):
    """A short clause on why a call does not pass, "" where nothing explains it. `limit` says
    how long that may take; with `known` only that mistake is tried. Runs what may not survive
    it: `process` alone calls this."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is wrong on purpose may well be warned of
            return Search(call, verdict, limit, known).cause()
    except Exception:  # a diagnosis that fails is one that does not know
        return ""


def of_reason(worst):
    """What a finding without numbers says of its cause."""
    reason = worst.reason if worst is not None else ""
    if reason.startswith("wrote "):
        return f"writes what must stay unchanged: {reason}"
    return UNKNOWN


def of_draws(verdict):
    """The cause where random draws are not as they should be."""
    worst = verdict.worst
    if worst is None or not worst.reason or verdict.verdict not in FLAGGED:
        return ""
    if worst.measured:  # values that do not hang on chance
        return UNKNOWN
    return f"the draws are not random as they should be: {worst.reason}"


class Search:
    """Goes through the mistakes, the cheap and certain ones first."""

    def __init__(self, call, verdict, limit, known=""):
        self.call, self.verdict = call, verdict
        known = known.removeprefix(f"{SEEN}: ")
        self.limit, self.known = limit, {known, *(known.replace(BOTH, n) for n in BOTH.split(" or "))}
        if not known:
            self.known = None
        self.reference = verdict.operands.reference
        self.worst = verdict.worst
        self.lab = Lab(call, self.reference)
        self.outputs = dict(verdict.answer.outputs)
        self.accused, self.fine = {}, {}
        for f in verdict.findings:
            if self._usable(f.path):
                device = self.outputs[f.path] = self._held_against(f)
                kept = self.accused if f.verdict not in ("pass", "unjudged") else self.fine
                kept[f.path] = Evidence(device, self.truth(f.path), self._yardstick(f.path))
        self.path = self._decisive()
        self.best, self.text, self.sure = 1 / SMALLER, "", True
        self.alone = 1 / (2 * SMALLER), ""  # (residual, text): in one output, others beside it
        self.followed = []  # (correlation, text)

    def _held_against(self, finding):
        """The device's output with the true value where its NaN or Inf is excused."""
        device, truth = self.outputs[finding.path], self.truth(finding.path)
        if not device.is_floating_point() or finding.verdict in ("pass", "nonfinite"):
            return device
        right = truth.to(device.dtype)
        excused = ~device.isfinite() & right.isfinite()
        return torch.where(excused, right, device) if bool(excused.any()) else device

    def _decisive(self):
        """The output that tells most: values rather than the positions that go with them, which
        ties leave open."""
        floats = {p: e for p, e in self.accused.items() if e.floats}
        if floats and len(floats) < len(self.accused):
            self.accused = floats
            return self.worst.path if self.worst.path in floats else next(iter(floats))
        return self.worst.path

    def _usable(self, path):
        device = self.outputs.get(path)
        truth = self.truth(path)
        return (device is not None and truth is not None and device.shape == truth.shape
                and 0 < device.numel() <= MOST_ELEMENTS
                and device.is_floating_point() == truth.is_floating_point())  # fmt: skip

    def truth(self, path):
        truth = self.reference.truth.get(path)
        if truth is None or truth.is_floating_point():
            return truth
        native = self.reference.native() or {}
        return native.get(path, truth)

    def _yardstick(self, path):
        found = self.reference.yardstick.get(path)
        truth = self.truth(path)
        return found if found is not None and found.shape == truth.shape else truth

    # ---- the order of questions ----

    def cause(self):
        """The name, "looks like ..." for one that comes near without giving the same numbers."""
        text = self._answer()
        fits = (text == self.text and not self.sure) or any(words in text for words in ONLY_SEEN)
        return f"{SEEN}: {text}" if text and fits and not text.startswith(SEEN) else text

    def _answer(self):
        path = self.path
        device = self.outputs.get(path)
        if path not in self.accused:
            truth = self.truth(path)
            known = device is not None and truth is not None and device.shape != truth.shape
            return order.of_shape(device, truth) if known else ""
        if self._lost_elsewhere():
            return pattern.LOST
        p = pattern.Picture(device, self.truth(path), self._yardstick(path),
                                    self.verdict.answer.before.get(path), self._inputs(device))  # fmt: skip
        text = pattern.lost(p) if p.n_bad else ""
        if not device.is_floating_point():
            text = order.uniform(p) or text
        if text:
            return self._underflow(p, text)
        if whole.kinds_differ(p):
            return self._nonfinite(p) or self._uncertain(p)
        return self._damage(p) or self._whole(p) or self._uncertain(p)

    def _lost_elsewhere(self):
        """Whether an argument that must be written is as it was, while what is returned is a
        part of it."""
        for path in self.accused.keys() - {self.path}:
            before, device = self.verdict.answer.before.get(path), self.verdict.answer.outputs[path]
            if before is not None and torch.equal(before, device):
                return True
        return False

    def _damage(self, p):
        """Limits, and damage that leaves most elements alone."""
        text, clamped = whole.saturated(p)
        if text and self._explains(p, clamped):
            return self._stopped(p) or text
        text = order.padded(p, self._indices())
        if text:
            return text
        fine = p.finely()
        if 0 < fine.n_bad < p.n // 2 and fine.n_bad != p.n_bad:
            text = pattern.damage(fine)
        return text if text and not text.startswith("saturated") else pattern.damage(p)

    def _inputs(self, device):
        """Arguments that a lost result may be taken for, by name."""
        found = {}
        for path, view in self.call.views.items():
            if tuple(view.sizes) == tuple(device.shape) and view.dtype == device.dtype:
                found[view.argument or path] = self._tensor(view)
        return found

    def _stopped(self, p):
        """Sums that all end at one limit: an accumulator too coarse to take another term."""
        if p.n_bad > p.n // 2 and p.device.is_floating_point() and self._adds():
            self._try(_emulate.accumulator_candidates(self.lab))
        return self.text

    def _whole(self, p):
        """Mistakes that concern the whole result."""
        exact = self._exchanged_outputs(p) or self._moved(p)
        if exact:
            return exact
        scale, scaled = _causes_scale.constant(p)
        if scale and scaled is not None:
            return self._better_than(p, scale, scaled)
        gross = self.worst.bits < GROSS and len(self.lab.nodes()) > MOST_SINGLE
        if gross:  # no format leaves so little, and to try them all takes long
            self._try(self._edits(), share=MEANING)
        if p.device.is_floating_point():
            self._try(_emulate.result_candidates(self.lab, p.device))
        self._try(_emulate.input_candidates(self.lab), follow=True)
        self._try(_emulate.inside_candidates(self.lab), follow=True)
        if self.accused[self.path].mixed() and self._adds():  # noise: of sums before anything else
            self._try(_emulate.accumulator_candidates(self.lab), follow=True, share=NOISE)
        narrow = max(self.followed, default=(0.0, ""))[0] >= FOLLOWS
        brief = narrow and self.accused[self.path].mixed()
        self._try(self._values() if brief else () if gross else self._edits(), share=MEANING)
        if p.device.is_floating_point():
            if not brief:
                self._try(fit.fitted(self.lab, self.accused[self.path], self.path, self._spend))
            self._try(_emulate.function_candidates(self.lab), follow=True)
            self._try(_emulate.single_candidates(self.lab), follow=True)
            self._try(_emulate.accumulator_candidates(self.lab), follow=True)
        return (self.text if self.sure else "") or self.alone[1] or scale or self.text or order.reordered(p) or pattern.exchanged(p)

    def _moved(self, p):
        for text, moved in whole.moved_results(p):
            if self._explains(p, moved):
                return text
        return order.slid(p)

    def _values(self):
        """Other numbers and flags, which are few."""
        yield from _causes_edits.scalar_edits(self.lab)
        for node in self.lab.nodes():
            for text, edits in inside.node_arguments(self.lab, node):
                yield text, lambda e=edits: self.lab.edited(e)

    def _edits(self):
        yield from _causes_edits.scalar_edits(self.lab)
        for text, edits in inside.epsilon_places(self.lab):
            yield text, lambda e=edits: self.lab.edited(e)
        yield from _causes_edits.tensor_edits(self.lab, masks=True)
        yield from _causes_edits.tensor_edits(self.lab, single=True)
        yield from _causes_edits.stride_edits(self.lab)
        yield from inside.operator_edits(self.lab, deep=False)
        yield from graph.first_edits(self.lab)
        yield from inside.slice_edits(self.lab)
        yield from inside.operator_edits(self.lab, deep=True)
        yield from sums.sum_edits(self.lab)
        yield from _causes_edits.optional_edits(self.lab)
        yield from _causes_edits.tensor_edits(self.lab)
        yield from _causes_edits.swap_edits(self.lab)
        yield from _causes_edits.pair_edits(self.lab)
        yield from graph.place_edits(self.lab)

    def _better_than(self, p, scale, scaled):
        """A factor or an amount has a better name where a variant of the operator gives it
        as well."""
        if scale.startswith("the sign is flipped"):
            return scale
        own = self.accused[self.path].residual(scaled)
        self._try((t, run) for t, run in self._variants() if not t.startswith("computes"))
        if _causes_scale.few_values(p):
            self._try(_emulate.result_candidates(self.lab, p.device))
            self._try(_emulate.input_candidates(self.lab))
        if self._adds():
            self._try(_emulate.accumulator_candidates(self.lab))
        better = self.text and self.best <= max(own if own < 1 else 0.0, CERTAIN / 4)
        return self.text if better else scale if _is_plain(scale) else f"{SEEN}: {scale}"

    def _variants(self):
        yield from _causes_edits.scalar_edits(self.lab)
        for node in self.lab.nodes():
            for make in (inside.node_arguments, inside.node_swaps,
                         inside.node_slices):
                for text, edits in make(self.lab, node):
                    yield text, lambda e=edits: self.lab.edited(e)

    def _nonfinite(self, p):
        """NaN and Inf out of place: saturation, overflow of a lower format, a variant."""
        text, clamped = whole.saturated(p)
        if text and self._explains(p, clamped):
            return text
        if p.n_bad == 1:
            text = pattern.damage(p)
            if text:
                return text
        if whole.opposite(p):
            text = _causes_scale.constant(p)[0]
            if text.startswith("the sign"):
                return text
        damage = text = pattern.damage(p)
        finite = float(p.truth[p.bad].isfinite().double().mean()) if p.n_bad else 0.0
        if finite > 0.5 and any(word in text for word in ("repeat", "stale", " zero")):
            return text
        text = self._moved(p) or self._overflow()
        if text:
            return text
        if int((p.finely().bad & p.device.isfinite() & p.truth.isfinite()).sum()) >= 16:
            self._try(self._edits(), share=MEANING)  # what is off is not NaN and Inf alone
            if self.text:
                return self.text
        text = whole.nonfinite(p)
        if "swallowed" in text and damage:  # by what was not written there
            return f"{text}; {damage}"
        return text or damage or self._whole(p)

    def _underflow(self, p, text):
        """A better name than `text` where a narrower range makes zeros of all there is."""
        if "all zeros" not in text or not p.device.is_floating_point() or float(
                p.truth[p.truth.isfinite()].abs().max()) > 2.0**-9:  # fmt: skip
            return text
        for made in (_emulate.input_candidates(self.lab), _emulate.inside_candidates(self.lab)):
            self._try((t, run) for t, run in made if "float16" in t and "bfloat16" not in t or "flush" in t)
        return f"{text}, or {self.text}: these data cannot tell" if self.text else text

    def _overflow(self):
        """A formula or a format whose intermediates overflow."""
        self._try(_emulate.overflow_candidates(self.lab))
        return self.text

    def _uncertain(self, p):
        """Noise whose emulation goes with it, then what the place alone tells."""
        return (self._noisy_formula() or _causes_scale.by_sign(p) or self._followed() or _causes_scale.by_slices(p)
                or self._spectrum(p) or order.content(p) or pattern.damage(p, certain=False)
                or order.uniform(p) or self._likely(p))  # fmt: skip

    def _noisy_formula(self):
        """Noise as a formula that cancels gives it, whatever the order and the functions: a variance
        in one pass, exp(x) - 1."""
        evidence = self.accused[self.path]
        every = (sums.one_pass_runs(self.lab), *sums.naive_runs(self.lab))
        for runs in every if evidence.floats else ():
            try:
                found = [(text, run()[self.path]) for text, run in runs]
            except Exception:  # not for these arguments
                continue
            if found and evidence.of_size([t for _, t in found]):
                return found[0][0]
        return ""

    def _indices(self):
        """(name, whole numbers) among the arguments."""
        for path, view in self.call.views.items():
            if not view.dtype.is_floating_point and view.dtype != torch.bool:
                yield view.argument or path, self._tensor(view)

    def _tensor(self, view):
        part = self.reference.parts[view.storage, view.dtype]
        return part.data.as_strided(view.sizes, view.strides, view.offset - part.first)

    def _likely(self, p):
        """What the grid of the result, or the size of noise alone, speaks for."""
        if not p.device.is_floating_point() or self.worst.bits < 4:
            return ""
        grid = _emulate.significant_bits(p.device, 1) if p.device.dtype == torch.float32 else 0
        own = _emulate.significant_bits(p.truth.float(), 1) if grid else 0
        if 0 < grid <= 11 and own > grid + 3:
            name = "bfloat16" if grid <= 8 else "float16"
            return f"intermediates or accumulator rounded to {name}: the result has {grid} significant bits"
        if self.verdict.verdict != "reduced" or self.accused[self.path].one_sided():
            return ""
        for low, high, text in LIKELY:
            if low <= self.worst.bits < high:
                return text
        return ""

    def _followed(self):
        if not self.followed:
            return ""
        value, text = max(self.followed)
        if value < max(NAMED, 6.0 / self._count() ** 0.5):
            return ""
        rivals = {_format_of(t) for v, t in self.followed if v >= ALIKE * value}
        if len(rivals) == 1:
            return text
        if rivals == {"TF32", "float16"}:
            return text.replace("float16", "TF32").replace("TF32", "TF32 or float16")
        return ""

    def _spectrum(self, p):
        """The format that noise of this size comes from, where it looks like noise."""
        if self.verdict.verdict != "reduced" and not (
            self.verdict.verdict == "wrong" and self.worst.bits > 3
        ):
            return ""
        seen = {_format_of(t) for v, t in self.followed if v * self._count() ** 0.5 > 4}
        return self.accused[self.path].noise_name(p.device, self._adds(), seen)

    def _count(self):
        return self.accused[self.path].independent()

    def _adds(self):
        names = {n.name for n in self.lab.nodes()}
        return bool(names & (inside.PRODUCTS | {"sum", "mean", "cumsum", "var"}))

    # ---- trying ----

    def _exchanged_outputs(self, p):
        for path, truth in self.reference.truth.items():
            if path != self.path and truth.shape == p.device.shape:
                if truth.dtype == p.truth.dtype and self._explains(p, truth):
                    return f"outputs are exchanged: {self.path} holds {path}"
        return ""

    def _explains(self, p, emulated):
        return self.accused[self.path].residual(emulated) <= 1 / SMALLER

    def _try(self, candidates, follow=False, share=1.0):
        """Runs candidates until one gives the same bits, or until `share` of the time
        is gone; keeps the one that comes nearest."""
        if self._settled():
            return
        for text, emulate in candidates:
            if self.known is not None and text not in self.known:
                continue
            if self.limit.over(share):
                return
            if self.limit.begins():
                self._weigh_run(text, emulate, follow)
            for state in self.limit.noted():
                self._take_up(state)
            if self._settled() and "inputs rounded to TF32" not in (self.text, text):
                return

    def _weigh_run(self, text, emulate, follow):
        """Runs one mistake and tells what it changed, should this process die of a later one."""
        before = self._state()
        try:
            outputs = emulate()
        except Exception:  # not every operator has every mistake
            return
        self._weigh(text, outputs, follow, emulate)
        if self._state() != before:
            self.limit.note(self._state())

    def _state(self):
        return {"best": self.best, "text": self.text, "sure": self.sure, "alone": list(self.alone),
                "followed": [list(f) for f in self.followed]}  # fmt: skip

    def _take_up(self, state):
        """Goes on from what another process knew."""
        self.best, self.text, self.sure = state["best"], state["text"], state["sure"]
        self.alone, self.followed = tuple(state["alone"]), [tuple(f) for f in state["followed"]]

    def _spend(self, runs):
        """Whether there is time for some more runs."""
        return self.known is None and not self.limit.over() and self.limit.begins()

    def _settled(self):
        """Whether what is left of the error leaves no room for a better name."""
        return self.best <= CERTAIN and self.text and not _vagueness(self.text, self.sure)

    def _residual(self, outputs):
        """How well the worst output is explained; another accused one must be as well, or
        be left alone: then it has a mistake of its own."""
        worst = self.accused[self.path].residual(outputs[self.path])
        for path, evidence in self.accused.items():
            if worst <= 1 / SMALLER and path != self.path:
                found = evidence.residual(outputs[path])
                alone = found > 1 / SMALLER and evidence.unmoved(outputs[path])
                worst = max(worst, 1e-3 if alone else found)
        return worst

    def _weigh(self, text, outputs, follow, emulate=None):
        if not self.accused.keys() <= outputs.keys():
            return
        residual = self._residual(outputs)
        if residual > 1 / SMALLER and not follow and self._gives_the_bits(outputs, emulate):
            residual = 0.0
        if follow and residual > 1 / SMALLER:
            value = self.accused[self.path].correlation(outputs[self.path])
            self.followed.append((value, text))
        if residual > 2 * self.best:
            return
        if "TF32" in self.text and text == self.text.replace("TF32", "float16"):
            if residual <= 2 * self.best:
                self.text = self.text.replace("TF32", "TF32 or float16")
                return
        sure = self._is_reproduced(outputs, emulate) or (follow and not self.accused[self.path].one_sided())
        vague = self.text and _vagueness(self.text, self.sure) > _vagueness(text, sure)
        if not vague and (residual >= self.best or (self.text and residual > self.best / 2)):
            return
        if any(e.contradicts(outputs[p]) for p, e in self.fine.items() if p in outputs):
            self._keep_alone(residual, text)
            return
        self.best, self.text, self.sure = min(residual, self.best), text, sure

    def _is_reproduced(self, outputs, emulate):
        """Whether all that an emulation changes of what is accused is as the device has it, to
        within what float32 loses, also by that mistake itself."""
        return self._all_near(outputs, {}) or self._all_near(outputs, self._narrow(emulate))

    def _gives_the_bits(self, outputs, emulate):
        """Whether the mistake gives, in float32, every bit of what is accused."""
        near = self.path in outputs and self.accused[self.path].near(outputs[self.path])
        narrow = self._narrow(emulate) if near else {}
        return near and all(e.same_bits(narrow.get(p)) for p, e in self.accused.items())

    def _narrow(self, emulate):
        """What a mistake gives in float32, by path; nothing where it is none there."""
        self.lab.dtype = torch.float32
        try:
            return emulate()
        except Exception:  # not in float32
            return {}
        finally:
            self.lab.dtype = torch.float64

    def _all_near(self, outputs, narrow):
        return all(e.reproduces(outputs[p], narrow.get(p)) for p, e in self.accused.items()
                   if not e.unmoved(outputs[p]))  # fmt: skip

    def _keep_alone(self, residual, text):
        """A mistake that only the path to this output has, where several share a formula."""
        if residual < self.alone[0] / 2:
            self.alone = residual, f"{text} (in {self.path} alone)"


def _vagueness(text, sure):
    """0 for a name that says what is wrong, more for one that a better may replace."""
    if not sure or text.startswith(SEEN):
        return len(VAGUE) + 1
    return max((i for i, begins in enumerate(VAGUE, 1) if text.startswith(begins)), default=0)


def _is_plain(text):
    """Whether every number in a text has few digits, as one that somebody wrote down."""
    return all(len(digits.replace(".", "").strip("0")) <= PLAIN_DIGITS
               for digits in re.findall(r"\d[\d.]*", text))  # fmt: skip


def _format_of(text):
    return next((n for n in ("bfloat16", "TF32", "float16") if n in text), text)
