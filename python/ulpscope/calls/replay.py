# SPDX-License-Identifier: Apache-2.0
"""A call of a trace, rebuilt: arguments with their storages, strides and aliasing.

Knows nothing of traces on disk: a call comes as the dict that `_core.Trace.call` gives
and a function that reads a blob. `executors.reference_runs` replays a call on the CPU in another
precision, `Device` runs it on the device under test. Neighbours: nested.py (arguments), call_results.py
(what a run left).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from .contents import Contents
from .foreign import theirs
from .functions import find as function_named
from .homes import OPERATOR_HOMES, not_imported, operator
from .large import cast
from .nested import substitute
from .raw_bytes import fit
from .shown import Shown
from .torch_private import neg_view

if TYPE_CHECKING:
    from typing_extensions import TypeIs
    from .callable import Composite

FUNCTIONAL = "_c10d_functional::"

# Arguments that count or steer rather than being computed with: an optimizer's kernels
# demand their dtype, and a perturbed step count is another step.
LEFT_ALONE = {"state_steps", "found_inf", "grad_scale", "lr", "inv_scale"}


NO_NUMBERS: dict[str, torch.dtype] = {}  # of an operator, whose schema says what is one


class BadCall(Exception):
    """A call that cannot be replayed; the text is a clause that says why."""

    importable = False  # whether --import of what registers its operator helps


class Unsupported(Exception):
    """The device refuses the call or lacks the operator."""

    raised = ""  # class of what it raised itself


def is_row_major(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie one after the other, the last dimension running fastest."""
    step = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


@dataclass
class View:
    """One tensor of a call: which part of which storage."""

    path: str
    role: str
    storage: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str
    argument: str = ""  # the schema's name of the argument
    version: int = 0
    requires_grad: bool = False
    form: str = ""  # what strides do not tell: "conj", "neg"
    apart: int = 0  # of a copy that is run: elements between the first of two rows, where not 0

    def extent(self) -> tuple[int, int]:
        """First element and the one behind the last that this view can touch."""
        if 0 in self.sizes:
            return self.offset, self.offset
        span = sum((n - 1) * s for n, s in zip(self.sizes, self.strides))
        return self.offset, self.offset + span + 1

    def is_contiguous(self) -> bool:
        """Whether its elements lie in row-major order without gaps."""
        return is_row_major(self.sizes, self.strides)

    def is_dense(self) -> bool:
        """Whether it touches every element of its extent once, in any order of dimensions."""
        order = sorted(zip(self.strides, self.sizes), reverse=True)
        return is_row_major([size for _, size in order], [stride for stride, _ in order])


def _form_of(view: View) -> str:
    """ "float32[2, 3]"."""
    return f"{str(view.dtype).removeprefix('torch.')}{list(view.sizes)}"


