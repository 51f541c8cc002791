# SPDX-License-Identifier: Apache-2.0
"""What the simulated device costs, beside the CPU in the same run: a GPT step in each guard, a four-element
add (also beside a device that is torch's own cpu_fallback), copies beside memcpy, two streams beside the longer
of them, native kernels beside torch's, the profiler, the memory of many tensors of one element and of a GPT step,
and the import.

    bench_sim.py [--rounds N] [--only WORD]

What is compared takes turns, and the median of the rounds counts, in processor time of the process; the least of wall
time where streams run at once."""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import ulpscope.sim as sim

sys.path.insert(0, str(Path(__file__).parent))
import model  # noqa: E402

GUARDS = ("strict", "pages", "open")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="only the rows that have this word")
    return parser.parse_args()


def medians(works: dict[str, Callable[[], object]], rounds: int, prepare: Callable[[str], None]) -> dict[str, float]:
    """Seconds of each, in turns; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for i in range(rounds + 1):
        for name, work in works.items():
            prepare(name)
            start = time.process_time()
            work()
            sim.synchronize()  # what it launched is its own
            if i > 0:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def choose_guard(name: str) -> None:
    if name in GUARDS:
        sim.set_guard(name)


def told(what: str, seconds: dict[str, float], peer: str, unit: float, wanted: dict[str, float]) -> None:
    for name, s in seconds.items():
        ratio = s / seconds[peer]
        goal = f"  (wanted: {wanted[name]:g})" if name in wanted else ""
        print(f"{what:<30}{name:<10}{s / unit:>12.2f}  {ratio:>8.2f}x{goal}")


def gpt(rounds: int) -> None:
    works = {"cpu": model.TrainingStep()}
    for name in GUARDS:  # blocks keep the guard that they were made with
        sim.set_guard(name)
        works[name] = model.TrainingStep(device="sim")
    seconds = medians(works, rounds, choose_guard)
    told("GPT step, ms", seconds, "cpu", 1e-3, {"strict": 1.6, "pages": 1.15, "open": 1.05})


def add(rounds: int) -> None:
    blocking = sim.launch_blocking()
    for in_step in (True, False):
        sim.set_launch_blocking(in_step)
        adds_of_four(rounds, "in step" if in_step else "later")
    sim.set_launch_blocking(blocking)


def adds_of_four(rounds: int, when: str, n: int = 3000) -> None:
    def adds(device):
        x, y = torch.ones(4, device=device), torch.ones(4, device=device)

        def work():
            for _ in range(n):
                x + y

        return work

    works = {"cpu": adds("cpu")}
    for name in GUARDS:
        sim.set_guard(name)
        works[name] = adds("sim")
    told(f"add of 4, {when}, us", medians(works, rounds, choose_guard), "cpu", n * 1e-6, {"pages": 8, "open": 4})


PEER = """
import statistics, sys, time, types, torch
torch.set_num_threads(1)
torch.ops.load_library(sys.argv[1])
module = types.ModuleType("torch.privateuseone")
module._lazy_init, module.is_available, module.current_device = (lambda: None), (lambda: True), (lambda: 0)
torch._register_device_module("privateuseone", module)
x, y = (torch.ones(4).to("privateuseone") for _ in range(2))
times = []
for i in range(int(sys.argv[2]) + 1):
    start = time.process_time()
    for _ in range(3000):
        x + y
    times.append((time.process_time() - start) / 3000)
print(statistics.median(times[1:]))
"""


def compiled_peer() -> Path:
    """A device whose operators run through torch's own cpu_fallback: sim_peer.cpp, compiled once for this torch."""
    from torch.utils import cpp_extension

    build = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).parents[1] / "build"))
    library = build / "peer" / f"sim_peer-{torch.__version__}.so"
    if not library.exists():
        print("first use: compiling bench/sim_peer.cpp, about a minute", file=sys.stderr, flush=True)
        library.parent.mkdir(parents=True, exist_ok=True)
        torch_lib = Path(torch.__file__).parent / "lib"
        subprocess.run(
            [
                *("c++", "-O2", "-std=c++20", "-shared", "-fPIC", "-w"),
                *(f"-I{folder}" for folder in cpp_extension.include_paths()),
                *(str(Path(__file__).with_name("sim_peer.cpp")), "-o", str(library)),
                *(f"-L{torch_lib}", f"-Wl,-rpath,{torch_lib}", "-lc10", "-ltorch_cpu"),
            ],
            check=True,
        )
    return library


