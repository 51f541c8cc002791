# SPDX-License-Identifier: Apache-2.0
"""Every condition that lets an output element differ and go free: one row each, from which
docs/excuses.md is made (`python -m ulpscope.judges.excuses`) and the code takes its limits. Needs
no torch. Serves whoever makes a Finding."""

from dataclasses import dataclass

from .. import _core

NOTED = 0.03  # more of an output excused than this is said, whatever the verdict
PROPERTY = "test_excuses_property.py::test_no_wrong_kernel_goes_free"


@dataclass(frozen=True)
class Excuse:
    """One hole in the rule, and what keeps it small."""

    code: str  # as in the metric `excuse` of a result
    words: str  # what a note says of such elements: "1,024 of 4,096 elements are excused: WORDS"
    condition: str  # under which an element goes free
    where: str  # file:function
    most: float  # share of an output's elements that it may cover; 1.0 for no limit
    share: str  # the same in words, with what happens beyond
    nearest: str  # the wrong kernel that comes nearest to passing through
    test: str  # file::function of the test that shows that it does not
    seen: str = "counted"  # how a result shows it: counted (`excused`), or in words

    def __post_init__(self):
        if self.words is None:  # of elements: a case has the words and the limit
            most, words = _core.excuses[self.code]
            object.__setattr__(self, "most", most)
            object.__setattr__(self, "words", words)


