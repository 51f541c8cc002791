# SPDX-License-Identifier: Apache-2.0
"""`ulpscope capture` of programs that step in no usual way: inference scripts, programs that
call ulpscope.step(), that leave early or that the recorder never gets into; and what is said."""

import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import ExitStack, closing

import pytest
import torch
from test_capture import names, read
from traces import small_trace

import ulpscope
from ulpscope import _core

INFER = """
    import torch
    net = torch.nn.Linear(4, 4)
    with torch.no_grad():
        net(torch.ones(2, 4)).exp()
"""
MANUAL = """
    import torch, ulpscope
    x = torch.ones(4)
    for i in range(2):
        x = x * 2
        ulpscope.step()
    {last}
"""
TRAIN = """
    import os, time, torch
    net = torch.nn.Linear(4, 1)
    net(torch.ones(1, 4)).tanh()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(3):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        {last}
    torch.ones(2).sin()
"""
RANKS = """
    import torch
    def work(rank):
        torch.distributed.init_process_group(
            "gloo", rank=rank, world_size=2, store=torch.distributed.FileStore("store", 2))
        torch.distributed.all_reduce(torch.ones(2) * rank)
        torch.distributed.destroy_process_group()
    if __name__ == "__main__":
        torch.multiprocessing.spawn(work, nprocs=2)
"""
# More than the window that a killed capture may lose, then the end.
BUSY = """begun = time.monotonic()
        [torch.ones(1) for _ in iter(lambda: time.monotonic() < begun + 0.6, False)]
        os.kill(os.getpid(), 9)"""
COMPILED = """
    import torch
    def f(x):
        return torch.sin(x) * 2
    f = torch.compile(f, backend="inductor")
    out = f(torch.ones(4))
    f(out)
"""
PYTHON_RANKS = """
    import os, sys, torch, ulpscope
    def work(rank):
        torch.distributed.init_process_group(
            "gloo", rank=rank, world_size=2, store=torch.distributed.FileStore("store", 2))
        with ulpscope.capture("t") as c:
            torch.distributed.all_reduce(torch.ones(2) * rank)
        assert c.error is None, c.error
    if __name__ == "__main__":
        torch.multiprocessing.spawn(work, nprocs=2)
"""


