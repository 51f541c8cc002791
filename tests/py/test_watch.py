# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.watch`: a clean run is quiet and has the bits that it has without; each planted fault is
found where it was planted; ranks, devices and files that fail are no matter of the program."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

import ulpscope
import ulpscope.sim
from ulpscope import _core
from ulpscope.watching import watch_rows

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
    w._new.append(ulpscope.watching.watch_events.Event(0, "spike", "", 0, 2.0, 1.0, "made up", "temporal", ""))
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
