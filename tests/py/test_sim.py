# SPDX-License-Identifier: Apache-2.0
"""The simulated accelerator as torch sees it: an honest one is the CPU bit by bit, its memory
is not the host's, and every planted fault does what its row says and nothing else."""

from __future__ import annotations

import copy
import ctypes
import faulthandler
import io
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

SIGSEGV = -11
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))


@pytest.fixture(autouse=True)
def honest():
    torch.manual_seed(0)
    sim.clear_faults()
    yield
    sim.clear_faults()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bits, wherever they lie."""
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
    )


def child(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        timeout=300,
    )


def death(act) -> int:
    """The return code of a forked child that runs ``act``."""
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()  # the death is expected
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# ---- an honest device ------------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self, width=32, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / (d // self.heads) ** 0.5
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(x)


class GPT(torch.nn.Module):
    def __init__(self, vocabulary=50, width=32):
        super().__init__()
        self.token = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.blocks(self.token(tokens)))


def train_gpt(device, **options):
    torch.manual_seed(1)
    model, tokens = GPT().to(device), torch.randint(50, (4, 17)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    losses = []
    for _ in range(4):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_gpt_training_is_the_cpus_bit_by_bit(options):
    losses, parameters = train_gpt("cpu", **options)
    sim_losses, sim_parameters = train_gpt("sim", **options)
    assert losses == sim_losses and losses[-1] < losses[0]
    assert all(same(a, b) for a, b in zip(parameters, sim_parameters, strict=True))


def test_windows_are_the_cpus():
    for words in ((10,), (9, False), (12, True, 5.0)):  # each an operator of its own, asks for a device's kernel
        for dtype in (torch.float32, torch.bfloat16):
            assert same(
                torch.kaiser_window(*words, dtype=dtype, device="sim"), torch.kaiser_window(*words, dtype=dtype)
            )


def test_convolution_and_batch_norm_are_the_cpus():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 5),
        torch.nn.Dropout(0.5),
    )
    on_sim, x = copy.deepcopy(net).to("sim"), torch.randn(2, 3, 8, 8)
    torch.manual_seed(3)
    net(x).square().sum().backward()
    torch.manual_seed(3)
    on_sim(x.to("sim")).square().sum().backward()
    for a, b in zip([*net.parameters()], [*on_sim.parameters()], strict=True):
        assert same(a.grad, b.grad)
    for a, b in zip(net.buffers(), on_sim.buffers(), strict=True):
        assert same(a, b)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "RMSprop"])
@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_optimizers(name, options):
    if options.get("fused") and name == "RMSprop":
        pytest.skip("torch has no fused RMSprop")
    results = []
    for device in ("cpu", "sim"):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 7).to(device))
        optimizer = getattr(torch.optim, name)([p], lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            p.pow(3).sum().backward()
            optimizer.step()
        results.append(p)
    assert same(*results)


OPERATORS = {
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "silu_backward": lambda x: torch.ops.aten.silu_backward(x, x),
    "mish_backward": lambda x: torch.ops.aten.mish_backward(x, x),
    "addr": lambda x: torch.addr(x[0], x[0, :, 0], x[0, 0]),
    "any": lambda x: (x > 0).any((0, 2)),
    "all": lambda x: (x > -1).all((0, 1)),
    "stack": lambda x: torch.stack([x, x], 1),
    "sort": lambda x: x.sort(descending=True)[1],
    "topk": lambda x: x.topk(2)[0],
    "unfold": lambda x: x.unfold(2, 3, 2),
    "index": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "einsum": lambda x: torch.einsum("abc,abd->cd", x, x),
    "fft": lambda x: torch.view_as_real(torch.fft.fft(x)),
    "complex": lambda x: torch.view_as_complex(x.view(3, 4, 3, 2)).conj().imag,
    "cat": lambda x: torch.cat([x, x], 1)[:, ::2],
    "reshape": lambda x: x.permute(2, 0, 1).reshape(-1),
    "split": lambda x: x.split(2, -1)[1],
    "svd": lambda x: torch.linalg.svd(x)[1],
    "logsumexp": lambda x: x.logsumexp(-1),
    "double": lambda x: x.double().var(0),
    "bfloat16": lambda x: x.bfloat16() @ x.bfloat16().mT,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_the_cpus(name):
    x = torch.randn(3, 4, 6)
    assert same(OPERATORS[name](x), OPERATORS[name](x.to("sim")))


def test_views_alias_and_writes_through_them_show():
    x = torch.zeros(4, 6, device="sim")
    x[1:3, ::2].add_(1)
    x.t()[5].fill_(7)
    x.view(-1)[0] = 3
    y = torch.zeros(4, 6)
    y[1:3, ::2].add_(1)
    y.t()[5].fill_(7)
    y.view(-1)[0] = 3
    assert same(x, y) and x[1:3].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_zeros_without_storage_are_zeros():
    z = torch.ops.aten._efficientzerotensor([2, 3], dtype=torch.float32, device="sim")
    assert torch.equal((z + 1).cpu(), torch.ones(2, 3))
    x = torch.randn(2, 3, device="sim")
    _, tangent = torch.func.jvp(lambda v: torch.nn.functional.linear(v, x), (x,), (x,))
    assert torch.equal(tangent.cpu(), x.cpu() @ x.cpu().t())


def test_out_arguments_grow_and_stay_themselves():
    a, out = torch.randn(5, device="sim"), torch.empty(0, device="sim")
    view = out[:]
    result = torch.add(a, a, out=out)
    assert result is out and same(out, a.cpu() * 2)
    assert view.untyped_storage().data_ptr() == out.untyped_storage().data_ptr()
    gappy = torch.zeros(5, 2, device="sim")
    torch.mul(a, 3, out=gappy[:, 1])
    assert same(gappy[:, 1], a.cpu() * 3) and not gappy[:, 0].any()


def test_resize_and_set():
    x = torch.ones(2, device="sim").resize_(5)
    x[2:] = 2
    assert x.tolist() == [1, 1, 2, 2, 2]
    y = torch.empty(0, device="sim").set_(x)
    assert y.data_ptr() == x.data_ptr()
    y.set_()
    assert y.numel() == 0
    y.set_(x.untyped_storage(), 1, (2,), (2,))
    assert y.tolist() == [1, 2]
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().size() == 0


def test_save_and_load_keep_sharing_and_device():
    buffer, a = io.BytesIO(), torch.randn(3, 4, device="sim:1")
    torch.save({"a": a, "row": a[1]}, buffer)
    for location, expected in ((None, "sim:1"), ("cpu", "cpu"), ("sim:0", "sim:0")):
        buffer.seek(0)
        b = torch.load(buffer, map_location=location, weights_only=True)
        assert b["a"].device == torch.device(expected) and same(b["a"], a)
        assert b["row"].untyped_storage().data_ptr() == b["a"].untyped_storage().data_ptr()


def test_generators_give_the_cpus_numbers():
    for make in (torch.rand, torch.randn):
        expected = make(6, generator=torch.Generator().manual_seed(5))
        generator = torch.Generator("sim").manual_seed(5)
        assert same(make(6, device="sim", generator=generator), expected)
    torch.manual_seed(9)
    a = torch.rand(4, device="sim:1")
    state = sim.get_rng_state("sim:1")
    b = torch.rand(4, device="sim:1")
    torch.manual_seed(9)
    assert same(a, torch.rand(4, device="sim:1"))
    sim.set_rng_state(state, "sim:1")
    assert same(b, torch.rand(4, device="sim:1"))


def test_autocast():
    x = torch.randn(4, 4, device="sim")
    with torch.autocast("sim", dtype=torch.bfloat16):
        y = x @ x
        assert y.dtype == torch.bfloat16 and y.softmax(-1).dtype == torch.float32
    assert same(y, x.cpu().bfloat16() @ x.cpu().bfloat16())


def test_pinned_memory_and_data_loader():
    assert torch.empty(4, pin_memory=True).is_pinned()
    data = torch.utils.data.TensorDataset(torch.randn(8, 2))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert batch.is_pinned() and same(batch.to("sim", non_blocking=True), batch)


def test_streams_events_and_devices():
    stream = torch.Stream("sim")
    start, end = (torch.Event("sim", enable_timing=True) for _ in range(2))
    with stream:
        start.record(stream)
        torch.ones(100, device="sim").sum()
        end.record(stream)
    end.synchronize()
    assert start.elapsed_time(end) >= 0 and torch.accelerator.device_count() == 2
    with sim.device(1):
        assert torch.ones(1, device="sim").device.index == 1
    assert sim.current_device() == 0
    with pytest.raises(RuntimeError, match="there is no device 2"):
        torch.ones(1, device="sim:2")


def test_devices_do_not_mix():
    x = torch.ones(3, device="sim:0")
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3, device="sim:1")
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    assert (x + torch.tensor(1.0)).tolist() == [2, 2, 2]
    assert same(x.to("sim:1"), x)


def test_missing_kernel_says_so():
    with pytest.raises(NotImplementedError, match="sim: there is no kernel for"):
        torch.ops.aten._fused_dropout(torch.ones(3, device="sim"), 0.5)  # CUDA's alone


# ---- memory discipline -------------------------------------------------------------------


def test_host_read_of_device_memory_crashes():
    x = torch.ones(4, device="sim")
    assert death(lambda: ctypes.string_at(x.data_ptr(), 4)) == SIGSEGV
    sim.set_protection(False)
    try:
        assert death(lambda: ctypes.string_at(x.data_ptr(), 4)) == 0
    finally:
        sim.set_protection(True)
    assert death(lambda: ctypes.string_at(x.data_ptr(), 4)) == SIGSEGV


library = torch.library.Library("simtest", "DEF")
library.define("overwrite(Tensor x, int at) -> Tensor")
library.define("overwrite_(Tensor(a!) x, int at) -> Tensor(a!)")
library.define("hypot(Tensor x, Tensor y) -> Tensor")


def _overwrite(x, at):
    ctypes.memset(x.data_ptr() + at, 0, 1)
    return x.clone()


def _overwrite_(x, at):
    ctypes.memset(x.data_ptr() + at, 0, 1)
    return x


library.impl("overwrite", _overwrite, "CPU")
library.impl("overwrite_", _overwrite_, "CPU")
library.impl("hypot", lambda x, y: (x * x + y * y).sqrt(), "CompositeExplicitAutograd")


def test_write_that_the_schema_denies_crashes():
    x = torch.ones(16, device="sim")
    assert death(lambda: torch.ops.simtest.overwrite(x, 0)) == SIGSEGV
    assert death(lambda: torch.ops.simtest.overwrite_(x, 0)) == 0


def test_write_beyond_the_block_crashes():
    x = torch.ones(16, device="sim")  # 64 bytes: ends at the guard page
    assert death(lambda: torch.ops.simtest.overwrite_(x, 63)) == 0
    assert death(lambda: torch.ops.simtest.overwrite_(x, 64)) == SIGSEGV


VIOLATION = """
import ctypes, sys, threading, torch, ulpscope.sim as sim
library = torch.library.Library("simtest", "DEF")
library.define("poke(Tensor x, int at) -> Tensor")
def poke(x, at, by=None):
    run = ctypes.CDLL(None).memset
    run.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    if HELPER:
        helper = threading.Thread(target=run, args=(x.data_ptr() + at, 0, 1))
        helper.start(), helper.join()
    run(x.data_ptr() + at, 0, 1)
    return x.clone()
