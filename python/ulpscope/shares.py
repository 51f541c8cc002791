# SPDX-License-Identifier: Apache-2.0
"""`torchrun -m ulpscope check ...`: the ranks of a job share one check (docs/reference/ranks.md).

Each rank runs the program as a child, which asks here for its next share of the calls (cli/common/shares.c
has the lines). Who works on what stands in c10d's store, one counter that all add to; a beating
counter for each rank tells who is alive, and rank 0 gives the shares of the dead away again.

Needs of torch: `torch.distributed.TCPStore` and `PrefixStore`."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LATER, OVER, LOST = -1, -2, -3  # include/ulpscope/x/run.h
BEAT = 1.0  # seconds, and as many more for each CROWD of ranks, who all beat at one server
CROWD = 500
SILENCE = 30.0  # after which a rank counts as dead
PATIENCE = datetime.timedelta(seconds=300)  # for rank 0 to be there


def found(environment: Mapping[str, str]) -> bool:
    """Whether this process is one of several ranks."""
    return all(name in environment for name in VARIABLES) and int(environment["WORLD_SIZE"]) > 1


class ShareRanks:
    """Who this is, and the store. torchrun's agent has one; else rank 0 does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.rank, self.n = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        self.local = int(environment.get("LOCAL_RANK", 0))
        self.n_local = int(environment.get("LOCAL_WORLD_SIZE", 1))
        self.place = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        self.agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        self.job = "ulpscope/" + environment.get("TORCHELASTIC_RUN_ID", "")
        self.start = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.silence = float(environment.get("ULPSCOPE_RANK_SILENCE", SILENCE))

    def connect(self, host: bool, name: str | None = None) -> Any:
        from torch.distributed import PrefixStore, TCPStore

        store = TCPStore(*self.place, is_master=host, timeout=PATIENCE, wait_for_workers=False)
        return PrefixStore(f"{self.job}/{self.start if name is None else name}", store)

    def end(self, code: int) -> None:
        """The check is over: torchrun starts ranks again whose code is not 0, as where calls are flagged."""
        if self.agent and self.rank == 0 and code in (0, 1):
            with contextlib.suppress(RuntimeError):
                self.connect(False, "over").set("code", str(code))

    def ended(self) -> int | None:
        """Its exit code, where ranks before these ended it; None else."""
        over = self.connect(False, "over") if self.agent and self.start != "0" else None
        return int(over.get("code")) if over is not None and over.check(["code"]) else None


class Area:
    """The shares of one OUT, as far as this rank knows."""

    def __init__(self, out: str) -> None:
        self.key = hashlib.blake2b(out.encode(errors="surrogateescape"), digest_size=6).hexdigest()
        self.n = 0
        self.fresh = True  # shares that nobody had yet may be left
        self.i_freed = 0  # of the shares given away again, what was looked at
        self.open: set[int] = set()  # rank 0: claimed and not done
        self.seen = 0  # rank 0: how many were claimed
        self.nobodys: dict[int, float] = {}  # rank 0: share -> since when nobody is known to have it
        self.freed: dict[int, int] = {}  # rank 0: share -> its last place in the list of those given away again

    def __getitem__(self, name: str) -> str:
        return f"{self.key}/{name}"


