# SPDX-License-Identifier: Apache-2.0
"""One call with what is known of it, and runs of it that are wrong on purpose: with an edit of one
of its operators, which `graph` computes, or with an argument that is another. `edits`, `inside`
and `edges` say which are worth a try; `diagnose` whether one explains what a device gave. Needs
of torch: what `graph` needs.
"""

from contextlib import nullcontext

import torch

from ..calls.replay import bind_cast, computed, outputs_of, plain, rebuilt, widened
from ..executors.precision import Source, Widen, cpu_kernel
from .graph import PLAIN, Graph, Recording


class Lab:
    """One call, the graphs of its runs in two precisions."""

    def __init__(self, call, reference):
        self.call, self.reference = call, reference
        self.dtype = torch.float64  # of runs that do not say
        self._graphs = {}  # dtype -> Graph, or None

    # ---- runs ----

    def run(self, change, dtype=None):
        """The call's outputs by path, floats as doubles, on the arguments that `change(args,
        kwargs)` gives instead of its own."""
        dtype = dtype or self.dtype
        found = self._by_inputs(change, dtype)
        if found is not None:
            return found
        source, wide = self.source(), dtype == torch.float64

        def function(*args, **kwargs):
            args, kwargs = change(list(args), dict(kwargs))
            return source.run(*args, **kwargs)

        def held(*args, **kwargs):
            with self.precision(wide):
                return function(*args, **kwargs)

        try:
            return self._outputs(held if source.held else function, wide)
        except Exception:  # one that cannot bear to be held to a precision runs as it is
            if not source.held:
                raise
            return self._outputs(function, wide)

    def _outputs(self, function, wide):
        bound = self.bound(wide)
        return _finished(outputs_of(self.call, bound, bound.run(function)))

    def edited(self, edits, dtype=None, contents=None):
        """The call with other operators at some places, and with other contents of its inputs as
        in `bind_cast`. LookupError where that cannot be told."""
        dtype = dtype or self.dtype
        graph = self.graph(dtype)
        if graph is None:
            raise LookupError("nothing is known of the inside")
        fresh = self.bound(dtype == torch.float64, contents).tensors if graph.written or contents else {}
        return self._of(graph, edits, fresh)

    def _of(self, graph, edits, inputs):
        try:
            return _finished(graph.run(edits, inputs))
        finally:
            if graph.spoilt:
                self._graphs.clear()

    def _by_inputs(self, change, dtype):
        """The outputs where `change` gives some tensors other contents and nothing else; None
        where the call has to be run, or where that costs nothing more."""
        graph = self.graph(dtype) if self.source().held else None
        if graph is None:
            return None
        bound = self.bound(dtype == torch.float64)
        fresh = {path: t._version for path, t in bound.tensors.items()}
        with graph.held:
            args, kwargs = change(list(bound.args), dict(bound.kwargs))
        written = {p: t.detach() for p, t in bound.tensors.items() if t._version != fresh[p]}
        inputs = changed_inputs((bound.args, bound.kwargs), (args, kwargs), bound.tensors, written)
        if inputs is None:
            return None
        try:
            return self._of(graph, {}, bound.tensors | inputs if graph.written else inputs)
        except LookupError:
            return None

    # ---- what is run ----

    def bound(self, wide, contents=None):
        """The call's arguments in float64, or in float32."""
        return bind_cast(self.call, self.reference.parts, widened if wide else computed, contents)

    def source(self):
        """What the truth was computed from."""
        if self.call.composite:
            return Source(self.call.function, held=True)
        chosen = self.reference._chosen.get(widened)
        return chosen or Source(cpu_kernel(self.call), held=True)

    def precision(self, wide):
        """The mode that keeps a run in one precision."""
        whole = any(p.dtype == torch.float64 for p in self.reference.parts.values())
        return Widen(torch.float64 if wide or whole else torch.float32)

    def nodes(self):
        """Every operator inside the call, in the order of their calls, compound ones before what
        they consist of; empty where the call cannot be looked into."""
        graph = self.graph(torch.float64)
        return graph.nodes if graph else []

    def graph(self, dtype):
        """The run in one precision as it was recorded, None where it cannot be."""
        if dtype not in self._graphs:
            try:
                self._graphs[dtype] = self._recorded(dtype == torch.float64)
            except Exception:  # whatever a call does not bear
                self._graphs[dtype] = None
        return self._graphs[dtype]

    def _recorded(self, wide):
        source, bound = self.source(), self.bound(wide)
        held = self.precision(wide) if source.held else None
        recording = Recording(bound.tensors, narrow=held.wider if held else ())

        def function(*args, **kwargs):
            with held or nullcontext(), recording:
                return source.run(*args, **kwargs)

        result = bound.run(function)
        return Graph(recording, outputs_of(self.call, bound, result), held)


