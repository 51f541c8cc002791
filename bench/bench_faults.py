# SPDX-License-Identifier: Apache-2.0
"""Plants each kind of fault and each known bug of the simulated device alone, and tells who finds it, and of how many
calls. A call is found by `check` where its verdict is no pass, by `schedule` where a program with its waits in place
gives something else with one of 20 seeds, by `ranks` where two ranks get another sum than it is. Without a fault
the same calls are judged once: what is accused then is told. --write FILE: the page docs/reference/faults.md."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import ulpscope
import ulpscope.sim as sim
from torch.utils._pytree import tree_map

HEAD = """# Faults of the simulated device

[中文](faults.zh.md)

What can be planted ([how](sim.md#planting-faults)), and who finds it where it is planted alone. Written by
`./run bench faults --write docs/reference/faults.md` (torch {torch}); `check` is the verdict
on one call, `schedule` 20 seeds of `torch.sim.schedule`, `ranks` two processes whose sums are compared.
The same {n} calls without a fault: {clean}.

Parameters stand behind the text. A row of 0 is a fault that this way of looking does not show.
"""
Case = tuple  # what is called, its arguments, and keywords where it has some


def at(shape: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


A, B, W = at((24, 40)), at((40, 33), 1), at((33,), 2)
PLAIN: dict[str, Case] = {
    "mm": (torch.mm, [A, B]),
    "addmm": (torch.addmm, [W, A, B]),
    "layer_norm": (lambda x, w: F.layer_norm(x, (33,), w), [at((24, 33), 3), W]),
    "softmax": (lambda x: x.softmax(-1), [at((24, 33), 4, 3)]),
    "gelu": (F.gelu, [at((24, 33), 5)]),
    "sum": (lambda x: x.sum(1), [at((24, 33), 6)]),
}
NORMS: dict[str, Case] = {
    "layer_norm": PLAIN["layer_norm"],
    "group_norm": (lambda x: F.group_norm(x, 2), [at((4, 4, 33), 7)]),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), [at((4, 4, 33), 8)]),
}
SUMS = {name: PLAIN[name] for name in ("mm", "addmm", "layer_norm", "softmax", "sum")}
INDICES: dict[str, Case] = {
    "embedding": (F.embedding, [torch.arange(12) % 7, at((7, 5))]),
    "gather": (lambda x, i: x.gather(1, i), [at((4, 6)), torch.arange(12).view(4, 3) % 6]),
    "index_select": (lambda x, i: x.index_select(0, i), [at((6, 4)), torch.tensor([0, 3, 5])]),
}
MASKS: dict[str, Case] = {
    "where": (torch.where, [at((5, 7)) > 0, at((5, 7), 1), at((5, 7), 2)]),
    "masked_fill": (lambda x, m: x.masked_fill(m, 9.0), [at((5, 7)), at((5, 7), 1) > 0]),
}
VIEWS: dict[str, Case] = {
    "mm": (lambda a, b: a.t() @ b[:, 3:20], [at((40, 24), 9), B]),
    "gelu": (lambda x: F.gelu(x[1:, ::2]), [at((24, 33), 5)]),
    "softmax": (lambda x: x[2:].t().softmax(-1), [at((24, 33), 4)]),
}


def adam(op: str, inf: bool = False) -> Case:
    keys = {
        "lr": 0.1,
        "beta1": 0.9,
        "beta2": 0.99,
        "weight_decay": 0.1,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }
    keys |= {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(float(inf))}
    state = [[at((40,), i)] for i in range(3)]
    return getattr(torch.ops.aten, op).default, [*state, [at((40,), 3).abs()], [], [torch.tensor(3.0)]], keys


OPTIMIZERS = {"adamw": adam("_fused_adamw_"), "adam": adam("_fused_adam_")}
OVERFLOWN = {"adamw, overflown": adam("_fused_adamw_", inf=True), "adam, overflown": adam("_fused_adam_", inf=True)}
IN_PLACE: dict[str, Case] = {
    "add_": (lambda x, y: x.clone().add_(y), [at((5, 33)), at((5, 33), 1)]),
    "addcmul_ of a transpose": (lambda x, y: x.clone().t().addcmul_(y, y), [at((5, 9)), at((9, 5), 1)]),
}
OUTSIDE: dict[str, Case] = {
    "add_ of a slice": (lambda x, y: (x := x.clone(), x[:, :20].add_(y))[0], [at((5, 33)), at((5, 20), 1)])
}
LARGE = {"mul": (torch.mul, [at((24, 33), 3, 500), at((24, 33), 1, 5)])}
NANS = {"clamp": (lambda x: x.clamp(-1, 1), [torch.where(at((4, 9)) > 1, torch.nan, at((4, 9), 1))])}
TINY = {"mul": (torch.mul, [at((4, 9), 0, 1e-20), at((4, 9), 1, 1e-19)])}
QKV = [at((1, 2, 16, 8), i) for i in range(3)]
ATTENTION: dict[str, Case] = {
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), QKV)
}
SCATTER = {
    "scatter_add": (
        lambda x, i, s: x.scatter_add(0, i, s),
        [at((6,)), torch.tensor([1, 1, 2, 5, 5]), at((5,), 1)],
    )
}
NONZERO = {"nonzero": (torch.nonzero, [at((5, 7)) > 0])}
LABELS = torch.tensor([0, 3, 2, 0, 1])
LOSS = {"cross_entropy": (lambda x, y: F.cross_entropy(x, y, ignore_index=0), [at((5, 4)), LABELS])}
RANDOM = {"rand": (lambda x: torch.rand_like(x), [at((40, 50))])}
IGNORED = {**OVERFLOWN, **OPTIMIZERS}

# kind -> its calls, and keys of the fault; what is not named here is planted on PLAIN
OF_KIND: dict[str, tuple[dict[str, Case], str]] = {
    "tf32": ({n: PLAIN[n] for n in ("mm", "addmm")}, ""),
    "tf32_intermediates": ({n: PLAIN[n] for n in ("mm", "addmm")}, ""),
    "index_shifted": (INDICES, ""),
    "mask_shifted": (MASKS, ""),
    "wrong_stride": (VIEWS, ""),
    "offset_ignored": (VIEWS, ""),
    "step_plus_one": (OPTIMIZERS, ""),
    "decay_misapplied": (OPTIMIZERS, ""),
    "overwrites": (SCATTER, ""),
    "ignored": (OVERFLOWN, ":argument=found_inf"),
    "nan_beyond": (LARGE, ""),
    "rows_lost": (NONZERO, ""),
    "writes_outside": (OUTSIDE, ""),
    "inplace_lost": (IN_PLACE, ""),
    "offset_kept": (RANDOM, ""),
    "flush_subnormals": (TINY, ""),
    "saturate": (LARGE, ""),
    "nan_swallowed": (NANS, ""),
    "carry": (PLAIN, ":bit=22"),
    "causal_leak": (ATTENTION, ""),
    **{kind: (NORMS, "") for kind in ("epsilon_outside", "variance_unbiased", "scale_bf16")},
    "variance_moments": (
        {"layer_norm of shifted data": (lambda x: F.layer_norm(x, (33,)), [at((24, 33), 3) / 2 + 1449.5])},
        "",
    ),
    **{k: (SUMS, "") for k in ("accumulate_bf16", "accumulate_fp16", "term_missing", "term_twice")},
    "rest_missing": ({n: PLAIN[n] for n in ("layer_norm", "softmax", "sum", "mm")}, ""),
}
BY_CHECK_ALONE = ("crash", "hang", "lacking", "cpu_fallback")
# bug -> a call that meets its conditions, where one of a usual size does
OF_BUG: dict[str, Case] = {
    "mps_addcmul_noncontiguous": IN_PLACE["addcmul_ of a transpose"],
    "mps_matmul_out_slice": (
        lambda a, b, z: (z := z.clone(), torch.mm(a, b, out=z[:, 2:35]))[0],
        [A, B, at((24, 40), 5)],
    ),
    "cuda_avgpool_backward_channels_last": (
        lambda g, x: torch.ops.aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [1, 1], False, True, None),
        [
            at((1, 3, 5, 5)).contiguous(memory_format=torch.channels_last),
            at((1, 3, 8, 8), 1).contiguous(memory_format=torch.channels_last),
        ],
    ),
    "metal_rms_norm_partial_simdgroup": (lambda x: F.rms_norm(x, (33,)), [at((24, 33), 3)]),
    "mps_topk_over_16": (lambda x: x.topk(20), [at((3, 50))]),
    "miopen_conv_backward_dilation": (
        lambda g, x, w: torch.ops.aten.convolution_backward(
            g, x, w, None, [1, 1], [0, 0], [2, 1], False, [0, 0], 1, [True, True, False]
        )[:2],
        [at((1, 2, 6, 7)), at((1, 3, 8, 8), 1), at((2, 3, 2, 2), 2)],
    ),
    "mps_sdpa_causal_leak": (ATTENTION["attention"][0], [t.half() for t in QKV]),
    "rocm_all_always_true": (torch.all, [at((9,)) > 0]),
    "gather_backward_duplicates": SCATTER["scatter_add"],
    "mps_cross_entropy_ignore_index": LOSS["cross_entropy"],
    "xpu_nonzero_truncated": NONZERO["nonzero"],
    "tf32_matmul": PLAIN["mm"],
    "layer_norm_cancellation": OF_KIND["variance_moments"][0]["layer_norm of shifted data"],
    "npu_rms_norm_bf16_scale": (lambda x: F.rms_norm(x, (33,)), [at((24, 33), 3)]),
    "tpu_neuron_fp32_as_bf16": PLAIN["mm"],
    "clamp_swallows_nan": NANS["clamp"],
    "metal_tanh_nan": (torch.tanh, [at((9, 9), 0, 40)]),
    "norm_overflow_both_sides": (lambda x: F.layer_norm(x, (33,)), [at((9, 33), 0, 1e17)]),
    "mps_randperm_two_runs": (lambda x: torch.randperm(5000, device=x.device), [A]),
    "mps_multinomial_always_zero": (lambda p: p.multinomial(2000, replacement=True), [torch.ones(9)]),
    "half_sum_dim_overflow": (
        lambda x: x.sum(1),
        [torch.cat([at((3, 900)).abs() * 200, at((3, 900)).abs() * -200], 1).half()],
    ),
    "litert_sum_fp16": (lambda x: x.sum(1), [at((3, 900)).abs() * 200]),
    "ascend_adamw_step_plus_one": OPTIMIZERS["adamw"],
    "mps_adam_ignores_found_inf": OVERFLOWN["adam, overflown"],
    "mlx_adamw_no_bias_correction": OPTIMIZERS["adamw"],
    "sdc_transient_bit_flip": PLAIN["mm"],
}


def accused(case: Case, fault: str = "") -> bool:
    call, *arguments = case
    there, keys = tree_map(lambda v: v.clone().to("sim") if isinstance(v, torch.Tensor) else v, (arguments + [{}])[:2])
    planted = sim.plant(fault) if fault else None
    try:
        found = ulpscope.check_call(call, there, keys, None, cause=False)
    finally:
        if planted is not None:
            planted.remove()
    return found.verdict not in ("pass", "undefined", "unjudged")


def faults_of(name: str, kind: str, keys: str) -> str:
    """Planted on the operator that a case is named for."""
    return f"*{re.split('[ ,]', name)[0]}*:{kind}{keys}"


# ---- order and ranks -----------------------------------------------------------------------


def waits() -> dict[str, Callable[[int], bool]]:
    """Programs that are right as long as their waits are; each says whether it was. What memory held before is told
    from what it is to hold by the number."""

    def by_stream(n):
        side, x = sim.Stream(), torch.full((4000,), float(n), device="sim")
        sim.synchronize()
        with sim.stream(side):
            y = x * 2
        sim.current_stream().wait_stream(side)
        return bool(((y + 1).cpu() == 2 * n + 1).all())

    def by_event(n):
        side, done = sim.Stream(), sim.Event()
        x = torch.full((4000,), float(n), device="sim")
        sim.synchronize()
        with sim.stream(side):
            y = x * 2
            done.record()
        sim.current_stream().wait_event(done)
        return bool(((y + 1).cpu() == 2 * n + 1).all())

    def by_host(n):
        to = torch.zeros(4000).pin_memory()
        to.copy_(torch.full((4000,), float(n), device="sim") * 2, non_blocking=True)
        sim.synchronize()
        return bool((to == 2 * n).all())

    def by_record(n):
        side, x = sim.Stream(), torch.full((4000,), float(n), device="sim")
        sim.synchronize()
        with sim.stream(side):
            y = x + 1
            x.record_stream(side)
        del x
        z = torch.full((4000,), -1.0, device="sim")
        sim.current_stream().wait_stream(side)
        return bool(((y + 0 * z).cpu() == n + 1).all())

    def by_copy(n):
        return bool(((torch.full((4000,), float(n), device="sim") * 2).cpu() == 2 * n).all())

    return {
        "sim::wait_*": by_stream,
        "sim::wait_event": by_event,
        "sim::synchronize": by_host,
        "sim::record_stream": by_record,
        "sim::copy": by_copy,
    }


def differs(program: Callable[[int], bool], fault: str) -> bool:
    """Whether it is wrong with one of 20 seeds."""
    right = True
    with sim.plant(fault):
        for seed in range(20):
            with sim.schedule(seed):
                right = program(seed + 2) and right
    return not right


RANKS = """
import json, os, torch, torch.distributed as dist, ulpscope.sim
rank = int(os.environ["RANK"])
dist.init_process_group("simccl")
found = {}
for name, fault in json.loads(os.environ["FAULTS"]).items():
    wrong = 0
    for op in ("all_reduce", "all_gather", "bor"):
        with ulpscope.sim.plant(fault) if fault else __import__("contextlib").nullcontext():
            for turn in range(2):
                x = torch.arange(1, 34, device="sim", dtype=torch.float32) * (1 + rank + turn) / 3
                if op == "all_gather":
                    out = torch.zeros(66, device="sim")
                    dist.all_gather_into_tensor(out, x)
                    right = torch.cat([torch.arange(1, 34).float() * (1 + r + turn) / 3 for r in range(2)])
                elif op == "bor":
                    out = torch.full((9,), 3 + rank * 4, device="sim")
                    dist.all_reduce(out, dist.ReduceOp.BOR)
                    right = torch.full((9,), 7)
                else:
                    out = x.clone()
                    dist.all_reduce(out)
                    a, b = (torch.arange(1, 34).float() * (1 + r + turn) / 3 for r in range(2))
                    right = a + b
                got = out.cpu()  # the fault is planted until it has run
        wrong += not torch.equal(got, right)
    found[name] = wrong
if rank == 0:
    print(json.dumps(found))
dist.destroy_process_group()
"""


def wrong_on_ranks(faults: dict[str, str]) -> dict[str, int]:
    """Of three collectives, on how many rank 0 gets something else."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "ranks.py")
        script.write_text(RANKS)
        run = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)],
            env={**os.environ, "FAULTS": json.dumps(faults), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
    if run.returncode != 0:
        sys.exit(run.stderr[-3000:])
    return json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))


