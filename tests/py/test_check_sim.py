# SPDX-License-Identifier: Apache-2.0
"""Check against the simulated device: honest it passes, and each planted fault is found in
the operator that has it, with its cause."""

import subprocess
from pathlib import Path

import pytest
from calls import make_call
from test_check_causes import demo, rms_norm  # noqa: F401 - registers check_demo::rms_norm
from test_check_verdicts import HONEST, adamw, randn, seeded  # noqa: F401

from traces import small_trace

import ulpscope.sim as sim
from ulpscope.executors.device import TorchDevice
from ulpscope.session.judging import judge_call


def verdict_of(op, *args, **kwargs):
    return judge_call(make_call(op, *args, **kwargs), TorchDevice("sim:0"))


@pytest.mark.parametrize("name", HONEST)
def test_honest_device_passes(name):
    verdict = verdict_of(*HONEST[name]())
    assert verdict.verdict == "pass", (verdict.reason, verdict.worst)


@pytest.mark.parametrize(
    "kind, cause",
    [
        ("tf32", "inputs rounded to TF32 or float16"),
        ("bf16_inputs", "inputs rounded to bfloat16"),
        ("bf16_output", "result rounded to bfloat16"),
        ("fp16_output", "result rounded to TF32 or float16"),
        ("truncate", "the last 8 bits of the result are cut off (truncated instead of rounded)"),
        ("scale", "the result is multiplied by 1.01"),
        ("nan", "one element is NaN: spurious NaN"),
        ("zero_one", "one element is zero"),
        ("bit_flip", "bit 20 of one element flipped"),
        ("swap_two", "elements 0 and 1 change places (exchanged)"),
        ("drop_tail", "the last element is zero"),
    ],
)
def test_planted_fault_is_named(kind, cause):
    arguments = randn(48, 64), randn(64, 32)
    with sim.fault("aten::mm", kind):
        verdict = verdict_of("aten::mm", *arguments)
        assert verdict_of("aten::gelu", randn(100)).verdict == "pass"
    assert verdict.verdict in ("reduced", "wrong", "nonfinite")
    assert verdict.cause.partition("; off only")[0] == cause


def test_second_step_of_the_fused_optimizer():
    arguments, keywords = adamw()
    with sim.fault("aten::_fused_adamw_", "step_plus_one"):
        verdict = verdict_of("aten::_fused_adamw_", *arguments, **keywords)
    assert verdict.cause == "adds 1 to the step count a second time"


def test_rounded_intermediates_of_a_custom_operator():
    arguments = randn(32, 64), randn(64), 1e-6
    assert verdict_of("check_demo::rms_norm", *arguments).verdict == "pass"
    with sim.fault("check_demo::rms_norm", "bf16_intermediates"):
        verdict = verdict_of("check_demo::rms_norm", *arguments)
    assert (verdict.verdict, verdict.cause) == ("reduced", "intermediates rounded to bfloat16")


def test_every_kind_of_fault_is_documented():
    text = (Path(__file__).parents[2] / "docs/reference/faults.md").read_text()
    assert [k for k, said in sim.fault_kinds().items() if f"| `{k}` | {said} |" not in text] == []


def test_a_fault_that_fired_at_no_call_is_told(tmp_path):
    trace, out = small_trace(tmp_path / "trace", 1), tmp_path / "out"
    run = subprocess.run(
        [
            "ulpscope",
            "check",
            str(trace),
            "--device",
            "sim:0",
            "-o",
            str(out),
            "-j",
            "1",
            "--faults",
            "mm:scale; softmax:nan;gelu:crash:nth=1",
            "--ops",
            "mm,gelu",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 1, run.stderr
    assert "planted, but fired at no call: softmax:nan\n" in run.stderr
    command = ["ulpscope", "check", str(trace), "--device", "sim:0", "-o", str(out), "-j", "1", "--force"]
    for faults, ops, code in (("gelu:tf32", "mm", 2), ("", "mm", 0)):  # what was asked for was not tried: no 0
        run = subprocess.run([*command, "--faults", faults, "--ops", ops], capture_output=True, text=True, timeout=120)
        assert run.returncode == code and ("fired at no call: gelu:tf32" in run.stdout) == bool(code), run.stdout
    command = ["ulpscope", "report", out, "--baseline", out / "result.json"]
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2 and "is what this run found" in again.stderr
