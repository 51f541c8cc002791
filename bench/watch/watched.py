# SPDX-License-Identifier: Apache-2.0
"""One training under `ulpscope.watch` and, fed the very same rows, under the detectors of other tools; and
what each of them says of one trial."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import ulpscope
from ulpscope import _core
from ulpscope.watching import watch_matmul
from ulpscope.watching.watch_events import QUIET

from .plant import Plant, Trial
from .work import Training

CLEAN, WINDOW = 48, 24  # steps before the checkpoint, and of a trial from there
ALL = {"weights_every": 1, "matmul_every": 1}  # of ours: every check at every step
#: Detectors of other tools, as they are at their best: all tensors, no cooldown. "v3+sum" is v3 or its
#: checksum, held to every forward matmul of bfloat16 although it is to some minutes after three alarms.
PEERS = {
    "v3": "asd",
    "v2": "asd-v2",
    "megatron": "megatron",
    "turbulence": "turbulence",
    "zscore": "zscore",
    "nan": "nan",
    "replicas": "replicas",
}
OURS = ("ours", "default", "audit", "neighbour")
FLUSH = 3  # steps behind a window, until what ranks computed of each other's last micro-batches has been told
logging.getLogger("ulpscope.watch").addHandler(logging.NullHandler())
logging.getLogger("ulpscope.watch").propagate = False


class Fan:
    """Stands in a watch's `core`: rows that it is fed go to the other tools' detectors, too, and the score
    of each step is kept."""

    def __init__(self, watch: Any) -> None:
        self.core = watch.core
        self.peers = {
            name: _core.Watch(f"detectors:{of},grad_sample_interval:1", world=watch.world) for name, of in PEERS.items()
        }
        for peer in self.peers.values():
            for (name, dtype), p in zip(watch.names, watch.parameters.values(), strict=True):
                peer.tensor(name, dtype, p.ndim, hasattr(p, "to_local"))
        self.scores: dict[str, dict[int, float]] = {name: {} for name in ("ours", *PEERS)}

    def feed(self, *given: Any) -> None:
        self.core.feed(*given)
        for peer in self.peers.values():
            peer.feed(*given)

    def feed_value(self, *given: Any) -> None:
        self.core.feed_value(*given)
        for peer in self.peers.values():
            peer.feed_value(*given)

    def step(self, step: int, seconds: float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.core.step(step, seconds)
        self.scores["ours"][step] = self.core.about()["score"]
        for name, peer in self.peers.items():
            peer.step(step, 400.0 * step)  # beyond any cooldown
            self.scores[name][step] = peer.about()["score"]
        return found

    def save(self) -> Any:
        return self.core.save()

    def load(self, state: Any) -> None:
        self.core.load(state)
        for scores in self.scores.values():
            scores.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)


class Checksum:
    """torch_npu's checksum over every nn.Linear of a bfloat16 model; a bias is one more row of the weight.
    `found`: the steps at which it was abnormal."""

    def __init__(self, training: Training) -> None:
        self.t = training
        self.found: list[int] = []
        for module in training.net.modules():
            if isinstance(module, nn.Linear) and training.dtype == "bfloat16":
                module.register_forward_hook(self._check)

    def _check(self, module: nn.Linear, args: tuple[torch.Tensor], out: torch.Tensor) -> None:
        if not torch.is_grad_enabled() or out.numel() == 0:
            return
        with torch.no_grad():
            a, b = args[0].detach(), module.weight.detach().T
            if module.bias is not None:
                a = torch.cat([a, torch.ones_like(a[..., :1])], -1)
                b = torch.cat([b, module.bias.detach()[None]])
            again = lambda *_: F.linear(args[0], module.weight, module.bias)  # noqa: E731
            if watch_matmul.asd_abnormal(a, b, out.detach(), again):
                self.found.append(self.t.step)


@dataclasses.dataclass
class Outcome:
    """What became of a trial. `seen`: by whom -> (step from the fault on, kind, tensor, rank); of other
    tools the step alone. `scores`: largest score / threshold from the fault on."""

    planted: int | None
    loss: float
    seen: dict[str, list[Any]]
    scores: dict[str, float]
    error: str = ""


class Watched:
    """A training with watches: with all checks at every step, as it is by default, and with an audit alone; over
    ranks with a second computation by the next rank; from its checkpoint on. One process, or each process of the
    default group."""

    def __init__(self, training: Training, clean: int = CLEAN) -> None:
        self.t = training
        self.plant = Plant(training)
        options = {
            "": {"ours": ALL, "default": {}, "audit": {"audit": 1}},
            "ddp": {"ours": ALL, "neighbour": {"neighbour": 1}},
            "fsdp2": {"ours": ALL},
        }[training.kind]
        watched = partial(ulpscope.watch, training.model, training.optimizer)
        self.watches = {name: watched(**o) for name, o in options.items()}  # type: ignore[arg-type]
        self.fan = Fan(self.watches["ours"])
        self.watches["ours"].core = self.fan
        self.plant.after_watch()
        audits = [w.audit for w in self.watches.values() if w.audit is not None]
        self.plant.again = lambda: any(audit.busy for audit in audits)
        self.checksum = Checksum(training)
        self.run(clean)
        self.early = self.drain()  # events of the clean steps: there should be none
        training.save()
        self.states = {name: w.state_dict() for name, w in self.watches.items()}
        self.peers = {name: peer.save() for name, peer in self.fan.peers.items()}

    def one_step(self) -> None:
        t = self.t
        t.backward(self.plant.batch(t.batch(t.step)))
        self.plant.received()
        t.optimizer.step()
        self.plant.memory()
        t.step += 1
        for near in self.neighbours():
            while near.off is None and (near.under_way is not None or near.queue):  # steps are short here
                near._go_on()
                time.sleep(2e-4)

    def neighbours(self) -> list[Any]:
        return [w.neighbours for w in self.watches.values() if w.neighbours is not None]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.one_step()

    def drain(self) -> dict[str, list[Any]]:
        """The events so far of each watch, when all that was on its way has come."""
        for w in self.watches.values():
            if w.exchange is not None:
                w.exchange.close()
        return {name: [e for e in w.events() if e.kind not in QUIET] for name, w in self.watches.items()}

    def restore(self) -> None:
        self.t.restore()
        for name, w in self.watches.items():
            w.load_state_dict(self.states[name])
        for name, peer in self.fan.peers.items():
            peer.load(self.peers[name])
        self.checksum.found.clear()
        for near in self.neighbours():
            near.last, near.n_unlike = None, 0

    def window(self, line: str, seed: int, steps: int = WINDOW) -> Outcome:
        """One trial from the checkpoint on; "" as `line` is the clean run."""
        before = {name: len(events) for name, events in self.drain().items()}
        self.restore()
        self.plant.schedule(line, seed)
        error = ""
        try:
            self.run(steps)
        except (RuntimeError, IndexError) as e:  # the program itself stops: what it does of itself is no alarm
            if self.t.kind:
                raise
            error = f"{e}".splitlines()[0]
        planted = self.first_everywhere()
        self.plant.schedule("", 0)
        loss = math.nan if error else self.t.held_out_loss()
        end = self.t.step
        if self.neighbours():
            self.run(FLUSH)
        events = {name: found[before[name] :] for name, found in self.drain().items()}
        for near in self.neighbours():
            if near.off:
                raise RuntimeError(f"nothing goes to other ranks any more: {near.off}")
        for w in self.watches.values():
            if w.error or (w.exchange is not None and w.exchange.alone):
                raise RuntimeError(f"the watch failed: {w.error or w.exchange.alone}")
        since = math.inf if planted is None and line else planted or 0
        return Outcome(planted, loss, self._seen(events, since, end), self._scores(since, end), error)

    def first_everywhere(self) -> int | None:
        mine = self.plant.first_step()
        if not self.t.kind:
            return mine
        told: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(told, mine)
        return min((s for s in told if s is not None), default=None)

    def _seen(self, events: dict[str, list[Any]], since: float, end: int) -> dict[str, list[Any]]:
        seen = {
            name: [
                [e.step, e.kind, e.tensor, e.rank]
                for e in found
                if since <= e.step < end + (FLUSH if name == "neighbour" else 0)
            ]
            for name, found in events.items()
        }
        for name in PEERS:
            seen[name] = [[s] for s, score in self.fan.scores[name].items() if since <= s < end and score > 1]
        seen["v3+sum"] = sorted(seen["v3"] + [[s] for s in set(self.checksum.found) if s >= since])
        return seen

    def _scores(self, since: float, end: int) -> dict[str, float]:
        return {
            name: max((x for s, x in scores.items() if since <= s < end), default=0.0)
            for name, scores in self.fan.scores.items()
        }

    def close(self) -> None:
        for w in self.watches.values():
            with contextlib.suppress(Exception):
                w.close()


class Permuted:
    """Batches of which the rows come in another order: sums that go over them round otherwise."""

    def __init__(self, training: Training, seed: int) -> None:
        self.training, self.seed, self.batch = training, seed, training.batch

    def __enter__(self) -> None:
        def permuted(step: int) -> tuple[torch.Tensor, torch.Tensor]:
            x, y = self.batch(step)
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.seed))
            return x[order], y[order]

        self.training.batch = permuted  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        self.training.batch = self.batch  # type: ignore[method-assign]


def clean_losses(watched: Watched, runs: int = 5, steps: int = WINDOW) -> tuple[list[float], dict[str, int]]:
    """Held-out losses at the end of the window without a fault: as it is, then in other orders of reduction;
    and how many alarms there were in all, those before the checkpoint among them."""
    losses, alarms = [], {name: len(events) for name, events in watched.early.items()}
    for i in range(runs):
        with Permuted(watched.t, i) if i else contextlib.nullcontext():
            done = watched.window("", 0, steps)
        losses.append(done.loss)
        for name in alarms:
            alarms[name] += len(done.seen[name])
    return losses, alarms


def tried(watched: Watched, trial: Trial, clean: list[float], steps: int = WINDOW) -> dict[str, Any]:
    """A trial and its outcome, as one line of the result."""
    start = time.perf_counter()
    done = watched.window(trial.line, trial.seed, steps)
    harm = abs(done.loss - clean[0])
    spread = max(abs(x - clean[0]) for x in clean)
    row = dataclasses.asdict(trial) | dataclasses.asdict(done)
    share = min(1.0, harm / clean[0]) if math.isfinite(harm) else 1.0
    return row | {"harm": share, "outside": not harm <= spread, "seconds": time.perf_counter() - start}
