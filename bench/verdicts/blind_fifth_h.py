# SPDX-License-Identifier: Apache-2.0
"""Set E, written blind: routing to experts, decoding without sampling, embeddings and segments."""

import torch
import torch.nn.functional as F

from .blind import bf, hf, honest, mistake
from .blind_fifth_a import INF, cut, fifth, rights, wide, wrongs

# ------------------------------------------------------------------ experts


@fifth(lambda d: (d(50, 16, dtype=bf),))
def route_top_two(logits):
    p = logits.float().softmax(-1)
    w, e = p.topk(2)
    return (w / w.sum(-1, keepdim=True)).to(logits.dtype), e


def route_kernel(logits, renorm=True, swap=False, sigmoid=False, shift=0, second=False):
    a = logits.float()
    top, e = a.topk(3)
    top, e = (top[:, 1:], e[:, 1:]) if second else (top[:, :2], e[:, :2])
    if sigmoid:
        w = top.sigmoid() / top.sigmoid().sum(-1, keepdim=True)
    else:
        w = top.softmax(-1) if renorm else (top - a.logsumexp(-1, keepdim=True)).exp()
    return (w.flip(-1) if swap else w).to(logits.dtype), (e + shift) % 16


honest(route_top_two, "softmax over the two largest logits only", route_kernel)
honest(
    route_top_two,
    "sigmoid of the difference of logits",
    lambda x: (lambda t, e: (torch.sigmoid(torch.stack((t[:, 0] - t[:, 1], t[:, 1] - t[:, 0]), 1)).to(x.dtype), e))(
        *x.float().topk(2)
    ),
)
for words, keys in {
    "the two weights are not renormalised": {"renorm": False},
    "the two weights are exchanged": {"swap": True},
    "weights come from sigmoids, not the softmax": {"sigmoid": True},
    "the best expert is passed over: second and third are taken": {"second": True},
    "experts are numbered from 1": {"shift": 1},
}.items():
    mistake(route_top_two, words, lambda *a, keys=keys: route_kernel(*a, **keys))


@fifth(lambda d: (d(30, 24), d(24, scale=0.15)))
def route_sigmoid_groups(logits, bias):
    s = torch.sigmoid(logits)
    b = (s + bias).unflatten(-1, (4, 6))
    best = b.topk(2, -1)[0].sum(-1).topk(2, -1)[1]
    keep = torch.zeros(30, 4, dtype=torch.bool).scatter(1, best, True)
    e = b.masked_fill(~keep[..., None], -INF).flatten(1).topk(4, -1)[1]
    w = s.gather(1, e)
    return w / (w.sum(-1, keepdim=True) + 1e-20) * 2.5, e


def route_groups(logits, bias, biased=False, top=2, scale=2.5, use=True, groups=2, soft=False, renorm=True):
    s = logits.softmax(-1) if soft else 1 / (1 + (-logits).exp())
    weight, experts = [], []
    for i in range(len(s)):
        b = s[i] + (bias if use else 0.0)
        score = [sum(sorted(b[6 * g : 6 * g + 6].tolist())[-top:]) for g in range(4)]
        live = sorted(range(4), key=lambda g: -score[g])[:groups]
        allowed = [x for g in live for x in range(6 * g, 6 * g + 6)]
        e = sorted(allowed, key=lambda x: -b[x].item())[:4]
        w = (b if biased else s[i])[e]
        weight.append(w / w.sum() * scale if renorm else w * scale)
        experts.append(e)
    return torch.stack(weight), torch.tensor(experts)


honest(route_sigmoid_groups, "token by token with sorts", route_groups)
wrongs(
    route_sigmoid_groups,
    route_groups,
    {
        "weights include the balancing bias": {"biased": True},
        "a group's score is its best expert, not the sum of its two best": {"top": 1},
        "the factor 2.5 is left out": {"scale": 1.0},
        "the balancing bias is not used in the choice": {"use": False},
        "the choice is not limited to two groups": {"groups": 4},
        "weights are not divided by their sum": {"renorm": False},
        "scores are a softmax, not sigmoids": {"soft": True},
    },
)


