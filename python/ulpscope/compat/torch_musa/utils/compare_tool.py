# SPDX-License-Identifier: Apache-2.0
"""CompareWithCPU, NanInfTracker and their like, with the arguments of the manual. What they do is
`live_check` and `nan_tracker`; here are names, log files and the cases that are saved.

Needs of torch: modes that work while a program trains, and operators to run a saved case again."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .... import _core
from ....program.capture import rank_and_world
from ....program.live import live_check
from ....program.nan import nan_tracker

if TYPE_CHECKING:
    from types import TracebackType
    from typing_extensions import Self
    import torch

FOREVER = range(sys.maxsize)
PASSES = ("pass", "undefined")
UNTOLD = ("internal", "unjudged", "unsupported")


def pattern(targets: Any, whites: Any) -> str | None:
    """A PATTERN for lists of operators, written "torch.ops.aten.addmm", "aten::addmm", or torch's
    own objects; None: all. A TypeError for a list that is none."""
    parts = [_name(t) for t in _listed(targets)] or (["*"] if whites else [])
    return ",".join([*parts, *(f"!{_name(w)}" for w in _listed(whites))]) or None


def _listed(names: Any) -> list[Any]:
    if names is None:
        return []
    if isinstance(names, str):
        raise TypeError(f"a list of operators is needed, not the text {names!r}: ['{names}']")
    return list(names)


def _name(op: Any) -> str:
    name = op if isinstance(op, str) else str(op)
    if not isinstance(op, str):
        name = name if name.startswith("torch.ops.") else f"torch.ops.{name}"
    if name.startswith("torch.ops."):
        space, _, rest = name[len("torch.ops.") :].partition(".")
        return f"{space}::{rest.removesuffix('.default')}"
    return name


def old_name(op: str) -> str:
    """ "torch.ops.aten.add.Tensor" of "aten::add.Tensor"."""
    return f"torch.ops.{op.replace('::', '.')}"


class Log:
    """Lines for people, on stdout or in a file of this rank that begins anew with a process."""

    begun: set[Path] = set()

    def __init__(self, name: str, to_file: bool, folder: str | Path | None) -> None:
        self.path: Path | None = None
        if to_file:
            rank, world = rank_and_world()
            ranked = f"{name}_rank{rank}" if world > 1 else name
            self.path = Path(folder or ".").absolute() / f"{ranked}.txt"
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self.step: int | None = None
        if self.path not in self.begun:
            if self.path is not None:
                self.path.write_text("")
                self.begun.add(self.path)
            self.put(time.strftime("%Y-%m-%d, %H:%M:%S"))

    def put(self, text: str) -> None:
        """Writes a line; a full disk is the mode's trouble, not the program's."""
        if self.path is None:
            print(text)
            return
        with open(self.path, "a", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")

    def of_step(self, step: int) -> None:
        """Begins the lines of a step."""
        if step != self.step:
            self.step = step
            self.put(f"----- step = {step} -----")


class _Tool:
    """What both tools have: when they work, and on which operators."""

    FILE = ""

    def __init__(
        self,
        enabled: bool,
        target: Any,
        white_list: Any,
        enable_ranks: Any,
        to_file: bool,
        folder: str | Path | None,
        start: int | None,
        end: int | None,
    ) -> None:
        first = 0 if start is None else int(start)
        steps = range(first, FOREVER.stop if end is None else int(end))
        self.scope: dict[str, Any] = {
            "ops": pattern(target, white_list),
            "ranks": enable_ranks,
            "step_by": "manual",
            "steps": None if steps == FOREVER else steps,
        }
        self.enabled, self.to_file, self.folder = enabled and len(steps) > 0, to_file, folder
        self.white_list = [_name(w) for w in _listed(white_list)]
        self.mode: live_check | nan_tracker | None = None
        self.log: Log | None = None

    @property
    def step_cnt(self) -> int:
        """How many steps `step()` has ended."""
        return self.mode.now if self.mode is not None else 0

    def step(self) -> None:
        """Ends a step."""
        if self.mode is not None:
            self.mode.step()

    def _made(self) -> live_check | nan_tracker:
        raise NotImplementedError

    def __enter__(self) -> Self:
        if self.enabled:
            self.mode = self._made()
            self.mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        return self.mode.__exit__(kind, value, trace) if self.mode is not None else False

    def _is_white(self, op: str) -> bool:
        """Whether an operator is not compared, also where it is called by one that is."""
        return bool(self.white_list) and _core.match_pattern(",".join(self.white_list), op)

    def _open_log(self) -> Log:
        if self.log is None:
            self.log = Log(self.FILE, self.to_file, self.folder)
            for name in self.white_list:
                self.log.put(f"{old_name(name)} is in white_list, pass")
        return self.log


class _Live(live_check):
    """A live check that hands on every call that it judged, where a step ends."""

    def __init__(self, tool: CompareWithCPU, **scope: Any) -> None:
        super().__init__(**scope)
        self.settings["all"] = True
        self.tool = tool

    def _tell(self) -> None:
        if self.judge is None:
            return
        if not self.hooks.active or self.tool.dump:
            self.judge.wait()
        with self.judge.news:
            new = self.judge.rows[:]
            del self.judge.rows[:]  # a run has many
        first = None
        with self._guarded():
            first = self.tool.heard(new)
        if self.tool.dump and first is not None:
            raise Exception(first)  # as there: the run ends with the first


class CompareWithCPU(_Tool):
    """
    Compares what every operator gives while the block runs, and writes a log that is searched for
    `[ERROR]` and `[WARNING]`.

        with CompareWithCPU(atol=0.001, rtol=0.001, target_op=["torch.ops.aten.addmm"]) as compare:
            for batch in loader:
                train(batch)
                compare.step()

    `[ERROR]`: the verdict of `ulpscope check` accuses the call, its sentence follows; `[WARNING]`:
    nobody could judge it. `atol` and `rtol` are named in the log and decide nothing: a result that
    is rounded as it should be passes, whatever they are, and a wrong one does not.
    `target_op`, or `target_list`: these operators alone; `white_list`: not these. Only where
    start_step <= step_cnt < end_step, and on `enable_ranks`. `dump_error_data`: the inputs and outputs
    of the first call that does not pass are kept in `output_dir`, and the run ends with an
    exception. `should_log_to_file`: into `output_dir`/compare_result.txt, _rankN of several ranks.
    Lines of a step come when it has been judged, at the latest at the end of the block.
    """

    FILE = "compare_result"

    def __init__(
        self,
        enabled: bool = True,
        atol: float = 1e-3,
        rtol: float = 1e-3,
        target_list: Any = None,
        white_list: Any = None,
        dump_error_data: bool = False,
        verbose: bool = True,
        enable_ranks: Any = None,
        should_log_to_file: bool = False,
        output_dir: str | Path | None = "",
        start_step: int | None = None,
        end_step: int | None = None,
        target_op: Any = None,
    ) -> None:
        super().__init__(
            enabled,
            target_list or target_op,
            white_list,
            enable_ranks,
            should_log_to_file,
            output_dir,
            start_step,
            end_step,
        )
        self.atol, self.rtol, self.verbose, self.dump = atol, rtol, verbose, dump_error_data

    def _made(self) -> live_check:
        return _Live(self, **self.scope, **self._kept())

    def _kept(self) -> dict[str, Any]:
        if not self.dump:
            return {}
        folder = Path(self.folder or ".").absolute() / "ulpscope_error_data"
        return {"on_fail": "dump", "output": folder}

    def heard(self, rows: Iterable[Any]) -> str | None:
        """Writes what was judged; the sentence of the first call that fails, None for none."""
        first, log = None, self._open_log()
        for row in rows:
            if self._is_white(row["op"]):
                continue
            log.of_step(row["step"])
            name = f"{row['module'] + '/' if row['module'] else ''}{old_name(row['op'])}({row['phase']})"
            if row["verdict"] in PASSES:
                if self.verbose:
                    log.put(f"{name} succeeds to pass CompareWithCPU test")
            elif row["verdict"] in UNTOLD:
                log.put(f"[WARNING]  {name} has not been tested: {row['sentence']}")
            else:
                self._put_error(log, name, row)
                if self.dump and first is None:
                    first = f"{name} fails to pass CompareWithCPU test: {row['sentence']}"
                    self._keep(log, row)
        return first

    def _put_error(self, log: Log, name: str, row: Any) -> None:
        log.put(f"[ERROR]  {name} fails to pass CompareWithCPU test")
        log.put(f"...... {row['verdict']} ......\n{row['sentence']}")
        log.put(f"...... input ......\n{row['args'] or ''}")
        if row["output"]:
            log.put(f"...... output ......\n{row['output']}")
        for file, line, function in json.loads(row["stack"] or "[]")[:1]:
            log.put(f"...... code ......\n{file}:{line} {function}")
        log.put(f"...... asked: atol={self.atol}, rtol={self.rtol}, which decide nothing here ......")

    def _keep(self, log: Log, row: Any) -> None:
        """A file under the old name that says where the case lies: a trace, no pickle."""
        trace, _, call = row["trace"].rpartition("#")
        rank, world = rank_and_world()
        ranked = f"_rank{rank}" if world > 1 else ""
        for what in ("inputs", "outputs"):
            path = Path(self.folder or ".") / f"{old_name(row['op'])}_{what}{ranked}.pkl"
            path.write_text(json.dumps({"ulpscope": trace, "call": int(call), "op": row["op"]}) + "\n")
            log.put(f"...... {what} kept: {path} ......")


class _Nan(nan_tracker):
    """A NaN tracker that hands births on where a step ends."""

    def __init__(self, tool: NanInfTracker, **scope: Any) -> None:
        super().__init__(**scope)
        self.tool = tool

    def _tell(self) -> None:
        new = self.births(self.n_told)
        self.n_told += len(new)
        first = None
        with self._guarded():
            first = self.tool.heard(new)
        if self.tool.dump and first is not None:
            raise Exception(first)


class NanInfTracker(_Tool):
    """
    Names the operators that make NaN or Inf while the block runs: those that only carry it on are not
    blamed. `[ERROR]`: born there; `[WARNING]`: it came in from outside (data, a parameter). The
    file is `output_dir`/nan_inf_report.txt; `dump_error_data` ends the run with an exception at the
    first. The other arguments are those of `CompareWithCPU`.
    """

    FILE = "nan_inf_report"

    def __init__(
        self,
        enabled: bool = True,
        target_list: Any = None,
        white_list: Any = None,
        dump_error_data: bool = False,
        enable_ranks: Any = None,
        should_log_to_file: bool = False,
        output_dir: str | Path | None = "",
        start_step: int | None = None,
        end_step: int | None = None,
        target_op: Any = None,
    ) -> None:
        super().__init__(
            enabled,
            target_list or target_op,
            white_list,
            enable_ranks,
            should_log_to_file,
            output_dir,
            start_step,
            end_step,
        )
        self.dump = dump_error_data

    def _made(self) -> nan_tracker:
        return _Nan(self, **self.scope)

    def heard(self, births: Iterable[Any]) -> str | None:
        """Writes births; the sentence of the first that is none of the data's, None for none."""
        first, log = None, self._open_log()
        for birth in births:
            if self._is_white(birth.op):
                continue
            log.of_step(birth.step)
            name = f"{birth.module + '/' if birth.module else ''}{old_name(birth.op)}({birth.phase})"
            level = "WARNING" if birth.kind == "entered" else "ERROR"
            log.put(f"[{level}]  {name} {birth.kind}: {birth.value}; {birth.sentence}")
            if level == "ERROR" and first is None:
                first = f"{name}: {birth.sentence}"
        return first


