# SPDX-License-Identifier: Apache-2.0
"""torch 2.13's ONNX exporter (onnxscript 0.7.2), results beside the first: nll_loss_forward's total weight is 1
whatever is counted; the bags that embedding_bag names for its indices, and their sizes, are 0. Held
against a count by hand. No issue found of it."""

import numpy
import onnxruntime
import torch

aten = torch.ops.aten


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def computed(function, *given):
    program = torch.onnx.export(Of(function).eval(), given, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    return session.run(None, {i.name: t.numpy() for i, t in zip(session.get_inputs(), given)})


torch.manual_seed(0)
scores, target, weight = torch.randn(32, 64).log_softmax(1), torch.randint(0, 64, (32,)), torch.rand(64)
total = computed(lambda s, t: aten.nll_loss_forward(s, t, None, 1, -100), scores, target)[1]
print("nll_loss_forward: total weight", float(total), "right", len(target))
total = computed(lambda s, t, w: aten.nll_loss_forward(s, t, w, 1, -100), scores, target, weight)[1]
print("  with weights:", float(total), "right", float(weight.double()[target].sum()))

table, index, starts = torch.randn(10, 3), torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 3])
_, bags, sizes, _ = computed(
    lambda w, i, o: aten.embedding_bag.padding_idx(w, i, o, False, 1, False, None, False, None), table, index, starts
)
right = numpy.searchsorted(starts.numpy(), numpy.arange(len(index)), side="right") - 1
print("embedding_bag, mean: bag of each index", bags.tolist(), "right", right.tolist())
print("  sizes of the bags", sizes.tolist(), "right", [2, 1, 3])
