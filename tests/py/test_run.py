# SPDX-License-Identifier: Apache-2.0
"""`ulpscope run`: modes around a command that is not changed. What it finds it says at the end,
of every process; how the command ends is passed on."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

TRAIN = """
import torch
w = torch.nn.Parameter(torch.ones(8))
opt = torch.optim.SGD([w], lr=0.0)
for step in range(3):
    bad = torch.sqrt(torch.full((4,), -1.0)) if step == {bad} else w
    w.sum().backward()
    opt.step()
"""
BAD, GOOD = TRAIN.format(bad=1), TRAIN.format(bad=9)


def launch(folder, *command, options=("--nan",), code=None, **environment):
    """Runs `ulpscope run --nan` there, of a script made of `code` or of a command."""
    if code is not None:
        (folder / "train.py").write_text(textwrap.dedent(code))
        command = (sys.executable, "train.py", *command)
    return subprocess.run(
        ["ulpscope", "run", *options, "--", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        env=os.environ | {"TMPDIR": str(folder)} | environment,
    )


def test_a_birth_is_said_and_found(tmp_path):
    done = launch(tmp_path, code=BAD + "print('done')")
    assert (done.returncode, done.stdout) == (1, "done\n"), done.stderr
    said = done.stderr.splitlines()
    assert said[0].startswith("NaN is born in aten::sqrt, call ") and ", step 1, forward: 4 NaN among 4" in said[0]
    assert "; args[0] is -1; at " in said[0] and said[0].endswith(", <module>"), said[0]
    assert said[1].startswith("ulpscope: 1 birth of NaN or Inf in ") and len(said) == 2
    assert not [name for name in os.listdir(tmp_path) if name.startswith("ulpscope")]


def test_an_honest_run_finds_nothing(tmp_path):
    done = launch(tmp_path, code=GOOD)
    assert done.returncode == 0 and done.stderr.startswith("ulpscope: no birth of NaN or Inf in "), done.stderr


SELECTED = (
    (("--nan", "--steps", "0,2"), "no birth"),
    (("--nan", "--steps", "1"), "1 birth"),
    (("--nan", "--ops", "mul,sqrt"), "1 birth"),
    (("--nan", "--ops", "!sqrt"), "no birth"),
    (("--nan", "--step-by", "manual", "--steps", "1"), "saw no operator call"),
    (("--nan", "--ops", "sum,nothere,!sqrt"), "no call matched 'nothere' of --ops; hence exit code 2"),
    (("--nan", "--ops", "sqrt,nothere"), "no call matched 'nothere' of --ops\n"),
    (("--check", "--ops", "sum,sqrt,nothere"), "no call matched 'nothere' of --ops; hence exit code 2"),
)


@pytest.mark.parametrize(("options", "said"), SELECTED)
def test_steps_and_operators_that_are_asked_for(tmp_path, options, said):
    assert said in launch(tmp_path, code=BAD, options=options).stderr


def test_a_planted_fault_on_the_simulated_device(tmp_path):
    code = """
    import torch, ulpscope.sim
    net = torch.nn.Linear(8, 8).to("sim:0")
    x = torch.ones(4, 8).to("sim:0")
    torch.tanh(net(x)).sum().backward()
    """
    done = launch(tmp_path, code=code, ULPSCOPE_SIM_FAULTS="aten::tanh_backward:nan")
    assert done.returncode == 1 and "NaN is born in aten::tanh_backward" in done.stderr, done.stderr


ENDINGS = (
    ("raise SystemExit(7)", 7, ""),
    ("1 / 0", 1, "ZeroDivisionError"),
    ("import os; os._exit(5)", 5, ""),
    ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", 130, "KeyboardInterrupt"),
)


@pytest.mark.parametrize(("ending", "code", "said"), ENDINGS)
def test_how_the_command_ends_is_passed_on(tmp_path, ending, code, said):
    done = launch(tmp_path, code=BAD + ending)
    assert done.returncode == code and said in done.stderr, done.stderr
    assert "NaN is born in aten::sqrt" in done.stderr and "1 birth of NaN" in done.stderr


KILLED = """
import glob, os
while not any("sqrt" in open(f, errors="replace").read() for f in glob.glob(os.environ["ULPSCOPE_RUN"] + "/told-*")):
    opt.step()
