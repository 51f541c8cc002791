# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind: steps of optimizers and what surrounds them."""

import math

import torch

from .blind import bf, hf, mistake
from .blind_fourth_a import double, fourth, honest
from .blind_third import hurt, kept, last_rows_unwritten, tail_unwritten


def state(d, *shape, tiny=1.0):
    return (d(*shape, scale=0.3), d(*shape) * tiny, d(*shape, scale=0.3) * tiny,
            (d.rand(*shape) + 0.01) * tiny * tiny)


@fourth(lambda d: state(d, 13, 21, tiny=1e-3) + (torch.tensor(3),))
def adamw_step(p, g, m, v, t, lr=0.01, decay=0.2, coupled=False, bare=False, inner=False, ahead=0, bias=True,
               eps=1e-5, low=None, b2=0.999):
    t = t.to(p.dtype) + ahead
    if coupled:
        g = g + decay * p
    m, v = 0.9 * m + 0.1 * g, kept(b2 * v + (1 - b2) * g * g, low)
    mh, vh = (m / (1 - 0.9 ** t), v / (1 - b2 ** t)) if bias else (m, v)
    u = mh / ((vh + eps).sqrt() if inner else vh.sqrt() + eps)
    if not coupled:
        p = p * (1 - (decay if bare else lr * decay))
    return p - lr * u, m, v


def adamw_fused(p, g, m, v, t):
    t = t.to(p.dtype)
    m, v = torch.lerp(m, g, 0.1), v + 0.001 * (g * g - v)
    step, root = 0.01 / (1 - 0.9 ** t), (1 - 0.999 ** t).sqrt()
    return torch.addcdiv(p - 0.002 * p, m * -step, v.sqrt() / root + 1e-5), m, v


honest(adamw_step, "bias corrections folded into step size and root", adamw_fused)
honest(adamw_step, "float64 inside", double(adamw_step))
mistake(adamw_step, "weight decay enters the gradient (Adam with L2)", coupled=True)
mistake(adamw_step, "weight decay is not multiplied by the learning rate", bare=True)
mistake(adamw_step, "epsilon is inside the square root", inner=True)
mistake(adamw_step, "bias correction counts one step too many", ahead=1)
mistake(adamw_step, "beta2 0.99 instead of 0.999", b2=0.99)
mistake(adamw_step, "the second moment is kept in fp16", low=hf)
mistake(adamw_step, "moments are not corrected for their bias", bias=False)


@fourth(lambda d: state(d, 11, 17) + (d.rand(11, 17), torch.tensor(5)))
def amsgrad_step(p, g, m, v, top, t, lr=0.02, stale=False, off=False, corrected=False, first=True):
    t = t.to(p.dtype)
    m, new = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    fix = 1 - 0.999 ** t
    best = torch.maximum(top, (v if stale else new) / (fix if corrected else 1.0))
    use = new if off else best
    u = m / (1 - 0.9 ** t if first else 1.0) / ((use if corrected else use / fix).sqrt() + 1e-8)
    return p - lr * u, m, new, best


honest(amsgrad_step, "where instead of maximum, step size folded", lambda p, g, m, v, top, t: (
    lambda m, v: (lambda b: (p - m * (0.02 / (1 - 0.9 ** int(t)))
    / (b.sqrt() / math.sqrt(1 - 0.999 ** int(t)) + 1e-8), m, v, b))(
        torch.where(v > top, v, top)))(m + 0.1 * (g - m), v * 0.999 + g * g * 0.001))
honest(amsgrad_step, "float64 inside", double(amsgrad_step))
mistake(amsgrad_step, "the maximum takes the second moment of the step before", stale=True)
mistake(amsgrad_step, "the maximum is stored but not used", off=True)
mistake(amsgrad_step, "the bias-corrected moment goes into the maximum", corrected=True)
mistake(amsgrad_step, "the first moment is not corrected for its bias", first=False)


@fourth(lambda d: state(d, 9, 20) + (torch.tensor(4),))
def nadam_step(p, g, m, v, t, lr=0.02, psi=0.004, plain=False, product=True):
    t = t.to(p.dtype)

    def mu(i):
        return 0.9 * (1 - 0.5 * 0.96 ** (i * psi))

    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    if product:
        done = torch.ones_like(t)
        for i in range(1, int(t) + 1):
            done = done * mu(i)
    else:
        done = mu(t)
    den = (v / (1 - 0.999 ** t)).sqrt() + 1e-8
    if plain:
        return p - lr * m / (1 - done) / den, m, v
    return p - lr * (g * (1 - mu(t)) / (1 - done) + m * mu(t + 1) / (1 - done * mu(t + 1))) / den, m, v


