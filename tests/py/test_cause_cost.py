# SPDX-License-Identifier: Apache-2.0
"""What makes the search for causes cheap says the same as what it saves: the fast rounding, the
look at a few elements, what follows from an edit without the run."""

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from ulpscope.causes import changes, diagnose, edges, edits as _causes_edits, emulate, inside
from ulpscope.executors import formats
from ulpscope.calls.callable import call_of
from ulpscope.causes.evidence import LEFT_MOST, Evidence
from ulpscope.causes.graph import PASSING
from ulpscope.causes.lab import Lab
from ulpscope.executors.formats import FORMATS
from ulpscope.executors.precision import Source
from ulpscope.executors.reference_runs import Reference

SEED = 5


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


def bits(x):
    return x.view(torch.int64)


def by_division(x, name):
    """The rounding by its definition, which also serves what is not normal."""
    return formats.quantize(x, *FORMATS[name], integer=lambda t: torch.round(t))


VALUES = {
    "normal": lambda: torch.randn(4000, dtype=torch.float64),
    "ties": lambda: (torch.randint(-(2**13), 2**13, (4000,)) + 0.5).double() * 2.0 ** torch.randint(-9, 3, (4000,)),
    "carries": lambda: (2.0 - 2.0 ** -torch.arange(1, 53).double()) * 2.0 ** torch.randint(-9, 9, (52,)),
    "zeros": lambda: torch.tensor([0.0, -0.0, 1.0], dtype=torch.float64),
    "subnormal": lambda: torch.randn(4000, dtype=torch.float64) * 2.0**-20,
    "large": lambda: torch.randn(4000, dtype=torch.float64) * 2.0**16,
    "infinite": lambda: torch.tensor([torch.inf, -torch.inf, torch.nan, 3.0], dtype=torch.float64),
    "wide": lambda: torch.randn(4000, dtype=torch.float64) * 10.0 ** torch.randint(-60, 60, (4000,)),
    "transposed": lambda: torch.randn(40, 30, dtype=torch.float64).T,
    "none": lambda: torch.zeros(0, dtype=torch.float64),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("values", VALUES)
def test_fast_rounding_gives_the_bits_of_the_definition(values, name):
    x = VALUES[values]()
    want = by_division(x, name)
    assert torch.equal(bits(formats.to_format(x, name)), bits(want))


@pytest.mark.parametrize("n_off", [1, 7, 40, 250, 4000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_look_at_a_few_elements_refuses_no_explanation(n_off, dtype):
    truth = torch.randn(4000, dtype=torch.float64)
    off = torch.randperm(4000)[:n_off]
    mistake = truth.clone()
    mistake[off] = mistake[off] * 1.25 + 0.5
    evidence = Evidence(mistake.to(dtype), truth, truth.float())
    for share in (1.0, 0.99, 0.97, 0.9, 0.5, 0.0):
        emulated = mistake.clone()
        wrong = off[int(share * n_off + 0.5) :]
        emulated[wrong] = truth[wrong]
        left = evidence.residual(emulated)
        assert left == float("inf") if len(wrong) > 0.03 * n_off else left <= LEFT_MOST or n_off < 4
        assert evidence.near(emulated) or left == float("inf")
    assert not evidence.near(truth)


def test_few_elements_far_off_do_not_hide_that_the_many_are_explained():
    truth = 1 + torch.rand(4000, dtype=torch.float64)
    device = (truth * (1 + 2.0**-22)).float()
    device[:9] *= 2
    evidence = Evidence(device, truth, truth.float())
    assert evidence.near(device.double().where(torch.arange(4000) >= 9, truth))


# ---- runs that compute only what follows from an edit --------------------------------------


def normed(x, w):
    y = functional.layer_norm(x, x.shape[-1:], w)
    return y * torch.sigmoid(y.mean(-1, keepdim=True))


def with_gradient(x, w):
    y = functional.gelu(x @ w).softmax(-1)
    return y, *torch.autograd.grad(y.square().sum(), (x, w))


def attended(q, k):
    return functional.scaled_dot_product_attention(q, k, k, is_causal=True)


def in_place(x):
    y = x.exp()
    y += 1
    y[:3].mul_(2)
    return y.log()


def writes_its_input(x, y):
    x.mul_(y.exp())
    return x[1:].sigmoid().sum()


def normed_batches(x, mean, var):
    return functional.batch_norm(x, mean, var, training=True).exp()


def of_complex(a, b):
    return torch.fft.fft(a @ b.conj()).abs()


def branching(x):
    return x.exp() if float(x.sum()) > 0 else x.log1p()


def grad(*sizes):
    return torch.randn(sizes).requires_grad_()


CALLS = {
    "composite": (normed, lambda: (torch.randn(6, 40), torch.randn(40))),
    "gradient": (with_gradient, lambda: (grad(6, 8), grad(8, 5))),
    "attention": (attended, lambda: (torch.randn(1, 2, 12, 8), torch.randn(1, 2, 12, 8))),
    "operator": (torch.ops.aten.gelu.default, lambda: (torch.randn(50),)),
    "in place": (in_place, lambda: (torch.randn(50),)),
    "written input": (writes_its_input, lambda: (torch.randn(9, 5), torch.randn(5))),
    "statistics": (normed_batches, lambda: (torch.randn(8, 3, 5), torch.randn(3), torch.rand(3))),
    "complex": (of_complex, lambda: (torch.randn(4, 6, dtype=torch.cfloat), torch.randn(6, 8, dtype=torch.cfloat))),
    "branching": (branching, lambda: (torch.rand(50),)),
}


def lab_of(name):
    function, make = CALLS[name]
    call = call_of(function, make(), {})
    reference = Reference(call)
    reference.begin()
    return Lab(call, reference)


def same(a, b):
    return a.keys() == b.keys() and all(
        t.shape == b[p].shape and torch.equal(bits(t.contiguous()), bits(b[p].contiguous())) for p, t in a.items()
    )


class Live(TorchDispatchMode):
    """Runs other operators at some places of a run, by counting."""

    def __init__(self, edits):
        super().__init__()
        self.edits, self.counter = edits, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._opname in PASSING:
            return func(*args, **(kwargs or {}))
        edit, self.counter = self.edits.get((self.counter,)), self.counter + 1
        return edit(func, args, kwargs or {}) if edit else func(*args, **(kwargs or {}))


def live(lab, edits):
    """The call with edits of the operators that it calls itself, run as a whole."""
    source, other = lab.source(), Lab(lab.call, lab.reference)

    def run(*args, **kwargs):
        with Live(edits):
            return source.run(*args, **kwargs)

    other.source = lambda: Source(run, held=source.held)
    other.graph = lambda dtype: None
    return other.changed(lambda tensors: {})


def edits_of_nodes(lab):
    """(text, edits) of operators that the call itself calls."""
    for node in lab.nodes():
        if len(node.place) == 1:
            for make in (inside.arguments, inside.swaps, inside.terms, inside.slices):
                yield from edges.together(make, [node])
    yield from ((t, e) for t, e in edges.values(lab) if all(len(place) == 1 for place in e))


def tried(run):
    try:
        return run()
    except Exception as problem:  # an edit that this call does not bear
        return type(problem)


@pytest.mark.parametrize("name", CALLS)
def test_what_follows_from_an_edit_is_what_the_run_gives(name):
    lab = lab_of(name)
    count = 0
    for text, edits in edits_of_nodes(lab):
        found = tried(lambda e=edits: lab.edited(e))
        if not isinstance(found, type):
            count += 1
            assert same(found, live(lab, edits)), text
    assert count > (1 if name == "branching" else 5)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"branching"}))
