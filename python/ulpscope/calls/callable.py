# SPDX-License-Identifier: Apache-2.0
"""A call made of any Python callable and its arguments: a function, a module, a gradient
function, an optimizer's step. What a schema would tell of an operator is learnt by running
it once on the CPU: what it returns and writes, whether it draws, how it chooses indices.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode

from .apart import apart
from .arguments import Arguments, arguments_of
from .autocast import LOW, under
from .exact import never_rounds
from .flex import in_the_open
from .foreign import foreign, theirs
from .indices import INDEX_OPS, chosen_by
from .kernels import is_extension, kernel_of, overload_of
from .lineage import Lineage
from .meaning import Meaning
from .mode import Asked, Mode, any_complex
from .raw_bytes import equal_bytes, fit, raw_bytes
from .nested import DeviceAt, TensorAt, mapped, rebuilt, tensors_in
from .replay import BadCall, Bound, Call, View, base_name, bind_exact, draws_random, held_argument, is_write
from .call_results import flatten, outputs_of, plain
from .torch_private import OpOverload, graph_task, packet_name
from .verdicts import clause
from .contents import Contents

if TYPE_CHECKING:
    from .indices import Choice

DOUBLE = (torch.float64, torch.complex128)
TORCH = os.path.dirname(torch.__file__) + os.sep
STEPS_KEPT = 64  # index choices remembered of one run


@dataclass(repr=False)
class Composite(Call):
    """A call of a Python callable."""

    composite: ClassVar[bool] = True
    native: dict[str, torch.Tensor] | None = None  # its outputs on the CPU in the dtypes given, None where it raises
    problem: str = ""  # what it raised
    choices: dict[str, Choice] = field(default_factory=dict)  # path -> Choice, of its index outputs
    steps: int = 0  # operators that it calls
    rounds: bool = True  # one of them may round its result
    names: frozenset[str] = frozenset()  # bare ones of these operators
    made_by: dict[str, frozenset[str]] = field(default_factory=dict)  # path -> those in front of an output
    low: bool = False  # one of them gives 16-bit numbers
    keeps_low: bool = False  # and is held to that
    chained: bool = False  # it is given such numbers or runs under autocast, and calls several operators
    random: bool = False  # one of them draws random numbers
    only: tuple[str, Arguments] | None = None  # (bare name, arguments) where it calls one operator
    gives: bool = False  # and returns what that gives, as it lies
    differentiates: bool = False  # it computes gradients
    differentiated: set[int] = field(default_factory=set)  # storages of which it asks them, if known
    draw: tuple[str, Arguments, dict[str, str]] | None = None  # the operator whose draws its outputs are, see drawn_by
    numbers: dict[str, torch.dtype] = field(default_factory=dict)  # path -> dtype in effect, see as_numbers
    returned: str = ""  # what it returns where that holds no number at all, see nothing_in
    answers: list[tuple[str, Any]] | None = None  # what it asked of its dtypes, see _meaning
    any_float: bool = False  # results may have another float dtype than the reference's
    touched: set[int] | None = None  # storages that it may write; None where only its word is there for it
    autocast: dict[str, torch.dtype] = field(default_factory=dict)  # device type -> dtype, under which it ran
    # what makes `function` of the one that ran under autocast, and that one
    within: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    launched: Callable[..., Any] | None = None  # what runs on a device where `function` is a registered reference of it

    def on(self, place: Callable[[str], Any]) -> Callable[..., Any]:
        return self._cast(self.launched or self.function, place)

    def on_host(self) -> Callable[..., Any]:
        """What to call on the CPU."""
        return self._cast(self.function, lambda captured: "cpu")

    def _cast(self, function: Callable[..., Any], place: Callable[[str], Any]) -> Callable[..., Any]:
        if not self.autocast:
            return function
        kinds = {torch.device(place(kind)).type: dtype for kind, dtype in self.autocast.items()}
        make, function = self.within or ((lambda given: given), function)
        made: Callable[..., Any] = make(under(function, kinds))
        return made


class Log(Mode):
    """Notes the operators of a run that choose indices or draw random numbers."""

    MOVES = {"clone", "detach", "lift_fresh", "empty_like", "empty", "contiguous"}

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.rounds, self.random, self.differentiates = 0, False, False, False
        self.doubles = False  # something was computed in float64
        self.low = False  # or in 16 bits
        self.whole = False  # something may have been read around an argument
        self.lineage = Lineage()  # bare names of operators
        self.chosen: list[tuple[Choice, torch.Tensor]] = []
        self.drawn: list[tuple[str, Arguments, list[Any]]] = []
        self.operators: list[tuple[str, Arguments]] = []
        self.forms: list[Any] = []  # of what the last of these gave
        self.touched: set[int] = set()  # where storages begin that its operators write

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = theirs(func, *args, **(kwargs or {}))
        returns = func._schema.returns
        makes = not any(r.alias_info for r in returns)
        self.steps += makes
        self.doubles |= isinstance(out, torch.Tensor) and out.dtype in DOUBLE
        self.low |= isinstance(out, torch.Tensor) and out.dtype in LOW
        rounded = self.rounds  # before it
        self.rounds |= not never_rounds(func.name(), any_complex(args)) and (makes or _writes(func))
        call = Call(0, func.name(), list(args), dict(kwargs or {}), function=func)
        name, arguments = base_name(call.op)[1], arguments_of(call, {})
        self.touched |= {t.untyped_storage().data_ptr() for t in _written_by(func, arguments)}
        self.whole |= name.startswith("as_strided")
        self.lineage.note(func, args, kwargs or {}, out, (name,))
        self.differentiates |= "backward" in name or graph_task() != -1
        is_view = any(r.alias_info and not r.alias_info.is_write for r in returns)
        if len(self.operators) < 2 and not is_view and name not in self.MOVES:
            self.operators.append((name, arguments))
            self.forms = [form_of(t) for t in tensors_in(out)]
        if draws_random(call):
            self.random = True
            if not name.startswith("rrelu") or not name.endswith("_"):  # its input is gone
                self.drawn.append((name, arguments, _copies(out)))
        if name in INDEX_OPS and len(self.chosen) < STEPS_KEPT:
            self._note(name, arguments, out, rounded)
        return out

    def _note(self, name: str, arguments: Arguments, out: Any, rounded: bool) -> None:
        choice = chosen_by(name, arguments)
        leaves = out if isinstance(out, (tuple, list)) else (out,)
        if choice is None or len(leaves) <= INDEX_OPS[name]:
            return
        choice.settled = not rounded
        if rounded and choice.values.is_floating_point():
            choice.slack = torch.finfo(choice.values.dtype).eps
        self.chosen.append((choice, leaves[INDEX_OPS[name]]))


class Dropouts(TorchFunctionMode):
    """Notes dropouts by the functions that people call: below them they are other operators
    on every device."""

    NAMES = {
        "dropout",
        "dropout_",
        "alpha_dropout",
        "feature_alpha_dropout",
        "feature_dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
    }

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[str, Arguments, list[Any]]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in self.NAMES or not args:
            return theirs(func, *args, **kwargs)
        before = args[0].detach().clone()
        out = theirs(func, *args, **kwargs)
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        self.drawn.append((name, Arguments(input=before, p=p), _copies(out)))
        return out


def _copies(out: Any) -> list[torch.Tensor]:
    return [
        t.detach().clone() for t in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(t, torch.Tensor)
    ]


def drawn_by(
    outputs: dict[str, torch.Tensor], drawn: list[tuple[str, Arguments, list[Any]]]
) -> tuple[str, Arguments, dict[str, str]] | None:
    """
    (name, arguments, path of an output -> path of the operator's) of the noted operator
    whose draws all outputs are; None where there is no single one.
    """
    for name, arguments, results in drawn:
        paths = {}
        for path, tensor in outputs.items():
            at = next((i for i, t in enumerate(results) if same_bytes(t, tensor)), None)
            if at is not None:
                paths[path] = f"out[{at}]"
        if paths and paths.keys() == outputs.keys() and "out[0]" in paths.values():
            return name, arguments, paths
    return None


# ---- arguments -----------------------------------------------------------------------


class Maker:
    """Turns arguments into a Call's: tensors as views of copied storages."""

    def __init__(self) -> None:
        self.views: dict[str, View] = {}
        self.storages = Contents()
        self._numbers: dict[tuple[str, Any], int] = {}
        self._seen: list[torch.Tensor] = []  # alive, so that an address stands for one storage

    def argument(self, value: Any, path: str, name: str) -> Any:
        """The argument with TensorAt in place of its tensors."""
        if isinstance(value, torch.Tensor):
            self._tensor(value, path, name)
            return TensorAt(path)
        if isinstance(value, dict):
            return rebuilt(value, lambda k, v: self.argument(v, f"{path}.{k}", name))
        if isinstance(value, (list, tuple)):
            return rebuilt(value, lambda i, v: self.argument(v, f"{path}[{i}]", name))
        return DeviceAt("cpu") if isinstance(value, torch.device) else value

    def _tensor(self, tensor: torch.Tensor, path: str, name: str) -> None:
        if tensor.layout != torch.strided or tensor.is_nested:
            kind = "nested" if tensor.is_nested else str(tensor.layout)
            raise BadCall(
                f"{path} is {kind}, not a plain strided tensor: give fn its parts and let it put them together"
            )
        if tensor.is_meta:
            raise BadCall(f"{path} is on the device meta, which holds no data")
        tensor = tensor.detach().resolve_conj().resolve_neg()
        self._seen.append(tensor)
        storage = tensor.untyped_storage()
        key = (str(tensor.device), storage.data_ptr() or path)  # empty ones share nothing
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers) + 1
            self.storages[self._numbers[key]] = storage_bytes(tensor)
        self.views[path] = View(
            path,
            "in",
            self._numbers[key],
            tensor.dtype,
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.storage_offset(),
            "cpu",
            name,
        )


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage, copied to the CPU."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage()).to("cpu", copy=True)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Its parameters; None of a builtin, which tells none."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def parameter_names(function: Callable[..., Any], n: int) -> list[str]:
    """Names of the positional parameters, "" where they are unknown."""
    names = [p.name for p in parameters(function) or ()]
    return (names + [""] * n)[:n]


