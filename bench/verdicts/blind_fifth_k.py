# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: complex numbers, Fourier transforms and linear algebra."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake, tf32
from .blind_fifth_a import cut, fifth, rights, wide, wrongs

# ------------------------------------------------------------------ complex numbers


def complexes(d, *shape):
    return torch.complex(d(*shape), d(*shape))


@fifth(lambda d: (d(12, 30), d(12, 30), d(18, 30), d(18, 30)))
def complex_inner(ar, ai, br, bi):
    z = torch.complex(ar, ai) @ torch.complex(br, bi).mH
    return z.real, z.imag


def complex_parts(ar, ai, br, bi, conj=-1.0, left=False, minus=1.0, swap=False, make=lambda x: x):
    ar, ai, br, bi = map(make, (ar, ai, br, bi))
    if left:
        ai, conj = -ai, 1.0
    re = ar @ br.T - conj * minus * (ai @ bi.T)
    im = ai @ br.T + conj * (ar @ bi.T)
    return (im, re) if swap else (re, im)


def three_products(ar, ai, br, bi):
    a, b = (ar.double(), ai.double()), (br.double(), -bi.double())
    p, q = a[0] @ b[0].T, a[1] @ b[1].T
    return (p - q).float(), ((a[0] + a[1]) @ (b[0] + b[1]).T - p - q).float()


honest(complex_inner, "four real products", complex_parts)
honest(complex_inner, "three products (Gauss) in double precision", three_products)
wrongs(
    complex_inner,
    complex_parts,
    {
        "b is transposed but not conjugated": {"conj": 1.0},
        "a is conjugated instead of b": {"left": True},
        "the real part's second product has the wrong sign": {"minus": -1.0},
        "products are rounded to tf32": {"make": tf32},
    },
)


@fifth(
    lambda d: (
        torch.cat((d(100), d(40, scale=1e22), d(40, scale=1e-22))),
        torch.cat((d(100), d(40, scale=1e22), d(40, scale=1e-22))),
        torch.cat((d(100), d(40, scale=1e22), d(40, scale=1e-22))),
        torch.cat((d(100), d(40, scale=1e22), d(40, scale=1e-22))),
    )
)
def complex_quotient(ar, ai, br, bi):
    r = torch.where(br.abs() >= bi.abs(), bi / br, br / bi)
    big = br.abs() >= bi.abs()
    down = torch.where(big, br + bi * r, br * r + bi)
    return torch.where(big, ar + ai * r, ar * r + ai) / down, torch.where(big, ai - ar * r, ai * r - ar) / down


def quotient(ar, ai, br, bi, sign=1.0, square=True):
    n = br * br + bi * bi
    n = n if square else n.sqrt()
    re, im = (ar * br + ai * bi) / n, sign * (ai * br - ar * bi) / n
    return re, im


honest(complex_quotient, "in double precision", wide(quotient, torch.float64))
wrongs(complex_quotient, quotient, {"the squared magnitude overflows and underflows": {}})
mistake(complex_quotient, "the imaginary part has the wrong sign", wide(quotient, torch.float64, sign=-1.0))
mistake(complex_quotient, "the magnitude, not its square, is divided by", wide(quotient, torch.float64, square=False))


@fifth(lambda d: (d(200), torch.cat((d(196), torch.tensor([0.0, -0.0, 1.0, -1.0])))))
def phase_and_magnitude(x, y):
    return torch.atan2(y, x), torch.hypot(x, y)


honest(
    phase_and_magnitude,
    "torch's own on a complex tensor, double",
    lambda x, y: (lambda z: (z.angle().float(), z.abs().float()))(torch.complex(x.double(), y.double())),
)
mistake(phase_and_magnitude, "atan(y / x) without the quadrant", lambda x, y: ((y / x).atan(), torch.hypot(x, y)))
mistake(phase_and_magnitude, "x and y are exchanged in the phase", lambda x, y: (torch.atan2(x, y), torch.hypot(x, y)))
mistake(
    phase_and_magnitude,
    "the phase runs from 0 to 2 pi",
    lambda x, y: (torch.atan2(y, x) % (2 * math.pi), torch.hypot(x, y)),
)
mistake(
    phase_and_magnitude,
    "degrees instead of radians",
    lambda x, y: (torch.rad2deg(torch.atan2(y, x)), torch.hypot(x, y)),
)

