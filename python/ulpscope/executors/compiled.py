# SPDX-License-Identifier: Apache-2.0
"""A device under test behind torch.compile: what a compiler generates for each call, on a
device that torch knows by name. Knows nothing of references and verdicts."""

from __future__ import annotations

import operator
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ..calls.foreign import theirs
from ..calls.mounts import runs_nothing, way_on
from ..calls.nested import substitute
from ..calls.replay import Bound, Call, Unsupported, base_name, is_write
from ..calls.torch_private import (
    generated_kernels,
    in_this_process_only,
    inductor_serves,
    known_backends,
    lookup_backend,
    refused_by_compiler,
    unknown_backend,
)
from . import via as runtimes
from .device import TorchDevice, UnknownDevice

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@dataclass
class Compiled:
    """What torch.compile made of one signature."""

    function: object = None  # called with the distinct tensors of `places`
    places: list = field(default_factory=list)
    graphs: int = 0  # how often the compiler was asked
    kernels: int = 0  # what inductor generated
    refused: str = ""  # why it does not compile
    ran: bool = False
    handed: list = field(default_factory=list)  # what went to a runtime


def compiler_of(via: str, device: str, gradients: bool = False) -> Any:
    """A backend of torch.compile, or a runtime that stands for one. UnknownDevice where there is none of that name."""
    if runtimes.is_known(via):
        try:
            return runtimes.backend(via, device, gradients)
        except runtimes.NotOffered as problem:
            raise UnknownDevice(f"{problem}") from None
    try:
        return lookup_backend(via)
    except unknown_backend():
        known = ", ".join(sorted({*known_backends(), *runtimes.names()}))
        raise UnknownDevice(
            f"torch.compile has no backend {via}; known here: {known}; what registers it can be named with --import"
        ) from None


def compiled_callable(
    function: Callable[..., Any], via: str, device: str = "cpu", gradients: bool = False, twice: bool = False
) -> Callable[..., Any]:
    """What a compiler or a runtime makes of a function as a whole; Unsupported where that takes but a part of it. By
    `triton` the function itself, whose kernels Triton's interpreter runs. UnknownDevice as `compiler_of`."""
    if via == "triton":
        try:
            return runtimes.interpreted(function, gradients, twice)
        except runtimes.NotOffered as problem:
            raise UnknownDevice(f"{problem}") from None
    compiler, seen = compiler_of(via, device, gradients or twice), []

    def noting(module, inputs):
        seen.extend(node for node in module.graph.nodes if node.op.startswith("call_"))
        return compiler(module, inputs)

    made = torch.compile(function, backend=noting, fullgraph=True, dynamic=False)

    def run(*args, **kwargs):
        try:
            result = theirs(made, *args, **kwargs)
        except refused_by_compiler() as problem:
            raise Unsupported(f"{via} does not compile it: {first_line(problem)}") from None
        if not seen:
            raise Unsupported(f"{via} is handed nothing of it: it runs no operator that torch.compile sees")
        return result

    run.__name__ = getattr(function, "__name__", type(function).__name__)
    return run


