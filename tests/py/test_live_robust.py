# SPDX-License-Identifier: Apache-2.0
"""Live modes around programs as they are: models, autocast, checkpoints, compiled regions, ranks,
exceptions. Each mode leaves their numbers alone, finds nothing in an honest run and does not end it.
A mode is a row of MODES."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import ulpscope

# name -> (makes the mode, its findings)
MODES = {
    "nan": (ulpscope.nan_tracker, lambda nan: [b.sentence for b in nan.births()]),
    "time": (ulpscope.time_ops, lambda times: []),
    "observe": (lambda: ulpscope.observe(output=os.devnull), lambda observed: []),
}
# Those that start a process take one for all models.
JUDGED = {"operators": {}, "distinct": {"distinct": True}, "modules": {"level": "module"}}


def has_narrow_lstm():
    """Whether the processor has one of bfloat16: without AVX-512 oneDNN has none."""
    try:
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            torch.nn.LSTM(2, 2)(torch.ones(1, 2))
    except RuntimeError:
        return False
    return True


NARROW_LSTM = has_narrow_lstm()


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = torch.nn.LSTM(8, 16, num_layers=2, batch_first=True), torch.nn.Linear(16, 4)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=NARROW_LSTM and torch.is_autocast_enabled("cpu")):
            result = self.inner(x)[0][:, -1]
        return self.head(result)


def conv():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(8 * 16, 4),
    )


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 32), torch.nn.Linear(32, 4)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return self.down(checkpoint(lambda y: torch.tanh(self.up(y)), x, use_reentrant=False))


def attention():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    return torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Flatten(), torch.nn.Linear(40, 4))


MODELS = {
    "conv": (conv, (4, 3, 8, 8)),
    "lstm": (Lstm, (4, 5, 8)),
    "checkpoint": (Checkpointed, (4, 8)),
    "attention": (attention, (4, 5, 8)),
}


def train(make, shape, device="cpu", dtype=None):
    """The parameters after two steps, and the state of the generator."""
    torch.manual_seed(0)
    net = make().to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(2):
        opt.zero_grad()
        x = torch.randn(shape).to(device)
        with torch.autocast(torch.device(device).type, dtype or torch.bfloat16, enabled=dtype is not None):
            loss = net(x).float().pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
    return [p.detach().cpu().clone() for p in net.parameters()], torch.get_rng_state()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["float32", "autocast"])
@pytest.mark.parametrize("model", MODELS)
def test_models_as_they_are(mode, model, dtype):
    plain, state = train(*MODELS[model], dtype=dtype)
    make, found = MODES[mode]
    with make() as live:
        watched, state_watched = train(*MODELS[model], dtype=dtype)
    assert live.error is None and found(live) == []
    assert all(torch.equal(a, b) for a, b in zip(plain, watched)) and torch.equal(state, state_watched)


@pytest.mark.parametrize("level", JUDGED)
def test_models_as_they_are_are_judged(level):
    """One honest network after the other under one live check, with a NaN tracker around it."""
    plain = {name: train(*model) for name, model in MODELS.items()}
    with ulpscope.nan_tracker() as nan, ulpscope.live_check(**JUDGED[level]) as live:
        watched = {name: train(*model) for name, model in MODELS.items()}
        findings = live.findings()
    assert live.error is None and nan.error is None and nan.births() == []
    assert [f.sentence for f in findings] == [] and live.n_judged > 20
    for name in MODELS:
        assert all(torch.equal(a, b) for a, b in zip(plain[name][0], watched[name][0])), name
        assert torch.equal(plain[name][1], watched[name][1]), name


def test_what_is_let_go_is_no_hole():
    """A number beside a 0-dim tensor has the dtype of that one, and a module's buffers are judged with
    the operator that writes them: a wrong kernel is found all the same."""
    import ulpscope.sim

    one = torch.ones((), device="sim:0")
    net, x = torch.nn.BatchNorm1d(4).to("sim:0"), torch.randn(8, 4).to("sim:0")
    for fault, level, work in (
        ("aten::add.Tensor", "operator", lambda: one + 1e-6),
        ("aten::native_batch_norm", "module", lambda: net(x)),
    ):
        for planted in (False, True):
            with ulpscope.live_check(level=level) as live:
                if planted:
                    with ulpscope.sim.fault(fault, "scale:factor=1.01"):
                        work()
                else:
                    work()
            assert bool(live.findings()) == planted and live.error is None, (fault, live.findings())


def test_numbers_beside_0_dim_tensors_are_what_they_were():
    """Recorded as tensors of 64 bits, they would decide the dtype; rounded to that of the tensor they
    would be others than the kernel took."""
    import ulpscope.sim

    def work(device):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            one = torch.tensor(1.3701171875, dtype=dtype, device=device)
            for k in (3.14159, 1e-6, 600.0, 1 / 3):
                one * k, one + k, one - k, one / k, k / one, torch.pow(one, k)
        seven = torch.tensor(7, device=device)
        seven * 2, seven * 0.3, seven + 1, seven // 2

    for device in ("cpu", "sim:0"):
        with ulpscope.live_check() as live:
            work(device)
        assert [f.sentence for f in live.findings()] == [] and live.error is None
    with ulpscope.sim.plant("aten::mul.Tensor:scale:factor=1.01"), ulpscope.live_check() as live:
        work("sim:0")
    assert {(f.op, f.args) for f in live.findings()} >= {
        ("aten::mul.Tensor", "bfloat16[], 3.14159"),
        ("aten::mul.Tensor", "int64[], 0.3"),
    }


def gpt2():
    """(model, batch): a language model of a configuration, with random weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
    return transformers.GPT2LMHeadModel(config), torch.randint(0, 32, (2, 8))