@fifth(lambda d: (d(40, 12), d.ints(5, 40), d.rand(40), 7))
def dispatch_with_capacity(x, expert, weight, capacity):
    hot = F.one_hot(expert, 5)
    place = (hot.cumsum(0) * hot).sum(-1) - 1
    keep = place < capacity
    out = x.new_zeros(5, capacity, x.shape[-1])
    out[expert[keep], place[keep]] = x[keep]
    return out, torch.where(keep, weight, 0.0), hot.sum(0)


def dispatch_loop(
    x, expert, weight, capacity, limit=0, restart=False, last=False, dead=True, capped=False, spill=False
):
    out, n, gain = x.new_zeros(5, capacity, x.shape[-1]), [0] * 5, weight.clone()
    for i in reversed(range(40)) if last else range(40):
        e = int(expert[i])
        if restart and i == 32:
            n = [0] * 5
        at = n[e]
        n[e] += 1
        if at >= capacity + limit:
            gain[i] = 0.0 if dead else gain[i]
            if spill:
                out[e, capacity - 1] = x[i]
            continue
        out[e, at] = x[i]
    count = torch.tensor(n)
    return out, gain, count.clamp(max=capacity) if capped else count


honest(dispatch_with_capacity, "a loop with counters", dispatch_loop)
wrongs(
    dispatch_with_capacity,
    dispatch_loop,
    {
        "an expert takes one token fewer than its capacity": {"limit": -1},
        "counters start again at token 32, the second block": {"restart": True},
        "tokens that come last have priority": {"last": True},
        "dropped tokens keep their weight": {"dead": False},
        "counts stop at the capacity": {"capped": True},
        "tokens past the capacity overwrite the last slot": {"spill": True},
    },
)


@fifth(lambda d: (d(64, 8, shift=0.5), torch.arange(64) < 55))
def load_balance_loss(logits, live):
    p = logits.softmax(-1) * live[:, None]
    hit = torch.zeros_like(p).scatter(1, logits.topk(2)[1], 1.0) * live[:, None]
    n = live.sum()
    return 8 * ((hit.sum(0) / n) * (p.sum(0) / n)).sum()


def balance(logits, live, factor=8, k=2, padded=False, over=1.0, square=False, all_n=False):
    live = torch.ones_like(live) if padded else live
    z = logits[live]
    p = (z - z.logsumexp(-1, keepdim=True)).exp()
    n = 64 if all_n else len(z)
    f = torch.bincount(z.topk(k)[1].flatten(), minlength=8).to(z.dtype) / n / over
    return factor * torch.dot(f, f if square else p.sum(0) / n)


honest(load_balance_loss, "bincount over the live tokens", balance)
wrongs(
    load_balance_loss,
    balance,
    {
        "the factor of 8 experts is left out": {"factor": 1},
        "only each token's first expert is counted": {"k": 1},
        "padding tokens count": {"padded": True},
        "fractions are divided by k too": {"over": 2.0},
        "means divide by all 64 tokens": {"all_n": True},
        "the fraction is used twice instead of the mean probability": {"square": True},
    },
)


@fifth(lambda d: (d(60, 20, dtype=bf), torch.randperm(60, generator=d.g), d.rand(20, 3).to(bf)))
def combine_experts(y, slot, weight):
    # row slot[3 t + j] of y holds the j-th expert's output for token t
    return (y[slot].unflatten(0, (20, 3)).float() * weight.float()[..., None]).sum(1).to(y.dtype)


def combine_scatter(y, slot, weight, lost=False, inverse=False, sorted_weight=False, plain=False, mean=False):
    out = torch.zeros(20, 20)
    back = torch.argsort(slot)  # sorted place -> assignment
    w = weight.flatten()
    for place in range(60):
        a = int(slot[place] if inverse else back[place])
        gain = 1.0 if plain else w[place if sorted_weight else a]
        v = y[place] * gain
        t = a // 3
        out[t] = v if lost else out[t] + v
    return out / 3 if mean else out


