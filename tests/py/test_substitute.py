# SPDX-License-Identifier: Apache-2.0
"""`substitute`: functions in the place of operators, on the simulated device; what they may return, raise and call."""

import pytest
import torch
from test_reroute import Net, nothing_is_left  # noqa: F401

import ulpscope
import ulpscope.sim


@pytest.fixture(scope="module")
def fused():
    """A fused operator of a vendor: its kernel rounds intermediates to bfloat16."""
    library = torch.library.Library("usc_npu", "DEF")
    library.define("rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)")
    library.define("scale_(Tensor(a!) x, float by) -> Tensor(a!)")
    library.define("rope_(Tensor(a!) q, Tensor(b!) k, Tensor cos) -> ()")

    def kernel(narrow):
        def rms_norm(x, weight, eps):
            y = x.float()
            rstd = ((y * y).mean(-1, keepdim=True) + eps).rsqrt()
            if narrow:
                rstd = rstd.bfloat16().float()
            return (y * rstd * weight).to(x.dtype), rstd

        return rms_norm

    library.impl("rms_norm", kernel(True), "PrivateUse1")
    library.impl("rms_norm", kernel(False), "CPU")
    library.impl(
        "rms_norm",
        lambda x, w, eps: (torch.empty_like(x), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)),
        "Meta",
    )
    for key in ("CPU", "PrivateUse1"):
        library.impl("scale_", lambda x, by: x.mul_(by * 1.5), key)
        library.impl("rope_", lambda q, k, cos: None, key)
    yield kernel(False)
    library._destroy()


def test_substitute_of_a_faulty_fused_operator(fused):
    x, w = torch.randn(4, 8), torch.ones(8)
    right = torch.ops.usc_npu.rms_norm(x, w, 1e-6)[0]
    assert not torch.equal(torch.ops.usc_npu.rms_norm(x.to("sim"), w.to("sim"), 1e-6)[0].cpu(), right)
    with ulpscope.substitute("usc_npu::rms_norm", fused) as mode:
        got = torch.ops.usc_npu.rms_norm(x.to("sim"), w.to("sim"), 1e-6)
    assert got[0].device.type == "sim" and torch.equal(got[0].cpu(), right)
    assert mode.n_calls == {"usc_npu::rms_norm": 1}
    with ulpscope.fallback("usc_npu::*"):
        assert torch.equal(torch.ops.usc_npu.rms_norm(x.to("sim"), w.to("sim"), 1e-6)[0].cpu(), right)


BAD = [
    (lambda x, w, eps: x, "returned 1 result, the operator returns 2 (Tensor, Tensor)"),
    (lambda x, w, eps: (x, x), "returned shape [4, 8] as result 1, the operator returns [4, 1]"),
    (lambda x, w, eps: (x.half(), x[:, :1]), "returned float16 as result 0, the operator returns float32"),
    (lambda x, w, eps: (x, 1.0), "returned float as result 1, the operator returns a Tensor"),
]


@pytest.mark.parametrize(("fn", "sentence"), BAD)
def test_a_function_that_returns_something_else(fused, fn, sentence):
    x, w = torch.randn(4, 8, device="sim"), torch.ones(8, device="sim")
    with ulpscope.substitute("usc_npu::rms_norm", fn), pytest.raises(ValueError) as error:
        torch.ops.usc_npu.rms_norm(x, w, 1e-6)
    assert sentence in str(error.value) and "substitute for usc_npu::rms_norm" in str(error.value)


def test_substitutes_of_operators_that_write(fused):
    x = torch.ones(3, device="sim")
    with ulpscope.substitute("usc_npu::scale_", lambda x, by: x * by):
        assert torch.ops.usc_npu.scale_(x, 2.0) is x and x.cpu().tolist() == [2, 2, 2]
    with ulpscope.substitute("usc_npu::scale_", lambda x, by: x.mul_(by)):
        assert torch.ops.usc_npu.scale_(x, 2.0) is x and x.cpu().tolist() == [4, 4, 4]
    q, k = torch.ones(2, device="sim"), torch.ones(2, device="sim")
    with ulpscope.substitute("usc_npu::rope_", lambda q, k, cos: (q * 3, k * 5)):
        torch.ops.usc_npu.rope_(q, k, q)
    assert (q.cpu().tolist(), k.cpu().tolist()) == ([3, 3], [5, 5])
    with (
        ulpscope.substitute("usc_npu::scale_", lambda x, by: x[:1]),
        pytest.raises(ValueError, match="for x, which is"),
    ):
        torch.ops.usc_npu.scale_(x, 2.0)
    lists = [torch.ones(2, device="sim"), torch.ones(3, device="sim")]
    with ulpscope.substitute("aten::_foreach_add_.Scalar", lambda ts, s: [t + 2 * s for t in ts]):
        torch._foreach_add_(lists, 1.0)
    assert [t.cpu().tolist() for t in lists] == [[3, 3], [3, 3, 3]]


class Own(Exception):
    pass


def raise_own(*args, **kwargs):
    raise Own("of the user")


@pytest.mark.parametrize("where", ("aten::mm", "aten::gelu_backward", "aten::linear"))
def test_an_exception_of_the_function_reaches_the_program(where):
    net, x = Net().to("sim"), torch.randn(8, 16, device="sim")
    w = torch.randn(4, 4, device="sim", requires_grad=True)
    with ulpscope.substitute(where, raise_own) as mode, pytest.raises(Own, match="of the user"):
        (w @ w).sum().backward()
        net(x).sum().backward()
    assert mode.n_calls == {where: 1}
    assert (w @ w).shape == (4, 4)


def test_the_original_is_called_inside_and_gradients_are_the_operators():
    w = torch.randn(4, 4, device="sim", requires_grad=True)
    (w @ w).sum().backward()
    right, w.grad = w.grad.cpu(), None
    with ulpscope.substitute("aten::mm", lambda a, b: torch.mm(a, b)) as mode:
        (w @ w).sum().backward()
    assert torch.equal(w.grad.cpu(), right) and mode.n_calls == {"aten::mm": 3}
    with ulpscope.substitute("aten::mul.Tensor", lambda a, b: a):
        x = torch.ones(2, device="sim")
        y = x * x
        y += 1
    assert x.cpu().tolist() == [1, 1]


def test_a_composite_operator_takes_the_gradient_of_the_function():
    x = torch.randn(3, 4, device="sim", requires_grad=True)
    w = torch.randn(5, 4, device="sim")
    with ulpscope.substitute("aten::linear", lambda x, w, b=None: 2 * (x @ w.t())):
        torch.nn.functional.linear(x, w).sum().backward()
    assert torch.equal(x.grad.cpu(), (2 * torch.ones(3, 5) @ w.cpu()))


def test_a_capture_sees_what_the_route_made(tmp_path):
    a = torch.randn(8, 8, device="sim")
    with ulpscope.substitute("aten::mm", lambda x, y: torch.mm(x, y) * 0):
        with ulpscope.capture(tmp_path / "trace") as c:
            assert (a @ a).cpu().abs().max() == 0
    assert c.error is None and c.counts["calls"] >= 1
