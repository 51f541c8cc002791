# SPDX-License-Identifier: Apache-2.0
"""Changes of one edge of a call's graph, whatever the operators are: an operator left out, an
operand taken as zero, one or its complement, read from its first slice, from the neighbour or from
the step before in a loop, two operators in the other order. Operators that one place of the code
runs, as those of a loop, are changed together. Each is (text, edits for `Lab.edited`); the words
come from the edge and the change. Neighbours: `inside` (what hangs on the operator),
`neighbours` (operators for operators), `lab` (runs them).
"""

import torch

MOST_SINGLE = 60  # operators that are changed one by one where places of the code hold several
PARTS = ("add", "sub", "mul", "div", "rsub", "maximum", "logaddexp")
SHARES = ("sigmoid", "softmax", "_softmax", "rand", "rand_like", "exp")  # what 1 - x may be taken for
CHOOSING = ("amax", "amin", "max", "min", "argmax", "argmin", "sum", "prod", "sort", "argsort", "topk")
COMMUTED, SUMS = ("add", "sub", "mul", "div"), ("add", "sub")


def sites(lab):
    """Lists of operators that one place of the code runs, as those of a loop."""
    held = {}
    for node in lab.nodes():
        held.setdefault((node.site or node.place, node.name, len(node.place)), []).append(node)
    return list(held.values())


def groups(lab):
    """Lists of operators that are changed alike, those of a loop first, then each alone."""
    held = sites(lab)
    yield from held
    many = [nodes for nodes in held if len(nodes) > 1]
    if sum(map(len, many)) <= MOST_SINGLE:
        yield from ([node] for nodes in many for node in nodes)


def together(make, lab, nodes):
    """(text, edits) of one change of all operators of a group."""
    if len(nodes) == 1:  # of several edits with one text each counts
        yield from make(lab, nodes[0])
        return
    found = [dict(make(lab, node)) for node in nodes]
    for text in found[0]:
        if all(text in edits for edits in found):
            yield text, {place: edit for edits in found for place, edit in edits[text].items()}


def operand(i, change):
    """An edit that changes the operand `i`."""
    def edit(func, args, kwargs):
        return func(*args[:i], change(args[i]), *args[i + 1 :], **kwargs)

    return edit


def operands(node):
    """(number, float argument as Seen) of an operator that writes nothing."""
    return [(i, a) for i, a in enumerate(node.args) if getattr(a, "floats", False) and not node.writes]


# ---- values ----------------------------------------------------------------------------------


def values(lab, node):
    """An operand that is another number everywhere, or the complement of what it is."""
    for i, _ in operands(node):
        which = f"operand {i + 1} of {node.name.strip('_')}"
        if node.name not in PARTS:  # said better as a part that is missing
            yield f"{which} is taken as one everywhere", {node.place: operand(i, torch.ones_like)}
            yield f"{which} is taken as zero everywhere", {node.place: operand(i, torch.zeros_like)}
        yield f"the sign of {which} is flipped", {node.place: operand(i, torch.neg)}
        if node.name in CHOOSING:
            yield f"wrong variant: {node.name} of absolute values (abs)", {node.place: operand(i, torch.abs)}
    if node.name in SHARES and node.floats:
        yield (f"wrong variant: 1 - {node.name.strip('_')} instead of {node.name.strip('_')} (swapped)",
               {node.place: lambda func, args, kwargs: 1 - func(*args, **kwargs)})  # fmt: skip


def places(lab, node):
    """An operand read from other places: the first slice for all, the neighbour's, the reverse."""
    for i, seen in operands(node):
        which = f"operand {i + 1} of {node.name.strip('_')}"
        for axis, size in enumerate(seen.shape):
            if size < 2:
                continue
            yield (f"wrong index: {which} is read from its first slice along axis {axis} (broadcast)",
                   {node.place: operand(i, lambda t, a=axis: t.narrow(a, 0, 1).expand(t.shape))})  # fmt: skip
            for by in (1, -1) if size > 2 else (1,):
                yield (f"wrong index: {which} is the neighbour's along axis {axis} (shifted by one)",
                       {node.place: operand(i, lambda t, a=axis, s=by: t.roll(s, a))})  # fmt: skip


# ---- order -----------------------------------------------------------------------------------


def maker_of(nodes, at, seen):
    """The operator before `nodes[at]`, called where that is called, whose result an operand is;
    None for an input."""
    beside = nodes[at].place[:-1]
    for node in reversed(nodes[:at]):
        if seen.storage in node.made and node.shape == seen.shape and node.place[:-1] == beside:
            return node
    return None


def bypassed(lab):
    """(text, edits): an operator is given what its operand was made from, though the operand is
    used elsewhere as well; or it gives that, so that both are left out."""
    nodes = [n for n in lab.nodes() if not n.writes]
    for at, outer in enumerate(nodes) if len(nodes) <= MOST_SINGLE else ():
        for i, seen in operands(outer):
            inner = maker_of(nodes, at, seen)
            for k, early in operands(inner) if inner is not None else ():
                if early.shape != seen.shape or early.dtype != seen.dtype:
                    continue
                a, b = inner.name.strip("_"), outer.name.strip("_")
                yield (f"computes without a step: {b} takes an operand of {a} (dropped contribution)",
                       _wired(inner, outer, k, i))  # fmt: skip
                if early.shape == outer.shape:
                    yield (f"computes without two steps: {a} and {b} are left out (dropped contribution)",
                           _wired(inner, outer, k, None))  # fmt: skip


