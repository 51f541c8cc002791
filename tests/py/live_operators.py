# SPDX-License-Identifier: Apache-2.0
"""Operators whose kernel for the simulated device is wrong in a way that comparing tools have
missed. For test_live_peers; the process that judges imports this file, too."""

import torch

import ulpscope.sim  # noqa: F401  # registers the device

library = torch.library.Library("peers", "DEF")


def operator(schema, right, wrong):
    """Defines an operator: `right` on the CPU, `wrong` on the simulated device."""
    name = library.define(schema)
    library.impl(name, right, "CPU")
    library.impl(name, wrong, "PrivateUse1")


def on_host(fn):
    """A kernel for the device that computes on the CPU."""

    def kernel(*args, **kwargs):
        made = fn(*(a.cpu() for a in args), **{k: a.cpu() for k, a in kwargs.items()})
        return [t.to("sim:0") for t in made] if isinstance(made, list) else made.to("sim:0")

    return kernel


def one_ulp_off(bias, x, weight):
    right = torch.addmm(bias.double(), x.double(), weight.double()).to(x.dtype)
    return (right.view(torch.int16) + 1).view(x.dtype)  # of the size of every element


def add_to(y, x):
    y.add_(x)


def add_most(y, x):
    y.copy_((y.cpu() + x.cpu() * (torch.arange(x.numel()) != 3)).to("sim:0"))


def lacks_half(x, index):
    if x.dtype == torch.float16:
        raise RuntimeError("\"pick\" not implemented for 'Half'")
    return x[index]


def no_kernel(x):
    raise NotImplementedError("no kernel of the CPU")


def touch(x):
    x.view(-1)[:1].zero_()
    return x * 2


operator("fewer(Tensor x) -> Tensor[]", lambda x: [x * 2, x * 3], on_host(lambda x: [x * 2]))
operator("broadcast(Tensor x) -> Tensor", lambda x: x * 2, on_host(lambda x: x[:1] * 2))
operator("narrow(Tensor x) -> Tensor", lambda x: x * 2, on_host(lambda x: (x * 2).double()))
operator("mask(Tensor x) -> Tensor", lambda x: x > 0, on_host(lambda x: (x > 0) ^ (torch.arange(x.numel()) == 5)))
operator("count(Tensor x) -> Tensor", lambda x: (x > 0).sum(), on_host(lambda x: (x > 0).sum() + 1))
operator("keyword(*, Tensor x) -> Tensor", lambda *, x: x * 2, on_host(lambda x: x * 2.01))
operator("quiet(Tensor(a!) y, Tensor x) -> ()", add_to, add_most)
operator(
    "running(Tensor x, Tensor(a!) mean) -> Tensor",
    lambda x, mean: (mean.add_(x.mean()), x * 2)[1],
    lambda x, mean: (mean.add_(2 * x.cpu().mean().item()), x * 2)[1],
)
operator("pick(Tensor x, Tensor index) -> Tensor", lacks_half, on_host(lambda x, index: x[index] * 1.01))
operator("take(Tensor x, Tensor index) -> Tensor", lacks_half, on_host(lambda x, index: x[index]))
operator("unknown(Tensor x) -> Tensor", no_kernel, on_host(lambda x: x * 2))
operator("touch(Tensor x) -> Tensor", lambda x: x * 2, touch)
operator(
    "addmm(Tensor bias, Tensor x, Tensor weight) -> Tensor", lambda b, x, w: torch.addmm(b, x, w), on_host(one_ulp_off)
)
