# SPDX-License-Identifier: Apache-2.0
"""Every form that a call can have, judged on an honest device and on one with a fault: the
reference is found, keeps what it must keep, and nothing raises."""

import torch
from calls import honest, judged


def seeded(*sizes, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=g).to(dtype)


def test_a_written_view_with_an_offset_is_no_trespass():
    view = seeded(20)[3:9]
    assert judged(honest, "aten::mul_.Scalar", view, 3.0).verdict == "pass"
    strided = seeded(30).as_strided((4, 3), (5, 1), 2)
    assert judged(honest, "aten::mul_.Scalar", strided, 3.0).verdict == "pass"


def test_a_write_beside_the_view_is_trespass():
    def beside(op, args, kwargs):
        view = args[0]
        view.as_strided((1,), (1,), view.storage_offset() - 1).fill_(7)
        return op(*args, **kwargs)

    verdict = judged(beside, "aten::mul_.Scalar", seeded(20)[3:9], 3.0)
    assert verdict.verdict == "wrong"
    assert "outside the view" in verdict.findings[-1].reason


def test_a_result_without_storage_counts_as_zeros():
    verdict = judged(honest, "aten::_efficientzerotensor", [3], dtype=torch.float32)
    assert verdict.verdict == "pass"
