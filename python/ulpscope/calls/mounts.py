# SPDX-License-Identifier: Apache-2.0
"""Folders from which no library can be loaded, and what to say of one. Needs nothing of torch."""

from __future__ import annotations

import os


def runs_nothing(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder lies where no library can be loaded from: mounted noexec."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def way_on(folder: str | os.PathLike[str], variable: str) -> str:
    """What to say of it; `variable` names another folder."""
    return (
        f"no library can be loaded from {os.fspath(folder)}, which is mounted noexec; set {variable} to a folder from "
        "which programs run"
    )
