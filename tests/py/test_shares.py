# SPDX-License-Identifier: Apache-2.0
"""A check that several ranks share (`torchrun -m ulpscope check`): the verdicts of one process, bit
for bit, whoever dies; and two replicas of a job are compared."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import ranks
from torch.distributed import TCPStore
from traces import TraceWriter, small_trace

from ulpscope import shares

HERE = Path(__file__).parent
N = 20  # blocks of four calls
SLOW = """import time
def device(op, args, kwargs):
    time.sleep({seconds})
    out = op(*args, **kwargs)
    return out * 1.01 if "gelu" in str(op) else out
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A folder with a trace and devices that are slow, so that all ranks get work, with one wrong
    operator; and the rows that one process gives."""
    folder = tmp_path_factory.mktemp("job")
    small_trace(folder / "trace", N)
    for name, seconds in (("slow", 0.1), ("slower", 0.5)):
        (folder / f"{name}_device.py").write_text(SLOW.format(seconds=seconds))
    done = subprocess.run(
        command("one", device="slow"), cwd=folder, env=environment(), capture_output=True, text=True, timeout=570
    )
    assert done.returncode == 1, done
    return folder


def environment(**more):
    dropped = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}
    return {
        **{k: v for k, v in os.environ.items() if k not in dropped},
        "OMP_NUM_THREADS": "1",
        "ULPSCOPE_RANK_SILENCE": "5",
        **more,
    }


def words(out, *more, device="slow", trace="trace"):
    return [
        "check",
        trace,
        "--device",
        f"python:{device}_device:device",
        "-o",
        str(out),
        "-j",
        "1",
        "--causes",
        "60",
        *more,
    ]


def command(*given, **options):
    return ["ulpscope", *words(*given, **options)]


def rows(out):
    """All that was found of each call, but for times."""
    with closing(sqlite3.connect(f"file:{out}/result.db?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        found = [
            {k: r[k] for k in r.keys() if not k.startswith("t_")}
            for r in db.execute("SELECT * FROM verdict ORDER BY call")
        ]
        metrics = [
            tuple(r)
            for r in db.execute("SELECT * FROM metric ORDER BY call, output, name")
            if not r["name"].startswith("t_")
        ]
        examples = [tuple(r) for r in db.execute("SELECT * FROM example ORDER BY call, output, rank")]
    return found, metrics, examples


def same_as_one_process(job, out):
    assert rows(job / out) == rows(job / "one")
    assert Counter(r["verdict"] for r in rows(job / out)[0]) == {"pass": 3 * N, "wrong": N}
    assert not list((job / out).glob("part-*"))


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def by_hand(job, out, n, *more, cwd=None, silence="5", **options):
    """Ranks as somebody without torchrun starts them."""
    at = port()
    return [
        subprocess.Popen(
            [sys.executable, "-m", "ulpscope", *words(out, *more, **options)],
            cwd=(cwd or {}).get(rank, job),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(
                RANK=str(rank),
                WORLD_SIZE=str(n),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(at),
                ULPSCOPE_RANK_SILENCE=silence,
            ),
        )
        for rank in range(n)
    ]


def ended(processes):
    """(exit code, stdout, stderr) of each."""
    told = []
    for process in processes:
        out, err = process.communicate(timeout=570)
        told.append((process.returncode, out, err))
    print(told)
    return told


def until(condition, processes):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, [p.poll() for p in processes]
        time.sleep(0.1)


def judged(folder):
    """Rows in results that another process writes."""
    done = subprocess.run(["ulpscope", "report", folder], capture_output=True, text=True, timeout=120)
    return 0 if done.returncode == 2 and "no result" in done.stderr else done.stdout.count("aten::")


def test_torchrun_gives_what_one_process_gives(job):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "3",
            "--max-restarts",
            "1",
            "-m",
            "ulpscope",
            *words("three"),
        ],
        cwd=job,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=570,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 1 and done.stdout.count(f"{N} of {4 * N} calls flagged") == 1  # not started again
    same_as_one_process(job, "three")
    assert "taken in: " in done.stderr and " of rank 1" in done.stderr


def test_ranks_that_are_not_at_work_leave_it_to_others(job):
    """One rank dies by kill -9 with a share in its hands; what it had is judged by others."""
    started = by_hand(job, "death", 3)
    until(lambda: (job / "death" / "part-1" / "result.db").exists(), started)
    time.sleep(1)
    started[1].kill()
    told = ended(started)
    assert told[1][0] == -signal.SIGKILL and told[2][0] == 0
    assert told[0][0] == 1 and f"{N} of {4 * N} calls flagged" in told[0][1]
    same_as_one_process(job, "death")


def test_the_death_of_rank_0_leaves_what_a_plain_check_goes_on_with(job):
    started = by_hand(job, "headless", 2)
    until(lambda: (job / "headless" / "part-1" / "result.db").exists(), started)
    time.sleep(3)
    started[0].kill()
    told = ended(started)
    assert told[1][0] not in (0, 1) and "go" in told[1][2]
    assert not (job / "headless" / "report.html").exists()
    done = subprocess.run(command("headless"), cwd=job, env=environment(), capture_output=True, text=True, timeout=570)
    assert done.returncode == 1 and "resuming: " in done.stderr, done.stderr
    same_as_one_process(job, "headless")


def test_a_rank_that_computes_with_something_else_gives_nothing(job, tmp_path):
    shutil.copytree(job / "trace", tmp_path / "trace")
    (tmp_path / "slow_device.py").write_text(SLOW.format(seconds=0.2))
    (tmp_path / "other").symlink_to(job / "other")
    told = ended(by_hand(job, "other", 2, cwd={1: tmp_path}))
    assert told[1][0] == 0 and "this rank would compute with something else than rank 0" in told[1][2]
    assert told[0][0] == 1
    same_as_one_process(job, "other")


def test_a_rank_that_does_not_see_out_gives_nothing(job, tmp_path):
    shutil.copytree(job / "trace", tmp_path / "trace")
    shutil.copy(job / "slow_device.py", tmp_path)
    told = ended(by_hand(job, "unseen", 2, cwd={1: tmp_path}))
    assert told[1][0] == 0 and "on a disk that they share" in told[1][2]
    assert told[0][0] == 1
    same_as_one_process(job, "unseen")


def test_traces_of_several_ranks_are_shared_one_after_the_other(job):
    (job / "many").mkdir()
    for rank in range(2):
        with TraceWriter(job / "many" / f"rank-{rank}") as t:
            for i in range(6):
                t.add("aten::gelu" if i == rank else "aten::relu", ranks_tensor(i))
    told = ended(by_hand(job, "many-out", 2, trace="many"))
    assert told[0][0] == 1 and told[1][0] == 0
    for rank in range(2):
        found = [r["verdict"] for r in rows(job / "many-out" / f"rank-{rank}")[0]]
        assert found == ["wrong" if i == rank else "pass" for i in range(6)]


def ranks_tensor(seed):
    import torch

    return torch.randn(8, 8, generator=torch.Generator().manual_seed(seed))


def test_ranks_keep_to_a_budget_and_the_same_command_goes_on(job):
    """40 calls, each two runs of 0.5 s: two ranks judge 36 of them in 18 s, less what workers take to begin."""
    n, options = 2 * N, {"device": "slower", "silence": "120"}
    told = ended(by_hand(job, "budget", 2, "--ops", "mm,gelu", "--budget", "18s", **options))
    assert [code for code, *_ in told] == [1, 0]
    found = rows(job / "budget")[0]
    assert 2 <= len(found) < n and len({r["op"] for r in found}) == 2  # one of each signature came first
    said = [line for line in told[0][2].splitlines() if "the budget is spent" in line]
    assert len(said) == 1 and f"{n - len(found)} of {n} calls are left out" in said[0]
    assert not list((job / "budget").glob("part-*"))
    told = ended(by_hand(job, "budget", 2, "--ops", "mm,gelu", "--budget", "10m", **options))
    assert [code for code, *_ in told] == [1, 0] and "the budget is spent" not in told[0][2]
    now = {r["call"]: r for r in rows(job / "budget")[0]}
    assert len(now) == n and all(now[r["call"]] == r for r in found)
    alone = {r["call"]: (r["verdict"], r["bits"], r["cause"]) for r in rows(job / "one")[0]}
    assert all((r["verdict"], r["bits"], r["cause"]) == alone[call] for call, r in now.items())


def test_an_old_part_of_a_finished_run_is_dropped(job):
    shutil.copytree(job / "one", job / "old")
    for number in (7, 8):
        (job / "old" / f"part-{number}").mkdir()
    shutil.copy(job / "one" / "result.db", job / "old" / "part-7")
    (job / "old" / "part-8" / "result.db").write_text("no database" * 100)
    done = subprocess.run(
        command("old", "--ops", "mm"), cwd=job, env=environment(), capture_output=True, text=True, timeout=570
    )
    assert done.returncode == 2 and "holds another run" in done.stderr  # as without parts
    assert (job / "old" / "part-7").exists()
    done = subprocess.run(command("old"), cwd=job, env=environment(), capture_output=True, text=True, timeout=570)
    assert done.returncode == 1 and "taken in" not in done.stderr and "resuming" not in done.stderr
    same_as_one_process(job, "old")


def test_a_part_of_another_run_is_left_alone_and_said(job):
    (job / "mixed").mkdir()
    subprocess.run(command("mixed/part-3", "--ops", "mm"), cwd=job, env=environment(), timeout=570, capture_output=True)
    done = subprocess.run(command("mixed"), cwd=job, env=environment(), capture_output=True, text=True, timeout=570)
    assert "mixed/part-3 is left where it is" in done.stderr and "its options" in done.stderr
    assert rows(job / "mixed") == rows(job / "one")


# ---- who has which share --------------------------------------------------------------------


class Rank(shares.ShareRanks):
    """A rank of this process, whose silence is told and not waited for."""

    def __init__(self, rank, n, at):
        environ = {
            "RANK": str(rank),
            "WORLD_SIZE": str(n),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(at),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "ULPSCOPE_RANK_SILENCE": "600",
        }
        super().__init__(environ)


@pytest.fixture
def store():
    at = port()
    yield at, TCPStore("127.0.0.1", at, is_master=True, wait_for_workers=False, timeout=datetime.timedelta(seconds=60))


def crew(store, n):
    made = [shares.Shares(Rank(rank, n, store[0])) for rank in range(n)]
    return made, [s.area("out") for s in made]


def patient(s, area, n):
    """The next answer that is not to wait."""
    end = time.monotonic() + 120
    while (answer := s.claim(area, n)) == shares.LATER:
        assert time.monotonic() < end
        time.sleep(0.05)
    return answer


def test_each_share_is_given_once(store):
    made, areas = crew(store, 4)
    had = [[] for _ in made]

    def work(rank):
        while (share := patient(made[rank], areas[rank], 500)) >= 0:
            had[rank].append(share)
            made[rank].done(areas[rank], share)
        made[rank].leave(areas[rank])

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert sorted(sum(had, [])) == list(range(500))
    for s in made:
        s.end()


def test_the_shares_of_the_dead_are_given_again_also_when_who_took_them_dies(store):
    made, areas = crew(store, 3)
    assert made[0].meet(areas[0]) == 0 and made[1].meet(areas[1]) == 0
    lost = [made[1].claim(areas[1], 6) for _ in range(3)]
    mine = [made[0].claim(areas[0], 6) for _ in range(3)]
    assert sorted(lost + mine) == list(range(6))
    assert made[2].claim(areas[2], 6) == shares.LATER
    for share in (*mine, lost[0]):
        made[0].done(areas[0], share)
    made[1].end()  # it says nothing of the two others
    again = [patient(made[2], areas[2], 6)]
    made[2].end()
    again += [patient(made[0], areas[0], 6) for _ in range(2)]
    assert set(again) == set(lost[1:])
    for share in lost[1:]:
        made[0].done(areas[0], share)
        made[0].done(areas[0], share)  # told twice, counted once
    assert patient(made[0], areas[0], 6) == shares.OVER
    made[0].end()


def test_rank_0_hears_the_end_last(store):
    made, areas = crew(store, 2)
    share = made[0].claim(areas[0], 1)
    until(lambda: not made[0].pulse.absent, [])
    made[0].done(areas[0], share)
    assert made[0].claim(areas[0], 1) == shares.LATER  # rank 1 may still write
    assert made[1].claim(areas[1], 1) == shares.OVER
    made[1].leave(areas[1])
    assert made[0].claim(areas[0], 1) == shares.OVER
    for s in made:
        s.end()


def test_who_waits_for_rank_0_is_told_when_it_is_gone(store):
    made, areas = crew(store, 2)
    made[0].end()
    assert made[1].meet(areas[1]) == shares.LOST
    assert patient(made[1], areas[1], 0) in (shares.LOST, shares.OVER)
    made[1].end()


def test_without_torchruns_variables_nothing_is_shared():
    whole = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    assert shares.found(whole) and not shares.found({**whole, "WORLD_SIZE": "1"})
    for name in whole:
        assert not shares.found({k: v for k, v in whole.items() if k != name})


# ---- replicas -------------------------------------------------------------------------------

REPLICAS = """
    import sys
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gelu(x) * (1.001 if ODD and rank == 1 else 1.0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), Odd(), torch.nn.Linear(32, 4))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(8, 16)
    for _ in range(2):
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
"""


def diff(a, b):
    done = subprocess.run(
        ["ulpscope", "diff", a, b, "--json", "--phase", "forward"], capture_output=True, text=True, timeout=300
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("odd", [False, True])
def test_replicas_under_ddp_are_compared(tmp_path, odd):
    """All ranks have the same data here: they are the same, and what one computes otherwise is named."""
    trace = ranks.captured(tmp_path / "job", f"    ODD = {odd}\n" + REPLICAS)
    code, found = diff(trace / "rank-0", trace / "rank-1")
    if not odd:
        assert code == 0 and found["same"] and found["paired"] > 5
        return
    assert code == 1 and found["first"]["op"].startswith("aten::mul") and "Odd" not in found["unpaired_a"]
    plain = subprocess.run(["ulpscope", "diff", trace / "rank-0", trace / "rank-1"], capture_output=True, text=True)
    assert plain.returncode in (0, 1) and "two ranks of one job" in plain.stdout
