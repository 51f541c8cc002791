# SPDX-License-Identifier: Apache-2.0
"""Calls of Python functions in a trace (capture --level api): every space and every dunder is
seen, arguments are as they were given, and the program does not notice."""

import json
import threading

import pytest
import torch
import torch.nn.functional as F
from test_capture import Training, read, recorded

import ulpscope
from ulpscope import _core

BOTH = {"level": "api,aten"}


def is_api(call):
    return "::" not in call["op"]


def apis(calls):
    return [c["op"] for c in calls if is_api(c)]


def tensors(call, role):
    return {t["path"]: t for t in call["tensors"] if t["role"] == role}


@torch.library.custom_op("apilevel::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 3.0, -0.25], [4.0, 0.125, 1.0]])
SPACES = {
    "torch.relu": lambda: torch.relu(X),
    "torch.einsum": lambda: torch.einsum("ij,jk->ik", X, X),
    "torch._foreach_add": lambda: torch._foreach_add([X, X], 1.0),
    "torch.arange": lambda: torch.arange(3),
    "torch.nn.functional.linear": lambda: torch.nn.Linear(3, 2)(X),
    "torch.nn.functional.conv2d": lambda: F.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2)),
    "torch.nn.functional.max_pool2d": lambda: F.max_pool2d(torch.ones(1, 1, 4, 4), 2),
    "torch.nn.functional.scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(
        X[None], X[None], X[None]
    ),
    "torch.nn.init.uniform_": lambda: torch.nn.init.uniform_(torch.empty(3)),
    "torch.Tensor.add_": lambda: X.clone().add_(1),
    "torch.Tensor.softmax": lambda: X.softmax(0),
    "torch.Tensor.T": lambda: X.T,
    "torch.linalg.norm": lambda: torch.linalg.norm(X),
    "torch.fft.fft": lambda: torch.fft.fft(X),
    "torch.special.erf": lambda: torch.special.erf(X),
    "torch.ops.apilevel.twice": lambda: twice(X),
    "torch.ops.aten.add.Tensor": lambda: torch.ops.aten.add.Tensor(X, X),
}


def test_functions_of_every_space_are_parents_of_their_operators(tmp_path):
    calls, _ = recorded(tmp_path / "t", lambda: [body() for body in SPACES.values()], **BOTH)
    by_number = {c["sequence"]: c for c in calls}
    above = {}
    for call in calls:
        top = call
        while top["parent"]:
            top = by_number[top["parent"]]
        if top is not call:
            above.setdefault(top["op"], []).append(call["op"])
    for name in SPACES:
        assert any("::" in op for op in above.get(name, ())), name


