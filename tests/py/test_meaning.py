# SPDX-License-Identifier: Apache-2.0
"""What a call means by its dtype is what it means in the dtype captured: a reference in float64
is held to the same eps, tolerance, bound and branch."""

import numpy
import pytest
import torch
from ulpscope import check_call, judge_call

FLAGGED = ("wrong", "reduced", "nonfinite")
F = torch.nn.functional
ROWS = torch.Generator().manual_seed(5)


def randn(*sizes):
    return torch.randn(*sizes, generator=ROWS)


def rms(x, keep=None, eps=2.0**-23):
    kept = x.double()[..., :keep]
    mean = (kept * kept).sum(-1, keepdim=True) / x.shape[-1]
    return (x.double() * torch.rsqrt(mean + eps)).to(x.dtype)


def normalized(x):
    return x / (x.norm(dim=-1, keepdim=True) + torch.finfo(x.dtype).eps)


def masked(x):
    hidden = torch.ones_like(x, dtype=torch.bool).triu(1)
    return torch.softmax(x.masked_fill(hidden, torch.finfo(x.dtype).min), -1)


def branch(x):
    return x.float().sin().to(x.dtype) if x.dtype == torch.bfloat16 else x * 2


def guarded(x):
    return torch.log(x.clamp_min(torch.finfo(x.dtype).eps))


def upcast(x):
    y = x.float()
    return (y / (y.abs().amax(-1, keepdim=True) + torch.finfo(y.dtype).eps)).type(x.dtype)


def counted(x):
    return x * x.element_size()


def promoted(x):
    return x + torch.finfo(torch.result_type(x, x)).eps * 2.0**10


def solution(a, b):
    return torch.linalg.lstsq(a, b, driver="gelsd").solution


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = torch.nn.RMSNorm(64), torch.nn.Linear(64, 8)

    def forward(self, x):
        return self.out(self.norm(x))


torch.manual_seed(1)
BLOCK = Block()
SMALL = randn(32, 64) * 0.02
TINY = randn(32, 64) * 1e-3
LOW_RANK = randn(20, 6) @ randn(6, 20)
aten_rms, fused = torch.ops.aten.rms_norm.default, torch.ops.aten._fused_rms_norm.default
TALL = randn(24, 3) @ randn(3, 8)


def rounded(x):
    return x.bfloat16().float()


def one_off(y):
    y = y.clone()
    y[3, 5] *= 1.1
    return y


# name: (callable, its arguments, what wrong kernels give)
CASES = {
    "rms_norm": (F.rms_norm, (SMALL, (64,)), [rms(rounded(SMALL)), rms(SMALL, 63), rms(SMALL, eps=0)]),
    "rms_norm, tiny": (F.rms_norm, (TINY, (64,)), [rms(rounded(TINY)), rms(TINY, 63), one_off(rms(TINY))]),
    "aten::rms_norm": (aten_rms, (TINY, [64], None, None), [rms(rounded(TINY)), rms(TINY, 63)]),
    "aten::_fused_rms_norm": (fused, (TINY, [64], None, None), [(rms(TINY, 63), None)]),
    "rms_norm in bfloat16": (F.rms_norm, (SMALL.bfloat16(), (64,)), [rms(SMALL.bfloat16(), 60)]),
    "nn.RMSNorm in a module": (BLOCK, (TINY,), [BLOCK.out(rms(TINY, 63)).detach()]),
    "finfo eps": (normalized, (TINY * 1e-4,), [normalized(rounded(TINY * 1e-4)), F.normalize(TINY)]),
    "finfo min": (masked, (randn(9, 9),), [torch.softmax(randn(9, 9), -1)]),
    "finfo in clamp_min": (guarded, (TINY.clamp_min(0),), [TINY.clamp_min(1e-9).log()]),
    "a branch on the dtype": (branch, (SMALL.bfloat16(),), [SMALL.bfloat16() * 2]),
    "finfo of an upcast": (upcast, (TINY.bfloat16() * 1e-4,), [torch.sign(TINY).bfloat16()]),
    "element_size": (counted, (SMALL,), [SMALL * 8]),
    "result_type": (promoted, (SMALL,), [SMALL]),
    "pinv": (torch.linalg.pinv, (LOW_RANK,), [randn(20, 20) * 100, torch.linalg.pinv(LOW_RANK) * 1.01]),
    "aten::linalg_pinv": (torch.ops.aten.linalg_pinv.atol_rtol_tensor, (LOW_RANK,), [randn(20, 20) * 100]),
    "matrix_rank": (torch.linalg.matrix_rank, (LOW_RANK,), [torch.tensor(20), torch.tensor(5)]),
    "lstsq": (solution, (TALL, randn(24, 2)), [randn(8, 2)]),
    "nan_to_num": (lambda x: torch.nan_to_num(x / 0), (SMALL,), [torch.where(SMALL > 0, 1e30, -1e30)]),
}


