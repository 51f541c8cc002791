# SPDX-License-Identifier: Apache-2.0
"""What the simulated device says it is, under the names of torch.cuda: ``ulpscope.sim`` has them all."""

from __future__ import annotations

import os
from typing import NamedTuple

from . import sim_memory


class _Properties(NamedTuple):
    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_name(device: object = None) -> str:
    return "Ulpscope simulated accelerator"


def get_device_capability(device: object = None) -> tuple[int, int]:
    return 1, 0


def get_device_properties(device: object = None) -> _Properties:
    """What the device is; as much memory as the machine has, and a processor for each of its own."""
    total = sim_memory.mem_get_info(device)[1]
    return _Properties(get_device_name(device), *get_device_capability(device), total, os.cpu_count() or 1)


def can_device_access_peer(device: object, peer_device: object) -> bool:
    """Copies go from each device to each other one; kernels read one device's memory."""
    return sim_memory._index(device) != sim_memory._index(peer_device)


def is_current_stream_capturing() -> bool:
    return False


def is_tf32_supported() -> bool:
    return False


def ipc_collect() -> None:
    """Nothing is shared between processes."""
