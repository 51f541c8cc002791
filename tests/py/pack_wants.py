# SPDX-License-Identifier: Apache-2.0
"""Calls of which a pack asks what a check asks of the device's own worker, honest and with a planted bug: for
test_pack_wants."""

import math

import excuse_ops
import torch
import wanted_ops
from test_corners import OPERATORS as CORNERS
from test_masked import BAD, MASKS, SDPA, elsewhere, garbage, given, infinite, product, tiles, unread
from test_own_steps import AS_KNOWN, Sums
from test_own_steps import CALLS as APART_CALLS
from test_quantized import OPERATORS as QUANTIZED
from test_quantized import both, times_inverse
from ways import operator

from ulpscope.executors.device import TorchDevice


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Two maxima of two rows of forty are tied.
X = normal(40, 64)
X[3, 7] = X[3, 30] = X[20, 0] = X[20, 63] = 9.0
TIED = ("wanted::amax_backward", (normal(40, 1, seed=2), X))
# Eight of 100 numbers of every row lie just below a step.
LEVELS = torch.randint(64, 512, (60, 8), generator=torch.Generator().manual_seed(3)) / 64
STEPS = ("wanted::floors", (torch.cat([normal(60, 92, seed=4), torch.nextafter(LEVELS, LEVELS - 1)], 1),))

# A third of 2,000 numbers lies where the last step inside the range ends.
NEAR = 0.03 * 124.5 * (1 + 2.0**-23 * normal(2000, seed=5))
RANGE = (
    "aten::fake_quantize_per_tensor_affine_cachemask",
    (torch.where(normal(2000, seed=6) > 0.4, NEAR, normal(2000, seed=7)), 0.03, 3, -128, 127),
)


def to_the_first(grad, x):
    return torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), grad)


def beyond(n):
    """Some numbers just below a step are taken to be upon it; `n` more than there are."""
    return lambda x: wanted_ops.floors(x) + torch.arange(60) % 5 + n


# Some probabilities are none in float16; the mistake is that of a kernel that rounds to it.
PEAKED = ("aten::_softmax", (20 * normal(4, 6, seed=8) * torch.tensor([1.0, 1, 1, 1e-3, 1e-3, 1e-3]), -1, False))
KEPT = torch.tensor([1.0, 1, 0, 1]).unsqueeze(1)

# Positive terms of the first row are beyond the largest number, of the others not.
LARGE = (
    "aten::sum.dim_IntList",
    (torch.tensor([2.0, -2, 2]).mul(2.0**126) * torch.tensor([1.0, 0.4, 0.4])[:, None], [1]),
)

OWN = {
    "shared evenly": (TIED, wanted_ops.amax_backward, "pass"),
    "all to the first": (TIED, to_the_first, "undefined"),
    "all to each": (TIED, lambda g, x: g * (x == x.amax(-1, keepdim=True)), "wrong"),
    "none to any": (TIED, lambda g, x: g * 0 * x, "wrong"),
    "a range that ends at a tie": (RANGE, lambda x, s, *a: both(x, torch.tensor(s), *a, by=times_inverse), "pass"),
    "a range that ends before": (RANGE, lambda x, s, z, lo, hi: both(x, torch.tensor(s), z, lo, hi - 2), "wrong"),
    "other steps": (STEPS, beyond(0), "pass"),
    "more steps than there are": (STEPS, beyond(8), "wrong"),
    "fewer": (STEPS, beyond(-8), "wrong"),
    "a result rounded to float16": (PEAKED, lambda x, *a: x.softmax(-1).half().float(), "reduced"),
    "a sum that some order makes infinite": (LARGE, lambda x, d: torch.tensor([math.inf, *x.sum(d)[1:]]), "unjudged"),
    "a sum that none does": (LARGE, lambda x, d: torch.tensor([*x.sum(d)[:2], math.inf]), "nonfinite"),
    "rounded so, and a row lost": (PEAKED, lambda x, *a: x.softmax(-1).half().float() * KEPT, "wrong"),
}
# ---- other readings of a call ----

