# SPDX-License-Identifier: Apache-2.0
"""What a decomposition leaves free: the sign (phase) of each pair of vectors, a rotation among vectors of one
value, the order of complex eigenvalues. Results are brought to those of a reference before they are
compared. Of torch it needs products and `linalg.svd` of small matrices, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .indices import name_of_one
from .replay import base_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from .replay import Call

ALIKE = 64.0  # values no further apart than so many roundings of the largest are one value


@dataclass(frozen=True)
class Gauge:
    """Results of a decomposition, by number."""

    vectors: tuple[tuple[int, bool], ...]  # (result, whether its rows are the vectors, conjugated): what turns together
    values: int | None = None
    ordered: bool = True
    null: bool = False  # vectors of value 0 turn in each result for themselves


SVD = Gauge(((0, False), (2, True)), 1, null=True)
EIGH = Gauge(((1, False),), 0)
QR = Gauge(((0, False), (1, True)))
GAUGES = {
    "_linalg_svd": SVD,
    "linalg_svd": SVD,
    "svd": Gauge(((0, False), (2, False)), 1, null=True),
    "_linalg_eigh": EIGH,
    "linalg_eigh": EIGH,
    "linalg_eig": Gauge(((1, False),), 0, ordered=False),
    "linalg_qr": QR,
    "qr": QR,
}


def gauged_as(call: Call) -> str:
    """The decomposition whose results a call gives as they are; "" where it is none. `torch.svd` is one of its own,
    which turns what it was made of."""
    own = base_name(call.op)[1] if not hasattr(call.function, "__code__") else ""  # somebody's may be named so, too
    name = own if own in GAUGES else name_of_one(call)
    return name if name in GAUGES else ""


def in_gauge_of(
    call: Call, outputs: dict[str, torch.Tensor], truth: dict[str, torch.Tensor] | None
) -> dict[str, torch.Tensor]:
    """The outputs of a call with their vectors turned as near to those of a reference as the
    decomposition leaves free; as they are where it is none, or where they cannot be."""
    if not truth or not call.views:
        return outputs
    gauge = GAUGES.get(gauged_as(call))
    if gauge is None:
        return outputs
    view = next(iter(call.views.values()))
    paths = [f"out[{i}]" for i, _ in gauge.vectors]
    values = [] if gauge.values is None else [f"out[{gauge.values}]"]
    if not all(_comparable(outputs.get(p), truth.get(p)) for p in paths + values):
        return outputs
    dims, out = len(view.sizes), dict(outputs)
    mine, its = ([_vectors(of[p], dims, rows) for p, (_, rows) in zip(paths, gauge.vectors)] for of in (outputs, truth))
    spectrum: Any = None  # of a decomposition without values
    if values:
        spectrum = _numbers(truth[values[0]], dims - 1)
        spectrum = spectrum.reshape(-1, spectrum.shape[-1])
    if not gauge.ordered:
        order = _order(_numbers(outputs[values[0]], dims - 1).reshape(spectrum.shape), spectrum)
        out[values[0]] = _taken(outputs[values[0]], order, dims - 1)
        mine = [t.gather(-1, order.unsqueeze(-2).expand(t.shape)) for t in mine]
    tiny = (
        ALIKE * torch.finfo(view.dtype).eps * spectrum.abs().amax(-1, keepdim=True)
        if gauge.ordered and values
        else None
    )
    _turn(gauge.null, mine, its, spectrum, tiny, min(view.sizes[-2:]))
    for path, (_, rows), t in zip(paths, gauge.vectors, mine):
        out[path] = _back(t, outputs[path], dims, rows)
    return out


def _comparable(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return (
        a is not None
        and b is not None
        and a.shape == b.shape
        and a.numel() > 0
        and bool((a.isfinite() & b.isfinite()).all())
    )


def _numbers(t: torch.Tensor, dims: int) -> torch.Tensor:
    """In float64, complex where a last axis of pairs is beyond `dims`."""
    return torch.view_as_complex(t.double().contiguous()) if t.dim() > dims else t.double()


def _vectors(t: torch.Tensor, dims: int, rows: bool) -> torch.Tensor:
    """A matrix of vectors in columns for each matrix of a batch."""
    t = _numbers(t, dims)
    t = t.mH if rows else t
    return t.reshape(-1, *t.shape[-2:]).clone()


def _back(t: torch.Tensor, like: torch.Tensor, dims: int, rows: bool) -> torch.Tensor:
    t = t.mH if rows else t
    t = torch.view_as_real(t.resolve_conj().contiguous()) if like.dim() > dims else t
    return t.reshape(like.shape).to(like.dtype)


def _order(mine: torch.Tensor, its: torch.Tensor) -> torch.Tensor:
    """For each value of a reference the place of the nearest one that is not taken yet."""
    far = (mine.unsqueeze(-2) - its.unsqueeze(-1)).abs()
    order = torch.empty(its.shape, dtype=torch.int64)
    for i in range(its.shape[-1]):
        order[:, i] = far[:, i].argmin(-1)
        far.scatter_(2, order[:, i, None, None].expand(-1, far.shape[1], 1), torch.inf)
    return order


def _taken(t: torch.Tensor, order: torch.Tensor, dims: int) -> torch.Tensor:
    """Values in an order, in the form in which they were."""
    flat = _numbers(t, dims).reshape(order.shape).gather(-1, order)
    flat = torch.view_as_real(flat) if t.dim() > dims else flat
    return flat.reshape(t.shape).to(t.dtype)


def _turn(
    null: bool, mine: list[torch.Tensor], its: list[torch.Tensor], spectrum: Any, tiny: torch.Tensor | None, k: int
) -> None:
    """Turns vectors of `mine` in place: together those that belong together, the first `k`. `tiny`: how far apart
    values may be that are one; None where no two are. With `null` vectors of value 0 turn for themselves."""
    phases = _phase(sum((a.conj() * b).sum(-2)[:, :k] for a, b in zip(mine, its))).unsqueeze(-2)
    off = [
        sum((a[:, :, :k] * p - b[:, :, :k]).abs().square().sum(-2, keepdim=True) for a, b in zip(mine, its))
        for p in (phases, torch.ones_like(phases))
    ]
    phases = torch.where(_better(*off), phases, 1)
    for a in mine:
        a[:, :, :k] *= phases
    for i in _to_rotate(null, mine, spectrum, tiny, k):
        here, there, alone = [a[i] for a in mine], [b[i] for b in its], []
        for group in _groups(spectrum[i], tiny[i]) if tiny is not None else []:
            if tiny is not None and null and spectrum[i][group[0]].abs() <= tiny[i]:
                alone += group
            elif len(group) > 1:
                _rotate(here, there, group)
        for a, b in zip(here, there):
            _rotate([a], [b], [*alone, *range(k, a.shape[-1])])


def _to_rotate(null: bool, mine: list[torch.Tensor], spectrum: Any, tiny: torch.Tensor | None, k: int) -> Sequence[int]:
    """Which matrices have more to turn than phases: values that are alike, or null, or vectors beyond them."""
    if any(a.shape[-1] > k for a in mine):
        return range(len(mine[0]))
    if tiny is None:
        return []
    some = (spectrum.diff(dim=-1).abs() <= tiny).any(-1)
    found: list[int] = (some | (spectrum.abs() <= tiny).any(-1) if null else some).nonzero()[:, 0].tolist()
    return found


def _phase(inner: torch.Tensor) -> torch.Tensor:
    return torch.where(inner == 0, torch.ones_like(inner), torch.sgn(inner))


def _groups(values: torch.Tensor, tiny: torch.Tensor) -> list[list[int]]:
    """Places of values that are one value, those beside each other; of one alone, too."""
    near = (values.diff().abs() <= tiny).tolist()
    groups = [[0]]
    for i, same in enumerate(near):
        groups = [*groups[:-1], [*groups[-1], i + 1]] if same else [*groups, [i + 1]]
    return groups


def _rotate(mine: list[torch.Tensor], its: list[torch.Tensor], group: list[int]) -> None:
    """Turns the vectors of a group by the rotation that brings all of them nearest."""
    if not group:
        return
    u, _, vh = torch.linalg.svd(sum(a[:, group].mH @ b[:, group] for a, b in zip(mine, its)))
    turned = [a[:, group] @ (u @ vh) for a in mine]
    off = [
        sum((a - b[:, group]).abs().square().sum() for a, b in zip(given, its))
        for given in (turned, [a[:, group] for a in mine])
    ]
    if _better(*off):
        for a, t in zip(mine, turned):
            a[:, group] = t


def _better(turned: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """Whether squares of distances are smaller by more than the turn itself rounds."""
    return turned < given / 4


# ---- what is promised of a vector ------------------------------------------------------


def with_noise(call: Call, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs of a run with a rounding of its length on each element of a vector, and of the largest value
    on each value: so far, and no element better, is what algorithms promise (Weyl; Davis and Kahan)."""
    gauge = GAUGES.get(gauged_as(call)) if call.views else None
    if gauge is None:
        return outputs
    dims, out = len(next(iter(call.views.values())).sizes), dict(outputs)
    of_length = gauge.vectors[: 1 if gauge.values is None else None]  # R of qr is none
    for i, rows in of_length:
        t = outputs.get(f"out[{i}]")
        if t is not None and t.numel() and t.is_floating_point() and t.dim() >= dims:
            axis = (-1 if rows else -2) - (t.dim() > dims)
            out[f"out[{i}]"] = _noisy(t, t.norm(dim=axis, keepdim=True))
    t = outputs.get(f"out[{gauge.values}]")
    if t is not None and t.numel() and t.is_floating_point():
        axis = -1 - (t.dim() > dims - 1)
        out[f"out[{gauge.values}]"] = _noisy(t, t.abs().amax(axis, keepdim=True))
    return out


def _noisy(t: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    signs = 1 - 2 * (torch.arange(t.numel()) % 2).reshape(t.shape)
    return t + 0.5 * torch.finfo(t.dtype).eps * size * signs.to(t.dtype)
