# SPDX-License-Identifier: Apache-2.0
"""Changes of the edges of a call's graph, whatever the operators are: an operator left out, taken
at another place or given another tensor of the run; an operand taken as zero, one or its
complement, read from its first slice, from the neighbour or from the step before in a loop; two
tensors in each other's place. Operators that one place of the code runs, as those of a loop, are
changed together. Each is (text, edits for `Lab.run`); the words come from the edge and the
change. Neighbours: `inside` (what hangs on the operator), `neighbours` (operators for operators),
`lab` (runs them). Needs of torch: what `graph` needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from . import changes
from .graph import Given, Node, Slot, slots_in

if TYPE_CHECKING:
    from typing_extensions import TypeIs
    from ..calls.torch_private import OpOverload
    from .lab import Lab

MOST_SINGLE = 60  # operators that are changed one by one where places of the code hold several
MOST_ALIKE = 24  # tensors of one shape that are tried in each other's place
MOST_ONCE = 8  # operators of one name that a line may run outside of a loop
MOST_CALLS = 2  # of one place that are no loop yet
MOST_STEPS = 6  # operators that one may have been moved over
PARTS = ("add", "sub", "mul", "div", "rsub", "maximum", "minimum", "logaddexp")
SHARES = ("sigmoid", "softmax", "_softmax", "rand", "rand_like", "exp")  # what 1 - x may be taken for
CHOOSING = ("amax", "amin", "max", "min", "argmax", "argmin", "sum", "prod", "sort", "argsort", "topk")
COMPARING = {"eq", "ne", "lt", "le", "gt", "ge"}
SCALING = {"mul", "div", "add", "sub", "rsub", "neg"}  # with a number: which is another factor or amount
MOVES = frozenset(
    "view t transpose permute expand clone detach unsqueeze squeeze _unsafe_view alias slice select reshape zeros_like "
    "ones_like empty zeros ones empty_like lift_fresh split unbind _reshape_alias full full_like as_strided _to_copy "
    "to".split()
)


def sites(lab: Lab) -> list[list[Node]]:
    """Lists of operators that one place of the code runs, as those of a loop."""
    held: dict[tuple[tuple[int, ...], str, int], list[Node]] = {}
    for node in lab.nodes():
        held.setdefault((node.site or node.place, node.name, len(node.place)), []).append(node)
    return list(held.values())


def leads(lab: Lab, slots: Iterable[Slot], first: Node, last: Node) -> set[int]:
    """Numbers of the tensors that hang on some, by what runs from `first` up to `last`."""
    seen = {s.number for s in slots}
    for node in lab.wide_graph().top[first.place[0] : last.place[0]]:
        if not seen.isdisjoint(node.used):
            seen |= {s.number for s in slots_in(node.result)}
    return seen


def is_loop(lab: Lab, nodes: list[Node]) -> bool:
    """Whether operators of one place are the steps of a loop: each hangs on what the one before gave."""
    if len(nodes) <= MOST_CALLS:
        return False
    before, last = nodes[-2:]
    top = lab.wide_graph().top[last.place[0]]
    return not leads(lab, slots_in(before.result), before, last).isdisjoint(top.used)


def is_carried(lab: Lab, nodes: list[Node], i: int) -> bool:
    """Whether operand `i` of a loop's operator hangs on what it was one step before."""
    if len(nodes) <= MOST_CALLS or nodes[0].name in MOVES:
        return False
    old, new = (n.args[i] if i < len(n.args) else None for n in nodes[-2:])
    return slots_of(old) and slots_of(new) and old != new and new.number in leads(lab, [old], nodes[-3], nodes[-1])


def groups(lab: Lab) -> Iterator[list[Node]]:
    """Lists of operators that are changed alike, those of a loop first, then each alone. One step of
    a loop is never changed alone: no code does that, and it may be as good as a step less."""
    held = sites(lab)
    yield from held
    many = [nodes for nodes in held if len(nodes) > 1 and not is_loop(lab, nodes)]
    if sum(map(len, many)) <= MOST_SINGLE:
        yield from ([node] for nodes in many for node in nodes)


