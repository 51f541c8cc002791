# SPDX-License-Identifier: Apache-2.0
"""The operands of a verdict: a call's float64 reference and its float32 yardstick, also on
perturbed inputs. Everything runs on the CPU; nothing here decides.

The formulas are in docs/verdict.md; the perturbation itself is `_core.perturb`.
"""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _core, reference
from ._replay import BadCall, bind_cast, computed, outputs_of, plain, segments, widened

FAN_SHARES = (1 / 2, 1 / 16, 1 / 128, 1 / 1024, 1 / 8192, 1 / 65536)
FAN_DELTA = 2.0**-12
FEW_OUTPUTS = 64


class Widen(TorchDispatchMode):
    """Keeps a custom operator's kernel in float64 where it asks for float32 itself."""

    NARROW = (torch.float32, torch.float16, torch.bfloat16)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in self.NARROW:
            kwargs["dtype"] = torch.float64
        args = [torch.float64 if _is_narrow(a, self.NARROW) else a for a in args]
        return func(*args, **kwargs)


def _is_narrow(value, narrow):
    return isinstance(value, torch.dtype) and value in narrow


def cpu_kernel(call):
    """The operator's own kernel on the CPU, callable under a dispatch mode that then sees
    the operators inside it. The operator itself where it has no such kernel."""
    function = call.function
    key = torch._C.DispatchKey.CPU
    space = call.op.split("::")[0]
    if space in ("aten", "prims") or not hasattr(function, "_op_dk"):
        return function
    if not function.has_kernel_for_dispatch_key(key):
        key = torch._C.DispatchKey.CompositeExplicitAutograd
        if not function.has_kernel_for_dispatch_key(key):
            return function
    return lambda *args, **kwargs: function._op_dk(key, *args, **kwargs)