# ------------------------------------------------------------------ Fourier transforms


@fifth(lambda d: (d(3, 400),))
def power_spectrogram(x):
    z = torch.stft(x, 64, 16, window=torch.hann_window(64, dtype=x.dtype), center=True, return_complex=True)
    return z.real.square() + z.imag.square()


def spectrogram(x, periodic=True, mode="reflect", power=2, hop=16, window=True, scale=1.0, one=False, center=True):
    x = F.pad(x, (32, 32) if center else (0, 64), mode=mode) if mode else x
    w = torch.hann_window(64, periodic=periodic, dtype=torch.float64) if window else torch.ones(64).double()
    frames = x.double().unfold(-1, 64, hop) * w
    n, k = torch.arange(64), torch.arange(33)
    basis = torch.exp(-2j * math.pi * (n[:, None] * k[None] % 64) / 64).to(torch.complex128)
    z = (frames.to(torch.complex128) @ basis).abs().square().mT
    if one:
        z[:, 1:-1] *= 2
    return (z if power == 2 else z.sqrt()).float() * scale


honest(power_spectrogram, "products with a table of cosines and sines", spectrogram)
wrongs(
    power_spectrogram,
    spectrogram,
    {
        "the window is symmetric, not periodic": {"periodic": False},
        "ends are padded with zeros, not reflected": {"mode": "constant"},
        "the magnitude, not its square": {"power": 1},
        "there is no window": {"window": False},
        "powers are divided by the length 64": {"scale": 1 / 64},
        "the inner bins are doubled": {"one": True},
    },
)


@fifth(lambda d: (d(2, 3, 70), d(3, 25)))
def long_convolution(x, k):
    n = x.shape[-1]
    return F.conv1d(F.pad(x, (24, 0)), k.flip(-1)[:, None], groups=3)[..., :n]


def conv_fft(x, k, size=128, conj=False, scale=1.0, off=0, low=None):
    f, g = torch.fft.rfft(cut(x, low), size), torch.fft.rfft(cut(k, low), size)
    y = torch.fft.irfft(f * (g.conj() if conj else g), size) * scale
    return y.roll(off, -1)[..., :70].contiguous()


honest(long_convolution, "a padded Fourier transform", conv_fft)
honest(
    long_convolution, "shifted sums", lambda x, k: sum(k[:, j, None] * F.pad(x, (j, 0))[..., :70] for j in range(25))
)
wrongs(
    long_convolution,
    conv_fft,
    {
        "the transform is not padded, so that the end wraps round": {"size": 70},
        "the kernel is conjugated (correlation)": {"conj": True},
        "the inverse is not divided by its length": {"scale": 128.0},
        "the output is one sample late": {"off": 1},
        "inputs are rounded to bf16": {"low": bf},
    },
)


@fifth(lambda d: (d(5, 48),))
def cosine_transform(x):
    n = x.shape[-1]
    at = torch.arange(n, dtype=x.dtype)
    basis = torch.cos(math.pi * (at[:, None] + 0.5) * at[None] / n)
    y = x @ basis * math.sqrt(2 / n)
    return torch.cat((y[:, :1] / math.sqrt(2), y[:, 1:]), 1)


def dct_by_fft(x, ortho=True, first=True, turned=False, half=0.5, flip=True):
    n = 48
    v = torch.cat((x[:, ::2], x[:, 1::2].flip(-1) if flip else x[:, 1::2]), 1).double()
    k = torch.arange(n).double()
    y = (torch.fft.fft(v) * torch.exp((1j if turned else -1j) * math.pi * k * (half / n))).real
    y = y * math.sqrt(2 / n) if ortho else 2 * y
    if first:
        y[:, 0] /= math.sqrt(2)
    return y.float()


