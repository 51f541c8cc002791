# SPDX-License-Identifier: Apache-2.0
"""Attention with NaN or Inf in what a mask hides. A hidden key has weight 0: one form of attention
multiplies it by what is there, and 0 NaN is NaN; another one never reads it, and kernels in tiles do
either from tile to tile. So the call may be held to the form that reads no hidden key, and where a hidden
one reaches NaN is as good. Serves `readings`. Of torch it needs its softmax and `einsum`.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from ..calls.arguments import arguments_of
from ..calls.callable import learn
from ..calls.replay import Call, base_name, bind_exact, is_composite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from ..calls.callable import Composite

OWN = (
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
    torch.nn.functional.scaled_dot_product_attention,
)
MOST = 1 << 26  # products of weights and values
NOTE = "NaN or Inf of a hidden key: one form of attention multiplies it by 0, another does not read it"

CallT = TypeVar("CallT", bound=Call)


def unread(call: Call) -> tuple[Call, dict[str, torch.Tensor]] | None:
    """(the call in the form that reads no hidden key, path -> which elements a hidden one may reach); None where
    nothing hidden is NaN."""
    if is_composite(call) and call.function not in OWN:
        return _within(call)
    given = _arguments(call)
    reached = None if given is None else _reached(given)
    if reached is None or not bool(reached.any()):
        return None
    return _otherwise(call, _Unread(call.function)), {"out[0]": reached}


def _otherwise(call: CallT, function: Callable[..., Any]) -> CallT:
    other = copy.copy(call)
    other.function = function
    if is_composite(other):
        learn(other)
    return other


def _within(call: Composite) -> tuple[Call, dict[str, torch.Tensor]] | None:
    """The same of a callable that calls attention: what a hidden key may reach is NaN behind it as well."""
    if not any("scaled_dot_product" in name for name in call.names):
        return None
    unread, reached = (_otherwise(call, _Replaced(call.function, form)) for form in (_unread_form, _reached_form))
    if unread.native is None or reached.native is None:
        return None
    kept = {p: t for p, t in reached.native.items() if p in unread.native and t.is_floating_point()}
    marks = {p: t.isnan() & ~unread.native[p].isnan() for p, t in kept.items()}
    marks = {p: where for p, where in marks.items() if bool(where.any())}
    return (unread, marks) if marks else None


def _named(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = OWN[1]._schema.arguments
    return {a.name: a.default_value for a in names} | dict(zip((a.name for a in names), args)) | kwargs


def _arguments(call: Call) -> dict[str, Any] | None:
    """The arguments of a call of the operator, of torch's own function for it too; None of all others."""
    if call.composite:
        bound = bind_exact(call, lambda captured: "cpu")
        return _named(bound.args, bound.kwargs)
    if call.schema is None or base_name(call.op)[1] != "scaled_dot_product_attention":
        return None
    return arguments_of(call, bind_exact(call, lambda captured: "cpu").tensors)


def _wide(value: Any) -> Any:
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floats else value


def _shared(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Iterator[torch.Tensor]:
    """Keys and values for each head of the queries."""
    heads = q.shape[-3] if q.dim() > 2 else 1
    return (t if t.dim() < 3 or t.shape[-3] == heads else t.repeat_interleave(heads // t.shape[-3], -3) for t in (k, v))


def _hidden(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, causal: bool) -> torch.Tensor | None:
    """Which keys a query must not see; None where no mask says so."""
    if causal:
        return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril().logical_not()
    if mask is None:
        return None
    return ~mask if mask.dtype == torch.bool else mask == -math.inf


def _reached(given: dict[str, Any]) -> torch.Tensor | None:
    """The elements of the result that a hidden key makes NaN in the form that multiplies it by 0: all of a
    query's that is not finite times the key, or may overflow there, and the columns in which its value is not.
    Also those of a query that sees keys, all of which weigh exp(-Inf): 0 / 0, or 0 as where all are hidden, which is
    0 alone."""
    if given.get("dropout_p") or not given["query"].is_floating_point():
        return None
    q, scale = given["query"], given["scale"]
    k, v = _shared(q, given["key"], given["value"])
    hidden = _hidden(q, k, given["attn_mask"], given["is_causal"])
    if hidden is None or 0 in (*q.shape, *k.shape):
        return None
    size = torch.einsum("...qe,...ke->...qk", q.double().abs(), k.double().abs())
    top = torch.finfo(q.dtype).max / max(1.0, scale or 0.0)
    score = hidden & ~(size < top)
    if score.numel() * v.shape[-1] > MOST:
        return None
    odd, hidden = (~v.isfinite()).double(), hidden.expand(score.shape).double()
    none = _scores(_wide(q), _wide(k), given["attn_mask"], given["is_causal"], scale) == -math.inf
    none = none.all(-1, keepdim=True) & (hidden == 0).any(-1, keepdim=True)
    return score.any(-1, keepdim=True) | none | (torch.einsum("...qk,...ke->...qe", hidden, odd) > 0)


class _Unread:
    """The operator, computed so that no hidden key is read."""

    def __init__(self, operator: Any) -> None:
        for name in ("_schema", "_name", "tags"):
            if hasattr(operator, name):
                setattr(self, name, getattr(operator, name))

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return _attend(*args, **kwargs)


class _Replaced(TorchFunctionMode):
    """A callable with its attention in another form: (operator, arguments) -> its result."""

    def __init__(self, function: Callable[..., Any], form: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.form = function, form

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self:
            return self.function(*args, **kwargs)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.form(func, args, kwargs or {}) if func in OWN else func(*args, **(kwargs or {}))


def _unread_form(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    given = _named(args, kwargs)
    hides = _hidden(given["query"], given["key"], given["attn_mask"], given["is_causal"]) is not None
    return func(*args, **kwargs) if given["dropout_p"] or not hides else _attend(*args, **kwargs)


def _reached_form(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    reached, out = _reached(_named(args, kwargs)), _unread_form(func, args, kwargs)
    return out if reached is None else torch.where(reached, math.nan, out)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention that reads no hidden key; 0 for a query that sees none, as torch has it."""
    key, value = _shared(query, key, value)
    scores = _scores(query, key, attn_mask, is_causal, scale)
    weights = torch.where((scores == -math.inf).all(-1, keepdim=True), 0, scores.softmax(-1))
    hidden: Any = _hidden(query, key, attn_mask, is_causal)  # else nobody asks for this form
    hidden = hidden.unsqueeze(-1)
    return torch.where(hidden, 0, weights.unsqueeze(-1) * value.unsqueeze(-3)).sum(-2)


def _scores(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float | None
) -> torch.Tensor:
    scores = torch.einsum("...qe,...ke->...qk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask
    return torch.where(_hidden(q, k, mask, causal), -math.inf, scores)
