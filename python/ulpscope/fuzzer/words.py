# SPDX-License-Identifier: Apache-2.0
"""The operators that short programs are made of (`fuzzer.short_programs`), as lines of torch text, and a trace
of one call of each, in the cache folder, from which `ulpscope fuzz --programs` gives each its turn:
`python -m ulpscope.fuzzer.words`. Needs of torch nothing private.

A word is (operator of ATen that it is known as, the outermost that runs; text, marks). In a text stand operands {a},
{b}, {c}, axes {d}, {e} of a, {n} of 1 to 3, {k} a constant. Marks: "=" where the result is a choice among numbers that
the operands have, so that nothing is rounded; "!" where a rounding error of an operand may become a step:
then operands must be such.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from ..calls.foreign import set_aside
from ..program.capture import Recorder
from . import examples

_POINTWISE = (
    "exp expm1 log log1p log2 sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc sigmoid lgamma digamma exp2 sinc"
)
_FUNCTIONAL = (
    "gelu silu elu selu celu softplus hardswish hardsigmoid hardtanh mish leaky_relu relu6 softsign logsigmoid"
)
_ALIAS = {"logsigmoid": "log_sigmoid", "softsign": "div"}
_COPIED = "abs neg relu"
_STEPS = "floor ceil round trunc sign frac"

WORDS = (
    *((_ALIAS.get(n, n), f"torch.{n}({{a}})", "") for n in _POINTWISE.split()),
    *((_ALIAS.get(n, n), f"F.{n}({{a}})", "") for n in _FUNCTIONAL.split()),
    *((n, f"torch.{n}({{a}})", "=") for n in _COPIED.split()),
    *((n, f"torch.{n}({{a}})", "=!") for n in _STEPS.split()),
    ("gelu", "F.gelu({a}, approximate='tanh')", ""),
    ("add", "{a} + {b}", ""),
    ("sub", "{a} - {b}", ""),
    ("mul", "{a} * {b}", ""),
    ("div", "{a} / {b}", ""),
    ("add", "torch.add({a}, {b}, alpha={k})", ""),
    ("rsub", "{k} - {a}", ""),
    ("mul", "{a} * {k}", ""),
    ("div", "{a} / {k}", ""),
    ("pow", "{a} ** {n}", ""),
    ("pow", "torch.pow({a}.abs(), {b})", ""),
    ("atan2", "torch.atan2({a}, {b})", ""),
    ("hypot", "torch.hypot({a}, {b})", ""),
    ("logaddexp", "torch.logaddexp({a}, {b})", ""),
    ("xlogy", "torch.xlogy({a}, {b})", "!"),
    ("lerp", "torch.lerp({a}, {b}, 0.25)", ""),
    ("addcmul", "torch.addcmul({a}, {b}, {c}, value={k})", ""),
    ("addcdiv", "torch.addcdiv({a}, {b}, {c})", ""),
    ("copysign", "torch.copysign({a}, {b})", "=!"),
    ("maximum", "torch.maximum({a}, {b})", "="),
    ("minimum", "torch.minimum({a}, {b})", "="),
    ("fmax", "torch.fmax({a}, {b})", "="),
    ("clamp", "torch.clamp({a}, -{k}, {k})", "="),
    ("where", "torch.where({c} > 0, {a}, {b})", "=!"),
    ("masked_fill", "{a}.masked_fill({b} > 0, {k})", "=!"),
    ("gt", "{a} > {b}", "=!"),
    ("eq", "{a} == {b}", "=!"),
    ("isnan", "torch.isnan({a})", "=!"),
    ("nan_to_num", "torch.nan_to_num({a})", "=!"),
    ("threshold", "F.threshold({a}, 0.25, {k})", "=!"),
    ("remainder", "{a} % {b}", "!"),
    ("remainder", "{a} % {n}", "!"),
    ("floor_divide", "{a} // {b}", "=!"),
    ("div", "torch.div({a}, {b}, rounding_mode='trunc')", "=!"),
    ("fmod", "torch.fmod({a}, {b})", "!"),
    ("__and__", "{a} & {b}", "=!"),
    ("__xor__", "{a} ^ {b}", "=!"),
    ("__lshift__", "{a} << {n}", "=!"),
    ("__rshift__", "{a} >> {n}", "=!"),
    ("bitwise_not", "~{a}", "=!"),
    ("sum", "{a}.sum({d})", ""),
    ("sum", "{a}.sum({d}, keepdim=True)", ""),
    ("sum", "{a}.sum()", ""),
    ("mean", "{a}.mean({d}, keepdim=True)", ""),
    ("mean", "{a}.mean()", ""),
    ("prod", "{a}.prod({d})", ""),
    ("var", "{a}.var({d}, keepdim=True)", ""),
    ("var", "{a}.var({d}, correction=0)", ""),
    ("std", "{a}.std({d})", ""),
    ("amax", "{a}.amax({d}, keepdim=True)", "="),
    ("amin", "{a}.amin({d})", "="),
    ("argmax", "{a}.argmax({d})", "=!"),
    ("any", "({a} > 0).any({d})", "=!"),
    ("linalg_vector_norm", "torch.linalg.vector_norm({a}, dim={d})", ""),
    ("logsumexp", "torch.logsumexp({a}, {d})", ""),
    ("softmax", "torch.softmax({a}, {d})", ""),
    ("log_softmax", "torch.log_softmax({a}, {d})", ""),
    ("cumsum", "torch.cumsum({a}, {d})", ""),
    ("cumprod", "torch.cumprod({a}, {d})", ""),
    ("logcumsumexp", "torch.logcumsumexp({a}, {d})", ""),
    ("layer_norm", "F.layer_norm({a}, {a}.shape[-1:])", ""),
    ("rms_norm", "F.rms_norm({a}, {a}.shape[-1:])", ""),
    ("group_norm", "F.group_norm({a}, 1)", ""),
    ("cummax", "torch.cummax({a}, {d})[0]", "="),
    ("sort", "torch.sort({a}, dim={d})[0]", "="),
    ("topk", "torch.topk({a}, 1, {d})[0]", "="),
    ("matmul", "{a} @ {b}", ""),
    ("matmul", "{a} @ {a}.mT", ""),
    ("matmul", "{a}.mT @ {b}", ""),
    ("addmm", "torch.addmm({c}, {a}, {b}, beta={k})", ""),
    ("linear", "F.linear({a}, {b})", ""),
    ("transpose", "{a}.transpose({d}, {e})", "="),
    ("reshape", "{a}.reshape(-1)", "="),
    ("unsqueeze", "{a}.unsqueeze({d})", "="),
    ("flip", "{a}.flip({d})", "="),
    ("roll", "{a}.roll({n}, {d})", "="),
    ("cat", "torch.cat([{a}, {b}], {d})", "="),
    ("stack", "torch.stack([{a}, {b}], {d})", "="),
    ("narrow", "{a}.narrow({d}, 0, {n})", "="),
    ("slice", "{a}[..., ::2]", "="),
    ("slice", "{a}[{n}:]", "="),
    ("select", "{a}.select({d}, -1)", "="),
    ("pad", "F.pad({a}, ({n}, 1))", "="),
    ("pad", "F.pad({a}, (-1, {n}), value={k})", "="),
    ("tril", "{a}.tril()", "="),
    ("triu", "{a}.triu({n})", "="),
    ("repeat_interleave", "{a}.repeat_interleave({n}, {d})", "="),
    ("expand_as", "{a}.unsqueeze({d}).expand_as(torch.stack([{a}, {a}], {d}))", "="),
    ("diagonal", "{a}.diagonal()", "="),
    ("slice_scatter", "torch.slice_scatter({a}, {a}.narrow({d}, 0, 1) * {k}, {d}, 0, 1)", ""),
    ("scatter_add", "torch.zeros_like({a}).scatter_add({d}, torch.zeros_like({a}, dtype=torch.int64), {a})", ""),
    ("gather", "torch.gather({a}, {d}, torch.zeros_like({a}, dtype=torch.int64))", "="),
    ("add_", "{a}.clone().add_({b})", ""),
    ("mul_", "{a}.clone().mul_({b})", ""),
    ("avg_pool2d", "F.avg_pool2d({a}, 2)", ""),
    ("avg_pool2d", "F.avg_pool2d({a}, 3, 1, 1)", ""),
    ("max_pool2d", "F.max_pool2d({a}, 2, 2)", "="),
    ("adaptive_avg_pool2d", "F.adaptive_avg_pool2d({a}, {n})", ""),
    ("upsample_nearest2d", "F.interpolate({a}, scale_factor=2)", "="),
    ("upsample_bilinear2d", "F.interpolate({a}, scale_factor=2, mode='bilinear')", ""),
    ("to", "{a}.to(torch.bfloat16)", ""),
    ("to", "{a}.to(torch.float16)", ""),
    ("to", "{a}.float()", "="),
    ("to", "{a}.to(torch.int32)", "!"),
)
CONSTANTS = (0.5, 2.0, 3.0, 0.1, 1.5, 7.0, 1e-3, 100.0)


def line(word: int, operands: Sequence[str], ndim: int, numbers: tuple[int, int]) -> str:
    """The text of a word with these names of operands; the first one has `ndim` axes."""
    text = WORDS[word][1]
    if not ndim and ("{d}" in text or "{e}" in text):
        raise ValueError("no axis to choose")
    axes = {"d": numbers[0] % max(ndim, 1), "e": numbers[1] % max(ndim, 1)}
    return text.format(
        *(), **dict(zip("abc", operands)), **axes, n=1 + numbers[1] % 3, k=CONSTANTS[numbers[1] // 3 % len(CONSTANTS)]
    )


def run(text: str, names: dict[str, torch.Tensor]) -> Any:
    """What a line of torch gives."""
    return eval(text, {"torch": torch, "F": F, **names})  # the text is ours


def sampled(word: int) -> tuple[str, dict[str, torch.Tensor]]:
    """Some tensors that a word takes, on the CPU: (text, names)."""
    for make in (torch.rand, lambda *s: torch.randint(1, 4, s)):
        for shape in ((3, 3), (2, 1, 4, 4), (3,)):
            names = {n: make(*shape) for n in "abc"}
            text = line(word, "abc", len(shape), (0, 3))
            with set_aside():  # of another dtype or with other axes
                run(text, names)
                return text, names
    raise ValueError(f"no tensors are known that {WORDS[word][1]} takes")


def record(path: Path) -> None:
    """Writes the trace."""
    calls = [sampled(i) for i in range(len(WORDS))]
    recorder = Recorder(path, data="stats")
    recorder.begin(0)
    try:
        for text, names in calls:
            run(text, names)
    finally:
        recorder.end()
        recorder.close()


def folder() -> Path:
    """Where the trace of this version of torch lies, or will."""
    return examples.folder("words")


def made(path: Path, record: Callable[[Path], Any]) -> None:
    """Makes a trace in the cache folder unless it is there."""
    if (path / "trace.db").exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as room:
        record(Path(room) / "trace")
        with contextlib.suppress(FileExistsError, OSError):  # another process was first
            (Path(room) / "trace").rename(path)


def main() -> int:
    """Makes the trace unless it is there, and prints where, or why not."""
    try:
        made(folder(), record)
        print(f"examples lie in {folder()}", flush=True)
    except (RuntimeError, OSError, ValueError) as problem:
        print(f"examples lie in no folder: {problem}", flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
