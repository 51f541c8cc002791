# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around a fuzz run is a sentence and costs a case: devices that die, hang, run out of memory, lack an
operator, answer otherwise each time or raise what nobody knows; generators and texts with mistakes; folders of others.
(Two on one folder, OUT of another run: test_fuzz.py. Specifications: test_fuzz_search.py.)"""

import json
import subprocess

import pytest

import ulpscope.sim  # noqa: F401  # before any backward: torch's engine counts its devices once
from ulpscope.fuzzing import call, fuzz, ints, layer, tensor, torch

DEVICE = """
import os, time, torch
n = 0

def device(op, args, kwargs):
    global n
    name, n = str(op).split(".")[1], n + 1
    if name == "exp":
        time.sleep(600)
    if name == "sin":
        os.kill(os.getpid(), 11)
    if name == "tanh":
        raise torch.OutOfMemoryError("tried to allocate 20 GiB")
    if name == "gather":
        raise NotImplementedError("Could not run 'aten::gather' on double")
    if name == "sqrt":
        raise KeyError("odd")
    out = op(*args, **kwargs)
    return out * 1.5 if name == "cos" and n % 2 else out
"""
SHAPES = {"exp": [4], "sin": [4], "tanh": [4], "cos": [4], "sqrt": [4], "neg": [4], "bernoulli": [400]}
# Operator -> (verdict, part of the sentence).
SAID = {
    "exp": ("timeout", "no answer from the device in 2 s"),
    "sin": ("crashed", "the device's process died of SIGSEGV"),
    "tanh": ("unsupported", "tried to allocate 20 GiB"),
    "cos": ("intermittent", ""),
    "gather": ("unsupported", "Could not run 'aten::gather' on double"),
    "sqrt": ("unjudged", "could not be run, KeyError: 'odd'"),
    "neg": ("pass", ""),
    "bernoulli": ("pass", ""),
}


def run(folder, *words, code=0):
    done = subprocess.run(
        ["ulpscope", "fuzz", "-j", "1", *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_each_bad_device_costs_its_case_and_says_why(tmp_path):
    lines = [{"op": f"aten::{op}", "args": [{"shape": shape, "range": [0, 1]}]} for op, shape in SHAPES.items()]
    lines.append(
        {"op": "aten::gather", "args": [{"shape": [5, 7]}, 1, {"shape": [5, 3], "dtype": "int64", "range": [0, 7]}]}
    )
    (tmp_path / "spec.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "double.py").write_text(DEVICE)
    words = (
        "--device",
        "python:double:device",
        "--spec",
        "spec.jsonl",
        "--cases",
        "8",
        "--timeout",
        "2",
        "--causes",
        "off",
    )
    done = run(tmp_path, *words, code=1)
    rows = {
        r["op"].removeprefix("aten::"): r
        for r in json.loads((tmp_path / "ulpscope-fuzz" / "result.json").read_text())["calls"]
    }
    assert set(rows) == set(SAID), "none is lost"
    for op, (verdict, words) in SAID.items():
        assert rows[op]["verdict"] == verdict and words in rows[op]["sentence"], rows[op]
    assert "a case again: ulpscope fuzz replay 0:" in done.stdout
    (tmp_path / "file").write_text("mine")
    done = run(tmp_path, "--device", "cpu", "--spec", "spec.jsonl", "--cases", "1", "-o", "file", code=2)
    assert "file" in done.stderr and (tmp_path / "file").read_text() == "mine"


few = {"n": 2, "cause": False}


def raises():
    return tensor(ints(0, 9).map(lambda n: 1 // 0))


def misspelt():
    return torch.matmull(tensor(3), tensor(3))


def unsatisfied():
    return tensor(ints(1, 9).where(lambda n: n > 20))


def float_indices():
    return tensor(3, values="index")


def nothing_returned():
    tensor(3)


def no_memory():
    return call(lambda x: x if x.device.type == "cpu" else out_of_memory(), tensor(3))


def out_of_memory():
    raise torch.OutOfMemoryError("tried to allocate 20 GiB")


def other_class():
    return call(lambda x: missing(ValueError if x.device.type == "cpu" else KeyError), tensor(3))


def missing(kind):
    raise kind("no")


TEXTS = {
    "a generator that raises": (
        raises,
        ValueError,
        "the last is refused: a generator raises ZeroDivisionError: .*; narrow what is drawn",
    ),
    "a generator that finds nothing": (
        unsatisfied,
        ValueError,
        "where.*: no draw of 200 satisfies the condition: widen",
    ),
    "a word that torch has not": (misspelt, AttributeError, "matmull"),
    "values of a kind that is none": (
        lambda: tensor(3, values="normall"),
        AttributeError,
        "values='normall' is none of all-zeros, ",
    ),
    "a layout that is none": (
        lambda: tensor(3, layout="slice"),
        AttributeError,
        "layout='slice' is none of any, channels_last, ",
    ),
    "indices that are floats": (
        float_indices,
        ValueError,
        "values='index' are whole numbers: give dtype=torch.int64, not torch.float32",
    ),
    "a text that returns nothing": (nothing_returned, ValueError, "none of 2 cases could be judged"),
    "no memory on the device": (
        no_memory,
        AssertionError,
        "it raises OutOfMemoryError where the CPU gives a result: tried to allocate",
    ),
    "another class of exception": (
        other_class,
        AssertionError,
        "it raises KeyError .* where the CPU raises ValueError",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_bad_text_is_one_sentence(name):
    text, kind, words = TEXTS[name]
    with pytest.raises(kind, match=words) as failure:
        fuzz(text, **few)()
    assert kind is AttributeError or text.__name__ in str(failure.value)


def test_what_draws_random_numbers_is_judged_by_its_law_and_what_only_does_so_now_and_then_is_not():
    fuzz(lambda: torch.nn.functional.dropout(tensor(400, values="normal"), 0.5), **few)()
    fuzz(lambda: layer(torch.nn.Dropout, 0.3)(tensor(400, values="normal")), **few)()
    runs = [0]

    def unsteady(x):
        runs[0] += x.device.type != "cpu"
        return x.neg() * (1.5 if x.device.type != "cpu" and runs[0] % 2 else 1)

    with pytest.raises(AssertionError, match="intermittent|wrong"):
        fuzz(lambda: call(unsteady, tensor(40, values="normal")), **few)()
