# SPDX-License-Identifier: Apache-2.0
"""Operators and callables that draw in a way nobody wrote down: one answer of the device
against many draws of the CPU. Serves `operators`.

If the device draws as the CPU does, its answer is one of a crowd: every number that can be
made of one answer lies where those of the other draws lie. The draws calibrate the tests
themselves, so outputs whose elements hang together (attention with dropout) are judged
as well as independent ones, with as much power as they have.
"""

import math

import torch

from ..._core import Finding, Findings
from ...executors.operands import Operands, Timing
from ...executors.reference import Reference
from ..outputs import judge_output

ENOUGH = 32
N_DRAWS = 40
N_ELEMENTS = 2**16
FAR = 7.0  # standard deviations of 40 draws: about 2e-8 for a normal statistic
CHANCE = 1e-7
NAMES = ("the average", "the spread", "the distribution", "a block of elements",
         "the dependence between elements", "the size of the result",
         "the variance of the result")  # fmt: skip
SPREAD_ONLY = "drawn: spread only, its values cannot be told from chance"
BOUNDS = (5.33, 5.33, 2.9, 6.0, 7.5, 0.0, 0.0)  # those of independent elements


def forms(call, answer):
    """Findings where shapes, dtypes or the number of outputs are wrong already."""
    reference = Reference(call)
    native = reference.native() or reference.narrow()
    if native.keys() != answer.outputs.keys():
        counts = f"{len(answer.outputs)} outputs where the operator has {len(native)}"
        return Findings([Finding("", "wrong", counts)])
    found = Findings()
    for path, want in native.items():
        got = answer.outputs[path]
        exact = reference.native() is not None and not getattr(call, "any_float", False)
        for what, a, b in (("shape", list(got.shape), list(want.shape)),
                           ("dtype", got.dtype, want.dtype)):  # fmt: skip
            if a != b and (what == "shape" or exact) and not found:
                text = f"{what} {a} where the operator gives {b}".replace("torch.", "")
                found = Findings([Finding(path, "wrong", text)])
    return found


def judge(call, answer, again=None):
    """Findings for every output, from draws of the CPU."""
    reference = Reference(call)
    draws = []
    for k in range(N_DRAWS):
        torch.manual_seed(0x0DD5EED + k)
        draws.append(reference.narrow())
    found = Findings()
    for path in answer.outputs:
        _output(found, call, answer, again, path, draws)
    return found


def few_of(n):
    """Why so few draws are not judged, a clause."""
    return f"draws random numbers: {n} elements are too few to tell"


def drawn(path, reason, n, sizes, verdict="pass", few=False):
    """The finding on an output of which only the draws were tested: it has no bits."""
    return Finding(path, verdict, reason, math.nan, math.nan, n, sizes, few=few)


def _output(found, call, answer, again, path, draws):
    """Adds the finding on one output."""
    device = answer.outputs[path]
    rows = [d[path] for d in draws]
    n, sizes = device.numel(), tuple(device.shape)
    if any(r.shape != device.shape for r in rows):
        why = "draws random numbers, and its shape hangs on them"
        return found.extend([Finding(path, "unjudged", why, n=n, sizes=sizes)])
    if all(torch.equal(r, rows[0]) for r in rows[1:]) and n:
        operands = Operands(call, Timing())
        operands.reference.may_draw = True
        operands.begin()
        return judge_output(found, operands, answer, path)
    problem = _compare(device, rows)
    if not problem and again is not None and n >= ENOUGH:
        twin = again.outputs.get(path)
        if twin is not None and torch.equal(twin, device):
            problem = "two calls give the same numbers"
    if problem:
        kind = "nonfinite" if problem.startswith("NaN") else "wrong"
        return found.extend([Finding(path, kind, problem, 0.0, n=n, sizes=sizes)])
    if n < ENOUGH:
        return found.extend([drawn(path, few_of(n), n, sizes, "unjudged", few=True)])
    found.extend([drawn(path, SPREAD_ONLY, n, sizes)])
    return found.excuse(len(found) - 1, "spread", n)


