# SPDX-License-Identifier: Apache-2.0
"""`flow`, where a test says `import oneflow as flow`: the names of torch on the side that runs, and `flow.unittest`.
Needs no more of torch than a text does."""

from typing import Any

from ...fuzzer.programs import TORCH
from . import unittest


class Flow:
    """OneFlow's own names are those of torch."""

    unittest = unittest

    def __getattr__(self, name: str) -> Any:
        return getattr(TORCH, name)


flow = Flow()
