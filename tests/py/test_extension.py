# SPDX-License-Identifier: Apache-2.0
"""Kernels written for CUDA become operators of the simulated device: ported, built, judged; what is wrong with one
is said by name. The kernels that are right are examples/cuda, as their users write them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ulpscope.extension as extension
import ulpscope.extension_cmake as extension_cmake
import ulpscope.sim
from ulpscope.program import heads
from ulpscope.testing import assert_accurate

ROOT = Path(__file__).resolve().parents[2]
CLI = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")) / "bin" / "ulpscope"
WRONG = Path(__file__).parent / "grid" / "wrong.cu"


@pytest.fixture(scope="module")
def ported(same_place):
    """examples/cuda after `ulpscope port --to sim`: nothing else is done to it. In a folder with a blank."""
    out = same_place / "port ed" / "cuda"
    out.parent.mkdir()
    done = subprocess.run([CLI, "port", ROOT / "examples" / "cuda", "--to", "sim", "-o", out], capture_output=True)
    assert done.returncode == 1, done.stderr  # half dispatch is listed
    return out


@pytest.fixture(scope="module")
def ops(ported):
    sources = [str(ported / name) for name in ("scale.cu", "row_sum.cu", "softmax.cu", "library.cu")]
    extension.load("cuda_examples", sources, build_directory=ported / "büild", is_python_module=False)
    return torch.ops.cuda_examples


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """The wrong kernels as they are, and built to tell of each access."""
    built = []
    for races in (False, True):
        name = f"usc_wrong_{'watched' if races else 'plain'}"
        extension.load(
            name,
            str(WRONG),
            extra_cflags=[f"-DUSC_TEST_NAMESPACE={name}"],
            is_python_module=False,
            build_directory=tmp_path_factory.mktemp(name),
            races=races,
        )
        built.append(getattr(torch.ops, name))
    return built


def on_sim(*sizes, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=generator).to(dtype).to("sim")


# ---- what is right


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_a_ported_operator_is_judged_as_any_other(ops, dtype):
    def reference(x):
        return 1.5 * x + 0.25

    verdict = assert_accurate(lambda x: ops.scale(x, 1.5, 0.25), reference, on_sim(3, 1001, dtype=dtype))
    assert verdict.verdict == "pass"


def test_reductions_in_shared_memory_and_by_shuffles(ops):
    assert_accurate(ops.row_sum, lambda x: x.sum(1), on_sim(5, 3000))
    assert_accurate(ops.softmax, lambda x: torch.softmax(x, -1), on_sim(9, 517))
    assert ops.row_sum(on_sim(3, 0)).tolist() == [0, 0, 0]


def test_libraries_for_kernels(ops):
    x = on_sim(7, 300)
    assert_accurate(ops.cumsum, lambda x: torch.cumsum(x, 1), x)
    assert torch.equal(ops.row_max(x).cpu(), x.cpu().max(1).values)
    assert torch.equal(ops.sort(x.flatten()).cpu(), x.cpu().flatten().sort().values)
    kept = ops.dropout(torch.ones(4001).to("sim"), 0.25, 3).cpu()
    assert torch.equal(kept, ops.dropout(torch.ones(4001).to("sim"), 0.25, 3).cpu())
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((kept == 0).float().mean().item() - 0.25) < 0.03


def test_a_launch_waits_for_its_stream(ops):
    x = on_sim(64, 100)
    expected = ops.softmax(x).cpu()
    for seed in range(3):
        with ulpscope.sim.schedule(seed):
            assert torch.equal(ops.softmax(x).cpu(), expected)


def test_a_tensor_of_the_cpu_has_no_such_operator(ops):
    with pytest.raises(NotImplementedError, match="CPU"):
        ops.scale(torch.ones(3), 1.0, 0.0)


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("cuda_examples::scale", lambda ops, x: ops.scale(x, 1.5, 0.25)),
        ("cuda_examples::row_sum", lambda ops, x: ops.row_sum(x)),
    ],
)
def test_planted_faults_meet_an_operator_of_an_extension(ops, op, call):
    x = on_sim(6, 40)
    honest = call(ops, x).cpu()
    for kind, more in (("scale", {"factor": 3}), ("constant", {"value": 0}), ("rows_lost", {}), ("bf16_inputs", {})):
        with ulpscope.sim.fault(op, kind, **more) as fault:
            spoiled = call(ops, x).cpu()
            assert fault.fired(), kind
        right = {"scale": 3 * honest, "constant": 0 * honest, "rows_lost": honest[:-1]}.get(kind)
        assert not torch.equal(spoiled, honest) and (right is None or torch.equal(spoiled, right))
    with ulpscope.sim.fault(op, "lacking"), pytest.raises(NotImplementedError, match=f"'{op}' on sim"):
        call(ops, x)
    with ulpscope.sim.fault("aten::scale", "nan"):  # another's
        assert torch.equal(call(ops, x).cpu(), honest)
    assert torch.equal(call(ops, x).cpu(), honest)


def test_faults_planted_behind_a_mode_fire():
    import ulpscope

    library = torch.library.Library("behind_a_mode", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "PrivateUse1")
    with ulpscope.time_ops("behind_a_mode::*"):
        library.define("thrice(Tensor x) -> Tensor")  # and one that is new meanwhile
        library.impl("thrice", lambda x: x * 3, "PrivateUse1")
        for op, factor in ((torch.ops.behind_a_mode.twice, 2), (torch.ops.behind_a_mode.thrice, 3)):
            with ulpscope.sim.fault("behind_a_mode::*", "scale", factor=5) as fault:
                assert torch.equal(op(on_sim(6)).cpu(), 5 * (factor * on_sim(6).cpu())) and fault.fired()
            assert torch.equal(op(on_sim(6)).cpu(), factor * on_sim(6).cpu())
    assert torch.equal(torch.ops.behind_a_mode.twice(on_sim(6)).cpu(), 2 * on_sim(6).cpu())


# ---- what is wrong


@pytest.fixture
def poison():
    ulpscope.sim.set_guard("strict", poison=True)
    yield
    ulpscope.sim.set_guard("strict", poison=False)


def test_a_tail_that_is_left_out_is_found(wrong, poison):
    x = on_sim(1000)
    assert_accurate(lambda x: wrong[0].tail(x, 0, 128), lambda x: 2 * x, x)
    with pytest.raises(AssertionError, match="999"):
        assert_accurate(lambda x: wrong[0].tail(x, -1, 128), lambda x: 2 * x, x, cause=False)


BEYOND = {
    False: r"kernel tail, launched at wrong.cu:\d+: "
    r"writes \d bytes behind the end of argument 2, a block of 4000 bytes",
    True: r"kernel tail, launched at wrong.cu:\d+: block \(7,0,0\), thread \(104,0,0\): "
    r"reads 0 bytes behind the end of argument 1, a block of "
    r"4000 bytes at wrong.cu:11",
}


@pytest.mark.parametrize("watched", [False, True])
def test_a_step_beyond_the_end_is_named(wrong, watched):
    with pytest.raises(RuntimeError, match=BEYOND[watched]):
        wrong[watched].tail(on_sim(1000), 1, 128).cpu()  # told where it is waited for
    assert torch.equal(wrong[watched].tail(on_sim(9), 0, 128).cpu(), 2 * on_sim(9).cpu())  # the device goes on


def test_a_missing_barrier_is_found(wrong):
    def reference(x):
        return x.reshape(-1, 64).sum(1)

    x = on_sim(6400)
    for i in (0, 1):
        assert_accurate(lambda x, i=i: wrong[i].block_sum(x, True), reference, x)
    with pytest.raises(AssertionError):
        assert_accurate(lambda x: wrong[0].block_sum(x, False), reference, x, cause=False)
    with pytest.raises(
        RuntimeError,
        match=r"kernel block_sum, launched at wrong.cu:\d+: block \(0,0,0\), thread \(\d+,0,0\): a race in shared "
        r"memory .*wrong.cu:21 what thread \(\d+,0,0\) (reads|writes) at wrong.cu:21",
    ):
        wrong[1].block_sum(x, False).cpu()


def test_storage_of_cub_that_is_used_again_at_once_is_found(wrong):
    x = on_sim(64)
    wrong[1].reuse(x, True).cpu()
    with pytest.raises(RuntimeError, match=r"kernel reuse.*shared memory"):
        wrong[1].reuse(x, False).cpu()


def test_barriers_that_part_the_block_end_in_a_sentence(wrong):
    with pytest.raises(
        RuntimeError,
        match="threads meet at different barriers: 5 at the barrier in wrong.cu:30, 27 at the barrier in wrong.cu:32",
    ):
        wrong[0].barriers(on_sim(32), 5).cpu()


def test_an_assertion_ends_the_kernel_and_not_the_process(wrong):
    with pytest.raises(
        RuntimeError, match=r"thread \(2,0,0\): the assertion x\[threadIdx.x\] < 3 fails at wrong.cu:38"
    ):
        wrong[0].checked(torch.tensor([0.0, 1, 4]).to("sim")).cpu()


@pytest.mark.parametrize("threads", [4096, 0x40000000])
def test_a_launch_that_cannot_be_is_refused(wrong, threads):
    with pytest.raises(RuntimeError, match="it has 1 to 1024"):
        wrong[0].tail(on_sim(10), 0, threads)


def test_an_argument_of_the_host_is_refused(wrong):
    with pytest.raises(RuntimeError, match="argument 1 points to the host's memory; is that tensor on the CPU?"):
        wrong[0].on_any(torch.ones(10), 0, 128)


# ---- building


def takes_parsed(folder, *more):
    """Whether a compiler that is called as for the extension of a folder takes torch's headers as parsed before."""
    text = (folder / "build.ninja").read_text()
    words = [shlex.split(re.search(rf"^{key} = (.*)$", text, re.M)[1]) for key in ("cxx", "cflags")]
    head = words[1][words[1].index("-include") + 1]
    asked = [
        *words[0],
        *words[1],
        *more,
        "-Winvalid-pch",
        "-Werror",
        "-Wfatal-errors",
        "-fsyntax-only",
        "-x",
        "c++",
        os.devnull,
    ]
    return Path(f"{head}.gch").exists() and subprocess.run(asked, capture_output=True).returncode == 0


