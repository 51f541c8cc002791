# SPDX-License-Identifier: Apache-2.0
"""What operators got and gave while a program trains, as JSON lines.

`observe` is the public context manager; glue/intercept/reroute_observe.cpp writes the lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from . import reroute as _reroute

if TYPE_CHECKING:
    from . import capture as _capture
    from . import program_mode as _mode

VARIABLE = "TORCH_MUSA_OP_DEBUG"
PARTS = ("LEVEL", "LENGTH", "LIST", "BLACK_LIST", "DIR")
DOUBLE_CAST = "TORCH_USE_MUSA_DOUBLE_CAST"
LEVELS = range(1, 7)


class observe(_reroute.Rerouted):  # noqa: N801 - it is used like a function
    """
    Writes a JSON line for each operator call into the file `output` while the block runs.

        with ulpscope.observe(output="calls.jsonl", ops="*norm*"):
            train()

    | `level` | of each tensor |
    | 1 | name, dtype, device, shape, stride |
    | 2 | a signature too: counts of elements, NaN and Inf; min, max, mean, std, sum, sum of |x|, the values nearest to
    zero on each side, NaN and Inf left out; of booleans how many are true |
    | 3 | its first `length` values instead |
    | 4 | all values instead |
    | 5 | signature and first values |
    | 6 | signature and all values |

    A line has `call` (from 1), `op`, `phase`, `thread`, `arguments` as a trace has them, `inputs`
    before the call and `outputs` behind it, written arguments among them. Two runs, or devices, are
    compared by their signatures without moving a tensor. From level 2 on the device is waited for. The file
    is appended to; lines stand there when a step or the block ends. `ops`, `steps`, `ranks`, `threads`, `step_by` as in
    `nan_tracker`; give each rank its own file.

    Raises ValueError for bad arguments; a file that cannot be written is said, and the program goes on.
    """

    def __init__(
        self,
        level: int = 1,
        length: int = 50,
        ops: str = "*",
        output: str | os.PathLike[str] = "observed.jsonl",
        steps: _capture.Steps = None,
        ranks: _mode.Numbers = None,
        threads: _mode.Numbers = None,
        step_by: str | None = None,
    ) -> None:
        if level not in LEVELS or isinstance(level, bool):
            raise ValueError(f"level {level!r}: 1 to 6")
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise ValueError(f"length {length!r}: how many values of a tensor, from 0")
        super().__init__(
            "observe",
            ops,
            steps,
            ranks,
            None,
            threads,
            step_by,
            output=os.path.abspath(output),
            level=level,
            length=length,
        )
        self.NOUN = "observe()"
        self.output = output

    @classmethod
    def from_environment(cls) -> observe | None:
        """
        The mode that torch_musa's variables ask for, not entered; None where they ask for none.

        TORCH_MUSA_OP_DEBUG (on), _LEVEL, _LENGTH, _LIST or _BLACK_LIST (comma-separated parts of
        operator names), _DIR (the folder of observed.jsonl; ./DEBUG_DIR, with _N behind it
        where it exists). `ulpscope run` enters it. Other variables of theirs about operators are
        named on stderr: they have no effect. Raises ValueError with a sentence for other values.
        """
        _say_idle()
        given = {name: os.environ.get(f"{VARIABLE}_{name}", "") for name in PARTS}
        if not asked_for():
            return None
        if given["LIST"] and given["BLACK_LIST"]:
            raise ValueError(f"{VARIABLE}_LIST and {VARIABLE}_BLACK_LIST exclude each other: set one")
        mode = cls(
            _number("LEVEL", given["LEVEL"] or "1"),
            _number("LENGTH", given["LENGTH"] or "50"),
            _pattern(given["LIST"], "") or _pattern(given["BLACK_LIST"], "!") or "*",
        )
        mode.write_to(os.path.join(_made(given["DIR"] or "DEBUG_DIR"), "observed.jsonl"))
        return mode

    def write_to(self, output: str | os.PathLike[str]) -> None:
        """Another file, before the mode is entered."""
        self.output = self.more["output"] = os.path.abspath(output)


def asked_for() -> bool:
    """Whether torch_musa's variable asks for it."""
    return os.environ.get(VARIABLE, "").lower() in ("1", "on", "true", "yes")


def _say_idle() -> None:
    """Names variables of theirs that are set and have no effect."""
    idle = {
        name: "no such variable"
        for name in os.environ
        if name.startswith(f"{VARIABLE}_") and name.removeprefix(f"{VARIABLE}_") not in PARTS
    }
    if os.environ.get(DOUBLE_CAST, "0").lower() not in ("", "0", "off", "false", "no"):
        idle[DOUBLE_CAST] = "ulpscope run --cast 'PATTERN=float32' computes operators in float32"
    for name, why in idle.items():
        print(f"ulpscope: {name} has no effect: {why}", file=sys.stderr)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{VARIABLE}_{name} '{text}': a number") from None


def _pattern(parts: str, mark: str) -> str:
    """A PATTERN of names that hold one of the parts, as they are written and in small letters:
    torch's are."""
    words = [w.strip() for w in parts.split(",") if w.strip()]
    return ",".join(f"{mark}*{w}*" for word in words for w in dict.fromkeys((word, word.lower())))


def _made(folder: str) -> str:
    """Makes the folder, or the first folder_N that is not there: ranks that begin together have one
    each. A ValueError where none can be made."""
    for name in [folder, *(f"{folder}_{n}" for n in range(1, 10000))]:
        try:
            os.makedirs(name)
            return name
        except FileExistsError:
            continue
        except OSError as error:
            raise ValueError(f"{VARIABLE}_DIR '{name}': {error.strerror}") from None
    raise ValueError(f"{VARIABLE}_DIR '{folder}': it is there, and 9999 with a number behind it")