class Reference:
    """Replays one call in float64 and float32. Results are dicts path -> plain tensor."""

    def __init__(self, call, seed=0):
        self.call = call
        self.seed = seed
        self.parts = segments(call)
        self.truth = None
        self.yardstick = None
        self._shares = {}
        self._native = None
        self._inward = False
        self._own = reference.find(call.op)
        self._custom = "::" in call.op and call.op.split("::")[0] not in ("aten", "prims")

    # ---- runs ----

    def _run(self, dtype_of, contents=None, function=None):
        bound = bind_cast(self.call, self.parts, dtype_of, contents)
        function = function or self._own or self.call.function
        return {
            path: plain(t)
            for path, t in outputs_of(self.call, bound, bound.run(function)).items()
        }

    def wide(self, contents=None):
        """The call in float64."""
        if self._custom and self._own is None:
            out = self._run(widened, contents, self._widening)
        else:
            out = self._run(widened, contents)
        return {p: t.double() if t.is_floating_point() else t for p, t in out.items()}

    def _widening(self, *args, **kwargs):
        with Widen():
            return cpu_kernel(self.call)(*args, **kwargs)

    def narrow(self, contents=None):
        """The call in float32 (float64 where the call is in float64)."""
        out = self._run(computed, contents)
        return {p: t.float() if _is_low(t.dtype) else t for p, t in out.items()}

    def begin(self):
        """Computes truth and yardstick; whatever the operator raises is passed on."""
        self.truth = self.wide()
        self.yardstick = self.narrow()
        if self.truth.keys() != self.yardstick.keys():
            raise BadCall("float64 and float32 give different numbers of outputs")

    def native(self):
        """The call on the CPU in the very dtypes captured; None where the CPU refuses."""
        if self._native is None:
            low = [
                p for p in self.parts.values()
                if widened(p.dtype) != p.dtype and computed(p.dtype) != p.dtype
            ]  # fmt: skip
            try:
                same = not low and not _names_low_dtype(self.call)
                self._native = (self.yardstick if same else self._run(lambda dtype: dtype),)
            except Exception:  # whatever a kernel raises: there is no native answer then
                self._native = (None,)
        return self._native[0]

    # ---- perturbed runs ----

    def _moving(self):
        """Segments that replays perturb: floats, but not labels and the like unless there
        is nothing else."""
        floats = {
            key: part
            for key, part in self.parts.items()
            if (part.dtype.is_floating_point or part.dtype.is_complex)
            and not part.steers
            and part.data.numel()
        }
        real = {k: p for k, p in floats.items() if not p.small_integers}
        return real or floats

    def _perturbed(self, replay, delta=0.0, share=0.0):
        contents = {}
        for key, part in self._moving().items():
            source = torch.view_as_real(part.data) if part.data.is_complex() else part.data
            target = torch.empty(source.shape, dtype=torch.float64)
            _core.perturb(
                source, target, seed=self.seed, replay=replay, argument=part.number,
                delta=delta, share=share,
            )  # fmt: skip
            if self._inward:
                finite = source[source.isfinite()].double()
                if finite.numel():
                    target = target.clamp(finite.min(), finite.max())
            contents[key] = torch.view_as_complex(target) if part.data.is_complex() else target
        return contents

    def replay(self, k):
        """Truth and yardstick on perturbed input k. Inputs that leave the operator's
        domain are drawn back into the range of the captured ones."""
        try:
            contents = self._perturbed(k)
            return self.wide(contents), self.narrow(contents)
        except Exception:
            if self._inward:
                raise
            self._inward = True
            return self.replay(k)

    def fan_in(self, path):
        """How many inputs one element of output `path` depends on, at least 1: perturbs a
        share of the inputs and counts the outputs that do not move."""
        live = self.truth[path].isfinite() & (self.truth[path] != 0)
        if not bool(live.any()):
            return 1.0
        draws = 1 if int(live.sum()) >= FEW_OUTPUTS else 8
        n = sum(part.data.numel() for part in self._moving().values())
        for i, share in enumerate(FAN_SHARES):
            if n * share < 0.5:
                break
            still = sum(
                float((self._shared(i, d)[path] == self.truth[path])[live].double().mean())
                for d in range(draws)
            )
            still /= draws
            if still > 0.05:
                return _fan_from(still, share)
        return float(max(n, 1))

    def _shared(self, i, draw):
        if (i, draw) not in self._shares:
            contents = self._perturbed(1000 + 16 * i + draw, FAN_DELTA, FAN_SHARES[i])
            self._shares[i, draw] = self.wide(contents)
        return self._shares[i, draw]

    def flushed(self):
        """The yardstick under flush-to-zero; empty where this CPU cannot."""
        if not torch.set_flush_denormal(True):
            return {}
        try:
            return self.narrow()
        finally:
            torch.set_flush_denormal(False)

    def moves_only(self, path):
        """Whether output `path` holds nothing but values of the inputs."""
        result = self.truth[path]
        result = result[result.isfinite()].flatten()
        inputs = [
            plain(p.data).double().flatten()
            for p in self.parts.values()
            if p.dtype.is_floating_point or p.dtype.is_complex
        ]
        if not result.numel() or not inputs:
            return not inputs
        return float(torch.isin(result, torch.cat(inputs)).double().mean()) > 0.9

    def is_random(self):
        """Whether two runs with different seeds differ: an operator that draws random
        numbers without saying so in its schema."""
        state = torch.random.get_rng_state()
        try:
            torch.manual_seed(1)
            first = self.narrow()
            torch.manual_seed(2)
            second = self.narrow()
        finally:
            torch.random.set_rng_state(state)
        return any(not _equal(first[p], second[p]) for p in first)


def _equal(a, b):
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _fan_from(still, share):
    """F from the share of outputs that did not move, held within what this share of
    perturbed inputs can tell at all (a handful of outputs tells 0 or 1)."""
    fan = math.log(still) / math.log1p(-share) if still < 1 else 1.0
    low = 1.0 if share == 0.5 else 0.25 / share
    return min(max(fan, low), max(3 / share, 1.0))


def _is_low(dtype):
    return dtype.is_floating_point and dtype.itemsize < 4


def _names_low_dtype(call):
    """Whether an argument names a dtype that the yardstick would widen."""
    values = list(call.args) + list(call.kwargs.values())
    return any(isinstance(v, torch.dtype) and computed(v) != v for v in values)
