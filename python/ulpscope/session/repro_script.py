# SPDX-License-Identifier: Apache-2.0
"""One operator call: what a device makes of it, against float64 on this CPU.

Needs torch alone: python FILE [--device DEVICE] [--import MODULE]...
Exit code: 0 about as good as float32 on this CPU, 1 not, 2 it could not be tried.
"""

import argparse
import base64
import importlib
import json
import os
import sys
import zlib

import torch

# ==== the call ====
FOUND = "no call: `ulpscope repro` writes one here"
OPERATOR, DEVICE, IMPORTS = "aten::add.Tensor", "cpu", []


def call(op, t, dtype, device):
    return op(t["args[0]"], t["args[1]"])


# path: storage, sizes, strides, offset, lazy form
TENSORS = {"args[0]": ("a", (2,), (1,), 0, ""), "args[1]": ("a", (2,), (1,), 1, "")}
# name: dtype, whether it is given as it is to every run, whether it stays on the host
STORAGES = {"a": (torch.float32, False, False)}
WRITTEN = []
FILE, DATA = None, "c-pIAfPiYHL?tVQYNeEt%7RoNODWVsNk>7cI3p3vjW#rj1#(joOA_Pr)6$AlONv3F2098riP~BPvH=6b0ec1p1qTL(20H+k%Nyh"
# ==== what tries it ====

ROUNDING = {torch.float64: 2.0**-53}  # of computing; of what is narrower: float32's
WIDE = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}
SINGLE = {torch.complex32: torch.complex64}
LAZY = {"conj": torch.Tensor.conj, "neg": torch._neg_view}


def wide(dtype):
    return torch.float64 if dtype.is_floating_point else WIDE.get(dtype, dtype)


def single(dtype):
    narrow = dtype.is_floating_point and dtype.itemsize < 4
    return torch.float32 if narrow else SINGLE.get(dtype, dtype)


def as_it_is(dtype):
    return dtype


def load():
    """The bytes that the call reads, by the name of their storage (a safetensors file)."""
    raw = zlib.decompress(base64.b85decode(DATA)) if DATA else None
    if raw is None:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), FILE), "rb") as file:
            raw = file.read()
    first = 8 + int.from_bytes(raw[:8], "little")
    found = {}
    for name, entry in json.loads(raw[8:first]).items():
        begin, end = entry["data_offsets"]
        part = bytearray(raw[first + begin : first + end])
        found[name] = torch.frombuffer(part, dtype=torch.uint8) if part else torch.empty(0, dtype=torch.uint8)
    return found


def nudged(data, dice):
    """Every number moved by up to one rounding of float32."""
    by = torch.rand(data.shape, generator=dice, dtype=torch.float64) * 2 - 1
    return data * (1 + 2.0**-24 * by)


def arguments(data, device, change, dice):
    bases, tensors = {}, {}
    for name, (dtype, exact, on_host) in STORAGES.items():
        base, to = data[name].view(dtype), dtype if exact else change(dtype)
        if dice is not None and to in (torch.float64, torch.complex128) and not exact:
            base = nudged(base.to(to), dice)
        bases[name] = base.to(device="cpu" if on_host else device, dtype=to, copy=True)
    for path, (name, sizes, strides, offset, form) in TENSORS.items():
        tensors[path] = bases[name].as_strided(sizes, strides, offset)
        for kind in form.split():
            tensors[path] = LAZY[kind](tensors[path])
    return tensors


def leaves(value, path):
    """Tensors and numbers in what an operator returns, with their places."""
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from leaves(item, f"{path}[{i}]")
    elif isinstance(value, (torch.Tensor, bool, int, float, complex)):
        yield path, torch.as_tensor(value)


def run(data, device, change=as_it_is, dice=None):
    """Results and written arguments of the call on a device, on the CPU."""
    tensors = arguments(data, device, change, dice)
    with torch.no_grad():
        out = call(operator(OPERATOR), tensors, change, torch.device(device))
    found = dict(leaves(out if isinstance(out, (list, tuple)) else (out,), "out"))
    found |= {path: tensors[path] for path in WRITTEN}
    found = {path: t.detach().cpu().resolve_conj().resolve_neg() for path, t in found.items()}
    return {path: torch.view_as_real(t) if t.is_complex() else t for path, t in found.items()}


def operator(name):
    space, colons, rest = name.partition("::")
    if not colons:
        found = torch
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        return found
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")


