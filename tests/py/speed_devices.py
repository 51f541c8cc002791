# SPDX-License-Identifier: Apache-2.0
"""Devices of `test_speed`: honest ones that tell how they were asked, through files named in
the environment."""

import os

import torch


def telling_threads(op, args, kwargs):
    """Adds the operator and the threads of this process to a file."""
    with open(os.environ["SPEED_TELLS"], "a") as f:
        f.write(f"{op._opname} {torch.get_num_threads()}\n")
    return op(*args, **kwargs)
