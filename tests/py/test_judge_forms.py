# SPDX-License-Identifier: Apache-2.0
"""judge_call on odd but legal calls: whatever form results and arguments have, what is right
passes, what is wrong is accused, and what holds nothing to judge says so."""

import collections
import math
from dataclasses import dataclass

import pytest
import torch
from test_judge_api import randn

import ulpscope

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(7))
Pair = collections.namedtuple("Pair", "a b")


@dataclass
class Result:
    first: object
    second: object


def verdict(fn, right, *args):
    return ulpscope.judge_call(fn, args or (X,), {}, right)


def judged(fn, right, wrong, *args):
    """Both answers to one call have the verdict that they deserve."""
    said = verdict(fn, right, *args), verdict(fn, wrong, *args)
    assert said[0].verdict == "pass", said[0].sentence
    assert said[1].verdict in ("reduced", "wrong"), said[1].sentence


FORMS = {
    "list": lambda y, z: [y, z],
    "list for a tuple": lambda y, z: (y, z) if y is z else [y, z],
    "dict": lambda y, z: {"y": y, 3: z},
    "named tuple": Pair,
    "dataclass": Result,
    "dataclass inside": lambda y, z: [Result(y, None), {"q": Result(z, "text")}],
    "None and text": lambda y, z: (y, None, "text", z),
    "numpy": lambda y, z: (y.numpy(), z.numpy()),
    "expanded": lambda y, z: (y[:, :1].expand(5, 6), z.T),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_results(form):
    made = FORMS[form]
    judged(lambda x: made(x.exp(), x.sin()), made(X.exp(), X.sin()), made(X.exp(), X.cos()))


def test_arrays_stand_for_tensors():
    judged(torch.exp, X.exp().numpy(), X.sin().numpy())


def test_python_numbers_have_the_precision_of_their_inputs():
    judged(lambda x: x.sum().item(), X.sum().item(), X.sum().item() * 1.01)
    judged(lambda x: x.sum().item() / 3, X.sum().item() / 3, X.sum().bfloat16().item() / 3)
    judged(lambda x: complex(x.sum(), x.mean()), complex(X.sum(), X.mean()), complex(X.sum(), X.sum()))
    low = X.bfloat16()
    judged(lambda x: x.sum().item(), X.bfloat16().sum().item(), X.bfloat16().sum().item() * 1.02, low)


def test_python_numbers_computed_in_float64_are_held_to_it():
    for x in (X.double(), X):
        exact = x.double().sum().item()
        judged(lambda x: x.double().sum().item(), exact, torch.tensor(exact).float().item(), x)


@pytest.mark.parametrize("answer", ["text", {1, 2}, iter(())])
def test_results_without_a_tensor_are_not_judged(answer):
    said = verdict(lambda x: answer, answer)
    assert said.verdict == "unjudged" and "without a tensor" in said.sentence


def test_a_call_that_only_writes_needs_what_it_left():
    def double(x):
        x.mul_(2)

    said = ulpscope.judge_call(double, (X.clone(),), {}, None)
    assert said.verdict == "unjudged" and "give mutated=" in said.sentence
    assert ulpscope.judge_call(double, (X,), {}, None, mutated=((2 * X,), {})).verdict == "pass"
    said = ulpscope.judge_call(double, (X,), {}, None, mutated=((2.1 * X,), None))
    assert said.verdict in ("reduced", "wrong")


def test_misused_mutated_is_an_error():
    for mutated in ([X], (X, X), {"x": X}, ((X,), [X])):
        with pytest.raises(TypeError, match="mutated is not a pair"):
            ulpscope.judge_call(torch.exp, (X,), {}, X, mutated=mutated)
    with pytest.raises(ValueError, match="mutated holds 1 arguments where the call has 2"):
        ulpscope.judge_call(torch.add, (X, X), {}, 2 * X, mutated=((X,), {}))


def test_modes_around_the_call():
    with torch.inference_mode():
        judged(torch.exp, X.exp(), X.sin())
        made = torch.randn(5, 6)
        judged(torch.exp, made.exp(), made.sin(), made)
    judged(torch.exp, made.exp(), made.sin(), made)
    with torch.no_grad():
        gradient = lambda x: torch.autograd.grad(x.sin().sum(), x)  # noqa: E731
        judged(gradient, (X.cos(),), (X.sin(),), X.clone().requires_grad_())


ARGUMENTS = {
    "nested": lambda: torch.nested.nested_tensor([X, X[:2]]),
    "meta": lambda: X.to("meta"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_arguments_that_cannot_be_replayed_are_named(kind):
    said = verdict(lambda x: x * 2, X, ARGUMENTS[kind]())
    assert said.verdict == "unjudged" and kind in said.sentence and "args[0]" in said.sentence


def test_an_operator_in_place_is_told_by_what_it_left():
    """What it returns is the argument that it wrote, and stands once: it may be left out, and be no other tensor."""
    y, z = torch.randn(6, 4, generator=torch.Generator().manual_seed(8)), torch.zeros(5, 4)
    right, op = X @ y, torch.ops.aten.addmm_.default
    said = [
        ulpscope.judge_call(op, (z, X, y), {}, out, mutated=((left, X, y), {}), cause=False)
        for out, left in ((right, right), (None, right), (None, right + 1), (None, z), (right + 1, right))
    ]
    assert [s.verdict for s in said] == ["pass", "pass", "wrong", "wrong", "wrong"]
    assert "in args[0]" in said[3].sentence and "out[0] is not the argument that it wrote" in said[4].sentence


# ---- what cannot be judged -----------------------------------------------------------


@pytest.mark.parametrize(
    "function, why",
    [
        (lambda x: x + torch.rand(9) - torch.rand(9), "random"),
        (lambda x: 1 / 0, "division by zero"),
        (lambda x: x.no_such_method(), "no_such_method"),
    ],
    ids=["rand", "raises", "attribute"],
)
def test_what_cannot_be_judged_is_unjudged_with_the_reason(function, why):
    x = randn(9)
    verdict = ulpscope.judge_call(function, (x,), {}, x)
    assert verdict.verdict == "unjudged" and why in verdict.sentence
    assert math.isnan(verdict.effective_bits) and not verdict.passed


def test_misuse_is_an_error():
    with pytest.raises(TypeError, match="not callable"):
        ulpscope.judge_call("exp", (randn(3),), {}, randn(3))
    with pytest.raises(TypeError, match="not a tuple"):
        ulpscope.judge_call(torch.exp, randn(3), {}, randn(3))
    with pytest.raises(ValueError, match="known: ulpscope"):
        ulpscope.judge_call(torch.exp, (randn(3),), {}, randn(3), standard="guess")
