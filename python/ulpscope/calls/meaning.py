# SPDX-License-Identifier: Apache-2.0
"""What a call means by its dtype. torch fills some arguments that nobody gave from the dtype at
hand (the eps of rms_norm, the rank tolerance of pinv, the bounds of nan_to_num), and Python code
asks `x.dtype` to choose a constant or a branch. A replay in float64 would be another function:
it gets the answers of the dtypes that were captured. Serves `executors.precision` and `callable`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from .foreign import foreign, theirs

if TYPE_CHECKING:
    from .replay import Call

WORKED = (torch.float64, torch.float32)  # the dtypes of replays


# ---- arguments that torch fills from the dtype ----------------------------------------


@functools.cache
def _rms_eps(dtype: torch.dtype) -> float:
    """The eps of an rms_norm that is given none, as this torch has it: of numbers so small
    that nothing else is left under the root. torch has taken it from the dtype of the
    tensor and from the one that it computes in."""
    if dtype == torch.float64:
        return float(torch.finfo(dtype).eps)
    try:
        x = torch.full((1,), 2.0**-14 if dtype == torch.float16 else 2.0**-40, dtype=dtype)
        seen = float(x) ** 2 * (1 / float(torch.rms_norm(x, [1])) ** 2 - 1)
    except Exception as problem:  # no rms_norm in this dtype, or none in this torch
        foreign(problem)
        seen = torch.finfo(torch.float32).eps
    known: set[float] = {torch.finfo(d).eps for d in (dtype, torch.float32)}
    return min(known, key=lambda eps: abs(math.log(eps / seen)) if seen > 0 else eps)


def _rank_share(matrix: torch.Tensor) -> float:
    return float(torch.finfo(matrix.dtype).eps * max(matrix.shape[-2:]))


def _is_zero(value: Any) -> bool:
    return value is None or (not isinstance(value, torch.Tensor) and value == 0)


def _norm_given(
    input: torch.Tensor, normalized_shape: Any = None, weight: Any = None, eps: float | None = None
) -> dict[str, Any]:
    return {} if eps is not None else {"eps": _rms_eps(input.dtype)}


def _rank_given(
    input: torch.Tensor,
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    rcond: Any = None,
    out: Any = None,
) -> dict[str, Any]:
    chosen = [v for v in (tol, rtol, rcond) if v is not None]
    return {} if chosen or not _is_zero(atol) else {"rtol": _rank_share(input)}


def _lstsq_given(
    input: torch.Tensor, b: Any = None, rcond: Any = None, *, driver: Any = None, out: Any = None
) -> dict[str, Any]:
    return {} if rcond is not None else {"rcond": _rank_share(input)}


def _bounds_given(
    input: torch.Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None, *, out: Any = None
) -> dict[str, Any]:
    limits = torch.finfo(input.dtype)
    given = {"posinf": (posinf, limits.max), "neginf": (neginf, limits.min)}
    return {name: value for name, (asked, value) in given.items() if asked is None}


# Bare name -> (the names of its arguments in order, what fills those that were left out)
FILLED: dict[str, tuple[tuple[str, ...], Callable[..., dict[str, Any]]]] = {
    "rms_norm": (("input", "normalized_shape", "weight", "eps"), _norm_given),
    "_fused_rms_norm": (("input", "normalized_shape", "weight", "eps"), _norm_given),
    "linalg_pinv": (("input", "rcond", "hermitian"), _rank_given),
    "pinv": (("input", "rcond", "hermitian"), _rank_given),
    "linalg_matrix_rank": (("input", "tol", "hermitian"), _rank_given),
    "matrix_rank": (("input", "tol", "hermitian"), _rank_given),
    "linalg_lstsq": (("input", "b", "rcond"), _lstsq_given),
    "lstsq": (("input", "b", "rcond"), _lstsq_given),
    "nan_to_num": (("input", "nan", "posinf", "neginf"), _bounds_given),
}


def bare(name: str) -> str:
    """The bare name of an operator or a function: no namespace, overload or underscore behind."""
    return name.rpartition("::")[2].partition(".")[0].rstrip("_")


def filled(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments that an operator of that name fills from the dtype of its first one, by name;
    empty where it fills none."""
    names, fill = FILLED.get(name, ((), None))
    if fill is None:
        return {}
    given = dict(zip(names, args)) | {"input" if k in ("self", "A") else k: v for k, v in kwargs.items()}
    tensor = given.get("input")
    if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
        return {}
    return fill(**given) if given.keys() <= _keywords(fill) else {}  # else a form that is not known here


