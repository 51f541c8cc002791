# SPDX-License-Identifier: Apache-2.0
"""What one row of `./run matrix` does, by its own Python with the wheel installed and nothing of
this tree but its examples: `row.py EXAMPLES OUT` writes OUT/row.json, {thing: [state, sentence,
seconds]}. A thing is done in a process of its own, so that a crash is its own. `row.py EXAMPLES OUT THING...` does
these anew, and keeps what the file says of the others."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

LIMIT_S = 900
COMPILING_S = 5400  # a minute of an idle machine, an hour of one that many use

STEP = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
def run_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), torch.arange(len(x), device=x.device) % 8)
    loss.backward()
    optimizer.step()
    return loss
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = torch.nn.Embedding(32, 24), torch.nn.LayerNorm(24)
        self.up, self.down = torch.nn.Linear(24, 48), torch.nn.Linear(48, 8)
    def forward(self, x):
        h = self.norm(self.embed(x))
        a = F.scaled_dot_product_attention(h, h, h)
        return self.down(F.gelu(self.up(h + a))).mean(1)
x = torch.randint(0, 32, (16, 12))
"""
SCRIPT = (
    STEP
    + """
class Pictures(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.near, self.far = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, stride=2, groups=2)
        self.norm, self.groups, self.head = torch.nn.BatchNorm2d(8), torch.nn.GroupNorm(2, 8), torch.nn.Linear(8, 8)
    def forward(self, x):
        h = F.max_pool2d(F.relu(self.norm(self.near(x))), 2)
        return self.head(F.adaptive_avg_pool2d(F.silu(self.groups(self.far(h))), 1).flatten(1))
class Sequence(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = torch.nn.Embedding(32, 16), torch.nn.LSTM(16, 16, batch_first=True)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = torch.nn.Linear(16, 8)
    def forward(self, x): return self.head(self.layer(self.lstm(self.embed(x))[0]).mean(1))
class Narrow(Net):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16): y = super().forward(x)
        return y.float()
models = [(Net(), x), (Pictures(), torch.randn(16, 3, 12, 12)), (Sequence(), x), (Narrow(), x)]
optimizer = torch.optim.AdamW([p for model, _ in models for p in model.parameters()], lr=1e-2)
def all_of_them(given): return sum(model(x) for model, x in models)
for _ in range(3): print(float(run_step(all_of_them, optimizer, x).detach()))
"""
)
# The CPU's own library computes an LSTM; a device has another operator for its backward.
LSTM = ["--allow", "unsupported:aten::mkldnn_rnn_layer_backward"]
# What a torch computes wrong itself, and a check tells of rightly: (the first without it, words of --allow).
OWN = [((2, 7), "reduced:aten::_softmax_backward_data")]  # examples/found/torch_softmax_backward_low_precision.py
SIM_FAULT = "aten::gelu:bf16_intermediates"


def allowed(torch_version: str) -> list[str]:
    """Options of a check that excuse what this torch computes wrong itself."""
    here = tuple(map(int, re.findall(r"\d+", torch_version)[:2]))
    return [word for first, what in OWN if here < first for word in ("--allow", what)]


LIVE = (
    STEP
    + """
import ulpscope, ulpscope.sim
for faults, wanted in ((None, False), ({fault!r}, True)):
    planted = ulpscope.sim.plant(faults) if faults else None
    model = Net().to("sim")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with ulpscope.live_check(distinct=True) as live:
        for _ in range(2):
            run_step(model, optimizer, x.to("sim"))
            ulpscope.step()
    found = {{f.op.split(".")[0] for f in live.findings()}}
    assert live.judged > 10, live.summary()
    assert ("aten::gelu" in found) == wanted, found
    assert not found - {{"aten::gelu"}}, found
    if planted: planted.remove()
print(live.judged, "calls judged")
""".replace("{fault!r}", repr(SIM_FAULT))
)
LIVE = LIVE.replace("{{", "{").replace("}}", "}")

NAN = (
    STEP
    + """
import ulpscope
model = Net()
with ulpscope.nan_tracker() as nan:
    assert torch.isfinite(model(x)).all()
assert not nan.births(), nan.births()
with ulpscope.nan_tracker() as nan:
    y = torch.log(model(x).abs() - 1e9)
births = nan.births()
assert births and births[0].op.startswith("aten::log"), births
print(births[0].sentence)
"""
)

WATCH = (
    STEP
    + """
import ulpscope
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
with ulpscope.watch(model, optimizer) as watch:
    for _ in range(6): run_step(model, optimizer, x)
print(watch.summary() if hasattr(watch, "summary") else "watched")
"""
)

