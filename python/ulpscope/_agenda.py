# SPDX-License-Identifier: Apache-2.0
"""In what order a check takes its calls, and when it stops: `--budget`. Needs no torch.

The most telling calls come first: one of each signature, the rarest operators before the
others; then one of each signature in each further module class; then the rest, from the
operator whose calls came out worst so far, among equals from the rarest.
"""

import re
import time
from collections import Counter, deque

from . import _select
from ._verdicts import rank

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
UNKNOWN_BITS = 24.0  # of an operator of which no call was judged


def seconds_of(text):
    """Seconds of "90s", "10m", "1.5h" or "90"; ValueError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?)([smh]?)", text.strip())
    if not found or not float(found[1]):
        raise ValueError(f"'{text}' is no time; write 90s, 10m or 1h")
    return float(found[1]) * UNITS[found[2]]


class Agenda:
    """Requests in the order of the trace, as a crew pops them."""

    def __init__(self, requests):
        self.requests = deque(requests)

    def __len__(self):
        return len(self.requests)

    def pop(self):
        return self.requests.popleft()

    def hear(self, row):
        """A call was judged."""

    def left(self):
        """Requests that nobody took."""
        return list(self.requests)


class Budget(Agenda):
    """Requests by how much they tell, until the time is over."""

    def __init__(self, requests, row_of, seconds):
        self.end = time.monotonic() + seconds
        self.ops = {r["call"]: row_of(r["call"])["op"] for r in requests}
        self.counts = Counter(self.ops.values())
        self.worst = {}  # op -> (rank of the verdict, bits)
        firsts, rest = _told_apart(requests, row_of)
        self.firsts = deque(sorted(firsts, key=lambda f: (f[0], self.counts[self.ops[f[1]["call"]]],
                                                          f[1]["call"])))  # fmt: skip
        self.rest = {}
        for request in rest:
            self.rest.setdefault(self.ops[request["call"]], deque()).append(request)

    def __len__(self):
        return 0 if time.monotonic() >= self.end else len(self.left())

    def pop(self):
        if self.firsts:
            return self.firsts.popleft()[1]
        op = min(self.rest, key=lambda op: (self._found(op), self.counts[op], op))
        request = self.rest[op].popleft()
        if not self.rest[op]:
            del self.rest[op]
        return request

    def hear(self, row):
        said = rank(row["verdict"]), row["bits"]
        op = self.ops.get(row["call"], row["op"])
        self.worst[op] = min(self.worst.get(op, said), said)

    def _found(self, op):
        return self.worst.get(op, (rank("pass"), UNKNOWN_BITS))

    def left(self):
        return [r for _, r in self.firsts] + [r for rs in self.rest.values() for r in rs]


def _told_apart(requests, row_of):
    """(level, request) of the first call of each signature (0) and of each signature in a
    further module class (1); and all others."""
    firsts, rest, signatures, classes = [], [], set(), set()
    for request in requests:
        *call, module = _select.signature(row_of(request["call"]))
        if tuple(call) not in signatures:
            firsts.append((0, request))
        elif (*call, module) not in classes:
            firsts.append((1, request))
        else:
            rest.append(request)
        signatures.add(tuple(call))
        classes.add((*call, module))
    return firsts, rest
