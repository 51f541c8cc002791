# SPDX-License-Identifier: Apache-2.0
"""An RMSNorm as extensions define it, whose CPU kernel begins with a cast to float32: in each way in which an
operator can be defined. On the simulated device its intermediates are rounded to bfloat16. For test_lifted; the
process that judges a live check imports this file, too."""

import torch

import ulpscope.sim  # noqa: F401  # registers the device

library = torch.library.Library("lifted", "DEF")


def rms_norm(x, weight, eps: float):
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * weight.to(torch.float32)).to(x.dtype)


def by_other_words(x, weight, eps: float):
    """The same with casts that are written otherwise, and constants of float32."""
    wide = torch.ops.aten._to_copy(x, dtype=torch.float32)
    squares = torch.zeros_like(x, dtype=torch.float32).addcmul_(wide, wide)
    size = squares.sum(-1, keepdim=True, dtype=torch.float32) / x.shape[-1]
    wide = wide / (size + torch.tensor(eps, dtype=torch.float32)).sqrt()
    return (wide * weight.type(torch.float32)).type_as(x)


def asks_its_dtype(x, weight, eps: float):
    """The same by a branch that a float64 run does not see."""
    return rms_norm(x, weight, eps) if x.dtype in (torch.float32, torch.bfloat16, torch.float16) else x * weight


@torch.jit.script
def below_python(x, weight, eps: float):
    """The same through the dispatcher alone, as a C++ kernel that is made of torch's functions."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * weight.to(torch.float32)).to(x.dtype)


def coarse(x, weight, eps):
    wide = x.bfloat16().float()
    wide = wide * torch.rsqrt(wide.pow(2).bfloat16().float().mean(-1, keepdim=True) + eps)
    return (wide.bfloat16().float() * weight.float()).to(x.dtype)


def _on_device(x, weight, eps):
    return coarse(x.cpu(), weight.cpu(), eps).to(x.device)


def _define(name, kernel, key):
    library.define(f"{name}(Tensor x, Tensor weight, float eps) -> Tensor")
    library.impl(name, kernel, key)
    library.impl(name, _on_device, "PrivateUse1")


_define("rms_norm", rms_norm, "CPU")
_define("rms_norm_words", by_other_words, "CPU")
_define("rms_norm_asks", asks_its_dtype, "CPU")
_define("rms_norm_below", lambda *a: below_python(*a), "CPU")
_define("rms_norm_any", rms_norm, "CompositeExplicitAutograd")
_define("rms_norm_implicit", rms_norm, "CompositeImplicitAutograd")


@torch.library.custom_op("lifted::rms_norm_custom", mutates_args=())
def custom(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm(x, weight, eps)


@torch.library.custom_op("lifted::rms_norm_out", mutates_args=("out",))
def into(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    out.copy_(rms_norm(x, weight, eps))


def between(x, weight, eps: float, mean=lambda t: t, root=lambda t: t):
    """As transformers define it: rounded before the weight is multiplied."""
    wide = x.float()
    wide = wide * root(torch.rsqrt(mean(wide.pow(2).mean(-1, keepdim=True)) + eps))
    return wide.to(x.dtype) * weight


def _coarser(name):
    return lambda *a: between(*a, **{name: lambda t: t.bfloat16().float()})


# name -> the kernel of the device; on the CPU all are `between`
BETWEEN = {
    "rms_norm_between": between,
    "rms_norm_between_mean": _coarser("mean"),
    "rms_norm_between_root": _coarser("root"),
}


def _define_between(name, on_device):
    library.define(f"{name}(Tensor x, Tensor weight, float eps) -> Tensor")
    library.impl(name, lambda x, weight, eps: between(x, weight, eps), "CPU")
    library.impl(name, lambda x, w, eps: on_device(x.cpu(), w.cpu(), eps).to(x.device), "PrivateUse1")


for _name, _kernel in BETWEEN.items():
    _define_between(_name, _kernel)


@torch.library.custom_op("lifted::rms_norm_between_custom", mutates_args=())
def between_custom(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return between(x, weight, eps)


NAMES = [
    "rms_norm",
    "rms_norm_words",
    "rms_norm_asks",
    "rms_norm_below",
    "rms_norm_any",
    "rms_norm_implicit",
    "rms_norm_custom",
]
