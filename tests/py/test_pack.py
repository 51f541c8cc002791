# SPDX-License-Identifier: Apache-2.0
"""Verdicts without a device: what `ulpscope judge` says of the outputs in files is what a
check says of the same outputs, honest and faulty; packs and outputs that are not as they
must be are said to be so."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import packs
import plain_tensors
import pytest
import run_pack
import torch
from packs import BUILD, assert_same, changed, judge, number_of, numbers_of
from traces import TraceWriter

import ulpscope.sim as sim
from ulpscope import _core

packed, honest = packs.packed, packs.honest  # fixtures


def test_honest_outputs_get_the_verdicts_of_a_check(packed, honest, tmp_path):
    assert assert_same(packed, honest, tmp_path / "out") == set()


@pytest.mark.parametrize(
    "kind", ["tf32", "bf16_inputs", "bf16_output", "scale", "bit_flip", "nan", "drop_tail", "truncate", "swap_two"]
)
def test_faulty_outputs_get_the_verdicts_of_a_check(packed, tmp_path, kind):
    operators = "aten::mm,aten::mul,aten::gelu,aten::_softmax,aten::add_,aten::sum,aten::relu"
    with sim.fault(operators, kind):
        run_pack.main(packed / "pack", tmp_path / "outputs", "sim:0")
    assert assert_same(packed, tmp_path / "outputs", tmp_path / "out")


@pytest.mark.parametrize(
    "kind, words",
    [
        ("drop_tail", "not written|(is|are) zero"),
        ("scale", "is multiplied by"),
        ("nan", "spurious NaN"),
        ("swap_two", "change places|exchanged"),
        ("bit_flip", "^bit|sign of one"),
    ],
)
def test_what_the_files_show_is_named(packed, tmp_path, kind, words):
    operators = "aten::mm,aten::mul,aten::gelu,aten::_softmax,aten::add_,aten::sum,aten::relu"
    with sim.fault(operators, kind):
        run_pack.main(packed / "pack", tmp_path / "outputs", "sim:0")
    _, got = judge(packed / "pack", tmp_path / "outputs", out=tmp_path / "out")
    accused = [c for c in got.values() if c["verdict"] in ("reduced", "wrong", "nonfinite")]
    named = [c["cause"] for c in accused if c["cause"] and not c["cause"].startswith("looks like")]
    assert len(named) >= len(accused) / 2
    assert all(re.search(words, cause) for cause in named), named
    assert all(c["sentence"].endswith(c["cause"]) for c in accused)
    assert not any(c["cause"] for c in got.values() if c not in accused)


@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_lost_write_is_named_where_the_inputs_are_there(packed, honest, tmp_path, with_inputs):
    number = number_of(packed, "aten::add_.Tensor")
    pack = shutil.copytree(packed / "pack", tmp_path / "pack")
    before = plain_tensors.read(pack / f"inputs/{number}.safetensors")["args[0]"]
    if not with_inputs:
        shutil.rmtree(pack / "inputs")
    outputs = shutil.copytree(honest, tmp_path / "outputs")
    file = outputs / f"{number}.safetensors"
    plain_tensors.write(file, {name: before for name in plain_tensors.read(file)})
    _, got = judge(pack, outputs, out=tmp_path / "out")
    assert got[number]["verdict"] == "wrong"
    assert ("was lost: not written" in got[number]["cause"]) == with_inputs


def test_a_pack_says_what_a_check_of_the_device_says(packed, tmp_path):
    """The check runs the device itself: all its second opinions are in the comparison."""
    faults = (
        "aten::mm:tf32;aten::gelu:bf16_intermediates;aten::native_layer_norm:scale;aten::mul:bf16_output;aten::exp:nan"
    )
    subprocess.run(
        [
            BUILD / "bin" / "ulpscope",
            "check",
            packed / "trace",
            "--device",
            "sim:0",
            "--faults",
            faults,
            "-j",
            "1",
            "-o",
            tmp_path / "check",
        ],
        capture_output=True,
        timeout=240,
        check=False,
    )
    # A process of its own, as the check has: which kernels sim has hangs on what ran in this one.
    subprocess.run(
        [sys.executable, run_pack.__file__, packed / "pack", tmp_path / "outputs", "sim:0"],
        check=True,
        timeout=300,
        env=os.environ | {"ULPSCOPE_SIM_FAULTS": faults},
    )
    _, got = judge(packed / "pack", tmp_path / "outputs", out=tmp_path / "judged")
    calls = {c["call"]: c for c in json.loads((tmp_path / "check" / "result.json").read_text())["calls"]}
    accused = 0
    for number, call in calls.items():
        if call["op"] == "aten::bernoulli":  # draws need a device that can be asked again
            continue
        accused += call["verdict"] in ("reduced", "wrong", "nonfinite")
        assert got[number]["verdict"] == call["verdict"], (call["op"], got[number]["sentence"])
        assert got[number]["bound"] == call["bound"], call["op"]
        bits = [v["bits"] for v in (got[number], call)]
        assert bits == [None, None] or abs(bits[0] - bits[1]) < 0.1, (call["op"], bits)
    assert accused >= 6


@pytest.mark.parametrize("share, verdict", [(0.0, "undefined"), (0.5, "wrong"), (2.0, "wrong")])
def test_of_several_updates_one_has_to_stand_there(packed, honest, tmp_path, share, verdict):
    """Of two that meet in one place either is right, nothing between them or beyond."""
    number = number_of(packed, "aten::scatter.src")
    inputs = plain_tensors.read(packed / "pack" / f"inputs/{number}.safetensors")
    first, last = inputs["args[3]"][:2]
    put = lambda t: t.update({f"{number}/out[0]": t[f"{number}/out[0]"].copy()})  # noqa: E731

    def other(t):
        put(t)
        t[f"{number}/out[0]"][1] = first + share * (last - first)

    honest_value = plain_tensors.read(honest / f"{number}.safetensors")[f"{number}/out[0]"][1]
    assert honest_value == last and first != last
    _, call = changed(packed, honest, tmp_path, number, other)
    assert call["verdict"] == verdict, call["sentence"]


def test_numbers_that_are_rounded_first_are_right_too(packed, honest, tmp_path):
    """0.3 x as eager kernels of bfloat16 may compute it, and a wrong factor."""
    number = number_of(packed, "aten::mul.Scalar")
    x = torch.tensor(plain_tensors.read(packed / "pack" / f"inputs/{number}.safetensors")["args[0]"])
    factor = float(torch.tensor(0.3, dtype=torch.bfloat16))
    for scale, verdict in ((factor, "pass"), (1.02 * factor, "wrong")):
        value = (x.double() * scale).bfloat16().float().numpy()
        put = lambda t: t.update({f"{number}/out[0]": value})  # noqa: E731, B023
        _, call = changed(packed, honest, tmp_path, number, put)
        assert call["verdict"] == verdict
        assert ("rounded to bfloat16 first" in call["notes"]) == (verdict == "pass")


def test_what_float32_itself_overflows_is_no_fault(packed, honest, tmp_path):
    """A NaN is nonfinite, and unjudged where a step inside overflows float32."""
    tame, wild = numbers_of(packed, "aten::native_layer_norm")
    first = plain_tensors.read(honest / f"{tame}.safetensors")[f"{tame}/out[0]"]
    assert np.isfinite(first).all()
    for number, verdict in ((tame, "nonfinite"), (wild, "unjudged")):
        shutil.rmtree(tmp_path / "outputs", ignore_errors=True)
        shutil.copytree(honest, tmp_path / "outputs")
        file = tmp_path / "outputs" / f"{number}.safetensors"
        tensors = plain_tensors.read(file)
        right = first.copy()  # layer norm does not see the size of its input
        right[0, 0] = np.nan
        tensors[f"{number}/out[0]"] = right
        plain_tensors.write(file, tensors)
        assert_same(packed, tmp_path / "outputs", tmp_path / "out")
        calls = json.loads((tmp_path / "out" / "result.json").read_text())["calls"]
        (call,) = [c for c in calls if c["call"] == number]
        assert call["verdict"] == verdict, call["sentence"]


def test_discrete_outputs_get_the_verdicts_of_a_check(packed, honest, tmp_path):
    """One element of each changed: what must be exact, what may be chosen otherwise, and
    what the operator does not promise."""
    shutil.copytree(honest, tmp_path / "outputs")
    image = plain_tensors.read(packed / "pack" / f"inputs/{number_of(packed, 'aten::argmax')}.safetensors")["args[0]"]

    def change(op, path, place, value):
        number = number_of(packed, op)
        file = tmp_path / "outputs" / f"{number}.safetensors"
        tensors = plain_tensors.read(file)
        name = f"{number}/{path}"
        tensors[name] = tensors[name].copy()
        tensors[name][place] = value(tensors[name][place])
        plain_tensors.write(file, tensors)

    change("aten::round", "out[0]", (3, 3), lambda v: np.nextafter(v, np.float32(99)))
    wide = np.argwhere(
        np.abs(
            plain_tensors.read(packed / "pack" / f"inputs/{number_of(packed, 'aten::_to_copy')}.safetensors")["args[0]"]
        )
        > 200
    )[0]
    change("aten::_to_copy", "out[0]", tuple(wide), lambda v: v ^ 5)
    change("aten::scatter.src", "out[0]", (1,), lambda v: v)
    change("aten::max_pool2d_with_indices", "out[1]", (0, 0, 0, 0), lambda v: v + 36)
    row = next(i for i, r in enumerate(image[0, 0]) if r[1:].max() > r[0])
    change("aten::cummax", "out[1]", (0, 0, row, 0), lambda v: v + 11)
    assert_same(packed, tmp_path / "outputs", tmp_path / "out")


def test_a_call_without_outputs_is_unsupported(packed, honest, tmp_path):
    done, call = changed(packed, honest, tmp_path, 1, lambda t: t.pop("1/out[0]"))
    assert done.returncode == 2 and call["verdict"] == "unsupported", "nobody looked at it"
    assert "no output of it was given" in call["sentence"] and "--allow unsupported:aten::mm" in done.stdout
    for told in (["--allow", f"unsupported:{call['op']}", "--allow", "unjudged"], ["--min-judged", "40%"]):
        again, _ = judge(packed / "pack", tmp_path / "all.safetensors", *told, out=tmp_path / told[1])
        assert again.returncode == 0, "who knows that says so"


def test_too_few_and_too_many_outputs_are_wrong(packed, honest, tmp_path):
    number = number_of(packed, "aten::native_layer_norm")
    done, call = changed(packed, honest, tmp_path, number, lambda t: t.pop(f"{number}/out[1]"))
    assert done.returncode == 1 and call["verdict"] == "wrong"
    assert "2 outputs where the operator has 3" in call["sentence"]
    more = lambda t: t.update({"1/out[1]": np.zeros(3)})  # noqa: E731
    done, call = changed(packed, honest, tmp_path, 1, more)
    assert call["verdict"] == "wrong"
    assert "2 outputs where the operator has 1" in call["sentence"]


def test_another_shape_or_dtype_is_wrong(packed, honest, tmp_path):
    cut = lambda t: t.update({"1/out[0]": t["1/out[0]"][:5]})  # noqa: E731
    _, call = changed(packed, honest, tmp_path, 1, cut)
    assert call["verdict"] == "wrong"
    assert "shape [5, 16] where [24, 16] is right" in call["sentence"]
    half = lambda t: t.update({"1/out[0]": t["1/out[0]"].astype(np.float16)})  # noqa: E731
    _, call = changed(packed, honest, tmp_path, 1, half)
    assert call["verdict"] == "wrong"
    assert "dtype float16 where the operator gives float32" in call["sentence"]


def test_names_that_belong_to_no_call_are_remarked_on(packed, honest, tmp_path):
    names = lambda t: t.update({"77/out[0]": np.zeros(3), "x": np.zeros(1)})  # noqa: E731
    done, _ = changed(packed, honest, tmp_path, 1, names)
    assert done.returncode == 0
    assert "2 tensors of the outputs belong to no call of the pack" in done.stdout


def test_nothing_given_is_trouble(packed, tmp_path):
    plain_tensors.write(tmp_path / "x.safetensors", {"x": np.zeros(3)})
    done, _ = judge(packed / "pack", tmp_path / "x.safetensors", out=tmp_path / "out")
    assert done.returncode == 2


def test_a_tie_may_be_broken_otherwise_but_not_doubly(packed, honest, tmp_path):
    """Index outputs: equal values in another order pass, one index twice does not, nor the last where the
    documentation names the first."""
    number = number_of(packed, "aten::argmax")
    name = f"{number}/out[0]"
    image = plain_tensors.read(packed / "pack" / f"inputs/{number}.safetensors")["args[0]"]
    flat = image.reshape(-1, 12)
    row = next(i for i, r in enumerate(flat) if (r == r.max()).sum() > 1)

    def last(t):
        t[name] = t[name].copy()
        t[name].reshape(-1)[row] = np.nonzero(flat[row] == flat[row].max())[0][-1]

    _, call = changed(packed, honest, tmp_path, number, last)
    assert call["verdict"] == "wrong"
    number = number_of(packed, "aten::topk")
    values = image.reshape(-1, 12)

    def at_a_tie(change):
        def among(t):
            indices = t[f"{number}/out[1]"] = t[f"{number}/out[1]"].copy()
            row = next(r for i, r in enumerate(indices.reshape(-1, 4)) if values[i][r[0]] == values[i][r[1]])
            row[0], row[1] = change(row[0], row[1])

        return among

    _, call = changed(packed, honest, tmp_path, number, at_a_tie(lambda a, b: (b, a)))
    assert (call["verdict"], call["notes"]) == ("pass", "ties broken otherwise")
    _, call = changed(packed, honest, tmp_path, number, at_a_tie(lambda a, b: (a, a)))
    assert call["verdict"] == "wrong"


def test_other_standards_judge_the_same_pack(packed, honest, tmp_path):
    done, calls = judge(packed / "pack", honest, "--standard", "allclose:1e-3,1e-3", out=tmp_path / "out")
    accused = {c["op"] for c in calls.values() if c["verdict"] == "wrong"}
    # NaN is not close to NaN, there, and an overflow inside float32 is the device's fault
    assert accused == {"aten::log", "aten::native_layer_norm"}
    (number,) = [n for n, c in calls.items() if c["op"] == "aten::log"]
    names = {m["name"] for m in calls[number]["metrics"] if m["name"].startswith("allclose")}
    assert "allclose:1e-3,1e-3.mismatched" in names  # as a check names them
    assert calls[1]["sentence"].startswith("aten::mm passes: allclose:1e-3,1e-3 says pass, 0 of 384 elements beyond")
    done, calls = judge(packed / "pack", honest, "--standard", "bitwise", out=tmp_path / "bits")
    assert done.returncode == 1
    done, _ = judge(packed / "pack", honest, "--standard", "nosuch", out=tmp_path / "out")
    assert done.returncode == 2 and "known: ulpscope" in done.stderr


# ---- what is not as it must be -------------------------------------------------------


def damaged(packed, tmp_path, change):
    """What is said of a pack whose copy was changed."""
    shutil.copytree(packed / "pack", tmp_path / "pack")
    change(tmp_path / "pack")
    done, _ = judge(tmp_path / "pack", packed / "honest", out=tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("ulpscope: ") and done.stderr.count("\n") == 1
    return done.stderr


def edit(pack, old, new):
    path = pack / "pack.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_damaged_pack_is_named(packed, honest, tmp_path):
    def case(name, change):
        return damaged(packed, tmp_path / name, change)

    for name in "abcdefgh":
        (tmp_path / name).mkdir()
    assert "nor is it a folder that ulpscope pack wrote" in case("a", lambda p: (p / "pack.json").unlink())
    assert "not the manifest" in case("b", lambda p: (p / "pack.json").write_text("{}"))
    assert "not the manifest" in case("c", lambda p: (p / "pack.json").write_text("no json"))
    assert "format 9" in case("d", lambda p: edit(p, '"version": 4', '"version": 9'))
    assert "do not hold" in case("e", lambda p: edit(p, "out[0].reference", "out[0].xyz"))
    assert "calls[0].step is no integer" in case("h", lambda p: edit(p, '"step": 0', '"step": "0"'))
    path = "operands/1.safetensors"
    assert path in case("f", lambda p: os.truncate(p / path, 900))
    assert path in case("g", lambda p: (p / path).unlink())


FUZZ = """
import ctypes, random, sys
from pathlib import Path
lib = ctypes.CDLL(sys.argv[1])
pack, outputs, out = sys.argv[2:5]
class Options(ctypes.Structure):
    _fields_ = [("out", ctypes.c_char_p), ("standard", ctypes.c_char_p),
                ("scale", ctypes.c_char_p), ("force", ctypes.c_bool),
                ("n_threads", ctypes.c_int), ("alloc", ctypes.c_void_p)]