class Truth:
    """What is right, what float32 gives here, and how far the inputs' last bits move it."""

    def __init__(self, data):
        stored = {name: data.pop(name) for name in list(data) if " of " in name}
        kept = {name: t.view(torch.float64) for name, t in stored.items()}
        of = lambda kind: {n.removeprefix(kind): t for n, t in kept.items() if n.startswith(kind)}  # noqa: E731
        self.right, self.float32 = of("float64 of "), of("float32 of ")
        self.moved = {}
        try:
            self.exact = run(data, "cpu")
        except Exception:  # then dtypes and integers are not compared
            self.exact = {}
        if self.right:
            return
        self.right, self.float32 = run(data, "cpu", wide), run(data, "cpu", single)
        dice = torch.Generator().manual_seed(0)
        for _ in range(4):
            for path, t in run(data, "cpu", wide, dice).items():
                far = (t.double() - self.right[path].double()).abs().nan_to_num(0.0, 0.0)
                self.moved[path] = torch.maximum(self.moved.get(path, far), far)

    def roundings(self, path, got):
        """How far `got` is from right beyond the rounding of its dtype, element by element, in
        roundings of float32 at what the element is made of."""
        right = self.right[path].double().reshape(got.shape)
        dtype, got = got.dtype, got.double()
        unit = right.abs() * ROUNDING.get(dtype, 2.0**-24)
        for more in (self.moved.get(path), self.away(path, right)):
            if more is not None:
                unit = torch.maximum(unit, more.reshape(unit.shape))
        low = torch.finfo(dtype)
        own = right.abs() * (low.eps / 2 if low.bits < 32 else 0.0)
        unit = unit.clamp_min(max(low.smallest_normal, 1e-300))
        far = ((got - right).abs() - own).clamp_min(0.0) / unit
        outside = right.abs() > low.max  # overflow there is right
        odd = (got.isfinite() != right.isfinite()) & ~outside
        return torch.where(odd, torch.inf, torch.where(outside | ~right.isfinite(), 0.0, far))

    def away(self, path, right):
        near = self.float32.get(path)
        return None if near is None else (near.double().reshape(right.shape) - right).abs().nan_to_num(0.0, 0.0)


def place(t, i):
    """[3, 4]: where the i-th element of a tensor is."""
    return [int(k) for k in torch.unravel_index(torch.tensor(i), t.shape)]


def judge(path, got, truth):
    """One sentence on one output, and whether it is as it should be."""
    exact, right = truth.exact.get(path), truth.right.get(path)
    if right is None and exact is None:
        return "there is nothing to compare it with", True
    like = exact if exact is not None else right
    if got.shape != like.shape or (exact is not None and got.dtype != exact.dtype):
        return f"{got.dtype} {list(got.shape)} where the CPU gives {like.dtype} {list(like.shape)}", False
    if not got.is_floating_point() or right is None:
        n = int((got != like).sum())
        if n == 0:
            return "equal to the CPU's", True
        i = int((got != like).flatten().to(torch.uint8).argmax())
        return f"{n:,} of {got.numel():,} differ from the CPU's, the first at {place(got, i)}: " \
               f"{got.flatten()[i].item()} where {like.flatten()[i].item()} is right", False  # fmt: skip
    if got.numel() == 0:
        return "empty", True
    far = truth.roundings(path, got)
    honest = truth.float32.get(path)
    own = truth.roundings(path, honest.reshape(got.shape).to(got.dtype)) if honest is not None else torch.zeros(1)
    worst, typical = float(far.max()), float(far.square().mean().sqrt())
    here, usual = float(own.max()), float(own.square().mean().sqrt())
    i = int(far.argmax())
    text = f"worst element off by {worst:.3g} roundings of float32 (float32 here: {here:.3g}), typical " \
           f"{typical:.3g} ({usual:.3g}); at {place(got, i)}: {got.flatten()[i].item():.9g} where " \
           f"{right.flatten()[i].item():.9g} is right"  # fmt: skip
    return text, worst <= 16 * max(here, 64.0) and typical <= 8 * max(usual, 1.0)


def imported(name):
    if not name.endswith(".py"):
        return importlib.import_module(name)
    sys.path.insert(0, os.path.dirname(os.path.abspath(name)))
    return importlib.import_module(os.path.basename(name).removesuffix(".py"))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=DEVICE, help=f"what to try (default {DEVICE})")
    parser.add_argument("--import", action="append", default=[], dest="imports", metavar="MODULE",
                        help="import this first: it brings the device or the operator")  # fmt: skip
    return parser.parse_args()


def main():
    options = parse()
    print(f"{OPERATOR} on {options.device}, torch {torch.__version__}: {FOUND}")
    try:
        for name in dict.fromkeys(IMPORTS + options.imports):
            imported(name)
        data = load()
        truth = Truth(data)
        got = run(data, options.device)
    except Exception as problem:  # whatever a device or an operator raises
        print(f"it could not be tried: {type(problem).__name__}: {problem}", file=sys.stderr)
        return 2
    said = {path: judge(path, t, truth) for path, t in got.items()}
    for path, (text, good) in said.items():
        print(f"{'ok    ' if good else 'DIFFERS'} {path}: {text}")
    return 0 if all(good for _, good in said.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
