# SPDX-License-Identifier: Apache-2.0
"""libulpscope by itself: configured without Python, built, installed, and found by
pkg-config and by CMake; the examples of docs/reference/c-api.md on it, and the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import traces
from ulpscope import extension

ROOT = Path(__file__).resolve().parents[2]
# Those of the simulated device are built with it (CMakeLists.txt) and run by test_sim.py.
EXAMPLES = sorted(p for p in (ROOT / "examples" / "c").glob("*.c") if not p.stem.startswith("sim_"))
CUT_PATHS = "CCACHE_BASEDIR" in os.environ  # before conftest.py sets it
VERSION = ".".join(re.findall(r"#define USC_VERSION_\w+ (\d+)", (ROOT / "include/ulpscope/version.h").read_text()))

CMAKE = """cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(Ulpscope {version} REQUIRED)
add_executable(shared user.c)
target_link_libraries(shared ulpscope::ulpscope)
add_executable(static user.c)
target_link_libraries(static ulpscope::static)
"""

# Prints both versions and writes a file for the reader that others have.
USER = """#include <stdio.h>
#include <ulpscope/ulpscope.h>
int main(int argc, char **argv)
{
    const float values[] = {1, 2, 3, 4, 5, 6};
    const int64_t sizes[] = {2, 3};
    usc_named_tensor x = {.name = "x"};
    usc_error err;
    if (usc_tensor_make(&x.tensor, values, USC_F32, 2, sizes, &err) != USC_OK) return 2;
    x.tensor.sizes[0] = 3, x.tensor.sizes[1] = 2;
    x.tensor.strides[0] = 1, x.tensor.strides[1] = 3;
    if (argc > 1 && usc_safetensors_write(argv[1], &x, 1, NULL, &err) != USC_OK) return 2;
    printf("%s %s\\n", USC_VERSION, usc_version());
    return 0;
}
"""


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    return done


def must(*command, **kwargs):
    done = run(*command, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def flags():
    """Those of the build, where ccache has what that compiled and paths are in its keys as they are here; else those
    that take the least time."""
    cache = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")) / "CMakeCache.txt"
    kept = cache.exists() and re.search(r"^CMAKE_C_COMPILER:.*/ccache/", cache.read_text(), re.M)
    if kept and not CUT_PATHS:
        return ["-DULPSCOPE_WERROR=ON"]
    return ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=-O0"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where it was installed to, with the environment of somebody who uses it from there."""
    build, prefix = (tmp_path_factory.mktemp(name) for name in ("build", "prefix"))
    must("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DULPSCOPE_PYTHON=OFF", *flags())
    assert "Python3_INCLUDE" not in (build / "CMakeCache.txt").read_text()
    must("cmake", "--build", build)
    must("cmake", "--install", build, "--prefix", prefix)
    return prefix, {
        **os.environ,
        "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"),
        "LD_LIBRARY_PATH": str(prefix / "lib"),
        "CMAKE_PREFIX_PATH": str(prefix),
    }


def compiled(source: Path, out: Path, env) -> Path:
    flags = must("pkg-config", "--cflags", "--libs", "ulpscope", env=env).split()
    must("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", source, *flags, "-lm", "-o", out)
    return out


def test_it_is_found_by_pkg_config_and_by_cmake(installed, tmp_path):
    prefix, env = installed
    (tmp_path / "user.c").write_text(USER)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.format(version=VERSION))
    must("cmake", "-S", tmp_path, "-B", tmp_path / "b", env=env)
    must("cmake", "--build", tmp_path / "b")
    programs = [
        tmp_path / "b" / "shared",
        tmp_path / "b" / "static",
        compiled(tmp_path / "user.c", tmp_path / "user", env),
    ]
    for program in programs:
        assert must(program, tmp_path / "x.safetensors", env=env).split() == [VERSION, VERSION]
        x = load_file(tmp_path / "x.safetensors")["x"]
        assert torch.equal(x, torch.tensor([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]))
    names = must("readelf", "-d", prefix / "lib" / "libulpscope.so")
    assert f"[libulpscope.so.{VERSION.rsplit('.', 1)[0]}]" in names
    assert "python" not in names and "torch" not in names


DEVICE = """cmake_minimum_required(VERSION 3.18)
project(user CXX)
find_package(Ulpscope REQUIRED COMPONENTS {part})
add_executable(user user.cpp)
target_link_libraries(user PRIVATE Ulpscope::sim)
set_target_properties(user PROPERTIES CXX_STANDARD 20)
"""
ON_THE_DEVICE = """#include <ATen/ATen.h>
#include <ulpscope_sim/torch.h>
#include <iostream>
int main()
{
    ulpscope_sim::load();
    std::cout << (at::ones({3}).to("sim:1") + 1).sum().item<float>() << std::endl;
}
"""


