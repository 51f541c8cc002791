# SPDX-License-Identifier: Apache-2.0
"""Where faults are put into a training, and which: `Plant` hands the tensors of each site to the injector
(ulpscope/x/inject.h), `trials` draws a schedule of one fault for each trial.

| site | what is harmed |
|---|---|
| batch, forward, activation | a batch, the result of a matmul or convolution, of anything else |
| dgrad, wgrad | what a matmul's backward gives to the layer before it, and to its own weight |
| grad | a gradient in memory: before the reduction, and before the watch reads it |
| sent | over ranks: what goes into the reduction, after the watch has read it |
| received | over ranks: what came out of the reduction, on one rank |
| gathered | FSDP2: a weight that was gathered, on one rank |
| update | what the optimizer wrote |
| weight, moment1, moment2, buffer | memory between two steps |
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from ulpscope import _core

from .work import Training, local

MATMULS = (nn.Linear, nn.Conv2d)
OTHERS = (nn.LayerNorm, nn.BatchNorm2d, nn.Tanh, nn.ReLU, nn.GELU)
MOMENTS = {"moment1": "exp_avg", "moment2": "exp_avg_sq"}
PRODUCTS = ("Addmm", "Mm", "Bmm", "Linear", "Convolution")

#: Bits of an element by field, first and last.
FIELDS = {
    "float32": {"sign": (31, 31), "exp hi": (27, 30), "exp lo": (23, 26), "man hi": (12, 22), "man lo": (0, 11)},
    "bfloat16": {"sign": (15, 15), "exp hi": (11, 14), "exp lo": (7, 10), "man hi": (4, 6), "man lo": (0, 3)},
}
COMPUTED = ("forward", "activation", "dgrad", "wgrad", "grad")  # where a flip is F1; elsewhere, in memory, F10
REDUCED = ("sent", "received")


def in_memory_order(t: torch.Tensor) -> torch.Tensor:
    """The same memory with axes in the order in which they lie there."""
    return t.permute(sorted(range(t.ndim), key=lambda d: -t.stride(d)))


def products(out: torch.Tensor) -> Iterator[object]:
    """The node of autograd that multiplied for this result, behind its views."""
    node = out.grad_fn
    for _ in range(4):
        if node is None or any(word in node.name() for word in PRODUCTS):
            break
        node = node.next_functions[0][0] if node.next_functions else None
    if node is not None:
        yield node


class Plant:
    """Hands what is at each site to an injector. It is made before the watch is, so that its hooks come
    first; `after_watch` adds those that come behind the watch's."""

    def __init__(self, training: Training) -> None:
        self.t = training
        self.injector = _core.Injector("", 0)
        self.passing = True  # the fault is over when something is computed again
        self.again: Callable[[], bool] = lambda: False  # whether an audit computes something again just now
        self.names = {p: n for n, p in training.net.named_parameters()}
        for name, module in training.net.named_modules():
            if isinstance(module, MATMULS):
                module.register_forward_hook(self._after_matmul(name))
                if training.kind == "fsdp2":
                    module.register_forward_pre_hook(self._gathered(name))
            elif isinstance(module, OTHERS):
                module.register_forward_hook(self._after_other(name))
        self._each_gradient("grad")
        training.optimizer.register_step_post_hook(lambda *_: self._weights("update"))

    def schedule(self, line: str, seed: int) -> None:
        """From now on this fault; "" is none."""
        self.injector = _core.Injector(line, seed)
        self.passing = '"steps": -1' not in line

    def first_step(self) -> int | None:
        """The step at which the first element was changed; None: none yet."""
        done = self.injector.done()
        return done[0]["step"] if done else None

    def put(self, tensor: torch.Tensor, site: str, name: str) -> None:
        if self.passing and self.again():
            return
        if self.injector.due(self.t.step, self.t.rank, site, name):
            self.injector.apply(in_memory_order(tensor.detach()), self.t.step, self.t.rank, site, name)

    def _after_other(self, name: str) -> Callable[..., None]:
        return lambda module, args, out: self.put(out, "activation", name)

    def _after_matmul(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: object, out: torch.Tensor) -> None:
            self.put(out, "forward", name)
            here = self.t.step, self.t.rank
            if self.injector.due(*here, "dgrad", name) or self.injector.due(*here, "wgrad", name):
                for node in products(out):
                    at = partial(self._backward, weight=module.weight, name=name)
                    node.register_hook(lambda given, _, at=at: at(given))  # type: ignore[attr-defined]

        return hook

    def _backward(
        self, given: tuple[torch.Tensor | None, ...], weight: torch.Tensor, name: str
    ) -> tuple[torch.Tensor | None, ...]:
        """The weight's gradient has its number of elements and its axes; a vector is the bias's."""
        of_weight = {tuple(weight.shape), tuple(weight.T.shape) if weight.ndim == 2 else ()}
        results = [None if g is None else g.clone() for g in given]
        for g in results:
            if g is not None and g.ndim > 1:
                self.put(g, "wgrad" if tuple(g.shape) in of_weight else "dgrad", name)
        return tuple(results)

    def _gathered(self, name: str) -> Callable[..., None]:
        return lambda module, args: self.put(local(module.weight), "gathered", name + ".weight")

    def _each_gradient(self, site: str) -> None:
        if self.t.kind != "fsdp2":
            for p, name in self.names.items():
                p.register_post_accumulate_grad_hook(lambda p, name=name: self.put(p.grad, site, name))

    def after_watch(self) -> None:
        if self.t.kind == "ddp":
            self._each_gradient("sent")
        for name, module in self.t.net.named_modules() if self.t.kind == "fsdp2" else ():
            if any(True for _ in module.parameters(recurse=False)):
                module.register_forward_pre_hook(self._each_whole_gradient(name))

    def _each_whole_gradient(self, of: str) -> Callable[..., None]:
        """FSDP2's gathered parameters are there from the first forward on."""
        hooked: set[int] = set()

        def hook(module: nn.Module, args: object) -> None:
            for name, p in module.named_parameters(recurse=False):
                if id(p) not in hooked and p.requires_grad and not hasattr(p, "to_local"):
                    hooked.add(id(p))
                    p.register_post_accumulate_grad_hook(lambda p, name=f"{of}.{name}": self.put(p.grad, "sent", name))

        return hook

    def received(self) -> None:
        for p, name in self.names_now():
            if p.grad is not None:
                self.put(local(p.grad), "received", name)

    def names_now(self) -> Iterator[tuple[torch.Tensor, str]]:
        for name, p in self.t.net.named_parameters():
            yield p, name

    def _weights(self, site: str) -> None:
        for p, name in self.names_now():
            self.put(local(p), site, name)

    def memory(self) -> None:
        """Between two steps."""
        self._weights("weight")
        for p, name in self.names_now():
            for site, key in MOMENTS.items():
                if key in self.t.optimizer.state.get(p, {}):
                    self.put(local(self.t.optimizer.state[p][key]), site, name)
        for name, b in self.t.net.named_buffers():
            if b.is_floating_point():
                self.put(b, "buffer", name)

    def batch(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        if not batch[0].is_floating_point() or not self.injector.due(self.t.step, self.t.rank, "batch", "x"):
            return batch
        harmed = batch[0].clone()
        self.put(harmed, "batch", "x")
        return harmed, batch[1]


@dataclasses.dataclass(frozen=True)
class Trial:
    """One fault: `line` is the schedule that plants it, at `seed`."""

    work: str
    dtype: str
    kind: str
    world: int
    code: str
    site: str
    field: str  # of a single flip; "" of others
    name: str
    rank: int
    seed: int
    line: str


def names_of(training: Training, site: str) -> list[str]:
    """Tensors or modules that a site has."""
    net = training.net
    if site in ("forward", "dgrad", "wgrad"):
        found = [n for n, m in net.named_modules() if isinstance(m, MATMULS)]
        first = site == "dgrad" and not any(isinstance(m, nn.Embedding) for m in net.modules())
        return found[1:] if first else found  # the batch needs no gradient
    if site == "activation":
        return [n for n, m in net.named_modules() if isinstance(m, OTHERS)]
    if site == "gathered":
        return [n + ".weight" for n, m in net.named_modules() if isinstance(m, MATMULS)]
    if site == "buffer":
        return [n for n, b in net.named_buffers() if b.is_floating_point()]
    if site == "batch":
        return ["x"] if training.batch(0)[0].is_floating_point() else []
    return [n for n, p in net.named_parameters() if p.ndim > 1]


def sites_of(training: Training) -> list[str]:
    over_ranks = {"": (), "ddp": REDUCED, "fsdp2": ("sent", "received", "gathered")}[training.kind]
    sites = [
        "batch",
        "forward",
        "activation",
        "dgrad",
        "wgrad",
        "grad",
        *over_ranks,
        "update",
        "weight",
        "moment1",
        "moment2",
        "buffer",
    ]
    if training.kind == "fsdp2":
        sites.remove("grad")  # wgrad is all that there is before the reduction
    return [s for s in sites if names_of(training, s)]


def other_faults(site: str, dtype: str, r: random.Random) -> Iterator[tuple[str, dict[str, object]]]:
    """All that is not the flip of one bit, of which this site can have it."""
    man = {"float32": 23, "bfloat16": 7}[dtype]
    all_of_it = {"element": 0, "count": -1}
    if site in (*COMPUTED, *REDUCED, "weight"):
        yield "F2", {"fault": "mask", "bits": r.randint(2, 8)}
        yield "F3", {"fault": "carry", "bit": r.randrange(man), "value": r.randint(0, 1)}
        yield "F4", {"fault": "mask", "bits": 2, "every": r.choice((8, 16, 32)), "count": 8}
    if site in COMPUTED:
        stuck = {"bit": r.randrange(man - 2, man + 6), "value": r.randint(0, 1)}
        yield "F5", {"fault": "stuck", "steps": -1, "element": r.randrange(8), "every": 16, "count": -1} | stuck
        yield "F6", {"fault": "flip", "steps": -1, "p": 0.3}
    if site in (*COMPUTED, "update"):
        yield "F7", {"fault": "scale", "factor": 1 + 1e-6, "growth": 1.6, "steps": -1} | all_of_it
        yield "F7", {"fault": "scale", "factor": 1.01, "steps": -1} | all_of_it
    if site in REDUCED:
        for what in ({"fault": "zero"}, {"fault": "scale", "factor": 2}, {"fault": "stale"}, {"fault": "narrow"}):
            if what["fault"] != "narrow" or dtype == "float32":
                yield "F8", what | all_of_it
        yield "F8", {"fault": "zero", "element": -8, "count": -1}  # a tail that was not reduced
    if site in ("batch", "forward", "grad", "sent", "received", "gathered", "update", "weight"):
        yield "F9", {"fault": "zero", "element": 0, "count": 64}
        yield "F9", {"fault": "shift", "shift": 8} | all_of_it
        yield "F9", {"fault": "swap"} | all_of_it


def trials(training: Training, world: int, seed: int, repeats: int, first: int) -> list[Trial]:
    """What is tried on a training: each fault at a step from `first` + 2 to `first` + 5."""
    r = random.Random(f"{training.work} {training.dtype} {training.kind} {world} {seed}")
    found = []
    for site in sites_of(training):
        names = names_of(training, site)
        plans: list[tuple[str, str, dict[str, object]]] = []
        for field, (low, high) in FIELDS[training.dtype].items():
            if site != "batch":
                plans += [
                    (
                        "F1" if site in (*COMPUTED, *REDUCED, "gathered", "update") else "F10",
                        field,
                        {"fault": "flip", "bit": r.randint(low, high)},
                    )
                    for _ in range(repeats)
                ]
        if site == "batch":
            plans = [("F10", "", {"fault": "flip"}) for _ in range(repeats)]
        for _ in range(max(1, repeats // 2)):
            plans += [(code, "", what) for code, what in other_faults(site, training.dtype, r)]
        for code, field, what in plans:
            rank, name = r.randrange(world), r.choice(names)
            line = {"step": first + r.randint(2, 5), "rank": rank, "site": site, "name": name} | what
            found.append(
                Trial(
                    training.work,
                    training.dtype,
                    training.kind,
                    world,
                    code,
                    site,
                    field,
                    name,
                    rank,
                    r.randrange(1 << 30),
                    json.dumps(line),
                )
            )
    return found
