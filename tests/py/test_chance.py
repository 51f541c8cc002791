# SPDX-License-Identifier: Apache-2.0
"""What draws random numbers somewhere inside: no claim beyond what was tested, no wrong
kernel behind the dice, and no stream of the host program moved."""

import math
import random

import numpy
import pytest
import torch
import torch.nn.functional as F
from calls import make_call

import ulpscope
from ulpscope import sim
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.session.judging import judge_call

SEED = 11


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


# ---- streams -------------------------------------------------------------------------


def streams():
    """The states of all random streams at hand, as bytes."""
    states = [torch.random.get_rng_state(), *(sim.get_rng_state(i) for i in range(sim.device_count()))]
    numbers = numpy.random.get_state()
    return [s.numpy().tobytes() for s in states], numbers[1].tobytes(), numbers[2], random.getstate()


def all_dice(x):
    """Draws from every stream that a Python function reaches."""
    random.random()
    numpy.random.rand()
    return F.dropout(x, 0.3)


def test_a_seed_that_was_tried_does_not_stay_on_the_device():
    """Draws after a judged call were once those that the judge's own points came from."""
    device = TorchDevice("sim:0")
    first = judge_call(make_call("aten::randint.low", 0, 512, [4, 48]), device)
    like = torch.empty(4, 48, 128)
    second = judge_call(make_call("aten::bernoulli_.float", like, 0.9), device)
    assert (first.verdict, second.verdict) == ("pass", "pass"), second.worst


@pytest.mark.parametrize("fn", [F.dropout, torch.rand_like, torch.relu, all_dice])
@pytest.mark.parametrize("device", [None, "sim:1"])
def test_no_stream_moves(fn, device):
    x = torch.randn(64, 16)
    before = streams()
    ulpscope.check_call(fn, (x,), device=device)
    assert streams() == before
    ulpscope.judge_call(fn, (x,), {}, fn(x))
    twice = streams()
    ulpscope.judge_call(fn, (x,), {}, x)
    assert streams() == twice


# ---- no bits for what was not measured -----------------------------------------------


@pytest.mark.parametrize("fn", [torch.rand_like, lambda x: x + torch.randn_like(x)])
def test_draws_have_no_bits(fn):
    x = torch.randn(64, 16)
    verdict = ulpscope.judge_call(fn, (x,), {}, fn(x))
    assert verdict.verdict == "pass" and "drawn" in verdict.sentence, verdict.sentence
    assert math.isnan(verdict.effective_bits) and math.isnan(verdict.expected_bits)


@torch.library.custom_op("chance::unsaid_noise", mutates_args=())
def unsaid_noise(x: torch.Tensor) -> torch.Tensor:
    """Draws, and its schema does not say so."""
    return torch.tanh(x) + 0.1 * torch.randn_like(x)


def test_what_turns_out_to_draw_is_not_acquitted_by_that():
    def coarse(op, args, kwargs):
        return torch.tanh(args[0].bfloat16()).float() + 0.1 * torch.randn_like(args[0])

    verdict = judge_call(make_call("chance::unsaid_noise", torch.randn(64, 16)), PythonDevice(coarse))
    assert verdict.verdict == "pass" and math.isnan(verdict.worst.bits), verdict.worst


@torch.library.custom_op("chance::unsaid_dropout", mutates_args=())
def unsaid_dropout(x: torch.Tensor) -> torch.Tensor:
    """Draws by another operator than it shows."""
    return F.dropout(x, 0.2)


def test_masks_that_cannot_be_given_are_no_mistake_of_ours():
    for kept in (0.8, 0.5):
        found = judge_call(
            make_call("chance::unsaid_dropout", torch.randn(64, 16)),
            PythonDevice(lambda op, a, k, kept=kept: a[0] * (torch.rand_like(a[0]) < kept) / kept),
        )
        assert (found.verdict == "pass") == (kept == 0.8), found.findings


