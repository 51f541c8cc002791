# SPDX-License-Identifier: Apache-2.0
"""A small transformer learns this project's licence text: an ordinary training script.

It knows nothing of Ulpscope except that device "sim" comes from ``ulpscope.sim``, as an
"npu" would come from ``torch_npu``. ``examples/demo.py`` runs it honest and with faults.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# ---- an extension operator, as vendors ship them -------------------------------------

_library = torch.library.Library("demo", "DEF")
_library.define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor")
_library.define("rms_norm_backward(Tensor grad, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)")


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _rms_norm_backward(grad: Tensor, x: Tensor, weight: Tensor, eps: float):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    g = grad * weight
    dx = r * (g - x * r.pow(2) * (g * x).mean(-1, keepdim=True))
    dw = (grad * x * r).flatten(0, -2).sum(0)
    return dx, dw


_library.impl("rms_norm", _rms_norm, "CPU")
_library.impl("rms_norm_backward", _rms_norm_backward, "CPU")


class _RMSNorm(torch.autograd.Function):
    """Both operators as one step of autograd, in the way that every torch since 2.0 has."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return torch.ops.demo.rms_norm(x, weight, eps)

    @staticmethod
    def backward(ctx, grad: Tensor):
        dx, dw = torch.ops.demo.rms_norm_backward(grad, *ctx.saved_tensors, ctx.eps)
        return dx, dw, None


class RMSNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return _RMSNorm.apply(x, self.weight, 1e-6)


# ---- the model -----------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, width: int = 64, heads: int = 4, layers: int = 2, context: int = 64):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def batches(device: str, batch: int = 8, context: int = 64):
    """Endless (tokens, targets) drawn from the licence; the draw never touches the device."""
    text = (Path(__file__).resolve().parents[2] / "LICENSE").read_text()
    letters = sorted(set(text))
    data = torch.tensor([letters.index(c) for c in text])
    generator = torch.Generator().manual_seed(1)
    yield len(letters)
    while True:
        start = torch.randint(len(data) - context - 1, (batch,), generator=generator).tolist()
        rows = torch.stack([data[s : s + context + 1] for s in start])
        yield rows[:, :-1].to(device), rows[:, 1:].to(device)


def fused_adamw() -> bool:
    """Whether this torch fuses AdamW on the CPU: before 2.4 it did not."""
    try:
        torch.optim.AdamW([torch.zeros(1)], fused=True)
    except RuntimeError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu, sim, cuda, npu, ... (default cpu)")
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps (default 40)")
    parser.add_argument("--losses", help="write the losses to this JSON file")
    args = parser.parse_args()
    if args.device.startswith("sim"):
        import ulpscope.sim  # noqa: F401  (registers the device)

    torch.manual_seed(0)
    data = batches(args.device)
    model = Transformer(next(data)).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused_adamw())
    losses = []
    for step in range(args.steps):
        tokens, targets = next(data)
        loss = model(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step:3d}  loss {losses[-1]:.4f}", flush=True)
    if args.losses:
        Path(args.losses).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
