# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for tensors that were not kept: like the tensor, and the same on every run."""

import json
import math

import pytest
import torch

from ulpscope.calls.replay import BadCall
from ulpscope.calls.standin import stand_in


def tensor(stats, sizes=(4000,), dtype="float32", path="args[0]"):
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return dict(
        path=path, role="in", dtype=dtype, sizes=list(sizes), strides=strides, stats=stats and json.dumps(stats)
    )


FLOATS = dict(
    n=4000,
    n_nan=2,
    n_pos_inf=1,
    n_neg_inf=0,
    n_zero=400,
    min=-1.9,
    max=15.0,
    mean=2.0,
    l2=300.0,
    histogram={"pos": {"0": 900, "2": 1800, "3": 449}, "neg": {"0": 448}},
)


def test_floats_follow_the_statistics():
    x = stand_in("trace", 7, tensor(FLOATS))
    assert x.dtype == torch.float32 and x.shape == (4000,)
    assert (int(x.isnan().sum()), int(x.isposinf().sum()), int((x == 0).sum())) == (2, 1, 400)
    finite = x[x.isfinite() & (x != 0)]
    assert finite.min() >= -1.9 and finite.max() <= 15.0
    share = lambda low, high: float(((finite >= low) & (finite < high)).double().mean())  # noqa: E731
    assert share(4, 8) == pytest.approx(0.5, abs=0.05)
    assert share(-2, 0) == pytest.approx(0.125, abs=0.03)


def test_stand_ins_depend_on_trace_call_and_argument_alone():
    once = stand_in("trace", 7, tensor(FLOATS))
    stand_in("trace", 8, tensor(FLOATS))
    assert torch.equal(once.nan_to_num(), stand_in("trace", 7, tensor(FLOATS)).nan_to_num())
    for other in (("trace", 8, "args[0]"), ("other", 7, "args[0]"), ("trace", 7, "args[1]")):
        x = stand_in(*other[:2], tensor(FLOATS, path=other[2]))
        assert not torch.equal(once.nan_to_num(), x.nan_to_num())


def test_integers_keep_range_order_and_uniqueness():
    stats = dict(n=50, int_min=3, int_max=90, sorted=True, unique=True)
    x = stand_in("t", 1, tensor(stats, (50,), "int64"))
    assert x.min() >= 3 and x.max() <= 90 and len(x.unique()) == 50
    assert bool((x.diff() > 0).all())
    x = stand_in("t", 1, tensor(dict(n=500, int_min=0, int_max=1), (500,), "bool"))
    assert 100 < int(x.sum()) < 400


def test_nothing_known_is_an_error():
    with pytest.raises(BadCall, match="not captured"):
        stand_in("t", 1, tensor(None))
