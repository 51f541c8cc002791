# SPDX-License-Identifier: Apache-2.0
"""A narrower format that explains what a device gave makes `reduced` of `wrong`, output by output;
a kernel with any other mistake stays wrong, however it computes."""

import pytest
import torch
from torch.nn import functional

from ulpscope import judge_call
from ulpscope.judges import outputs as _outputs

BF16, F16 = torch.bfloat16, torch.float16
aten = torch.ops.aten


def drawn(*sizes, seed=0, dtype=torch.float32):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def embedding():
    """Rows of bfloat16, few of which share a place: few elements are off."""
    index = torch.randint(0, 900, (600,), generator=torch.Generator().manual_seed(1))
    return lambda g, i: aten.embedding_dense_backward(g, i, 900, -1, False), (
        drawn(600, 8, dtype=BF16),
        index,
    )


def added_in_bfloat16(g, index):
    out = torch.zeros(900, 8, dtype=BF16)
    for row, at in zip(g, index.tolist()):
        out[at] = (out[at].float() + row.float()).to(BF16)
    return out


def waves():
    """Transforms that are zero but for one frequency: what cancels shows every rounding."""
    t = torch.arange(64.0)
    return lambda x: aten._fft_r2c(x, [1], 0, True), (
        torch.stack([torch.cos(2 * torch.pi * k * t / 64) for k in range(1, 7)]),
    )


def transformed_in_float16(x):
    out = aten._fft_r2c(x.half().float(), [1], 0, True)
    return torch.view_as_complex(torch.view_as_real(out).half().float())


def attention_gradient():
    q, k, v, g = (
        4 * drawn(1, 2, 24, 16, seed=s, dtype=F16) if s < 1 else drawn(1, 2, 24, 16, seed=s, dtype=F16)
        for s in range(4)
    )
    out = aten._scaled_dot_product_flash_attention_for_cpu(12 * q, k, v, 0.0, True)
    return (
        lambda *a: aten._scaled_dot_product_flash_attention_for_cpu_backward(*a, 0.0, True),
        (g, 12 * q, k, v, *out),
    )


def peaked():
    return lambda x: x.softmax(-1), (20 * drawn(4, 6, seed=3) * torch.tensor([1.0, 1, 1, 1e-3, 1e-3, 1e-3]),)


CALLS = {
    "embedding backward added in bfloat16": (embedding, added_in_bfloat16),
    "transform in float16": (waves, transformed_in_float16),
    "attention's gradient in float16": (attention_gradient, None),
    "softmax in float16": (peaked, lambda x: x.softmax(-1).half().float()),
}


def lows(name):
    """The callable, its arguments, and what the narrow kernel gives."""
    make, kernel = CALLS[name]
    fn, args = make()
    return fn, args, (kernel or fn)(*args)


@pytest.fixture
def findings(monkeypatch):
    """The verdicts of all outputs, without and with a look for a narrower format."""
    seen, own = [], _outputs.judge_outputs

    def judged(operands, answer, way=None):
        found = own(operands, answer, way)
        if way is not None and way.narrow:
            seen[:] = [([f.verdict for f in own(operands, answer)], [f.verdict for f in found])]
        return found

    monkeypatch.setattr(_outputs, "judge_outputs", judged)
    return lambda fn, args, outputs: (judge_call(fn, args, outputs=outputs, cause=False), *seen[0])


@pytest.mark.parametrize("name", CALLS)
def test_what_a_narrow_format_explains_is_reduced(name, findings):
    judged, before, after = findings(*lows(name))
    assert "wrong" in before and "wrong" not in after
    assert judged.verdict == "reduced", judged
    assert any("has the numbers of" in note for note in judged.notes), judged.notes


