# SPDX-License-Identifier: Apache-2.0
"""`ulpscope pack TRACE -o PACK`: the inputs of every call and the operands of its judge, as
files that `ulpscope judge` reads without torch. Format: docs/pack-format.md.

The judge needs of the replays no more than S and N: how strongly each element reacts to the
inputs, and what float32 loses there. They are summed up here over as many replays as a
check asks for at most; the first looks of a check only save replays.
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
from itertools import chain

import torch

from . import _core, _discrete, _select
from ._check import NEXT_STEPS, core_count, troubles
from ._crew import Trouble
from ._device import is_uninitialised, learn_writes
from ._options import Parser
from ._outputs import JUDGED_DTYPES, LOOKS, LOSS_WEIGHT, REAL_PART, Operands, Timing, clause
from ._reference import FAR_REPLAYS, Reference
from ._replay import DeviceAt, TensorAt, call_from, draws_random, fit
from ._standin import stand_in
from ._ties import CUMULATIVE, OUT_OF_WINDOW, _each, choice_of, operator_of
from ._tensors_file import write_tensors
from ._wording import describe_arguments
from ._worker import import_it

VERSION = 1
EVERY_SECONDS = 5.0
PICKS_PER_JOB = 64  # a process takes seconds to start
RANDOM = "draws random numbers, which takes a device that can be asked again"
DELTA, ROUNDING = 2.0**-20, 2.0**-24


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


# ---- operands ------------------------------------------------------------------------


class Kept(Reference):
    """A reference that computes what float32 loses far away once for all outputs."""

    def __init__(self, call):
        super().__init__(call)
        self._far = {}

    def _pair(self, k, delta=0.0):
        if k < FAR_REPLAYS:
            return super()._pair(k, delta)
        if k not in self._far:
            self._far[k] = super()._pair(k, delta)
        return self._far[k]


class Sums:
    """Squares of what replays of one output move and lose."""

    def __init__(self, truth, yardstick):
        self.truth, self.yardstick = truth, yardstick
        self.s = torch.zeros_like(truth)
        self.n = torch.zeros_like(truth)
        self.count = 0
        self.exact = truth.dtype != yardstick.dtype and _same(truth, yardstick.double())

    def add(self, wide, narrow):
        self.s = torch.hypot(self.s, (wide - self.truth) / DELTA)
        self.n = torch.hypot(self.n, (narrow.double() - wide) / ROUNDING)
        self.exact = self.exact and _same(wide, narrow.double())
        self.count += 1

    def means(self):
        root = math.sqrt(self.count)
        return self.s / root, self.n / root


def _same(a, b):
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _pair_of(replay, path, sums):
    """Truth and yardstick of one output in a replay; where its shape depends on values, the
    unperturbed result stands in."""
    wide, narrow = replay
    if path in wide and wide[path].shape == sums.truth.shape == narrow[path].shape:
        return wide[path], narrow[path]
    return sums.truth, sums.yardstick


def float_sums(operands):
    """path -> Sums over the replays that a check asks for at most."""
    reference = operands.reference
    out = {}
    for path, truth in reference.truth.items():
        yardstick = reference.yardstick[path]
        if truth.is_floating_point():
            if truth.shape != yardstick.shape:
                truth = yardstick.double()
            out[path] = Sums(truth, yardstick)
            if yardstick.dtype == torch.float64:
                out[path].exact = True  # as the judge: float64 has no yardstick of its own
    for k in range(LOOKS[-1] if out else 0):
        replay = operands.replay(k)
        for path, sums in out.items():
            sums.add(*_pair_of(replay, path, sums))
    return out


def sensitivity(operands, path, sums):
    """S and N of an inexact output: those of a check's appeal or of its last appeal, where
    what float32 loses further away counts as well, whichever is larger."""
    s, n = sums.means()
    reference = operands.reference
    first, narrow = operands.replay(0)
    try:
        for lost in chain(reference.losses(path), reference.noises(path)):
            if first[path].shape == lost.shape:
                low = first[path] + LOSS_WEIGHT * lost
                sums.add(first[path], torch.where(low.isfinite(), low, narrow[path].double()))
    except Exception:  # the operator does not exist there: nothing is learnt
        pass
    last_s, last_n = sums.means()
    return torch.maximum(s, last_s), torch.maximum(n, last_n)


def _stored(x):
    """A sum as float32 where it holds all of it."""
    low = x.float()
    return x if bool((low.isinf() & x.isfinite()).any()) else low


def float_output(operands, path, sums, put):
    """Puts the operands of a float output; what the manifest says of it."""
    reference = operands.reference
    wide = sums.yardstick.dtype == torch.float64
    exact = sums.exact and not wide
    put("reference", sums.yardstick if exact else sums.truth)
    entry = {"exact": sums.exact}
    if not exact:
        put("yardstick", sums.yardstick)
        s, n = sums.means() if sums.exact else sensitivity(operands, path, sums)
        put("s", s if wide else _stored(s))
        if not sums.exact:
            put("n", _stored(n))
    entry["fan_in"] = operands.fan_in(path)
    entry["movement"] = sums.exact and reference.never_rounds()
    for flushed in operands.flushed(path)[:1]:
        put("flushed", flushed)
    jumps = reference.jumps.get(path, [])
    if jumps:
        put("jump_at", torch.cat([j.where for j in jumps]))
        put("jump_values", torch.cat([j.values.double() for j in jumps]))
    if _discrete.is_rounding(operands.call):
        entry["rounding"] = True
    return entry


# ---- what is not continuous ----------------------------------------------------------


def corners(operands):
    """path -> where a gradient hangs on a corner of its function, over probes that all
    outputs share."""
    call, reference = operands.call, operands.reference
    floats = {p: t for p, t in reference.truth.items()
              if t.is_floating_point() and _discrete._is_gradient(call, p)}  # fmt: skip
    low, high = dict(floats), dict(floats)
    for k in range(_discrete.PROBES if floats else 0):
        try:
            moved = reference.wide(_discrete._jittered(reference, k))
        except Exception:  # the operator does not exist there: nothing is learnt
            continue
        for path, truth in floats.items():
            if path in moved and moved[path].shape == truth.shape:
                low[path] = torch.fmin(low[path], moved[path])
                high[path] = torch.fmax(high[path], moved[path])
    return {
        path: high[path] - low[path]
        > _discrete.JUMP * torch.maximum(low[path].abs(), high[path].abs())
        for path in floats
    }


def unpromised(operands, path, like):
    """Which elements of an output the operator does not promise, whatever a device gives
    there, and why; None for none."""
    found = _discrete._out_of_range(operands, path, like, None)
    if found is not None:
        return found
    name, arguments = operator_of(operands.call)
    if name not in _discrete.WRITES or arguments.get("accumulate") or arguments.get("reduce"):
        return None
    try:
        places, _ = _discrete._updates(name, arguments, like)
    except (RuntimeError, IndexError, TypeError, KeyError):
        return None
    counts = torch.bincount(places, minlength=like.numel())
    return (counts > 1).view(like.shape), "several updates write one element, in no promised order"


def put_unpromised(operands, path, at_corners, like, put):
    """Puts the mask of elements that nothing is promised of; {} or why."""
    found = unpromised(operands, path, like)
    if found is None and path in at_corners:
        found = at_corners[path], "the function has a corner there, and any subgradient is one"
    if found is None or found[0].shape != like.shape or not bool(found[0].any()):
        return {}
    put("unpromised", found[0].to(torch.uint8))
    return {"why_unpromised": found[1]}


def window_of(choice):
    """[kernel, stride, padding, dilation] per pooled dimension; kernel 0: adaptive, -1: the
    windows hang on samples."""
    n = 3 if "3d" in choice.name else 2
    if choice.name.startswith(OUT_OF_WINDOW):
        return [[-1, 0, 0, 0]] * n
    if choice.name.startswith("adaptive"):
        return [[0, 0, 0, 0]] * n
    kernel = [_each(choice, "kernel_size", d, 1) for d in range(n)]
    return [[kernel[d], _each(choice, "stride", d, kernel[d]), _each(choice, "padding", d, 0),
             _each(choice, "dilation", d, 1)] for d in range(n)]  # fmt: skip


def choice_entry(operands, path, put):
    """How an index output chooses; {} where it does not, or only one index is right."""
    choice = choice_of(operands.call, path)
    if choice is None or choice.name == "mode" or choice.arguments.get("stable"):
        return {}
    put("choice", choice.values)
    dim = choice.dim
    if dim is not None and dim < 0:
        dim += choice.values.dim()
    pooled = "max_pool" in choice.name
    cumulative = choice.name in CUMULATIVE
    once = not (pooled or cumulative or choice.name.startswith("_embedding"))
    return {"choice": {"dim": dim, "once": once, "cumulative": cumulative, "slack": choice.slack,
                       "window": window_of(choice) if pooled else []}}  # fmt: skip


def exact_output(operands, path, put):
    """Puts what integers, booleans and unknown dtypes must equal."""
    native = operands.reference.native() or operands.reference.yardstick
    put("reference", native[path])
    return choice_entry(operands, path, put)


def dtypes_of(operands, path):
    """The dtypes that a device may give, the captured one first; [] for any."""
    call = operands.call
    views = call.views if path in call.views else call.results
    native = operands.reference.native() or {}
    found = []
    if path in views:
        found.append(REAL_PART.get(views[path].dtype, views[path].dtype))
    if path in native and native[path].dtype not in found:
        found.append(native[path].dtype)
    return found


def output_entry(operands, path, sums, at_corners, put):
    """Puts the operands of one output; its entry in the manifest."""
    dtypes = dtypes_of(operands, path)
    entry = {"path": path, "dtypes": [_name(d) for d in dtypes],
             "shape": list(operands.reference.truth[path].shape)}  # fmt: skip
    dtype = dtypes[0] if dtypes else operands.reference.yardstick[path].dtype
    if is_uninitialised(operands.call.op):
        put("reference", torch.zeros(entry["shape"], dtype=dtype))
        return {**entry, "free": True}
    scale = operands.reference.quantizes and path.endswith(".scale")
    if path in sums and dtype in JUDGED_DTYPES and not scale:
        entry["pairs"] = path in operands.reference.pairs
        if dtype.itemsize < 4:
            native = (operands.reference.native() or {}).get(path)
            if native is not None and native.dtype == dtype:
                put("native", native)
        more = float_output(operands, path, sums[path], put)
    else:
        more = exact_output(operands, path, put)
    like = operands.reference.truth[path].to(dtype)
    return {**entry, **more, **put_unpromised(operands, path, at_corners, like, put)}


def _name(dtype):
    return str(dtype).removeprefix("torch.")


def outputs_of_call(call, tensors):
    """Fills `tensors` with the operands of a call; entries of the manifest, and why the call
    cannot be judged ("" where it can)."""
    if draws_random(call):
        return [], RANDOM
    learn_writes(call)
    operands = Operands(call, Timing())
    operands.reference = Kept(call)
    try:
        operands.begin()
        if not is_uninitialised(call.op) and operands.reference.is_random():
            return [], RANDOM
        sums, at_corners = float_sums(operands), corners(operands)
    except Exception as problem:  # whatever an operator raises
        return [], f"no float64 reference: {clause(problem)}"
    entries = []
    for path in operands.reference.truth:
        kept = {}
        try:
            entry = output_entry(operands, path, sums, at_corners, kept.__setitem__)
            entry["operands"] = {name: f"{path}.{name}" for name in kept}
            tensors.update({f"{path}.{name}": t for name, t in kept.items()})
        except Exception as problem:
            entry = {"path": path, "unjudged": f"no reference: {clause(problem)}"}
        entries.append(entry)
    return entries, ""


# ---- the manifest --------------------------------------------------------------------


def plain_argument(value):
    """An argument as JSON: tensors, dtypes and what JSON cannot say as one-key objects."""
    if isinstance(value, TensorAt):
        return {"tensor": value.path}
    if isinstance(value, (list, tuple)):
        return [plain_argument(v) for v in value]
    if isinstance(value, torch.dtype):
        return {"dtype": _name(value)}
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
        tensor = raw.as_strided(view.sizes, view.strides, view.offset).contiguous()
        tensors[path] = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        entries.append({"name": path, "argument": view.argument, "dtype": _name(view.dtype),
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
    for output in outputs:
        output["name"] = f"{call.sequence}/{output['path']}"
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


def pack(options):
    """The whole run. PACK appears when it is complete."""
    if os.path.exists(options.out):
        raise Trouble(f"{options.out} is there already; name another folder with -o")
    part = options.out.rstrip("/") + ".part"
    with troubles(NEXT_STEPS):
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
        with open(os.path.join(part, "pack.json"), "w", encoding="utf-8") as file:
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
