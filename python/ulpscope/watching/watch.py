# SPDX-License-Identifier: Apache-2.0
"""Watches training for silent corruption: `ulpscope.watch(model, optimizer)`, and nothing in the loop.

Hooks of the optimizer, and of gradients where they are reduced over ranks, read sums and hashes
(watch_rows.py), ranks tell each other theirs (watch_ranks.py), and detectors in C decide
(ulpscope/x/watch.h, through `_core.Watch`). All wording of events is made there. docs/background/watch.md.

Needs of torch: hooks of an optimizer's step, post-accumulate-grad hooks."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import functools
import logging
import math
import os
import sys
import time
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from .. import _core
from ..calls.foreign import unhurt
from ..calls.shown import Shown, counted
from ..program.scalars import Scalars, ScalarsTo
from . import (
    watch_audit,
    watch_collective,
    watch_left,
    watch_log,
    watch_matmul,
    watch_neighbour,
    watch_ranks,
    watch_rows,
    watch_shards,
)
from ..program.nan import nan_tracker

SITES = ("grad", "reduced", "weight", "weight_before", "moment1", "moment2", "update")
BEFORE = ("moment1_before", "moment2_before")  # where no other rank has the same
MOMENTS = {"exp_avg": "moment1", "momentum_buffer": "moment1", "exp_avg_sq": "moment2"}
QUIET = {"asd_event", "checksum_on", "checksum_off"}  # told to the log alone
OWN = {"matmul", "checksum_abnormal", "replay"}  # that one rank alone knows
ACTIONS = ("log", "skip", "raise", "stop")
OUTPUT = "ulpscope-watch"  # folder of the last calls
FIRST_EVENTS, LAST_EVENTS = 1000, 9000  # that are kept of a run of weeks
UPDATES = 50  # one of so many elements has its update taken at a step,
FEW = 1 << 16  # and so many at the least


told = []  # remarks on configurations, once in a process
EPOCH = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970, of a clock that nobody sets while the program runs."""
    return EPOCH + time.monotonic()


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


