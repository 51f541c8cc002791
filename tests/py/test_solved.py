# SPDX-License-Identifier: Apache-2.0
"""Inverses, systems of equations, factors: honest algorithms of an ill-conditioned one lie far apart, and narrower
arithmetic and other formulas further."""

import pytest
import torch
from ulpscope import judge_call

L = torch.linalg
FLAGGED = ("wrong", "reduced", "nonfinite")


def drawn(seed, *sizes):
    return torch.randn(*sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def of_condition(condition, n, rows=None, seed=3):
    """A matrix with singular values from 1 down to 1 / condition."""
    left, right = L.qr(drawn(seed, rows or n, n))[0], L.qr(drawn(seed + 1, n, n))[0]
    values = torch.logspace(0, -torch.tensor(condition).log10().item(), n, dtype=torch.float64)
    return (left * values @ right).float()


def eye(x):
    return torch.eye(x.shape[-1])


def by_reflections(a, b):
    q, r = L.qr(a)
    return L.solve_triangular(r, q.mT @ b, upper=True)


def by_singular_values(a, b):
    u, s, v = L.svd(a, full_matrices=False)
    return v.mT @ (u.mT @ b / s[:, None])


def by_elimination(a, b):
    """Gauss and Jordan, with pivots."""
    n, m = len(a), torch.cat([a, b], 1)
    for i in range(n):
        p = i + int(m[i:, i].abs().argmax())
        m[[i, p]] = m[[p, i]]
        m[i] = m[i] / m[i, i]
        factors = m[:, i].clone()
        factors[i] = 0
        m -= factors[:, None] * m[i]
    return m[:, n:]


def narrow(fn, dtype=torch.bfloat16):
    return lambda *args: fn(*(x.to(dtype).float() for x in args))


def shuffled(a, b):
    order = torch.randperm(len(a), generator=torch.Generator().manual_seed(5))
    return L.lstsq(a[order], b[order]).solution


def gradient(a, b):
    a = a.detach().requires_grad_()
    return torch.autograd.grad(L.solve(a, b).sum(), a)[0]


def by_transposed(a, b, solve=by_elimination):
    return -solve(a.mT.contiguous(), torch.ones_like(b)) @ solve(a, b).mT


def least(a, b):
    return L.lstsq(a, b).solution


def factored(a, b):
    return L.lu_solve(*L.lu_factor(a), b)


# name: (callable, whether it has right hand sides, right kernels, wrong ones)
CALLS = {
    "inv": (
        L.inv,
        False,
        {
            "transposed": lambda x: L.inv(x.mT).mT,
            "reflections": lambda x: by_reflections(x, eye(x)),
            "singular values": lambda x: by_singular_values(x, eye(x)),
            "elimination": lambda x: by_elimination(x, eye(x)),
        },
        {"bf16": narrow(L.inv), "f16": narrow(L.inv, torch.half), "transposed": lambda x: L.inv(x).mT},
    ),
    "solve": (
        L.solve,
        True,
        {"reflections": by_reflections, "singular values": by_singular_values, "elimination": by_elimination},
        {"bf16": narrow(L.solve), "f16": narrow(L.solve, torch.half), "transposed": lambda a, b: L.solve(a.mT, b)},
    ),
    "factors": (
        factored,
        True,
        {"reflections": by_reflections, "elimination": by_elimination},
        {"bf16": narrow(factored), "transposed": lambda a, b: factored(a.mT.contiguous(), b)},
    ),
    "gradient": (
        gradient,
        True,
        {"elimination": by_transposed, "reflections": lambda a, b: by_transposed(a, b, by_reflections)},
        {"bf16": narrow(gradient), "sign": lambda a, b: -gradient(a, b)},
    ),
    "log determinant": (
        lambda x: L.slogdet(x)[1],
        False,
        {"singular values": lambda x: L.svdvals(x).log().sum(), "transposed": lambda x: L.slogdet(x.mT)[1]},
        {"bf16": narrow(lambda x: L.slogdet(x)[1]), "one pivot left out": lambda x: L.slogdet(x)[1] + 2},
    ),
    "singular values": (
        L.svdvals,
        False,
        {"transposed": lambda x: L.svdvals(x.mT)},
        {"bf16": narrow(L.svdvals), "of the product": lambda x: L.eigvalsh(x.mT @ x).clamp(min=0).sqrt().flip(0)},
    ),
}


@pytest.mark.parametrize("condition", [1e3, 1e6, 4e6])
@pytest.mark.parametrize("name", CALLS)
def test_another_algorithm_passes_and_narrower_arithmetic_does_not(name, condition):
    fn, sides, right, wrong = CALLS[name]
    x = of_condition(condition, 20)
    args = (x, drawn(9, 20, 3).float()) if sides else (x,)
    for words, kernel in right.items():
        found = judge_call(fn, args, outputs=kernel(*args).contiguous(), cause=False)
        assert found.verdict not in FLAGGED, (words, found)
        assert found.verdict == "pass" or condition > 1e6, (words, found)
    for words, kernel in wrong.items():
        found = judge_call(fn, args, outputs=kernel(*args).contiguous(), cause=False)
        assert found.verdict in FLAGGED, (words, found)


@pytest.mark.parametrize("condition", [1e9, 1e10])
def test_what_float32_cannot_invert_is_left_unjudged(condition):
    x = of_condition(condition, 16)
    for out in (L.inv(x), L.inv(x.mT).mT, by_reflections(x, eye(x)), by_elimination(x, eye(x))):
        found = judge_call(L.inv, (x,), outputs=out.contiguous(), cause=False)
        assert found.verdict == "unjudged" and "ill-conditioned" in found.sentence, found
    for words, out in {
        "zeros": torch.zeros(16, 16),
        "bf16": narrow(L.inv)(x),
        "f16": narrow(L.inv, torch.half)(x),
        "what it is given": x,
    }.items():
        found = judge_call(L.inv, (x,), outputs=out.contiguous(), cause=False)
        assert found.verdict == "wrong", (words, found)


def test_least_squares_are_judged_though_no_two_runs_are_alike():
    """A library adds by where memory happens to lie; float64 shows that nothing else differs."""
    a, b = of_condition(1e5, 24, rows=72), drawn(9, 72, 3).float()
    for kernel in (by_reflections, shuffled):
        assert judge_call(least, (a, b), outputs=kernel(a, b), cause=False).verdict == "pass"
    for out in (narrow(least)(a, b), least(a, b.roll(1, 0)), torch.zeros(24, 3)):
        assert judge_call(least, (a, b), outputs=out, cause=False).verdict in FLAGGED
    number = iter(range(1000))
    found = judge_call(lambda a: a + next(number) * 1e-3, (a,), outputs=a, cause=False)
    assert found.verdict == "unjudged" and "different results at two runs" in found.sentence, found


def test_a_triangle_is_substituted():
    """Which errs by a rounding of each element, however ill-conditioned the triangle is."""
    t, b = L.qr(of_condition(1e7, 24).double())[1].float(), drawn(9, 24, 3).float()

    def solve(t, b):
        return L.solve_triangular(t, b, upper=True)

    def inverted(t, b):
        """Blocks of eight by their inverses."""
        y = b.clone()
        for i in range(16, -1, -8):
            block = L.inv(t[i : i + 8, i : i + 8].double()).float()
            y[i : i + 8] = block @ (y[i : i + 8] - t[i : i + 8, i + 8 :] @ y[i + 8 :])
        return y

    for kernel, verdict in ((inverted, "pass"), (solve, "pass"), (narrow(solve, torch.half), "reduced")):
        assert judge_call(solve, (t, b), outputs=kernel(t, b), cause=False).verdict == verdict
    unit = L.solve_triangular(t, b, upper=True, unitriangular=True)
    assert judge_call(solve, (t, b), outputs=unit, cause=False).verdict == "wrong"
