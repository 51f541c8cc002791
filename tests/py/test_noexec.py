# SPDX-License-Identifier: Apache-2.0
"""A /tmp from which nothing runs, as hardened machines mount it: all works with the cache elsewhere, and a cache
in it is told with the way on, before anything is compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import schemas

COLD = "the warm server's processes see the /tmp of the machine"

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")).resolve()
PROGRAM = str(BUILD / "bin" / "ulpscope")
# In a mount namespace of its own: nobody else's /tmp changes, and what lies in it stays there.
INSIDE = 'mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp && exec "$@"'
TRAIN = """
import torch, ulpscope.sim
model = torch.nn.Linear(8, 8).to("sim:0")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4, 8, device="sim:0")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def noexec(*words, **options):
    """What a program gives where /tmp is mounted noexec."""
    env = os.environ | {"TMPDIR": "/tmp", "ULPSCOPE_PYTHON": sys.executable} | options.pop("env", {})
    line = ["unshare", "-m", "sh", "-c", INSIDE, "sh", *map(str, words)]
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=900, **options)


@pytest.fixture
def folder(tmp_path):
    """A folder in that /tmp. Skips where none can be mounted."""
    if not tmp_path.is_relative_to("/tmp") or any(p.is_relative_to("/tmp") for p in (ROOT, BUILD)):
        pytest.skip("of the tests' folder and the build's, the first alone is to lie in /tmp")
    program = tmp_path / "true"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = noexec("sh", "-c", 'echo mounted; exec "$0"', program)
    if "mounted" not in done.stdout:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    assert done.returncode == 126, "a program in it runs"
    subprocess.run([program], check=True)  # and outside it does still
    return tmp_path


def test_a_check_needs_nothing_that_runs_from_it(folder):
    (folder / "train.py").write_text(TRAIN)
    done = noexec(PROGRAM, "capture", "-o", "trace", "--", sys.executable, "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = noexec(PROGRAM, "check", "trace", "--device", "sim:0", "-o", "out", cwd=folder)
    assert done.returncode == 0 and "none of" in done.stdout, done.stdout + done.stderr
    assert (folder / "out/result.json").exists()


def test_a_cache_in_it_is_told_with_its_variable(folder):
    cache = folder / "cache"
    way_on = "mounted noexec; set ULPSCOPE_CACHE to a folder from which programs run"
    env = {"ULPSCOPE_CACHE": str(cache)}
    (folder / "train.py").write_text(TRAIN)
    for words in (["-m", "ulpscope.program.glue", "intercept"], ["-m", "ulpscope", "capture", "--", sys.executable]):
        done = noexec(sys.executable, *words, *(["train.py"] if "capture" in words else []), cwd=folder, env=env)
        assert done.returncode != 0 and way_on in done.stderr, done.stderr
        assert not list(cache.rglob("*.so")) and not list(cache.rglob("*.o")), "it was compiled first"


def test_what_a_compiler_leaves_in_it_is_told_with_its_variable(folder):
    """As it is by default: Inductor's kernels lie in a folder of /tmp."""
    call = "ulpscope.check_call(torch.sin, (torch.ones(64),), via='inductor')"
    program = f"import torch, ulpscope\nprint({call})\n"
    env = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "kernels")}
    done = noexec(sys.executable, "-c", program, cwd=folder, env=env)
    assert "mounted noexec; set TORCHINDUCTOR_CACHE_DIR" in done.stdout + done.stderr, done.stdout + done.stderr
    assert "unsupported" in done.stdout + done.stderr


def test_doctor_tells_of_it(folder):
    env = {"ULPSCOPE_CACHE": str(folder / "cache"), "ULPSCOPE_PYTHON": "/nonexistent/python3"}
    done = noexec(PROGRAM, "doctor", "--json", env=env)
    (found,) = [f for f in schemas.one("doctor", done.stdout)["checks"] if f["check"] == "cache"]
    assert done.returncode == 1 and found["state"] == "wrong", found
    assert "mounted noexec" in found["text"] and "ULPSCOPE_CACHE" in found["mend"]
    there = subprocess.run([PROGRAM, "doctor", "--json"], env=os.environ | env, capture_output=True, text=True)
    (found,) = [f for f in schemas.one("doctor", there.stdout)["checks"] if f["check"] == "cache"]
    assert found["state"] != "wrong", found  # the same folder, mounted as it was
