# SPDX-License-Identifier: Apache-2.0
"""Set G: routing of experts, sampling, losses of preference and policy, optimizers."""

import math

import torch
import torch.nn.functional as F

from .blind import bf, honest, mistake
from .blind_sixth_common import faults, sixth, sound, stored, through


def plain(fn, kernel, words, **keys):
    mistake(fn, words, lambda *a: kernel(*a, **keys))


# ------------------------------------------------------------------ experts


@sixth(lambda d: (d(80, 16, dtype=bf).mul(4).round().div(4),))
def router_top_ties(x):
    """The four largest of 16, of equal ones the lower number first; weights renormalised over the four."""
    w, at = x.sort(dim=-1, descending=True, stable=True)
    return w[:, :4].softmax(-1), at[:, :4]


def router_by_rounds(x, last=False, whole=False, again=1, sig=False, low=None):
    left, picks = x.clone(), []
    for _ in range(4):
        top = left.amax(-1, keepdim=True)
        at = torch.where(left == top, torch.arange(16), -1 if last else 99)
        picks.append(at.amax(-1) if last else at.amin(-1))
        left = left.scatter(1, picks[-1][:, None], -math.inf)
    at = torch.stack(picks, 1)
    if whole:
        return x.softmax(-1).gather(1, at), at
    e = stored((x.sigmoid() if sig else (x - x.amax(-1, keepdim=True)).exp()).gather(1, at), low)
    return e / e.sum(-1, keepdim=True) ** again, at


sound(router_top_ties, "four rounds of a maximum", router_by_rounds)
sound(
    router_top_ties,
    "by counting who stands before",
    lambda x: (lambda before: (lambda at: (x.gather(1, at).softmax(-1), at))(before.argsort(1)[:, :4]))(
        (
            (x[:, None] > x[:, :, None])
            | ((x[:, None] == x[:, :, None]) & (torch.arange(16)[None] < torch.arange(16)[:, None]))
        ).sum(-1)
    ),
)
faults(
    router_top_ties,
    router_by_rounds,
    last=("of equal logits the higher number wins", True),
    whole=("the weights are the softmax over all experts, not renormalised", True),
    sig=("weights come from a sigmoid", True),
    low=("the exponentials are kept in e4m3", torch.float8_e4m3fn),
)


@sixth(lambda d: (d(64, 24), d(4, 24, 24, scale=0.2), d.ints(4, 64, 2).sort(1).values, d.rand(64, 2).add(0.1)))
def capacity_first_come(x, w, which, gate):
    """Every expert takes its first 30 entries in token order; what comes later adds nothing."""
    hot = F.one_hot(which.flatten(), 4)
    place = ((hot.cumsum(0) - 1) * hot).sum(-1).view(64, 2)
    y = torch.einsum("nd,nkdo->nko", x, w[which])
    return ((place < 30) * gate).mul(1.0).to(x.dtype)[..., None].mul(y).sum(1)