OURS = (sys.executable, "-m", "ulpscope")


def captured(trace: Path, script: Path, *words: str, fault: str = "") -> None:
    """A whole run of a script, with what is planted."""
    capture = [*OURS, "capture", "--steps", "0", "-o", str(trace), "--", sys.executable, str(script), *words]
    subprocess.run(capture, env={**os.environ, "ULPSCOPE_SIM_FAULTS": fault}, check=True, capture_output=True)


def by_worker(kind: str, folder: Path) -> bool:
    """`ulpscope check` of a trace, for what ends or refuses a kernel."""
    run = subprocess.run(
        [
            *OURS,
            "check",
            str(folder / "trace"),
            "--device",
            "sim:0",
            "--timeout",
            "20",
            "--strict",
            "--faults",
            f"mm:{kind}",
            "--out",
            str(folder / kind),
        ],
        capture_output=True,
        text=True,
    )
    return run.returncode == 1


LOST = ("sim::load:storage_lost:nth=1", "sim::load:storage_lost:nth=6")  # a weight, a moment of the optimizer
RESUMES = """
import sys, torch, ulpscope.sim
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(24, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to("sim")
optimizer = torch.optim.AdamW(model.parameters())
def step():
    optimizer.zero_grad()
    model(torch.linspace(-1, 1, 192).reshape(8, 24).to("sim")).square().mean().backward()
    optimizer.step()
if sys.argv[1] == "save":
    step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, sys.argv[2])
else:
    state = torch.load(sys.argv[2], map_location="sim")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step()
"""