honest(cosine_transform, "by a Fourier transform of the same length", dct_by_fft)
wrongs(
    cosine_transform,
    dct_by_fft,
    {
        "the first coefficient is not divided by the root of 2": {"first": False},
        "not orthonormal: twice the plain sums": {"ortho": False, "first": False},
        "the twiddle turns the other way": {"turned": True},
        "the odd half is not reversed": {"flip": False},
    },
)


@fifth(lambda d: (d(6, 64, dtype=hf, scale=3.0), torch.where(d(64) > 0, 1.0, -1.0).to(hf)))
def hadamard_rotate(x, sign):
    h = x.new_ones(1, 1)
    for _ in range(6):
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)), 0)
    return ((x * sign) @ h) / 8


def butterflies(x, sign, stages=6, over=8.0, sequency=False, late=False, signed=True, odd=False):
    y = x * sign if signed and not late else x
    for s in range(stages):
        y = y.unflatten(1, (-1, 2, 2**s))
        a, b = y[:, :, 0], y[:, :, 1]
        y = torch.stack((a + b, b - a if odd else a - b), 2).flatten(1)
    if sequency:
        i = torch.arange(64)
        gray = i ^ (i >> 1)
        rev = sum(((gray >> b) & 1) << (5 - b) for b in range(6))
        y = y[:, rev]
    return y / over * (sign if late else 1.0)


rights(hadamard_rotate, butterflies, {"six stages of butterflies": {}})
wrongs(
    hadamard_rotate,
    butterflies,
    {
        "divided by 64, not by its root": {"over": 64.0},
        "the last of six stages is left out": {"stages": 5},
        "outputs come in the order of sign changes": {"sequency": True},
        "signs are applied after the transform": {"late": True},
        "signs are left out": {"signed": False},
        "butterflies take b - a": {"odd": True},
    },
)

# ------------------------------------------------------------------ linear algebra


def spd_system(d, n=14, cols=3):
    a = d(n, n)
    return a @ a.T / n + torch.eye(n), d(n, cols)


@fifth(spd_system)
def cholesky_solved(a, b):
    low = torch.linalg.cholesky(a)
    return torch.cholesky_solve(b, low), 2 * low.diagonal().log().sum()


def cholesky_kernel(a, b, upper=False, half=False, jitter=0.0, keep=None, unit=False, plain=False):
    n = len(a)
    a = a + jitter * torch.eye(n)
    m = torch.zeros_like(a)
    for j in range(n):
        s = a[j:, j] - cut(m[j:, :j] @ m[j, :j], keep)
        m[j:, j] = s / s[0].sqrt()
    y = torch.linalg.solve_triangular(m, b, upper=False, unitriangular=unit)
    x = y if half else torch.linalg.solve_triangular(m if upper else m.T, y, upper=not upper)
    return x, m.diagonal().log().sum() * (1.0 if plain else 2.0)


honest(cholesky_solved, "column by column", cholesky_kernel)
honest(
    cholesky_solved,
    "eliminated in double precision",
    lambda a, b: (torch.linalg.solve(a.double(), b.double()).float(), torch.linalg.slogdet(a.double())[1].float()),
)
wrongs(
    cholesky_solved,
    cholesky_kernel,
    {
        "the second solve uses the factor, not its transpose": {"upper": True},
        "only the first triangular solve is done": {"half": True},
        "1e-3 is added to the diagonal": {"jitter": 1e-3},
        "updates of the factor are rounded to bf16": {"keep": bf},
        "the first solve takes the diagonal as ones": {"unit": True},
        "the log determinant lacks its 2": {"plain": True},
    },
)


@fifth(lambda d: (d(12, 12), d(12, 2)))
def solved_with_pivots(a, b):
    sign, log = torch.linalg.slogdet(a)
    return torch.linalg.solve(a, b), sign * log.exp()