INTS = torch.tensor([6, 3, 5])
DUNDERS = {
    "__add__": ("torch.Tensor.add", lambda: X + X),
    "__and__": ("torch.Tensor.__and__", lambda: INTS & INTS),
    "__bool__": ("torch.Tensor.__bool__", lambda: bool(INTS[0])),
    "__div__": ("torch.Tensor.div", lambda: X.__div__(X)),
    "__eq__": ("torch.Tensor.__eq__", lambda: X == X),
    "__ge__": ("torch.Tensor.ge", lambda: X >= X),
    "__gt__": ("torch.Tensor.gt", lambda: X > X),
    "__iadd__": ("torch.Tensor.add_", lambda: X.clone().__iadd__(X)),
    "__iand__": ("torch.Tensor.__iand__", lambda: INTS.clone().__iand__(INTS)),
    "__idiv__": ("torch.Tensor.div_", lambda: X.clone().__idiv__(X)),
    "__ifloordiv__": ("torch.Tensor.floor_divide_", lambda: X.clone().__ifloordiv__(X)),
    "__ilshift__": ("torch.Tensor.__ilshift__", lambda: INTS.clone().__ilshift__(1)),
    "__imod__": ("torch.Tensor.remainder_", lambda: X.clone().__imod__(X)),
    "__imul__": ("torch.Tensor.mul_", lambda: X.clone().__imul__(X)),
    "__ior__": ("torch.Tensor.__ior__", lambda: INTS.clone().__ior__(INTS)),
    "__irshift__": ("torch.Tensor.__irshift__", lambda: INTS.clone().__irshift__(1)),
    "__isub__": ("torch.Tensor.sub_", lambda: X.clone().__isub__(X)),
    "__ixor__": ("torch.Tensor.__ixor__", lambda: INTS.clone().__ixor__(INTS)),
    "__lshift__": ("torch.Tensor.__lshift__", lambda: INTS << 1),
    "__matmul__": ("torch.Tensor.matmul", lambda: X @ X),
    "__mod__": ("torch.Tensor.remainder", lambda: X % 2),
    "__mul__": ("torch.Tensor.mul", lambda: X * X),
    "__nonzero__": ("torch.Tensor.__bool__", lambda: INTS[0].__nonzero__()),
    "__or__": ("torch.Tensor.__or__", lambda: INTS | INTS),
    "__radd__": ("torch.Tensor.add", lambda: 1 + X),
    "__rmul__": ("torch.Tensor.mul", lambda: 2 * X),
    "__rshift__": ("torch.Tensor.__rshift__", lambda: INTS >> 1),
    "__sub__": ("torch.Tensor.sub", lambda: X - X),
    "__truediv__": ("torch.Tensor.div", lambda: X / X),
    "__xor__": ("torch.Tensor.__xor__", lambda: INTS ^ INTS),
}


def test_every_dunder_is_seen_under_the_name_that_torch_gives_it(tmp_path):
    seen = {}
    for dunder, (_, body) in DUNDERS.items():
        calls, _ = recorded(tmp_path / dunder, body, **BOTH)
        seen[dunder] = apis(calls)
    assert {d: name in seen[d] for d, (name, _) in DUNDERS.items()} == dict.fromkeys(DUNDERS, True), seen


def test_arguments_are_kept_as_they_were_given(tmp_path):
    weight = torch.ones(3)
    index = torch.tensor([0, 2])

    def body():
        F.layer_norm(X, (3,), weight=weight, eps=1e-3)
        X[None, index, ..., 1:3]
        torch.full((2,), float("inf"), dtype=torch.float16, device="cpu")
        F.relu(X.clone(), inplace=True)

    calls, _ = recorded(tmp_path / "t", body, **BOTH)
    made = {c["op"]: c for c in calls}
    norm = made["torch.nn.functional.layer_norm"]
    assert set(tensors(norm, "in")) == {"args[0]", "kwargs.weight"}
    assert json.loads(norm["frames"])[0][0] == __file__
    assert json.loads(norm["args"]) == {
        "args": [{"tensor": True}, {"tuple": [3]}],
        "kwargs": {"weight": {"tensor": True}, "bias": None, "eps": 1e-3},
    }
    item = made["torch.Tensor.__getitem__"]
    assert set(tensors(item, "in")) == {"args[0]", "args[1][1]"}
    assert json.loads(item["args"])["args"][1] == {
        "tuple": [None, {"tensor": True}, {"ellipsis": True}, {"slice": [1, 3, None]}]
    }
    full = json.loads(made["torch.full"]["args"])
    assert full["args"][1] == {"float": "inf"} and full["kwargs"] == {
        "dtype": {"dtype": "float16"},
        "device": {"device": "cpu"},
    }
    relu = made["torch.nn.functional.relu"]
    assert set(tensors(relu, "mutated")) == {"args[0]"}
    assert tensors(relu, "mutated")["args[0]"]["version"] != tensors(relu, "in")["args[0]"]["version"]
    assert not tensors(norm, "mutated") and not tensors(item, "mutated")


