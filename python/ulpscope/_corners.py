# SPDX-License-Identifier: Apache-2.0
"""Gradients at a corner of their function, where any subgradient is right: which elements
these are, and between which values theirs may lie. Serves `_discrete` and `_callable`.

A corner is found by moving what is differentiated, and nothing else, by less than any slope
could show. Labels, masks and saved results belong to the definition: at them nothing is open.
"""

from dataclasses import dataclass, field

import torch
from torch.overrides import TorchFunctionMode

from ._excuses import most
from ._mode import Mode
from ._ties import name_of_one

PROBES = 48
FIRST = 12  # of them tell whether there is a corner at all
TWICE = 8  # of them are looked at from half the distance as well
JITTER = 2.0**-44  # of each input: only float64 sees it, and no slope makes it visible
JUMP = 2.0**-10  # of the result: far above it
GRID = 2.0**-36  # of the largest: far above what a jitter becomes on its way
SAME = 2.0**-12  # of the result: one choice, computed with other roundings
ROUNDINGS = 2.0**-18  # beyond a side
MOST_PARTS = 64  # among which a tie is divided evenly
CHOICES = 0.9  # of the elements at ties have to be choices where many are excused

# Arguments of ATen's gradients of which they are the gradient.
DIFFERENTIATED = {"self", "input", "x1", "x2"}
# Other gradients: arguments that no gradient is about.
SAVED = {
    "result", "output", "out", "y", "saved", "mask", "target", "targets", "label", "labels",
    "indices", "index", "noise", "buffer", "grad_output", "grad_out", "grad", "dy", "dout", "weights",
    "total_weight", "logsumexp", "save_mean", "save_invstd", "mean", "rstd",
}  # fmt: skip
# Gradients of activations: what they give at their corners is in their documentation, and
# where units are dead by the thousands it decides what is learnt.
ACTIVATIONS = {
    "threshold_backward", "hardtanh_backward", "leaky_relu_backward", "elu_backward",
    "hardswish_backward", "hardsigmoid_backward", "hardshrink_backward", "softshrink_backward",
    "_prelu_kernel_backward", "rrelu_with_noise_backward",
}  # fmt: skip


# ---- what is differentiated ----------------------------------------------------------


class Asked(TorchFunctionMode):
    """Notes of which tensors a callable asks gradients, by where their storages begin."""

    def __init__(self):
        super().__init__()
        self.storages, self._leaves = set(), set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if func is torch.autograd.grad:
            wanted = kwargs.get("inputs", args[1] if len(args) > 1 else ())
            wanted = (wanted,) if isinstance(wanted, torch.Tensor) else wanted
            self.storages |= {_begin(t) for t, g in zip(wanted, out) if g is not None}
        elif name == "requires_grad_" and args:
            self._leaves.add(_begin(args[0]))
        elif name == "backward":
            self.storages |= self._leaves
        return out

    def of(self, call, bound):
        """Storages of the call's arguments that are differentiated."""
        self.storages.discard(0)
        return {call.views[p].storage for p, t in bound.tensors.items()
                if t.layout == torch.strided and _begin(t) in self.storages}  # fmt: skip


def _begin(tensor):
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor without a storage
        return 0


def differentiated(reference):
    """Keys of the segments that a gradient is about."""
    call = reference.call
    floats = {k: p for k, p in reference.parts.items()
              if p.dtype.is_floating_point and not p.steers and p.data.numel()}  # fmt: skip
    known = getattr(call, "differentiated", None)
    if known:
        return [k for k in floats if k[0] in known]
    names = _argument_names(call)
    if names and call.op.startswith("aten::"):
        if any(_flag(call, f) for f in ("is_result", "self_is_result")):
            return []
        return [k for k in floats if names.get(k, set()) & DIFFERENTIATED]
    return [k for k, p in floats.items()
            if not names.get(k, set()) & SAVED and not _is_label(p)]  # fmt: skip


def _argument_names(call):
    """Segment key -> names of the arguments that lie in it, {} where there is no schema."""
    schema = call.schema or getattr(call.function, "_schema", None)
    out = {}
    for path, view in call.views.items() if schema else ():
        name = view.argument
        if path.startswith("args["):
            place = int(path[5 : path.index("]")])
            name = schema.arguments[place].name if place < len(schema.arguments) else name
        out.setdefault((view.storage, view.dtype), set()).add(name)
    return out


def _flag(call, name):
    """Whether a boolean argument of an operator is given and true."""
    schema = call.schema or call.function._schema
    places = [i for i, a in enumerate(schema.arguments) if a.name == name]
    given = call.kwargs.get(name, call.args[places[0]] if places and places[0] < len(call.args) else None)
    return given is True


def _is_label(part):
    """Small integers, or two values only: a label, a mask, what a dropout kept."""
    return part.small_integers or part.data[:4096].unique().numel() <= 2


# ---- where corners are ---------------------------------------------------------------


