# SPDX-License-Identifier: Apache-2.0
"""torch 2.4.1 and 2.6.0 CPU: the gradients of softmax and log_softmax along the last axis round the row's sum to
bfloat16 or float16 before it is subtracted; float64 with that one rounding gives them bit by bit. Along another axis,
and in 2.7.1, each is the float64 result rounded once.

Issues: none found."""

import torch

import ulpscope


def softmax(g, p, total):
    return (g - total) * p


def log_softmax(g, log_p, total):
    return g - log_p.exp() * total


torch.manual_seed(0)
print("torch", torch.__version__)
for dtype in (torch.bfloat16, torch.float16):
    g, x = torch.randn(192, 64).mul(0.25).to(dtype), torch.randn(192, 64)
    p, log_p, wide = x.softmax(-1).to(dtype), x.log_softmax(-1).to(dtype), g.double()
    for op, out, total, rest in (
        (torch.ops.aten._softmax_backward_data.default, p, (wide * p.double()).sum(-1, True), softmax),
        (torch.ops.aten._log_softmax_backward_data.default, log_p, wide.sum(-1, True), log_softmax),
    ):
        args = (g, out, -1, dtype)
        found = op(*args)
        print(ulpscope.judge_call(op, args, outputs=found))
        for what, s in (("in float64", total), (f"rounded to {dtype}", total.to(dtype).double())):
            same = (found == rest(wide, out.double(), s).to(dtype)).double().mean()
            print(f"  with the row's sum {what}: {float(same):.1%} of the elements are the same")