library.impl("poke", poke, "CPU")
library.impl("poke", lambda x, at: torch.empty_like(x), "Meta")
sim.set_launch_blocking(not LATER)
x = torch.arange(24.0, device="sim").view(4, 6)[1:, ::2]
y = torch.ops.simtest.poke(x, 8)
sim.synchronize()
"""


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("helper", [0, 1])
def test_a_violation_names_argument_and_line(tmp_path, later, helper):
    (tmp_path / "train.py").write_text(VIOLATION.replace("LATER", str(later)).replace("HELPER", str(helper)))
    done = subprocess.run([sys.executable, tmp_path / "train.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == SIGSEGV and len(done.stderr.splitlines()) >= 1, done
    said = [line for line in done.stderr.splitlines() if line.startswith("ulpscope: ")]
    assert len(said) == 1
    assert re.match(
        r"ulpscope: sim:0: simtest::poke, launched at (train|threading).py:\d+, (writes to|touches) argument 'x' "
        r"\(float32, shape \[3, 3\], strides \[6, 2\], offset 6\) at element \[0, 1\], 0x\w+ "
        r"\(open for reading only\), byte 32 of a block of 96 bytes, allocated by ",
        said[0],
    ), said
    if later:  # where it was launched, and not where it runs
        line = 1 + VIOLATION.splitlines().index("y = torch.ops.simtest.poke(x, 8)")
        assert f"train.py:{line}," in said[0]


def test_memory_is_given_back():
    before = sim.memory_allocated()
    x = torch.empty(1 << 20, device="sim")
    assert sim.memory_allocated() - before == 4 << 20
    del x
    assert sim.memory_allocated() == before


# ---- without torch -----------------------------------------------------------------------------


def test_the_example_in_c_is_right_and_shows_a_forgotten_wait():
    for words, said in ((["run"], "0 of 1024"), (["forget"], "1023 of 1024")):
        done = subprocess.run([BUILD / "examples" / "sim_saxpy", *words], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (int(words != ["run"]), "")
        assert done.stdout == f"{said} elements are wrong\n"


# ---- import ----------------------------------------------------------------------------------


def test_faults_from_the_environment():
    done = child(
        "import torch, ulpscope.sim as s; x = torch.ones(3, device='sim');"
        "print((x * 2).tolist(), s.faults_fired()[0]['fired'])",
        ULPSCOPE_SIM_FAULTS="aten::mul:scale:factor=2; mm:tf32",
    )
    assert done.stdout == "[4.0, 4.0, 4.0] 1\n", done.stderr
    done = child("import ulpscope.sim", ULPSCOPE_SIM_FAULTS="aten::mul:nonsense")
    assert done.returncode == 1 and "there is no kind 'nonsense'" in done.stderr


def test_importing_the_package_registers_nothing():
    done = child("import ulpscope, torch; print(torch._C._get_privateuse1_backend_name())")
    assert done.stdout == "privateuseone\n", done.stderr


def test_another_backend_keeps_its_place():
    done = child("import torch; torch.utils.rename_privateuse1_backend('npu')\nimport ulpscope.sim")
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr and "'npu' is already there" in done.stderr


def test_a_process_that_ends_after_backward_ends_well():
    for _ in range(4):
        done = child("import torch, ulpscope.sim\ntorch.ones(3, device='sim', requires_grad=True).sum().backward()")
        assert (done.returncode, done.stderr) == (0, "")


def test_without_a_compiler_there_is_a_clear_sentence(tmp_path):
    done = child("import ulpscope.sim", ULPSCOPE_CACHE=str(tmp_path), CXX="no-such-compiler")
    assert done.returncode == 1 and "install g++" in done.stderr


def test_loading_from_the_cache_is_silent():
    done = child("import ulpscope.sim")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "dtype",
    [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float64],
    ids=str,
)
def test_faults_fire_on_every_dtype_that_has_a_row(dtype):
    x = torch.ones(8).to(dtype).sim()
    sim.plant("aten::clone:zero_one:index=3")
    assert x.clone().cpu().float().tolist() == [1, 1, 1, 0, 1, 1, 1, 1]


def test_many_faults_on_one_operator_all_fire():
    x = torch.ones(14).sim()
    for i in range(12):
        sim.plant(f"aten::clone:zero_one:index={i}")
    assert x.clone().cpu().sum() == 2
    sim.plant(";".join(["aten::clone:offset"] * 100))
    assert x.clone().cpu().sum() > 10


def test_a_fault_that_cannot_be_planted_is_told_at_each_import():
    code = """
        for _ in range(2):
            try:
                import ulpscope.sim
            except ValueError as problem:
                print(problem)
    """
    said = child(textwrap.dedent(code), ULPSCOPE_SIM_FAULTS="mm:no_such_kind").stdout.splitlines()
    assert len(said) == 2 and said[0] == said[1] and "no_such_kind" in said[0]
    planted = child(
        "import ulpscope.sim, torch; a = torch.ones(4, 4, device='sim'); print((a @ a).sum().item())",
        ULPSCOPE_SIM_FAULTS="mm:scale:factor=2",
    ).stdout
    assert planted.strip() == "128.0"