@torch.library.custom_op("chance::noise_and_exp", mutates_args=())
def noise_and_exp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One output is a draw, the other is not."""
    return torch.randn_like(x), x.exp()


@pytest.mark.parametrize("change, verdict", [(lambda t: t, "pass"), (torch.bfloat16, "reduced")])
def test_what_stands_beside_draws_is_judged_in_full(change, verdict):
    def device(op, args, kwargs):
        x = args[0]
        wide = x.to(change).float() if isinstance(change, torch.dtype) else change(x)
        return torch.randn_like(x), wide.exp()

    found = judge_call(make_call("chance::noise_and_exp", torch.randn(64, 16)), PythonDevice(device))
    assert found.verdict == verdict, found.findings
    given = ulpscope.judge_call(noise_and_exp, (x := torch.randn(64, 16),), {}, device(None, (x,), {}))
    assert given.verdict == verdict, given.sentence


# ---- masks found in the output -------------------------------------------------------


@pytest.mark.parametrize("at", [None, 100_000])
def test_every_element_of_a_large_draw_has_a_number(at):
    """Of many elements the first and last are compared with draws of the CPU, which is said; of all of them NaN is."""
    x = torch.randn(200_000)
    given = _noisy(x)
    if at is not None:
        given[at] = math.nan
    verdict = ulpscope.judge_call(_noisy, (x,), {}, given)
    assert verdict.verdict == ("pass" if at is None else "nonfinite"), verdict.sentence
    assert ("of 65,536 of 200,000 elements" if at is None else "NaN or Inf in 1 elements") in verdict.sentence


def _noisy(x):
    return x + torch.randn_like(x) * x.abs()


def attention(q, k, v, p=0.1, scale=None, eps=0.0, below=None, drops=None):
    """An attention with dropout and a choice of mistakes."""
    scores = (q @ k.mT) * (scale or q.shape[-1] ** -0.5)
    if below is not None:
        hidden = torch.ones(scores.shape[-2:]).tril(below) == 0
        scores = scores.masked_fill(hidden, -math.inf)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    mask = torch.rand(scores.shape) >= (p if drops is None else drops)
    return (e / (e.sum(-1, keepdim=True) + eps) * mask) @ v / (1 - p)


def coarse(fn):
    return lambda *args, **kw: fn(*(a.bfloat16().float() for a in args), **kw)


def sdpa(**options):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, **options)


ATTENTIONS = {  # name -> the operator, a kernel
    "scale": (sdpa(), lambda *t: attention(*t, scale=18**-0.5)),
    "bfloat16": (sdpa(), coarse(attention)),
    "eps": (sdpa(), lambda *t: attention(*t, eps=1.0)),
    "p": (sdpa(), lambda *t: attention(*t, p=0.12)),
    "drops more": (sdpa(), lambda *t: attention(*t, drops=0.12)),
    "one late": (sdpa(is_causal=True), lambda *t: attention(*t, below=1)),
    "causal bfloat16": (sdpa(is_causal=True), lambda *t: coarse(attention)(*t, below=0)),
    "garbage rows": (sdpa(), lambda *t: attention(*t).index_fill_(2, torch.arange(30, 32), 0.3)),
}


def heads(n=32, d=16):
    made = torch.Generator().manual_seed(SEED)
    return [torch.randn(2, 4, n, d, generator=made) for _ in range(3)]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_wrong_attention_is_flagged(name):
    operator, kernel = ATTENTIONS[name]
    verdict = ulpscope.judge_call(operator, heads(), {}, kernel(*heads()))
    assert verdict.verdict in ("wrong", "reduced"), verdict.sentence


def of_one_row(change, row=5):
    """A kernel that gives one row of one head as `change` makes it of all rows."""

    def kernel(*given):
        out = attention(*given)
        out[0, 1, row] = change(out[0, 1].clone())[row]
        return out

    return kernel


ROWS = {
    "the row before": lambda t: t.roll(1, 0),
    "two elements exchanged": lambda t: torch.cat([t[:, :2].flip(1), t[:, 2:]], 1),
    "zero": torch.zeros_like,
    "noise": lambda t: t + 0.1 * torch.randn_like(t),
}


@pytest.mark.parametrize("n, d", [(16, 16), (48, 16)])
@pytest.mark.parametrize("name", ROWS)
def test_one_wrong_row_of_an_attention_is_flagged(name, n, d):
    """A part whose mask cannot be told is what masks between zero and one give, and nothing else."""
    verdict = ulpscope.judge_call(sdpa(), heads(n, d), {}, of_one_row(ROWS[name])(*heads(n, d)))
    assert verdict.verdict in ("wrong", "reduced"), verdict.sentence
    right = ulpscope.judge_call(sdpa(), heads(n, d), {}, attention(*heads(n, d)))
    assert right.verdict == "pass", right.sentence


@pytest.mark.parametrize("causal", [False, True])
def test_honest_attention_has_the_bits_of_what_was_kept(causal):
    verdict = ulpscope.judge_call(sdpa(is_causal=causal), heads(), {}, attention(*heads(), below=0 if causal else None))
    assert verdict.verdict == "pass" and verdict.effective_bits > 20, verdict.sentence


W = torch.randn(24, 16, generator=torch.Generator().manual_seed(SEED)) / 4


def mlp(x, p=0.1):
    return F.linear(F.dropout(F.relu(x), p), W)


def by_hand(x, p=0.1):
    """A dropout as one writes it oneself."""
    return x * (torch.rand_like(x) >= p) / (1 - p) + x


def residual(x, p=0.1):
    return x + F.dropout(torch.tanh(x), p)


def depth(x, p=0.2):
    """Stochastic depth: whole samples."""
    return x + torch.tanh(x) * torch.empty(len(x), 1).bernoulli_(1 - p) / (1 - p)


def twice(x, p=0.1):
    return F.dropout(F.gelu(F.dropout(x, p)), p)


def fused(x, p=0.1):
    """Gives the mask along."""
    kept, mask = torch.native_dropout(x, p, True)
    return F.layer_norm(kept + x, x.shape[-1:]), mask


def spent(x):
    """Draws numbers that nothing hangs on."""
    torch.rand(2)
    return torch.exp(x)


def test_numbers_that_are_drawn_for_nothing_excuse_nothing():
    x = torch.randn(2, 1)
    assert ulpscope.check_call(spent, (x,), device="sim:0").verdict == "pass"
    with sim.fault("aten::exp", "scale:factor=1.5"):
        assert ulpscope.check_call(spent, (x,), device="sim:0").verdict == "wrong"


MASKED = {"mlp": mlp, "by hand": by_hand, "residual": residual, "depth": depth, "twice": twice, "fused": fused}


@pytest.mark.parametrize("name", MASKED)
def test_what_a_dropout_kept_is_judged_in_full(name):
    x, fn = torch.randn(96, 16), MASKED[name]
    verdict = ulpscope.judge_call(fn, (x,), {}, fn(x))
    assert verdict.verdict == "pass" and verdict.effective_bits > 20, verdict.sentence
    for kernel in (coarse(fn), lambda x: fn(x, 0.5)):
        found = ulpscope.judge_call(fn, (x,), {}, kernel(x))
        assert found.verdict in ("wrong", "reduced"), found.sentence


def test_more_keys_than_elements_of_a_head():
    operator = sdpa()
    good = ulpscope.judge_call(operator, heads(48, 32), {}, attention(*heads(48, 32)))
    assert good.verdict == "pass", good.sentence


# ---- the same call without chance ----------------------------------------------------


def many_keys(kernel):
    def device(op, args, kwargs):
        return kernel(*args[:3], p=args[4])

    q, k, v = heads(96, 8)
    return judge_call(make_call("aten::scaled_dot_product_attention", q, k, v, None, 0.1, False), PythonDevice(device))


def test_where_no_mask_shows_the_call_without_chance_is_judged():
    good = many_keys(attention)
    assert good.verdict == "pass" and good.worst.bits > 20
    assert "dropout_p=0" in " ".join(good.notes)
    bad = many_keys(lambda *t, p: attention(*t, p=p, scale=18**-0.5 * 2**0.5))
    assert bad.verdict in ("wrong", "reduced"), bad.worst
    assert many_keys(coarse(attention)).verdict in ("wrong", "reduced")


def noisy(x, p=0.1):
    """Layers that follow each other: no mask shows."""
    return F.dropout(torch.tanh(F.dropout(x, p) @ W.T @ W), p) @ torch.arange(16.0)


def test_check_call_asks_for_the_call_without_chance():
    x = torch.randn(96, 16)
    good = ulpscope.check_call(noisy, (x, 0.1))
    assert good.verdict == "pass" and good.effective_bits > 18, good.sentence
    bad = ulpscope.check_call(coarse(noisy), (x,), {"p": 0.1}, reference=noisy)
    assert bad.verdict in ("wrong", "reduced"), bad.sentence