def elimination(a, b, rows=True, sign=True, pivot=True, low=None):
    a, b, det = a.double().clone(), b.double().clone(), 1.0
    n = len(a)
    for k in range(n):
        p = k + int(a[k:, k].abs().argmax()) if pivot else k
        if p != k:
            a[[k, p]] = a[[p, k]]
            if rows:
                b[[k, p]] = b[[p, k]]
            det = -det if sign else det
        det *= float(a[k, k])
        f = a[k + 1 :, k] / a[k, k]
        a[k + 1 :] = cut(a[k + 1 :] - f[:, None] * a[k], low)
        b[k + 1 :] = b[k + 1 :] - f[:, None] * b[k]
    x = torch.linalg.solve_triangular(a, b, upper=True)
    return x.float(), torch.tensor(det).float()


honest(solved_with_pivots, "elimination in double precision", elimination)
for words, keys in {
    "row exchanges are not applied to the right side": {"rows": False},
    "the determinant's sign does not count the exchanges": {"sign": False},
    "the eliminated matrix is kept in bf16": {"low": bf},
}.items():
    mistake(solved_with_pivots, words, lambda *a, keys=keys: elimination(*a, **keys))


@fifth(lambda d: (torch.tensor([[1e-9, 1.0, 2.0], [1.0, 1.0, -1.0], [3.0, -1.0, 1.0]]), d(3, 2)))
def solved_tiny_pivot(a, b):
    return torch.linalg.solve(a, b)


def small_elimination(a, b, pivot=True, kind=torch.float32):
    a, b = a.to(kind).clone(), b.to(kind).clone()
    for k in range(3):
        p = k + int(a[k:, k].abs().argmax()) if pivot else k
        a[[k, p]], b[[k, p]] = a[[p, k]], b[[p, k]]
        f = a[k + 1 :, k] / a[k, k]
        a[k + 1 :], b[k + 1 :] = a[k + 1 :] - f[:, None] * a[k], b[k + 1 :] - f[:, None] * b[k]
    return torch.linalg.solve_triangular(a, b, upper=True).float()


honest(solved_tiny_pivot, "elimination with pivots", small_elimination)
honest(solved_tiny_pivot, "in double precision", lambda a, b: small_elimination(a, b, kind=torch.float64))
mistake(
    solved_tiny_pivot, "no row exchanges, so that 1e-9 becomes the pivot", lambda a, b: small_elimination(a, b, False)
)


@fifth(lambda d: (d(20, 7),))
def orthonormal_columns(a):
    q, r = torch.linalg.qr(a)
    s = torch.sign(r.diagonal())
    return q * s, s[:, None] * r


def gram_schmidt(a, signs=True, skip=0):
    a = a.double()
    q, r = torch.zeros_like(a), torch.zeros(7, 7).double()
    for j in range(7):
        v = a[:, j].clone()
        for i in range(skip, j):
            r[i, j] = q[:, i] @ v
            v = v - r[i, j] * q[:, i]
        r[j, j] = v.norm()
        q[:, j] = v / r[j, j]
    return (q.float(), r.float()) if signs else ((-q).float(), (-r).float())


honest(orthonormal_columns, "Gram and Schmidt's way in double precision", gram_schmidt)
honest(
    orthonormal_columns,
    "from the Cholesky factor of a^T a in double precision",
    lambda a: (lambda r: (torch.linalg.solve_triangular(r, a.double(), upper=True, left=False).float(), r.float()))(
        torch.linalg.cholesky(a.double().T @ a.double()).mH
    ),
)
mistake(orthonormal_columns, "the diagonal of r is negative", lambda a: gram_schmidt(a, signs=False))
mistake(orthonormal_columns, "the first column is not taken off the others", lambda a: gram_schmidt(a, skip=1))
mistake(orthonormal_columns, "signs are as the reflections leave them", lambda a: tuple(torch.linalg.qr(a)))


@fifth(lambda d: (d(60, 3), d(40, 3)))
def pair_distances(x, y):
    return (x[:, None] - y[None]).square().sum(-1).sqrt()


