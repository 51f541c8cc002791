# SPDX-License-Identifier: Apache-2.0
"""One case: an operator with its arguments, the truth, what honest kernels give, and the
faults that are faults. Truth and errors are computed here, apart from the library."""

import copy
import hashlib

import numpy as np
import torch

from . import variants
from .arith import Arith, V
from .damage import HOW, damaged
from .profiles import Inputs
from .rounding import OF_DTYPE, flushed, quantum, rounded, to_tensor

U = 2.0**-24
DRAWS = 8


def seed_of(*parts):
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:4], "big")


class Case:
    """Arguments and truth of one operator, profile and dtype."""

    def __init__(self, op, profile, dtype, seed=0):
        self.op, self.profile, self.dtype, self.seed = op, profile, dtype, seed
        self.key = seed_of(op.name, profile, dtype, seed)
        inputs = Inputs(profile, dtype, self.key)
        self.args, self.kwargs = op.make(inputs)
        self.native, self.problem = self._native(self.args)
        self.truth = [t.v if isinstance(t, V) else t for t in self.run(work="f64")]
        self.dtypes = self._dtypes(inputs.dtype)
        self.inner = []  # results of honest kernels before their last rounding
        self.far = None

    def _native(self, args, wide=None):
        """torch's own CPU kernel, on the dtypes given or on wider ones."""
        args, kwargs = copy.deepcopy((args, self.kwargs))
        if wide:
            args = [a.to(wide) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
        try:
            out = self.op.fn(*args, **kwargs)
        except Exception as problem:
            return None, str(problem).splitlines()[0][:120]
        return list(out) if isinstance(out, (tuple, list)) else [out], ""

    def _dtypes(self, own):
        if self.native is not None:
            return [t.dtype for t in self.native]
        return [own if np.asarray(t).dtype.kind == "f" else torch.int64 for t in self.truth]

    def run(self, args=None, **arith):
        """The algorithm on one machine, as a list of V or integer arrays."""
        machine = Arith(seed=self.key, **arith)
        out = self.op.algo(machine, *(self.args if args is None else args), **self.kwargs)
        return list(out) if isinstance(out, tuple) else [out]

    # ---- outputs -----------------------------------------------------------------------

    def finish(self, values, out=()):
        """Tensors of the call's dtypes, rounded once; `out` rounds them to a format first."""
        made = []
        for value, dtype in zip(values, self.dtypes):
            if not isinstance(value, V):
                made.append(torch.from_numpy(np.ascontiguousarray(value)).to(dtype))
                continue
            x = value.v
            if out and out[1] == "flush":
                x = flushed(rounded(x, "f16"), "f16")
            elif out:
                x = rounded(x, *out)
            made.append(to_tensor(x, dtype))
        return made

    def correct(self):
        """(variant, tensors) of every honest kernel; must be taken before `faults`."""
        made = []
        for v in variants.correct(self.op, self.profile):
            values = self.run(**v.arith)
            if v.arith.get("work") != "f64":
                plain = v.arith.keys() <= {"order", "fma", "ftz"}
                self.inner.append((plain, [t.v if isinstance(t, V) else None for t in values]))
            made.append((v, self.finish(values)))
        wide, _ = self._native(self.args, torch.float32)
        if wide is not None and not self.op.mutates:
            self.inner.append((True, [t.double().numpy() if t.is_floating_point() else None for t in wide]))
            made.append((variants.Variant("native32", "correct", {}), [t.to(d) for t, d in zip(wide, self.dtypes)]))
        self.honest = made
        self._measure()
        return made

    def faults(self, generic=6):
        """(variant, tensors, dropped, true bits) of every planted fault."""
        made = variants.reduced(self.op, self.dtype) + variants.formula(self.op)
        for v in made:
            try:
                tensors = self.finish(self.run(**v.arith), v.out)
            except (IndexError, ValueError):
                continue
            yield (v, tensors, *self.weigh(tensors))
        yield from self._spoiled(generic)

    def _spoiled(self, generic):
        honest = self.honest[0][1]
        at = max(range(len(honest)), key=lambda i: honest[i].is_floating_point() * honest[i].numel())
        if not honest[at].is_floating_point():
            return
        if not honest[at].isfinite().any():
            return
        rng = np.random.default_rng(self.key)
        names = sorted(HOW, key=lambda n: seed_of(self.key, n))
        for name in names[:generic]:
            spoiled = damaged(name, honest[at], rng)
            if spoiled is None:
                continue
            tensors = [spoiled if i == at else t for i, t in enumerate(honest)]
            yield (variants.Variant(name, "generic", {}), tensors, *self.weigh(tensors))

    # ---- how far from the truth ----------------------------------------------------------

    def _measure(self):
        """Per output: how far honest kernels are, and how far rounded inputs move it."""
        moved = [self.run(self._moved(k), work="f64") for k in range(DRAWS)]
        self.reach, self.worst, self.usual = [], [], []
        for i, truth in enumerate(self.truth):
            if np.asarray(truth).dtype.kind != "f":
                self.reach.append(None), self.worst.append(None), self.usual.append(None)
                continue
            with np.errstate(all="ignore"):
                steps = np.stack([(m[i].v - truth) / 2.0**-20 for m in moved])
                self.reach.append(np.nan_to_num(np.sqrt(np.mean(steps**2, axis=0)), nan=0.0, posinf=0.0))
                errors = np.stack([np.abs(t[i] - truth) for _, t in self.inner])
                usual = np.stack([np.abs(t[i] - truth) for plain, t in self.inner if plain])
                usual = np.sqrt(np.mean(usual**2, axis=0))
                self.worst.append(np.nan_to_num(errors.max(axis=0), nan=0.0, posinf=0.0))
                self.usual.append(np.nan_to_num(usual, nan=0.0, posinf=0.0))

    def _moved(self, k):
        rng = np.random.default_rng((self.key, k))
        return [
            a.double() * (1 + 2.0**-20 * torch.from_numpy(rng.choice([-1.0, 1.0], a.shape)))
            if isinstance(a, torch.Tensor) and a.is_floating_point()
            else a
            for a in self.args
        ]

    def weigh(self, tensors):
        """(no fault at all, effective bits by an independent estimate or None)."""
        fault, bits = False, None
        for i, t in enumerate(tensors):
            if self.reach[i] is None:
                fault |= not any(torch.equal(t, h[1][i]) for h in self.honest)
                continue
            far, own = self._weigh_one(i, t)
            fault |= far
            if own is not None:
                bits = own if bits is None else min(bits, own)
        return not fault, bits

    def _weigh_one(self, i, t):
        truth, d = self.truth[i], t.double().numpy()
        name = OF_DTYPE.get(t.dtype, "f32")
        with np.errstate(all="ignore"):
            step = quantum(truth, name)
            right = rounded(truth, name)
            kind = (np.isnan(d) == np.isnan(truth)) & ((d == right) | np.isfinite(d) | np.isnan(d))
            odd = ~kind & ~any_kind(self.honest, i, d)
            error = np.abs(d - truth)
            floor = np.maximum(self.worst[i], np.maximum(step / 2, U * self.reach[i]))
            over = np.isfinite(error) & (error > 2 * floor)
            e = np.maximum(error - step / 2, 0)
            scale = np.maximum(np.maximum(np.abs(truth), self.reach[i]), np.maximum(self.usual[i] / U, 2.0**-125))
            score = (e / (U * scale))[np.isfinite(error) & (d != right) & (e > 0)]
        bits = 24 - np.log2(max(1.0, np.quantile(score, 0.99))) if score.size >= 8 else None
        return bool(odd.any() or over.any()), bits


def any_kind(honest, i, d):
    """Where some honest kernel gives the same kind of number."""
    same = np.zeros(d.shape, dtype=bool)
    for _, tensors in honest:
        h = tensors[i].double().numpy()
        same |= (np.isnan(h) == np.isnan(d)) & (np.isinf(h) == np.isinf(d))
    return same