def _compare(device, rows):
    """What is odd about the device's answer among the draws, a clause."""
    low = [r.to(device.dtype) for r in rows]
    table = torch.stack([_part(t) for t in (device, *low)])
    live = table[1:].isfinite().all(0)
    bad = live & ~table[0].isfinite()
    if bool(bad.any()):
        return f"NaN or Inf in {int(bad.sum()):,} elements where no draw of the CPU has one"
    table = table[:, live]
    if not table.shape[1]:
        return ""
    near = _near(table, device.dtype)
    problem = _novel(table, near)
    if problem or table.shape[1] < ENOUGH:
        return problem
    table[0] = near
    even = _ranks(table)
    numbers = torch.stack([_statistics(u) for u in even])
    numbers = torch.cat([numbers, _sizes(table)], 1)
    crowd = numbers[1:]
    middle, spread = crowd.mean(0), crowd.std(0)
    bound = torch.maximum(torch.tensor(BOUNDS, dtype=torch.float64), FAR * spread)
    odd = (numbers[0] - middle).abs() > bound + 1e-12 * middle.abs()
    if not bool(odd.any()):
        return ""
    i = int(odd.nonzero()[0])
    z = float((numbers[0, i] - middle[i]) / spread[i])
    return f"{NAMES[i]} is not that of {N_DRAWS} draws of the CPU ({z:+.1f} standard deviations)"


def _part(tensor):
    flat = tensor.reshape(-1)
    if flat.numel() > N_ELEMENTS:
        flat = torch.cat([flat[: N_ELEMENTS // 2], flat[-N_ELEMENTS // 2 :]])
    return flat.double()


def _near(table, dtype):
    """The device's elements, moved upon the nearest draw where rounding explains the gap."""
    crowd, mine = table[1:], table[0]
    gap, at = (crowd - mine).abs().min(0)
    reach = torch.zeros_like(gap)
    if dtype.is_floating_point:
        most = crowd.abs().max(0).values
        reach = (2.0**-12 + torch.finfo(dtype).eps) * most
        reach += 2.0**-14 * float(crowd.square().mean().sqrt())
    return torch.where(gap <= reach, crowd.gather(0, at[None])[0], mine)


def _novel(table, near):
    """Values that none of the draws has, where draws share their values."""
    mine = int((near != table[1:]).all(0).sum())
    others = [int((table[k] != table[torch.arange(len(table)) != k][0:]).all(0).sum())
              for k in range(1, len(table))]  # fmt: skip
    total, share = mine + sum(others), 1 / len(table)
    if mine <= 4 * max(others):
        return ""
    log_tail = mine * math.log(share * max(total, 1) / max(mine, 1)) + (mine - total * share)
    if log_tail > math.log(CHANCE):
        return ""
    return f"{mine:,} elements have values that no draw of the CPU has"


def _ranks(table):
    """Each row's place among the others, element by element, ties by chance: even on [0, 1)
    for every row that comes from the same draws."""
    generator = torch.Generator().manual_seed(0x7A11)
    out = torch.empty_like(table)
    for j, row in enumerate(table):
        less = (table < row).sum(0)
        ties = (table == row).sum(0)
        at = torch.rand(row.shape, generator=generator, dtype=torch.float64)
        out[j] = (less + at * ties) / len(table)
    return out


def _statistics(u):
    """One row's deviations: average, spread, distribution, blocks, lags."""
    n = u.numel()
    centred = u - 0.5
    average = centred.mean() * math.sqrt(12 * n)
    spread = (centred.square().mean() - 1 / 12) * math.sqrt(180 * n)
    steps = torch.arange(n, dtype=torch.float64) / n
    sorted_ = u.sort().values
    gap = torch.maximum((sorted_ - steps).max(), (steps + 1 / n - sorted_).max())
    blocks = torch.stack([b.mean().abs() * math.sqrt(12 * b.numel())
                          for b in centred.split(-(-n // 32))]).max()  # fmt: skip
    size = 1 << (2 * n - 1).bit_length()
    power = torch.fft.rfft(centred - centred.mean(), size).abs().square()
    lags = torch.fft.irfft(power, size)[: n // 2 + 1]
    most = (lags[1:] / lags[0]).abs().max() * math.sqrt(n)
    return torch.stack([average, spread, gap * math.sqrt(n), blocks, most])


def _sizes(table):
    """How large each row is along the others' mean, and how far from it."""
    total, squares = table[1:].sum(0), table[1:].square().sum(0)
    out = []
    for j, row in enumerate(table):
        n = len(table) - 1 - (j > 0)
        mean = (total - row * (j > 0)) / n
        variance = ((squares - row.square() * (j > 0)) / n - mean.square()).clamp(min=0)
        along = (row * mean).sum() / mean.square().sum().clamp(min=1e-300)
        apart = (row - mean).square().sum() / variance.sum().clamp(min=1e-300)
        out.append(torch.stack([along, apart]))
    return torch.stack(out)
