# SPDX-License-Identifier: Apache-2.0
"""Ways on without what newer torch has: each gives what torch's own gives, on a torch from which it was taken."""

import importlib.util
import sys

import pytest
import torch

from ulpscope.calls import torch_older, torch_private
from ulpscope.program import lacks, provenance

GONE = ["Event", "accelerator", "get_device_module", "get_autocast_dtype"]


def loaded(module):
    spec = importlib.util.spec_from_file_location("ulpscope.calls.without", module.__file__)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def older(monkeypatch):
    """Both modules as an older torch has them."""
    enabled = torch.is_autocast_enabled
    for name in GONE:
        monkeypatch.delattr(torch, name)
    monkeypatch.delattr(torch.compiler, "is_compiling")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device="cuda": enabled(device))
    for name in ("_ForceDispatchKeyGuard", "_dispatch_key_for_device", "_jit_resolve_packet"):
        monkeypatch.delattr(torch._C, name)
    return loaded(torch_older), loaded(torch_private)


@pytest.mark.filterwarnings("ignore:.*is deprecated")
def test_what_is_public(older):
    public, _ = older
    assert not public.is_compiling()
    assert public.device_module("cuda") is torch.cuda
    assert not public.is_autocast_on("cpu") and not public.is_autocast_on("cuda")
    torch.set_autocast_cpu_enabled(True)
    assert public.is_autocast_on("cpu") and public.autocast_dtype("cpu") is torch.bfloat16
    torch.set_autocast_cpu_enabled(False)
    assert not public.is_autocast_on("cpu") and not public.is_autocast_on("nothing")
    assert public.accelerator() is None or torch.device(public.accelerator())


def test_a_backend_by_its_name():
    assert callable(torch_private.lookup_backend("eager"))


LATE = [
    ("known_backends", (), lambda found: "inductor" in found),
    ("unknown_backend", (), lambda found: issubclass(found, Exception)),
    ("refused_by_compiler", (), lambda found: issubclass(found, Exception)),
    ("generated_kernels", (), lambda found: found >= 0),
    ("inductor_serves", ("cpu",), bool),
    ("indexing_by_tensors", (), lambda found: hasattr(found, "__enter__")),
    ("core_decompositions", (), len),
    ("decomposition_table", (), len),
    ("cxx11_abi", (), lambda found: isinstance(found, bool)),
    ("data_loader_iterator", (), lambda found: hasattr(found, "__next__")),
    ("default_device_mode", (), lambda found: isinstance(torch.device("meta"), torch.device) and found.__enter__),
    ("dispatch_table", ("aten::add.Tensor",), lambda found: "CPU: " in found),
    ("parsed_schema", ("a::b(Tensor x) -> Tensor",), lambda found: found.name == "a::b"),
    ("python_operator", ("no::such",), lambda found: found is None),
    ("is_torch_function", (torch.add, "add"), bool),
    ("coordinates", (torch.eye(2).to_sparse(),), lambda found: found[0].shape == (2, 2)),
]


@pytest.mark.parametrize("name, args, holds", LATE, ids=[name for name, *_ in LATE])
def test_what_torch_keeps_to_itself_is_had_when_asked_for(name, args, holds):
    """Each private name that is looked up late: a torch that has moved it fails here, by its name."""
    assert holds(getattr(torch_private, name)(*args))


def test_all_that_is_private_is_there():
    assert [name for name in torch_private.__all__ if not hasattr(torch_private, name)] == []


def test_an_operator_of_python_where_torch_has_no_such_operators(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._library.custom_ops", None)
    assert torch_private.python_operator("no::such") is None


def test_keys_set_one_by_one_and_back(older):
    _, private = older
    lazy = private.DispatchKeySet(private.key_named("Conjugate")) | private.DispatchKeySet(
        private.key_named("Negative")
    )
    before = private.included_keys(), private.excluded_keys()
    wanted = before[0] | private.DispatchKeySet(private.DispatchKey.Functionalize), before[1] | lazy
    with private.ForceDispatchKeyGuard(*wanted):
        assert (private.included_keys(), private.excluded_keys()) == wanted
        with private.ForceDispatchKeyGuard(before[0], wanted[1] - lazy):
            assert (private.included_keys(), private.excluded_keys()) == before
    assert (private.included_keys(), private.excluded_keys()) == before


def test_a_key_by_the_name_of_a_device(older):
    _, private = older
    for device in ("cpu", "cuda", "xpu", "meta", private.private_backend()):
        assert private.key_for_device(device) == torch_private.key_for_device(device)


X = torch.ones(2, 2)
CALLS = [
    ("add", (X, X), {}),
    ("add", (X, 1), {}),
    ("add", (X, X), {"out": X.clone()}),
    ("sum", (X,), {}),
    ("sum", (X, [0]), {}),
    ("matmul", (X, X), {}),
    ("max", (X,), {}),
    ("max", (X, 0), {}),
    ("linear", (X, X), {}),
    ("add", ("no", X), {}),
]


@pytest.mark.parametrize("name, args, kwargs", CALLS)
def test_an_overload_by_its_arguments(monkeypatch, name, args, kwargs):
    packet = getattr(torch.ops.aten, name)
    wanted = torch_private.resolved(packet, args, kwargs)
    monkeypatch.delattr(torch._C, "_jit_resolve_packet")
    assert torch_private.resolved(packet, args, kwargs) == wanted


def test_what_a_torch_lacks_is_told(monkeypatch):
    assert lacks.lacking() == [] and lacks.sentence() == "nothing that is known of"
    monkeypatch.delattr(torch, "Event")
    monkeypatch.setattr(lacks, "MODULES", [("torch.nn.no_such.thing", "a thing", "there is none")])
    assert [what for what, _ in lacks.lacking()] == ["events of any device", "a thing"]
    assert "a thing (there is none)" in lacks.sentence()


def test_a_library_whose_file_torch_keeps_to_itself_is_found_where_it_is_held(tmp_path, monkeypatch):
    (tmp_path / "held_by.py").write_text("import torch\nlibrary = torch.library.Library('held', 'DEF')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import held_by

    class Session:
        def places(self):
            return [("held::op", said), ("aten::add", "registered at x.cpp:1")]

    said = "registered at /dev/null:2"
    assert held_by.__file__ in provenance.operator_sources(Session())
    said = "registered at elsewhere.cpp:2"
    assert held_by.__file__ not in provenance.operator_sources(Session())
