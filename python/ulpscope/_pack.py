# SPDX-License-Identifier: Apache-2.0
"""`ulpscope pack TRACE -o PACK`: the inputs of every call and the operands of its judge, as
files that `ulpscope judge` reads without torch. Format: docs/pack-format.md.
"""

import json
import math
import multiprocessing
import os
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import torch

from . import _core, _select
from ._check import NEXT_STEPS, core_count, troubles
from ._crew import Trouble
from ._options import Parser
from ._verdicts import clause
from ._pack_operands import name_of, outputs_of_call, rounded_outputs
from ._read_call import call_from
from ._replay import DeviceAt, TensorAt, fit, seen_as
from ._standin import stand_in
from ._tensors_file import write_tensors, writing
from ._wording import describe_arguments
from ._worker import import_it

VERSION = 3
EVERY_SECONDS = 5.0
PICKS_PER_JOB = 64  # a process takes seconds to start


def parse(argv):
    parser = Parser(
        prog="ulpscope pack",
        description="Write the inputs of a trace's calls and what their outputs must be, for "
        "devices without torch.",
        epilog="Exit code: 0 written, 2 something went wrong.",
    )
    add = parser.add_argument
    add("trace", metavar="TRACE", help="folder that `ulpscope capture` wrote")
    add("-o", "--out", required=True, metavar="PACK", help="folder to write; must not exist")
    add("--ops", metavar="PATTERN", help="operators to pack, e.g. 'aten::*mm*,!aten::bmm'")
    add("--distinct", action="store_true",
        help="one call per operator, shapes, dtypes and module class")
    add("--import", action="append", default=[], dest="imports", metavar="MODULE",
        help="import MODULE (or FILE.py) first: it registers custom operators")
    add("-j", "--jobs", type=int, default=0, metavar="N",
        help="processes (default: one per core, fewer for few calls)")
    options = parser.parse_args(argv)
    if options.jobs < 0:
        parser.error("-j must be 1 or more")
    return options


# ---- the manifest --------------------------------------------------------------------


def plain_argument(value):
    """An argument as JSON: tensors, dtypes and what JSON cannot say as one-key objects."""
    if isinstance(value, TensorAt):
        return {"tensor": value.path}
    if isinstance(value, (list, tuple)):
        return [plain_argument(v) for v in value]
    if isinstance(value, torch.dtype):
        return {"dtype": name_of(value)}
    if isinstance(value, (torch.layout, torch.memory_format)):
        kind = "layout" if isinstance(value, torch.layout) else "memory_format"
        return {kind: name_of(value)}
    if isinstance(value, DeviceAt):
        return {"device": value.device}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"other": str(value)}


def inputs_of(call, tensors):
    """Fills `tensors` with the inputs of a call; their entries in the manifest."""
    written = set(call.written())
    entries = []
    for path, view in call.views.items():
        raw = fit(call.storages[view.storage], view.dtype)
        tensor = raw.as_strided(view.sizes, view.strides, view.offset)
        tensor = seen_as(tensor, view.form).resolve_conj().resolve_neg().contiguous()
        tensors[path] = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        entries.append({"name": path, "argument": view.argument, "dtype": name_of(view.dtype),
                        "shape": list(view.sizes), "strides": list(view.strides),
                        "written": path in written})  # fmt: skip
    return entries


def pack_call(row, call, stands_for, folder):
    """Writes the files of one call; its entry in the manifest."""
    inputs, operands = {}, {}
    outputs, reason = outputs_of_call(call, operands)
    name = f"{call.sequence}.safetensors"
    entry = {
        "call": call.sequence, "op": call.op, "schema": str(call.schema or ""),
        "step": row.get("step") or 0, "phase": row.get("phase") or "",
        "module": row.get("module_path") or "", "module_class": row.get("module_class") or "",
        "args": plain_argument(call.args),
        "kwargs": {k: plain_argument(v) for k, v in call.kwargs.items()},
        "summary": describe_arguments(call), "stands_for": stands_for,
        "made_up": call.made_up, "stack": json.loads(row.get("frames") or "[]"),
        "inputs": inputs_of(call, inputs), "outputs": outputs,
    }  # fmt: skip
    entry.update({} if reason else rounded_outputs(call, operands))
    if reason:
        entry["unjudged"] = reason
    if inputs:
        entry["inputs_file"] = f"inputs/{name}"
        write_tensors(os.path.join(folder, "inputs", name), inputs)
    if operands:
        entry["operands_file"] = f"operands/{name}"
        write_tensors(os.path.join(folder, "operands", name), operands)
    return entry


def selection(trace, options):
    """Picks, ascending: every ATen call on the device that captured the trace."""
    rows = [trace.call(s) for s in trace.select()]
    home = _select.home_of(rows)
    picks = _select.pick(rows, home, home)
    if options.ops:
        picks = _select.narrow(picks, set(trace.select(ops=options.ops)))
    if options.distinct:
        by_sequence = {r["sequence"]: r for r in rows}
        picks = _select.distinct(picks, by_sequence.__getitem__)
    if not picks:
        raise Trouble(f"no call of {options.trace} matches: nothing to pack")
    return picks