ROWS = [
    # ---- what an operator does not promise: `discrete`, `calls.indices` ----
    Excuse(
        "corner", None,
        "it is part of a gradient, its function has a corner there in what is differentiated, and it lies "
        "between the two sides; never of an operator that does not round, nor where a sum that no choice "
        "changes (what tied maxima share) is another",
        "case_corner.c:is_corner", None, "1/32, or one element; of a callable more, if an activation's own rule "
        "does not settle them and 9 of 10 are one of the choices or an even share",
        "ReLU's gradient that lets dead units learn", "test_corners.py::test_verdict",
    ),
    Excuse(
        "written_twice", None,
        "several updates write this element without adding, and it holds one of them; a row may be torn "
        "between two, as threads that write it at once do",
        "case_free.c:mark_writes", None, "as many as are written twice; the verdict is `undefined`",
        "the mean of two updates", "test_writes.py::test_verdict",
    ),
    Excuse(
        "out_of_range", None,
        "a float is converted to an integer type that does not hold it",
        "case_free.c:take_usual", None, "1/32, or one element; more only as long as each holds what some "
        "conversion gives: the type's limits, 0, -1, or the low bits of a wider integer",
        "garbage for all that saturates", "test_writes.py::test_verdict",
    ),
    Excuse(
        "zero_division", "integers are divided by zero",
        "it hangs on an integer that is divided by zero; the rest of the output is judged",
        "judges/refused.py:judged_beside", 1.0, "as many as hang on such a division",
        "a quotient that is off by one elsewhere", "test_writes.py::test_verdict",
    ),
    Excuse(
        "bad_index", "an index is out of range",
        "it hangs on an index that the CPU refuses; the rest of the output is judged",
        "judges/refused.py:judged_beside", 1.0, "as many as hang on such an index",
        "rows of the next index elsewhere", "test_writes.py::test_verdict",
    ),
    Excuse(
        "ill_conditioned", None,
        "fewer than 4 of its bits are right, or S or N is so large that fewer could be told, and it is off "
        "by no more than S or N explain",
        "judge_kernels.inc:score", None,
        "up to half; more is `unjudged: ill-conditioned`, and the others have to pass alone",
        "garbage from a layer_norm or an inverse that float32 cannot compute, beside rows that it can",
        "test_ill_conditioned.py::test_garbage_is_never_a_pass",
    ),
    Excuse(
        "tie", "a tie of the choice",
        "an index that selects a value equal to the right one",
        "case_choice.c:same_value", 1.0, "as many as have equal values",
        "an index off by one", "test_discrete.py::test_verdict",
    ),
    Excuse(
        "step", None,
        "a step inside (a rounding to integers or to 8 bits, a comparison) lies within 2^-20 of the inputs, but "
        "not upon them, and the value is what a replay across the step gives; or within 2^-22, and the value "
        "lies between what such replays give",
        "case_steps.c:take_steps", None, "as many as lie near a step: about 1 in 10,000 at 8 bits",
        "ties away from zero for ties to even", "test_quantized.py::test_verdict",
    ),
    Excuse(
        "own_steps", "torch's own steps round there",
        "torch itself takes the operator apart on this device, and it lies between what these steps give when "
        "each is correctly rounded to float16 or bfloat16, with one ulp to both sides; four runs, three of them "
        "with a float32 kernel's noise",
        "judges/own_steps.py:forgiven", 1.0, "all, each held to the steps' own rounding; none where any other is flagged",
        "bfloat16 sums inside the product of a linear", "test_own_steps.py::test_a_wrong_step_is_flagged",
    ),
    # ---- draws: `judges.draws.operators`, `judges.draws.masks` ----
    Excuse(
        "mask_unclear", "no mask of the dropout inside could be told there",
        "an element of a part whose mask cannot be told from the output",
        "judges/draws/masks.py:_by_rule", 0.5, "as many parts as of honest outputs, else `wrong`",
        "some rows of an attention are garbage", "test_chance.py::test_wrong_attention_is_flagged",
    ),
    Excuse(
        "mask_sample", "the masks of the dropout inside were looked for in a sample",
        "an element outside of the parts whose masks were looked for, where these are too many",
        "judges/draws/masks.py:_by_rule", 1.0, "all but some 2^28 multiplications' worth of parts",
        "bfloat16 inputs everywhere", "test_chance.py::test_wrong_attention_is_flagged",
    ),
    Excuse(
        "spread", "drawn, and only the spread of the draws was tested",
        "it is drawn, no law of it is known, and it lies where 40 draws of the CPU do; such a call has no bits, "
        "and where a device can be asked again without chance, it is judged so",
        "judges/draws/sampling.py:_output", 1.0, "the whole output, which is said",
        "bfloat16 inputs before the noise is added", PROPERTY,
    ),
    # ---- what float32 and its devices may give otherwise: the judge in C ----
    Excuse(
        "flushed", None,
        "zero where the result is subnormal, or what a replay gives in which a subnormal input or step "
        "became zero, if that replay differs by more than 16 roundings for it; float32 and bfloat16 only",
        "judge_rule.c:flags_forgiven", None, "none where the device keeps more of them than it flushes",
        "subnormals replaced by others, or zeros at an eighth of them",
        "test_subnormals.py::test_only_zeros_stand_for_subnormals",
    ),
    # ---- how large an error may be: told by the bits, which count it ----
    Excuse(
        "sensitivity", "rounding its inputs moves it as much",
        "it is off by no more roundings than the limits allow, each as large as what rounding the inputs makes of "
        "it (S)", "judge_element.c:load_scale", 1.0, "all, up to where fewer than 4 bits are left: `ill_conditioned`",
        "inputs rounded to bfloat16", PROPERTY, "its bits",
    ),
    Excuse(
        "float32_loses", "float32 on the CPU loses as much",
        "the same with what float32 on the CPU loses, here or where the inputs are moved (N)",
        "judge_element.c:load_scale", 1.0, "all, up to where fewer than 4 bits are left; where float32 and float64 "
        "compute another function: `unjudged`", "errors where the CPU's float32 is bad, 64 times as large",
        PROPERTY, "its bits",
    ),
    Excuse(
        "rounded_otherwise", "float32 with other roundings of its steps loses as much",
        "an accused output that passes if N is taken from further inputs, or from steps that round the other "
        "way; functions stay in their range, and at their limit where float32 has come to it",
        "case_look.c:at_loss", 1.0, "all; bits are counted without it but for 3",
        "10 % off at saturated activations", PROPERTY, "its bits",
    ),
    Excuse(
        "yardstick", "the value of float32 on the CPU",
        "it is what float32 on the CPU gives, rounded to the output's dtype, or within 16 roundings of that or of "
        "a replay", "judge_element.c:forgive", 1.0, "all: a device that errs as the CPU does is no worse than it",
        "the CPU's value at some elements, reduced precision at the others", PROPERTY, "its bits",
    ),
    Excuse(
        "nothing", "zero in truth, and as good as zero",
        "the truth is 0 and it is below 2^-50 of the output's usual size, times the limit",
        "judge_element.c:forgive", 1.0, "all that are zero in truth", "1e-12 where a mask is zero", PROPERTY, "nothing",
    ),
    Excuse(
        "zero_part", "one part of a complex number cancels",
        "a part of a complex number is below 2^-40 of the other in truth, and off by no more than 4 roundings of it",
        "judge_element.c:forgive", 1.0, "all of such", "a millionth of the real part in an imaginary part that is "
        "zero", PROPERTY, "nothing",
    ),
    Excuse(
        "fan_in", "sums of many terms may round as often",
        "the limits grow with the number of terms that are added, as the square root, to 1,024 roundings",
        "judge_rule.c:limit_of", 1.0, "all; fewer than 14 bits never pass", "terms left out of a mean of 16,384",
        PROPERTY, "its bits",
    ),
    Excuse(
        "order_of_adding", None,
        "an accused output that passes without the elements that are off by no more than twice what its sums lose "
        "in one float32 accumulator, from the first term on or from the last; a Fourier transform by its matrix",
        "case_steps.c:take_added", None, "all; bits are counted with it",
        "sums of products in bfloat16", PROPERTY,
    ),
    Excuse(
        "few", "too few elements differ for statistics",
        "where fewer than 8 elements differ only the limit of the worst element holds",
        "judge_rule.c:test_limits", 1.0, "7 elements", "one element off by 2^-16", PROPERTY, "its bits",
    ),
    Excuse(
        "one_ulp", "an ulp of a narrow output",
        "an output that is off by an ulp of its dtype at most is `reduced` and not `wrong`: none goes free",
        "judge_rule.c:name_failure", 1.0, "none", "truncation to bfloat16", PROPERTY, "`reduced`",
    ),
    Excuse(
        "admissible", "what was computed before may round otherwise",
        "an integer of a callable of several steps, or of a quantization, that one of 32 replays gives there too",
        "case_exact.c:take_admissible", 1.0, "as many as lie near a step", "floor instead of round", PROPERTY, "a note",
    ),
    # ---- another reading of the call, which has to hold for all of it ----
    Excuse(
        "rounded_scalars", "numbers among the arguments rounded first",
        "the whole call passes if Python numbers are rounded to the tensors' 16 bits first",
        "executors/conventions.py:with_rounded_scalars", 1.0, "the whole call", "a number that is rounded the other way",
        PROPERTY, "a note",
    ),
    Excuse(
        "own_casts", "rounded to 16 bits inside, as the function does",
        "the whole of a callable passes if what it itself rounds to 16 bits is rounded so, once and to nearest",
        "executors/conventions.py:with_its_casts", 1.0, "the whole call", "truncation for rounding to nearest",
        PROPERTY, "a note",
    ),
    Excuse(
        "order", "no order is promised",
        "topk and unique with sorted=False: the outputs are compared in the reference's order, all of them "
        "permuted alike", "calls/indices.py:aligned", 1.0, "the whole call", "values in another order than their indices",
        PROPERTY, "nothing",
    ),
    Excuse(
        "dtype", None,
        "where the reference is somebody else's formula any float dtype will do: it is judged by its own roundings, "
        "and Inf where it does not hold the number", "case.c:in_own_dtype", None, "the whole output",
        "float16 results that overflow", PROPERTY, "a note; Inf is counted",
    ),
    Excuse(
        "law", "drawn by its law",
        "it is drawn by a known law, all tests of which it passes", "judges/draws/operators.py:_finding", 1.0,
        "the whole output, which has no bits", "a normal that is 10 % too wide", PROPERTY, "no bits",
    ),
    Excuse(
        "collective", "a sum over ranks, rounded at every rank",
        "a sum in 16 or 8 bits lies within 1.5 (of all orders) or 3 (of some) half spans of what orders of adding "
        "give", "judges/hops.py:strays", 1.0, "all; of those beyond the span of some orders 15 %", "a rank that is left out",
        "test_collectives_judged.py::test_a_wrong_reduction_is_wrong", "a note",
    ),
    # ---- beyond the numbers of float32 ----
    Excuse(
        "lost", "float32 itself overflows",
        "float32 on the CPU has no number there, or no right bit since a step inside overflows; the others have "
        "to pass alone", "case_excuse.c:mark_lost", 1.0, "all: it is `unjudged`", "0.1 % off where float32 has numbers",
        PROPERTY, "`unjudged`",
    ),
    Excuse(
        "shared", "float32 itself overflows, as the device does",
        "float32 on the CPU gives this NaN or Inf too, where there is a number", "case_excuse.c:mark_shared", 0.5,
        "half of the output; the others have to pass alone", "Inf at other elements", PROPERTY, "a note",
    ),
    Excuse(
        "other_kinds", "NaN and Inf hang on the formula",
        "the truth is NaN or Inf, and so is it, of the kind that float32 gives if its roundings fall otherwise",
        "case_excuse.c:take_kinds", 1.0, "all that are no number in truth", "-Inf for Inf", PROPERTY, "a note",
    ),
    Excuse(
        "same_kind", "NaN or Inf as on the CPU",
        "float32 on the CPU gives the same NaN or Inf there", "judge_element.c:judge_special", 1.0,
        "as many as the CPU has", "NaN at other elements", PROPERTY, "nothing",
    ),
    Excuse(
        "overflow", "a sum near the largest number",
        "it is Inf or NaN where the truth is a number, and so sensitive that a partial sum may overflow",
        "judge_element.c:judge_special", 1.0, "all: it is `unjudged`", "Inf for a sum of half the largest number",
        PROPERTY, "`unjudged`",
    ),
    # ---- what is not looked at, or does not decide ----
    Excuse(
        "sampled_rows", "outside of the rows that were judged",
        "it lies in a row of a product of 2^32 multiplications that is neither at a border of a tile, nor among 256 "
        "by chance, nor among the 32 whose checksum is furthest off", "judges/sampled.py:sampled", 1.0,
        "all but some 350 rows", "one element of one row", PROPERTY, "a note",
    ),
    Excuse(
        "aside", "a small output in which float32 keeps no bits",
        "it is in an output that is `unjudged: ill-conditioned`, as long as such outputs hold no more than half of "
        "what was judged: the others decide", "session/judging.py:deciding", 0.5, "half of all outputs",
        "coarse results beside a mean that is nothing but rounding", PROPERTY, "a note",
    ),
    Excuse(
        "learnt_writes", "an argument that the CPU writes as well",
        "an argument is written though the schema does not say so, and the CPU's kernel writes it too: it is an "
        "output then, and judged", "executors/device.py:learn_writes", 1.0, "none", "running statistics that are off",
        PROPERTY, "nothing",
    ),
    Excuse(
        "idle", "an argument that changes how, not what",
        "the reference does not know an argument of this list, which says how a result is computed",
        "executors/formulas/__init__.py:IDLE", 1.0, "none: the result is judged as any other", "coarse sums where fast ones are asked "
        "for", PROPERTY, "nothing",
    ),
    Excuse(
        "none_result", "the reference promises nothing of it",
        "a registered or built-in reference gives None for this result; the others are judged",
        "executors/reference.py:undefined", 1.0, "the whole output", "the other result off by 1 %", PROPERTY, "nothing",
    ),
    # ---- nothing to hold it to ----
    Excuse(
        "another_function", "float32 and float64 compute another function",
        "more than 1 in 20 elements of the two differ by what no rounding explains", "executors/trust.py:is_another_function",
        1.0, "all: it is `unjudged`", "bfloat16 inputs of rms_norm without eps", PROPERTY, "`unjudged`",
    ),
    Excuse(
        "no_reference", "no reference",
        "the reference fails, cannot be trusted, or refuses the call", "session/judging.py:_without_reference", 1.0,
        "all: it is `unjudged` or `undefined`", "a wrong product of which the CPU refuses nothing", PROPERTY,
        "`unjudged`",
    ),
    Excuse(
        "unsaid", "the reference draws though it does not say so",
        "an accused call whose reference turns out to draw, and whose draws do not speak against it",
        "session/judging.py:_unsaid", 1.0, "all: it is `unjudged`", "a callable that draws and is off by 10 %", PROPERTY,
        "`unjudged`",
    ),
    Excuse(
        "promises_nothing", "nothing is promised of new memory",
        "the operator gives memory that nobody has written: empty, empty_like, new_empty",
        "case.c:route", 1.0, "the whole output, but for shape and dtype", "an element too many",
        PROPERTY, "nothing",
    ),
]  # fmt: skip
EXCUSES = {row.code: row for row in ROWS}


