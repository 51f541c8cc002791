# SPDX-License-Identifier: Apache-2.0
"""One accused output, as `include/ulpscope/cause.h` sees it: what the result alone shows, and
how well an emulation explains it. Tensors come as torch has them on the CPU; of torch's own
this needs views of complex tensors as reals. Neighbour: `diagnose` (asks).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import _core

if TYPE_CHECKING:
    from ..calls.replay import View
    from ..executors.reference_runs import Reference

LEFT_MOST = _core.cause_left_most  # of the error, where an emulation explains it
ONE = 2.0**-16  # of a number: so near to it is the same
STEP = 2.0**-4  # of a number: so far off is one that took another step, and no rounding
FORMATS = {"bfloat16": 1, "float16": 2, "TF32": 4}  # bits of a hint, as in cause.h


def reals(t: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs, everything else as it is."""
    t = t.detach()
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t.resolve_neg()


def content(reference: Reference, view: View) -> torch.Tensor:
    """What a tensor of the call holds."""
    part = reference.parts[view.storage, view.dtype]
    return part.data.as_strided(view.sizes, view.strides, view.offset - part.first)


def put_right(device: torch.Tensor, truth: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    """An output with the truth where the CPU's own kernel takes the same other step as the device, as where a
    rounding on the way decides a comparison: that is nobody's mistake."""
    if any(t is None or t.shape != device.shape or not t.is_floating_point() for t in (truth, native, device)):
        return device
    if not device.numel() or bool((device == device.reshape(-1)[0]).all()):  # that is said as it is
        return device
    alike = (device == native) & ((truth - device).abs() > STEP * truth.abs())
    return torch.where(alike, truth.to(device.dtype), device) if bool(alike.any()) else device


def with_factors(device: torch.Tensor, truth: torch.Tensor) -> Iterator[torch.Tensor]:
    """The truth with the factor that suits the device best: one for all, and one for each slice of an axis."""
    if not truth.is_floating_point() or not bool((device.isfinite() & truth.isfinite()).all()):
        return
    device, truth = device.double(), truth.double()
    for axes in [tuple(range(truth.dim())), *((a,) for a in range(truth.dim() if truth.dim() > 1 else 0))]:
        size = (truth * truth).sum(axes, keepdim=True).clamp(min=1e-300)
        yield truth * (device * truth).sum(axes, keepdim=True) / size


class Evidence:
    """What the device gave for one output, the truth, and what float32 gives. `before`: what was
    there; `inputs` and `others`: arguments and the truth of other outputs, by name; `finding`: what the
    verdict says (verdict, bits, odd_is_excused)."""

    def __init__(
        self,
        device: torch.Tensor,
        truth: torch.Tensor,
        yardstick: torch.Tensor,
        before: torch.Tensor | None = None,
        inputs: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] = (),
        others: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] = (),
        **finding: Any,
    ) -> None:
        self.floats = device.is_floating_point()
        self._whole = reals(device), reals(truth)
        self._cause = _core.Cause(
            *self._whole,
            reals(yardstick),
            before=None if before is None else reals(before),
            inputs={n: reals(t) for n, t in dict(inputs).items()},
            others={n: reals(t) for n, t in dict(others).items()},
            **finding,
        )
        self._places: Any = None
        self._errors: dict[str, Any] | None = None
        self._codes: dict[str, str] = {}

    # ---- the result alone ----

    def ask(self, look: str) -> tuple[str, str, float]:
        """(code, text, share of the error left) of what one look shows; ("", "", inf) for nothing."""
        found = self._cause.ask(look)
        self._codes[found[1]] = found[0]
        return found

    def place(self, text: str) -> str:
        """Which rows, columns or elements are off, as a clause; "" where that is most of them, or where
        `text`, a cause, says it."""
        code = self._codes.get(text.removeprefix("looks like: "), self._codes.get(text, ""))
        return "" if _core.cause_tells_place(code) else self.ask("place")[1]

    def hint(self, adds: bool, formats: set[str]) -> None:
        """Whether sums are involved, and the formats that something else speaks for."""
        told = {name for text in formats for name in text.split(" or ")}
        self._cause.hint(adds, sum(bit for name, bit in FORMATS.items() if name in told))

    def errors(self) -> dict[str, Any]:
        """What the errors are like, by name: see usc_cause_errors."""
        if self._errors is None:
            self._errors = self._cause.errors()
        return self._errors

    def independent(self) -> int:
        return int(self.errors()["independent"])

    # ---- numbers of a run ----

    def residual(self, emulated: torch.Tensor) -> float:
        """0 where the bits agree; else what is left of the error, as a share of it. Infinite
        for no explanation."""
        return self._cause.weigh("left", reals(emulated))

    def reproduces(self, emulated: torch.Tensor, narrow: torch.Tensor | None = None) -> bool:
        """Whether an emulation gives what the device gave, nearly everywhere and to within what
        rounding does. `narrow` is the same in float32."""
        return self._cause.weigh("reproduces", reals(emulated), None if narrow is None else reals(narrow)) == 1

    def near(self, emulated: torch.Tensor) -> bool:
        """Whether a look at a few elements leaves room for an emulation."""
        return self._cause.weigh("near", reals(emulated)) == 1

    def same_bits(self, narrow: torch.Tensor | None) -> bool:
        """Whether a run in float32 gives every bit of the device's, also where it is hardly off."""
        return narrow is not None and self._cause.weigh("same_bits", reals(narrow)) == 1

    def contradicts(self, emulated: torch.Tensor) -> bool:
        """Whether an emulation spoils this output, which the device got right."""
        return self._cause.weigh("contradicts", reals(emulated)) == 1

    def unmoved(self, emulated: torch.Tensor) -> bool:
        """Whether an emulation leaves this output right."""
        return self._cause.weigh("unmoved", reals(emulated)) == 1

    def is_one_number(self, emulated: torch.Tensor) -> bool:
        """Whether a run gives one number everywhere, as many others do, where right is more than one."""
        seen, truth = self.seen(emulated), self.seen(self._whole[1])
        first = seen[:1]
        return bool(
            seen.numel() > 1
            and ((seen - first).abs() <= ONE * first.abs()).all()
            and ((truth - truth[:1]).abs() > ONE * truth[:1].abs()).any()
        )

    def correlation(self, emulated: torch.Tensor) -> float:
        """How much of the device's error an emulation's error follows, -1 to 1."""
        return self._cause.weigh("follows", reals(emulated))

    def nearer(self, emulated: torch.Tensor, other: torch.Tensor) -> int:
        """1 where the first comes clearly nearer to what the device gave than the second, -1 where it is
        the other way round, 0 where the elements do not tell."""
        return int(self._cause.weigh("nearer", reals(emulated), reals(other)))

    def of_size(self, emulated: Sequence[torch.Tensor]) -> bool:
        """Whether the errors are of the size that emulations give which differ in chance alone."""
        return self._cause.of_size([reals(t) for t in emulated])

    # ---- the elements that are looked at, flat, as doubles ----

    def seen(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._places is None:
            places, off = self._cause.sample()
            self.off = torch.frombuffer(off, dtype=torch.bool)
            self._places = slice(None) if places is None else torch.frombuffer(places, dtype=torch.int64)
        return reals(tensor).reshape(-1)[self._places].double()

    def device_and_truth(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.seen(self._whole[0]), self.seen(self._whole[1])
