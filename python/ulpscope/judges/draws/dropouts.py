# SPDX-License-Identifier: Apache-2.0
"""Dropouts and rrelu: the mask that an output shows, and whether what was kept has the
right value. Serves `operators`."""

import math

import torch

from ..._core import Finding, Findings
from ...calls.callable import call_of
from ...calls.verdicts import FLAGGED
from ...executors.device import Answer
from ...executors.operands import Operands, Timing
from ..outputs import judge_outputs
from .laws import Draws, bernoulli

PLAIN = {"dropout", "dropout_", "native_dropout", "_fused_dropout"}
ALPHA = {"alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_"}
FEATURES = {"feature_dropout", "feature_dropout_", "feature_alpha_dropout",
            "feature_alpha_dropout_", "dropout1d", "dropout2d", "dropout3d"}  # fmt: skip
RRELUS = {"rrelu", "rrelu_", "rrelu_with_noise", "rrelu_with_noise_",
          "rrelu_with_noise_functional"}  # fmt: skip
UNBATCHED = {"dropout1d": 2, "dropout3d": 4}  # dimensions of an input without a batch
SELU = 1.7580993408473766


def is_one(name):
    return name in PLAIN | ALPHA | FEATURES | RRELUS


def judge(name, arguments, outputs, values=True):
    """
    Draws by output, and findings on the values that do not hang on chance.

    `outputs` is in the operator's order: the result first, then mask or noise.
    """
    if name in RRELUS:
        return _judge_rrelu(arguments, outputs)
    paths = list(outputs)
    y, x = outputs[paths[0]], _input(arguments)
    p = float(arguments["p"])
    p = 1 - p if name == "_fused_dropout" else p
    rule = _Alpha(x, p) if name in ALPHA else _Plain(x, p)
    kept, shown = rule.mask(y)
    findings = Findings()
    if len(paths) > 1:
        kept, shown = outputs[paths[1]].to(torch.bool), torch.ones_like(shown)
    if values:
        findings = _judge_values(paths[0], rule, x, kept, y)
    draws = _mask_draws(name, x, kept, shown, p)
    return {paths[-1] if len(paths) > 1 else paths[0]: draws}, findings


def _input(arguments):
    return next(arguments[k] for k in ("input", "self") if arguments.get(k) is not None)


class _Plain:
    """x / (1 - p) where kept, 0 where dropped."""

    def __init__(self, x, p):
        self.x, self.p = x, p

    def value(self, x, kept):
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        return torch.where(kept, x * scale, 0.0)

    def native(self, x, kept):
        """The same as torch computes it on the CPU, every step in the dtype of x."""
        return x * kept.to(x.dtype).div(1 - self.p)

    def mask(self, y):
        """What was kept, and where the output shows it."""
        x = self.x
        small = torch.finfo(y.dtype).tiny
        kept = (y != 0) & ~(y.isnan() & x.isinf())
        return kept, x.isfinite() & (x.abs() > small)


class _Alpha:
    """Affine so that mean and variance stay as they were."""

    def __init__(self, x, p):
        self.x, self.p = x, p
        self.a = 1 / math.sqrt((SELU**2 * p + 1) * (1 - p)) if p < 1 else 0.0

    def value(self, x, kept):
        low = -SELU * self.a * (1 - self.p)
        return torch.where(kept, x * self.a + SELU * self.a * self.p, low)

    def native(self, x, kept):
        noise = kept.to(x.dtype)
        shift = noise.add(-1).mul(SELU * self.a).add(SELU * self.a * self.p)
        return x * noise.mul(self.a) + shift

    def mask(self, y):
        wide = self.x.double()
        kept = self.value(wide, torch.tensor(True))
        dropped = self.value(wide, torch.tensor(False))
        apart = (kept - dropped).abs() > 2.0**-4 * kept.abs()
        near = (y.double() - kept).abs() <= (y.double() - dropped).abs()
        return near, apart & wide.isfinite()


