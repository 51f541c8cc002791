# SPDX-License-Identifier: Apache-2.0
"""What an operator leaves open and what it does not: whichever of several updates wins, it wins
the whole row; beside what a type does not hold, a division by zero or an index out of range
everything is judged."""

import pytest
import torch
import torch.nn.functional as F

import ulpscope
from ulpscope.executors.streams import one_thread

aten = torch.ops.aten
SEED = 23
NAN = float("nan")


def normal(*shape, seed=SEED):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, NEW = normal(24, 6, 10), normal(40, 6, 10, seed=SEED + 1)
AT = torch.randint(0, 24, (40,), generator=torch.Generator().manual_seed(SEED))
MIDDLE = torch.randint(0, 6, (9,), generator=torch.Generator().manual_seed(SEED))
ALONG = torch.randint(0, 24, (40, 6, 10), generator=torch.Generator().manual_seed(SEED))
LEFT = torch.arange(10) < 5
NEW_MIDDLE, NEW_APART = normal(24, 9, 10), normal(40, 6)
TENS = AT % 10


def torn(first, second):
    """Rows of which one half comes from one order of the updates, one from the other."""
    return torch.where(LEFT, first, second)


def put(x, i, new):
    return x.index_put((i,), new)


def put_middle(x, i, new):
    return aten.index_put(x, [None, i], new)


def put_apart(x, i, j, new):
    """Indices with a free axis between: their axes come first."""
    return aten.index_put(x, [i, None, j], new)


def copy(x, i, new):
    return x.index_copy(0, i, new)


def scatter(x, i, new):
    return x.scatter(0, i, new)


def backwards(function):
    return lambda x, i, new: function(x, i.flip(0), new.flip(0))


def middle_backwards(x, i, new):
    return put_middle(x, i.flip(0), new.flip(1))


def to_int8(x):
    return x.to(torch.int8)


