# SPDX-License-Identifier: Apache-2.0
"""A model on the simulated device from C++, without Python in the process (examples/deploy): traced, scripted, saved on
either device, as a package of AOTInductor; built by CMake and by a plain compiler; what is wrong is a sentence and exit
code 2."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import ulpscope.extension as extension

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "deploy"
TORCH = Path(torch.__file__).parent
MODELS = ["traced.pt", "scripted.pt", "scripted_on_sim.pt"]


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    return extension.export_device(tmp_path_factory.mktemp("dev ice"))


@pytest.fixture(scope="module")
def programs(device, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cmake")
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path};{device}"
    for words in (["-S", EXAMPLE, "-B", folder, prefix], ["--build", folder]):
        done = subprocess.run(["cmake", *words], capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return folder


@pytest.fixture(scope="module")
def program(programs):
    return programs / "run_model"


@pytest.fixture(scope="module")
def packages(programs):
    """The program that runs packages; those of an older torch have no place for another device."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip("packages need torch 2.13 or newer")
    return programs / "run_package"


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


@pytest.fixture(scope="module")
def packaged(packages, models):
    """What the model's package for the CPU gives. Its own loops add up in another order than the operators that Python
    calls, by the width of this processor's registers: near those, and not bit by bit."""
    device, *numbers = run(packages, models[0] / "packaged_on_cpu.pt2", "cpu").split()
    assert device == "cpu"
    values = [float.fromhex(number) for number in numbers]
    assert values == pytest.approx(models[1], rel=1e-5, abs=1e-7) and len(values) == 10
    return values


@pytest.mark.parametrize("where", ["sim", "sim:1"])
def test_a_package_gives_the_same_bits_on_either_device(packages, models, packaged, where):
    device, *numbers = run(packages, models[0] / "packaged.pt2", where).split()
    assert device == {"sim": "sim:0"}.get(where, where)
    assert [float.fromhex(number) for number in numbers] == packaged


def parts(package):
    """The names of a package's members, and their bytes."""
    with zipfile.ZipFile(package) as members:
        return {name: members.read(name) for name in members.namelist()}


def test_kernels_of_a_package_may_write_what_they_write_alone(packages, models):
    (text,) = (data.decode() for name, data in parts(models[0] / "packaged.pt2").items() if "wrapper.cpp" in name)
    opened = re.findall(r"\{(\w+)\.data_ptr\(\), (true|false)\}", text)
    read, written = ({name for name, access in opened if access == its} for its in ("false", "true"))
    assert any(name.startswith("arg") for name in read) and any(name.startswith("constant") for name in read)
    assert written and all(name.startswith("buf") for name in written)
    assert text.count("usc_sim_package_kernel<") > 1


# what is other in the library within a package, and what is said of it
SPOILED = {
    "of another torch": ("TORCH", "9.99.9", "the package was made by torch 9.99.9 and this is"),
    "without a symbol": ("usc_sim_package", "usc_sim_nothing", "the package cannot be loaded by torch"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_package_that_does_not_fit_is_a_sentence(packages, models, tmp_path, case):
    was, becomes, said = SPOILED[case]
    was = torch.__version__.partition("+")[0] if was == "TORCH" else was
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as other:
        for name, data in parts(models[0] / "packaged.pt2").items():
            if name.endswith(".so"):
                data = data.replace(f"\0{was}\0".encode(), f"\0{becomes[: len(was)].ljust(len(was))}\0".encode())
            other.writestr(name, data)
    assert said[: len(said) if len(was) == len(becomes) else 30] in run(packages, tmp_path / "other.pt2", code=2)


def test_a_package_takes_its_inputs_where_it_was_loaded_for(packages, models, packaged):
    import ulpscope.sim

    package = torch._inductor.aoti_load_package(str(models[0] / "packaged.pt2"), device_index=1)
    x = torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)
    assert package(x.to("sim:1")).flatten().tolist() == packaged
    for given in (x, x.to("sim:0")):
        with pytest.raises(RuntimeError, match=f"input 0 is on {given.device}.* takes it on sim:1"):
            package(given)
    with pytest.raises(RuntimeError, match="expected: 2, but got: 1"):
        package(x[:1].to("sim:1"))
    assert ulpscope.sim.current_device() == 0


def test_no_python_is_in_the_process(program):
    needed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    assert "libulpscope_sim_torch.so" in needed and "libpython" not in needed and "torch_python" not in needed


def test_a_plain_compiler_builds_it(device, models, tmp_path):
    include = [TORCH / "include", TORCH / "include/torch/csrc/api/include", device / "include"]
    lib = [device / "lib", TORCH / "lib"]
    compiled = ["-std=c++20", "-w", "-c", EXAMPLE / "run_model.cpp", *(f"-I{path}" for path in include), "-o", "run.o"]
    linked = ["run.o", *(f"-L{path}" for path in lib), "-lulpscope_sim_torch", "-lulpscope_sim", "-lulpscope"]
    linked += ["-ltorch", "-ltorch_cpu", "-lc10", *(f"-Wl,-rpath,{path}" for path in lib), "-o", "run"]
    for words in (compiled, linked):
        done = subprocess.run(["g++", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    assert run(tmp_path / "run", models[0] / "traced.pt").split()[0] == "sim:0"


def test_what_is_wrong_is_a_sentence(program, models, tmp_path):
    (tmp_path / "none.pt").write_text("no model")
    said = run(program, tmp_path / "none.pt", code=2)
    assert said.startswith("run_model: ") and said.count("\n") == 1
    assert "there is no device 7; there are 2" in run(program, models[0] / "traced.pt", "sim:7", code=2)
    assert run(program, code=2).startswith("usage")


def test_what_is_wrong_with_a_package_is_a_sentence(packages, models, tmp_path):
    (tmp_path / "none.pt2").write_text("no package")
    assert "not a ZIP archive" in run(packages, tmp_path / "none.pt2", code=2)
    assert "there is no device 7; there are 2" in run(packages, models[0] / "packaged.pt2", "sim:7", code=2)