KERNEL = (
    STEP
    + """
import ulpscope
found = ulpscope.check_call(F.gelu, (torch.randn(64, 64),))
assert found.passed, found.sentence
def wrong(x): return F.gelu(x.bfloat16()).float()
found = ulpscope.check_call(wrong, (torch.randn(64, 64),), reference=F.gelu)
assert not found.passed
print(found.sentence)
"""
)


def program() -> str:
    """The program beside this Python, wherever pip put it."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), Path("/usr/local/bin")):
        if (folder / "ulpscope").exists():
            return str(folder / "ulpscope")
    return "ulpscope"


def last(text: str) -> str:
    """The line that says most of what a program left."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", x).strip() for x in text.splitlines()]
    lines = [x for x in lines if x and not x.startswith("ulpscope: compiling")]
    told = [x for x in lines if re.search(r"Error|error:|cannot|does not|failed|calls flagged:", x)]
    return (told or lines or ["it says nothing"])[-1][:300]


class Row:
    def __init__(self, examples: Path, out: Path, only: Sequence[str] = ()):
        self.examples, self.out, self.found, self.only = examples, out, {}, only
        if only and (out / "row.json").exists():
            self.found = json.loads((out / "row.json").read_text())

    def run(self, name, command, codes=(0,), limit=LIMIT_S):
        if self.only and name not in self.only:
            return ""
        began = time.monotonic()
        try:
            done = subprocess.run(
                [str(c) for c in command],
                capture_output=True,
                text=True,
                timeout=limit,
                cwd=str(self.out),
                errors="replace",
            )
            text, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            text, code = f"no end within {limit} s\n{late.stdout}", -1
        (self.out / f"{name.replace(' ', '-')}.log").write_text(text)
        state = "works" if code in codes else "does not"
        self.found[name] = [state, last(text) if code else "", round(time.monotonic() - began)]
        print(f"{state:9} {name} ({self.found[name][2]} s) {self.found[name][1]}", flush=True)
        (self.out / "row.json").write_text(json.dumps(self.found, indent=1))
        return text

    def code(self, name, text):
        path = self.out / f"{name.replace(' ', '_')}.py"
        path.write_text(text)
        return self.run(name, [sys.executable, path])

    def compat(self):
        """The tests of what stands in for other tools, which lie beside this file."""
        tests = Path(__file__).resolve().parent / "tests"
        if not tests.is_dir() or importlib.util.find_spec("pytest") is None:
            print("not done  compat (it needs pytest and the tests beside this file)", flush=True)
            return
        tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
        self.run("compat", tested, limit=COMPILING_S)  # of kernels

    def all(self):
        tool = program()
        self.run("version", [tool, "--version"])
        told = self.run("info", [tool, "info"])
        if told and " avx2 " in Path("/proc/cpuinfo").read_text() and re.search(r"^isa +scalar", told, re.M):
            self.found["info"] = ["does not", "the processor has AVX2, and the library takes scalar kernels", 0]
        self.run("glue", [sys.executable, "-m", "ulpscope.program.glue"], limit=COMPILING_S)
        self.run("doctor", [tool, "doctor"], codes=(0, 1))
        own = allowed(self.found["torch"])
        (self.out / "step.py").write_text(SCRIPT)
        self.run("capture", [tool, "capture", "-o", "trace", "--", sys.executable, "step.py"])
        self.run("check", [tool, "check", "trace", "--device", "cpu", *own, "-o", "checked"])
        self.run("check sim", [tool, "check", "trace", "--device", "sim:0", *LSTM, *own, "-o", "checked-sim"])
        self.run(
            "fault found",
            [tool, "check", "trace", "--device", "sim:0", "--faults", SIM_FAULT, *own, "-o", "checked-fault"],
            codes=(1,),
        )
        self.code("kernel", KERNEL)
        self.code("live check", LIVE)
        self.code("nan tracker", NAN)
        self.code("watch", WATCH)
        self.run(
            "fuzz",
            [
                tool,
                "fuzz",
                "--trace",
                "trace",
                "--device",
                "cpu",
                "--cases",
                "200",
                "--allow",
                "unjudged",
                "-o",
                "fuzzed",
            ],
            codes=(0, 1),
        )  # what torch's own kernels lose there is told below the table; some drawn inputs nobody can judge
        self.compat()
        self.run("demo", [sys.executable, self.examples / "demo.py", "-o", self.out / "demo"])


def main() -> int:
    row = Row(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:])
    row.out.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = f"{Path(program()).parent}:{os.environ['PATH']}"
    os.environ.setdefault("ULPSCOPE_PYTHON", sys.executable)
    facts = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
    )
    row.found["python"], row.found["torch"] = platform.python_version(), facts.stdout.strip()
    row.all()
    return 0 if all(x[0] == "works" for x in row.found.values() if isinstance(x, list)) else 1


if __name__ == "__main__":
    sys.exit(main())
