# SPDX-License-Identifier: Apache-2.0
"""Every mode where programs do what programs do: exceptions and Ctrl-C, threads, modes in modes, compiled
regions, ranks; and what goes wrong in a mode itself, which never ends the program."""

import contextlib
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
from live_modes import MODES, leave, same, train, variables

import ulpscope
from ulpscope.program import capture, live, nan, repeatable, reroute


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("name", MODES)
def test_an_exception_passes_and_nothing_is_left(name, raised, tmp_path, capfd):
    before = variables()

    class Raises(torch.nn.Module):
        def forward(self, x):
            (x * 2).sum()
            raise raised("on purpose")

    x = torch.ones(2, device="sim:0")
    mode = MODES[name].make(tmp_path)
    with pytest.raises(raised, match="on purpose"), mode:
        Raises()(x)
    leave(mode)
    assert getattr(mode, "error", None) is None and variables() == before
    assert "Traceback" not in capfd.readouterr().err
    assert (x + 1).cpu().tolist() == [2, 2]


@pytest.mark.parametrize("name", MODES)
def test_threads_at_once(name, tmp_path):
    a = torch.randn(16, 16, device="sim:0")
    right, wrong = (a @ a).cpu(), []

    def work():
        for _ in range(5):
            if not torch.allclose((a @ a).cpu(), right, rtol=1e-4, atol=1e-4):
                wrong.append(1)

    mode = MODES[name].make(tmp_path)
    with mode:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    leave(mode)
    assert not wrong and getattr(mode, "error", None) is None


@pytest.mark.parametrize("outer", MODES)
def test_modes_in_modes(outer, tmp_path):
    """One in itself, and in each of the others."""
    right = train("conv", "cpu" if MODES[outer].cpu_draws else "sim:0")
    for n, inner in enumerate([outer, "nan", "time_ops", "capture"]):
        folders = [tmp_path / f"{n}-{side}" for side in "ab"]
        for folder in folders:
            folder.mkdir()
        with MODES[outer].make(folders[0]) as one, MODES[inner].make(folders[1]) as other:
            watched = train("conv")
        leave(other), leave(one)
        assert getattr(one, "error", None) is None and getattr(other, "error", None) is None, inner
        assert same(right, watched, MODES[outer].exact and MODES[inner].exact), inner
        if MODES[outer].judges:
            break  # a process for each takes long


# ---- what goes wrong in a mode --------------------------------------------------------

CLASSES = {
    "live": live.live_check,
    "live_modules": live.live_check,
    "nan": nan.nan_tracker,
    "nan_ring": nan.nan_tracker,
    "deterministic": repeatable._Draws,
    "seed_all": repeatable.seed_all,
    "bisect_trial": reroute.fallback,
}


def class_of(name):
    return CLASSES.get(name) or getattr(ulpscope, name)


@pytest.mark.parametrize("where", ["_begin", "_end", "_close"])
@pytest.mark.parametrize("name", MODES)
def test_what_raises_inside_is_said_once_and_the_program_goes_on(name, where, tmp_path, monkeypatch, capfd):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("on purpose")

    plain, before = train("conv"), variables()
    moved = MODES[name].cpu_draws and where != "_begin"
    right = train("conv", "cpu") if moved else plain
    owner, part = (capture.Recorder, where[1:]) if name == "capture" else (class_of(name), where)
    original = getattr(owner, part)
    with monkeypatch.context() as patch:
        patch.setattr(owner, part, broken)
        mode = MODES[name].make(tmp_path)
        with mode:
            watched = train("conv")
            again = train("conv")
        leave(mode)
    inner = {"deterministic": lambda m: m.draws, "bisect_trial": lambda m: m.failed}.get(name, lambda m: m)(mode)
    said = capfd.readouterr().err
    assert said.count("on purpose") == 1 and said.count("the program goes on") == 1, said
    assert "on purpose" in inner.error and variables() == before
    if where == "_begin" or (MODES[name].exact and not (moved and where == "_end")):  # it stops in the middle
        assert same(right, watched) and same(right, again)
    with contextlib.suppress(Exception):  # what it could not do itself
        original(inner.recorder if name == "capture" else inner)
    assert same(plain, train("conv"))