class ModuleInfo:
    """A module in its tree, by attribute names. Kept for programs that import it."""

    def __init__(self, name: str, father: ModuleInfo | None = None, is_forward: bool = True) -> None:
        self.name, self.father, self.is_forward = name, father, is_forward
        self.children: list[ModuleInfo] = []
        if father is not None:
            father.children.append(self)

    @property
    def is_leaf(self) -> bool:
        return not self.children

    def __str__(self) -> str:
        return f"{self.father}/{self.name}" if self.father is not None else self.name


def open_module_tracker(model: torch.nn.Module) -> ModuleInfo:
    """Says nothing new: both tools know the module of every call, by its attribute path, and put no
    hooks into the model. The tree of the model, for who wants it."""
    root = ModuleInfo(type(model).__qualname__)
    met = {"": root}
    for path, _ in model.named_modules():
        if path:
            father, _, name = path.rpartition(".")
            met[path] = ModuleInfo(name, met.get(father, root))
    return root


def _case(saved: str, op: Callable[..., Any], device: Any) -> tuple[Any, Any, Any]:
    """(args, kwargs, out) of a saved case that is run again on a device."""
    from ....executors.device import open_device
    from ....session.bench import rebuilt

    path = Path(saved)
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        folder, call = said["ulpscope"], said["call"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError(
            f"{path} is no case that Ulpscope saved; a pickle of torch_musa is not opened: "
            "it may run code. Run the program again with dump_error_data=True"
        ) from None
    folder = Path(folder) if Path(folder).is_absolute() else path.parent / folder
    with _core.Trace(str(folder)) as trace:
        row = trace.call(call)
        home = next((t["device"] for t in row["tensors"] if t["device"]), "cpu")
        found = rebuilt(trace, trace.meta("id") or "", row)
        bound = open_device(device or home, home.partition(":")[0]).bind(found)
        before = _copied(bound.args), _copied(bound.kwargs)
        return *before, op(*bound.args, **bound.kwargs)


def _with_strides(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that lies in memory as the tensor does, gaps included."""
    import torch

    if tensor.numel() == 0 or tensor.layout != torch.strided:
        return tensor.clone()
    span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    flat = tensor.as_strided((span,), (1,), tensor.storage_offset()).clone()
    return flat.as_strided(tensor.shape, tensor.stride())


def _copied(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _with_strides(value.detach())
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(v) for v in value)
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def compare_for_single_op(
    inputs_data_save_path: str, op: Callable[..., Any], atol: float = 1e-3, rtol: float = 1e-3, device: Any = None
) -> tuple[bool, Any, Any, Any]:
    """
    Runs a saved case again: (correct, args, kwargs, out). `correct` is the verdict of
    `ulpscope.judge_call`; atol and rtol decide nothing. `device`: where, the one of the case for None.

    Raises ValueError for a file that is no case of ours: pickles are never opened.
    """
    from ....session.api import judge_call

    args, kwargs, out = _case(inputs_data_save_path, op, device)
    return judge_call(op, args, kwargs, out).passed, args, kwargs, out


def nan_inf_track_for_single_op(
    inputs_data_save_path: str, op: Callable[..., Any], device: Any = None
) -> tuple[bool, Any, Any, Any]:
    """Runs a saved case again: (whether the result has NaN or Inf, args, kwargs, out). As
    `compare_for_single_op`."""
    import torch

    args, kwargs, out = _case(inputs_data_save_path, op, device)
    results = out if isinstance(out, (list, tuple)) else [out]
    bad = False
    for result in results:
        with contextlib.suppress(RuntimeError):  # some dtypes have none
            bad |= isinstance(result, torch.Tensor) and not bool(torch.isfinite(result).all())
    return bad, args, kwargs, out
