# SPDX-License-Identifier: Apache-2.0
"""A callable of several operators in 16 bits, or under autocast, is held to what the roundings between its operators
cost: the CPU's own eager result passes, with gradients, and a wrong block is accused."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ulpscope
from ulpscope import testing
from ulpscope.executors.formats import quantize

CHAINED = "held to what the roundings to 16 bits between its operators cost"
D = 32


class Of(nn.Module):
    """Modules and a function of them and of the inputs."""

    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.m = function, nn.ModuleList(modules)

    def forward(self, *args):
        return self.function(self.m, *args)


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(D) + 0.5), 1e-6

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


class Autocast(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args):
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(*args)


def attention(m, x):
    q, k, v = (t.view(*x.shape[:2], 4, -1).transpose(1, 2) for t in m[0](x).chunk(3, -1))
    return m[1](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))


def by_hand(m, x):
    scores = (m[0](x) @ m[1](x).mT * D**-0.5).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -torch.inf)
    return m[3](scores.softmax(-1) @ m[2](x))


def rotary(m, x):
    angle = torch.arange(x.shape[1])[:, None] * 10000 ** (-torch.arange(0, D, 2) / D)
    cos, sin = angle.cos().to(x.dtype).repeat(1, 2), angle.sin().to(x.dtype).repeat(1, 2)
    h = m[0](x)
    a, b = h.chunk(2, -1)
    return h * cos + torch.cat([-b, a], -1) * sin


def routed(m, x):
    share, chosen = m[0](x).float().softmax(-1).topk(2, -1)
    share, out = (share / share.sum(-1, keepdim=True)).to(x.dtype), 0
    for k, expert in enumerate(m[1:]):
        out = out + expert(x) * (share * (chosen == k)).sum(-1, keepdim=True)
    return out


def squeezed(m, x):
    h = m[0](x)
    return x + h * m[2](F.relu(m[1](h.mean((2, 3))))).sigmoid()[:, :, None, None]


def loss(m, x):
    return F.cross_entropy(m[1](m[0](x)).flatten(0, 1), torch.arange(24))


def residual(m, x):
    return x + m[1](m[0](x))


def linears(*widths):
    return [nn.Linear(D, n) for n in widths]


def ffn(act=nn.GELU):
    return nn.Sequential(nn.Linear(D, 2 * D), act(), nn.Linear(2 * D, D))


def convs():
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))


def in_float32(m, x):
    y = m[0](x).float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


BLOCKS = {
    "perceptron": lambda: ffn(nn.ReLU),
    "gelu": ffn,
    "attention": lambda: Of(attention, *linears(3 * D, D)),
    "attention by hand": lambda: Of(by_hand, *linears(D, D, D, D)),
    "rotary": lambda: Of(rotary, nn.Linear(D, D)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D)),
    "rms norm": lambda: nn.Sequential(RMSNorm(), nn.Linear(D, D)),
    "projection and rms norm": lambda: nn.Sequential(nn.Linear(D, D), RMSNorm()),
    "projection and a head in float32": lambda: Of(in_float32, nn.Linear(D, D)),
    "swiglu": lambda: Of(lambda m, x: m[2](F.silu(m[0](x)) * m[1](x)), *linears(D, D, D)),
    "lstm cell": lambda: Of(lambda m, x: m[0](x[:, 0])[0], nn.LSTMCell(D, D)),
    "gru cell": lambda: Of(lambda m, x: m[0](x[:, 0]), nn.GRUCell(D, D)),
    "residual": lambda: Of(residual, nn.LayerNorm(D), ffn()),
    "chain of residuals": lambda: nn.Sequential(*(Of(residual, nn.LayerNorm(D), ffn()) for _ in range(2))),
    "routing": lambda: Of(routed, *linears(4, D, D, D, D)),
    "encoder layer": lambda: nn.TransformerEncoderLayer(D, 4, 2 * D, dropout=0, batch_first=True),
    "loss": lambda: Of(loss, nn.Embedding(50, D), nn.Linear(D, 40)),
    "softmax head": lambda: nn.Sequential(nn.Linear(D, D), nn.Softmax(-1)),
    "convolutions": convs,
    "convolutions, evaluated": lambda: convs().eval(),
    "residual convolutions": lambda: Of(lambda m, x: F.relu(x + m[0](x)), convs()),
    "squeeze and excite": lambda: Of(squeezed, nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4), nn.Linear(4, 8)),
    "group norm": lambda: nn.Sequential(nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 8, 3)),
    "depthwise": lambda: nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 1), nn.ReLU6()),
    "patches": lambda: Of(lambda m, x: m[1](m[0](x).flatten(2).mT), nn.Conv2d(8, D, 4, 4), nn.LayerNorm(D)),
}
MODES = ["bfloat16", "float16", "autocast"]


def made(name, mode, change=None):
    """A block, one with something wrong (None where it has no such part), and its inputs."""
    torch.manual_seed(11)
    block = BLOCKS[name]()
    x = torch.randn(2, 12, D)
    if name == "loss":
        x = torch.randint(0, 50, (2, 12))
    elif any(isinstance(m, nn.Conv2d) for m in block.modules()):
        x = torch.randn(2, 8, 8, 8)
    wrong = change and change(copy.deepcopy(block))
    if mode == "autocast":
        return Autocast(block).train(block.training), wrong and Autocast(wrong).train(block.training), x
    dtype = getattr(torch, mode)
    return block.to(dtype), wrong and wrong.to(dtype), x.to(dtype) if x.is_floating_point() else x


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BLOCKS)
def test_the_cpu_itself_passes(name, mode):
    block, _, x = made(name, mode)
    backward = mode == MODES[list(BLOCKS).index(name) % 3]
    found = testing.assert_accurate(block, None, x, repeat=1, backward=backward, cause=False)
    assert CHAINED in found.notes or name in ("loss", "patches", "convolutions, evaluated", "lstm cell"), found


def hooked(kind, change):
    """The last part of a kind changes what it gives; None where there is none."""

    def of(block):
        parts = [m for m in block.modules() if isinstance(m, kind)]
        if parts:
            parts[-1].register_forward_hook(lambda module, given, out: change(out))
        return block if parts else None

    return of


def without(*kinds):
    """The last part of some kinds does nothing; None where there is none."""

    def of(block):
        parts = [m for m in block.modules() if isinstance(m, kinds)]
        if parts:
            parts[-1].forward = lambda x: x
        return block if parts else None

    return of


def with_eps(block):
    parts = [m for m in block.modules() if isinstance(m, (nn.LayerNorm, nn.GroupNorm, RMSNorm))]
    for part in parts:
        part.eps = 0.3
    return block if parts else None


def at_the_end(change):
    def of(block):
        block.register_forward_hook(lambda module, given, out: change(out))
        return block

    return of


def with_a_row_of_another(out):
    return torch.cat([out[:-1], out[:1]]) if out.dim() else 1.05 * out


ACTIVATIONS = nn.GELU, nn.ReLU, nn.SiLU, nn.ReLU6
WRONG = {
    "5 % off": at_the_end(lambda out: 1.05 * out),
    "a row of another": at_the_end(with_a_row_of_another),
    "4 bits kept inside": hooked(nn.Linear, lambda out: quantize(out, 4).to(out.dtype)),
    "no activation": without(*ACTIVATIONS),
    "half an activation": hooked(ACTIVATIONS, lambda out: 0.5 * out),
    "no norm": without(nn.LayerNorm, nn.GroupNorm, RMSNorm),
    "another eps": with_eps,
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_block_is_accused(what):
    judged = 0
    for n, name in enumerate(BLOCKS):
        block, wrong, x = made(name, MODES[n % 3], WRONG[what])
        if wrong is None or judged == 3:
            continue
        with torch.no_grad():
            found = ulpscope.check_call(wrong, (x,), reference=block, cause=False, repeat=1)
        assert found.verdict in ("wrong", "reduced"), f"{name}: {found.sentence}"
        judged += 1
    assert judged >= 3


def gated_layer(x, w, v):
    return torch.nn.functional.silu(x @ w) * (x @ v)


@pytest.mark.parametrize("dtype, share", [(torch.bfloat16, 8e-4), (torch.float16, 1e-4)])
def test_no_share_hides_behind_large_elements(dtype, share):
    """One share in all of a gated layer's results: its largest, which lose as much by chance, do not hide it."""
    torch.manual_seed(3)
    args = [t.to(dtype) for t in (torch.randn(64, 128), torch.randn(128, 96) / 11, torch.randn(128, 96) / 11)]
    right, own = gated_layer(*(t.double() for t in args)), gated_layer(*args)
    low = (right.float() * (1 + share)).to(dtype)
    cut = torch.where(torch.rand(own.shape) < 0.3, torch.nextafter(own, own * 0), own)
    for wrong in (low, cut):
        verdict = ulpscope.judge_call(gated_layer, args, outputs=wrong, cause=False)
        assert verdict.verdict in ("wrong", "reduced"), str(verdict)
    for honest in (own, right.to(dtype)):
        assert ulpscope.judge_call(gated_layer, args, outputs=honest, cause=False).verdict == "pass"


