# SPDX-License-Identifier: Apache-2.0
"""`inputs="stress"`: from one example call, the calls on which kernels break: hard values,
awkward sizes, other memory layouts. Serves `check_call`, which judges each of them.

The example says shapes, dtypes and domain: what holds small integers only (labels, masks)
keeps its values, what is never negative stays so, what lies in [0, 1] stays there.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.foreign import foreign
from ..calls.older import zip_equal
from ..calls.nested import mapped
from ..calls.replay import counts_only
from ..calls.verdicts import FLAGGED, UNTOLD, rank

if TYPE_CHECKING:
    from .call_verdict import CallVerdict

N_SYMBOLS = 4  # distinct sizes that are varied, the first met first
MAX_ELEMENTS = 1 << 22  # a resized tensor is no larger


@dataclass
class Case:
    """One variant of the example call."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def parse(text: str) -> tuple[int, str]:
    """(seed, pattern of case names) of `inputs="stress[:SEED[:PATTERN]]"`; ValueError."""
    head, _, rest = text.partition(":")
    seed, _, pattern = rest.partition(":")
    if head != "stress":
        raise ValueError(f'inputs {text!r} is unknown; known: "given", "stress[:SEED[:CASES]]"')
    if seed and not seed.isdigit():
        raise ValueError(f"inputs {text!r}: the seed {seed!r} is no number; write stress:7")
    return int(seed or 0), pattern


def takes(pattern: str, name: str) -> bool:
    """Whether a pattern (globs, comma-separated, `!` excludes) takes a case."""
    globs = [glob.strip() for glob in pattern.split(",") if glob.strip()]
    plain = [glob for glob in globs if glob[0] != "!"]
    wanted = not plain or any(fnmatchcase(name, glob) for glob in plain)
    return wanted and not any(glob[0] == "!" and fnmatchcase(name, glob[1:].strip()) for glob in globs)


# ---- values --------------------------------------------------------------------------


# Kinds of values by `_core.stress`; the order is that of USC_STRESS_LIST: case k of a seed.
VALUES = (
    "wide-exponents",
    "cancellation",
    "common-offset",
    "zeros",
    "all-zeros",
    "subnormals",
    "near-overflow",
    "ties",
    "outliers",
    "nan",
    "inf",
)


def _drawn(tensor: torch.Tensor, kind: str, seed: int, place: int) -> torch.Tensor:
    """A tensor of the same form with values of a kind; what is no float, or counts, stays."""
    if not tensor.is_floating_point() or tensor.numel() == 0 or counts_only(tensor.detach().flatten()):
        return tensor
    stream = VALUES.index(kind) << 32 | place
    raw = _core.stress(kind, tensor.detach().cpu(), seed, stream)
    return _like(tensor, torch.frombuffer(raw, dtype=tensor.dtype).reshape(tensor.shape))


