# SPDX-License-Identifier: Apache-2.0
"""A model on the simulated device from C++, without Python in the process (examples/deploy): traced, scripted, saved on
either device; built by CMake and by a plain compiler; what is wrong is a sentence and exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ulpscope.extension as extension

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "deploy"
TORCH = Path(torch.__file__).parent
MODELS = ["traced.pt", "scripted.pt", "scripted_on_sim.pt"]

if Path("/usr/lib/ccache/g++").exists():  # a build of torch's headers takes long
    os.environ["PATH"] = f"/usr/lib/ccache:{os.environ['PATH']}"


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    return extension.export_device(tmp_path_factory.mktemp("dev ice"))


@pytest.fixture(scope="module")
def program(device, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cmake")
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path};{device}"
    for words in (["-S", EXAMPLE, "-B", folder, prefix], ["--build", folder]):
        done = subprocess.run(["cmake", *words], capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return folder / "run_model"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Where the models lie, and what Python prints of them."""
    folder = tmp_path_factory.mktemp("models")
    done = subprocess.run([sys.executable, EXAMPLE / "model.py", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, [float.fromhex(line) for line in done.stdout.split()]


def run(program, *words, code=0):
    bare = {"PATH": "/nowhere", "LD_LIBRARY_PATH": f"{TORCH / 'lib'}"}
    done = subprocess.run([program, *words], capture_output=True, text=True, env=bare)
    assert done.returncode == code, done.stderr[-2000:]
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("where", ["sim", "sim:1", "cpu"])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_gives_the_same_bits_everywhere(program, models, model, where):
    folder, wanted = models
    device, *numbers = run(program, folder / model, where).split()
    assert device == {"sim": "sim:0"}.get(where, where)
    assert [float.fromhex(number) for number in numbers] == wanted


def test_no_python_is_in_the_process(program):
    needed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    assert "libulpscope_sim_torch.so" in needed and "libpython" not in needed and "torch_python" not in needed


def test_a_plain_compiler_builds_it(device, models, tmp_path):
    include = [TORCH / "include", TORCH / "include/torch/csrc/api/include", device / "include"]
    lib = [device / "lib", TORCH / "lib"]
    words = ["g++", "-std=c++20", "-w", EXAMPLE / "run_model.cpp", *(f"-I{path}" for path in include)]
    words += [*(f"-L{path}" for path in lib), "-lulpscope_sim_torch", "-lulpscope_sim", "-lulpscope"]
    words += ["-ltorch", "-ltorch_cpu", "-lc10", *(f"-Wl,-rpath,{path}" for path in lib), "-o", tmp_path / "run"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert run(tmp_path / "run", models[0] / "traced.pt").split()[0] == "sim:0"


def test_what_is_wrong_is_a_sentence(program, models, tmp_path):
    (tmp_path / "none.pt").write_text("no model")
    said = run(program, tmp_path / "none.pt", code=2)
    assert said.startswith("run_model: ") and said.count("\n") == 1
    assert "there is no device 7; there are 2" in run(program, models[0] / "traced.pt", "sim:7", code=2)
    assert run(program, code=2).startswith("usage")
