# SPDX-License-Identifier: Apache-2.0
"""What a live check brings to the process that judges: references that the program registers, files that
register operators; what it knows nothing of is counted and said."""

import subprocess
import sys

import pytest

import ulpscope

SCRIPT = """
import sys, torch, ulpscope
library = torch.library.Library("scripted", "DEF")
library.define("norm(Tensor x, float eps) -> Tensor")
library.define("other(Tensor x) -> Tensor")
off = 1 + float(sys.argv[1])
def kernel(x, eps):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * off).to(x.dtype)
library.impl("norm", kernel, "CPU")
library.impl("other", lambda x: x.exp(), "CPU")
def squares(x):
    return x.square().mean(-1, keepdim=True)
if sys.argv[2] == "registered":
    @ulpscope.reference.register("scripted::norm")
    def norm(x, eps):
        return x * torch.rsqrt(squares(x) + eps)
with ulpscope.live_check(ops="scripted::*,mm", imports=sys.argv[3:]) as live:
    x = torch.randn(64, 128)
    for _ in range(3):
        torch.ops.scripted.norm(x, 1e-6)
        torch.ops.scripted.other(x)
    torch.mm(x, x.t())
found = sorted({f"{f.op} {f.verdict}" for f in live.findings()})
print(*found, live.judged, live.n_judged, live.unjudged, live.skipped, sep="|")
print(live.summary().splitlines()[-1])
"""


def scripted(tmp_path, *arguments):
    """The last two lines of the script above: what was found and counted; what was not judged."""
    (tmp_path / "scripted.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "scripted.py", *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-2:]


def test_what_was_not_judged_is_counted_and_said(tmp_path):
    counted, last = scripted(tmp_path, "0.01", "not")
    assert counted == "1|1|6|0", counted
    assert last.startswith("not judged: scripted::norm 3 calls (operator scripted::norm is unknown here; ")
    assert "; scripted::other 3 calls (" in last and "live_check(imports=[...])" in last


def test_a_reference_that_the_program_registers_is_handed_to_the_judge(tmp_path):
    counted, last = scripted(tmp_path, "0.01", "registered")
    assert counted in ("scripted::norm wrong|4|4|3|0", "scripted::norm reduced|4|4|3|0"), counted
    assert last.startswith("not judged: scripted::other 3 calls (")
    assert scripted(tmp_path, "0", "registered")[0] == "4|4|3|0"


def test_the_judge_imports_what_it_is_told(tmp_path):
    (tmp_path / "brought.py").write_text(
        "import torch, ulpscope\n"
        "library = torch.library.Library('scripted', 'DEF')\n"
        "library.define('norm(Tensor x, float eps) -> Tensor')\n"
        "library.define('other(Tensor x) -> Tensor')\n"
        "library.impl('other', lambda x: x.exp(), 'CPU')\n"
        "@ulpscope.reference.register('scripted::norm')\n"
        "def norm(x, eps):\n"
        "    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)\n"
    )
    counted = scripted(tmp_path, "0.01", "not", "brought.py")[0]
    assert counted in ("scripted::norm reduced|7|7|0|0", "scripted::norm wrong|7|7|0|0")
    with pytest.raises(ValueError, match="a list of modules"):
        ulpscope.live_check(imports="brought.py")


BROUGHT = """
import torch
library = torch.library.Library("brought", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.define("squared(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2.01, "CPU")
library.impl("squared", lambda x: x.float().square().to(x.dtype), "CPU")
"""
BRINGS = """
import sys, torch, ulpscope, brought
@ulpscope.reference.register("brought::twice")
def twice(x):
    return x * 2
if __name__ == "__main__":
    with ulpscope.live_check(ops="brought::*", imports=sys.argv[1:]) as live:
        for _ in range(2):
            torch.ops.brought.twice(torch.randn(64))
            torch.ops.brought.squared(torch.randn(64))
    print(*sorted({f"{f.op} {f.verdict}" for f in live.findings()}), live.judged, live.unjudged, sep="|")
    print(live.summary().splitlines()[-1])
"""


@pytest.mark.parametrize("named", [[], ["brought"], ["brought.py"]])
def test_a_reference_for_one_operator_leaves_the_others_of_its_file_known(tmp_path, named):
    """The judge has a reference before it has the file that registers the operator: neither is in the other's way,
    and the file, by whatever names it comes, is run once."""
    (tmp_path / "brought.py").write_text(BROUGHT)
    (tmp_path / "brings.py").write_text(BRINGS)
    done = subprocess.run([sys.executable, "brings.py", *named], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    counted, last = done.stdout.splitlines()[-2:]
    assert counted == "brought::twice wrong|4|0" and "not judged" not in last, (counted, last)
