# SPDX-License-Identifier: Apache-2.0
"""Examples of calls from torch's own operator database: a trace of its samples, which `ulpscope
fuzz` draws from. Made once for a version of torch, in the cache folder, by
`python -m ulpscope.sources.opdb`.

Needs of torch `torch.testing._internal.common_methods_invocations.op_db`, which is private and
imports a test helper (expecttest) that few have; where that fails, so does this, with a sentence.
"""

import contextlib
import itertools
import random
import sys
import tempfile
import types
import unittest
import warnings
from pathlib import Path

import torch

from .capture import Recorder
from .glue import cache_home

SAMPLES = {torch.float32: 12, torch.int64: 3, torch.bool: 2, torch.complex64: 2}
SEED = 20261123
VERSION = 1  # of what is recorded here


def operators():
    """The entries of the database. RuntimeError where this torch has none that can be had."""
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401  # torch's test helpers do
        except ImportError:
            stub = types.ModuleType("expecttest")
            stub.TestCase = unittest.TestCase
            stub.assert_expected_inline = None
            sys.modules["expecttest"] = stub
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except Exception as problem:  # it is private: whatever it raises
        raise RuntimeError(f"the operator database of torch {torch.__version__} cannot be had "
                           f"({type(problem).__name__}: {problem}); give a captured trace with --trace") from None  # fmt: skip
    return op_db


def samples(entry, dtype, most):
    """Sample inputs of one entry, the same at every call."""
    torch.default_generator.manual_seed(SEED)  # torch.manual_seed notes a stack for each other device
    random.seed(SEED)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(SEED)
    grad = dtype == torch.float32 and entry.supports_autograd
    try:
        yield from itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=grad), most)
    except Exception:  # samples that this build of torch cannot make (no LAPACK, no MKL)
        return


def run(entry, sample):
    """Runs a sample forward, and backward where that goes."""
    out = entry.op(sample.input, *sample.args, **sample.kwargs)
    for leaf in out if isinstance(out, (tuple, list)) else (out,):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.numel():
            leaf.backward(torch.randn_like(leaf), retain_graph=True)


def record(path):
    """Writes the trace."""
    entries = operators()
    recorder = Recorder(path, data="stats")
    torch.set_num_threads(1)
    recorder.begin(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for entry in entries:
                for dtype, most in SAMPLES.items():
                    if dtype not in entry.dtypes:
                        continue
                    for sample in samples(entry, dtype, most):
                        with contextlib.suppress(Exception):  # a sample that this build refuses
                            run(entry, sample)
    finally:
        recorder.end()
        recorder.close()


def folder():
    """Where the trace of this version of torch lies, or will."""
    return cache_home() / "fuzz" / f"torch-{torch.__version__}-examples-{VERSION}"


def main():
    """Makes the trace unless it is there, and prints where, or why not."""
    try:
        path = folder()
        if not (path / "trace.db").exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as room:
                record(Path(room) / "trace")
                with contextlib.suppress(FileExistsError, OSError):  # another process was first
                    (Path(room) / "trace").rename(path)
        print(f"examples lie in {path}", flush=True)
    except (RuntimeError, OSError) as problem:
        print(f"examples lie in no folder: {problem}", flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