@pytest.mark.parametrize("mode", MODES)
def test_a_transformer_made_of_a_configuration(mode):
    net, ids = gpt2()
    make, found = MODES[mode]
    with make() as live:
        net(ids, labels=ids).loss.backward()
    assert live.error is None and found(live) == []


def test_a_transformer_is_judged_at_both_levels():
    for level in ("operators", "modules"):
        net, ids = gpt2()
        with ulpscope.live_check(**JUDGED[level]) as live:
            net(ids, labels=ids).loss.backward()
        assert live.error is None and [f.sentence for f in live.findings()] == [] and live.n_judged > 5, level


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_in_the_model_passes_and_the_next_run_is_watched(mode, raised):
    class Raises(torch.nn.Module):
        def forward(self, x):
            (x * 2).sum()
            raise raised("on purpose")

    make, found = MODES[mode]
    live = make()
    with pytest.raises(raised, match="on purpose"), live:
        Raises()(torch.ones(2))
    with live:
        torch.ones(2) * 2
    assert live.error is None and found(live) == []


@pytest.mark.parametrize("mode", MODES)
def test_it_is_a_decorator_and_nests_in_itself(mode):
    make, found = MODES[mode]
    outer = make()

    @outer
    def step():
        with make() as inner:
            train(conv, (2, 3, 8, 8))
        return inner

    inner = step()
    assert outer.error is None and inner.error is None and found(outer) == found(inner) == []


COMPILED = """
    import torch, ulpscope
    f = torch.compile(lambda x: torch.sin(x) * 2, backend={backend!r})
    with ulpscope.nan_tracker() as nan:
        f(torch.ones(4)), f(torch.ones(4))
        torch.sqrt(torch.full((2,), -1.0))
    print(nan.error, [b.op for b in nan.births()])
"""


@pytest.mark.parametrize(("backend", "said"), [("aot_eager", 0), ("inductor", 1)])
def test_compiled_regions_are_said_to_be_opaque(tmp_path, backend, said):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COMPILED.format(backend=backend))],
        text=True,
        capture_output=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.stdout == "None ['aten::sqrt']\n", done.stderr
    assert done.stderr.count("compiled region ran and was not watched") == said, done.stderr


RANKS = """
    import os, sys, torch, torch.distributed as dist, ulpscope
    def work(rank, how):
        dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore("store", 2))
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
        if how == "ddp":
            net = torch.nn.parallel.DistributedDataParallel(net)
        else:
            from torch.distributed.fsdp import fully_shard
            from torch.distributed.device_mesh import init_device_mesh
            fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
        with ulpscope.nan_tracker() as nan:
            for step in range(3):
                opt.zero_grad()
                loss = net(torch.randn(4, 8)).pow(2).mean()
                if step == 2 and rank == 1:
                    torch.log(-loss.detach())
                loss.backward()
                opt.step()
        births = [(b.op, b.step) for b in nan.births()]
        assert nan.error is None and births == ([("aten::log", 2)] if rank else []), (rank, nan.error, nan.births())
        dist.barrier()
        dist.destroy_process_group()
    if __name__ == "__main__":
        torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=2)
"""


@pytest.mark.parametrize("how", ["ddp", "fsdp2"])
def test_ranks_invent_no_birth(tmp_path, how):
    (tmp_path / "ranks.py").write_text(textwrap.dedent(RANKS))
    done = subprocess.run(
        [sys.executable, "ranks.py", how],
        text=True,
        capture_output=True,
        timeout=600,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if how == "fsdp2" and "cannot import name 'fully_shard'" in done.stderr:
        pytest.skip("this torch has no FSDP2")
    assert done.returncode == 0, done.stderr
