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
    """The dispatch, kept from torch's compiler in a thread that runs compiled code: elsewhere it
    is not there to be kept from, and doing so costs more than an operator."""
    disabled = torch._disable_dynamo(dispatch)

    @functools.wraps(dispatch)
    def run(*args, **kwargs):
        return (disabled if _compiler_looks_on() else dispatch)(*args, **kwargs)

    return run


def _unknown_callback():
    return sys.modules.get("torch._dynamo")


# The compiler's hook into frames of this thread; a torch that does not tell has it wherever the
# compiler was loaded.
_hook = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", _unknown_callback)


def _compiler_looks_on():
    return _hook() is not None
