# SPDX-License-Identifier: Apache-2.0
"""Modules that drop: what they compute apart from the dice is judged in full, by the same
module with nothing dropped."""

import copy

import pytest
import torch
from torch import nn

from ulpscope import check_call

X = torch.randn(6, 5, 16, generator=torch.Generator().manual_seed(3))


class Coarse(nn.Linear):
    """Reads its input in bfloat16."""

    def forward(self, x):
        return nn.functional.linear(x.bfloat16().float(), self.weight, self.bias)


class Path(nn.Module):
    """Drops whole rows, as residual networks do."""

    def __init__(self):
        super().__init__()
        self.inner, self.drop_prob = nn.Linear(16, 16), 0.3

    def forward(self, x):
        if not self.drop_prob:
            return x + self.inner(x)
        kept = torch.rand(x.shape[0], 1, 1) >= self.drop_prob
        return x + self.inner(x) * kept / (1 - self.drop_prob)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.cell = nn.Linear(16, 16), nn.LSTM(16, 8, 2, dropout=0.2)

    def forward(self, x):
        return self.cell(self.inner(x))[0]


MODULES = {
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), "linear2"),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Dropout(0.1)),
        "0",
    ),
    "path": (Path, "inner"),
    "lstm": (Recurrent, "inner"),
}


def coarse(module, name):
    """A copy in which one linear layer reads bfloat16."""
    twin = copy.deepcopy(module)
    layer = twin.get_submodule(name)
    wrong = Coarse(layer.in_features, layer.out_features)
    wrong.load_state_dict(layer.state_dict())
    twin.set_submodule(name, wrong)
    return twin


@pytest.mark.parametrize("name", MODULES)
def test_a_wrong_layer_is_found_beside_a_dropout(name):
    made, layer = MODULES[name]
    torch.manual_seed(5)
    module = made()
    dropped = {k: v for k, v in vars(module).items() if isinstance(v, float)}
    right = check_call(module, (X,), cause=False)
    if name == "path":  # six draws are too few to tell, the rest is judged
        assert right.verdict == "unjudged", right.sentence
    else:
        assert right.verdict == "pass" and right.effective_bits > 18, right.sentence
        assert any("of the same call with" in note for note in right.notes), right.notes
    wrong = check_call(coarse(module, layer), (X,), reference=module, cause=False)
    assert wrong.verdict in ("reduced", "wrong"), wrong.sentence
    assert {k: v for k, v in vars(module).items() if isinstance(v, float)} == dropped


def test_so_are_its_gradients():
    torch.manual_seed(5)
    module = MODULES["mlp"][0]()
    right = check_call(module, (X,), backward=True, cause=False)
    assert right.verdict == "pass" and right.effective_bits > 18, right.sentence
    wrong = check_call(coarse(module, "3"), (X,), reference=module, backward=True, cause=False)
    assert wrong.verdict in ("reduced", "wrong"), wrong.sentence
