# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels written blind, by somebody who had not looked at the search for causes: each family
is a definition whose keywords are right at their defaults, and the mistakes that a kernel's author
makes in it, in words.

Run `python -m verdicts.blind [A|B|AB] [FAMILY ...]` in bench/: what was planted beside what is said.
Every other mistake of a family is in set B, which nobody read while set A was being mended. Whether
a name is right is for the reader to say; only names, things seen and silences are counted.
"""

import copy
import sys

import torch

import ulpscope

FAMILIES = {}


def family(args):
    def keep(fn):
        FAMILIES[fn.__name__] = (fn, args, [])
        return fn

    return keep


def mistake(fn, words, wrong=None, **keywords):
    FAMILIES[fn.__name__][2].append((words, wrong or (lambda *a: fn(*a, **keywords))))


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
        total = narrow(total + a[..., k:k + step].float() @ b[..., k:k + step, :].float(), acc)
    return total.to(a.dtype)


def kernels(which="AB", only=()):
    """(family, planted, definition, args, wrong kernel) of the sets asked for."""
    from . import blind_layers, blind_training  # noqa: F401 - they fill FAMILIES

    for name, (fn, make, mistakes) in FAMILIES.items():
        for i, (words, wrong) in enumerate(mistakes if not only or name in only else ()):
            if "AB"[i % 2] in which:
                yield name, words, fn, make(Draw(name)), wrong


def kind_of(verdict, cause):
    """Where a cause counts before anybody has read it."""
    if verdict not in ("wrong", "reduced", "nonfinite"):
        return "not accused"
    silent = not cause or cause.startswith(("cause unknown", "looks like"))
    return "silent" if silent else "named"


def main(which="AB", *only):
    counts = dict.fromkeys(("named", "silent", "not accused"), 0)
    for name, words, fn, args, wrong in kernels(which, only):
        found = ulpscope.judge_call(fn, args, outputs=wrong(*copy.deepcopy(args)))
        kind = kind_of(found.verdict, found.cause)
        counts[kind] += 1
        print(f"{kind:11} {name}: {words}\n{'':11} -> {found.verdict}, {found.cause}", flush=True)
    print(", ".join(f"{n} {k}" for k, n in counts.items()))


if __name__ == "__main__":
    from verdicts import blind  # the module that the families fill, not this copy of it

    torch.set_num_threads(1)
    blind.main(*sys.argv[1:])
