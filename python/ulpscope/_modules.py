# SPDX-License-Identifier: Apache-2.0
"""Which forward passes of modules a trace holds (`check --level module`). Looks at rows
only, never at tensors; `_module_call` rebuilds one.

The forward of a module is a run of calls, one after the other, that it or a module inside
it made. One that consists of the same calls as a module inside it is that module.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from . import _select

MOST_CALLS = 256  # of one graph; the modules inside a larger one are judged


@dataclass
class Forward:
    """One forward pass of one module."""

    path: str  # as the model names it, "" for the model itself
    calls: list  # picks, in the order of the trace
    last: int = 0  # sequence of the last call below them
    sequence: int = 0  # what names it among the results: a call of its own
    kept: list = field(default_factory=list)  # tensor versions that the forward around it reads
    source: dict = field(default_factory=dict)  # its row, without tensors
    stands_for: int = 1

    def request(self, compiled=False):
        """What a worker needs to know. What a compiler made of a whole is not looked for in
        its parts: they would all have to be compiled as well."""
        sequences = [p.sequence for p in self.calls]
        return {"call": self.sequence, "children": sequences * (not compiled), "stands_for": self.stands_for,
                "module": {"calls": sequences, "kept": self.kept, "source": self.source}}  # fmt: skip


def name_of(path):
    """The operator column of a module's row."""
    return f"module:{path or '(model)'}"


def enclosing(path):
    """The modules that a call of the module `path` belongs to, the outermost first."""
    if path is None:
        return []
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts) + 1)]


def forwards(picks, rows):
    """The forward passes among the calls picked, by their first call, inner ones last."""
    by_sequence, found, open_ = {r["sequence"]: r for r in rows}, [], {}
    for p in picks:
        row = by_sequence[p.sequence]
        around = enclosing(row.get("module_path")) if row.get("phase") == "forward" else []
        where = row.get("step"), row.get("thread")
        for key in [k for k in open_ if k[:2] != where or k[2] not in around]:
            del open_[key]
        for path in around:
            key = (*where, path)
            if key not in open_:
                open_[key] = Forward(path, [])
                found.append(open_[key])
            open_[key].calls.append(p)
            open_[key].last = max(p.sequence, *p.children, 0)
    found = _innermost(found)
    _describe(found, by_sequence, rows)
    return found


def _innermost(found):
    """Without those that are but the hull of one module inside them."""
    same = {(f.calls[0].sequence, f.calls[-1].sequence): f for f in found}
    return [f for f in found if same[f.calls[0].sequence, f.calls[-1].sequence] is f]


def _describe(found, by_sequence, rows):
    """Numbers, sources and what is read elsewhere."""
    readers, classes = defaultdict(list), {}
    for row in rows:
        classes.setdefault(row.get("module_path"), row.get("module_class"))
        for t in row["tensors"]:
            if t["role"] == "in" and row.get("phase") == "forward":
                readers[t["version"]].append(row["sequence"])
    taken = set()
    spare = max(by_sequence, default=0)
    for f in reversed(found):  # inner ones have fewer calls to choose from
        free = next((p.sequence for p in f.calls if p.sequence not in taken), None)
        spare += free is None
        f.sequence = spare if free is None else free
        taken.add(f.sequence)
        first = by_sequence[f.calls[0].sequence]
        f.source = {k: first.get(k) for k in ("step", "phase", "frames")} | {
            "tensors": [],
            "sequence": f.sequence, "op": name_of(f.path), "module_path": f.path,
            "module_class": classes.get(f.path) or ""}  # fmt: skip
        f.kept = _read_elsewhere(f, by_sequence, readers)


def _read_elsewhere(f, by_sequence, readers):
    """Versions that calls of a forward made and later ones of the forward around it read."""
    made = {t["version"] for p in f.calls for t in by_sequence[p.sequence]["tensors"]
            if t["role"] != "in"}  # fmt: skip
    return sorted(v for v in made if any(r > f.last for r in readers[v]))


def distinct(found, rows):
    """The first of those with the same calls, by `_select.signature`, standing for all."""
    by_sequence = {r["sequence"]: r for r in rows}
    return _select.firsts(
        found, lambda f: tuple(_select.signature(by_sequence[p.sequence]) for p in f.calls)
    )
