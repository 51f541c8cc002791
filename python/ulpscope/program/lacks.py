# SPDX-License-Identifier: Apache-2.0
"""What the torch that is here lacks, and what comes of it: one table, which `ulpscope info` and `ulpscope
doctor` tell. Each row asks for the thing itself, never for a version; whatever is not in it works."""

from __future__ import annotations

import importlib.util

import torch

# what is asked for below torch, what it is called, what is less without it
TABLE = [
    ("Event", "events of any device", "a watch asks the events of the device's own module (torch.cuda.Event)"),
    ("accelerator", "torch.accelerator", "the device of this machine is asked of torch's device modules"),
    (
        "get_autocast_dtype",
        "autocast asked by device",
        "of autocast only the CPU's, CUDA's and XPU's is known to the Python side",
    ),
    ("compiler.is_compiling", "compiler.is_compiling", "torch's compiler is asked once it is loaded"),
    ("_C._jit_resolve_packet", "overloads by their arguments", "check_call finds the overload by calling the operator"),
    ("_C._ForceDispatchKeyGuard", "one guard for dispatch keys", "keys are set one by one"),
    ("uint16", "unsigned integers of 16 to 64 bits", "no call has them"),
    ("float8_e5m2", "8-bit floats", "no call has them"),
    ("nn.RMSNorm", "rms_norm", "there is no such call"),
    ("library.custom_op", "torch.library.custom_op", "operators of one's own come from torch.library.Library"),
]
MODULES = [
    ("torch.nn.attention.flex_attention", "flex attention", "there is no such call"),
]


def _has(name: str) -> bool:
    at = torch
    for part in name.split("."):
        if not hasattr(at, part):
            return False
        at = getattr(at, part)
    return True


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # not even the package above it
        return False


def lacking() -> list[tuple[str, str]]:
    """What this torch has not, and what is less for it."""
    return [
        (what, less)
        for table, has in ((TABLE, _has), (MODULES, _has_module))
        for name, what, less in table
        if not has(name)
    ]


def sentence() -> str:
    """The same in one line."""
    return "; ".join(f"{what} ({less})" for what, less in lacking()) or "nothing that is known of"
