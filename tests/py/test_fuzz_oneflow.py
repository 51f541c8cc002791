# SPDX-License-Identifier: Apache-2.0
"""Programs in plain torch text under OneFlow's names: those of its authors' article run as they stand."""

import inspect

import pytest
import torch as original
from test_fuzz_programs import drawn, few

import ulpscope.sim as sim
from ulpscope.calls.callable import same_bytes
from ulpscope.compat import oneflow
from ulpscope.fuzzing import (
    call,
    fuzz,
    layer,
    tensor,
    torch,
)
from ulpscope.fuzzer.programs import Tape, played, running


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