honest(nadam_step, "products by exp of summed logarithms", lambda p, g, m, v, t: (lambda mus, m, v: (
    p - (g * ((1 - mus[-2]) / (1 - mus[:-1].log().sum().exp()))
         + m * (mus[-1] / (1 - mus.log().sum().exp()))) * 0.02
         / (v.sqrt() / (1 - 0.999 ** int(t)) ** 0.5 + 1e-8), m, v))(
             0.9 * (1 - 0.5 * 0.96 ** (torch.arange(1, int(t) + 2, dtype=p.dtype) * 0.004)),
             torch.lerp(m, g, 0.1), torch.lerp(v, g * g, 0.001)))
honest(nadam_step, "float64 inside", double(nadam_step))
mistake(nadam_step, "no Nesterov look-ahead: the momentum alone", plain=True)
mistake(nadam_step, "the momentum's product takes the last factor only", product=False)
mistake(nadam_step, "momentum decay 0.4 instead of 0.004", psi=0.4)


@fourth(lambda d: state(d, 9, 20) + (torch.tensor(12),))
def radam_step(p, g, m, v, t, lr=0.02, rect=True, b2=0.999, lost=False, root=True):
    t = t.to(p.dtype)
    m, v = 0.9 * m + 0.1 * g, b2 * v + (1 - b2) * g * g
    end = 2 / (1 - b2) - 1
    now = end - 2 * t * b2 ** t / (1 - b2 ** t)
    r = (now - 4) * (now - 2) * end / ((end - 4) * (end - 2) * now)
    r = r.sqrt() if root else r
    u = m / (1 - 0.9 ** t)
    if lost:
        return p - lr * u, m, v
    return p - lr * (r if rect else 1.0) * u / ((v / (1 - b2 ** t)).sqrt() + 1e-8), m, v


honest(radam_step, "rectification in float64, the rest in float32", lambda p, g, m, v, t: (lambda c, m, v: (
    p - m * c / (v.sqrt() + 1e-8 * (1 - 0.999 ** int(t)) ** 0.5), m, v))(
        (lambda n: 0.02 * math.sqrt((n - 4) * (n - 2) * 1999 / (1995 * 1997 * n))
        * math.sqrt(1 - 0.999 ** int(t))
         / (1 - 0.9 ** int(t)))(1999 - 2 * int(t) * 0.999 ** int(t) / (1 - 0.999 ** int(t))), m * 0.9 + g
         * 0.1, v * 0.999 + 0.001 * g ** 2))
honest(radam_step, "float64 inside", double(radam_step))
mistake(radam_step, "the rectification is left out (plain Adam)", rect=False)
mistake(radam_step, "the rectification lacks its square root", root=False)
mistake(radam_step, "the adaptive step is not taken though the length allows it", lost=True)


@fourth(lambda d: (d(10, 15, scale=0.3), d(10, 15), d(10, 15, scale=0.3), d.rand(10, 15) * 2,
    torch.tensor(3)))
def adamax_step(p, g, m, u, t, lr=0.02, l2=False, slow=0.999, bias=True, late=False):
    t = t.to(p.dtype)
    m = 0.9 * m + 0.1 * g
    new = (slow * u * u + (1 - slow) * g * g).sqrt() if l2 else torch.maximum(slow * u, g.abs() + 1e-8)
    return p - lr / (1 - 0.9 ** t if bias else 1.0) * m / (u if late else new), m, new


honest(adamax_step, "maximum over a stack, division first", lambda p, g, m, u, t: (lambda m, w: (
    p - m / w * (0.02 / (1 - 0.9 ** int(t))), m, w))(torch.lerp(m, g, 0.1),
    torch.stack((u * 0.999, g.abs() + 1e-8)).amax(0)))
honest(adamax_step, "float64 inside", double(adamax_step))
mistake(adamax_step, "a mean square instead of the infinity norm", l2=True)
mistake(adamax_step, "the first moment is not corrected for its bias", bias=False)
mistake(adamax_step, "divides by the norm of the step before", late=True)
mistake(adamax_step, "the norm decays by 0.9 instead of 0.999", slow=0.9)


