# SPDX-License-Identifier: Apache-2.0
"""Short programs: two to six operators, one after the other, that fit together by type. What is drawn is a
structure (`_core.fuzz_program`, `_core.fuzz_step`); shapes and dtypes are those that torch infers on meta tensors;
a step that torch refuses there is drawn again. A program is a Python function of its inputs, as text.
Needs of torch meta tensors.
"""

from __future__ import annotations

import linecache
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from .. import _core
from ..calls.callable import Composite, call_of
from ..calls.foreign import foreign
from ..calls.read_call import dtype_named
from ..calls.replay import BadCall, base_name
from ..calls.verdicts import clause
from . import words

ATTEMPTS, TRIALS = _core.fuzz_attempts, _core.fuzz_trials
MOST = 1 << 15  # elements of a value
DOMAIN = (False, False, -4, 9)  # of whole numbers


@dataclass(frozen=True)
class ShortStep:
    """One line: a word, the places of its operands among inputs and earlier results, numbers for its text."""

    word: int
    operands: tuple
    numbers: tuple


@dataclass(frozen=True)
class Program:
    """Inputs as (tensor as `_core.fuzz_fill` takes it, kind of values, text that makes its values or ""), and steps."""

    seed: int
    case: int
    inputs: tuple
    steps: tuple

    def names(self) -> str:
        return string.ascii_lowercase[: len(self.inputs) + len(self.steps)]

    def operands(self, step: ShortStep) -> list[int]:
        """Places of the operands that its text reads."""
        text = words.WORDS[step.word][1]
        return [at for at, letter in zip(step.operands, "abc") if f"{{{letter}}}" in text]

    def lines(self) -> list[tuple[str, str]]:
        """(name, text) of each step. ValueError or what torch raises where they do not go together."""
        return [(name, text) for name, text, _ in self._inferred()]

    def _inferred(self):
        """(name, text, meta tensor) of each step."""
        values, exact, out = [on_meta(t) for t, *_ in self.inputs], [True] * len(self.inputs), []
        for step in self.steps:
            text, value = inferred(self, step, values, exact)
            out.append((self.names()[len(values)], text, value))
            values.append(value)
            exact.append(stays_exact(self, step, exact, value))
        return out

    def unread(self) -> list[int]:
        """Places of the values that no step reads: the results."""
        read = {at for step in self.steps for at in self.operands(step)}
        return [i for i in range(len(self.inputs), len(self.names())) if i not in read]

    def text(self, name: str = "program") -> str:
        """The program as a function."""
        given, back = ", ".join(self.names()[: len(self.inputs)]), ", ".join(self.names()[i] for i in self.unread())
        body = [f"    {to} = {text}" for to, text in self.lines()]
        return "\n".join([f"def {name}({given}):", *body, f"    return {back}", ""])

    def function(self) -> Callable[..., Any]:
        """The program, to be called."""
        return made(self.text(), f"<program {self.seed}:{self.case}>")

    def inputs_said(self) -> str:
        """One phrase on the inputs."""
        return ", ".join(f"{name} {t[0]}{list(t[1])} {kind}" for name, (t, kind, *_) in zip(self.names(), self.inputs))

    def tensors(self) -> list[torch.Tensor]:
        """Its inputs, on the CPU."""
        return [filled(self, i) for i in range(len(self.inputs))]

    def call(self) -> Composite:
        """The program as one call."""
        call = call_of(self.function(), tuple(self.tensors()))
        if call.problem:
            raise BadCall(call.problem)
        return call


def made(text: str, file: str) -> Callable[..., Any]:
    """The function that a text defines; its source can be looked up as that of a file."""
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {"torch": torch, "F": F, "__name__": __name__}
    exec(compile(text, file, "exec"), space)  # the text is ours
    return space["program"]


def on_meta(t: tuple[Any, ...]) -> torch.Tensor:
    return torch.empty_strided(t[1], t[2], dtype=dtype_named(t[0]), device="meta")


def filled(program: Program, i: int) -> torch.Tensor:
    """An input with its values."""
    t, kind, *how = program.inputs[i]
    dtype = dtype_named(t[0])
    if how and how[0]:
        values = eval(how[0], {"torch": torch})  # a text of the shrinker's
        return torch.empty_strided(t[1], t[2], dtype=dtype).copy_(values.to(dtype))
    raw = _core.fuzz_fill(program.seed, program.case, i, t, kind, DOMAIN)
    return torch.frombuffer(raw, dtype=dtype).as_strided(t[1], t[2], t[3])


def inferred(
    program: Program, step: ShortStep, values: Sequence[torch.Tensor], exact: Sequence[bool]
) -> tuple[str, torch.Tensor]:
    """(text, meta tensor) of a step. ValueError, or what torch raises, where it does not go."""
    if "!" in words.WORDS[step.word][2] and not all(exact[at] for at in program.operands(step)):
        raise ValueError("a rounding error would become a step")
    names = string.ascii_lowercase
    text = words.line(step.word, [names[at] for at in step.operands], values[step.operands[0]].ndim, step.numbers)
    value = words.run(text, {names[i]: v for i, v in enumerate(values)})
    if not isinstance(value, torch.Tensor) or not 0 < value.numel() <= MOST or value.is_complex():
        raise ValueError("no tensor of a size to judge")
    return text, value


def stays_exact(program: Program, step: ShortStep, exact: Sequence[bool], value: torch.Tensor) -> bool:
    """Whether nothing is rounded on the way to a value."""
    return (not value.is_floating_point() or "=" in words.WORDS[step.word][2]) and all(
        exact[at] for at in program.operands(step)
    )


# ---- drawing ---------------------------------------------------------------------------


def drawn(seed: int, case: int, op: str = "") -> tuple[Program, Composite]:
    """The program that a case is, with a word of the operator `op` in it. BadCall where none can be had."""
    why, featured = "", [i for i, w in enumerate(words.WORDS) if op and w[0] == base_name(op)[1]]
    for attempt in range(ATTEMPTS):
        program = _attempt(seed, case, attempt, featured)
        try:
            if program is not None:
                return program, program.call()
            why = "no step fits"
        except BadCall as problem:
            why = clause(problem)
    raise BadCall(f"the CPU takes none of {ATTEMPTS} draws: {why}")


def _attempt(seed, case, attempt, featured):
    n_steps, at, inputs = _core.fuzz_program(seed, case, attempt)
    program = Program(seed, case, tuple((t, kind, "") for t, kind in inputs), ())
    values, exact = [on_meta(t) for t, *_ in program.inputs], [True] * len(inputs)
    for i in range(n_steps):
        step = _fitting(program, attempt, featured if i == at else [], values, exact)
        if step is None:
            return None
        step, value = step
        exact.append(stays_exact(program, step, exact, value))
        values.append(value)
        program = replace(program, steps=(*program.steps, step))
    return program


def _fitting(program, attempt, featured, values, exact):
    """(step, meta tensor): the first trial that torch takes."""
    for trial in range(TRIALS):
        n = len(featured) or len(words.WORDS)
        word, *rest = _core.fuzz_step(program.seed, program.case, attempt, len(program.steps), trial, len(values), n)
        step = ShortStep(featured[word] if featured else word, *map(tuple, rest))
        try:
            return step, inferred(program, step, values, exact)[1]
        except Exception as problem:  # torch refuses in as many ways as there are operators
            foreign(problem)
            continue
    return None
