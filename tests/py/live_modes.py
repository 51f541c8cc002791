# SPDX-License-Identifier: Apache-2.0
"""Every mode that works while a program trains, in one table, with what an honest program shows
under it; and small models to put under them. For test_every_mode and test_mode_situations."""

import contextlib
import dataclasses
import importlib.util
import json
import os
from typing import Any, Callable

import torch

import ulpscope
import ulpscope.sim  # noqa: F401  # registers the device


torch.use_deterministic_algorithms(False)  # torch sets a variable the first time, and keeps it


class Trial(contextlib.ContextDecorator):
    """A trial of `ulpscope bisect`, in this process."""

    def __init__(self, folder):
        self.folder, self.error = folder, None

    def __enter__(self):
        from ulpscope.program import reroute, trial

        self.folder.mkdir()
        modes = reroute.from_text(json.dumps([{"do": "fallback", "ops": "*"}]))
        for mode in modes:
            mode.__enter__()
        self.failed, self.trial = modes[0], trial.Trial(self.folder, modes)
        return self

    def __exit__(self, *raised):
        self.trial.end()
        told = self.folder / "operators"  # there is none where none was moved
        self.moved = dict(line.split() for line in told.read_text().splitlines()) if told.exists() else {}
        return False


@dataclasses.dataclass
class Mode:
    """`make(folder)`: the mode; `honest(mode)`: whether it saw the program and accuses nothing.
    `exact`: the program's numbers are those of a run without it, bit by bit; `cpu_draws`: but for random numbers,
    which come from the CPU's generator, as on the CPU."""

    make: Callable[[Any], Any]
    honest: Callable[[Any], bool]
    exact: bool = True
    judges: bool = False  # in a process of its own
    cpu_draws: bool = False


def took(mode):
    return sum(mode.n_calls.values()) > 0


def nan(**options):
    return Mode(
        lambda folder: ulpscope.nan_tracker(**options, output=folder / "ring"),
        lambda m: m.births() == [] and m.n_calls > 20 and m.trace is None,
    )


def live(**options):
    return Mode(
        lambda folder: ulpscope.live_check(**options),
        judges=True,
        honest=lambda m: [f.sentence for f in m.findings()] == [] and m.n_judged > 0,
    )


def observed(mode):
    with open(mode.output) as file:
        return sum(mode.n_calls.values()) == sum(1 for _ in file) > 20


def again(a, b):
    return torch.mm(a, b)  # inside it is the operator itself


MODES = {
    "live": live(),
    "live_modules": live(level="module"),
    "nan": nan(),
    "nan_ring": nan(keep_calls=20),
    "fallback": Mode(lambda _: ulpscope.fallback("*"), took, cpu_draws=True),
    "cast": Mode(lambda _: ulpscope.cast("*norm*,*softmax*,mm,addmm,bmm,tanh", "float64"), took, exact=False),
    "substitute": Mode(lambda _: ulpscope.substitute("aten::mm", again), took),
    "fp32_collectives": Mode(lambda _: ulpscope.fp32_collectives(), lambda m: m.n_calls == {}),
    "deterministic": Mode(lambda _: ulpscope.deterministic(), lambda m: m.problems == []),
    "seed_all": Mode(lambda _: ulpscope.seed_all(0), lambda m: True, cpu_draws=True),
    "time_ops": Mode(lambda _: ulpscope.time_ops(), lambda m: len(m.rows()) > 10 and "mm" in m.table(1000)),
    "observe": Mode(lambda folder: ulpscope.observe(2, output=folder / "observed.jsonl"), observed),
    "bisect_trial": Mode(lambda folder: Trial(folder / "trial"), lambda m: len(m.moved) > 10, cpu_draws=True),
    "capture": Mode(lambda folder: ulpscope.capture(folder / "trace"), lambda m: m.counts["calls"] > 20),
}


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = torch.nn.LSTM(8, 16, num_layers=2, batch_first=True), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.inner(x)[0][:, -1])


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 32), torch.nn.Linear(32, 4)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return self.down(checkpoint(lambda y: torch.tanh(self.up(y)), x, use_reentrant=False))


class Tokens(torch.nn.Module):
    """A language model of a configuration, with random weights, from `transformers`."""

    def __init__(self):
        super().__init__()
        import transformers

        config = transformers.GPT2Config(
            n_layer=2, n_head=2, n_embd=16, vocab_size=32, n_positions=16, bos_token_id=0, eos_token_id=0
        )
        self.gpt = transformers.GPT2LMHeadModel(config)

    def forward(self, x):
        ids = x.abs().mul(8).long().clamp(0, 31)
        return self.gpt(ids, labels=ids).loss


def conv():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(8 * 16, 4),
    )


MODELS = {
    "transformer": (Tokens, (2, 8)),
    "conv": (conv, (4, 3, 8, 8)),
    "lstm": (Lstm, (4, 5, 8)),
    "checkpoint": (Checkpointed, (4, 8)),
    "autocast": (Checkpointed, (4, 8)),
}
if importlib.util.find_spec("transformers") is None:
    del MODELS["transformer"]  # ./run test said so


def train(model, device="sim:0", after=lambda step: None):
    """Losses and parameters after two steps, and the state of the generator."""
    make, shape = MODELS[model]
    torch.manual_seed(0)
    net = make().to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    for step in range(2):
        opt.zero_grad()
        x = torch.randn(shape).to(device)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=model == "autocast"):
            loss = net(x).float().pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        after(step)
    return [torch.tensor(losses), *(p.detach().cpu().clone() for p in net.parameters()), torch.get_rng_state()]


def same(one, other, exact=True):
    """Whether two runs came to the same numbers."""
    if exact:
        return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    return all(torch.allclose(a, b, rtol=1e-2, atol=1e-3) for a, b in zip(one[:-1], other[:-1], strict=True))


def leave(mode):
    """Random numbers of devices are their own again."""
    if hasattr(mode, "remove"):
        mode.remove()


def variables():
    """What a mode must leave as it was."""
    return dict(os.environ), os.getcwd(), torch.are_deterministic_algorithms_enabled()