def test_inputs_are_those_before_autocast(tmp_path):
    layer = torch.nn.Linear(3, 2)

    def body():
        with torch.autocast("cpu"):
            layer(X)

    calls, _ = recorded(tmp_path / "t", body, **BOTH)
    linear = next(c for c in calls if c["op"] == "torch.nn.functional.linear")
    assert {t["dtype"] for t in tensors(linear, "in").values()} == {"float32"}
    assert tensors(linear, "out")["out[0]"]["dtype"] == "bfloat16"
    assert json.loads(linear["state"]) == {"autocast": {"cpu": "bfloat16"}}


def test_the_functions_alone(tmp_path):
    def body():
        F.relu(X.clone(), inplace=True)
        X.shape, X.dtype, len(X)
        Training()()

    calls, _ = recorded(tmp_path / "t", body, level="api")
    assert all(map(is_api, calls)) and "torch.nn.functional.cross_entropy" in apis(calls)
    relu = next(c for c in calls if c["op"] == "torch.nn.functional.relu")
    assert set(tensors(relu, "mutated")) == {"args[0]"}
    assert not any("shape" in name or "__len__" in name for name in apis(calls))


def test_without_the_level_nothing_changes(tmp_path):
    plain, _ = recorded(tmp_path / "plain", lambda: torch.manual_seed(0) and Training()())
    both, _ = recorded(tmp_path / "both", lambda: torch.manual_seed(0) and Training()(), **BOTH)
    assert apis(plain) == []
    assert [c["op"] for c in both if not is_api(c)] == [c["op"] for c in plain]


def test_a_pattern_names_functions_and_brings_what_is_below(tmp_path):
    calls, _ = recorded(tmp_path / "t", Training(), ops="torch.nn.functional.layer_norm", **BOTH)
    assert {c["op"] for c in calls} == {"torch.nn.functional.layer_norm", "aten::layer_norm", "aten::native_layer_norm"}


def test_a_raising_function_is_marked_and_raises_what_it_raises(tmp_path):
    def body():
        with pytest.raises(RuntimeError, match="normalized_shape"):
            F.layer_norm(torch.ones(3), (4,))

    calls, _ = recorded(tmp_path / "t", body, **BOTH)
    assert [c["status"] for c in calls if c["op"] == "torch.nn.functional.layer_norm"] == ["raised"]


# ---- the program does not notice -------------------------------------------------------


def state_after(steps, capture=None):
    torch.manual_seed(5)
    training = Training()
    losses = []
    for _ in range(steps):
        losses.append(training())
    return [*losses, *training.net.parameters(), *(p.grad for p in training.net.parameters()), torch.get_rng_state()]


@pytest.mark.parametrize("options", [BOTH, {"level": "api"}, {**BOTH, "data": "stats"}], ids=str)
def test_training_is_the_same_to_the_bit(tmp_path, options):
    plain = state_after(3)
    with ulpscope.capture(tmp_path / "t", **options) as capture:
        watched = state_after(3)
    assert capture.error is None and capture.counts["calls"] > 100
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert torch._C._len_torch_function_stack() == 0


def test_modules_take_their_fast_path(tmp_path):
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        plain = layer(x)
        original = torch.overrides.has_torch_function
        calls, _ = recorded(tmp_path / "t", lambda: torch.equal(layer(x), plain) or 1 / 0, **BOTH)
    assert torch.overrides.has_torch_function is original
    assert "torch._transformer_encoder_layer_fwd" in apis(calls)


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.relu else out


def test_modes_of_the_program_come_and_go_across_ours(tmp_path):
    mode, device = Doubling(), torch.device("meta")
    mode.__enter__(), device.__enter__()
    try:
        with ulpscope.capture(tmp_path / "t", **BOTH):
            assert torch.empty(1).is_meta and torch.equal(torch.relu(X), X.clamp(min=0) * 2)
            device.__exit__(None, None, None), mode.__exit__(None, None, None)
            assert not torch.empty(1).is_meta and torch.equal(torch.relu(X), X.clamp(min=0))
            with Doubling():
                assert torch.equal(torch.relu(X), X.clamp(min=0) * 2)
    finally:
        while torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()
    assert apis(read(tmp_path / "t")).count("torch.relu") == 3


