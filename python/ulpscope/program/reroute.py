# SPDX-License-Identifier: Apache-2.0
"""Operators computed another way while a program trains: on the CPU, in another dtype, by a
Python function. Which operator is guilty shows where the loss comes right.

The work is glue/intercept/reroute.cpp's, below autograd: gradients, optimizers and modes see
an operator as before. Needs of torch: the hooks of `mode`, and for `substitute` an operator's
schema and meta kernel.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..calls.shown import counted
from . import capture as _capture
from . import program_mode as _mode
from . import substituted as _substituted

if TYPE_CHECKING:
    import torch

_QUIET = ("time", "count", "reduction", "observe")
_UNSEEN = dict.fromkeys(("fallback", "cast", "substitute"), "computed another way") | {
    "time": "timed",
    "observe": "observed",
}
VARIABLE = "ULPSCOPE_REROUTE"
_FORM = '{"do": "fallback|cast|substitute", "ops": PATTERN, "dtype": DTYPE, "with": "module:function"}'


class Rerouted(_mode.ProgramMode):
    """What they have in common: a route of the glue, on while a step is in the scope."""

    def __init__(
        self,
        kind: str,
        ops: str,
        steps: _capture.Steps,
        ranks: _mode.Numbers,
        modules: str | None,
        threads: _mode.Numbers,
        step_by: str | None,
        dtype: str = "",
        function: _substituted.Function | None = None,
        draws: bool = False,
        **more: Any,
    ) -> None:
        if not isinstance(ops, str) or not ops.strip():
            raise ValueError(f"ops {ops!r}: a PATTERN of operators, '*' for all")
        super().__init__(_mode.Scope(ops, steps, ranks, modules, threads, step_by))
        self.kind, self.dtype, self.function, self.draws = kind, dtype, function, draws
        self.more = more  # of the route
        self.route: Any = None  # a _core.Reroute, while it is entered
        self.watch: Any = None
        self.modules: Any = None
        self.counted: dict[str, int] = {}  # of earlier blocks
        self.said: set[str] = set()
        self.NOUN = f"{kind}('{ops}')"
        self.UNSEEN = None if draws else _UNSEEN.get(kind)

    @property
    def n_calls(self) -> dict[str, int]:
        """How many calls of which operator were computed this way so far, as a dict."""
        total = dict(self.counted)
        for op, n in (self.route.calls() if self.route else {}).items():
            total[op] = total.get(op, 0) + n
        return total

    def _told(self) -> str:
        total = self.n_calls
        return f"{counted(sum(total.values()), 'call')} of {counted(len(total), 'operator')}, {self.NOUN}"

    def _titles_and_rows(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        rows: list[tuple[object, ...]] = [*sorted(self.n_calls.items(), key=lambda row: -row[1])]
        return ("operator", "calls"), rows

    def said_calls(self, most: int) -> list[str]:
        """ "aten::addmm: 12 calls on the CPU", a line for each operator, the most called first."""
        how = {"fallback": "on the CPU", "cast": f"in {self.dtype}", "substitute": "by the function given"}[self.kind]
        rows = sorted(self.n_calls.items(), key=lambda row: -row[1])
        more = [f"and {counted(len(rows) - most, 'more operator')}"] if len(rows) > most else []
        return [f"{op}: {counted(n, 'call')} {how}" for op, n in rows[:most]] + more

    def _begin(self, step: int) -> None:
        from .. import _core
        from . import glue as _glue
        from . import hooks as _hooks

        if self.route is not None:
            self.route.set_on(True)
            for prepare in _glue.before_modes:
                prepare()
            self.route.adopt()
            self.route.reset_place()
            if self.modules is not None:
                self.modules.forget()
            return
        for prepare in _glue.before_modes:
            prepare()
        self.route = _core.Reroute(
            str(_glue.ready("intercept")),
            self.kind,
            self.scope.ops or "",
            self.dtype,
            self.function,
            tuple(self.scope.threads or ()),
            self.draws,
            modules=self.scope.modules,
            **self.more,
        )
        self.watch = _hooks.Libraries(self.route)
        if self.scope.modules is not None:
            self.modules = _hooks.Modules(self.route)

    def _end(self, goes_on: bool) -> None:
        if not goes_on:
            self.route.set_on(False)
        self._say(self.route.problems())

    def _close(self) -> None:
        hooks, self.watch, self.modules = [self.watch, self.modules], None, None
        for hook in hooks:
            if hook is not None:
                hook.remove()
        if self.route is None:
            return
        n_operators, problems = self.route.n_operators(), self.route.problems()
        self.route.leave()
        self.counted, self.route = self.n_calls, None
        if self.kind in _QUIET or self.draws:
            pass  # no call to take is no mistake
        elif n_operators == 0:
            problems.append("no operator of this torch matches")
        elif not self.counted and not problems:
            problems.append(f"matched {n_operators} operators, none of which was called for it to take")
        self._say(problems)

    def _say(self, sentences: list[str]) -> None:
        """Each once."""
        for sentence in sentences:
            if sentence not in self.said:
                self.said.add(sentence)
                with contextlib.suppress(OSError, ValueError):
                    print(f"ulpscope: {self.NOUN}: {sentence}", file=sys.stderr)


class fallback(Rerouted):  # noqa: N801 - it is used like a function
    """
    Computes the operators that match the PATTERN `ops` on the CPU while the block runs.

        with ulpscope.fallback("aten::addmm,aten::mm"):
            train()

    Arguments move to the CPU, the CPU's kernel runs, results move back: in-place and out=
    arguments are written into their own memory, arguments that share memory share it there
    too, views and operators that only hand memory about stay where they are. Forward,
    backward and optimizer alike, fused and foreach ones included: the operator is replaced
    below autograd. A composite operator (aten::linear) stands for the calls below it,
    forward. What the CPU cannot do in half precision it does in float32, rounded once. Random
    operators draw from the CPU's generator, as on a CPU.

    `steps`, `ranks`, `modules`, `threads`, `step_by` as in `nan_tracker`; a backward call is of the
    module in which its autograd node was made, sums of gradients are of none. Modes nest: the innermost
    that matches computes a call. `.n_calls`: {operator: calls}. An operator that the CPU
    cannot do runs as it is, which is said on stderr, as is a PATTERN that took no call.
    Calls inside code that a compiler generated cannot be seen. Raises ValueError for bad arguments.
    """

    def __init__(
        self,
        ops: str,
        steps: _capture.Steps = None,
        ranks: _mode.Numbers = None,
        modules: str | None = None,
        threads: _mode.Numbers = None,
        step_by: str | None = None,
    ) -> None:
        super().__init__("fallback", ops, steps, ranks, modules, threads, step_by)


class cast(Rerouted):  # noqa: N801 - it is used like a function
    """
    Computes the operators that match the PATTERN `ops` in another floating dtype, on the
    device they are on.

        with ulpscope.cast("aten::native_layer_norm", "float32"):
            train()

    Floating arguments are cast, results are cast back to the dtypes that the operator gives
    by itself, which is tried once for each combination of dtypes. Conversions (to, copy_,
    clone) and views are left alone. `dtype`: a name or a torch.dtype. All else as in `fallback`.
    """

    def __init__(
        self,
        ops: str,
        dtype: str | torch.dtype,
        steps: _capture.Steps = None,
        ranks: _mode.Numbers = None,
        modules: str | None = None,
        threads: _mode.Numbers = None,
        step_by: str | None = None,
    ) -> None:
        super().__init__("cast", ops, steps, ranks, modules, threads, step_by, dtype=_dtype_name(dtype))


class substitute(Rerouted):  # noqa: N801 - it is used like a function
    """
    Computes an operator by a Python function, on the device it is on.

        def rms_norm(x, weight, eps):
            rstd = (x.float().pow(2).mean(-1, keepdim=True) + eps).rsqrt()
            return (x.float() * rstd).to(x.dtype) * weight, rstd

        with ulpscope.substitute("npu::npu_rms_norm", rms_norm):
            train()

    `fn` gets the operator's arguments, as its schema orders them, and returns what the operator
    returns: number, shapes and dtypes are held to the operator's meta kernel where it has one;
    what differs raises a ValueError with a sentence. Of an in-place operator the result is copied
    into the argument, unless `fn` wrote it itself, and into `out` where `fn` takes no such argument. Autograd stays the
    operator's own; of a composite operator it is that of `fn`. The operator called inside `fn` is the original. What
    `fn` raises reaches the program. `ops` may be a PATTERN. All else as in `fallback`.
    """

    def __init__(
        self,
        ops: str,
        fn: Callable[..., Any],
        steps: _capture.Steps = None,
        ranks: _mode.Numbers = None,
        modules: str | None = None,
        threads: _mode.Numbers = None,
        step_by: str | None = None,
    ) -> None:
        if not callable(fn):
            raise ValueError(f"fn {fn!r}: a function that takes the operator's arguments")
        function = _substituted.Function(fn)
        super().__init__("substitute", ops, steps, ranks, modules, threads, step_by, function=function)


class fp32_collectives(Rerouted):  # noqa: N801 - it is used like a function
    """
    Runs collectives that add (all_reduce, reduce, reduce_scatter; SUM, AVG, PRODUCT) over float16
    and bfloat16 tensors in float32 while the block runs: contributions are exact in float32, and
    the result is rounded once. Takes what DistributedDataParallel and FSDP send, too.

        with ulpscope.fp32_collectives():
            train()

    The backend computes the operation as it means it, AVG included; what is float32 already, and
    minima and maxima, run as they are. With async_op=True results are there when the work says so,
    not before. Tensors of half precision take thrice their memory while theirs runs. Every rank must
    enter it at the same step: `steps` and `step_by` as in `nan_tracker`, ranks cannot be
    chosen. `.n_calls`: {operator: calls}.
    """

    OPS = (
        "c10d::allreduce_,c10d::allreduce_coalesced_,c10d::reduce_,c10d::reduce_scatter_,"
        "c10d::_reduce_scatter_base_,c10d::reduce_scatter_tensor_coalesced_"
    )

    def __init__(self, steps: _capture.Steps = None, step_by: str | None = None) -> None:
        import torch.distributed  # noqa: F401 - its operators must be there

        super().__init__("reduction", self.OPS, steps, None, None, None, step_by)
        self.NOUN = "fp32_collectives()"


def _dtype_name(dtype: Any) -> str:
    import torch

    name = str(dtype).removeprefix("torch.")
    known = getattr(torch, name, None)
    if not isinstance(known, torch.dtype) or not known.is_floating_point:
        raise ValueError(f"dtype {dtype!r}: a floating dtype, such as 'float32'")
    return str(known).removeprefix("torch.")


def from_text(text: str) -> list[Rerouted]:
    """The modes that a JSON list describes, not entered; ValueError with a sentence for
    anything else."""
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: no JSON: {error}") from None
    if not isinstance(rows, list):
        raise ValueError(f"{VARIABLE}: a list of {_FORM}")
    return [_from_row(row) for row in rows]


def _from_row(row: Any) -> Rerouted:
    known = {"do", "ops", "dtype", "with", "steps", "ranks"}
    if not isinstance(row, dict) or not set(row) <= known or not isinstance(row.get("ops"), str):
        raise ValueError(f"{VARIABLE}: {json.dumps(row)}: {_FORM}")
    scope = {"steps": row.get("steps"), "ranks": row.get("ranks")}
    if row.get("do") == "fallback":
        return fallback(row["ops"], **scope)
    if row.get("do") == "cast":
        return cast(row["ops"], row.get("dtype", "float32"), **scope)
    if row.get("do") == "substitute":
        return substitute(row["ops"], _function_named(row.get("with")), **scope)
    raise ValueError(f"{VARIABLE}: do {row.get('do')!r}: fallback, cast or substitute")


class NotThere(ValueError):
    """A function by a name that no module has, an operator by one that torch has not."""

    refuses = True  # the bootstrap: the program is not to begin


def check_names(ops: str, noun: str) -> None:
    """Raises NotThere where a glob names operators of torch's own, to which nobody adds, and there is none."""
    from .. import _core
    from ..calls.torch_private import all_operator_names

    names = all_operator_names()
    for glob in filter(None, map(str.strip, (ops or "").split(","))):
        if not glob.startswith("aten::") or any(_core.match_pattern(glob, name) for name in names):
            continue
        near = difflib.get_close_matches(glob, {name.partition(".")[0] for name in names}, 1)
        raise NotThere(f"{noun}: this torch has no {glob}" + (f"; did you mean {near[0]}?" if near else ""))


