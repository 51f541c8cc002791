# SPDX-License-Identifier: Apache-2.0
"""Numbers that reach an operator beside low-precision tensors: rounded to their dtype first, as
eager kernels do, or not. Both are right; anything else is not."""

import pytest
import torch

import ulpscope
from calls import make_call
from ulpscope.executors.device import Answer, PythonDevice
from ulpscope.executors.reference_runs import Reference
from ulpscope.judges.unwritten import unwritten
from ulpscope.session import judging
from ulpscope.judges.readings import IN_ROWS
from ulpscope.session.judging import judge_call

aten = torch.ops.aten
NOTE = "numbers among the arguments rounded to bfloat16 first"


def small(n=2048):
    torch.manual_seed(3)
    return (torch.rand(n) * 1e-6).bfloat16()


def wide(n=2048):
    torch.manual_seed(4)
    return torch.randn(n).bfloat16()


def double(value):
    return torch.tensor(value, dtype=torch.float64)


HONEST = {
    "a float": (aten.add_.Scalar, lambda: (small(), 1e-8)),
    "a 0-dim double": (aten.add_.Tensor, lambda: (small(), double(1e-8))),
    "a 0-dim float": (aten.add_.Tensor, lambda: (small(), torch.tensor(1e-8))),
    "a 0-dim double, by another name": (aten.subtract.Tensor, lambda: (small(), double(1e-8))),
    "a 0-dim double, reversed": (aten.rsub.Tensor, lambda: (small(), double(1e-8))),
    "a 0-dim integer": (aten.add.Tensor, lambda: (wide(), torch.tensor(1001))),
    "an integer": (torch.add, lambda: (wide(), 1001)),
    "torch.add": (torch.add, lambda: (small(), 1e-8)),
    "an expression": (lambda x: x + 1e-8, lambda: (small(),)),
    "foreach": (aten._foreach_add.Scalar, lambda: ([small()], 1e-8)),
    "foreach, a list": (aten._foreach_add.ScalarList, lambda: ([small(), small()], [1e-8, 3e-8])),
    "foreach, a tensor": (aten._foreach_add.Tensor, lambda: ([small()], double(1e-8))),
    "foreach, two dtypes": (aten._foreach_add.Scalar, lambda: ([small(), small().float()], 1e-8)),
}


@pytest.mark.parametrize("name", HONEST)
def test_a_rounded_number_is_no_fault(name):
    function, make = HONEST[name]
    said = ulpscope.check_call(function, make(), cause=False)
    assert said.verdict == "pass", said.sentence
    assert NOTE in said.notes


def plus(scale, shift):
    return lambda x, e: (x.double() * scale + float(e) * shift).to(x.dtype)


