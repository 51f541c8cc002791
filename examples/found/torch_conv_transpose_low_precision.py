# SPDX-License-Identifier: Apache-2.0
"""torch 2.13, CPU: transposed convolutions in float16 add the taps of a kernel in that format: 2048 where 2048 and
eight ones are 2056. Exact: all numbers are whole, and 2056 is one of float16's own. In bfloat16 most forms are right.

Issues: none found of the forward."""

import itertools

import torch
import torch.nn.functional as F

dtype, large = torch.float16, 2048.0
for n, f in ((1, F.conv_transpose1d), (2, F.conv_transpose2d), (3, F.conv_transpose3d)):
    taps = (9, *[1] * (n - 1)) if n < 2 else (3, 3, *[1] * (n - 2))
    wrong = {}
    for at in itertools.product(*map(range, taps)):
        weight = torch.ones(1, 1, *taps)
        weight[(0, 0, *at)] = large
        x = torch.ones(1, 1, *[11] * n)
        got, right = (f(a, b).max() for a, b in ((x.to(dtype), weight.to(dtype)), (x.double(), weight.double())))
        assert float(right) == large + 8 == float(right.to(dtype))
        if float(got) != float(right):
            wrong[at] = float(got)
    print(
        f"{dtype} {f.__name__}: {len(wrong)} of 9 places of the large weight give",
        sorted(set(wrong.values())),
        f"instead of {large + 8:.0f}",
    )
