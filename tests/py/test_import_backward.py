# SPDX-License-Identifier: Apache-2.0
"""Backward passes in dumps of msprobe: calls of the trace, held against the reference where the
dump has what they gave, exported again; and the names under which dumps and captures have the
same function."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from dumps import GOLDEN, calls, content, tensor_of, ulpscope

import ulpscope as package

# An entry of the dump, and which of the gradients in it is planted wrong.
WRONG = {
    "Tensor.sum.0": 0,
    "Torch.topk.0": 0,
    "Tensor.clamp.0": 0,
    "Torch.cat.0": 1,
    "Torch.split.0": 0,
    "Tensor.mul_.0": 0,
    "Tensor.__add__.0": 1,
    "Functional.gelu.0": 0,
    "Functional.layer_norm.0": 2,
    "Functional.embedding.0": 0,
}


def checked(trace, out, code=0):
    ulpscope("check", trace, "--device", "cpu", "-o", out, "-j", "1", code=code)
    rows = json.loads((out / "result.json").read_text())["calls"]
    return {(row["op"], row["phase"]): row for row in rows}


@pytest.fixture
def dump(tmp_path):
    shutil.copytree(GOLDEN / "tensor", tmp_path / "dump")
    return tmp_path / "dump" / "step0" / "rank0"


def test_a_wrong_gradient_in_a_dump_is_found_in_whichever_function(dump, tmp_path):
    for name, k in WRONG.items():
        file = dump / "dump_tensor_data" / f"{name}.backward.output.{k}.pt"
        grad = torch.load(file, weights_only=True)
        grad.view(-1)[3] += 0.25
        torch.save(grad, file)
    ulpscope("import", dump, "-o", tmp_path / "t", "--device", "cpu")
    rows = checked(tmp_path / "t", tmp_path / "o", code=1)
    _, found = calls(tmp_path / "t")
    planted = {c["op"] for c in found if c["phase"] == "backward" and json.loads(c["state"])["dumped"] in WRONG}
    assert len(planted) == len(WRONG)
    assert {op for (op, phase), r in rows.items() if r["verdict"] not in ("pass", "note")} == planted
    assert all(r["phase"] == "backward" for r in rows.values() if r["verdict"] not in ("pass", "note"))


def test_gradients_of_what_lies_inside_a_function_accuse_nobody(dump, tmp_path):
    """The last node of `linear` on three axes is a view: what a hook on it sees is no gradient
    of an argument."""
    file = dump / "dump_tensor_data" / "Functional.linear.0.backward.output.0.pt"
    torch.save(torch.load(file, weights_only=True) + 1, file)
    ulpscope("import", dump, "-o", tmp_path / "t", "--device", "cpu")
    rows = checked(tmp_path / "t", tmp_path / "o")
    assert rows["torch.nn.functional.linear", "backward"]["verdict"] == "pass"


# Functions of several operators: hooks see gradients of what is inside, of arguments in another
# order or layout than the function's, along several ways.
X, W = torch.randn(4, 4), torch.randn(4, 4)
TARGET = torch.arange(4)
INSIDE = [
    ("Functional.linear", X, W, W[0]),
    ("Functional.linear", X, W),
    ("Functional.linear", X[None], W, W[0]),
    ("Torch.matmul", X, W),
    ("Torch.matmul", X[None], W),
    ("Torch.mul", X, W),
    ("Tensor.__rpow__", X, W.abs() + 1),
    ("Tensor.__rsub__", X, W),
    ("Functional.cross_entropy", X, TARGET),
    ("Functional.normalize", X),
    ("Functional.cosine_similarity", X, W),
    ("Torch.addmm", X, W, X + 1),
    ("Torch.addcdiv", X, W, X.abs() + 1),
    ("Functional.bilinear", X, W, X.repeat(4, 1, 1)),
    ("Tensor.transpose", X, 0, 1),
    ("Tensor.norm", X),
    ("Functional.scaled_dot_product_attention", X[None], W[None], X[None] + 1),
]


def described(value, folder, name):
    """A value as msprobe describes it, its content in a file beside."""
    if not isinstance(value, torch.Tensor):
        return {"type": type(value).__name__, "value": value}
    np.save(folder / f"{name}.npy", value.detach().contiguous().numpy())
    return {
        "type": "torch.Tensor",
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "Max": None,
        "Min": None,
        "Mean": None,
        "Norm": None,
        "requires_grad": value.requires_grad,
        "data_name": f"{name}.npy",
    }


def hooked(name, given, folder):
    """What msprobe writes of one function: the call, and what a hook on its last node sees."""
    kind, last = name.split(".")[:2]
    space = {"Functional": F, "Torch": torch, "Tensor": torch.Tensor}[kind]
    args = [a.clone().requires_grad_(a.is_floating_point()) if isinstance(a, torch.Tensor) else a for a in given]
    out, seen = getattr(space, last)(*args), {}
    out.grad_fn.register_hook(lambda inputs, outputs: seen.update(input=outputs, output=inputs))
    out.backward(torch.randn_like(out))
    listed = {
        k: [g if g is None else described(g, folder, f"{name}.backward.{k}.{i}") for i, g in enumerate(grads)]
        for k, grads in seen.items()
    }
    call = {
        "input_args": [described(a, folder, f"{name}.input.{i}") for i, a in enumerate(args)],
        "input_kwargs": {},
        "output": [described(out, folder, f"{name}.output")],
    }
    return {f"{name}.forward": call, f"{name}.backward": listed}


def test_what_a_hook_sees_inside_a_function_accuses_nobody(tmp_path):
    (tmp_path / "dump_tensor_data").mkdir()
    data = {}
    for i, (name, *args) in enumerate(INSIDE):
        data.update(hooked(f"{name}.{i}", args, tmp_path / "dump_tensor_data"))
    (tmp_path / "dump.json").write_text(json.dumps({"data": data}))
    ulpscope("import", tmp_path, "-o", tmp_path / "t", "--device", "cpu")
    ulpscope("check", tmp_path / "t", "--device", "cpu", "-o", tmp_path / "o", "-j", "1", code=0)
    rows = json.loads((tmp_path / "o" / "result.json").read_text())["calls"]
    assert len(rows) == 2 * len(INSIDE) and {r["verdict"] for r in rows} == {"pass"}


def test_backward_passes_of_a_capture_survive_the_way_there_and_back(tmp_path):
    with package.capture(tmp_path / "a", steps=[0], level=["api"]):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        y = F.linear(x, w, w[0]) + x.__rpow__(w.abs() + 1)
        (y * 2).sum().backward()
        package.step()
    ulpscope("export", tmp_path / "a", "-o", tmp_path / "dump")
    ulpscope("import", tmp_path / "dump", "-o", tmp_path / "b", "--device", "cpu")

    def plain(trace):
        opened, found = calls(trace)
        return [
            (
                c["op"],
                c["args"],
                c["phase"],
                sorted((t["role"], t["path"], tensor_of(opened, t).tolist()) for t in c["tensors"]),
            )
            for c in found
        ]

    assert plain(tmp_path / "a") == plain(tmp_path / "b")
    rows = checked(tmp_path / "b", tmp_path / "o")
    assert {"torch.nn.functional.linear", "torch.Tensor.__rpow__", "torch.Tensor.add", "torch.Tensor.mul"} <= {
        op for op, phase in rows if phase == "backward"
    }


def test_a_function_has_one_name_in_captures_and_dumps(tmp_path):
    import test_api_level as captured

    names = {f"Tensor.{dunder}": name for dunder, (name, _) in captured.DUNDERS.items()}
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0}
    entry = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor]}
    data = {f"{name}.0.forward": entry for name in names}
    (tmp_path / "dump.json").write_text(json.dumps({"data": data}))
    ulpscope("import", tmp_path, "-o", tmp_path / "t")
    _, found = calls(tmp_path / "t")
    assert [c["op"] for c in found] == list(names.values())
    ulpscope("export", tmp_path / "t", "-o", tmp_path / "again")
    again = json.loads((tmp_path / "again/step0/rank0/dump.json").read_text())["data"]
    assert list(again) == list(data)  # as they were called there


@pytest.mark.parametrize("form", ["msprobe", "ascend-v1", "ditorch"])
def test_an_operator_of_the_backward_pass_is_told_by_its_name(tmp_path, form):
    with package.capture(tmp_path / "a", steps=[0]):
        x = torch.randn(4, 4, requires_grad=True)
        torch.nn.functional.gelu(x.tanh()).sum().backward()
    ulpscope("export", tmp_path / "a", "-o", tmp_path / "dump", "--format", form)
    ulpscope("import", tmp_path / "dump", "-o", tmp_path / "b")
    phases = {op: phase for op, _, _, phase, *_ in content(tmp_path / "b")}
    assert phases["aten::gelu_backward"] == phases["aten::tanh_backward"] == "backward"
    assert phases["aten::gelu"] == phases["aten::tanh"] == "forward"