def divided(a, b):
    return torch.where(b == 0, -1, a // b.clamp(min=1))


ROWS = (X, AT, NEW)
LARGE = torch.arange(60) % 13
SMALL = torch.arange(60) % 5
TABLE = normal(24, 10)
FAR = torch.where(torch.arange(40) == 7, 31, AT)
GARBAGE = torch.randint(-100, 100, X.shape, generator=torch.Generator().manual_seed(4)).to(torch.int8)
CASES = {
    "put, last wins": (put, ROWS, put, "pass"),
    "put, first wins": (put, ROWS, backwards(put), "undefined"),
    "put, torn": (put, ROWS, lambda *a: torn(put(*a), backwards(put)(*a)), "undefined"),
    "put, their mean": (put, ROWS, lambda *a: (put(*a) + backwards(put)(*a)) / 2, "wrong"),
    "put, added": (put, ROWS, lambda x, i, n: x.index_put((i,), n, accumulate=True), "wrong"),
    "put, one left out": (put, ROWS, lambda x, i, n: put(x, i[AT != 3], n[AT != 3]), "wrong"),
    "put, an old row": (put, ROWS, lambda x, i, n: put(x, i, n).index_copy(0, AT[:1], X[AT[:1]]), "wrong"),
    "put of NaN": (put, (X, AT, torch.where(NEW > 1, NAN, NEW)), backwards(put), "undefined"),
    "put in the middle": (put_middle, (X, MIDDLE, NEW_MIDDLE), middle_backwards, "undefined"),
    "put in the middle, torn": (
        put_middle,
        (X, MIDDLE, NEW_MIDDLE),
        lambda *a: torn(put_middle(*a), middle_backwards(*a)),
        "undefined",
    ),
    "put apart": (
        put_apart,
        (X, TENS, TENS % 7, NEW_APART),
        lambda x, i, j, new: put_apart(x, i.flip(0), j.flip(0), new.flip(0)),
        "undefined",
    ),
    "put apart, torn": (
        put_apart,
        (X, TENS, TENS % 7, NEW_APART),
        lambda x, i, j, new: torch.where(
            torch.arange(6)[:, None] < 3, put_apart(x, i, j, new), put_apart(x, i.flip(0), j.flip(0), new.flip(0))
        ),
        "undefined",
    ),
    "copy": (copy, ROWS, backwards(copy), "undefined"),
    "copy, torn": (copy, ROWS, lambda *a: torn(copy(*a), backwards(copy)(*a)), "undefined"),
    "copy of integers, torn": (
        copy,
        (X.mul(99).int(), AT, NEW.mul(99).int()),
        lambda *a: torn(copy(*a), backwards(copy)(*a)),
        "undefined",
    ),
    "scatter": (scatter, (X, ALONG, NEW), backwards(scatter), "undefined"),
    "scatter, either": (scatter, (X, ALONG, NEW), lambda *a: torn(scatter(*a), backwards(scatter)(*a)), "undefined"),
    "scatter, their mean": (scatter, (X, ALONG, NEW), lambda *a: (scatter(*a) + backwards(scatter)(*a)) / 2, "wrong"),
    "put of very many": (
        put,
        (normal(400, 300), torch.arange(800) % 400, normal(800, 300)),
        backwards(put),
        "undefined",
    ),
    "cast, garbage where many are out of range": (
        to_int8,
        (200 * X,),
        lambda x: torch.where(x.abs() >= 128, GARBAGE, to_int8(x.clamp(-128, 127))),
        "wrong",
    ),
    "cast, few are out of range": (
        to_int8,
        (40 * X,),
        lambda x: torch.where(x.abs() >= 128, GARBAGE, to_int8(x.clamp(-128, 127))),
        "undefined",
    ),
    "cast saturates": (to_int8, (200 * X,), lambda x: to_int8(x.clamp(-128, 127)), "undefined"),
    "cast by way of int32": (to_int8, (200 * X,), lambda x: x.int().to(torch.int8), "pass"),
    "cast wrong in range": (to_int8, (200 * X,), lambda x: to_int8((x + 1).clamp(-128, 127)), "wrong"),
    "quotient": (torch.floor_divide, (LARGE, SMALL), divided, "undefined"),
    "quotient off by one": (torch.floor_divide, (LARGE, SMALL), lambda a, b: divided(a, b) + (a > 8), "wrong"),
    "remainder of a callable": (
        lambda a, b: 2 * (a % b) + 1,
        (LARGE, SMALL),
        lambda a, b: torch.where(b == 0, 5, 2 * torch.where(b == 0, 0, a % SMALL.clamp(min=1)) + 1),
        "undefined",
    ),
    "embedding": (F.embedding, (FAR, TABLE), lambda i, t: t[i.clamp(0, 23)], "undefined"),
    "embedding of the next": (F.embedding, (FAR, TABLE), lambda i, t: t[(i + 1).clamp(0, 23)], "wrong"),
    "gather": (
        lambda x, i: x.gather(0, i),
        (TABLE, FAR[:, None].expand(40, 10)),
        lambda x, i: x.gather(0, i.clamp(0, 23)),
        "undefined",
    ),
    "all rows out of range": (F.embedding, (FAR + 99, TABLE), lambda i, t: t[i.clamp(0, 23)], "unjudged"),
}


def test_threads_that_race_are_honest():
    """Device and reference, both of which tear rows where torch has several threads."""
    n = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        function, args = CASES["put of very many"][:2]
        found = [ulpscope.judge_call(function, args, {}, function(*args)) for _ in range(3)]
    finally:
        torch.set_num_threads(n)
    assert {f.verdict for f in found} <= {"pass", "undefined"}, [f.sentence for f in found]


@pytest.mark.parametrize("name", CASES)
def test_verdict(name):
    function, args, device, verdict = CASES[name]
    with one_thread():
        given = device(*args)
    found = ulpscope.judge_call(function, args, {}, given)
    accused = ("wrong", "nonfinite", "reduced") if verdict == "wrong" else (verdict,)
    assert found.verdict in accused, found.sentence
