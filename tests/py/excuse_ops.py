# SPDX-License-Identifier: Apache-2.0
"""A wrong kernel for each row of docs/reference/excuses.md as an operator that a trace can hold: of
test_excuses_property those that are not tested in test_pack_wants otherwise, what is a callable there registered. For
`--import`."""

import functools
from types import SimpleNamespace

import test_excuses_property as excuses
import torch

# What a row hangs on by the operator's name.
OPERATORS = {
    torch.argmax: "aten::argmax",
    torch.scatter: "aten::scatter.src",
    torch.mm: "aten::mm",
    torch.empty_like: "aten::empty_like",
    torch.sum: "aten::sum.dim_IntList",
    torch.mul: "aten::mul.Tensor",
    torch.randn_like: "aten::randn_like",
}
# Of these rows; the others are named in test_pack_wants.
NAMED = {
    "corner": "beyond_a_side",
    "written_twice": "updates_of_neighbours",
    "out_of_range": "garbage_for_what_saturates",
    "ill_conditioned": "garbage_beside_what_is_off",
    "tie": "any_place",
    "flushed": "other_subnormals",
    "sensitivity": "coarse_inputs",
    "float32_loses": "many_times_what_the_cpu_loses",
    "rounded_otherwise": "saturated_silu",
    "yardstick": "right_where_the_cpu_is_bad",
    "nothing": "dust_where_a_mask_is_zero",
    "zero_part": "dust_in_an_imaginary_part",
    "fan_in": "the_last_term_left_out",
    "order_of_adding": "a_large_term_left_out",
    "few": "one_element_off",
    "one_ulp": "truncated",
    "own_casts": "rounded_too_early",
    "lost": "far_where_float32_has_none",
    "shared": "off_where_there_are_numbers",
    "other_kinds": "infinities_of_the_other_sign",
    "same_kind": "not_a_number_elsewhere",
    "overflow": "one_of_small_sums_infinite",
    "aside": "wrong_rstd_beside_a_mean_of_nothing",
    "idle": "coarse_and_fast",
    "another_function": "off_by_much_beside_an_eps",
    "sampled_rows": "a_tile_is_stale",
    "promises_nothing": "an_element_too_many",
    "no_reference": "an_answer_where_shapes_do_not_fit",
    "law": "a_wide_normal",
    "spread": "coarse_inputs_below_noise",
}
KINDS = {torch.Tensor: "Tensor", bool: "bool", int: "int", float: "float", tuple: "int[]"}
_library = torch.library.Library("excuse", "DEF")


def _kernel(code):
    (made,) = [m for m in excuses.KERNELS[code] if m.__name__ == NAMED[code]]
    torch.manual_seed(excuses.SEEDS[0])
    return made(excuses.Draw(excuses.SEEDS[0]))


def _operator_of(code, wrong):
    """The name of an operator that computes what the kernel ought to."""
    fn = wrong.fn
    if isinstance(fn, torch._ops.OpOverloadPacket):
        return fn._qualified_op_name
    if isinstance(fn, torch._ops.OpOverload):
        return fn._name
    if fn in OPERATORS:
        return OPERATORS[fn]
    kinds = ", ".join(f"{KINDS[type(a)]} a{i}" for i, a in enumerate(wrong.args))
    n = len(wrong.outputs) if isinstance(wrong.outputs, tuple) else 0
    gives = f"({', '.join(['Tensor'] * n)})" if n else "Tensor"
    _library.define(f"{code}({kinds}) -> {gives}")
    _library.impl(code, lambda *args: fn(*args, **wrong.kwargs), "CPU")
    return f"excuse::{code}"


@functools.cache
def case(code):
    """What is called, its arguments and what the wrong kernel gives."""
    wrong = _kernel(code)
    op = _operator_of(code, wrong)
    more = (None, None, torch.float32, True) if code == "idle" else ()  # its keywords in their places
    return SimpleNamespace(op=op, args=(*wrong.args, *more), outputs=wrong.outputs)


for _code in NAMED:
    case(_code)
