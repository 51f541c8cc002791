# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.watch`: a clean run is quiet and has the bits that it has without; each planted fault is
found where it was planted; ranks, devices and files that fail are no matter of the program."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import ulpscope
import ulpscope.sim
from ulpscope import _core
from ulpscope.watching import watch_found, watch_matmul, watch_rows

FLIP = {"fault": "flip", "bit": 30, "element": 5}


def training(device="cpu", steps=50, fault=None, where="grad", at=40, watched=True, each=None, **options):
    """(losses, events, the watch) of an MLP whose numbers a schedule harms, as it stands in `fault`."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    w = ulpscope.watch(net, optimizer, **options) if watched else None
    injector = _core.Injector(json.dumps({"step": at} | fault) if fault else "", 1)
    losses = []
    for step in range(steps):
        loss = net(torch.randn(8, 16).to(device)).pow(2).mean()
        loss.backward()
        weight = net[0].weight
        harmed = {"grad": weight.grad, "weight": weight.data}.get(where)
        if fault and harmed is not None:
            injector.apply(harmed, step, 0, where, "0.weight")
        optimizer.step()
        optimizer.zero_grad()
        if fault and where in ("exp_avg", "exp_avg_sq"):
            injector.apply(optimizer.state[weight][where], step, 0, where, "0.weight")
        if each:
            each(step, net, optimizer)
        losses.append(loss.detach().cpu())
    losses.append(torch.rand(3))  # the random stream goes on as it would
    if w is None:
        return losses, [], None
    w.close()
    assert w.error is None
    return losses, w.events(), w


# ---- what is read -----------------------------------------------------------------------

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_those_of_the_cpu_on_every_device(dtype):
    torch.manual_seed(1)
    t = (torch.randn(7, 33) * 9).to(dtype)
    if dtype.is_floating_point:
        t[0, 0], t[0, 1] = float("nan"), float("-inf")
    t[1] = 0
    given = [t, t.T, t[::2], torch.empty(0, 3, dtype=dtype), t[0, 0]]
    found = []
    for device in ("cpu", "sim:0"):
        reader = watch_rows.RowReader()
        there = [x.to(device) for x in given]
        reader.take("tag", [*there, there[4].expand(1)])  # one element without a stride
        torch.sim.synchronize()
        [(tag, rows)] = reader.ready()
        found.append(watch_rows.unpacked(b"".join(rows)))
        assert tag == "tag"
    for here, there in zip(*found):
        assert here[3:] == there[3:]
        assert there[:3] == pytest.approx(here[:3], rel=1e-12)
    assert found[0][0] == found[0][1] and found[0][3].numel == 0


class Calls(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operators that a device has to do something for."""

    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += func.name() not in ("aten::view", "aten::permute", "aten::detach")
        return func(*args, **(kwargs or {}))


def test_tensors_of_a_dtype_and_size_are_read_together(monkeypatch):
    """However many layers a model has, and whatever lies between them; up to so many elements in all."""
    monkeypatch.setattr(watch_rows, "TOGETHER", 5 * 64)
    torch.manual_seed(2)
    shapes = [(64,), (8, 8), (3,), (64,), (0,), (4, 16)] * 3
    given = [torch.randn(s).to(torch.bfloat16 if i % 4 == 3 else torch.float32) for i, s in enumerate(shapes)]
    given[1] = given[1].T
    given[5][0, 0] = float("nan")
    found = []
    for device in ("cpu", "sim:0"):
        reader = watch_rows.RowReader()
        reader.take(0, [t.to(device) for t in given])
        torch.sim.synchronize()
        found.append(watch_rows.unpacked(b"".join(reader.ready()[0][1])))
    assert len({row.hash64 for row in found[0]}) > 12
    for here, there in zip(*found):
        assert here[3:] == there[3:] and there[:3] == pytest.approx(here[:3], rel=1e-12)
    assert sorted(len(b) for b in watch_rows.buckets(given)) == [3, 3, 3, 4, 5]
    made = []
    monkeypatch.setattr(watch_rows, "TOGETHER", 1 << 20)
    for n in (1, 30):
        layers = [torch.ones(8, 8, device="sim:0") for _ in range(2 * n)]
        with Calls() as calls:
            watch_rows.RowReader().take(0, layers)
        made.append(calls.n)
    assert 10 < made[0] == made[1], made


