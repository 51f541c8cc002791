# SPDX-License-Identifier: Apache-2.0
"""Collectives on two ranks over gloo: what is captured of them, and when their results are
taken; rank 1 comes late, so that whoever does not wait finds an unfinished result."""

import json
import sqlite3

import pytest
import torch
from ranks import captured

from ulpscope import _core
from ulpscope.calls.read_call import call_from
from ulpscope.calls.replay import BadCall

LATE = """
    import time, torch, torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = [dist.new_group() for _ in range(2)]
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.step()
    def late():
        dist.barrier()
        time.sleep(0.4 * rank)
    late()
    dist.all_reduce(torch.full((50,), rank + 1.0), async_op=True).wait()
    late()
    functional.all_reduce(torch.full((40,), rank + 1.0), "sum", dist.group.WORLD).wait()
    dist.reduce_scatter_tensor(torch.zeros(30), torch.full((60,), rank + 1.0))
    dist.all_reduce(torch.ones(20).long(), op=dist.ReduceOp.BOR)
    tensors = torch.full((10,), rank + 1.0), torch.full((11,), rank + 1.0)
    crossed = [dist.all_reduce(tensors[i], group=groups[i], async_op=True)
               for i in ((1, 0) if rank else (0, 1))]
    for work in crossed:
        work.wait()
    assert tensors[0][0] == tensors[1][0] == 3
    optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    return captured(tmp_path_factory.mktemp("late"), LATE)


def calls(trace, op):
    return [trace.call(s) for s in trace.select(ops=op + "*")]


def written(trace, row):
    """The content of the one argument that a captured call wrote; None where it is not
    known."""
    item = next((t for t in row["tensors"] if t["role"] == "mutated"), None)
    if item is None:
        return None
    raw = torch.frombuffer(bytearray(trace.blob(item["blob"])), dtype=torch.uint8)
    return raw.view(getattr(torch, item["dtype"])).as_strided(item["sizes"], item["strides"], item["offset"])


@pytest.mark.parametrize("rank", [0, 1])
def test_results_are_taken_when_they_stand(late, rank):
    trace = _core.Trace(late / f"rank-{rank}")
    reduced = [written(trace, r) for r in calls(trace, "c10d::allreduce_")]
    (reduced,) = [t for t in reduced if t is not None and t.shape == (50,)]
    assert torch.equal(reduced, torch.full((50,), 3.0))
    (waited,) = calls(trace, "_c10d_functional::wait_tensor")
    assert torch.equal(written(trace, waited), torch.full((40,), 3.0))


def test_no_result_is_taken_that_may_come_later(late):
    (row,) = calls(_core.Trace(late / "rank-0"), "c10d::_reduce_scatter_base_")
    assert row["status"] == "ok" and {t["role"] for t in row["tensors"]} == {"in"}


def test_ranks_that_wait_for_each_other_go_on_without_the_result(late):
    """Each rank issues first what the other issues second: waiting for it is in vain."""
    in_vain = 0
    for rank in (0, 1):
        trace = _core.Trace(late / f"rank-{rank}")
        shapes = {(10,): rank == 1, (11,): rank == 0}  # whether it is what it issued second
        rows = [r for r in calls(trace, "c10d::allreduce_") if tuple(r["tensors"][0]["sizes"]) in shapes]
        assert len(rows) == 2
        for row in rows:
            seen = written(trace, row) is not None
            assert row["status"] == "ok" and (seen or not shapes[tuple(row["tensors"][0]["sizes"])])
            assert bool(notes(late / f"rank-{rank}", row["sequence"])) != seen
            in_vain += not seen
    assert in_vain  # the other rank may still wait when this one no longer does, and then sees


def notes(folder, sequence):
    """The remarks on a captured call of the kind that says that its end was not seen."""
    query = "SELECT text FROM note WHERE call = ? AND kind = 'unseen-end'"
    with sqlite3.connect(f"file:{folder}/trace.db?mode=ro&immutable=1", uri=True) as base:
        return base.execute(query, (sequence,)).fetchall()


@pytest.mark.parametrize("rank", [0, 1])
def test_reduction_and_group_are_said(late, rank):
    trace = _core.Trace(late / f"rank-{rank}")
    rows = {r["tensors"][0]["sizes"][0]: r for r in calls(trace, "c10d::allreduce_")}
    for size, how in ((50, "ReduceOp sum"), (20, "ReduceOp bor")):
        marks = [a["other"] for a in json.loads(rows[size]["args"])["args"] if isinstance(a, dict) and "other" in a]
        assert marks == [f"ProcessGroup 0 rank {rank} of 2", how]
    (row,) = calls(trace, "_c10d_functional::all_reduce")
    assert json.loads(row["state"]) == {"group": {"name": "0", "rank": rank, "size": 2}}


def test_a_wait_is_not_replayed(late):
    """Its result is what other ranks gave, not what a replay on its argument gives."""
    trace = _core.Trace(late / "rank-0")
    for row in calls(trace, "_c10d_functional::"):
        with pytest.raises(BadCall, match="other ranks"):
            call_from(row, trace.blob)
