# SPDX-License-Identifier: Apache-2.0
"""What ulpscope exports as somebody calls it who runs `mypy --strict` (test_typing.py). Never run: each line
with an ignored error is one that must be found, as strict warns of those that are not."""

import torch
import ulpscope
import ulpscope.extension
import ulpscope.sim
from torch import nn
from ulpscope.fuzzing import bools, call, dtypes, fuzz, ints, nothing, oneof, shapes, tensor


def lin(x: torch.Tensor) -> torch.Tensor:
    return x * 2


model = nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
with ulpscope.capture("t", steps=[0]) as recorded:
    ulpscope.step()
    recorded.step()
print(recorded.counts, recorded.error)
with ulpscope.live_check(every=10, steps="2,5-8", on_fail=lambda found: print(found.sentence)) as live:
    model(torch.ones(4, 4))
print(live.judged, live.unjudged, live.left_out, live.summary(), [f.op for f in live.findings()])
with ulpscope.nan_tracker(keep_calls=10) as tracker:
    pass
print([birth.stack[0][1] + 1 for birth in tracker.births()], tracker.trace)
watched = ulpscope.watch(model, opt, scalars="folder")
print([event.step + 1 for event in watched.events()])
watched.close()
for mode in (
    ulpscope.fallback("aten::mm"),
    ulpscope.cast("aten::mm", torch.float32),
    ulpscope.substitute("aten::mm", torch.mm),
    ulpscope.fp32_collectives(steps=range(3)),
):
    with mode as rerouted:
        print(sum(rerouted.n_calls.values()))
with ulpscope.deterministic() as same:
    print(same.problems)
ulpscope.seed_all(0, cpu_random=True).remove()
with ulpscope.time_ops() as times:
    print(times.table(), times.rows()[0].total_ms / 2)
with ulpscope.observe(output="c.jsonl"):
    pass


@ulpscope.operator(mutates=["out"])
def myop(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x)


@ulpscope.operator
def plain(x: torch.Tensor) -> torch.Tensor:
    return x


print(ulpscope.results("ulpscope-out").told)
verdict = ulpscope.check_call(lin, (torch.ones(3),), device="sim:0")
print(verdict.verdict, [o.effective_bits + 1 for o in verdict.outputs], verdict.worst)
verdict = ulpscope.judge_call(lin, (torch.ones(3),), {}, torch.ones(3))
verdict = ulpscope.testing.assert_accurate(lin, lin, torch.ones(3))


@fuzz(n=20, devices=("cpu", "sim:0"))
def test_a() -> object:
    return call(lin, tensor(shapes(2), dtype=dtypes("float")))


@fuzz
def test_b() -> object:
    return tensor(ints(1, 4) * 2, oneof(1, 2), layout=None if bools() else ints(1, 3) | nothing())


@ulpscope.reference.register("ns::name")
def ref(x: torch.Tensor) -> torch.Tensor:
    return x


test_a()
ulpscope.capture("t", step_by=3)  # type: ignore[arg-type]
ulpscope.watch(model)  # type: ignore[call-arg]
print(watched.event)  # type: ignore[attr-defined]
verdict.effective_bits + "bits"  # type: ignore[operator]
ulpscope.fallback(["aten::mm"])  # type: ignore[arg-type]
