# SPDX-License-Identifier: Apache-2.0
"""Dispatch modes of this package: seen by every operator below them, and by torch.compile only
where it is in use. Serves everything that looks at the operators of a run."""

import functools
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):
    """A TorchDispatchMode whose first operator does not load torch's compiler, which takes
    seconds, only to tell it not to compile the mode itself."""

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "__torch_dispatch__" in cls.__dict__:
            cls.__torch_dispatch__ = _left_alone(cls.__torch_dispatch__)

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # here, where torch would load it


def _left_alone(dispatch):
    disabled = torch._disable_dynamo(dispatch)

    @functools.wraps(dispatch)
    def run(*args, **kwargs):
        in_use = "torch._dynamo" in sys.modules
        return (disabled if in_use else dispatch)(*args, **kwargs)

    return run
