# SPDX-License-Identifier: Apache-2.0
"""`@ulpscope.fuzz` and the names of OneFlow's AutoTest: tests in plain torch text on two sides."""

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
