# SPDX-License-Identifier: Apache-2.0
"""Torch's operator database on the simulated device, held against the CPU bit by bit: `./run opdb`.

Each entry is asked in every form (forms.py), and what comes of it is counted: run and equal, run and not, refused
as the CPU refuses, skipped with a reason. An entry of which nothing ran is a failure. Entries run in pieces, each
in a process of its own, so that one that crashes is told and the others go on."""

import argparse
import collections
import fnmatch
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIECE = 120  # entries to a process: to load the database takes as long as twenty of them
KEPT = 4  # texts on what differs, of an entry
# What is in the memory that these hand out is nobody's promise.
NO_BITS = (
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
    "resize_",
    "resize_as_",
)


def bits_equal(a, b):
    """Equal bits, all NaN alike."""
    import torch

    a, b = (t.detach().resolve_conj().resolve_neg().cpu() for t in (a, b))
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype} {list(a.shape)} on the CPU, {b.dtype} {list(b.shape)}"
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    a, b = a.contiguous(), b.contiguous()
    wide = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    differ = a.view(wide) != b.view(wide)
    if a.is_floating_point():
        differ &= ~(a.float().isnan() & b.float().isnan())
    n = int(differ.sum())
    if not n:
        return None
    where = tuple(differ.reshape(-1).nonzero()[0].tolist())
    return f"{n} of {a.numel()} elements differ, first {a.reshape(-1)[where]} on the CPU, {b.reshape(-1)[where]}"


# What is known of an entry and a form, and no fault of the device's.
KNOWN = {
    ("cummax", "out, another dtype"): "torch's kernel for the CPU writes behind an `out=` of a narrower dtype",
    ("cummin", "out, another dtype"): "torch's kernel for the CPU writes behind an `out=` of a narrower dtype",
    ("nn.functional.max_pool1d", "negative view"): "torch's kernel for the CPU does not heed the view's sign",
    ("max_pool1d", "negative view"): "torch's kernel for the CPU does not heed the view's sign",
    ("tensor_split", "*"): "where to cut has to be on the host, as with CUDA",
    ("nn.functional.linear_cross_entropy", "*"): "chunks by the kind of device",
    ("mode", "out"): "its composite for `out=` names the devices that it takes",
    ("mode", "out, another shape"): "its composite for `out=` names the devices that it takes",
    ("mode", "out, another dtype"): "its composite for `out=` names the devices that it takes",
    ("mode", "out, other strides"): "its composite for `out=` names the devices that it takes",
    ("nn.functional.feature_alpha_dropout", "forward mode"): "a tangent that is zero everywhere has no sign",
    ("linalg.solve_triangular", "forward mode"): "a tangent that is zero everywhere has no sign",
    **{(name, "*"): "the device has no sparse tensors" for name in ("to_sparse", "sparse.sampled_addmm", "sparse.mm")},
    **{
        (f"jiterator_{name}", "*"): "compiles for CUDA alone: the CPU has none of it"
        for name in (
            "unary",
            "binary",
            "4inputs_with_extra_args",
            "binary_return_by_ref",
            "2inputs_2outputs",
        )
    },
}


NOT_HERE = "the CPU has no kernel of it"
SPARSE = ("layout sparse_csr", "layout sparse_coo", "layout sparse_csc")


def known(name, form):
    return KNOWN.get((name, form)) or KNOWN.get((name, "*"))


def said(problem):
    return f"{type(problem).__name__}: {str(problem).splitlines()[0][:160] if str(problem) else ''}"


