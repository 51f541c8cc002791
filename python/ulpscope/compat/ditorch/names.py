# SPDX-License-Identifier: Apache-2.0
"""What a name of a Python function, as ditorch's lists have it, means below: operators. Needs of
torch the names of all operators that are registered."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

# Functions whose kernels have another name than they: what they call.
CALLS = {
    "linear": ("linear", "addmm", "mm", "bmm", "addmv"),
    "layer_norm": ("layer_norm", "native_layer_norm"),
    "group_norm": ("group_norm", "native_group_norm"),
    "rms_norm": ("rms_norm", "_fused_rms_norm"),
    "batch_norm": (
        "batch_norm",
        "native_batch_norm",
        "cudnn_batch_norm",
        "_native_batch_norm_legit",
        "_batch_norm_with_update",
    ),
    "softmax": ("softmax", "_softmax"),
    "log_softmax": ("log_softmax", "_log_softmax"),
    "cross_entropy": ("cross_entropy_loss", "_log_softmax", "nll_loss_forward", "nll_loss2d_forward"),
    "dropout": ("dropout", "native_dropout", "bernoulli_"),
    "scaled_dot_product_attention": ("scaled_dot_product_attention", "_scaled_dot_product*"),
    "matmul": ("matmul", "mm", "bmm", "mv", "dot"),
    "embedding": ("embedding",),
    "conv1d": ("conv1d", "convolution", "_convolution"),
    "conv2d": ("conv2d", "convolution", "_convolution"),
    "conv3d": ("conv3d", "convolution", "_convolution"),
    "einsum": ("einsum", "bmm"),
    "norm": ("norm", "linalg_vector_norm"),
    "std": ("std", "var"),
}
HOMES = ("torch", "torch.Tensor", "torch.nn.functional")


@functools.cache
def operators() -> dict[str, set[str]]:
    """Base names of the operators that torch has, as {name: namespaces}."""
    from ...calls.torch_private import all_operator_names

    found: dict[str, set[str]] = {}
    for name in all_operator_names():
        space, _, rest = name.partition("::")
        found.setdefault(rest.partition(".")[0], set()).add(space)
    return found


def matches(text: str, name: str) -> bool:
    """Whether an entry of a list means a function: its name, or an expression that is all of it.
    ValueError for an expression that is none."""
    text = text.strip()
    if text == name:
        return True
    try:
        return re.fullmatch(text, name) is not None
    except re.error as error:
        raise ValueError(f"'{text}': {error}; write torch.add.* or torch.nn.functional.linear") from None


def function_names(base: str) -> list[str]:
    """The names that a Python function of this base name may go by."""
    return [f"{home}.{base}" for home in HOMES]


def meant(entries: Iterable[str]) -> set[str]:
    """The operators that entries of a list mean, forward and backward, as a set of base names or
    ns::name."""
    entries = [e for e in (t.strip() for t in entries) if e]
    found = set()
    for base in {*operators(), *CALLS}:
        if not any(matches(e, name) for e in entries for name in function_names(base)):
            continue
        for called in CALLS.get(base, (base,)):
            found |= {called, f"{called}_backward*"}
    for entry in entries:  # an extension's own: torch_npu.npu_rms_norm, torch.ops.npu.npu_rms_norm
        space, _, base = entry.rpartition(".")
        if space and not entry.startswith(HOMES) or space.startswith("torch.ops."):
            found |= {f"{s}::{base}" for s in operators().get(base, ()) if s != "aten"}
    return found


def pattern(prefix: str, ops: Any = None, environ: Mapping[str, str] | None = None) -> str:
    """The PATTERN of a tool: of `ops`, a name or a list, else of PREFIX_LIST without
    PREFIX_DISABLE_LIST in the environment. "" where they mean no operator."""
    environ = os.environ if environ is None else environ
    if ops is not None:
        wanted, without = [ops] if isinstance(ops, str) else list(ops), []
    else:
        wanted = environ.get(f"{prefix}_LIST", ".*").split(",")
        without = [e for e in environ.get(f"{prefix}_DISABLE_LIST", "").split(",") if e.strip()]
    everything = any(e.strip() == ".*" for e in wanted)
    parts = ["*"] if everything else sorted(meant(wanted))
    if not parts:
        return ""
    return ",".join([*parts, *(f"!{op}" for op in sorted(meant(without)))])