def test_what_rounds_once_at_its_end_has_no_such_room():
    """Nothing lies between its operators in 16 bits: a kernel that rounds inside is told apart."""
    x, weight = torch.randn(32, D).bfloat16(), (torch.rand(D) + 0.5).bfloat16()

    def norm(x, weight):
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()).to(x.dtype)

    def inside(x, weight):
        h = (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16()
        return h * weight

    assert CHAINED not in testing.assert_accurate(norm, None, x, weight).notes
    assert ulpscope.check_call(inside, (x, weight), reference=norm, cause=False).verdict == "reduced"


def beside(x):
    return (x.sum(-1) / 128).ceil()


def distance(x):
    return F.pairwise_distance(x, x.flip(0), 2.0, 0.002)


def capped(x):
    lse = (15 * (x / 15).tanh()).logsumexp(-1)
    return (lse - x[:, 0] + 1e-3 * lse.square()).mean()


def levelled():
    """Rows whose sum is 256, but for what half precision keeps of each number."""
    x = torch.randn(50, 128) * 0.4
    return (x - x.double().mean(-1, keepdim=True) + 2).half()


@pytest.mark.parametrize(
    "function, make, wrong",
    [
        (beside, levelled, lambda x: beside(x) + (torch.arange(50) == 7)),  # 2 or 3, and no third
        (beside, levelled, lambda x: beside(x) - 2 * (torch.arange(50) == 7)),
        (
            distance,
            lambda: torch.randn(300, 48).bfloat16(),
            lambda x: ((x.float() - x.flip(0).float() + 0.002).square().sum(-1) + 0.2).sqrt().bfloat16(),
        ),
        (capped, lambda: torch.randn(40, 300).bfloat16(), lambda x: capped(x) * (1 + 2.0**-6)),
    ],
)
def test_sets_end_where_runs_do(function, make, wrong):
    """Behind a step runs give two values, one number has no others that speak for it, and what all elements
    lean to is what runs lean to."""
    torch.manual_seed(3)
    x = make()
    assert ulpscope.judge_call(function, (x,), outputs=function(x)).verdict == "pass"
    assert ulpscope.judge_call(function, (x,), outputs=wrong(x), cause=False).verdict in ("wrong", "reduced")


# ---- an extension's own kernel ---------------------------------------------------------

library = torch.library.Library("chained_extension", "DEF")


def gated(a, b):
    return F.silu(a) * b


def of_float(a, b):
    return (F.silu(a.float()) * b.float()).to(a.dtype)


for name, kernel in (("gated", gated), ("of_float", of_float)):
    library.define(f"{name}(Tensor a, Tensor b) -> Tensor")
    library.impl(name, kernel, "CPU")

GATED_WRONG = {
    "the sigmoid is rounded": lambda a, b: (a.float() * torch.sigmoid(a.float()).bfloat16().float()).bfloat16() * b,
    "a constant factor": lambda a, b: gated(a, b) * 1.05,
    "quick": lambda a, b: a * torch.sigmoid(1.1 * a) * b,
    "one column is three units off": lambda a, b: torch.where(
        torch.arange(a.shape[1]) == 5, (gated(a, b).view(torch.int16) + 3).view(a.dtype), gated(a, b)
    ),
}


@pytest.mark.parametrize("what", ["right", *GATED_WRONG])
def test_an_extension_is_held_to_what_its_own_kernel_rounds(what):
    a, b = (torch.randn(64, 128).bfloat16() for _ in range(2))
    outputs = GATED_WRONG.get(what, gated)(a, b)
    verdict = ulpscope.judge_call(torch.ops.chained_extension.gated, (a, b), outputs=outputs, cause=False)
    assert (verdict.verdict == "pass") == (what == "right"), verdict
    if what == "right":
        assert CHAINED in verdict.notes
        once = torch.ops.chained_extension.of_float
        verdict = ulpscope.judge_call(once, (a, b), outputs=outputs, cause=False)
        assert verdict.verdict == "reduced", "a kernel that rounds once at its end has no such room"


HELD = {  # a module that a function holds, not given as an argument, and its input
    "a convolution": (nn.Conv2d(3, 4, 3), (2, 3, 8, 8)),
    "one transposed": (nn.ConvTranspose1d(3, 4, 3), (2, 3, 8)),
    "a group norm behind a convolution": (
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.SiLU()),
        (2, 4, 6, 6),
    ),
    "a linear layer": (nn.Linear(D, D), (4, D)),
}


