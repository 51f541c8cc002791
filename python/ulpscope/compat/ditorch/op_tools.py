# SPDX-License-Identifier: Apache-2.0
"""ditorch's op_tools: seven tools, each a context manager with start and stop, and `apply_feature`.
They are ours (live_check, fallback, cast, ...) by their names.

Needs of torch: modes that work while a program trains."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import names

if TYPE_CHECKING:
    from types import TracebackType
    from typing_extensions import Self

# Variables that ditorch reads and that have no part here: what to do instead.
REFUSED = {
    "OP_TOOLS_MAX_CACHE_SIZE": "rows are written as they come",
    "AUTOCOMPARE_ERROR_TOLERANCE": "the verdict asks how many bits were lost, no tolerance",
    "OP_TOOLS_PRINT_STACK": "every finding has its stack",
    "DITORCH_SHOW_DEVICE_AS_CUDA": "devices keep their names",
    "DITORCH_DISABLE_MOCK": "nothing of torch is replaced",
}
RESULTS = "op_tools_results"
_said: set[str] = set()


def refused(environ: Mapping[str, str] | None = None) -> list[str]:
    """Sentences on variables that are set and have no effect here."""
    environ = os.environ if environ is None else environ
    found = []
    for key in sorted(environ):
        for name, why in REFUSED.items():
            if key == name or "AUTOCOMPARE_ERROR_TOLERANCE" in key and name.startswith("AUTO"):
                found.append(f"{key} has no effect: {why}")
        if key.endswith("_OP_DTYPE_CAST_DICT") and key != "OP_DTYPE_CAST_DICT":
            found.append(f"{key} has no effect: references are float64 for every operator")
    return found


def _say_refused() -> None:
    for sentence in refused():
        if sentence not in _said:
            _said.add(sentence)
            print(f"ulpscope: {sentence} (docs/how-to/migrate-ditorch.md)", file=sys.stderr)


class _Tool:
    """A tool: made for the names it is given, else for those of its variables."""

    PREFIX = ""

    def __init__(self, ops: Any = None) -> None:
        self.ops = ops
        self.mode: Any = None

    def _made(self, pattern: str) -> Any:
        raise NotImplementedError

    def start(self) -> Self:
        """Begins; nothing where the list means no operator."""
        _say_refused()
        pattern = names.pattern(self.PREFIX, self.ops)
        if not pattern:
            print(f"ulpscope: {type(self).__name__}: the list names no operator of this torch", file=sys.stderr)
            return self
        self.mode = self._made(pattern)
        self.mode.__enter__()
        return self

    def stop(self) -> None:
        """Ends; what is pending is waited for."""
        mode, self.mode = self.mode, None
        if mode is not None:
            mode.__exit__(None, None, None)
            self._ended(mode)

    end = stop  # docstrings there call it so

    def _ended(self, mode: Any) -> None:
        """What is to be said at the end."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is None or self.mode is None:
            self.stop()
            return False
        mode, self.mode = self.mode, None
        swallowed: bool | None = mode.__exit__(kind, value, trace)
        return swallowed


def _out(name: str) -> Path:
    """A new folder below op_tools_results."""
    base = Path(RESULTS).absolute() / name
    for n in range(1, 100000):
        folder = base / f"{os.getpid()}-{n}"
        if not folder.exists():
            return folder
    raise FileExistsError(f"{base} is full; remove it")


class OpAutoCompare(_Tool):
    """Judges every call while the block runs: `ulpscope.live_check`. Calls that do not pass are printed
    where a step ends and at the end, all rows lie in op_tools_results/op_autocompare_result, for
    `ulpscope report`. `.findings()` as there."""

    PREFIX = "OP_AUTOCOMPARE"

    def _made(self, pattern: str) -> Any:
        import ulpscope

        self.out = _out("op_autocompare_result")
        return ulpscope.live_check(ops=pattern, output=self.out, on_fail=self._put)

    def _put(self, finding: Any) -> None:
        where = f" in {finding.module}" if finding.module else ""
        print(f"OpAutoCompare: {finding.op}{where}, step {finding.step} ({finding.phase}): {finding.sentence}")

    def findings(self) -> list[Any]:
        """What does not pass so far."""
        found: list[Any] = self.mode.findings() if self.mode is not None else []
        return found

    def _ended(self, mode: Any) -> None:
        print(f"OpAutoCompare: {mode.n_judged} calls judged; ulpscope report {self.out}")
        if mode.not_judged():
            print(f"OpAutoCompare: {mode.not_judged()}")


class OpFallback(_Tool):
    """Computes the operators on the CPU: `ulpscope.fallback`."""

    PREFIX = "OP_FALLBACK"

    def _made(self, pattern: str) -> Any:
        import ulpscope

        return ulpscope.fallback(pattern)


