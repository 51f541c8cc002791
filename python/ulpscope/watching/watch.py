# SPDX-License-Identifier: Apache-2.0
"""Watches training for silent corruption: `ulpscope.watch(model, optimizer)`, and nothing in the loop.

Hooks of the optimizer, and of gradients where they are reduced over ranks, read sums and hashes
(watch_rows.py), ranks tell each other theirs (watch_ranks.py), and detectors in C decide
(ulpscope/x/watch.h, through `_core.Watch`). All wording of events is made there. docs/background/watch.md.
Of the class, watch_steps.py has what is read and watch_decisions.py what becomes of it.

Needs of torch: hooks of an optimizer's step, post-accumulate-grad hooks."""

from __future__ import annotations

import contextlib
import os
import sys
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
from .watch_decisions import guarded
from .watch_events import QUIET, Event, WatchAlarm
from .watch_program import group_of, parameters_of
from .watch_settings import OUTPUT, _check_arguments, asd_config, configured, show_silent
from .watch_steps import BEFORE, FEW, SITES, WatchSteps, UPDATES

told: list[str] = []  # remarks on configurations, once in a process


class Watch(Shown, WatchSteps):
    """
    What `ulpscope.watch` gives: a handle, and a context manager that closes.

    `events()` are those so far, `error` the sentence of what ended the watch itself (None: nothing
    did), `close()` takes everything back, `state_dict()` and `load_state_dict()` carry what was
    learnt over a restart, with any number of ranks.
    """

    def __init__(
        self,
        model: torch.nn.Module | None,
        optimizer: Any,
        config: str,
        process_group: Any,
        action: str,
        on_event: Callable[[Event], object] | None,
        log: Any,
        weights_every: int,
        matmul_every: int,
        audit: int,
        neighbour: int,
        keep_calls: int,
        output: Any,
        exit_code: int,
        scalars: ScalarsTo,
    ) -> None:
        self.scalars, self.seen = Scalars(scalars, "the watch"), {}
        self.optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        self.action, self.on_event, self.exit_code = action, on_event, exit_code
        self.weights_every, self.stop_after = weights_every, 0
        self.error = None
        self.step = 0
        self.handles: list[Any] = []
        self._events, self._new, self.n_events = [], [], 0
        self.shown = []  # of these, what stood on stderr as it came
        self._owner = os.getpid()
        self._closed = self._in_step = False
        self._met = None  # the optimizer in whose first step this watch was made
        self._grads: dict[int, Any] = {}  # id -> row, before the reduction
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
        if neighbour and self.audit is not None and self.world > 1:
            self.neighbours = watch_neighbour.Neighbours(self.audit, neighbour, group, self.ids)
            self.audit.neighbours = self.neighbours
        self.collectives = self._held_collectives(model)
        self._hook()

    def _held_collectives(self, model: torch.nn.Module | None) -> Any:
        """What holds to each other what ranks give and what they get; None: nothing is known of that."""
        if self.exchange is None or self.asd or model is None:
            return None
        if watch_collective.applies(model):
            return watch_collective.Collectives(model, self._run)
        if watch_shards.applies(model, self.world):
            return watch_shards.Shards(model, self.ids, self.rank, self.world, self._run, self._is_full)
        return None

    # ---- the tensors ----

    def _meet(self) -> None:
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

    def _hook(self) -> None:
        for optimizer in self.optimizers:
            self.handles.append(optimizer.register_step_pre_hook(self._before_step))
            self.handles.append(optimizer.register_step_post_hook(self._after_step))
        if self.exchange is None:
            return
        for parameter, number in self.ids.items():
            if parameter.requires_grad and parameter.is_leaf and not hasattr(parameter, "to_local"):
                self.handles.append(parameter.register_post_accumulate_grad_hook(self._local_grad(number)))

    def _local_grad(self, number: int) -> Callable[[torch.Tensor], Any]:
        return lambda parameter: self._read_grad(number, parameter)

    # ---- the hooks ----

    def _fail(self, error: BaseException) -> None:
        self.error = f"the watch failed: {error or type(error).__name__}"
        with contextlib.suppress(OSError, ValueError):
            print(f"ulpscope: {self.error}; the program goes on", file=sys.stderr)
        with unhurt():
            self._unhook()

    def _unhook(self) -> None:
        for part in (self.matmuls, self.audit, self.collectives):
            if part is not None:
                part.remove()
        self.matmuls = None
        if self._in_step:  # torch walks along the optimizer's hooks: ours stay, and do nothing
            return
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()

    # ---- what was read, decided ----

    @guarded
    def _catch_up(self) -> None:
        self._collect()

    def _act(self, optimizer: torch.optim.Optimizer, drop: bool = False) -> None:
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
        rows: list[tuple[object, ...]] = [
            (e.step, e.kind, e.tensor, e.score, e.threshold, e.sentence) for e in self._events
        ]
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
