# SPDX-License-Identifier: Apache-2.0
"""`ulpscope pack TRACE -o PACK`, in a worker (`worker`): the inputs of every call and the
operands of its judge, as files that `ulpscope judge` reads without torch. The manifest is the
coordinator's (src/run/pack_run.c). Format: docs/reference/pack-format.md.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from .. import _core
from ..calls.foreign import is_ours, our_words
from ..calls.read_call import call_from
from ..calls.raw_bytes import fit
from ..calls.replay import Call, seen_as
from ..calls.verdicts import clause
from ..judges.answers import short
from ..judges.kept import outputs_of_call
from ..judges.wording import describe_arguments
from ..calls.standin import stand_in


def inputs_of(call: Call, tensors: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Fills `tensors` with the inputs of a call; their entries in the manifest."""
    written = set(call.written())
    entries = []
    for path, view in call.views.items():
        raw = fit(call.storages[view.storage], view.dtype)
        tensor = raw.as_strided(view.sizes, view.strides, view.offset)
        tensor = seen_as(tensor, view.form).resolve_conj().resolve_neg().contiguous()
        tensors[path] = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        entries.append(
            {
                "name": path,
                "argument": view.argument,
                "dtype": short(view.dtype),
                "shape": list(view.sizes),
                "strides": list(view.strides),
                "written": path in written,
            }
        )
    return entries


def pack_call(row: dict[str, Any], call: Call, stands_for: int, folder: str) -> dict[str, Any]:
    """Writes the files of one call; its entry in the manifest."""
    inputs: dict[str, Any] = {}
    kept = outputs_of_call(call)
    name = f"{call.sequence}.safetensors"
    entry = {
        "call": call.sequence,
        "op": call.op,
        "schema": str(call.schema or ""),
        "step": row.get("step") or 0,
        "phase": row.get("phase") or "",
        "module": row.get("module_path") or "",
        "module_class": row.get("module_class") or "",
        **json.loads(_core.placed_arguments(row["args"])),
        "summary": describe_arguments(call),
        "stands_for": stands_for,
        "made_up": call.made_up,
        "stack": json.loads(row.get("frames") or "[]"),
        "inputs": inputs_of(call, inputs),
        "outputs": named(call, kept.case.kept()),
    }
    if kept.freedom:
        entry["together"] = kept.freedom
    if kept.undefined:
        entry["undefined_outputs"] = [f"{call.sequence}/{path}" for path in kept.undefined]
    if kept.without is not None:
        verdict, entry[verdict] = kept.without
    for kind, part in (("inputs", inputs), ("operands", kept.case)):
        if _core.write_tensors(os.path.join(folder, kind, name), part):
            entry[f"{kind}_file"] = f"{kind}/{name}"
    return entry


def named(call: Call, outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries with the names that the outputs have in a device's file."""
    return [{**o, "name": f"{call.sequence}/{o['path']}"} for o in outputs]


class Packer:
    """What a process holds while it packs: the trace and where to write."""

    def __init__(self, settings: dict[str, Any], channel: Any) -> None:
        self.trace, self.folder = _core.Trace(settings["trace"]), settings["folder"]
        self.trace_id = settings["trace_id"]

    def work(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool, None]:
        """The entry of one call as a row; one that cannot be rebuilt is unjudged. As
        `bench.Bench.work`."""
        sequence, stands_for = request["call"], request["stands_for"]
        row = self.trace.call(sequence)
        try:
            made = lambda tensor: stand_in(self.trace_id, sequence, tensor, row)  # noqa: E731
            call = call_from(row, self.trace.blob, made)
            entry = pack_call(row, call, stands_for, self.folder)
        except (_core.IoError, _core.CorruptError):
            raise  # no call can be packed
        except Exception as problem:  # a dtype that files cannot hold, an unknown operator
            mistake = is_ours(problem)
            why = our_words(problem) if mistake else clause(problem)
            entry = {
                "call": sequence,
                "op": row["op"],
                "unjudged": why,
                "stands_for": stands_for,
                "inputs": [],
                "outputs": [],
            }
            if mistake:
                return {"entry": entry, "internal": why}, True, None
        return {"entry": entry}, True, None

    def fired(self) -> list[str]:
        """No faults are planted where nothing runs on a device."""
        return []
