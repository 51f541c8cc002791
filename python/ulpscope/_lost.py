# SPDX-License-Identifier: Apache-2.0
"""Elements of a float output at which float32 itself fails, so that a device may as well.
Serves `_outputs`. Every mask is a bool tensor of the output's shape, None for no element."""

import torch

MOST_SHARED = 0.5  # of the elements: more, and what is left says little about the call


def elements(operands, path, device):
    """Where float32 on the CPU gives no number although the output's dtype has one, or,
    because a step inside overflows, one without a right bit: any answer there is as good as
    its own."""
    truth, yardstick = operands.reference.truth[path], operands.reference.yardstick[path]
    if not truth.shape == yardstick.shape == device.shape:
        return None
    want, near = (t.to(device.dtype).double() for t in (truth, yardstick))
    finite = device.double().isfinite()  # float8 has no isfinite of its own
    lost = want.isfinite() & ~yardstick.isfinite() & finite
    blind = truth.isfinite() & ~finite & (near != want)
    blind &= ~((yardstick.double() - truth).abs() < truth.abs() / 8)
    if bool(blind.any()) and operands.reference.overflows():
        lost |= blind
    return lost if bool(lost.any()) else None


def shared(operands, path, device):
    """Where float32 on the CPU gives no number although there is one, and the device does
    just the same; None where these are more than a few of the elements."""
    truth, yardstick = operands.reference.truth[path], operands.reference.yardstick[path]
    if not truth.shape == yardstick.shape == device.shape:
        return None
    near, got = yardstick.to(device.dtype).double(), device.double()
    same = (got == near) | (got.isnan() & near.isnan())
    lost = same & truth.to(device.dtype).double().isfinite() & ~near.isfinite()
    return lost if 0 < int(lost.sum()) <= MOST_SHARED * lost.numel() else None


def with_other_kinds(operands, path, device):
    """The device's output with the true value where that is NaN or Inf and float32 gives the
    device's NaN or Inf as well if its roundings fall otherwise: what becomes of infinities
    inside (Inf - Inf, 0 * Inf) hangs on the formula. None where there is no such element."""
    truth = operands.reference.truth[path]
    if truth.shape != device.shape:
        return None
    want, got = truth.to(device.dtype).double(), device.double()
    odd = ~truth.isfinite() & ~got.isfinite() & (want != got) & ~(want.isnan() & got.isnan())
    if not bool(odd.any()):
        return None
    good = torch.zeros_like(odd)
    for other in operands.reference.rounded_otherwise(path):
        # Where the truth is NaN, the sign of the other's infinity is a matter of luck too.
        good |= (other.isnan() & got.isnan()) | (other == got) | (want.isnan() & other.isinf())
    good &= odd
    return torch.where(good, truth.to(device.dtype), device) if bool(good.any()) else None
