# SPDX-License-Identifier: Apache-2.0
"""What an operator of the benchmark is."""

import hashlib
from dataclasses import dataclass

OPS = {}


@dataclass
class Op:
    """One operator: the torch callable that defines it, how its arguments are drawn, and
    the algorithm that an emulated machine runs (`algo(A, *args, **kwargs)` gives `V`s)."""

    name: str
    fn: object
    make: object
    algo: object
    bugs: tuple = ()
    tags: frozenset = frozenset()
    dtypes: tuple = ("f32", "bf16", "f16")
    profiles: tuple = ()  # those it can have; () for all
    mutates: bool = False  # writes its arguments: `mutated` is judged

    @property
    def held(self):
        """Set aside: a third of the operators, by the hash of their name."""
        return hashlib.sha256(self.name.encode()).digest()[0] % 3 == 0


def op(name, fn, make, bugs="", tags="", **more):
    """Decorator: registers the algorithm of an operator. Bugs and tags are words."""

    def register(algo):
        OPS[name] = Op(name, fn, make, algo, tuple(bugs.split()), frozenset(tags.split()), **more)
        return algo

    return register
