# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the torch functions that a callable calls, as its author wrote them: another
number or flag, an optional tensor ignored, another function. Unlike an edit of the operators
inside, such a mistake reaches the gradient that autograd derives from the function. Each is
(text, run). Neighbours: `inside` (operators inside), `diagnose` (chooses).
"""

import inspect
from contextlib import suppress

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .edits import other_values, phrase
from .neighbours import formulas, relatives
from .variants import variant_edits
from .windows import LISTS, fitted, kind_of, window_edits

MOST_CALLS = 24
UNKNOWN_DEFAULT = inspect.Parameter.empty
NUMBERS = (bool, int, float, str)


class Written(TorchFunctionMode):
    """Runs a callable as it is but for the calls in `edits`, a dict counter -> function(func,
    args, kwargs). With `calls`, a list, it notes (func, args, kwargs, shape of the result)."""

    def __init__(self, edits=None, calls=None):
        super().__init__()
        self.edits, self.calls, self.counter = edits or {}, calls, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        me, self.counter = self.counter, self.counter + 1
        edit = self.edits.get(me)
        out = func(*args, **kwargs) if edit is None else edit(func, args, kwargs)
        if self.calls is not None:
            self.calls.append((func, args, kwargs, tuple(getattr(_first(out), "shape", ()))))
        return out


def _first(out):
    return out[0] if isinstance(out, (tuple, list)) and out else out


def call_edits(lab):
    """(text, run) of other arguments of the functions that a callable calls."""
    for i, (func, args, kwargs, shape) in enumerate(_calls(lab) if lab.call.composite else ()):
        named = _named(func, args, kwargs)
        windows = list(window_edits(func.__name__, named, shape))
        lab.walked = lab.walked or bool(windows)
        for text, edit in (*_sizes(func, args, kwargs, shape), *_arguments(func, named, shape),
                           *_exchanged(func, named), *windows):  # fmt: skip
            yield text, lambda i=i, e=edit: lab.run(lambda: Written({i: e}))


def function_edits(lab):
    """(text, run) of other functions in place of those that a callable calls, unlike other
    operators also in the gradient that autograd makes of them."""
    for i, (func, *_) in enumerate(_calls(lab) if lab.call.composite else ()):
        name = func.__name__
        for text, edit in (*_others(func), *variant_edits(name), *_formulas(name)):
            yield text, lambda i=i, e=edit: lab.run(lambda: Written({i: e}))


def number_sites(lab):
    """(function, argument, value, mode of another value) of the numbers that the functions
    which a callable calls are given."""
    for i, (func, args, kwargs, _) in enumerate(_calls(lab) if lab.call.composite else ()):
        named = _named(func, args, kwargs)
        short = func.__name__.strip("_")
        for name, old in named.items():
            if isinstance(old, float) and old and name:
                yield (short, name, old,
                       lambda v, i=i, n=name, a=named: Written({i: _with(a, {n: v})}))  # fmt: skip


def _exchanged(func, named):
    """A tensor given as another optional argument than the one it is."""
    free = [n for n, v in named.items() if v is None and _may_be_none(func, n)]
    for name, value in named.items():
        if isinstance(value, torch.Tensor) and _may_be_none(func, name):
            for other in free:
                yield f"wrong argument: {name} is taken as {other}", _with(named, {name: None, other: value})


def _calls(lab):
    calls = []
    try:
        lab.run(lambda: Written(calls=calls))
    except Exception:  # it cannot be watched
        return []
    return calls if len(calls) <= MOST_CALLS else []


def _named(func, args, kwargs):
    """The arguments of a call of a torch function by name, defaults with them; {} where the
    names are not known."""
    try:
        signature = inspect.signature(func)
        if any(p.kind == p.VAR_POSITIONAL for p in signature.parameters.values()):
            return _by_schema(func, args, {k: v for k, v in kwargs.items() if k != "return_indices"})
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    except (TypeError, ValueError):
        return _by_schema(func, args, kwargs)


def _by_schema(func, args, kwargs):
    packet = getattr(torch.ops.aten, getattr(func, "__name__", ""), None)
    for overload in packet.overloads() if packet is not None else ():
        schema = getattr(packet, overload)._schema
        names = [a.name for a in schema.arguments]
        if len(args) <= len(names) and set(kwargs) <= set(names) and _fits(schema, args):
            given = dict(zip(names, args)) | kwargs
            return {a.name: given.get(a.name, a.default_value) for a in schema.arguments
                    if a.name in given or a.has_default_value()}  # fmt: skip
    return {}


def _fits(schema, args):
    """Whether tensors stand where a schema wants them."""
    return all(isinstance(v, torch.Tensor) == (str(a.type) == "Tensor")
               for a, v in zip(schema.arguments, args) if v is not None)  # fmt: skip


def _arguments(func, named, shape):
    """Another number, flag or name in one call; one of its optional tensors ignored."""
    short = func.__name__.strip("_")
    for name, old in named.items():
        if name in ("inplace", "dropout_p", "size_average") or (
                name in LISTS and kind_of(func.__name__)) or (name == "reduce" and isinstance(old, bool)):  # fmt: skip
            continue
        if isinstance(old, NUMBERS) and name:
            for new in (*other_values(name, old), *([None] if _default(func, name) is None else ())):
                forms = [{}]
                if name == "mode" and "align_corners" in named:
                    forms = [{}, {"align_corners": None}] if named["align_corners"] is not None else [
                        {}, {"align_corners": False}, {"align_corners": True}]  # fmt: skip
                for also in forms:
                    yield phrase(short, name, old, new), _with(named, {name: new, **also}, shape)
        elif old is None and name == "norm" and "fft" in short:
            for new in ("ortho", "forward"):
                yield phrase(short, name, "backward", new), _with(named, {name: new}, shape)
        elif isinstance(old, (list, tuple)):
            for new in _lists(name, list(old)):
                yield phrase(short, name, list(old), new), _with(named, {name: type(old)(new)}, shape)
        elif isinstance(old, torch.Tensor) and _may_be_none(func, name):
            yield f"dropped contribution: {name}, the argument is ignored", _with(named, {name: None})


SHAPING = ("reshape", "view", "unflatten")


def _sizes(func, args, kwargs, shape):
    """Groups of another size, where one size of a shape is left to torch."""
    if func.__name__ not in SHAPING or kwargs:
        return
    sizes = list(args[1]) if len(args) == 2 and isinstance(args[1], (list, tuple)) else list(args[1:])
    for i, size in enumerate(sizes):
        if -1 in sizes and isinstance(size, int) and size > 1:
            for new in (2 * size, size // 2, size + 1, size - 1):
                other = [*sizes[:i], new, *sizes[i + 1 :]]
                yield (f"computes as if a size of {func.__name__} were {new} instead of {size} (groups of another size)",
                       lambda func, args, kwargs, o=other: func(args[0], o))  # fmt: skip


def _lists(name, old):
    """Other lists of whole numbers: without one, in another order, exchanged, shifted."""
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in old) or name not in (
            "dim", "dims", "shifts", "pad", "axis", "axes", "s", "flips"):  # fmt: skip
        return []
    news = [old[:i] + old[i + 1 :] for i in range(len(old))] if name.startswith(("dim", "ax")) and len(old) > 1 else []
    if name in ("pad", "shifts"):
        sides = [v for pair in zip(old[1::2], old[::2]) for v in pair]
        both = [v for a, b in zip(old[::2], old[1::2]) for v in ((a + b) // 2, a + b - (a + b) // 2)]
        news += [sides, both, [-v for v in old], [0 for _ in old], [v + (-1) ** i for i, v in enumerate(old)],
                 [v - (-1) ** i for i, v in enumerate(old)], old[2:4] + old[:2] + old[4:]]
    news += [old[::-1]] if len(old) > 1 else []
    return [n for i, n in enumerate(news) if n != old and n not in news[:i]]


def _may_be_none(func, name):
    if name.startswith(("running_", "offset")):
        return False
    default = _default(func, name)
    return default is None if default is not UNKNOWN_DEFAULT else name in ("bias", "weight")


def _default(func, name):
    try:
        return inspect.signature(func).parameters[name].default
    except (KeyError, TypeError, ValueError):
        return UNKNOWN_DEFAULT


def _with(named, changes, shape=()):
    """The call with other arguments, by place where they were given so, in `shape`."""
    places = {name: i for i, name in enumerate(named)}

    def edit(func, args, kwargs):
        args, by_name = list(args), {}
        for name, new in changes.items():
            if places[name] < len(args):
                args[places[name]] = new
            else:
                by_name[name] = new
        out = func(*args, **{**kwargs, **by_name})
        return fitted(out, shape) if shape and isinstance(out, torch.Tensor) else out

    return edit


def _formulas(name):
    """Another formula in place of one."""
    for text, formula in formulas(name):
        yield text, lambda func, args, kwargs, f=formula: f(*args, **kwargs)


def _others(func):
    """Another function in place of one."""
    for name in relatives(func.__name__):
        other = getattr(functional, name, None) or getattr(torch, name, None)
        if other is None:
            continue

        def edit(func, args, kwargs, other=other):
            called = {("beta" if k == "delta" else "delta" if k == "beta" else k): v for k, v in kwargs.items()}
            forms = [kwargs, called]
            if not any(isinstance(v, float) for v in kwargs.values()):
                forms.append({k: v for k, v in kwargs.items() if k == "reduction"})
            for given in forms:
                with suppress(TypeError):
                    return other(*args, **given)
            raise LookupError("other arguments")

        yield f"wrong variant: {name} instead of {func.__name__}", edit
