# SPDX-License-Identifier: Apache-2.0
"""Correct variants of a kernel and planted faults: which there are for an operator."""

from dataclasses import dataclass

from .arith import NOISE

#: What a right cause says, by fault: the mistake that was planted, or a factor where that is all it does.
MISSING = r"dropped contribution|(term|summand|factor|contribution|rest of the formula)\b.* (missing|ignored|left out)"
FACTOR = "the result is multiplied by|scale factor"
CAUSES = {
    "in_bf16": "bfloat16",
    "in_f16": r"\bfloat16",
    "in_tf32": r"tf32|\bfloat16",
    "in_bf16_trunc": "truncat.*bfloat16|cut off",
    "inter_bf16": "bfloat16",
    "inter_f16": r"\bfloat16|tf32",
    "out_bf16": "bfloat16|8 significant",
    "out_f16": r"\bfloat16|11 significant|tf32",
    "out_trunc": "truncat|cut off",
    "out_trunc_bf16": "truncat|cut off",
    "out_flush": "subnormal|flush",
    "approx": "approx|significan|elementary|function|1e-4|inaccura|consistent with (13|14)",
    "acc_bf16": "accumul.*bfloat16|bfloat16.*accumul|bfloat16",
    "acc_f16": r"\bfloat16",
    "dot_tf32": r"tf32|\bfloat16",
    "dot_bf16": "bfloat16",
    "func_bf16": "bfloat16",
    "func_f16": r"\bfloat16|tf32",
    # formulas
    "alpha": rf"alpha|as if value|value is ignored|{FACTOR}",
    "swapped": "swapped|exchanged",
    "nobound": r"\bbounds?\b|clamped",
    "tanh": "tanh",
    "erf": r"\berf\b",
    "quick": r"1\.702|quick",
    "constant": r"0\.0447|constant|coefficient",
    "threshold": "threshold",
    "slope": "slope|scale factor|multiplied by",
    "noclamp": "clamp|bound|satur",
    "square": rf"square|power is missing|{MISSING}",
    "dropped": MISSING,
    "nosum": MISSING,
    "atzero": "relu|zero",
    "conjugate": "conj|sign",
    "drop_last": r"\blast\b.* (missing|left out)|dropped contribution",
    "drop_part": "dropped contribution|(missing|left out)",
    "twice_last": "twice|duplicate",
    "count": rf"count_include_pad|divided by|n - 1|wrong reduction|{FACTOR}",
    "biased": "biased|n - 1",
    "onepass": r"e\[x\^?2\]|one-pass|cancel",
    "exclusive": "exclusive|shifted|moved",
    "skip_last": r"\blast\b.* (missing|left out)",
    "nomax": "without subtracting the maximum|overflow",
    "base2": r"exp2|powers of 2|base 2|log 2|1\.44",
    "shifted": "shift|moved|off by|neighbo",
    "finite": "mask",
    "eps_out": "eps",
    "eps_big": "eps",
    "nobias": "bias",
    "centred": r"\bmean\b",
    "plain": r"1 \+|- 1 instead|constant term|weight",
    "nomean": r"\bmean\b|subtracted",
    "groups": "groups|shared by",
    "ignored": r"ignore|\bmask\b|index 0",
    "smooth": "smooth",
    "sum": rf"wrong reduction|sum instead|divi|{FACTOR}",
    "half": r"is added to the result|constant term|\bbeta\b",
    "nosoft": rf"softplus|relu|log1p|{MISSING}",
    "batch": "batch|axis 0|index|stale|repeat",
    "beta": r"\bbeta|bias",
    "scale": rf"\bscale\b|{FACTOR}|sqrt",
    "strict": r"diagonal|causal|mask is shifted|\b(gt|ge|lt|le) instead",
    "groups4": "mask",
    "heads": "heads|axis 1|axis -3|index|halves",
    "sign": "sign|negat",
    "interleaved": "interleav|halves|exchanged",
    "pad": "pad|border|edge",
    "flipped": "flip|revers|transpos",
    "dilation": "dilat|stride",
    "unflipped": "flip|revers|transpos",
    "reversed": "flip|revers",
    "acausal": "shift|moved|off by",
    "nodivide": rf"divi|{FACTOR}",
    "zeropad": "pad|border|zero|edge",
    "corners": "corner|align|coordinate",
    "inverse": "conjug|sign|inverse",
    "unit": "unit|diagonal",
    "padding": "index 0|padding|rows",
    "overwrite": "overwrit|duplicate|only the last",
    "duplicates": "duplicate|only the last",
    "axis": "axis|dim|transposed|stride",
    "inverted": "mask|invert",
    "stride": "stride|step .* of a slice",
    "direction": "shift|roll",
    "magnitude": "magnitude|abs|sign",
    "over16": r"\blast\b|tail",
    "smallest": "smallest|order|largest|descend|ascend",
    "descending": "descend|order|ascend|revers",
    "unsorted": "order|change places|sort|swap",
    "second": "second",
    "equal": r"equal|compar|tie|\b(gt|ge|lt|le|eq|ne) instead",
    "always": "always|constant",
    "away": "away|half|tie|rounded",
    "truncate": "trunc|toward zero",
    "nearest": "round|nearest",
    "step": "step|bias correction",
    "eps_in": "eps",
    "coupled": "decay|l2|decoupled",
    "nocorrection": rf"bias correction|{FACTOR}",
    "nodecay": "decay",
    "dampened": rf"dampen|0\.9|0\.1|{FACTOR}",
    # damage
    "tail_zero": "zero",
    "tail_stale": "stale|not written|not computed|repeat",
    "scale_small": FACTOR,
    "scale_1pc": FACTOR,
    "add_const": "added",
    "tile_zero": "zero",
    "bitflip": r"\bbit\b|one element|1 element|1 of",
    "roll_one": "shift|moved|off by|roll",
    "nan_element": "nan",
    "inf_element": r"\binf",
    "swallow_nan": "nan",
    "transposed": "transposed|stride|order",
    "saturated": "satur|clamp|clipp|maximum",
    "negated": r"sign|negat|multiplied by -1\b",
    "all_zero": "zero|nothing was written",
    "two_swapped": "change places|swap",
    "row_stale": "stale|not written|not computed|repeat|copy|same as",
}

