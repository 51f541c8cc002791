# SPDX-License-Identifier: Apache-2.0
"""References that cast to float32 themselves are computed in float64 throughout, without a registration."""

import ctypes
import subprocess

import numpy as np
import pytest
import torch
from calls import judged

import lifted_operators as lifted
import ulpscope
from ulpscope import testing
from ulpscope.compat.ditorch import op_tools

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
EPS = 1e-6


def inputs(dtype, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(48, 160, generator=draw), torch.rand(160, generator=draw) + 0.5
    return x.to(dtype), weight.to(dtype)


def right(x, weight, eps=EPS):
    """As an honest device computes it, in another order."""
    wide = x.float()
    size = torch.stack([part.pow(2).sum(-1) for part in wide.split(16, -1)]).sum(0) / x.shape[-1]
    return (wide / (size + eps).sqrt()[:, None] * weight.float()).to(x.dtype)


def operator(name):
    return getattr(torch.ops.lifted, name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", lifted.NAMES)
def test_an_operator_that_casts_is_judged(name, dtype):
    """Given alone, as a call of a trace, and as the reference of another function."""
    x, weight = inputs(dtype)
    made, bad = right(x, weight), lifted.coarse(x, weight, EPS)
    for given, verdict in ((made, "pass"), (bad, "reduced")):
        found = ulpscope.judge_call(operator(name), (x, weight, EPS), {}, given, cause=False)
        assert found.verdict == verdict, found.sentence
        kernel = lambda op, args, kwargs, given=given: given  # noqa: E731
        assert judged(kernel, f"lifted::{name}", x, weight, EPS).verdict == verdict
        found = ulpscope.check_call(
            lambda *a, given=given: given.clone(), (x, weight, EPS), reference=operator(name), cause=False
        )
        assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_operator_that_writes_its_result_is_judged(dtype):
    x, weight = inputs(dtype)
    args = (torch.zeros_like(x), x, weight, EPS)
    for given, verdict in ((right(x, weight), "pass"), (lifted.coarse(x, weight, EPS), "reduced")):
        mutated = (given, *args[1:]), {}
        found = ulpscope.judge_call(torch.ops.lifted.rms_norm_out, args, {}, None, mutated=mutated, cause=False)
        assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", lifted.NAMES)
def test_an_operator_inside_of_a_function_is_seen_into(name, dtype):
    def block(x, weight):
        return operator(name)(x, weight, EPS) * 2

    x, weight = inputs(dtype)
    testing.assert_accurate(lambda x, weight: right(x, weight) * 2, block, x, weight)
    found = ulpscope.judge_call(block, (x, weight), {}, lifted.coarse(x, weight, EPS) * 2, cause=False)
    assert found.verdict == "reduced", found.sentence


def test_a_registered_formula_serves_inside_of_a_function(monkeypatch):
    monkeypatch.setattr(ulpscope.executors.registered, "_registered", {})
    library = torch.library.Library("lifted_opaque", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: torch.from_numpy(x.numpy().astype("f2").astype("f4") * 2), "CPU")
    ulpscope.reference.register("lifted_opaque::twice")(lambda x: x * 2)
    x = torch.randn(30, 30)
    block = lambda x: torch.ops.lifted_opaque.twice(x).exp()  # noqa: E731
    assert ulpscope.judge_call(block, (x,), {}, (x * 2).exp(), cause=False).passed
    assert ulpscope.judge_call(block, (x,), {}, (x.half().float() * 2).exp(), cause=False).verdict == "reduced"
    library._destroy()


@pytest.mark.parametrize("tool", [ulpscope.live_check, op_tools.OpAutoCompare])
def test_a_live_check_accuses_what_the_device_rounds(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [n for n in lifted.NAMES if n not in ("rms_norm_custom", "rms_norm_implicit")]  # which have no other kernel
    with tool() as live:
        for dtype in DTYPES:
            x, weight = inputs(dtype)
            for name in names:
                operator(name)(x.to("sim:0"), weight.to("sim:0"), EPS)
        found = live.findings()
    assert {(f.op, f.verdict) for f in found} == {(f"lifted::{n}", "reduced") for n in names}
    assert len(found) == len(names) * len(DTYPES)


def test_two_runs_of_it_are_told_apart(tmp_path):
    for name, device in (("a", "cpu"), ("b", "sim:0")):
        with ulpscope.capture(tmp_path / name):
            for dtype in DTYPES:
                x, weight = (t.to(device) for t in inputs(dtype))
                torch.ops.lifted.rms_norm(x, weight, EPS)
    done = subprocess.run(
        ["ulpscope", "diff", tmp_path / "a", tmp_path / "b", "--import", lifted.__file__],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "lifted::rms_norm" in done.stdout and "reduced" in done.stdout, (
        done.stdout + done.stderr
    )


# ---- what an operator's own kernel rounds ----------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("name", ["rms_norm_between", "rms_norm_between_custom"])
def test_an_operator_may_round_what_its_kernel_rounds(name, dtype):
    x, weight = inputs(dtype)
    answers = {right: "pass"} | {k: "reduced" for k in lifted.BETWEEN.values()} | {lifted.between: "pass"}
    for kernel, verdict in answers.items():
        given = kernel(x, weight, EPS)
        found = ulpscope.judge_call(operator(name), (x, weight, EPS), {}, given, cause=False)
        assert found.verdict == verdict, found.sentence
        on_device = lambda op, args, kwargs, given=given: given  # noqa: E731
        assert judged(on_device, f"lifted::{name}", x, weight, EPS).verdict == verdict
        found = ulpscope.check_call(
            lambda *a, given=given: given.clone(), (x, weight, EPS), reference=operator(name), cause=False
        )
        assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize("tool", [ulpscope.live_check, op_tools.OpAutoCompare])
def test_a_live_check_lets_stand_what_the_kernel_rounds(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tool() as live:
        x, weight = (t.to("sim:0") for t in inputs(torch.bfloat16))
        for name in lifted.BETWEEN:
            operator(name)(x, weight, EPS)
        found = live.findings()
    assert {(f.op, f.verdict) for f in found} == {
        (f"lifted::rms_norm_between_{n}", "reduced") for n in ("mean", "root")
    }


# ---- what rounds on purpose, and what cannot be lifted ---------------------------------


def truncated(x):
    """The first 16 bits of float32."""
    return (x.float().view(torch.int32) & -65536).view(torch.float32)


def in_float8(x):
    return x.to(torch.float8_e4m3fn).float()


# name -> (a function, whose kernel is right, and a kernel that rounds otherwise)
ON_PURPOSE = {
    "a fine grid": (lambda x: torch.round(x.float() * 2**22) / 2**22, lambda x: torch.floor(x.float() * 2**22) / 2**22),
    "a coarser grid": (
        lambda x: torch.round(x.float() * 2**12) / 2**12,
        lambda x: torch.ceil(x.float() * 2**12) / 2**12,
    ),
    "16 bits by truncation": (truncated, lambda x: x.bfloat16().float()),
    "truncation in the middle": (
        lambda x: truncated(x.float() * 3).exp(),
        lambda x: (x.float() * 3).bfloat16().float().exp(),
    ),
    "float8": (in_float8, lambda x: in_float8(x * 1.001)),
    "float8 and back by a scale": (
        lambda x: in_float8(x.float() / 0.37) * 0.37,
        lambda x: (x.float() / 0.37).to(torch.float8_e5m2).float() * 0.37,
    ),
    "8 bits": (
        lambda x: (x.float() * 16).round().clamp(-128, 127).to(torch.int8).float() / 16,
        lambda x: (x.float() * 16).clamp(-128, 127).to(torch.int8).float() / 16,
    ),
    "constants in 16 bits": (
        lambda x: x.float() * torch.full((), 0.1, dtype=torch.bfloat16),
        lambda x: x.float() * 0.1,
    ),
    "a constant in float32": (
        lambda x: x.float() * torch.tensor(1e-3, dtype=torch.float32),
        lambda x: x.float() * 1.0005e-3,
    ),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ON_PURPOSE)
def test_what_rounds_on_purpose_is_held_to_it(name, dtype):
    function, otherwise = ON_PURPOSE[name]
    x = inputs(dtype)[0] + (2.0**-7 if dtype == torch.float32 else 0)
    if dtype == torch.bfloat16 and "16 bits by" in name:
        x = x.float()
    found = ulpscope.judge_call(function, (x,), {}, function(x), cause=False)
    assert found.verdict == "pass", found.sentence
    if not torch.equal(otherwise(x), function(x)):
        found = ulpscope.judge_call(function, (x,), {}, otherwise(x), cause=False)
        assert found.verdict in ("wrong", "reduced"), found.sentence


def test_ties_to_a_float8_are_decided():
    x = (torch.randint(8, 16, (64, 64)) + 0.5) / 8 * torch.exp2(torch.randint(-2, 3, (64, 64)))
    assert ulpscope.judge_call(in_float8, (x,), {}, in_float8(x), cause=False).passed
    away = in_float8(x * 1.0001)
    assert ulpscope.judge_call(in_float8, (x,), {}, away, cause=False).verdict == "wrong"


def by_raw_bytes(x):
    """As a kernel in C++ that casts and then takes the tensor's memory for floats."""
    wide = x.to(torch.float32).contiguous()
    made = torch.empty_like(wide)
    room = (ctypes.c_char * (wide.numel() * 4)).from_address
    read = np.frombuffer(room(wide.data_ptr()), dtype=np.float32)
    with np.errstate(all="ignore"):  # it may read what is no number
        np.frombuffer(room(made.data_ptr()), dtype=np.float32)[:] = np.exp(read)
    return made.to(x.dtype)


def by_checked_bytes(x):
    """The same by a pointer that asks what it points to."""
    wide = x.to(torch.float32)
    if wide.untyped_storage().nbytes() != 4 * x.numel():
        raise RuntimeError("expected scalar type Float but found Double")
    return torch.from_numpy(np.exp(wide.numpy())).to(x.dtype)


def by_numpy(x):
    return torch.from_numpy(np.exp(x.float().numpy().astype(np.float32))).to(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", [by_raw_bytes, by_checked_bytes, by_numpy])
def test_what_cannot_be_lifted_says_so_and_what_to_do(kernel, dtype):
    library = torch.library.Library("lifted_raw", "DEF")
    library.define("exp(Tensor x) -> Tensor")
    library.impl("exp", kernel, "CPU")
    x = inputs(dtype)[0]
    try:
        for reason in (
            ulpscope.judge_call(torch.ops.lifted_raw.exp, (x,), {}, x.exp(), cause=False).sentence,
            judged(lambda op, args, kwargs: x.exp(), "lifted_raw::exp", x).reason,
        ):
            assert "rounds to float32 inside" in reason, reason
            assert '@ulpscope.reference.register("lifted_raw::exp")' in reason
    finally:
        library._destroy()
