# SPDX-License-Identifier: Apache-2.0
"""Standards by name: each rule against the peer's own code where torch has it, else
against a slow definition in numpy. Operands: random, special and almost equal values in
every dtype, strided as well. Each comparison has a planted error that it must see."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter

import numpy as np
import pytest
import torch
from standards_by_numpy import (
    FLOATS,
    INTEGERS,
    absolute_by_numpy,
    ascend_ulp_by_numpy,
    benchmark_by_numpy,
    both,
    cosine_by_numpy,
    float_operands,
    ggml_by_numpy,
    integer_operands,
    neuron_by_numpy,
    ulps_by_numpy,
    v1_by_numpy,
)
from test_check_run import check
from torch._dynamo.utils import same
from traces import small_trace

import ulpscope
from ulpscope import _core
from ulpscope.judges import standards
from ulpscope.calls.verdicts import FLAGGED


def opinion(name, device, **operands):
    return _core.Standard(name).judge(device, **operands)


def passes(name, device, **operands):
    verdict = opinion(name, device, **operands)["verdict"]
    assert verdict in ("pass", "wrong")
    return verdict == "pass"


# ---- against torch -------------------------------------------------------------------


def assert_close_says(a, b):
    try:
        torch.testing.assert_close(a, b)
        return True
    except AssertionError:
        return False


PEERS = {
    "torch-close": assert_close_says,
    "allclose:1e-3,1e-3": lambda a, b: torch.allclose(a, b, atol=1e-3, rtol=1e-3),
    "allclose:1e-8,1e-5": lambda a, b: torch.allclose(a, b, atol=1e-8, rtol=1e-5),
    "allclose:0,0.01": lambda a, b: torch.allclose(a, b, atol=0, rtol=0.01),
    "allclose:0,0": lambda a, b: torch.allclose(a, b, atol=0, rtol=0),
    "kernelbench": lambda a, b: torch.allclose(
        b, a, **dict.fromkeys(("atol", "rtol"), 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-4)
    ),
}


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("name", PEERS)
def test_closeness_is_torch_s(name, dtype):
    found = []
    for seed in range(210):
        make = float_operands if dtype.is_floating_point else integer_operands
        device, native = make(seed, dtype)[:2]
        want = PEERS[name](device, native)
        assert passes(name, device, native=native) == want, (seed, device, native)
        found.append(want)
    both(210, found)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_closeness_is_torch_s_on_the_edge(dtype):
    """Pairs whose distance is the tolerance to the last bit, one by one."""
    gen = torch.Generator().manual_seed(1)
    b = (torch.rand(4000, generator=gen, dtype=torch.float64) * 4 - 2).to(dtype)
    a = (b.double() * (1 + 1e-3) + 1e-3 * b.double().sign()).to(dtype)
    want = torch.isclose(a, b, atol=1e-3, rtol=1e-3)
    got = [passes("allclose:1e-3,1e-3", x, native=y) for x, y in zip(a, b)]
    assert got == want.tolist()
    both(4000, got)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_inductor_same_is_torch_dynamo_s(dtype):
    found = []
    for seed in range(210):
        if dtype.is_floating_point:
            device, native, truth, _ = float_operands(seed, dtype)
        else:
            (device, native), truth = integer_operands(seed, dtype), None
        for tol in (1e-4, 3e-2):
            want = same(native, device, truth, tol=tol, log_error=lambda *a, **k: None)
            name = "inductor-same" if tol == 1e-4 else f"inductor-same:{tol}"
            got = passes(name, device, native=native, reference=truth)
            assert got == want, (seed, tol, device, native, truth)
            found.append(want)
    both(420, found)


def test_a_float32_reference_is_no_float64_one():
    """`same` looks at the RMSE only where it has a float64 reference."""
    truth = torch.linspace(1, 2, 5000, dtype=torch.float64)
    native, device = truth.float() * (1 + 1e-3), truth.float() * (1 - 1e-3)
    assert passes("inductor-same", device, native=native, reference=truth)
    assert not passes("inductor-same", device, native=native, reference=truth.float())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_ulp_is_numpy_s(dtype):
    found = []
    for seed in range(210):
        device, _, truth, _ = float_operands(seed, dtype)
        for k in (0, 1, 64):
            rounded = truth.numpy().astype(device.numpy().dtype)  # torch rounds twice to float16
            want = ulps_by_numpy(device, torch.from_numpy(np.array(rounded)), k)
            got = passes(f"ulp:{k}", device, reference=truth)
            assert got == want, (seed, k, device, truth)
            found.append(want)
    both(630, found)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz])
def test_float8_must_be_equal_or_near(dtype):
    truth = torch.tensor([1.0, -2.0, 0.0, 8.0], dtype=torch.float64)
    native = truth.to(dtype)
    raw = native.view(torch.uint8).clone()
    raw[1] += 2
    device = raw.view(dtype)
    assert passes("torch-close", native, native=native.clone())
    assert not passes("torch-close", device, native=native)
    assert opinion("ulp:1", device, reference=truth)["metrics"]["max_ulp"] == 2
    assert not passes("bitwise", device, native=native)
    nan = torch.tensor([math.nan] * 4, dtype=torch.float64)
    assert passes("ulp:0", nan.to(dtype), reference=nan)
    assert not passes("ulp:1", nan.to(dtype), reference=truth)


def test_ulp_counts_bfloat16_places():
    truth = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64)
    raw = truth.bfloat16().view(torch.int16) + torch.tensor([0, 3, 1], dtype=torch.int16)
    found = opinion("ulp:2", raw.view(torch.bfloat16), reference=truth)
    assert found["metrics"] == {"max_ulp": 3.0, "beyond": 1.0}
    assert found["verdict"] == "wrong"


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_bitwise_is_about_bytes(dtype):
    found = []
    for seed in range(60):
        make = float_operands if dtype.is_floating_point else integer_operands
        device, native = make(seed, dtype)[:2]
        want = (
            device.contiguous().numpy(force=True).tobytes()
            if dtype != torch.bfloat16
            else (device.contiguous().view(torch.int16).numpy().tobytes())
        )
        have = (
            native.contiguous().numpy(force=True).tobytes()
            if dtype != torch.bfloat16
            else (native.contiguous().view(torch.int16).numpy().tobytes())
        )
        assert passes("bitwise", device, native=native) == (want == have)
        assert passes("bitwise", device, native=device.clone())
        found.append(want == have)
    assert not all(found)


def test_minus_zero_has_other_bits_and_the_same_value():
    zero, minus = torch.zeros(3), -torch.zeros(3)
    assert not passes("bitwise", minus, native=zero)
    assert passes("torch-close", minus, native=zero)
    assert passes("ulp:0", minus, reference=zero)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS)
def test_cosine(dtype):
    found = []
    for seed in range(210):
        device, _, truth, _ = float_operands(seed, dtype)
        want = cosine_by_numpy(device, truth)
        got = opinion("cosine:0.9", device, reference=truth)
        assert got["metrics"]["cosine"] == pytest.approx(want, abs=1e-12, nan_ok=True)
        assert (got["verdict"] == "pass") == (got["metrics"]["cosine"] >= 0.9)
        found.append(got["verdict"] == "pass")
    both(210, found)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS)
def test_ggml_nmse(dtype):
    found = []
    for seed in range(210):
        device, native = float_operands(seed, dtype)[:2]
        for op, limit in (("aten::add.Tensor", 1e-7), ("aten::mm", 5e-4), (None, 1e-7)):
            want = ggml_by_numpy(device, native, limit)
            assert passes("ggml-nmse", device, native=native, op=op) == want, (seed, op)
            found.append(want)
    both(630, found)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS)
def test_neuron_3way(dtype):
    found = []
    for seed in range(210):
        device, native, truth, yardstick = float_operands(seed, dtype)
        raised = yardstick if dtype.itemsize == 2 else truth
        want = neuron_by_numpy(device, native, raised)
        got = opinion("neuron-3way", device, native=native, reference=truth, yardstick=yardstick)
        assert (got["verdict"] == "pass") == want, (seed, got)
        found.append(want)
    both(210, found)


# ---- names and misuse ----------------------------------------------------------------


def test_every_standard_is_listed_with_what_it_needs():
    listed = {name: (parameters, needs) for name, parameters, _, needs in _core.standards}
    assert next(iter(listed)) == "ulpscope" and len(listed) == 14
    assert listed["allclose"] == (":ATOL,RTOL", ("native",))
    assert listed["ascend-benchmark"][1] == ("reference", "yardstick", "benchmark")
    for name in standards.COMPARED:
        standard = _core.Standard(name)
        assert standard.name == name and standard.needs == listed[name.split(":")[0]][1]
    assert {n.split(":")[0] for n in standards.COMPARED} == listed.keys() - {"ulpscope"}


@pytest.mark.parametrize(
    "text, says",
    [
        ("nonsense", "no standard is named 'nonsense'; known: ulpscope, ascend-v1, "),
        ("allclose", "it is written allclose:ATOL,RTOL"),
        ("allclose:1", "it is written allclose:ATOL,RTOL"),
        ("allclose:1,2,3", "it is written allclose:ATOL,RTOL"),
        ("ulp:-1", "it is written ulp:K, with numbers from 0 on"),
        ("ulp:x", "it is written ulp:K"),
        ("ulp:nan", "it is written ulp:K"),
        ("torch-close:1", "it is written torch-close"),
        ("inductor-same:", "it is written inductor-same[:TOL]"),
        ("ulp:" + "9" * 80, "it is written ulp:K"),
    ],
)
def test_a_bad_name_says_what_is_known(text, says):
    with pytest.raises(_core.ArgError, match=re.escape(says)):
        _core.Standard(text)


def test_what_is_missing_is_told_or_stood_in_for():
    x = torch.tensor([1.0, 2.0], dtype=torch.float16)
    with pytest.raises(_core.ArgError, match="nothing to compare with"):
        opinion("torch-close", x)
    with pytest.raises(_core.UnsupportedError, match="usc_judge"):
        opinion("ulpscope", x, reference=x.double())
    found = opinion("torch-close", x, reference=x.double())
    assert found["verdict"] == "pass"
    assert found["stand_in"] == "reference rounded to float16 in place of native"
    found = opinion("ascend-benchmark", x, reference=x.double(), yardstick=x.float())
    assert found["stand_in"] == "yardstick rounded to float16 in place of benchmark"


def test_another_form_is_wrong_and_no_error():
    x = torch.ones(3, 4)
    for name in standards.COMPARED:
        turned = dict.fromkeys(("reference", "native", "yardstick", "benchmark"), x.T)
        found = opinion(name, x, **turned)
        assert found["verdict"] == "wrong" and "shape" in found["reason"], name
        assert found["status"] == ("error" if "ascend" in name else "fail")
    assert "dtype" in opinion("torch-close", x, native=x.double())["reason"]
    assert opinion("bitwise", x.int(), native=x)["verdict"] == "wrong"


def test_nothing_is_there_and_passes():
    x = torch.empty(0, 3)
    for name in standards.COMPARED:
        given = dict.fromkeys(("reference", "native", "yardstick", "benchmark"), x)
        assert opinion(name, x, **given)["verdict"] == "pass"


def test_the_caller_s_float_mode_does_not_matter():
    """Subnormal errors count although the thread flushes them."""
    x, truth = torch.tensor([1e-40, 2e-40]), torch.tensor([1e-40, 3e-40]).double()
    with_modes = []
    for flush in (False, True):
        torch.set_flush_denormal(flush)
        try:
            with_modes.append(opinion("ulp:1", x, reference=truth))
        finally:
            torch.set_flush_denormal(False)
    assert with_modes[0] == with_modes[1] and with_modes[0]["verdict"] == "wrong"


# ---- in judge_call -------------------------------------------------------------------


def linear_operands():
    gen = torch.Generator().manual_seed(3)
    return torch.randn(8, 64, generator=gen), torch.randn(32, 64, generator=gen)


def test_judge_call_by_another_standard():
    args = linear_operands()
    good = torch.nn.functional.linear(*args)
    bad = good.clone()
    bad[3, 4] += 1
    linear = torch.nn.functional.linear
    for name in standards.COMPARED:
        if name in ("ulp:1", "ascend-absolute"):  # honest float32 does not meet these
            continue
        verdict = ulpscope.judge_call(linear, args, outputs=good, standard=name)
        assert (verdict.verdict, verdict.standard, verdict.status) == ("pass", name, "pass")
        assert verdict.passed and verdict.outputs[0].metrics
        assert f"{name} says pass" in verdict.sentence and math.isnan(verdict.effective_bits)
    verdict = ulpscope.judge_call(linear, args, outputs=bad, standard="torch-close")
    assert verdict.verdict == "wrong" and verdict.status == "fail"
    assert verdict.sentence.startswith("linear is wrong: torch-close says fail, 1 of 256")
    assert verdict.outputs[0].metrics["mismatched"] == 1
    verdict = ulpscope.judge_call(linear, args, outputs=good, standard="ulpscope")
    assert verdict.standard == "ulpscope" and verdict.effective_bits > 18


def test_a_known_blind_spot_is_kept():
    """One wrong element among many: cosine passes what our rule does not."""
    args = linear_operands()
    bad = torch.nn.functional.linear(*args)
    bad[3, 4] += 1
    linear = torch.nn.functional.linear
    assert ulpscope.judge_call(linear, args, outputs=bad, standard="cosine:0.99").passed
    assert not ulpscope.judge_call(linear, args, outputs=bad).passed


def test_the_worst_output_decides():
    def two(x):
        return x * 2, x + 1

    x = torch.arange(6.0)
    verdict = ulpscope.judge_call(two, (x,), outputs=(x * 2, x + 2), standard="allclose:0,0")
    assert verdict.sentence == (
        "two is wrong: allclose:0,0 says fail, 6 of 6 elements beyond atol 0 and rtol 0 in out[1]"
    )
    assert [o.verdict for o in verdict.outputs] == ["pass", "wrong"]
    assert [o.status for o in verdict.outputs] == ["pass", "fail"]
    verdict = ulpscope.judge_call(two, (x,), outputs=(x * 2,), standard="ascend-v1")
    assert verdict.verdict == "wrong" and "1 outputs where the operator has 2" in verdict.sentence


def test_a_second_device_is_an_operand():
    args = linear_operands()
    linear = torch.nn.functional.linear
    good = linear(*args)
    rough = (good.double() * (1 + 1e-3 * torch.sign(good).double())).float()
    strict = ulpscope.judge_call(linear, args, outputs=rough, standard="ascend-benchmark")
    lenient = ulpscope.judge_call(linear, args, outputs=rough, standard="ascend-benchmark", benchmark=rough)
    assert strict.verdict == "wrong" and "yardstick in place of benchmark" in strict.sentence
    assert lenient.verdict == "pass" and "in place of" not in lenient.sentence


def test_what_no_standard_can_judge_is_unjudged():
    x = torch.ones(64)
    verdict = ulpscope.judge_call(torch.nn.functional.dropout, (x,), outputs=x, standard="ulp:0")
    assert verdict.verdict == "unjudged" and "draws random numbers" in verdict.sentence
    low = x.to(torch.float8_e4m3fn)
    for name in ("allclose:1,1", "kernelbench", "inductor-same", "ascend-v1", "ascend-ulp"):
        verdict = ulpscope.judge_call(torch.clone, (low,), outputs=low, standard=name)
        assert verdict.verdict == "unjudged" and "float8" in verdict.sentence
    with pytest.raises(ValueError, match="no standard is named 'foo'"):
        ulpscope.judge_call(torch.sin, (x,), outputs=x, standard="foo")


# ---- in check ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return small_trace(tmp_path_factory.mktemp("standards") / "trace", 2)


def results(out):
    return json.loads((out / "result.json").read_text())


def test_check_by_another_standard(trace, tmp_path):
    run = check(trace, tmp_path / "a", "--standard", "ascend-v1", fault="mm=scale")
    report = results(tmp_path / "a")
    assert report["run"]["standard"] == "ascend-v1" and " by ascend-v1" in " ".join(run.stdout.split())
    assert {c["verdict"] for c in report["calls"]} <= {"pass", "wrong", "unjudged"}
    metrics = [m for m in report["calls"][0]["metrics"] if m["name"] == "standard:ascend-v1"]
    assert metrics[0]["value"]["status"] in ("pass", "warning", "error")
    assert "misses" not in run.stdout  # one standard is compared with nothing
    again = check(trace, tmp_path / "a")  # our own rule is another run
    assert again.returncode == 2 and "its standard is 'ascend-v1'" in again.stderr


def test_check_refuses_a_standard_that_is_none(trace, tmp_path):
    run = check(trace, tmp_path / "a", "--standard", "allclose")
    assert run.returncode == 2 and "it is written allclose:ATOL,RTOL" in run.stderr
    assert not (tmp_path / "a").exists()


def test_check_compares_standards(trace, tmp_path):
    run = check(trace, tmp_path / "a", "--compare-standards", fault="mm=scale")
    report = results(tmp_path / "a")
    assert run.returncode == 1
    names = {s["name"] for s in report["summary"]["standards"]}
    assert names == set(standards.COMPARED)
    for one in report["summary"]["standards"]:
        assert one["accuses"] + one["passes"] + one["unjudged"] == len(report["calls"])
    said = Counter()
    for call in report["calls"]:
        ours = call["verdict"]
        for m in call["metrics"]:
            if m["name"].startswith("standard:"):
                name, verdict = m["name"].removeprefix("standard:"), m["value"]["verdict"]
                said[name, "misses"] += ours in FLAGGED and verdict == "pass"
                said[name, "extra"] += ours == "pass" and verdict == "wrong"
    for one in report["summary"]["standards"]:
        for column in ("misses", "extra"):
            assert one[column] == said[one["name"], column]
    assert "accused by" in run.stdout and "unjudged   of 8 calls" in run.stdout
    with open(tmp_path / "a" / "result.csv", newline="") as file:
        rows = {int(row["call"]): row for row in csv.DictReader(file)}
    for call in report["calls"]:
        said = {
            m["name"].removeprefix("standard:"): m["value"]["verdict"]
            for m in call["metrics"]
            if m["name"].startswith("standard:")
        }
        assert call["standards"] == said
        assert {name: rows[call["call"]][name] for name in said} == said


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS)
def test_ascend_v1(dtype):
    found = Counter()
    for seed in range(300):
        device, _, truth, yardstick = float_operands(seed, dtype)
        want = v1_by_numpy(device, yardstick if dtype.itemsize == 2 else truth)
        got = opinion("ascend-v1", device, reference=truth, yardstick=yardstick)
        assert got["status"] == want, (seed, got)
        assert (got["verdict"] == "pass") == (want == "pass")
        found[want] += 1
    assert all(found[s] for s in ("pass", "error", "warning")), found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_ascend_absolute_ulp_and_benchmark(dtype):
    found = Counter()
    for seed in range(300):
        device, native, truth, yardstick = float_operands(seed, dtype)
        raised, op = yardstick if dtype.itemsize == 2 else truth, ("add", "embedding", "mm")[seed % 3]
        want = {
            "ascend-absolute": absolute_by_numpy(device, raised),
            "ascend-ulp": ascend_ulp_by_numpy(device, native, raised),
            "ascend-benchmark": benchmark_by_numpy(device, native, raised, op),
        }
        for name, status in want.items():
            got = opinion(name, device, reference=truth, yardstick=yardstick, benchmark=native, op=op)
            assert got["status"] == status, (seed, name, got)
            found[name, status] += 1
    assert len(found) == 6 and min(found.values()) > 10, found


def test_known_defects_of_the_ascend_rules_are_kept():
    honest = torch.randn(4000, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    low = honest.bfloat16()
    found = opinion("ascend-v1", low, reference=honest, yardstick=honest.float())
    assert found["status"] == "warning"  # a correctly rounded bfloat16 tensor
    spoilt = honest.half()
    spoilt[7] = math.nan
    found = opinion("ascend-v1", spoilt, reference=honest, yardstick=honest.float())
    assert found["status"] == "pass"  # one NaN among 4000
    assert opinion("ascend-v1", low.to(torch.int16), native=low.to(torch.int16))["status"] == "error"
    for name in ("ascend-absolute", "ascend-ulp", "ascend-benchmark"):
        assert opinion(name, honest, reference=honest)["verdict"] == "unjudged"
