# SPDX-License-Identifier: Apache-2.0
"""Set G: norms and their gradients, convolutions, pooling, grids, segments, sorts, solves, bits."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_sixth_common import faults, sixth, sound, stored


def slips(fn, kernel, cases):
    for words, keys in cases.items():
        mistake(fn, words, lambda *a, keys=keys: kernel(*a, **keys))


# ------------------------------------------------------------------ norms


@sixth(lambda d: (d(30, 192, dtype=bf, scale=2.0), d(30, 192, dtype=bf), d(192, dtype=bf, scale=0.2), d(192, dtype=bf)))
def rms_offset_bias_residual(x, skip, w, b):
    h = x + skip
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5) * (1 + w) + b, h


def rms_residual_rows(x, skip, w, b, one=1.0, n=192, stale=False):
    h = x + skip
    s = sum(h[:, i::32].square() for i in range(32)).sum(-1, keepdim=True) / n
    s = s[torch.arange(30) // 2 * 2] if stale else s
    return h / (s + 1e-5).sqrt() * (one + w) + b, h


sound(rms_offset_bias_residual, "squares summed in 32 lanes", rms_residual_rows)
faults(
    rms_offset_bias_residual,
    rms_residual_rows,
    one=("the weight lacks its offset of one", 0.0),
    n=("the mean is taken over the padded 256", 256),
    stale=("two rows share the first one's scale", True),
)


@sixth(lambda d: (d(3, 12, 7, 9, shift=2.0), d(3, 12, 7, 9), d(12)))
def group_norm_backward_all(x, g, w):
    xh = x.unflatten(1, (4, 3)).flatten(2)
    m, r = xh.mean(-1, keepdim=True), torch.rsqrt(xh.var(-1, correction=0, keepdim=True) + 1e-5)
    xh = (xh - m) * r
    gw = (g * w[:, None, None]).unflatten(1, (4, 3)).flatten(2)
    dx = r * (gw - gw.mean(-1, keepdim=True) - xh * (gw * xh).mean(-1, keepdim=True))
    return dx.view_as(x), (g * xh.view_as(x)).sum((0, 2, 3)), g.sum((0, 2, 3))


def group_backward(x, g, w, groups=4, centre=True, unbiased=0, lost=0, low=None):
    y = x.reshape(3, groups, -1)
    n = y.shape[-1]
    r = 1 / ((y - y.mean(-1, keepdim=True)).square().sum(-1, keepdim=True) / (n - unbiased) + 1e-5).sqrt()
    xh = stored((y - y.mean(-1, keepdim=True)) * r, low)
    gw = (g * w[:, None, None]).reshape(3, groups, -1)
    dx = (n * gw - centre * gw.sum(-1, keepdim=True) - xh * (gw * xh).sum(-1, keepdim=True)) * r / n
    return dx.view_as(x), (g * xh.view_as(x))[lost:].flatten(2).sum(-1).sum(0), g.flatten(2).sum(-1).sum(0)


def group_autograd(x, g, w):
    x, w, b = x.clone().requires_grad_(), w.clone().requires_grad_(), torch.zeros(12, requires_grad=True)
    F.group_norm(x, 4, w, b).backward(g)
    return x.grad, w.grad, b.grad


honest(group_norm_backward_all, "sums over the group", group_backward)
honest(group_norm_backward_all, "automatic differentiation", group_autograd)
slips(
    group_norm_backward_all,
    group_backward,
    {
        "three groups of four channels": {"groups": 3},
        "the mean of the gradient is not subtracted": {"centre": False},
        "the variance divides by n - 1": {"unbiased": 1},
        "the first image's part of the weight's gradient is lost": {"lost": 1},
        "the normalised input is kept in half precision": {"low": hf},
    },
)


@sixth(lambda d: (d.ints(50, 70), d(50, 24, dtype=hf, shift=-4.0), torch.tensor([0, 9, 9, 31, 60])))
def bag_maxima_padded(index, table, starts):
    """Row 3 is padding; a bag that holds nothing gives zeros."""
    return F.embedding_bag(index, table, starts, mode="max", padding_idx=3)


def bags_one_by_one(index, table, starts, empty=0.0, pad=3, last=70, first=-math.inf):
    out = []
    for a, b in zip(starts.tolist(), starts.tolist()[1:] + [last], strict=True):
        rows = index[a:b][index[a:b] != pad]
        out.append(table[rows].amax(0).clamp(min=first) if len(rows) else table.new_full((24,), empty))
    return torch.stack(out)


sound(bag_maxima_padded, "bag by bag", bags_one_by_one)
faults(
    bag_maxima_padded,
    bags_one_by_one,
    empty=("an empty bag gives minus infinity", -math.inf),
    pad=("padding takes part in the maxima", -1),
    last=("the last entry is left out", 69),
    first=("the maxima start at -3", -3.0),
)


# ------------------------------------------------------------------ convolutions, pools, grids


@sixth(lambda d: (d(2, 6, 13, 15), d(8, 6, 3, 3)))
def conv_tiles_of_four(x, w):
    return F.conv2d(x, w, padding=1)


BT = torch.tensor(
    [
        [4.0, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
GT = torch.tensor(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)
AT = torch.tensor([[1.0, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])


def winograd_four(x, w, low=None, drop=False, edge="constant", lost=6):
    t = F.pad(F.pad(x, (1, 1, 1, 1), mode=edge), (0, 1, 0, 3)).unfold(2, 6, 4).unfold(3, 6, 4)
    u, v = stored(GT @ w @ GT.mT, low), stored(BT @ t @ BT.mT, low)
    y = AT @ torch.einsum("ocij,nchwij->nohwij", u[:, :lost], v[:, :lost]) @ AT.mT
    y = y.permute(0, 1, 2, 4, 3, 5).reshape(2, 8, 16, 16)[:, :, :13, :15].contiguous()
    if drop:
        y[:, :, 12:] = 0
    return y


honest(conv_tiles_of_four, "Winograd, tiles of 4 by 4", winograd_four)
honest(
    conv_tiles_of_four,
    "unfolded, one product",
    lambda x, w: (w.flatten(1) @ F.unfold(x, 3, padding=1)).view(2, 8, 13, 15),
)
slips(
    conv_tiles_of_four,
    winograd_four,
    {
        "the transformed tiles are stored in half precision": {"low": hf},
        "the last row of tiles is not written": {"drop": True},
        "the border repeats the edge instead of zeros": {"edge": "replicate"},
        "the sum over channels stops at 5 of 6": {"lost": 5},
    },
)


@sixth(lambda d: (d(2, 6, 9, 8, dtype=hf), d(6, 4, 3, 3, dtype=hf)))
def transposed_conv_two_groups(x, w):
    return F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2)


def transposed_by_taps(x, w, turned=False, mixed=False, over=False, pad=1):
    out = x.new_zeros(2, 8, 20, 19)
    if mixed:
        x = x.unflatten(1, (3, 2)).transpose(1, 2).flatten(1, 2)
    for i in range(9):
        a, b = divmod(i, 3)
        tap = w[:, :, 2 - a, 2 - b] if turned else w[:, :, a, b]
        y = torch.einsum("ngchw,gco->ngohw", x.unflatten(1, (2, 3)), tap.unflatten(0, (2, 3))).flatten(1, 2)
        view = out[:, :, a : a + 17 : 2, b : b + 15 : 2]
        view.copy_(y) if over else view.add_(y)
    return out[:, :, pad : pad + 18, pad : pad + 16]


sound(transposed_conv_two_groups, "tap by tap", transposed_by_taps)
faults(
    transposed_conv_two_groups,
    transposed_by_taps,
    turned=("the kernel is turned around", True),
    mixed=("input channels alternate between the groups", True),
    pad=("the crop starts at 0, not at 1", 0),
    over=("taps that meet overwrite each other", True),
)


@sixth(lambda d: (d(2, 5, 14, 17, dtype=bf, shift=-6.0),))
def ceil_pools_with_padding(x):
    """Means (padding counted, windows cut at the padded edge) and maxima with places."""
    return F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), *F.max_pool2d(x, 3, 2, 1, return_indices=True)


def pools_by_windows(x, nine=False, bare=False, zero=False, local=False):
    rows, cols = torch.arange(15) * 2 - 1, torch.arange(9) * 2 - 1
    mean = torch.empty(2, 5, 8, 9)
    top, at = torch.empty(2, 5, 7, 9), torch.empty(2, 5, 7, 9, dtype=torch.long)
    for i in range(8):
        for j in range(9):
            a, b = int(rows[i]), int(cols[j])
            w = x[:, :, max(a, 0) : a + 3, max(b, 0) : b + 3]
            count = w[0, 0].numel() if bare else (min(a + 3, 15) - a) * (min(b + 3, 18) - b)
            mean[:, :, i, j] = w.sum((2, 3)) / (9 if nine else count)
            if i < 7:
                top[:, :, i, j], n = w.flatten(2).max(2)
                k = w.shape[3]
                at[:, :, i, j] = n if local else (n // k + max(a, 0)) * 17 + n % k + max(b, 0)
                if zero and (a < 0 or b < 0 or a + 3 > 14 or b + 3 > 17):
                    top[:, :, i, j] = top[:, :, i, j].clamp(min=0)
    return mean, top, at


sound(ceil_pools_with_padding, "window by window", pools_by_windows)
faults(
    ceil_pools_with_padding,
    pools_by_windows,
    nine=("windows cut at the edge still divide by 9", True),
    bare=("the padding is not counted", True),
    zero=("the padding takes part in the maximum as 0", True),
    local=("places count within the window", True),
)


@sixth(lambda d: (d(2, 3, 12, 14), d.rand(2, 8, 9, 2) * 5 - 2.5))
def grid_sample_reflected(x, grid):
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def reflected_by_corners(x, grid, pixel=False, corners=False, swap=False):
    grid = grid.flip(-1) if swap else grid
    out = 0
    at = []
    for size, g in ((14, grid[..., 0]), (12, grid[..., 1])):
        p = (g + 1) / 2 * (size - 1) if corners else ((g + 1) * size - 1) / 2
        low, span = (0.0, size - 1) if pixel else (-0.5, size)
        q = (p - low).abs()
        q = torch.where(q > span, 2 * span - q, q)
        at.append((q + low).clamp(0, size - 1))
    b = torch.arange(2)[:, None, None]
    for cy in (0, 1):
        for cx in (0, 1):
            i, j = at[1].floor() + cy, at[0].floor() + cx
            w = (1 - (at[1] - i).abs()) * (1 - (at[0] - j).abs())
            out = out + w[:, None] * x[b, :, i.long().clamp(max=11), j.long().clamp(max=13)].permute(0, 3, 1, 2)
    return out


honest(grid_sample_reflected, "four corners", reflected_by_corners)
slips(
    grid_sample_reflected,
    reflected_by_corners,
    {
        "reflects about the outer pixels' centres, not their edges": {"pixel": True},
        "the grid's ends are taken for pixel centres": {"corners": True},
        "the grid is read as (y, x)": {"swap": True},
    },
)


# ------------------------------------------------------------------ segments, sorts, solves, functions, bits


@sixth(lambda d: (torch.cat((d(130, scale=60.0), d(70))), torch.tensor([0, 40, 40, 41, 130, 200])))
def segment_softmax_ends(x, ends):
    return torch.cat([x[a:b].softmax(0) for a, b in torch.stack((ends[:-1], ends[1:]), 1)])


def segment_by_index(x, ends, top=True, whole=False, cap=999, skip=False):
    s = torch.repeat_interleave(torch.arange(5), ends.diff())
    m = torch.full((5,), -math.inf).scatter_reduce(0, s, x, "amax")
    m = m.amax().expand(5) if whole else m if top else torch.zeros(5)
    e = (x - m[s]).exp()
    count = torch.arange(200) - ends[s]
    z = torch.zeros(5).index_add(0, s, e * (count < cap))
    return e / z[(s - 1).clamp(min=0) if skip else s]


honest(segment_softmax_ends, "by index", segment_by_index)
slips(
    segment_softmax_ends,
    segment_by_index,
    {
        "no maximum is taken off": {"top": False},
        "the sum stops at 64 entries of a segment": {"cap": 64},
        "one maximum serves all segments": {"whole": True},
    },
)


@sixth(lambda d: (torch.cat((d(300).mul(8).round().div(8), torch.tensor([0.0, -0.0, math.nan, math.inf, -0.0]))),))
def argsort_signed_zeros(x):
    return x.argsort(stable=True)


def radix_places(x, split=False, first=False, unstable=False):
    k = (x + 0.0 if not split else x).view(torch.int32).long()
    k = torch.where(x == 0, 0, k) if not split else k
    k = torch.where(k < 0, ~k & 0xFFFFFFFF, k | 0x80000000)
    k = torch.where(x.isnan(), -1 if first else 1 << 33, k)
    return (k * 512 + (304 - torch.arange(305) if unstable else torch.arange(305))).argsort()


honest(argsort_signed_zeros, "keys of bits", radix_places)
slips(
    argsort_signed_zeros,
    radix_places,
    {
        "-0 stands before +0": {"split": True},
        "NaN stands first": {"first": True},
        "equal numbers come in the opposite order": {"unstable": True},
    },
)


@sixth(lambda d: (d(40, 40).mul(0.2).triu() + 2 * torch.eye(40), d(40, 7)))
def upper_solve(a, b):
    return torch.linalg.solve_triangular(a, b, upper=True)


def upper_by_blocks(a, b, unit=False, low=None, block=8, short=False):
    x = b.clone()
    for at in range(40 - block, -1, -block):
        s = slice(at, at + block)
        for i in range(at + block - 1, at - 1, -1):
            x[i] = (x[i] - a[i, i + 1 : at + block] @ x[i + 1 : at + block]) / (2.0 if unit else a[i, i])
        first = 8 if short else 0
        x[first:at] -= stored(a[first:at, s], low) @ stored(x[s], low) if at > first else 0
    return x


honest(upper_solve, "blocks of 8, from below", upper_by_blocks)
slips(
    upper_solve,
    upper_by_blocks,
    {
        "the diagonal is taken for 2": {"unit": True},
        "updates read their operands in bf16": {"low": bf},
        "the first block misses its updates": {"short": True},
    },
)


@sixth(lambda d: (torch.cat((d.rand(200) * 36 - 30, torch.tensor([-12.9, -14.5, 0.0]))),))
def log_normal_tail(x):
    return torch.special.log_ndtr(x)


honest(
    log_normal_tail,
    "scaled complementary error function",
    lambda x: (
        lambda z: torch.where(
            z < 0,
            (torch.special.erfcx(-z * 0.5**0.5) / 2).log() - z * z / 2,
            (-torch.special.erfc(z * 0.5**0.5) / 2).log1p(),
        ).float()
    )(x.double()),
)
mistake(log_normal_tail, "the logarithm of a probability that underflows", lambda x: torch.special.ndtr(x).log())
mistake(
    log_normal_tail,
    "far out, two terms of the series only",
    lambda x: torch.where(x < -3, -x * x / 2 - (-x).log() - 0.9189385, torch.special.log_ndtr(x)),
)
mistake(
    log_normal_tail,
    "right of 0, the logarithm of a number that is rounded to near 1",
    lambda x: torch.where(x > 0, torch.special.ndtr(x).log(), torch.special.log_ndtr(x)),
)


@sixth(
    lambda d: (
        torch.cat(
            (
                d(4000),
                d(500, scale=1e-39),
                d(500).to(bf).float() * (1 + 2.0**-8),
                torch.tensor([math.inf, -0.0, 3.4e38]),
            )
        ),
    )
)
def bf16_bits_nearest(x):
    return x.to(bf).view(torch.int16)


def bits_by_hand(x, add=0x7FFF, even=True, flush=False):
    b = x.to(torch.float32).view(torch.int32).long() & 0xFFFFFFFF
    y = ((b + add + ((b >> 16) & 1) * even) & 0xFFFFFFFF) >> 16
    y = torch.where((x.abs() < 1.1754943e-38) & flush, b >> 31 << 15, y)
    return torch.where(y > 32767, y - 65536, y).to(torch.int16)


honest(bf16_bits_nearest, "by adding to the bits", bits_by_hand)
slips(
    bf16_bits_nearest,
    bits_by_hand,
    {
        "the low bits are cut off": {"add": 0, "even": False},
        "subnormals are flushed": {"flush": True},
        "ties go away from zero": {"add": 0x8000, "even": False},
    },
)


@sixth(lambda d: (d(40, 77), d(30, 77)))
def hamming_of_signs(a, b):
    return ((a > 0)[:, None] != (b > 0)[None]).sum(-1)


def packed_hamming(a, b, tail=False, narrow=False, cut=77):
    words = [F.pad((x[:, :cut] > 0).long(), (0, 96 - cut), value=0).unflatten(1, (3, 32)) for x in (a, b)]
    if tail:
        words[1][:, 2, 13:] = 1
    a, b = ((w << torch.arange(32)).sum(-1) for w in words)
    z = a[:, None] ^ b[None]
    return sum((z >> i & 1) for i in range(31 if narrow else 32)).sum(-1)


honest(hamming_of_signs, "packed in words of 32", packed_hamming)
slips(
    hamming_of_signs,
    packed_hamming,
    {
        "the unused bits of the last word differ": {"tail": True},
        "bit 31 is lost": {"narrow": True},
        "the last word is left out": {"cut": 64},
    },
)
