# SPDX-License-Identifier: Apache-2.0
"""Clean runs that look odd: whoever raises an alarm here raises a false one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .watched import PEERS, Watched
from .work import BATCH, Training, batch_of

STEPS = 100
AT = 60  # where most of them turn odd

Batch = tuple[torch.Tensor, torch.Tensor]


def plain(t: Training, i: int, batch: Batch) -> float:
    return 1.0


def warm_up(t: Training, i: int, batch: Batch) -> float:
    """The learning rate grows from nothing, then falls to nothing."""
    t.optimizer.param_groups[0]["lr"] = 4e-3 * min(i / AT, (STEPS - i) / (STEPS - AT))
    return 1.0


def loss_scale(t: Training, i: int, batch: Batch) -> float:
    """Another factor on the loss each twenty steps; gradients are looked at as they are."""
    return 2.0 ** (8 + (i // 20 * 5) % 8)


def batch_ramp(t: Training, i: int, batch: Batch) -> float:
    """Four times as many rows from step 75 on as at the beginning."""
    keep = max(1, len(batch[0]) * min(4, 1 + i // 25) // 4)
    batch[0].data, batch[1].data = batch[0][:keep], batch[1][:keep]
    return 1.0


def data_spike(t: Training, i: int, batch: Batch) -> float:
    """Now and then a batch with labels that mean nothing, and with larger numbers."""
    if i % 25 == 24:
        if batch[0].is_floating_point():
            batch[0].mul_(4)
        batch[1].copy_(batch[1].roll(1, 0))
    return 1.0


def routing_shift(t: Training, i: int, batch: Batch) -> float:
    """Half the tokens, or classes, do not come any more: experts get no token for the first time."""
    if i >= AT:
        half = batch_of(t.work, i, t.rank, 4 * BATCH[t.work])
        key = half[0].flatten(1).amax(1) if not half[0].is_floating_point() else half[1]
        mine = key.argsort(stable=True)[: BATCH[t.work]]
        batch[0].copy_(half[0][mine])
        batch[1].copy_(half[1][mine])
        if not half[0].is_floating_point():
            batch[0].remainder_(4)
    return 1.0


def other_order(t: Training, i: int, batch: Batch) -> float:
    """Rows in another order and another number of threads at each step."""
    torch.set_num_threads(1 + i % 2)
    order = torch.randperm(len(batch[0]), generator=torch.Generator().manual_seed(i))
    batch[0].copy_(batch[0][order])
    batch[1].copy_(batch[1][order])
    return 1.0


def odd_batch(t: Training, i: int, batch: Batch) -> float:
    """A batch that is empty of signal: all rows alike, then a loss of nearly nothing."""
    if i % 30 == 29:
        batch[0].copy_(batch[0][:1].expand_as(batch[0]).clone())
        batch[1].copy_(batch[1][:1].expand_as(batch[1]).clone())
    return 1.0


SCENARIOS: dict[str, Callable[[Training, int, Batch], float]] = {
    "plain": plain,
    "warm-up": warm_up,
    "loss scale": loss_scale,
    "batch ramp": batch_ramp,
    "data spike": data_spike,
    "routing shift": routing_shift,
    "other order": other_order,
    "one row only": odd_batch,
    "resume": plain,
}


def _resumed(w: Watched) -> Watched:
    """As after a restart: another model, optimizer and watch with the states of these."""
    old, new = w.t, Training(w.t.work, w.t.dtype)
    new.net.load_state_dict(old.net.state_dict())
    new.optimizer.load_state_dict(old.optimizer.state_dict())
    new.step = old.step
    states = {name: watch.state_dict() for name, watch in w.watches.items()}
    peers = {name: peer.save() for name, peer in w.fan.peers.items()}
    w.close()
    again = Watched(new, 0)
    for name, watch in again.watches.items():
        watch.load_state_dict(states[name])
    for name, peer in again.fan.peers.items():
        peer.load(peers[name])
    return again


def _alarms(w: Watched) -> tuple[dict[str, int], list[str], dict[str, list[float]]]:
    events = w.drain()
    told = {name: len({e.step for e in found}) for name, found in events.items()}
    told |= {name: sum(x > 1 for x in w.fan.scores[name].values()) for name in PEERS}
    told["v3+sum"] = told["v3"] + len(set(w.checksum.found))
    scores = {name: list(s.values()) for name, s in w.fan.scores.items()}
    return told, [e.sentence for e in events["ours"]], scores


def run(work: str, dtype: str, name: str, steps: int = STEPS) -> dict[str, Any]:
    """One clean run: steps with an alarm by detector, what ours said, and the scores."""
    torch.manual_seed(3)
    w = Watched(Training(work, dtype), 0)
    told: list[tuple[dict[str, int], list[str], dict[str, list[float]]]] = []
    for i in range(steps):
        if name == "resume" and i == AT:
            told.append(_alarms(w))
            w = _resumed(w)
        t = w.t
        batch = t.batch(t.step)
        batch = batch[0].clone(), batch[1].clone()
        scale = SCENARIOS[name](t, i, batch)
        t.backward(batch, scale)
        t.optimizer.step()
        t.step += 1
    torch.set_num_threads(1)
    told.append(_alarms(w))
    w.close()
    return {
        "run": name,
        "work": work,
        "dtype": dtype,
        "steps": steps,
        "alarms": {k: sum(t[0][k] for t in told) for k in told[0][0]},
        "said": [s for t in told for s in t[1]],
        "scores": {k: [x for t in told for x in t[2][k]] for k in told[0][2]},
    }


def rate_bound(alarms: int, steps: int) -> float:
    """95 % upper bound of alarms in 10^6 steps, of a Poisson process (Wilson and Hilferty)."""
    n = alarms + 1
    return n * (1 - 1 / (9 * n) + 1.645 / (3 * math.sqrt(n))) ** 3 * 1e6 / max(1, steps)