NOMINAL = {
    "in_bf16": 8,
    "in_f16": 11,
    "in_tf32": 11,
    "inter_bf16": 8,
    "inter_f16": 11,
    "out_bf16": 8,
    "out_f16": 11,
    "dot_tf32": 11,
    "dot_bf16": 8,
    "approx": 13.3,
}


@dataclass
class Variant:
    """One way to compute an operator: arguments of Arith, and what is done to the result."""

    name: str
    klass: str  # correct, reduced, formula, generic
    arith: dict
    out: tuple = ()  # (format, how) that the result is rounded to before its own dtype


def correct(op, profile="normal"):
    """Honest kernels. Other formulas for the same are honest where nothing overflows."""
    tags = op.tags
    ways = {"pairwise": {}, "exact": {"work": "f64"}, "ftz": {"ftz": True}}
    if "sum" in tags:
        ways |= {o: {"order": o} for o in ("seq", "reversed", "blocks32", "blocks128", "splitk")}
    if tags & {"order", "acc"} or (op.name == "prod"):
        ways["reversed"] = {"order": "reversed"}
    if "dot" in tags:
        ways |= {"fma": {"order": "seq", "fma": True}, "fma_splitk": {"order": "splitk", "fma": True}}
    if tags & {"func", "rms", "softmax"}:
        ways["ulp2"] = {"noise": NOISE}
    if tags & {"softmax", "moments"}:
        ways["online"] = {"online": True}
    if "sum" in tags and "func" in tags:
        ways["ulp2_seq"] = {"noise": NOISE, "order": "seq"}
    tame = profile not in ("infnan", "large", "zeros")
    if "alt" in tags and tame:
        ways["alt"] = {"alt": True}
    if "winograd" in tags and tame:
        ways["winograd"] = {"alt": True}
    if tags & {"func", "softmax"}:
        ways["exp2"] = {"exp2": True}
    if "move" not in tags and tame:
        ways["recip"] = {"recip": True}
    if "sum" in tags:
        ways["truncating"] = {"acc_how": "zero", "order": "blocks32"}
    return [Variant(n, "correct", w) for n, w in ways.items()]


def reduced(op, dtype):
    """Kernels narrower than asked somewhere. What changes nothing is dropped later."""
    tags, made = op.tags, []

    def add(name, out=(), **arith):
        made.append(Variant(name, "reduced", arith, out))

    moving = "move" in tags
    if dtype == "f32":
        add("in_bf16", load="bf16"), add("in_f16", load="f16"), add("in_tf32", load="tf32")
        add("in_bf16_trunc", load="bf16", load_how="zero")
        if not moving:
            add("out_bf16", ("bf16", "nearest")), add("out_f16", ("f16", "nearest"))
            add("out_trunc_bf16", ("bf16", "zero"))
            add("inter_f16", work="f16"), add("approx", approx=1e-4)
    if dtype == "f16":
        add("in_bf16", load="bf16"), add("out_flush", ("f16", "flush"))
        if not moving:
            add("inter_f16", work="f16")
    if not moving:
        add("inter_bf16", work="bf16")
        if dtype != "f32":
            add("out_trunc", (dtype, "zero"))
    if tags & {"sum", "acc"}:
        add("acc_bf16", acc="bf16", order="seq"), add("acc_f16", acc="f16", order="seq")
    if "dot" in tags and dtype == "f32":
        add("dot_tf32", narrow="tf32"), add("dot_bf16", narrow="bf16")
    if "func" in tags:
        add("func_bf16", func="bf16"), add("func_f16", func="f16")
    return made


def formula(op):
    return [Variant(b, "formula", {"bug": b}) for b in op.bugs]


GENERIC = (
    "tail_zero",
    "tail_stale",
    "scale_small",
    "scale_1pc",
    "add_const",
    "tile_zero",
    "bitflip",
    "roll_one",
    "nan_element",
    "inf_element",
    "swallow_nan",
    "transposed",
    "saturated",
    "negated",
    "all_zero",
    "two_swapped",
    "row_stale",
)
