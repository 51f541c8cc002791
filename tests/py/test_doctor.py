# SPDX-License-Identifier: Apache-2.0
"""`ulpscope doctor`: each kind of trouble is planted and must be named, with a command that mends
it; what is whole is called well."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import schemas
import torch

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))
NONE = {"ULPSCOPE_PYTHON": "/nonexistent/python3"}  # what the machine tells needs no torch
SANE = {"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "1", "ULPSCOPE_PYTHON": sys.executable}


def doctor(*words, code, cwd=None, before="", **variables):
    """The findings of a run, `{check: [finding, ...]}`."""
    line = [str(BUILD / "bin" / "ulpscope"), "doctor", "--json", *map(str, words)]
    if before:
        line = ["sh", "-c", f'{before}; exec "$@"', "sh", *line]
    done = subprocess.run(
        line, text=True, timeout=600, cwd=cwd, capture_output=True, env={**os.environ, **SANE, **variables}
    )
    assert done.returncode == code, done
    told, found = schemas.one("doctor", done.stdout), {}
    for finding in told["checks"]:
        found.setdefault(finding["check"], []).append(finding)
        assert (finding["state"] == "wrong") == bool(finding["mend"]), finding
    assert told["wrong"] == sum(f["state"] == "wrong" for f in told["checks"])
    return found


def wrong(found):
    return {check for check, list_ in found.items() if any(f["state"] == "wrong" for f in list_)}


def library(folder, name, text, *more):
    """A shared library of a line of C."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", path, *more], input=text, text=True, check=True
    )
    return path


# ---- the machine ----------------------------------------------------------------------------


def test_what_is_whole_is_called_well(tmp_path):
    (tmp_path / "plugin.py").write_text("x = 1\n")
    found = doctor("--device", "sim:0", "--import", tmp_path / "plugin.py", code=0)
    assert set(found) == {
        "clock",
        "folder",
        "temporary",
        "cache",
        "limits",
        "threads",
        "locale",
        "python",
        "torch",
        "extension",
        "glue",
        "import",
        "device",
    }
    assert torch.__version__ in found["torch"][0]["text"]
    text = subprocess.run(
        [BUILD / "bin" / "ulpscope", "doctor"], capture_output=True, text=True, timeout=600, env={**os.environ, **SANE}
    )
    assert text.returncode == 0 and text.stdout.endswith("all is well\n")


def test_no_python_is_told_with_the_variable_that_names_one():
    found = doctor(code=1, **NONE)
    assert wrong(found) == {"python"}
    assert "export ULPSCOPE_PYTHON=" in found["python"][0]["mend"]


def test_a_cache_that_is_a_file_and_a_temporary_folder_that_is_not_there(tmp_path):
    (tmp_path / "cache").write_text("")
    found = doctor(code=1, **NONE, ULPSCOPE_CACHE=str(tmp_path / "cache" / "below"), TMPDIR=str(tmp_path / "gone"))
    assert wrong(found) == {"cache", "temporary", "python"}
    assert f"rm {tmp_path}/cache" in found["cache"][0]["mend"]
    assert "No such file" in found["temporary"][0]["text"] and "export TMPDIR=" in found["temporary"][0]["mend"]
    assert not list(tmp_path.glob("ulpscope-doctor*"))


def test_the_mend_of_a_cache_that_is_a_file_mends_it(tmp_path):
    (tmp_path / "cache").write_text("")
    found = doctor(code=1, **NONE, ULPSCOPE_CACHE=str(tmp_path / "cache"))
    subprocess.run(found["cache"][0]["mend"].split(", or")[0], shell=True, check=True)
    assert "cache" not in wrong(doctor(code=1, **NONE, ULPSCOPE_CACHE=str(tmp_path / "cache")))


def test_small_limits_are_told():
    found = doctor(code=1, before="ulimit -n 100; ulimit -f 100", **NONE)
    said = " ".join(f["text"] for f in found["limits"])
    assert "may open 100 files" in said and "KiB only" in said
    assert {"ulimit -f unlimited"} <= {f["mend"] for f in found["limits"]}
    assert "File too large" in found["folder"][0]["text"] and found["folder"][0]["mend"] == "ulimit -f unlimited"


