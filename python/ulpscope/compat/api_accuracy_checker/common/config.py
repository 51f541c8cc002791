# SPDX-License-Identifier: Apache-2.0
"""msCheckerConfig: what config.yaml says, and what a program changes of it. Needs no torch."""

from __future__ import annotations

import ast
import difflib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

KINDS: dict[str, type] = {
    "dump_path": str,
    "jit_compile": bool,
    "real_data": bool,
    "error_data_path": str,
    "target_iter": list,
    "white_list": list,
    "enable_dataloader": bool,
    "device": str,
    "dataloader_calls": bool,
}
INITIAL: dict[str, Any] = {
    "dump_path": "./",
    "jit_compile": False,
    "real_data": False,
    "error_data_path": "./",
    "target_iter": [1],
    "white_list": [],
    "enable_dataloader": True,
    "device": "",
    "dataloader_calls": False,
}
OWN = Path(__file__).resolve().parents[1]


def package() -> Path:
    """The folder of config.yaml: that of the installed shim where it is what was imported."""
    shim = getattr(sys.modules.get("api_accuracy_checker"), "__file__", None)
    return Path(shim).resolve().parent if shim else OWN


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The keys of a file of `key: value` lines, where a value is a scalar, a list in brackets or
    lines that begin with a dash. ValueError for anything else."""
    found: dict[str, Any] = {}
    key = None
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        line = line.split(" #")[0].rstrip()
        if not line or line.lstrip().startswith("#") or line == "---":
            continue
        if line.lstrip().startswith("- ") and key is not None and isinstance(found[key], (list, type(None))):
            found[key] = [*(found[key] or []), scalar(line.lstrip()[2:])]
            continue
        key, colon, value = line.partition(":")
        if not colon or key != key.strip():
            raise ValueError(f"{path}:{number}: '{line}' is no 'key: value'")
        value = value.strip()
        if value.startswith("["):
            if not value.endswith("]"):
                raise ValueError(f"{path}:{number}: the list does not end on its line")
            found[key] = [scalar(item) for item in value[1:-1].split(",") if item.strip()]
        else:
            found[key] = scalar(value) if value else None
    return found


def scalar(text: str) -> Any:
    """A value as YAML has it: true and True, numbers, text with quotes or without."""
    text = text.strip()
    known = {"true": True, "false": False, "null": None, "~": None}
    if text.lower() in known:
        return known[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class Config:
    """The settings as attributes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        said = read_yaml(path) if self.path.is_file() else {}
        self._values = dict(INITIAL)
        self._values.update((k, self._valid(k, v)) for k, v in said.items() if k in KINDS and v is not None)
        self._errors_to: str | None = None  # what the program said, from its own folder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(name)
        return self._values[name]

    def __str__(self) -> str:
        return "\n".join(f"{k}={v}" for k, v in self._values.items())

    def update_config(
        self,
        dump_path: Any = None,
        real_data: Any = None,
        target_iter: Any = None,
        white_list: Any = None,
        error_data_path: Any = None,
    ) -> None:
        """Changes what is given. ValueError where a value is of another type, `dump_path` or
        `error_data_path` is no folder, or a name of `white_list` is unknown."""
        given = {
            "dump_path": dump_path,
            "real_data": real_data,
            "target_iter": target_iter,
            "white_list": white_list,
            "error_data_path": error_data_path,
        }
        valid = {k: self._valid(k, v) for k, v in given.items() if v is not None}
        for key in ("dump_path", "error_data_path"):
            if key in valid and not os.path.isdir(valid[key]):
                raise ValueError(f"{key} '{valid[key]}' is no existing folder")
        self._values.update(valid)
        if "error_data_path" in valid:
            self._errors_to = os.path.abspath(valid["error_data_path"])

    def for_the_check(self) -> dict[str, Any]:
        """What run_ut, another process, has to know of what the program said."""
        return {} if self._errors_to is None else {"error_data_path": self._errors_to}

    def _valid(self, key: str, value: Any) -> Any:
        kind, given = KINDS[key], type(value)
        if not issubclass(given, kind):
            raise ValueError(f"{key} must be {kind.__name__} type, not {given.__name__}")
        if key == "target_iter":
            whole = all(isinstance(i, int) and not isinstance(i, bool) for i in value)
            if not value or not whole or min(value) < 0:
                raise ValueError("target_iter must be a list of one int or more, each of them 0 or above")
        if key == "white_list":
            check_white_list(value, self.path.parent)
        return value


def check_white_list(names: Iterable[str], folder: Path = OWN) -> None:
    """ValueError where a name is not in support_wrap_ops.yaml, with the one that it is like."""
    if not all(isinstance(name, str) for name in names):
        raise ValueError("white_list must be a list of str")
    if not names:
        return
    path = folder / "hook_module" / "support_wrap_ops.yaml"
    known = {
        name
        for space in read_yaml(path if path.is_file() else OWN / "hook_module" / path.name).values()
        for name in space or []
    }
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ValueError(
                f"white_list: {name} is not in support_wrap_ops.yaml" + (f"; did you mean {near[0]}?" if near else "")
            )


# Operators of the language that torch hands on under a name that is not theirs.
MEANS = {
    "__radd__": "add",
    "__rmul__": "mul",
    "__div__": "div",
    "__truediv__": "div",
    "__idiv__": "div_",
    "__itruediv__": "div_",
    "__rtruediv__": "__rdiv__",
    "__mod__": "remainder",
    "__imod__": "remainder_",
    "__ifloordiv__": "floor_divide_",
    "__pos__": "positive",
    "__nonzero__": "__bool__",
}


def pattern(names: Iterable[str]) -> str:
    """Calls of these names as a PATTERN. `a + b` is recorded as what it
    calls, add, `a += b` as add_: a list that says __add__ means these."""
    means = list(names)
    for name in names:
        bare = name[2:-2] if name.startswith("__") and name.endswith("__") else ""
        if name in MEANS:
            means.append(MEANS[name])
        elif bare:
            means += [bare, bare[1:] + "_"] if bare[0] == "i" else [bare]  # __iadd__, __invert__
    return ",".join(f"*.{name}" for name in means)


msCheckerConfig = Config(package() / "config.yaml")