def test_its_component_is_the_device_for_torch(installed, tmp_path):
    """Chapter 4 of torch_musa's manual. The device was compiled before; what would compile it is looked at."""
    prefix, env = installed
    env = {**env, "CMAKE_PREFIX_PATH": f"{prefix}:{torch.utils.cmake_prefix_path}"}
    (tmp_path / "user.cpp").write_text(ON_THE_DEVICE)
    (tmp_path / "CMakeLists.txt").write_text(DEVICE.format(part="sim"))
    library = extension.export_device(tmp_path / "device") / "lib" / "libulpscope_sim_torch.so"
    must("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DUlpscope_SIM_LIBRARY={library}", env=env)
    must("cmake", "--build", tmp_path / "b", env=env)
    assert must(tmp_path / "b" / "user", env=env) == "6\n"

    must("cmake", "-S", tmp_path, "-B", tmp_path / "c", "-G", "Ninja", env=env)
    wanted = must("cmake", "--build", tmp_path / "c", "--", "-n", "-v", env=env)
    sources = {path.name for path in (ROOT / "glue" / "sim").glob("*.cpp")}
    assert sources == set(re.findall(rf"-c {prefix}/share/ulpscope/glue/sim/(\w+\.cpp)", wanted))

    (tmp_path / "CMakeLists.txt").write_text(DEVICE.format(part="musa"))
    done = run("cmake", "-S", tmp_path, "-B", tmp_path / "d", env=env)
    assert done.returncode != 0 and "there is no component musa" in done.stderr


def test_it_is_taken_away_again(installed, tmp_path):
    prefix, _ = installed
    build = prefix.parent / "build0"
    must("cmake", "--install", build, "--prefix", tmp_path / "p")
    (tmp_path / "p" / "lib" / "theirs.so").touch()
    must("cmake", "--build", build, "--target", "uninstall")
    left = [path for path in (tmp_path / "p").rglob("*") if not path.is_dir() or "lpscope" in path.name]
    assert left == [tmp_path / "p" / "lib" / "theirs.so"]
    done = run("cmake", "--build", build, "--target", "uninstall")
    assert done.returncode != 0 and "nothing was installed from here" in done.stdout + done.stderr


def test_another_minor_version_is_not_taken(installed, tmp_path):
    _, env = installed
    (tmp_path / "user.c").write_text(USER)
    major, minor = VERSION.split(".")[:2]
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.format(version=f"{major}.{int(minor) + 1}"))
    done = run("cmake", "-S", tmp_path, "-B", tmp_path / "b", env=env)
    assert done.returncode != 0 and "compatible" in done.stderr


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda p: p.stem)
def test_examples_compile_without_a_warning_and_say_what_they_promise(installed, tmp_path, source):
    _, env = installed
    program = compiled(source, tmp_path / source.stem, env)
    EXPECTED[source.stem](program, env, tmp_path)


def judge_two_buffers(program, env, _):
    done = run(program, env=env)
    honest, low = done.stdout.splitlines()
    assert done.returncode == 1 and done.stderr == ""
    assert honest.startswith("float32: pass, ") and low.startswith("inputs in bfloat16: reduced, ")
    assert 6 < float(re.search(r"([\d.]+) effective bits", low).group(1)) < 12


def print_trace(program, env, tmp_path):
    traces.small_trace(tmp_path / "trace")
    out = must(program, tmp_path / "trace", env=env)
    shown = must("ulpscope", "show", tmp_path / "trace", "--json")
    calls = [json.loads(line) for line in shown.splitlines()]
    assert [line.split()[1] for line in out.splitlines() if line[0] != " "] == [c["op"] for c in calls]
    op = calls[0]["op"]
    some = must(program, tmp_path / "trace", op, env=env)
    assert some and {line.split()[1] for line in some.splitlines() if line[0] != " "} == {op}
    assert run(program, tmp_path / "nowhere", env=env).returncode == 2
    assert run(program, env=env).returncode == 2


def rtl_bench(program, env, _):
    assert must(program, env=env).startswith("pass: dot computed with ")
    done = run(program, "narrow", env=env)
    assert done.returncode == 1 and done.stdout.startswith("reduced: dot computed with ")


def write_trace(program, env, tmp_path):
    must(program, tmp_path / "t", env=env)
    assert "aten::mm" in must("ulpscope", "show", tmp_path / "t")
    done = must("ulpscope", "check", tmp_path / "t", "--device", "cpu", "-o", tmp_path / "out")
    assert "verdicts    1 pass" in done
    assert run(program, tmp_path / "t", env=env).returncode == 2  # it is there
    assert run(program, env=env).returncode == 2


