# SPDX-License-Identifier: Apache-2.0
"""What can compute a call's operator on the CPU in another precision, best first: a
registered reference, a built-in one, the operator's own kernel, a decomposition. Serves
`reference`, which takes the first that works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from ..calls.apart import IN_FLOAT64 as OF_QUANTIZED
from ..calls.foreign import foreign, theirs
from ..calls.kernels import STANDARD, kernel_of
from ..calls.meaning import Meant, resolved
from ..calls.mode import Mode
from ..calls.nested import rebuilt
from ..calls.replay import Call, LEFT_ALONE, base_name, is_write
from ..calls.torch_private import DispatchKey, OpOverload, bare_name, decomposition_table
from . import formulas, registered
from .attention_steps import IN_FLOAT64 as ATTENTION
from .formulas.quantized import IN_FLOAT64 as FAKE_QUANTIZED

if TYPE_CHECKING:
    from ..calls.operator_call import OperatorCall

# torch has float32 kernels only, or rounds inside, or is off in float64
IN_FLOAT64 = {**OF_QUANTIZED, **FAKE_QUANTIZED, **ATTENTION}
SEEN_AS = torch.ops.aten.view.dtype
HANG_ON_DTYPE = {"nextafter"}  # what they mean
CONSTANTS = {"aten::full", "aten::full_like", "aten::new_full", "aten::scalar_tensor"}
FUSED = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")


class Widen(Mode):
    """Keeps a computation in one precision where it asks for a lower one itself: in its
    tensors (constants, closures), its dtype arguments and what it makes out of nothing."""

    WIDER = {
        torch.float64: dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64)
        | dict.fromkeys((torch.complex64, torch.complex32), torch.complex128),
        torch.float32: dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)
        | {torch.complex32: torch.complex64},
    }

    def __init__(self, dtype: torch.dtype, means: Any = None) -> None:
        super().__init__()
        self.dtype, self.wider = dtype, self.WIDER[dtype]
        self.means = means  # what Python kernels of extensions within are told of their dtype
        self._alike = []  # one for each time that it was entered

    def __enter__(self):
        entered = super().__enter__()
        self._alike.append(Alike(self))
        self._alike[-1].__enter__()
        return entered

    def __exit__(self, *problem):
        self._alike.pop().__exit__(*problem)
        return super().__exit__(*problem)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is SEEN_AS:
            return self._wide(self._seen_as(*args))
        names, kept, as_it_is = _kept_by(func)
        if func._schema.name in CONSTANTS:  # a number of a dtype is that number everywhere
            kept = kept | {"dtype"}
        args = [a if i < len(names) and names[i] in kept else self._wide(a) for i, a in enumerate(args)]
        kwargs = {k: v if k in kept else self._wide(v) for k, v in (kwargs or {}).items()}
        out = self._run(func, args, kwargs)
        if as_it_is:
            return out
        if isinstance(out, torch.Tensor) and out.dtype in self.wider:
            out = self._of_whole_numbers(func, args, kwargs, out)
        return self._wide(out)

    def _seen_as(self, x, dtype):
        """The bits of a tensor as another dtype: those that it has where it is not kept in this precision."""
        if x.dtype != self.dtype or dtype.itemsize >= x.dtype.itemsize:
            return SEEN_AS(x, dtype)
        meant = self.means if dtype.itemsize == 2 else torch.float32
        if meant is None or meant.itemsize != dtype.itemsize:
            raise TypeError("whose bits these are is not known")
        return SEEN_AS(x.to(meant), dtype)

    def _run(self, func, args, kwargs):
        """An operator; one of an extension by its formula, or by what its kernel does, with this mode inside."""
        run = IN_FLOAT64.get(func) if self.dtype is torch.float64 else None
        if run is None and space_of(func._schema.name) not in STANDARD:
            within = registered.registered(func._name) or kernel_of(func)
            try:
                if within is not None:
                    with self, Meant(None, self.means):
                        return theirs(within, *args, **kwargs)
            except Exception as problem:  # a kernel that cannot bear it: as it is
                foreign(problem)
                pass
        return (run or _or_formula(func))(*args, **kwargs)

    def _of_whole_numbers(self, func, args, kwargs, out):
        """What whole numbers alone give as floats: of torch's default dtype, whatever is asked for; so from floats of
        this precision."""
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
        if not given or any(t.is_floating_point() or t.is_complex() for t in given):
            return out
        if any(isinstance(v, torch.dtype) for v in (*args, *kwargs.values())):
            return out  # a conversion
        as_floats = lambda v: v.to(self.dtype) if isinstance(v, torch.Tensor) else v  # noqa: E731
        try:
            return sound(func)(*map(as_floats, args), **{k: as_floats(v) for k, v in kwargs.items()})
        except (RuntimeError, TypeError) as problem:  # they are indices or truths to it
            foreign(problem)
            return out

    def _wide(self, value):
        if isinstance(value, torch.dtype):
            return self.wider.get(value, value)
        if isinstance(value, torch.Tensor):
            wider = self.wider.get(value.dtype)
            return value if wider is None else value.to(wider)
        if isinstance(value, (list, tuple)):
            return rebuilt(value, lambda _, item: self._wide(item))
        return value


class Alike(TorchFunctionMode):
    """Gives a function of torch that takes tensors of a mode's precision and narrower ones (weights that a closure
    holds) all of them in that precision: some refuse the mixture before any operator is called, and modes within,
    which take sums apart and move roundings, would take the narrow ones for what is computed with."""

    def __init__(self, widen):
        super().__init__()
        self.widen = widen

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._is_mixed([*args, *kwargs.values()]) and not _keeps_tensors(func):
            return theirs(func, *self.widen._wide(args), **{k: self.widen._wide(v) for k, v in kwargs.items()})
        return theirs(func, *args, **kwargs)

    def _is_mixed(self, given):
        dtypes = {t.dtype for t in given if isinstance(t, torch.Tensor)}
        return self.widen.dtype in dtypes and not dtypes.isdisjoint(self.widen.wider)


def _keeps_tensors(func):
    """Whether a function of torch is about the tensors themselves: it writes them, or asks their gradients."""
    name = getattr(func, "__name__", "").partition(".")[0]  # of an overload "add_.Tensor"
    return name.endswith("_") or getattr(func, "__module__", "").startswith("torch.autograd")


class KeptNarrow(Widen):
    """The same, but what a computation itself rounds to 16 bits is rounded: every operator that
    gives such numbers is computed in the wide precision and rounded once."""

    LOW = (torch.float16, torch.bfloat16)

    def __init__(self, dtype, means=None):
        super().__init__(dtype, means)
        self.wider = {k: v for k, v in self.wider.items() if k not in self.LOW}
        self.all = self.WIDER[dtype]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        makes = not any(r.alias_info for r in func._schema.returns)
        if not makes or not isinstance(out, torch.Tensor) or out.dtype not in self.LOW:
            return out
        if any(isinstance(v, torch.dtype) for v in (kwargs or {}).values()):
            return out  # a conversion
        wide = rebuilt(list(args), lambda _, a: self._whole(a))
        return func(*wide, **{k: self._whole(v) for k, v in (kwargs or {}).items()}).to(out.dtype)

    def _whole(self, value):
        if isinstance(value, torch.Tensor):
            return value.to(self.all.get(value.dtype, value.dtype))
        if isinstance(value, (list, tuple)):
            return rebuilt(value, lambda _, item: self._whole(item))
        return value


@cache
def _kept_by(func):
    """Names of an operator's arguments, those that must stay what they are, and whether its
    results must."""
    declared = func._schema.arguments
    kept = {a.name for a in declared if is_write(a)} | LEFT_ALONE
    if any(r.alias_info is not None and not is_write(r) for r in func._schema.returns):
        kept |= {a.name for a in declared if a.alias_info is not None}
    return [a.name for a in declared], kept, bool(func._schema.returns and kept - LEFT_ALONE)


def space_of(op: str) -> str:
    """The namespace of an operator, "" for a Python function."""
    return op.partition("::")[0] if "::" in op else ""


def schema_tells(call: Call, known: Iterable[str] = ()) -> bool:
    """Whether what a schema says of what is written is all: not of extensions, of which nobody has looked at it,
    nor of batch norms, but for the paths that are `known`."""
    statistics = (p for p, v in call.views.items() if v.argument.startswith("running_") and p not in known)
    return space_of(call.op) in STANDARD and not any(statistics)


def cpu_kernel(call: Call) -> Callable[..., Any]:
    """The operator's own kernel on the CPU, callable under a dispatch mode that then sees
    the operators inside it. The operator itself where it has no such kernel."""
    if space_of(call.op) in STANDARD:
        return resolved(call, call.function)
    return kernel_of(call.function) or call.function


def standing_for(function: Callable, wrapper: Callable) -> Callable:
    """A wrapper that runs a function in other steps, or in other precision, and writes no more than it."""
    wrapper.stands_for = getattr(function, "stands_for", function)
    return wrapper


@dataclass(frozen=True)
class Source:
    """One way to compute a call."""

    run: object  # called with the call's arguments in the wanted precision
    held: bool  # must be kept from leaving that precision
    steady: bool = False  # known to give the same at every run
    partial: bool = False  # None among its results: promised nothing
    given: bool = False  # means something in the dtype that was captured only
    own: bool = False  # an extension's kernel, of which nobody knows how it is written


def sources_of(call: Call | OperatorCall) -> list[Source]:
    """The sources of a call, best first; at least one."""
    own = registered.registered(call.op)
    if own is not None:
        return [Source(own, held=True, partial=True)]
    built_in = formulas.find(call.op) if call.schema is not None else None
    if built_in is not None:
        schema = call.schema
        return [Source(lambda *a, **k: built_in(schema, a, k), held=False, steady=True, partial=True)]
    if space_of(call.op) not in ("", *STANDARD):
        return [Source(cpu_kernel(call), held=True, own=True)]
    found = [_as_it_stands(call)]
    others = [resolved(call, f) for f in decompositions(call.function)]
    return found + [Source(f, held=True, steady=True) for f in others]


def opens(call: object) -> bool:
    """Whether a call is an extension's operator held to its own kernel: what that rounds is its definition."""
    return not call.composite and any(source.own for source in sources_of(call))


