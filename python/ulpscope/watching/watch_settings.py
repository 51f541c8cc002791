# SPDX-License-Identifier: Apache-2.0
"""How a watch is asked for: its configuration, the variables of the environment and the limits of its arguments."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any


from .. import _core

ACTIONS = ("log", "skip", "raise", "stop")
OUTPUT = "ulpscope-watch"  # folder of the last calls


def asd_config() -> str | None:
    """The configuration that NPU_ASD_CONFIG asks for; None where it is not set."""
    text = os.environ.get("NPU_ASD_CONFIG", "").strip()
    return f"mode:asd,{text}" if text else None


def configured(config: str) -> dict[str, Any]:
    """What a configuration says of watching itself: keys and values, of those not named the defaults."""
    try:
        return _core.Watch(config).config()
    except _core.ArgError as error:
        raise ValueError(f"{error}") from None


def show_silent() -> None:
    """TORCH_NPU_LOGS has word "silent": what mode asd tells at level INFO is shown, as torch_npu does."""
    log = logging.getLogger("torch_npu.silent_check")
    if "silent" in os.environ.get("TORCH_NPU_LOGS", "") and not log.handlers:
        log.setLevel(logging.INFO)
        log.addHandler(logging.StreamHandler())


SO_MANY = {
    "weights_every": (1, "one step or more"),
    "matmul_every": (0, "one call of so many, 0 for none"),
    "audit": (0, "one micro-batch of so many, 0 for none"),
    "neighbour": (0, "one micro-batch of so many, 0 for none"),
}


def _check_arguments(asked: Mapping[str, Any]) -> None:
    if asked["action"] not in ACTIONS:
        raise ValueError(f"action {asked['action']!r}: one of {', '.join(ACTIONS)}")
    for key, (least, says) in SO_MANY.items():
        if not isinstance(asked[key], int) or asked[key] < least:
            raise ValueError(f"{key} {asked[key]!r}: {says}")