@dataclass(repr=False)
class Call(Shown):
    """An operator invocation, ready to be replayed any number of times."""

    sequence: int
    op: str
    args: list[Any]
    kwargs: dict[str, Any]
    views: dict[str, View] = field(default_factory=dict)  # path -> View, before the call
    results: dict[str, View] = field(default_factory=dict)  # path -> View, what the call returned
    mutated: dict[str, View] = field(default_factory=dict)  # path -> View, as the call left them
    storages: Contents = field(default_factory=Contents)  # storage -> uint8 tensor of its bytes
    row: dict[str, Any] = field(default_factory=dict)  # what the trace says besides
    # function: View of a result -> tensor on the CPU, or None
    live: Callable[[str, str], torch.Tensor | None] | None = None
    made_up: bool = False  # contents were generated from statistics
    function: Any = None  # what `op` names, unless it was given
    whole: bool = False  # it may address what lies in a storage around its arguments
    composite: ClassVar[bool] = False  # whether it is a Python callable: `callable`
    numbers = NO_NUMBERS  # path -> dtype, of results that are Python floats

    def __post_init__(self) -> None:
        if self.function is None:
            self.function = resolve(self.op)
        self.schema: Any = getattr(self.function, "_schema", None)
        if not isinstance(self.storages, Contents):
            self.storages = Contents(self.storages)
        self.whole |= "::as_strided" in self.op
        self._name_arguments()

    def _name_arguments(self) -> None:
        names = [a.name for a in self.schema.arguments] if self.schema else []
        for path, view in self.views.items():
            head = path.split("]")[0].split("[")
            if path.startswith("kwargs."):
                view.argument = path[len("kwargs.") :].split("[")[0]
            elif len(head) > 1 and int(head[1]) < len(names):
                view.argument = names[int(head[1])]

    def _shown(self) -> str:
        return f"call #{self.sequence} {self.op}({', '.join(_form_of(v) for v in self.views.values())})"

    def _titles_and_rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        rows = [("in", p, _form_of(v)) for p, v in self.views.items()] + [
            ("out", p, _form_of(v)) for p, v in self.results.items()
        ]
        return ("role", "path", "tensor"), rows

    def written(self) -> list[str]:
        """Paths of the arguments that the call writes: by schema, and as was seen."""
        writes = written_names(self.function) if self.schema else ()
        if not writes and not self.mutated:
            return []
        out = dict.fromkeys(self.mutated)
        if writes:
            out.update((p, None) for p, v in self.views.items() if v.argument in writes)
        return [path for path in out if path in self.views]

    @property
    def is_complex(self) -> bool:
        """Whether it is given complex numbers."""
        return any(v.dtype.is_complex for v in self.views.values())

    @property
    def identity(self) -> tuple[Any, ...]:
        """What it computes, apart from its arguments."""
        return self.op, id(self.function)

    def on(self, place: Callable[[str], Any]) -> Callable[..., Any]:
        """What to call on a device; `place(captured device)` names it."""
        function: Callable[..., Any] = self.function
        return function

    def value(self, name: str, default: Any = None) -> Any:
        """A non-tensor argument by its name in the schema."""
        if name in self.kwargs:
            return self.kwargs[name]
        for i, argument in enumerate(self.schema.arguments if self.schema else []):
            if argument.name == name:
                if i < len(self.args):
                    return self.args[i]
                return argument.default_value if argument.has_default_value() else default
        return default


def is_write(argument: Any) -> bool:
    """Whether a schema argument or return is annotated as written."""
    return argument.alias_info is not None and argument.alias_info.is_write


def is_composite(call: Call) -> TypeIs[Composite]:
    """Whether it is a Python callable."""
    return call.composite


@cache
def written_names(function: Any) -> frozenset[str]:
    """Names of the arguments that an operator writes by its schema."""
    return frozenset(a.name for a in function._schema.arguments if is_write(a))


def unknown(name: str) -> BadCall:
    """BadCall about an operator that nobody here has. Those of torch and of packages beside it
    are in no file of the user's."""
    home = OPERATOR_HOMES.get(name.partition("::")[0])
    if home:
        return BadCall(
            f"operator {name} is unknown here: {home[0].partition('.')[0]} of this environment does not bring it"
        )
    return _importable(f"operator {name} is unknown here")


def _importable(what: str) -> BadCall:
    """BadCall about something that a module of the user's brings."""
    why = not_imported()
    problem = BadCall(
        f"{what} ({why})"
        if why
        else f"{what}; name the module or the .py file that registers it with --import, live_check(imports=[...])"
    )
    problem.importable = True
    return problem


def resolve(name: str) -> Callable[..., Any]:
    """The callable behind `ns::op.overload`, or a function of `functions`."""
    if "::" in name:
        found = operator(name)
        if found is not None:
            return found
        raise unknown(name)
    found = function_named(name)
    if found is None:
        problem = _importable(f"function {name} is unknown here")
        problem.importable = not name.startswith("torch.")
        raise problem
    return found


def all_finite(x: torch.Tensor) -> bool:
    """Whether no element is NaN or Inf. A sum that holds one is none of the finite numbers; one
    of finite numbers may overflow, and only then they are looked at one by one."""
    total = x.sum(dtype=torch.float32 if x.dtype.itemsize < 4 else None).item()
    return cmath.isfinite(total) or bool(x.isfinite().all())


@dataclass
class Bound:
    """Arguments of one run: what to call with, and the tensors by path and storage."""

    args: list[Any]
    kwargs: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    bases: dict[Any, torch.Tensor]
    grad: bool = False

    def run(self, function: Callable[..., Any]) -> Any:
        with torch.set_grad_enabled(self.grad):
            return theirs(function, *self.args, **self.kwargs)


LAZY = {"conj": torch.Tensor.conj, "neg": neg_view}


