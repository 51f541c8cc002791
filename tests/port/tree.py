# SPDX-License-Identifier: Apache-2.0
"""`./run port-tree --source TREE [--against DIR]`: `ulpscope port` on a tree of somebody's own, held against a port of
it to musa that was made by hand (`x/cuda/nms_cuda.cu` beside `x/musa/nms_musa.mu`; DIR: a tree that has the second
where TREE has the first), and its kernels compiled for the simulated device as far as syntax and types go.

A line that the hand changed counts where it changed words alone. Left out of the share, and counted apart: what is
a decision and no name (other dtypes in a dispatch), layout alone, addresses of the web that the hand changed,
messages, which stay, and what the port lists for a human. Exit code 1 where a line was touched
that the hand left, or the shares are less than asked for."""

from __future__ import annotations

import argparse
import collections
import difflib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from ulpscope import extension
from ulpscope.program.lowered import KernelRefused, Lowering

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build")) / "bin/ulpscope"
WORD = re.compile(r"[A-Za-z_]\w*|\d+|\S")
QUOTED = re.compile(r'"[^"]*"')
COMMENT = re.compile(r"//.*")
DTYPES = re.compile(r"AT_DISPATCH_\w+")
# What the hand wrote and what the port writes where both are right: two names of one thing in torch_musa.
SAME = ((r"\bat::musa::", "c10::musa::"), (r"\bMUSA(?=,| *\))", "PrivateUse1"))


def by_hand(path: str) -> str:
    """Where the port by hand of a file stands."""
    path = re.sub(r"\.cu(h?)$", r".mu\1", path)
    return path.replace("cuda", "musa").replace("CUDA", "MUSA")


def taken_over(source: Path, to: Path) -> None:
    """The tree without what was ported already."""
    for path in sorted(source.rglob("*")):
        rel = str(path.relative_to(source))
        if path.is_file() and "musa" not in rel.lower() and path.suffix not in (".mu", ".muh") and "/.git/" not in rel:
            (to / rel).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to / rel)


def ported(tree: Path, out: Path, *options: str) -> set[tuple[str, str]]:
    """Files and own names in them that it left for a human, and listed: by now another thing is called so."""
    words = [PROGRAM, "port", tree, "-o", out, *options]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"port-tree: {done.stderr}")
    lines = (done.stdout + done.stderr).strip().splitlines()
    print(f"to {options[1]}: {lines[-1].rpartition(': ')[0]}")
    return {(m[1], m[2]) for m in map(re.compile(r"(\S+?):\d+: '(\w+)': ").match, lines) if m}


def words_alone(before: str, after: str) -> bool:
    """Whether a line differs from another by words."""
    a, b = WORD.findall(before), WORD.findall(after)
    return len(a) == len(b) and all(x == y or (x[0].isalpha() or x[0] == "_") for x, y in zip(a, b))


def likened(line: str) -> str:
    for pattern, to in SAME:
        line = re.sub(pattern, to, line)
    return line


def kind_of(before: str, hand: str, ours: str) -> str:
    """What a line is that the hand changed."""
    if hand == ours:
        return "alike"
    if "".join(hand.split()) == "".join(ours.split()):
        return "layout"
    if likened(hand) == likened(ours):
        return "the same by another name"
    if DTYPES.findall(before) and DTYPES.findall(before) != DTYPES.findall(hand):
        return "other dtypes in a dispatch"
    if "://" in before:
        return "an address of the web"
    if QUOTED.sub('""', likened(hand)) == QUOTED.sub('""', likened(ours)):
        return "a message"
    return "missed"


class Held:
    """The port against the hand's."""

    def __init__(self, left: set[tuple[str, str]]) -> None:
        self.left = left
        self.pairs = self.lines = self.changed = 0
        self.kinds: collections.Counter[str] = collections.Counter()
        self.missed: list[str] = []
        self.touched: list[str] = []
        self.comments: list[str] = []

    def add(self, name: str, before: list[str], hand: list[str], ours: list[str]) -> None:
        self.pairs += 1
        self.lines += len(before)
        if len(before) != len(ours):
            raise SystemExit(f"port-tree: {name}: {len(before)} lines became {len(ours)}")
        for what, i, i_end, j, j_end in difflib.SequenceMatcher(None, before, hand, autojunk=False).get_opcodes():
            if what == "equal":
                for k in range(i, i_end):
                    if ours[k] != before[k]:
                        code = COMMENT.sub("", ours[k]) != COMMENT.sub("", before[k])
                        (self.touched if code else self.comments).append(f"{name}:{k + 1}: {ours[k]}")
                continue
            self.changed += max(i_end - i, j_end - j)
            for a, b in zip(range(i, i_end), range(j, j_end)) if i_end - i == j_end - j else ():
                if words_alone(before[a], hand[b]):
                    kind = kind_of(before[a], hand[b], ours[a])
                    if kind == "missed" and self.by_listed(name, ours[a]) == likened(hand[b]):
                        kind = "listed, not changed"
                    self.kinds[kind] += 1
                    if kind == "missed":
                        self.missed.append(f"{name}:{a + 1}:\n  - {hand[b]}\n  + {ours[a]}")

    def by_listed(self, name: str, line: str) -> str:
        """The line as it would be if what the port only lists were renamed."""
        for file, word in self.left:
            if file == name:
                line = line.replace(word, by_hand(word))
        return likened(line)

    def share(self) -> float:
        right = self.kinds["alike"] + self.kinds["the same by another name"]
        return right / max(1, right + self.kinds["missed"])

    def show(self) -> None:
        print(f"{self.pairs} pairs, {self.lines:,} lines, {self.changed:,} differ by hand; by words alone:")
        for kind, n in self.kinds.most_common():
            print(f"  {n:5}  {kind}")
        print(f"{self.share():.1%} of the lines that names settle came out as the hand's")
        print(f"{len(self.touched)} lines touched that the hand left, and {len(self.comments)} comments")
        print("\n".join([*self.missed, *self.touched, *self.comments]))


