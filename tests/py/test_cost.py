# SPDX-License-Identifier: Apache-2.0
"""What saves replays: a look before any of them, the closed form for sums of products, the
one pass that finds steps. Each says what the replays would have said, and lets no planted
fault through."""

import itertools

import pytest
import torch

from ulpscope import _core
from ulpscope.calls.mode import Mode
from ulpscope.executors import operands as _operands
from ulpscope.executors.algorithms import accumulated
from ulpscope.calls.callable import call_of
from ulpscope.executors.device import Answer
from ulpscope.executors.jumps import freed
from ulpscope.executors.linear import is_sum_of_products, moved_by_slope, n_products
from ulpscope.executors.operands import Operands, Timing
from ulpscope.judges.outputs import judge_outputs
from ulpscope.executors.reference_runs import Reference
from ulpscope.calls.replay import Call

SEED = 11
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


def call(op, *args, **kwargs):
    """A call of an operator on tensors."""
    made = call_of(lambda *a, **k: None, args, kwargs)
    return Call(
        0,
        f"aten::{op._overloadpacket.__name__}",
        made.args,
        made.kwargs,
        made.views,
        storages=made.storages,
        function=op,
    )


def judged(made, output, n_replays=None):
    """The finding for an output, and how many replays were asked for."""
    operands = Operands(made, Timing())
    operands.begin()
    asked = []
    replay = operands.reference.replay
    operands.reference.replay = lambda k: asked.append(k) or replay(k)
    found = judge_outputs(operands, Answer({"out[0]": output}))
    return found[0], len(asked)


def rounded(tensor, bits):
    """A float32 tensor with fewer significand bits."""
    m, e = torch.frexp(tensor)
    return torch.ldexp((m * 2**bits).round() / 2**bits, e)


SUMS = {
    "mm": (aten.mm.default, lambda: (torch.randn(20, 300), torch.randn(300, 30))),
    "bmm": (aten.bmm.default, lambda: (torch.randn(3, 20, 90), torch.randn(3, 90, 10))),
    "linear": (aten.linear.default, lambda: (torch.randn(20, 90), torch.randn(30, 90), torch.randn(30))),
    "addmm": (aten.addmm.default, lambda: (torch.randn(30), torch.randn(20, 90), torch.randn(90, 30))),
    "sum": (aten.sum.dim_IntList, lambda: (torch.randn(20, 700), [-1])),
    "cumsum": (aten.cumsum.default, lambda: (torch.randn(20, 300), -1)),
    "lerp": (aten.lerp.Scalar, lambda: (torch.randn(20, 700), torch.randn(20, 700), 0.1)),
    "addcmul": (aten.addcmul.default, lambda: tuple(torch.randn(3, 20, 700))),
    "addcdiv": (aten.addcdiv.default, lambda: (*torch.randn(2, 20, 700), torch.rand(20, 700) + 0.5)),
    "conv2d": (aten.conv2d.default, lambda: (torch.randn(2, 8, 9, 9), torch.randn(6, 8, 3, 3))),
}


@pytest.mark.parametrize("name", SUMS)
def test_good_sums_need_no_replay(name):
    op, make = SUMS[name]
    args = make()
    found, replays = judged(call(op, *args), op(*args))
    assert (found.verdict, replays) == ("pass", 0)


@pytest.mark.parametrize("name", SUMS)
def test_closed_form_is_no_wider_than_sampled_slopes(name):
    op, make = SUMS[name]
    made = call(op, *make())
    assert is_sum_of_products(made)
    reference = Reference(made)
    reference.begin()
    truth = reference.truth["out[0]"]
    closed = (moved_by_slope(reference, "out[0]") - truth) * 2**20
    sampled = sum(((reference.replay(k)[0]["out[0]"] - truth) * 2**20).square() for k in range(64))
    ratio = float((closed.square().mean() / (sampled / 64).mean()).sqrt())
    assert 0.6 < ratio < 1.1, ratio  # the root of a half where both factors move