honest(
    pair_distances,
    "torch's own without products",
    lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
)
honest(
    pair_distances,
    "coordinate by coordinate",
    lambda x, y: torch.sqrt(sum((x[:, i, None] - y[None, :, i]) ** 2 for i in range(3))),
)
mistake(pair_distances, "the root is left out", lambda x, y: (x[:, None] - y[None]).square().sum(-1))
mistake(pair_distances, "sums of magnitudes (1-norm)", lambda x, y: (x[:, None] - y[None]).abs().sum(-1))
mistake(
    pair_distances,
    "by products rounded to tf32",
    lambda x, y: (x.square().sum(-1)[:, None] + y.square().sum(-1)[None] - 2 * tf32(x) @ tf32(y).T).clamp(min=0).sqrt(),
)
mistake(
    pair_distances,
    "the cross term lacks its 2",
    lambda x, y: (x.square().sum(-1)[:, None] + y.square().sum(-1)[None] - x @ y.T).clamp(min=0).sqrt(),
)


@fifth(lambda d: (d(30, 6, shift=500.0), d(25, 6, shift=500.0)))
def far_pair_distances(x, y):
    return (x[:, None] - y[None]).square().sum(-1).sqrt()


honest(
    far_pair_distances,
    "products of the centred points",
    lambda x, y: (lambda a, b: (a.square().sum(-1)[:, None] + b.square().sum(-1)[None] - 2 * a @ b.T).sqrt().float())(
        x.double() - 500, y.double() - 500
    ),
)
mistake(
    far_pair_distances,
    "squared norms less twice the product, which cancels",
    lambda x, y: (x.square().sum(-1)[:, None] + y.square().sum(-1)[None] - 2 * x @ y.T).clamp(min=0).sqrt(),
)
mistake(
    far_pair_distances,
    "differences are rounded to bf16 coordinates",
    lambda x, y: (cut(x, bf)[:, None] - cut(y, bf)[None]).square().sum(-1).sqrt(),
)


@fifth(lambda d: (d(40, 8), d(40)))
def centred_covariance(x, w):
    w = w.square()
    mean = (x * w[:, None]).sum(0) / w.sum()
    y = x - mean
    return (y * w[:, None]).T @ y / (w.sum() - w.square().sum() / w.sum()), torch.corrcoef(x.T)


def covariance(x, w, plain=False, ones=False, unweighted=False, n=True):
    w = w.square()
    m = (w @ x) / w.sum()
    y = (x - (x.mean(0) if unweighted else m)) * w.sqrt()[:, None]
    z = x - x.mean(0)
    s = z.norm(dim=0)
    cov = (y.T @ y) / (w.sum() if plain else w.sum() - 1 if ones else w.sum() - w.square().sum() / w.sum())
    return cov, (z / (s if n else z.std(0))).T @ (z / (s if n else z.std(0))) / (1 if n else 40)


honest(centred_covariance, "with roots of the weights", covariance)
honest(centred_covariance, "in double precision", wide(covariance, torch.float64))
wrongs(
    centred_covariance,
    covariance,
    {
        "divided by the sum of weights": {"plain": True},
        "divided by the sum of weights less 1": {"ones": True},
        "the mean is not weighted": {"unweighted": True},
        "correlations mix n - 1 in the deviation with n": {"n": False},
    },
)


@fifth(lambda d: (d(9, 9, scale=0.4),))
def matrix_exponential(a):
    return torch.linalg.matrix_exp(a)


def exp_by_squaring(a, terms=14, squarings=4, undo=4, factorial=True):
    a = a.double() / 2**squarings
    y, term = torch.eye(9).double(), torch.eye(9).double()
    for k in range(1, terms):
        term = term @ a / (k if factorial else 1)
        y = y + term
    for _ in range(undo):
        y = y @ y
    return y.float()


honest(matrix_exponential, "a series, scaled and squared, in double precision", exp_by_squaring)
mistake(matrix_exponential, "each element's exponential", lambda a: a.exp())
mistake(matrix_exponential, "one squaring too few", lambda a: exp_by_squaring(a, undo=3))
mistake(matrix_exponential, "three terms of the series, without squaring", lambda a: exp_by_squaring(a, 3, 0, 0))
mistake(matrix_exponential, "terms are not divided by k", lambda a: exp_by_squaring(a, factorial=False))
