# SPDX-License-Identifier: Apache-2.0
"""What wrong kernels are written with that aim at an excuse: drawn numbers, a call and what is given for it, and the
table they stand in."""

import math
import tempfile
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from calls import make_call
import ulpscope
from selections import picks
from ulpscope import _core, check_call, judge_call
from ulpscope.executors.device import Answer, PythonDevice
from ulpscope.executors.module_call import module_call
from ulpscope.judges import products
from ulpscope.judges.hops import strays
from ulpscope.session import judging as judging

aten = torch.ops.aten
KERNELS = {}  # code -> functions of a Draw


class Draw:
    """Numbers that hang on a seed."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *sizes):
        return torch.randn(*sizes, generator=self.generator)

    def even(self, *sizes):
        return torch.rand(*sizes, generator=self.generator)

    def whole(self, low, high, *sizes):
        return torch.randint(low, high, sizes, generator=self.generator)

    def some(self, like, share):
        return self.even(*like.shape) < share


@dataclass
class Wrong:
    """A call and what a wrong kernel gives for it."""

    fn: object
    args: tuple
    outputs: object
    kwargs: dict = field(default_factory=dict)
    most: float = 0.0  # bits that a pass may claim: as many as are left

    def judged(self):
        return judge_call(self.fn, self.args, self.kwargs, outputs=self.outputs, cause=False)


def aims_at(*codes):
    def add(made):
        for code in codes:
            KERNELS.setdefault(code, []).append(made)
        return made

    return add


# ---- draws ---------------------------------------------------------------------------


def _attention(d):
    q, k, v = (d.normal(2, 4, 64, 32) for _ in range(3))
    return q, k[:, :, :3], v[:, :, :3]


# ---- what a mask hides ---------------------------------------------------------------


class WrongAttention(Wrong):
    """Attention as a trace has it: of functions nothing is said beside a mask."""

    def judged(self):
        call = make_call("aten::scaled_dot_product_attention", *self.args, None, 0.0, True)
        found = judging.judge_given(call, Answer({"out[0]": self.outputs}), seconds=0)
        return SimpleNamespace(
            verdict=found.verdict, effective_bits=found.worst.bits, sentence=found.reason, notes=found.notes
        )


# ---- memory that nobody writes -------------------------------------------------------


class WrongAlpha(Wrong):
    """`outputs` is what a kernel makes of the right answer."""

    def judged(self):
        call = make_call("aten::_ctc_loss.default", *self.args)
        made = judging.judge_call(call, PythonDevice(lambda op, a, k: self.outputs(*op(*a, **k))), seconds=0)
        return SimpleNamespace(
            verdict=made.verdict, effective_bits=made.worst.bits, sentence=made.reason, notes=made.notes
        )


@dataclass
class WrongFunction(Wrong):
    """A call judged against somebody else's formula: `outputs` computes it."""

    def judged(self):
        return check_call(self.outputs, self.args, reference=self.fn, cause=False, repeat=1)


@dataclass
class WrongSum(Wrong):
    """A sum over ranks: `fn` of `args`, and what a rank got."""

    def judged(self):
        good = strays(self.fn, self.args, self.outputs)[1]
        return judge_call(torch.zeros, (1,), outputs=torch.full((1,), float(not good)), cause=False)


# ---- what is not looked at, or does not decide -----------------------------------------


class WrongLarge(Wrong):
    """A product that counts as large."""

    def judged(self):
        work, products.WORK = products.WORK, 1 << 24
        try:
            return super().judged()
        finally:
            products.WORK = work


@dataclass
class WrongDevice(Wrong):
    """A call on a device: `outputs` computes it, arguments included."""

    def judged(self):
        call = make_call(self.fn, *self.args)
        found = judging.judge_call(call, PythonDevice(lambda op, a, k: self.outputs(*a, **k)), seconds=0)
        worst = found.worst
        return SimpleNamespace(
            verdict=found.verdict,
            effective_bits=worst.bits if worst else math.nan,
            sentence=found.reason,
            notes=found.notes,
        )


@dataclass
class WrongModule(Wrong):
    """A module's forward in 16 bits; one of its operators is wrong."""

    at: str = ""

    def judged(self):
        with tempfile.TemporaryDirectory() as folder:
            with ulpscope.capture(f"{folder}/trace"), torch.no_grad():
                self.fn(*self.args)
            (whole,) = [f for f in picks(f"{folder}/trace", "cpu", modules=True) if not f.path]
            trace = _core.Trace(f"{folder}/trace")
            call = module_call(whole.module, trace.call, trace.blob)
        given = [
            call.storages[v.storage].view(v.dtype).as_strided(v.sizes, v.strides, v.offset) for v in call.views.values()
        ]
        outputs = call.replay(given, function_of=self.kernel)
        call.mutated = call.results = {}
        answer = Answer({f"out[{i}]": t for i, t in enumerate(outputs)}, "")
        found = judging.judge_given(call, answer, seconds=0)
        return SimpleNamespace(
            verdict=found.verdict, effective_bits=found.worst.bits, sentence=found.reason, notes=found.notes
        )

    def kernel(self, call):
        if call.op != self.at:
            return call.function
        return lambda *args, **kwargs: self.outputs(call.function(*args, **kwargs))
