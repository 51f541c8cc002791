# SPDX-License-Identifier: Apache-2.0
"""Operators that torch takes apart itself before a device sees them: what float16 or bfloat16 lose
between these steps is torch's, not the device's. The device's own way through the steps is taken,
each step correctly rounded. Serves `session.judging`."""

from dataclasses import replace

import torch

from ..calls.mode import Mode
from ..calls.replay import BadCall, is_write, mapped, outputs_of, plain, tensors_in
from ..executors.device import TorchDevice
from ..executors.precision import Widen

LOW = (torch.float16, torch.bfloat16)
N_RUNS = 4  # the first without noise
NOTE = "rounds between its own steps, as torch's decomposition does"


class Correct(Mode):
    """Gives every step's result as the correctly rounded one, moved by what float32 may lose
    where `seed` is not 0."""

    def __init__(self, seed):
        super().__init__()
        self.random = torch.Generator().manual_seed(seed) if seed else None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        returns = func._schema.returns
        is_view = any(r.alias_info and not r.alias_info.is_write for r in returns)
        if is_view:
            return func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise BadCall("a step draws random numbers")
        written = {a.name for a in func._schema.arguments if is_write(a)}
        given = [mapped(a, _on_host) for a in args], {k: mapped(v, _on_host) for k, v in kwargs.items()}
        out = func(*args, **kwargs)
        wide = _run(func, given, torch.float64)
        narrow = _run(func, given, torch.float32) if self.random else wide
        results = [list(tensors_in(r)) for r in (out, wide, narrow)]
        if written and not results[0]:
            raise BadCall("a step gives nothing but what it writes")
        for target, right, lost in zip(*results, strict=True):
            target.copy_(self._moved(right, lost) if right.is_floating_point() else right)
        return out

    def _moved(self, right, narrow):
        if self.random is None or not right.numel():
            return right
        loss = (narrow.double() - right).abs().nan_to_num(0, 0, 0)
        size = torch.maximum(loss, loss.square().mean().sqrt()) + 2.0**-24 * right.abs()
        moved = right + 2 * size * (2 * torch.rand(right.shape, generator=self.random) - 1)
        return torch.where(right.isfinite(), moved, right)


def _on_host(value):
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def _run(func, given, dtype):
    """The step on copies of its arguments in a wider dtype."""
    def widened(value):
        floats = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype, copy=True) if floats else value

    args, kwargs = ([mapped(a, widened) for a in given[0]],
                    {k: mapped(v, widened) for k, v in given[1].items()})  # fmt: skip
    with Widen(dtype):
        return func(*args, **kwargs)


# ---- the excuse ----------------------------------------------------------------------


def taken_apart_by_torch(call, device):
    """Whether torch itself takes the operator apart on that device."""
    function, key = call.function, torch._C.DispatchKey.CompositeImplicitAutograd
    if type(device) is not TorchDevice or not isinstance(function, torch._ops.OpOverload):
        return False
    if not function.has_kernel_for_dispatch_key(key):
        return False
    try:
        own = torch._C._dispatch_key_for_device(device.type)
        return not torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), own)
    except (AttributeError, RuntimeError):  # a torch that does not tell
        return False


def by_its_steps(call, device, answer):
    """path -> which elements torch's own steps explain: those that lie between what the correctly
    rounded steps give, with one ulp of the output to both sides, Inf and NaN too where these give them."""
    free = {}
    runs = [_correct(call, device, seed) for seed in range(N_RUNS)]
    for path, given in answer.outputs.items():
        if given.dtype not in LOW or any(path not in r or r[path].shape != given.shape for r in runs):
            continue
        all_runs = torch.stack([r[path].double() for r in runs])
        ulp = _ulp(all_runs[0], given.dtype)
        odd = all_runs.isnan()  # what overflows between steps
        low, high = all_runs.masked_fill(odd, torch.inf).amin(0), all_runs.masked_fill(odd, -torch.inf).amax(0)
        free[path] = (given.double() >= low - ulp) & (given.double() <= high + ulp)
        free[path] |= given.isnan() & odd.any(0)
    return free


def _correct(call, device, seed):
    bound = device.bind(call)
    with Correct(seed):
        result = device.compute(call, bound)
    return {p: plain(t).clone() for p, t in outputs_of(call, bound, result).items()}


def _ulp(x, dtype):
    limits = torch.finfo(dtype)
    exponent = torch.frexp(x.abs().clamp(min=limits.tiny))[1]
    return torch.ldexp(torch.full_like(x, limits.eps), exponent - 1)


def forgiven(call, device, verdict, judge):
    """The verdict, or the one in which what torch's own steps lose is excused, if nothing else
    is left; `judge(answer)` judges what remains."""
    low = any(f.path in verdict.answer.outputs and verdict.answer.outputs[f.path].dtype in LOW
              for f in verdict.findings if f.verdict in ("wrong", "reduced", "nonfinite"))  # fmt: skip
    if not low or not taken_apart_by_torch(call, device):
        return verdict
    try:
        free = by_its_steps(call, device, verdict.answer)
    except Exception:  # the device refuses to be looked at in steps
        return verdict
    truth, counts, outputs = verdict.operands.reference.truth, {}, dict(verdict.answer.outputs)
    for path in free.keys() & truth.keys():
        right = truth[path].to(outputs[path].dtype)
        differs = free[path] & (outputs[path] != right)
        counts[path] = int(differs.sum())
        outputs[path] = torch.where(differs, right, outputs[path])
    again = judge(replace(verdict.answer, outputs=outputs))
    if again.verdict != "pass":
        return verdict
    again.answer = verdict.answer
    for i, finding in enumerate(again.findings):
        again.findings.excuse(i, "own_steps", counts.get(finding.path, 0))
    again.remarks.append(NOTE)
    return again
