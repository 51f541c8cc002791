# SPDX-License-Identifier: Apache-2.0
"""All operators of the benchmark."""

from . import ops_elementwise, ops_linear, ops_move, ops_optim, ops_reduce  # noqa: F401
from .op import OPS
from .profiles import PROFILES


def cases(ops=None, profiles=None, dtypes=None):
    """(operator, profile, dtype) of everything that was asked for."""
    for op in OPS.values():
        if ops and op.name not in ops:
            continue
        for profile in op.profiles or PROFILES:
            if profile == "large" and op.tags & {"moments", "rms", "squares"}:
                continue  # squares overflow in any honest float32 kernel
            for dtype in op.dtypes:
                if (not profiles or profile in profiles) and (not dtypes or dtype in dtypes):
                    yield op, profile, dtype