def _wired(inner, outer, k, i):
    """The operand `k` of one operator as the operand `i` of another, or as what that gives."""
    held = {}

    def source(func, args, kwargs):
        held["x"] = args[k]
        return func(*args, **kwargs)

    def target(func, args, kwargs):
        return held["x"].clone() if i is None else func(*args[:i], held["x"], *args[i + 1 :], **kwargs)

    return {inner.place: source, outer.place: target}


def commuted(lab):
    """(text, edits): a function of a sum or a product taken before what is added or multiplied,
    or after; a sum and a product in the other order."""
    nodes = [n for n in lab.nodes() if not n.writes]
    for at, outer in enumerate(nodes):
        for i, seen in operands(outer)[:2]:
            inner = maker_of(nodes, at, seen)
            if inner is None:
                continue
            text = f"wrong order: {outer.name.strip('_')} is taken before {inner.name.strip('_')} instead of after"
            if i == 0 and _unary(outer) and inner.name in (*COMMUTED, "addmm") and len(inner.args) > 1:
                for first in (True, False):
                    yield text, _moved_out(inner, outer, first)
            both = inner.name in COMMUTED and (inner.name in SUMS) != (outer.name in SUMS)
            if outer.name in COMMUTED and len(outer.args) > 1 and (both or _unary(inner)):
                yield text, _moved_in(inner, outer, i)


def _unary(node):
    return (node.floats and len(operands(node)) == 1 and node.shape == getattr(node.args[0], "shape", None)
            and node.name not in (*COMMUTED, "clone", "_to_copy", "expand"))  # fmt: skip


def _moved_out(inner, outer, first):
    """f(x + c) as f(x) + c, or as x + f(c)."""
    held = {}

    def before(func, args, kwargs):
        if inner.name == "addmm":
            held["rest"] = lambda y: y + args[0]
            return torch.mm(*args[1:3])
        x, c = args[:2] if first else (args[1], args[0])
        if not isinstance(x, torch.Tensor):
            raise LookupError("a number")
        held["rest"] = lambda y: func(*((y, c) if first else (c, y)), **kwargs)
        return x.expand(torch.broadcast_shapes(x.shape, getattr(c, "shape", ()))).clone()

    return {inner.place: before,
            outer.place: lambda func, args, kwargs: held["rest"](func(*args, **kwargs))}  # fmt: skip


def _moved_in(inner, outer, i):
    """f(x) + c as f(x + c)."""
    held = {}

    def before(func, args, kwargs):
        held["f"] = lambda x: func(x, *args[1:], **kwargs)
        held["x"] = args[0]
        return func(*args, **kwargs)

    def after(func, args, kwargs):
        return held["f"](func(*args[:i], held["x"], *args[i + 1 :], **kwargs))

    return {inner.place: before, outer.place: after}


# ---- loops -----------------------------------------------------------------------------------


def late(lab):
    """(text, edits): in a loop, an operand that is still the one of the step before."""
    for nodes in groups(lab):
        for i, _ in operands(nodes[0]) if len(nodes) > 2 else ():
            held = {}

            def edit(func, args, kwargs, i=i, held=held):
                now, before = args[i], held.get("x")
                held["x"] = now
                before = torch.zeros_like(now) if before is None or before.shape != now.shape else before
                return func(*args[:i], before, *args[i + 1 :], **kwargs)

            yield (f"one step late: operand {i + 1} of {nodes[0].name.strip('_')} is the one of the step before",
                   {n.place: edit for n in nodes}, held)  # fmt: skip


def lost(lab):
    """(text, edits): in a loop, what is carried over is lost every so many steps."""
    for nodes in groups(lab):
        for i, _ in operands(nodes[0]) if len(nodes) > 4 else ():
            for every in [n for n in (2, 4, 5, 8, 10, 16, 32, 64) if n < len(nodes)]:
                yield (f"starts anew every {every} steps: operand {i + 1} of {nodes[0].name.strip('_')} is lost there",
                       {n.place: operand(i, torch.zeros_like) for n in nodes[::every]})  # fmt: skip


# ---- numbers that belong together --------------------------------------------------------------


def shares(lab):
    """(text, edits): of two parts that weigh c and 1 - c one alone counts."""
    held = [(n, float(n.args[1])) for n in lab.nodes() if n.name == "mul" and not n.writes and len(n.args) > 1
            and isinstance(n.args[1], float) and 0 < n.args[1] < 1]  # fmt: skip
    for k, (a, x) in enumerate(held):
        for b, y in held[k + 1 :]:
            if abs(x + y - 1) < 1e-9:
                for one, other, lost in ((a, b, y), (b, a, x)):
                    yield (f"dropped contribution: the part that weighs {lost:.6g} is missing, the other counts whole",
                           {one.place: _times(1.0), other.place: _times(0.0)})  # fmt: skip


def _times(value):
    return lambda func, args, kwargs: func(args[0], value, *args[2:], **kwargs)


def first_edits(lab):
    """(text, run) of what leaves something out or takes it in another order."""
    every = list(groups(lab))
    for text, edits in (*bypassed(lab), *commuted(lab), *shares(lab)):
        yield text, lambda e=edits: lab.edited(e)
    for text, edits, held in late(lab):
        yield text, lambda e=edits, h=held: (h.clear(), lab.edited(e))[1]
    for nodes in every:
        for text, edits in together(values, lab, nodes):
            yield text, lambda e=edits: lab.edited(e)
    for text, edits in lost(lab):
        yield text, lambda e=edits: lab.edited(e)


def place_edits(lab):
    """(text, run) of what is read from other places."""
    for nodes in groups(lab):
        for text, edits in together(places, lab, nodes):
            yield text, lambda e=edits: lab.edited(e)
