# SPDX-License-Identifier: Apache-2.0
"""What passes of a large call that is judged in pieces is held to many runs of float32 in one piece, which the
call's number draws. Neighbour: test_large (pieces)."""

import torch
from test_large import IN_PIECES, of_callable, rows, scaled, small

__all__ = ["small"]  # every test's pieces are small


def noisy(first, last):
    """Every element of a range is off by up to 24 roundings: no single one, nor the typical one, by too much."""
    noise = 2 * torch.rand(last - first, generator=torch.Generator().manual_seed(3)) - 1

    def change(flat):
        flat[first:last] *= 1 + 24 * 2.0**-24 * noise

    return change


def test_what_passes_is_held_to_many_runs_in_one_piece(monkeypatch):
    """One piece that is drawn, the same each time: what all of its elements lose together only runs show."""
    made = []
    monkeypatch.setattr(rows, "pieces", lambda *a, cut=rows.pieces: made.append(cut(*a)) or made[-1])
    call = IN_PIECES["layer_norm"]
    assert of_callable(*call, scaled(0, 0, 1)).verdict == "pass"
    assert of_callable(*call, noisy(0, 40_000)).verdict == "reduced"
    found = [of_callable(*call, noisy(at, at + 8000)).verdict for at in range(0, 40_000, 8000)]
    assert sorted(found) == ["pass"] * 4 + ["reduced"], found
    assert made and None not in made
