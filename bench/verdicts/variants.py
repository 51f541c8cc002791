# SPDX-License-Identifier: Apache-2.0
"""Correct variants of a kernel and planted faults: which there are for an operator."""

from dataclasses import dataclass

from .arith import NOISE

#: Words of which a right cause contains one, by fault. "unknown" is never right.
CAUSES = {
    "in_bf16": "bfloat16", "in_f16": "float16", "in_tf32": "tf32|float16",
    "in_bf16_trunc": "truncat.*bfloat16|cut off",
    "inter_bf16": "bfloat16", "inter_f16": "float16|tf32",
    "out_bf16": "bfloat16|8 significant", "out_f16": "float16|11 significant|tf32",
    "out_trunc": "truncat|cut off", "out_trunc_bf16": "truncat|cut off", "out_flush": "subnormal|flush",
    "approx": "approx|significan|elementary|function|1e-4|inaccura|consistent with (13|14)",
    "acc_bf16": "accumul.*bfloat16|bfloat16.*accumul|bfloat16",
    "acc_f16": "accumul.*float16|float16", "dot_tf32": "tf32|float16", "dot_bf16": "bfloat16",
    "func_bf16": "bfloat16", "func_f16": "float16|tf32",
    # formulas
    "alpha": "alpha|scalar|factor|missing|dropp|value|left out|multipl|ignored",
    "swapped": "swap|exchang|change places|argument|order",
    "nobound": "bound|max|clamp", "tanh": "tanh", "erf": "erf|tanh", "quick": "sigmoid|1.702|quick",
    "constant": "constant|coefficient|0.0447", "threshold": "threshold", "slope": "slope|factor|multipl",
    "noclamp": "clamp|bound|satur", "square": "square|dropp|missing|contribution",
    "dropped": "dropp|missing|left out|contribution|summand|term|without",
    "nosum": "dropp|missing|left out|contribution|summand|term|without",
    "atzero": "dropp|missing|zero", "conjugate": "conjug|sign", "drop_last": "dropp|missing|left out|last|summand|contribution",
    "drop_part": "dropp|missing|left out|summand|contribution|part", "twice_last": "twice|again|repeat|extra|double",
    "count": "multipl|factor|count|n - 1|n-1|divi|wrong reduction", "biased": "bias|n - 1|n-1|divi|correction|multipl",
    "onepass": "cancel|e\\[x|square|one pass|onepass|accumul|unstable", "exclusive": "exclusive|shift|off by|moved",
    "skip_last": "last|dropp|missing|skip", "nomax": "maximum|max|overflow", "base2": "exp|base|multipl",
    "shifted": "shift|moved|off by|neighbo", "finite": "mask", "eps_out": "eps", "eps_big": "eps",
    "nobias": "bias", "centred": "mean|centre|center", "plain": "multipl|weight|1 \\+|offset|missing|dropp",
    "nomean": "mean|shift|added|missing", "groups": "group|wrong|stride|shift", "ignored": "ignore|mask|factor|multipl",
    "smooth": "smooth", "sum": "multipl|factor|wrong reduction", "half": "added|constant|shift", "nosoft": "dropp|missing|term|contribution",
    "batch": "batch|repeat|stale|index|axis|copy|shift", "beta": "beta|bias|factor|missing|dropp", "scale": "scal|factor|multipl",
    "strict": "mask|shift|diagonal|causal", "groups4": "mask", "heads": "head|axis|index|permut|shift|stride",
    "sign": "sign|negat", "interleaved": "interleav|rotat|stride|permut", "pad": "pad|border|edge",
    "flipped": "flip|revers|transpos", "dilation": "dilat|stride", "unflipped": "flip|revers|transpos",
    "reversed": "flip|revers", "acausal": "shift|moved|off by", "nodivide": "multipl|factor",
    "zeropad": "pad|border|zero|edge", "corners": "corner|align|coordinate", "inverse": "conjug|sign|inverse",
    "unit": "diagonal|unit|divi", "padding": "padding|zero|index 0|row", "overwrite": "overwr|duplicat|dropp|missing|contribution|last",
    "duplicates": "duplicat|dropp|missing|contribution", "axis": "axis|transpos|stride|index",
    "inverted": "mask|invert", "stride": "stride|transpos|layout", "direction": "shift|direction|moved|roll",
    "magnitude": "magnitude|abs|sign", "over16": "zero|last|tail", "smallest": "smallest|order|largest|descend|ascend",
    "descending": "descend|order|ascend|revers", "unsorted": "order|change places|sort|swap", "second": "second|index",
    "equal": "equal|compar|tie", "always": "always|constant|true", "away": "round|half|tie|away",
    "truncate": "trunc|toward", "nearest": "round|nearest", "step": "step|bias correction|multipl|factor",
    "eps_in": "eps", "coupled": "decay|l2", "nocorrection": "correction|multipl|factor",
    "nodecay": "decay|missing|dropp", "dampened": "dampen|multipl|factor",
    # damage
    "tail_zero": "zero|not written|last", "tail_stale": "not computed|stale|not written|last",
    "scale_small": "multipl|factor|scale", "scale_1pc": "multipl|factor|scale", "add_const": "added",
    "tile_zero": "zero|tile|not written", "bitflip": "bit|element", "roll_one": "shift|moved|off by|roll",
    "nan_element": "nan", "inf_element": "inf", "swallow_nan": "nan|swallow|non-finite|special",
    "transposed": "stride|transpos|layout", "saturated": "satur|clamp|clipp|maximum", "negated": "sign|multipl|negat",
    "all_zero": "zero|nothing was written", "two_swapped": "change places|swap",
    "row_stale": "not computed|stale|not written|row|repeat|copy|axis|same as",
}  # fmt: skip

NOMINAL = {"in_bf16": 8, "in_f16": 11, "in_tf32": 11, "inter_bf16": 8, "inter_f16": 11,
           "out_bf16": 8, "out_f16": 11, "dot_tf32": 11, "dot_bf16": 8, "approx": 13.3}  # fmt: skip


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


GENERIC = ("tail_zero", "tail_stale", "scale_small", "scale_1pc", "add_const", "tile_zero", "bitflip",
           "roll_one", "nan_element", "inf_element", "swallow_nan", "transposed", "saturated",
           "negated", "all_zero", "two_swapped", "row_stale")  # fmt: skip