def test_torchs_headers_are_parsed_once_for_all(ops, ported):
    assert takes_parsed(ported / "büild") and not takes_parsed(ported / "büild", "-DAT_PER_OPERATOR_HEADERS")
    for text, wanted in (
        ("#include <torch/extension.h>\n", "extension"),
        ("#include <ATen/ATen.h>\n", "aten"),
        ('#  include "c10/core/Device.h"\n', "aten"),
        ("#include <vector>\n// #include <ATen/ATen.h>\n", ""),
        ("#define TORCH_ASSERT_NO_OPERATORS\n#include <ATen/ATen.h>\n", ""),
        ("#define PY_SSIZE_T_CLEAN\n#include <torch/extension.h>\n", ""),
        ("#define PyHolder\n#define ATTENTION 1\n#define TILE 3\n#include <ATen/ATen.h>\n", "aten"),
    ):
        assert heads.wanted([text, "int x;\n"]) == wanted, text
    assert heads.harmless(["-Wall", "-w", "-Ifolder", "-isystem/x", "-DMINE=3", "-UMINE"])
    for flag in ("-O0", "-DNDEBUG", "-D_GNU_SOURCE", "-DAT_X=1", "-g", "-fno-exceptions", "-std=c++17", "-mavx2"):
        assert not heads.harmless(["-Wall", flag]), flag