def beside_peer(rounds: int, n: int = 3000) -> None:
    """In a process of its own: a process has one such device."""
    peer = [sys.executable, "-c", PEER, str(compiled_peer()), str(rounds)]
    bare = {key: value for key, value in os.environ.items() if key != "ULPSCOPE_SIM"}
    seconds = {"peer": float(subprocess.run(peer, env=bare, check=True, capture_output=True, text=True).stdout)}
    blocking = sim.launch_blocking()
    sim.set_launch_blocking(True)
    for name in ("pages", "open"):
        sim.set_guard(name)
        x, y = torch.ones(4, device="sim"), torch.ones(4, device="sim")
        work = {name: lambda x=x, y=y: [x + y for _ in range(n)]}
        seconds[name] = medians(work, rounds, choose_guard)[name] / n
    sim.set_launch_blocking(blocking)
    told("add of 4, peer, us", seconds, "peer", 1e-6, {"pages": 0.5, "open": 0.5})


def copies(rounds: int, size: int = 64 << 20) -> None:
    host, other = torch.empty(size, dtype=torch.uint8).fill_(1), torch.empty(size, dtype=torch.uint8).fill_(2)
    sim.set_guard("pages")
    there, more = host.to("sim"), other.to("sim")
    works = {
        "memcpy": lambda: ctypes.memmove(other.data_ptr(), host.data_ptr(), size),
        "to sim": lambda: there.copy_(host),
        "from sim": lambda: other.copy_(there),
        "within": lambda: more.copy_(there),
    }
    told(
        "copy of 64 MiB, ms",
        medians(works, rounds, choose_guard),
        "memcpy",
        1e-3,
        {name: 1.25 for name in works if name != "memcpy"},
    )


def streams(rounds: int, size: int = 64 << 20, width: int = 1100) -> None:
    """What is copied and what is computed at once, in wall time: two streams are to overlap."""
    sim.set_guard("pages")
    sim.set_launch_blocking(False)
    pinned = torch.empty(size, dtype=torch.uint8).fill_(1).pin_memory()
    there, a = torch.empty(size, dtype=torch.uint8, device="sim"), torch.randn(width, width).to("sim")
    aside, batch, x = sim.Stream(), torch.randn(512, 512).pin_memory(), torch.randn(512, 512).to("sim")

    def copy():
        with sim.stream(aside):
            there.copy_(pinned, non_blocking=True)

    def fetch():
        with sim.stream(aside):
            return [batch.to("sim", non_blocking=True) for _ in range(24)]

    def work():
        for _ in range(12):
            torch.mm(x, x)

    pairs = {"copy": (copy, lambda: torch.mm(a, a)), "prefetch": (fetch, work)}
    for name, (one, other) in pairs.items():
        works = {"one": one, "other": other, "both": lambda one=one, other=other: (one(), other())}
        best = dict.fromkeys(works, float("inf"))
        for _ in range(rounds + 1):
            for key, act in works.items():
                start = time.perf_counter()
                act()
                sim.synchronize()
                best[key] = min(best[key], time.perf_counter() - start)
        longer = max(best["one"], best["other"])
        told("two streams, ms", {name: best["both"], "longer": longer}, "longer", 1e-3, {name: 1.25})


def acts() -> dict[str, Callable[[], object]]:
    """Calls of the operators that the device has kernels of its own for."""
    f, on = torch.nn.functional, torch.device("sim")
    a, x = torch.randn(128, 128).to(on), torch.randn(128, 512).to(on)
    w, b, q = torch.ones(512, device=on), torch.zeros(512, device=on), torch.randn(1, 2, 64, 64).to(on)
    targets, tokens = torch.randint(512, (128,)).to(on), torch.randint(1000, (512,)).to(on)
    more, table = torch.randn(512, 64).to(on), torch.randn(1000, 64).to(on)
    pictures, filters = torch.randn(4, 8, 28, 28).to(on), torch.randn(16, 8, 3, 3).to(on)
    planes = torch.ones(8, device=on)
    _, mean, scale = torch.native_layer_norm(x, (512,), w, b, 1e-5)
    aten = torch.ops.aten
    return {
        "mm": lambda: a @ a,
        "linear": lambda: f.linear(a, a, a[0]),
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax": lambda: torch.log_softmax(x, -1),
        "layer norm": lambda: f.layer_norm(x, (512,), w, w),
        "layer norm back": lambda: aten.native_layer_norm_backward(x, x, (512,), mean, scale, w, b, [True] * 3),
        "group norm": lambda: f.group_norm(pictures, 2, planes, planes),
        "batch norm": lambda: f.batch_norm(pictures, None, None, planes, planes, True),
        "sum": lambda: x.sum(-1),
        "mean": lambda: x.mean(-1),
        "attention": lambda: f.scaled_dot_product_attention(q, q, q),
        "convolution": lambda: f.conv2d(pictures, filters),
        "exp": lambda: x.exp(),
        "tanh": lambda: x.tanh(),
        "sigmoid": lambda: x.sigmoid(),
        "silu": lambda: f.silu(x),
        "gelu": lambda: f.gelu(x),
        "gelu by tanh": lambda: f.gelu(x, approximate="tanh"),
        "cumsum": lambda: x.cumsum(-1),
        "cumsum, columns": lambda: x.cumsum(0),
        "index_add": lambda: table.index_add(0, tokens, more),
        "embedding back": lambda: aten.embedding_dense_backward(more, tokens, 1000, -1, False),
        "cross entropy": lambda: f.cross_entropy(x, targets),
        "dropout": lambda: f.dropout(x, 0.1),
        **steps(),
    }


