# SPDX-License-Identifier: Apache-2.0
"""A call taken apart: the operators inside it, down to simple ones, and runs in which one
of them, or one argument of the call, is other than it should be. `edits` says which
edits are worth a try; `diagnose` whether one explains what a device gave.
"""

import functools
import sys
from dataclasses import dataclass, field

import torch

from ..calls.mode import Mode
from ..calls.replay import (
    base_name,
    bind_cast,
    computed,
    is_write,
    outputs_of,
    plain,
    rebuilt,
    widened,
)
from ..executors.precision import Source, Widen, cpu_kernel

# Compound operators that torch's own decompositions take apart. The rest is simple enough.
COMPOUND = set("""
_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data logsumexp
native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
native_batch_norm native_batch_norm_backward _native_batch_norm_legit _fused_rms_norm
_native_batch_norm_legit_no_training _fused_rms_norm_backward _batch_norm_with_update
gelu gelu_backward silu silu_backward mish mish_backward sigmoid_backward tanh_backward sigmoid
hardswish hardswish_backward hardsigmoid hardsigmoid_backward elu elu_backward celu selu
leaky_relu leaky_relu_backward softplus softplus_backward log_sigmoid_forward
log_sigmoid_backward glu glu_backward prelu _prelu_kernel hardtanh_backward threshold_backward
mse_loss mse_loss_backward huber_loss huber_loss_backward smooth_l1_loss smooth_l1_loss_backward
binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits
soft_margin_loss nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
addmm addmv baddbmm addbmm addr addcmul addcdiv lerp hypot xlogy logit
linear_backward embedding_dense_backward _scaled_dot_product_flash_attention_for_cpu
pairwise_distance dist cosine_similarity hinge_embedding_loss margin_ranking_loss softshrink
_addmm_activation addmm_ baddbmm_ log_softmax softmax
""".split())  # fmt: skip