@functools.cache
def _keywords(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def with_filled(
    name: str, args: Sequence[Any], kwargs: dict[str, Any], values: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with those values in place of the ones that were left out."""
    names = FILLED[name][0]
    at = {names.index(k): v for k, v in values.items() if k in names and names.index(k) < len(args)}
    args = tuple(at.get(i, a) for i, a in enumerate(args))
    return args, kwargs | {k: v for k, v in values.items() if k not in names or names.index(k) not in at}


def fitted(schema: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The values as an operator's schema wants them: some overloads take them as tensors. None
    of them where it has no such argument."""
    types = {a.name: str(a.type) for a in schema.arguments}
    if not values.keys() <= types.keys():
        return {}
    return {k: torch.tensor(v, dtype=torch.float64) if "Tensor" in types[k] else v for k, v in values.items()}


def resolved(call: Call, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an operator's call with such arguments filled as in the dtype captured."""
    name = bare(call.op)
    ours = call.op.startswith("aten::")  # another library's operator of that name is its own
    if call.schema is None or not ours or name not in FILLED or not call.views:
        return function
    first = call.views.get(getattr(call.args[0] if call.args else None, "path", ""))
    like = first and torch.empty(first.sizes, dtype=first.dtype, device="meta")
    values = filled(name, (like, *call.args[1:]), call.kwargs) if first else {}
    values = fitted(call.schema, values)
    if not values:
        return function

    def run(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = with_filled(name, args, kwargs, values)
        return theirs(function, *args, **kwargs)

    return run


# ---- Python code that asks --------------------------------------------------------------

SIZES = {"element_size", "itemsize"}


def only_dtype(call: Call) -> torch.dtype | None:
    """The one float dtype of a call's tensors, None where there are several."""
    found = {v.dtype for v in call.views.values() if v.dtype.is_floating_point}
    return found.pop() if len(found) == 1 else None


def _filling(func: Callable[..., Any]) -> str:
    """The bare name of a function of torch that fills arguments; "" for others, also for an
    operator of another library that has such a name."""
    name = bare(getattr(func, "__name__", ""))
    whose = getattr(getattr(func, "_schema", None), "name", "") or getattr(func, "_qualified_op_name", "")
    return name if name in FILLED and whose.partition("::")[0] in ("", "aten") else ""


def _asked(func: Callable[..., Any], out: Any) -> str:
    """What is asked of a dtype by a function that gave this; "" where nothing is."""
    owner = getattr(func, "__self__", None)
    name = getattr(owner, "__name__", "") if getattr(func, "__name__", "") == "__get__" else ""
    name = name or getattr(func, "__name__", "")
    return name if isinstance(out, torch.dtype) or name in SIZES else ""


class Meaning(TorchFunctionMode):
    """Notes, in the dtypes given, every answer that hangs on them."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[str, Any]] = []  # (what was asked, the answer), in order

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _filling(func)
        values = filled(name, args, kwargs) if name else {}
        if values:
            self.answers.append((name, values))
        out = theirs(func, *args, **kwargs)
        asked = _asked(func, out)
        if asked:
            self.answers.append((asked, out))
        return out


class Meant(TorchFunctionMode):
    """Gives the answers noted. From the first question on that was not asked then, a replay
    gives its own; where nothing could be noted (None), those of `dtype`, if there is one."""

    def __init__(self, answers: list[tuple[str, Any]] | None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.answers, self.dtype, self.at = answers or [], None if answers is not None else dtype, 0

    def _answer(self, asked: str, own: Any) -> Any:
        """The next answer, the replay's own where another question was asked."""
        if self.dtype is not None:
            return self.dtype if asked == "dtype" and own in WORKED else own
        if self.at >= len(self.answers) or self.answers[self.at][0] != asked:
            self.at = len(self.answers)
            return own
        self.at += 1
        return self.answers[self.at - 1][1]

    def _filled(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self.dtype is None or not args or not isinstance(args[0], torch.Tensor):
            return filled(name, args, kwargs)
        like = torch.empty(args[0].shape, dtype=self.dtype, device="meta")
        return filled(name, (like, *args[1:]), kwargs)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _filling(func)
        values = self._filled(name, args, kwargs) if name else {}
        if values:
            values, schema = self._answer(name, values), getattr(func, "_schema", None)
            args, kwargs = with_filled(name, args, kwargs, fitted(schema, values) if schema else values)
        out = theirs(func, *args, **kwargs)
        asked = _asked(func, out)
        return self._answer(asked, out) if asked else out