def together(
    make: Callable[[Node], Iterable[tuple[str, Any]]], nodes: list[Node]
) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits) of one change, as `make` gives it with its edit for an operator, of all of a group."""
    if len(nodes) == 1:  # of several edits with one text each counts
        yield from ((text, {nodes[0].place: edit}) for text, edit in make(nodes[0]))
        return
    found = [dict(make(node)) for node in nodes]
    for text in found[0]:
        if all(text in edits for edits in found):
            yield text, {node.place: edits[text] for node, edits in zip(nodes, found)}


def operand(i: int, change: Callable[..., Any]) -> Callable[..., Any]:
    """An edit that changes the operand `i`."""
    return lambda func, args, kwargs: func(*args[:i], change(args[i]), *args[i + 1 :], **kwargs)


def operands(node: Node) -> list[tuple[int, Slot]]:
    """(number, float argument as Slot) of an operator that writes nothing."""
    return [(i, a) for i, a in enumerate(node.args) if getattr(a, "floats", False) and not node.writes]


# ---- values ----------------------------------------------------------------------------------


def values(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """An operand that is another number everywhere, or the complement of what it is."""
    for nodes in groups(lab):
        yield from together(_values, nodes)


def _values(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    name = node.name.strip("_")
    for i, _ in operands(node):
        which = f"operand {i + 1} of {name}"
        if node.name not in PARTS:  # said better as a part that is missing
            yield f"{which} is taken as one everywhere", operand(i, torch.ones_like)
            yield f"{which} is taken as zero everywhere", operand(i, torch.zeros_like)
        yield f"the sign of {which} is flipped", operand(i, torch.neg)
        if node.name in CHOOSING:
            yield f"wrong variant: {name} of absolute values (abs)", operand(i, torch.abs)
    if node.name in SHARES and node.floats:
        yield (
            f"wrong variant: 1 - {name} instead of {name} (swapped)",
            lambda func, args, kwargs: 1 - func(*args, **kwargs),
        )


def bounds(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """A bound that holds everywhere, as where what is clamped was not computed."""
    for node in lab.nodes():
        for bound in ("min", "max") if node.name.startswith("clamp") and node.floats and not node.writes else ():
            value = node.value(bound)
            if isinstance(value, (float, int)):
                yield (
                    f"the bound {bound} of {node.name} counts everywhere: {value:.6g}",
                    {node.place: lambda func, args, kwargs, v=value: torch.full_like(args[0], v)},
                )


def places(lab: Lab) -> Iterator[tuple[str, dict[Any, Callable[..., Any]]]]:
    """An operand read from other places: the first slice for all, the neighbour's."""
    for nodes in groups(lab):
        yield from together(_places, nodes)