def _variance(x, dim=None, correction=1, keepdim=False):
    """var and the like from a mean, squares and a sum."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        dim = list(range(x.dim()))
    dim = [dim] if isinstance(dim, int) else list(dim)
    n = 1
    for d in dim:
        n *= x.shape[d]
    centred = x - torch.mean(x, dim, keepdim=True)
    square = torch.sum(centred * centred, dim, keepdim=keepdim)
    return torch.div(square, n - (1 if correction is None else correction))


def _deviation(x, dim=None, correction=1, keepdim=False):
    return torch.sqrt(_variance(x, dim, correction=correction, keepdim=keepdim))


def _variance_mean(x, dim=None, correction=1, keepdim=False):
    return _variance(x, dim, correction=correction, keepdim=keepdim), torch.mean(
        x, dim if dim is not None else list(range(x.dim())), keepdim=keepdim)  # fmt: skip


def _norm(x, ord=2, dim=None, keepdim=False, dtype=None):
    if not isinstance(ord, (int, float)) or not 0 < ord < 100:
        raise LookupError("not a sum of powers")
    dim = list(range(x.dim())) if dim is None else dim
    if ord == 1:
        return torch.sum(torch.abs(x), dim, keepdim=keepdim)
    if ord == 2:
        return torch.sqrt(torch.sum(x * x, dim, keepdim=keepdim))
    return torch.pow(torch.sum(torch.pow(torch.abs(x), ord), dim, keepdim=keepdim), 1 / ord)


def _distances(a, b, p=2.0, compute_mode=None):
    return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, [-1])


def _fake_quantized(x, scale, zero_point, quant_min, quant_max):
    """Fake quantization as the kernel computes it, with a scale in float32."""
    held = torch.tensor(scale, dtype=torch.float32)
    scale, inverse = float(held), float(1 / held)
    steps = torch.add(torch.round(torch.mul(x, inverse)), zero_point)
    steps = torch.clamp(steps, quant_min, quant_max)
    return torch.mul(torch.sub(steps, zero_point), scale), (steps >= quant_min)


def _logaddexp(a, b):
    top = torch.maximum(a, b)
    less = torch.log1p(torch.exp(torch.neg(torch.abs(torch.sub(a, b)))))
    return torch.add(top, less)


def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, dropout_mask=None, *,
               scale=None, enable_gqa=False):  # fmt: skip
    """Attention by its formula: the result and the logarithms of the softmax's sums."""
    if k.shape[1] != q.shape[1]:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = torch.matmul(q, k.transpose(-2, -1))
    scores = torch.mul(scores, q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        keep = torch.tril(torch.ones(scores.shape[-2:], dtype=torch.bool), 0)
        scores = torch.where(keep, scores, -torch.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, -torch.inf)
        else:
            scores = torch.add(scores, attn_mask)
    weights = torch._softmax(scores, -1, False)
    return torch.matmul(weights, v), torch.logsumexp(scores, -1)


def _flash(q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    out, sums = _attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    if sums.shape != q.shape[:-1]:
        raise LookupError("the kernel of the backward reads one sum for each query")
    return out, sums


def _var_mean_of(x, dim=None, unbiased=True, keepdim=False):
    return _variance_mean(x, dim, correction=int(unbiased), keepdim=keepdim)


OWN = {"_scaled_dot_product_attention_math": _attention,
       "_scaled_dot_product_flash_attention_for_cpu": _flash,
       "var": _variance, "std": _deviation, "var_mean": _variance_mean,
       "linalg_vector_norm": _norm, "norm": _norm, "_cdist_forward": _distances, "logaddexp": _logaddexp,
       "fake_quantize_per_tensor_affine_cachemask": _fake_quantized}  # fmt: skip


SENT = "ulpscope_sent"  # the module that a callable's code is in, over here
PASSING = {"detach", "alias", "lift_fresh", "lift"}


@functools.cache
def inside_of(func):
    """What computes an operator from simpler ones, or None."""
    if not hasattr(func, "_schema"):
        return None
    name = base_name(func._schema.name)[1]
    if name in OWN and func._overloadname in ("correction", "default", "ScalarOpt_dim"):
        return OWN[name]
    if name == "var_mean" and func._overloadname == "dim":
        return _var_mean_of
    if name not in COMPOUND:
        return None
    from torch._decomp import decomposition_table

    return decomposition_table.get(func)


@dataclass
class Node:
    """One operator of a run: where it stands and what it was called with."""

    place: tuple  # counters from the outside in
    func: object
    args: tuple
    kwargs: dict
    shape: tuple = ()  # of its first result
    floats: bool = False
    writes: bool = False
    made: list = field(default_factory=list)  # ids of the storages of its results
    used: list = field(default_factory=list)
    site: tuple = ()  # the place of the code that runs it: several in a loop share one

    @property
    def name(self):
        return base_name(self.func._schema.name)[1].rstrip("_")

    def value(self, name):
        """What an argument of the schema was, tensors as Seen."""
        for i, a in enumerate(self.func._schema.arguments):
            if a.name == name:
                if name in self.kwargs:
                    return self.kwargs[name]
                if i < len(self.args):
                    return self.args[i]
                return a.default_value if a.has_default_value() else None
        return None


def _site():
    """The place in somebody's own code that is running, () where there is none."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name == SENT or name.partition(".")[0] not in ("torch", "ulpscope", "contextlib"):
            return (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back
    return ()


@dataclass(frozen=True)
class Seen:
    """Stands for a tensor argument in a Node."""

    shape: tuple
    dtype: torch.dtype
    storage: int

    @property
    def floats(self):
        return self.dtype.is_floating_point


def _seen(value):
    if isinstance(value, torch.Tensor):
        return Seen(tuple(value.shape), value.dtype, value.untyped_storage().data_ptr())
    if isinstance(value, (list, tuple)):
        return [_seen(v) for v in value]
    return value


class Edited(Mode):
    """Runs operators as they are but for those at the places in `edits`, a dict place ->
    function(func, args, kwargs). With `nodes`, a list, it takes everything apart and notes
    what it sees. `sizes` are shapes by place that results must have if they are whole numbers:
    kernels read as many indices and offsets as there should be."""

    def __init__(self, edits=None, nodes=None, sizes=None):
        super().__init__()
        self.edits, self.nodes, self.sizes = edits or {}, nodes, sizes or {}
        self.open = {place[:i] for place in self.edits for i in range(1, len(place))}
        self.path, self.counter = (), 0
        self.keep = []  # storages stay alive, so that no address comes twice

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "_opname", "") in PASSING or not hasattr(func, "_schema"):
            return func(*args, **kwargs)  # autograd's own; not the same in every run
        me = (*self.path, self.counter)
        self.counter += 1
        node = self._note(me, func, args, kwargs) if self.nodes is not None else None
        edit = self.edits.get(me)
        if edit is not None:
            return self._of_size(me, edit(func, args, kwargs))
        out = NotImplemented
        if self.nodes is not None or me in self.open:
            out = self._within(me, func, args, kwargs)
        if out is NotImplemented:
            out = func(*args, **kwargs)
        if node is not None:
            self._result(node, out)
        return out

    def _of_size(self, me, out):
        whole = isinstance(out, torch.Tensor) and not (
            out.is_floating_point() or out.is_complex() or out.dtype == torch.bool)  # fmt: skip
        if whole and tuple(out.shape) != self.sizes.get(me, tuple(out.shape)):
            raise LookupError("another number of indices")
        return out

    def _within(self, me, func, args, kwargs):
        function = inside_of(func)
        if function is None:
            return NotImplemented
        saved, (self.path, self.counter) = (self.path, self.counter), (me, 0)
        n = len(self.nodes) if self.nodes is not None else 0
        try:
            with self:
                return function(*args, **kwargs)
        except Exception:  # not for these arguments: it stays whole
            if self.nodes is None:
                raise
            del self.nodes[n:]
            return NotImplemented
        finally:
            self.path, self.counter = saved

    def _note(self, me, func, args, kwargs):
        node = Node(me, func, tuple(_seen(a) for a in args),
                    {k: _seen(v) for k, v in kwargs.items()})  # fmt: skip
        node.writes = any(is_write(a) for a in func._schema.arguments)
        node.site = _site()
        node.used = [v.storage for v in (*node.args, *node.kwargs.values()) if isinstance(v, Seen)]
        self.nodes.append(node)
        return node

    def _result(self, node, out):
        values = out if isinstance(out, (tuple, list)) else (out,)
        tensors = [t for t in values if isinstance(t, torch.Tensor)]
        self.keep += tensors
        node.made = [t.untyped_storage().data_ptr() for t in tensors]
        if tensors:
            node.shape, node.floats = tuple(tensors[0].shape), tensors[0].is_floating_point()


class Lab:
    """One call with what is known of it, and runs of it that are wrong on purpose."""

    def __init__(self, call, reference):
        from .tape import Tapes

        self.call, self.reference = call, reference
        self._nodes = None
        self._tapes = Tapes(self)
        self.dtype = torch.float64  # of runs that do not say

    def run(self, mode=None, contents=None, dtype=None, change=None):
        """
        The call's outputs by path, floats as doubles.

        `mode()` makes a dispatch mode to run under, `contents` replaces inputs as in
        `bind_cast`, `change(args, kwargs)` gives the arguments to use instead.
        """
        dtype = dtype or self.dtype
        if change is not None and mode is None and contents is None:
            found = self._tapes.on(change, dtype)
            if found is not None:
                return found
        source = self.source()
        base = source.run

        def function(*args, **kwargs):
            if change is not None:
                args, kwargs = change(list(args), dict(kwargs))
            if mode is None:
                return base(*args, **kwargs)
            with mode():
                return base(*args, **kwargs)

        wide = dtype == torch.float64
        held = self._held(function, wide) if source.held else function
        try:
            return self._outputs(held, wide, contents)
        except Exception:  # one that cannot bear to be held to a precision runs as it is
            if not source.held:
                raise
            return self._outputs(function, wide, contents)

    def _outputs(self, function, wide, contents):
        bound = self.bound(wide, contents)
        out = outputs_of(self.call, bound, bound.run(function))
        return {p: doubles(plain(t)) for p, t in out.items()}

    def bound(self, wide, contents=None):
        """The call's arguments in float64, or in float32."""
        return bind_cast(self.call, self.reference.parts, widened if wide else computed, contents)

    def source(self):
        """What the truth was computed from."""
        if self.call.composite:
            return Source(self.call.function, held=True)
        chosen = self.reference._chosen.get(widened)
        return chosen or Source(cpu_kernel(self.call), held=True)

    def _held(self, function, wide):
        def held(*args, **kwargs):
            with self.precision(wide):
                return function(*args, **kwargs)

        return held

    def precision(self, wide):
        """The mode that keeps a run in one precision."""
        whole = any(p.dtype == torch.float64 for p in self.reference.parts.values())
        return Widen(torch.float64 if wide or whole else torch.float32)

    def edited(self, edits, dtype=None):
        """The call with other operators at some places."""
        dtype = dtype or self.dtype
        found = self._tapes.edited(edits, dtype)
        if found is not None:
            return found
        sizes = {n.place: n.shape for n in self.nodes() if n.made and not n.floats}
        return self.run(lambda: Edited(edits, sizes=sizes), dtype=dtype)

    def nodes(self):
        """Every operator inside the call, in the order of their calls; empty where the
        call cannot be looked into."""
        if self._nodes is None:
            def fresh():
                self._nodes = []
                return Edited(nodes=self._nodes)

            try:
                self.run(fresh)
            except Exception:
                self._nodes = []
        return self._nodes


def doubles(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


# ---- arguments of the call -----------------------------------------------------------


def leaves(call):
    """(path, name, value) of every argument leaf; tensors as their View."""
    found = []

    def walk(value, path, name):
        stands = getattr(value, "path", None)
        if stands is not None and stands in call.views:
            found.append((stands, name, call.views[stands]))
        elif isinstance(value, dict):
            for k, v in value.items():
                walk(v, f"{path}.{k}", str(k))
        elif isinstance(value, (list, tuple)) and value and not _sizes(value):
            for i, v in enumerate(value):
                walk(v, f"{path}[{i}]", name)
        else:
            found.append((path, name, value))

    names = names_of(call)
    for i, a in enumerate(call.args):
        walk(a, f"args[{i}]", names[i])
    for k, v in call.kwargs.items():
        walk(v, f"kwargs.{k}", k)
    return found


def _sizes(value):
    return all(isinstance(v, int) and not isinstance(v, bool) for v in value)


def names_of(call):
    """Names of the positional arguments, "" where they are unknown."""
    if call.schema:
        names = [a.name for a in call.schema.arguments]
    else:
        from ..calls.callable import parameter_names

        schema = getattr(call.function, "_schema", None)
        names = (
            [a.name for a in schema.arguments] if schema is not None
            else parameter_names(call.function, len(call.args))
        )  # fmt: skip
        head = len(call.args) - len(names)
        names = [""] * max(head, 0) + names
    return (names + [""] * len(call.args))[: len(call.args)]


def changer(paths, change, written=()):
    """A `change` for Lab.run that replaces the leaves at `paths` by `change(leaf)`; a tensor
    that the call writes is overwritten, so that it stays the same tensor."""
    paths = set(paths)

    def leaf(value, path):
        if path in paths:
            new = change(value)
            if path in written and isinstance(value, torch.Tensor):
                with torch.no_grad():
                    value.copy_(new)
                return value
            if isinstance(value, torch.Tensor) and value.requires_grad:
                new = new.detach().requires_grad_()
            return new
        if isinstance(value, dict):
            return rebuilt(value, lambda k, v: leaf(v, f"{path}.{k}"))
        if isinstance(value, (list, tuple)):
            return rebuilt(value, lambda i, v: leaf(v, f"{path}[{i}]"))
        return value

    def apply(args, kwargs):
        return ([leaf(a, f"args[{i}]") for i, a in enumerate(args)],
                {k: leaf(v, f"kwargs.{k}") for k, v in kwargs.items()})  # fmt: skip

    return apply
