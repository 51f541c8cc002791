# SPDX-License-Identifier: Apache-2.0
"""Which calls of a trace a check replays. Looks at rows only, never at tensors.

On the device type that captured the trace the ATen calls are replayed. On any other type
the outermost portable call stands for the ATen calls below it, so that the target's own
fused kernels are what is tested.
"""

import difflib
import json
import re
from collections import Counter
from dataclasses import dataclass, field


# They give nothing of their own: what a wait finds belongs to the collective before it.
SILENT = re.compile(r"c10d::(barrier|monitored_barrier|check_for_nan)|_c10d_functional::(wait|_wrap)")


@dataclass
class Pick:
    """One call to replay."""

    sequence: int
    children: list = field(default_factory=list)  # ATen calls below it, to find a culprit
    stands_for: int = 1
    backward: dict = field(default_factory=dict)  # it or a child -> calls of its backward

    def request(self, compiled=False):
        """What a worker needs to know."""
        return {"call": self.sequence, "children": self.children, "stands_for": self.stands_for,
                "backward": self.backward}  # fmt: skip


def device_types(row):
    """Device types of the tensors and device arguments of a call."""
    found = {t["device"].split(":")[0] for t in row["tensors"] if t.get("device")}
    found.update(_named_devices(_parsed(row.get("args"))))
    return found


def _parsed(text):
    return json.loads(text) if isinstance(text, str) and text else text or {}


def _text(arguments):
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _named_devices(value):
    if isinstance(value, list):
        return {d for item in value for d in _named_devices(item)}
    if isinstance(value, dict):
        if isinstance(value.get("device"), str):
            return {value["device"].split(":")[0]}
        return {d for item in value.values() for d in _named_devices(item)}
    return set()


def home_of(rows):
    """The device type that captured the trace: the accelerator that most calls use, or
    cpu where none uses one."""
    counts = Counter(t for row in rows for t in device_types(row) if t not in ("cpu", "meta"))
    return counts.most_common(1)[0][0] if counts else "cpu"


def is_portable(row):
    """Whether a composite call can be replayed as a whole: it was not under autocast,
    whose casts happened inside it, and all its arguments were kept."""
    state = _parsed(row.get("state"))
    kept = all(_is_kept(t) for t in row["tensors"] if t["role"] == "in")
    return kept and not state.get("autocast") and '"other"' not in _text(row.get("args"))


def _is_kept(tensor):
    """Whether a tensor has a content that a trace can hold: what torch.func wraps has none, the
    calls below see what is inside."""
    form = (tensor.get("form") or "").split(" ")[0]
    return form in ("", "conj", "neg") or form.startswith("sparse")


def pick(rows, home, target):
    """Picks for a device of type `target`, ascending; `rows` are all calls of a trace."""
    usable = [r for r in rows if (r.get("status") or "ok") == "ok" and not SILENT.match(r["op"])]
    if home != "cpu":
        usable = [r for r in usable if home in device_types(r)]
    if home == target:
        return [Pick(r["sequence"]) for r in usable if not r.get("composite")]
    below = {}
    for row in usable:
        if row.get("parent"):
            below.setdefault(row["parent"], []).append(row)
    whole = {r["sequence"] for r in usable if r.get("composite") and is_portable(r)}
    parents = {r["sequence"]: r.get("parent") for r in usable}
    out = []
    for row in usable:
        if _covered(row["sequence"], parents, whole):
            continue
        if row["sequence"] in whole:
            out.append(Pick(row["sequence"], _leaves(row["sequence"], below)))
        elif not row.get("composite"):
            out.append(Pick(row["sequence"]))
    return out


def _covered(sequence, parents, whole):
    """Whether a call lies below one that is replayed as a whole."""
    sequence = parents.get(sequence)
    while sequence:
        if sequence in whole:
            return True
        sequence = parents.get(sequence)
    return False