@pytest.mark.parametrize("name", ["mm", "bmm", "linear", "addmm", "conv2d", "lerp", "addcmul"])
@pytest.mark.parametrize("bits, verdict", [(11, "reduced"), (8, "reduced")])
def test_reduced_inputs_are_still_seen(name, bits, verdict):
    op, make = SUMS[name]
    args = make()
    found, _ = judged(call(op, *args), op(*(rounded(a, bits) if isinstance(a, torch.Tensor) else a for a in args)))
    assert found.verdict == verdict


@pytest.mark.parametrize("name", SUMS)
def test_one_wrong_element_is_still_seen(name):
    op, make = SUMS[name]
    args = make()
    out = op(*args).clone()
    out.view(-1)[7] += 0.01 * out.abs().mean()
    found, _ = judged(call(op, *args), out)
    assert found.verdict in ("wrong", "reduced")


@pytest.mark.parametrize("weight", [0.1, 0.9, -3.0, 0.0])
def test_weights_are_squared_too(weight):
    made = call(aten.lerp.Scalar, torch.randn(40, 50), torch.randn(40, 50), weight)
    reference = Reference(made)
    reference.begin()
    closed = (moved_by_slope(reference, "out[0]") - reference.truth["out[0]"]) * 2**20
    a, b = (part.data.double().view(40, 50) for part in reference.parts.values())
    exact = ((1 - weight) ** 2 * a.square() + weight**2 * b.square()).sqrt()
    torch.testing.assert_close(closed, exact, rtol=1e-6, atol=1e-9)
    tensor = call(aten.lerp.Tensor, torch.randn(4), torch.randn(4), torch.rand(4))
    assert not is_sum_of_products(tensor)
    same = torch.randn(9)
    twice = Reference(call(aten.lerp.Scalar, same, same, weight))
    twice.begin()
    assert moved_by_slope(twice, "out[0]") is None


@pytest.mark.parametrize("write", [False, True])
def test_arguments_are_copied_only_where_written(write):
    flat = torch.randn(64)
    op = aten.add_.Tensor if write else aten.add.Tensor
    made = call(op, flat[3:30], flat[30:57])
    before = {k: v.clone() for k, v in made.storages.items()}
    reference = Reference(made)
    reference.begin()
    expected = op(*(t.double() for t in (flat[3:30], flat[30:57])))
    path = "args[0]" if write else "out[0]"
    if write:
        wide = flat.double()
        expected = wide[3:30].add_(wide[30:57])
    assert torch.equal(reference.truth[path], expected)
    assert reference._written == (set(before) if write else set())
    assert all(torch.equal(v, made.storages[k]) for k, v in before.items())


def test_transposed_results_are_judged_in_the_order_of_memory():
    x = torch.randn(30, 50)
    found, replays = judged(call(aten.t.default, x), x.t())
    assert (found.verdict, found.sizes, replays) == ("pass", (50, 30), 0)
    bad = x.clone()
    bad[3, 7] *= 2
    found, _ = judged(call(aten.t.default, x), bad.t())
    assert found.verdict == "wrong" and found.examples[0][0] == 7 * 30 + 3


def test_weights_and_other_operators_have_no_closed_form():
    a = torch.randn(8, 8)
    assert not is_sum_of_products(call(aten.addmm.default, a, a, a, alpha=0.5))
    assert not is_sum_of_products(call(aten.softmax.int, a, -1))
    assert not is_sum_of_products(call(aten.mean.dim, a, [-1]))


def test_number_of_products():
    a, b = torch.randn(4, 33), torch.randn(33, 5)
    reference = Reference(call(aten.mm.default, a, b))
    reference.begin()
    assert n_products(reference, "out[0]") == 33


def test_what_is_right_beside_itself_needs_no_replay():
    x, y = torch.randn(50), torch.randn(50)
    found, replays = judged(call(aten.mul.Tensor, x, y), x * y)
    assert (found.verdict, replays) == ("pass", 0)
    found, replays = judged(call(aten.mul.Tensor, x, y), rounded(x * y, 11))
    assert found.verdict == "reduced" and replays > 0


def test_replays_are_shared_by_the_outputs_of_a_call():
    made = call(aten.lerp.Scalar, torch.randn(50), torch.randn(50), 0.3)
    operands = Operands(made, Timing())
    operands.begin()
    assert operands.replay(0) is operands.replay(0)
    assert _operands.REPLAY_BYTES > 0