def bind_exact(call: Call, device_of: Callable[[str], Any], on_host: Iterable[str] = ()) -> Bound:
    """Arguments bit by bit as captured, each storage whole, on the device that
    `device_of(captured device)` names; storages of the paths `on_host` on the CPU."""
    bases, tensors = {}, {}
    host = {call.views[path].storage for path in on_host}
    for path, view in call.views.items():
        if view.storage not in bases:
            where = "cpu" if view.storage in host else device_of(view.device)
            bases[view.storage] = _copied(call.storages, view.storage, view.dtype, where)
        base = bases[view.storage]
        if base.dtype != view.dtype:
            base = fit(base.view(torch.uint8), view.dtype)
        tensors[path] = _seen(base, view, view.offset)
        if view.apart:
            tensors[path] = _apart(tensors[path], view.apart)
    return _bound(call, tensors, bases, None, device_of)


def held_argument(call: Call, path: str) -> torch.Tensor:
    """An argument bit by bit as captured, in the memory of the call, which nobody may write."""
    view = call.views[path]
    held = fit(call.storages[view.storage], view.dtype)
    return seen_as(held.as_strided(view.sizes, view.strides, view.offset), view.form)


def _apart(tensor: torch.Tensor, stride: int) -> torch.Tensor:
    """The tensor with this stride of its first axis, in memory of its own: what lies between is never touched."""
    rows = torch.empty(tensor.shape[1:], device="meta")
    room = torch.empty((len(tensor) - 1) * stride + rows.numel(), dtype=tensor.dtype, device=tensor.device)
    own = room.as_strided(tensor.shape, (stride, *rows.stride())).copy_(tensor.detach())
    return own.requires_grad_(tensor.requires_grad)