def capacity_by_expert(x, w, which, gate, room=30, backward=False, best=False, refill=False, choice=False, over=False):
    out = torch.zeros_like(x)
    kept = torch.zeros(64, 2)
    flat = which.T.flatten() if choice else which.flatten()
    for e in range(4):
        rows = (flat == e).nonzero()[:, 0]
        if choice:
            rows = rows % 64 * 2 + rows // 64
        rows = rows.flip(0) if backward else rows
        if best:
            rows = rows[gate.flatten()[rows].argsort(descending=True)]
        for r in rows[:room].tolist():
            kept[r // 2, r % 2] = 1
    g = gate * kept
    if refill:
        g = g * gate.sum(1, keepdim=True) / g.sum(1, keepdim=True).clamp(min=1e-9)
    for j in range(2):
        part = torch.stack([x[i] @ w[which[i, j]] for i in range(64)]) * g[:, j, None]
        out = torch.where(part != 0, part, out) if over else out + part
    return out


honest(capacity_first_come, "expert by expert", capacity_by_expert)
honest(capacity_first_come, "float64 inside", through(capacity_first_come, torch.float64))
plain(capacity_first_come, capacity_by_expert, "the capacity is 31 (<= for <)", room=31)
plain(capacity_first_come, capacity_by_expert, "the last entries are kept, not the first", backward=True)
plain(capacity_first_come, capacity_by_expert, "the entries of largest gate are kept", best=True)
plain(capacity_first_come, capacity_by_expert, "a token's other expert takes over a dropped one's gate", refill=True)
plain(capacity_first_come, capacity_by_expert, "all first choices stand before all second ones", choice=True)
plain(capacity_first_come, capacity_by_expert, "the second expert's result overwrites the first's", over=True)


@sixth(lambda d: (d(3, 40, 16), d(16, scale=0.5)))
def sequence_balance_loss(logits, bias):
    """Per sequence: experts times (share of choices by biased score) times (mean normalised score)."""
    s = logits.sigmoid()
    pick = (s + bias).topk(4).indices
    f = torch.zeros_like(s).scatter(2, pick, 1.0).mean(1) * 4
    p = (s / s.sum(-1, keepdim=True)).mean(1)
    return (f * p).sum(-1).mean(), f


def balance_by_counts(logits, bias, factor=16 / 4, raw=False, batch=False, unbiased=False):
    s = 1 / (1 + (-logits).exp())
    pick = (s + bias * (not unbiased)).sort(dim=-1, descending=True).indices[..., :4]
    f = torch.stack([torch.bincount(pick[i].flatten(), minlength=16) / 40 for i in range(3)]) * factor
    p = torch.stack([(s[i] if raw else s[i] / s[i].sum(-1, keepdim=True)).sum(0) / 40 for i in range(3)])
    loss = (f.mean(0) * p.mean(0)).sum() if batch else (f * p).sum() / 3
    return loss, f


honest(sequence_balance_loss, "by counts of choices", balance_by_counts)
plain(sequence_balance_loss, balance_by_counts, "the factor is 16 experts, not 16 over 4 chosen", factor=16)
plain(sequence_balance_loss, balance_by_counts, "scores are not normalised over the experts", raw=True)
plain(sequence_balance_loss, balance_by_counts, "means are taken over the batch before the product", batch=True)
plain(sequence_balance_loss, balance_by_counts, "choices are counted without the bias", unbiased=True)


# ------------------------------------------------------------------ sampling


@sixth(lambda d: (d(12, 500, scale=3.0),))
def chained_sampling_filters(x):
    """Temperature 0.7, then the 40 largest, then min-p of 0.05, then top-p of 0.8; renormalised."""
    p = (x / 0.7).softmax(-1)
    p = p * (p >= p.topk(40).values[:, -1:])
    p = p * (p >= 0.05 * p.amax(-1, keepdim=True))
    p = p / p.sum(-1, keepdim=True)
    s, at = p.sort(dim=-1, descending=True)
    s = s * (s.cumsum(-1) - s < 0.8)
    return torch.zeros_like(p).scatter(1, at, s / s.sum(-1, keepdim=True))


def filters_by_comparison(x, heat=0.7, floor=0.05, late=False, crossing=True, renew=True, absolute=False, first=40):
    z = (x - x.amax(-1, keepdim=True)) / heat
    e = z.exp()
    before = (z[:, None] > z[:, :, None]).sum(-1)
    keep = before < first
    keep &= e / e.sum(-1, keepdim=True) >= floor if absolute else z >= math.log(floor)
    p = e * keep
    p = p / (p if renew else e).sum(-1, keepdim=True)
    mass = ((z[:, None] > z[:, :, None]) * p[:, None]).sum(-1)
    keep = keep & (mass + (0 if crossing else p) < 0.8)
    if late:
        p = x.sub(x.amax(-1, keepdim=True)).exp()
    return p * keep / (p * keep).sum(-1, keepdim=True)


honest(chained_sampling_filters, "every token compared with every other", filters_by_comparison)
plain(chained_sampling_filters, filters_by_comparison, "the token that crosses 0.8 is dropped", crossing=False)
plain(chained_sampling_filters, filters_by_comparison, "top-p is taken of the mass before min-p", renew=False)
plain(chained_sampling_filters, filters_by_comparison, "the floor of min-p is not relative", absolute=True)
plain(chained_sampling_filters, filters_by_comparison, "the kept probabilities lack the temperature", late=True)
plain(chained_sampling_filters, filters_by_comparison, "the temperature multiplies", heat=1 / 0.7)


@sixth(lambda d: (d(3000, 20), d.rand(3000, 20)))
def race_argmax(x, u):
    return (x / 0.8 - (-u.clamp(min=1e-20).log()).log()).argmax(-1)


honest(
    race_argmax,
    "a race of exponential times",
    lambda x, u: (-u.double().clamp(min=1e-20).log() / (x.double() / 0.8).exp()).argmin(-1),
)
mistake(race_argmax, "one logarithm is missing", lambda x, u: (x / 0.8 - u.clamp(min=1e-20).log()).argmax(-1))
mistake(race_argmax, "no temperature", lambda x, u: (x - (-u.clamp(min=1e-20).log()).log()).argmax(-1))
mistake(
    race_argmax,
    "the race is run in bf16",
    lambda x, u: stored(x / 0.8 - (-u.clamp(min=1e-20).log()).log(), bf).argmax(-1),
)


@sixth(lambda d: (d(40, 6, 30).softmax(-1), d(40, 7, 30).softmax(-1), d.ints(30, 40, 6), d.rand(40, 6)))
def speculative_accept_lengths(draft, target, tokens, u):
    """Accepted drafts of every row, and what the next token is drawn from."""
    q, p = (z[:, :6].gather(2, tokens[..., None])[..., 0] for z in (draft, target))
    n = (u * q < p).long().cumprod(1).sum(1)
    rows = torch.arange(40)
    rest = (target - F.pad(draft, (0, 0, 0, 1)))[rows, n].clamp(min=0)
    return n, rest / rest.sum(-1, keepdim=True)


def accept_token_by_token(draft, target, tokens, u, whole=False, place=0, signed=False, count=False):
    n, out = torch.zeros(40, dtype=torch.long), torch.zeros(40, 30)
    for b in range(40):
        hits = [u[b, t] < (target[b, t] / draft[b, t])[tokens[b, t]] for t in range(6)]
        n[b] = sum(hits) if count else (hits + [False]).index(False)
        t = min(int(n[b]) + place, 6)
        rest = target[b, t] - (draft[b, t] if t < 6 and not whole else 0)
        rest = rest.abs() if signed else rest.clamp(min=0)
        out[b] = rest / rest.sum()
    return n, out


honest(speculative_accept_lengths, "token by token", accept_token_by_token)
plain(speculative_accept_lengths, accept_token_by_token, "the next token is drawn from the target itself", whole=True)
plain(speculative_accept_lengths, accept_token_by_token, "the place after the rejected one is used", place=1)
plain(speculative_accept_lengths, accept_token_by_token, "negative differences are made positive", signed=True)
plain(speculative_accept_lengths, accept_token_by_token, "drafts after a rejected one count too", count=True)


# ------------------------------------------------------------------ losses


@sixth(
    lambda d: (
        d(12, 50, scale=0.4, shift=-2.0),
        d(12, 50, scale=0.4, shift=-2.0),
        d(12),
        torch.arange(50)[None] < torch.tensor([50, 9, 31, 4, 44, 20, 17, 50, 2, 38, 26, 11])[:, None],
    )
)
def sequence_ratio_policy_loss(new, old, reward, keep):
    n = keep.sum(1)
    ratio = (((new - old) * keep).sum(1) / n).exp()
    r = reward.unflatten(0, (3, 4))
    a = ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)).flatten()
    return -torch.minimum(ratio * a, ratio.clamp(0.97, 1.04) * a).mean()