def _places(node: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    for i, seen in operands(node):
        which = f"wrong index: operand {i + 1} of {node.name.strip('_')} is"
        rows = [
            (f"{which} read from its first slice along axis AXIS (broadcast)", 2, changes.first),
            *(
                (f"{which} the neighbour's along axis AXIS (shifted by one)", least, changes.rolled(by))
                for by, least in ((1, 2), (-1, 3))
            ),
        ]
        for text, change in changes.along(seen.shape, rows):
            yield text, operand(i, change)


# ---- who makes and who uses a tensor -------------------------------------------------------------


class Wiring:
    """The tensors between the outermost operators of a call."""

    def __init__(self, lab: Lab) -> None:
        graph = lab.graph(torch.float64)
        self.nodes = graph.top if graph else []
        inputs = graph.inputs if graph else {}
        written = graph.written if graph else ()
        self.words: dict[Slot, str] = {}
        self.maker: dict[Slot, int] = {}
        self.users: dict[Slot, list[tuple[int, int]]] = {}
        self.outputs = set(graph.outputs.values()) if graph else set()
        for path, slot in inputs.items():
            self.words[slot], self.maker[slot] = getattr(lab.call.views.get(path), "argument", "") or path, -1
        for at, node in enumerate(self.nodes):
            for i, a in enumerate(node.args):
                for slot in slots_in(a) if isinstance(a, (list, tuple)) else ():
                    self.users.setdefault(slot, [])
                if slots_of(a):
                    self.users.setdefault(a, []).append((at, i))
            own = f"the result of {node.name.strip('_')}"
            if node.name in MOVES and node.args and slots_of(node.args[0]):  # another look at the same numbers
                own = self.words.get(node.args[0], own)
            for slot in slots_in(node.result):
                self.words.setdefault(slot, own)
                self.maker.setdefault(slot, at)
        self.fixed = [s for s in self.maker if s.storage not in written and s.shape]
        self.index = {id(n): at for at, n in enumerate(self.nodes)}
        self.group = {id(n): (nodes, k) for nodes in sites(lab) for k, n in enumerate(nodes)}

    def like(self, slot: Slot, before: int) -> list[Slot]:
        """Other tensors of its form that are there before an operator runs, the latest first."""
        found = [
            s
            for s in self.fixed
            if s != slot and self.maker[s] < before and (s.shape, s.dtype) == (slot.shape, slot.dtype)
        ]
        return sorted(found, key=lambda s: -self.maker[s])[:MOST_ALIKE]

    def is_used(self, node: Node) -> bool:
        """Whether anything hangs on what an operator gives."""
        return any(s in self.users or s in self.outputs for s in slots_in(node.result))

    def is_of_loop(self, slot: Slot) -> bool:
        """Whether the operator that makes it runs more often than one line of code needs it."""
        made = self.maker[slot]
        return made >= 0 and len(self.group[id(self.nodes[made])][0]) > MOST_ONCE

    def in_step(self, slot: Slot, reference: Node, node: Node) -> Slot | None:
        """What `slot` is to one operator of a loop, to another of it; None where there is none."""
        made = self.maker[slot]
        nodes, k = self.group.get(id(self.nodes[made]), ((), 0)) if made >= 0 else ((), 0)
        if len(nodes) < 2:
            return slot
        at = k + self.group[id(node)][1] - self.group[id(reference)][1]
        if not 0 <= at < len(nodes):
            return None
        which = list(slots_in(self.nodes[made].result)).index(slot)
        there = list(slots_in(nodes[at].result))
        if which >= len(there):  # it gives fewer results, whose gradients nobody wants
            return None
        found = there[which]
        return found if self.maker.get(found, len(self.nodes)) < self.index[id(node)] else None


def slots_of(value: Any) -> TypeIs[Slot]:
    return hasattr(value, "storage")


def _wired(*new: tuple[int, Slot]) -> Given:
    """An edit that gives an operator other tensors as operands: (number, slot) of each."""

    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], *tensors: torch.Tensor) -> Any:
        given = list(args)
        for (i, _), tensor in zip(new, tensors):
            given[i] = tensor
        return func(*given, **kwargs)

    return Given(edit, tuple(slot for _, slot in new))


def rewired(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): an operator is given another tensor of the run that has the same form."""
    wires, held = Wiring(lab), sites(lab)
    single = [[n] for nodes in held if len(nodes) <= MOST_ONCE and not is_loop(lab, nodes) for n in nodes]
    for nodes in (*single, *(nodes for nodes in held if len(nodes) > 1)):
        reference = nodes[min(1, len(nodes) - 1)]  # the first may lack what comes from the step before
        if id(reference) not in wires.index:
            continue
        users = [wires.nodes[at].name for s in slots_in(reference.result) for at, _ in wires.users.get(s, ())]
        if reference.name in COMPARING or (users and COMPARING.issuperset(users)):
            continue  # a choice between two hangs on too little
        for i, seen in operands(reference):
            for slot in wires.like(seen, wires.index[id(reference)]) if seen.shape else ():
                given = {n.place: wires.in_step(slot, reference, n) for n in nodes}
                edits = {place: _wired((i, s)) for place, s in given.items() if s is not None}
                new, old = wires.words[slot], wires.words.get(seen, "another tensor")
                new = f"another one of {old}" if new == old else new
                yield f"wrong operand: {reference.name.strip('_')} takes {new} instead of {old} (exchanged)", edits


def exchanged(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): two tensors of one form in each other's place, wherever they are used once both
    are there."""
    wires = Wiring(lab)
    held = [s for s in wires.fixed if s in wires.users and s.floats and not wires.is_of_loop(s)]
    for a, b in itertools.combinations(held[:MOST_SINGLE], 2):
        if (a.shape, a.dtype) != (b.shape, b.dtype) or wires.maker[a] == wires.maker[b] == -1:
            continue
        ready = max(wires.maker[a], wires.maker[b])
        edits: dict[tuple[int, ...], list[tuple[int, Slot]]] = {}
        for one, other in ((a, b), (b, a)):
            for at, i in wires.users[one]:
                if at > ready:
                    edits.setdefault(wires.nodes[at].place, []).append((i, other))
        if {other for new in edits.values() for _, other in new} == {a, b}:
            both = (
                f"two parts of {wires.words[a]}"
                if wires.words[a] == wires.words[b]
                else f"{wires.words[a]} and {wires.words[b]}"
            )
            yield f"{both} are exchanged (swapped)", {place: _wired(*new) for place, new in edits.items()}