class CompiledDevice(TorchDevice):
    """A torch device whose calls go through a compiler, once per signature. Not the device
    that captured a trace, whatever its type: the captured run was not compiled.

    `mark(phase)` is told "compiling" before a signature is met for the first time, "device"
    after. UnknownDevice for a compiler that torch does not know.
    """

    def __init__(self, name, via, home="cpu", mark=lambda phase: None):
        super().__init__(name, home)
        if via == "inductor" and not inductor_serves(self.type):
            raise UnknownDevice(
                f"inductor generates no code for {self.type}; --via aot_eager has "
                "torch.compile trace calls, and runs the device's own kernels"
            )
        self.type, self.via, self.mark = via, via, mark
        self.made = {}  # signature -> Compiled
        # One worker is one process: its compiler must not leave others behind when killed.
        in_this_process_only()
        self.compiler = compiler_of(via, self.name)
        self.taps = runtimes.taps(via)

    def compute(self, call: Call, bound: Bound) -> Any:
        key = signature(call)
        if key not in self.made:
            self.made[key] = self._build(call)
        made = self.made[key]
        if made.refused:
            raise Unsupported(made.refused)
        if not made.ran:
            return self._first_run(made, bound)
        return self._compiled(made, bound)

    def notes(self, call: Call) -> list[str]:
        made = self.made[signature(call)]
        own = "the CPU's own kernel" if self.name == "cpu" else "the device's own kernel"
        if not made.graphs:
            return [f"torch.compile leaves it to {own}"]
        if self.via == "inductor" and not made.kernels:
            return [f"inductor falls back to {own}"]
        return list(dict.fromkeys(handed.note for handed in made.handed if handed.note))

    def _compiled(self, made, bound):
        tensors = [bound.tensors[path] for path in made.places]
        with torch.set_grad_enabled(bound.grad):
            return theirs(made.function, *tensors)

    def _first_run(self, made, bound):
        """Compiles and runs, counting the kernels."""
        before = generated_kernels()
        self.mark("compiling")
        try:
            result = self._compiled(made, bound)
        except refused_by_compiler() as problem:
            made.refused = f"{self.via} does not compile it: {first_line(problem)}"
            raise Unsupported(made.refused) from None
        except Unsupported as problem:  # of a runtime
            made.refused = f"{problem}"
            raise
        finally:
            self.mark("device")
        made.kernels, made.ran = generated_kernels() - before, True
        return result

    def _build(self, call):
        """The call as a function of its tensors, everything else a constant. A graph of its
        own, since torch.compile tells functions apart by their code."""
        made, seen, graph, nodes = Compiled(), {}, torch.fx.Graph(), {}
        for path, view in call.views.items():
            same = (view.storage, view.dtype, view.sizes, view.strides, view.offset, view.form)
            if same not in seen:
                seen[same] = graph.placeholder(f"t{len(seen)}")
                made.places.append(path)
            nodes[path] = seen[same]
        graph.output(self._added(graph, call, nodes))

        def compiler(module, inputs):
            made.graphs += 1
            run = self.compiler(module, inputs)
            if hasattr(run, "note"):
                made.handed.append(run)
            return run

        forward = torch.fx.GraphModule(torch.nn.Module(), graph).forward
        made.function = torch.compile(forward, backend=compiler, dynamic=False)
        return made

    def _added(self, graph, call, nodes):
        """What the call gives, as nodes of a graph: many of them for a module."""
        if hasattr(call, "replay"):
            return call.replay([nodes[path] for path in call.views], self.place, graph.call_function)
        args = [substitute(a, nodes, None, self.place) for a in call.args]
        kwargs = {k: substitute(a, nodes, None, self.place) for k, a in call.kwargs.items()}
        kwargs |= self.defaults(call)
        form = without_writes(call)
        if form is None:
            return graph.call_function(call.on(self.place), tuple(args), kwargs)
        results = graph.call_function(form, tuple(args), kwargs)
        written = [v for v, a in zip(args, call.schema.arguments) if is_write(a)]
        for i, tensors in enumerate(written):
            part = graph.call_function(operator.getitem, (results, i))
            for j, tensor in enumerate(tensors):
                value = graph.call_function(operator.getitem, (part, j))
                graph.call_function(torch.ops.aten.copy_.default, (tensor, value))
        return ()


def without_writes(call: Call) -> Callable[..., Any] | None:
    """The form of an operator on lists that returns what this one writes, where torch.compile
    does not make it that form itself: it takes an empty list among those that are written
    (a fused step without amsgrad) for a tensor that it does not know. Else None."""
    declared = call.schema.arguments if call.schema else ()
    lists = [value for value, a in zip(call.args, declared) if is_write(a)]
    if [] not in lists or not all(isinstance(a, list) for a in lists):
        return None
    packet = getattr(torch.ops.aten, base_name(call.op)[1].removesuffix("_"), None)
    return getattr(packet, call.schema.overload_name or "default", None)


def signature(call: Call) -> tuple[Any, ...]:
    """What one compilation serves: the function, everything about its tensors but their
    contents, which of them share memory, and its other arguments."""
    storages = list(dict.fromkeys(v.storage for v in call.views.values()))
    views = tuple(
        (p, storages.index(v.storage), v.dtype, v.sizes, v.strides, v.offset, v.form, v.device, v.requires_grad)
        for p, v in call.views.items()
    )
    return call.identity, views, repr(call.args), repr(call.kwargs)


def first_line(problem: BaseException) -> str:
    """The first line of what a compiler raised, without the frames of dynamo around it."""
    problem = getattr(problem, "inner_exception", None) or problem
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    closed = re.search(r"(/\S+)/[^/\s]+: failed to map segment from shared object", lines[0] if lines else "")
    if closed and os.path.isdir(closed[1]) and runs_nothing(closed[1]):
        return way_on(closed[1], "TORCHINDUCTOR_CACHE_DIR")
    return lines[0][:200] if lines else type(problem).__name__