def steps() -> dict[str, Callable[[], object]]:
    """A step of each fused optimizer."""
    made: dict[str, Callable[[], object]] = {}
    for name, make in {
        "fused Adam": lambda ps: torch.optim.Adam(ps, fused=True),
        "fused AdamW": lambda ps: torch.optim.AdamW(ps, fused=True),
        "fused SGD": lambda ps: torch.optim.SGD(ps, 0.01, momentum=0.9, fused=True),
    }.items():
        weights = [torch.randn(256, 256).to("sim") for _ in range(4)]
        for weight in weights:
            weight.grad = torch.randn(256, 256).to("sim")
        made[name] = make(weights).step
    return made


def native(rounds: int) -> None:
    """In step, kernels of the device's own beside torch's, in the same guard."""
    sim.set_guard("open")
    blocking = sim.launch_blocking()
    sim.set_launch_blocking(True)
    for name, act in acts().items():

        def run(act=act):
            for _ in range(20):
                act()

        def chosen(run=run):
            with sim.numerics("*"):
                run()

        seconds = medians({"torch": run, "native": chosen}, rounds, choose_guard)
        told(f"{name}, 20 times, ms", seconds, "torch", 1e-3, {"native": 5 if name == "mm" else 4})
    sim.set_launch_blocking(blocking)


def profiled(rounds: int) -> None:
    from torch.profiler import ProfilerActivity, profile

    sim.set_guard("pages")
    step = model.TrainingStep(device="sim")

    def with_profiler():
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]):
            step()
            sim.synchronize()

    def with_cpu_rows():  # torch's own share of it
        with profile(activities=[ProfilerActivity.CPU]):
            step()
            sim.synchronize()

    works = {"off": step, "cpu rows": with_cpu_rows, "on": with_profiler}
    told("profiler, ms", medians(works, rounds, choose_guard), "off", 1e-3, {"on": 1.2})


def peak(_rounds: int) -> None:
    for name in GUARDS:
        sim.set_guard(name)
        sim.empty_cache()
        step = model.TrainingStep(device="sim")
        sim.reset_peak_memory_stats()
        step()
        sim.synchronize()
        most = {name: sim.max_memory_reserved(), "allocated": sim.max_memory_allocated()}
        told("peak reserved, MiB", most, "allocated", 2**20, {name: 1.25})
        del step


def small_tensors(_rounds: int, n: int = 100_000) -> None:
    for name in GUARDS:
        sim.set_guard(name)
        sim.empty_cache()
        before = sim.memory_reserved()
        kept = [torch.empty(1, device="sim") for _ in range(n)]
        goal = "  (wanted: 16)" if name == "pages" else ""
        print(f"{'1e5 of one, MiB':<30}{name:<10}{(sim.memory_reserved() - before) / 2**20:>12.2f}{goal}")
        del kept
    sim.empty_cache()


def imports(rounds: int) -> None:
    def run(code):
        spent = os.times()
        subprocess.run([sys.executable, "-c", code], check=True)
        now = os.times()
        return now.children_user + now.children_system - spent.children_user - spent.children_system

    both = [(run("import torch"), run("import torch, ulpscope.sim")) for _ in range(rounds)]
    torch_alone, with_sim = (statistics.median(t) for t in zip(*both))  # noqa: B905 (as old as Python 3.9)
    print(f"{'import, s':<30}{'torch':<10}{torch_alone:>12.2f}")
    print(f"{'':<30}{'sim beside':<10}{with_sim - torch_alone:>12.2f}  (wanted: 0.3)")


ROWS = {
    "gpt": gpt,
    "add": add,
    "peer": beside_peer,
    "copies": copies,
    "streams": streams,
    "native": native,
    "profiler": profiled,
    "small": small_tensors,
    "peak": peak,
    "import": imports,
}


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    for name, row in ROWS.items():
        if options.only in name:
            row(options.rounds)
    sim.set_guard("strict")


if __name__ == "__main__":
    main()
