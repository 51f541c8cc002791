# SPDX-License-Identifier: Apache-2.0
"""The training step that benchmarks share: a GPT with explicit attention, cross entropy
and AdamW. Defaults: 4 layers, width 256, 4 heads, 4 x 128 tokens, vocabulary 512."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Pre-norm attention and MLP, the attention written out."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(x).split(width, 2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(shape[-1])
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = F.softmax(scores.masked_fill(future, float("-inf")), -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm_attention(x))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class GPT(nn.Module):
    """A small decoder; `forward` returns the loss."""

    def __init__(self, vocabulary=512, width=256, layers=4, heads=4, length=128):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, inputs, targets):
        places = torch.arange(inputs.size(1), device=inputs.device)
        x = self.tokens(inputs) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class TrainingStep:
    """Calling it runs one step (forward, backward, AdamW) and returns the loss."""

    def __init__(self, batch=4, seed=0, device="cpu", bf16=False, optimizer=None, **model):
        torch.manual_seed(seed)
        self.model = GPT(**model).to(device)
        length = self.model.positions.num_embeddings
        vocabulary = self.model.tokens.num_embeddings
        self.inputs = torch.randint(0, vocabulary, (batch, length)).to(device)
        self.targets = torch.randint(0, vocabulary, (batch, length)).to(device)
        self.autocast = torch.autocast(device, dtype=torch.bfloat16, enabled=bf16)
        options = {"lr": 1e-3} | (optimizer or {})
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **options)

    def __call__(self):
        with self.autocast:
            loss = self.model(self.inputs, self.targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()