def resumed(folder: Path, faults: tuple[str, ...]) -> list[bool]:
    """Whether `ulpscope diff` tells a step behind a state that was loaded, with each fault, from one without; the first
    is of two without."""
    script, state = folder / "resumes.py", folder / "state.pt"
    script.write_text(RESUMES)
    subprocess.run([sys.executable, str(script), "save", str(state)], check=True, capture_output=True)
    for name, fault in {"right": "", "again": "", **{str(i): f for i, f in enumerate(faults)}}.items():
        captured(folder / name, script, "load", str(state), fault=fault)
    found = []
    for name in ("again", *map(str, range(len(faults)))):
        run = subprocess.run([*OURS, "diff", str(folder / "right"), str(folder / name)], capture_output=True, text=True)
        if run.returncode not in (0, 1):
            sys.exit(run.stdout + run.stderr)
        found.append(run.returncode == 1)
    return found


# ---- the page --------------------------------------------------------------------------------


def row_of_kind(kind: str) -> tuple[str, int, int]:
    cases, keys = OF_KIND.get(kind, (PLAIN, ""))
    return "`check`", sum(accused(case, faults_of(name, kind, keys)) for name, case in cases.items()), len(cases)


def kinds_by_ranks() -> dict[str, tuple[str, int, int]]:
    names = [k for k in sim.fault_kinds() if k.startswith("rank")]
    found = wrong_on_ranks({k: f"simccl::*:{k}" for k in names})
    return {k: ("`ranks`", found[k], 3) for k in names}