class Marked(torch.Tensor):
    seen = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_still_override(tmp_path):
    x = X.as_subclass(Marked)
    with ulpscope.capture(tmp_path / "t", **BOTH):
        seen = Marked.seen
        assert type(F.relu(x)) is Marked and Marked.seen == seen + 1


def test_other_threads_are_seen_and_cleaned(tmp_path):
    ready, go = threading.Event(), threading.Event()
    found = []

    def work():
        torch.get_num_threads()  # a thread takes it over when it first asks: bits hang on it
        for _ in range(3):
            F.gelu(X)
        ready.set(), go.wait()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        x = torch.randn(2, 5, 16)
        with torch.no_grad():
            found.append(torch.equal(layer(x), layer(x)))

    thread = threading.Thread(target=work)
    with ulpscope.capture(tmp_path / "t", **BOTH):
        thread.start(), ready.wait()
    go.set(), thread.join()
    assert found == [True]
    calls = read(tmp_path / "t")
    assert apis(calls).count("torch.nn.functional.gelu") == 2  # the first met the thread


def test_functions_called_in_a_backward_pass(tmp_path):
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Linear(3, 3)

    def body():
        checkpoint(lambda x: F.gelu(layer(x)), X, use_reentrant=False).sum().backward()
        x = X.clone().requires_grad_()
        x.register_hook(torch.relu)
        torch.autograd.grad((x * x).sum(), x)

    calls, _ = recorded(tmp_path / "t", body, **BOTH)
    again = [c["op"] for c in calls if is_api(c) and c["phase"] == "backward"]
    assert {"torch.nn.functional.linear", "torch.nn.functional.gelu", "torch.relu"} <= set(again)
    assert not any("autograd" in op or "Tensor.backward" in op for op in apis(calls))


def test_workers_of_a_data_loader_are_left_alone(tmp_path):
    loader = torch.utils.data.DataLoader([X * i for i in range(4)], num_workers=2, batch_size=2)
    with ulpscope.capture(tmp_path / "t", **BOTH) as capture:
        sums = [batch.sum() for batch in loader]
    assert capture.error is None and torch.equal(torch.stack(sums), torch.stack([X.sum(), X.sum() * 5]))


def test_a_compiler_does_not_meet_the_mode(tmp_path):
    def step(x):
        return torch.relu(x * 2) + 1

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    plain = compiled(X)
    with ulpscope.capture(tmp_path / "t", **BOTH):
        inside = compiled(X)
        torch.relu(X)
    assert torch.equal(plain, inside) and torch.equal(plain, compiled(X))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 1
    assert "torch.relu" in apis(read(tmp_path / "t"))


def test_collectives_are_functions_of_torch_distributed(tmp_path):
    import torch.distributed as dist
    from torch.distributed import all_reduce

    kept = [c.cell_contents for c in dist.all_reduce.__closure__]
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        calls, capture = recorded(tmp_path / "t", lambda: all_reduce(X.clone()), **BOTH)
    finally:
        dist.destroy_process_group()
    assert capture.error is None
    function = next(c for c in calls if c["op"] == "torch.distributed.all_reduce")
    below = [c["op"] for c in calls if c["parent"] == function["sequence"]]
    assert "c10d::allreduce_" in below and set(tensors(function, "mutated")) == {"args[0]"}
    assert kept == [c.cell_contents for c in dist.all_reduce.__closure__]


@pytest.mark.parametrize("level", ["module", "api,aten"])
def test_a_second_derivative_runs_nodes_again_past_their_outputs(tmp_path, level):
    layer, x = torch.nn.Linear(3, 3), X.clone().requires_grad_()
    net = torch.nn.Sequential(layer, torch.nn.Tanh(), layer)
    with ulpscope.capture(tmp_path / "t", level=level):
        first = torch.autograd.grad(net(x).sum(), net.parameters(), create_graph=True)
        sum(g.pow(2).sum() for g in first).backward()
    assert _core.Trace(str(tmp_path / "t")).meta("complete") == "1"
