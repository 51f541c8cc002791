# SPDX-License-Identifier: Apache-2.0
"""The second half of the document of the Ascend precheck: its indicators, the overflow parser and the questions that it
answers. test_precheck_document.py has the first."""

from __future__ import annotations

import json
import os
import sys

import precheck_program
import pytest
import torch
from precheck_program import LONG, RUN_UT, SHORT, described, files, run, small, tables

from ulpscope.compat.api_accuracy_checker.common.config import pattern

shim = precheck_program.shim  # a fixture
OVERFLOW = [sys.executable, "-m", "ulpscope.compat.api_accuracy_checker.run_ut.run_overflow_check"]


# ---- "Indicators": the rules of Status --------------------------------------------------

N = 1000


def off(share, by, size=100.0):
    """Numbers of this size, of which a share is off by that much of themselves."""
    bench = torch.linspace(0.5, 1, N) * size
    device = bench.double()
    device[: round(share * N)] *= 1 + by
    return device, bench


LOW, WIDE = (torch.float16, torch.bfloat16), (torch.float32, torch.float64)
RULES = [  # rule, dtypes, (device, bench), status
    (
        "1: a cosine of 0.99 or less",
        LOW + WIDE,
        (torch.tensor([0.0, 1.0] * 8).double(), torch.tensor([1.0, 0.0] * 8)),
        "error",
    ),
    (
        "1: before the size of the error",
        WIDE,
        (torch.tensor([0.0, 1e-6] * 8).double(), torch.tensor([1e-6, 0.0] * 8)),
        "error",
    ),
    ("2: errors below 0.001, however large for their numbers", LOW + WIDE, off(1, 0.5, 1e-3), "pass"),
    ("3: hundredth, all off by 2 %", LOW + WIDE, off(1, 0.03), "error"),
    ("3: hundredth, 2 % of them off by 3 %", LOW, off(0.02, 0.03), "error"),
    ("3: thousandth, 0.5 % of them off by 3 %", LOW, off(0.005, 0.03), "warning"),
    ("3: thousandth, 0.5 % of them off by 3 %", WIDE, off(0.005, 0.03), "error"),
    ("3: ten thousandth, all off by 0.05 %", WIDE, off(1, 5e-4), "warning"),
    ("3: nothing is off", LOW + WIDE, off(0, 0), "pass"),
    ("3: all off by 0.005 %", WIDE, off(1, 5e-5), "pass"),
]


@pytest.mark.parametrize(
    "dtype, operands, status, rule",
    [
        pytest.param(dtype, operands, status, rule, id=f"{rule} {dtype}")
        for rule, dtypes, operands, status in RULES
        for dtype in dtypes
    ],
)
def test_rules_one_to_three(dtype, operands, status, rule):
    import ulpscope

    device, bench = operands[0].to(dtype), operands[1].to(dtype)
    said = ulpscope.judge_call(torch.clone, (bench,), outputs=device, standard="ascend-v1")
    assert said.status == status, (rule, said)


@pytest.mark.parametrize(
    "factor, first, second, success",
    [(1.0, "pass", "pass", "TRUE"), (1.0005, "warning", "pass", "FALSE"), (1.002, "error", "pass", "FALSE")],
)
def test_rule_four_all_outputs_must_pass_and_a_warning_does_not(tmp_path, factor, first, second, success):
    """Of var_mean the mean is small, so that what it is off by stays below the limit of rule 2."""
    small(tmp_path, {"Torch*var_mean*0": [described("float32", 10.0, (64, 64))]})
    run(
        [*RUN_UT, "-forward", "forward_info_0.json"],
        tmp_path,
        0 if factor == 1 else 1,
        ULPSCOPE_COMPAT_DEVICE="sim",
        ULPSCOPE_SIM_FAULTS=f"var_mean:scale:factor={factor}",
    )
    result, details = tables(tmp_path)
    assert [r[10] for r in details[1:]] == [first, second] and result[1][1:3] == [success, "N/A"]


# ---- "Overflow parser" ------------------------------------------------------------------