os.kill(os.getpid(), 9)
"""


def test_what_was_found_before_a_kill_is_told(tmp_path):
    done = launch(tmp_path, code=BAD + KILLED)
    assert done.returncode == 137 and "was killed by SIGKILL" in done.stderr, done.stderr
    assert "NaN is born in aten::sqrt" in done.stderr


def test_ctrl_c_reaches_the_command(tmp_path):
    (tmp_path / "train.py").write_text(BAD + "import signal\nprint('there', flush=True)\nsignal.pause()\n")
    run = subprocess.Popen(
        ["ulpscope", "run", "--nan", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout.readline() == "there\n"
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 130 and "KeyboardInterrupt" in said and "NaN is born" in said


REFUSED = (
    (("--nan",), ("true",), "started no Python"),
    (("--nan",), (sys.executable, "-c", "1"), "imported torch"),
    (("--nan",), (sys.executable, "-c", "import torch"), "saw no operator call"),
    ((), ("true",), "what is it to watch?"),
    (("--nan",), (), "no command given"),
    (("--nan", "--ops", "["), ("true",), "--ops"),
    (("--nan", "--steps", "x"), ("true",), "--steps"),
    (("--nun",), ("true",), "did you mean --nan"),
    (("--nan",), ("no-such-program",), "command not found"),
)


@pytest.mark.parametrize(("options", "command", "said"), REFUSED)
def test_trouble_is_a_sentence(tmp_path, options, command, said):
    done = launch(tmp_path, *command, options=options)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    "words, said",
    [
        (["run", "--nan"], b"to its end"),
        (["capture"], b"to record step 1"),
        (["capture", "--steps", "0-1"], b"to record steps 0-1"),
    ],
)
def test_a_terminal_is_told_what_runs(tmp_path, words, said):
    """A program may say nothing for long; files and pipes get its own words alone."""
    ours, theirs = os.openpty()
    command = ["ulpscope", *words, "--", sys.executable, "-c", "print(1)", "x" * 99]
    subprocess.run(command, cwd=tmp_path, stderr=theirs, stdout=subprocess.DEVNULL, timeout=300)
    seen = os.read(ours, 4096)
    assert seen.startswith(b"ulpscope: running " + sys.executable.encode() + b" -c print(1) ... " + said), seen
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300)
    assert b"running" not in run.stderr and run.stdout == b"1\n"


def test_a_variable_that_nobody_reads_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_ASD_CONFIG", "enable:true")
    said = "NPU_ASD_CONFIG is set, and nothing watches by it: add --watch"
    assert [said in launch(tmp_path, "true", options=o).stderr for o in (["--nan"], ["--watch"])] == [True, False]


RANKS = """
import os, torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"),
                        rank=int(os.environ["RANK"]), world_size=2)
x = torch.ones(4)
dist.all_reduce(x)
if dist.get_rank() == 1:
    torch.log(-x)
dist.destroy_process_group()
"""
BOTH = "RANK=0 WORLD_SIZE=2 {0} ranks.py & RANK=1 WORLD_SIZE=2 {0} ranks.py; first=$?; wait $! || exit 1; exit $first"


def test_ranks_are_told_apart(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    done = launch(tmp_path, "sh", "-c", BOTH.format(sys.executable))
    assert done.returncode == 1, done.stderr
    assert "\nrank 1: NaN is born in aten::log" in "\n" + done.stderr and "rank 0: NaN" not in done.stderr
    assert "1 birth of NaN or Inf in " in done.stderr and "of 2 processes" in done.stderr


CHILDREN = """
import torch
from torch.utils.data import DataLoader, Dataset

class Bad(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.log(torch.tensor([-1.0]))

def work(rank):
    torch.sqrt(torch.tensor([-1.0]))

if __name__ == "__main__":
    torch.ones(2) * 2
    for batch in DataLoader(Bad(), num_workers=1, multiprocessing_context="{how}"):
        pass
    child = torch.multiprocessing.get_context("{how}").Process(target=work, args=(1,))
    child.start()
    child.join()
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_children_are_watched_but_not_those_that_fetch_batches(tmp_path, how):
    done = launch(tmp_path, code=CHILDREN.replace("{how}", how))
    assert done.returncode == 1 and "NaN is born in aten::sqrt" in done.stderr, done.stderr
    assert "aten::log" not in done.stderr and "of 2 processes" in done.stderr


def test_what_fails_inside_is_said_and_the_command_goes_on(tmp_path):
    broken = "import ulpscope.program.capture as c\nc.Recorder.begin = lambda self, step: 1 / 0\n"
    done = launch(tmp_path, code=broken + BAD + "print('done')")
    assert (done.returncode, done.stdout) == (2, "done\n")
    assert "ulpscope run: NaN tracking failed: division by zero" in done.stderr


def test_many_births_are_cut_short(tmp_path):
    done = launch(tmp_path, code="import torch\nfor i in range(50): torch.sqrt(torch.full((4,), -1.0))")
    assert done.stderr.count("NaN is born") == 20 and "... and 30 more births of NaN or Inf" in done.stderr
