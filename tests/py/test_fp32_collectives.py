# SPDX-License-Identifier: Apache-2.0
"""`ulpscope.fp32_collectives` on two ranks over gloo: sums are rounded once, results are there
when the work says so, and everything else is as it was."""

import os
import subprocess
import sys
import textwrap

SCRIPT = """
    import torch, torch.distributed as dist, ulpscope
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    def mine(r, dtype):
        return torch.randn(64, generator=torch.Generator().manual_seed(r)).to(dtype)
    def everyone(dtype):
        return [mine(r, dtype) for r in range(n)]
    for dtype in (torch.bfloat16, torch.float16):
        rounded = sum(t.float() for t in everyone(dtype)).to(dtype)
        with ulpscope.fp32_collectives() as mode:
            x = mine(rank, dtype)
            view = x.clone().view(8, 8)
            dist.all_reduce(x)
            assert torch.equal(x, rounded)
            dist.all_reduce(view)
            assert torch.equal(view.flatten(), rounded)
            x = mine(rank, dtype)
            dist.barrier()
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            assert torch.equal(x, rounded)
            x = mine(rank, dtype)
            work = dist.all_reduce(x, async_op=True)
            value = work.get_future().wait()
            assert value[0].data_ptr() == x.data_ptr() and torch.equal(x, rounded)
            x = mine(rank, dtype)
            work = dist.all_reduce(x, async_op=True)
            while not work.is_completed():
                pass
            assert torch.equal(x, rounded)
            x = mine(rank, dtype)
            dist.reduce(x, 0)
            assert rank or torch.equal(x, rounded)
            out = torch.empty(32, dtype=dtype)
            dist.reduce_scatter_tensor(out, mine(rank, dtype))
            assert torch.equal(out, rounded.chunk(2)[rank])
            x = mine(rank, dtype)
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
            assert torch.equal(x, torch.maximum(*everyone(dtype)))
        assert mode.n_calls["c10d::allreduce_"] == 5, mode.n_calls
        assert mode.n_calls["c10d::reduce_"] == 1 and mode.error is None
    with ulpscope.fp32_collectives() as mode:
        x = mine(rank, torch.float32)
        dist.all_reduce(x)
    assert torch.equal(x, sum(everyone(torch.float32))) and mode.n_calls == {}
    with ulpscope.fp32_collectives() as mode:
        torch.manual_seed(0)
        net = DistributedDataParallel(torch.nn.Linear(8, 4).bfloat16())
        net(torch.randn(2, 8, generator=torch.Generator().manual_seed(rank)).bfloat16()).sum().backward()
        own = torch.nn.Linear(8, 4).bfloat16()
    grads = []
    for r in range(n):
        x = torch.randn(2, 8, generator=torch.Generator().manual_seed(r)).bfloat16()
        w = net.module.weight.detach().clone().requires_grad_()
        torch.nn.functional.linear(x, w).sum().backward()
        grads.append(w.grad)
    want = sum((g / n).float() for g in grads).bfloat16()
    assert torch.equal(net.module.weight.grad, want) and sum(mode.n_calls.values()) >= 1
    dist.barrier()
    dist.destroy_process_group()
    print("fine", rank)
"""


def test_two_ranks(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1")
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("fine") == 2
