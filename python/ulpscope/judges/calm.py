# SPDX-License-Identifier: Apache-2.0
"""The same call with its chances set to zero: what a device computes apart from the dice can
be judged in full where it can be asked again. Serves `session.judging` and `session.api`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..calls.callable import parameters

if TYPE_CHECKING:
    from ..calls.replay import Call

# Arguments that say how likely an element is dropped, and the value that drops none.
CHANCES = {
    "dropout_p": 0.0,
    "p": 0.0,
    "dropout": 0.0,
    "drop_prob": 0.0,
    "dropout_prob": 0.0,
    "p_dropout": 0.0,
    "attn_dropout": 0.0,
    "keep_prob": 1.0,
}


# Attributes of modules that say it too, by how their names end; `p` only of what drops.
ENDINGS = ("dropout", "dropout_p", "drop_prob", "dropout_prob", "drop_rate", "drop_path")


def calm_call(call: Call) -> tuple[Call, str] | None:
    """The call of an operator without its chance, and the argument that was set; None where no
    argument is one."""
    if not call.schema:
        return None
    names = [a.name for a in call.schema.arguments]
    found = _calm(names, call.args, call.kwargs)
    return found and (replace(call, args=found[0], kwargs=found[1], live=None), found[2])


def calm_arguments(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], str] | None:
    """The same for the arguments of a Python callable: (args, kwargs, what was set) or None."""
    names = [p.name for p in parameters(fn) or ()]  # of a builtin its keywords are all that is known
    return _calm(names, args, kwargs)


def _calm(
    names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], str] | None:
    args, kwargs, said = list(args), dict(kwargs), []
    for i, name in enumerate(names[: len(args)]):
        if _is_chance(name, args[i]):
            args[i] = CHANCES[name]
            said.append(f"{name}={args[i]:g}")
    for name, value in kwargs.items():
        if _is_chance(name, value):
            kwargs[name] = CHANCES[name]
            said.append(f"{name}={kwargs[name]:g}")
    return (args, kwargs, ", ".join(said)) if said else None


def _is_chance(name: str, value: Any) -> bool:
    return name in CHANCES and isinstance(value, float) and 0 < value < 1


def calm_module(module: Any) -> tuple[torch.nn.Module, str] | None:
    """A copy of a module in which nothing is dropped, and what was set; None where nothing is."""
    if not isinstance(module, torch.nn.Module):
        return None
    module, said = copy.deepcopy(module), set()
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, float) and 0 < value < 1 and _drops(part, name):
                setattr(part, name, CHANCES.get(name, 0.0))
                said.add(f"{name}={CHANCES.get(name, 0.0):g}")
    return (module, ", ".join(sorted(said))) if said else None


def _drops(module: torch.nn.Module, name: str) -> bool:
    if name == "p":
        return "drop" in type(module).__name__.lower()
    return name in CHANCES or name.endswith(ENDINGS)
