# SPDX-License-Identifier: Apache-2.0
"""References for operators whose own CPU kernel cannot serve as one.

A custom operator is its own reference where its CPU kernel accepts float64; casts to float32 that
go through torch's dispatcher are kept wide. Where it has none, or computes in float32 where torch
shows no operator (raw pointers, numpy), register a plain function:

    @ulpscope.reference.register("demo::rms_norm")
    def rms_norm(x, weight, eps):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

It is called on the CPU with the operator's arguments, once with every float tensor in
float64 (the truth) and once in float32 (the yardstick), and returns what the operator
returns. An operator that writes its arguments has a reference that does so too. None in the
place of a result says that nothing is promised of it (a seed, a work space). What it rounds
itself (`x.float()`) is kept in the precision of the run.
"""

from .calls import functions as _functions
from .executors.registered import find, register, registered


def _hand(op: str, path: str) -> str:
    """Writes the reference of an operator for the process that judges beside this one."""
    from .session import handed

    return handed.put(op, path)


_functions.handing[:] = [_hand]
__all__ = ["find", "register", "registered"]