# ---- order -----------------------------------------------------------------------------------


def bypassed(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): an operator is given what its operand was made from, though the operand is
    used elsewhere as well; or it gives that, so that both are left out."""
    wires = Wiring(lab)
    for nodes in groups(lab):
        outer = nodes[-1]
        for i, seen in operands(outer) if id(outer) in wires.index else ():
            inner = wires.nodes[wires.maker[seen]] if wires.maker.get(seen, -1) >= 0 else None
            if inner is None or not seen.shape:
                continue
            for _, early in operands(inner):
                if (early.shape, early.dtype) != (seen.shape, seen.dtype) or early not in wires.maker:
                    continue
                early_of = {n.place: wires.in_step(early, outer, n) for n in nodes}
                a, b = inner.name.strip("_"), outer.name.strip("_")
                yield (
                    f"computes without a step: {b} takes an operand of {a} (dropped contribution)",
                    {place: _wired((i, s)) for place, s in early_of.items() if s is not None},
                )
                if early.shape == outer.shape and len(nodes) == 1:
                    yield (
                        f"computes without two steps: {a} and {b} are left out (dropped contribution)",
                        {outer.place: Given(lambda func, args, kwargs, x: x.clone(), (early,))},
                    )


def moved(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): an operator taken later, past some that follow it, or earlier."""
    wires = Wiring(lab)
    for nodes in groups(lab):
        node = nodes[-1]
        if node.writes or id(node) not in wires.index or not node.floats or node.name in MOVES:
            continue
        for i, seen in operands(node):
            main, side = _split(node, i)
            if main is None or not wires.is_used(node) or (seen.shape != node.shape and node.name != "addmm"):
                continue
            for other, k in _beside(wires, node, seen):
                pairs = [(n, _in_step(wires, other, node, n)) for n in nodes]
                a, b = (other, node) if k is None else (node, other)
                if a.name != b.name and all(m is not None for _, m in pairs):
                    yield (
                        f"wrong order: {a.name.strip('_')} is taken before {b.name.strip('_')} instead of after",
                        {n.place: main for n, _ in pairs}
                        | {m.place: _with(n, side, k) for n, m in pairs if m is not None},
                    )


def _split(node: Node, i: int) -> tuple[Callable[..., Any] | None, Callable[[Node, Any, list[Any]], Any]]:
    """(what is left of an operator that is taken elsewhere, what it does there)."""
    if node.name == "addmm":
        return (lambda func, args, kwargs: torch.mm(*args[1:3])) if i == 1 else None, lambda node, x, args: x + args[0]
    return lambda func, args, kwargs: _copied(args[i]), lambda node, x, args: node.func(
        *args[:i], x, *args[i + 1 :], **node.kwargs
    )


def _copied(operand: Any) -> torch.Tensor:
    """A copy of an operand; LookupError of a number, which is no result of an operator."""
    if not isinstance(operand, torch.Tensor):
        raise LookupError("a number is left of it")
    return operand.clone()