error = ctypes.create_string_buffer(1024)
path = Path(pack) / "pack.json"
whole = path.read_bytes()
chance = random.Random(20251121)
n_ok = 0
for _ in range(150):
    text = bytearray(whole)
    for _ in range(chance.randrange(1, 4)):
        text[chance.randrange(len(text))] = chance.choice(b'{}[]",:0123456789-.e nulltrf\\x80')
    path.write_bytes(text[:chance.randrange(len(text))] if chance.random() < 0.1 else text)
    options = Options(out.encode(), None, None, True, 1, None)
    n_ok += lib.usc_pack_judge(pack.encode(), outputs.encode(), ctypes.byref(options), error) == 0
print(n_ok)
"""


def test_no_manifest_crashes_the_judge(packed, honest, tmp_path):
    shutil.copytree(packed / "pack", tmp_path / "pack")
    library = Path(_core.__file__).parent / "libulpscope.so"
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, library, tmp_path / "pack", honest, tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert 5 < int(done.stdout) < 150


def test_no_kind_of_value_crashes_the_judge(packed, honest):
    library = Path(_core.__file__).parent / "libulpscope.so"
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast) as folder:
        shutil.copytree(packed / "pack", f"{folder}/pack")
        done = subprocess.run(
            [
                sys.executable,
                Path(__file__).with_name("mutate_pack.py"),
                library,
                f"{folder}/pack",
                honest,
                f"{folder}/out",
            ],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    n_judged, n_refused = map(int, done.stdout.split())
    assert n_judged > 100 and n_refused > 300


def test_dtypes_of_another_kind_are_refused(packed, tmp_path):
    def numbered(pack):
        edit(pack, '"dtypes": [\n      "float32"\n     ]', '"dtypes": [1]')

    assert "no list of names" in damaged(packed, tmp_path, numbered)


def test_values_to_choose_among_have_a_known_dtype(packed, honest, tmp_path):
    def four_bits(pack):
        manifest = json.loads((pack / "pack.json").read_text())
        (call,) = (c for c in manifest["calls"] if c["op"] == "aten::topk")
        path = pack / call["operands_file"]
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])
        header[call["outputs"][1]["operands"]["choice"]].update(dtype="F4", shape=[1 << 24])
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])

    assert "cannot be F4" in damaged(packed, tmp_path, four_bits)


FULL = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), -1))
os.execvp("ulpscope", ["ulpscope", "pack", *sys.argv[2:]])
"""


