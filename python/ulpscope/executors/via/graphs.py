# SPDX-License-Identifier: Apache-2.0
"""A graph of torch.compile as a runtime gets it: without writes, without what it does not use. What it writes is
written behind the run, what it only hands through does not travel.

Needs of torch: make_fx, functionalize, the core decompositions."""

from __future__ import annotations

import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ...calls.foreign import MISTAKES, foreign, theirs
from ...calls.replay import Unsupported
from ...calls.torch_private import core_decompositions
from ...calls.verdicts import clause

if TYPE_CHECKING:
    from typing import Any


# Where in a runtime's own sources a text arose, which tells a user nothing.
PLACES = re.compile(r"Check '.*?' failed at \S+?:\d+:|FrontEnd API failed with \w+:|Diagnostics:|<stdin>:\d+:\d+:")
LOW = (torch.bfloat16, torch.float16)
REFUSES = (RuntimeError, TypeError, ValueError)  # which a device may raise


@dataclass
class Wired:
    """A graph, and how the tensors of the original one are wired to it."""

    graph: object
    takes: list  # places of the arguments that it is given
    gives: list = field(default_factory=list)  # per result of the original: ("arg", i), ("result", i), or None
    writes: list = field(default_factory=list)  # (argument, result)
    results: int = 0

    def plain(self, arguments: Any) -> Any:
        """Whether the original takes and gives the same, and writes nothing."""
        return (
            not self.writes
            and self.takes == list(range(arguments))
            and self.gives == [("result", i) for i in range(self.results)]
        )


def wired(module: Any, args: Any, apart: Any) -> Any:
    """The graph without writes, with operators taken apart by these decompositions."""
    function = torch.func.functionalize(lambda *given: module(*given), remove="mutations")
    graph = make_fx(function, apart, "fake")(*args)
    without_other_names(graph.graph)
    nodes = list(graph.graph.nodes)
    given = [n for n in nodes if n.op == "placeholder"]
    (end,) = (n for n in nodes if n.op == "output")
    wants = list(end.args[0]) if isinstance(end.args[0], (list, tuple)) else [end.args[0]]
    made = Wired(graph, [])
    asked = {}  # node -> its place among the results

    def place(node):
        return asked.setdefault(node, len(asked))

    written = [n for n in nodes if n.target is torch.ops.aten.copy_.default and n.args[0] in given]
    wants = [n.args[1] if n in written else n for n in wants]
    for node in wants:
        made.gives.append(
            None if node is None else ("arg", given.index(node)) if node in given else ("result", place(node))
        )
    for node in written:
        value = node.args[1]
        if value in given:  # of another argument: a result of its own
            with graph.graph.inserting_before(end):
                value = graph.graph.call_function(torch.ops.aten.clone.default, (value,))
                value.meta["val"] = node.args[1].meta["val"]
        made.writes.append((given.index(node.args[0]), place(value)))
    with graph.graph.inserting_before(end):
        graph.graph.output(tuple(asked))
    graph.graph.erase_node(end)
    for node in written:
        graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    for i, node in enumerate(given):
        if node.users:
            made.takes.append(i)
        else:
            graph.graph.erase_node(node)
    made.results = len(asked)
    graph.recompile()
    return made


def without_other_names(graph: torch.fx.Graph) -> None:
    """Takes out what only gives a value another name: nothing is written here, and of two results that are one no
    front end knows what to make."""
    for node in graph.nodes:
        if node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            node.replace_all_uses_with(node.args[0])


