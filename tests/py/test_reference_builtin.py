# SPDX-License-Identifier: Apache-2.0
"""The built-in references: operators of extensions, registered here by schema with a CPU
kernel of our own, pass when the kernel is honest and are accused for every planted bug."""

import contextlib

import pytest
import torch
from calls import honest, judged
from reference_cases import CASES

from ulpscope import _references
from ulpscope._verdicts import FLAGGED

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_libraries = []


@pytest.fixture(scope="module", autouse=True)
def extension():
    """The operators as their extension would register them, with the honest kernels."""
    for name, case in CASES.items():
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
    verdict = judged(honest, name, *args, **kwargs)
    assert verdict.verdict == "pass", (verdict.reason, verdict.findings)


@pytest.mark.parametrize("name,i", [(n, i) for n, c in CASES.items() for i in range(len(c.bugs))])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_planted_bug_is_found(name, i, dtype):
    case = CASES[name]
    args, kwargs = case.arguments(DTYPES[dtype])
    verdict = judged(lambda op, a, k: case.kernel(*a, **k, **case.bugs[i]), name, *args, **kwargs)
    assert verdict.verdict in FLAGGED, (case.bugs[i], verdict.reason, verdict.findings)


def test_every_case_has_a_reference():
    for name in CASES:
        assert _references.find(name) is not None, name