rights(combine_experts, combine_scatter, {"scattered in the order of experts": {}})
rights(
    combine_experts,
    lambda y, s, w: torch.zeros(20, 60).scatter_(1, s.view(20, 3), w) @ y,
    {"one product with a sparse matrix": {}},
)
wrongs(
    combine_experts,
    combine_scatter,
    {
        "a token's experts overwrite each other (no atomic addition)": {"lost": True},
        "the permutation is applied, not its inverse": {"inverse": True},
        "weights are read in the sorted order": {"sorted_weight": True},
        "weights are left out": {"plain": True},
        "the sum is divided by the number of experts": {"mean": True},
    },
)


@fifth(lambda d: (d.ints(6, 70),))
def sort_by_expert(expert):
    order = torch.sort(expert, stable=True)[1]
    return order, torch.bincount(expert, minlength=6), F.pad(torch.bincount(expert, minlength=6).cumsum(0), (1, 0))


def counting_sort(expert, unstable=False, inclusive=False, inverse=False):
    count = torch.stack([(expert == i).sum() for i in range(6)])
    ends = count.cumsum(0)
    starts, order = (ends - count).tolist(), torch.zeros(70, dtype=torch.long)
    for i in reversed(range(70)) if unstable else range(70):
        at = starts[expert[i]]
        starts[expert[i]] += 1
        order[i if inverse else at % 70] = at if inverse else i
    return order, count, F.pad(ends, (0, 1), value=70) if inclusive else F.pad(ends, (1, 0))


honest(sort_by_expert, "a counting sort", counting_sort)
for words, keys in {
    "equal keys are written in reversed order (not stable)": {"unstable": True},
    "offsets are inclusive sums, without the 0 in front": {"inclusive": True},
    "the inverse permutation is written": {"inverse": True},
}.items():
    mistake(sort_by_expert, words, lambda *a, keys=keys: counting_sort(*a, **keys))

# ------------------------------------------------------------------ decoding


def drafts(d):
    logits = d(6, 5, 40)
    draft = logits[:, :4].argmax(-1)
    for row, at in ((0, 2), (1, 0), (2, 3), (4, 1)):
        draft[row, at] = (draft[row, at] + 1) % 40
    return logits, draft


@fifth(drafts)
def greedy_verify(logits, draft):
    best = logits.argmax(-1)
    ok = (best[:, :4] == draft).long().cumprod(-1)
    n = ok.sum(-1)
    tokens = torch.where(torch.arange(5) < n[:, None], F.pad(draft, (0, 1)), -1)
    return n, tokens.scatter(1, n[:, None], best.gather(1, n[:, None]))


def verify_loop(logits, draft, prefix=True, bonus=0, shift=0, all_ok=True, keep=False):
    counts, rows = [], []
    for b in range(len(draft)):
        best, n = logits[b].argmax(-1).tolist(), 0
        hits = [best[(i + shift) % 5] == t for i, t in enumerate(draft[b].tolist())]
        n = (hits + [False]).index(False) if prefix else sum(hits)
        n = min(n, 3) if not all_ok else n
        row = draft[b].tolist() + [-1] if keep else draft[b, :n].tolist() + [-1] * (5 - n)
        row[n] = best[max(n + bonus, 0)]
        counts.append(n)
        rows.append(row)
    return torch.tensor(counts), torch.tensor(rows)


honest(greedy_verify, "token by token", verify_loop)
for words, keys in {
    "matches after the first mismatch are counted too": {"prefix": False},
    "the extra token is taken one position early": {"bonus": -1},
    "drafts are compared with the next position's token": {"shift": 1},
    "when all four drafts match only three are accepted": {"all_ok": False},
    "rejected drafts stay in the output": {"keep": True},
}.items():
    mistake(greedy_verify, words, lambda *a, keys=keys: verify_loop(*a, **keys))


