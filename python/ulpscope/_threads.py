# SPDX-License-Identifier: Apache-2.0
"""How many threads a worker of a check computes with. A small call has nothing to share out:
a second thread that waits for work costs it far more than it brings, above all where other
programs have the cores. Needs no torch until a call is worked on."""

import math
import os

SMALL = 1 << 17  # elements of all tensors of a call, below which one thread does it
# A thread of OpenMP that is done spins for the next loop; beside other workers it takes
# the core from those that have work.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


def most(cores, jobs, environ=os.environ):
    """Threads of each of `jobs` workers: what OMP_NUM_THREADS says where it is set, else an
    equal part of the cores."""
    said = environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if said.isascii() and said.isdigit() and int(said) > 0:
        return int(said)
    return max(1, cores // jobs)


def environment(environ=os.environ):
    """The environment of a worker: threads that wait do so asleep, unless it says otherwise."""
    if any(name in environ for name in WAITING):
        return dict(environ)
    return {**environ, **WAITING}


def elements_of(row):
    """Elements of all tensors that a row of a call names."""
    return sum(math.prod(tensor["sizes"]) for tensor in row["tensors"])


class Threads:
    """Sets the threads of this process call by call; torch is told only when they change."""

    def __init__(self, most):
        self.most, self.now = most, None

    def suit(self, row):
        """As many as a call of that row is worth; all of them where there is no row."""
        wanted = 1 if row is not None and elements_of(row) < SMALL else self.most
        if wanted != self.now:
            import torch

            torch.set_num_threads(wanted)
            self.now = wanted