def all_kinds() -> dict[str, tuple[str, int, int]]:
    found = kinds_by_ranks()
    programs = waits()
    hits = sum(differs(program, f"{name}:early") for name, program in programs.items())
    found["early"] = ("`schedule`", hits, len(programs))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "mm.py"
        script.write_text("import torch\nfor i in range(1, 4):\n    torch.mm(torch.ones(3, 3), torch.ones(3, i))\n")
        captured(folder / "trace", script)
        for kind in BY_CHECK_ALONE:
            found[kind] = ("`check` of a trace", int(by_worker(kind, folder)), 1)
        lost = resumed(folder, LOST)
        if lost[0]:
            sys.exit("two runs that resume the same state differ")
        found["storage_lost"] = ("`diff` of two runs that resume", sum(lost), len(LOST))
    for kind in sim.fault_kinds():
        if kind == "autocast_narrow":
            found[kind] = ("`check`", int(narrow_is_found()), 1)
        elif kind not in found:
            found[kind] = row_of_kind(kind)
        print(f"{kind}: {found[kind][1]} of {found[kind][2]}", file=sys.stderr, flush=True)
    return found


def narrow_is_found() -> bool:
    def call(x):
        with torch.autocast("sim", torch.bfloat16):
            return x.softmax(-1)

    return accused((call, [at((24, 33), 4, 3)]), "aten::_softmax:autocast_narrow")