@fourth(lambda d: (d(8, 19), d(8, 19), d.rand(8, 19) + 0.1, d.rand(8, 19) * 0.1 + 0.01))
def adadelta_step(p, g, sq, acc, rho=0.9, eps=1e-3, upside=False, late=False, square=True):
    sq = rho * sq + (1 - rho) * g * g
    new = acc
    ratio = (acc + eps).sqrt() / (sq + eps).sqrt()
    u = g / ratio if upside else ratio * g
    new = rho * acc + (1 - rho) * (u * u if square else u.abs())
    if late:
        u = (new + eps).sqrt() / (sq + eps).sqrt() * g
    return p - u, sq, new


honest(adadelta_step, "one root of the quotient", lambda p, g, s,
    a: (lambda s: (lambda u: (p - u, s, torch.lerp(
    a, u * u, 0.1)))(((a + 1e-3) / (s + 1e-3)).sqrt() * g))(torch.lerp(s, g * g, 0.1)))
honest(adadelta_step, "float64 inside", double(adadelta_step))
mistake(adadelta_step, "the ratio of the roots is upside down", upside=True)
mistake(adadelta_step, "uses the average of updates with this update in it", late=True)
mistake(adadelta_step, "updates enter their average without the square", square=False)


@fourth(lambda d: (d(9, 17, scale=0.5), d(9, 17), d.rand(9, 17) * 3, torch.tensor(6)))
def adagrad_step(p, g, total, t, lr=0.1, slow=0.05, decay=0.1, ahead=-1, ema=False, grow=True, l2=True):
    g = g + decay * p if l2 else g
    new = 0.9 * total + 0.1 * g * g if ema else (total + g * g if grow else total + g.abs())
    return p - lr / (1 + (t.to(p.dtype) + ahead) * slow) * g / (new.sqrt() + 1e-10), new


honest(adagrad_step, "rsqrt", lambda p, g, s, t: (lambda g: (lambda n: (p - 0.1 / (0.95 + 0.05 * int(t)) * g
    * n.rsqrt(), n))(
    torch.addcmul(s, g, g)))(torch.add(g, p, alpha=0.1)))
honest(adagrad_step, "float64 inside", double(adagrad_step))
mistake(adagrad_step, "the sum of squares is a moving average", ema=True)
mistake(adagrad_step, "the learning rate decays with step t instead of t - 1", ahead=0)
mistake(adagrad_step, "weight decay is left out", l2=False)
mistake(adagrad_step, "magnitudes instead of squares are summed", grow=False)


@fourth(lambda d: state(d, 8, 18) + (d(8, 18), d(8, 18, scale=0.2)))
def adan_step(p, g, m, n, last, diff, lr=0.05, decay=0.3, plus=True, mix=0.92, outside=False, second=True):
    gap = g - last if plus else last - g
    m, diff = 0.98 * m + 0.02 * g, mix * diff + (1 - mix) * gap
    n = 0.99 * n + 0.01 * (g + (0.92 * gap if second else 0.0)) ** 2
    u = (m + 0.92 * diff) / (n.sqrt() + 1e-8)
    return (p * (1 - lr * decay) - lr * u) if outside else (p - lr * u) / (1 + lr * decay), m, n, diff


honest(adan_step, "moving averages by lerp", lambda p, g, m, n, last, diff: (lambda gap, m: (lambda d, n: (
    (p - 0.05 * (m / n.sqrt() + 0.92 * d / n.sqrt())) * (1 / 1.015), m, n, d))(
        torch.lerp(diff, gap, 0.08), torch.lerp(n, (1.92 * g - 0.92 * last) ** 2, 0.01)))(g - last,
        torch.lerp(m, g, 0.02)))
honest(adan_step, "float64 inside", double(adan_step))
mistake(adan_step, "the gradient's difference has the wrong sign", plus=False)
mistake(adan_step, "the second moment takes the gradient alone, without its difference", second=False)
mistake(adan_step, "decay multiplies by 1 - lr w before the step instead of dividing after", outside=True)
mistake(adan_step, "the difference's average mixes 0.98 to 0.02", mix=0.98)


