# SPDX-License-Identifier: Apache-2.0
"""The last calls of `ulpscope.nan_tracker(keep_calls=N)` and `ulpscope run --nan --keep N` where a
program does not end well: ranks, threads, full disks, kills, exits."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

TIMEOUT = 300


def python(code, folder, *arguments, **options):
    """A program of its own; `code` runs as a file, so that what it spawns can import it."""
    (folder / "program.py").write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, "program.py", *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def ended(process):
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, out + err
    return out, err


def ulpscope(*words, cwd=None):
    return subprocess.run(
        ["ulpscope", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT,
    )


def births(trace):
    """Operators at which a trace shows NaN or Inf to be born."""
    done = ulpscope("overflow", trace, "--json", "--no-replay")
    assert done.returncode in (0, 1), done
    return [json.loads(line)["op"] for line in done.stdout.splitlines()]


RANKS = """
import os, torch, ulpscope
import torch.distributed as dist

def work(rank):
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=2)
    with ulpscope.nan_tracker(keep_calls=20, output="last") as nan:
        x = torch.ones(16) * 2
        dist.all_reduce(x)
        if rank == 1:
            torch.log(x - 5.0)
    dist.barrier()
    print(rank, nan.trace, nan.error, flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=2)
"""


def test_each_rank_writes_its_own(tmp_path):
    out, _ = ended(python(RANKS, tmp_path))
    said = dict(line.split(" ", 1) for line in out.splitlines())
    trace = tmp_path / "last" / "rank-1"
    assert said == {"0": "None None", "1": f"{trace} None"}
    assert os.listdir(tmp_path / "last") == ["rank-1"] and births(trace) == ["aten::log"]


THREADS = """
import threading, torch, ulpscope

def work():
    for _ in range(60):
        x = torch.ones(64) * 2
        x.add_(1.0).sum()

with ulpscope.nan_tracker(keep_calls=30, keep_bytes=1 << 16, output="last") as nan:
    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    torch.log(torch.full((4,), -1.0))
    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
assert (nan.n_births, nan.error) == (1, None), nan.error
assert nan.n_calls > 6 * 2 * 60 * 3
"""


def test_threads_write_one(tmp_path):
    ended(python(THREADS, tmp_path))
    assert births(tmp_path / "last") == ["aten::log"]
    assert ulpscope("check", tmp_path / "last", "--device", "cpu", "-o", tmp_path / "out").returncode == 0


FULL = """
import resource, signal, sys, torch, ulpscope
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # write gives an error then, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
with ulpscope.nan_tracker(keep_calls=20, output="last") as nan:
    x = torch.ones(1 << 18)
    for i in range(8):
        x = x * 2
    torch.log(-x)
    nan.step()
    torch.sqrt(-x)
assert (nan.n_births, nan.trace, nan.error) == (2, None, None), (nan.trace, nan.error)
"""


@pytest.mark.parametrize("most", [1000, 100_000, 3_000_000])
def test_a_full_disk_is_said_once_and_nothing_is_left(tmp_path, most):
    _, err = ended(python(FULL, tmp_path, str(most)))
    assert err.count("are not kept") == 1 and "the program goes on" in err, err
    assert os.listdir(tmp_path) == ["program.py"]


KILLED = """
import torch, ulpscope
with ulpscope.nan_tracker(keep_calls=40, output="last") as nan:
    x = torch.ones(1 << 19)
    for i in range(30):
        x = x * 1.5
    print("there", flush=True)
    torch.log(-x)
    while True:
        x = x * 1.0