@pytest.mark.parametrize("name", CASES)
def test_reference_means_what_the_dtype_captured_means(name):
    fn, args, faults = CASES[name]
    with torch.no_grad():
        verdict = judge_call(fn, args, outputs=fn(*args))
    assert verdict.verdict == "pass", verdict.sentence
    for i, output in enumerate(faults):
        if isinstance(output, tuple):
            output = tuple(b if b is not None else g for b, g in zip(output, fn(*args), strict=True))
        verdict = judge_call(fn, args, outputs=output)
        assert verdict.verdict in FLAGGED, (i, verdict.sentence)


def test_gradients_mean_what_the_dtype_captured_means():
    x = TINY.clone().requires_grad_()
    wrong = lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-9)  # noqa: E731
    right = check_call(torch.nn.RMSNorm(64), (x,), backward=True)
    assert right.verdict == "pass", right.sentence
    assert check_call(wrong, (x,), reference=normal, backward=True).verdict in FLAGGED


def normal(x):
    return F.rms_norm(x, (64,))


def test_an_operator_of_another_library_keeps_its_arguments():
    """It has the name of one that fills its eps, and other arguments in their places."""
    with torch.library._scoped_library("ulpscope_meaning", "DEF") as library:
        library.define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor")
        library.impl(
            "rms_norm",
            lambda x, weight, eps: x * (x.square().mean(-1, True) + eps).rsqrt() * weight,
            "CompositeExplicitAutograd",
        )
        op = torch.ops.ulpscope_meaning.rms_norm
        inputs = (torch.randn(8, 64), torch.randn(64), 1e-6)
        assert check_call(op, inputs).verdict == "pass"
        assert judge_call(op, inputs, outputs=op(*inputs)).verdict == "pass"


# ---- what asks in a way that nobody hears -----------------------------------------------


def hidden(x):
    return x / (x.norm(dim=-1, keepdim=True) + float(numpy.finfo(x.numpy().dtype).eps))


def hidden_rank(x):
    u, s, v = torch.linalg.svd(x)
    keep = s > s.max() * float(numpy.finfo(x.numpy().dtype).eps) * 20
    return (v.mT * torch.where(keep, 1 / s, 0)) @ u.mT


UNHEARD = {
    "eps": (hidden, TINY * 1e-6, [hidden(rounded(TINY * 1e-6)), randn(32, 64)]),
    "rank": (hidden_rank, LOW_RANK, [randn(20, 20) * 100]),
}


@pytest.mark.parametrize("name", UNHEARD)
def test_another_function_in_float64_is_unjudged(name):
    fn, x, faults = UNHEARD[name]
    for output in [fn(x), *faults]:
        verdict = judge_call(fn, (x,), outputs=output)
        if name == "rank" and output is faults[0]:  # what neither of them gives
            assert verdict.verdict == "wrong", verdict.sentence
            continue
        assert verdict.verdict == "unjudged", verdict.sentence
        assert ("hangs on the dtype" if name == "eps" else "ill-conditioned") in verdict.sentence
