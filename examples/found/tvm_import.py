# SPDX-License-Identifier: Apache-2.0
"""TVM 0.27's importer of exported programs: native_layer_norm gives its first result three times, so the saved mean
and the
inverse deviation are wrong; a product of bfloat16 is float32 (`out_dtype` stands in the importer).

Issues: none found of either."""

import torch

from ulpscope.executors import via

x = torch.randn(4, 8)


class Norm(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.native_layer_norm(x, [8], None, None, 1e-5)


class Product(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def compiled(model):
    return torch.compile(model, backend=via.backend("tvm"), dynamic=False)


_, mean, inverse = compiled(Norm())(x)
print("mean of a row:", float(mean.flatten()[0]), "in float64:", float(x[0].double().mean()), tuple(mean.shape))
print(
    "its inverse deviation:",
    float(inverse.flatten()[0]),
    "in float64:",
    float((x[0].double().var(correction=0) + 1e-5) ** -0.5),
)
print("a product of bfloat16 is", compiled(Product())(x.bfloat16(), x.bfloat16().T).dtype)
