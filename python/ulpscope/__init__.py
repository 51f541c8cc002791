# SPDX-License-Identifier: Apache-2.0
"""Know whether an accelerator computes your model correctly."""

from ._capture import capture, step
from ._judge_api import check_call, judge_call

__all__ = ["capture", "check_call", "judge_call", "step"]
