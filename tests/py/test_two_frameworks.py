# SPDX-License-Identifier: Apache-2.0
"""Two frameworks: a text on torch and on another module with its names, judged as a device is."""

import sys
from pathlib import Path

import mini_framework as mini
import pytest

from ulpscope.compat.oneflow import autotest, nothing, oneof, random, random_bool, random_tensor, torch
from ulpscope.fuzzing import fuzz, tensor

JAX = {"n": 2, "devices": ("cpu", f"module:{Path(__file__).parents[2] / 'examples' / 'jax_torch.py'}")}
HOW = {"n": 3, "devices": ("cpu", "module:mini_framework"), "cause": False, "shrink": False}


def products(test_case=None):
    k = random(2, 6)
    a, b = random_tensor(ndim=2, dim0=k, dim1=k), random_tensor(ndim=2, dim0=k, dim1=3)
    return torch.matmul(a, b).tanh() * 2


def sums(test_case=None):
    x = random_tensor(ndim=3, dim0=4)
    return (x.exp() + x).sum(dim=oneof(0, 1, 2), keepdim=random_bool() | nothing())


def layers(test_case=None):
    m = torch.nn.Linear(random(1, 6), 4, bias=True)
    return torch.nn.functional.relu(m(random_tensor(ndim=2, dim1=m.in_features)))


def refused(test_case=None):
    return torch.matmul(random_tensor(ndim=2, dim1=random(1, 3)), random_tensor(ndim=2, dim0=random(1, 3)))


def written(test_case=None):
    x = random_tensor(ndim=2, dim0=3, requires_grad=False)
    x[1] = 2.0
    return x * x


def nans(test_case=None):
    return torch.nn.functional.relu(tensor(20, values="nan", layout=None, requires_grad=False))


def product(test_case=None):
    return torch.matmul(random_tensor(ndim=2, dim0=3, dim1=3), random_tensor(ndim=2, dim0=3, dim1=2))


def tangent(test_case=None):
    return random_tensor(ndim=1, dim0=5).tanh()


def exponent(test_case=None):
    return random_tensor(ndim=1, dim0=5).exp()


def total(test_case=None):
    return random_tensor(ndim=2, dim0=4).sum(dim=0)


TEXTS = (products, sums, layers, refused, written, nans)
GRADIENT = "is a gradient of an input"
FAULTS = {
    "last row": (product, "wrong|nonfinite"),
    "no transpose": (product, GRADIENT),
    "bfloat16 products": (product, "reduced|wrong"),
    "derivative": (tangent, GRADIENT),
    "raises": (tangent, "it raises ValueError where the CPU gives a result: tanh is not for you"),
    "scale": (exponent, "reduced|wrong"),
    "dtype": (exponent, "result 0 is .* float64 where torch's is .* float32"),
    "keeps": (total, "result 0 is .1, .* where torch's is"),
    "no bias": (layers, "it gives no gradient of x|wrong"),
    "takes all": (refused, "it gives a result where the CPU raises RuntimeError"),
    "setitem": (written, "wrong"),
    "nan": (nans, "nonfinite"),
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t.__name__)
def test_an_honest_framework_passes(text):
    autotest(**HOW)(text)(None)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_framework_is_caught(fault, monkeypatch):
    text, said = FAULTS[fault]
    monkeypatch.setattr(mini, "FAULTS", {fault})
    with pytest.raises(AssertionError, match=f"(?s)on module:mini_framework, case 0:.*({said})"):
        autotest(**HOW)(text)(None)


def test_what_a_framework_lacks_is_said():
    def text():
        return torch.special.bessel_j0(tensor(3))

    with pytest.raises(AssertionError, match="mini_framework has no special.bessel_j0"):
        fuzz(text, **HOW)()
    with pytest.raises(ValueError, match="device module:no_such_module is not there: ModuleNotFoundError"):
        fuzz(text, devices=("cpu", "module:no_such_module"))()
    with pytest.raises(ValueError, match="leave these out"):
        fuzz(text, double_backward=True, **HOW)()


def test_a_failure_of_a_framework_is_made_small_and_replays(monkeypatch):
    monkeypatch.setattr(mini, "FAULTS", {"scale"})
    with pytest.raises(AssertionError, match="effective bits|instead of|times what is right") as failure:
        autotest(**HOW | {"shrink": True})(exponent)(None)
    lines = str(failure.value).partition("that case alone:\n")[2]
    with pytest.raises(AssertionError, match="exponent on module:mini_framework"):
        exec("\n".join(line.strip() for line in lines.splitlines()), {})


def test_both_frameworks_are_there_in_a_text():
    def text(test_case):
        x = random_tensor(ndim=1, dim0=5)
        y = x.exp()
        assert type(y.oneflow) is mini.Tensor and y.oneflow.shape == tuple(y.pytorch.shape)
        return y

    autotest(**HOW)(text)(None)


def jax_text(test_case=None):
    n = random(2, 8)
    m = torch.nn.Linear(n, 5)
    y = torch.nn.functional.gelu(m(random_tensor(ndim=2, dim0=3, dim1=n)))
    return y.softmax(-1), torch.nn.functional.layer_norm(y, (5,)).sum(dim=-1, keepdim=random_bool())


def test_jax_through_the_adapter_of_the_examples():
    pytest.importorskip("jax", reason="needs jax: pip install jax")
    autotest(**HOW | JAX)(jax_text)(None)
    jax = sys.modules["jax_torch"]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError, match="jax_text on module:"):
        patch.setattr(jax.functional, "gelu", staticmethod(lambda x: jax.jax.nn.gelu(x, approximate=True)))
        autotest(**HOW | JAX)(jax_text)(None)