def launch(folder, *command, options=(), code=None, **environment):
    """Runs `ulpscope capture -o t` there, of a script made of `code` or of a command."""
    if code is not None:
        (folder / "program.py").write_text(textwrap.dedent(code))
    return subprocess.run(
        ["ulpscope", "capture", "-o", "t", *options, "--", *(command or [sys.executable, "program.py"])],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def calls(path):
    """(step, operator) of every call, and whether the trace is complete."""
    trace = _core.Trace(str(path))
    rows = [trace.call(s) for s in trace.select()]
    return [(r["step"], r["op"].split(".")[0].removeprefix("aten::")) for r in rows], trace.meta("complete")


WHOLE = {  # program, options, steps in the trace, words of the last line
    "inference": (INFER, ["--steps", "0"], [0], "captured step 0: "),
    "manual, its first": (MANUAL, ["--steps", "0", "--step-by", "manual"], [0], "captured step 0: "),
    "manual, to the end": (MANUAL.replace("{last}", "x.exp()"), ["--steps", "0-2"], [0, 1, 2], "captured steps 0-2: "),
}


@pytest.mark.parametrize("name", WHOLE)
def test_step_0_begins_with_the_program_and_the_last_may_end_with_it(tmp_path, name):
    code, options, steps, words = WHOLE[name]
    done = launch(tmp_path, options=options, code=code.replace("{last}", "pass"))
    assert done.returncode == 0 and words in done.stderr, done.stderr
    found, complete = calls(tmp_path / "t")
    assert sorted({step for step, _ in found}) == steps and complete == "1"
    assert found[0][1] in ("empty", "ones", "full")
    with closing(sqlite3.connect(tmp_path / "t" / "trace.db")) as db:
        assert db.execute("SELECT complete FROM step").fetchall() == [(1,)] * len(steps)
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["tensors-00000.safetensors", "trace.db"]


def test_step_0_of_a_training_is_its_first_step_alone(tmp_path):
    done = launch(tmp_path, options=["--steps", "0"], code=TRAIN.format(last="pass"))
    assert done.returncode == 0 and "captured step 0: " in done.stderr, done.stderr
    found, _ = calls(tmp_path / "t")
    assert "tanh" not in [op for _, op in found] and "addmm" in [op for _, op in found]


def test_an_empty_folder_is_used_as_it_is_and_a_trace_replaced(tmp_path):
    """-o names the current folder of the program: what it writes there must arrive."""
    (tmp_path / "t").mkdir()
    (tmp_path / "program.py").write_text(textwrap.dedent(TRAIN).replace("{last}", "open('x', 'w').close()"))
    command = ["ulpscope", "capture", "--keep-going", "-o", ".", "--", sys.executable, "../program.py"]
    done = subprocess.run(command, cwd=tmp_path / "t", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["tensors-00000.safetensors", "trace.db", "x"]
    again = launch(tmp_path, options=["--force"], code=INFER)
    assert again.returncode == 2 and "t holds x, which is no part of a trace" in again.stderr
    (tmp_path / "t" / "x").unlink()
    plain = launch(tmp_path, code=INFER)
    assert plain.returncode == 2 and "--force replaces the trace" in plain.stderr
    forced = launch(tmp_path, options=["--force", "--steps", "0"], code=INFER)
    assert forced.returncode == 0 and calls(tmp_path / "t")[0][-1] == (0, "exp"), forced.stderr


def test_of_two_captures_into_one_folder_the_second_is_told(tmp_path):
    (tmp_path / "t").mkdir()
    held = os.open(tmp_path / "t", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = launch(tmp_path, "true")
    os.close(held)
    assert done.returncode == 2 and "t: another capture is writing into it" in done.stderr
    assert (tmp_path / "t").exists() and "incomplete" not in done.stderr


def test_of_several_processes_each_rank_and_nothing_else_is_kept(tmp_path):
    done = launch(tmp_path, options=["--steps", "0"], code=RANKS)
    assert done.returncode == 0 and "on 2 ranks" in done.stderr, done.stderr
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["rank-0", "rank-1"]
    (tmp_path / "t" / "rank-1" / "notes").write_text("mine")
    mine = launch(tmp_path, options=["--steps", "0", "--force"], code=INFER)
    assert mine.returncode == 2 and "t/rank-1 holds notes, which is no part" in mine.stderr
    (tmp_path / "t" / "rank-1" / "notes").unlink()
    forced = launch(tmp_path, options=["--steps", "0", "--force"], code=INFER)
    assert forced.returncode == 0 and calls(tmp_path / "t")[1] == "1", forced.stderr
    assert not list((tmp_path / "t").glob("rank-*"))


SAID = {  # command or program, options, words of the one line
    "default": (INFER, [], "to record the whole program: --steps 0"),
    "left at once": (
        TRAIN.format(last="os._exit(0)"),
        [],
        "ended after 1 step, before step 1 ended; what was recorded is in t",
    ),
    "killed": (
        TRAIN.format(last=BUSY),
        ["--steps", "0-5"],
        "was killed by SIGKILL before steps 0-5 were captured; step 0 and what followed are in t",
    ),
    "raised": (INFER + "    1 / 0\n", ["--steps", "0"], "failed with exit code 1 before step 0"),
    "-I": ([sys.executable, "-I", "program.py"], [], "never loaded: with -I"),
    "cleared": (["env", "-i", sys.executable, "program.py"], [], "never loaded: env started no Python"),
    "ls": (["ls"], ["--steps", "0"], "never loaded: ls started no Python"),
    "no torch": ([sys.executable, "-c", "pass"], [], "imported torch"),
    "no call": ([sys.executable, "-c", "import torch"], ["--steps", "0"], "made no operator call"),
    "many steps": (
        MANUAL.format(last="pass"),
        ["--steps", "0-100000," + ",".join(map(str, range(200000, 235000, 2)))],
        "ended after 2 steps, before steps 2-100000, 200000, ",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_a_run_without_its_steps_says_why(tmp_path, name):
    program, options, words = SAID[name]
    (tmp_path / "program.py").write_text("")
    code, command = (program, ()) if isinstance(program, str) else (None, program)
    done = launch(tmp_path, *command, options=options, code=code)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert (tmp_path / "t").exists() == (" in t, marked" in done.stderr)
    if " in t, marked" in done.stderr:
        assert calls(tmp_path / "t")[1] == "0"


def test_a_whole_program_that_leaves_by_os_exit_is_kept_whole(tmp_path):
    done = launch(tmp_path, options=["--steps", "0"], code=INFER + "    import os; os._exit(3)\n")
    assert done.returncode == 2 and "captured step 0: " in done.stderr
    assert "after that" in done.stderr and "exit code 3" in done.stderr
    found, complete = calls(tmp_path / "t")
    assert complete == "1" and found[-1] == (0, "exp")


def test_compiled_regions_are_counted_and_said_everywhere(tmp_path):
    done = launch(tmp_path, options=["--steps", "0"], code=COMPILED)
    assert done.returncode == 0, done.stderr
    assert "1 compiled region ran and was not recorded; --no-compile sets" in done.stderr
    assert "sin" not in [op for _, op in calls(tmp_path / "t")[0]]
    said = subprocess.run(["ulpscope", "show", "t"], capture_output=True, text=True, cwd=tmp_path)
    assert "1 compiled region ran and was not recorded" in said.stderr
    said = subprocess.run(
        ["ulpscope", "check", "t", "--device", "cpu", "-j", "1", "--ops", "ones"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert said.returncode == 2, "what ran there nobody looked at"
    assert "1 compiled region was not recorded: what torch.compile" in " ".join(said.stdout.split())
    assert "; 1 compiled region not recorded\nnot recorded: 1 compiled region; hence exit code 2; " in said.stdout
    said = subprocess.run(
        ["ulpscope", "report", "ulpscope-out", "--allow", "unrecorded"], capture_output=True, text=True, cwd=tmp_path
    )
    assert said.returncode == 0 and said.stdout.endswith("accepted by --allow: 1 compiled region\n"), said.stdout
    plain = launch(tmp_path, options=["--steps", "0", "--force", "--no-compile"], code=COMPILED)
    assert plain.returncode == 0 and "compiled" not in plain.stderr
    assert "sin" in [op for _, op in calls(tmp_path / "t")[0]]


LARGE = """
    import torch
    net = torch.nn.Linear(300, 300)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(6):
        net(torch.randn(300, 300)).sum().backward()
        optimizer.step()
    print("went on")
"""


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_capture_stops_at_its_limit_and_stays_valid(tmp_path, keep_going):
    options = ["--steps", "1-5", "--limit", "5MB"] + ["--keep-going"] * keep_going
    done = launch(tmp_path, options=options, code=LARGE)
    assert done.returncode == 0 and ("went on" in done.stdout) == keep_going
    assert "captured steps 1-" in done.stderr and "stopped by --limit in step" in done.stderr
    assert "room for" in done.stderr
    assert sum(p.stat().st_size for p in (tmp_path / "t").glob("tensors*")) < 6e6
    trace = _core.Trace(str(tmp_path / "t"))
    assert trace.meta("stopped") == "at the limit of 5000000 bytes" and trace.meta("complete") == "0"
    for sequence in trace.select():
        assert all(t["role"] == "out" or t["blob"] for t in trace.call(sequence)["tensors"])


ON_SIM = """
    import sys, torch
    x = torch.ones(4, 4, device=sys.argv[2])
    print((x @ x).sum().item())
"""


def test_sim_is_there_where_the_command_names_it(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(ON_SIM))
    done = launch(
        tmp_path,
        sys.executable,
        "program.py",
        "--device",
        "sim:0",
        options=["--steps", "0"],
        ULPSCOPE_SIM_FAULTS="aten::mm:scale:factor=2;layer_norm:scale",
    )
    assert done.returncode == 0 and done.stdout == "128.0\n", done.stderr
    assert "met by no call: layer_norm:scale" in done.stderr and "mm:scale" not in done.stderr
    assert "mm" in [op for _, op in calls(tmp_path / "t")[0]]


def test_who_gets_sim_from_elsewhere_is_told_of_its_import(tmp_path):
    done = launch(tmp_path, code="import torch; torch.ones(2, device='si' + 'm')", options=["--steps", "0"])
    assert done.returncode == 2 and done.stderr.count("after `import ulpscope.sim`") == 1, done.stderr
    done = launch(tmp_path, code="import torch; torch.ones(2, device='so' + 'm')", options=["--steps", "0"])
    assert done.returncode == 2 and "ulpscope.sim" not in done.stderr, done.stderr


@pytest.mark.parametrize("words", [["capture", "-o", "t"], ["run", "--nan"]])
def test_a_fault_that_is_none_is_told_before_the_program_begins(tmp_path, words):
    (tmp_path / "program.py").write_text("print('begun', flush=True)\n" + textwrap.dedent(ON_SIM))
    command = ["ulpscope", *words, "--", sys.executable, "program.py", "--device", "sim:0"]
    environment = {**os.environ, "ULPSCOPE_SIM_FAULTS": "mm:bf16_outptu"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, env=environment)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    told = [line for line in done.stderr.splitlines() if "bf16_outptu" in line]
    assert len(told) == 1 and "there is no kind 'bf16_outptu'" in told[0], done.stderr
    assert not (tmp_path / "t").exists()


def test_a_run_that_capture_ends_tells_idle_faults_too(tmp_path):
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import torch, ulpscope.sim
        w = torch.nn.Parameter(torch.ones(4, device="sim:0"))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for _ in range(3):
            w.exp().sum().backward()
            optimizer.step()
    """)
    )
    done = launch(tmp_path, sys.executable, "program.py", ULPSCOPE_SIM_FAULTS="exp:scale;mmm:tf32")
    assert done.returncode == 0 and "run ended" in done.stderr, done.stderr
    assert "met by no call: mmm:tf32" in done.stderr


def test_ranks_that_capture_in_python_write_a_folder_each(tmp_path):
    (tmp_path / "job.py").write_text(textwrap.dedent(PYTHON_RANKS))
    done = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        found, complete = calls(tmp_path / "t" / f"rank-{rank}")
        assert complete == "1" and any("allreduce" in op for _, op in found)


def test_a_recorder_that_fails_never_ends_the_program(tmp_path, capsys, monkeypatch):

    with ExitStack() as stack:
        several = [stack.enter_context(ulpscope.capture(tmp_path / f"at-once-{i}")) for i in range(5)]
        torch.ones(1)
    assert [c.error is None for c in several] == [True] * 4 + [False]  # four at a time
    assert all("ones" in {op for _, op in calls(tmp_path / f"at-once-{i}")[0]} for i in range(4))
    capture = ulpscope.capture(tmp_path / "c")
    (tmp_path / "c").write_text("somebody was faster")
    with capture:
        total = torch.ones(2).sum()
    assert total == 2 and capture.counts is None and "recording failed" in capture.error
    assert "the program goes on" in capsys.readouterr().err

    class Odd(torch.nn.Module):
        def named_modules(self, *args, **kwargs):
            raise RuntimeError("not to be walked")

        def forward(self, x):
            return x.exp()

    with ulpscope.capture(tmp_path / "d") as capture:
        Odd()(torch.ones(2))
    assert capture.error is None and (0, "exp") in calls(tmp_path / "d")[0]


# Ctrl-C while Python starts: a site that takes its time, then one that is over at once. A
# worker and who compiles the glue do not get it from the terminal.
@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("program.glue", "capture -- true", "ulpscope: interrupted\n"),
        ("session.repro", "repro t#1", "ulpscope: interrupted\n"),
        ("worker", "check t --device cpu -j 1", "ulpscope check: interrupted before anything was checked\n"),
        ("worker", "pack t -o p", "ulpscope pack: interrupted; nothing was written\n"),
    ],
)
def test_an_interrupt_while_python_starts_is_not_answered_with_a_traceback(tmp_path, module, words, said):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"if 'ulpscope.{module}' in sys.orig_argv:\n"
        f"    os.kill(os.getpid() if '{module}' == 'session.repro' else os.getppid(), 2)\n"
        f"    '{module}' == 'worker' and os.kill(os.getpid(), 2)\n"
    )
    small_trace(tmp_path / "t")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    fresh = os.environ.get("ULPSCOPE_COLD", sys.executable)
    done = subprocess.run(
        ["ulpscope", *words.split()],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "ULPSCOPE_PYTHON": fresh},
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    told = [line for line in done.stderr.splitlines(True) if "workers start, which load torch" not in line]
    assert "".join(told) == said and not (tmp_path / "ulpscope-trace").exists()  # a slow machine says what it is at


def test_who_ignores_a_signal_goes_on_ignoring_it(tmp_path):
    """Under nohup a terminal that goes away must not end the run."""
    last = "os.kill(os.getppid(), signal.SIGHUP); time.sleep(0.5)"
    (tmp_path / "program.py").write_text(
        textwrap.dedent(TRAIN).format(last=last).replace("import os", "import os, signal")
    )
    done = subprocess.run(
        ["nohup", "ulpscope", "capture", "-o", "t", "--", sys.executable, "program.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0 and "captured step 1: " in done.stderr, done.stderr


def test_a_folder_whose_name_is_not_utf_8_is_no_obstacle(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(INFER))
    done = subprocess.run(
        [b"ulpscope", b"capture", b"--steps", b"0", b"-o", b"t\xff", b"--", sys.executable, "program.py"],
        capture_output=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert os.path.exists(os.fsencode(tmp_path) + b"/t\xff/trace.db")


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path):
    (tmp_path / "tmp").mkdir()
    for command in (("true",), ("./program.py",), (sys.executable, "-c", "import torch")):
        (tmp_path / "program.py").write_text("no shebang")
        (tmp_path / "program.py").chmod(0o755)
        done = launch(tmp_path, *command, TMPDIR=str(tmp_path / "tmp"))
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert not (tmp_path / "t").exists() and not list((tmp_path / "tmp").iterdir())
    assert "cannot run ./program.py: Exec format error" in launch(tmp_path, "./program.py").stderr


SPAWNED = """
import sys, torch, ulpscope
import torch.distributed as dist

def work(rank, folder):
    with ulpscope.capture(folder + "/ranks"):
        if rank < 2:  # inside: which rank this is shows late
            dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
            dist.all_reduce(torch.ones(3))
            dist.destroy_process_group()
        torch.full((1,), rank)

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=3)
"""


def test_spawned_processes_record_beside_each_other(tmp_path):
    (tmp_path / "main.py").write_text(SPAWNED)
    run = subprocess.run(
        [sys.executable, "main.py", str(tmp_path)], cwd=tmp_path, text=True, capture_output=True, timeout=120
    )
    assert run.returncode == 0 and "ulpscope" not in run.stderr, run.stderr
    folders = {p.name.split("-")[0]: 0 for p in (tmp_path / "ranks").iterdir()}
    assert sorted(folders) == ["process", "rank"]
    for rank, folder in enumerate(sorted((tmp_path / "ranks").glob("rank-*"))):
        calls = read(folder)
        assert "c10d::allreduce_" in names(calls)
        assert json.loads(calls[-1]["args"])["args"][1] == rank  # of torch.full
    assert rank == 1