SMALL = (1e-6 * normal(2048, seed=9).abs()).bfloat16()
WIDE = normal(2048, seed=10).bfloat16()
EPSILON = 1e-8
STRIDED = normal(6, 8, 2, seed=11)[..., 0]
NUMBERS = {
    "a float": ("aten::add.Scalar", (SMALL, EPSILON)),
    "a 0-dim double": ("aten::add.Tensor", (SMALL, torch.tensor(EPSILON, dtype=torch.float64))),
    "a 0-dim float, reversed": ("aten::rsub.Tensor", (SMALL, torch.tensor(EPSILON))),
    "a 0-dim integer": ("aten::add.Tensor", (WIDE, torch.tensor(1001))),
}


def of_cpu(op):
    """The CPU's own kernel on copies."""

    def run(*args):
        return operator(op)(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))

    return run


def off(factor):
    """A number that is another one."""
    return lambda x, e: (x.double() + factor * float(e)).to(x.dtype)


READINGS = {
    **{f"rounded: {k}": ((op, args), of_cpu(op), "pass") for k, (op, args) in NUMBERS.items()},
    "rounded: another number": (NUMBERS["a float"], off(1.3), "wrong"),
    "rounded: no number": (NUMBERS["a float"], off(0), "wrong"),
    "rounded: twice": (NUMBERS["a 0-dim integer"], off(2), "wrong"),
    "in rows": (("wanted::twice", (STRIDED,)), lambda x: 2 * x, "pass"),
    "in rows: others": (("wanted::twice", (STRIDED,)), lambda x: 2 * x.flip(0), "wrong"),
    "in rows, without a reference": (("wanted::noisy", (STRIDED,)), lambda x: 2 * x, "pass"),
    "in rows, without a reference: others": (("wanted::noisy", (STRIDED,)), lambda x: 2 * x.flip(0), "wrong"),
}
# ---- what a mask hides, what nobody writes ----

ATTENTION = {f"{mask}, {bad[0]} {bad[1]:g}": given(mask, bad) for mask in MASKS for bad in BAD}
FORMS = {
    "product": (product, "pass"),
    "unread": (unread, "pass"),
    "tiles": (tiles, "pass"),
    "elsewhere": (elsewhere, "wrong"),
    "infinite": (infinite, "wrong"),
    "garbage": (garbage, "wrong"),
}
HIDDEN = {
    f"hidden: {form}, {k}": ((SDPA, args), kernel, verdict)
    for form, (kernel, verdict) in FORMS.items()
    for k, args in ATTENTION.items()
    if verdict == "pass" or k == "float, value nan"
}
LENGTHS = [3, 9, 10, 4, 6, 5]
CTC = (
    "aten::_ctc_loss",
    (
        normal(20, 6, 8, seed=12).log_softmax(-1),
        torch.randint(1, 8, (6, 10), generator=torch.Generator().manual_seed(13)),
        [20] * 6,
        LENGTHS,
        0,
        False,
    ),
)
BEHIND = (torch.arange(21) > 2 * torch.tensor(LENGTHS)[:, None, None]) & (torch.arange(20) > 0)[:, None]


def of_ctc(fill, change=lambda loss, alpha: (loss, alpha)):
    """Loss and log_alpha, with `fill` behind the targets."""

    def run(*args):
        loss, alpha = torch.ops.aten._ctc_loss.default(*args)
        return change(loss, alpha.where(~BEHIND, fill))

    return run


UNWRITTEN = {
    "unwritten: large": (CTC, of_ctc(1e30), "pass"),
    "unwritten: NaN": (CTC, of_ctc(math.nan), "pass"),
    "unwritten: a NaN elsewhere": (
        CTC,
        of_ctc(1e30, lambda l, a: (l, a.index_fill(1, torch.tensor([7]), math.nan))),
        "wrong",
    ),
    "unwritten: the step before": (CTC, of_ctc(1e30, lambda l, a: (l, a.roll(1, 1))), "wrong"),
    "unwritten: another loss": (CTC, of_ctc(1e30, lambda l, a: (l * 1.01, a)), "wrong"),
}
# ---- what the CPU refuses ----

