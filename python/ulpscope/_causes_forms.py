# SPDX-License-Identifier: Apache-2.0
"""Other formulas in place of a function, written out: near relatives that no operator of its
own computes, a step left out, a value of the formula taken where a later one belongs. They are
tried on the operators inside a call and on the functions that it calls. Each is (text, edit).
Neighbours: `_causes_inside` (operators in place of operators), `_diagnose` (chooses).
"""

import math

import torch

from ._causes_nodes import Edited

MOST_NODES = 40  # of a formula whose values are taken for one another


def _fmod_of(whole):
    return lambda x, y, *a, **k: x - whole(x / y) * y


def _copied_sign(x, y):
    return x * torch.where(torch.signbit(torch.as_tensor(y, dtype=x.dtype)), -1.0, 1.0).to(x.dtype)


def _sinc(x):
    return torch.where(x == 0, torch.ones_like(x), torch.sin(x) / x)


def _rescaled(x, *args, **kwargs):
    return torch.nn.functional.layer_norm(x, *args[:1], *(args[1:2] or (None,)), None, *(e for e in args[2:3] if e))


def _per_sample(x, running_mean=None, running_var=None, weight=None, bias=None, *args, **kwargs):
    return torch.nn.functional.group_norm(x, 1, weight, bias)


FORMS = {
    "frac": [("x - floor(x) instead of frac", lambda x: x - x.floor()),
             ("x - round(x) instead of frac", lambda x: x - x.round())],
    "fmod": [("rounds the quotient instead of cutting it in fmod", _fmod_of(torch.round))],
    "remainder": [("rounds the quotient instead of flooring it in remainder", _fmod_of(torch.round))],
    "hypot": [("the root is missing in hypot", lambda x, y: x * x + y * y),
              ("|x| + |y| instead of hypot", lambda x, y: x.abs() + y.abs()),
              ("max(|x|, |y|) instead of hypot", lambda x, y: torch.maximum(x.abs(), y.abs()))],
    "erfinv": [("erf instead of erfinv", torch.erf)],
    "copysign": [("x times the sign of y instead of copysign", _copied_sign)],
    "atan2": [("atan(y / x) instead of atan2, whatever the quadrant", lambda y, x: torch.atan(y / x))],
    "sinc": [("sin(x) / x instead of sinc, without pi", _sinc)],
    "gelu": [("quick gelu, x * sigmoid(1.702 x), instead of gelu", lambda x, *a, **k: x * torch.sigmoid(1.702 * x))],
    "logcumsumexp": [("the logarithm of logcumsumexp is missing", lambda x, dim: x.exp().cumsum(dim))],
    "logsumexp": [("the logarithm of logsumexp is missing", lambda x, *a, **k: torch.logsumexp(x, *a, **k).exp())],
    "lgamma": [("log instead of lgamma", torch.log)],
    "digamma": [("log instead of digamma", torch.log)],
    "xlogy": [("xlog1py instead of xlogy", torch.special.xlog1py),
              ("the factor of xlogy is missing", lambda x, y: torch.as_tensor(y).log() * torch.ones_like(x))],
    "logit": [("log instead of logit", lambda x, *a, **k: x.log())],
    "relu": [("the square of relu instead of relu", lambda x: x.relu() ** 2)],
    "clamp_min": [("the square of what was clamped", lambda x, low: x.clamp_min(low) ** 2)],
    "clamp": [("the square of what was clamped", lambda *a, **k: torch.clamp(*a, **k) ** 2)],
    "abs": [("the square instead of the absolute value", lambda x: x * x)],
    "square": [("the absolute value instead of the square", torch.abs)],
    "rms_norm": [("layer_norm instead of rms_norm: the mean is subtracted", _rescaled)],
    "instance_norm": [("statistics over all channels instead of each (group_norm of one group)", _per_sample)],
    "celu": [("elu instead of celu", lambda x, alpha=1.0, *a, **k: torch.nn.functional.elu(x, alpha))],
    "elu": [("celu instead of elu", lambda x, alpha=1.0, *a, **k: torch.nn.functional.celu(x, alpha or 1.0))],
    "softplus": [("relu instead of softplus", lambda x, *a, **k: x.relu())],
    "tan": [("tanh instead of tan", torch.tanh)], "atan": [("tanh instead of atan", torch.tanh)],
    "erfc": [("1 + erf instead of 1 - erf", lambda x: 1 + torch.erf(x))],
    "log": [("log2 instead of log", lambda x: x.log() / math.log(2))],
}  # fmt: skip


def forms_of(name):
    """(text, function(func, args, kwargs)) for a function or an operator of that name."""
    for text, form in FORMS.get(name, ()):
        yield f"wrong variant: {text}", lambda func, args, kwargs, f=form: f(*args, **kwargs)


def node_forms(lab, node):
    """Other formulas in place of one operator; a step that writes in place, left out."""
    if not node.writes:
        for text, edit in forms_of(node.name):
            yield text, {node.place: edit}
    elif node.args and getattr(node.args[0], "floats", False):
        yield (f"dropped contribution: the step {node.name}_ is left out",
               {node.place: lambda func, args, kwargs: args[0]})  # fmt: skip


class Wired(Edited):
    """Runs operators as they are but for one, whose result is an operand that another one,
    before it, was given."""

    def __init__(self, source, operand, target):
        super().__init__({source: self._note_operand, target: self._take})
        self.operand, self.held = operand, None

    def _note_operand(self, func, args, kwargs):
        self.held = args[self.operand].clone()
        return func(*args, **kwargs)

    def _take(self, func, args, kwargs):
        return self.held.clone()


class Fed(Wired):
    """The same, but what the operator `target` is given as its operand `into`."""

    def __init__(self, source, operand, target, into):
        super().__init__(source, operand, target)
        self.into = into

    def _take(self, func, args, kwargs):
        return func(*args[: self.into], self.held, *args[self.into + 1 :], **kwargs)


def taken_early(lab):
    """(text, run): an operator is given what its operand was made from, though the operand is
    used elsewhere as well; or it gives what one of its operands was made from."""
    nodes = lab.nodes()
    if len(nodes) > MOST_NODES:
        return
    makers = {}
    for node in nodes:
        for into, seen in _operands(node):
            maker = makers.get(seen.storage)
            for k, early in _operands(maker) if maker is not None else ():
                if early.shape != seen.shape or early.dtype != seen.dtype:
                    continue
                text = f"computes without a step: {node.name} takes an operand of {maker.name} (dropped contribution)"
                yield text, lambda s=maker, k=k, t=node, i=into: lab.run(lambda: Fed(s.place, k, t.place, i))
                if early.shape == node.shape and not node.writes:
                    yield (f"computes without two steps: {maker.name} and {node.name} are left out (dropped contribution)",
                           lambda s=maker, k=k, t=node: lab.run(lambda: Wired(s.place, k, t.place)))  # fmt: skip
        makers.update({made: node for made in node.made if not node.writes})


def _operands(node):
    return [(i, a) for i, a in enumerate(node.args) if getattr(a, "floats", False) and a.shape]