EXPECTED = {
    "write_trace": write_trace,
    "judge_two_buffers": judge_two_buffers,
    "print_trace": print_trace,
    "rtl_bench": rtl_bench,
}


def test_the_code_of_the_manual_is_code_of_the_examples():
    blocks = re.findall(r"^```c\n(.*?)^```", (ROOT / "docs" / "reference" / "c-api.md").read_text(), re.M | re.S)
    code = "".join(path.read_text() for path in EXAMPLES)
    assert len(blocks) >= 2 and all(block in code for block in blocks)
    headers = {p.name for p in (ROOT / "include" / "ulpscope").glob("*.h")}
    assert headers - set(re.findall(r"`([a-z_]+\.h)`", (ROOT / "docs" / "reference" / "c-api.md").read_text())) == {
        "api.h",
        "ulpscope.h",
    }


# What a programmer may get wrong: each is caught where it happens, in a debug build.
MISUSE = """#include <stdlib.h>
#include <ulpscope/ulpscope.h>
int main(int argc, char **argv)
{
    usc_tensor t = {.dtype = USC_F32, .ndim = 0};
    usc_judgement j;
    usc_standard none = {0};
    usc_standard_operands operands = {.device = &t};
    usc_opinion opinion;
    usc_safetensors *set;
    usc_trace *trace;
    int64_t n;
    usc_status st = USC_OK;
    switch (argc > 1 ? atoi(argv[1]) : 0) {
    case 0: st = usc_judge_look(NULL, &j, NULL); break;
    case 1: st = usc_judge_pair(&t, NULL, NULL, NULL, &j, NULL); break;
    case 2: st = usc_standard_judge(&none, &operands, &opinion, NULL); break;
    case 3: st = usc_safetensors_open(NULL, NULL, &set, NULL); break;
    case 4: st = usc_trace_open("x", NULL, NULL, NULL); break;
    case 5: st = usc_tensor_numel(NULL, &n, NULL); break;
    case 6: st = usc_safetensors_write("x", NULL, 1, NULL, NULL); break;
    case 7: st = usc_trace_open("x", NULL, &trace, NULL); break;
    }
    return (int)st;
}
"""


ASSERTING = """judge/judge_rule.c judge/judge_pair.c standard/standard.c files/safetensors.c files/safetensors_write.c
    trace/trace_read.c tensor/tensor.c""".split()


def test_misuse_is_an_assertion_and_bad_data_is_none(installed, tmp_path):
    """What is called is compiled here with its assertions, which a release has not; the rest is the static library."""
    _, env = installed
    (tmp_path / "misuse.c").write_text(MISUSE)
    flags = must("pkg-config", "--cflags", "--libs", "--static", "ulpscope", env=env).split()
    flags = [f.replace("-lulpscope", "-l:libulpscope.a") for f in flags]
    called = [ROOT / "src" / name for name in ASSERTING]
    program = tmp_path / "misuse"
    must("cc", "-std=c11", "-D_GNU_SOURCE", "-I", ROOT / "src", tmp_path / "misuse.c", *called, *flags, "-o", program)
    for i in range(7):
        done = run(program, i, env=env, cwd=tmp_path)
        assert done.returncode == -signal.SIGABRT and "Assertion" in done.stderr, i
    assert run(program, 7, env=env, cwd=tmp_path).returncode == 9  # USC_E_NOT_FOUND


def test_the_program_judges_and_shows_without_python(installed, tmp_path):
    prefix, env = installed
    env = {**env, "PATH": str(prefix / "bin"), "ULPSCOPE_PYTHON": ""}
    x = torch.randn(64, 3)
    save_file({"x": x}, tmp_path / "d.safetensors")
    save_file({"x": x.double()}, tmp_path / "r.safetensors")
    save_file({"x": x.double() * 1.01}, tmp_path / "w.safetensors")
    judge = [prefix / "bin" / "ulpscope", "judge", "d.safetensors"]
    assert run(*judge, "r.safetensors", "-o", "a", env=env, cwd=tmp_path).returncode == 0
    done = run(*judge, "w.safetensors", "-o", "b", env=env, cwd=tmp_path)
    assert done.returncode == 1 and "wrong" in done.stdout
    assert must(prefix / "bin" / "ulpscope", "--version", env=env).startswith(f"ulpscope {VERSION}\n")
    traces.small_trace(tmp_path / "trace")
    assert must(prefix / "bin" / "ulpscope", "show", tmp_path / "trace", env=env)
    done = run(prefix / "bin" / "ulpscope", "check", tmp_path / "trace", "--device", "cpu", env=env)
    assert done.returncode == 2 and "no Python with the package" in done.stderr
    assert shutil.which("python3", path=env["PATH"]) is None
