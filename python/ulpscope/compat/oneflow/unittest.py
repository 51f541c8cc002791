# SPDX-License-Identifier: Apache-2.0
"""`oneflow.unittest`, as far as tests of operators use it: Python's, and decorators that say how many processes a test
wants. There is one, with one device. Needs no torch."""

import re
import unittest
from unittest import *  # noqa: F403  # what tests import from there


def __getattr__(name: str) -> object:
    wanted = re.fullmatch(r"skip_unless_(\d+)n(\d+)d", name)
    if wanted is None:
        raise AttributeError(
            f"ulpscope.compat.oneflow.unittest has no {name}: it has what unittest has, and skip_unless_1n1d"
        )
    nodes, devices = map(int, wanted.groups())
    one = nodes == devices == 1
    return lambda: unittest.skipUnless(
        one, f"{nodes} nodes with {devices} devices: a text runs in one process, on one device"
    )
