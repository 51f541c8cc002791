# SPDX-License-Identifier: Apache-2.0
"""Set D, written blind: geometry, physics and signals."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, hf, mistake
from .blind_fourth_a import double, fourth, honest, stored_in
from .blind_third import kept

# ------------------------------------------------------------------ geometry

@fourth(lambda d: (d(20, 4), d(20, 3)))
def quaternion_rotate(q, x, unit=True, two=2.0, inverse=1.0, last=False, squared=False):
    if unit:
        q = q / ((q * q).sum(-1, keepdim=True) if squared else q.norm(dim=-1, keepdim=True))
    w, v = (q[:, 3:], q[:, :3]) if last else (q[:, :1], q[:, 1:])
    v = v * inverse
    t = two * torch.linalg.cross(v, x)
    return x + w * t + torch.linalg.cross(v, t)


def quaternion_matrix(q, x):
    w, a, b, c = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    m = torch.stack((1 - 2 * (b * b + c * c), 2 * (a * b - w * c), 2 * (a * c + w * b),
                     2 * (a * b + w * c), 1 - 2 * (a * a + c * c), 2 * (b * c - w * a),
                     2 * (a * c - w * b), 2 * (b * c + w * a), 1 - 2 * (a * a + b * b)), -1).view(-1, 3, 3)
    return (m * x[:, None]).sum(-1)


honest(quaternion_rotate, "a rotation matrix", quaternion_matrix)
honest(quaternion_rotate, "float64 inside", double(quaternion_rotate))
mistake(quaternion_rotate, "rotates the other way (conjugate)", inverse=-1.0)
mistake(quaternion_rotate, "the scalar part is read last instead of first", last=True)
mistake(quaternion_rotate, "quaternions are not normalised", unit=False)
mistake(quaternion_rotate, "the factor 2 of the cross product is left out", two=1.0)
mistake(quaternion_rotate, "divides by the squared norm", squared=True)
stored_in(quaternion_rotate, hf)


@fourth(lambda d: (F.normalize(d(18, 4), dim=1), F.normalize(d(18, 4), dim=1), d.rand(18)))
def quaternion_slerp(a, b, t, short=True, linear=False, swapped=False, plain=False):
    dot = (a * b).sum(-1)
    if short:
        b, dot = torch.where(dot[:, None] < 0, -b, b), dot.abs()
    t = 1 - t if swapped else t
    if linear:
        y = (1 - t)[:, None] * a + t[:, None] * b
        return y if plain else F.normalize(y, dim=1)
    angle = dot.clamp(-0.9999, 0.9999).acos()
    return (((1 - t) * angle).sin() / angle.sin())[:, None] * a + ((t * angle).sin() / angle.sin())[:,
        None] * b


honest(quaternion_slerp, "angle by the arc tangent", lambda a, b, t: (lambda b: (lambda h: (
    a * (((1 - t) * h).sin() / h.sin())[:, None] + b * ((t * h).sin() / h.sin())[:, None]))(
        2 * torch.atan2((a - b).norm(dim=1), (a + b).norm(dim=1))))(b
        * torch.sign((a * b).sum(1, keepdim=True))))
honest(quaternion_slerp, "float64 inside", double(quaternion_slerp))
mistake(quaternion_slerp, "the longer arc is taken where the product is negative", short=False)
mistake(quaternion_slerp, "linear interpolation, then normalised", linear=True)
mistake(quaternion_slerp, "t weighs the first instead of the second", swapped=True)
mistake(quaternion_slerp, "linear interpolation, not normalised", linear=True, plain=True)


@fourth(lambda d: (d(7, 12), d(10), d.ints(11, 10), d.ints(11, 10) + 1))
def givens_chain(x, angle, i, j, sign=1.0, stale=False, reverse=False, skip=0):
    y = x.clone()
    order = range(len(angle) - 1 - skip, -1, -1) if reverse else range(len(angle) - skip)
    for k in order:
        a, b = int(i[k]), int(i[k]) + (int(j[k]) - 1) % 11 + 1
        b = b % 12
        c, s = angle[k].cos(), sign * angle[k].sin()
        u, v = y[:, a].clone(), y[:, b].clone()
        y[:, a] = c * u - s * v
        y[:, b] = c * v + s * (y[:, a] if stale else u)
    return y


def givens_matrix(x, angle, i, j):
    m = torch.eye(12, dtype=torch.float64)
    for k in range(10):
        a = int(i[k])
        b = (a + (int(j[k]) - 1) % 11 + 1) % 12
        g = torch.eye(12, dtype=torch.float64)
        c, s = angle[k].double().cos(), angle[k].double().sin()
        g[a, a], g[b, b], g[a, b], g[b, a] = c, c, -s, s
        m = g @ m
    return (x.double() @ m.T).to(x.dtype)


honest(givens_chain, "one matrix in float64", givens_matrix)
honest(givens_chain, "float64 inside", double(givens_chain))
mistake(givens_chain, "rotates the other way", sign=-1.0)
mistake(givens_chain, "the second component uses the first one after its update", stale=True)
mistake(givens_chain, "rotations are applied in reverse order", reverse=True)
mistake(givens_chain, "the last rotation is left out", skip=1)


@fourth(lambda d: (d(15, 3, scale=1.2), d(15, 3)))
def rodrigues(r, x, sign=1.0, unit=True, last=True, half=False, root=True):
    angle = (r * r).sum(-1, keepdim=True)
    angle = angle.sqrt() if root else angle
    k = r / angle if unit else r
    if half:
        angle = angle / 2
    turn = x * angle.cos() + sign * torch.linalg.cross(k, x) * angle.sin()
    return turn + k * (k * x).sum(-1, keepdim=True) * (1 - angle.cos()) if last else turn


honest(rodrigues, "the matrix exponential", lambda r, x: (torch.linalg.matrix_exp(torch.stack((
    torch.zeros(15), -r[:, 2], r[:, 1], r[:, 2], torch.zeros(15), -r[:, 0], -r[:, 1], r[:, 0],
    torch.zeros(15)),
    -1).view(15, 3, 3)) @ x[..., None])[..., 0])
honest(rodrigues, "float64 inside", double(rodrigues))
mistake(rodrigues, "the cross product's sign is turned", sign=-1.0)
mistake(rodrigues, "the part along the axis is left out", last=False)
mistake(rodrigues, "the axis is not normalised", unit=False)
mistake(rodrigues, "half of the angle is used", half=True)
mistake(rodrigues, "the angle is the squared length", root=False)
stored_in(rodrigues, hf)


@fourth(lambda d: (d(12, 6), d(12, 3)))
def six_number_rotation(a, x, rows=False, project=True, cross=1.0, interleaved=False, unit=True):
    u, v = (a[:, 0::2], a[:, 1::2]) if interleaved else a.chunk(2, -1)
    b1 = F.normalize(u, dim=-1)
    b2 = v - (b1 * v).sum(-1, keepdim=True) * b1 if project else v
    b2 = F.normalize(b2, dim=-1) if unit else b2
    m = torch.stack((b1, b2, cross * torch.linalg.cross(b1, b2)), -2 if rows else -1)
    return torch.einsum("nij,nj->ni", m, x)


honest(six_number_rotation, "QR with signs", lambda a, x: (lambda q, r: (lambda b: (
    torch.cat((b, torch.linalg.cross(b[..., 0], b[..., 1])[..., None]), -1) * x[:, None]).sum(-1))(
        q * r.diagonal(dim1=1, dim2=2).sign()[:, None]))(*torch.linalg.qr(a.view(12, 2, 3).mT)))
honest(six_number_rotation, "float64 inside", double(six_number_rotation))
mistake(six_number_rotation, "vectors become rows instead of columns", rows=True)
mistake(six_number_rotation, "the second vector is not made orthogonal to the first", project=False)
mistake(six_number_rotation, "the third vector has the wrong sign (a reflection)", cross=-1.0)
mistake(six_number_rotation, "the six numbers are read as interleaved pairs", interleaved=True)
mistake(six_number_rotation, "the second vector is not normalised", unit=False)
stored_in(six_number_rotation, bf)


@fourth(lambda d: (d(14, 3).cumsum(0),))
def backbone_dihedrals(x, turned=False, unit=True, sign=1.0):
    b = x[1:] - x[:-1]
    n1, n2 = torch.linalg.cross(b[:-2], b[1:-1]), torch.linalg.cross(b[1:-1], b[2:])
    n2 = -n2 if turned else n2
    mid = b[1:-1] / b[1:-1].norm(dim=-1, keepdim=True) if unit else b[1:-1]
    y, z = sign * (torch.linalg.cross(n1, n2) * mid).sum(-1), (n1 * n2).sum(-1)
    r = (y * y + z * z).sqrt()
    return y / r, z / r


honest(backbone_dihedrals, "Praxeolitic projection",
    lambda x: (lambda p, a, q: (lambda k: (lambda u, w: (lambda s, c: (
    s / torch.hypot(s, c), c / torch.hypot(s, c)))((torch.linalg.cross(k, u) * w).sum(-1), (u * w).sum(-1)))(
        p - (p * k).sum(-1, keepdim=True) * k, q - (q * k).sum(-1, keepdim=True) * k))(
            a / a.norm(dim=-1, keepdim=True)))(x[:-3] - x[1:-2], x[2:-1] - x[1:-2], x[3:] - x[2:-1]))
honest(backbone_dihedrals, "float64 inside", double(backbone_dihedrals))
mistake(backbone_dihedrals, "the sine's sign is turned", sign=-1.0)
mistake(backbone_dihedrals, "the middle bond is not normalised in the sine", unit=False)
mistake(backbone_dihedrals, "the second plane's normal takes its two bonds in exchanged order", turned=True)


@fourth(lambda d: (F.normalize(d(16, 3), dim=1), d(9, 3)))
def harmonics_colour(v, c, y20=0.31539156525252005, sign=-1.0, three=3.0, shift=0.5, clamp=True,
        swapped=False):
    x, y, z = v.unbind(-1)
    if swapped:
        y, z = z, y
    k1, k2 = 0.4886025119029199, 1.0925484305920792
    basis = torch.stack((
        torch.full_like(x, 0.28209479177387814), sign * k1 * y, k1 * z, sign * k1 * x,
        k2 * x * y, -k2 * y * z, y20 * (three * z * z - 1), -k2 * x * z, k2 / 2 * (x * x - y * y)), -1)
    out = basis @ c + shift
    return out.clamp(min=0) if clamp else out


honest(harmonics_colour, "angles", lambda v, c: (lambda p, t: F.relu(torch.stack((
    torch.full_like(p, 0.5 / math.sqrt(math.pi)), -0.48860251 * t.sin() * p.sin(), 0.48860251 * t.cos(),
    -0.48860251 * t.sin() * p.cos(), 0.54627422 * t.sin() ** 2 * (2 * p).sin(), -0.54627422 * (2 * t).sin()
    * p.sin(),
    0.15769578 * (1 + 3 * (2 * t).cos()), -0.54627422 * (2 * t).sin() * p.cos(),
    0.54627422 * t.sin() ** 2 * (2 * p).cos())).T @ c + 0.5))(torch.atan2(v[:, 1], v[:, 0]),
    v[:, 2].clamp(-1, 1).acos()))
honest(harmonics_colour, "float64 inside", double(harmonics_colour))
mistake(harmonics_colour, "degree-1 terms lack their minus sign", sign=1.0)
mistake(harmonics_colour, "the offset 0.5 is left out", shift=0.0)
mistake(harmonics_colour, "negative colours are not clamped", clamp=False)
mistake(harmonics_colour, "y and z are exchanged", swapped=True)
mistake(harmonics_colour, "2 z^2 - 1 instead of 3 z^2 - 1", three=2.0)
stored_in(harmonics_colour, hf)


# ------------------------------------------------------------------ physics

def lattice(d, n, spread):
    g = torch.stack(torch.meshgrid(*(torch.arange(n).float(),) * 3, indexing="ij"), -1).view(-1, 3)
    return (g + 0.3 * d.rand(n ** 3, 3)) * spread


@fourth(lambda d: (lattice(d, 3, 1.3), torch.tensor(3.9)))
def lennard_jones_forces(x, box, cut=1.8, wrap=True, twelve=12.0, shift=True, half=False, sign=1.0, low=None,
                         last=False):
    r = x[:, None] - x[None]
    if wrap:
        r = r - box * (r / box).round()
    sq = (r * r).sum(-1) + torch.eye(len(x), dtype=x.dtype) * 1e4
    on = (sq < cut * cut).to(x.dtype)
    s6 = 1 / sq ** 3
    f = sign * 4 * (twelve * s6 * s6 - 6 * s6) / sq * on
    force = kept(f[..., None] * r, low).sum(1)
    if last:
        force = (f.triu(1)[..., None] * r).sum(1)
    energy = 4 * (s6 * s6 - s6) - (4 * (cut ** -12 - cut ** -6) if shift else 0.0)
    return force, (energy * on).sum(1) * (1.0 if half else 0.5)


def forces_by_pairs(x, box):
    f, e = torch.zeros(27, 3, dtype=torch.float64), torch.zeros(27, dtype=torch.float64)
    for i in range(27):
        for j in range(i):
            r = x[i].double() - x[j].double()
            r = torch.remainder(r + box / 2, box.double()) - box / 2
            sq = float(r @ r)
            if sq < 3.24:
                k = sq ** -3
                g = (48 * k * k - 24 * k) / sq * r
                f[i] += g
                f[j] -= g
                e[[i, j]] += 2 * (k * k - k - 1.8 ** -12 + 1.8 ** -6)
    return f.to(x.dtype), e.to(x.dtype)


honest(lennard_jones_forces, "pair by pair in float64, action and reaction", forces_by_pairs)
honest(lennard_jones_forces, "float64 inside", double(lennard_jones_forces))
mistake(lennard_jones_forces, "no periodic images", wrap=False)
mistake(lennard_jones_forces, "the repulsion has 6 instead of 12", twelve=6.0)
mistake(lennard_jones_forces, "forces have the wrong sign", sign=-1.0)
mistake(lennard_jones_forces, "each pair acts on one partner only (reaction missing)", last=True)
mistake(lennard_jones_forces, "energies are not shifted to zero at the cut", shift=False)
mistake(lennard_jones_forces, "pairs are counted twice in the energy", half=True)
mistake(lennard_jones_forces, "pair forces are rounded to bf16 before they are added", low=bf)


@fourth(lambda d: (d(20, 3), d.rand(20) + 0.2))
def softened_gravity(x, mass, eps=0.2, power=1.5, own=False, g=0.7, squared=True, sign=1.0, low=None):
    r = x[None] - x[:, None]
    sq = (r * r).sum(-1) + (eps * eps if squared else eps)
    w = kept(g * sign * (mass[:, None] if own else mass[None]) / sq ** power, low)
    return (w[..., None] * r).sum(1), -(g * mass[None] / sq.sqrt()
        * (1 - torch.eye(20, dtype=x.dtype))).sum(1)


honest(softened_gravity, "loop over sources", lambda x, m: (lambda a: (
    sum(0.7 * m[j] * (x[j] - x) * a[:, j:j + 1] ** 3 for j in range(20)),
    -0.7 * ((a - torch.diag(a.diagonal())) @ m)))(((x[:, None] - x).square().sum(-1) + 0.04).rsqrt()))
honest(softened_gravity, "float64 inside", double(softened_gravity))
mistake(softened_gravity, "divides by the squared distance, not its power 3/2", power=1.0)
mistake(softened_gravity, "multiplies with the body's own mass instead of the other's", own=True)
mistake(softened_gravity, "the softening length is not squared", squared=False)
mistake(softened_gravity, "bodies repel", sign=-1.0)
mistake(softened_gravity, "pair weights are rounded to bf16", low=bf)


@fourth(lambda d: (d(9, 2), d(9, 2), torch.tensor(0.05)))
def verlet_springs(x, v, dt, steps=8, half=0.5, late=False, euler=False, rest=0.8, damp=0.1):
    def force(x, v):
        r = x[1:] - x[:-1]
        n = r.norm(dim=-1, keepdim=True)
        f = 5.0 * (n - rest) * r / n
        out = torch.zeros_like(x)
        out[:-1] += f
        out[1:] -= f
        return out - damp * x

    x, v, a = x.clone(), v.clone(), force(x, v)
    for _ in range(steps):
        if euler:
            x, v = x + dt * v, v + dt * a
            a = force(x, v)
            continue
        x = x + dt * v + half * dt * dt * a
        new = force(x, v)
        v = v + 0.5 * dt * (2 * a if late else a + new)
        a = new
    return x, v


def leapfrog_springs(x, v, dt):
    x = x.clone()
    lap = torch.zeros(9, 8, dtype=x.dtype)
    lap[torch.arange(8), torch.arange(8)], lap[torch.arange(1, 9), torch.arange(8)] = 1.0, -1.0

    def force(x):
        r = -lap.T @ x
        return lap @ (5 * r * (1 - 0.8 / r.norm(dim=1)[:, None])) - 0.1 * x

    v = v + dt / 2 * force(x)
    for i in range(8):
        x = x + dt * v
        v = v + (dt if i < 7 else dt / 2) * force(x)
    return x, v


honest(verlet_springs, "leapfrog with half kicks", leapfrog_springs)
honest(verlet_springs, "float64 inside", double(verlet_springs))
mistake(verlet_springs, "explicit Euler steps", euler=True)
mistake(verlet_springs, "velocities use the old acceleration twice", late=True)
mistake(verlet_springs, "the factor 1/2 at dt squared is left out", half=1.0)
mistake(verlet_springs, "one step fewer", steps=7)


@fourth(lambda d: (d(2, 11, 13), d.rand(11, 13) * 0.15 + 0.05))
def heat_steps(u, kappa, steps=5, wrap=False, in_place=False, frozen=False, low=None):
    for _ in range(steps):
        p = torch.cat((u[:, -1:], u, u[:, :1]), 1) if wrap else torch.cat((u[:, :1], u, u[:, -1:]), 1)
        p = torch.cat((p[..., -1:], p, p[..., :1]), 2) if wrap else torch.cat((p[..., :1], p, p[..., -1:]), 2)
        lap = p[:, :-2, 1:-1] + p[:, 2:, 1:-1] + p[:, 1:-1, :-2] + p[:, 1:-1, 2:] - 4 * u
        new = u + (kappa.mean() if frozen else kappa) * lap
        if in_place:
            new = u.clone()
            for i in range(11):
                up = new[:, max(i - 1, 0)]
                side = torch.cat((new[:, i, :1], new[:, i, :-1]),
                    1) + torch.cat((new[:, i, 1:], new[:, i, -1:]), 1)
                new[:, i] = new[:, i] + kappa[i] * (up + new[:, min(i + 1, 10)] + side - 4 * new[:, i])
        u = kept(new, low)
    return u


def heat_by_convolution(u, kappa):
    k = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]
    for _ in range(5):
        u = torch.addcmul(u, kappa, F.conv2d(F.pad(u[:, None], (1, 1, 1, 1), mode="replicate"), k)[:, 0])
    return u


honest(heat_steps, "convolution with replicated edges", heat_by_convolution)
honest(heat_steps, "float64 inside", double(heat_steps))
mistake(heat_steps, "edges are periodic instead of insulated", wrap=True)
mistake(heat_steps, "rows are updated in place and read by the next row", in_place=True)
mistake(heat_steps, "one step fewer", steps=4)
mistake(heat_steps, "the mean conductivity for all cells", frozen=True)
mistake(heat_steps, "the field is stored in fp16 between steps", low=hf)


@fourth(lambda d: (d.rand(9, 7, 8) * 0.05 + 0.08, torch.tensor(0.8)))
def lattice_boltzmann_step(f, tau, weight=9, stream=True, opposite=False, three=3.0, low=None, square=True):
    cx = torch.tensor([0, 1, 0, -1, 0, 1, -1, -1, 1])
    cy = torch.tensor([0, 0, 1, 0, -1, 1, 1, -1, -1])
    w = torch.tensor([4 / 9] + [1 / weight] * 4 + [1 / 36] * 4, dtype=torch.float64).to(f.dtype)
    rho = f.sum(0)
    ux, uy = ((c.to(f.dtype)[:, None, None] * f).sum(0) / rho for c in (cx, cy))
    cu = cx.to(f.dtype)[:, None, None] * ux + cy.to(f.dtype)[:, None, None] * uy
    eq = w[:, None, None] * rho * (1 + three * cu + 4.5 * cu * cu
        - (1.5 * (ux * ux + uy * uy) if square else 0.0))
    out = kept(f - (f - eq) / tau, low)
    if not stream:
        return out
    s = -1 if opposite else 1
    return torch.stack([o.roll((s * int(b), s * int(a)), (0, 1)) for o, a, b in zip(out, cx, cy)])


def boltzmann_by_cells(f, tau):
    c = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    out, g = torch.zeros_like(f), f.double()
    for y in range(7):
        for x in range(8):
            p = g[:, y, x]
            r = p.sum()
            u, v = ((p * torch.tensor([k[i] for k in c])).sum() / r for i in (0, 1))
            for i, (a, b) in enumerate(c):
                w = (4 / 9, 1 / 9, 1 / 36)[abs(a) + abs(b)]
                e = w * r * (1 + 3 * (a * u + b * v) + 4.5 * (a * u + b * v) ** 2 - 1.5 * (u * u + v * v))
                out[i, (y + b) % 7, (x + a) % 8] = p[i] + (e - p[i]) / tau.double()
    return out


honest(lattice_boltzmann_step, "cell by cell in float64, pushing", boltzmann_by_cells)
honest(lattice_boltzmann_step, "float64 inside", double(lattice_boltzmann_step))
mistake(lattice_boltzmann_step, "distributions are not streamed", stream=False)
mistake(lattice_boltzmann_step, "streams against the directions", opposite=True)
mistake(lattice_boltzmann_step, "straight directions weigh 1/36 instead of 1/9", weight=36)
mistake(lattice_boltzmann_step, "distributions are stored in bf16 after the collision", low=bf)
mistake(lattice_boltzmann_step, "the equilibrium lacks the term of the squared speed", square=False)


@fourth(lambda d: (d(2, 3, 30), d.rand(30) * 0.3 + 0.2))
def wave_absorbing(u, speed, steps=6, absorbing=True, swapped=False, squared=True, damp=0.05):
    now, before = u[:, 0], u[:, 1]
    if swapped:
        now, before = before, now
    c = speed * speed if squared else speed
    for _ in range(steps):
        lap = F.pad(now[:, 2:] - 2 * now[:, 1:-1] + now[:, :-2], (1, 1))
        new = (2 * now - (1 - damp) * before + c * lap) / (1 + damp) + 0.01 * u[:, 2]
        if absorbing:
            left = now[:, 1:2] + (speed[0] - 1) / (speed[0] + 1) * (new[:, 1:2] - now[:, :1])
            right = now[:, -2:-1] + (speed[-1] - 1) / (speed[-1] + 1) * (new[:, -2:-1] - now[:, -1:])
            new = torch.cat((left, new[:, 1:-1], right), 1)
        now, before = new, now
    return now


def wave_in_place(u, speed):
    a, b = u[:, 0].clone(), u[:, 1].clone()
    s = speed ** 2
    e, f = (speed[0] - 1) / (speed[0] + 1), (speed[-1] - 1) / (speed[-1] + 1)
    for _ in range(6):
        n = torch.empty_like(a)
        n[:, 1:-1] = (a[:, 1:-1] * (2 - 2 * s[1:-1]) + s[1:-1] * (a[:, 2:] + a[:, :-2])
                      - 0.95 * b[:, 1:-1]) / 1.05 + 0.01 * u[:, 2, 1:-1]
        n[:, 0] = a[:, 1] + e * (n[:, 1] - a[:, 0])
        n[:, -1] = a[:, -2] + f * (n[:, -2] - a[:, -1])
        a, b = n, a
    return a


honest(wave_absorbing, "inner points and both ends apart", wave_in_place)
honest(wave_absorbing, "float64 inside", double(wave_absorbing))
mistake(wave_absorbing, "the ends reflect instead of absorbing", absorbing=False)
mistake(wave_absorbing, "present and previous field are exchanged at the start", swapped=True)
mistake(wave_absorbing, "the speed is not squared", squared=False)
mistake(wave_absorbing, "damping is left out", damp=0.0)


@fourth(lambda d: (d(8, 3, scale=1.5), d(8), torch.tensor(0.7)))
def screened_coulomb(x, q, kappa, extra=True, own=False, constant=1.5, exponent=-1.0, half=0.5):
    r = x[:, None] - x[None]
    eye = torch.eye(8, dtype=x.dtype)
    n = ((r * r).sum(-1) + eye).sqrt()
    e = constant * (q[:, None] if own else q[:, None] * q[None]) * (exponent * kappa * n).exp() / n * (1
        - eye)
    f = e / n * ((kappa if extra else 0.0) + 1 / n)
    return (f[..., None] * r).sum(1), half * e.sum()


def coulomb_autograd(x, q, kappa):
    x = x.double().requires_grad_()
    i, j = torch.triu_indices(8, 8, 1)
    n = (x[i] - x[j]).norm(dim=-1)
    e = 1.5 * (q[i] * q[j] * (-kappa * n).exp() / n).sum()
    e.backward()
    return -x.grad.float(), e.detach().float()


honest(screened_coulomb, "automatic differentiation of the energy in float64", coulomb_autograd)
honest(screened_coulomb, "float64 inside", double(screened_coulomb))
mistake(screened_coulomb, "the force lacks the derivative of the screening", extra=False)
mistake(screened_coulomb, "the other charge is left out", own=True)
mistake(screened_coulomb, "the screening grows instead of decaying (sign)", exponent=1.0)
mistake(screened_coulomb, "pairs are counted twice in the energy", half=1.0)


# ------------------------------------------------------------------ signals

@fourth(lambda d: (d(2, 9, 24), d(2, 40)))
def overlap_add(frames, start, hop=8, window=True, norm=True, last_wins=False, late=0, power=2):
    n = 40 + 24 + 8
    w = 0.5 - 0.5 * torch.cos(2 * math.pi * torch.arange(24, dtype=frames.dtype) / 24)
    out, total = frames.new_zeros(2, n + 32), frames.new_zeros(n + 32)
    for i in range(9):
        at = slice(i * hop + late, i * hop + late + 24)
        part = frames[:, i] * (w if window else 1.0)
        out[:, at] = part if last_wins else out[:, at] + part
        total[at] += w ** power
    y = out[:, :88] / (total[:88].clamp(min=1e-3) if norm else 1.0)
    return torch.cat((y[:, :40] + start, y[:, 40:]), 1)


honest(overlap_add, "torch's fold", lambda f, s: (lambda w: (lambda y: torch.cat((y[:, :40] + s, y[:, 40:]),
    1))(
    F.fold((f * w).mT, (1, 88), (1, 24), stride=(1, 8)).flatten(1) / F.fold(
        (w * w)[None, :, None].expand(1, 24, 9), (1, 88), (1, 24), stride=(1, 8)).flatten().clamp(min=1e-3)))(
            torch.hann_window(24)))
honest(overlap_add, "float64 inside", double(overlap_add))
mistake(overlap_add, "overlapping frames overwrite instead of adding (lost updates)", last_wins=True)
mistake(overlap_add, "the sum of squared windows is not divided out", norm=False)
mistake(overlap_add, "divides by the sum of windows, not of their squares", power=1)
mistake(overlap_add, "frames are not windowed again", window=False)
mistake(overlap_add, "frames are written one sample late", late=1)
