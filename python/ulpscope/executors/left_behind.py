# SPDX-License-Identifier: Apache-2.0
"""What the code of a device, a compiler or a runtime leaves changed in this process: the reference is computed here
next, and would be computed otherwise. Each is put back, and told on the call.

Needs of torch: its settings of dtype, threads and precision."""

from __future__ import annotations

import torch

from .._core import float_modes, set_float_modes

# What is asked, how it is put back, and what users read.
SETTINGS = (
    (float_modes, set_float_modes, "the processor's modes of rounding and subnormals"),
    (torch.get_default_dtype, torch.set_default_dtype, "torch's default dtype"),
    (torch.get_num_threads, torch.set_num_threads, "torch's number of threads"),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "torch's float32 matmul precision"),
)


class PutBack:
    """Within: somebody's code runs. Behind it the settings are as before, and `notes` says which were not."""

    __slots__ = ("before", "notes")

    def __enter__(self) -> PutBack:
        self.before: list[object] = [asked() for asked, _, _ in SETTINGS]
        self.notes: list[str] = []
        return self

    def __exit__(self, *raised: object) -> None:
        for was, (asked, put, what) in zip(self.before, SETTINGS):
            if asked() != was:
                put(was)  # type: ignore[operator]
                self.notes.append(f"it leaves {what} changed in its process, which was put back")
