# SPDX-License-Identifier: Apache-2.0
"""inputs="stress": honest kernels survive all of it, a kernel that breaks on one kind of
input is caught on that kind, and the failure says which and how to have it again."""

import math

import pytest
import torch
import torch.nn.functional as F

import ulpscope
from ulpscope.session import stress
from ulpscope.testing import assert_accurate

SEED = 6


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


def randn(*sizes):
    return torch.randn(*sizes)


def rms_norm(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def layer_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b)


def softmax(x):
    return x.softmax(-1)


def softmax_by_hand(x):
    top = x.amax(-1, keepdim=True) if x.numel() else x
    e = (x - top).exp()
    return e / e.sum(-1, keepdim=True)


def attention(q, k, v):
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def adamw_step(p, g, m, v):
    m, v = m.lerp(g, 0.1), v * 0.999 + g * g * 0.001
    return p * (1 - 1e-5) - 1e-3 * (m / 0.1) / ((v / 0.001).sqrt() + 1e-8), m, v


def gelu_by_hand(x):
    return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))


def matmul_in_blocks(a, b):
    parts = [a[:, i : i + 16] @ b[i : i + 16] for i in range(0, a.shape[1], 16)]
    return torch.stack(parts).sum(0) if parts else a @ b


# name -> kernel, reference, example
HONEST = {
    "matmul": (matmul_in_blocks, torch.matmul, lambda: (randn(16, 48), randn(48, 24))),
    "softmax": (softmax_by_hand, softmax, lambda: (randn(12, 40),)),
    "layer_norm": (layer_norm, layer_norm, lambda: (randn(12, 40), randn(40), randn(40))),
    "rms_norm": (rms_norm, rms_norm, lambda: (randn(12, 40), randn(40))),
    "gelu": (gelu_by_hand, F.gelu, lambda: (randn(12, 40),)),
    "silu": (lambda x: x * x.sigmoid(), F.silu, lambda: (randn(12, 40),)),
    "cross_entropy": (F.cross_entropy, F.cross_entropy, lambda: (randn(12, 40), 3 * torch.arange(12))),
    "attention": (
        F.scaled_dot_product_attention,
        attention,
        lambda: (randn(2, 12, 24), randn(2, 20, 24), randn(2, 20, 24)),
    ),
    "conv": (F.conv2d, F.conv2d, lambda: (randn(2, 4, 9, 9), randn(6, 4, 3, 3))),
    "cumsum": (lambda x: x.cumsum(-1), lambda x: x.cumsum(-1), lambda: (randn(6, 50),)),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda x: x.logsumexp(-1), lambda: (randn(12, 40),)),
    "adamw step": (adamw_step, adamw_step, lambda: (*randn(3, 50), randn(50).square())),
    "embedding": (F.embedding, F.embedding, lambda: (2 * torch.arange(12), randn(30, 16))),
    "topk": (lambda x: x.topk(3, -1), lambda x: x.topk(3, -1), lambda: (randn(12, 40),)),
    "where": (torch.where, torch.where, lambda: (randn(12, 40) > 0, *randn(2, 12, 40))),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_survive(name):
    kernel, reference, make = HONEST[name]
    verdict = assert_accurate(kernel, reference, *make(), inputs=f"stress:{SEED}")
    kinds = {c.name.split("-")[0] for c in verdict.cases if c.verdict is not None}
    assert {"given", "wide", "zeros", "nan", "size", "sliced", "storage"} <= kinds or name == "embedding"
    unjudged = [c.name for c in verdict.cases if c.verdict and c.verdict.verdict == "unjudged"]
    assert set(unjudged) <= {"near-overflow"}


@pytest.mark.parametrize("name", ["matmul", "softmax", "rms_norm", "gelu"])
def test_honest_gradients_in_low_precision_survive(name):
    _, reference, make = HONEST[name]

    def kernel(*args):
        return reference(*(a.float() for a in args)).to(args[0].dtype)

    args = [a.bfloat16() for a in make()]
    assert_accurate(kernel, reference, *args, backward=True, inputs=f"stress:{SEED}:!size*")


def unstable_softmax(x):
    return x.exp() / x.exp().sum(-1, keepdim=True)


def reads_its_memory(x):
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride()) * 2


def ignores_offset(x):
    return torch.as_strided(x, x.shape, x.stride(), 0) * 2


def whole_blocks_only(x):
    out = torch.zeros_like(x)
    n = x.shape[-1] // 8 * 8
    out[..., :n] = x[..., :n].exp()
    return out


def flushes(x):
    return torch.where(x.abs() < 1e-4, 0.0, x) * 2


def max_skips_nan(x):
    return torch.where(x.isnan(), -math.inf, x).amax(-1)


def needs_rows(x):
    return x.reshape(x.shape[0], -1).amax(1, keepdim=True) * x