def name_of(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


class Entry:
    """What came of an entry of the database."""

    def __init__(self, op):
        self.op, self.name = op, name_of(op)
        self.counts = collections.defaultdict(collections.Counter)  # by form
        self.skipped, self.differs = collections.Counter(), []

    def note(self, form, what, dtype="", text=""):
        self.counts[form][what] += 1
        if what == "differs" and len(self.differs) < KEPT:
            self.differs.append(f"{form}, {str(dtype).removeprefix('torch.')}: {text}")

    def row(self):
        return {
            "entry": self.name,
            "forms": {f: dict(c) for f, c in self.counts.items()},
            "skipped": dict(self.skipped),
            "differs": self.differs,
        }

    def outcome(self, act, sample, device):
        """(tensors, None), or (None, what was raised)."""
        import forms
        import torch

        place = forms.Place(device)
        torch.manual_seed(0)
        try:
            made = act(self.op, sample, place)
            if place.device.type == "sim":
                torch.sim.synchronize()
            return made, None
        except forms.Skipped:
            raise
        except Exception as problem:
            if place.device.type == "sim":
                try:  # what else was queued
                    torch.sim.synchronize()
                except RuntimeError:
                    pass
            return None, problem

    def held(self, form, act, sample, dtype):
        import forms

        try:
            here, refused = self.outcome(act, sample, "cpu")
            there, problem = self.outcome(act, sample, "sim")
        except forms.Skipped as why:
            self.skipped[str(why)] += 1
            return
        if refused is not None:
            same = problem is not None and (
                isinstance(problem, type(refused))
                or isinstance(refused, type(problem))
                or "launched at" in str(problem)
            )
            text = f"the CPU says {said(refused)}, the device {said(problem) if problem else 'nothing'}"
            self.note(form, "refused" if same else "differs", dtype, text)
        elif problem is not None:
            self.note(form, "differs", dtype, said(problem))
        else:
            self.compare(form, dtype, here, there)

    def compare(self, form, dtype, here, there):
        texts = [None if self.op.name in NO_BITS else bits_equal(a, b) for a, b in zip(here, there)]  # noqa: B905
        if len(here) != len(there):
            texts.append(f"{len(here)} tensors on the CPU, {len(there)}")
        texts = [t for t in texts if t]
        self.note(form, "differs" if texts else "equal", dtype, texts[0] if texts else "")
        if not texts and any(a.stride() != b.stride() for a, b in zip(here, there) if a.numel()):  # noqa: B905
            self.counts[form]["strides"] += 1
            if len(self.differs) < KEPT:
                a, b = next((a, b) for a, b in zip(here, there) if a.stride() != b.stride() and a.numel())  # noqa: B905
                self.differs.append(f"{form}, {dtype}: strides {a.stride()} on the CPU, {b.stride()}")

    def ask(self, most):
        import forms

        dtypes = sorted(self.op.supported_dtypes("cpu"), key=str)
        if not dtypes:
            self.skipped[NOT_HERE] += 1
            return
        for form, (act, only, has) in forms.FORMS.items():
            if known(self.op.name, form):
                self.skipped[known(self.op.name, form)] += 1
                continue
            if not has(self.op):
                self.skipped[f"has no form '{form}'"] += 1
                continue
            for dtype in dtypes if only is None else [d for d in only if d in dtypes]:
                self.held_all(form, act, forms.samples(self.op, form, dtype, most), dtype)
        self.held_all("wrong arguments", forms.forward, forms.wrong(self.op), "")

    def held_all(self, form, act, samples, dtype):
        try:
            for sample in samples:
                self.held(form, act, sample, dtype)
        except Exception as problem:  # a sample that this build of torch cannot make
            self.skipped[f"no sample: {said(problem)[:60]}"] += 1


def piece(args):
    """Runs entries FIRST:LAST, a line of JSON each; before each its number, for who has to say what crashed."""
    sys.path.insert(0, str(Path(__file__).parent))
    import torch

    import ulpscope.sim  # noqa: F401
    from ulpscope.fuzzer.opdb import operators

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    first, last = map(int, args.piece.split(":"))
    for i, op in enumerate(list(operators())[first:last], first):
        if not fnmatch.fnmatch(name_of(op), args.only):
            continue
        entry = Entry(op)
        print(f"at {i} {entry.name}", flush=True)
        begin = time.monotonic()
        entry.ask(args.samples)
        print(json.dumps({**entry.row(), "seconds": round(time.monotonic() - begin, 1)}), flush=True)


def run_piece(args, first, last):
    """(rows, number of the entry that ended the process or None)."""
    command = [
        sys.executable,
        __file__,
        "--piece",
        f"{first}:{last}",
        "--only",
        args.only,
        "--samples",
        str(args.samples),
    ]
    rows, at = [], None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE if args.quiet else None, text=True
    ) as child:
        for line in child.stdout:
            if line.startswith("at "):
                at = line.split()
            elif line.startswith("{"):
                rows.append(json.loads(line))
                at = None
        code = child.wait()
    if code == 0:
        return rows, None
    if at is None:
        sys.exit(f"opdb: entries {first} to {last} ended with {code}")
    rows.append(
        {"entry": at[2], "forms": {"crash": {"differs": 1}}, "skipped": {}, "differs": [f"the process ended: {code}"]}
    )
    return rows, int(at[1])