class Pulse(threading.Thread):
    """Beats, listens to the beats of others, and in rank 0 gives away what the dead had."""

    def __init__(self, ranks: ShareRanks) -> None:
        super().__init__(daemon=True)
        self.ranks, self.store = ranks, ranks.connect(False)
        self.others = range(1, ranks.n) if ranks.rank == 0 else range(1)
        self.heard: dict[int, tuple[int, float]] = {}  # rank -> (beats, when they were another number)
        self.dead: set[int] = set()
        self.absent = set(self.others)
        self.areas: dict[str, Area] = {}
        self.ends, self.lost = threading.Event(), False

    def run(self) -> None:
        try:
            while not self.ends.is_set():
                self.store.add(f"beat/{self.ranks.rank}", 1)
                self.listen()
                if self.ranks.rank == 0:
                    for area in list(self.areas.values()):
                        self.reap(area)
                self.ends.wait(BEAT * (1 + self.ranks.n // CROWD))
        except RuntimeError:  # the store is gone
            self.lost = True

    def listen(self) -> None:
        now, dead, absent = time.monotonic(), set(), set()
        for rank in self.others:
            beats = self.store.add(f"beat/{rank}", 0)
            if rank not in self.heard or self.heard[rank][0] != beats:
                self.heard[rank] = beats, now
            if beats == 0:
                absent.add(rank)
            if self.store.check([f"gone/{rank}"]) or (beats and now - self.heard[rank][1] > self.ranks.silence):
                dead.add(rank)
        self.dead, self.absent = dead, absent

    def reap(self, area: Area) -> None:
        """Shares of the dead go to a list, from which whoever has nothing to do takes them."""
        claimed = min(self.store.add(area["next"], 0), area.n)
        area.open.update(range(area.seen, claimed))
        area.seen = claimed
        for share in sorted(area.open):
            if self.store.check([area[f"done/{share}"]]):
                area.open.discard(share)
            elif self.is_orphan(area, share):
                area.freed[share] = place = self.store.add(area["freed"], 0)
                self.store.set(area[f"freed/{place}"], str(share))
                self.store.add(area["freed"], 1)

    def is_orphan(self, area: Area, share: int) -> bool:
        """Whether who had a share last is dead. One that nobody has was claimed this moment, or by
        a rank that died in it."""
        place = area.freed.get(share)
        key = area[f"of/{share}"] if place is None else area[f"taken/{place}"]
        if self.store.check([key]):
            return int(self.store.get(key)) in self.dead
        since = area.nobodys.setdefault(share, time.monotonic())
        return place is None and time.monotonic() - since > self.ranks.silence


class Shares:
    """Answers the program."""

    def __init__(self, ranks: ShareRanks) -> None:
        self.ranks = ranks
        self.host = ranks.rank == 0 and not ranks.agent
        self.store = ranks.connect(self.host)
        self.pulse = Pulse(ranks)
        self.pulse.start()

    def area(self, out: str) -> Area:
        return self.pulse.areas.setdefault(out, Area(out))

    def mine(self, key: str) -> bool:
        """Whether this rank is the first to put itself under a key."""
        me = str(self.ranks.rank)
        return bool(self.store.compare_set(key, "", me).decode() == me)

    def claim(self, area: Area, n: int) -> int:
        """A share below `n`. 0: the time is over, and none is wanted."""
        area.n = n
        if n == 0:
            return OVER if self.ranks.rank > 0 or self.all_left(area) else LATER
        while area.fresh:
            share = int(self.store.add(area["next"], 1)) - 1
            area.fresh = share < n
            if area.fresh and self.mine(area[f"of/{share}"]):
                return share
        n_freed = self.store.add(area["freed"], 0)
        while area.i_freed < n_freed:
            place, area.i_freed = area.i_freed, area.i_freed + 1
            if not self.mine(area[f"taken/{place}"]):
                continue
            share = int(self.store.get(area[f"freed/{place}"]))
            if not self.store.check([area[f"done/{share}"]]):
                return share
        if self.store.add(area["n_done"], 0) >= n and (self.ranks.rank > 0 or self.all_left(area)):
            return OVER
        return LOST if self.ranks.rank > 0 and 0 in self.pulse.dead else LATER

    def all_left(self, area: Area) -> bool:
        """Whether every other rank that ever came has written what it found, or is dead."""
        there = set(self.pulse.others) - self.pulse.dead - self.pulse.absent
        return all(self.store.check([area[f"left/{rank}"]]) for rank in there)

    def done(self, area: Area, share: int) -> int:
        if self.mine(area[f"done/{share}"]):
            self.store.add(area["n_done"], 1)
        return 0

    def meet(self, area: Area) -> int:
        if self.ranks.rank == 0:
            self.store.set(area["begun"], "1")
            return 0
        while not self.store.check([area["begun"]]):
            if 0 in self.pulse.dead or self.pulse.lost:
                return LOST
            time.sleep(0.1)
        return 0 if self.store.get(area["begun"]) == b"1" else OVER

    def leave(self, area: Area) -> int:
        if self.ranks.rank == 0:
            self.store.compare_set(area["begun"], "", "0")
        self.store.set(area[f"left/{self.ranks.rank}"], "1")
        return 0

    def answer(self, line: str) -> int:
        word, _, rest = line.partition(" ")
        try:
            if word in ("claim", "done"):
                number, _, out = rest.partition(" ")
                return int(getattr(self, word)(self.area(out), int(number)))
            return int(getattr(self, word)(self.area(rest)))
        except RuntimeError:  # the store is gone
            return LOST

    def linger(self, trouble: bool) -> None:
        """Who keeps the store keeps it until the others are gone; those that never came are waited for
        where there was trouble, for they would look for the store in vain."""
        end = time.monotonic() + self.ranks.silence
        while self.host and time.monotonic() < end and not self.pulse.lost:
            away = self.pulse.dead | (set() if trouble else self.pulse.absent)
            if away >= set(self.pulse.others):
                return
            time.sleep(0.1)

    def end(self) -> None:
        """Says that this rank is gone, so that nobody waits for it."""
        self.pulse.ends.set()
        self.pulse.join(5)
        with contextlib.suppress(RuntimeError):
            self.store.set(f"gone/{self.ranks.rank}", "1")


def run(program: str, words: Sequence[str]) -> int:
    """Runs the program as one of several ranks; its exit code. A rank that cannot work leaves its
    part to the others, and has nothing to say to torchrun: that would end them all."""
    ranks = ShareRanks(os.environ)
    print(
        f"ulpscope check: rank {ranks.rank} of {ranks.n}, at {ranks.place[0]}:{ranks.place[1]}",
        file=sys.stderr,
        flush=True,
    )
    try:
        code = ranks.ended()
        if code is not None:
            return code if ranks.rank == 0 else 0
        shares = Shares(ranks)
    except RuntimeError as problem:
        print(
            f"ulpscope check: rank {ranks.rank}: no store at {ranks.place[0]}:{ranks.place[1]} ({problem}); unset RANK "
            "to check alone",
            file=sys.stderr,
        )
        return 2
    from_us, to_us = os.pipe(), os.pipe()
    numbers = ranks.rank, ranks.n, ranks.local, ranks.n_local, from_us[0], to_us[1], os.getpid()
    child = subprocess.Popen(
        [program, *words],
        executable=program,
        pass_fds=(from_us[0], to_us[1]),
        env={**os.environ, "ULPSCOPE_SHARES": " ".join(map(str, numbers))},
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: child.send_signal(number))
    os.close(from_us[0])
    os.close(to_us[1])
    with os.fdopen(to_us[0], errors="surrogateescape") as lines, os.fdopen(from_us[1], "w", buffering=1) as back:
        for line in lines:
            try:
                back.write(f"{shares.answer(line.rstrip(chr(10)))}\n")
            except BrokenPipeError:
                break
    code = child.wait()
    shares.linger(code not in (0, 1))
    shares.end()
    ranks.end(code)
    if ranks.rank > 0 and code == 2 and 0 not in shares.pulse.dead and not shares.pulse.lost:
        return 0
    return code if code >= 0 else 128 - code
