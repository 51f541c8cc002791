# SPDX-License-Identifier: Apache-2.0
"""Importing this captures the second iteration and then ends the program (`dump.dump`). Needs torch's
data loader."""

from ..common.config import msCheckerConfig
from . import dump

dump.watch()

__all__ = ["dump", "msCheckerConfig"]