def test_nothing_changes_where_an_edit_changes_nothing(name):
    lab = lab_of(name)
    truth = live(lab, {})
    for node in lab.nodes():
        found = lab.edited({node.place: lambda func, args, kwargs: func(*args, **kwargs)})
        if len(node.place) == 1:
            assert same(found, truth)
        else:
            assert all(torch.allclose(t, found[p], rtol=1e-12) for p, t in truth.items())


def runs_of(lab):
    """(text, run) of edits of every kind."""
    for make in (*diagnose.MEANINGS, emulate.single_candidates):
        for text, edit in make(lab):
            yield text, lambda e=edit: lab.run(e)


@pytest.mark.parametrize("name", ["composite", "gradient", "attention", "in place", "statistics", "complex"])
def test_most_edits_can_be_told(name):
    found = [tried(run) for _, run in runs_of(lab_of(name))]
    assert sum(not isinstance(f, type) for f in found) > 0.5 * len(found) > 5


def test_a_number_that_python_saw_is_not_taken_for_granted():
    lab = lab_of("branching")
    place = next(n.place for n in lab.nodes() if n.name == "sum")
    with pytest.raises(LookupError, match="Python"):
        lab.edited({place: lambda func, args, kwargs: -func(*args, **kwargs)})


def test_an_edit_that_writes_what_it_was_given_leaves_the_recording_alone():
    lab = lab_of("composite")
    node = next(n for n in lab.nodes() if n.name == "sigmoid")

    def spoils(func, args, kwargs):
        args[0].zero_()
        return func(*args, **kwargs)

    plain = {node.place: lambda func, args, kwargs: func(*args, **kwargs)}
    before = lab.edited(plain)
    lab.edited({node.place: spoils})
    assert same(lab.edited(plain), before)


