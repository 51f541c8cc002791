# SPDX-License-Identifier: Apache-2.0
"""One of n micro-batches computed again, and its gradients compared bit by bit: the check that sees a
fault of any operator. docs/reference/watch-reference.md, "Audit".

The model's inputs, buffers, random streams and autocast are kept where the micro-batch begins, the
gradients of its outputs and hashes of what it gives each parameter as the backward goes. Before the
optimizer moves a weight the model runs once more, on copies, and beside the program's gradients. Where
the bits differ it runs a third time: two of three that agree tell a fault from kernels that are not
deterministic, with which nothing can be audited. Where some audits have agreed before, kernels are
deterministic, and three that differ are a fault that comes and goes.

Needs of torch: torch.func.functional_call, hooks of modules and tensors."""

from __future__ import annotations

import collections
import contextlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from .. import _core
from ..calls.foreign import unhurt
from ..calls.torch_older import accelerator, autocast_dtype, device_module, is_autocast_on, is_compiling
from ..calls.torch_private import tree_flatten, tree_map
from . import watch_rows

PROVEN = 4  # audits that agreed: kernels are deterministic
MOST_UNLIKE = 3  # audits in a row of which all three runs differ: they are so no more
PASSING, COMES_AND_GOES = -1.0, -2.0  # values of site `replay`


