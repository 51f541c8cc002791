# SPDX-License-Identifier: Apache-2.0
"""`ulpscope doctor`: each kind of trouble is planted and must be named, with a command that mends
it; what is whole is called well."""

from __future__ import annotations

import os
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


def test_a_device_that_cannot_add():
    found = doctor("--device", "sim:0", code=1, ULPSCOPE_SIM_FAULTS="*add*:scale:factor=2")
    assert wrong(found) == {"device"} and "adds 1 to [0, 1, 2, 3] and gives" in found["device"][0]["text"]


def test_misuse_is_a_sentence():
    for words, said in ((["x"], "no argument 'x'"), (["--device", ""], "names no device")):
        done = subprocess.run(
            [BUILD / "bin" / "ulpscope", "doctor", *words], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2 and said in done.stderr
