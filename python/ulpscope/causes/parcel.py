# SPDX-License-Identifier: Apache-2.0
"""A finding on its way to the process that searches for causes: the call, its operands and what
the device gave, as bytes. Tensors travel beside the pickle, as buffers in shared memory.

A callable goes as a name where torch has it, else as its code with what that refers to, else as
the operators that it runs (`Program`); user modules are never imported over there.
Neighbours: `host` (sends), `process` (takes), `graph` (writes a run down).
"""

from __future__ import annotations

import copy
import ctypes
import importlib
import io
import marshal
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, BinaryIO, NoReturn

import torch

from .._core import Finding, Findings
from ..calls.foreign import foreign, theirs
from ..calls.older import STANDARD as STDLIB
from ..calls.older import zip_equal
from ..calls.kernels import STANDARD
from ..calls.nested import mapped
from ..calls.replay import Call, bind_cast, computed, is_composite, resolve, widened
from ..calls.torch_private import OpNamespace, OpOverload, OpOverloadPacket, packet_name, parsed_schema
from ..executors.precision import Source, cpu_kernel, sources_of, space_of
from ..executors.reference_runs import Reference
from .graph import SENT, Recording, Slot

MOST_BYTES = 1 << 31  # of all tensors of one finding
OURS = {"torch", "numpy", "ulpscope", "builtins", *STDLIB} - {"__main__"}


class Unsendable(Exception):
    """Something that another process cannot be given."""


# ---- what pickle does not know -------------------------------------------------------------


def known(value: Any, module: str) -> Any:
    """A value of a module that may be imported over there: torch's, Python's own, ours."""
    if (module or "").partition(".")[0] not in OURS:
        raise Unsendable(f"{module}: {value!r:.80}")
    return value


