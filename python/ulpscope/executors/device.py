# SPDX-License-Identifier: Apache-2.0
"""The device under test: whatever runs a call and gives an answer. A torch device, or a
Python callable that stands for one. Knows nothing of references and verdicts."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from ..calls.callable import as_numbers
from ..calls.contents import CHUNK, LARGE
from ..calls.foreign import foreign, theirs
from ..calls.raw_bytes import equal_bytes, fit, raw_bytes
from ..calls.replay import Bound, Call, Unsupported, View, bind_exact, makes_on_default_device
from ..calls.call_results import outputs_of, plain
from ..calls.torch_private import private_backend
from ..calls.verdicts import clause
from .left_behind import PutBack
from .placement import asked_on_host, known_on_host, only_of_the_cpu
from .precision import STANDARD, sources_of, space_of

if TYPE_CHECKING:
    from ..calls.operator_call import OperatorCall

# Device types whose torch support is a package of its own.
PACKAGES = {
    "sim": "ulpscope.sim",
    "npu": "torch_npu",
    "musa": "torch_musa",
    "mlu": "torch_mlu",
    "hpu": "habana_frameworks.torch",
}

REFUSALS = re.compile(
    r"not implemented|not supported|unsupported|could not run|no kernel|no operator|"
    r"not available|doesn't support|does not support",
    re.IGNORECASE,
)
# Arguments whose content is nobody's but the kernel's, between a forward and its backward.
SCRATCH = {"workspace", "reserve", "reserveSpace", "reserve_space"}
DEAD = re.compile(r"device-side|illegal|launch failure|hardware|uncorrectable|bus error", re.I)


class UnknownDevice(ValueError):
    """The device that was asked for is not there; the text lists what is."""


class DeviceDied(Exception):
    """The device reported that it is beyond use; its worker must be replaced."""


@dataclass
class Answer:
    """What a device left of a call."""

    outputs: dict[str, torch.Tensor]  # path -> plain tensor
    trespass: str = ""  # what it wrote that it must not, a clause
    before: dict[str, torch.Tensor] = field(default_factory=dict)  # written paths: plain content before
    notes: list[str] = field(default_factory=list)  # on how it was computed
    earlier: dict[str, Any] = field(default_factory=dict)  # what calls before gave, of the same kind: by name


class TorchDevice:
    """A device that torch knows by name."""

    taps = False  # whether values in the middle of a graph are asked for, all at once, where one departs

    def __init__(self, name: str, home: str = "cpu") -> None:
        self.name = name
        self.type = name.split(":")[0]
        self.home = home  # device type that captured the trace

    def place(self, captured: str) -> str:
        """Where a tensor of the captured device belongs: what lived on the capturing
        accelerator goes to the device under test, the CPU's own tensors stay."""
        return self.name if captured.split(":")[0] == self.home else "cpu"

    def bind(self, call: Call, on_host: Iterable[str] = ()) -> Bound:
        bound = bind_exact(call, self.place, on_host)
        bound.kwargs |= self.defaults(call)
        return bound

    def defaults(self, call: Call) -> dict[str, Any]:
        """Arguments to add to those of a call: the device of a factory that named none."""
        if call.schema and self.home == "cpu" and makes_on_default_device(call):
            return {"device": torch.device(self.name)}
        return {}

    def compute(self, call: Call, bound: Bound) -> Any:
        """What the call returns."""
        return bound.run(call.on(self.place))

    def again(self, call: Call) -> Callable[[], Any]:
        """A function that runs the call once more on the same tensors, for its time alone."""
        bound = self.bind(call, known_on_host(call) if self.home == "cpu" and self.type != "cpu" else set())
        return lambda: self.compute(call, bound)

    def notes(self, call: Call) -> list[str]:
        """What is to be said of how a call that ran was computed."""
        return []

    def run(self, call: Call) -> Answer:
        """Runs the call. Unsupported where the device refuses it, DeviceDied."""
        if only_of_the_cpu(call, self.type):
            raise Unsupported(f"{call.op} is not supported on {self.type}: it belongs to a library of the CPU")
        on_host = known_on_host(call) if self.home == "cpu" and self.type != "cpu" else set()
        try:
            return self._run(call, on_host)
        except Unsupported as problem:
            if self.name in LIVED and not lives(self.name):
                raise DeviceDied(f"{problem}; and then it does nothing any more") from None
            asked = self._asked_on_host(call, str(problem))
            if asked <= on_host:
                raise
            try:
                return self._run(call, asked | on_host)
            except Unsupported:
                raise problem from None

    def _asked_on_host(self, call, text):
        return asked_on_host(call, text) if self.home == "cpu" and self.type != "cpu" else set()

    def _run(self, call, on_host):
        bound = self.bind(call, on_host)
        before = {p: plain(bound.tensors[p]).clone() for p in call.written()}
        try:
            with PutBack() as left:
                result = self.compute(call, bound)
            outputs = as_numbers(call, outputs_of(call, bound, result))
            outputs = {p: plain(t) for p, t in outputs.items()}
            result = None
        except (torch.OutOfMemoryError, Unsupported):
            raise
        except (RuntimeError, TypeError, ValueError) as problem:
            raise refusal(foreign(problem)) from None
        wrong = trespass(call, bound)
        private = {base.untyped_storage().data_ptr() for base in bound.bases.values()}
        bound = None  # room for what is kept
        fresh = self.type != "cpu" or space_of(call.op) in STANDARD
        return Answer(_detached(outputs, private, fresh), wrong, before, [*self.notes(call), *left.notes])


