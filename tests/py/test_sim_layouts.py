# SPDX-License-Identifier: Apache-2.0
"""Sparse, quantized and nested tensors of the simulated device are what the CPU's are, bit by bit."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from torch import nn

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

pytestmark = pytest.mark.filterwarnings("ignore")
DENSE = torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, -1.0, 0.25]])


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def learned(device):
    """Three steps of an embedding with sparse gradients."""
    torch.manual_seed(1)
    table = nn.Embedding(10, 3, sparse=True).to(device)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    for i in range(3):
        optimizer.zero_grad()
        table(torch.tensor([1, 2, 2, 7 - i], device=device)).square().sum().backward()
        assert table.weight.grad.is_sparse
        optimizer.step()
    return table.weight.detach()


def nested(device):
    return torch.nested.nested_tensor([draw(2, 4), draw(3, 4, seed=1)], device=device)


def per_channel(x):
    scales = torch.tensor([0.1, 0.2, 0.05, 0.4], device=x.device)
    return torch.quantize_per_channel(x, scales, torch.zeros(4, dtype=torch.long, device=x.device), 0, torch.qint8)


def quantized(x, dtype=torch.quint8):
    return torch.quantize_per_tensor(x, 0.1, 3, dtype)


def gradient_of_product(x, device):
    s = x.to_sparse().requires_grad_()
    w = draw(4, 3).to(device).requires_grad_()
    torch.sparse.mm(s, w).square().sum().backward()
    return [s.grad.to_dense(), w.grad]


SPARSE = {
    "made": lambda x, d: torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 4.0], (2, 2), device=d).coalesce(),
    "to and back": lambda x, d: DENSE.to_sparse().to(d).cpu(),
    "from dense": lambda x, d: x.to_sparse(),
    "parts": lambda x, d: [x.to_sparse().indices(), x.to_sparse().values()],
    "sum": lambda x, d: x.to_sparse() + 2 * x.to_sparse(),
    "in place": lambda x, d: x.to_sparse().add_(x.t().to_sparse()).mul_(3),
    "product": lambda x, d: torch.sparse.mm(x.to_sparse(), x),
    "addmm": lambda x, d: torch.sparse.addmm(x, x.to_sparse(), x),
    "softmax": lambda x, d: torch.sparse.softmax(x.to_sparse(), 1),
    "reduced": lambda x, d: torch.sparse.sum(x.to_sparse(), 0),
    "masked": lambda x, d: x.sparse_mask(x.to_sparse().coalesce()),
    "transposed": lambda x, d: x.to_sparse().t(),
    "cat": lambda x, d: torch.cat([x.to_sparse(), x.to_sparse()]),
    "zeroed": lambda x, d: x.to_sparse().zero_(),
    "hybrid": lambda x, d: x.view(2, 2, 4).to_sparse(1),
    "other dtype": lambda x, d: x.to_sparse().to(torch.float64),
    "gradients": gradient_of_product,
    "copied": lambda x, d: copy.deepcopy(x.to_sparse()),
    "csr": lambda x, d: x.to_sparse_csr(),
    "csr made": lambda x, d: torch.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 2.0], (2, 2), device=d),
    "csr to and back": lambda x, d: DENSE.to_sparse_csr().to(d).cpu(),
    "csr parts": lambda x, d: [x.to_sparse_csr().crow_indices(), x.to_sparse_csr().values()],
    "csr product": lambda x, d: x.to_sparse_csr() @ x,
    "csc": lambda x, d: x.to_sparse_csc().to_dense(),
    "bsr": lambda x, d: x.to_sparse_bsr((2, 2)).to_dense(),
    "bsc": lambda x, d: x.to_sparse_bsc((2, 2)),
    "csr and coo": lambda x, d: x.to_sparse_csr().to_sparse(),
}

QUANTIZED = {
    "per tensor": lambda x, d: quantized(x),
    "per channel": lambda x, d: per_channel(x),
    "dequantized": lambda x, d: [quantized(x).dequantize(), per_channel(x).dequantize()],
    "to and back": lambda x, d: quantized(DENSE).to(d).cpu(),
    "bits": lambda x, d: quantized(x, torch.qint8).int_repr(),
    "scales": lambda x, d: [per_channel(x).q_per_channel_scales(), per_channel(x).q_per_channel_zero_points()],
    "relu": lambda x, d: nn.functional.relu(quantized(x)),
    "view": lambda x, d: quantized(x).view(2, 8)[1],
    "copy": lambda x, d: quantized(torch.zeros_like(x)).copy_(quantized(x)),
    "copy of floats": lambda x, d: quantized(torch.zeros_like(x)).copy_(x),
    "cat": lambda x, d: torch.cat([quantized(x), quantized(x)]),
    "pool": lambda x, d: nn.functional.max_pool2d(quantized(x).view(1, 1, 4, 4), 2),
    "clone": lambda x, d: quantized(x).t().clone(),
    "fake": lambda x, d: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255),
    "empty": lambda x, d: torch._empty_affine_quantized(
        [3], scale=0.5, zero_point=1, dtype=torch.quint8, device=d
    ).fill_(2.0),
}

NESTED = {
    "made": lambda d: nested(d),
    "to and back": lambda d: nested("cpu").to(d).cpu(),
    "padded": lambda d: nested(d).to_padded_tensor(-1.0),
    "sum": lambda d: nested(d) + nested(d) * 2,
    "linear": lambda d: nn.functional.linear(nested(d), draw(5, 4).to(d), draw(5).to(d)),
    "softmax": lambda d: nested(d).softmax(-1),
    "unbound": lambda d: list(nested(d).unbind()),
    "clone": lambda d: nested(d).clone(),
    "relu": lambda d: nested(d).relu_(),
    "other dtype": lambda d: nested(d).to(torch.float64),
}


def plain(value):
    """Strided tensors of the host that tell all of a value."""
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in plain(v)]
    if value.is_nested:
        return [t for part in value.cpu().unbind() for t in plain(part)]
    if value.is_quantized:
        value = value.cpu()
        if value.qscheme() == torch.per_channel_affine:
            return [value.int_repr(), value.q_per_channel_scales(), value.q_per_channel_zero_points()]
        return [value.int_repr(), torch.tensor([value.q_scale(), value.q_zero_point()])]
    if value.layout == torch.sparse_coo:
        value = value.coalesce().cpu()
        return [value.indices(), value.values(), torch.tensor(value.shape)]
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.cpu() for t in (value.crow_indices(), value.col_indices(), value.values())]
    if value.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.cpu() for t in (value.ccol_indices(), value.row_indices(), value.values())]
    return [value.detach().cpu()]


def is_the_cpus(there, here):
    mine, theirs = plain(there), plain(here)
    assert len(mine) == len(theirs) > 0
    for a, b in zip(mine, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


@pytest.mark.parametrize("name", [*SPARSE, *QUANTIZED])
def test_sparse_and_quantized_are_the_cpus(name):
    run = SPARSE.get(name) or QUANTIZED[name]
    for table in (t for t in (SPARSE, QUANTIZED) if name in t):
        run = table[name]
        there = run(DENSE.to("sim"), "sim")
        if "back" not in name and isinstance(there, torch.Tensor):
            assert there.device.type == "sim" and there.layout == run(DENSE, "cpu").layout
        is_the_cpus(there, run(DENSE, "cpu"))


@pytest.mark.parametrize("name", NESTED)
def test_nested_are_the_cpus(name):
    is_the_cpus(NESTED[name]("sim"), NESTED[name]("cpu"))


def test_sparse_gradients_train_as_on_the_cpu():
    is_the_cpus(learned("sim"), learned("cpu"))


def test_saved_and_loaded():
    for value in (DENSE.to("sim").to_sparse(), DENSE.to("sim").to_sparse_csr(), quantized(DENSE.to("sim"))):
        file = io.BytesIO()
        torch.save(value, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        assert loaded.device.type == "sim"
        is_the_cpus(loaded, value)


def test_values_are_shared_as_on_the_cpu():
    s = DENSE.to("sim").to_sparse().coalesce()
    s.values().fill_(7)
    assert torch.equal(s.to_dense().cpu(), DENSE.ne(0) * 7.0)


def test_on_the_second_device():
    s = DENSE.to("sim:1").to_sparse()
    assert s.device == s.values().device == torch.device("sim:1") and (s + s).device == s.device
    assert DENSE.to("sim:0").to_sparse().to("sim:1").device.index == 1
    assert quantized(DENSE.to("sim:0")).to("sim:1").device.index == 1


def test_what_does_not_fit_is_refused_and_the_device_goes_on():
    s = DENSE.to("sim").to_sparse()
    with pytest.raises(RuntimeError, match="size"):
        torch.sparse.mm(s, draw(3, 3).to("sim"))
    with pytest.raises(RuntimeError, match="same device"):
        torch.sparse.mm(s, DENSE)
    with pytest.raises((RuntimeError, NotImplementedError)):
        nested("sim") + nested("sim").to("sim:1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((RuntimeError, NotImplementedError), match="layout|Mkldnn|mkldnn"):
            DENSE.to("sim").to_mkldnn()
    assert torch.equal((s + s).to_dense().cpu(), 2 * DENSE)