def _check_function(module: str, path: str) -> None:
    """Raises NotThere where there is no such module, or no such name in it, as far as that shows without
    running it: a run of hours does not begin with a name mistyped."""
    top, _, inner = module.partition(".")
    spec = None if top == "__main__" or top in sys.modules else importlib.util.find_spec(top)
    if spec is None and top != "__main__" and top not in sys.modules:
        raise NotThere(f"{module}:{path}: no module {top} in the script's folder or on PYTHONPATH")
    if inner or spec is None or not str(spec.origin).endswith(".py"):
        return
    origin = str(spec.origin)
    tree = ast.parse(Path(origin).read_text(encoding="utf-8"), origin)
    names, first = set(), path.partition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    if first not in names and not names & {"*", "__getattr__"}:
        near = difflib.get_close_matches(first, names, 1)
        raise NotThere(
            f"{module}:{path}: {spec.origin} has no {first}" + (f"; did you mean {near[0]}?" if near else "")
        )


def _function_named(name: Any) -> Callable[..., Any]:
    """The function "module:function", imported when it is first called: the program's own
    modules may not be importable yet. ValueError for another form, and for one that is not there."""
    module, _, path = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not module or not path:
        raise ValueError(f"{VARIABLE}: with {name!r}: 'module:function'")
    _check_function(module, path)
    found: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not found:
            target: Any = importlib.import_module(module)
            for part in path.split("."):
                target = getattr(target, part)
            found.append(target)
        return found[0](*args, **kwargs)

    return call


def from_environment() -> list[Any]:
    """
    Enters the modes that the variable ULPSCOPE_REROUTE describes, for the rest of the process;
    returns them, the outermost first. It is a JSON list of
    {"do": "fallback|cast|substitute", "ops": PATTERN, "dtype": "float32",
    "with": "module:function"}, with "steps" and "ranks" where not all are meant.

    Raises ValueError with a sentence where it is something else.
    """
    modes = from_text(os.environ.get(VARIABLE) or "[]")
    for entered in modes:
        check_names(entered.scope.ops or "", entered.NOUN)
    for entered in modes:
        entered.__enter__()
    return modes