# name -> kernel, reference, a case that must catch it
BROKEN = {
    "softmax without its maximum": (unstable_softmax, softmax, "common-offset"),
    "reads through its strides": (reads_its_memory, lambda x: x * 2, "transposed"),
    "ignores the storage offset": (ignores_offset, lambda x: x * 2, "storage-offset"),
    "whole blocks only": (whole_blocks_only, torch.exp, "size-40-to-41"),
    "flushes float16 subnormals": (flushes, lambda x: x * 2, "subnormals"),
    "swallows NaN": (max_skips_nan, lambda x: x.amax(-1), "nan"),
    "raises on no rows": (needs_rows, lambda x: x * (x.amax(1, keepdim=True) if x.numel() else 1), "size-12-to-0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_caught_on_their_case(name):
    kernel, reference, case = BROKEN[name]
    x = randn(12, 40).half() if "float16" in name else randn(12, 40)
    assert ulpscope.check_call(kernel, (x,), reference=reference).passed
    with pytest.raises(AssertionError) as caught:
        assert_accurate(kernel, reference, x, inputs=f"stress:{SEED}")
    assert f'inputs="stress:{SEED}:{case}"' in str(caught.value) or f", {case}" in str(caught.value)
    alone = ulpscope.check_call(kernel, (x,), reference=reference, inputs=f"stress:{SEED}:{case}")
    assert not alone.passed and [c.name for c in alone.cases] == [case]
    assert f"seed {SEED}" in alone.notes[0]


def test_cases_are_the_same_for_the_same_seed():
    x = randn(12, 40)
    first, again, other = (list(stress.cases((x,), {}, s)) for s in (1, 1, 2))
    assert [c.name for c in first] == [c.name for c in other]
    for a, b in zip(first, again):
        assert torch.equal(a.args[0].nan_to_num(7.5), b.args[0].nan_to_num(7.5)), a.name
    by_name = {c.name: c.args[0] for c in other}
    assert not torch.equal(first[1].args[0], by_name[first[1].name])


def test_arguments_keep_their_domain_and_identity():
    labels, rate = torch.tensor([0.0, 1.0, 1.0, 0.0]), torch.rand(4)
    shared = randn(4)
    for case in stress.cases((labels, rate, shared, [shared]), {"p": 0.5}, SEED):
        a, b, c, (d,) = case.args
        assert c is d and case.kwargs == {"p": 0.5}
        if "size" not in case.name:
            assert torch.equal(a, labels)
        kept = b[~b.isnan()]
        assert bool(((kept >= 0) & (kept <= 1)).all()), case.name


def test_what_the_reference_refuses_is_skipped_and_counted():
    def both(x):
        assert x.shape[-1] == 40, "40 columns"
        return x * 2

    verdict = assert_accurate(both, both, randn(12, 40), inputs="stress")
    skipped = {c.name: c.skipped for c in verdict.cases if c.skipped}
    assert len(skipped) == 5 and all("40 columns" in why for why in skipped.values())


@pytest.mark.parametrize(
    "inputs, text", [("stres", "is unknown"), ("stress:x", "is no number"), ("stress:1:sise*", "takes no case")]
)
def test_bad_inputs_are_refused(inputs, text):
    with pytest.raises(ValueError, match=text):
        assert_accurate(softmax, softmax, randn(4, 4), inputs=inputs)


def test_compiled_function():
    """What torch.compile generates is what runs, on every case, and a fault in it is seen."""
    torch._dynamo.reset()
    values = ",".join(stress.VALUES)
    compiled = torch.compile(softmax_by_hand)
    verdict = assert_accurate(compiled, None, randn(12, 40), inputs=f"stress:1:{values}")
    assert len(verdict.cases) == len(stress.VALUES)
    broken = torch.compile(unstable_softmax, backend="eager")
    with pytest.raises(AssertionError, match="common-offset"):
        assert_accurate(broken, softmax, randn(12, 40), inputs="stress:1:near*,common*,size*")


def test_module_and_custom_operator():
    module = torch.nn.Linear(40, 8)
    assert_accurate(module, None, randn(12, 40), inputs="stress:1:given,wide*,zeros,size-12*")

    @torch.library.custom_op("ulpscope_stress::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    assert_accurate(double, None, randn(12, 40), inputs="stress")
    assert_accurate(double, lambda x: 2 * x, randn(12, 40), inputs="stress")


def test_a_size_that_is_refused_hides_no_number_that_is_off():
    def picky(x):
        if x.shape[-1] % 8:
            raise ValueError(f"a width of {x.shape[-1]} is not served")
        return x.bfloat16().softmax(-1).to(x.dtype)

    def right_but_picky(x):
        if x.shape[-1] % 8:
            raise ValueError(f"a width of {x.shape[-1]} is not served")
        return x.softmax(-1)

    x = randn(16, 32)
    found = ulpscope.check_call(picky, (x,), reference=softmax, inputs="stress:3", cause=False, repeat=1)
    assert any(c.refused for c in found.cases) and found.verdict in ("reduced", "wrong", "nonfinite"), found.sentence
    with pytest.raises(AssertionError, match=r"stress cases fail\n(?!.*\n  crashed)"):
        assert_accurate(picky, softmax, x, inputs="stress:3", cause=False, repeat=1)
    alone = ulpscope.check_call(right_but_picky, (x,), reference=softmax, inputs="stress:3", cause=False, repeat=1)
    assert alone.verdict == "crashed", alone.sentence
