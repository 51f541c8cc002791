# SPDX-License-Identifier: Apache-2.0
"""Whether a narrower format explains an output that would be called wrong: noise that lies on few
elements, or that cancels to much more than it was, is no other formula. The same call is computed
in bfloat16, float16 and TF32 on the CPU, and only one that gives the very errors counts: element by
element, on what it moves as well as on what the device has moved. Serves `session.judging`."""

from dataclasses import replace

import torch

from ..executors.formats import FORMATS, LOW, OWN_FORMAT, to_dtype, to_format
from ..executors.noise import Steps
from ..executors.precision import kernel_is_reference
from .outputs import judge_outputs

NEARER = 8.0  # times nearer to the emulation than that is to the truth: so its error is the same
EXPLAINED = 0.95  # share of the elements, of all that either has moved
PROOF = 24.0  # bits of agreement, of all elements together, that no other mistake has by chance
ROUNDINGS = 8.0  # of float32's own loss, that any order of adding may lose
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
    if emulated.shape != device.shape or device.dtype not in OWN_FORMAT:
        return False
    same = _same_errors(device, truth, operands.reference.yardstick[path], emulated)
    if same is None:
        return False
    right = operands.reference.truth.items()
    outputs = {p: t.to(answer.outputs[p].dtype) for p, t in right if p in answer.outputs}
    outputs[path] = torch.where(same, outputs[path], device)
    rest = judge_outputs(operands, replace(answer, outputs=outputs, trespass=""))
    return all(f.verdict in ("pass", "reduced") for f in rest if f.path == path)


def _same_errors(device, truth, yardstick, emulated):
    """Elements whose error is the emulation's own; None where they do not prove that it is how
    the device computed."""
    d, t, e = device.double(), truth.double(), emulated.double()
    own = to_dtype(e, device.dtype)
    lost = (yardstick.double() - t).abs()
    slack = 1.02 * 2.0 ** -FORMATS[OWN_FORMAT[device.dtype]][0] * t.abs() + ROUNDINGS * lost
    error, moved = (d - t).abs(), (own - t).abs()
    counts = (error > slack) | (moved > slack)
    left = torch.minimum((d - own).abs(), (d - e).abs())
    same = (left <= torch.maximum(slack, (e - t).abs() / NEARER)) | (d == own)
    if not bool(counts.any()) or float(same[counts].double().mean()) < EXPLAINED:
        return None
    agreed = torch.maximum(error, moved) / torch.maximum(left, slack).clamp(min=1e-300)
    bits = torch.log2(agreed.nan_to_num(nan=1.0).clamp(1.0, 2.0**24))
    bits = bits[counts & same & (error > slack)]
    return same if float(bits.sum()) >= PROOF else None