def parameters_of(model: torch.nn.Module, optimizers: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Name -> parameter, as the model calls them whatever is wrapped around it; those that are in an
    optimizer alone are called by their place there. Without such that need no gradient."""
    found, known = {}, set()
    for name, parameter in model.named_parameters() if model is not None else ():
        name = name.replace("_fsdp_wrapped_module.", "").replace("_orig_mod.", "")
        found[name.removeprefix("module.")] = parameter
        known.add(parameter)
    for i, optimizer in enumerate(optimizers):
        for g, group in enumerate(optimizer.param_groups):
            for k, parameter in enumerate(group["params"]):
                if parameter not in known:
                    found[f"optimizer{i}.group{g}.{k}"] = parameter
                    known.add(parameter)
    return found


def group_of(model: torch.nn.Module) -> Any:
    """The process group over which the model's gradients are reduced; None: over none."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    from torch.nn.parallel import DistributedDataParallel

    for module in model.modules() if model is not None else ():
        if isinstance(module, DistributedDataParallel):
            return module.process_group
    for parameter in model.parameters() if model is not None else ():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            return mesh.get_group() if mesh.ndim == 1 else torch.distributed.group.WORLD
    return None


def guarded(work: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a watch that is no matter of the program: what goes wrong in it ends the watch and is
    said once. It does nothing once the watch has failed, and in a process that was forked off."""

    @functools.wraps(work)
    def in_guard(self, *args):
        if self.error is not None or self._closed or os.getpid() != self._owner:
            return
        with unhurt(self._fail), torch.no_grad():
            work(self, *args)

    return in_guard


class Watch(Shown):
    """
    What `ulpscope.watch` gives: a handle, and a context manager that closes.

    `events()` are those so far, `error` the sentence of what ended the watch itself (None: nothing
    did), `close()` takes everything back, `state_dict()` and `load_state_dict()` carry what was
    learnt over a restart, with any number of ranks.
    """

    def __init__(
        self,
        model,
        optimizer,
        config,
        process_group,
        action,
        on_event,
        log,
        weights_every,
        matmul_every,
        audit,
        neighbour,
        keep_calls,
        output,
        exit_code,
        scalars,
    ):
        self.scalars, self.seen = Scalars(scalars, "the watch"), {}
        self.optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        self.action, self.on_event, self.exit_code = action, on_event, exit_code
        self.weights_every, self.stop_after = weights_every, 0
        self.error = None
        self.step = 0
        self.handles = []
        self._events, self._new, self.n_events = [], [], 0
        self.shown = []  # of these, what stood on stderr as it came
        self._owner = os.getpid()
        self._closed = self._in_step = False
        self._met = None  # the optimizer in whose first step this watch was made
        self._grads = {}  # id -> row, before the reduction
        self._versions = {}  # id -> version of a weight whose hash was taken
        self._before = {}  # id -> a weight before the step
        self._kept = []  # (optimizer, parameter, key, site, moment, its version) that were read behind the step
        self._members = weakref.WeakKeyDictionary()  # optimizer -> (which, its parameters with their ids)
        self._sums = {}  # step -> what went into reductions and came out
        self._rows = {}  # step -> {site: {id: row}}
        self._turn = self._share = 0  # which tensor has its update taken next; elements that may be
        self._said_alone = False
        self.reader = watch_rows.RowReader()
        self.parameters = parameters_of(model, self.optimizers)
        group = process_group if process_group is not None else group_of(model)
        self.exchange = watch_ranks.Exchange(group, action == "skip") if group is not None else None
        self._flagged = self._drop = False  # over ranks: whether some rank knows of something; the step is skipped
        self._clock = None  # over ranks that act together: that of the first
        self.rank, self.world = (self.exchange.rank, self.exchange.world) if self.exchange else (0, 1)
        self.config, self.asd = config, config.startswith("mode:asd")
        if self.asd:
            show_silent()
        self.core = _core.Watch(config, world=self.world)
        remark = self.core.remark()
        if self.rank == 0 and remark not in ("", *told):
            told.append(remark)
            print(f"ulpscope: the watch's configuration: {remark}", file=sys.stderr)
        self._meet()
        self.log = watch_log.WatchLog(log, self.world, self.names) if log and self.rank == 0 else None
        self.wrote, self.logged = self.log is not None, bool(log)
        self.tracker = self._own_tracker = None
        if keep_calls:
            self.tracker = nan_tracker(keep_calls=keep_calls, output=output)
            self.tracker.__enter__()
            self._own_tracker = self.tracker
        self.matmuls, self.products = None, watch_matmul.Products()
        if matmul_every and model is not None:
            self.linears = {
                module: self.ids.get(module._parameters.get("weight"), -1)
                for module in model.modules()
                if isinstance(module, torch.nn.Linear)
            }
            self.matmuls = watch_matmul.Linears(model, matmul_every, self._linear)
        self.audit = watch_audit.Audit(model, audit, self.ids) if audit or neighbour else None
        self.neighbours = None
        if neighbour and self.world > 1:
            self.neighbours = watch_neighbour.Neighbours(self.audit, neighbour, group, self.ids)
            self.audit.neighbours = self.neighbours
        self.collectives = self._held_collectives(model)
        self._hook()

    def _held_collectives(self, model):
        """What holds to each other what ranks give and what they get; None: nothing is known of that."""
        if self.exchange is None or self.asd or model is None:
            return None
        if watch_collective.applies(model):
            return watch_collective.Collectives(model, self._run)
        if watch_shards.applies(model, self.world):
            return watch_shards.Shards(model, self.ids, self.rank, self.world, self._run, self._is_full)
        return None

    # ---- the tensors ----

    def _meet(self):
        """Makes all parameters known; ids are their places."""
        self.names, self.ids = [], {}
        for name, parameter in self.parameters.items():
            sharded = hasattr(parameter, "to_local")
            dtype = str(parameter.dtype).removeprefix("torch.")
            number = self.core.tensor(name, dtype, parameter.ndim, sharded)
            self.ids[parameter] = number
            self.names.append([name, dtype])
        # ranks that have the same moments vote on them, and need not send so much
        own = self.exchange is None or any(hasattr(p, "to_local") for p in self.ids)
        self.sites = SITES + BEFORE if own else SITES
        self.shape = zlib.crc32(repr(self.names).encode())
        self.a_share = max(FEW, sum(p.numel() for p in self.ids) // UPDATES)

    def _hook(self):
        for optimizer in self.optimizers:
            self.handles.append(optimizer.register_step_pre_hook(self._before_step))
            self.handles.append(optimizer.register_step_post_hook(self._after_step))
        if self.exchange is None:
            return
        for parameter, number in self.ids.items():
            if parameter.requires_grad and parameter.is_leaf and not hasattr(parameter, "to_local"):
                self.handles.append(parameter.register_post_accumulate_grad_hook(self._local_grad(number)))

    def _local_grad(self, number):
        return lambda parameter: self._read_grad(number, parameter)

    @guarded
    def _read_grad(self, number, parameter):
        self._read("grad", [number], [parameter.grad], hashed=False)

        if self.collectives is not None and self._is_full():
            self.collectives.sent(number, parameter)

    @guarded
    def _run(self, work):
        work()

    def _is_full(self):
        """Whether weights, moments and what ranks put into reductions are read at this step."""
        return self.step % self.weights_every == 0

    # ---- the hooks ----

    def _fail(self, error):
        self.error = f"the watch failed: {error or type(error).__name__}"
        with contextlib.suppress(OSError, ValueError):
            print(f"ulpscope: {self.error}; the program goes on", file=sys.stderr)
        with unhurt():
            self._unhook()

    def _unhook(self):
        for part in (self.matmuls, self.audit, self.collectives):
            if part is not None:
                part.remove()
        self.matmuls = None
        if self._in_step:  # torch walks along the optimizer's hooks: ours stay, and do nothing
            return
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()

    def _read(self, site, numbers, tensors, hashed=True):
        """`hashed`: whether bits are held against bits, too; where there is a log they always are told."""
        self.reader.take((self.step, site, numbers), tensors, hashed or self.logged)

    def _mine(self, optimizer):
        """[(id, parameter)] of an optimizer, made anew where it has others."""
        shape = [list(map(id, group["params"])) for group in optimizer.param_groups]
        known = self._members.get(optimizer)
        if known is None or known[0] != shape:
            known = (
                shape,
                [(self.ids[p], p) for group in optimizer.param_groups for p in group["params"] if p in self.ids],
            )
            self._members[optimizer] = known
        return known[1]

    def _before_step(self, optimizer, args, kwargs):
        met, self._met = self._met, None
        if met is optimizer and self.step == 0:  # torch has come to the new hook in that very step
            return
        with self._within_step():
            self._drop = False
            self._begin_step(optimizer)
            self._act(optimizer, self._drop)

    @contextlib.contextmanager
    def _within_step(self):
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    @guarded
    def _begin_step(self, optimizer):
        for parameter, how in self.audit.before_step() if self.audit is not None else ():
            self._feed_value(self.step, "replay", self.ids[parameter], how)
        with_grad = [(i, p) for i, p in self._mine(optimizer) if p.grad is not None]
        if not with_grad:  # it moves nothing: those of the model have theirs, perhaps, and stand still
            with_grad = [(i, p) for p, i in self.ids.items() if p.grad is not None]
        site = "grad" if self.exchange is None else "reduced"
        if self.asd:
            with_grad = [(i, p) for i, p in with_grad if p.ndim >= 2]
        self._read(site, [i for i, _ in with_grad], [p.grad for _, p in with_grad], site == "reduced")
        if not self.asd:
            self._look_before(with_grad)
        if self.action != "log" and self.exchange is None:
            self._collect(decide_now=True)
            self._drop = any(event.kind not in QUIET for event in self._new)
        elif self._acts():
            self._drop = self._agree()

    def _acts(self):
        """Whether what is done with events is done by all ranks together."""
        return self.exchange is not None and self.exchange.acts and self.exchange.alone is None

    def _agree(self):
        """Whether all ranks drop this step. They have the same rows of it, draw the same verdict, and what one of
        them alone knows it tells the others with its rows; so a clean step costs the rows alone, waited for."""
        self._collect()
        self._decide(self.step)  # what is this rank's own
        own = any(self.is_own(event) and event.kind not in QUIET for event in self._new)
        self._send(self.step, self._rows.pop(self.step, {}), own)
        self.exchange.complete()
        self._receive()
        flagged, self._flagged = self._flagged, False
        wanted = flagged or any(event.kind not in QUIET and not self.is_own(event) for event in self._new)
        if not wanted or self.exchange.agreed(self.step):
            return wanted
        print(f"ulpscope: step {self.step} is not skipped: the ranks do not all say so", file=sys.stderr)
        return False

    def first_step(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer steps for the first time just now, and this watch came too late for its hook."""
        self._before_step(optimizer, (), {})
        self._met = optimizer

    def _look_before(self, with_grad):
        """Weights as they are used next, and those of which the update is to be taken."""
        unmoved = [(self.ids[p], p) for p, was in self._versions.items() if was == _version(p)]
        self._versions = {}
        self._read("weight_before", [i for i, _ in unmoved], [p for _, p in unmoved])
        kept, self._kept = self._kept, []
        for site in BEFORE if kept else ():
            still = [
                (self.ids[p], s)
                for o, p, key, of, s, was in kept
                if f"{of}_before" == site and o.state.get(p, {}).get(key) is s and _version(s) == was
            ]
            self._read(site, [i for i, _ in still], [s for _, s in still])
        self._before = {p: (i, _copy(p)) for i, p in self._next_updates(with_grad)}

    def _next_updates(self, with_grad):
        """Some of the tensors, in turn: what one has more than a step's share is paid by the next."""
        self._share += self.a_share
        chosen = []
        while self._share > 0 and len(chosen) < len(with_grad):
            chosen.append(with_grad[(self._turn + len(chosen)) % len(with_grad)])
            self._share -= chosen[-1][1].numel()
        self._share = min(self._share, 0)
        self._turn = (self._turn + len(chosen)) % max(1, len(with_grad))
        return chosen

    def _after_step(self, optimizer, args, kwargs):
        with self._within_step():
            self._end_step(optimizer)
            if not self._acts():  # what was found since, all ranks deal with before the next step
                self._act(optimizer)
        if 0 < self.stop_after <= self.step:
            raise SystemExit(0)

    @guarded
    def _end_step(self, optimizer):
        if self.audit is not None:
            self.audit.forget()
        if not self.asd:
            self._look_after(optimizer)
        if optimizer is self.optimizers[0]:
            if self.collectives is not None and self._is_full():
                self._sums[self.step] = self.collectives.table(len(self.names))
            self._read(None, [], [])  # behind this nothing of the step comes
            self.step += 1
            self._collect()

    def _look_after(self, optimizer):
        moved = [(i, p, _local(p) - was) for p, (i, was) in self._before.items() if _local(p).shape == was.shape]
        self._before = {}
        self._read("update", [i for i, _, _ in moved], [change for _, _, change in moved], hashed=False)
        full, mine = self._is_full(), self._mine(optimizer)
        voted = self.exchange is not None
        weights = mine if full else [(i, p) for i, p, _ in moved]
        self._read("weight", [i for i, _ in weights], [p for _, p in weights], full or voted)
        self._versions |= {p: _version(p) for _, p in weights} if full else {}
        for key, site in MOMENTS.items() if full else ():
            states = [
                (i, p, optimizer.state[p][key])
                for i, p in mine
                if isinstance(optimizer.state.get(p, {}).get(key), torch.Tensor)
            ]
            self._read(site, [i for i, _, _ in states], [s for _, _, s in states])
            if self.sites is not SITES:
                self._kept += [(optimizer, p, key, site, s, _version(s)) for _, p, s in states]

    @guarded
    def _linear(self, module, site, *operands):
        if self.audit is not None and self.audit.busy:
            return
        self.products.take((self.step, site, self.linears[module]), watch_matmul.WatchedProduct(*operands))

    @guarded
    def _matmul(self, a, b, c, matmul):
        self._read("matmul", [-1], [watch_matmul.asd_abnormal(a, b, c, matmul)])

    def _switch_checksum(self):
        """Mode asd has matmuls checked for some minutes after a warning."""
        wants = self.asd and self.core.about()["wants_checksum"]
        if wants and self.matmuls is None:
            self.matmuls = watch_matmul.Matmuls(self._matmul)
        elif self.asd and not wants and self.matmuls is not None:
            self.matmuls.remove()
            self.matmuls = None

    # ---- what was read, decided ----

    @guarded
    def _catch_up(self):
        self._collect()

    def _collect(self, decide_now=False):
        """Takes what has come of the devices and of the other ranks; nothing is waited for."""
        self._feed_products()
        for (step, site, numbers), rows in self.reader.ready():
            known = self._rows.setdefault(step, {})
            if site == "matmul":
                [row] = watch_rows.unpacked(rows[0])
                self._feed_value(step, site, numbers[0], math.inf if row.n_nonfinite else row.max_abs)
            elif site is not None:
                known.setdefault(site, {}).update(zip(numbers, rows))
            elif self.exchange is None:
                self._decide_own(step, self._rows.pop(step))
            else:
                self._send(step, self._rows.pop(step))
        if decide_now and self.step in self._rows:
            self._decide_own(self.step, self._rows[self.step])
            self._rows[self.step] = {}
        if self.exchange is not None:
            self._receive()

    def _send(self, step, known, own=False):
        """Ranks send each other a row for each site and tensor, in that order. `own`: this one knows of something
        that the others do not."""
        sums = self._sums_of(step)
        if self.exchange.alone is None:
            numbers = range(len(self.names))
            if self.neighbours is not None:
                sums = torch.cat([sums, self.neighbours.words()])
            if self._acts():
                sums = torch.cat([sums, torch.tensor([now(), own], dtype=torch.float64)])
            rows = [known.get(site, {}).get(i, watch_rows.NO_ROW) for site in self.sites for i in numbers]
            if self.exchange.send(step, self.shape, b"".join(rows), sums):
                return
        self._receive()  # what was sent before is decided first
        self._decide_own(step, known)

    def _sums_of(self, step):
        told = self._sums.pop(step, None)
        return torch.empty(0, dtype=torch.float64) if told is None else watch_collective.filled(told).view(-1)

    def _feed_neighbours(self, step, words):
        """What ranks found of each other's micro-batches, known to all of them alike."""
        for number, rank in self.neighbours.passing(words):
            self._feed_value(step, "replay", number, watch_audit.PASSING, 0, rank)
        for number, whose, by in self.neighbours.heard(words):
            self._feed_value(step, "replay", number, whose, 1, whose)
            self._feed_value(step, "replay", number, whose, 2, by)

    def _feed_sums(self, step, more):
        """Of a step at which ranks told each other sums of what they reduced."""
        if not more or more[0].numel() == 0:
            return
        held = [(getattr(torch, dtype), p.numel()) for (_, dtype), p in zip(self.names, self.parameters.values())]
        for rank, number, over, how in self.collectives.judged(more, *zip(*held)):
            self._feed_value(step, "collective", number, over, how, rank)

    def _receive(self):
        size = len(self.names) * watch_rows.SIZE
        for step, tables, more in self.exchange.received():
            if more and self.exchange.acts:
                self._clock, self._flagged = float(more[0][-2]), self._flagged or any(m[-1] > 0 for m in more)
                more = [m[:-2] for m in more]
            if more and self.neighbours is not None:
                self._feed_neighbours(step, [m[-watch_neighbour.WORDS :] for m in more])
                more = [m[: -watch_neighbour.WORDS] for m in more]
            self._feed_sums(step, more)
            for rank, table in enumerate(tables):
                for k, site in enumerate(self.sites) if table is not None else ():
                    self._feed(step, site, rank, table[k * size : (k + 1) * size])
            self._decide(step)
        if self.exchange.alone is not None and not self._said_alone:
            self._said_alone = True
            print(f"ulpscope: the watch of rank {self.rank} goes on alone: {self.exchange.alone}", file=sys.stderr)

    def _decide_own(self, step, known):
        """Of a step of which this rank's rows are all there is."""
        for site in self.sites:
            rows = known.get(site)
            if rows:
                self._feed(step, site, self.rank, b"".join(rows.values()), array.array("q", rows))
        self._decide(step)

    def _feed(self, step, site, rank, rows, numbers=None):
        """Rows of one rank, of these tensors or of all in turn; they go into the log, too."""
        self.core.feed(step, site, rank, rows, numbers)
        shown = self.scalars and site == "grad" and rank == self.rank
        if self.log is None and not shown:
            return
        numbers = range(len(self.names)) if numbers is None else numbers
        told = [(i, row) for i, row in zip(numbers, watch_rows.unpacked(rows)) if row is not None]
        if shown:
            norm, odd = math.sqrt(sum(row.sum_sq for _, row in told)), sum(row.n_nonfinite for _, row in told)
            self.seen = {"grad_norm": norm, "grad_nonfinite": odd}
        if self.log is not None and told:
            self.log.put(step, rank, site, now(), [(i, *row) for i, row in told])

    def _decide(self, step):
        """Has what was fed of a step decided, and takes the events."""
        for found in self.core.step(step, now() if self._clock is None else self._clock):
            self._take(found)
        if self.scalars and self.tells():
            self.scalars.put({**self.seen, "events": self.n_events}, step)
        self._switch_checksum()

    def _feed_products(self):
        """Checks are this rank's own; a step has the worst of each tensor."""
        worst = {}
        for place, *found in self.products.ready():
            worst[place] = max(worst.get(place, found), found)
        for (step, site, number), (over, how) in worst.items():
            self._feed_value(step, site, number, over, how)

    def _feed_value(self, step, site, number, value, hash64=0, rank=None):
        rank = self.rank if rank is None else rank
        self.core.feed_value(step, site, rank, number, value, hash64)
        if self.log is not None:
            self.log.put_values(step, rank, site, now(), [(number, value, hash64)])

    def _take(self, found):
        trace = self._keep() if self.tracker is not None else None
        command = (found["action"] or "").replace("{trace}", trace or "TRACE")
        event = Event(
            found["step"],
            found["kind"],
            found["tensor"] or "",
            -1 if found["rank"] is None else found["rank"],
            found["score"],
            found["threshold"],
            found["sentence"],
            found["detector"],
            command,
        )
        self.n_events += 1
        self._events.append(event)
        del self._events[FIRST_EVENTS : max(FIRST_EVENTS, len(self._events) - LAST_EVENTS)]
        self._new.append(event)
        name = "torch_npu.silent_check" if self.asd else "ulpscope.watch"
        level = logging.INFO if found["level"] == "info" else logging.WARNING
        useful = trace is not None or "TRACE" not in command
        text = f"{event.sentence}; next: {command}" if command and useful and not self.asd else event.sentence
        if self.tells() or self.is_own(event):
            logger = logging.getLogger(name)
            logger.log(level, "%s", text)
            if level >= logging.WARNING and not logger.hasHandlers():  # logging's last resort writes it to stderr
                self.shown.append(event)
                del self.shown[:-LAST_EVENTS]

    def tells(self) -> bool:
        """Whether it is this rank that says what all know: the first, and each that is alone."""
        return self.rank == 0 or self.exchange.alone is not None

    def is_own(self, event: Event) -> bool:
        """Whether this rank alone may know of it."""
        return event.kind in OWN and event.rank == self.rank

    def _keep(self):
        """The folder of the last calls, written now; None where there is none."""
        with unhurt():
            return self.tracker.keep()

    def _act(self, optimizer, drop=False):
        """Does what was asked for with what is new. This may raise: it is for the program."""
        if os.getpid() != self._owner:
            return
        if drop and self.action == "skip":
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        new, self._new = self._new, []
        new = [event for event in new if event.kind not in QUIET]
        if not new:
            return
        if self.on_event is not None:
            for event in new:
                self.on_event(event)
        if self.action == "raise":
            raise WatchAlarm(new[0])
        elif self.action == "stop":
            print(f"ulpscope: the job is stopped: {new[0].sentence}", file=sys.stderr)
            raise SystemExit(self.exit_code)

    # ---- for the program ----

    def events(self) -> list[Event]:
        """The events so far, oldest first: the first thousand and the latest of `n_events`. It waits for nothing."""
        self._catch_up()
        return list(self._events)

    @property
    def not_watched(self) -> str:
        """What it does not look at, and why, in a line."""
        return watch_left.not_watched(self)

    def _shown(self) -> str:
        found = counted(self.n_events, "event")
        return ", ".join(filter(None, (f"watch: {found} up to step {self.step}", self.not_watched, self.error)))

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        rows = [(e.step, e.kind, e.tensor, e.score, e.threshold, e.sentence) for e in self._events]
        return ("step", "kind", "tensor", "score", "threshold", "sentence"), rows

    def close(self) -> None:
        """Takes the hooks out, and decides what is still on its way, as far as it comes in time."""
        self._unhook()
        for part in (self.exchange, self.neighbours):
            if part is not None:
                part.close()
        self.events()
        self._closed = True
        if self.exchange is not None:
            self.exchange.forget()
        self.scalars.close()
        for part in (self.log, self._own_tracker):
            with unhurt():
                if part is not None:
                    part.__exit__(None, None, None)
        self.log = self.tracker = self._own_tracker = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *raised: object) -> Literal[False]:
        self.close()
        return False

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, for a checkpoint: a number and one tensor of bytes."""
        return {"step": self.step, "core": torch.frombuffer(bytearray(self.core.save()), dtype=torch.uint8)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; ranks and tensors that are not there any more are left out. Raises
        ValueError where it is damaged; the watch then begins anew."""
        try:
            step, core = state["step"], bytes(state["core"].cpu().numpy().tobytes())
            if not isinstance(step, int):
                raise KeyError("step")
            self.core.load(core)  # its hash is looked at before anything is taken
            self.step = step
        except (KeyError, AttributeError, _core.UlpscopeError) as error:
            raise ValueError(f"no state of a watch: {error}; go on without load_state_dict") from None


def _local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _copy(tensor):
    return _local(tensor).detach().clone()


def _version(tensor):
    """Moves on with each write that torch knows of, and with other memory."""
    return tensor._version, tensor.data_ptr() if not hasattr(tensor, "to_local") else 0


SO_MANY = {
    "weights_every": (1, "one step or more"),
    "matmul_every": (0, "one call of so many, 0 for none"),
    "audit": (0, "one micro-batch of so many, 0 for none"),
    "neighbour": (0, "one micro-batch of so many, 0 for none"),
}


def _check_arguments(asked):
    if asked["action"] not in ACTIONS:
        raise ValueError(f"action {asked['action']!r}: one of {', '.join(ACTIONS)}")
    for key, (least, says) in SO_MANY.items():
        if not isinstance(asked[key], int) or asked[key] < least:
            raise ValueError(f"{key} {asked[key]!r}: {says}")


def watch(
    model: torch.nn.Module | None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    config: str | None = None,
    process_group: torch.distributed.ProcessGroup | None = None,
    *,
    action: str | None = None,
    on_event: Callable[[Event], object] | None = None,
    log: str | os.PathLike[str] | None = None,
    weights_every: int | None = None,
    matmul_every: int | None = None,
    audit: int | None = None,
    neighbour: int | None = None,
    keep_calls: int | None = None,
    output: str | os.PathLike[str] = OUTPUT,
    exit_code: int | None = None,
    scalars: ScalarsTo = None,
) -> Watch:
    """
    Watches training for silent corruption from here on; nothing more is needed in the loop.

        w = ulpscope.watch(model, optimizer)
        ...
        for event in w.events():
            print(event.sentence)

    `config`: "k:v,k:v" (docs/reference/watch-reference.md); None: what NPU_ASD_CONFIG says, else mode sound. It may
    hold action, weights_every, matmul_every, audit, neighbour, keep_calls and exit_code as well; arguments count
    before it.
    `process_group`: over which ranks are held against each other; None: that of the model's
    DistributedDataParallel or FSDP, else none. All of its ranks call this function. `action`: "log";
    "skip" (this step of the optimizer, over ranks on the CPU all ranks alike), "raise" (WatchAlarm), "stop"
    (SystemExit with `exit_code`). `on_event`: a function, called with each event. `log`: a file for the
    rows, which `ulpscope watch` reads. `weights_every`: at one of so many steps all weights and
    moments are hashed. `matmul_every`: one of so many calls of nn.Linear is held to its row checksums,
    forward and backward; 0: none. `audit`: one of so many micro-batches is computed again before the
    optimizer's step and its gradients compared bitwise; 0: none. `neighbour`: one of so many by the next
    rank; 0: none; not of one process. `keep_calls`: the last so many calls stay in memory with their data and are
    written as a trace into `output` where something is abnormal. `scalars`: a function that is called at each
    step with ({"ulpscope/grad_norm": ..., "ulpscope/grad_nonfinite": ..., "ulpscope/events": ...}, step=step), as
    wandb.log and mlflow.log_metrics are; or a folder, for TensorBoard. Of several ranks the first tells.

    Raises ValueError for a bad argument; what goes wrong later is said once, and training goes on.
    """
    if config is None:
        config = asd_config() or ""
    given = {
        "action": action,
        "weights_every": weights_every,
        "matmul_every": matmul_every,
        "audit": audit,
        "neighbour": neighbour,
        "keep_calls": keep_calls,
        "exit_code": exit_code,
    }
    asked = configured(config) | {key: value for key, value in given.items() if value is not None}
    action, audit, neighbour = asked["action"], asked["audit"], asked["neighbour"]
    _check_arguments(asked)
    if (audit or neighbour) and (model is None or any(hasattr(p, "to_local") for p in model.parameters())):
        raise ValueError("audit, neighbour: a model whose parameters are whole on each rank is needed; leave them out")
    try:
        asked_for = {key: asked[key] for key in given} | {"on_event": on_event, "log": log}
        made = Watch(model, optimizer, config, process_group, output=output, scalars=scalars, **asked_for)
    except _core.ArgError as error:
        raise ValueError(f"{error}") from None
    if action == "skip" and made.exchange is not None and any(p.device.type != "cpu" for p in made.ids):
        made.close()
        raise ValueError(
            "action 'skip' over ranks: what was read on a device is known a step later, when the wrong "
            "step is done, and to wait for it would stop the device at each step; take 'raise' or "
            "'stop'"
        )
    made.stop_after = asked["stop_after"]
    if neighbour and made.world == 1:
        made.close()
        raise ValueError("neighbour: there is no other rank to compute a micro-batch; take audit")
    return made