def test_half_of_an_edit_that_takes_no_other_tensor_lies_between():
    lab = lab_of("composite")
    node = next(n for n in lab.nodes() if n.name == "sigmoid")
    half = lab.halfway({node.place: lambda func, args, kwargs: func(*args, **kwargs) + 2})
    right = lab.edited({node.place: lambda func, args, kwargs: func(*args, **kwargs) + 1})
    assert half.keys() == right.keys() and all(torch.allclose(half[p], right[p], rtol=1e-12) for p in right)


def test_statistics_that_an_edit_keeps_unsaid_leave_the_recording_alone():
    args = torch.randn(8, 3, 5), torch.randn(3), torch.rand(3)
    call = call_of(lambda x, m, v: functional.batch_norm(x, m, v), args, {})
    reference = Reference(call)
    reference.begin()
    lab = Lab(call, reference)
    node = next(n for n in lab.nodes() if n.name == "native_batch_norm")
    before = [t.clone() for t in lab.graph(torch.float64).tensors]
    lab.edited({node.place: dict(inside.arguments(node))["wrong variant: training is True instead of False"]})
    assert all(torch.equal(a, b) for a, b in zip(lab.graph(torch.float64).tensors, before))


def test_the_inputs_of_a_call_that_writes_stay_what_they_are():
    lab = lab_of("written input")
    node = next(n for n in lab.nodes() if n.name == "exp")
    plain = {node.place: lambda func, args, kwargs: func(*args, **kwargs)}
    assert same(lab.edited(plain), lab.edited(plain))


# ---- edits that would be another mistake's as well -------------------------------------------


def lab_on(function, *args):
    call = call_of(function, args, {})
    reference = Reference(call)
    reference.begin()
    return Lab(call, reference)


def test_a_constant_is_not_exchanged_with_what_it_meets():
    lab = lab_on(lambda x: x / torch.full_like(x, 3.0) / x.abs(), torch.randn(40))
    first, second = (n.place for n in lab.nodes() if n.name == "div")
    swapped = [place for _, edit in _causes_edits.swaps(lab) for place in edit]
    assert second in swapped and first not in swapped


@pytest.mark.parametrize(
    "name, counts", [("step", True), ("state_steps", True), ("t", True), ("box", False), ("tau", False)]
)
def test_a_number_is_a_count_of_steps_by_its_name(name, counts):
    said = [words for words, _ in changes.of_tensor(name, torch.float32, ())]
    assert any("step count" in words for words in said) == counts


# ---- edits that a kernel would not survive -------------------------------------------------


def bagged(index, w):
    return functional.embedding_bag(index, w, torch.arange(0, index.numel(), 4), mode="mean")


def attended_back(q, k):
    out = functional.scaled_dot_product_attention(q, k, k, is_causal=True)
    return torch.autograd.grad(out.square().sum(), q)


def edits_of(function, *args, name):
    lab = lab_on(function, *args)
    for node in lab.nodes():
        if node.name == name:
            for text, edit in inside.arguments(node):
                yield text, lambda e={node.place: edit}: lab.edited(e)


def test_no_kernel_is_given_fewer_indices_than_it_reads():
    every = dict(edits_of(bagged, torch.randint(0, 9, (64,)), torch.randn(9, 5), name="arange"))
    fewer = [run for text, run in every.items() if "end were 0" in text]
    assert fewer
    for run in fewer:
        with pytest.raises(LookupError, match="shape|without elements"):
            run()


def test_no_kernel_is_given_fewer_sums_than_it_reads():
    q = torch.randn(1, 2, 12, 8, requires_grad=True)
    runs = edits_of(attended_back, q, torch.randn(1, 2, 12, 8), name="logsumexp")
    assert LookupError in [tried(run) for _, run in runs]
