# SPDX-License-Identifier: Apache-2.0
"""What torch.sim has beside kernels and memory: generators, mixed precision, the precision of products,
and what becomes of a call whose tensors lie in two places."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

SENTENCE = "Expected all tensors to be on the same device"


@pytest.fixture
def philox():
    before = sim.random("philox")
    torch.manual_seed(1)
    yield sim.default_generators[0]
    sim.random(before)


def test_torch_makes_the_device_itself_where_it_is_asked_to(tmp_path):
    """As an installed package does it, by its entry point; without the variable torch knows no such device."""
    root = Path(__file__).resolve().parents[2]
    info = tmp_path / "ulpscope_here-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ulpscope-here\nVersion: 1.0\n")
    wanted = re.search(r'"torch.backends"\]\n(.+)\n', (root / "pyproject.toml").read_text())[1].replace('"', "")
    (info / "entry_points.txt").write_text(f"[torch.backends]\n{wanted}\n")
    (tmp_path / "ulpscope_autoload").symlink_to(root / "python" / "ulpscope_autoload")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = "import sys, torch; print('ulpscope' in sys.modules, torch.ones(2, device='sim').sum().item())"
    for value, says in (("1", "True 2.0"), ("0", ""), ("", "")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "ULPSCOPE_WARM": "", "ULPSCOPE_SIM": value, "PYTHONPATH": path},
        )
        assert done.stdout.strip() == says and (done.returncode == 0) == bool(says), done.stderr
        assert says or "Expected one of cpu" in done.stderr


# ---- random numbers ------------------------------------------------------------------------


def test_default_generators_are_the_devices_own():
    first, second = sim.default_generators
    assert (first.device, second.device) == (torch.device("sim:0"), torch.device("sim:1"))
    first.manual_seed(11)
    assert sim.initial_seed() == 11
    torch.manual_seed(11)
    expected = torch.rand(5)
    first.manual_seed(11)
    assert torch.equal(torch.rand(5, device="sim").cpu(), expected)
    other = torch.Generator("sim")
    other.manual_seed(3)
    assert sim.initial_seed() == 11


def test_what_draws_unasked_draws_from_the_device():
    torch.manual_seed(4)
    expected = torch.native_dropout(torch.ones(50), 0.5, True)[0]
    torch.manual_seed(4)
    before = torch.get_rng_state()
    got = torch.native_dropout(torch.ones(50, device="sim"), 0.5, True)[0]
    assert torch.equal(got.cpu(), expected) and torch.equal(before, torch.get_rng_state())
    again = torch.native_dropout(torch.ones(50, device="sim"), 0.5, True)[0]
    assert not torch.equal(again.cpu(), expected)


def draws(generator):
    x = torch.empty(7, device="sim")
    return [
        x.clone().uniform_(2, 3, generator=generator),
        x.clone().normal_(1, 2, generator=generator),
        torch.randint(-5, 5, (7,), device="sim", generator=generator),
        torch.randperm(9, device="sim", generator=generator),
        x.clone().bernoulli_(0.5, generator=generator),
        x.clone().exponential_(generator=generator),
        torch.multinomial(torch.ones(9, device="sim"), 4, generator=generator),
    ]


def test_philox_is_a_seed_and_an_offset(philox):
    state = sim.get_rng_state()
    assert state.numel() == 16 and philox.get_offset() == 0 and philox.initial_seed() == 1
    first = draws(None)
    assert philox.get_offset() == 8 + 16 + 16 + 4 + 8 + 4 + 4  # words, each call's rounded up to four
    offset = philox.get_offset()
    torch.rand(3, device="sim")
    philox.set_offset(offset)
    a = torch.rand(3, device="sim")
    sim.set_rng_state(state)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(first, draws(None)))  # noqa: B905
    assert torch.equal(a.cpu(), torch.rand(3, device="sim").cpu())
    assert (first[0] >= 2).all() and (first[0] < 3).all() and sorted(first[3].tolist()) == list(range(9))
    own = torch.Generator("sim")
    own.manual_seed(1)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(first, draws(own)))  # noqa: B905
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        philox.set_offset(3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_philox_has_its_ranges_in_every_dtype(philox, dtype):
    u = torch.empty(20000, dtype=dtype, device="sim").uniform_(-1, 2).cpu()
    assert (u >= -1).all() and (u < 2).all() and abs(u.double().mean() - 0.5) < 0.03
    z = torch.randn(20000, dtype=dtype, device="sim").cpu().double()
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.03
    k = torch.empty(1000, dtype=dtype, device="sim").random_(3, 6).cpu()
    assert set(k.tolist()) == {3, 4, 5}


def test_strides_do_not_change_what_is_drawn(philox):
    dense = torch.empty(4, 6, device="sim").uniform_().cpu()
    philox.set_offset(0)
    assert torch.equal(torch.empty(6, 4, device="sim").t().uniform_().cpu(), dense)


@pytest.mark.parametrize("kind", ["cpu", "philox"])
def test_states_are_handed_on_and_come_back(kind):
    before = sim.random(kind)
    try:
        g = torch.Generator("sim")
        g.manual_seed(2)
        shared = g.graphsafe_get_state()
        expected = torch.rand(4, device="sim", generator=g)
        other = torch.Generator("sim")
        other.graphsafe_set_state(shared)
        shared.manual_seed(2)
        assert torch.equal(torch.rand(4, device="sim", generator=other).cpu(), expected.cpu())
        assert not torch.equal(torch.rand(4, device="sim", generator=g).cpu(), expected.cpu())  # it went on
        copy = g.clone_state()
        assert torch.equal(*(torch.rand(4, device="sim", generator=one).cpu() for one in (g, copy)))
        with pytest.raises(RuntimeError):
            sim.set_rng_state(torch.zeros(3, dtype=torch.uint8))
        sim.manual_seed_all(7)
        a = torch.rand(3, device="sim:1")
        sim.manual_seed_all(7)
        with torch.random.fork_rng(devices=[0, 1], device_type="sim"):
            sim.seed_all()
            torch.rand(3, device="sim:1")
        assert torch.equal(torch.rand(3, device="sim:1").cpu(), a.cpu())
    finally:
        sim.random(before)


def test_checkpointing_draws_again_what_it_drew(philox):
    x = torch.ones(64, device="sim", requires_grad=True)
    kept = torch.utils.checkpoint.checkpoint(lambda t: F.dropout(t, 0.5), x, use_reentrant=False)
    kept.sum().backward()
    assert torch.equal(kept.detach().cpu(), x.grad.cpu())


def test_the_cpus_stream_has_no_offset():
    assert sim.random() == "cpu"
    with pytest.raises(RuntimeError, match="has no offset"):
        sim.default_generators[0].get_offset()
    with pytest.raises(ValueError, match="'mt'; there are cpu, philox"):
        sim.random("mt")
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device="sim", generator=torch.Generator())


# ---- what the devices are ------------------------------------------------------------------

LACKING = {"no-fp64": torch.float64, "no-bf16": torch.bfloat16, "no-fp8": torch.float8_e5m2, "fp32": torch.float16}


@pytest.mark.parametrize("name", LACKING)
def test_a_dtype_that_a_profile_lacks_is_refused_however_it_is_made(name):
    dtype = LACKING[name]
    x = torch.ones(3, device="sim")
    kept = x.to(dtype)
    with sim.profile(name):
        assert sim.lacks(dtype) and not sim.lacks(torch.float32) and sim.get_device_properties().profile == name
        for make in (
            lambda: torch.empty(3, dtype=dtype, device="sim"),
            lambda: x.to(dtype),
            lambda: kept.clone(),
            lambda: torch.ones(3, dtype=dtype).to("sim"),
            lambda: torch.empty_like(kept),
            lambda: torch.empty_strided((3,), (1,), dtype=dtype, device="sim"),
            lambda: x.sum(dtype=dtype) if dtype.itemsize > 1 else x.to(dtype),
        ):
            with pytest.raises(RuntimeError, match=f"sim: the device has no {str(dtype)[6:]} \\(profile {name}\\)"):
                make()
        assert (x + 2.5).tolist() == [3.5] * 3 and (x * torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
        assert sim.is_bf16_supported() == (dtype in (torch.float64, torch.float8_e5m2))
        assert (torch.bfloat16 in sim.get_amp_supported_dtype()) == sim.is_bf16_supported()
    assert sim.get_profile() == "full" and x.to(dtype).dtype == dtype


def test_profiles_are_rows_with_keys():
    assert {"full", "no-fp64", "no-bf16", "small"} <= set(sim.profiles())
    with sim.profile("wide", memory="1G", shared="4K"):
        properties = sim.get_device_properties()
        assert (properties.warp_size, properties.shared_memory_per_block) == (128, 4096)
        assert properties.total_memory == sim.mem_get_info()[1] == 1 << 30
    for wrong, said in (("no-fp65", "known: full, no-fp64"), ("full:devices=3", "are in use")):
        torch.ones(1, device="sim")
        with pytest.raises(ValueError, match=said):
            sim.profile(wrong)
    sim.empty_cache()
    with pytest.raises(torch.OutOfMemoryError), sim.profile("full", memory="1M"):
        torch.empty(1 << 20, device="sim")


def test_a_profile_says_how_many_devices_there_are():
    code = (
        "import torch, ulpscope.sim as sim\n"
        "x = [torch.ones(2, device=f'sim:{i}', requires_grad=True) for i in range(sim.device_count())]\n"
        "sum(t.to('sim:0') for t in x).sum().backward()\n"
        "print(sim.device_count(), len(sim.default_generators), all(t.grad.sum() == 2 for t in x))\n"
        "try: torch.ones(1, device=f'sim:{len(x)}')\nexcept RuntimeError as e: print(str(e).splitlines()[0])"
    )
    for text, count in (("small", 1), ("full:devices=8", 8)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "ULPSCOPE_SIM_PROFILE": text},
        )
        assert done.stdout.splitlines() == [
            f"{count} {count} True",
            f"sim: there is no device {count}; there are {count}",
        ], done


# ---- mixed precision -------------------------------------------------------------------------


def test_autocast_has_cudas_lists():
    a, half = torch.ones(4, 4, device="sim"), torch.ones(4, 4, device="sim", dtype=torch.float16)
    from torch.sim.amp import autocast

    with autocast():
        assert (a @ a).dtype == torch.float16 and half.sum().dtype == torch.float32
        assert half.norm().dtype == half.exp().dtype == torch.float32
        assert torch.addcmul(half, a, half).dtype == torch.float32  # the widest
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(a, a)
        with autocast(enabled=False):
            F.binary_cross_entropy(a, a)
    with autocast(dtype=torch.bfloat16):
        assert F.linear(a, a).dtype == torch.bfloat16
    F.binary_cross_entropy(a, a)


def test_custom_functions_run_as_they_say():
    class Twice(torch.autograd.Function):
        @staticmethod
        @sim.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype == torch.float32 and not torch.is_autocast_enabled("sim")
            return x + x

        @staticmethod
        @sim.amp.custom_bwd
        def backward(ctx, grad):
            return grad + grad

    x = torch.ones(3, device="sim", dtype=torch.float16, requires_grad=True)
    with sim.amp.autocast():
        Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_scaler_skips_a_step_that_overflowed():
    p = torch.nn.Parameter(torch.ones(2, device="sim"))
    optimizer, scaler = torch.optim.SGD([p], lr=0.5), sim.amp.GradScaler(init_scale=4.0)
    for factor, expected in ((float("inf"), 1.0), (1.0, 0.5)):
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert p.tolist() == [expected] * 2
    assert scaler.get_scale() == 2.0


# ---- the precision of products ---------------------------------------------------------------


def tf32(x):
    """Rounded to 10 explicit bits of the significand, ties to even."""
    bits = x.contiguous().view(torch.int32)
    return (bits + 0xFFF + ((bits >> 13) & 1) & -0x2000).view(torch.float32)


def products(a, b, image, kernel):
    return {
        "mm": a @ b,
        "addmm": torch.addmm(a, a, b),
        "bmm": torch.bmm(a[None], b[None]),
        "linear": F.linear(a, b, a[0]),
        "conv": F.conv2d(image, kernel),
        "mul": a * b,
        "mv": a @ b[0],
    }


@pytest.mark.parametrize("later", [False, True])
def test_allow_tf32_rounds_factors_and_nothing_else(later):
    torch.manual_seed(0)
    host = torch.randn(8, 8), torch.randn(8, 8), torch.randn(1, 2, 5, 5), torch.randn(2, 2, 3, 3)
    plain, rounded = products(*host), products(*map(tf32, host))
    rounded["addmm"] = torch.addmm(host[0], tf32(host[0]), tf32(host[1]))  # what is added is not multiplied
    rounded["linear"] = F.linear(tf32(host[0]), tf32(host[1]), host[0][0])
    rounded["mul"], rounded["mv"] = plain["mul"], plain["mv"]  # no matrix unit
    there = [x.to("sim") for x in host]
    flags = torch.backends.sim
    sim.set_launch_blocking(not later)
    try:
        with flags.flags(allow_tf32=True):
            got = products(*there)  # what is set later is later
        after = products(*there)
    finally:
        sim.set_launch_blocking(False)
    for name in plain:
        assert torch.equal(got[name].cpu(), rounded[name]), name
        assert torch.equal(after[name].cpu(), plain[name]), name
    with flags.flags(allow_tf32=True):
        assert torch.equal((there[0].double() @ there[1].double()).cpu(), host[0].double() @ host[1].double())


def test_flags_hold_for_a_block():
    """What was set before comes back, also where the block fails; a kernel has what was set at its launch."""
    a = torch.full((64, 64), 1 + 2.0**-12, device="sim")
    exact, backend = (a @ a)[0, 0].item(), torch.backends.sim
    for setting in ({"allow_tf32": True}, {"fp32_precision": "tf32"}):
        with pytest.raises(KeyError), backend.flags(**setting):
            assert backend.allow_tf32 and backend.matmul.allow_tf32 and backend.conv.fp32_precision == "tf32"
            inside = a @ a
            raise KeyError
        assert not backend.allow_tf32 and backend.matmul.fp32_precision == "ieee"
        assert inside[0, 0].item() == 64 and (a @ a)[0, 0].item() == exact != 64
    backend.matmul.allow_tf32 = True
    try:
        with backend.flags(allow_tf32=False):
            assert (a @ a)[0, 0].item() == exact
        assert backend.matmul.allow_tf32 and not backend.conv.allow_tf32
    finally:
        backend.matmul.fp32_precision = "none"  # as its parent has it


def test_gradients_multiply_so_too():
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    x, y = a.to("sim").requires_grad_(), b.to("sim").requires_grad_()
    with torch.backends.sim.flags(allow_tf32=True):
        (x @ y).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.ones(4, 4) @ tf32(b).t())


def test_precision_is_told_level_by_level():
    flags = torch.backends.sim
    assert flags.allow_tf32 is False and flags.fp32_precision == "none"
    assert flags.matmul.fp32_precision == flags.conv.fp32_precision == "ieee"
    with flags.flags(fp32_precision="tf32"):
        assert flags.allow_tf32 and flags.matmul.allow_tf32 and flags.conv.fp32_precision == "tf32"
        flags.matmul.fp32_precision = "ieee"
        assert not flags.allow_tf32 and flags.conv.allow_tf32 and not flags.matmul.allow_tf32
    assert not flags.allow_tf32 and flags.conv.fp32_precision == "ieee"
    flags.conv.allow_tf32 = True
    assert flags.conv.allow_tf32 and not flags.allow_tf32
    flags.allow_tf32 = False
    assert not flags.conv.allow_tf32
    with pytest.raises(RuntimeError, match="no precision 'bf16'"):
        flags.matmul.fp32_precision = "bf16"
    with pytest.raises(AttributeError):
        flags.allow_tf23 = True
    assert sim.is_tf32_supported()


def test_env_tells_the_state():
    code = (
        "import torch, ulpscope.sim, ulpscope.program.env_facts as f\n"
        "torch.backends.sim.allow_tf32 = True\nf.flags(torch)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300).stdout
    for line in (
        "backends.sim.matmul.fp32_precision\ttf32",
        "backends.sim.conv.fp32_precision\ttf32",
        "sim.random\tcpu",
        "sim.get_guard\tstrict",
        "sim.launch_blocking\tFalse",
    ):
        assert f"flag.{line}" in told.splitlines()


# ---- tensors of two places -------------------------------------------------------------------

X, M, I = torch.ones(3), torch.ones(3, 3), torch.tensor([0, 2])  # noqa: E741
NUMBER = torch.tensor(2.0)

# What is called, with which tensors; those that may lie on the host, by their place.
CALLS = {
    "add": (torch.add, [X, X], []),
    "add a number": (torch.add, [X, NUMBER], [1]),
    "number minus": (torch.sub, [NUMBER, X], [0]),
    "mm": (torch.mm, [M, M], []),
    "addmm of a number": (torch.addmm, [NUMBER, M, M], []),
    "where": (torch.where, [X > 0, X, X], []),
    "where of numbers": (torch.where, [X > 0, NUMBER, X], [1]),
    "where, condition a number": (torch.where, [NUMBER > 0, X, X], [0]),
    "embedding": (F.embedding, [I, M], []),
    "index": (lambda x, i: x[i], [X, I], [1]),
    "index_put": (lambda x, i, v: x.clone().index_put_((i,), v), [X, I, X[:2]], [1]),
    "gather": (lambda x, i: x.gather(0, i), [X, I], []),
    "index_select": (lambda x, i: x.index_select(0, i), [X, I], []),
    "masked_fill": (lambda x, m, v: x.masked_fill(m, v), [X, X > 0, NUMBER], [2]),
    "lerp": (torch.lerp, [X, X, NUMBER], [2]),
    "cat": (lambda a, b: torch.cat([a, b]), [X, X], []),
    "stack": (lambda a, b: torch.stack([a, b]), [X, X], []),
    "linear": (F.linear, [M, M, X], []),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3,), w, b), [M, X, X], []),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v), [M, X, X], []),
    "conv": (F.conv1d, [torch.ones(1, 1, 5), torch.ones(1, 1, 2)], []),
    "nll_loss": (F.nll_loss, [M, torch.tensor([0, 1, 2]), X], []),
    "binary_cross_entropy": (F.binary_cross_entropy, [X, X, X], []),
    "foreach": (lambda a, b: torch._foreach_add([a], [b])[0], [X, X], []),
    "foreach of a number": (lambda a, b: torch._foreach_mul([a], b)[0], [X, NUMBER], [1]),
    "copy": (lambda a, b: a.clone().copy_(b), [X, X], [0, 1]),
    "set a slice": (lambda a, b: a.clone().__setitem__(slice(0, 2), b[:2]), [X, X], [0, 1]),
    "grid_sample": (F.grid_sample, [torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2)], []),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_one_argument_moved_at_a_time(name):
    call, tensors, free = CALLS[name]
    expected = call(*tensors)
    for i in range(len(tensors)):
        mixed = [t if k == i else t.to("sim") for k, t in enumerate(tensors)]
        if i in free:
            got = call(*mixed)
            assert got is None or torch.equal(got.cpu(), expected)
            continue
        with pytest.raises(
            RuntimeError, match=f"{SENTENCE}, but got .* is on cpu, different from other tensors on sim:0"
        ):
            call(*mixed)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: torch.add(x, x, out=out),
        lambda x, out: torch.mm(x, x, out=out),
        lambda x, out: torch.sum(x, 0, out=out),
        lambda x, out: torch.cumsum(x, 0, out=out),
        lambda x, out: torch.cat([x, x], out=out),
        lambda x, out: torch.sort(x, out=(out, out.long())),
    ],
)
def test_results_do_not_go_to_the_host(call):
    out = torch.zeros(0)
    with pytest.raises(RuntimeError, match=SENTENCE):
        call(torch.ones(3, 3, device="sim"), out)
    assert out.numel() == 0


def yaml_rows():
    torchgen = pytest.importorskip("torchgen")
    text = (Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml").read_text("utf-8")
    for row in re.split(r"\n(?=- func:)", text):
        head = re.match(r"- func: ([\w:]+?)(?:\.\w+)?\((.*)\) ->", row)
        if head and re.search(r"\n  dispatch:(.*\n)+?.*\bCPU\b", row) and "CUDA" in row:
            yield (
                head[1],
                [a for a in head[2].split(", ") if re.match(r"Tensor\??(\(.*?\))?(\[\])?\??(\[\])? ", a)],
                row,
            )


def test_the_table_is_torchs_own():
    """`device_check: NoCheck` is what lets a kernel of CUDA see a tensor of the host."""
    takes = sim._lib.usc_sim_takes_host
    takes.restype, takes.argtypes = bool, None
    strict = {}
    for name, tensors, row in yaml_rows():
        free = (
            "device_check: NoCheck" in row or re.search("structured_delegate: clamp", row) or name.startswith("clamp")
        )
        words = [a.split()[1].split("=")[0] for a in tensors]
        taken = [w for w in words if takes(b"aten::" + name.encode(), w.encode(), True)]
        if len(words) > 1 and not free and taken and not name.startswith("_fused_"):
            strict[name] = taken
    assert strict == {}