def name_of(function: Any) -> str:
    """What to call a callable in a sentence."""
    function = getattr(function, "_opoverload", function)  # torch.library.custom_op
    overload = getattr(function, "_schema", None)
    if overload is not None and hasattr(function, "overloadpacket"):
        return str(function._name).removesuffix(".default")
    packet = packet_name(function)
    if isinstance(packet, str):
        return packet
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name = getattr(function, "__name__", "") or type(function).__name__
    return "the function" if name == "<lambda>" else name


def call_of(function: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Composite:
    """
    The call of `function` on these arguments, ready to be replayed.

    A module's parameters and buffers are arguments of the call. BadCall where an argument
    cannot be replayed.
    """
    name = name_of(function)
    function, args, kwargs = apart(function, args, kwargs or {})
    if isinstance(function, torch.nn.Module):
        function, args = _module_call(function), (_state(function), *args)
    function = overload_of(function)
    maker, names = Maker(), parameter_names(function, len(args))
    call = Composite(
        0,
        name,
        [maker.argument(a, f"args[{i}]", names[i]) for i, a in enumerate(args)],
        {k: maker.argument(v, f"kwargs.{k}", k) for k, v in kwargs.items()},
        maker.views,
        storages=maker.storages,
        function=function,
    )
    call.schema = None  # learnt by running, as for every other callable
    if is_extension(function):
        call.launched, call.function = function, kernel_of(function) or function
    for path, tensor in _tensors(args, kwargs):
        call.views[path].requires_grad = tensor.requires_grad
        call.views[path].argument = maker.views[path].argument
    learn(call)
    return call


def _tensors(args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Every tensor among arguments with its path."""
    found: list[tuple[str, torch.Tensor]] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            found.append((path, value))
        elif isinstance(value, dict):
            for k, v in value.items():
                walk(v, f"{path}.{k}")
        elif isinstance(value, (list, tuple)):
            for i, v in enumerate(value):
                walk(v, f"{path}[{i}]")

    for i, a in enumerate(args):
        walk(a, f"args[{i}]")
    for k, v in kwargs.items():
        walk(v, f"kwargs.{k}")
    return found


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _module_call(module: torch.nn.Module) -> Callable[..., Any]:
    def run(state: dict[str, torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(module, state, args, kwargs)

    return run


def learn(call: Composite) -> None:
    """Runs the call as it is and notes what it does."""
    bound = bind_exact(call, lambda captured: "cpu")
    log, dropouts, meaning, asked = Log(), Dropouts(), Meaning(), Asked()
    try:
        with log, dropouts, meaning, asked, in_the_open():
            result = bound.run(call.on_host())
        call.mutated = {p: call.views[p] for p in changed(call, bound)}
        outputs = outputs_of(call, bound, result)
        call.numbers = _number_dtypes(call, result, log.doubles)
        call.returned = "" if flatten(result) else nothing_in(result)
        call.native = {p: plain(t).clone() for p, t in as_numbers(call, outputs).items()}
    except Exception as problem:  # the CPU refuses these dtypes: float32 may do
        foreign(problem)
        call.problem = clause(problem)
        return
    call.answers = meaning.answers
    call.steps, call.rounds, call.random = log.steps, log.rounds, log.random
    call.whole, call.low, call.names = log.whole, log.low, frozenset(log.lineage.all)
    call.made_by = {path: log.lineage.of(tensor) for path, tensor in outputs.items()}
    given = any(v.dtype in LOW for v in call.views.values())
    several = log.steps > 1 and call.launched is None  # what rounds inside an operator is no business of its caller
    call.chained = log.low and several and (given or asked.autocast or bool(call.autocast))
    call.differentiates, call.differentiated = log.differentiates, asked.of(call, bound)
    if is_of_torch(call.function):
        call.touched = {s for s, base in bound.bases.items() if base.untyped_storage().data_ptr() in log.touched}
        call.touched |= {view.storage for view in call.mutated.values()}
    if len(log.operators) == 1:
        call.only = _at_home(call, bound, *log.operators[0])
        call.gives = all(form_of(t) in log.forms for t in tensors_in(result))
    if len(log.drawn) == 1:  # of several, one may draw from what another drew
        call.draw = drawn_by(outputs, dropouts.drawn + log.drawn)
    for path, tensor in outputs.items():
        for choice, indices in log.chosen:
            if tensor.shape == indices.shape and torch.equal(tensor, indices):
                call.choices[path] = choice


def _number_dtypes(call: Composite, result: Any, doubles: bool) -> dict[str, torch.dtype]:
    """path -> dtype of every Python float and complex number among results, and of every
    quantized tensor's scales. They have none of their own: what a float16 kernel computed
    fits into float16. Empty where something was computed in float64 or there is nothing to
    compute with."""
    given = {v.dtype for v in call.views.values() if v.dtype.is_floating_point}
    if doubles or not given or torch.float64 in given:
        return {}
    order = sorted(given | {torch.float32}, key=lambda dtype: dtype.itemsize)
    found = {}
    for path, leaf in flatten(result):
        if leaf.dtype == torch.complex128:
            found[path] = torch.complex64
        elif leaf.dtype == torch.float64:
            fits = (d for d in order if bool(((leaf.to(d).double() == leaf) | leaf.isnan()).all()))
            found[path] = next(fits, torch.float32)
    return found


def as_numbers(call: Call, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Outputs with those that are Python numbers, or were computed in 16 bits and widened, in the
    dtype that they have in effect."""

    def fits(t: torch.Tensor, dtype: torch.dtype) -> bool:
        return t.dtype in DOUBLE or (t.dtype == torch.float32 and dtype in LOW)

    return {
        p: t.to(call.numbers[p]) if p in call.numbers and fits(t, call.numbers[p]) else t for p, t in outputs.items()
    }


def nothing_in(result: Any) -> str:
    """What to say of a result without any number in it; "" where it is None."""
    return "" if result is None else f"returns {type(result).__name__}, without a tensor in it"


def is_of_torch(function: Callable[..., Any]) -> bool:
    """Whether a callable is torch's own code, which writes by its operators only, each of which shows."""
    code = getattr(function, "__code__", None)
    if code is not None:
        return bool(code.co_filename.startswith(TORCH))
    return isinstance(function, BuiltinFunctionType) and (getattr(function, "__module__", "") or "").startswith("torch")


def _written_by(func: OpOverload, arguments: Arguments) -> list[torch.Tensor]:
    """Tensors among the arguments of an operator that it writes, or may write unsaid."""
    named = {a.name for a in func._schema.arguments if is_write(a) or a.name.startswith("running_")}
    return [t for name in named for t in tensors_in(arguments.get(name)) if t.layout == torch.strided]


def _writes(func: OpOverload) -> bool:
    return any(is_write(a) for a in func._schema.arguments)


def changed(call: Call, bound: Bound) -> list[str]:
    """Paths of the arguments whose content a run changed."""
    return [p for p, t in bound.tensors.items() if not same_bytes(t, held_argument(call, p))]


def _at_home(call: Composite, bound: Bound, name: str, arguments: Arguments) -> tuple[str, Arguments]:
    """The operator that a call is, with its arguments as views of what the call holds where the run wrote none of
    that: the copies that the run was given are let go."""
    written = {view.storage for view in call.mutated.values()}
    homes = {base.untyped_storage().data_ptr(): s for s, base in bound.bases.items() if s not in written}

    def home(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_conj() or value.is_neg():
            return value
        storage = homes.get(value.untyped_storage().data_ptr())
        if storage is None:
            return value
        held = fit(call.storages[storage], value.dtype)
        return held.as_strided(value.shape, value.stride(), value.storage_offset())

    return name, Arguments({k: mapped(value, home) for k, value in arguments.items()})


def form_of(tensor: torch.Tensor) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None:
    """Where a tensor lies and how; None of one that lies nowhere."""
    if tensor.layout != torch.strided:
        return None
    return tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (t.detach().cpu().contiguous().reshape(-1) for t in (a, b))
    return equal_bytes(raw_bytes(a), raw_bytes(b))