@pytest.mark.parametrize("room, name", [(600, "inputs/1.safetensors"), (9000, "operands/29.safetensors")])
def test_a_full_disk_names_the_file_and_leaves_nothing(packed, tmp_path, room, name):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            FULL,
            str(room),
            packed / "trace",
            "-o",
            tmp_path / "p",
            "-j",
            "1",
            "--ops",
            "aten::mm" if room == 600 else "aten::threshold_backward",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and list(tmp_path.iterdir()) == []
    assert f"p.part/{name}: File too large; nothing was packed" in done.stderr
    assert len([line for line in done.stderr.splitlines() if ": workers start" not in line]) == 1


def test_layouts_and_memory_formats_are_spelt(tmp_path):
    image = torch.randn(1, 2, 3, 3)
    with TraceWriter(tmp_path / "trace") as t:
        t.add("aten::clone", image, memory_format=torch.channels_last, out=[image])
        t.add("aten::zeros_like", image, layout=torch.strided, out=[image])
    subprocess.run(
        ["ulpscope", "pack", tmp_path / "trace", "-o", tmp_path / "pack", "-j", "1"], check=True, capture_output=True
    )
    clone, zeros = json.loads((tmp_path / "pack" / "pack.json").read_text())["calls"]
    assert clone["kwargs"]["memory_format"] == {"memory_format": "channels_last"}
    assert zeros["kwargs"]["layout"] == {"layout": "strided"}
    assert not any("unjudged" in c for c in (clone, zeros))