class OpDtypeCast(_Tool):
    """Computes the operators in the dtype that OP_DTYPE_CAST_DICT says, "torch.bfloat16->torch.float32,...":
    `ulpscope.cast`. One dtype to go to: all floating arguments are cast to it."""

    PREFIX = "OP_DTYPE_CAST"

    def _made(self, pattern: str) -> Any:
        import ulpscope

        pairs = os.environ.get("OP_DTYPE_CAST_DICT") or "torch.float16->torch.float32,torch.bfloat16->torch.float32"
        to = {pair.partition("->")[2].strip().removeprefix("torch.") for pair in pairs.split(",") if pair.strip()}
        if len(to) != 1 or not all(to):
            raise ValueError(f"OP_DTYPE_CAST_DICT '{pairs}': one dtype to go to, as in torch.bfloat16->torch.float32")
        return ulpscope.cast(pattern, to.pop())


class OpCapture(_Tool):
    """Records the calls into op_tools_results/op_capture_results, a trace: `ulpscope.capture`."""

    PREFIX = "OP_CAPTURE"

    def _made(self, pattern: str) -> Any:
        import ulpscope

        self.out = _out("op_capture_results")
        return ulpscope.capture(self.out, ops=pattern)

    def _ended(self, mode: Any) -> None:
        print(f"OpCapture: ulpscope check {self.out} --device npu:0; ulpscope export --format ditorch {self.out}")


class OpObserve(_Tool):
    """Writes the arguments of every call as lines of JSON, below op_tools_results/op_observe_results:
    `ulpscope.observe`."""

    PREFIX = "OP_OBSERVE"

    def _made(self, pattern: str) -> Any:
        import ulpscope

        self.out = _out("op_observe_results")
        self.out.mkdir(parents=True)
        return ulpscope.observe(ops=pattern, output=self.out / "observed.jsonl")

    def _ended(self, mode: Any) -> None:
        print(f"OpObserve: {self.out / 'observed.jsonl'}")


class OpTimeMeasure(_Tool):
    """Times forward, backward and optimizer by operator, printed at the end: `ulpscope.time_ops`."""

    PREFIX = "OP_TIME_MEASURE"

    def _made(self, pattern: str) -> Any:
        import ulpscope

        return ulpscope.time_ops(ops=pattern)

    def _ended(self, mode: Any) -> None:
        print(mode.table())


class OpOverflowCheck(_Tool):
    """Names the calls at which NaN or Inf is born, printed at the end: `ulpscope.nan_tracker`."""

    PREFIX = "OP_OVERFLOW_CHECK"

    def _made(self, pattern: str) -> Any:
        import ulpscope

        return ulpscope.nan_tracker(ops=pattern)

    def _ended(self, mode: Any) -> None:
        for birth in mode.births():
            print(f"OpOverflowCheck: {birth.sentence}")


FEATURES: dict[str, type[_Tool]] = {
    "fallback": OpFallback,
    "autocompare": OpAutoCompare,
    "measure_op_time": OpTimeMeasure,
    "dump_op_args": OpObserve,
    "cast_dtype": OpDtypeCast,
    "op_capture": OpCapture,
    "overflow_check": OpOverflowCheck,
}


def apply_feature(ops: Any, feature: str, condition_func: Callable[..., Any] | None = None) -> Callable[[], None]:
    """
    Has a tool work whenever a Python function is called: `ops` is its dotted name, the function, or a
    list of these, `feature` a key of `FEATURES`. `condition_func(*args, **kwargs)`: only for calls for which it
    gives true. What the function calls below it is what the tool works on, forward; returns a
    function that takes it back.

    Raises ValueError for an unknown feature or name.
    """
    if feature not in FEATURES:
        raise ValueError(f"feature '{feature}': one of {', '.join(FEATURES)}")
    undo = [
        _patched(op, FEATURES[feature], condition_func) for op in (ops if isinstance(ops, (list, tuple)) else [ops])
    ]

    def take_back() -> None:
        while undo:
            undo.pop()()

    return take_back


def _place(op: Any) -> tuple[Any, str]:
    """(owner, name) of a function, by its dotted name or itself."""
    if callable(op):
        import torch

        name = torch.overrides.resolve_name(op) or f"{op.__module__}.{op.__qualname__}"
        return _place(name)
    parts = op.split(".")
    for i in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        with contextlib.suppress(AttributeError):
            for part in parts[i:-1]:
                owner = getattr(owner, part)
            getattr(owner, parts[-1])
            return owner, parts[-1]
    raise ValueError(f"'{op}' cannot be imported; write torch.nn.functional.linear")


def _patched(op: Any, tool: type[_Tool], condition: Callable[..., Any] | None) -> Callable[[], None]:
    owner, name = _place(op)
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if condition is not None and not condition(*args, **kwargs):
            return original(*args, **kwargs)
        with tool(ops=".*"):
            return original(*args, **kwargs)

    setattr(owner, name, wrapper)
    return lambda: setattr(owner, name, original)