def as_front_ends_know(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Attention as a model calls it in the place of the CPU's kernel, which front ends take apart by torch's table; by
    that its second result is the weights, where the kernel gives the logsumexp, and the first lies otherwise, so that a
    `view`, which a trace has of it, does not go: a reshape gives the same numbers."""
    aten = torch.ops.aten
    calls = [n for n in graph.graph.nodes if n.op == "call_function"]
    flash = getattr(getattr(aten, "_scaled_dot_product_flash_attention_for_cpu", None), "default", None)
    for node in calls:
        if node.target in (aten.view.default, aten._unsafe_view.default) and len(calls) > 1:
            node.target = aten.reshape.default
        elif node.target is flash is not None:
            _attention_as_called(graph.graph, node)
    graph.recompile()
    return graph


def _attention_as_called(graph, node):
    aten, add = torch.ops.aten, lambda target, *args, **kwargs: graph.call_function(target, args, kwargs)
    given = dict(zip(("query", "key", "value", "dropout_p", "is_causal"), node.args)) | node.kwargs
    q, k, v, mask = given["query"], given["key"], given["value"], given.get("attn_mask")
    causal, scale = given.get("is_causal", False), given.get("scale")
    of_q, of_k, of_mask = _known_of(q), _known_of(k), mask and _known_of(mask)
    several = of_q.shape[1] != of_k.shape[1]  # heads of the query to each of the keys
    users = list(node.users)
    with graph.inserting_before(node):
        how = {"scale": scale} | ({"enable_gqa": True} if several else {})
        parts = [add(aten.scaled_dot_product_attention.default, q, k, v, mask, 0.0, causal, **how)]
        if any(user.args[1] and user.users for user in users):
            if several:
                k = add(aten.repeat_interleave.self_int, k, of_q.shape[1] // of_k.shape[1], 1)
            if of_q.dtype in LOW:
                q, k = (add(aten._to_copy.default, t, dtype=torch.float32) for t in (q, k))
            scores = add(aten.matmul.default, q, add(aten.transpose.int, k, -2, -1))
            scores = add(aten.mul.Scalar, scores, of_q.shape[-1] ** -0.5 if scale is None else scale)
            if causal:
                sizes = [of_q.shape[-2], of_k.shape[-2]]
                ones = add(aten.ones.default, sizes, dtype=torch.bool, device=torch.device("cpu"))
                scores = add(aten.masked_fill.Scalar, scores, add(aten.triu.default, ones, 1), float("-inf"))
            elif mask is not None and of_mask.dtype is torch.bool:
                scores = add(aten.masked_fill.Scalar, scores, add(aten.logical_not.default, mask), float("-inf"))
            elif mask is not None:
                scores = add(aten.add.Tensor, scores, mask)
            parts.append(add(aten.logsumexp.default, scores, [-1]))
    for user in users:
        if user.users:
            user.replace_all_uses_with(parts[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)


def _known_of(node):
    """The tensor that stands for a value, by whoever made the graph."""
    return node.meta.get("val", node.meta.get("example_value"))


def norms_as_called(graph: torch.fx.GraphModule) -> None:
    """Puts what a model calls in the place of a kernel that gives statistics as well, which are computed beside it:
    front ends know `layer_norm`, and traces hold `native_layer_norm`."""
    aten = torch.ops.aten
    for node in list(graph.graph.nodes):
        if node.target is not aten.native_layer_norm.default:
            continue
        x, shape, weight, bias, eps = node.args
        axes = list(range(-len(shape), 0))
        with graph.graph.inserting_before(node):
            add = graph.graph.call_function
            parts = [add(aten.layer_norm.default, (x, shape, weight, bias, eps))]
            if any(user.args[1] for user in node.users):
                variance = add(aten.var.correction, (x, axes), {"correction": 0, "keepdim": True})
                inverse = add(aten.rsqrt.default, (add(aten.add.Tensor, (variance, eps)),))
                parts += [add(aten.mean.dim, (x, axes, True)), inverse]
        for user in list(node.users):
            user.replace_all_uses_with(parts[user.args[1]])
    graph.graph.eliminate_dead_code()
    graph.recompile()


class HandedOn:
    """A graph that is handed on to a runtime when it first runs: by then its inputs are tensors with numbers. One that
    is run `below` autograd is handed on by a thread of its own, for torch.export needs what is shut off there."""

    def __init__(self, runtime, module, below=False):
        self.runtime, self.module, self.wiring, self.run = runtime, module, None, None
        self.below = below
        self.note = ""  # on how it is computed

    def __call__(self, *args):
        if self.wiring is None and self.below:
            with ThreadPoolExecutor(1) as alone:
                alone.submit(self._make, args).result()
        elif self.wiring is None:
            self._make(args)
        results = self._results([args[i] for i in self.wiring.takes])
        for argument, result in self.wiring.writes:
            args[argument].copy_(results[result])
        sources = {"arg": args, "result": results}
        return [None if at is None else sources[at[0]][at[1]] for at in self.wiring.gives]

    def _make(self, args):
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of exporters
            self._handed(args)

    def _handed(self, args):
        """As the model calls its operators, and where the runtime lacks one, taken apart as torch does it."""
        name, core = self.runtime.name, self.runtime.core
        as_front_ends_know(self.module)
        wiring = wired(self.module, args, core_decompositions() if core else {})
        if not core and wiring.plain(len(args)):
            wiring.graph = self.module  # as torch.compile found it
        try:
            self.run = self._compiled(wiring, args)
        except Exception as problem:  # each has its own kinds
            foreign(problem)
            refused = Unsupported(f"{name} does not support it: {said(problem)}")
            refused.raised = type(problem).__name__
            try:
                wiring = wired(self.module, args, core_decompositions())
                norms_as_called(wiring.graph)
                self.run = self._compiled(wiring, args)
            except Exception as again:
                foreign(again)
                raise refused from None
            self.note = f"{name} is given what torch takes it apart into: {said(problem)}"
        self.wiring = wiring

    def _compiled(self, wiring, args):
        if not wiring.results:
            return None
        graph = wiring.graph if self.runtime.core else as_front_ends_know(wiring.graph)
        return theirs(self.runtime.compile, graph.eval(), [args[i] for i in wiring.takes])

    def _results(self, given):
        if not self.wiring.results:
            return []
        try:
            results = list(theirs(self.run, *given))
        except REFUSES:
            raise
        except Exception as problem:
            foreign(problem)
            raise RuntimeError(f"{self.runtime.name}: {said(problem)}") from None
        if len(results) != self.wiring.results:
            raise RuntimeError(f"{self.runtime.name} gives {len(results)} results where {self.wiring.results} are due")
        return results


def said(problem: Any) -> Any:
    """What a runtime says, on one line; the kind of a mistake of Python, whose text alone tells nothing."""
    text = " ".join(PLACES.sub("", f"{problem}").split())
    own_words = not isinstance(problem, MISTAKES) or isinstance(problem, ValueError)
    return clause(text if own_words and text else f"{type(problem).__name__}: {text}")
