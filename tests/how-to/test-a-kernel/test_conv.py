# SPDX-License-Identifier: Apache-2.0
"""The test of docs/how-to/test-a-kernel.md, on the simulated device."""

from ulpscope.fuzzing import fuzz, ints, nothing, tensor, torch


@fuzz(n=5, devices=("cpu", "sim:0"))
def test_conv2d():
    channels = ints(1, 33)
    m = torch.nn.Conv2d(channels, ints(1, 33), kernel_size=ints(1, 4), padding=ints(0, 2) | nothing())
    return m(tensor(ints(1, 5), channels, ints(4, 34), ints(4, 34)))