def build(folder, text, name="usc_inline", **options):
    (folder / "k.cu").write_text(text)
    return extension.load(name, str(folder / "k.cu"), build_directory=folder / "b", is_python_module=False, **options)


def test_what_the_device_lacks_is_refused_by_line(tmp_path):
    with pytest.raises(extension.KernelRefused) as told:
        build(tmp_path, '__global__ void k()\n{\n    asm("mov");\n}\n__global__ void m() { k<<<1, 2>>>(); }\n')
    assert f"{tmp_path}/k.cu:3: inline PTX" in str(told.value)
    assert f"{tmp_path}/k.cu:5: dynamic parallelism" in str(told.value)


def test_warps_are_as_wide_as_the_profile_says(monkeypatch):
    assert "-DULPSCOPE_SIM_WARP=32" in extension._flags(races=False)
    with ulpscope.sim.profile("full", warp=64):
        assert "-DULPSCOPE_SIM_WARP=64" in extension._flags(races=False)
    with ulpscope.sim.profile("wide"), pytest.raises(extension.ExtensionError, match="a warp of 128 lanes"):
        extension._flags(races=False)
    monkeypatch.setenv("ULPSCOPE_SIM_WARP", "64")
    assert "-DULPSCOPE_SIM_WARP=64" in extension._flags(races=False)


def test_an_error_has_the_line_of_the_users_file(tmp_path):
    (tmp_path / "k.cuh").write_text("#pragma once\n\ninline int f() { return nothing; }\n")
    with pytest.raises(extension.ExtensionError, match=r"k\.cuh:3:\d+: error: .nothing. was not declared"):
        build(tmp_path, '#include "k.cuh"\n')


MODULE = """#include "k.cuh"
__global__ void k(int *at) { __shared__ int big[SIZE]; big[threadIdx.x] = 1; *at = VALUE + big[0]; }
extern "C" __attribute__((visibility("default"))) int value()
{
    int *at, value = 0;
    cudaMalloc(&at, 4);
    k<<<1, 1>>>(at);
    cudaMemcpy(&value, at, 4, cudaMemcpyDeviceToHost);
    cudaFree(at);
    return value;
}
"""