def sequence_ratio_rows(new, old, reward, keep, padded=False, token=False, high=1.04, count=3, single=False, every=4):
    a, rows = torch.zeros(12), []
    for g in range(0, 12, every):
        r = reward[g : g + every]
        a[g : g + every] = (r - r.mean()) / (((r - r.mean()) ** 2).sum().div(every - 4 + count).sqrt() + 1e-4)
    for b in range(12):
        gap = (new[b] - old[b])[keep[b]]
        ratio = gap.exp() if token else (gap.sum() / (50 if padded else len(gap))).exp()
        gain = ratio.clamp(0.97, high) * a[b]
        rows.append((gain if single else torch.minimum(ratio * a[b], gain)).mean())
    return -torch.stack(rows).mean()


honest(sequence_ratio_policy_loss, "row by row", sequence_ratio_rows)
honest(sequence_ratio_policy_loss, "float64 inside", through(sequence_ratio_policy_loss, torch.float64))
for words, keys in {
    "the log ratio is averaged over the padded length": {"padded": True},
    "every token has its own ratio": {"token": True},
    "the upper bound is 1.03": {"high": 1.03},
    "the rewards' spread divides by n, not n - 1": {"count": 4},
    "only the clipped branch is used": {"single": True},
    "rewards are normalised over all 12 rows": {"every": 12},
}.items():
    plain(sequence_ratio_policy_loss, sequence_ratio_rows, words, **keys)


