# SPDX-License-Identifier: Apache-2.0
"""A finding on its way to the process that searches for causes: the call, its operands and what
the device gave, as bytes. Tensors travel beside the pickle, as buffers in shared memory.

A callable goes as a name where torch has it, else as its code with what that refers to, else as
the operators that it runs (`Program`); user modules are never imported over there.
Neighbours: `host` (sends), `process` (takes).
"""

import copy
import ctypes
import importlib
import io
import marshal
import pickle
import sys
import types
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import torch

from .._core import Finding, Findings
from ..calls.replay import resolve, widened
from ..executors.precision import STANDARD, Source, cpu_kernel, sources_of, space_of
from ..executors.reference import Reference
from .graph import SENT
from .program import Unsendable, program_of

MOST_BYTES = 1 << 31  # of all tensors of one finding
OURS = {"torch", "numpy", "ulpscope", "builtins", *sys.stdlib_module_names} - {"__main__"}
NAMESPACES = ("torch", "torch.nn.functional", "torch._C._nn", "torch.special", "torch.linalg",
              "torch.fft", "torch.Tensor", "torch._C._linalg", "torch._C._special", "torch._C._fft")  # fmt: skip


# ---- what pickle does not know -------------------------------------------------------------


def known_module(name):
    """Whether a module may be imported over there: torch's, Python's own, ours."""
    return (name or "").partition(".")[0] in OURS


class Pickler(pickle.Pickler):
    """Pickles tensors as buffers, operators and torch's functions by name, others as code."""

    def __init__(self, file, keep):
        super().__init__(file, protocol=5, buffer_callback=self._buffer)
        self.buffers, self.size, self.keep = [], 0, keep

    def _buffer(self, buffer):
        self.buffers.append(buffer)
        return False

    def reducer_override(self, value):
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch._ops.OpOverload):
            if space_of(value._name) not in STANDARD:
                raise Unsendable(value._name)
            return resolve, (value._name,)
        if isinstance(value, torch._ops.OpOverloadPacket):
            return _packet, tuple(value._qualified_op_name.split("::"))
        if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType):
            return _builtin(value)
        if isinstance(value, types.FunctionType):
            return _function(value)
        if isinstance(value, torch._ops._OpNamespace):
            return getattr, (torch.ops, value.name)
        if isinstance(value, types.ModuleType):
            if not known_module(value.__name__):
                raise Unsendable(value.__name__)
            return importlib.import_module, (value.__name__,)
        if isinstance(value, type) and not known_module(value.__module__):
            raise Unsendable(value.__name__)
        return NotImplemented

    def _tensor(self, tensor):
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
        return _made_tensor, (pickle.PickleBuffer(raw), dense.dtype, tuple(dense.shape),
                              tensor.requires_grad, parameter)  # fmt: skip


def _made_tensor(buffer, dtype, shape, requires_grad, parameter):
    if len(buffer):
        tensor = torch.frombuffer(buffer, dtype=torch.uint8).view(dtype).reshape(shape)
    else:
        tensor = torch.empty(shape, dtype=dtype)
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


def _packet(space, name):
    return getattr(getattr(torch.ops, space), name)


def _builtin(value):
    """A function of C by where torch has it."""
    for space in NAMESPACES:
        if getattr(_space(space), value.__name__, None) is value:
            return _of_space, (space, value.__name__)
    owner = getattr(value, "__self__", None)
    if isinstance(owner, types.ModuleType) and known_module(owner.__name__):
        return _of_space, (owner.__name__, value.__name__)
    if owner is None or isinstance(owner, type | types.ModuleType):
        raise Unsendable(value.__name__)
    return getattr, (owner, value.__name__)


def _space(name):
    if name == "torch.Tensor":
        return torch.Tensor
    with suppress(ImportError):
        return importlib.import_module(name)
    return getattr(torch._C, name.rpartition(".")[2], None)


def _of_space(space, name):
    return getattr(_space(space), name)


def _function(value):
    """A Python function by its name where it can be had so, else its code, globals and cells."""
    if known_module(value.__module__):
        found = sys.modules.get(value.__module__)
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is value:
            return NotImplemented
    names = _global_names(value.__code__)
    bound = {n: value.__globals__[n] for n in names if n in value.__globals__}
    cells = [c.cell_contents for c in value.__closure__ or ()]
    state = (bound, cells, value.__defaults__, value.__kwdefaults__, value.__name__)
    arguments = marshal.dumps(value.__code__), len(cells)
    return _bare_function, arguments, state, None, None, _fill_function