@fifth(lambda d: (d(5, 300, scale=2.0), 0.8))
def nucleus_filter(logits, p):
    v, order = logits.sort(descending=True, stable=True)
    prob = v.softmax(-1)
    keep = prob.cumsum(-1) - prob < p
    return torch.full_like(logits, -INF).scatter(-1, order, v.masked_fill(~keep, -INF))


def top_p_kernel(logits, p, first=True, rising=False, temp=1.0, value=-INF, scale=1.0):
    prob = (logits.double() / temp).softmax(-1)
    out = torch.full_like(logits, value)
    for r in range(len(logits)):
        total = 0.0
        for i in torch.argsort(prob[r], descending=not rising).tolist():
            if (total if first else total + prob[r, i].item()) >= p:
                break
            out[r, i] = logits[r, i] * scale
            total += prob[r, i].item()
    return out


honest(nucleus_filter, "a loop that stops", top_p_kernel)
for words, keys in {
    "the token that crosses p is removed": {"first": False},
    "probabilities are added from the smallest": {"rising": True},
    "removed logits become 0, not -inf": {"value": 0.0},
    "the filter's probabilities are taken at temperature 2": {"temp": 2.0},
}.items():
    mistake(nucleus_filter, words, lambda *a, keys=keys: top_p_kernel(*a, **keys))


@fifth(lambda d: (d(4, 100, dtype=hf, scale=2.0), d.ints(100, 4, 12), 1.3))
def seen_token_penalty(logits, seen, penalty):
    x = logits.gather(1, seen)
    return logits.scatter(1, seen, torch.where(x < 0, x * penalty, x / penalty))


def penalise(logits, seen, penalty, divide=False, again=False, minus=False, short=0, flip=False):
    out = logits.clone()
    for b in range(len(out)):
        ids = seen[b].tolist()[: 12 - short]
        for t in ids if again else sorted(set(ids)):
            v = out[b, t]
            up = (v > 0) if flip else (v < 0)
            out[b, t] = v - penalty if minus else v / penalty if divide or not up else v * penalty
    return out


def doubled(d):
    seen = d.ints(100, 4, 12)
    seen[:, 6:9] = seen[:, :3]
    return d(4, 100, dtype=hf, scale=2.0), seen, 1.3


honest(seen_token_penalty, "a loop over the set of tokens", wide(penalise))
wrongs(
    seen_token_penalty,
    penalise,
    {
        "negative logits are divided too, which raises them": {"divide": True},
        "the penalty is subtracted, not divided by": {"minus": True},
        "the last two tokens are not penalised": {"short": 2},
        "signs are exchanged: positive logits are multiplied": {"flip": True},
    },
)


