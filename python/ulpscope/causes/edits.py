# SPDX-License-Identifier: Apache-2.0
"""Other numbers, flags and names that somebody may have taken, and what that means in words; mistakes
of meaning in the arguments of a call. Each is (text, edit for `Lab.run`): of a call's arguments, {path:
function(tensors by path)}. Neighbours: `changes` (of tensors), `inside` and `edges` (operators inside the
call), `diagnose` (chooses).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..calls.replay import View
from . import changes
from .lab import Lab, leaves

if TYPE_CHECKING:
    from ..calls.replay import Call
    from ..calls.torch_private import OpOverload
EPSILONS = (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
REDUCTIONS = {0: "no reduction", 1: "mean", 2: "sum"}
# Names that stand for each other in an argument; those that a function does not know are refused.
NAMES = [
    ("none", "tanh"),
    ("floor", "trunc", None),
    ("add", "multiply"),
    ("sum", "mean", "prod", "amax", "amin", "max", "min"),
    ("mean", "sum", "none", "batchmean"),
    ("zeros", "border", "reflection"),
    ("bilinear", "nearest", "bicubic", "nearest-exact", "linear", "trilinear", "area"),
    ("constant", "reflect", "replicate", "circular"),
    ("backward", "ortho", "forward"),
    ("linear", "nearest", "lower", "higher", "midpoint"),
]
ORDERS = (1.0, 2.0, 3.0, float("inf"))


def shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def phrase(op: str, name: str, old: Any, new: Any) -> str:
    """What it means that the argument `name` of an operator had another value."""
    if name in ("eps", "epsilon") or _is_small_term(op, name, old):
        return f"epsilon is {'missing' if new == 0 else f'{shown(new)} instead of {shown(old)}'}"
    if name == "correction" and new is None:
        new = 1  # what it stands for
    if name == "correction" and not isinstance(new, bool) and new not in (0, 1):
        return f"wrong variance: divided by n - {shown(new)} instead of n{f' - {shown(old)}' if old else ''}"
    if name in ("correction", "unbiased"):
        biased = new in (0, False)
        return (
            "biased variance: divided by n instead of n - 1"
            if biased
            else "unbiased variance: divided by n - 1 instead of n"
        )
    if name == "approximate":
        return f"{'tanh' if new == 'tanh' else 'erf'} form of gelu instead of " + ("erf" if new == "tanh" else "tanh")
    if name == "reduction" and isinstance(old, int):
        return f"wrong reduction: {REDUCTIONS.get(new)} instead of {REDUCTIONS.get(old)}"
    if name == "reduction" and isinstance(old, str):
        return f"wrong reduction: {new} instead of {old}"
    if name in ("is_causal", "causal"):
        return f"the causal mask is {'applied' if new else 'missing'}"
    if name == "beta" and new == 0:
        return f"dropped contribution: the bias or summand is missing (beta {shown(old)} taken as 0)"
    if op in ("mul", "div") and name == "other" and isinstance(old, float) and _of_samples(old):
        return f"biased variance: the factor n / (n - 1) = {shown(old)} of {op} is " + (
            "missing" if new == 1 else f"taken as {shown(new)}"
        )
    if op in ("mul", "div") and name == "other" and new == 1:
        return f"dropped contribution: the scale factor {shown(old)} of {op} is missing"
    if op in ("add", "sub") and name == "other" and new == 0:
        return f"dropped contribution: the constant term {shown(old)} of {op} is missing"
    if op in ("mul", "div") and name == "other":
        return _of_factor(op, old, new)
    if name == "exponent" and new == 1:
        return f"wrong variant: the {'root' if old < 1 else 'power'} is missing (exponent 1 instead of {shown(old)})"
    if op == "rsub" and name == "alpha" and new == 0:
        return "dropped contribution: the subtracted term is missing"
    if op in ("add", "sub") and name == "alpha" and new == 0:
        return f"dropped contribution: the second term of {op} is missing"
    if op in ("add", "sub") and name == "alpha" and old and new == -old:
        return f"the sign of the second term of {op} is flipped"
    if name in ("min", "max", "min_val", "max_val") and new in (float("inf"), -float("inf")):
        return f"the bound {name} of {op} is missing: not clamped at {shown(old)}"
    if new is None and name in ("min", "max"):
        return f"the bound {name} is ignored: not clamped at {shown(old)}"
    if new is None:
        return f"the argument {name} is ignored"
    if name in ("ignore_index", "padding_idx"):
        return f"the {name} {old} is ignored"
    if name in ("descending", "largest"):
        return f"wrong order: computes as if {name} were {new}"
    if name in ("dim", "axis"):
        return f"along dimension {shown(new)} instead of {shown(old)}"
    if name == "diagonal":
        return f"the mask is shifted by {abs(new - old)}: diagonal {new} instead of {old}"
    if new in (0, 1) and name in ("alpha", "beta", "scale", "weight_decay", "momentum", "value"):
        return f"{name} is ignored: taken as {shown(new)} instead of {shown(old)}"
    if isinstance(old, list):
        return f"wrong {name}: {_sides(new)} instead of {_sides(old)}"
    if name and isinstance(old, (bool, str)):
        return f"wrong variant: {name} is {shown(new)} instead of {shown(old)}"
    if isinstance(new, bool) and name:
        return f"wrong flag: computes as if {name} were {new} instead of {old}"
    return f"computes as if {name or 'an argument'} were {shown(new)} instead of {shown(old)}"


def _sides(values: Sequence[int]) -> str:
    return str(values[0]) if len(set(values)) == 1 else " x ".join(map(str, values))


def _of_factor(op: str, old: Any, new: Any) -> str:
    if new == 0:
        return f"dropped contribution: the term with the factor {shown(old)} of {op} is missing"
    if new == -old:
        return f"the sign of the factor {shown(old)} of {op} is flipped"
    return f"computes as if the scale factor of {op} were {shown(new)} instead of {shown(old)}"


def _of_samples(value: float) -> bool:
    """Whether a number is n / (n - 1) for a count of samples."""
    n = value / (value - 1) if 1 < value < 1.5 else 0.0
    return n > 2.5 and abs(n - round(n)) < 1e-6 * n * n


def _is_small_term(op: str, name: str, old: Any) -> bool:
    return op == "add" and name == "other" and isinstance(old, float) and 0 < old <= 1e-2


def other_values(name: str, old: Any, rank: int = 0) -> list[Any]:
    """Values that somebody may have taken instead of `old`."""
    if isinstance(old, bool):
        return [not old]
    unbounded = [torch.inf if "max" in name else -torch.inf]
    unbounded = unbounded if name in ("min", "max", "min_val", "max_val") else []
    if unbounded and isinstance(old, (int, float)) and not isinstance(old, bool):
        return unbounded + other_values("", old)
    if isinstance(old, (int, float)) and name in ("p", "ord", "norm_type"):
        return [v for v in (*ORDERS, old + 1, old - 1, 2 * old) if v != old and v > 0]
    if isinstance(old, float):
        if old != old:
            return []
        if name in ("eps", "epsilon") or 0 < old <= 1e-4:
            return [v for v in EPSILONS if v != old] + [2 * old, 1.0]
        usual = [v for v in (0.9, 0.95, 0.99, 0.999) if name.startswith("beta") and 0.5 < old < 1]
        usual += [0.0, 1.0, 2 * old, old / 2, -old, 1 - old, old * old, abs(old) ** 0.5, 1 / old if old else 1.0]
        return [v for i, v in enumerate(usual) if v != old and v not in usual[:i]]
    if isinstance(old, str):
        return [v for kind in NAMES for v in kind if old in kind and v != old]
    if isinstance(old, int):
        if name == "reduction":
            return [v for v in REDUCTIONS if v != old]
        if name in ("dim", "axis"):
            return [d for d in range(rank) if d != old % max(rank, 1)]
        if name in ("ignore_index", "padding_idx"):
            return [-100 if name == "ignore_index" else -1]
        if name in ("dtype", "layout", "memory_format", "num_classes", "num_heads", "size"):
            return []
        if name == "correction":
            return [v for v in (0, 1, 2) if v != old]
        return [*dict.fromkeys([old + 1, old - 1, 0, 1, 2 * old, -old])] if old else [1, -1]
    return []


# Lists with a number for each axis or side, and the number that does nothing.
LISTS = {"stride": 1, "dilation": 1, "padding": 0, "output_padding": 0, "kernel_size": None, "pad": 0, "shifts": 0}


def other_lists(name: str, old: list[int]) -> list[list[int]]:
    """Lists that somebody may have taken instead: plain, exchanged, negated, by one more or less."""
    if name not in LISTS or not all(isinstance(v, int) for v in old):
        return []
    plain, size = LISTS[name], len(old)
    news = [[plain] * size] if plain is not None else []
    news += [
        [old[j] if k == i else old[i] if k == j else v for k, v in enumerate(old)]
        for i, j in itertools.combinations(range(size), 2)
    ]
    news += [
        [v + by * (k in part) for k, v in enumerate(old)]
        for by in (1, -1)
        for part in (range(size), *([i] for i in range(size) if size > 1))
    ]
    news += [[-v for v in old]] if plain == 0 else []
    least = {"pad": None, "shifts": None}.get(name, plain or 0)
    return [n for i, n in enumerate(news) if n != old and n not in news[:i] and (least is None or min(n) >= least)]


# ---- arguments of the whole call -----------------------------------------------------


def scalars(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Another number, flag or name among the arguments of the call."""
    op = lab.call.op.rpartition("::")[2].split(".")[0]
    held = [(p, n, v) for p, n, v in leaves(lab.call) if isinstance(v, (bool, int, float, str))]
    for path, name, old in held:
        for new in other_values(name, old):
            yield phrase(op, name, old, new), {path: lambda _, v=new: v}
    floats = [(p, n, v) for p, n, v in held if isinstance(v, float) and n][:8]
    for (p, n, v), (q, m, w) in itertools.combinations(floats, 2):
        if v != w:
            yield f"the arguments {n} and {m} are exchanged (swapped)", {p: lambda _, w=w: w, q: lambda _, v=v: v}


