# SPDX-License-Identifier: Apache-2.0
"""`ulpscope repro TRACE#N`: one call as a script for those who mend the device. It needs torch
alone: its body is `repro_script`, in which the part about the call is written anew.
"""

import base64
import json
import os
import re
import sys
import tempfile
import zlib
from contextlib import contextmanager

import torch

from .. import _core
from ..calls.homes import import_modules
from ..calls.read_call import call_from
from ..calls.replay import DeviceAt, TensorAt, draws_random, promises_nothing, segments
from ..calls.verdicts import clause
from ..executors.placement import known_on_host
from ..executors.precision import STANDARD, sources_of, space_of
from ..executors.reference import Reference
from . import repro_script

NEXT_STEPS = {"E_VERSION": "; a newer ulpscope is needed",
              "E_CORRUPT": "; it is damaged, capture it or copy it again"}  # fmt: skip
INLINE = 1 << 18  # bytes of tensors that a script itself holds
MARKS = re.compile(r"(?<=# ==== the call ====\n).*(?=# ==== what tries it ====\n)", re.DOTALL)


class Trouble(Exception):
    """Something that ends the run; the text is the sentence that the user gets."""


class Options:
    """What the program read and checked (cli/cmd_repro.c): values by their places, then the
    modules to import."""

    def __init__(self, words):
        self.folder, sequence, self.device, self.out, *self.imports = words
        self.sequence = int(sequence)


# ---- what is written -----------------------------------------------------------------


class Source:
    """The Python text of a call's arguments. `home` is the device that captured them."""

    def __init__(self, home):
        self.home = home

    def of(self, value):
        if isinstance(value, TensorAt):
            return f't["{value.path}"]'
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self.of, value))}]"
        if isinstance(value, torch.dtype):
            return f"dtype({value})"
        if isinstance(value, DeviceAt):
            return "device" if value.device.split(":")[0] == self.home else f"torch.device({value.device!r})"
        if isinstance(value, float) and (value != value or abs(value) == float("inf")):
            return f'float("{value}")'
        return repr(value)  # torch.strided and the like are written as they are read

    def call(self, call):
        words = ["op", *map(self.of, call.args), *(f"{k}={self.of(v)}" for k, v in call.kwargs.items())]
        lines = [f"    return op({', '.join(words[1:])})"]
        if len(lines[0]) > 100:
            lines = ["    return op(", *(f"        {word}," for word in words[1:]), "    )"]
        return "\n".join(["def call(op, t, dtype, device):", *lines])


def home_of(call):
    """The type of the device that captured a call."""
    kinds = [v.device.split(":")[0] for v in (*call.views.values(), *call.results.values())]
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def stored(call):
    """Names, tables and bytes of what a call reads: (TENSORS, STORAGES, {name: tensor})."""
    parts, names, tensors, held, data = segments(call), {}, {}, {}, {}
    host = {(call.views[p].storage, call.views[p].dtype) for p in known_on_host(call)}
    for path, view in call.views.items():
        key = view.storage, view.dtype
        name = names.setdefault(key, path)
        if name == path:
            data[name] = parts[key].data.contiguous().view(torch.uint8).clone()
            held[name] = view.dtype, bool(parts[key].steers), key in host
        tensors[path] = (name, view.sizes, view.strides, view.offset - parts[key].first, view.form)
    return tensors, held, data


def truths(call):
    """What a call must give where a formula of ours and not its own kernel says so."""
    if not sources_of(call)[0].partial and space_of(call.op) in STANDARD:
        return {}
    reference = Reference(call)
    found = {}
    for kind, outputs in (("float64", reference.wide()), ("float32", reference.narrow())):
        for path, t in outputs.items():
            if t.is_floating_point():
                found[f"{kind} of {path}"] = t.double().contiguous().reshape(-1).view(torch.uint8)
    return found


def embedded(tensors, out):
    """The lines FILE and DATA; writes the tensors beside the script where they are many."""
    if sum(t.numel() for t in tensors.values()) > INLINE:
        path = out.removesuffix(".py") + ".safetensors"
        _core.write_tensors(path, tensors)
        return f"FILE, DATA = {os.path.basename(path)!r}, None\n", path
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "inputs")
        _core.write_tensors(path, tensors)
        with open(path, "rb") as file:
            text = base64.b85encode(zlib.compress(file.read(), 9)).decode()
    lines = [f'    "{text[i : i + 100]}"\n' for i in range(0, len(text), 100)]
    return f"FILE, DATA = None, (\n{''.join(lines)})\n", None