@fourth(lambda d: (d(12, 14, scale=0.4), d(12, 14), d(12, 14, scale=0.05), d.rand(12, 14) * 4))
def sophia_step(p, g, m, h, lr=0.02, rho=0.04, decay=0.3, clip=1.0, root=False, old=False, bare=False):
    new = 0.965 * m + 0.035 * g
    u = (m if old else new) / (rho * (h.sqrt() if root else h)).clamp(min=1e-12)
    return p * (1 - (decay if bare else lr * decay)) - lr * u.clamp(-clip, clip), new


honest(sophia_step, "sign times the smaller of ratio and one", lambda p, g, m, h: (lambda m: (
    p - 0.006 * p - 0.02 * m.sign() * (m.abs() / (0.04 * h + 1e-15)).clamp(max=1.0), m))(torch.lerp(m, g,
    0.035)))
honest(sophia_step, "float64 inside", double(sophia_step))
mistake(sophia_step, "updates are not clipped", clip=1e9)
mistake(sophia_step, "the square root of the curvature is taken, as in Adam", root=True)
mistake(sophia_step, "uses the momentum of the step before", old=True)
mistake(sophia_step, "weight decay is not multiplied by the learning rate", bare=True)


def power_of(a, k):
    w, q = torch.linalg.eigh(a)
    return (q * w.clamp(min=1e-6) ** k) @ q.mT


@fourth(lambda d: (d(10, 14, scale=0.3), d(10, 14), *(lambda a, b: (a @ a.T / 10, b @ b.T / 10))(
    d(10, 20), d(14, 28))))
def shampoo_step(p, g, left, right, lr=0.05, power=-0.25, one=False, ridge=0.1, graft=True):
    a, b = left + g @ g.T, right + g.T @ g
    wa = power_of(a + ridge * torch.eye(10, dtype=p.dtype), power)
    wb = power_of(b + ridge * torch.eye(14, dtype=p.dtype), power)
    u = g @ wb if one else wa @ g @ wb
    return p - lr * (u * (g.norm() / u.norm()) if graft else u), a, b


def shampoo_by_svd(p, g, left, right):
    a, b = torch.addmm(left, g, g.T), torch.addmm(right, g.T, g)

    def root(x):
        u, s, _ = torch.linalg.svd(x.double() + 0.1 * torch.eye(len(x), dtype=torch.float64))
        return u @ torch.diag(1 / s.sqrt().sqrt()) @ u.T

    u = root(a) @ (g.double() @ root(b))
    return (p - 0.05 * g.norm() * u / u.norm()).to(p.dtype), a, b


honest(shampoo_step, "singular values in float64, two square roots", shampoo_by_svd)
honest(shampoo_step, "float64 inside", double(shampoo_step))
mistake(shampoo_step, "power -1/2 for both sides instead of -1/4", power=-0.5)
mistake(shampoo_step, "the left preconditioner is not applied", one=True)
mistake(shampoo_step, "the update is not brought to the gradient's norm", graft=False)
mistake(shampoo_step, "epsilon 1e-3 instead of 0.1 on the diagonals", ridge=1e-3)


@fourth(lambda d: (d(12, 16, scale=0.5), d(12, 16), d(12, 16, scale=0.1)))
def lars_step(p, g, buf, lr=0.5, trust=0.02, decay=0.1, decayed=True, inverse=False, outside=False,
        counted=True):
    pn, gn = p.norm(), g.norm()
    if inverse:
        pn, gn = gn, pn
    rate = trust * pn / (gn + (decay * pn if counted else 0.0) + 1e-9)
    g = g + decay * p if decayed else g
    if outside:
        buf = 0.9 * buf + g
        return p - lr * rate * buf, buf
    buf = 0.9 * buf + lr * rate * g
    return p - buf, buf


honest(lars_step, "norms in float64", lambda p, g,
    b: (lambda r: (lambda b: (p - b, b))(b * 0.9 + (g + 0.1 * p) * r))(
    (0.01 * p.double().norm() / (g.double().norm() + 0.1 * p.double().norm() + 1e-9)).float()))
honest(lars_step, "float64 inside", double(lars_step))
mistake(lars_step, "the local rate is upside down", inverse=True)
mistake(lars_step, "weight decay is left out of the gradient", decayed=False)
mistake(lars_step, "the local rate multiplies the momentum buffer instead of entering it", outside=True)
mistake(lars_step, "weight decay is left out of the local rate's denominator", counted=False)


