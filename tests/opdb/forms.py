# SPDX-License-Identifier: Apache-2.0
"""The forms in which an entry of torch's operator database is asked: forward, with gradients, in place, with
`out=`, over other views of memory, and wrongly. Each is a function of (entry, sample, place) that gives tensors."""

import itertools

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves, tree_map

FLOATS = (torch.float32, torch.complex64)
SIMPLE = (torch.float32, torch.int64)


class Skipped(Exception):
    """The form means nothing for this sample; the text says why."""


class Place:
    """Where a sample is computed: its tensors are copied there whole, with the memory that they share, their
    strides, offsets and bits, so that both places begin with the same."""

    def __init__(self, device):
        self.device, self.storages = torch.device(device), {}

    def of(self, value):
        return tree_map(self.one, value)

    def one(self, value):
        if isinstance(value, torch.device):
            return self.device
        if isinstance(value, str) and value == "cpu":
            return str(self.device)
        return self.tensor(value) if isinstance(value, torch.Tensor) else value

    def tensor(self, t):
        if t.layout != torch.strided:
            raise Skipped(f"layout {str(t.layout).removeprefix('torch.')}")
        if t.is_quantized or t.device.type != "cpu":
            raise Skipped("quantized" if t.is_quantized else f"on {t.device.type}")
        memory = t.untyped_storage()
        if memory.data_ptr() not in self.storages or not memory.nbytes():
            raw = torch.empty(0, dtype=torch.uint8).set_(memory).clone()
            # with the memory itself: nothing else may come to lie there
            self.storages[memory.data_ptr()] = memory, raw.to(self.device).untyped_storage()
        there = torch.empty(0, dtype=t.dtype, device=self.device)
        with torch.no_grad():
            there.set_(self.storages[memory.data_ptr()][1], t.storage_offset(), t.size(), t.stride())
            there = there.conj() if t.is_conj() else there
            there = torch._neg_view(there) if t.is_neg() else there
        return there.requires_grad_(t.requires_grad) if t.is_leaf else there

    def call(self, sample):
        return self.of(sample.input), self.of(tuple(sample.args)), self.of(dict(sample.kwargs))


def tensors(value):
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def differentiable(made):
    return [t for t in tensors(made) if t.requires_grad and (t.is_floating_point() or t.is_complex())]


def weights(t, place, seed):
    """What a gradient begins with: the same numbers in both places."""
    drawn = torch.randn(t.shape, dtype=t.dtype, generator=torch.Generator().manual_seed(seed))
    return drawn.to(place.device)


def forward(op, sample, place, function=None):
    value, args, kwargs = place.call(sample)
    return tensors((function or op.op)(value, *args, **kwargs))


def backward(op, sample, place, twice=False):
    value, args, kwargs = place.call(sample)
    leaves = [t for t in tensors((value, args, kwargs)) if t.requires_grad]
    made = differentiable(op.op(value, *args, **kwargs))
    if not leaves or not made:
        raise Skipped("nothing to differentiate")
    with torch.autograd.set_multithreading_enabled(False):
        begin = [weights(t, place, i) for i, t in enumerate(made)]
        grads = torch.autograd.grad(made, leaves, begin, allow_unused=True, create_graph=twice)
        if twice:
            made = differentiable([g for g in grads if g is not None])
            if not made:
                raise Skipped("its gradient is constant")
            begin = [weights(t, place, 100 + i) for i, t in enumerate(made)]
            grads = torch.autograd.grad(made, leaves, begin, allow_unused=True)
    return [g for g in grads if g is not None]


def second(op, sample, place):
    return backward(op, sample, place, twice=True)


def forward_mode(op, sample, place):
    value, args, kwargs = place.call(sample)
    found = itertools.count()

    def dual(t):
        if not isinstance(t, torch.Tensor) or not (t.is_floating_point() or t.is_complex()) or not t.requires_grad:
            return t
        return forward_ad.make_dual(t.detach(), weights(t, place, next(found)))

    with forward_ad.dual_level():
        value, args, kwargs = tree_map(dual, (value, args, kwargs))
        if not next(found):
            raise Skipped("nothing to differentiate")
        made = tensors(op.op(value, *args, **kwargs))
        parts = [forward_ad.unpack_dual(t) for t in made]
        return [t for p in parts for t in (p.primal, p.tangent) if t is not None]


