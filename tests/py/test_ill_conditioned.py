# SPDX-License-Identifier: Apache-2.0
"""Where the inputs leave float32 fewer than four bits nothing is judged, and said so; what is
well conditioned beside it is judged in full."""

import pytest
import torch
from ulpscope import judge_call

FLAGGED = ("wrong", "reduced", "nonfinite")
F = torch.nn.functional
DRAW = torch.Generator().manual_seed(11)


def randn(*sizes):
    return torch.randn(*sizes, generator=DRAW)


def of_condition(n, condition):
    """A matrix with singular values from 1 down to 1 / condition."""
    left, right = (torch.linalg.qr(randn(n, n).double())[0] for _ in range(2))
    values = torch.logspace(0, -torch.tensor(condition).log10().item(), n, dtype=torch.float64)
    return (left * values @ right).float()


def norm(x):
    return F.layer_norm(x, x.shape[-1:])


def batch(x):
    return F.batch_norm(x, None, None, training=True)


def group(x):
    return F.group_norm(x, 2)


def minus_one(x):
    return torch.exp(x) - 1


SINGULAR, B = of_condition(16, 1e9), randn(16, 3)
MIXED = torch.cat([randn(16, 64) + 1e7, randn(48, 64)])
CANCELS = torch.cat([randn(64) + 1e7, -randn(64) - 1e7])