@pytest.mark.parametrize("what", HELD)
def test_weights_that_a_function_holds_are_lifted_with_its_inputs(what):
    """torch refuses them beside float64 inputs before it calls any operator."""
    module, shape = HELD[what]
    module, x = (
        copy.deepcopy(module).bfloat16(),
        torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16(),
    )
    held = lambda x: module(x)  # noqa: E731
    wide = copy.deepcopy(module).float()
    # torch adds the taps of a transposed one in bfloat16 where the processor has no arithmetic for it: reduced indeed
    device = held if what != "one transposed" else lambda x: wide(x.float()).bfloat16()
    with torch.no_grad():
        testing.assert_accurate(device, held, x)
        last = device(x)
        finding = ulpscope.judge_call(held, (x,), outputs=last * 1.02, cause=False)
    assert finding.verdict in ("wrong", "reduced"), finding.sentence


def normed(x, w, b, g):
    """A layer norm and its gradients."""
    x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
    y = F.layer_norm(x, (x.shape[-1],), w, b)
    return (y.detach(), *torch.autograd.grad(y, (x, w, b), g))


@pytest.mark.parametrize("rows", [64, 4096])
def test_what_the_cpu_computes_badly_excuses_nobody(rows):
    """Its gradient of a bias is added up in bfloat16: 4,096 rows are off by three quarters."""
    x, g = torch.randn(rows, D).bfloat16(), (torch.rand(rows, D) + 0.5).bfloat16()
    args = x, torch.rand(D).bfloat16(), torch.randn(D).bfloat16(), g
    right = normed(*(t.double() for t in args))
    once = tuple(t.bfloat16() for t in right)
    outputs = (once, True), ((*once[:3], (right[3] * 0.9).bfloat16()), False), (normed(*args), rows == 64)
    for way, passes in outputs:
        verdict = ulpscope.judge_call(normed, args, outputs=way, cause=False)
        assert (verdict.verdict == "pass") == passes, (passes, verdict)