def _copied(storages: Contents, storage: int, dtype: torch.dtype, where: Any) -> torch.Tensor:
    """A copy of a storage on a device. What has to be read is the copy, or goes there in parts."""
    if not storages.is_far(storage):
        return fit(storages[storage], dtype).to(where, copy=True)
    if torch.device(where).type == "cpu":
        return fit(storages.fresh(storage), dtype)
    base = torch.empty(storages.size(storage) // dtype.itemsize, dtype=dtype, device=where)
    for first, chunk in storages.chunks(storage):
        part = fit(chunk, dtype)
        base.narrow(0, first // dtype.itemsize, part.numel()).copy_(part)
    return base


def _seen(base: torch.Tensor, view: View, offset: int) -> torch.Tensor:
    """The tensor that `view` is of a flat base."""
    tensor = seen_as(base.as_strided(view.sizes, view.strides, offset), view.form)
    return tensor.requires_grad_() if view.requires_grad else tensor


def seen_as(tensor: torch.Tensor, form: str) -> torch.Tensor:
    """The tensor as the operator saw it: lazily conjugated, negated, or as it lies there."""
    for kind in (form or "").split():
        tensor = LAZY[kind](tensor) if kind in LAZY else tensor
    return tensor


def _bound(
    call: Call,
    tensors: dict[str, torch.Tensor],
    bases: dict[Any, torch.Tensor],
    dtype_of: Callable[..., Any] | None,
    device_of: Callable[..., Any] | None = None,
) -> Bound:
    return Bound(
        [substitute(a, tensors, dtype_of, device_of) for a in call.args],
        {k: substitute(a, tensors, dtype_of, device_of) for k, a in call.kwargs.items()},
        tensors,
        bases,
        call.composite,
    )


def widened(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the reference for a tensor of `dtype`."""
    if dtype.is_floating_point:
        return torch.float64
    return torch.complex128 if dtype.is_complex else dtype


def computed(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the yardstick: float32, unless float64 was asked for."""
    if dtype.is_floating_point:
        return dtype if dtype == torch.float64 else torch.float32
    return torch.complex64 if dtype == torch.complex32 else dtype


@dataclass
class Segment:
    """The part of a storage that the views of one dtype use, as a flat tensor."""

    storage: int
    dtype: torch.dtype
    first: int
    last: int
    data: torch.Tensor
    number: int  # among the float segments of the call
    steers: bool  # left alone: neither widened nor perturbed

    @cached_property
    def small_integers(self) -> bool:
        """Whether it holds labels, masks or the like."""
        floats = self.dtype.is_floating_point or self.dtype.is_complex
        return floats and counts_only(self.data)


def segments(call: Call) -> dict[tuple[int, torch.dtype], Segment]:
    """Segments by (storage, dtype), in argument order."""
    spans: dict[tuple[int, torch.dtype], tuple[int, int, bool]] = {}
    for view in call.views.values():
        key = (view.storage, view.dtype)
        first, last = view.extent()
        if call.whole:
            first, last = 0, fit(call.storages[view.storage], view.dtype).numel()
        lo, hi, steers = spans.get(key, (first, last, True))
        spans[key] = (min(lo, first), max(hi, last), steers and view.argument in LEFT_ALONE)
    out, number = {}, 0
    for (storage, dtype), (first, last, steers) in spans.items():
        data = fit(call.storages[storage], dtype)[first:last]
        counts = dtype.is_floating_point or dtype.is_complex
        out[storage, dtype] = Segment(storage, dtype, first, last, data, number, steers)
        number += counts and not steers
    return out


def counts_only(data: torch.Tensor) -> bool:
    """Labels, masks and one-hot vectors: small integers kept in a float dtype."""
    if data.is_complex() or data.numel() == 0:
        return False
    if data.numel() > 64 and not counts_only(data[:64]):
        return False
    wide = data.float()
    return bool(((wide == wide.round()) & (wide.abs() <= 2048)).all())


def bind_cast(
    call: Call,
    parts: dict[tuple[int, torch.dtype], Segment],
    dtype_of: Callable[[Any], Any],
    contents: dict[tuple[int, torch.dtype], torch.Tensor] | None = None,
    written: Collection[int] | None = None,
) -> Bound:
    """
    Arguments on the CPU with every float in another dtype, strides and aliasing kept.

    `contents` maps a segment key to the flat tensor to use instead of the captured one
    (perturbed inputs); it is converted, never written. `written` are the storages that
    whatever runs may write; the others are not copied. None: any of them.
    """
    bases, tensors = {}, {}
    for path, view in call.views.items():
        key = (view.storage, view.dtype)
        part = parts[key]
        if key not in bases:
            source = contents.get(key, part.data) if contents else part.data
            to = view.dtype if part.steers else dtype_of(view.dtype)
            bases[key] = cast(source, to, written is None or view.storage in written)
        base = bases[key]
        tensors[path] = _seen(base, view, base.storage_offset() + view.offset - part.first)
    return _bound(call, tensors, bases, dtype_of)


# ---- which calls are beyond a replay -----------------------------------------------

UNINITIALISED = {
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
}
RESIZED = {"resize_", "resize_as_", "_resize_output_"}


@lru_cache(4096)
def base_name(op: str) -> tuple[str, str]:
    """`ns::name` without the overload, and the bare name."""
    name = op.split(".")[0] if "::" in op else op
    return name, name.rpartition("::")[2] if "::" in name else name.rpartition(".")[2]


def promises_nothing(call: Call) -> bool:
    """Whether the call promises nothing about the values it returns: new memory, or some of it."""
    only = call.only[0] if is_composite(call) and call.only else base_name(call.op)[1]
    return only in UNINITIALISED or (only in RESIZED and _grows(call))


def _grows(call: Call) -> bool:
    """Whether a tensor that is resized gets elements which it had not; True where that is not told."""
    views = list(call.views.values())
    given = [*call.args[1:], call.kwargs.get("size")]
    forms = [views[1].sizes] if len(views) > 1 else [g for g in given if isinstance(g, (list, tuple))]
    if not views or not forms or not all(type(n) is int for n in forms[0]):
        return True
    return math.prod(forms[0]) > math.prod(views[0].sizes)


def draws_random(call: Call) -> bool:
    """Whether the call draws random numbers with these arguments."""
    if torch.Tag.nondeterministic_seeded not in getattr(call.function, "tags", ()):
        return False
    for name in ("dropout_p", "p", "dropout"):
        value = call.value(name)
        if isinstance(value, (int, float)) and value == 0:
            return False
    return not any(call.value(name) is False for name in ("train", "training"))


def finite(x: float | None) -> float | None:
    """A float for JSON and databases: None where it is no number."""
    return x if x is not None and math.isfinite(x) else None


def makes_on_default_device(call: Call) -> bool:
    """A factory that was called without a device: it made its tensor on the CPU."""
    if call.views or not any(a.name == "device" for a in call.schema.arguments):
        return False
    return call.value("device") is None


def is_collective(op: str) -> bool:
    """Whether an operator moves tensors between ranks."""
    return op.startswith(("c10d::", FUNCTIONAL))