def _copy(value: Any) -> Any:
    """A leaf of its own with the same data."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def mark_of(tensor: torch.Tensor) -> Any:
    """The hash of the bits: a number, or on a device a number that is not waited for."""
    tensor = watch_rows.plain(tensor)
    if tensor is None or tensor.is_cpu:
        rows = () if tensor is None else watch_rows.unpacked(_core.sums([tensor]))
        return 0 if not rows or rows[0] is None else rows[0].hash64
    return watch_rows.expression([tensor])[1][0, 3]


def _number(mark: Any) -> int:
    return int(mark) & (1 << 64) - 1


@contextlib.contextmanager
def _random_streams(states: Any) -> Iterator[None]:
    """Inside, random streams go on from `states`; behind, from where they were. None: they are kept."""
    was = _streams()
    try:
        if states is not None:
            _set_streams(states)
        yield
    finally:
        _set_streams(was)


def _device_module() -> Any:
    device = accelerator()
    return device_module(device) if device is not None else None


def _streams() -> tuple[Any, Any, Any, Any]:
    numpy, module = sys.modules.get("numpy"), _device_module()
    own = module.get_rng_state() if hasattr(module, "get_rng_state") else None
    return torch.get_rng_state(), random.getstate(), numpy and numpy.random.get_state(), own


def _set_streams(states: tuple[Any, Any, Any, Any]) -> None:
    here, python, array, own = states
    torch.set_rng_state(here.cpu())
    random.setstate(python)
    if array is not None:
        sys.modules["numpy"].random.set_state(array)
    if own is not None:
        _device_module().set_rng_state(own.cpu())


def _autocast(device: str) -> tuple[str, torch.dtype] | None:
    """What autocast does now, for torch.autocast; None: nothing."""
    return (device, autocast_dtype(device)) if is_autocast_on(device) else None


_Told = collections.namedtuple("_Told", "args kwargs buffers streams autocast out_grads")


_nothing = contextlib.nullcontext


class _MicroBatch:
    """What there is of one to compute it again."""

    def __init__(self, model: torch.nn.Module, args: Any, kwargs: Any, device: str) -> None:
        self.args, self.kwargs = tree_map(_copy, (args, kwargs))
        self.buffers = {name: b.detach().clone() for name, b in model.named_buffers()}
        self.streams, self.autocast = _streams(), _autocast(device)
        self.out_grads: dict[int, torch.Tensor] = {}  # place among the outputs -> gradient
        self.marks: dict[torch.Tensor, Any] = {}  # parameter -> hash of what it was given
        self.n_marks = 0
        self.handles: list[Any] = []
        self.own = self.given = False  # who computes it again: this rank, the next one

    def told(self) -> _Told:
        """What another rank needs, without what belongs to this one."""
        return _Told(self.args, self.kwargs, self.buffers, self.streams, self.autocast, self.out_grads)

    def stop(self) -> None:
        """Nothing more is recorded."""
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()


class Audit:
    """`before_step()` gives (parameter, PASSING or COMES_AND_GOES) of those for which the last audited
    micro-batch was wrong; `off` says why nothing is audited any more. `busy`: hooks of the model run for a second time.
    `neighbours`: who is given one of so many, too (watch_neighbour.py)."""

    def __init__(self, model: Any, every: int, parameters: Iterable[torch.Tensor]) -> None:
        self.model = getattr(model, "module", model) if _is_parallel(model) else model
        self.every, self.parameters = every, [p for p in parameters if p.requires_grad]
        self.device = next((p.device.type for p in self.parameters), "cpu")
        self.n = 0
        self.n_audited = self.n_agreed = self.n_unlike = 0
        self.busy = False
        self.off: str | None = None
        self.batch: _MicroBatch | None = None
        self.neighbours: Any = None
        self.is_due = False
        # within DistributedDataParallel: what it does to buffers before is done then
        self.handles = [
            self.model.register_forward_pre_hook(self._begin, with_kwargs=True),
            self.model.register_forward_hook(self._end),
        ]

    def _begin(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self.busy or is_compiling() or not (module.training and torch.is_grad_enabled()):
            return
        if self.batch is not None:
            self.batch.stop()  # what comes now belongs to another one
        self.n += 1
        self.is_due |= self._is_given()
        if self._is_own() or self._is_given():
            with self._guarded():
                self.batch = _MicroBatch(self.model, args, kwargs, self.device)
                self.batch.own, self.batch.given = self._is_own(), self._is_given()

    def _is_own(self) -> bool:
        return self.every > 0 and self.n % self.every == 0

    def _is_given(self) -> bool:
        return self.neighbours is not None and bool(self.n % self.neighbours.every == 0)

    def _end(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        batch = self.batch
        if self.busy or batch is None or batch.handles or batch.n_marks:
            return
        if not (self._is_own() or self._is_given()):
            return
        with self._guarded():
            for i, out in enumerate(tree_flatten(result)[0]):
                if isinstance(out, torch.Tensor) and out.requires_grad:
                    batch.handles.append(out.register_hook(_keeps(batch, i)))
            for parameter in self.parameters:
                batch.handles.append(parameter.register_hook(_marks(batch, parameter)))

    def before_step(self) -> list[Any]:
        """Computes again what was recorded since the last step. Waits for the device."""
        batch, self.batch = self.batch, None
        wrong: list[Any] = []
        if batch is not None:
            batch.stop()
        # a parameter that was given something twice has no bits of this micro-batch alone
        if batch is not None and (not batch.out_grads or batch.n_marks != len(batch.marks)):
            batch = None
        if batch is not None and batch.own:
            with self._guarded():
                wrong = self._held(batch)
        self._give(batch if batch is not None and batch.given else None)
        return wrong

    def _give(self, batch: _MicroBatch | None) -> None:
        """As many times on each rank: the next one waits for word."""
        is_due, self.is_due = self.is_due, False
        if self.neighbours is None:
            return
        with self.guarded_neighbours():
            if is_due:
                self.neighbours.give(batch)
            self.neighbours.compute()

    def guarded_neighbours(self) -> Any:
        """What goes wrong there ends that alone."""
        return unhurt(lambda error: self.neighbours.end(f"{error or type(error).__name__}".splitlines()[0][:300]))

    def forget(self) -> None:
        """Weights have moved: what was recorded cannot be computed again (an optimizer's closure)."""
        batch, self.batch = self.batch, None
        if batch is not None:
            batch.stop()

    number = staticmethod(lambda tensor: _number(mark_of(tensor)))

    @staticmethod
    def numbers(batch: _MicroBatch) -> dict[torch.Tensor, int]:
        """Parameter -> hash of what a micro-batch gave it."""
        return {p: _number(mark) for p, mark in batch.marks.items()}

    def _held(self, batch: _MicroBatch) -> list[tuple[torch.Tensor, float]]:
        first = self.numbers(batch)
        second = self._again(batch)
        self.n_audited += 1
        if first == second:
            self.n_agreed, self.n_unlike = self.n_agreed + 1, 0
            return []
        third = self._again(batch)
        if third in (first, second):
            self.n_unlike = 0
            return [(p, PASSING) for p in first if first[p] != second.get(p)]
        self.n_unlike += 1
        if self.n_agreed < PROVEN or self.n_unlike >= MOST_UNLIKE:
            self._end_audit(
                "the same micro-batch computed three times has other bits each time: kernels "
                "are not deterministic (torch.use_deterministic_algorithms)"
            )
            return []
        return [(p, COMES_AND_GOES) for p in first if len({first[p], second.get(p), third.get(p)}) > 1]

    def _again(self, batch: _MicroBatch) -> dict[Any, int]:
        return self.computed(batch, {}, [(p, p) for p in batch.marks])

    def computed(
        self, batch: Any, weights: dict[str, torch.Tensor], wanted: Sequence[tuple[Any, torch.Tensor]]
    ) -> dict[Any, int]:
        """Key -> hash of the gradient of each (key, tensor) of `wanted`, of another run on copies;
        `weights`: by name, in place of the model's."""
        self.busy = True
        try:
            args, kwargs = tree_map(_copy, (batch.args, batch.kwargs))
            buffers = {name: b.clone() for name, b in batch.buffers.items()}
            with _random_streams(batch.streams), torch.enable_grad():
                with torch.autocast(batch.autocast[0], dtype=batch.autocast[1]) if batch.autocast else _nothing():
                    result = torch.func.functional_call(self.model, weights | buffers, args, kwargs)
                flat = tree_flatten(result)[0]
                outs = [flat[i] for i in batch.out_grads]
                given = torch.autograd.grad(
                    outs, [tensor for _, tensor in wanted], list(batch.out_grads.values()), allow_unused=True
                )
            return {key: self.number(g) for (key, _), g in zip(wanted, given) if g is not None}
        finally:
            self.busy = False

    def _guarded(self) -> unhurt:
        """What goes wrong here ends the audit alone."""
        return unhurt(lambda error: self._end_audit(f"{error or type(error).__name__}"))

    def _end_audit(self, why: str) -> None:
        self.off = why.splitlines()[0][:300]
        print(f"ulpscope: the watch audits no micro-batch any more: {self.off}", file=sys.stderr)
        self.remove()

    def remove(self) -> None:
        """Takes the hooks out."""
        self.forget()
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()


def _keeps(batch: _MicroBatch, i: int) -> Callable[..., Any]:
    def keep(grad: torch.Tensor) -> None:
        batch.out_grads[i] = grad.detach().clone()

    return keep


def _marks(batch: _MicroBatch, parameter: torch.Tensor) -> Callable[..., Any]:
    def mark(grad: torch.Tensor) -> None:
        batch.n_marks += 1
        batch.marks[parameter] = mark_of(grad)

    return mark


def _is_parallel(model: Any) -> bool:
    return isinstance(model, torch.nn.parallel.DistributedDataParallel)
