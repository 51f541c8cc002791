# SPDX-License-Identifier: Apache-2.0
"""A model of `transformers`, a convolutional network, an LSTM, checkpoints and autocast, as they are,
under every mode: numbers, random streams and surroundings stay, and nobody is accused."""

import functools

import pytest
import torch
from live_modes import MODELS, MODES, leave, live, same, train, variables

import ulpscope

MODES = {**MODES, "live_distinct": live(distinct=True)}


@functools.cache
def plain(model, cpu_draws=False):
    if not cpu_draws:
        return train(model)
    with ulpscope.seed_all(0) as mode:
        right = train(model)
    leave(mode)
    return right


def under(name, folder, models):
    """(model, its numbers) for each model under a mode, which found nothing."""
    mode = MODES[name].make(folder)
    with mode:
        found = [(model, train(model)) for model in models]
    leave(mode)
    assert getattr(mode, "error", None) is None and MODES[name].honest(mode), (name, mode)
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", [n for n in MODES if not MODES[n].judges])
def test_models_as_they_are(name, model, tmp_path):
    right, before = plain(model, MODES[name].cpu_draws), variables()
    ((_, watched),) = under(name, tmp_path, [model])
    assert variables() == before
    assert same(right, watched, MODES[name].exact)


@pytest.mark.parametrize("name", [n for n in MODES if MODES[n].judges])
def test_models_as_they_are_are_judged(name, tmp_path):
    """One after the other: the process that judges is started once."""
    right, before = {model: plain(model) for model in MODELS}, variables()
    watched = under(name, tmp_path, MODELS)
    assert variables() == before
    for model, numbers in watched:
        assert same(right[model], numbers), model


def test_another_number_is_noticed():
    """What `same` would not see proves nothing."""
    right = plain("conv")
    wrong = [t.clone() for t in right]
    wrong[1].view(-1)[0] += 1e-6
    assert not same(right, wrong) and same(right, wrong, exact=False)
    assert not torch.equal(right[0][0], right[0][1])
