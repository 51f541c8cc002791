# SPDX-License-Identifier: Apache-2.0
"""Memory that all workers of a check share: what a call may need, and who has to wait. A call
that needs more than is left waits until others are done; one that needs more than there is
works alone, within what there is. Needs no torch."""

import math
import os
import re

SHARE = 0.75  # of what is free at the start, unless --memory says otherwise
FACTOR = {"b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}  # fmt: skip
SMALL = 1 << 28  # bytes that a worker has in any case
WIDE = 8  # bytes of an element of a reference
COPIES = 2  # of the captured bytes: as read, and on the device
# Tensors of a reference at a time: the truth and a perturbed one, their yardsticks, inputs.
OPERANDS = 4


def size_of(text):
    """Bytes of "6GiB", "500M" or "8e9"; ValueError for anything else."""
    found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    size = float(found[1]) * FACTOR[found[2] or "b"] if found and found[2] != "i" else 0
    if not 0 < size < math.inf:
        raise ValueError(f"'{text}' is no size; write 6GiB, 500MB or a number of bytes")
    return int(size)


def free():
    """Bytes that may be allocated without swapping, within the limits of our control group; 0
    where nobody tells."""
    return min((size for size in (_machine(), _group()) if size is not None), default=0)


def _machine():
    try:
        with open("/proc/meminfo") as f:
            fields = dict(line.split(":", 1) for line in f)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _group(root="/sys/fs/cgroup", groups="/proc/self/cgroup"):
    """What the control groups around this process leave; None where they set no limit."""
    try:
        with open(groups) as f:
            lines = [line.strip().split(":", 2) for line in f]
    except OSError:
        return None
    left = []
    for _, kinds, path in lines:
        if kinds == "":
            names = root, "memory.max", "memory.current"
        elif "memory" in kinds.split(","):
            names = os.path.join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        left += _left(*names, path.strip("/"))
    return min(left, default=None)


def _left(root, limit, usage, path):
    """What a group and those around it leave, as a list. A process in a container may see its
    own group as the root."""
    found = []
    parts = path.split("/") if path else []
    for n in range(len(parts) + 1):
        folder = os.path.join(root, *parts[:n])
        try:
            with open(os.path.join(folder, limit)) as a, open(os.path.join(folder, usage)) as b:
                most = a.read().strip()
                if most != "max" and int(most) < 1 << 60:
                    found.append(max(0, int(most) - int(b.read())))
        except (OSError, ValueError):
            continue
    return found


def need_of(row):
    """Bytes that the check of a call may take, by the sizes of its tensors."""
    storages, elements = {}, 0
    for tensor in row["tensors"]:
        n = math.prod(tensor["sizes"])
        size = tensor.get("storage_bytes") or WIDE * n
        storages[tensor["role"] != "in", tensor["storage"]] = size
        elements += n
    return SMALL + COPIES * sum(storages.values()) + OPERANDS * WIDE * elements


class Rooms:
    """Who holds how much of a budget. `need_of_request` tells the bytes of a request."""

    def __init__(self, budget, need_of_request):
        self.budget, self._need = budget, need_of_request

    def room(self, request):
        """The bytes that a request may take, noted in it: its worker is held to them."""
        if "room" not in request:
            request["room"] = min(self._need(request), self.budget)
        return request["room"]

    def admits(self, request, others):
        """Whether it may begin beside `others`."""
        return self.room(request) + sum(map(self.room, others)) <= self.budget or not others