def test_a_full_disk_is_told(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        found = doctor(code=1, cwd=small, **NONE)
        assert "room for 0 MiB" in found["folder"][0]["text"] or "room for 1 MiB" in found["folder"][0]["text"]
        assert f"du -xhd1 {small}" in found["folder"][0]["mend"]
        (small / "fill").write_bytes(bytes((1 << 20) - 8192))
        found = doctor(code=1, cwd=small, **NONE)
        assert "No space left" in found["folder"][0]["text"]
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_clock_of_another_century_and_one_that_stands_still(tmp_path):
    old = library(tmp_path, "old.so", "long time(long *t) { if (t) *t = 915148800; return 915148800; }\n")
    found = doctor(code=1, **NONE, LD_PRELOAD=str(old))
    assert "says 1999" in found["clock"][0]["text"] and "set-ntp" in found["clock"][0]["mend"]
    assert any("after the system's clock" in f["text"] for f in found["clock"][1:])
    still = library(tmp_path, "still.so", "int clock_gettime(int c, long *t) { t[0] = 7; t[1] = 7; return 0; }\n")
    line = [str(BUILD / "bin" / "ulpscope"), "doctor"]
    done = subprocess.run(
        line, env={**os.environ, **SANE, **NONE, "LD_PRELOAD": str(still)}, text=True, capture_output=True, timeout=120
    )
    assert "stands still" in done.stdout and done.returncode == 1


def test_threads_that_take_cores_from_each_other():
    many = str(8 * (os.cpu_count() or 1))
    found = doctor(code=1, **{**NONE, "OMP_NUM_THREADS": many})
    assert wrong(found) == {"threads", "python"} and "export OMP_NUM_THREADS=" in found["threads"][0]["mend"]
    ranks = doctor(code=1, **{**NONE, "OMP_NUM_THREADS": "2", "LOCAL_WORLD_SIZE": many})
    assert "export OMP_NUM_THREADS=1" == ranks["threads"][0]["mend"]


def test_a_locale_that_is_not_here():
    found = doctor(code=1, **{**NONE, "LC_ALL": "xx_YY.ISO-8859-1"})
    assert wrong(found) == {"locale", "python"} and found["locale"][0]["mend"] == "export LC_ALL=C.UTF-8"
    assert "locale" not in wrong(doctor(code=1, **{**NONE, "LC_ALL": "C"}))


# ---- torch ----------------------------------------------------------------------------------


def fake_torch(folder, text):
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize(
    "raised, text, mend",
    [
        ("ModuleNotFoundError(\"No module named 'torch'\", name='torch')", "no module 'torch'", "-m pip install torch"),
        (
            "ImportError('libnone_of_mine.so.9: cannot open shared object file: No such file or directory')",
            "libnone_of_mine.so.9 is not found",
            "LD_LIBRARY_PATH",
        ),
        ("ImportError('/x/lib.so: undefined symbol: _ZN3c10')", "nobody has its symbol _ZN3c10", "build"),
        (
            'ImportError("/lib/libstdc++.so.6: version `GLIBCXX_9.9\' not found (required by /x.so)")',
            "GLIBCXX_9.9 is not in the one here",
            "build it here",
        ),
        ("MemoryError('no')", "MemoryError: no", "python"),
    ],
)
def test_a_torch_that_cannot_be_imported(tmp_path, raised, text, mend):
    found = doctor(code=1, **fake_torch(tmp_path, f"raise {raised}\n"))
    assert wrong(found) == {"torch"}
    assert text in found["torch"][0]["text"] and mend in found["torch"][0]["mend"]


def test_a_torch_that_crashes_is_told_and_takes_nothing_along(tmp_path):
    found = doctor(code=1, **fake_torch(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"))
    assert "dies of SIGSEGV" in found["torch"][0]["text"]


def test_damaged_glue_and_the_command_that_mends_it(tmp_path):
    from ulpscope.program import glue

    cache = tmp_path / "cache"
    for name in glue.names():
        path = glue.path_of(name)
        if not path.exists():
            pytest.skip("no glue is built")
        (cache / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, cache / path.parent.name)
    broken = cache / glue.path_of("sim").parent.name / "usc_glue_sim.so"
    broken.write_bytes(broken.read_bytes()[:4096])
    (cache / "torch-1.0-ulpscope-0-1234").mkdir()
    found = doctor(code=1, ULPSCOPE_CACHE=str(cache))
    assert wrong(found) == {"glue"} and f"rm {broken}; " in found["glue"][0]["mend"]
    broken.unlink()
    found = doctor(code=0, ULPSCOPE_CACHE=str(cache))
    assert "sim not built yet" in found["glue"][0]["text"]
    assert "also for torch 1.0 (not used)" in found["glue"][0]["text"]
    found = doctor(code=1, ULPSCOPE_CACHE=str(cache), CXX="no-such-compiler")
    assert wrong(found) == {"glue"} and "apt install g++" in found["glue"][0]["mend"]


# ---- plugins and devices --------------------------------------------------------------------


def test_broken_plugins_are_told_apart(tmp_path):
    symbol = library(
        tmp_path,
        "symbol.so",
        "extern int torch_of_yesterday(void); int f(void) { return torch_of_yesterday(); }\n",
        "-Wl,-z,now",
    )
    inner = library(tmp_path / "deep" / "lib64", "libdoctor_inner.so", "int g(void) { return 1; }\n")
    outer = library(tmp_path, "outer.so", "extern int g(void); int f(void) { return g(); }\n", str(inner))
    # Named by its path it would be found: the loader is told its name alone.
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", outer, f"-L{inner.parent}", "-ldoctor_inner"],
        input="extern int g(void); int f(void) { return g(); }\n",
        text=True,
        check=True,
    )
    (tmp_path / "noise.so").write_text("no library at all\n" * 100)
    (tmp_path / "crash.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "leave.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "fine.py").write_text("print('hello', end='')\n")
    words = ["symbol.so", "outer.so", "noise.so", "crash.py", "leave.py", "no_such_module", "fine.py"]
    given = [word for name in words for word in ("--import", f"./{name}" if "." in name else name)]
    found = doctor(*given, code=1, cwd=tmp_path)
    told = dict(zip(words, found["import"], strict=True))
    assert "another torch" in told["symbol.so"]["text"] and "torch_of_yesterday" in told["symbol.so"]["text"]
    assert torch.__version__ in told["symbol.so"]["text"] and "build ./symbol.so again" in told["symbol.so"]["mend"]
    assert "libdoctor_inner.so is not found" in told["outer.so"]["text"]
    assert told["outer.so"]["mend"] == f"export LD_LIBRARY_PATH={inner.parent}:$LD_LIBRARY_PATH"
    assert "no whole library" in told["noise.so"]["text"]
    assert "dies of SIGSEGV" in told["crash.py"]["text"]
    assert "SystemExit: 3" in told["leave.py"]["text"]
    assert "no_such_module" in told["no_such_module"]["mend"]
    assert told["fine.py"]["state"] == "ok" and wrong(found) == {"import"}
    # What is told mends it.
    assert symbol.exists()
    again = doctor("--import", "./outer.so", code=0, cwd=tmp_path, before=told["outer.so"]["mend"])
    assert again["import"][0]["state"] == "ok"


@pytest.mark.skipif(torch.version.cuda is not None or torch.version.hip is not None, reason="this torch has CUDA")
@pytest.mark.parametrize(
    "device, text, mend",
    [
        ("foo:0", "no device type 'foo'", "--import"),
        ("cuda:0", "built for the CPU alone", "a build for cuda"),
        ("mlu:0", "brought by torch_mlu", "-m pip install torch_mlu"),
        ("sim:99", "sees 2 of this type", "--device sim:0"),
    ],
)
def test_devices_that_are_not_there(device, text, mend):
    found = doctor("--device", device, code=1)
    assert wrong(found) == {"device"}
    assert text in found["device"][0]["text"] and mend in found["device"][0]["mend"]


PLUGIN = """
import torch
class Module:
    @staticmethod
    def is_available(): return False
    @staticmethod
    def device_count(): return 0
torch.utils.rename_privateuse1_backend("npu")
torch._register_device_module("npu", Module)
"""


def test_a_device_that_is_hidden_and_one_without_a_driver(tmp_path):
    (tmp_path / "torch_npu.py").write_text(PLUGIN)
    path = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    found = doctor("--device", "npu:0", code=1, **path, ASCEND_RT_VISIBLE_DEVICES="7")
    assert "hidden: ASCEND_RT_VISIBLE_DEVICES=7" in found["device"][0]["text"]
    assert found["device"][0]["mend"] == "unset ASCEND_RT_VISIBLE_DEVICES"
    found = doctor("--device", "npu:0", code=1, **path)
    assert "there is no /dev/davinci0" in found["device"][0]["text"] and "npu-smi" in found["device"][0]["mend"]


@pytest.mark.parametrize("group", [0, 54321])
def test_a_device_that_one_may_not_use(tmp_path, group):
    """Chapter 11.1 of torch_musa's manual: with sudo the device is seen, without it is not."""
    node, python = tmp_path / "mtgpu.0", tmp_path / "python3"
    node.touch()
    if os.geteuid() == 0:
        os.chown(node, 0, group)
    elif group:
        pytest.skip("root alone gives a file to a group without a name")
    told = f"ulpscope doctor begins here\\nkind\\tRuntimeError\\navailable\\t0\\nnode\\t{node} closed\\n"
    python.write_text(
        f"#!/bin/sh\ncase \"$*\" in *'doctor_probe.py device'*) printf '{told}';;\n"
        f'*) exec {sys.executable} "$@";; esac\n'
    )
    python.chmod(0o755)
    (device,) = doctor("--device", "musa:0", code=1, ULPSCOPE_PYTHON=str(python))["device"]
    assert f"you may not use {node}" in device["text"]
    named = f"usermod -aG {'render' if group else node.group()} $USER"
    assert named in device["mend"] and ("groupadd -o -g 54321 render" in device["mend"]) == bool(group)


def test_a_driver_that_a_container_lacks(tmp_path):
    """Chapter 11.4: its library is an empty file there, or is not there."""
    (tmp_path / "libsrv_um_MUSA.so").touch()
    (tmp_path / "lacks.py").write_text(
        "raise ImportError('libsrv_um_MUSA9.so: cannot open shared object file: No such file or directory')\n"
    )
    given = ("--import", "./libsrv_um_MUSA.so", "--import", "./lacks.py")
    short, gone = doctor(*given, code=1, cwd=tmp_path, container="docker")["import"]
    assert "no whole library" in short["text"] and "MTHREADS_VISIBLE_DEVICES=all" in short["mend"]
    assert "libsrv_um_MUSA9.so is not found" in gone["text"] and "MTHREADS_VISIBLE_DEVICES=all" in gone["mend"]


def test_a_device_that_cannot_add():
    found = doctor("--device", "sim:0", code=1, ULPSCOPE_SIM_FAULTS="*add*:scale:factor=2")
    assert wrong(found) == {"device"} and "adds 1 to [0, 1, 2, 3] and gives" in found["device"][0]["text"]


# ---- symbols: chapter 11.5 of torch_musa's manual, step by step

NEEDS = """namespace at { namespace musa { namespace cub {
template <class T, class U> void exclusive_sum_in_common_type(const T *in, U *out, long n);
void only_declared(int);
void in_an_if(int);
struct Hooks { Hooks(); virtual ~Hooks(); virtual void run(); Hooks operator+(int); };
extern int counter;
}}}
extern "C" int plain_c(int), from_elsewhere(int), nobody(int), named_in_a_macro(int);
void f()
{
    using namespace at::musa::cub;
    exclusive_sum_in_common_type<int, int>(nullptr, nullptr, 3);
    static Hooks h;
    (h + 1).run();
    only_declared(counter);
    in_an_if(plain_c(from_elsewhere(nobody(named_in_a_macro(1)))));
}
"""
TREE = {
    "aten/cub.cu": """#include "cub.h"
namespace at { namespace cuda { namespace cub {
template <class T, class U>
__global__ void __launch_bounds__(256) k(T in, U out) { if (in) out[0] = in[0]; }
template <class T, class U>
void exclusive_sum_in_common_type(const T *in, U *out, int64_t n) { k<<<1, 2>>>(in, out); }
template void exclusive_sum_in_common_type<int, int>(const int *, int *, int64_t);
}}}  // namespace
""",
    "aten/cub.h": """#pragma once
namespace at::cuda::cub {
template <class T, class U> void exclusive_sum_in_common_type(const T *in, U *out, int64_t n);
TORCH_API void only_declared(int);
struct TORCH_API Hooks : public Base { virtual ~Hooks(); virtual void run(); };
extern int counter;
}
""",
    "aten/hooks.cpp": """namespace at::cuda::cub {
static int x{3}, only_declared_too;  // void only_declared(int) {}
enum class E { a, b };
Hooks::Hooks() : a(1), b{2} { only_declared(3); }
Hooks::~Hooks() = default;
void Hooks::run() {}
int counter = 4;
#ifdef NOT_SET
void in_an_if(int) {}
#endif
}
extern "C" { int plain_c(int a) { return a; } }
namespace elsewhere { int nobody(int a) { return a; } }
DEFINE(named_in_a_macro)
""",
}


def symbols_of(lib, *words, code):
    line = [BUILD / "bin" / "ulpscope", "doctor", "--symbols", lib, "--json", *words]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return schemas.one("doctor", done.stdout)["checks"] if code != 2 else done.stderr


def test_each_undefined_symbol_is_told_by_name_and_place(tmp_path):
    for name, text in TREE.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    other = library(tmp_path, "libother.so", "int from_elsewhere(int a) { return a; }\n")
    lib = tmp_path / "libkernels.so"
    line = ["c++", "-shared", "-fPIC", "-x", "c++", "-o", lib]
    subprocess.run([*line, "-"], input=NEEDS, text=True, check=True)
    told = {}
    for check in symbols_of(lib, "--source", tmp_path / "tree", code=1):
        assert check["check"] == "symbol" and check["state"] == "wrong" and check["mend"]
        name, _, where = re.split(r"(: )(?=defined|declared|named)", check["text"], maxsplit=1)
        told[name] = (where, check["mend"])
    cub = "at::musa::cub::"
    expected = {
        f"void {cub}exclusive_sum_in_common_type<int, int>(int const*, int*, long)": "in aten/cub.cu:6, a kernel",
        f"{cub}only_declared(int)": "declared in aten/cub.h:4, defined nowhere",
        f"{cub}in_an_if(int)": "defined in aten/hooks.cpp:9, a file that is not built",
        f"{cub}Hooks::Hooks()": "defined in aten/hooks.cpp:4",
        f"{cub}Hooks::~Hooks()": "aten/hooks.cpp:5",
        f"{cub}Hooks::run()": "defined in aten/hooks.cpp:6",
        f"{cub}Hooks::operator+(int)": "defined nowhere",
        f"{cub}counter": "defined in aten/hooks.cpp:7",
        "plain_c": "defined in aten/hooks.cpp:12",
        "from_elsewhere": f"defined in {other}, which is not linked",
        "nobody": "elsewhere",
        "named_in_a_macro": "named in aten/hooks.cpp:14",
    }
    assert "ulpscope port" in told[next(iter(expected))][1] and "an #if" in told[f"{cub}in_an_if(int)"][1]
    assert told["from_elsewhere"][1] == f"link it: -L{tmp_path} -lother"
    for name, where in expected.items():
        assert name in told, told
        assert where in told[name][0] or name == "nobody", (name, told[name])
    # What is told mends it, and what is linked is asked for what it has.
    rest = NEEDS.replace("nobody(named_in_a_macro(1))", "1")
    built = (
        "".join(
            f"namespace at::musa::cub {{ {text} }}\n"
            for text in (
                "void only_declared(int) {} void in_an_if(int) {} int counter;",
                "Hooks::Hooks() {} Hooks::~Hooks() {} void Hooks::run() {}",
                "Hooks Hooks::operator+(int) { return *this; }",
                "template <> void exclusive_sum_in_common_type(const int *, int *, long) {}",
            )
        )
        + 'extern "C" int plain_c(int a) { return a; }\n'
    )
    words = [f"-L{tmp_path}", "-lother", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(
        [*line, "-", "-x", "none", *words], input=rest.replace("void f()", built + "void f()"), text=True, check=True
    )
    (fine,) = symbols_of(lib, code=0)
    assert fine["state"] == "ok" and "all" in fine["text"]
    other.unlink()
    gone, unseen = symbols_of(lib, code=1)
    assert gone["check"] == "library" and "libother.so" in gone["text"] and gone["mend"]
    assert unseen["state"] == "ok" and "1 were seen nowhere" in unseen["text"]


def test_libraries_that_are_none_are_sentences(tmp_path):
    whole = library(tmp_path, "whole.so", "extern int g(void); int f(void) { return g(); }\n").read_bytes()
    broken = tmp_path / "broken.so"
    for text, said in ((b"", "too short"), (b"no library" * 100, "does not begin as one"), (whole[:200], "no whole")):
        broken.write_bytes(text)
        assert said in symbols_of(broken, code=2)
    assert "No such file" in symbols_of(tmp_path / "gone.so", code=2)
    assert "gone" in symbols_of(tmp_path / "whole.so", "--source", tmp_path / "gone", code=2)
    rng = random.Random(5)
    for _ in range(60):
        bytes_ = bytearray(whole)
        for _ in range(20):
            bytes_[rng.choice([rng.randrange(64), rng.randrange(len(whole)), len(whole) - 1 - rng.randrange(2000)])] = (
                rng.randrange(256)
            )
        broken.write_bytes(bytes_)
        done = subprocess.run(
            [BUILD / "bin" / "ulpscope", "doctor", "--symbols", broken], capture_output=True, timeout=60
        )
        assert done.returncode in (0, 1, 2), done.stderr


def test_misuse_is_a_sentence():
    for words, said in (
        (["x"], "no argument 'x'"),
        (["--device", ""], "names no device"),
        (["--source", "."], "--source is of --symbols"),
        (["--symbols", "x.so", "--device", "sim:0"], "leave out --device"),
    ):
        done = subprocess.run(
            [BUILD / "bin" / "ulpscope", "doctor", *words], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2 and said in done.stderr
