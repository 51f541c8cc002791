# SPDX-License-Identifier: Apache-2.0
"""Operators that harm what is around their results: inputs, the rest of a storage, strides; and one that
hangs. For test_live_writes and test_live_process; the process that judges imports this file, too."""

import sys
import time

import torch

import ulpscope.sim  # noqa: F401  # registers the device

library = torch.library.Library("harm", "DEF")


def operator(schema, right, wrong):
    """Defines an operator: `right` on the CPU and for shapes, `wrong` on the simulated device."""
    name = library.define(schema)
    library.impl(name, right, "CPU")
    library.impl(name, right, "Meta")
    library.impl(name, wrong, "PrivateUse1")


def doubled(x):
    return x * 2


def touching(x):
    x.view(-1)[-1:].zero_()
    return x * 2


def filled(x, *, out):
    return out.copy_(x)


def spilling(x, *, out):
    whole = torch.empty(0, device=out.device).set_(out.untyped_storage())
    whole[out.storage_offset() + out.numel()] = 7  # the first element behind it
    return out.copy_(x)


def moving(x, *, out):
    return out.as_strided_(out.shape, (1, out.shape[0])).copy_(x)


def hanging(x):
    time.sleep(3600)


def disturbed(x):
    """What another thread of the program does to its input, which the process that judges has not."""
    if not any("live_judge" in word for word in sys.orig_argv):
        x.numpy()[0] = 7
    return doubled(x)


# The schema lies on every device, also on the CPU.
operator("lies(Tensor x, Tensor y) -> Tensor", lambda x, y: touching(x) + y, lambda x, y: touching(x) + y)
operator("touches(Tensor x) -> Tensor", doubled, touching)
operator("touches_list(Tensor[] xs) -> Tensor", lambda xs: xs[0] * 2, lambda xs: (touching(xs[1]), xs[0] * 2)[1])
operator("spills(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", filled, spilling)
operator("moves(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", filled, moving)
operator("turned(Tensor x) -> Tensor", doubled, lambda x: (x * 2).t().contiguous().t())
operator("mirror(Tensor(a) x) -> Tensor(a)", lambda x: x.view(x.shape), lambda x: x.t())
operator("disturbed(Tensor x) -> Tensor", disturbed, doubled)
operator("hangs(Tensor x) -> Tensor", hanging, doubled)