def _judge_values(path, rule, x, kept, y):
    """The findings on what was kept and dropped, by the rule for floats."""
    void = ~kept & ~x.isfinite() & y.isnan()  # Inf or NaN times a mask of zeros
    y = torch.where(void, rule.value(torch.zeros_like(y), kept), y) if bool(void.any()) else y
    call = call_of(rule.value, (x, kept))
    operands = Operands(call, Timing())
    operands.begin()
    findings = judge_outputs(operands, Answer({"out[0]": y}))
    for i in range(len(findings)):
        findings.rename(i, path)
    if findings[0].verdict in FLAGGED and y.dtype in (torch.bfloat16, torch.float16):
        want = rule.native(x, kept)
        if bool(((y - want).abs() <= torch.finfo(y.dtype).eps * want.abs()).all()):
            findings = Findings([Finding(path, "pass", n=y.numel(), sizes=y.shape)])
            findings.note(0, "the scale is rounded to the dtype of the input")
    return findings


def _mask_draws(name, x, kept, shown, p):
    """The mask as draws of ones; one per feature where whole features are dropped."""
    outside = ""
    if name in FEATURES:
        kept, shown, outside = _by_feature(name, x, kept, shown)
    kept, shown = kept.reshape(-1), shown.reshape(-1)
    draws = bernoulli(kept, 1 - p)
    if not 0 < p < 1:
        wrong = shown & (kept != (p <= 0))
        draws.outside = "elements dropped or kept against p" if bool(wrong.any()) else ""
        return draws
    draws.known = draws.known & shown
    draws.outside, draws.hits, draws.chance = outside, kept[shown], 1 - p
    half = torch.full_like(draws.low, 0.5)
    draws.low = torch.where(draws.known, draws.low, half)
    draws.high = torch.where(draws.known, draws.high, half)
    return draws


def _by_feature(name, x, kept, shown):
    """One draw per sample and channel; a clause where a feature is dropped in part."""
    dims = 1 if x.dim() == UNBATCHED.get(name) else 2
    flat = (*x.shape[:dims], -1)
    if x.dim() <= dims:
        flat = (*x.shape, 1)
    kept, shown = kept.reshape(flat), shown.reshape(flat)
    some_kept, some_gone = (kept & shown).any(-1), (~kept & shown).any(-1)
    torn = int((some_kept & some_gone).sum())
    why = f"{torn:,} features are dropped in part" if torn else ""
    return some_kept, some_kept | some_gone, why


def _judge_rrelu(arguments, outputs):
    """x where it is not negative, else x times a slope that is even on [lower, upper]."""
    paths = list(outputs)
    x, y = _input(arguments).reshape(-1), outputs[paths[0]].reshape(-1)
    low, high = float(arguments.get("lower", 0.125)), float(arguments.get("upper", 1 / 3))
    still = ~(x < 0)
    same = (y == x) | (y.isnan() & x.isnan())
    wide = torch.where(still | ~x.isfinite(), -1.0, x.double())
    slope = y.double() / wide
    eps = torch.finfo(y.dtype).eps
    reach = eps * slope.abs() + torch.finfo(y.dtype).smallest_normal / wide.abs()
    begin, end = (slope - reach - low) / (high - low), (slope + reach - low) / (high - low)
    known = ~still & x.isfinite()
    bad = (still & ~same) | (known & ~((end >= 0) & (begin <= 1)))
    outside = ""
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        outside = f"{float(y[at]):.6g} of {float(x[at]):.6g} at element {at:,}, a slope it never draws"
    half = torch.full_like(begin, 0.5)
    begin, end = (torch.where(known, t.clamp(0, 1), half) for t in (begin, end))
    noise = [outputs[p].reshape(-1) for p in paths[1:]]
    if noise and not outside:
        gap = (noise[0].double() * x.double() - y.double()).abs()
        if bool((gap > 4 * eps * y.double().abs() + torch.finfo(y.dtype).tiny).any()):
            outside = "noise that does not belong to the result"
    draws = Draws(begin, end, known, outside, 4 * eps)
    return {paths[0]: draws}, Findings([Finding(p, "pass") for p in paths[1:]])
