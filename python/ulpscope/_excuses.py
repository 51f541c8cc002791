# SPDX-License-Identifier: Apache-2.0
"""Every condition that lets an output element differ and go free: one row each, from which
docs/excuses.md is made (`python -m ulpscope._excuses`) and the code takes its limits. Needs
no torch. Serves whoever makes a Finding."""

from dataclasses import dataclass

NOTED = 0.03  # more of an output excused than this is said, whatever the verdict


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


ROWS = [
    # ---- what an operator does not promise: `_discrete`, `_ties` ----
    Excuse(
        "corner", "a corner of the function",
        "it is part of a gradient, its function has a corner there in what is differentiated, and it lies "
        "between the two sides; never of an operator that does not round",
        "_corners.py:freed", 1 / 32, "1/32, or one element; of a callable more, if an activation's own rule "
        "does not settle them and 9 of 10 are one of the choices or an even share",
        "ReLU's gradient that lets dead units learn", "test_corners.py::test_verdict",
    ),
    Excuse(
        "written_twice", "several updates write them",
        "several updates write this place without adding, and it holds one of them; where rows are written "
        "(`index_put`, `index_copy`), the whole of its row holds the same one",
        "_writes.py:written_twice", 1.0, "as many as are written twice",
        "rows torn between two updates", "test_writes.py::test_verdict",
    ),
    Excuse(
        "out_of_range", "the integer type does not hold the float",
        "a float is converted to an integer type that does not hold it",
        "_discrete.py:_out_of_range", 1 / 32, "1/32, or one element; more only as long as each holds what some "
        "conversion gives: the type's limits, 0, -1, or the low bits of a wider integer",
        "garbage for all that saturates", "test_writes.py::test_verdict",
    ),
    Excuse(
        "zero_division", "integers are divided by zero",
        "it hangs on an integer that is divided by zero; the rest of the output is judged",
        "_refused.py:judged_beside", 1.0, "as many as hang on such a division",
        "a quotient that is off by one elsewhere", "test_writes.py::test_verdict",
    ),
    Excuse(
        "bad_index", "an index is out of range",
        "it hangs on an index that the CPU refuses; the rest of the output is judged",
        "_refused.py:judged_beside", 1.0, "as many as hang on such an index",
        "rows of the next index elsewhere", "test_writes.py::test_verdict",
    ),
    Excuse(
        "ill_conditioned", "ill-conditioned, float32 leaves fewer than 4 bits",
        "fewer than 4 of its bits are right, or S or N is so large that fewer could be told, and it is off "
        "by no more than S or N explain",
        "judge_kernels.inc:score", 0.5,
        "up to half; more is `unjudged: ill-conditioned`, and the others have to pass alone",
        "garbage from a layer_norm or an inverse that float32 cannot compute, beside rows that it can",
        "test_ill_conditioned.py::test_garbage_is_never_a_pass",
    ),
    Excuse(
        "tie", "a tie of the choice",
        "an index that selects a value equal to the right one",
        "_ties.py:as_good", 1.0, "as many as have equal values",
        "an index off by one", "test_discrete.py::test_verdict",
    ),
    Excuse(
        "step", "a rounding or comparison inside may fall either way",
        "a step inside (a rounding to integers or to 8 bits, a comparison) lies within 2^-20 of the inputs, but "
        "not upon them, and the value is what a replay across the step gives; or within 2^-22, and the value "
        "lies between what such replays give",
        "_jumps.py:forgiven", 1.0, "as many as lie near a step: about 1 in 10,000 at 8 bits",
        "ties away from zero for ties to even", "test_quantized.py::test_verdict",
    ),
    # ---- draws: `_random`, `_masks` ----
    Excuse(
        "mask_unclear", "no mask of the dropout inside could be told there",
        "an element of a part whose mask cannot be told from the output",
        "_masks.py:_by_rule", 0.5, "as many parts as of honest outputs, else `wrong`",
        "some rows of an attention are garbage", "test_chance.py::test_wrong_attention_is_flagged",
    ),
    Excuse(
        "mask_sample", "the masks of the dropout inside were looked for in a sample",
        "an element outside of the parts whose masks were looked for, where these are too many",
        "_masks.py:_by_rule", 1.0, "all but some 2^28 multiplications' worth of parts",
        "bfloat16 inputs everywhere", "test_chance.py::test_wrong_attention_is_flagged",
    ),
    # ---- what float32 and its devices may give otherwise: the judge in C ----
    Excuse(
        "flushed", "subnormals flushed to zero",
        "zero where the result is subnormal, or what a replay gives in which a subnormal input or step "
        "became zero, if that replay differs by more than 16 roundings for it; float32 and bfloat16 only",
        "judge_rule.c:flags_forgiven", 1.0, "none where the device keeps more of them than it flushes",
        "subnormals replaced by others, or zeros at an eighth of them",
        "test_subnormals.py::test_only_zeros_stand_for_subnormals",
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

Made from `python/ulpscope/_excuses.py` by `python -m ulpscope._excuses`: every condition under which an
element may differ from the truth by more than rounding and still go free. Each has a limit, a wrong kernel
that comes nearest to passing through it, and the test in `tests/py` that shows that it does not. How many
elements of an output went free stands in the metrics `excused` and `excuse` of a result; where they are
more than {noted:.0%} a note says so, whatever the verdict.

| code | an element goes free if | share of an output | where | nearest wrong kernel | caught by |
|---|---|---|---|---|---|
"""


def markdown():
    """The page docs/excuses.md."""
    line = "| `{0.code}` | {0.condition} | {0.share} | `{0.where}` | {0.nearest} | `{0.test}` |\n"
    return HEAD.format(noted=NOTED) + "".join(line.format(row) for row in ROWS)


if __name__ == "__main__":
    print(markdown(), end="")