def _finished(outputs):
    return {p: doubles(plain(t)) for p, t in outputs.items()}


def doubles(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


def changed_inputs(before, after, tensors, written):
    """
    Which inputs, by path, a change of arguments has given other contents; None where it changed
    anything else.

    Shapes: `before` and `after` are (args, kwargs); `tensors` the inputs by path, as in `before`,
    `written` those of them that were written.
    """
    paths = {id(t): path for path, t in tensors.items()}
    found = dict(written)

    def same(a, b):
        if isinstance(a, torch.Tensor):
            return _replaced(a, b, paths, found)
        if isinstance(a, (list, tuple)):
            return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
        if isinstance(a, dict):
            return type(a) is type(b) and a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
        return a is b or (type(a) is type(b) and isinstance(a, (bool, int, float, str)) and a == b)

    return found if same(list(before), list(after)) else None


def _replaced(a, b, paths, found):
    if a is b:
        return True
    if type(b) not in PLAIN or id(a) not in paths:
        return False
    if (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
        return False
    found[paths[id(a)]] = b.detach()
    return True


# ---- arguments of the call -----------------------------------------------------------


def leaves(call):
    """(path, name, value) of every argument leaf; tensors as their View."""
    found = []

    def walk(value, path, name):
        stands = getattr(value, "path", None)
        if stands is not None and stands in call.views:
            found.append((stands, name, call.views[stands]))
        elif isinstance(value, dict):
            for k, v in value.items():
                walk(v, f"{path}.{k}", str(k))
        elif isinstance(value, (list, tuple)) and value and not _sizes(value):
            for i, v in enumerate(value):
                walk(v, f"{path}[{i}]", name)
        else:
            found.append((path, name, value))

    names = names_of(call)
    for i, a in enumerate(call.args):
        walk(a, f"args[{i}]", names[i])
    for k, v in call.kwargs.items():
        walk(v, f"kwargs.{k}", k)
    return found


def _sizes(value):
    return all(isinstance(v, int) and not isinstance(v, bool) for v in value)


def names_of(call):
    """Names of the positional arguments, "" where they are unknown."""
    if call.schema:
        names = [a.name for a in call.schema.arguments]
    else:
        from ..calls.callable import parameter_names

        schema = getattr(call.function, "_schema", None)
        names = (
            [a.name for a in schema.arguments] if schema is not None
            else parameter_names(call.function, len(call.args))
        )  # fmt: skip
        head = len(call.args) - len(names)
        names = [""] * max(head, 0) + names
    return (names + [""] * len(call.args))[: len(call.args)]


def changer(paths, change, written=()):
    """A `change` for Lab.run that replaces the leaves at `paths` by `change(leaf)`; a tensor
    that the call writes is overwritten, so that it stays the same tensor."""
    paths = set(paths)

    def leaf(value, path):
        if path in paths:
            new = change(value)
            if path in written and isinstance(value, torch.Tensor):
                with torch.no_grad():
                    value.copy_(new)
                return value
            if isinstance(value, torch.Tensor) and value.requires_grad:
                new = new.detach().requires_grad_()
            return new
        if isinstance(value, dict):
            return rebuilt(value, lambda k, v: leaf(v, f"{path}.{k}"))
        if isinstance(value, (list, tuple)):
            return rebuilt(value, lambda i, v: leaf(v, f"{path}[{i}]"))
        return value

    def apply(args, kwargs):
        return ([leaf(a, f"args[{i}]") for i, a in enumerate(args)],
                {k: leaf(v, f"kwargs.{k}") for k, v in kwargs.items()})  # fmt: skip

    return apply
