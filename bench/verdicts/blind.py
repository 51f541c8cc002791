# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels written blind, by somebody who had not looked at the search for causes: each family
is a definition whose keywords are right at their defaults, and the mistakes that a kernel's author
makes in it, in words.

Run `python -m verdicts.blind [A|B|C|D|AB] [FAMILY ...]` in bench/: what was planted beside what is said;
`--json FILE` also writes one line a mistake; `--right` runs the right kernels of a set instead, other
algorithms and orders by the same hand, none of which may be accused. Of blind_layers and blind_training
every other mistake is in set B, which nobody read while set A was being mended; set C is blind_third and
its parts, set D blind_fourth_a to _i, set E blind_fifth_a to _k, set F (aimed at weak classes) blind_classes_a
to _h, set G blind_sixth_a to _e and set H (aimed at classes again) blind_sixth_m to _u, each by another hand; set I is
blind_seventh_a to _l (from _f on aimed); set K, blind_eighth_a to _c, is aimed, too; set L, blind_ninth_a to _k, is
by one more hand, aimed by half; set M, blind_tenth_a to _q, by another, likewise; set N, blind_eleventh_a to _k, by
another, aimed by more than half; set Q, blind_twelfth_a to _j, by another, not aimed; set R, blind_thirteenth_a
to _o, by another, not aimed; set S, blind_fourteenth_*, a file a subject, by another, not aimed; set T,
blind_fourteenth_classes, aimed, by the same hand; set U, blind_fifteenth_*, a file a subject, by one
more hand, not aimed; set J, blind_sixth_v and _w, is by the hand that had just mended the
rule of steps; set P, blind_products, is not blind. A further set is further files `blind_*.py` with a letter of its
own. Whether
a name is right is for the reader to say: labels.jsonl holds what readers said of names, each with the commit that gave
it (right; vague: by the place or the numbers, not the mistake; false: also of a place that is stated wrongly). What is
said again in the same words has its label again, the rest is counted as unread; `--read` counts the labels themselves.
"""

import argparse
import collections
import copy
import importlib
import json
import os
import pathlib
import random

import torch

import ulpscope

LABELS = pathlib.Path(__file__).with_name("labels.jsonl")
FAMILIES = {}
RIGHT = {}  # family: [(words, right kernel)]


def family(args, sets="AB"):
    """Registers a definition; its mistakes go to the letters of `sets` in turn."""

    def keep(fn):
        if fn.__name__ in FAMILIES:
            raise ValueError(f"two families are called {fn.__name__}")
        FAMILIES[fn.__name__] = (fn, args, [], sets)
        return fn

    return keep


def mistake(fn, words, wrong=None, **keywords):
    FAMILIES[fn.__name__][2].append((words, wrong or (lambda *a: fn(*a, **keywords))))


def honest(fn, words, kernel):
    """Registers a right kernel of a family: it must not be accused."""
    RIGHT.setdefault(fn.__name__, []).append((words, kernel))


class Draw:
    def __init__(self, name):
        self.g = torch.Generator().manual_seed(sum(map(ord, name)) * 7 + 5)

    def __call__(self, *shape, dtype=torch.float32, scale=1.0, shift=0.0):
        return (torch.randn(*shape, generator=self.g) * scale + shift).to(dtype)

    def ints(self, high, *shape):
        return torch.randint(0, high, shape, generator=self.g)

    def rand(self, *shape):
        return torch.rand(*shape, generator=self.g)


bf, hf = torch.bfloat16, torch.float16


def narrow(x, dtype=bf):
    return x.to(dtype).to(x.dtype)


def tf32(x):
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def slow_matmul(a, b, acc=bf, step=16):
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for k in range(0, a.shape[-1], step):
        total = narrow(total + a[..., k : k + step].float() @ b[..., k : k + step, :].float(), acc)
    return total.to(a.dtype)


def kernels(which="AB", only=(), right=False, drawn=None):
    """(family, planted, definition, args, wrong kernel) of the sets asked for; or the right ones. `drawn`: those
    at these places of one random order."""
    for file in sorted(pathlib.Path(__file__).parent.glob("blind_*.py")):  # they fill FAMILIES
        importlib.import_module(f"{__package__}.{file.stem}")

    every = []
    for name, (_, _, mistakes, sets) in FAMILIES.items():
        planted = RIGHT.get(name, []) if right else mistakes
        every += [
            (name, words, kernel)
            for i, (words, kernel) in enumerate(planted if not only or name in only else ())
            if sets[i % len(sets)] in which
        ]
    if drawn is not None:
        random.Random(2026).shuffle(every)
    for name, words, kernel in every[drawn or slice(None)]:
        fn, make, _, _ = FAMILIES[name]
        yield name, words, fn, make(Draw(name)), kernel


def kind_of(verdict, cause):
    """Where a cause counts before anybody has read it."""
    if verdict not in ("wrong", "reduced", "nonfinite"):
        return "not accused"
    silent = not cause or cause.startswith(("cause unknown", "looks like"))
    return "silent" if silent else "named"


def labels():
    """The lines of labels.jsonl."""
    return [json.loads(line) for line in LABELS.read_text().splitlines()]


def told_again(lines):
    """Counts of what readers said of names, by label; of those in other words than before, as unread."""
    said = {(k["family"], k["kernel"], k["cause"]): k["label"] for k in labels()}
    named = [k for k in lines if k["class"] == "named"]
    return collections.Counter(said.get((k["family"], k["words"], k["cause"]), "unread") for k in named)


def read():
    """Prints the labels by commit, silences among them, and the share of false ones."""
    for commit in dict.fromkeys(k["commit"] for k in labels()):
        count = collections.Counter(k["label"] for k in labels() if k["commit"] == commit)
        every = sum(count.values())
        shares = ", ".join(f"{n} {label}" for label, n in count.most_common())
        print(f"{commit}: {every} accused, {shares}; false {100 * count['false'] / every:.1f} %")


def judged(which, only, right=False, drawn=None, cause=True):
    """What the judge says of each mistake, as the line that --json writes."""
    for name, words, fn, args, kernel in kernels(which, only, right, drawn):
        found = ulpscope.judge_call(fn, args, outputs=kernel(*copy.deepcopy(args)), cause=cause)
        yield {
            "family": name,
            "words": words,
            "verdict": found.verdict,
            "cause": found.cause,
            "said": found.sentence,
            "class": kind_of(found.verdict, found.cause),
        }


def main(argv=None):
    take = argparse.ArgumentParser(prog="python -m verdicts.blind", description=__doc__.split("\n\n")[0])
    take.add_argument("sets", nargs="?", default="AB", help="letters of the sets (default: AB)")
    take.add_argument("family", nargs="*", help="only these families")
    take.add_argument(
        "--json",
        metavar="FILE",
        default=os.devnull,
        help="write one line of JSON a mistake: family, words, verdict, cause, class",
    )
    take.add_argument("--right", action="store_true", help="the right kernels of the sets, none to be accused")
    take.add_argument("--verdicts", action="store_true", help="verdicts alone: no cause is sought")
    take.add_argument(
        "--draw",
        metavar="FROM:TO",
        help="only those at these places of one random order: 0:150, 150:300",
    )
    take.add_argument("--read", action="store_true", help="count the labels that readers gave, and nothing else")
    asked = take.parse_intermixed_args(argv)
    if asked.read:
        return read()
    drawn = slice(*map(int, asked.draw.split(":"))) if asked.draw else None
    counts, lines_seen = dict.fromkeys(("named", "silent", "not accused"), 0), []
    with open(asked.json, "w") as lines:
        for line in judged(asked.sets, asked.family, asked.right, drawn, not asked.verdicts):
            kind = line["class"]
            counts[kind] += 1
            lines_seen.append(line)
            print(
                f"{kind:11} {line['family']}: {line['words']}\n"
                f"{'':11} -> {line['verdict']}: {line['said']} | {line['cause']}",
                flush=True,
            )
            print(json.dumps(line), file=lines, flush=True)
    print(", ".join(f"{n} {k}" for k, n in counts.items()))
    if told := told_again(lines_seen):
        print("of the names, as readers had them: " + ", ".join(f"{n} {k}" for k, n in told.most_common()))


if __name__ == "__main__":
    from verdicts import blind  # the module that the families fill, not this copy of it

    torch.set_num_threads(1)
    blind.main()