@fourth(lambda d: (d(11, 13), d(29, scale=2.0), d(4, 5, 6, scale=0.5), d(7, scale=3.0)))
def clip_by_global_norm(a, b, c, e, top=2.5, each=False, root=True, lost=False, values=False, biggest=False):
    parts = (a, b, c, e)
    if values:
        return tuple(x.clamp(-top, top) for x in parts)
    sq = torch.stack([(x * x).sum() for x in (parts[:-1] if lost else parts)])
    if each:
        return tuple(x * (top / (s.sqrt() + 1e-6)).clamp(max=1.0) for x, s in zip(parts, sq))
    norm = sq.sqrt().amax() if biggest else (sq.sum().sqrt() if root else sq.sum())
    return tuple(x * (top / (norm + 1e-6)).clamp(max=1.0) for x in parts)


honest(clip_by_global_norm, "norm of the norms", lambda
    *x: (lambda n: tuple(t / (n / 2.5).clamp(min=1.0) for t in x))(
    torch.stack([t.norm() for t in x]).norm() + 1e-6))
honest(clip_by_global_norm, "float64 inside", double(clip_by_global_norm))
mistake(clip_by_global_norm, "each tensor is clipped by its own norm", each=True)
mistake(clip_by_global_norm, "divides by the squared norm", root=False)
mistake(clip_by_global_norm, "the last tensor is not counted in the norm", lost=True)
mistake(clip_by_global_norm, "clips values instead of the norm", values=True)
mistake(clip_by_global_norm, "the norm is the largest tensor's", biggest=True)


@fourth(lambda d: (d(15, 11), d(15, 11), torch.tensor(7), d(15, 11, scale=0.3)))
def lookahead_and_average(fast, slow, n, swa, alpha=0.5, reset=True, count=1, other=False, old=False):
    new = slow + alpha * (fast - slow) if not other else fast + 0.2 * (slow - fast)
    taken = fast if old else new
    return (new.clone() if reset else fast.clone()), new, swa + (taken - swa) / (n.to(swa.dtype) + count)


honest(lookahead_and_average, "weighted sums", lambda f, s, n,
    w: (lambda x: (x, x.clone(), torch.lerp(w, x, 1 / (1 + int(n)))))(
    0.5 * f + 0.5 * s))
honest(lookahead_and_average, "float64 inside", double(lookahead_and_average))
mistake(lookahead_and_average, "fast weights are not set to the slow ones", reset=False)
mistake(lookahead_and_average, "the average divides by n instead of n + 1", count=0)
mistake(lookahead_and_average, "the average takes the fast weights", old=True)
mistake(lookahead_and_average, "slow weights move by 0.8 instead of 0.5", other=True)


@fourth(lambda d: (d(6, 64, scale=0.3), d(6, 64), d.ints(255, 6, 64).sub(127).to(torch.int8), d.rand(6, 2)
    + 0.1))
def momentum_int8(p, g, q, scale, lr=0.02, block=32, signed=True, stale=False, full=127.0, whole=False):
    m = q.to(p.dtype).view(6, -1, block) * scale[..., None] / full
    m = (0.9 * m + 0.1 * g.view_as(m))
    top = m.abs().amax((1, 2) if whole else -1, keepdim=True) if signed else m.amax(-1, keepdim=True)
    used = scale[..., None] if stale else top
    code = (m / used * full).round().clamp(-128, 127)
    return p - lr * m.view_as(p), code.to(torch.int8).view_as(q), top.expand(6, 2, 1)[..., 0].clone()


def momentum_by_block(p, g, q, scale):
    out, code, tops = p.clone(), q.clone(), scale.clone()
    for i in range(6):
        for j in range(2):
            at = slice(32 * j, 32 * j + 32)
            m = 0.1 * g[i, at] + (0.9 / 127) * scale[i, j] * q[i, at].to(p.dtype)
            tops[i, j] = torch.maximum(m.amax(), -m.amin())
            code[i, at] = (m * (127 / tops[i, j])).round().to(torch.int8)
            out[i, at] -= 0.02 * m
    return out, code, tops


honest(momentum_int8, "block by block with one reciprocal", momentum_by_block)
honest(momentum_int8, "float64 inside", double(momentum_int8))
mistake(momentum_int8, "blocks take their largest value, not their largest magnitude", signed=False)
mistake(momentum_int8, "the new codes use the old scales", stale=True)
mistake(momentum_int8, "codes are divided by 128 instead of 127", full=128.0)
mistake(momentum_int8, "one scale a row instead of one a block of 32", whole=True)


