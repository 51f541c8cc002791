# SPDX-License-Identifier: Apache-2.0
"""For how long a command says nothing: runs each on a terminal of its own, as a user does, and tells the longest
silence beside how long it took and its exit code. Of a program that it starts (capture, run) the silence is that
program's. None may be above 2 s on an idle machine.

usage: bench_silence.py [COMMAND ...]   one command line of ulpscope; without, those that have to load torch
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEP = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(4):
    loss = net(torch.randn(16, 32)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
"""
COMMANDS = """
check trace --device sim:0 -o out
report out
report trace -o trace.html
coverage trace --device sim:0
pack trace -o pack
export trace -o dump
import dump -o imported
diff trace other
overflow trace
repro trace#2 --device sim:0 --faults linear:scale
fuzz --device sim:0 --cases 20 -o cases
fuzz --device sim:0 --matrix --ops mm
fuzz --device sim:0 --profile --ops mm
fuzz --device sim:0 --programs --cases 4 -o programs
bisect -o trials -- python step.py
run --nan -- python step.py
doctor
env
info
"""


def silence(words: list[str]) -> tuple[float, float, int]:
    """The longest time between outputs, or from the beginning or to the end; all of it; the exit code."""
    begin = last = time.monotonic()
    longest = 0.0
    child, terminal = pty.fork()
    if child == 0:
        os.execvp("ulpscope", ["ulpscope", *words])
    while True:
        try:
            said = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            said = b""
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        if not said:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    return longest, now - begin, code


def main() -> None:
    """Prints a line for each command."""
    if len(sys.argv) > 1:
        print("silent %.1f s at most, of %.1f s; exit code %d" % silence(sys.argv[1:]))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("step.py").write_text(STEP)
        for name in ("trace", "other"):
            command = ["ulpscope", "capture", "-o", name, "--", sys.executable, "step.py"]
            subprocess.run(command, check=True, capture_output=True)
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\nsilent s   all s  code  command")
        for line in COMMANDS.strip().splitlines():
            longest, whole, code = silence(line.split())
            print(f"{longest:8.1f} {whole:7.1f} {code:5}  ulpscope {line}", flush=True)


if __name__ == "__main__":
    main()
