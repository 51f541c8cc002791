# SPDX-License-Identifier: Apache-2.0
"""The four ascend standards against the peer's own code, operand by operand:
`./run exec python bench/bench_standards_peer.py [N]`. Prints how many of N cases per dtype
agree in the verdict, and exits with 1 where one does not. Not part of `./run test`: it
installs the peer on first use."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import peer
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "py"))
warnings.filterwarnings("ignore")
peer.enable()

from msprobe.pytorch.api_accuracy_checker.compare.algorithm import (  # noqa: E402
    get_abs_bench_with_eps,
    get_abs_err,
    get_rel_err_origin,
)
from msprobe.pytorch.api_accuracy_checker.compare.api_precision_compare import (  # noqa: E402
    get_absolute_threshold_result,
)
from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator  # noqa: E402
from msprobe.pytorch.api_accuracy_checker.compare.compare_column import (  # noqa: E402
    ApiPrecisionOutputColumn,
    CompareColumn,
)
from msprobe.pytorch.api_accuracy_checker.compare.compare_input import (  # noqa: E402
    CompareInput,
    PrecisionCompareInput,
)
from msprobe.pytorch.api_accuracy_checker.compare.compare_utils import (  # noqa: E402
    ApiPrecisionCompareColumn as Columns,
)
from msprobe.pytorch.api_accuracy_checker.precision_standard import (  # noqa: E402
    absolute_threshold,
    benchmark_compare,
    ulp_compare,
)
from test_standards import float_operands, integer_operands, opinion  # noqa: E402

OPS = ("add", "embedding", "mm")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
NUMBERS = {
    Columns.SMALL_VALUE_ERROR_RATE: "small_value_err_ratio",
    Columns.RMSE: "rmse",
    Columns.MAX_REL_ERR: "max_rel_error",
    Columns.MEAN_REL_ERR: "mean_rel_error",
    Columns.EB: "eb",
    Columns.MEAN_ULP_ERR: "mean_ulp_error",
    Columns.ULP_ERR_PROPORTION: "ulp_error_proportion",
    Columns.INF_NAN_ERROR_RATIO: "inf_nan_error_ratio",
    Columns.REL_ERR_RATIO: "rel_err_ratio",
    Columns.ABS_ERR_RATIO: "abs_err_ratio",
}


def comparator():
    """The peer's first stage, without the files that its constructor opens."""
    made = object.__new__(Comparator)
    made.registry = made._register_compare_func()
    return made


def first_stage(made, device, raised):
    return made._compare_torch_tensor("some_api", raised, device, CompareColumn(), False)[0]


def row(answer, raised, kind):
    """What the peer's details file holds of one answer."""
    numpy = [t.float().numpy() if answer.dtype == torch.bfloat16 else t.numpy() for t in (raised, answer)]
    column = CompareColumn()
    _, divisor = get_abs_bench_with_eps(numpy[0], answer.dtype)
    relative = get_rel_err_origin(get_abs_err(*numpy), divisor)
    kind(CompareInput(*numpy, column, answer.dtype, relative)).compare()
    held = {name: getattr(column, attribute) for name, attribute in NUMBERS.items()}
    return {Columns.DEVICE_DTYPE: str(answer.dtype), **held}


def second_stage(standard, device, second, raised, op):
    if standard == "ascend-absolute":
        held = row(device, raised, absolute_threshold.AbsolutethdCompare)
        return get_absolute_threshold_result(held)["absolute_threshold_result"]
    ratio = standard == "ascend-benchmark"
    kind = benchmark_compare.BenchmarkCompare if ratio else ulp_compare.UlpCompare
    rule = benchmark_compare.BenchmarkPrecisionCompare if ratio else ulp_compare.UlpPrecisionCompare
    rows = row(device, raised, kind), row(second, raised, kind)
    given = PrecisionCompareInput(*rows, str(device.dtype), ApiPrecisionOutputColumn(), api_name=op)
    return rule(given).compare()


def compare(n):
    """(standard, dtype) -> cases, agreements, passes."""
    made, found, odd = comparator(), {}, 0

    def note(standard, dtype, seed, got, want):
        nonlocal odd
        cell = found.setdefault((standard, str(dtype)), [0, 0, 0])
        cell[0] += 1
        cell[1] += got == want
        cell[2] += want == "pass"
        if got != want and odd < 8:
            odd += 1
            print(f"{standard} {dtype} seed {seed}: {got}, the peer says {want}")

    for seed in range(n):
        for dtype in (*FLOATS, torch.float64):
            device, native, truth, yardstick = float_operands(seed, dtype)
            raised = yardstick if dtype.itemsize == 2 else truth
            given = {"reference": truth, "yardstick": yardstick}
            if device.numel() == 0:
                continue
            got = opinion("ascend-v1", device, **given)["status"]
            note("ascend-v1", dtype, seed, got, first_stage(made, device, raised))
            if dtype == torch.float64:
                continue
            op = OPS[seed // len(OPS) % len(OPS)]
            for standard in ("ascend-absolute", "ascend-ulp", "ascend-benchmark"):
                got = opinion(standard, device, benchmark=native, op=op, **given)["status"]
                note(standard, dtype, seed, got, second_stage(standard, device, native, raised, op))
        for dtype in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool):
            device, native = integer_operands(seed, dtype)
            got = opinion("ascend-v1", device, native=native)["status"]
            note("ascend-v1", dtype, seed, got, first_stage(made, device, native))
    return found


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    with np.errstate(all="ignore"):
        found = compare(n)
    for (standard, dtype), (cases, agree, passed) in sorted(found.items()):
        print(f"{standard:18} {dtype:16} {agree:5} of {cases} agree; the peer passes {passed}")
    return int(any(agree < cases for cases, agree, _ in found.values()))


if __name__ == "__main__":
    sys.exit(main())
