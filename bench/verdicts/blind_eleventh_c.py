# SPDX-License-Identifier: Apache-2.0
"""Set N: products, grouped and by blocks of scales, and what quantises for them."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, narrow, slow_matmul, tf32
from .blind_eleventh_a import F8, eleventh
from .blind_ninth_a import bad, ok


def tiles(a, b, step=32, kind=None, pair=False, k=None):
    """A product by pieces of the inner dimension, in float32."""
    k = a.shape[-1] if k is None else k
    parts = [a[..., i : min(i + step, k)] @ b[..., i : min(i + step, k), :] for i in range(0, k, step)]
    while pair and len(parts) > 1:
        parts = [sum(parts[i : i + 2]) for i in range(0, len(parts), 2)]
    total = parts[0]
    for p in parts[1:]:
        total = narrow(total + p, kind) if kind else total + p
    return total


# ------------------------------------------------------------------ grouped products


@eleventh(
    lambda d: (d(200, 96, dtype=bf), d(5, 128, 96, dtype=bf).transpose(1, 2), torch.tensor([40, 40, 111, 113, 200]))
)
def eleventh_grouped(x, w, ends):
    out, a = [], 0
    for e, b in enumerate(ends.tolist()):
        out.append(x[a:b].float() @ w[e].float())
        a = b
    return torch.cat(out).to(bf)


def grouped(x, w, ends, tile=None, shift=0, empty=True, last=None, **how):
    out, a = torch.zeros(200, 128), 0
    for e, b in enumerate(ends.tolist()):
        n = e if empty or e < 1 else e - 1
        full = b if not tile else a + (b - a) // tile * tile
        out[a:full] = tiles(x[a:full].float(), w[n].float(), **how)
        a = b + shift if e < 4 else b
    return last(out) if last else out


def neighbour(out):
    out = out.clone()
    out[111:113] = out[109:111]
    return out


ok(
    eleventh_grouped,
    grouped,
    bf,
    inner_tiles_of_32={},
    inner_tiles_of_16_in_pairs={"step": 16, "pair": True},
    inner_tiles_of_48={"step": 48},
)
bad(
    eleventh_grouped,
    grouped,
    {
        "rows that fill no tile of 16 stay zero": {"tile": 16},
        "groups after the empty one take the weights before": {"empty": False},
        "a group of two rows is that of its neighbour": {"last": neighbour},
        "each group begins a row late": {"shift": 1},
        # six roundings to eight bits
        "hides: summed in bfloat16 by tiles of 16": {"step": 16, "kind": bf},
        # the last eight of 96 products
        "hides: the last eight of the inner dimension are left out": {"k": 88},
    },
    bf,
)


# ---- e4m3 by blocks of 32 and powers of two


def mx_args(d):
    codes = lambda *s: d(*s, scale=60).clamp(-440, 440).to(F8).float()
    power = lambda *s: torch.pow(2.0, d.ints(7, *s).float() - 9)
    return codes(48, 256), power(48, 8), codes(64, 256), power(64, 8)


@eleventh(mx_args)
def eleventh_mx(a, sa, b, sb):
    return (a * sa.repeat_interleave(32, 1)) @ (b * sb.repeat_interleave(32, 1)).T


def mx(a, sa, b, sb, late=False, block=32, cap=None, change=None, code=None, **how):
    sa, sb = change(sa, sb) if change else (sa, sb)
    if code:
        b = code(b)
    if late:
        p = torch.einsum("mgk,ngk->gmn", a.view(48, 8, 32), b.view(64, 8, 32))
        p = narrow(p, cap) if cap else p
        return sum(p[g] * sa[:, g, None] * sb[:, g] for g in range(8))
    return tiles(a * sa.repeat_interleave(32, 1), (b * sb.repeat_interleave(32, 1)).T, **how)


ok(
    eleventh_mx,
    mx,
    scales_on_the_sums_of_blocks={"late": True},
    dequantised_first={},
    tiles_of_128={"step": 128, "pair": True},
)
bad(
    eleventh_mx,
    mx,
    {
        "scales are taken a block late": {"change": lambda a, b: (a.roll(1, 1), b)},
        "blocks of 64 share a scale": {"change": lambda a, b: (a, b[:, ::2].repeat_interleave(2, 1))},
        "scales of b are transposed": {"change": lambda a, b: (a, b.reshape(8, 64).T)},
        # block sums of about 2e4: those above 65504 are infinite
        "sums of blocks overflow half precision": {"late": True, "cap": hf},
        # eight bits of each of eight sums
        "hides: sums of blocks in bfloat16": {"late": True, "cap": bf},
        # eight roundings to eleven bits
        "hides: blocks are summed in half precision": {"kind": hf},
        # one column's last scale
        "hides: the last scale of the last column is that before it": {
            "change": lambda a, b: (a, torch.cat([b[:-1], torch.cat([b[-1:, :7], b[-1:, 6:7]], 1)]))
        },
        # one bit of mantissa in one block of eight
        "hides: the last block of b is read as e5m2": {
            "code": lambda b: torch.cat([b[:, :224], b[:, 224:].to(torch.float8_e5m2).float()], 1)
        },
    },
)


# ------------------------------------------------------------------ four bits in groups


def four_args(d):
    codes = d.ints(16, 256, 96).to(torch.uint8)
    return d(24, 256, dtype=hf), codes, (d.rand(4, 96) * 0.02 + 0.005).to(hf), d.ints(16, 4, 96).to(torch.uint8)


@eleventh(four_args)
def eleventh_four(x, codes, scales, zeros):
    w = (codes.float() - zeros.float().repeat_interleave(64, 0)) * scales.float().repeat_interleave(64, 0)
    return (x.float() @ w).to(hf)


def four(x, codes, scales, zeros, add=0, group=64, late=False, turn=None, z_of=None, s_of=None, **how):
    codes = turn(codes) if turn else codes
    s, z = s_of(scales.float()) if s_of else scales.float(), zeros.float() + add
    z = z_of(z) if z_of else z
    if late:
        out = torch.zeros(24, 96)
        for g in range(4):
            at = slice(64 * g, 64 * g + 64)
            xx = x[:, at].float()
            out = out + s[g] * (xx @ (codes[at].float() - 8) - xx.sum(1, keepdim=True) * (z[g] - 8))
        return out
    w = (codes.float() - z.repeat_interleave(64, 0)) * s.repeat_interleave(64, 0)
    return tiles(x.float(), w, **how)


def swapped(codes):
    return codes.view(128, 2, 96).flip(1).reshape(256, 96)


def signed(codes):
    """The top bit of the nibble in one lane is a sign."""
    out = codes.clone()
    out[255, 40] = (out[255, 40] + 8) % 16
    return out


ok(
    eleventh_four,
    four,
    hf,
    zero_points_by_sums_of_x={"late": True},
    tiles_of_32={},
    tiles_of_64_in_pairs={"step": 64, "pair": True},
)
bad(
    eleventh_four,
    four,
    {
        "zero points are one too great": {"add": 1},
        "nibbles of a byte are swapped": {"turn": swapped},
        "the last group takes the scale of the one before": {"s_of": lambda s: torch.cat([s[:3], s[2:3]])},
        # sixteen roundings to eleven bits
        "hides: summed in half precision by tiles of four": {"step": 4, "kind": hf},
        # 0.4 per cent of each weight
        "hides: scales in bfloat16": {"s_of": narrow},
        # one code of 24576
        "hides: one code is eight away": {"turn": signed},
    },
    hf,
)


# ------------------------------------------------------------------ quantising in groups of 64


@eleventh(lambda d: (d(32, 256),))
def eleventh_quantise(w):
    g = w.view(32, 4, 64)
    lo, hi = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    s = (hi - lo) / 15
    z = torch.round(-lo / s).clamp(0, 15)
    return (torch.round(g / s) + z).clamp(0, 15).view(32, 256), s[..., 0], z[..., 0]


def quantise(w, levels=15, round_of=torch.round, zero=False, tail=64, s_of=None):
    g = w.view(32, 4, 64)
    lo, hi = g[..., :tail].amin(-1, keepdim=True), g[..., :tail].amax(-1, keepdim=True)
    s = (hi - lo) / levels
    s = s_of(s) if s_of else s
    z = round_of(-lo / s).clamp(0, 15)
    codes = round_of(g / s + z) if zero else round_of(g / s) + z
    return codes.clamp(0, 15).view(32, 256), s[..., 0], z[..., 0]


ok(
    eleventh_quantise,
    quantise,
    as_defined={},
    rounded_by_adding_a_big_number={"round_of": lambda x: (x + 12582912.0) - 12582912.0},
)
bad(
    eleventh_quantise,
    quantise,
    {
        "sixteen steps instead of fifteen": {"levels": 16},
        "codes are cut off instead of rounded": {"round_of": torch.trunc},
        "the range leaves out the last lane of a group": {"tail": 63},
        # one code of 300 changes, and every scale
        "hides: scales in half precision": {"s_of": lambda s: narrow(s, hf)},
        # 0.4 per cent
        "hides: scales in bfloat16": {"s_of": narrow},
    },
)


# ------------------------------------------------------------------ e4m3 by token


@eleventh(lambda d: (d(40, 320, dtype=bf, scale=3), d(320, shift=1.0, scale=0.1, dtype=bf)))
def eleventh_token(x, gain):
    y = x.float() * gain.float()
    s = y.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return y / s, s


def token(x, gain, most=448.0, lanes=320, absolute=True, s_of=None, y_of=None, by=None):
    y = x.float() * gain.float()
    y = y_of(y) if y_of else y
    top = (y.abs() if absolute else y)[:, :lanes].amax(-1, keepdim=True).clamp(min=1e-12)
    s = top * (1 / most) if by else top / most
    s = s_of(s) if s_of else s
    return y * (most / top) if by else y / s, s


ok(eleventh_token, token, divided={}, multiplied_by_the_reciprocal={"by": True})
bad(
    eleventh_token,
    token,
    {
        "240 is taken for the greatest code": {"most": 240.0},
        "the greatest lacks its magnitude": {"absolute": False},
        "the last 64 lanes are not looked at": {"lanes": 256},
        # the scale is stored in bfloat16 and used so
        "hides: the scale in bfloat16": {"s_of": narrow},
        # the product of gain is rounded to eight bits before it is scaled
        "hides: the product by the gain in bfloat16": {"y_of": narrow},
    },
)


# ------------------------------------------------------------------ Newton-Schulz of Muon


@eleventh(lambda d: (d(48, 80),))
def eleventh_muon(g):
    x = g / (g.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x


def muon(g, steps=5, c=(3.4445, -4.7750, 2.0315), norm=None, mm=torch.matmul, tall=False, ab=False):
    x = g / (norm(g) if norm else g.norm() + 1e-7)
    x = x.T if tall else x
    for _ in range(steps):
        if tall:
            a = mm(x.T, x)
            x = c[0] * x + mm(x, c[1] * a + c[2] * mm(a, a))
        else:
            a = mm(x, x.T)
            x = c[0] * x + (c[1] * mm(a, x) + c[2] * mm(a, mm(a, x)) if ab else mm(c[1] * a + c[2] * mm(a, a), x))
    return x.T if tall else x


ok(
    eleventh_muon,
    muon,
    transposed={"tall": True},
    products_from_the_right={"ab": True},
    inner_tiles_of_16={"mm": lambda a, b: tiles(a, b, 16)},
)
bad(
    eleventh_muon,
    muon,
    {
        "four steps": {"steps": 4},
        "the spectral norm of one column": {"norm": lambda g: g.norm(dim=0).max()},
        "the first coefficient is 3.4": {"c": (3.4, -4.7750, 2.0315)},
        # the released one does so, but this one is defined in float32
        "hides: all products in bfloat16": {"mm": lambda a, b: narrow(narrow(a) @ narrow(b))},
        # ten bits of each operand
        "hides: products in tf32": {"mm": lambda a, b: tf32(a.contiguous()) @ tf32(b.contiguous())},
        # 2e-4 of one coefficient, as an older listing has it
        "hides: the last coefficient is 2.031": {"c": (3.4445, -4.7750, 2.031)},
    },
)


# ---- half precision, long inner dimension, transposed


@eleventh(lambda d: (d(4096, 48, dtype=hf).T, d(40, 4096, dtype=hf).T))
def eleventh_long(a, b):
    return (a.float() @ b.float()).to(hf)


def long_product(a, b, out=None, **how):
    y = tiles(a.float(), b.float(), **how)
    return out(y) if out else y


def corner(y):
    y = y.clone()
    y[47, 39] *= 1.01
    return y


ok(
    eleventh_long,
    long_product,
    hf,
    sixteen_splits={"step": 256},
    splits_in_pairs={"step": 64, "pair": True},
    tiles_of_32={},
)
bad(
    eleventh_long,
    long_product,
    {
        "the last split of 256 is not added": {"step": 256, "k": 3840},
        # 64 roundings to eleven bits
        "hides: partial sums of splits in half precision": {"step": 64, "kind": hf},
        # one output of 1920 by one per cent: ten of its units
        "hides: the last corner is one per cent too great": {"out": corner},
        # five units of the sum at random, and the sums' own noise is one part in 1e6
        "hides: four of 4096 products are left out": {"k": 4092},
        "hides: splits kept in bfloat16": {"step": 512, "kind": bf},
        "the accumulator is half precision": lambda a, b: slow_matmul(a, b, hf, 8),
    },
    hf,
)


# ------------------------------------------------------------------ complex product


@eleventh(lambda d: (d(64, 48), d(64, 48), d(48, 56), d(48, 56)))
def eleventh_complex(ar, ai, br, bi):
    return ar @ br - ai @ bi, ar @ bi + ai @ br


def complex_product(ar, ai, br, bi, three=False, sign=1, conj=1, kind=None, cross=True, step=16):
    bi = bi * conj
    mm = lambda a, b: tiles(a, b, step)
    if three:
        n = (lambda x: narrow(x, kind)) if kind else (lambda x: x)
        p, q, r = mm(ar, br), mm(ai, bi), mm(n(ar + ai), n(br + bi))
        return p - q, r - p - q
    re = mm(ar, br) - sign * mm(ai, bi)
    im = mm(ar, bi) + mm(ai, br)
    return narrow(re, kind) if kind else re, im if cross else torch.cat([im[:, :-1], mm(ar, bi)[:, -1:]], 1)


ok(
    eleventh_complex,
    complex_product,
    four_products={},
    as_complex_numbers=lambda ar, ai, br, bi: tuple(
        t.contiguous()
        for t in (
            (torch.complex(ar, ai) @ torch.complex(br, bi)).real,
            (torch.complex(ar, ai) @ torch.complex(br, bi)).imag,
        )
    ),
    four_products_by_tiles_of_eight={"step": 8},
)
bad(
    eleventh_complex,
    complex_product,
    {
        "the real part adds": {"sign": -1},
        "the second operand is conjugated": {"conj": -1},
        "the last column lacks one cross product": {"cross": False},
        # the sums of Gauss's trick in eight bits
        "hides: three products with sums in bfloat16": {"three": True, "kind": bf},
        "hides: the real part through half precision": {"kind": hf},
    },
)


# ------------------------------------------------------------------ a layer with its low rank


@eleventh(
    lambda d: (
        d(64, 128, dtype=bf),
        d(160, 128, dtype=bf, scale=0.09),
        d(160, dtype=bf),
        d(16, 128, dtype=bf, scale=0.09),
        d(160, 16, dtype=bf, scale=0.2),
    )
)
def eleventh_lora(x, w, b, down, up):
    x, w, b, down, up = (t.float() for t in (x, w, b, down, up))
    return (x @ w.T + b + 2.0 * (x @ down.T) @ up.T).to(bf)


def lora(x, w, b, down, up, by=2.0, merged=False, kind=None, bias=160, rank=16, step=128, acc=None):
    x, w, b, down, up = (t.float() for t in (x, w, b, down, up))
    b = torch.where(torch.arange(160) < bias, b, 0.0)
    if merged:
        whole = w + by * up @ down
        return x @ (narrow(whole, kind) if kind else whole).T + b
    y = tiles(x, w.T, step, acc)
    return y + b + (x @ down[:rank].T) @ (by * up[:, :rank]).T


ok(eleventh_lora, lora, bf, apart={}, merged_in_float32={"merged": True}, by_tiles_of_32={"step": 32})
bad(
    eleventh_lora,
    lora,
    {
        "the low rank is not scaled": {"by": 1.0},
        "the last tile has no bias": {"bias": 128},
        "one rank of sixteen is left out": {"rank": 15},
        # four bits of each merged weight
        "hides: merged into weights of e4m3": {"merged": True, "kind": F8},
        "hides: summed in bfloat16 by tiles of eight": {"step": 8, "acc": bf},
    },
    bf,
)


# ---- a routed product in float32: einsum of experts


@eleventh(lambda d: (d(6, 20, 64), d(6, 96, 64).mT, d(6, 96)))
def eleventh_batched(x, w, bias):
    return F.gelu(torch.baddbmm(bias[:, None], x, w), approximate="tanh")


def gelu(x, c=0.044715, k=0.7978845608028654, tanh=torch.tanh):
    return 0.5 * x * (1 + tanh(k * (x + c * x**3)))


def batched(x, w, bias, act=gelu, bias_of=None, mm=tiles, rows=20):
    y = mm(x, w) + (bias_of(bias) if bias_of else bias)[:, None]
    return torch.cat([act(y[:, :rows]), y[:, rows:].clamp(min=0)], 1)


ok(
    eleventh_batched,
    batched,
    by_tiles={},
    by_a_sigmoid={"act": lambda x: x * torch.sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x**3))},
)
bad(
    eleventh_batched,
    batched,
    {
        "the last row has relu for gelu": {"rows": 19},
        "all experts take the first's bias": {"bias_of": lambda b: b[:1].expand(6, -1)},
        # 5e-4 at most, where the values are of one
        "hides: gelu by the error function": {"act": lambda x: 0.5 * x * (1 + torch.erf(x * 0.5**0.5))},
        # 4e-5 of the argument
        "hides: the root of two over pi is 0.797": {"act": lambda x: gelu(x, k=0.797)},
        "hides: 0.045 for 0.044715": {"act": lambda x: gelu(x, c=0.045)},
        "hides: products of operands in tf32": {"mm": lambda a, b: tf32(a.contiguous()) @ tf32(b.contiguous())},
    },
)
