# SPDX-License-Identifier: Apache-2.0
"""An output that nobody can judge does not hide beside those that pass: the verdict names it, whoever judges says
so in its last line, JSON lists it, and it counts where calls that are not judged do."""

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
from safetensors.torch import save_file

import ulpscope
from ulpscope import judge_call
from ulpscope.testing import assert_accurate

BOTH = """
import torch
library = torch.library.Library("beside", "DEF")
library.define("both(Tensor x) -> (Tensor, Tensor, Tensor)")
library.impl("both", lambda x: (torch.linalg.inv(x), x.exp(), x.sin()), "CPU")

def singular():
    drawn = (torch.randn(16, 16, generator=torch.Generator().manual_seed(i)).double() for i in (1, 2))
    left, right = (torch.linalg.qr(x)[0] for x in drawn)
    return (left * torch.logspace(0, -9, 16, dtype=torch.float64) @ right).float()
"""

RUN = """
import sys, torch, both, ulpscope
factor = float(sys.argv[2])
x = both.singular()
if factor == 0:  # one rounding more, in what nobody can judge
    near = lambda x: (torch.linalg.inv(x).nextafter(x * 0), x.exp(), x.sin())
    both.library.impl("both", near, "CPU", allow_override=True)
elif factor != 1:
    both.library.impl("both", lambda x: (torch.linalg.inv(x), x.exp() * factor, x.sin()), "CPU", allow_override=True)
with ulpscope.capture(sys.argv[1]):
    torch.ops.beside.both(x)
"""

LIVE = """
import torch, both, ulpscope
with ulpscope.live_check(ops="beside::*", imports=["both.py"]) as live:
    torch.ops.beside.both(both.singular())
print(len(live.findings()), live.judged, live.unjudged)
print(live.summary().splitlines()[-1])
"""

LAST = "not judged: beside::both 1 call (out[0]: ill-conditioned: "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("left")
    for name, text in (("both.py", BOTH), ("run.py", RUN), ("live.py", LIVE)):
        (path / name).write_text(text)
    for name, factor in (("trace", "1"), ("other", "1.01"), ("near", "0")):
        subprocess.run([sys.executable, "run.py", name, factor], cwd=path, check=True)
    return path


def singular(folder):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    import both

    return both.singular()


def ulpscope_run(folder, *words):
    done = subprocess.run(["ulpscope", *words], cwd=folder, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    return done


def check(folder, out, *more):
    return ulpscope_run(folder, "check", "trace", "--device", "cpu", "--import", "both.py", "-j", "1", "-o", out, *more)


def test_a_check_says_it(folder):
    done = check(folder, "out")
    assert done.returncode == 0, "it is held to what float32 leaves of it"
    assert "; 1 with an output that is not judged" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(LAST)
    said = json.loads((folder / "out" / "result.json").read_text())
    [found] = said["findings"]
    assert found["verdict"] == "unjudged" and found["reason"].startswith("out[0]: ill-conditioned")
    assert "; not judged: out[0]: ill-conditioned" in (folder / "out" / "result.csv").read_text()
    for words, code in (
        (["--min-judged", "0"], 0),
        (["--min-judged", "0", "--strict"], 1),
        (["--allow", "unjudged:beside::*"], 0),
        (["--strict", "--allow", "unjudged:beside::*"], 0),
    ):
        assert ulpscope_run(folder, "report", "out", *words).returncode == code, words


def test_a_pack_says_it(folder):
    packed = ulpscope_run(folder, "pack", "trace", "-o", "pack", "--import", "both.py", "-j", "1")
    assert packed.returncode == 0
    names = json.loads((folder / "pack" / "pack.json").read_text())["calls"][0]["outputs"]
    outputs = inverse_beside(singular(folder))
    save_file({o["name"]: t.contiguous() for o, t in zip(names, outputs, strict=True)}, folder / "outputs.safetensors")
    done = ulpscope_run(folder, "judge", "pack", "outputs.safetensors", "-o", "judged")
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith(LAST)


def test_a_diff_says_it(folder):
    done = ulpscope_run(folder, "diff", "trace", "other", "--own", "--import", "both.py", "--allow", "unjudged")
    assert done.returncode == 1 and done.stdout.splitlines()[-1].startswith(LAST)
    done = ulpscope_run(folder, "diff", "trace", "near", "--import", "both.py")
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith(LAST), done.stdout


def test_a_live_check_says_it(folder):
    done = subprocess.run([sys.executable, "live.py"], cwd=folder, capture_output=True, text=True)
    counted, last = done.stdout.splitlines()[-2:]
    assert counted == "0 1 1" and last.startswith(LAST), done.stdout + done.stderr


# ---- in a program ----------------------------------------------------------------------------


def inverse_beside(x):
    return torch.linalg.inv(x), x.exp(), x.sin()


def test_a_verdict_names_it(folder):
    x = singular(folder)
    for found in (
        judge_call(inverse_beside, (x,), outputs=inverse_beside(x), cause=False),
        ulpscope.check_call(inverse_beside, (x,), cause=False),
    ):
        assert found.verdict == "pass" and found.not_judged == ["out[0]"]
        assert "; not judged: out[0]: ill-conditioned" in found.sentence
    for allow in ("", "unjudged:out[1]"):
        with pytest.raises(AssertionError, match=r"not judged: out\[0\](.|\n)*allow=\"unjudged:out\[0\]\""):
            assert_accurate(inverse_beside, None, x, allow=allow)
    for allow in ("unjudged", "unjudged:out[2], out[0]"):
        with pytest.warns(UserWarning, match=r"not judged: out\[0\]"):
            assert_accurate(inverse_beside, None, x, allow=allow)
    with pytest.raises(AssertionError, match="wrong"):
        assert_accurate(lambda x: (x.inverse(), x.exp() * 1.2, x.sin()), inverse_beside, x, allow="unjudged")
    with pytest.raises(ValueError, match="unjudged:out"):
        assert_accurate(inverse_beside, None, x, allow="wrong")
    wrong = judge_call(inverse_beside, (x,), outputs=(x.inverse(), x.exp() * 1.2, x.sin()), cause=False)
    assert wrong.verdict == "wrong" and "; not judged: out[0]" in wrong.sentence, wrong.sentence
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_accurate(lambda x: (x.exp(), x.sin()), None, x)


def test_the_plugin_says_it(folder):
    (folder / "test_one.py").write_text(
        "import both, torch\n"
        "import pytest\n"
        "def call(check):\n"
        "    check(lambda x: (torch.linalg.inv(x), x.exp(), x.sin()), None, both.singular())\n"
        "def test_one(ulpscope_check):\n"
        "    call(ulpscope_check)\n"
        "@pytest.mark.ulpscope(allow='unjudged:out[0]')\n"
        "def test_two(ulpscope_check):\n"
        "    call(ulpscope_check)\n"
    )
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "ulpscope.pytest_plugin",
        "--ulpscope-report",
        "shown",
        "test_one.py",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)
    assert "2 calls judged" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout and 'allow="unjudged:out[0]"' in done.stdout, done.stdout
    assert "not judged: " in done.stdout and "out[0]: ill-conditioned" in done.stdout
