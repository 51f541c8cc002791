# SPDX-License-Identifier: Apache-2.0
"""After a result a terminal is told what to type next, and nobody else is."""

import os
import subprocess
import sys
import textwrap

import pytest

STEP = """
    import sys, torch
    w = torch.nn.Parameter(torch.linspace(-1, 1, 64).reshape(8, 8))
    optimizer = torch.optim.SGD([w], lr=0.1)
    for step in range(2):
        y = torch.nn.functional.gelu(torch.linspace(-2, 2, 64).reshape(8, 8).to(sys.argv[1]) @ w.to(sys.argv[1]))
        (y / float(sys.argv[2])).sum().backward()
        optimizer.step()
"""


def said(folder, *words, faults=""):
    """What `ulpscope` says on a terminal, and its exit code."""
    ours, theirs = os.openpty()
    run = subprocess.Popen(
        ["ulpscope", *words],
        cwd=folder,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "ULPSCOPE_SIM_FAULTS": faults},
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # all have closed it
            break
        if not more:
            break
        text += more
    os.close(ours)
    return text.decode(errors="replace").replace("\r\n", "\n"), run.wait(timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("next")
    (folder / "step.py").write_text(textwrap.dedent(STEP))
    return folder


def capture(folder, name, *options, device="cpu", by="1", faults=""):
    return said(
        folder,
        "capture",
        "-o",
        name,
        "--steps",
        "0",
        *options,
        "--",
        sys.executable,
        "step.py",
        device,
        by,
        faults=faults,
    )


def test_a_capture_is_checked_or_covered(folder):
    text, code = capture(folder, "a")
    assert code == 0 and text.splitlines()[-1] == "next: ulpscope check a --device DEVICE", text
    text, code = capture(folder, "s", "--data", "stats")
    assert code == 0 and text.splitlines()[-1] == "next: ulpscope coverage s --device DEVICE", text


def test_the_call_at_which_runs_part_is_handed_on(folder):
    capture(folder, "one", device="sim")
    capture(folder, "two", device="sim", faults="aten::gelu:bf16_output")
    text, code = said(folder, "diff", "one", "two")
    assert code == 1 and "next: ulpscope repro two#" in text, text
    text, code = said(folder, "diff", "two", "one")
    assert code == 1 and "next: ulpscope repro two#" in text, text
    text, code = said(folder, "diff", "two", "one", "--json")
    assert code == 1 and "next:" not in text, text


def test_a_nan_is_told_with_what_led_to_it_next(folder):
    words = ["run", "--nan", "--", sys.executable, "step.py", "cpu", "0"]
    text, code = said(folder, *words)
    assert code == 1 and "next: ulpscope run --nan --keep 1000 -- " in text, text
    text, code = said(folder, "run", "--nan", "--", sys.executable, "-c", "import torch; torch.ones(2) + 1; 1 / 0")
    assert code == 1 and "next:" not in text, text  # the program's own end
    plain = subprocess.run(["ulpscope", *words], cwd=folder, capture_output=True, text=True, timeout=300)
    assert plain.returncode == 1 and "next:" not in plain.stdout + plain.stderr


def test_a_pack_is_computed_elsewhere_and_judged(folder):
    capture(folder, "p")
    text, code = said(folder, "pack", "p", "-o", "packed", "--ops", "*gelu")
    assert code == 0 and text.splitlines()[-1].endswith("then ulpscope judge packed OUTPUTS"), text
    assert "ulpscope pack: reading" in text  # nothing is silent, from the first moment on
