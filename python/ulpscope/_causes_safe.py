# SPDX-License-Identifier: Apache-2.0
"""Which mistakes may be tried on a CPU kernel at all. A kernel trusts what its caller checked:
statistics that are there, counts that fit the tensors, indices within bounds. A call edited
against that reads or writes out of bounds, so only edits are run that no kernel can mind.
Neighbours: `_causes_edits`, `_causes_inside` (propose), `_diagnose` (chooses).
"""

import re

OWN_KERNELS = ("aten", "prims", "torchvision")  # the kernels whose checks are known
# Whole numbers that kernels check, or that no address is computed from.
CHECKED = {"", "dim", "axis", "diagonal", "k", "groups", "reduction", "correction", "ignore_index",
           "padding_idx", "n", "shifts", "offset", "start", "end", "alpha", "beta", "value", "other",
           "exponent", "self", "p", "swap", "min", "max", "dim0", "dim1", "dims", "ord", "window",
           "decimals", "steps", "step", "dimension", "zero_point", "quant_min", "quant_max", "heads", "num_heads", "num_groups", "stride", "padding", "dilation"}  # fmt: skip
TRAINING = {"training", "train", "use_input_stats", "is_training"}
# Numbers that positions are computed from.
SCALES = re.compile(r"scales?(_[a-z]+)?$|spatial_scale")
RESAMPLES = re.compile("upsample|interpolate|grid|roi|unpool|fold|im2col")
# Tensors that kernels read without asking whether they are there, or that are no plain
# indices into another tensor.
NEEDED = re.compile("running|sav(e|ed)_|mean|rstd|invstd|var$|state|hx|cx|workspace|reserve|logsumexp")
LAYOUT = re.compile("off|cu_|seq|length|bag|batch_sizes|indptr|c(row|col|compressed)|state|seed|workspace")
MISSABLE = {"bias", "b", "weight", "attn_mask", "attn_bias", "mask", "min", "max", "pos_weight",
            "per_sample_weights", "found_inf", "grad_scale"}  # fmt: skip
# Gradients that are computed element by element.
ELEMENTWISE = re.compile("mse_loss|smooth_l1|huber|binary_cross_entropy|soft_margin_loss|elu|gelu")

# Kernels that count the elements of one argument and read as many of another.
COUNTS = re.compile("backward|norm|rnn|lstm|gru|_cell|adam|sgd|adagrad|pool|grid|embedding|fold")


def is_backward(op):
    return "backward" in op


def own_kernel(op):
    """Whether an operator, "namespace::name", has kernels whose checks are known."""
    return op.partition("::")[0] in OWN_KERNELS or "::" not in op


def value_allowed(op, name, old, value_of):
    """Whether the argument `name` of an operator may take another value; `value_of(name)`
    gives the other arguments."""
    short = op.rpartition("::")[2]
    if name == "output_mask":
        return False
    if isinstance(old, bool):
        return _flag_allowed(short, name, value_of)
    if isinstance(old, int):
        return own_kernel(op) and _number_allowed(short, name)
    if isinstance(old, float):
        return not (SCALES.match(name) and RESAMPLES.search(short))
    return own_kernel(op) or not isinstance(old, (list, tuple))


def _flag_allowed(op, name, value_of):
    if name in TRAINING:
        there = all(value_of(n) is not None for n in ("running_mean", "running_var"))
        return there and not is_backward(op)
    return name not in ("transposed", "has_biases", "bidirectional", "batch_first", "sparse", "include_last_offset")


def _number_allowed(op, name):
    if not is_backward(op):
        return name in CHECKED
    if name in ("ignore_index", "reduction"):
        return name == "reduction" and bool(ELEMENTWISE.search(op))
    return name in ("dim", "padding_idx", "")


def may_lack(op, name, plain):
    """Whether a kernel can do without a tensor; `plain`: the call is a Python function."""
    if NEEDED.search(name):
        return False
    short = op.rpartition("::")[2]
    if is_backward(short) and "mask" not in name:
        return False
    return plain or (own_kernel(op) and name in MISSABLE)


def may_reorder(name, dtype):
    """Whether the elements of a tensor may change places: not those that cut others up."""
    return dtype.is_floating_point or not LAYOUT.search(name)


def may_shorten(ops, dtypes):
    """Whether two tensors of a call may lose slices: not where something else in it counts
    the elements or points to them. `ops`: the call's operator and those inside it."""
    whole = all(d.is_floating_point for d in dtypes)
    return whole and own_kernel(ops[0]) and not any(COUNTS.search(op) for op in ops)
