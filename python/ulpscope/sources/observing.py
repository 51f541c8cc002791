# SPDX-License-Identifier: Apache-2.0
"""What operators got and gave while a program trains, as JSON lines.

`observe` is the public context manager; glue/intercept/reroute_observe.cpp writes the lines."""

import os

from . import reroute as _reroute

VARIABLE = "TORCH_MUSA_OP_DEBUG"
LEVELS = range(1, 7)


class observe(_reroute.Rerouted):  # noqa: N801 - it is used like a function
    """
    Writes a JSON line for each operator call into the file `output` while the block runs.

        with ulpscope.observe(output="calls.jsonl", ops="*norm*"):
            train()

    | `level` | of each tensor |
    | 1 | name, dtype, device, shape, stride |
    | 2 | a signature too: counts of elements, NaN and Inf; min, max, mean, std, sum, sum of |x|, the values nearest to zero on each side, NaN and Inf left out; of booleans how many are true |
    | 3 | its first `length` values instead |
    | 4 | all values instead |
    | 5 | signature and first values |
    | 6 | signature and all values |

    A line has `call` (from 1), `op`, `phase`, `thread`, `arguments` as a trace has them, `inputs`
    before the call and `outputs` behind it, written arguments among them. Two runs, or devices, are
    compared by their signatures without moving a tensor. From level 2 on the device is waited for. The file
    is appended to; lines stand there when a step or the block ends. `ops`, `steps`, `ranks`, `threads`, `step_by` as in `nan_tracker`; give each rank its own file.

    Raises ValueError for bad arguments; a file that cannot be written is said, and the program goes on.
    """

    def __init__(self, level=1, length=50, ops="*", output="observed.jsonl", steps=None, ranks=None,
                 threads=None, step_by=None):  # fmt: skip
        if level not in LEVELS or isinstance(level, bool):
            raise ValueError(f"level {level!r}: 1 to 6")
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise ValueError(f"length {length!r}: how many values of a tensor, from 0")
        super().__init__("observe", ops, steps, ranks, None, threads, step_by,
                         output=os.path.abspath(output), level=level, length=length)  # fmt: skip
        self.NOUN = "observe()"
        self.output = output

    @classmethod
    def from_environment(cls):
        """
        The mode that torch_musa's variables ask for, not entered; None where they ask for none.

        TORCH_MUSA_OP_DEBUG (on), _LEVEL, _LENGTH, _LIST or _BLACK_LIST (comma-separated parts of
        operator names), _DIR (the folder of observed.jsonl; ./DEBUG_DIR, with _N behind it
        where it exists). Raises ValueError with a sentence for other values.
        """
        given = {name: os.environ.get(f"{VARIABLE}_{name}", "") for name in ("LEVEL", "LENGTH", "LIST", "BLACK_LIST", "DIR")}
        if os.environ.get(VARIABLE, "").lower() not in ("1", "on", "true", "yes"):
            return None
        if given["LIST"] and given["BLACK_LIST"]:
            raise ValueError(f"{VARIABLE}_LIST and {VARIABLE}_BLACK_LIST exclude each other: set one")
        folder = _free(given["DIR"] or "DEBUG_DIR")
        mode = cls(_number("LEVEL", given["LEVEL"] or "1"), _number("LENGTH", given["LENGTH"] or "50"),
                   _pattern(given["LIST"], "") or _pattern(given["BLACK_LIST"], "!") or "*",
                   os.path.join(folder, "observed.jsonl"))  # fmt: skip
        os.makedirs(folder)
        return mode


def _number(name, text):
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{VARIABLE}_{name} '{text}': a number") from None


def _pattern(parts, mark):
    """A PATTERN of names that hold one of the parts, as they are written and in small letters:
    torch's are."""
    words = [w.strip() for w in parts.split(",") if w.strip()]
    return ",".join(f"{mark}*{w}*" for word in words for w in dict.fromkeys((word, word.lower())))


def _free(folder):
    """The folder, or the first folder_N that is not there."""
    names = [folder, *(f"{folder}_{n}" for n in range(1, 1000))]
    return next(name for name in names if not os.path.exists(name))