def _like(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values in the memory layout, on the device and with the gradient flag of a tensor."""
    if _overlaps(tensor):
        return values.to(tensor.device).requires_grad_(tensor.requires_grad)
    form = tuple(tensor.shape), tuple(tensor.stride())
    out = torch.empty_strided(*form, dtype=tensor.dtype, device=tensor.device)
    return out.copy_(values).requires_grad_(tensor.requires_grad)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether the tensor may show one place of memory twice (expanded)."""
    return any(s == 0 and n > 1 for n, s in zip_equal(tensor.shape, tensor.stride()))


# ---- sizes ---------------------------------------------------------------------------


def symbols(shapes: Iterable[Sequence[int]]) -> list[int]:
    """The distinct sizes above 1 among shapes, as they are met. Dimensions of one size
    are taken for the same one."""
    found = dict.fromkeys(n for shape in shapes for n in shape if n > 1)
    return list(found)[:N_SYMBOLS]


def awkward(n: int) -> list[int]:
    """Sizes to put in place of n: none, one, odd, prime, one above a power of two."""
    prime = next(p for p in range(n, 2 * n + 3) if p > 2 and all(p % d for d in range(2, math.isqrt(p) + 1)))
    above = 2 ** math.floor(math.log2(n)) + 1
    return [s for s in dict.fromkeys((0, 1, 3, prime, above)) if s != n]


def _volume(tensor: torch.Tensor, old: int, new: int) -> int:
    return math.prod(new if n == old else n for n in tensor.shape)


def _resized(tensor: torch.Tensor, old: int, new: int) -> torch.Tensor:
    """A tensor with every dimension of size `old` made `new`, content repeated."""
    if old not in tensor.shape:
        return tensor
    out = tensor.detach()
    for dim, n in enumerate(tensor.shape):
        if n == old:
            places = torch.arange(new, device=out.device) % old
            out = out.index_select(dim, places)
    return out.contiguous().requires_grad_(tensor.requires_grad)


def within(tensor: torch.Tensor, old: int, new: int, first: int = 0) -> torch.Tensor:
    """Indices into a dimension that was `old` long, drawn into the `new` places from `first` on."""
    if tensor.dtype not in (torch.int32, torch.int64) or not tensor.numel() or not new:
        return tensor
    return (tensor - first) % new if new <= int(tensor.max()) < old else tensor


# ---- layouts -------------------------------------------------------------------------


def _transposed(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.ndim < 2:
        return None
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _sliced(tensor: torch.Tensor) -> torch.Tensor | None:
    """Every second element of memory twice as wide, filled with what must not be read."""
    if not tensor.ndim or not tensor.numel():
        return None
    room = _canary((*tensor.shape[:-1], 2 * tensor.shape[-1]), tensor)
    room[..., ::2] = tensor
    return room[..., ::2]


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    """One element behind the start of its memory."""
    room = _canary((tensor.numel() + 2,), tensor)
    room[1:-1] = tensor.reshape(-1)
    return room[1:-1].view(tensor.shape)


def _expanded(tensor: torch.Tensor) -> torch.Tensor | None:
    """The first row for all of them, without memory of their own."""
    if tensor.ndim < 2 or tensor.shape[0] < 2:
        return None
    return tensor[:1].contiguous().expand(tensor.shape)


def _canary(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Memory of a form with NaN (or the largest integer) in it."""
    if like.dtype.is_floating_point or like.dtype.is_complex:
        fill: float = math.nan
    else:
        fill = True if like.dtype == torch.bool else torch.iinfo(like.dtype).max
    return torch.full(shape, fill, dtype=like.dtype, device=like.device)


LAYOUTS = {"transposed": _transposed, "sliced": _sliced, "storage-offset": _offset, "expanded": _expanded}


# ---- all of them ---------------------------------------------------------------------


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Every tensor among arguments, each once."""
    found: dict[int, torch.Tensor] = {}

    def walk(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.setdefault(id(value), value)
        elif isinstance(value, (list, tuple)):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            for item in value.values():
                walk(item)

    walk(value)
    return list(found.values())


def changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Arguments with every tensor replaced; one that stands twice stays one."""
    memo = {}

    def once(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in memo:
            memo[id(value)] = change(value)
        return memo[id(value)]

    return mapped(value, once)


def cases(args: Sequence[Any], kwargs: dict[str, Any], seed: int = 0, pattern: str = "") -> Iterator[Case]:
    """Every case of an example call whose name the pattern takes, each made from the
    example and the seed alone. The example itself comes first, as "given"."""
    tensors = tensors_of((args, kwargs))
    places = {id(t): place for place, t in enumerate(tensors)}
    for name, change in _changes(tensors, places, seed):
        if takes(pattern, name):
            yield Case(name, *changed((tuple(args), dict(kwargs)), change))


def _changes(
    tensors: list[torch.Tensor], places: dict[int, int], seed: int
) -> Iterator[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    """(name, change of a tensor) of every case."""
    yield "given", lambda t: t
    for kind in VALUES:
        yield kind, functools.partial(_drawn_at, kind, seed, places)
    for old in symbols(t.shape for t in tensors):
        for new in awkward(old):
            if any(_volume(t, old, new) > MAX_ELEMENTS for t in tensors):
                continue
            yield f"size-{old}-to-{new}", functools.partial(_within, old, new)
    for name, layout in LAYOUTS.items():
        if any(layout(t.detach()) is not None for t in tensors):
            yield name, functools.partial(_laid, layout=layout)


def _drawn_at(kind: str, seed: int, places: dict[int, int], tensor: torch.Tensor) -> torch.Tensor:
    return _drawn(tensor, kind, seed, places[id(tensor)])


def _within(old: int, new: int, tensor: torch.Tensor) -> torch.Tensor:
    return within(_resized(tensor, old, new), old, new)


def _laid(tensor: torch.Tensor, layout: Callable[[torch.Tensor], torch.Tensor | None]) -> torch.Tensor:
    out = layout(tensor.detach())
    return tensor if out is None else out.requires_grad_(tensor.requires_grad)


# ---- judging them ---------------------------------------------------------------------


@dataclass
class CaseVerdict:
    """What became of one stress case: its verdict, or why there is none."""

    name: str
    inputs: str  # what `inputs=` runs this case alone
    verdict: CallVerdict | None = None
    skipped: str = ""
    refused: bool = False  # it raises what the reference computes

    @property
    def passed(self) -> bool:
        """Whether nothing was found; cases that float32 cannot compute either, or a runtime refuses, say nothing."""
        return self.verdict is None or self.verdict.verdict in ("pass", *UNTOLD)


def check_all(check: Any, args: Sequence[Any], kwargs: dict[str, Any], inputs: str) -> Any:
    """The verdict of the worst of all stress cases. The example itself must be judged; of
    the others, those that cannot be are counted only."""
    seed, pattern = parse(inputs)
    found = []
    with _recompiling():
        for case in cases(args, kwargs, seed, pattern):
            entry = CaseVerdict(case.name, f"stress:{seed}:{case.name}")
            found.append(entry)
            entry.skipped = check.refuses(case.args, case.kwargs)
            if not entry.skipped:
                entry.verdict, entry.refused = _case(check, case, f"stress case {case.name}, seed {seed}")
    if not found:
        raise ValueError(f"inputs {inputs!r} takes no case of this call")
    judged = [c for c in found if c.verdict is not None and c.verdict.verdict not in UNTOLD]
    if not judged or (found[0].name == "given" and found[0] not in judged):
        if found[0].verdict is None:
            raise ValueError(f"the reference refuses the arguments: {found[0].skipped}")
        return replace(found[0].verdict, cases=found)
    worst = min(judged, key=_order).verdict
    assert worst is not None  # of those that were judged
    return replace(worst, cases=found)


def _order(case: Any) -> tuple[bool, bool, int, float]:
    """Worst first; a size that is refused says less than any number that is off, and hides none."""
    flagged = case.verdict.verdict in FLAGGED
    return not flagged, case.refused and flagged, rank(case.verdict.verdict), case.verdict.effective_bits


def _case(check: Any, case: Case, note: str) -> tuple[CallVerdict, bool]:
    """(verdict, whether the case was refused)."""
    try:
        return check.run(case.args, case.kwargs, note), False
    except Exception as problem:
        foreign(problem)
        if case.name == "given":
            raise
        return check.failed(problem, note), True


@contextmanager
def _recompiling() -> Iterator[None]:
    """Lets torch.compile make code for every case; it would fall back to eager after a few
    and what it generates were not looked at."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        yield
        return
    with dynamo.config.patch(recompile_limit=256, accumulated_recompile_limit=4096):
        yield