def import_modules(recorded, named):
    """What the captured program had, as far as it is here, and what --import names."""
    for module in recorded:
        try:
            import_it(module)
        except Exception:  # then its operators are unknown, which their calls say
            continue
    for module in named:
        if module not in recorded:
            import_it(module)


class Packer:
    """What a process holds while it packs: the trace and where to write."""

    def __init__(self, path, folder, modules, threads):
        torch.set_num_threads(threads)
        sys.path.insert(0, os.getcwd())
        import_modules(*modules)
        self.trace, self.folder = _core.Trace(path), folder
        self.trace_id = self.trace.meta("id") or ""

    def pack(self, sequence, stands_for):
        """The entry of one call; one that cannot be rebuilt is unjudged."""
        row = self.trace.call(sequence)
        try:
            made = lambda tensor: stand_in(self.trace_id, sequence, tensor)  # noqa: E731
            call = call_from(row, self.trace.blob, made)
            return pack_call(row, call, stands_for, self.folder)
        except (OSError, _core.CorruptError):
            raise  # no call can be packed
        except Exception as problem:  # a dtype that files cannot hold, an unknown operator
            return {"call": sequence, "op": row["op"], "unjudged": clause(problem),
                    "stands_for": stands_for, "inputs": [], "outputs": []}  # fmt: skip


_packer = None  # of this process


def _begin(*arguments):
    global _packer
    _packer = Packer(*arguments)


def _pack_one(sequence, stands_for):
    return _packer.pack(sequence, stands_for)


def entries_of(picks, arguments, jobs):
    """Entries of the manifest as they get done, in this process or in `jobs` others."""
    if jobs == 1:
        packer = Packer(*arguments)
        yield from (packer.pack(p.sequence, p.stands_for) for p in picks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin, arguments) as pool:
        futures = [pool.submit(_pack_one, p.sequence, p.stands_for) for p in picks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise Trouble("a process that packs died, in a CPU kernel or for want of memory; "
                          "try -j 1, or leave its operator out with --ops") from None  # fmt: skip
        finally:
            pool.shutdown(cancel_futures=True)


def pack_calls(picks, arguments, jobs):
    """Entries of the manifest for all picks, ascending."""
    shown = time.monotonic()
    entries = []
    for entry in entries_of(picks, arguments, jobs):
        entries.append(entry)
        if time.monotonic() - shown > EVERY_SECONDS:
            shown = time.monotonic()
            say(f"{len(entries):,} of {len(picks):,} calls")
    return sorted(entries, key=lambda entry: entry["call"])


@contextmanager
def whole_or_nothing(part):
    """Leaves nothing of a pack that was not finished; what cannot be written is named."""
    try:
        yield
    except OSError as problem:
        raise Trouble(f"{problem.filename or part}: {problem.strerror or problem}; nothing was "
                      "packed: make room, or name another folder with -o") from None  # fmt: skip
    finally:
        shutil.rmtree(part, ignore_errors=True)


def pack(options):
    """The whole run. PACK appears when it is complete."""
    if os.path.exists(options.out):
        raise Trouble(f"{options.out} is there already; name another folder with -o")
    part = options.out.rstrip("/") + ".part"
    with troubles(NEXT_STEPS), whole_or_nothing(part):
        trace = _core.Trace(options.trace)
        picks = selection(trace, options)
        modules = (json.loads(trace.meta("imports") or "[]"), options.imports)
        most = 1 + len(picks) // PICKS_PER_JOB
        jobs = min(options.jobs or min(core_count(), most), len(picks))
        threads = max(1, core_count() // jobs)
        shutil.rmtree(part, ignore_errors=True)
        for name in ("inputs", "operands"):
            os.makedirs(os.path.join(part, name))
        arguments = (os.path.abspath(options.trace), part, modules, threads)
        calls = pack_calls(picks, arguments, jobs)
        manifest = {"format": "ulpscope-pack", "version": VERSION,
                    "trace": os.path.abspath(options.trace), "trace_id": trace.meta("id") or "",
                    "ops": options.ops or "", "distinct": options.distinct, "calls": calls}  # fmt: skip
        with writing(os.path.join(part, "pack.json"), "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1, allow_nan=False)
            file.write("\n")
        os.rename(part, options.out)
    unjudged = [c for c in calls if "unjudged" in c]
    text = f"{len(calls):,} calls in {options.out}"
    if unjudged:
        names = ", ".join(sorted({c["op"] for c in unjudged})[:8])
        text += f"; {len(unjudged):,} have no reference: {names}"
    say(text)
    return 0


def say(text):
    print(f"ulpscope pack: {text}", file=sys.stderr, flush=True)


def main(argv=None):
    options = parse(argv)
    try:
        return pack(options)
    except Trouble as trouble:
        say(str(trouble))
    except KeyboardInterrupt:
        say("interrupted; nothing was written")
        return 130
    return 2


if __name__ == "__main__":
    sys.exit(main())