@pytest.mark.parametrize("name", ["_fused_adamw_", "_foreach_addcdiv_"])
def test_a_call_over_lists_is_replayed_where_it_has_to_be(name):
    """Place by place the replays are bit by bit those of the whole call, and what an appeal asks
    for; the first replay is that of the whole as soon as enough places have asked."""
    tiny = torch.randn(40) * 2.0**-130
    lists = [[torch.randn(9, 5), tiny.clone(), torch.zeros(3)] for _ in range(3)]
    if name == "_fused_adamw_":
        lists += [[t.square() for t in lists[0]], [], [torch.tensor(float(i)) for i in (3, 4, 5)]]
        more = dict(lr=1e-2, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
        made = call(getattr(aten, name).default, *lists, **more)
    else:
        made = call(getattr(aten, name).ScalarList, *lists, [0.5, 0.25, 3.0])
    whole, parts = Operands(made, Timing()), Operands(made, Timing())
    whole._length = None
    for operands in (whole, parts):
        operands.begin()
    for path in made.written():
        assert parts.fan_in(path) == whole.fan_in(path)
        for a, b in zip(parts.flushed(path), whole.flushed(path), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        for k in range(3):
            for a, b in zip(whole.replay(k), parts.replay_of(path, k)):
                torch.testing.assert_close(a[path], b[path], rtol=0, atol=0, equal_nan=True)
    assert {key for key in parts._replays if not isinstance(key, tuple)} == {0}
    assert parts._flushed.keys() == {0, 1, 2}
    shared = [torch.randn(4)] * 2
    assert _operands.length_of_lists(call(aten._foreach_add_.List, shared, [torch.randn(4)] * 2)) is None


def test_steps_are_found_as_by_definition():
    found = 0
    for i in range(200):
        truth = torch.randn(7, 33, dtype=torch.float64)
        if i % 5 == 0:
            truth[0, 0] = torch.inf
        if i % 7 == 0:
            truth = truth.t()
        far = 10 ** (-4 * float(torch.rand(1)) - 2)
        moved = truth * (1 + far * torch.randn(truth.shape)) + far / 50 * torch.randn(truth.shape)
        if i % 11 == 0:
            moved[1, 1] = torch.nan
        expected = bool(suspects(truth, moved).any())
        assert _core.steep(truth, moved) == expected
        found += expected
        yardstick, narrow = truth.float(), moved.float()
        nearer = truth + (moved - truth) * torch.tensor((0, 1, PART, PART * 3))[torch.randint(4, truth.shape)]
        wide, low, jump = freed(truth, yardstick, moved, narrow, nearer)
        for got, right in zip(
            (wide, low, *(vars(jump).values() if jump else ())),
            slow_freed(truth, yardstick, moved, narrow, nearer),
            strict=False,
        ):
            torch.testing.assert_close(got, right, rtol=1e-15, atol=0, equal_nan=True)
        assert expected or jump is None
    assert 20 < found < 180
    with pytest.raises(_core.UlpscopeError, match="float64"):
        _core.steep(torch.ones(3), torch.ones(3))
    assert not _core.steep(torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64))


PART = 2.0**-12


def suspects(truth, moved):
    live = truth[truth.isfinite()]
    typical = float(live.square().mean().sqrt()) if live.numel() else 0.0
    return truth.isfinite() & ~((moved - truth).abs() <= PART * truth.abs().clamp(min=typical))


def slow_freed(truth, yardstick, moved, narrow, nearer):
    """The definition of usc_judge_free_steps; without steps its first two alone."""
    far, near = (moved - truth).abs(), (nearer - truth).abs()
    slope = (far * PART >= near / 2) & (far * PART <= near * 2) & moved.isfinite()
    odd = suspects(truth, moved) & ~slope
    step, lost = nearer - truth, yardstick.double() - truth
    crossed = ~((step.abs() * 2 <= far) & nearer.isfinite())
    most = far.nan_to_num(nan=torch.inf)
    smooth = truth + torch.where(crossed, torch.zeros_like(step), step / PART).clamp(-most, most)
    stepped = far * PART > 16 * near  # the way further away changed far more than the slope nearby explains
    at = (odd & ~crossed & stepped & moved.isfinite()).flatten().nonzero().flatten()
    low = torch.where(odd & lost.isfinite(), (smooth + lost).to(narrow.dtype), narrow)
    return torch.where(odd, smooth, moved), low, at, moved.flatten()[at]


def test_a_reference_is_trusted_as_it_deserves():
    ask, x = _core.trust, torch.randn(5000, dtype=torch.float64)
    low, moved = x.float().double(), (x * (1 + 2.0**-20)).float().double()
    for question, result, before, answer in (
        ("steady", x * (1 + 2.0**-20), x, True),
        ("steady", x + 0.01 * (x > 2), x, False),
        ("steady", x[:9], x, False),
        ("steady", x.long(), x.long(), True),
        ("steady", x.long() + (x > 2), x.long(), False),
        ("coarse", low, low, True),
        ("coarse", x, x, False),
        ("coarse", x.round(), x.round(), False),
        ("still_coarse", moved, low, True),
        ("still_coarse", low, low, False),
        ("still_coarse", x, low, False),
        ("still_coarse", torch.where(torch.arange(5000) % 3 > 0, low, moved), low, False),
        ("steps", x * (1 + 2.0**-30), x, True),
        ("steps", x * (1 + 2.0**-18), x, False),
        ("alike", x + 0.01 * x.roll(1), x, True),
        ("alike", x.roll(1), x, False),
        ("alike", x * torch.nan, x, False),
        ("alike", torch.where(torch.arange(5000) % 15 > 0, x, 9 * x + 9), x, False),
        ("alike", x[:9], x, False),
        ("far", x.roll(1), x, True),
        ("far", torch.where(torch.arange(5000) % 3 > 0, x, 9 * x + 9), x, False),
        ("far", x * torch.nan, x, False),
        ("far", 9 * x[:7] + 9, x[:7], False),
    ):
        assert ask(question, result, before) == answer, (question, answer)
    with pytest.raises(ValueError, match="nothing is known"):
        ask("kindness", x, x)


def test_an_output_of_lists_is_looked_at_in_its_place_alone():
    """What float32 loses further away and in one accumulator is bit by bit that of the whole call,
    for one place in so many."""
    lists = [[torch.randn(9, 5), torch.randn(3, 4), torch.zeros(3)] for _ in range(3)]
    made = call(aten._foreach_addcdiv_.ScalarList, *lists, [0.5, 0.25, 3.0])
    operands = Operands(made, Timing())
    operands.begin()
    for path in made.written():
        alone = operands.reference_of(path)
        assert alone is not operands.reference and len(alone.call.views) == 3
        assert list(alone.call.written()) == [path]
        of_one, of_all = (itertools.chain(*r.far_away(path)) for r in (alone, operands.reference))
        for a, b in zip(of_one, of_all, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    plain = Operands(call(aten.mul.Tensor, torch.randn(3), torch.randn(3)), Timing())
    assert plain.reference_of("out[0]") is plain.reference


def test_steps_of_one_accumulator_pass_no_mode():
    """A sum of n terms is n steps: a mode that saw each would cost a hundred times the sum."""

    class Counts(Mode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counts.seen += 1
            return func(*args, **(kwargs or {}))

    a, b = torch.randn(4, 300), torch.randn(300, 5)
    with Counts():
        one = accumulated(aten.mm.default, (a, b), {}, "first")
    assert Counts.seen == 0
    total = torch.zeros(4, 5)
    for i in range(300):
        total += a[:, i, None] * b[i]
    assert torch.equal(one, total)


def test_the_fan_in_of_a_product_is_its_inner_size():
    """Each term hangs on two inputs, and is one rounding."""
    g = torch.Generator().manual_seed(5)
    made = call(aten.mm.default, torch.randn(64, 1000, generator=g), torch.randn(1000, 64, generator=g))
    operands = Operands(made, Timing())
    operands.begin()
    (path,) = operands.reference.truth
    assert 700 < operands.fan_in(path) < 1400
