# SPDX-License-Identifier: Apache-2.0
"""The built-in references: operators of extensions, registered here by schema with a CPU
kernel of our own, pass when the kernel is honest and are accused for every planted bug."""

import contextlib
import functools

import pytest
import reference_cases_aten  # noqa: F401 - adds its cases
import torch
from calls import honest, judged, make_call
from reference_cases import CASES

from ulpscope.executors import formulas
from ulpscope.executors.device import PythonDevice, learn_writes
from ulpscope.session import judging
from ulpscope.calls.verdicts import FLAGGED

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_libraries = []


@pytest.fixture(scope="module", autouse=True)
def extension():
    """The operators as their extension would register them, with the honest kernels."""
    for name, case in CASES.items():
        if "(" not in case.schema:
            continue  # torch knows it
        space, _, rest = name.partition("::")
        library = torch.library.Library(space, "FRAGMENT")
        with contextlib.suppress(RuntimeError):  # a later torch may have some of them
            library.define(case.schema.partition("::")[2])
        library.impl(rest, case.kernel, "CPU")
        _libraries.append(library)
    yield
    for library in _libraries:
        library._destroy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_an_honest_kernel_passes(name, dtype):
    args, kwargs = CASES[name].arguments(DTYPES[dtype])
    device = honest if "(" in CASES[name].schema else lambda op, a, k: CASES[name].kernel(*a, **k)
    verdict = judged(device, name, *args, **kwargs)
    assert verdict.verdict == "pass", (verdict.reason, verdict.findings)


def verdict_on(kernel, name, args, kwargs):
    """The verdict without the search for a cause."""
    call = make_call(name, *args, **kwargs)
    device = PythonDevice(lambda op, a, k: kernel(*a, **k))
    answer = device.run(call)
    if answer.trespass and learn_writes(call):
        answer = device.run(call)
    return judging.verdict_on(call, answer, judging.Timing())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_planted_bugs_are_found(name, dtype):
    case = CASES[name]
    for bug in case.bugs:
        args, kwargs = case.arguments(DTYPES[dtype])
        verdict = verdict_on(functools.partial(case.kernel, **bug), name, args, kwargs)
        assert verdict.verdict in FLAGGED, (bug, verdict.reason, verdict.findings)


def test_every_case_has_a_reference():
    for name in CASES:
        assert formulas.find(name) is not None, name
