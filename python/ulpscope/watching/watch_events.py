# SPDX-License-Identifier: Apache-2.0
"""What a watch tells: its events, the alarm that one raises, and which of them are told to whom."""

from __future__ import annotations

import dataclasses


QUIET = {"asd_event", "checksum_on", "checksum_off"}  # told to the log alone
OWN = {"matmul", "checksum_abnormal", "replay"}  # that one rank alone knows
FIRST_EVENTS, LAST_EVENTS = 1000, 9000  # that are kept of a run of weeks


class WatchAlarm(RuntimeError):  # noqa: N818 - an alarm, not an error of the program
    """What `action="raise"` raises; `event` is the first."""

    def __init__(self, event: Event) -> None:
        super().__init__(event.sentence)
        self.event = event


@dataclasses.dataclass(frozen=True)
class Event:
    """Something abnormal; `sentence` says all of it, `command` what to type next."""

    step: int
    kind: str
    tensor: str
    rank: int  # -1: not known
    score: float
    threshold: float
    sentence: str
    detector: str
    command: str