@pytest.mark.parametrize("device, words", [("sim", SHORT), ("cpu", LONG)], ids=["sim-short", "cpu-long"])
def test_an_overflow_is_normal_or_abnormal(tmp_path, device, words):
    small(tmp_path / "d", {"Torch*exp*0": [described("float32", 1000.0)], "Torch*abs*0": [described("float32", 1.0)]})
    command = [*OVERFLOW, words["forward"], "forward_info_0.json"]
    honest = run([*command, words["jit"], words["device"], 1], tmp_path / "d", 0, ULPSCOPE_COMPAT_DEVICE=device)
    honest = honest.stdout.splitlines()
    assert honest[0].startswith("Torch*exp*0: normal: an honest computation")
    assert honest[1] == "Torch*abs*0: normal: nothing overflows"
    faults = (
        ("abs:nan", 1, "abnormal: "),
        ("abs:scale:factor=2", 0, "normal: nothing overflows"),
        ("abs:crash", 2, "untold: "),
    )
    for fault, code, told in faults if device == "sim" else ():
        broken = run(
            command, tmp_path / "d", code, ULPSCOPE_COMPAT_DEVICE=device, ULPSCOPE_SIM_FAULTS=fault
        ).stdout.splitlines()
        assert broken[1].startswith("Torch*abs*0: " + told), broken
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["backward_info_0.json", "forward_info_0.json"]


def test_overflows_of_the_backward_pass_which_the_document_leaves_out(tmp_path):
    given = described("float32", 1.0, requires_grad=True)
    small(tmp_path, {"Torch*tanh*0": [given]}, {"Torch*tanh*0": [described("float32", 1.0)]})
    words = [*OVERFLOW, "-forward", "forward_info_0.json", "-backward", "backward_info_0.json"]
    said = run(
        words, tmp_path, 1, ULPSCOPE_COMPAT_DEVICE="sim", ULPSCOPE_SIM_FAULTS="tanh_backward:inf"
    ).stdout.splitlines()
    assert said[0] == "Torch*tanh*0: normal: nothing overflows" and said[1].startswith(
        "Torch*tanh*0 backward: abnormal: "
    )


# ---- "FAQ" ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["sim", "cpu"])
@pytest.mark.parametrize(
    "dtype, bench",
    [
        ("bfloat16", "float32"),
        ("float16", "float32"),
        ("float32", "float64"),
        ("float64", "float64"),
        ("int64", "int64"),
    ],
)
def test_faq_1_and_3_dtypes_and_what_they_are_held_to(tmp_path, device, dtype, bench):
    """bfloat16 is no unsupported scalar; a CPU that computes float16 does it in float32."""
    x = described(dtype, 9, (8, 8))
    small(tmp_path, {"Torch*matmul*0": [x, x], "Torch*add*0": [x, x]})
    run([*RUN_UT, "-forward", "forward_info_0.json"], tmp_path, ULPSCOPE_COMPAT_DEVICE=device)
    result, details = tables(tmp_path)
    assert {r[4] for r in result[1:]} == {"pass"}
    # rule 3 warns of bfloat16's own rounding, which is larger than a thousandth
    assert result[1][1] == ("FALSE" if dtype == "bfloat16" else "TRUE") and result[2][1] in ("TRUE", result[1][1])
    assert {r[10] for r in details[1:]} <= ({"pass", "warning"} if dtype == "bfloat16" else {"pass"})
    assert {tuple(r[1:3]) for r in details[1:]} == {(f"torch.{bench}", f"torch.{dtype}")}


@pytest.mark.parametrize(
    "fault, success",
    [("", "TRUE"), ("native_dropout:drop_tail:n=300", "FALSE"), ("native_dropout:scale:factor=1.05", "FALSE")],
)
def test_faq_2_dropout_is_judged_by_its_share_of_zeros(tmp_path, fault, success):
    """And its kept values by their scale."""
    x = described("float32", 1.0, (64, 64))
    stated = {"Functional*dropout*0": {"args": [x], "kwargs": {"p": {"type": "float", "value": 0.3}}}}
    (tmp_path / "forward_info_0.json").write_text(json.dumps(stated))
    run(
        [*RUN_UT, "-forward", "forward_info_0.json"],
        tmp_path,
        int(bool(fault)),
        ULPSCOPE_COMPAT_DEVICE="sim",
        ULPSCOPE_SIM_FAULTS=fault,
    )
    assert tables(tmp_path)[0][1][1] == success