def _tile(x, value):
    x = x.clone(memory_format=torch.contiguous_format)
    x.view(-1)[: max(x.numel() // 8, 2)] = value
    return x


def _noise(x, seed=9):
    real = torch.view_as_real(x) if x.is_complex() else x
    noisy = real.double() * (1 + 2.0**-5 * drawn(*real.shape, seed=seed).double().sign())
    return torch.view_as_complex(noisy.to(real.dtype)) if x.is_complex() else noisy.to(real.dtype)


MISTAKES = {
    "a tile of garbage": lambda x: _tile(x, 3.0),
    "a tile of zeros": lambda x: _tile(x, 0.0),
    "scaled": lambda x: x * 1.05,
    "scaled by little": lambda x: x * (1 + 2.0**-6),
    "doubled": lambda x: x * 2,
    "the sign lost": lambda x: -x,
    "a term missing": lambda x: x - 0.1 * x.abs().mean().to(x.dtype),
    "shifted": lambda x: x.roll(1, -1),
    "transposed order": lambda x: x.flip(-2),
    "one element off": lambda x: (
        _tile(x.reshape(-1).clone(), 1.0).reshape(x.shape)
        if x.numel() < 32
        else torch.cat([x.reshape(-1)[:-1], x.reshape(-1)[-1:] + 7]).reshape(x.shape)
    ),
    "noise of another size": _noise,
}


def _wrongly(outputs, mistake):
    outs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    return [mistake(t) for t in outs] if isinstance(outputs, (tuple, list)) else mistake(outputs)


@pytest.mark.parametrize("name", CALLS)
def test_no_other_mistake_hides_behind_a_narrow_format(name, findings):
    """In the narrow kernel and in one that rounds as it should, whatever is wrong stays wrong."""
    fn, args, narrow = lows(name)
    for mistake, change in MISTAKES.items():
        for outputs in (narrow, fn(*args)) if CALLS[name][1] else (narrow,):
            judged, before, after = findings(fn, args, _wrongly(outputs, change))
            assert before == after, (mistake, judged.notes)


SMALL = {
    "a small term missing": lambda x, w: functional.linear(x, w) + 0.0,
    "a scale of the inputs": lambda x, w: functional.linear(x * (1 + 2.0**-8), w) + 2.0**-9 * x.sum(),
    "a scale rounded and a row lost": lambda x, w: torch.cat([functional.linear(x, w)[:-1], 0 * x[-1:] @ w.t()]),
    "the last of K lost": lambda x, w: functional.linear(x[:, :-1], w[:, :-1]) + 2.0**-9 * x.sum(),
}


@pytest.mark.parametrize("mistake", SMALL)
def test_mistakes_no_larger_than_bfloat16_are_none_of_its_noise(mistake):
    x, w = drawn(16, 64, seed=1), drawn(8, 64, seed=2)
    reference = lambda x, w: functional.linear(x, w) + 2.0**-9 * x.sum()  # noqa: E731
    judged = judge_call(reference, (x, w), outputs=SMALL[mistake](x, w), cause=False)
    assert not any("has the numbers of" in note for note in judged.notes)
    assert judged.verdict in ("wrong", "reduced")


def test_each_output_follows_its_own_numbers():
    """A narrow output beside a wrong one: the call is wrong, the other output is not."""
    fn, args, narrow = lows("embedding backward added in bfloat16")
    both = lambda g, i: (fn(g, i), g.float().sum(0))  # noqa: E731
    judged = judge_call(both, args, outputs=(narrow, 1.5 * args[0].float().sum(0)), cause=False)
    assert [o.verdict for o in judged.outputs] == ["reduced", "wrong"]
    assert judged.verdict == "wrong"


FAINT = 1e-29 * drawn(64, 33, seed=5)  # whose squares no float32 holds
ZEROS = {
    "a deviation of each row": (lambda x: x.std(-1), "the result is all zeros"),
    "a deviation of all": (torch.std, "cause unknown"),
    "its gradient": (
        lambda x: torch.autograd.grad(x.requires_grad_().std(), x)[0],
        "the result is all zeros",
    ),
}


@pytest.mark.parametrize("name", ZEROS)
def test_zeros_are_of_no_format(name):
    fn, cause = ZEROS[name]
    right = fn(FAINT.clone())
    judged = judge_call(fn, (FAINT.clone(),), outputs=torch.zeros_like(right))
    assert judged.verdict == "wrong" and judged.cause.startswith(cause), judged.sentence
    assert not any("has the numbers of" in note for note in judged.notes), judged.notes
    assert not any(word in judged.sentence for word in ("TF32", "bfloat16", "variant")), judged.sentence
    assert judge_call(fn, (FAINT.clone(),), outputs=right, cause=False).verdict == "pass"
