# SPDX-License-Identifier: Apache-2.0
"""`python run_ut.py` and `python run_overflow_check.py`: both hand over to the program `ulpscope
compat`. Of torch they need which kind of device there is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KINDS = ("npu", "cuda", "musa")


def device_type(config: Any) -> str:
    """The kind of device to test: $ULPSCOPE_COMPAT_DEVICE, else what config.yaml names, else what
    torch has, else the CPU."""
    wanted = os.environ.get("ULPSCOPE_COMPAT_DEVICE") or config.device
    if wanted:
        return wanted
    import torch

    for kind in KINDS:
        try:
            __import__(f"torch_{kind}")
        except ImportError:
            pass
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return kind
    return "cpu"


def compiler(kind: str) -> str:
    """What -j compiles with: inductor where it generates code for the device, else torch.compile's
    own tracing, with the device's kernels."""
    from ....calls.torch_private import inductor_serves

    return "inductor" if kind == "cpu" or inductor_serves(kind) else "aot_eager"


def error_data(words: Sequence[str], config: Any) -> Any:
    """Where the inputs and outputs of calls that fail go: what the program that made the dump told
    update_config, else what config.yaml says."""
    for word, after in zip(words, [*words[1:], ""]):
        option, sign, value = word.partition("=")
        if word.startswith("-") and "forward_input_file".startswith(option.lstrip("-")) and option.strip("-"):
            folder, name = os.path.split(value if sign else after)
            said = Path(folder, name.replace("forward", "config", 1))
            if "forward" in name and said.is_file():
                return json.loads(said.read_text(encoding="utf-8"))["error_data_path"]
    return config.error_data_path


def hand_over(part: str, script: str | None = None) -> int:
    """Becomes `ulpscope compat PART` with the options of this process; 2 where it cannot.
    `script` lies in the run_ut folder whose package has the config.yaml that counts."""
    from ..common.config import Config, msCheckerConfig, pattern

    words = sys.argv[1:]
    try:
        config = msCheckerConfig if script is None else Config(Path(script).resolve().parents[1] / "config.yaml")
        if "-h" not in words and "--help" not in words:
            kind = device_type(config)
            if config.jit_compile:
                words.insert(0, "-j")
            if any(word == "-j" or word.lstrip("-").startswith("jit") for word in words if word.startswith("-")):
                words = ["--via", compiler(kind), *words]
            words = ["--device-type", kind, "--error-data", error_data(words, config), *words]
            if config.white_list:
                words += ["--ops", pattern(config.white_list)]
        os.execv(sys.executable, [sys.executable, "-m", "ulpscope", "compat", part, *words])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        print(f"{part}: {problem}", file=sys.stderr)
        return 2
