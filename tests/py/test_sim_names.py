# SPDX-License-Identifier: Apache-2.0
"""``torch.sim`` is torch.cuda under another name: what means something here is there, and takes what
torch.cuda's takes; the rest stands here with its reason."""

from __future__ import annotations

import inspect
import subprocess
import types

import pytest
import torch

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)

# Why a name of torch.cuda is not there; one that begins or ends with * stands for all such.
ABSENT = {
    "*Tensor *Storage": "types of torch before devices had names",
    "CUDAGraph": "SimGraph here",
    "graphs green_contexts": "modules of torch.cuda's own",
    "MemPool use_mem_pool GreenContext": "one pool, and a graph keeps what it uses",
    "CUDAPluggableAllocator change_current_allocator caching_allocator_* get_allocator_backend": "one allocator",
    "CudaError DeferredCudaCallError check_error cudaStatus cudart": "CUDA's runtime, handed on",
    "ExternalStream get_stream_from_external": "streams of nobody else's",
    "current_blas_handle current_solver_handle has_half has_magma": "CUDA's libraries",
    "clock_rate device_memory_used list_gpu_processes memory_usage power_draw temperature "
    "utilization": "sensors of a board",
    "get_arch_list get_gencode_flags": "targets of a compiler",
    "get_sync_debug_mode set_sync_debug_mode": "n_waits of memory_stats() counts waits instead",
    "host_memory_stats* reset_*host_memory_stats": "pinned memory is the machine's own, and not cached",
    "max_memory_cached memory_cached reset_max_memory_*": "older names that torch.cuda warns of",
    "gds jiterator memory nccl nvtx profiler random sparse streams tunable": "modules of torch.cuda's own",
    "importlib os platform threading torch traceback warnings": "what torch.cuda itself imports",
}


def reason(name: str) -> bool:
    patterns = " ".join(ABSENT).split()
    return any(
        name == p
        or (p[0] == "*" and name.endswith(p[1:]))
        or ("*" in p and name.startswith(p.split("*")[0]) and name.endswith(p.split("*")[1]) and p[0] != "*")
        for p in patterns
    )


def public() -> dict[str, object]:
    found = {n: getattr(torch.cuda, n) for n in dir(torch.cuda) if not n.startswith("_")}
    owned = {n: o for n, o in found.items() if isinstance(o, types.ModuleType) or n in torch.cuda.__all__}
    return owned


def takes(what: object) -> list[tuple] | None:
    """Names and defaults of the parameters, the device's own name left out."""
    try:
        parameters = inspect.signature(what).parameters.values()
    except (TypeError, ValueError):
        return None
    return [(p.name, "sim" if p.default == "cuda" else p.default) for p in parameters if p.kind != p.VAR_KEYWORD]


def test_every_name_is_there_or_has_its_reason():
    names = public()
    assert sorted(n for n in names if not hasattr(sim, n) and not reason(n)) == []
    assert not reason("synchronize") and not reason("memory_allocated")


def test_the_porter_knows_what_is_there(tmp_path):
    names = [n for n, what in public().items() if not isinstance(what, types.ModuleType)]
    (tmp_path / "a.py").write_text("import torch\n" + "".join(f"torch.cuda.{n}\n" for n in names))
    subprocess.run(["ulpscope", "port", tmp_path / "a.py", "--to", "sim", "-o", tmp_path / "b.py"], check=False)
    ported = {line.removeprefix("torch.sim.") for line in (tmp_path / "b.py").read_text().splitlines()}
    assert [n for n in names if (n in ported) != hasattr(sim, n)] == []


def test_what_is_there_takes_what_torch_cudas_takes():
    other = {}
    for name, theirs in public().items():
        ours = getattr(sim, name, None)
        if ours is None or reason(name) or name in ("Stream", "Event"):  # made in torch's C
            continue
        if not set(takes(theirs) or []) <= set(takes(ours) or []):
            other[name] = (takes(ours), takes(theirs))
    assert other == {}
    for name in ("Stream", "Event"):
        given = {n for n, _ in takes(getattr(sim, name).__new__) or []}
        assert {n for n, _ in takes(getattr(torch.cuda, name).__new__) or []} - {"external"} <= given


def test_they_do_what_they_say():
    states = sim.get_rng_state_all()
    sim.seed_all()
    a = torch.rand(3, device="sim:1")
    sim.set_rng_state_all(states)
    b = torch.rand(3, device="sim:1")
    sim.set_rng_state_all(states)
    assert torch.equal(b.cpu(), torch.rand(3, device="sim:1").cpu()) and not torch.equal(a.cpu(), b.cpu())
    assert sim.get_device_properties(1).total_memory == sim.mem_get_info(1)[1]
    assert sim.can_device_access_peer(0, 1) and not sim.can_device_access_peer(0, 0)
    with sim.device_of(a):
        assert sim.current_device() == 1
    with sim.device_of(torch.ones(1)):
        assert sim.current_device() == 0
    assert sim.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == sim.memory_allocated()
    sim.set_per_process_memory_fraction(0.5, 1)
    assert sim.get_per_process_memory_fraction(1) == 0.5 and sim.get_per_process_memory_fraction(0) == 1
    sim.set_per_process_memory_fraction(1.0, 1)
