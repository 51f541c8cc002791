# SPDX-License-Identifier: Apache-2.0
"""`ulpscope judge A B` on the files that people have: each kind, and folders of them, gives the verdicts that
safetensors give, the first that is wrong in the order of the file is named, and what is no file of tensors is
called what it is. Damaged ones: tests/fuzz/corpus/tensors."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import packs
import pytest
import plain_tensors

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))
# the order of a model, which is that of no alphabet
TRUTH = {
    name: np.random.default_rng(i).normal(size=(4, 5))
    for i, name in enumerate(["stem", "block9", "block10", "attention", "head"])
}
DEVICE = {name: value.astype(np.float32) for name, value in TRUTH.items()}
DEVICE["block10"] = DEVICE["block10"] * np.float32(1.25)
DEVICE["attention"] = DEVICE["attention"] + np.float32(0.5)


def judge(folder, *words):
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "judge", *map(str, words), "-o", "out", "--force"],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, COLUMNS="1000", ULPSCOPE_PYTHON=sys.executable),
    )
    return done, " ".join(done.stdout.split())


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def polygraphy(arrays):
    outputs = {
        name: {
            "values": {"array": base64.b64encode(npy(a)).decode(), "_polygraphy_class": "ndarray"},
            "_polygraphy_class": "LazyArray",
        }
        for name, a in arrays.items()
    }
    return json.dumps(
        {
            "lst": [["runner", [{"outputs": outputs, "runtime": 0.1, "runner_name": "runner"}]]],
            "_polygraphy_class": "RunResults",
        },
        indent=2,
    )


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def member(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def onnx(array, name, raw):
    dims = b"".join(varint(8) + varint(n) for n in array.shape)
    kind, listed = (11, 10) if array.dtype == np.float64 else (1, 4)
    return dims + varint(16) + varint(kind) + member(8, name.encode()) + member(9 if raw else listed, array.tobytes())


def into_folder(folder, arrays, one):
    folder.mkdir()
    for i, (name, array) in enumerate(arrays.items()):
        one(folder, i, name, array)
    return folder


def torch_file(folder, name, arrays):
    torch = pytest.importorskip("torch")
    torch.save({"state": {k: torch.from_numpy(a) for k, a in arrays.items()}, "epoch": 3}, folder / name)
    return folder / name


def written(kind, folder, name, arrays):
    """The file or folder of that kind, and how its tensors are called there."""
    path = folder / f"{name}.{kind}"
    if kind == "npz":
        np.savez(path, **arrays)
    elif kind == "packed.npz":
        np.savez_compressed(path, **arrays)
    elif kind == "json":
        path.write_text(polygraphy(arrays))
    elif kind == "pt":
        path = torch_file(folder, path.name, arrays)
    elif kind == "npy":
        into_folder(path, arrays, lambda f, i, n, a: np.save(f / f"{i}_{n}.npy", np.asfortranarray(a)))
    elif kind == "pb":
        into_folder(path, arrays, lambda f, i, n, a: (f / f"output_{i}.pb").write_bytes(onnx(a, n, i % 2)))
    elif kind == "bin":
        into_folder(path, arrays, lambda f, i, n, a: a.tofile(f / f"{i}_{n}.bin"))
    return path


@pytest.mark.parametrize("kind", ["npz", "packed.npz", "json", "pt", "npy", "pb", "bin"])
def test_each_kind_is_judged(tmp_path, kind):
    more = ["--dtype", "float32,float64", "--shape", "4,5"] if kind == "bin" else []
    if kind == "pt":  # torch starts once
        truth = written("npz", tmp_path, "truth", {f"state.{name}": value for name, value in TRUTH.items()})
    else:
        truth = written(kind, tmp_path, "truth", TRUTH)
    done, text = judge(tmp_path, written(kind, tmp_path, "device", DEVICE), truth, *more)
    assert done.returncode == 1, done
    assert "2 wrong, 3 pass" in text and "multiplied by 1.25" in text
    assert ("loading torch, to read .pt" in done.stderr) == (kind == "pt")
    assert "block10', 3 of 5" in text and "the first that is wrong" in text


def test_kinds_are_mixed_and_matched(tmp_path):
    device, truth = written("npz", tmp_path, "device", DEVICE), written("json", tmp_path, "truth", TRUTH)
    assert "2 wrong, 3 pass" in judge(tmp_path, device, truth)[1]
    less = written("npz", tmp_path, "less", {k: v for k, v in TRUTH.items() if k != "stem"})
    text = judge(tmp_path, device, less, "--force")[1]  # nothing ran here, and no operator is to be registered
    assert "5 tensors of" in text and " of judging (" in text
    assert "not judged: stem 1 tensor (there is no reference of that name; give one)" in text
    assert "in workers" not in text and "reference.register" not in text and " operators" not in text, text
    whole = written("npz", tmp_path, "whole", TRUTH)
    done, text = judge(tmp_path, whole, less, "--force")
    assert done.returncode == 2, "nobody looked at 'stem'"
    assert "; 1 of 5 tensors, hence exit code 2; to accept it: --allow unjudged:stem" in text
    assert ",lacks,,reference" in (tmp_path / "out/details.csv").read_text(), "a code, not the words"
    assert judge(tmp_path, whole, less, "--force", "--allow", "unjudged:stem")[0].returncode == 0
    other = written("json", tmp_path, "other", {f"out_{i}": a for i, a in enumerate(TRUTH.values())})
    done, text = judge(tmp_path, device, other)
    assert "2 wrong, 3 pass" in text and "the i-th tensor stands for the i-th ('stem' for 'out_0')" in text
    np.save(tmp_path / "a.npy", TRUTH["stem"].astype(np.float32))
    np.save(tmp_path / "b.npy", TRUTH["stem"])
    assert judge(tmp_path, "a.npy", "b.npy")[0].returncode == 0
    (tmp_path / "npy").mkdir()
    np.save(tmp_path / "npy" / "x.npy", TRUTH["stem"])
    (tmp_path / "npy" / "notes.txt").write_text("by hand")
    assert "1 files were left out, which hold no tensors" in judge(tmp_path, "a.npy", "npy")[1]


def layers(dtype, spoil=None):
    """What twelve layers of sums give one after the other, and what is spoiled in one of them goes on."""
    rng = np.random.default_rng(5)
    h, out = rng.normal(size=(32, 48)).astype(np.float32).astype(dtype), {}
    for i in range(12):
        w = (rng.normal(size=(48, 48)) / 7).astype(np.float32).astype(dtype)
        h = h + np.tanh(h @ w)
        out[f"layer{i}"] = h = spoil(h) if spoil is not None and i == 6 else h
    return out


def cut(h):  # to the bits of bfloat16
    return (h.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def one(h):
    return h * (1 + np.where(np.arange(h.size).reshape(h.shape) == h.argmax(), np.float32(2e-3), 0)).astype(h.dtype)


def test_sums_without_a_scale_are_neither_right_nor_wrong(tmp_path):
    truth = written("npz", tmp_path, "truth", layers(np.float64))
    honest = written("npz", tmp_path, "honest", layers(np.float32))
    done, text = judge(tmp_path, honest, truth)
    assert done.returncode == 2 and "12 unjudged" in text, "honest float32 where terms cancel"
    assert "bits beside the mean of the tensor" in text and "--scale FILE" in text
    assert ",lacks,,scale" in (tmp_path / "out/details.csv").read_text()
    sizes = written("npz", tmp_path, "sizes", {k: np.full(v.shape, 16.0) for k, v in layers(np.float64).items()})
    assert judge(tmp_path, honest, truth, "--scale", sizes)[0].returncode == 0, "who gives it is answered"
    for spoil in (cut, one):  # what is wrong whatever it was made of
        spoiled = written("npz", tmp_path, spoil.__name__, layers(np.float32, spoil))
        done, text = judge(tmp_path, spoiled, truth)
        assert done.returncode == 1 and "the first that is wrong is 'layer6', 7 of 12" in text, text


def archive():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as parts:
        parts.writestr("notes.txt", "no array")
    return out.getvalue()


OTHERS = {
    "picture.npy": (b"\x89PNG\r\n\x1a\n" + bytes(90), "this is a PNG picture"),
    "packed.npz": (b"\x1f\x8b\x08" + bytes(90), "packed by gzip: unpack it first"),
    "archive.npz": (archive(), "a zip archive of other things ('notes.txt')"),
    "words.safetensors.txt": (b"a sentence, and no tensor of any kind", "this is a text"),
    "pickled.npy": (b"\x80\x04\x95" + bytes(90), "a pickle, which runs code"),
    "bytes.bin": (bytes(range(256)), "raw bytes: say what they are with --dtype"),
    "empty.npz": (b"", "the file is empty"),
    "cut.pb": (onnx(TRUTH["stem"], "x", True)[:-9], "a model, which is to be run first, or a file that was cut off"),
    "cut.npz": (npy(TRUTH["stem"])[:150], "the file is cut off"),
    "h5.h5": (b"\x89HDF\r\n\x1a\n" + bytes(90), "HDF5"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_holds_no_tensors_is_called_what_it_is(tmp_path, name):
    data, words = OTHERS[name]
    (tmp_path / name).write_bytes(data)
    np.save(tmp_path / "truth.npy", TRUTH["stem"])
    done, _ = judge(tmp_path, name, "truth.npy")
    assert done.returncode == 2 and words in done.stderr and "header would have" not in done.stderr, done


def test_torch_files_as_tensors(tmp_path, capsys):
    """Every dtype that is judged, strides, empty ones, order; what is no tensor is left out, and nothing runs."""
    torch = pytest.importorskip("torch")
    from ulpscope.calls import torch_tensors

    given = {
        "z": torch.arange(6.0).reshape(2, 3).T,
        "empty": torch.zeros(0, 3),
        "a": [torch.ones(2).bfloat16(), 3, "x"],
        "half": torch.ones(3).half(),
        "flag": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
    }
    torch.save(given, tmp_path / "all.pt")
    assert torch_tensors.main(tmp_path / "all.pt", tmp_path / "all.safetensors") == 0
    np.savez(
        tmp_path / "t.npz",
        z=given["z"].double().numpy(),
        empty=np.zeros((0, 3)),
        half=np.ones(3),
        scalar=np.array(2.5),
        flag=np.array([True, False]),
        **{"a.0": np.ones(2)},
    )
    done, text = judge(tmp_path, "all.safetensors", "t.npz")
    assert done.returncode == 0 and "6 tensors" in text, done
    (tmp_path / "old.pt").write_bytes(b"\x80\x02no pickle of tensors")
    assert torch_tensors.main(tmp_path / "old.pt", tmp_path / "o") == 1
    torch.save({"x": 3}, tmp_path / "none.pt")
    assert torch_tensors.main(tmp_path / "none.pt", tmp_path / "o") == 1
    said = capsys.readouterr().out.splitlines()
    assert "which only running code" in said[0] and "no tensors in it" in said[1]


def test_the_folder_of_something_else_is_named(tmp_path):
    for name in "abcd":
        np.save(tmp_path / f"{name}.npy", TRUTH["stem"])
    says = []
    for words in ("a.npy", "b.npy"), ("a.npy", "b.npy"), ("c.npy", "d.npy"), ("c.npy", "b.npy"):
        done = subprocess.run(
            [BUILD / "bin" / "ulpscope", "judge", *words], cwd=tmp_path, text=True, capture_output=True, timeout=60
        )
        says.append((done.returncode, done.stderr))
    assert [code for code, _ in says] == [0, 0, 2, 2] and (tmp_path / "ulpscope-judged").is_dir()
    assert "ulpscope-judged: holds another run: a judgement of a.npy by b.npy; name another" in says[2][1]
    assert "its device is 'a.npy', not 'c.npy'" in says[3][1]
    (tmp_path / "a.pt").write_bytes(b"\x80\x02no pickle of tensors")  # torch is not asked
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "judge", "a.pt", "b.npy"], cwd=tmp_path, text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 2 and "holds another run" in done.stderr and "torch" not in done.stderr
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "judge", "a.npy", "none.npy", "-o", "fresh"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 2 and "none.npy" in done.stderr and not (tmp_path / "fresh").exists()


@pytest.mark.parametrize("kind", ["npy", "pt"])
def test_folders_in_folders_are_looked_into(tmp_path, kind):
    for side, more in (("ours", 1.0), ("theirs", 0.0)):
        for name, wrong in (("a/0", 0), ("a/b/1", more), ("2", 0)):
            (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
            array = TRUTH["stem"] + np.float32(wrong)
            if kind == "npy":
                np.save(tmp_path / side / f"{name}.npy", array)
            else:
                torch_file(tmp_path / side, f"{name}.pt", {name.replace("/", "."): array})
    done, said = judge(tmp_path, "ours", "theirs")
    assert done.returncode == 1 and "1 of 3 tensors flagged: a/b/1" in said.replace("a/b/state.a.b.1", "a/b/1"), done
    done, said = judge(tmp_path, "ours/a/b", "theirs/a/b")
    assert done.returncode == 1
    (tmp_path / "linked").symlink_to("ours")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "2.npy").symlink_to(tmp_path / "ours" / "2.npy")
    if kind == "npy":  # a file beside itself says nothing
        done, said = judge(tmp_path, "copy", "ours/2.npy")
        assert done.returncode == 2 and "both sides are the one file" in said, done


def test_what_is_asked_wrongly_is_said(tmp_path):
    np.save(tmp_path / "a.npy", TRUTH["stem"])
    TRUTH["stem"].tofile(tmp_path / "a.bin")
    for words, says in {
        ("a.npy", "a.npy"): "is given twice",
        ("a.bin", "a.npy", "--dtype", "float64"): "need both --dtype and --shape",
        ("a.bin", "a.npy", "--dtype", "float65", "--shape", "4,5"): "dtypes are called as in torch",
        ("a.bin", "a.npy", "--dtype", "float64", "--shape", "4,-5"): "whole numbers with commas",
        ("a.bin", "a.npy", "--dtype", "float64", "--shape", "4,6"): "160 bytes, and the shape asks for 24 of float64",
    }.items():
        done, _ = judge(tmp_path, *words)
        assert done.returncode == 2 and says in done.stderr, done


# ---- pairs ---------------------------------------------------------------------------


def pair(tmp_path, device, reference, *more):
    plain_tensors.write(tmp_path / "device.safetensors", device)
    plain_tensors.write(tmp_path / "reference.safetensors", reference)
    done, calls = packs.judge(
        tmp_path / "device.safetensors", tmp_path / "reference.safetensors", *more, out=tmp_path / f"out{len(more)}"
    )
    return done, {c["op"]: c for c in calls.values()}


def test_pairs_of_tensors(tmp_path):
    chance = np.random.default_rng(5)
    truth = chance.standard_normal((64, 32))
    rounded = truth.astype(np.float32)
    low = (rounded.view(np.uint32) & 0xFFFFE000).view(np.float32)  # 11 bits
    spoilt = rounded.copy()
    spoilt[3, 4] = np.nan
    done, calls = pair(
        tmp_path,
        {
            "good": rounded,
            "half": truth.astype(np.float16),
            "low": low,
            "nan": spoilt,
            "ints": np.arange(5),
            "extra": rounded,
            "shape": rounded[:3],
        },
        {
            "good": truth,
            "half": truth,
            "low": truth,
            "nan": truth,
            "ints": np.arange(5),
            "missing": truth,
            "shape": truth,
        },
    )
    assert done.returncode == 1
    assert {n: c["verdict"] for n, c in calls.items()} == {
        "good": "pass",
        "half": "pass",
        "low": "reduced",
        "nan": "nonfinite",
        "ints": "pass",
        "extra": "unjudged",
        "missing": "wrong",
        "shape": "wrong",
    }
    assert 10 < calls["low"]["bits"] < 12.5
    assert "[3, 4]" in calls["nan"]["sentence"]
    assert "an error counts relative to |reference|" in " ".join(done.stdout.split())


def test_where_no_number_is_compared_is_said(tmp_path):
    odd = {
        "none": np.zeros((0, 3)),
        "nan": np.full(4, np.nan),
        "some": np.array([1, np.nan, -np.inf]),
        "one": np.array([np.inf]),
        "good": np.ones(3),
    }
    done, calls = pair(tmp_path, {n: t.astype(np.float32) for n, t in odd.items()}, odd)
    assert done.returncode == 2 and "1 of 5 tensors, hence exit code 2" in done.stdout, "but for the empty one"
    done, calls = pair(
        tmp_path, {n: t.astype(np.float32) for n, t in odd.items()}, odd, "--force", "--allow", "unjudged:nan"
    )
    assert done.returncode == 0 and "not judged, accepted by --allow: nan 1" in done.stdout
    assert {n: c["verdict"] for n, c in calls.items()} == {
        "none": "undefined",
        "nan": "unjudged",
        "some": "pass",
        "one": "pass",
        "good": "pass",
    }
    assert "all of it is NaN on both sides" in calls["nan"]["sentence"]
    assert "NaN or Inf on both sides: 7 elements of 3 tensors, the first in 'nan'" in " ".join(done.stdout.split())
    done, calls = pair(tmp_path, {"nan": odd["nan"].astype(np.float32)}, {"nan": odd["nan"]}, "--force")
    assert done.returncode == 2 and "1 not judged (unjudged)" in done.stdout + done.stderr
    done, calls = pair(tmp_path, {"x": np.array([1, np.nan], np.float32)}, {"x": np.full(2, np.nan)}, "--force")
    assert done.returncode == 1 and calls["x"]["verdict"] == "nonfinite"


def test_a_scale_tells_cancellation_from_a_fault(tmp_path):
    chance = np.random.default_rng(6)
    a, b = chance.standard_normal((32, 512)), chance.standard_normal((512, 32))
    a, b = a.astype(np.float32), b.astype(np.float32)
    truth = a.astype(np.float64) @ b.astype(np.float64)
    device, reference = {"mm": a @ b}, {"mm": truth}
    done, calls = pair(tmp_path, device, reference)
    assert done.returncode == 2 and calls["mm"]["verdict"] == "unjudged", "as a fault of small elements would look"
    plain_tensors.write(tmp_path / "s.safetensors", {"mm": np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)})
    done, calls = pair(tmp_path, device, reference, "--scale", tmp_path / "s.safetensors")
    assert done.returncode == 0 and calls["mm"]["verdict"] == "pass"
    note = " ".join(done.stdout.split())
    assert "or to the scale" in note and "--scale" not in note  # it was given


def test_the_same_command_judges_anew(tmp_path):
    """Nothing of an earlier run with the same file names is left."""
    truth = np.ones(7)
    assert len(pair(tmp_path, {"a": truth, "b": truth}, {"a": truth, "b": truth})[1]) == 2
    done, calls = pair(tmp_path, {"c": 2 * truth}, {"c": truth})
    assert done.returncode == 1 and list(calls) == ["c"]


def test_coarse_references_are_said_to_be_coarse(tmp_path):
    truth = np.random.default_rng(7).standard_normal(99)
    low = truth.astype(np.float32)
    done, calls = pair(tmp_path, {"a": low, "b": truth}, {"a": low, "b": low})
    assert calls["a"]["verdict"] == "pass" and "1 references are float32" in done.stdout
    assert calls["b"]["verdict"] == "unjudged" and "too coarse" in calls["b"]["sentence"]
    said = " ".join(done.stdout.split())
    assert done.returncode == 2 and "write the reference in float64" in said and "register" not in said


def test_a_damaged_file_is_trouble(tmp_path):
    plain_tensors.write(tmp_path / "a.safetensors", {"a": np.zeros(9)})
    (tmp_path / "b.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-9])
    done, _ = packs.judge(tmp_path / "b.safetensors", tmp_path / "a.safetensors", out=tmp_path / "out")
    assert done.returncode == 2
    assert "b.safetensors: a lies at bytes 0 to 72 of 63" in done.stderr
