# SPDX-License-Identifier: Apache-2.0
"""Callables followed by the gradients of their inputs, so that a check judges both. Needs
torch's autograd. Serves `session.api`."""

from dataclasses import replace

import torch

from .callable import name_of
from .replay import mapped


def differentiated(check):
    """A check of the gradients as well. A module's parameters and buffers become arguments,
    so that the reference computes with them in its own precision; where the module is its
    own reference, gradients of its parameters are judged too."""
    module = check.reference
    if not isinstance(module, torch.nn.Module):
        fn, reference = _with_gradients(check.fn), _with_gradients(module)
        return replace(check, fn=fn, reference=reference, given=check)

    def stated(state, *args, **kwargs):
        return torch.func.functional_call(module, state, args, kwargs)

    stated.__name__ = name_of(module)
    own = {name for name, p in module.named_parameters() if p.requires_grad} if check.own else ()
    reference = _with_gradients(stated, own)
    fn = reference if check.own else _with_gradients(check.fn)
    return replace(check, fn=fn, reference=reference, state=(_detached(module),),
                   given=check)  # fmt: skip


def _detached(module):
    pairs = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach() for name, tensor in pairs}


def _with_gradients(fn, own=None):
    """`fn` followed by the gradients of its float and complex inputs for one fixed cotangent.
    With `own` its first argument is a module's state, of which these names have gradients."""

    def run(*args, **kwargs):
        leaves = []

        def leaf(value):
            if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
                leaves.append(value.detach().requires_grad_())
                return leaves[-1]
            return value

        state = ()
        if own is not None:
            state, args = ({k: leaf(v) if k in own else v for k, v in args[0].items()},), args[1:]
        args, kwargs = mapped(args, leaf), mapped(kwargs, leaf)
        with torch.enable_grad():
            result = fn(*state, *args, **kwargs)
            outputs = [t for t in _with_grad(result)]
            if not outputs or not leaves:  # nothing hangs on an input
                return result, []
            gradients = torch.autograd.grad(
                outputs, leaves, [_cotangent(t) for t in outputs], allow_unused=True
            )
        return result, [g for g in gradients if g is not None]

    run.__name__ = f"{name_of(fn)} with backward"
    return run


def _with_grad(result):
    if isinstance(result, torch.Tensor):
        return [result] if result.requires_grad else []
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [t for item in result for t in _with_grad(item)]
    return []


def _cotangent(output):
    """Values that every float dtype holds, the same for every run and device."""
    mixed = torch.arange(output.numel()).mul_(40503).bitwise_right_shift_(5) % 64
    values = (2 * mixed - 63).double() / 32  # odd, so never 0; 6 significant bits
    if output.is_complex():
        values = torch.complex(values, -values / 2)
    return values.reshape(output.shape).to(output.device, output.dtype)