WRONG = {
    "another number": plus(1, 1.3),
    "no number at all": plus(1, 0),
    "a scale beside it": plus(1.004, 1),
    "inputs with four bits": lambda x, e: x.to(torch.float8_e5m2).to(x.dtype) + e,
    "a number with two bits": lambda x, e: x + float(torch.tensor(e * 1e8).to(torch.float8_e5m2)) * 1.1e-8,
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_rounding_of_the_number_is_flagged(name):
    said = ulpscope.check_call(WRONG[name], (small(), 1e-8), reference=torch.add, cause=False)
    assert said.verdict in ("wrong", "reduced"), said.sentence


@pytest.mark.parametrize("number", [1e-8, double(1e-8), torch.tensor(1e-8)])
def test_a_number_among_the_arguments_of_a_traced_call(number):
    name = "aten::add_.Tensor" if isinstance(number, torch.Tensor) else "aten::add_.Scalar"
    call = make_call(name, small(), number)
    honest = PythonDevice(lambda op, args, kwargs: op(*args, **kwargs))
    verdict = judge_call(call, honest)
    assert verdict.verdict == "pass" and NOTE in verdict.notes
    lost = PythonDevice(lambda op, args, kwargs: args[0])
    assert judge_call(call, lost, seconds=0).verdict in ("wrong", "reduced")


# ---- layouts that the CPU's own kernel misreads --------------------------------------


@pytest.fixture
def misread():
    """Operators whose CPU kernels take any tensor for rows; one of them reads what nobody wrote."""
    library = torch.library.Library("ulpscope_misread", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("noisy(Tensor x) -> Tensor")
    turns = iter(range(1000))

    def twice(x):
        return 2 * torch.empty(0, dtype=x.dtype).set_(x.untyped_storage(), 0, x.shape)

    library.impl("twice", twice, "CPU")
    library.impl("noisy", lambda x: 2 * x if x.is_contiguous() else x * next(turns), "CPU")
    yield torch.ops.ulpscope_misread
    library._destroy()


def strided():
    torch.manual_seed(5)
    return torch.randn(6, 8, 2)[..., 0]


@pytest.mark.parametrize("name", ["twice", "noisy"])
def test_a_right_kernel_is_held_to_rows_where_the_cpu_misreads_others(misread, name):
    call = make_call(f"ulpscope_misread::{name}.default", strided())
    said = judge_call(call, PythonDevice(lambda op, args, kwargs: 2 * args[0]), seconds=0)
    assert said.verdict == "pass" and IN_ROWS in said.notes
    wrong = judge_call(call, PythonDevice(lambda op, args, kwargs: 2 * args[0].flip(0)), seconds=0)
    assert wrong.verdict == "wrong"
    rows = make_call(f"ulpscope_misread::{name}.default", strided().contiguous())
    assert judge_call(rows, PythonDevice(lambda op, args, kwargs: 2 * args[0]), seconds=0).notes == []


def test_answers_without_order_are_no_draws(misread):
    """An operator that answers otherwise with the same seed draws nothing: it is held to numbers."""
    call = make_call("ulpscope_misread::noisy.default", strided())
    assert not Reference(call).is_random()
    assert Reference(make_call("aten::bernoulli.default", torch.full((64,), 0.5))).is_random()


# ---- signs and rotations that a decomposition leaves free -----------------------------


def turned(q):
    """A random rotation of vectors in columns, or a phase of each."""
    return torch.linalg.qr(torch.randn(q, q))[0]


def svd_turned(a, full, uv, driver=None):
    u, s, v = torch.linalg.svd(a, full_matrices=full)
    sign = torch.where(torch.arange(s.shape[-1]) % 2 == 0, -1.0, 1.0)
    k = len(sign)
    return torch.cat([u[:, :k] * sign, u[:, k:] @ turned(u.shape[-1] - k)], 1), s, sign[:, None] * v


def eigh_turned(a, *more):
    w, v = torch.linalg.eigh(a)
    return w, torch.cat([v[:, :3] @ turned(3), -v[:, 3:]], 1)


def eig_turned(a):
    w, v = torch.linalg.eig(a)
    order = torch.randperm(len(w))
    return w[order], v[:, order] * torch.exp(1j * torch.rand(len(w)))


def qr_turned(a, mode):
    q, r = torch.linalg.qr(a)
    return -q, -r


def alike():
    q = turned(12)
    a = (q * torch.tensor([1.0, 1, 1, *range(2, 11)])) @ q.T
    return (a + a.T) / 2


def blocks():
    """Most of its vectors have zeros, and nine values are 0."""
    a = torch.zeros(16, 16)
    for i, j in ((0, 1), (1, 2), (3, 4), (5, 6), (6, 7)):
        a[i, j] = a[j, i] = 1
    return a


def eigh_of_a_neighbour(a, *more):
    """A right answer for a matrix that is off by a rounding of its size: what an algorithm promises."""
    noise = torch.randn(a.shape, dtype=torch.float64) * 2**-24
    w, v = torch.linalg.eigh(a.double() + noise + noise.T)
    return w.float(), v.float()


FREE = {
    "_linalg_eigh, blocks": (lambda: (blocks(), "L", True), eigh_of_a_neighbour),
    "_linalg_svd": (lambda: (torch.randn(12, 8), True, True), svd_turned),
    "_linalg_eigh": (lambda: (alike(), "L", True), eigh_turned),
    "linalg_eig": (lambda: (torch.randn(8, 8),), eig_turned),
    "linalg_qr": (lambda: (torch.randn(12, 8), "reduced"), qr_turned),
}


@pytest.mark.parametrize("name", FREE)
def test_vectors_may_turn_as_the_decomposition_leaves_them_free(name):
    torch.manual_seed(6)
    given, kernel = FREE[name]
    call = make_call(f"aten::{name.split(',')[0]}.default", *given())
    said = judge_call(call, PythonDevice(lambda op, args, kwargs: kernel(*args, **kwargs)), seconds=0)
    assert said.verdict == "pass", said.worst


# ---- memory that nobody writes -------------------------------------------------------


def test_what_the_cpu_leaves_as_the_memory_was_is_nobodys_promise():
    torch.manual_seed(7)
    given = torch.randn(20, 6, 8).log_softmax(-1), torch.randint(1, 8, (6, 10)), [20] * 6, [3, 9, 10, 4, 6, 5], 0, False
    call = make_call("aten::_ctc_loss.default", *given)
    left = unwritten(call)["out[1]"]
    assert left.shape == (6, 20, 21) and 0 < int(left.sum()) < left.numel() / 2 and not left[2].any()

    loss, alpha = torch.ops.aten._ctc_loss.default(*given)
    answer = Answer({"out[0]": loss, "out[1]": torch.where(left, torch.nan, alpha)})
    said = judging.judge_given(call, answer, seconds=0)
    assert said.verdict == "pass" and said.findings[1].excused["unwritten"] == int(left.sum())
    for op in ("exp", "relu"):
        assert unwritten(make_call(f"aten::{op}.default", torch.randn(30))) == {}
