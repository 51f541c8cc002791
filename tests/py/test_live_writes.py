# SPDX-License-Identifier: Apache-2.0
"""What a live check says of writes that a schema does not tell of, of the rest of a storage, and of
strides: planted faults, and what looks like one and is none."""

import contextlib
import functools
import importlib
import tempfile

import pytest
import torch

import ulpscope
import ulpscope.sim

importlib.import_module("live_faults")
harm = torch.ops.harm


def on_sim(*sizes):
    return torch.randn(*sizes).to("sim:0")


@contextlib.contextmanager
def crooked_clone():
    """aten::clone of the simulated device without its memory format."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl(
            "clone",
            lambda x, *, memory_format=None: torch.empty(x.shape, device=x.device).copy_(x),
            "PrivateUse1",
            allow_override=True,
        )
        yield


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The live check of all calls below, made once."""
    place = tmp_path_factory.mktemp("temporary")
    original = tempfile.mkdtemp
    patch = pytest.MonkeyPatch()
    patch.setattr(tempfile, "mkdtemp", functools.partial(original, dir=place))
    torch.manual_seed(4)
    try:
        with ulpscope.live_check() as live:
            plant()
            honest()
        live.findings()
    finally:
        patch.undo()
    assert live.error is None
    yield live
    live.judge.end()


def plant():
    x, y, z = on_sim(4, 8), on_sim(4, 8), on_sim(4, 8)
    harm.lies(x, y), harm.touches(y), harm.touches_list([x, z])
    flat = on_sim(64)
    harm.spills(on_sim(8), out=flat[8:16])
    large = on_sim(1 << 16)
    harm.spills(on_sim(8), out=large[5000:5008])
    harm.moves(on_sim(3, 4), out=on_sim(3, 4))
    harm.turned(on_sim(4, 6)), harm.mirror(torch.ones(5, 5, device="sim:0"))
    with crooked_clone():
        on_sim(2, 3, 4, 5).clone(memory_format=torch.channels_last)


def honest():
    x = on_sim(4, 8)
    image = on_sim(2, 3, 8, 8).to(memory_format=torch.channels_last)
    conv = torch.nn.Conv2d(3, 4, 3).to("sim:0").to(memory_format=torch.channels_last)
    norm = torch.nn.BatchNorm2d(4).to("sim:0")  # writes running statistics that its schema calls read-only
    norm(conv(image)).relu().sum().backward()
    x.expand(3, 4, 8).contiguous().sum(), x.t().exp(), x[:, ::2] * 2
    torch.exp(x, out=torch.empty(8, 4, device="sim:0").t()), torch.exp(x, out=torch.empty(0, device="sim:0"))
    flat = torch.zeros(64, device="sim:0")
    torch.mul(x, 2, out=flat[8:40].view(4, 8)), flat[1:].add_(flat[:-1].clone()), torch.mul(flat[:8], 2, out=flat[8:16])
    torch.empty_strided((3, 4), (1, 3), device="sim:0").fill_(1), x.clone().t_(), x.clone().resize_(2, 3)
    image.clone(memory_format=torch.contiguous_format), torch.empty_like(image, memory_format=torch.channels_last)
    torch.cat([x, x]), torch.stack([x.t(), x.t()]), torch.mm(x, x.t()), x.view(2, 16), torch.add(x, x)
    torch.nn.functional.dropout(x, 0.5), torch.randn_like(x.t())


FOUND = {
    "harm::lies": "wrote what its schema says it only reads: x (args[0])",
    "harm::touches": "wrote what its schema says it only reads: x (args[0])",
    "harm::touches_list": "wrote what its schema says it only reads: xs (args[0][1])",
    "harm::spills": "outside the view that is kwargs.out",
    "harm::moves": "left kwargs.out with strides [1, 3], not [4, 1] as before",
    "harm::mirror": "laid out out[0] with strides [1, 5], not [5, 1], which the call asks for",
    "aten::clone": "which the call asks for",
}


@pytest.mark.parametrize("op", FOUND)
def test_what_is_harmed_is_named(checked, op):
    found = [f for f in checked.findings() if f.op.removesuffix(".default") == op]
    assert found and all(FOUND[op] in f.sentence and f.verdict == "wrong" for f in found), found
    assert len(found) == (2 if op == "harm::spills" else 1), found


def test_nothing_else_is_accused(checked):
    found = [f for f in checked.findings() if f.op.removesuffix(".default") not in FOUND]
    assert [f.sentence for f in found] == []


def test_strides_that_nobody_promised_are_a_note(checked):
    noted = {n.op.removesuffix(".default"): n for n in checked.notes()}
    assert set(noted) == {"harm::turned"}, noted
    note = noted["harm::turned"]
    assert note.verdict == "pass"
    assert "laid out out[0] with strides [1, 4], not [6, 1] by torch's own kernels" in note.sentence


def test_what_another_thread_writes_is_not_the_operators_fault():
    with ulpscope.live_check(ops="harm::*") as live:
        harm.disturbed(torch.ones(4)), harm.lies(torch.ones(2, 2), torch.ones(2, 2))
    assert [f.op.removesuffix(".default") for f in live.findings()] == ["harm::lies"], live.findings()
    assert live.left_out == {"another thread wrote an input of it while it ran": 1} and live.error is None
    live.judge.end()
