# SPDX-License-Identifier: Apache-2.0
"""Whether a narrower format explains an output that would be called wrong: noise that lies on few
elements, or that cancels to much more than it was, is no other formula. The same call is computed
in bfloat16, float16 and TF32 on the CPU, and only one that gives the very errors counts: element by
element, on what it moves as well as on what the device has moved (usc_judge_same_errors). Serves
`session.judging`."""

from dataclasses import replace

import torch

from .. import _core
from ..executors.formats import LOW, OWN_FORMAT, to_format
from ..executors.noise import Steps
from ..executors.precision import kernel_is_reference
from .outputs import judge_outputs

NATIVE = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Narrow(Steps):
    """Rounds what every step gives to a narrower format."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def _step(self, func, args, kwargs, out):
        return to_format(out, self.name).to(out.dtype)


def followed(call, answer, verdict):
    """Calls the outputs of a verdict `reduced` that are `wrong` and whose errors are those of a
    narrower format. One that is off in another way besides stays what it is."""
    if verdict.verdict != "wrong" or verdict.operands is None or verdict.part is not None:
        return verdict
    reference = verdict.operands.reference
    open_ = {f.path: i for i, f in enumerate(verdict.findings) if f.verdict == "wrong" and f.measured}
    for words, run in runs(reference) if open_ else ():
        try:
            given = run()
        except Exception:  # whatever an operator raises in a format that it may not know
            continue
        for path in [p for p in open_ if p in given]:
            if _explains(given[path], answer, verdict.operands, path):
                verdict.findings.reduce(open_.pop(path))
                verdict.remarks.append(f"{path} has the numbers of {words}")
        if not open_:
            break
    verdict.verdict = verdict.worst.verdict
    return verdict


def runs(reference):
    """(words, function) of the call in narrower formats; a function gives outputs by path."""
    own = kernel_is_reference(reference.call)
    if own and any(p.dtype in NATIVE.values() for p in reference.parts.values()):
        yield "torch's own kernel in this dtype", lambda: reference.native() or {}
    for name in LOW:
        near = {}

        def inputs(n=name, near=near):
            near.update(reference.wide(_rounded(reference, n)))
            return near

        yield f"a result rounded to {name}", lambda n=name: _in_format(reference.truth, n)
        yield f"inputs rounded to {name}", inputs
        yield (
            f"inputs and a result rounded to {name}",
            lambda n=name, near=near: _in_format(near, n),
        )
        yield f"arithmetic in {name}", lambda n=name: reference.in_float32(Narrow(n))
        if own and name in NATIVE:
            yield f"torch's own kernel in {name}", lambda n=name: reference.in_dtype(NATIVE[n])


def _rounded(reference, name):
    return {k: to_format(p.data, name) for k, p in reference.parts.items()
            if p.dtype.is_floating_point and not p.steers}  # fmt: skip


def _in_format(outputs, name):
    return {p: to_format(t, name) if t.is_floating_point() else t for p, t in outputs.items()}


def _explains(emulated, answer, operands, path):
    """Whether an emulation has the errors of an output, and what it leaves open is not wrong."""
    device, truth = answer.outputs[path], operands.reference.truth[path]
    if emulated.shape != device.shape or device.dtype not in OWN_FORMAT or not emulated.is_floating_point():
        return False
    same = torch.empty(device.shape, dtype=torch.bool)
    if not _core.same_errors(device, truth, operands.reference.yardstick[path], emulated, same):
        return False
    right = operands.reference.truth.items()
    outputs = {p: t.to(answer.outputs[p].dtype) for p, t in right if p in answer.outputs}
    outputs[path] = torch.where(same, outputs[path], device)
    rest = judge_outputs(operands, replace(answer, outputs=outputs, trespass=""))
    return all(f.verdict in ("pass", "reduced") for f in rest if f.path == path)
