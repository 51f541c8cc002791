# SPDX-License-Identifier: Apache-2.0
"""Paddle as the second side of a test in torch text, `devices=("cpu", "module:examples/paddle_torch.py")`: its names
are torch's, but the weights of its Linear lie the other way."""

import paddle


def __getattr__(name):
    return getattr(paddle, name)


def load(module, weights):
    """Puts the weights of a test, by torch's names, into a module."""
    for key, value in weights.items():
        *path, name = key.split(".")
        owner = module
        for part in path:
            owner = getattr(owner, part)
        if hasattr(owner, name):  # it has no counter of batches
            delattr(owner, name)
            setattr(owner, name, value.T if isinstance(owner, paddle.nn.Linear) and value.ndim == 2 else value)