def held(tree: Path, against: Path, out: Path, left: set[tuple[str, str]]) -> Held:
    result = Held(left)
    names = {path.name for path in out.rglob("*")}
    for path in sorted(tree.rglob("*")):
        rel = str(path.relative_to(tree))
        hand = against / by_hand(rel)
        if not path.is_file() or by_hand(rel) == rel or not hand.is_file():
            continue
        new = Path(by_hand(rel)).name
        ours = out / path.parent.relative_to(tree) / (new if new in names else path.name)
        if not ours.is_file():  # a folder was renamed, too
            ours = out / by_hand(rel)
        texts = [p.read_text("utf-8", "surrogateescape").splitlines() for p in (path, hand, ours)]
        result.add(rel, *texts)
    return result


def compiled(tree: Path, room: Path) -> tuple[int, list[str], int]:
    """How many kernels' files compile for sim, what hinders the others, and how many there are."""
    folders = sorted({str(p.parent) for p in tree.rglob("*.h*")} | {str(p.parent) for p in tree.rglob("*.cuh")})
    given = [*extension.include_paths(), *folders, str(tree), sysconfig.get_paths()["include"]]
    base = ["g++", "-std=c++17", "-w", *extension._flags(False), *(f"-I{f}" for f in given), "-DTORCH_EXTENSION_NAME=x"]
    head = room / "all.h"
    head.write_text("#include <torch/extension.h>\n")
    subprocess.run([*base, "-x", "c++-header", str(head), "-o", f"{head}.gch"], check=True)
    good, bad, files = 0, [], sorted(tree.rglob("*.cu"))
    for i, file in enumerate(files):
        print(f"\r[{i}/{len(files)}] {file.name:60}", end="", file=sys.stderr)
        lowering = Lowering(room / "lowered" / file.stem, folders)
        try:
            source = lowering.source(str(file))
            lowering.check()
        except KernelRefused as problem:
            bad.append(f"{file.name}: refused: {str(problem).splitlines()[0]}")
            continue
        done = subprocess.run([*base, "-fsyntax-only", "-include", str(head), source], capture_output=True, text=True)
        good += done.returncode == 0
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            bad.append(f"{file.name}: {errors[0] if errors else done.stderr[-200:]}".replace(f"{tree}/", ""))
    print("\r" + " " * 80, end="\r", file=sys.stderr)
    return good, bad, len(files)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run port-tree", description=__doc__)
    parser.add_argument("--source", type=Path, required=True, metavar="TREE", help="sources for CUDA")
    parser.add_argument("--against", type=Path, metavar="DIR", help="the port by hand (default: TREE itself)")
    parser.add_argument("--no-compile", action="store_true", help="leave the kernels out")
    parser.add_argument("--least", type=float, default=0.97, help="share of lines alike (default 0.97)")
    parser.add_argument("--least-compiled", type=float, default=0.7, help="share that compiles (default 0.7)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        taken_over(asked.source, tree)
        left = ported(tree, tree.with_name("musa"), "--to", "musa", "--rename-own", "--comments")
        result = held(tree, asked.against or asked.source, tree.with_name("musa"), left)
        if result.pairs:
            result.show()
        fails = bool(result.touched) or (result.pairs > 0 and result.share() < asked.least)
        ported(tree, tree.with_name("sim"), "--to", "sim")
        if not asked.no_compile:
            good, bad, n = compiled(tree.with_name("sim"), Path(folder))
            print("\n".join(bad))
            print(f"{good} of {n} kernels' files compile for sim")
            fails |= n > 0 and good < asked.least_compiled * n
    return int(fails)


if __name__ == "__main__":
    sys.exit(main())
