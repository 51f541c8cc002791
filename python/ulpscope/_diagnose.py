# SPDX-License-Identifier: Apache-2.0
"""The cause of a verdict: right or silent.

A mistake is named when its emulation on the CPU reproduces what the device gave: the same
bits on 99 % of the elements that rounding does not explain, or errors at least 8 times
smaller than those against the truth. Damage to a few elements is named by its place and
content; noise whose emulation only correlates with it, by its format. docs/verdict.md,
section "Causes". The mistakes: `_causes_pattern`, `_emulate`, `_causes_edits`.
"""

import torch

from . import (
    _causes_edits, _causes_inside, _causes_order, _causes_pattern, _causes_scale, _causes_sums,
    _causes_whole, _emulate,
)  # fmt: skip
from ._causes_nodes import Lab
from ._emulate import FORMATS, OWN_FORMAT, to_dtype
from ._verdicts import FLAGGED, UNKNOWN

SAME_BITS = 0.99
SMALLER = 8.0
CERTAIN = 2.0**-7  # so little of the error left, in rounding alone, leaves no room for a rival
GLANCE = 128  # elements that tell an explanation from none
EXPLAINED = 0.97  # share of the elements that an emulation has to explain
MOST_ELEMENTS = 1 << 26  # beyond this, one emulation costs more than its answer is worth
MOST_LOOKED_AT = 1 << 17  # elements of one output that an emulation is held against
MOST_COMPARED = 1 << 13  # elements whose errors are correlated
WORK = 8e7  # elements that emulations may compute, all together
PER_RUN = 20_000  # what starting one emulation costs, in elements
PER_NODE = 2_000  # what each operator inside it costs
KEPT = 0.3  # share of the work that mistakes of meaning leave to those of precision
# What the number of bits speaks for where no emulation reproduces the noise.
LIKELY = ((5.5, 9.5, "noise consistent with bfloat16 arithmetic (intermediates or accumulator)"),
          (9.5, 12.4, "noise consistent with TF32 or float16 arithmetic (intermediates or accumulator)"),
          (12.4, 20.0, "an inaccurate elementary function or approximation"))  # fmt: skip
VAGUE = "computes as if"  # another name that explains as much says more
FOLLOWS = 0.85  # correlation with rounding that leaves no room for another mistake
NAMED = 0.3  # correlation with an emulated noise that names its format
ALIKE = 0.85  # correlations this close cannot be told apart


def cause_of(call, verdict):
    """A short clause on why a call does not pass; UNKNOWN where nothing explains it."""
    worst = verdict.worst
    if worst is None or verdict.operands is None or not worst.path:
        return _of_reason(worst)
    try:
        return Search(call, verdict).cause() or _of_reason(worst)
    except Exception:  # a diagnosis that fails is one that does not know
        return _of_reason(worst)


def _of_reason(worst):
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
    return f"the draws are not random as they should be: {worst.reason}"