class Pickler(pickle.Pickler):
    """Pickles tensors as buffers, operators and torch's functions by name, others as code."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._buffer)
        self.buffers: list[memoryview] = []
        self.keep: list[torch.Tensor] = []
        self.size = 0

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        self.buffers.append(buffer.raw())
        return False

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, OpOverload):
            if space_of(value._name) not in STANDARD:
                raise Unsendable(value._name)
            return resolve, (value._name,)
        if isinstance(value, OpOverloadPacket):
            name = packet_name(value)
            assert name is not None  # as every packet has one
            return _packet, tuple(name.split("::"))
        if isinstance(value, OpNamespace):
            return getattr, (torch.ops, value.name)
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (known(value, value.__name__).__name__,)
        if isinstance(value, types.FunctionType):
            return _function(value)
        if isinstance(value, type):
            known(value, value.__module__)
        elif isinstance(value, types.BuiltinFunctionType) and isinstance(
            value.__self__, (types.ModuleType, type(None))
        ):
            known(value, value.__module__)
        return NotImplemented

    def _tensor(self, tensor: torch.Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            raise Unsendable(type(tensor).__name__)
        if tensor.is_quantized or tensor.device.type not in ("cpu", "meta"):
            raise Unsendable(f"a tensor on {tensor.device}")
        dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
        self.size += dense.nbytes
        if self.size > MOST_BYTES:
            raise Unsendable("more than the search can take")
        self.keep.append(dense)
        raw = (ctypes.c_char * dense.nbytes).from_address(dense.data_ptr()) if dense.nbytes else b""
        parameter = isinstance(tensor, torch.nn.Parameter)
        return _made_tensor, (
            pickle.PickleBuffer(raw),
            dense.dtype,
            tuple(dense.shape),
            tensor.requires_grad,
            parameter,
        )


def _made_tensor(
    buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool, parameter: bool
) -> torch.Tensor:
    if len(buffer):
        tensor = torch.frombuffer(buffer, dtype=torch.uint8).view(dtype).reshape(shape)
    else:
        tensor = torch.empty(shape, dtype=dtype)
    return torch.nn.Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)


def _packet(space: str, name: str) -> Any:
    return getattr(getattr(torch.ops, space), name)


def _function(value: types.FunctionType) -> Any:
    """A Python function by its name where it can be had so, else its code, globals and cells."""
    if (value.__module__ or "").partition(".")[0] in OURS:
        found: Any = sys.modules.get(value.__module__)
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is value:
            return NotImplemented
    bound = {n: value.__globals__[n] for n in _global_names(value.__code__) if n in value.__globals__}
    cells = [c.cell_contents for c in value.__closure__ or ()]
    state = (bound, cells, value.__defaults__, value.__kwdefaults__, value.__name__)
    return _bare_function, (marshal.dumps(value.__code__), len(cells)), state, None, None, _fill_function


def _global_names(code: types.CodeType) -> set[str]:
    inner = (_global_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*inner)


def _bare_function(code: bytes, n_cells: int) -> types.FunctionType:
    space = {"__builtins__": __builtins__, "__name__": SENT}
    cells = tuple(types.CellType() for _ in range(n_cells))
    return types.FunctionType(marshal.loads(code), space, closure=cells)


def _fill_function(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    bound, cells, function.__defaults__, function.__kwdefaults__, function.__name__ = state
    function.__globals__.update(bound)
    for cell, content in zip(function.__closure__ or (), cells):
        cell.cell_contents = content


# ---- a callable as the operators that it runs ------------------------------------------------


class SentRun:
    """The operators of one run: written down in one process, done again in another on other contents
    of its tensors. Called with arguments of the same form as then. Unsendable where the run draws, or
    writes what it was not given."""

    __name__ = "program"

    def __init__(self, call: Call, reference: Reference, function: Callable[..., Any]) -> None:
        """Of `function` on the call's arguments, as the yardstick runs it."""
        bound = bind_cast(call, reference.parts, computed)
        recording = Recording(dict(enumerate(_tensors_in([bound.args, bound.kwargs]))), deep=False)

        def watched(*args: Any, **kwargs: Any) -> Any:
            with recording:
                return theirs(function, *args, **kwargs)

        result = _plainly(bound.run(watched))
        self.result = mapped(result, lambda v: recording.slot_of(v) if isinstance(v, torch.Tensor) else v)
        if not recording.written.isdisjoint(recording.outside.values()):
            raise Unsendable("writes what it was not given")
        self.steps = [(n.func, n.args, n.kwargs, n.result) for n in recording.nodes]
        self.given = {number: recording.tensors[number].clone() for number in recording.outside}
        self.inputs = [s.number for s in recording.inputs.values()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = {number: t.clone() for number, t in self.given.items()}
        tensors = _tensors_in([list(args), kwargs])
        if len(tensors) != len(self.inputs):
            raise LookupError("other arguments than it was recorded with")
        values.update(zip_equal(self.inputs, tensors))

        def filled(value: Any) -> Any:
            return values[value.number] if isinstance(value, Slot) else value

        def take(result: Any, out: Any) -> None:
            if isinstance(result, Slot):
                values[result.number] = out
            elif isinstance(result, (list, tuple)):
                for one, value in zip(result, out):
                    take(one, value)

        with torch.no_grad():  # the gradients are among the operators
            for func, arguments, keywords, result in self.steps:
                take(result, func(*mapped(arguments, filled), **mapped(keywords, filled)))
        return mapped(self.result, filled)


def _tensors_in(arguments: list[Any]) -> list[torch.Tensor]:
    """Every tensor among arguments, in one order."""
    found: list[torch.Tensor] = []
    mapped(arguments, lambda v: found.append(v) if isinstance(v, torch.Tensor) else None)
    return found


def _plainly(value: Any) -> Any:
    """A result with dicts in place of dataclasses, whose paths are the same."""
    if is_dataclass(value) and not isinstance(value, (dict, type)):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, dict):
        return {k: _plainly(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(map(_plainly, value))
    return value


# ---- a finding ------------------------------------------------------------------------------


def packed(call: Call, verdict: Any, first: int = 0) -> tuple[bytes, list[memoryview], list[torch.Tensor], int]:
    """
    (bytes, buffers, what keeps them alive, way) of a verdict's findings with all that a search
    needs, the callable in the first of the ways from `first` on that works.

    Where the callable cannot be sent in any way, what the result alone shows is still looked at.
    """
    reference, ways = verdict.operands.reference, (_itself, _as_program, _not_at_all)
    for way in range(first, len(ways)):
        try:
            file = io.BytesIO()
            pickler = Pickler(file)
            theirs(pickler.dump, _content(call, verdict, reference, *ways[way](call, reference)))
            return file.getvalue(), pickler.buffers, pickler.keep, way
        except MemoryError:
            raise
        except Exception as problem:  # whatever its globals, cells or arguments are
            foreign(problem)
            continue
    raise Unsendable("the call")


def _content(call: Call, verdict: Any, reference: Reference, function: Any, source: Any) -> dict[str, Any]:
    """All of it; the call is without what only judging needs."""
    sent = copy.copy(call)
    sent.live, sent.row, sent.schema, sent.function = None, {}, None, function
    if is_composite(sent):
        sent.native, sent.choices, sent.draw = None, {}, None
        named: Any = sent.only and (sent.only[0], None)  # no arguments, which judging alone reads
        sent.only = named
    state = {name: getattr(reference, name) for name in ("truth", "yardstick", "pairs", "undefined", "quantizes")}
    findings = [
        (f.path, f.verdict, f.reason, f.bits, f.yardstick_bits, f.n, f.sizes, f.bound, False, f.measured)
        for f in verdict.findings
    ]
    return {
        "call": sent,
        "schema": str(call.schema) if call.schema else "",
        "native": reference.native(),
        "state": state,
        "source": source,
        "answer": replace(verdict.answer, notes=[]),
        "findings": findings,
    }


def _itself(call: Call, reference: Reference) -> tuple[Any, Any]:
    """(function of the call, its source: a number among the known ones, a callable, or None)."""
    if call.composite:
        return call.function, None
    if space_of(call.op) not in STANDARD:
        raise Unsendable(call.op)
    chosen, known = reference._chosen.get(widened), reference._all_sources()
    number = next((i for i, s in enumerate(known) if s is chosen), 0)
    listed = [s.run for s in known if s.partial and s.held]  # registered in this process
    return call.function, listed[0] if listed else number


def _as_program(call: Call, reference: Reference) -> tuple[Any, Any]:
    if call.composite:
        return SentRun(call, reference, call.function), None
    chosen = reference._chosen.get(widened)
    program = SentRun(call, reference, chosen.run if chosen else cpu_kernel(call))
    return (call.function if space_of(call.op) in STANDARD else program), program


def _not_at_all(call: Call, reference: Reference) -> tuple[Any, Any]:
    return _not_here, (None if call.composite else _not_here)


def _not_here(*args: Any, **kwargs: Any) -> NoReturn:
    raise LookupError("the callable cannot be run here")


def unpacked(data: bytes, buffers: Sequence[Any]) -> tuple[Call, Callable[..., Any]]:
    """(call, a verdict on some of the findings by their numbers) of what `packed` gave."""
    content = pickle.loads(data, buffers=buffers)
    call = content["call"]
    if content["schema"]:
        call.schema = parsed_schema(content["schema"])
        if not hasattr(call.function, "_schema"):  # an operator that is not there
            call.function._schema = call.schema
    reference = Reference(call)
    vars(reference).update(content["state"], _native=(content["native"],))
    if call.composite:
        call.native = content["native"]
    else:
        source = content["source"]
        chosen = sources_of(call)[source] if isinstance(source, int) else Source(source, held=True)
        reference._chosen = {widened: chosen}

    def verdict_on(numbers: Iterable[int]) -> SimpleNamespace:
        findings = Findings([Finding(*content["findings"][i]) for i in numbers])
        worst = findings.worst
        assert worst is not None  # of some
        return SimpleNamespace(
            verdict=worst.verdict,
            findings=findings,
            worst=worst,
            answer=content["answer"],
            operands=SimpleNamespace(reference=reference),
        )

    return call, verdict_on