@contextmanager
def writing(path, *how, **more):
    """open() whose every error names the file, also those of writing and closing."""
    try:
        with open(path, *how, **more) as file:
            yield file
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, path) from None


def table(name, rows, why):
    return f"# {why}\n{name} = {{\n" + "".join(f"    {k!r}: {v!r},\n" for k, v in rows.items()) + "}\n"


def told(row, trace):
    """Where the call was."""
    module = row.get("module_path") or ""
    where = f", in {module} ({row.get('module_class') or 'a module'})" if module else ""
    return f"call {row['sequence']} of {trace}: step {row.get('step') or 0}, {row.get('phase') or 'forward'}{where}"


def script_of(call, row, options, imports):
    """The text of the script, and the file beside it or None."""
    home = home_of(call)
    tensors, held, data = stored(call)
    data |= truths(call)
    held_in, beside = embedded(data, options.out)
    device = options.device or home
    if device.split(":")[0] == "sim":
        imports = ["ulpscope.sim", *imports]
    part = (
        f"FOUND = {told(row, options.folder)!r}\n"
        f"OPERATOR, DEVICE, IMPORTS = {call.op!r}, {device!r}, {imports!r}\n\n\n"
        f"{Source(home).call(call)}\n\n\n"
        + table("TENSORS", tensors, "path: storage, sizes, strides, offset, lazy form")
        + table("STORAGES", held, "name: dtype, whether every run gets it as it is, whether it stays on the host")
        + f"WRITTEN = {call.written()!r}\n{held_in}"
    )
    with open(repro_script.__file__, encoding="utf-8") as file:
        return MARKS.sub(lambda _: part, file.read()), beside


# ---- the command ---------------------------------------------------------------------


def refuse_odd(call):
    """Trouble for what no script can show."""
    if draws_random(call):
        raise Trouble(f"{call.op} draws random numbers: it is judged by what all honest draws have in "
                      "common, which one run cannot show")  # fmt: skip
    if promises_nothing(call):
        raise Trouble(f"{call.op} gives memory that nobody has written: there is nothing to compare")
    if call.op.startswith("c10d::"):
        raise Trouble(f"{call.op} needs all ranks: no script of one process can show it")
    if call.composite:
        raise Trouble(f"{call.op} has arguments that a script cannot hold (sparse tensors)")


def read(options):
    """The call, its row, and what to import for its operator."""
    trace = _core.Trace(options.folder)
    recorded = json.loads(trace.meta("imports") or "[]")
    sys.path.insert(0, os.getcwd())
    import_modules(recorded, options.imports)
    row = trace.call(options.sequence)
    call = call_from(row, trace.blob)
    imports = [] if space_of(call.op) in STANDARD else recorded
    return call, row, list(dict.fromkeys(imports + options.imports))


def repro(options):
    try:
        call, row, imports = read(options)
        refuse_odd(call)
        text, beside = script_of(call, row, options, imports)
        with writing(options.out, "w", encoding="utf-8") as file:
            file.write(text)
    except Trouble:
        raise
    except (OSError, _core.UlpscopeError) as problem:
        raise Trouble(f"{problem}{NEXT_STEPS.get(getattr(problem, 'status', ''), '')}") from None
    except Exception as problem:  # an operator unknown here, contents that were not kept
        raise Trouble(f"call {options.sequence}: {clause(problem)}") from None
    both = f"{options.out} and {beside}" if beside else options.out
    say(f"{call.op} in {both}; torch is all it needs: python {options.out}")
    return 0


def say(text):
    print(f"ulpscope repro: {text}", file=sys.stderr, flush=True)


def main(words=None):
    """The program's half of the command; `words` as Options has them."""
    try:
        return repro(Options(sys.argv[1:] if words is None else words))
    except Trouble as trouble:
        say(str(trouble))
    return 2


if __name__ == "__main__":
    sys.exit(main())
