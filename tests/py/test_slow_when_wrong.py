# SPDX-License-Identifier: Apache-2.0
"""What is accused is judged without doing anything twice, so that it costs a few times what is right. How
much that is `./run bench slow` prints."""

import copy

import pytest
import torch
from torch.nn import functional as F

import ulpscope
from ulpscope import _core
from ulpscope.calls.callable import call_of
from ulpscope.executors import noise, reference_runs, rounded_runs
from ulpscope.executors.formats import rounded_once, to_format


def counted(monkeypatch, name):
    """How often runs of a kind begin."""
    made, kind = [], getattr(rounded_runs, name)
    monkeypatch.setattr(rounded_runs, name, lambda *args: made.append(args) or kind(*args))
    return made


def test_outputs_share_the_runs_that_they_are_held_to(monkeypatch):
    """Both statistics of a batch norm are off: one set of noisy runs, and of orders, serves both and each look."""
    torch.manual_seed(3)
    args = (torch.randn(6, 8, 5, 5), torch.zeros(8), torch.ones(8), torch.rand(8), torch.randn(8), True, 0.1, 1e-5)
    after = copy.deepcopy(args)
    out = F.batch_norm(*after)
    after[1].mul_(1.02)
    after[2].mul_(0.97)
    noises, orders = counted(monkeypatch, "Noise"), counted(monkeypatch, "Accumulated")
    verdict = ulpscope.judge_call(F.batch_norm, args, outputs=out, mutated=(after, {}), cause=False)
    assert [o.verdict for o in verdict.outputs] == ["pass", "wrong", "reduced"]  # eight of one size tell no factor
    assert 0 < len(noises) == len(set(noises)), noises
    assert len(orders) == len(set(orders)), orders


@pytest.mark.parametrize("name", ["TF32", "bfloat16", "float16"])
def test_quick_rounding_is_the_same(name):
    g = torch.Generator().manual_seed(1)
    x = torch.randint(-(2**31), 2**31 - 1, (100_000,), generator=g).to(torch.int32).view(torch.float32)
    x = torch.cat(
        [x, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.4028235e38, 1e-45, 65519.0, 65520.0])]
    )
    quick, slow = rounded_once(x, name), to_format(x, name).float()
    assert bool(((quick.view(torch.int32) == slow.view(torch.int32)) | (quick.isnan() & slow.isnan())).all())


def test_signs_are_drawn_in_bytes():
    signs = noise._signs((1000,), torch.Generator().manual_seed(2))
    assert signs.dtype == torch.int8
    assert set(signs.tolist()) == {-1, 1}


def peak_beside(run):
    """(what `run` gives, the most bytes that this process held meanwhile beyond those before)."""

    def held(name):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))

    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # begins VmHWM anew
    before = held("VmRSS")
    return run(), held("VmHWM") - before


def test_a_wrong_sum_of_many_takes_few_times_their_memory():
    """The call's own copy and the inputs of one run in float64: nothing is copied that nobody writes, nothing is
    made link by link."""
    x = torch.rand(9_000_000)  # smaller ones lie in a heap that keeps what it was given
    ulpscope.judge_call(torch.mean, (x[:64],), outputs=1.1 * x[:64].mean(), cause=False)  # what is loaded once
    verdict, peak = peak_beside(lambda: ulpscope.judge_call(torch.mean, (x,), outputs=1.1 * x.mean(), cause=False))
    assert verdict.verdict == "wrong"
    assert peak < 4 * x.nbytes, peak / x.nbytes


def scaled_unseen(x):
    """Writes what it is given where no operator shows it."""
    x.numpy()[:] *= 2
    return x.sum()


WRITES = {
    "an operator does": (lambda: (F.relu, (torch.randn(64),), {"inplace": True}), {1}),
    "statistics are": (
        lambda: (F.batch_norm, (torch.randn(8, 4), torch.zeros(4), torch.ones(4)), dict(training=True)),
        {2, 3},
    ),
    "nothing is": (lambda: (torch.mean, (torch.randn(64),), {}), set()),
    "nothing is, by Python of torch": (lambda: (F.layer_norm, (torch.randn(4, 8), (8,)), {}), set()),
    "nobody knows": (lambda: (scaled_unseen, (torch.randn(64),), {}), None),
    "nobody knows of a lambda": (lambda: (lambda x: x.sum(), (torch.randn(64),), {}), None),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_run_is_given_copies_of_what_it_may_write(what):
    torch.manual_seed(4)
    (function, args, kwargs), written = WRITES[what][0](), WRITES[what][1]
    call = call_of(function, args, kwargs)
    assert call.touched == written
    before = {s: content.clone() for s, content in call.storages.items()}
    reference = reference_runs.Reference(call)
    reference.begin()
    for path in reference.truth:
        list(reference.noises(path))
        reference.fan_in(path)
    reference.replay(0)
    assert all(torch.equal(content, before[s]) for s, content in call.storages.items())


def unit_by_definition(x):
    live = [abs(v) for v in x.double().flatten().tolist() if v != 0]
    if any(v != v or v == float("inf") or v < 2.0**-97 for v in live):
        return 0.0
    ratios = [v.as_integer_ratio() for v in live]
    return min(((n & -n) / d for n, d in ratios), default=1.0)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.0, -0.0],
        [3.0, -12.0],
        [0.75, 6.0, 0.0],
        [1.0, float("nan")],
        [1.0, float("inf")],
        [2.0**-97, 1.0],
        [2.0**-98, 1.0],
        [1e-40],
        [1 / 3, 2.0**60],
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_unit_of_terms_is_their_largest_common_power_of_two(values, dtype):
    x = torch.tensor(values, dtype=dtype)
    assert _core.unit_of(x) == unit_by_definition(x)