@sixth(lambda d: (-torch.cat((d.rand(40).mul(3), d.rand(40).mul(1e-5).add(1e-7))), -d.rand(80).mul(3).add(0.01)))
def odds_ratio_loss(chosen, other):
    odds = chosen - other - ((-chosen.expm1()).log() - (-other.expm1()).log())
    return -chosen - 0.1 * F.logsigmoid(odds)


def odds_by_parts(a, b, naive=False, weight=0.1, swapped=False, alone=False):
    def away(z):
        return (1 - z.exp()).log() if naive else torch.where(z > -0.693, (-z.expm1()).log(), (-z.exp()).log1p())

    odds = a - b if alone else a - away(a) - b + away(b)
    return -a + weight * F.softplus(odds if swapped else -odds)


honest(odds_ratio_loss, "softplus, and two forms of log(1 - exp)", odds_by_parts)
honest(odds_ratio_loss, "float64 inside", through(odds_ratio_loss, torch.float64))
plain(odds_ratio_loss, odds_by_parts, "log(1 - exp(z)) is computed as it stands, and fails for z near 0", naive=True)
plain(odds_ratio_loss, odds_by_parts, "the weight is 0.2", weight=0.2)
plain(odds_ratio_loss, odds_by_parts, "the two answers are exchanged in the odds", swapped=True)
plain(odds_ratio_loss, odds_by_parts, "the probabilities' ratio stands for the odds' ratio", alone=True)


# ------------------------------------------------------------------ optimizers


@sixth(lambda d: (d(2000), d(2000), d.rand(2000).mul(0.1), d(2000, scale=0.3)))
def schedule_free_adamw(y, z, v, g):
    """Step 10 of 1, 2, ..., equal weights: the new y, z and second moment."""
    x = (y - (1 - 0.9) * z) / 0.9
    v = 0.99 * v + 0.01 * g.square()
    step = g / ((v / (1 - 0.99**10)).sqrt() + 1e-8) + 0.1 * y
    z = z - 0.02 * step
    x = x + (z - x) / 10
    return 0.1 * z + 0.9 * x, z, v


def schedule_free_kernel(y, z, v, g, count=10, fix=True, at_z=False, ahead=False, eps=1e-8, inside=False):
    x = z + (y - z) / 0.9
    v = v + 0.01 * (g * g - v)
    w = v / (1 - 0.99**10) if fix else v
    step = g / ((w + eps).sqrt() if inside else w.sqrt() + eps) + 0.1 * (z if at_z else y)
    old, z = z, z - 0.02 * step
    x = x * (1 - 1 / count) + (old if ahead else z) / count
    return z + 0.9 * (x - z), z, v