def in_place(op, sample, place):
    if sample.broadcasts_input:
        raise Skipped("the input is smaller than the result")
    value, args, kwargs = place.call(sample)
    with torch.no_grad():
        made = tensors(op.inplace_variant(value, *args, **kwargs))
    return made + tensors((value, args, kwargs))


def out_argument(change):
    def asked(op, sample, place):
        here = Place("cpu")
        value, args, kwargs = here.call(sample)
        with torch.no_grad():
            expected = op.op(value, *args, **kwargs)
        if not tensors(expected) or len(tensors(expected)) != len(tree_leaves(expected)):
            raise Skipped("no tensor is returned")
        outs = tree_map(lambda t: place.tensor(change(t.detach())), expected)
        outs = tuple(outs) if isinstance(outs, (list, tuple)) else outs
        value, args, kwargs = place.call(sample)
        torch.manual_seed(0)
        with torch.no_grad():
            made = op.op(value, *args, **kwargs, out=outs)
        return tensors(made) + tensors(outs)

    return asked


def filled(shape, dtype):
    return torch.full(shape, 1, dtype=dtype)


def strided(t):
    return filled(tuple(reversed(t.shape)), t.dtype).permute(*reversed(range(t.dim())))


def of_another_kind(t):
    return filled(t.shape, torch.int64 if t.is_floating_point() or t.is_complex() else torch.float32)


def non_contiguous(op, sample, place):
    return forward(op, sample.noncontiguous(), place)


def viewed(change, suits):
    def asked(op, sample, place):
        if not any(suits(t) for t in tensors((sample.input, sample.args, sample.kwargs))):
            raise Skipped("no such argument")
        return forward(op, sample.transform(lambda t: change(t) if torch.is_tensor(t) and suits(t) else t), place)

    return asked


def conjugated(t):
    with torch.no_grad():
        return t.detach().conj().resolve_conj().conj()


def negated(t):
    with torch.no_grad():
        return torch._neg_view(t.detach().neg())


# name: (what, dtypes that it is asked of, whether the entry has it)
FORMS = {
    "forward": (forward, None, lambda op: True),
    "backward": (backward, FLOATS, lambda op: op.supports_autograd),
    "second order": (second, (torch.float32,), lambda op: op.supports_autograd and op.supports_gradgrad),
    "forward mode": (forward_mode, (torch.float32,), lambda op: op.supports_forward_ad),
    "in place": (in_place, SIMPLE, lambda op: op.inplace_variant is not None),
    "out": (out_argument(lambda t: filled(t.shape, t.dtype)), SIMPLE, lambda op: op.supports_out),
    "out, another shape": (
        out_argument(lambda t: filled((t.numel() + 1,), t.dtype)),
        (torch.float32,),
        lambda op: op.supports_out,
    ),
    "out, another dtype": (out_argument(of_another_kind), (torch.float32,), lambda op: op.supports_out),
    "out, other strides": (out_argument(strided), (torch.float32,), lambda op: op.supports_out),
    "non-contiguous": (non_contiguous, FLOATS, lambda op: True),
    "conjugate view": (viewed(conjugated, lambda t: t.is_complex()), (torch.complex64,), lambda op: True),
    "negative view": (viewed(negated, lambda t: t.is_floating_point()), (torch.float32,), lambda op: True),
}


def samples(op, form, dtype, most):
    """Up to `most` samples of an entry for a form; what cannot be made is raised."""
    grad = form in ("backward", "second order", "forward mode")
    torch.manual_seed(0)
    yield from itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), most)


def wrong(op):
    """Samples that the entry has to refuse."""
    if op.error_inputs_func is None:
        return
    torch.manual_seed(0)
    for error in op.error_inputs("cpu"):
        yield error.sample_input