def most(code):
    """The share of an output's elements that an excuse may cover."""
    return EXCUSES[code].most


def excuse(finding, code, count):
    """
    Notes on a Finding that `count` of its elements went free by an excuse: in the details
    `excused` (how many in all), `excuse` (codes) and `excuses` (code -> how many), and as a
    note where these are more than a few.
    """
    if not count:
        return finding
    found = finding.details.setdefault("excuses", {})
    found[code] = found.get(code, 0) + int(count)
    finding.details["excused"] = sum(found.values())
    finding.details["excuse"] = ",".join(sorted(found))
    if found[code] > NOTED * max(finding.n, 1):
        words = EXCUSES[code].words
        finding.notes.append(f"{found[code]:,} of {finding.n:,} elements are excused: {words}")
    return finding


# ---- docs/excuses.md -----------------------------------------------------------------

HEAD = """# Excuses

Made from `python/ulpscope/judges/excuses.py` by `python -m ulpscope.judges.excuses`: every condition under which an
element may differ from the truth by more than rounding and still go free. Each has a limit, a wrong kernel
that comes nearest to passing through it, and the test in `tests/py` that shows that it does not;
`test_excuses_property.py` aims wrong kernels at every row.

How many elements of an output went free stands in the metrics `excused` and `excuse` of a result, for rows
that are counted; where they are more than {noted:.0%} a note says so, whatever the verdict. The others are
seen by what their row says: by effective bits that are fewer, a note, or a verdict that is no pass. "Nothing"
stands where what goes free is as good as right.

| code | an element goes free if | share of an output | seen by | where | nearest wrong kernel | caught by |
|---|---|---|---|---|---|---|
"""


def markdown():
    """The page docs/excuses.md."""
    line = ("| `{0.code}` | {0.condition} | {0.share} | {0.seen} | `{0.where}` | {0.nearest} | "
            "`{0.test}` |\n")  # fmt: skip
    return HEAD.format(noted=NOTED) + "".join(line.format(row) for row in ROWS)


if __name__ == "__main__":
    print(markdown(), end="")
