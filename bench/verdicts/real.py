# SPDX-License-Identifier: Apache-2.0
"""Released kernels as devices: torch's own in other precisions, layouts and libraries,
torch.compile, JAX, onnxruntime. Nobody knows beforehand whether they are right: an alarm counts as
true where the independent measure of `Case.weigh` finds the output further from the truth
than any honest kernel, as false elsewhere."""

import copy

import torch

from . import real_jax, real_ort
from .engine import record
from .variants import Variant


def devices(case, options):
    """One line for each device that can run this call."""
    case.correct()  # the measure of honest kernels
    wanted = options.get("variant") or options.get("devices")
    for name, run in DEVICES.items():
        if wanted and name not in wanted:
            continue
        try:
            out = run(case)
        except Exception as problem:
            if options.get("variant"):
                print(name, repr(problem)[:300])
            continue
        if out is None:
            continue
        out = list(out) if isinstance(out, (tuple, list)) else [out]
        fits = [t.to(d) if t.dtype != d else t for t, d in zip(out, case.dtypes)]
        if len(out) != len(case.dtypes) or any(a.shape != b.shape for a, b in zip(fits, case.native or fits)):
            continue
        no_fault, bits = case.weigh(fits)
        line = record(case, Variant(name, "real", {}), fits, False, bits)
        yield line | {"confirmed": not no_fault, "honest": honest_share(case)}


def honest_share(case):
    """Share of elements that are not the correct rounding when float32 is rounded once."""
    from .engine import share_off

    plain = case.honest[0][1]
    return max((share_off(case, i, t) for i, t in enumerate(plain)), default=0.0)


def args_of(case):
    return copy.deepcopy(case.args), copy.deepcopy(case.kwargs)


def native(case):
    """torch's own kernel in the dtype of the call."""
    return None if case.op.mutates else case.native


def compiled(case):
    """What torch.compile generates."""
    if case.op.mutates or case.native is None:
        return None
    torch._dynamo.reset()
    args, kwargs = args_of(case)
    return torch.compile(case.op.fn, dynamic=False)(*args, **kwargs)


def relaid(case, how):
    """The call on arguments laid out otherwise."""
    if case.op.mutates:
        return None
    args, kwargs = args_of(case)
    new = [how(a) if isinstance(a, torch.Tensor) else a for a in args]
    if all(a is b for a, b in zip(args, new)):
        return None
    return case.op.fn(*new, **kwargs)


def channels_last(case):
    return relaid(case, lambda a: a.contiguous(memory_format=torch.channels_last) if a.dim() == 4 else a)


def strided(case):
    """Every other element of a tensor twice as wide."""

    def spread(a):
        if a.dim() < 2:
            return a
        wide = torch.zeros(*a.shape[:-1], 2 * a.shape[-1], dtype=a.dtype)
        wide[..., ::2] = a
        return wide[..., ::2]

    return relaid(case, spread)


def without_onednn(case):
    """The kernels that torch uses without oneDNN."""
    if "dot" not in case.op.tags:
        return None
    args, kwargs = args_of(case)
    with torch.backends.mkldnn.flags(enabled=False):
        return case.op.fn(*args, **kwargs)


def math_attention(case):
    """Attention as separate operators."""
    if not case.op.name.startswith("attention"):
        return None
    from torch.nn.attention import SDPBackend, sdpa_kernel

    args, kwargs = args_of(case)
    with sdpa_kernel(SDPBackend.MATH):
        return case.op.fn(*args, **kwargs)


DEVICES = {
    "native": native,
    "channels_last": channels_last,
    "strided": strided,
    "no_onednn": without_onednn,
    "math_attention": math_attention,
    "inductor": compiled,
    "jax": real_jax.run,
    "onnxruntime": real_ort.run,
}