@fourth(lambda d: state(d, 9, 16, tiny=0.03) + (torch.tensor(4),))
def adabelief_step(p, g, m, s, t, lr=0.02, eps=1e-4, old=False, raw=False, added=True):
    t = t.to(p.dtype)
    new = 0.9 * m + 0.1 * g
    gap = g if raw else g - (m if old else new)
    s = 0.9 * s + 0.1 * gap * gap + (eps if added else 0.0)
    return p - lr * new / (1 - 0.9 ** t) / ((s / (1 - 0.9 ** t)).sqrt() + eps), new, s


honest(adabelief_step, "the gap as 0.9 (g - m)", lambda p, g, m, s, t: (lambda n, s: (
    p - (0.02 / (1 - 0.9 ** int(t))) * n / (s.sqrt() / (1 - 0.9 ** int(t)) ** 0.5 + 1e-4), n, s))(
        m + 0.1 * (g - m), torch.addcmul(0.9 * s + 1e-4, (g - m) * 0.81, g - m, value=0.1)))
honest(adabelief_step, "float64 inside", double(adabelief_step))
mistake(adabelief_step, "the gap is taken to the momentum before this step", old=True)
mistake(adabelief_step, "the square of the gradient itself (plain Adam)", raw=True)
mistake(adabelief_step, "epsilon is not added to the second moment", added=False)


@fourth(lambda d: state(d, 10, 14) + (torch.tensor(3),))
def yogi_step(p, g, m, v, t, lr=0.02, adam=False, flipped=False):
    t = t.to(p.dtype)
    m = 0.9 * m + 0.1 * g
    sq = g * g
    move = (sq - v) if flipped else (v - sq)
    v = 0.99 * v + 0.01 * sq if adam else v - 0.01 * move.sign() * sq
    return p - lr * (1 - 0.99 ** t).sqrt() / (1 - 0.9 ** t) * m / (v.clamp(min=1e-8).sqrt() + 1e-3), m, v


honest(yogi_step, "where instead of the sign", lambda p, g, m, v, t: (lambda m, v: (
    p - (0.02 * math.sqrt(1 - 0.99 ** int(t)) / (1 - 0.9 ** int(t)))
    * (m / (v.clamp(min=1e-8).sqrt() + 1e-3)), m, v))(
        torch.lerp(m, g, 0.1), torch.where(v > g * g, v - 0.01 * g * g, v + 0.01 * g * g)))
honest(yogi_step, "float64 inside", double(yogi_step))
mistake(yogi_step, "second moment as a moving average (plain Adam)", adam=True)
mistake(yogi_step, "the sign of v - g^2 is turned", flipped=True)
mistake(yogi_step, "elements past the last full block of 64 are not written (zeros)",
        hurt(yogi_step, tail_unwritten))


@fourth(lambda d: (d(12, 15), d(12, 15), d(12, 15), d.rand(12, 15) * 0.1 + 0.01))
def rprop_step(p, g, last, size, up=1.2, down=0.5, back=True, top=0.1, swapped=False):
    s = (g * last).sign()
    if swapped:
        up, down = down, up
    f = torch.where(s > 0, up, torch.where(s < 0, down, 1.0)).to(p.dtype)
    size = (size * f).clamp(1e-6, top)
    g = torch.where(s < 0, torch.zeros_like(g), g) if back else g
    return p - g.sign() * size, g, size


honest(rprop_step, "masks", lambda p, g, last, size: (lambda same,
    opp: (lambda s, g: (p - s * g.sign(), g, s))(
    torch.clamp(size * (1 + 0.2 * same - 0.5 * opp), 1e-6, 0.1), g * ~opp))((g * last > 0), (g * last < 0)))
honest(rprop_step, "float64 inside", double(rprop_step))
mistake(rprop_step, "growth and shrinkage of the step are exchanged", swapped=True)
mistake(rprop_step, "the gradient is not zeroed where its sign changed", back=False)
mistake(rprop_step, "steps are not limited at 0.1", top=50.0)


