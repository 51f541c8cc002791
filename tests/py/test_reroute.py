# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.fallback`, `cast`, `substitute`: a planted fault goes where its operator is computed
another way, what a call writes and shares stays as it was, and nothing else changes a bit."""

import gc
import json
import os
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import ulpscope
import ulpscope.sim
from ulpscope.program import reroute


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.norm(self.up(x))))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
}


def train(device, optimizer="sgd", dtype=torch.float32, steps=2, loss_of=lambda net, x: net(x)):
    """Losses, and the parameters at the end."""
    torch.manual_seed(0)
    net = Net().to(dtype)
    data = [torch.randn(8, 16).to(dtype) for _ in range(steps)]
    net = net.to(device)
    opt = OPTIMIZERS[optimizer](net.parameters())
    losses = []
    for x in data:
        opt.zero_grad()
        loss = loss_of(net, x.to(device)).float().pow(2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in net.parameters()]


def same(one, other):
    return one[0] == other[0] and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))


def kernels_of_ours():
    dump = torch._C._dispatch_dump
    return [n for n in ("aten::mm", "aten::addmm", "aten::linear", "aten::add.Tensor") if "ulpscope reroute" in dump(n)]


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert kernels_of_ours() == []


FAULTS = [
    ("aten::addmm", "sgd", "aten::addmm"),
    ("aten::mm", "sgd", "aten::mm"),
    ("aten::native_layer_norm", "sgd", "layer_norm*,native_layer_norm"),
    ("aten::native_layer_norm_backward", "sgd", "*_backward"),
    ("aten::addmm", "sgd", "aten::linear"),  # composite: the calls below it
    ("aten::_foreach_add_", "foreach", "aten::_foreach_*"),
    ("aten::_fused_adamw_", "fused", "_fused_adamw_"),
]
KINDS = {"aten::_fused_adamw_": "step_plus_one"}


@pytest.mark.parametrize(("faulty", "optimizer", "ops"), FAULTS)
def test_fallback_of_the_faulty_operator_gives_the_cpus_bits(faulty, optimizer, ops):
    right = train("cpu", optimizer)
    assert same(right, train("sim", optimizer))
    with ulpscope.sim.fault(faulty, KINDS.get(faulty, "bf16_output")):
        assert not same(right, train("sim", optimizer))
        with ulpscope.fallback(ops) as mode:
            assert same(right, train("sim", optimizer))
        with ulpscope.fallback("aten::erf") as other:
            assert not same(right, train("sim", optimizer))
    assert mode.error is None and sum(mode.n_calls.values()) > 0
    assert other.n_calls == {}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_fallback_of_everything_is_the_cpu(optimizer, dtype):
    right = train("cpu", optimizer, dtype)
    with ulpscope.sim.fault("*,!*copy*", "scale"), ulpscope.fallback("*") as mode:
        assert same(right, train("sim", optimizer, dtype))
    assert mode.error is None and len(mode.n_calls) > 5


def on(device, f):
    """What `f` leaves in its tensors and returns, on the CPU."""
    torch.manual_seed(0)
    base = torch.randn(6, 8)
    x = base.to(device)
    try:
        made = f(x)
    except RuntimeError as error:
        return type(error).__name__
    made = made if isinstance(made, (tuple, list)) else [made]
    return [t.cpu() for t in (x, *made)], [t.stride() for t in made], [t.dtype for t in made]


def into_out(x):
    out = torch.empty(0, device=x.device)
    result = torch.add(x, x, out=out)
    assert result is out
    return out


def into_strided_out(x):
    out = torch.zeros(8, 6, device=x.device).t()
    torch.mul(x, 3, out=out)
    return out


def foreach(x):
    parts = list(x.unbind(0))
    torch._foreach_add_(parts, 1.5)
    torch._foreach_mul_(parts, [p.clone() for p in parts])
    return parts


CALLS = {
    "in place": lambda x: x.add_(1),
    "its own argument": lambda x: x.mul_(x),
    "rows of one tensor": lambda x: x[0].add_(x[1]),
    "overlapping": lambda x: x[:-1].add_(x[1:]),
    "a transposed view": lambda x: x.t().mul_(2),
    "an expanded input": lambda x: x.add_(x[0].clone().expand(6, 8)),
    "a strided input": lambda x: x[:, ::2] + x[:, 1::2],
    "a written strided view": lambda x: x[:, ::3].neg_(),
    "out that grows": into_out,
    "out with strides": into_strided_out,
    "lists of views": foreach,
    "a keyword": lambda x: torch.add(input=x, other=x, alpha=2),
    "indices": lambda x: x.index_put_((torch.tensor([0, 2], device=x.device),), x[1]),
    "a masked write": lambda x: x.masked_fill_(x > 0, 5),
    "several results": lambda x: torch.sort(x, dim=1),
    "a factory": lambda x: torch.arange(5, device=x.device) + 1,
    "like": lambda x: torch.ones_like(x) + x,
    "a conversion": lambda x: x.to(torch.float16),
    "cat": lambda x: torch.cat([x, x[:2]]),
    "channels last": lambda x: torch.relu(x.view(1, 2, 4, 6).to(memory_format=torch.channels_last)),
    "metadata in place": lambda x: x.clone().t_().add_(1),
    "set item": lambda x: x.__setitem__((slice(1, 3), 0), 7.0) or x,
    "empty": lambda x: x[:0] + 1,
    "complex": lambda x: torch.view_as_complex(x.view(6, 4, 2)).conj() * 2,
    "half matmul": lambda x: x.half() @ x.half().t(),
    "batch norm": lambda x: torch.nn.functional.batch_norm(x, x[0].clone(), x[1].abs(), training=True),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_writes_and_returns(name):
    right = on("cpu", CALLS[name])
    with ulpscope.fallback("*") as mode:
        got = on("sim", CALLS[name])
    if isinstance(right, str):
        assert got == right
        return
    assert all(torch.equal(a, b) for a, b in zip(right[0], got[0], strict=True))
    assert right[1:] == got[1:]
    assert mode.error is None


@pytest.mark.parametrize("name", CALLS)
def test_what_a_cast_call_writes_and_returns(name):
    right = on("cpu", CALLS[name])
    with ulpscope.cast("*", "float64") as mode:
        got = on("cpu", CALLS[name])
    if isinstance(right, str):
        assert got == right
        return
    for a, b in zip(right[0], got[0], strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-5)
    assert right[2] == got[2]
    assert mode.error is None


def test_a_cast_undoes_the_loss_of_a_narrow_kernel():
    x = torch.randn(32, 64).to("sim")
    exact = torch.nn.functional.layer_norm(x.cpu().double(), (64,))
    half = x.half()
    with ulpscope.cast("native_layer_norm", torch.float32) as mode:
        got = torch.nn.functional.layer_norm(half, (64,))
    assert got.dtype == torch.float16 and mode.n_calls == {"aten::native_layer_norm": 1}
    torch.testing.assert_close(got.cpu().double(), exact, rtol=2e-3, atol=2e-3)


MIXED = {
    "two floats": (lambda x: x.bfloat16() + x, torch.float32),
    "a number beside": (lambda x: x.bfloat16() * torch.tensor(2.0), torch.bfloat16),
    "a dtype asked for": (lambda x: x.bfloat16().sum(dtype=torch.float32), torch.float32),
    "softmax to float": (lambda x: torch.softmax(x.half(), -1, dtype=torch.float32), torch.float32),
    "half softmax": (lambda x: torch.softmax(x.half(), -1), torch.float16),
    "integers out": (lambda x: x.half().argmax(), torch.int64),
    "booleans out": (lambda x: x.half() > 0, torch.bool),
    "a view": (lambda x: x.half().t(), torch.float16),
    "dropout": (lambda x: torch.dropout(x.half(), 0.5, True), torch.float16),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_cast_gives_back_the_operators_own_dtype(name, dtype):
    """ditorch gives every float32 result of mixed inputs back as bfloat16."""
    f, expected = MIXED[name]
    x = torch.randn(4, 4)
    assert f(x).dtype == expected
    with ulpscope.cast("*", dtype):
        assert f(x).dtype == expected


def test_what_does_not_match_keeps_its_bits_and_its_random_numbers():
    def run():
        torch.manual_seed(3)
        x = torch.randn(64, 64, device="sim")
        y = torch.nn.functional.dropout(x @ x, 0.3)
        return y.exp().cpu(), torch.randn(4), torch.randn(4, device="sim").cpu()

    before = run()
    with ulpscope.fallback("aten::mm"), ulpscope.cast("aten::sin", "float64"):
        after = run()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_half_precision_that_the_cpu_lacks_is_taken_in_float32():
    """ditorch leaves such results detached and in float32."""
    library = torch.library.Library("usc_half", "DEF")
    library.define("twice(Tensor x) -> Tensor")

    def on_cpu(x):
        if x.dtype == torch.float16:
            raise RuntimeError("\"twice\" not implemented for 'Half'")
        return x * 2

    library.impl("twice", on_cpu, "CPU")
    library.impl("twice", lambda x: x * 3, "PrivateUse1")
    x = torch.tensor([1.0, 2.5], device="sim", dtype=torch.float16)
    with ulpscope.fallback("usc_half::twice") as mode:
        got = torch.ops.usc_half.twice(x)
    assert got.dtype == torch.float16 and got.cpu().tolist() == [2.0, 5.0] and mode.said == set()
    library._destroy()


def test_an_operator_without_a_cpu_kernel_runs_as_it_is_and_that_is_said(capfd):
    library = torch.library.Library("usc_only", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "PrivateUse1")
    x = torch.ones(3, device="sim")
    with ulpscope.fallback("usc_only::*") as mode:
        for _ in range(3):
            assert torch.ops.usc_only.twice(x).cpu().tolist() == [2.0, 2.0, 2.0]
    assert mode.n_calls in ({}, {"usc_only::twice": 3})
    assert capfd.readouterr().err.count("usc_only::twice ran as it is") == 1
    library._destroy()


def test_an_error_of_the_program_is_the_devices_own():
    x, y = torch.ones(2, 3, device="sim"), torch.ones(2, 3, device="sim")
    with pytest.raises(RuntimeError) as own:
        torch.mm(x, y)
    for mode in (ulpscope.fallback("*"), ulpscope.cast("*", "float64")):
        with mode, pytest.raises(RuntimeError) as error:
            torch.mm(x, y)
        assert str(error.value) == str(own.value)


def test_a_pattern_that_took_nothing_is_said(capfd):
    with ulpscope.fallback("aten::no_such_operator"):
        pass
    with ulpscope.cast("aten::bmm", "float32"):
        pass
    err = capfd.readouterr().err
    assert "fallback('aten::no_such_operator'): no operator of this torch matches" in err
    assert "cast('aten::bmm'): matched" in err and "none of which was called" in err


def test_inner_modes_win_and_modes_nest():
    a = torch.randn(8, 8, device="sim")
    with ulpscope.sim.fault("aten::mm", "bf16_output"):
        with ulpscope.fallback("aten::mm") as outer:
            with ulpscope.substitute("aten::mm", lambda x, y: torch.zeros_like(x)) as inner:
                assert (a @ a).cpu().abs().max() == 0
            assert torch.equal((a @ a).cpu(), a.cpu() @ a.cpu())
    assert inner.n_calls == {"aten::mm": 1} and outer.n_calls == {"aten::mm": 1}


def test_as_a_decorator_and_again():
    mode = ulpscope.fallback("aten::mm")

    @mode
    def product(x):
        return (x @ x).cpu()

    a = torch.randn(8, 8, device="sim")
    with ulpscope.sim.fault("aten::mm", "bf16_output"):
        for _ in range(2):
            assert torch.equal(product(a), a.cpu() @ a.cpu())
    assert mode.n_calls == {"aten::mm": 2}


def test_entered_in_each_step_it_leaves_nothing_behind(monkeypatch):
    """No look at every object of the process, and no handler for forks, which could not be taken back."""
    a = torch.randn(8, 8, device="sim")
    with ulpscope.fallback("aten::mm"):  # what is loaded once
        _ = a @ a
    monkeypatch.setattr(gc, "get_objects", lambda: pytest.fail("the objects of the process are walked"))
    monkeypatch.setattr(os, "register_at_fork", lambda **_: pytest.fail("a handler that stays"))
    for _ in range(3):
        with ulpscope.fallback("aten::mm") as mode:
            _ = a @ a
        assert mode.n_calls == {"aten::mm": 1}


def test_steps_and_threads_of_the_scope():
    a = torch.randn(8, 8, device="sim")
    right, got = a.cpu() @ a.cpu(), []
    with ulpscope.sim.fault("aten::mm", "bf16_output"):
        with ulpscope.fallback("aten::mm", steps=[1], step_by="manual") as mode:
            for _ in range(3):
                got.append(torch.equal((a @ a).cpu(), right))
                mode.step()
        assert got == [False, True, False]
        here = ulpscope.fallback("aten::mm", threads=[threading.get_native_id()])
        with here:
            other = threading.Thread(target=lambda: got.append(torch.equal((a @ a).cpu(), right)))
            other.start()
            other.join()
            got.append(torch.equal((a @ a).cpu(), right))
    assert got[3:] == [False, True]


def test_threads_at_once():
    a = torch.randn(16, 16, device="sim")
    right, wrong = a.cpu() @ a.cpu(), []

    def work():
        for _ in range(20):
            if not torch.equal((a @ a).cpu(), right):
                wrong.append(1)

    with ulpscope.sim.fault("aten::mm", "bf16_output"), ulpscope.fallback("aten::mm") as mode:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong and mode.n_calls == {"aten::mm": 80}


@pytest.mark.parametrize("way", ("autocast", "checkpoint", "inference"))
def test_in_the_surroundings_of_training(way):
    def loss_of(net, x):
        if way == "checkpoint":
            return checkpoint(net, x, use_reentrant=False)
        with torch.autocast(x.device.type, torch.bfloat16):
            return net(x)

    if way == "inference":
        with torch.inference_mode():
            net, x = Net(), torch.randn(8, 16)
            right = net(x)
            with ulpscope.sim.fault("aten::addmm", "bf16_output"), ulpscope.fallback("aten::linear"):
                assert torch.equal(net.to("sim")(x.to("sim")).cpu(), right)
        return
    right = train("sim", loss_of=loss_of)
    with ulpscope.fallback("*") as mode:
        assert same(right, train("sim", loss_of=loss_of))
    assert mode.error is None


def test_around_a_compiled_region():
    compiled = torch.compile(lambda x: torch.mm(x, x) + 1, backend="eager")
    a = torch.randn(8, 8, device="sim")
    with ulpscope.sim.fault("aten::mm", "bf16_output"), ulpscope.fallback("aten::mm"):
        assert torch.equal(compiled(a).cpu(), a.cpu() @ a.cpu() + 1)


# ---- arguments, environment, failure ---------------------------------------------------

REFUSED = [
    (lambda: ulpscope.fallback(""), "PATTERN of operators"),
    (lambda: ulpscope.fallback("a b"), "ops:"),
    (lambda: ulpscope.fallback("*", modules="layers *"), "modules:"),
    (lambda: ulpscope.cast("*", "int8"), "a floating dtype"),
    (lambda: ulpscope.cast("*", "nonsense"), "a floating dtype"),
    (lambda: ulpscope.substitute("aten::mm", 3), "a function"),
    (lambda: reroute.from_text("{"), "no JSON"),
    (lambda: reroute.from_text("{}"), "a list of"),
    (lambda: reroute.from_text('[{"do": "x", "ops": "*"}]'), "fallback, cast or substitute"),
    (lambda: reroute.from_text('[{"do": "substitute", "ops": "*", "with": "f"}]'), "module:function"),
    (lambda: reroute.from_text('[{"do": "cast", "op": "*"}]'), "PATTERN"),
]


@pytest.mark.parametrize(("make", "sentence"), REFUSED)
def test_bad_arguments_are_refused_with_a_sentence(make, sentence):
    with pytest.raises(ValueError) as error:
        make()
    assert sentence in str(error.value)


def zeros_of_mm(a, b):
    return torch.zeros_like(a)


def test_from_environment(monkeypatch):
    rows = [
        {"do": "fallback", "ops": "aten::addmm"},
        {"do": "cast", "ops": "aten::sin", "dtype": "float64"},
        {"do": "substitute", "ops": "aten::mm", "with": f"{__name__}:zeros_of_mm"},
    ]
    monkeypatch.setenv("ULPSCOPE_REROUTE", json.dumps(rows))
    modes = reroute.from_environment()
    try:
        a = torch.ones(4, 4, device="sim")
        assert (a @ a).cpu().abs().max() == 0
        assert torch.sin(a).dtype == torch.float32
    finally:
        for mode in reversed(modes):
            mode.__exit__(None, None, None)
    assert [type(m).__name__ for m in modes] == ["fallback", "cast", "substitute"]
    assert modes[1].n_calls == {"aten::sin": 1} and modes[2].n_calls == {"aten::mm": 1}


def test_operators_that_come_later_are_taken_in():
    with ulpscope.fallback("usc_late::*") as mode:
        library = torch.library.Library("usc_late", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("twice", lambda x: x * 3, "PrivateUse1")
        assert torch.ops.usc_late.twice(torch.ones(1, device="sim")).item() == 2
    assert mode.n_calls == {"usc_late::twice": 1}
    library._destroy()


def test_a_mode_that_fails_switches_itself_off_and_says_so_once(monkeypatch, capfd):
    from ulpscope.program import glue

    def broken(name):
        raise glue.GlueError("no compiler")

    monkeypatch.setattr(glue, "build", broken)
    with ulpscope.fallback("*", step_by="manual") as mode:
        for _ in range(3):
            assert (torch.ones(2, device="sim") + 1).sum().item() == 4
            mode.step()
    assert "no compiler" in mode.error
    assert capfd.readouterr().err.count("no compiler") == 1


def test_a_function_without_out_computes_what_is_written_there():
    a = torch.randn(4, 4, device="sim")
    for fn in (lambda x, y: x - y, lambda x, y, *, out: out.copy_(x - y), lambda x, y, **more: x - y):
        out = torch.empty(4, 4, device="sim")
        with ulpscope.substitute("aten::mm", fn):
            assert torch.mm(a, a + 1, out=out) is out
        assert torch.allclose(out.cpu(), torch.full((4, 4), -1.0))
