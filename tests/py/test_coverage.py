# SPDX-License-Identifier: Apache-2.0
"""`ulpscope coverage`: what a device has of a captured step, of an honest one, of one that lacks
operators, falls back or dies; what is kept of it; and what cannot be asked."""

import json
import os
import re
import subprocess
import sys

import pytest
import schemas

STEP = """
import sys, torch
import ulpscope.sim
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to("sim:0")
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.randn(5, 8, device="sim:0")).softmax(-1).square().sum().backward()
    opt.step()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coverage")
    (folder / "step.py").write_text(STEP)
    done = ulpscope(
        folder, "capture", "-o", folder / "trace", "--data", "stats", "--", sys.executable, folder / "step.py"
    )
    assert done.returncode == 0, done.stderr
    return folder


def ulpscope(folder, *args, **variables):
    glue = os.environ.get("ULPSCOPE_CACHE")
    cache = folder / "cache"
    if glue and not cache.exists():  # the compiled glue is found there, what devices said is not
        cache.mkdir()
        for entry in os.scandir(glue):
            if entry.name != "coverage":
                (cache / entry.name).symlink_to(entry.path)
    env = os.environ | {"ULPSCOPE_CACHE": str(cache if glue else "")} | variables
    return subprocess.run(["ulpscope", *map(str, args)], capture_output=True, text=True, env=env, timeout=600)


def covered(place, *options, device="sim:0"):
    done = ulpscope(place, "coverage", place / "trace", "--device", device, "--json", *options)
    assert done.stdout, done.stderr
    found = schemas.one("coverage", done.stdout)
    return done.returncode, found, {r["op"]: r for r in found["operators"]}


def test_the_page_holds_what_the_json_says(place, tmp_path):
    page = tmp_path / "page.html"
    _, found, _ = covered(place, "--faults", "gelu:lacking", "--share", "100", "--html", page)
    text = page.read_text()
    data = re.search(r'id="data">(.*?)</script>', text, re.S).group(1)
    assert json.loads(data) == found and "<" not in data and "aten::gelu" in found["next"]
    done = ulpscope(place, "coverage", place / "trace", "--device", "sim:0", "--html", tmp_path / "no" / "x.html")
    assert done.returncode == 2 and "No such file" in done.stderr


def test_an_honest_device_has_all_but_what_torch_hands_to_the_cpu(place):
    code, found, ops = covered(place)
    assert ops["aten::mm"]["way"] == ops["aten::gelu"]["way"] == "native"
    assert {r["way"] for r in found["operators"]} <= {"native", "fallback"}
    assert code == (1 if any(r["way"] != "native" for r in found["operators"]) else 0)
    assert found["calls"] == sum(r["calls"] for r in found["operators"]) > 20
    assert found["cpu_seconds"] > 0 and ops["aten::mm"]["dtypes"] == "float32"


@pytest.mark.parametrize(
    ("fault", "op", "way", "words"),
    [
        ("mm:lacking", "aten::mm", "lacking", "no such operator"),
        ("gelu:cpu_fallback", "aten::gelu", "fallback", "warning"),
        ("_softmax:crash", "aten::_softmax", "died", "SIGSEGV"),
    ],
)
def test_what_a_device_does_not_have_is_told_and_asked_for(place, fault, op, way, words):
    code, found, ops = covered(place, "--faults", fault, "--share", "100")
    assert code == 1 and ops[op]["way"] == way and words in ops[op]["why"]
    assert op in found["next"]
    assert ops["aten::sum"]["way"] == "native"  # a device that died is replaced


def test_the_list_of_what_to_write_is_the_shortest(place):
    both = ";".join(f"{op}:cpu_fallback" for op in ("mm", "addmm", "aten::t", "aten::sum"))
    whole = covered(place, "--faults", both, "--share", "100")[1]
    half = covered(place, "--faults", both, "--share", "60")[1]
    assert len(half["next"]) < len(whole["next"]) and set(half["next"]) <= set(whole["next"])
    weight = lambda r, f: max(r["calls"] / f["calls"], r["cpu_seconds"] / f["cpu_seconds"])  # noqa: E731
    lacked = {}
    for row in half["operators"]:
        if row["way"] != "native":
            lacked[row["op"]] = lacked.get(row["op"], 0) + weight(row, half)
    if half["next"]:
        assert lacked[half["next"][0]] >= max(lacked.values()) * 0.5  # the costliest comes first
    assert covered(place, "--faults", both, "--share", "0")[1]["next"] == []
    stops = covered(place, "--faults", f"{both};aten::gelu:lacking", "--share", "0")[1]
    assert stops["next"] == ["aten::gelu"]  # without which no step runs, however small its share


def test_what_is_known_of_a_device_is_kept_for_that_device(place):
    first = covered(place, "--ops", "gelu")[2]["aten::gelu"]
    files = list((place / "cache" / "coverage").iterdir()) if (place / "cache").exists() else []
    again = covered(place, "--ops", "gelu")[2]["aten::gelu"]
    assert again == first  # the very seconds: nothing ran
    assert covered(place, "--ops", "gelu", "--fresh")[2]["aten::gelu"]["way"] == "native"
    assert covered(place, "--ops", "gelu", "--faults", "gelu:lacking")[2]["aten::gelu"]["way"] == "lacking"
    for file in files:  # damaged: what cannot be read is asked again
        file.write_bytes(b"\xff{" + file.read_bytes()[:7])
    assert covered(place, "--ops", "gelu")[2]["aten::gelu"]["way"] == "native"


def test_words_and_refusals(place):
    said = ulpscope(place, "coverage", place / "trace", "--device", "sim:0", "--faults", "mm:lacking", "--share", "100")
    assert said.returncode == 1
    for words in ("lacking", "aten::mm (float32): ", "calls natively", "of the CPU time", "write next:"):
        assert words in said.stdout, (words, said.stdout)
    assert "native " not in said.stdout.split("sim:0 runs")[0]
    n_tried, n_shown = (int(re.search(p, said.stdout)[1]) for p in (r"of (\d+) calls", r"\n(\d+) were"))
    listed = ulpscope(place, "show", place / "trace", "--json").stdout.splitlines()
    assert len(listed) == n_shown > n_tried, said.stdout  # why not all of them is said
    assert "native " in ulpscope(place, "coverage", place / "trace", "--device", "sim:0", "--all").stdout
    for options, words in [
        ((), "--device is needed"),
        (("--device", "npu:0"), "is not there"),
        (("--device", "cpu", "--ops", "nothing"), "nothing to try"),
        (("--device", "cpu", "--share", "x"), "percent are needed"),
        (("--device", "cpu", "more"), "one trace is needed"),
    ]:
        done = ulpscope(place, "coverage", place / "trace", *options)
        assert done.returncode == 2 and words in done.stderr, (options, done.stderr)
    gone = ulpscope(place, "coverage", place / "nowhere", "--device", "cpu")
    assert gone.returncode == 2 and "nowhere" in gone.stderr