# name: (callable, arguments, garbage)
GARBAGE = {
    "inv": (torch.linalg.inv, (SINGULAR,), randn(16, 16) * 1e6),
    "inv, smaller": (torch.linalg.inv, (SINGULAR,), randn(16, 16)),
    "solve": (torch.linalg.solve, (SINGULAR, B), randn(16, 3) * 1e6),
    "layer_norm": (norm, (randn(32, 64) + 1e7,), randn(32, 64)),
    "layer_norm, less": (norm, (randn(32, 64) + 1e6,), randn(32, 64)),
    "batch_norm": (batch, (randn(64, 8) + 1e7,), randn(64, 8)),
    "group_norm": (group, (randn(8, 8, 5) + 1e7,), randn(8, 8, 5)),
    "exp - 1": (minus_one, (randn(256) * 1e-7,), randn(256) * 1e-7),
    "a sum that cancels": (torch.sum, (CANCELS,), torch.tensor(3.0)),
    "softmax of huge logits": (
        torch.softmax,
        (randn(32, 64) + 3e7, -1),
        norm(randn(32, 64)).softmax(-1),
    ),
    "variance": (torch.var, (randn(64) + 1e7,), torch.tensor(0.0)),
    "sine": (torch.sin, (randn(256) * 1e9,), randn(256).sin()),
    "an accurate sub": (torch.sub, (randn(256) * 3 + 1e7, randn(256) * 3 + 1e7), randn(256)),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_never_a_pass(name):
    fn, args, garbage = GARBAGE[name]
    right = judge_call(fn, args, outputs=fn(*args))
    assert right.verdict in ("pass", "unjudged"), right.sentence
    verdict = judge_call(fn, args, outputs=garbage)
    assert verdict.verdict in (*FLAGGED, "unjudged"), verdict.sentence
    if verdict.verdict == "unjudged":
        assert "ill-conditioned" in verdict.sentence


@pytest.mark.parametrize("name", ["inv", "solve"])
def test_an_honest_kernel_there_is_not_judged_either(name):
    fn, args, _ = GARBAGE[name]
    verdict = judge_call(fn, args, outputs=fn(*args))
    assert verdict.verdict == "unjudged" and "ill-conditioned" in verdict.sentence


@pytest.mark.parametrize("name", ["layer_norm", "layer_norm, less", "batch_norm"])
def test_an_honest_kernel_whose_steps_are_known_passes_without_bits(name):
    """It loses what runs of float32 lose; anything else of its size is no pass."""
    fn, args, garbage = GARBAGE[name]
    right = judge_call(fn, args, outputs=fn(*args), cause=False)
    assert right.verdict == "pass" and "loses no more than float32 does" in right.sentence, right.sentence
    for out in (torch.zeros_like(garbage), fn(*args).roll(1, 0), -fn(*args)):
        assert judge_call(fn, args, outputs=out, cause=False).verdict != "pass"


@pytest.mark.parametrize("name", ["group_norm", "exp - 1"])
def test_an_honest_kernel_is_not_judged_where_runs_lose_all(name):
    fn, args, garbage = GARBAGE[name]
    right = judge_call(fn, args, outputs=fn(*args), cause=False)
    assert right.verdict == "unjudged" and "loses no more than these" in right.sentence, right.sentence
    assert judge_call(fn, args, outputs=fn(*args) + 40 * garbage, cause=False).verdict in FLAGGED


def test_what_is_well_conditioned_is_judged_beside_what_is_not():
    right = norm(MIXED)
    verdict = judge_call(norm, (MIXED,), outputs=right)
    assert verdict.verdict == "pass", verdict.sentence
    assert "of 4,096 elements are excused: ill-conditioned" in str(verdict.notes)
    for rows in (norm(MIXED[16:].bfloat16().float()), norm(MIXED[16:]) * 1.001):
        wrong = judge_call(norm, (MIXED,), outputs=torch.cat([right[:16], rows]))
        assert wrong.verdict in FLAGGED, wrong.sentence


SINE = torch.sin(2 * torch.pi * 3 * torch.arange(64) / 64)
ROTATION = torch.linalg.qr(randn(48, 48).double())[0].float()

# Well conditioned, or too near zero to be told from it: as before.
FINE = {
    "inv": (torch.linalg.inv, (of_condition(16, 1e4),), randn(16, 16) * 1e3),
    "layer_norm": (norm, (randn(32, 64) + 1e4,), randn(32, 64)),
    "difference": (torch.sub, (randn(256), randn(256)), randn(256)),
    "matmul": (torch.mm, (randn(48, 48), randn(48, 48)), randn(48, 48)),
    # one whole, of which all but a few elements cancel
    "spectrum of a sine": (torch.fft.fft, (SINE,), torch.complex(randn(64), randn(64)) * 1e-2),
    "orthogonal columns": (
        torch.mm,
        (ROTATION.t().contiguous(), ROTATION),
        torch.eye(48) + 1e-4 * randn(48, 48),
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_a_well_conditioned_call_is_judged(name):
    fn, args, garbage = FINE[name]
    assert judge_call(fn, args, outputs=fn(*args)).verdict == "pass"
    assert judge_call(fn, args, outputs=garbage).verdict in FLAGGED


def test_a_gradient_that_is_zero_in_truth_is_judged():
    def bias_gradient(bias, x):
        y = batch(x @ torch.ones(8, 4) + bias)
        return torch.autograd.grad((y * y * y).sum(), bias)[0]

    bias, x = torch.zeros(4, requires_grad=True), randn(64, 8)
    verdict = judge_call(bias_gradient, (bias, x), outputs=bias_gradient(bias, x))
    assert verdict.verdict == "pass", verdict.sentence
    assert judge_call(bias_gradient, (bias, x), outputs=randn(4)).verdict in FLAGGED


def test_what_is_far_off_is_not_called_excused():
    """A random gradient at dead units is the fault, whatever few of its bits are right."""
    g, y = randn(64, 32), randn(64, 32).relu()
    wrong = torch.where(y == 0, g * randn(64, 32), torch.ops.aten.threshold_backward(g, y, 0.0))
    verdict = judge_call(torch.ops.aten.threshold_backward, (g, y, 0.0), outputs=wrong, cause=False)
    assert verdict.verdict == "wrong" and not verdict.notes, verdict.notes


# ---- outputs beside others -----------------------------------------------------------

NORMED, WEIGHT = norm(randn(48, 64)), randn(64)
NORM_CALL = (NORMED, [64], WEIGHT, WEIGHT.flip(0), 1e-5)
RIGHT = torch.native_layer_norm(*NORM_CALL)

BESIDE = {
    "honest": (RIGHT, "pass"),
    "another mean within float32's own": ((RIGHT[0], randn(48, 1) * 1e-8, RIGHT[2]), "pass"),
    "a mean beyond that": ((RIGHT[0], RIGHT[1] + 1e-3, RIGHT[2]), "flagged"),
    "the result in bfloat16": ((RIGHT[0].bfloat16().float(), *RIGHT[1:]), "flagged"),
    "one scale off": ((*RIGHT[:2], RIGHT[2] * 1.01), "flagged"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_small_output_without_bits_hides_no_other(name):
    """The mean of normalised inputs is nothing but rounding."""
    given, verdict = BESIDE[name]
    found = judge_call(torch.ops.aten.native_layer_norm, NORM_CALL, {}, given)
    assert found.verdict == verdict or (verdict == "flagged" and found.verdict in FLAGGED), found
    left_out = found.outputs[1].verdict == "unjudged"
    assert left_out == ("; not judged: out[1]: ill-conditioned" in found.sentence), found.sentence
    assert found.not_judged == ["out[1]"] * left_out


def test_outputs_without_bits_hold_what_runs_of_float32_give():
    """Garbage of the size of the noise, beside one number that is right: no run of float32 gives it."""

    x = torch.full((32, 64), 1e7) + randn(32, 64)
    found = judge_call(lambda x: (norm(x), x[:1, 0].clone()), (x,), {}, (randn(32, 64), x[:1, 0]))
    assert found.verdict == "wrong"


def test_what_vanishes_is_that_or_the_truth():
    """Squares of 1e-25 are no numbers of float32: all runs give 0, so nothing lies between that and the truth."""
    x = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 1e-25

    def said(out):
        return judge_call(lambda x: x.norm(dim=-1), (x,), outputs=out, cause=False).verdict

    assert said(x.double().norm(dim=-1).float()) == "pass"
    assert said(x.norm(dim=-1)) == "unjudged"
    assert said(x.abs().amax(-1)) == "wrong"


def in_parts(x, size):
    """Sums over the last axis, one term after another in parts that are added up."""
    total = torch.zeros(x.shape[0])
    for part in x.split(size, -1):
        sums = torch.zeros(x.shape[0])
        for term in part.unbind(-1):
            sums = sums + term
        total = total + sums
    return total


CONVOLVED = {
    "serial": (1600, True),
    "parts of 400": (400, True),
    "the last 100 left out": (None, False),
}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_bias_gradient_that_cancels_may_be_added_in_any_order(seed):
    """That of a convolution before a batch norm is nothing in truth, and what its order of adding leaves."""
    g = torch.Generator().manual_seed(seed)
    terms = torch.randn(200, 1600, generator=g) * 2.0 ** -torch.randint(0, 14, (200, 1600), generator=g)
    terms = terms - terms.double().mean(1, keepdim=True).float()
    x = torch.randn(2, 1, 1, 800, generator=g)
    grad = terms.reshape(200, 2, 1, 800).transpose(0, 1).contiguous()
    weight = (grad.double() * x).sum((0, 2, 3)).float().reshape(200, 1, 1, 1)
    args = (
        grad,
        x,
        torch.ones(200, 1, 1, 1),
        [200],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [False, True, True],
    )
    for size, right in CONVOLVED.values():
        bias = in_parts(terms, size) if right else terms[:, :-100].sum(1)
        found = judge_call(torch.ops.aten.convolution_backward, args, outputs=(None, weight, bias), cause=False)
        assert (found.verdict not in FLAGGED) == right, found


def test_what_cancels_is_not_short_of_digits():
    """Sums by images, each of large terms, leave multiples of a large unit: no storage of 11 bits."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(32, 10816, generator=g) * 2.0 ** torch.randint(-14, 0, (32, 10816), generator=g) * 0.01
    x = x - x.double().mean(1, keepdim=True).float()
    assert judge_call(lambda x: x.sum(1), (x,), outputs=in_parts(x, 676), cause=False).verdict not in FLAGGED
    wide = torch.randn(32, 64, generator=g)
    assert judge_call(lambda x: x.sum(1), (wide,), outputs=wide.sum(1).half().float(), cause=False).verdict in FLAGGED


# ---- few numbers ---------------------------------------------------------------------


def bce(x, y, narrow=lambda t: t, add=torch.sum, more=1.0):
    terms = narrow(x.clamp(min=0)) - more * x * y + narrow((-x.abs()).exp()).log1p()
    return add(terms.flatten()) / x.numel()


def one_by_one(t):
    return t.cumsum(0)[-1]


def low(t):
    return t.bfloat16().float()


LOGITS, TARGETS = 3 * randn(40, 75), (randn(40, 75) > 0).float()
ALONE = {
    "sum of exponentials": (
        lambda x: x.exp().sum(-1).log().mean(),
        (randn(128, 50),),
        {
            "sums in bf16": lambda x: low(x.exp().sum(-1)).log().mean(),
            "logs in bf16": lambda x: low(x.exp().sum(-1).log()).mean(),
        },
        {
            "one after another": lambda x: one_by_one(x.exp().sum(-1).log()) / 128,
            "backwards": lambda x: one_by_one(x.exp().flip(-1).sum(-1).log().flip(0)) / 128,
            "below the largest": lambda x: x.logsumexp(-1).mean(),
        },
    ),
    "bce": (
        bce,
        (LOGITS, TARGETS),
        {
            "a term in bf16": lambda x, y: bce(x, y, low),
            "a term 0.03 % off": lambda x, y: bce(x, y, more=1.0003),
        },
        {
            "one after another": lambda x, y: bce(x, y, add=one_by_one),
            "backwards": lambda x, y: bce(x, y, add=lambda t: one_by_one(t.flip(0))),
            "in float64": lambda x, y: bce(x.double(), y.double()).float(),
            "torch's own": lambda x, y: torch.nn.functional.binary_cross_entropy_with_logits(x, y),
        },
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_number_alone(name):
    """Held to what sums in other orders lose at that very call, and to no limit that grows with their terms."""
    fn, args, wrong, right = ALONE[name]
    for words, kernel in right.items():
        assert judge_call(fn, args, outputs=kernel(*args), cause=False).verdict == "pass", words
    for words, kernel in wrong.items():
        assert judge_call(fn, args, outputs=kernel(*args), cause=False).verdict == "reduced", words


def test_a_run_without_a_number_speaks_for_none():
    """Where squares overflow in float32 the truth may stand, or Inf (unjudged), and no number between."""
    x = torch.randn(40, 60) * 1e22
    for outputs, verdict in (
        (x.double().norm(dim=-1).float(), "pass"),
        (torch.full((40,), torch.inf), "unjudged"),
        (torch.full((40,), torch.finfo(torch.float32).max), "wrong"),
        (torch.full((40,), 1e30), "wrong"),
    ):
        found = judge_call(lambda x: x.norm(dim=-1), (x,), outputs=outputs, cause=False)
        assert found.verdict == verdict, found.sentence


def attention_gradients(q, k, v, g):
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch.autograd.grad(out, (q, k, v), g)


def by_formula(q, k, v, g, factor=1.0):
    """The gradients in float32 from weights that are divided by their sum, as no kernel of torch's has them."""
    q, k, v, g = (t.float() for t in (q, k, v, g))
    seen = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
    p = (q @ k.mT / 4).masked_fill(~seen, -torch.inf).softmax(-1)
    dp = g @ v.mT
    ds = p * (dp - factor * (p * dp).sum(-1, keepdim=True)) / 4
    return ds @ k, ds.mT @ q, p.mT @ g


@pytest.mark.parametrize("factor, verdict", [(1.0, "pass"), (1.01, "reduced"), (0.0, "wrong")])
def test_what_nearly_saturated_weights_leave_of_their_gradients(factor, verdict):
    """1 - p where p is nearly 1 loses most of its bits in whatever is not the CPU's own fused kernel."""
    x = torch.Generator().manual_seed(34)
    q, k, v, g = (torch.randn(2, 2, 24, 16, generator=x) for _ in range(4))
    given = [t.bfloat16() for t in (100 + q, k, v, g)]
    outputs = tuple(t.bfloat16() for t in by_formula(*given, factor=factor))
    judged = judge_call(attention_gradients, tuple(given), {}, outputs)
    assert judged.verdict == verdict, judged