"""


def test_what_a_kill_leaves_can_be_read_or_says_what_is_wrong(tmp_path):
    for i, wait in enumerate((0.0, 0.05, 0.2, 1.0)):
        folder = tmp_path / str(i)
        folder.mkdir()
        child = python(KILLED, folder)
        assert child.stdout.readline() == "there\n"
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=TIMEOUT)
        if not (folder / "last").exists():
            continue
        shown = ulpscope("show", folder / "last")
        assert shown.returncode in (0, 2) and (shown.stdout or shown.stderr.startswith("ulpscope"))
        checked = ulpscope("check", folder / "last", "--device", "cpu", "-o", folder / "out")
        assert checked.returncode in (0, 2), checked  # no byte is other than it was


# ending -> its exit code, whether the last calls are written
ENDINGS = {
    "1 / 0": (1, True),
    "sys.exit(3)": (3, True),
    "sys.exit('no')": (1, True),
    "os._exit(5)": (5, True),
    "os.kill(os.getpid(), signal.SIGINT)": (130, True),
    "": (0, False),
    "sys.exit()": (0, False),
    "os._exit(0)": (0, False),
    "try: sys.exit(3)\nexcept SystemExit: pass": (0, False),
    "raise SystemExit(3)": (3, True),
    "raise SystemExit('no')": (1, True),
    "class Stop(SystemExit): pass\nraise Stop(4)": (4, True),
    "exit(3)": (3, True),
    "raise SystemExit(0)": (0, False),
    "try: raise SystemExit(3)\nexcept SystemExit: pass": (0, False),
}


@pytest.mark.parametrize(("ending", "expected"), ENDINGS.items())
def test_how_a_program_ends_decides_whether_they_are_written(tmp_path, ending, expected):
    program = "import os, signal, sys, torch\nx = torch.ones(8)\nfor i in range(9): x = x * 2\n"
    (tmp_path / "program.py").write_text(program + ending)
    done = ulpscope("run", "--nan", "--keep", 4, "--trace", "last", "--", sys.executable, "program.py", cwd=tmp_path)
    code, written = expected
    assert done.returncode == code and (tmp_path / "last").exists() == written, done
    assert ("the last calls are in " in done.stderr) == written
    if written:
        assert ulpscope("show", tmp_path / "last").stdout.count("aten::mul") >= 4


def test_a_birth_is_written_from_the_command_line(tmp_path):
    (tmp_path / "program.py").write_text("import torch\nx = torch.ones(8) * 2\ntorch.log(-x)\n")
    done = ulpscope("run", "--nan", "--keep", 9, "--", sys.executable, "program.py", cwd=tmp_path)
    assert done.returncode == 1 and f"the last calls are in {tmp_path}/ulpscope-nan: ulpscope overflow" in done.stderr
    assert births(tmp_path / "ulpscope-nan") == ["aten::log"]


REFUSED = {
    ("--check", "--keep", "3"): "--keep goes with --nan",
    ("--nan", "--trace", "t"): "--trace goes with --keep",
    ("--nan", "--keep", "0"): "--keep must be 1 or more",
    ("--nan", "--keep", "x"): "--keep",
}


@pytest.mark.parametrize(("options", "said"), REFUSED.items())
def test_what_makes_no_sense_is_refused(options, said):
    done = ulpscope("run", *options, "--", "true")
    assert done.returncode == 2 and said in done.stderr, done


LEFT = """
import sys, threading, torch, ulpscope
mode = {
    "nan": lambda: ulpscope.nan_tracker(),
    "kept": lambda: ulpscope.nan_tracker(keep_calls=5),
    "capture": lambda: ulpscope.capture("trace"),
    "check": lambda: ulpscope.live_check(output="out"),
    "observe": lambda: ulpscope.observe(output="seen.jsonl"),
    "time": lambda: ulpscope.time_ops(),
}[sys.argv[1]]()

@torch.library.custom_op("left::inside", mutates_args=())
def inside(x: torch.Tensor) -> torch.Tensor:
    (x * 3.0).sum()
    mode.__exit__(None, None, None)
    return x * 2.0

mode.__enter__()
torch.ones(3) + 1.0
assert inside(torch.ones(4)).tolist() == [2.0] * 4
again = {"nan": ulpscope.nan_tracker}.get(sys.argv[1])
if again:  # the place is free again
    for _ in range(6):
        with again() as nan:
            torch.log(torch.full((2,), -1.0))
        assert nan.n_births == 1 and nan.error is None, nan.error
print("over")
"""


@pytest.mark.parametrize("mode", ["nan", "kept", "capture", "check", "observe", "time"])
def test_a_mode_that_is_left_inside_a_call_does_not_wait_for_itself(tmp_path, mode):
    out, err = ended(python(LEFT, tmp_path, mode))
    assert out == "over\n" and "Error" not in err, err
    if mode == "capture":
        assert ulpscope("show", tmp_path / "trace").returncode == 0