def _leaves(sequence, below):
    out = []
    for row in below.get(sequence, ()):
        if row.get("composite"):
            out += _leaves(row["sequence"], below)
        else:
            out.append(row["sequence"])
    return out


def narrow(picks, wanted):
    """Keeps what the pattern of `wanted` sequences asks for: a pick that matches, or the
    children that do."""
    out = []
    for p in picks:
        if p.sequence in wanted:
            out.append(p)
        else:
            out += [Pick(child) for child in p.children if child in wanted]
    return sorted(out, key=lambda p: p.sequence)


def steps_of(text):
    """The (first, last) of each part of "2,5-8"; ValueError for anything else."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"'{text}' is no list of steps; write 2 or 2,5-8")
        found.append((int(match[1]), int(match[2] or match[1])))
    return found


def split_call(text, is_folder):
    """TRACE and N of "TRACE#N"; None for no N. A folder may have a # in its name."""
    path, mark, number = text.rpartition("#")
    if not mark or not number.isascii() or not number.isdigit() or is_folder(text):
        return text, None
    return path, int(number)


def family(rows, call):
    """A call and those below it."""
    found = {call}
    for row in rows:  # ascending: parents come first
        if row.get("parent") in found:
            found.add(row["sequence"])
    return found


def wanted(rows, matching, steps, call):
    """Sequences that pass every filter: `matching` those of operator, module and phase."""
    near = family(rows, call) if call is not None else matching
    return {r["sequence"] for r in rows
            if r["sequence"] in matching and r["sequence"] in near
            and (not steps or any(a <= (r.get("step") or 0) <= b for a, b in steps))}  # fmt: skip


def likely_ops(pattern, ops):
    """Operators that a pattern that matches nothing may have meant, at most three: torch.mm,
    aten.mm.default and MM mean aten::mm."""
    names = {}
    for op in sorted(ops):
        names.setdefault(op.split("::")[-1].split(".")[0].strip("_").lower(), []).append(op)
    found = []
    for part in pattern.split(","):
        words = [w.strip("_").lower() for w in re.split(r"[.:*!?\s]+", part) if w.strip("_")]
        near = [w for w in words if w in names]
        near = near or [n for w in words for n in difflib.get_close_matches(w, names, 1, 0.75)]
        found += [op for name in near for op in names[name]]
    return list(dict.fromkeys(found))[:3]


def link(picks, rows):
    """Tells every pick which backward calls belong to it or to a call below it: those of its
    autograd node, or, where Python made the node, those named after it in its module."""
    below, named = {}, {}
    for row in rows:
        forward = _parsed(row.get("state")).get("forward")
        if forward:
            below.setdefault(forward, []).append(row["sequence"])
        elif row.get("phase") == "backward":
            named.setdefault((row["op"], row.get("module")), []).append(row["sequence"])
    by_sequence = {r["sequence"]: r for r in rows}
    for p in picks:
        p.backward = {s: below[s] for s in (p.sequence, *p.children) if s in below}
        row = by_sequence[p.sequence]
        found = named.get((row["op"] + "_backward", row.get("module")))
        if found and not p.backward:
            p.backward = {p.sequence: found}


def signature(row):
    """What makes two calls the same for --distinct: operator, dtypes, shapes, strides,
    other arguments and module class."""
    views = tuple(
        (t["path"], t["dtype"], tuple(t["sizes"]), tuple(t["strides"]))
        for t in row["tensors"]
        if t["role"] == "in"
    )
    return row["op"], views, _text(row.get("args")), row.get("module_class") or ""


def distinct(picks, row_of):
    """The first pick of each signature, standing for all of them."""
    return firsts(picks, lambda p: signature(row_of(p.sequence)))


def firsts(picks, key_of):
    """The first pick of each key, standing for all of them."""
    first = {}
    for p in picks:
        key = key_of(p)
        if key in first:
            first[key].stands_for += 1
        else:
            first[key] = p
    return list(first.values())