def all_pieces(args):
    from ulpscope.fuzzer.opdb import operators

    n, first, rows = len(operators()), 0, []
    while first < n:
        if not any(fnmatch.fnmatch(name_of(op), args.only) for op in operators()[first : first + PIECE]):
            first += PIECE
            continue
        last = min(first + PIECE, n)
        some, crashed = run_piece(args, first, last)
        rows += some
        if args.json:
            Path(args.json).write_text("".join(json.dumps(row) + "\n" for row in rows))
        first = last if crashed is None else crashed + 1
        print(f"opdb: {first} of {n} entries", file=sys.stderr, flush=True)
    return rows


def n_run(row):
    return sum(c.get("equal", 0) + c.get("differs", 0) for c in row["forms"].values())


def is_failure(row):
    if {*KNOWN.values(), NOT_HERE, *SPARSE} & set(row["skipped"]) and not set(row["forms"]) - {"wrong arguments"}:
        return False  # there is a reason
    return n_run(row) == 0 or any(c.get("differs") for c in row["forms"].values())


def table(rows, facts):
    """The result as a page of the documentation."""
    forms = collections.defaultdict(collections.Counter)
    skipped = collections.Counter()
    for row in rows:
        for form, counts in row["forms"].items():
            forms[form].update(counts)
        skipped.update(row["skipped"])
    bad = [row for row in rows if is_failure(row)]
    lines = [
        "# Torch's operator database on the simulated device",
        "",
        facts,
        "",
        "| form | run | equal in every bit | other strides | refused as the CPU refuses | differs |",
        "|---|---|---|---|---|---|",
    ]
    for form, c in forms.items():
        lines.append(
            f"| {form} | {c['equal'] + c['differs']} | {c['equal']} | {c['strides']} | {c['refused']} | "
            f"{c['differs']} |"
        )
    lines += ["", "| what differs, or did not run | how |", "|---|---|"]
    for row in bad:
        lines.append(
            f"| `{row['entry']}` | {row['differs'][0][:90] if row['differs'] else 'nothing ran'} |".replace("\n", " ")
        )
    lines += ["", "| skipped, because | samples or entries |", "|---|---|"]
    lines += [f"| {why[:90]} | {n} |" for why, n in skipped.most_common()]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="./run opdb", description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default="*", help="glob over entries of the database")
    parser.add_argument("--samples", type=int, default=3, help="samples of each form and dtype (%(default)s)")
    parser.add_argument("--json", help="write a line for each entry to this file")
    parser.add_argument("--write", help="write the table to this file")
    parser.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.piece:
        return piece(args)
    import torch

    rows = all_pieces(args)
    bad = [row for row in rows if is_failure(row)]
    idle = sum(n_run(row) == 0 and row not in bad for row in rows)
    how = "in step" if os.environ.get("ULPSCOPE_SIM_LAUNCH_BLOCKING", "0") not in ("", "0") else "on streams"
    facts = (
        f"Torch {torch.__version__.partition('+')[0]}, {len(rows)} entries, up to {args.samples} samples of each "
        "form and "
        f"dtype, kernels {how}; {len(rows) - len(bad) - idle} entries differ nowhere, {idle} "
        "cannot run, for a reason that is told. Written by "
        f"`./run opdb --samples {args.samples} --write FILE`."
    )
    if args.write:
        Path(args.write).write_text(table(rows, facts))
    print(facts)
    for row in bad:
        print(f"{row['entry']}: {'; '.join(row['differs']) or 'nothing ran'}")
    return int(bool(bad) or not rows)


if __name__ == "__main__":
    sys.exit(main())