def test_what_has_no_numbers_has_no_row():
    reader = watch_rows.RowReader()
    sparse = torch.eye(3).to_sparse()
    reader.take(0, [torch.empty(3, device="meta"), sparse, torch.ones(2).conj()])
    rows = watch_rows.unpacked(b"".join(reader.ready()[0][1]))
    assert rows[0] is None and rows[1].numel == 3 and rows[2].max_abs == 1


class Waits(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts where the host waits for a device."""

    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.name()
        if name == "aten::_local_scalar_dense":
            self.n += not args[0].is_cpu
        if name in ("aten::copy_", "aten::_to_copy"):
            to_host = args[0].is_cpu if name == "aten::copy_" else str(kwargs.get("device")) == "cpu"
            source = args[1] if name == "aten::copy_" else args[0]
            waits = not (kwargs.get("non_blocking") or (name == "aten::copy_" and len(args) > 2 and args[2]))
            self.n += to_host and not source.is_cpu and waits
        return func(*args, **kwargs)


def test_no_step_waits_for_the_device():
    def counted(watched):
        net = nn.Linear(4, 4).to("sim:0")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        w = ulpscope.watch(net, optimizer, weights_every=1, matmul_every=1) if watched else None
        x = torch.ones(2, 4, device="sim:0")
        with Waits() as waits:
            for _ in range(5):
                net(x).sum().backward()
                optimizer.step()
        if w is not None:
            assert w.step == 5 and w.error is None
            w.close()
        return waits.n

    assert counted(True) == counted(False)
    with Waits() as waits:  # and it would be seen
        torch.ones(2, device="sim:0").sum().item()
        torch.ones(2, device="sim:0").cpu()
    assert waits.n == 2


# ---- the program is not changed ------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_a_clean_run_is_quiet_and_has_the_same_bits(device, tmp_path):
    with_it, events, _ = training(device, weights_every=3, log=tmp_path / "log")
    without, _, _ = training(device, watched=False)
    assert events == []
    assert all(torch.equal(a, b) for a, b in zip(with_it, without))


# ---- faults ------------------------------------------------------------------------------

FAULTS = (
    ("F1", FLIP, "grad", "spike"),
    ("F2", {"fault": "mask", "mask": "0x7f800000", "element": 5}, "grad", "spike"),
    ("F3", {"fault": "carry", "bit": 30, "element": 5}, "grad", "spike"),
    ("F4", {"fault": "mask", "mask": "0x40000000", "element": 0, "every": 8, "count": 4}, "grad", "spike"),
    ("F5", {"fault": "stuck", "bit": 30, "element": 0, "every": 0, "count": -1, "steps": -1}, "grad", "spike"),
    ("F6", FLIP | {"steps": 10, "p": 0.5}, "grad", "spike"),
    ("F7", {"fault": "scale", "factor": 1000, "element": 0, "count": -1, "steps": 5}, "grad", "spike"),
    ("F8", {"fault": "zero", "element": 0, "count": -1, "steps": 3}, "grad", "zero"),
    ("F10", {"fault": "flip", "bit": 1, "element": 5}, "weight", "changed"),
    ("F10", {"fault": "flip", "bit": 1, "element": 5}, "exp_avg", "changed"),
    ("F10", {"fault": "flip", "bit": 1, "element": 5}, "exp_avg_sq", "changed"),
)


@pytest.mark.parametrize(("code", "fault", "where", "kind"), FAULTS, ids=[f"{f[0]}-{f[2]}" for f in FAULTS])
def test_a_fault_is_found_where_it_is(code, fault, where, kind):
    _, events, _ = training(fault=fault, where=where, weights_every=1)
    assert events, code
    first = events[0]
    assert (first.kind, first.tensor) == (kind, "0.weight")
    assert 40 <= first.step <= 49 and first.score > first.threshold
    assert "0.weight" in first.sentence and first.command.startswith("ulpscope ")


def test_on_a_device_it_is_found_as_well():
    def harm(step, net, optimizer):
        if step == 40:
            net[0].weight.data[0, 0] *= 2e18

    _, events, _ = training("sim:0", each=harm, weights_every=1)
    assert any(e.tensor == "0.weight" or e.kind == "spike" for e in events)


def test_what_the_program_writes_itself_is_no_fault():
    def clamp(step, net, optimizer):
        with torch.no_grad():
            net[0].weight.clamp_(-0.2, 0.2)
            optimizer.state[net[0].weight]["exp_avg"].mul_(0.9)
        if step % 7 == 0:  # other tensors of the same bits, and of others
            state = optimizer.state_dict()
            optimizer.load_state_dict(state)
            for of in optimizer.state.values():
                of["exp_avg_sq"] = of["exp_avg_sq"] * 1.1

    assert training(each=clamp, weights_every=1)[1] == []


# ---- actions, state, surroundings ----------------------------------------------------------


def test_actions():
    seen = []
    training(fault=FLIP, on_event=seen.append)
    assert [e.kind for e in seen][:1] == ["spike"]
    with pytest.raises(ulpscope.WatchAlarm, match="0.weight"):
        training(fault=FLIP, action="raise")
    with pytest.raises(SystemExit) as left:
        training(fault=FLIP, action="stop", exit_code=17)
    assert left.value.code == 17


def test_a_skipped_step_changes_no_weight():
    weights = []
    training(fault=FLIP, action="skip", each=lambda step, net, _: weights.append(net[0].weight.detach().clone()))
    assert torch.equal(weights[40], weights[39]) and not torch.equal(weights[39], weights[38])


def test_state_goes_over_a_restart():
    _, _, first = training(steps=39)
    buffer = first.state_dict()

    def go_on(state):
        torch.manual_seed(5)
        net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        with ulpscope.watch(net, optimizer) as w:
            if state:
                w.load_state_dict(state)
            net(torch.randn(8, 16)).pow(2).mean().backward()
            net[0].weight.grad[0, 0] = 1e12
            optimizer.step()
        return w

    assert [e.kind for e in go_on(buffer).events()][:1] == ["spike"] and go_on(buffer).step == 40
    assert go_on(None).events() == []
    with pytest.raises(ValueError, match="no state of a watch"):
        go_on({"step": 1, "core": torch.zeros(9, dtype=torch.uint8)})
    with ulpscope.watch(net := nn.Linear(16, 32), torch.optim.AdamW(net.parameters())) as w:
        before = w.core.save()
        for step in (None, "much"):
            with pytest.raises(ValueError, match="no state of a watch"):
                w.load_state_dict(buffer | {"step": step})
        assert (w.core.save(), w.step) == (before, 0), "a state is taken whole or not at all"


def test_a_lasting_finding_does_not_fill_the_memory_of_a_run_of_weeks():
    found = {
        "kind": "spike",
        "tensor": "0.weight",
        "rank": 0,
        "score": 2.0,
        "threshold": 1.0,
        "sentence": "made up",
        "detector": "temporal",
        "action": None,
        "level": "info",
    }
    with ulpscope.watch(net := nn.Linear(2, 2), torch.optim.SGD(net.parameters(), lr=0.1)) as w:
        for step in range(12000):
            w._take(found | {"step": step})
            w._new.clear()
        steps = [event.step for event in w.events()]
    assert steps == [*range(1000), *range(3000, 12000)] and "12,000 events" in repr(w)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"config": "coldown:5"}, "cooldown"),
        ({"config": "cooldown:0"}, "cooldown"),
        ({"audit": -1}, "one micro-batch of"),
        ({"neighbour": 2}, "no other rank"),
        ({"neighbour": -1}, "one micro-batch of"),
        ({"action": "explode"}, "one of log"),
        ({"weights_every": 0}, "one step or more"),
    ],
)
def test_what_is_wrong_is_a_sentence(options, says):
    net = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=says):
        ulpscope.watch(net, torch.optim.SGD(net.parameters(), lr=1), **options)


def test_odd_models_are_watched():
    """Frozen, unused, empty and complex parameters, accumulated gradients, another shape later."""
    net = nn.Linear(4, 4)
    frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    odd = [
        nn.Parameter(torch.ones(2, dtype=torch.complex64)),
        nn.Parameter(torch.empty(0)),
        nn.Parameter(torch.ones(2)),
        frozen,
    ]
    optimizer = torch.optim.SGD([*net.parameters(), *odd], lr=0.01)
    with ulpscope.watch(net, optimizer, weights_every=1) as w:
        for step in range(20):
            for _ in range(2):
                (net(torch.randn(3, 4)).sum() + odd[0].abs().sum() + odd[1].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 10:
                odd[0].data = torch.ones(5, dtype=torch.complex64)
    assert (w.error, w.events(), w.step) == (None, [], 20)


def test_a_full_disk_and_a_failure_of_its_own_are_said_once(capfd, monkeypatch):
    monkeypatch.delenv("ULPSCOPE_STRICT")
    losses, events, _ = training(log="/dev/full")
    assert capfd.readouterr().err.count("No space left") == 1 and events == []
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    w = ulpscope.watch(net, optimizer)
    w.core = None  # whatever may go wrong
    for _ in range(3):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert w.events() == [] and w.close() is None
    assert capfd.readouterr().err.count("the watch failed") == 1 and w.error


@pytest.mark.parametrize("harm", [lambda w: setattr(w, "reader", None), lambda w: w.close()], ids=["failed", "closed"])
@pytest.mark.parametrize("register", ["register_step_pre_hook", "register_step_post_hook"])
def test_hooks_of_the_program_come_behind_one_that_ends(register, harm, monkeypatch):
    """torch walks along the hooks meanwhile."""
    monkeypatch.delenv("ULPSCOPE_STRICT")
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    w = ulpscope.watch(net, optimizer, on_event=lambda event: harm(w))
    w._new.append(ulpscope.watching.watch.Event(0, "spike", "", 0, 2.0, 1.0, "made up", "temporal", ""))
    called = []
    getattr(optimizer, register)(lambda *_: called.append(1))
    for _ in range(3):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert len(called) == 3
    w.close()
    assert not w.handles


def test_a_forked_child_trains_unwatched():
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def train():
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    with ulpscope.watch(net, optimizer) as w:
        train()
        pid = os.fork()
        if pid == 0:
            code = 3
            try:  # torch allows no backward here, where a device has threads of its own
                optimizer.step()
                code = int(w.step != 1)
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        train()
        assert w.error is None and w.step == 2


def test_asd_has_its_words(caplog, capsys, monkeypatch):
    """With dates; and a number that torch_npu takes for none leaves the default, which is said."""
    monkeypatch.setenv("NPU_ASD_CONFIG", "enable:true,grad_sample_interval:1,cooldown:0,strikes_num:1")
    caplog.set_level("INFO", "torch_npu.silent_check")
    training(fault=FLIP | {"count": 3})
    said = {r.levelname: r.getMessage() for r in caplog.records}
    date = re.escape(time.strftime("[%Y-%m-%d ")) + r"\d\d:\d\d:\d\d\]"
    assert re.match(rf"\[Event\]{date} \[Rank 0\]: A grad-norm spike may happen", said["INFO"])
    assert re.match(
        rf"\[Warning\]{date} \[Rank 0\]: feature detection detects abnormal results!\nGrad-norm spike: index 0, "
        rf"time {date[2:-2]}, param",
        said["WARNING"],
    )
    assert "cooldown:0: a whole number from 1 to" in capsys.readouterr().err


def test_asd_events_are_shown_where_the_variable_asks_for_them(tmp_path):
    code = (
        "import torch, ulpscope\nnet = torch.nn.Linear(4, 4)\nopt = torch.optim.SGD(net.parameters(), lr=0.0)\n"
        "w = ulpscope.watch(net, opt, 'mode:asd,enable:true,grad_sample_interval:1')\n"
        "for step in range(20):\n    net(torch.ones(1, 4)).sum().backward()\n"
        "    if step == 15: net.weight.grad[0, 0] = 1e30\n    opt.step(); opt.zero_grad()\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            text=True,
            capture_output=True,
            check=True,
            env={**os.environ, "TORCH_NPU_LOGS": words},
        ).stderr
        for words in ("", "silent")
    ]
    assert ["A grad-norm spike may happen" in text for text in told] == [False, True]


# ---- under ulpscope run, and over ranks ---------------------------------------------------------

TRAIN = """
    import os, signal, sys, time, torch
    import torch.distributed as dist
    from torch import nn
    what, world, rank = sys.argv[1], int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
    model = net
    if world > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    last = rank == world - 1
    for step in range(40):
        model(torch.randn(8, 16)).pow(2).mean().backward()
        if what == "grad" and last and step == 30:
            net[0].weight.grad.view(-1)[5] = 1e30
        optimizer.step()
        optimizer.zero_grad()
        if what == "weight" and last and step == 30:
            net[0].weight.data.view(torch.int32).view(-1)[5] ^= 1
        if what == "killed" and last and step == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "slow" and last and step == 30:
            time.sleep(2)
    print("done", flush=True)
    if world > 1:
        dist.destroy_process_group()
"""


def run(folder, what, ranks=1, *options, config=None, logged=None):
    setup = f"import logging\nlogging.basicConfig(filename={logged!r})\n" if logged else ""
    (folder / "train.py").write_text(setup + textwrap.dedent(TRAIN))
    command = [sys.executable, "train.py", what]
    if ranks > 1:
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    watch = "--watch" if config is None else f"--watch={config}"
    return subprocess.run(
        ["ulpscope", "run", watch, *options, "--", *command],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )


def test_a_program_that_knows_nothing_of_it(tmp_path):
    done = run(tmp_path, "clean", 1, "--watch-log", "w.jsonl")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "no alarm in 40 optimizer steps" in done.stderr and "ulpscope watch w.jsonl" in done.stderr
    assert "not watched: matrix products (matmul_every:100)" in done.stderr
    lines = [json.loads(line) for line in (tmp_path / "w.jsonl").open()]
    assert lines[0] == {
        "ulpscope_watch": 1,
        "world": 1,
        "tensors": [["0.weight", "float32"], ["0.bias", "float32"], ["2.weight", "float32"], ["2.bias", "float32"]],
    }
    assert {line["site"] for line in lines[1:]} >= {"weight", "update", "moment1", "moment2"}
    done = run(tmp_path, "grad")
    said = [line for line in done.stderr.splitlines() if "the gradient of '0.weight'" in line]
    assert done.returncode == 1 and said and len(said) == len(set(said)), done.stderr
    done = run(tmp_path, "grad", logged="job.log")  # where logging goes elsewhere, the end tells
    said = [line for line in done.stderr.splitlines() if "the gradient of '0.weight'" in line]
    assert done.returncode == 1 and said and len(said) == len(set(said)), done.stderr
    assert "the gradient of '0.weight'" in (tmp_path / "job.log").read_text()


def test_the_first_step_is_read_once(monkeypatch):
    taken = []
    take = watch_rows.RowReader.take
    monkeypatch.setattr(
        watch_rows.RowReader, "take", lambda self, tag, *rest: taken.append(tag[:2]) or take(self, tag, *rest)
    )
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch_found.FoundWatches("weights_every:1", None) as found:
        for _ in range(3):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert found.error is None and found.n_steps == 3
    assert [tag for tag in taken if tag[1] in ("grad", "update")] == [
        (step, site) for step in range(3) for site in ("grad", "update")
    ]


NOT_WATCHED = {
    "": (
        torch.float32,
        3,
        "matrix products (matmul_every:100); other operators (audit:100); weights and optimizer state but at",
    ),
    "matmul_every:1,weights_every:1,audit:9": (
        torch.float32,
        3,
        "matrix products but those of nn.Linear, one of so many; copies",
    ),
    "audit:9": (torch.float32, 3, "; anything against its past (3 steps, of which the first 8 are what is learnt by)"),
    "mode:asd,enable:true": (torch.float16, 0, "anything (one float16 parameter switches mode asd off"),
    "enable:false": (torch.float32, 0, "anything (mode sound is off"),
    "mode:asd,enable:false": (torch.float32, 0, "anything (mode asd is off"),
    "mode:asd,enable:true,with_checksum:true": (torch.float32, 3, "(with_checksum looks at bfloat16 alone)"),
}


@pytest.mark.parametrize("config", NOT_WATCHED)
def test_what_is_not_watched_is_said(config):
    """And steps at which nothing was are none that were watched: `run --watch` ends with 2 then."""
    dtype, n_watched, words = NOT_WATCHED[config]
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch_found.FoundWatches(config, None) as found:
        for _ in range(3):
            net(torch.ones(2, 4, dtype=dtype)).sum().backward()
            optimizer.step()
    assert found.error is None and (found.n_steps, found.n_watched) == (3, n_watched)
    assert found.not_watched().startswith("not watched: ") and words in found.not_watched()


def test_a_config_says_what_is_read_and_done(tmp_path):
    """All that an argument of `ulpscope.watch` may say, for a program that knows nothing of it."""
    every = "weights_every:1,matmul_every:1,audit:2"
    done = run(tmp_path, "grad", 1, config=f"{every},keep_calls:30,action:stop,exit_code:17")
    assert done.returncode == 17 and done.stdout == "" and "the job is stopped: " in done.stderr, done.stderr
    assert (
        "the gradient of '0.weight'" in done.stderr
        and f"ulpscope check {tmp_path}/ulpscope-watch --device" in done.stderr
    )
    with _core.Trace(tmp_path / "ulpscope-watch") as trace:
        assert len(trace.select()) == 30
    done = run(tmp_path, "clean", 1, "--watch-log", "w.jsonl", config=every)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    lines = [json.loads(line) for line in (tmp_path / "w.jsonl").open()]
    assert [line["step"] for line in lines[1:] if line["site"] == "weight"] == list(range(40))
    assert {line["site"] for line in lines[1:]} >= {"matmul", "matmul_input", "matmul_weight"}


def test_arguments_count_before_a_config():
    net = nn.Linear(2, 2)
    with ulpscope.watch(
        net, torch.optim.SGD(net.parameters(), lr=1), "weights_every:7,action:raise", action="log"
    ) as w:
        assert (w.weights_every, w.action, w.exit_code) == (7, "log", 3)


def test_a_bad_config_starts_nothing(tmp_path):
    (tmp_path / "train.py").write_text("print('ran')")
    done = subprocess.run(
        ["ulpscope", "run", "--watch=coldown:3", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 2 and "cooldown" in done.stderr and "ran" not in done.stdout


def test_a_rank_is_named(tmp_path):
    done = run(tmp_path, "weight", 3)
    assert done.returncode == 1, done.stderr
    assert "rank 2 is not what the other ranks have" in done.stderr and "2 of 3 agree" in done.stderr
    clean = run(tmp_path, "slow", 3)
    assert clean.returncode == 0 and "no alarm in 120 optimizer steps of 3 processes" in clean.stderr, clean.stderr


@pytest.mark.parametrize("config", [None, "action:skip"])
def test_a_killed_rank_ends_nobody_else_by_the_watch(config, tmp_path):
    """The others end by their own all-reduce or by torchrun, as without; it does not hang."""
    done = run(tmp_path, "killed", 2, config=config)
    assert done.returncode not in (0, 2) and "the watch failed" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", ["reference/watch-reference.md", "background/watch.zh.md"])
def test_a_reference_has_every_key_and_variable(page):
    """With its default, in English and in Chinese; and no other key."""
    text = (Path(__file__).resolve().parents[2] / "docs" / page).read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    told = {key: row for row in rows if len(row) == 4 for key in re.findall(r"`([a-z_0-9]+)`", row[0])}
    keys = _core.Watch("").config()
    flags = {"mode", "enable", "detectors", "world", "loss_scaling", "with_checksum"}
    assert set(told) == set(keys) | flags
    for key, value in keys.items():
        assert re.search(rf"(?<!\d){value}(?!\d)", told[key][1]), key
    assert {row[0] for row in rows if len(row) == 2} >= {"`NPU_ASD_CONFIG`", "`TORCH_NPU_LOGS`"}
    for word in ("log", "skip", "raise", "stop"):
        assert f"`{word}`" in told["action"][2]


# ---- matmuls, the last calls ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_the_bound_of_a_checksum_holds_and_is_near(dtype, mean):
    """No row of clean products is near it, an element that is off by some of the largest is beyond, and
    computing it again says so, but not of what overflows, or of operands that are not finite."""
    for seed in range(10):
        torch.manual_seed(seed)
        x = (torch.randn(64, 512) + mean).to(dtype)
        weight, bias = (torch.randn(300, 512) * 0.05).to(dtype), torch.randn(300).to(dtype)
        y = nn.functional.linear(x, weight, bias)
        product = watch_matmul.WatchedProduct(x, weight, bias, y)
        sums = product.sums()
        assert sums.shape == (64, 2, 4)
        assert _core.product_over(sums, product.dtype, 512)[0] < 0.8
        assert watch_matmul.verdict(product, sums)[1] == 0
    was = y[3, 299].clone()
    for wrong in (y[3, 299] + (3 + mean * 20) * y.abs().max(), float("inf"), float("nan")):
        y[3, 299] = wrong
        over, how = watch_matmul.verdict(product, product.sums())
        assert over > 1 and how == 1
    y[3, 299] = was
    x[5, 7], y[5] = float("inf"), float("nan")
    assert watch_matmul.verdict(product, product.sums())[0] < 0.8


def test_a_product_that_overflows_is_no_fault():
    x, weight = torch.full((4, 64), 200.0).half(), torch.full((8, 64), 200.0).half()
    product = watch_matmul.WatchedProduct(x, weight, None, nn.functional.linear(x, weight))
    sums = product.sums()
    assert _core.product_over(sums, "float16", 64)[0] == float("inf")  # suspected,
    assert watch_matmul.verdict(product, sums) == (0.0, 0)  # and taken back


def test_asd_checksum_is_that_of_the_document():
    torch.manual_seed(0)
    a, b = torch.randn(32, 64).bfloat16(), torch.randn(64, 48).bfloat16()
    c = a @ b
    assert watch_matmul.asd_abnormal(a, b, c, torch.matmul) == 0
    c[3, 3] += 4096
    assert watch_matmul.asd_abnormal(a, b, c, torch.matmul) == 1


@pytest.mark.parametrize(
    "shapes",
    [
        ((32, 64), (64, 48)),
        ((3, 32, 64), (64, 48)),
        ((3, 32, 64), (3, 64, 48)),
        ((2, 1, 32, 64), (3, 64, 48)),
        ((64,), (64, 48)),
        ((64,), (3, 64, 48)),
    ],
)
def test_asd_checksum_takes_batches_and_vectors(shapes):
    torch.manual_seed(0)
    a, b = (torch.randn(shape).bfloat16() for shape in shapes)
    told = []
    held = watch_matmul.Matmuls(lambda *product: told.append(product))
    try:
        right = [a @ b, a.matmul(b), torch.matmul(a, b)]
    finally:
        held.remove()
    assert len(told) == 3 and all(torch.equal(c, right[0]) for c in right)
    assert torch.Tensor.__matmul__ == torch._C.TensorBase.__matmul__
    assert [float(watch_matmul.asd_abnormal(*product)) for product in told] == [0, 0, 0]
    told[0][2].view(-1)[5] += 4096
    assert watch_matmul.asd_abnormal(*told[0]) == 1


@pytest.mark.parametrize(("fault", "expected"), [("", []), ("aten::addmm:bit_flip:index=5:bit=29:nth=41", ["matmul"])])
def test_a_matmul_is_named(fault, expected):
    with ulpscope.sim.plant(fault):
        _, events, _ = training("sim:0", steps=24, matmul_every=1)
    assert [e.kind for e in events if e.kind == "matmul"] == expected
    assert all(e.tensor == "0.weight" and e.step == 20 for e in events if e.kind == "matmul")
    assert all("the matmul '0.weight'" in e.sentence and "a passing fault" in e.sentence for e in events[:1])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [(), (4,)], ids=["2d", "3d"])
@pytest.mark.parametrize("product", ["input", "weight", None])
def test_a_matmul_of_the_backward_is_named(product, length, bias):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16, bias=bias))
    at = {"input": -2, "weight": -1}.get(product)

    def harm(node):
        while node.name() not in ("AddmmBackward0", "MmBackward0"):
            node = node.next_functions[0][0]

        def wrong(into, out):
            changed = list(into)
            changed[at] = into[at].clone()
            changed[at][3, 5] += 100 * into[at].abs().max()
            return tuple(changed)

        node.register_hook(wrong)

    if product:  # before the hooks of the watch
        net[1].register_forward_hook(lambda module, args, result: harm(result.grad_fn) if w.step == 3 else None)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    w = ulpscope.watch(net, optimizer, matmul_every=1)
    for _ in range(6):
        net(torch.randn(8, *length, 16)).pow(2).mean().backward()
        optimizer.step()
    w.close()
    said = [(e.step, e.tensor, e.sentence.split(" '")[0]) for e in w.events()]
    assert w.error is None
    assert said == ([(3, "1.weight", f"the gradient of the {product} of the matmul")] if product else [])


@pytest.mark.parametrize("how", ["functional", "spectral_norm"])
def test_a_matmul_of_other_weights_is_held_to_those_or_left_alone(how):
    """Weights that a call is given go away before its backward; a parametrization has a state of its own."""

    def train(watched, wrong=False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16))
        if how == "spectral_norm":
            nn.utils.parametrizations.spectral_norm(net[1])
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        w = ulpscope.watch(net, optimizer, matmul_every=1) if watched else None
        if wrong:
            net[1].register_forward_hook(lambda module, args, out: out.detach().view(-1)[3].add_(1) and None)
            w.matmuls.handles.append(net[1].register_forward_hook(w.matmuls._after))
        for _ in range(5):
            x = torch.randn(8, 16, requires_grad=True)
            if how == "functional":
                other = {name: (p * 2 + 1).detach().requires_grad_() for name, p in net.named_parameters()}
                torch.func.functional_call(net, other, x).pow(2).mean().backward()
            net(x).pow(2).mean().backward()
            optimizer.step()
        if w is not None:
            w.close()
        return [p.detach() for p in (*net.parameters(), *net.buffers())], w

    with_it, w = train(True)
    assert (w.error, w.events()) == (None, [])
    assert all(torch.equal(a, b) for a, b in zip(train(False)[0], with_it))
    if how == "functional":
        assert {e.kind for e in train(True, wrong=True)[1].events()} >= {"matmul"}


class Audited(nn.Module):
    """Dropout and running statistics; `harm` may change what lies between."""

    def __init__(self, harm):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4)
        self.harm = harm

    def forward(self, x):
        x = nn.functional.dropout(self.norm(self.first(x)), 0.2)
        return {"y": self.last(self.harm(x))}


def audited(harm=lambda x: x, micro=2, device="cpu", **options):
    """(everything that training leaves behind, the watch) of ten steps."""
    torch.manual_seed(3)
    net = Audited(harm).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with ulpscope.watch(net, optimizer, **options) as w:
        for _ in range(10):
            for _ in range(micro):
                x = torch.randn(8, 16).to(device)
                net(x)["y"].pow(2).mean().backward()
                x.zero_()  # the program's own again
            optimizer.step()
            optimizer.zero_grad()
    left = [t.detach().cpu() for t in (*net.parameters(), *net.buffers(), torch.rand(3), torch.rand(1, device=device))]
    return left, w


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("micro", [1, 2])
def test_an_audit_changes_nothing_and_is_quiet(device, micro, capfd):
    without, _ = audited(micro=micro, device=device)
    with_it, w = audited(micro=micro, device=device, audit=2)
    assert (w.error, w.events(), w.audit.off) == (None, [], None)
    assert w.audit.n_audited == 10 * micro // 2
    assert all(torch.equal(a, b) for a, b in zip(without, with_it))


@pytest.mark.parametrize("when", ["first", "again"])
def test_an_audit_tells_a_passing_fault_from_kernels_that_are_not_deterministic(when, capfd):
    """One run of three that differs is a fault, whichever it is; three that differ are none."""
    calls = []

    def once(x):
        calls.append(x)
        return x * 1.0001 if len(calls) == {"first": 10, "again": 11}[when] else x

    _, w = audited(once, micro=1, audit=10)
    events = w.events()
    assert {(e.kind, e.step, e.rank) for e in events} == {("replay", 9, 0)} and "a passing fault" in events[0].sentence
    assert any(e.tensor == "last.weight" for e in events) and w.audit.off is None
    _, w = audited(lambda x: x * (1 + len(calls) * 1e-3 if calls.append(x) is None else 0), micro=1, audit=5)
    assert w.events() == [] and w.error is None and "not deterministic" in w.audit.off
    calls.clear()  # and three that differ where it was deterministic before
    _, w = audited(
        lambda x: calls.append(x) or x * (1 + 1e-3 * (len(calls) in range(15, 18)) * len(calls)), micro=1, audit=1
    )
    assert {(e.step, "comes and goes" in e.sentence) for e in w.events()} == {(7, True)} and w.audit.off is None
    assert capfd.readouterr().err.count("audits no micro-batch any more") == 1


def test_the_last_calls_become_a_trace(tmp_path):
    _, events, _ = training(fault=FLIP, keep_calls=40, output=tmp_path / "last")
    assert events[0].command == f"ulpscope check {tmp_path / 'last'} --device DEVICE"
    with _core.Trace(tmp_path / "last") as trace:
        assert len(trace.select()) == 40


SHARDED = """
    import os, torch, ulpscope
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    def model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))

    def train(net, watched, micro=1, harm=None):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        torch.manual_seed(rank)
        with ulpscope.watch(watched, optimizer, weights_every=1) as w:
            for step in range(25):
                for k in range(micro):
                    with net.no_sync() if micro > 1 and k < micro - 1 else torch.enable_grad():
                        net(torch.randn(8, 16)).pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=micro == 1)
                if harm and step == 20 and rank == 1:
                    harm(optimizer)
        events = [(e.step, e.kind, e.rank, e.tensor) for e in w.events()]
        os.write(1, f"rank {rank}: {w.error} {w.exchange.alone} {events}\\n".encode())

    sharded = model()
    for part in (sharded[0], sharded[2], sharded):
        fully_shard(part, mesh=init_device_mesh("cpu", (world,)))
    def flip():
        sharded[0].weight.to_local().data.view(torch.int32)[0, 0] ^= 4
    def flip_moment(optimizer):
        optimizer.state[sharded[2].weight]["exp_avg_sq"].to_local().data.view(torch.int32)[3, 1] ^= 4
    train(sharded, sharded, harm=lambda optimizer: (flip(), flip_moment(optimizer)))
    buckets = nn.parallel.DistributedDataParallel(model(), gradient_as_bucket_view=True)
    train(buckets, buckets, micro=2)
    dist.destroy_process_group()
"""


def test_shards_and_buckets(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SHARDED))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "rank 0: None None [(21, 'changed', 1, '0.weight'), (21, 'changed', 1, '2.weight')]",
        "rank 0: None None []",
        "rank 1: None None [(21, 'changed', 1, '0.weight'), (21, 'changed', 1, '2.weight')]",
        "rank 1: None None []",
    ]
