# SPDX-License-Identifier: Apache-2.0
"""How many faults does `ulpscope fuzz` find, and within how many cases of the operator? Each fault of numbers of
the simulated device at every operator that it has, one at a time (a share of them, drawn by a seed), and
defects of real backends that were reported in public, written anew as kernels. A fault counts where it changed
a bit of some case. Beside it the findings on devices that are right: no fault, other threads, strided copies.
docs/reference/fuzz.md has what this prints.

Needs torch: its operator database, `sim`, and functions that stand for a device.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch.utils._pytree import tree_map

import ulpscope
import ulpscope.sim as sim
from ulpscope import _core
from ulpscope.calls.replay import BadCall, base_name
from ulpscope.calls.verdicts import FLAGGED
from ulpscope.executors import formulas
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.calls.trusting import TRUSTING
from ulpscope.judges.in_rows import OF_STRIDES
from ulpscope.session.judging import judge_call
from ulpscope.fuzzer import drawn_cases

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench_fuzz import NO_FAULT_OF_NUMBERS, database  # noqa: E402

MOST_EXAMPLES = 200  # of an operator
IDLE = 8  # cases in a row in which a fault changed nothing: it has nothing to do at this operator
HALF = (torch.float16, torch.bfloat16)


# ---- defects that were reported, by backend; the kernel is otherwise the CPU's ----


def addcmul_strided(op, args, kwargs):
    """MPS: addcmul_ of a self that is not contiguous is left as it was (pytorch/pytorch#118115)."""
    return args[0].clone() if not args[0].is_contiguous() else op(*args, **kwargs)


def gappy_copy(op, args, kwargs):
    """MPS: views with the same gaps are copied as one piece of memory (pytorch/pytorch#189961)."""
    to, source = args[0], args[1]
    if to.dim() == 1 and to.numel() > 1 and to.stride() == source.stride() and to.stride(0) > 1:
        to[1:] = to[0]
        return to
    return op(*args, **kwargs)


def pool_backward(op, args, kwargs):
    """CUDA: channels_last with padding, coordinates without it (pytorch/pytorch#188344)."""
    out = op(*args, **kwargs)
    x, padding = args[1], args[4]
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return out.roll(padding[0], -2) if last and any(padding) else out


def attention_strided(op, args, kwargs):
    """CUDA: keys and values without a stride, a mask, a length of 1 over 32 (pytorch/pytorch#191937)."""
    out = op(*args, **kwargs)
    gaps = any(0 in t.stride() or not t.is_contiguous() for t in args[1:3])
    return out * 3 if gaps and len(args) > 3 and args[3] is not None else out


def attention_causal(op, args, kwargs):
    """MPS: is_causal in half precision masks once for four queries (pytorch/pytorch#195910)."""
    causal = args[5] if len(args) > 5 else kwargs.get("is_causal")
    if not causal or args[0].dtype not in HALF:
        return op(*args, **kwargs)
    n, m = args[0].shape[-2], args[1].shape[-2]
    rows = torch.arange(n) // 4 * 4 + 3
    mask = torch.arange(m)[None, :] <= rows[:, None]
    return op(args[0], args[1], args[2], attn_mask=mask)


def norm_tail(op, args, kwargs):
    """Metal: rows that are no multiple of 32, the last part is dropped (ggml-org/llama.cpp#26708)."""
    x = args[0]
    n = x.shape[-1] if x.dim() else 0
    if n % 32 == 0 or n < 32:
        return op(*args, **kwargs)
    scale = (x[..., : n - n % 32].double().square().sum(-1, keepdim=True) / n + 1e-6).rsqrt()
    out = x.double() * scale
    return (out * args[2] if len(args) > 2 and args[2] is not None else out).to(x.dtype)


def norm_in_bfloat16(op, args, kwargs):
    """AMD NPU: 1/rms rounded to bfloat16 before it is used (amd/IRON#139)."""
    x = args[0].double()
    epsilon = (args[3] if len(args) > 3 else kwargs.get("eps")) or torch.finfo(args[0].dtype).eps
    scale = (x.square().mean(tuple(range(-len(args[1]), 0)), keepdim=True) + epsilon).rsqrt().bfloat16().double()
    weight = args[2] if len(args) > 2 else kwargs.get("weight")
    return (x * scale * (1 if weight is None else weight.double())).to(args[0].dtype)


def topk_16(op, args, kwargs):
    """MPS: what stands behind the 16th is zero (pytorch/pytorch#78915)."""
    values, places = op(*args, **kwargs)
    dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    if values.dim() and values.shape[dim] > 16:
        for t in (values, places):
            t.narrow(dim, 16, t.shape[dim] - 16).zero_()
    return values, places


def dilated_backward(op, args, kwargs):
    """ROCm: gradients of a dilated convolution in float32 (ROCm/legacy-rocm-build#4606)."""
    out = list(op(*args, **kwargs))
    if len(set(args[6])) > 1 and args[0].dtype == torch.float32 and out[1] is not None:
        out[1] = out[1].flip(-1)
    return tuple(out)


def all_true(op, args, kwargs):
    """ROCm: all() is true whatever is in it (pytorch/pytorch#99721)."""
    return torch.ones_like(op(*args, **kwargs))


def scatter_overwrites(op, args, kwargs):
    """torch 0.1.12, MLX: equal indices overwrite each other (pytorch/pytorch#1631)."""
    x, dim, index, source = args
    if not x.dim() or not x.numel():
        return op(*args, **kwargs)
    part = source[tuple(slice(n) for n in index.shape)] if source.dim() else source
    return x.clone().scatter_(dim, index, x.gather(dim, index) + part) if x.dim() == part.dim() else op(*args, **kwargs)


def ignores_nothing(op, args, kwargs):
    """MPS: ignore_index is not honoured (pytorch/pytorch#108148)."""
    return op(*args[:4], -12345, *args[5:], **kwargs) if (args[1] >= 0).all() else op(*args, **kwargs)


def nonzero_drops(op, args, kwargs):
    """XPU: elements are dropped (intel/torch-xpu-ops#4396)."""
    out = op(*args, **kwargs)
    return out[:-1].clone() if len(out) else out


def with_bits(bits):
    """Matrices rounded to so many bits before they are multiplied."""

    def kernel(op, args, kwargs):
        if args[0].dtype != torch.float32:
            return op(*args, **kwargs)
        cut = [(t.contiguous().view(torch.int32) + (1 << 23 - bits) // 2 >> 24 - bits << 24 - bits).view(torch.float32)
               for t in args[:2]]  # fmt: skip
        return op(*cut, *args[2:], **kwargs)

    return kernel


def variance_cancels(op, args, kwargs):
    """MLX, burn, torch 1.7: E[x^2] - E[x]^2 in float32 (ml-explore/mlx#2238)."""
    x, axes = args[0], tuple(range(-len(args[1]), 0))
    if x.dtype != torch.float32 or not x.numel():
        return op(*args, **kwargs)
    mean = x.mean(axes, keepdim=True)
    rstd = ((x * x).mean(axes, keepdim=True) - mean * mean + args[4]).rsqrt()
    out = (x - mean) * rstd
    out = out if args[2] is None else out * args[2]
    return out if args[3] is None else out + args[3], mean, rstd


def clamp_takes_nan(op, args, kwargs):
    """CUDA, MPS: NaN becomes a bound (pytorch/pytorch#15338)."""
    out = op(*args, **kwargs)
    low = args[1] if len(args) > 1 else kwargs.get("min")
    return out.nan_to_num(nan=float(low)) if low is not None and out.is_floating_point() else out


def tanh_of_exp(op, args, kwargs):
    """Metal: exp overflows, Inf / Inf (pytorch/pytorch#172406)."""
    x = args[0]
    if x.dtype != torch.float32:
        return op(*args, **kwargs)
    e = (2 * x).exp()
    return torch.where(x.abs() > 0.5, (e - 1) / (e + 1), x.tanh())


def saturates(op, args, kwargs):
    """XPU: floats beyond int8 become 127 (intel/torch-xpu-ops#889)."""
    if kwargs.get("dtype") in (torch.int8, torch.uint8) and args[0].is_floating_point():
        info = torch.iinfo(kwargs["dtype"])
        return op(args[0].clamp(info.min, info.max), **kwargs)
    return op(*args, **kwargs)


def two_runs(op, args, kwargs):
    """MPS: a permutation of two ascending runs (pytorch/pytorch#104170)."""
    out = op(*args, **kwargs)
    half = torch.rand(out.shape) < 0.5
    return torch.cat([out[half].sort()[0], out[~half].sort()[0]])


def always_zero(op, args, kwargs):
    """MPS: always category 0 (pytorch/pytorch#99802)."""
    return torch.zeros_like(op(*args, **kwargs))


def partial_in_half(op, args, kwargs):
    """CUDA, LiteRT: partial sums kept in float16 (pytorch/pytorch#2391)."""
    x = args[0]
    if x.dtype != torch.float16 or not x.numel() or not args[1]:
        return op(*args, **kwargs)
    out = x.abs().sum(args[1], *args[2:3], dtype=torch.float32)
    return torch.where(out > 65504, torch.inf, op(*args, **kwargs).float()).half()


def boundary(op, args, kwargs):
    """torch7: the derivative on a bound (torch/torch7#734), of hardtanh here."""
    gradient, x, low, high = args[:4]
    return gradient * ((x >= low) & (x <= high))


def adamw_one_more(op, args, kwargs):
    """Ascend: bias correction of the step after (DeepLink-org/ditorch)."""
    for step in args[5]:
        step += 1
    op(*args, **kwargs)
    for step in args[5]:
        step -= 1


def adamw_takes_inf(op, args, kwargs):
    """MPS: found_inf and grad_scale are ignored (pytorch/pytorch#186360)."""
    return op(*args, **(kwargs | {"found_inf": None, "grad_scale": None}))


def a_bit_in_many_calls(op, args, kwargs):
    """A GPU with silent corruption: one bit in one of many calls (a public report of 16,384 of them)."""
    out = op(*args, **kwargs)
    a_bit_in_many_calls.n += 1
    if a_bit_in_many_calls.n % 50 == 0 and out.dtype == torch.float32 and out.numel():
        out = out.contiguous()
        out.view(torch.int32).view(-1)[out.numel() // 2] ^= 1 << 27
    return out


a_bit_in_many_calls.n = 0

REPORTED = (
    ("aten::addcmul", addcmul_strided), ("aten::copy_", gappy_copy), ("aten::avg_pool2d_backward", pool_backward),
    ("aten::scaled_dot_product_attention", attention_strided), ("aten::scaled_dot_product_attention", attention_causal),
    ("aten::rms_norm", norm_tail), ("aten::rms_norm", norm_in_bfloat16), ("aten::topk", topk_16),
    ("aten::convolution_backward", dilated_backward), ("aten::all", all_true), ("aten::scatter_add", scatter_overwrites),
    ("aten::nll_loss_forward", ignores_nothing), ("aten::nonzero", nonzero_drops), ("aten::mm", with_bits(11)),
    ("aten::mm", with_bits(8)), ("aten::native_layer_norm", variance_cancels), ("aten::clamp", clamp_takes_nan),
    ("aten::tanh", tanh_of_exp), ("aten::_to_copy", saturates), ("aten::randperm", two_runs),
    ("aten::multinomial", always_zero), ("aten::sum.dim_IntList", partial_in_half), ("aten::hardtanh_backward", boundary),
    ("aten::_fused_adamw_", adamw_one_more), ("aten::_fused_adamw_", adamw_takes_inf), ("aten::mm", a_bit_in_many_calls),
)  # fmt: skip


# ---- cases of one operator ----


class Cases:
    """Cases of one operator in turn, as `ulpscope fuzz` draws them."""

    def __init__(self, rows, seed):
        self.examples, self.seed = [], seed
        for row in rows:
            try:
                self.examples.append(drawn_cases.Example(row, "bench"))
            except BadCall:
                continue

    def accused(self, case, device, stress=False):
        """Whether the verdict accuses the case; None where there is none."""
        try:
            example = self.examples[random.Random(f"{self.seed}:{case}").randrange(len(self.examples))]
            call, _ = drawn_cases.drawn(example, self.seed, case, stress)
            return judge_call(call, device, seconds=0).verdict in FLAGGED
        except BadCall:
            return None

    def until(self, device, most, stress=False, acted=lambda: True):
        """Cases up to the first that is accused; None: none of `most`, or nothing happened in the first ones."""
        for case in range(most):
            if self.accused(case, device, stress):
                return case + 1
            if case + 1 == IDLE and not acted():
                return None
        return None


class Known(dict):
    """Operator -> its cases."""

    def __init__(self, trace, seed):
        super().__init__()
        self.trace, self.seed = trace, seed

    def __missing__(self, op):
        rows = [self.trace.call(s) for s in self.trace.select(ops=op)[:MOST_EXAMPLES]]
        self[op] = Cases(rows, self.seed)
        return self[op]


def fired():
    return any(f["changed"] for f in sim.faults_fired())


def in_children(n, work, until):
    """([[number, what work(number) gave]] of numbers below `n`, how many were tried, how many died). In forked
    processes, as a kernel may die of what it is given: the next one goes on behind that number."""
    with tempfile.NamedTemporaryFile() as file:
        context, at, deaths = multiprocessing.get_context("fork"), 0, 0
        while at < n and time.time() < until:
            child = context.Process(target=told, args=(at, n, work, until, file.name))
            child.start()
            child.join(max(1, until + 60 - time.time()))
            child.kill()
            lines = [json.loads(line) for line in Path(file.name).read_text().splitlines()]
            deaths += child.exitcode != 0
            at = lines[-1][0] + 1 if lines else at + 1
    return [line for line in lines if len(line) > 1], at, deaths


def told(at, n, work, until, path):
    """Writes a line for each number before its work begins, and another of what it gave, unless None."""
    with open(path, "a", buffering=1) as file:
        for i in range(at, n):
            if time.time() > until:
                return
            file.write(json.dumps([i]) + "\n")
            given = work(i)
            if given is not None:
                file.write(json.dumps([i, given]) + "\n")


def planted(trace, options):
    """Of a share of all (operator, fault): [(operator, kind, cases or None)] of those that changed a bit."""
    names = sorted({trace.call(s)["op"] for s in trace.select()})
    kinds = [k for k in sim.fault_kinds() if k not in NO_FAULT_OF_NUMBERS]
    pairs = list(itertools.product(names, kinds))
    random.Random(options.seed).shuffle(pairs)
    known, device = Known(trace, options.seed), TorchDevice("sim:0")

    def plant(i):
        op, kind = pairs[i]
        if not known[op].examples:
            return None
        with sim.fault(op, kind):
            cases = known[op].until(device, options.most, acted=fired)
            return (op, kind, cases) if cases is not None or fired() else None

    found, tried, deaths = in_children(len(pairs), plant, time.time() + 60 * options.minutes)
    print(f"{tried} of {len(pairs)} pairs of an operator and a fault; died: {deaths}")
    return [given for _, given in found]


# ---- devices that are right ----


def as_it_is(call, bound):
    return bound.run(call.on(lambda captured: "cpu"))


def on_two_threads(call, bound):
    torch.set_num_threads(2)
    try:
        return as_it_is(call, bound)
    finally:
        torch.set_num_threads(1)


def on_strided_copies(call, bound):
    """Every second element of copies, where nothing is written and no kernel reads beside such tensors."""
    name = base_name(call.op)[1]
    if not call.written() and name not in OF_STRIDES | drawn_cases.DENSE | TRUSTING:
        bound.args, bound.kwargs = tree_map(spread, bound.args), tree_map(spread, bound.kwargs)
    return as_it_is(call, bound)


def spread(t):
    if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
        return t
    rows = torch.empty(t.shape, device="meta").stride()
    return torch.empty_strided(t.shape, [2 * s for s in rows], dtype=t.dtype).copy_(t)


def right(name, compute=None):
    device = TorchDevice(name)
    device.compute = compute or device.compute
    return device


HONEST = {"cpu": right("cpu"), "sim": right("sim:0"), "two threads": right("cpu", on_two_threads),
          "strided copies": right("cpu", on_strided_copies)}  # fmt: skip


def honest(trace, options):
    """Prints how many cases each right device is accused of, and of how many the CPU is not."""
    names = sorted({trace.call(s)["op"] for s in trace.select()})
    known = Known(trace, options.seed)

    def judged(i):
        op = names[_core.fuzz_operator(options.seed, i, len(names))]
        said = {name: known[op].accused(i, device) for name, device in HONEST.items()} if known[op].examples else {}
        return None if None in said.values() or not said else (op, [name for name, flagged in said.items() if flagged])

    found, _, deaths = in_children(options.honest, judged, time.time() + 3600)
    for name in HONEST:
        accused = [(i, op) for i, (op, names) in found if name in names]
        alone = [(i, op) for i, op in accused if not any(i == j and "cpu" in names for j, (_, names) in found)]
        print(f"{name:16} accused {len(accused):4} of {len(found)}, where the CPU is not: {len(alone)} "
              + ", ".join(f"{op}@{i}" for i, op in alone))  # fmt: skip
    print(f"died: {deaths}")


def reported(trace, options):
    """[(operator, kernel, cases of plain draws, cases of hard draws)] of documented defects."""
    with tempfile.TemporaryDirectory() as folder:
        adamw = optimizer_step(Path(folder) / "trace")
        for op, kernel in REPORTED:
            of = adamw if "fused" in op else trace
            cases = Cases([of.call(s) for s in of.select(ops=op)], options.seed)
            device = PythonDevice(kernel)
            yield op, kernel, *(cases.until(device, options.most, stress) for stress in (False, True))


def optimizer_step(folder):
    """The trace of a step of a fused AdamW under a gradient scaler: no database of operators has one."""
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(net(torch.randn(4, 8)).square().sum()).backward()
    with ulpscope.capture(str(folder), data="stats"):
        scaler.step(optimizer)
    return _core.Trace(str(folder))


def shares(numbers, n, limits=(1, 5, 20, 60, 200, 2000)):
    return ", ".join(f"{100 * sum(k <= limit for k in numbers) / n:.1f} % within {limit}" for limit in limits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=200, help="cases of an operator for each fault (default 200)")
    parser.add_argument("--minutes", type=float, default=8, help="for planted faults (default 8)")
    parser.add_argument("--honest", type=int, default=2000, help="cases on devices that are right (default 2000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    formulas.load()
    trace = database()
    print(f"documented defects: cases of the operator until one is accused (none of {options.most}: -)")
    print(f"{'':44} {'drawn':>6} {'--stress':>9}")
    told = list(reported(trace, options))
    for op, kernel, plain, hard in told:
        name = kernel.__name__ if kernel.__name__ != "kernel" else "with fewer bits"
        print(f"{op.removeprefix('aten::')[:24]:24} {name[:20]:20} {plain or '-':>5} {hard or '-':>9}", flush=True)
    print(f"found: {sum(p is not None for _, _, p, _ in told)} of {len(told)} drawn, "
          f"{sum(h is not None for *_, h in told)} with --stress")  # fmt: skip
    honest(trace, options)
    found = planted(trace, options)
    numbers = [cases for *_, cases in found if cases is not None]
    if not found:
        return
    print(f"{len(found)} planted faults changed a bit, at {len({op for op, *_ in found})} operators; found: "
          + shares(numbers, len(found), [k for k in (1, 5, 20, 60, 200, 2000) if k <= options.most]))  # fmt: skip
    missed = collections.Counter(kind for _, kind, cases in found if cases is None)
    print("not found, by kind: " + (", ".join(f"{k} {n}" for k, n in missed.most_common()) or "none"))
    for op, kind, cases in found:
        if cases is None:
            print(f"  {op}:{kind}")


if __name__ == "__main__":
    main()
