# SPDX-License-Identifier: Apache-2.0
"""Collectives judged against what all ranks gave: three ranks over gloo, captured and checked;
honest results pass, planted mistakes are wrong, what is missing is said."""

import shutil
import sqlite3
import subprocess

import pytest
import torch
from ranks import captured

from ulpscope.judges import standards
from ulpscope.session import collectives
from ulpscope.session.collectives import on_contributions
from ulpscope.calls.ranks import OPERATORS, Missing, Ranks, RankSide

SCRIPT = """
    import torch, torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    pair, world = dist.new_group([0, 2]), dist.group.WORLD
    torch.manual_seed(rank)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.step()
    for how in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        dist.all_reduce(torch.randn(50), op=how)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        dist.all_reduce(torch.randn(500).to(dtype))
    dist.all_reduce(torch.randint(0, 99, (50,)), op=dist.ReduceOp.BOR)
    works = [dist.all_reduce(torch.randn(50), async_op=True) for _ in range(3)]
    for work in works:
        work.wait()
    dist.all_gather([torch.zeros(5, 6) for _ in range(n)], torch.randn(5, 6))
    dist.all_gather_into_tensor(torch.zeros(n * 30), torch.randn(30))
    dist.broadcast(torch.randn(8, 60).t(), 1)
    dist.reduce(torch.randn(30), 0)
    dist.scatter(torch.zeros(30), [torch.randn(30) for _ in range(n)] if rank == 0 else None)
    dist.gather(torch.randn(30), [torch.zeros(30) for _ in range(n)] if rank == 0 else None)
    dist.all_to_all_single(torch.zeros(60), torch.randn(60))
    shares = [[1, 2, 3], [4, 0, 1], [2, 2, 2]]
    dist.all_to_all_single(torch.zeros(sum(s[rank] for s in shares), 7),
                           torch.randn(sum(shares[rank]), 7),
                           [s[rank] for s in shares], shares[rank])
    for _ in range(2):
        functional.all_reduce(torch.randn(40), "sum", world).wait()
    functional.all_gather_tensor(torch.randn(40), 0, world).wait()
    functional.reduce_scatter_tensor(torch.randn(60), "sum", 0, world).wait()
    out = torch.zeros(20)
    dist.reduce_scatter_tensor(out, torch.randn(60))
    out * 2
    dist.reduce_scatter_tensor(out := torch.zeros(20), torch.randn(60), op=dist.ReduceOp.AVG)
    out * 2
    if rank != 1:
        dist.all_reduce(torch.randn(50), group=pair)
        dist.broadcast(torch.randn(50), 2, group=pair)
    # What the planted mistake takes for the sum of all: rank 1 is not in it.
    x = torch.randn(70)
    dist.all_reduce(x.clone())
    if rank != 1:
        dist.all_reduce(x, group=pair)
    optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return captured(tmp_path_factory.mktemp("judged"), SCRIPT, 3)


def judged(path, rule=None):
    """(row, verdict) of every collective in the trace of a rank that has a result."""
    ranks = Ranks(path)
    trace = ranks.indexes[0].trace
    rows = [trace.call(s) for s in trace.select()]
    rows = [r for r in rows if r["op"].split(".")[0] in OPERATORS]
    return [(row, collectives.judge(ranks, row, rule=rule)[1]) for row in rows]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_honest_ranks_pass(traces, rank):
    found = judged(traces / f"rank-{rank}")
    assert len(found) == (25 if rank == 1 else 28)
    for row, verdict in found:
        to_root = row["op"].startswith(("c10d::reduce_.", "c10d::gather_.")) or row["op"] in (
            "c10d::reduce_",
            "c10d::gather_",
        )
        want = "undefined" if to_root and rank != 0 else "pass"
        assert verdict.verdict == want, (row["op"], verdict.reason, verdict.worst, verdict.cause)
        assert want != "pass" or "judged as captured" in verdict.notes[-1]


def with_result_of(traces, folder, rank, sizes, source):
    """A copy of the traces in which the first all_reduce of `sizes` on a rank left what
    `source(base, call)`, the id of a tensor, is."""
    shutil.copytree(traces, folder)
    base = sqlite3.connect(folder / f"rank-{rank}" / "trace.db")
    query = (
        "SELECT a.call, a.tensor FROM arg a JOIN tensor t ON t.id = a.tensor JOIN call c ON "
        "c.sequence = a.call JOIN op o ON o.id = c.op WHERE a.role = 'mutated' AND "
        "o.name LIKE 'c10d::allreduce_%' AND t.sizes = ? ORDER BY a.call"
    )
    (call, _), *others = base.execute(query, (sizes,)).fetchall()
    with base:
        base.execute(
            "UPDATE arg SET tensor = ? WHERE call = ? AND role = 'mutated'", (source(base, call, others), call)
        )
    base.close()
    return folder / f"rank-{rank}", call


def test_a_result_without_one_rank_is_wrong(traces, tmp_path):
    path, call = with_result_of(traces, tmp_path / "t", 0, "[70]", lambda b, c, o: o[0][1])
    bad = [(r, v) for r, v in judged(path) if v.verdict not in ("pass", "undefined")]
    ((row, verdict),) = bad
    assert row["sequence"] == call and verdict.verdict == "wrong"
    assert verdict.cause == "dropped contribution: that of rank 1 is missing"


def test_a_stale_result_is_wrong_also_in_the_whole_check(traces, tmp_path):
    stale = "SELECT tensor FROM arg WHERE call = ? AND role = 'in'"
    path, _ = with_result_of(traces, tmp_path / "t", 2, "[50]", lambda b, c, o: b.execute(stale, (c,)).fetchone()[0])
    done = subprocess.run(
        [
            "ulpscope",
            "check",
            str(path),
            "--device",
            "sim:0",
            "-o",
            str(tmp_path / "out"),
            "-j",
            "1",
            "--ops",
            "*c10d*::*",
            "--compare-standards",
            "--self-test",
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    said = " ".join(done.stdout.split())
    assert done.returncode == 1 and "1 wrong" in said, done.stderr
    assert "checked 28 calls" in said  # waits and barriers are none of them
    assert "stale: it is what rank 2 gave, nothing was added" in said
    assert "judged as captured, nothing is planted" in said
    assert "no other standard is compared" in (tmp_path / "out" / "result.csv").read_text()


def test_missing_ranks_are_named(traces, tmp_path):
    for rank in (0, 1):
        shutil.copytree(traces / f"rank-{rank}", tmp_path / "t" / f"rank-{rank}")
    for row, verdict in judged(tmp_path / "t" / "rank-0"):
        pair = "of its group of 2" in verdict.reason
        if row["op"].startswith("c10d::scatter_") or row["tensors"][0]["sizes"] == (60, 8):
            assert verdict.verdict == "pass"  # the root's trace is enough
        else:
            assert verdict.verdict == "unjudged" and "rank-N" in verdict.reason
            assert f"what rank {1 if pair else 2} of its group" in verdict.reason


def test_another_standard_judges_by_its_own_rule(traces):
    rule = standards.parsed("torch-close")
    said = {
        row["tensors"][0]["dtype"]: verdict
        for row, verdict in judged(traces / "rank-0", rule)
        if "allreduce" in row["op"]
    }
    assert said["float32"].verdict == "pass" and said["float32"].opinions
    # An honest narrow sum, which that rule does not know.
    assert said["bfloat16"].verdict == "wrong" and "torch-close" in said["bfloat16"].reason


# ---- planted mistakes, on sides made here --------------------------------------------


def tensors(n, *sizes, dtype=torch.float32):
    made = torch.Generator().manual_seed(n)
    return [torch.randn(sizes or (256,), generator=made).to(dtype) for _ in range(n)]


def verdict(op, given, got, rank=0, how="", root=None, splits=None):
    """The verdict on what `rank` got where rank r gave the list of tensors given[r]."""
    sides = {r: RankSide(op, "0", r, len(given), how, root, list(g), splits and splits[r]) for r, g in enumerate(given)}
    return on_contributions(sides[rank], sides, [got])[1]


def chain(terms, dtype=None):
    """A ring in a dtype: rounded at every rank."""
    total = terms[0].to(dtype or terms[0].dtype)
    for t in terms[1:]:
        total = total + t.to(total.dtype)
    return total.to(terms[0].dtype)


def tree(terms):
    half = len(terms) // 2
    return terms[0] if not half else tree(terms[:half]) + tree(terms[half:])


DTYPES = torch.float64, torch.float32, torch.bfloat16, torch.float16
REDUCE = "c10d::allreduce_"


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 32])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_order_of_adding_passes(n, dtype):
    terms = tensors(n, dtype=dtype)
    wide = sum(t.double() for t in terms)
    for got in (chain(terms), chain(terms[::-1]), tree(terms), wide.to(dtype)):
        assert verdict(REDUCE, [[t] for t in terms], got, how="sum").verdict == "pass"
    scaled = [t / n for t in terms]
    for got in (chain(terms) / n, tree(scaled)):
        assert verdict(REDUCE, [[t] for t in terms], got, how="avg").verdict == "pass"


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "how, plant, cause",
    [
        ("sum", lambda t: chain(t[:-1]), "dropped|stale"),
        ("sum", lambda t: chain([*t, t[1]]), "duplicate contribution: that of rank 1"),
        ("sum", lambda t: chain([t[0], t[0], *t[2:]]), "mixed-up contribution: rank 0's stands for rank 1's"),
        ("sum", lambda t: chain(t) / len(t), "average instead of sum"),
        ("avg", lambda t: chain(t) / len(t) / len(t), "twice"),
        ("avg", chain, "sum instead of average|multiplied"),
        ("sum", lambda t: t[0].clone(), "stale|dropped"),
        ("sum", lambda t: torch.cat([chain(t)[:-8], t[0][-8:]]), "stale|dropped"),
    ],
)
def test_a_wrong_reduction_is_wrong(n, dtype, how, plant, cause):
    terms = tensors(n, dtype=dtype)
    found = verdict(REDUCE, [[t] for t in terms], plant(terms), how=how)
    assert found.verdict == "wrong"
    assert any(c in found.cause for c in cause.split("|")), found.cause


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize(
    "dtype, narrow", [(torch.float32, torch.bfloat16), (torch.float32, torch.float16), (torch.float16, torch.bfloat16)]
)
def test_adding_in_a_narrower_dtype_is_seen(n, dtype, narrow):
    terms = tensors(n, dtype=dtype)
    found = verdict(REDUCE, [[t] for t in terms], chain(terms, narrow), how="sum")
    assert found.verdict in ("reduced", "wrong")


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_damaged_element_is_wrong(dtype):
    terms = tensors(5, dtype=dtype)
    got = chain(terms)
    got[17] += 2.0**-3 * max(1.0, float(got[17].abs()))
    assert verdict(REDUCE, [[t] for t in terms], got, how="sum").verdict == "wrong"


def test_what_overflows_on_some_way_may_overflow():
    big = torch.full((64,), 6e4, dtype=torch.float16)
    given = [[big], [big], [-big]]
    assert verdict(REDUCE, given, big.clone(), how="sum").verdict == "pass"
    assert verdict(REDUCE, given, chain([big, big, -big]), how="sum").verdict == "pass"


INTS = [torch.arange(-30, 34), torch.arange(64) * 7 % 50, torch.full((64,), 2)]


@pytest.mark.parametrize(
    "how, got, want",
    [
        ("sum", sum(INTS), "pass"),
        ("sum", sum(INTS) + (torch.arange(64) == 9), "wrong"),
        ("bor", INTS[0] | INTS[1] | INTS[2], "pass"),
        ("bor", sum(INTS), "wrong"),
        ("max", torch.stack(INTS).amax(0), "pass"),
        ("max", INTS[1], "wrong"),
        ("avg", sum(INTS) // 3, "pass"),
        ("avg", (sum(INTS) / 3).trunc().long(), "pass"),
        ("avg", sum(INTS) // 3 + 2, "wrong"),
        ("avg", sum(INTS), "wrong"),
    ],
)
def test_integers_are_exact(how, got, want):
    assert verdict(REDUCE, [[t] for t in INTS], got, how=how).verdict == want


def test_extremes_are_exact_but_for_nan():
    a, b = tensors(2)
    a[3] = float("nan")
    for got in (torch.maximum(a, b), torch.where(a.isnan(), b, torch.maximum(a, b))):
        found = verdict(REDUCE, [[a], [b]], got, how="max")
        assert found.verdict == "pass" and "NaN" in found.notes[0]
    got = torch.maximum(a, b)
    got[9] = got[9].bfloat16().float()
    assert verdict(REDUCE, [[a], [b]], got, how="max").verdict == "wrong"


def test_nan_goes_through_a_sum():
    a, b = tensors(2)
    a[3] = float("nan")
    assert verdict(REDUCE, [[a], [b]], a + b, how="sum").verdict == "pass"
    swallowed = (a + b).nan_to_num(0.0)
    assert verdict(REDUCE, [[a], [b]], swallowed, how="sum").verdict == "nonfinite"


A, B = tensors(2, 6, 4)
NEAR = torch.nextafter(A, B)
LEFT, RIGHT = [A[:2], A[2:]], [B[:5], B[5:]]


@pytest.mark.parametrize(
    "op, given, got, want, options",
    [
        ("c10d::broadcast_", [[A], [B]], A, "pass", dict(rank=1, root=0)),
        ("c10d::broadcast_", [[A], [B]], NEAR, "wrong", dict(rank=1, root=0)),
        ("c10d::broadcast_", [[A], [B]], B, "wrong", dict(rank=1, root=0)),
        ("c10d::_allgather_base_", [[A], [B]], torch.cat([A, B]), "pass", {}),
        ("c10d::_allgather_base_", [[A], [B]], torch.cat([B, A]), "wrong", {}),
        ("c10d::_allgather_base_", [[A], [B]], torch.cat([A, torch.zeros(6, 4)]), "wrong", {}),
        ("c10d::allgather_", [[A], [B[:2]]], torch.cat([A, B[:2]]), "pass", {}),
        ("c10d::scatter_", [LEFT, []], A[2:], "pass", dict(rank=1, root=0)),
        ("c10d::scatter_", [[A, B], []], A, "wrong", dict(rank=1, root=0)),
        ("c10d::alltoall_", [LEFT, RIGHT], torch.cat([A[2:], B[5:]]), "pass", dict(rank=1)),
        ("c10d::alltoall_", [LEFT, RIGHT], torch.cat([B[5:], A[2:]]), "wrong", dict(rank=1)),
        ("c10d::alltoall_base_", [[A], [B]], torch.cat([A[3:], B[3:]]), "pass", dict(rank=1)),
        ("c10d::alltoall_base_", [[A], [B]], torch.cat([A[2:], B[5:]]), "pass", dict(rank=1, splits=[[2, 4], [5, 1]])),
        ("c10d::alltoall_base_", [[A], [B]], torch.cat([A[:3], B[:3]]), "wrong", dict(rank=1)),
        ("c10d::reduce_scatter_", [[A, B], [B, A]], B + A, "pass", dict(rank=1, how="sum")),
        ("c10d::_reduce_scatter_base_", [[A], [B]], (A + B)[3:], "pass", dict(rank=1, how="sum")),
        ("c10d::_reduce_scatter_base_", [[A], [B]], (A + B)[:3], "wrong", dict(rank=1, how="sum")),
    ],
)
def test_what_is_moved_is_moved_bit_by_bit(op, given, got, want, options):
    assert verdict(op, given, got, **options).verdict == want


def test_a_copied_nan_keeps_its_bits():
    nan = torch.tensor([0x7FC00001, 0x7FC00002], dtype=torch.int32).view(torch.float32)
    given = [[nan], [torch.zeros(2)]]
    assert verdict("c10d::broadcast_", given, nan, rank=1, root=0).verdict == "pass"
    other = torch.full((2,), float("nan"))
    assert verdict("c10d::broadcast_", given, other, rank=1, root=0).verdict == "wrong"


def test_what_cannot_be_judged_says_why():
    with pytest.raises(Missing, match="premul_sum"):
        verdict(REDUCE, [[A], [B]], A, how="premul_sum")
    with pytest.raises(Missing, match="lie differently"):
        verdict(REDUCE, [[A], [B.t().contiguous().t()]], A, how="sum")
    with pytest.raises(Missing, match="do not fit"):
        verdict(REDUCE, [[A], [B[:3]]], A, how="sum")


def test_ranks_that_ask_for_different_things_get_no_promise():
    own = RankSide(REDUCE, "0", 0, 2, "sum", given=[A])
    other = RankSide(REDUCE, "0", 1, 2, "max", given=[B])
    said = collectives._disagreement(own, {0: own, 1: other})
    assert said.verdict == "undefined" and "max on rank 1, sum here" in said.reason