def _with(node: Node, side: Callable[[Node, Any, list[Any]], Any], k: int | None) -> Given:
    """An edit of another operator: `node` runs on its operand `k`, or on its result (None)."""
    held = [a for a in node.args if slots_of(a)]

    def edit(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        mine = [next(given) if slots_of(a) else a for a in node.args]
        if k is None:
            out = func(*args, **kwargs)
            return (side(node, out[0], mine), *out[1:]) if isinstance(out, tuple) else side(node, out, mine)
        return func(*args[:k], side(node, args[k], mine), *args[k + 1 :], **kwargs)

    return Given(edit, tuple(held))


def _in_step(wires: Wiring, other: Node, reference: Node, node: Node) -> Node | None:
    nodes, k = wires.group[id(other)]
    at = k + wires.group[id(node)][1] - wires.group[id(reference)][1]
    return other if len(nodes) == 1 else nodes[at] if 0 <= at < len(nodes) else None


def _beside(wires: Wiring, node: Node, seen: Slot) -> Iterator[tuple[Node, int | None]]:
    """(operator, None) of those behind one, (operator, operand) of those before it, along the way of a
    tensor."""
    at, last, main = wires.index[id(node)], {s for s in slots_in(node.result)}, seen
    found = []
    for other in wires.nodes[at + 1 :]:
        if last & {a for a in other.args if slots_of(a)}:
            last |= set(slots_in(other.result))
            if wires.is_used(other):
                found.append((other, None))
    yield from found[:MOST_STEPS]
    for _ in range(MOST_STEPS):
        made = wires.maker.get(seen, -1)
        before = wires.nodes[made] if made >= 0 else None
        if before is None or any(wires.maker.get(a, at) >= made for a in node.args if slots_of(a) and a is not main):
            return
        inner = operands(before)
        if before.name not in MOVES:
            yield from ((before, k) for k, a in inner if a.shape == node.shape)
        if not inner:
            return
        seen = inner[0][1]


def spread(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): a function that one operand is taken of, taken of the other as well."""
    wires = Wiring(lab)
    for node in wires.nodes:
        both = operands(node)
        for (_, seen), (k, other) in zip(both, both[::-1]) if len(both) == 2 else ():
            inner = wires.nodes[wires.maker[seen]] if wires.maker.get(seen, -1) >= 0 else None
            if inner is None or inner.name in MOVES | SCALING:
                continue
            if len(operands(inner)) == 1 and seen.shape == other.shape != ():
                yield (
                    f"wrong variant: {inner.name.strip('_')} of both operands of {node.name.strip('_')}",
                    {node.place: operand(k, _again(inner))},
                )


def _again(node: Node) -> Callable[[torch.Tensor], Any]:
    i = operands(node)[0][0]
    return lambda x: node.func(*node.args[:i], x, *node.args[i + 1 :], **node.kwargs)


# ---- loops -----------------------------------------------------------------------------------


def late(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): in a loop, an operand that is still the one of the step before."""
    for nodes in groups(lab):
        for i, _ in operands(nodes[0]):
            if not is_carried(lab, nodes, i) or not all(slots_of(n.args[i]) for n in nodes if i < len(n.args)):
                continue
            before = [None, *(n.args[i] for n in nodes)]
            yield (
                f"one step late: operand {i + 1} of {nodes[0].name.strip('_')} is the one of the step before",
                {
                    n.place: operand(i, torch.zeros_like)
                    if old is None or old.shape != n.args[i].shape
                    else _wired((i, old))
                    for n, old in zip(nodes, before)
                },
            )


def rounds(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): a loop that ends a round early: what its last round makes is what the one before made."""
    wires = Wiring(lab)
    for nodes in sites(lab):
        made = [list(slots_in(n.result)) for n in nodes[-2:]]
        if not is_loop(lab, nodes) or len(made[0]) != 1 or id(nodes[-1]) not in wires.index or nodes[-1].writes:
            continue
        (before,), (last,) = made
        if (
            before.floats
            and (before.shape, before.dtype) == (last.shape, last.dtype)
            and last in wires.users | dict.fromkeys(wires.outputs)
        ):
            its, n = nodes[-1].name.strip("_"), len(nodes)
            yield (
                f"a loop ends one round early: {its} is that of round {n - 1} of {n}",
                {nodes[-1].place: Given(lambda func, args, kwargs, x: x.clone(), (before,))},
            )


def lost(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): in a loop, what is carried over is lost every so many steps."""
    for nodes in groups(lab):
        for i, _ in operands(nodes[0]) if len(nodes) > 4 else ():
            if not is_carried(lab, nodes, i):
                continue
            for every in [n for n in (2, 4, 5, 8, 10, 16, 32, 64) if n < len(nodes)]:
                yield (
                    f"starts anew every {every} steps: operand {i + 1} of {nodes[0].name.strip('_')} is lost there",
                    {n.place: operand(i, torch.zeros_like) for n in nodes[::every]},
                )


# ---- numbers that belong together --------------------------------------------------------------


def shares(lab: Lab) -> Iterator[tuple[str, dict[Any, Any]]]:
    """(text, edits): of two parts that weigh c and 1 - c one alone counts."""
    held = [
        (n, n.args[1])
        for n in lab.nodes()
        if n.name == "mul" and not n.writes and len(n.args) > 1 and isinstance(n.args[1], float) and 0 < n.args[1] < 1
    ]
    for (a, x), (b, y) in itertools.combinations(held, 2):
        for one, other, part in ((a, b, y), (b, a, x)) if abs(x + y - 1) < 1e-9 else ():
            yield (
                f"dropped contribution: the part that weighs {part:.6g} is missing, the other counts whole",
                {one.place: operand(1, lambda _: 1.0), other.place: operand(1, lambda _: 0.0)},
            )