def _tensors(call: Call, alone: bool = False) -> list[tuple[str, list[str], list[View]]]:
    """(argument name, paths, views): tensors of a call by argument; `alone` the only ones of theirs."""
    groups: dict[str, tuple[str, list[str], list[View]]] = {}
    for path, name, view in leaves(call):
        if isinstance(view, View) and 0 not in view.sizes:
            head = path if not path.startswith("args") else path.split("]")[0] + "]"
            found = groups.setdefault(f"{head}.{name}" if name else path, (name or view.argument or path, [], []))
            found[1].append(path)
            found[2].append(view)
    return [g for g in groups.values() if not alone or len(g[1]) == 1]


def optionals(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """The call without one of its tensors."""
    for name, paths, _ in _tensors(lab.call):
        kind = "bias is missing" if name in ("bias", "b") else "argument is ignored"
        kind = "mask is missing" if "mask" in name else kind
        yield f"dropped contribution: {name}, the {kind}", dict.fromkeys(paths, lambda _: None)


def tensors(lab: Lab, kind: str) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """A tensor that was read otherwise than it lies there: `kind` are masks and indices, those of a single
    number, as step counts are, or numbers."""
    for name, paths, views in _tensors(lab.call):
        single = all(n == 1 for n in views[0].sizes)
        if kind != ("masks" if not views[0].dtype.is_floating_point else "single" if single else "numbers"):
            continue
        sizes = {n for p, v in lab.call.views.items() if p not in paths and v.dtype.is_floating_point for n in v.sizes}
        for text, change in changes.of_tensor(name, views[0].dtype, views[0].sizes, len(views) > 1, sizes):
            yield text, {p: lambda t, p=p, c=change: c(t[p]) for p in paths}


def pairs(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Two tensors of one shape, as sines and cosines are, both shifted."""
    written = set(lab.call.written())
    held = [
        (n, p[0], v[0])
        for n, p, v in _tensors(lab.call, alone=True)
        if p[0] not in written and v[0].dtype.is_floating_point
    ]
    found = [(a, b) for a, b in itertools.combinations(held, 2) if a[2].sizes == b[2].sizes]
    for (n1, p1, v1), (n2, p2, _) in found if len(found) <= 6 else ():
        rows = [(f"index shifted by one: {n1} and {n2} along axis AXIS", 2, changes.rolled(by)) for by in (1, -1)]
        even = [n if n % 2 == 0 else 0 for n in v1.sizes]
        halves = [(words.replace("{}", f"{n1} and {n2}"), 4, change) for words, change in changes.HALVES]
        for text, change in (*changes.along(v1.sizes, rows), *changes.along(even, halves)):
            yield text, {p: lambda t, p=p, c=change: c(t[p]) for p in (p1, p2)}


def swaps(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Two arguments of one shape in each other's place, or the operands of an operator."""
    call = lab.call
    any_size = call.composite and not call.written()
    held = [(n, p[0], v[0]) for n, p, v in _tensors(call, alone=True)][:8]
    for (n1, p1, v1), (n2, p2, v2) in itertools.combinations(held, 2):
        if (any_size or tuple(v1.sizes) == tuple(v2.sizes)) and v1.dtype == v2.dtype:
            yield (
                f"the arguments {n1} and {n2} are exchanged (swapped)",
                {a: lambda t, b=b: t[b].clone() for a, b in ((p1, p2), (p2, p1))},
            )
    for node in lab.nodes():
        seen = [a for a in node.args[:2] if hasattr(a, "shape")]
        alike = len(seen) == 2 and len({(a.shape, a.dtype) for a in seen}) == 1 and not node.writes
        if alike and not any(map(lab.is_constant, seen)):  # which would be another constant
            yield (f"the operands of {node.name.strip('_')} are exchanged (swapped)", {node.place: _exchanged})


def _exchanged(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator with its first two operands exchanged; LookupError where it is given fewer."""
    if len(args) < 2:
        raise LookupError("one operand")
    return func(args[1], args[0], *args[2:], **kwargs)


def contiguous(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """Several tensors read as if they were contiguous: all that are not, and two of them."""
    written = set(lab.call.written())
    odd = [
        (n, p[0])
        for n, p, v in _tensors(lab.call, alone=True)
        if p[0] not in written and tuple(v[0].strides) != tuple(torch.empty(v[0].sizes, device="meta").stride())
    ]
    sets: list[Sequence[tuple[str, str]]] = [odd] if len(odd) > 1 else []
    sets += itertools.combinations(odd, 2) if 2 < len(odd) <= 6 else []
    for some in (*sets, *([one] for one in odd)):
        for again in (True, False):
            yield (
                f"wrong stride: {' and '.join(n for n, _ in some)} read as if contiguous",
                {p: lambda t, p=p, w=again: as_contiguous(t[p], w) for _, p in some},
            )


def as_contiguous(t: torch.Tensor, again: bool = False) -> torch.Tensor:
    """The first elements of the storage in a row, followed by zeros or, `again`, themselves;
    indices stay within those there are."""
    flat = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
    flat = flat[t.storage_offset() :]
    if flat.numel() < t.numel():
        more = flat.repeat(t.numel() // flat.numel()) if again else flat.new_zeros(t.numel() - flat.numel())
        flat = torch.cat([flat, more])
    out = flat[: t.numel()].reshape(t.shape).clone()
    return out if out.is_floating_point() or out.dtype == torch.bool else out.clamp(t.min(), t.max())
