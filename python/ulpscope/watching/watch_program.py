# SPDX-License-Identifier: Apache-2.0
"""What a program has that is watched: its parameters by name, and the group of ranks that reduces them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def parameters_of(model: torch.nn.Module, optimizers: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Name -> parameter, as the model calls them whatever is wrapped around it; those that are in an
    optimizer alone are called by their place there. Without such that need no gradient."""
    found, known = {}, set()
    for name, parameter in model.named_parameters() if model is not None else ():
        name = name.replace("_fsdp_wrapped_module.", "").replace("_orig_mod.", "")
        found[name.removeprefix("module.")] = parameter
        known.add(parameter)
    for i, optimizer in enumerate(optimizers):
        for g, group in enumerate(optimizer.param_groups):
            for k, parameter in enumerate(group["params"]):
                if parameter not in known:
                    found[f"optimizer{i}.group{g}.{k}"] = parameter
                    known.add(parameter)
    return found


def group_of(model: torch.nn.Module) -> Any:
    """The process group over which the model's gradients are reduced; None: over none."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    from torch.nn.parallel import DistributedDataParallel

    for module in model.modules() if model is not None else ():
        if isinstance(module, DistributedDataParallel):
            return module.process_group
    for parameter in model.parameters() if model is not None else ():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            return mesh.get_group() if mesh.ndim == 1 else torch.distributed.group.WORLD
    return None
