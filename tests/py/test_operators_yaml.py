# SPDX-License-Identifier: Apache-2.0
"""Operators from YAML (`ulpscope ops`): examples/operators, generated, built and loaded as its readme says; each kind
forward, in place, out=, backward; planted faults meet them, and what is not defined is said by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import schemas
import ulpscope.extension as extension
import ulpscope.sim
from ulpscope.testing import assert_accurate

ROOT = Path(__file__).resolve().parents[2]
CLI = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")) / "bin" / "ulpscope"
EXAMPLE = ROOT / "examples" / "operators"
SOURCES = [str(word) for name in ("kernels.cu", "functions.cpp") for word in ("--source", EXAMPLE / name)]


def ops(*words, code=0):
    done = subprocess.run([CLI, "ops", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(same_place):
    made = same_place / "op erators" / "büild"
    made.parent.mkdir()
    ops("gen", EXAMPLE / "ops.yaml", *SOURCES, "-o", made)
    extension.load_operators(made)
    return made


def test_a_model_trains_with_them_as_on_the_cpu(folder):
    def losses(device, **more):
        done = subprocess.run(
            [sys.executable, EXAMPLE / "train.py", device], capture_output=True, text=True, env={**os.environ, **more}
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return [float(line.split()[1]) for line in done.stdout.splitlines()]

    on_sim, on_cpu = losses("sim", ULPSCOPE_SIM_OPS=str(folder)), losses("cpu")
    assert len(on_cpu) == 20 and on_cpu[-1] < 0.9 * on_cpu[0]
    torch.testing.assert_close(torch.tensor(on_sim), torch.tensor(on_cpu), rtol=1e-5, atol=0)


CASES = {
    "tril": lambda x: torch.tril(x, -1),
    "tril, batches": lambda x: torch.tril(x.reshape(2, 5, 6), 2),
    "tril, strides": lambda x: torch.tril(x.t()),
    "tril_": lambda x: x.tril_(1),
    "tril_, strides": lambda x: x.t().tril_(),
    "tril.out": lambda x: torch.tril(x, out=torch.empty(0, device=x.device)),
    "tril.out, strides": lambda x: torch.tril(x, out=torch.empty(12, 5, device=x.device).t()),
    "triu": lambda x: torch.triu(x, 1),
    "triu_": lambda x: x.triu_(),
    "triu.out": lambda x: torch.triu(x, 2, out=torch.empty(5, 12, device=x.device)),
    "lerp": lambda x: torch.lerp(x, 2 * x, 0.3),
    "lerp, broadcast": lambda x: torch.lerp(x, x[0], 0.7),
    "lerp_": lambda x: x.lerp_(x.cos(), 0.9),
    "lerp.out": lambda x: torch.lerp(x, x + 1, 0.5, out=torch.empty(5, 12, device=x.device)),
    "add": lambda x: torch.add(x, x[:1], alpha=2),
    "add_": lambda x: x.add_(1),
    "add.out": lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)),
    "isnan": lambda x: torch.isnan(x / (x - x[0, 0])),
    "nonzero": lambda x: torch.nonzero(x > 0),
    "view_as_real": lambda x: torch.view_as_real(torch.complex(x, -x)),
    "empty": lambda x: torch.tril(x[:0]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_kind_computes_what_the_cpu_does(folder, case):
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    on_cpu, on_sim = CASES[case](x.clone()), CASES[case](x.to("sim"))
    assert on_sim.device.type == "sim" and on_sim.stride() == on_cpu.stride()
    if "lerp" in case:  # the CPU's is vectorised, and fuses steps
        torch.testing.assert_close(on_sim.cpu(), on_cpu)
    else:
        assert torch.equal(on_sim.cpu(), on_cpu)


def test_what_out_and_in_place_refuse(folder):
    x = torch.randn(4, 4).to("sim")
    with pytest.raises(RuntimeError, match="dtype"):
        torch.tril(x, out=torch.empty(4, 4, dtype=torch.float64, device="sim"))
    with pytest.raises(RuntimeError, match="Expected out tensor to have device"):
        torch.tril(x, out=torch.empty(4, 4))


def test_a_new_operator_has_its_gradient(folder):
    x = torch.randn(300, generator=torch.Generator().manual_seed(1))
    assert_accurate(torch.ops.mine.swish, lambda x, beta: x * torch.sigmoid(beta * x), x.to("sim"), 1.5)
    on_cpu, on_sim = x.clone().requires_grad_(), x.to("sim").requires_grad_()
    (on_cpu * torch.sigmoid(0.5 * on_cpu)).square().sum().backward()
    torch.ops.mine.swish(on_sim, 0.5).square().sum().backward()
    torch.testing.assert_close(on_sim.grad.cpu(), on_cpu.grad)
    with pytest.raises(RuntimeError, match="derivative for mine::swish_backward is not implemented"):
        torch.ops.mine.swish_backward(x.to("sim"), on_sim, 0.5).sum().backward()


@pytest.mark.parametrize("op", ["aten::tril", "aten::isnan", "mine::swish", "aten::add_.Tensor", "aten::lerp.Scalar"])
def test_planted_faults_meet_them(folder, op):
    calls = {
        "aten::tril": torch.tril,
        "aten::isnan": torch.isnan,
        "mine::swish": torch.ops.mine.swish,
        "aten::add_.Tensor": lambda x: x.add_(1),
        "aten::lerp.Scalar": lambda x: torch.lerp(x, x + 1, 0.5),
    }
    x = torch.ones(6, 6).tril().to("sim")
    honest = calls[op](x.clone()).cpu()
    with ulpscope.sim.fault(op, "scale", factor=3):
        spoiled = calls[op](x.clone()).cpu()
    assert ulpscope.sim.faults_fired() == [] and (op == "aten::isnan") == torch.equal(honest, spoiled)  # all false
    with ulpscope.sim.fault(op, "lacking"), pytest.raises(NotImplementedError, match="no such operator"):
        calls[op](x.clone())


def test_a_fault_of_inputs_is_one_of_the_iterators_too(folder):
    x = torch.full((8,), 1 + 2**-20).to("sim")
    with ulpscope.sim.fault("aten::lerp.Scalar", "tf32"):
        assert torch.equal(torch.lerp(x, x, 0.5).cpu(), torch.ones(8))


def test_the_same_input_gives_the_same_files_and_touches_none(folder, tmp_path):
    files = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir() if path.is_file()}
    ops("gen", EXAMPLE / "ops.yaml", *SOURCES, "-o", folder)
    assert files == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_kernel_that_nobody_defines_is_named(tmp_path):
    (tmp_path / "ops.yaml").write_text("- func: nonzero\n  dispatch: {PrivateUse1: Missing}\n")
    ops("gen", tmp_path / "ops.yaml", "-o", tmp_path / "made")
    with pytest.raises(extension.ExtensionError, match=r"no source defines at::sim::Missing\(at::Tensor const&\)"):
        extension.load_operators(tmp_path / "made")
    with pytest.raises(extension.ExtensionError, match="holds no operators"):
        extension.load_operators(tmp_path)
    said = ops("gen", tmp_path / "ops.yaml", "-o", tmp_path / "more", "--source", EXAMPLE / "functions.cpp", code=1)
    assert "ops.yaml:2:27: no source defines the kernel Missing of nonzero" in said and not (tmp_path / "more").exists()


def test_all_of_this_torch_in_the_manuals_format(tmp_path):
    """Each operator that a device may have, in one file: accepted, each with its kind, what is unknown left out."""
    native = next(Path(torch.__file__).parent.parent.glob("torchgen/packaged/ATen/native/native_functions.yaml"))
    entries = re.split(r"\n(?=- func: )", native.read_text())[1:]
    lines = ["- func: of_another_torch"]
    for entry in entries:
        name = entry[len("- func: ") : entry.index("(")]
        lines.append(f"- func: {name}")
        if "structured: True" in entry or ("structured_delegate" not in entry and "  dispatch:" in entry):
            kernel = re.sub(r"\W", "_", name)
            lines.append(f"  dispatch:\n    PrivateUse1: K{kernel}")
        elif "structured_delegate" not in entry:
            lines.pop()
    (tmp_path / "all.yaml").write_text("\n".join(lines) + "\n")
    said = ops("check", tmp_path / "all.yaml", "--lenient")
    assert "left out, this torch does not have it: of_another_torch" in said
    assert int(re.search(r"(\d+) operators", said)[1]) > 1200
    ops("gen", tmp_path / "all.yaml", "--lenient", "-o", tmp_path / "made")


def test_what_programs_read(tmp_path):
    schemas.one("ops", ops("check", EXAMPLE / "ops.yaml", "--json"))
    (tmp_path / "ops.yaml").write_text("- func: trill\n- func: of_another_torch\n")
    schemas.one("ops", ops("check", tmp_path / "ops.yaml", "--json", code=1))
    schemas.one("ops", ops("check", tmp_path / "ops.yaml", "--json", "--lenient"))
