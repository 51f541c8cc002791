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
import pytest

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