def bug_is_found(name: str) -> str:
    if name in OF_BUG:
        text = sim.bugs()[name][0].replace(":p=0.01", "") if name.startswith("sdc") else f"bug:{name}"
        return "`check`: yes" if accused(OF_BUG[name], text) else "`check`: no"
    faults = sim.bugs()[name][0]
    if faults.endswith(":early"):
        programs = waits()
        names = [n for n in programs if n.rstrip("*") in faults]
        return f"`schedule`: {sum(differs(programs[n], f'bug:{name}') for n in names)} of {len(names)}"
    if faults.startswith("simccl"):
        return f"`ranks`: {wrong_on_ranks({name: f'bug:{name}'})[name]} of 3"
    return "not run here: too large, too rare, or of somebody's library"


def page() -> str:
    cases = {**PLAIN, **NORMS, **INDICES, **MASKS, **VIEWS, **OPTIMIZERS, **OVERFLOWN, **IN_PLACE, **OUTSIDE, **LARGE}
    clean = sorted(name for name, case in cases.items() if accused(case))
    told = f"{', '.join(clean)} accused" if clean else "none is accused"
    text = HEAD.format(torch=torch.__version__.split("+")[0], n=len(cases), clean=told)
    docs = sim.fault_kinds()
    text += "\n## Kinds\n\n| kind | what it does | found by | of |\n|---|---|---|---|\n"
    for kind, (by, n, of) in sorted(all_kinds().items(), key=lambda row: list(docs).index(row[0])):
        text += f"| `{kind}` | {docs[kind]} | {by} | {n} of {of} |\n"
    text += (
        '\n## Known bugs\n\n`torch.sim.fault("bug:NAME")` and `bug:NAME` in `ULPSCOPE_SIM_FAULTS` plant faults that do '
        "alike, under the\nconditions under which the device had it.\n\n| bug | told in | found |\n|---|---|---|\n"
    )
    for name, (_, link) in sim.bugs().items():
        text += f"| `{name}` | [{'/'.join(link.split('/')[3:])}]({link}) | {bug_is_found(name)} |\n"
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", metavar="FILE")
    options = parser.parse_args()
    made = page()
    if options.write:
        Path(options.write).write_text(made)
    print(made)
