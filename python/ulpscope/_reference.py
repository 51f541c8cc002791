# SPDX-License-Identifier: Apache-2.0
"""The operands of a verdict: a call's float64 reference and its float32 yardstick, also on
perturbed inputs. Everything runs on the CPU; nothing here decides.

The formulas are in docs/verdict.md; the perturbation itself is `_core.perturb`.
"""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _core, reference
from ._jumps import PART, freed, suspects
from ._noise import Noise
from ._replay import (
    LEFT_ALONE, BadCall, bind_cast, computed, is_write, outputs_of, plain, rebuilt, segments,
    widened,
)  # fmt: skip

FAN_SHARES = (1 / 2, 1 / 16, 1 / 128, 1 / 1024, 1 / 8192, 1 / 65536)
FAN_DELTA = 2.0**-12
FEW_OUTPUTS = 64
FAR_DELTAS = (2.0**-4, 2.0**-5, 2.0**-6, 2.0**-8)
FAR_REPLAYS = 2000
N_NOISES = 3


class Widen(TorchDispatchMode):
    """Keeps a computation in one precision where it asks for a lower one itself: in its
    tensors (constants, closures), its dtype arguments and what it makes out of nothing."""

    NARROW = {
        torch.float64: (torch.float32, torch.float16, torch.bfloat16),
        torch.float32: (torch.float16, torch.bfloat16),
    }

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.narrow = dtype, self.NARROW[dtype]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        declared = func._schema.arguments
        kept = {a.name for a in declared if is_write(a)} | LEFT_ALONE
        if any(r.alias_info is not None and not is_write(r) for r in func._schema.returns):
            kept |= {a.name for a in declared if a.alias_info is not None}
        args = [
            a if i < len(declared) and declared[i].name in kept else self._wide(a)
            for i, a in enumerate(args)
        ]
        kwargs = {k: v if k in kept else self._wide(v) for k, v in (kwargs or {}).items()}
        out = func(*args, **kwargs)
        return out if func._schema.returns and kept - LEFT_ALONE else self._wide(out)

    def _wide(self, value):
        if isinstance(value, torch.dtype):
            return self.dtype if value in self.narrow else value
        if isinstance(value, torch.Tensor):
            return value.to(self.dtype) if value.dtype in self.narrow else value
        if isinstance(value, (list, tuple)):
            return rebuilt(value, lambda _, item: self._wide(item))
        return value


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
        self.jumps = {}  # path -> what replays crossed
        self._own = reference.find(call.op)
        self._custom = "::" in call.op and call.op.split("::")[0] not in ("aten", "prims")

    # ---- runs ----

    def _run(self, dtype_of, contents=None, function=None):
        function = function or self._own or self.call.function
        if self.call.composite and dtype_of is not _as_given:
            return self._run_composite(dtype_of, contents, function)
        return self._run_plain(dtype_of, contents, function)

    def _run_composite(self, dtype_of, contents, function):
        """A Python callable, held to one precision throughout. One that cannot bear it
        (it looks at bits, or at its callers) runs as it is."""
        wide = dtype_of is widened or any(p.dtype == torch.float64 for p in self.parts.values())

        def held(*args, **kwargs):
            with Widen(torch.float64 if wide else torch.float32):
                return function(*args, **kwargs)

        try:
            return self._run_plain(dtype_of, contents, held)
        except Exception:  # whatever it raises, the second run raises as well
            return self._run_plain(dtype_of, contents, function)

    def _run_plain(self, dtype_of, contents, function):
        bound = bind_cast(self.call, self.parts, dtype_of, contents)
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
        with Widen(torch.float64):
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
        if self.call.composite:
            return self.call.native
        if self._native is None:
            low = [
                p for p in self.parts.values()
                if widened(p.dtype) != p.dtype and computed(p.dtype) != p.dtype
            ]  # fmt: skip
            try:
                same = not low and not _names_low_dtype(self.call)
                self._native = (self.yardstick if same else self._run(_as_given),)
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
        """Truth and yardstick on perturbed input k, freed of jumps. Inputs that leave the
        operator's domain are drawn back into the range of the captured ones."""
        wide, narrow, contents = self._pair(k)
        odd = [p for p in wide if self._is_odd(p, wide, narrow)]
        if not odd:
            return wide, narrow
        parts = self.parts
        nearer = self.wide({
            key: parts[key].data.to(t.dtype).lerp(t, PART) for key, t in contents.items()
        })  # fmt: skip
        for path in odd:
            if path in nearer and nearer[path].shape == wide[path].shape:
                wide[path], narrow[path], jump = freed(
                    self.truth[path], self.yardstick[path], wide[path], narrow[path],
                    nearer[path],
                )  # fmt: skip
                if jump is not None:
                    self.jumps.setdefault(path, []).append(jump)
        return wide, narrow

    def _is_odd(self, path, wide, narrow):
        truth, moved = self.truth.get(path), wide[path]
        if truth is None or not truth.is_floating_point():
            return False
        if not truth.shape == moved.shape == narrow[path].shape:
            return False
        return bool(suspects(truth, moved).any())

    def _pair(self, k, delta=0.0):
        """Truth and yardstick on perturbed input k, and the input."""
        try:
            contents = self._perturbed(k, delta)
            return self.wide(contents), self.narrow(contents), contents
        except Exception:
            if self._inward:
                raise
            self._inward = True
            return self._pair(k, delta)

    def losses(self, path):
        """What float32 loses on inputs further away, element by element: where a formula
        cancels, all replays close by may repeat one lucky rounding."""
        truth = self.truth[path]
        yield self.yardstick[path].double() - truth
        for k, delta in enumerate(FAR_DELTAS):
            wide, narrow, _ = self._pair(FAR_REPLAYS + k, delta)
            if path not in wide or not wide[path].shape == truth.shape == narrow[path].shape:
                return
            lost = (narrow[path].double() - wide[path]).abs()
            # No more than the same share of the result where the result has grown.
            yield lost * (truth.abs() / wide[path].abs()).clamp(max=1.0)
        if self.call.composite and self.call.steps > 1:
            yield from self._noises(path)

    def _noises(self, path):
        """What float32 loses when every rounding inside a callable falls otherwise."""
        def noisy(*args, **kwargs):
            with Noise(self.seed + i):
                return self.call.function(*args, **kwargs)

        for i in range(N_NOISES):  # noqa: B007 - noisy() reads it
            narrow = self._run_composite(computed, None, noisy)
            if path in narrow and narrow[path].shape == self.truth[path].shape:
                yield (narrow[path].double() - self.truth[path]).abs()

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


def _as_given(dtype):
    return dtype


def _is_low(dtype):
    return dtype.is_floating_point and dtype.itemsize < 4


def _names_low_dtype(call):
    """Whether an argument names a dtype that the yardstick would widen."""
    values = list(call.args) + list(call.kwargs.values())
    return any(isinstance(v, torch.dtype) and computed(v) != v for v in values)