def kernel_is_reference(call: Call | OperatorCall) -> bool:
    """Whether the operator's own kernel is no less to be trusted than what its results are held
    to: torch's, or that reference itself. Of other operators it may be the very kernel under
    test."""
    if space_of(call.op) in ("", *STANDARD):
        return True
    return registered.registered(call.op) is None and formulas.find(call.op) is None


def _as_it_stands(call):
    """The operator itself. Where its meaning hangs on the dtype (neighbouring numbers, bits
    seen as another dtype, a default that torch takes from it), that of the call."""
    name = base_name(call.op)[1]
    if name in HANG_ON_DTYPE or call.op.startswith("aten::view.dtype"):
        return Source(call.function, held=False, steady=True, given=True)
    if name in FUSED and not all(v.is_contiguous() for v in call.views.values()):
        return Source(sound(call.function), held=False, steady=True, partial=True)
    return Source(resolved(call, call.function), held=False, steady=True)


def sound(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or for torch's fused optimizers one that runs them on contiguous copies: on
    the CPU they take as many elements as a tensor has from where it begins, whatever its
    strides."""
    if bare_name(function) not in FUSED:
        return function

    def run(*args, **kwargs):
        copies = []

        def dense(value):
            if isinstance(value, (list, tuple)):
                return [dense(item) for item in value]
            if not isinstance(value, torch.Tensor) or value.is_contiguous():
                return value
            copies.append((value, value.contiguous()))
            return copies[-1][1]

        result = function(*dense(args), **{k: dense(v) for k, v in kwargs.items()})
        for tensor, copy in copies:
            if not torch.equal(tensor, copy):  # one that is only read may be expanded
                tensor.copy_(copy)
        return result

    return run


@cache
def _or_formula(func):
    """The operator's sound kernel, or where that refuses what it is given a built-in formula of it."""
    own, formula = sound(func), formulas.find(func.name())
    if formula is None:
        return own

    def run(*args, **kwargs):
        try:
            return own(*args, **kwargs)
        except (RuntimeError, ValueError, TypeError) as refused:
            foreign(refused)
            try:
                return formula(func._schema, args, kwargs)
            except formulas.NoReference as problem:
                raise problem from refused

    return run


def decompositions(function: Any) -> tuple[Callable[..., Any], ...]:
    """Other formulas that torch has for one of its operators: of which one may exist in
    float64 where the kernel does not."""
    return _formulas(function) if isinstance(function, OpOverload) else ()


@cache
def _formulas(function):
    found = [decomposition_table()[function]] if function in decomposition_table() else []
    if DispatchKey.CompositeImplicitAutograd in function.py_kernels or (
        function.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
    ):
        found.append(function.decompose)
    return tuple(found)