def test_a_pack_does_not_overwrite_what_is_there(packed, tmp_path):
    run = subprocess.run(["ulpscope", "pack", packed / "trace", "-o", packed / "pack"], capture_output=True, text=True)
    assert run.returncode == 2 and "is there already" in run.stderr


def test_processes_write_the_same_pack(packed, tmp_path):
    run = subprocess.run(
        ["ulpscope", "pack", packed / "trace", "-o", tmp_path / "pack", "-j", "2", "--ops", "mm,topk"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    manifest = json.loads((tmp_path / "pack" / "pack.json").read_text())
    assert [c["op"] for c in manifest["calls"]] == 4 * ["aten::mm"] + ["aten::topk", "aten::mm"]
    for call in manifest["calls"]:
        for name in (call["inputs_file"], call["operands_file"]):
            assert (tmp_path / "pack" / name).read_bytes() == (packed / "pack" / name).read_bytes()


def test_inputs_are_what_was_captured(packed):
    manifest = json.loads((packed / "pack" / "pack.json").read_text())
    call = manifest["calls"][0]
    assert (call["op"], call["args"]) == ("aten::mm", [{"tensor": "args[0]"}, {"tensor": "args[1]"}])
    tensors = plain_tensors.read(packed / "pack" / call["inputs_file"])
    torch.manual_seed(3)
    assert np.array_equal(tensors["args[0]"], torch.randn(24, 40).numpy())
    assert call["inputs"][0]["argument"] == "self"