def _global_names(code):
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _bare_function(code, n_cells):
    space = {"__builtins__": __builtins__, "__name__": SENT}
    cells = tuple(types.CellType() for _ in range(n_cells))
    return types.FunctionType(marshal.loads(code), space, closure=cells)


def _fill_function(function, state):
    bound, cells, defaults, kwdefaults, name = state
    function.__globals__.update(bound)
    for cell, content in zip(function.__closure__ or (), cells):
        cell.cell_contents = content
    function.__defaults__, function.__kwdefaults__, function.__name__ = defaults, kwdefaults, name


# ---- a finding ------------------------------------------------------------------------------


def packed(call, verdict, first=0):
    """
    (bytes, buffers, what keeps them alive, way) of a verdict's findings with all that a search
    needs, the callable in the first of the ways from `first` on that works.

    Where the callable cannot be sent in any way, what the result alone shows is still looked at.
    """
    reference, ways = verdict.operands.reference, (_function_itself, _function_as_program, _no_function)
    for way in range(first, len(ways)):
        try:
            return *_pickled(_content(call, verdict, reference, *ways[way](call, reference))), way
        except MemoryError:
            raise
        except Exception:  # whatever its globals, cells or arguments are
            continue
    raise Unsendable("the call")


def _pickled(content):
    file, keep = io.BytesIO(), []
    pickler = Pickler(file, keep)
    pickler.dump(content)
    return file.getvalue(), [b.raw() for b in pickler.buffers], keep


def _content(call, verdict, reference, function, source):
    answer = replace(verdict.answer, notes=[])
    state = {name: getattr(reference, name) for name in ("truth", "yardstick", "pairs", "undefined", "quantizes")}
    findings = [(f.path, f.verdict, f.reason, f.bits, f.yardstick_bits, f.n, f.sizes, f.bound, False,
                 f.measured) for f in verdict.findings]  # fmt: skip
    return {"call": _stripped(call, function), "schema": str(call.schema) if call.schema else "",
            "native": reference.native(), "state": state, "source": source,
            "answer": answer, "findings": findings}  # fmt: skip


def _stripped(call, function):
    """The call without what only judging needs."""
    out = copy.copy(call)
    out.live, out.row, out.schema, out.function = None, {}, None, function
    if out.composite:
        out.native, out.choices, out.draw = None, {}, None
        out.only = out.only and (out.only[0], None)
    return out


def _function_itself(call, reference):
    """(function of the call, its source: a number among the known ones, a callable, or None)."""
    if call.composite:
        return call.function, None
    if space_of(call.op) not in STANDARD:
        raise Unsendable(call.op)
    chosen, known = reference._chosen.get(widened), reference._all_sources()
    number = next((i for i, s in enumerate(known) if s is chosen), 0)
    listed = [s.run for s in known if s.partial and s.held]  # registered in this process
    return call.function, listed[0] if listed else number


def _function_as_program(call, reference):
    if call.composite:
        return program_of(call, reference, call.function), None
    chosen = reference._chosen.get(widened)
    program = program_of(call, reference, chosen.run if chosen else cpu_kernel(call))
    return (call.function if space_of(call.op) in STANDARD else program), program


def _no_function(call, reference):
    return _not_here, (None if call.composite else _not_here)


def _not_here(*args, **kwargs):
    raise LookupError("the callable cannot be run here")


def unpacked(data, buffers):
    """(call, a verdict on some of the findings by their numbers) of what `packed` gave."""
    content = pickle.loads(data, buffers=buffers)
    call = content["call"]
    if content["schema"]:
        call.schema = torch._C.parse_schema(content["schema"])
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

    def verdict_on(numbers):
        findings = Findings([Finding(*content["findings"][i]) for i in numbers])
        worst = findings.worst
        return SimpleNamespace(verdict=worst.verdict, findings=findings, worst=worst, answer=content["answer"],
                               operands=SimpleNamespace(reference=reference))  # fmt: skip

    return call, verdict_on