@fifth(doubled)
def repetition_penalty_once(logits, seen, penalty):
    hit = torch.zeros_like(logits).scatter(1, seen, 1.0) > 0
    return torch.where(hit, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


honest(repetition_penalty_once, "a loop over the set of tokens", wide(penalise))
mistake(repetition_penalty_once, "a token that came twice is penalised twice", wide(penalise, again=True))
mistake(repetition_penalty_once, "negative logits are divided too", wide(penalise, divide=True))

# ------------------------------------------------------------------ embeddings and segments


@fifth(lambda d: (d(30, 16, dtype=hf), d.ints(30, 40), torch.tensor([0, 7, 7, 20, 33]), d.rand(40).to(hf)))
def embedding_bag_weighted(table, ids, offsets, weight):
    out = []
    ends = offsets.tolist()[1:] + [len(ids)]
    for start, end in zip(offsets.tolist(), ends):
        rows = table[ids[start:end]].float() * weight[start:end, None].float()
        out.append(rows.sum(0))
    return torch.stack(out).to(table.dtype)


def bag_kernel(table, ids, offsets, weight, last=True, early=0, mean=False, plain=False, low=None, empty=False):
    out = torch.zeros(5, 16)
    for i in range(40):
        bag = int((offsets <= i + early).sum()) - 1
        if bag == 4 and not last:
            break
        out[bag] = cut(out[bag] + table[ids[i]] * (1.0 if plain else weight[i]), low)
    if mean:
        out = out / torch.tensor([7, 1, 13, 13, 7])[:, None]
    if empty:
        out[1] = out[0]
    return out


rights(embedding_bag_weighted, bag_kernel, {"a loop over the ids": {}})
rights(
    embedding_bag_weighted,
    lambda t, i, o, w: F.embedding_bag(i, t, o, mode="sum", per_sample_weights=w),
    {"torch's own in float32": {}},
)
wrongs(
    embedding_bag_weighted,
    bag_kernel,
    {
        "the last bag, which has no end in the offsets, is left out": {"last": False},
        "each bag starts one id early": {"early": 1},
        "bags are averaged, not added": {"mean": True},
        "weights are left out": {"plain": True},
        "sums are kept in bf16": {"low": bf},
        "an empty bag keeps the bag's before it": {"empty": True},
    },
)


@fifth(lambda d: (d(60, 8, scale=1e-2), d.ints(12, 60), 7))
def embedding_gradient(g, ids, pad):
    return g.new_zeros(12, 8).index_add(0, ids, g * (ids != pad)[:, None])


def embedding_scatter(g, ids, pad, lost=False, keep=False, low=None, scaled=False, first=False):
    out = torch.zeros(12, 8)
    n = torch.bincount(ids, minlength=12)
    for i, e in enumerate(ids.tolist()):
        if e == (0 if first else pad) and not keep:
            continue
        v = g[i] / n[e] if scaled else g[i]
        out[e] = v if lost else cut(out[e] + v, low)
    return out


honest(embedding_gradient, "row by row", embedding_scatter)
honest(
    embedding_gradient,
    "a product with the one-hot matrix",
    lambda g, i, p: (F.one_hot(i, 12).float() * (i != p)[:, None]).T @ g,
)
wrongs(
    embedding_gradient,
    embedding_scatter,
    {
        "rows of the same id overwrite each other": {"lost": True},
        "the padding id gets a gradient": {"keep": True},
        "sums are kept in bf16": {"low": bf},
        "gradients are divided by the id's count": {"scaled": True},
        "id 0 is taken for padding": {"first": True},
    },
)


@fifth(lambda d: (d(100, 6, shift=-3.0), d.ints(9, 100).clamp(max=7)))
def segment_mean_max(x, seg):
    i = seg[:, None].expand_as(x)
    total = x.new_zeros(9, 6).scatter_add(0, i, x)
    top = x.new_full((9, 6), -INF).scatter_reduce(0, i, x, "amax")
    count = torch.bincount(seg, minlength=9)[:, None]
    return total / count.clamp(min=1), torch.where(count > 0, top, 0.0)


def segments(x, seg, zero=False, even=False, drop=0, lowest=False, merge=False):
    mean, top = torch.zeros(9, 6), torch.zeros(9, 6)
    for s in range(9):
        rows = x[: 100 - drop][seg[: 100 - drop] == s]
        if merge:
            rows = x[(seg == s) | (seg == s + 1) & (torch.arange(100) % 32 == 31)]
        if len(rows):
            mean[s] = rows.sum(0) / (100 / 9 if even else len(rows))
            top[s] = rows.amax(0).clamp(min=0) if zero else rows.amax(0)
        elif lowest:
            top[s] = -INF
    return mean, top


honest(segment_mean_max, "segment by segment", segments)
wrongs(
    segment_mean_max,
    segments,
    {
        "the maximum starts from 0": {"zero": True},
        "the mean divides by the average segment's size": {"even": True},
        "the last 4 rows, past a multiple of 32, are dropped": {"drop": 4},
        "a segment without rows gives -inf, not 0": {"lowest": True},
        "the last row of each 32 joins the segment before too": {"merge": True},
    },
)
