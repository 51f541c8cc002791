# SPDX-License-Identifier: Apache-2.0
"""Large outputs judged in pieces and on a sample of rows: the same verdict as of the whole,
and wrong kernels found wherever they are wrong. The sizes from which this is done are made
small here."""

import pytest
import torch
from calls import make_call
from ulpscope import _judging, _rows, _sampled
from ulpscope._device import PythonDevice, TorchDevice
from ulpscope._verdicts import FLAGGED

ROWS, INNER, WIDE = 1200, 96, 40


@pytest.fixture(autouse=True)
def small(monkeypatch):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    monkeypatch.setattr(_rows, "LARGE", 1000)
    monkeypatch.setattr(_rows, "PIECE", 3000)
    monkeypatch.setattr(_sampled, "WORK", 1 << 18)
    monkeypatch.setattr(_sampled, "FEWEST", 64)


def randn(*sizes):
    return torch.randn(*sizes)


PRODUCTS = {
    "mm": lambda: ("aten::mm", (randn(ROWS, INNER), randn(INNER, WIDE))),
    "mm of transposed": lambda: ("aten::mm", (randn(INNER, ROWS).t(), randn(WIDE, INNER).t())),
    "addmm": lambda: ("aten::addmm", (randn(WIDE), randn(ROWS, INNER), randn(INNER, WIDE))),
    "addmm of a matrix": lambda: ("aten::addmm", (randn(ROWS, WIDE), randn(ROWS, INNER), randn(INNER, WIDE))),
    "bmm": lambda: ("aten::bmm", (randn(2, ROWS, INNER), randn(2, INNER, WIDE))),
    "baddbmm": lambda: ("aten::baddbmm", (randn(2, 1, WIDE), randn(2, ROWS, INNER), randn(2, INNER, WIDE))),
    "linear": lambda: ("aten::linear", (randn(3, ROWS // 3, INNER), randn(WIDE, INNER), randn(WIDE))),
}


def verdict_of(kind, fault=None, table=PRODUCTS):
    op, args = table[kind]()
    device = TorchDevice("cpu") if fault is None else PythonDevice(fault)
    return _judging.judge_call(make_call(op, *args), device, seconds=0)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_large_product_is_judged_on_some_rows(kind):
    verdict = verdict_of(kind)
    assert verdict.verdict == "pass"
    assert any(note.startswith("judged on ") and "rows" in note for note in verdict.notes)
    assert 0 < verdict.part.share < 0.5
    assert verdict.worst.n == 2 * ROWS * WIDE if "b" == kind[0] else ROWS * WIDE


def spoilt(spoil):
    """A device that spoils what the CPU gives, as rows of a matrix."""
    def device(op, args, kwargs):
        out = op(*args, **kwargs)
        spoil(out.view(-1, WIDE))
        return out

    return device


def tf32(op, args, kwargs):
    def low(x):
        m, e = torch.frexp(x)
        return torch.ldexp((m * 2**11).round() / 2**11, e)

    return op(*map(low, args), **kwargs)


def stale(out):
    out[-1, -1] = 0.0


def tile(out):
    out[512:576] = 0.0


FAULTS = {
    "TF32": tf32,
    "a row": spoilt(lambda out: out[777].mul_(1.01)),
    "an element": spoilt(lambda out: out[413, 17].add_(0.05)),
    "NaN": spoilt(lambda out: out[999, 3].fill_(float("nan"))),
    "two elements exchanged": spoilt(lambda out: out[333].copy_(out[333].roll(1))),
    "two rows exchanged": spoilt(lambda out: out[101:103].copy_(out[101:103].flip(0))),
    "the last element": spoilt(stale),
    "a tile": spoilt(tile),
    "zeros": spoilt(lambda out: out.zero_()),
}


@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_product_is_found_wherever_it_is(kind, fault):
    assert verdict_of(kind, FAULTS[fault]).verdict in FLAGGED


def test_the_place_of_a_wrong_element_is_told():
    verdict = verdict_of("mm", FAULTS["an element"])
    assert [e[0] for e in verdict.worst.examples][:1] == [413 * WIDE + 17]


ROWWISE = {
    "gelu": lambda: ("aten::gelu", (randn(ROWS, WIDE),)),
    "add": lambda: ("aten::add.Tensor", (randn(ROWS, WIDE), randn(WIDE))),
    "mul transposed": lambda: ("aten::mul.Tensor", (randn(WIDE, ROWS).t(), randn(ROWS, 1))),
    "add_": lambda: ("aten::add_.Tensor", (randn(ROWS, WIDE), randn(ROWS, WIDE))),
    "_log_softmax": lambda: ("aten::_log_softmax", (randn(ROWS, WIDE), 1, False)),
    "_softmax": lambda: ("aten::_softmax", (randn(ROWS, WIDE), -1, False)),
    "_log_softmax_backward_data": lambda: (
        "aten::_log_softmax_backward_data",
        (randn(ROWS, WIDE), randn(ROWS, WIDE).log_softmax(1), 1, torch.float32)),
    "nll_loss_backward": lambda: (
        "aten::nll_loss_backward",
        (torch.tensor(0.3), randn(ROWS, WIDE), torch.randint(0, WIDE, (ROWS,)), None, 1, -100,
         torch.tensor(float(ROWS)))),
}  # fmt: skip


@pytest.mark.parametrize("kind", ROWWISE)
def test_a_large_output_is_judged_in_pieces(kind):
    verdict = verdict_of(kind, table=ROWWISE)
    assert verdict.verdict == "pass" and verdict.part.share == 1.0
    assert (verdict.worst.n, verdict.worst.sizes) == (ROWS * WIDE, (ROWS, WIDE))
    assert sum(p.data.numel() for p in verdict.operands.reference.parts.values()) <= 4 * 3000


def enlarged(op, args, kwargs):
    """One element of a middle row is off by a thousandth."""
    out = op(*args, **kwargs)
    out[701, 5] = out[701, 5] * 1.001 + 1e-4
    return out


@pytest.mark.parametrize("kind", ROWWISE)
def test_a_wrong_element_in_any_piece_is_found(kind):
    verdict = verdict_of(kind, enlarged, ROWWISE)
    assert verdict.verdict in FLAGGED
    assert [e[0] for e in verdict.worst.examples][:1] == [701 * WIDE + 5]


@pytest.mark.parametrize("op, args", [
    ("aten::_log_softmax", lambda: (randn(ROWS, WIDE), 0, False)),
    ("aten::cumsum", lambda: (randn(ROWS, WIDE), 0)),
])  # fmt: skip
def test_rows_that_hang_together_are_judged_as_one(op, args):
    verdict = _judging.judge_call(make_call(op, *args()), TorchDevice("cpu"))
    assert verdict.verdict == "pass" and verdict.part is None