class Evidence:
    """One output: what the device gave, the truth, and how well an emulation explains the
    difference. Looks at a sample where there are very many elements."""

    def __init__(self, device, truth, yardstick):
        self.dtype, self.shape = device.dtype, device.shape
        self.floats = device.is_floating_point()
        self.picked = _sample(device, truth)
        self.device = self._of(device)
        self.truth = self._of(truth)
        self.rounded = to_dtype(self.truth, self.dtype) if self.floats else self.truth
        self.low = self.floats and FORMATS[OWN_FORMAT.get(self.dtype, "float32")][0] < 24
        noise = (self._of(yardstick) - self.truth).abs()
        self.slack = self._slack(noise.where(noise.isfinite(), noise * 0))
        self.off = self._differs(self.device)
        self.any_off = bool(self.off.any())
        self.glance = self._few()

    def _few(self):
        """Some of the elements that are far off; None where all are looked at anyway."""
        error = (self.device - self.truth).abs()
        far = self.off & ~(error <= 4 * self.slack)
        where = (far if int(far.sum()) >= 8 else self.off).nonzero().flatten()
        return where[:: -(-where.numel() // GLANCE) | 1] if where.numel() > 2 * GLANCE else None

    def mixed(self):
        """Whether the errors look like noise: of both signs in most rows and most columns."""
        rows = self.shape[-1] if len(self.shape) > 1 and self.picked is None else 1
        sign = torch.sign((self.device - self.truth) * self.truth).where(self.off, 0 * self.truth)
        if not bool(sign.isfinite().all()) or int(self.off.sum()) < 64:
            return False
        sums = [(sign.reshape(-1, rows).sum(d).abs(), self.off.reshape(-1, rows).sum(d)) for d in (0, 1)]
        return all(float((s[n > 0] / n[n > 0]).median()) < 0.6 for s, n in sums if s.numel() > 1
                   and float(n.double().mean()) > 8)  # fmt: skip

    def _of(self, tensor):
        flat = tensor.detach().reshape(-1)
        return (flat if self.picked is None else flat[self.picked]).double()

    def _slack(self, noise):
        """What honest float32 may do to each element."""
        if not self.floats:
            return noise * 0
        bits = FORMATS[self.dtype_name()][0] if self.dtype != torch.float64 else 53
        finite = self.truth[self.truth.isfinite()]
        typical = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        common = min(_quantile(noise, 0.5), typical * 2.0**-20) if noise.numel() else 0.0
        own = self.truth.abs().where(self.truth.isfinite(), noise * 0) * 2.0**-bits * 1.02
        return own + 6 * noise + 3 * common

    def dtype_name(self):
        return OWN_FORMAT.get(self.dtype, "float32")

    def _differs(self, own):
        """Elements where some result is not what rounding the truth gives."""
        if self.low or not self.floats:
            return ~_causes_pattern.same(own, self.rounded)
        near = (own - self.rounded).abs() <= self.slack
        return ~(near | _causes_pattern.same(own, self.rounded))

    def residual(self, emulated):
        """0 where the bits agree; else what is left of the error, as a share of it.
        Infinite for no explanation."""
        if emulated.shape != self.shape:
            return float("inf")
        emulated = self._of(emulated)
        if not self._likely(emulated):
            return float("inf")
        own = to_dtype(emulated, self.dtype) if self.floats else emulated
        if not self.any_off:
            return float("inf")
        counts = self._counting(self._differs(own))
        device, truth, emulated, own = (
            x[counts] for x in (self.device, self.truth, emulated, own))  # fmt: skip
        equal = _causes_pattern.same(device, own)
        if float(equal.double().mean()) >= SAME_BITS:
            return 0.0
        if not self.floats:
            return float("inf")
        return self._left(device, truth, emulated, equal, self.slack[counts])

    def _counting(self, moved):
        """Elements that an emulation is held against: those that are off and those that it
        moves, without what is hardly off beside mistakes that are far larger."""
        counts = self.off | moved
        error = (self.device - self.truth).abs()
        hardly = counts & ~moved & (error <= 4 * self.slack)
        strong = counts & ~hardly
        if int(strong.sum()) < max(8, int(hardly.sum()) // 3) or not bool(hardly.any()):
            return counts
        large = (error > 64 * self.slack.clamp(min=1e-300))[strong]
        return strong if float(large.double().mean()) > 0.5 else counts

    def _likely(self, emulated):
        """False where a look at a few of the elements that are off rules an emulation out."""
        if self.glance is None:
            return True
        device, truth = self.device[self.glance], self.truth[self.glance]
        emulated, slack = emulated[self.glance], self.slack[self.glance]
        own = to_dtype(emulated, self.dtype) if self.floats else emulated
        near = _causes_pattern.same(device, own)
        if self.floats:
            error = (device - truth).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
            left = torch.minimum((device - emulated).abs(), (device - own).abs())
            near |= left.isfinite() & (left <= torch.maximum(error / SMALLER, slack))
        return float(near.double().mean()) > 0.75

    def _left(self, device, truth, emulated, equal, slack):
        error, left = (device - truth).abs(), (device - emulated).abs()
        if self.low:
            left = (device - to_dtype(emulated, self.dtype)).abs()
        error = error.where(error.isfinite(), torch.full_like(error, torch.inf))
        left = left.where(~equal, left * 0).nan_to_num(nan=torch.inf, posinf=torch.inf)
        explained = equal | (left.isfinite() & (left <= torch.maximum(error / SMALLER, slack)))
        if float(explained.double().mean()) < EXPLAINED:
            return float("inf")
        finite = error.isfinite() & left.isfinite()
        if not bool(finite.any()):
            return 1 / SMALLER
        ratio = _quantile(left[finite], 0.5) / max(_quantile(error[finite], 0.5), 1e-300)
        within = float((left <= 0.5 * slack).double().mean()) >= 0.9 and ratio <= 0.5
        return min(ratio, 1 / SMALLER) if within else ratio

    def contradicts(self, emulated):
        """Whether an emulation spoils this output, which the device got right."""
        if emulated.shape != self.shape:
            return True
        emulated = self._of(emulated)
        off = (emulated - self.device).abs() > 8 * self.slack
        off &= ~_causes_pattern.same(emulated, self.device)
        return float(off.double().mean()) > 0.02

    def unmoved(self, emulated):
        """Whether an emulation leaves this output right."""
        if emulated.shape != self.shape:
            return False
        emulated = self._of(emulated)
        return not bool(self._differs(to_dtype(emulated, self.dtype) if self.floats else emulated).any())

    def correlation(self, emulated):
        """How much of the device's error an emulation's error follows, -1 to 1."""
        if emulated.shape != self.shape or not self.floats:
            return 0.0
        every = slice(None, None, -(-self.device.numel() // MOST_COMPARED) | 1)
        device, truth, emulated = self.device[every], self.truth[every], self._of(emulated)[every]
        a, b = device - truth, emulated - truth
        unit = truth.abs() + float(truth[truth.isfinite()].abs().median())
        a, b = a / unit, b / unit
        live = a.isfinite() & b.isfinite()
        a, b = a[live], b[live]
        if a.numel() < 64:
            return 0.0
        a = a.clamp(-4 * a.abs().mean(), 4 * a.abs().mean())
        b = b.clamp(-4 * b.abs().mean(), 4 * b.abs().mean())
        size = float(a.norm() * b.norm())
        if not size or not 0.2 < float(a.norm() / b.norm()) < 5:
            return 0.0
        return float(a @ b) / size

    def noise_name(self, device, adds, seen):
        """A clause where the error is noise of a format's size, and the result lies on that
        format's grid or an emulation with it (`seen`) goes the same way; else ""."""
        if not self.floats:
            return ""
        d, t = self.device, self.truth
        live = self.off & d.isfinite() & t.isfinite()
        error, size = (d - t)[live], t.abs()[live]
        if error.numel() < 32:
            return ""
        signs = float(torch.sign(error * t[live]).mean().abs())
        typical = float(t[t.isfinite()].square().mean().sqrt())
        share = (error / torch.maximum(size, size * 0 + typical / 4)).abs()
        middle, high = _quantile(share, 0.5), _quantile(share, 0.99)
        if signs > 0.5 or high > 40 * middle or not middle:
            return ""
        grid = _emulate.significant_bits(device) if not self.low else 0
        for name, low, top in (("bfloat16", 2.0**-11, 2.0**-4), ("float16 or TF32", 2.0**-14, 2.0**-11)):
            if low <= middle < top:
                if 0 < grid <= 8 or name == "bfloat16":
                    name = "bfloat16" if not 8 < grid <= 11 else "float16"
                elif grid and grid <= 11:
                    name = "float16"
                held = adds and 0 < grid <= 11
                if not held and not any(n in name for n in seen):
                    return ""
                return (f"accumulated in {name} (low-precision accumulator)" if held
                        else f"intermediates rounded to {name}")  # fmt: skip
        return ""


def _sample(device, truth):
    """Flat positions to look at, None for all: every so many elements, and those that
    differ most."""
    n = device.numel()
    if n <= MOST_LOOKED_AT:
        return None
    even = torch.arange(0, n, -(-2 * n // MOST_LOOKED_AT) | 1)
    error = (device.reshape(-1).double() - truth.reshape(-1).double()).abs()
    error = error.nan_to_num(nan=torch.inf, posinf=torch.inf)
    return torch.cat([even, error.topk(MOST_LOOKED_AT // 2)[1]]).unique()


def _quantile(x, q):
    k = max(1, min(x.numel(), int(q * x.numel() + 0.999999)))
    return float(x.reshape(-1).kthvalue(k)[0])


class Search:
    """Goes through the mistakes, the cheap and certain ones first."""

    def __init__(self, call, verdict):
        self.call, self.verdict = call, verdict
        self.reference = verdict.operands.reference
        self.worst = verdict.worst
        self.lab = Lab(call, self.reference)
        self.accused, self.fine = {}, {}
        for f in verdict.findings:
            if self._usable(f.path):
                device = verdict.answer.outputs[f.path]
                kept = self.accused if f.verdict not in ("pass", "unjudged") else self.fine
                kept[f.path] = Evidence(device, self.truth(f.path), self._yardstick(f.path))
        self.best, self.text, self.order = 1 / SMALLER, "", 0
        self.followed = []  # (correlation, text)
        self.work = WORK
        self.each = (PER_RUN + PER_NODE * len(self.lab.nodes())
                     + sum(e.device.numel() for e in self.accused.values()))  # fmt: skip

    def _usable(self, path):
        device = self.verdict.answer.outputs.get(path)
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
        path = self.worst.path
        device = self.verdict.answer.outputs.get(path)
        if path not in self.accused:
            truth = self.truth(path)
            known = device is not None and truth is not None and device.shape != truth.shape
            return _causes_order.of_shape(device, truth) if known else ""
        p = _causes_pattern.Picture(device, self.truth(path), self._yardstick(path),
                                    self.verdict.answer.before.get(path), self._inputs(device))  # fmt: skip
        text = _causes_order.uniform(p) or (_causes_pattern.lost(p) if p.n_bad else "")
        if text:
            return text
        if _causes_whole.kinds_differ(p):
            return self._nonfinite(p) or self._uncertain(p)
        return self._damage(p) or self._whole(p) or self._uncertain(p)

    def _damage(self, p):
        """Limits, and damage that leaves most elements alone."""
        text, clamped = _causes_whole.saturated(p)
        if text and self._explains(p, clamped):
            return text
        fine = p.finely()
        if 0 < fine.n_bad < p.n // 2 and fine.n_bad != p.n_bad:
            text = _causes_pattern.damage(fine)
        return text if text and not text.startswith("saturated") else _causes_pattern.damage(p)

    def _inputs(self, device):
        """Arguments that a lost result may be taken for, by name."""
        found = {}
        for path, view in self.call.views.items():
            if tuple(view.sizes) == tuple(device.shape) and view.dtype == device.dtype:
                found[view.argument or path] = self._tensor(view)
        return found

    def _whole(self, p):
        """Mistakes that concern the whole result."""
        exact = self._exchanged_outputs(p) or self._moved(p)
        if exact:
            return exact
        scale, scaled = _causes_scale.constant(p)
        if scale and scaled is not None:
            return self._better_than(p, scale, scaled)
        if p.device.is_floating_point():
            self._try(_emulate.result_candidates(self.lab, p.device))
        self._try(_emulate.input_candidates(self.lab), follow=True)
        self._try(_emulate.inside_candidates(self.lab), follow=True)
        narrow = max(self.followed, default=(0.0, ""))[0] >= FOLLOWS
        if not (narrow and self.accused[self.worst.path].mixed()):
            self._try(self._edits(), least=KEPT * WORK)
        if p.device.is_floating_point():
            self._try(_emulate.single_candidates(self.lab), follow=True)
            self._try(_emulate.accumulator_candidates(self.lab), follow=True)
        return self.text or scale or _causes_order.reordered(p) or _causes_pattern.exchanged(p)

    def _moved(self, p):
        for text, moved in _causes_whole.moved_results(p):
            if self._explains(p, moved):
                return text
        return _causes_order.slid(p)

    def _edits(self):
        yield from _causes_edits.scalar_edits(self.lab)
        yield from _causes_edits.tensor_edits(self.lab, single=True)
        yield from _causes_edits.stride_edits(self.lab)
        yield from _causes_sums.sum_edits(self.lab)
        yield from _causes_inside.operator_edits(self.lab)
        yield from _causes_edits.optional_edits(self.lab)
        yield from _causes_edits.tensor_edits(self.lab)
        yield from _causes_edits.swap_edits(self.lab)
        yield from _causes_edits.pair_edits(self.lab)

    def _better_than(self, p, scale, scaled):
        """A factor or an amount has a better name where a variant of the operator gives it
        as well."""
        own = self.accused[self.worst.path].residual(scaled)
        self._try((t, run) for t, run in self._variants() if not t.startswith("computes"))
        better = self.text and self.best <= (2 * own if own < 1 else 0.0)
        return self.text if better else scale

    def _variants(self):
        yield from _causes_edits.scalar_edits(self.lab)
        for node in self.lab.nodes():
            for make in (_causes_inside.node_arguments, _causes_inside.node_swaps):
                for text, edits in make(self.lab, node):
                    yield text, lambda e=edits: self.lab.edited(e)

    def _nonfinite(self, p):
        """NaN and Inf out of place: saturation, overflow of a lower format, a variant."""
        text, clamped = _causes_whole.saturated(p)
        if text and self._explains(p, clamped):
            return text
        if p.n_bad == 1:
            text = _causes_pattern.damage(p)
            if text:
                return text
        text = self._moved(p) or self._overflow()
        if text:
            return text
        return _causes_whole.nonfinite(p) or _causes_pattern.damage(p) or self._whole(p)

    def _overflow(self):
        """A formula or a format whose intermediates overflow."""
        self._try(_emulate.overflow_candidates(self.lab))
        return self.text

    def _uncertain(self, p):
        """Noise whose emulation goes with it, then what the place alone tells."""
        return (_causes_scale.by_slices(p) or self._followed() or self._spectrum(p)
                or _causes_order.content(p, self._indices()) or _causes_pattern.damage(p, certain=False)
                or self._likely(p))  # fmt: skip

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
        if 0 < grid <= 11:
            name = "bfloat16" if grid <= 8 else "float16"
            return f"intermediates or accumulator rounded to {name}: the result has {grid} significant bits"
        if self.verdict.verdict != "reduced":
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
        return self.accused[self.worst.path].noise_name(p.device, self._adds(), seen)

    def _count(self):
        return max(int(self.accused[self.worst.path].off.sum()), 1)

    def _adds(self):
        names = {n.name for n in self.lab.nodes()}
        return bool(names & (_causes_inside.PRODUCTS | {"sum", "mean", "cumsum", "var"}))

    # ---- trying ----

    def _exchanged_outputs(self, p):
        for path, truth in self.reference.truth.items():
            if path != self.worst.path and truth.shape == p.device.shape:
                if truth.dtype == p.truth.dtype and self._explains(p, truth):
                    return f"outputs are exchanged: {self.worst.path} holds {path}"
        return ""

    def _explains(self, p, emulated):
        return self.accused[self.worst.path].residual(emulated) <= 1 / SMALLER

    def _try(self, candidates, follow=False, least=0.0):
        """Runs candidates until one gives the same bits, or until `least` is left of the
        work; keeps the one that comes nearest."""
        if self._settled():
            return
        for text, emulate in candidates:
            if self.work <= least:
                return
            self.work -= self.each
            try:
                outputs = emulate()
            except Exception:  # not every operator has every mistake
                continue
            self._weigh(text, outputs, follow)
            if self._settled() and "inputs rounded to TF32" not in (self.text, text):
                return

    def _settled(self):
        """Whether what is left of the error leaves no room for a better name."""
        return self.best <= CERTAIN and not self.text.startswith(VAGUE)

    def _residual(self, outputs):
        """How well the worst output is explained; another accused one must be as well, or
        be left alone: then it has a mistake of its own."""
        worst = self.accused[self.worst.path].residual(outputs[self.worst.path])
        for path, evidence in self.accused.items():
            if worst <= 1 / SMALLER and path != self.worst.path:
                found = evidence.residual(outputs[path])
                alone = found > 1 / SMALLER and evidence.unmoved(outputs[path])
                worst = max(worst, 1e-3 if alone else found)
        return worst

    def _weigh(self, text, outputs, follow):
        if not self.accused.keys() <= outputs.keys():
            return
        residual = self._residual(outputs)
        if follow and residual > 1 / SMALLER:
            value = self.accused[self.worst.path].correlation(outputs[self.worst.path])
            self.followed.append((value, text))
        if residual > 2 * self.best:
            return
        if "TF32" in self.text and text == self.text.replace("TF32", "float16"):
            if residual <= 2 * self.best:
                self.text = self.text.replace("TF32", "TF32 or float16")
                return
        vague = self.text.startswith(VAGUE) and not text.startswith(VAGUE)
        if vague and residual <= 2 * self.best:
            self.best, self.text = min(residual, self.best), text
            return
        if residual >= self.best or (self.text and residual > self.best / 2):
            return
        if any(e.contradicts(outputs[p]) for p, e in self.fine.items() if p in outputs):
            return
        self.best, self.text = residual, text


def _format_of(text):
    return next((n for n in ("bfloat16", "TF32", "float16") if n in text), text)
