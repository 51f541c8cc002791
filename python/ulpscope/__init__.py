# SPDX-License-Identifier: Apache-2.0
"""Know whether an accelerator computes your model correctly."""

from ._capture import capture, step

__all__ = ["capture", "step"]