MAGIC = {  # the table of FAQ 4: what a program writes for each
    "__add__": "x + y",
    "__and__": "i & j",
    "__bool__": "bool(x[0, 0])",
    "__div__": "x.__div__(y)",
    "__eq__": "x == y",
    "__ge__": "x >= y",
    "__gt__": "x > y",
    "__iadd__": "x += y",
    "__iand__": "i &= j",
    "__idiv__": "x.__idiv__(y)",
    "__ifloordiv__": "x //= y",
    "__ilshift__": "i <<= j",
    "__imod__": "x %= y",
    "__imul__": "x *= y",
    "__ior__": "i |= j",
    "__irshift__": "i >>= j",
    "__isub__": "x -= y",
    "__ixor__": "i ^= j",
    "__lshift__": "i << j",
    "__matmul__": "x @ y",
    "__mod__": "x % y",
    "__mul__": "x * y",
    "__nonzero__": "x[0, 0].__nonzero__()",
    "__or__": "i | j",
    "__radd__": "2 + x",
    "__rmul__": "2 * x",
    "__rshift__": "i >> j",
    "__sub__": "x - y",
    "__truediv__": "x / y",
    "__xor__": "i ^ j",
}


@pytest.fixture(scope="module")
def magic(shim, tmp_path_factory):
    """Everything in the table, each as often as its place says."""
    folder = tmp_path_factory.mktemp("magic")
    names = ", ".join(f"'{name}'" for name in MAGIC)
    lines = [
        f"x, y = X.clone(), Y.clone(); i, j = I.clone(), J.clone(); DP.dump.set_dump_switch('ON'); {what}; "
        "DP.dump.set_dump_switch('OFF')"
        for what in MAGIC.values()
    ]
    (folder / "main.py").write_text(
        "import api_accuracy_checker.dump as DP, torch\nfrom api_accuracy_checker.dump import msCheckerConfig\n"
        f"msCheckerConfig.update_config(white_list=[{names}])\n"
        "X, Y = torch.rand(4, 4) + 1, torch.rand(4, 4) + 1; I, J = torch.arange(16).view(4, 4), torch.ones(4, "
        "4).long()\n" + "\n".join(lines) + "\n"
    )
    run(
        [sys.executable, "main.py"],
        folder,
        0,
        PYTHONPATH=os.pathsep.join([str(shim), os.environ.get("PYTHONPATH", "")]),
    )
    return folder


def test_faq_4_every_magic_function_of_the_table_is_captured_under_its_white_list(magic):
    import fnmatch

    for step, name in enumerate(MAGIC, 1):
        (recorded,) = files(magic, f"step{step}")[0]
        plain = recorded.replace("Tensor*", "torch.Tensor.").replace("Torch*", "torch.").rpartition("*")[0]
        assert any(fnmatch.fnmatch(plain, p) for p in pattern([name]).split(",")), (name, recorded)


@pytest.mark.parametrize("device", ["sim", "cpu"])
def test_faq_4_every_magic_function_of_the_table_is_judged(magic, tmp_path, device):
    calls = {}
    for step in range(1, len(MAGIC) + 1):
        ((recorded, call),) = files(magic, f"step{step}")[0].items()
        calls[f"{recorded.rpartition('*')[0]}*{step}"] = call
    (tmp_path / "forward_info_0.json").write_text(json.dumps(calls))
    run([*RUN_UT, "-forward", "forward_info_0.json"], tmp_path, 0, ULPSCOPE_COMPAT_DEVICE=device)
    result, _ = tables(tmp_path)
    assert len(result) == len(MAGIC) + 1 and {r[1] for r in result[1:]} == {"TRUE"}, result