def test_it_is_built_anew_when_a_header_changes_and_only_then(tmp_path):
    script = (
        "import sys, ctypes, ulpscope.extension as e\n"
        "path = e.load('usc_value', sys.argv[1] + '/k.cu', build_directory=sys.argv[1] + '/b', "
        "is_python_module=False)\n"
        "print(ctypes.CDLL(sys.argv[1] + '/b/usc_value.so').value())\n"
    )
    (tmp_path / "k.cu").write_text(MODULE)
    library, seen = tmp_path / "b" / "usc_value.so", []
    for value in (41, 41, 7):
        (tmp_path / "k.cuh").write_text(f"#define VALUE {value}\n#define SIZE 10\n")
        done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)
        assert done.stdout == f"{value + 1}\n", done.stderr
        seen.append(library.stat().st_mtime_ns)
    assert seen[0] == seen[1] < seen[2]
    (tmp_path / "b" / "ulpscope-built-for").write_text("another torch")  # what it built is not loaded
    (tmp_path / "b" / "usc_value.so").write_text("no library")
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)
    assert done.stdout == "8\n", done.stderr


def test_too_much_shared_memory_is_refused_by_name(tmp_path):
    (tmp_path / "k.cuh").write_text("#define VALUE 1\n#define SIZE 20000\n")
    with pytest.raises(
        extension.ExtensionError,
        match="kernel k has 80000 bytes of static shared memory; a block has 49152 .profile full",
    ):
        build(tmp_path, MODULE, "usc_too_much")


SETUP = """import os
import torch
from setuptools import setup
from torch.utils.cpp_extension import CppExtension
from ulpscope.extension import BuildExtension, SimExtension

extension = SimExtension if os.getenv("FORCE_SIM", "0") == "1" else CppExtension
setup(name="usc_setup", ext_modules=[extension("usc_setup", ["k.cu"], extra_compile_args={
    "cxx": [], "simcc": ["-O1", "-gencode=arch=compute_80,code=sm_80"]})], cmdclass={"build_ext": BuildExtension})
"""


def test_a_setup_script_builds_it(tmp_path):
    (tmp_path / "k.cuh").write_text("#define VALUE 5\n#define SIZE 1\n")
    (tmp_path / "k.cu").write_text(MODULE)
    (tmp_path / "setup.py").write_text(SETUP)
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "FORCE_SIM": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (library,) = tmp_path.glob("usc_setup*.so")
    script = f"import ulpscope.sim, ctypes; print(ctypes.CDLL({str(library)!r}).value())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "6\n", done.stderr


def test_cmake_builds_it(tmp_path):
    """A project that is written, in folders with blanks: lowered and compiled again when a header changes."""
    source, project = tmp_path / "so urce", tmp_path / "pro ject"
    (source / "inc").mkdir(parents=True)
    (source / "k.cu").write_text(MODULE)
    (source / "inc" / "k.cuh").write_text("#define VALUE 41\n#define SIZE 10\n")
    extension_cmake.write_cmake(project, "usc_cmake", [source / "k.cu"], [source / "inc"])
    extension_cmake.write_cmake(project, "usc_cmake", [source / "k.cu"], [source / "inc"])  # its own it replaces

    def built(*words):
        done = subprocess.run(["cmake", *map(str, words)], capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr

    fine, said = built("-S", project, "-B", project / "b")
    assert fine, said
    for value in (41, 7):
        (source / "inc" / "k.cuh").write_text(f"#define VALUE {value}\n#define SIZE 10\n")
        fine, said = built("--build", project / "b")
        assert fine, said
        script = f"import ulpscope.sim, ctypes; print(ctypes.CDLL({str(project / 'b' / 'usc_cmake.so')!r}).value())"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.stdout == f"{value + 1}\n", done.stderr
    assert "k.cu" not in built("--build", project / "b")[1]  # nothing is compiled again

    (source / "k.cu").write_text('__device__ void f() { asm("x"); }\n')
    fine, said = built("--build", project / "b")
    assert not fine and "k.cu:1: inline PTX" in said
    (tmp_path / "CMakeLists.txt").write_text("project(theirs)\n")
    with pytest.raises(FileExistsError, match="somebody else"):
        extension_cmake.write_cmake(tmp_path, "usc_cmake", [source / "k.cu"])


TEXT = """#include <torch/library.h>
__global__ void thrice_k(const float *x, float *y) { y[threadIdx.x] = 3 * x[threadIdx.x]; }
static at::Tensor thrice(const at::Tensor &x)
{
    at::Tensor y = at::empty_like(x);
    thrice_k<<<1, x.numel()>>>(x.data_ptr<float>(), y.data_ptr<float>());
    return y;
}
TORCH_LIBRARY_FRAGMENT(usc_in_text, m) { m.def("thrice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(usc_in_text, PrivateUse1, m) { m.impl("thrice", &thrice); }
"""


def test_sources_in_texts(tmp_path):
    extension.load_inline("usc_in_text", sim_sources=TEXT, is_python_module=False, build_directory=tmp_path)
    x = on_sim(100)
    assert torch.equal(torch.ops.usc_in_text.thrice(x).cpu(), 3 * x.cpu())