class PythonDevice:
    """A Python callable `f(op, args, kwargs)` on CPU tensors that stands for a device; it
    returns what the operator returns and writes what the operator writes."""

    def __init__(self, function, name="python", home="cpu"):
        self.name, self.type, self.home, self.function = name, "python", home, function

    def again(self, call: Call) -> Callable[[], Any]:
        """As a TorchDevice's."""
        bound, function = bind_exact(call, lambda captured: "cpu"), call.on(lambda captured: "cpu")
        return lambda: theirs(self.function, function, bound.args, bound.kwargs)

    def run(self, call: Call) -> Answer:
        bound = bind_exact(call, lambda captured: "cpu")
        before = {p: plain(bound.tensors[p]).clone() for p in call.written()}
        try:
            with torch.no_grad(), PutBack() as left:
                result = theirs(self.function, call.on(lambda captured: "cpu"), bound.args, bound.kwargs)
            outputs = {p: plain(t) for p, t in outputs_of(call, bound, result).items()}
        except (RuntimeError, TypeError, ValueError) as problem:
            raise refusal(foreign(problem)) from None
        return Answer(_detached(outputs), trespass(call, bound), before, left.notes)


def _detached(outputs, private=(), fresh=False):
    """Outputs that no later run can overwrite; views of storages that are this run's alone are
    left as they are, and what is large where the results of a run are `fresh`."""

    def alone(t):
        return t.untyped_storage().data_ptr() in private or (fresh and t.nbytes >= LARGE)

    return {path: t if alone(t) else t.clone() for path, t in outputs.items()}


LIVED: set[str] = set()  # devices that were asked in this process, and answered


def lives(name: str) -> bool:
    """Whether a device that torch knows by name adds two numbers up, or has memory where faults are planted, which
    are to meet calls alone."""
    if name.startswith("python:") or name == "cpu":
        return True
    try:
        made = torch.empty(1, device=name)
        alive = name.partition(":")[0] == "sim" or float((made.fill_(1) + 1).cpu()) == 2.0
    except Exception as problem:  # every backend has its own way to say no
        foreign(problem)
        return False
    LIVED.update([name] if alive else [])
    return alive


def refusal(problem: BaseException) -> Exception:
    """The exception that tells what kind of failure a device's own one is."""
    text = clause(problem)
    if DEAD.search(text):
        return DeviceDied(text)
    refused = Unsupported(text)
    refused.raised = type(problem).__name__
    return refused


def lacks(text: str) -> bool:
    """Whether a refusal says that the operator is missing, rather than disliking the call."""
    return bool(REFUSALS.search(text))


def trespass(call: Call | OperatorCall, bound: Bound) -> str:
    """What a run wrote that it must not: a read-only argument, or bytes of a storage
    outside the views that it may write. A clause, "" for nothing."""
    written = set(call.written())
    for storage, base in bound.bases.items():
        views = [v for p, v in call.views.items() if v.storage == storage]
        if all(v.argument in SCRATCH for v in views):
            continue
        allowed = [v for v in views if v.path in written]
        if any(v.is_dense() and math.prod(v.sizes) * v.dtype.itemsize == base.nbytes for v in allowed):
            continue  # it may write all of it
        wrong = _changed(call.storages, storage, base, allowed)
        if wrong:
            where = allowed[0].path if allowed else views[0].path
            what = "outside the view that is" if allowed else "of the read-only argument"
            return f"wrote {wrong:,} bytes {what} {where}"
    return ""


def _changed(storages, storage, base, allowed):
    """How many bytes of a storage differ from what was captured, outside the views `allowed`."""
    if not allowed:
        if _untouched(storages, storage, base):
            return 0
        return sum(_differing(after, before) for after, before in _beside(storages, storage, base))
    after = raw_bytes(base.cpu())
    before = storages[storage][: after.numel()].clone()
    for view in allowed:
        _overlay(before, after, view)
    return _differing(after, before)


