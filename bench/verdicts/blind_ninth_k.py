# SPDX-License-Identifier: Apache-2.0
"""Set L: attention over packed documents, with sinks, with rows that see nothing."""

import torch

from .blind import hf
from .blind_ninth_a import INF, attend, bad, causal, ninth, ok, online

# ------------------------------------------------------------------ packed documents, empty rows, sinks as logits


def packed_args(d):
    return d(4, 150, 16), d(4, 150, 16), d(4, 150, 16), torch.tensor([0, 37, 38, 100, 150])


@ninth(packed_args)
def ninth_packed(q, k, v, cu):
    doc = torch.bucketize(torch.arange(150), cu[1:], right=True)
    return attend(q, k, v, (doc[:, None] == doc[None]) & causal(150))


def packed(q, k, v, cu, late=0, least=1, leak=0, back=False):
    out = torch.zeros_like(q)
    edges = cu.tolist()
    for a, b in zip(edges, edges[1:], strict=False):
        if b - a < least:
            continue
        first = max(0, a - leak)
        i, j = torch.arange(a, b)[:, None], torch.arange(first, b)[None]
        out[:, a:b] = online(q[:, a:b], k[:, first:b], v[:, first:b], j <= i - late, block=25, back=back)
    return out


ok(ninth_packed, packed, each_alone={}, each_alone_backwards={"back": True})
bad(
    ninth_packed,
    packed,
    {
        # documents of one token are skipped and stay zero
        "hides: a document of one token stays zero": {"least": 2},
        # the tile begins before the document
        "the last key of the document before is seen": {"leak": 1},
        # the first document's length is taken as its end
        "hides: the token after the third edge belongs to the document before": lambda q, k, v, cu: packed(
            q, k, v, torch.tensor([0, 37, 38, 101, 150])
        ),
    },
)


@ninth(lambda d: (d(2, 4, 60, 32, dtype=hf), d(2, 4, 60, 32, dtype=hf), d(2, 4, 60, 32, dtype=hf), d(4)))
def ninth_sink_logit(q, k, v, sink):
    s = (q.float() @ k.float().mT * 32**-0.5).masked_fill(~causal(60), -INF)
    s = torch.cat((s, sink[:, None, None].expand(2, 4, 60, 1)), -1)
    return (torch.softmax(s, -1)[..., :-1] @ v.float()).to(hf)


def sink_logit(q, k, v, sink, times=1.0, scale=1.0, below=False):
    s = (q.float() @ k.float().mT * 32**-0.5).masked_fill(~causal(60), -INF)
    z = sink[:, None, None] * scale
    top = s.amax(-1, keepdim=True) if below else torch.maximum(s.amax(-1, keepdim=True), z)
    e = (s - top).exp()
    return e @ v.float() / (e.sum(-1, keepdim=True) + times * (z - top).exp())


ok(ninth_sink_logit, sink_logit, hf, added_to_the_sum={}, maximum_without_the_sink={"below": True})
bad(
    ninth_sink_logit,
    sink_logit,
    {
        # each of two splits adds it
        "the sink is added by both splits": {"times": 2.0},
        # the sink is scaled like a score
        "hides: the sink is scaled as scores are": {"scale": 32**-0.5},
        # forgotten
        "the sink is left out": {"times": 0.0},
    },
    hf,
)


@ninth(lambda d: (d(6, 50, 16), d(6, 70, 16), d(6, 70, 16), d.rand(6, 50, 70) > 0.97))
def ninth_empty_rows(q, k, v, mask):
    s = (q @ k.mT / 4).masked_fill(~mask, -INF)
    return torch.where(mask.any(-1, keepdim=True), torch.softmax(s, -1), 0.0) @ v


def empty_rows(q, k, v, mask, low=-INF, zero=True):
    s = torch.where(mask, q @ k.mT / 4, low)
    top = s.amax(-1, keepdim=True)
    e = (s - torch.where(top == -INF, 0.0, top)).exp()
    total = e.sum(-1, keepdim=True)
    return e @ v / torch.where(total == 0, 1.0, total) if zero else e @ v / total


ok(ninth_empty_rows, empty_rows, a_sum_of_zero_is_one={})
bad(
    ninth_empty_rows,
    empty_rows,
    {
        # finite minus infinity: rows without keys get the mean of all values
        "rows without keys get the mean of the values": {"low": -1e30},
        # 0 / 0
        "hides: rows without keys are NaN": {"zero": False},
        # the finite mask is too near
        "hides: masked by minus seven": {"low": -7.0},
    },
)