TABLE = normal(24, 10, seed=14)
AT = torch.where(torch.arange(40) == 7, 31, torch.arange(40) % 24)
DIVIDEND, DIVISOR = torch.arange(60) % 13, torch.arange(60) % 5
DIVIDE, ROWS = ("aten::floor_divide", (DIVIDEND, DIVISOR)), ("aten::index_select", (TABLE, 0, AT))
WHOLE = ("aten::index_select", (torch.arange(24) + (1 << 60), 0, AT))


def quotient(by, more=0):
    return lambda a, b: torch.where(b == 0, by, a // b.clamp(min=1)) + more * (a > 8)


def rows(shift=0, garbage=0.0):
    return lambda x, d, i: torch.where(
        (i < 24).reshape(-1, *[1] * (x.dim() - 1)), x[(i + shift).clamp(0, 23)], torch.tensor(garbage).to(x.dtype)
    )


REFUSED = {
    "divided by zero": (DIVIDE, quotient(-1), "undefined"),
    "divided by zero: off by one": (DIVIDE, quotient(-1, 1), "wrong"),
    "divided by zero only": (("aten::floor_divide", (DIVIDEND, 0 * DIVISOR)), quotient(7), "undefined"),
    "out of range": (ROWS, rows(), "undefined"),
    "out of range: NaN": (ROWS, rows(0, math.nan), "undefined"),
    "out of range: the next row": (ROWS, rows(1), "wrong"),
    "out of range, large numbers": (WHOLE, rows(), "undefined"),
    "out of range, large numbers: others": (WHOLE, rows(1), "wrong"),
    "all out of range": (("aten::index_select", (TABLE, 0, AT + 99)), rows(), "undefined"),
}
# ---- what only carries elements ----

HOLES = TABLE.clone()
HOLES[3, 4], HOLES[5, 6] = math.nan, math.inf
PICK = {
    name: ("aten::index_select", (table, 0, AT % 24))
    for name, table in {"floats": HOLES, "bfloat16": HOLES.bfloat16(), "integers": WHOLE[1][0]}.items()
}
CARRIED = {
    **{f"carried: {k}": (call, of_cpu("aten::index_select"), "pass") for k, call in PICK.items()},
    **{f"carried: {k}, the next row": (call, lambda x, d, i: x[(i + 1) % 24], "wrong") for k, call in PICK.items()},
    "carried: another zero": (("aten::tril", (TABLE,)), lambda x: -(-x).tril(), "pass"),
}
# ---- steps into which torch takes a call apart ----


class Summing(TorchDevice):
    """Adds up in bfloat16."""

    def run(self, call):
        with Sums():
            return super().run(call)


APART = {name: make() for name, make in APART_CALLS.items() if AS_KNOWN or name != "linear"}
STEPS_OF_TORCH = {
    **{f"own steps: {k}": ((op, args), TorchDevice("sim:0"), "pass") for k, (op, *args) in APART.items()},
    **{
        f"own steps: {k} in bfloat16": ((op, args), Summing("sim:0"), "wrong")
        for k, (op, *args) in APART.items()
        if k in ("linear", "einsum", "chain")
    },
}
# ---- what outputs leave free together, and one that is promised nothing ----

Q = torch.linalg.qr(normal(12, 12, seed=15).double())[0]
SYMMETRIC = ((Q * torch.tensor([1.0, 1, 1, *range(2, 11)])) @ Q.T).float()  # three of its values are one
EIGH, SVD = ("aten::_linalg_eigh", (SYMMETRIC, "L", True)), ("aten::_linalg_svd", (normal(12, 8, seed=16), False, True))
TOP = ("aten::topk", (normal(16, 64, seed=17), 8, -1, True, False))
DIGITS = torch.cat([torch.randint(0, 9, (64,), generator=torch.Generator().manual_seed(18)), torch.arange(9)]) + (
    1 << 60
)
UNIQUE = ("aten::_unique2", (DIGITS, False, True, True))
HALVES = ("wanted::halves", (normal(40, 30, seed=19),))


def of_op(op, change):
    """What `change` makes of the CPU's outputs, laid out as these are."""

    def run(*args):
        right = of_cpu(op)(*args)
        return tuple(torch.empty_like(t).copy_(c) for t, c in zip(right, change(*right)))

    return run


def rotated(angle, i, j):
    """Vectors i and j, turned among each other."""

    def change(values, vectors):
        out, a = vectors.clone(), torch.tensor(angle)
        out[:, i] = a.cos() * vectors[:, i] - a.sin() * vectors[:, j]
        out[:, j] = a.sin() * vectors[:, i] + a.cos() * vectors[:, j]
        return values, out

    return change


def in_order(places, inverse=False):
    """The device's order of values that nobody sorted."""

    def change(values, at, *counts):
        other = torch.empty_like(places).scatter(-1, places, torch.arange(places.shape[-1]).expand_as(places))
        mine = (other[at],) if inverse else (at.gather(-1, places),)
        return (values.gather(-1, places), *mine, *(c.gather(-1, places) for c in counts))

    return change


SHUFFLED = torch.rand(16, 8, generator=torch.Generator().manual_seed(20)).argsort(-1)
TOGETHER = {
    "gauge: signs": (EIGH, of_op("aten::_linalg_eigh", lambda w, v: (w, -v)), "pass"),
    "gauge: of one value": (EIGH, of_op("aten::_linalg_eigh", rotated(0.7, 0, 2)), "pass"),
    "gauge: of two values": (EIGH, of_op("aten::_linalg_eigh", rotated(0.02, 2, 3)), "wrong"),
    "gauge: too long": (EIGH, of_op("aten::_linalg_eigh", lambda w, v: (w, v * (1 + 2.0**-10))), "wrong"),
    "gauge: one side": (
        SVD,
        of_op("aten::_linalg_svd", lambda u, s, v: (u * torch.tensor([-1.0, *[1] * 7]), s, v)),
        "wrong",
    ),
    "order: another": (TOP, of_op("aten::topk", in_order(SHUFFLED)), "pass"),
    "order: of values alone": (TOP, of_op("aten::topk", lambda v, i: (v.roll(1, 1), i)), "wrong"),
    "order: of places": (
        UNIQUE,
        of_op("aten::_unique2", in_order(SHUFFLED[0].new_tensor([8, 1, 3, 0, 2, 7, 4, 6, 5]), True)),
        "pass",
    ),
    "order: of counts": (UNIQUE, of_op("aten::_unique2", lambda v, i, c: (v.roll(1), i, c)), "wrong"),
    "none: of one output": (HALVES, lambda x: (x.exp(), 7 * x), "pass"),
    "none: the other is off": (HALVES, lambda x: (x.exp() * 1.01, 7 * x), "wrong"),
}
# ---- what an extension's own kernel rounds inside ----

GATED = ("wanted::gated", (normal(64, 128, seed=21).bfloat16(), normal(64, 128, seed=22).bfloat16()))


def otherwise(a, b):
    """Rounded once inside as well, behind a function that is off by its ulps."""
    return (a.float() / (1 + (-a.float()).exp()) * (1 + 2.0**-22)).bfloat16() * b


INSIDE = {
    "rounds inside: as the CPU": (GATED, wanted_ops.gated, "pass"),
    "rounds inside: as others do": (GATED, otherwise, "pass"),
    "rounds inside: the sigmoid as well": (GATED, lambda a, b: a * torch.sigmoid(a) * b, "wrong"),
    "rounds inside: 1 % off": (GATED, lambda a, b: (otherwise(a, b) * 1.01).bfloat16(), "wrong"),
    "rounds inside: a row of another": (GATED, lambda a, b: otherwise(a, b)[[0, 1, 2, 4, *range(4, 64)]], "wrong"),
}
# A product of which some rows are no numbers: no slopes are known of it.
HOLED = normal(4, 10, 30, seed=26)
HOLED[:, 3, 5] = math.inf
# ---- what rows of runs have in common ----

LINES = ("aten::_softmax", (normal(64, 128, seed=23), -1, False))


def off_by_rows(roundings, columns=slice(None)):
    """Each row by one share, up or down."""

    def run(x, *args):
        out = x.double().softmax(-1)
        share = torch.where(torch.arange(64) % 2 == 0, 1.0, -1.0)[:, None] * roundings * 2.0**-24
        out[:, columns] *= 1 + share
        return out.float()

    return run


SHARES = {
    "shares: none": (LINES, off_by_rows(0), "pass"),
    "shares: of rows": (LINES, off_by_rows(60), "wrong"),
}
# ---- the rows of docs/reference/excuses.md ----

DRAWN = {"law", "spread", "mask_unclear", "rounded_scale", "unsaid"}
# Rows that no pack and no trace has: of callables, of a formula in place of an operator, of ranks, of what a device
# writes beside its outputs.
OF_NO_TRACE = {"dtype", "collective", "learnt_writes"}
OF_CASES = {
    "corner": "corner: ",
    "step": "more steps",
    "admissible": "quantized: ",
    "overflow": "a sum that",
    "own_steps": "own steps: ",
    "masked": "hidden: ",
    "unwritten": "unwritten: ",
    "zero_division": "divided",
    "bad_index": "out of range",
    "rounded_scalars": "rounded: ",
    "in_rows": "in rows",
    "gauge": "gauge: ",
    "order": "order: ",
    "none_result": "none: ",
    "rounded_between": "rounds inside: ",
}
ROWS = {f"{code}: a wrong kernel": excuse_ops.case(code) for code in excuse_ops.NAMED.keys() - OF_CASES.keys() - DRAWN}
ROWS = {
    name: (
        (row.op, row.args),
        lambda *a, row=row, **k: row.outputs,
        "undefined" if name.startswith("no_reference") else "wrong",
    )
    for name, row in sorted(ROWS.items())
}
# ---- narrower formats ----

TINY = ("aten::div.Tensor", (1e-6 * normal(20, 30, seed=24), normal(20, 30, seed=25).sign() + 2 * normal(20, 30)))


def of_rounded(dtype, and_result):
    """A quotient of inputs that were rounded: those near zero are nothing but their rounding."""

    def run(x, y):
        out = x.to(dtype).double() / y.to(dtype).double()
        return (out.to(dtype) if and_result else out).float()

    return run


NARROWER = {
    "narrower: inputs of float16": (TINY, of_rounded(torch.float16, False), "reduced"),
    "narrower: inputs and a result of float16": (TINY, of_rounded(torch.float16, True), "reduced"),
    "narrower: and a row of another": (TINY, lambda x, y: of_rounded(torch.float16, True)(x, y).roll(1, 0), "wrong"),
    "no closed form": (
        ("aten::bmm", (HOLED, normal(4, 30, 12, seed=27))),
        lambda a, b: (a.double() @ b.double()).bfloat16().float(),
        "reduced",
    ),
}
# ---- operators that write their arguments ----

MOMENTS = (normal(64, seed=28), normal(64, seed=29), 0.1 * normal(64, seed=30), normal(64, seed=31).square())


def in_place(kernel):
    """A device that writes what `kernel` gives to the first argument."""

    def run(x, *args, **kwargs):
        return x.copy_(kernel(x.clone(), *args, **kwargs))

    return run


def added_last(x, dim, index, source):
    """Of rows that are added to one place the last alone arrives."""
    return x.index_copy(dim, index, x.index_select(dim, index) + source)


def moments_kept(x, *args):
    """Statistics that are not moved."""
    return torch.batch_norm(x, *args[:2], None, None, True, *args[5:7], False), *of_cpu(
        "aten::_native_batch_norm_legit"
    )(x, *args)[1:]


TO = torch.tensor([3, 0, 3, 5, 1, 3])
NORM = (normal(16, 8, seed=32), normal(8, seed=33), normal(8, seed=34), normal(8, seed=35), normal(8, seed=36).square())
ADDED = ("aten::add_.Tensor", (normal(30, 40, seed=37), normal(40, seed=38)))
SCALED = ("aten::mul_.Tensor", (normal(30, 40, seed=39).bfloat16(), normal(30, 40, seed=40).bfloat16()))
PRODUCT = ("aten::addmm_", (normal(20, 24, seed=41), normal(20, 96, seed=42), normal(96, 24, seed=43)))
ROWS_ADDED = ("aten::index_add_", (normal(8, 32, seed=44), 0, TO, normal(6, 32, seed=45)))
NORMED = ("aten::_native_batch_norm_legit", (*NORM, True, 0.1, 1e-5))
STEPPED = ("aten::addcdiv_", (MOMENTS[0], MOMENTS[2], MOMENTS[3].sqrt() + 1e-8))
FILLED = ("aten::masked_fill_.Scalar", (normal(30, 40, seed=46), normal(30, 40, seed=47) > 0, -1.0))
IN_PLACE = {
    "in place: sum": (ADDED, in_place(torch.add), "pass"),
    "in place: sum, a row not": (ADDED, in_place(lambda x, y: torch.cat([x[:29] + y, x[29:]])), "wrong"),
    "in place: products": (SCALED, in_place(torch.mul), "pass"),
    "in place: products, cut off": (SCALED, in_place(lambda x, y: cut_off(x.float() * y.float())), "wrong"),
    "in place: product": (PRODUCT, in_place(torch.addmm), "pass"),
    "in place: product in bfloat16": (
        PRODUCT,
        in_place(lambda c, a, b: c + (a.bfloat16() @ b.bfloat16()).float()),
        "reduced",
    ),
    "in place: rows": (ROWS_ADDED, in_place(torch.index_add), "pass"),
    "in place: rows, the last alone": (ROWS_ADDED, in_place(added_last), "wrong"),
    "in place: statistics": (NORMED, lambda *a: operator("aten::_native_batch_norm_legit")(*a), "pass"),
    "in place: statistics not moved": (NORMED, moments_kept, "wrong"),
    "in place: step": (STEPPED, in_place(torch.addcdiv), "pass"),
    "in place: step of nothing": (STEPPED, in_place(lambda x, *_: x), "wrong"),
    "in place: filled": (FILLED, in_place(torch.masked_fill), "pass"),
    "in place: filled otherwise": (FILLED, in_place(lambda x, m, v: x.masked_fill(~m, v)), "wrong"),
}
HUGE = ((normal(40, 64, seed=48) * 2e36).bfloat16(),)
FAR = (normal(40, 64, seed=49) * 1e36,)
FAR_OUT = {
    "far out: sines": (("aten::sin", HUGE), torch.sin, "pass"),
    "far out: sines of neighbours": (("aten::sin", HUGE), lambda x: torch.sin(x).roll(1, -1), "wrong"),
    "far out: zeros below zero": (("aten::gelu", FAR), torch.nn.functional.gelu, "pass"),
    "far out: a stale row": (("aten::gelu", FAR), lambda x: stale(torch.nn.functional.gelu(x)), "wrong"),
}


def stale(y):
    """The last row is the one before."""
    return torch.cat([y[:-1], y[-2:-1]])


def cut_off(x):
    """In bfloat16, rounded towards zero."""
    return (x.view(torch.int32) >> 16 << 16).view(torch.float32).bfloat16()


OWN.update(NARROWER | IN_PLACE | FAR_OUT)
OWN.update(ROWS | READINGS | HIDDEN | UNWRITTEN | REFUSED | CARRIED | STEPS_OF_TORCH | TOGETHER | INSIDE | SHARES)
CASES = {
    **{f"quantized: {k}": v[:2] for k, v in QUANTIZED.items()},
    **{
        f"corner: {k}": ((op, tuple(args)), lambda *a, op=op, f=f: f(operator(op)(*a), *a))
        for k, ((op, *args), f, _) in CORNERS.items()
    },
    **{k: v[:2] for k, v in OWN.items()},
}
