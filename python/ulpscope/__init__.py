# SPDX-License-Identifier: Apache-2.0
"""Know whether an accelerator computes your model correctly."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._capture import capture, step
    from ._judge_api import check_call, judge_call

__all__ = ["capture", "check_call", "judge_call", "step"]


def __getattr__(name):
    """Loads what needs torch when it is asked for: the programs of this package begin without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "._capture" if name in ("capture", "step") else "._judge_api"
    found = globals()[name] = getattr(importlib.import_module(home, __name__), name)
    return found
