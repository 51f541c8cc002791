# SPDX-License-Identifier: Apache-2.0
"""torch's own tests on the simulated device: test classes that are made for each device, and a sample of the
operator database, equal to the CPU in every bit. What is not run is counted, and nothing run is a failure."""

from __future__ import annotations

import collections
import io
import os
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

import pytest
import torch

sim = pytest.importorskip("ulpscope.sim", exc_type=OSError)
pytest.importorskip("expecttest")  # torch's test classes need it
pytestmark = pytest.mark.filterwarnings("ignore")

from torch.testing._internal import common_device_type as devices  # noqa: E402 (behind the device)
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.common_utils import TestCase  # noqa: E402

EVERY = 16  # of the operator database
SAMPLES = 3
# What draws or leaves memory as it was has no bits to compare.
NO_BITS = ("empty", "rand", "dropout", "bernoulli", "multinomial", "normal", "uniform", "alpha_dropout", "rrelu")


class Generic(TestCase):
    """As torch's files have them: a class for all devices, methods that are given one."""

    __test__ = False  # only what is made of it is run

    @devices.dtypes(torch.float32, torch.float16, torch.int64)
    def test_add(self, device, dtype):
        x = torch.ones(3, device=device, dtype=dtype)
        self.assertEqual(x + x, torch.full((3,), 2, device=device, dtype=dtype))
        self.assertEqual(x.device.type, "sim")

    @devices.onlyCUDA
    def test_streams(self, device):
        stream = torch.Stream(device)
        with stream:
            x = torch.ones(4, device=device)
        stream.synchronize()
        self.assertEqual(x.sum().item(), 4)

    @devices.ops([op for op in op_db if op.name in ("exp", "sum", "matmul")], allowed_dtypes=(torch.float32,))
    def test_ops(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            there = op(sample.input, *sample.args, **sample.kwargs)
            here = sample.transform(lambda t: t.cpu() if isinstance(t, torch.Tensor) else t)
            self.assertEqual(there.cpu(), op(here.input, *here.args, **here.kwargs), atol=0, rtol=0)


def test_torchs_test_classes_run():
    scope: dict = {"Generic": Generic}
    Generic.bypass_device_restrictions = True  # @onlyCUDA is for this device, too
    devices.instantiate_device_type_tests(Generic, scope, only_for=("sim",))
    made = scope["GenericPRIVATEUSE1"]
    names = {n for n in dir(made) if n.startswith("test_")}
    assert {"test_add_sim_float32", "test_streams_sim", "test_ops_matmul_sim_float32"} <= names
    text = io.StringIO()
    done = unittest.TextTestRunner(stream=text).run(unittest.defaultTestLoader.loadTestsFromTestCase(made))
    assert done.wasSuccessful() and done.testsRun >= 7, text.getvalue()


def moved(value):
    return value.detach().to("sim").requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def same(a, b):
    """Equal bits, all NaN alike."""
    a, b = a.detach().cpu(), b.detach().cpu()
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
        and torch.equal(a.isnan(), b.isnan())
    )


def outputs(result):
    leaves = torch.utils._pytree.tree_leaves(result)
    return [t for t in leaves if isinstance(t, torch.Tensor)]


def run(op, sample):
    torch.manual_seed(0)
    made = outputs(op.op(sample.input, *sample.args, **sample.kwargs))
    leaves = [t for t in outputs((sample.input, sample.args, sample.kwargs)) if t.is_leaf and t.requires_grad]
    of = [t for t in made if t.requires_grad]
    grads = torch.autograd.grad([t.sum() for t in of], leaves, allow_unused=True) if of and leaves else []
    return made + [g for g in grads if g is not None]


def compared(op):
    """How the samples of an operator go: run, equal, refused as the CPU refuses."""
    counts = collections.Counter()
    for i, sample in enumerate(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)):
        if i == SAMPLES:
            break
        there = sample.transform(moved)
        try:
            here = run(op, sample)
        except (RuntimeError, NotImplementedError):
            counts["refused"] += 1
            continue
        counts["run"] += 1
        got = run(op, there)
        counts["equal"] += len(here) == len(got) and all(same(a, b) for a, b in zip(here, got))  # noqa: B905
    return counts


def test_a_sample_of_the_operator_database_is_the_cpus():
    total, other = collections.Counter(), {}
    for op in op_db[::EVERY]:
        if torch.float32 not in op.supported_dtypes("cpu") or any(word in op.name for word in NO_BITS):
            total["skipped"] += 1
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                counts = compared(op)
        except Exception as problem:
            other[op.name] = f"{type(problem).__name__}: {str(problem)[:200]}"
            continue
        if counts["equal"] < counts["run"]:
            other[op.name] = dict(counts)
        total += counts
    assert other == {} and total["run"] > 60, (other, total)


FILE = """
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

class TestIt(TestCase):
    def test_right(self, device):
        self.assertEqual(torch.ones(2, device=device).sum().item(), 2)

    def test_wrong(self, device):
        self.assertEqual(device, "cuda")

class TestOfNoDevice(TestCase):
    def test_nothing(self):
        pass

instantiate_device_type_tests(TestIt, globals())
"""
ASKED = Path(__file__).parents[1] / "upstream" / "asked.py"


def asked(tree, *options):
    command = [sys.executable, str(ASKED), "--source", str(tree), *options]
    environment = {**os.environ, "ULPSCOPE_BUILD": str(tree / "build")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_torchs_files_are_run_from_a_tree(tmp_path):
    """What passes and fails is counted, what is of no device is not; nothing run is a failure."""
    (tmp_path / "test").mkdir()
    (tmp_path / "version.txt").write_text(f"{torch.__version__.split('+')[0]}a0\n")
    (tmp_path / "test" / "test_it.py").write_text(FILE)
    done = asked(tmp_path, "--write", str(tmp_path / "page.md"), "test_it")
    assert done.returncode == 1, done.stderr
    assert (
        "test_it: 1 passed, 1 failed, 0 skipped" in done.stdout and "TestItPRIVATEUSE1::test_wrong_sim" in done.stdout
    )
    assert "| `test_it` | 1 | 1 | 0 | 0 |" in (tmp_path / "page.md").read_text()
    done = asked(tmp_path, "-k", "no_such_test", "test_it")
    assert done.returncode == 1 and "no test of a device was run" in done.stdout
    (tmp_path / "version.txt").write_text("1.2.0\n")
    done = asked(tmp_path, "test_it")
    assert done.returncode == 2 and "the tree is of torch 1.2, and torch is" in done.stderr
