# SPDX-License-Identifier: Apache-2.0
"""`@ulpscope.fuzz` and the names of OneFlow's AutoTest: tests in plain torch text on two sides."""

import inspect

import pytest
import torch as original

import ulpscope
import ulpscope.sim as sim
from ulpscope.calls.callable import same_bytes
from ulpscope.compat import oneflow
from ulpscope.fuzzing import (
    bools,
    broadcasting,
    call,
    constant,
    contracting,
    dtypes,
    floats,
    fuzz,
    ints,
    layer,
    oneof,
    pooling,
    random_or_nothing,
    shapes,
    tensor,
    torch,
)
from ulpscope.fuzzer.programs import Tape, played, running

few = {"n": 4, "cause": False, "shrink": False}


def drawn(given, case=0):
    with running(Tape(5, case)):
        return given.value() if hasattr(given, "value") else given()


# ---- generators ------------------------------------------------------------------------


def test_a_generator_is_one_value_in_a_case():
    k = ints(1, 100)
    pairs = [drawn(constant((k, k + 1, 2 * k, k // 3))) for case in range(5)]
    assert all((b, c, d) == (a + 1, 2 * a, a // 3) for a, b, c, d in pairs)
    assert len({drawn(k, case) for case in range(50)}) > 25
    assert [drawn(k, 7) for _ in range(3)] == [drawn(k, 7)] * 3


def test_generators_give_what_they_say():
    many = range(300)
    assert {drawn(ints(2, 5), c) for c in many} == {2, 3, 4}
    assert all(-1 <= drawn(floats(-1, 1), c) < 1 for c in many)
    assert {drawn(bools(), c) for c in many} == {True, False}
    assert {drawn(ints(0, 9).where(lambda x: x % 4 == 1), c) for c in many} == {1, 5}
    assert {drawn(ints(0, 9).map(lambda x: x > 3), c) for c in many} == {True, False}
    kept = sum(isinstance(drawn(random_or_nothing(ints(0, 9)), c), int) for c in many)
    assert 150 < kept < 250
    thirds = [drawn(oneof(1, 2) | 3, c) for c in many]
    assert all(60 < thirds.count(k) < 140 for k in (1, 2, 3))
    assert {drawn(dtypes("half", torch.int64), c) for c in many} == {torch.float16, torch.int64}
    low = ints(3, 6)
    assert all(a < b for a, b in (drawn(constant((low, ints(low + 1, 9))), c) for c in many))


def test_families_of_shapes_go_together():
    sizes, empty = set(), 0
    for case in range(200):
        a, b, c = drawn(constant(tuple(broadcasting(3))), case)
        assert torch.broadcast_shapes(a, b, c) == a or 0 in a
        m, n = drawn(constant(tuple(contracting())), case)
        assert m[1] == n[0]
        kernel = ints(1, 6)
        image, k = drawn(constant((pooling(2, kernel), kernel)), case)
        assert len(image) == 4 and min(image[2:]) >= k
        sizes |= set(a)
        empty += 0 in drawn(shapes(), case)
    assert {1, 33, 65, 129} <= sizes and 0 < empty < 40


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match="no draw of 200 satisfies the condition"):
        drawn(ints(0, 9).where(lambda x: x > 10))
    with pytest.raises(ValueError, match=r"nothing lies in \[3, 3\)"):
        drawn(ints(3, 3))
    with pytest.raises(RuntimeError, match="inside a function under @ulpscope.fuzz alone"):
        ints(0, 3).value()
    with pytest.raises(ValueError, match="no torch.dtype and no group; groups: bool, float"):
        dtypes("fp4")
    with pytest.raises(ValueError, match='the first is "cpu"'):
        fuzz(lambda: None, devices=("sim:0", "cpu"))


def test_tensors_are_what_was_asked_for():
    def text():
        return [tensor(shapes(), dtype=dtypes("float", "low", "int", "complex", "bool"))]

    strided = offset = 0
    for case in range(150):
        one, same = (played(text, Tape(1, case), ())[0].detach() for _ in range(2))
        assert same_bytes(one, same)
        assert one.stride() == same.stride()
        strided += not one.is_contiguous()
        offset += one.storage_offset() > 0
    assert strided > 15 and offset > 5
    even = played(lambda: tensor(50, 40, low=-2, high=3), Tape(1, 0), ())[0]
    assert -2 <= even.min() < -1.9 and 2.9 < even.max() < 3


# ---- texts on two sides ----------------------------------------------------------------


@fuzz(n=6)
def test_a_text_passes_on_an_honest_device():
    a, b = contracting()
    x = torch.nn.functional.gelu(torch.matmul(tensor(a), tensor(b)) * floats(0.5, 2))
    return x.sum(dim=-1, keepdim=bools()), x.softmax(-1)


@fuzz(n=4)
def test_modules_share_weights():
    width = ints(1, 20)
    m = torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.LayerNorm(8))
    return m(tensor(ints(1, 5), width))


class Scaled(original.nn.Module):
    """A module of a user, made of torch's own functions."""

    def __init__(self, width):
        super().__init__()
        self.scale = original.nn.Parameter(original.linspace(1, 2, width))

    def forward(self, x):
        return original.nn.functional.softplus(x) * self.scale


def own(x):
    return original.tanh(x).sum(-1)


def test_functions_and_modules_of_ones_own_are_taken():
    """By their names alone where they are made of torch's functions, through `call` in any case."""

    def text():
        width = ints(1, 20)
        x = layer(Scaled, width)(tensor(ints(1, 5), width, values="normal"))
        return own(x), call(own, x)

    fuzz(text, **few)()
    with sim.fault("aten::tanh", "scale"), pytest.raises(AssertionError, match="text on sim:0"):
        fuzz(text, **few)()
    with (
        sim.fault("aten::softplus_backward", "scale"),
        pytest.raises(AssertionError, match="out.1. is a gradient of an input"),
    ):
        fuzz(text, **few)()


@fuzz(n=4)
def test_what_is_written_in_place_counts():
    x, y = (tensor(s, requires_grad=False, layout=None) for s in broadcasting(2))
    x += y
    x.mul_(2)
    return x


def matmul():
    a, b = contracting()
    return torch.matmul(tensor(a, values="normal"), tensor(b, values="normal"))


def test_a_fault_is_found_and_its_case_fails_alone():
    with sim.fault("aten::mm", "tf32"), pytest.raises(AssertionError) as failure:
        fuzz(matmul, n=20)()
    text = str(failure.value)
    assert "matmul on sim:0, case 0:" in text and "TF32" in text
    assert "y0 = torch.matmul(x0, x1)  # (" in text and "x0 = tensor((" in text and "values='" in text
    case = text.rpartition('case="')[2].partition('"')[0]
    with sim.fault("aten::mm", "tf32"), pytest.raises(AssertionError, match=f"case {case.partition(';')[0]}:"):
        fuzz(matmul, case=case, cause=False)()
    fuzz(matmul, case=case, cause=False)()


def test_gradients_and_intermediates_are_judged():
    def softmax():
        return tensor(4, 9, values="normal").softmax(-1)

    def hidden():
        return (torch.nn.functional.gelu(tensor(40, values="normal")) > -9).float()

    with sim.fault("aten::_softmax_backward_data", "scale"):
        with pytest.raises(AssertionError, match="multiplied by|effective bits|instead of"):
            fuzz(softmax, **few)()
        fuzz(softmax, backward=False, **few)()
    with sim.fault("aten::gelu", "scale"), pytest.raises(AssertionError, match="gelu|hidden"):
        fuzz(hidden, **few)()


LOW = {
    "product and sum": ("aten::mul.Tensor", lambda: low(40) * low(40) + low(40)),
    "rms norm": ("aten::rsqrt", lambda: normed(low(4, 40))),
    "two products": (
        "aten::mm",
        lambda: torch.matmul(torch.nn.functional.gelu(torch.matmul(low(5, 8), low(8, 9))), low(9, 3)),
    ),
}


def low(*sizes):
    return tensor(*sizes, dtype=torch.bfloat16, values="normal")


def normed(x):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


@pytest.mark.parametrize("name", LOW)
def test_each_operator_of_a_text_rounds_to_its_dtype(name):
    """What torch on the CPU loses in bfloat16 between operators is nobody's fault, and what is more is."""
    op, text = LOW[name]
    one = {
        "n": 1,
        "cause": False,
        "shrink": False,
        "backward": name == "product and sum",
    }  # what is accused is replayed often
    fuzz(text, **one)()
    with (
        sim.fault(op, "scale", factor=1.06),
        pytest.raises(AssertionError, match="<lambda> on sim:0, case 0:0: (wrong|reduced)"),
    ):
        fuzz(text, **one)()


def test_buffers_of_a_module_have_no_gradients():
    def text():
        return torch.nn.BatchNorm1d(4)(tensor(6, 4, values="normal"))

    fuzz(text, **few)()
    with sim.fault("aten::native_batch_norm", "scale"), pytest.raises(AssertionError, match="text on sim:0"):
        fuzz(text, **few)()


class Slope(original.autograd.Function):
    """The gradient of x^3; its own one is off by FACTOR on the simulated device."""

    FACTOR = 1.0

    @staticmethod
    def forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        return 3 * x * x * g

    @staticmethod
    def backward(ctx, gg):
        x, g = ctx.saved_tensors
        return 6 * x * g * gg * (Slope.FACTOR if x.device.type == "sim" else 1.0), 3 * x * x * gg


class Cube(original.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        return Slope.apply(*ctx.saved_tensors, g)


TWICE = {
    "matmul": lambda: torch.matmul(tensor(3, 4, values="normal"), tensor(4, 5, values="normal")),
    "gelu": lambda: torch.nn.functional.gelu(tensor(40, values="normal")),
    "layer norm": lambda: torch.nn.LayerNorm(8)(tensor(4, 8, values="normal")),
    "convolution": lambda: torch.nn.Conv2d(2, 3, 3)(tensor(2, 2, 6, 6, values="normal")),
    "softmax": lambda: tensor(4, 9, values="normal").softmax(-1),
    "linear": lambda: tensor(5) + tensor(5),  # whose gradients hang on the cotangent alone
}


@pytest.mark.parametrize("name", TWICE)
def test_gradients_of_gradients_are_judged(name):
    fuzz(TWICE[name], n=2, cause=False, double_backward=True)()


def test_what_is_wrong_in_a_double_backward_alone_is_found(monkeypatch):
    def sine():  # its derivative is a cosine, of which that is a sine with the other sign: aten::neg
        return tensor(40, values="normal").sin()

    def cube():
        return call(Cube.apply, tensor(40, values="normal"))

    with sim.fault("aten::neg", "scale"):
        fuzz(sine, **few)()
        with pytest.raises(AssertionError, match="gradient of a gradient"):
            fuzz(sine, double_backward=True, **few)()
    monkeypatch.setattr(Slope, "FACTOR", 1.01)
    fuzz(cube, **few)()
    with pytest.raises(AssertionError, match="gradient of a gradient"):
        fuzz(cube, double_backward=True, **few)()
    monkeypatch.setattr(Slope, "FACTOR", 1.06)
    with pytest.raises(AssertionError, match="gradient of a gradient"):  # beyond what bfloat16 loses
        fuzz(lambda: call(Cube.apply, low(40)), double_backward=True, **few)()
    monkeypatch.undo()
    fuzz(cube, double_backward=True, **few)()
    fuzz(lambda: call(Cube.apply, low(40)), double_backward=True, **few)()


def test_a_double_backward_that_the_cpu_refuses_is_said():
    def distances():
        return torch.cdist(tensor(3, 4, values="normal"), tensor(5, 4, values="normal"), 3.0)

    fuzz(distances, n=1, cause=False)()
    with pytest.raises(
        ValueError, match="the last is refused: in a double backward NotImplementedError: .*narrow what is drawn"
    ):
        fuzz(distances, double_backward=True, **few)()


def test_refusals_of_both_sides_are_compared():
    def divides():
        return torch.matmul(tensor(3, ints(1, 4), layout=None), tensor(ints(1, 4), 2, layout=None))

    fuzz(divides, **few)()  # most draws do not go together, on both sides
    with (
        sim.fault("aten::mm", "lacking"),
        pytest.raises(AssertionError, match="raises .* where the CPU gives a result"),
    ):
        fuzz(divides, **few)()
    with pytest.raises(ValueError, match="the CPU takes 0 of 81 draws, the last is refused: .*narrow what is drawn"):
        fuzz(lambda: torch.matmul(tensor(3, 4), tensor(3, 4)), **few)()


@original._dynamo.register_backend
def scaling(module, inputs):
    """A compiler that is wrong of a tanh."""
    for node in module.graph.nodes:
        if "tanh" in str(node.target):
            with module.graph.inserting_after(node):
                more = module.graph.call_function(original.mul, (node, 1.01))
            node.replace_all_uses_with(more, lambda user, more=more: user is not more)
    module.recompile()
    return module.forward


def hidden_tanh():
    return torch.nn.Linear(4, 3)(tensor(5, 4, values="normal")).tanh().sum(-1)


def test_a_text_is_compiled():
    fuzz(hidden_tanh, via="aot_eager", devices=("cpu",), **few)()
    with pytest.raises(AssertionError, match="hidden_tanh on cpu, case 0:0: (wrong|reduced)"):
        fuzz(hidden_tanh, via="scaling", devices=("cpu",), **few)()
    with pytest.raises(ValueError, match="torch.compile has no backend indctor; known here: .*inductor"):
        fuzz(hidden_tanh, via="indctor", devices=("cpu",))()
    with pytest.raises(ValueError, match="leave double_backward or via out"):
        fuzz(hidden_tanh, via="inductor", double_backward=True)


def test_graphs_of_autotest_are_compiled(monkeypatch):
    def text(test_case):
        return oneflow.torch.tanh(oneflow.random_tensor(ndim=2, dim0=3, dim1=5))

    oneflow.autotest(n=1, check_graph=True)(text)(None)
    monkeypatch.setattr(oneflow, "GRAPH", "scaling")
    oneflow.autotest(n=1)(text)(None)
    with pytest.raises(AssertionError, match="text on cpu, case 0:0"):
        oneflow.autotest(n=1, check_graph=True)(text)(None)


def test_a_text_is_timed_on_both_sides_and_not_judged(capsys):
    test = fuzz(hidden_tanh, n=2, profile=True)
    with sim.fault("aten::tanh", "scale"):
        test()
    rows = {(r["op"], r["phase"]): r for r in test.rows}
    assert {("aten::tanh", "forward"), ("aten::tanh_backward", "backward"), ("aten::addmm", "forward")} <= set(rows)
    assert rows["aten::tanh", "forward"]["calls"] == 2 and all(r["device_ms"] > 0 for r in test.rows)
    assert "hidden_tanh on sim:0 and on the CPU, milliseconds; no verdict" in capsys.readouterr().out


def test_the_public_name_is_the_same():
    assert ulpscope.fuzz is fuzz


# ---- OneFlow's names: the programs of its authors' article ------------------------------


@oneflow.autotest(n=3)
def test_deconv2d_with_random_data(test_case=None):
    channels = oneflow.random(1, 6)
    m = oneflow.torch.nn.ConvTranspose2d(
        in_channels=channels,
        out_channels=oneflow.random(1, 20),
        kernel_size=oneflow.random(1, 4),
        stride=oneflow.random() | oneflow.nothing(),
        padding=oneflow.random(1, 3).to(int) | oneflow.nothing(),
        dilation=oneflow.random(1, 5) | oneflow.nothing(),
        groups=oneflow.random(1, 5) | oneflow.nothing(),
        padding_mode=oneflow.constant("zeros") | oneflow.nothing(),
    )
    m.train(oneflow.random())
    device = oneflow.random_device()
    m.to(device)
    x = oneflow.random_pytorch_tensor(ndim=4, dim1=channels).to(device)
    return m(x)


@oneflow.autotest(n=5)
def test_flow_matmul_with_random_data(test_case=None):
    k = oneflow.random(1, 6)
    x = oneflow.random_pytorch_tensor(ndim=2, dim1=k)
    y = oneflow.random_pytorch_tensor(ndim=2, dim0=k)
    return oneflow.torch.matmul(x, y)


@oneflow.autotest(n=5, auto_backward=False)
def test_against_pytorch(test_case=None):
    m = oneflow.torch.nn.Flatten(
        start_dim=oneflow.random(1, 6) | oneflow.nothing(), end_dim=oneflow.random(1, 6) | oneflow.nothing()
    )
    m.train(oneflow.random())
    device = oneflow.random_device()
    m.to(device)
    x = oneflow.random_pytorch_tensor().to(device)
    return m(x)


def test_names_of_oneflow_draw_as_there():
    many = range(300)
    assert {drawn(oneflow.random(1, 4), c) for c in many} == {1, 2, 3}
    assert {drawn(oneflow.random_bool(), c) for c in many} == {True, False}
    assert {type(drawn(oneflow.random(0, 1).to(float), c)) for c in many} == {float}
    kept = sum(isinstance(drawn(oneflow.random_or_nothing(1, 4), c), int) for c in many)
    assert 150 < kept < 250
    often = [drawn(oneflow.oneof("a", "b", possibility=0.9), c) for c in many].count("a")
    assert often > 240
    assert drawn(oneflow.random_dtype(["half"])) == torch.float16
    made = [drawn(lambda: oneflow.random_tensor(ndim=3, dtype=int).raw, c) for c in range(60)]
    assert all(t.shape[0] == 1 and max(t.shape) <= 7 and -10 <= t.min() and t.max() <= 10 for t in made)
    with pytest.raises(TypeError, match="autotest takes no rtoll"):
        oneflow.autotest(rtoll=1)


def test_a_test_outside_of_a_class_has_no_fixture_to_wait_for():
    """pytest takes the arguments of a function without a default for fixtures."""
    given = []

    def text(test_case):
        given.append(test_case)
        return oneflow.random_pytorch_tensor(ndim=1)

    class Tests:
        @oneflow.autotest(n=1)
        def text(self):
            pass

    for graph in (False, True):
        test = oneflow.autotest(n=1, check_allclose=False, check_graph=graph)(text)
        assert inspect.signature(test).parameters["test_case"].default is None
        test()
        test(Tests)
    assert set(given) == {None, Tests}
    assert inspect.signature(Tests.text).parameters["self"].default is inspect.Parameter.empty


def replay_of(text):
    """The lines that a failure says to type."""
    return "\n".join(line.strip() for line in str(text).partition("that case alone:\n")[2].splitlines())


def broad_matmul(test_case=None):
    k = oneflow.random(2, 6)
    x = oneflow.random_pytorch_tensor(ndim=2, dim0=oneflow.random(3, 9), dim1=k)
    y = oneflow.torch.matmul(x, oneflow.random_pytorch_tensor(ndim=2, dim0=k, dim1=oneflow.random(4, 9)))
    oneflow.torch.exp(x)
    return y * 2


def test_a_failure_tells_the_program_made_small_and_its_replay_runs_as_it_stands():
    with sim.fault("aten::mm", "scale"):
        with pytest.raises(AssertionError, match="broad_matmul on sim:0, case 0:0") as failure:
            oneflow.autotest(n=3, auto_backward=False)(broad_matmul)(None)
        text = str(failure.value)
        for line in (
            "x0 = tensor((3, 2), dtype=torch.float32, values='ones')",
            "x1 = tensor((2, 4), dtype=torch.float32, values='ones')",
            "y0 = torch.matmul(x0, x1)  # (3, 4) float32",
        ):
            assert f"\n    {line}\n" in text, text
        assert "exp" not in text  # on which nothing hangs
        with pytest.raises(AssertionError, match="effective bits|instead of|multiplied"):
            exec(replay_of(text), {})
        oneflow.autotest(n=3, check_allclose=False)(broad_matmul)(None)  # only runs
    exec(replay_of(text), {})


def test_an_assertion_of_the_text_fails_it_and_is_told_at_its_smallest():
    def text(test_case):
        x = oneflow.random_tensor(ndim=2, dim0=oneflow.random(1, 20), dim1=3)
        assert x.shape[0] < 5, "too many rows"
        return x.sin()

    with pytest.raises(AssertionError, match="too many rows") as failure:
        oneflow.autotest(n=20)(text)(None)
    (note,) = failure.value.__notes__
    assert "x0 = tensor((5, 3)" in note
    with pytest.raises(AssertionError, match="too many rows"):
        exec(replay_of(note), {"text": text})


def raising(problem):
    def text(test_case):
        oneflow.torch.exp(oneflow.random_tensor(ndim=1))
        raise problem

    return text


@pytest.mark.parametrize(
    "problem", [ValueError("mine"), KeyError("mine"), RuntimeError("mine"), AssertionError("mine")], ids=repr
)
def test_what_a_text_raises_is_no_refusal_of_torch(problem):
    with pytest.raises(type(problem), match="mine"):
        oneflow.autotest(n=2)(raising(problem))(None)


def test_a_text_runs_as_often_as_it_is_asked_and_says_what_was_refused(capsys, monkeypatch):
    runs = []

    def text(test_case):
        runs.append(1)
        k = oneflow.random(1, 3)
        return oneflow.torch.matmul(
            oneflow.random_tensor(ndim=2, dim1=k), oneflow.random_tensor(ndim=2, dim0=oneflow.random(1, 3))
        )

    test = oneflow.autotest(n=3)(text)
    test(None)
    assert test.ran == {"taken": 3, "refused": len(runs) - 3} and len(runs) > 3
    said = capsys.readouterr().out
    assert said.startswith(
        f"text on sim:0: 3 cases, the test ran {len(runs)} times: {len(runs) - 3} draws were refused, the last one "
        "as RuntimeError"
    )
    monkeypatch.setenv("ONEFLOW_TEST_VERBOSE", "1")
    oneflow.autotest(n=1)(broad_matmul)(None)
    assert "case 0:0: pass\n    x0 = tensor((" in capsys.readouterr().out


def test_a_text_that_asks_where_it_runs_runs_there():
    def text():
        x = tensor(40, values="normal")
        return x.exp() * (1.01 if x.device.type == "sim" else 1.0)

    with pytest.raises(AssertionError, match="text on sim:0, case 0:0: (wrong|reduced)"):
        fuzz(text, **few)()


def everything(test_case=None):
    """Steps of all kinds."""
    x, i = oneflow.random_tensor(ndim=2, dim0=4, dim1=6), original.tensor([2, 0, 1])
    m = oneflow.torch.nn.Sequential(oneflow.torch.nn.BatchNorm1d(6), oneflow.torch.nn.Dropout(0.0))
    m.eval()
    values, places = oneflow.torch.max(m(x), 1)
    m.train()
    y = m[0](x)[i, 1:] - values.max() + m[0].weight.sum()
    with oneflow.torch.no_grad():
        z = (-y).T.contiguous()
        z[0] = places.float()[:3] if float(places.sum()) >= 0 else 0
        z += 1 - z
    assert y.requires_grad and not z.requires_grad and len(y) == 3 and places.dtype == original.int64
    return y, z, 2 / oneflow.torch.stack(list(y)).clamp(min=0.5)


def test_steps_of_all_kinds_are_repeated():
    for case in range(3):
        first = Tape(5, case)
        outputs = [t.detach().clone() for t in played(everything, first, (None,))]
        with running(Tape(5, case)):
            again = first.steps.run([t.detach().clone().requires_grad_(t.requires_grad) for t in first.made], "cpu")
        assert len(outputs) > 8 and all(same_bytes(a, b.detach()) for a, b in zip(outputs, again, strict=True))
        assert {step.word.kind for step in first.steps.lines} == {"module", "name", "method", "get", "operator"}


def test_a_step_may_be_made_of_words_of_the_text():
    def text():
        return call(lambda x: torch.exp(x) + oneflow.torch.sin(x), tensor(5, values="normal")), layer(
            torch.nn.Linear, 3, 2
        )(tensor(2, 3))

    fuzz(text, **few)()
    with sim.fault("aten::sin", "scale"), pytest.raises(AssertionError, match="text on sim:0"):
        fuzz(text, **few)()


def test_both_sides_are_there_in_a_text():
    def text(test_case):
        x = oneflow.random_tensor(ndim=1, dim0=5)
        y = x.exp()
        y.sum().backward()
        assert (x.oneflow.device.type, x.pytorch.device.type) == ("sim", "cpu")
        assert original.allclose(y.oneflow.cpu(), y.pytorch) and original.allclose(x.oneflow.grad.cpu(), x.pytorch.grad)
        m = oneflow.torch.nn.Linear(5, 2)
        m(x).sum().backward()
        assert (m.oneflow.weight.device.type, m.pytorch.weight.device.type) == ("sim", "cpu")
        assert original.allclose(m.pytorch(x.pytorch), m(x).pytorch) and original.equal(
            m.pytorch.bias.grad, original.ones(2)
        )
        assert repr(y).startswith("tensor([") and f"{y.detach().sum():.3f}" == f"{y.pytorch.sum().item():.3f}"
        return x.grad

    oneflow.autotest(n=2)(text)(None)
    with sim.fault("aten::exp", "scale", factor=2), pytest.raises(AssertionError, match="text"):
        oneflow.autotest(n=2, shrink=False)(text)(None)


class three(oneflow.generator):  # noqa: N801
    def _calc_value(self):
        return 3


def test_generators_of_oneflow_are_whole(recwarn):
    def text():
        big = oneflow.random(1, 1 << 20)
        return big.eval() == big.value(), big.eval() != big.eval(), (big + three()).value() - big.value()

    assert drawn(text) == (True, True, 3)
    either = oneflow.random() | oneflow.nothing()
    assert (three().size(), either.size(), (either | 2).size(), oneflow.random_or_nothing(1, 2).size()) == (1, 2, 3, 2)
    kernels = {
        drawn(lambda: oneflow.torch.nn.Conv2d(1, 1, kernel_size=oneflow.random(1, 3)).kernel_size, c) for c in range(60)
    }
    assert kernels == {(1, 1), (1, 2), (2, 1), (2, 2)}
    padded = {drawn(lambda: oneflow.torch.nn.AvgPool2d(3, stride=oneflow.random(1, 3)).stride, c) for c in range(60)}
    assert {1, 2, 3, (1, 2), (2, 1)} - {3} <= padded  # its default is None
    assert {drawn(oneflow.oneof("a", oneflow.constant("b"), "c"), c) for c in range(60)} == {"a", "b", "c"}
    assert drawn(lambda: oneflow.oneof(oneflow.torch.exp)(oneflow.random_tensor(ndim=1)).shape) is not None


def test_flow_unittest_is_that_of_python():
    unit = oneflow.flow.unittest

    @unit.skip_unless_1n1d()
    class One(unit.TestCase):
        pass

    @unit.skip_unless_1n2d()
    class Two(unit.TestCase):
        pass

    assert not hasattr(One, "__unittest_skip__") and "1 nodes with 2 devices" in Two.__unittest_skip_why__
    with pytest.raises(AttributeError, match="has no skip_unles"):
        _ = unit.skip_unles
