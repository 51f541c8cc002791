# SPDX-License-Identifier: Apache-2.0
"""What no device computes: operators that exist for the CPU alone, and arguments that operators
want on the host whatever the device (lengths of packed sequences). Serves `device`."""

from __future__ import annotations

import re

import torch

from ..calls.replay import Call, base_name
from ..calls.torch_private import has_kernel, key_for_device

# What torch has for the CPU's own libraries: their kernels read memory, and some keep
# pointers in what looks like a tensor of bytes.
CPU_LIBRARY = re.compile(
    r"^(aten::_?(mkldnn|fbgemm|onednn|mkl)_|(mkldnn|onednn|mkl|mkldnn_prepacked|xnnpack|prepacked)::)"
)
# Arguments that kernels read on the host before anything runs on the device.
ON_HOST = {"batch_sizes", "nested_size", "nested_strides", "tensor_indices_or_sections"}
ON_HOST_OF = {
    ("_pack_padded_sequence", "lengths"),
    ("_nested_view_from_buffer", "offsets"),
    ("_nested_view_from_buffer_copy", "offsets"),
}
ASKS_FOR_HOST = re.compile(r"\bcpu\b|\bhost\b", re.IGNORECASE)
INTEGERS = (torch.int64, torch.int32, torch.bool)
FEW = 1 << 16  # elements: lengths and offsets, never a batch of indices


def only_of_the_cpu(call: Call, device_type: str) -> bool:
    """Whether the operator is one of a library of the CPU's, and the device has no kernel of its
    own for it."""
    if device_type == "cpu" or call.composite or not CPU_LIBRARY.match(call.op):
        return False
    try:
        key = key_for_device(device_type)
        name = call.op.removesuffix(".default")
        return not has_kernel(name, key)
    except (AttributeError, RuntimeError):  # a torch that does not tell: none has one
        return True


def known_on_host(call: Call) -> set[str]:
    """Paths of the arguments that are known to stay on the host."""
    name = base_name(call.op)[1]
    return {p for p, v in call.views.items() if v.argument in ON_HOST or (name, v.argument) in ON_HOST_OF}


def asked_on_host(call: Call, text: str) -> set[str]:
    """Paths of the arguments to try on the host where a device refuses a call with words that
    speak of it: small integers that are not written. Empty where that is no way."""
    if not ASKS_FOR_HOST.search(text):
        return set()
    written = set(call.written())
    return {
        p
        for p, v in call.views.items()
        if v.dtype in INTEGERS and p not in written and len(v.sizes) <= 2 and torch.Size(v.sizes).numel() <= FEW
    }
