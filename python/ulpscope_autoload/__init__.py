# SPDX-License-Identifier: Apache-2.0
"""What torch calls at the end of its own import (entry point group ``torch.backends``): with ``ULPSCOPE_SIM=1`` a
program has the device ``sim`` without importing anything, else nothing happens. A package of its own, so that a
program without that variable does not pay for importing ulpscope."""

from __future__ import annotations

import os


def start() -> None:
    """Raises what ``import ulpscope.sim`` does; torch says which backend it was and how it is left out."""
    if os.environ.get("ULPSCOPE_SIM") == "1":
        import ulpscope.sim  # noqa: F401
