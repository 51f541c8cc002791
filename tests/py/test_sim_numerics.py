# SPDX-License-Identifier: Apache-2.0
"""Kernels with a chosen arithmetic: they compute what their operators do, honest choices pass the judge and
dishonest ones do not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import ulpscope

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

torch.manual_seed(0)
A, B, C = torch.randn(24, 300), torch.randn(300, 20), torch.randn(24, 20)
W = torch.randn(300)
Q = [torch.randn(2, 3, n, 16) for n in (17, 40, 40)]
attention = F.scaled_dot_product_attention


def layer_norm_backward(x, w, grad):
    x = x.detach().requires_grad_()
    w = w.detach().requires_grad_()
    return torch.autograd.grad(F.layer_norm(x, (300,), w), (x, w), grad)


def attention_backward(q, k, v, grad):
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    return torch.autograd.grad(attention(q, k, v), (q, k, v), grad)


def embedding_backward(indices, weight):
    weight = weight.detach().requires_grad_()
    return torch.autograd.grad(F.embedding(indices, weight, padding_idx=2).square().sum(), weight)


PICTURES, FILTERS = torch.randn(2, 6, 9, 8), torch.randn(4, 3, 3, 2)
PLACES = torch.randint(0, 5, (200,))
CALLS = {
    "mm": (torch.mm, [A, B]),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [C, A, B]),
    "bmm": (torch.bmm, [A.view(2, 12, 300), torch.stack([B, B.flip(0)])]),
    "baddbmm": (torch.baddbmm, [C.view(2, 12, 20), A.view(2, 12, 300), torch.stack([B, B + 1])]),
    "linear": (torch.nn.functional.linear, [A, B.t(), C[0]]),
    "sum": (lambda x: x.sum(1), [A]),
    "sum of all": (lambda x: x.sum(), [A]),
    "mean": (lambda x: x.mean((0, 2), keepdim=True), [A.view(4, 6, 300)]),
    "softmax": (lambda x: x.softmax(-1), [4 * A]),
    "softmax of columns": (lambda x: x.softmax(0), [4 * A.t()]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (300,), w, b), [A + 3, W, W.flip(0)]),
    "layer_norm of planes": (lambda x: F.layer_norm(x, (6, 300)), [A.view(4, 6, 300)]),
    "layer_norm backward": (layer_norm_backward, [A, W, A.flip(0)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), [A.view(4, 6, 300), W[:6], W[6:12]]),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [A.view(4, 6, 300), W[:6], W[6:12]]),
    "batch_norm of averages": (
        lambda x, m, v: F.batch_norm(x, m, v),
        [A.view(4, 6, 300), W[:6], W[:6] ** 2 + 1],
    ),
    "convolution": (
        lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        [PICTURES, FILTERS, W[:4]],
    ),
    "convolution of channels_last": (
        F.conv2d,
        [PICTURES.to(memory_format=torch.channels_last), FILTERS.repeat(1, 2, 1, 1)],
    ),
    "cumsum": (lambda x: x.cumsum(0), [A.abs()]),
    "log_softmax": (lambda x: x.log_softmax(0), [4 * A.t()]),
    "exp": (torch.exp, [A]),
    "tanh": (torch.tanh, [A]),
    "sigmoid": (torch.sigmoid, [A.t()]),
    "silu": (F.silu, [A]),
    "gelu": (F.gelu, [A[::2]]),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), [A]),
    "embedding backward": (embedding_backward, [PLACES, A[:5]]),
    "index_add": (lambda x, i, y: x.index_add(1, i, y), [A[:, :5], PLACES[:20], torch.randn(24, 20)]),
    "cross_entropy": (F.cross_entropy, [A, PLACES[:24]]),
    "nll_loss, weighed": (
        lambda x, t, w: F.nll_loss(x, t, w, ignore_index=1, reduction="sum"),
        [A.log_softmax(1), PLACES[:24], W.abs()],
    ),
    "rms_norm": (lambda x, w: F.rms_norm(x, (300,), w), [A, W]),
    "attention": (attention, Q),
    "attention, causal": (lambda q, k, v: attention(q, k, v, is_causal=True), Q),
    "attention, mask": (lambda q, k, v, m: attention(q, k, v, attn_mask=m), [*Q, A[:17, :40]]),
    "attention backward": (attention_backward, [*Q, Q[0].flip(2)]),
}
NORMS = ("layer_norm", "layer_norm of planes", "group_norm", "batch_norm")
ATTENTION = ("attention", "attention, causal", "attention, mask", "attention backward")
PRODUCTS = ("mm", "addmm", "bmm", "linear")
HONEST = [
    {"order": "serial"},
    {"order": "pairwise", "fma": True},
    {"order": "blocks:32"},
    {"order": "split-k:4"},
    {"order": "lanes:32"},
    {"order": "random"},
    {"accumulate": "float64"},
    {"like": "like:simt"},
    {"like": "like:warp-reduce"},
    {"like": "like:atomics"},
    {"online": True},
    {"variance": "welford"},
    {"variance": "chunks", "order": "lanes:32"},
    {"tile": 16},
    {"degree": 10},
    {"like": "like:flash-attention"},
    {"like": "like:welford-norm"},
    {"like": "like:apex-norm"},
    {"like": "like:online-softmax"},
]
DISHONEST_NORMS = [
    {"accumulate": "bfloat16"},
    {"accumulate": "float16"},
    {"variance": "unbiased"},
    {"epsilon": "outside"},
    {"scale": "bfloat16"},
    {"scale": "float16"},
]
DISHONEST = [
    {"accumulate": "bfloat16"},
    {"accumulate": "float16", "order": "split-k:4"},
    {"factors": "tf32"},
    {"factors": "bfloat16"},
    {"factors": "float16"},
    {"like": "like:tf32-tensor-core"},
    {"like": "like:fp16-accumulate"},
]


def words(choice):
    return " ".join(f"{k}={v}" for k, v in choice.items())


def judged(name, choice, dtype=torch.float32):
    call, tensors = CALLS[name]
    there = [(t.to(dtype) if t.is_floating_point() else t).to("sim") for t in tensors]
    with sim.numerics("*", **choice):
        return ulpscope.check_call(call, there, {}, None, cause=False).verdict


@pytest.mark.parametrize("choice", HONEST, ids=words)
@pytest.mark.parametrize("name", CALLS)
def test_honest_arithmetic_passes(name, choice):
    assert judged(name, choice) == "pass"


@pytest.mark.parametrize("choice", DISHONEST, ids=words)
@pytest.mark.parametrize("name", PRODUCTS)
def test_dishonest_products_are_accused(name, choice):
    assert judged(name, choice) in ("wrong", "reduced", "nonfinite")


@pytest.mark.parametrize("name", ["sum", "sum of all", "softmax", "softmax of columns"])
@pytest.mark.parametrize("accumulate", ["bfloat16", "float16"])
def test_dishonest_sums_are_accused(name, accumulate):
    assert judged(name, {"accumulate": accumulate}) in ("wrong", "reduced", "nonfinite")


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "silu", "gelu by tanh"])
def test_polynomials_of_too_few_terms_are_accused(name):
    assert judged(name, {"degree": 3}) in ("wrong", "reduced")


@pytest.mark.parametrize("name", ["convolution", "cumsum", "log_softmax", "embedding backward", "index_add"])
def test_other_dishonest_kernels_are_accused(name):
    assert judged(name, {"accumulate": "bfloat16"}) in ("wrong", "reduced", "nonfinite")


@pytest.mark.parametrize("choice", DISHONEST_NORMS, ids=words)
@pytest.mark.parametrize("name", NORMS)
def test_dishonest_norms_are_accused(name, choice):
    assert judged(name, choice) in ("wrong", "reduced", "nonfinite")


@pytest.mark.parametrize("choice", DISHONEST, ids=words)
@pytest.mark.parametrize("name", ATTENTION)
def test_dishonest_attention_is_accused(name, choice):
    assert judged(name, choice) in ("wrong", "reduced", "nonfinite")


def test_variance_by_moments_cancels():
    x = torch.randn(8, 300) * 0.5 + 1449.5
    with sim.numerics("*", like="like:moments-norm"):
        found = ulpscope.check_call(lambda t: F.layer_norm(t, (300,)), [x.to("sim")], {}, None, cause=False)
    assert found.verdict in ("wrong", "reduced", "nonfinite")


def test_averages_of_batch_norm_are_kept():
    x, mean, var = A.view(4, 6, 300), torch.zeros(6), torch.ones(6)
    there = [t.to("sim") for t in (x, mean, var)]
    F.batch_norm(x, mean, var, None, None, True, 0.3)
    with sim.numerics("*", accumulate="float64"):
        F.batch_norm(*there, None, None, True, 0.3)
    assert torch.allclose(there[1].cpu(), mean, atol=1e-7) and torch.allclose(there[2].cpu(), var, atol=1e-7)


@pytest.mark.parametrize("name", PRODUCTS)
def test_units_of_half_precision(name):
    assert judged(name, {"like": "like:bf16-tensor-core"}, torch.bfloat16) == "pass"
    assert judged(name, {"accumulate": "bfloat16"}, torch.bfloat16) in ("wrong", "reduced", "nonfinite")


OPTIMIZERS = {
    "adam": (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"maximize": True}),
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
}


def stepped(name, device):
    make, options = OPTIMIZERS[name]
    weights = [A[i : i + 2].clone().to(device).requires_grad_() for i in range(3)]
    optimizer = make(weights, fused=True, **options)
    for _ in range(4):
        optimizer.zero_grad()
        sum((w * w).sum() for w in weights).backward()
        optimizer.step()
    return torch.cat([w.detach().cpu() for w in weights])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fused_optimizers_step_in_the_chosen_dtype(name):
    host = stepped(name, "cpu")
    with sim.numerics("*fused*"):
        near = stepped(name, "sim")
    with sim.numerics("*fused*", accumulate="bfloat16"):
        far = stepped(name, "sim")
    assert torch.allclose(near, host, rtol=1e-5, atol=1e-6) and not torch.allclose(far, host, rtol=1e-4, atol=1e-4)


def same(a, b):
    return torch.equal(a.cpu(), b.cpu())


def test_what_is_chosen_is_what_is_computed():
    a, b = A.to("sim"), B.to("sim")
    plain = a @ b
    with sim.numerics("mm", accumulate="float64"):
        assert same(a @ b, (A.double() @ B.double()).float())
        assert same(torch.bmm(a[None], b[None])[0], torch.bmm(A[None], B[None])[0])  # nothing was chosen for it
        with sim.numerics("mm", factors="tf32"):
            first = a @ b
        assert not same(first, a @ b)
    assert same(a @ b, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_strides_offsets_and_out_arguments(dtype):
    a, b = A.to(dtype).to("sim"), B.to(dtype).to("sim")
    with sim.numerics("*", order="pairwise"):
        expected = a @ b
        assert same(a.t().contiguous().t() @ b.t().contiguous().t(), expected)
        assert same(a[3:20:2] @ b[:, 2:], expected[3:20:2, 2:])
        wide = torch.full((24, 40), 7, dtype=dtype, device="sim")
        out = torch.empty(0, dtype=dtype, device="sim")
        assert torch.mm(a, b, out=wide[:, ::2]) is not None and same(wide[:, ::2], expected)
        assert (wide[:, 1::2] == 7).all()
        assert same(torch.mm(a, b, out=out), expected) and out.shape == (24, 20)
        assert same(torch.addmm(torch.full_like(expected, torch.nan), a, b, beta=0), expected)
        assert (a[:0] @ b).shape == (0, 20) and not (a[:, :0] @ b[:0]).any()
        assert same(a.sum((), dtype=torch.float64), A.to(dtype).sum((), dtype=torch.float64))  # the CPU's


def test_gradients_and_later_kernels_have_it_too():
    host = A.clone().requires_grad_()
    x = A.to("sim").requires_grad_()
    with sim.numerics("*mm*", accumulate="float64"):
        (x @ B.to("sim")).sum().backward()
    (host.double() @ B.double()).sum().backward()
    assert same(x.grad, host.grad)
    with sim.numerics("mm", accumulate="float64"):
        inside = A.to("sim") @ B.to("sim")
    outside = A.to("sim") @ B.to("sim")
    assert same(inside, (A.double() @ B.double()).float()) and same(outside, A @ B)


def test_sets_name_their_documents():
    rows = sim.numerics_sets()
    assert rows["like:tf32-tensor-core"][0] == "factors=tf32 accumulate=float32 order=blocks:8"
    assert all(source for _, source in rows.values())
    for wrong, said in (
        ({"order": "zigzag"}, "no order 'zigzag'; there are serial"),
        ({"like": "like:tpu"}, "no set"),
        ({"speed": 3}, "no choice 'speed'"),
        ({"acumulate": "float32"}, "the nearest is 'accumulate'"),
    ):
        with pytest.raises(ValueError, match=said):
            sim.numerics("mm", **wrong)


def dropped(x, **choice):
    x = x.detach().requires_grad_()
    torch.manual_seed(5)
    with sim.numerics("*dropout*", **choice):
        y = F.dropout(x, 0.3)
        return y.detach(), torch.autograd.grad(y, x, torch.full_like(y, 3))[0]


@pytest.mark.parametrize("stream", ["cpu", "philox"])
def test_dropout_draws_from_the_devices_generator(stream):
    sim.random(stream)
    try:
        torch.manual_seed(5)
        mask = torch.empty(24, 300, device="sim").bernoulli_(0.7).cpu()
        moved = sim.get_rng_state()
        y, grad = dropped(A.to("sim"))
        assert torch.equal(sim.get_rng_state(), moved)
        assert same(y, A * mask * (1 / 0.7)) and same(grad, 3 * mask * (1 / 0.7))
        far, its = dropped(A.to("sim"), accumulate="bfloat16")
        assert not same(far, y) and same(far != 0, y != 0) and not same(its, grad)
        half = A.to(torch.bfloat16)
        assert same(dropped(half.to("sim"))[0], (half.float() * mask * (1 / 0.7)).bfloat16())
    finally:
        sim.random("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "silu", "gelu", "gelu by tanh", "cumsum", "log_softmax"])
def test_layout_and_dtype_change_no_bit(name, dtype):
    call, x = CALLS[name][0], A[:, :24].to(dtype)
    with sim.numerics("*"):
        dense = call(x.to("sim")).cpu()
        strided = torch.zeros(24, 48, dtype=dtype, device="sim")[:, ::2].copy_(x)
        assert same(call(strided), dense) and call(strided).stride() == call(x).stride()
        if name not in ("cumsum", "log_softmax"):
            assert same(call(x.t().to("sim")), dense.t()) and call(x.t().to("sim")).stride() == (1, 24)
        if dtype != torch.float64:  # computed in float32, and rounded once
            assert same(call(x.float().to("sim")).to(dtype), dense)