# ---- other processes ------------------------------------------------------------------

COMPILED = """
    import pathlib, sys, tempfile, torch
    sys.path.insert(0, sys.argv[1])
    from live_modes import MODES, leave
    f = torch.compile(lambda x, w: torch.tanh(x @ w).sum(), backend=sys.argv[2])
    torch.manual_seed(0)
    x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)

    def run():
        w.grad = None
        loss = f(x, w)
        loss.backward()
        return loss.item(), w.grad.sum().item()

    right = run()
    for name in MODES:
        print(f"[{name}]", file=sys.stderr, flush=True)
        mode = MODES[name].make(pathlib.Path(tempfile.mkdtemp()))
        with mode:
            got = run()
        leave(mode)
        close = max(abs(a - b) for a, b in zip(got, right)) < 1e-4
        print(name, got == right if MODES[name].exact else close, getattr(mode, "error", None), flush=True)
"""


SAY_OPAQUE = (
    "live",
    "live_modules",
    "nan",
    "nan_ring",
    "fallback",
    "cast",
    "substitute",
    "time_ops",
    "observe",
    "bisect_trial",
)


def child(code, *words, folder):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(Path(__file__).parent), *words],
        text=True,
        capture_output=True,
        timeout=600,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_regions(backend, tmp_path):
    """What a compiler generated is said to be opaque; what it leaves as operators is seen."""
    done = child(COMPILED, backend, folder=tmp_path)
    assert done.stdout.splitlines() == [f"{name} True None" for name in MODES]
    said = re.split(r"^\[(\w+)\]$", done.stderr, flags=re.M)[1:]
    opaque = [name for name, text in zip(said[::2], said[1::2]) if re.search(r"\d compiled regions? ran and w", text)]
    assert opaque == (list(SAY_OPAQUE) if backend == "inductor" else []), done.stderr


RANKS = """
    import os, pathlib, sys, torch, torch.distributed as dist
    sys.path.insert(0, sys.argv[1])

    def work(rank, how):
        from live_modes import MODES, leave, same
        dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore("store", 2))

        def train():
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
            if how == "ddp":
                net = torch.nn.parallel.DistributedDataParallel(net)
            else:
                from torch.distributed.fsdp import fully_shard
                from torch.distributed.device_mesh import init_device_mesh
                fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
            opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
            losses = []
            for step in range(2):
                opt.zero_grad()
                loss = net(torch.randn(4, 8) + rank).pow(2).mean()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            return [torch.tensor(losses), torch.get_rng_state()]

        right = train()
        for name in MODES:
            folder = pathlib.Path("out") / name / (str(rank) if name in ("observe", "bisect_trial") else "")
            folder.mkdir(parents=True, exist_ok=True)
            mode = MODES[name].make(folder)
            with mode:
                got = train()
            leave(mode)
            assert getattr(mode, "error", None) is None, (name, mode.error)
            assert same(right, got, MODES[name].exact), (name, right[0], got[0])
            if name in ("live", "nan", "nan_ring"):
                found = mode.findings() if name == "live" else mode.births()
                assert found == [], (name, found)
            dist.barrier()
        dist.destroy_process_group()

    if __name__ == "__main__":
        torch.multiprocessing.spawn(work, (sys.argv[2],), nprocs=2)
"""


@pytest.mark.parametrize("how", ["ddp", "fsdp2"])
def test_two_ranks(how, tmp_path):
    (tmp_path / "ranks.py").write_text(textwrap.dedent(RANKS))
    done = subprocess.run(
        [sys.executable, "ranks.py", str(Path(__file__).parent), how],
        text=True,
        capture_output=True,
        timeout=600,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if how == "fsdp2" and "cannot import name 'fully_shard'" in done.stderr:
        pytest.skip("this torch has no FSDP2")
    assert done.returncode == 0, done.stderr
