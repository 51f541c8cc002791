# SPDX-License-Identifier: Apache-2.0
"""torch 2.13 inductor, CPU: what torch.compile generates for expm1, elu, erf and atanh near 0 has
an absolute error of 1e-7: no digit is right below it. Eager torch is right.

Issues: pytorch/pytorch#198183 (open, September 2026) for erf and atanh; #189803 for expm1 and elu,
mended by #190533 (July 2026) after this release."""

import torch

import ulpscope

x = torch.logspace(-9, -1, 4000)
for name, fn, sign in (
    ("expm1", torch.expm1, 1),
    ("elu", torch.nn.functional.elu, -1),
    ("erf", torch.erf, 1),
    ("atanh", torch.atanh, 1),
):
    y, truth = torch.compile(fn)(sign * x), fn(sign * x.double())
    print(name, ulpscope.judge_call(fn, (sign * x,), outputs=y))
    print(
        "  largest relative error: compiled",
        float(((y - truth) / truth).abs().max()),
        "eager",
        float(((fn(sign * x) - truth) / truth).abs().max()),
    )