def _untouched(storages, storage, base):
    """Whether a small storage holds what it held, looked at as it lies there."""
    if storages.is_far(storage) or base.nbytes > CHUNK:
        return False
    now, before = base.detach().cpu(), storages[storage]
    return _core.same_memory(now.data_ptr(), before.data_ptr(), min(now.nbytes, before.nbytes))


def _beside(storages, storage, base):
    """Yields bytes of a storage after a run and before it."""
    for first, before in storages.chunks(storage):
        first //= base.itemsize
        after = raw_bytes(base[first : first + len(before) // base.itemsize].cpu())
        yield after, before[: after.numel()]


def _differing(after, before):
    return int((after != before).sum()) if not equal_bytes(after, before) else 0


def learn_writes(call: Call) -> bool:
    """Marks as written the arguments that the CPU's own kernel writes although the schema
    does not say so (native_batch_norm's running statistics); True where there are any."""
    hidden = unsaid_writes(call)
    call.mutated.update(hidden)
    return bool(hidden)


def unsaid_writes(call: Call, kernel: Callable[..., Any] | None = None) -> dict[str, View]:
    """Path -> view of the arguments that the CPU's own kernel writes, on copies, beside those that
    the call is known to write."""
    bound = bind_exact(call, lambda captured: "cpu")
    try:
        bound.run(kernel or sources_of(call)[0].run)
    except Exception as problem:  # the CPU refuses: nothing learnt
        foreign(problem)
        return {}
    written = set(call.written())
    changed = {
        storage
        for storage, base in bound.bases.items()
        if not equal_bytes(raw_bytes(base), call.storages[storage][: raw_bytes(base).numel()])
    }
    return {p: v for p, v in call.views.items() if v.storage in changed and p not in written}


def _overlay(before, after, view):
    """Copies the elements of `view` from one storage to the other."""
    first, last = (i * view.dtype.itemsize for i in view.extent())
    if view.is_dense():
        before[first:last] = after[first:last]
        return
    where = torch.zeros(fit(before, view.dtype).numel(), dtype=torch.bool)
    where.as_strided(view.sizes, view.strides, view.offset).fill_(True)
    size = view.dtype.itemsize
    rows = before[: where.numel() * size].view(-1, size)
    rows[where] = after[: where.numel() * size].view(-1, size)[where]


# ---- finding one ---------------------------------------------------------------------


def present() -> list[str]:
    """Names of the device types that this torch has, for messages."""
    found = ["cpu"]
    for kind in ("cuda", "xpu", "mps"):
        # torch.mps has it since 2.2, torch.backends.mps always had
        homes = (getattr(torch, kind, None), getattr(torch.backends, kind, None))
        if any(home.is_available() for home in homes if hasattr(home, "is_available")):
            found.append(kind)
    private = private_backend()
    if private != "privateuseone":
        found.append(private)
    return found


def open_device(name: str, home: str = "cpu", via: str = "", mark: Callable[[str], Any] = lambda phase: None) -> Any:
    """The device under test of that name: "npu:0", "sim:1", or "python:MODULE:FUNCTION";
    with `via` what that backend of torch.compile generates for it, `mark` is then told when
    it compiles.

    Imports the package that brings the device type. UnknownDevice where there is none.
    """
    if name.startswith("python:"):
        return _open_callable(name, home)
    kind = name.split(":")[0]
    package = PACKAGES.get(kind)
    if package is not None:
        try:
            importlib.import_module(package)
        except ImportError as problem:
            raise UnknownDevice(_unknown(name, f"{package} cannot be imported: {problem}")) from None
    try:
        torch.empty(1, device=name)
    except Exception as problem:  # every backend has its own way to say no
        foreign(problem)
        why = str(problem).split("\n")[0][:160]
        if why.startswith("Expected one of "):  # torch lists all types that it ever had
            why = f"torch has no device type '{kind}'"
        raise UnknownDevice(_unknown(name, why)) from None
    if via:
        from .compiled import CompiledDevice  # takes seconds to import

        return CompiledDevice(name, via, home, mark)
    return TorchDevice(name, home)


def _unknown(name, why):
    known = ", ".join(present() + [k for k in ("sim",) if k not in present()])
    return (
        f"device {name} is not there ({why}); known here: {known}; ulpscope doctor --device {name} looks for "
        "what is missing"
    )


def _open_callable(name, home):
    parts = name.split(":")
    if len(parts) != 3:
        raise UnknownDevice(f"device {name}: write python:MODULE:FUNCTION")
    try:
        function = getattr(importlib.import_module(parts[1]), parts[2])
    except (ImportError, AttributeError) as problem:
        raise UnknownDevice(f"device {name} is not there: {problem}") from None
    return PythonDevice(function, name, home)
