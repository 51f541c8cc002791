# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.watch` on the shared GPT step: what it costs, in processor time spent in its hooks and of
whole steps that take turns, and how often a device is waited for.

The peer is the same step without; beside it stands the usual check of the global norm for NaN.

Needs torch: CPU, one thread; `sim` for the count of waits."""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from model import TrainingStep  # noqa: E402

import ulpscope  # noqa: E402
import ulpscope.sim  # noqa: E402


def norm_check(step):
    """What a careful training loop does by itself: the norm of all gradients, looked at."""

    def hook(optimizer, args, kwargs):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        torch.nn.utils.get_total_norm(gradients, error_if_nonfinite=True)

    return step.optimizer.register_step_pre_hook(hook).remove


def watched(**options):
    """A kind of run: begins a watch, gives what ends it."""

    def begin(step):
        w = ulpscope.watch(step.model, step.optimizer, **options)

        def end():
            w.close()
            if w.error or w.events():
                print(f"the run was not clean: {w.error} {[e.sentence for e in w.events()]}")

        return end

    return begin


KINDS = {
    "without": None,
    "norm of all gradients": norm_check,
    "watch": watched(),
    "watch, 1 of 100 matmuls": watched(matmul_every=100),
    "watch, weights at every step": watched(weights_every=1),
    "watch, and a log": watched(log="/dev/null"),
}


class Clock:
    """Processor time in the hooks that are registered between `before` and `after`."""

    def __init__(self, optimizer):
        self.optimizer, self.spent, self.undo = optimizer, 0.0, []

    def _start(self, *_):
        self.since = time.process_time()

    def _stop(self, *_):
        self.spent += time.process_time() - self.since

    def around(self, begin, step):
        """Hooks run in the order in which they came: ours are the first and the last."""
        add = self.optimizer.register_step_pre_hook, self.optimizer.register_step_post_hook
        self.undo = [register(self._start) for register in add]
        end = begin(step) if begin else None
        self.undo += [register(self._stop) for register in add]
        return end

    def remove(self):
        for handle in self.undo:
            handle.remove()


def costs(rounds, steps):
    """Kind -> (processor seconds in its hooks, of a whole step), for each round."""
    step = TrainingStep()
    for _ in range(3):
        step()
    found = {name: [] for name in KINDS}
    for _ in range(rounds):
        for name, begin in KINDS.items():
            clock = Clock(step.optimizer)
            end = clock.around(begin, step)
            start = time.process_time()
            for _ in range(steps):
                step()
            found[name].append((clock.spent / steps, (time.process_time() - start) / steps))
            clock.remove()
            if end:
                end()
    return found


class Waits(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts where the host waits for a device: a number is read, or copied over at once."""

    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, source = func.name(), args[1] if len(args) > 1 else None
        if name == "aten::_local_scalar_dense" or (
            name == "aten::copy_" and args[0].is_cpu and not source.is_cpu and not (len(args) > 2 and args[2])
        ):
            Waits.n += args[0].device.type != "cpu" or source is not None
        return func(*args, **kwargs)


def waits():
    """Of ten steps on `sim`, with and without."""
    found = []
    for begin in (None, watched(weights_every=1)):
        step = TrainingStep(device="sim:0", vocabulary=32, width=16, layers=1, length=8)
        end = begin(step) if begin else None
        Waits.n = 0
        with Waits():
            for _ in range(10):
                step()
        found.append(Waits.n)
        if end:
            end()
    return found


def main():
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of a turn; of 20 a watch reads weights at one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = costs(options.rounds, options.steps)
    base = statistics.median(whole for _, whole in found["without"])
    print(f"GPT step, {base * 1e3:.0f} ms of processor time without")
    for name, rounds in found.items():
        own = statistics.median(spent for spent, _ in rounds)
        whole = statistics.median(whole for _, whole in rounds)
        print(
            f"{name:32} {own * 1e3:6.2f} ms in hooks, {100 * own / base:5.2f} % of the step; "
            f"whole step {100 * (whole / base - 1):+6.2f} %"
        )
    without, with_it = waits()
    print(f"waits for the device in ten steps on sim: {without} without, {with_it} with")


if __name__ == "__main__":
    main()