honest(schedule_free_adamw, "as interpolations", schedule_free_kernel)
honest(schedule_free_adamw, "float64 inside", through(schedule_free_adamw, torch.float64))
for words, keys in {
    "the average's weight is one over 11": {"count": 11},
    "no bias correction": {"fix": False},
    "the decay is taken at z, not at y": {"at_z": True},
    "the average takes the old z": {"ahead": True},
    "eps of 1e-4 under the root, not 1e-8 after it": {"eps": 1e-4, "inside": True},
}.items():
    plain(schedule_free_adamw, schedule_free_kernel, words, **keys)


def sparse_steps(d):
    g, m = d(3000, scale=0.02), d(3000, scale=0.02)
    g[::7], m[::7] = 0, 0
    return d(3000, dtype=bf), g.to(bf), m.to(bf)


@sixth(sparse_steps)
def cautious_lion(p, g, m):
    u = (0.9 * m + 0.1 * g).sign()
    keep = (u * g > 0).to(p.dtype)
    return p * (1 - 0.01) - 0.01 * u * keep * (keep.numel() / keep.sum()), 0.99 * m + 0.01 * g


def cautious_lion_kernel(p, g, m, one=0.9, zero=0.0, cautious=True, scale=True, decay=0.01):
    c = m + (1 - one) * (g - m)
    n = m + 0.01 * (g - m)
    u = torch.where(c > 0, 1.0, torch.where(c < 0, -1.0, zero))
    keep = ((c > 0) & (g > 0)) | ((c < 0) & (g < 0)) if cautious else torch.ones_like(c, dtype=torch.bool)
    keep = keep | (c == 0) if zero else keep
    return p - decay * p - 0.01 * (u * keep * (3000 / keep.sum() if scale else 1)), n


sound(cautious_lion, "comparisons and differences", cautious_lion_kernel)
honest(cautious_lion, "float64 inside", through(cautious_lion, torch.float64))
faults(
    cautious_lion,
    cautious_lion_kernel,
    one=("the two betas are 0.99 and 0.99", 0.99),
    zero=("the sign of zero counts as plus one", 1.0),
    cautious=("steps against the gradient are taken too", False),
    scale=("the kept steps are not enlarged for those left out", False),
    decay=("no weight decay", 0.0),
)


@sixth(lambda d: (d(32, 80, dtype=bf), d(80, 32, dtype=bf)))
def muon_quintic_rectangles(wide, tall):
    out = []
    for g in (wide, tall):
        x = g.mT if g.shape[0] > g.shape[1] else g
        x = x / (x.norm() + 1e-7)
        for a, b, c in ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037)):
            s = x @ x.mT
            x = a * x + (b * s + c * s @ s) @ x
        x = x.mT if g.shape[0] > g.shape[1] else x
        out.append(x * max(1, g.shape[0] / g.shape[1]) ** 0.5)
    return tuple(out)


def muon_by_values(wide, tall, rounds=3, same=False, norm="fro", scale=True, flat=False):
    def one(g):
        u, s, v = torch.linalg.svd(g.double(), full_matrices=False)
        s = s / (s[0] if norm == "top" else s.square().sum().sqrt())
        steps = ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037))
        for a, b, c in [steps[0]] * 3 if same else steps[:rounds]:
            s = a * s + b * s**3 + c * s**5
        y = (u * s) @ v
        return (y * (max(1, g.shape[0] / g.shape[1]) ** (0.0 if not scale else 1.0 if flat else 0.5))).float()

    return one(wide), one(tall)


sound(muon_quintic_rectangles, "the polynomials on the singular values", muon_by_values)
honest(muon_quintic_rectangles, "float64 inside", through(muon_quintic_rectangles, torch.float64))
faults(
    muon_quintic_rectangles,
    muon_by_values,
    rounds=("only two of the three steps are taken", 2),
    same=("every step uses the first step's coefficients", True),
    norm=("the largest singular value is divided out, not the Frobenius norm", "top"),
    scale=("the tall matrix lacks its factor", False),
    flat=("the tall matrix's factor has no square root", True),
)