class Settled(Mode):
    """Gradients of activations at the very point that the captured inputs reach: a jitter
    does not lift them off their corner."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name.partition("::")[2] in ACTIVATIONS:
            args = [args[0], *map(_on_grid, args[1:])]
        return func(*args, **(kwargs or {}))


def _on_grid(value):
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return value
    largest = float(value.nan_to_num(0, 0, 0).abs().max())
    if largest == 0:
        return value
    step = 2.0 ** (torch.tensor(largest).frexp()[1].item()) * GRID
    return torch.where(value.isfinite(), (value / step).round() * step, value)


@dataclass
class Probes:
    """What one output becomes when its inputs are jittered."""

    reference: object
    path: str
    settled: bool = False
    low: torch.Tensor = None
    high: torch.Tensor = None
    rough: torch.Tensor = None
    keys: list = field(default_factory=list)
    sums: list = field(default_factory=list)  # least and largest of each way of summing up

    def __post_init__(self):
        self.keys = differentiated(self.reference)
        truth = self.reference.truth[self.path]
        self.low, self.high = truth.clone(), truth.clone()
        self.rough = torch.zeros_like(truth, dtype=torch.int32)
        self.sums = [(s, s) for s in _sums(truth)]

    def values(self, first=0):
        """The output of each probe from `first` on; every tensor is moved up and down as a
        whole, then all of them by chance."""
        for k in range(first, PROBES if self.keys else 0):
            moved = self._moved(k, JITTER)
            if moved is None:
                continue
            self.low, self.high = torch.fmin(self.low, moved), torch.fmax(self.high, moved)
            self.sums = [(torch.fmin(a, s), torch.fmax(b, s)) for (a, b), s in zip(self.sums, _sums(moved))]
            nearer = self._moved(k, JITTER / 2) if k < TWICE else None
            if nearer is not None:  # beside a corner nothing hangs on the distance
                larger = torch.maximum(moved.abs(), nearer.abs())
                self.rough += (moved - nearer).abs() > JUMP * larger
            yield moved

    def corners(self):
        """Where the probes differ as they do beside a corner."""
        reach = self.high - self.low
        return (reach > JUMP * self.size()) & (self.rough <= TWICE / 2)

    def unbalanced(self, device):
        """Where a sum that no choice changes, as what tied maxima share, is another on the device."""
        found = torch.zeros_like(device, dtype=torch.bool)
        share = max(SAME, 4 * torch.finfo(device.dtype).eps)
        wide = device.double()
        for (low, high), got, size in zip(self.sums, _sums(wide), _sums(self.size())):
            fixed = high - low <= GRID * size
            off = (got - low).abs() > share * torch.maximum(size, got.abs())
            found |= fixed & off
        return found

    def size(self):
        return torch.maximum(self.low.abs(), self.high.abs())

    def _moved(self, k, by):
        """The truth on moved inputs; None where the operator does not exist there."""
        reference = self.reference
        run = self._settled_run if self.settled else None
        try:
            moved = reference.wide(_jittered(reference, self.keys, k, by), run)[self.path]
        except Exception:
            return None
        return moved if moved.shape == self.low.shape else None

    def _settled_run(self, *args, **kwargs):
        with Settled():
            return self.reference.call.function(*args, **kwargs)


def _sums(x):
    """Sums over each dimension, over the last two and three, and over all, which stay."""
    ways = [(d,) for d in range(x.dim())] + [tuple(range(-n, 0)) for n in range(2, x.dim() + 1)]
    return [x.sum(dims, keepdim=True) for dims in ways]


def _jittered(reference, keys, k, by):
    """The inputs that are differentiated, moved: the k-th of them up or down as a whole while
    there is one, then all by chance."""
    generator = torch.Generator().manual_seed(0x11E5 + k)
    contents = {}
    for i, key in enumerate(keys):
        data = reference.parts[key].data.double()
        if k < 2 * len(keys):
            way = float(k // 2 == i) * (1 - 2 * (k % 2))
        else:
            way = 2 * torch.rand(data.shape, generator=generator, dtype=torch.float64) - 1
        live = data[data.isfinite() & (data != 0)].abs()
        least = float(live.min()) if live.numel() else 1.0
        # Zeros too, by less than anything there is.
        contents[key] = data + by * torch.where(data == 0, least, data.abs()) * way
    return contents


# ---- what goes free there ------------------------------------------------------------


def freed(operands, path, device, open_):
    """
    (where, spared): the elements of an output, among those marked in `open_`, that take
    another side of a corner than the truth, and the output with them put right as far as
    they lie between the sides. None where there are none.
    """
    reference, call = operands.reference, operands.call
    single = bool(name_of_one(call)) or not call.composite
    if not device.dtype.is_floating_point or not is_gradient(call, path):
        return None
    if single and reference.never_rounds():
        return None
    probes = Probes(reference, path)
    for k, _ in enumerate(probes.values()):
        if k == FIRST and not bool((probes.corners() & open_).any()):
            return None
    truth, wide = reference.truth[path], device.double()
    where = probes.corners() & open_ & ((wide - truth).abs() > JUMP * probes.size())
    where &= ~probes.unbalanced(device)
    if int(where.sum()) > max(1, most("corner") * where.numel()):
        where = None if single else _conventional(probes, truth, wide, where)
    if where is None or not bool(where.any()):
        return None
    beyond = wide - wide.clamp(probes.low, probes.high)
    slack = max(ROUNDINGS, torch.finfo(device.dtype).eps) * probes.size()
    beyond = torch.where(beyond.abs() <= slack, 0.0, beyond)  # the truth may be 0 on this side
    return where, torch.where(where, (truth + beyond).to(device.dtype), device)


def _conventional(probes, truth, wide, where):
    """Of very many elements at corners those that no activation's own rule settles, as long as
    nearly all of them hold one of the choices or an even share; None where they do not."""
    again = Probes(probes.reference, probes.path, settled=True)
    near = SAME * probes.size()
    good = torch.zeros_like(where)
    for moved in again.values():
        good |= (wide - moved).abs() <= near
    where = where & again.corners()
    part = (again.high - again.low) / (wide - again.low).clamp(min=1e-300)
    good |= (part <= MOST_PARTS) & ((part - part.round()).abs() <= SAME * part)
    return where if int((good & where).sum()) >= CHOICES * int(where.sum()) else None


def is_gradient(call, path):
    """Whether an output of a call may be a gradient."""
    if call.composite:
        return call.differentiates and not (
            call.op.endswith("with backward") and path.startswith("out[0]")
        )
    return "backward" in call.op
