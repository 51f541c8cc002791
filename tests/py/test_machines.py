# SPDX-License-Identifier: Apache-2.0
"""What is said hangs on no CPU: float64 is held to the CPU's float64 and no more is claimed of it,
and correct kernels pass whichever vector instructions and threads torch uses."""

import json
import os
import subprocess
import sys

import torch

import ulpscope


def test_float64_is_never_called_correctly_rounded():
    x = (torch.rand(64) + 1).double()
    for fn in (torch.sqrt, torch.exp):
        got = ulpscope.judge_call(fn, (x,), outputs=fn(x))
        assert got.passed and "as good as the CPU's float64" in got.sentence, got.sentence
        got = ulpscope.judge_call(fn, (x.float(),), outputs=fn(x).float())
        assert got.passed and "is correctly rounded" in got.sentence, got.sentence


# Correct kernels that do not ask torch's float32 kernels, as verdicts of one process.
KERNELS = """
import json, torch, ulpscope
import torch.nn.functional as F

def draw(seed, *shape):  # exact: no kernel of torch rounds here
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-2**20, 2**20, shape, generator=g).float() / 2**19

def rows(x):  # one accumulator
    total = x[..., 0].clone()
    for k in range(1, x.shape[-1]):
        total = total + x[..., k]
    return total

def wide(fn):
    return lambda *args: fn(*(a.double() for a in args)).float()

def rms(x):
    return x / ((rows(x * x) / x.shape[-1])[:, None] + 1e-6).sqrt()

x, y, w = draw(1, 32, 64), draw(2, 32, 64), draw(3, 64, 48)
steep = x * 2.0**12
CALLS = {
    "sum": (lambda x: x.sum(-1), rows, (x,)),
    "steep sum": (lambda x: x.sum(-1), lambda x: rows(x.flip(-1)), (steep,)),
    "mean": (lambda x: x.mean(-1), lambda x: rows(x) / 64, (x,)),
    "matmul": (torch.matmul, lambda x, w: rows(x[:, None] * w.t()[None]), (x, w)),
    "exp": (torch.exp, wide(torch.exp), (x,)),
    "gelu": (F.gelu, wide(F.gelu), (x,)),
    "softmax": (lambda x: x.softmax(-1), wide(lambda x: x.softmax(-1)), (steep,)),
    "rms_norm": (lambda x: x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt(), rms, (x,)),
    "sqrt": (torch.sqrt, wide(torch.sqrt), (x.abs(),)),
    "variance": (lambda x: x.var(-1), lambda x: rows((x - (rows(x) / 64)[:, None]) ** 2) / 63, (x,)),
    "pool": (lambda x: F.avg_pool1d(x, 4), lambda x: rows(x.view(32, 16, 4)) * 0.25, (x,)),
}
said = {name: ulpscope.judge_call(fn, args, outputs=kernel(*args), cause=False).verdict
        for name, (fn, kernel, args) in CALLS.items()}
off = {name: ulpscope.judge_call(fn, args, outputs=kernel(*args) * (1 + 2.0**-12), cause=False).passed
       for name, (fn, kernel, args) in CALLS.items()}
print(json.dumps([said, off]))
"""


def test_no_verdict_hangs_on_vector_instructions_or_threads():
    asked = [("default", 1), ("avx2", 2), ("avx512", 1)]
    has = torch.backends.cpu.get_cpu_capability()  # torch takes its word, and dies of what a CPU lacks
    asked = asked[: 3 if has.startswith("AVX512") else 2 if has == "AVX2" else 1]
    runs = []
    for isa, threads in asked:
        env = {**os.environ, "ATEN_CPU_CAPABILITY": isa, "OMP_NUM_THREADS": str(threads)}
        runs.append(subprocess.Popen([sys.executable, "-c", KERNELS], env=env, stdout=subprocess.PIPE, text=True))
    for (isa, threads), run in zip(asked, runs, strict=True):
        text, _ = run.communicate(timeout=100)
        assert run.returncode == 0
        said, off = json.loads(text)
        assert set(said.values()) == {"pass"}, (isa, threads, said)
        assert not any(off.values()), (isa, threads, off)