@fourth(lambda d: (d(14, 18, scale=0.3), d(14, 18), torch.linalg.qr(d(14, 4)).Q, d(4, 18, scale=0.3),
                   d.rand(4, 18) + 0.05, torch.tensor(3)))
def galore_step(p, g, basis, m, v, t, lr=0.02, scale=0.25, bias=True, full=False):
    t = t.to(p.dtype)
    r = basis.T @ g
    m, v = 0.9 * m + 0.1 * r, 0.999 * v + 0.001 * r * r
    a, b = (1 - 0.9 ** t, 1 - 0.999 ** t) if bias else (1.0, 1.0)
    u = basis @ (m / a / ((v / b).sqrt() + 1e-8))
    if full:
        u = u + g - basis @ r
    return p - lr * scale * u, m, v


honest(galore_step, "products as sums of outer products", lambda p, g, q, m, v, t: (lambda r: (lambda m, v: (
    p - (m / (v.sqrt() + 1e-8 * math.sqrt(1 - 0.999 ** int(t)))).mul(0.005 * math.sqrt(1 - 0.999 ** int(t))
    / (1 - 0.9 ** int(t)))[None].mul(
        q[..., None]).sum(1), m, v))(torch.lerp(m, r, 0.1), torch.lerp(v, r * r, 0.001)))(
            (q[..., None] * g[:, None]).sum(0)))
honest(galore_step, "float64 inside", double(galore_step))
mistake(galore_step, "the scale 0.25 of the projected update is left out", scale=1.0)
mistake(galore_step, "the gradient's part outside the basis is added to the update", full=True)
mistake(galore_step, "moments are not corrected for their bias", bias=False)


@fourth(lambda d: (d(4, 12, 9), torch.tensor([12, 3, 7, 10])))
def micro_batch_gradient(g, tokens, means=False, last_full=False, low=None, forget=None):
    keep = (torch.arange(12)[None] < tokens[:, None]).to(g.dtype)[..., None]
    sums = (g * keep).sum(1)
    if means:
        return (sums / tokens[:, None]).mean(0)
    total = torch.zeros_like(sums[0])
    for i, s in enumerate(sums):
        total = kept(s if i == forget else total + s, low)
    return total / (48 if last_full else tokens.sum())


honest(micro_batch_gradient, "running weighted mean", lambda g, n: sum(
    g[i, :k].mean(0) * (k / int(n.sum())) for i, k in enumerate(n.tolist())))
honest(micro_batch_gradient, "float64 inside", double(micro_batch_gradient))
mistake(micro_batch_gradient, "averages the micro-batches' means with equal weights", means=True)
mistake(micro_batch_gradient, "divides by all places, padding counted", last_full=True)
mistake(micro_batch_gradient, "the accumulator starts again at the third micro-batch", forget=2)
mistake(micro_batch_gradient, "the sum over micro-batches is kept in bf16", low=bf)


@fourth(lambda d: (d(10, 16, scale=0.3), d(10, 16), d(10, 16, scale=0.3), d.rand(10) + 0.1, torch.tensor(5)))
def adam_mini_step(p, g, m, v, t, lr=0.02, mean=True, low=None, early=False):
    t = t.to(p.dtype)
    sq = (g * g).mean(1) if mean else (g * g).amax(1)
    m, v = kept(0.9 * m + 0.1 * g, low), 0.95 * v + 0.05 * ((g.mean(1) ** 2) if early else sq)
    return p * (1 - lr * 0.1) - lr * m / (1 - 0.9 ** t) / ((v / (1 - 0.95 ** t)).sqrt() + 1e-8)[:, None], m, v


honest(adam_mini_step, "row factors first", lambda p, g, m, v, t: (lambda m, v: (
    0.998 * p - m * (0.02 / (1 - 0.9 ** int(t)) * (v / (1 - 0.95 ** int(t))).rsqrt())[:, None], m, v))(
        torch.lerp(m, g, 0.1), torch.lerp(v, g.norm(dim=1) ** 2 / 16, 0.05)))
honest(adam_mini_step, "float64 inside", double(adam_mini_step))
mistake(adam_mini_step, "a row's largest square instead of its mean square", mean=False)
mistake(adam_mini_step, "the square of the mean instead of the mean of squares", early=True)
mistake(adam_mini_step, "the momentum is kept in bf16", low=bf)
mistake(adam_mini_step, "the last row is not written (zeros)", hurt(adam_mini_step, last_rows_unwritten))
